// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_calls.c: calls of functions with a value give the module that the text without
// them gives; the builder's calls; limits; running out of memory.
//
// Not here: messages (tests/diagnostics).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

#define SQUARE "func square(v: f32) -> f32 { return v * v; }\n"
#define HEAD "func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { "
#define END " } }\n"

typedef struct same {
  const char* called;
  const char* expanded;
} same_t;

static const same_t sames[] = {
    // A value that is used twice is computed once; a name and a literal are not named again.
    {HEAD "y[i] = square(x[i] + 1.0);" END SQUARE, HEAD "let v = x[i] + 1.0; y[i] = v * v;" END},
    {HEAD "let a = x[i]; y[i] = square(a);" END SQUARE, HEAD "let a = x[i]; y[i] = a * a;" END},
    {SQUARE HEAD "y[i] = square(2);" END, HEAD "y[i] = f32(2.0) * 2.0;" END},
    // A value that is always used, and once, stays where it is.
    {HEAD "y[i] = relu(x[i]);" END "func relu(v: f32) -> f32 { return max(v, 0.0); }",
     HEAD "y[i] = max(x[i], 0.0);" END},
    // It is computed even if the function may not need it.
    {HEAD "y[i] = clip(x[i], i < 3);" END
          "func clip(v: f32, c: bool) -> f32 { return c ? v : 1.0; }",
     HEAD "let v = x[i]; y[i] = i < 3 ? v : 1.0;" END},
    // Where it may not be computed, it is substituted.
    {HEAD "y[i] = i > 0 ? square(x[i - 1]) : 0.0;" END SQUARE,
     HEAD "y[i] = i > 0 ? x[i - 1] * x[i - 1] : 0.0;" END},
    {HEAD "if i > 0 && square(x[i - 1]) > 1.0 { y[i] = 1.0; }" END SQUARE,
     HEAD "if i > 0 && x[i - 1] * x[i - 1] > 1.0 { y[i] = 1.0; }" END},
    {HEAD "while square(y[i]) < 1.0 { y[i] = 1.0; }" END SQUARE,
     HEAD "while y[i] * y[i] < 1.0 { y[i] = 1.0; }" END},
    // In a reduction, each iteration computes it.
    {HEAD "y[i] = sum j in 0..n { square(x[j] + 1.0) };" END SQUARE,
     HEAD "y[i] = sum j in 0..n { let v = x[j] + 1.0; v * v };" END},
    {HEAD "let a, b = argmax j in 0..n { square(x[j] + 1.0) }; y[i] = a;" END SQUARE,
     HEAD "let a, b = argmax j in 0..n { let v = x[j] + 1.0; v * v }; y[i] = a;" END},
    {HEAD "if x[i] > 1.0 { y[i] = 0.0; } else if square(x[i]) > 2.0 { y[i] = 1.0; }" END SQUARE,
     HEAD
     "if x[i] > 1.0 { y[i] = 0.0; } else { let v = x[i]; if v * v > 2.0 { y[i] = 1.0; } }" END},
    // Names of the function are its own.
    {HEAD "let t = x[i]; let u = y4(t); y[i] = t + u;" END
          "func y4(u: f32) -> f32 { let t = square(u); return t * t; }" SQUARE,
     HEAD "let t = x[i]; let s = t * t; let u = s * s; y[i] = t + u;" END},
    // Bounds and shapes.
    {"func f(out y: f32[n]) { alloc t: f32[n + twice(n)] in global; for i in 0..twice(n) { "
     "t[i] = 1.0; } parallel i in 0..n { y[i] = t[i]; } } "
     "func twice(n: i64) -> i64 { let m = n; return m + n; }",
     "func f(out y: f32[n]) { alloc t: f32[n + (n + n)] in global; for i in 0..n + n { "
     "t[i] = 1.0; } parallel i in 0..n { y[i] = t[i]; } }"},
};

static void a_call_is_what_its_expansion_is(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(sames); i++) {
    qn_module_t* called = must_parse(sames[i].called);
    qn_module_t* expanded = must_parse(sames[i].expanded);
    assert_int_equal(qn_module_function_count(called), 1);
    if (!qn_same_bytes(called, expanded)) fail_msg("other bytes: %s", sames[i].called);
    qn_module_release(called);
    qn_module_release(expanded);
  }
}

static void the_builder_calls_too(void** state) {
  (void)state;
  qn_builder_t* b = NULL;
  must(qn_builder_create((qn_allocator_t){0}, &b));
  qn_build_function(b, "square");
  qn_expr_t* v = qn_build_scalar_param(b, "v", QN_DTYPE_F32);
  qn_build_return(b, qn_build_op(b, QN_OP_MUL, v, v, NULL));
  qn_build_function(b, "f");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_buffer_t* x = qn_build_buffer_param(b, "x", QN_ACCESS_IN, QN_DTYPE_F32, 1, &n, NULL, 0);
  qn_buffer_t* y = qn_build_buffer_param(b, "y", QN_ACCESS_OUT, QN_DTYPE_F32, 1, &n, NULL, 0);
  qn_expr_t* zero = qn_build_int(b, QN_DTYPE_I64, 0);
  qn_expr_t* i = qn_build_loop(b, QN_LOOP_PARALLEL, "i", zero, n);
  qn_expr_t* sum = qn_build_op(b, QN_OP_ADD, qn_build_load(b, x, 1, &i),
                               qn_build_float(b, QN_DTYPE_F32, 1), NULL);
  qn_build_store(b, y, 1, &i, qn_build_call(b, "square", 1, &sum));
  qn_build_end(b);
  qn_build_end(b);
  qn_module_t* built = NULL;
  must(qn_builder_finish(b, &built));
  qn_module_t* parsed = must_parse(sames[0].called);
  assert_true(qn_same_bytes(built, parsed));
  qn_module_release(parsed);
  qn_module_release(built);
}

static void the_builder_refuses(void** state) {
  (void)state;
  for (int mistake = 0; mistake < 4; mistake++) {
    qn_builder_t* b = NULL;
    must(qn_builder_create((qn_allocator_t){0}, &b));
    qn_build_function(b, "g");
    qn_expr_t* v = qn_build_scalar_param(b, "v", QN_DTYPE_F32);
    if (mistake == 0) qn_build_assert(b, qn_build_bool(b, true), "");
    if (mistake == 1) (void)qn_build_call(b, "g", 1, &v);
    qn_build_return(b, v);
    qn_build_function(b, "f");
    qn_expr_t* w = qn_build_scalar_param(b, "w", QN_DTYPE_F64);
    if (mistake == 2) (void)qn_build_call(b, "g", 1, &w);
    if (mistake == 3) (void)qn_build_call(b, "g", 0, NULL);
    qn_build_end(b);
    qn_module_t* module = NULL;
    qn_status_t status = qn_builder_finish(b, &module);
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
    qn_status_free(status);
  }
}

// Each function doubles the one before: 2^30 operations without lets, 30 with them.
static void substitution_is_bounded(void** state) {
  (void)state;
  for (int is_lazy = 0; is_lazy < 2; is_lazy++) {
    char text[8192];
    size_t size = 0;
    for (int i = 0; i < 30; i++) {
      size += (size_t)snprintf(text + size, sizeof text - size,
                               "func g%d(v: f32) -> f32 { let a = %s%d(v); return a + a; }\n",
                               i + 1, i == 0 ? "exp(v) + g" : "g", i);
    }
    (void)snprintf(text + size, sizeof text - size,
                   "func g0(v: f32) -> f32 { return v; }\n"
                   "func f(x: f32[], out y: f32[]) { y[] = %s g30(x[])%s; }\n",
                   is_lazy ? "x[] > 1.0 ?" : "", is_lazy ? " : 0.0" : "");
    qn_module_t* module = NULL;
    qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
    assert_int_equal(qn_ok(status), !is_lazy);
    if (is_lazy) assert_non_null(strstr(qn_status_message(status), "QN0141"));
    qn_status_free(status);
    qn_module_release(module);
  }
}

static bool parse_all(qn_allocator_t allocator, void* user) {
  (void)user;
  for (size_t i = 0; i < QN_COUNT_OF(sames); i++) {
    qn_parse_options_t options = {.struct_size = sizeof options, .allocator = allocator};
    qn_module_t* module = NULL;
    qn_status_t status =
        qn_module_parse(sames[i].called, strlen(sames[i].called), &options, &module);
    bool is_good = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
    qn_status_free(status);
    qn_module_release(module);
    if (!is_good) return false;
  }
  return true;
}

static void memory_may_run_out(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(parse_all, NULL) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_call_is_what_its_expansion_is),
      cmocka_unit_test(the_builder_calls_too),
      cmocka_unit_test(the_builder_refuses),
      cmocka_unit_test(substitution_is_bounded),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
