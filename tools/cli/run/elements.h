// tools/cli/run/elements.h: reads, writes and prints single elements of arrays of any dtype.
//
// Conversions to f16 and bf16 round to nearest, ties to even.
#ifndef QUERN_TOOLS_CLI_RUN_ELEMENTS_H_
#define QUERN_TOOLS_CLI_RUN_ELEMENTS_H_

#include <jansson.h>

#include "tools/cli/run/npy.h"

bool dtype_is_float(qn_dtype_t dtype);
// Returns the bits of a float dtype's significand, the hidden one included: 24 for f32.
int dtype_precision(qn_dtype_t dtype);

// Returns element `index` in row-major order, as f64 (exact but for integers beyond 2^53).
double element_get(const npy_array_t* array, int64_t index);
void element_set_float(npy_array_t* array, int64_t index, double value);
// Wraps to the dtype's width; bool takes the lowest bit.
void element_set_int(npy_array_t* array, int64_t index, uint64_t value);

// Writes the shortest text that tells the value from its neighbours.
const char* element_text(const npy_array_t* array, int64_t index, char out[40]);
// Makes a JSON number or boolean; NaN, infinities and integers beyond 2^63 - 1 are strings.
json_t* element_json(const npy_array_t* array, int64_t index);

// Returns the number of elements; 1 for rank 0.
int64_t array_count(const npy_array_t* array);
// Writes "f32[2, 3]".
const char* array_text(const npy_array_t* array, char out[512]);

#endif  // QUERN_TOOLS_CLI_RUN_ELEMENTS_H_
