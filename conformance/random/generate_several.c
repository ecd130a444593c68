// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_several.c: random reductions of several values, and scans.
//
// Their values are exact, so that ties and the order of the combiner cannot change a result. Thread
// rule: one thread per generator.
#include "conformance/random/generator.h"

// An exact value: an element of an input, else an integer expression.
static gen_value_t exact_value(gen_t* g) {
  for (uint32_t tries = 0; tries < 4 && g->buffer_count > 0; ++tries) {
    const gen_buffer_t* buffer = &g->buffers[gen_below(g, (uint32_t)g->buffer_count)];
    bool is_number = gen_is_int(buffer->dtype) || gen_is_float(buffer->dtype);
    if (buffer->is_readable && buffer->err == 0 && is_number) return gen_load(g, buffer, 2);
  }
  static const qn_dtype_t dtypes[] = {QN_DTYPE_I32, QN_DTYPE_I64, QN_DTYPE_U8, QN_DTYPE_I16};
  return gen_expr(g, dtypes[gen_below(g, GEN_COUNT_OF(dtypes))], 2);
}

// Sums and largest values of integers: `reduce` of two or three values.
static void add_combined(gen_t* g, const char* range, gen_value_t value, bool has_third) {
  const char *a = gen_text(g, "a%u", g->name_count), *b = gen_text(g, "b%u", g->name_count++);
  const char* name = qn_dtype_text(value.dtype);
  const char* third = has_third ? gen_text(g, ", %s & 15", value.text) : "";
  gen_scalar_t* sum = gen_add_scalar(g, "v", value.dtype, 0, 0);
  const char* names = gen_text(g, "%s, ", sum->name);
  names = gen_text(g, "%s%s", names, gen_add_scalar(g, "v", QN_DTYPE_I64, 0, 0)->name);
  if (has_third) {
    names = gen_text(g, "%s, %s", names, gen_add_scalar(g, "v", value.dtype, 0, 0)->name);
  }
  gen_line(
      g,
      "let %s = reduce %s { %s, i64(%s) %% 97%s } from (0, -1%s) with (%s, %sx%s), (%s, %sx%s) {",
      names, range, value.text, value.text, third, has_third ? ", 0" : "", a, a,
      has_third ? gen_text(g, ", %sy", a) : "", b, b, has_third ? gen_text(g, ", %sy", b) : "");
  gen_line(g, "  let %sz = %s + %s;", a, a, b);
  gen_line(g, "  %sz, max(%sx, %sx)%s", a, a, b,
           has_third ? gen_text(g, ", %sy ^ %sy ^ %s(0)", a, b, name) : "");
  gen_line(g, "};");
}

// A scan of a pair, or of the largest value so far. An array has some of its values.
static void add_scan(gen_t* g, const char* var, gen_extent_t extent, gen_value_t value) {
  bool is_pair = gen_is_int(value.dtype);
  gen_buffer_t* local = gen_add_buffer(g, "l", is_pair ? QN_DTYPE_I64 : value.dtype);
  local->rank = 1;
  local->shape[0] = gen_constant_extent(g, 8);
  gen_line(g, "alloc %s: %s in local;", local->name, gen_shape_text(g, local));
  gen_line(g, "for z%s in 0..8 { %s[z%s] = 0; }", var, local->name, var);
  uint32_t first = gen_below(g, (uint32_t)extent.value + 1);
  const char* word = gen_chance(g, 50) ? "scan" : "exclusive_scan";
  const char* head = gen_text(g, "%s %s in 0..%s", word, var, extent.text);
  if (is_pair) {
    gen_line(g, "%s { i64(%s) %% 97, %s } from (%u, 5) with (a%s, b%s), (c%s, d%s) {", head,
             value.text, var, gen_below(g, 4), var, var, var, var);
    gen_line(g, "  a%s * c%s, b%s * c%s + d%s", var, var, var, var, var);
    gen_open(g, gen_text(g, "} as (s%s, t%s)", var, var));
  } else {
    gen_open(g, gen_text(g, "%s { %s } from (0) with (a%s), (c%s) { max(a%s, c%s) } as (s%s)", head,
                         value.text, var, var, var, var, var));
  }
  if (gen_chance(g, 30)) gen_line(g, "if %s %% 3 == 1 { continue; }", var);
  gen_line(g, "if %s >= %u && %s < %u { %s[%s - %u] = s%s%s; }", var, first, var, first + 8,
           local->name, var, first, var, is_pair ? gen_text(g, " ^ t%s", var) : "");
  gen_close(g);
  gen_absorb(local, is_pair ? (gen_value_t){.dtype = QN_DTYPE_I64} : value);
  local->is_readable = true;
}

void gen_several(gen_t* g) {
  gen_extent_t extent = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  size_t scalar_count = g->scalar_count;
  gen_scalar_t* var = gen_add_scalar(g, "k", QN_DTYPE_I64, 0, 0);
  var->extent = extent.text;
  const char* name = gen_text(g, "%s", var->name);
  const char* range = gen_text(g, "%s in 0..%s", name, extent.text);
  gen_value_t value = exact_value(g);
  g->scalar_count = scalar_count;
  if (value.err != 0) return;
  if (gen_chance(g, 40)) {
    add_scan(g, name, extent, value);
    return;
  }
  if (gen_is_int(value.dtype) && gen_chance(g, 50)) {
    add_combined(g, range, value, gen_chance(g, 50));
    return;
  }
  bool is_float = gen_is_float(value.dtype);
  const char* text = qn_dtype_text(value.dtype);
  const char* body = value.text;
  // A product is not computed twice, so it takes a combiner.
  if (is_float && gen_chance(g, 40)) body = gen_text(g, "%s * %s(0.5)", body, text);
  // Only the index is used: the best value of an empty range is infinite.
  const gen_scalar_t* index = gen_add_scalar(g, "v", QN_DTYPE_I64, 0, 0);
  gen_line(g, "let o%u, %s = %s %s { %s };", g->name_count++, index->name,
           gen_chance(g, 50) ? "argmax" : "argmin", range, body);
}
