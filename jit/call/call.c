// jit/call/call.c: the packed call: its checks, and the way into the kernel.
//
// What must be checked (promise 5), each here and in explain.c:
//  1. the count of arguments;                       2. each value's type tag;
//  3. a tensor's null pointer, rank, dtype, device (compared as two 64-bit words);
//  4. extents: not negative, symbols agree, constants and expressions match;
//  5. the product of extents fits, in bytes (and in 32-bit indices where the code has them);
//  6. strides: row-major unless declared, and then as declared (not 0 where written); extents of 1
//     do not count;
//  7. data: not null unless empty, aligned as declared including byte_offset;
//  8. no written tensor overlaps another one;       9. integers fit their dtype; floats too.
//
// The loop only answers yes or no; on a no the slow half (explain.c) finds the reason again. The
// way of a call on the CPU's default stream: bind the arguments, fill the kernel's table on the
// stack, jump. No lock, no allocation, nothing read from the environment, one acquire load. What
// counts here is the number of instructions (about 45 a tensor): every branch goes the same way
// in call after call. Measured by bench/bench_call.c. Thread rule: any thread. Read next:
// explain.c.
#include <math.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "devices/cpu/cpu.h"
#include "jit/call/executable.h"
#include "jit/call/plan.h"

// The words of a call, and QN__MAX_WORDS behind each the end of its tensor: one pointer serves
// both.
typedef struct words {
  uint64_t words[2 * QN__MAX_WORDS];
} words_t;

#define LIKELY(x) __builtin_expect((x), 1)
#define UNLIKELY(x) __builtin_expect((x), 0)

// Binds a symbol or compares; expressions come later.
static inline bool bind_dim(const qn__dim_t* dim, int64_t value, uint64_t* symbols) {
  // The order, and the hint, keep the usual way through a call free of jumps.
  if (LIKELY(dim->kind == QN__DIM_SYMBOL)) return symbols[dim->symbol] == (uint64_t)value;
  if (dim->kind == QN__DIM_BIND) {
    symbols[dim->symbol] = (uint64_t)value;
    return true;
  }
  return dim->kind == QN__DIM_EXPR || dim->value == value;
}

// The same for the first dimension.
static inline bool bind_first(const qn__arg_t* arg, int64_t value, uint64_t* symbols) {
  if (LIKELY(arg->first_kind == QN__DIM_SYMBOL)) {
    return symbols[arg->first_symbol] == (uint64_t)value;
  }
  if (arg->first_kind == QN__DIM_BIND) {
    symbols[arg->first_symbol] = (uint64_t)value;
    return true;
  }
  return arg->first_kind == QN__DIM_EXPR || arg->first_value == value;
}

// Checks declared strides. A tensor without strides is row-major. Gives the elements from the first
// to one past the last.
static bool bind_strides(const qn__arg_t* arg, const qn_tensor_t* tensor, uint64_t* symbols,
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
    if (stride < 0 || is_repeated || !bind_dim(&arg->strides[d], stride, symbols)) return false;
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

// Binds what is rare: strides, declared or given, and addresses that are null, not aligned or so
// high that a sum may wrap. Only an empty tensor may be null or not aligned. The span is counted in
// elements from the first to one past the last.
static __attribute__((noinline)) bool bind_rare(const qn__arg_t* arg, const qn_tensor_t* tensor,
                                                int64_t count, uint64_t* symbols,
                                                uint64_t* out_word) {
  uint64_t* out_end = out_word + QN__MAX_WORDS;
  int64_t span = count;
  if (count < 0) return false;
  if (arg->strides) {
    if (!bind_strides(arg, tensor, symbols, &span)) return false;
  } else if (tensor->strides && !is_row_major(tensor, arg->rank, count)) {
    return false;
  }
  if (span > arg->max_elements) return false;
  const uint64_t data = (uint64_t)(uintptr_t)tensor->data;
  bool is_bad = __builtin_add_overflow(data, tensor->byte_offset, out_word);
  is_bad |= __builtin_add_overflow(*out_word, (uint64_t)span << arg->item_shift, out_end);
  is_bad |= data == 0 || (*out_word & arg->align_mask) != 0;
  return span == 0 || !is_bad;
}

// Writes the address of the first element, and the one after the last where its end belongs
// (words_t).
static inline bool bind_tensor(const qn__arg_t* arg, uint64_t plan_device,
                               const qn_tensor_t* tensor, uint64_t* restrict symbols,
                               uint64_t* restrict out_word) {
  uint64_t device, ndim_and_dtype;
  memcpy(&device, &tensor->device, sizeof device);
  memcpy(&ndim_and_dtype, &tensor->ndim, sizeof ndim_and_dtype);
  if (UNLIKELY(((device ^ plan_device) | (ndim_and_dtype ^ arg->ndim_and_dtype)) != 0)) {
    return false;
  }
  int64_t count = 1;
  const uint32_t rank = arg->rank;
  const int64_t* shape = tensor->shape;
  if (LIKELY(rank == 1)) {
    if (UNLIKELY(!shape)) return false;
    count = shape[0];
    if (UNLIKELY(!bind_first(arg, count, symbols))) return false;
  } else if (rank != 0) {
    if (UNLIKELY(!shape)) return false;
    count = shape[0];
    if (UNLIKELY(!bind_first(arg, count, symbols))) return false;
    const qn__dim_t* dim = arg->shape;
    int64_t signs = count;
    for (uint32_t d = 1; d < rank; d++) {
      const int64_t extent = shape[d];
      signs |= extent;
      if (UNLIKELY(!bind_dim(&dim[d], extent, symbols)) ||
          UNLIKELY(__builtin_mul_overflow(count, extent, &count))) {
        return false;
      }
    }
    if (UNLIKELY(signs < 0)) return false;
  }
  // Together: no strides, neither declared nor given, not null, aligned, and below 2^62, where
  // nothing wraps (a tensor has fewer than 2^63 bytes).
  const uint64_t data = (uint64_t)(uintptr_t)tensor->data, offset = tensor->byte_offset;
  const uint64_t begin = data + offset;
  const uint64_t strides = (uint64_t)(uintptr_t)tensor->strides;
  if (UNLIKELY(((((data - 1) | offset) >> 62) | (begin & arg->unusual_mask) | strides) != 0)) {
    return bind_rare(arg, tensor, count, symbols, out_word);
  }
  // As unsigned: a negative count (of one dim) is above every limit.
  if (UNLIKELY((uint64_t)count > (uint64_t)arg->max_elements)) return false;
  out_word[0] = begin;
  out_word[QN__MAX_WORDS] = begin + ((uint64_t)count << arg->item_shift);
  return true;
}

static inline bool bind_int(const qn__arg_t* arg, const qn_value_t* value, uint64_t* out_word) {
  int64_t v = value->int_value;
  if (UNLIKELY(value->type != QN_VALUE_INT && value->type != QN_VALUE_BOOL)) {
    if (value->type != QN_VALUE_UINT) return false;
    if (v < 0) {  // beyond 2^63 - 1
      *out_word = (uint64_t)v;
      return arg->dtype == QN_DTYPE_U64;
    }
  }
  if (v < arg->min_value || v > arg->max_value) return false;
  *out_word = qn__scalar_to_bits(arg->dtype, (qn__ir_scalar_t){.i = v});
  return true;
}

// Integers are rounded once: the nearest f64 of one might be a tie between two f32.
static bool bind_float_of_int(const qn__arg_t* arg, const qn_value_t* value, uint64_t* out_word) {
  if (value->type != QN_VALUE_INT && value->type != QN_VALUE_UINT) return false;
  qn_dtype_t from = value->type == QN_VALUE_INT ? QN_DTYPE_I64 : QN_DTYPE_U64;
  qn__ir_scalar_t v = qn__scalar_cast(from, (qn__ir_scalar_t){.i = value->int_value}, arg->dtype);
  *out_word = qn__scalar_to_bits(arg->dtype, v);
  return !isinf(v.f);
}

static inline bool bind_float(const qn__arg_t* arg, const qn_value_t* value, uint64_t* out_word) {
  if (UNLIKELY(value->type != QN_VALUE_FLOAT)) return bind_float_of_int(arg, value, out_word);
  double v = value->float_value;
  if (arg->dtype == QN_DTYPE_F32) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (UNLIKELY((bits & 0x7fffffffu) == 0x7f800000u) && !isinf(v)) return false;
    *out_word = bits;
    return true;
  }
  double rounded = qn__round_float(arg->dtype, v);
  if (isinf(rounded) && !isinf(v)) return false;
  *out_word = qn__scalar_to_bits(arg->dtype, (qn__ir_scalar_t){.f = rounded});
  return true;
}

// Checks extents and strides that are expressions, once every symbol is bound.
static bool check_deferred(const qn__plan_t* plan, const qn_value_t* args, const uint64_t* words) {
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    const qn__arg_t* arg = &plan->args[i];
    if (arg->kind != QN__ARG_TENSOR) continue;
    const qn_tensor_t* tensor = args[i].tensor;
    int64_t compact = 1;
    for (uint32_t d = arg->rank; d-- > 0;) {
      int64_t expected;
      if (arg->shape[d].kind == QN__DIM_EXPR &&
          (!qn__plan_eval(&plan->exprs[arg->shape[d].expr], words, &expected) ||
           expected != tensor->shape[d])) {
        return false;
      }
      // Only declared strides have been checked for a product of extents other than 0 that fits.
      if (!arg->strides) continue;
      if (arg->strides[d].kind == QN__DIM_EXPR &&
          (!qn__plan_eval(&plan->exprs[arg->strides[d].expr], words, &expected) ||
           expected != (tensor->strides ? tensor->strides[d] : compact))) {
        return false;
      }
      compact *= tensor->shape[d] > 0 ? tensor->shape[d] : 1;
    }
  }
  return true;
}

static inline __attribute__((always_inline)) bool bind(const qn__plan_t* plan,
                                                       const qn_value_t* args, size_t count,
                                                       words_t* restrict out) {
  const uint32_t arg_count = plan->arg_count;
  if (UNLIKELY(count != arg_count || (!args && count != 0))) return false;
  const uint64_t device = plan->device_word;
  uint64_t *words = out->words, *ends = words + QN__MAX_WORDS;
  uint64_t* symbols = words + arg_count;
  const qn__arg_t* arg = plan->args;
  for (uint32_t i = 0; i < arg_count; i++, arg++) {
    const qn_value_t* value = &args[i];
    if (LIKELY(arg->kind == QN__ARG_TENSOR)) {
      const qn_tensor_t* tensor = value->tensor;
      if (UNLIKELY(value->type != QN_VALUE_TENSOR || !tensor)) return false;
      if (!bind_tensor(arg, device, tensor, symbols, &words[i])) return false;
    } else if (!(arg->kind == QN__ARG_INT ? bind_int(arg, value, &words[i])
                                          : bind_float(arg, value, &words[i]))) {
      return false;
    }
  }
  const qn__plan_pair_t* pair = plan->pairs;
  for (uint32_t p = plan->pair_count; p != 0; p--, pair++) {
    const uint32_t a = pair->first, b = pair->second;
    // An empty tensor's range holds nothing, wherever it begins.
    if (UNLIKELY(words[a] < ends[b] && words[b] < ends[a]) && words[a] != ends[a] &&
        words[b] != ends[b]) {
      return false;
    }
  }
  return plan->deferred_count == 0 || check_deferred(plan, args, words);
}

bool qn__plan_bind(const qn__plan_t* plan, const qn_value_t* args, size_t count,
                   uint64_t* restrict words) {
  words_t all;
  if (!bind(plan, args, count, &all)) return false;
  memcpy(words, all.words, sizeof(uint64_t) * (plan->arg_count + plan->symbol_count));
  return true;
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

// Checks a call against the cell's own function, so that it is refused in its words, whatever the
// variant takes.
static __attribute__((noinline)) qn_status_t check_guard(const qn__variant_t* variant,
                                                         const qn_value_t* args, size_t count) {
  words_t words;
  if (LIKELY(bind(variant->guard, args, count, &words))) return QN_OK;
  return explain(variant->guard, args, count);
}

static __attribute__((noinline, cold)) qn_status_t refusal(const qn__variant_t* variant,
                                                           const qn_value_t* args, size_t count) {
  qn_status_t status = explain(variant->plan, args, count);
  if (!variant->guard) return status;
  return qn_status_annotate(status, "%s, which is served by a generic variant",
                            variant->function->ir->signature);
}

// In both callers whole: the two functions more on the way would be a tenth of a call.
static inline __attribute__((always_inline)) qn_status_t call(qn_function_t* function,
                                                              qn_stream_t* stream,
                                                              const qn_value_t* args, size_t count,
                                                              qn_value_t* result) {
  if (result) *result = (qn_value_t){QN_VALUE_NONE, 0, {0}};
  qn__variant_t* variant = atomic_load_explicit(&function->variant, memory_order_acquire);
  words_t all;
  if (UNLIKELY(variant->guard != NULL)) {
    qn_status_t status = check_guard(variant, args, count);
    if (!qn_ok(status)) return status;
  }
  if (UNLIKELY(!bind(variant->plan, args, count, &all))) return refusal(variant, args, count);
  if (!stream && variant->entry) {
    qn__cpu_call_t state = qn__cpu_call_template;
    if (__builtin_expect(variant->entry(&state.env, all.words) == 0, 1)) return QN_OK;
    return qn__variant_describe(variant, &state.failure);
  }
  return qn__variant_launch(variant, stream, all.words, all.words + QN__MAX_WORDS);
}

qn_status_t qn_function_call(qn_function_t* function, const qn_value_t* args, size_t count,
                             qn_value_t* result) {
  // Null arguments are refused as a wrong call of this function (explain.c).
  if (UNLIKELY(!function)) return qn__null_argument(__func__, "function");
  qn_stream_t* stream =
      function->is_cpu ? qn__active_cpu_stream : qn_active_stream(function->device);
  return call(function, stream, args, count, result);
}

qn_status_t qn_function_call_on(qn_function_t* function, qn_stream_t* stream,
                                const qn_value_t* args, size_t count, qn_value_t* result) {
  if (UNLIKELY(!function)) return qn__null_argument(__func__, "function");
  qn_status_t status = qn__stream_check(function->device, stream);
  if (UNLIKELY(!qn_ok(status))) return qn_status_annotate(status, "%s", function->ir->signature);
  return call(function, qn__stream_named(stream), args, count, result);
}
