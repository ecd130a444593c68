// SPDX-License-Identifier: Apache-2.0
// jit/call/plan.h: the checks of a function's calls, derived once from its signature, so that a
// call is checked by a short loop over constants.
//
// Two readers share a plan. The checks of a call (call.c) only accept or refuse. For a refused call
// qn__plan_explain (explain.c) finds the first violation again and describes it. A test compares
// their results.
//
// Requirements, tested by qn__plan_check:
//  1. `args` has the parameters in their order.
//  2. In this order, and within a parameter from the first extent to the last stride, each symbol
//     is bound (BIND) before it is compared (SYMBOL), and bound once.
//  3. `pairs` holds any two tensors of which one is written, once.
//  4. The constants that the fast reader compares whole are those of the parameter's dtype and
//     rank.
//  5. A tensor of one dimension is a VECTOR only after the BIND of its symbol, whose limit holds
//     for it, too.
//  6. Each symbol that no parameter binds is that of one of `equations`, once.
// A plan is immutable once made.
#ifndef QUERN_JIT_PLAN_H_
#define QUERN_JIT_PLAN_H_

#include "base/base.h"
#include "ir/equation.h"
#include "ir/ir.h"
#include "quern/ir.h"
#include "quern/quern.h"

// A function has at most this many parameters and symbols together.
#define QN__MAX_WORDS ((uint32_t)QN__EQUATION_WORDS)
#define QN__MAX_RANK 32u

// One extent or stride of a buffer parameter.
typedef enum qn__dim_kind {
  QN__DIM_BIND,    // binds symbol `symbol`
  QN__DIM_SYMBOL,  // must equal symbol `symbol`, bound earlier
  QN__DIM_CONST,   // must equal `value`
  QN__DIM_EXPR,    // must equal `expr`, checked when all symbols are bound
} qn__dim_kind_t;
typedef struct qn__plan_dim {
  qn__dim_kind_t kind;
  uint32_t symbol;
  const qn__ir_expr_t* expr;  // of the function
  int64_t value;
} qn__plan_dim_t;

// The check of a plain call (call.c) for a parameter. Tensors come first.
typedef enum qn__plan_form {
  QN__FORM_BIND,    // a tensor of one dimension, which binds a symbol
  QN__FORM_VECTOR,  // a tensor of one dimension, whose extent a BIND has bound
  QN__FORM_TENSOR,  // any other tensor
  QN__FORM_F32,
  QN__FORM_INT,  // integer dtypes and bool
  QN__FORM_F64,
  QN__FORM_FLOAT,  // narrower floats
} qn__plan_form_t;

// The members that every call reads lie in the first cache line.
typedef struct qn__plan_arg {
  int32_t tag;  // the qn_value_type_t that needs no conversion
  qn__plan_form_t form;
  // The tensor's ndim and dtype as they lie side by side in memory.
  uint64_t ndim_and_dtype;
  // Address bits that only the slow path accepts: the two highest, those of `align_mask`, or all
  // where strides are declared.
  uint64_t unusual_mask;
  // The most elements that the fast path accepts. For a BIND this is the least `max_elements` of
  // itself and its VECTORs, so that VECTORs are only checked for equality.
  int64_t max_plain;
  uint64_t item_bytes;
  uint32_t symbol;  // BIND, VECTOR: of the extent
  uint32_t rank;
  const qn__plan_dim_t* shape;
  const qn__plan_dim_t* strides;  // NULL: must be row-major
  // More elements than this do not fit in bytes, or in the code's indices.
  int64_t max_elements;
  uint64_t align_mask;
  const char* name;
  qn_dtype_t dtype;
  bool is_packed;  // two elements share a byte
  bool is_written;
  bool is_fixed;  // INT: the range is one value
  // INT: the range that fits (u64: 0 and INT64_MAX), and the bits of a word that the dtype has.
  int64_t min_value;
  int64_t max_value;
  uint64_t bit_mask;
} qn__plan_arg_t;

static inline bool qn__plan_is_tensor(const qn__plan_arg_t* arg) {
  return arg->form <= QN__FORM_TENSOR;
}

// Returns the device that an argument must be on: that of the plan, or the tensor's own where the
// plan's device is the CPU, and the tensor is in pinned host memory.
static inline uint64_t qn__device_of_call(uint64_t plan_device, const qn_tensor_t* tensor) {
  qn_device_t device;
  memcpy(&device, &plan_device, sizeof device);
  if (device.type != QN_DEVICE_CPU || tensor->device.type != QN_DEVICE_CUDA_HOST) {
    return plan_device;
  }
  memcpy(&plan_device, &tensor->device, sizeof plan_device);
  return plan_device;
}

// Two tensors of which one is written: they must not overlap. Byte offsets of their words, so that
// a call need not scale them.
typedef struct qn__plan_pair {
  uint32_t first;
  uint32_t second;
} qn__plan_pair_t;

typedef struct qn__plan {
  uint64_t device_word;  // the tensors' device as it lies in memory
  uint32_t arg_count;
  qn__plan_arg_t* args;
  qn__plan_pair_t* pairs;
  qn__plan_pair_t* pairs_end;
  uint32_t symbol_count;
  uint32_t deferred_count;  // dims of kind EXPR
  uint32_t equation_count;
  qn__ir_equation_t* equations;  // of extents that are EXPR, in the order of solving
  bool has_32_bit_indices;
  const qn__ir_func_t* function;  // borrowed: the cell holds the module
  qn_allocator_t allocator;
  qn__arena_t arena;
} qn__plan_t;

// Errors: UNSUPPORTED beyond QN__MAX_WORDS and QN__MAX_RANK, OUT_OF_MEMORY.
qn_status_t qn__plan_create(const qn__ir_func_t* function, qn_device_t device,
                            bool has_32_bit_indices, qn_allocator_t allocator,
                            qn__plan_t** out_plan);
void qn__plan_destroy(qn__plan_t* plan);
// Tests the requirements above. Debug builds call it for every plan.
bool qn__plan_check(const qn__plan_t* plan);

// Checks that `variant` takes the arguments of `wanted`: as many parameters, each of the same kind,
// dtype, rank and access. Names may differ. Also refuses a variant whose signature is stricter: a
// fixed extent or scalar or an alignment that `wanted` does not require, or one symbol for two
// different extents. Each call checks the rest. Errors: INVALID_ARGUMENT names the first parameter
// that differs.
qn_status_t qn__signature_check(const qn__ir_func_t* wanted, const qn__ir_func_t* variant);

// Returns the first error of a call that call.c refused; ok if it would be accepted.
qn_status_t qn__plan_explain(const qn__plan_t* plan, const qn_value_t* args, size_t count);
// Gives the symbol of an equation its value, by the words of a call and the extent of the argument.
// False: no value fits, or (`out_is_defined`) an integer division by zero. `out_rest` is the extent
// where the symbol is 0.
bool qn__plan_solve(const qn__plan_t* plan, const qn__ir_equation_t* equation, int64_t extent,
                    uint64_t* words, bool* out_is_defined, int64_t* out_rest);
// Evaluates the expression of a DIM_EXPR over the words of a call; false on an integer division by
// zero.
bool qn__plan_eval(const qn__plan_t* plan, const qn__ir_expr_t* expr, const uint64_t* words,
                   int64_t* out_value);

#endif  // QUERN_JIT_PLAN_H_
