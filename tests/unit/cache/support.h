// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/support.h: entries to test with, and a directory of their own for each test.
#ifndef QUERN_TESTS_UNIT_CACHE_SUPPORT_H_
#define QUERN_TESTS_UNIT_CACHE_SUPPORT_H_

#include "cache/disk.h"
#include "tests/support/tempdir.h"

// The time limit of waits that must succeed. ctest ends a test that waits longer.
#define FOREVER_NS INT64_C(3600000000000)

// An entry whose contents follow from `number`: preimage, metadata, module (none when `number` is a
// multiple of four) and payload.
typedef struct sample {
  qn__buffer_t preimage;
  qn__buffer_t metadata;
  qn__buffer_t module;
  qn__buffer_t payload;
  qn__entry_t entry;
  qn__expectation_t expected;
} sample_t;

void sample_make(sample_t* sample, unsigned number, size_t payload_size);
void sample_free(sample_t* sample);
// Whether a hit holds exactly the sample.
bool sample_equals(const sample_t* sample, const qn__entry_t* entry);

// The directory of the test under way, and the file of a sample's entry in it.
extern char cache_root[QN_TEST_PATH_SIZE];
int cache_set_up(void** state);
int cache_tear_down(void** state);
void entry_path(const sample_t* sample, char out[QN_TEST_PATH_SIZE + 64]);
// Makes a file so much older than now, or younger.
void set_age(const char* path, int64_t age_s);
// Opens the directory; asserts that it can. Of the default options, those are not taken that would
// make it give up on another thread or process because the machine is busy.
qn__disk_t* open_cache(const qn__disk_options_t* changes);
// Puts a sample and waits until it is in place.
bool put_and_wait(qn__disk_t* disk, const sample_t* sample);
// Replaces the entry of `sample` by `size` bytes and looks it up; it must be no hit.
qn__get_result_t get_replaced(qn__disk_t* disk, const sample_t* sample, const uint8_t* bytes,
                              size_t size);

#endif  // QUERN_TESTS_UNIT_CACHE_SUPPORT_H_
