// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_wide.c: prints short loops of independent iterations with wide memory accesses.
//
// A *lane* here is one iteration of a VECTOR loop, or of a reduction of constant extent. Where the
// lanes access consecutive elements of a buffer, one instruction can move up to 16 bytes of them
// between memory and an array in registers. Such a set of elements is a *run*:
//
//   const float* t0; float* t1;                     where the runs begin
//   { const int k = 0; ...; t0 = &b0[...]; ... }    lets that the indices need, for the first lane
//   const bool t2 = (((qn_u64)t0 | (qn_u64)t1) & 15ull) == 0ull;
//   float t3[4], t4[4];
//   if (t2) { qn_wide_load<4>(t3, t0); } else { qn_each_load<4>(t3, t0); }
//   for (int k = 0; k < 4; ++k) { ... t4[k] = t3[k] ...; }
//   if (t2) { qn_wide_store<4>(t1, t4); } else { qn_each_store<4>(t1, t4); }
//
// The alignment of an address is known only at run time, because tensors begin anywhere and rows
// have any length. So both forms are printed, with a test that selects one.
//
// All loads of a run happen before the first lane, all stores after the last one. This reordering
// is right because of three rules, which print_wide_find.c enforces:
//
// 1. Only accesses that every lane makes unconditionally become part of a run. So no element is
//    touched that the program would not touch.
// 2. No lane reads what another lane stores, and the lanes of one statement store to different
//    elements. A VECTOR loop promises both.
// 3. A buffer that the loop stores to has exactly one store, to a run. Loads after that store must
//    be of the same element, and read the array.
//
// Checked builds have no runs, because an access may fail there. GLSL has none, because it has no
// wide access to a buffer of elements.
#include "jit/gpu/print_wide.h"

#include <assert.h>
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

// Marks the variables that needed lets depend on. Goes from the last let to the first, so that one
// pass is enough. False: out of memory.
static bool need_lets(qn__gpu_printer_t* p, needed_t* needed, const qn__ir_block_t* body) {
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

// Declares a pointer to the begin of each run, and sets them in a block in which the loop's
// variable is 0.
static void print_places(qn__gpu_printer_t* p, qn__gpu_wide_t* wide, const qn__ir_var_t* var,
                         const qn__ir_block_t* body) {
  needed_t needed = {qn__arena_alloc_array(p->arena, p->var_count + 1U, sizeof(bool))};
  if (!needed.vars) {
    qn__kprint_no_memory(p);
    return;
  }
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    qn__gpu_run_t* run = &wide->runs[i];
    run->pointer = qn__kprint_temp(p);
    qn__kprint_line(p, "%s%s* %s;", run->is_stored ? "" : "const ",
                    p->dialect->wide->memory_type(run->root->dtype), run->pointer);
    for (uint32_t d = 0; d < run->buffer->rank; ++d) {
      qn__ir_expr_t* index = run->indices[d];
      (void)need_vars(&needed, &index);
    }
  }
  if (!need_lets(p, &needed, body)) {
    qn__kprint_no_memory(p);
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
    const qn__gpu_run_t* run = &wide->runs[i];
    const qn__ir_buffer_t* root;
    const char* index = qn__kprint_index(p, run->buffer, run->indices, &root);
    qn__kprint_line(p, "%s = &%s[%s];", run->pointer, qn__kprint_buffer(p, root), index);
  }
  qn__kprint_close(p);
}

// Returns the bytes of one access of a run: all of it, at most 16.
static uint32_t access_bytes(const qn__gpu_wide_t* wide, const qn__gpu_run_t* run) {
  uint32_t bytes = wide->count * (uint32_t)qn_dtype_size_bytes(run->root->dtype);
  assert((bytes & (bytes - 1)) == 0);
  return bytes > 16 ? 16 : bytes;
}

// Prints the test of all addresses: each must be a multiple of its access's bytes. Runs with one
// size share one mask.
static void print_test(qn__gpu_printer_t* p, qn__gpu_wide_t* wide) {
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

// Prints the loads, or the stores, of all runs: wide ones where the addresses are aligned, element
// by element otherwise.
static void print_moves(qn__gpu_printer_t* p, const qn__gpu_wide_t* wide, bool is_store) {
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
      const qn__gpu_run_t* run = &wide->runs[i];
      if (is_store ? !run->is_stored : !run->is_loaded) continue;
      const char* to = is_store ? run->pointer : run->values;
      const char* from = is_store ? run->values : run->pointer;
      p->dialect->wide->move(p, wide->count, is_wide != 0, is_store, to, from);
    }
    qn__kprint_close(p);
  }
}

// ---- all

// Prints the lines before the loop: places of runs, the test, arrays and loads. Returns false if
// there are no runs.
static bool begin(qn__gpu_printer_t* p, qn__ir_var_t* var, const qn__ir_expr_t* first,
                  const qn__ir_expr_t* last, qn__ir_block_t* body, const qn__ir_expr_t* value) {
  if (!p->dialect->wide || p->wide || p->program->is_checked || p->is_predicated ||
      !qn__kprint_ok(p)) {
    return false;
  }
  qn__gpu_wide_t* wide = qn__kwide_find(p, var, first, last, body, value);
  if (!wide) return false;
  wide->lane = qn__kprint_var(p, var);
  qn__kprint_note_var(p, var, first);
  print_places(p, wide, var, body);
  print_test(p, wide);
  for (uint32_t i = 0; i < wide->run_count; ++i) {
    qn__gpu_run_t* run = &wide->runs[i];
    run->values = qn__kprint_temp(p);
    run->has_value = run->is_loaded;
    qn__kprint_line(p, "%s %s[%u];", p->dialect->wide->memory_type(run->root->dtype), run->values,
                    wide->count);
  }
  print_moves(p, wide, false);
  p->wide = wide;
  return true;
}

bool qn__kprint_wide_loop(qn__gpu_printer_t* p, const qn__ir_stmt_t* loop) {
  if (loop->loop.kind != QN_LOOP_VECTOR || !p->is_in_threads) return false;
  qn__ir_block_t body = loop->loop.body;
  return begin(p, loop->loop.var, loop->loop.begin, loop->loop.end, &body, NULL);
}

bool qn__kprint_wide_reduce(qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  if (!p->is_in_threads) return false;
  qn__ir_block_t lets = expr->reduce.lets;
  return begin(p, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end, &lets,
               expr->reduce.value);
}

void qn__kprint_wide_end(qn__gpu_printer_t* p) {
  qn__gpu_wide_t* wide = p->wide;
  if (!wide) return;
  assert(p->is_in_threads);
  p->wide = NULL;
  print_moves(p, wide, true);
}

const char* qn__kprint_wide_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                                 qn__ir_expr_t* const* indices) {
  const qn__gpu_run_t* run = p->wide ? qn__kwide_run(p->wide, buffer, indices) : NULL;
  if (!run || !run->has_value) return NULL;
  const char* element = qn__kprint_text(p, "%s[%s]", run->values, p->wide->lane);
  return p->dialect->wide->from_memory(p, run->root->dtype, element);
}

bool qn__kprint_wide_store(qn__gpu_printer_t* p, const qn__ir_stmt_t* store, const char* value) {
  qn__gpu_run_t* run =
      p->wide ? qn__kwide_run(p->wide, store->store.buffer, store->store.indices) : NULL;
  if (!run || !run->is_stored) return false;
  run->has_value = true;
  qn__kprint_line(p, "%s[%s] = %s;", run->values, p->wide->lane,
                  p->dialect->wide->to_memory(p, run->root->dtype, value));
  return true;
}
