// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_leaves.c: break, continue and return: what they mean, the same after the pass
// that replaces them, and the builder's calls.
//
// Not here: where they are refused (tests/diagnostics), random modules (test_pass_*_random).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "base/base.h"
#include "ir/interpret.h"
#include "ir/passes/passes.h"
#include "ir/verify.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

#define HEAD "func f(x: i32[n], inout y: i32[n]) { "

enum { COUNT = 8 };

typedef struct leave_case {
  const char* text;
  int32_t y[COUNT];  // from zeros, with x = 0, 1, ...
} leave_case_t;

static const leave_case_t cases[] = {
    {HEAD "for i in 0..n { if x[i] == 3 { break; } y[i] = 1; } }", {1, 1, 1}},
    {HEAD "for i in 0..n { if x[i] == 3 { continue; } y[i] = 1; } }", {1, 1, 1, 0, 1, 1, 1, 1}},
    {HEAD "for i in 0..n { y[i] = 1; if x[i] == 3 { return; } } y[0] = 9; }", {1, 1, 1, 1}},
    {HEAD "if n == 8 { return; } y[0] = 9; }", {0}},
    {HEAD "if n == 7 { return; } y[0] = 9; }", {9}},
    // An arm that leaves sometimes, and what follows two of them.
    {HEAD "for i in 0..n { if x[i] > 2 { if x[i] > 5 { break; } if x[i] == 4 { continue; } "
          "y[i] = 2; } y[i] = y[i] + 1; } y[7] = 5; }",
     {1, 1, 1, 3, 0, 3, 0, 5}},
    {HEAD "for i in 0..n { if x[i] < 3 { y[i] = 1; } else { continue; } y[i] = y[i] + 1; } }",
     {2, 2, 2}},
    // The innermost loop is left, and what is around goes on.
    {HEAD "for i in 0..n { for j in 0..n { if x[j] > x[i] { break; } y[i] = y[i] + 1; } "
          "if x[i] == 5 { break; } y[i] = -y[i]; } }",
     {-1, -2, -3, -4, -5, 6}},
    {HEAD "for i in 0..n { while true { y[i] = y[i] + 1; if y[i] > x[i] { break; } "
          "if y[i] == 4 { return; } } } }",
     {1, 2, 3, 4, 4}},
    {HEAD "for i in 0..n { for j in 0..n { for k in 0..n { if i + j + k == 2 { return; } "
          "y[k] = y[k] + 1; } y[7] = 100; } } }",
     {1, 1}},
    // The condition of a while is not computed after a break.
    {HEAD "let at = 0; alloc k: i64[] in local; k[] = 0; while x[k[]] < 7 { k[] = k[] + 1; "
          "if k[] == 7 { k[] = 99; break; } y[k[]] = 1; } y[0] = i32(k[]); }",
     {99, 1, 1, 1, 1, 1, 1}},
    {HEAD
     "parallel i in 0..n { if x[i] % 2 == 0 { continue; } for j in 0..n { if j == 2 { break; } "
     "y[i] = y[i] + 1; } } }",
     {0, 2, 0, 2, 0, 2, 0, 2}},
    {HEAD
     "vector i in 0..8 { if x[i] == 1 { continue; } y[i] = 1; } unroll i in 0..4 { if i == 2 { "
     "continue; } y[i] = y[i] + 1; } }",
     {2, 1, 1, 2, 1, 1, 1, 1}},
    // Threads leave a loop at different times.
    {HEAD "block.x b in 0..1 { thread.x t in 0..8 { for j in 0..n { if x[j] == 2 { continue; } "
          "if j > t { break; } y[t] = y[t] + 1; } y[t] = y[t] * 2; } } }",
     {2, 4, 4, 6, 8, 10, 12, 14}},
    // The largest index has no next one.
    {HEAD "for i in 9223372036854775805..9223372036854775807 { if n == 3 { break; } "
          "y[0] = y[0] + 1; } }",
     {2}},
};

static void run(const qn__ir_func_t* function, const leave_case_t* leave_case, const char* what) {
  int32_t x[COUNT], y[COUNT] = {0};
  for (int32_t i = 0; i < COUNT; i++) x[i] = i;
  uint64_t params[] = {(uintptr_t)x, (uintptr_t)y};
  int64_t symbols[] = {COUNT};
  qn__interpret_args_t args = {.params = params, .symbols = symbols, .warp_size = 32};
  must(qn__interpret(function, &args, qn_allocator_default()));
  for (size_t i = 0; i < COUNT; i++) {
    if (y[i] == leave_case->y[i]) continue;
    fail_msg("%s: y[%zu] is %d, not %d: %s", what, i, y[i], leave_case->y[i], leave_case->text);
  }
}

static void they_end_what_they_name(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn_module_t* module = must_parse(cases[i].text);
    run(module->functions[0], &cases[i], "as written");
    qn__ir_body_t body;
    must(qn__body_clone(&module->body, qn_allocator_default(), &body));
    assert_true(qn__pass_lower_leaves.is_needed(&body));
    const qn__pass_options_t options = {.vector_bytes = 16, .warp_size = 32, .max_threads = 64};
    const qn__pass_t* const pass = &qn__pass_lower_leaves;
    must(qn__passes_run(&body, &options, &pass, 1));
    must(qn__body_verify_status(&body, "lowered"));
    assert_false(qn__pass_lower_leaves.is_needed(&body));
    qn__function_number(body.first);
    run(body.first, &cases[i], "lowered");
    qn__body_deinit(&body);
    qn_module_release(module);
  }
}

static void the_builder_leaves_too(void** state) {
  (void)state;
  qn_builder_t* b = NULL;
  must(qn_builder_create((qn_allocator_t){0}, &b));
  qn_build_function(b, "f");
  qn_expr_t* n = qn_build_symbol(b, "n");
  (void)qn_build_buffer_param(b, "x", QN_ACCESS_IN, QN_DTYPE_I32, 1, &n, NULL, 0);
  qn_buffer_t* y = qn_build_buffer_param(b, "y", QN_ACCESS_INOUT, QN_DTYPE_I32, 1, &n, NULL, 0);
  qn_expr_t* eight = qn_build_int(b, QN_DTYPE_I64, 8);
  qn_build_if(b, qn_build_op(b, QN_OP_EQ, n, eight, NULL));
  qn_build_leave(b, QN_LEAVE_RETURN);
  qn_build_end(b);
  qn_expr_t* zero = qn_build_int(b, QN_DTYPE_I64, 0);
  qn_build_store(b, y, 1, &zero, qn_build_int(b, QN_DTYPE_I32, 9));
  qn_build_end(b);
  qn_module_t* built = NULL;
  must(qn_builder_finish(b, &built));
  qn_module_t* parsed = must_parse(cases[3].text);
  assert_true(qn_same_bytes(built, parsed));
  qn_module_release(parsed);
  qn_module_release(built);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(they_end_what_they_name),
      cmocka_unit_test(the_builder_leaves_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
