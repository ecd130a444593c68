// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/support_bundle.h: bundles to test with.
#ifndef QUERN_TESTS_UNIT_CACHE_SUPPORT_BUNDLE_H_
#define QUERN_TESTS_UNIT_CACHE_SUPPORT_BUNDLE_H_

#include "cache/bundle_inner.h"
#include "cache/bundle_write.h"
#include "tests/unit/cache/support.h"

#define BUNDLE_PATH_SIZE (QN_TEST_PATH_SIZE + 64)

// A file of the directory of the test under way.
void bundle_path(const char* name, char out[BUNDLE_PATH_SIZE]);
// A sample whose preimage names a generator, and whose key differs for every number.
void sample_make_by(sample_t* sample, unsigned number, size_t payload_size, const char* generator);
// The entry's bytes; the caller deinits.
qn__buffer_t sample_bytes(const sample_t* sample);
// Writes the samples in this order. False (and the message on stderr) when it fails.
bool write_bundle(const char* path, const sample_t* samples, size_t count,
                  const uint8_t* secret_key, bool is_appending);
// Opens with keys (NULL: none); NULL when it cannot, and then *out_code (may be NULL) says why.
qn__bundle_t* open_bundle(const char* path, const uint8_t* public_key, qn_status_code_t* out_code);
// Gets the sample; asserts that a hit is the sample.
qn__get_result_t get_sample(qn__bundle_t* bundle, const sample_t* sample, qn__reason_t* out_reason);
uint64_t bundle_counter(const qn__bundle_t* bundle, const char* name);
// False where there is no libquern-sodium.so.
bool make_keys(uint8_t out_public[QN__PUBLIC_KEY_BYTES], uint8_t out_secret[QN__SECRET_KEY_BYTES]);

#endif  // QUERN_TESTS_UNIT_CACHE_SUPPORT_BUNDLE_H_
