// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_forms.h: parts of the programs that generate_forms.c describes.
#ifndef QUERN_CONFORMANCE_RANDOM_GENERATE_FORMS_H_
#define QUERN_CONFORMANCE_RANDOM_GENERATE_FORMS_H_

#include "conformance/random/generator.h"

// A loop: its variable and how often it runs.
typedef struct gen_axis {
  const char* var;
  gen_extent_t extent;
} gen_axis_t;

// An expression and what is known about it: |value| <= mag; off by at most err; while err is 0 a
// multiple of grain, which is a power of two, or 0 if that is not known. Integers: all 0.
typedef struct gen_term {
  const char* text;
  double mag;
  double grain;
  double err;
} gen_term_t;

typedef struct gen_form {
  int64_t budget;  // iterations that are left for the interpreter
  gen_extent_t symbols[qn_generated_max_symbols];
  size_t symbol_count;
} gen_form_t;

// Chooses an extent of at most `max` and of the budget; often the symbol, unless it is NULL.
gen_extent_t gen_form_extent(gen_t* g, gen_form_t* form, const char* symbol, int64_t max);
gen_extent_t gen_form_symbol(gen_t* g, gen_form_t* form, const char* name, int64_t value);
gen_extent_t gen_form_grow(gen_t* g, gen_extent_t extent, int64_t by, int64_t plus);
gen_buffer_t* gen_form_param(gen_t* g, const char* prefix, qn_access_t access, qn_dtype_t dtype,
                             const gen_extent_t* shape, uint32_t rank);
// An input that is read at the axes, in some layout and dtype, as a value of the dtype `sum`. Call
// it before loops are opened.
gen_term_t gen_form_operand(gen_t* g, gen_form_t* form, qn_dtype_t sum, const gen_axis_t* axes,
                            uint32_t count);

// Bounds of a value that `steps` roundings to `dtype` made, of a product, and of a sum of `count`.
gen_term_t gen_form_round(qn_dtype_t dtype, gen_term_t term, double steps);
gen_term_t gen_form_multiply(gen_t* g, qn_dtype_t dtype, gen_term_t a, gen_term_t b);
gen_term_t gen_form_sum(qn_dtype_t dtype, gen_term_t term, int64_t count);

// Stores `value` to a new output over the axes, after a random epilogue.
void gen_form_store(gen_t* g, qn_dtype_t dtype, gen_term_t value, const gen_axis_t* axes,
                    uint32_t count);

// A nest of parallel loops over the axes, in any order.
void gen_form_open(gen_t* g, const gen_axis_t* axes, uint32_t count);
// The same, but some loops begin at 1 to 3, even if that is beyond their end.
void gen_form_open_part(gen_t* g, const gen_axis_t* axes, uint32_t count);
void gen_form_close(gen_t* g, uint32_t count);

// ---- generate_products.c
void gen_product(gen_t* g, gen_form_t* form);
void gen_convolution(gen_t* g, gen_form_t* form);
void gen_attention(gen_t* g, gen_form_t* form);

// ---- generate_memory.c: sums along an axis, transposes, scans, rows that are normalised
void gen_memory(gen_t* g, gen_form_t* form);

// ---- generate_ranges.c: ragged batches, triangles, guarded steps, several reductions of a column
void gen_ranges(gen_t* g, gen_form_t* form);

#endif  // QUERN_CONFORMANCE_RANDOM_GENERATE_FORMS_H_
