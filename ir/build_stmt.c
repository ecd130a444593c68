// SPDX-License-Identifier: Apache-2.0
// ir/build_stmt.c: statements, blocks and buffers of the builder.
#include <assert.h>

#include "ir/builder.h"

static qn__ir_stmt_t* new_stmt(qn_builder_t* builder, qn__ir_stmt_kind_t kind) {
  qn__ir_stmt_t* stmt = qn__stmt_new(&builder->body.arena, kind, (qn__ir_loc_t){0, 0});
  return stmt ? stmt : qn__build_out_of_memory(builder);
}

static void append(qn_builder_t* builder, qn__ir_stmt_t* stmt) {
  qn__block_append(builder->frame->block, stmt);
}

// Appends `stmt` and opens its block.
static bool open_block(qn_builder_t* builder, qn__builder_frame_kind_t kind, qn__ir_stmt_t* stmt,
                       qn__ir_block_t* block) {
  qn__builder_frame_t* frame = QN__ARENA_NEW(&builder->body.arena, qn__builder_frame_t);
  if (!frame) return qn__build_out_of_memory(builder);
  append(builder, stmt);
  *frame =
      (qn__builder_frame_t){.outer = builder->frame, .kind = kind, .block = block, .stmt = stmt};
  builder->frame = frame;
  return true;
}

// ------------------------------------------------------------------------------------ buffers

bool qn__build_is_buffer(qn_builder_t* builder, const qn__ir_buffer_t* buffer) {
  if (!buffer) return qn__build_fail(builder, "the buffer is NULL");
  if (qn__ptrmap_get(&builder->handles, buffer)) return true;
  return qn__build_fail(builder, "the buffer is not one of this builder");
}

qn__ir_expr_t** qn__build_indices(qn_builder_t* builder, const qn__ir_buffer_t* buffer, size_t rank,
                                  qn__ir_expr_t* const* indices, qn__builder_value_t* inout_built) {
  if (rank != buffer->rank) {
    return qn__build_fail(builder, "buffer '%s' has rank %" PRIu32 ", %zu %s given", buffer->name,
                          buffer->rank, rank, rank == 1 ? "index was" : "indices were");
  }
  return qn__build_take_all(builder, "index", indices, rank, QN_DTYPE_NONE, inout_built);
}

qn__ir_buffer_t* qn__build_new_buffer(qn_builder_t* builder, qn__ir_scope_t scope, const char* name,
                                      qn_dtype_t dtype, size_t rank, qn__ir_expr_t* const* shape,
                                      qn__ir_expr_t* const* strides) {
  if (qn_dtype_size_bytes(dtype) == 0) {
    return qn__build_fail(builder, "buffer '%s' has no dtype", name);
  }
  if (rank > QN__LARGEST_RANK) {
    return qn__build_fail(builder, "buffer '%s' has rank %zu, the limit is %d", name, rank,
                          QN__LARGEST_RANK);
  }
  qn__ir_buffer_t* buffer = qn__buf_new(&builder->body.arena, scope, dtype, name, (uint32_t)rank);
  if (!buffer) return qn__build_out_of_memory(builder);
  buffer->shape =
      qn__build_take_all(builder, "extent", shape, rank, QN_DTYPE_I64, &(qn__builder_value_t){0});
  if (!buffer->shape) return NULL;
  if (!strides) return buffer;
  buffer->strides =
      qn__build_take_all(builder, "stride", strides, rank, QN_DTYPE_I64, &(qn__builder_value_t){0});
  return buffer->strides ? buffer : NULL;
}

bool qn__build_give_buffer(qn_builder_t* builder, qn__ir_buffer_t* buffer) {
  if (qn__ptrmap_put(&builder->handles, buffer, buffer)) return true;
  return qn__build_out_of_memory(builder);
}

static qn__ir_buffer_t* declare(qn_builder_t* builder, qn__ir_buffer_t* buffer) {
  qn__ir_stmt_t* stmt = new_stmt(builder, QN__STMT_ALLOC);
  if (!stmt || !qn__build_give_buffer(builder, buffer)) return NULL;
  stmt->alloc.buffer = buffer;
  append(builder, stmt);
  return buffer;
}

qn_buffer_t* qn_build_alloc(qn_builder_t* builder, const char* name, qn_scope_t scope,
                            qn_dtype_t dtype, size_t rank, qn_expr_t* const* shape) {
  if (!qn__build_takes_stmts(builder, __func__)) return NULL;
  if (scope != QN_SCOPE_LOCAL && scope != QN_SCOPE_SHARED && scope != QN_SCOPE_GLOBAL) {
    return qn__build_fail(builder, "scope %d is neither local, shared nor global", (int)scope);
  }
  const char* text = qn__build_name(builder, name, "b");
  if (!text) return NULL;
  qn__ir_buffer_t* buffer =
      qn__build_new_buffer(builder, (qn__ir_scope_t)scope, text, dtype, rank, shape, NULL);
  return buffer ? declare(builder, buffer) : NULL;
}

qn_buffer_t* qn_build_const(qn_builder_t* builder, const char* name, qn_dtype_t dtype, size_t rank,
                            const int64_t* shape, size_t element_count,
                            qn_expr_t* const* elements) {
  if (!qn__build_takes_stmts(builder, __func__)) return NULL;
  const char* text = qn__build_name(builder, name, "b");
  if (!text) return NULL;
  if (rank > QN__LARGEST_RANK || (rank > 0 && !shape)) {
    return qn__build_fail(builder, "table '%s' has rank %zu, the limit is %d, and needs a shape",
                          text, rank, QN__LARGEST_RANK);
  }
  qn__ir_expr_t* extents[QN__LARGEST_RANK];
  for (size_t i = 0; i < rank; i++) {
    extents[i] =
        qn__build_give_leaf(builder, qn__expr_int(&builder->body.arena, QN_DTYPE_I64, shape[i]));
    if (!extents[i]) return NULL;
  }
  qn__ir_buffer_t* buffer =
      qn__build_new_buffer(builder, QN__SCOPE_CONST, text, dtype, rank, extents, NULL);
  if (!buffer) return NULL;
  buffer->element_count = element_count;
  buffer->elements = qn__build_take_all(builder, "element", elements, element_count, dtype,
                                        &(qn__builder_value_t){0});
  if (!buffer->elements) return NULL;
  for (size_t i = 0; i < element_count; i++) {
    qn__ir_expr_kind_t kind = buffer->elements[i]->kind;
    if (kind == QN__EXPR_INT || kind == QN__EXPR_FLOAT) continue;
    return qn__build_fail(builder, "element %zu of '%s' is not a literal", i, text);
  }
  return declare(builder, buffer);
}

qn_buffer_t* qn_build_view(qn_builder_t* builder, const char* name, qn_buffer_t* base,
                           size_t base_rank, qn_expr_t* const* indices, size_t rank,
                           qn_expr_t* const* shape, qn_expr_t* const* strides) {
  if (!qn__build_takes_stmts(builder, __func__) || !qn__build_is_buffer(builder, base)) {
    return NULL;
  }
  const char* text = qn__build_name(builder, name, "b");
  if (!text) return NULL;
  qn__ir_buffer_t* buffer =
      qn__build_new_buffer(builder, QN__SCOPE_VIEW, text, base->dtype, rank, shape, strides);
  if (!buffer) return NULL;
  buffer->base = base;
  buffer->base_indices =
      qn__build_indices(builder, base, base_rank, indices, &(qn__builder_value_t){0});
  return buffer->base_indices ? declare(builder, buffer) : NULL;
}

// ------------------------------------------------------------------------------------ blocks

qn_expr_t* qn_build_loop(qn_builder_t* builder, qn_loop_kind_t kind, const char* name,
                         qn_expr_t* begin, qn_expr_t* end) {
  if (!qn__build_takes_stmts(builder, __func__)) return NULL;
  if (!qn__loop_kind_text(kind)) {
    return qn__build_fail(builder, "loop kind %d does not exist", (int)kind);
  }
  const char* text = qn__build_name(builder, name, "i");
  qn__ir_expr_t* first = qn__build_take_as(builder, "the begin", begin, QN_DTYPE_I64, NULL);
  qn__ir_expr_t* last = qn__build_take_as(builder, "the end", end, QN_DTYPE_I64, NULL);
  if (!text || !first || !last) return NULL;
  qn__ir_stmt_t* stmt = new_stmt(builder, QN__STMT_LOOP);
  if (!stmt) return NULL;
  stmt->loop.kind = kind;
  stmt->loop.begin = first;
  stmt->loop.end = last;
  stmt->loop.var = qn__var_new(&builder->body.arena, QN__VAR_LOOP, QN_DTYPE_I64, text);
  qn__ir_expr_t* handle = qn__build_give_var(builder, stmt->loop.var);
  if (!handle || !open_block(builder, QN__FRAME_LOOP, stmt, &stmt->loop.body)) return NULL;
  return handle;
}

static qn__ir_expr_t* take_condition(qn_builder_t* builder, qn__ir_expr_t* condition) {
  return qn__build_take_as(builder, "the condition", condition, QN_DTYPE_BOOL, NULL);
}

void qn_build_while(qn_builder_t* builder, qn_expr_t* condition) {
  if (!qn__build_takes_stmts(builder, __func__)) return;
  qn__ir_expr_t* tree = take_condition(builder, condition);
  qn__ir_stmt_t* stmt = tree ? new_stmt(builder, QN__STMT_WHILE) : NULL;
  if (!stmt) return;
  stmt->while_.condition = tree;
  (void)open_block(builder, QN__FRAME_WHILE, stmt, &stmt->while_.body);
}

void qn_build_if(qn_builder_t* builder, qn_expr_t* condition) {
  if (!qn__build_takes_stmts(builder, __func__)) return;
  qn__ir_expr_t* tree = take_condition(builder, condition);
  qn__ir_stmt_t* stmt = tree ? new_stmt(builder, QN__STMT_IF) : NULL;
  if (!stmt) return;
  stmt->if_.condition = tree;
  (void)open_block(builder, QN__FRAME_IF, stmt, &stmt->if_.then_block);
}

void qn_build_else(qn_builder_t* builder) {
  if (!qn__build_takes_stmts(builder, __func__)) return;
  qn__builder_frame_t* frame = builder->frame;
  if (frame->kind != QN__FRAME_IF) {
    (void)qn__build_fail(builder, "the innermost open block is not an if");
    return;
  }
  assert(frame->stmt->kind == QN__STMT_IF && !frame->stmt->if_.else_block.first);
  frame->kind = QN__FRAME_ELSE;
  frame->block = &frame->stmt->if_.else_block;
}

// ------------------------------------------------------------------------------------ statements

qn_expr_t* qn_build_let(qn_builder_t* builder, const char* name, qn_expr_t* value) {
  if (!qn__build_is_ready(builder, __func__)) return NULL;
  const char* text = qn__build_name(builder, name, "v");
  qn__ir_expr_t* tree = qn__build_take(builder, "the value", value, NULL);
  qn__ir_stmt_t* stmt = text && tree ? new_stmt(builder, QN__STMT_LET) : NULL;
  if (!stmt) return NULL;
  stmt->let.value = tree;
  stmt->let.var = qn__var_new(&builder->body.arena, QN__VAR_LET, tree->dtype, text);
  qn__ir_expr_t* handle = qn__build_give_var(builder, stmt->let.var);
  if (handle) append(builder, stmt);
  return handle;
}

// Takes a value of the buffer's dtype.
static qn__ir_expr_t* take_value(qn_builder_t* builder, const char* what,
                                 const qn__ir_buffer_t* buffer, qn__ir_expr_t* value) {
  qn__ir_expr_t* tree = qn__build_take(builder, what, value, NULL);
  if (!tree || tree->dtype == buffer->dtype) return tree;
  return qn__build_fail(builder, "%s is %s, buffer '%s' holds %s", what, qn_dtype_text(tree->dtype),
                        buffer->name, qn_dtype_text(buffer->dtype));
}

void qn_build_store(qn_builder_t* builder, qn_buffer_t* buffer, size_t rank,
                    qn_expr_t* const* indices, qn_expr_t* value) {
  if (!qn__build_takes_stmts(builder, __func__) || !qn__build_is_buffer(builder, buffer)) return;
  qn__ir_expr_t** trees = qn__build_indices(builder, buffer, rank, indices, NULL);
  qn__ir_expr_t* tree = trees ? take_value(builder, "the value", buffer, value) : NULL;
  qn__ir_stmt_t* stmt = tree ? new_stmt(builder, QN__STMT_STORE) : NULL;
  if (!stmt) return;
  stmt->store.buffer = buffer;
  stmt->store.indices = trees;
  stmt->store.value = tree;
  append(builder, stmt);
}

qn_expr_t* qn_build_atomic(qn_builder_t* builder, qn_atomic_op_t op, qn_buffer_t* buffer,
                           size_t rank, qn_expr_t* const* indices, qn_expr_t* operand,
                           qn_expr_t* operand2) {
  if (!qn__build_takes_stmts(builder, __func__) || !qn__build_is_buffer(builder, buffer)) {
    return NULL;
  }
  const char* text = qn__atomic_text(op);
  if (!text) return qn__build_fail(builder, "atomic operation %d does not exist", (int)op);
  uint32_t wanted = qn__atomic_operand_count(op), given = operand2 ? 2 : operand ? 1 : 0;
  if (given > wanted) {
    return qn__build_fail(builder, "'%s' takes %s, %s given", text,
                          wanted == 0 ? "no operand" : "one operand",
                          given == 1 ? "one was" : "two were");
  }
  qn__ir_expr_t** trees = qn__build_indices(builder, buffer, rank, indices, NULL);
  if (!trees) return NULL;
  qn__ir_expr_t *first = NULL, *second = NULL;
  if (wanted > 0 && !(first = take_value(builder, "the operand", buffer, operand))) return NULL;
  if (wanted > 1 && !(second = take_value(builder, "the second operand", buffer, operand2))) {
    return NULL;
  }
  qn__ir_stmt_t* stmt = new_stmt(builder, QN__STMT_ATOMIC);
  if (!stmt) return NULL;
  stmt->atomic.op = op;
  stmt->atomic.buffer = buffer;
  stmt->atomic.indices = trees;
  stmt->atomic.operand = first;
  stmt->atomic.operand2 = second;
  if (op == QN_ATOMIC_STORE) {
    append(builder, stmt);
    return NULL;
  }
  qn__ir_var_t* result = qn__var_new(&builder->body.arena, QN__VAR_ATOMIC, buffer->dtype, "old");
  qn__ir_expr_t* handle = qn__build_give_var(builder, result);
  if (!handle) return NULL;
  result->user = stmt;  // until the first use of the old value
  append(builder, stmt);
  return handle;
}

void qn_build_barrier(qn_builder_t* builder) {
  if (!qn__build_takes_stmts(builder, __func__)) return;
  qn__ir_stmt_t* stmt = new_stmt(builder, QN__STMT_BARRIER);
  if (stmt) append(builder, stmt);
}

void qn_build_leave(qn_builder_t* builder, qn_leave_t kind) {
  if (!qn__build_takes_stmts(builder, __func__)) return;
  qn__ir_stmt_t* stmt = new_stmt(builder, QN__STMT_LEAVE);
  if (!stmt) return;
  stmt->leave = kind;
  append(builder, stmt);
}

void qn_build_fence(qn_builder_t* builder) {
  if (!qn__build_takes_stmts(builder, __func__)) return;
  qn__ir_stmt_t* stmt = new_stmt(builder, QN__STMT_FENCE);
  if (stmt) append(builder, stmt);
}

void qn_build_assert(qn_builder_t* builder, qn_expr_t* condition, const char* message) {
  if (!qn__build_takes_stmts(builder, __func__)) return;
  qn__ir_expr_t* tree = take_condition(builder, condition);
  qn__ir_stmt_t* stmt = tree ? new_stmt(builder, QN__STMT_ASSERT) : NULL;
  if (!stmt) return;
  stmt->assert_.condition = tree;
  stmt->assert_.message = qn__arena_cstr(&builder->body.arena, qn__str(message ? message : ""));
  if (stmt->assert_.message) append(builder, stmt);
}
