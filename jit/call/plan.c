// SPDX-License-Identifier: Apache-2.0
// jit/call/plan.c: makes the plan of a function's calls from its signature. See plan.h.
//
// This work is done once per function cell, to keep calls short: symbols are numbered, and
// constants are laid out as in a tensor's memory. An example:
//
//   func f(x: f32[n], y: f32[2 * n], out z: f32[n])
//
//   x.shape  BIND n: the first parameter that contains n
//   y.shape  EXPR `2 * n`: compared with its value after all parameters
//   z.shape  SYMBOL n: compared with the value that x bound
//            (without x and z, y.shape would be an equation that gives n: see ir/equation.h)
//   pairs    (x, z) and (y, z): z is written, so it must not overlap the others
//
// The words of a call are the parameters, then the symbols, 64 bits each.
#include "jit/call/plan.h"

#include <limits.h>

static bool is_var_of_kind(const qn__ir_expr_t* expr, qn__ir_var_kind_t kind) {
  return expr->kind == QN__EXPR_VAR && expr->var->kind == kind;
}

// Checks that the words of a call are all that the expression needs.
static qn_status_t check_expr(const qn__ir_func_t* function, const qn__ir_expr_t* expr) {
  switch (expr->kind) {
    case QN__EXPR_INT:
      return QN_OK;
    case QN__EXPR_VAR:
      if (qn__word_of(function, expr->var) != UINT32_MAX) return QN_OK;
      break;
    case QN__EXPR_OP:
    case QN__EXPR_CAST:
    case QN__EXPR_COND:
      for (uint32_t i = 0; i < 3 && expr->args[i]; i++) {
        QN_TRY(check_expr(function, expr->args[i]));
      }
      return QN_OK;
    default:
      break;
  }
  return qn_status_make(
      QN_STATUS_UNSUPPORTED,
      "function '%s': a shape may use symbols, integer parameters and operators only",
      function->name);
}

static bool eval(const qn__ir_func_t* function, const qn__ir_expr_t* expr, const uint64_t* words,
                 qn__ir_scalar_t* out) {
  if (expr->kind == QN__EXPR_INT) {
    out->i = expr->int_value;
    return true;
  }
  if (expr->kind == QN__EXPR_VAR) {
    const uint32_t word = qn__word_of(function, expr->var);
    assert(word < QN__MAX_WORDS);
    *out = qn__scalar_from_bits(expr->var->dtype, words[word]);
    return true;
  }
  qn__ir_scalar_t args[3];
  if (expr->kind == QN__EXPR_COND) {
    return eval(function, expr->args[0], words, args) &&
           eval(function, expr->args[args[0].i ? 1 : 2], words, out);
  }
  for (uint32_t i = 0; i < 3 && expr->args[i]; i++) {
    if (!eval(function, expr->args[i], words, &args[i])) return false;
  }
  if (expr->kind == QN__EXPR_OP) {
    return qn__scalar_op(expr->op, qn__expr_operand_dtype(expr), args, out);
  }
  assert(expr->kind == QN__EXPR_CAST);
  *out = qn__scalar_cast(expr->args[0]->dtype, args[0], expr->dtype);
  return true;
}

bool qn__plan_eval(const qn__plan_t* plan, const qn__ir_expr_t* expr, const uint64_t* words,
                   int64_t* out_value) {
  qn__ir_scalar_t value;
  if (!eval(plan->function, expr, words, &value)) return false;
  *out_value = value.i;
  return true;
}

bool qn__plan_solve(const qn__plan_t* plan, const qn__ir_equation_t* equation, int64_t extent,
                    uint64_t* words, bool* out_is_defined, int64_t* out_rest) {
  const uint32_t word = qn__word_of(plan->function, equation->symbol);
  assert(word < QN__MAX_WORDS);
  words[word] = 0;
  int64_t value = 0;
  *out_is_defined = qn__plan_eval(plan, equation->extent, words, out_rest);
  if (!*out_is_defined || !qn__equation_solve(equation, extent, *out_rest, &value)) return false;
  words[word] = (uint64_t)value;
  return true;
}

// Determines how to check an extent or stride.
static qn_status_t make_dim(qn__plan_t* plan, const qn__ir_expr_t* expr, bool* is_bound,
                            qn__plan_dim_t* out) {
  const qn__ir_func_t* function = plan->function;
  if (expr->kind == QN__EXPR_INT) {
    *out = (qn__plan_dim_t){.kind = QN__DIM_CONST, .value = expr->int_value};
    return QN_OK;
  }
  if (is_var_of_kind(expr, QN__VAR_SYMBOL)) {
    uint32_t symbol = qn__word_of(function, expr->var) - (uint32_t)function->param_count;
    assert(symbol < function->symbol_count);
    *out = (qn__plan_dim_t){.kind = is_bound[symbol] ? QN__DIM_SYMBOL : QN__DIM_BIND,
                            .symbol = symbol};
    is_bound[symbol] = true;
    return QN_OK;
  }
  QN_TRY(check_expr(function, expr));
  *out = (qn__plan_dim_t){.kind = QN__DIM_EXPR, .expr = expr};
  plan->deferred_count++;
  return QN_OK;
}

static qn_status_t make_dims(qn__plan_t* plan, qn__ir_expr_t* const* exprs, uint32_t rank,
                             bool* is_bound, const qn__plan_dim_t** out_dims) {
  qn__plan_dim_t* dims =
      qn__arena_alloc_array(&plan->arena, rank ? rank : 1, sizeof(qn__plan_dim_t));
  if (!dims) return qn__out_of_memory("a call plan");
  for (uint32_t d = 0; d < rank; d++) QN_TRY(make_dim(plan, exprs[d], is_bound, &dims[d]));
  *out_dims = dims;
  return QN_OK;
}

static void int_range(qn_dtype_t dtype, int64_t* out_min, int64_t* out_max) {
  uint32_t bits = dtype == QN_DTYPE_BOOL ? 1 : qn__dtype_bits(dtype);
  bool is_signed = qn__dtype_class(dtype) == QN__CLASS_SIGNED;
  if (bits == 64) {
    *out_min = is_signed ? INT64_MIN : 0;
    *out_max = INT64_MAX;
  } else if (is_signed) {
    *out_min = -((int64_t)1 << (bits - 1));
    *out_max = ((int64_t)1 << (bits - 1)) - 1;
  } else {
    *out_min = 0;
    *out_max = ((int64_t)1 << bits) - 1;
  }
}

// Returns ndim and dtype of a tensor as they lie side by side in its memory.
static uint64_t ndim_and_dtype(uint32_t rank, qn_dtype_t dtype) {
  struct {
    int32_t ndim;
    qn_dl_dtype_t dtype;
  } pair = {(int32_t)rank, qn_dtype_to_dl(dtype)};
  uint64_t word;
  memcpy(&word, &pair, sizeof word);
  return word;
}

static qn_status_t make_arg(qn__plan_t* plan, const qn__ir_param_t* param, bool* is_bound,
                            qn__plan_arg_t* out) {
  if (param->scalar) {
    out->name = param->scalar->name;
    out->dtype = param->scalar->dtype;
    if (qn__dtype_is_float(out->dtype)) {
      out->tag = QN_VALUE_FLOAT;
      out->form = out->dtype == QN_DTYPE_F32   ? QN__FORM_F32
                  : out->dtype == QN_DTYPE_F64 ? QN__FORM_F64
                                               : QN__FORM_FLOAT;
      return QN_OK;
    }
    out->tag = QN_VALUE_INT;
    out->form = QN__FORM_INT;
    out->bit_mask = qn__width_mask(out->dtype);
    int_range(out->dtype, &out->min_value, &out->max_value);
    out->is_fixed = param->scalar->is_fixed;
    if (out->is_fixed) out->min_value = out->max_value = param->scalar->fixed_value;
    return QN_OK;
  }
  const qn__ir_buffer_t* buffer = param->buffer;
  if (buffer->rank > QN__MAX_RANK) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "function '%s': parameter '%s' has rank %u, the limit of a call is %u",
                          plan->function->name, buffer->name, buffer->rank, QN__MAX_RANK);
  }
  out->tag = QN_VALUE_TENSOR;
  out->name = buffer->name;
  out->dtype = buffer->dtype;
  out->rank = buffer->rank;
  out->item_bytes = qn_dtype_size_bytes(buffer->dtype);
  out->is_packed = qn__dtype_is_packed(buffer->dtype);
  out->align_mask = (uint64_t)buffer->align_bytes - 1;
  out->max_elements = plan->has_32_bit_indices ? INT32_MAX : INT64_MAX / (int64_t)out->item_bytes;
  out->is_written = buffer->access != QN_ACCESS_IN;
  out->ndim_and_dtype = ndim_and_dtype(buffer->rank, buffer->dtype);
  QN_TRY(make_dims(plan, buffer->shape, buffer->rank, is_bound, &out->shape));
  out->form = QN__FORM_TENSOR;
  out->max_plain = out->max_elements;
  out->unusual_mask =
      buffer->strides || out->is_packed ? UINT64_MAX : out->align_mask | UINT64_C(3) << 62;
  if (buffer->strides) {
    QN_TRY(make_dims(plan, buffer->strides, buffer->rank, is_bound, &out->strides));
  }
  return QN_OK;
}

// Finds the tensors of one dimension whose extent another one binds. Their counts are equal, so the
// one that binds compares with the least limit of all.
static void make_vectors(qn__plan_t* plan) {
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    qn__plan_arg_t* bind = &plan->args[i];
    if (!qn__plan_is_tensor(bind) || bind->rank != 1 || bind->shape[0].kind != QN__DIM_BIND) {
      continue;
    }
    bind->form = QN__FORM_BIND;
    bind->symbol = bind->shape[0].symbol;
    for (uint32_t j = i + 1; j < plan->arg_count; j++) {
      qn__plan_arg_t* arg = &plan->args[j];
      if (!qn__plan_is_tensor(arg) || arg->rank != 1 || arg->shape[0].kind != QN__DIM_SYMBOL ||
          arg->shape[0].symbol != bind->symbol) {
        continue;
      }
      arg->form = QN__FORM_VECTOR;
      arg->symbol = bind->symbol;
      if (bind->max_plain > arg->max_elements) bind->max_plain = arg->max_elements;
    }
  }
}

// Returns whether two parameters must not overlap.
static bool is_pair(const qn__plan_arg_t* a, const qn__plan_arg_t* b) {
  return qn__plan_is_tensor(a) && qn__plan_is_tensor(b) && (a->is_written || b->is_written);
}

static qn_status_t make_pairs(qn__plan_t* plan) {
  size_t count = plan->arg_count;
  plan->pairs = qn__arena_alloc_array(&plan->arena, count * count + 1, sizeof *plan->pairs);
  if (!plan->pairs) return qn__out_of_memory("a call plan");
  plan->pairs_end = plan->pairs;
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    for (uint32_t j = 0; j < i; j++) {
      if (!is_pair(&plan->args[i], &plan->args[j])) continue;
      *plan->pairs_end++ =
          (qn__plan_pair_t){j * (uint32_t)sizeof(uint64_t), i * (uint32_t)sizeof(uint64_t)};
    }
  }
  return QN_OK;
}

// Lists the equations of the symbols that no parameter has bound.
static qn_status_t make_equations(qn__plan_t* plan, const bool* is_bound) {
  const qn__ir_func_t* function = plan->function;
  plan->equations =
      qn__arena_alloc_array(&plan->arena, plan->symbol_count + 1, sizeof *plan->equations);
  if (!plan->equations) return qn__out_of_memory("a call plan");
  bool is_known[QN__MAX_WORDS];
  for (size_t i = 0; i < function->param_count; i++) is_known[i] = true;
  for (uint32_t i = 0; i < plan->symbol_count; i++) {
    is_known[function->param_count + i] = is_bound[i];
  }
  qn__ir_equation_t equation;
  while (qn__equation_find(function, is_known, &equation)) {
    assert(plan->equation_count < plan->symbol_count);
    plan->equations[plan->equation_count++] = equation;
    is_known[qn__word_of(function, equation.symbol)] = true;
  }
  return QN_OK;
}

static qn_status_t fill_plan(qn__plan_t* plan) {
  const qn__ir_func_t* function = plan->function;
  plan->args = qn__arena_alloc_array(&plan->arena, function->param_count + 1, sizeof *plan->args);
  if (!plan->args) return qn__out_of_memory("a call plan");
  bool is_bound[QN__MAX_WORDS] = {false};
  for (size_t i = 0; i < function->param_count; i++) {
    QN_TRY(make_arg(plan, &function->params[i], is_bound, &plan->args[i]));
  }
  QN_TRY(make_equations(plan, is_bound));
  make_vectors(plan);
  return make_pairs(plan);
}

// Tests requirement 2 for the extents or strides of one parameter.
static bool check_dims(const qn__plan_t* plan, const qn__plan_dim_t* dims, uint32_t rank,
                       bool* is_bound) {
  for (uint32_t d = 0; dims && d < rank; d++) {
    const qn__plan_dim_t* dim = &dims[d];
    if ((dim->kind == QN__DIM_EXPR) != (dim->expr != NULL)) return false;
    if (dim->kind != QN__DIM_BIND && dim->kind != QN__DIM_SYMBOL) continue;
    if (dim->symbol >= plan->symbol_count) return false;
    if (is_bound[dim->symbol] != (dim->kind == QN__DIM_SYMBOL)) return false;
    is_bound[dim->symbol] = true;
  }
  return true;
}

// Tests requirement 5 for one parameter.
static bool check_form(const qn__plan_t* plan, uint32_t index) {
  const qn__plan_arg_t* arg = &plan->args[index];
  if (arg->form == QN__FORM_TENSOR) return arg->max_plain == arg->max_elements;
  if (arg->rank != 1 || arg->symbol != arg->shape[0].symbol) return false;
  if (arg->form == QN__FORM_BIND) {
    return arg->shape[0].kind == QN__DIM_BIND && arg->max_plain <= arg->max_elements;
  }
  uint32_t i = 0;
  while (i < index &&
         (plan->args[i].form != QN__FORM_BIND || plan->args[i].symbol != arg->symbol)) {
    i++;
  }
  return i < index && arg->shape[0].kind == QN__DIM_SYMBOL &&
         plan->args[i].max_plain <= arg->max_elements;
}

// Tests requirement 6.
static bool check_equations(const qn__plan_t* plan, bool* is_bound) {
  for (uint32_t i = 0; i < plan->equation_count; i++) {
    const qn__ir_equation_t* equation = &plan->equations[i];
    const uint32_t symbol = qn__word_of(plan->function, equation->symbol) - plan->arg_count;
    const qn__plan_dim_t* dim = &plan->args[equation->param].shape[equation->dim];
    if (symbol >= plan->symbol_count || is_bound[symbol]) return false;
    if (dim->kind != QN__DIM_EXPR || dim->expr != equation->extent) return false;
    is_bound[symbol] = true;
  }
  for (uint32_t i = 0; i < plan->symbol_count; i++) {
    if (!is_bound[i]) return false;
  }
  return true;
}

bool qn__plan_check(const qn__plan_t* plan) {
  bool is_bound[QN__MAX_WORDS] = {false};
  size_t pair_count = 0;
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    const qn__plan_arg_t* arg = &plan->args[i];
    const qn__ir_param_t* param = &plan->function->params[i];
    if (qn__plan_is_tensor(arg) != (param->buffer != NULL)) return false;
    for (uint32_t j = 0; j < i; j++) pair_count += is_pair(arg, &plan->args[j]);
    if (!qn__plan_is_tensor(arg)) continue;
    if (arg->ndim_and_dtype != ndim_and_dtype(param->buffer->rank, param->buffer->dtype) ||
        arg->item_bytes != qn_dtype_size_bytes(arg->dtype) ||
        (arg->align_mask & ~arg->unusual_mask) != 0 ||
        !check_dims(plan, arg->shape, arg->rank, is_bound) ||
        !check_dims(plan, arg->strides, arg->rank, is_bound) || !check_form(plan, i)) {
      return false;
    }
  }
  if (!check_equations(plan, is_bound)) return false;
  for (const qn__plan_pair_t* pair = plan->pairs; pair != plan->pairs_end; pair++) {
    const size_t first = pair->first / sizeof(uint64_t), second = pair->second / sizeof(uint64_t);
    if (first >= second || second >= plan->arg_count) return false;
    if (!is_pair(&plan->args[first], &plan->args[second])) return false;
  }
  return pair_count == (size_t)(plan->pairs_end - plan->pairs);
}

qn_status_t qn__plan_create(const qn__ir_func_t* function, qn_device_t device,
                            bool has_32_bit_indices, qn_allocator_t allocator,
                            qn__plan_t** out_plan) {
  *out_plan = NULL;
  if (function->param_count + function->symbol_count > QN__MAX_WORDS) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "function '%s' has %zu parameters and symbols, the limit of a call is %u",
                          function->name, function->param_count + function->symbol_count,
                          QN__MAX_WORDS);
  }
  qn__plan_t* plan = qn__alloc_zero(allocator, 1, sizeof *plan);
  if (!plan) return qn__out_of_memory("a call plan");
  plan->allocator = allocator;
  qn__arena_init(&plan->arena, allocator);
  plan->function = function;
  memcpy(&plan->device_word, &device, sizeof device);
  plan->arg_count = (uint32_t)function->param_count;
  plan->symbol_count = (uint32_t)function->symbol_count;
  plan->has_32_bit_indices = has_32_bit_indices;
  qn_status_t status = fill_plan(plan);
  if (!qn_ok(status)) {
    qn__plan_destroy(plan);
    return status;
  }
#ifndef NDEBUG
  (void)QN_NEVER(!qn__plan_check(plan));
#endif
  *out_plan = plan;
  return QN_OK;
}

void qn__plan_destroy(qn__plan_t* plan) {
  if (!plan) return;
  qn__arena_deinit(&plan->arena);
  qn__free(plan->allocator, plan, sizeof *plan);
}
