// ir/verify_race.c: iterations of a concurrent loop that certainly meet at one element.
//
// Requirements.
//  R1. Only what is certain is reported: where the walk does not know, it assumes that there is no
//  race. R2. A loop is concurrent when it is parallel, vector, block.* or thread.* and not known to
//  have fewer
//      than two iterations. An allocation inside of the loop is private to the iteration.
//  R3. A store whose element is the same in every iteration is a race. "The same" means that no
//  index
//      depends on the loop's variable, nor on anything that may differ between its iterations:
//      values loaded from what is written to, old values of atomics, exchanges among threads.
//  R4. A condition around the access (`if`, `while`, `?`, `&&`, the bounds of an inner loop) that
//  may
//      differ between the iterations makes it uncertain. So does any other condition unless the
//      loop's extent is constant: it may be what says that there is one iteration.
//  R5. Two accesses, one of them a store, with indices that are equal sums but for a constant
//  distance of
//      d iterations (the same d in every dimension, not 0) are a race. Threads may have met at a
//      barrier in between: a thread loop with a barrier in it is left alone here.
// Thread rule: one thread at a time. Read next: encode.c.
#include "base/alloc.h"
#include "ir/affine.h"
#include "ir/verifier.h"

enum {
  MOST_LOOPS = QN__LARGEST_NESTING,
  // Pairs of accesses are compared; a loop with more of them than this is left alone.
  MOST_PAIRS = 1 << 14,
};

// The concurrent loops, by their level, between whose iterations a value may differ.
typedef struct levels {
  uint64_t words[MOST_LOOPS / 64];
} levels_t;

// What is known of a variable.
typedef struct known {
  levels_t levels;
  qn__affine_t value;  // of a let of an integer; else not valid
} known_t;

// What is known of a buffer that is not a parameter.
typedef struct place {
  uint32_t level;   // concurrent loops around the allocation (of the buffer under all views)
  levels_t levels;  // of the views' origins
} place_t;

typedef struct access {
  const qn__buf_t* buffer;
  qn__expr_t* const* indices;
  qn__loc_t loc;
  bool is_store;
  levels_t guards;
  uint32_t condition_count;
} access_t;

typedef struct loop {
  const qn__stmt_t* stmt;
  bool is_single;    // fewer than two iterations
  bool is_constant;  // its extent
  int64_t extent;    // when constant
  uint32_t condition_count;
  uint32_t barrier_count;
  size_t access_count;
} loop_t;

typedef struct race {
  qn__verifier_t* v;
  qn__ptrmap_t known;  // variable -> known_t, buffer -> place_t
  qn__affine_lets_t lets;
  loop_t* loops;  // MOST_LOOPS
  uint32_t level;
  levels_t guards;           // of all conditions around
  uint32_t condition_count;  // around
  uint32_t barrier_count;    // so far
  access_t* accesses;
  size_t access_count;
  size_t access_capacity;
} race_t;

static levels_t visit(race_t* r, const qn__expr_t* expr);
static void visit_block(race_t* r, const qn__block_t* block);

static const levels_t no_levels;

static bool has_level(const levels_t* set, uint32_t level) {
  return (set->words[level / 64] >> (level % 64) & 1) != 0;
}

static void join(levels_t* into, levels_t other) {
  for (size_t i = 0; i < QN_COUNT_OF(into->words); i++) into->words[i] |= other.words[i];
}

static levels_t all_levels(void) {
  levels_t set;
  memset(&set, 0xFF, sizeof set);
  return set;
}

static const known_t* known_of(const race_t* r, const qn__var_t* var) {
  return qn__ptrmap_get(&r->known, var);
}

static known_t* declare(race_t* r, const qn__var_t* var, levels_t levels) {
  known_t* known = QN__ARENA_NEW(&r->v->scratch, known_t);
  if (!known || !qn__ptrmap_put(&r->known, var, known)) {
    qn__verify_out_of_memory(r->v);
    return NULL;
  }
  known->levels = levels;
  return known;
}

static const qn__affine_t* value_of(const qn__affine_lets_t* lets, const qn__var_t* var) {
  const known_t* known = known_of(lets->self, var);
  return known && known->value.is_valid ? &known->value : NULL;
}

static const qn__buf_t* root_of(const qn__buf_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) buffer = buffer->base;
  return buffer;
}

// Parameters are outside of every loop.
static place_t place_of(const race_t* r, const qn__buf_t* buffer) {
  const place_t* place = qn__ptrmap_get(&r->known, buffer);
  return place ? *place : (place_t){0};
}

// ------------------------------------------------------------------------------------ conditions

typedef struct condition_state {
  levels_t guards;
  uint32_t count;
} condition_state_t;

static condition_state_t enter_condition(race_t* r, levels_t levels) {
  condition_state_t before = {r->guards, r->condition_count};
  join(&r->guards, levels);
  r->condition_count++;
  return before;
}

static void leave_condition(race_t* r, condition_state_t before) {
  r->guards = before.guards;
  r->condition_count = before.count;
}

// R4: does every iteration of the loop come to an access with these conditions around it?
static bool is_certain(const race_t* r, uint32_t level, const levels_t* guards,
                       uint32_t condition_count) {
  const loop_t* loop = &r->loops[level];
  if (loop->is_single || has_level(guards, level)) return false;
  return loop->is_constant || condition_count == loop->condition_count;
}

// ------------------------------------------------------------------------------------ accesses

static void record(race_t* r, const qn__buf_t* buffer, qn__expr_t* const* indices, qn__loc_t loc,
                   bool is_store) {
  if (r->level == 0) return;
  void* items = r->accesses;
  if (!qn__grow(r->v->scratch.allocator, &items, &r->access_capacity, r->access_count + 1,
                sizeof *r->accesses)) {
    qn__verify_out_of_memory(r->v);
    return;
  }
  r->accesses = items;
  r->accesses[r->access_count++] =
      (access_t){buffer, indices, loc, is_store, r->guards, r->condition_count};
}

static void note_loop(race_t* r, const loop_t* loop) {
  qn__verify_note(r->v, loop->stmt->loop.var->loc, "the iterations of this '%s' are concurrent",
                  qn__loop_kind_text(loop->stmt->loop.kind));
}

// R3.
static void check_store(race_t* r, const qn__stmt_t* stmt, const qn__buf_t* buffer,
                        levels_t levels) {
  place_t place = place_of(r, buffer);
  join(&levels, place.levels);
  for (uint32_t level = r->level; level-- > place.level;) {
    if (has_level(&levels, level) || !is_certain(r, level, &r->guards, r->condition_count)) {
      continue;
    }
    const loop_t* loop = &r->loops[level];
    qn__verify_error(
        r->v, QN__VERIFY_RACE_STORE, stmt->loc,
        "use the loop's variable in an index, an atomic, or a 'for'",
        "two iterations of '%s' store to one element of '%s': no index depends on '%s'",
        qn__loop_kind_text(loop->stmt->loop.kind), buffer->name, loop->stmt->loop.var->name);
    note_loop(r, loop);
    return;
  }
}

// Atoms other than the loop's own variable must have one value in all its iterations.
static bool is_steady(race_t* r, const qn__affine_t* affine, uint32_t level) {
  const qn__var_t* own = r->loops[level].stmt->loop.var;
  for (uint32_t i = 0; i < affine->count; i++) {
    const qn__expr_t* atom = affine->terms[i].atom;
    if (atom->kind == QN__EXPR_VAR && atom->var == own) continue;
    size_t mark = r->access_count;
    levels_t levels = visit(r, atom);
    r->access_count = mark;
    if (has_level(&levels, level)) return false;
  }
  return true;
}

// R5: the iterations between a and b when both are the same element: true and the distance, or
// false.
static bool distance(race_t* r, const access_t* a, const access_t* b, uint32_t level,
                     int64_t* out_distance) {
  const qn__var_t* own = r->loops[level].stmt->loop.var;
  bool has_distance = false;
  for (uint32_t i = 0; i < a->buffer->rank; i++) {
    qn__affine_t index_a = qn__affine_of(a->indices[i], &r->lets);
    qn__affine_t index_b = qn__affine_of(b->indices[i], &r->lets);
    qn__affine_t gap = qn__affine_add(&index_a, &index_b, -1);
    if (!qn__affine_is_constant(&gap) || !is_steady(r, &index_a, level)) return false;
    int64_t step = qn__affine_coefficient(&index_a, own);
    if (step == 0) {
      if (gap.constant != 0) return false;
      continue;
    }
    if (step == -1) {
      if (__builtin_sub_overflow(0, gap.constant, &gap.constant)) return false;
      step = 1;
    }
    if (gap.constant % step != 0) return false;
    int64_t here = gap.constant / step;
    if (has_distance && here != *out_distance) return false;
    *out_distance = here;
    has_distance = true;
  }
  return has_distance && *out_distance != 0;
}

static void check_pair(race_t* r, const access_t* store, const access_t* other, uint32_t level) {
  const loop_t* loop = &r->loops[level];
  int64_t apart = 0;
  if (store->buffer != other->buffer ||
      !is_certain(r, level, &store->guards, store->condition_count) ||
      !is_certain(r, level, &other->guards, other->condition_count) ||
      !distance(r, store, other, level, &apart)) {
    return;
  }
  if (loop->is_constant && (apart >= loop->extent || apart <= -loop->extent)) return;
  const char* name = store->buffer->name;
  const char* kind = qn__loop_kind_text(loop->stmt->loop.kind);
  if (other->is_store) {
    qn__verify_error(r->v, QN__VERIFY_RACE_STORE, store->loc, "make the loop a 'for'",
                     "two iterations of '%s' store to one element of '%s'", kind, name);
    qn__verify_note(r->v, other->loc,
                    "the same element is stored to here, %" PRId64 " iteration%s apart",
                    apart < 0 ? -apart : apart, apart == 1 || apart == -1 ? "" : "s");
  } else {
    qn__verify_error(r->v, QN__VERIFY_RACE_READ, other->loc,
                     "read from another buffer, or make the loop a 'for'",
                     "an iteration of '%s' reads the element of '%s' that another one stores", kind,
                     name);
    qn__verify_note(r->v, store->loc, "it is stored here");
  }
  note_loop(r, loop);
}

static void check_pairs(race_t* r, uint32_t level) {
  const loop_t* loop = &r->loops[level];
  size_t begin = loop->access_count;
  size_t store_count = 0;
  for (size_t i = begin; i < r->access_count; i++) store_count += r->accesses[i].is_store;
  if (loop->is_single || store_count == 0 || r->access_count - begin > MOST_PAIRS / store_count) {
    return;
  }
  bool has_met =
      qn__loop_is_thread(loop->stmt->loop.kind) && r->barrier_count > loop->barrier_count;
  if (has_met) return;
  uint32_t errors = r->v->error_count;
  for (size_t i = begin; i < r->access_count; i++) {
    // A copy: looking at an atom appends to the list for a while.
    access_t store = r->accesses[i];
    place_t place = place_of(r, store.buffer);
    if (!store.is_store || place.level > level || has_level(&place.levels, level)) continue;
    for (size_t k = begin; k < r->access_count && r->v->error_count == errors; k++) {
      access_t other = r->accesses[k];
      // Of two stores only one order is looked at.
      if (k != i && (!other.is_store || k > i)) check_pair(r, &store, &other, level);
    }
  }
}

// ------------------------------------------------------------------------------------ expressions

static levels_t visit_all(race_t* r, qn__expr_t* const* exprs, size_t count) {
  levels_t levels = no_levels;
  for (size_t i = 0; i < count; i++) join(&levels, visit(r, exprs[i]));
  return levels;
}

// Evaluates `exprs` only where `condition` says so.
static levels_t visit_guarded(race_t* r, levels_t condition, qn__expr_t* const* exprs,
                              size_t count) {
  condition_state_t before = enter_condition(r, condition);
  join(&condition, visit_all(r, exprs, count));
  leave_condition(r, before);
  return condition;
}

static levels_t visit_load(race_t* r, const qn__expr_t* expr) {
  const qn__buf_t* buffer = expr->load.buffer;
  levels_t levels = visit_all(r, expr->load.indices, buffer->rank);
  record(r, buffer, expr->load.indices, expr->loc, false);
  const qn__buf_t* root = root_of(buffer);
  bool is_constant = root->scope == QN__SCOPE_CONST ||
                     (root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN);
  if (!is_constant) return all_levels();
  join(&levels, place_of(r, buffer).levels);
  return levels;
}

static levels_t visit_reduce(race_t* r, const qn__expr_t* expr) {
  levels_t levels = visit(r, expr->reduce.begin);
  join(&levels, visit(r, expr->reduce.end));
  (void)declare(r, expr->reduce.reduce_var, levels);
  levels_t guards = r->guards;
  join(&r->guards, levels);
  visit_block(r, &expr->reduce.lets);
  join(&levels, visit(r, expr->reduce.value));
  r->guards = guards;
  return levels;
}

static levels_t visit(race_t* r, const qn__expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
      break;
    case QN__EXPR_VAR: {
      const known_t* known = known_of(r, expr->var);
      return known ? known->levels : no_levels;
    }
    case QN__EXPR_LOAD:
      return visit_load(r, expr);
    case QN__EXPR_OP: {
      const qn__op_info_t* info = qn__op_info(expr->op);
      if (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR) {
        return visit_guarded(r, visit(r, expr->args[0]), expr->args + 1, 1);
      }
      levels_t levels = visit_all(r, expr->args, info->arity);
      bool is_exchange = info->rule == QN__RULE_LANE || info->rule == QN__RULE_GROUP;
      return is_exchange ? all_levels() : levels;
    }
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return visit(r, expr->args[0]);
    case QN__EXPR_COND:
      return visit_guarded(r, visit(r, expr->args[0]), expr->args + 1, 2);
    case QN__EXPR_REDUCE:
      return visit_reduce(r, expr);
  }
  return no_levels;
}

// ------------------------------------------------------------------------------------ statements

static void visit_let(race_t* r, const qn__stmt_t* stmt) {
  const qn__expr_t* value = stmt->let.value;
  levels_t levels = visit(r, value);
  known_t* known = declare(r, stmt->let.var, levels);
  if (known && value->dtype == QN_DTYPE_I64) known->value = qn__affine_of(value, &r->lets);
}

static bool is_concurrent(qn_loop_kind_t kind) {
  return kind != QN_LOOP_SERIAL && kind != QN_LOOP_UNROLL;
}

static void enter_loop(race_t* r, const qn__stmt_t* stmt) {
  qn__affine_t begin = qn__affine_of(stmt->loop.begin, &r->lets);
  qn__affine_t end = qn__affine_of(stmt->loop.end, &r->lets);
  qn__affine_t extent = qn__affine_add(&end, &begin, -1);
  bool is_constant = qn__affine_is_constant(&extent);
  r->loops[r->level++] = (loop_t){
      .stmt = stmt,
      .is_single = is_constant && extent.constant <= 1,
      .is_constant = is_constant,
      .extent = extent.constant,
      .condition_count = r->condition_count,
      .barrier_count = r->barrier_count,
      .access_count = r->access_count,
  };
}

static void visit_loop(race_t* r, const qn__stmt_t* stmt) {
  levels_t levels = visit(r, stmt->loop.begin);
  join(&levels, visit(r, stmt->loop.end));
  levels_t guards = r->guards;
  // An inner loop that only some iterations enter is a condition.
  join(&r->guards, levels);
  bool is_open = is_concurrent(stmt->loop.kind) && r->level < MOST_LOOPS;
  if (is_open) {
    enter_loop(r, stmt);
    levels.words[(r->level - 1) / 64] |= UINT64_C(1) << ((r->level - 1) % 64);
  }
  (void)declare(r, stmt->loop.var, levels);
  visit_block(r, &stmt->loop.body);
  if (is_open) {
    if (!qn__verify_stopped(r->v)) check_pairs(r, r->level - 1);
    r->level--;
    if (r->level == 0) r->access_count = 0;
  }
  r->guards = guards;
}

static void visit_alloc(race_t* r, const qn__buf_t* buffer) {
  place_t* place = QN__ARENA_NEW(&r->v->scratch, place_t);
  if (!place || !qn__ptrmap_put(&r->known, buffer, place)) {
    qn__verify_out_of_memory(r->v);
    return;
  }
  place->level = r->level;
  (void)visit_all(r, buffer->shape, buffer->rank);
  if (buffer->scope != QN__SCOPE_VIEW) return;
  *place = place_of(r, buffer->base);
  join(&place->levels, visit_all(r, buffer->base_indices, buffer->base->rank));
  if (buffer->strides) join(&place->levels, visit_all(r, buffer->strides, buffer->rank));
  join(&place->levels, visit_all(r, buffer->shape, buffer->rank));
}

static void visit_stmt(race_t* r, const qn__stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      visit_let(r, stmt);
      return;
    case QN__STMT_STORE: {
      const qn__buf_t* buffer = stmt->store.buffer;
      levels_t levels = visit_all(r, stmt->store.indices, buffer->rank);
      (void)visit(r, stmt->store.value);
      check_store(r, stmt, buffer, levels);
      record(r, buffer, stmt->store.indices, stmt->loc, true);
      return;
    }
    case QN__STMT_ATOMIC:
      (void)visit_all(r, stmt->atomic.indices, stmt->atomic.buffer->rank);
      (void)visit(r, stmt->atomic.operand);
      if (stmt->atomic.operand2) (void)visit(r, stmt->atomic.operand2);
      if (stmt->atomic.result) (void)declare(r, stmt->atomic.result, all_levels());
      return;
    case QN__STMT_IF: {
      condition_state_t before = enter_condition(r, visit(r, stmt->if_.condition));
      visit_block(r, &stmt->if_.then_block);
      visit_block(r, &stmt->if_.else_block);
      leave_condition(r, before);
      return;
    }
    case QN__STMT_LOOP:
      visit_loop(r, stmt);
      return;
    case QN__STMT_WHILE: {
      condition_state_t before = enter_condition(r, visit(r, stmt->while_.condition));
      visit_block(r, &stmt->while_.body);
      leave_condition(r, before);
      return;
    }
    case QN__STMT_ALLOC:
      visit_alloc(r, stmt->alloc.buffer);
      return;
    case QN__STMT_BARRIER:
      r->barrier_count++;
      return;
    case QN__STMT_ASSERT:
      (void)visit(r, stmt->assert_.condition);
      return;
  }
}

static void visit_block(race_t* r, const qn__block_t* block) {
  for (const qn__stmt_t* stmt = block->first; stmt && !qn__verify_stopped(r->v);
       stmt = stmt->next) {
    visit_stmt(r, stmt);
  }
}

void qn__verify_races(qn__verifier_t* v, const qn__function_t* function) {
  race_t r = {.v = v};
  r.lets = (qn__affine_lets_t){value_of, &r};
  qn__ptrmap_init(&r.known, v->scratch.allocator);
  r.loops = qn__arena_alloc_array(&v->scratch, MOST_LOOPS, sizeof *r.loops);
  if (!r.loops) {
    qn__verify_out_of_memory(v);
  } else {
    visit_block(&r, &function->body);
  }
  qn__free(v->scratch.allocator, r.accesses, r.access_capacity * sizeof *r.accesses);
  qn__ptrmap_deinit(&r.known);
}
