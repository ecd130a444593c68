// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/jam.c: the pass `jam` runs some rows of a program at once (unroll and jam).
//
//   parallel i in 0..n {
//     alloc p: f32[512] in local;
//     for j in 0..m { p[j] = sum d in 0..64 { q[i, d] * k[j, d] }; }
//     let top = max j in 0..m { p[j] };
//     ...
//   }
//
// computes each row by itself: it reads all of k for 64 multiplications with one row of q. With the
// rows of a block innermost, the loop over j is a product of matrices, which the pass `block`
// finds:
//
//   parallel block in 0..ceildiv(n, 64) {
//     let first = block * 64;
//     if first + 64 <= n {
//       alloc p: f32[512, 64] in local;
//       alloc top: f32[64] in local;
//       parallel u in 0..64 {
//         for j in 0..m { p[j, u] = sum d in 0..64 { q[first + u, d] * k[j, d] }; }
//       }
//       parallel u in 0..64 { top[u] = max j in 0..m { p[j, u] }; }
//       ...
//     } else {
//       for i in first..n { ... }
//     }
//   }
//
// 1. The rows are independent, so that any interleaving of them is right. Each row keeps the order
//    of its own statements.
// 2. The rows of a block are like the threads of a block of a GPU, with barriers around each
//    product: fission.c writes the loops, and the arrays for values that cross from one to another.
// 3. Only loops change whose rows multiply their own values by a matrix that all rows share, and
//    have the same ranges in all else, or can have them (jam_ranges.c). A loop that is nothing but
//    one product stays: the pass `block` takes all its rows.
// 4. A sum that a row does not always need, such as the score of a key that is masked, becomes one
//    that each row computes, if its loads are inside of their buffers for all rows.
// 5. The rows are contiguous in the buffers of a block, so that vectors hold rows. A block whose
//    rows are not all there runs the loop as it was.
//
// Postcondition: no loop changed but those.
#include <math.h>

#include "ir/passes/cpu/jam_ranges.h"
#include "ir/passes/fission.h"

enum {
  block_rows = 64,  // a multiple of all vectors' lanes; the columns or rows of a product's tiles
  min_block_rows = 16,
  min_columns = 8,  // of a product: as in blocks.c
  min_steps = 4,
  max_difference = 256,  // of the ranges of a block's rows
  max_weight = 2000,     // of a body: its code is written twice
};

// What a value depends on.
enum {
  ON_ROW = 1,
  ON_COLUMN = 2,  // a loop inside of the row's loop
  ON_STEP = 4,    // a reduction
};

typedef struct jam {
  qn__pass_builder_t* pb;
  const qn__lanes_t* lanes;  // facts about the loop over rows
  uint8_t* masks;            // by variable id: what it depends on; 0 outside of the loop
  uint32_t var_count;
  // By variable id: the end of a loop or reduction that begins at 0 or later, or NULL.
  qn__ir_expr_t** ends;
  uint32_t mask;         // of the expression that is visited
  bool is_lazy;          // where the visit is
  qn__ir_block_t* lets;  // for reductions that move out of an expression
  // Of a loop inside of the row's loop: which loads its reductions have.
  bool has_matrix, has_line, is_unfit;
} jam_t;

// ---- dependences

static bool join_slot(void* context, qn__ir_expr_t** slot) {
  jam_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  // Newer variables are those of a block.
  if (expr->kind == QN__EXPR_VAR && expr->var->id < self->var_count) {
    self->mask |= self->masks[expr->var->id];
  }
  if (expr->kind == QN__EXPR_LOAD) {
    const qn__ir_buffer_t* root = qn__buf_root(expr->load.buffer);
    if (self->lanes->is_private[root->id] || self->lanes->is_stored[root->id]) self->mask |= ON_ROW;
  }
  return qn__expr_each_child(*slot, join_slot, self);
}

static uint32_t mask_of(jam_t* self, qn__ir_expr_t* expr) {
  self->mask = 0;
  (void)join_slot(self, &expr);
  return self->mask;
}

// ---- which loops

// Looks at a load of a reduction.
static bool survey_load(void* context, const qn__ir_ref_t* ref) {
  jam_t* self = context;
  const qn__ir_buffer_t* root = qn__buf_root(*ref->buffer);
  bool is_own = self->lanes->is_private[root->id];
  self->mask = is_own ? ON_ROW : 0;
  for (uint32_t d = 0; d < (*ref->buffer)->rank; ++d) (void)join_slot(self, &(*ref->indices)[d]);
  bool has_row = self->mask & ON_ROW, has_column = self->mask & ON_COLUMN;
  if (!(self->mask & ON_STEP)) return true;
  if (!is_own && self->lanes->is_stored[root->id]) self->is_unfit = true;
  if (has_row && has_column) self->is_unfit = true;  // no two operands
  self->has_line |= has_row;
  self->has_matrix |= has_column;
  return true;
}

// Returns false for a load that may lie outside of its buffer for some values of the variables.
static bool is_inside(void* context, const qn__ir_ref_t* ref) {
  const jam_t* self = context;
  const qn__ir_buffer_t* buffer = *ref->buffer;
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    const qn__ir_expr_t* index = (*ref->indices)[d];
    const qn__ir_expr_t* end = index->kind == QN__EXPR_VAR ? self->ends[index->var->id] : NULL;
    if (!end || !qn__expr_equal(end, buffer->shape[d])) return false;
  }
  return true;
}

static void note_range(jam_t* self, const qn__ir_var_t* var, const qn__ir_expr_t* begin,
                       qn__ir_expr_t* end) {
  int64_t first;
  self->ends[var->id] = qn__expr_const_int(begin, &first) && first >= 0 ? end : NULL;
}

static void survey_range(jam_t* self, qn__ir_expr_t* begin, qn__ir_expr_t* end, int64_t least) {
  int64_t trips = qn__const_trips(begin, end);
  if ((trips >= 0 && trips < least) || mask_of(self, begin) || mask_of(self, end)) {
    self->is_unfit = true;
  }
}

static bool survey_reductions(void* context, qn__ir_expr_t** slot) {
  jam_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    survey_range(self, expr->reduce.begin, expr->reduce.end, min_steps);
    note_range(self, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end);
    // Each row computes it, needed or not.
    if (self->is_lazy &&
        (expr->reduce.lets.first || !qn__expr_each_ref(expr->reduce.value, is_inside, self))) {
      self->is_unfit = true;
    }
    self->masks[expr->reduce.reduce_var->id] = ON_STEP;
    for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      self->masks[let->let.var->id] = (uint8_t)mask_of(self, let->let.value);
      (void)qn__expr_each_ref(let->let.value, survey_load, self);
    }
    (void)qn__expr_each_ref(expr->reduce.value, survey_load, self);
  }
  return qn__expr_each_child_lazily(expr, survey_reductions, self, &self->is_lazy);
}

static void survey_block(jam_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt && !self->is_unfit; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, survey_reductions, self);
    if (stmt->kind == QN__STMT_LET) {
      self->masks[stmt->let.var->id] = (uint8_t)mask_of(self, stmt->let.value);
    } else if (qn__is_independent_loop(stmt)) {
      survey_range(self, stmt->loop.begin, stmt->loop.end, min_columns);
      note_range(self, stmt->loop.var, stmt->loop.begin, stmt->loop.end);
      self->masks[stmt->loop.var->id] = ON_COLUMN;
      survey_block(self, &stmt->loop.body);
    } else if (stmt->kind != QN__STMT_STORE && stmt->kind != QN__STMT_IF) {
      self->is_unfit = true;
    }
  }
}

// Returns true if the statement is a product once some rows run it.
static bool is_product(jam_t* self, qn__ir_stmt_t* stmt) {
  if (!qn__is_independent_loop(stmt) || stmt->loop.kind == QN_LOOP_VECTOR) return false;
  self->has_matrix = self->has_line = self->is_unfit = self->is_lazy = false;
  qn__ir_stmt_t alone = *stmt;
  qn__ir_block_t block = qn__block_of(&alone);
  survey_block(self, &block);
  return self->has_matrix && self->has_line && !self->is_unfit;
}

static bool is_loop(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP;
}

static bool is_reduce(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_REDUCE;
}

// Returns true if all rows run the range alike.
static bool is_even_range(const jam_t* self, qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  return qn__lane_is_uniform(qn__lanes_of(self->lanes, begin)) &&
         qn__lane_is_uniform(qn__lanes_of(self->lanes, end));
}

static bool is_even_expr(void* context, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE &&
      !is_even_range(context, expr->reduce.begin, expr->reduce.end)) {
    return false;
  }
  return qn__expr_each_child(*slot, is_even_expr, context);
}

static bool has_loop_or_reduce(qn__ir_block_t* block) {
  return qn__block_any(block, is_loop) || qn__block_any_expr(block, is_reduce);
}

// Returns true if all rows run all loops and reductions of the block alike: then each of these may
// run for all rows of a block, which are contiguous in the local buffers.
static bool is_even(jam_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!qn__stmt_each_expr(stmt, is_even_expr, self)) return false;
    if (stmt->kind == QN__STMT_IF &&
        (has_loop_or_reduce(&stmt->if_.then_block) || has_loop_or_reduce(&stmt->if_.else_block))) {
      return false;
    }
    if (stmt->kind != QN__STMT_LOOP) continue;
    if (!is_even_range(self, stmt->loop.begin, stmt->loop.end) ||
        !is_even(self, &stmt->loop.body)) {
      return false;
    }
  }
  return true;
}

// Returns true for a body that is one loop, after lets that any inner iteration may compute.
static bool is_one_loop(const qn__ir_block_t* body) {
  const qn__ir_stmt_t* stmt = body->first;
  while (stmt && stmt->kind == QN__STMT_LET && !qn__expr_facts(stmt->let.value).has_reduce) {
    stmt = stmt->next;
  }
  return stmt && stmt->kind == QN__STMT_LOOP && !stmt->next;
}

// Returns the bytes of the local buffers at the top of a block; -1 if one has no constant size.
static int64_t local_bytes(const qn__ir_block_t* body) {
  int64_t all = 0;
  for (const qn__ir_stmt_t* stmt = body->first; stmt; stmt = stmt->next) {
    if (stmt->kind != QN__STMT_ALLOC) continue;
    const qn__ir_buffer_t* buffer = stmt->alloc.buffer;
    int64_t bytes = (int64_t)qn_dtype_size_bytes(buffer->dtype);
    for (uint32_t d = 0; d < buffer->rank; ++d) {
      int64_t extent;
      if (!qn__expr_const_int(buffer->shape[d], &extent) || extent < 0 ||
          __builtin_mul_overflow(bytes, extent, &bytes)) {
        return -1;
      }
    }
    if (__builtin_add_overflow(all, bytes, &all)) return -1;
  }
  return all;
}

// Returns the rows of a block; 0: the local buffers of so many rows do not fit the second cache, or
// there are fewer rows.
static int64_t choose_rows(const qn__pass_builder_t* pb, const qn__ir_stmt_t* loop) {
  const int64_t trips = qn__const_trips(loop->loop.begin, loop->loop.end);
  const int64_t bytes = local_bytes(&loop->loop.body);
  const int64_t cache = pb->options->l2_bytes ? pb->options->l2_bytes : 524288;
  for (int64_t rows = block_rows; rows >= min_block_rows; rows /= 2) {
    if (bytes >= 0 && bytes <= cache / 2 / rows && (trips < 0 || trips >= rows)) return rows;
  }
  return 0;
}

// Returns true if the loop computes a product for each row. Its rows have the same ranges.
static bool has_products(jam_t* self, qn__ir_stmt_t* loop) {
  memset(self->masks, 0, self->var_count * sizeof *self->masks);
  self->masks[loop->loop.var->id] = ON_ROW;
  note_range(self, loop->loop.var, loop->loop.begin, loop->loop.end);
  bool has_product = false;
  for (qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET) {
      self->masks[stmt->let.var->id] = (uint8_t)(mask_of(self, stmt->let.value) & ON_ROW);
    }
    has_product |= is_product(self, stmt);
  }
  return has_product;
}

// Moves a reduction that is not always evaluated to a let.
static bool hoist_slot(void* context, qn__ir_expr_t** slot) {
  jam_t* self = context;
  if ((*slot)->kind == QN__EXPR_REDUCE && self->is_lazy) {
    *slot = qn__pb_use(self->pb, qn__pb_let(self->pb, self->lets, "sum", *slot));
    return *slot != NULL;
  }
  return qn__expr_each_child_lazily(*slot, hoist_slot, self, &self->is_lazy);
}

// Moves reductions that are not always evaluated before the statements that use them: the others of
// a block are evaluated at once.
static bool hoist_reductions(jam_t* self, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    self->lets = block;
    self->is_lazy = false;
    if (!qn__stmt_each_expr(stmt, hoist_slot, self)) return false;
    QN__EACH_BLOCK(stmt, inner) {
      if (!hoist_reductions(self, inner)) return false;
    }
    qn__block_append(block, stmt);
  }
  return true;
}

// Moves the statements of a row to `out`, with barriers around its products.
static void move_row(jam_t* self, qn__ir_block_t* body, qn__ir_block_t* out) {
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(body)) != NULL;) {
    bool is_cut = is_product(self, stmt);
    if (is_cut) qn__pb_barrier(self->pb, out);
    if (is_cut && !hoist_reductions(self, &stmt->loop.body)) return;
    qn__block_append(out, stmt);
    if (is_cut) qn__pb_barrier(self->pb, out);
  }
}

// ---- the blocks

// Returns the end of the range of the row `row`; consumes `row`.
static qn__ir_expr_t* end_of(qn__pass_builder_t* pb, const qn__jam_ranges_t* ranges,
                             qn__ir_var_t* var, qn__ir_expr_t* row) {
  return row ? qn__expr_replace(pb->arena, ranges->end, var, row) : NULL;
}

// Writes the ends of the ranges of a block. Returns the condition for it to run them alike, where
// `is_whole` holds.
static qn__ir_expr_t* write_ranges(qn__pass_builder_t* pb, const qn__jam_ranges_t* ranges,
                                   qn__ir_var_t* row, qn__ir_expr_t* first, qn__ir_expr_t* last,
                                   qn__ir_expr_t* is_whole, qn__ir_block_t* out) {
  qn__pb_let_var(pb, out, ranges->shortest, end_of(pb, ranges, row, first));
  qn__pb_let_var(pb, out, ranges->longest, end_of(pb, ranges, row, last));
  // Rows whose ranges differ by more would compute too much in vain. The limits are those of i32,
  // too.
  qn__ir_expr_t* differ =
      qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, ranges->longest), qn__pb_use(pb, ranges->shortest));
  is_whole =
      qn__pb_both(pb, is_whole, qn__pb_op_int(pb, QN_OP_GE, qn__pb_use(pb, ranges->shortest), 1));
  is_whole = qn__pb_both(pb, is_whole, qn__pb_op_int(pb, QN_OP_LE, differ, max_difference));
  is_whole = qn__pb_both(pb, is_whole,
                         qn__pb_op_int(pb, QN_OP_LE, qn__pb_use(pb, ranges->longest), INT32_MAX));
  if (!ranges->magnitude || !is_whole) return is_whole;
  qn__ir_var_t* can_run = qn__pb_let(pb, out, "is_whole", is_whole);
  qn__ir_expr_t* stop = qn__pb_cond(pb, qn__pb_use(pb, can_run), qn__pb_use(pb, ranges->longest),
                                    qn__pb_use(pb, ranges->shortest));
  qn__pb_let_var(pb, out, ranges->stop, stop);
  qn__ir_var_t* most = qn__pb_let(pb, out, "most", ranges->magnitude);
  if (!most || !can_run) return NULL;
  qn__ir_expr_t* is_finite = qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, most),
                                       qn__expr_float(pb->arena, most->dtype, (double)INFINITY));
  return qn__pb_both(pb, qn__pb_use(pb, can_run), is_finite);
}

// Writes blocks of `loop`, which is in no list, to `out`. `rest` is the same loop for rows that are
// no whole block; `ranges`: NULL, or how the rows came to have the same ranges.
static void write_blocks(jam_t* self, qn__ir_stmt_t* loop, qn__ir_stmt_t* rest, int64_t rows,
                         const qn__jam_ranges_t* ranges, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = self->pb;
  qn__ir_expr_t* count = qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_extent(pb, rest), rows);
  qn__ir_stmt_t* blocks = qn__pb_count_loop(pb, rest->loop.kind, "block", count);
  qn__ir_stmt_t* lines = qn__pb_count_loop(pb, QN_LOOP_THREAD_X, "u", qn__pb_int(pb, rows));
  if (!blocks || !lines) return;
  blocks->loop.is_independent = true;
  qn__ir_block_t* body = &blocks->loop.body;
  qn__ir_expr_t* shift = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, blocks->loop.var), rows);
  qn__ir_var_t* first =
      qn__pb_let(pb, body, "first", qn__pb_op(pb, QN_OP_ADD, loop->loop.begin, shift));
  qn__pb_let_var(pb, &lines->loop.body, loop->loop.var,
                 qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, first), qn__pb_use(pb, lines->loop.var)));
  move_row(self, &loop->loop.body, &lines->loop.body);
  qn__ir_block_t whole = {NULL, NULL};
  qn__fission(pb, lines, &whole);
  qn__ir_expr_t* end = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, first), rows);
  qn__ir_expr_t* is_whole = qn__pb_op(pb, QN_OP_LE, end, loop->loop.end);
  if (ranges) {
    qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_use(pb, first), rows - 1);
    is_whole =
        write_ranges(pb, ranges, loop->loop.var, qn__pb_use(pb, first), last, is_whole, body);
    rest->loop.end = qn__pb_op(pb, QN_OP_MIN, qn__pb_copy(pb, end), rest->loop.end);
  }
  qn__ir_stmt_t* test = qn__pb_if(pb, is_whole, whole);
  if (!test) return;
  rest->loop.kind = QN_LOOP_SERIAL;
  rest->loop.begin = qn__pb_use(pb, first);
  qn__block_append(&test->if_.else_block, rest);
  qn__block_append(body, test);
  qn__block_append(out, blocks);
}

// Writes the blocks that replace `loop` to `out`. Returns false if the loop stays.
static bool jam(jam_t* self, qn__ir_stmt_t* loop, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = self->pb;
  if (!qn__is_independent_loop(loop) || loop->loop.kind == QN_LOOP_VECTOR) return false;
  qn__ir_block_t* body = &loop->loop.body;
  if (is_one_loop(body) || qn__block_any(body, qn__stmt_is_not_plain) ||
      qn__block_weight(body) > max_weight) {
    return false;
  }
  int64_t rows = choose_rows(pb, loop);
  qn__lanes_t* lanes = rows > 0 ? qn__pb_lanes(pb) : NULL;
  if (!lanes) return false;
  qn__lanes_enter(lanes, loop->loop.var, body);
  self->lanes = lanes;
  qn__jam_ranges_t ranges;
  bool is_same = is_even(self, body);
  if (is_same && !has_products(self, loop)) return false;
  qn__ir_stmt_t* blocked = qn__stmt_copy(pb->arena, loop);
  if (!blocked) return false;
  if (!is_same &&
      (!qn__jam_even_out(pb, lanes, blocked, &ranges) || !has_products(self, blocked))) {
    return false;
  }
  write_blocks(self, blocked, loop, rows, is_same ? NULL : &ranges, out);
  return true;
}

static void visit(jam_t* self, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(self->pb);) {
    if (jam(self, stmt, block)) continue;
    if (is_loop(stmt)) note_range(self, stmt->loop.var, stmt->loop.begin, stmt->loop.end);
    QN__EACH_BLOCK(stmt, inner) visit(self, inner);
    qn__block_append(block, stmt);
  }
}

static void run(qn__pass_builder_t* pb) {
  jam_t self = {.pb = pb, .var_count = pb->var_count + 1U};
  self.masks = qn__arena_alloc_array(pb->arena, self.var_count, sizeof *self.masks);
  self.ends = qn__arena_alloc_array(pb->arena, self.var_count, sizeof(qn__ir_expr_t*));
  if (self.masks && self.ends) visit(&self, &pb->function->body);
}

const qn__pass_t qn__pass_jam = {
    .name = "jam",
    .doc = "runs some rows at once where they share a matrix",
    .run = run,
    .post = "no loop changed but those of independent rows, which keep their order of statements",
};
