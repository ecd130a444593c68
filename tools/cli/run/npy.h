// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/npy.h: .npy files (NumPy format 1.0 and 2.0).
//
// Little-endian. Arrays in Fortran order are read, too; all are in C order in memory and when they
// are written. NumPy has neither bf16 nor numbers of 8 and 4 bits: such an array is
// written as unsigned integers of the same size, packed ones as their bytes, and value_make
// (values.h) takes those for it. Any bytes are safe to read.
#ifndef QUERN_TOOLS_CLI_RUN_NPY_H_
#define QUERN_TOOLS_CLI_RUN_NPY_H_

#include "quern/ir.h"
#include "quern/status.h"

#define NPY_MAX_RANK 32

typedef struct npy_array {
  qn_dtype_t dtype;
  int32_t rank;
  int64_t shape[NPY_MAX_RANK];
  size_t size_bytes;
  void* data;  // owned, aligned to 64 bytes; not NULL, even when empty
} npy_array_t;

// Parses the bytes of a file; `name` is for messages. Errors: DATA_LOSS (truncated, foreign or
// damaged, with the offset and the expectation), UNSUPPORTED (big-endian, other dtypes),
// OUT_OF_MEMORY.
qn_status_t npy_parse(const char* name, const void* bytes, size_t size, npy_array_t* out_array);
// Reads a file. Errors: those of npy_parse, NOT_FOUND, INVALID_ARGUMENT (a directory), IO.
qn_status_t npy_read(const char* path, npy_array_t* out_array);
// Writes a file of `dtype`. Errors: IO, UNSUPPORTED.
qn_status_t npy_write(const char* path, qn_dtype_t dtype, int32_t rank, const int64_t* shape,
                      const void* data);
// Makes an array with undefined contents. Errors: INVALID_ARGUMENT (negative or overflowing
// extents, rank), OUT_OF_MEMORY.
qn_status_t npy_make(qn_dtype_t dtype, int32_t rank, const int64_t* shape, npy_array_t* out_array);
void npy_free(npy_array_t* array);
// Reads the elements of an array from memory with these strides, in elements, and writes them
// there. Not for dtypes of 4 bits.
void npy_gather(npy_array_t* array, const int64_t* strides, const void* from);
void npy_scatter(const npy_array_t* array, const int64_t* strides, void* to);

#endif  // QUERN_TOOLS_CLI_RUN_NPY_H_
