// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_stmt.c: random modules: the lines of a text, and the statements of a
// body.
//
// Not here: expressions (generate_expr.c), loops that are launches (generate_launch.c). Thread
// rule: one thread per generator.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "conformance/random/generator.h"

// ---- lines

void gen_line(gen_t* g, const char* format, ...) {
  char text[16384];
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (size < 0 || (size_t)size >= sizeof text) abort();
  for (int i = 0; i < g->indent; ++i) gen_out_add(&g->out, "  ");
  gen_out_add(&g->out, "%s", text);
  gen_out_add(&g->out, "\n");
}

void gen_open(gen_t* g, const char* head) {
  gen_line(g, "%s {", head);
  ++g->indent;
}

void gen_close(gen_t* g) {
  --g->indent;
  gen_line(g, "}");
}

gen_buffer_t* gen_add_buffer(gen_t* g, const char* prefix, qn_dtype_t dtype) {
  if (g->buffer_count == gen_max_buffers) abort();
  gen_buffer_t* buffer = &g->buffers[g->buffer_count++];
  *buffer = (gen_buffer_t){.dtype = dtype, .param = -1};
  (void)snprintf(buffer->name, sizeof buffer->name, "%s%u", prefix, g->name_count++ % 100000);
  return buffer;
}

const char* gen_shape_text(gen_t* g, const gen_buffer_t* buffer) {
  const char* text = gen_text(g, "%s[", qn_dtype_text(buffer->dtype));
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    text = gen_text(g, "%s%s%s", text, d > 0 ? ", " : "", buffer->shape[d].text);
  }
  return gen_text(g, "%s]", text);
}

void gen_absorb(gen_buffer_t* buffer, gen_value_t value) {
  if (value.mag > buffer->mag) buffer->mag = value.mag;
  if (value.err > buffer->err) buffer->err = value.err;
}

gen_extent_t gen_constant_extent(gen_t* g, uint32_t value) {
  return (gen_extent_t){gen_text(g, "%u", value), value};
}

// ---- statements

void gen_let(gen_t* g) {
  qn_dtype_t dtype = gen_dtype(g);
  gen_value_t value = gen_chance(g, 25) ? gen_reduction(g, dtype, 2) : gen_expr(g, dtype, 3);
  if (dtype == QN_DTYPE_BOOL) value = gen_condition(g, 2);
  value = gen_tame(g, value);
  const gen_scalar_t* let = gen_add_scalar(g, "v", dtype, value.mag, value.err);
  gen_line(g, "let %s = %s;", let->name, value.text);
}

static void add_table(gen_t* g) {
  qn_dtype_t dtype = gen_dtype(g);
  uint32_t count = 1 + gen_below(g, 6);
  const char* elements = "";
  for (uint32_t i = 0; i < count; ++i) {
    const char* element;
    if (dtype == QN_DTYPE_BOOL) {
      element = gen_chance(g, 50) ? "true" : "false";
    } else if (gen_is_float(dtype)) {
      element = gen_text(g, "%.3f", (double)gen_below(g, 17) / 8);
    } else {
      element = gen_text(g, "%u", gen_below(g, 100));
    }
    elements = gen_text(g, "%s%s%s", elements, i > 0 ? ", " : "", element);
  }
  gen_buffer_t* table = gen_add_buffer(g, "c", dtype);
  table->rank = 1;
  table->shape[0] = gen_constant_extent(g, count);
  table->mag = 2;
  gen_line(g, "const %s: %s = [%s];", table->name, gen_shape_text(g, table), elements);
  table->is_readable = true;
}

// Integers of the same memory, as large as the elements or larger. Of elements that are the same in
// every implementation: integers, and what a call gives.
static bool add_other_view(gen_t* g) {
  size_t count = 0;
  const gen_buffer_t* base = NULL;
  for (size_t i = 0; i < g->buffer_count; ++i) {
    const gen_buffer_t* buffer = &g->buffers[i];
    bool is_given = buffer->param >= 0 && !buffer->is_writable;
    bool is_fit = buffer->is_readable && buffer->rank > 0 && !buffer->strides &&
                  buffer->dtype != QN_DTYPE_BOOL && (is_given || gen_is_int(buffer->dtype));
    if (is_fit && gen_below(g, (uint32_t)++count) == 0) base = buffer;
  }
  if (!base) return false;
  static const qn_dtype_t dtypes[] = {QN_DTYPE_I8,  QN_DTYPE_U8,  QN_DTYPE_U16,
                                      QN_DTYPE_I32, QN_DTYPE_U32, QN_DTYPE_U64};
  qn_dtype_t dtype = dtypes[gen_below(g, GEN_COUNT_OF(dtypes))];
  size_t base_bits = qn_dtype_size_bits(base->dtype), bits = qn_dtype_size_bits(dtype);
  bool is_row = base->rank == 2 && gen_chance(g, 50);
  int64_t elements = base->shape[base->rank - 1].value;
  if (base->rank == 2 && !is_row) elements *= base->shape[0].value;
  int64_t extent = elements * (int64_t)base_bits / (int64_t)bits;
  if (bits < base_bits || extent == 0) return false;
  const char* text = base->shape[base->rank - 1].text;
  if (base->rank == 2 && !is_row) text = gen_text(g, "%s * %s", base->shape[0].text, text);
  const char* row = is_row ? gen_index(g, base->shape[0], 1) : "0";
  const char* start = base->rank == 2 ? gen_text(g, "%s, 0", row) : "0";
  const char* name = gen_text(g, "%s", base->name);
  gen_buffer_t* view = gen_add_buffer(g, "w", dtype);
  view->rank = 1;
  view->shape[0] = (gen_extent_t){gen_text(g, "(%s * %zu // %zu)", text, base_bits, bits), extent};
  gen_line(g, "view %s: %s = %s[%s];", view->name, gen_shape_text(g, view), name, start);
  view->is_readable = true;
  return true;
}

// A row of a matrix, a part of a vector, or a matrix seen as a vector.
static void add_view(gen_t* g) {
  if (gen_chance(g, 25) && add_other_view(g)) return;
  size_t count = 0;
  gen_buffer_t* base = NULL;
  for (size_t i = 0; i < g->buffer_count; ++i) {
    gen_buffer_t* buffer = &g->buffers[i];
    if (!buffer->is_readable || buffer->rank == 0) continue;
    if (gen_below(g, (uint32_t)++count) == 0) base = buffer;
  }
  if (!base) return;
  gen_buffer_t* view = gen_add_buffer(g, "w", base->dtype);
  view->mag = base->mag;
  view->err = base->err;
  view->rank = 1;
  const char* start;
  if (base->rank == 2 && gen_chance(g, 60)) {  // a row
    view->shape[0] = base->shape[1];
    start = gen_text(g, "%s, 0", gen_index(g, base->shape[0], 1));
  } else if (base->rank == 2) {  // all of it
    view->shape[0] =
        (gen_extent_t){gen_text(g, "%s * %s", base->shape[0].text, base->shape[1].text),
                       base->shape[0].value * base->shape[1].value};
    view->shape[0].text = gen_text(g, "(%s)", view->shape[0].text);
    start = "0, 0";
  } else if (conf_is_packed(base->dtype)) {
    view->shape[0] = base->shape[0];
    start = "0";
  } else {  // every second element
    view->shape[0] = (gen_extent_t){gen_text(g, "((%s + 1) // 2)", base->shape[0].text),
                                    (base->shape[0].value + 1) / 2};
    gen_line(g, "view %s: %s strides [2] = %s[0];", view->name, gen_shape_text(g, view),
             base->name);
    view->is_readable = true;
    return;
  }
  gen_line(g, "view %s: %s = %s[%s];", view->name, gen_shape_text(g, view), base->name, start);
  view->is_readable = true;
}

const char* const gen_loop_words[3] = {"for", "unroll", "vector"};

// A statement that may end the iteration or the loop, on a condition of integers, which is exact.
static void add_leave(gen_t* g, const char* index) {
  const char* leave = gen_chance(g, 60) ? "break" : "continue";
  uint32_t divisor = 2 + gen_below(g, 9), rest = gen_below(g, divisor);
  const char* condition = gen_text(g, "%s %% %u == %u", index, divisor, rest);
  if (gen_chance(g, 40)) {  // an arm that leaves sometimes
    size_t scalar_count = g->scalar_count;
    gen_open(g, gen_text(g, "if %s", condition));
    gen_line(g, "if %s > %u { %s; }", index, gen_below(g, 6), leave);
    gen_let(g);
    gen_close(g);
    g->scalar_count = scalar_count;
  } else {
    gen_line(g, "if %s { %s; }%s", condition, leave,
             gen_chance(g, 20) ? gen_text(g, " else if %s > 40 { continue; }", index) : "");
  }
}

// A small array, written in one loop, then readable.
static void add_local_array(gen_t* g) {
  qn_dtype_t dtype = gen_buffer_dtype(g);
  gen_buffer_t* local = gen_add_buffer(g, "l", dtype);
  local->rank = 1;
  local->shape[0] = gen_constant_extent(g, 1 + gen_below(g, 9));
  gen_line(g, "alloc %s: %s in local;", local->name, gen_shape_text(g, local));
  size_t scalar_count = g->scalar_count;
  gen_scalar_t* var = gen_add_scalar(g, "ux", QN_DTYPE_I64, 0, 0);
  var->extent = local->shape[0].text;
  const char* var_name = gen_text(g, "%s", var->name);
  gen_open(g, gen_text(g, "%s %s in 0..%s", gen_loop_words[gen_below(g, 3)], var_name,
                       local->shape[0].text));
  gen_value_t value = gen_expr(g, dtype, 3);
  if (gen_chance(g, 30)) {
    gen_value_t other = gen_expr(g, dtype, 2);
    gen_open(g, gen_text(g, "if %s", gen_condition(g, 1).text));
    gen_line(g, "%s[%s] = %s;", local->name, var_name, value.text);
    --g->indent;
    gen_line(g, "} else {");
    ++g->indent;
    gen_line(g, "%s[%s] = %s;", local->name, var_name, other.text);
    gen_close(g);
    gen_absorb(local, other);
  } else {
    gen_line(g, "%s[%s] = %s;", local->name, var_name, value.text);
  }
  gen_absorb(local, value);
  gen_close(g);
  g->scalar_count = scalar_count;
  local->is_readable = true;
}

// A scalar that a loop updates: acc = acc * c + e, or an integer recurrence.
static void add_accumulator(gen_t* g) {
  qn_dtype_t dtype = gen_dtype(g);
  if (dtype == QN_DTYPE_BOOL) dtype = QN_DTYPE_I32;
  gen_buffer_t* acc = gen_add_buffer(g, "a", dtype);
  gen_value_t first = gen_expr(g, dtype, 1);
  gen_line(g, "alloc %s: %s in local;", acc->name, gen_shape_text(g, acc));
  gen_line(g, "%s[] = %s;", acc->name, first.text);
  gen_extent_t extent = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  size_t scalar_count = g->scalar_count;
  gen_scalar_t* var = gen_add_scalar(g, "p", QN_DTYPE_I64, 0, 0);
  var->extent = extent.text;
  const char* var_name = gen_text(g, "%s", var->name);
  gen_open(g, gen_text(g, "for %s in 0..%s", var_name, extent.text));
  if (gen_chance(g, 25)) add_leave(g, var_name);
  gen_value_t step = gen_tame(g, gen_expr(g, dtype, 2));
  if (gen_is_float(dtype)) {
    const char* name = qn_dtype_text(dtype);
    if (step.err > 8 * gen_eps(dtype)) step = gen_literal(g, dtype);
    gen_line(g, "%s[] = %s[] * %s(0.5) + %s;", acc->name, acc->name, name, step.text);
    // The errors of the steps are halved every round: at most twice that of one.
    double mag = first.mag + 2 * step.mag;
    gen_absorb(acc, (gen_value_t){NULL, dtype, mag,
                                  first.err + 2 * (step.err + 2 * mag * gen_eps(dtype))});
  } else {
    gen_line(g, "%s[] = (%s[] %s %s);", acc->name, acc->name, gen_chance(g, 50) ? "+" : "^",
             step.text);
  }
  gen_close(g);
  g->scalar_count = scalar_count;
  acc->is_readable = true;
}

static void add_while(gen_t* g) {
  gen_buffer_t* counter = gen_add_buffer(g, "n", QN_DTYPE_I32);
  gen_line(g, "alloc %s: i32[] in local;", counter->name);
  gen_line(g, "%s[] = i32((%s) %% 7);", counter->name, gen_index(g, g->extents[0], 1));
  gen_open(g, gen_text(g, "while %s[] < %u", counter->name, 3 + gen_below(g, 20)));
  gen_line(g, "%s[] = %s[] * 2 + 1;", counter->name, counter->name);
  if (gen_chance(g, 40)) add_leave(g, gen_text(g, "i64(%s[])", counter->name));
  gen_close(g);
  counter->is_readable = true;
}

void gen_statements(gen_t* g, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (g->scalar_count > gen_max_scalars - 12 || g->buffer_count > gen_max_buffers - 4) return;
    switch (gen_below(g, 13)) {
      case 0:
        add_local_array(g);
        break;
      case 1:
        add_accumulator(g);
        break;
      case 2:
        add_view(g);
        break;
      case 3:
        add_table(g);
        break;
      case 4:
        if (gen_chance(g, 50)) add_while(g);
        break;
      case 5:
        gen_line(g, "assert %s >= 0, \"an index\";", gen_index(g, g->extents[0], 1));
        break;
      case 12:
        gen_several(g);
        break;
      default:
        gen_let(g);
        break;
    }
  }
}

void gen_store(gen_t* g, gen_buffer_t* target, const char* where, bool is_fresh) {
  bool is_stored = conf_is_stored(target->dtype);
  gen_value_t value = gen_chance(g, 25) && !is_stored ? gen_reduction(g, target->dtype, 2)
                                                      : gen_expr(g, target->dtype, 4);
  if (target->dtype == QN_DTYPE_BOOL) value = gen_condition(g, 3);
  value = gen_tame(g, value);
  if (!is_fresh && gen_chance(g, 40) && target->dtype != QN_DTYPE_BOOL &&
      !is_stored) {  // its own element
    const char* name = qn_dtype_text(target->dtype);
    if (gen_is_float(target->dtype)) {
      double mag = target->mag * 0.5 + value.mag;
      value.text = gen_text(g, "%s[%s] * %s(0.5) + %s", target->name, where, name, value.text);
      value.err += target->err + 2 * mag * gen_eps(target->dtype);
      value.mag = mag;
    } else {
      value.text = gen_text(g, "%s[%s] + %s", target->name, where, value.text);
    }
  }
  if (gen_chance(g, 30)) {
    gen_open(g, gen_text(g, "if %s", gen_condition(g, 2).text));
    gen_line(g, "%s[%s] = %s;", target->name, where, value.text);
    if (is_fresh || gen_chance(g, 50)) {
      --g->indent;
      gen_line(g, "} else {");
      ++g->indent;
      gen_value_t other = gen_tame(g, gen_expr(g, target->dtype, 2));
      gen_line(g, "%s[%s] = %s;", target->name, where, other.text);
      gen_absorb(target, other);
    }
    gen_close(g);
  } else {
    gen_line(g, "%s[%s] = %s;", target->name, where, value.text);
  }
  gen_absorb(target, value);
}
