// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_exchanges.c: replaces exchanges among threads by operations of the target.
//
// An exchange (LANE and GROUP operators) first becomes the whole value of a let:
//   - In a branch of a lazy operator it moves out. Its operand is then evaluated only under the
//     branch's condition, which is the same for all threads: the verifier checks that.
//   - A reduction that contains one becomes a loop that adds up in a local buffer.
//   - In the condition of `while` it is computed before the loop and at the end of its body.
// Exchanges that the target lacks then use shared memory:
//   - shuffle:  all[t] = x; barrier; all[source]
//   - warp_sum: all[t] = x; barrier; the first lane sums its warp: sums[warp]; barrier; sums[warp]
//   - block_sum: as warp_sum (or with the target's warp_sum), then every thread sums the warps.
// If the memory was used before, a barrier precedes the stores too: threads may still read it.
#include "ir/passes/exchange.h"

// ---- out of expressions

typedef struct pull {
  qn__exchange_t* self;
  qn__ir_block_t* out;
  const qn__ir_expr_t* condition;  // the place is evaluated only if it holds; NULL: always
} pull_t;

// Returns `condition ? value : 0`, or the value if there is no condition.
static qn__ir_expr_t* only_where(const pull_t* pull, qn__ir_expr_t* value) {
  qn__pass_builder_t* pb = pull->self->pb;
  if (!pull->condition || !value) return value;
  return qn__pb_cond(pb, qn__pb_copy(pb, pull->condition), value, qn__pb_zero(pb, value->dtype));
}

static bool pull_slot(void* context, qn__ir_expr_t** slot);

// Makes the condition a variable, so that it is evaluated once and guards each branch.
static bool pull_lazy(pull_t* pull, qn__ir_expr_t* expr) {
  qn__pass_builder_t* pb = pull->self->pb;
  if (!pull_slot(pull, &expr->args[0])) return false;
  qn__ir_var_t* var = qn__pb_let(pb, pull->out, "condition", only_where(pull, expr->args[0]));
  qn__ir_expr_t* use = qn__pb_use(pb, var);
  if (!use) return false;
  expr->args[0] = use;
  for (int i = 1; i < 3; ++i) {
    if (!expr->args[i] || !qn__expr_facts(expr->args[i]).has_cross_lane) continue;
    qn__ir_expr_t* holds = qn__pb_use(pb, var);
    bool is_negated = expr->kind == QN__EXPR_COND ? i == 2 : expr->op == QN_OP_LOGIC_OR;
    if (holds && is_negated) holds = qn__expr_op(pb->arena, QN_OP_LOGIC_NOT, holds, NULL, NULL);
    if (pull->condition) {
      holds = qn__pb_op(pb, QN_OP_LOGIC_AND, qn__pb_copy(pb, pull->condition), holds);
    }
    pull_t inner = {pull->self, pull->out, holds};
    if (!holds || !pull_slot(&inner, &expr->args[i])) return false;
  }
  return true;
}

static void rewrite_block(qn__exchange_t* self, qn__ir_block_t* block);

// Replaces a reduction by a loop:
//   alloc total; total[] = neutral;
//   for k in begin..end { lets; total[] = total[] + value; }
//   total[]
static bool pull_reduce(pull_t* pull, qn__ir_expr_t** slot) {
  qn__exchange_t* self = pull->self;
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* reduce = *slot;
  if (!pull_slot(pull, &reduce->reduce.begin) || !pull_slot(pull, &reduce->reduce.end)) {
    return false;
  }
  qn_reduce_kind_t kind = reduce->reduce.reduce_kind;
  qn__ir_buffer_t* total =
      qn__pb_alloc(pb, pull->out, QN__SCOPE_LOCAL, reduce->dtype, "total", -1, -1);
  qn__pb_append(pull->out,
                qn__pb_store(pb, total, NULL, NULL, qn__pb_neutral(pb, kind, reduce->dtype)));
  // Under a false condition there are no iterations.
  qn__ir_stmt_t* loop =
      qn__pb_loop(pb, QN_LOOP_SERIAL, reduce->reduce.reduce_var,
                  only_where(pull, reduce->reduce.begin), only_where(pull, reduce->reduce.end));
  qn__ir_expr_t* before = qn__pb_load(pb, total, NULL, NULL);
  if (!loop || !before) return false;
  loop->loop.var->kind = QN__VAR_LOOP;
  loop->loop.body = reduce->reduce.lets;
  qn__ir_expr_t* step =
      qn__expr_op(pb->arena, qn__reduce_op(kind), before, reduce->reduce.value, NULL);
  qn__pb_append(&loop->loop.body, qn__pb_store(pb, total, NULL, NULL, step));
  ++self->rounds;
  rewrite_block(self, &loop->loop.body);
  --self->rounds;
  qn__block_append(pull->out, loop);
  qn__ir_expr_t* use = qn__pb_load(pb, total, NULL, NULL);
  if (use) *slot = use;
  return use != NULL;
}

static bool pull_slot(void* context, qn__ir_expr_t** slot) {
  pull_t* pull = context;
  qn__ir_expr_t* expr = *slot;
  if (!qn__expr_facts(expr).has_cross_lane) return true;
  if (qn__expr_is_lazy(expr)) return pull_lazy(pull, expr);
  if (expr->kind == QN__EXPR_REDUCE) return pull_reduce(pull, slot);
  if (!qn__expr_each_child(expr, pull_slot, pull)) return false;
  if (!qn__expr_is_exchange(expr)) return true;
  bool has_axes = qn__op_info(expr->op)->rule == QN__RULE_AXES;  // which are a literal
  for (int i = 0; i < (has_axes ? 1 : 2); ++i) expr->args[i] = only_where(pull, expr->args[i]);
  qn__ir_expr_t* value = expr->args[0] ? qn__exchange_lower(pull->self, pull->out, expr) : NULL;
  if (value) *slot = value;
  return value != NULL;
}

// ---- statements

// Replaces `while c { ... }` by
//   alloc go: bool; go[] = c; while go[] { ...; go[] = c; }
static void rewrite_while(qn__exchange_t* self, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* condition = stmt->while_.condition;
  qn__ir_expr_t* again = qn__pb_copy(pb, condition);
  qn__ir_buffer_t* go = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, QN_DTYPE_BOOL, "go", -1, -1);
  qn__ir_expr_t* goes = qn__pb_load(pb, go, NULL, NULL);
  if (!again || !goes) return;
  qn__ir_block_t before = {NULL, NULL};
  qn__pb_append(&before, qn__pb_store(pb, go, NULL, NULL, condition));
  rewrite_block(self, &before);
  qn__block_splice(out, &before);
  stmt->while_.condition = goes;
  qn__pb_append(&stmt->while_.body, qn__pb_store(pb, go, NULL, NULL, again));
}

// Wraps thread loops at the top of a function in a block loop, since shared memory belongs to a
// block.
static qn__ir_stmt_t* with_block(qn__exchange_t* self, qn__ir_stmt_t* threads) {
  qn__ir_stmt_t* block =
      qn__pb_count_loop(self->pb, QN_LOOP_BLOCK_X, "block", qn__pb_int(self->pb, 1));
  if (!block) return threads;
  qn__block_splice(&block->loop.body, &self->shared);
  qn__block_append(&block->loop.body, threads);
  return block;
}

static void rewrite_block(qn__exchange_t* self, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(self->pb);) {
    bool is_thread = qn__is_thread_loop(stmt);
    bool is_outermost = is_thread && self->depth == 0;
    if (is_thread) qn__exchange_enter(self, stmt);
    if (stmt->kind == QN__STMT_WHILE && qn__expr_facts(stmt->while_.condition).has_cross_lane) {
      rewrite_while(self, stmt, block);
    } else {
      pull_t pull = {self, block, NULL};
      (void)qn__stmt_each_expr(stmt, pull_slot, &pull);
    }
    if (qn__pb_stopped(self->pb)) return;
    bool is_round = stmt->kind == QN__STMT_LOOP || stmt->kind == QN__STMT_WHILE;
    bool is_repeated = is_round && self->depth > 0 && !is_thread;
    self->loops += is_round;
    self->rounds += is_repeated;
    QN__EACH_BLOCK(stmt, inner) rewrite_block(self, inner);
    self->loops -= is_round;
    self->rounds -= is_repeated;
    if (is_thread) qn__exchange_leave(self, stmt);
    if (is_outermost && self->loops == 0 && self->shared.first) stmt = with_block(self, stmt);
    if (is_outermost) qn__block_splice(block, &self->shared);
    qn__block_append(block, stmt);
  }
}

static void lower_function(qn__pass_builder_t* pb) {
  qn__exchange_t self = {.pb = pb};
  rewrite_block(&self, &pb->function->body);
  assert(qn__pb_stopped(pb) || (self.loops == 0 && self.rounds == 0 && self.depth == 0));
}

const qn__pass_t qn__pass_lower_exchanges = {
    .name = "lower_exchanges",
    .doc = "exchanges among threads as lets, or through shared memory",
    .run = lower_function,
    .post = "exchanges that the machine has are whole values of lets, and no others are left",
    .is_alone = true,
};
