// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_align.c: lets a loop in lanes store whole lines of the cache.
//
//   vectors of y[begin..], y[begin + 16..], y[begin + 32..], ...
//
// cross a line of 64 bytes at each access where y[begin] is not at the begin of one, which takes
// up to twice as long. So the first vector begins at `begin`, and the second one at the next
// multiple of the vector's size in memory, before the first one ends:
//
//   vectors of y[begin..], y[begin + 12..], y[begin + 28..], ...
//
// Elements of both are computed twice. That is right where the loop loads from no buffer that it
// stores to. The first vector is a copy of the code, and one more vector to compute, so only short
// bodies have it, and only long ranges run it.
#include "ir/passes/cost.h"
#include "ir/passes/rewrite.h"
#include "jit/llvm/emit_inner.h"

enum {
  LINE_BYTES = 64,
  MIN_ITERATIONS = 512,
  MIN_VECTORS = 8,
  MAX_COST = 24,  // of an iteration, in simple instructions: more hide the accesses
};

static bool is_no_load(void* root, const qn__ir_ref_t* ref) {
  return ref->kind == QN__REF_STORE || qn__buf_root(*ref->buffer) != root;
}

static bool is_reduce(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_REDUCE;
}

// Returns the store whose lines the loop may follow, or NULL.
static const qn__ir_stmt_t* find_store(const qn__ir_stmt_t* loop) {
  qn__ir_block_t* body = (qn__ir_block_t*)(uintptr_t)&loop->loop.body;
  const qn__ir_stmt_t* found = NULL;
  for (const qn__ir_stmt_t* stmt = body->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LET) continue;
    if (stmt->kind != QN__STMT_STORE) return NULL;
    const qn__ir_buffer_t* root = qn__buf_root(stmt->store.buffer);
    if (!qn__block_each_ref(body, is_no_load, (void*)(uintptr_t)root)) return NULL;
    if (!found && qn__store_is_along(loop, stmt)) found = stmt;
  }
  return found && !qn__block_any_expr(body, is_reduce) ? found : NULL;
}

bool qn__emit_can_align(const qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, uint32_t lanes,
                        qn__llvm_alignment_t* out) {
  const qn__ir_stmt_t* store = find_store(loop);
  if (!store || qn__emit_checks(e) || e->options->is_fast_tier || loop->loop.is_rare) return false;
  const qn__cost_model_t scalar = {.lanes = NULL};
  qn__ir_block_t body = loop->loop.body;
  if (qn__cost_block(&scalar, &body) > (double)MAX_COST) return false;
  const qn__llvm_buffer_slot_t* slot = store->store.buffer->user;
  uint32_t size = qn__dtype_bits(store->store.buffer->dtype) / 8;
  uint32_t bytes = lanes * size < LINE_BYTES ? lanes * size : LINE_BYTES;
  *out = (qn__llvm_alignment_t){.store = store, .bytes = bytes, .element_bytes = size};
  out->least = lanes * MIN_VECTORS > MIN_ITERATIONS ? lanes * MIN_VECTORS : MIN_ITERATIONS;
  return !slot->is_private && size > 0 && (bytes & (bytes - 1)) == 0;
}

LLVMValueRef qn__emit_next_aligned(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop,
                                   const qn__llvm_alignment_t* alignment, LLVMValueRef begin,
                                   uint32_t lanes) {
  LLVMBuilderRef b = e->fn->builder;
  const qn__ir_stmt_t* store = alignment->store;
  qn__emit_bind_index(e, loop->loop.var, loop->loop.begin, qn__emit_uniform(QN_DTYPE_I64, begin));
  qn__llvm_address_t address = qn__emit_address(e, store->store.buffer, store->store.indices);
  LLVMValueRef place = LLVMBuildPtrToInt(b, address.pointer, e->i64, "");
  LLVMValueRef until =
      LLVMBuildAnd(b, LLVMBuildNeg(b, place, ""), qn__emit_i64(e, alignment->bytes - 1), "");
  LLVMValueRef count = LLVMBuildUDiv(b, until, qn__emit_i64(e, alignment->element_bytes), "");
  LLVMValueRef is_there = LLVMBuildICmp(b, LLVMIntEQ, until, qn__emit_i64(e, 0), "");
  count = LLVMBuildSelect(b, is_there, qn__emit_i64(e, lanes), count, "");
  return LLVMBuildAdd(b, begin, count, "");
}
