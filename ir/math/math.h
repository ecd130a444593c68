// SPDX-License-Identifier: Apache-2.0
// ir/math/math.h: the functions of mathematics as functions in IR, for code generators.
//
// A generator builds the function of an operator such as `exp(x)` for its target and dtype, once or
// at each use. It emits the statements inline, or as a function that it calls. The code depends on
// the target: see qn__math_trait. The interpreter does not use these functions: it is the reference
// that tests compare them with.
//
// A function consists of LET statements, whose values are operators on variables and literals, and
// of the result. Values are f32 or f64, bool, and integers of 32 and 64 bits. Two forms branch:
//
// - A COND has a CALL as its second operand. A generator should make the call only if the condition
//   holds for some lane, and takes its result only for those lanes.
// - REPEAT (count, state, constant) applies a function of (state, constant) to the state, `count`
//   times. The count is a float of the function's dtype and differs from lane to lane; NaN and
//   numbers below 1 are no repetition.
#ifndef QUERN_IR_MATH_MATH_H_
#define QUERN_IR_MATH_MATH_H_

#include "ir/ir.h"

// The functions, in the order of functions.inc.
typedef enum qn__math_id {
#define QN_MATH(name, op, arity, f32, f64, needs) QN__MATH_ID_##name,
#include "ir/math/functions.inc"
#undef QN_MATH
  QN__MATH_ID_COUNT
} qn__math_id_t;

typedef enum qn__math_place {
  QN__MATH_INLINE,
  QN__MATH_APART,
  QN__MATH_RARE,
  QN__MATH_LANES,
  QN__MATH_ON_CPU,
  QN__MATH_ABSENT,
} qn__math_place_t;

typedef struct qn__math_info {
  const char* name;
  uint32_t op;  // of qn_op_t; 0: a part of other functions
  uint32_t arity;
  qn__math_place_t places[2];  // of f32 and f64
  bool needs_int64;            // the f64 function
} qn__math_info_t;
const qn__math_info_t* qn__math_info(qn__math_id_t id);

// Finds the function that computes `op` for operands of `dtype`, of which F16 and BF16 are held as
// F32. Returns false where `op` is none of them.
bool qn__math_find(qn_op_t op, qn_dtype_t dtype, qn__math_id_t* out_id);

// What a target has.
enum qn__math_trait {
  // fma is one instruction. Without it, sums of products are rounded twice.
  QN__MATH_HAS_FMA = 1,
  // A GPU: f64 is slow or missing, integers of 64 bits are made of two, comparisons may take
  // denormal numbers for zero. f32 functions then stay in 32 bits, and denormal arguments are
  // looked at as integers. Otherwise a CPU, where f32 functions may compute in f64.
  QN__MATH_IS_GPU = 2,
  // SCALEF, GETEXP and GETMANT of AVX-512; and for what an f32 function computes in f64.
  QN__MATH_HAS_AVX512 = 4,
  QN__MATH_HAS_AVX512_WIDE = 16,
  // Zero, negative, denormal and infinite arguments and NaN of log and log2 do not matter.
  QN__MATH_IS_FAST = 8,
};

// Operators that only these functions use, beside those of ops.inc.
enum qn__math_op {
  QN__MATH_OP_MULHI = 0x1000,   // the upper half of the product of two unsigned integers
  QN__MATH_OP_HIGH,             // the upper 32 bits of an f64
  QN__MATH_OP_LOW,              // the lower 32 bits of an f64
  QN__MATH_OP_JOIN,             // the f64 of (upper, lower)
  QN__MATH_OP_RATIO,            // a quotient that may be off by a few ulp
  QN__MATH_OP_SCALEF,           // a * 2^b
  QN__MATH_OP_GETEXP,           // the exponent of a, as a float
  QN__MATH_OP_GETMANT,          // the mantissa of a, between 3/4 and 3/2
  QN__MATH_OP_TWO_OVER_PI,      // word a of 2/pi (tables.h), of 32 or 64 bits as the dtype says
  QN__MATH_OP_CALL = 0x2000,    // + the id of the called function
  QN__MATH_OP_REPEAT = 0x3000,  // + the id of the function of a step
};

typedef struct qn__math_function {
  qn__ir_var_t* params[3];  // of the function's dtype, but for the i32 exponent of ldexp
  qn__ir_block_t body;
  const qn__ir_expr_t* result;  // a variable or a literal
  uint32_t var_count;           // ids are dense; parameters come first
} qn__math_function_t;

// Builds a function for F32 or F64 in the arena. The caller may use `user` of the variables.
// Operands are shared between expressions: read the function, do not rewrite it. False: the arena
// is exhausted.
bool qn__math_build(qn__arena_t* arena, qn__math_id_t id, qn_dtype_t dtype, uint32_t traits,
                    qn__math_function_t* out);

#endif  // QUERN_IR_MATH_MATH_H_
