// SPDX-License-Identifier: Apache-2.0
// ir/passes/hoist.c: moves invariant values out of loops and reductions.
//
//   for i in 0..n { y[i] = exp(a) * x[i]; }   becomes   let h = exp(a);
//                                                       for i in 0..n { y[i] = h * x[i]; }
//
// The innermost loop comes first, so that a value moves out of as many loops as it can. The pass
// moves lets, and the largest invariant subexpressions that are worth a variable. Equal ones share
// a variable. Requirements:
// 1. An early evaluation has no effect. Arithmetic has none (an integer division never traps in an
//    unchecked build). A load or reduction moves only if the first iteration always evaluates it,
//    and no assert comes before it. If the loop may be empty, `begin < end ? ... : 0` guards it.
// 2. A load moves only if nothing in the loop stores to the root of its buffer, or lets the thread
// see
//    what others store.
// 3. In checked builds loads and divisions do not move, so that errors keep their place.
// 4. No value moves out of a launch, and no operation bound to its thread (LANE, GROUP) moves.
#include "ir/passes/pass_builder.h"

typedef struct hoist {
  qn__pass_builder_t* pb;
  // By buffer id: the number of the last loop that stores to it.
  uint32_t* stored_in;
  uint32_t loop_number;
} hoist_t;

// The loop or reduction that values move out of. It is `user` of everything declared inside.
typedef struct site {
  hoist_t* hoist;
  qn__ir_block_t* out;   // receives the lets
  qn__ir_block_t moved;  // copies of the moved lets, to find equal values
  qn__ir_expr_t* guard;  // begin < end; NULL: loads must stay
  bool is_never_empty;
  bool is_uncertain;  // some iterations may not evaluate the current expression
} site_t;

// Records that the current loop stores to a buffer.
static bool mark_stored(void* self, const qn__ir_ref_t* ref) {
  hoist_t* hoist = self;
  if (ref->kind == QN__REF_STORE || ref->kind == QN__REF_ATOMIC) {
    assert(qn__buf_root(*ref->buffer)->id < hoist->pb->buffer_count);
    hoist->stored_in[qn__buf_root(*ref->buffer)->id] = hoist->loop_number;
  }
  return true;
}

// ---- values that may move

// Returns false if the value depends on the loop.
static bool check_invariant(void* context, qn__ir_expr_t** slot) {
  const site_t* site = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR && expr->var->user == site) return false;
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    if (expr->load.buffer->user == site || root->user == site ||
        site->hoist->stored_in[root->id] == site->hoist->loop_number) {
      return false;
    }
  }
  return qn__expr_each_child(*slot, check_invariant, context);
}

static bool can_move(site_t* site, qn__ir_expr_t* expr) {
  qn__ir_expr_facts_t facts = qn__expr_facts(expr);
  if (facts.has_cross_lane) return false;
  if (site->hoist->pb->options->is_checked && (facts.has_load || facts.has_division)) return false;
  if ((facts.has_load || facts.has_reduce) && !(site->guard && !site->is_uncertain)) return false;
  // Variables that a nested reduction declares move with it.
  qn__expr_set_user(expr, NULL);
  bool is_invariant = check_invariant(site, &expr);
  if (!is_invariant) qn__expr_set_user(expr, site);
  return is_invariant;
}

static bool has_worth(const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_LOAD:
    case QN__EXPR_REDUCE:
      return true;
    case QN__EXPR_OP:
      return !qn__dtype_is_int(expr->dtype) ||
             (expr->op != QN_OP_ADD && expr->op != QN_OP_SUB && expr->op != QN_OP_NEG);
    case QN__EXPR_CAST:
      return qn__dtype_is_real(expr->dtype);
    default:
      return false;
  }
}

// ---- moving

// Returns the value with a guard if the loop may be empty and the value loads from memory.
static qn__ir_expr_t* guarded(const site_t* site, qn__ir_expr_t* value) {
  qn__pass_builder_t* pb = site->hoist->pb;
  qn__ir_expr_facts_t facts = qn__expr_facts(value);
  if (site->is_never_empty || !(facts.has_load || facts.has_reduce)) return value;
  assert(site->guard);  // can_move
  return qn__pb_cond(pb, qn__pb_copy(pb, site->guard), value, qn__pb_zero(pb, value->dtype));
}

// Appends a let to `out` and a record of it to `moved`.
static void place(site_t* site, qn__ir_var_t* var, qn__ir_expr_t* value) {
  qn__pass_builder_t* pb = site->hoist->pb;
  qn__pb_let_var(pb, &site->moved, var, value);
  qn__pb_let_var(pb, site->out, var, guarded(site, value));
  if (var) var->user = NULL;
}

// Finds a let with the same arithmetic before the loop, such as one that moved out of an earlier
// loop. The search is limited to 256 statements: beyond that, equal values are computed twice.
static qn__ir_var_t* find_before(const site_t* site, qn__ir_expr_t* value) {
  qn__ir_expr_facts_t facts = qn__expr_facts(value);
  if (facts.has_load || facts.has_reduce || facts.has_cross_lane) return NULL;
  int steps = 0;
  for (qn__ir_stmt_t* stmt = site->out->first; stmt && steps < 256; stmt = stmt->next, ++steps) {
    if (stmt->kind == QN__STMT_LET && qn__expr_equal(stmt->let.value, value)) return stmt->let.var;
  }
  return NULL;
}

static void move_slot(site_t* site, qn__ir_expr_t** slot) {
  qn__pass_builder_t* pb = site->hoist->pb;
  qn__ir_expr_t* expr = *slot;
  qn__ir_var_t* var = NULL;
  for (const qn__ir_stmt_t* record = site->moved.first; record && !var; record = record->next) {
    if (qn__expr_equal(record->let.value, expr)) var = record->let.var;
  }
  if (!var) var = find_before(site, expr);
  if (!var) {
    var = qn__pb_var(pb, QN__VAR_LET, expr->dtype, "h");
    place(site, var, expr);
  }
  qn__ir_expr_t* use = qn__pb_use(pb, var);
  if (use) *slot = use;
}

static bool visit_slot(void* context, qn__ir_expr_t** slot);

static void visit_reduce(site_t* site, qn__ir_expr_t* expr) {
  bool was_uncertain = site->is_uncertain;
  (void)visit_slot(site, &expr->reduce.begin);
  (void)visit_slot(site, &expr->reduce.end);
  site->is_uncertain = true;  // it may be empty
  for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
    (void)visit_slot(site, &let->let.value);
  }
  (void)visit_slot(site, &expr->reduce.value);
  site->is_uncertain = was_uncertain;
}

static bool visit_slot(void* context, qn__ir_expr_t** slot) {
  site_t* site = context;
  qn__ir_expr_t* expr = *slot;
  if (qn__expr_any(expr, has_worth) && can_move(site, expr)) {
    move_slot(site, slot);
  } else if (expr->kind == QN__EXPR_REDUCE) {
    visit_reduce(site, expr);
  } else {
    (void)qn__expr_each_child_lazily(expr, visit_slot, site, &site->is_uncertain);
  }
  return true;
}

static void visit_block(site_t* site, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    if (stmt->kind == QN__STMT_LET && can_move(site, stmt->let.value)) {
      place(site, stmt->let.var, stmt->let.value);
      continue;
    }
    bool was_uncertain = site->is_uncertain;
    if (stmt->kind == QN__STMT_WHILE) site->is_uncertain = true;
    // Declarations stay unchanged, since accesses to the buffer read its extents.
    if (stmt->kind != QN__STMT_ALLOC) (void)qn__stmt_each_expr(stmt, visit_slot, site);
    QN__EACH_BLOCK(stmt, inner) {
      site->is_uncertain = true;
      visit_block(site, inner);
    }
    // After an assert, or a block that may contain one or not end, no evaluation is certain.
    bool has_blocks = qn__stmt_next_block(stmt, NULL) != NULL;
    site->is_uncertain = was_uncertain || has_blocks || stmt->kind == QN__STMT_ASSERT;
    qn__block_append(block, stmt);
  }
}

static void hoist_loop(hoist_t* hoist, qn__ir_stmt_t* loop, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = hoist->pb;
  site_t site = {.hoist = hoist, .out = out};
  ++hoist->loop_number;
  loop->loop.var->user = &site;
  qn__block_set_user(&loop->loop.body, &site);
  (void)qn__block_each_ref(&loop->loop.body, mark_stored, hoist);
  if (!qn__block_has_barrier(&loop->loop.body) &&
      !qn__block_any(&loop->loop.body, qn__stmt_orders_memory)) {
    site.is_never_empty = qn__const_trips(loop->loop.begin, loop->loop.end) > 0;
    site.guard =
        qn__pb_op(pb, QN_OP_LT, qn__pb_copy(pb, loop->loop.begin), qn__pb_copy(pb, loop->loop.end));
  }
  visit_block(&site, &loop->loop.body);
}

// Moves values out of a reduction into `out`. Loads stay: a reduction has no stores, so the code
// generator can move them itself.
static void hoist_reduce(hoist_t* hoist, qn__ir_expr_t* reduce, qn__ir_block_t* out) {
  site_t site = {.hoist = hoist, .out = out};  // without a guard
  ++hoist->loop_number;
  qn__expr_set_user(reduce, &site);
  visit_block(&site, &reduce->reduce.lets);
  (void)visit_slot(&site, &reduce->reduce.value);
}

typedef struct reductions {
  hoist_t* hoist;
  qn__ir_block_t* out;
} reductions_t;

static bool hoist_reductions(void* context, qn__ir_expr_t** slot) {
  reductions_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind != QN__EXPR_REDUCE) return qn__expr_each_child(expr, hoist_reductions, self);
  (void)hoist_reductions(self, &expr->reduce.begin);
  (void)hoist_reductions(self, &expr->reduce.end);
  // Values of inner reductions move into the lets of this one.
  qn__ir_block_t* lets = &expr->reduce.lets;
  reductions_t inner = {self->hoist, lets};
  qn__ir_block_t rest = qn__block_take(lets);
  for (qn__ir_stmt_t* let; (let = qn__block_pop(&rest)) != NULL;) {
    (void)hoist_reductions(&inner, &let->let.value);
    qn__block_append(lets, let);
  }
  (void)hoist_reductions(&inner, &expr->reduce.value);
  hoist_reduce(self->hoist, expr, self->out);
  return true;
}

// Returns true if a statement at the level of the launches may have more of them within it.
static bool may_launch(qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_IF) return true;
  return stmt->kind == QN__STMT_LOOP && qn__block_any(&stmt->loop.body, qn__is_block_loop);
}

// `is_top`: at the level of the launches, whose values stay: the host may not be able to compute
// them.
static void hoist_block(hoist_t* hoist, qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(hoist->pb);) {
    reductions_t reductions = {hoist, block};
    if (stmt->kind != QN__STMT_ALLOC) {
      (void)qn__stmt_each_expr(stmt, hoist_reductions, &reductions);
    }
    bool is_top_within = is_top && may_launch(stmt);
    QN__EACH_BLOCK(stmt, nested) hoist_block(hoist, nested, is_top_within);
    if (stmt->kind == QN__STMT_LOOP && !is_top && !qn__is_block_loop(stmt) &&
        !qn__is_thread_loop(stmt)) {
      hoist_loop(hoist, stmt, block);
    }
    qn__block_append(block, stmt);
  }
}

static void hoist_function(qn__pass_builder_t* pb) {
  hoist_t hoist = {.pb = pb};
  hoist.stored_in =
      qn__arena_alloc_array(pb->arena, pb->buffer_count + 1U, sizeof *hoist.stored_in);
  if (hoist.stored_in) hoist_block(&hoist, &pb->function->body, true);
}

const qn__pass_t qn__pass_hoist = {
    .name = "hoist",
    .doc = "moves loop-invariant values out of loops",
    .run = hoist_function,
    .post = "what it moved is evaluated before the loop",
    .is_alone = true,
};
