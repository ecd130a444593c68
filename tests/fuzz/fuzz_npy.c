// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_npy.c: reads arbitrary bytes as a .npy file. The size in bytes must be that of
// dtype and shape.
// sources: tools/cli/run/npy.c tools/cli/file.c
#include "tools/cli/run/npy.h"

#include <stdint.h>
#include <stdlib.h>

#include "quern/ir.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  npy_array_t array;
  qn_status_t status = npy_parse("x.npy", data, size, &array);
  if (!qn_ok(status)) {
    if (array.data || qn_status_message(status)[0] == '\0') abort();
    qn_status_free(status);
    return 0;
  }
  size_t expected = qn_dtype_size_bytes(array.dtype);
  if (expected == 0 || array.rank < 0 || array.rank > NPY_MAX_RANK) abort();
  for (int32_t d = 0; d < array.rank; d++) {
    if (array.shape[d] < 0) abort();
    expected *= (size_t)array.shape[d];
  }
  if (array.size_bytes != expected || array.size_bytes > size || !array.data) abort();
  npy_free(&array);
  return 0;
}
