// SPDX-License-Identifier: Apache-2.0
// jit/call/explain.c: the slow half of a packed call's checks: finds and describes the first
// violation.
//
// It repeats every check of call.c for each parameter, in the same order: type, device, rank,
// dtype, extents, strides, memory, overlap with earlier tensors; at the end extents and strides
// that are expressions, after the symbols that they give. Unlike call.c it keeps which parameter
// bound each symbol and which bytes each tensor has, because messages name both sides. A message
// names the function with its signature, the argument by number and name, and the expected and
// actual values.
//
// A check that is added here must be added to call.c, too: test_plan.c compares the results of both
// on random calls. qn__plan_explain returns ok for a valid call, so it is that test's reference.
#include <math.h>
#include <stdio.h>

#include "base/buffer.h"
#include "ir/shapes.h"
#include "ir/text.h"
#include "jit/call/plan.h"
#include "quern/backend.h"

// Tags of tvm-ffi.
#define FIRST_OBJECT 64
#define BIG_INT 78

typedef struct explain {
  const qn__plan_t* plan;
  const qn_value_t* args;
  uint64_t words[QN__MAX_WORDS];
  // The argument and dimension that bound each symbol, for "bound by".
  uint32_t bound_by[QN__MAX_WORDS];
  struct {
    uintptr_t begin;
    uintptr_t end;
  } ranges[QN__MAX_WORDS];
} explain_t;

static const char* type_text(int32_t type) {
  static const char* const names[] = {"nothing",   "an int",   "a bool",   "a float",  "a pointer",
                                      "a dtype",   "a device", "a tensor", "a string", "bytes",
                                      "an object", "a string", "bytes"};
  // The objects of tvm-ffi that its calls did not make a value of.
  static const char* const objects[] = {
      "an object",       "a string", "bytes",    "an error",     "a function",
      "a shape",         "a tensor", "an array", "a map",        "a module",
      "a Python object", "a list",   "a dict",   "an interrupt", "an integer beyond 64 bits"};
  if (type == QN_VALUE_UINT) return "an unsigned int";
  if (type >= FIRST_OBJECT && (size_t)type - FIRST_OBJECT < QN_COUNT_OF(objects)) {
    return objects[type - FIRST_OBJECT];
  }
  return type >= 0 && (size_t)type < QN_COUNT_OF(names) ? names[type] : "a value of unknown type";
}

static void dl_dtype_text(qn_dl_dtype_t dtype, char out[48]) {
  for (qn_dtype_t d = QN_DTYPE_BOOL; d < QN_DTYPE_COUNT; d = (qn_dtype_t)(d + 1)) {
    qn_dl_dtype_t known = qn_dtype_to_dl(d);
    if (known.code == dtype.code && known.bits == dtype.bits && dtype.lanes == 1) {
      (void)snprintf(out, 48, "%s", qn_dtype_text(d));
      return;
    }
  }
  (void)snprintf(out, 48, "DLPack dtype (code %u, %u bits, %u lanes)", dtype.code, dtype.bits,
                 dtype.lanes);
}

static const char* symbol_name(const explain_t* e, uint32_t symbol) {
  return e->plan->function->symbols[symbol]->name;
}

// Binds or compares the extent or stride (`what`) of dimension `d`. Expressions come later.
static qn_status_t check_dim(explain_t* e, uint32_t index, const char* what, uint32_t d,
                             const qn__plan_dim_t* dim, int64_t value) {
  uint64_t* symbols = e->words + e->plan->arg_count;
  assert(dim->kind > QN__DIM_SYMBOL || dim->symbol < e->plan->symbol_count);
  switch (dim->kind) {
    case QN__DIM_BIND:
      symbols[dim->symbol] = (uint64_t)value;
      e->bound_by[dim->symbol] = index;
      return QN_OK;
    case QN__DIM_SYMBOL:
      assert(e->bound_by[dim->symbol] <= index);
      if (symbols[dim->symbol] == (uint64_t)value) return QN_OK;
      return qn__wrong_argument(
          e->plan->function, index, QN_STATUS_VALUE_ERROR,
          "%s %u: expected %s = %" PRId64 " (bound by argument %u '%s'), got %" PRId64, what, d,
          symbol_name(e, dim->symbol), (int64_t)symbols[dim->symbol], e->bound_by[dim->symbol],
          e->plan->args[e->bound_by[dim->symbol]].name, value);
    case QN__DIM_CONST:
      if (dim->value == value) return QN_OK;
      return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                "%s %u: expected %" PRId64 ", got %" PRId64, what, d, dim->value,
                                value);
    case QN__DIM_EXPR:
      return QN_OK;
  }
  return QN_OK;
}

static qn_status_t check_strides(explain_t* e, uint32_t index, const qn_tensor_t* tensor,
                                 int64_t count, int64_t* out_span) {
  const qn__plan_arg_t* arg = &e->plan->args[index];
  int64_t compact_strides[QN__MAX_RANK];
  int64_t compact = 1, span = 1;
  for (uint32_t d = arg->rank; d-- > 0;) {
    compact_strides[d] = compact;
    if (__builtin_mul_overflow(compact, tensor->shape[d] > 0 ? tensor->shape[d] : 1, &compact)) {
      return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                "the product of its extents overflows");
    }
  }
  for (uint32_t d = 0; d < arg->rank; d++) {
    int64_t stride = tensor->strides ? tensor->strides[d] : compact_strides[d];
    if (!arg->strides) {
      if (count != 0 && tensor->shape[d] != 1 && stride != compact_strides[d]) {
        return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                  "stride %u: expected %" PRId64
                                  " elements (row-major), got %" PRId64
                                  "; make it contiguous or declare strides",
                                  d, compact_strides[d], stride);
      }
      continue;
    }
    if (stride < 0) {
      return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                "stride %u: expected at least 0, got %" PRId64, d, stride);
    }
    if (stride == 0 && tensor->shape[d] > 1 && arg->is_written) {
      return qn__wrong_argument(
          e->plan->function, index, QN_STATUS_VALUE_ERROR,
          "stride %u: expected at least 1, got 0: the tensor is written, and all %" PRId64
          " elements of that dimension are one",
          d, tensor->shape[d]);
    }
    if (arg->strides[d].kind == QN__DIM_BIND || qn__stride_counts(tensor, d)) {
      QN_TRY(check_dim(e, index, "stride", d, &arg->strides[d], stride));
    }
    int64_t reach;
    if (tensor->shape[d] == 0) continue;
    if (__builtin_mul_overflow(stride, tensor->shape[d] - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span)) {
      return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                "the distance from its first to its last element overflows");
    }
  }
  *out_span = count == 0 ? 0 : arg->strides ? span : count;
  return QN_OK;
}

static qn_status_t check_memory(explain_t* e, uint32_t index, const qn_tensor_t* tensor,
                                int64_t span) {
  const qn__plan_arg_t* arg = &e->plan->args[index];
  if (span > arg->max_elements) {
    return qn__wrong_argument(
        e->plan->function, index, QN_STATUS_VALUE_ERROR,
        e->plan->has_32_bit_indices
            ? "it spans %" PRId64 " elements, but this code's 32-bit indices reach %" PRId64
            : "it spans %" PRId64 " elements, whose bytes overflow: the most is %" PRId64,
        span, arg->max_elements);
  }
  int64_t size_bytes = qn__dtype_bytes_of(arg->dtype, span);
  uintptr_t begin = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
  e->words[index] = begin;
  e->ranges[index].begin = begin;
  e->ranges[index].end = begin + (uintptr_t)size_bytes;
  if (size_bytes == 0) return QN_OK;
  if (!tensor->data) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                              "data is null, but the tensor has %" PRId64 " bytes", size_bytes);
  }
  if (begin < (uintptr_t)tensor->data || e->ranges[index].end < begin) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                              "byte_offset %" PRIu64 " takes it beyond the address space",
                              tensor->byte_offset);
  }
  if ((begin & arg->align_mask) != 0) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                              "expected data aligned to %zu bytes, got address 0x%" PRIxPTR
                              " (byte_offset %" PRIu64 " included)",
                              (size_t)arg->align_mask + 1, begin, tensor->byte_offset);
  }
  return QN_OK;
}

static qn_status_t check_tensor(explain_t* e, uint32_t index) {
  const qn__plan_t* plan = e->plan;
  const qn__plan_arg_t* arg = &plan->args[index];
  const qn_value_t* value = &e->args[index];
  if (value->type != QN_VALUE_TENSOR) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_TYPE_ERROR,
                              "expected a tensor of %s, got %s", qn_dtype_text(arg->dtype),
                              type_text(value->type));
  }
  const qn_tensor_t* tensor = value->tensor;
  if (!tensor) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_TYPE_ERROR,
                              "expected a tensor, got a null pointer");
  }
  qn_device_t device;
  uint64_t device_word = qn__device_of_call(plan->device_word, tensor);
  memcpy(&device, &device_word, sizeof device);
  if (tensor->device.type != device.type || tensor->device.id != device.id) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                              "expected a tensor on device %s:%d, got %s:%d",
                              qn_device_type_text(device.type), device.id,
                              qn_device_type_text(tensor->device.type), tensor->device.id);
  }
  if (tensor->ndim != (int32_t)arg->rank) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_TYPE_ERROR,
                              "expected rank %u, got %d", arg->rank, tensor->ndim);
  }
  qn_dl_dtype_t dtype = qn_dtype_to_dl(arg->dtype);
  if (memcmp(&dtype, &tensor->dtype, sizeof dtype) != 0) {
    char got[48];
    dl_dtype_text(tensor->dtype, got);
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_TYPE_ERROR,
                              "expected dtype %s, got %s", qn_dtype_text(arg->dtype), got);
  }
  if (arg->rank != 0 && !tensor->shape) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR, "shape is null");
  }
  int64_t count = 1;
  bool has_overflow = false;
  for (uint32_t d = 0; d < arg->rank; d++) {
    if (tensor->shape[d] < 0) {
      return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                "extent %u: expected at least 0, got %" PRId64, d,
                                tensor->shape[d]);
    }
    QN_TRY(check_dim(e, index, "extent", d, &arg->shape[d], tensor->shape[d]));
    has_overflow |= __builtin_mul_overflow(count, tensor->shape[d], &count);
  }
  if (has_overflow) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                              "the product of its extents overflows");
  }
  if (arg->is_packed && tensor->shape[arg->rank - 1] % 2 != 0) {
    return qn__wrong_argument(
        e->plan->function, index, QN_STATUS_VALUE_ERROR,
        "extent %u: expected an even number, since two elements of %s share a byte, got "
        "%" PRId64,
        arg->rank - 1, qn_dtype_text(arg->dtype), tensor->shape[arg->rank - 1]);
  }
  int64_t span = count;
  QN_TRY(check_strides(e, index, tensor, count, &span));
  return check_memory(e, index, tensor, span);
}

static qn_status_t check_aliasing(explain_t* e, uint32_t index) {
  const qn__plan_t* plan = e->plan;
  for (uint32_t j = 0; j < index; j++) {
    if (!qn__plan_is_tensor(&plan->args[j])) continue;
    if (!plan->args[j].is_written && !plan->args[index].is_written) continue;
    assert(e->ranges[j].begin <= e->ranges[j].end);
    // An empty range overlaps nothing, wherever it begins.
    if (e->ranges[index].begin == e->ranges[index].end || e->ranges[j].begin == e->ranges[j].end) {
      continue;
    }
    if (e->ranges[index].begin < e->ranges[j].end && e->ranges[j].begin < e->ranges[index].end) {
      return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                "its memory [0x%" PRIxPTR ", 0x%" PRIxPTR
                                ") overlaps that of argument %u '%s' [0x%" PRIxPTR ", 0x%" PRIxPTR
                                ") and one of them is written; use one inout parameter",
                                e->ranges[index].begin, e->ranges[index].end, j, plan->args[j].name,
                                e->ranges[j].begin, e->ranges[j].end);
    }
  }
  return QN_OK;
}

static qn_status_t check_scalar(explain_t* e, uint32_t index) {
  const qn__plan_arg_t* arg = &e->plan->args[index];
  const qn_value_t* value = &e->args[index];
  bool is_uint = value->type == QN_VALUE_UINT;
  bool is_int = value->type == QN_VALUE_INT || value->type == QN_VALUE_BOOL || is_uint;
  const qn_status_code_t code =
      value->type == BIG_INT ? QN_STATUS_VALUE_ERROR : QN_STATUS_TYPE_ERROR;
  if (arg->form == QN__FORM_INT) {
    if (!is_int) {
      return qn__wrong_argument(e->plan->function, index, code, "expected an integer (%s), got %s",
                                qn_dtype_text(arg->dtype), type_text(value->type));
    }
    bool is_above = is_uint && value->int_value < 0;  // 2^63 and more
    if (arg->is_fixed && (is_above || value->int_value != arg->min_value)) {
      char got[24];
      (void)snprintf(got, sizeof got, is_uint ? "%" PRIu64 : "%" PRId64, value->int_value);
      return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                "expected %" PRId64 ", got %s", arg->min_value, got);
    }
    if (is_above) {
      e->words[index] = (uint64_t)value->int_value;
      if (arg->dtype == QN_DTYPE_U64) return QN_OK;
      return qn__wrong_argument(
          e->plan->function, index, QN_STATUS_VALUE_ERROR,
          "expected a value of %s in [%" PRId64 ", %" PRId64 "], got %" PRIu64,
          qn_dtype_text(arg->dtype), arg->min_value, arg->max_value, (uint64_t)value->int_value);
    }
    if (value->int_value < arg->min_value || value->int_value > arg->max_value) {
      // The range of u64 goes beyond what an INT can have.
      uint64_t max_value = arg->dtype == QN_DTYPE_U64 ? UINT64_MAX : (uint64_t)arg->max_value;
      return qn__wrong_argument(
          e->plan->function, index, QN_STATUS_VALUE_ERROR,
          "expected a value of %s in [%" PRId64 ", %" PRIu64 "], got %" PRId64,
          qn_dtype_text(arg->dtype), arg->min_value, max_value, value->int_value);
    }
    e->words[index] = qn__scalar_to_bits(arg->dtype, (qn__ir_scalar_t){.i = value->int_value});
    return QN_OK;
  }
  if (value->type != QN_VALUE_FLOAT && value->type != QN_VALUE_INT && !is_uint) {
    return qn__wrong_argument(e->plan->function, index, code, "expected a float (%s), got %s",
                              qn_dtype_text(arg->dtype), type_text(value->type));
  }
  double v = value->type == QN_VALUE_FLOAT ? value->float_value
             : is_uint                     ? (double)(uint64_t)value->int_value
                                           : (double)value->int_value;
  double rounded = qn__round_float(arg->dtype, v);
  if (isinf(rounded) && !isinf(v)) {
    return qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                              "%.17g is beyond the range of %s", v, qn_dtype_text(arg->dtype));
  }
  return QN_OK;
}

static qn_status_t divides_by_zero(const explain_t* e, uint32_t index, const char* what, uint32_t d,
                                   const qn__ir_expr_t* expr) {
  qn__buffer_t text;
  qn__buffer_init(&text, e->plan->allocator);
  qn__text_print_extent(expr, &text);
  qn_status_t status = qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                          "%s %u: '%.*s' divides by zero", what, d,
                                          QN_STR_ARG(qn__buffer_as_str(&text)));
  qn__buffer_deinit(&text);
  return status;
}

static qn_status_t check_equations(explain_t* e) {
  for (uint32_t i = 0; i < e->plan->equation_count; i++) {
    const qn__ir_equation_t* equation = &e->plan->equations[i];
    const int64_t extent = e->args[equation->param].tensor->shape[equation->dim];
    bool is_defined;
    int64_t rest;
    if (qn__plan_solve(e->plan, equation, extent, e->words, &is_defined, &rest)) continue;
    if (!is_defined) {
      return divides_by_zero(e, equation->param, "extent", equation->dim, equation->extent);
    }
    qn__buffer_t text;
    qn__buffer_init(&text, e->plan->allocator);
    qn__equation_explain(equation, extent, rest, &text);
    qn_status_t status =
        qn__wrong_argument(e->plan->function, equation->param, QN_STATUS_VALUE_ERROR,
                           "extent %u: %.*s", equation->dim, QN_STR_ARG(qn__buffer_as_str(&text)));
    qn__buffer_deinit(&text);
    return status;
  }
  return QN_OK;
}

static qn_status_t check_deferred_dim(explain_t* e, uint32_t index, const char* what, uint32_t d,
                                      const qn__plan_dim_t* dim, int64_t value) {
  if (dim->kind != QN__DIM_EXPR) return QN_OK;
  int64_t expected = 0;
  bool is_defined = qn__plan_eval(e->plan, dim->expr, e->words, &expected);
  if (is_defined && expected == value) return QN_OK;
  if (!is_defined) return divides_by_zero(e, index, what, d, dim->expr);
  qn__buffer_t text;
  qn__buffer_init(&text, e->plan->allocator);
  qn__text_print_extent(dim->expr, &text);
  qn_status_t status = qn__wrong_argument(e->plan->function, index, QN_STATUS_VALUE_ERROR,
                                          "%s %u: expected %.*s = %" PRId64 ", got %" PRId64, what,
                                          d, QN_STR_ARG(qn__buffer_as_str(&text)), expected, value);
  qn__buffer_deinit(&text);
  return status;
}

static qn_status_t check_deferred(explain_t* e) {
  for (uint32_t i = 0; i < e->plan->arg_count; i++) {
    const qn__plan_arg_t* arg = &e->plan->args[i];
    if (!qn__plan_is_tensor(arg)) continue;
    const qn_tensor_t* tensor = e->args[i].tensor;
    int64_t compact = 1;
    for (uint32_t d = arg->rank; d-- > 0;) {
      QN_TRY(check_deferred_dim(e, i, "extent", d, &arg->shape[d], tensor->shape[d]));
      // Only declared strides have been checked for a product of extents other than 0 that fits.
      if (!arg->strides) continue;
      if (qn__stride_counts(tensor, d)) {
        QN_TRY(check_deferred_dim(e, i, "stride", d, &arg->strides[d],
                                  tensor->strides ? tensor->strides[d] : compact));
      }
      compact *= tensor->shape[d] > 0 ? tensor->shape[d] : 1;
    }
  }
  return QN_OK;
}

qn_status_t qn__plan_explain(const qn__plan_t* plan, const qn_value_t* args, size_t count) {
  if (count != plan->arg_count) {
    return qn_status_make(QN_STATUS_TYPE_ERROR, "%s: expected %u arguments, got %zu",
                          plan->function->signature, plan->arg_count, count);
  }
  if (count != 0 && !args) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "%s: args is null, but %u arguments are expected",
                          plan->function->signature, plan->arg_count);
  }
  assert(count + plan->symbol_count <= QN__MAX_WORDS);
  explain_t e;
  memset(&e, 0, sizeof e);
  e.plan = plan;
  e.args = args;
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    if (qn__plan_is_tensor(&plan->args[i])) {
      QN_TRY(check_tensor(&e, i));
      QN_TRY(check_aliasing(&e, i));
    } else {
      QN_TRY(check_scalar(&e, i));
    }
  }
  QN_TRY(check_equations(&e));
  return check_deferred(&e);
}
