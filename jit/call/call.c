// SPDX-License-Identifier: Apache-2.0
// jit/call/call.c: the packed call: its checks, and the way into the kernel.
//
// What must be checked (promise 5), each here and in explain.c:
//  1. the count of arguments;                       2. each value's type tag;
//  3. a tensor's null pointer, rank, dtype, device (compared as two 64-bit words; the CPU reads
//     pinned memory of other devices, too);
//  4. extents: not negative, symbols agree, equations have a solution, constants and expressions
//     match, rows of packed elements end with a byte;
//  5. the product of extents fits, in bytes (and in 32-bit indices where the code has them);
//  6. strides: row-major unless declared, and then as declared (not 0 where written); those of
//     extents of 1, and of empty tensors, do not count;
//  7. data: not null unless empty, aligned as declared including byte_offset;
//  8. no written tensor overlaps another one;       9. integers fit their dtype; floats too.
//
// A call is checked by the first of three functions that can decide:
//  - bind_plain accepts the usual calls on the CPU's default stream: tensors that are compact, with
//    values of the parameters' own types. Nothing else is on its way: no function but the kernel is
//    called, so that its values stay in registers, no lock, no allocation, one acquire load. Its
//    cost is its instructions, because every branch goes the same way in call after call.
//    bench/bench_call.c measures it.
//  - bind_all accepts every right call. It says only yes or no.
//  - qn__plan_explain (explain.c) finds the reason of a no.
// Debug builds compare the words of bind_plain with those of bind_all. Read next: explain.c.
#include <assert.h>
#include <math.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "devices/cpu/cpu.h"
#include "ir/shapes.h"
#include "jit/call/bind.h"
#include "jit/call/dispatch.h"

// Checks declared strides. A tensor without strides is row-major. Gives the elements from the first
// to one past the last.
static bool bind_strides(const qn__plan_arg_t* arg, const qn_tensor_t* tensor, uint64_t* symbols,
                         int64_t* out_span) {
  int64_t compact_strides[QN__MAX_RANK];
  int64_t compact = 1, span = 1;
  for (uint32_t d = arg->rank; d-- > 0;) {
    compact_strides[d] = compact;
    if (__builtin_mul_overflow(compact, tensor->shape[d] > 0 ? tensor->shape[d] : 1, &compact)) {
      return false;
    }
  }
  bool is_empty = false;
  for (uint32_t d = 0; d < arg->rank; d++) {
    int64_t stride = tensor->strides ? tensor->strides[d] : compact_strides[d];
    // Elements that are one and the same may be read, not written.
    bool is_repeated = stride == 0 && tensor->shape[d] > 1 && arg->is_written;
    if (stride < 0 || is_repeated) return false;
    bool is_free = arg->strides[d].kind != QN__DIM_BIND && !qn__stride_counts(tensor, d);
    if (!is_free && !qn__bind_dim(&arg->strides[d], stride, symbols)) return false;
    int64_t reach;
    is_empty |= tensor->shape[d] == 0;
    if (tensor->shape[d] == 0) continue;
    if (__builtin_mul_overflow(stride, tensor->shape[d] - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span)) {
      return false;
    }
  }
  *out_span = is_empty ? 0 : span;
  return true;
}

static bool is_row_major(const qn_tensor_t* tensor, uint32_t rank, int64_t count) {
  int64_t expected = 1;
  for (uint32_t d = rank; d-- > 0 && count != 0;) {
    if (tensor->shape[d] != 1 && tensor->strides[d] != expected) return false;
    expected *= tensor->shape[d];
  }
  return true;
}

// Binds any tensor. Writes the address of the first element, and the one after the last where its
// end belongs (qn__words_t). Only an empty tensor may be null or not aligned. The span is counted
// in elements from the first to one past the last.
static bool bind_tensor(const qn__plan_arg_t* arg, uint64_t plan_device, const qn_tensor_t* tensor,
                        uint64_t* symbols, uint64_t* out_word) {
  int64_t count;
  if (qn__type_difference(arg, qn__device_of_call(plan_device, tensor), tensor) != 0 ||
      !qn__bind_shape(arg, tensor->shape, symbols, &count)) {
    return false;
  }
  int64_t span = count;
  if (arg->strides) {
    if (!bind_strides(arg, tensor, symbols, &span)) return false;
  } else if (tensor->strides && !is_row_major(tensor, arg->rank, count)) {
    return false;
  }
  if (span > arg->max_elements) return false;
  if (arg->is_packed) {
    if (tensor->shape[arg->rank - 1] % 2 != 0) return false;
    span /= 2;
  }
  const uint64_t data = (uint64_t)(uintptr_t)tensor->data;
  uint64_t* out_end = out_word + QN__MAX_WORDS;
  bool is_bad = __builtin_add_overflow(data, tensor->byte_offset, out_word);
  is_bad |= __builtin_add_overflow(*out_word, (uint64_t)span * arg->item_bytes, out_end);
  is_bad |= data == 0 || (*out_word & arg->align_mask) != 0;
  return span == 0 || !is_bad;
}

// Binds any scalar. Integers that become floats are rounded once: the nearest f64 of one might be a
// tie between two f32.
static bool bind_scalar(const qn__plan_arg_t* arg, const qn_value_t* value, uint64_t* out_word) {
  const bool is_unsigned = value->type == QN_VALUE_UINT;
  const bool is_integer = is_unsigned || value->type == QN_VALUE_INT;
  const int64_t number = value->int_value;
  if (arg->form == QN__FORM_INT) {
    if (is_unsigned && number < 0) {  // beyond 2^63 - 1
      *out_word = (uint64_t)number;
      return arg->dtype == QN_DTYPE_U64 && !arg->is_fixed;
    }
    return (is_integer || value->type == QN_VALUE_BOOL) && qn__bind_int(arg, number, out_word);
  }
  if (!is_integer && value->type != QN_VALUE_FLOAT) return false;
  qn_dtype_t from = is_unsigned ? QN_DTYPE_U64 : QN_DTYPE_I64;
  double rounded = is_integer ? qn__scalar_cast(from, (qn__ir_scalar_t){.i = number}, arg->dtype).f
                              : qn__round_float(arg->dtype, value->float_value);
  *out_word = qn__scalar_to_bits(arg->dtype, (qn__ir_scalar_t){.f = rounded});
  return !isinf(rounded) || (!is_integer && isinf(value->float_value));
}

// Binds the symbols that stand alone in no shape.
static bool solve_equations(const qn__plan_t* plan, const qn_value_t* args, uint64_t* words) {
  for (uint32_t i = 0; i < plan->equation_count; i++) {
    const qn__ir_equation_t* equation = &plan->equations[i];
    const int64_t extent = args[equation->param].tensor->shape[equation->dim];
    bool is_defined;
    int64_t rest;
    if (!qn__plan_solve(plan, equation, extent, words, &is_defined, &rest)) return false;
  }
  return true;
}

// Checks extents and strides that are expressions, once every symbol is bound.
static bool check_deferred(const qn__plan_t* plan, const qn_value_t* args, const uint64_t* words) {
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    const qn__plan_arg_t* arg = &plan->args[i];
    if (!qn__plan_is_tensor(arg)) continue;
    const qn_tensor_t* tensor = args[i].tensor;
    int64_t compact = 1;
    for (uint32_t d = arg->rank; d-- > 0;) {
      int64_t expected;
      if (arg->shape[d].kind == QN__DIM_EXPR &&
          (!qn__plan_eval(plan, arg->shape[d].expr, words, &expected) ||
           expected != tensor->shape[d])) {
        return false;
      }
      // Only declared strides have been checked for a product of extents other than 0 that fits.
      if (!arg->strides) continue;
      if (arg->strides[d].kind == QN__DIM_EXPR && qn__stride_counts(tensor, d) &&
          (!qn__plan_eval(plan, arg->strides[d].expr, words, &expected) ||
           expected != (tensor->strides ? tensor->strides[d] : compact))) {
        return false;
      }
      compact *= tensor->shape[d] > 0 ? tensor->shape[d] : 1;
    }
  }
  return true;
}

// Binds any call.
static bool bind_all(const qn__plan_t* plan, const qn_value_t* args, size_t count,
                     qn__words_t* out) {
  if (count != plan->arg_count || (!args && count != 0)) return false;
  assert(count + plan->symbol_count <= QN__MAX_WORDS);
  uint64_t *words = out->words, *symbols = words + count;
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    const qn__plan_arg_t* arg = &plan->args[i];
    if (!qn__plan_is_tensor(arg)) {
      if (!bind_scalar(arg, &args[i], &words[i])) return false;
    } else if (args[i].type != QN_VALUE_TENSOR || !args[i].tensor ||
               !bind_tensor(arg, plan->device_word, args[i].tensor, symbols, &words[i])) {
      return false;
    }
  }
  if (qn__has_overlap(plan, words)) return false;
  return plan->deferred_count == 0 ||
         (solve_equations(plan, args, words) && check_deferred(plan, args, words));
}

#ifndef NDEBUG
// Whether bind_all accepts a plain call, too, and with the same words.
static bool is_bound_alike(const qn__plan_t* plan, const qn_value_t* args, size_t count,
                           const qn__words_t* plain) {
  qn__words_t all;
  const size_t word_count = plan->arg_count + plan->symbol_count;
  return bind_all(plan, args, count, &all) &&
         memcmp(all.words, plain->words, word_count * sizeof(uint64_t)) == 0;
}
#endif

bool qn__bind_any(const qn__plan_t* plan, const qn_value_t* args, size_t count,
                  qn__words_t* out_words) {
  return bind_all(plan, args, count, out_words);
}

// ---------------------------------------------------------------------------------- the call

static __attribute__((noinline, cold)) qn_status_t explain(const qn__plan_t* plan,
                                                           const qn_value_t* args, size_t count) {
  qn_status_t status = qn__plan_explain(plan, args, count);
  if (QN_NEVER(qn_ok(status))) {
    return qn_status_make(QN_STATUS_INTERNAL, "%s: the call was refused without a reason",
                          plan->function->signature);
  }
  return status;
}

static __attribute__((noinline, cold)) qn_status_t refusal(qn__variant_t* variant,
                                                           const qn_value_t* args, size_t count) {
  qn_status_t status = explain(variant->plan, args, count);
  if (!variant->guard) return status;
  return qn_status_annotate(status, "%s, which is served by a generic variant",
                            variant->function->ir->signature);
}

// Calls the kernel's entry on this thread.
static inline qn_status_t run(qn__variant_t* variant, const uint64_t* words) {
  qn__cpu_call_t state;
  qn__cpu_call_init(&state);
  if (QN__LIKELY(variant->entry(&state.env, words) == 0)) return QN_OK;
  return qn__variant_describe(variant, &state.failure);
}

// Makes any call. A call of a variant that serves another function is checked against that function
// first, so that it is refused in its words, whatever the variant takes.
__attribute__((noinline)) qn_status_t qn__variant_call(qn__variant_t* variant, qn_stream_t* stream,
                                                       const qn_value_t* args, size_t count) {
  qn__words_t all;
  assert(!variant->guard || variant->guard->function == variant->function->ir);
  if (variant->guard) {
    if (variant->dispatch) return qn__dispatch_call(variant->dispatch, stream, args, count);
    if (!bind_all(variant->guard, args, count, &all)) return explain(variant->guard, args, count);
  }
  if (!bind_all(variant->plan, args, count, &all)) return refusal(variant, args, count);
  if (!stream && variant->entry) return run(variant, all.words);
  return qn__variant_launch(variant, stream, all.words, all.words + QN__MAX_WORDS);
}

// Makes a plain call; false: qn__variant_call decides. In both callers whole: one function more on
// the way would be a twentieth of a call.
static inline __attribute__((always_inline)) bool call_plain(qn__variant_t* variant,
                                                             const qn_stream_t* stream,
                                                             const qn_value_t* args, size_t count,
                                                             qn_status_t* out_status) {
  qn__words_t all;
  // One test for both, which usually hold.
  if (QN__UNLIKELY(((uintptr_t)stream | variant->needs_more) != 0) ||
      QN__UNLIKELY(!qn__bind_plain(variant->plan, args, count, all.words))) {
    return false;
  }
  assert(is_bound_alike(variant->plan, args, count, &all));
  assert(variant->entry && !variant->guard);
  *out_status = run(variant, all.words);
  return true;
}

static inline qn__variant_t* begin_call(qn_function_t* function, qn_value_t* result) {
  if (QN__UNLIKELY(result != NULL)) *result = (qn_value_t){QN_VALUE_NONE, 0, {0}};
  return atomic_load_explicit(&function->variant, memory_order_acquire);
}

qn_status_t qn_function_call(qn_function_t* function, const qn_value_t* args, size_t count,
                             qn_value_t* result) {
  // Null arguments are refused as a wrong call of this function (explain.c).
  if (QN__UNLIKELY(!function)) return qn__null_argument(__func__, "function");
  qn__variant_t* variant = begin_call(function, result);
  qn_status_t status;
  if (QN__LIKELY(call_plain(variant, qn__active_cpu_stream, args, count, &status))) return status;
  return qn__variant_call(variant, qn_active_stream(variant->function->device), args, count);
}

qn_status_t qn_function_call_on(qn_function_t* function, qn_stream_t* stream,
                                const qn_value_t* args, size_t count, qn_value_t* result) {
  if (QN__UNLIKELY(!function)) return qn__null_argument(__func__, "function");
  qn_status_t status = qn__stream_check(function->device, stream);
  if (QN__UNLIKELY(!qn_ok(status)))
    return qn_status_annotate(status, "%s", function->ir->signature);
  qn__variant_t* variant = begin_call(function, result);
  stream = qn__stream_named(stream);
  if (QN__LIKELY(call_plain(variant, stream, args, count, &status))) return status;
  return qn__variant_call(variant, stream, args, count);
}
