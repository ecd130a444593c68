// SPDX-License-Identifier: Apache-2.0
// ir/math/builder.c: the larger operations of builder.h, and the table of the functions.
//
// Not here: approximations (exp.c, log.c, pow.c, trig.c).
#include <assert.h>

#include "ir/math/builder.h"

#include <math.h>

#include "base/base.h"

// ------------------------------------------------------------------------------------ nodes

static qn_expr_t dummy = {.kind = QN__EXPR_INT, .dtype = QN_DTYPE_U32};

static qn__mval_t check(qn__math_builder_t* k, const qn__ir_expr_t* expr) {
  if (expr) return expr;
  k->has_failed = true;
  return &dummy;
}

qn__mval_t qn__mk_int(qn__math_builder_t* k, qn_dtype_t dtype, uint64_t value) {
  return check(k, qn__expr_int(k->arena, dtype, (int64_t)value));
}

qn__mval_t qn__mk_float(qn__math_builder_t* k, qn_dtype_t dtype, double value) {
  double rounded = dtype == QN_DTYPE_F32 ? (double)(float)value : value;
  return check(k, qn__expr_float(k->arena, dtype, rounded));
}

static qn__ir_var_t* new_var(qn__math_builder_t* k, qn__ir_var_kind_t kind, qn_dtype_t dtype) {
  qn__ir_var_t* var = qn__var_new(k->arena, kind, dtype, "");
  if (var) var->id = k->function->var_count++;
  return var;
}

// Appends `let v = value` and returns v.
static qn__mval_t let(qn__math_builder_t* k, qn__ir_expr_t* value) {
  if (!value) return check(k, NULL);
  qn__ir_var_t* var = new_var(k, QN__VAR_LET, value->dtype);
  qn__ir_stmt_t* stmt = qn__stmt_new(k->arena, QN__STMT_LET, (qn__ir_loc_t){0, 0});
  if (!var || !stmt) return check(k, NULL);
  stmt->let.var = var;
  stmt->let.value = value;
  qn__block_append(&k->function->body, stmt);
  return check(k, qn__expr_var(k->arena, var));
}

// Operands are leaves that nothing rewrites, so that nodes may share them.
static qn__ir_expr_t* as_operand(qn__mval_t value) {
  assert(!value || value->kind == QN__EXPR_VAR || value->kind == QN__EXPR_INT ||
         value->kind == QN__EXPR_FLOAT);
  union {
    qn__mval_t constant;
    qn__ir_expr_t* operand;
  } leaf = {value};
  return leaf.operand;
}

static qn__ir_expr_t* new_op(qn__math_builder_t* k, uint32_t op, qn_dtype_t dtype, qn__mval_t a,
                             qn__mval_t b, qn__mval_t c) {
  qn__ir_expr_t* expr = qn__expr_new(k->arena, QN__EXPR_OP, dtype, (qn__ir_loc_t){0, 0});
  if (!expr) return NULL;
  expr->op = (qn_op_t)op;
  expr->args[0] = as_operand(a);
  expr->args[1] = as_operand(b);
  expr->args[2] = as_operand(c);
  return expr;
}

qn__mval_t qn__mk_op(qn__math_builder_t* k, uint32_t op, qn_dtype_t dtype, qn__mval_t a,
                     qn__mval_t b, qn__mval_t c) {
  return let(k, new_op(k, op, dtype, a, b, c));
}

qn__mval_t qn__mk_cast(qn__math_builder_t* k, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                       qn__mval_t a) {
  qn__ir_expr_t* expr = qn__expr_new(k->arena, kind, dtype, (qn__ir_loc_t){0, 0});
  if (expr) expr->args[0] = as_operand(a);
  return let(k, expr);
}

static qn__ir_expr_t* new_call(qn__math_builder_t* k, qn__math_id_t function, qn_dtype_t dtype,
                               const qn__mval_t* args) {
  uint32_t arity = qn__math_info(function)->arity;
  assert(arity > 0);
  return new_op(k, QN__MATH_OP_CALL + (uint32_t)function, dtype, args[0],
                arity > 1 ? args[1] : NULL, arity > 2 ? args[2] : NULL);
}

qn__mval_t qn__mk_call(qn__math_builder_t* k, qn__math_id_t function, qn_dtype_t dtype,
                       const qn__mval_t* args) {
  return let(k, new_call(k, function, dtype, args));
}

qn__mval_t qn__mk_call_if(qn__math_builder_t* k, qn__mval_t condition, qn__math_id_t function,
                          const qn__mval_t* args, qn__mval_t otherwise) {
  qn__ir_expr_t* call = new_call(k, function, otherwise->dtype, args);
  qn__ir_expr_t* expr =
      qn__expr_new(k->arena, QN__EXPR_COND, otherwise->dtype, (qn__ir_loc_t){0, 0});
  if (!call || !expr) return check(k, NULL);
  expr->args[0] = as_operand(condition);
  expr->args[1] = call;
  expr->args[2] = as_operand(otherwise);
  return let(k, expr);
}

qn__mval_t qn__mk_repeat(qn__math_builder_t* k, qn__mval_t count, qn__math_id_t step,
                         qn__mval_t state, qn__mval_t constant) {
  return qn__mk_op(k, QN__MATH_OP_REPEAT + (uint32_t)step, state->dtype, count, state, constant);
}

// ------------------------------------------------------------------------------------ polynomials

static qn__mval_t horner(qn__math_builder_t* k, qn__mval_t x, const double* coefficients,
                         size_t count, size_t step) {
  size_t last = (count - 1) / step * step;
  qn__mval_t sum = kf(k, coefficients[last]);
  for (size_t i = last; i > 0; i -= step) sum = kmad(k, sum, x, kf(k, coefficients[i - step]));
  return sum;
}

// On a CPU a long polynomial is computed as two of half the length, in x^2. That is one more
// instruction, but the chain of dependent instructions, for which the processor waits, is half as
// long (10 % of log). The first coefficient stays apart, so that the errors of the others count
// less. A GPU runs other threads while it waits.
qn__mval_t qn__mk_poly(qn__math_builder_t* k, qn__mval_t x, const double* coefficients,
                       size_t count) {
  enum { LONG = 6 };
  assert(count > 0);
  if (count < LONG || k->is_gpu) return horner(k, x, coefficients, count, 1);
  qn__mval_t square = kmul(k, x, x);
  qn__mval_t even = horner(k, square, coefficients + 1, count - 1, 2);
  qn__mval_t odd = horner(k, square, coefficients + 2, count - 2, 2);
  return kmad(k, kmad(k, odd, x, even), x, kf(k, coefficients[0]));
}

// ------------------------------------------------------------------------------------ exponents

double qn__mk_magic(const qn__math_builder_t* k, int bias) {
  return (k->is_f64 ? 0x1.8p52 : 0x1.8p23) + bias;
}

qn__mval_t qn__mk_word(qn__math_builder_t* k, qn__mval_t x) {
  return k->w == k->u ? kbits(k, x) : klow(k, x);
}

qn__mval_t qn__mk_power(qn__math_builder_t* k, qn__mval_t word) {
  qn__mval_t bits = kshl(k, word, k->exponent_shift);
  return k->w == k->u ? kfrom_bits(k, bits) : kjoin(k, bits, ku32(k, 0));
}

qn__mval_t qn__mk_head(qn__math_builder_t* k, qn__mval_t x) {
  if (k->w != k->u) {
    return kjoin(k, khigh(k, x), kand(k, klow(k, x), ku32(k, 0xF8000000u)));
  }
  uint64_t mask = k->is_f64 ? ~UINT64_C(0x7FFFFFF) : (uint32_t)~UINT32_C(0xFFF);
  return kfrom_bits(k, kand(k, kbits(k, x), ku(k, mask)));
}

static qn__msplit_t split_avx512(qn__math_builder_t* k, qn__mval_t x) {
  // The power of two that GETMANT took out is the difference of the exponents.
  qn__mval_t m = qn__mk_op(k, QN__MATH_OP_GETMANT, k->f, x, NULL, NULL);
  qn__mval_t exponent = qn__mk_op(k, QN__MATH_OP_GETEXP, k->f, x, NULL, NULL);
  exponent = ksub(k, exponent, qn__mk_op(k, QN__MATH_OP_GETEXP, k->f, m, NULL, NULL));
  return (qn__msplit_t){exponent, ksub(k, m, kf(k, 1.0))};
}

// Denormal numbers of f32 are shifted up as integers: a GPU's arithmetic may take them for zero.
static qn__msplit_t split_gpu(qn__math_builder_t* k, qn__mval_t x) {
  qn__mval_t bits = k->is_f64 ? khigh(k, x) : kbits(k, x);
  qn__mval_t smallest = ku32(k, k->is_f64 ? 0x100000u : 0x800000u);
  qn__mval_t is_denormal = klt(k, bits, smallest);
  qn__mval_t up;
  if (k->is_f64) {
    up = kselect(k, is_denormal, ku32(k, 54), ku32(k, 0));
    x = kselect(k, is_denormal, kmul(k, x, kf(k, 0x1p54)), x);
    bits = khigh(k, x);
  } else {
    // Between 1 and 23; zero, which has no logarithm, must not shift by more either.
    qn__mval_t zeros = kclz(k, bits);
    up = kselect(k, is_denormal, kand(k, ksub(k, zeros, ku32(k, 8)), ku32(k, 31)), ku32(k, 0));
    bits = kshl_by(k, bits, up);
  }
  qn__mval_t offset = ksub(k, bits, ku32(k, k->is_f64 ? 0x3FE80000u : 0x3F400000u));
  qn__mval_t mask = ku32(k, k->is_f64 ? 0xFFF00000u : 0xFF800000u);
  qn__mval_t m = ksub(k, bits, kand(k, offset, mask));
  m = k->is_f64 ? kjoin(k, m, klow(k, x)) : kfrom_bits(k, m);
  qn__mval_t n = kto(k, QN_DTYPE_I32, offset);
  n = kshr(k, n, k->exponent_shift);
  n = ksub(k, n, kto(k, QN_DTYPE_I32, up));
  return (qn__msplit_t){kto(k, k->f, n), ksub(k, m, kf(k, 1.0))};
}

qn__msplit_t qn__mk_split(qn__math_builder_t* k, qn__mval_t x, bool with_denormals) {
  if (k->has_avx512) return split_avx512(k, x);
  if (k->is_gpu) return split_gpu(k, x);
  int up = k->is_f64 ? 54 : 25;  // how far denormals are scaled
  qn__mval_t is_denormal = NULL;
  if (with_denormals) {
    is_denormal = klt(k, x, kf(k, k->is_f64 ? 0x1p-1022 : 0x1p-126));
    x = kselect(k, is_denormal, kmul(k, x, kf(k, k->is_f64 ? 0x1p54 : 0x1p25)), x);
  }
  uint64_t three_quarters = k->is_f64 ? UINT64_C(0x3FE8000000000000) : UINT64_C(0x3F400000);
  uint64_t exponent_mask = k->is_f64 ? UINT64_C(0xFFF0000000000000) : UINT64_C(0xFF800000);
  qn__mval_t bits = kbits(k, x);
  qn__mval_t offset = ksub(k, bits, ku(k, three_quarters));
  qn__mval_t m = kfrom_bits(k, ksub(k, bits, kand(k, offset, ku(k, exponent_mask))));
  qn__mval_t f = ksub(k, m, kf(k, 1.0));
  if (!k->is_f64) {
    qn__mval_t n = kshr(k, kto(k, QN_DTYPE_I32, offset), k->mantissa_bits);
    if (with_denormals) {
      qn__mval_t scaled = qn__mk_int(k, QN_DTYPE_I32, (uint64_t)up);
      n = ksub(k, n, kselect(k, is_denormal, scaled, qn__mk_int(k, QN_DTYPE_I32, 0)));
    }
    return (qn__msplit_t){kto(k, k->f, n), f};
  }
  // Most machines lack the conversion of 64-bit integers for vectors, and the arithmetic shift. But
  // n + bias is a small positive integer: put into the mantissa of 2^52 it becomes a float.
  double whole = 0x1p52 + k->bias;
  qn__mval_t biased = kadd(k, offset, ku(k, (uint64_t)k->bias << k->mantissa_bits));
  biased = kshr(k, biased, k->mantissa_bits);
  qn__mval_t exponent = kfrom_bits(k, kor(k, biased, ku(k, UINT64_C(0x4330000000000000))));
  qn__mval_t subtract = kf(k, whole);
  if (with_denormals) subtract = kselect(k, is_denormal, kf(k, whole + up), subtract);
  return (qn__msplit_t){ksub(k, exponent, subtract), f};
}

qn__mval_t qn__mk_has_exponent(qn__math_builder_t* k, qn__mval_t x) {
  qn__mval_t is_finite = kisfinite(k, x);
  if (!k->is_gpu) return kand(k, is_finite, kne(k, x, kf(k, 0.0)));
  qn__mval_t bits =
      k->is_f64 ? kor(k, kshl(k, khigh(k, x), 1), klow(k, x)) : kshl(k, kbits(k, x), 1);
  return kand(k, is_finite, kne(k, bits, ku32(k, 0)));
}

// ------------------------------------------------------------------------------------ two words

qn__mpair_t qn__mk_two_sum(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b) {
  qn__mval_t sum = kadd(k, a, b);
  qn__mval_t b_part = ksub(k, sum, a);
  qn__mval_t a_part = ksub(k, sum, b_part);
  return (qn__mpair_t){sum, kadd(k, ksub(k, a, a_part), ksub(k, b, b_part))};
}

qn__mpair_t qn__mk_fast_two_sum(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b) {
  qn__mval_t sum = kadd(k, a, b);
  return (qn__mpair_t){sum, ksub(k, b, ksub(k, sum, a))};
}

qn__mpair_t qn__mk_two_product(qn__math_builder_t* k, qn__mval_t a, qn__mval_t b) {
  qn__mval_t product = kmul(k, a, b);
  if (k->has_fma) return (qn__mpair_t){product, kmad(k, a, b, kneg(k, product))};
  // Heads by clearing bits, not by Veltkamp's multiplication, which may overflow.
  qn__mval_t a_hi = qn__mk_head(k, a), b_hi = qn__mk_head(k, b);
  qn__mval_t a_lo = ksub(k, a, a_hi), b_lo = ksub(k, b, b_hi);
  qn__mval_t rest = ksub(k, kmul(k, a_hi, b_hi), product);
  rest = kadd(k, rest, kmul(k, a_hi, b_lo));
  rest = kadd(k, rest, kmul(k, a_lo, b_hi));
  return (qn__mpair_t){product, kadd(k, rest, kmul(k, a_lo, b_lo))};
}

// ------------------------------------------------------------------------------------ functions

enum { NOTHING, INT64 };

static const qn__math_info_t infos[] = {
#define QN_MATH(name, op, arity, f32, f64, needs) \
  {#name, QN_OP_##op, arity, {QN__MATH_##f32, QN__MATH_##f64}, (needs) == INT64},
#include "ir/math/functions.inc"
#undef QN_MATH
};

const qn__math_info_t* qn__math_info(qn__math_id_t id) {
  assert((uint32_t)id < QN__MATH_ID_COUNT);
  return &infos[id];
}

bool qn__math_find(qn_op_t op, qn_dtype_t dtype, qn__math_id_t* out_id) {
  // The neighbour of a narrow float is not that of the f32 that holds it.
  bool is_narrow = dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
  if (op == QN_OP_NEXTAFTER && is_narrow) {
    *out_id = dtype == QN_DTYPE_F16 ? QN__MATH_ID_nextafter_f16 : QN__MATH_ID_nextafter_bf16;
    return true;
  }
  for (uint32_t i = 0; i < QN__MATH_ID_COUNT; i++) {
    *out_id = (qn__math_id_t)i;
    if (infos[i].op == (uint32_t)op) return true;
  }
  return false;
}

static qn__math_builder_t builder_of(qn__arena_t* arena, qn_dtype_t dtype, uint32_t traits) {
  bool is_f64 = dtype == QN_DTYPE_F64;
  bool is_gpu = (traits & QN__MATH_IS_GPU) != 0;
  return (qn__math_builder_t){
      .arena = arena,
      .f = dtype,
      .u = is_f64 ? QN_DTYPE_U64 : QN_DTYPE_U32,
      .w = is_f64 && !is_gpu ? QN_DTYPE_U64 : QN_DTYPE_U32,
      .is_f64 = is_f64,
      .has_fma = (traits & QN__MATH_HAS_FMA) != 0,
      .is_gpu = is_gpu,
      .has_avx512 = (traits & QN__MATH_HAS_AVX512) != 0,
      .has_avx512_wide = (traits & QN__MATH_HAS_AVX512_WIDE) != 0,
      .is_fast = (traits & QN__MATH_IS_FAST) != 0,
      .mantissa_bits = is_f64 ? 52 : 23,
      .exponent_shift = !is_f64  ? 23
                        : is_gpu ? 20
                                 : 52,
      .bias = is_f64 ? 1023 : 127,
  };
}

qn__math_builder_t qn__mk_as(const qn__math_builder_t* k, qn_dtype_t f) {
  qn__math_builder_t other = builder_of(k->arena, f, k->has_avx512_wide ? QN__MATH_HAS_AVX512 : 0u);
  other.function = k->function;
  other.has_fma = k->has_fma;
  return other;
}

typedef qn__mval_t (*body_fn_t)(qn__math_builder_t* k, const qn__mval_t* args);

static const body_fn_t bodies[] = {
#define QN_MATH(name, op, arity, f32, f64, needs) qn__mf_##name,
#include "ir/math/functions.inc"
#undef QN_MATH
};

bool qn__math_build(qn__arena_t* arena, qn__math_id_t id, qn_dtype_t dtype, uint32_t traits,
                    qn__math_function_t* out) {
  *out = (qn__math_function_t){.result = NULL};
  qn__math_builder_t builder = builder_of(arena, dtype, traits);
  builder.function = out;
  qn__mval_t args[3] = {&dummy, &dummy, &dummy};
  for (uint32_t i = 0; i < infos[id].arity; i++) {
    bool is_exponent = infos[id].op == QN_OP_LDEXP && i == 1;
    out->params[i] = new_var(&builder, QN__VAR_SCALAR, is_exponent ? QN_DTYPE_I32 : dtype);
    if (!out->params[i]) return false;
    args[i] = check(&builder, qn__expr_var(arena, out->params[i]));
  }
  out->result = bodies[id](&builder, args);
  return !builder.has_failed;
}
