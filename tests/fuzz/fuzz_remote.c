// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_remote.c: reads arbitrary bytes as the replies of a server, as a stored value,
// and as a URL.
//
// The first byte selects: 0 a plain value; 1 a value with a corrected MAC; 2 a URL; otherwise the
// replies to all operations of a store, in pieces of that many bytes. Requirements: nothing above
// the size limit is accepted; the result has the announced size; no value without a right MAC is
// accepted; masked URLs show nothing before an "@".
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "cache/redis/redis.h"
#include "cache/remote_inner.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

enum { LIMIT_BYTES = 1000 };
#define FAR_NS INT64_C(60000000000)

static void check(bool is_true) {
  if (!is_true) abort();
}

// ------------------------------------------------------------------------------ a network of bytes

static struct {
  const uint8_t* data;
  size_t size, at, piece;
} wire;

static struct sockaddr nowhere = {.sa_family = AF_INET};
static struct addrinfo address = {.ai_addr = &nowhere, .ai_addrlen = sizeof nowhere};

static int net_resolve(const char* host, const char* service, const struct addrinfo* hints,
                       struct addrinfo** out_list) {
  (void)host, (void)service, (void)hints;
  *out_list = &address;
  return 0;
}
static void net_free_list(struct addrinfo* list) {
  check(list == &address);
}
static int net_socket(int family) {
  (void)family;
  return 1000;
}
static int net_connect(int fd, const struct sockaddr* to, socklen_t size) {
  (void)fd, (void)to, (void)size;
  return 0;
}
static int net_error(int fd) {
  (void)fd;
  return 0;
}
static int net_set_option(int fd, int level, int name, int value) {
  (void)fd, (void)level, (void)name, (void)value;
  return 0;
}
// Between two questions nothing is there; within one there is always something, if only the end.
static int net_wait(int fd, short events, int64_t timeout_ns) {
  (void)fd;
  return timeout_ns == 0 ? 0 : events;
}
static ssize_t net_send(int fd, const void* data, size_t size) {
  (void)fd, (void)data;
  return (ssize_t)size;
}
static ssize_t net_recv(int fd, void* data, size_t size) {
  (void)fd;
  size_t left = wire.size - wire.at;
  if (size > left) size = left;
  if (size > wire.piece) size = wire.piece;
  memcpy(data, wire.data + wire.at, size);
  wire.at += size;
  return (ssize_t)size;
}
static int net_close(int fd) {
  (void)fd;
  return 0;
}
static const qn__net_t net = {
    .resolve = net_resolve,
    .free_list = net_free_list,
    .socket = net_socket,
    .connect = net_connect,
    .error = net_error,
    .set_option = net_set_option,
    .wait = net_wait,
    .send = net_send,
    .recv = net_recv,
    .close = net_close,
};

static void feed_answers(const uint8_t* data, size_t size, uint8_t piece) {
  wire.data = data;
  wire.size = size;
  wire.at = 0;
  wire.piece = piece;
  const qn__store_t* store = &qn__redis_store;
  qn_allocator_t allocator = qn_allocator_default();
  void* connection = NULL;
  const char* url = piece % 2 ? "redis://h" : "redis://u:p@h/1";
  qn_status_free(store->create(allocator, &net, url, &connection));
  if (!connection) return;
  const int64_t deadline_ns = qn__now_ns() + FAR_NS;
  const qn_str_t key = QN_STR("k"), owner = QN_STR("o");
  static const uint8_t byte = 0;
  // Each round needs at least one byte of the input, or ends.
  for (size_t before = SIZE_MAX; wire.at != before && wire.at < size;) {
    before = wire.at;
    if (store->connect(connection, deadline_ns) != QN__STORE_OK) continue;
    uint8_t* value = NULL;
    size_t value_size = 0;
    if (store->get(connection, key, LIMIT_BYTES, deadline_ns, &value, &value_size) ==
        QN__STORE_OK) {
      check(value_size <= LIMIT_BYTES && wire.at >= value_size + 6);
      check(value_size == 0 || memcmp(value, data + wire.at - 2 - value_size, value_size) == 0);
      qn__free(allocator, value, value_size);
    } else {
      check(!value);
    }
    if (store->connect(connection, deadline_ns) != QN__STORE_OK) continue;
    (void)store->put(connection, key, (qn_span_t){&byte, 1}, 1, deadline_ns);
    if (store->connect(connection, deadline_ns) != QN__STORE_OK) continue;
    (void)store->claim(connection, key, owner, 1, deadline_ns);
    if (store->connect(connection, deadline_ns) != QN__STORE_OK) continue;
    (void)store->unclaim(connection, key, owner, deadline_ns);
    check(strlen(store->message(connection)) < 256);
  }
  store->destroy(connection);
}

// ------------------------------------------------------------------------------------------ values

static qn__remote_t* remote;
static const uint8_t* value_data;
static size_t value_bytes;

static qn_status_t make(qn_allocator_t allocator, const qn__net_t* table, const char* url,
                        void** out_connection) {
  (void)allocator, (void)table, (void)url;
  *out_connection = &wire;
  return QN_OK;
}
static void nothing(void* self) {
  (void)self;
}
static qn__store_result_t connect_value(void* self, int64_t deadline_ns) {
  (void)self, (void)deadline_ns;
  return QN__STORE_OK;
}
static bool is_connected(const void* self) {
  (void)self;
  return true;
}
static qn__store_result_t get_value(void* self, qn_str_t key, size_t limit, int64_t deadline_ns,
                                    uint8_t** out_value, size_t* out_size) {
  (void)self, (void)key, (void)limit, (void)deadline_ns;
  *out_value = qn__alloc(qn_allocator_default(), value_bytes ? value_bytes : 1);
  if (!*out_value) return QN__STORE_NO_MEMORY;
  memcpy(*out_value, value_data, value_bytes);
  *out_size = value_bytes;
  return QN__STORE_OK;
}
static const char* message(const void* self) {
  (void)self;
  return "";
}
static const qn__store_t value_store = {
    .create = make,
    .destroy = nothing,
    .connect = connect_value,
    .is_connected = is_connected,
    .get = get_value,
    .disconnect = nothing,
    .forget = nothing,
    .message = message,
};

// Computes a sum in place of a MAC: it is quick, and a mutation does not meet it by chance.
static void mac(const uint8_t key[QN__MAC_KEY_BYTES], const qn_span_t* spans, size_t count,
                uint8_t out[QN__MAC_BYTES]) {
  uint64_t state = 0x9E3779B97F4A7C15u + key[0];
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < spans[i].size; k++) state = (state ^ spans[i].data[k]) * 0x100000001B3u;
  }
  for (size_t i = 0; i < QN__MAC_BYTES; i++) {
    state = state * 0x5851F42D4C957F2Du + 1;
    out[i] = (uint8_t)(state >> 56);
  }
}
// Not memcmp: libFuzzer takes the operands of memcmp into its dictionary, and forges the sum.
static bool equal(const uint8_t* a, const uint8_t* b, size_t size) {
  uint8_t difference = 0;
  for (size_t i = 0; i < size; i++) difference |= a[i] ^ b[i];
  return difference == 0;
}
static void random_bytes(uint8_t* out, size_t size) {
  memset(out, 1, size);
}
static void wipe(void* data, size_t size) {
  memset(data, 0, size);
}
static const qn__crypto_t crypto = {
    .mac = mac, .equal = equal, .random = random_bytes, .wipe = wipe};

static void feed_value(uint8_t* bytes, size_t size, bool seals) {
  if (!remote) {
    static const uint8_t secret[QN__MAC_KEY_BYTES] = {7};
    const qn__remote_options_t options = {.url = "fuzz://",
                                          .timeout_ns = FAR_NS,
                                          .store = &value_store,
                                          .crypto = &crypto,
                                          .key = secret};
    check(qn_status_consume(qn__remote_create(&options, &remote)) == QN_STATUS_OK);
  }
  static const uint8_t preimage[1] = {0};
  const qn__expectation_t expected = {{{1}}, {preimage, sizeof preimage}};
  char name[QN__REMOTE_NAME_BYTES];
  size_t name_size = qn__remote_name(remote, expected.key, name);
  bool is_sealed = seals && size >= QN__REMOTE_HEADER_BYTES;
  if (is_sealed) qn__remote_seal(remote, (qn_str_t){name, name_size}, bytes, size);
  value_data = bytes;
  value_bytes = size;
  qn__hit_t hit;
  qn__get_result_t result = qn__remote_get(remote, &expected, INT64_MAX, &hit);
  // No entry belongs to this key; what is not sealed is not even looked at.
  check(result == (is_sealed ? QN__GET_BAD : QN__GET_UNTRUSTED) || result == QN__GET_NO_MEMORY);
  check(!hit.bytes);
  qn__remote_hit_release(remote, &hit);
  if (!is_sealed) return;
  // The same entry as whoever wants any key sees it.
  qn__entry_t entry;
  (void)qn__entry_decode(
      (qn_span_t){bytes + QN__REMOTE_HEADER_BYTES, size - QN__REMOTE_HEADER_BYTES}, NULL, &entry);
}

// ------------------------------------------------------------------------------------------- URLs

static void feed_url(const uint8_t* data, size_t size) {
  char* text = malloc(size + 1);
  check(text != NULL);
  memcpy(text, data, size);
  text[size] = '\0';
  qn__redis_url_t url;
  qn_status_t status = qn__redis_url_parse(text, &url);
  if (qn_ok(status)) {
    check(url.is_unix ? url.path[0] == '/' : url.host[0] != '\0' && url.port[0] != '\0');
    check(url.has_password == (url.password[0] != '\0'));
  }
  qn_status_free(status);
  qn__buffer_t masked;
  qn__buffer_init(&masked, qn_allocator_default());
  qn__remote_mask_url((qn_str_t){(const char*)data, size}, &masked);
  const uint8_t* at = size ? memchr(data, '@', size) : NULL;
  const uint8_t* shown = masked.size ? memchr(masked.data, '@', masked.size) : NULL;
  if (at && at > data) {
    check(masked.has_failed || (shown && shown - masked.data >= 3));
    check(masked.has_failed || memcmp(shown - 3, "***", 3) == 0);
  }
  qn__buffer_deinit(&masked);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  uint8_t choice = data[0];
  data++;
  size--;
  if (choice >= 3) {
    feed_answers(data, size, choice);
  } else if (choice == 2) {
    feed_url(data, size);
  } else {
    _Alignas(16) static uint8_t bytes[1 << 20];
    if (size > sizeof bytes) return 0;
    memcpy(bytes, data, size);
    feed_value(bytes, size, choice == 1);
  }
  return 0;
}
