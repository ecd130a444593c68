// SPDX-License-Identifier: Apache-2.0
// tests/unit/cache/test_bundle.c: reading bundles: whole, cut at every length, with every byte
// changed, signed, untrusted, and changed while they are open.
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/entry_head.h"
#include "tests/unit/cache/support_bundle.h"

enum { SAMPLES = 5, FILE_ROOM = 1 << 16 };
static const char* const makers[] = {"llvm 1, build id aa", "interp 1", "llvm 1, build id bb"};
static sample_t samples[SAMPLES];
static char path[BUNDLE_PATH_SIZE], other[BUNDLE_PATH_SIZE];

static int set_up(void** state) {
  if (cache_set_up(state) != 0) return -1;
  for (unsigned i = 0; i < SAMPLES; i++) {
    sample_make_by(&samples[i], i, 100 * i, makers[i % QN_COUNT_OF(makers)]);
  }
  bundle_path("a.qnb", path);
  bundle_path("b.qnb", other);
  return 0;
}

static int tear_down(void** state) {
  for (unsigned i = 0; i < SAMPLES; i++) sample_free(&samples[i]);
  return cache_tear_down(state);
}

static void everything_is_found(void** state) {
  (void)state;
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  assert_int_equal(qn__bundle_count(bundle), SAMPLES);
  assert_false(qn__bundle_is_truncated(bundle));
  assert_null(qn__bundle_signer(bundle));
  assert_string_equal(qn__bundle_path(bundle), path);
  for (unsigned i = 0; i < SAMPLES; i++) {
    assert_int_equal(get_sample(bundle, &samples[i], NULL), QN__GET_HIT);
  }
  for (uint64_t i = 0; i < SAMPLES; i++) {
    qn__hit_t hit;
    assert_int_equal(qn__bundle_read(bundle, i, &hit), QN__GET_HIT);
    assert_true(qn__hash128_equal(hit.entry.key, qn__bundle_key(bundle, i)));
    if (i) {
      qn_hash128_t before = qn__bundle_key(bundle, i - 1);
      assert_true(memcmp(before.bytes, hit.entry.key.bytes, 16) < 0);
    }
    assert_int_equal(qn__bundle_created_ns(bundle, i), hit.entry.created_ns);
    assert_int_equal(qn__bundle_entry_size(bundle, i), qn__entry_size(&hit.entry));
    qn__bundle_hit_release(bundle, &hit);
    qn__bundle_hit_release(bundle, &hit);
  }
  qn__hit_t hit;
  assert_int_equal(qn__bundle_read(bundle, SAMPLES, &hit), QN__GET_ABSENT);
  sample_t absent;
  sample_make_by(&absent, 77, 10, makers[0]);
  assert_int_equal(get_sample(bundle, &absent, NULL), QN__GET_ABSENT);
  // The right key and another preimage: as if two modules had one key.
  qn__expectation_t collision = {samples[0].expected.key, samples[1].expected.preimage};
  assert_int_equal(qn__bundle_get(bundle, &collision, &hit), QN__GET_BAD);
  sample_free(&absent);
  assert_int_equal(bundle_counter(bundle, "bundle_hits"), SAMPLES);
  assert_int_equal(bundle_counter(bundle, "bundle_misses"), 1);
  assert_int_equal(
      bundle_counter(bundle, "bundle_bad_collision") + bundle_counter(bundle, "bundle_bad_digest"),
      1);
  assert_int_equal(qn__bundle_identity_count(bundle), 3);
  assert_string_equal(qn__bundle_identity(bundle, 0), makers[1]);
  assert_string_equal(qn__bundle_identity(bundle, 1), makers[0]);
  assert_string_equal(qn__bundle_identity(bundle, 2), makers[2]);
  qn__bundle_close(bundle);
}

static void many_are_found(void** state) {
  (void)state;
  enum { MANY = 3000 };
  sample_t* many = calloc(MANY + 100, sizeof *many);
  assert_non_null(many);
  for (unsigned i = 0; i < MANY + 100; i++) sample_make_by(&many[i], i, i % 50, makers[i % 3]);
  assert_true(write_bundle(path, many, MANY, NULL, false));
  qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  for (unsigned i = 0; i < MANY; i++) {
    assert_int_equal(get_sample(bundle, &many[i], NULL), QN__GET_HIT);
  }
  for (unsigned i = MANY; i < MANY + 100; i++) {
    assert_int_equal(get_sample(bundle, &many[i], NULL), QN__GET_ABSENT);
  }
  qn__bundle_close(bundle);
  for (unsigned i = 0; i < MANY + 100; i++) sample_free(&many[i]);
  free(many);
}

// An empty bundle, and one whose keys all begin alike, which no hash would give.
static void odd_indices_are_searched(void** state) {
  (void)state;
  assert_true(write_bundle(path, NULL, 0, NULL, false));
  qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  assert_int_equal(get_sample(bundle, &samples[0], NULL), QN__GET_ABSENT);
  assert_int_equal(qn__bundle_identity_count(bundle), 0);
  qn__bundle_close(bundle);

  qn__buffer_t entry = sample_bytes(&samples[1]);
  enum { ROWS = 300 };
  qn__bundle_identities_t none = {.count = 0};
  uint64_t index_size;
  assert_true(qn__bundle_index_size(ROWS, false, &none, &index_size));
  uint64_t index_offset = QN__BUNDLE_HEADER_BYTES + entry.size;
  size_t size = (size_t)(index_offset + index_size + QN__BUNDLE_TRAILER_BYTES);
  uint8_t* file = calloc(1, size);
  assert_non_null(file);
  qn__bundle_header_write(file);
  memcpy(file + QN__BUNDLE_HEADER_BYTES, entry.data, entry.size);
  uint8_t* block = file + index_offset;
  for (unsigned i = 0; i < ROWS; i++) {
    qn__bundle_row_t row = {.offset = QN__BUNDLE_HEADER_BYTES, .size = entry.size};
    row.key.bytes[14] = (uint8_t)(i >> 8);
    row.key.bytes[15] = (uint8_t)i;
    qn__bundle_row_store(&row, block + QN__BUNDLE_INDEX_HEADER_BYTES + i * QN__BUNDLE_ROW_BYTES);
  }
  qn__bundle_index_seal(ROWS, false, &none, block, (size_t)index_size);
  qn__bundle_trailer_t trailer = {.index_offset = index_offset,
                                  .index_size = index_size,
                                  .count = ROWS,
                                  .trailer_offset = index_offset + index_size};
  qn__bundle_trailer_write(&trailer, file + index_offset + index_size);
  qn__bundle_trailer_seal(file + index_offset + index_size, NULL);
  assert_true(qn_test_write_file(path, file, size));
  bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  assert_false(qn__bundle_is_truncated(bundle));
  for (unsigned i = 0; i < ROWS + 10; i++) {
    qn__expectation_t expected = samples[1].expected;
    memset(&expected.key, 0, sizeof expected.key);
    expected.key.bytes[14] = (uint8_t)(i >> 8);
    expected.key.bytes[15] = (uint8_t)i;
    qn__hit_t hit;
    // Found, and refused, since the entry is another one's.
    assert_int_equal(qn__bundle_get(bundle, &expected, &hit),
                     i < ROWS ? QN__GET_BAD : QN__GET_ABSENT);
    if (i < ROWS) assert_int_equal(hit.reason, QN__REASON_KEY);
  }
  qn__bundle_close(bundle);
  free(file);
  qn__buffer_deinit(&entry);
}

// ---------------------------------------------------------------------------------------- damage

static uint8_t file_bytes[FILE_ROOM];
static size_t file_size;

static void load_file(const char* name) {
  long size = qn_test_read_file(name, file_bytes, sizeof file_bytes);
  assert_true(size > 0 && size < (long)sizeof file_bytes);
  file_size = (size_t)size;
}

// How many of the samples lie whole in front of `end`, in a file that has them in their order.
static uint64_t whole_in_front(size_t end) {
  uint64_t count = 0;
  size_t at = QN__BUNDLE_HEADER_BYTES;
  for (unsigned i = 0; i < SAMPLES; i++) {
    at += qn__entry_size(&samples[i].entry);
    if (at <= end) count++;
  }
  return count;
}

static void cut_anywhere(void** state) {
  (void)state;
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  load_file(path);
  for (size_t size = 0; size < file_size; size++) {
    assert_true(qn_test_write_file(other, file_bytes, size));
    qn_status_code_t code;
    qn__bundle_t* bundle = open_bundle(other, NULL, &code);
    if (size < QN__BUNDLE_HEADER_BYTES) {
      assert_null(bundle);
      assert_int_equal(code, QN_STATUS_DATA_LOSS);
      continue;
    }
    assert_non_null(bundle);
    assert_true(qn__bundle_is_truncated(bundle));
    uint64_t whole = whole_in_front(size);
    assert_int_equal(qn__bundle_count(bundle), whole);
    for (unsigned i = 0; i < SAMPLES; i++) {
      assert_int_equal(get_sample(bundle, &samples[i], NULL),
                       i < whole ? QN__GET_HIT : QN__GET_ABSENT);
    }
    if (whole == SAMPLES) assert_int_equal(qn__bundle_identity_count(bundle), 3);
    qn__bundle_close(bundle);
  }
  // Bytes after the end are as bad as missing ones.
  file_bytes[file_size] = 0;
  assert_true(qn_test_write_file(other, file_bytes, file_size + 1));
  qn__bundle_t* bundle = open_bundle(other, NULL, NULL);
  assert_non_null(bundle);
  assert_true(qn__bundle_is_truncated(bundle));
  assert_int_equal(qn__bundle_count(bundle), SAMPLES);
  qn__bundle_close(bundle);
}

static void check_flipped(size_t at, size_t entries_end) {
  assert_true(qn_test_write_file(other, file_bytes, file_size));
  qn_status_code_t code;
  qn__bundle_t* bundle = open_bundle(other, NULL, &code);
  if (at < QN__BUNDLE_HEADER_BYTES) {
    assert_null(bundle);
    assert_int_equal(code, QN_STATUS_DATA_LOSS);
    return;
  }
  assert_non_null(bundle);
  assert_int_equal(qn__bundle_is_truncated(bundle), at >= entries_end);
  size_t begin = QN__BUNDLE_HEADER_BYTES;
  for (unsigned i = 0; i < SAMPLES; i++) {
    size_t end = begin + qn__entry_size(&samples[i].entry);
    bool is_hit_by = at >= begin && at < end;
    assert_int_equal(get_sample(bundle, &samples[i], NULL), is_hit_by ? QN__GET_BAD : QN__GET_HIT);
    begin = end;
  }
  qn__bundle_close(bundle);
}

static void flipped_anywhere(void** state) {
  (void)state;
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  load_file(path);
  size_t entries_end = QN__BUNDLE_HEADER_BYTES;
  for (unsigned i = 0; i < SAMPLES; i++) entries_end += qn__entry_size(&samples[i].entry);
  for (size_t at = 0; at < file_size; at++) {
    for (int bit = 0; bit < 8; bit += 7) {
      file_bytes[at] ^= (uint8_t)(1 << bit);
      check_flipped(at, entries_end);
      file_bytes[at] ^= (uint8_t)(1 << bit);
    }
  }
}

// A bundle that grew in place, as writers may make it: entries, an index of all entries so far, and
// a trailer, again and again.
typedef struct grown {
  qn__buffer_t bytes;
  uint8_t rows[2 * SAMPLES * QN__BUNDLE_ROW_BYTES];
  size_t row_count;
  qn__bundle_identities_t identities;
} grown_t;

static void grow_entry(grown_t* grown, const sample_t* sample) {
  qn__buffer_t entry = sample_bytes(sample);
  qn__bundle_row_t row = {sample->entry.key, grown->bytes.size, entry.size};
  size_t at = 0;  // a row of the same key is replaced
  while (at < grown->row_count &&
         memcmp(grown->rows + at * QN__BUNDLE_ROW_BYTES, row.key.bytes, sizeof row.key) != 0) {
    at++;
  }
  if (at == grown->row_count) grown->row_count++;
  qn__bundle_row_store(&row, grown->rows + at * QN__BUNDLE_ROW_BYTES);
  assert_true(qn__bundle_identities_add(
      &grown->identities, qn__preimage_section(sample->entry.preimage, QN__SECTION_GENERATOR)));
  qn__buffer_bytes(&grown->bytes, entry.data, entry.size);
  qn__buffer_deinit(&entry);
}

static void grow_tail(grown_t* grown) {
  qsort(grown->rows, grown->row_count, QN__BUNDLE_ROW_BYTES, qn__bundle_row_compare);
  uint64_t size = 0, offset = grown->bytes.size;
  assert_true(qn__bundle_index_size(grown->row_count, false, &grown->identities, &size));
  uint8_t* block = qn__buffer_extend(&grown->bytes, (size_t)size);
  assert_non_null(block);
  memcpy(block + QN__BUNDLE_INDEX_HEADER_BYTES, grown->rows,
         grown->row_count * QN__BUNDLE_ROW_BYTES);
  qn__bundle_index_seal(grown->row_count, false, &grown->identities, block, (size_t)size);
  qn__bundle_trailer_t trailer = {.index_offset = offset,
                                  .index_size = size,
                                  .count = grown->row_count,
                                  .trailer_offset = offset + size};
  uint8_t bytes[QN__BUNDLE_TRAILER_BYTES];
  qn__bundle_trailer_write(&trailer, bytes);
  qn__bundle_trailer_seal(bytes, NULL);
  qn__buffer_bytes(&grown->bytes, bytes, sizeof bytes);
}

static void grown_and_cut_anywhere(void** state) {
  (void)state;
  grown_t grown = {.row_count = 0};
  qn__buffer_init(&grown.bytes, qn_allocator_default());
  uint8_t header[QN__BUNDLE_HEADER_BYTES];
  qn__bundle_header_write(header);
  qn__buffer_bytes(&grown.bytes, header, sizeof header);
  for (unsigned i = 0; i < 2; i++) grow_entry(&grown, &samples[i]);
  grow_tail(&grown);
  size_t first_size = grown.bytes.size;
  // Again the first one, with another time, and the others.
  sample_t again = samples[0];
  again.entry.created_ns += 1;
  grow_entry(&grown, &again);
  grow_tail(&grown);
  for (unsigned i = 2; i < SAMPLES; i++) grow_entry(&grown, &samples[i]);
  grow_tail(&grown);
  assert_true(qn_test_write_file(path, grown.bytes.data, grown.bytes.size));
  qn__buffer_deinit(&grown.bytes);
  load_file(path);
  assert_true(file_size > first_size);
  qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  assert_false(qn__bundle_is_truncated(bundle));
  assert_int_equal(qn__bundle_count(bundle), SAMPLES);
  assert_int_equal(get_sample(bundle, &again, NULL), QN__GET_HIT);
  for (unsigned i = 1; i < SAMPLES; i++) {
    assert_int_equal(get_sample(bundle, &samples[i], NULL), QN__GET_HIT);
  }
  assert_int_equal(qn__bundle_identity_count(bundle), 3);
  qn__bundle_close(bundle);
  // Of a key that is there twice the last whole one counts, also when it is found by a scan.
  for (size_t size = first_size; size < file_size; size++) {
    assert_true(qn_test_write_file(other, file_bytes, size));
    bundle = open_bundle(other, NULL, NULL);
    assert_non_null(bundle);
    size_t again_end = first_size + qn__entry_size(&again.entry);
    assert_int_equal(get_sample(bundle, size < again_end ? &samples[0] : &again, NULL),
                     QN__GET_HIT);
    assert_int_equal(get_sample(bundle, &samples[1], NULL), QN__GET_HIT);
    assert_true(qn__bundle_count(bundle) >= 2);
    qn__bundle_close(bundle);
  }
}

static void changed_while_open(void** state) {
  (void)state;
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  load_file(path);
  qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  // Replaced under its name: what is open goes on.
  assert_true(write_bundle(other, samples, 1, NULL, false));
  assert_int_equal(rename(other, path), 0);
  assert_int_equal(get_sample(bundle, &samples[4], NULL), QN__GET_HIT);
  qn__bundle_close(bundle);

  assert_true(qn_test_write_file(path, file_bytes, file_size));
  bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  qn__reason_t reason;
  assert_int_equal(
      truncate(path, (off_t)(QN__BUNDLE_HEADER_BYTES + qn__entry_size(&samples[0].entry) + 20)), 0);
  assert_int_equal(get_sample(bundle, &samples[0], NULL), QN__GET_HIT);
  assert_int_equal(get_sample(bundle, &samples[1], &reason), QN__GET_BAD);
  assert_int_equal(reason, QN__REASON_TRUNCATED);
  assert_int_equal(get_sample(bundle, &samples[4], &reason), QN__GET_BAD);
  assert_int_equal(bundle_counter(bundle, "bundle_bad_truncated"), 2);
  // Whole again, as long as it is the same file.
  assert_true(qn_test_write_file(path, file_bytes, file_size));
  assert_int_equal(get_sample(bundle, &samples[4], NULL), QN__GET_HIT);
  qn__bundle_close(bundle);
}

// ---------------------------------------------------------------------------------------- signed

static void signatures_are_asked_for(void** state) {
  (void)state;
  uint8_t public_keys[3][QN__PUBLIC_KEY_BYTES], secret_keys[3][QN__SECRET_KEY_BYTES];
  for (int i = 0; i < 3; i++) {
    if (!make_keys(public_keys[i], secret_keys[i])) skip();
  }
  assert_true(write_bundle(path, samples, SAMPLES, secret_keys[0], false));
  qn__bundle_t* bundle = open_bundle(path, public_keys[0], NULL);
  assert_non_null(bundle);
  assert_memory_equal(qn__bundle_signer(bundle), public_keys[0], QN__PUBLIC_KEY_BYTES);
  for (unsigned i = 0; i < SAMPLES; i++) {
    assert_int_equal(get_sample(bundle, &samples[i], NULL), QN__GET_HIT);
  }
  qn__bundle_close(bundle);
  // Any of several keys; none; another.
  qn__bundle_options_t options = {
      .path = path, .public_keys = public_keys[0], .public_key_count = 3};
  assert_true(qn_ok(qn__bundle_open(&options, &bundle)));
  qn__bundle_close(bundle);
  bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  qn__bundle_close(bundle);
  qn_status_code_t code;
  assert_null(open_bundle(path, public_keys[1], &code));
  assert_int_equal(code, QN_STATUS_PERMISSION_DENIED);
  // Not signed at all.
  assert_true(write_bundle(other, samples, SAMPLES, NULL, false));
  assert_null(open_bundle(other, public_keys[0], &code));
  assert_int_equal(code, QN_STATUS_PERMISSION_DENIED);
  // Appending to a signed bundle without the key takes the signature away.
  assert_true(write_bundle(path, samples, 1, NULL, true));
  assert_null(open_bundle(path, public_keys[0], &code));
  assert_int_equal(code, QN_STATUS_PERMISSION_DENIED);
  // With the key it is signed as a whole again.
  assert_true(write_bundle(path, samples + 1, 1, secret_keys[1], true));
  bundle = open_bundle(path, public_keys[1], NULL);
  assert_non_null(bundle);
  for (unsigned i = 0; i < SAMPLES; i++) {
    assert_int_equal(get_sample(bundle, &samples[i], NULL), QN__GET_HIT);
  }
  qn__bundle_close(bundle);
}

static void signed_and_cut_or_changed_anywhere(void** state) {
  (void)state;
  uint8_t public_key[QN__PUBLIC_KEY_BYTES], secret_key[QN__SECRET_KEY_BYTES];
  if (!make_keys(public_key, secret_key)) skip();
  assert_true(write_bundle(path, samples, SAMPLES, secret_key, false));
  load_file(path);
  qn_status_code_t code;
  for (size_t size = 0; size < file_size; size++) {
    assert_true(qn_test_write_file(other, file_bytes, size));
    assert_null(open_bundle(other, public_key, &code));
    assert_int_equal(
        code, size < QN__BUNDLE_HEADER_BYTES ? QN_STATUS_DATA_LOSS : QN_STATUS_PERMISSION_DENIED);
  }
  size_t entries_end = QN__BUNDLE_HEADER_BYTES;
  for (unsigned i = 0; i < SAMPLES; i++) entries_end += qn__entry_size(&samples[i].entry);
  for (size_t at = 0; at < file_size; at++) {
    file_bytes[at] ^= 0x10;
    assert_true(qn_test_write_file(other, file_bytes, file_size));
    file_bytes[at] ^= 0x10;
    qn__bundle_t* bundle = open_bundle(other, public_key, &code);
    if (at < QN__BUNDLE_HEADER_BYTES || at >= entries_end) {
      assert_null(bundle);
      assert_int_equal(
          code, at < QN__BUNDLE_HEADER_BYTES ? QN_STATUS_DATA_LOSS : QN_STATUS_PERMISSION_DENIED);
      continue;
    }
    assert_non_null(bundle);
    size_t begin = QN__BUNDLE_HEADER_BYTES;
    for (unsigned i = 0; i < SAMPLES; i++) {
      size_t end = begin + qn__entry_size(&samples[i].entry);
      bool is_hit_by = at >= begin && at < end;
      assert_int_equal(get_sample(bundle, &samples[i], NULL),
                       is_hit_by ? QN__GET_UNTRUSTED : QN__GET_HIT);
      begin = end;
    }
    assert_int_equal(bundle_counter(bundle, "bundle_forged"), 1);
    qn__bundle_close(bundle);
  }
}

// An entry with another payload and a checksum that fits: damage is not what signatures are for.
static void a_forged_entry_is_refused(void** state) {
  (void)state;
  uint8_t public_key[QN__PUBLIC_KEY_BYTES], secret_key[QN__SECRET_KEY_BYTES];
  if (!make_keys(public_key, secret_key)) skip();
  assert_true(write_bundle(path, samples, SAMPLES, secret_key, false));
  load_file(path);
  uint8_t* entry = file_bytes + QN__BUNDLE_HEADER_BYTES + qn__entry_size(&samples[0].entry);
  size_t size = qn__entry_size(&samples[1].entry);
  entry[size - QN__ENTRY_CHECKSUM_BYTES - 20] ^= 1;
  qn__entry_seal(entry, size);
  assert_true(qn_test_write_file(path, file_bytes, file_size));
  qn__bundle_t* bundle = open_bundle(path, public_key, NULL);
  assert_non_null(bundle);
  assert_int_equal(get_sample(bundle, &samples[1], NULL), QN__GET_UNTRUSTED);
  assert_int_equal(get_sample(bundle, &samples[2], NULL), QN__GET_HIT);
  qn__bundle_close(bundle);
  // Nor does the next entry that the holder of the key adds make it good.
  assert_false(write_bundle(path, samples + 2, 1, secret_key, true));
  bundle = open_bundle(path, public_key, NULL);
  assert_non_null(bundle);
  assert_int_equal(get_sample(bundle, &samples[1], NULL), QN__GET_UNTRUSTED);
  qn__bundle_close(bundle);
}

// ---------------------------------------------------------------------------------------- trust

static qn_status_code_t code_of(const char* file, const uid_t* owners, size_t owner_count) {
  qn__bundle_options_t options = {.path = file, .owners = owners, .owner_count = owner_count};
  qn__bundle_t* bundle;
  qn_status_code_t code = qn_status_consume(qn__bundle_open(&options, &bundle));
  qn__bundle_close(bundle);
  return code;
}

static void files_that_are_not_trusted(void** state) {
  (void)state;
  char folder[BUNDLE_PATH_SIZE], inside[BUNDLE_PATH_SIZE];
  assert_int_equal(code_of(path, NULL, 0), QN_STATUS_NOT_FOUND);
  assert_int_equal(code_of("", NULL, 0), QN_STATUS_INVALID_ARGUMENT);
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  assert_int_equal(code_of(path, NULL, 0), QN_STATUS_OK);
  assert_int_equal(symlink(path, other), 0);
  assert_int_equal(code_of(other, NULL, 0), QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(unlink(other), 0);
  assert_int_equal(code_of(cache_root, NULL, 0), QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(mkfifo(other, 0600), 0);
  assert_int_equal(code_of(other, NULL, 0), QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(code_of("/dev/null", NULL, 0), QN_STATUS_PERMISSION_DENIED);
  // A folder on the way may be a link.
  bundle_path("folder", folder);
  bundle_path("folder/a.qnb", inside);
  assert_int_equal(symlink(cache_root, folder), 0);
  assert_int_equal(code_of(inside, NULL, 0), QN_STATUS_OK);
  static const mode_t modes[] = {0664, 0646, 0666};
  for (size_t i = 0; i < QN_COUNT_OF(modes); i++) {
    assert_int_equal(chmod(path, modes[i]), 0);
    assert_int_equal(code_of(path, NULL, 0), QN_STATUS_PERMISSION_DENIED);
  }
  assert_int_equal(chmod(path, 0444), 0);
  assert_int_equal(code_of(path, NULL, 0), QN_STATUS_OK);
  // A directory that is writable for all users.
  assert_int_equal(chmod(cache_root, 0777), 0);
  assert_int_equal(code_of(path, NULL, 0), QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(code_of(inside, NULL, 0), QN_STATUS_PERMISSION_DENIED);
  assert_int_equal(chmod(cache_root, 01777), 0);
  assert_int_equal(code_of(path, NULL, 0), QN_STATUS_OK);
  if (geteuid() == 0) {
    assert_int_equal(chown(path, 12345, 0), 0);
    const uid_t owners[] = {1, 12345};
    assert_int_equal(code_of(path, NULL, 0), QN_STATUS_PERMISSION_DENIED);
    assert_int_equal(code_of(path, owners, 1), QN_STATUS_PERMISSION_DENIED);
    assert_int_equal(code_of(path, owners, 2), QN_STATUS_OK);
  }
}

// What a set-user-id program runs does not come from its caller's files.
static void borrowed_rights_use_no_bundle(void** state) {
  (void)state;
  if (geteuid() != 0) skip();
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  pid_t child = fork();
  if (child == 0) {
    if (setregid(1, 0) != 0) _exit(2);
    _exit(code_of(path, NULL, 0) == QN_STATUS_PERMISSION_DENIED ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// ---------------------------------------------------------------------------------------- others

static void a_child_goes_on(void** state) {
  (void)state;
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  qn__bundle_t* bundle = open_bundle(path, NULL, NULL);
  assert_non_null(bundle);
  assert_int_equal(get_sample(bundle, &samples[3], NULL), QN__GET_HIT);
  pid_t child = fork();
  if (child == 0) {
    int code = 0;
    for (unsigned i = 0; i < SAMPLES; i++) {
      if (get_sample(bundle, &samples[i], NULL) != QN__GET_HIT) code = 1;
    }
    qn__bundle_close(bundle);
    _exit(code);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(get_sample(bundle, &samples[4], NULL), QN__GET_HIT);
  qn__bundle_close(bundle);
}

static void counters_are_summed(void** state) {
  (void)state;
  assert_true(write_bundle(path, samples, 2, NULL, false));
  qn__bundle_t* bundles[2] = {open_bundle(path, NULL, NULL), open_bundle(path, NULL, NULL)};
  assert_non_null(bundles[0]);
  assert_non_null(bundles[1]);
  (void)get_sample(bundles[0], &samples[0], NULL);
  (void)get_sample(bundles[1], &samples[1], NULL);
  (void)get_sample(bundles[1], &samples[4], NULL);
  assert_int_equal(bundle_counter(bundles[1], "bundle_hits"), 1);
  assert_int_equal(bundle_counter(bundles[1], "bundle_misses"), 1);
  assert_int_equal(bundle_counter(bundles[0], "bundle_bytes_read"),
                   qn__entry_size(&samples[0].entry));
  qn__bundle_close(bundles[0]);
  qn__bundle_close(bundles[1]);
}

// A bundle at the end of a shared object, whatever its distance from the begin is.
static void a_shared_object_may_end_with_one(void** state) {
  (void)state;
  assert_true(write_bundle(path, samples, SAMPLES, NULL, false));
  static uint8_t bytes[4096 + FILE_ROOM] = "\177ELF";
  static const size_t bases[] = {65, 4096};
  for (size_t i = 0; i < QN_COUNT_OF(bases); i++) {
    const size_t base = bases[i];
    const long size = qn_test_read_file(path, bytes + base, FILE_ROOM);
    assert_true(size > 0);
    const size_t whole = base + (size_t)size;
    assert_true(qn_test_write_file(other, bytes, whole));
    qn__bundle_t* bundle = open_bundle(other, NULL, NULL);
    assert_non_null(bundle);
    assert_int_equal(qn__bundle_count(bundle), SAMPLES);
    assert_int_equal(qn__bundle_size(bundle), size);
    for (unsigned k = 0; k < SAMPLES; k++) {
      static qn__entry_head_t head;
      assert_int_equal(get_sample(bundle, &samples[k], NULL), QN__GET_HIT);
      assert_true(qn__bundle_read_head(bundle, k, &head));
    }
    qn__bundle_close(bundle);
    // A cut is never scanned: the bytes before it are of another kind of file.
    for (size_t cut = 1; cut < whole; cut += cut < 300 ? 1 : 97) {
      qn_status_code_t code;
      assert_true(qn_test_write_file(other, bytes, whole - cut));
      assert_null(open_bundle(other, NULL, &code));
      assert_int_equal(code, QN_STATUS_DATA_LOSS);
    }
    // Nor is a damaged index or trailer.
    for (size_t at = whole - 480; at < whole; at += 11) {
      qn_status_code_t code;
      bytes[at] ^= 0x5a;
      assert_true(qn_test_write_file(other, bytes, whole));
      assert_null(open_bundle(other, NULL, &code));
      assert_int_equal(code, QN_STATUS_DATA_LOSS);
      bytes[at] ^= 0x5a;
    }
    memset(bytes + 4, 0, sizeof bytes - 4);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      TEST(everything_is_found),
      TEST(a_shared_object_may_end_with_one),
      TEST(many_are_found),
      TEST(odd_indices_are_searched),
      TEST(cut_anywhere),
      TEST(flipped_anywhere),
      TEST(grown_and_cut_anywhere),
      TEST(changed_while_open),
      TEST(signatures_are_asked_for),
      TEST(signed_and_cut_or_changed_anywhere),
      TEST(a_forged_entry_is_refused),
      TEST(files_that_are_not_trusted),
      TEST(borrowed_rights_use_no_bundle),
      TEST(a_child_goes_on),
      TEST(counters_are_summed),
  };
  return cmocka_run_group_tests_name("bundle", tests, NULL, NULL);
}
