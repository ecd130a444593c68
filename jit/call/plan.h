// jit/call/plan.h: what a call must satisfy, worked out once per function from its signature, so
// that the checks of a call are a short loop over constants.
//
// Two readers share a plan: qn__plan_bind (call.c) is fast and says only yes or no; a call that it
// refuses goes to qn__plan_explain (explain.c), which finds the first violation again and words it.
// A test holds them to the same verdict.
//
// Requirements, tested by qn__plan_check:
//  1. `args` has the parameters in their order.
//  2. In this order, and within a parameter from the first extent to the last stride, each symbol
//  is
//     bound (BIND) before it is compared (SYMBOL), and bound once.
//  3. `pairs` holds any two tensors of which one is written, once.
//  4. The constants that the fast reader compares whole are those of the parameter's dtype and
//  rank.
//
// Thread rule: immutable once made. Read next: plan.c.
#ifndef QUERN_JIT_PLAN_H_
#define QUERN_JIT_PLAN_H_

#include "base/base.h"
#include "ir/ir.h"
#include "quern/ir.h"
#include "quern/quern.h"

// A function has at most this many parameters and symbols together.
#define QN__MAX_WORDS 128u
#define QN__MAX_RANK 32u
#define QN__MAX_EXPR_DEPTH 32u

// One extent or stride of a buffer parameter.
typedef enum qn__dim_kind {
  QN__DIM_BIND,    // binds symbol `symbol`
  QN__DIM_SYMBOL,  // must equal symbol `symbol`, bound earlier
  QN__DIM_CONST,   // must equal `value`
  QN__DIM_EXPR,    // must equal expression `expr`, checked when all symbols are bound
} qn__dim_kind_t;
typedef struct qn__dim {
  qn__dim_kind_t kind;
  uint32_t symbol;
  uint32_t expr;
  int64_t value;
} qn__dim_t;

// An expression over the words of a call, in postfix order.
typedef struct qn__plan_op {
  enum { QN__PUSH_CONST, QN__PUSH_WORD, QN__APPLY, QN__CONVERT, QN__CHOOSE } kind;
  qn_op_t op;        // APPLY
  qn_dtype_t dtype;  // of the operands; CONVERT: from
  qn_dtype_t to;     // CONVERT
  int64_t value;     // CONST
  uint32_t word;     // WORD
} qn__plan_op_t;
typedef struct qn__plan_expr {
  const qn__ir_expr_t* source;  // for messages
  uint32_t op_count;
  qn__plan_op_t* ops;
} qn__plan_expr_t;

typedef enum qn__arg_kind {
  QN__ARG_TENSOR,
  QN__ARG_INT,  // integer dtypes and bool
  QN__ARG_FLOAT,
} qn__arg_kind_t;

// What every call reads lies in the first cache line.
typedef struct qn__arg {
  qn__arg_kind_t kind;
  qn_dtype_t dtype;
  uint32_t rank;
  uint32_t item_shift;  // log2 of the element's bytes
  // The tensor's ndim and dtype as they lie side by side in memory.
  uint64_t ndim_and_dtype;
  // Bits that an address of the usual kind does not have: those of `align_mask`, or all of them
  // where strides are declared, so that no address is usual.
  uint64_t unusual_mask;
  // More elements than this do not fit in bytes, or in the code's indices.
  int64_t max_elements;
  qn__dim_kind_t first_kind;  // shape[0] again, so that it is found without another load
  uint32_t first_symbol;
  int64_t first_value;
  const qn__dim_t* shape;
  const qn__dim_t* strides;  // NULL: must be row-major
  uint64_t align_mask;
  bool is_written;
  const char* name;
  // INT: the range that fits (u64: 0 and INT64_MAX).
  int64_t min_value;
  int64_t max_value;
} qn__arg_t;

// Two tensors of which one is written: they must not overlap.
typedef struct qn__pair {
  uint32_t first;
  uint32_t second;
} qn__plan_pair_t;

typedef struct qn__plan {
  qn_allocator_t allocator;
  qn__arena_t arena;
  const qn__ir_func_t* function;  // borrowed: the cell holds the module
  uint64_t device_word;           // the tensors' device as it lies in memory
  uint32_t arg_count;
  uint32_t symbol_count;
  uint32_t deferred_count;  // dims of kind EXPR
  uint32_t pair_count;
  bool has_32_bit_indices;
  qn__arg_t* args;
  qn__plan_pair_t* pairs;
  qn__plan_expr_t* exprs;
  uint32_t expr_count;
} qn__plan_t;

// Errors: UNSUPPORTED beyond QN__MAX_WORDS and QN__MAX_RANK, OUT_OF_MEMORY.
qn_status_t qn__plan_create(const qn__ir_func_t* function, qn_device_t device,
                            bool has_32_bit_indices, qn_allocator_t allocator,
                            qn__plan_t** out_plan);
void qn__plan_destroy(qn__plan_t* plan);
// Tests the requirements above. Debug builds call it for every plan.
bool qn__plan_check(const qn__plan_t* plan);

// Checks that `variant` takes the arguments of `wanted`: as many parameters, each of the same kind,
// dtype, rank and access. Names may differ. Refuses also what is visibly stricter (a fixed extent
// or an alignment that `wanted` does not ask for, one symbol for two different extents); the rest
// is left to each call. Errors: INVALID_ARGUMENT names the first parameter that differs.
qn_status_t qn__signature_check(const qn__ir_func_t* wanted, const qn__ir_func_t* variant);

// Checks a call and fills `words` (QN__MAX_WORDS of them). False when anything is wrong.
bool qn__plan_bind(const qn__plan_t* plan, const qn_value_t* args, size_t count,
                   uint64_t* restrict words);
// Returns the first error of a call that qn__plan_bind refused; ok if it would be accepted.
qn_status_t qn__plan_explain(const qn__plan_t* plan, const qn_value_t* args, size_t count);
// Evaluates an expression; false on an integer division by zero.
bool qn__plan_eval(const qn__plan_expr_t* expr, const uint64_t* words, int64_t* out_value);

#endif  // QUERN_JIT_PLAN_H_
