// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/support_bundle.c: see support_bundle.h.
#include "tests/unit/cache/support_bundle.h"

#include <stdio.h>
#include <stdlib.h>

void bundle_path(const char* name, char out[BUNDLE_PATH_SIZE]) {
  (void)snprintf(out, BUNDLE_PATH_SIZE, "%s/%s", cache_root, name);
}

void sample_make_by(sample_t* sample, unsigned number, size_t payload_size, const char* generator) {
  sample_make(sample, number, payload_size);
  qn__buffer_t preimage;
  qn__buffer_init(&preimage, qn_allocator_default());
  qn__preimage_begin(&preimage);
  size_t offset = 0;
  uint32_t tag;
  qn_span_t bytes;
  while (qn__preimage_next(sample->entry.preimage, &offset, &tag, &bytes)) {
    char space[16];
    if (tag == QN__SECTION_NAMESPACE) {
      qn__preimage_add(&preimage, QN__SECTION_GENERATOR,
                       (qn_span_t){(const uint8_t*)generator, strlen(generator)});
      bytes.size = (size_t)snprintf(space, sizeof space, "%u", number);
      bytes.data = (const uint8_t*)space;
    }
    qn__preimage_add(&preimage, (qn__section_t)tag, bytes);
  }
  qn__buffer_deinit(&sample->preimage);
  sample->preimage = preimage;
  sample->entry.preimage = qn__buffer_as_span(&preimage);
  sample->entry.key = qn__preimage_key(sample->entry.preimage);
  sample->expected = (qn__expectation_t){sample->entry.key, sample->entry.preimage};
}

qn__buffer_t sample_bytes(const sample_t* sample) {
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  if (!qn__entry_encode(&sample->entry, &bytes)) abort();
  return bytes;
}

bool write_bundle(const char* path, const sample_t* samples, size_t count,
                  const uint8_t* secret_key, bool is_appending) {
  qn__bundle_write_options_t options = {
      .path = path, .secret_key = secret_key, .is_appending = is_appending};
  qn__bundle_writer_t* writer;
  qn_status_t status = qn__bundle_writer_create(&options, &writer);
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    qn__buffer_t bytes = sample_bytes(&samples[i]);
    status = qn__bundle_writer_add(writer, qn__buffer_as_span(&bytes));
    qn__buffer_deinit(&bytes);
  }
  if (qn_ok(status)) status = qn__bundle_writer_finish(writer);
  qn__bundle_writer_destroy(writer);
  bool is_done = qn_ok(status);
  if (!is_done) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  return is_done;
}

qn__bundle_t* open_bundle(const char* path, const uint8_t* public_key, qn_status_code_t* out_code) {
  qn__bundle_options_t options = {
      .path = path, .public_keys = public_key, .public_key_count = public_key != NULL};
  qn__bundle_t* bundle = NULL;
  qn_status_t status = qn__bundle_open(&options, &bundle);
  if (qn_ok(status) != (bundle != NULL)) abort();
  if (!qn_ok(status) && !qn_status_message(status)[0]) abort();
  if (out_code) *out_code = qn_status_code(status);
  qn_status_free(status);
  return bundle;
}

qn__get_result_t get_sample(qn__bundle_t* bundle, const sample_t* sample,
                            qn__reason_t* out_reason) {
  qn__hit_t hit;
  qn__get_result_t result = qn__bundle_get(bundle, &sample->expected, &hit);
  if (out_reason) *out_reason = hit.reason;
  if (result == QN__GET_HIT && !sample_equals(sample, &hit.entry)) abort();
  if (result != QN__GET_HIT && hit.bytes) abort();
  qn__bundle_hit_release(bundle, &hit);
  return result;
}

uint64_t bundle_counter(const qn__bundle_t* bundle, const char* name) {
  qn__counter_set_t set = qn__bundle_counters(bundle);
  for (size_t i = 0; i < set.count; i++) {
    if (strcmp(set.rows[i].name, name) == 0) return set.values[i];
  }
  return UINT64_MAX;
}

bool make_keys(uint8_t out_public[QN__PUBLIC_KEY_BYTES], uint8_t out_secret[QN__SECRET_KEY_BYTES]) {
  const qn__crypto_t* crypto;
  if (qn_status_consume(qn__crypto_open("", &crypto)) != QN_STATUS_OK) return false;
  crypto->make_keys(out_public, out_secret);
  return true;
}
