// SPDX-License-Identifier: Apache-2.0
// ir/read.c: the public walk over a module (quern/read.h): describes a node in a struct of the
// caller.
//
// Each kind of node is a case of a switch without a default, so that a compiler names a kind that
// has none. tests/unit/ir/test_read.c writes canonical bytes from these descriptions alone.
#include "quern/read.h"

#include "base/argument.h"
#include "base/struct_size.h"
#include "ir/encode.h"

// Handles are nodes, and arrays of handles are those of the tree.
static const qn_expr_t* const* exprs_of(qn__ir_expr_t* const* exprs) {
  return (const qn_expr_t* const*)exprs;
}

static const qn_var_t* const* vars_of(qn__ir_var_t* const* vars) {
  return (const qn_var_t* const*)vars;
}

static uint32_t place_of(const qn_module_t* module, qn__ir_loc_t loc) {
  return module->has_places ? loc.begin : 0;
}

// ------------------------------------------------------------------------------------ functions

qn_status_t qn_module_function_info(const qn_module_t* module, size_t index,
                                    qn_function_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_function_info_t, out_info);
  QN_REQUIRE(module);
  if (index >= module->body.function_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function %zu of a module that has %zu",
                          index, module->body.function_count);
  }
  const qn__ir_func_t* function = module->functions[index];
  qn_function_info_t info = {.name = function->name,
                             .is_fast = function->is_fast,
                             .param_count = function->param_count,
                             .symbol_count = function->symbol_count,
                             .symbols = vars_of(function->symbols),
                             .var_count = function->var_count,
                             .buffer_count = function->buffer_count,
                             .body = function->body.first};
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

static qn_var_kind_t var_kind_of(const qn__ir_var_t* var) {
  switch (var->kind) {
    case QN__VAR_SYMBOL:
      return QN_VAR_SYMBOL;
    case QN__VAR_SCALAR:
      return QN_VAR_SCALAR;
    case QN__VAR_LOOP:
      return QN_VAR_LOOP;
    case QN__VAR_REDUCE:
      return QN_VAR_REDUCE;
    case QN__VAR_LET:
      return QN_VAR_LET;
    case QN__VAR_ATOMIC:
      return QN_VAR_ATOMIC;
  }
  return QN_VAR_NONE;
}

qn_status_t qn_module_var_info(const qn_module_t* module, const qn_var_t* var,
                               qn_var_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_var_info_t, out_info);
  QN_REQUIRE(module);
  QN_REQUIRE(var);
  qn_var_info_t info = {.kind = var_kind_of(var),
                        .dtype = var->dtype,
                        .id = var->id,
                        .name = var->name,
                        .is_fixed = var->is_fixed,
                        .fixed_value = var->fixed_value};
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

qn_status_t qn_module_buffer_info(const qn_module_t* module, const qn_buffer_t* buffer,
                                  qn_buffer_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_buffer_info_t, out_info);
  QN_REQUIRE(module);
  QN_REQUIRE(buffer);
  qn_buffer_info_t info = {.scope = (qn_scope_t)buffer->scope,
                           .dtype = buffer->dtype,
                           .id = buffer->id,
                           .origin_id = module->has_places ? buffer->origin_id : buffer->id,
                           .name = buffer->name,
                           .rank = buffer->rank,
                           .shape = exprs_of(buffer->shape),
                           .strides = exprs_of(buffer->strides)};
  switch (buffer->scope) {
    case QN__SCOPE_PARAM:
      info.access = buffer->access;
      info.align_bytes = buffer->align_bytes;
      break;
    case QN__SCOPE_LOCAL:
    case QN__SCOPE_SHARED:
    case QN__SCOPE_GLOBAL:
      break;
    case QN__SCOPE_CONST:
      info.element_count = buffer->element_count;
      info.elements = exprs_of(buffer->elements);
      break;
    case QN__SCOPE_VIEW:
      info.base = buffer->base;
      info.base_index_count = buffer->base->rank;
      info.base_indices = exprs_of(buffer->base_indices);
      break;
  }
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

// ------------------------------------------------------------------------------------ expressions

static void describe_expr(const qn__ir_expr_t* expr, qn_expr_info_t* info) {
  qn__ir_operands_t operands = qn__expr_operands(expr);
  info->arg_count = (uint32_t)operands.count;
  if (operands.count > 0) info->args = exprs_of(operands.items);
  switch (expr->kind) {
    case QN__EXPR_INT:
      info->kind = QN_EXPR_INT;
      info->int_value = expr->int_value;
      info->bits = qn__literal_bits(expr);
      break;
    case QN__EXPR_FLOAT:
      info->kind = QN_EXPR_FLOAT;
      info->float_value = expr->float_value;
      info->bits = qn__literal_bits(expr);
      break;
    case QN__EXPR_VAR:
      info->kind = QN_EXPR_VAR;
      info->var = expr->var;
      break;
    case QN__EXPR_LOAD:
      info->kind = QN_EXPR_LOAD;
      info->buffer = expr->load.buffer;
      break;
    case QN__EXPR_OP:
      info->kind = QN_EXPR_OP;
      info->op = expr->op;
      break;
    case QN__EXPR_CAST:
      info->kind = QN_EXPR_CAST;
      break;
    case QN__EXPR_BITCAST:
      info->kind = QN_EXPR_BITCAST;
      break;
    case QN__EXPR_COND:
      info->kind = QN_EXPR_COND;
      break;
    case QN__EXPR_REDUCE:
      info->kind = QN_EXPR_REDUCE;
      info->reduce_kind = expr->reduce.reduce_kind;
      info->var = expr->reduce.reduce_var;
      info->begin = expr->reduce.begin;
      info->end = expr->reduce.end;
      info->lets = expr->reduce.lets.first;
      info->value = expr->reduce.value;
      info->lane_count = expr->reduce.lane_count;
      break;
  }
}

qn_status_t qn_module_expr_info(const qn_module_t* module, const qn_expr_t* expr,
                                qn_expr_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_expr_info_t, out_info);
  QN_REQUIRE(module);
  QN_REQUIRE(expr);
  qn_expr_info_t info = {.dtype = expr->dtype, .place = place_of(module, expr->loc)};
  describe_expr(expr, &info);
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

// ------------------------------------------------------------------------------------ statements

// Indices of an access are one for each dimension.
static void describe_access(const qn__ir_buffer_t* buffer, qn__ir_expr_t* const* indices,
                            qn_stmt_info_t* info) {
  info->buffer = buffer;
  info->index_count = buffer->rank;
  info->indices = exprs_of(indices);
}

static void describe_stmt(const qn__ir_stmt_t* stmt, qn_stmt_info_t* info) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      info->kind = QN_STMT_LET;
      info->var = stmt->let.var;
      info->value = stmt->let.value;
      break;
    case QN__STMT_STORE:
      info->kind = QN_STMT_STORE;
      describe_access(stmt->store.buffer, stmt->store.indices, info);
      info->value = stmt->store.value;
      break;
    case QN__STMT_ATOMIC:
      info->kind = QN_STMT_ATOMIC;
      info->atomic_op = stmt->atomic.op;
      describe_access(stmt->atomic.buffer, stmt->atomic.indices, info);
      info->var = stmt->atomic.result;
      info->value = stmt->atomic.operand;
      info->value2 = stmt->atomic.operand2;
      break;
    case QN__STMT_IF:
      info->kind = QN_STMT_IF;
      info->condition = stmt->if_.condition;
      info->body = stmt->if_.then_block.first;
      info->other_body = stmt->if_.else_block.first;
      break;
    case QN__STMT_LOOP:
      info->kind = QN_STMT_LOOP;
      info->loop_kind = stmt->loop.kind;
      info->var = stmt->loop.var;
      info->begin = stmt->loop.begin;
      info->end = stmt->loop.end;
      info->body = stmt->loop.body.first;
      info->lane_count = stmt->loop.lane_count;
      info->is_rare = stmt->loop.is_rare;
      break;
    case QN__STMT_WHILE:
      info->kind = QN_STMT_WHILE;
      info->condition = stmt->while_.condition;
      info->body = stmt->while_.body.first;
      break;
    case QN__STMT_ALLOC:
      info->kind = QN_STMT_ALLOC;
      info->buffer = stmt->alloc.buffer;
      break;
    case QN__STMT_BARRIER:
      info->kind = QN_STMT_BARRIER;
      break;
    case QN__STMT_ASSERT:
      info->kind = QN_STMT_ASSERT;
      info->condition = stmt->assert_.condition;
      info->message = stmt->assert_.message ? stmt->assert_.message : "";
      break;
    case QN__STMT_TENSOR:
      (void)QN_NEVER(true);  // passes make it, and no module has it (jit/lower/lower.c)
      break;
    case QN__STMT_REDUCE:
      info->kind = QN_STMT_REDUCE;
      break;
    case QN__STMT_LEAVE:
      info->kind = QN_STMT_LEAVE;
      info->leave = stmt->leave;
      break;
    case QN__STMT_FENCE:
      info->kind = QN_STMT_FENCE;
      break;
  }
}

qn_status_t qn_module_stmt_info(const qn_module_t* module, const qn_stmt_t* stmt,
                                qn_stmt_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_stmt_info_t, out_info);
  QN_REQUIRE(module);
  QN_REQUIRE(stmt);
  qn_stmt_info_t info = {.place = place_of(module, stmt->loc), .next = stmt->next};
  describe_stmt(stmt, &info);
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

static qn_several_kind_t several_kind_of(const qn__ir_several_t* several) {
  switch (several->kind) {
    case QN__SEVERAL_COMBINE:
      return QN_SEVERAL_COMBINE;
    case QN__SEVERAL_ARGMIN:
      return QN_SEVERAL_ARGMIN;
    case QN__SEVERAL_ARGMAX:
      return QN_SEVERAL_ARGMAX;
    case QN__SEVERAL_SCAN:
      return QN_SEVERAL_SCAN;
    case QN__SEVERAL_EXCLUSIVE_SCAN:
      return QN_SEVERAL_EXCLUSIVE_SCAN;
  }
  return QN_SEVERAL_NONE;
}

qn_status_t qn_module_several_info(const qn_module_t* module, const qn_stmt_t* stmt,
                                   qn_several_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_several_info_t, out_info);
  QN_REQUIRE(module);
  QN_REQUIRE(stmt);
  if (stmt->kind != QN__STMT_REDUCE) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a statement of kind %d is no reduction of several values",
                          (int)stmt->kind);
  }
  const qn__ir_several_t* several = stmt->several;
  qn_several_info_t info = {.kind = several_kind_of(several),
                            .count = several->count,
                            .var = several->var,
                            .begin = several->begin,
                            .end = several->end,
                            .lets = several->lets.first,
                            .values = exprs_of(several->values),
                            .merged_count = several->merged_count,
                            .merge_lets = several->merge_lets.first,
                            .result_count = several->result_count,
                            .results = vars_of(several->results),
                            .body = several->body.first};
  if (several->merged_count > 0) {
    info.initial = exprs_of(several->initial);
    info.left = vars_of(several->left);
    info.right = vars_of(several->right);
    info.merged = exprs_of(several->merged);
  }
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}
