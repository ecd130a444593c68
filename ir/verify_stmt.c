// SPDX-License-Identifier: Apache-2.0
// ir/verify_stmt.c: checks statements and scopes: each variable and buffer is declared once and
// used only in its scope; each statement has all its parts.
//
// Not here: the places of loops, allocations and barriers (verify_place.c).
#include <assert.h>

#include "ir/tensor.h"
#include "ir/verifier.h"

// ------------------------------------------------------------------------------------ scopes

qn__verify_decl_t* qn__verify_declare(qn__verifier_t* v, const void* node, const char* name,
                                      qn__ir_loc_t loc) {
  if (qn__ptrmap_get(&v->decls, node)) {
    (void)qn__verify_error(v, QN__VERIFY_TWICE, loc, NULL, "'%s' is declared twice",
                           name ? name : "");
    return NULL;
  }
  qn__verify_decl_t* decl = QN__ARENA_NEW(&v->scratch, qn__verify_decl_t);
  if (!decl || !qn__ptrmap_put(&v->decls, node, decl)) {
    qn__verify_out_of_memory(v);
    return NULL;
  }
  decl->is_open = true;
  decl->next = v->scope;
  v->scope = decl;
  return decl;
}

qn__verify_decl_t* qn__verify_lookup(qn__verifier_t* v, const void* node, const char* what,
                                     const char* name, qn__ir_loc_t loc, qn__ir_loc_t declared) {
  qn__verify_decl_t* decl = qn__ptrmap_get(&v->decls, node);
  if (decl && decl->is_open) return decl;
  (void)qn__verify_error(v, QN__VERIFY_SCOPE, loc, NULL, "%s '%s' is used where it is not declared",
                         what, name ? name : "");
  qn__verify_note(v, declared, "'%s' is declared here", name ? name : "");
  return NULL;
}

qn__verify_decl_t* qn__verify_open_scope(qn__verifier_t* v) {
  qn__verify_decl_t* outer = v->scope;
  v->scope = NULL;
  return outer;
}

void qn__verify_close_scope(qn__verifier_t* v, qn__verify_decl_t* outer) {
  for (qn__verify_decl_t* decl = v->scope; decl; decl = decl->next) {
    assert(decl->is_open);
    decl->is_open = false;
  }
  v->scope = outer;
}

// ------------------------------------------------------------------------------------ buffers

// Checks that rows of elements of 4 bits begin and end with whole bytes.
static void verify_packed(qn__verifier_t* v, const qn__ir_buffer_t* buffer) {
  const char* dtype = qn_dtype_text(buffer->dtype);
  qn__ir_scalar_t extent;
  const char* help = "two elements share a byte";
  if (buffer->rank == 0) {
    (void)qn__verify_error(v, QN__VERIFY_PACKED, buffer->loc, help,
                           "'%s' of %s has rank 0, expected at least 1", buffer->name, dtype);
  } else if (buffer->strides && !v->is_lowered) {
    (void)qn__verify_error(v, QN__VERIFY_PACKED, buffer->loc, help,
                           "'%s' of %s has strides; it must be row-major", buffer->name, dtype);
  } else if (buffer->scope == QN__SCOPE_CONST) {
    (void)qn__verify_error(v, QN__VERIFY_PACKED, buffer->loc,
                           "write a table of another dtype, or one of bytes and a view",
                           "'%s' is a table of %s, which do not exist", buffer->name, dtype);
  } else if (qn__expr_fold(buffer->shape[buffer->rank - 1], &extent) && extent.i % 2 != 0) {
    (void)qn__verify_error(v, QN__VERIFY_PACKED, buffer->loc, help,
                           "the last extent of '%s' of %s is %" PRId64 ", expected an even number",
                           buffer->name, dtype, extent.i);
  }
}

bool qn__verify_buffer(qn__verifier_t* v, const qn__ir_buffer_t* buffer) {
  if (qn_dtype_size_bytes(buffer->dtype) == 0 || (buffer->rank > 0 && !buffer->shape) ||
      buffer->rank > QN__LARGEST_RANK) {
    return qn__verify_error(v, QN__VERIFY_MALFORMED, buffer->loc, NULL,
                            "buffer '%s' has dtype %s and rank %" PRIu32 "; the limit is %d",
                            buffer->name, qn_dtype_text(buffer->dtype), buffer->rank,
                            QN__LARGEST_RANK);
  }
  if (qn__dtype_is_packed(buffer->dtype)) verify_packed(v, buffer);
  for (uint32_t i = 0; i < buffer->rank; i++) {
    (void)qn__verify_i64(v, buffer->shape[i], "an extent");
    if (buffer->strides) (void)qn__verify_i64(v, buffer->strides[i], "a stride");
  }
  return true;
}

static bool verify_target(qn__verifier_t* v, const qn__ir_stmt_t* stmt,
                          const qn__ir_buffer_t* buffer, qn__ir_expr_t* const* indices) {
  if (!buffer || (buffer->rank > 0 && !indices)) {
    return qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL,
                            "a statement lacks its buffer");
  }
  if (!qn__verify_lookup(v, buffer, "buffer", buffer->name, stmt->loc, buffer->loc)) return false;
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  bool is_in = root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN;
  if (is_in || root->scope == QN__SCOPE_CONST) {
    (void)qn__verify_error(
        v, QN__VERIFY_READ_ONLY, stmt->loc,
        is_in ? "declare the parameter 'out' or 'inout'" : "copy the table into a local buffer",
        is_in ? "'%s' is an 'in' parameter and cannot be written to"
              : "'%s' is a constant table and cannot be written to",
        root->name);
    qn__verify_note(v, root->loc, "'%s' is declared here", root->name);
  }
  if (qn__dtype_is_packed(buffer->dtype)) {
    (void)qn__verify_error(v, QN__VERIFY_PACKED, stmt->loc,
                           "store bytes through a view of u8 that begins at an element of it",
                           "'%s' of %s cannot be stored to: two elements share a byte",
                           buffer->name, qn_dtype_text(buffer->dtype));
  }
  return qn__verify_indices(v, indices, buffer);
}

static void verify_value(qn__verifier_t* v, const qn__ir_expr_t* value,
                         const qn__ir_buffer_t* buffer) {
  if (!qn__verify_expr(v, value) || value->dtype == buffer->dtype) return;
  (void)qn__verify_error(v, QN__VERIFY_VALUE, value->loc, NULL,
                         "a value of dtype %s for '%s' of %s", qn_dtype_text(value->dtype),
                         buffer->name, qn_dtype_text(buffer->dtype));
}

// ------------------------------------------------------------------------------------ statements

static void verify_let(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->let.var;
  if (!var || var->kind != QN__VAR_LET) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "a let lacks its variable");
    return;
  }
  bool is_valid = qn__verify_expr(v, stmt->let.value);
  if (is_valid && stmt->let.value->dtype != var->dtype) {
    (void)qn__verify_error(v, QN__VERIFY_VALUE, stmt->loc, NULL, "'%s' is %s, its value %s",
                           var->name, qn_dtype_text(var->dtype),
                           qn_dtype_text(stmt->let.value->dtype));
  }
  bool is_host = is_valid && qn__verify_is_host(v, stmt->let.value);
  qn__verify_place_t* loop = is_host ? qn__verify_loop_of(v, stmt->let.value) : NULL;
  qn__verify_decl_t* decl = qn__verify_declare(v, var, var->name, var->loc);
  if (!decl) return;
  decl->is_host = is_host;
  decl->loop = loop;
}

static void verify_atomic(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const char* text = qn__atomic_text(stmt->atomic.op);
  uint32_t count = text ? qn__atomic_operand_count(stmt->atomic.op) : 0;
  if (!text || (count > 0) != (stmt->atomic.operand != NULL) ||
      (count > 1) != (stmt->atomic.operand2 != NULL) ||
      (stmt->atomic.op == QN_ATOMIC_STORE && stmt->atomic.result)) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "an atomic lacks a part");
    return;
  }
  const qn__ir_buffer_t* buffer = stmt->atomic.buffer;
  if (!verify_target(v, stmt, buffer, stmt->atomic.indices)) return;
  if (!qn__atomic_takes(stmt->atomic.op, buffer->dtype)) {
    bool has_floats = qn__atomic_takes(stmt->atomic.op, QN_DTYPE_F32);
    (void)qn__verify_error(v, QN__VERIFY_ATOMIC, stmt->loc, NULL,
                           "'%s' on '%s' of %s; it exists for integers%s", text, buffer->name,
                           qn_dtype_text(buffer->dtype), has_floats ? " and floats" : "");
  }
  if (qn__stmt_orders_memory(stmt)) qn__verify_order_place(v, stmt);
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  if (root->dtype != buffer->dtype) {
    (void)qn__verify_error(
        v, QN__VERIFY_ATOMIC, stmt->loc, NULL,
        "'%s' on '%s' of %s, a view of '%s' of %s: atomics need the buffer's dtype", text,
        buffer->name, qn_dtype_text(buffer->dtype), root->name, qn_dtype_text(root->dtype));
  }
  if (count > 0) verify_value(v, stmt->atomic.operand, buffer);
  if (count > 1) verify_value(v, stmt->atomic.operand2, buffer);
  const qn__ir_var_t* result = stmt->atomic.result;
  if (!result) return;
  if (result->kind != QN__VAR_ATOMIC || result->dtype != buffer->dtype) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL,
                           "the result of an atomic is typed %s", qn_dtype_text(result->dtype));
  }
  (void)qn__verify_declare(v, result, result->name, result->loc);
}

static void verify_loop(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->loop.var;
  if (!qn__loop_kind_text(stmt->loop.kind) || !var || var->kind != QN__VAR_LOOP ||
      var->dtype != QN_DTYPE_I64) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "a loop lacks a part");
    return;
  }
  bool has_begin = qn__verify_i64(v, stmt->loop.begin, "the begin of a loop");
  bool has_end = qn__verify_i64(v, stmt->loop.end, "the end of a loop");
  if (has_begin && has_end) qn__verify_loop_place(v, stmt);
  qn__verify_place_t place = {.outer = v->place, .stmt = stmt};
  v->place = &place;
  v->lane_depth += qn__loop_is_thread(stmt->loop.kind);
  v->has_threads |= qn__loop_is_thread(stmt->loop.kind);
  qn__verify_decl_t* outer = qn__verify_open_scope(v);
  qn__verify_decl_t* decl = qn__verify_declare(v, var, var->name, var->loc);
  if (decl) {
    decl->is_host = qn__verify_is_host_loop(v, &place);
    if (decl->is_host) decl->loop = &place;
  }
  uint64_t local_bytes = v->local_bytes;
  if (qn__verify_enter(v, stmt->loc)) {
    qn__verify_stmts(v, &stmt->loop.body, false);
    qn__verify_leave(v);
  }
  v->local_bytes = local_bytes;
  qn__verify_close_scope(v, outer);
  v->lane_depth -= qn__loop_is_thread(stmt->loop.kind);
  v->place = place.outer;
  qn__verify_leave_loop(v, &place);
}

static void verify_while(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  (void)qn__verify_condition(v, stmt->while_.condition, "the condition of 'while'");
  qn__verify_place_t place = {.outer = v->place, .stmt = stmt};
  v->place = &place;
  qn__verify_block(v, &stmt->while_.body);
  v->place = place.outer;
}

// Checks that a view may see the elements of its buffer as another dtype: an element of the view is
// 1, 2, 4 or 8 whole elements of the buffer, or bytes of packed ones.
static void verify_other_dtype(qn__verifier_t* v, const qn__ir_stmt_t* stmt,
                               const qn__ir_buffer_t* view) {
  const qn__ir_buffer_t* base = view->base;
  bool has_bool = view->dtype == QN_DTYPE_BOOL || base->dtype == QN_DTYPE_BOOL;
  bool is_smaller = qn_dtype_size_bytes(view->dtype) < qn_dtype_size_bytes(base->dtype);
  if (has_bool || is_smaller) {
    (void)qn__verify_error(
        v, QN__VERIFY_VIEW, stmt->loc,
        has_bool ? "convert each element, as in u8(...)"
                 : "shift and convert each element, or declare the buffer as the "
                   "smaller dtype",
        "view '%s' is %s, '%s' is %s%s", view->name, qn_dtype_text(view->dtype), base->name,
        qn_dtype_text(base->dtype), has_bool ? "" : ", which is larger");
    qn__verify_note(v, base->loc, "'%s' is declared here", base->name);
  } else if (view->rank == QN__LARGEST_RANK) {
    (void)qn__verify_error(v, QN__VERIFY_VIEW, stmt->loc, NULL,
                           "view '%s' of another dtype has rank %" PRIu32 ", the limit is %d",
                           view->name, view->rank, QN__LARGEST_RANK - 1);
  }
}

// Checks that a view of elements of 4 bits begins with a byte.
static void verify_start(qn__verifier_t* v, const qn__ir_stmt_t* stmt,
                         const qn__ir_buffer_t* view) {
  const qn__ir_buffer_t* base = view->base;
  qn__ir_scalar_t start;
  if (!qn__dtype_is_packed(base->dtype) || base->rank == 0 ||
      !qn__expr_fold(view->base_indices[base->rank - 1], &start) || start.i % 2 == 0) {
    return;
  }
  (void)qn__verify_error(v, QN__VERIFY_PACKED, stmt->loc, "begin at an even index",
                         "view '%s' begins in the middle of a byte of '%s'", view->name,
                         base->name);
}

static void verify_alloc(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* buffer = stmt->alloc.buffer;
  if (!buffer || buffer->scope == QN__SCOPE_PARAM || !qn__scope_text(buffer->scope) ||
      (buffer->strides && buffer->scope != QN__SCOPE_VIEW)) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "an allocation lacks a part");
    return;
  }
  uint32_t errors = v->error_count;
  if (!qn__verify_buffer(v, buffer)) return;
  if (buffer->scope == QN__SCOPE_VIEW) {
    const qn__ir_buffer_t* base = buffer->base;
    if (!base || (base->rank > 0 && !buffer->base_indices)) {
      (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "a view lacks its buffer");
      return;
    }
    if (!qn__verify_lookup(v, base, "buffer", base->name, stmt->loc, base->loc)) return;
    (void)qn__verify_indices(v, buffer->base_indices, base);
    if (base->dtype != buffer->dtype) verify_other_dtype(v, stmt, buffer);
    verify_start(v, stmt, buffer);
  }
  if (v->error_count == errors) qn__verify_alloc_place(v, stmt);
  (void)qn__verify_declare(v, buffer, buffer->name, buffer->loc);
}

static void verify_tensor(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__ir_tensor_t* tensor = stmt->tensor;
  const char* problem = "outside of mapped code";
  if (v->is_lowered && tensor) problem = qn__tensor_problem(tensor);
  if (problem) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "a tensor statement %s",
                           problem);
    return;
  }
  for (uint32_t i = 0; i < tensor->ref_count; ++i) {
    const qn__ir_tensor_ref_t* ref = &tensor->refs[i];
    if (i == 0) {
      (void)verify_target(v, stmt, ref->buffer, ref->indices);
    } else if (qn__verify_lookup(v, ref->buffer, "buffer", ref->buffer->name, stmt->loc,
                                 ref->buffer->loc)) {
      (void)qn__verify_indices(v, ref->indices, ref->buffer);
    }
  }
  if (tensor->operand)
    (void)qn__verify_i64(v, tensor->operand, "the operand of a tensor statement");
  for (uint32_t i = 0; i < qn__tensor_extents(tensor); ++i) {
    (void)qn__verify_i64(v, tensor->extents[i], "an extent of a product");
  }
}

static void verify_stmt(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      verify_let(v, stmt);
      return;
    case QN__STMT_STORE:
      if (verify_target(v, stmt, stmt->store.buffer, stmt->store.indices)) {
        verify_value(v, stmt->store.value, stmt->store.buffer);
      }
      return;
    case QN__STMT_ATOMIC:
      verify_atomic(v, stmt);
      return;
    case QN__STMT_IF:
      (void)qn__verify_condition(v, stmt->if_.condition, "the condition of 'if'");
      qn__verify_block(v, &stmt->if_.then_block);
      qn__verify_block(v, &stmt->if_.else_block);
      return;
    case QN__STMT_LOOP:
      verify_loop(v, stmt);
      return;
    case QN__STMT_WHILE:
      verify_while(v, stmt);
      return;
    case QN__STMT_ALLOC:
      verify_alloc(v, stmt);
      return;
    case QN__STMT_FENCE:
      qn__verify_order_place(v, stmt);
      return;
    case QN__STMT_BARRIER:
      qn__verify_barrier_place(v, stmt);
      return;
    case QN__STMT_ASSERT:
      (void)qn__verify_condition(v, stmt->assert_.condition, "the condition of 'assert'");
      if (!stmt->assert_.message) {
        (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL,
                               "an assert lacks its message");
      }
      return;
    case QN__STMT_TENSOR:
      verify_tensor(v, stmt);
      return;
    case QN__STMT_REDUCE:
      qn__verify_several(v, stmt);
      return;
    case QN__STMT_LEAVE:
      qn__verify_leave_place(v, stmt);
      return;
  }
  (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "a statement of kind %d",
                         (int)stmt->kind);
}

// What follows a statement that may leave becomes a block of its own (passes/lower_leaves.c), which
// counts as a level.
void qn__verify_stmts(qn__verifier_t* v, const qn__ir_block_t* block, bool is_reduction) {
  uint32_t depth = v->depth;
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (qn__verify_stopped(v) || !qn__verify_visit(v, stmt, stmt->loc)) break;
    if (!stmt->next && block->last != stmt) {
      (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "a block has a wrong end");
    }
    if (is_reduction && stmt->kind != QN__STMT_LET) {
      (void)qn__verify_error(v, QN__VERIFY_REDUCTION, stmt->loc, "compute it before, or use a loop",
                             "a reduction may only hold lets before its value");
      continue;
    }
    verify_stmt(v, stmt);
    if (stmt->next && qn__stmt_leaves(stmt) && !qn__verify_enter(v, stmt->loc)) break;
  }
  v->depth = depth;
}

void qn__verify_block(qn__verifier_t* v, const qn__ir_block_t* block) {
  if (!block->first) return;
  if (!qn__verify_enter(v, block->first->loc)) return;
  qn__verify_decl_t* outer = qn__verify_open_scope(v);
  uint64_t local_bytes = v->local_bytes;
  qn__verify_stmts(v, block, false);
  v->local_bytes = local_bytes;
  qn__verify_close_scope(v, outer);
  qn__verify_leave(v);
}
