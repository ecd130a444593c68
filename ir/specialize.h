// SPDX-License-Identifier: Apache-2.0
// ir/specialize.h: fixes symbols and integer scalars of a body that is not sealed yet.
//
// The public calls are qn_module_specialize, qn_build_set and the member `set` of
// qn_parse_options_t. Read next: specialize.c.
#ifndef QUERN_IR_SPECIALIZE_H_
#define QUERN_IR_SPECIALIZE_H_

#include "ir/ir.h"

// A value for a symbol or an integer scalar.
typedef struct qn__constant {
  const char* name;  // "d", or "attention.d" for one function; borrowed
  int64_t value;
} qn__constant_t;

// Values in a growing array. Zero-initialised: empty.
typedef struct qn__constants {
  qn__constant_t* items;
  size_t count;
  size_t capacity;
} qn__constants_t;

// Adds a value; `arena` gets a copy of the name. Errors: INVALID_ARGUMENT (a name that is set
// twice), OUT_OF_MEMORY.
qn_status_t qn__constants_add(qn__constants_t* constants, qn__arena_t* arena, qn_str_t name,
                              int64_t value);
// Adds the values of "d=128,attention.k=4". NULL: none. Errors: those of qn__constants_add,
// INVALID_ARGUMENT (anything else than names, whole numbers and commas).
qn_status_t qn__constants_parse(qn__constants_t* constants, qn__arena_t* arena, const char* text);
void qn__constants_deinit(qn__constants_t* constants, qn_allocator_t allocator);

// Fixes the symbols and scalars of `constants`, and puts literals in place of these and of the
// scalars that the text has fixed. The body, which need not be verified, must be dropped after an
// error. Errors: NOT_FOUND (a name that no function has), INVALID_ARGUMENT (a value that the symbol
// or scalar cannot have).
qn_status_t qn__body_specialize(qn__ir_body_t* body, const qn__constants_t* constants);

// Returns whether a scalar of this dtype can be fixed to the value. Values of u64 end at 2^63 - 1.
bool qn__constant_fits(qn_dtype_t dtype, int64_t value);

#endif  // QUERN_IR_SPECIALIZE_H_
