// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_dot.c: emits dot products of words (ir/dots.inc) by the instructions of the target.
//
// dots.inc says which processors have which instruction. Vectors of several registers are split. An
// operator without an instruction becomes products and sums, which is right everywhere: passes use
// only operators with one.
#include "jit/llvm/emit_inner.h"
#include "target/target.h"

typedef enum elements {
  ELEMENTS_I32,
  ELEMENTS_I16,
  ELEMENTS_I8,
  ELEMENTS_BF16,
} elements_t;

typedef enum dot_kind {
  KIND_SUM,
  KIND_TYPED,
  KIND_PRODUCT,
} dot_kind_t;

static const struct {
  int op;
  const char* arch;
  const char* features[2];
  uint32_t bytes;
  elements_t elements;
  dot_kind_t kind;
  const char* name;
} table[] = {
#define QN_DOT_ROW(op, arch, first, second, bytes, elements, kind, name) \
  {QN__OP_##op, arch, {first, second}, bytes, ELEMENTS_##elements, KIND_##kind, name},
#include "jit/llvm/dots.inc"
#undef QN_DOT_ROW
};
static_assert(QN_COUNT_OF(table) <= 32, "a set of rows is 32 bits");

uint32_t qn__emit_dot_rows(const qn_target_t* target) {
  uint32_t rows = 0, vector_bytes = qn__target_vector_bytes(target);
  for (uint32_t i = 0; i < QN_COUNT_OF(table); ++i) {
    bool has_all = strcmp(table[i].arch, target->arch->name) == 0 && table[i].bytes <= vector_bytes;
    for (int f = 0; f < 2 && has_all; ++f) {
      const char* name = table[i].features[f];
      has_all = !name[0] || qn__features_has(target->arch, target->features, name);
    }
    if (has_all) rows |= UINT32_C(1) << i;
  }
  return rows;
}

uint32_t qn__emit_dot_ops(uint32_t rows) {
  uint32_t ops = 0;
  for (uint32_t i = 0; i < QN_COUNT_OF(table); ++i) {
    if (rows >> i & 1) ops |= qn__dot_bit(table[i].op);
  }
  return ops;
}

// ------------------------------------------------------------------------------------ instructions

static LLVMTypeRef operand_type(const qn__llvm_emit_t* e, elements_t elements, uint32_t bytes) {
  switch (elements) {
    case ELEMENTS_I8:
      return LLVMVectorType(e->i8, bytes);
    case ELEMENTS_I16:
      return LLVMVectorType(e->i16, bytes / 2);
    case ELEMENTS_BF16:
      return LLVMVectorType(LLVMBFloatTypeInContext(e->context), bytes / 2);
    case ELEMENTS_I32:
      break;
  }
  return LLVMVectorType(e->i32, bytes / 4);
}

// Emits one instruction on whole registers.
static LLVMValueRef emit_row(qn__llvm_emit_t* e, uint32_t row, const LLVMValueRef* args) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = operand_type(e, table[row].elements, table[row].bytes);
  LLVMValueRef in[3] = {args[0], LLVMBuildBitCast(b, args[1], type, ""),
                        LLVMBuildBitCast(b, args[2], type, "")};
  LLVMTypeRef overloads[2] = {LLVMTypeOf(args[0]), type};
  uint32_t overload_count = table[row].kind == KIND_TYPED ? 2 : 0;
  bool adds = table[row].kind != KIND_PRODUCT;
  LLVMValueRef value = qn__llvm_intrinsic(b, table[row].name, overloads, overload_count,
                                          adds ? in : in + 1, adds ? 3 : 2);
  return adds ? value : LLVMBuildAdd(b, args[0], value, "");
}

// Returns `count` lanes of a vector from `first` on.
static LLVMValueRef slice(qn__llvm_emit_t* e, LLVMValueRef vector, uint32_t first, uint32_t count) {
  LLVMValueRef order[QN__EMIT_MAX_LANES];
  assert(count <= QN__EMIT_MAX_LANES);
  for (uint32_t i = 0; i < count; ++i) order[i] = LLVMConstInt(e->i32, first + i, false);
  return LLVMBuildShuffleVector(e->fn->builder, vector, LLVMGetPoison(LLVMTypeOf(vector)),
                                LLVMConstVector(order, count), "");
}

// Returns the vector of two vectors of `count` lanes each.
static LLVMValueRef join(qn__llvm_emit_t* e, LLVMValueRef low, LLVMValueRef high, uint32_t count) {
  LLVMValueRef order[QN__EMIT_MAX_LANES];
  assert(2 * count <= QN__EMIT_MAX_LANES);
  for (uint32_t i = 0; i < 2 * count; ++i) order[i] = LLVMConstInt(e->i32, i, false);
  return LLVMBuildShuffleVector(e->fn->builder, low, high, LLVMConstVector(order, 2 * count), "");
}

// Halves vectors until they fill a register.
static LLVMValueRef emit_halves(qn__llvm_emit_t* e, uint32_t row, uint32_t lanes,
                                const LLVMValueRef* args) {
  if (lanes * 4 == table[row].bytes) return emit_row(e, row, args);
  LLVMValueRef halves[2];
  for (uint32_t h = 0; h < 2; ++h) {
    LLVMValueRef parts[3];
    for (int i = 0; i < 3; ++i) parts[i] = slice(e, args[i], h * lanes / 2, lanes / 2);
    halves[h] = emit_halves(e, row, lanes / 2, parts);
  }
  return join(e, halves[0], halves[1], lanes / 2);
}

// ------------------------------------------------------------------------------------ without one

static LLVMValueRef part(qn__llvm_emit_t* e, LLVMValueRef word, uint32_t i, uint32_t bits,
                         bool is_signed) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = LLVMTypeOf(word);
  LLVMValueRef high = LLVMBuildShl(b, word, qn__llvm_int(type, 32 - bits - i * bits), "");
  LLVMValueRef shift = qn__llvm_int(type, 32 - bits);
  return is_signed ? LLVMBuildAShr(b, high, shift, "") : LLVMBuildLShr(b, high, shift, "");
}

static LLVMValueRef emit_int(qn__llvm_emit_t* e, int op, const LLVMValueRef* args) {
  LLVMBuilderRef b = e->fn->builder;
  uint32_t bits = op == QN__OP_DOT_WORDS ? 16 : 8;
  bool is_a_signed = op == QN__OP_DOT_SS || op == QN__OP_DOT_WORDS;
  LLVMValueRef sum = args[0];
  for (uint32_t i = 0; i < 32 / bits; ++i) {
    LLVMValueRef product = LLVMBuildMul(b, part(e, args[1], i, bits, is_a_signed),
                                        part(e, args[2], i, bits, op != QN__OP_DOT_UU), "");
    sum = LLVMBuildAdd(b, sum, product, "");
  }
  return sum;
}

static LLVMValueRef emit_bf16(qn__llvm_emit_t* e, const LLVMValueRef* args) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef words = LLVMTypeOf(args[1]), floats = LLVMTypeOf(args[0]);
  LLVMValueRef fma[3] = {NULL, NULL, args[0]};
  for (int is_low = 0; is_low < 2; ++is_low) {
    for (int i = 0; i < 2; ++i) {
      LLVMValueRef bits =
          is_low ? LLVMBuildShl(b, args[i + 1], qn__llvm_int(words, 16), "")
                 : LLVMBuildAnd(b, args[i + 1], qn__llvm_int(words, UINT32_C(0xffff0000)), "");
      fma[i] = LLVMBuildBitCast(b, bits, floats, "");
    }
    fma[2] = qn__emit_float_op(e, QN_OP_FMA, QN_DTYPE_F32, fma);
  }
  return fma[2];
}

// Emits LEAST in lanes of 16 bits.
static LLVMValueRef emit_least(qn__llvm_emit_t* e, const LLVMValueRef* args) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef words = LLVMTypeOf(args[0]);
  uint32_t lanes = qn__llvm_lane_count(words);
  LLVMTypeRef halves = LLVMVectorType(e->i16, 2 * (lanes ? lanes : 1));
  LLVMValueRef number = LLVMBuildBitCast(b, LLVMBuildAnd(b, args[1], args[2], ""), halves, "");
  LLVMValueRef least[] = {LLVMBuildBitCast(b, args[0], halves, ""),
                          LLVMBuildSub(b, number, qn__llvm_int(halves, 1), "")};
  LLVMValueRef value = qn__llvm_intrinsic(b, "llvm.umin", &halves, 1, least, 2);
  return LLVMBuildBitCast(b, value, words, "");
}

LLVMValueRef qn__emit_dot(qn__llvm_emit_t* e, qn_op_t op, LLVMValueRef* args) {
  if ((int)op == QN__OP_LEAST) return emit_least(e, args);
  uint32_t lanes = qn__llvm_lane_count(LLVMTypeOf(args[0]));
  for (uint32_t i = 0; i < QN_COUNT_OF(table); ++i) {
    uint32_t own = table[i].bytes / 4;
    bool is_it = table[i].op == (int)op && (e->options->dot_rows >> i & 1);
    // A number of registers that is a power of two.
    bool fits = lanes >= own && lanes % own == 0 && (lanes / own & (lanes / own - 1)) == 0;
    if (is_it && fits) return emit_halves(e, i, lanes, args);
  }
  bool is_bf16 = (int)op == QN__OP_DOT_BF16 || (int)op == QN__OP_DOT_BF16_FAST;
  return is_bf16 ? emit_bf16(e, args) : emit_int(e, (int)op, args);
}
