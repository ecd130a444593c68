// SPDX-License-Identifier: Apache-2.0
// ir/passes/several.c: copies of the parts of reductions of several values and of scans, and where
// threads share them.
#include "ir/passes/several.h"

// ---- copies of the values and of the combiner

static void add_let(qn__pass_builder_t* pb, qn__ir_block_t* block, qn__ir_var_t* var,
                    qn__ir_expr_t* value) {
  qn__ir_stmt_t* let = qn__stmt_new(pb->arena, QN__STMT_LET, (qn__ir_loc_t){0, 0});
  if (!let || !var || !value) return;
  let->let.var = var;
  let->let.value = value;
  qn__block_append(block, let);
}

// Appends copies of `lets` and of lets of `values`, and returns the variables of those. `given`
// comes before them.
static bool append_copy(qn__pass_builder_t* pb, const qn__ir_block_t* given,
                        const qn__ir_block_t* lets, qn__ir_expr_t* const* values, uint32_t count,
                        qn__ir_block_t* out, qn__ir_var_t** out_vars) {
  qn__ir_block_t last = {NULL, NULL}, copy;
  for (uint32_t i = 0; i < count; ++i) {
    qn__ir_var_t* var = qn__var_new(pb->arena, QN__VAR_LET, values[i]->dtype, "value");
    add_let(pb, &last, var, values[i]);
  }
  if (pb->arena->is_exhausted) return false;
  const qn__ir_block_t* const blocks[] = {given, lets, &last};
  if (!qn__blocks_replace(pb->arena, blocks, QN_COUNT_OF(blocks), NULL, NULL, &copy)) return false;
  uint32_t before = qn__block_count(&copy) - count, i = 0;
  for (qn__ir_stmt_t* let = copy.first; let; let = let->next, ++i) {
    let->let.var->kind = QN__VAR_LET;
    let->let.var->id = pb->var_count++;
    if (i >= before) out_vars[i - before] = let->let.var;
  }
  qn__block_splice(out, &copy);
  return true;
}

bool qn__several_values(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                        qn__ir_expr_t* index, qn__ir_block_t* out, qn__ir_var_t** out_vars) {
  qn__ir_block_t given = {NULL, NULL};
  add_let(pb, &given, several->var, index);
  return index &&
         append_copy(pb, &given, &several->lets, several->values, several->count, out, out_vars);
}

bool qn__several_combine(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                         qn__ir_expr_t* const* left, qn__ir_expr_t* const* right,
                         qn__ir_block_t* out, qn__ir_var_t** out_vars) {
  qn__ir_block_t given = {NULL, NULL};
  for (uint32_t i = 0; i < several->count; ++i) {
    add_let(pb, &given, several->left[i], left[i]);
    add_let(pb, &given, several->right[i], right[i]);
  }
  return !pb->arena->is_exhausted && append_copy(pb, &given, &several->merge_lets, several->merged,
                                                 several->count, out, out_vars);
}

// Returns the index of an element of rank 1, or NULL, for an access to one of several buffers.
static qn__ir_expr_t* index_of(qn__pass_builder_t* pb, const qn__ir_expr_t* at) {
  return at ? qn__pb_copy(pb, at) : NULL;
}

void qn__several_load(qn__pass_builder_t* pb, qn__ir_buffer_t* const* buffers, uint32_t count,
                      const qn__ir_expr_t* at, qn__ir_expr_t** out_loads) {
  for (uint32_t i = 0; i < count; ++i) {
    out_loads[i] = qn__pb_load(pb, buffers[i], index_of(pb, at), NULL);
  }
}

void qn__several_store(qn__pass_builder_t* pb, qn__ir_buffer_t* const* buffers, uint32_t count,
                       const qn__ir_expr_t* at, qn__ir_expr_t* const* values, qn__ir_block_t* out) {
  for (uint32_t i = 0; i < count; ++i) {
    qn__pb_append(out, qn__pb_store(pb, buffers[i], index_of(pb, at), NULL, values[i]));
  }
}

void qn__several_copy(qn__pass_builder_t* pb, uint32_t count, qn__ir_buffer_t* const* to,
                      const qn__ir_expr_t* to_at, qn__ir_buffer_t* const* from,
                      const qn__ir_expr_t* from_at, qn__ir_block_t* out) {
  qn__several_exprs_t loads;
  qn__several_load(pb, from, count, from_at, loads);
  qn__several_store(pb, to, count, to_at, loads, out);
}

void qn__several_merge(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                       qn__ir_buffer_t* const* into, const qn__ir_expr_t* at,
                       qn__ir_expr_t* const* right, qn__ir_block_t* out) {
  qn__several_exprs_t left, uses;
  qn__several_vars_t merged;
  qn__several_load(pb, into, several->count, at, left);
  if (!qn__several_combine(pb, several, left, right, out, merged)) return;
  qn__several_use(pb, merged, several->count, uses);
  qn__several_store(pb, into, several->count, at, uses, out);
}

void qn__several_use(qn__pass_builder_t* pb, qn__ir_var_t* const* vars, uint32_t count,
                     qn__ir_expr_t** out_uses) {
  for (uint32_t i = 0; i < count; ++i) out_uses[i] = qn__pb_use(pb, vars[i]);
}

bool qn__several_declare(qn__pass_builder_t* pb, const qn__ir_several_t* several, int64_t rows,
                         qn__ir_block_t* out, qn__ir_buffer_t** out_buffers) {
  for (uint32_t i = 0; i < several->count; ++i) {
    out_buffers[i] = qn__pb_alloc(pb, out, QN__SCOPE_LOCAL, several->values[i]->dtype,
                                  several->results[i]->name, rows, -1);
    if (!out_buffers[i]) return false;
  }
  return true;
}

void qn__several_set_initial(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                             qn__ir_buffer_t* const* totals, const qn__ir_expr_t* at,
                             qn__ir_block_t* out) {
  qn__several_exprs_t initial;
  for (uint32_t i = 0; i < several->count; ++i) {
    initial[i] = qn__pb_copy(pb, several->initial[i]);
  }
  qn__several_store(pb, totals, several->count, at, initial, out);
}

void qn__several_give_results(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                              qn__ir_buffer_t* const* totals, qn__ir_block_t* out) {
  for (uint32_t i = 0; i < several->count; ++i) {
    qn__pb_let_var(pb, out, several->results[i], qn__pb_load(pb, totals[i], NULL, NULL));
  }
}

// ---- where lanes and threads pay

static bool uses_any(const qn__ir_several_t* several, qn__ir_expr_t* expr) {
  if (qn__expr_uses_var(expr, several->var)) return true;
  for (qn__ir_stmt_t* let = several->lets.first; let; let = let->next) {
    if (qn__expr_uses_var(expr, let->let.var)) return true;
  }
  return false;
}

static bool is_step(const qn__ir_several_t* several, const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_VAR && expr->var == several->var;
}

// Returns true for i, i + a and i - a, where a is the same in all iterations. In a scan, whose
// lanes are threads, a - i is as good.
static bool is_adjacent(const qn__ir_several_t* several, qn__ir_expr_t* index) {
  if (is_step(several, index)) return true;
  if (index->kind != QN__EXPR_OP || (index->op != QN_OP_ADD && index->op != QN_OP_SUB)) {
    return false;
  }
  qn__ir_expr_t *a = index->args[0], *b = index->args[1];
  if (is_adjacent(several, a) && !uses_any(several, b)) return true;
  bool takes_right = index->op == QN_OP_ADD || qn__several_is_scan(several->kind);
  return takes_right && is_adjacent(several, b) && !uses_any(several, a);
}

typedef struct lane_check {
  const qn__ir_several_t* several;
  bool has_load;  // of neighbours
} lane_check_t;

// Returns false for an expression that lanes would make slower.
static bool check_slot(void* context, qn__ir_expr_t** slot) {
  lane_check_t* check = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) return false;
  if (expr->kind != QN__EXPR_LOAD) return qn__expr_each_child(expr, check_slot, check);
  const qn__ir_buffer_t* buffer = expr->load.buffer;
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    qn__ir_expr_t* index = expr->load.indices[d];
    if (!uses_any(check->several, index)) continue;
    bool is_last =
        d + 1 == buffer->rank && (!buffer->strides || qn__expr_is_int(buffer->strides[d], 1));
    if (!is_last || !is_adjacent(check->several, index)) return false;
    check->has_load = true;
  }
  return true;
}

bool qn__several_loads_neighbours(const qn__ir_stmt_t* stmt) {
  qn__ir_stmt_t one = *stmt;
  lane_check_t check = {stmt->several, false};
  return qn__stmt_each_expr(&one, check_slot, &check) && check.has_load;
}

int64_t qn__several_threads(const qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt,
                            qn__several_place_t place) {
  const qn__ir_several_t* several = stmt->several;
  int64_t trips = qn__const_trips(several->begin, several->end);
  int64_t warp = pb->warp_size, block = pb->threads;
  bool is_short = trips >= 0 && trips < 2 * warp;
  if (pb->options->vector_bytes != 0 || place.has_threads || is_short) return 0;
  // Else one thread of the device would have all of a scan.
  bool is_alone = place.is_at_top && qn__several_is_scan(several->kind);
  if (!is_alone && !qn__several_loads_neighbours(stmt)) return 0;
  int64_t count = trips >= 0 && trips < 2 * block ? warp : block;
  return count > 1 && (count & (count - 1)) == 0 ? count : 0;
}
