// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_expr.c: random expressions with bounds of magnitude and error.
//
// Not here: statements (generate_stmt.c), arguments (generate_args.c). Thread rule: one thread per
// generator.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "conformance/random/generator.h"

uint32_t gen_below(gen_t* g, uint32_t limit) {
  g->state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = g->state;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  return (uint32_t)((z >> 32) * limit >> 32);
}

const char* gen_text(gen_t* g, const char* format, ...) {
  char* text = g->pool + g->pool_used;
  size_t room = gen_pool_bytes - g->pool_used;
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(text, room, format, arguments);
  va_end(arguments);
  if (size < 0 || (size_t)size + 1 > room) abort();  // a module is bounded far below the pool
  g->pool_used += (size_t)size + 1;
  return text;
}

qn_dtype_t gen_dtype(gen_t* g) {
  static const qn_dtype_t likely[] = {QN_DTYPE_F32, QN_DTYPE_F32, QN_DTYPE_I32,
                                      QN_DTYPE_I64, QN_DTYPE_F64, QN_DTYPE_U8};
  if (g->buffer_count > 0 && gen_chance(g, 60)) {  // what can be loaded
    qn_dtype_t dtype = g->buffers[gen_below(g, (uint32_t)g->buffer_count)].dtype;
    if (!conf_is_stored(dtype)) return dtype;
  }
  if (gen_chance(g, 60)) return likely[gen_below(g, 6)];
  return (qn_dtype_t)(1 + gen_below(g, QN_DTYPE_F64));
}

static qn_dtype_t stored_dtype(gen_t* g) {
  return (qn_dtype_t)(QN_DTYPE_F8E4M3FN + gen_below(g, QN_DTYPE_COUNT - QN_DTYPE_F8E4M3FN));
}

qn_dtype_t gen_buffer_dtype(gen_t* g) {
  if (!gen_chance(g, 10)) return gen_dtype(g);
  return gen_chance(g, 50) ? QN_DTYPE_F8E4M3FN : QN_DTYPE_F8E5M2;
}

qn_dtype_t gen_packed_dtype(gen_t* g) {
  return (qn_dtype_t)(QN_DTYPE_I4 + gen_below(g, QN_DTYPE_F4E2M1FN - QN_DTYPE_I4 + 1));
}

double gen_eps(qn_dtype_t dtype) {
  switch (dtype) {
    case QN_DTYPE_F16:
      return 0x1p-10;
    case QN_DTYPE_BF16:
      return 0x1p-7;
    case QN_DTYPE_F32:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

static gen_value_t value_of(const char* text, qn_dtype_t dtype, double mag, double err) {
  return (gen_value_t){text, dtype, mag, err};
}

gen_scalar_t* gen_add_scalar(gen_t* g, const char* prefix, qn_dtype_t dtype, double mag,
                             double err) {
  if (g->scalar_count == gen_max_scalars) abort();
  gen_scalar_t* scalar = &g->scalars[g->scalar_count++];
  *scalar = (gen_scalar_t){.dtype = dtype, .mag = mag, .err = err};
  (void)snprintf(scalar->name, sizeof scalar->name, "%s%u", prefix, g->name_count++ % 100000);
  return scalar;
}

gen_value_t gen_tame(gen_t* g, gen_value_t value) {
  if (!gen_is_float(value.dtype)) return value;
  const char* dtype = qn_dtype_text(value.dtype);
  if (value.err > 256 * gen_eps(value.dtype)) return gen_literal(g, value.dtype);
  if (value.mag > 64) {
    value.text = gen_text(g, "min(max(%s, %s(-8.0)), %s(8.0))", value.text, dtype, dtype);
    value.mag = 8;
  }
  return value;
}

gen_value_t gen_literal(gen_t* g, qn_dtype_t dtype) {
  const char* name = qn_dtype_text(dtype);
  if (dtype == QN_DTYPE_BOOL) {
    return value_of(gen_chance(g, 50) ? "true" : "false", dtype, 1, 0);
  }
  if (conf_is_float(dtype)) {
    double value = ((double)gen_below(g, 65) - 32) / 16;
    return value_of(gen_text(g, "%s(%.4f)", name, value), dtype, 2, 0);
  }
  if (conf_is_packed(dtype)) {
    bool is_negative = conf_is_signed(dtype) && gen_chance(g, 40);
    return value_of(gen_text(g, "%s(%s%u)", name, is_negative ? "-" : "", gen_below(g, 8)), dtype,
                    0, 0);
  }
  if (gen_is_unsigned(dtype) || gen_chance(g, 60)) {
    return value_of(gen_text(g, "%s(%u)", name, gen_below(g, gen_chance(g, 70) ? 20 : 128)), dtype,
                    0, 0);
  }
  return value_of(gen_text(g, "%s(-%u)", name, gen_below(g, 128)), dtype, 0, 0);
}

// ---- indices

static const char* free_index(gen_t* g, int depth) {
  size_t count = 0;
  const gen_scalar_t* chosen = NULL;
  for (size_t i = 0; i < g->scalar_count; ++i) {
    if (g->scalars[i].dtype != QN_DTYPE_I64) continue;
    if (gen_below(g, (uint32_t)++count) == 0) chosen = &g->scalars[i];
  }
  const char* base = chosen ? gen_text(g, "%s", chosen->name) : gen_text(g, "%u", gen_below(g, 9));
  if (depth <= 0) return base;
  switch (gen_below(g, 6)) {
    case 0:
      return gen_text(g, "(%s + %u)", base, gen_below(g, 5));
    case 1:
      return gen_text(g, "(%s * %u + %s)", base, 1 + gen_below(g, 4), free_index(g, depth - 1));
    case 2:
      return gen_text(g, "(%s - %s)", base, free_index(g, depth - 1));
    case 3:
      return gen_text(g, "(%s // %u)", base, 1 + gen_below(g, 9));
    default:
      return base;
  }
}

const char* gen_index(gen_t* g, gen_extent_t extent, int depth) {
  if (g->allows_faults && gen_chance(g, 4)) return free_index(g, depth);
  if (gen_chance(g, 75)) {  // a loop over this very extent
    for (size_t i = g->scalar_count; i-- > 0;) {
      const gen_scalar_t* scalar = &g->scalars[i];
      if (scalar->extent && strcmp(scalar->extent, extent.text) == 0 && gen_chance(g, 80)) {
        return gen_text(g, "%s", scalar->name);
      }
    }
  }
  switch (gen_below(g, 4)) {
    case 0:
      return gen_text(g, "(%s) %% %s", free_index(g, depth), extent.text);
    case 1:
      return gen_text(g, "min(max(%s, 0), %s - 1)", free_index(g, depth), extent.text);
    case 2: {
      gen_value_t value = gen_expr(g, gen_chance(g, 50) ? QN_DTYPE_I32 : QN_DTYPE_U8, depth - 1);
      return gen_text(g, "i64(%s) %% %s", value.text, extent.text);
    }
    default:
      return gen_text(g, "%u", gen_below(g, (uint32_t)extent.value));
  }
}

gen_value_t gen_load(gen_t* g, const gen_buffer_t* buffer, int depth) {
  const char* text = gen_text(g, "%s[", buffer->name);
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    const char* index = gen_index(g, buffer->shape[d], depth > 2 ? 2 : depth);
    text = gen_text(g, "%s%s%s", text, d > 0 ? ", " : "", index);
  }
  // A symbolic extent may be smaller than a literal index of another run; the arguments are fixed.
  return value_of(gen_text(g, "%s]", text), buffer->dtype, buffer->mag, buffer->err);
}

static const gen_buffer_t* pick_readable(gen_t* g, qn_dtype_t dtype) {
  size_t count = 0;
  const gen_buffer_t* chosen = NULL;
  for (size_t i = 0; i < g->buffer_count; ++i) {
    const gen_buffer_t* buffer = &g->buffers[i];
    if (!buffer->is_readable || buffer->dtype != dtype) continue;
    if (gen_below(g, (uint32_t)++count) == 0) chosen = buffer;
  }
  return chosen;
}

static gen_value_t leaf(gen_t* g, qn_dtype_t dtype, int depth) {
  uint32_t kind = gen_below(g, 10);
  if (kind < 7) {
    const gen_buffer_t* buffer = pick_readable(g, dtype);
    if (buffer) return gen_load(g, buffer, depth);
  }
  if (kind < 9) {
    size_t count = 0;
    const gen_scalar_t* chosen = NULL;
    for (size_t i = 0; i < g->scalar_count; ++i) {
      if (g->scalars[i].dtype != dtype) continue;
      if (gen_below(g, (uint32_t)++count) == 0) chosen = &g->scalars[i];
    }
    if (chosen) return value_of(gen_text(g, "%s", chosen->name), dtype, chosen->mag, chosen->err);
  }
  if (kind == 9 && dtype == QN_DTYPE_I64 && gen_chance(g, 50)) {
    return value_of("warp_size()", dtype, 0, 0);
  }
  return gen_literal(g, dtype);
}

// A neighbour that exists only for some iterations, behind the condition that it does. Whoever
// evaluates it early leaves the buffer.
static gen_value_t guarded_load(gen_t* g, qn_dtype_t dtype, int depth) {
  const gen_buffer_t* buffer = pick_readable(g, dtype);
  if (!buffer || buffer->rank == 0) return leaf(g, dtype, depth);
  const char* text = gen_text(g, "%s[", buffer->name);
  for (uint32_t d = 0; d + 1 < buffer->rank; ++d) {
    text = gen_text(g, "%s%s, ", text, gen_index(g, buffer->shape[d], 1));
  }
  const char* extent = buffer->shape[buffer->rank - 1].text;
  const char* index = gen_text(g, "(%s)", free_index(g, 1));
  gen_value_t other = gen_literal(g, dtype);
  text = gen_text(g, "((%s >= 0 && %s < %s) ? %s%s] : %s)", index, index, extent, text, index,
                  other.text);
  double mag = buffer->mag > other.mag ? buffer->mag : other.mag;
  return value_of(text, dtype, mag, buffer->err);
}

// A float that every implementation computes alike: a load or literal without error.
static gen_value_t exact_float(gen_t* g, qn_dtype_t dtype) {
  gen_value_t value = leaf(g, dtype, 1);
  return value.err == 0 ? value : gen_literal(g, dtype);
}

gen_value_t gen_condition(gen_t* g, int depth) {
  static const char* const comparisons[] = {"==", "!=", "<", "<=", ">", ">="};
  const char* op = comparisons[gen_below(g, 6)];
  switch (gen_below(g, depth > 0 ? 8 : 4)) {
    case 0:
    case 1:
      return value_of(gen_text(g, "%s %s %s", free_index(g, 1), op, free_index(g, 1)),
                      QN_DTYPE_BOOL, 1, 0);
    case 2: {
      qn_dtype_t dtype = gen_chance(g, 50) ? QN_DTYPE_F32 : QN_DTYPE_F64;
      gen_value_t a = exact_float(g, dtype), b = exact_float(g, dtype);
      return value_of(gen_text(g, "%s %s %s", a.text, op, b.text), QN_DTYPE_BOOL, 1, 0);
    }
    case 3:
      return leaf(g, QN_DTYPE_BOOL, depth);
    case 4: {
      qn_dtype_t dtype = (qn_dtype_t)(QN_DTYPE_I8 + gen_below(g, 8));
      gen_value_t a = gen_expr(g, dtype, depth - 1), b = gen_expr(g, dtype, depth - 1);
      return value_of(gen_text(g, "(%s) %s (%s)", a.text, op, b.text), QN_DTYPE_BOOL, 1, 0);
    }
    case 5: {
      gen_value_t a = gen_condition(g, depth - 1), b = gen_condition(g, depth - 1);
      return value_of(gen_text(g, "(%s) %s (%s)", a.text, gen_chance(g, 50) ? "&&" : "||", b.text),
                      QN_DTYPE_BOOL, 1, 0);
    }
    case 6:
      return value_of(gen_text(g, "!(%s)", gen_condition(g, depth - 1).text), QN_DTYPE_BOOL, 1, 0);
    default: {
      static const char* const ops[] = {"&", "|", "^"};
      gen_value_t a = gen_condition(g, depth - 1), b = gen_condition(g, depth - 1);
      return value_of(gen_text(g, "((%s) %s (%s))", a.text, ops[gen_below(g, 3)], b.text),
                      QN_DTYPE_BOOL, 1, 0);
    }
  }
}

// ---- integers

// A value of a dtype that no operator takes. Its source is exact: the rounding would make a small
// error large.
static gen_value_t stored_expr(gen_t* g, qn_dtype_t dtype, int depth) {
  const char* name = qn_dtype_text(dtype);
  switch (gen_below(g, 4)) {
    case 0:
      return leaf(g, dtype, depth);
    case 1: {
      gen_value_t a = leaf(g, dtype, depth), b = leaf(g, dtype, depth);
      const char* condition = gen_condition(g, depth - 1).text;
      return value_of(gen_text(g, "((%s) ? %s : %s)", condition, a.text, b.text), dtype,
                      fmax(a.mag, b.mag), 0);
    }
    default: {
      gen_value_t exact = exact_float(g, (qn_dtype_t)(QN_DTYPE_F16 + gen_below(g, 4)));
      const char* text = gen_text(g, "%s(min(max(%s, -8.0), 8.0))", name, exact.text);
      return value_of(text, dtype, 8, 0);
    }
  }
}

static gen_value_t integer_expr(gen_t* g, qn_dtype_t dtype, int depth) {
  static const char* const infix[] = {"+", "-", "*", "&", "|", "^"};
  static const char* const divisions[] = {"truncdiv", "truncmod", "ceildiv"};
  static const char* const counts[] = {"popcount", "clz", "ctz"};
  const char* name = qn_dtype_text(dtype);
  gen_value_t a = gen_expr(g, dtype, depth - 1);
  gen_value_t b = gen_expr(g, dtype, depth - 1);
  const char* text = a.text;
  switch (gen_below(g, 14)) {
    case 0:
    case 1:
    case 2:
      text = gen_text(g, "(%s %s %s)", a.text, infix[gen_below(g, 6)], b.text);
      break;
    case 3:
      text = gen_text(g, "((%s) %s ((%s) | %s(1)))", a.text, gen_chance(g, 50) ? "//" : "%", b.text,
                      name);
      break;
    case 4:
      if (g->allows_faults && gen_chance(g, 20)) {
        text = gen_text(g, "((%s) // (%s))", a.text, b.text);
        break;
      }
      text = gen_text(g, "((%s) %s %s(%u))", a.text, gen_chance(g, 50) ? "//" : "%", name,
                      1 + gen_below(g, 17));
      break;
    case 5:
      text = gen_text(g, "%s(%s, (%s) | %s(1))", divisions[gen_below(g, 3)], a.text, b.text, name);
      break;
    case 6:
      text = gen_text(g, "%s(%s, %s)", gen_chance(g, 50) ? "min" : "max", a.text, b.text);
      break;
    case 7:
      if (gen_chance(g, 30)) {
        text = gen_text(g, "%s(%s, %s)", gen_chance(g, 50) ? "mulhi" : "rotl", a.text, b.text);
        break;
      }
      text = gen_text(g, "((%s) %s (%s))", a.text, gen_chance(g, 50) ? "<<" : ">>", b.text);
      break;
    case 8:
      text = gen_text(g, "%s(%s)", counts[gen_below(g, 3)], a.text);
      break;
    case 9:
      text = gen_text(g, "%s(%s)", gen_chance(g, 50) ? "abs" : "~", a.text);
      break;
    case 10:
      text = gen_text(g, "select(%s, %s, %s)", gen_condition(g, depth - 1).text, a.text, b.text);
      break;
    case 11:
      text = gen_text(g, "((%s) ? %s : %s)", gen_condition(g, depth - 1).text, a.text, b.text);
      break;
    case 12: {
      qn_dtype_t from = (qn_dtype_t)(QN_DTYPE_BOOL + gen_below(g, 9));
      text = gen_text(g, "%s(%s)", name, gen_expr(g, from, depth - 1).text);
      break;
    }
    default:
      if (gen_chance(g, 20)) {
        text = gen_text(g, "%s(%s)", name, stored_expr(g, stored_dtype(g), depth).text);
      } else if (gen_chance(g, 50)) {
        gen_value_t exact = exact_float(g, gen_chance(g, 50) ? QN_DTYPE_F32 : QN_DTYPE_F64);
        text = gen_text(g, "%s(%s)", name, exact.text);
      } else if (dtype == QN_DTYPE_I32 || dtype == QN_DTYPE_U32) {
        text = gen_text(g, "bitcast(%s, %s)", name, exact_float(g, QN_DTYPE_F32).text);
      } else {
        text = gen_text(g, "(-(%s))", a.text);
      }
      break;
  }
  return value_of(text, dtype, 0, 0);
}

// ---- floats

static gen_value_t small(gen_t* g, qn_dtype_t dtype, int depth, double limit) {
  gen_value_t value = gen_expr(g, dtype, depth);
  const char* name = qn_dtype_text(dtype);
  if (value.mag <= limit) return value;
  value.text =
      gen_text(g, "min(max(%s, %s(-%.1f)), %s(%.1f))", value.text, name, limit, name, limit);
  value.mag = limit;
  return value;
}

static gen_value_t unary_float(gen_t* g, qn_dtype_t dtype, int depth) {
  const char* name = qn_dtype_text(dtype);
  double eps = gen_eps(dtype);
  gen_value_t a = small(g, dtype, depth - 1, 4);
  double shifted = a.err + eps * (a.mag + 1);  // the error of abs(a) + 1
  double top = a.mag + 1;
  switch (gen_below(g, 18)) {
    case 12: {
      double mag = exp(4);
      static const char* const steep[] = {"sinh", "cosh", "expm1"};
      return value_of(gen_text(g, "%s(%s)", steep[gen_below(g, 3)], a.text), dtype, mag,
                      mag * (1.1 * a.err + 8 * eps));
    }
    case 13: {
      // Slopes of at most 1, results of at most pi/2 or the argument's size.
      static const char* const gentle[] = {"sigmoid", "asinh", "atan"};
      double mag = a.mag > 1.6 ? a.mag : 1.6;
      return value_of(gen_text(g, "%s(%s)", gentle[gen_below(g, 3)], a.text), dtype, mag,
                      a.err + 8 * eps * mag);
    }
    case 14:
      return value_of(gen_text(g, "log10(abs(%s) + %s(1.0))", a.text, name), dtype, log10(top),
                      shifted + 8 * eps * log10(top));
    case 15:
      return value_of(gen_text(g, "%s(abs(%s))", gen_chance(g, 50) ? "log1p" : "asinh", a.text),
                      dtype, top, a.err + 8 * eps * top);
    case 16:
      return value_of(gen_text(g, "cbrt(abs(%s) + %s(1.0))", a.text, name), dtype, top,
                      shifted + 8 * eps * top);
    case 17: {
      gen_value_t b = small(g, dtype, depth - 1, 4);
      double mag = a.mag + b.mag;
      return value_of(gen_text(g, "hypot(%s, %s)", a.text, b.text), dtype, mag,
                      a.err + b.err + 8 * eps * mag);
    }
    case 0: {
      double mag = exp(4);
      return value_of(gen_text(g, "exp(%s)", a.text), dtype, mag, mag * (1.1 * a.err + 8 * eps));
    }
    case 1:
      return value_of(gen_text(g, "exp2(%s)", a.text), dtype, 16, 16 * (a.err + 8 * eps));
    case 2:
      return value_of(gen_text(g, "log(abs(%s) + %s(1.0))", a.text, name), dtype, log(top),
                      shifted + 8 * eps * log(top));
    case 3:
      return value_of(gen_text(g, "log2(abs(%s) + %s(1.0))", a.text, name), dtype, log2(top),
                      1.5 * shifted + 8 * eps * log2(top));
    case 4:
      return value_of(gen_text(g, "sqrt(abs(%s) + %s(1.0))", a.text, name), dtype, sqrt(top),
                      shifted + eps * sqrt(top));
    case 5:
      return value_of(gen_text(g, "rsqrt(abs(%s) + %s(1.0))", a.text, name), dtype, 1,
                      shifted + 4 * eps);
    case 6:
      return value_of(gen_text(g, "tanh(%s)", a.text), dtype, 1, a.err + 8 * eps);
    case 7:
      return value_of(gen_text(g, "erf(%s)", a.text), dtype, 1, 1.2 * a.err + 8 * eps);
    case 8:
      return value_of(gen_text(g, "%s(%s)", gen_chance(g, 50) ? "sin" : "cos", a.text), dtype, 1,
                      a.err + 8 * eps);
    case 9: {
      gen_value_t b = small(g, dtype, depth - 1, 2);
      double mag = top * top;
      double err = 2 * top * shifted + mag * log(top) * b.err + 8 * eps * mag;
      return value_of(gen_text(g, "pow(abs(%s) + %s(1.0), %s)", a.text, name, b.text), dtype, mag,
                      err * 1.2);
    }
    case 10: {
      static const char* const roundings[] = {"floor", "ceil", "round", "trunc", "roundeven"};
      gen_value_t exact = exact_float(g, dtype);
      return value_of(gen_text(g, "%s(%s)", roundings[gen_below(g, 5)], exact.text), dtype,
                      exact.mag + 1, 0);
    }
    default: {
      gen_value_t exact = exact_float(g, dtype);
      return value_of(gen_text(g, "copysign(%s, %s)", a.text, exact.text), dtype, a.mag, a.err);
    }
  }
}

static gen_value_t converted_float(gen_t* g, qn_dtype_t dtype, int depth) {
  const char* name = qn_dtype_text(dtype);
  double eps = gen_eps(dtype);
  if (gen_chance(g, 20)) {
    gen_value_t value = stored_expr(g, stored_dtype(g), depth);
    return value_of(gen_text(g, "%s(%s)", name, value.text), dtype, value.mag, 0);
  }
  switch (gen_below(g, 4)) {
    case 0: {
      qn_dtype_t from = (qn_dtype_t)(QN_DTYPE_F16 + gen_below(g, 4));
      gen_value_t value = gen_expr(g, from, depth - 1);
      double err = from == dtype ? value.err : value.err + eps * value.mag;
      return value_of(gen_text(g, "%s(%s)", name, value.text), dtype, value.mag * (1 + eps), err);
    }
    case 1:
      return value_of(gen_text(g, "%s(%s)", name, gen_condition(g, depth - 1).text), dtype, 1, 0);
    case 2:
      return value_of(gen_text(g, "%s((%s) %% 8)", name, free_index(g, 1)), dtype, 8, 0);
    default: {
      qn_dtype_t from = (qn_dtype_t)(QN_DTYPE_I8 + gen_below(g, 8));
      gen_value_t value = gen_expr(g, from, depth - 1);
      return value_of(gen_text(g, "%s((%s) %% %s(8))", name, value.text, qn_dtype_text(from)),
                      dtype, 8, 0);
    }
  }
}

static gen_value_t float_expr(gen_t* g, qn_dtype_t dtype, int depth) {
  const char* name = qn_dtype_text(dtype);
  double eps = gen_eps(dtype);
  uint32_t kind = gen_below(g, 14);
  if (kind == 0 || kind == 1) return unary_float(g, dtype, depth);
  if (kind == 2) return converted_float(g, dtype, depth);
  gen_value_t a = gen_expr(g, dtype, depth - 1);
  gen_value_t b = gen_expr(g, dtype, depth - 1);
  double both = a.mag > b.mag ? a.mag : b.mag;
  double worse = a.err > b.err ? a.err : b.err;
  switch (kind) {
    case 3:
    case 4:
    case 5: {
      double mag = a.mag + b.mag;
      return value_of(gen_text(g, "(%s %s %s)", a.text, gen_chance(g, 50) ? "+" : "-", b.text),
                      dtype, mag, a.err + b.err + mag * eps);
    }
    case 6:
    case 7: {
      double mag = a.mag * b.mag;
      double err = a.mag * b.err + b.mag * a.err + a.err * b.err + mag * eps;
      return value_of(gen_text(g, "(%s * %s)", a.text, b.text), dtype, mag, err);
    }
    case 8: {
      gen_value_t c = gen_expr(g, dtype, depth - 1);
      double mag = a.mag * b.mag + c.mag;
      double err = a.mag * b.err + b.mag * a.err + a.err * b.err + c.err + 2 * mag * eps;
      return value_of(gen_text(g, "fma(%s, %s, %s)", a.text, b.text, c.text), dtype, mag, err);
    }
    case 9: {
      double err = a.err + a.mag * (b.err + eps * (b.mag + 1)) + a.mag * eps;
      return value_of(gen_text(g, "(%s / (abs(%s) + %s(1.0)))", a.text, b.text, name), dtype, a.mag,
                      err);
    }
    case 10:
      return value_of(gen_text(g, "%s(%s, %s)", gen_chance(g, 50) ? "min" : "max", a.text, b.text),
                      dtype, both, worse);
    case 11:
      return value_of(
          gen_text(g, "select(%s, %s, %s)", gen_condition(g, depth - 1).text, a.text, b.text),
          dtype, both, worse);
    case 12:
      return value_of(
          gen_text(g, "((%s) ? %s : %s)", gen_condition(g, depth - 1).text, a.text, b.text), dtype,
          both, worse);
    default:
      return value_of(gen_text(g, gen_chance(g, 50) ? "(-(%s))" : "abs(%s)", a.text), dtype, a.mag,
                      a.err);
  }
}

gen_value_t gen_expr(gen_t* g, qn_dtype_t dtype, int depth) {
  if (depth <= 0 || gen_chance(g, 15)) return leaf(g, dtype, depth);
  if (gen_chance(g, 8)) return guarded_load(g, dtype, depth);
  if (dtype == QN_DTYPE_BOOL) return gen_condition(g, depth - 1);
  if (conf_is_stored(dtype)) return stored_expr(g, dtype, depth);
  if (gen_chance(g, 5)) return gen_tame(g, gen_call(g, dtype, depth));
  if (gen_is_float(dtype)) return gen_tame(g, float_expr(g, dtype, depth));
  return integer_expr(g, dtype, depth);
}

gen_value_t gen_reduction(gen_t* g, qn_dtype_t dtype, int depth) {
  static const char* const kinds[] = {"sum", "min", "max", "prod"};
  const char* name = qn_dtype_text(dtype);
  bool is_float = gen_is_float(dtype);
  gen_extent_t extent = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  size_t scalar_count = g->scalar_count;
  // A variable part of the range, not empty for min and max: that of nothing is infinite.
  uint32_t kind = gen_below(g, 4);
  bool may_be_empty = kind == 0 || kind == 3;
  const char* end = extent.text;
  if (gen_chance(g, 20)) {
    end = gen_text(g, may_be_empty ? "min(%s, (%s) %% %s)" : "min(%s, max(1, (%s) %% %s))", end,
                   free_index(g, 1), extent.text);
  }
  gen_scalar_t* var = gen_add_scalar(g, "k", QN_DTYPE_I64, 0, 0);
  var->extent = extent.text;
  const char* var_name = var->name;
  const char* lets = "";
  if (gen_chance(g, 40)) {
    qn_dtype_t let_dtype = gen_chance(g, 60) ? dtype : gen_dtype(g);
    gen_value_t value = gen_tame(g, gen_expr(g, let_dtype, depth - 1));
    const gen_scalar_t* let = gen_add_scalar(g, "d", let_dtype, value.mag, value.err);
    lets = gen_text(g, "let %s = %s; ", let->name, value.text);
  }
  gen_value_t value = depth > 1 && gen_chance(g, 20) ? gen_reduction(g, dtype, depth - 1)
                                                     : gen_tame(g, gen_expr(g, dtype, depth));
  double count = (double)extent.value;
  if (is_float && kind == 0 && (value.mag > 8 || value.err * count > 16 * gen_eps(dtype))) {
    value = exact_float(g, dtype);
    value.text = gen_text(g, "min(max(%s, %s(-1.0)), %s(1.0))", value.text, name, name);
    value.mag = 1;
  }
  if (is_float && kind == 3) {
    value.text = gen_text(g, "min(max(%s, %s(-1.0)), %s(1.0))", value.text, name, name);
    value.mag = 1;
    value.err = count * (value.err + gen_eps(dtype));
  }
  if (is_float && kind == 0) {
    value.err = count * value.err + count * count * value.mag * gen_eps(dtype);
    value.mag *= count;
  }
  value.text =
      gen_text(g, "(%s %s in 0..%s { %s%s })", kinds[kind], var_name, end, lets, value.text);
  g->scalar_count = scalar_count;
  return gen_tame(g, value);
}
