// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_node.c: nodes, numbering, walks, copies, substitution, comparison, folding.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/encode.h"
#include "ir/ptrmap.h"
#include "ir/verify.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

static qn__arena_t arena;

static int open_arena(void** state) {
  (void)state;
  qn__arena_init(&arena, qn_allocator_default());
  return 0;
}
static int close_arena(void** state) {
  (void)state;
  qn__arena_deinit(&arena);
  return 0;
}

static qn__ir_expr_t* integer(int64_t value) {
  return qn__expr_int(&arena, QN_DTYPE_I64, value);
}

// The value of the let that is statement `index` of the first function.
static qn__ir_expr_t* let_value(qn_module_t* module, int index) {
  qn__ir_stmt_t* stmt = module->functions[0]->body.first;
  for (int i = 0; i < index; i++) stmt = stmt->next;
  assert_int_equal(stmt->kind, QN__STMT_LET);
  return stmt->let.value;
}

static void results_are_typed_by_rule(void** state) {
  (void)state;
  qn__ir_expr_t* f = qn__expr_float(&arena, QN_DTYPE_F32, 1);
  assert_int_equal(qn__expr_op(&arena, QN_OP_ADD, f, f, NULL)->dtype, QN_DTYPE_F32);
  assert_int_equal(qn__expr_op(&arena, QN_OP_LT, f, f, NULL)->dtype, QN_DTYPE_BOOL);
  qn__ir_expr_t* yes = qn__expr_int(&arena, QN_DTYPE_BOOL, 1);
  assert_int_equal(qn__expr_op(&arena, QN_OP_SELECT, yes, f, f)->dtype, QN_DTYPE_F32);
  assert_int_equal(qn__expr_op(&arena, QN_OP_ISNAN, f, NULL, NULL)->dtype, QN_DTYPE_BOOL);
  // An operand that could not be allocated.
  assert_null(qn__expr_op(&arena, QN_OP_ADD, f, NULL, NULL));
}

typedef struct counts {
  int stmts;
  int exprs;
  int stop_at;
} counts_t;

static bool count_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  (void)stmt;
  counts_t* counts = walker->self;
  return ++counts->stmts != counts->stop_at;
}
static bool count_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)expr;
  ((counts_t*)walker->self)->exprs++;
  return true;
}

static void walks_visit_everything_and_stop(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func f(x: f32[n], out y: f32[n]) {\n"
      "  for i in 0..n {\n"                                // 2 expressions
      "    view v: f32[2] = x[i];\n"                       // 1 extent, 1 index
      "    if v[0] > 0.0 {\n"                              // 4
      "      y[i] = sum k in 0..2 { let a = v[k]; a };\n"  // 1 + 1 + 2 + 2 + 1
      "    }\n"
      "  }\n"
      "}\n");
  counts_t counts = {0};
  qn__ir_walker_t walker = {count_stmt, count_expr, &counts};
  assert_true(qn__walk_block(&walker, &module->functions[0]->body));
  assert_int_equal(counts.stmts, 5);  // with the let of the reduction
  assert_int_equal(counts.exprs, 15);
  counts = (counts_t){.stop_at = 3};
  assert_false(qn__walk_block(&walker, &module->functions[0]->body));
  assert_int_equal(counts.stmts, 3);
  qn_module_release(module);
}

static void numbers_follow_the_program(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func f(x: f32[n, m], s: f32, out y: f32[n]) {\n"
      "  alloc w: f32[n] in global;\n"
      "  for i in 0..n { let t = sum k in 0..m { x[i, k] }; w[i] = t; y[i] = w[i] * s; }\n"
      "}\n");
  qn__ir_func_t* function = module->functions[0];
  assert_int_equal(function->var_count, 6);  // n m s i t k
  assert_int_equal(function->buffer_count, 3);
  assert_int_equal(function->symbols[1]->id, 1);
  assert_int_equal(function->params[1].scalar->id, 2);
  assert_int_equal(function->params[2].buffer->id, 1);
  qn__ir_stmt_t* loop = function->body.first->next;
  assert_int_equal(function->body.first->alloc.buffer->id, 2);
  assert_int_equal(loop->loop.var->id, 3);
  assert_int_equal(loop->loop.body.first->let.var->id, 4);
  assert_int_equal(loop->loop.body.first->let.value->reduce.reduce_var->id, 5);
  qn_module_release(module);
}

static qn__ir_expr_t* replace_n(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  return strcmp(var->name, "n") == 0 ? subst->self : NULL;
}

static void copies_substitute_and_declare_anew(void** state) {
  (void)state;
  qn_module_t* module =
      must_parse("func f(x: i64[n]) { let t = sum k in 0..n { let a = x[k]; a * n }; }");
  const qn__ir_expr_t* from = let_value(module, 0);
  qn__ir_subst_t plain = {.arena = &arena};
  qn__ir_expr_t* copy = qn__expr_clone(&plain, from);
  assert_true(qn__expr_equal(from, copy));
  assert_ptr_not_equal(copy->reduce.reduce_var, from->reduce.reduce_var);
  assert_ptr_not_equal(copy->reduce.lets.first->let.var, from->reduce.lets.first->let.var);
  assert_ptr_equal(copy->reduce.value->args[0]->var, copy->reduce.lets.first->let.var);
  assert_ptr_equal(copy->reduce.end->var, from->reduce.end->var);
  qn__ir_subst_t subst = {.arena = &arena, .on_var = replace_n, .self = integer(7)};
  copy = qn__expr_clone(&subst, from);
  assert_false(qn__expr_equal(from, copy));
  assert_int_equal(copy->reduce.end->int_value, 7);
  assert_int_equal(copy->reduce.value->args[1]->int_value, 7);
  // Each use got its own node.
  assert_ptr_not_equal(copy->reduce.end, copy->reduce.value->args[1]);
  qn_module_release(module);
}

static void equal_means_the_same_tree(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func f(x: i64[n], y: i64[n]) {\n"
      "  let a = sum k in 0..n { let t = x[k]; t * k };\n"
      "  let b = sum j in 0..n { let u = x[j]; u * j };\n"
      "  let c = sum j in 0..n { let u = x[j]; j * u };\n"
      "  let d = sum j in 0..n { let u = y[j]; u * j };\n"
      "  let e = max j in 0..n { let u = x[j]; u * j };\n"
      "  let g = sum j in 0..n { x[j] * j };\n"
      "  let h = n + 1;\n"
      "  let i = n + 1;\n"
      "  let k = n + 2;\n"
      "}\n");
  assert_true(qn__expr_equal(let_value(module, 0), let_value(module, 1)));
  for (int i = 2; i < 6; i++) {
    assert_false(qn__expr_equal(let_value(module, 0), let_value(module, i)));
  }
  assert_true(qn__expr_equal(let_value(module, 6), let_value(module, 7)));
  assert_false(qn__expr_equal(let_value(module, 6), let_value(module, 8)));
  assert_false(qn__expr_equal(integer(1), qn__expr_int(&arena, QN_DTYPE_I32, 1)));
  qn__ir_expr_t* zero = qn__expr_float(&arena, QN_DTYPE_F32, 0.0);
  assert_false(qn__expr_equal(zero, qn__expr_float(&arena, QN_DTYPE_F32, -0.0)));
  qn_module_release(module);
}

static void literals_fold(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func f(n: i64) {\n"
      "  let a = (7 + 3) // 4 * -2 % 5;\n"
      "  let b = i64(f32(2.5) * 2.0) << 3;\n"
      "  let c = 1 < 2 ? 10 // 3 : 1 // 0;\n"
      "  let d = 1 // 0;\n"
      "  let e = n + 1;\n"
      "  let g = bitcast(i32, f32(1.0));\n"
      "  let h = select(true, 3, 4);\n"
      "}\n");
  qn__ir_scalar_t value;
  assert_true(qn__expr_fold(let_value(module, 0), &value));
  assert_int_equal(value.i, 1);
  assert_true(qn__expr_fold(let_value(module, 1), &value));
  assert_int_equal(value.i, 40);
  assert_true(qn__expr_fold(let_value(module, 2), &value));
  assert_int_equal(value.i, 3);
  assert_false(qn__expr_fold(let_value(module, 3), &value));
  assert_false(qn__expr_fold(let_value(module, 4), &value));
  assert_true(qn__expr_fold(let_value(module, 5), &value));
  assert_int_equal(value.i, 0x3F800000);
  assert_true(qn__expr_fold(let_value(module, 6), &value));
  assert_int_equal(value.i, 3);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ bodies

static bool encodes_to(qn__ir_body_t* body, const qn_module_t* module) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    qn__function_number(function);
  }
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn__body_encode(body, &bytes);
  bool is_same = !bytes.has_failed && bytes.size == module->byte_count &&
                 memcmp(bytes.data, module->bytes, bytes.size) == 0;
  qn__buffer_deinit(&bytes);
  return is_same;
}

static void bodies_outlive_their_original(void** state) {
  (void)state;
  qn_module_t* module = must_parse(qn_all_constructs);
  qn__ir_body_t copy;
  assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &copy)));
  qn_module_t* again = must_parse(qn_all_constructs);
  qn_module_release(module);
  assert_true(encodes_to(&copy, again));
  assert_string_equal(copy.first->name, "all");
  assert_string_equal(copy.first->signature, qn_module_function_signature(again, 0));
  qn_status_t status = qn__body_verify_status(&copy, "a copy");
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__body_deinit(&copy);
  qn_module_release(again);
}

static bool clone_all(qn_allocator_t allocator, void* user) {
  const qn_module_t* module = user;
  qn__ir_body_t copy;
  qn_status_t status = qn__body_clone(&module->body, allocator, &copy);
  if (qn_ok(status)) {
    qn__body_deinit(&copy);
    return true;
  }
  return qn_status_consume(status) == QN_STATUS_OUT_OF_MEMORY;
}

static void copying_out_of_memory_is_clean(void** state) {
  (void)state;
  qn_module_t* module = must_parse(qn_all_constructs);
  assert_true(qn_fault_walk_alloc(clone_all, module) > 5);
  qn_module_release(module);
}

static void pointer_maps_grow(void** state) {
  (void)state;
  static char keys[1000];
  qn__ptrmap_t map;
  qn__ptrmap_init(&map, qn_allocator_default());
  assert_null(qn__ptrmap_get(&map, keys));
  for (size_t i = 0; i < sizeof keys; i++) assert_true(qn__ptrmap_put(&map, keys + i, keys + i));
  assert_true(qn__ptrmap_put(&map, keys, keys + 5));
  assert_int_equal(map.count, sizeof keys);
  assert_ptr_equal(qn__ptrmap_get(&map, keys), keys + 5);
  for (size_t i = 1; i < sizeof keys; i++) {
    assert_ptr_equal(qn__ptrmap_get(&map, keys + i), keys + i);
  }
  qn__ptrmap_deinit(&map);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_are_typed_by_rule),
      cmocka_unit_test(walks_visit_everything_and_stop),
      cmocka_unit_test(numbers_follow_the_program),
      cmocka_unit_test(copies_substitute_and_declare_anew),
      cmocka_unit_test(equal_means_the_same_tree),
      cmocka_unit_test(literals_fold),
      cmocka_unit_test(bodies_outlive_their_original),
      cmocka_unit_test(copying_out_of_memory_is_clean),
      cmocka_unit_test(pointer_maps_grow),
  };
  return cmocka_run_group_tests(tests, open_arena, close_arena);
}
