// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_cast.c: conversions between dtypes, and reinterpretation of bits.
//
// Float to integer truncates and saturates, and NaN gives 0. Integers wrap. A conversion to f16 or
// bf16 rounds once, also from f64 and from 64-bit integers. Stored dtypes are their bits, in a
// uint; conversions from floats of 8 and 4 bits give f32, and those to them take it.
#include <assert.h>

#include "jit/gpu/print_inner.h"

static bool is_small_float(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
}

// Converts to f16 or bf16 in one step, by a helper that returns the bits: f32 cannot hold the
// source.
static const char* round_once(qn__gpu_printer_t* p, qn_dtype_t to, qn_dtype_t from,
                              const char* value) {
  return qn__kprint_convert(p, QN_DTYPE_F32, to, qn__kprint_convert(p, to, from, value));
}

static const char* float_to_float(qn__gpu_printer_t* p, qn_dtype_t from, qn_dtype_t to,
                                  const char* value) {
  if (from == to) return value;
  if (to == QN_DTYPE_F64) return qn__kprint_convert(p, QN_DTYPE_F64, QN_DTYPE_F32, value);
  if (from == QN_DTYPE_F64)
    return to == QN_DTYPE_F32 ? qn__kprint_convert(p, to, from, value)
                              : round_once(p, to, from, value);
  return qn__kprint_round(p, to, value);
}

static const char* int_to_float(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                                qn_dtype_t to, const char* value) {
  if (from == QN_DTYPE_BOOL) {
    return qn__kprint_text(p, "(%s ? %s : %s)", value, qn__kprint_float(p, to, 1),
                           qn__kprint_float(p, to, 0));
  }
  qn_dtype_t taken = qn__kprint_compute(from, is_from_narrow);
  // f32 holds 24 bits; beyond them f16 has infinities only.
  if (to == QN_DTYPE_BF16 && qn__dtype_bits(from) > 16) return round_once(p, to, taken, value);
  return qn__kprint_round(p, to, qn__kprint_convert(p, qn__gpu_compute_dtype(to), taken, value));
}

static const char* float_to_int(qn__gpu_printer_t* p, qn_dtype_t from, qn_dtype_t to,
                                bool is_to_narrow, const char* value) {
  qn_dtype_t computed = qn__gpu_compute_dtype(from);
  // Without 64-bit integers all i64 are narrow: convert straight to 32 bits.
  if (to == QN_DTYPE_I64 && is_to_narrow && !p->options->has_int64) {
    return qn__kprint_convert(p, QN_DTYPE_I32, computed, value);
  }
  value = qn__kprint_convert(p, to, computed, value);
  return to == QN_DTYPE_I64 ? qn__kprint_adapt(p, value, false, is_to_narrow) : value;
}

static const char* int_to_int(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                              qn_dtype_t to, bool is_to_narrow, const char* value) {
  qn_dtype_t from_compute = qn__kprint_compute(from, is_from_narrow);
  qn_dtype_t to_compute = qn__kprint_compute(to, is_to_narrow);
  const char* same = value;
  if (from_compute == QN_DTYPE_I32 && qn__dtype_bits(to_compute) == 64) {
    same = qn__kprint_widen(p, value);
    from_compute = QN_DTYPE_I64;
  }
  if (from_compute != to_compute) {
    same = qn__kprint_text(p, "%s(%s)", qn__gpu_type_text(to_compute), same);
  }
  if (from == QN_DTYPE_BOOL || from == to) return same;
  // A smaller unsigned integer, or one of the same sign that is not larger, is in range.
  bool is_from_signed = qn__dtype_class(from) == QN__CLASS_SIGNED;
  bool is_to_signed = qn__dtype_class(to) == QN__CLASS_SIGNED;
  uint32_t from_bits = qn__dtype_bits(from);
  uint32_t to_bits = qn__dtype_bits(to);
  bool is_in_range = is_from_signed == is_to_signed ? from_bits <= to_bits
                                                    : !is_from_signed && from_bits < to_bits;
  return is_in_range ? same : qn__kprint_wrap(p, to, same);
}

// Converts from a stored dtype: integers of 4 bits to those of 8, then to any dtype.
static const char* from_stored(qn__gpu_printer_t* p, qn_dtype_t from, qn_dtype_t to,
                               bool is_to_narrow, const char* value) {
  if (qn__dtype_is_real(from)) {
    value = qn__kprint_convert(p, QN_DTYPE_F32, from, value);
    return qn__kprint_cast(p, QN_DTYPE_F32, false, to, is_to_narrow, value);
  }
  bool is_signed = from == QN_DTYPE_I4;
  if (is_signed)
    value = qn__kprint_text(p, "(int(uint(%s) << 28) >> 28)", qn__kprint_bare(p, value));
  return qn__kprint_cast(p, is_signed ? QN_DTYPE_I8 : QN_DTYPE_U8, false, to, is_to_narrow, value);
}

// Converts to a stored dtype. An integer that f32 does not hold is beyond the largest numbers of
// its floats. Integers of 8 bits saturate as those of 4 bits do, so a second bound suffices.
static const char* to_stored(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                             qn_dtype_t to, const char* value) {
  if (qn__dtype_is_real(to)) {
    if (from == QN_DTYPE_F64) return qn__kprint_convert(p, to, from, value);
    value = qn__kprint_cast(p, from, is_from_narrow, QN_DTYPE_F32, false, value);
    return qn__kprint_convert(p, to, QN_DTYPE_F32, value);
  }
  bool is_signed = to == QN_DTYPE_I4;
  value =
      qn__kprint_cast(p, from, is_from_narrow, is_signed ? QN_DTYPE_I8 : QN_DTYPE_U8, false, value);
  if (qn__dtype_is_float(from)) {
    value = qn__kprint_text(p, is_signed ? "%s, 7" : "%s, 15u", value);
    value = qn__kprint_call(p, is_signed ? "qn_min_i32" : "qn_min_u32", value);
    if (is_signed) value = qn__kprint_call(p, "qn_max_i32", qn__kprint_text(p, "%s, -8", value));
  }
  return qn__kprint_wrap(p, to, is_signed ? qn__kprint_text(p, "uint(%s)", value) : value);
}

const char* qn__kprint_cast(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                            qn_dtype_t to, bool is_to_narrow, const char* value) {
  bool is_from_float = qn__dtype_is_float(from);
  assert((!is_from_narrow || from == QN_DTYPE_I64) && (!is_to_narrow || to == QN_DTYPE_I64));
  if (qn__dtype_is_stored(from)) {
    return from == to ? value : from_stored(p, from, to, is_to_narrow, value);
  }
  if (qn__dtype_is_stored(to)) return to_stored(p, from, is_from_narrow, to, value);
  if (to == QN_DTYPE_BOOL) {
    if (from == QN_DTYPE_BOOL) return value;
    const char* zero = qn__kprint_literal(p, from, is_from_narrow, (qn__ir_scalar_t){0});
    return qn__kprint_text(p, "(%s != %s)", value, zero);
  }
  if (is_from_float) {
    return qn__dtype_is_float(to) ? float_to_float(p, from, to, value)
                                  : float_to_int(p, from, to, is_to_narrow, value);
  }
  return qn__dtype_is_float(to) ? int_to_float(p, from, is_from_narrow, to, value)
                                : int_to_int(p, from, is_from_narrow, to, is_to_narrow, value);
}

// ---- bits

// Returns the bits below a load of f16 or bf16, if the load is the whole text. Converting there and
// back would change a signalling NaN. NULL: it is something else.
static const char* loaded_bits(qn__gpu_printer_t* p, const char* loader, const char* value) {
  size_t size = strlen(loader), length = strlen(value), depth = 0;
  if (strncmp(value, loader, size) != 0 || value[size] != '(') return NULL;
  for (size_t i = size; i < length; ++i) {
    depth += value[i] == '(';
    depth -= value[i] == ')';
    if (depth == 0 && i + 1 < length) return NULL;
  }
  return qn__kprint_text(p, "%s", value + size);
}

// Returns the bits of a value in a uint or qn_u64. Bits above its width are unspecified.
static const char* bits_of(qn__gpu_printer_t* p, qn_dtype_t dtype, bool is_narrow,
                           const char* value) {
  if (is_small_float(dtype)) {
    const char* bits =
        loaded_bits(p, qn__kprint_text(p, "qn_f32_from_%s", qn_dtype_text(dtype)), value);
    return bits ? bits : qn__kprint_convert(p, dtype, QN_DTYPE_F32, value);
  }
  if (dtype == QN_DTYPE_F32) return qn__kprint_text(p, "QN_F32_BITS(%s)", value);
  if (dtype == QN_DTYPE_F64) return qn__kprint_text(p, "QN_F64_BITS(%s)", value);
  if (dtype == QN_DTYPE_I64) {
    return qn__kprint_text(p, "qn_u64(%s)", qn__kprint_adapt(p, value, is_narrow, false));
  }
  bool is_unsigned = qn__gpu_compute_dtype(dtype) == QN_DTYPE_U32 || dtype == QN_DTYPE_U64;
  return is_unsigned ? value : qn__kprint_text(p, "uint(%s)", value);
}

const char* qn__kprint_bitcast(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                               qn_dtype_t to, bool is_to_narrow, const char* value) {
  assert(qn__dtype_bits(from) == qn__dtype_bits(to));
  if (from == to) {
    return to == QN_DTYPE_I64 ? qn__kprint_adapt(p, value, is_from_narrow, is_to_narrow) : value;
  }
  const char* bits = bits_of(p, from, is_from_narrow, value);
  if (to == QN_DTYPE_BOOL) return qn__kprint_text(p, "((%s & 0xffu) != 0u)", bits);
  if (is_small_float(to)) return qn__kprint_convert(p, QN_DTYPE_F32, to, bits);
  if (to == QN_DTYPE_F32) return qn__kprint_text(p, "QN_F32_FROM(%s)", bits);
  if (to == QN_DTYPE_F64) return qn__kprint_text(p, "QN_F64_FROM(%s)", bits);
  if (qn__dtype_is_signed(to) && !qn__dtype_is_stored(to)) {
    const char* type = qn__kprint_type(to, is_to_narrow);
    return qn__kprint_wrap(p, to, qn__kprint_text(p, "%s(%s)", type, bits));
  }
  return qn__dtype_is_signed(from) ? qn__kprint_wrap(p, to, bits) : bits;
}
