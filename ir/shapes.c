// SPDX-License-Identifier: Apache-2.0
// ir/shapes.c: the symbols of a function, and the shapes of its parameters: as text, and for values
// of the symbols.
//
// Shapes that follow from the arguments of a call: infer_shapes.c.
#include "ir/shapes.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/argument.h"
#include "ir/text.h"
#include "ir/work.h"

qn_status_t qn__wrong_argument(const qn__ir_func_t* function, uint32_t index, qn_status_code_t code,
                               const char* format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const qn__ir_param_t* param = &function->params[index];
  return qn_status_make(code, "%s: argument %u '%s': %s", function->signature, index,
                        param->buffer ? param->buffer->name : param->scalar->name, text);
}

static const qn__ir_func_t* function_at(const qn_module_t* module, size_t index) {
  return module && index < module->body.function_count ? module->functions[index] : NULL;
}

size_t qn_module_function_symbol_count(const qn_module_t* module, size_t index) {
  const qn__ir_func_t* function = function_at(module, index);
  return function ? function->symbol_count : 0;
}

const char* qn_module_symbol_name(const qn_module_t* module, size_t function_index,
                                  size_t symbol_index) {
  const qn__ir_func_t* function = function_at(module, function_index);
  if (!function || symbol_index >= function->symbol_count) return NULL;
  return function->symbols[symbol_index]->name;
}

static qn_status_t find_buffer(const qn_module_t* module, size_t function_index, size_t param_index,
                               const qn__ir_buffer_t** out_buffer) {
  const qn__ir_func_t* function = function_at(module, function_index);
  bool has_param = function && param_index < function->param_count;
  *out_buffer = has_param ? function->params[param_index].buffer : NULL;
  if (*out_buffer) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "parameter %zu of function %zu: no buffer",
                        param_index, function_index);
}

// ------------------------------------------------------------------------------------ text

static qn_status_t give_text(const qn__ir_buffer_t* buffer, qn__ir_expr_t* const* exprs,
                             uint32_t dim, char** out_text) {
  if (dim >= buffer->rank) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%s' has %u dimensions, no dimension %u",
                          buffer->name, buffer->rank, dim);
  }
  if (!exprs) return QN_OK;
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__text_print_extent(exprs[dim], &text);
  return qn__text_give(&text, "the text of an extent", out_text, NULL);
}

qn_status_t qn_module_param_extent_text(const qn_module_t* module, size_t function_index,
                                        size_t param_index, uint32_t dim, char** out_text) {
  QN_REQUIRE(out_text);
  *out_text = NULL;
  QN_REQUIRE(module);
  const qn__ir_buffer_t* buffer;
  QN_TRY(find_buffer(module, function_index, param_index, &buffer));
  return give_text(buffer, buffer->shape, dim, out_text);
}

qn_status_t qn_module_param_stride_text(const qn_module_t* module, size_t function_index,
                                        size_t param_index, uint32_t dim, char** out_text) {
  QN_REQUIRE(out_text);
  *out_text = NULL;
  QN_REQUIRE(module);
  const qn__ir_buffer_t* buffer;
  QN_TRY(find_buffer(module, function_index, param_index, &buffer));
  return give_text(buffer, buffer->strides, dim, out_text);
}

// ------------------------------------------------------------------------------------ symbols

qn_status_t qn_module_param_shape(const qn_module_t* module, size_t function_index,
                                  size_t param_index, const int64_t* symbols, int64_t* out_shape) {
  QN_REQUIRE(module, symbols, out_shape);
  const qn__ir_buffer_t* buffer;
  QN_TRY(find_buffer(module, function_index, param_index, &buffer));
  const qn__ir_func_t* function = module->functions[function_index];
  qn_allocator_t allocator = qn_allocator_default();
  qn__work_value_t* vars = qn__alloc_zero(allocator, function->var_count + 1, sizeof *vars);
  if (!vars) return qn__out_of_memory("a shape");
  for (size_t i = 0; i < function->symbol_count; i++) {
    vars[function->symbols[i]->id] =
        (qn__work_value_t){.scalar = {.i = symbols[i]}, .is_known = true};
  }
  qn__work_scope_t scope = {.function = function, .vars = vars};
  qn_status_t status = QN_OK;
  for (uint32_t d = 0; d < buffer->rank && qn_ok(status); d++) {
    qn__work_value_t extent = qn__work_eval(&scope, buffer->shape[d]);
    out_shape[d] = extent.scalar.i;
    if (extent.is_known && extent.scalar.i >= 0) continue;
    status = qn_status_make(
        QN_STATUS_VALUE_ERROR, "function '%s': extent %u of '%s' is %s for these symbols",
        function->name, d, buffer->name, extent.is_known ? "negative" : "not a number");
  }
  qn__free(allocator, vars, (function->var_count + 1) * sizeof *vars);
  return status;
}
