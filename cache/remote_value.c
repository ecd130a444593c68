// SPDX-License-Identifier: Apache-2.0
// cache/remote_value.c: the names of entries in the store, and the value around an entry.
//
// A value is 48 bytes and an entry:
//   0  1  version (QN__REMOTE_VERSION)
//   1 15  zeros
//  16 32  MAC: BLAKE2b-256 with the fleet's key over the label "quern remote value", the 16 bytes
//         before the MAC, the size of the name as u64 LE, the name, and the entry
// The name holds format versions, trust domain and key, so a value that is moved to another key or
// domain is not authentic there. The size of the name is in the MAC, so that the boundary between
// name and entry cannot move.
//
// Not here: the bytes of the entry (entry.c), what a bad value means (remote.c).
#include <stdio.h>
#include <unistd.h>

#include "base/digest.h"
#include "cache/remote_inner.h"

static const char mac_label[] = "quern remote value";

static bool is_domain_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

qn_status_t qn__remote_set_prefix(qn__remote_t* remote, const char* trust_domain) {
  qn_str_t domain = qn__str(trust_domain ? trust_domain : "");
  bool is_fine = domain.size <= QN__REMOTE_DOMAIN_BYTES;
  for (size_t i = 0; is_fine && i < domain.size; i++) is_fine = is_domain_char(domain.data[i]);
  if (!is_fine) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "trust domain of the remote tier is not of at most %u letters, digits, "
                          "'.', '_' and '-'",
                          QN__REMOTE_DOMAIN_BYTES);
  }
  int size =
      snprintf(remote->prefix, sizeof remote->prefix, "quern:%u.%u:%.*s:", QN__REMOTE_VERSION,
               QN__ENTRY_VERSION, QN_STR_ARG(domain));
  remote->prefix_size = (size_t)size;
  return QN_OK;
}

size_t qn__remote_name(const qn__remote_t* remote, qn_hash128_t key, char* out) {
  // Room for the digits, ":claim" and a zero.
  assert(remote->prefix_size + 32 + 7 <= QN__REMOTE_NAME_BYTES);
  memcpy(out, remote->prefix, remote->prefix_size);
  qn__hash128_hex(key, out + remote->prefix_size);
  return remote->prefix_size + 32;
}

size_t qn__remote_claim_name(const qn__remote_t* remote, qn_hash128_t key, char* out) {
  size_t size = qn__remote_name(remote, key, out);
  memcpy(out + size, ":claim", 7);
  return size + 6;
}

// Writes an owner: the token makes it unique among machines, the process id among forked processes.
size_t qn__remote_owner(const qn__remote_t* remote, uint64_t serial, char* out) {
  qn_hash128_t token;
  memcpy(token.bytes, remote->token, sizeof token.bytes);
  qn__hash128_hex(token, out);
  int size =
      snprintf(out + 32, QN__REMOTE_OWNER_BYTES - 32, "-%ld-%" PRIu64, (long)getpid(), serial);
  return 32 + (size_t)size;
}

static void make_mac(const qn__remote_t* remote, qn_str_t name, qn_span_t value,
                     uint8_t out[QN__MAC_BYTES]) {
  uint8_t name_size[8];
  (void)qn__store_le(name_size, name.size, 8);
  assert(value.size >= QN__REMOTE_HEADER_BYTES);
  const qn_span_t spans[] = {
      {(const uint8_t*)mac_label, sizeof mac_label},
      {value.data, QN__REMOTE_MAC_OFFSET},
      {name_size, sizeof name_size},
      {(const uint8_t*)name.data, name.size},
      {value.data + QN__REMOTE_HEADER_BYTES, value.size - QN__REMOTE_HEADER_BYTES},
  };
  remote->crypto->mac(remote->key, spans, QN_COUNT_OF(spans), out);
}

void qn__remote_seal(const qn__remote_t* remote, qn_str_t name, uint8_t* value, size_t size) {
  memset(value, 0, QN__REMOTE_HEADER_BYTES);
  value[0] = QN__REMOTE_VERSION;
  make_mac(remote, name, (qn_span_t){value, size}, value + QN__REMOTE_MAC_OFFSET);
}

bool qn__remote_is_authentic(const qn__remote_t* remote, qn_str_t name, qn_span_t value) {
  if (value.size < QN__REMOTE_HEADER_BYTES) return false;
  uint8_t mac[QN__MAC_BYTES];
  make_mac(remote, name, value, mac);
  return remote->crypto->equal(mac, value.data + QN__REMOTE_MAC_OFFSET, sizeof mac);
}

// Masks up to the last "@", before which credentials are; an "@" in a path masks more than needed.
// Masks a query unless it is the number of a database.
void qn__remote_mask_url(qn_str_t url, qn__buffer_t* out) {
  size_t begin = 0, end = 0, query = url.size;
  for (size_t i = 0; i + 2 < url.size && begin == 0; i++) {
    if (memcmp(url.data + i, "://", 3) == 0) begin = i + 3;
  }
  for (size_t i = 0; i < url.size; i++) {
    if (url.data[i] != '@') continue;
    end = i;
    if (i < begin) begin = 0;  // that is no scheme
  }
  if (end > 0) {
    qn__buffer_str(out, (qn_str_t){url.data, begin});
    qn__buffer_cstr(out, "***");
    begin = end;
  } else {
    begin = 0;
  }
  for (size_t i = url.size; i > begin; i--) {
    if (url.data[i - 1] == '?') query = i;
  }
  bool is_shown = query + 3 < url.size && memcmp(url.data + query, "db=", 3) == 0;
  for (size_t i = query + 3; is_shown && i < url.size; i++) {
    is_shown = url.data[i] >= '0' && url.data[i] <= '9';
  }
  if (is_shown) query = url.size;
  qn__buffer_str(out, (qn_str_t){url.data + begin, query - begin});
  if (query < url.size) qn__buffer_cstr(out, "***");
}
