// SPDX-License-Identifier: Apache-2.0
// conformance/copies.c: copies between host, device and devices.
#include <stdint.h>
#include <string.h>

#include "conformance/suite.h"
#include "quern/device.h"

enum { SIZE = 40009 };

static void fill(uint8_t* data, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 131 + (i >> 8) + seed);
}

static void offsets_and_sizes(conf_t* c) {
  static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 63, 64, 65, 255, 1021, 16383};
  uint8_t* from = conf_host_memory(c, SIZE);
  uint8_t* expected = conf_host_memory(c, SIZE);
  uint8_t* to = conf_host_memory(c, SIZE);
  void* memory = conf_device_memory(c, SIZE);
  if (!from || !expected || !to || !memory) return;
  fill(from, SIZE, 1);
  fill(expected, SIZE, 2);
  if (!conf_upload(c, memory, 0, expected, SIZE)) return;
  for (size_t i = 0; i < CONF_COUNT_OF(sizes); i++) {
    for (size_t shift = 0; shift < 5; shift++) {
      size_t at = (i * 977 + shift) % (SIZE - sizes[i]);
      size_t source = (i * 313 + 3 * shift) % (SIZE - sizes[i]);
      memcpy(expected + at, from + source, sizes[i]);
      CONF_TRY(c,
               conf_copy(conf_cpu(), from, source, c->device, memory, at, sizes[i], false, NULL));
    }
  }
  if (!conf_download(c, to, memory, 0, SIZE)) return;
  CONF_CHECK(c, memcmp(to, expected, SIZE) == 0, "an upload wrote other bytes");
  for (size_t i = 0; i < CONF_COUNT_OF(sizes); i++) {
    size_t at = i * 1009 + i;
    memset(to, 0xEE, sizes[i] + 2);
    CONF_TRY(c, conf_copy(c->device, memory, at, conf_cpu(), to, 1, sizes[i], false, NULL));
    CONF_TRY(c, qn_stream_sync(c->device, NULL));
    bool is_inside = to[0] == 0xEE && to[1 + sizes[i]] == 0xEE;
    CONF_CHECK(c, is_inside && memcmp(to + 1, expected + at, sizes[i]) == 0,
               "a download of %zu bytes from offset %zu", sizes[i], at);
  }
}

static void on_device(conf_t* c) {
  static const size_t sizes[] = {1, 3, 4, 64, 1001, 20000};
  uint8_t* from = conf_host_memory(c, SIZE);
  uint8_t* to = conf_host_memory(c, SIZE);
  uint8_t* expected = conf_host_memory(c, SIZE);
  void* a = conf_device_memory(c, SIZE);
  void* b = conf_device_memory(c, SIZE);
  if (!from || !to || !expected || !a || !b) return;
  fill(from, SIZE, 3);
  if (!conf_upload(c, a, 0, from, SIZE) || !conf_upload(c, b, 0, expected, SIZE)) return;
  for (size_t i = 0; i < CONF_COUNT_OF(sizes); i++) {
    size_t at = i * 3333 + i, source = i * 2222 + 5;
    memcpy(expected + at, from + source, sizes[i]);
    CONF_TRY(c, conf_copy(c->device, a, source, c->device, b, at, sizes[i], false, NULL));
  }
  if (!conf_download(c, to, b, 0, SIZE)) return;
  CONF_CHECK(c, memcmp(to, expected, SIZE) == 0, "other bytes arrived");
  // Within one block, apart.
  CONF_TRY(c, conf_copy(c->device, a, 100, c->device, a, 20100, 20000 - 100, false, NULL));
  memcpy(from + 20100, from + 100, 20000 - 100);
  if (!conf_download(c, to, a, 0, SIZE)) return;
  CONF_CHECK(c, memcmp(to, from, SIZE) == 0, "a copy within a block");
}

static void overlap(conf_t* c) {
  void* memory = conf_device_memory(c, 1000);
  if (!memory) return;
  static const struct {
    size_t from, to, size;
    bool is_bad;
  } ranges[] = {{0, 0, 10, true},   {0, 9, 10, true},   {9, 0, 10, true}, {100, 50, 400, true},
                {0, 10, 10, false}, {10, 0, 10, false}, {5, 5, 0, false}};
  for (size_t i = 0; i < CONF_COUNT_OF(ranges); i++) {
    qn_status_t status = conf_copy(c->device, memory, ranges[i].from, c->device, memory,
                                   ranges[i].to, ranges[i].size, false, NULL);
    qn_status_code_t code = ranges[i].is_bad ? QN_STATUS_INVALID_ARGUMENT : QN_STATUS_OK;
    if (!conf_expect(c, status, code, ranges[i].is_bad ? "overlap" : NULL)) return;
  }
  conf_ok(c, qn_stream_sync(c->device, NULL));
}

static void bad_copies(conf_t* c) {
  uint8_t host[16] = {0};
  void* memory = conf_device_memory(c, 16);
  if (!memory) return;
  qn_device_t none = {c->device.type, 99};
  if (!conf_expect(c, qn_device_copy(NULL, NULL), QN_STATUS_INVALID_ARGUMENT, NULL) ||
      !conf_expect(c, conf_copy(conf_cpu(), NULL, 0, c->device, memory, 0, 4, false, NULL),
                   QN_STATUS_INVALID_ARGUMENT, "from") ||
      !conf_expect(c, conf_copy(conf_cpu(), host, 0, c->device, NULL, 0, 4, false, NULL),
                   QN_STATUS_INVALID_ARGUMENT, "to") ||
      !conf_expect(c, conf_copy(conf_cpu(), host, 0, none, memory, 0, 4, false, NULL),
                   QN_STATUS_NOT_FOUND, NULL) ||
      !conf_expect(c, conf_copy(conf_cpu(), host, 0, c->device, memory, SIZE_MAX, 4, false, NULL),
                   QN_STATUS_INVALID_ARGUMENT, NULL)) {
    return;
  }
  qn_copy_t unsized = {.struct_size = 7};
  conf_expect(c, qn_device_copy(&unsized, NULL), QN_STATUS_INVALID_ARGUMENT, "struct_size");
}

// Checks that without is_host_pinned the host's bytes may change after the call.
static void host_reuse(conf_t* c) {
  enum { ROUNDS = 20 };
  uint8_t* scratch = conf_host_memory(c, SIZE);
  uint8_t* to = conf_host_memory(c, SIZE);
  void* memory = conf_device_memory(c, (size_t)ROUNDS * SIZE);
  qn_stream_t* stream = conf_stream(c);
  if (!scratch || !to || !memory || !stream) return;
  for (unsigned r = 0; r < ROUNDS; r++) {
    fill(scratch, SIZE, r);
    CONF_TRY(c, conf_copy(conf_cpu(), scratch, 0, c->device, memory, (size_t)r * SIZE, SIZE, false,
                          stream));
    memset(scratch, 0xFF, SIZE);
  }
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  for (unsigned r = 0; r < ROUNDS; r++) {
    fill(scratch, SIZE, r);
    if (!conf_download(c, to, memory, (size_t)r * SIZE, SIZE)) return;
    CONF_CHECK(c, memcmp(to, scratch, SIZE) == 0, "upload %u saw what the host wrote later", r);
  }
}

static void pinned(conf_t* c) {
  void *up = NULL, *down = NULL;
  void* memory = conf_device_memory(c, SIZE);
  qn_stream_t* stream = conf_stream(c);
  if (!memory || !stream) return;
  CONF_TRY(c, qn_device_host_allocate(c->device, SIZE, &up));
  bool is_good = conf_ok(c, qn_device_host_allocate(c->device, SIZE, &down));
  if (is_good) {
    fill(up, SIZE, 9);
    memset(down, 0, SIZE);
    is_good =
        conf_ok(c, conf_copy(conf_cpu(), up, 0, c->device, memory, 0, SIZE, true, stream)) &&
        conf_ok(c, conf_copy(c->device, memory, 7, conf_cpu(), down, 3, SIZE - 9, true, stream)) &&
        conf_ok(c, qn_stream_sync(c->device, stream));
    if (is_good && memcmp((uint8_t*)down + 3, (uint8_t*)up + 7, SIZE - 9) != 0) {
      conf_fail(c, "other bytes arrived");
    }
  }
  (void)qn_status_consume(qn_stream_sync(c->device, stream));
  (void)qn_status_consume(qn_device_host_free(c->device, up));
  (void)qn_status_consume(qn_device_host_free(c->device, down));
}

// Copies to and from every other device of the machine. Devices of one type that a driver cannot
// connect return an error that says so.
static void between_devices(conf_t* c) {
  uint8_t* from = conf_host_memory(c, SIZE);
  uint8_t* to = conf_host_memory(c, SIZE);
  void* own = conf_device_memory(c, SIZE);
  void* back = conf_device_memory(c, SIZE);
  if (!from || !to || !own || !back) return;
  fill(from, SIZE, 5);
  if (!conf_upload(c, own, 0, from, SIZE)) return;
  for (int32_t type = 1; type < 64; type++) {
    for (int32_t id = 0; id < qn_device_count(type); id++) {
      qn_device_t other = {type, id};
      if (type == QN_DEVICE_NULL && c->device.type != QN_DEVICE_NULL) continue;
      void* there = conf_device_memory_of(c, other, SIZE);
      if (!there) return;
      memset(to, 0, SIZE);
      CONF_TRY(c, conf_copy(c->device, own, 11, other, there, 5, SIZE - 20, false, NULL));
      CONF_TRY(c, qn_stream_sync(c->device, NULL));
      // A copy without a stream uses the default stream of its source device.
      CONF_TRY(c, conf_copy(other, there, 5, c->device, back, 2, SIZE - 20, false, NULL));
      CONF_TRY(c, qn_stream_sync(other, NULL));
      CONF_TRY(c, qn_stream_sync(c->device, NULL));
      if (!conf_download(c, to, back, 2, SIZE - 20)) return;
      CONF_CHECK(c, memcmp(to, from + 11, SIZE - 20) == 0, "through %s:%d other bytes came back",
                 qn_device_type_text(type), (int)id);
      conf_drop(c, there);
    }
  }
}

// Checks that copies on one stream keep their order.
static void order(conf_t* c) {
  enum { CHAIN = 64 };
  uint8_t* from = conf_host_memory(c, 4096);
  uint8_t* to = conf_host_memory(c, 4096);
  void* memory = conf_device_memory(c, 4096 * (CHAIN + 1));
  qn_stream_t* stream = conf_stream(c);
  if (!from || !to || !memory || !stream) return;
  fill(from, 4096, 6);
  CONF_TRY(c, conf_copy(conf_cpu(), from, 0, c->device, memory, 0, 4096, false, stream));
  for (size_t i = 0; i < CHAIN; i++) {
    CONF_TRY(c, conf_copy(c->device, memory, i * 4096, c->device, memory, (i + 1) * 4096, 4096,
                          false, stream));
  }
  CONF_TRY(c, conf_copy(c->device, memory, CHAIN * 4096, conf_cpu(), to, 0, 4096, false, stream));
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  CONF_CHECK(c, memcmp(from, to, 4096) == 0, "a copy ran before the one that it depends on");
}

static const conf_case_t cases[] = {
    {"offsets and sizes", offsets_and_sizes},
    {"on the device", on_device},
    {"overlapping ranges", overlap},
    {"bad copies", bad_copies},
    {"host memory is free on return", host_reuse},
    {"pinned", pinned},
    {"between devices", between_devices},
    {"in the order of the stream", order},
};
const conf_area_t conf_area_copies = {"copies", cases, CONF_COUNT_OF(cases), NULL};
