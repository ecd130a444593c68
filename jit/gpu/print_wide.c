// jit/gpu/print_wide.c: a thread's loop of a few independent iterations, whose neighbouring
// elements are moved by wide accesses.
//
// The lanes of a VECTOR loop, and of a reduction of constant extent, that reach consecutive
// elements of a buffer have those in an array of the thread's own, a *run*:
//
//   const float* t0; float* t1;                     where the runs begin
//   { const int k = 0; ...; t0 = &b0[...]; ... }    what indices need, for the first lane
//   const bool t2 = (((qn_u64)t0 | (qn_u64)t1) & 15ull) == 0ull;
//   float t3[4], t4[4];
//   if (t2) { qn_wide_load<4>(t3, t0); } else { qn_each_load<4>(t3, t0); }
//   for (int k = 0; k < 4; ++k) { ... t4[k] = t3[k] ...; }
//   if (t2) { qn_wide_store<4>(t1, t4); } else { qn_each_store<4>(t1, t4); }
//
// The alignment of an address is known at run time only: tensors begin anywhere, and rows have any
// length. All lanes are loaded before the first runs and stored behind the last. That is right
// because
//   - only what every lane does unconditionally is moved: nothing is touched that was not;
//   - no lane needs what another one stores, and lanes of one statement store to elements of
//     their own;
//   - of a buffer that the loop stores to there is one store, to a run, and what is loaded
//     behind it is the same element, which the run has.
// Not in checked builds, where an access can fail; GLSL has no wide access to buffers of elements.
// Thread rule: one thread per printer. Read next: cuda_wide.c.
#include "ir/passes/lanes.h"
#include "jit/gpu/print_inner.h"

enum { MOST_RUNS = 12, MOST_LANES = 16 };

typedef struct run {
  const qn__buf_t* buffer;
  qn__expr_t* const* indices;
  const qn__buf_t* root;
  const char* pointer;
  const char* values;
  bool is_loaded;  // before the first lane
  bool is_stored;  // behind the last lane
  bool has_value;  // where the printer is: of the lane that runs
} run_t;

struct qn__kwide {
  uint32_t count;  // of lanes
  uint32_t run_count;
  run_t runs[MOST_RUNS];
  const char* lane;     // name of the loop's variable
  const char* aligned;  // a bool
};

// ---- what is looked at: a loop's body, or a reduction's lets and value

typedef struct search {
  qn__kprint_t* p;
  qn__lanes_t lanes;
  qn__kwide_t* wide;
  const qn__block_t* body;
  const qn__expr_t* value;  // of a reduction, or NULL
} search_t;

static qn__expr_t* mutable_expr(const qn__expr_t* expr) {
  union {
    const qn__expr_t* from;
    qn__expr_t* to;
  } same = {.from = expr};
  return same.to;
}

static const qn__buf_t* root_of(const qn__buf_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) buffer = buffer->base;
  return buffer;
}

static bool is_same_element(const qn__buf_t* a, qn__expr_t* const* a_indices, const qn__buf_t* b,
                            qn__expr_t* const* b_indices) {
  if (a != b) return false;
  for (uint32_t i = 0; i < a->rank; ++i) {
    if (!qn__expr_equal(a_indices[i], b_indices[i])) return false;
  }
  return true;
}

static run_t* find_run(qn__kwide_t* wide, const qn__buf_t* buffer, qn__expr_t* const* indices) {
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    run_t* run = &wide->runs[i];
    if (is_same_element(run->buffer, run->indices, buffer, indices)) return run;
  }
  return NULL;
}

// Do the lanes reach a run of elements, wherever it begins?
static bool is_run(const search_t* self, const qn__buf_t* buffer, qn__expr_t* const* indices) {
  qn__scope_t scope = root_of(buffer)->scope;
  if (scope != QN__SCOPE_PARAM && scope != QN__SCOPE_GLOBAL && scope != QN__SCOPE_SHARED) {
    return false;
  }
  if (qn__lanes_reach(&self->lanes, buffer, indices) != QN__REACH_CONTIGUOUS) return false;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    if (qn__lanes_of(&self->lanes, indices[i]).has_inner) return false;
  }
  return true;
}

static run_t* add_run(search_t* self, const qn__buf_t* buffer, qn__expr_t* const* indices) {
  run_t* run = find_run(self->wide, buffer, indices);
  if (run) return run;
  if (self->wide->run_count == MOST_RUNS) return NULL;
  run = &self->wide->runs[self->wide->run_count++];
  *run = (run_t){.buffer = buffer, .indices = indices, .root = root_of(buffer)};
  return run;
}

// ---- stores

// What a buffer's root sees in the body besides one store.
typedef struct conflict {
  const qn__stmt_t* store;
  const qn__buf_t* root;
  bool is_behind;  // the walk is past the store
  bool is_found;
} conflict_t;

static bool find_late_load(void* context, qn__expr_t** slot) {
  conflict_t* self = context;
  const qn__expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD && root_of(expr->load.buffer) == self->root) {
    self->is_found |= !is_same_element(expr->load.buffer, expr->load.indices,
                                       self->store->store.buffer, self->store->store.indices);
  }
  return qn__expr_each_child(*slot, find_late_load, self);
}

static void find_conflict(conflict_t* self, const qn__block_t* block) {
  for (qn__stmt_t* stmt = block->first; stmt && !self->is_found; stmt = stmt->next) {
    if (stmt == self->store) {
      self->is_behind = true;
      continue;
    }
    if (self->is_behind) (void)qn__stmt_each_expr(stmt, find_late_load, self);
    if (stmt->kind == QN__STMT_STORE && root_of(stmt->store.buffer) == self->root) {
      self->is_found = true;
    }
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) find_conflict(self, blocks[i]);
  }
}

static bool can_store_late(const search_t* self, const qn__stmt_t* store) {
  const qn__buf_t* root = root_of(store->store.buffer);
  if (!is_run(self, store->store.buffer, store->store.indices)) return false;
  conflict_t conflict = {store, root, false, false};
  find_conflict(&conflict, self->body);
  return !conflict.is_found;
}

static bool has_store_to(const qn__block_t* block, const qn__buf_t* root) {
  for (qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE && root_of(stmt->store.buffer) == root) return true;
    qn__block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (has_store_to(blocks[i], root)) return true;
    }
  }
  return false;
}

// What is loaded before the first lane does anything must not be stored to in between.
static bool can_load_early(const search_t* self, const qn__buf_t* root) {
  if (!has_store_to(self->body, root)) return true;
  for (const qn__stmt_t* stmt = self->body->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_STORE && root_of(stmt->store.buffer) == root) {
      return can_store_late(self, stmt);
    }
  }
  return false;
}

// ---- runs

// Loads that every lane does.
static bool collect_loads(void* context, qn__expr_t** slot) {
  search_t* self = context;
  qn__expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) return true;
  bool is_lazy =
      expr->kind == QN__EXPR_COND ||
      (expr->kind == QN__EXPR_OP && (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR));
  if (is_lazy) return collect_loads(self, &expr->args[0]);
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__buf_t* buffer = expr->load.buffer;
    if (is_run(self, buffer, expr->load.indices) && can_load_early(self, root_of(buffer))) {
      run_t* run = add_run(self, buffer, expr->load.indices);
      // Behind its store the run has what was stored.
      if (run && !run->is_stored) run->is_loaded = true;
    }
  }
  return qn__expr_each_child(expr, collect_loads, self);
}

static bool is_plain(const qn__stmt_t* stmt) {
  if (stmt->kind != QN__STMT_IF) {
    return stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_STORE;
  }
  const qn__block_t* blocks[] = {&stmt->if_.then_block, &stmt->if_.else_block};
  for (size_t i = 0; i < QN_COUNT_OF(blocks); ++i) {
    for (const qn__stmt_t* inner = blocks[i]->first; inner; inner = inner->next) {
      if (!is_plain(inner)) return false;
    }
  }
  return true;
}

static void collect(search_t* self) {
  for (qn__stmt_t* stmt = self->body->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, collect_loads, self);
    if (stmt->kind == QN__STMT_STORE && can_store_late(self, stmt)) {
      run_t* run = add_run(self, stmt->store.buffer, stmt->store.indices);
      if (run) run->is_stored = true;
    }
  }
  qn__expr_t* value = self->value ? mutable_expr(self->value) : NULL;
  if (value) (void)collect_loads(self, &value);
}

// A store without a place among the runs would be done before what is loaded late.
static void drop_what_is_lost(search_t* self) {
  qn__kwide_t* wide = self->wide;
  if (wide->run_count < MOST_RUNS) return;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    bool is_stored_apart = !wide->runs[i].is_stored;
    for (uint32_t k = 0; k < wide->run_count && is_stored_apart; ++k) {
      is_stored_apart = !(wide->runs[k].is_stored && wide->runs[k].root == wide->runs[i].root);
    }
    if (is_stored_apart && has_store_to(self->body, wide->runs[i].root)) continue;
    wide->runs[kept++] = wide->runs[i];
  }
  wide->run_count = kept;
}

// ---- where runs begin

typedef struct needed {
  bool* vars;  // by id
} needed_t;

static bool need_vars(void* context, qn__expr_t** slot) {
  needed_t* self = context;
  if ((*slot)->kind == QN__EXPR_VAR) self->vars[(*slot)->var->id] = true;
  return qn__expr_each_child(*slot, need_vars, self);
}

// What the lets of the body need that are needed themselves, the last one first.
static bool need_lets(qn__kprint_t* p, needed_t* needed, const qn__block_t* body) {
  size_t count = 0;
  for (const qn__stmt_t* stmt = body->first; stmt; stmt = stmt->next) ++count;
  qn__stmt_t** stmts = qn__arena_alloc_array(p->arena, count + 1U, sizeof *stmts);
  if (!stmts) return false;
  count = 0;
  for (qn__stmt_t* stmt = body->first; stmt; stmt = stmt->next) stmts[count++] = stmt;
  while (count-- > 0) {
    qn__stmt_t* stmt = stmts[count];
    if (stmt->kind != QN__STMT_LET || !needed->vars[stmt->let.var->id]) continue;
    (void)need_vars(needed, &stmt->let.value);
  }
  return true;
}

static void print_places(search_t* self, const qn__var_t* var) {
  qn__kprint_t* p = self->p;
  qn__kwide_t* wide = self->wide;
  needed_t needed = {qn__arena_alloc_array(p->arena, p->var_count + 1U, sizeof(bool))};
  if (!needed.vars) {
    qn__kprint_fail_status(p, qn__out_of_memory("the text of a kernel"));
    return;
  }
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    run_t* run = &wide->runs[i];
    run->pointer = qn__kprint_temp(p);
    qn__kprint_line(p, "%s%s* %s;", run->is_stored ? "" : "const ",
                    p->dialect->wide->memory_type(run->root->dtype), run->pointer);
    for (uint32_t d = 0; d < run->buffer->rank; ++d) {
      qn__expr_t* index = run->indices[d];
      (void)need_vars(&needed, &index);
    }
  }
  if (!need_lets(p, &needed, self->body)) {
    qn__kprint_fail_status(p, qn__out_of_memory("the text of a kernel"));
    return;
  }
  qn__kprint_line(p, "{");
  p->indent++;
  qn__kprint_line(p, "const %s %s = 0;",
                  qn__kprint_type(QN_DTYPE_I64, qn__kprint_is_narrow_var(p, var)), wide->lane);
  for (const qn__stmt_t* stmt = self->body->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET && needed.vars[stmt->let.var->id]) qn__kprint_let(p, stmt);
  }
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    const run_t* run = &wide->runs[i];
    const qn__buf_t* root;
    const char* index = qn__kprint_index(p, run->buffer, run->indices, &root);
    qn__kprint_line(p, "%s = &%s[%s];", run->pointer, qn__kprint_buffer(p, root), index);
  }
  qn__kprint_close(p);
}

// Bytes of one access: those of the run, at most 16.
static uint32_t access_bytes(const qn__kwide_t* wide, const run_t* run) {
  uint32_t bytes = wide->count * (uint32_t)qn_dtype_size_bytes(run->root->dtype);
  return bytes > 16 ? 16 : bytes;
}

// Are all addresses multiples of what is accessed there?
static void print_test(qn__kprint_t* p, qn__kwide_t* wide) {
  const char* all = NULL;
  for (uint32_t bytes = 16; bytes > 1; bytes /= 2) {
    const char* addresses = NULL;
    for (uint32_t i = 0; i < wide->run_count; ++i) {
      if (access_bytes(wide, &wide->runs[i]) != bytes) continue;
      const char* address = qn__kprint_text(p, "(qn_u64)%s", wide->runs[i].pointer);
      addresses = addresses ? qn__kprint_text(p, "%s | %s", addresses, address) : address;
    }
    if (!addresses) continue;
    const char* low = qn__kprint_text(p, "((%s) & %uull)", addresses, bytes - 1);
    all = all ? qn__kprint_text(p, "%s | %s", all, low) : low;
  }
  wide->aligned = qn__kprint_temp(p);
  qn__kprint_line(p, "const bool %s = (%s) == 0ull;", wide->aligned, all ? all : "0ull");
}

// Lines for all runs that are loaded, or stored: wide ones where addresses are aligned.
static void print_moves(qn__kprint_t* p, const qn__kwide_t* wide, bool is_store) {
  bool has_any = false;
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    has_any |= is_store ? wide->runs[i].is_stored : wide->runs[i].is_loaded;
  }
  if (!has_any) return;
  for (int is_wide = 1; is_wide >= 0; --is_wide) {
    if (is_wide) {
      qn__kprint_open(p, "if (%s)", wide->aligned);
    } else {
      qn__kprint_open(p, "else");
    }
    for (uint32_t i = 0; i < wide->run_count; ++i) {
      const run_t* run = &wide->runs[i];
      if (is_store ? !run->is_stored : !run->is_loaded) continue;
      const char* to = is_store ? run->pointer : run->values;
      const char* from = is_store ? run->values : run->pointer;
      p->dialect->wide->move(p, wide->count, is_wide != 0, is_store, to, from);
    }
    qn__kprint_close(p);
  }
}

// ---- all

static bool is_lane_count(int64_t count) {
  return count > 1 && count <= MOST_LANES && (count & (count - 1)) == 0;
}

static bool begin(qn__kprint_t* p, qn__var_t* var, const qn__expr_t* first, const qn__expr_t* last,
                  qn__block_t* body, const qn__expr_t* value) {
  if (!p->dialect->wide || p->wide || p->program->is_checked || p->is_predicated ||
      !qn__kprint_ok(p)) {
    return false;
  }
  if (first->kind != QN__EXPR_INT || first->int_value != 0 || last->kind != QN__EXPR_INT ||
      !is_lane_count(last->int_value)) {
    return false;
  }
  for (const qn__stmt_t* stmt = body->first; stmt; stmt = stmt->next) {
    if (!is_plain(stmt)) return false;
  }
  qn__kwide_t* wide = QN__ARENA_NEW(p->arena, qn__kwide_t);
  search_t search = {.p = p, .wide = wide, .body = body, .value = value};
  if (!wide || !qn__lanes_init(&search.lanes, p->arena, p->kernel->function)) {
    qn__kprint_fail_status(p, qn__out_of_memory("the text of a kernel"));
    return false;
  }
  qn__lanes_enter(&search.lanes, var, body);
  wide->count = (uint32_t)last->int_value;
  collect(&search);
  drop_what_is_lost(&search);
  if (wide->run_count == 0) return false;
  wide->lane = qn__kprint_var(p, var);
  qn__kprint_note_var(p, var, first);
  print_places(&search, var);
  print_test(p, wide);
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    run_t* run = &wide->runs[i];
    run->values = qn__kprint_temp(p);
    run->has_value = run->is_loaded;
    qn__kprint_line(p, "%s %s[%u];", p->dialect->wide->memory_type(run->root->dtype), run->values,
                    wide->count);
  }
  print_moves(p, wide, false);
  p->wide = wide;
  return true;
}

bool qn__kprint_wide_loop(qn__kprint_t* p, const qn__stmt_t* loop) {
  if (loop->loop.kind != QN_LOOP_VECTOR || !p->is_in_threads) return false;
  qn__block_t body = loop->loop.body;
  return begin(p, loop->loop.var, loop->loop.begin, loop->loop.end, &body, NULL);
}

bool qn__kprint_wide_reduce(qn__kprint_t* p, const qn__expr_t* expr) {
  if (!p->is_in_threads) return false;
  qn__block_t lets = expr->reduce.lets;
  return begin(p, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end, &lets,
               expr->reduce.value);
}

void qn__kprint_wide_end(qn__kprint_t* p) {
  qn__kwide_t* wide = p->wide;
  if (!wide) return;
  p->wide = NULL;
  print_moves(p, wide, true);
}

const char* qn__kprint_wide_load(qn__kprint_t* p, const qn__buf_t* buffer,
                                 qn__expr_t* const* indices) {
  const run_t* run = p->wide ? find_run(p->wide, buffer, indices) : NULL;
  if (!run || !run->has_value) return NULL;
  const char* element = qn__kprint_text(p, "%s[%s]", run->values, p->wide->lane);
  return p->dialect->wide->from_memory(p, run->root->dtype, element);
}

bool qn__kprint_wide_store(qn__kprint_t* p, const qn__stmt_t* store, const char* value) {
  run_t* run = p->wide ? find_run(p->wide, store->store.buffer, store->store.indices) : NULL;
  if (!run || !run->is_stored) return false;
  run->has_value = true;
  qn__kprint_line(p, "%s[%s] = %s;", run->values, p->wide->lane,
                  p->dialect->wide->to_memory(p, run->root->dtype, value));
  return true;
}
