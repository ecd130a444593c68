// SPDX-License-Identifier: Apache-2.0
// Tests the prelude's integer helpers, conversions and exact float functions, compiled as C++,
// against the interpreter's arithmetic; and the prelude's writer.
//
// Every helper of qn__gpu_prelude_op and every conversion runs for CUDA and GLSL with each set of
// features, on small numbers, edge cases and random bits. Functions with an error bound:
// test_prelude_math.c.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// After those that it needs.
#include <cmocka.h>

#include "base/base.h"
#include "ir/ir.h"
#include "jit/gpu/prelude.h"
#include "tests/support/rounding.h"
#include "tests/unit/gpu_codegen/support_prelude.h"

typedef void (*loop_t)(const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* out,
                       size_t count);

static const qn_dtype_t WIDE[] = {QN_DTYPE_I32, QN_DTYPE_U32, QN_DTYPE_I64,
                                  QN_DTYPE_U64, QN_DTYPE_F32, QN_DTYPE_F64};
enum { WIDE_COUNT = sizeof(WIDE) / sizeof(WIDE[0]) };

static const qn_dtype_t ALL[] = {QN_DTYPE_I8,  QN_DTYPE_I16,  QN_DTYPE_I32, QN_DTYPE_I64,
                                 QN_DTYPE_U8,  QN_DTYPE_U16,  QN_DTYPE_U32, QN_DTYPE_U64,
                                 QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_F32, QN_DTYPE_F64};
enum { ALL_COUNT = sizeof(ALL) / sizeof(ALL[0]) };

// Operators with an error bound are test_prelude_math's.
static bool is_exact(qn_op_t op) {
  qn__math_id_t id;
  bool is_exact_function = op == QN_OP_FMOD || op == QN_OP_NEXTAFTER;
  return op != QN_OP_RSQRT && (is_exact_function || !qn__math_find(op, QN_DTYPE_F32, &id));
}

static bool has_dtype(const prelude_mode_t* mode, qn_dtype_t dtype) {
  if (dtype == QN_DTYPE_I64 || dtype == QN_DTYPE_U64) return mode->has_int64;
  return dtype != QN_DTYPE_F64 || mode->has_float64;
}

static bool is_division(qn_op_t op) {
  return op == QN_OP_FLOORDIV || op == QN_OP_FLOORMOD || op == QN_OP_TRUNCDIV ||
         op == QN_OP_TRUNCMOD || op == QN_OP_CEILDIV;
}

// The helper that converts, NULL when the printer does without one.
static bool cast_name(qn_dtype_t from, qn_dtype_t to, char name[32]) {
  snprintf(name, 32, "qn_%s_from_%s", qn_dtype_text(to), qn_dtype_text(from));
  return qn__gpu_prelude_find(name) >= 0;
}

// ------------------------------------------------------------------------------------ the text

static const char WORDS[] =
    "#include <stdint.h>\n#include <stddef.h>\n#include <string.h>\n"
    "template <class T> static inline T get(uint64_t x) { T y; memcpy(&y, &x, sizeof y); return y; "
    "}\n"
    "template <class T> static inline uint64_t put(T x)"
    " { uint64_t y = 0; memcpy(&y, &x, sizeof x); return y; }\n"
    "#define LOOP(id, ...) extern \"C\" __attribute__((visibility(\"default\"))) void id("
    "const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* out, size_t n)"
    " { for (size_t i = 0; i < n; i++) out[i] = put(__VA_ARGS__); }\n";

// As a kernel holds a dtype: the bits of f16 and bf16 in a uint.
static const char* held_type(qn_dtype_t dtype) {
  switch (dtype) {
    case QN_DTYPE_F32:
      return "float";
    case QN_DTYPE_F64:
      return "double";
    case QN_DTYPE_I64:
      return "int64_t";
    case QN_DTYPE_U64:
      return "uint64_t";
    case QN_DTYPE_I8:
    case QN_DTYPE_I16:
    case QN_DTYPE_I32:
      return "int";
    default:
      return "uint";
  }
}

static void* build(const prelude_mode_t* mode) {
  enum { CAPACITY = 1 << 18 };
  static char text[CAPACITY];
  int at = snprintf(text, CAPACITY, "%s", WORDS);
  for (int op = 1; op < QN_OP_COUNT; op++) {
    for (int d = 0; d < WIDE_COUNT; d++) {
      const char* name = qn__gpu_prelude_op((qn_op_t)op, WIDE[d]);
      if (name == NULL || !is_exact((qn_op_t)op) || !has_dtype(mode, WIDE[d])) continue;
      const char* type = held_type(WIDE[d]);
      const uint32_t arity = qn__op_info((qn_op_t)op)->arity;
      at += snprintf(text + at, (size_t)(CAPACITY - at), "LOOP(op_%d_%d, %s(get<%s>(a[i])", op, d,
                     name, type);
      for (uint32_t k = 1; k < arity; k++) {
        at += snprintf(text + at, (size_t)(CAPACITY - at), ", get<%s>(%s[i])", type,
                       k == 1 ? "b" : "c");
      }
      at += snprintf(text + at, (size_t)(CAPACITY - at), "))\n");
    }
  }
  for (int k = 0; k < ALL_COUNT * ALL_COUNT; k++) {
    char name[32];
    qn_dtype_t from = ALL[k / ALL_COUNT], to = ALL[k % ALL_COUNT];
    if (!has_dtype(mode, from) || !has_dtype(mode, to) || !cast_name(from, to, name)) continue;
    at += snprintf(text + at, (size_t)(CAPACITY - at), "LOOP(cast_%d, %s(get<%s>(a[i])))\n", k,
                   name, held_type(from));
  }
  at += snprintf(text + at, (size_t)(CAPACITY - at),
                 "LOOP(round_f16, qn_roundto_f16(get<float>(a[i])))\n"
                 "LOOP(round_bf16, qn_roundto_bf16(get<float>(a[i])))\n"
                 "LOOP(next_f16, qn_roundto_f16(qn_nextafter_f16_f32(get<float>(a[i]), "
                 "get<float>(b[i]))))\n"
                 "LOOP(next_bf16, qn_roundto_bf16(qn_nextafter_bf16_f32(get<float>(a[i]), "
                 "get<float>(b[i]))))\n"
                 "LOOP(mulhi_u32, qn_mulhi_u32(get<uint>(a[i]), get<uint>(b[i])))\n"
                 "LOOP(mulhi_i32, qn_mulhi_i32(get<int>(a[i]), get<int>(b[i])))\n");
  if (mode->has_int64) {
    at += snprintf(text + at, (size_t)(CAPACITY - at),
                   "LOOP(mulhi_u64, qn_mulhi_u64(get<uint64_t>(a[i]), get<uint64_t>(b[i])))\n"
                   "LOOP(mulhi_i64, qn_mulhi_i64(get<int64_t>(a[i]), get<int64_t>(b[i])))\n");
  }
  assert_true(at < CAPACITY);
  const char* error = NULL;
  void* built = prelude_build(mode, text, &error);
  if (built == NULL && error[0] != '\0') fail_msg("%s: %s", mode->name, error);
  return built;
}

static loop_t find(void* built, const char* name) {
  void* symbol = prelude_symbol(built, name);
  loop_t loop = NULL;
  memcpy(&loop, &symbol, sizeof loop);
  assert_non_null(loop);
  return loop;
}

// ------------------------------------------------------------------------------------ inputs

typedef struct columns {
  size_t count;
  uint64_t* value[3];
  uint64_t* out;
} columns_t;

static uint64_t random_state;

static uint64_t random_bits(void) {
  uint64_t z = (random_state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

// Integers around zero and around every power of two, floats of every exponent and their edges.
static uint64_t interesting(qn_dtype_t dtype) {
  uint64_t r = random_bits();
  uint64_t mask =
      qn__dtype_bits(dtype) >= 64 ? UINT64_MAX : (UINT64_C(1) << qn__dtype_bits(dtype)) - 1;
  if (!qn__dtype_is_float(dtype)) {
    uint64_t power = UINT64_C(1) << (r >> 8 & 63);
    uint64_t near = (r >> 16 & 3) == 0 ? power : (r >> 16 & 3) == 1 ? 0 - power : 0;
    return ((r & 3) == 0 ? r >> (r >> 20 & 31) : near + (r >> 24) % 9 - 4) & mask;
  }
  if ((r & 3) == 0) return r >> 2 & mask;
  // A small integer, a half, a power of two and its neighbours.
  double value = (double)(int64_t)(r >> 8 & 0xfff) - 2048;
  if ((r & 3) == 1) value *= 0.5;
  if ((r & 3) == 2) {
    int up = (int)(r >> 8 & 127) - 40;
    value = up < 0    ? 1 / (double)(UINT64_C(1) << -up)
            : up > 63 ? 0x1p64
                      : (double)(UINT64_C(1) << up);
    if ((r >> 16 & 1) != 0) value = -value;
  }
  uint64_t bits = qn__scalar_to_bits(
      dtype, qn__scalar_cast(QN_DTYPE_F64, (qn__ir_scalar_t){.f = value}, dtype));
  return (r >> 20 & 1) != 0 ? bits : (bits + (r >> 21) % 5 - 2) & mask;
}

static columns_t make_columns(qn_dtype_t dtype, size_t count) {
  columns_t columns = {.count = count};
  random_state = 7;
  for (int k = 0; k < 3; k++) {
    columns.value[k] = calloc(count, sizeof(uint64_t));
    assert_non_null(columns.value[k]);
    for (size_t i = 0; i < count; i++) columns.value[k][i] = interesting(dtype);
  }
  // All pairs of small numbers.
  size_t at = 0;
  uint64_t mask = qn__dtype_bits(dtype) >= 64 ? UINT64_MAX : UINT32_MAX;
  for (int a = -40; a <= 40 && !qn__dtype_is_float(dtype); a++) {
    for (int b = -40; b <= 40; b++, at++) {
      columns.value[0][at] = (uint64_t)(int64_t)a & mask;
      columns.value[1][at] = (uint64_t)(int64_t)b & mask;
    }
  }
  columns.out = calloc(count, sizeof(uint64_t));
  assert_non_null(columns.out);
  return columns;
}

static void free_columns(columns_t* columns) {
  for (int k = 0; k < 3; k++) free(columns->value[k]);
  free(columns->out);
}

static bool is_nan_bits(qn_dtype_t dtype, uint64_t bits) {
  if (!qn__dtype_is_float(dtype)) return false;
  double value = qn__scalar_from_bits(dtype, bits).f;
  return value != value;
}

// ------------------------------------------------------------------------------------ tests

static void* modes[PRELUDE_MODE_COUNT];

static int build_all(void** state) {
  (void)state;
  for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) modes[m] = build(&PRELUDE_MODES[m]);
  return 0;
}

static int free_all(void** state) {
  (void)state;
  for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
    if (modes[m] != NULL) prelude_free(modes[m]);
  }
  return 0;
}

static void check_op(size_t m, qn_op_t op, int d, columns_t* columns) {
  char name[32];
  qn_dtype_t dtype = WIDE[d];
  snprintf(name, sizeof name, "op_%d_%d", (int)op, d);
  loop_t loop = find(modes[m], name);
  loop(columns->value[0], columns->value[1], columns->value[2], columns->out, columns->count);
  bool is_test = qn__op_info(op)->rule == QN__RULE_TEST;
  qn_dtype_t result = is_test ? QN_DTYPE_BOOL : dtype;
  for (size_t i = 0; i < columns->count; i++) {
    qn__ir_scalar_t args[3], wanted;
    for (int k = 0; k < 3; k++) args[k] = qn__scalar_from_bits(dtype, columns->value[k][i]);
    if (is_division(op) && args[1].i == 0) continue;
    assert_true(qn__scalar_op(op, dtype, args, &wanted));
    uint64_t bits = qn__scalar_to_bits(result, wanted);
    uint64_t got = columns->out[i];
    if (bits == got || (is_nan_bits(result, bits) && is_nan_bits(result, got))) continue;
    fail_msg("%s: %s %s of %#llx, %#llx, %#llx is %#llx, not %#llx", PRELUDE_MODES[m].name,
             qn__gpu_prelude_op(op, dtype), qn_dtype_text(dtype),
             (unsigned long long)columns->value[0][i], (unsigned long long)columns->value[1][i],
             (unsigned long long)columns->value[2][i], (unsigned long long)got,
             (unsigned long long)bits);
  }
}

static void test_operators(void** state) {
  (void)state;
  if (modes[0] == NULL) skip();
  for (int d = 0; d < WIDE_COUNT; d++) {
    columns_t columns = make_columns(WIDE[d], 60000);
    for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
      for (int op = 1; op < QN_OP_COUNT; op++) {
        bool is_meant = qn__gpu_prelude_op((qn_op_t)op, WIDE[d]) != NULL && is_exact((qn_op_t)op);
        if (is_meant && has_dtype(&PRELUDE_MODES[m], WIDE[d]))
          check_op(m, (qn_op_t)op, d, &columns);
      }
    }
    free_columns(&columns);
  }
}

// The bits of what the language's conversion gives, as a kernel holds it.
static uint64_t cast_bits(qn_dtype_t from, uint64_t bits, qn_dtype_t to) {
  qn__ir_scalar_t value = qn__scalar_cast(from, qn__scalar_from_bits(from, bits), to);
  uint64_t result = qn__scalar_to_bits(to, value);
  // Narrow integers are held in 32 bits.
  if (to == QN_DTYPE_I8 || to == QN_DTYPE_I16) return (uint32_t)value.i;
  return result;
}

static void test_conversions(void** state) {
  (void)state;
  if (modes[0] == NULL) skip();
  for (int k = 0; k < ALL_COUNT * ALL_COUNT; k++) {
    char name[32], loop_name[32];
    qn_dtype_t from = ALL[k / ALL_COUNT], to = ALL[k % ALL_COUNT];
    if (!cast_name(from, to, name)) continue;
    size_t count = qn__dtype_bits(from) == 16 ? 65536 : 200000;
    columns_t columns = make_columns(from, count);
    for (size_t i = 0; count == 65536 && i < count; i++) columns.value[0][i] = i;
    for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
      if (!has_dtype(&PRELUDE_MODES[m], from) || !has_dtype(&PRELUDE_MODES[m], to)) continue;
      snprintf(loop_name, sizeof loop_name, "cast_%d", k);
      find(modes[m], loop_name)(columns.value[0], NULL, NULL, columns.out, count);
      for (size_t i = 0; i < count; i++) {
        uint64_t wanted = cast_bits(from, columns.value[0][i], to);
        uint64_t got = columns.out[i];
        if (wanted == got || (is_nan_bits(to, wanted) && is_nan_bits(to, got))) continue;
        fail_msg("%s: %s of %#llx is %#llx, not %#llx", PRELUDE_MODES[m].name, name,
                 (unsigned long long)columns.value[0][i], (unsigned long long)got,
                 (unsigned long long)wanted);
      }
    }
    free_columns(&columns);
  }
}

// The neighbours of every f16 and bf16, which a kernel holds as f32.
static void test_narrow_neighbours(void** state) {
  (void)state;
  if (modes[0] == NULL) skip();
  static const double targets[] = {
      0.0,      -0.0, 0x1p-24,          0x1p-14,           -1,         65504.0,
      0x1p-133, 1e30, (double)INFINITY, (double)-INFINITY, (double)NAN};
  enum { COUNT = 1 << 16 };
  uint64_t* columns[3];
  for (int k = 0; k < 3; k++) assert_non_null(columns[k] = calloc(COUNT, sizeof **columns));
  for (size_t t = 0; t < 2 * QN_COUNT_OF(targets); t++) {
    qn_dtype_t dtype = t % 2 == 0 ? QN_DTYPE_F16 : QN_DTYPE_BF16;
    qn__ir_scalar_t args[2] = {{0}, {.f = qn__round_float(dtype, targets[t / 2])}};
    for (uint64_t i = 0; i < COUNT; i++) {
      columns[0][i] = qn__scalar_to_bits(QN_DTYPE_F32, qn__scalar_from_bits(dtype, i));
      columns[1][i] = qn__scalar_to_bits(QN_DTYPE_F32, args[1]);
    }
    for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
      loop_t loop = find(modes[m], t % 2 == 0 ? "next_f16" : "next_bf16");
      loop(columns[0], columns[1], NULL, columns[2], COUNT);
      for (uint64_t i = 0; i < COUNT; i++) {
        qn__ir_scalar_t wanted;
        args[0] = qn__scalar_from_bits(dtype, i);
        assert_true(qn__scalar_op(QN_OP_NEXTAFTER, dtype, args, &wanted));
        double got = qn__scalar_from_bits(QN_DTYPE_F32, columns[2][i]).f;
        if (wanted.f == got && signbit(wanted.f) == signbit(got)) continue;
        if (wanted.f != wanted.f && got != got) continue;
        fail_msg("%s: the neighbour of %a towards %a is %a, not %a", PRELUDE_MODES[m].name,
                 args[0].f, args[1].f, got, wanted.f);
      }
    }
  }
  for (int k = 0; k < 3; k++) free(columns[k]);
}

// What more than f32 holds becomes f16 or bf16 by one rounding.
static void test_rounded_once(void** state) {
  (void)state;
  if (modes[0] == NULL) skip();
  static const qn_dtype_t sources[] = {[QN_TEST_FROM_F64] = QN_DTYPE_F64,
                                       [QN_TEST_FROM_I32] = QN_DTYPE_I32,
                                       [QN_TEST_FROM_U32] = QN_DTYPE_U32,
                                       [QN_TEST_FROM_I64] = QN_DTYPE_I64,
                                       [QN_TEST_FROM_U64] = QN_DTYPE_U64};
  size_t checked_count = 0;
  for (int k = 0; k < ALL_COUNT * ALL_COUNT; k++) {
    qn_dtype_t from = ALL[k / ALL_COUNT], to = ALL[k % ALL_COUNT];
    int source = 4;
    while (source >= 0 && sources[source] != from) source--;
    bool is_bf16 = to == QN_DTYPE_BF16;
    if (source < 0 || (!is_bf16 && (to != QN_DTYPE_F16 || source != QN_TEST_FROM_F64))) continue;
    size_t count = 0;
    qn_test_rounding_t* cases = qn_test_rounding_cases((qn_test_source_t)source, is_bf16, &count);
    uint64_t* in = calloc(count, sizeof *in);
    uint64_t* out = calloc(count, sizeof *out);
    assert_true(cases && in && out);
    for (size_t i = 0; i < count; i++) in[i] = cases[i].from;
    for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
      if (!has_dtype(&PRELUDE_MODES[m], from)) continue;
      char name[32];
      snprintf(name, sizeof name, "cast_%d", k);
      find(modes[m], name)(in, NULL, NULL, out, count);
      for (size_t i = 0; i < count; i++) {
        if (qn_test_rounding_is_right(&cases[i], is_bf16, (uint16_t)out[i])) continue;
        fail_msg("%s: %s of %s %#llx is %#llx, not %#x", PRELUDE_MODES[m].name, qn_dtype_text(to),
                 qn_dtype_text(from), (unsigned long long)in[i], (unsigned long long)out[i],
                 cases[i].to);
      }
      checked_count++;
    }
    free(in), free(out), free(cases);
  }
  assert_int_equal(checked_count, 4 * 3 + 2 * 4);
}

static void test_rounding_to_16_bits(void** state) {
  (void)state;
  if (modes[0] == NULL) skip();
  columns_t columns = make_columns(QN_DTYPE_F32, 200000);
  static const struct {
    const char* name;
    qn_dtype_t dtype;
  } CASES[] = {{"round_f16", QN_DTYPE_F16}, {"round_bf16", QN_DTYPE_BF16}};
  for (size_t m = 0; m < 2 * PRELUDE_MODE_COUNT; m++) {
    qn_dtype_t dtype = CASES[m % 2].dtype;
    find(modes[m / 2], CASES[m % 2].name)(columns.value[0], NULL, NULL, columns.out, columns.count);
    for (size_t i = 0; i < columns.count; i++) {
      qn__ir_scalar_t value = qn__scalar_from_bits(QN_DTYPE_F32, columns.value[0][i]);
      value = qn__scalar_cast(QN_DTYPE_F32, value, dtype);
      uint64_t wanted = qn__scalar_to_bits(QN_DTYPE_F32, value);
      if (is_nan_bits(QN_DTYPE_F32, wanted)) {
        assert_true(is_nan_bits(QN_DTYPE_F32, columns.out[i]));
      } else {
        assert_int_equal(columns.out[i], wanted);
      }
    }
  }
  free_columns(&columns);
}

static void test_upper_halves(void** state) {
  (void)state;
  if (modes[0] == NULL) skip();
  columns_t columns = make_columns(QN_DTYPE_U64, 100000);
  for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
    static const char* const NAMES[] = {"mulhi_u32", "mulhi_i32", "mulhi_u64", "mulhi_i64"};
    for (int k = 0; k < (PRELUDE_MODES[m].has_int64 ? 4 : 2); k++) {
      find(modes[m], NAMES[k])(columns.value[0], columns.value[1], NULL, columns.out,
                               columns.count);
      for (size_t i = 0; i < columns.count; i++) {
        uint64_t a = columns.value[0][i], b = columns.value[1][i];
        __extension__ typedef __int128 wide_t;
        __extension__ typedef unsigned __int128 unsigned_wide_t;
        uint64_t wanted = k == 0   ? (uint64_t)(uint32_t)a * (uint32_t)b >> 32
                          : k == 1 ? (uint32_t)((uint64_t)((int64_t)(int32_t)a * (int32_t)b) >> 32)
                          : k == 2 ? (uint64_t)((unsigned_wide_t)a * b >> 64)
                                   : (uint64_t)((wide_t)(int64_t)a * (wide_t)(int64_t)b >> 64);
        assert_int_equal(columns.out[i], wanted);
      }
    }
  }
  free_columns(&columns);
}

// ------------------------------------------------------------------------------------ the writer

static char* write_some(const char* name, bool is_glsl, bool has_fma, bool has_int64,
                        bool has_float64) {
  qn__gpu_prelude_use_t use = {{false}};
  if (name != NULL) use.is_used[qn__gpu_prelude_find(name)] = true;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__gpu_prelude_write(&use, is_glsl, has_fma, has_int64, has_float64, &out);
  assert_false(out.has_failed);
  char* text = strdup((const char*)out.data);
  assert_non_null(text);
  qn__buffer_deinit(&out);
  return text;
}

static void test_writes_what_is_used(void** state) {
  (void)state;
  assert_int_equal(qn__gpu_prelude_find("qn_nothing_f32"), -1);
  assert_int_equal(qn__gpu_prelude_find("qn_exp"), -1);
  char* none = write_some(NULL, false, true, true, true);
  assert_null(strstr(none, "qn_exp"));
  char* exp = write_some("qn_exp_f32", false, true, true, true);
  assert_non_null(strstr(exp, "float qn_exp_f32(float x)"));
  assert_non_null(strstr(exp, "#define QN_MAD_f32"));
  assert_null(strstr(exp, "_f64(double"));
  assert_null(strstr(exp, "QN_LIT_"));
  // What is used stands in front of its user.
  assert_true(strstr(exp, "#define QN_MAD_f32") < strstr(exp, "float qn_exp_f32(float x)"));
  char* plain = write_some("qn_exp_f32", true, false, false, false);
  assert_null(strstr(plain, "fma("));
  assert_null(strstr(plain, "int64_t"));
  assert_null(strstr(plain, "double"));
  free(none);
  free(exp);
  free(plain);
}

static void test_has_an_answer_for_every_operator(void** state) {
  (void)state;
  assert_string_equal(qn__gpu_prelude_op(QN_OP_EXP, QN_DTYPE_F16), "qn_exp_f32");
  assert_string_equal(qn__gpu_prelude_op(QN_OP_EXP, QN_DTYPE_BF16), "qn_exp_f32");
  assert_string_equal(qn__gpu_prelude_op(QN_OP_FLOORDIV, QN_DTYPE_I8), "qn_floordiv_i32");
  assert_string_equal(qn__gpu_prelude_op(QN_OP_FLOORMOD, QN_DTYPE_U16), "qn_floormod_u32");
  assert_string_equal(qn__gpu_prelude_op(QN_OP_ADD, QN_DTYPE_I64), "qn_add_i64");
  assert_null(qn__gpu_prelude_op(QN_OP_ADD, QN_DTYPE_U32));
  assert_null(qn__gpu_prelude_op(QN_OP_ADD, QN_DTYPE_F32));
  assert_null(qn__gpu_prelude_op(QN_OP_EQ, QN_DTYPE_F32));
  assert_null(qn__gpu_prelude_op(QN_OP_XOR, QN_DTYPE_BOOL));
  for (int op = 1; op < QN_OP_COUNT; op++) {
    qn__ir_op_rule_t rule = qn__op_info((qn_op_t)op)->rule;
    if (rule != QN__RULE_FLOAT && rule != QN__RULE_SCALE) continue;
    assert_non_null(qn__gpu_prelude_op((qn_op_t)op, QN_DTYPE_F32));
    assert_non_null(qn__gpu_prelude_op((qn_op_t)op, QN_DTYPE_F64));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operators),
      cmocka_unit_test(test_conversions),
      cmocka_unit_test(test_rounding_to_16_bits),
      cmocka_unit_test(test_narrow_neighbours),
      cmocka_unit_test(test_rounded_once),
      cmocka_unit_test(test_upper_halves),
      cmocka_unit_test(test_writes_what_is_used),
      cmocka_unit_test(test_has_an_answer_for_every_operator),
  };
  return cmocka_run_group_tests(tests, build_all, free_all);
}
