// SPDX-License-Identifier: Apache-2.0
// ir/infer_shapes.c: the shapes and strides of a call's buffers from the arguments that exist.
//
// The rules are those of a call (equation.h), of the arguments that exist: the first that shows a
// symbol alone as an extent or stride binds it, then linear extents give symbols, and all others
// must agree. Two more make the layout of a buffer that does not exist:
//
// 1. Every extent, and every stride but a symbol, is computed.
// 2. A stride that is a symbol without a value is the number of elements that the dimensions with
//    known strides reach over, from the last dimension on: elements are apart. So `strides [s, 1]`
//    is row-major, and `strides [1, s]` is column-major.
//
// Not here: the checks of a call, which every call does (jit/call/).
#include <inttypes.h>
#include <stdio.h>

#include "base/argument.h"
#include "base/dtype.h"
#include "ir/shapes.h"
#include "ir/text.h"
#include "ir/work.h"

// The shape and strides of one parameter.
typedef struct buffer_layout {
  int64_t* shape;
  int64_t* strides;
} buffer_layout_t;

typedef struct infer {
  const qn__ir_func_t* function;
  const qn_value_t* args;
  qn__work_scope_t scope;
  uint32_t* bound_by;        // by variable: the argument that gave a symbol its value
  buffer_layout_t* layouts;  // by parameter
  bool* is_known;            // by word of a call (equation.h)
} infer_t;

// Returns VALUE_ERROR with the text of the expression: "extent 0, n + 2, is negative".
static qn_status_t wrong_dim(const infer_t* n, uint32_t index, const char* what, uint32_t d,
                             const qn__ir_expr_t* expr, const char* why) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__text_print_extent(expr, &text);
  qn_status_t status =
      qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR, "%s %u, '%.*s', %s", what, d,
                         QN_STR_ARG(qn__buffer_as_str(&text)), why);
  qn__buffer_deinit(&text);
  return status;
}

static bool is_layout_open(const qn_value_t* arg) {
  return arg->type == QN_VALUE_NONE || (!arg->tensor->data && !arg->tensor->strides);
}

// Binds or compares an extent or stride of a tensor that exists. Expressions come later.
static qn_status_t bind_dim(infer_t* n, uint32_t index, const char* what, uint32_t d,
                            const qn__ir_expr_t* expr, int64_t value) {
  if (qn__work_bind_symbol(&n->scope, expr, value)) {
    n->bound_by[expr->var->id] = index;
    return QN_OK;
  }
  if (qn__work_is_symbol(expr)) {
    int64_t expected = n->scope.vars[expr->var->id].scalar.i;
    if (expected == value) return QN_OK;
    const uint32_t by = n->bound_by[expr->var->id];
    return qn__wrong_argument(
        n->function, index, QN_STATUS_VALUE_ERROR,
        "%s %u: expected %s = %" PRId64 " (bound by argument %u '%s'), got %" PRId64, what, d,
        expr->var->name, expected, by, n->function->params[by].buffer->name, value);
  }
  if (expr->kind == QN__EXPR_INT && expr->int_value != value) {
    return qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR,
                              "%s %u: expected %" PRId64 ", got %" PRId64, what, d, expr->int_value,
                              value);
  }
  return QN_OK;
}

static qn_status_t bind_tensor(infer_t* n, uint32_t index) {
  const qn__ir_buffer_t* buffer = n->function->params[index].buffer;
  const qn_value_t* arg = &n->args[index];
  if (arg->type == QN_VALUE_NONE) return QN_OK;
  if (arg->type != QN_VALUE_TENSOR || !arg->tensor) {
    return qn__wrong_argument(n->function, index, QN_STATUS_TYPE_ERROR,
                              "expected a tensor, or nothing");
  }
  const qn_tensor_t* tensor = arg->tensor;
  if (tensor->ndim < 0 || (uint32_t)tensor->ndim != buffer->rank) {
    return qn__wrong_argument(n->function, index, QN_STATUS_TYPE_ERROR, "expected rank %u, got %d",
                              buffer->rank, tensor->ndim);
  }
  if (buffer->rank > 0 && !tensor->shape) {
    return qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR, "shape is null");
  }
  for (uint32_t d = 0; d < buffer->rank; d++) {
    if (tensor->shape[d] < 0) {
      return qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR,
                                "extent %u: expected at least 0, got %" PRId64, d,
                                tensor->shape[d]);
    }
    n->layouts[index].shape[d] = tensor->shape[d];
    QN_TRY(bind_dim(n, index, "extent", d, buffer->shape[d], tensor->shape[d]));
  }
  if (is_layout_open(arg)) return QN_OK;
  int64_t compact = 1;
  bool is_overflow = false;
  for (uint32_t d = buffer->rank; d-- > 0;) {
    n->layouts[index].strides[d] = tensor->strides ? tensor->strides[d] : compact;
    is_overflow |=
        __builtin_mul_overflow(compact, tensor->shape[d] > 0 ? tensor->shape[d] : 1, &compact);
  }
  if (is_overflow && !tensor->strides) {
    return qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR,
                              "the product of its extents overflows");
  }
  for (uint32_t d = 0; buffer->strides && d < buffer->rank; d++) {
    const qn__ir_expr_t* stride = buffer->strides[d];
    bool is_first = qn__work_is_symbol(stride) && !n->scope.vars[stride->var->id].is_known;
    if (!is_first && !qn__stride_counts(tensor, d)) continue;
    QN_TRY(bind_dim(n, index, "stride", d, stride, n->layouts[index].strides[d]));
  }
  return QN_OK;
}

static qn_status_t bind_scalar(infer_t* n, uint32_t index) {
  const qn__ir_var_t* scalar = n->function->params[index].scalar;
  const qn_value_t* arg = &n->args[index];
  qn_value_t fixed = qn_value_int(scalar->fixed_value);
  if (arg->type == QN_VALUE_NONE && !scalar->is_fixed) return QN_OK;
  if (arg->type == QN_VALUE_NONE) arg = &fixed;
  if (qn__dtype_is_float(scalar->dtype)) return QN_OK;  // no shape has one
  if (arg->type != QN_VALUE_INT && arg->type != QN_VALUE_BOOL && arg->type != QN_VALUE_UINT) {
    return qn__wrong_argument(n->function, index, QN_STATUS_TYPE_ERROR, "expected an integer (%s)",
                              qn_dtype_text(scalar->dtype));
  }
  qn__work_bind_scalar(&n->scope, scalar, arg);
  const int64_t value = n->scope.vars[scalar->id].scalar.i;
  if (scalar->is_fixed && value != scalar->fixed_value) {
    return qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR, "expected %" PRId64,
                              scalar->fixed_value);
  }
  // Between an integer and an unsigned one: above INT64_MAX, and below 0.
  bool is_other_sign =
      arg->int_value < 0 && (arg->type == QN_VALUE_UINT) != (scalar->dtype == QN_DTYPE_U64);
  if (value == arg->int_value && !is_other_sign) return QN_OK;
  return qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR, "expected a value of %s",
                            qn_dtype_text(scalar->dtype));
}

// Returns whether an operation of the expression leaves the range of i64, where a call would wrap.
static bool has_overflow(const qn__work_scope_t* scope, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_COND) {
    bool is_first = qn__work_eval(scope, expr->args[0]).scalar.i != 0;
    return has_overflow(scope, expr->args[0]) || has_overflow(scope, expr->args[is_first ? 1 : 2]);
  }
  if (expr->kind != QN__EXPR_OP && expr->kind != QN__EXPR_CAST) return false;
  int64_t values[3] = {0}, result;
  for (uint32_t i = 0; i < 3 && expr->args[i]; i++) {
    if (has_overflow(scope, expr->args[i])) return true;
    values[i] = qn__work_eval(scope, expr->args[i]).scalar.i;
  }
  if (expr->kind != QN__EXPR_OP || expr->dtype != QN_DTYPE_I64) return false;
  switch (expr->op) {
    case QN_OP_ADD:
      return __builtin_add_overflow(values[0], values[1], &result);
    case QN_OP_SUB:
      return __builtin_sub_overflow(values[0], values[1], &result);
    case QN_OP_MUL:
      return __builtin_mul_overflow(values[0], values[1], &result);
    default:
      return false;
  }
}

// Returns the first symbol or scalar of the expression that has no value, or NULL.
static const qn__ir_var_t* find_unknown(const infer_t* n, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_VAR) {
    return n->scope.vars[expr->var->id].is_known ? NULL : expr->var;
  }
  if (expr->kind != QN__EXPR_OP && expr->kind != QN__EXPR_CAST && expr->kind != QN__EXPR_COND) {
    return NULL;
  }
  const qn__ir_var_t* unknown = NULL;
  for (uint32_t i = 0; i < 3 && expr->args[i] && !unknown; i++) {
    unknown = find_unknown(n, expr->args[i]);
  }
  return unknown;
}

// Computes an extent or stride. Errors: VALUE_ERROR (it needs a value that no argument gives, it is
// negative, its computation overflows or divides by zero).
static qn_status_t compute_dim(const infer_t* n, uint32_t index, const char* what, uint32_t d,
                               const qn__ir_expr_t* expr, int64_t* out_value) {
  qn__work_value_t value = qn__work_eval(&n->scope, expr);
  *out_value = value.scalar.i;
  const qn__ir_var_t* unknown = value.is_known ? NULL : find_unknown(n, expr);
  if (unknown) {
    char why[256];
    bool is_symbol = unknown->kind == QN__VAR_SYMBOL;
    (void)snprintf(why, sizeof why, "needs '%.100s', %s", unknown->name,
                   is_symbol ? "which no given argument gives" : "a scalar that was not given");
    return wrong_dim(n, index, what, d, expr, why);
  }
  if (!value.is_known) return wrong_dim(n, index, what, d, expr, "divides by zero");
  if (has_overflow(&n->scope, expr)) {
    return wrong_dim(n, index, what, d, expr, "overflows for these arguments");
  }
  if (value.scalar.i >= 0) return QN_OK;
  char why[64];
  (void)snprintf(why, sizeof why, "is %" PRId64 ", less than 0", value.scalar.i);
  return wrong_dim(n, index, what, d, expr, why);
}

// Compares extents and strides that are expressions, if all that they need has a value.
static qn_status_t check_exprs(const infer_t* n, uint32_t index, const char* what,
                               qn__ir_expr_t* const* exprs, const int64_t* values) {
  const uint32_t rank = n->function->params[index].buffer->rank;
  for (uint32_t d = 0; d < rank; d++) {
    if (exprs[d]->kind == QN__EXPR_INT || qn__work_is_symbol(exprs[d])) continue;
    if (find_unknown(n, exprs[d])) continue;
    bool is_stride = exprs != n->function->params[index].buffer->shape;
    if (is_stride && !qn__stride_counts(n->args[index].tensor, d)) continue;
    int64_t expected;
    QN_TRY(compute_dim(n, index, what, d, exprs[d], &expected));
    if (expected == values[d]) continue;
    char why[80];
    (void)snprintf(why, sizeof why, "is %" PRId64 ", got %" PRId64, expected, values[d]);
    return wrong_dim(n, index, what, d, exprs[d], why);
  }
  return QN_OK;
}

static qn_status_t check_given(const infer_t* n, uint32_t index) {
  const qn__ir_buffer_t* buffer = n->function->params[index].buffer;
  const qn_value_t* arg = &n->args[index];
  if (arg->type == QN_VALUE_NONE) return QN_OK;
  QN_TRY(check_exprs(n, index, "extent", buffer->shape, n->layouts[index].shape));
  if (!buffer->strides || is_layout_open(arg)) return QN_OK;
  return check_exprs(n, index, "stride", buffer->strides, n->layouts[index].strides);
}

// Binds the symbols that extents of the given arguments give.
static qn_status_t solve_equations(infer_t* n) {
  const qn__ir_func_t* function = n->function;
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_var_t* scalar = function->params[i].scalar;
    n->is_known[i] = scalar ? n->scope.vars[scalar->id].is_known : n->args[i].type != QN_VALUE_NONE;
  }
  for (size_t i = 0; i < function->symbol_count; i++) {
    n->is_known[function->param_count + i] = n->scope.vars[function->symbols[i]->id].is_known;
  }
  qn__ir_equation_t equation;
  qn__buffer_t why;
  qn__buffer_init(&why, qn_allocator_default());
  qn_status_t status = QN_OK;
  while (qn_ok(status) && qn__equation_find(function, n->is_known, &equation)) {
    n->is_known[qn__word_of(function, equation.symbol)] = true;
    n->bound_by[equation.symbol->id] = equation.param;
    int64_t extent = n->layouts[equation.param].shape[equation.dim];
    if (qn__work_solve(&n->scope, &equation, extent, &why)) continue;
    status =
        qn__wrong_argument(n->function, equation.param, QN_STATUS_VALUE_ERROR, "extent %u: %.*s",
                           equation.dim, QN_STR_ARG(qn__buffer_as_str(&why)));
  }
  qn__buffer_deinit(&why);
  return status;
}

// Computes the stride of a dimension, or takes `reach` for a symbol without a value.
static qn_status_t make_stride(infer_t* n, uint32_t index, uint32_t d, int64_t reach,
                               int64_t* out_stride) {
  qn__ir_expr_t* const* strides = n->function->params[index].buffer->strides;
  *out_stride = reach;
  if (!strides) return QN_OK;
  if (!qn__work_bind_symbol(&n->scope, strides[d], reach)) {
    return compute_dim(n, index, "stride", d, strides[d], out_stride);
  }
  n->bound_by[strides[d]->var->id] = index;
  return QN_OK;
}

// Computes strides for a shape, by the rules at the head of this file: first those that are known,
// then symbols, then what uses these symbols.
static qn_status_t compute_strides(infer_t* n, uint32_t index) {
  const qn__ir_buffer_t* buffer = n->function->params[index].buffer;
  const buffer_layout_t layout = n->layouts[index];
  int64_t reach = 1;  // elements from the first to one past the last
  bool is_overflow = false;
  for (uint32_t d = 0; d < buffer->rank; d++) layout.strides[d] = -1;
  for (uint32_t pass = 0; pass < 3; pass++) {
    for (uint32_t d = buffer->rank; d-- > 0;) {
      const qn__ir_expr_t* stride = buffer->strides ? buffer->strides[d] : NULL;
      if (layout.strides[d] >= 0) continue;
      if (stride && pass == 0 && find_unknown(n, stride)) continue;
      if (stride && pass == 1 && !qn__work_is_symbol(stride)) continue;
      QN_TRY(make_stride(n, index, d, reach, &layout.strides[d]));
      int64_t last = layout.shape[d] > 0 ? layout.shape[d] - 1 : 0;
      is_overflow |= __builtin_mul_overflow(layout.strides[d], last, &last);
      is_overflow |= __builtin_add_overflow(reach, last, &reach);
      if (is_overflow) reach = 1;
    }
  }
  const int64_t item_bytes = (int64_t)qn_dtype_size_bytes(buffer->dtype);
  if (!is_overflow && reach <= INT64_MAX / item_bytes) return QN_OK;
  return qn__wrong_argument(n->function, index, QN_STATUS_VALUE_ERROR,
                            "its size in bytes overflows");
}

// Computes what arguments do not give of a buffer.
static qn_status_t complete(infer_t* n, uint32_t index) {
  const qn__ir_buffer_t* buffer = n->function->params[index].buffer;
  const qn_value_t* arg = &n->args[index];
  for (uint32_t d = 0; d < buffer->rank && arg->type == QN_VALUE_NONE; d++) {
    QN_TRY(compute_dim(n, index, "extent", d, buffer->shape[d], &n->layouts[index].shape[d]));
  }
  return is_layout_open(arg) ? compute_strides(n, index) : QN_OK;
}

static qn_status_t prepare(infer_t* n, qn__arena_t* arena) {
  const qn__ir_func_t* function = n->function;
  n->scope.function = function;
  n->scope.vars = qn__arena_alloc_array(arena, function->var_count + 1, sizeof *n->scope.vars);
  n->bound_by = qn__arena_alloc_array(arena, function->var_count + 1, sizeof *n->bound_by);
  n->layouts = qn__arena_alloc_array(arena, function->param_count + 1, sizeof *n->layouts);
  n->is_known = qn__arena_alloc_array(arena, function->param_count + function->symbol_count + 1,
                                      sizeof *n->is_known);
  if (!n->scope.vars || !n->bound_by || !n->layouts || !n->is_known)
    return qn__out_of_memory("shapes");
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (!buffer) continue;
    n->layouts[i].shape = qn__arena_alloc_array(arena, buffer->rank + 1, sizeof(int64_t));
    n->layouts[i].strides = qn__arena_alloc_array(arena, buffer->rank + 1, sizeof(int64_t));
    if (!n->layouts[i].shape || !n->layouts[i].strides) return qn__out_of_memory("shapes");
  }
  return QN_OK;
}

// Gives symbols their values, and checks the arguments that exist.
static qn_status_t take_given(infer_t* n) {
  const uint32_t count = (uint32_t)n->function->param_count;
  const qn__ir_param_t* params = n->function->params;
  for (uint32_t i = 0; i < count; i++) {
    if (params[i].scalar) QN_TRY(bind_scalar(n, i));
  }
  for (uint32_t i = 0; i < count; i++) {
    if (params[i].buffer) QN_TRY(bind_tensor(n, i));
  }
  QN_TRY(solve_equations(n));
  for (uint32_t i = 0; i < count; i++) {
    if (params[i].buffer) QN_TRY(check_given(n, i));
  }
  return QN_OK;
}

static qn_status_t begin(infer_t* n, size_t count, qn__arena_t* arena) {
  if (count != n->function->param_count || (count > 0 && !n->args)) {
    return qn_status_make(QN_STATUS_TYPE_ERROR, "%s: expected %zu arguments, got %zu",
                          n->function->signature, n->function->param_count, n->args ? count : 0);
  }
  QN_TRY(prepare(n, arena));
  return take_given(n);
}

qn_status_t qn__infer_shapes(const qn__ir_func_t* function, qn_allocator_t allocator,
                             const qn_value_t* args, size_t count, int64_t* const* out_shapes,
                             int64_t* const* out_strides) {
  qn__arena_t arena;
  qn__arena_init(&arena, allocator);
  infer_t n = {.function = function, .args = args};
  qn_status_t status = begin(&n, count, &arena);
  for (uint32_t i = 0; i < count && qn_ok(status); i++) {
    if (function->params[i].buffer) status = complete(&n, i);
  }
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (!buffer || buffer->rank == 0) continue;
    const size_t size_bytes = buffer->rank * sizeof(int64_t);
    if (out_shapes[i]) memcpy(out_shapes[i], n.layouts[i].shape, size_bytes);
    if (out_strides && out_strides[i]) memcpy(out_strides[i], n.layouts[i].strides, size_bytes);
  }
  qn__arena_deinit(&arena);
  return status;
}

static qn_status_t check_index(const qn_module_t* module, size_t function_index) {
  if (function_index < module->body.function_count) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function %zu of a module that has %zu",
                        function_index, module->body.function_count);
}

qn_status_t qn_module_infer_symbols(const qn_module_t* module, size_t function_index,
                                    const qn_value_t* args, size_t arg_count,
                                    int64_t* out_symbols) {
  QN_REQUIRE(module, out_symbols);
  QN_TRY(check_index(module, function_index));
  const qn__ir_func_t* function = module->functions[function_index];
  qn__arena_t arena;
  qn__arena_init(&arena, module->allocator);
  infer_t n = {.function = function, .args = args};
  qn_status_t status = begin(&n, arg_count, &arena);
  for (size_t i = 0; i < function->symbol_count && qn_ok(status); i++) {
    const qn__work_value_t* value = &n.scope.vars[function->symbols[i]->id];
    out_symbols[i] = value->is_known ? value->scalar.i : -1;
  }
  qn__arena_deinit(&arena);
  return status;
}

qn_status_t qn_module_infer_shapes(const qn_module_t* module, size_t function_index,
                                   const qn_value_t* args, size_t arg_count,
                                   int64_t* const* out_shapes, int64_t* const* out_strides) {
  QN_REQUIRE(module, out_shapes);
  QN_TRY(check_index(module, function_index));
  return qn__infer_shapes(module->functions[function_index], module->allocator, args, arg_count,
                          out_shapes, out_strides);
}
