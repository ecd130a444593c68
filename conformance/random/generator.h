// SPDX-License-Identifier: Apache-2.0
// conformance/random/generator.h: the state of the generator, shared by its files.
//
// Text of expressions comes from a pool that lives as long as the generator.
#ifndef QUERN_CONFORMANCE_RANDOM_GENERATOR_H_
#define QUERN_CONFORMANCE_RANDOM_GENERATOR_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "conformance/elements.h"
#include "conformance/random/generate.h"

#define GEN_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

// Dtypes that operators take.
static inline bool gen_is_float(qn_dtype_t dtype) {
  return conf_is_float(dtype) && !conf_is_stored(dtype);
}
static inline bool gen_is_int(qn_dtype_t dtype) {
  return dtype >= QN_DTYPE_I8 && dtype <= QN_DTYPE_U64;
}
static inline bool gen_is_unsigned(qn_dtype_t dtype) {
  return dtype >= QN_DTYPE_U8 && dtype <= QN_DTYPE_U64;
}

// A text that grows. Zero-initialised: empty. `data` is owned: free.
typedef struct gen_out {
  char* data;
  size_t size;
  size_t capacity;
} gen_out_t;
void gen_out_add(gen_out_t* out, const char* format, ...) QN_PRINTF(2, 3);

enum { gen_max_scalars = 64, gen_max_buffers = 32, gen_pool_bytes = 1 << 20 };
enum { gen_max_columns = 40 };  // the largest m

// An expression with what is known about its value. For floats: |value| <= mag, and its error is at
// most err, both in real numbers. err 0: exact, the same in every implementation.
typedef struct gen_value {
  const char* text;
  qn_dtype_t dtype;
  double mag;
  double err;
} gen_value_t;

// A variable in scope. Loop variables run over 0..extent of one of the named extents.
typedef struct gen_scalar {
  char name[16];
  qn_dtype_t dtype;
  double mag;
  double err;
  const char* extent;  // text of the end of its loop (which begins at 0), or NULL
} gen_scalar_t;

typedef struct gen_extent {
  const char* text;  // "n", "8"
  int64_t value;
} gen_extent_t;

typedef struct gen_buffer {
  char name[16];
  qn_dtype_t dtype;
  uint32_t rank;
  gen_extent_t shape[qn_generated_max_rank];
  double mag;
  double err;
  bool is_readable;     // holds values, and nobody writes to it at the moment
  bool is_writable;     // a parameter or workspace that a launch may write
  int param;            // number of the parameter, or -1
  const char* strides;  // text after the shape, or NULL
} gen_buffer_t;

typedef struct gen {
  uint64_t state;
  char* pool;
  size_t pool_used;
  gen_out_t out;
  gen_out_t callees;  // functions with a value, for the end of the text
  uint32_t callee_count;
  int indent;
  gen_scalar_t scalars[gen_max_scalars];
  size_t scalar_count;
  gen_buffer_t buffers[gen_max_buffers];
  size_t buffer_count;
  uint32_t name_count;
  gen_extent_t extents[8];  // of n and m, constants, and k where an equation gives it
  size_t extent_count;
  bool allows_faults;
  gen_extent_t symbols[qn_generated_max_symbols];
  size_t symbol_count;
  qn_generated_t* result;
} gen_t;

// ---- generate_expr.c
uint32_t gen_below(gen_t* g, uint32_t limit);  // uniform in 0..limit
static inline bool gen_chance(gen_t* g, uint32_t percent) {
  return gen_below(g, 100) < percent;
}
const char* gen_text(gen_t* g, const char* format, ...) QN_PRINTF(2, 3);
qn_dtype_t gen_dtype(gen_t* g);         // that operators take
qn_dtype_t gen_buffer_dtype(gen_t* g);  // that stores take
qn_dtype_t gen_packed_dtype(gen_t* g);  // of 4 bits
double gen_eps(qn_dtype_t dtype);
gen_value_t gen_literal(gen_t* g, qn_dtype_t dtype);
gen_value_t gen_expr(gen_t* g, qn_dtype_t dtype, int depth);
// An i64 expression in 0..extent.
const char* gen_index(gen_t* g, gen_extent_t extent, int depth);
gen_value_t gen_load(gen_t* g, const gen_buffer_t* buffer, int depth);
// Limits magnitude and error so that further arithmetic stays useful.
gen_value_t gen_tame(gen_t* g, gen_value_t value);
// A value that is the same everywhere up to order: a reduction over 0..extent.
gen_value_t gen_reduction(gen_t* g, qn_dtype_t dtype, int depth);
gen_value_t gen_condition(gen_t* g, int depth);
gen_scalar_t* gen_add_scalar(gen_t* g, const char* prefix, qn_dtype_t dtype, double mag,
                             double err);

// ---- generate_call.c: a call of a function with a value. `dtype` is a number's.
gen_value_t gen_call(gen_t* g, qn_dtype_t dtype, int depth);

// ---- generate_several.c
void gen_several(gen_t* g);

// ---- generate_stmt.c
void gen_line(gen_t* g, const char* format, ...) QN_PRINTF(2, 3);
void gen_open(gen_t* g, const char* head);  // "HEAD {"
void gen_close(gen_t* g);
gen_buffer_t* gen_add_buffer(gen_t* g, const char* prefix, qn_dtype_t dtype);
const char* gen_shape_text(gen_t* g, const gen_buffer_t* buffer);  // "f32[n, 8]"
// Updates the bounds of a buffer for a store of `value`.
void gen_absorb(gen_buffer_t* buffer, gen_value_t value);
gen_extent_t gen_constant_extent(gen_t* g, uint32_t value);
extern const char* const gen_loop_words[3];  // of loops that may stand in a body
// Generate statements of a body. Their declarations stay in scope until the counts are restored.
void gen_let(gen_t* g);
void gen_statements(gen_t* g, uint32_t count);
// Stores to `target` at `where`, perhaps under a condition. `is_fresh`: every element must be
// written.
void gen_store(gen_t* g, gen_buffer_t* target, const char* where, bool is_fresh);

// ---- generate_order.c: a launch whose blocks share memory in order, and which writes all of
// `target`, numbers of rank 1. It stands in no loop.
void gen_order_launch(gen_t* g, gen_buffer_t* target, bool allows_waits);

// Generates a launch that writes `target`, all of it if no launch has written it yet.
void gen_launch(gen_t* g, gen_buffer_t* target, const qn_generate_options_t* options);

// ---- generate_forms.c: a body and the parameters that it needs.
void gen_form_module(gen_t* g, const qn_generate_options_t* options);

#endif  // QUERN_CONFORMANCE_RANDOM_GENERATOR_H_
