// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_function.c: the LLVM function that is being filled, and values that it takes from
// outside.
//
// A function is a kernel, the body of a parallel loop, or a part of a long one of these. Values
// that are the same throughout it (parameters, symbols, extents, strides, captures) are loaded in
// its entry block, when they are first used, and cached. Not here: statements, the order of
// launches.
#include "jit/llvm/emit_inner.h"

static void add_attributes(qn__llvm_emit_t* e, LLVMValueRef function, bool is_inner) {
  char* cpu = LLVMGetTargetMachineCPU(e->options->machine);
  char* features = LLVMGetTargetMachineFeatureString(e->options->machine);
  qn__llvm_add_text_attribute(function, "target-cpu", cpu);
  if (features[0] != '\0') qn__llvm_add_text_attribute(function, "target-features", features);
  LLVMDisposeMessage(cpu);
  LLVMDisposeMessage(features);
  if (e->options->tune) qn__llvm_add_text_attribute(function, "tune-cpu", e->options->tune);
  static const char* const widths[] = {"128", "256", "512"};
  uint32_t bytes = e->options->vector_bytes;
  const char* width = widths[bytes >= 64 ? 2 : bytes >= 32];
  // Without "min-legal-vector-width", wide vectors in the code would enable wide registers again.
  qn__llvm_add_text_attribute(function, "prefer-vector-width", width);
  qn__llvm_add_text_attribute(function, "min-legal-vector-width", width);
  // LLVM must not replace loops by calls of memset, memcpy or libm.
  qn__llvm_add_text_attribute(function, "no-builtins", "");
  if (e->function->has_tiles) qn__llvm_add_text_attribute(function, QN__EMIT_HAS_TILES, "");
  qn__llvm_add_attribute(function, QN__LLVM_OF_FUNCTION, "nounwind");
  // Has one direct call. The address of a body is taken; a part exists to be compiled alone.
  if (is_inner) qn__llvm_add_attribute(function, QN__LLVM_OF_FUNCTION, "noinline");
  qn__llvm_add_attribute(function, 2, "noalias");  // the closure or the words
  qn__llvm_add_attribute(function, 2, "readonly");
}

// Says that the loaded memory is constant while the function runs.
static void set_invariant(qn__llvm_emit_t* e, LLVMValueRef load) {
  LLVMMetadataRef empty = LLVMMDNodeInContext2(e->context, NULL, 0);
  LLVMSetMetadata(load, e->invariant_kind, LLVMMetadataAsValue(e->context, empty));
}

qn__llvm_function_t* qn__emit_fn_begin(qn__llvm_emit_t* e, const char* name,
                                       qn__llvm_function_kind_t kind) {
  qn__llvm_function_t* fn = QN__ARENA_NEW(e->arena, qn__llvm_function_t);
  if (!fn) {
    e->has_failed = true;
    return NULL;
  }
  fn->parent = e->fn;
  fn->kind = kind;
  fn->can_launch = kind == QN__LLVM_KERNEL || (kind == QN__LLVM_PART && e->fn->can_launch);
  fn->depth = e->fn ? e->fn->depth + 1 : 0;
  fn->stack_bytes = e->fn ? e->fn->stack_bytes : 0;
  assert((kind == QN__LLVM_KERNEL) == (e->fn == NULL));
  assert(fn->depth < QN__EMIT_DEPTHS);
  fn->serial = ++e->serial;
  fn->next_capture = &fn->captures;
  fn->capture_count = 1;  // word 0 holds the words
  LLVMTypeRef type = kind == QN__LLVM_BODY ? e->body_type : e->kernel_type;
  fn->function = LLVMAddFunction(e->module, name, type);
  if (kind != QN__LLVM_KERNEL) LLVMSetLinkage(fn->function, LLVMInternalLinkage);
  add_attributes(e, fn->function, kind != QN__LLVM_KERNEL);
  fn->builder = LLVMCreateBuilderInContext(e->context);
  fn->entry = LLVMAppendBasicBlockInContext(e->context, fn->function, "entry");
  fn->env = LLVMGetParam(fn->function, 0);
  e->fn = fn;
  LLVMPositionBuilderAtEnd(fn->builder, fn->entry);
  if (kind != QN__LLVM_KERNEL) {
    fn->closure = LLVMGetParam(fn->function, 1);
    fn->words = LLVMBuildLoad2(fn->builder, e->pointer, fn->closure, "words");
    set_invariant(e, fn->words);
  } else {
    fn->words = LLVMGetParam(fn->function, 1);
  }
  qn__emit_at(e, qn__emit_block(e, "start"));
  return fn;
}

void qn__emit_fn_end(qn__llvm_emit_t* e) {
  qn__llvm_function_t* fn = e->fn;
  assert(fn->lanes == 0 && !fn->mask && fn->known_count == 0);
  LLVMBuildRet(fn->builder, LLVMConstInt(e->i32, 0, false));
  if (fn->fail) {
    qn__emit_at(e, fn->fail);
    qn__emit_failing_release(e);
    LLVMBuildRet(fn->builder, LLVMConstInt(e->i32, 1, false));
  }
  if (fn->has_launch && !fn->has_loop) {
    qn__llvm_add_text_attribute(fn->function, QN__EMIT_RUNS_ONCE, "");
  }
  LLVMBasicBlockRef start = LLVMGetNextBasicBlock(fn->entry);
  qn__emit_at(e, fn->entry);
  LLVMBuildBr(fn->builder, start);
  LLVMDisposeBuilder(fn->builder);
  e->fn = fn->parent;
  if (!e->fn) return;
  int64_t bytes = fn->stack_bytes + fn->callee_bytes - e->fn->stack_bytes;
  if (bytes > e->fn->callee_bytes) e->fn->callee_bytes = bytes;
}

LLVMBasicBlockRef qn__emit_block(qn__llvm_emit_t* e, const char* name) {
  return LLVMAppendBasicBlockInContext(e->context, e->fn->function, name);
}

void qn__emit_at(qn__llvm_emit_t* e, LLVMBasicBlockRef block) {
  LLVMPositionBuilderAtEnd(e->fn->builder, block);
}

qn__llvm_when_t qn__emit_when_begin(qn__llvm_emit_t* e, LLVMValueRef condition, const char* name,
                                    const char* name_after) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMBasicBlockRef body = qn__emit_block(e, name);
  qn__llvm_when_t when = {LLVMGetInsertBlock(b), qn__emit_block(e, name_after)};
  LLVMBuildCondBr(b, condition, body, when.after);
  qn__emit_at(e, body);
  return when;
}

LLVMValueRef qn__emit_when_end(qn__llvm_emit_t* e, qn__llvm_when_t when, LLVMValueRef value,
                               LLVMValueRef otherwise) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b);
  LLVMBuildBr(b, when.after);
  qn__emit_at(e, when.after);
  return value ? qn__llvm_join(b, otherwise, when.before, value, from) : NULL;
}

LLVMValueRef qn__emit_alloca(qn__llvm_emit_t* e, LLVMTypeRef type, uint32_t align_bytes) {
  qn__llvm_entry_state_t state = qn__emit_entry_begin(e);
  LLVMValueRef slot = LLVMBuildAlloca(e->fn->builder, type, "");
  LLVMSetAlignment(slot, align_bytes);
  qn__emit_entry_end(e, state);
  return slot;
}

qn__llvm_entry_state_t qn__emit_entry_begin(qn__llvm_emit_t* e) {
  qn__llvm_function_t* fn = e->fn;
  qn__llvm_entry_state_t state = {LLVMGetInsertBlock(fn->builder),
                                  fn->lanes,
                                  {fn->mask, fn->can_mask_be_empty},
                                  fn->is_unchecked};
  qn__emit_at(e, fn->entry);
  fn->lanes = 0;
  fn->mask = NULL;
  fn->is_unchecked = true;
  return state;
}

void qn__emit_entry_end(qn__llvm_emit_t* e, qn__llvm_entry_state_t state) {
  e->fn->lanes = state.lanes;
  qn__emit_unmask(e, state.mask);
  e->fn->is_unchecked = state.is_unchecked;
  qn__emit_at(e, state.block);
}

// ------------------------------------------------------------------------------------ cached
// values

static LLVMValueRef cache_get(const qn__llvm_emit_t* e, const qn__llvm_cached_t* cached) {
  uint32_t depth = e->fn->depth;
  assert(depth < QN__EMIT_DEPTHS);
  return cached->serial[depth] == e->fn->serial ? cached->value[depth] : NULL;
}

static LLVMValueRef cache_put(const qn__llvm_emit_t* e, qn__llvm_cached_t* cached,
                              LLVMValueRef value) {
  cached->value[e->fn->depth] = value;
  cached->serial[e->fn->depth] = e->fn->serial;
  return value;
}

// Loads the 8-byte word at `index` of an array that is constant while the function runs.
static LLVMValueRef load_word(qn__llvm_emit_t* e, LLVMValueRef base, uint32_t index,
                              LLVMTypeRef type) {
  LLVMValueRef offset = qn__emit_i64(e, (int64_t)index);
  LLVMValueRef place = LLVMBuildGEP2(e->fn->builder, e->i64, base, &offset, 1, "");
  LLVMValueRef word = LLVMBuildLoad2(e->fn->builder, type, place, "");
  LLVMSetAlignment(word, 8);
  set_invariant(e, word);
  return word;
}

LLVMValueRef qn__emit_capture(qn__llvm_emit_t* e, LLVMValueRef outer) {
  if (LLVMIsConstant(outer)) return outer;
  // Only scalars reach a body or part (requirement 2).
  assert(e->fn->parent && e->fn->parent->lanes == 0);
  qn__llvm_capture_t* capture = QN__ARENA_NEW(e->arena, qn__llvm_capture_t);
  if (!capture) {
    e->has_failed = true;
    return LLVMConstNull(LLVMTypeOf(outer));
  }
  capture->outer = outer;
  *e->fn->next_capture = capture;
  e->fn->next_capture = &capture->next;
  uint32_t index = e->fn->capture_count++;
  qn__llvm_entry_state_t state = qn__emit_entry_begin(e);
  LLVMValueRef inner = load_word(e, e->fn->closure, index, LLVMTypeOf(outer));
  qn__emit_entry_end(e, state);
  return inner;
}

LLVMValueRef qn__emit_closure(qn__llvm_emit_t* e, const qn__llvm_function_t* child) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMTypeRef type = LLVMArrayType2(e->i64, child->capture_count);
  LLVMValueRef closure = qn__emit_alloca(e, type, 16);
  assert(child->parent == e->fn && child->capture_count >= 1);
  LLVMBuildStore(b, e->fn->words, closure);
  int64_t index = 1;
  for (const qn__llvm_capture_t* capture = child->captures; capture; capture = capture->next) {
    LLVMValueRef offset = qn__emit_i64(e, index++);
    LLVMValueRef place = LLVMBuildGEP2(b, e->i64, closure, &offset, 1, "");
    LLVMSetAlignment(LLVMBuildStore(b, capture->outer, place), 8);
  }
  assert(index == child->capture_count);
  return closure;
}

// Returns a value of the function `owner`, an ancestor, as a value of the current function.
static LLVMValueRef import(qn__llvm_emit_t* e, LLVMValueRef value, uint32_t owner,
                           qn__llvm_cached_t* cached) {
  if (owner == e->fn->serial || LLVMIsConstant(value)) return value;
  LLVMValueRef known = cache_get(e, cached);
  if (known) return known;
  qn__llvm_function_t* fn = e->fn;
  e->fn = fn->parent;
  value = import(e, value, owner, cached);
  e->fn = fn;
  return cache_put(e, cached, qn__emit_capture(e, value));
}

// ------------------------------------------------------------------------------------ variables

void qn__emit_bind(qn__llvm_emit_t* e, const qn__ir_var_t* var, qn__llvm_value_t value) {
  qn__llvm_var_slot_t* slot = var->user;
  slot->value = value;
  slot->owner = e->fn->serial;
}

void qn__emit_bind_index(qn__llvm_emit_t* e, const qn__ir_var_t* var, const qn__ir_expr_t* begin,
                         qn__llvm_value_t index) {
  qn__llvm_var_slot_t* slot = var->user;
  slot->is_nonnegative = qn__emit_is_nonnegative(begin);
  qn__emit_bind(e, var, index);
}

// Loads a scalar parameter or symbol, whose bits are zero-extended in its word.
static LLVMValueRef load_param(qn__llvm_emit_t* e, uint32_t index, qn__ir_var_kind_t kind,
                               qn_dtype_t dtype) {
  LLVMTypeRef type = qn__emit_memory_type(e, dtype);
  LLVMValueRef word = load_word(e, e->fn->words, index, type);
  if (kind == QN__VAR_SYMBOL) {
    // The call has checked that extents are not negative.
    LLVMValueRef range[] = {qn__emit_i64(e, 0), qn__emit_i64(e, INT64_MIN)};
    LLVMMetadataRef bounds[] = {LLVMValueAsMetadata(range[0]), LLVMValueAsMetadata(range[1])};
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->context, bounds, 2);
    LLVMSetMetadata(word, e->range_kind, LLVMMetadataAsValue(e->context, node));
  }
  return qn__emit_from_memory(e, dtype, word);
}

qn__llvm_value_t qn__emit_var(qn__llvm_emit_t* e, const qn__ir_var_t* var) {
  qn__llvm_var_slot_t* slot = var->user;
  if (slot->word != UINT32_MAX) {
    LLVMValueRef known = cache_get(e, &slot->cached);
    if (!known) {
      qn__llvm_entry_state_t state = qn__emit_entry_begin(e);
      known = cache_put(e, &slot->cached, load_param(e, slot->word, var->kind, var->dtype));
      qn__emit_entry_end(e, state);
    }
    return qn__emit_uniform(var->dtype, known);
  }
  if (QN_NEVER(slot->owner == 0)) {
    return qn__emit_uniform(var->dtype, qn__emit_undefined(e, var->dtype));
  }
  if (slot->owner == e->fn->serial) return slot->value;
  return qn__emit_uniform(var->dtype, import(e, slot->value.v, slot->owner, &slot->cached));
}

// ------------------------------------------------------------------------------------ buffers

LLVMValueRef qn__emit_pointer(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  qn__llvm_buffer_slot_t* slot = buffer->user;
  if (slot->word == UINT32_MAX) {
    assert(slot->pointer);  // declared before its first use
    return import(e, slot->pointer, slot->owner, &slot->cached_pointer);
  }
  LLVMValueRef known = cache_get(e, &slot->cached_pointer);
  if (known) return known;
  qn__llvm_entry_state_t state = qn__emit_entry_begin(e);
  known = cache_put(e, &slot->cached_pointer, load_word(e, e->fn->words, slot->word, e->pointer));
  qn__emit_entry_end(e, state);
  return known;
}

qn__llvm_value_t qn__emit_view_shift(qn__llvm_emit_t* e, const qn__ir_buffer_t* view) {
  qn__llvm_buffer_slot_t* slot = view->user;
  if (slot->owner == e->fn->serial) return slot->shift;
  return qn__emit_uniform(QN_DTYPE_I64, import(e, slot->shift.v, slot->owner, &slot->cached_shift));
}

// Emits a shape expression of a parameter, in the entry block.
static LLVMValueRef shape_value(qn__llvm_emit_t* e, const qn__ir_expr_t* expr,
                                qn__llvm_cached_t* cached) {
  if (expr->kind == QN__EXPR_INT) return qn__emit_literal(e, expr);
  LLVMValueRef known = cache_get(e, cached);
  if (known) return known;
  qn__llvm_entry_state_t state = qn__emit_entry_begin(e);
  known = cache_put(e, cached, qn__emit_scalar(e, expr));
  qn__emit_entry_end(e, state);
  return known;
}

LLVMValueRef qn__emit_extent(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, uint32_t dim) {
  const qn__llvm_buffer_slot_t* slot = buffer->user;
  assert(dim < buffer->rank);
  qn__llvm_dim_t* at = &slot->dims[dim];
  if (slot->word == UINT32_MAX) return import(e, at->extent, slot->owner, &at->cached_extent);
  return shape_value(e, buffer->shape[dim], &at->cached_extent);
}

LLVMValueRef qn__emit_stride(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, uint32_t dim) {
  const qn__llvm_buffer_slot_t* slot = buffer->user;
  assert(dim < buffer->rank);
  qn__llvm_dim_t* at = &slot->dims[dim];
  if (slot->word == UINT32_MAX) return import(e, at->stride, slot->owner, &at->cached_stride);
  if (buffer->strides) return shape_value(e, buffer->strides[dim], &at->cached_stride);
  if (dim + 1 == buffer->rank) return qn__emit_i64(e, 1);
  LLVMValueRef known = cache_get(e, &at->cached_stride);
  if (known) return known;
  LLVMValueRef extent = qn__emit_extent(e, buffer, dim + 1);
  LLVMValueRef stride = qn__emit_stride(e, buffer, dim + 1);
  qn__llvm_entry_state_t state = qn__emit_entry_begin(e);
  known = cache_put(e, &at->cached_stride, LLVMBuildMul(e->fn->builder, extent, stride, ""));
  qn__emit_entry_end(e, state);
  return known;
}
