// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_safetensors.c: every length and offset of a file is checked.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "serve/bert/safetensors.h"
#include "tests/support/must.h"

// Makes a file of a header and zeros in memory of its exact size. Owned: free.
static char* make(const char* header, size_t data_bytes, size_t* out_size) {
  const size_t header_bytes = strlen(header);
  *out_size = 8 + header_bytes + data_bytes;
  char* file = calloc(1, *out_size);
  assert_non_null(file);
  for (int i = 0; i < 8; ++i) file[i] = (char)(header_bytes >> (8 * i) & 255u);
  memcpy(file + 8, header, header_bytes);
  return file;
}

static void test_tensors(void** state) {
  (void)state;
  size_t size;
  char* bytes = make(
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
      "\"__metadata__\":{\"x\":\"y\"},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]},"
      "\"c\":{\"dtype\":\"F64\",\"shape\":[0,9],\"data_offsets\":[32,32]}}",
      32, &size);
  safetensors_t* file;
  must(safetensors_read("f", bytes, size, &file));
  safetensors_tensor_t tensor;
  assert_true(safetensors_get(file, "a", &tensor));
  assert_string_equal(tensor.dtype, "F32");
  assert_int_equal(tensor.rank, 2);
  assert_int_equal(tensor.shape[1], 3);
  assert_int_equal(tensor.size_bytes, 24);
  assert_ptr_equal(tensor.data, bytes + size - 24);
  assert_true(safetensors_get(file, "b", &tensor));
  assert_int_equal(tensor.rank, 0);
  assert_true(safetensors_get(file, "c", &tensor));
  assert_int_equal(tensor.size_bytes, 0);
  assert_false(safetensors_get(file, "d", &tensor));
  assert_false(safetensors_get(file, "__metadata__", &tensor));
  size_t count = 0;
  for (const char* name = safetensors_next(file, NULL); name; name = safetensors_next(file, name)) {
    assert_true(strlen(name) == 1);
    ++count;
  }
  assert_int_equal(count, 3);
  safetensors_close(file);
  free(bytes);
}

static void test_malformed(void** state) {
  (void)state;
#define TENSOR(dtype, shape, offsets) \
  "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
  static const struct {
    const char* header;
    const char* part;
  } cases[] = {
      {"", "header: "},
      {"[]", "the header is no JSON object"},
      {"{\"t\":{}}", "tensor \"t\": expected dtype, shape and data_offsets"},
      {"{\"t\":7}", "expected dtype, shape and data_offsets"},
      {"{\"t\":{},\"t\":{}}", "header: "},
      {TENSOR("\"F31\"", "[4]", "[0,16]"), "unknown dtype"},
      {TENSOR("\"F32\"", "[-4]", "[0,16]"), "an extent that is no integer from 0"},
      {TENSOR("\"F32\"", "[4.0]", "[0,16]"), "an extent that is no integer from 0"},
      {TENSOR("\"F32\"", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), "more than 8 dimensions"},
      {TENSOR("\"F32\"", "[4611686018427387904,4]", "[0,16]"), "a shape that no memory can hold"},
      {TENSOR("\"F32\"", "[4]", "[0]"), "data_offsets are not a pair"},
      {TENSOR("\"F32\"", "[4]", "[0,16,16]"), "data_offsets are not a pair"},
      {TENSOR("\"F32\"", "[4]", "[16,0]"), "data_offsets are not a pair"},
      {TENSOR("\"F32\"", "[4]", "[-16,0]"), "data_offsets are not a pair"},
      {TENSOR("\"F32\"", "[4]", "[0,\"16\"]"), "data_offsets are not a pair"},
      {TENSOR("\"F32\"", "[4]", "[1,17]"), "data beyond the end of the file"},
      {TENSOR("\"F32\"", "[4]", "[0,9223372036854775807]"), "data beyond the end of the file"},
      {TENSOR("\"F32\"", "[4]", "[0,12]"), "data_offsets disagree with dtype and shape"},
      {TENSOR("\"F32\"", "[0]", "[0,4]"), "data_offsets disagree with dtype and shape"},
  };
#undef TENSOR
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    size_t size;
    char* bytes = make(cases[i].header, 16, &size);
    safetensors_t* file;
    must_fail(safetensors_read("f", bytes, size, &file), QN_STATUS_DATA_LOSS, cases[i].part);
    assert_null(file);
    free(bytes);
  }
}

// Cut at any byte, a file is refused: no byte beyond its end is read.
static void test_cut(void** state) {
  (void)state;
  size_t size;
  char* bytes = make("{\"t\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3, &size);
  for (size_t cut = 0; cut < size; ++cut) {
    char* part = malloc(cut > 0 ? cut : 1);
    assert_non_null(part);
    memcpy(part, bytes, cut);
    safetensors_t* file;
    must_fail(safetensors_read("f", part, cut, &file), QN_STATUS_DATA_LOSS, "f: ");
    free(part);
  }
  memset(bytes, 255, 8);  // a header of 2^64 - 1 bytes
  safetensors_t* file;
  must_fail(safetensors_read("f", bytes, size, &file), QN_STATUS_DATA_LOSS, "is it safetensors?");
  free(bytes);
}

static void test_open(void** state) {
  (void)state;
  safetensors_t* file;
  must_fail(safetensors_open("/nonexistent/x", &file), QN_STATUS_NOT_FOUND, "/nonexistent/x");
  must_fail(safetensors_open("/tmp", &file), QN_STATUS_IO, "/tmp: not a regular file");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensors),
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_cut),
      cmocka_unit_test(test_open),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
