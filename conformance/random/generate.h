// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate.h: random valid modules with arguments, for comparing
// implementations.
//
// A module is made from a seed alone: one function `f` with buffers of random dtypes and symbolic
// shapes, and a few launches over them, some in loops: element-wise code, reductions, products,
// scans, masks, local arrays, views, tables, atomics, vector and unroll loops, blocks of threads
// with shared memory and barriers, blocks that see each other's memory in order, extents that are
// equations of symbols. It never leaves what the language specifies: indices are clamped
// or wrapped into range, divisors are odd or at least one, a result never depends on the order of
// iterations of a concurrent loop.
//
// Integers and bools must come out bit for bit. For floats the generator carries, with every value
// that it writes down, a bound of its magnitude and of the error that rounding may have put into it
// (each operation may be off by two units in the last place, transcendental ones by eight); what
// would grow beyond use is clamped. No control flow, comparison or conversion to an integer depends
// on a value that is not exact. Each buffer's `tolerance` is four times that bound: two
// implementations that round each operation, or fuse and reorder sums, differ by less.
//
// A seed means one module as long as one compiler builds this: C leaves open in which order
// arguments are evaluated. Thread rule: pure functions of the seed.
#ifndef QUERN_CONFORMANCE_RANDOM_GENERATE_H_
#define QUERN_CONFORMANCE_RANDOM_GENERATE_H_

#include "quern/ir.h"

enum { qn_generated_max_params = 20, qn_generated_max_rank = 4, qn_generated_max_symbols = 10 };

typedef struct qn_generated_param {
  bool is_buffer;
  qn_dtype_t dtype;
  qn_access_t access;
  uint32_t rank;
  int64_t shape[qn_generated_max_rank];
  bool has_strides;
  int64_t strides[qn_generated_max_rank];  // in elements
  size_t element_count;
  uint64_t scalar_bits;  // scalars
  double tolerance;      // absolute; floats that are written
} qn_generated_param_t;

typedef struct qn_generated {
  uint64_t seed;
  char* text;  // terminated
  size_t text_size;
  qn_module_t* module;
  bool is_fast;      // the function is marked `fast`
  bool has_threads;  // it has thread loops
  bool is_form;
  size_t param_count;
  qn_generated_param_t params[qn_generated_max_params];
  int64_t symbols[qn_generated_max_symbols];  // in the order of the function's symbols
} qn_generated_t;

// What a module may contain.
typedef struct qn_generate_options {
  uint32_t size;  // 1: tiny ... 10: several launches
  bool allows_fast;
  bool allows_threads;
  bool allows_waits;   // blocks may wait for others, which not all drivers let come to an end
  bool allows_faults;  // some indices may leave their buffer, some divisors may be zero
  // One program of those that mappings look for (generate_forms.c); only `size` and `allows_fast`
  // matter.
  bool is_form;
} qn_generate_options_t;

// False when the text that was made is refused: then `module` is NULL and `*out_error` is the
// status of the parser, owned by the caller. Call qn_generated_release in every case.
bool qn_generate(uint64_t seed, const qn_generate_options_t* options, qn_generated_t* out,
                 qn_status_t* out_error);
void qn_generated_release(qn_generated_t* generated);

// The memory of one call: per parameter a buffer filled from the seed, or NULL for a scalar.
// In half of the modules of forms a buffer ends where a page begins that cannot be touched.
typedef struct qn_generated_args {
  void* buffers[qn_generated_max_params];
  void* pages[qn_generated_max_params];  // what holds the buffers
  size_t page_bytes[qn_generated_max_params];
  uint64_t params[qn_generated_max_params];  // an address, or the bits of a scalar
} qn_generated_args_t;
void qn_generated_args_init(const qn_generated_t* generated, qn_generated_args_t* out_args);
void qn_generated_args_deinit(qn_generated_args_t* args);

// Compares what two calls wrote. With `is_exact` floats must agree bit for bit too (any NaN equals
// any NaN). On false `message` says where.
bool qn_generated_compare(const qn_generated_t* generated, const qn_generated_args_t* expected,
                          const qn_generated_args_t* actual, bool is_exact, char* message,
                          size_t message_size);

#endif  // QUERN_CONFORMANCE_RANDOM_GENERATE_H_
