// SPDX-License-Identifier: Apache-2.0
// ir/decode.c: reads canonical bytes into a body. encode.c describes the format.
//
// The bytes may come from a file or a network and are not trusted:
//
// 1. Each count is at most the number of bytes left, divided by the least size of an item. A wrong
//    count cannot make the decoder allocate much more than it was given.
// 2. Nesting has a limit, since the readers are recursive.
// 3. Each enumeration is looked up in its table, and each number of a variable or buffer must have
//    been declared before its use.
// 4. The decoder keeps the first error. All readers then return NULL or false at once.
//
// The result is a tree that the verifier can walk. It is not yet a valid module: the verifier must
// check types, scopes and places.
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/reader.h"
#include "ir/encode.h"
#include "ir/encoding.h"

typedef struct decoder {
  qn__reader_t reader;
  qn__arena_t* arena;
  // Variables and buffers of the current function, by number. NULL: the number is reserved, but not
  // visible yet.
  qn__ir_var_t** vars;
  size_t var_count;
  size_t var_capacity;
  qn__ir_buffer_t** buffers;
  size_t buffer_count;
  size_t buffer_capacity;
  uint32_t depth;
  bool has_failed;
  char message[96];  // the first error; "" when memory ran out
} decoder_t;

static qn__ir_expr_t* read_expr(decoder_t* d);
static bool read_block(decoder_t* d, qn__ir_block_t* out_block);

// Records an error, unless there is one already. Returns NULL, so that readers of pointers can
// return its result.
QN_PRINTF(2, 3) static void* fail(decoder_t* d, const char* format, ...) {
  if (d->has_failed) return NULL;
  d->has_failed = true;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(d->message, sizeof d->message, format, arguments);
  va_end(arguments);
  return NULL;
}

static void* fail_memory(decoder_t* d) {
  d->has_failed = true;
  return NULL;
}

static bool is_failed(decoder_t* d) {
  if (d->reader.has_overrun) (void)fail(d, "they end too early or hold a malformed number");
  return d->has_failed;
}

// ------------------------------------------------------------------------------------ small things

// Returns the place of the bytes that were read since `begin`.
static qn__ir_loc_t place_since(const decoder_t* d, size_t begin) {
  if (d->reader.offset > UINT32_MAX) return (qn__ir_loc_t){0, 0};
  return (qn__ir_loc_t){(uint32_t)begin, (uint32_t)(d->reader.offset - begin)};
}

static bool read_flag(decoder_t* d) {
  uint8_t value = qn__read_u8(&d->reader);
  if (value > 1) (void)fail(d, "a flag is %u", (unsigned)value);
  return value == 1;
}

// Reads a count of items of at least `size_bytes` each (rule 1).
static size_t read_count(decoder_t* d, const char* what, size_t size_bytes) {
  uint64_t count = qn__read_varint(&d->reader);
  if (count > qn__reader_left(&d->reader) / size_bytes) {
    (void)fail(d, "%" PRIu64 " %s in %zu bytes", count, what, qn__reader_left(&d->reader));
    return 0;
  }
  return (size_t)count;
}

static uint32_t read_rank(decoder_t* d) {
  size_t rank = read_count(d, "dimensions", 1);
  if (rank <= QN__LARGEST_RANK) return (uint32_t)rank;
  (void)fail(d, "rank %zu, the limit is %d", rank, QN__LARGEST_RANK);
  return 0;
}

static qn_dtype_t read_dtype(decoder_t* d) {
  uint8_t value = qn__read_u8(&d->reader);
  if (value > QN_DTYPE_NONE && value < QN_DTYPE_COUNT) return (qn_dtype_t)value;
  (void)fail(d, "dtype %u", (unsigned)value);
  return QN_DTYPE_NONE;
}

static const char* read_text(decoder_t* d) {
  qn_span_t run = qn__read_run(&d->reader);
  if (is_failed(d)) return NULL;
  char* text = qn__arena_cstr(d->arena, (qn_str_t){(const char*)run.data, run.size});
  return text ? text : fail_memory(d);
}

// ------------------------------------------------------------------------------------ declarations

// Reserves the next number of a variable. Numbers follow the order of the bytes. Reserving and
// declaring are separate, since a loop's variable is numbered before its bounds, but visible only
// after them. On failure the number means nothing.
static size_t reserve_var(decoder_t* d) {
  void* items = d->vars;
  if (!qn__grow(d->arena->allocator, &items, &d->var_capacity, d->var_count + 1, sizeof *d->vars)) {
    (void)fail_memory(d);
    return 0;
  }
  d->vars = items;
  d->vars[d->var_count] = NULL;
  return d->var_count++;
}

// Makes the variable of a reserved number visible. `name` NULL: a local, named after its number.
static qn__ir_var_t* declare_var(decoder_t* d, size_t number, qn__ir_var_kind_t kind,
                                 qn_dtype_t dtype, const char* name) {
  if (is_failed(d)) return NULL;
  assert(number < d->var_count && !d->vars[number]);
  char local[24];
  (void)snprintf(local, sizeof local, "v%zu", number);
  qn__ir_var_t* var = qn__var_new(d->arena, kind, dtype, name ? name : local);
  if (!var) return fail_memory(d);
  var->id = (uint32_t)number;
  return d->vars[number] = var;
}

static qn__ir_buffer_t* declare_buffer(decoder_t* d, qn__ir_buffer_t* buffer) {
  void* items = d->buffers;
  if (!qn__grow(d->arena->allocator, &items, &d->buffer_capacity, d->buffer_count + 1,
                sizeof *d->buffers)) {
    return fail_memory(d);
  }
  assert(d->buffer_count < d->buffer_capacity && d->buffer_count < UINT32_MAX);
  d->buffers = items;
  buffer->id = buffer->origin_id = (uint32_t)d->buffer_count;
  return d->buffers[d->buffer_count++] = buffer;
}

static qn__ir_var_t* read_var(decoder_t* d) {
  uint64_t number = qn__read_varint(&d->reader);
  if (number < d->var_count && d->vars[number]) return d->vars[number];
  return fail(d, "variable %" PRIu64 " is used before it is declared", number);
}

static qn__ir_buffer_t* read_buffer(decoder_t* d) {
  uint64_t number = qn__read_varint(&d->reader);
  if (number < d->buffer_count) return d->buffers[number];
  return fail(d, "buffer %" PRIu64 " is used before it is declared", number);
}

// ------------------------------------------------------------------------------------ expressions

static bool read_args(decoder_t* d, qn__ir_expr_t** out_args, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!(out_args[i] = read_expr(d))) return false;
  }
  return true;
}

static qn__ir_expr_t** read_exprs(decoder_t* d, size_t count) {
  qn__ir_expr_t** exprs = qn__arena_alloc_array(d->arena, count, sizeof(qn__ir_expr_t*));
  if (!exprs) return fail_memory(d);
  return read_args(d, exprs, count) ? exprs : NULL;
}

static qn__ir_expr_t* read_literal_bits(decoder_t* d, qn_dtype_t dtype) {
  uint64_t bits = 0;
  for (size_t i = 0; i < qn_dtype_size_bytes(dtype); i++) {
    bits |= (uint64_t)qn__read_u8(&d->reader) << (8 * i);
  }
  qn__ir_scalar_t value = qn__scalar_from_bits(dtype, bits);
  qn__ir_expr_t* expr = qn__dtype_is_real(dtype) ? qn__expr_float(d->arena, dtype, value.f)
                                                 : qn__expr_int(d->arena, dtype, value.i);
  return expr ? expr : fail_memory(d);
}

static qn__ir_expr_t* read_op(decoder_t* d) {
  uint8_t value = qn__read_u8(&d->reader);
  const qn__ir_op_info_t* info = qn__op_info((qn_op_t)value);
  if (!info) return fail(d, "operator %u", (unsigned)value);
  qn__ir_expr_t* args[3] = {NULL, NULL, NULL};
  if (!read_args(d, args, info->arity)) return NULL;
  qn__ir_expr_t* expr = qn__expr_op(d->arena, (qn_op_t)value, args[0], args[1], args[2]);
  return expr ? expr : fail_memory(d);
}

static qn__ir_expr_t* read_reduce(decoder_t* d, qn__ir_expr_t* expr) {
  uint8_t kind = qn__read_u8(&d->reader);
  if (!qn__reduce_text(kind)) return fail(d, "reduction %u", (unsigned)kind);
  expr->reduce.reduce_kind = (qn_reduce_kind_t)kind;
  size_t number = reserve_var(d);
  bool is_done =
      (expr->reduce.begin = read_expr(d)) && (expr->reduce.end = read_expr(d)) &&
      (expr->reduce.reduce_var = declare_var(d, number, QN__VAR_REDUCE, QN_DTYPE_I64, NULL)) &&
      read_block(d, &expr->reduce.lets) && (expr->reduce.value = read_expr(d));
  if (!is_done) return NULL;
  expr->dtype = expr->reduce.value->dtype;
  return expr;
}

static qn__ir_expr_t* read_expr_of(decoder_t* d, qn__ir_expr_kind_t kind) {
  if (kind == QN__EXPR_OP) return read_op(d);
  if (kind == QN__EXPR_FLOAT) {
    qn_dtype_t dtype = read_dtype(d);
    if (is_failed(d)) return NULL;
    if (qn__dtype_is_real(dtype)) return read_literal_bits(d, dtype);
    return fail(d, "a float literal of dtype %s", qn_dtype_text(dtype));
  }
  qn__ir_expr_t* expr = qn__expr_new(d->arena, kind, QN_DTYPE_NONE, (qn__ir_loc_t){0, 0});
  if (!expr) return fail_memory(d);
  switch (kind) {
    case QN__EXPR_INT:
      expr->dtype = read_dtype(d);
      expr->int_value = qn__read_svarint(&d->reader);
      return expr;
    case QN__EXPR_VAR:
      expr->var = read_var(d);
      if (!expr->var) return NULL;
      expr->dtype = expr->var->dtype;
      return expr;
    case QN__EXPR_LOAD:
      expr->load.buffer = read_buffer(d);
      if (!expr->load.buffer) return NULL;
      expr->dtype = expr->load.buffer->dtype;
      expr->load.indices = read_exprs(d, expr->load.buffer->rank);
      return expr->load.indices ? expr : NULL;
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      expr->dtype = read_dtype(d);
      expr->args[0] = read_expr(d);
      return expr->args[0] ? expr : NULL;
    case QN__EXPR_COND:
      if (!read_args(d, expr->args, 3)) return NULL;
      expr->dtype = expr->args[1]->dtype;
      return expr;
    case QN__EXPR_REDUCE:
      return read_reduce(d, expr);
    default:
      return fail(d, "expression of kind %u", (unsigned)kind);
  }
}

static qn__ir_expr_t* read_expr(decoder_t* d) {
  if (d->depth >= QN__LARGEST_NESTING) {
    return fail(d, "they nest deeper than %d levels", QN__LARGEST_NESTING);
  }
  d->depth++;
  size_t begin = d->reader.offset;
  qn__ir_expr_t* expr = read_expr_of(d, (qn__ir_expr_kind_t)qn__read_u8(&d->reader));
  d->depth--;
  if (is_failed(d)) return NULL;
  expr->loc = place_since(d, begin);
  return expr;
}

// ------------------------------------------------------------------------------------ statements

static bool read_shape(decoder_t* d, qn__ir_buffer_t* buffer) {
  buffer->shape = read_exprs(d, buffer->rank);
  if (buffer->shape && read_flag(d)) buffer->strides = read_exprs(d, buffer->rank);
  return !is_failed(d);
}

static bool read_elements(decoder_t* d, qn__ir_buffer_t* buffer) {
  buffer->element_count = read_count(d, "elements", qn_dtype_size_bytes(buffer->dtype));
  buffer->elements =
      qn__arena_alloc_array(d->arena, buffer->element_count, sizeof *buffer->elements);
  if (!buffer->elements) return fail_memory(d);
  for (size_t i = 0; i < buffer->element_count; i++) {
    if (!(buffer->elements[i] = read_literal_bits(d, buffer->dtype))) return false;
  }
  return !is_failed(d);
}

static bool read_alloc(decoder_t* d, qn__ir_stmt_t* stmt) {
  uint8_t scope = qn__read_u8(&d->reader);
  if (!qn__scope_text(scope) || scope == QN__SCOPE_PARAM) {
    return fail(d, "scope %u", (unsigned)scope);
  }
  qn_dtype_t dtype = read_dtype(d);
  uint32_t rank = read_rank(d);
  if (is_failed(d)) return false;
  char name[24];
  (void)snprintf(name, sizeof name, "b%zu", d->buffer_count);
  qn__ir_buffer_t* buffer = qn__buf_new(d->arena, (qn__ir_scope_t)scope, dtype, name, rank);
  if (!buffer) return fail_memory(d);
  if (!read_shape(d, buffer)) return false;
  if (scope == QN__SCOPE_CONST && !read_elements(d, buffer)) return false;
  if (scope == QN__SCOPE_VIEW) {
    buffer->base = read_buffer(d);
    if (!buffer->base) return false;
    buffer->base_indices = read_exprs(d, buffer->base->rank);
    if (!buffer->base_indices) return false;
  }
  stmt->alloc.buffer = declare_buffer(d, buffer);
  return stmt->alloc.buffer != NULL;
}

static bool read_let(decoder_t* d, qn__ir_stmt_t* stmt) {
  size_t number = reserve_var(d);
  if (!(stmt->let.value = read_expr(d))) return false;
  stmt->let.var = declare_var(d, number, QN__VAR_LET, stmt->let.value->dtype, NULL);
  return stmt->let.var != NULL;
}

static bool read_atomic(decoder_t* d, qn__ir_stmt_t* stmt) {
  uint8_t op = qn__read_u8(&d->reader);
  if (!qn__atomic_text(op)) return fail(d, "atomic operation %u", (unsigned)op);
  stmt->atomic.op = (qn_atomic_op_t)op;
  bool has_result = read_flag(d);
  size_t number = has_result ? reserve_var(d) : 0;
  if (!(stmt->atomic.buffer = read_buffer(d))) return false;
  stmt->atomic.indices = read_exprs(d, stmt->atomic.buffer->rank);
  if (!stmt->atomic.indices) return false;
  uint32_t operands = qn__atomic_operand_count(stmt->atomic.op);
  if (operands > 0 && !(stmt->atomic.operand = read_expr(d))) return false;
  if (operands > 1 && !(stmt->atomic.operand2 = read_expr(d))) return false;
  if (!has_result) return true;
  stmt->atomic.result = declare_var(d, number, QN__VAR_ATOMIC, stmt->atomic.buffer->dtype, NULL);
  return stmt->atomic.result != NULL;
}

static bool read_loop(decoder_t* d, qn__ir_stmt_t* stmt) {
  uint8_t kind = qn__read_u8(&d->reader);
  if (!qn__loop_kind_text(kind)) return fail(d, "loop %u", (unsigned)kind);
  stmt->loop.kind = (qn_loop_kind_t)kind;
  size_t number = reserve_var(d);
  return (stmt->loop.begin = read_expr(d)) && (stmt->loop.end = read_expr(d)) &&
         (stmt->loop.var = declare_var(d, number, QN__VAR_LOOP, QN_DTYPE_I64, NULL)) &&
         read_block(d, &stmt->loop.body);
}

// Numbers are reserved in the order of qn__function_number.
static bool read_several(decoder_t* d, qn__ir_stmt_t* stmt) {
  uint8_t kind = qn__read_u8(&d->reader);
  uint64_t count = qn__read_varint(&d->reader);
  if (is_failed(d)) return false;
  bool has_merge = qn__several_has_combiner(kind);
  if (!qn__several_text(kind)) return fail(d, "reduction %u of several values", (unsigned)kind);
  if (count == 0 || count > (has_merge ? QN__LARGEST_VALUES : 1)) {
    return fail(d, "a reduction of %" PRIu64 " values", count);
  }
  qn__ir_several_t* several = QN__ARENA_NEW(d->arena, qn__ir_several_t);
  if (!several) return fail_memory(d);
  stmt->several = several;
  several->kind = (qn__ir_several_kind_t)kind;
  several->count = (uint32_t)count;
  several->merged_count = has_merge ? several->count : 0;
  several->result_count = has_merge ? several->count : 2;
  size_t operands[2 * QN__LARGEST_VALUES], results[QN__LARGEST_VALUES], number = reserve_var(d);
  for (uint32_t i = 0; i < 2 * several->merged_count; i++) operands[i] = reserve_var(d);
  for (uint32_t i = 0; i < several->result_count; i++) results[i] = reserve_var(d);
  bool is_done = (several->begin = read_expr(d)) && (several->end = read_expr(d)) &&
                 read_args(d, several->initial, several->merged_count) &&
                 (several->var = declare_var(d, number, QN__VAR_REDUCE, QN_DTYPE_I64, NULL)) &&
                 read_block(d, &several->lets) && read_args(d, several->values, several->count);
  for (uint32_t i = 0; i < several->merged_count && is_done; i++) {
    qn_dtype_t dtype = several->values[i]->dtype;
    several->left[i] = declare_var(d, operands[2 * i], QN__VAR_LET, dtype, NULL);
    several->right[i] = declare_var(d, operands[2 * i + 1], QN__VAR_LET, dtype, NULL);
  }
  if (is_done && has_merge) {
    is_done = read_block(d, &several->merge_lets) && read_args(d, several->merged, several->count);
  }
  for (uint32_t i = 0; i < several->result_count && is_done; i++) {
    several->results[i] =
        declare_var(d, results[i], QN__VAR_LET, qn__several_result_dtype(several, i), NULL);
  }
  if (is_done && qn__several_is_scan(several->kind)) is_done = read_block(d, &several->body);
  return is_done && !is_failed(d);
}

static bool read_stmt(decoder_t* d, qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return read_let(d, stmt);
    case QN__STMT_STORE:
      return (stmt->store.buffer = read_buffer(d)) &&
             (stmt->store.indices = read_exprs(d, stmt->store.buffer->rank)) &&
             (stmt->store.value = read_expr(d));
    case QN__STMT_ATOMIC:
      return read_atomic(d, stmt);
    case QN__STMT_IF:
      return (stmt->if_.condition = read_expr(d)) && read_block(d, &stmt->if_.then_block) &&
             read_block(d, &stmt->if_.else_block);
    case QN__STMT_LOOP:
      return read_loop(d, stmt);
    case QN__STMT_WHILE:
      return (stmt->while_.condition = read_expr(d)) && read_block(d, &stmt->while_.body);
    case QN__STMT_ALLOC:
      return read_alloc(d, stmt);
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
      return true;
    case QN__STMT_ASSERT:
      return (stmt->assert_.condition = read_expr(d)) && (stmt->assert_.message = read_text(d));
    case QN__STMT_REDUCE:
      return read_several(d, stmt);
    case QN__STMT_LEAVE:
      stmt->leave = (qn_leave_t)qn__read_u8(&d->reader);
      return true;
    case QN__STMT_TENSOR:
      break;
  }
  return fail(d, "statement of kind %u", (unsigned)stmt->kind);
}

static bool read_block(decoder_t* d, qn__ir_block_t* out_block) {
  if (d->depth >= QN__LARGEST_NESTING) {
    return fail(d, "they nest deeper than %d levels", QN__LARGEST_NESTING);
  }
  d->depth++;
  for (;;) {
    size_t begin = d->reader.offset;
    uint8_t kind = qn__read_u8(&d->reader);
    if (is_failed(d) || kind == QN__TAG_END) break;
    qn__ir_stmt_t* stmt = qn__stmt_new(d->arena, (qn__ir_stmt_kind_t)kind, (qn__ir_loc_t){0, 0});
    if (!stmt) (void)fail_memory(d);
    if (!stmt || !read_stmt(d, stmt) || is_failed(d)) break;
    stmt->loc = place_since(d, begin);
    if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->loc = stmt->loc;
    qn__block_append(out_block, stmt);
  }
  d->depth--;
  return !is_failed(d);
}

// ------------------------------------------------------------------------------------ functions

static bool read_param(decoder_t* d, qn__ir_param_t* param) {
  uint8_t tag = qn__read_u8(&d->reader);
  const char* name = read_text(d);
  qn_dtype_t dtype = read_dtype(d);
  if (is_failed(d)) return false;
  if (tag == QN__TAG_SCALAR || tag == QN__TAG_FIXED) {
    param->scalar = declare_var(d, reserve_var(d), QN__VAR_SCALAR, dtype, name);
    if (!param->scalar || tag == QN__TAG_SCALAR) return param->scalar != NULL;
    param->scalar->is_fixed = true;
    param->scalar->fixed_value = qn__read_svarint(&d->reader);
    return !is_failed(d);
  }
  if (tag != QN__TAG_BUFFER) return fail(d, "parameter of kind %u", (unsigned)tag);
  uint8_t access = qn__read_u8(&d->reader);
  uint32_t rank = read_rank(d);
  uint64_t align_bytes = qn__read_varint(&d->reader);
  if (is_failed(d)) return false;
  if (!qn__access_text(access)) return fail(d, "access %u", (unsigned)access);
  if (align_bytes > UINT32_MAX) return fail(d, "alignment %" PRIu64, align_bytes);
  qn__ir_buffer_t* buffer = qn__buf_new(d->arena, QN__SCOPE_PARAM, dtype, name, rank);
  if (!buffer) return fail_memory(d);
  buffer->access = (qn_access_t)access;
  buffer->align_bytes = (uint32_t)align_bytes;
  param->buffer = declare_buffer(d, buffer);
  return param->buffer != NULL;
}

static bool read_params(decoder_t* d, qn__ir_func_t* function) {
  function->symbol_count = read_count(d, "symbols", 1);
  function->symbols =
      qn__arena_alloc_array(d->arena, function->symbol_count, sizeof *function->symbols);
  if (!function->symbols) return fail_memory(d);
  for (size_t i = 0; i < function->symbol_count; i++) {
    const char* name = read_text(d);
    function->symbols[i] = declare_var(d, reserve_var(d), QN__VAR_SYMBOL, QN_DTYPE_I64, name);
    if (!function->symbols[i]) return false;
  }
  function->param_count = read_count(d, "parameters", 3);
  function->params =
      qn__arena_alloc_array(d->arena, function->param_count, sizeof *function->params);
  if (!function->params) return fail_memory(d);
  for (size_t i = 0; i < function->param_count; i++) {
    if (!read_param(d, &function->params[i])) return false;
  }
  for (size_t i = 0; i < function->param_count; i++) {
    qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (buffer && !read_shape(d, buffer)) return false;
  }
  return !is_failed(d);
}

static bool read_function(decoder_t* d, qn__ir_body_t* body) {
  uint8_t tag = qn__read_u8(&d->reader);
  uint32_t size = qn__read_u32(&d->reader);
  if (is_failed(d)) return false;
  if (tag != QN__TAG_FUNCTION) return fail(d, "a function begins with %u", (unsigned)tag);
  if (size > qn__reader_left(&d->reader)) return fail(d, "a function of %" PRIu32 " bytes", size);
  size_t end = d->reader.offset + size;
  d->var_count = 0;
  d->buffer_count = 0;
  qn__ir_func_t* function = QN__ARENA_NEW(d->arena, qn__ir_func_t);
  if (!function) return fail_memory(d);
  function->name = read_text(d);
  function->is_fast = read_flag(d);
  if (is_failed(d) || !read_params(d, function) || !read_block(d, &function->body)) return false;
  assert(d->depth == 0);
  if (d->reader.offset != end) return fail(d, "the size of a function is not what it holds");
  function->var_count = (uint32_t)d->var_count;
  function->buffer_count = (uint32_t)d->buffer_count;
  qn__body_append(body, function);
  return true;
}

static bool read_module(decoder_t* d, qn__ir_body_t* body) {
  qn_span_t magic = qn__read_bytes(&d->reader, sizeof QN__ENCODING_MAGIC - 1);
  uint16_t version = qn__read_u16(&d->reader);
  uint16_t reserved = qn__read_u16(&d->reader);
  if (is_failed(d)) return false;
  if (memcmp(magic.data, QN__ENCODING_MAGIC, magic.size) != 0) return fail(d, "no module");
  if (version < QN__ENCODING_VERSION_PLAIN || version > QN__ENCODING_VERSION || reserved != 0) {
    return fail(d, "version %u, this library reads %d to %d", (unsigned)version,
                QN__ENCODING_VERSION_PLAIN, QN__ENCODING_VERSION);
  }
  size_t count = read_count(d, "functions", 5);
  for (size_t i = 0; i < count; i++) {
    if (!read_function(d, body)) return false;
  }
  if (!is_failed(d) && qn__reader_left(&d->reader) > 0) return fail(d, "they go on after the end");
  return !is_failed(d);
}

qn_status_t qn__body_decode(qn_span_t bytes, qn_allocator_t allocator, qn__ir_body_t* out_body) {
  qn__body_init(out_body, allocator);
  decoder_t d = {.reader = qn__reader_make(bytes), .arena = &out_body->arena};
  qn_status_t status = QN_OK;
  if (!read_module(&d, out_body)) {
    if (d.message[0] == '\0' || out_body->arena.is_exhausted) {
      status = qn__out_of_memory("decoding a module");
    } else {
      status = qn_status_make(QN_STATUS_DATA_LOSS, "module bytes are damaged before byte %zu: %s",
                              d.reader.offset, d.message);
    }
    qn__body_deinit(out_body);
  }
  qn__free(allocator, d.vars, d.var_capacity * sizeof *d.vars);
  qn__free(allocator, d.buffers, d.buffer_capacity * sizeof *d.buffers);
  return status;
}
