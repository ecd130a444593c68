// SPDX-License-Identifier: Apache-2.0
// ir/build_expr.c: expressions of the builder.
//
// A handle may be used many times, but a node has one parent: the first use takes the node itself,
// each later use a copy. A tree with a reduction is never copied, because the copy would compute it
// again: the error suggests a let. Copies are counted, so that a program that doubles an expression
// in a loop gets an error instead of exhausting memory.
#include <assert.h>
#include <math.h>

#include "ir/arith.h"
#include "ir/builder.h"

// Copied nodes of one builder.
#define MAX_COPIES ((uint64_t)1 << 22)

static uint32_t add_saturating(uint32_t a, uint32_t b) {
  return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

qn__ir_expr_t* qn__build_give(qn_builder_t* builder, qn__ir_expr_t* expr,
                              qn__builder_value_t built) {
  qn__builder_value_t* kept =
      expr ? QN__ARENA_NEW(&builder->body.arena, qn__builder_value_t) : NULL;
  if (!kept || !qn__ptrmap_put(&builder->handles, expr, kept)) {
    return qn__build_out_of_memory(builder);
  }
  *kept = (qn__builder_value_t){.height = built.height + 1,
                                .weight = add_saturating(built.weight, 1),
                                .has_reduction = built.has_reduction};
  return expr;
}

qn__ir_expr_t* qn__build_give_leaf(qn_builder_t* builder, qn__ir_expr_t* expr) {
  return qn__build_give(builder, expr, (qn__builder_value_t){0});
}

qn__ir_expr_t* qn__build_give_var(qn_builder_t* builder, qn__ir_var_t* var) {
  if (!var) return qn__build_out_of_memory(builder);
  return qn__build_give_leaf(builder, qn__expr_var(&builder->body.arena, var));
}

// The variable of an atomic's old value is declared at its first use.
static void declare_result(qn__ir_var_t* var) {
  qn__ir_stmt_t* stmt = var->user;
  if (var->kind != QN__VAR_ATOMIC || !stmt) return;
  stmt->atomic.result = var;
  var->user = NULL;
}

qn__ir_expr_t* qn__build_take(qn_builder_t* builder, const char* what, qn__ir_expr_t* expr,
                              qn__builder_value_t* inout_built) {
  if (!qn_ok(builder->status)) return NULL;
  if (!expr) return qn__build_fail(builder, "%s is NULL", what);
  qn__builder_value_t* built = qn__ptrmap_get(&builder->handles, expr);
  if (!built) {
    return qn__build_fail(builder, "%s is not an expression of this builder", what);
  }
  if (inout_built) {
    if (built->height > inout_built->height) inout_built->height = built->height;
    inout_built->weight = add_saturating(inout_built->weight, built->weight);
    inout_built->has_reduction |= built->has_reduction;
    if (inout_built->height >= QN__LARGEST_NESTING) {
      return qn__build_fail(builder, "%s nests deeper than %d levels; use qn_build_let", what,
                            QN__LARGEST_NESTING);
    }
  }
  if (expr->kind == QN__EXPR_VAR) declare_result(expr->var);
  assert(built->height > 0 && built->weight > 0);
  if (!built->is_used) {
    built->is_used = true;
    return expr;
  }
  if (built->has_reduction) {
    return qn__build_fail(builder,
                          "%s holds a reduction that is used already; give it a name with "
                          "qn_build_let",
                          what);
  }
  builder->weight += built->weight;
  if (builder->weight > MAX_COPIES) {
    return qn__build_fail(builder,
                          "%s is used again and again: too many copies of expressions; give it a "
                          "name with qn_build_let",
                          what);
  }
  qn__ir_subst_t subst = {.arena = &builder->body.arena};
  qn__ir_expr_t* copy = qn__expr_clone(&subst, expr);
  return copy ? copy : qn__build_out_of_memory(builder);
}

qn__ir_expr_t* qn__build_take_as(qn_builder_t* builder, const char* what, qn__ir_expr_t* expr,
                                 qn_dtype_t dtype, qn__builder_value_t* inout_built) {
  qn__ir_expr_t* tree = qn__build_take(builder, what, expr, inout_built);
  if (!tree || tree->dtype == dtype) return tree;
  return qn__build_fail(builder, "%s is %s, expected %s", what, qn_dtype_text(tree->dtype),
                        qn_dtype_text(dtype));
}

qn__ir_expr_t** qn__build_take_all(qn_builder_t* builder, const char* what,
                                   qn__ir_expr_t* const* exprs, size_t count, qn_dtype_t dtype,
                                   qn__builder_value_t* inout_built) {
  if (!qn_ok(builder->status)) return NULL;
  if (count > 0 && !exprs) return qn__build_fail(builder, "%s: the array is NULL", what);
  qn__ir_expr_t** trees =
      qn__arena_alloc_array(&builder->body.arena, count, sizeof(qn__ir_expr_t*));
  if (!trees) return qn__build_out_of_memory(builder);
  for (size_t i = 0; i < count; i++) {
    qn__ir_expr_t* tree = qn__build_take(builder, what, exprs[i], inout_built);
    if (!tree) return NULL;
    bool is_good = dtype == QN_DTYPE_NONE ? qn__dtype_is_int(tree->dtype) : tree->dtype == dtype;
    if (!is_good) {
      return qn__build_fail(builder, "%s %zu is %s, expected %s", what, i,
                            qn_dtype_text(tree->dtype),
                            dtype == QN_DTYPE_NONE ? "an integer" : qn_dtype_text(dtype));
    }
    trees[i] = tree;
  }
  return trees;
}

// ------------------------------------------------------------------------------------ literals

qn_expr_t* qn_build_int(qn_builder_t* builder, qn_dtype_t dtype, int64_t value) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  if (!qn__dtype_is_whole(dtype)) {
    return qn__build_fail(builder, "%s is not an integer dtype", qn_dtype_text(dtype));
  }
  // Every bit pattern is a u64.
  if (qn__wrap_int(dtype, value) != value) {
    return qn__build_fail(builder, "%" PRId64 " is outside of %s", value, qn_dtype_text(dtype));
  }
  return qn__build_give_leaf(builder, qn__expr_int(&builder->body.arena, dtype, value));
}

qn_expr_t* qn_build_float(qn_builder_t* builder, qn_dtype_t dtype, double value) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  if (!qn__dtype_is_real(dtype)) {
    return qn__build_fail(builder, "%s is not a float dtype", qn_dtype_text(dtype));
  }
  if (isnan(value) && !qn__float_has_nan(dtype)) {
    return qn__build_fail(builder, "%s has no NaN", qn_dtype_text(dtype));
  }
  double rounded = isnan(value) ? (double)NAN : qn__round_float(dtype, value);
  if (isinf(rounded) && !isinf(value)) {
    return qn__build_fail(builder, "%g is outside of %s", value, qn_dtype_text(dtype));
  }
  return qn__build_give_leaf(builder, qn__expr_float(&builder->body.arena, dtype, rounded));
}

qn_expr_t* qn_build_bool(qn_builder_t* builder, bool value) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  return qn__build_give_leaf(builder, qn__expr_int(&builder->body.arena, QN_DTYPE_BOOL, value));
}

// ------------------------------------------------------------------------------------ operators

qn_expr_t* qn_build_op(qn_builder_t* builder, qn_op_t op, qn_expr_t* a, qn_expr_t* b,
                       qn_expr_t* c) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  const qn__ir_op_info_t* info = qn__op_info(op);
  if (!info || qn__op_is_dot(op)) {
    return qn__build_fail(builder, "operator %d does not exist", (int)op);
  }
  static const char* const names[] = {"operand 1", "operand 2", "operand 3"};
  qn_expr_t* const given[] = {a, b, c};
  qn__ir_expr_t* args[3] = {NULL, NULL, NULL};
  qn_dtype_t dtypes[3] = {QN_DTYPE_NONE, QN_DTYPE_NONE, QN_DTYPE_NONE};
  qn__builder_value_t built = {0};
  for (uint32_t i = 0; i < 3; i++) {
    if (i >= info->arity) {
      if (!given[i]) continue;
      return qn__build_fail(builder, "'%s' takes %" PRIu32 " operand%s, %s was given", info->text,
                            info->arity, info->arity == 1 ? "" : "s", names[i]);
    }
    args[i] = qn__build_take(builder, names[i], given[i], &built);
    if (!args[i]) return NULL;
    dtypes[i] = args[i]->dtype;
  }
  uint32_t index;
  const char* expected;
  if (qn__op_result(op, dtypes, &index, &expected) == QN_DTYPE_NONE) {
    return qn__build_fail(builder, "%s of '%s' is %s, expected %s", names[index], info->text,
                          qn_dtype_text(dtypes[index]), expected);
  }
  return qn__build_give(builder, qn__expr_op(&builder->body.arena, op, args[0], args[1], args[2]),
                        built);
}

static qn_expr_t* convert(qn_builder_t* builder, const char* call, qn__ir_expr_kind_t kind,
                          qn_dtype_t dtype, qn_expr_t* value) {
  if (!qn__build_is_ready(builder, call)) return NULL;
  qn__builder_value_t built = {0};
  qn__ir_expr_t* tree = qn__build_take(builder, "the value", value, &built);
  if (!tree) return NULL;
  bool is_same_size = qn__dtype_bits(dtype) == qn__dtype_bits(tree->dtype) &&
                      dtype != QN_DTYPE_BOOL && tree->dtype != QN_DTYPE_BOOL;
  if (qn_dtype_size_bytes(dtype) == 0 || (kind == QN__EXPR_BITCAST && !is_same_size)) {
    return qn__build_fail(builder, "%s cannot become %s", qn_dtype_text(tree->dtype),
                          qn_dtype_text(dtype));
  }
  qn__ir_expr_t* expr = qn__expr_new(&builder->body.arena, kind, dtype, (qn__ir_loc_t){0, 0});
  if (expr) expr->args[0] = tree;
  return qn__build_give(builder, expr, built);
}

qn_expr_t* qn_build_cast(qn_builder_t* builder, qn_dtype_t dtype, qn_expr_t* value) {
  return convert(builder, __func__, QN__EXPR_CAST, dtype, value);
}

qn_expr_t* qn_build_bitcast(qn_builder_t* builder, qn_dtype_t dtype, qn_expr_t* value) {
  return convert(builder, __func__, QN__EXPR_BITCAST, dtype, value);
}

qn_expr_t* qn_build_cond(qn_builder_t* builder, qn_expr_t* condition, qn_expr_t* a, qn_expr_t* b) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  qn__builder_value_t built = {0};
  qn__ir_expr_t* test =
      qn__build_take_as(builder, "the condition", condition, QN_DTYPE_BOOL, &built);
  qn__ir_expr_t* first = qn__build_take(builder, "the first choice", a, &built);
  if (!test || !first) return NULL;
  qn__ir_expr_t* second = qn__build_take_as(builder, "the second choice", b, first->dtype, &built);
  if (!second) return NULL;
  qn__ir_expr_t* expr =
      qn__expr_new(&builder->body.arena, QN__EXPR_COND, first->dtype, (qn__ir_loc_t){0, 0});
  if (!expr) return qn__build_out_of_memory(builder);
  expr->args[0] = test;
  expr->args[1] = first;
  expr->args[2] = second;
  return qn__build_give(builder, expr, built);
}

qn_expr_t* qn_build_load(qn_builder_t* builder, qn_buffer_t* buffer, size_t rank,
                         qn_expr_t* const* indices) {
  if (!qn__build_is_ready(builder, __func__) || !qn__build_is_buffer(builder, buffer)) {
    return NULL;
  }
  qn__builder_value_t built = {0};
  qn__ir_expr_t** trees = qn__build_indices(builder, buffer, rank, indices, &built);
  if (!trees) return NULL;
  qn__ir_expr_t* expr =
      qn__expr_new(&builder->body.arena, QN__EXPR_LOAD, buffer->dtype, (qn__ir_loc_t){0, 0});
  if (!expr) return qn__build_out_of_memory(builder);
  expr->load.buffer = buffer;
  expr->load.indices = trees;
  return qn__build_give(builder, expr, built);
}

// ------------------------------------------------------------------------------------ reductions

qn_expr_t* qn_build_reduce(qn_builder_t* builder, qn_reduce_kind_t kind, const char* name,
                           qn_expr_t* begin, qn_expr_t* end) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  if (!qn__reduce_text(kind)) {
    return qn__build_fail(builder, "reduction %d does not exist", (int)kind);
  }
  const char* text = qn__build_name(builder, name, "i");
  qn__arena_t* arena = &builder->body.arena;
  qn__builder_frame_t* frame = QN__ARENA_NEW(arena, qn__builder_frame_t);
  qn__ir_expr_t* expr = qn__expr_new(arena, QN__EXPR_REDUCE, QN_DTYPE_NONE, (qn__ir_loc_t){0, 0});
  if (!frame || !expr) return qn__build_out_of_memory(builder);
  *frame = (qn__builder_frame_t){.outer = builder->frame,
                                 .kind = QN__FRAME_REDUCE,
                                 .block = &expr->reduce.lets,
                                 .reduce = expr};
  expr->reduce.reduce_kind = kind;
  expr->reduce.begin =
      qn__build_take_as(builder, "the begin", begin, QN_DTYPE_I64, &frame->reduce_built);
  expr->reduce.end = qn__build_take_as(builder, "the end", end, QN_DTYPE_I64, &frame->reduce_built);
  if (!text || !expr->reduce.begin || !expr->reduce.end) return NULL;
  expr->reduce.reduce_var = qn__var_new(arena, QN__VAR_REDUCE, QN_DTYPE_I64, text);
  builder->frame = frame;
  return qn__build_give_var(builder, expr->reduce.reduce_var);
}

qn_expr_t* qn_build_reduce_end(qn_builder_t* builder, qn_expr_t* value) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  qn__builder_frame_t* frame = builder->frame;
  if (frame->kind != QN__FRAME_REDUCE) {
    return qn__build_fail(builder, "the innermost open block is not a reduction");
  }
  qn__ir_expr_t* expr = frame->reduce;
  assert(expr && frame->outer);
  expr->reduce.value = qn__build_take(builder, "the value", value, &frame->reduce_built);
  if (!expr->reduce.value) return NULL;
  expr->dtype = expr->reduce.value->dtype;
  if (!qn__dtype_is_int(expr->dtype) && !qn__dtype_is_float(expr->dtype)) {
    return qn__build_fail(builder, "the value is %s, expected an integer or a float",
                          qn_dtype_text(expr->dtype));
  }
  frame->reduce_built.has_reduction = true;
  builder->frame = frame->outer;
  return qn__build_give(builder, expr, frame->reduce_built);
}
