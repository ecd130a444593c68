// SPDX-License-Identifier: Apache-2.0
// tests/support/reencode.c: see reencode.h. ir/encode.c describes the bytes.
//
// Variables and buffers are counted where the bytes number them, so that a wrong id is found, too.
#include "tests/support/reencode.h"

#include <stdlib.h>
#include <string.h>

typedef struct writer {
  const qn_module_t* module;
  qn__buffer_t* out;
  qn_met_t* met;
  size_t begin;  // of the module in `out`
  qn_places_t places;
  uint32_t vars;     // that were declared
  uint32_t buffers;  // likewise
} writer_t;

static void require(bool is_true) {
  if (!is_true) abort();
}

static void write_expr(writer_t* w, const qn_expr_t* expr);
static void write_block(writer_t* w, const qn_stmt_t* first);

static void write_text(writer_t* w, const char* text) {
  qn_str_t run = qn__str(text);
  qn__buffer_run(w->out, (qn_span_t){(const uint8_t*)run.data, run.size});
}

static void write_exprs(writer_t* w, const qn_expr_t* const* exprs, size_t count) {
  for (size_t i = 0; i < count; i++) write_expr(w, exprs[i]);
}

static void write_bits(writer_t* w, qn_dtype_t dtype, uint64_t bits) {
  for (size_t i = 0; i < qn_dtype_size_bytes(dtype); i++) {
    qn__buffer_u8(w->out, (uint8_t)(bits >> (8 * i)));
  }
}

static qn_var_info_t describe_var(writer_t* w, const qn_var_t* var) {
  qn_var_info_t info = {.struct_size = sizeof info};
  require(qn_ok(qn_module_var_info(w->module, var, &info)));
  require(info.kind != QN_VAR_NONE && info.dtype != QN_DTYPE_NONE && info.name);
  w->met->vars |= UINT32_C(1) << info.kind;
  return info;
}

static qn_buffer_info_t describe_buffer(writer_t* w, const qn_buffer_t* buffer) {
  qn_buffer_info_t info = {.struct_size = sizeof info};
  require(qn_ok(qn_module_buffer_info(w->module, buffer, &info)));
  w->met->scopes |= UINT32_C(1) << info.scope;
  return info;
}

static qn_expr_info_t describe_expr(writer_t* w, const qn_expr_t* expr) {
  qn_expr_info_t info = {.struct_size = sizeof info};
  require(qn_ok(qn_module_expr_info(w->module, expr, &info)));
  require(info.kind != QN_EXPR_NONE && info.dtype != QN_DTYPE_NONE);
  w->met->exprs |= UINT32_C(1) << info.kind;
  return info;
}

// Declares the variable of the next number, whose value has the dtype.
static void declare(writer_t* w, const qn_var_t* var, qn_var_kind_t kind, qn_dtype_t dtype) {
  qn_var_info_t info = describe_var(w, var);
  require(info.id == w->vars++ && info.kind == kind && info.dtype == dtype);
}

static qn_dtype_t dtype_of(writer_t* w, const qn_expr_t* expr) {
  return describe_expr(w, expr).dtype;
}

static void require_place(const writer_t* w, uint32_t place) {
  if (w->places == QN_PLACES_OTHER) return;
  require(place == (w->places == QN_PLACES_OWN ? w->out->size - w->begin : 0));
}

// ------------------------------------------------------------------------------------ nodes

static void write_expr(writer_t* w, const qn_expr_t* expr) {
  qn_expr_info_t info = describe_expr(w, expr);
  require_place(w, info.place);
  qn__buffer_u8(w->out, (uint8_t)info.kind);
  switch (info.kind) {
    case QN_EXPR_INT:
      qn__buffer_u8(w->out, (uint8_t)info.dtype);
      qn__buffer_svarint(w->out, info.int_value);
      break;
    case QN_EXPR_FLOAT:
      qn__buffer_u8(w->out, (uint8_t)info.dtype);
      write_bits(w, info.dtype, info.bits);
      break;
    case QN_EXPR_VAR: {
      qn_var_info_t var = describe_var(w, info.var);
      require(var.id < w->vars && var.dtype == info.dtype);
      qn__buffer_varint(w->out, var.id);
      break;
    }
    case QN_EXPR_LOAD: {
      qn_buffer_info_t buffer = describe_buffer(w, info.buffer);
      require(buffer.id < w->buffers && buffer.dtype == info.dtype);
      require(buffer.rank == info.arg_count);
      qn__buffer_varint(w->out, buffer.id);
      break;
    }
    case QN_EXPR_OP:
      qn__buffer_u8(w->out, (uint8_t)info.op);
      break;
    case QN_EXPR_CAST:
    case QN_EXPR_BITCAST:
      qn__buffer_u8(w->out, (uint8_t)info.dtype);
      break;
    case QN_EXPR_COND:
      require(info.arg_count == 3 && dtype_of(w, info.args[1]) == info.dtype);
      break;
    case QN_EXPR_REDUCE:
      qn__buffer_u8(w->out, (uint8_t)info.reduce_kind);
      declare(w, info.var, QN_VAR_REDUCE, QN_DTYPE_I64);
      write_expr(w, info.begin);
      write_expr(w, info.end);
      write_block(w, info.lets);
      write_expr(w, info.value);
      require(dtype_of(w, info.value) == info.dtype);
      break;
    case QN_EXPR_NONE:
      abort();
  }
  write_exprs(w, info.args, info.arg_count);
}

static void write_shape(writer_t* w, const qn_buffer_info_t* buffer) {
  write_exprs(w, buffer->shape, buffer->rank);
  qn__buffer_u8(w->out, buffer->strides != NULL);
  if (buffer->strides) write_exprs(w, buffer->strides, buffer->rank);
}

static void write_alloc(writer_t* w, const qn_buffer_t* handle) {
  qn_buffer_info_t buffer = describe_buffer(w, handle);
  qn__buffer_u8(w->out, (uint8_t)buffer.scope);
  qn__buffer_u8(w->out, (uint8_t)buffer.dtype);
  qn__buffer_varint(w->out, buffer.rank);
  write_shape(w, &buffer);
  if (buffer.scope == QN_SCOPE_CONST) {
    qn__buffer_varint(w->out, buffer.element_count);
    for (size_t i = 0; i < buffer.element_count; i++) {
      write_bits(w, buffer.dtype, describe_expr(w, buffer.elements[i]).bits);
    }
  } else if (buffer.scope == QN_SCOPE_VIEW) {
    qn__buffer_varint(w->out, describe_buffer(w, buffer.base).id);
    write_exprs(w, buffer.base_indices, buffer.base_index_count);
  }
  require(buffer.id == w->buffers++);
}

static void write_several(writer_t* w, const qn_stmt_t* stmt) {
  qn_several_info_t info = {.struct_size = sizeof info};
  require(qn_ok(qn_module_several_info(w->module, stmt, &info)));
  qn__buffer_u8(w->out, (uint8_t)info.kind);
  qn__buffer_varint(w->out, info.count);
  declare(w, info.var, QN_VAR_REDUCE, QN_DTYPE_I64);
  for (uint32_t i = 0; i < info.merged_count; i++) {
    declare(w, info.left[i], QN_VAR_LET, dtype_of(w, info.values[i]));
    declare(w, info.right[i], QN_VAR_LET, dtype_of(w, info.values[i]));
  }
  for (uint32_t i = 0; i < info.result_count; i++) {
    declare(w, info.results[i], QN_VAR_LET,
            i < info.count ? dtype_of(w, info.values[i]) : QN_DTYPE_I64);
  }
  write_expr(w, info.begin);
  write_expr(w, info.end);
  write_exprs(w, info.initial, info.merged_count);
  write_block(w, info.lets);
  write_exprs(w, info.values, info.count);
  if (info.merged_count > 0) write_block(w, info.merge_lets);
  write_exprs(w, info.merged, info.merged_count);
  bool is_scan = info.kind == QN_SEVERAL_SCAN || info.kind == QN_SEVERAL_EXCLUSIVE_SCAN;
  require(is_scan || !info.body);
  if (is_scan) write_block(w, info.body);
}

static void write_access(writer_t* w, const qn_stmt_info_t* info) {
  qn_buffer_info_t buffer = describe_buffer(w, info->buffer);
  require(buffer.id < w->buffers && buffer.rank == info->index_count);
  qn__buffer_varint(w->out, buffer.id);
  write_exprs(w, info->indices, info->index_count);
}

static void write_stmt(writer_t* w, const qn_stmt_t* stmt, const qn_stmt_info_t* info) {
  require_place(w, info->place);
  qn__buffer_u8(w->out, (uint8_t)info->kind);
  switch (info->kind) {
    case QN_STMT_LET:
      declare(w, info->var, QN_VAR_LET, dtype_of(w, info->value));
      write_expr(w, info->value);
      break;
    case QN_STMT_STORE:
      write_access(w, info);
      write_expr(w, info->value);
      break;
    case QN_STMT_ATOMIC:
      qn__buffer_u8(w->out, (uint8_t)info->atomic_op);
      qn__buffer_u8(w->out, info->var != NULL);
      if (info->var) {
        declare(w, info->var, QN_VAR_ATOMIC, describe_buffer(w, info->buffer).dtype);
      }
      write_access(w, info);
      if (info->value) write_expr(w, info->value);
      if (info->value2) write_expr(w, info->value2);
      break;
    case QN_STMT_IF:
      write_expr(w, info->condition);
      write_block(w, info->body);
      write_block(w, info->other_body);
      break;
    case QN_STMT_LOOP:
      qn__buffer_u8(w->out, (uint8_t)info->loop_kind);
      declare(w, info->var, QN_VAR_LOOP, QN_DTYPE_I64);
      write_expr(w, info->begin);
      write_expr(w, info->end);
      write_block(w, info->body);
      break;
    case QN_STMT_WHILE:
      write_expr(w, info->condition);
      write_block(w, info->body);
      break;
    case QN_STMT_ALLOC:
      write_alloc(w, info->buffer);
      break;
    case QN_STMT_BARRIER:
    case QN_STMT_FENCE:
      break;
    case QN_STMT_ASSERT:
      write_expr(w, info->condition);
      write_text(w, info->message);
      break;
    case QN_STMT_REDUCE:
      write_several(w, stmt);
      break;
    case QN_STMT_LEAVE:
      qn__buffer_u8(w->out, (uint8_t)info->leave);
      break;
    case QN_STMT_NONE:
      abort();
  }
}

static void write_block(writer_t* w, const qn_stmt_t* first) {
  qn_stmt_info_t info = {.struct_size = sizeof info};
  for (const qn_stmt_t* stmt = first; stmt; stmt = info.next) {
    require(qn_ok(qn_module_stmt_info(w->module, stmt, &info)));
    w->met->stmts |= UINT32_C(1) << info.kind;
    write_stmt(w, stmt, &info);
  }
  qn__buffer_u8(w->out, 0);
}

// ------------------------------------------------------------------------------------ functions

static qn_param_info_t describe_param(const writer_t* w, size_t function, size_t i) {
  qn_param_info_t info = {.struct_size = sizeof info};
  require(qn_ok(qn_module_param_info(w->module, function, i, &info)));
  require(info.is_buffer == (info.buffer != NULL) && info.is_buffer == (info.scalar == NULL));
  return info;
}

static void write_param(writer_t* w, const qn_param_info_t* param) {
  if (param->is_buffer) {
    qn_buffer_info_t buffer = describe_buffer(w, param->buffer);
    require(buffer.id == w->buffers++ && buffer.scope == QN_SCOPE_PARAM);
    qn__buffer_u8(w->out, 2);
    write_text(w, buffer.name);
    qn__buffer_u8(w->out, (uint8_t)buffer.dtype);
    qn__buffer_u8(w->out, (uint8_t)buffer.access);
    qn__buffer_varint(w->out, buffer.rank);
    qn__buffer_varint(w->out, buffer.align_bytes);
    return;
  }
  declare(w, param->scalar, QN_VAR_SCALAR, param->dtype);
  qn_var_info_t scalar = describe_var(w, param->scalar);
  qn__buffer_u8(w->out, scalar.is_fixed ? 3 : 1);
  write_text(w, scalar.name);
  qn__buffer_u8(w->out, (uint8_t)scalar.dtype);
  if (scalar.is_fixed) qn__buffer_svarint(w->out, scalar.fixed_value);
}

static void write_function(writer_t* w, size_t index) {
  qn_function_info_t info = {.struct_size = sizeof info};
  require(qn_ok(qn_module_function_info(w->module, index, &info)));
  w->vars = w->buffers = 0;
  qn__buffer_u8(w->out, 'F');
  size_t size_offset = w->out->size;
  qn__buffer_u32(w->out, 0);
  write_text(w, info.name);
  qn__buffer_u8(w->out, info.is_fast);
  qn__buffer_varint(w->out, info.symbol_count);
  for (size_t i = 0; i < info.symbol_count; i++) {
    declare(w, info.symbols[i], QN_VAR_SYMBOL, QN_DTYPE_I64);
    write_text(w, describe_var(w, info.symbols[i]).name);
  }
  qn__buffer_varint(w->out, info.param_count);
  for (size_t i = 0; i < info.param_count; i++) {
    qn_param_info_t param = describe_param(w, index, i);
    write_param(w, &param);
  }
  for (size_t i = 0; i < info.param_count; i++) {
    qn_param_info_t param = describe_param(w, index, i);
    if (!param.is_buffer) continue;
    qn_buffer_info_t buffer = describe_buffer(w, param.buffer);
    write_shape(w, &buffer);
  }
  write_block(w, info.body);
  require(w->vars == info.var_count && w->buffers == info.buffer_count && !w->out->has_failed);
  uint32_t size = (uint32_t)(w->out->size - size_offset - 4);
  for (size_t i = 0; i < 4; i++) w->out->data[size_offset + i] = (uint8_t)(size >> (8 * i));
}

static bool has_fixed(const writer_t* w) {
  for (size_t f = 0; f < qn_module_function_count(w->module); f++) {
    for (size_t i = 0; i < qn_module_function_param_count(w->module, f); i++) {
      if (describe_param(w, f, i).is_fixed) return true;
    }
  }
  return false;
}

void qn_reencode(const qn_module_t* module, qn_places_t places, qn__buffer_t* out,
                 qn_met_t* out_met) {
  qn_met_t met = {0};
  writer_t w = {.module = module, .out = out, .met = &met, .begin = out->size, .places = places};
  qn__buffer_cstr(out, "QNIR");
  qn__buffer_u16(out, has_fixed(&w) ? 2 : 1);
  qn__buffer_u16(out, 0);
  qn__buffer_varint(out, qn_module_function_count(module));
  for (size_t i = 0; i < qn_module_function_count(module); i++) write_function(&w, i);
  if (out_met) *out_met = met;
}
