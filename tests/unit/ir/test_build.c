// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_build.c: the builder: the same modules as the text gives, its mistakes and
// their messages, and running out of memory.
//
// Not here: what the verifier says (test_verify.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "base/base.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

static qn_builder_t* new_builder(void) {
  qn_builder_t* builder = NULL;
  assert_true(qn_ok(qn_builder_create((qn_allocator_t){NULL, NULL}, &builder)));
  return builder;
}

static void samples_are_what_their_texts_are(void** state) {
  (void)state;
  for (size_t i = 0; i < qn_sample_count; i++) {
    qn_builder_t* builder = new_builder();
    qn_samples[i].build(builder);
    qn_module_t* built = NULL;
    qn_status_t status = qn_builder_finish(builder, &built);
    if (!qn_ok(status)) fail_msg("%s: %s", qn_samples[i].name, qn_status_message(status));
    size_t size;
    char* text = qn_sample_text(qn_samples[i].name, &size);
    qn_module_t* parsed = must_parse(text);
    if (!qn_same_bytes(built, parsed)) fail_msg("%s: other bytes", qn_samples[i].name);
    assert_memory_equal(qn_module_digest(built), qn_module_digest(parsed), 16);
    assert_string_equal(qn_module_function_signature(built, 0),
                        qn_module_function_signature(parsed, 0));
    qn_sample_text_free(text, size);
    qn_module_release(parsed);
    qn_module_release(built);
  }
}

// All samples in one module, in their order.
static void several_functions_share_a_module(void** state) {
  (void)state;
  qn_builder_t* builder = new_builder();
  for (size_t i = 0; i < qn_sample_count; i++) qn_samples[i].build(builder);
  qn_module_t* module = NULL;
  assert_true(qn_ok(qn_builder_finish(builder, &module)));
  assert_int_equal(qn_module_function_count(module), qn_sample_count);
  assert_string_equal(qn_module_function_name(module, 1), "softmax");
  qn_module_release(module);
}

// What the other calls make, against a text.
static void every_call_makes_what_the_text_makes(void** state) {
  (void)state;
  qn_builder_t* b = new_builder();
  qn_build_function(b, "f");
  qn_build_fast(b);
  qn_expr_t* n = qn_build_symbol(b, "n");
  assert_ptr_equal(n, qn_build_symbol(b, "n"));
  qn_expr_t* s = qn_build_symbol(b, "s");
  qn_expr_t* two = qn_build_int(b, QN_DTYPE_I64, 2);
  qn_buffer_t* x = qn_build_buffer_param(b, "x", QN_ACCESS_INOUT, QN_DTYPE_I32, 2,
                                         (qn_expr_t*[]){n, two}, (qn_expr_t*[]){s, two}, 64);
  qn_expr_t* zero = qn_build_int(b, QN_DTYPE_I64, 0);
  qn_expr_t* i = qn_build_loop(b, QN_LOOP_SERIAL, "i", zero, n);
  qn_buffer_t* table = qn_build_const(
      b, "t", QN_DTYPE_I32, 1, (int64_t[]){2}, 2,
      (qn_expr_t*[]){qn_build_int(b, QN_DTYPE_I32, 7), qn_build_int(b, QN_DTYPE_I32, -7)});
  qn_buffer_t* view =
      qn_build_view(b, "v", x, 2, (qn_expr_t*[]){i, zero}, 1, (qn_expr_t*[]){two}, NULL);
  qn_expr_t* seven = qn_build_load(b, table, 1, (qn_expr_t*[]){zero});
  qn_expr_t* old = qn_build_atomic(b, QN_ATOMIC_ADD, view, 1, (qn_expr_t*[]){zero}, seven, NULL);
  (void)qn_build_atomic(b, QN_ATOMIC_CAS, view, 1, (qn_expr_t*[]){zero}, old, seven);
  qn_build_while(
      b, qn_build_op(b, QN_OP_LT, qn_build_load(b, view, 1, (qn_expr_t*[]){zero}), seven, NULL));
  qn_build_store(b, view, 1, (qn_expr_t*[]){zero},
                 qn_build_cond(b, qn_build_bool(b, true), old, seven));
  qn_build_end(b);
  qn_build_if(b, qn_build_op(b, QN_OP_EQ, old, seven, NULL));
  qn_build_store(b, view, 1, (qn_expr_t*[]){zero},
                 qn_build_bitcast(b, QN_DTYPE_I32, qn_build_float(b, QN_DTYPE_F32, 0.1)));
  qn_build_else(b);
  qn_build_store(b, view, 1, (qn_expr_t*[]){zero},
                 qn_build_cast(b, QN_DTYPE_I32, qn_build_float(b, QN_DTYPE_F64, 0.1)));
  qn_build_end(b);
  qn_build_end(b);
  qn_build_end(b);
  qn_module_t* built = NULL;
  qn_status_t status = qn_builder_finish(b, &built);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn_module_t* parsed = must_parse(
      "func f(inout x: i32[n, 2] strides [s, 2] align 64) fast {\n"
      "  for k in 0..n {\n"
      "    const c: i32[2] = [7, -7];\n"
      "    view w: i32[2] = x[k, 0];\n"
      "    let o = atomic_add(w[0], c[0]);\n"
      "    atomic_cas(w[0], o, c[0]);\n"
      "    while w[0] < c[0] { w[0] = true ? o : c[0]; }\n"
      "    if o == c[0] { w[0] = bitcast(i32, f32(0.1)); } else { w[0] = i32(f64(0.1)); }\n"
      "  }\n"
      "}\n");
  assert_true(qn_same_bytes(built, parsed));
  qn_module_release(parsed);
  qn_module_release(built);
}

static void fences_are_those_of_text(void** state) {
  (void)state;
  qn_builder_t* b = NULL;
  assert_true(qn_ok(qn_builder_create((qn_allocator_t){0}, &b)));
  qn_build_function(b, "f");
  qn_expr_t* zero = qn_build_int(b, QN_DTYPE_I64, 0);
  qn_expr_t* two = qn_build_int(b, QN_DTYPE_I64, 2);
  qn_buffer_t* x = qn_build_buffer_param(b, "x", QN_ACCESS_INOUT, QN_DTYPE_F16, 1, &two, NULL, 0);
  (void)qn_build_loop(b, QN_LOOP_BLOCK_X, "i", zero, two);
  (void)qn_build_loop(b, QN_LOOP_THREAD_X, "t", zero, two);
  qn_expr_t* old = qn_build_atomic(b, QN_ATOMIC_LOAD, x, 1, &zero, NULL, NULL);
  qn_build_fence(b);
  assert_null(qn_build_atomic(b, QN_ATOMIC_STORE, x, 1, &zero, old, NULL));
  qn_build_end(b);
  qn_build_end(b);
  qn_build_end(b);
  qn_module_t* built = NULL;
  qn_status_t status = qn_builder_finish(b, &built);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn_module_t* parsed = must_parse(
      "func f(inout x: f16[2]) { block.x i in 0..2 { thread.x t in 0..2 {\n"
      "  let old = atomic_load(x[0]); fence; atomic_store(x[0], old); } } }\n");
  assert_true(qn_same_bytes(built, parsed));
  qn_module_release(parsed);
  qn_module_release(built);
}

// ------------------------------------------------------------------------------------ mistakes

typedef struct mistake {
  void (*make)(qn_builder_t* b, qn_buffer_t* y, qn_expr_t* n);
  const char* message;  // must be part of it
} mistake_t;

#define MISTAKE(name) static void name(qn_builder_t* b, qn_buffer_t* y, qn_expr_t* n)
#define UNUSED (void)b, (void)y, (void)n

MISTAKE(store_with_one_index) {
  qn_build_store(b, y, 1, &n, qn_build_float(b, QN_DTYPE_F32, 1));
}
MISTAKE(store_of_another_dtype) {
  qn_build_store(b, y, 2, (qn_expr_t*[]){n, n}, n);
}
MISTAKE(float_index) {
  qn_expr_t* f = qn_build_float(b, QN_DTYPE_F32, 1);
  (void)qn_build_load(b, y, 2, (qn_expr_t*[]){n, f});
}
MISTAKE(null_operand) {
  UNUSED;
  (void)qn_build_op(b, QN_OP_ADD, n, NULL, NULL);
}
MISTAKE(operands_differ) {
  UNUSED;
  (void)qn_build_op(b, QN_OP_ADD, n, qn_build_int(b, QN_DTYPE_I32, 1), NULL);
}
MISTAKE(extra_operand) {
  UNUSED;
  (void)qn_build_op(b, QN_OP_NEG, n, n, NULL);
}
MISTAKE(no_operator) {
  UNUSED;
  (void)qn_build_op(b, (qn_op_t)99, n, n, NULL);
}
MISTAKE(int_out_of_range) {
  UNUSED;
  (void)qn_build_int(b, QN_DTYPE_I8, 128);
}
MISTAKE(float_out_of_range) {
  UNUSED;
  (void)qn_build_float(b, QN_DTYPE_F16, 1e6);
}
MISTAKE(float_as_int) {
  UNUSED;
  (void)qn_build_int(b, QN_DTYPE_F32, 1);
}
MISTAKE(bad_condition) {
  UNUSED;
  qn_build_if(b, n);
}
MISTAKE(else_without_if) {
  UNUSED;
  qn_build_else(b);
}
MISTAKE(bad_name) {
  UNUSED;
  (void)qn_build_let(b, "2x", n);
}
MISTAKE(word_as_name) {
  UNUSED;
  (void)qn_build_let(b, "for", n);
}
MISTAKE(reduction_used_twice) {
  (void)y;
  (void)qn_build_reduce(b, QN_REDUCE_SUM, "k", qn_build_int(b, QN_DTYPE_I64, 0), n);
  qn_expr_t* sum = qn_build_reduce_end(b, n);
  (void)qn_build_op(b, QN_OP_ADD, sum, sum, NULL);
}
MISTAKE(store_in_reduction) {
  (void)qn_build_reduce(b, QN_REDUCE_SUM, "k", qn_build_int(b, QN_DTYPE_I64, 0), n);
  qn_build_store(b, y, 2, (qn_expr_t*[]){n, n}, qn_build_float(b, QN_DTYPE_F32, 1));
}
MISTAKE(end_of_reduction) {
  (void)y;
  (void)qn_build_reduce(b, QN_REDUCE_SUM, "k", qn_build_int(b, QN_DTYPE_I64, 0), n);
  qn_build_end(b);
}
MISTAKE(reduction_end_alone) {
  UNUSED;
  (void)qn_build_reduce_end(b, n);
}
MISTAKE(param_in_body) {
  UNUSED;
  qn_build_assert(b, qn_build_bool(b, true), NULL);
  (void)qn_build_scalar_param(b, "late", QN_DTYPE_F32);
}
MISTAKE(open_block) {
  UNUSED;
  qn_build_if(b, qn_build_bool(b, true));
}
MISTAKE(two_functions) {
  UNUSED;
  qn_build_function(b, "g");
}
MISTAKE(bitcast_size) {
  UNUSED;
  (void)qn_build_bitcast(b, QN_DTYPE_F32, n);
}
MISTAKE(choices_differ) {
  UNUSED;
  (void)qn_build_cond(b, qn_build_bool(b, true), n, qn_build_bool(b, true));
}
MISTAKE(foreign_expression) {
  (void)y;
  qn_builder_t* other = new_builder();
  qn_build_function(other, "g");
  (void)qn_build_op(b, QN_OP_ADD, n, qn_build_int(other, QN_DTYPE_I64, 1), NULL);
  qn_builder_destroy(other);
}
MISTAKE(no_buffer) {
  UNUSED;
  (void)qn_build_load(b, NULL, 0, NULL);
}
MISTAKE(endless_doubling) {
  (void)y;
  for (int i = 0; i < 100; i++) n = qn_build_op(b, QN_OP_ADD, n, n, NULL);
}
MISTAKE(endless_nesting) {
  (void)y;
  for (int i = 0; i < 300; i++) n = qn_build_op(b, QN_OP_NEG, n, NULL, NULL);
}
MISTAKE(bool_reduction) {
  (void)y;
  (void)qn_build_reduce(b, QN_REDUCE_SUM, "k", qn_build_int(b, QN_DTYPE_I64, 0), n);
  (void)qn_build_reduce_end(b, qn_build_bool(b, true));
}
MISTAKE(bad_scope) {
  (void)y;
  (void)qn_build_alloc(b, "t", (qn_scope_t)7, QN_DTYPE_F32, 1, &n);
}
MISTAKE(load_operand) {
  qn_expr_t* one = qn_build_float(b, QN_DTYPE_F32, 1);
  (void)qn_build_atomic(b, QN_ATOMIC_LOAD, y, 2, (qn_expr_t*[]){n, n}, one, NULL);
}
MISTAKE(store_operand) {
  (void)qn_build_atomic(b, QN_ATOMIC_STORE, y, 2, (qn_expr_t*[]){n, n}, NULL, NULL);
}
MISTAKE(cas_operand) {
  qn_expr_t* one = qn_build_float(b, QN_DTYPE_F32, 1);
  (void)qn_build_atomic(b, QN_ATOMIC_ADD, y, 2, (qn_expr_t*[]){n, n}, one, one);
}

static const mistake_t mistakes[] = {
    {store_with_one_index,
     "qn_build_store: buffer 'y' has rank 2, 1 index was given (in function 'f')"},
    {store_of_another_dtype, "qn_build_store: the value is i64, buffer 'y' holds f32"},
    {float_index, "qn_build_load: index 1 is f32, expected an integer"},
    {null_operand, "qn_build_op: operand 2 is NULL"},
    {operands_differ, "qn_build_op: operand 2 of '+' is i32, expected i64"},
    {extra_operand, "qn_build_op: '-' takes 1 operand, operand 2 was given"},
    {no_operator, "qn_build_op: operator 99 does not exist"},
    {int_out_of_range, "qn_build_int: 128 is outside of i8"},
    {float_out_of_range, "qn_build_float: 1e+06 is outside of f16"},
    {float_as_int, "qn_build_int: f32 is not an integer dtype"},
    {bad_condition, "qn_build_if: the condition is i64, expected bool"},
    {else_without_if, "qn_build_else: the innermost open block is not an if"},
    {bad_name, "qn_build_let: '2x' is not a name"},
    {word_as_name, "qn_build_let: 'for' is not a name"},
    {reduction_used_twice, "qn_build_op: operand 2 holds a reduction that is used already"},
    {store_in_reduction, "qn_build_store: inside a reduction only lets are allowed"},
    {end_of_reduction, "qn_build_end: a reduction is open"},
    {reduction_end_alone, "qn_build_reduce_end: the innermost open block is not a reduction"},
    {param_in_body, "qn_build_scalar_param: parameters come before the first statement"},
    {open_block, "qn_builder_finish: a block is still open"},
    {two_functions, "qn_build_function: a function is open"},
    {bitcast_size, "qn_build_bitcast: i64 cannot become f32"},
    {choices_differ, "qn_build_cond: the second choice is bool, expected i64"},
    {foreign_expression, "qn_build_op: operand 2 is not an expression of this builder"},
    {no_buffer, "qn_build_load: the buffer is NULL"},
    {endless_doubling, "qn_build_op: operand 2 is used again and again"},
    {endless_nesting, "qn_build_op: operand 1 nests deeper than 256 levels; use qn_build_let"},
    {bool_reduction, "qn_build_reduce_end: the value is bool, expected an integer or a float"},
    {bad_scope, "qn_build_alloc: scope 7 is neither local, shared nor global"},
    {cas_operand, "qn_build_atomic: 'atomic_add' takes one operand, two were given"},
    {load_operand, "qn_build_atomic: 'atomic_load' takes no operand, one was given"},
    {store_operand, "qn_build_atomic: the operand is NULL"},
};

// The first mistake sticks; what follows does nothing and gives NULL.
static void the_first_mistake_is_reported(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(mistakes); i++) {
    qn_builder_t* b = new_builder();
    qn_build_function(b, "f");
    qn_expr_t* n = qn_build_symbol(b, "n");
    qn_buffer_t* y = qn_build_buffer_param(b, "y", QN_ACCESS_OUT, QN_DTYPE_F32, 2,
                                           (qn_expr_t*[]){n, n}, NULL, 0);
    assert_non_null(y);
    mistakes[i].make(b, y, n);
    bool is_open = strstr(mistakes[i].message, "qn_builder_finish") != NULL;
    if (!is_open) {
      assert_null(qn_build_int(b, QN_DTYPE_I64, 1));
      assert_null(qn_build_op(b, QN_OP_ADD, n, n, NULL));
      qn_build_store(b, y, 9, NULL, NULL);
      qn_build_end(b);
    }
    qn_module_t* module = NULL;
    qn_status_t status = qn_builder_finish(b, &module);
    assert_null(module);
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
    if (!strstr(qn_status_message(status), mistakes[i].message)) {
      fail_msg("mistake %zu: expected \"%s\" in \"%s\"", i, mistakes[i].message,
               qn_status_message(status));
    }
    qn_status_free(status);
  }
}

static void no_function_is_open(void** state) {
  (void)state;
  qn_builder_t* b = new_builder();
  assert_null(qn_build_int(b, QN_DTYPE_I64, 1));
  qn_module_t* module = NULL;
  qn_status_t status = qn_builder_finish(b, &module);
  assert_non_null(strstr(qn_status_message(status), "call qn_build_function first"));
  qn_status_free(status);
}

// What one call cannot see is found by the verifier, which then names the function.
static void the_verifier_speaks_at_the_end(void** state) {
  (void)state;
  qn_builder_t* b = new_builder();
  qn_build_function(b, "f");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_buffer_t* x = qn_build_buffer_param(b, "x", QN_ACCESS_IN, QN_DTYPE_I64, 1, &n, NULL, 0);
  qn_expr_t* zero = qn_build_int(b, QN_DTYPE_I64, 0);
  qn_expr_t* i = qn_build_loop(b, QN_LOOP_SERIAL, "i", zero, n);
  qn_build_end(b);
  qn_build_store(b, x, 1, &i, n);
  qn_build_end(b);
  qn_module_t* module = NULL;
  qn_status_t status = qn_builder_finish(b, &module);
  assert_null(module);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_MODULE);
  const char* message = qn_status_message(status);
  assert_non_null(strstr(message, "error[QN0214]: function 'f': 'x' is an 'in' parameter"));
  assert_non_null(strstr(message, "error[QN0202]: function 'f': variable 'i' is used where"));
  qn_status_free(status);
}

// ------------------------------------------------------------------------------------ memory

static bool build_all(qn_allocator_t allocator, void* user) {
  (void)user;
  qn_builder_t* builder = NULL;
  qn_status_t status = qn_builder_create(allocator, &builder);
  qn_module_t* module = NULL;
  if (qn_ok(status)) {
    for (size_t i = 0; i < qn_sample_count; i++) qn_samples[i].build(builder);
    status = qn_builder_finish(builder, &module);
  }
  bool is_good = qn_ok(status) == (module != NULL);
  qn_module_release(module);
  qn_status_code_t code = qn_status_consume(status);
  return is_good && (code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY);
}

// A scan of pairs and a reduction of two values, against a text.
static void scans_are_those_of_text(void** state) {
  (void)state;
  qn_builder_t* b = new_builder();
  qn_build_function(b, "f");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_buffer_t* x = qn_build_buffer_param(b, "x", QN_ACCESS_INOUT, QN_DTYPE_I32, 1, &n, NULL, 0);
  qn_expr_t *zero = qn_build_int(b, QN_DTYPE_I64, 0), *one = qn_build_int(b, QN_DTYPE_I32, 1);
  qn_expr_t *left[2], *right[2], *results[2];
  for (int step = 0; step < 2; step++) {
    qn_expr_t* i = qn_build_several(b, "i", zero, n);
    qn_expr_t* values[] = {qn_build_load(b, x, 1, &i), one};
    qn_build_several_values(b, 2, values, (qn_expr_t*[]){one, one}, left, right);
    qn_expr_t* merged[] = {qn_build_op(b, QN_OP_MUL, left[0], right[0], NULL),
                           qn_build_op(b, QN_OP_ADD, left[1], right[1], NULL)};
    if (step == 0) {
      qn_build_several_end(b, merged, results);
      continue;
    }
    qn_expr_t* both = qn_build_op(b, QN_OP_ADD, results[0], results[1], NULL);
    qn_build_scan(b, true, merged, results);
    both = qn_build_op(b, QN_OP_ADD, both, results[0], NULL);
    qn_build_store(b, x, 1, &i, qn_build_op(b, QN_OP_MUL, both, results[1], NULL));
    qn_build_end(b);
  }
  qn_build_end(b);
  qn_module_t* built = NULL;
  qn_status_t status = qn_builder_finish(b, &built);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn_module_t* parsed = must_parse(
      "func f(inout x: i32[n]) {\n"
      "  let p, q = reduce i in 0..n { x[i], i32(1) } from (1, 1) with (a, c), (b, d) {\n"
      "    a * b, c + d };\n"
      "  exclusive_scan i in 0..n { x[i], i32(1) } from (1, 1) with (a, c), (b, d) {\n"
      "    a * b, c + d } as (s, t) { x[i] = (p + q + s) * t; }\n"
      "}\n");
  assert_true(qn_same_bytes(built, parsed));
  qn_module_release(parsed);
  qn_module_release(built);
}

static void running_out_of_memory_is_clean(void** state) {
  (void)state;
  long runs = qn_fault_walk_alloc(build_all, NULL);
  assert_true(runs > 20);
}

static void an_unfinished_builder_is_dropped(void** state) {
  (void)state;
  qn_builder_t* b = new_builder();
  qn_build_function(b, "f");
  qn_builder_destroy(b);
  qn_builder_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fences_are_those_of_text),
      cmocka_unit_test(samples_are_what_their_texts_are),
      cmocka_unit_test(scans_are_those_of_text),
      cmocka_unit_test(several_functions_share_a_module),
      cmocka_unit_test(every_call_makes_what_the_text_makes),
      cmocka_unit_test(the_first_mistake_is_reported),
      cmocka_unit_test(no_function_is_open),
      cmocka_unit_test(the_verifier_speaks_at_the_end),
      cmocka_unit_test(running_out_of_memory_is_clean),
      cmocka_unit_test(an_unfinished_builder_is_dropped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
