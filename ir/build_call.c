// SPDX-License-Identifier: Apache-2.0
// ir/build_call.c: the builder's functions with a value, and calls of them.
#include "ir/builder.h"

#include "ir/callee.h"

struct qn__builder_callee {
  qn__callee_t base;
  bool has_reduction;  // the value, outside of lets
  struct qn__builder_callee* next;
};

static const qn__builder_callee_t* find_callee(const qn_builder_t* builder, const char* name) {
  const qn__builder_callee_t* callee = builder->callees;
  while (callee && strcmp(callee->base.function->name, name) != 0) callee = callee->next;
  return callee;
}

// Returns false after an error.
static bool check_function(qn_builder_t* builder) {
  const qn__ir_func_t* function = builder->function;
  if (builder->frame->kind != QN__FRAME_FUNCTION) {
    return qn__build_fail(builder, "a block is open; close it with qn_build_end");
  }
  for (size_t i = 0; i < builder->param_count; i++) {
    const qn__ir_buffer_t* buffer = builder->params[i].buffer;
    if (!buffer) continue;
    return qn__build_fail(builder,
                          "parameter '%s' is a buffer; those of a function with a value "
                          "are scalars",
                          buffer->name);
  }
  if (builder->symbol_count > 0) {
    return qn__build_fail(builder, "a function with a value has no symbols");
  }
  for (const qn__ir_stmt_t* stmt = function->body.first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET) continue;
    return qn__build_fail(builder, "a function with a value is made of lets");
  }
  if (!find_callee(builder, function->name)) return true;
  return qn__build_fail(builder, "a function with a value already has this name");
}

void qn_build_return(qn_builder_t* builder, qn_expr_t* value) {
  if (!qn__build_takes_stmts(builder, __func__) || !check_function(builder)) return;
  qn__arena_t* arena = &builder->body.arena;
  qn__ir_func_t* function = builder->function;
  qn__builder_value_t built = {0};
  qn__ir_expr_t* tree = qn__build_take(builder, "the value", value, &built);
  if (!tree) return;
  size_t count = builder->param_count;
  qn__builder_callee_t* callee = QN__ARENA_NEW(arena, qn__builder_callee_t);
  function->params = qn__arena_alloc_array(arena, count, sizeof *function->params);
  if (callee && function->params) {
    if (count) memcpy(function->params, builder->params, count * sizeof *function->params);
    function->param_count = count;
    callee->base = (qn__callee_t){.function = function, .value = tree};
    callee->has_reduction = built.has_reduction;
  }
  if (!callee || !function->params || !qn__callee_init(&callee->base, arena)) {
    (void)qn__build_out_of_memory(builder);
    return;
  }
  callee->next = builder->callees;
  builder->callees = callee;
  builder->function = NULL;
  builder->frame = NULL;
}

qn_expr_t* qn_build_call(qn_builder_t* builder, const char* name, size_t count,
                         qn_expr_t* const* args) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  const qn__builder_callee_t* callee = name ? find_callee(builder, name) : NULL;
  if (!callee) {
    return qn__build_fail(builder, "no function '%s' was closed by qn_build_return",
                          name ? name : "(null)");
  }
  const qn__ir_func_t* function = callee->base.function;
  if (count != function->param_count || (count > 0 && !args)) {
    return qn__build_fail(builder, "'%s' takes %zu values, not %zu", name, function->param_count,
                          args ? count : 0);
  }
  qn__arena_t* arena = &builder->body.arena;
  qn__builder_value_t built = {0};
  qn__ir_expr_t** trees = qn__arena_alloc_array(arena, count, sizeof(qn__ir_expr_t*));
  if (!trees) return qn__build_out_of_memory(builder);
  for (size_t i = 0; i < count; i++) {
    const qn__ir_var_t* param = function->params[i].scalar;
    trees[i] = qn__build_take_as(builder, param->name, args[i], param->dtype, &built);
    if (!trees[i]) return NULL;
  }
  qn__expansion_t expansion = {.arena = arena,
                               .lets = builder->frame->block,
                               .places = &builder->body.places,
                               .node_count = &builder->expanded_count};
  qn__ir_expr_t* value = qn__callee_expand(&callee->base, trees, &expansion);
  if (expansion.is_too_large) {
    return qn__build_fail(builder, "the calls of this module expand to more than %d operations",
                          QN__LARGEST_EXPANSION);
  }
  if (!value) return qn__build_out_of_memory(builder);
  if (expansion.height > QN__LARGEST_NESTING) {
    return qn__build_fail(builder, "the call of '%s' nests deeper than %d levels; use qn_build_let",
                          name, QN__LARGEST_NESTING);
  }
  built = (qn__builder_value_t){.height = expansion.height - 1,
                                .weight = expansion.weight - 1,
                                .has_reduction = built.has_reduction || callee->has_reduction};
  return qn__build_give(builder, value, built);
}
