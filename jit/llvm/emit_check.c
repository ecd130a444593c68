// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_check.c: emits checks and the failures of kernels.
//
// A failure calls env->fail once, with the number of its site. Then the function leaves through its
// single failing block, which releases the workspace.
#include "jit/llvm/emit_inner.h"

static bool is_same_site(const qn_artifact_site_t* a, const qn_artifact_site_t* b) {
  return a->kind == b->kind && a->buffer_id == b->buffer_id && a->dim == b->dim &&
         a->place == b->place &&
         (a->message == b->message ||
          (a->message && b->message && strcmp(a->message, b->message) == 0));
}

uint32_t qn__emit_site(qn__llvm_emit_t* e, qn_artifact_site_t site) {
  for (uint32_t i = 0; i < e->site_count; ++i) {
    if (is_same_site(&e->sites[i], &site)) return i;
  }
  qn_artifact_site_t* sites =
      qn__arena_grow(e->arena, e->sites, e->site_count, &e->site_capacity, sizeof *sites);
  if (!sites) {
    e->has_failed = true;
    return 0;
  }
  e->sites = sites;
  if (site.message) {
    site.message = qn__arena_cstr(e->arena, qn__str(site.message));
    if (!site.message) e->has_failed = true;
  }
  e->sites[e->site_count] = site;
  return e->site_count++;
}

LLVMBasicBlockRef qn__emit_fail_block(qn__llvm_emit_t* e) {
  if (!e->fn->fail) e->fn->fail = qn__emit_block(e, "failed");
  return e->fn->fail;
}

LLVMValueRef qn__emit_env_call(qn__llvm_emit_t* e, unsigned slot, LLVMTypeRef type,
                               LLVMValueRef* args, unsigned count) {
  enum { MAX_ARGS = 5 };
  assert(count <= MAX_ARGS);
  LLVMValueRef values[MAX_ARGS + 1] = {e->fn->env};
  memcpy(values + 1, args, count * sizeof *args);
  LLVMBuilderRef b = e->fn->builder;
  // The table begins with two 32-bit words (qn_cpu_functions_t).
  LLVMValueRef functions = LLVMBuildLoad2(b, e->pointer, e->fn->env, "");
  LLVMValueRef offset = qn__emit_i64(e, (int64_t)slot + 1);
  LLVMValueRef place = LLVMBuildGEP2(b, e->pointer, functions, &offset, 1, "");
  LLVMValueRef callee = LLVMBuildLoad2(b, e->pointer, place, "");
  return LLVMBuildCall2(b, type, callee, values, count + 1, "");
}

static LLVMValueRef pick(qn__llvm_emit_t* e, LLVMValueRef value, LLVMValueRef lane) {
  if (!value) return qn__emit_i64(e, 0);
  if (qn__llvm_lane_count(LLVMTypeOf(value)) == 0) return value;
  return LLVMBuildExtractElement(e->fn->builder, value, lane, "");
}

void qn__emit_require(qn__llvm_emit_t* e, LLVMValueRef ok, uint32_t site, LLVMValueRef index,
                      LLVMValueRef extent) {
  enum { ENV_FAIL = 3 };
  qn__llvm_function_t* fn = e->fn;
  LLVMBuilderRef b = fn->builder;
  assert(site < e->site_count || e->has_failed);
  int64_t constant;
  if (qn__emit_const_int(ok, &constant) && constant != 0) return;
  LLVMValueRef bad = LLVMBuildNot(b, ok, "");
  bool is_wide = qn__llvm_lane_count(LLVMTypeOf(ok)) > 0;
  if (is_wide && fn->mask) bad = LLVMBuildAnd(b, bad, fn->mask, "");
  if (!is_wide && fn->mask && fn->can_mask_be_empty) {
    bad = LLVMBuildAnd(b, bad, qn__llvm_any(e->fn->builder, fn->mask), "");
  }
  LLVMBasicBlockRef stop = qn__emit_block(e, "stop");
  LLVMBasicBlockRef go_on = qn__emit_block(e, "checked");
  LLVMBuildCondBr(b, qn__llvm_any(e->fn->builder, bad), stop, go_on);
  qn__emit_at(e, stop);
  LLVMValueRef lane = qn__emit_i64(e, 0);
  if (is_wide) lane = qn__emit_first_lane(e, bad);
  if (!is_wide && fn->lanes > 0 && fn->mask) lane = qn__emit_first_lane(e, fn->mask);
  LLVMValueRef args[] = {LLVMConstInt(e->i32, site, false), pick(e, index, lane),
                         pick(e, extent, lane)};
  qn__emit_env_call(e, ENV_FAIL, e->fail_type, args, 3);
  LLVMBuildBr(b, qn__emit_fail_block(e));
  qn__emit_at(e, go_on);
}
