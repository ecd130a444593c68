// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_address.c: emits addresses of elements and the checks of their indices.
//
// Indices that are uniform or linear in the lane stay scalars. Not here: the accesses themselves
// (emit_memory.c).
#include "jit/llvm/emit_inner.h"

// Extends an index to i64.
static qn__llvm_value_t index_value(qn__llvm_emit_t* e, const qn__ir_expr_t* expr) {
  qn__llvm_value_t value = qn__emit_expr(e, expr);
  if (qn__dtype_bits(expr->dtype) == 64) return value;
  // A narrow linear index may wrap between two lanes, so it becomes a vector.
  bool is_uniform = qn__emit_is_uniform(value);
  LLVMValueRef narrow = qn__emit_operand(e, value, is_uniform);
  LLVMValueRef v = qn__emit_cast(e, expr->dtype, QN_DTYPE_I64, narrow);
  return qn__emit_value(QN_DTYPE_I64, v, is_uniform);
}

// Emits a failure unless 0 <= index < extent in all active lanes, or `is_excused` (NULL: never).
static void require_below(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, uint32_t dim,
                          qn__llvm_value_t index, LLVMValueRef extent, LLVMValueRef is_excused) {
  bool is_uniform = qn__emit_is_uniform(index);
  LLVMValueRef wide = qn__emit_operand(e, index, is_uniform);
  LLVMValueRef bound = is_uniform ? extent : qn__emit_splat(e, extent, e->fn->lanes);
  // The comparison is unsigned, so that a negative index is beyond every extent.
  LLVMValueRef ok = LLVMBuildICmp(e->fn->builder, LLVMIntULT, wide, bound, "");
  if (is_excused) {
    if (!is_uniform) is_excused = qn__emit_splat(e, is_excused, e->fn->lanes);
    ok = LLVMBuildOr(e->fn->builder, ok, is_excused, "");
  }
  uint32_t site = qn__emit_site(
      e,
      (qn_artifact_site_t){
          .kind = QN_SITE_BOUNDS, .buffer_id = buffer->origin_id, .dim = dim, .place = e->place});
  qn__emit_require(e, ok, site, wide, extent);
}

static void check_index(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, uint32_t dim,
                        qn__llvm_value_t index, LLVMValueRef is_excused) {
  LLVMValueRef extent = qn__emit_extent(e, buffer, dim);
  int64_t value, limit;
  bool is_known = qn__emit_is_uniform(index) && qn__emit_const_int(index.v, &value) &&
                  qn__emit_const_int(extent, &limit) && value >= 0 && value < limit;
  if (!is_known) require_below(e, buffer, dim, index, extent, is_excused);
}

// Returns whether the elements of all lanes exist in a private array, whatever the mask is. A
// uniform index is within the array because some lane is on.
static bool is_inside(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer,
                      const qn__llvm_value_t* indices) {
  const qn__llvm_buffer_slot_t* slot = buffer->user;
  if (!slot->is_private || buffer->scope == QN__SCOPE_VIEW) return false;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    int64_t first, extent, stride = 0;
    if (qn__emit_is_uniform(indices[i]) && !(e->fn->mask && e->fn->can_mask_be_empty)) {
      continue;
    }
    if (indices[i].shape == QN__LLVM_SHAPE_VARYING || !qn__emit_const_int(indices[i].v, &first)) {
      return false;
    }
    if (indices[i].shape == QN__LLVM_SHAPE_LINEAR &&
        !qn__emit_const_int(indices[i].stride, &stride)) {
      return false;
    }
    if (!qn__emit_const_int(qn__emit_extent(e, buffer, i), &extent)) return false;
    int64_t last = first + stride * ((int64_t)e->fn->lanes - 1);
    if (first < 0 || last < 0 || first >= extent || last >= extent) return false;
  }
  return true;
}

// Emits whether a buffer has no elements.
static LLVMValueRef is_empty(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef any = LLVMConstInt(e->i1, 0, false);
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    LLVMValueRef extent = qn__emit_extent(e, buffer, i);
    LLVMValueRef is_zero = LLVMBuildICmp(b, LLVMIntEQ, extent, qn__emit_i64(e, 0), "");
    any = LLVMBuildOr(b, any, is_zero, "");
  }
  return any;
}

// Emits one more than the offset of the last element of a buffer that is no view and not empty.
static LLVMValueRef span_of(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer) {
  assert(buffer->scope != QN__SCOPE_VIEW);
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef size = qn__emit_i64(e, 1);
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    LLVMValueRef extent = qn__emit_extent(e, buffer, i);
    if (!buffer->strides) {
      size = LLVMBuildMul(b, size, extent, "");
      continue;
    }
    LLVMValueRef last = LLVMBuildSub(b, extent, qn__emit_i64(e, 1), "");
    size = LLVMBuildAdd(b, size, LLVMBuildMul(b, last, qn__emit_stride(e, buffer, i), ""), "");
  }
  return size;
}

// Emits a + b * scale for i64 values. `a` may be absent.
static qn__llvm_value_t add_scaled(qn__llvm_emit_t* e, qn__llvm_value_t a, qn__llvm_value_t b,
                                   LLVMValueRef scale) {
  LLVMBuilderRef builder = e->fn->builder;
  assert(b.dtype == QN_DTYPE_I64 && (!a.v || a.dtype == QN_DTYPE_I64));
  int64_t factor;
  bool is_one = qn__emit_const_int(scale, &factor) && factor == 1;
  LLVMValueRef zero = qn__emit_i64(e, 0);
  if (b.shape == QN__LLVM_SHAPE_VARYING) {
    LLVMValueRef v = b.v;
    if (!is_one) v = LLVMBuildMul(builder, v, qn__emit_splat(e, scale, e->fn->lanes), "");
    int64_t constant;
    bool is_alone =
        !a.v || (qn__emit_is_uniform(a) && qn__emit_const_int(a.v, &constant) && constant == 0);
    if (!is_alone) v = LLVMBuildAdd(builder, qn__emit_widen(e, a), v, "");
    return qn__emit_varying(QN_DTYPE_I64, v);
  }
  LLVMValueRef v = is_one ? b.v : LLVMBuildMul(builder, b.v, scale, "");
  LLVMValueRef step = zero;
  if (b.shape == QN__LLVM_SHAPE_LINEAR) {
    step = is_one ? b.stride : LLVMBuildMul(builder, b.stride, scale, "");
  }
  qn__llvm_value_t term = qn__emit_linear(QN_DTYPE_I64, v, step);
  if (!a.v) return term;
  if (a.shape == QN__LLVM_SHAPE_VARYING) {
    return qn__emit_varying(QN_DTYPE_I64, LLVMBuildAdd(builder, a.v, qn__emit_widen(e, term), ""));
  }
  LLVMValueRef first = a.shape == QN__LLVM_SHAPE_LINEAR ? a.stride : zero;
  return qn__emit_linear(QN_DTYPE_I64, LLVMBuildAdd(builder, a.v, v, ""),
                         LLVMBuildAdd(builder, first, step, ""));
}

// Emits the offset of an element from the first one of the root buffer.
static qn__llvm_value_t element_offset(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer,
                                       const qn__llvm_value_t* indices) {
  const qn__llvm_buffer_slot_t* slot = buffer->user;
  qn__llvm_value_t offset = {NULL, NULL, QN_DTYPE_I64, QN__LLVM_SHAPE_UNIFORM};
  // Adds varying parts last, so that the uniform parts are added up as scalars.
  for (int pass = 0; pass < 2; ++pass) {
    if (pass == 0 && buffer->scope == QN__SCOPE_VIEW) {
      if (slot->shift.shape != QN__LLVM_SHAPE_VARYING) offset = qn__emit_view_shift(e, buffer);
    }
    for (uint32_t i = 0; i < buffer->rank; ++i) {
      if ((indices[i].shape == QN__LLVM_SHAPE_VARYING) != (pass == 1)) continue;
      offset = add_scaled(e, offset, indices[i], qn__emit_stride(e, buffer, i));
    }
    if (pass == 1 && buffer->scope == QN__SCOPE_VIEW &&
        slot->shift.shape == QN__LLVM_SHAPE_VARYING) {
      offset = add_scaled(e, offset, slot->shift, qn__emit_i64(e, 1));
    }
  }
  if (!offset.v) offset.v = qn__emit_i64(e, 0);
  return offset;
}

static void evaluate(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer,
                     qn__ir_expr_t* const* indices, LLVMValueRef is_excused,
                     qn__llvm_value_t* out_values) {
  assert(buffer->rank <= QN__LARGEST_RANK);
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    out_values[i] = index_value(e, indices[i]);
    if (qn__emit_checks(e)) check_index(e, buffer, i, out_values[i], is_excused);
  }
}

qn__llvm_value_t qn__emit_start(qn__llvm_emit_t* e, const qn__ir_buffer_t* view) {
  qn__llvm_value_t values[QN__LARGEST_RANK];
  LLVMValueRef is_excused = qn__emit_checks(e) ? is_empty(e, view) : NULL;
  uint32_t outer = e->place;
  e->place = view->loc.begin;
  evaluate(e, view->base, view->base_indices, is_excused, values);
  e->place = outer;
  return element_offset(e, view->base, values);
}

qn__llvm_address_t qn__emit_address(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer,
                                    qn__ir_expr_t* const* indices) {
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  LLVMValueRef base = qn__emit_pointer(e, root);
  qn__llvm_value_t values[QN__LARGEST_RANK];
  evaluate(e, buffer, indices, NULL, values);
  qn__llvm_value_t offset = element_offset(e, buffer, values);
  if (qn__emit_checks(e) && buffer->scope == QN__SCOPE_VIEW) {
    // A view may have any shape, so an index within it does not prove that the element exists.
    require_below(e, root, 0, offset, span_of(e, root), NULL);
  }
  LLVMTypeRef type = qn__emit_memory_type(e, buffer->dtype);
  LLVMValueRef pointer = LLVMBuildGEP2(e->fn->builder, type, base, &offset.v, 1, "");
  bool is_harmless = e->fn->lanes > 0 && is_inside(e, buffer, values);
  return (qn__llvm_address_t){buffer, pointer, offset.stride, offset.shape, is_harmless};
}
