// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/elements.h: prints arrays of any dtype and their elements.
#ifndef QUERN_TOOLS_CLI_RUN_ELEMENTS_H_
#define QUERN_TOOLS_CLI_RUN_ELEMENTS_H_

#include <jansson.h>

#include "conformance/elements.h"
#include "tools/cli/run/npy.h"

// Writes the shortest text that tells the value from its neighbours.
const char* element_text(const npy_array_t* array, size_t index, char out[40]);
// Makes a JSON number or boolean; NaN, infinities and integers beyond 2^63 - 1 are strings.
json_t* element_json(const npy_array_t* array, size_t index);

// Returns the number of elements; 1 for rank 0.
int64_t array_count(const npy_array_t* array);
// Writes "f32[2, 3]".
const char* array_text(const npy_array_t* array, char out[512]);

#endif  // QUERN_TOOLS_CLI_RUN_ELEMENTS_H_
