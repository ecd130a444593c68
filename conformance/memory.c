// SPDX-License-Identifier: Apache-2.0
// conformance/memory.c: allocating, freeing, host memory and workspace.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/suite.h"
#include "quern/device.h"

static void zero_size(conf_t* c) {
  void* a = conf_device_memory(c, 0);
  void* b = conf_device_memory(c, 0);
  CONF_CHECK(c, a && b, "no handle");
  CONF_TRY(c, conf_copy(conf_cpu(), "x", 0, c->device, a, 0, 0, false, NULL));
  CONF_TRY(c, qn_device_free(c->device, NULL));
}

static void round_trip(conf_t* c) {
  enum { SIZE = 100003 };
  uint8_t* from = conf_host_memory(c, SIZE);
  uint8_t* to = conf_host_memory(c, SIZE);
  void* memory = conf_device_memory(c, SIZE);
  if (!from || !to || !memory) return;
  for (size_t i = 0; i < SIZE; i++) from[i] = (uint8_t)(i * 31 + 7);
  if (!conf_upload(c, memory, 0, from, SIZE) || !conf_download(c, to, memory, 0, SIZE)) return;
  CONF_CHECK(c, memcmp(from, to, SIZE) == 0, "other bytes came back");
}

static void alignment(conf_t* c) {
  qn_attribute_value_t own = {.type = QN_ATTRIBUTE_TYPE_NONE};
  CONF_TRY(c, qn_device_attribute(c->device, QN_ATTRIBUTE_ALLOCATION_ALIGNMENT, &own));
  for (size_t wanted = 0; wanted <= 4096; wanted = wanted ? 2 * wanted : 1) {
    void* memory = NULL;
    CONF_TRY(c, qn_device_allocate(c->device, 100, wanted, &memory));
    conf_keep(c, CONF_KEPT_DEVICE, memory, c->device);
    size_t least = wanted > 64 ? wanted : 64;
    if (wanted == 0 && own.type == QN_ATTRIBUTE_TYPE_INT) least = (size_t)own.int_value;
    CONF_CHECK(c, (uintptr_t)memory % least == 0,
               "alignment %zu gave a handle that is no multiple of %zu", wanted, least);
  }
  void* memory = memory = (void*)&own;
  if (!conf_expect(c, qn_device_allocate(c->device, 100, 48, &memory), QN_STATUS_INVALID_ARGUMENT,
                   "48")) {
    return;
  }
  CONF_CHECK(c, memory == NULL, "a failure left a handle");
}

static int compare_numbers(const void* a, const void* b) {
  const uint64_t *x = a, *y = b;
  return (x[0] > y[0]) - (x[0] < y[0]);
}

// Checks that the ranges of live blocks, pieces of workspace among them, share no number.
static void handles(conf_t* c) {
  enum { COUNT = 64, WORKSPACES = 6 };
  static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 100003, 1};
  uint64_t ranges[COUNT + WORKSPACES][2];
  void* workspaces[WORKSPACES];
  for (size_t i = 0; i < COUNT; i++) {
    size_t size = sizes[i % CONF_COUNT_OF(sizes)];
    void* memory = conf_device_memory(c, size);
    if (!memory) return;
    ranges[i][0] = (uintptr_t)memory;
    ranges[i][1] = size ? size : 1;
    if (i % 5 == 4) {  // the next one may have its numbers
      conf_drop(c, memory);
      ranges[i][1] = 0;
    }
  }
  for (size_t i = 0; i < WORKSPACES; i++) {
    CONF_TRY(c, qn_workspace_allocate(c->device, NULL, 1000 + i, &workspaces[i]));
    ranges[COUNT + i][0] = (uintptr_t)workspaces[i];
    ranges[COUNT + i][1] = 1000 + i;
  }
  for (size_t i = 0; i < WORKSPACES; i++) {
    CONF_TRY(c, qn_workspace_free(c->device, NULL, workspaces[i]));
  }
  qsort(ranges, COUNT + WORKSPACES, sizeof ranges[0], compare_numbers);
  uint64_t end = 1;
  for (size_t i = 0; i < COUNT + WORKSPACES; i++) {
    if (ranges[i][1] == 0) continue;
    CONF_CHECK(c, ranges[i][0] >= end,
               "the handle %" PRIu64 " lies in another block, which ends at %" PRIu64, ranges[i][0],
               end);
    end = ranges[i][0] + ranges[i][1];
    CONF_CHECK(c, end <= UINT64_C(1) << 62, "the handle %" PRIu64 " is beyond 2^62", ranges[i][0]);
  }
}

static void many_blocks(conf_t* c) {
  enum { COUNT = 300 };
  void* blocks[COUNT];
  uint32_t value = 0;
  for (uint32_t i = 0; i < COUNT; i++) {
    blocks[i] = conf_device_memory(c, 4 + i * 37);
    if (!blocks[i] || !conf_upload(c, blocks[i], 0, &i, sizeof i)) return;
  }
  for (uint32_t i = 0; i < COUNT; i += 2) conf_drop(c, blocks[i]);
  for (uint32_t i = 1; i < COUNT; i += 2) {
    if (!conf_download(c, &value, blocks[i], 0, sizeof value)) return;
    CONF_CHECK(c, value == i, "block %u holds %u", i, value);
  }
  for (uint32_t i = 0; i < COUNT; i += 2) {
    uint32_t mark = 1000 + i;
    blocks[i] = conf_device_memory(c, 4 + i * 53);
    if (!blocks[i] || !conf_upload(c, blocks[i], 0, &mark, sizeof mark)) return;
  }
  for (uint32_t i = 0; i < COUNT; i++) {
    if (!conf_download(c, &value, blocks[i], 0, sizeof value)) return;
    CONF_CHECK(c, value == (i % 2 ? i : 1000 + i), "block %u was overwritten", i);
  }
}

// Allocates far more than the device has: an error, after which the device still works.
static void out_of_memory(conf_t* c) {
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 50, (size_t)1 << 60};
  for (size_t i = 0; i < CONF_COUNT_OF(sizes); i++) {
    void* memory = (void*)c;
    qn_status_t status = qn_device_allocate(c->device, sizes[i], 0, &memory);
    if (!conf_expect(c, status, QN_STATUS_OUT_OF_MEMORY, NULL)) return;
    CONF_CHECK(c, memory == NULL, "a failure left a handle");
    status = qn_workspace_allocate(c->device, NULL, sizes[i], &memory);
    if (!conf_expect(c, status, QN_STATUS_OUT_OF_MEMORY, NULL)) return;
  }
  round_trip(c);
}

static void no_device(conf_t* c) {
  qn_device_t none = {c->device.type, qn_device_count(c->device.type)};
  void* memory = NULL;
  if (!conf_expect(c, qn_device_allocate(none, 4, 0, &memory), QN_STATUS_NOT_FOUND, NULL)) return;
  if (!conf_expect(c, qn_device_free(none, NULL), QN_STATUS_NOT_FOUND, NULL)) return;
  qn_stream_t* stream = NULL;
  if (!conf_expect(c, qn_stream_create(none, &stream), QN_STATUS_NOT_FOUND, NULL)) return;
  if (!conf_expect(c, qn_set_active_device(none), QN_STATUS_NOT_FOUND, NULL)) return;
  conf_expect(c, qn_device_host_allocate(none, 4, &memory), QN_STATUS_NOT_FOUND, NULL);
}

static void host_memory(conf_t* c) {
  static const size_t sizes[] = {0, 1, 64, 100001};
  for (size_t i = 0; i < CONF_COUNT_OF(sizes); i++) {
    void* memory = NULL;
    CONF_TRY(c, qn_device_host_allocate(c->device, sizes[i], &memory));
    CONF_CHECK(c, memory && (uintptr_t)memory % 16 == 0, "%zu bytes at %p", sizes[i], memory);
    memset(memory, 0x3C, sizes[i]);
    void* device = conf_device_memory(c, sizes[i]);
    uint8_t* back = conf_host_memory(c, sizes[i]);
    bool is_good = device && back;
    is_good = is_good && conf_ok(c, conf_copy(conf_cpu(), memory, 0, c->device, device, 0, sizes[i],
                                              true, NULL));
    is_good = is_good && conf_ok(c, qn_stream_sync(c->device, NULL));
    is_good = is_good && conf_download(c, back, device, 0, sizes[i]);
    is_good = is_good && memcmp(back, memory, sizes[i]) == 0;
    if (!is_good) conf_fail(c, "pinned bytes did not arrive");
    if (!conf_ok(c, qn_device_host_free(c->device, memory)) || !is_good) return;
  }
  conf_ok(c, qn_device_host_free(c->device, NULL));
}

static void workspace(conf_t* c) {
  qn_stream_t* stream = conf_stream(c);
  if (!stream) return;
  static const size_t sizes[] = {0, 1, 100, 4096, 1 << 20, 100};
  void* blocks[CONF_COUNT_OF(sizes)];
  for (size_t i = 0; i < CONF_COUNT_OF(sizes); i++) {
    CONF_TRY(c, qn_workspace_allocate(c->device, stream, sizes[i], &blocks[i]));
    CONF_CHECK(c, blocks[i], "no handle for %zu bytes", sizes[i]);
    CONF_CHECK(c, (uintptr_t)blocks[i] % 64 == 0, "not a multiple of 64");
  }
  for (size_t i = CONF_COUNT_OF(sizes); i-- > 0;) {
    CONF_TRY(c, qn_workspace_free(c->device, stream, blocks[i]));
  }
  CONF_TRY(c, qn_workspace_free(c->device, stream, NULL));
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  CONF_TRY(c, qn_workspace_allocate(c->device, NULL, 64, &blocks[0]));
  CONF_TRY(c, qn_workspace_free(c->device, NULL, blocks[0]));
}

// Frees workspace at once after queued work and allocates on another stream: no bytes change.
static void workspace_order(conf_t* c) {
  enum { SIZE = 1 << 18, ROUNDS = 24 };
  qn_stream_t* streams[2] = {conf_stream(c), conf_stream(c)};
  uint8_t* sources = conf_host_memory(c, (size_t)ROUNDS * SIZE);
  uint8_t* back = conf_host_memory(c, (size_t)ROUNDS * SIZE);
  void* results = conf_device_memory(c, (size_t)ROUNDS * SIZE);
  if (!streams[0] || !streams[1] || !sources || !back || !results) return;
  for (int r = 0; r < ROUNDS; r++) memset(sources + (size_t)r * SIZE, r + 1, SIZE);
  for (int r = 0; r < ROUNDS; r++) {
    qn_stream_t* stream = streams[r % 2];
    size_t offset = (size_t)r * SIZE;
    void* memory = NULL;
    CONF_TRY(c, qn_workspace_allocate(c->device, stream, SIZE, &memory));
    CONF_TRY(c, conf_copy(conf_cpu(), sources, offset, c->device, memory, 0, SIZE, true, stream));
    CONF_TRY(c, conf_copy(c->device, memory, 0, c->device, results, offset, SIZE, false, stream));
    CONF_TRY(c, qn_workspace_free(c->device, stream, memory));
  }
  CONF_TRY(c, qn_stream_sync(c->device, streams[0]));
  CONF_TRY(c, qn_stream_sync(c->device, streams[1]));
  if (!conf_download(c, back, results, 0, (size_t)ROUNDS * SIZE)) return;
  CONF_CHECK(c, memcmp(back, sources, (size_t)ROUNDS * SIZE) == 0, "workspace was handed on early");
}

// Uses a handle with an offset, where handles are addresses.
static void offsets(conf_t* c) {
  uint8_t from[64], to[64] = {0};
  for (int i = 0; i < 64; i++) from[i] = (uint8_t)i;
  uint8_t* memory = conf_device_memory(c, 4096);
  if (!memory) return;
  if (!c->is_address) {
    conf_unsupported(c, "memory handles of this device are no addresses");
    return;
  }
  CONF_TRY(c, conf_copy(conf_cpu(), from, 0, c->device, memory + 1003, 5, 64, false, NULL));
  CONF_TRY(c, conf_copy(c->device, memory + 1000, 8, conf_cpu(), to, 0, 64, false, NULL));
  CONF_TRY(c, qn_stream_sync(c->device, NULL));
  CONF_CHECK(c, memcmp(from, to, 64) == 0, "an address inside a block is another place");
}

static const conf_case_t cases[] = {
    {"zero size", zero_size},
    {"bytes come back", round_trip},
    {"alignment", alignment},
    {"handles are numbers in one space", handles},
    {"many blocks", many_blocks},
    {"out of memory", out_of_memory},
    {"devices that are not there", no_device},
    {"addresses inside a block", offsets},
    {"pinned host memory", host_memory},
    {"workspace", workspace},
    {"workspace is stream-ordered", workspace_order},
};
const conf_area_t conf_area_memory = {"memory", cases, CONF_COUNT_OF(cases), NULL};
