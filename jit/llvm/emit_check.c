// jit/llvm/emit_check.c: emits checks and the failures of kernels.
//
// A failure calls env->fail once, with the number of its site. Then the function leaves through its
// single failing block, which releases the workspace.
#include "jit/llvm/emit_inner.h"

static bool is_same_site(const qn_artifact_site_t* site, qn_site_kind_t kind, uint32_t buffer_id,
                         uint32_t dim, const char* message) {
  return site->kind == kind && site->buffer_id == buffer_id && site->dim == dim &&
         (site->message == message ||
          (site->message && message && strcmp(site->message, message) == 0));
}

uint32_t qn__emit_site(qn__llvm_emit_t* e, qn_site_kind_t kind, uint32_t buffer_id, uint32_t dim,
                       const char* message) {
  for (uint32_t i = 0; i < e->site_count; ++i) {
    if (is_same_site(&e->sites[i], kind, buffer_id, dim, message)) return i;
  }
  if (e->site_count == e->site_capacity) {
    uint32_t capacity = e->site_capacity ? 2 * e->site_capacity : 16;
    qn_artifact_site_t* sites = qn__arena_alloc_array(e->arena, capacity, sizeof *sites);
    if (!sites) {
      e->has_failed = true;
      return 0;
    }
    if (e->site_count > 0) memcpy(sites, e->sites, e->site_count * sizeof *sites);
    e->sites = sites;
    e->site_capacity = capacity;
  }
  const char* copy = message ? qn__arena_cstr(e->arena, qn__str(message)) : NULL;
  if (message && !copy) e->has_failed = true;
  e->sites[e->site_count] = (qn_artifact_site_t){kind, buffer_id, dim, copy};
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
