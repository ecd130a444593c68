// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_views.c: replaces accesses through views by accesses to the base.
//
// A view is removed if each of its dimensions has the stride of a dimension of the base, so that
// view[i] is base[start + i]: slices, rows, tiles. Other views (a matrix seen as a vector, elements
// of another dtype) stay, with explicit strides. In checked builds all views stay, because the
// view's own bounds must be checked; the start of an empty view is not evaluated there, since it
// may be anywhere. Start indices that are not plain become lets before the view, so that they are
// evaluated at its declaration.
#include "ir/passes/pass_builder.h"

// Returns true if the view stays within the extent of dimension `d` of the base. Otherwise it may
// continue in the next row, which indices of the base must not. The first dimension has no next
// row.
static bool fits(const qn__ir_buffer_t* view, uint32_t i, uint32_t d) {
  const qn__ir_expr_t* extent = view->base->shape[d];
  int64_t start, size, limit, end;
  if (d == 0) return true;
  if (!qn__expr_const_int(view->base_indices[d], &start) || start < 0) return false;
  if (start == 0 && qn__expr_equal(view->shape[i], extent)) return true;
  return qn__expr_const_int(view->shape[i], &size) && qn__expr_const_int(extent, &limit) &&
         !__builtin_add_overflow(start, size, &end) && end <= limit;
}

// Returns the dimension of the base for each dimension of the view. NULL if there is no such
// mapping.
static uint32_t* find_mapping(qn__pass_builder_t* pb, const qn__ir_buffer_t* view) {
  const qn__ir_buffer_t* base = view->base;
  qn__ir_expr_t** strides = qn__buf_strides(pb->arena, base);
  uint32_t* base_dims = qn__arena_alloc_array(pb->arena, view->rank + 1U, sizeof *base_dims);
  if (!strides || !base_dims || view->dtype != base->dtype) return NULL;
  uint32_t next = 0;
  for (uint32_t i = 0; i < view->rank; ++i) {
    while (next < base->rank && !qn__expr_equal(view->strides[i], strides[next])) ++next;
    if (next == base->rank || !fits(view, i, next)) return NULL;
    for (uint32_t d = next + 1; d < base->rank; ++d) {
      if (qn__expr_equal(view->strides[i], strides[d])) return NULL;  // ambiguous
    }
    base_dims[i] = next++;
  }
  return base_dims;
}

// Replaces a removed view by its base, as long as the base is a removed view too. Its `user` is the
// mapping.
static bool redirect(void* self, const qn__ir_ref_t* ref) {
  qn__pass_builder_t* pb = self;
  while ((*ref->buffer)->scope == QN__SCOPE_VIEW && (*ref->buffer)->user) {
    const qn__ir_buffer_t* view = *ref->buffer;
    const uint32_t* base_dims = view->user;
    uint32_t rank = view->base->rank;
    qn__ir_expr_t** indices = qn__arena_alloc_array(pb->arena, rank + 1U, sizeof *indices);
    if (!indices) return false;
    for (uint32_t d = 0; d < rank; ++d) indices[d] = qn__pb_copy(pb, view->base_indices[d]);
    for (uint32_t i = 0; i < view->rank; ++i) {
      uint32_t d = base_dims[i];
      assert(d < rank && (i == 0 || d > base_dims[i - 1]));
      indices[d] =
          qn__pb_op(pb, QN_OP_ADD, indices[d], qn__pb_cast(pb, QN_DTYPE_I64, (*ref->indices)[i]));
    }
    if (qn__pb_stopped(pb)) return false;
    *ref->buffer = view->base;
    *ref->indices = indices;
  }
  return true;
}

// Moves start indices into lets in `out`, before the view.
static void bind_start(qn__pass_builder_t* pb, qn__ir_buffer_t* view, qn__ir_block_t* out) {
  for (uint32_t d = 0; d < view->base->rank; ++d) {
    qn__ir_expr_t* index = qn__pb_cast(pb, QN_DTYPE_I64, view->base_indices[d]);
    if (index && index->kind != QN__EXPR_VAR && index->kind != QN__EXPR_INT) {
      index = qn__pb_use(pb, qn__pb_let(pb, out, "start", index));
    }
    if (!index) return;
    view->base_indices[d] = index;
  }
}

// Returns true if extents or strides contain loads. These cannot be compared, since two loads from
// one place may differ.
static bool has_loads(const qn__ir_buffer_t* view) {
  for (uint32_t i = 0; i < view->rank; ++i) {
    if (qn__expr_facts(view->shape[i]).has_load || qn__expr_facts(view->strides[i]).has_load) {
      return true;
    }
  }
  return false;
}

// Makes start indices whose evaluation may fail 0 for an empty view.
static void guard_start(qn__pass_builder_t* pb, qn__ir_buffer_t* view) {
  for (uint32_t d = 0; d < view->base->rank; ++d) {
    qn__ir_expr_t* index = view->base_indices[d];
    qn__ir_expr_facts_t facts = qn__expr_facts(index);
    if (!facts.has_load && !facts.has_division) continue;
    for (uint32_t i = 0; i < view->rank; ++i) {
      int64_t extent;
      if (qn__expr_const_int(view->shape[i], &extent) && extent != 0) continue;
      qn__ir_expr_t* exists = qn__pb_op_int(pb, QN_OP_NE, qn__pb_copy(pb, view->shape[i]), 0);
      index = qn__pb_cond(pb, exists, index, qn__pb_zero(pb, index ? index->dtype : QN_DTYPE_I64));
    }
    if (qn__pb_stopped(pb)) return;
    view->base_indices[d] = index;
  }
}

// Returns true if the view is removed, with its declaration.
static bool lower_view(qn__pass_builder_t* pb, qn__ir_buffer_t* view, qn__ir_block_t* out) {
  view->strides = qn__buf_strides(pb->arena, view);
  if (!view->strides) return false;
  if (pb->options->is_checked) guard_start(pb, view);
  if (pb->options->is_checked || has_loads(view)) return false;
  uint32_t* base_dims = find_mapping(pb, view);
  if (!base_dims) return false;
  bind_start(pb, view, out);
  view->user = base_dims;
  return true;
}

static void lower_block(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(pb);) {
    if (!qn__stmt_each_ref(stmt, redirect, pb)) return;
    QN__EACH_BLOCK(stmt, inner) lower_block(pb, inner);
    bool is_view = stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW;
    bool is_removed = is_view && lower_view(pb, stmt->alloc.buffer, block);
    if (!is_removed) qn__block_append(block, stmt);
  }
}

static void lower_function(qn__pass_builder_t* pb) {
  lower_block(pb, &pb->function->body);
}

static bool lacks_strides(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW &&
         !stmt->alloc.buffer->strides;
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, lacks_strides) ? "a view without strides" : NULL;
}

const qn__pass_t qn__pass_lower_views = {
    .name = "lower_views",
    .doc = "replaces accesses through views by accesses to their base",
    .run = lower_function,
    .post = "views that are left have strides",
    .check = check,
    .is_alone = true,
};
