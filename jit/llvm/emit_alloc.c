// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_alloc.c: emits allocations, constant tables and views.
//
// Small arrays of constant size are stack slots in the entry block, which LLVM can promote to
// registers. All other buffers are workspace of the device. They are released at the end of their
// block and in the failing block.
#include <stdio.h>

#include "jit/llvm/emit_inner.h"

// The last bytes of the stack are for small arrays, which registers may hold.
enum { SMALL_BYTES = 2048, RESERVED_BYTES = 16 * 1024 };
enum { ENV_ALLOCATE = 1, ENV_RELEASE = 2 };

// Evaluates the extents and strides of a shape here. Strides of a row-major buffer are products.
static void declare_shape(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  qn__llvm_buffer_slot_t* slot = buffer->user;
  slot->owner = e->fn->serial;
  qn__llvm_dim_t* dims = slot->dims;
  for (uint32_t i = 0; i < buffer->rank; ++i) dims[i].extent = qn__emit_scalar(e, buffer->shape[i]);
  for (uint32_t i = buffer->rank; i-- > 0;) {
    if (buffer->strides) {
      dims[i].stride = qn__emit_scalar(e, buffer->strides[i]);
    } else if (i + 1 == buffer->rank) {
      dims[i].stride = qn__emit_i64(e, 1);
    } else {
      dims[i].stride = LLVMBuildMul(e->fn->builder, dims[i + 1].extent, dims[i + 1].stride, "");
    }
  }
}

// Returns the bytes of a small buffer of constant extents; -1 for any other.
static int64_t constant_bytes(const qn__ir_buffer_t* buffer) {
  const qn__llvm_buffer_slot_t* slot = buffer->user;
  int64_t bytes = qn__dtype_bits(buffer->dtype) / 8;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    int64_t extent;
    if (!qn__emit_const_int(slot->dims[i].extent, &extent) || extent < 0 ||
        __builtin_mul_overflow(bytes, extent, &bytes)) {
      return -1;
    }
  }
  return bytes;
}

// Emits the product of the extents and the element size, and a failure for a negative extent or an
// overflow.
static LLVMValueRef checked_bytes(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  const qn__llvm_buffer_slot_t* slot = buffer->user;
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef bytes = qn__emit_i64(e, qn__dtype_bits(buffer->dtype) / 8);
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    LLVMValueRef extent = slot->dims[i].extent;
    LLVMValueRef args[] = {bytes, extent};
    LLVMValueRef pair =
        qn__llvm_intrinsic(e->fn->builder, "llvm.smul.with.overflow", &e->i64, 1, args, 2);
    LLVMValueRef is_negative = LLVMBuildICmp(b, LLVMIntSLT, extent, qn__emit_i64(e, 0), "");
    LLVMValueRef is_bad = LLVMBuildOr(b, is_negative, LLVMBuildExtractValue(b, pair, 1, ""), "");
    uint32_t site = qn__emit_site(e, (qn_artifact_site_t){.kind = QN_SITE_EXTENT,
                                                          .buffer_id = buffer->origin_id,
                                                          .dim = i,
                                                          .place = buffer->loc.begin});
    qn__emit_require(e, LLVMBuildNot(b, is_bad, ""), site, NULL, extent);
    bytes = LLVMBuildExtractValue(b, pair, 0, "");
  }
  return bytes;
}

static void allocate_workspace(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  qn__llvm_buffer_slot_t* slot = buffer->user;
  LLVMBuilderRef b = e->fn->builder;
  qn__llvm_workspace_t* workspace = QN__ARENA_NEW(e->arena, qn__llvm_workspace_t);
  if (!workspace) {
    e->has_failed = true;
    slot->pointer = LLVMConstNull(e->pointer);
    return;
  }
  assert(e->fn->lanes == 0);  // emit_lanes.c refuses loops that allocate
  LLVMValueRef bytes = checked_bytes(e, buffer);
  bytes = qn__emit_int_min_max(e, QN_DTYPE_I64, false, bytes, qn__emit_i64(e, 1));
  slot->pointer = qn__emit_env_call(e, ENV_ALLOCATE, e->allocate_type, &bytes, 1);
  LLVMValueRef ok = LLVMBuildIsNotNull(b, slot->pointer, "");
  uint32_t site = qn__emit_site(
      e, (qn_artifact_site_t){
             .kind = QN_SITE_MEMORY, .buffer_id = buffer->origin_id, .place = buffer->loc.begin});
  qn__emit_require(e, ok, site, NULL, bytes);
  workspace->slot = qn__emit_alloca(e, e->pointer, 8);
  qn__llvm_entry_state_t state = qn__emit_entry_begin(e);
  LLVMBuildStore(b, LLVMConstNull(e->pointer), workspace->slot);
  qn__emit_entry_end(e, state);
  LLVMBuildStore(b, slot->pointer, workspace->slot);
  workspace->previous = e->fn->workspaces;
  e->fn->workspaces = workspace;
}

void qn__emit_release_workspace(qn__llvm_emit_t* e, const qn__llvm_workspace_t* until,
                                bool is_failing) {
  LLVMBuilderRef b = e->fn->builder;
  for (qn__llvm_workspace_t* w = e->fn->workspaces; w != until; w = w->previous) {
    assert(w);  // `until` is in the list
    if (w->is_released && !is_failing) continue;
    LLVMValueRef pointer = LLVMBuildLoad2(b, e->pointer, w->slot, "");
    qn__llvm_when_t when = {NULL, NULL};
    if (is_failing) {
      LLVMValueRef is_held = LLVMBuildIsNotNull(b, pointer, "");
      when = qn__emit_when_begin(e, is_held, "held", "released");
    }
    qn__emit_env_call(e, ENV_RELEASE, e->release_type, &pointer, 1);
    if (is_failing) {
      (void)qn__emit_when_end(e, when, NULL, NULL);
    } else {
      LLVMBuildStore(b, LLVMConstNull(e->pointer), w->slot);
      w->is_released = true;
    }
  }
}

// Emits the failing block of a function with many workspaces: a loop over their slots.
static void release_all_held(qn__llvm_emit_t* e, LLVMValueRef slots, uint32_t count) {
  LLVMBuilderRef b = e->fn->builder;
  qn__llvm_counter_t counter =
      qn__emit_count_begin(e, qn__emit_i64(e, 0), qn__emit_i64(e, count), 1, NULL);
  // From the newest to the oldest, as at the end of a block.
  LLVMValueRef at = LLVMBuildSub(b, qn__emit_i64(e, (int64_t)count - 1), counter.index, "");
  LLVMValueRef slot = LLVMBuildGEP2(b, e->pointer, slots, &at, 1, "");
  LLVMValueRef pointer = LLVMBuildLoad2(b, e->pointer, slot, "");
  LLVMValueRef is_held = LLVMBuildIsNotNull(b, pointer, "");
  qn__llvm_when_t when = qn__emit_when_begin(e, is_held, "held", "released");
  qn__emit_env_call(e, ENV_RELEASE, e->release_type, &pointer, 1);
  (void)qn__emit_when_end(e, when, NULL, NULL);
  (void)qn__emit_count_end(e, &counter, NULL);
}

// Makes the slot of a workspace an element of an array. Its accesses become volatile: otherwise
// LLVM would carry the pointer in registers to each place that can fail.
static void move_slot(qn__llvm_emit_t* e, LLVMValueRef slot, LLVMValueRef slots, uint32_t index) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef at = qn__emit_i64(e, index);
  for (LLVMUseRef use = LLVMGetFirstUse(slot); use; use = LLVMGetFirstUse(slot)) {
    LLVMValueRef access = LLVMGetUser(use);
    bool is_store = LLVMGetInstructionOpcode(access) == LLVMStore;
    assert(is_store || LLVMGetInstructionOpcode(access) == LLVMLoad);
    LLVMPositionBuilderBefore(b, access);
    LLVMSetOperand(access, is_store ? 1 : 0, LLVMBuildGEP2(b, e->pointer, slots, &at, 1, ""));
    LLVMSetVolatile(access, true);
  }
  LLVMInstructionEraseFromParent(slot);
}

void qn__emit_failing_release(qn__llvm_emit_t* e) {
  // More slots than these cost LLVM a time that is quadratic in their number.
  enum { MAX_SEPARATE_SLOTS = 8 };
  uint32_t count = 0;
  for (const qn__llvm_workspace_t* w = e->fn->workspaces; w; w = w->previous) ++count;
  if (count <= MAX_SEPARATE_SLOTS) {
    qn__emit_release_workspace(e, NULL, true);
    return;
  }
  LLVMBuilderRef b = e->fn->builder;
  LLVMBasicBlockRef fail = LLVMGetInsertBlock(b);
  LLVMPositionBuilderBefore(b, LLVMGetFirstInstruction(e->fn->entry));
  LLVMValueRef slots = LLVMBuildAlloca(b, LLVMArrayType2(e->pointer, count), "workspaces");
  uint32_t index = count;
  for (const qn__llvm_workspace_t* w = e->fn->workspaces; w; w = w->previous) {
    move_slot(e, w->slot, slots, --index);
  }
  assert(index == 0);
  qn__emit_at(e, fail);
  release_all_held(e, slots, count);
}

static void declare_table(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  qn__llvm_buffer_slot_t* slot = buffer->user;
  if (slot->pointer) return;  // made by an earlier copy of the loop body
  uint32_t bits = qn__dtype_bits(buffer->dtype);
  LLVMTypeRef element = LLVMIntTypeInContext(e->context, bits);
  LLVMValueRef* values = qn__arena_alloc_array(e->arena, buffer->element_count + 1, sizeof *values);
  if (!values) {
    e->has_failed = true;
    slot->pointer = LLVMConstNull(e->pointer);
    return;
  }
  for (size_t i = 0; i < buffer->element_count; ++i) {
    const qn__ir_expr_t* literal = buffer->elements[i];
    qn__ir_scalar_t value = {.i = literal->int_value};
    if (literal->kind == QN__EXPR_FLOAT) value.f = literal->float_value;
    values[i] = LLVMConstInt(element, qn__scalar_to_bits(buffer->dtype, value), false);
  }
  char name[256];
  (void)snprintf(name, sizeof name, "%s.table%u", e->function->name, e->table_count++);
  LLVMValueRef table = LLVMConstArray2(element, values, buffer->element_count);
  slot->pointer = LLVMAddGlobal(e->module, LLVMTypeOf(table), name);
  LLVMSetInitializer(slot->pointer, table);
  LLVMSetGlobalConstant(slot->pointer, true);
  LLVMSetLinkage(slot->pointer, LLVMPrivateLinkage);
  LLVMSetUnnamedAddress(slot->pointer, LLVMGlobalUnnamedAddr);
  LLVMSetAlignment(slot->pointer, 64);
}

static void declare_view(qn__llvm_emit_t* e, const qn__ir_buffer_t* view) {
  qn__llvm_buffer_slot_t* slot = view->user;
  slot->shift = qn__emit_start(e, view);
}

void qn__emit_alloc(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* buffer = stmt->alloc.buffer;
  qn__llvm_buffer_slot_t* slot = buffer->user;
  declare_shape(e, buffer);
  if (buffer->scope == QN__SCOPE_VIEW) {
    declare_view(e, buffer);
    return;
  }
  if (buffer->scope == QN__SCOPE_CONST) {
    declare_table(e, buffer);
    return;
  }
  int64_t bytes = constant_bytes(buffer);
  slot->is_private = false;
  int64_t left = QN__EMIT_MAX_STACK_BYTES - e->fn->stack_bytes - e->fn->callee_bytes;
  if (bytes > SMALL_BYTES) left -= RESERVED_BYTES;
  if (buffer->scope == QN__SCOPE_GLOBAL || bytes < 0 || bytes > left) {
    allocate_workspace(e, buffer);
    return;
  }
  LLVMTypeRef element = qn__emit_memory_type(e, buffer->dtype);
  uint64_t count = (uint64_t)bytes / (qn__dtype_bits(buffer->dtype) / 8);
  slot->pointer = qn__emit_alloca(e, LLVMArrayType2(element, count ? count : 1), 64);
  slot->is_private = true;
  e->fn->stack_bytes += bytes;
}
