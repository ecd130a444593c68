// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_index.c: prints linear indices of elements, and their checks.
//
// A linear index is an int in a narrow kernel and a qn_i64 in a wide one. Checked builds have the
// same checks as the CPU's code (jit/llvm/emit_address.c): each index against its extent, and the
// offset through a view also against the buffer below.
#include "jit/gpu/print_inner.h"

#include <assert.h>

int64_t qn__kprint_element_count(const qn__ir_buffer_t* buffer) {
  int64_t count = 1;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    const qn__ir_expr_t* extent = buffer->shape[i];
    if (QN_NEVER(extent->kind != QN__EXPR_INT)) return 0;
    if (__builtin_mul_overflow(count, extent->int_value, &count)) return 0;
  }
  return count;
}

// ---- arithmetic of indices

static bool is_literal(const qn__ir_expr_t* expr, int64_t value) {
  return expr->kind == QN__EXPR_INT && expr->int_value == value;
}

static const char* sum(qn__gpu_printer_t* p, const char* a, const char* b) {
  return a ? qn__kprint_text(p, "(%s + %s)", a, b) : b;
}

// Prints i0 * s0 + i1 * s1 + ..., in the type of qn__kprint_ring; NULL: 0. Row-major indices are
// combined from the outside in, which needs no products of extents.
static const char* offset_in(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                             const char* const* indices) {
  const char* total = NULL;
  bool is_narrow = p->kernel->is_narrow;
  const qn__gpu_view_t* view = buffer->scope == QN__SCOPE_VIEW ? p->views[buffer->id] : NULL;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    if (!buffer->strides) {
      if (total) {
        total =
            qn__kprint_text(p, "(%s * %s)", total, qn__kprint_ring(p, buffer->shape[i], is_narrow));
      }
      if (strcmp(indices[i], "0") == 0 || strcmp(indices[i], "0u") == 0) continue;
      total = sum(p, total, indices[i]);
      continue;
    }
    if (is_literal(buffer->strides[i], 0)) continue;
    const char* stride =
        view ? view->strides[i] : qn__kprint_ring(p, buffer->strides[i], is_narrow);
    total = sum(p, total,
                is_literal(buffer->strides[i], 1)
                    ? indices[i]
                    : qn__kprint_text(p, "(%s * %s)", indices[i], stride));
  }
  return total;
}

// ---- checks

void qn__kprint_require(qn__gpu_printer_t* p, const char* condition, uint32_t site,
                        const char* index, const char* extent, bool is_wide) {
  p->has_fail = true;
  qn__kprint_open(p, p->is_predicated ? "if (qn_alive && !(%s))" : "if (!(%s))", condition);
  if (!index) is_wide = false;
  p->dialect->fail(p, site, index ? index : "0", extent ? extent : "0", is_wide);
  qn__kprint_line(p, p->is_predicated ? "qn_alive = false;" : "return;");
  qn__kprint_close(p);
}

static bool is_extent_narrow(const qn__gpu_printer_t* p, const qn__ir_expr_t* extent) {
  return p->kernel->is_narrow && (qn__kprint_is_narrow(p, extent) || extent->kind == QN__EXPR_INT);
}

// Prints the condition that a buffer has no elements; NULL if it has some.
static const char* is_empty(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  const char* any = NULL;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    const qn__ir_expr_t* extent = buffer->shape[i];
    if (extent->kind == QN__EXPR_INT && extent->int_value != 0) continue;
    bool is_narrow = is_extent_narrow(p, extent);
    const char* is_zero = qn__kprint_text(p, "%s == %s", qn__kprint_i64(p, extent, is_narrow),
                                          qn__kprint_int(p, QN_DTYPE_I64, is_narrow, 0));
    any = any ? qn__kprint_text(p, "%s || %s", any, is_zero) : is_zero;
  }
  return any;
}

// Prints an index checked against its extent, and returns its name. The comparison is unsigned, so
// that negative indices are beyond every extent. Any index will do where `excuse` (NULL: never)
// holds.
static const char* check_index(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, uint32_t dim,
                               const qn__ir_expr_t* index, const char* excuse) {
  const qn__ir_expr_t* extent = buffer->shape[dim];
  bool is_certain = index->kind == QN__EXPR_INT && extent->kind == QN__EXPR_INT &&
                    index->int_value >= 0 && index->int_value < extent->int_value;
  if (is_certain) return qn__kprint_ring(p, index, p->kernel->is_narrow);
  bool is_small =
      index->dtype != QN_DTYPE_I64 && index->dtype != QN_DTYPE_U64 && index->dtype != QN_DTYPE_U32;
  bool is_index_narrow = p->kernel->is_narrow &&
                         (index->dtype == QN_DTYPE_I64 ? qn__kprint_is_narrow(p, index) : is_small);
  bool is_narrow = is_index_narrow && is_extent_narrow(p, extent);
  const char* type = is_narrow ? "int" : "qn_i64";
  const char* name = qn__kprint_name(p, type, qn__kprint_i64(p, index, is_narrow));
  const char* bound = qn__kprint_name(p, type, qn__kprint_i64(p, extent, is_narrow));
  const char* unsigned_type = is_narrow ? "uint" : "qn_u64";
  uint32_t site = qn__kprint_site(
      p,
      (qn_artifact_site_t){
          .kind = QN_SITE_BOUNDS, .buffer_id = buffer->origin_id, .dim = dim, .place = p->place});
  const char* condition =
      qn__kprint_text(p, "%s(%s) < %s(%s)", unsigned_type, name, unsigned_type, bound);
  if (excuse) condition = qn__kprint_text(p, "%s || %s", excuse, condition);
  qn__kprint_require(p, condition, site, name, bound, !is_narrow);
  name = qn__kprint_adapt(p, name, is_narrow, p->kernel->is_narrow);
  if (p->dialect->wraps_signed) return name;
  return qn__kprint_text(p, p->kernel->is_narrow ? "uint(%s)" : "qn_u64(%s)", name);
}

// Prints one more than the linear index of the last element of a root buffer.
static const char* span_of(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  bool is_narrow = p->kernel->is_narrow;
  const char* one = qn__kprint_int(p,
                                   p->dialect->wraps_signed ? QN_DTYPE_I64
                                   : is_narrow              ? QN_DTYPE_U32
                                                            : QN_DTYPE_U64,
                                   is_narrow, 1);
  const char* size = one;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    const char* extent = qn__kprint_ring(p, buffer->shape[i], is_narrow);
    if (!buffer->strides) {
      size = qn__kprint_text(p, "(%s * %s)", size, extent);
      continue;
    }
    size = qn__kprint_text(p, "(%s + (%s - %s) * %s)", size, extent, one,
                           qn__kprint_ring(p, buffer->strides[i], is_narrow));
  }
  return qn__kprint_unring(p, size, is_narrow);
}

// Checks the offset through a view. A view may have any shape, so an index within it does not prove
// that the element exists.
static const char* check_offset(qn__gpu_printer_t* p, const qn__ir_buffer_t* root,
                                const char* offset) {
  const char* type = qn__kprint_index_type(p);
  const char* name = qn__kprint_name(p, type, offset);
  const char* bound = qn__kprint_name(p, type, span_of(p, root));
  const char* unsigned_type = p->kernel->is_narrow ? "uint" : "qn_u64";
  uint32_t site = qn__kprint_site(
      p, (qn_artifact_site_t){
             .kind = QN_SITE_BOUNDS, .buffer_id = root->origin_id, .place = p->place});
  qn__kprint_require(
      p, qn__kprint_text(p, "%s(%s) < %s(%s)", unsigned_type, name, unsigned_type, bound), site,
      name, bound, !p->kernel->is_narrow);
  return name;
}

// ---- accesses

// Prints the linear index of an element in the root, in the type of qn__kprint_ring; NULL: 0.
// `view` (or NULL) is the one that begins at this element.
static const char* ring_offset(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                               qn__ir_expr_t* const* indices, const qn__ir_buffer_t* view,
                               const qn__ir_buffer_t** out_root) {
  const char** texts = qn__arena_alloc_array(p->arena, buffer->rank + 1U, sizeof *texts);
  if (!texts) {
    qn__kprint_no_memory(p);
    *out_root = buffer;
    return NULL;
  }
  const char* excuse = view && p->program->is_checked ? is_empty(p, view) : NULL;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    texts[i] = p->program->is_checked ? check_index(p, buffer, i, indices[i], excuse)
                                      : qn__kprint_ring(p, indices[i], p->kernel->is_narrow);
  }
  const char* offset = offset_in(p, buffer, texts);
  if (buffer->scope != QN__SCOPE_VIEW) {
    *out_root = buffer;
    return offset;
  }
  const qn__gpu_view_t* printed = p->views[buffer->id];
  const char* shift = NULL;
  if (printed) {
    *out_root = qn__buf_root(buffer);
    shift = printed->shift;
  } else {
    // The host declares the view, so its expressions consist of symbols only.
    shift = ring_offset(p, buffer->base, buffer->base_indices, buffer, out_root);
  }
  if (!shift) return offset;
  return offset ? qn__kprint_text(p, "(%s + %s)", shift, offset) : shift;
}

static const char* zero(qn__gpu_printer_t* p) {
  return qn__kprint_int(p, QN_DTYPE_I64, p->kernel->is_narrow, 0);
}

// Finds the linear index in the root if it is a constant of the text. Products with a zero index
// are not printed, so their extents need not be constant.
static bool constant_offset(const qn__ir_buffer_t* buffer, qn__ir_expr_t* const* indices,
                            int64_t* out_offset) {
  int64_t offset = 0;
  for (uint32_t i = 0; i < buffer->rank; ++i) {
    const qn__ir_expr_t* factor = buffer->strides ? buffer->strides[i] : buffer->shape[i];
    qn__ir_scalar_t index, by = {.i = 0};
    if (!qn__expr_fold(indices[i], &index)) return false;
    int64_t* scaled = buffer->strides ? &index.i : &offset;
    if (*scaled != 0 && !qn__expr_fold(factor, &by)) return false;
    if (__builtin_mul_overflow(*scaled, by.i, scaled) ||
        __builtin_add_overflow(offset, index.i, &offset)) {
      return false;
    }
  }
  int64_t shift = 0;
  if (buffer->scope == QN__SCOPE_VIEW &&
      !constant_offset(buffer->base, buffer->base_indices, &shift)) {
    return false;
  }
  return !__builtin_add_overflow(offset, shift, out_offset);
}

// Returns whether a constant index is outside of the array. GLSL compilers reject such an access
// even in unreachable code, such as the guarded, unrolled tail of a loop. (In checked builds a
// check before the access leaves the kernel.)
static bool is_certainly_outside(const qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                                 qn__ir_expr_t* const* indices) {
  int64_t offset;
  if (!p->dialect->is_glsl || !constant_offset(buffer, indices, &offset)) return false;
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  bool has_size = root->scope != QN__SCOPE_PARAM && root->scope != QN__SCOPE_GLOBAL;
  return offset < 0 || (has_size && offset >= qn__kprint_element_count(root));
}

const char* qn__kprint_index(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* const* indices, const qn__ir_buffer_t** out_root) {
  bool is_plain = buffer->rank == 1 && !buffer->strides && buffer->scope != QN__SCOPE_VIEW;
  bool is_outside = is_certainly_outside(p, buffer, indices);
  if (is_plain && !p->program->is_checked && !is_outside) {
    *out_root = buffer;
    return qn__kprint_bare(p, qn__kprint_i64(p, indices[0], p->kernel->is_narrow));
  }
  const char* offset = ring_offset(p, buffer, indices, NULL, out_root);
  const char* index = offset ? qn__kprint_unring(p, offset, p->kernel->is_narrow) : zero(p);
  if (p->program->is_checked && buffer->scope == QN__SCOPE_VIEW) {
    index = check_offset(p, *out_root, index);
  }
  return is_outside ? zero(p) : index;
}

static bool is_stable(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)walker;
  return expr->kind != QN__EXPR_LOAD && expr->kind != QN__EXPR_REDUCE;
}

void qn__kprint_view(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  qn__gpu_view_t* view = QN__ARENA_NEW(p->arena, qn__gpu_view_t);
  const char** strides = qn__arena_alloc_array(p->arena, buffer->rank + 1U, sizeof *strides);
  if (!view || !strides || QN_NEVER(buffer->id >= p->buffer_count)) {
    qn__kprint_no_memory(p);
    return;
  }
  assert(buffer->scope == QN__SCOPE_VIEW);
  bool is_narrow = p->kernel->is_narrow;
  bool wraps = p->dialect->wraps_signed;
  const char* type = wraps ? qn__kprint_index_type(p) : is_narrow ? "uint" : "qn_u64";
  const qn__ir_buffer_t* root;
  const char* shift = ring_offset(p, buffer->base, buffer->base_indices, buffer, &root);
  view->shift = shift ? qn__kprint_name(p, type, shift) : NULL;
  for (uint32_t i = 0; buffer->strides && i < buffer->rank; ++i) {
    qn__ir_walker_t walker = {NULL, is_stable, NULL};
    strides[i] = qn__kprint_ring(p, buffer->strides[i], is_narrow);
    if (!qn__walk_expr(&walker, buffer->strides[i])) {
      strides[i] = qn__kprint_name(p, type, strides[i]);
    }
  }
  view->strides = strides;
  p->views[buffer->id] = view;
}

const char* qn__kprint_array_index(qn__gpu_printer_t* p, const char* index) {
  bool is_cut = p->dialect->is_glsl && !p->kernel->is_narrow;
  return is_cut ? qn__kprint_text(p, "int(%s)", index) : index;
}

const char* qn__kprint_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                            qn__ir_expr_t* const* indices) {
  const char* lane = qn__kprint_wide_load(p, buffer, indices);
  if (lane) return lane;
  const qn__ir_buffer_t* root;
  const char* index = qn__kprint_index(p, buffer, indices, &root);
  assert(root->scope != QN__SCOPE_VIEW);
  if (root->scope == QN__SCOPE_CONST) qn__kprint_table(p, root);
  if (root->scope == QN__SCOPE_CONST || root->scope == QN__SCOPE_LOCAL) {
    index = qn__kprint_alive_index(p, qn__kprint_array_index(p, index));
  }
  const char* name = qn__kprint_buffer(p, root);
  if (root->scope == QN__SCOPE_LOCAL) return qn__kprint_text(p, "%s[%s]", name, index);
  if (root->scope != QN__SCOPE_CONST) {
    return qn__kprint_alive_value(p, root->dtype, p->dialect->load(p, root, index));
  }
  const char* element = qn__kprint_text(p, "%s[%s]", name, index);
  if (!qn__dtype_is_float(root->dtype)) return element;
  qn_dtype_t bits = root->dtype == QN_DTYPE_F64   ? QN_DTYPE_U64
                    : root->dtype == QN_DTYPE_F32 ? QN_DTYPE_U32
                                                  : QN_DTYPE_U16;
  return qn__kprint_bitcast(p, bits, false, root->dtype, false, element);
}
