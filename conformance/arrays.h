// SPDX-License-Identifier: Apache-2.0
// conformance/arrays.h: arguments of a call as text, arrays that are filled by recipe, and their
// comparison.
//
// Arguments: items separated by blanks, one per parameter: a number for a scalar, else
//   FILL:EXTENTSxEXTENTS[/STRIDE,STRIDE][@BYTES]
// with the fills of the table in arrays.c, extents in decimal (none for rank 0), strides in
// elements, and the offset of the tensor in its memory. The dtype is that of the parameter.
// Contents depend on the position of the argument alone.
#ifndef QUERN_CONFORMANCE_ARRAYS_H_
#define QUERN_CONFORMANCE_ARRAYS_H_

#include "conformance/elements.h"
#include "conformance/suite.h"

enum { CONF_MAX_RANK = 8, CONF_MAX_ARGS = 16 };

typedef struct conf_array {
  qn_dtype_t dtype;
  int32_t rank;
  int64_t shape[CONF_MAX_RANK];
  int64_t strides[CONF_MAX_RANK];
  bool has_strides;
  size_t offset_bytes;   // of the first element in the memory
  size_t element_count;  // of the storage after the offset, gaps included
  size_t size_bytes;     // of the memory
  uint8_t* host;         // owned by the case
} conf_array_t;

typedef struct conf_args {
  size_t count;
  bool is_array[CONF_MAX_ARGS];
  conf_array_t arrays[CONF_MAX_ARGS];
  qn_value_t scalars[CONF_MAX_ARGS];
} conf_args_t;

// Reads arguments for function `index` of a module and fills the arrays. A syntax error fails the
// case. `text` ends at ';' or its end.
bool conf_args_make(conf_t* c, const qn_module_t* module, size_t index, const char* text,
                    conf_args_t* out);

// Whether the device may take a value for zero: it is denormal, and the target flushes those.
bool conf_is_flushed(const conf_t* c, qn_dtype_t dtype, double value);

// Compares storage, gaps included; fails the case naming argument and element. Floats may be
// `tolerance` off, relative to the larger of 1 and their magnitude.
bool conf_array_compare(conf_t* c, const char* what, const conf_array_t* expected,
                        const uint8_t* got, double tolerance);

#endif  // QUERN_CONFORMANCE_ARRAYS_H_
