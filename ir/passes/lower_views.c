// ir/passes/lower_views.c: replaces accesses through views by accesses to the base.
//
// A view is removed if each of its dimensions has the stride of a dimension of the base, so that
// view[i] is base[start + i]: slices, rows, tiles. Other views (a matrix seen as a vector) stay,
// with explicit strides. In checked builds all views stay, because the view's own bounds must be
// checked. Start indices that are not plain become lets before the view, so that they are evaluated
// at its declaration.
#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

typedef struct lower {
  qn__arena_t* arena;
  bool keeps_views;
  bool has_failed;
} lower_t;

// `user` of a view that is removed.
typedef struct mapping {
  uint32_t* base_dims;  // per dimension of the view
} mapping_t;

static qn__ir_expr_t* clone(lower_t* self, const qn__ir_expr_t* expr) {
  return qn__expr_replace(self->arena, expr, NULL, NULL);
}

static qn__ir_expr_t* as_i64(lower_t* self, qn__ir_expr_t* expr) {
  if (!expr || expr->dtype == QN_DTYPE_I64) return expr;
  qn__ir_expr_t* cast = qn__expr_new(self->arena, QN__EXPR_CAST, QN_DTYPE_I64, expr->loc);
  if (cast) cast->args[0] = expr;
  return cast;
}

static qn__ir_expr_t* add(lower_t* self, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  if (!a || !b) return NULL;
  if (qn__expr_is_int(a, 0)) return b;
  return qn__expr_is_int(b, 0) ? a : qn__expr_op(self->arena, QN_OP_ADD, a, b, NULL);
}

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

// Finds a dimension of the base for each dimension of the view. NULL if there is no such mapping.
static mapping_t* find_mapping(lower_t* self, const qn__ir_buffer_t* view) {
  const qn__ir_buffer_t* base = view->base;
  qn__ir_expr_t** strides = qn__buf_strides(self->arena, base);
  mapping_t* mapping = QN__ARENA_NEW(self->arena, mapping_t);
  if (mapping) {
    mapping->base_dims = qn__arena_alloc_array(self->arena, view->rank + 1U, sizeof(uint32_t));
  }
  if (!strides || !mapping || !mapping->base_dims) {
    self->has_failed = true;
    return NULL;
  }
  uint32_t next = 0;
  for (uint32_t i = 0; i < view->rank; ++i) {
    while (next < base->rank && !qn__expr_equal(view->strides[i], strides[next])) ++next;
    if (next == base->rank || !fits(view, i, next)) return NULL;
    for (uint32_t d = next + 1; d < base->rank; ++d) {
      if (qn__expr_equal(view->strides[i], strides[d])) return NULL;  // ambiguous
    }
    mapping->base_dims[i] = next++;
  }
  return mapping;
}

// Replaces *inout_buffer and *inout_indices by those of the base, as long as the buffer is a
// removed view.
static void redirect(lower_t* self, qn__ir_buffer_t** inout_buffer,
                     qn__ir_expr_t*** inout_indices) {
  while ((*inout_buffer)->scope == QN__SCOPE_VIEW && (*inout_buffer)->user) {
    qn__ir_buffer_t* view = *inout_buffer;
    const mapping_t* mapping = view->user;
    qn__ir_expr_t** indices =
        qn__arena_alloc_array(self->arena, view->base->rank + 1U, sizeof *indices);
    if (!indices) {
      self->has_failed = true;
      return;
    }
    for (uint32_t d = 0; d < view->base->rank; ++d) indices[d] = clone(self, view->base_indices[d]);
    for (uint32_t i = 0; i < view->rank; ++i) {
      uint32_t d = mapping->base_dims[i];
      indices[d] = add(self, indices[d], as_i64(self, (*inout_indices)[i]));
    }
    for (uint32_t d = 0; d < view->base->rank; ++d) {
      if (!indices[d]) self->has_failed = true;
    }
    if (self->has_failed) return;
    *inout_buffer = view->base;
    *inout_indices = indices;
  }
}

static bool redirect_loads(void* context, qn__ir_expr_t** slot) {
  lower_t* self = context;
  if ((*slot)->kind == QN__EXPR_LOAD) {
    redirect(self, &(*slot)->load.buffer, &(*slot)->load.indices);
    if (self->has_failed) return false;
  }
  return qn__expr_each_child(*slot, redirect_loads, self);
}

// Moves start indices into lets in `out`, before the view.
static void bind_start(lower_t* self, qn__ir_buffer_t* view, qn__ir_block_t* out) {
  for (uint32_t d = 0; d < view->base->rank; ++d) {
    qn__ir_expr_t* index = as_i64(self, view->base_indices[d]);
    if (index && index->kind != QN__EXPR_VAR && index->kind != QN__EXPR_INT) {
      qn__ir_stmt_t* let = qn__stmt_new(self->arena, QN__STMT_LET, view->loc);
      qn__ir_var_t* var = qn__var_new(self->arena, QN__VAR_LET, QN_DTYPE_I64, "start");
      if (!let || !var) {
        self->has_failed = true;
        return;
      }
      let->let.var = var;
      let->let.value = index;
      qn__block_append(out, let);
      index = qn__expr_var(self->arena, var);
    }
    if (!index) {
      self->has_failed = true;
      return;
    }
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

// Returns true if the view is removed, with its declaration.
static bool lower_view(lower_t* self, qn__ir_buffer_t* view, qn__ir_block_t* out) {
  redirect(self, &view->base, &view->base_indices);
  if (self->has_failed) return false;
  view->strides = qn__buf_strides(self->arena, view);
  if (!view->strides) {
    self->has_failed = true;
    return false;
  }
  if (self->keeps_views || has_loads(view)) return false;
  mapping_t* mapping = find_mapping(self, view);
  if (!mapping) return false;
  bind_start(self, view, out);
  view->user = mapping;
  return true;
}

static void lower_block(lower_t* self, qn__ir_block_t* block) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    (void)qn__stmt_each_expr(stmt, redirect_loads, self);
    if (self->has_failed) return;
    if (stmt->kind == QN__STMT_STORE) {
      redirect(self, &stmt->store.buffer, &stmt->store.indices);
    } else if (stmt->kind == QN__STMT_ATOMIC) {
      redirect(self, &stmt->atomic.buffer, &stmt->atomic.indices);
    }
    QN__EACH_BLOCK(stmt, inner) {
      if (!self->has_failed) lower_block(self, inner);
    }
    if (stmt->kind == QN__STMT_ALLOC) {
      qn__ir_buffer_t* buffer = stmt->alloc.buffer;
      buffer->user = NULL;
      if (buffer->scope == QN__SCOPE_VIEW && lower_view(self, buffer, &result)) continue;
    }
    if (self->has_failed) return;
    qn__block_append(&result, stmt);
  }
  *block = result;
}

static qn_status_t run(qn__ir_body_t* body, const qn__pass_options_t* options) {
  lower_t self = {&body->arena, options->is_checked, false};
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    for (size_t i = 0; i < function->param_count; ++i) {
      if (function->params[i].buffer) function->params[i].buffer->user = NULL;
    }
    lower_block(&self, &function->body);
    if (self.has_failed) return qn__out_of_memory("lowering views");
  }
  return qn__pass_status(body, "lowering views");
}

const qn__pass_t qn__pass_lower_views = {
    .name = "lower_views",
    .doc = "replaces accesses through views by accesses to their base",
    .run = run};
