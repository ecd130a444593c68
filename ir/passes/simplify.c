// SPDX-License-Identifier: Apache-2.0
// ir/passes/simplify.c: folds expressions, decides branches, removes what has no effect.
//
// One walk in program order collects facts about variables (ranges, copies, constants) and applies
// them to later statements. A sweep backwards then removes unused lets, unused buffers and empty
// statements. In checked builds, operations that may fail are kept.
#include "ir/passes/fold.h"
#include "ir/passes/pass_builder.h"

static bool fold_slot(void* self, qn__ir_expr_t** slot) {
  qn__fold_expr(self, slot);
  return true;
}

static void simplify_block(qn__fold_t* fold, qn__ir_block_t* block, bool is_top);

static bool has_one_iteration(const qn__ir_stmt_t* loop) {
  qn__ir_range_t begin = qn__range_of(loop->loop.begin);
  qn__ir_range_t end = qn__range_of(loop->loop.end);
  return begin.min == begin.max && end.min == end.max && begin.min < end.min &&
         begin.min == end.min - 1;
}

static void simplify_loop(qn__fold_t* fold, qn__ir_stmt_t* stmt, bool is_top, qn__ir_block_t* out) {
  bool has_no_iteration = qn__range_of(stmt->loop.end).max <= qn__range_of(stmt->loop.begin).min;
  bool is_plain = !qn__loop_is_block(stmt->loop.kind) && !qn__loop_is_thread(stmt->loop.kind);
  if (has_no_iteration && qn__fold_can_drop(fold, stmt->loop.begin) &&
      qn__fold_can_drop(fold, stmt->loop.end)) {
    return;
  }
  if (!is_top && is_plain && has_one_iteration(stmt) && qn__fold_can_drop(fold, stmt->loop.end)) {
    qn__ir_stmt_t* let = qn__stmt_new(fold->arena, QN__STMT_LET, stmt->loc);
    if (!let) return;
    stmt->loop.var->kind = QN__VAR_LET;
    let->let.var = stmt->loop.var;
    let->let.value = stmt->loop.begin;
    qn__ir_block_t body = qn__block_of(let);
    qn__block_splice(&body, &stmt->loop.body);
    simplify_block(fold, &body, is_top);
    qn__block_splice(out, &body);
    return;
  }
  qn__fold_learn_range(fold, stmt->loop.var, stmt->loop.begin, stmt->loop.end);
  simplify_block(fold, &stmt->loop.body, false);
  qn__block_append(out, stmt);
}

// Appends the simplified statement, if it has an effect.
static void simplify_stmt(qn__fold_t* fold, qn__ir_stmt_t* stmt, bool is_top, qn__ir_block_t* out) {
  (void)qn__stmt_each_expr(stmt, fold_slot, fold);
  switch (stmt->kind) {
    case QN__STMT_LET:
      if (qn__fold_learn_let(fold, stmt->let.var, stmt->let.value)) return;
      break;
    case QN__STMT_IF: {
      const qn__ir_expr_t* condition = stmt->if_.condition;
      if (condition->kind == QN__EXPR_INT) {
        qn__ir_block_t* chosen =
            condition->int_value != 0 ? &stmt->if_.then_block : &stmt->if_.else_block;
        simplify_block(fold, chosen, is_top);
        qn__block_splice(out, chosen);
        return;
      }
      simplify_block(fold, &stmt->if_.then_block, false);
      simplify_block(fold, &stmt->if_.else_block, false);
      break;
    }
    case QN__STMT_LOOP:
      simplify_loop(fold, stmt, is_top, out);
      return;
    case QN__STMT_WHILE:
      if (qn__expr_is_int(stmt->while_.condition, 0)) return;
      simplify_block(fold, &stmt->while_.body, false);
      break;
    case QN__STMT_ASSERT:
      if (stmt->assert_.condition->kind == QN__EXPR_INT &&
          stmt->assert_.condition->int_value != 0) {
        return;
      }
      break;
    default:
      break;
  }
  qn__block_append(out, stmt);
}

static void simplify_block(qn__fold_t* fold, qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    simplify_stmt(fold, stmt, is_top, block);
  }
}

// ---- removal of unused declarations

typedef struct sweep {
  qn__fold_t* fold;
  size_t* var_uses;     // by variable id
  size_t* buffer_uses;  // by buffer id
  size_t step;          // 1 or -1 (wrapping)
} sweep_t;

static bool count_vars(void* context, qn__ir_expr_t** slot) {
  sweep_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  // A use is taken back only after it was counted.
  assert(expr->kind != QN__EXPR_VAR || self->step == 1 || self->var_uses[expr->var->id] > 0);
  if (expr->kind == QN__EXPR_VAR) self->var_uses[expr->var->id] += self->step;
  return qn__expr_each_child(*slot, count_vars, self);
}

static bool count_buffer(void* context, const qn__ir_ref_t* ref) {
  sweep_t* self = context;
  assert(self->step == 1 || self->buffer_uses[(*ref->buffer)->id] > 0);
  self->buffer_uses[(*ref->buffer)->id] += self->step;
  return true;
}

static bool can_drop(void* fold, qn__ir_expr_t** slot) {
  return qn__fold_can_drop(fold, *slot);
}

static bool is_useless(const sweep_t* self, qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      if (self->var_uses[stmt->let.var->id] != 0) return false;
      break;
    case QN__STMT_IF:
      if (stmt->if_.then_block.first || stmt->if_.else_block.first) return false;
      break;
    case QN__STMT_LOOP:
      if (stmt->loop.body.first) return false;
      break;
    case QN__STMT_ALLOC:
      if (self->buffer_uses[stmt->alloc.buffer->id] != 0) return false;
      if (self->fold->is_checked && stmt->alloc.buffer->scope != QN__SCOPE_CONST) return false;
      break;
    default:
      return false;
  }
  return qn__stmt_each_expr(stmt, can_drop, self->fold);
}

// Removes unused lets of reductions.
static bool sweep_reductions(void* context, qn__ir_expr_t** slot);

static void sweep_list(sweep_t* self, qn__ir_block_t* block, bool is_reduction) {
  uint32_t count = qn__block_count(block);
  qn__ir_stmt_t** stmts = qn__arena_alloc_array(self->fold->arena, count + 1U, sizeof *stmts);
  if (!stmts) return;
  for (uint32_t i = 0; i < count; ++i) stmts[i] = qn__block_pop(block);
  assert(!block->first);
  for (uint32_t i = count; i-- > 0;) {
    if (!is_reduction) {
      QN__EACH_BLOCK(stmts[i], inner) sweep_list(self, inner, false);
    }
    if (is_useless(self, stmts[i])) {
      assert(stmts[i]->kind != QN__STMT_STORE);  // it has an effect
      self->step = (size_t)-1;
      (void)qn__stmt_each_expr(stmts[i], count_vars, self);
      (void)qn__stmt_each_ref(stmts[i], count_buffer, self);
      stmts[i] = NULL;
    } else {
      (void)qn__stmt_each_expr(stmts[i], sweep_reductions, self);
    }
  }
  for (uint32_t i = 0; i < count; ++i) qn__pb_append(block, stmts[i]);
}

static bool sweep_reductions(void* context, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) {
    (void)sweep_reductions(context, &(*slot)->reduce.value);
    sweep_list(context, &(*slot)->reduce.lets, true);
    (void)sweep_reductions(context, &(*slot)->reduce.begin);
    return sweep_reductions(context, &(*slot)->reduce.end);
  }
  return qn__expr_each_child(*slot, sweep_reductions, context);
}

static void sweep(qn__fold_t* fold, qn__ir_func_t* function) {
  qn__function_number(function);
  sweep_t self = {.fold = fold, .step = 1};
  self.var_uses =
      qn__arena_alloc_array(fold->arena, function->var_count + 1U, sizeof *self.var_uses);
  self.buffer_uses =
      qn__arena_alloc_array(fold->arena, function->buffer_count + 1U, sizeof *self.buffer_uses);
  if (!self.var_uses || !self.buffer_uses) return;
  (void)qn__block_each_expr(&function->body, count_vars, &self);
  (void)qn__block_each_ref(&function->body, count_buffer, &self);
  sweep_list(&self, &function->body, false);
}

// Records that symbols are not negative: they are extents. (One that is only a stride may be.)
static void learn_symbols(qn__fold_t* fold, const qn__ir_func_t* function) {
  for (size_t i = 0; i < function->param_count; ++i) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    for (uint32_t d = 0; buffer && d < buffer->rank; ++d) {
      const qn__ir_expr_t* extent = buffer->shape[d];
      if (extent->kind != QN__EXPR_VAR || extent->var->kind != QN__VAR_SYMBOL) continue;
      qn__ir_var_facts_t* facts = qn__fold_facts(fold, extent->var);
      if (facts) facts->range = (qn__ir_range_t){0, INT64_MAX};
    }
  }
}

static void simplify_function(qn__pass_builder_t* pb) {
  qn__ir_func_t* function = pb->function;
  qn__fold_t fold = {pb->arena, pb->options->is_checked, function->is_fast};
  learn_symbols(&fold, function);
  simplify_block(&fold, &function->body, true);
  if (!qn__pb_stopped(pb)) sweep(&fold, function);
}

const qn__pass_t qn__pass_simplify = {
    .name = "simplify",
    .doc = "folds constants and index algebra, removes what has no effect",
    .run = simplify_function,
    .post = "constants are folded, and no declaration is unused",
    .is_alone = true,
};
