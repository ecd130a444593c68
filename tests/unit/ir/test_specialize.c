// SPDX-License-Identifier: Apache-2.0
// Tests modules of which symbols and integer scalars are fixed: their bytes, their parameters, the
// errors, and texts that need a value to be modules.
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
// cmocka wants these first.
#include <cmocka.h>

#include "ir/ir.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

static qn_status_t parse_set(const char* text, const char* set, qn_module_t** out_module) {
  qn_parse_options_t options = {.struct_size = sizeof options, .set = set};
  return qn_module_parse(text, strlen(text), &options, out_module);
}

static qn_status_t specialize(const qn_module_t* module, const char* name, int64_t value,
                              qn_module_t** out_module) {
  return qn_module_specialize(module, &name, &value, 1, out_module);
}

// The module has the bytes, digests and text of the text with numbers.
static void expect_same(qn_module_t* special, const char* text) {
  qn_module_t* wanted = must_parse(text);
  if (!qn_same_bytes(special, wanted)) {
    char *a, *b;
    must(qn_module_print(special, &a, NULL));
    must(qn_module_print(wanted, &b, NULL));
    fail_msg("got\n%s\nwanted\n%s", a, b);
  }
  assert_memory_equal(qn_module_digest(special), qn_module_digest(wanted), 16);
  qn_module_release(wanted);
  // The printed text and the bytes lead to the same module.
  char* printed;
  must(qn_module_print(special, &printed, NULL));
  wanted = must_parse(printed);
  assert_true(qn_same_bytes(special, wanted));
  qn_module_release(wanted);
  qn_text_free(printed);
  size_t size;
  const void* bytes = qn_module_bytes(special, &size);
  must(qn_module_decode(bytes, size, NULL, &wanted));
  assert_true(qn_same_bytes(special, wanted));
  qn_module_release(wanted);
}

// Writes `text` with `by` in place of each '#'.
static void paste(const char* text, const char* by, char out[1000]) {
  size_t size = 0;
  for (; *text; text++) {
    bool is_place = *text == '#';
    int count = is_place ? snprintf(out + size, 1000 - size, "%s", by)
                         : snprintf(out + size, 1000 - size, "%c", *text);
    size += (size_t)count;
    assert_in_range(size, 1, 999);
  }
}

// Compares what the library makes of the text with a name for '#' with the text with the number.
static void expect_pasted(const char* text, const char* name, int64_t value) {
  char generic[1000], pasted[1000], set[64], number[32];
  (void)snprintf(number, sizeof number, "%" PRId64, value);
  (void)snprintf(set, sizeof set, "%s=%s", name, number);
  paste(text, name, generic);
  paste(text, number, pasted);
  qn_module_t *module = must_parse(generic), *special;
  must(specialize(module, name, value, &special));
  expect_same(special, pasted);
  qn_module_release(special);
  must(parse_set(generic, set, &special));
  expect_same(special, pasted);
  qn_module_release(special);
  qn_module_release(module);
}

static void numbers_stand_for_symbols(void** state) {
  (void)state;
  expect_pasted(
      "func rms_norm(x: f32[rows, #], gain: f32[#], out y: f32[rows, #]) {\n"
      "  parallel i in 0..rows {\n"
      "    let total = sum j in 0..# { x[i, j] * x[i, j] };\n"
      "    let scale = 1.0 / sqrt(total / f32(#) + 1e-5);\n"
      "    for j in 0..# { y[i, j] = x[i, j] * scale * gain[j]; }\n"
      "  }\n"
      "}\n",
      "columns", 512);
  // Conversions and negations are literals; other operators stay.
  expect_pasted(
      "func f(x: i64[#], out y: f16[n], s: i64[n, 2] strides [#, 1]) {\n"
      "  for i in 0..n { y[i] = f16(#) + f16(-#) + f16(# // 2 * i) + f16(i32(#)); }\n"
      "  assert n < # || warp_size() == #;\n"
      "}\n",
      "k", 24);
}

static void extents_are_computed(void** state) {
  (void)state;
  qn_module_t *module = must_parse(
                  "func f(x: f32[2 * d + 1, n], y: f32[d, n * d], z: f32[3 * 4],\n"
                  "       t: f32[d > 4 ? d : m, n], u: f32[m]) {\n"
                  "  alloc g: f32[d * m] in global;\n"
                  "}\n"),
              *special;
  must(specialize(module, "d", 128, &special));
  expect_same(special,
              "func f(x: f32[257, n], y: f32[128, n * 128], z: f32[3 * 4], t: f32[128, n],\n"
              "       u: f32[m]) {\n"
              "  alloc g: f32[128 * m] in global;\n"
              "}\n");
  assert_int_equal(qn_module_function_symbol_count(special, 0), 2);
  assert_string_equal(qn_module_symbol_name(special, 0, 0), "n");
  qn_module_release(special);
  // The first appearance of m is gone with the condition.
  must(specialize(module, "n", 3, &special));
  assert_string_equal(qn_module_symbol_name(special, 0, 1), "m");
  qn_module_release(special);
  qn_module_release(module);
}

static void scalars_stay_parameters(void** state) {
  (void)state;
  const char text[] =
      "func f(k: i32, a: f32, x: f32[n], out y: f32[n]) {\n"
      "  for i in 0..n { y[i] = x[i] * f32(k) + a + f32(k * 2); }\n"
      "}\n";
  const char fixed[] =
      "func f(k: i32 = -7, a: f32, x: f32[n], out y: f32[n]) {\n"
      "  for i in 0..n { y[i] = x[i] * f32(-7) + a + f32(i32(-7) * 2); }\n"
      "}\n";
  qn_module_t *module = must_parse(text), *special, *again;
  must(specialize(module, "k", -7, &special));
  expect_same(special, fixed);
  // The name and its value are the same thing in a text.
  expect_same(special,
              "func f(k: i32 = -7, a: f32, x: f32[n], out y: f32[n]) {\n"
              "  for i in 0..n { y[i] = x[i] * f32(k) + a + f32(k * 2); }\n"
              "}\n");
  assert_string_equal(qn_module_function_signature(special, 0),
                      "f(k: i32 = -7, a: f32, x: f32[n], out y: f32[n])");
  qn_param_info_t info = {.struct_size = sizeof info};
  must(qn_module_param_info(special, 0, 0, &info));
  assert_true(info.is_fixed);
  assert_int_equal(info.fixed_value, -7);
  must(qn_module_param_info(special, 0, 1, &info));
  assert_false(info.is_fixed);
  // Again with the same value, and with another one.
  must(specialize(special, "k", -7, &again));
  assert_true(qn_same_bytes(special, again));
  qn_module_release(again);
  must_fail(specialize(special, "k", 7, &again), QN_STATUS_INVALID_ARGUMENT,
            "'k' of 'f' cannot be 7: it is -7 already");
  assert_null(again);
  qn_module_release(special);
  qn_module_release(module);
  must_fail(parse_set(fixed, "k=1", &again), QN_STATUS_INVALID_ARGUMENT, "it is -7 already");
}

// Shapes may use scalars that are declared later.
static void scalars_are_extents(void** state) {
  (void)state;
  qn_module_t* module;
  must(
      parse_set("func f(x: f32[n, k], k: u8, out y: f32[n]) {\n"
                "  alloc acc: f32[i64(k) * 2] in local;\n"
                "  acc[0] = 0.0;\n"
                "}\n",
                "k=255", &module));
  expect_same(module,
              "func f(x: f32[n, 255], k: u8 = 255, out y: f32[n]) {\n"
              "  alloc acc: f32[255 * 2] in local;\n"
              "  acc[0] = 0.0;\n"
              "}\n");
  qn_module_release(module);
}

// One text is a generic module where it needs no constants, and special ones.
static void constants_where_the_language_needs_them(void** state) {
  (void)state;
  const char text[] =
      "func f(x: f32[n, #], k: i64, out y: f32[n, #]) {\n"
      "  block.x b in 0..n {\n"
      "    alloc tile: f32[# + 1] in shared;\n"
      "    thread.x t in 0..# {\n"
      "      alloc acc: f32[#] in local;\n"
      "      unroll u in 0..# { acc[u] = x[b, u]; }\n"
      "      vector v in 0..# { acc[v] = acc[v] * 2.0; }\n"
      "      y[b, t] = acc[t];\n"
      "    }\n"
      "  }\n"
      "}\n";
  char generic[1000], pasted[1000];
  paste(text, "d", generic);
  paste(text, "16", pasted);
  qn_module_t* module;
  must_fail(parse_set(generic, NULL, &module), QN_STATUS_INVALID_MODULE,
            "the shape of 'tile' in shared must be constant: set d");
  must_fail(parse_set(generic, NULL, &module), QN_STATUS_INVALID_MODULE,
            "the shape of 'acc' in local must be constant: set d");
  must_fail(parse_set(generic, NULL, &module), QN_STATUS_INVALID_MODULE,
            "a bound of 'unroll' must be constant: set d");
  must_fail(parse_set(generic, NULL, &module), QN_STATUS_INVALID_MODULE,
            "a bound of 'vector' must be constant: set d");
  must(parse_set(generic, "d=16", &module));
  expect_same(module, pasted);
  qn_module_release(module);
  // The limits hold for the numbers.
  must_fail(parse_set(generic, "d=100000", &module), QN_STATUS_INVALID_MODULE,
            "'acc' in local exceeds the limit of 65536 bytes per thread");
  must_fail(parse_set(generic, "d=0", &module), QN_STATUS_INVALID_MODULE,
            "extent 0 of 'acc' is 0, expected at least 1");
}

static void names_that_must_be_set(void** state) {
  (void)state;
  static const char* const cases[][2] = {
      {"n * k", "must be constant: set n and k\n"},
      {"n * k + m * n", "must be constant: set n, k and m\n"},
      {"i * n", "must be constant\n"},
      {"i64(x[0])", "must be constant\n"},
      {"warp_size() * n", "must be constant\n"},
      {"i64(a)", "must be constant\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[300];
    (void)snprintf(text, sizeof text,
                   "func f(a: f32, k: i64, x: f32[n, m]) {\n"
                   "  for i in 0..n {\n"
                   "    alloc t: f32[%s] in local;\n"
                   "  }\n"
                   "}\n",
                   strcmp(cases[i][0], "i64(x[0])") == 0 ? "i64(x[0, 0])" : cases[i][0]);
    qn_module_t* module;
    must_fail(parse_set(text, NULL, &module), QN_STATUS_INVALID_MODULE, cases[i][1]);
  }
}

static void names_are_of_one_function_or_all(void** state) {
  (void)state;
  qn_module_t *module = must_parse(
                  "func f(x: f32[d]) {}\n"
                  "func g(x: f32[d, n]) {}\n"
                  "func h(d: f32[n]) {}\n"),
              *special;
  const char* const names[] = {"f.d", "g.d", "n"};
  const int64_t values[] = {4, 5, 6};
  must(qn_module_specialize(module, names, values, 3, &special));
  expect_same(special, "func f(x: f32[4]) {}\nfunc g(x: f32[5, 6]) {}\nfunc h(d: f32[6]) {}\n");
  qn_module_release(special);
  must(specialize(module, "d", 3, &special));
  expect_same(special, "func f(x: f32[3]) {}\nfunc g(x: f32[3, n]) {}\nfunc h(d: f32[n]) {}\n");
  qn_module_release(special);
  must(qn_module_specialize(module, NULL, NULL, 0, &special));
  assert_true(qn_same_bytes(module, special));
  qn_module_release(special);
  qn_module_release(module);
}

static void wrong_settings(void** state) {
  (void)state;
  static const struct {
    const char* set;
    qn_status_code_t code;
    const char* part;
  } cases[] = {
      {"width", QN_STATUS_INVALID_ARGUMENT, "set: expected NAME=NUMBER, with commas between, got"},
      {"=3", QN_STATUS_INVALID_ARGUMENT, "got '=3'"},
      {"width=", QN_STATUS_INVALID_ARGUMENT, "got 'width='"},
      {"width=3x", QN_STATUS_INVALID_ARGUMENT, "got 'width=3x'"},
      {"width= 3", QN_STATUS_INVALID_ARGUMENT, "got 'width= 3'"},
      {"width=3,,u=4", QN_STATUS_INVALID_ARGUMENT, "got ''"},
      {"width=9223372036854775808", QN_STATUS_INVALID_ARGUMENT, "got 'width=92233"},
      {"width=99999999999999999999999999", QN_STATUS_INVALID_ARGUMENT, "got 'width=9999"},
      {"width=3,width=3", QN_STATUS_INVALID_ARGUMENT, "'width' is set twice"},
      {"width=3,f.width=4", QN_STATUS_INVALID_ARGUMENT, "'width' of 'f' cannot be 4: it is 3"},
      {"widht=3", QN_STATUS_NOT_FOUND, "did you mean 'width'?"},
      {"q=3", QN_STATUS_NOT_FOUND, "there are 'n', 'width', 'b', 'u'"},
      {"x=3", QN_STATUS_NOT_FOUND, "'x' cannot be set: no symbol or integer scalar"},
      {"g.width=3", QN_STATUS_NOT_FOUND, "'g.width' cannot be set: the module has no function 'g'"},
      {"width=-1", QN_STATUS_INVALID_ARGUMENT,
       "'width' of 'f' cannot be -1: extents and strides are at least 0"},
      {"b=128", QN_STATUS_INVALID_ARGUMENT, "'b' of 'f' cannot be 128: it is i8"},
      {"b=-129", QN_STATUS_INVALID_ARGUMENT, "'b' of 'f' cannot be -129: it is i8"},
      {"u=-1", QN_STATUS_INVALID_ARGUMENT, "'u' of 'f' cannot be -1: it is u64"},
      {"a=1", QN_STATUS_INVALID_ARGUMENT,
       "'a' of 'f' cannot be 1: it is f32, and only symbols and integer scalars can be set"},
      {"flag=1", QN_STATUS_INVALID_ARGUMENT, "it is bool, and only symbols and integer scalars"},
      {"n=3", QN_STATUS_INVALID_MODULE, "extent 0 is -1, less than 0"},
  };
  const char text[] =
      "func f(x: f32[n, width], y: f32[n - 4], b: i8, u: u64, a: f32, flag: bool) {}\n";
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    qn_module_t* module;
    must_fail(parse_set(text, cases[i].set, &module), cases[i].code, cases[i].part);
    assert_null(module);
  }
  qn_module_t *module = must_parse(text), *special = module;
  const char* none = NULL;
  must_fail(specialize(module, none, 1, &special), QN_STATUS_INVALID_ARGUMENT, "name 0 is NULL");
  assert_null(special);
  must_fail(specialize(module, "n", 3, &special), QN_STATUS_INVALID_MODULE,
            "extent 0 is -1, less than 0\n  --> <text>:1:33");
  size_t size;
  const void* bytes = qn_module_bytes(module, &size);
  qn_parse_options_t options = {.struct_size = sizeof options, .set = "n=5"};
  must_fail(qn_module_decode(bytes, size, &options, &special), QN_STATUS_INVALID_ARGUMENT,
            "call qn_module_specialize");
  qn_module_release(module);
}

// Values of scalars in texts.
static void fixed_scalars_in_texts(void** state) {
  (void)state;
  static const char* const wrong[][2] = {
      {"func f(a: f32 = 1) {}", "only integer scalars can have a value"},
      {"func f(a: bool = true) {}", "only integer scalars can have a value"},
      {"func f(k: i64 = 1 + 2) {}", "only integer scalars can have a value"},
      {"func f(k: i64 = n) {}", "unknown name 'n'"},
      {"func f(k: i8 = 128) {}", "128 does not fit in i8"},
      {"func f(k: u64 = 9223372036854775808) {}", "values of u64 end at 2^63 - 1 here"},
      {"func f(k: i64 =) {}", "expected"},
      {"func f(x: f32[4] = 3) {}", "expected"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    qn_module_t* module;
    must_fail(parse_set(wrong[i][0], NULL, &module), QN_STATUS_SYNTAX, wrong[i][1]);
  }
  char* text;
  const char loose[] = "func f ( k:i64=-3,w : u64 = 0x7fffffffffffffff) { }";
  must(qn_text_format(loose, strlen(loose), NULL, &text, NULL));
  assert_string_equal(text, "func f(k: i64 = -3, w: u64 = 0x7fffffffffffffff) {\n}\n");
  qn_text_free(text);
}

// Modules without fixed scalars keep the bytes that older libraries wrote.
static void versions_of_the_bytes(void** state) {
  (void)state;
  qn_module_t *plain = must_parse("func f(k: i64, x: f32[n, d]) {}"), *special;
  size_t size;
  assert_int_equal(((const uint8_t*)qn_module_bytes(plain, &size))[4], 1);
  must(specialize(plain, "d", 4, &special));
  assert_int_equal(((const uint8_t*)qn_module_bytes(special, &size))[4], 1);
  qn_module_release(special);
  must(specialize(plain, "k", 4, &special));
  uint8_t bytes[200];
  const void* given = qn_module_bytes(special, &size);
  assert_in_range(size, 8, sizeof bytes);
  memcpy(bytes, given, size);
  assert_int_equal(bytes[4], 2);
  qn_module_t* decoded;
  bytes[4] = 1;  // what no library writes
  must_fail(qn_module_decode(bytes, size, NULL, &decoded), QN_STATUS_DATA_LOSS, "not canonical");
  bytes[4] = 3;
  must_fail(qn_module_decode(bytes, size, NULL, &decoded), QN_STATUS_DATA_LOSS,
            "version 3, this library reads 1 to 2");
  qn_module_release(special);
  qn_module_release(plain);
}

// Bytes in which the variable stands where its value belongs.
static void a_fixed_scalar_is_not_mentioned(void** state) {
  (void)state;
  qn_module_t *plain = must_parse("func f(k: i64, out y: i64[]) { y[] = k; }"), *decoded;
  size_t size;
  uint8_t bytes[200];
  const uint8_t* given = qn_module_bytes(plain, &size);
  assert_in_range(size, 8, 100);
  // The parameter: u8 1, run "k", dtype. It becomes u8 3, run "k", dtype, svarint 2.
  size_t at = 0;
  while (memcmp(given + at, "\1\1k", 3) != 0) at++;
  memcpy(bytes, given, at + 4);
  bytes[4] = 2;
  bytes[at] = 3;
  bytes[at + 4] = 4;
  memcpy(bytes + at + 5, given + at + 4, size - at - 4);
  size_t field = 0;  // the size of the function, after the magic, the version and the count
  while (bytes[field] != 'F') field++;
  bytes[field + 1]++;
  must_fail(qn_module_decode(bytes, size + 1, NULL, &decoded), QN_STATUS_INVALID_MODULE,
            "the variable 'k' is used, where its value 2 belongs");
  qn_module_release(plain);
}

static void the_builder_sets(void** state) {
  (void)state;
  for (int is_set = 0; is_set < 2; is_set++) {
    qn_builder_t* builder;
    must(qn_builder_create((qn_allocator_t){0}, &builder));
    if (is_set) qn_build_set(builder, "d", 8);
    qn_build_function(builder, "f");
    qn_expr_t* d = qn_build_symbol(builder, "d");
    qn_expr_t* k = qn_build_scalar_param(builder, "k", QN_DTYPE_I64);
    qn_buffer_t* x =
        qn_build_buffer_param(builder, "x", QN_ACCESS_INOUT, QN_DTYPE_F32, 1, &d, NULL, 0);
    if (is_set) qn_build_set(builder, "k", 3);
    qn_expr_t* extent = qn_build_op(builder, QN_OP_MUL, d, k, NULL);
    qn_buffer_t* acc = qn_build_alloc(builder, "acc", QN_SCOPE_LOCAL, QN_DTYPE_F32, 1, &extent);
    qn_expr_t* zero = qn_build_int(builder, QN_DTYPE_I64, 0);
    qn_build_store(builder, acc, 1, &zero, qn_build_load(builder, x, 1, &zero));
    qn_build_end(builder);
    qn_module_t* module;
    qn_status_t status = qn_builder_finish(builder, &module);
    if (!is_set) {
      must_fail(status, QN_STATUS_INVALID_MODULE, "must be constant: set d and k");
      continue;
    }
    must(status);
    expect_same(module,
                "func f(k: i64 = 3, inout x: f32[8]) {\n"
                "  alloc acc: f32[8 * 3] in local;\n"
                "  acc[0] = x[0];\n"
                "}\n");
    qn_module_release(module);
  }
}

static void mistakes_of_the_builder(void** state) {
  (void)state;
  qn_builder_t* builder;
  qn_module_t* module;
  must(qn_builder_create((qn_allocator_t){0}, &builder));
  qn_build_set(builder, "n", 8);
  qn_build_set(builder, "n", 8);
  must_fail(qn_builder_finish(builder, &module), QN_STATUS_INVALID_ARGUMENT, "'n' is set twice");
  must(qn_builder_create((qn_allocator_t){0}, &builder));
  qn_build_set(builder, NULL, 8);
  must_fail(qn_builder_finish(builder, &module), QN_STATUS_INVALID_ARGUMENT,
            "qn_build_set: name is NULL");
  must(qn_builder_create((qn_allocator_t){0}, &builder));
  qn_build_set(builder, "n", 8);
  qn_build_function(builder, "f");
  qn_build_end(builder);
  must_fail(qn_builder_finish(builder, &module), QN_STATUS_NOT_FOUND, "'n' cannot be set");
  // A symbol of another function.
  must(qn_builder_create((qn_allocator_t){0}, &builder));
  qn_build_function(builder, "f");
  qn_expr_t* n = qn_build_symbol(builder, "n");
  qn_build_buffer_param(builder, "x", QN_ACCESS_IN, QN_DTYPE_F32, 1, &n, NULL, 0);
  qn_build_end(builder);
  qn_build_function(builder, "g");
  qn_build_buffer_param(builder, "x", QN_ACCESS_IN, QN_DTYPE_F32, 1, &n, NULL, 0);
  qn_build_end(builder);
  must_fail(qn_builder_finish(builder, &module), QN_STATUS_INVALID_ARGUMENT,
            "a shape uses a symbol of another function");
}

// Any allocation may fail: the calls give OUT_OF_MEMORY or the right module. (The message of an
// unknown name may lack the other names.)
static bool fix_all(qn_allocator_t allocator, void* user) {
  (void)user;
  const char text[] =
      "func f(x: f32[n, d], k: i32 = 3, w: i64, out y: f32[n]) {\n"
      "  alloc t: f32[d * w] in local;\n"
      "  y[0] = f32(k);\n"
      "}\n";
  qn_parse_options_t options = {
      .struct_size = sizeof options, .allocator = allocator, .set = "d=4,f.w=2"};
  qn_module_t *module = NULL, *special = NULL;
  qn_status_t status = qn_module_parse(text, strlen(text), &options, &module);
  if (qn_ok(status)) status = specialize(module, "n", 5, &special);
  bool is_good = qn_ok(status) ? qn_module_function_symbol_count(special, 0) == 0
                               : qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY && !special;
  qn_status_free(status);
  if (module) {
    qn_module_t* none = NULL;
    qn_status_code_t code = qn_status_consume(specialize(module, "q", 5, &none));
    is_good &= !none && (code == QN_STATUS_NOT_FOUND || code == QN_STATUS_OUT_OF_MEMORY);
  }
  qn_module_release(special);
  qn_module_release(module);
  return is_good;
}

static void without_memory(void** state) {
  (void)state;
  assert_in_range(qn_fault_walk_alloc(fix_all, NULL), 20, 100000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_stand_for_symbols),
      cmocka_unit_test(extents_are_computed),
      cmocka_unit_test(scalars_stay_parameters),
      cmocka_unit_test(scalars_are_extents),
      cmocka_unit_test(constants_where_the_language_needs_them),
      cmocka_unit_test(names_that_must_be_set),
      cmocka_unit_test(names_are_of_one_function_or_all),
      cmocka_unit_test(wrong_settings),
      cmocka_unit_test(fixed_scalars_in_texts),
      cmocka_unit_test(versions_of_the_bytes),
      cmocka_unit_test(a_fixed_scalar_is_not_mentioned),
      cmocka_unit_test(the_builder_sets),
      cmocka_unit_test(mistakes_of_the_builder),
      cmocka_unit_test(without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
