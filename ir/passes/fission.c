// ir/passes/fission.c: cuts a nest of thread loops at its barriers.
//
//   thread t { A; barrier; for i { B; barrier; C } }   becomes
//   all t { A }  for i { all t { B }  all t { C } }
//
// A barrier inside `for`, `while` or `if` is reached by all threads or by none (the verifier sees
// to it), so the bounds and conditions around it are the same for all threads: they are evaluated
// once, as the first thread sees them. The pieces are *units*. What one unit declares and another
// uses crosses:
//   - a let of plain arithmetic is computed again where it is used;
//   - any other value is kept in an array over the threads;
//   - a local buffer gets the threads as trailing dimensions, so that neighbouring threads are
//   neighbours
//     in memory, and views of it get strides that many times as wide;
//   - a view is declared again, a constant table and a shared buffer move out of the loops.
// 1. split: statements are dealt out to units. 2. mark: what crosses. 3. rewrite: units get their
// loops. Thread rule: one thread per body. Read next: vectorize.c, which gives the loops lanes.
#include "ir/passes/fission.h"

enum { max_levels = 8, max_recomputed_weight = 24 };

typedef struct unit unit_t;

// Replacement of a variable or view inside one unit.
typedef struct alias alias_t;
struct alias {
  const void* from;
  void* to;
  alias_t* next;
};

struct unit {
  bool is_control;  // the bounds or condition of `anchor`, else a piece with loops
  uint32_t depth;   // thread loops around it
  qn__stmt_t* levels[max_levels];
  qn__var_t* vars[max_levels];  // the piece's own loop variables
  qn__block_t* home;            // the list that `anchor` is in
  qn__stmt_t* anchor;
  qn__block_t stmts;
  qn__block_t prologue;  // inside the loops, before the statements
  qn__block_t before;    // outside of the loops, before the anchor
  alias_t* aliases;
  unit_t* next;
};

// Behind `user` of what a unit declares at its top level, and of the arrays that keep it.
typedef struct entity {
  unit_t* unit;
  qn__stmt_t* stmt;      // LET, ATOMIC or ALLOC
  bool is_kept;          // in `array`
  qn__buf_t* array;      // NULL for the array itself
  int64_t thread_count;  // elements of the array (or of this one) per element of the program
} entity_t;

typedef struct fission {
  qn__arena_t* arena;
  unit_t* first;
  unit_t* last;
  uint32_t depth;
  qn__stmt_t* levels[max_levels];
  bool has_no_memory;
  bool is_too_deep;
  const qn__buf_t* unsupported;  // a local buffer that cannot be laid out over the threads
} fission_t;

static bool has_failed(const fission_t* self) {
  return self->has_no_memory || self->is_too_deep || self->unsupported;
}

static void* check(fission_t* self, void* pointer) {
  if (!pointer) self->has_no_memory = true;
  return pointer;
}

static qn__expr_t* int_expr(fission_t* self, int64_t value) {
  return check(self, qn__expr_int(self->arena, QN_DTYPE_I64, value));
}

static qn__expr_t* copy(fission_t* self, const qn__expr_t* expr) {
  return check(self, qn__expr_replace(self->arena, expr, NULL, NULL));
}

// ---- split

static unit_t* open_unit(fission_t* self, qn__block_t* home, bool is_control, qn__stmt_t* anchor) {
  unit_t* unit = check(self, QN__ARENA_NEW(self->arena, unit_t));
  if (!unit) return NULL;
  unit->is_control = is_control;
  unit->depth = self->depth;
  memcpy(unit->levels, self->levels, sizeof self->levels);
  unit->home = home;
  unit->anchor = anchor;
  if (self->last) {
    self->last->next = unit;
  } else {
    self->first = unit;
  }
  self->last = unit;
  return unit;
}

static void declare(fission_t* self, unit_t* unit, qn__stmt_t* stmt) {
  entity_t* entity = check(self, QN__ARENA_NEW(self->arena, entity_t));
  if (!entity) return;
  entity->unit = unit;
  entity->stmt = stmt;
  if (stmt->kind == QN__STMT_LET) stmt->let.var->user = entity;
  if (stmt->kind == QN__STMT_ATOMIC && stmt->atomic.result) stmt->atomic.result->user = entity;
  if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->user = entity;
}

static void split(fission_t* self, qn__block_t* block, qn__block_t* home);

// A statement with a barrier inside.
static void split_around(fission_t* self, qn__stmt_t* stmt, qn__block_t* home) {
  if (stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind)) {
    if (self->depth == max_levels) {
      self->is_too_deep = true;
      return;
    }
    self->levels[self->depth++] = stmt;
    split(self, &stmt->loop.body, home);
    --self->depth;
    return;
  }
  (void)open_unit(self, home, true, stmt);
  qn__block_append(home, stmt);
  qn__block_t* blocks[2];
  size_t count = qn__stmt_blocks(stmt, blocks);
  for (size_t i = 0; i < count && !has_failed(self); ++i) {
    qn__block_t inner = *blocks[i];
    *blocks[i] = (qn__block_t){NULL, NULL};
    split(self, &inner, blocks[i]);
  }
}

static void split(fission_t* self, qn__block_t* block, qn__block_t* home) {
  unit_t* unit = NULL;
  qn__stmt_t* next;
  for (qn__stmt_t* stmt = block->first; stmt && !has_failed(self); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    qn__block_t alone = {stmt, stmt};
    if (stmt->kind == QN__STMT_BARRIER) {
      unit = NULL;
    } else if (qn__block_has_barrier(&alone)) {
      split_around(self, stmt, home);
      unit = NULL;
    } else {
      if (!unit) {
        qn__stmt_t* anchor = check(self, qn__stmt_new(self->arena, QN__STMT_LOOP, stmt->loc));
        unit = open_unit(self, home, false, anchor);
        if (has_failed(self)) return;
        qn__block_append(home, anchor);
      }
      declare(self, unit, stmt);
      qn__block_append(&unit->stmts, stmt);
    }
  }
}

// ---- mark

typedef struct mark {
  fission_t* self;
  unit_t* unit;
} mark_t;

static bool mark_slot(void* context, qn__expr_t** slot);

// Plain arithmetic of what is at hand in every unit?
static bool can_recompute(const entity_t* entity) {
  if (entity->stmt->kind != QN__STMT_LET) return false;
  qn__expr_facts_t facts = qn__expr_facts(entity->stmt->let.value);
  qn__block_t alone = {entity->stmt, entity->stmt};
  qn__stmt_t* next = entity->stmt->next;
  entity->stmt->next = NULL;
  size_t weight = qn__block_weight(&alone);
  entity->stmt->next = next;
  return !facts.has_load && !facts.has_reduce && !facts.has_cross_lane &&
         weight <= max_recomputed_weight;
}

static void mark_var(mark_t* mark, qn__var_t* var) {
  entity_t* entity = var->user;
  if (!entity || entity->unit == mark->unit) return;
  if (can_recompute(entity)) {
    (void)mark_slot(mark, &entity->stmt->let.value);
  } else {
    entity->is_kept = true;
  }
}

static void mark_buffer(mark_t* mark, qn__buf_t* buffer) {
  entity_t* entity = buffer->user;
  if (!entity) return;
  if (buffer->scope == QN__SCOPE_VIEW) {
    if (entity->unit != mark->unit) (void)qn__stmt_each_expr(entity->stmt, mark_slot, mark);
    mark_buffer(mark, buffer->base);
  } else if (entity->unit != mark->unit || buffer->scope == QN__SCOPE_SHARED) {
    entity->is_kept = true;
  }
}

static bool mark_slot(void* context, qn__expr_t** slot) {
  mark_t* mark = context;
  qn__expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) mark_var(mark, expr->var);
  if (expr->kind == QN__EXPR_LOAD) mark_buffer(mark, expr->load.buffer);
  return qn__expr_each_child(expr, mark_slot, mark);
}

static void mark_block(mark_t* mark, qn__block_t* block) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, mark_slot, mark);
    if (stmt->kind == QN__STMT_STORE) mark_buffer(mark, stmt->store.buffer);
    if (stmt->kind == QN__STMT_ATOMIC) mark_buffer(mark, stmt->atomic.buffer);
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
      mark_buffer(mark, stmt->alloc.buffer->base);
    }
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) mark_block(mark, blocks[i]);
  }
}

// ---- rewrite

typedef struct rewrite {
  fission_t* self;
  unit_t* unit;
} rewrite_t;

static bool rewrite_slot(void* context, qn__expr_t** slot);

static int64_t begin_of(const qn__stmt_t* loop) {
  int64_t begin = 0;
  (void)qn__expr_const_int(loop->loop.begin, &begin);
  return begin;
}

// Where the thread of this unit stands in dimension `level` of an array over the threads.
static qn__expr_t* thread_index(rewrite_t* rewrite, uint32_t level) {
  fission_t* self = rewrite->self;
  const unit_t* unit = rewrite->unit;
  if (unit->is_control) return int_expr(self, 0);
  qn__expr_t* index = check(self, qn__expr_var(self->arena, unit->vars[level]));
  int64_t begin = begin_of(unit->levels[level]);
  if (begin == 0 || !index) return index;
  qn__expr_t* offset = int_expr(self, begin);
  if (!offset) return NULL;
  return check(self, qn__expr_op(self->arena, QN_OP_SUB, index, offset, NULL));
}

// `indices` (rank many), then those of the thread.
static qn__expr_t** with_threads(rewrite_t* rewrite, uint32_t depth, qn__expr_t** indices,
                                 uint32_t rank) {
  qn__expr_t** all = check(
      rewrite->self, qn__arena_alloc_array(rewrite->self->arena, depth + rank + 1U, sizeof *all));
  if (!all) return NULL;
  for (uint32_t i = 0; i < rank; ++i) all[i] = indices[i];
  for (uint32_t i = 0; i < depth; ++i) all[rank + i] = thread_index(rewrite, i);
  return all;
}

static void* find_alias(const unit_t* unit, const void* from) {
  for (const alias_t* alias = unit->aliases; alias; alias = alias->next) {
    if (alias->from == from) return alias->to;
  }
  return NULL;
}

static void add_alias(rewrite_t* rewrite, const void* from, void* to) {
  alias_t* alias = check(rewrite->self, QN__ARENA_NEW(rewrite->self->arena, alias_t));
  if (!alias) return;
  *alias = (alias_t){from, to, rewrite->unit->aliases};
  rewrite->unit->aliases = alias;
}

static qn__expr_t* load_kept(rewrite_t* rewrite, const entity_t* entity) {
  qn__buf_t* array = entity->array;
  qn__expr_t* load = check(rewrite->self, qn__expr_new(rewrite->self->arena, QN__EXPR_LOAD,
                                                       array->dtype, entity->stmt->loc));
  if (!load) return NULL;
  load->load.buffer = array;
  load->load.indices = with_threads(rewrite, array->rank, NULL, 0);
  return load->load.indices ? load : NULL;
}

// The value of a variable of another unit, as an expression in this one.
static qn__expr_t* value_here(rewrite_t* rewrite, const entity_t* entity) {
  if (entity->is_kept) return load_kept(rewrite, entity);
  // A fresh copy of the value as the program has it: the declaring unit may be rewritten already,
  // so copies are made from the original, which is kept in `prologue` order by recompute().
  qn__expr_t* value = copy(rewrite->self, entity->stmt->let.value);
  if (value) (void)rewrite_slot(rewrite, &value);
  return value;
}

static void rewrite_var(rewrite_t* rewrite, qn__expr_t** slot) {
  fission_t* self = rewrite->self;
  unit_t* unit = rewrite->unit;
  qn__var_t* var = (*slot)->var;
  for (uint32_t i = 0; i < unit->depth; ++i) {
    if (unit->levels[i]->loop.var != var) continue;
    if (unit->is_control) {
      *slot = int_expr(self, begin_of(unit->levels[i]));
    } else {
      (*slot)->var = unit->vars[i];
    }
    return;
  }
  const entity_t* entity = var->user;
  if (!entity || entity->unit == unit) return;
  qn__var_t* here = find_alias(unit, var);
  if (!here) {
    qn__expr_t* value = value_here(rewrite, entity);
    if (!value) return;
    if (unit->is_control) {  // evaluated each time, so without a let
      *slot = value;
      return;
    }
    here = check(self, qn__var_new(self->arena, QN__VAR_LET, var->dtype, var->name));
    qn__stmt_t* let = check(self, qn__stmt_new(self->arena, QN__STMT_LET, var->loc));
    if (!here || !let) return;
    let->let.var = here;
    let->let.value = value;
    qn__block_append(&unit->prologue, let);
    add_alias(rewrite, var, here);
  }
  (*slot)->var = here;
}

static void rewrite_access(rewrite_t* rewrite, qn__buf_t** inout_buffer,
                           qn__expr_t*** inout_indices);

// Strides of a view of a kept buffer count its threads too.
static void widen_strides(rewrite_t* rewrite, qn__buf_t* view) {
  fission_t* self = rewrite->self;
  const entity_t* root = qn__buf_root(view)->user;
  if (!root || root->thread_count <= 1) return;
  view->strides = check(self, qn__buf_strides(self->arena, view));
  for (uint32_t i = 0; view->strides && i < view->rank; ++i) {
    qn__expr_t* factor = int_expr(self, root->thread_count);
    if (!factor) return;
    view->strides[i] =
        check(self, qn__expr_op(self->arena, QN_OP_MUL, view->strides[i], factor, NULL));
  }
}

// A view of another unit, declared again in this one.
static qn__buf_t* view_here(rewrite_t* rewrite, const qn__buf_t* view) {
  fission_t* self = rewrite->self;
  qn__buf_t* here = check(self, QN__ARENA_NEW(self->arena, qn__buf_t));
  qn__stmt_t* alloc = check(self, qn__stmt_new(self->arena, QN__STMT_ALLOC, view->loc));
  if (!here || !alloc) return NULL;
  *here = *view;
  here->user = NULL;
  here->shape = check(self, qn__arena_alloc_array(self->arena, view->rank + 1U, sizeof(void*)));
  here->base_indices =
      check(self, qn__arena_alloc_array(self->arena, view->base->rank + 1U, sizeof(void*)));
  if (view->strides) {
    here->strides = check(self, qn__arena_alloc_array(self->arena, view->rank + 1U, sizeof(void*)));
  }
  if (self->has_no_memory) return NULL;
  for (uint32_t i = 0; i < view->rank; ++i) {
    here->shape[i] = copy(self, view->shape[i]);
    if (here->strides) here->strides[i] = copy(self, view->strides[i]);
  }
  for (uint32_t i = 0; i < view->base->rank; ++i) {
    here->base_indices[i] = copy(self, view->base_indices[i]);
  }
  if (self->has_no_memory) return NULL;
  alloc->alloc.buffer = here;
  (void)qn__stmt_each_expr(alloc, rewrite_slot, rewrite);
  rewrite_access(rewrite, &here->base, &here->base_indices);
  widen_strides(rewrite, here);
  if (rewrite->unit->is_control) {
    qn__block_append(&rewrite->unit->before, alloc);
  } else {
    qn__block_append(&rewrite->unit->prologue, alloc);
  }
  return here;
}

// `*inout_indices` is rewritten already.
static void rewrite_access(rewrite_t* rewrite, qn__buf_t** inout_buffer,
                           qn__expr_t*** inout_indices) {
  qn__buf_t* buffer = *inout_buffer;
  const entity_t* entity = buffer->user;
  if (!entity) return;
  if (buffer->scope == QN__SCOPE_VIEW) {
    if (entity->unit == rewrite->unit) return;
    qn__buf_t* here = find_alias(rewrite->unit, buffer);
    if (!here) {
      here = view_here(rewrite, buffer);
      if (!here) return;
      add_alias(rewrite, buffer, here);
    }
    *inout_buffer = here;
  } else if (entity->array) {
    *inout_indices = with_threads(rewrite, entity->unit->depth, *inout_indices, buffer->rank);
    *inout_buffer = entity->array;
  }
}

static bool rewrite_slot(void* context, qn__expr_t** slot) {
  rewrite_t* rewrite = context;
  qn__expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_VAR) {
    rewrite_var(rewrite, slot);
    return !has_failed(rewrite->self);
  }
  if (!qn__expr_each_child(expr, rewrite_slot, rewrite)) return false;
  if (expr->kind == QN__EXPR_LOAD) {
    rewrite_access(rewrite, &expr->load.buffer, &expr->load.indices);
  }
  return !has_failed(rewrite->self);
}

static void rewrite_block(rewrite_t* rewrite, qn__block_t* block, bool is_top) {
  fission_t* self = rewrite->self;
  qn__block_t result = {NULL, NULL};
  qn__stmt_t* next;
  for (qn__stmt_t* stmt = block->first; stmt && !has_failed(self); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    if (!qn__stmt_each_expr(stmt, rewrite_slot, rewrite)) return;
    if (stmt->kind == QN__STMT_STORE) {
      rewrite_access(rewrite, &stmt->store.buffer, &stmt->store.indices);
    } else if (stmt->kind == QN__STMT_ATOMIC) {
      rewrite_access(rewrite, &stmt->atomic.buffer, &stmt->atomic.indices);
    } else if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
      rewrite_access(rewrite, &stmt->alloc.buffer->base, &stmt->alloc.buffer->base_indices);
      widen_strides(rewrite, stmt->alloc.buffer);
    }
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) rewrite_block(rewrite, blocks[i], false);
    if (has_failed(self)) return;
    bool is_moved = is_top && stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->user &&
                    ((const entity_t*)stmt->alloc.buffer->user)->is_kept;
    if (!is_moved) qn__block_append(&result, stmt);
    qn__var_t* var = stmt->kind == QN__STMT_LET      ? stmt->let.var
                     : stmt->kind == QN__STMT_ATOMIC ? stmt->atomic.result
                                                     : NULL;
    const entity_t* entity = var ? var->user : NULL;
    if (is_top && entity && entity->is_kept) {
      qn__stmt_t* store = check(self, qn__stmt_new(self->arena, QN__STMT_STORE, stmt->loc));
      if (!store) return;
      store->store.buffer = entity->array;
      store->store.indices = with_threads(rewrite, entity->array->rank, NULL, 0);
      store->store.value = check(self, qn__expr_var(self->arena, var));
      qn__block_append(&result, store);
    }
  }
  *block = result;
}

static bool is_plain(void* self, qn__expr_t** slot) {
  qn__expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return false;
  if (expr->kind == QN__EXPR_VAR) {
    const unit_t* unit = self;
    if (expr->var->user) return false;
    for (uint32_t i = 0; i < unit->depth; ++i) {
      if (unit->levels[i]->loop.var == expr->var) return false;
    }
  }
  return qn__expr_each_child(expr, is_plain, self);
}

// Declares the array that keeps an entity, before the unit that declares it.
static void keep(fission_t* self, entity_t* entity) {
  unit_t* unit = entity->unit;
  const qn__stmt_t* stmt = entity->stmt;
  qn__stmt_t* alloc = check(self, qn__stmt_new(self->arena, QN__STMT_ALLOC, stmt->loc));
  if (!alloc) return;
  qn__buf_t* own = stmt->kind == QN__STMT_ALLOC ? stmt->alloc.buffer : NULL;
  for (uint32_t i = 0; own && i < own->rank; ++i) {
    if (!is_plain(unit, &own->shape[i])) {
      self->unsupported = own;
      return;
    }
  }
  if (own && own->scope != QN__SCOPE_LOCAL) {  // one for all threads
    if (own->scope == QN__SCOPE_SHARED) own->scope = QN__SCOPE_LOCAL;
    alloc->alloc.buffer = own;
    qn__block_append(&unit->before, alloc);
    return;
  }
  const qn__var_t* var = stmt->kind == QN__STMT_LET ? stmt->let.var : NULL;
  if (stmt->kind == QN__STMT_ATOMIC) var = stmt->atomic.result;
  uint32_t rank = unit->depth + (own ? own->rank : 0);
  qn__buf_t* array =
      check(self, qn__buf_new(self->arena, QN__SCOPE_LOCAL, own ? own->dtype : var->dtype,
                              own ? own->name : var->name, rank));
  if (!array) return;
  array->shape = check(self, qn__arena_alloc_array(self->arena, rank + 1U, sizeof(void*)));
  entity_t* of_array = check(self, QN__ARENA_NEW(self->arena, entity_t));
  if (!array->shape || !of_array) return;
  array->origin_id = own ? own->origin_id : UINT32_MAX;
  entity->thread_count = 1;
  for (uint32_t i = 0; own && i < own->rank; ++i) array->shape[i] = copy(self, own->shape[i]);
  for (uint32_t i = 0; i < unit->depth; ++i) {
    int64_t end = 0;
    (void)qn__expr_const_int(unit->levels[i]->loop.end, &end);
    int64_t extent = end - begin_of(unit->levels[i]);
    if (extent < 0) extent = 0;
    array->shape[rank - unit->depth + i] = int_expr(self, extent);
    if (__builtin_mul_overflow(entity->thread_count, extent, &entity->thread_count)) {
      entity->thread_count = INT64_MAX;  // the verifier refuses such an array
    }
  }
  of_array->thread_count = entity->thread_count;
  array->user = of_array;
  alloc->alloc.buffer = array;
  entity->array = array;
  qn__block_append(&unit->before, alloc);
}

static void keep_all(fission_t* self, unit_t* unit) {
  for (qn__stmt_t* stmt = unit->stmts.first; stmt && !has_failed(self); stmt = stmt->next) {
    entity_t* entity = NULL;
    if (stmt->kind == QN__STMT_LET) entity = stmt->let.var->user;
    if (stmt->kind == QN__STMT_ATOMIC && stmt->atomic.result) entity = stmt->atomic.result->user;
    if (stmt->kind == QN__STMT_ALLOC) entity = stmt->alloc.buffer->user;
    if (entity && entity->is_kept) keep(self, entity);
  }
}

// Fills the unit's anchor: its loops around prologue and statements.
static void close_unit(fission_t* self, unit_t* unit) {
  qn__block_t body = unit->prologue;
  qn__block_splice(&body, &unit->stmts);
  for (uint32_t i = unit->depth; i-- > 0;) {
    qn__stmt_t* loop =
        i == 0 ? unit->anchor
               : check(self, qn__stmt_new(self->arena, QN__STMT_LOOP, unit->anchor->loc));
    if (!loop) return;
    loop->loop.kind = QN_LOOP_PARALLEL;
    loop->loop.var = unit->vars[i];
    loop->loop.begin = copy(self, unit->levels[i]->loop.begin);
    loop->loop.end = copy(self, unit->levels[i]->loop.end);
    loop->loop.body = body;
    if (i > 0) body = qn__block_of(loop);
  }
}

static void insert_before(unit_t* unit) {
  if (!unit->before.first) return;
  qn__stmt_t** link = &unit->home->first;
  while (*link != unit->anchor) link = &(*link)->next;
  unit->before.last->next = unit->anchor;
  *link = unit->before.first;
}

static void rewrite_units(fission_t* self) {
  for (unit_t* unit = self->first; unit && !has_failed(self); unit = unit->next) {
    for (uint32_t i = 0; i < unit->depth && !unit->is_control; ++i) {
      const qn__var_t* var = unit->levels[i]->loop.var;
      unit->vars[i] = check(self, qn__var_new(self->arena, QN__VAR_LOOP, QN_DTYPE_I64, var->name));
    }
    keep_all(self, unit);
  }
  // Uses before declarations: a let that is computed again is copied while it is untouched. Units
  // are in program order, so going backwards every use comes first.
  unit_t* reversed = NULL;
  for (unit_t *unit = self->first, *next; unit; unit = next) {
    next = unit->next;
    unit->next = reversed;
    reversed = unit;
  }
  for (unit_t* unit = reversed; unit && !has_failed(self); unit = unit->next) {
    rewrite_t rewrite = {self, unit};
    if (unit->is_control) {
      (void)qn__stmt_each_expr(unit->anchor, rewrite_slot, &rewrite);
    } else {
      rewrite_block(&rewrite, &unit->stmts, true);
      if (!has_failed(self)) close_unit(self, unit);
    }
  }
  for (unit_t* unit = reversed; unit && !has_failed(self); unit = unit->next) insert_before(unit);
}

qn_status_t qn__fission(qn__arena_t* arena, const char* function_name, qn__stmt_t* loop,
                        qn__block_t* out) {
  fission_t self = {.arena = arena, .depth = 0};
  qn__block_t home = {NULL, NULL};
  split_around(&self, loop, &home);
  for (unit_t* unit = self.first; unit && !has_failed(&self); unit = unit->next) {
    for (uint32_t i = 0; i < unit->depth; ++i) {
      int64_t begin, end;
      if (qn__expr_const_int(unit->levels[i]->loop.begin, &begin) &&
          qn__expr_const_int(unit->levels[i]->loop.end, &end)) {
        continue;
      }
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "function '%s': the extent of thread loop '%s' must be constant for a "
                            "barrier inside it on a cpu",
                            function_name, unit->levels[i]->loop.var->name);
    }
    mark_t mark = {&self, unit};
    if (unit->is_control) {
      (void)qn__stmt_each_expr(unit->anchor, mark_slot, &mark);
    } else {
      mark_block(&mark, &unit->stmts);
    }
  }
  if (!has_failed(&self)) rewrite_units(&self);
  if (self.has_no_memory) return qn__out_of_memory("serialising threads");
  if (self.is_too_deep) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "function '%s': more than %d nested thread loops",
                          function_name, max_levels);
  }
  if (self.unsupported) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "function '%s': buffer '%s' lives across a barrier; its shape must not "
                          "depend on the thread on a cpu",
                          function_name, self.unsupported->name);
  }
  *out = home;
  return QN_OK;
}
