// SPDX-License-Identifier: Apache-2.0
// cache/remote_open.c: creates the remote tier from its options, and destroys it.
//
// A destroy waits for its grace period and 0.1 s more. A thread that hangs longer is detached and
// frees the tier when it returns.
#include "base/alloc.h"
#include "base/env.h"
#include "base/plugin.h"
#include "cache/remote_inner.h"

#define MS_NS INT64_C(1000000)
// How long a destroy waits for running calls, after its grace period.
#define LAST_CALL_NS (100 * MS_NS)
#define DAY_MS INT64_C(86400000)
#define SCHEME_BYTES 17u

// ---- create

static int64_t or_default(int64_t value, int64_t fallback) {
  return value > 0 ? value : fallback;
}

// Writes the name of the store's module. libquern-redis.so also serves "redis+unix", and "rediss",
// for which it has an error message with advice.
static bool plugin_of(const char* url, char out[SCHEME_BYTES]) {
  const char* end = strstr(url, "://");
  size_t size = 0;
  while (end && url + size < end && url[size] != '+') {
    char c = url[size];
    bool is_fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!is_fine || size + 1 == SCHEME_BYTES) return false;
    out[size++] = c;
  }
  out[size] = '\0';
  if (strcmp(out, "rediss") == 0) out[5] = '\0';
  return size > 0;
}

static qn_status_t open_store(qn__remote_t* remote, const char* url, const char* directory) {
  char name[SCHEME_BYTES];
  if (!plugin_of(url, name)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "remote tier: '%s' is not a URL; expected redis://HOST or "
                          "redis+unix://PATH",
                          remote->url);
  }
  void* symbol;
  qn_status_t status = qn__plugin_open(directory, name, QN__STORE_ENTRY_SYMBOL, &symbol);
  if (!qn_ok(status)) {
    qn_status_t wider = qn_status_make(qn_status_code(status), "remote tier: no store for %s: %s",
                                       remote->url, qn_status_message(status));
    qn_status_free(status);
    return wider;
  }
  qn__store_entry_fn_t entry;
  memcpy(&entry, &symbol, sizeof entry);
  remote->store = entry(QN__STORE_ABI_VERSION);
  if (!remote->store || remote->store->abi_version != QN__STORE_ABI_VERSION ||
      remote->store->struct_size < sizeof *remote->store ||
      strcmp(remote->store->scheme, name) != 0) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "remote tier: libquern-%s.so does not serve version %u of the table",
                          name, QN__STORE_ABI_VERSION);
  }
  return QN_OK;
}

static qn_status_t open_crypto(qn__remote_t* remote, const qn__remote_options_t* options,
                               const char* directory) {
  remote->crypto = options->crypto;
  if (!remote->crypto) QN_TRY(qn__crypto_open(directory, &remote->crypto));
  if (options->key) {
    memcpy(remote->key, options->key, sizeof remote->key);
    return QN_OK;
  }
  if (!options->key_file || !options->key_file[0]) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "remote tier: entries must be authenticated; name the file of the key "
                          "(QUERN_REMOTE_KEY)");
  }
  return qn__key_read(options->key_file, true, remote->key, sizeof remote->key);
}

static qn_status_t set_url(qn__remote_t* remote, const char* url) {
  qn__buffer_t masked;
  qn__buffer_init(&masked, remote->allocator);
  qn__remote_mask_url(qn__str(url), &masked);
  if (!masked.has_failed) {
    remote->url = qn__copy_cstr(remote->allocator, qn__buffer_as_str(&masked));
  }
  qn__buffer_deinit(&masked);
  return remote->url ? QN_OK : qn__out_of_memory("the remote tier");
}

static qn_status_t open_queue(qn__remote_t* remote, qn__remote_queue_t* queue, const char* url) {
  return remote->store->create(remote->allocator, qn__net(), url, &queue->connection);
}

static void init_queue(qn__remote_t* remote, qn__remote_queue_t* queue, bool is_puts) {
  queue->remote = remote;
  queue->thread_name = is_puts ? "quern-put" : "quern-get";
  queue->tail = &queue->head;
}

static void take_options(qn__remote_t* remote, const qn__remote_options_t* options) {
  remote->store = options->store;
  remote->may_write = options->may_write;
  remote->timeout_ns = or_default(options->timeout_ns, 200 * MS_NS);
  // A longer timeout means a slow machine or a slow network, where connecting is slow as well.
  remote->connect_timeout_ns = or_default(options->connect_timeout_ns, remote->timeout_ns / 2 + 1);
  remote->retry_ns = or_default(options->retry_ns, 1000 * MS_NS);
  remote->latch_ns = or_default(options->latch_ns, 60000 * MS_NS);
  int64_t ten_times = remote->timeout_ns > INT64_MAX / 10 ? INT64_MAX : 10 * remote->timeout_ns;
  remote->put_timeout_ns = or_default(options->put_timeout_ns, ten_times);
  remote->ttl_ms = options->ttl_ms < 0 ? 0 : or_default(options->ttl_ms, 30 * DAY_MS);
  const uint64_t max_bytes = SIZE_MAX / 4;
  remote->max_entry_bytes =
      options->max_entry_bytes ? options->max_entry_bytes : UINT64_C(16) << 20;
  if (remote->max_entry_bytes > max_bytes) remote->max_entry_bytes = max_bytes;
  remote->max_queue_bytes =
      options->max_queue_bytes ? options->max_queue_bytes : UINT64_C(64) << 20;
}

static qn_status_t init_locks(qn__remote_t* remote) {
  QN_TRY(qn__mutex_init(&remote->mutex));
  qn__cond_t* conds[] = {&remote->done, &remote->gets.work, &remote->puts.work};
  qn_status_t status = QN_OK;
  size_t count = 0;
  while (count < QN_COUNT_OF(conds) && qn_ok(status)) status = qn__cond_init(conds[count++]);
  if (qn_ok(status)) return QN_OK;
  for (count--; count > 0; count--) qn__cond_deinit(conds[count - 1]);
  qn__mutex_deinit(&remote->mutex);
  return status;
}

static void free_memory(qn__remote_t* remote) {
  if (remote->gets.connection) remote->store->destroy(remote->gets.connection);
  if (remote->puts.connection) remote->store->destroy(remote->puts.connection);
  if (remote->crypto) remote->crypto->wipe(remote->key, sizeof remote->key);
  qn__free_cstr(remote->allocator, remote->url);
  qn_allocator_t allocator = remote->allocator;
  qn__free(allocator, remote, sizeof *remote);
}

void qn__remote_free(qn__remote_t* remote) {
  assert(!remote->gets.head && !remote->puts.head && !remote->gets.running &&
         !remote->puts.running);
  qn__fork_unregister(&remote->fork_node);
  qn__remote_free_orphans(remote);
  qn__cond_deinit(&remote->puts.work);
  qn__cond_deinit(&remote->gets.work);
  qn__cond_deinit(&remote->done);
  qn__mutex_deinit(&remote->mutex);
  free_memory(remote);
}

qn_status_t qn__remote_create(const qn__remote_options_t* options, qn__remote_t** out_remote) {
  *out_remote = NULL;
  if (qn__has_borrowed_rights()) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED,
                          "a process with borrowed user or group rights uses no remote tier");
  }
  if (!options->url || !options->url[0]) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "URL of the remote tier is empty");
  }
  qn_allocator_t allocator =
      options->allocator.reallocate ? options->allocator : qn_allocator_default();
  qn__remote_t* remote = qn__alloc_zero(allocator, 1, sizeof *remote);
  if (!remote) return qn__out_of_memory("the remote tier");
  remote->allocator = allocator;
  take_options(remote, options);
  init_queue(remote, &remote->gets, false);
  init_queue(remote, &remote->puts, true);
  const char* directory = options->plugin_directory ? options->plugin_directory : "";
  qn_status_t status = set_url(remote, options->url);
  if (qn_ok(status)) status = qn__remote_set_prefix(remote, options->trust_domain);
  if (qn_ok(status) && !remote->store) status = open_store(remote, options->url, directory);
  if (qn_ok(status)) status = open_queue(remote, &remote->gets, options->url);
  if (qn_ok(status) && remote->may_write) status = open_queue(remote, &remote->puts, options->url);
  if (qn_ok(status)) status = open_crypto(remote, options, directory);
  if (qn_ok(status)) status = init_locks(remote);
  if (!qn_ok(status)) {
    free_memory(remote);
    return status;
  }
  remote->crypto->random(remote->token, sizeof remote->token);
  remote->fork_node =
      (qn__fork_node_t){.self = remote, .mutex = &remote->mutex, .child = qn__remote_fork_child};
  if (!qn__fork_register(&remote->fork_node)) {
    qn__remote_free(remote);
    return qn__out_of_memory("the fork handlers of the remote tier");
  }
  *out_remote = remote;
  return QN_OK;
}

// ---- destroy

static bool has_ended(const qn__remote_t* remote) {
  return remote->gets.state != QN__REMOTE_THREAD_RUNNING &&
         remote->puts.state != QN__REMOTE_THREAD_RUNNING;
}

// True when a thread that still runs is in no call, so that it ends soon.
static bool is_about_to_end(const qn__remote_t* remote) {
  return (remote->gets.state == QN__REMOTE_THREAD_RUNNING && !remote->gets.is_away) ||
         (remote->puts.state == QN__REMOTE_THREAD_RUNNING && !remote->puts.is_away);
}

void qn__remote_destroy(qn__remote_t* remote, int64_t grace_ns) {
  if (!remote) return;
  int64_t deadline_ns = qn__after(qn__after(qn__now_ns(), grace_ns), LAST_CALL_NS);
  (void)qn__remote_flush(remote, grace_ns);
  qn__mutex_lock(&remote->mutex);
  remote->is_closing = true;
  qn__cond_broadcast(&remote->gets.work);
  qn__cond_broadcast(&remote->puts.work);
  // A thread that is in no call ends without waiting for anything, so it is waited for without a
  // deadline; only a busy machine delays it.
  bool is_in_time = true;
  while (!has_ended(remote) && (is_in_time || is_about_to_end(remote))) {
    if (is_about_to_end(remote)) {
      qn__cond_wait(&remote->done, &remote->mutex);
    } else {
      is_in_time = qn__cond_wait_until(&remote->done, &remote->mutex, deadline_ns);
    }
  }
  bool is_abandoned = remote->is_abandoned = !has_ended(remote);
  qn__remote_queue_t* const queues[] = {&remote->gets, &remote->puts};
  pthread_t ended[QN_COUNT_OF(queues)];
  size_t ended_count = 0;
  for (size_t i = 0; i < QN_COUNT_OF(queues); i++) {
    if (queues[i]->state == QN__REMOTE_THREAD_ENDED) ended[ended_count++] = queues[i]->thread;
    if (queues[i]->state == QN__REMOTE_THREAD_RUNNING) (void)pthread_detach(queues[i]->thread);
  }
  qn__mutex_unlock(&remote->mutex);
  // These threads need the lock no more.
  for (size_t i = 0; i < ended_count; i++) (void)pthread_join(ended[i], NULL);
  if (!is_abandoned) qn__remote_free(remote);
}
