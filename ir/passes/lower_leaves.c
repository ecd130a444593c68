// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_leaves.c: replaces `break`, `continue` and `return` by conditions.
//
// 1. What follows an `if` with an arm that always leaves moves into its other arm.
// 2. What follows another `if` that may leave runs under a flag of the iteration, which each LEAVE
//    clears.
// 3. A `while` that is left early has a flag in its condition. Such a `for` becomes a `while` over
//    its next index, which leaving sets to its end.
// 4. A `return` in a loop sets a flag of the function and leaves the loop. After it, the flag ends
//    what is around.
// Only arms and loops hold a LEAVE, and it is the last of its block: the verifier checks that.
#include "ir/passes/pass_builder.h"

// A loop that is being rewritten, or the function.
typedef struct leave_region {
  struct leave_region* outer;  // NULL: the function
  qn__ir_block_t head;         // what begins each iteration
  qn__ir_buffer_t* staying;    // the flag of the iteration; NULL: none yet
  // What leaving the loop stores to, and the value. NULL: nothing leaves it early.
  qn__ir_buffer_t* end_to;
  qn__ir_var_t* end;  // NULL: false
} leave_region_t;

typedef struct lowering {
  qn__pass_builder_t* pb;
  qn__ir_buffer_t* returned;  // the flag of the function; NULL: none yet
  qn__ir_block_t head;        // what begins the function
} lowering_t;

static void lower_block(lowering_t* l, leave_region_t* region, qn__ir_block_t* block);

static qn__ir_expr_t* flag(lowering_t* l, bool value) {
  return qn__expr_int(l->pb->arena, QN_DTYPE_BOOL, value);
}

static void store(lowering_t* l, qn__ir_block_t* block, qn__ir_buffer_t* buffer,
                  qn__ir_expr_t* value) {
  qn__pb_append(block, qn__pb_store(l->pb, buffer, NULL, NULL, value));
}

static qn__ir_buffer_t* add_flag(lowering_t* l, qn__ir_block_t* block, const char* name,
                                 bool value) {
  qn__ir_buffer_t* buffer =
      qn__pb_alloc(l->pb, block, QN__SCOPE_LOCAL, QN_DTYPE_BOOL, name, -1, -1);
  if (buffer) store(l, block, buffer, flag(l, value));
  return buffer;
}

static qn__ir_buffer_t* returned_flag(lowering_t* l) {
  if (!l->returned) l->returned = add_flag(l, &l->head, "returned", false);
  return l->returned;
}

// Returns whether the block always ends in a LEAVE.
static bool always_leaves(const qn__ir_block_t* block) {
  const qn__ir_stmt_t* last = block->last;
  if (!last) return false;
  if (last->kind == QN__STMT_LEAVE) return true;
  return last->kind == QN__STMT_IF && always_leaves(&last->if_.then_block) &&
         always_leaves(&last->if_.else_block);
}

static void lower_leave(lowering_t* l, const leave_region_t* region, qn_leave_t kind,
                        qn__ir_block_t* out) {
  if (region->staying) store(l, out, region->staying, flag(l, false));
  if (!region->outer || kind == QN_LEAVE_CONTINUE) return;
  store(l, out, region->end_to, region->end ? qn__pb_use(l->pb, region->end) : flag(l, false));
  if (kind == QN_LEAVE_RETURN) store(l, out, returned_flag(l), flag(l, true));
}

// Appends an `if` that may leave; `rest` is what follows it, and is taken where it moves.
static void lower_if(lowering_t* l, leave_region_t* region, qn__ir_stmt_t* stmt,
                     qn__ir_block_t* rest, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = l->pb;
  if (rest->first && always_leaves(&stmt->if_.then_block)) {
    qn__block_splice(&stmt->if_.else_block, rest);
  } else if (rest->first && always_leaves(&stmt->if_.else_block)) {
    qn__block_splice(&stmt->if_.then_block, rest);
  } else if (rest->first) {
    if (!region->staying) region->staying = add_flag(l, &region->head, "staying", true);
    if (!region->staying) return;
    qn__ir_block_t body = qn__block_take(rest);
    qn__pb_append(rest, qn__pb_if(pb, qn__pb_load(pb, region->staying, NULL, NULL), body));
  }
  lower_block(l, region, &stmt->if_.then_block);
  lower_block(l, region, &stmt->if_.else_block);
  qn__block_append(out, stmt);
}

static void lower_body(lowering_t* l, leave_region_t* region, qn__ir_block_t* body) {
  lower_block(l, region, body);
  qn__block_splice(&region->head, body);
  *body = region->head;
}

// Appends a `while`, or a `for` that is left early, as a `while` with a flag or an index.
static void lower_while(lowering_t* l, leave_region_t* region, qn__ir_stmt_t* stmt, bool is_left,
                        qn__ir_block_t* out) {
  if (is_left) {
    region->end_to = add_flag(l, out, "going", true);
    if (!region->end_to) return;
    qn__ir_expr_t* going = qn__pb_load(l->pb, region->end_to, NULL, NULL);
    stmt->while_.condition = qn__pb_both(l->pb, going, stmt->while_.condition);
  }
  lower_body(l, region, &stmt->while_.body);
  if (stmt->while_.condition) qn__block_append(out, stmt);
}

static void lower_for(lowering_t* l, leave_region_t* region, qn__ir_stmt_t* stmt,
                      qn__ir_block_t* out) {
  qn__pass_builder_t* pb = l->pb;
  qn__ir_block_t body = stmt->loop.body;
  qn__ir_var_t* var = stmt->loop.var;
  qn__ir_buffer_t* next = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, QN_DTYPE_I64, "next", -1, -1);
  qn__ir_stmt_t* loop = qn__stmt_new(pb->arena, QN__STMT_WHILE, stmt->loc);
  if (!next || !loop) return;
  region->end_to = next;
  store(l, out, next, stmt->loop.begin);
  region->end = qn__pb_let(pb, out, "end", stmt->loop.end);
  if (!region->end) return;
  loop->while_.condition =
      qn__pb_op(pb, QN_OP_LT, qn__pb_load(pb, next, NULL, NULL), qn__pb_use(pb, region->end));
  qn__pb_let_var(pb, &region->head, var, qn__pb_load(pb, next, NULL, NULL));
  store(l, &region->head, next, qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, var), 1));
  lower_body(l, region, &body);
  loop->while_.body = body;
  if (loop->while_.condition) qn__block_append(out, loop);
}

// Appends a loop. Returns whether it may return from the function.
static bool lower_loop(lowering_t* l, leave_region_t* outer, qn__ir_stmt_t* stmt,
                       qn__ir_block_t* out) {
  bool is_while = stmt->kind == QN__STMT_WHILE;
  qn__ir_block_t* body = is_while ? &stmt->while_.body : &stmt->loop.body;
  bool returns = qn__block_has_leave(body, QN_LEAVE_RETURN);
  bool is_left = returns || qn__block_has_leave(body, QN_LEAVE_BREAK);
  leave_region_t region = {.outer = outer};
  if (is_while) {
    lower_while(l, &region, stmt, is_left, out);
  } else if (is_left) {
    lower_for(l, &region, stmt, out);
  } else {
    lower_body(l, &region, body);
    qn__block_append(out, stmt);
  }
  return returns;
}

// Returns `if returned { return; }`, which is lowered next.
static qn__ir_stmt_t* new_return(lowering_t* l) {
  qn__pass_builder_t* pb = l->pb;
  qn__ir_block_t body = {NULL, NULL};
  qn__ir_stmt_t* leave = qn__stmt_new(pb->arena, QN__STMT_LEAVE, (qn__ir_loc_t){0, 0});
  if (!leave || !returned_flag(l)) return NULL;
  leave->leave = QN_LEAVE_RETURN;
  qn__block_append(&body, leave);
  return qn__pb_if(pb, qn__pb_load(pb, l->returned, NULL, NULL), body);
}

static void lower_block(lowering_t* l, leave_region_t* region, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(l->pb);) {
    switch (stmt->kind) {
      case QN__STMT_LEAVE:
        lower_leave(l, region, stmt->leave, block);
        break;
      case QN__STMT_IF:
        if (qn__stmt_leaves(stmt)) {
          lower_if(l, region, stmt, &rest, block);
          break;
        }
        lower_block(l, region, &stmt->if_.then_block);
        lower_block(l, region, &stmt->if_.else_block);
        qn__block_append(block, stmt);
        break;
      case QN__STMT_LOOP:
      case QN__STMT_WHILE:
        if (!lower_loop(l, region, stmt, block)) break;
        stmt = new_return(l);
        if (stmt) lower_if(l, region, stmt, &rest, block);
        break;
      case QN__STMT_REDUCE:
        lower_body(l, &(leave_region_t){.outer = region}, &stmt->several->body);
        qn__block_append(block, stmt);
        break;
      default:
        qn__block_append(block, stmt);
    }
  }
}

static bool is_leave(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LEAVE;
}

static void lower_function(qn__pass_builder_t* pb) {
  qn__ir_block_t* body = &pb->function->body;
  if (!qn__block_any(body, is_leave)) return;
  lowering_t l = {.pb = pb};
  leave_region_t region = {.outer = NULL};
  lower_body(&l, &region, body);
  qn__block_splice(&l.head, body);
  *body = l.head;
}

static bool is_needed(qn__ir_body_t* body) {
  return qn__body_any(body, is_leave);
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_leave) ? "a break, continue or return" : NULL;
}

const qn__pass_t qn__pass_lower_leaves = {
    .name = "lower_leaves",
    .doc = "replaces break, continue and return by conditions",
    .run = lower_function,
    .post = "none is left",
    .check = check,
    .is_needed = is_needed,
    .is_alone = true,
};
