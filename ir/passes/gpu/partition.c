// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/partition.c: the pass `partition` splits a function into launches and statements of
// the host.
//
// The statements at the top of a function are divided thus:
//   - Lets, asserts, conditions and bounds of loops stay with the host if it can compute them
//     (qn__host_knows). So do allocations in global memory, tables, and views of those.
//   - A parallel loop, a serial loop marked as independent, and a nest of block or thread loops
//     become a launch each.
//   - A serial loop around such launches stays a loop of the host, if the host knows its bounds.
//   - An `if` around launches whose condition only the device knows becomes a condition inside each
//     of them.
//   - All other statements are collected, in order, into launches of one block.
// A value that one launch computes and another uses passes through one element of global memory
// (partition_values.c), except that arithmetic on values of earlier launches is computed again.
//
// Postcondition: outside of launches are only statements that the host can run. Every launch has a
// record (launch.h) of kind STATEMENTS, ITERATIONS or LOOPS and no local buffer in its head. Of the
// variables at the host's level, it uses only those that the host computes.
#include "ir/passes/gpu/partition.h"

static void place_block(qn__partition_t* self, qn__ir_block_t* block,
                        const qn__partition_guard_t* guards);

// ---- units

static qn__partition_unit_t* open_unit(qn__partition_t* self, qn__launch_kind_t kind) {
  qn__pass_builder_t* pb = self->pb;
  qn__partition_unit_t* unit = QN__ARENA_NEW(pb->arena, qn__partition_unit_t);
  qn__ir_stmt_t* anchor = qn__stmt_new(pb->arena, QN__STMT_LOOP, (qn__ir_loc_t){0, 0});
  if (!unit || !anchor) return NULL;
  unit->kind = kind;
  unit->home = self->out;
  unit->anchor = anchor;
  unit->guards = self->guards;
  if (self->last) {
    self->last->next = unit;
  } else {
    self->first = unit;
  }
  self->last = unit;
  return unit;
}

// Ends the open unit. Its launch comes after the statements of the host that it needs.
static void close_unit(qn__partition_t* self) {
  assert(!self->open || self->open->home == self->out);
  if (self->open) qn__block_append(self->out, self->open->anchor);
  self->open = NULL;
}

// Appends a statement to the open unit.
static void collect(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  if (!self->open) self->open = open_unit(self, QN__LAUNCH_STATEMENTS);
  if (self->open) qn__block_append(&self->open->stmts, stmt);
}

static void launch(qn__partition_t* self, qn__launch_kind_t kind, qn__ir_stmt_t* stmt) {
  assert(stmt->kind == QN__STMT_LOOP && kind != QN__LAUNCH_STATEMENTS);
  close_unit(self);
  qn__partition_unit_t* unit = open_unit(self, kind);
  if (!unit) return;
  unit->stmts = qn__block_of(stmt);
  qn__block_append(self->out, unit->anchor);
}

static qn__partition_value_t* device_value(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  qn__partition_value_t* value = QN__ARENA_NEW(self->pb->arena, qn__partition_value_t);
  if (!value) return NULL;
  value->stmt = stmt;
  value->home = self->out;
  return value;
}

// ---- long reductions

static bool split_slot(void* context, qn__ir_expr_t** slot) {
  qn__partition_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    if (!qn__reduce_is_long(expr)) return true;
    qn__ir_stmt_t* loop = qn__reduce_split(self->pb, slot);
    if (loop) launch(self, QN__LAUNCH_ITERATIONS, loop);
    return loop != NULL;
  }
  // An operand that is not always evaluated stays where it is.
  if (qn__expr_is_lazy(expr)) return split_slot(self, &expr->args[0]);
  return qn__expr_each_child(expr, split_slot, self);
}

// Moves the long reductions of a statement to launches before it, and the rest to the open unit.
static void collect_split(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  (void)qn__stmt_each_expr(stmt, split_slot, self);
  collect(self, stmt);
}

// ---- lets

// Returns false for an expression that uses a value of the open unit.
static bool is_closed_slot(void* context, qn__ir_expr_t** slot) {
  const qn__partition_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR && expr->var->kind != QN__VAR_SYMBOL && expr->var->user &&
      !qn__host_knows(expr)) {
    const qn__partition_value_t* device = expr->var->user;
    return !device->unit || device->unit != self->open;
  }
  return qn__expr_each_child(expr, is_closed_slot, context);
}

static void place_let(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  // A possible division by zero stays inside the condition that may exclude it.
  bool may_stay = !self->guards || !qn__expr_facts(stmt->let.value).has_division;
  if (may_stay && qn__host_knows(stmt->let.value)) {
    qn__host_mark(stmt->let.var);
    qn__block_append(self->out, stmt);
    return;
  }
  qn__partition_value_t* value = device_value(self, stmt);
  if (!value) return;
  stmt->let.var->user = value;
  // What the open unit computes from its own values has a place among its statements.
  value->is_repeated =
      qn__pb_is_pure(self->pb, stmt->let.value) && is_closed_slot(self, &stmt->let.value);
  if (value->is_repeated) return;
  collect_split(self, stmt);
  value->unit = self->open;
}

typedef struct binder {
  qn__partition_t* partition;
  const char* name;
} binder_t;

// Replaces an expression that the host cannot compute by a variable of the device.
static bool bind_slot(void* context, qn__ir_expr_t** slot) {
  const binder_t* self = context;
  qn__pass_builder_t* pb = self->partition->pb;
  if (qn__host_knows(*slot) || (*slot)->kind == QN__EXPR_VAR) return true;
  qn__ir_block_t block = {NULL, NULL};
  qn__ir_expr_t* use = qn__pb_use(pb, qn__pb_let(pb, &block, self->name, *slot));
  if (!use) return false;
  place_let(self->partition, block.first);
  *slot = use;
  return true;
}

// ---- allocations

static bool base_is_host(const qn__ir_buffer_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) {
    if (buffer->user) return false;
    buffer = buffer->base;
  }
  return buffer->user == NULL;
}

static bool all_host(void* self, qn__ir_expr_t** slot) {
  (void)self;
  return qn__host_knows(*slot);
}

static void place_alloc(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  qn__ir_buffer_t* buffer = stmt->alloc.buffer;
  bool is_view = buffer->scope == QN__SCOPE_VIEW;
  bool is_host =
      buffer->scope == QN__SCOPE_GLOBAL || buffer->scope == QN__SCOPE_CONST ||
      (is_view && base_is_host(buffer->base) && qn__stmt_each_expr(stmt, all_host, NULL));
  if (is_host) {
    qn__block_append(self->out, stmt);
    return;
  }
  binder_t binder = {self, "place"};
  if (is_view && !qn__stmt_each_expr(stmt, bind_slot, &binder)) return;
  qn__partition_value_t* value = device_value(self, stmt);
  if (!value) return;
  value->is_repeated = is_view;
  buffer->user = value;
}

// ---- control flow

static bool is_concurrent(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && (stmt->loop.kind == QN_LOOP_PARALLEL ||
                                         qn__is_block_loop(stmt) || qn__is_thread_loop(stmt));
}

static void place_if(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  qn__ir_block_t* blocks[2] = {&stmt->if_.then_block, &stmt->if_.else_block};
  if (!qn__block_any(blocks[0], is_concurrent) && !qn__block_any(blocks[1], is_concurrent)) {
    collect(self, stmt);
    return;
  }
  if (qn__host_knows(stmt->if_.condition)) {
    close_unit(self);
    for (int i = 0; i < 2; ++i) place_block(self, blocks[i], self->guards);
    qn__block_append(self->out, stmt);
    return;
  }
  // Every launch inside tests the value of the condition at this place.
  binder_t binder = {self, "condition"};
  if (!bind_slot(&binder, &stmt->if_.condition)) return;
  qn__ir_var_t* var = stmt->if_.condition->var;
  close_unit(self);
  for (int i = 0; i < 2; ++i) {
    qn__partition_guard_t* inner = QN__ARENA_NEW(self->pb->arena, qn__partition_guard_t);
    if (!inner) return;
    *inner = (qn__partition_guard_t){var, i == 1, self->guards};
    place_block(self, blocks[i], inner);
    // Device values keep the branch as their home although its statements leave it, since homes are
    // only compared.
    qn__block_splice(self->out, blocks[i]);
  }
}

static void place_loop(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  if (qn__is_block_loop(stmt) || qn__is_thread_loop(stmt)) {
    launch(self, QN__LAUNCH_LOOPS, stmt);
    return;
  }
  bool is_host = qn__host_knows(stmt->loop.begin) && qn__host_knows(stmt->loop.end);
  bool is_serial = stmt->loop.kind == QN_LOOP_SERIAL || stmt->loop.kind == QN_LOOP_UNROLL;
  if (is_serial && !qn__is_independent_loop(stmt)) {
    if (!is_host || !qn__block_any(&stmt->loop.body, is_concurrent)) {
      if (qn__block_any(&stmt->loop.body, qn__is_block_loop)) {
        qn__pb_refuse(self->pb, "the host cannot compute the bounds of a loop around launches");
      }
      collect(self, stmt);
      return;
    }
    close_unit(self);
    stmt->loop.kind = QN_LOOP_SERIAL;
    qn__host_mark(stmt->loop.var);
    place_block(self, &stmt->loop.body, self->guards);
    qn__block_append(self->out, stmt);
    return;
  }
  assert(qn__is_independent_loop(stmt));  // the pass `independent` marks the others
  binder_t binder = {self, "bound"};
  if (!is_host &&
      (!bind_slot(&binder, &stmt->loop.begin) || !bind_slot(&binder, &stmt->loop.end))) {
    return;
  }
  qn__ir_stmt_t* parts = is_host ? qn__product_split(self->pb, stmt) : NULL;
  if (parts) launch(self, QN__LAUNCH_ITERATIONS, parts);
  launch(self, QN__LAUNCH_ITERATIONS, stmt);
}

static void place_stmt(qn__partition_t* self, qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      place_let(self, stmt);
      break;
    case QN__STMT_ALLOC:
      place_alloc(self, stmt);
      break;
    case QN__STMT_IF:
      place_if(self, stmt);
      break;
    case QN__STMT_LOOP:
      place_loop(self, stmt);
      break;
    case QN__STMT_ASSERT:
      if (!self->guards && qn__host_knows(stmt->assert_.condition)) {
        qn__block_append(self->out, stmt);
      } else {
        collect_split(self, stmt);
      }
      break;
    case QN__STMT_ATOMIC:
      collect_split(self, stmt);
      if (stmt->atomic.result) {
        qn__partition_value_t* value = device_value(self, stmt);
        if (!value) return;
        value->unit = self->open;
        stmt->atomic.result->user = value;
      }
      break;
    case QN__STMT_STORE:
      collect_split(self, stmt);
      break;
    case QN__STMT_WHILE:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
    case QN__STMT_TENSOR:
    case QN__STMT_REDUCE:
    case QN__STMT_LEAVE:  // replaced before
      collect(self, stmt);
      break;
  }
}

// Builds the list anew in place, since it is the `home` of its declarations.
static void place_block(qn__partition_t* self, qn__ir_block_t* block,
                        const qn__partition_guard_t* guards) {
  const qn__partition_t outer = *self;
  assert(!outer.open);  // the statements of one unit are in one list
  self->out = block;
  self->guards = guards;
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(self->pb);) {
    place_stmt(self, stmt);
  }
  close_unit(self);
  self->out = outer.out;
  self->guards = outer.guards;
}

// ---- launches

// Wraps the content in the unit's guards.
static qn__ir_block_t add_guards(qn__pass_builder_t* pb, const qn__partition_unit_t* unit,
                                 qn__ir_block_t content, uint32_t* out_count) {
  *out_count = 0;
  for (const qn__partition_guard_t* guard = unit->guards; guard; guard = guard->outer) {
    qn__ir_var_t* here = qn__alias_find(unit->aliases, guard->var);
    qn__ir_expr_t* condition = qn__pb_use(pb, here ? here : guard->var);
    if (guard->is_negated && condition) {
      condition = qn__expr_op(pb->arena, QN_OP_LOGIC_NOT, condition, NULL, NULL);
    }
    qn__ir_stmt_t* test = qn__pb_if(pb, condition, content);
    if (!test) return content;
    content = qn__block_of(test);
    ++*out_count;
  }
  return content;
}

// Makes a nest of block loops perfect: moves lets, asserts, tables and views between them into the
// innermost one. Returns the innermost loop.
static qn__ir_stmt_t* straighten(qn__ir_stmt_t* loop) {
  qn__ir_block_t moved = {NULL, NULL};
  for (;;) {
    qn__ir_stmt_t* inner = loop->loop.body.first;
    while (inner && !qn__is_block_loop(inner)) inner = inner->next;
    if (!inner) break;
    for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&loop->loop.body)) != NULL;) {
      if (stmt != inner) qn__block_append(&moved, stmt);
    }
    loop->loop.body = qn__block_of(inner);
    loop = inner;
  }
  qn__block_splice(&moved, &loop->loop.body);
  loop->loop.body = moved;
  return loop;
}

// Turns the anchor into the launch of the unit.
static void write_launch(qn__pass_builder_t* pb, qn__partition_unit_t* unit) {
  qn__launch_t* launch = QN__ARENA_NEW(pb->arena, qn__launch_t);
  qn__ir_stmt_t* outermost = unit->stmts.first;
  qn__ir_stmt_t* innermost;
  if (outermost && qn__is_block_loop(outermost)) {
    innermost = straighten(outermost);
  } else {
    innermost = outermost = qn__pb_count_loop(pb, QN_LOOP_BLOCK_X, "block", qn__pb_int(pb, 1));
    if (!innermost) return;
    // Without guards, the prologue becomes a part of the statements.
    bool is_joined = unit->kind == QN__LAUNCH_STATEMENTS && !unit->guards;
    if (is_joined) qn__block_splice(&innermost->loop.body, &unit->prologue);
    qn__block_splice(&innermost->loop.body, &unit->stmts);
  }
  if (!launch) return;
  assert(qn__is_block_loop(outermost) && !outermost->loop.launch);
  launch->kind = unit->kind;
  launch->head_count = qn__block_count(&unit->prologue);
  qn__ir_block_t content = add_guards(pb, unit, innermost->loop.body, &launch->guard_count);
  qn__block_splice(&unit->prologue, &content);
  innermost->loop.body = unit->prologue;
  qn__ir_stmt_t* next = unit->anchor->next;
  *unit->anchor = *outermost;
  unit->anchor->next = next;
  unit->anchor->loop.launch = launch;
}

static void partition_function(qn__pass_builder_t* pb) {
  qn__partition_t self = {.pb = pb};
  place_block(&self, &pb->function->body, NULL);
  if (!qn__pb_stopped(pb)) qn__partition_import(&self);
  for (qn__partition_unit_t* unit = self.first; unit && !qn__pb_stopped(pb); unit = unit->next) {
    write_launch(pb, unit);
  }
}

// ---- postcondition

static bool is_of_device(const qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_ALLOC) return stmt->alloc.buffer->scope == QN__SCOPE_LOCAL;
  return stmt->kind == QN__STMT_STORE || stmt->kind == QN__STMT_ATOMIC ||
         stmt->kind == QN__STMT_WHILE || stmt->kind == QN__STMT_BARRIER ||
         stmt->kind == QN__STMT_FENCE;
}

// Returns true if a local buffer is declared in the head of the launch.
static bool has_local_head(const qn__ir_stmt_t* launch) {
  const qn__ir_stmt_t* stmt = launch->loop.body.first;
  while (stmt && qn__is_block_loop(stmt)) stmt = stmt->loop.body.first;
  for (uint32_t i = 0; i < launch->loop.launch->head_count && stmt; ++i, stmt = stmt->next) {
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_LOCAL) return true;
  }
  return false;
}

static const char* check_block(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (is_of_device(stmt)) return "a statement outside of launches that the host cannot run";
    if (stmt->kind == QN__STMT_LOOP) {
      if (stmt->loop.launch && has_local_head(stmt)) return "a local buffer in a launch's head";
      if (stmt->loop.launch) continue;
      if (stmt->loop.kind != QN_LOOP_SERIAL) return "a concurrent loop that is no launch";
    }
    QN__EACH_BLOCK(stmt, inner) {
      const char* problem = check_block(inner);
      if (problem) return problem;
    }
  }
  return NULL;
}

static const char* check(qn__ir_func_t* function) {
  return check_block(&function->body);
}

const qn__pass_t qn__pass_partition = {
    .name = "partition",
    .doc = "splits a function into what the host does and launches",
    .run = partition_function,
    .post = "all statements outside of launches are the host's",
    .check = check,
};
