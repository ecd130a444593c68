// SPDX-License-Identifier: Apache-2.0
// Places of nodes: each node of a module is found by its offset in the canonical bytes, and
// messages quote the text at it and name its locals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/encode.h"
#include "ir/place.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

// ---- finding

typedef struct compare {
  const qn_module_t* module;
  const qn__ir_func_t* function;
  size_t count;
} compare_t;

static bool finds_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  compare_t* compare = walker->self;
  qn__ir_node_t node = qn__place_find(compare->module, compare->function, stmt->loc.begin);
  assert_null(node.expr);
  assert_non_null(node.stmt);
  assert_int_equal(node.stmt->kind, stmt->kind);
  compare->count++;
  return true;
}

static bool finds_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  compare_t* compare = walker->self;
  if (expr->loc.size == 0) return true;  // an element of a table
  qn__ir_node_t node = qn__place_find(compare->module, compare->function, expr->loc.begin);
  assert_null(node.stmt);
  assert_non_null(node.expr);
  assert_int_equal(node.expr->kind, expr->kind);
  assert_int_equal(node.expr->dtype, expr->dtype);
  if (expr->kind == QN__EXPR_OP) assert_int_equal(node.expr->op, expr->op);
  compare->count++;
  return true;
}

static void test_every_node(void** state) {
  (void)state;
  qn_module_t* module = must_parse(qn_all_constructs);
  qn__ir_body_t decoded;
  must(
      qn__body_decode((qn_span_t){module->bytes, module->byte_count}, module->allocator, &decoded));
  compare_t compare = {.module = module};
  qn__ir_walker_t walker = {finds_stmt, finds_expr, &compare};
  size_t i = 0;
  for (qn__ir_func_t* function = decoded.first; function; function = function->next) {
    compare.function = module->functions[i++];
    assert_true(qn__walk_extents(&walker, function));
    assert_true(qn__walk_block(&walker, &function->body));
  }
  assert_true(compare.count > 100);
  compare.function = module->functions[0];
  // No node begins at the header, between nodes or beyond the bytes.
  const uint32_t nowhere[] = {0, 1, (uint32_t)module->byte_count, UINT32_MAX};
  for (i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
    qn__ir_node_t node = qn__place_find(module, compare.function, nowhere[i]);
    assert_true(!node.expr && !node.stmt);
  }
  qn__body_deinit(&decoded);
  qn_module_release(module);
}

// ---- quoting

static void assert_quoted(qn_module_t* module, const qn__ir_stmt_t* stmt, bool is_quoted,
                          const char* expected) {
  qn_status_t status = qn_status_make(QN_STATUS_OUT_OF_BOUNDS, "f");
  status = qn__place_append(status, module, (qn__ir_node_t){NULL, stmt}, is_quoted);
  assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_BOUNDS);
  assert_string_equal(qn_status_message(status), expected);
  qn_status_free(status);
}

static void test_quotes(void** state) {
  (void)state;
  static const char text[] =
      "func f(out y: f32[n]) {\n"
      "  assert n > 1, \"\xc3\xa9\"; y[0] = 1.0;\n"
      "  y[1 +\n    1] = 1.0;\n"
      "  y[1111111111111111111 - 1111111111111111111 + 2222222222222222222 - 2222222222222222222 +"
      " 3] = 1.0;\n"
      "  assert n > 0;\n"
      "}\n";
  static const char* const expected[] = {
      "f, at <text>:2:10: n > 1",
      "f, at <text>:2:22: y[0]",
      "f, at <text>:3:3: y[1 +...",
      ("f, at <text>:5:3: "
       "y[1111111111111111111 - 1111111111111111111 + 2222222222222222222 - 222222222222..."),
      "f, at <text>:6:10",
  };
  qn_module_t *module = must_parse(text), *decoded;
  const qn__ir_stmt_t* stmt = module->functions[0]->body.first;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++, stmt = stmt->next) {
    assert_quoted(module, stmt, true, expected[i]);
  }
  assert_null(stmt);
  stmt = module->functions[0]->body.first;
  assert_quoted(module, stmt, false, "f, at <text>:2:10");
  assert_quoted(module, NULL, true, "f");
  assert_true(qn_ok(qn__place_append(QN_OK, module, (qn__ir_node_t){NULL, stmt}, true)));
  // Without a text there are no places.
  must(qn_module_decode(module->bytes, module->byte_count, NULL, &decoded));
  assert_quoted(decoded, decoded->functions[0]->body.first, true, "f");
  qn_module_release(decoded);
  qn_module_release(module);
}

// ---- names of locals

static void assert_named(const qn_module_t* module, const char* message, const char* expected) {
  qn_status_t status = qn_status_make(QN_STATUS_UNSUPPORTED, "%s", message);
  status = qn__place_name_locals(status, module);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
  assert_string_equal(qn_status_message(status), expected);
  qn_status_free(status);
}

static void test_names(void** state) {
  (void)state;
  static const char text[] =
      "func v1(x: f32[n], out y: f32[n], v0: i64) {\n"
      "  alloc rest: f32[4] in local;\n"
      "  for step in 0..n { rest[step % 4] = x[step]; }\n"
      "  let top, at = argmax i in 0..n { x[i] };\n"
      "  for to in 0..n { y[to] = sum k in 0..4 { let part = rest[k]; part * top }; }\n"
      "}\n"
      "func g(x: i32[n]) { let b9 = n + 1; assert b9 > 0; }\n";
  qn_module_t *module = must_parse(text), *decoded;
  static const struct {
    const char *message, *expected;
  } cases[] = {
      // Numbers: n, v0, step, then i, top and at, then to, k and part.
      {"function 'v1': 'v2' is i64", "function 'v1': 'step' is i64, at <text>:3:3"},
      {"a stage: function 'v1': 'v4' and 'v8'",
       "a stage: function 'v1': 'top' and 'part', at <text>:4:3"},
      {"function 'v1': sum over 'v7'", "function 'v1': sum over 'k', at <text>:5:28"},
      {"function 'v1': buffer 'b2' of 'b1' is large",
       "function 'v1': buffer 'rest' of 'b1' is large, at <text>:2:3"},
      {"function 'g': 'v1'", "function 'g': 'b9', at <text>:7:21"},
      // Nothing else is a local.
      {"function 'v1': 'v0', 'v1', 'v99', 'v', 'v2 ', 'v99999999999', v2, 'n', 'v2", NULL},
      {"function 'g': 'v2', 'b1'", NULL},
      {"function 'h': 'v2'", NULL},
      {"function 'v1", NULL},
      {"'v2'", NULL},
      {"", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char* expected = cases[i].expected ? cases[i].expected : cases[i].message;
    assert_named(module, cases[i].message, expected);
  }
  assert_true(qn_ok(qn__place_name_locals(QN_OK, module)));
  must(qn_module_decode(module->bytes, module->byte_count, NULL, &decoded));
  assert_named(decoded, cases[0].message, cases[0].message);
  qn_module_release(decoded);
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_node),
      cmocka_unit_test(test_quotes),
      cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
