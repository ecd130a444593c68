// SPDX-License-Identifier: Apache-2.0
// jit/gpu/prelude.c: the table of the helpers, and the writer that selects rows from it.
//
// 1. A row is the text of a helper with the conditions under which that text is right. Several rows
//    may have one name; the first one whose conditions hold is written.
// 2. A row may use the helpers of rows above it. The writer finds their names in its text, so rows
//    list no dependencies.
// 3. A function of ir/math is a row whose text is printed from IR (prelude_math.c).
// 4. Macros that only some kernels need are rows too.
//
// Not here: the texts (prelude_*.inc).
#include "jit/gpu/prelude.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>

#include "base/base.h"
#include "ir/ir.h"
#include "ir/math/math.h"
#include "ir/math/tables.h"

// Conditions of a row; 0: right on every target.
enum {
  QN_ON_CUDA = 1,
  QN_ON_GLSL = 2,
  QN_WITH_I64 = 4,
  QN_WITH_F64 = 8,
  QN_WITH_FMA = 16,
  QN_NOWHERE = 32,  // a function of ir/math that only CPUs use
};

typedef enum row_kind { TEXT, TABLE, FUNCTION } row_kind_t;

typedef struct row {
  const char* name;
  uint32_t when;
  row_kind_t kind;
  const char* text;  // of a table: "u32" or "u64"
  uint32_t count;    // of a table
  qn__math_id_t id;  // of a function
  qn_dtype_t dtype;  // of a function
} row_t;

// The macros of the rows. QN_ROW(when, name, text) is any text. A function is QN_FUNC(when, type,
// name, params, body), or QN_EXPR with the value that it returns instead of a body. Texts are
// stringised, so that they are one line in a kernel; words such as QN_FN are macros of the kernel's
// language, not of C. QN_ASM is a function qn_NAME that is PTX on a CUDA device and qn_soft_NAME
// elsewhere: in GLSL, and in tests that compile CUDA C for the CPU.
static const row_t ROWS[] = {
#define QN_TEXT_ROW(on, row, what) {.name = row, .when = on, .text = what},
#define QN_WORD(on, row, what) QN_TEXT_ROW(on, #row, "#define " #row " " what)
#define QN_ROW(on, row, ...) QN_TEXT_ROW(on, #row, #__VA_ARGS__)
#define QN_FUNC(on, type, row, params, ...) \
  QN_TEXT_ROW(on, #row, "QN_FN " #type " " #row #params " " #__VA_ARGS__)
#define QN_EXPR(on, type, row, params, ...) \
  QN_TEXT_ROW(on, #row, "QN_FN " #type " " #row #params " { return " #__VA_ARGS__ "; }")
#define QN_ASM(type, row, params, args, code)                                   \
  QN_TEXT_ROW(QN_ON_CUDA, "qn_" #row,                                           \
              "QN_FN " #type " qn_" #row #params " {\n#ifdef __CUDACC__\n" code \
              "\n#else\nreturn qn_soft_" #row #args ";\n#endif\n}")             \
  QN_TEXT_ROW(QN_ON_GLSL, "qn_" #row,                                           \
              "QN_FN " #type " qn_" #row #params " { return qn_soft_" #row #args "; }")
#define QN_TABLE_ROW(on, type, row, size) \
  {.name = #row, .when = on, .kind = TABLE, .text = #type, .count = size},
#include "jit/gpu/prelude_int.inc"

#include "jit/gpu/prelude_convert.inc"

#include "jit/gpu/prelude_exact.inc"

#include "jit/gpu/prelude_float.inc"

#include "jit/gpu/prelude_words.inc"
#undef QN_TEXT_ROW
#undef QN_WORD
#undef QN_ROW
#undef QN_FUNC
#undef QN_EXPR
#undef QN_ASM
#undef QN_TABLE_ROW
#define NOTHING 0
#define INT64 QN_WITH_I64
#define WHEN_INLINE 0
#define WHEN_APART 0
#define WHEN_RARE 0
#define WHEN_LANES 0
#define WHEN_ON_CPU QN_NOWHERE
#define WHEN_ABSENT QN_NOWHERE
#define QN_MATH(name, op, arity, f32, f64, needs)                                                   \
  {"qn_" #name "_f32", WHEN_##f32, FUNCTION, "", 0, QN__MATH_ID_##name, QN_DTYPE_F32},              \
      {"qn_" #name "_f64", WHEN_##f64 | QN_WITH_F64 | (needs), FUNCTION, "", 0, QN__MATH_ID_##name, \
       QN_DTYPE_F64},
#include "ir/math/functions.inc"
#undef QN_MATH
};
enum { ROW_COUNT = sizeof(ROWS) / sizeof(ROWS[0]) };
static_assert((int)ROW_COUNT <= (int)QN__GPU_PRELUDE_MAX, "a use has a place for every row");

static const char CUDA_WORDS[] =
    "typedef unsigned int uint;\n"
    "typedef long long qn_i64;\n"
    "typedef unsigned long long qn_u64;\n"
    "#define QN_FN static __device__ __forceinline__\n"
    "#define QN_SLOW static __device__ __noinline__\n"
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
    "#define QN_SLOW precise\n"
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

int qn__gpu_prelude_find(const char* name) {
  return find(name, strlen(name));
}

// ------------------------------------------------------------------------------------ operators

qn_dtype_t qn__gpu_compute_dtype(qn_dtype_t dtype) {
  bool is_64 = qn__dtype_bits(dtype) == 64;
  switch (qn__dtype_class(dtype)) {
    case QN__CLASS_SIGNED:
      return is_64 ? QN_DTYPE_I64 : QN_DTYPE_I32;
    case QN__CLASS_UNSIGNED:
      return is_64 ? QN_DTYPE_U64 : QN_DTYPE_U32;
    case QN__CLASS_STORED_SIGNED:
    case QN__CLASS_STORED_UNSIGNED:
    case QN__CLASS_STORED_FLOAT:
      return QN_DTYPE_U32;  // the bits
    case QN__CLASS_FLOAT:
      return is_64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
    default:
      return dtype;
  }
}

const char* qn__gpu_type_text(qn_dtype_t dtype) {
  static const char* const texts[] = {
      [QN_DTYPE_BOOL] = "bool",  [QN_DTYPE_I32] = "int",    [QN_DTYPE_U32] = "uint",
      [QN_DTYPE_I64] = "qn_i64", [QN_DTYPE_U64] = "qn_u64", [QN_DTYPE_F32] = "float",
      [QN_DTYPE_F64] = "double",
  };
  qn_dtype_t compute = qn__gpu_compute_dtype(dtype);
  assert(compute < QN_COUNT_OF(texts) && texts[compute]);
  return texts[compute];
}

const char* qn__gpu_prelude_op(qn_op_t op, qn_dtype_t dtype) {
  static const char* const names[] = {
      [QN_OP_ADD] = "add", [QN_OP_SUB] = "sub",           [QN_OP_MUL] = "mul",
      [QN_OP_DIV] = "div", [QN_OP_FLOORDIV] = "floordiv", [QN_OP_FLOORMOD] = "floormod",
      [QN_OP_NEG] = "neg", [QN_OP_SHL] = "shl",           [QN_OP_SHR] = "shr",
  };
  const qn__ir_op_info_t* info = qn__op_info(op);
  const char* text = info->syntax == QN__SYNTAX_CALL ? info->text
                     : op < QN_COUNT_OF(names)       ? names[op]
                                                     : NULL;
  qn__math_id_t id;
  if (qn__dtype_is_float(dtype) && qn__math_find(op, dtype, &id)) text = qn__math_info(id)->name;
  if (!text) return NULL;
  char name[32];
  snprintf(name, sizeof name, "qn_%s_%s", text, qn_dtype_text(qn__gpu_compute_dtype(dtype)));
  int row = qn__gpu_prelude_find(name);
  return row < 0 ? NULL : ROWS[row].name;
}

// ------------------------------------------------------------------------------------ writing

static bool holds(const row_t* row, uint32_t what_is) {
  return (row->when & ~what_is) == 0;
}

// Marks all helpers whose names occur in a text.
static void mark_names(const char* text, bool* is_used) {
  for (const char* at = text; *at != '\0';) {
    if (!isalpha((unsigned char)*at) && *at != '_') {
      at++;
      continue;
    }
    const char* end = at;
    while (isalnum((unsigned char)*end) || *end == '_') end++;
    int row = strncmp(at, "qn_", 3) == 0 || strncmp(at, "QN_", 3) == 0
                  ? find(at, (size_t)(end - at))
                  : -1;
    if (row >= 0) is_used[row] = true;
    at = end;
  }
}

// Writes a row of kind TABLE: the bits of 2/pi.
static void write_table(const row_t* row, bool is_glsl, qn__buffer_t* out) {
  bool is_u64 = strcmp(row->text, "u64") == 0;
  const char* type = is_u64 ? "qn_u64" : "uint";
  if (is_glsl) {
    qn__buffer_format(out, "const %s %s[%u] = {", type, row->name, row->count);
  } else {
    qn__buffer_format(out, "__constant__ %s %s[%u] = {", type, row->name, row->count);
  }
  for (uint32_t i = 0; i < row->count; i++) {
    if (i > 0) qn__buffer_char(out, ',');
    if (is_u64) {
      unsigned long long word = two_over_pi[i];
      qn__buffer_format(out, "QN_U64(0x%xu, 0x%xu)", (uint32_t)(word >> 32), (uint32_t)word);
    } else {
      unsigned long long word = i == 0 ? 0 : two_over_pi[(i + 1) / 2];
      qn__buffer_format(out, "0x%xu", (uint32_t)(i % 2 == 1 ? word >> 32 : word));
    }
  }
  qn__buffer_cstr(out, "};");
}

// Writes a text and replaces its literals: QN_LIT_f32(2.0) by 2.0f, and QN_LIT_f64(2.0) by 2.0, in
// GLSL by 2.0LF. A macro cannot do that, because GLSL's preprocessor has no `##`.
static void write_text(const char* text, bool is_glsl, qn__buffer_t* out) {
  static const char PREFIX[] = "QN_LIT_f";
  for (;;) {
    const char* at = strstr(text, PREFIX);
    if (at == NULL) break;
    qn__buffer_str(out, (qn_str_t){text, (size_t)(at - text)});
    bool is_f64 = at[sizeof PREFIX - 1] == '6';
    at += sizeof "QN_LIT_f32(" - 1;
    const char* end = strchr(at, ')');
    if (QN_NEVER(end == NULL)) return;
    // Digits alone would be an integer literal.
    bool has_point =
        memchr(at, '.', (size_t)(end - at)) != NULL || memchr(at, 'e', (size_t)(end - at)) != NULL;
    qn__buffer_str(out, (qn_str_t){at, (size_t)(end - at)});
    qn__buffer_format(out, "%s%s", has_point ? "" : ".0", is_f64 ? is_glsl ? "LF" : "" : "f");
    text = end + 1;
  }
  qn__buffer_cstr(out, text);
}

// Makes the text of a row; write_text replaces its literals later.
static void make_text(const row_t* row, bool is_glsl, bool has_fma, qn__buffer_t* out) {
  if (row->kind == TEXT) {
    qn__buffer_cstr(out, row->text);
  } else if (row->kind == TABLE) {
    write_table(row, is_glsl, out);
  } else {
    qn__gpu_prelude_write_function(row->id, row->dtype, has_fma, out);
  }
}

bool qn__gpu_prelude_is_without_int64(const char* name) {
  for (int i = 0; i < ROW_COUNT; i++) {
    bool is_any = (ROWS[i].when & (QN_ON_CUDA | QN_WITH_I64)) == 0;
    if (is_any && strcmp(ROWS[i].name, name) == 0) return true;
  }
  return false;
}

void qn__gpu_prelude_write(const qn__gpu_prelude_use_t* use, bool is_glsl, bool has_native_fma,
                           bool has_int64, bool has_float64, qn__buffer_t* out) {
  uint32_t what_is = is_glsl ? QN_ON_GLSL : QN_ON_CUDA;
  if (has_int64 || !is_glsl) what_is |= QN_WITH_I64;
  if (has_float64 || !is_glsl) what_is |= QN_WITH_F64;
  if (has_native_fma || !is_glsl) what_is |= QN_WITH_FMA;
  qn__buffer_cstr(out, is_glsl ? GLSL_WORDS : CUDA_WORDS);
  if (is_glsl && has_int64) qn__buffer_cstr(out, GLSL_I64_WORDS);
  if (is_glsl && has_float64) qn__buffer_cstr(out, GLSL_F64_WORDS);
  if (is_glsl && has_int64 && has_float64) qn__buffer_cstr(out, GLSL_I64_F64_WORDS);

  // A name is marked at its first row, and written from its first row whose conditions hold. A row
  // uses only rows above it, so one pass from the last row to the first finds all helpers.
  bool has_fma = (what_is & QN_WITH_FMA) != 0;
  bool is_used[ROW_COUNT];
  qn__buffer_t texts[ROW_COUNT];
  memcpy(is_used, use->is_used, sizeof is_used);
  for (int i = ROW_COUNT - 1; i >= 0; i--) {
    qn__buffer_init(&texts[i], out->allocator);
    int first = find(ROWS[i].name, strlen(ROWS[i].name));
    assert(first >= 0 && first <= i);
    bool is_right = holds(&ROWS[i], what_is);
    for (int j = first; is_right && j < i; j++) {
      is_right = strcmp(ROWS[j].name, ROWS[i].name) != 0 || !holds(&ROWS[j], what_is);
    }
    if (!is_used[first] || !is_right) continue;
    make_text(&ROWS[i], is_glsl, has_fma, &texts[i]);
    out->has_failed |= texts[i].has_failed;
    if (!out->has_failed) mark_names((const char*)texts[i].data, is_used);
  }
  for (int i = 0; i < ROW_COUNT; i++) {
    if (!out->has_failed && texts[i].size > 0) {
      write_text((const char*)texts[i].data, is_glsl, out);
      qn__buffer_char(out, '\n');
    }
    qn__buffer_deinit(&texts[i]);
  }
}
