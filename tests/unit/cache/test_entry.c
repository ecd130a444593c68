// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_entry.c: the bytes of an entry, whole, cut, flipped and crafted.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdlib.h>

#include "cache/entry.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

static qn__buffer_t encode(const sample_t* sample) {
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  assert_true(qn__entry_encode(&sample->entry, &bytes));
  assert_false(bytes.has_failed);
  assert_int_equal(bytes.size, qn__entry_size(&sample->entry));
  return bytes;
}

static qn__reason_t decode(const qn__buffer_t* bytes, const qn__expectation_t* expected) {
  qn__entry_t entry;
  return qn__entry_decode(qn__buffer_as_span(bytes), expected, &entry);
}

static void round_trips(void** state) {
  (void)state;
  for (unsigned i = 0; i < 40; i++) {
    sample_t sample;
    sample_make(&sample, i, i * i * i);
    qn__buffer_t bytes = encode(&sample);
    qn__entry_t entry;
    assert_int_equal(qn__entry_decode(qn__buffer_as_span(&bytes), &sample.expected, &entry),
                     QN__REASON_NONE);
    assert_true(sample_equals(&sample, &entry));
    assert_int_equal((entry.payload.data - bytes.data) % QN__ENTRY_ALIGNMENT, 0);
    assert_int_equal(qn__entry_decode(qn__buffer_as_span(&bytes), NULL, &entry), QN__REASON_NONE);
    assert_true(sample_equals(&sample, &entry));
    qn__entry_header_t header;
    assert_true(qn__entry_header_read(bytes.data, &header));
    assert_true(header.created_ns == sample.entry.created_ns);
    assert_true(header.entry_bytes == bytes.size);
    qn__buffer_deinit(&bytes);
    sample_free(&sample);
  }
}

// The format is a contract between versions: these bytes must never change without a new version.
static void the_bytes_are_the_documented_ones(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 7, 20);
  qn__buffer_t bytes = encode(&sample);
  static const uint8_t begin[16] = {0x89, 'Q', 'N', 'E', 0x0D, 0x0A, 0x1A, 0x0A, 2};
  assert_memory_equal(bytes.data, begin, sizeof begin);
  assert_memory_equal(bytes.data + 16, sample.entry.key.bytes, 16);
  assert_int_equal(bytes.data[32] | bytes.data[33] << 8, (int)sample.entry.preimage.size);
  assert_int_equal(bytes.data[40], sample.entry.metadata.size);
  assert_int_equal(bytes.data[48], 20);
  assert_int_equal(bytes.data[72], 32);
  // Preimage, metadata ("functions of 7") and module, each from a multiple of sixteen.
  assert_int_equal(sample.entry.preimage.size, 130);
  assert_memory_equal(bytes.data + 96 + 144 + 16, sample.module.data, 32);
  assert_memory_equal(bytes.data + 96 + 144 + 16 + 32, sample.payload.data, 20);
  assert_memory_equal(bytes.data + 96, "QNK1\x01\x00\x00\x00\x08\x00\x00\x00", 12);
  assert_int_equal(bytes.size % 16, 0);
  char hex[33];
  qn__hash128_hex(sample.entry.key, hex);
  assert_string_equal(hex, "b127cfd400cd76ebbf8dc7040b036a1d");
  memcpy(sample.entry.key.bytes, bytes.data + bytes.size - 16, 16);
  qn__hash128_hex(sample.entry.key, hex);
  assert_string_equal(hex, "8a24269cde484dbd92d0446e9e6157a6");
  qn__buffer_deinit(&bytes);
  sample_free(&sample);
}

static void every_cut_is_truncated(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 1, 300);
  qn__buffer_t bytes = encode(&sample);
  for (size_t size = 0; size < bytes.size; size++) {
    // A block of the exact size, so that AddressSanitizer sees a read beyond.
    uint8_t* cut = malloc(size ? size : 1);
    memcpy(cut, bytes.data, size);
    qn__entry_t entry;
    assert_int_equal(qn__entry_decode((qn_span_t){cut, size}, &sample.expected, &entry),
                     QN__REASON_TRUNCATED);
    assert_null(entry.payload.data);
    free(cut);
  }
  qn__buffer_bytes(&bytes, "x", 1);
  assert_int_equal(decode(&bytes, &sample.expected), QN__REASON_TRAILING);
  qn__buffer_deinit(&bytes);
  sample_free(&sample);
}

static void every_flipped_bit_is_refused(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 2, 100);
  qn__buffer_t bytes = encode(&sample);
  for (size_t i = 0; i < bytes.size * 8; i++) {
    bytes.data[i / 8] ^= (uint8_t)(1u << (i % 8));
    qn__reason_t reason = decode(&bytes, &sample.expected);
    assert_int_not_equal(reason, QN__REASON_NONE);
    assert_true(qn__reason_heals(reason));
    reason = decode(&bytes, NULL);
    assert_int_not_equal(reason, QN__REASON_NONE);
    bytes.data[i / 8] ^= (uint8_t)(1u << (i % 8));
  }
  assert_int_equal(decode(&bytes, &sample.expected), QN__REASON_NONE);
  qn__buffer_deinit(&bytes);
  sample_free(&sample);
}

static void store(qn__buffer_t* bytes, size_t offset, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; i++) bytes->data[offset + i] = (uint8_t)(value >> (8 * i));
}

// Entries with a right checksum and something else wrong.
static void each_refusal_has_its_reason(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 3, 100);
  qn__buffer_t good = encode(&sample);
  static const struct {
    size_t offset;
    uint64_t value;
    size_t size;
    qn__reason_t reason;
  } cases[] = {
      {0, 'X', 1, QN__REASON_MAGIC},
      {8, 1, 4, QN__REASON_VERSION},
      {8, 3, 4, QN__REASON_VERSION},
      {12, 1, 4, QN__REASON_FLAGS},
      {80, 1, 8, QN__REASON_FLAGS},
      {88, 1, 8, QN__REASON_FLAGS},
      {16, 0, 8, QN__REASON_KEY},
      {32, UINT64_MAX, 8, QN__REASON_LENGTHS},
      {40, UINT64_MAX - 15, 8, QN__REASON_LENGTHS},
      {48, (uint64_t)1 << 63, 8, QN__REASON_LENGTHS},
      {72, QN__ENTRY_MAX_MODULE_BYTES + 1, 8, QN__REASON_LENGTHS},
      {72, UINT64_MAX - 15, 8, QN__REASON_LENGTHS},
      {72, QN__ENTRY_MAX_MODULE_BYTES, 8, QN__REASON_TRUNCATED},
      {72, 0, 8, QN__REASON_TRAILING},
      {72, 31, 8, QN__REASON_PADDING},
      {48, QN__ENTRY_MAX_PAYLOAD_BYTES, 8, QN__REASON_TRUNCATED},
      {48, 0, 8, QN__REASON_TRAILING},
      {48, 97, 8, QN__REASON_PADDING},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__buffer_t bytes;
    qn__buffer_init(&bytes, qn_allocator_default());
    qn__buffer_bytes(&bytes, good.data, good.size);
    store(&bytes, cases[i].offset, cases[i].value, cases[i].size);
    qn__entry_seal(bytes.data, bytes.size);
    assert_int_equal(decode(&bytes, &sample.expected), cases[i].reason);
    assert_int_equal(decode(&bytes, NULL), cases[i].reason);
    qn__buffer_deinit(&bytes);
  }
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__buffer_cstr(&text, "short");
  assert_int_equal(decode(&text, NULL), QN__REASON_MAGIC);
  qn__buffer_deinit(&text);
  qn__buffer_deinit(&good);
  sample_free(&sample);
}

// What a collision of XXH3-128 would look like: the key agrees, the preimage does not.
static void collisions_are_told_apart(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 4, 10);
  qn__buffer_t bytes = encode(&sample);
  qn__buffer_t other;
  qn__buffer_init(&other, qn_allocator_default());
  qn__buffer_bytes(&other, sample.preimage.data, sample.preimage.size);
  qn__expectation_t expected = {sample.entry.key, qn__buffer_as_span(&other)};
  assert_int_equal(decode(&bytes, &expected), QN__REASON_NONE);
  // Magic 4, schema 8 + 8, head of the module's section 8, then 8 of size, 16 of XXH3, 32 of
  // SHA-256.
  size_t module = 4 + 16 + 8;
  other.data[module + 24] ^= 1;
  assert_int_equal(decode(&bytes, &expected), QN__REASON_DIGEST);
  other.data[module + 23] ^= 1;
  assert_int_equal(decode(&bytes, &expected), QN__REASON_COLLISION);
  assert_false(qn__reason_heals(QN__REASON_DIGEST));
  assert_false(qn__reason_heals(QN__REASON_COLLISION));
  expected.preimage.size--;
  assert_int_equal(decode(&bytes, &expected), QN__REASON_COLLISION);
  expected.preimage.size = 0;
  assert_int_equal(decode(&bytes, &expected), QN__REASON_COLLISION);
  qn__buffer_deinit(&other);
  qn__buffer_deinit(&bytes);
  sample_free(&sample);
}

static void a_stored_preimage_must_parse(void** state) {
  (void)state;
  static const char* const bad[] = {"", "QNK", "QNK2", "QNK1\x01", "nonsense"};
  for (size_t i = 0; i < QN_COUNT_OF(bad); i++) {
    qn_str_t text = qn__str(bad[i]);
    qn__entry_t entry = {.preimage = {(const uint8_t*)text.data, text.size}};
    qn__buffer_t bytes;
    qn__buffer_init(&bytes, qn_allocator_default());
    assert_true(qn__entry_encode(&entry, &bytes));
    assert_int_equal(decode(&bytes, NULL), QN__REASON_PREIMAGE);
    qn__buffer_deinit(&bytes);
  }
  // Tags that do not rise.
  qn__buffer_t preimage;
  qn__buffer_init(&preimage, qn_allocator_default());
  qn__preimage_begin(&preimage);
  assert_true(qn__preimage_is_valid(qn__buffer_as_span(&preimage)));
  qn__preimage_add(&preimage, QN__SECTION_TARGET, (qn_span_t){NULL, 0});
  assert_true(qn__preimage_is_valid(qn__buffer_as_span(&preimage)));
  qn__preimage_add(&preimage, QN__SECTION_TARGET, (qn_span_t){NULL, 0});
  assert_false(qn__preimage_is_valid(qn__buffer_as_span(&preimage)));
  qn__buffer_deinit(&preimage);
}

static void sections_beyond_their_limit_are_not_written(void** state) {
  (void)state;
  static const uint8_t byte = 0;
  qn__entry_t entry = {.payload = {&byte, (size_t)QN__ENTRY_MAX_PAYLOAD_BYTES + 1}};
  assert_int_equal(qn__entry_size(&entry), 0);
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  assert_false(qn__entry_encode(&entry, &bytes));
  entry = (qn__entry_t){.metadata = {&byte, (size_t)QN__ENTRY_MAX_METADATA_BYTES + 1}};
  assert_false(qn__entry_encode(&entry, &bytes));
  entry = (qn__entry_t){.module = {&byte, (size_t)QN__ENTRY_MAX_MODULE_BYTES + 1}};
  assert_false(qn__entry_encode(&entry, &bytes));
  entry = (qn__entry_t){.preimage = {&byte, (size_t)QN__ENTRY_MAX_PREIMAGE_BYTES + 1}};
  assert_false(qn__entry_encode(&entry, &bytes));
  assert_int_equal(bytes.size, 0);
  qn__buffer_deinit(&bytes);
}

static void a_stored_module_is_held_against_the_key(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 6, 50);
  assert_true(qn__entry_module_matches(&sample.entry));
  for (size_t i = 0; i < sample.module.size; i++) {
    sample.module.data[i] ^= 1;
    assert_false(qn__entry_module_matches(&sample.entry));
    // A hit does not ask.
    qn__buffer_t bytes = encode(&sample);
    assert_int_equal(decode(&bytes, &sample.expected), QN__REASON_NONE);
    qn__buffer_deinit(&bytes);
    sample.module.data[i] ^= 1;
  }
  sample.entry.module.size--;
  assert_false(qn__entry_module_matches(&sample.entry));
  sample.entry.module.size = 0;
  assert_false(qn__entry_module_matches(&sample.entry));
  sample.entry.module.size = sample.module.size;
  for (size_t i = 28; i < 84; i++) {  // the module's section, both digests
    sample.preimage.data[i] ^= 1;
    assert_false(qn__entry_module_matches(&sample.entry));
    sample.preimage.data[i] ^= 1;
  }
  assert_true(qn__entry_module_matches(&sample.entry));
  sample.entry.preimage.size = 20;  // no such section
  assert_false(qn__entry_module_matches(&sample.entry));
  sample_free(&sample);
}

static void names_the_section_that_differs(void** state) {
  (void)state;
  qn__buffer_t a, b;
  qn__buffer_init(&a, qn_allocator_default());
  qn__buffer_init(&b, qn_allocator_default());
  qn__preimage_begin(&a);
  qn__preimage_begin(&b);
  qn_span_t one = {(const uint8_t*)"1", 1}, two = {(const uint8_t*)"2", 1};
  qn__preimage_add(&a, QN__SECTION_MODULE, one);
  qn__preimage_add(&b, QN__SECTION_MODULE, one);
  assert_int_equal(qn__preimage_first_difference(qn__buffer_as_span(&a), qn__buffer_as_span(&b)),
                   0);
  qn__preimage_add(&a, QN__SECTION_GENERATOR, one);
  assert_int_equal(qn__preimage_first_difference(qn__buffer_as_span(&a), qn__buffer_as_span(&b)),
                   QN__SECTION_GENERATOR);
  qn__preimage_add(&b, QN__SECTION_TARGET, two);
  assert_int_equal(qn__preimage_first_difference(qn__buffer_as_span(&a), qn__buffer_as_span(&b)),
                   QN__SECTION_TARGET);
  assert_int_equal(qn__preimage_first_difference(qn__buffer_as_span(&b), qn__buffer_as_span(&a)),
                   QN__SECTION_TARGET);
  assert_string_equal(qn__section_text(QN__SECTION_TARGET), "target");
  assert_string_equal(qn__section_text(999), "unknown");
  assert_true(qn__section_is_text(QN__SECTION_TARGET));
  assert_false(qn__section_is_text(QN__SECTION_MODULE));
  assert_false(qn__section_is_text(999));
  assert_false(qn__hash128_equal(qn__preimage_key(qn__buffer_as_span(&a)),
                                 qn__preimage_key(qn__buffer_as_span(&b))));
  qn__buffer_deinit(&a);
  qn__buffer_deinit(&b);
}

static bool encode_work(qn_allocator_t allocator, void* user) {
  const sample_t* sample = user;
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, allocator);
  bool is_fine = qn__entry_encode(&sample->entry, &bytes);
  qn__entry_t entry;
  if (!bytes.has_failed) {
    is_fine &=
        qn__entry_decode(qn__buffer_as_span(&bytes), &sample->expected, &entry) == QN__REASON_NONE;
  }
  qn__buffer_deinit(&bytes);
  return is_fine;
}

static void encoding_without_memory_is_clean(void** state) {
  (void)state;
  sample_t sample;
  sample_make(&sample, 5, 1000);
  assert_true(qn_fault_walk_alloc(encode_work, &sample) > 1);
  sample_free(&sample);
}

static void reasons_have_names(void** state) {
  (void)state;
  assert_string_equal(qn__reason_name(QN__REASON_NONE), "none");
  assert_string_equal(qn__reason_name(QN__REASON_CHECKSUM), "checksum");
  assert_string_equal(qn__reason_name(QN__REASON_COUNT), "unknown");
  for (int i = 0; i < QN__REASON_COUNT; i++) {
    assert_true(strlen(qn__reason_text((qn__reason_t)i)) > 10);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trips),
      cmocka_unit_test(the_bytes_are_the_documented_ones),
      cmocka_unit_test(every_cut_is_truncated),
      cmocka_unit_test(every_flipped_bit_is_refused),
      cmocka_unit_test(each_refusal_has_its_reason),
      cmocka_unit_test(collisions_are_told_apart),
      cmocka_unit_test(a_stored_preimage_must_parse),
      cmocka_unit_test(sections_beyond_their_limit_are_not_written),
      cmocka_unit_test(a_stored_module_is_held_against_the_key),
      cmocka_unit_test(names_the_section_that_differs),
      cmocka_unit_test(encoding_without_memory_is_clean),
      cmocka_unit_test(reasons_have_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
