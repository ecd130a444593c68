// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/support.c: see support.h.
#include "tests/unit/cache/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"

char cache_root[QN_TEST_PATH_SIZE];

void sample_make(sample_t* sample, unsigned number, size_t payload_size) {
  qn_allocator_t allocator = qn_allocator_default();
  qn__buffer_init(&sample->preimage, allocator);
  qn__buffer_init(&sample->metadata, allocator);
  qn__buffer_init(&sample->module, allocator);
  qn__buffer_init(&sample->payload, allocator);
  uint8_t module[32];
  for (size_t i = 0; i < sizeof module; i++) module[i] = (uint8_t)(number + i);
  qn_span_t canonical = {module, sizeof module};
  qn__preimage_begin(&sample->preimage);
  qn__buffer_t schema;
  qn__buffer_init(&schema, allocator);
  qn__buffer_u32(&schema, 1);
  qn__buffer_u32(&schema, 1);
  qn__preimage_add(&sample->preimage, QN__SECTION_SCHEMA, qn__buffer_as_span(&schema));
  qn__buffer_deinit(&schema);
  qn__sha256_t second_digest = qn__sha256(canonical);
  qn__preimage_add_module(&sample->preimage, canonical.size, qn__xxh128(canonical, 0),
                          &second_digest);
  qn_str_t target = QN_STR("{\"kind\":\"cpu\",\"mcpu\":\"znver3\"}");
  qn__preimage_add(&sample->preimage, QN__SECTION_TARGET,
                   (qn_span_t){(const uint8_t*)target.data, target.size});
  qn__preimage_add(&sample->preimage, QN__SECTION_NAMESPACE, (qn_span_t){NULL, 0});
  qn__buffer_format(&sample->metadata, "functions of %u", number);
  if (number % 4 != 0) qn__buffer_bytes(&sample->module, module, sizeof module);
  uint32_t random = number * 2654435761u + 1;
  for (size_t i = 0; i < payload_size; i++) {
    random = random * 1664525 + 1013904223;
    qn__buffer_u8(&sample->payload, (uint8_t)(random >> 24));
  }
  sample->entry = (qn__entry_t){.created_ns = INT64_C(1700000000000000000) + number,
                                .compile_ns = 1000 + number,
                                .preimage = qn__buffer_as_span(&sample->preimage),
                                .metadata = qn__buffer_as_span(&sample->metadata),
                                .module = qn__buffer_as_span(&sample->module),
                                .payload = qn__buffer_as_span(&sample->payload)};
  sample->entry.key = qn__preimage_key(sample->entry.preimage);
  sample->expected = (qn__expectation_t){sample->entry.key, sample->entry.preimage};
}

void sample_free(sample_t* sample) {
  qn__buffer_deinit(&sample->preimage);
  qn__buffer_deinit(&sample->metadata);
  qn__buffer_deinit(&sample->module);
  qn__buffer_deinit(&sample->payload);
}

static bool is_equal(qn_span_t a, qn_span_t b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

bool sample_equals(const sample_t* sample, const qn__entry_t* entry) {
  const qn__entry_t* wanted = &sample->entry;
  return qn__hash128_equal(wanted->key, entry->key) && wanted->created_ns == entry->created_ns &&
         wanted->compile_ns == entry->compile_ns && is_equal(wanted->preimage, entry->preimage) &&
         is_equal(wanted->metadata, entry->metadata) && is_equal(wanted->module, entry->module) &&
         is_equal(wanted->payload, entry->payload);
}

int cache_set_up(void** state) {
  (void)state;
  return qn_test_tempdir_make(cache_root) ? 0 : -1;
}

int cache_tear_down(void** state) {
  (void)state;
  qn_test_tempdir_remove(cache_root);
  return access(cache_root, F_OK) == 0 ? -1 : 0;
}

void entry_path(const sample_t* sample, char out[QN_TEST_PATH_SIZE + 64]) {
  char hex[33];
  qn__hash128_hex(sample->entry.key, hex);
  (void)snprintf(out, QN_TEST_PATH_SIZE + 64, "%s/v1/%.2s/%s.k", cache_root, hex, hex + 2);
}

void set_age(const char* path, int64_t age_s) {
  int64_t then_s = qn__wall_ns() / 1000000000 - age_s;
  struct timespec times[2] = {{.tv_sec = (time_t)then_s}, {.tv_sec = (time_t)then_s}};
  if (utimensat(AT_FDCWD, path, times, 0) != 0) abort();
}

qn__disk_t* open_cache(const qn__disk_options_t* changes) {
  qn__disk_options_t options = {.root = cache_root};
  if (changes) options = *changes;
  if (!options.root) options.root = cache_root;
  if (options.lock_timeout_ns == 0) options.lock_timeout_ns = FOREVER_NS;
  if (options.hang_ns == 0) options.hang_ns = FOREVER_NS;
  qn__disk_t* disk = NULL;
  qn_status_t status = qn__disk_open(&options, &disk);
  if (!qn_ok(status)) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  return disk;
}

qn__get_result_t get_replaced(qn__disk_t* disk, const sample_t* sample, const uint8_t* bytes,
                              size_t size) {
  char path[QN_TEST_PATH_SIZE + 64];
  entry_path(sample, path);
  if (!qn_test_write_file(path, bytes, size)) abort();
  qn__hit_t hit;
  qn__get_result_t result = qn__disk_get(disk, &sample->expected, &hit);
  if (hit.bytes) abort();
  return result;
}

bool put_and_wait(qn__disk_t* disk, const sample_t* sample) {
  uint64_t done = qn__disk_counter(disk, "publish_done");
  return qn__disk_put(disk, &sample->entry, NULL) && qn__disk_flush(disk, FOREVER_NS) &&
         qn__disk_counter(disk, "publish_done") == done + 1;
}
