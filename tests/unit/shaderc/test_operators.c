// SPDX-License-Identifier: Apache-2.0
// tests/unit/shaderc/test_operators.c: tests that every operator on every dtype, and every
// conversion, reduction, atomic, statement and scope, becomes valid SPIR-V. Results are tested on
// devices.
// ctest-labels: slow
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "ir/ir.h"
#include "support_shaderc.h"

static const qn_dtype_t dtypes[] = {QN_DTYPE_BOOL, QN_DTYPE_I8,  QN_DTYPE_I16,  QN_DTYPE_I32,
                                    QN_DTYPE_I64,  QN_DTYPE_U8,  QN_DTYPE_U16,  QN_DTYPE_U32,
                                    QN_DTYPE_U64,  QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_F32,
                                    QN_DTYPE_F64};
static const char* const targets[] = {TARGET_1_2, TARGET_WORDS, TARGET_1_1, TARGET_1_3};

static qn__buffer_t text;

static void begin(void) {
  qn__buffer_clear(&text);
}

// Compiles what is in `text` for the first `count` targets.
static void check(const char* what, size_t count) {
  assert_false(text.has_failed);
  if (text.size == 0) return;
  for (size_t i = 0; i < count; ++i) {
    const char* problem = compile_everywhere((const char*)text.data, targets[i], count == 2);
    if (!problem) continue;
    (void)fprintf(stderr, "%s, target %s: %s\n", what, targets[i], problem);
    fail();
  }
}

// ---- operators and conversions

// shaderc needs 10 ms for a kernel, however small, so that a kernel holds MAX_TOGETHER of them.
// (The conformance suite compiles each one alone, also for the least target.)
enum { MAX_TOGETHER = 16, MAX_ITEMS = 128 };

// An operator or a conversion on one dtype: what it writes, as parameters and as statements in
// which i is the element. The number of the item is in the names of its parameters.
typedef struct item {
  char outputs[80];
  char statements[240];
} item_t;

typedef struct items {
  qn_dtype_t dtype;
  bool is_exchange;  // needs threads
  size_t count;
  item_t all[MAX_ITEMS];
} items_t;

// Writes one function with `count` of the items; `chosen` has their numbers.
static void put_function(const items_t* items, const size_t* chosen, size_t count) {
  const char* dtype = qn_dtype_text(items->dtype);
  qn__buffer_format(&text, "func f(x: %s[n], y: %s[n], z: %s[n], c: bool[n], k: %s", dtype, dtype,
                    dtype, dtype);
  for (size_t i = 0; i < count; ++i) qn__buffer_cstr(&text, items->all[chosen[i]].outputs);
  qn__buffer_cstr(&text, items->is_exchange
                             ? ") {\n  block.x b in 0..n // 64 {\n    thread.x t in 0..64 {\n"
                               "      let i = b * 64 + t;\n"
                             : ") {\n  parallel i in 0..n {\n");
  for (size_t i = 0; i < count; ++i) qn__buffer_cstr(&text, items->all[chosen[i]].statements);
  qn__buffer_cstr(&text, items->is_exchange ? "    }\n  }\n}\n" : "  }\n}\n");
}

// Calls `compile_text` with functions that hold the chosen items, some in each.
static void compile_items(const items_t* items, const size_t* chosen, size_t count,
                          void (*compile_text)(const void* self), const void* self) {
  for (size_t first = 0; first < count; first += MAX_TOGETHER) {
    size_t left = count - first;
    begin();
    put_function(items, chosen + first, left < MAX_TOGETHER ? left : MAX_TOGETHER);
    compile_text(self);
  }
}

static void compile_for_two(const void* self) {
  (void)self;
  check((const char*)text.data, 2);
}

static void check_items(const items_t* items) {
  size_t chosen[MAX_ITEMS];
  for (size_t i = 0; i < items->count; ++i) chosen[i] = i;
  compile_items(items, chosen, items->count, compile_for_two, NULL);
}

static item_t* add_item(items_t* items) {
  assert_true(items->count < MAX_ITEMS);
  return &items->all[items->count++];
}

// Adds the operator unless it does not take the dtype.
static void add_operator(items_t* items, qn_op_t op) {
  const qn__ir_op_info_t* info = qn__op_info(op);
  qn_dtype_t operands[3];
  for (uint32_t i = 0; i < 3; ++i) {
    qn_dtype_t own = qn__op_own_dtype(info->rule, i);
    operands[i] = own != QN_DTYPE_NONE ? own : items->dtype;
  }
  bool is_axes = info->rule == QN__RULE_AXES;
  bool is_exchange = is_axes || info->rule == QN__RULE_LANE || info->rule == QN__RULE_GROUP;
  uint32_t index;
  const char* expected;
  qn_dtype_t result = qn__op_result(op, operands, &index, &expected);
  if (result == QN_DTYPE_NONE || is_exchange != items->is_exchange) return;
  const char* a = info->rule == QN__RULE_SELECT ? "c[i]" : "x[i]";
  const char* b = is_axes                                           ? "thread.x"
                  : info->rule == QN__RULE_LANE                     ? "(i % 7)"
                  : qn__op_own_dtype(info->rule, 1) == QN_DTYPE_I32 ? "i32(y[i])"
                                                                    : "y[i]";
  size_t number = items->count;
  item_t* item = add_item(items);
  (void)snprintf(item->outputs, sizeof item->outputs, ", out r%zu: %s[n]", number,
                 qn_dtype_text(result));
  if (info->syntax == QN__SYNTAX_INFIX) {
    (void)snprintf(item->statements, sizeof item->statements, "    r%zu[i] = %s %s %s;\n", number,
                   a, info->text, b);
  } else if (info->syntax == QN__SYNTAX_PREFIX) {
    (void)snprintf(item->statements, sizeof item->statements, "    r%zu[i] = %s%s;\n", number,
                   info->text, a);
  } else {
    (void)snprintf(item->statements, sizeof item->statements, "    r%zu[i] = %s(%s%s%s%s%s);\n",
                   number, info->text, info->arity > 0 ? a : "", info->arity > 1 ? ", " : "",
                   info->arity > 1 ? b : "", info->arity > 2 ? ", " : "",
                   info->arity > 2 ? "z[i]" : "");
  }
}

// Calls `check_all` with the operators on each dtype; those among threads come by themselves.
static void check_operators(void (*check_all)(const items_t* items)) {
  static items_t items;
  for (size_t i = 0; i < 2 * QN_COUNT_OF(dtypes); ++i) {
    items = (items_t){.dtype = dtypes[i / 2], .is_exchange = i % 2 == 1};
    for (uint32_t op = 1; qn__op_info((qn_op_t)op); ++op) add_operator(&items, (qn_op_t)op);
    check_all(&items);
  }
}

static void test_operators(void** state) {
  (void)state;
  check_operators(check_items);
}

static bool has_bitcast(qn_dtype_t from, qn_dtype_t to) {
  return qn__dtype_bits(from) == qn__dtype_bits(to) && from != QN_DTYPE_BOOL && to != QN_DTYPE_BOOL;
}

static void test_conversions(void** state) {
  (void)state;
  static items_t items;
  for (size_t i = 0; i < QN_COUNT_OF(dtypes); ++i) {
    items = (items_t){.dtype = dtypes[i]};
    for (size_t number = 0; number < QN_COUNT_OF(dtypes); ++number) {
      const char* to = qn_dtype_text(dtypes[number]);
      item_t* item = add_item(&items);
      (void)snprintf(item->outputs, sizeof item->outputs, ", out r%zu: %s[n], out q%zu: %s[n]",
                     number, to, number, to);
      (void)snprintf(item->statements, sizeof item->statements,
                     has_bitcast(dtypes[i], dtypes[number]) ? "    r%zu[i] = %s(x[i]);\n"
                                                              "    q%zu[i] = bitcast(%s, k);\n"
                                                            : "    r%zu[i] = %s(x[i]);\n"
                                                              "    q%zu[i] = %s(k);\n",
                     number, to, number, to);
    }
    check_items(&items);
  }
}

static void test_reductions(void** state) {
  (void)state;
  static const char* const kinds[] = {"sum", "prod", "min", "max"};
  for (size_t k = 0; k < QN_COUNT_OF(kinds); ++k) {
    begin();
    for (size_t i = 1; i < QN_COUNT_OF(dtypes); ++i) {
      const char* dtype = qn_dtype_text(dtypes[i]);
      qn__buffer_format(&text,
                        "func r_%s(x: %s[n, m], out r: %s[n]) {\n  parallel i in 0..n {\n    r[i] "
                        "= %s j in 0..m { let d = x[i, j]; d * d };\n  }\n}\n",
                        dtype, dtype, dtype, kinds[k]);
    }
    check(kinds[k], 2);
  }
}

// ---- atomics

static void put_atomic(const char* name, uint32_t operands, const char* dtype, const char* scope) {
  bool is_local = strcmp(scope, "local") == 0, is_shared = strcmp(scope, "shared") == 0;
  qn__buffer_format(&text, "func a_%s_%s(x: %s[n], inout h: %s[m], out r: %s[n]) {\n", dtype, scope,
                    dtype, dtype, dtype);
  const char* second = operands > 1 ? ", x[0]" : "";
  if (is_local || is_shared) {
    qn__buffer_cstr(&text, "  block.x b in 0..n // 64 {\n");
    if (is_shared) qn__buffer_format(&text, "    alloc s: %s[8] in shared;\n", dtype);
    qn__buffer_cstr(&text, "    thread.x t in 0..64 {\n      let i = b * 64 + t;\n");
    if (is_local) qn__buffer_format(&text, "      alloc s: %s[8] in local;\n", dtype);
    if (is_shared)
      qn__buffer_cstr(&text, "      if t < 8 {\n        s[t] = x[t];\n      }\n      barrier;\n");
    if (is_local) qn__buffer_cstr(&text, "      s[i % 8] = x[i];\n");
    qn__buffer_format(&text,
                      "      let old = %s(s[i %% 8], x[i]%s);\n      r[i] = old;\n    }\n  }\n}\n",
                      name, second);
  } else {
    qn__buffer_format(&text,
                      "  parallel i in 0..n {\n    let old = %s(h[i %% m], x[i]%s);\n    r[i] = "
                      "old;\n    %s(h[0], x[i]%s);\n  }\n}\n",
                      name, second, name, second);
  }
}

static void test_atomics(void** state) {
  (void)state;
  static const char* const scopes[] = {"global", "shared", "local"};
  for (uint32_t op = QN_ATOMIC_ADD; op <= QN_ATOMIC_CAS; ++op) {
    begin();
    for (uint32_t dtype = 1; dtype < QN_DTYPE_COUNT; ++dtype) {
      if (!qn__atomic_takes((qn_atomic_op_t)op, (qn_dtype_t)dtype)) continue;
      for (size_t k = 0; k < QN_COUNT_OF(scopes); ++k) {
        put_atomic(qn__atomic_text((qn_atomic_op_t)op),
                   qn__atomic_operand_count((qn_atomic_op_t)op), qn_dtype_text((qn_dtype_t)dtype),
                   scopes[k]);
      }
    }
    check(qn__atomic_text((qn_atomic_op_t)op), 2);
  }
}

// ---- statements and scopes

static void test_scopes(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(dtypes); ++i) {
    const char* dtype = qn_dtype_text(dtypes[i]);
    const char* one = dtypes[i] == QN_DTYPE_BOOL ? "true" : "1";
    begin();
    qn__buffer_format(
        &text,
        "func s(x: %s[n, 4], out y: %s[n, 4], k: %s) {\n"
        "  alloc g: %s[n, 4] in global;\n"
        "  const c: %s[4] = [%s, %s, %s, %s];\n"
        "  parallel i in 0..n {\n    for j in 0..4 {\n      g[i, j] = x[i, j];\n    }\n  }\n"
        "  parallel i in 0..n {\n    alloc l: %s[4] in local;\n    view row: %s[4] = g[i, 0];\n"
        "    for j in 0..4 {\n      l[j] = row[j];\n    }\n"
        "    for j in 0..4 {\n      y[i, j] = j == 2 ? k : l[3 - j] == c[j] ? row[j] : c[3 - j];\n"
        "    }\n  }\n"
        "  block.x b in 0..n {\n    alloc t: %s[4] in shared;\n    thread.x j in 0..4 {\n"
        "      t[j] = y[b, j];\n      barrier;\n      y[b, j] = t[3 - j];\n    }\n  }\n}\n",
        dtype, dtype, dtype, dtype, dtype, one, one, one, one, dtype, dtype, dtype);
    check(dtype, 4);
  }
}

static void test_statements(void** state) {
  (void)state;
  static const char* const texts[] = {
      // while, if, else, assert, nested loops
      "func f(x: i32[n], out y: i32[n]) {\n  parallel i in 0..n {\n    assert x[i] > 0, "
      "\"positive\";\n"
      "    alloc s: i32[2] in local;\n    s[0] = x[i];\n    s[1] = 0;\n    while s[0] != 1 {\n"
      "      if s[0] % 2 == 0 {\n        s[0] = s[0] // 2;\n      } else if s[0] > 100 {\n"
      "        s[0] = 1;\n      } else {\n        s[0] = 3 * s[0] + 1;\n      }\n"
      "      s[1] = s[1] + 1;\n    }\n    y[i] = s[1];\n  }\n}\n",
      // vector and unroll loops, strides, rank 0
      "func f(x: f32[n, 8] strides [s, 1], t: f32[], out y: f32[n, 8]) {\n  parallel i in 0..n {\n"
      "    vector v in 0..8 {\n      y[i, v] = x[i, v] * t[];\n    }\n    unroll u in 0..3 {\n"
      "      y[i, u] = y[i, u] + f32(u);\n    }\n  }\n}\n",
      // grids and blocks of three dimensions
      "func f(out y: i32[a, b, c]) {\n  block.z k in 0..a {\n    block.y j in 0..b {\n      "
      "block.x i "
      "in 0..c {\n        thread.x t in 0..1 {\n          y[k, j, i + t] = i32(i + 10 * j + 100 * "
      "k);\n        }\n      }\n    }\n  }\n}\n",
      "func f(out y: i32[n, 2, 3, 4]) {\n  block.x b in 0..n {\n    thread.z k in 0..2 {\n      "
      "thread.y j in 0..3 {\n        thread.x i in 0..4 {\n          y[b, k, j, i] = i32(i);\n     "
      "   "
      "}\n      }\n    }\n  }\n}\n",
      // a block's size that is known at the call
      "func f(x: f32[n, m], out y: f32[n, m]) {\n  block.x b in 0..n {\n    thread.x t in 0..m {\n "
      "     "
      "y[b, t] = x[b, t] + 1.0;\n    }\n  }\n}\n",
      // more scalars than push constants
      "func f(a: f64, b: f64, c: f64, d: f64, e: f64, g: f64, h: f64, i: f64, j: f64, k: f64, l: "
      "f64,\n"
      "    m: f64, o: f64, p: f64, q: f64, r: bool, s: i8, t: u16, u: f16, out y: f64[n]) {\n"
      "  parallel z in 0..n {\n    y[z] = a + b + c + d + e + g + h + i + j + k + l + m + o + p + "
      "q +\n"
      "        (r ? f64(s) : f64(t)) + f64(u);\n  }\n}\n",
      // fast
      "func f(x: f32[n], y: f32[n], out z: f32[n]) fast {\n  parallel i in 0..n {\n    z[i] = x[i] "
      "* "
      "y[i] + x[i];\n  }\n}\n",
      // what only the host runs
      "func f(x: f32[n], out y: f32[n]) {\n  assert n > 3, \"enough\";\n  if n > 10 {\n    "
      "parallel i in "
      "0..n {\n      y[i] = x[i];\n    }\n  } else {\n    parallel i in 0..n {\n      y[i] = 0;\n  "
      "  "
      "}\n  }\n}\n",
      // no code at all
      "func f(x: f32[n]) {\n}\n",
  };
  for (size_t i = 0; i < QN_COUNT_OF(texts); ++i) {
    begin();
    qn__buffer_cstr(&text, texts[i]);
    check(texts[i], 4);
  }
}

// ---- lesser targets

static const char* const lesser[] = {TARGET_LEAST,
                                     "{\"kind\":\"vulkan\",\"supports_float64\":true}",
                                     "{\"kind\":\"vulkan\",\"supports_int64\":true}"};

// Compiles `text`, or writes only its GLSL. False when it is refused; fails the test when it
// becomes a text that the compiler underneath does not take.
static bool is_taken(const char* target, bool is_whole) {
  assert_false(text.has_failed);
  qn_module_t* module = parse((const char*)text.data);
  request_t request = {.target = target, .tier = QN_TIER_FAST};
  compiled_t compiled = {0};
  qn_status_t status =
      is_whole ? compile(module, &request, &compiled) : try_emit(module, &request, "glsl");
  qn_status_code_t code = qn_status_code(status);
  if (code != QN_STATUS_OK && code != QN_STATUS_UNSUPPORTED) {
    (void)fprintf(stderr, "target %s: %s\n", target, qn_status_message(status));
    fail();
  }
  qn_status_free(status);
  compiled_release(&compiled);
  qn_module_release(module);
  return code == QN_STATUS_OK;
}

static void check_lesser(void) {
  for (size_t k = 0; k < QN_COUNT_OF(lesser); ++k) (void)is_taken(lesser[k], true);
}

static void compile_for_one(const void* target) {
  if (!is_taken(target, true)) fail_msg("refused together, target %s", (const char*)target);
}

// Each item by itself is taken or refused as GLSL is written; shaderc compiles what is taken.
static void check_lesser_items(const items_t* items) {
  for (size_t k = 0; k < QN_COUNT_OF(lesser); ++k) {
    size_t chosen[MAX_ITEMS], count = 0;
    for (size_t i = 0; i < items->count; ++i) {
      begin();
      put_function(items, &i, 1);
      if (is_taken(lesser[k], false)) chosen[count++] = i;
    }
    compile_items(items, chosen, count, compile_for_one, lesser[k]);
  }
}

static void test_lesser_operators(void** state) {
  (void)state;
  check_operators(check_lesser_items);
}

// Also of narrow i64, to and from all.
static void test_lesser_conversions(void** state) {
  (void)state;
  static items_t items;
  for (size_t i = 0; i < QN_COUNT_OF(dtypes); ++i) {
    items = (items_t){.dtype = dtypes[i]};
    const char* from = qn_dtype_text(dtypes[i]);
    for (size_t k = 0; k < QN_COUNT_OF(dtypes); ++k) {
      const char* to = qn_dtype_text(dtypes[k]);
      size_t number = items.count;
      item_t* item = add_item(&items);
      (void)snprintf(item->outputs, sizeof item->outputs, ", out r%zu: %s[n], out q%zu: i32[n]",
                     number, to, number);
      (void)snprintf(item->statements, sizeof item->statements,
                     "    r%zu[i] = %s(x[i]);\n    r%zu[n - 1 - i] = %s(i);\n"
                     "    q%zu[i] = i32(i64(x[i]));\n",
                     number, to, number, to, number);
      if (!has_bitcast(dtypes[i], dtypes[k])) continue;
      number = items.count;
      item = add_item(&items);
      (void)snprintf(item->outputs, sizeof item->outputs, ", out r%zu: %s[n]", number, to);
      (void)snprintf(item->statements, sizeof item->statements,
                     "    r%zu[i] = bitcast(%s, %s(i));\n", number, to, from);
    }
    check_lesser_items(&items);
  }
}

static void test_lesser_scopes(void** state) {
  (void)state;
  static const qn_dtype_t with_atomics[] = {QN_DTYPE_I32, QN_DTYPE_I64, QN_DTYPE_F32, QN_DTYPE_F64};
  static const char* const scopes[] = {"global", "shared", "local"};
  for (size_t i = 0; i < QN_COUNT_OF(with_atomics); ++i) {
    for (size_t k = 0; k < QN_COUNT_OF(scopes); ++k) {
      begin();
      put_atomic("atomic_add", 1, qn_dtype_text(with_atomics[i]), scopes[k]);
      check_lesser();
    }
  }
  begin();
  qn__buffer_cstr(&text,
                  "func f(out r: f64[n]) {\n  const c: f64[3] = [1.0, inf, 0.5];\n"
                  "  parallel i in 0..n {\n    r[i] = c[i % 3];\n  }\n}\n");
  check_lesser();
}

int main(void) {
  qn__buffer_init(&text, qn_allocator_default());
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_statements),       cmocka_unit_test(test_scopes),
      cmocka_unit_test(test_atomics),          cmocka_unit_test(test_reductions),
      cmocka_unit_test(test_operators),        cmocka_unit_test(test_conversions),
      cmocka_unit_test(test_lesser_operators), cmocka_unit_test(test_lesser_conversions),
      cmocka_unit_test(test_lesser_scopes),
  };
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  qn__buffer_deinit(&text);
  return result;
}
