// SPDX-License-Identifier: Apache-2.0
// tests/unit/tools/test_npy.c: .npy files: round trips, every kind of malformed file, each cut.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/tempdir.h"
#include "tools/cli/run/npy.h"

typedef struct file {
  char bytes[4096];
  size_t size;
} file_t;

// A file of `version` with `header` (padded as NumPy does) and `data_size` bytes of 1.
static file_t file_of(int version, const char* header, size_t data_size) {
  file_t file = {.size = 0};
  size_t prefix = version == 1 ? 10 : 12;
  size_t header_size = strlen(header);
  size_t padded = (header_size + 1 + prefix + 63) / 64 * 64 - prefix;
  memcpy(file.bytes, "\x93NUMPY", 6);
  file.bytes[6] = (char)version;
  file.bytes[8] = (char)(padded & 255);
  file.bytes[9] = (char)(padded >> 8);
  memset(file.bytes + prefix, ' ', padded);
  memcpy(file.bytes + prefix, header, header_size);
  file.bytes[prefix + padded - 1] = '\n';
  memset(file.bytes + prefix + padded, 1, data_size);
  file.size = prefix + padded + data_size;
  return file;
}

// Parses a copy of exactly this size, so that a sanitizer sees reads past the end.
static qn_status_t parse(const char* bytes, size_t size, npy_array_t* out_array) {
  char* copy = malloc(size ? size : 1);
  assert_non_null(copy);
  memcpy(copy, bytes, size);
  qn_status_t status = npy_parse("x.npy", copy, size, out_array);
  free(copy);
  return status;
}

static void expect_error(const file_t* file, qn_status_code_t code, const char* part) {
  npy_array_t array;
  qn_status_t status = parse(file->bytes, file->size, &array);
  assert_false(qn_ok(status));
  if (qn_status_code(status) != code || !strstr(qn_status_message(status), part)) {
    fail_msg("expected code %d with '%s', got %d: %s", (int)code, part, (int)qn_status_code(status),
             qn_status_message(status));
  }
  assert_int_equal(strncmp(qn_status_message(status), "x.npy: ", 7), 0);
  assert_null(array.data);
  qn_status_free(status);
}

#define GOOD "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"

static void test_reads_what_numpy_writes(void** state) {
  (void)state;
  static const char* const headers[] = {
      GOOD,
      "{'descr':'<f4','fortran_order':False,'shape':(2,3)}",
      "{\"shape\": (2, 3,), \"descr\": \"=f4\", \"fortran_order\": False}",
  };
  for (int version = 1; version <= 3; version++) {
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
      file_t file = file_of(version, headers[i], 24);
      npy_array_t array;
      qn_status_t status = parse(file.bytes, file.size, &array);
      assert_int_equal(qn_status_consume(status), QN_STATUS_OK);
      assert_int_equal(array.dtype, QN_DTYPE_F32);
      assert_int_equal(array.rank, 2);
      assert_int_equal(array.shape[0], 2);
      assert_int_equal(array.shape[1], 3);
      assert_int_equal(array.size_bytes, 24);
      assert_int_equal((uintptr_t)array.data % 64, 0);
      assert_memory_equal(array.data, file.bytes + file.size - 24, 24);
      npy_free(&array);
      assert_null(array.data);
    }
  }
}

// Element i of the file is byte i: [i, j, k] of shape (2, 3, 2) is at i + 2 j + 6 k.
static void test_fortran_order(void** state) {
  (void)state;
  file_t file = file_of(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2)}", 12);
  for (size_t i = 0; i < 12; i++) file.bytes[file.size - 12 + i] = (char)i;
  npy_array_t array;
  qn_status_t status = parse(file.bytes, file.size, &array);
  assert_int_equal(qn_status_consume(status), QN_STATUS_OK);
  const uint8_t expected[] = {0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11};
  assert_memory_equal(array.data, expected, 12);
  // To other strides, and back.
  uint8_t memory[12] = {0}, copy[12];
  npy_scatter(&array, (const int64_t[]){6, 1, 3}, memory);
  const uint8_t scattered[] = {0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11};
  assert_memory_equal(memory, scattered, 12);
  memcpy(copy, array.data, 12);
  memset(array.data, 0, 12);
  npy_gather(&array, (const int64_t[]){6, 1, 3}, memory);
  assert_memory_equal(array.data, copy, 12);
  npy_free(&array);
  // Without elements, and of rank 0.
  file = file_of(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3)}", 0);
  assert_int_equal(qn_status_consume(parse(file.bytes, file.size, &array)), QN_STATUS_OK);
  assert_int_equal(array.size_bytes, 0);
  npy_free(&array);
  file = file_of(1, "{'descr': '|u1', 'fortran_order': True, 'shape': ()}", 1);
  assert_int_equal(qn_status_consume(parse(file.bytes, file.size, &array)), QN_STATUS_OK);
  assert_int_equal(*(const uint8_t*)array.data, 1);
  npy_free(&array);
}

static void test_malformed_headers(void** state) {
  (void)state;
  static const struct {
    const char* header;
    qn_status_code_t code;
    const char* part;
  } cases[] = {
      {"'descr'", QN_STATUS_DATA_LOSS, "'{' of the header"},
      {"{descr: '<f4'}", QN_STATUS_DATA_LOSS, "a quoted string"},
      {"{'descr' '<f4'}", QN_STATUS_DATA_LOSS, "':'"},
      {"{'descr': '<f4}", QN_STATUS_DATA_LOSS, "short string"},
      {"{'de\\'scr': '<f4'}", QN_STATUS_DATA_LOSS, "without escapes"},
      {"{'descr': '<f4', 'descr': '<f4'}", QN_STATUS_DATA_LOSS, "once each"},
      {"{'colour': '<f4'}", QN_STATUS_DATA_LOSS, "once each"},
      {"{'descr': '<f4', 'fortran_order': False}", QN_STATUS_DATA_LOSS, "in the header"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", QN_STATUS_DATA_LOSS, "True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 3}", QN_STATUS_DATA_LOSS, "'(' of"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", QN_STATUS_DATA_LOSS,
       "an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}", QN_STATUS_DATA_LOSS,
       "',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
       QN_STATUS_DATA_LOSS, "2^63"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}",
       QN_STATUS_DATA_LOSS, "elements of f32"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 8)}",
       QN_STATUS_INVALID_ARGUMENT, "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': "
       "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
       QN_STATUS_DATA_LOSS, "at most 32"},
      {GOOD " x", QN_STATUS_DATA_LOSS, "end of the header"},
      {"{'descr': '<f4' 'shape': ()}", QN_STATUS_DATA_LOSS, "',' or '}'"},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}", QN_STATUS_UNSUPPORTED,
       "little-endian"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3)}", QN_STATUS_UNSUPPORTED, "'<c8'"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}", QN_STATUS_UNSUPPORTED, "'|O'"},
      {"{'descr': '', 'fortran_order': False, 'shape': (2, 3)}", QN_STATUS_UNSUPPORTED, "''"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", QN_STATUS_DATA_LOSS,
       "a quoted string"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    file_t file = file_of(1, cases[i].header, 24);
    expect_error(&file, cases[i].code, cases[i].part);
  }
}

static void test_malformed_files(void** state) {
  (void)state;
  file_t file = {.size = 0};
  expect_error(&file, QN_STATUS_DATA_LOSS, "magic");
  file = file_of(1, GOOD, 24);
  file.bytes[0] = 'P';
  expect_error(&file, QN_STATUS_DATA_LOSS, "magic");
  file = file_of(4, GOOD, 24);
  expect_error(&file, QN_STATUS_DATA_LOSS, "version");
  file = file_of(1, GOOD, 24);
  file.bytes[9] = 127;
  expect_error(&file, QN_STATUS_DATA_LOSS, "header has");
  file = file_of(2, GOOD, 24);
  file.bytes[11] = 127;
  expect_error(&file, QN_STATUS_DATA_LOSS, "header has");
  file = file_of(1, GOOD, 25);
  expect_error(&file, QN_STATUS_DATA_LOSS, "expected 24 bytes of data, got 25");
  file = file_of(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", 2);
  file.bytes[file.size - 1] = 2;
  expect_error(&file, QN_STATUS_DATA_LOSS, "expected a bool of 0 or 1, got 2");
}

static void test_every_cut_is_an_error(void** state) {
  (void)state;
  for (int version = 1; version <= 2; version++) {
    file_t file = file_of(version, GOOD, 24);
    for (size_t size = 0; size < file.size; size++) {
      file_t cut = file;
      cut.size = size;
      expect_error(&cut, QN_STATUS_DATA_LOSS, "");
    }
  }
}

static void test_round_trips(void** state) {
  (void)state;
  char dir[QN_TEST_PATH_SIZE], path[QN_TEST_PATH_SIZE + 8];
  assert_true(qn_test_tempdir_make(dir));
  (void)snprintf(path, sizeof path, "%s/a.npy", dir);
  static const struct {
    int32_t rank;
    int64_t shape[4];
  } shapes[] = {{0, {0}}, {1, {5}}, {2, {3, 4}}, {3, {2, 0, 4}}, {4, {1, 2, 3, 4}}};
  for (int dtype = 1; dtype < QN_DTYPE_COUNT; dtype++) {
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
      npy_array_t array, again;
      bool is_packed = qn_dtype_size_bits((qn_dtype_t)dtype) == 4;
      if (is_packed && shapes[i].rank < 2) continue;
      qn_status_t status = npy_make((qn_dtype_t)dtype, shapes[i].rank, shapes[i].shape, &array);
      assert_int_equal(qn_status_consume(status), QN_STATUS_OK);
      for (size_t b = 0; b < array.size_bytes; b++)
        ((uint8_t*)array.data)[b] = (uint8_t)(b * 37 & 1);
      status = npy_write(path, array.dtype, array.rank, array.shape, array.data);
      assert_int_equal(qn_status_consume(status), QN_STATUS_OK);
      assert_int_equal(qn_status_consume(npy_read(path, &again)), QN_STATUS_OK);
      // bf16 and the stored dtypes have no form of their own.
      if (dtype == QN_DTYPE_BF16) {
        assert_int_equal(again.dtype, QN_DTYPE_U16);
        again.dtype = QN_DTYPE_BF16;
      }
      if (dtype >= QN_DTYPE_F8E4M3FN) {
        assert_int_equal(again.dtype, QN_DTYPE_U8);
        again.dtype = (qn_dtype_t)dtype;
        if (is_packed) again.shape[again.rank - 1] *= 2;
      }
      assert_int_equal(again.dtype, dtype);
      assert_int_equal(again.rank, shapes[i].rank);
      assert_memory_equal(again.shape, array.shape, sizeof array.shape);
      assert_int_equal(again.size_bytes, array.size_bytes);
      assert_memory_equal(again.data, array.data, array.size_bytes);
      npy_free(&array);
      npy_free(&again);
    }
  }
  assert_int_equal(unlink(path), 0);
  qn_test_tempdir_remove(dir);
}

static void test_file_is_as_numpy_writes_it(void** state) {
  (void)state;
  char dir[QN_TEST_PATH_SIZE], path[QN_TEST_PATH_SIZE + 8], bytes[256];
  assert_true(qn_test_tempdir_make(dir));
  (void)snprintf(path, sizeof path, "%s/a.npy", dir);
  static const float data[] = {1.0f, 2.0f, 3.0f};
  static const int64_t shape[] = {3};
  assert_int_equal(qn_status_consume(npy_write(path, QN_DTYPE_F32, 1, shape, data)), QN_STATUS_OK);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  size_t size = fread(bytes, 1, sizeof bytes, file);
  (void)fclose(file);
  assert_int_equal(size, 128 + sizeof data);
  static const char start[] =
      "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } ";
  assert_memory_equal(bytes, start, sizeof start - 1);
  assert_int_equal(bytes[127], '\n');
  assert_memory_equal(bytes + 128, data, sizeof data);
  qn_test_tempdir_remove(dir);
}

static void test_arrays_that_cannot_be(void** state) {
  (void)state;
  npy_array_t array;
  static const int64_t negative[] = {2, -1}, huge[] = {INT64_MAX, 2};
  int64_t many[NPY_MAX_RANK + 1] = {0};
  assert_int_equal(qn_status_consume(npy_make(QN_DTYPE_F32, 2, negative, &array)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(npy_make(QN_DTYPE_F32, 2, huge, &array)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(npy_make(QN_DTYPE_F32, NPY_MAX_RANK + 1, many, &array)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(npy_make(QN_DTYPE_F32, -1, many, &array)),
                   QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(npy_make(QN_DTYPE_F32, 1, many, &array)), QN_STATUS_OK);
  assert_non_null(array.data);
  npy_free(&array);
}

static void test_files_that_cannot_be_opened(void** state) {
  (void)state;
  npy_array_t array;
  int64_t shape[] = {1};
  char data[8] = {0};
  assert_int_equal(qn_status_consume(npy_read("/nonexistent/x.npy", &array)), QN_STATUS_NOT_FOUND);
  assert_int_equal(qn_status_consume(npy_read("/", &array)), QN_STATUS_INVALID_ARGUMENT);
  assert_int_equal(qn_status_consume(npy_write("/nonexistent/x.npy", QN_DTYPE_F32, 1, shape, data)),
                   QN_STATUS_NOT_FOUND);
  assert_int_equal(qn_status_consume(npy_write("/dev/full", QN_DTYPE_F32, 1, shape, data)),
                   QN_STATUS_IO);
  assert_int_equal(qn_status_consume(npy_write("x.npy", QN_DTYPE_NONE, 1, shape, data)),
                   QN_STATUS_UNSUPPORTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads_what_numpy_writes),
      cmocka_unit_test(test_fortran_order),
      cmocka_unit_test(test_malformed_headers),
      cmocka_unit_test(test_malformed_files),
      cmocka_unit_test(test_every_cut_is_an_error),
      cmocka_unit_test(test_round_trips),
      cmocka_unit_test(test_file_is_as_numpy_writes_it),
      cmocka_unit_test(test_arrays_that_cannot_be),
      cmocka_unit_test(test_files_that_cannot_be_opened),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
