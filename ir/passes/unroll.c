// SPDX-License-Identifier: Apache-2.0
// ir/passes/unroll.c: unrolls `unroll` loops.
//
// A loop whose extent is a constant of at most `max_extent` becomes that many copies of its body
// with the variable replaced by its value, inner loops first. A function grows to at most
// `max_weight`. Other loops become serial.
#include "ir/passes/pass_builder.h"

enum { max_extent = 64, max_weight = 16000 };

typedef struct unroll {
  qn__pass_builder_t* pb;
  size_t weight;  // of the function so far
} unroll_t;

// Returns true if the function may grow by the copies of this loop, and counts them.
static bool can_unroll(unroll_t* self, qn__ir_stmt_t* loop) {
  int64_t extent = qn__const_trips(loop->loop.begin, loop->loop.end);
  if (extent < 0 || extent > max_extent) return false;
  size_t growth = (size_t)extent * qn__block_weight(&loop->loop.body);
  if (self->weight + growth > max_weight) return false;
  self->weight += growth;
  return true;
}

// Appends the copies of the loop to `out`.
static void write_out(qn__pass_builder_t* pb, const qn__ir_stmt_t* loop, qn__ir_block_t* out) {
  int64_t begin, end;
  bool is_known =
      qn__expr_const_int(loop->loop.begin, &begin) && qn__expr_const_int(loop->loop.end, &end);
  if (QN_NEVER(!is_known)) return;
  for (int64_t i = begin; i < end; ++i) {
    qn__ir_expr_t* value = qn__pb_int(pb, i);
    qn__ir_block_t copy = {NULL, NULL};
    if (!value || !qn__block_replace(pb->arena, &loop->loop.body, loop->loop.var, value, &copy)) {
      return;
    }
    qn__block_splice(out, &copy);
  }
}

static void unroll_block(unroll_t* self, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(self->pb);) {
    QN__EACH_BLOCK(stmt, inner) unroll_block(self, inner);
    bool is_unroll = stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_UNROLL;
    if (is_unroll && can_unroll(self, stmt)) {
      write_out(self->pb, stmt, block);
      continue;
    }
    if (is_unroll) stmt->loop.kind = QN_LOOP_SERIAL;
    qn__block_append(block, stmt);
  }
}

static void unroll_function(qn__pass_builder_t* pb) {
  unroll_t self = {pb, qn__block_weight(&pb->function->body)};
  unroll_block(&self, &pb->function->body);
}

static bool is_unroll(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_UNROLL;
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_unroll) ? "an unroll loop" : NULL;
}

const qn__pass_t qn__pass_unroll = {
    .name = "unroll",
    .doc = "writes unroll loops of small constant extent out",
    .run = unroll_function,
    .post = "unroll loops are written out, or serial",
    .check = check,
    .is_alone = true,
};
