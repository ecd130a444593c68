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
// Thread rule: one thread per printer. Read next: print_wide_find.c.
#include "jit/gpu/print_wide.h"
#include "ir/passes/rewrite.h"

// ---- where runs begin

typedef struct needed {
  bool* vars;  // by id
} needed_t;

static bool need_vars(void* context, qn__ir_expr_t** slot) {
  needed_t* self = context;
  if ((*slot)->kind == QN__EXPR_VAR) self->vars[(*slot)->var->id] = true;
  return qn__expr_each_child(*slot, need_vars, self);
}

// What the lets of the body need that are needed themselves, the last one first.
static bool need_lets(qn__kprint_t* p, needed_t* needed, const qn__ir_block_t* body) {
  size_t count = 0;
  for (const qn__ir_stmt_t* stmt = body->first; stmt; stmt = stmt->next) ++count;
  qn__ir_stmt_t** stmts = qn__arena_alloc_array(p->arena, count + 1U, sizeof *stmts);
  if (!stmts) return false;
  count = 0;
  for (qn__ir_stmt_t* stmt = body->first; stmt; stmt = stmt->next) stmts[count++] = stmt;
  while (count-- > 0) {
    qn__ir_stmt_t* stmt = stmts[count];
    if (stmt->kind != QN__STMT_LET || !needed->vars[stmt->let.var->id]) continue;
    (void)need_vars(needed, &stmt->let.value);
  }
  return true;
}

static void print_places(qn__kprint_t* p, qn__kwide_t* wide, const qn__ir_var_t* var,
                         const qn__ir_block_t* body) {
  needed_t needed = {qn__arena_alloc_array(p->arena, p->var_count + 1U, sizeof(bool))};
  if (!needed.vars) {
    qn__kprint_fail_status(p, qn__out_of_memory("the text of a kernel"));
    return;
  }
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    qn__krun_t* run = &wide->runs[i];
    run->pointer = qn__kprint_temp(p);
    qn__kprint_line(p, "%s%s* %s;", run->is_stored ? "" : "const ",
                    p->dialect->wide->memory_type(run->root->dtype), run->pointer);
    for (uint32_t d = 0; d < run->buffer->rank; ++d) {
      qn__ir_expr_t* index = run->indices[d];
      (void)need_vars(&needed, &index);
    }
  }
  if (!need_lets(p, &needed, body)) {
    qn__kprint_fail_status(p, qn__out_of_memory("the text of a kernel"));
    return;
  }
  qn__kprint_line(p, "{");
  p->indent++;
  qn__kprint_line(p, "const %s %s = 0;",
                  qn__kprint_type(QN_DTYPE_I64, qn__kprint_is_narrow_var(p, var)), wide->lane);
  for (const qn__ir_stmt_t* stmt = body->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET && needed.vars[stmt->let.var->id]) qn__kprint_let(p, stmt);
  }
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    const qn__krun_t* run = &wide->runs[i];
    const qn__ir_buffer_t* root;
    const char* index = qn__kprint_index(p, run->buffer, run->indices, &root);
    qn__kprint_line(p, "%s = &%s[%s];", run->pointer, qn__kprint_buffer(p, root), index);
  }
  qn__kprint_close(p);
}

// Bytes of one access: those of the run, at most 16.
static uint32_t access_bytes(const qn__kwide_t* wide, const qn__krun_t* run) {
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
      const qn__krun_t* run = &wide->runs[i];
      if (is_store ? !run->is_stored : !run->is_loaded) continue;
      const char* to = is_store ? run->pointer : run->values;
      const char* from = is_store ? run->values : run->pointer;
      p->dialect->wide->move(p, wide->count, is_wide != 0, is_store, to, from);
    }
    qn__kprint_close(p);
  }
}

// ---- all

static bool begin(qn__kprint_t* p, qn__ir_var_t* var, const qn__ir_expr_t* first,
                  const qn__ir_expr_t* last, qn__ir_block_t* body, const qn__ir_expr_t* value) {
  if (!p->dialect->wide || p->wide || p->program->is_checked || p->is_predicated ||
      !qn__kprint_ok(p)) {
    return false;
  }
  qn__kwide_t* wide = qn__kwide_find(p, var, first, last, body, value);
  if (!wide) return false;
  wide->lane = qn__kprint_var(p, var);
  qn__kprint_note_var(p, var, first);
  print_places(p, wide, var, body);
  print_test(p, wide);
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    qn__krun_t* run = &wide->runs[i];
    run->values = qn__kprint_temp(p);
    run->has_value = run->is_loaded;
    qn__kprint_line(p, "%s %s[%u];", p->dialect->wide->memory_type(run->root->dtype), run->values,
                    wide->count);
  }
  print_moves(p, wide, false);
  p->wide = wide;
  return true;
}

bool qn__kprint_wide_loop(qn__kprint_t* p, const qn__ir_stmt_t* loop) {
  if (loop->loop.kind != QN_LOOP_VECTOR || !p->is_in_threads) return false;
  qn__ir_block_t body = loop->loop.body;
  return begin(p, loop->loop.var, loop->loop.begin, loop->loop.end, &body, NULL);
}

bool qn__kprint_wide_reduce(qn__kprint_t* p, const qn__ir_expr_t* expr) {
  if (!p->is_in_threads) return false;
  qn__ir_block_t lets = expr->reduce.lets;
  return begin(p, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end, &lets,
               expr->reduce.value);
}

void qn__kprint_wide_end(qn__kprint_t* p) {
  qn__kwide_t* wide = p->wide;
  if (!wide) return;
  p->wide = NULL;
  print_moves(p, wide, true);
}

const char* qn__kprint_wide_load(qn__kprint_t* p, const qn__ir_buffer_t* buffer,
                                 qn__ir_expr_t* const* indices) {
  const qn__krun_t* run = p->wide ? qn__kwide_run(p->wide, buffer, indices) : NULL;
  if (!run || !run->has_value) return NULL;
  const char* element = qn__kprint_text(p, "%s[%s]", run->values, p->wide->lane);
  return p->dialect->wide->from_memory(p, run->root->dtype, element);
}

bool qn__kprint_wide_store(qn__kprint_t* p, const qn__ir_stmt_t* store, const char* value) {
  qn__krun_t* run =
      p->wide ? qn__kwide_run(p->wide, store->store.buffer, store->store.indices) : NULL;
  if (!run || !run->is_stored) return false;
  run->has_value = true;
  qn__kprint_line(p, "%s[%s] = %s;", run->values, p->wide->lane,
                  p->dialect->wide->to_memory(p, run->root->dtype, value));
  return true;
}
