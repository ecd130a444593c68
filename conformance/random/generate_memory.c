// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_memory.c: random loops that memory bounds: sums along any axis,
// transposes, joined and cut arrays, scans, rows that are normalised.
//
// Not here: operands, epilogues, bounds (generate_forms.c). Thread rule: one thread per generator.
#include "conformance/random/generate_forms.h"

static const char* fresh(gen_t* g, const char* prefix) {
  return gen_text(g, "%s%u", prefix, g->name_count++);
}

static qn_dtype_t choose_dtype(gen_t* g) {
  static const qn_dtype_t dtypes[] = {QN_DTYPE_F32, QN_DTYPE_F32, QN_DTYPE_F64, QN_DTYPE_I32,
                                      QN_DTYPE_I64, QN_DTYPE_F16, QN_DTYPE_U8,  QN_DTYPE_BF16};
  return dtypes[gen_below(g, GEN_COUNT_OF(dtypes))];
}

static void fill_axes(gen_t* g, gen_form_t* form, gen_axis_t* axes, uint32_t count) {
  static const char* const symbols[] = {"n", "m", "h", "w"};
  for (uint32_t d = 0; d < count; ++d) {
    axes[d] = (gen_axis_t){fresh(g, "ii"), gen_form_extent(g, form, symbols[d], 520)};
  }
}

// A reduction of one axis of two or three, seldom of all.
static void reduce_axis(gen_t* g, gen_form_t* form) {
  gen_axis_t axes[3];
  uint32_t count = 2 + gen_below(g, 2), at = gen_below(g, count);
  fill_axes(g, form, axes, count);
  qn_dtype_t dtype = choose_dtype(g);
  gen_term_t x = gen_form_operand(g, form, dtype, axes, count);
  gen_axis_t step = axes[at], outer[2];
  for (uint32_t d = 0, to = 0; d < count; ++d) {
    if (d != at) outer[to++] = axes[d];
  }
  bool is_sum = gen_chance(g, 70);
  gen_term_t result = x;
  if (is_sum) result = gen_form_sum(dtype, x, step.extent.value);
  if (!is_sum && gen_is_float(dtype)) {
    result.mag = 1e30;
    result.grain = 0;
  }
  if (!is_sum && step.extent.value == 0) result.err = 0;
  gen_form_open_part(g, outer, count - 1);
  result.text = gen_text(g, "(%s %s in 0..%s { %s })",
                         is_sum              ? "sum"
                         : gen_chance(g, 50) ? "max"
                                             : "min",
                         step.var, step.extent.text, x.text);
  gen_form_store(g, dtype, result, outer, count - 1);
  gen_form_close(g, count - 1);
}

// A copy in another order of axes: gen_form_operand chooses that of the input.
static void transpose(gen_t* g, gen_form_t* form) {
  gen_axis_t axes[4];
  uint32_t count = 2 + gen_below(g, 3);
  fill_axes(g, form, axes, count);
  qn_dtype_t dtype = choose_dtype(g);
  gen_term_t x = gen_form_operand(g, form, dtype, axes, count);
  gen_form_open_part(g, axes, count);
  gen_form_store(g, dtype, x, axes, count);
  gen_form_close(g, count);
}

// Two arrays side by side.
static void join(gen_t* g, gen_form_t* form) {
  gen_axis_t axes[2];
  fill_axes(g, form, axes, 2);
  uint32_t first = gen_below(g, 40);
  gen_extent_t left[] = {axes[0].extent, gen_constant_extent(g, first + 1)};
  gen_extent_t whole[] = {axes[0].extent, gen_form_grow(g, axes[1].extent, 1, first + 1)};
  qn_dtype_t dtype = choose_dtype(g);
  const gen_buffer_t* a = gen_form_param(g, "x", QN_ACCESS_IN, dtype, left, 2);
  const gen_buffer_t* b = gen_form_param(g, "x", QN_ACCESS_IN, dtype,
                                         (gen_extent_t[]){axes[0].extent, axes[1].extent}, 2);
  const gen_buffer_t* y = gen_form_param(g, "y", QN_ACCESS_OUT, dtype, whole, 2);
  const char *i = axes[0].var, *j = axes[1].var;
  gen_form_open(g, (gen_axis_t[]){axes[0], {j, whole[1]}}, 2);
  gen_line(g, "%s[%s, %s] = %s < %u ? %s[%s, %s] : %s[%s, %s - %u];", y->name, i, j, j, first + 1,
           a->name, i, j, b->name, i, j, first + 1);
  gen_form_close(g, 2);
}

// Running sums along the rows or the columns.
static void scan(gen_t* g, gen_form_t* form) {
  gen_axis_t axes[2];
  fill_axes(g, form, axes, 2);
  uint32_t along = gen_below(g, 2);
  qn_dtype_t dtype = choose_dtype(g);
  gen_term_t x = gen_form_operand(g, form, dtype, axes, 2);
  gen_term_t sum = gen_form_sum(dtype, x, axes[along].extent.value);
  gen_extent_t shape[] = {axes[0].extent, axes[1].extent};
  gen_buffer_t* y = gen_form_param(g, "y", QN_ACCESS_OUT, dtype, shape, 2);
  y->err = gen_is_float(dtype) ? sum.err : 0;
  const char *i = axes[0].var, *j = axes[1].var;
  gen_open(g,
           gen_text(g, "parallel %s in 0..%s", axes[1 - along].var, axes[1 - along].extent.text));
  gen_open(g, gen_text(g, "for %s in 0..%s", axes[along].var, axes[along].extent.text));
  gen_open(g, gen_text(g, "if %s == 0", axes[along].var));
  gen_line(g, "%s[%s, %s] = %s;", y->name, i, j, x.text);
  gen_close(g);
  gen_open(g, gen_text(g, "if %s > 0", axes[along].var));
  gen_line(g,
           along == 0 ? "%s[%s, %s] = %s[%s - 1, %s] + %s;" : "%s[%s, %s] = %s[%s, %s - 1] + %s;",
           y->name, i, j, y->name, i, j, x.text);
  gen_close(g);
  gen_close(g);
  gen_close(g);
}

// Softmax or a layer norm over the last axis or the first.
static void normalise(gen_t* g, gen_form_t* form) {
  gen_axis_t axes[2];
  fill_axes(g, form, axes, 2);
  gen_axis_t row = axes[gen_below(g, 2)];
  gen_axis_t step = row.var == axes[0].var ? axes[1] : axes[0];
  gen_term_t x = gen_form_operand(g, form, QN_DTYPE_F32, axes, 2);
  double count = (double)step.extent.value + 8, eps = gen_eps(QN_DTYPE_F32);
  double rounding = x.err + x.mag * eps;
  gen_term_t out = {.mag = 1};
  gen_open(g, gen_text(g, "parallel %s in 0..%s", row.var, row.extent.text));
  if (gen_chance(g, 50)) {
    gen_line(g, "let top = max %s in 0..%s { %s };", step.var, step.extent.text, x.text);
    gen_line(g, "let total = sum %s in 0..%s { exp((%s - top) * 0.03125) };", step.var,
             step.extent.text, x.text);
    out.text = gen_text(g, "exp((%s - top) * 0.03125) / total", x.text);
    out.err = 4 * (2 * rounding * 0.03125 + (count + 16) * eps);
  } else {
    gen_line(g, "let mean = (sum %s in 0..%s { %s }) / f32(%s);", step.var, step.extent.text,
             x.text, step.extent.text);
    gen_line(g, "let spread = (sum %s in 0..%s { let d = %s - mean; d * d }) / f32(%s);", step.var,
             step.extent.text, x.text, step.extent.text);
    out.text = gen_text(g, "(%s - mean) / sqrt(spread + %d.0)", x.text, (int)(x.mag * x.mag) + 1);
    out.err = 8 * (rounding / x.mag + (count + 8) * eps);
  }
  gen_open(g, gen_text(g, "for %s in 0..%s", step.var, step.extent.text));
  gen_form_store(g, QN_DTYPE_F32, out, axes, 2);
  gen_close(g);
  gen_close(g);
}

void gen_memory(gen_t* g, gen_form_t* form) {
  static void (*const makers[])(gen_t*, gen_form_t*) = {reduce_axis, reduce_axis, transpose,
                                                        join,        scan,        normalise};
  makers[gen_below(g, GEN_COUNT_OF(makers))](g, form);
}
