// SPDX-License-Identifier: Apache-2.0
// ir/build.c: the builder: its life, its sticky error, functions and their parameters.
//
// Each call reports the errors that it can see at once; the verifier finds the rest. Not here:
// statements (build_stmt.c) and expressions (build_expr.c).
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "ir/builder.h"

#include "base/argument.h"
#include "ir/lexer.h"
#include "ir/verify.h"

// ------------------------------------------------------------------------------------ mistakes

void* qn__build_fail(qn_builder_t* builder, const char* format, ...) {
  if (!qn_ok(builder->status)) return NULL;
  char message[400];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(message, sizeof message, format, arguments) < 0) message[0] = '\0';
  va_end(arguments);
  const qn__ir_func_t* function = builder->function;
  builder->status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: %s%s%s%s", builder->call,
                                   message, function ? " (in function '" : "",
                                   function ? function->name : "", function ? "')" : "");
  return NULL;
}

void* qn__build_out_of_memory(qn_builder_t* builder) {
  if (qn_ok(builder->status)) builder->status = qn__out_of_memory("building a module");
  return NULL;
}

bool qn__build_is_ready(qn_builder_t* builder, const char* call) {
  if (!builder || !qn_ok(builder->status)) return false;
  builder->call = call;
  if (builder->function) return true;
  return qn__build_fail(builder, "no function is open; call qn_build_function first");
}

// Returns the call that closes a reduction or a part of it.
static const char* closing_call(const qn__builder_frame_t* frame) {
  if (frame->kind == QN__FRAME_REDUCE) return "qn_build_reduce_end";
  return frame->kind == QN__FRAME_SEVERAL ? "qn_build_several_values" : "qn_build_several_end";
}

bool qn__build_takes_stmts(qn_builder_t* builder, const char* call) {
  if (!qn__build_is_ready(builder, call)) return false;
  if (builder->frame->kind < QN__FRAME_REDUCE) return true;
  return qn__build_fail(builder, "inside a reduction only lets are allowed; close it with %s",
                        closing_call(builder->frame));
}

const char* qn__build_name(qn_builder_t* builder, const char* name, const char* fallback) {
  if (fallback && (!name || !name[0])) return fallback;
  if (name && qn__text_is_name(qn__str(name))) return name;
  return qn__build_fail(builder,
                        "'%s' is not a name: letters, digits and '_', no digit first, no word of "
                        "the language",
                        name ? name : "(null)");
}

// ------------------------------------------------------------------------------------ life

qn_status_t qn_builder_create(qn_allocator_t allocator, qn_builder_t** out_builder) {
  QN_REQUIRE(out_builder);
  *out_builder = NULL;
  if (!allocator.reallocate) allocator = qn_allocator_default();
  qn_builder_t* builder = qn__alloc_zero(allocator, 1, sizeof *builder);
  if (!builder) return qn__out_of_memory("a builder");
  builder->allocator = allocator;
  qn__body_init(&builder->body, allocator);
  qn__ptrmap_init(&builder->handles, allocator);
  *out_builder = builder;
  return QN_OK;
}

void qn_builder_destroy(qn_builder_t* builder) {
  if (!builder) return;
  qn_allocator_t allocator = builder->allocator;
  qn_status_free(builder->status);
  qn__ptrmap_deinit(&builder->handles);
  qn__free(allocator, builder->params, builder->param_capacity * sizeof *builder->params);
  qn__free(allocator, builder->symbols, builder->symbol_capacity * sizeof(qn__ir_expr_t*));
  qn__constants_deinit(&builder->constants, allocator);
  qn__body_deinit(&builder->body);
  qn__free(allocator, builder, sizeof *builder);
}

qn_status_t qn_builder_finish(qn_builder_t* builder, qn_module_t** out_module) {
  if (!out_module) qn_builder_destroy(builder);
  QN_REQUIRE(out_module);
  *out_module = NULL;
  QN_REQUIRE(builder);
  builder->call = __func__;
  if (builder->function) {
    (void)qn__build_fail(builder, "a block is still open; close each with qn_build_end");
  }
  if (builder->body.arena.is_exhausted) (void)qn__build_out_of_memory(builder);
  qn_status_t status = builder->status;
  builder->status = QN_OK;
  if (qn_ok(status)) status = qn__body_specialize(&builder->body, &builder->constants);
  if (qn_ok(status)) {
    qn__diag_t diag;
    qn__diag_init(&diag, builder->allocator, NULL, "<builder>", QN_STR(""));
    status = qn__module_finish(&builder->body, &diag, out_module);
    qn__diag_deinit(&diag);
  }
  qn_builder_destroy(builder);
  return status;
}

void qn_build_set(qn_builder_t* builder, const char* name, int64_t value) {
  if (!builder || !qn_ok(builder->status)) return;
  builder->call = __func__;
  if (!name) {
    (void)qn__build_fail(builder, "name is NULL");
    return;
  }
  builder->status =
      qn__constants_add(&builder->constants, &builder->body.arena, qn__str(name), value);
}

// ------------------------------------------------------------------------------------ functions

void qn_build_function(qn_builder_t* builder, const char* name) {
  if (!builder || !qn_ok(builder->status)) return;
  builder->call = __func__;
  if (builder->function) {
    (void)qn__build_fail(builder, "a function is open; close it with qn_build_end");
    return;
  }
  if (!qn__build_name(builder, name, NULL)) return;
  qn__arena_t* arena = &builder->body.arena;
  qn__ir_func_t* function = QN__ARENA_NEW(arena, qn__ir_func_t);
  qn__builder_frame_t* frame = QN__ARENA_NEW(arena, qn__builder_frame_t);
  if (function) function->name = qn__arena_cstr(arena, qn__str(name));
  if (!function || !frame || !function->name) {
    (void)qn__build_out_of_memory(builder);
    return;
  }
  *frame = (qn__builder_frame_t){.kind = QN__FRAME_FUNCTION, .block = &function->body};
  builder->function = function;
  builder->frame = frame;
  builder->param_count = 0;
  builder->symbol_count = 0;
}

void qn_build_fast(qn_builder_t* builder) {
  if (qn__build_is_ready(builder, __func__)) builder->function->is_fast = true;
}

// Parameters come before the body.
static bool takes_params(qn_builder_t* builder, const char* call) {
  if (!qn__build_is_ready(builder, call)) return false;
  if (builder->frame->kind == QN__FRAME_FUNCTION && !builder->frame->block->first) return true;
  return qn__build_fail(builder, "parameters come before the first statement");
}

static bool add_param(qn_builder_t* builder, qn__ir_param_t param) {
  void* items = builder->params;
  if (!qn__grow(builder->allocator, &items, &builder->param_capacity, builder->param_count + 1,
                sizeof *builder->params)) {
    return qn__build_out_of_memory(builder);
  }
  builder->params = items;
  builder->params[builder->param_count++] = param;
  return true;
}

qn_expr_t* qn_build_symbol(qn_builder_t* builder, const char* name) {
  if (!qn__build_is_ready(builder, __func__) || !qn__build_name(builder, name, NULL)) return NULL;
  for (size_t i = 0; i < builder->symbol_count; i++) {
    if (strcmp(builder->symbols[i]->var->name, name) == 0) return builder->symbols[i];
  }
  qn__ir_expr_t* handle = qn__build_give_var(
      builder, qn__var_new(&builder->body.arena, QN__VAR_SYMBOL, QN_DTYPE_I64, name));
  void* items = builder->symbols;
  if (!handle || !qn__grow(builder->allocator, &items, &builder->symbol_capacity,
                           builder->symbol_count + 1, sizeof(qn__ir_expr_t*))) {
    return qn__build_out_of_memory(builder);
  }
  builder->symbols = items;
  return builder->symbols[builder->symbol_count++] = handle;
}

qn_expr_t* qn_build_scalar_param(qn_builder_t* builder, const char* name, qn_dtype_t dtype) {
  if (!takes_params(builder, __func__) || !qn__build_name(builder, name, NULL)) return NULL;
  if (qn_dtype_size_bytes(dtype) == 0) {
    return qn__build_fail(builder, "parameter '%s' has no dtype", name);
  }
  if (qn__dtype_is_stored(dtype)) {
    return qn__build_fail(builder, "parameter '%s' is %s, which only buffers hold", name,
                          qn_dtype_text(dtype));
  }
  qn__ir_var_t* var = qn__var_new(&builder->body.arena, QN__VAR_SCALAR, dtype, name);
  qn__ir_expr_t* handle = qn__build_give_var(builder, var);
  if (!handle || !add_param(builder, (qn__ir_param_t){.scalar = var})) return NULL;
  return handle;
}

qn_buffer_t* qn_build_buffer_param(qn_builder_t* builder, const char* name, qn_access_t access,
                                   qn_dtype_t dtype, size_t rank, qn_expr_t* const* shape,
                                   qn_expr_t* const* strides, uint32_t align_bytes) {
  if (!takes_params(builder, __func__) || !qn__build_name(builder, name, NULL)) return NULL;
  if (!qn__access_text(access)) {
    return qn__build_fail(builder, "parameter '%s' is neither in, out nor inout", name);
  }
  qn__ir_buffer_t* buffer =
      qn__build_new_buffer(builder, QN__SCOPE_PARAM, name, dtype, rank, shape, strides);
  if (!buffer) return NULL;
  buffer->access = access;
  if (align_bytes) buffer->align_bytes = align_bytes;
  if (!add_param(builder, (qn__ir_param_t){.buffer = buffer})) return NULL;
  return qn__build_give_buffer(builder, buffer) ? buffer : NULL;
}

// ------------------------------------------------------------------------------------ the end

static void end_function(qn_builder_t* builder) {
  qn__arena_t* arena = &builder->body.arena;
  qn__ir_func_t* function = builder->function;
  function->params = qn__arena_alloc_array(arena, builder->param_count, sizeof *function->params);
  function->symbols =
      qn__arena_alloc_array(arena, builder->symbol_count, sizeof *function->symbols);
  if (!function->params || !function->symbols) {
    (void)qn__build_out_of_memory(builder);
    return;
  }
  if (builder->param_count) {
    memcpy(function->params, builder->params, builder->param_count * sizeof *function->params);
  }
  function->param_count = builder->param_count;
  if (!qn__function_list_symbols(function, builder->symbol_count)) {
    (void)qn__build_fail(builder, "a shape uses a symbol of another function");
    return;
  }
  qn__body_append(&builder->body, function);
  builder->function = NULL;
}

void qn_build_end(qn_builder_t* builder) {
  if (!qn__build_is_ready(builder, __func__)) return;
  qn__builder_frame_t* frame = builder->frame;
  if (frame->kind >= QN__FRAME_REDUCE) {
    (void)qn__build_fail(builder, "a reduction is open; close it with %s", closing_call(frame));
    return;
  }
  // The function's frame is the outermost.
  assert((frame->kind == QN__FRAME_FUNCTION) == !frame->outer);
  if (frame->kind == QN__FRAME_FUNCTION) end_function(builder);
  builder->frame = frame->outer;
}
