// SPDX-License-Identifier: Apache-2.0
// golden.c: reads the three arrays and checks that they fit together.
#include "golden.h"

#include <stdio.h>
#include <string.h>

#include "serve/bert/try.h"

// Reads one array of the dtype and rank. It must have the extents of `shape` that are not negative;
// the others are filled in.
static qn_status_t read_array(const char* directory, const char* name, qn_dtype_t dtype,
                              int32_t rank, int64_t* shape, npy_array_t* out_array) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the path of the golden files is too long");
  }
  BERT_TRY(npy_read(path, out_array));
  if (out_array->dtype != dtype || out_array->rank != rank) {
    return qn_status_make(QN_STATUS_VALUE_ERROR, "%s: expected %s of rank %d, found %s of rank %d",
                          path, qn_dtype_text(dtype), (int)rank, qn_dtype_text(out_array->dtype),
                          (int)out_array->rank);
  }
  for (int32_t i = 0; i < rank; ++i) {
    if (shape[i] >= 0 && shape[i] != out_array->shape[i]) {
      return qn_status_make(QN_STATUS_VALUE_ERROR, "%s: expected %lld as extent %d, found %lld",
                            path, (long long)shape[i], (int)i, (long long)out_array->shape[i]);
    }
    shape[i] = out_array->shape[i];
  }
  return QN_OK;
}

static qn_status_t read_all(const char* directory, int64_t width, golden_t* golden) {
  int64_t shape[2] = {-1, -1};
  BERT_TRY(read_array(directory, "ids.npy", QN_DTYPE_I64, 2, shape, &golden->arrays[0]));
  golden->count = shape[0];
  golden->longest = shape[1];
  golden->width = width;
  BERT_TRY(read_array(directory, "lengths.npy", QN_DTYPE_I64, 1, shape, &golden->arrays[1]));
  shape[1] = width;
  BERT_TRY(read_array(directory, "embeddings.npy", QN_DTYPE_F32, 2, shape, &golden->arrays[2]));
  golden->ids = golden->arrays[0].data;
  golden->lengths = golden->arrays[1].data;
  golden->embeddings = golden->arrays[2].data;
  if (golden->count == 0) {
    return qn_status_make(QN_STATUS_VALUE_ERROR, "%s: no sentences", directory);
  }
  for (int64_t i = 0; i < golden->count; ++i) {
    if (golden->lengths[i] < 1 || golden->lengths[i] > golden->longest) {
      return qn_status_make(
          QN_STATUS_VALUE_ERROR, "%s: sentence %lld has %lld tokens, expected 1 to %lld", directory,
          (long long)i + 1, (long long)golden->lengths[i], (long long)golden->longest);
    }
  }
  return QN_OK;
}

qn_status_t golden_load(const char* directory, int64_t width, golden_t* out_golden) {
  memset(out_golden, 0, sizeof *out_golden);
  qn_status_t status = read_all(directory, width, out_golden);
  if (!qn_ok(status)) {
    golden_free(out_golden);
  }
  return status;
}

void golden_free(golden_t* golden) {
  for (size_t i = 0; i < sizeof golden->arrays / sizeof golden->arrays[0]; ++i) {
    npy_free(&golden->arrays[i]);
  }
  memset(golden, 0, sizeof *golden);
}
