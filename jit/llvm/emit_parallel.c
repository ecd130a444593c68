// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_parallel.c: emits launches. The body of an outermost parallel loop becomes a
// function that the device runs over ranges of iterations.
//
// The body gets values of the kernel in a closure on the kernel's stack, one word each. A launch
// that is too small for a second thread calls the body directly.
#include <stdio.h>

#include "jit/llvm/emit_inner.h"

// A shorter launch stays in the calling thread. No share of a launch is shorter than half of this.
#define NS_WORTH_SPLITTING 20000.0

enum { ENV_PARALLEL = 0 };

// Emits the body. Afterwards the kernel stores its captures into the closure.
static qn__llvm_function_t* make_body(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop,
                                      LLVMValueRef begin) {
  char name[256];
  (void)snprintf(name, sizeof name, "%s.launch%u", e->function->name, e->body_count++);
  qn__llvm_function_t* body = qn__emit_fn_begin(e, name, QN__LLVM_BODY);
  if (!body) return NULL;
  LLVMBuilderRef b = body->builder;
  body->loop_depth = 1;
  LLVMValueRef from = LLVMGetParam(body->function, 2);
  LLVMValueRef to = LLVMGetParam(body->function, 3);
  LLVMValueRef shift = qn__emit_capture(e, begin);
  from = LLVMBuildAdd(b, from, shift, "");
  to = LLVMBuildAdd(b, to, shift, "");
  qn__emit_range(e, loop, from, to);
  qn__emit_fn_end(e);
  return body;
}

// Emits the smallest number of iterations that is worth a thread.
static LLVMValueRef make_grain(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef cost) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef half = LLVMConstReal(e->f64, NS_WORTH_SPLITTING / 2);
  LLVMValueRef ratio = LLVMBuildFDiv(b, half, cost, "");
  LLVMValueRef grain = LLVMBuildFPToSI(b, ratio, e->i64, "");  // from 0 to some ten thousand
  uint32_t lanes = qn__emit_loop_lanes(e, loop);
  int64_t multiple = lanes > 1 ? (int64_t)lanes : 1;
  // Rounds up to full vectors.
  grain = LLVMBuildAdd(b, grain, qn__emit_i64(e, multiple), "");
  LLVMValueRef rest = LLVMBuildURem(b, grain, qn__emit_i64(e, multiple), "");
  return LLVMBuildSub(b, grain, rest, "");
}

void qn__emit_parallel(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef begin = qn__emit_scalar(e, loop->loop.begin);
  LLVMValueRef end = qn__emit_scalar(e, loop->loop.end);
  assert(e->fn->can_launch && e->fn->lanes == 0);  // launches do not nest
  e->fn->has_launch = true;
  LLVMBasicBlockRef launch = qn__emit_block(e, "launch");
  LLVMBasicBlockRef here = qn__emit_block(e, "here");
  LLVMBasicBlockRef split = qn__emit_block(e, "split");
  LLVMBasicBlockRef joined = qn__emit_block(e, "joined");
  LLVMBasicBlockRef done = qn__emit_block(e, "launched");
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, begin, end, ""), launch, done);

  qn__emit_at(e, launch);
  LLVMValueRef cost = qn__emit_cost(e, loop);
  qn__llvm_function_t* body = make_body(e, loop, begin);
  if (!body) return;
  LLVMValueRef closure = qn__emit_closure(e, body);
  LLVMValueRef count = LLVMBuildSub(b, end, begin, "");
  LLVMValueRef total = LLVMBuildFMul(b, LLVMBuildSIToFP(b, count, e->f64, ""), cost, "");
  LLVMValueRef limit = LLVMConstReal(e->f64, NS_WORTH_SPLITTING);
  LLVMValueRef is_small = LLVMBuildFCmp(b, LLVMRealULT, total, limit, "");
  LLVMValueRef is_one = LLVMBuildICmp(b, LLVMIntEQ, count, qn__emit_i64(e, 1), "");
  LLVMBuildCondBr(b, LLVMBuildOr(b, is_small, is_one, ""), here, split);

  qn__emit_at(e, here);
  LLVMValueRef args[] = {e->fn->env, closure, qn__emit_i64(e, 0), count};
  LLVMValueRef results[2];
  results[0] = LLVMBuildCall2(b, e->body_type, body->function, args, 4, "");
  LLVMBuildBr(b, joined);

  qn__emit_at(e, split);
  LLVMValueRef call[] = {body->function, closure, count, make_grain(e, loop, cost)};
  results[1] = qn__emit_env_call(e, ENV_PARALLEL, e->parallel_type, call, 4);
  LLVMBuildBr(b, joined);

  qn__emit_at(e, joined);
  LLVMValueRef result = LLVMBuildPhi(b, e->i32, "");
  LLVMBasicBlockRef blocks[] = {here, split};
  LLVMAddIncoming(result, results, blocks, 2);
  LLVMValueRef failed = LLVMBuildICmp(b, LLVMIntNE, result, LLVMConstInt(e->i32, 0, false), "");
  LLVMBuildCondBr(b, failed, qn__emit_fail_block(e), done);
  qn__emit_at(e, done);
}
