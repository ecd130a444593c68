// jit/call.c: the fast half of a packed call's checks.
//
// What must be checked (promise 5), each here and in explain.c:
//  1. the count of arguments;                       2. each value's type tag;
//  3. a tensor's null pointer, rank, dtype, device (compared as two 64-bit words);
//  4. extents: not negative, symbols agree, constants and expressions match;
//  5. the product of extents fits, in bytes (and in 32-bit indices where the code has them);
//  6. strides: row-major unless declared, and then as declared; extents of 1 do not count;
//  7. data: not null unless empty, aligned as declared including byte_offset;
//  8. no written tensor overlaps another one;       9. integers fit their dtype; floats too.
//
// The loop only answers yes or no; on a no the slow half (explain.c) finds the reason again.
// Nothing is allocated, locked or read from the environment. Measured by bench/bench_call.c.
#include <math.h>

#include "base/alloc.h"
#include "jit/plan.h"

typedef struct range {
  uintptr_t begin;
  uintptr_t end;
  bool is_written;
} range_t;

static inline bool bind_dim(const qn__dim_t* dim, int64_t value, uint64_t* symbols) {
  switch (dim->kind) {
    case QN__DIM_BIND:
      symbols[dim->index] = (uint64_t)value;
      return true;
    case QN__DIM_SYMBOL:
      return symbols[dim->index] == (uint64_t)value;
    case QN__DIM_CONST:
      return dim->value == value;
    case QN__DIM_EXPR:
      return true;  // deferred
  }
  return false;
}

// Declared strides. A tensor without strides is row-major.
static bool bind_strides(const qn__arg_t* arg, const qn_tensor_t* tensor, uint64_t* symbols,
                         int64_t* out_span) {
  int64_t compact = 1;
  int64_t compact_strides[QN__MAX_RANK];
  for (uint32_t d = arg->rank; d-- > 0;) {
    compact_strides[d] = compact;
    if (__builtin_mul_overflow(compact, tensor->shape[d] > 0 ? tensor->shape[d] : 1, &compact)) {
      return false;
    }
  }
  int64_t span = 1;  // elements from the first to one past the last
  for (uint32_t d = 0; d < arg->rank; d++) {
    int64_t stride = tensor->strides ? tensor->strides[d] : compact_strides[d];
    if (stride < 0 || !bind_dim(&arg->strides[d], stride, symbols)) return false;
    int64_t reach;
    if (tensor->shape[d] == 0) continue;
    if (__builtin_mul_overflow(stride, tensor->shape[d] - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span)) {
      return false;
    }
  }
  *out_span = span;
  return true;
}

static inline bool bind_tensor(const qn__plan_t* plan, const qn__arg_t* arg,
                               const qn_value_t* value, uint64_t* symbols, uint64_t* out_word,
                               range_t* out_range) {
  if (value->type != QN_VALUE_TENSOR) return false;
  const qn_tensor_t* tensor = value->tensor;
  if (!tensor) return false;
  uint64_t device_word, ndim_and_dtype;
  memcpy(&device_word, &tensor->device, sizeof device_word);
  memcpy(&ndim_and_dtype, &tensor->ndim, sizeof ndim_and_dtype);
  if (device_word != plan->device_word || ndim_and_dtype != arg->ndim_and_dtype) return false;
  uint32_t rank = arg->rank;
  const int64_t* shape = tensor->shape;
  if (rank != 0 && !shape) return false;
  int64_t count = 1;
  bool has_overflow = false;
  for (uint32_t d = 0; d < rank; d++) {
    int64_t extent = shape[d];
    if (extent < 0 || !bind_dim(&arg->shape[d], extent, symbols)) return false;
    has_overflow |= __builtin_mul_overflow(count, extent, &count);
  }
  int64_t span = count;
  if (has_overflow) return false;
  if (arg->strides) {
    if (!bind_strides(arg, tensor, symbols, &span)) return false;
    if (count == 0) span = 0;
  } else if (tensor->strides && count != 0) {
    int64_t expected = 1;
    for (uint32_t d = rank; d-- > 0;) {
      if (shape[d] != 1 && tensor->strides[d] != expected) return false;
      expected *= shape[d];
    }
  }
  int64_t size_bytes;
  if (span > plan->max_elements ||
      __builtin_mul_overflow(span, (int64_t)arg->item_bytes, &size_bytes)) {
    return false;
  }
  uintptr_t begin = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
  if (size_bytes != 0 &&
      (!tensor->data || (begin & arg->align_mask) != 0 || begin + (uintptr_t)size_bytes < begin ||
       begin < (uintptr_t)tensor->data)) {
    return false;
  }
  *out_word = begin;
  *out_range = (range_t){begin, begin + (uintptr_t)size_bytes, arg->is_written};
  return true;
}

static inline bool bind_int(const qn__arg_t* arg, const qn_value_t* value, uint64_t* out_word) {
  if (value->type != QN_VALUE_INT && value->type != QN_VALUE_BOOL) return false;
  int64_t v = value->int_value;
  if (v < arg->min_value || v > arg->max_value) return false;
  *out_word = qn__scalar_to_bits(arg->dtype, (qn__scalar_t){.i = v});
  return true;
}

static inline bool bind_float(const qn__arg_t* arg, const qn_value_t* value, uint64_t* out_word) {
  double v;
  if (value->type == QN_VALUE_FLOAT) {
    v = value->float_value;
  } else if (value->type == QN_VALUE_INT) {
    v = (double)value->int_value;
  } else {
    return false;
  }
  if (arg->dtype == QN_DTYPE_F32) {
    float f = (float)v;
    if (isinf(f) && !isinf(v)) return false;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    *out_word = bits;
    return true;
  }
  double rounded = qn__round_float(arg->dtype, v);
  if (isinf(rounded) && !isinf(v)) return false;
  *out_word = qn__scalar_to_bits(arg->dtype, (qn__scalar_t){.f = rounded});
  return true;
}

// Extents and strides that are expressions, once every symbol is bound.
static bool check_deferred(const qn__plan_t* plan, const qn_value_t* args, const uint64_t* words) {
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    const qn__arg_t* arg = &plan->args[i];
    if (arg->kind != QN__ARG_TENSOR) continue;
    const qn_tensor_t* tensor = args[i].tensor;
    int64_t compact = 1;
    for (uint32_t d = arg->rank; d-- > 0;) {
      int64_t expected;
      if (arg->shape[d].kind == QN__DIM_EXPR &&
          (!qn__plan_eval(&plan->exprs[arg->shape[d].index], words, &expected) ||
           expected != tensor->shape[d])) {
        return false;
      }
      if (arg->strides && arg->strides[d].kind == QN__DIM_EXPR &&
          (!qn__plan_eval(&plan->exprs[arg->strides[d].index], words, &expected) ||
           expected != (tensor->strides ? tensor->strides[d] : compact))) {
        return false;
      }
      compact *= tensor->shape[d] > 0 ? tensor->shape[d] : 1;
    }
  }
  return true;
}

bool qn__plan_bind(const qn__plan_t* plan, const qn_value_t* args, size_t count, uint64_t* words) {
  if (count != plan->arg_count || (count != 0 && !args)) return false;
  uint64_t* symbols = words + plan->arg_count;
  range_t ranges[QN__MAX_WORDS];
  uint32_t range_count = 0;
  for (uint32_t i = 0; i < plan->arg_count; i++) {
    const qn__arg_t* arg = &plan->args[i];
    bool is_good;
    if (arg->kind == QN__ARG_TENSOR) {
      range_t* range = &ranges[range_count];
      is_good = bind_tensor(plan, arg, &args[i], symbols, &words[i], range);
      if (!is_good) return false;
      // Overlap matters only when one of the two is written; empty ranges overlap nothing.
      for (uint32_t j = 0; j < range_count; j++) {
        if ((range->is_written | ranges[j].is_written) && range->begin < ranges[j].end &&
            ranges[j].begin < range->end) {
          return false;
        }
      }
      range_count++;
    } else if (arg->kind == QN__ARG_INT) {
      is_good = bind_int(arg, &args[i], &words[i]);
    } else {
      is_good = bind_float(arg, &args[i], &words[i]);
    }
    if (!is_good) return false;
  }
  return plan->deferred_count == 0 || check_deferred(plan, args, words);
}
