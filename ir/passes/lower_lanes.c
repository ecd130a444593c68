// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_lanes.c: the pass `lower_lanes` makes what is left of parallel code for a
// generator that has launches and serial loops: loops with lanes, and parallel loops inside of
// others, become serial.
#include "ir/passes/pass_builder.h"

static void lower_block(qn__ir_block_t* block, bool is_inside) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_launch = false;
    if (stmt->kind == QN__STMT_LOOP) {
      is_launch = stmt->loop.kind == QN_LOOP_PARALLEL && !is_inside;
      bool is_serial = stmt->loop.kind == QN_LOOP_VECTOR || stmt->loop.kind == QN_LOOP_UNROLL ||
                       (stmt->loop.kind == QN_LOOP_PARALLEL && is_inside);
      if (is_serial) stmt->loop.kind = QN_LOOP_SERIAL;
      stmt->loop.is_transposed = false;
    }
    QN__EACH_BLOCK(stmt, inner) lower_block(inner, is_inside || is_launch);
  }
}

static void lower_function(qn__pass_builder_t* pb) {
  lower_block(&pb->function->body, false);
}

// ---- postcondition

static const char* check_block(qn__ir_block_t* block, bool is_inside) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    bool is_launch = is_loop && stmt->loop.kind == QN_LOOP_PARALLEL;
    if (is_loop && stmt->loop.kind == QN_LOOP_VECTOR) return "a vector loop";
    if (is_launch && is_inside) return "a parallel loop inside of another";
    QN__EACH_BLOCK(stmt, inner) {
      const char* problem = check_block(inner, is_inside || is_launch);
      if (problem) return problem;
    }
  }
  return NULL;
}

static const char* check(qn__ir_func_t* function) {
  return check_block(&function->body, false);
}

const qn__pass_t qn__pass_lower_lanes = {
    .name = "lower_lanes",
    .doc = "makes loops in lanes, and parallel loops inside of others, serial",
    .run = lower_function,
    .post = "no loop has lanes, and parallel loops are launches",
    .check = check,
    .is_alone = true,
};
