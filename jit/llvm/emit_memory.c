// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_memory.c: emits loads and stores in every shape.
//
// Contiguous lanes are one vector access, uniform ones one scalar access; others are gathered and
// scattered, unless they are a few elements apart. If lanes may be inactive, the access is a masked
// intrinsic, which LLVM expands if the target lacks it. A private array is read and written as a
// whole instead, so that LLVM can promote it to registers.
#include "jit/llvm/emit_inner.h"

// With more lanes, a gather is shorter than single loads.
enum { MAX_SINGLE_ACCESSES = 32, MAX_SPREAD_STEP = 4 };

// LLVM looks for neighbours of every store in a block among all others, to merge them: quadratic
// time. Stores of single lanes beyond this many statements in a function are volatile, which keeps
// it from that.
enum { MAX_MERGED_STORES = 16 };

// Returns whether strided lanes are accessed one by one, not by gather and scatter.
static bool is_one_by_one(const qn__llvm_emit_t* e, const qn__llvm_address_t* address) {
  bool is_fast = e->options->is_fast_tier && e->options->has_avx512;
  return !is_fast && e->fn->lanes <= MAX_SINGLE_ACCESSES && address->shape == QN__LLVM_SHAPE_LINEAR;
}

static uint32_t element_bytes(const qn__ir_buffer_t* buffer) {
  return qn__dtype_bits(buffer->dtype) / 8;
}

void qn__emit_annotate(qn__llvm_emit_t* e, LLVMValueRef access, const qn__ir_buffer_t* buffer) {
  const qn__llvm_buffer_slot_t* root = qn__buf_root(buffer)->user;
  if (!root->scope_list || !LLVMIsAInstruction(access)) return;
  LLVMSetMetadata(access, e->alias_scope_kind, root->scope_list);
  if (root->others_list) LLVMSetMetadata(access, e->noalias_kind, root->others_list);
}

static LLVMValueRef align_value(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  return LLVMConstInt(e->i32, element_bytes(buffer), false);
}

// Freezes a load from an array on the stack: an uninitialised element is some value, not LLVM's
// undef, which may differ at each use. A load that is not frozen folds into instructions that
// broadcast it.
static LLVMValueRef settled(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, LLVMValueRef load) {
  const qn__llvm_buffer_slot_t* root = qn__buf_root(buffer)->user;
  return root->is_private && !qn__buf_root(buffer)->is_filled
             ? LLVMBuildFreeze(e->fn->builder, load, "")
             : load;
}

static LLVMValueRef plain_load(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, LLVMTypeRef type,
                               LLVMValueRef pointer) {
  LLVMValueRef load = LLVMBuildLoad2(e->fn->builder, type, pointer, "");
  LLVMSetAlignment(load, element_bytes(buffer));
  qn__emit_annotate(e, load, buffer);
  return settled(e, buffer, load);
}

LLVMValueRef qn__emit_plain_store(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer,
                                  LLVMValueRef value, LLVMValueRef pointer) {
  LLVMValueRef store = LLVMBuildStore(e->fn->builder, value, pointer);
  LLVMSetAlignment(store, element_bytes(buffer));
  qn__emit_annotate(e, store, buffer);
  return store;
}

// Emits the pointers of all lanes.
static LLVMValueRef lane_pointers(qn__llvm_emit_t* e, const qn__llvm_address_t* address) {
  if (address->shape == QN__LLVM_SHAPE_VARYING) return address->pointer;
  LLVMTypeRef type = qn__emit_memory_type(e, address->buffer->dtype);
  LLVMValueRef stride =
      address->shape == QN__LLVM_SHAPE_LINEAR ? address->stride : qn__emit_i64(e, 0);
  LLVMValueRef steps = qn__emit_widen(
      e, (qn__llvm_value_t){qn__emit_i64(e, 0), stride, QN_DTYPE_I64, QN__LLVM_SHAPE_LINEAR});
  return LLVMBuildGEP2(e->fn->builder, type, address->pointer, &steps, 1, "");
}

LLVMValueRef qn__emit_lane_pointer(qn__llvm_emit_t* e, const qn__llvm_address_t* address,
                                   uint32_t lane) {
  LLVMBuilderRef b = e->fn->builder;
  if (address->shape == QN__LLVM_SHAPE_VARYING) {
    return LLVMBuildExtractElement(b, address->pointer, qn__emit_i64(e, lane), "");
  }
  LLVMTypeRef type = qn__emit_memory_type(e, address->buffer->dtype);
  LLVMValueRef offset = LLVMBuildMul(b, address->stride, qn__emit_i64(e, lane), "");
  return LLVMBuildGEP2(b, type, address->pointer, &offset, 1, "");
}

static bool has_step(const qn__llvm_address_t* address, int64_t step) {
  int64_t stride;
  return address->shape == QN__LLVM_SHAPE_LINEAR && qn__emit_const_int(address->stride, &stride) &&
         stride == step;
}

static LLVMValueRef reversed(qn__llvm_emit_t* e, LLVMValueRef vector) {
  uint32_t lanes = e->fn->lanes;
  LLVMValueRef order[QN__EMIT_MAX_LANES];
  assert(lanes <= QN__EMIT_MAX_LANES);
  for (uint32_t i = 0; i < lanes; ++i) order[i] = LLVMConstInt(e->i32, lanes - 1 - i, false);
  LLVMValueRef mask = LLVMConstVector(order, lanes);
  return LLVMBuildShuffleVector(e->fn->builder, vector, LLVMGetPoison(LLVMTypeOf(vector)), mask,
                                "");
}

// Emits the lowest address of lanes with stride -1.
static LLVMValueRef lowest(qn__llvm_emit_t* e, const qn__llvm_address_t* address) {
  LLVMTypeRef type = qn__emit_memory_type(e, address->buffer->dtype);
  LLVMValueRef offset = qn__emit_i64(e, 1 - (int64_t)e->fn->lanes);
  return LLVMBuildGEP2(e->fn->builder, type, address->pointer, &offset, 1, "");
}

// Skips the following code if no lane is active. Without a block afterwards, some lane certainly
// is.
static qn__llvm_when_t guard_begin(qn__llvm_emit_t* e) {
  if (!e->fn->mask || !e->fn->can_mask_be_empty) return (qn__llvm_when_t){NULL, NULL};
  return qn__emit_when_begin(e, qn__llvm_any(e->fn->builder, e->fn->mask), "some", "after");
}

// ------------------------------------------------------------------------------------ loads

// Emits a masked load from `pointers`: consecutive elements from one pointer on, or a
// vector of pointers.
static LLVMValueRef masked_load(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, const char* name,
                                LLVMTypeRef type, LLVMValueRef pointers, LLVMValueRef mask) {
  LLVMTypeRef types[] = {type, LLVMTypeOf(pointers)};
  LLVMValueRef args[] = {pointers, align_value(e, buffer), mask, LLVMConstNull(type)};
  LLVMValueRef load = qn__llvm_intrinsic(e->fn->builder, name, types, 2, args, 4);
  qn__emit_annotate(e, load, buffer);
  return settled(e, buffer, load);
}

static LLVMValueRef load_one_by_one(qn__llvm_emit_t* e, const qn__llvm_address_t* address,
                                    LLVMTypeRef type) {
  LLVMValueRef result = LLVMGetPoison(type);
  for (uint32_t i = 0; i < e->fn->lanes; ++i) {
    LLVMValueRef pointer = qn__emit_lane_pointer(e, address, i);
    LLVMValueRef element = plain_load(e, address->buffer, LLVMGetElementType(type), pointer);
    result = LLVMBuildInsertElement(e->fn->builder, result, element, qn__emit_i64(e, i), "");
  }
  return result;
}

// Returns the constant step of lanes that are loaded together with the elements between them, or 0.
// Where masks are cheap, a few masked loads and shuffles are several times as fast as a gather. No
// element beyond the last lane is touched.
static int64_t spread_step(const qn__llvm_emit_t* e, const qn__llvm_address_t* address) {
  bool has_words = e->options->has_avx2 && element_bytes(address->buffer) == 4;
  if (!(e->options->has_avx512 && element_bytes(address->buffer) >= 2) && !has_words) return 0;
  int64_t most = e->options->has_avx512 ? MAX_SPREAD_STEP : 2;
  for (int64_t step = 2; step <= most; ++step) {
    bool is_short = step * e->fn->lanes <= QN__EMIT_MAX_LANES;
    if (is_short && has_step(address, step)) return step;
  }
  return 0;
}

static LLVMValueRef load_spread(qn__llvm_emit_t* e, const qn__llvm_address_t* address,
                                LLVMTypeRef type, uint32_t step) {
  LLVMBuilderRef b = e->fn->builder;
  uint32_t lanes = e->fn->lanes, size = lanes * step;
  LLVMValueRef spread[QN__EMIT_MAX_LANES], picked[QN__EMIT_MAX_LANES];
  assert(size <= QN__EMIT_MAX_LANES);
  for (uint32_t i = 0; i < size; ++i) {
    spread[i] = LLVMConstInt(e->i32, i % step ? lanes : i / step, false);
  }
  for (uint32_t i = 0; i < lanes; ++i) picked[i] = LLVMConstInt(e->i32, i * step, false);
  LLVMValueRef mask = qn__emit_mask(e);
  mask = LLVMBuildShuffleVector(b, mask, LLVMConstNull(LLVMTypeOf(mask)),
                                LLVMConstVector(spread, size), "");
  LLVMTypeRef wide = LLVMVectorType(LLVMGetElementType(type), size);
  LLVMValueRef all =
      masked_load(e, address->buffer, "llvm.masked.load", wide, address->pointer, mask);
  return LLVMBuildShuffleVector(b, all, LLVMGetPoison(wide), LLVMConstVector(picked, lanes), "");
}

static LLVMValueRef load_lanes(qn__llvm_emit_t* e, const qn__llvm_address_t* address) {
  const qn__ir_buffer_t* buffer = address->buffer;
  assert(e->fn->lanes > 0);
  LLVMTypeRef type = qn__emit_wide(e, qn__emit_memory_type(e, buffer->dtype));
  bool is_masked = e->fn->mask && !address->is_harmless;
  if (has_step(address, 1)) {
    return is_masked
               ? masked_load(e, buffer, "llvm.masked.load", type, address->pointer, e->fn->mask)
               : plain_load(e, buffer, type, address->pointer);
  }
  if (!is_masked && has_step(address, -1)) {
    return reversed(e, plain_load(e, buffer, type, lowest(e, address)));
  }
  int64_t step = spread_step(e, address);
  if (step > 0) return load_spread(e, address, type, (uint32_t)step);
  if (!is_masked && is_one_by_one(e, address)) return load_one_by_one(e, address, type);
  return masked_load(e, buffer, "llvm.masked.gather", type, lane_pointers(e, address),
                     qn__emit_mask(e));
}

// Emits the load of a word of a buffer of smaller numbers.
static qn__llvm_value_t load_word(qn__llvm_emit_t* e, const qn__llvm_address_t* address) {
  const qn__ir_buffer_t* buffer = address->buffer;
  if (address->shape == QN__LLVM_SHAPE_UNIFORM) {
    return qn__emit_uniform(QN_DTYPE_I32, plain_load(e, buffer, e->i32, address->pointer));
  }
  LLVMTypeRef type = qn__emit_wide(e, e->i32);
  if (!e->fn->mask && has_step(address, 4 / element_bytes(buffer))) {
    return qn__emit_varying(QN_DTYPE_I32, plain_load(e, buffer, type, address->pointer));
  }
  return qn__emit_varying(QN_DTYPE_I32, masked_load(e, buffer, "llvm.masked.gather", type,
                                                    lane_pointers(e, address), qn__emit_mask(e)));
}

// Asks the caches for what a load needs later (expr->load.ahead), in all lanes if those are
// neighbours. The address need not exist.
static void prefetch(qn__llvm_emit_t* e, const qn__ir_expr_t* expr,
                     const qn__llvm_address_t* address) {
  enum { READ = 0, FIRST_CACHE = 3, SECOND_CACHE = 2, DATA = 1, LINE_BYTES = 64 };
  LLVMBuilderRef b = e->fn->builder;
  const qn__ir_buffer_t* buffer = expr->load.buffer;
  const bool is_first = expr->load.ahead_cache == QN__FETCH_FIRST;
  int64_t size = (int64_t)qn_dtype_size_bytes(buffer->dtype);
  int64_t bytes = has_step(address, 1) ? size * e->fn->lanes : size;
  LLVMValueRef distance = LLVMBuildMul(b, qn__emit_i64(e, expr->load.ahead),
                                       qn__emit_stride(e, buffer, expr->load.ahead_dim), "");
  LLVMTypeRef element = qn__emit_memory_type(e, buffer->dtype);
  LLVMTypeRef type = LLVMTypeOf(address->pointer);
  LLVMValueRef first = LLVMBuildGEP2(b, element, address->pointer, &distance, 1, "");
  for (int64_t at = 0; at < bytes; at += LINE_BYTES) {
    LLVMValueRef shift = qn__emit_i64(e, at / size);
    LLVMValueRef args[] = {LLVMBuildGEP2(b, element, first, &shift, 1, ""),
                           LLVMConstInt(e->i32, READ, false),
                           LLVMConstInt(e->i32, is_first ? FIRST_CACHE : SECOND_CACHE, false),
                           LLVMConstInt(e->i32, DATA, false)};
    qn__llvm_intrinsic(b, "llvm.prefetch", &type, 1, args, 4);
  }
}

qn__llvm_value_t qn__emit_load(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  const qn__ir_buffer_t* buffer = expr->load.buffer;
  uint32_t outer = e->place;
  e->place = expr->loc.begin;
  qn__llvm_address_t address = qn__emit_address(e, buffer, expr->load.indices);
  e->place = outer;
  if (expr->load.ahead && address.shape != QN__LLVM_SHAPE_VARYING) {
    prefetch(e, expr, &address);
  }
  if (expr->dtype != buffer->dtype) return load_word(e, &address);
  if (address.shape != QN__LLVM_SHAPE_UNIFORM) {
    return qn__emit_varying(buffer->dtype,
                            qn__emit_from_memory(e, buffer->dtype, load_lanes(e, &address)));
  }
  qn__llvm_when_t guard = {NULL, NULL};
  if (!address.is_harmless) guard = guard_begin(e);
  LLVMTypeRef type = qn__emit_memory_type(e, buffer->dtype);
  LLVMValueRef bits = plain_load(e, buffer, type, address.pointer);
  if (guard.after) bits = qn__emit_when_end(e, guard, bits, LLVMConstNull(type));
  return qn__emit_uniform(buffer->dtype, qn__emit_from_memory(e, buffer->dtype, bits));
}

// ------------------------------------------------------------------------------------ stores

static void masked_store(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, const char* name,
                         LLVMValueRef value, LLVMValueRef pointers) {
  LLVMTypeRef types[] = {LLVMTypeOf(value), LLVMTypeOf(pointers)};
  LLVMValueRef args[] = {value, pointers, align_value(e, buffer), qn__emit_mask(e)};
  LLVMValueRef store = qn__llvm_intrinsic(e->fn->builder, name, types, 2, args, 4);
  qn__emit_annotate(e, store, buffer);
}

static void store_lanes(qn__llvm_emit_t* e, const qn__llvm_address_t* address, LLVMValueRef value) {
  LLVMBuilderRef b = e->fn->builder;
  const qn__ir_buffer_t* buffer = address->buffer;
  assert(qn__llvm_lane_count(LLVMTypeOf(value)) == e->fn->lanes);
  if (has_step(address, 1)) {
    if (e->fn->mask && !address->is_harmless) {
      masked_store(e, buffer, "llvm.masked.store", value, address->pointer);
      return;
    }
    if (e->fn->mask) {
      LLVMValueRef old = plain_load(e, buffer, LLVMTypeOf(value), address->pointer);
      value = LLVMBuildSelect(b, e->fn->mask, value, old, "");
    }
    qn__emit_plain_store(e, buffer, value, address->pointer);
    return;
  }
  if (!e->fn->mask && has_step(address, -1)) {
    qn__emit_plain_store(e, buffer, reversed(e, value), lowest(e, address));
    return;
  }
  if (e->fn->mask || !is_one_by_one(e, address)) {
    masked_store(e, buffer, "llvm.masked.scatter", value, lane_pointers(e, address));
    return;
  }
  const qn__llvm_buffer_slot_t* root = qn__buf_root(buffer)->user;
  bool is_apart = !root->is_private && e->fn->single_stores++ >= MAX_MERGED_STORES;
  for (uint32_t i = 0; i < e->fn->lanes; ++i) {
    LLVMValueRef element = LLVMBuildExtractElement(b, value, qn__emit_i64(e, i), "");
    LLVMValueRef store =
        qn__emit_plain_store(e, buffer, element, qn__emit_lane_pointer(e, address, i));
    LLVMSetVolatile(store, is_apart);
  }
}

// Emits a store of all lanes to one element, where the last active lane wins.
static LLVMValueRef last_value(qn__llvm_emit_t* e, qn__llvm_value_t value) {
  if (value.shape == QN__LLVM_SHAPE_UNIFORM) return value.v;
  LLVMValueRef lane =
      e->fn->mask ? qn__emit_last_lane(e, e->fn->mask) : qn__emit_i64(e, (int64_t)e->fn->lanes - 1);
  return LLVMBuildExtractElement(e->fn->builder, qn__emit_widen(e, value), lane, "");
}

void qn__emit_store(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* buffer = stmt->store.buffer;
  qn__llvm_value_t value = qn__emit_expr(e, stmt->store.value);
  qn__llvm_address_t address = qn__emit_address(e, buffer, stmt->store.indices);
  if (address.shape != QN__LLVM_SHAPE_UNIFORM) {
    LLVMValueRef wide = qn__emit_to_memory(e, buffer->dtype, qn__emit_widen(e, value));
    store_lanes(e, &address, wide);
    return;
  }
  qn__llvm_when_t guard = guard_begin(e);  // without an active lane nothing is stored
  LLVMValueRef bits = qn__emit_to_memory(e, buffer->dtype, last_value(e, value));
  qn__emit_plain_store(e, buffer, bits, address.pointer);
  if (guard.after) (void)qn__emit_when_end(e, guard, NULL, NULL);
}
