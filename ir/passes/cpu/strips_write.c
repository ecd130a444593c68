// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/strips_write.c: writes the statements of a loop for all columns of a strip.
//
// Statements that each column runs alone form groups: loops over the strip's columns. A loop that
// all columns run alike stands between groups, and its body has groups again. A value that is the
// same for all columns is computed once, between groups too.
#include "ir/passes/cpu/strips.h"

// A let inside of a group: `user` of its variable.
typedef struct kept {
  qn__ir_stmt_t* let;
  qn__ir_stmt_t* group;     // the loop over columns that has it
  qn__ir_buffer_t* values;  // of all columns; NULL: no other group needs them
} kept_t;

qn__ir_expr_t* qn__strip_at(const qn__strip_t* strip, qn__ir_var_t* column) {
  qn__pass_builder_t* pb = strip->pb;
  return qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, column), qn__pb_use(pb, strip->first));
}

qn__ir_buffer_t* qn__strip_buffer(qn__strip_t* strip, qn_dtype_t dtype, const char* name) {
  return qn__pb_alloc(strip->pb, &strip->head, QN__SCOPE_LOCAL, dtype, name, strip->width, -1);
}

void qn__strip_open(qn__strip_level_t* level) {
  qn__strip_t* strip = level->strip;
  qn__pass_builder_t* pb = strip->pb;
  qn__ir_var_t* column = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, strip->loop->loop.var->name);
  level->group = qn__pb_loop(pb, QN_LOOP_PARALLEL, column, qn__pb_use(pb, strip->first),
                             qn__pb_use(pb, strip->limit));
}

void qn__strip_close(qn__strip_level_t* level) {
  qn__pb_append(level->out, level->group);
  level->group = NULL;
}

void qn__strip_append(qn__strip_level_t* level, qn__ir_stmt_t* stmt) {
  if (!level->group || !stmt) return;
  if (stmt->kind == QN__STMT_LET) {
    kept_t* kept = QN__ARENA_NEW(level->strip->pb->arena, kept_t);
    if (!kept) return;
    *kept = (kept_t){stmt, level->group, NULL};
    stmt->let.var->user = kept;
  }
  qn__block_append(&level->group->loop.body, stmt);
}

// ---- values of other groups

// Stores the value for each column, after its let.
static void keep_values(qn__strip_t* strip, kept_t* kept) {
  qn__pass_builder_t* pb = strip->pb;
  qn__ir_var_t* var = kept->let->let.var;
  kept->values = qn__strip_buffer(strip, var->dtype, var->name);
  qn__ir_stmt_t* store = qn__pb_store(pb, kept->values, qn__strip_at(strip, kept->group->loop.var),
                                      NULL, qn__pb_use(pb, var));
  if (!store) return;
  qn__ir_block_t* block = &kept->group->loop.body;
  store->next = kept->let->next;
  kept->let->next = store;
  if (block->last == kept->let) block->last = store;
}

static qn__ir_expr_t* kept_value(qn__strip_level_t* level, kept_t* kept) {
  qn__strip_t* strip = level->strip;
  if (!kept->values) keep_values(strip, kept);
  return qn__pb_load(strip->pb, kept->values, qn__strip_at(strip, level->group->loop.var), NULL);
}

// Appends the column to the indices of a local buffer.
static void add_index(qn__strip_level_t* level, const qn__ir_buffer_t* buffer,
                      qn__ir_expr_t*** indices) {
  qn__strip_t* strip = level->strip;
  qn__ir_expr_t** list = qn__arena_alloc_array(strip->pb->arena, buffer->rank, sizeof *list);
  if (!list) return;
  assert(buffer->rank > 0);
  for (uint32_t d = 0; d + 1 < buffer->rank; ++d) list[d] = (*indices)[d];
  list[buffer->rank - 1] = qn__strip_at(strip, level->group->loop.var);
  *indices = list;
}

// ---- fixing

static bool fix_slot(void* context, qn__ir_expr_t** slot) {
  qn__strip_level_t* level = context;
  qn__strip_t* strip = level->strip;
  qn__ir_expr_t* expr = *slot;
  if (qn__pb_stopped(strip->pb)) return false;
  if (expr->kind == QN__EXPR_VAR) {
    kept_t* kept = expr->var->user;
    if (expr->var == strip->loop->loop.var) {
      expr->var = level->group->loop.var;
    } else if (kept && kept->group != level->group) {
      *slot = kept_value(level, kept);
    }
    return !qn__pb_stopped(strip->pb);
  }
  if (!qn__expr_each_child(expr, fix_slot, level)) return false;
  if (expr->kind == QN__EXPR_LOAD && expr->load.buffer->user == strip) {
    add_index(level, expr->load.buffer, &expr->load.indices);
  }
  return true;
}

void qn__strip_fix(qn__strip_level_t* level, qn__ir_stmt_t* stmt) {
  if (!level->group || !qn__stmt_each_expr(stmt, fix_slot, level)) return;
  if (stmt->kind == QN__STMT_STORE && stmt->store.buffer->user == level->strip) {
    add_index(level, stmt->store.buffer, &stmt->store.indices);
  }
  QN__EACH_BLOCK(stmt, inner) {
    for (qn__ir_stmt_t* child = inner->first; child; child = child->next) {
      qn__strip_fix(level, child);
    }
  }
}

// ---- statements

// Gives a local buffer an element for each column.
static void widen(qn__strip_t* strip, qn__ir_stmt_t* alloc) {
  qn__pass_builder_t* pb = strip->pb;
  qn__ir_buffer_t* buffer = alloc->alloc.buffer;
  qn__ir_expr_t** shape = qn__arena_alloc_array(pb->arena, buffer->rank + 1U, sizeof *shape);
  if (!shape) return;
  for (uint32_t d = 0; d < buffer->rank; ++d) shape[d] = buffer->shape[d];
  shape[buffer->rank] = qn__pb_int(pb, strip->width);
  if (!shape[buffer->rank++]) return;
  buffer->shape = shape;
  buffer->user = strip;
  qn__block_append(&strip->head, alloc);
}

static void write_loop(qn__strip_level_t* level, qn__ir_stmt_t* loop) {
  qn__ir_block_t body = {NULL, NULL};
  qn__strip_close(level);
  loop->loop.kind = QN_LOOP_SERIAL;
  qn__strip_write(level->strip, &loop->loop.body, &body);
  loop->loop.body = body;
  qn__block_append(level->out, loop);
}

// Returns true for a value that is the same for all columns.
static bool is_common(const qn__strip_t* strip, const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LET && stmt->let.var->user != strip &&
         qn__strip_is_uniform(strip, stmt->let.value);
}

void qn__strip_write(qn__strip_t* strip, qn__ir_block_t* body, qn__ir_block_t* out) {
  qn__strip_level_t level = {.strip = strip, .out = out};
  qn__ir_block_t rest = qn__block_take(body);
  while (rest.first && !qn__pb_stopped(strip->pb)) {
    qn__ir_stmt_t* stmt = rest.first;
    if (stmt->kind == QN__STMT_ALLOC) {
      widen(strip, qn__block_pop(&rest));
    } else if (stmt->kind == QN__STMT_LOOP) {
      write_loop(&level, qn__block_pop(&rest));
    } else if (is_common(strip, stmt)) {
      // It depends on nothing that a group computes or stores, and comes before the open one.
      qn__block_append(out, qn__block_pop(&rest));
    } else {
      // Looks at the lets that follow `stmt`, which is still in the list.
      qn__strip_reduce(&level, stmt);
      (void)qn__block_pop(&rest);
      if (!level.group) qn__strip_open(&level);
      qn__strip_fix(&level, stmt);
      qn__strip_append(&level, stmt);
    }
  }
  qn__strip_close(&level);
}
