// SPDX-License-Identifier: Apache-2.0
// Places of nodes: each node of a module is found by its offset in the canonical bytes, and
// messages quote the text at it.
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_node),
      cmocka_unit_test(test_quotes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
