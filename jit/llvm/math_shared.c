// SPDX-License-Identifier: Apache-2.0
// jit/llvm/math_shared.c: emits the functions of ir/math for any number of lanes.
//
// Each statement of a function becomes one instruction or two. By the function's place
// (qn__math_info), the code goes into the caller, into a function of the image that computes all
// lanes, or into one that is called for one lane after the other.
// Not here: the mathematics.
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "ir/math/tables.h"
#include "jit/llvm/math_builder.h"

// ------------------------------------------------------------------------------------ values

static qn_dtype_t float_dtype(const qn__llvm_math_builder_t* k) {
  return k->is_f64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
}

static LLVMTypeRef type_of(const qn__llvm_math_builder_t* k, qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_BOOL) return qn__llvm_like(k->f, LLVMInt1TypeInContext(k->math->context));
  qn__llvm_math_builder_t other = qn__llvm_math_with(k, qn_dtype_size_bytes(dtype) == 8);
  return qn__dtype_is_float(dtype) ? other.f : other.i;
}

static LLVMValueRef leaf(const qn__llvm_math_builder_t* k, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_VAR) {
    assert(expr->var->user);  // an argument, or the value of an earlier statement
    return expr->var->user;
  }
  LLVMTypeRef type = type_of(k, expr->dtype);
  return expr->kind == QN__EXPR_FLOAT ? qn__llvm_real(type, expr->float_value)
                                      : qn__llvm_int(type, (uint64_t)expr->int_value);
}

// ------------------------------------------------------------------------------------ operators

static LLVMValueRef cast(const qn__llvm_math_builder_t* k, const qn__ir_expr_t* expr) {
  LLVMValueRef a = leaf(k, expr->args[0]);
  LLVMTypeRef type = type_of(k, expr->dtype);
  if (expr->kind == QN__EXPR_BITCAST) return LLVMBuildBitCast(k->builder, a, type, "");
  return qn__llvm_convert(k->builder, expr->args[0]->dtype, a, type);
}

// Multiplies to the upper half. For one lane only, since its users are called lane by lane.
static LLVMValueRef mulhi(const qn__llvm_math_builder_t* k, LLVMValueRef a, LLVMValueRef b) {
  LLVMTypeRef type = LLVMTypeOf(a);
  assert(k->lanes == 0);
  unsigned width = LLVMGetIntTypeWidth(type);
  LLVMTypeRef wide = LLVMIntTypeInContext(k->math->context, 2 * width);
  LLVMValueRef product = LLVMBuildMul(k->builder, LLVMBuildZExt(k->builder, a, wide, ""),
                                      LLVMBuildZExt(k->builder, b, wide, ""), "");
  product = LLVMBuildLShr(k->builder, product, LLVMConstInt(wide, width, false), "");
  return LLVMBuildTrunc(k->builder, product, type, "");
}

// Loads a word of 2/pi. For one lane of f64.
static LLVMValueRef two_over_pi_word(const qn__llvm_math_builder_t* k, LLVMValueRef at) {
  enum { WORDS = sizeof(two_over_pi) / sizeof(two_over_pi[0]) };
  assert(k->lanes == 0 && k->is_f64);
  LLVMValueRef global = LLVMGetNamedGlobal(k->math->module, "qn.math.two_over_pi");
  if (global == NULL) {
    LLVMValueRef words[WORDS];
    for (size_t i = 0; i < WORDS; i++) words[i] = LLVMConstInt(k->i, two_over_pi[i], false);
    global = LLVMAddGlobal(k->math->module, LLVMArrayType2(k->i, WORDS), "qn.math.two_over_pi");
    LLVMSetInitializer(global, LLVMConstArray2(k->i, words, WORDS));
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetGlobalConstant(global, true);
    LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
  }
  LLVMValueRef address = LLVMBuildInBoundsGEP2(k->builder, k->i, global, &at, 1, "");
  return LLVMBuildLoad2(k->builder, k->i, address, "");
}

static LLVMValueRef getmant(const qn__llvm_math_builder_t* k, LLVMValueRef x) {
  // A mantissa between 3/4 and 3/2 without sign; NaN for a negative number.
  enum { INTERVAL = 3, SIGN = 3 };
  LLVMTypeRef word = LLVMInt32TypeInContext(k->math->context);
  LLVMValueRef mode = LLVMConstInt(word, SIGN << 2 | INTERVAL, false);
  return qn__llvm_math_avx512(k, "getmant", (LLVMValueRef[]){x, mode}, 2);
}

static LLVMValueRef operator_of(const qn__llvm_math_builder_t* k, const qn__ir_expr_t* expr) {
  uint32_t op = expr->op;
  qn_dtype_t dtype = expr->args[0]->dtype;
  LLVMValueRef args[3] = {NULL, NULL, NULL};
  for (uint32_t i = 0; i < 3 && expr->args[i]; i++) args[i] = leaf(k, expr->args[i]);
  // An f32 function may compute in f64.
  qn__llvm_math_builder_t other = qn__llvm_math_with(k, qn_dtype_size_bytes(dtype) == 8);
  if (op >= QN__MATH_OP_CALL) return qn__llvm_math_shared(&other, op - QN__MATH_OP_CALL, args);
  if (op >= QN_OP_EQ && op <= QN_OP_GE) {
    return qn__llvm_compare(k->builder, op, dtype, args[0], args[1]);
  }
  switch (op) {
    case QN_OP_SELECT:
      return LLVMBuildSelect(k->builder, args[0], args[1], args[2], "");
    case QN_OP_NEG:
      return LLVMBuildFNeg(k->builder, args[0], "");
    case QN_OP_NOT:
      return LLVMBuildNot(k->builder, args[0], "");
    case QN_OP_CLZ:
      return qn__llvm_total(k->builder, "llvm.ctlz", args[0]);
    case QN__MATH_OP_MULHI:
      return mulhi(k, args[0], args[1]);
    case QN__MATH_OP_RATIO:
      return LLVMBuildFDiv(k->builder, args[0], args[1], "");
    case QN__MATH_OP_TWO_OVER_PI:
      return two_over_pi_word(k, args[0]);
    case QN__MATH_OP_SCALEF:
      return qn__llvm_math_avx512(&other, "scalef", args, 2);
    case QN__MATH_OP_GETEXP:
      return qn__llvm_math_avx512(&other, "getexp", args, 1);
    case QN__MATH_OP_GETMANT:
      return getmant(&other, args[0]);
    default:
      break;
  }
  LLVMValueRef simple = qn__llvm_binary(k->builder, op, dtype, args[0], args[1]);
  if (simple != NULL) return simple;
  // Operators that LLVM has: abs, copysign, fma, sqrt, trunc, tests.
  qn__llvm_math_t math = *k->math;
  math.builder = k->builder;
  return qn__llvm_math_emit(&math, op, dtype, args);
}

// ------------------------------------------------------------------------------------ statements

static LLVMBasicBlockRef append(const qn__llvm_math_builder_t* k, const char* name) {
  LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInsertBlock(k->builder));
  return LLVMAppendBasicBlockInContext(k->math->context, function, name);
}

// Keeps a call out of line, and its spills off the way around it.
static void mark_rare(const qn__llvm_math_builder_t* k, LLVMValueRef call) {
  static const char* const NAMES[] = {"noinline", "cold"};
  for (size_t i = 0; i < QN_COUNT_OF(NAMES) && LLVMIsACallInst(call); i++) {
    LLVMAttributeRef attribute = qn__llvm_attribute(k->math->context, NAMES[i], 0);
    LLVMAddCallSiteAttribute(call, QN__LLVM_OF_FUNCTION, attribute);
  }
}

// Emits a call for the lanes where the condition is true, under a branch that tests for any.
static LLVMValueRef conditional(const qn__llvm_math_builder_t* k, const qn__ir_expr_t* expr) {
  LLVMBuilderRef b = k->builder;
  LLVMValueRef condition = leaf(k, expr->args[0]), otherwise = leaf(k, expr->args[2]);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef rare = append(k, "rare"), join = append(k, "join");
  LLVMBuildCondBr(b, qn__llvm_any(b, condition), rare, join);
  LLVMPositionBuilderAtEnd(b, rare);
  LLVMValueRef called = operator_of(k, expr->args[1]);
  mark_rare(k, called);
  called = LLVMBuildSelect(b, condition, called, otherwise, "");
  LLVMBasicBlockRef rare_end = LLVMGetInsertBlock(b);
  LLVMBuildBr(b, join);
  LLVMPositionBuilderAtEnd(b, join);
  return qn__llvm_join(b, called, rare_end, otherwise, before);
}

// Emits a loop over all lanes, which ends with the lane of the most iterations.
static LLVMValueRef repeat(const qn__llvm_math_builder_t* k, const qn__ir_expr_t* expr) {
  LLVMBuilderRef b = k->builder;
  qn__math_id_t step = (qn__math_id_t)((uint32_t)expr->op - QN__MATH_OP_REPEAT);
  LLVMValueRef count = leaf(k, expr->args[0]), start = leaf(k, expr->args[1]);
  LLVMValueRef one = kf(k, 1.0);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef loop = append(k, "repeat"), body = append(k, "step"), done = append(k, "done");
  LLVMBuildBr(b, loop);
  LLVMPositionBuilderAtEnd(b, loop);
  LLVMValueRef left = LLVMBuildPhi(b, k->f, ""), state = LLVMBuildPhi(b, k->f, "");
  LLVMValueRef is_left = LLVMBuildFCmp(b, LLVMRealOGE, left, one, "");
  LLVMBuildCondBr(b, qn__llvm_any(b, is_left), body, done);
  LLVMPositionBuilderAtEnd(b, body);
  LLVMValueRef next =
      qn__llvm_math_shared(k, step, (LLVMValueRef[]){state, leaf(k, expr->args[2])});
  next = LLVMBuildSelect(b, is_left, next, state, "");
  LLVMValueRef fewer = LLVMBuildFSub(b, left, one, "");
  LLVMBasicBlockRef body_end = LLVMGetInsertBlock(b);
  LLVMBuildBr(b, loop);
  LLVMAddIncoming(left, (LLVMValueRef[]){count, fewer}, (LLVMBasicBlockRef[]){before, body_end}, 2);
  LLVMAddIncoming(state, (LLVMValueRef[]){start, next}, (LLVMBasicBlockRef[]){before, body_end}, 2);
  LLVMPositionBuilderAtEnd(b, done);
  return state;
}

static LLVMValueRef value_of(const qn__llvm_math_builder_t* k, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_COND) return conditional(k, expr);
  if (expr->kind == QN__EXPR_OP && (uint32_t)expr->op >= QN__MATH_OP_REPEAT) return repeat(k, expr);
  return expr->kind == QN__EXPR_OP ? operator_of(k, expr) : cast(k, expr);
}

// Emits the code of a function at the builder's position.
static LLVMValueRef emit(const qn__llvm_math_builder_t* k, unsigned id, LLVMValueRef* args) {
  qn__llvm_math_builder_t wide = qn__llvm_math_with(k, true);
  uint32_t traits = (k->math->has_fma ? QN__MATH_HAS_FMA : 0u) |
                    (qn__llvm_math_has_avx512(k) ? QN__MATH_HAS_AVX512 : 0u) |
                    (qn__llvm_math_has_avx512(&wide) ? QN__MATH_HAS_AVX512_WIDE : 0u) |
                    (k->math->fast ? QN__MATH_IS_FAST : 0u);
  qn__arena_t arena;
  qn__arena_init(&arena, k->math->arena->allocator);
  qn__math_function_t function;
  LLVMValueRef result = LLVMGetPoison(k->f);
  if (qn__math_build(&arena, (qn__math_id_t)id, float_dtype(k), traits, &function)) {
    for (uint32_t i = 0; i < qn__math_info((qn__math_id_t)id)->arity; i++) {
      function.params[i]->user = args[i];
    }
    for (const qn__ir_stmt_t* stmt = function.body.first; stmt; stmt = stmt->next) {
      stmt->let.var->user = value_of(k, stmt->let.value);
    }
    result = leaf(k, function.result);
  } else {
    k->math->arena->is_exhausted = true;
  }
  qn__arena_deinit(&arena);
  return result;
}

// ------------------------------------------------------------------------------------ functions

static LLVMValueRef call(const qn__llvm_math_builder_t* k, qn__math_id_t id, LLVMValueRef* args) {
  const qn__math_info_t* info = qn__math_info(id);
  char name[48];
  const char* element = k->is_f64 ? "f64" : "f32";
  if (k->lanes == 0) {
    snprintf(name, sizeof(name), "qn.math.%s.%s", info->name, element);
  } else {
    snprintf(name, sizeof(name), "qn.math.%s.v%u%s", info->name, k->lanes, element);
  }
  return qn__llvm_math_call(k, name, emit, (unsigned)id, args, info->arity);
}

// Calls the function of one lane for all lanes, in a loop. Afterwards the builder is in the block
// after the loop.
static LLVMValueRef each_lane(const qn__llvm_math_builder_t* k, qn__math_id_t id,
                              LLVMValueRef* args) {
  enum { MAX_ARGS = 3 };
  assert(k->lanes > 0 && qn__math_info(id)->arity <= MAX_ARGS);
  LLVMBuilderRef b = k->builder;
  qn__llvm_math_builder_t one = qn__llvm_math_scalar(k);
  LLVMTypeRef counter = LLVMInt32TypeInContext(k->math->context);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef loop = append(k, "lane"), done = append(k, "done");
  LLVMBuildBr(b, loop);
  LLVMPositionBuilderAtEnd(b, loop);
  LLVMValueRef i = LLVMBuildPhi(b, counter, "");
  LLVMValueRef so_far = LLVMBuildPhi(b, k->f, "");
  LLVMValueRef lane[MAX_ARGS];
  for (uint32_t j = 0; j < qn__math_info(id)->arity; j++) {
    lane[j] = LLVMBuildExtractElement(b, args[j], i, "");
  }
  LLVMValueRef y = call(&one, id, lane);
  mark_rare(k, y);
  LLVMValueRef now = LLVMBuildInsertElement(b, so_far, y, i, "");
  LLVMValueRef next = LLVMBuildAdd(b, i, LLVMConstInt(counter, 1, false), "");
  LLVMValueRef more =
      LLVMBuildICmp(b, LLVMIntULT, next, LLVMConstInt(counter, k->lanes, false), "");
  LLVMBuildCondBr(b, more, loop, done);
  LLVMAddIncoming(i, (LLVMValueRef[]){LLVMConstNull(counter), next},
                  (LLVMBasicBlockRef[]){before, loop}, 2);
  LLVMAddIncoming(so_far, (LLVMValueRef[]){args[0], now}, (LLVMBasicBlockRef[]){before, loop}, 2);
  LLVMPositionBuilderAtEnd(b, done);
  return now;
}

LLVMValueRef qn__llvm_math_shared(const qn__llvm_math_builder_t* k, qn__math_id_t id,
                                  LLVMValueRef* args) {
  qn__math_place_t place = qn__math_info(id)->places[k->is_f64 ? 1 : 0];
  if (place == QN__MATH_INLINE) return emit(k, (unsigned)id, args);
  if (place == QN__MATH_LANES && k->lanes != 0) return each_lane(k, id, args);
  return call(k, id, args);
}
