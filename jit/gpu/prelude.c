// jit/gpu/prelude.c: the table of the helpers, and the writer that picks rows from it.
//
// A row is a helper's text and when it is the right one. Several rows may have one name; the first
// whose conditions hold is written. A row may use what stands in rows above it: the writer finds
// the names in its text, so that nothing has to be listed. Polynomials are rows without a text,
// written from the coefficients that the LLVM generator uses too.
// Not here: the mathematics (prelude_*.inc). Thread rule: constant. Read next: prelude_int.inc.
#include "jit/gpu/prelude.h"

#include <ctype.h>
#include <stdio.h>

#include "base/base.h"
#include "ir/ir.h"

// What must hold for a row; none: always right.
enum {
  QN_ON_CUDA = 1,
  QN_ON_GLSL = 2,
  QN_WITH_I64 = 4,
  QN_WITH_F64 = 8,
  QN_WITH_FMA = 16,
};

typedef struct row {
  const char* name;
  uint32_t when;
  const char* text;
} row_t;

static const row_t ROWS[] = {
#define QN_ROW(when, name, ...) {#name, when, #__VA_ARGS__},
#define QN_TEXT_ROW(when, name, text) {name, when, text},
#include "jit/gpu/prelude_int.inc"

#include "jit/gpu/prelude_convert.inc"

#include "jit/gpu/prelude_float.inc"
#undef QN_ROW
#undef QN_TEXT_ROW
};
enum { ROW_COUNT = sizeof(ROWS) / sizeof(ROWS[0]) };
static_assert((int)ROW_COUNT <= (int)QN__PRELUDE_MAX, "a use has a place for every row");

static const char CUDA_WORDS[] =
    "typedef unsigned int uint;\n"
    "typedef long long qn_i64;\n"
    "typedef unsigned long long qn_u64;\n"
    "#define QN_FN static __device__ __forceinline__\n"
    "#define QN_F32_BITS(x) __float_as_uint(x)\n"
    "#define QN_F32_FROM(x) __uint_as_float(x)\n"
    "#define QN_F64_BITS(x) qn_u64(__double_as_longlong(x))\n"
    "#define QN_F64_FROM(x) __longlong_as_double(qn_i64(x))\n"
    "#define QN_F64_HIGH(x) uint(__double2hiint(x))\n"
    "#define QN_F64_LOW(x) uint(__double2loint(x))\n"
    "#define QN_F64_JOIN(high, low) __hiloint2double(int(high), int(low))\n"
    "#define QN_U64(high, low) (qn_u64(high) << 32 | qn_u64(low))\n"
    "#define QN_POPCOUNT_u32(x) __popc(x)\n"
    "#define QN_POPCOUNT_i32(x) __popc(x)\n"
    "#define QN_POPCOUNT_u64(x) __popcll(x)\n"
    "#define QN_POPCOUNT_i64(x) __popcll(x)\n"
    "#define QN_CLZ_u32(x) __clz(int(x))\n"
    "#define QN_CLZ_i32(x) __clz(int(x))\n"
    "#define QN_CLZ_u64(x) __clzll(qn_i64(x))\n"
    "#define QN_CLZ_i64(x) __clzll(qn_i64(x))\n";

static const char GLSL_WORDS[] =
    "#define QN_FN precise\n"
    "#define QN_F32_BITS(x) floatBitsToUint(x)\n"
    "#define QN_F32_FROM(x) uintBitsToFloat(x)\n"
    "#define QN_POPCOUNT_u32(x) bitCount(x)\n"
    "#define QN_POPCOUNT_i32(x) bitCount(x)\n"
    "#define QN_CLZ_u32(x) (31 - findMSB(x))\n"
    "#define QN_CLZ_i32(x) (31 - findMSB(x))\n";

static const char GLSL_I64_WORDS[] =
    "#define qn_i64 int64_t\n"
    "#define qn_u64 uint64_t\n"
    "#define QN_U64(high, low) (qn_u64(high) << 32 | qn_u64(low))\n"
    "#define QN_POPCOUNT_u64(x) (bitCount(uint(x)) + bitCount(uint((x) >> 32)))\n"
    "#define QN_POPCOUNT_i64(x) QN_POPCOUNT_u64(x)\n"
    "#define QN_CLZ_u64(x) (uint((x) >> 32) != 0u ? 31 - findMSB(uint((x) >> 32)) : "
    "63 - findMSB(uint(x)))\n"
    "#define QN_CLZ_i64(x) QN_CLZ_u64(x)\n";

static const char GLSL_F64_WORDS[] =
    "#define QN_F64_HIGH(v) unpackDouble2x32(v).y\n"
    "#define QN_F64_LOW(v) unpackDouble2x32(v).x\n"
    "#define QN_F64_JOIN(high, low) packDouble2x32(uvec2(low, high))\n";

static const char GLSL_I64_F64_WORDS[] =
    "#define QN_F64_BITS(x) doubleBitsToUint64(x)\n"
    "#define QN_F64_FROM(x) uint64BitsToDouble(x)\n";

static int find(const char* name, size_t length) {
  for (int i = 0; i < ROW_COUNT; i++) {
    if (strncmp(ROWS[i].name, name, length) == 0 && ROWS[i].name[length] == '\0') return i;
  }
  return -1;
}

int qn__prelude_find(const char* name) {
  return find(name, strlen(name));
}

// ------------------------------------------------------------------------------------ operators

// What a name consists of where an operator has a helper for some kinds of dtypes.
typedef struct op_row {
  qn_op_t op;
  const char* name;
  bool for_signed;
  bool for_unsigned;
  bool for_float;
} op_row_t;

static const op_row_t OPS[] = {
    {QN_OP_ADD, "add", true, false, false},
    {QN_OP_SUB, "sub", true, false, false},
    {QN_OP_MUL, "mul", true, false, false},
    {QN_OP_NEG, "neg", true, false, false},
    {QN_OP_DIV, "div", false, false, true},
    {QN_OP_FLOORDIV, "floordiv", true, true, false},
    {QN_OP_FLOORMOD, "floormod", true, true, false},
    {QN_OP_TRUNCDIV, "truncdiv", true, true, false},
    {QN_OP_TRUNCMOD, "truncmod", true, true, false},
    {QN_OP_CEILDIV, "ceildiv", true, true, false},
    {QN_OP_MIN, "min", true, true, true},
    {QN_OP_MAX, "max", true, true, true},
    {QN_OP_ABS, "abs", true, false, true},
    {QN_OP_SHL, "shl", true, true, false},
    {QN_OP_SHR, "shr", true, true, false},
    {QN_OP_POPCOUNT, "popcount", true, true, false},
    {QN_OP_CLZ, "clz", true, true, false},
    {QN_OP_FMA, "fma", false, false, true},
    {QN_OP_SQRT, "sqrt", false, false, true},
    {QN_OP_RSQRT, "rsqrt", false, false, true},
    {QN_OP_EXP, "exp", false, false, true},
    {QN_OP_EXP2, "exp2", false, false, true},
    {QN_OP_LOG, "log", false, false, true},
    {QN_OP_LOG2, "log2", false, false, true},
    {QN_OP_TANH, "tanh", false, false, true},
    {QN_OP_ERF, "erf", false, false, true},
    {QN_OP_SIN, "sin", false, false, true},
    {QN_OP_COS, "cos", false, false, true},
    {QN_OP_POW, "pow", false, false, true},
    {QN_OP_FLOOR, "floor", false, false, true},
    {QN_OP_CEIL, "ceil", false, false, true},
    {QN_OP_ROUND, "round", false, false, true},
    {QN_OP_TRUNC, "trunc", false, false, true},
    {QN_OP_COPYSIGN, "copysign", false, false, true},
    {QN_OP_ISNAN, "isnan", false, false, true},
    {QN_OP_ISINF, "isinf", false, false, true},
    {QN_OP_ISFINITE, "isfinite", false, false, true},
};

// The type that a dtype is computed in, as names spell it.
static const char* compute_type(qn_dtype_t dtype) {
  switch (dtype) {
    case QN_DTYPE_I8:
    case QN_DTYPE_I16:
    case QN_DTYPE_I32:
      return "i32";
    case QN_DTYPE_U8:
    case QN_DTYPE_U16:
    case QN_DTYPE_U32:
      return "u32";
    case QN_DTYPE_I64:
      return "i64";
    case QN_DTYPE_U64:
      return "u64";
    case QN_DTYPE_F16:
    case QN_DTYPE_BF16:
    case QN_DTYPE_F32:
      return "f32";
    case QN_DTYPE_F64:
      return "f64";
    default:
      return NULL;
  }
}

const char* qn__prelude_op(qn_op_t op, qn_dtype_t dtype) {
  const char* type = compute_type(dtype);
  if (type == NULL) return NULL;
  for (size_t i = 0; i < sizeof(OPS) / sizeof(OPS[0]); i++) {
    const op_row_t* row = &OPS[i];
    if (row->op != op) continue;
    bool is_meant = type[0] == 'f'   ? row->for_float
                    : type[0] == 'i' ? row->for_signed
                                     : row->for_unsigned;
    if (!is_meant) return NULL;
    char name[32];
    snprintf(name, sizeof name, "qn_%s_%s", row->name, type);
    int at = qn__prelude_find(name);
    return at < 0 ? NULL : ROWS[at].name;
  }
  return NULL;
}

// ------------------------------------------------------------------------------------ writing

static bool holds(const row_t* row, uint32_t what_is) {
  return (row->when & ~what_is) == 0;
}

// Marks all names that begin with "qn_" in a text.
static void mark_names(const char* text, bool* is_used) {
  for (const char* at = text; *at != '\0';) {
    if (!isalpha((unsigned char)*at) && *at != '_') {
      at++;
      continue;
    }
    const char* end = at;
    while (isalnum((unsigned char)*end) || *end == '_') end++;
    int row = strncmp(at, "qn_", 3) == 0 ? find(at, (size_t)(end - at)) : -1;
    if (row >= 0) is_used[row] = true;
    at = end;
  }
}

void qn__prelude_write(const qn__prelude_use_t* use, bool is_glsl, bool has_native_fma,
                       bool has_int64, bool has_float64, qn__buffer_t* out) {
  uint32_t what_is = is_glsl ? QN_ON_GLSL : QN_ON_CUDA;
  if (has_int64 || !is_glsl) what_is |= QN_WITH_I64;
  if (has_float64 || !is_glsl) what_is |= QN_WITH_F64;
  if (has_native_fma || !is_glsl) what_is |= QN_WITH_FMA;
  qn__buffer_cstr(out, is_glsl ? GLSL_WORDS : CUDA_WORDS);
  if (is_glsl && has_int64) qn__buffer_cstr(out, GLSL_I64_WORDS);
  if (is_glsl && has_float64) qn__buffer_cstr(out, GLSL_F64_WORDS);
  if (is_glsl && has_int64 && has_float64) qn__buffer_cstr(out, GLSL_I64_F64_WORDS);

  // A name is marked at its first row and written at the first that holds. What is used stands
  // above its user, so that one walk upwards finds everything.
  bool is_used[ROW_COUNT];
  bool is_written[ROW_COUNT] = {false};
  memcpy(is_used, use->is_used, sizeof is_used);
  for (int i = ROW_COUNT - 1; i >= 0; i--) {
    int first = find(ROWS[i].name, strlen(ROWS[i].name));
    bool is_right = holds(&ROWS[i], what_is);
    for (int j = first; is_right && j < i; j++) {
      is_right = strcmp(ROWS[j].name, ROWS[i].name) != 0 || !holds(&ROWS[j], what_is);
    }
    if (!is_used[first] || !is_right) continue;
    is_written[i] = true;
    mark_names(ROWS[i].text, is_used);
  }
  for (int i = 0; i < ROW_COUNT; i++) {
    if (!is_written[i]) continue;
    qn__buffer_cstr(out, ROWS[i].text);
    qn__buffer_char(out, '\n');
  }
}
