// SPDX-License-Identifier: Apache-2.0
// ir/encode.c: a numbered body to canonical bytes.
//
// Not here: reading them (decode.c).
//
// The format, version 1, or 2 if a scalar of the module is fixed. Integers are little-endian;
// `varint` is LEB128, `svarint` zigzag LEB128, both in the shortest form; `run` is a varint length
// and that many bytes. `dtype`, `op` and the other enumerations are one byte each, of the values in
// their tables.
//
//   module    "QNIR"  u16 version  u16 0  varint function-count  function*
//   function  u8 'F'  u32 size-of-the-rest  run name  u8 is-fast
//             varint symbol-count  { run name }
//             varint param-count   { param }
//             { shape of each buffer parameter, in order }   // shapes may mention later scalars
//             block
//   param     u8 1  run name  dtype                                              // scalar
//           | u8 3  run name  dtype  svarint value                               // fixed scalar
//           | u8 2  run name  dtype  access  varint rank  varint align-in-bytes  // buffer
//   shape     { expr }  u8 has-strides  { expr }
//   block     stmt*  u8 0
//   stmt      u8 kind, then
//     LET     expr                      STORE   varint buffer  { index expr }  expr
//     ATOMIC  op  u8 has-result  varint buffer  { index expr }  [ expr [ expr ] ]
//     IF      expr block block          LOOP    kind expr expr block
//     WHILE   expr block                BARRIER nothing        ASSERT  expr  run message
//     FENCE   nothing
//     ALLOC   scope  dtype  varint rank  shape
//             and for const: varint element-count  { bits of the dtype's size }
//             and for view:  varint base-buffer  { index expr }
//     REDUCE  kind  varint count  begin end { initial } block { value } [ block { merged } ]
//             and for a scan: block
//   expr      u8 kind, then
//     INT     dtype svarint             FLOAT   dtype, bits of the dtype's size
//     VAR     varint variable           LOAD    varint buffer  { index expr }
//     OP      op { operand }            CAST    dtype expr     BITCAST dtype expr
//     COND    expr expr expr            REDUCE  kind expr expr block expr
//
// Variables and buffers have no names here but the numbers of qn__function_number, which are those
// of their order in the bytes; whatever follows from the rest (the dtype of an operator or a let)
// is not written. All NaNs are written as one.
#include <assert.h>

#include "ir/encode.h"

#include <math.h>

#include "ir/encoding.h"

static void encode_expr(const qn__ir_expr_t* expr, qn__buffer_t* out);
static void encode_block(const qn__ir_block_t* block, qn__buffer_t* out);

static void encode_name(const char* name, qn__buffer_t* out) {
  qn_str_t text = qn__str(name ? name : "");
  qn__buffer_run(out, (qn_span_t){(const uint8_t*)text.data, text.size});
}

static void encode_exprs(qn__ir_expr_t* const* exprs, size_t count, qn__buffer_t* out) {
  for (size_t i = 0; i < count; i++) encode_expr(exprs[i], out);
}

uint64_t qn__literal_bits(const qn__ir_expr_t* literal) {
  qn__ir_scalar_t value = {.i = literal->int_value};
  if (literal->kind == QN__EXPR_FLOAT) {
    value.f = isnan(literal->float_value) ? (double)NAN : literal->float_value;
  }
  return qn__scalar_to_bits(literal->dtype, value);
}

// The bits of a literal, as many bytes as its dtype has.
static void encode_bits(const qn__ir_expr_t* literal, qn__buffer_t* out) {
  uint64_t bits = qn__literal_bits(literal);
  for (size_t i = 0; i < qn_dtype_size_bytes(literal->dtype); i++) {
    qn__buffer_u8(out, (uint8_t)(bits >> (8 * i)));
  }
}

static void encode_expr(const qn__ir_expr_t* expr, qn__buffer_t* out) {
  qn__buffer_u8(out, (uint8_t)expr->kind);
  switch (expr->kind) {
    case QN__EXPR_INT:
      qn__buffer_u8(out, (uint8_t)expr->dtype);
      qn__buffer_svarint(out, expr->int_value);
      break;
    case QN__EXPR_FLOAT:
      qn__buffer_u8(out, (uint8_t)expr->dtype);
      encode_bits(expr, out);
      break;
    case QN__EXPR_VAR:
      qn__buffer_varint(out, expr->var->id);
      break;
    case QN__EXPR_LOAD:
      qn__buffer_varint(out, expr->load.buffer->id);
      break;
    case QN__EXPR_OP:
      qn__buffer_u8(out, (uint8_t)expr->op);
      break;
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      qn__buffer_u8(out, (uint8_t)expr->dtype);
      break;
    case QN__EXPR_COND:
      break;
    case QN__EXPR_REDUCE:
      qn__buffer_u8(out, (uint8_t)expr->reduce.reduce_kind);
      encode_expr(expr->reduce.begin, out);
      encode_expr(expr->reduce.end, out);
      encode_block(&expr->reduce.lets, out);
      encode_expr(expr->reduce.value, out);
      break;
  }
  qn__ir_operands_t operands = qn__expr_operands(expr);
  encode_exprs(operands.items, operands.count, out);
}

static void encode_shape(const qn__ir_buffer_t* buffer, qn__buffer_t* out) {
  encode_exprs(buffer->shape, buffer->rank, out);
  qn__buffer_u8(out, buffer->strides != NULL);
  if (buffer->strides) encode_exprs(buffer->strides, buffer->rank, out);
}

static void encode_alloc(const qn__ir_buffer_t* buffer, qn__buffer_t* out) {
  assert(buffer->scope != QN__SCOPE_PARAM && buffer->rank <= QN__LARGEST_RANK);
  qn__buffer_u8(out, (uint8_t)buffer->scope);
  qn__buffer_u8(out, (uint8_t)buffer->dtype);
  qn__buffer_varint(out, buffer->rank);
  encode_shape(buffer, out);
  if (buffer->scope == QN__SCOPE_CONST) {
    qn__buffer_varint(out, buffer->element_count);
    for (size_t i = 0; i < buffer->element_count; i++) encode_bits(buffer->elements[i], out);
  } else if (buffer->scope == QN__SCOPE_VIEW) {
    qn__buffer_varint(out, buffer->base->id);
    encode_exprs(buffer->base_indices, buffer->base->rank, out);
  }
}

static void encode_several(const qn__ir_several_t* several, qn__buffer_t* out) {
  qn__buffer_u8(out, (uint8_t)several->kind);
  qn__buffer_varint(out, several->count);
  encode_expr(several->begin, out);
  encode_expr(several->end, out);
  encode_exprs(several->initial, several->merged_count, out);
  encode_block(&several->lets, out);
  encode_exprs(several->values, several->count, out);
  if (several->merged_count > 0) encode_block(&several->merge_lets, out);
  encode_exprs(several->merged, several->merged_count, out);
  if (qn__several_is_scan(several->kind)) encode_block(&several->body, out);
}

static void encode_stmt(const qn__ir_stmt_t* stmt, qn__buffer_t* out) {
  qn__buffer_u8(out, (uint8_t)stmt->kind);
  switch (stmt->kind) {
    case QN__STMT_LET:
      encode_expr(stmt->let.value, out);
      break;
    case QN__STMT_STORE:
      qn__buffer_varint(out, stmt->store.buffer->id);
      encode_exprs(stmt->store.indices, stmt->store.buffer->rank, out);
      encode_expr(stmt->store.value, out);
      break;
    case QN__STMT_ATOMIC:
      qn__buffer_u8(out, (uint8_t)stmt->atomic.op);
      qn__buffer_u8(out, stmt->atomic.result != NULL);
      qn__buffer_varint(out, stmt->atomic.buffer->id);
      encode_exprs(stmt->atomic.indices, stmt->atomic.buffer->rank, out);
      if (stmt->atomic.operand) encode_expr(stmt->atomic.operand, out);
      if (stmt->atomic.operand2) encode_expr(stmt->atomic.operand2, out);
      break;
    case QN__STMT_IF:
      encode_expr(stmt->if_.condition, out);
      encode_block(&stmt->if_.then_block, out);
      encode_block(&stmt->if_.else_block, out);
      break;
    case QN__STMT_LOOP:
      qn__buffer_u8(out, (uint8_t)stmt->loop.kind);
      encode_expr(stmt->loop.begin, out);
      encode_expr(stmt->loop.end, out);
      encode_block(&stmt->loop.body, out);
      break;
    case QN__STMT_WHILE:
      encode_expr(stmt->while_.condition, out);
      encode_block(&stmt->while_.body, out);
      break;
    case QN__STMT_ALLOC:
      encode_alloc(stmt->alloc.buffer, out);
      break;
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
      break;
    case QN__STMT_ASSERT:
      encode_expr(stmt->assert_.condition, out);
      encode_name(stmt->assert_.message, out);
      break;
    case QN__STMT_TENSOR:
      (void)QN_NEVER(true);  // passes make it, and encode nothing
      break;
    case QN__STMT_LEAVE:
      qn__buffer_u8(out, (uint8_t)stmt->leave);
      break;
    case QN__STMT_REDUCE:
      encode_several(stmt->several, out);
      break;
  }
}

static void encode_block(const qn__ir_block_t* block, qn__buffer_t* out) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) encode_stmt(stmt, out);
  qn__buffer_u8(out, QN__TAG_END);
}

static void encode_param(const qn__ir_param_t* param, qn__buffer_t* out) {
  const qn__ir_var_t* scalar = param->scalar;
  if (scalar) {
    qn__buffer_u8(out, scalar->is_fixed ? QN__TAG_FIXED : QN__TAG_SCALAR);
    encode_name(scalar->name, out);
    qn__buffer_u8(out, (uint8_t)scalar->dtype);
    if (scalar->is_fixed) qn__buffer_svarint(out, scalar->fixed_value);
    return;
  }
  const qn__ir_buffer_t* buffer = param->buffer;
  assert(buffer && buffer->scope == QN__SCOPE_PARAM);
  qn__buffer_u8(out, QN__TAG_BUFFER);
  encode_name(buffer->name, out);
  qn__buffer_u8(out, (uint8_t)buffer->dtype);
  qn__buffer_u8(out, (uint8_t)buffer->access);
  qn__buffer_varint(out, buffer->rank);
  qn__buffer_varint(out, buffer->align_bytes);
}

static void encode_function(const qn__ir_func_t* function, qn__buffer_t* out) {
  qn__buffer_u8(out, QN__TAG_FUNCTION);
  size_t size_offset = out->size;
  qn__buffer_u32(out, 0);
  size_t begin = out->size;
  encode_name(function->name, out);
  qn__buffer_u8(out, function->is_fast);
  qn__buffer_varint(out, function->symbol_count);
  for (size_t i = 0; i < function->symbol_count; i++) encode_name(function->symbols[i]->name, out);
  qn__buffer_varint(out, function->param_count);
  for (size_t i = 0; i < function->param_count; i++) encode_param(&function->params[i], out);
  for (size_t i = 0; i < function->param_count; i++) {
    if (function->params[i].buffer) encode_shape(function->params[i].buffer, out);
  }
  encode_block(&function->body, out);
  assert(out->has_failed || begin == size_offset + 4);
  size_t size = out->size - begin;
  if (size > UINT32_MAX) out->has_failed = true;
  if (out->has_failed) return;
  for (size_t i = 0; i < 4; i++) out->data[size_offset + i] = (uint8_t)(size >> (8 * i));
}

static bool has_fixed(const qn__ir_body_t* body) {
  for (const qn__ir_func_t* function = body->first; function; function = function->next) {
    for (size_t i = 0; i < function->param_count; i++) {
      const qn__ir_var_t* scalar = function->params[i].scalar;
      if (scalar && scalar->is_fixed) return true;
    }
  }
  return false;
}

void qn__body_encode(const qn__ir_body_t* body, qn__buffer_t* out) {
  qn__buffer_cstr(out, QN__ENCODING_MAGIC);
  qn__buffer_u16(out, has_fixed(body) ? QN__ENCODING_VERSION : QN__ENCODING_VERSION_PLAIN);
  qn__buffer_u16(out, 0);
  qn__buffer_varint(out, body->function_count);
  for (const qn__ir_func_t* function = body->first; function; function = function->next) {
    encode_function(function, out);
  }
}
