// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/support_remote.c: see support_remote.h.
#include "tests/unit/cache/support_remote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/digest.h"

#define ITEMS 64

typedef struct item {
  char name[200];
  uint8_t* data;
  size_t size;
} item_t;

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  item_t items[ITEMS];
  qn__store_result_t results[FAKE_CALLS];
  int result_counts[FAKE_CALLS];
  bool is_holding[FAKE_CALLS];
  int held_counts[FAKE_CALLS];
  long call_counts[FAKE_CALLS];
  long connection_count;
  size_t limit;
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

typedef struct fake_connection {
  qn_allocator_t allocator;
  bool is_connected;
} fake_connection_t;

static void lock(void) {
  (void)pthread_mutex_lock(&fake.mutex);
}
static void unlock(void) {
  (void)pthread_mutex_unlock(&fake.mutex);
}

static item_t* find(const char* name, size_t size) {
  for (size_t i = 0; i < ITEMS; i++) {
    if (strlen(fake.items[i].name) == size && memcmp(fake.items[i].name, name, size) == 0) {
      return &fake.items[i];
    }
  }
  return NULL;
}

static void drop(item_t* item) {
  free(item->data);
  memset(item, 0, sizeof *item);
}

static void set(const char* name, size_t name_size, const void* data, size_t size) {
  item_t* item = find(name, name_size);
  if (!item) item = find("", 0);
  if (!item || name_size >= sizeof item->name) abort();
  drop(item);
  memcpy(item->name, name, name_size);
  item->data = malloc(size + 1);
  if (!item->data) abort();
  memcpy(item->data, data, size);
  item->size = size;
}

void fake_reset(void) {
  lock();
  for (size_t i = 0; i < ITEMS; i++) drop(&fake.items[i]);
  memset(fake.results, 0, sizeof fake.results);
  memset(fake.result_counts, 0, sizeof fake.result_counts);
  memset(fake.is_holding, 0, sizeof fake.is_holding);
  memset(fake.call_counts, 0, sizeof fake.call_counts);
  (void)pthread_cond_broadcast(&fake.changed);
  unlock();
}

void fake_order(fake_call_t call, qn__store_result_t result, int count) {
  lock();
  fake.results[call] = result;
  fake.result_counts[call] = count;
  unlock();
}

void fake_hold(fake_call_t call) {
  lock();
  fake.is_holding[call] = true;
  unlock();
}

void fake_release(fake_call_t call) {
  lock();
  fake.is_holding[call] = false;
  (void)pthread_cond_broadcast(&fake.changed);
  unlock();
}

void fake_wait_held(fake_call_t call, int count) {
  lock();
  while (fake.held_counts[call] < count) (void)pthread_cond_wait(&fake.changed, &fake.mutex);
  unlock();
}

int fake_held(fake_call_t call) {
  lock();
  int count = fake.held_counts[call];
  unlock();
  return count;
}

long fake_calls(fake_call_t call) {
  lock();
  long count = fake.call_counts[call];
  unlock();
  return count;
}

long fake_connections(void) {
  lock();
  long count = fake.connection_count;
  unlock();
  return count;
}

size_t fake_limit(void) {
  lock();
  size_t limit = fake.limit;
  unlock();
  return limit;
}

size_t fake_value(const char* name, uint8_t* out, size_t room, char* out_name, size_t name_room) {
  lock();
  size_t size = 0;
  for (size_t i = 0; i < ITEMS; i++) {
    const item_t* item = &fake.items[i];
    bool is_wanted = name ? strcmp(item->name, name) == 0
                          : item->name[0] != '\0' && !strstr(item->name, ":claim");
    if (!is_wanted || item->size > room) continue;
    size = item->size;
    memcpy(out, item->data, size);
    if (out_name) (void)snprintf(out_name, name_room, "%s", item->name);
  }
  unlock();
  return size;
}

void fake_set_value(const char* name, const uint8_t* data, size_t size) {
  lock();
  set(name, strlen(name), data, size);
  unlock();
}

bool fake_has(const char* name) {
  lock();
  bool has = find(name, strlen(name)) != NULL;
  unlock();
  return has;
}

long fake_count(void) {
  lock();
  long count = 0;
  for (size_t i = 0; i < ITEMS; i++) count += fake.items[i].name[0] != '\0';
  unlock();
  return count;
}

pid_t fake_fork(void) {
  lock();
  pid_t child = fork();
  if (child != 0) unlock();
  return child;
}

// ---- the store

// With the lock held: counts, waits while held, and says what was ordered.
static qn__store_result_t begin(fake_connection_t* connection, fake_call_t call) {
  fake.call_counts[call]++;
  fake.held_counts[call]++;
  (void)pthread_cond_broadcast(&fake.changed);
  while (fake.is_holding[call]) (void)pthread_cond_wait(&fake.changed, &fake.mutex);
  fake.held_counts[call]--;
  qn__store_result_t result = QN__STORE_OK;
  if (fake.result_counts[call] != 0) {
    result = fake.results[call];
    if (fake.result_counts[call] > 0) fake.result_counts[call]--;
  }
  if (result == QN__STORE_TIMEOUT || result == QN__STORE_ERROR) connection->is_connected = false;
  return result;
}

static qn_status_t create(qn_allocator_t allocator, const qn__net_t* net, const char* url,
                          void** out_connection) {
  (void)net, (void)url;
  fake_connection_t* connection = qn__alloc_zero(allocator, 1, sizeof *connection);
  *out_connection = connection;
  if (!connection) return qn__out_of_memory("a connection");
  connection->allocator = allocator;
  lock();
  fake.connection_count++;
  unlock();
  return QN_OK;
}

static void destroy(void* self) {
  fake_connection_t* connection = self;
  lock();
  fake.connection_count--;
  unlock();
  qn__free(connection->allocator, connection, sizeof *connection);
}

static qn__store_result_t connect_store(void* self, int64_t deadline_ns) {
  (void)deadline_ns;
  fake_connection_t* connection = self;
  if (connection->is_connected) return QN__STORE_OK;
  lock();
  qn__store_result_t result = begin(connection, FAKE_CONNECT);
  unlock();
  connection->is_connected = result == QN__STORE_OK;
  return result;
}

static bool is_connected(const void* self) {
  const fake_connection_t* connection = self;
  return connection->is_connected;
}

static qn__store_result_t get(void* self, qn_str_t key, size_t limit_bytes, int64_t deadline_ns,
                              uint8_t** out_value, size_t* out_size) {
  (void)deadline_ns;
  fake_connection_t* connection = self;
  lock();
  qn__store_result_t result = begin(connection, FAKE_GET);
  fake.limit = limit_bytes;
  const item_t* item = find(key.data, key.size);
  if (result == QN__STORE_OK && !item) result = QN__STORE_ABSENT;
  if (result == QN__STORE_OK && item->size > limit_bytes) result = QN__STORE_LARGE;
  if (result == QN__STORE_OK && item->size > 0) {
    *out_value = qn__alloc(connection->allocator, item->size);
    if (*out_value) {
      memcpy(*out_value, item->data, item->size);
      *out_size = item->size;
    } else {
      result = QN__STORE_NO_MEMORY;
    }
  }
  unlock();
  return result;
}

static qn__store_result_t put(void* self, qn_str_t key, qn_span_t value, int64_t ttl_ms,
                              int64_t deadline_ns) {
  (void)ttl_ms, (void)deadline_ns;
  lock();
  qn__store_result_t result = begin(self, FAKE_PUT);
  if (result == QN__STORE_OK) set(key.data, key.size, value.data, value.size);
  unlock();
  return result;
}

static qn__store_result_t claim(void* self, qn_str_t key, qn_str_t owner, int64_t ttl_ms,
                                int64_t deadline_ns) {
  (void)ttl_ms, (void)deadline_ns;
  lock();
  qn__store_result_t result = begin(self, FAKE_CLAIM);
  if (result == QN__STORE_OK && find(key.data, key.size)) result = QN__STORE_ABSENT;
  if (result == QN__STORE_OK) set(key.data, key.size, owner.data, owner.size);
  unlock();
  return result;
}

static qn__store_result_t unclaim(void* self, qn_str_t key, qn_str_t owner, int64_t deadline_ns) {
  (void)deadline_ns;
  lock();
  qn__store_result_t result = begin(self, FAKE_UNCLAIM);
  item_t* item = find(key.data, key.size);
  bool is_ours =
      item && item->size == owner.size && memcmp(item->data, owner.data, owner.size) == 0;
  if (result == QN__STORE_OK && !is_ours) result = QN__STORE_ABSENT;
  if (result == QN__STORE_OK) drop(item);
  unlock();
  return result;
}

static void disconnect(void* self) {
  fake_connection_t* connection = self;
  connection->is_connected = false;
}

static const char* message(const void* self) {
  (void)self;
  return "as ordered";
}

// The lock may be held by a thread of the parent's; the child of a test begins with a fresh one.
static void forget(void* self) {
  fake_connection_t* connection = self;
  connection->is_connected = false;
  (void)pthread_mutex_init(&fake.mutex, NULL);
  (void)pthread_cond_init(&fake.changed, NULL);
  memset(fake.is_holding, 0, sizeof fake.is_holding);
}

const qn__store_t fake_store = {
    .abi_version = QN__STORE_ABI_VERSION,
    .struct_size = sizeof(qn__store_t),
    .scheme = "fake",
    .create = create,
    .destroy = destroy,
    .connect = connect_store,
    .is_connected = is_connected,
    .get = get,
    .put = put,
    .claim = claim,
    .unclaim = unclaim,
    .disconnect = disconnect,
    .forget = forget,
    .message = message,
};

// ---- cryptography

// Every byte of key and spans counts; that it can be forged does not matter here.
static void mac(const uint8_t key[QN__MAC_KEY_BYTES], const qn_span_t* spans, size_t count,
                uint8_t out[QN__MAC_BYTES]) {
  qn__buffer_t all;
  qn__buffer_init(&all, qn_allocator_default());
  qn__buffer_bytes(&all, key, QN__MAC_KEY_BYTES);
  for (size_t i = 0; i < count; i++) qn__buffer_bytes(&all, spans[i].data, spans[i].size);
  if (all.has_failed) abort();
  for (uint64_t half = 0; half < 2; half++) {
    qn_hash128_t hash = qn__xxh128(qn__buffer_as_span(&all), half);
    memcpy(out + 16 * half, hash.bytes, 16);
  }
  qn__buffer_deinit(&all);
}
static bool equal(const uint8_t* a, const uint8_t* b, size_t size) {
  return memcmp(a, b, size) == 0;
}
static void random_bytes(uint8_t* out, size_t size) {
  static _Atomic unsigned serial;
  unsigned next = ++serial;
  for (size_t i = 0; i < size; i++) out[i] = (uint8_t)(next >> (8 * (i % 4)));
}
static void wipe(void* data, size_t size) {
  memset(data, 0, size);
}

const qn__crypto_t fake_crypto = {
    .abi_version = QN__CRYPTO_ABI_VERSION,
    .struct_size = sizeof(qn__crypto_t),
    .mac = mac,
    .equal = equal,
    .random = random_bytes,
    .wipe = wipe,
};

// ---- a remote tier over both

static const uint8_t secret[QN__MAC_KEY_BYTES] = {1, 2, 3};

// Long times, so that nothing ends by itself; a test shortens what it is about.
qn__remote_options_t remote_usual(void) {
  return (qn__remote_options_t){.url = "fake://nowhere",
                                .trust_domain = "test",
                                .may_write = true,
                                .timeout_ns = HOUR,
                                .retry_ns = HOUR,
                                .store = &fake_store,
                                .crypto = &fake_crypto,
                                .key = secret};
}

qn__remote_t* remote_make(const qn__remote_options_t* options) {
  qn__remote_t* remote = NULL;
  assert_int_equal(qn_status_consume(qn__remote_create(options, &remote)), QN_STATUS_OK);
  return remote;
}

void remote_end(qn__remote_t* remote) {
  qn__remote_destroy(remote, HOUR);
}

qn__get_result_t remote_get_by(qn__remote_t* remote, const sample_t* sample, int64_t deadline_ns) {
  qn__hit_t hit;
  qn__get_result_t result = qn__remote_get(remote, &sample->expected, deadline_ns, &hit);
  if (result == QN__GET_HIT) {
    assert_true(sample_equals(sample, &hit.entry));
    assert_int_equal((uintptr_t)hit.bytes % 16, 0);
  }
  qn__remote_hit_release(remote, &hit);
  qn__remote_hit_release(remote, &hit);
  qn__mutex_lock(&remote->mutex);
  assert_true(qn__remote_check(remote));
  qn__mutex_unlock(&remote->mutex);
  return result;
}

qn__get_result_t remote_get(qn__remote_t* remote, const sample_t* sample) {
  return remote_get_by(remote, sample, NEVER);
}

void remote_put(qn__remote_t* remote, const sample_t* sample) {
  uint64_t done = qn__remote_counter(remote, "remote_put_done");
  assert_true(qn__remote_put(remote, &sample->entry));
  assert_true(qn__remote_flush(remote, HOUR));
  assert_int_equal(qn__remote_counter(remote, "remote_put_done"), done + 1);
}

void remote_is_breaker(qn__remote_t* remote, qn__breaker_state_t state, int64_t period_ns) {
  int64_t period = -1;
  assert_string_equal(qn__breaker_state_name(qn__remote_breaker(remote, &period)),
                      qn__breaker_state_name(state));
  assert_int_equal(period, period_ns);
}

int remote_set_up(void** state) {
  (void)state;
  fake_reset();
  return 0;
}
