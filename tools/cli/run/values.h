// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/values.h: the values of --arg: numbers, files and generated arrays.
//
//   2  -1.5  1e-3  nan  inf  true  false     a scalar
//   FILE.npy                                 an array from a file
//   zeros:f32[2,3]  ones:  iota:             a generated array
//   rand:f32[2,3]:SEED                       seeded; equal on every machine (values.c: the formula)
#ifndef QUERN_TOOLS_CLI_RUN_VALUES_H_
#define QUERN_TOOLS_CLI_RUN_VALUES_H_

#include "tools/cli/run/npy.h"

typedef enum value_kind {
  VALUE_INT,
  VALUE_FLOAT,
  VALUE_BOOL,
  VALUE_UINT,  // beyond 2^63 - 1
  VALUE_FILE,
  VALUE_ZEROS,
  VALUE_ONES,
  VALUE_IOTA,
  VALUE_RAND,
} value_kind_t;

typedef struct value_spec {
  value_kind_t kind;
  int64_t int_value;  // INT, BOOL; of UINT the bits
  double float_value;
  const char* path;  // FILE; borrowed from the text
  qn_dtype_t dtype;  // generated arrays
  int32_t rank;
  int64_t shape[NPY_MAX_RANK];
  uint64_t seed;
} value_spec_t;

// Reads the text alone and touches no file. Errors: INVALID_ARGUMENT with the forms.
qn_status_t value_parse(const char* text, value_spec_t* out_spec);
bool value_is_array(const value_spec_t* spec);
// Returns the value of a spec that is no array.
qn_value_t value_scalar(const value_spec_t* spec);
// Makes the array of a spec for which value_is_array holds. `wanted` is the parameter's dtype: if
// it is bf16, an array of u16 from a file becomes bf16, which .npy files lack. Errors: those of
// npy_read and npy_make.
qn_status_t value_make(const value_spec_t* spec, qn_dtype_t wanted, npy_array_t* out_array);

#endif  // QUERN_TOOLS_CLI_RUN_VALUES_H_
