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

// ---- nodes

// Returns `condition ? value : 0`, or the value if there is no condition.
static qn__ir_expr_t* only_where(qn__exchange_t* self, const qn__ir_expr_t* condition,
                                 qn__ir_expr_t* value) {
  if (!condition || !value) return value;
  return qn__pb_cond(self->pb, qn__pb_copy(self->pb, condition), value,
                     qn__pb_zero(self->pb, value->dtype));
}

static qn__ir_expr_t* both(qn__exchange_t* self, const qn__ir_expr_t* outer, qn__ir_expr_t* inner) {
  if (!outer || !inner) return inner;
  qn__ir_expr_t* left = qn__pb_copy(self->pb, outer);
  return left ? qn__expr_op(self->pb->arena, QN_OP_LOGIC_AND, left, inner, NULL) : NULL;
}

// ---- out of expressions

typedef struct pull {
  qn__exchange_t* self;
  qn__ir_block_t* out;
  const qn__ir_expr_t* condition;  // the place is evaluated only if it holds; NULL: always
} pull_t;

static bool pull_slot(void* context, qn__ir_expr_t** slot);

// Makes the condition a variable, so that it is evaluated once and guards each branch.
static bool pull_lazy(pull_t* pull, qn__ir_expr_t* expr) {
  qn__exchange_t* self = pull->self;
  if (!pull_slot(pull, &expr->args[0])) return false;
  qn__ir_expr_t* guarded = only_where(self, pull->condition, expr->args[0]);
  qn__ir_var_t* var = qn__pb_let(self->pb, pull->out, "condition", guarded);
  qn__ir_expr_t* use = var ? qn__expr_var(self->pb->arena, var) : NULL;
  if (!use) return false;
  expr->args[0] = use;
  for (int i = 1; i < 3; ++i) {
    if (!expr->args[i] || !qn__expr_facts(expr->args[i]).has_cross_lane) continue;
    qn__ir_expr_t* holds = qn__expr_var(self->pb->arena, var);
    bool is_negated = expr->kind == QN__EXPR_COND ? i == 2 : expr->op == QN_OP_LOGIC_OR;
    if (holds && is_negated) {
      holds = qn__expr_op(self->pb->arena, QN_OP_LOGIC_NOT, holds, NULL, NULL);
    }
    pull_t inner = {self, pull->out, both(self, pull->condition, holds)};
    if (!inner.condition || !pull_slot(&inner, &expr->args[i])) return false;
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
  qn__ir_expr_t* reduce = *slot;
  if (!pull_slot(pull, &reduce->reduce.begin) || !pull_slot(pull, &reduce->reduce.end)) {
    return false;
  }
  qn__ir_expr_t* first = qn__pb_neutral(self->pb, reduce->reduce.reduce_kind, reduce->dtype);
  qn__ir_buffer_t* total =
      qn__pb_alloc(self->pb, pull->out, QN__SCOPE_LOCAL, reduce->dtype, "total", -1, -1);
  qn__ir_stmt_t* loop = qn__stmt_new(self->pb->arena, QN__STMT_LOOP, reduce->loc);
  if (!first || !total || !loop) return false;
  qn__pb_append(pull->out, qn__pb_store(self->pb, total, NULL, NULL, first));
  loop->loop.kind = QN_LOOP_SERIAL;
  loop->loop.var = reduce->reduce.reduce_var;
  loop->loop.var->kind = QN__VAR_LOOP;
  // Under a false condition there are no iterations.
  loop->loop.begin = only_where(self, pull->condition, reduce->reduce.begin);
  loop->loop.end = only_where(self, pull->condition, reduce->reduce.end);
  loop->loop.body = reduce->reduce.lets;
  qn__ir_expr_t* before = qn__pb_load(self->pb, total, NULL, NULL);
  qn__ir_expr_t* step =
      before && loop->loop.begin && loop->loop.end
          ? qn__expr_op(self->pb->arena, qn__reduce_op(reduce->reduce.reduce_kind), before,
                        reduce->reduce.value, NULL)
          : NULL;
  if (!step) return false;
  qn__pb_append(&loop->loop.body, qn__pb_store(self->pb, total, NULL, NULL, step));
  ++self->rounds;
  rewrite_block(self, &loop->loop.body);
  --self->rounds;
  qn__block_append(pull->out, loop);
  qn__ir_expr_t* use = qn__pb_load(self->pb, total, NULL, NULL);
  if (use) *slot = use;
  return use != NULL;
}

static bool pull_slot(void* context, qn__ir_expr_t** slot) {
  pull_t* pull = context;
  qn__exchange_t* self = pull->self;
  qn__ir_expr_t* expr = *slot;
  if (!expr || !qn__expr_facts(expr).has_cross_lane) return true;
  if (qn__expr_is_lazy(expr)) return pull_lazy(pull, expr);
  if (expr->kind == QN__EXPR_REDUCE) return pull_reduce(pull, slot);
  if (!qn__expr_each_child(expr, pull_slot, pull)) return false;
  if (!qn__expr_is_exchange(expr)) return true;
  expr->args[0] = only_where(self, pull->condition, expr->args[0]);
  if (expr->args[1]) expr->args[1] = only_where(self, pull->condition, expr->args[1]);
  if (!expr->args[0]) return false;
  qn__ir_expr_t* value = qn__exchange_lower(self, pull->out, expr);
  if (value) *slot = value;
  return value != NULL;
}

// ---- statements

static void pull_stmt(qn__exchange_t* self, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  pull_t pull = {self, out, NULL};
  (void)qn__stmt_each_expr(stmt, pull_slot, &pull);
}

// Replaces `while c { ... }` by
//   alloc go: bool; go[] = c; while go[] { ...; go[] = c; }
static void rewrite_while(qn__exchange_t* self, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__ir_expr_t* condition = stmt->while_.condition;
  qn__ir_expr_t* again = qn__pb_copy(self->pb, condition);
  qn__ir_buffer_t* go = qn__pb_alloc(self->pb, out, QN__SCOPE_LOCAL, QN_DTYPE_BOOL, "go", -1, -1);
  if (!again || !go) return;
  qn__ir_block_t before = {NULL, NULL};
  qn__pb_append(&before, qn__pb_store(self->pb, go, NULL, NULL, condition));
  rewrite_block(self, &before);
  qn__block_splice(out, &before);
  stmt->while_.condition = qn__pb_load(self->pb, go, NULL, NULL);
  qn__pb_append(&stmt->while_.body, qn__pb_store(self->pb, go, NULL, NULL, again));
}

// Wraps thread loops at the top of a function in a block loop, since shared memory belongs to a
// block.
static qn__ir_stmt_t* with_block(qn__exchange_t* self, qn__ir_stmt_t* threads) {
  qn__ir_stmt_t* block = qn__stmt_new(self->pb->arena, QN__STMT_LOOP, threads->loc);
  qn__ir_var_t* var = qn__var_new(self->pb->arena, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  if (!block || !var) return threads;
  block->loop.kind = QN_LOOP_BLOCK_X;
  block->loop.var = var;
  block->loop.begin = qn__expr_int(self->pb->arena, QN_DTYPE_I64, 0);
  block->loop.end = qn__expr_int(self->pb->arena, QN_DTYPE_I64, 1);
  qn__block_splice(&block->loop.body, &self->shared);
  qn__block_append(&block->loop.body, threads);
  return block;
}

static void rewrite_block(qn__exchange_t* self, qn__ir_block_t* block) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt && !self->pb->arena->is_exhausted; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    bool is_thread = stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind);
    bool is_outermost = is_thread && self->depth == 0;
    if (is_thread) qn__exchange_enter(self, stmt);
    if (stmt->kind == QN__STMT_WHILE && qn__expr_facts(stmt->while_.condition).has_cross_lane) {
      rewrite_while(self, stmt, &result);
    } else {
      pull_stmt(self, stmt, &result);
    }
    if (self->pb->arena->is_exhausted) return;
    bool is_round = stmt->kind == QN__STMT_LOOP || stmt->kind == QN__STMT_WHILE;
    self->loops += is_round;
    self->rounds += is_round && self->depth > 0 && !is_thread;
    QN__EACH_BLOCK(stmt, inner) rewrite_block(self, inner);
    self->loops -= is_round;
    self->rounds -= is_round && self->depth > 0 && !is_thread;
    if (is_thread) qn__exchange_leave(self, stmt);
    if (is_outermost && self->loops == 0 && self->shared.first) stmt = with_block(self, stmt);
    if (is_outermost) qn__block_splice(&result, &self->shared);
    qn__block_append(&result, stmt);
  }
  *block = result;
}

static void lower_function(qn__pass_builder_t* pb) {
  qn__exchange_t self = {.pb = pb, .warp_size = pb->warp_size};
  rewrite_block(&self, &pb->function->body);
}

const qn__pass_t qn__pass_lower_exchanges = {
    .name = "lower_exchanges",
    .doc = "exchanges among threads as lets, or through shared memory",
    .run = lower_function};
