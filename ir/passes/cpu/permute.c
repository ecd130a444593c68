// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/permute.c: the pass `permute` orders the loops of copies, and transposes in tiles.
//
//   parallel j in 0..m { parallel i in 0..n { b[i, j] = a[i, j] * 2; } }
//
// becomes a nest whose innermost loop is j, so that vectors load and store neighbours. In
// `b[j, i] = a[i, j]` no order does both. Such a nest is computed in square tiles
// (permute_tiles.c): rows of a tile are loaded along one loop, transposed in registers, and stored
// along the other.
//
// 1. Only perfect nests of independent loops change, whose index space is a box (nest.h), without
//    reductions, loops and allocations inside. Any order of their iterations is right.
// 2. The innermost loop is the one along which most accesses are contiguous, stores first.
// 3. A tile holds loads that each iteration evaluates, of memory that the nest does not store to.
//
// Postcondition: no loop changed but those.
#include "ir/passes/cpu/permute.h"

enum {
  max_tile = 16,         // lines of a tile: vectors that registers hold
  max_tile_bytes = 32,   // of a line: more cross lines of the cache at each access
  min_tile = 4,          // smaller ones gain nothing
  max_turned = 2,        // loads that a tile holds
  max_body_weight = 80,  // nodes of a body that is worth three copies
};

// ---- accesses

typedef struct copy_survey {
  qn__permute_t* permute;
  bool is_conditional;
  bool is_unfit;
} copy_survey_t;

static bool is_known_outside(void* context, qn__ir_expr_t** slot) {
  const qn__nest_t* nest = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD) return false;
  if (expr->kind == QN__EXPR_VAR) {
    const qn__ir_block_t* const blocks[] = {&nest->lets, &nest->body};
    for (size_t b = 0; b < QN_COUNT_OF(blocks); ++b) {
      for (const qn__ir_stmt_t* stmt = blocks[b]->first; stmt; stmt = stmt->next) {
        if (qn__stmt_var(stmt) == expr->var) return false;
      }
    }
  }
  return qn__expr_each_child(expr, is_known_outside, context);
}

static void add_access(copy_survey_t* self, qn__ir_expr_t** slot, const qn__ir_buffer_t* buffer,
                       qn__ir_expr_t** indices) {
  qn__permute_t* permute = self->permute;
  if (permute->count == qn__permute_max_accesses || buffer->scope == QN__SCOPE_VIEW) {
    self->is_unfit = true;
    return;
  }
  qn__permute_access_t* access = &permute->accesses[permute->count++];
  *access = (qn__permute_access_t){
      .slot = slot, .buffer = buffer, .indices = indices, .is_conditional = self->is_conditional};
  access->is_plain = true;
  for (uint32_t d = 0; d < buffer->rank && access->is_plain; ++d) {
    access->is_plain = is_known_outside(permute->nest, &indices[d]);
  }
}

static bool survey_slot(void* context, qn__ir_expr_t** slot) {
  copy_survey_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE || qn__expr_is_exchange(expr)) self->is_unfit = true;
  if (expr->kind == QN__EXPR_LOAD) add_access(self, slot, expr->load.buffer, expr->load.indices);
  bool was_conditional = self->is_conditional;
  if (qn__expr_is_lazy(expr)) {
    (void)survey_slot(self, &expr->args[0]);
    self->is_conditional = true;
    for (uint32_t i = 1; i < 3 && expr->args[i]; ++i) (void)survey_slot(self, &expr->args[i]);
  } else {
    (void)qn__expr_each_child(expr, survey_slot, self);
  }
  self->is_conditional = was_conditional;
  return !self->is_unfit;
}

static void survey_block(copy_survey_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt && !self->is_unfit; stmt = stmt->next) {
    if (qn__stmt_is_no_lane(stmt)) self->is_unfit = true;
    (void)qn__stmt_each_expr(stmt, survey_slot, self);
    if (stmt->kind == QN__STMT_STORE) {
      add_access(self, NULL, stmt->store.buffer, stmt->store.indices);
    }
    bool was_conditional = self->is_conditional;
    self->is_conditional = true;
    QN__EACH_BLOCK(stmt, inner) survey_block(self, inner);
    self->is_conditional = was_conditional;
  }
}

// Finds how each access changes along each loop. Returns false without memory.
static bool note_reaches(qn__permute_t* permute) {
  qn__nest_t* nest = permute->nest;
  qn__lanes_t* lanes = qn__pb_lanes(permute->pb);
  if (!lanes) return false;
  for (uint32_t dim = 0; dim < nest->count; ++dim) {
    qn__lanes_enter(lanes, nest->loops[dim]->loop.var, &nest->lets);
    qn__lanes_add(lanes, &nest->body);
    for (uint32_t i = 0; i < permute->count; ++i) {
      qn__permute_access_t* access = &permute->accesses[i];
      access->reach[dim] = qn__lanes_reach(lanes, access->buffer, access->indices);
      access->is_stored_to = lanes->is_stored[qn__buf_root(access->buffer)->id];
    }
  }
  return true;
}

// ---- tiles

static bool may_be_turned(const qn__permute_access_t* access) {
  return access->slot && access->is_plain && !access->is_conditional && !access->is_stored_to;
}

// Returns true if tiles turn the loads that are not contiguous along loop `line`: all of these are
// contiguous along one other loop. Marks them.
static bool find_turn(qn__permute_t* permute, uint32_t line) {
  uint32_t turned = 0;
  bool has_store = false;
  permute->line = line;
  for (uint32_t i = 0; i < permute->count; ++i) {
    qn__permute_access_t* access = &permute->accesses[i];
    access->is_turned = false;
    if (!access->slot) {
      has_store = true;
      if (access->reach[line] != QN__REACH_CONTIGUOUS) return false;
    } else if (access->reach[line] == QN__REACH_SCATTERED) {
      uint32_t turn = 0;
      while (turn < permute->nest->count && access->reach[turn] != QN__REACH_CONTIGUOUS) ++turn;
      bool is_other = turned > 0 && turn != permute->turn;
      if (turn == permute->nest->count || is_other || !may_be_turned(access)) return false;
      permute->turn = turn;
      access->is_turned = true;
      if (++turned > max_turned) return false;
    }
  }
  return has_store && turned > 0;
}

static int64_t tile_size(const qn__permute_t* permute) {
  int64_t bytes = 1;
  for (uint32_t i = 0; i < permute->count; ++i) {
    const qn__permute_access_t* access = &permute->accesses[i];
    int64_t size = (int64_t)qn_dtype_size_bytes(access->buffer->dtype);
    if (size > bytes) bytes = size;
  }
  uint32_t vector_bytes = permute->pb->options->vector_bytes;
  int64_t size = (vector_bytes < max_tile_bytes ? vector_bytes : max_tile_bytes) / bytes;
  return size < max_tile ? size : max_tile;
}

// Returns true if loop `dim` certainly has fewer iterations than `count`.
static bool is_shorter(const qn__permute_t* permute, uint32_t dim, int64_t count) {
  const qn__ir_stmt_t* loop = permute->nest->loops[dim];
  int64_t trips = qn__const_trips(loop->loop.begin, loop->loop.end);
  return trips >= 0 && trips < count;
}

static bool choose_tile(qn__permute_t* permute) {
  uint32_t line = 0;
  while (line < permute->nest->count && !find_turn(permute, line)) ++line;
  if (line == permute->nest->count) return false;
  permute->size = tile_size(permute);
  return permute->size >= min_tile && !is_shorter(permute, permute->turn, permute->size) &&
         !is_shorter(permute, permute->line, permute->size) &&
         qn__block_weight(&permute->nest->body) <= max_body_weight;
}

// ---- orders

// Builds the nest again with its fastest loop innermost. `kind` is that of the outermost loop.
static qn__ir_stmt_t* write_ordered(qn__nest_t* nest, qn_loop_kind_t kind) {
  qn__ir_stmt_t* inner = NULL;
  for (uint32_t place = nest->count; place-- > 0;) {
    qn__ir_stmt_t* loop = nest->loops[nest->order[place]];
    assert(!loop->loop.body.first);  // qn__nest_open took its statements
    loop->loop.kind = place == 0 ? kind : QN_LOOP_PARALLEL;
    if (inner) {
      loop->loop.body = qn__block_of(inner);
    } else {
      qn__block_splice(&loop->loop.body, &nest->lets);
      qn__block_splice(&loop->loop.body, &nest->body);
    }
    inner = loop;
  }
  return inner;
}

static bool write_nest(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__ir_block_t* out) {
  qn__nest_t nest;
  qn__permute_t* permute = QN__ARENA_NEW(pb->arena, qn__permute_t);
  if (!permute) return false;
  *permute = (qn__permute_t){.pb = pb, .nest = &nest};
  qn__nest_open(pb, loop, &nest);
  copy_survey_t survey = {.permute = permute, .is_unfit = nest.count < 2};
  qn_loop_kind_t kind = QN_LOOP_SERIAL;
  for (uint32_t d = 0; d < nest.count; ++d) {
    qn_loop_kind_t own = nest.loops[d]->loop.kind;
    if (own == QN_LOOP_PARALLEL) kind = own;
    if (own != QN_LOOP_PARALLEL && own != QN_LOOP_SERIAL) survey.is_unfit = true;
  }
  if (!survey.is_unfit) survey_block(&survey, &nest.lets);
  if (!survey.is_unfit) survey_block(&survey, &nest.body);
  if (!survey.is_unfit && !qn__pb_stopped(pb) && note_reaches(permute)) {
    if (choose_tile(permute)) {
      qn__permute_write_tiles(permute, kind, out);
      return !qn__pb_stopped(pb);
    }
    if (nest.order[nest.count - 1] + 1 != nest.count) {
      qn__block_append(out, write_ordered(&nest, kind));
      return true;
    }
  }
  qn__nest_close(&nest);
  return false;
}

static void visit(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  qn__ir_stmt_t* stmt;
  while ((stmt = qn__block_pop(&rest)) != NULL) {
    if (qn__is_independent_loop(stmt) && write_nest(pb, stmt, block)) continue;
    if (qn__pb_stopped(pb)) return;
    // Loops in lanes do not nest.
    bool has_lanes = stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_VECTOR;
    QN__EACH_BLOCK(stmt, inner) {
      if (!has_lanes) visit(pb, inner);
    }
    qn__block_append(block, stmt);
  }
}

static void run(qn__pass_builder_t* pb) {
  visit(pb, &pb->function->body);
}

const qn__pass_t qn__pass_permute = {
    .name = "permute",
    .doc = "orders the loops of copies, and transposes in tiles",
    .run = run,
    .post = "no loop changed but perfect nests of independent loops",
};
