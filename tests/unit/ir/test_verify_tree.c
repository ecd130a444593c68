// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_verify_tree.c: tests the verifier on trees that no text gives, as a defect of
// a pass could leave them. It must report them and never crash.
//
// Each test takes a valid body and breaks one thing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/verify.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

static const char text[] =
    "func f(x: f32[n, m], k: i32, out y: f32[n]) {\n"
    "  for i in 0..n {\n"
    "    let t = sum j in 0..m { let u = x[i, j]; u };\n"
    "    alloc a: f32[4] in local;\n"
    "    a[1] = t;\n"
    "    if t > 1.0 { y[i] = a[1] + 1.0; }\n"
    "    assert k > 0, \"none\";\n"
    "  }\n"
    "}\n"
    "func g() {}\n";

// The parts of a copy of the body.
typedef struct parts {
  qn__ir_body_t body;
  qn__ir_func_t* function;
  qn__ir_stmt_t* loop;
  qn__ir_stmt_t* let;
  qn__ir_stmt_t* alloc;
  qn__ir_stmt_t* store;
  qn__ir_stmt_t* branch;
  qn__ir_stmt_t* check;
} parts_t;

static void take_apart(parts_t* parts) {
  qn_module_t* module = must_parse(text);
  assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &parts->body)));
  qn_module_release(module);
  parts->function = parts->body.first;
  parts->loop = parts->function->body.first;
  parts->let = parts->loop->loop.body.first;
  parts->alloc = parts->let->next;
  parts->store = parts->alloc->next;
  parts->branch = parts->store->next;
  parts->check = parts->branch->next;
}

typedef struct breakage {
  void (*break_it)(parts_t* p);
  const char* part;  // of the message
} breakage_t;

#define BREAK(name) static void name(parts_t* p)

BREAK(nothing) {
  (void)p;
}
BREAK(node_used_twice) {
  p->store->store.value = p->store->store.indices[0];
}
BREAK(stmt_used_twice) {
  p->branch->if_.else_block = p->branch->if_.then_block;
}
BREAK(cycle) {
  p->check->next = p->let;
}
BREAK(wrong_end) {
  p->loop->loop.body.last = p->store;
}
BREAK(missing_value) {
  p->store->store.value = NULL;
}
BREAK(missing_index) {
  p->store->store.indices[0] = NULL;
}
BREAK(missing_indices) {
  p->store->store.indices = NULL;
}
BREAK(missing_buffer) {
  p->store->store.buffer = NULL;
}
BREAK(missing_message) {
  p->check->assert_.message = NULL;
}
BREAK(missing_variable) {
  p->let->let.var = NULL;
}
BREAK(bad_stmt_kind) {
  p->check->kind = (qn__ir_stmt_kind_t)77;
}
BREAK(bad_expr_kind) {
  p->store->store.value->kind = (qn__ir_expr_kind_t)77;
}
BREAK(bad_op) {
  p->check->assert_.condition->op = (qn_op_t)255;
}
BREAK(bad_loop_kind) {
  p->loop->loop.kind = (qn_loop_kind_t)77;
}
BREAK(bad_reduction) {
  p->let->let.value->reduce.reduce_kind = (qn_reduce_kind_t)77;
}
BREAK(wrong_result_dtype) {
  p->check->assert_.condition->dtype = QN_DTYPE_I8;
}
BREAK(wrong_load_dtype) {
  p->let->let.value->reduce.lets.first->let.value->dtype = QN_DTYPE_F64;
}
BREAK(wrong_let_dtype) {
  p->let->let.var->dtype = QN_DTYPE_F64;
}
BREAK(wrong_value_dtype) {
  p->store->store.value = qn__expr_int(&p->body.arena, QN_DTYPE_I32, 1);
}
BREAK(literal_beyond_dtype) {
  p->check->assert_.condition->args[1]->int_value = INT64_C(1) << 40;
}
BREAK(float_not_of_dtype) {
  p->store->store.value = qn__expr_float(&p->body.arena, QN_DTYPE_F32, 0.1);
}
BREAK(operand_mismatch) {
  p->check->assert_.condition->args[1] = qn__expr_int(&p->body.arena, QN_DTYPE_I64, 1);
}
BREAK(condition_not_bool) {
  p->check->assert_.condition = qn__expr_int(&p->body.arena, QN_DTYPE_I64, 1);
}
BREAK(bound_not_i64) {
  p->loop->loop.begin = qn__expr_int(&p->body.arena, QN_DTYPE_I32, 0);
}
BREAK(float_index) {
  p->store->store.indices[0] = qn__expr_float(&p->body.arena, QN_DTYPE_F32, 0);
}
BREAK(undeclared_buffer) {
  p->loop->loop.body.first->next = p->store;  // the allocation is gone
}
BREAK(buffer_after_use) {
  p->let->next = p->store;
  p->store->next = p->alloc;
  p->alloc->next = p->branch;
}
BREAK(declared_twice) {
  qn__ir_stmt_t* again = qn__stmt_new(&p->body.arena, QN__STMT_ALLOC, (qn__ir_loc_t){0, 0});
  again->alloc.buffer = p->alloc->alloc.buffer;
  qn__block_append(&p->loop->loop.body, again);
}
BREAK(variable_of_another_function) {
  qn__ir_stmt_t* stmt = qn__stmt_new(&p->body.arena, QN__STMT_LET, (qn__ir_loc_t){0, 0});
  stmt->let.var = qn__var_new(&p->body.arena, QN__VAR_LET, QN_DTYPE_I64, "z");
  stmt->let.value = qn__expr_var(&p->body.arena, p->loop->loop.var);
  qn__block_append(&p->function->next->body, stmt);
}
BREAK(store_in_a_reduction) {
  qn__ir_stmt_t* stmt = qn__stmt_new(&p->body.arena, QN__STMT_BARRIER, (qn__ir_loc_t){0, 0});
  qn__block_append(&p->let->let.value->reduce.lets, stmt);
}
BREAK(symbols_out_of_order) {
  qn__ir_var_t* first = p->function->symbols[0];
  p->function->symbols[0] = p->function->symbols[1];
  p->function->symbols[1] = first;
}
BREAK(symbol_too_many) {
  qn__ir_var_t** symbols = qn__arena_alloc_array(&p->body.arena, 3, sizeof(qn__ir_var_t*));
  symbols[0] = p->function->symbols[0];
  symbols[1] = p->function->symbols[1];
  symbols[2] = qn__var_new(&p->body.arena, QN__VAR_SYMBOL, QN_DTYPE_I64, "extra");
  p->function->symbols = symbols;
  p->function->symbol_count = 3;
}
BREAK(symbol_not_listed) {
  p->function->symbol_count = 1;
}
BREAK(param_without_access) {
  p->function->params[0].buffer->access = QN_ACCESS_NONE;
}
BREAK(param_of_no_kind) {
  p->function->params[1].scalar = NULL;
}
BREAK(bad_alignment) {
  p->function->params[0].buffer->align_bytes = 2;
}
BREAK(odd_alignment) {
  p->function->params[0].buffer->align_bytes = 48;
}
BREAK(two_params_of_one_name) {
  p->function->params[1].scalar->name = "x";
}
BREAK(param_named_as_symbol) {
  p->function->params[1].scalar->name = "n";
}
BREAK(two_functions_of_one_name) {
  p->function->next->name = "f";
}
BREAK(word_as_name) {
  p->function->name = "for";
}
BREAK(no_name) {
  p->function->params[0].buffer->name = "";
}
BREAK(wrong_count) {
  p->body.function_count = 3;
}
BREAK(rank_too_high) {
  p->alloc->alloc.buffer->rank = 33;
}
BREAK(alloc_with_strides) {
  p->alloc->alloc.buffer->strides = p->alloc->alloc.buffer->shape;
}
BREAK(table_too_short) {
  qn__ir_buffer_t* buffer = p->alloc->alloc.buffer;
  buffer->scope = QN__SCOPE_CONST;
  buffer->elements = qn__arena_alloc_array(&p->body.arena, 1, sizeof(qn__ir_expr_t*));
  buffer->element_count = 1;
}
BREAK(view_of_nothing) {
  p->alloc->alloc.buffer->scope = QN__SCOPE_VIEW;
}
BREAK(bad_bitcast) {
  qn__ir_expr_t* cast =
      qn__expr_new(&p->body.arena, QN__EXPR_BITCAST, QN_DTYPE_F32, (qn__ir_loc_t){0, 0});
  cast->args[0] = qn__expr_int(&p->body.arena, QN_DTYPE_I64, 1);
  p->store->store.value = cast;
}
BREAK(too_deep) {
  for (int i = 0; i < 2000; i++) {
    p->store->store.value =
        qn__expr_op(&p->body.arena, QN_OP_NEG, p->store->store.value, NULL, NULL);
  }
}

static const breakage_t breakages[] = {
    {node_used_twice, "one node is used in two places"},
    {stmt_used_twice, "one node is used in two places"},
    {cycle, "one node is used in two places"},
    {wrong_end, "a block has a wrong end"},
    {missing_value, "an expression is missing"},
    {missing_index, "an expression is missing"},
    {missing_indices, "a statement lacks its buffer"},
    {missing_buffer, "a statement lacks its buffer"},
    {missing_message, "an assert lacks its message"},
    {missing_variable, "a let lacks its variable"},
    {bad_stmt_kind, "a statement of kind 77"},
    {bad_expr_kind, "an expression of kind 77 lacks a part"},
    {bad_op, "operator 255 does not exist"},
    {bad_loop_kind, "a loop lacks a part"},
    {bad_reduction, "a reduction lacks a part"},
    {wrong_result_dtype, "the result of '>' is typed i8"},
    {wrong_load_dtype, "lacks a part"},
    {wrong_let_dtype, "'t' is f64, its value f32"},
    {wrong_value_dtype, "a value of dtype i32 for 'a' of f32"},
    {literal_beyond_dtype, "1099511627776 is outside of i32"},
    {float_not_of_dtype, "is not a value of f32"},
    {operand_mismatch, "operand 2 of '>' is i64, expected i32"},
    {condition_not_bool, "the condition of 'assert' is i64, expected bool"},
    {bound_not_i64, "the begin of a loop is i32, expected i64"},
    {float_index, "index 0 of 'a' is f32, expected an integer"},
    {undeclared_buffer, "buffer 'a' is used where it is not declared"},
    {buffer_after_use, "buffer 'a' is used where it is not declared"},
    {declared_twice, "'a' is declared twice"},
    {variable_of_another_function, "function 'g': variable 'i' is used where it is not declared"},
    {store_in_a_reduction, "a reduction may only hold lets before its value"},
    {symbols_out_of_order, "symbols are not in the order of their first appearance"},
    {symbol_too_many, "symbols are not in the order of their first appearance"},
    {symbol_not_listed, "variable 'm' is used where it is not declared"},
    {param_without_access, "parameter 'x' has no access of a parameter"},
    {param_of_no_kind, "parameter 1 must be a buffer or a scalar"},
    {bad_alignment, "must be a power of two from 4 to 4096"},
    {odd_alignment, "an alignment of 48 bytes"},
    {two_params_of_one_name, "two parameters are named 'x'"},
    {param_named_as_symbol, "two symbols are named 'n'"},
    {two_functions_of_one_name, "two functions are named 'f'"},
    {word_as_name, "'for' cannot be the name of a function"},
    {no_name, "'' cannot be the name of a parameter"},
    {wrong_count, "3 functions are counted, 2 are there"},
    {rank_too_high, "the limit is 32"},
    {alloc_with_strides, "an allocation lacks a part"},
    {table_too_short, "table 'a' has 1 elements, its shape has 4"},
    {view_of_nothing, "a view lacks its buffer"},
    {bad_bitcast, "no bitcast from i64 to f32"},
    {too_deep, "nesting is deeper than"},
};

static void broken_trees_are_found(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(breakages); i++) {
    parts_t parts;
    take_apart(&parts);
    breakages[i].break_it(&parts);
    // As a source, and as what a pass left.
    qn__diag_t diag;
    qn__diag_init(&diag, qn_allocator_default(), NULL, "", QN_STR(""));
    if (qn__body_verify(&parts.body, &diag)) fail_msg("%s: found nothing", breakages[i].part);
    qn__diag_deinit(&diag);
    qn_status_t status = qn__body_verify_status(&parts.body, "a pass");
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_MODULE);
    const char* message = qn_status_message(status);
    if (!strstr(message, breakages[i].part)) {
      fail_msg("expected \"%s\" in\n%s", breakages[i].part, message);
    }
    assert_memory_equal(message, "a pass: ", 8);
    qn_status_free(status);
    qn__body_deinit(&parts.body);
  }
}

static void an_unbroken_tree_is_valid(void** state) {
  (void)state;
  parts_t parts;
  take_apart(&parts);
  nothing(&parts);
  qn_status_t status = qn__body_verify_status(&parts.body, "a pass");
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__body_deinit(&parts.body);
}

// What passes may leave and sources may not have.
static void lowered_bodies_have_room(void** state) {
  (void)state;
  parts_t parts;
  take_apart(&parts);
  parts.alloc->alloc.buffer->shape[0]->int_value = 1 << 20;
  for (int i = 0; i < 600; i++) {
    parts.store->store.value =
        qn__expr_op(&parts.body.arena, QN_OP_NEG, parts.store->store.value, NULL, NULL);
  }
  qn__diag_t diag;
  qn__diag_init(&diag, qn_allocator_default(), NULL, "", QN_STR(""));
  assert_false(qn__body_verify(&parts.body, &diag));
  assert_int_equal(diag.error_count, 2);
  qn__diag_deinit(&diag);
  qn_status_t status = qn__body_verify_status(&parts.body, "a pass");
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__body_deinit(&parts.body);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(broken_trees_are_found),
      cmocka_unit_test(an_unbroken_tree_is_valid),
      cmocka_unit_test(lowered_bodies_have_room),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
