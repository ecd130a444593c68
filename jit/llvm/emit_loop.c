// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_loop.c: emits counted loops: serial, or in lanes with a tail.
//
// A loop in lanes runs full vectors first. The remaining iterations run under a mask if the target
// has masked memory, else one by one. A short range of constant length is unrolled into vectors.
// Not here: launches (emit_parallel.c), reductions (emit_reduce.c).
#include "jit/llvm/emit_inner.h"

enum { MAX_PIECES = 8, MAX_UNROLLED = 64 };

// ------------------------------------------------------------------------------------ counting

qn__llvm_counter_t qn__emit_count_begin(qn__llvm_emit_t* e, LLVMValueRef begin, LLVMValueRef end,
                                        int64_t step, LLVMValueRef carried) {
  LLVMBuilderRef b = e->fn->builder;
  qn__llvm_counter_t counter = {.start = carried, .end = end, .step = step};
  counter.body = qn__emit_block(e, "loop");
  counter.after = qn__emit_block(e, "endloop");
  counter.before = LLVMGetInsertBlock(b);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, begin, end, ""), counter.body, counter.after);
  qn__emit_at(e, counter.body);
  counter.index = LLVMBuildPhi(b, e->i64, "");
  LLVMAddIncoming(counter.index, &begin, &counter.before, 1);
  if (carried) {
    counter.carried = LLVMBuildPhi(b, LLVMTypeOf(carried), "");
    LLVMAddIncoming(counter.carried, &carried, &counter.before, 1);
  }
  e->fn->loop_depth++;
  e->fn->has_loop = true;
  return counter;
}

LLVMValueRef qn__emit_count_end(qn__llvm_emit_t* e, const qn__llvm_counter_t* counter,
                                LLVMValueRef carried) {
  LLVMBuilderRef b = e->fn->builder;
  assert(e->fn->loop_depth > 0);
  assert(!counter->carried == !carried);
  e->fn->loop_depth--;
  LLVMValueRef step = qn__emit_i64(e, counter->step);
  LLVMValueRef next = counter->can_overrun ? LLVMBuildAdd(b, counter->index, step, "")
                                           : LLVMBuildNSWAdd(b, counter->index, step, "");
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b);
  LLVMAddIncoming(counter->index, &next, &from, 1);
  if (carried) LLVMAddIncoming(counter->carried, &carried, &from, 1);
  // The remaining count is compared unsigned, which is right even if `next` wraps.
  LLVMValueRef goes_on =
      counter->can_overrun
          ? LLVMBuildICmp(b, LLVMIntUGT, LLVMBuildSub(b, counter->end, counter->index, ""), step,
                          "")
          : LLVMBuildICmp(b, LLVMIntSLT, next, counter->end, "");
  LLVMBuildCondBr(b, goes_on, counter->body, counter->after);
  qn__emit_at(e, counter->after);
  if (!carried) return NULL;
  return qn__llvm_join(b, counter->start, counter->before, carried, from);
}

LLVMValueRef qn__emit_main_end(qn__llvm_emit_t* e, LLVMValueRef begin, LLVMValueRef end,
                               uint32_t lanes) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef count = LLVMBuildSub(b, end, begin, "");
  LLVMValueRef has_any = LLVMBuildICmp(b, LLVMIntSLT, begin, end, "");
  count = LLVMBuildSelect(b, has_any, count, qn__emit_i64(e, 0), "");
  LLVMValueRef full;
  if ((lanes & (lanes - 1)) == 0) {
    full = LLVMBuildAnd(b, count, qn__emit_i64(e, -(int64_t)lanes), "");
  } else {
    LLVMValueRef rest = LLVMBuildURem(b, count, qn__emit_i64(e, (int64_t)lanes), "");
    full = LLVMBuildSub(b, count, rest, "");
  }
  return LLVMBuildAdd(b, begin, full, "");
}

LLVMValueRef qn__emit_left(qn__llvm_emit_t* e, LLVMValueRef index, LLVMValueRef end,
                           uint32_t lanes) {
  assert(lanes > 1);
  LLVMValueRef left = LLVMBuildSub(e->fn->builder, end, index, "");
  LLVMValueRef max = qn__emit_i64(e, (int64_t)lanes);
  return qn__emit_int_min_max(e, QN_DTYPE_U64, true, left, max);
}

// ------------------------------------------------------------------------------------ iterations

static void emit_iteration(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, qn__llvm_value_t index) {
  qn__emit_bind_index(e, loop->loop.var, loop->loop.begin, index);
  qn__emit_block_of(e, &loop->loop.body);
}

// Emits `lanes` iterations at once, of which the first `count` (NULL: all) are active.
static void emit_lanes(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef index,
                       uint32_t lanes, LLVMValueRef count) {
  if (lanes <= 1) {
    assert(!count);
    emit_iteration(e, loop, qn__emit_uniform(QN_DTYPE_I64, index));
    return;
  }
  qn__emit_region_begin(e, lanes, count);
  emit_iteration(e, loop, qn__emit_lanes_from(e, index));
  qn__emit_region_end(e);
}

void qn__emit_scalar_range(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef begin,
                           LLVMValueRef end) {
  int64_t first, trips;
  bool is_constant = qn__emit_const_trips(begin, end, &first, &trips);
  bool is_unrolled = loop->loop.kind == QN_LOOP_UNROLL;
  if (is_constant && (trips <= 1 || (is_unrolled && trips <= MAX_UNROLLED))) {
    for (int64_t i = 0; i < trips; ++i) emit_lanes(e, loop, qn__emit_i64(e, first + i), 1, NULL);
    return;
  }
  qn__llvm_counter_t counter = qn__emit_count_begin(e, begin, end, 1, NULL);
  emit_lanes(e, loop, counter.index, 1, NULL);
  (void)qn__emit_count_end(e, &counter, NULL);
}

// Emits a constant number of iterations as straight code: full vectors, then powers of two.
static void emit_pieces(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, int64_t first, int64_t trips,
                        uint32_t lanes) {
  while (trips > 0) {
    while ((int64_t)lanes > trips) {
      // The next smaller power of two.
      uint32_t smaller = 1;
      while (2 * smaller < lanes) smaller *= 2;
      lanes = smaller;
    }
    emit_lanes(e, loop, qn__emit_i64(e, first), lanes, NULL);
    first += lanes;
    trips -= lanes;
  }
}

// Emits a first vector for long ranges whose next one then begins at a line of the cache. Returns
// the next index.
static LLVMValueRef emit_first_vector(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop,
                                      LLVMValueRef begin, LLVMValueRef end, uint32_t lanes) {
  LLVMBuilderRef b = e->fn->builder;
  qn__llvm_alignment_t alignment;
  if (!qn__emit_can_align(e, loop, lanes, &alignment)) return begin;
  LLVMValueRef count = LLVMBuildSub(b, end, begin, "");
  LLVMValueRef is_long = LLVMBuildICmp(b, LLVMIntSGE, count, qn__emit_i64(e, alignment.least), "");
  qn__llvm_when_t when = qn__emit_when_begin(e, is_long, "first", "endfirst");
  emit_lanes(e, loop, begin, lanes, NULL);
  LLVMValueRef next = qn__emit_next_aligned(e, loop, &alignment, begin, lanes);
  return qn__emit_when_end(e, when, next, begin);
}

static void emit_vector_range(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef begin,
                              LLVMValueRef end, uint32_t lanes) {
  LLVMBuilderRef b = e->fn->builder;
  int64_t first, trips;
  if (qn__emit_const_trips(begin, end, &first, &trips) && trips / (int64_t)lanes <= MAX_PIECES) {
    emit_pieces(e, loop, first, trips, lanes);
    return;
  }
  bool is_masked = qn__emit_can_mask_loop(e, &loop->loop.body);
  if (is_masked && e->options->is_fast_tier) {
    qn__llvm_counter_t counter = qn__emit_count_begin(e, begin, end, (int64_t)lanes, NULL);
    counter.can_overrun = true;
    emit_lanes(e, loop, counter.index, lanes, qn__emit_left(e, counter.index, end, lanes));
    (void)qn__emit_count_end(e, &counter, NULL);
    return;
  }
  begin = emit_first_vector(e, loop, begin, end, lanes);
  LLVMValueRef main_end = qn__emit_main_end(e, begin, end, lanes);
  qn__llvm_counter_t counter = qn__emit_count_begin(e, begin, main_end, (int64_t)lanes, NULL);
  emit_lanes(e, loop, counter.index, lanes, NULL);
  (void)qn__emit_count_end(e, &counter, NULL);
  if (!is_masked) {
    qn__emit_scalar_range(e, loop, main_end, end);
    return;
  }
  LLVMValueRef is_left = LLVMBuildICmp(b, LLVMIntSLT, main_end, end, "");
  qn__llvm_when_t when = qn__emit_when_begin(e, is_left, "tail", "endtail");
  emit_lanes(e, loop, main_end, lanes, LLVMBuildSub(b, end, main_end, ""));
  (void)qn__emit_when_end(e, when, NULL, NULL);
}

void qn__emit_range(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef begin,
                    LLVMValueRef end) {
  uint32_t lanes = qn__emit_loop_lanes(e, loop);
  if (lanes > 1) {
    emit_vector_range(e, loop, begin, end, lanes);
  } else if (!qn__emit_specialised(e, loop, begin, end)) {
    qn__emit_scalar_range(e, loop, begin, end);
  }
}

void qn__emit_loop(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  // A parallel loop inside a serial loop or an `if` is a launch, too.
  bool is_launch = e->fn->can_launch && e->fn->lanes == 0;
  if (stmt->loop.kind == QN_LOOP_PARALLEL && is_launch) {
    qn__emit_parallel(e, stmt);
    return;
  }
  if (stmt->loop.is_transposed && qn__emit_transposed(e, stmt)) return;
  LLVMValueRef begin = qn__emit_scalar(e, stmt->loop.begin);
  LLVMValueRef end = qn__emit_scalar(e, stmt->loop.end);
  qn__emit_range(e, stmt, begin, end);
}
