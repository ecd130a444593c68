// SPDX-License-Identifier: Apache-2.0
// ir/passes/lower_dtypes.c: gives each buffer a dtype that an access of memory has, and each view
// the dtype of its base.
//
//  1. A buffer of a packed dtype becomes one of bytes, with half the last extent: element j is in
//     byte j >> 1. The verifier has seen that rows are even and contiguous, that views begin with a
//     byte, and that no packed element is stored.
//  2. A view of another dtype becomes one of its base's dtype. If its elements are as large as
//  those
//     of the base, loads from it and values stored to it are bitcasts. If they are k times as
//     large, the view gets one more dimension, of extent k: the parts of an element, the lowest
//     first.
//
// In checked builds an assert checks that a view of packed elements begins with a byte. While the
// pass runs, `user` of a buffer is its dtype in the program, for those that it changed.
#include "ir/passes/pass_builder.h"

// Returns the dtype of a buffer in the program.
static qn_dtype_t written_dtype(const qn__ir_buffer_t* buffer) {
  const qn_dtype_t* dtype = buffer->user;
  return dtype ? *dtype : buffer->dtype;
}

static bool is_packed(const qn__ir_buffer_t* buffer) {
  return qn__dtype_is_packed(written_dtype(buffer));
}

// Returns the elements in memory of one element of the program; 1 for packed ones.
static int64_t part_count(const qn__ir_buffer_t* buffer) {
  return (int64_t)(qn_dtype_size_bytes(written_dtype(buffer)) / qn_dtype_size_bytes(buffer->dtype));
}

static qn__ir_expr_t* bitcast(qn__pass_builder_t* pb, qn_dtype_t dtype, qn__ir_expr_t* value) {
  if (!value || value->dtype == dtype) return value;
  qn__ir_expr_t* expr = qn__expr_new(pb->arena, QN__EXPR_BITCAST, dtype, value->loc);
  if (expr) expr->args[0] = value;
  return expr;
}

static qn_dtype_t unsigned_of(qn_dtype_t dtype) {
  switch (qn__dtype_bits(dtype)) {
    case 4:
      return QN_DTYPE_U4;
    case 8:
      return QN_DTYPE_U8;
    case 16:
      return QN_DTYPE_U16;
    case 32:
      return QN_DTYPE_U32;
    default:
      return QN_DTYPE_U64;
  }
}

// Returns the values with one more behind them.
static qn__ir_expr_t** append(qn__pass_builder_t* pb, qn__ir_expr_t* const* values, uint32_t count,
                              int64_t last) {
  qn__ir_expr_t** longer = qn__arena_alloc_array(pb->arena, count + 1U, sizeof *longer);
  if (!longer) return NULL;
  for (uint32_t i = 0; i < count; ++i) longer[i] = values[i];
  longer[count] = qn__pb_int(pb, last);
  return longer;
}

// Changes the dtype of a buffer. Halves the last extent of packed elements; adds the dimension of
// the parts of larger ones.
static void retype(qn__pass_builder_t* pb, qn__ir_buffer_t* buffer, qn_dtype_t dtype) {
  qn_dtype_t* written = qn__arena_alloc_array(pb->arena, 1, sizeof *written);
  if (!written) return;
  *written = buffer->dtype;
  buffer->user = written;
  buffer->dtype = dtype;
  if (is_packed(buffer)) {
    qn__ir_expr_t** last = &buffer->shape[buffer->rank - 1];
    *last = qn__pb_op_int(pb, QN_OP_FLOORDIV, *last, 2);
    return;
  }
  int64_t parts = part_count(buffer);
  if (parts == 1) return;
  buffer->align_bytes = (uint32_t)qn_dtype_size_bytes(dtype);
  for (uint32_t d = 0; buffer->strides && d < buffer->rank; ++d) {
    buffer->strides[d] = qn__pb_op_int(pb, QN_OP_MUL, buffer->strides[d], parts);
  }
  if (buffer->strides) buffer->strides = append(pb, buffer->strides, buffer->rank, 1);
  buffer->shape = append(pb, buffer->shape, buffer->rank, parts);
  buffer->rank++;
}

// Returns indices of the memory of an element: those of its byte, or of its part `part`. `indices`
// are those of the program.
static qn__ir_expr_t** indices_of(qn__pass_builder_t* pb, const qn__ir_buffer_t* buffer,
                                  qn__ir_expr_t* const* indices, int64_t part) {
  uint32_t count = buffer->rank - (part_count(buffer) > 1 ? 1U : 0U);
  qn__ir_expr_t** result = append(pb, indices, count, part);
  if (!result) return NULL;
  for (uint32_t d = 0; d < count; ++d) result[d] = qn__pb_copy(pb, indices[d]);
  if (is_packed(buffer)) {
    qn__ir_expr_t* last = qn__pb_cast(pb, QN_DTYPE_I64, result[count - 1]);
    result[count - 1] = qn__pb_op_int(pb, QN_OP_SHR, last, 1);
  }
  return result;
}

static qn__ir_expr_t* load(qn__pass_builder_t* pb, const qn__ir_expr_t* from, int64_t part) {
  qn__ir_expr_t* expr = qn__expr_new(pb->arena, QN__EXPR_LOAD, from->load.buffer->dtype, from->loc);
  if (!expr) return NULL;
  expr->load.buffer = from->load.buffer;
  expr->load.indices = indices_of(pb, from->load.buffer, from->load.indices, part);
  return expr;
}

// Returns the element of a packed dtype that the program loads.
static qn__ir_expr_t* load_half(qn__pass_builder_t* pb, const qn__ir_expr_t* from) {
  const qn__ir_buffer_t* buffer = from->load.buffer;
  qn__ir_expr_t* index = qn__pb_copy(pb, from->load.indices[buffer->rank - 1]);
  index = qn__pb_cast(pb, QN_DTYPE_I64, index);
  qn__ir_expr_t* shift = qn__pb_op_int(pb, QN_OP_SHL, qn__pb_op_int(pb, QN_OP_AND, index, 1), 2);
  qn__ir_expr_t* byte = bitcast(pb, QN_DTYPE_U8, load(pb, from, 0));
  qn__ir_expr_t* half = qn__pb_op(pb, QN_OP_SHR, byte, qn__pb_cast(pb, QN_DTYPE_U8, shift));
  bool is_signed = from->dtype == QN_DTYPE_I4;
  half = qn__pb_cast(pb, is_signed ? QN_DTYPE_I4 : QN_DTYPE_U4, half);
  return bitcast(pb, from->dtype, half);
}

// Returns the element that the program loads, of its parts.
static qn__ir_expr_t* load_parts(qn__pass_builder_t* pb, const qn__ir_expr_t* from, int64_t count) {
  qn_dtype_t part_dtype = from->load.buffer->dtype;
  qn_dtype_t whole = unsigned_of(from->dtype);
  int64_t part_bits = qn__dtype_bits(part_dtype);
  qn__ir_expr_t* value = NULL;
  for (int64_t i = 0; i < count; ++i) {
    qn__ir_expr_t* part = bitcast(pb, unsigned_of(part_dtype), load(pb, from, i));
    qn__ir_expr_t* shift = qn__pb_cast(pb, whole, qn__pb_int(pb, i * part_bits));
    part = qn__pb_op(pb, QN_OP_SHL, qn__pb_cast(pb, whole, part), shift);
    value = value ? qn__pb_op(pb, QN_OP_OR, value, part) : part;
  }
  return bitcast(pb, from->dtype, value);
}

static bool lower_load(void* self, qn__ir_expr_t** slot) {
  qn__pass_builder_t* pb = self;
  if (!qn__expr_each_child(*slot, lower_load, pb)) return false;
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind != QN__EXPR_LOAD || !expr->load.buffer->user) return true;
  int64_t parts = part_count(expr->load.buffer);
  if (is_packed(expr->load.buffer)) {
    *slot = load_half(pb, expr);
  } else if (parts > 1) {
    *slot = load_parts(pb, expr, parts);
  } else {
    *slot = bitcast(pb, expr->dtype, load(pb, expr, 0));
  }
  return !qn__pb_stopped(pb);
}

// Appends the stores of a store to a view of another dtype.
static void lower_store(qn__pass_builder_t* pb, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  const qn__ir_buffer_t* buffer = stmt->store.buffer;
  qn__ir_expr_t* const* indices = stmt->store.indices;
  int64_t parts = part_count(buffer);
  qn__ir_var_t* whole = NULL;
  if (parts > 1) {
    qn__ir_expr_t* value = bitcast(pb, unsigned_of(written_dtype(buffer)), stmt->store.value);
    whole = qn__pb_let(pb, out, "whole", value);
    // An index may load what the store of an earlier part has changed.
    qn__ir_expr_t** kept = append(pb, indices, buffer->rank - 1, 0);
    for (uint32_t d = 0; kept && d + 1 < buffer->rank; ++d) {
      kept[d] = qn__pb_use(pb, qn__pb_let(pb, out, "index", indices[d]));
    }
    if (qn__pb_stopped(pb)) return;
    indices = kept;
  }
  for (int64_t i = 0; i < parts && !qn__pb_stopped(pb); ++i) {
    qn__ir_expr_t* value = stmt->store.value;
    if (whole) {
      qn__ir_expr_t* shift = qn__pb_int(pb, i * (int64_t)qn__dtype_bits(buffer->dtype));
      value = qn__pb_op(pb, QN_OP_SHR, qn__pb_use(pb, whole), qn__pb_cast(pb, whole->dtype, shift));
      value = qn__pb_cast(pb, unsigned_of(buffer->dtype), value);
    }
    qn__ir_stmt_t* store = qn__stmt_new(pb->arena, QN__STMT_STORE, stmt->loc);
    if (!store) return;
    store->store.buffer = stmt->store.buffer;
    store->store.indices = indices_of(pb, buffer, indices, i);
    store->store.value = bitcast(pb, buffer->dtype, value);
    qn__block_append(out, store);
  }
}

// Appends an assert that the view begins with a byte, unless it has no elements.
static void check_start(qn__pass_builder_t* pb, const qn__ir_buffer_t* view, qn__ir_block_t* out) {
  qn__ir_expr_t* start = qn__pb_copy(pb, view->base_indices[view->base->rank - 1]);
  start = qn__pb_op_int(pb, QN_OP_AND, qn__pb_cast(pb, QN_DTYPE_I64, start), 1);
  qn__ir_expr_t* condition = qn__pb_op_int(pb, QN_OP_EQ, start, 0);
  for (uint32_t d = 0; d < view->rank; ++d) {
    qn__ir_expr_t* extent = qn__pb_copy(pb, view->shape[d]);
    condition = qn__pb_either(pb, qn__pb_op_int(pb, QN_OP_EQ, extent, 0), condition);
  }
  qn__ir_stmt_t* stmt = qn__stmt_new(pb->arena, QN__STMT_ASSERT, (qn__ir_loc_t){0, 0});
  if (!stmt || !condition) return;
  stmt->assert_.condition = condition;
  stmt->assert_.message = "a view begins in the middle of a byte";
  qn__block_append(out, stmt);
}

static void lower_view(qn__pass_builder_t* pb, qn__ir_buffer_t* view, qn__ir_block_t* out) {
  const qn__ir_buffer_t* base = view->base;
  if (is_packed(base) && pb->options->is_checked) check_start(pb, view, out);
  if (base->user) view->base_indices = indices_of(pb, base, view->base_indices, 0);
  if (view->dtype != base->dtype) retype(pb, view, base->dtype);
}

static void lower_block(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(pb);) {
    if (!qn__stmt_each_expr(stmt, lower_load, pb)) return;
    if (stmt->kind == QN__STMT_STORE && stmt->store.buffer->user) {
      lower_store(pb, stmt, block);
      continue;
    }
    if (stmt->kind == QN__STMT_ALLOC) {
      qn__ir_buffer_t* buffer = stmt->alloc.buffer;
      if (buffer->scope == QN__SCOPE_VIEW) {
        lower_view(pb, buffer, block);
      } else if (qn__dtype_is_packed(buffer->dtype)) {
        retype(pb, buffer, QN_DTYPE_U8);
      }
    }
    QN__EACH_BLOCK(stmt, inner) lower_block(pb, inner);
    qn__block_append(block, stmt);
  }
}

// Gives a reference to a view of larger elements room for the index of a part: readers of indices
// count on the buffer's rank, which retype() increases.
static bool make_room(void* self, const qn__ir_ref_t* ref) {
  qn__pass_builder_t* pb = self;
  const qn__ir_buffer_t* buffer = *ref->buffer;
  qn_dtype_t memory = qn__buf_root(buffer)->dtype;
  if (qn_dtype_size_bytes(buffer->dtype) == qn_dtype_size_bytes(memory)) return true;
  *ref->indices = append(pb, *ref->indices, buffer->rank, 0);
  return !qn__pb_stopped(pb);
}

static bool is_other(const qn__ir_stmt_t* stmt) {
  if (stmt->kind != QN__STMT_ALLOC) return false;
  const qn__ir_buffer_t* buffer = stmt->alloc.buffer;
  return qn__dtype_is_packed(buffer->dtype) ||
         (buffer->scope == QN__SCOPE_VIEW && buffer->dtype != buffer->base->dtype);
}

static void lower_function(qn__pass_builder_t* pb) {
  bool has_other = qn__block_any(&pb->function->body, is_other);
  if (has_other && !qn__block_each_ref(&pb->function->body, make_room, pb)) return;
  for (size_t i = 0; i < pb->function->param_count; ++i) {
    qn__ir_buffer_t* buffer = pb->function->params[i].buffer;
    if (!buffer || !qn__dtype_is_packed(buffer->dtype)) continue;
    retype(pb, buffer, QN_DTYPE_U8);
    has_other = true;
  }
  if (has_other && !qn__pb_stopped(pb)) lower_block(pb, &pb->function->body);
}

static const char* check(qn__ir_func_t* function) {
  for (size_t i = 0; i < function->param_count; ++i) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (buffer && qn__dtype_is_packed(buffer->dtype)) return "a packed parameter";
  }
  return qn__block_any(&function->body, is_other) ? "a packed buffer, or a view of another dtype"
                                                  : NULL;
}

const qn__pass_t qn__pass_lower_dtypes = {
    .name = "lower_dtypes",
    .doc = "replaces packed elements by bytes, and views of another dtype by bitcasts",
    .run = lower_function,
    .post = "buffers have dtypes of memory, and views the dtype of their base",
    .check = check,
    .is_alone = true,
};
