// SPDX-License-Identifier: Apache-2.0
// conformance/elements.h: single elements of arrays of any dtype. Thread rule: any thread.
//
// It needs no context of a run: `quern run` reads and writes its arrays with it as well.
#ifndef QUERN_CONFORMANCE_ELEMENTS_H_
#define QUERN_CONFORMANCE_ELEMENTS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern/ir.h"

// Returns the bits of a float dtype's significand, the hidden one included: 24 for f32. 0 for
// integers and bool.
int conf_precision(qn_dtype_t dtype);
bool conf_is_float(qn_dtype_t dtype);
// Returns whether no operator takes the dtype.
bool conf_is_stored(qn_dtype_t dtype);
// Returns whether two elements share a byte, the first one in its lower half.
bool conf_is_packed(qn_dtype_t dtype);
size_t conf_size_bytes(qn_dtype_t dtype, size_t count);
bool conf_is_signed(qn_dtype_t dtype);  // of integers

// The bits of element `index`, extended with zeros.
uint64_t conf_bits(qn_dtype_t dtype, const void* data, size_t index);
void conf_bits_set(qn_dtype_t dtype, void* data, size_t index, uint64_t bits);
// An integer or boolean element; a u64 beyond 2^63 - 1 wraps.
int64_t conf_integer(qn_dtype_t dtype, const void* data, size_t index);

// Returns an element as a double; 64-bit integers beyond 2^53 are rounded.
double conf_element(qn_dtype_t dtype, const void* data, size_t index);
// Stores the nearest value of a float dtype, ties to even. Integers are cut off towards zero; any
// number but 0 is true.
void conf_element_set(qn_dtype_t dtype, void* data, size_t index, double value);

#endif  // QUERN_CONFORMANCE_ELEMENTS_H_
