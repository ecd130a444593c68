// SPDX-License-Identifier: Apache-2.0
// jit/call/bind.h: binds the arguments of a plain call: the checks that stay in registers, inlined
// into each of their callers.
//
// Included by call.c, whose head lists the checks, and by dispatch.c. Not here: bind_all (call.c).
#ifndef QUERN_JIT_BIND_H_
#define QUERN_JIT_BIND_H_

#include <assert.h>
#include <math.h>

#include "jit/call/executable.h"
#include "jit/call/plan.h"

// The words of a call, and QN__MAX_WORDS after each word of a tensor its end: one pointer serves
// both.
typedef struct qn__words {
  uint64_t words[2 * QN__MAX_WORDS];
} qn__words_t;

#define QN__LIKELY(x) __builtin_expect((x), 1)
#define QN__UNLIKELY(x) __builtin_expect((x), 0)

// Binds a symbol or compares; expressions come later.
static inline bool qn__bind_dim(const qn__plan_dim_t* dim, int64_t value, uint64_t* symbols) {
  // The order, and the hint, keep the usual way through a call free of jumps.
  if (QN__LIKELY(dim->kind == QN__DIM_SYMBOL)) return symbols[dim->symbol] == (uint64_t)value;
  if (dim->kind == QN__DIM_BIND) {
    symbols[dim->symbol] = (uint64_t)value;
    return true;
  }
  return dim->kind == QN__DIM_EXPR || dim->value == value;
}

// Returns 0 when the tensor has the parameter's rank and dtype and is on the plan's device.
static inline uint64_t qn__type_difference(const qn__plan_arg_t* arg, uint64_t plan_device,
                                           const qn_tensor_t* tensor) {
  uint64_t device, ndim_and_dtype;
  memcpy(&device, &tensor->device, sizeof device);
  memcpy(&ndim_and_dtype, &tensor->ndim, sizeof ndim_and_dtype);
  return (device ^ plan_device) | (ndim_and_dtype ^ arg->ndim_and_dtype);
}

// Binds the extents of a tensor; gives their product.
static inline bool qn__bind_shape(const qn__plan_arg_t* arg, const int64_t* shape,
                                  uint64_t* symbols, int64_t* out_count) {
  int64_t count = 1, signs = 0;
  const uint32_t rank = arg->rank;
  assert(rank <= QN__MAX_RANK);
  if (QN__UNLIKELY(!shape && rank != 0)) return false;
  const qn__plan_dim_t* dim = arg->shape;
  for (uint32_t d = 0; d < rank; d++) {
    const int64_t extent = shape[d];
    signs |= extent;
    if (QN__UNLIKELY(!qn__bind_dim(&dim[d], extent, symbols)) ||
        QN__UNLIKELY(__builtin_mul_overflow(count, extent, &count))) {
      return false;
    }
  }
  *out_count = count;
  return signs >= 0;
}

static inline bool qn__bind_int(const qn__plan_arg_t* arg, int64_t value, uint64_t* out_word) {
  *out_word = (uint64_t)value & arg->bit_mask;
  return value >= arg->min_value && value <= arg->max_value;
}

static inline bool qn__bind_f32(double value, uint64_t* out_word) {
  float rounded = (float)value;
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  *out_word = bits;
  return QN__LIKELY((bits & 0x7fffffffu) != 0x7f800000u);
}

static inline uint64_t qn__word_at(const char* words, uint32_t offset_bytes) {
  uint64_t word;
  memcpy(&word, words + offset_bytes, sizeof word);
  return word;
}

// Whether a written tensor shares bytes with another one.
static inline bool qn__has_overlap(const qn__plan_t* plan, const uint64_t* words) {
  const char* begins = (const char*)words;
  const char* ends = (const char*)(words + QN__MAX_WORDS);
  for (const qn__plan_pair_t* pair = plan->pairs; pair != plan->pairs_end; pair++) {
    const uint64_t a = qn__word_at(begins, pair->first), b_end = qn__word_at(ends, pair->second);
    if (a >= b_end) continue;
    const uint64_t b = qn__word_at(begins, pair->second), a_end = qn__word_at(ends, pair->first);
    // An empty tensor's range holds nothing, wherever it begins.
    if (QN__UNLIKELY(b < a_end) && a != a_end && b != b_end) return true;
  }
  return false;
}

// Binds a tensor that is not null, has no strides (neither declared nor given) and no byte offset,
// and lies, aligned, below 2^62, where nothing wraps: a tensor has fewer than 2^63 bytes.
static inline bool qn__bind_plain_tensor(const qn__plan_arg_t* arg, uint64_t plan_device,
                                         const qn_tensor_t* tensor, uint64_t* restrict symbols,
                                         uint64_t* restrict out_word) {
  const uint64_t data = (uint64_t)(uintptr_t)tensor->data;
  if (QN__UNLIKELY(((data & arg->unusual_mask) | (uint64_t)(uintptr_t)tensor->strides |
                    tensor->byte_offset | qn__type_difference(arg, plan_device, tensor)) != 0) ||
      QN__UNLIKELY(data == 0)) {
    return false;
  }
  int64_t count;
  const int64_t* shape = tensor->shape;
  if (QN__LIKELY(arg->form == QN__FORM_VECTOR)) {
    if (QN__UNLIKELY(!shape)) return false;
    count = shape[0];
    if (QN__UNLIKELY(symbols[arg->symbol] != (uint64_t)count)) return false;
  } else if (arg->form == QN__FORM_BIND) {
    if (QN__UNLIKELY(!shape)) return false;
    count = shape[0];
    symbols[arg->symbol] = (uint64_t)count;
    // As unsigned: a negative count is above every limit.
    if (QN__UNLIKELY((uint64_t)count > (uint64_t)arg->max_plain)) return false;
  } else {
    if (QN__UNLIKELY(!qn__bind_shape(arg, shape, symbols, &count))) return false;
    if (QN__UNLIKELY(count > arg->max_plain)) return false;
  }
  out_word[0] = data;
  out_word[QN__MAX_WORDS] = data + (uint64_t)count * arg->item_bytes;
  return true;
}

static inline bool qn__bind_plain_value(const qn__plan_arg_t* arg, uint64_t plan_device,
                                        const qn_value_t* value, uint64_t* restrict symbols,
                                        uint64_t* restrict out_word) {
  if (QN__UNLIKELY(value->type != arg->tag)) return false;
  if (QN__LIKELY(qn__plan_is_tensor(arg))) {
    const qn_tensor_t* tensor = value->tensor;
    return QN__LIKELY(tensor != NULL) &&
           QN__LIKELY(qn__bind_plain_tensor(arg, plan_device, tensor, symbols, out_word));
  }
  if (QN__LIKELY(arg->form == QN__FORM_F32))
    return QN__LIKELY(qn__bind_f32(value->float_value, out_word));
  if (QN__LIKELY(arg->form == QN__FORM_INT))
    return QN__LIKELY(qn__bind_int(arg, value->int_value, out_word));
  memcpy(out_word, &value->float_value, sizeof *out_word);
  return arg->form == QN__FORM_F64;
}

// Binds a plain call of a plan with arguments and without expressions; false: bind_all decides.
static inline __attribute__((always_inline)) bool qn__bind_plain(const qn__plan_t* plan,
                                                                 const qn_value_t* args,
                                                                 size_t count,
                                                                 uint64_t* restrict words) {
  const uint32_t arg_count = plan->arg_count;
  if (QN__UNLIKELY(count != arg_count) || QN__UNLIKELY(!args)) return false;
  const uint64_t device = plan->device_word;
  uint64_t* symbols = words + arg_count;
  const qn__plan_arg_t* arg = plan->args;
  uint64_t* word = words;
  do {
    if (QN__UNLIKELY(!qn__bind_plain_value(arg, device, args, symbols, word))) return false;
    word++, arg++, args++;
  } while (word != symbols);
  return !qn__has_overlap(plan, words);
}

// Binds any call (call.c).
bool qn__bind_any(const qn__plan_t* plan, const qn_value_t* args, size_t count,
                  qn__words_t* out_words);

#endif  // QUERN_JIT_BIND_H_
