// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/strips_reduce.c: writes the reductions of a strip.
//
//   parallel j in the strip { acc[j - first] = 0; }
//   for t in 0..steps // 4 {
//     parallel j in the strip {
//       let sum = acc[j - first];
//       let sum_1 = sum + a[begin + 4 * t, j];      // and so on, four in all
//       acc[j - first] = sum_4;
//     }
//   }
//   for t in steps // 4 * 4..steps { ... }          // one step at a time
//
// Several steps at once save the loads and stores of the sums. Reductions over one range share a
// loop, so that memory is read once. Each adds in its order.
#include "ir/passes/cpu/strips.h"
#include "ir/passes/products_write.h"

enum {
  max_lookahead = 8,  // lets after a statement whose reductions may share its loop
  steps_at_once = 4,
  max_step_weight = 40,  // nodes of a step of several
};

typedef struct found {
  qn__ir_expr_t** slot;
  qn__ir_expr_t* reduce;
  qn_dtype_t dtype;  // that it adds up in
  qn__ir_buffer_t* acc;
  qn__ir_var_t* sum;  // where code is being written
} found_t;

typedef struct strip_search {
  qn__strip_t* strip;
  uint32_t count;
  found_t found[qn__strip_max_reductions];
  uint32_t late_count;
  const qn__ir_var_t* late[max_lookahead];  // variables that the loop comes before
} strip_search_t;

// ---- which reductions

static bool is_wanted(const strip_search_t* self, qn__ir_expr_t* reduce) {
  const qn__strip_t* strip = self->strip;
  qn__ir_expr_t *begin = reduce->reduce.begin, *end = reduce->reduce.end;
  if (self->count == qn__strip_max_reductions || !qn__strip_spans(strip, begin, end)) return false;
  int64_t trips = qn__const_trips(begin, end);
  if (trips >= 0 && trips <= qn__strip_short) return false;
  if (self->count > 0) {
    const qn__ir_expr_t* first = self->found[0].reduce;
    if (!qn__expr_equal(first->reduce.begin, begin) || !qn__expr_equal(first->reduce.end, end)) {
      return false;
    }
  }
  for (uint32_t i = 0; i < self->late_count; ++i) {
    if (qn__expr_uses_var(reduce, self->late[i])) return false;
  }
  return true;
}

static bool find(void* context, qn__ir_expr_t** slot) {
  strip_search_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    if (!is_wanted(self, expr)) return true;
    bool is_narrow = qn__dtype_is_float(expr->dtype) && qn_dtype_size_bytes(expr->dtype) < 4;
    qn_dtype_t dtype = is_narrow ? QN_DTYPE_F32 : expr->dtype;
    self->found[self->count++] = (found_t){.slot = slot, .reduce = expr, .dtype = dtype};
    return true;
  }
  // The other operands are not always evaluated.
  if (qn__expr_is_lazy(expr)) return find(self, &expr->args[0]);
  return qn__expr_each_child(expr, find, self);
}

static void look_ahead(strip_search_t* self, const qn__ir_stmt_t* stmt) {
  while (stmt->kind == QN__STMT_LET && stmt->next && stmt->next->kind == QN__STMT_LET &&
         self->late_count < max_lookahead) {
    self->late[self->late_count++] = stmt->let.var;
    stmt = stmt->next;
    if (qn__strip_is_uniform(self->strip, stmt->let.value)) continue;
    uint32_t count = self->count;
    qn__ir_expr_t** value = &((qn__ir_stmt_t*)(uintptr_t)stmt)->let.value;
    (void)find(self, value);
    // Its value is not what the facts about lanes know any more.
    if (self->count > count) stmt->let.var->user = self->strip;
  }
}

// ---- writing

// What replaces two variables in a copy of a step.
typedef struct strip_place {
  const qn__ir_var_t* step;
  qn__ir_var_t* step_now;
  const qn__ir_var_t* column;
  qn__ir_var_t* column_now;
} strip_place_t;

static qn__ir_expr_t* place_var(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  const strip_place_t* place = subst->self;
  if (var == place->step) return qn__expr_var(subst->arena, place->step_now);
  if (var == place->column) return qn__expr_var(subst->arena, place->column_now);
  return NULL;
}

// Puts the summand of each reduction after its lets, as a let, and returns the nodes of all.
static size_t make_steps(qn__strip_level_t* level, strip_search_t* search) {
  qn__pass_builder_t* pb = level->strip->pb;
  size_t weight = 0;
  for (uint32_t i = 0; i < search->count; ++i) {
    found_t* found = &search->found[i];
    qn__ir_expr_t* value = qn__pb_cast(pb, found->dtype, found->reduce->reduce.value);
    qn__ir_block_t* lets = &found->reduce->reduce.lets;
    if (!qn__pb_let(pb, lets, "term", value)) return 0;
    for (qn__ir_stmt_t* let = lets->first; let; let = let->next) qn__strip_fix(level, let);
    weight += qn__block_weight(lets);
  }
  return weight;
}

// Appends a step of each reduction to `out`. `column` is the variable of the steps as they are.
static void write_step(qn__strip_level_t* level, strip_search_t* search, const qn__ir_var_t* column,
                       qn__ir_var_t* step_now) {
  qn__pass_builder_t* pb = level->strip->pb;
  qn__ir_block_t* body = &level->group->loop.body;
  for (uint32_t i = 0; i < search->count; ++i) {
    found_t* found = &search->found[i];
    const qn__ir_expr_t* reduce = found->reduce;
    strip_place_t place = {reduce->reduce.reduce_var, step_now, column, level->group->loop.var};
    qn__ir_subst_t subst = {.on_var = place_var, .arena = pb->arena, .self = &place};
    qn__ir_block_t lets = {NULL, NULL};
    if (!qn__block_clone(&subst, &reduce->reduce.lets, &lets) || !lets.last) return;
    qn__ir_var_t* term = lets.last->let.var;
    qn__block_splice(body, &lets);
    qn__ir_expr_t* next = qn__pb_op(pb, qn__reduce_op(reduce->reduce.reduce_kind),
                                    qn__pb_use(pb, found->sum), qn__pb_use(pb, term));
    found->sum = qn__pb_let(pb, body, "sum", next);
    if (!found->sum) return;
  }
}

// Writes a loop over `from..to` with `at_once` steps in each iteration.
static void write_loop(qn__strip_level_t* level, strip_search_t* search, const qn__ir_var_t* column,
                       qn__ir_expr_t* begin, qn__ir_expr_t* from, qn__ir_expr_t* to,
                       int64_t at_once) {
  qn__strip_t* strip = level->strip;
  qn__pass_builder_t* pb = strip->pb;
  qn__ir_var_t* t = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_SERIAL, t, from, to);
  if (!loop) return;
  qn__strip_level_t inner = {.strip = strip, .out = &loop->loop.body};
  qn__ir_var_t* steps[steps_at_once];
  for (int64_t u = 0; u < at_once; ++u) {
    qn__ir_expr_t* index = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, t), at_once);
    index = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, begin), index);
    steps[u] = qn__pb_let(pb, inner.out, "i", qn__pb_op_int(pb, QN_OP_ADD, index, u));
  }
  qn__strip_open(&inner);
  if (qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &inner.group->loop.body;
  qn__ir_var_t* own = inner.group->loop.var;
  for (uint32_t i = 0; i < search->count; ++i) {
    found_t* found = &search->found[i];
    qn__ir_expr_t* old = qn__pb_load(pb, found->acc, qn__strip_at(strip, own), NULL);
    found->sum = qn__pb_let(pb, body, "sum", old);
  }
  for (int64_t u = 0; u < at_once; ++u) write_step(&inner, search, column, steps[u]);
  for (uint32_t i = 0; i < search->count; ++i) {
    found_t* found = &search->found[i];
    qn__pb_append(body, qn__pb_store(pb, found->acc, qn__strip_at(strip, own), NULL,
                                     qn__pb_use(pb, found->sum)));
  }
  qn__strip_close(&inner);
  qn__block_append(level->out, loop);
}

static void write_all(qn__strip_level_t* level, strip_search_t* search) {
  qn__strip_t* strip = level->strip;
  qn__pass_builder_t* pb = strip->pb;
  if (!level->group) qn__strip_open(level);
  for (uint32_t i = 0; i < search->count && level->group; ++i) {
    found_t* found = &search->found[i];
    found->acc = qn__strip_buffer(strip, found->dtype, "acc");
    qn__ir_expr_t* neutral = qn__pb_neutral(pb, found->reduce->reduce.reduce_kind, found->dtype);
    qn__pb_append(
        &level->group->loop.body,
        qn__pb_store(pb, found->acc, qn__strip_at(strip, level->group->loop.var), NULL, neutral));
  }
  qn__strip_close(level);
  const qn__ir_expr_t* first = search->found[0].reduce;
  qn__ir_expr_t* begin =
      qn__pb_named(pb, level->out, "begin", qn__pb_copy(pb, first->reduce.begin));
  qn__ir_expr_t* end = qn__pb_named(pb, level->out, "end", qn__pb_copy(pb, first->reduce.end));
  if (!begin || !end) return;
  qn__ir_expr_t* steps = qn__pb_named(pb, level->out, "steps", qn__pb_range(pb, begin, end));
  // The steps are written for the variable of a loop that is never used, and copied.
  qn__ir_block_t nowhere = {NULL, NULL};
  qn__strip_level_t model = {.strip = strip, .out = &nowhere};
  qn__strip_open(&model);
  if (qn__pb_stopped(pb)) return;
  size_t weight = make_steps(&model, search);
  if (qn__pb_stopped(pb)) return;
  const qn__ir_var_t* column = model.group->loop.var;
  int64_t at_once = weight <= max_step_weight ? steps_at_once : 1;
  qn__ir_expr_t* done = qn__pb_int(pb, 0);
  if (at_once > 1) {
    qn__ir_expr_t* rounds =
        qn__pb_named(pb, level->out, "rounds",
                     qn__pb_op_int(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, steps), at_once));
    if (!rounds) return;
    write_loop(level, search, column, begin, done, rounds, at_once);
    done = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_copy(pb, rounds), at_once);
  }
  write_loop(level, search, column, begin, done, steps, 1);
  for (uint32_t i = 0; i < search->count; ++i) {
    found_t* found = &search->found[i];
    qn__ir_expr_t* sum =
        qn__pb_load(pb, found->acc, qn__strip_at(strip, strip->loop->loop.var), NULL);
    sum = qn__pb_cast(pb, found->reduce->dtype, sum);
    if (!sum) return;
    *found->slot = sum;
  }
}

void qn__strip_reduce(qn__strip_level_t* level, qn__ir_stmt_t* stmt) {
  while (!qn__pb_stopped(level->strip->pb)) {
    strip_search_t search = {.strip = level->strip};
    (void)qn__stmt_each_expr(stmt, find, &search);
    if (search.count == 0) return;
    look_ahead(&search, stmt);
    write_all(level, &search);
  }
}
