// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_dots.c: tests that products of small numbers use the operators of
// dots.inc where the target has them and the numbers fit, with the same results.
//
// Each program runs as written and after the passes of a CPU, in the interpreter, for several sets
// of operators, with caches that hold few steps. The operators themselves are compared with
// arithmetic of this file.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/passes/rewrite.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_gpu.h"
#include "support_pass.h"
#include "support_product.h"
#include "tests/support/fault.h"
#include "tests/support/sanitized.h"

enum { MAX_PARAMS = 6, BUFFER_BYTES = 1 << 15 };

#define BIT(name) (1U << (QN__OP_##name - QN__OP_DOT_FIRST))

// Sets of operators as processors have them.
enum { WORDS, VNNI, VNNI_INT8, BF16, DOTPROD, I8MM, AMX, TARGET_COUNT };
static const qn__pass_options_t targets[TARGET_COUNT] = {
    [WORDS] = {.dots = BIT(DOT_WORDS), .vector_bytes = 16},
    [VNNI] = {.dots = BIT(DOT_WORDS) | BIT(DOT_US), .vector_bytes = 32},
    [VNNI_INT8] = {.dots = BIT(DOT_WORDS) | BIT(DOT_US) | BIT(DOT_SS) | BIT(DOT_UU),
                   .vector_bytes = 32},
    [BF16] = {.dots = BIT(DOT_WORDS) | BIT(DOT_US) | BIT(DOT_BF16_FAST),
              .has_exact_dots = true,
              .has_masked_memory = true,
              .vector_bytes = 32},
    [DOTPROD] = {.dots = BIT(DOT_SS) | BIT(DOT_UU), .vector_bytes = 16},
    [I8MM] = {.dots = BIT(DOT_SS) | BIT(DOT_UU) | BIT(DOT_US) | BIT(DOT_BF16_FAST),
              .vector_bytes = 16},
    [AMX] = {.dots = BIT(DOT_WORDS) | BIT(DOT_US),
             .tile_dots = BIT(DOT_SS) | BIT(DOT_UU) | BIT(DOT_US) | BIT(DOT_BF16_FAST),
             .has_exact_dots = true,
             .has_masked_memory = true,
             .vector_bytes = 64},
};

typedef struct program {
  const char* name;
  const char* text;
  // The operators of each target: its text, "": blocks without one; NULL: not run there.
  // "tiles": the statement of tile registers.
  const char* ops[TARGET_COUNT];
} program_t;

#define PLAIN(a, b, at, bt)                                                                    \
  "func f(a: " a ", b: " b ", out c: i32[m, n]) { " NEST "c[i, j] = sum p in 0..k { i32(a[" at \
  "]) * i32(b[" bt "]) }; } } }"

static const program_t programs[] = {
    {"i8 by i8",
     PLAIN("i8[m, k]", "i8[k, n]", "i, p", "p, j"),
     {"dot2_ss", "dot4_us", "dot4_ss", "dot4_us", "dot4_ss", "dot4_ss", "tiles"}},
    {"i8 by transposed i8",
     PLAIN("i8[m, k]", "i8[n, k]", "i, p", "j, p"),
     {"dot2_ss", "dot4_us", "dot4_ss", "dot4_us", "dot4_ss", "dot4_ss", "tiles"}},
    {"transposed i8 by i8",
     PLAIN("i8[k, m]", "i8[k, n]", "p, i", "p, j"),
     {"dot2_ss", "dot4_us", "dot4_ss", "dot4_us", "dot4_ss", "dot4_ss", "dot4_us"}},
    {"u8 by u8",
     PLAIN("u8[m, k]", "u8[k, n]", "i, p", "p, j"),
     {"dot2_ss", "dot4_us", "dot4_uu", "dot4_us", "dot4_uu", "dot4_uu", "tiles"}},
    {"transposed u8 by transposed u8",
     PLAIN("u8[k, m]", "u8[n, k]", "p, i", "j, p"),
     {"dot2_ss", "dot4_us", "dot4_uu", "dot4_us", "dot4_uu", "dot4_uu", "dot4_us"}},
    {"u8 by i8",
     PLAIN("u8[m, k]", "i8[k, n]", "i, p", "p, j"),
     {"dot2_ss", "dot4_us", "dot4_us", "dot4_us", "dot4_ss", "dot4_us", "tiles"}},
    {"i8 by u8",
     PLAIN("i8[m, k]", "u8[n, k]", "i, p", "j, p"),
     {"dot2_ss", "dot4_us", "dot4_us", "dot4_us", "dot4_uu", "dot4_us", "tiles"}},
    {"i16 by u8",
     PLAIN("i16[m, k]", "u8[k, n]", "i, p", "p, j"),
     {"dot2_ss", "dot2_ss", "dot2_ss", "dot2_ss", "", "", "dot2_ss"}},
    {"i16 by transposed i16",
     PLAIN("i16[k, m]", "i16[n, k]", "p, i", "j, p"),
     {"dot2_ss", "dot2_ss", "dot2_ss", "dot2_ss", "", "", "dot2_ss"}},
    {"u16 does not fit",
     PLAIN("u16[m, k]", "u8[k, n]", "i, p", "p, j"),
     {"", "", "", "", "", "", ""}},
    {"zero points",
     "func f(a: u8[m, k], b: i8[k, n], za: u8[m], zb: i8[n], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { (i32(a[i, p]) - i32(za[i])) * (i32(b[p, j]) - i32(zb[j])) };\n"
     "} } }",
     {"dot2_ss", "dot2_ss", "dot2_ss", "dot2_ss", "", "", "dot2_ss"}},
    {"nibbles by lets, scaled sums",
     "func f(a: i8[m, k], b: u8[k, n], s: f32[n], out c: f32[m, n]) { " NEST
     "c[i, j] = s[j] * f32(sum p in 0..k { let w = i32(b[p // 2, j]); let x = i32(a[i, p]);\n"
     "let q = (w >> (i32(p % 2) * 4) & 15) - 8; x * q }); } } }",
     {"dot2_ss", "dot4_us", "dot4_ss", "dot4_us", "dot4_ss", "dot4_ss", "tiles"}},
    {"padding by conditions",
     "func f(a: i8[m, k], b: i8[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = 7 + (sum p in 0..k { (p > i ? i32(a[i, p - 1]) : 0) * i32(b[p, j]) }); } } }",
     {"dot2_ss", "dot4_us", "dot4_ss", "dot4_us", "dot4_ss", "dot4_ss", "tiles"}},
    {"a reduction that begins later, in a batch",
     "func f(a: i8[3, m, k], b: u8[3, n, k], out c: i32[3, m, n]) { parallel u in 0..3 { " NEST
     "c[u, i, j] = sum p in 3..k { i32(a[u, i, p]) * i32(b[u, j, p]) }; } } } }",
     {"dot2_ss", "dot4_us", "dot4_us", "dot4_us", "dot4_uu", "dot4_us", "tiles"}},
    {"products of sums",
     "func f(a: i8[m, k], b: i8[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = prod p in 0..k { i32(a[i, p]) * i32(b[p, j]) }; } } }",
     {"", "", "", "", "", "", ""}},
    {"more than a product",
     "func f(a: i8[m, k], b: i8[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[p, j]) + 1 }; } } }",
     {"", "", "", "", "", "", ""}},
    {"products that wrap in 8 bits",
     "func f(a: i8[m, k], b: i8[k, n], out c: i32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { i32(a[i, p] * b[p, j]) }; } } }",
     {"", "", "", "", "", "", ""}},
    {"bf16",
     "func f(a: bf16[m, k], b: bf16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     {"", "", "", "dot2_bf16_fast", "", "", "tiles"}},
    {"transposed bf16",
     "func f(a: bf16[k, m], b: bf16[n, k], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[p, i]) * f32(b[j, p]) }; } } }",
     {"", "", "", "dot2_bf16_fast", "", "", ""}},
    {"fast bf16",
     "func f(a: bf16[m, k], b: bf16[n, k], out c: f32[m, n]) fast { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[j, p]) }; } } }",
     {"", "", "", "dot2_bf16_fast", "", "dot2_bf16_fast", "tiles"}},
    {"bf16 by i8",
     "func f(a: bf16[m, k], b: i8[k, n], s: f32[n], out c: f32[m, n]) { " NEST
     "c[i, j] = s[j] * (sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }); } } }",
     {"", "", "", "dot2_bf16_fast", "", "", "tiles"}},
    {"f16 keeps its bits",
     "func f(a: f16[m, k], b: bf16[k, n], out c: f32[m, n]) { " NEST
     "c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[p, j]) }; } } }",
     {"", "", "", "", "", "", ""}},
};

// ---- calls

static uint64_t next(uint64_t* state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *state >> 33;
}

// Every second call has extreme numbers; every third has bf16 whose products may be denormal.
static void fill(const qn__ir_buffer_t* buffer, size_t seed, uint8_t* data) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  uint64_t state = seed * 977 + 5;
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    uint64_t bits = next(&state);
    if (qn__dtype_is_float(buffer->dtype)) {
      double value = ((double)(bits % 4001) - 2000) / 512;
      if (seed % 3 == 1 && bits % 5 == 0) value = ldexp(value, -(int)(bits % 140));
      bits = qn__scalar_to_bits(buffer->dtype,
                                (qn__ir_scalar_t){.f = qn__round_float(buffer->dtype, value)});
    } else if (seed % 2 == 0) {
      const uint64_t extremes[] = {0, UINT64_MAX, UINT64_MAX >> (65 - 8 * size),
                                   UINT64_C(1) << (8 * size - 1)};
      bits = extremes[bits % 4];
    }
    memcpy(data + i * size, &bits, size);
  }
}

static void interpret(const char* name, const qn__ir_func_t* function, const int64_t* symbols,
                      size_t seed, uint8_t** memory) {
  uint64_t words[MAX_PARAMS];
  assert_true(function->param_count <= MAX_PARAMS);
  for (size_t i = 0; i < function->param_count; ++i) {
    memory[i] = malloc(BUFFER_BYTES);
    assert_non_null(memory[i]);
    fill(function->params[i].buffer, seed + 7 * i, memory[i]);
    words[i] = (uint64_t)(uintptr_t)memory[i];
  }
  qn__interpret_args_t call = {.params = words, .symbols = symbols, .warp_size = 32};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) fail_msg("%s: %s", name, qn_status_message(status));
}

static bool same(const qn__ir_buffer_t* buffer, const uint8_t* a, const uint8_t* b, size_t* out) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  for (*out = 0; *out < BUFFER_BYTES / size; ++*out) {
    uint64_t x = 0, y = 0;
    memcpy(&x, a + *out * size, size);
    memcpy(&y, b + *out * size, size);
    if (x == y) continue;
    if (!qn__dtype_is_float(buffer->dtype)) return false;
    double value = qn__scalar_from_bits(buffer->dtype, x).f;
    double error = fabs(value - qn__scalar_from_bits(buffer->dtype, y).f);
    if (!(error <= 1e-5 * fmax(fabs(value), 1000))) return false;  // fused sums differ
  }
  return true;
}

static void compare(const char* name, const qn__ir_func_t* function, const qn__ir_func_t* mapped,
                    const int64_t* extents, size_t seed) {
  int64_t symbols[3];
  for (size_t i = 0; i < function->symbol_count; ++i) {
    char letter = function->symbols[i]->name[0];
    symbols[i] = extents[letter == 'm' ? 0 : letter == 'n' ? 1 : 2];
  }
  uint8_t* want[MAX_PARAMS];
  uint8_t* have[MAX_PARAMS];
  interpret(name, function, symbols, seed, want);
  interpret(name, mapped, symbols, seed, have);
  for (size_t i = 0; i < function->param_count; ++i) {
    size_t index;
    if (!same(function->params[i].buffer, want[i], have[i], &index)) {
      fail_msg("%s, %lld x %lld x %lld, seed %zu: '%s' differs at %zu", name, (long long)extents[0],
               (long long)extents[1], (long long)extents[2], seed, function->params[i].buffer->name,
               index);
    }
    free(want[i]);
    free(have[i]);
  }
}

// ---- programs

typedef struct found {
  const char* op;  // the last one; "": none
} found_t;

static bool find_op(void* self, qn__ir_expr_t** slot) {
  found_t* found = self;
  if ((*slot)->kind == QN__EXPR_OP && qn__op_is_dot((*slot)->op) &&
      (int)(*slot)->op != QN__OP_DOT_BF16 && (int)(*slot)->op != QN__OP_LEAST) {
    found->op = qn__op_info((*slot)->op)->text;
  }
  return qn__expr_each_child(*slot, find_op, self);
}

static bool is_tiles(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_TENSOR && stmt->tensor->kind == QN__TENSOR_TILES;
}

static void run_target(const program_t* program, const qn_module_t* module, int target) {
  static const int64_t shapes[][3] = {{0, 5, 4},   {5, 0, 4},   {6, 9, 0},    {4, 8, 1},
                                      {5, 9, 4},   {13, 17, 5}, {24, 33, 30}, {25, 8, 67},
                                      {7, 40, 19}, {31, 16, 18}};
  qn__pass_options_t options = targets[target];
  options.has_blocks = options.has_fma = true;
  options.l1_bytes = 1024 + 512 * (uint32_t)target;
  options.l2_bytes = 8192;
  qn__ir_body_t body;
  assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
  qn_status_t status = qn__passes_run_cpu(&body, &options);
  if (qn_ok(status)) status = qn__body_verify_status(&body, "the blocks");
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
  qn__function_number(body.first);
  found_t found = {""};
  (void)qn__block_each_expr(&body.first->body, find_op, &found);
  if (qn_test_any(&body.first->body, is_tiles)) found.op = "tiles";
  if (strcmp(found.op, program->ops[target]) != 0) {
    qn_test_show(&body);
    fail_msg("%s, target %d: '%s', not '%s'", program->name, target, found.op,
             program->ops[target]);
  }
  for (size_t s = (size_t)target % 3; s < QN_COUNT_OF(shapes); s += IS_SANITIZED ? 6 : 3) {
    for (size_t seed = 0; seed < 2; ++seed) {
      compare(program->name, module->functions[0], body.first, shapes[s], seed + s);
    }
  }
  qn__body_deinit(&body);
}

static void run_program(void** state) {
  const program_t* program = *state;
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(program->text, strlen(program->text), NULL, &module);
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
  for (int t = 0; t < TARGET_COUNT; ++t) run_target(program, module, t);
  qn_module_release(module);
}

// ---- operators

static int64_t number(uint32_t word, int i, int bits, bool is_signed) {
  int64_t value = (int64_t)(word >> (i * bits)) & ((INT64_C(1) << bits) - 1);
  return is_signed && value >= INT64_C(1) << (bits - 1) ? value - (INT64_C(1) << bits) : value;
}

static void integers_are_exact(void** state) {
  (void)state;
  static const struct {
    int op, bits;
    bool is_a_signed, is_b_signed;
  } ops[] = {{QN__OP_DOT_SS, 8, true, true},
             {QN__OP_DOT_UU, 8, false, false},
             {QN__OP_DOT_US, 8, false, true},
             {QN__OP_DOT_WORDS, 16, true, true}};
  static const uint32_t words[] = {0,          0x80808080, 0x7f7f7f7f, 0xffffffff,
                                   0x80008000, 0x7fff7fff, 0x01020304, 0xff00807f};
  for (size_t o = 0; o < QN_COUNT_OF(ops); ++o) {
    for (size_t i = 0; i < 3 * QN_COUNT_OF(words) * QN_COUNT_OF(words); ++i) {
      static const int64_t sums[] = {0, INT32_MAX, INT32_MIN};
      int64_t sum = sums[i % 3];
      uint32_t a = words[i / 3 % QN_COUNT_OF(words)], b = words[i / 3 / QN_COUNT_OF(words)];
      int64_t want = sum;
      for (int k = 0; k < 32 / ops[o].bits; ++k) {
        want += number(a, k, ops[o].bits, ops[o].is_a_signed) *
                number(b, k, ops[o].bits, ops[o].is_b_signed);
      }
      qn__ir_scalar_t args[3] = {{.i = sum}, {.i = (int32_t)a}, {.i = (int32_t)b}}, have;
      assert_true(qn__scalar_op((qn_op_t)ops[o].op, QN_DTYPE_I32, args, &have));
      assert_int_equal(have.i, (int32_t)(uint32_t)(uint64_t)want);
    }
  }
}

static void least_is_of_halves(void** state) {
  (void)state;
  static const struct {
    uint32_t sum, word, least;
  } cases[] = {{0xffffffff, 0, 0xffffffff},
               {0xffffffff, 0x80018000, 0x0000ffff},
               {0x00050004, 0x00040009, 0x00030004},
               {0x80007fff, 0x7fffffff, 0x7ffe7ffe}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn__ir_scalar_t have, args[3] = {
                              {.i = (int32_t)cases[i].sum},
                              {.i = (int32_t)cases[i].word},
                              {.i = 0x7fff7fff},
                          };
    assert_true(qn__scalar_op((qn_op_t)QN__OP_LEAST, QN_DTYPE_I32, args, &have));
    assert_int_equal(have.i, (int32_t)cases[i].least);
  }
}

// The upper numbers first: (1 + 2^-24) needs that, and fma.
static void bf16_is_two_fma(void** state) {
  (void)state;
  const int64_t one = 0x3f80, tiny = 0x3380;  // 2^-24
  qn__ir_scalar_t args[3] = {{.f = 1.0}, {.i = tiny | tiny << 16}, {.i = one | one << 16}}, have;
  assert_true(qn__scalar_op((qn_op_t)QN__OP_DOT_BF16, QN_DTYPE_F32, args, &have));
  assert_true(have.f == 1.0);  // each half of an ulp is dropped
  args[0].f = 0.0;
  args[1].i = tiny | one << 16;
  assert_true(qn__scalar_op((qn_op_t)QN__OP_DOT_BF16_FAST, QN_DTYPE_F32, args, &have));
  assert_true(have.f == 1.0);
  args[1].i = one - (INT64_C(0x4080) << 16);  // the upper number is -1
  assert_true(qn__scalar_op((qn_op_t)QN__OP_DOT_BF16, QN_DTYPE_F32, args, &have));
  assert_true(have.f == 0.0);
}

static void texts_have_no_such_operators(void** state) {
  (void)state;
  for (int op = QN__OP_DOT_FIRST; op <= QN__OP_DOT_LAST; ++op) {
    const qn__ir_op_info_t* info = qn__op_info((qn_op_t)op);
    assert_non_null(info);
    assert_int_equal(info->arity, 3);
    char text[256];
    bool is_float = info->rule == QN__RULE_DOT_FLOAT;
    (void)snprintf(text, sizeof text,
                   "func f(s: %s[n], a: i32[n], out r: %s[n]) { for i in 0..n { r[i] = %s(s[i], "
                   "a[i], a[i]); } }",
                   is_float ? "f32" : "i32", is_float ? "f32" : "i32", info->text);
    qn_module_t* module = NULL;
    qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
    assert_false(qn_ok(status));
    assert_non_null(strstr(qn_status_message(status), "QN0125"));
    qn_status_free(status);
  }
  assert_null(qn__op_info((qn_op_t)(QN__OP_DOT_LAST + 1)));
}

// ---- memory

typedef struct attempt {
  qn_module_t* module;
  int target;
} attempt_t;

static bool try_without_memory(qn_allocator_t allocator, void* user) {
  const attempt_t* attempt = user;
  qn__ir_body_t body;
  qn_status_t status = qn__body_clone(&attempt->module->body, allocator, &body);
  if (qn_ok(status)) {
    qn__pass_options_t options = targets[attempt->target];
    options.has_blocks = options.has_fma = true;
    status = qn__passes_run_cpu(&body, &options);
    qn__body_deinit(&body);
  }
  bool is_fine = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  return is_fine;
}

static void memory_runs_out(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    if (!strstr(programs[i].text, "u8[k, n]") && !strstr(programs[i].text, "bf16[n, k]")) continue;
    qn_module_t* module = NULL;
    const char* text = programs[i].text;
    assert_true(qn_ok(qn_module_parse(text, strlen(text), NULL, &module)));
    attempt_t attempt = {module, i % 2 ? AMX : BF16};
    assert_true(qn_fault_walk_alloc(try_without_memory, &attempt) > 0);
    qn_module_release(module);
  }
}

int main(void) {
  enum { FIXED = 5, COUNT = FIXED + QN_COUNT_OF(programs) };
  struct CMUnitTest tests[COUNT] = {
      cmocka_unit_test(integers_are_exact), cmocka_unit_test(bf16_is_two_fma),
      cmocka_unit_test(least_is_of_halves), cmocka_unit_test(texts_have_no_such_operators),
      cmocka_unit_test(memory_runs_out),
  };
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    tests[FIXED + i] = (struct CMUnitTest){.name = programs[i].name,
                                           .test_func = run_program,
                                           .initial_state = (void*)(uintptr_t)&programs[i]};
  }
  return _cmocka_run_group_tests("dots", tests, COUNT, NULL, NULL);
}
