// SPDX-License-Identifier: Apache-2.0
// cache/redis/redis.c: the store over the Redis protocol (RESP2): libquern-redis.so.
//
// hiredis formats the commands. Its connections are not used: their timeouts are per system call,
// so a peer that sends a byte now and then would hold a caller for ever; and they do not go through
// base/net.h. Its reader is not used either (reply.c): a first line is simple, and a child of fork
// would lose a reader that is in use. A command with a value is sent in three
// pieces, so that the value is never copied. Only socket.c checks deadlines.
//
// Errors such as READONLY, NOPERM and OOM mean "denied" and keep the connection. The server's text
// after a failed AUTH is dropped: an old server quotes the unknown command, with the password in
// it.
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "cache/redis/redis.h"

// Deletes a claim if the owner still holds it.
static const char unclaim_script[] =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

static void wipe(void* data, size_t size) {
  volatile uint8_t* bytes = data;
  for (size_t i = 0; i < size; i++) bytes[i] = 0;
}

// ---- commands

static qn__store_result_t send_command(qn__redis_t* redis, int count, const qn_str_t* words,
                                       int64_t deadline_ns) {
  const char* argv[8];
  size_t sizes[8];
  if (QN_NEVER(count > 8)) return QN__STORE_ERROR;
  for (int i = 0; i < count; i++) {
    argv[i] = words[i].data;
    sizes[i] = words[i].size;
  }
  char* command = NULL;
  int size = redisFormatCommandArgv(&command, count, argv, sizes);
  if (size < 0) return qn__redis_fail(redis, QN__STORE_NO_MEMORY, "out of memory");
  qn__store_result_t result = qn__redis_send(redis, command, (size_t)size, deadline_ns);
  wipe(command, (size_t)size);  // it may contain a password
  redisFreeCommand(command);
  return result;
}

// Sends a command and reads its reply.
static qn__store_result_t ask(qn__redis_t* redis, int count, const qn_str_t* words,
                              size_t limit_bytes, int64_t deadline_ns) {
  qn__store_result_t result = send_command(redis, count, words, deadline_ns);
  return result == QN__STORE_OK ? qn__redis_read_reply(redis, limit_bytes, deadline_ns) : result;
}

// Returns the first word of an error, such as "NOPERM".
static qn_str_t code_of(const qn__redis_reply_t* reply) {
  size_t size = 0;
  while (reply->text[size] && reply->text[size] != ' ') size++;
  return (qn_str_t){reply->text, size};
}

static bool is_denial(const qn__redis_reply_t* reply) {
  static const qn_str_t codes[] = {QN_STR_INIT("READONLY"), QN_STR_INIT("NOPERM"),
                                   QN_STR_INIT("OOM"),      QN_STR_INIT("MISCONF"),
                                   QN_STR_INIT("NOAUTH"),   QN_STR_INIT("WRONGPASS"),
                                   QN_STR_INIT("DENIED"),   QN_STR_INIT("NOREPLICAS")};
  qn_str_t code = code_of(reply);
  for (size_t i = 0; i < QN_COUNT_OF(codes); i++) {
    if (qn__str_equal(code, codes[i])) return true;
  }
  return false;
}

// Translates an error reply to the operation `what`. A denial keeps the connection.
static qn__store_result_t refused(qn__redis_t* redis, const char* what) {
  if (redis->reply.type != QN__REDIS_ERROR) {
    qn__redis_drop_value(redis);
    return qn__redis_fail(redis, QN__STORE_ERROR, "the server answered %s with nonsense", what);
  }
  if (is_denial(&redis->reply)) {
    (void)snprintf(redis->message, sizeof redis->message, "the server denies %s: %s", what,
                   redis->reply.text);
    return QN__STORE_DENIED;
  }
  return qn__redis_fail(redis, QN__STORE_ERROR, "the server refuses %s: %s", what,
                        redis->reply.text);
}

static bool is_ok(const qn__redis_t* redis) {
  return redis->reply.type == QN__REDIS_STATUS && strcmp(redis->reply.text, "OK") == 0;
}

// ---- the handshake

static qn__store_result_t authenticate(qn__redis_t* redis, int64_t deadline_ns) {
  const qn__redis_url_t* url = &redis->url;
  qn_str_t words[3] = {QN_STR("AUTH"), qn__str(url->user), qn__str(url->password)};
  if (!url->user[0]) words[1] = words[2];
  qn__store_result_t result = ask(redis, url->user[0] ? 3 : 2, words, 0, deadline_ns);
  if (result != QN__STORE_OK || is_ok(redis)) return result;
  qn__redis_reply_t reply = redis->reply;
  if (reply.type != QN__REDIS_ERROR) return refused(redis, "AUTH");
  return qn__redis_fail(redis, QN__STORE_DENIED,
                        "the server does not accept the credentials (%.*s)",
                        QN_STR_ARG(code_of(&reply)));
}

static qn__store_result_t choose_database(qn__redis_t* redis, int64_t deadline_ns) {
  const qn_str_t words[] = {QN_STR("SELECT"), qn__str(redis->url.database)};
  qn__store_result_t result = ask(redis, 2, words, 0, deadline_ns);
  if (result != QN__STORE_OK || is_ok(redis)) return result;
  result = refused(redis, "SELECT");
  qn__redis_close_socket(redis);
  return result;
}

static qn__store_result_t redis_connect(void* connection, int64_t deadline_ns) {
  qn__redis_t* redis = connection;
  redis->message[0] = '\0';
  if (redis->fd >= 0) {
    // Readable without a request: the server has closed the connection or sends nonsense.
    if (redis->net->wait(redis->fd, POLLIN, 0) == 0) return QN__STORE_OK;
    qn__redis_close_socket(redis);
  }
  qn__store_result_t result = qn__redis_open_socket(redis, deadline_ns);
  if (result == QN__STORE_OK && redis->url.has_password) result = authenticate(redis, deadline_ns);
  if (result == QN__STORE_OK && redis->url.database[0])
    result = choose_database(redis, deadline_ns);
  return result;
}

// ---- the operations

static qn__store_result_t redis_get(void* connection, qn_str_t key, size_t limit_bytes,
                                    int64_t deadline_ns, uint8_t** out_value, size_t* out_size) {
  qn__redis_t* redis = connection;
  const qn_str_t words[] = {QN_STR("GET"), key};
  qn__store_result_t result = ask(redis, 2, words, limit_bytes, deadline_ns);
  if (result != QN__STORE_OK) return result;
  if (redis->reply.type == QN__REDIS_NIL) return QN__STORE_ABSENT;
  if (redis->reply.type != QN__REDIS_BULK) return refused(redis, "GET");
  *out_size = redis->value_size;
  *out_value = redis->value;
  redis->value = NULL;
  redis->value_size = 0;
  return QN__STORE_OK;
}

static qn__store_result_t redis_put(void* connection, qn_str_t key, qn_span_t value, int64_t ttl_ms,
                                    int64_t deadline_ns) {
  qn__redis_t* redis = connection;
  char head[512], tail[64] = "\r\n";
  char ttl[24];
  int ttl_size = snprintf(ttl, sizeof ttl, "%" PRId64, ttl_ms);
  int head_size = snprintf(head, sizeof head, "*%d\r\n$3\r\nSET\r\n$%zu\r\n%.*s\r\n$%zu\r\n",
                           ttl_ms > 0 ? 5 : 3, key.size, QN_STR_ARG(key), value.size);
  int tail_size = 2;
  if (ttl_ms > 0) {
    tail_size = snprintf(tail, sizeof tail, "\r\n$2\r\nPX\r\n$%d\r\n%s\r\n", ttl_size, ttl);
  }
  if (head_size < 0 || (size_t)head_size >= sizeof head) {
    return qn__redis_fail(redis, QN__STORE_ERROR, "the name of a value is too long");
  }
  qn__store_result_t result = qn__redis_send(redis, head, (size_t)head_size, deadline_ns);
  if (result == QN__STORE_OK) result = qn__redis_send(redis, value.data, value.size, deadline_ns);
  if (result == QN__STORE_OK) result = qn__redis_send(redis, tail, (size_t)tail_size, deadline_ns);
  if (result == QN__STORE_OK) result = qn__redis_read_reply(redis, 0, deadline_ns);
  if (result != QN__STORE_OK) return result;
  return is_ok(redis) ? QN__STORE_OK : refused(redis, "SET");
}

static qn__store_result_t redis_claim(void* connection, qn_str_t key, qn_str_t owner,
                                      int64_t ttl_ms, int64_t deadline_ns) {
  qn__redis_t* redis = connection;
  char ttl[24];
  (void)snprintf(ttl, sizeof ttl, "%" PRId64, ttl_ms > 0 ? ttl_ms : 1);
  const qn_str_t words[] = {QN_STR("SET"), key, owner, QN_STR("NX"), QN_STR("PX"), qn__str(ttl)};
  qn__store_result_t result = ask(redis, 6, words, 0, deadline_ns);
  if (result != QN__STORE_OK) return result;
  if (redis->reply.type == QN__REDIS_NIL) return QN__STORE_ABSENT;
  return is_ok(redis) ? QN__STORE_OK : refused(redis, "SET NX");
}

static qn__store_result_t redis_unclaim(void* connection, qn_str_t key, qn_str_t owner,
                                        int64_t deadline_ns) {
  qn__redis_t* redis = connection;
  const qn_str_t words[] = {QN_STR("EVAL"), QN_STR(unclaim_script), QN_STR("1"), key, owner};
  qn__store_result_t result = ask(redis, 5, words, 0, deadline_ns);
  if (result != QN__STORE_OK) return result;
  if (redis->reply.type != QN__REDIS_INTEGER) return refused(redis, "EVAL");
  return redis->reply.integer == 1 ? QN__STORE_OK : QN__STORE_ABSENT;
}

// ---- create, destroy

static qn_status_t redis_create(qn_allocator_t allocator, const qn__net_t* net, const char* url,
                                void** out_connection) {
  *out_connection = NULL;
  qn__redis_t* redis = qn__alloc_zero(allocator, 1, sizeof *redis);
  if (!redis) return qn__out_of_memory("a connection");
  redis->allocator = allocator;
  redis->net = net;
  atomic_init(&redis->fd, -1);
  qn_status_t status = qn__redis_url_parse(url, &redis->url);
  if (!qn_ok(status)) {
    wipe(&redis->url, sizeof redis->url);
    qn__free(allocator, redis, sizeof *redis);
    return status;
  }
  *out_connection = redis;
  return QN_OK;
}

static void redis_disconnect(void* connection) {
  qn__redis_close_socket(connection);
}

static void redis_destroy(void* connection) {
  qn__redis_t* redis = connection;
  qn__redis_close_socket(redis);
  qn__redis_free_addresses(redis);
  qn__redis_drop_value(redis);
  wipe(&redis->url, sizeof redis->url);
  qn__free(redis->allocator, redis, sizeof *redis);
}

static bool redis_is_connected(const void* connection) {
  const qn__redis_t* redis = connection;
  return atomic_load(&redis->fd) >= 0;
}

// The parent's thread may have been in any call. The next call frees a value that was being
// received.
static void redis_forget(void* connection) {
  qn__redis_t* redis = connection;
  int fd = atomic_exchange(&redis->fd, -1);
  if (fd >= 0) (void)redis->net->close(fd);
  redis->in_begin = redis->in_end = 0;
}

static const char* redis_message(const void* connection) {
  const qn__redis_t* redis = connection;
  return redis->message[0] ? redis->message : "no answer in time";
}

const qn__store_t qn__redis_store = {
    .abi_version = QN__STORE_ABI_VERSION,
    .struct_size = sizeof(qn__store_t),
    .scheme = "redis",
    .create = redis_create,
    .destroy = redis_destroy,
    .connect = redis_connect,
    .is_connected = redis_is_connected,
    .get = redis_get,
    .put = redis_put,
    .claim = redis_claim,
    .unclaim = redis_unclaim,
    .disconnect = redis_disconnect,
    .forget = redis_forget,
    .message = redis_message,
};

QN_API const qn__store_t* qn_store_entry(uint32_t abi_version);
const qn__store_t* qn_store_entry(uint32_t abi_version) {
  return abi_version == QN__STORE_ABI_VERSION ? &qn__redis_store : NULL;
}
