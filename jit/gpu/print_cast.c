// jit/gpu/print_cast.c: conversions between dtypes, and reinterpretation of bits.
//
// Float to integer truncates and saturates, and NaN gives 0. Integers wrap. A conversion to f16 or
// bf16 rounds once, also from f64 and from 64-bit integers.
#include "jit/gpu/print_inner.h"

static const char* call(qn__gpu_printer_t* p, const char* helper, const char* value) {
  return qn__kprint_text(p, "%s(%s)", qn__kprint_use(p, helper), value);
}

// "qn_TO_from_FROM"
static const char* convert(qn__gpu_printer_t* p, qn_dtype_t to, qn_dtype_t from,
                           const char* value) {
  return call(p, qn__kprint_text(p, "qn_%s_from_%s", qn_dtype_text(to), qn_dtype_text(from)),
              value);
}

static bool is_narrow_float(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
}

// Returns the dtype whose helpers take a value of this dtype's compute type.
static qn_dtype_t compute_dtype(qn_dtype_t dtype, bool is_narrow) {
  if (is_narrow_float(dtype)) return QN_DTYPE_F32;
  const char* type = qn__kprint_type(dtype, is_narrow);
  if (strcmp(type, "int") == 0) return QN_DTYPE_I32;
  if (strcmp(type, "uint") == 0) return QN_DTYPE_U32;
  return dtype;
}

// Converts to f16 or bf16 in one step, by a helper that returns the bits: f32 cannot hold the
// source.
static const char* round_once(qn__gpu_printer_t* p, qn_dtype_t to, qn_dtype_t from,
                              const char* value) {
  return convert(p, QN_DTYPE_F32, to, convert(p, to, from, value));
}

static const char* float_to_float(qn__gpu_printer_t* p, qn_dtype_t from, qn_dtype_t to,
                                  const char* value) {
  if (from == to) return value;
  if (to == QN_DTYPE_F64) return convert(p, QN_DTYPE_F64, QN_DTYPE_F32, value);
  if (from == QN_DTYPE_F64)
    return to == QN_DTYPE_F32 ? convert(p, to, from, value) : round_once(p, to, from, value);
  return qn__kprint_round(p, to, value);
}

static const char* int_to_float(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                                qn_dtype_t to, const char* value) {
  if (from == QN_DTYPE_BOOL) {
    return qn__kprint_text(p, "(%s ? %s : %s)", value, qn__kprint_float(p, to, 1),
                           qn__kprint_float(p, to, 0));
  }
  qn_dtype_t taken = compute_dtype(from, is_from_narrow);
  // f32 holds 24 bits; beyond them f16 has infinities only.
  if (to == QN_DTYPE_BF16 && qn__dtype_bits(from) > 16) return round_once(p, to, taken, value);
  qn_dtype_t computed = to == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
  return qn__kprint_round(p, to, convert(p, computed, taken, value));
}

static const char* float_to_int(qn__gpu_printer_t* p, qn_dtype_t from, qn_dtype_t to,
                                bool is_to_narrow, const char* value) {
  qn_dtype_t computed = from == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
  // Without 64-bit integers all i64 are narrow: convert straight to 32 bits.
  if (to == QN_DTYPE_I64 && is_to_narrow && !p->options->has_int64) {
    return convert(p, QN_DTYPE_I32, computed, value);
  }
  value = convert(p, to, computed, value);
  return to == QN_DTYPE_I64 ? qn__kprint_adapt(p, value, false, is_to_narrow) : value;
}

static const char* int_to_int(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                              qn_dtype_t to, bool is_to_narrow, const char* value) {
  const char* from_type = qn__kprint_type(from, is_from_narrow);
  const char* type = qn__kprint_type(to, is_to_narrow);
  const char* same = value;
  if (strcmp(from_type, "int") == 0 && strstr(type, "64")) {
    same = qn__kprint_widen(p, value);
    from_type = "qn_i64";
  }
  if (strcmp(from_type, type) != 0) same = qn__kprint_text(p, "%s(%s)", type, same);
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

const char* qn__kprint_cast(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                            qn_dtype_t to, bool is_to_narrow, const char* value) {
  bool is_from_float = qn__dtype_is_float(from);
  if (to == QN_DTYPE_BOOL) {
    if (from == QN_DTYPE_BOOL) return value;
    return qn__kprint_text(
        p, "(%s != %s)", value,
        is_from_float ? qn__kprint_float(p, from, 0) : qn__kprint_int(p, from, is_from_narrow, 0));
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
  switch (dtype) {
    case QN_DTYPE_F16: {
      const char* bits = loaded_bits(p, "qn_f32_from_f16", value);
      return bits ? bits : call(p, "qn_f16_from_f32", value);
    }
    case QN_DTYPE_BF16: {
      const char* bits = loaded_bits(p, "qn_f32_from_bf16", value);
      return bits ? bits : call(p, "qn_bf16_from_f32", value);
    }
    case QN_DTYPE_F32:
      return qn__kprint_text(p, "QN_F32_BITS(%s)", value);
    case QN_DTYPE_F64:
      return qn__kprint_text(p, "QN_F64_BITS(%s)", value);
    case QN_DTYPE_I64:
      return qn__kprint_text(p, "qn_u64(%s)", qn__kprint_adapt(p, value, is_narrow, false));
    case QN_DTYPE_U8:
    case QN_DTYPE_U16:
    case QN_DTYPE_U32:
    case QN_DTYPE_U64:
      return value;
    default:
      return qn__kprint_text(p, "uint(%s)", value);
  }
}

const char* qn__kprint_bitcast(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                               qn_dtype_t to, bool is_to_narrow, const char* value) {
  if (from == to) {
    return to == QN_DTYPE_I64 ? qn__kprint_adapt(p, value, is_from_narrow, is_to_narrow) : value;
  }
  const char* bits = bits_of(p, from, is_from_narrow, value);
  bool is_signed = qn__dtype_class(from) == QN__CLASS_SIGNED;
  switch (to) {
    case QN_DTYPE_BOOL:
      return qn__kprint_text(p, "((%s & 0xffu) != 0u)", bits);
    case QN_DTYPE_F16:
    case QN_DTYPE_BF16:
      return call(p, to == QN_DTYPE_F16 ? "qn_f32_from_f16" : "qn_f32_from_bf16", bits);
    case QN_DTYPE_F32:
      return qn__kprint_text(p, "QN_F32_FROM(%s)", bits);
    case QN_DTYPE_F64:
      return qn__kprint_text(p, "QN_F64_FROM(%s)", bits);
    case QN_DTYPE_I8:
    case QN_DTYPE_I16:
      return qn__kprint_wrap(p, to, qn__kprint_text(p, "int(%s)", bits));
    case QN_DTYPE_I32:
      return qn__kprint_text(p, "int(%s)", bits);
    case QN_DTYPE_I64:
      return qn__kprint_text(p, is_to_narrow ? "int(%s)" : "qn_i64(%s)", bits);
    case QN_DTYPE_U8:
    case QN_DTYPE_U16:
      return is_signed ? qn__kprint_wrap(p, to, bits) : bits;
    default:
      return bits;
  }
}
