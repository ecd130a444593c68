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
// 2. A load moves only if nothing in the loop stores to the root of its buffer.
// 3. In checked builds loads and divisions do not move, so that errors keep their place.
// 4. No value moves out of a launch, and no operation bound to its thread (LANE, GROUP) moves.
#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

typedef struct hoist {
  qn__arena_t* arena;
  bool is_checked;
  bool has_failed;
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
  bool is_certain;  // every iteration evaluates the current expression
} site_t;

static bool mark_reductions(void* site, qn__ir_expr_t** slot) {
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    expr->reduce.reduce_var->user = site;
    for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      let->let.var->user = site;
    }
  }
  return qn__expr_each_child(expr, mark_reductions, site);
}

static void mark_stored(hoist_t* hoist, const qn__ir_stmt_t* stmt) {
  qn__ir_buffer_t* buffer = NULL;
  if (stmt->kind == QN__STMT_STORE) buffer = stmt->store.buffer;
  if (stmt->kind == QN__STMT_ATOMIC) buffer = stmt->atomic.buffer;
  if (buffer) hoist->stored_in[qn__buf_root(buffer)->id] = hoist->loop_number;
}

static void mark_block(site_t* site, qn__ir_block_t* block, bool* out_has_barrier) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, mark_reductions, site);
    mark_stored(site->hoist, stmt);
    if (stmt->kind == QN__STMT_LET) stmt->let.var->user = site;
    if (stmt->kind == QN__STMT_LOOP) stmt->loop.var->user = site;
    if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->user = site;
    if (stmt->kind == QN__STMT_ATOMIC && stmt->atomic.result) stmt->atomic.result->user = site;
    if (stmt->kind == QN__STMT_BARRIER) *out_has_barrier = true;
    QN__EACH_BLOCK(stmt, inner) mark_block(site, inner, out_has_barrier);
  }
}

// ---- values that may move

typedef struct invariance {
  const site_t* site;
  bool is_invariant;
} invariance_t;

static bool check_invariant(void* context, qn__ir_expr_t** slot) {
  invariance_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR && expr->var->user == self->site) self->is_invariant = false;
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    if (expr->load.buffer->user == self->site || root->user == self->site ||
        self->site->hoist->stored_in[root->id] == self->site->hoist->loop_number) {
      self->is_invariant = false;
    }
  }
  return self->is_invariant && qn__expr_each_child(*slot, check_invariant, self);
}

static void set_owner(qn__ir_expr_t* reduce, void* owner) {
  reduce->reduce.reduce_var->user = owner;
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    let->let.var->user = owner;
  }
}

static bool own_all(void* owner, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) set_owner(*slot, owner);
  return qn__expr_each_child(*slot, own_all, owner);
}

static bool can_move(site_t* site, qn__ir_expr_t* expr) {
  qn__ir_expr_facts_t facts = qn__expr_facts(expr);
  if (facts.has_cross_lane) return false;
  if (site->hoist->is_checked && (facts.has_load || facts.has_division)) return false;
  if ((facts.has_load || facts.has_reduce) && !(site->is_certain && site->guard)) return false;
  // Variables that a nested reduction declares move with it.
  (void)own_all(NULL, &expr);
  invariance_t check = {site, true};
  (void)check_invariant(&check, &expr);
  if (!check.is_invariant) (void)own_all(site, &expr);
  return check.is_invariant;
}

static bool has_worth(void* found, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  bool is_worthy = false;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) is_worthy = true;
  if (expr->kind == QN__EXPR_OP) {
    is_worthy = !qn__dtype_is_int(expr->dtype) ||
                (expr->op != QN_OP_ADD && expr->op != QN_OP_SUB && expr->op != QN_OP_NEG);
  }
  if (expr->kind == QN__EXPR_CAST && qn__dtype_is_float(expr->dtype)) is_worthy = true;
  if (is_worthy) *(bool*)found = true;
  return !is_worthy && qn__expr_each_child(*slot, has_worth, found);
}

static bool is_worth_a_variable(qn__ir_expr_t* expr) {
  bool is_worthy = false;
  if (expr->kind == QN__EXPR_INT || expr->kind == QN__EXPR_FLOAT || expr->kind == QN__EXPR_VAR) {
    return false;
  }
  (void)has_worth(&is_worthy, &expr);
  return is_worthy;
}

// ---- moving

static qn__ir_expr_t* zero_of(hoist_t* hoist, qn_dtype_t dtype) {
  return qn__dtype_is_float(dtype) ? qn__expr_float(hoist->arena, dtype, 0.0)
                                   : qn__expr_int(hoist->arena, dtype, 0);
}

// Returns the value with a guard if the loop may be empty and the value loads from memory.
static qn__ir_expr_t* guarded(const site_t* site, qn__ir_expr_t* value) {
  hoist_t* hoist = site->hoist;
  qn__ir_expr_facts_t facts = qn__expr_facts(value);
  if (site->is_never_empty || !(facts.has_load || facts.has_reduce)) return value;
  qn__ir_expr_t* cond = qn__expr_new(hoist->arena, QN__EXPR_COND, value->dtype, value->loc);
  qn__ir_expr_t* condition = qn__expr_replace(hoist->arena, site->guard, NULL, NULL);
  qn__ir_expr_t* zero = zero_of(hoist, value->dtype);
  if (!cond || !condition || !zero) {
    hoist->has_failed = true;
    return value;
  }
  cond->args[0] = condition;
  cond->args[1] = value;
  cond->args[2] = zero;
  return cond;
}

// Appends `let` to `out` and a record of it to `moved`.
static qn__ir_var_t* place(site_t* site, qn__ir_stmt_t* let) {
  hoist_t* hoist = site->hoist;
  qn__ir_stmt_t* record = qn__stmt_new(hoist->arena, QN__STMT_LET, let->loc);
  if (!record) {
    hoist->has_failed = true;
    return NULL;
  }
  record->let = let->let;
  qn__block_append(&site->moved, record);
  let->let.value = guarded(site, let->let.value);
  let->let.var->user = NULL;
  let->next = NULL;
  qn__block_append(site->out, let);
  return let->let.var;
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
  hoist_t* hoist = site->hoist;
  qn__ir_expr_t* expr = *slot;
  qn__ir_var_t* var = NULL;
  for (const qn__ir_stmt_t* record = site->moved.first; record && !var; record = record->next) {
    if (qn__expr_equal(record->let.value, expr)) var = record->let.var;
  }
  if (!var) var = find_before(site, expr);
  if (!var) {
    qn__ir_stmt_t* let = qn__stmt_new(hoist->arena, QN__STMT_LET, expr->loc);
    qn__ir_var_t* fresh = qn__var_new(hoist->arena, QN__VAR_LET, expr->dtype, "h");
    if (!let || !fresh) {
      hoist->has_failed = true;
      return;
    }
    let->let.var = fresh;
    let->let.value = expr;
    var = place(site, let);
    if (!var) return;
  }
  qn__ir_expr_t* use = qn__expr_var(hoist->arena, var);
  if (use) {
    *slot = use;
  } else {
    hoist->has_failed = true;
  }
}

static bool visit_slot(void* context, qn__ir_expr_t** slot);

// Visits an operator that evaluates its operands after the first only in some cases.
static bool visit_lazy(site_t* site, qn__ir_expr_t* expr) {
  bool was_certain = site->is_certain;
  bool is_ok = visit_slot(site, &expr->args[0]);
  site->is_certain = false;
  for (int i = 1; i < 3 && is_ok; ++i) {
    if (expr->args[i]) is_ok = visit_slot(site, &expr->args[i]);
  }
  site->is_certain = was_certain;
  return is_ok;
}

static bool visit_slot(void* context, qn__ir_expr_t** slot) {
  site_t* site = context;
  qn__ir_expr_t* expr = *slot;
  if (is_worth_a_variable(expr) && can_move(site, expr)) {
    move_slot(site, slot);
    return !site->hoist->has_failed;
  }
  if (qn__expr_is_lazy(expr)) return visit_lazy(site, expr);
  if (expr->kind == QN__EXPR_REDUCE) {
    bool was_certain = site->is_certain;
    if (!visit_slot(site, &expr->reduce.begin) || !visit_slot(site, &expr->reduce.end)) {
      return false;
    }
    site->is_certain = false;  // it may be empty
    bool is_ok = true;
    for (qn__ir_stmt_t* let = expr->reduce.lets.first; let && is_ok; let = let->next) {
      is_ok = visit_slot(site, &let->let.value);
    }
    is_ok = is_ok && visit_slot(site, &expr->reduce.value);
    site->is_certain = was_certain;
    return is_ok;
  }
  return qn__expr_each_child(expr, visit_slot, site);
}

static void visit_block(site_t* site, qn__ir_block_t* block) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt && !site->hoist->has_failed; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    if (stmt->kind == QN__STMT_LET && can_move(site, stmt->let.value)) {
      (void)place(site, stmt);
      continue;
    }
    bool was_certain = site->is_certain;
    if (stmt->kind == QN__STMT_WHILE) site->is_certain = false;
    // Declarations stay unchanged, since accesses to the buffer read its extents.
    if (stmt->kind != QN__STMT_ALLOC) (void)qn__stmt_each_expr(stmt, visit_slot, site);
    QN__EACH_BLOCK(stmt, inner) {
      site->is_certain = false;
      visit_block(site, inner);
    }
    // After an assert, or a block that may contain one or not end, no evaluation is certain.
    bool has_blocks = qn__stmt_next_block(stmt, NULL) != NULL;
    site->is_certain = was_certain && !has_blocks && stmt->kind != QN__STMT_ASSERT;
    qn__block_append(&result, stmt);
  }
  *block = result;
}

static void hoist_loop(hoist_t* hoist, qn__ir_stmt_t* loop, qn__ir_block_t* out) {
  site_t site = {.hoist = hoist, .out = out, .is_certain = true};
  bool has_barrier = false;
  ++hoist->loop_number;
  loop->loop.var->user = &site;
  mark_block(&site, &loop->loop.body, &has_barrier);
  if (!has_barrier) {
    int64_t begin, end;
    site.is_never_empty = qn__expr_const_int(loop->loop.begin, &begin) &&
                          qn__expr_const_int(loop->loop.end, &end) && begin < end;
    site.guard = qn__expr_op(hoist->arena, QN_OP_LT,
                             qn__expr_replace(hoist->arena, loop->loop.begin, NULL, NULL),
                             qn__expr_replace(hoist->arena, loop->loop.end, NULL, NULL), NULL);
    if (!site.guard) hoist->has_failed = true;
  }
  if (!hoist->has_failed) visit_block(&site, &loop->loop.body);
}

// Moves values out of a reduction into `out`. Loads stay: a reduction has no stores, so the code
// generator can move them itself.
static void hoist_reduce(hoist_t* hoist, qn__ir_expr_t* reduce, qn__ir_block_t* out) {
  site_t site = {.hoist = hoist, .out = out};
  ++hoist->loop_number;
  set_owner(reduce, &site);
  for (qn__ir_stmt_t* let = reduce->reduce.lets.first; let; let = let->next) {
    (void)mark_reductions(&site, &let->let.value);
  }
  (void)mark_reductions(&site, &reduce->reduce.value);
  visit_block(&site, &reduce->reduce.lets);
  if (!hoist->has_failed) (void)visit_slot(&site, &reduce->reduce.value);
}

typedef struct reductions {
  hoist_t* hoist;
  qn__ir_block_t* out;
} reductions_t;

static bool hoist_reductions(void* context, qn__ir_expr_t** slot) {
  reductions_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind != QN__EXPR_REDUCE) return qn__expr_each_child(expr, hoist_reductions, self);
  if (!hoist_reductions(self, &expr->reduce.begin) || !hoist_reductions(self, &expr->reduce.end)) {
    return false;
  }
  // Values of inner reductions move into the lets of this one.
  qn__ir_block_t lets = {NULL, NULL};
  reductions_t inner = {self->hoist, &lets};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = next) {
    next = let->next;
    let->next = NULL;
    if (!hoist_reductions(&inner, &let->let.value)) return false;
    qn__block_append(&lets, let);
  }
  if (!hoist_reductions(&inner, &expr->reduce.value)) return false;
  expr->reduce.lets = lets;
  hoist_reduce(self->hoist, expr, self->out);
  return !self->hoist->has_failed;
}

static void hoist_block(hoist_t* hoist, qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt && !hoist->has_failed; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    reductions_t reductions = {hoist, &result};
    if (stmt->kind != QN__STMT_ALLOC) {
      (void)qn__stmt_each_expr(stmt, hoist_reductions, &reductions);
    }
    QN__EACH_BLOCK(stmt, nested) {
      if (hoist->has_failed) break;
      hoist_block(hoist, nested, is_top && stmt->kind == QN__STMT_IF);
    }
    if (hoist->has_failed) return;
    if (stmt->kind == QN__STMT_LOOP && !is_top && !qn__loop_is_block(stmt->loop.kind) &&
        !qn__loop_is_thread(stmt->loop.kind)) {
      hoist_loop(hoist, stmt, &result);
    }
    qn__block_append(&result, stmt);
  }
  *block = result;
}

static qn_status_t run(qn__ir_body_t* body, const qn__pass_options_t* options) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    qn__function_number(function);
    qn__function_clear_user(function);
    hoist_t hoist = {.arena = &body->arena, .is_checked = options->is_checked};
    hoist.stored_in =
        qn__arena_alloc_array(&body->arena, function->buffer_count + 1U, sizeof *hoist.stored_in);
    if (!hoist.stored_in) return qn__out_of_memory("hoisting");
    hoist_block(&hoist, &function->body, true);
    if (hoist.has_failed) return qn__out_of_memory("hoisting");
    qn__function_clear_user(function);
  }
  return qn__pass_status(body, "hoisting");
}

const qn__pass_t qn__pass_hoist = {
    .name = "hoist", .doc = "moves loop-invariant values out of loops", .run = run};
