// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_products.c: random products, convolutions and attention.
//
// Not here: operands, epilogues, bounds (generate_forms.c). Thread rule: one thread per generator.
#include <math.h>
#include <stdio.h>

#include "conformance/random/generate_forms.h"

static qn_dtype_t choose_sum(gen_t* g) {
  static const qn_dtype_t dtypes[] = {QN_DTYPE_F32, QN_DTYPE_F32,  QN_DTYPE_F32, QN_DTYPE_F32,
                                      QN_DTYPE_F32, QN_DTYPE_I32,  QN_DTYPE_I32, QN_DTYPE_F64,
                                      QN_DTYPE_F16, QN_DTYPE_BF16, QN_DTYPE_I64, QN_DTYPE_U8};
  return dtypes[gen_below(g, GEN_COUNT_OF(dtypes))];
}

// ---- reductions

// What is reduced: mostly a product.
static gen_term_t combine(gen_t* g, qn_dtype_t dtype, gen_term_t a, gen_term_t b) {
  if (gen_chance(g, 88)) return gen_form_multiply(g, dtype, a, b);
  gen_term_t sum = {
      .mag = a.mag + b.mag, .grain = a.grain < b.grain ? a.grain : b.grain, .err = a.err + b.err};
  switch (gen_below(g, 3)) {
    case 0:
      sum.text = gen_text(g, "%s + %s", a.text, b.text);
      break;
    case 1:
      sum.text = gen_text(g, "max(%s, %s)", a.text, b.text);
      break;
    default:
      sum.text = gen_text(g, "(%s - %s)", a.text, b.text);
      sum = gen_form_round(dtype, sum, 1);
      return gen_form_multiply(g, dtype, sum, sum);
  }
  return gen_form_round(dtype, sum, 1);
}

// The text of nested reductions of `body` over the axes; `kind` is "sum" and the like.
static const char* nest(gen_t* g, const char* kind, const gen_axis_t* axes, uint32_t count,
                        const char* lets, const char* body) {
  if (count == 2 && gen_chance(g, 35)) {  // one loop over both
    const char* p = gen_text(g, "fl%u", g->name_count++);
    return gen_text(g, "(%s %s in 0..%s * %s { let %s = %s // %s; let %s = %s %% %s; %s%s })", kind,
                    p, axes[0].extent.text, axes[1].extent.text, axes[0].var, p,
                    axes[1].extent.text, axes[1].var, p, axes[1].extent.text, lets, body);
  }
  uint32_t swapped = count > 1 && gen_chance(g, 30);
  const char* text = gen_text(g, "%s%s", lets, body);
  for (uint32_t d = count; d-- > 0;) {
    uint32_t at = swapped && d < 2 ? 1 - d : d;
    text = gen_text(g, "%s %s in 0..%s { %s }", kind, axes[at].var, axes[at].extent.text, text);
  }
  return gen_text(g, "(%s)", text);
}

static int64_t volume(const gen_axis_t* axes, uint32_t count) {
  int64_t product = 1;
  for (uint32_t d = 0; d < count; ++d) product *= axes[d].extent.value;
  return product;
}

// One reduction over one axis with a bound or a condition of its own.
static const char* bounded(gen_t* g, const char* kind, const char* zero, gen_axis_t step,
                           const char* row, const char* body) {
  const char* extent = step.extent.text;
  switch (gen_below(g, 4)) {
    case 0:
      return gen_text(g, "(%s %s in 1..%s { %s })", kind, step.var, extent, body);
    case 1:
      return gen_text(g, "(%s %s in 0..min(%s + 1, %s) { %s })", kind, step.var, row, extent, body);
    case 2:
      return gen_text(g, "(%s %s in min(%s, %s)..%s { %s })", kind, step.var, row, extent, extent,
                      body);
    default:
      return gen_text(g, "(%s %s in 0..%s { (%s + %s) %% 3 == 0 ? %s : %s })", kind, step.var,
                      extent, step.var, row, body, zero);
  }
}

static gen_term_t reduce(gen_t* g, qn_dtype_t dtype, gen_term_t a, gen_term_t b,
                         const gen_axis_t* steps, uint32_t count, const char* row) {
  bool is_float = gen_is_float(dtype);
  const char* name = qn_dtype_text(dtype);
  const char* kind = gen_chance(g, 85) ? "sum" : gen_chance(g, 50) ? "max" : "min";
  const char* lets = "";
  if (gen_chance(g, 30)) {
    const char* d = gen_text(g, "d%u", g->name_count++);
    lets = gen_text(g, "let %s = %s; ", d, a.text);
    a.text = d;
  }
  gen_term_t body = combine(g, dtype, a, b);
  gen_term_t result = body;
  int64_t terms = volume(steps, count);
  if (kind[0] == 's') {
    result = gen_form_sum(dtype, body, terms);
    double growth = (double)terms * body.mag / 4096;
    if (dtype == QN_DTYPE_F32 && growth < 2 && gen_chance(g, 15)) {  // a product of all
      body.text = gen_text(g, "(1.0 + (%s) * 0.000244140625)", body.text);
      kind = "prod";
      double steps_done = 4 * (double)terms + 4;
      result = (gen_term_t){.mag = exp(growth)};
      result.err = result.mag * (steps_done * gen_eps(dtype) + (double)terms * body.err / 4096);
    } else if (!is_float && gen_chance(g, 10)) {
      kind = "prod";
    }
  } else if (is_float) {
    result.mag = INFINITY;  // of no terms
    result.grain = 0;
  }
  if (count == 1 && lets[0] == 0 && row && gen_chance(g, 15) && kind[0] == 's') {
    const char* zero = gen_text(g, "%s(0%s)", name, is_float ? ".0" : "");
    result.text = bounded(g, kind, zero, steps[0], row, body.text);
  } else {
    result.text = nest(g, kind, steps, count, lets, body.text);
  }
  return result;
}

// ---- products

static const char* fresh(gen_t* g, const char* prefix) {
  return gen_text(g, "%s%u", prefix, g->name_count++);
}

// Sums with loops that store after each step, the loop over steps anywhere.
static void product_of_stores(gen_t* g, gen_form_t* form, gen_axis_t i, gen_axis_t j,
                              gen_axis_t p) {
  qn_dtype_t dtype = choose_sum(g);
  gen_term_t a = gen_form_operand(g, form, dtype, (gen_axis_t[]){i, p}, 2);
  gen_term_t b = gen_form_operand(g, form, dtype, (gen_axis_t[]){p, j}, 2);
  gen_term_t sum = gen_form_sum(dtype, gen_form_multiply(g, dtype, a, b), p.extent.value);
  gen_extent_t shape[] = {i.extent, j.extent};
  gen_buffer_t* target = gen_form_param(g, "y", QN_ACCESS_OUT, dtype, shape, 2);
  target->err = gen_is_float(dtype) ? sum.err : 0;
  const char* at = gen_text(g, "%s[%s, %s]", target->name, i.var, j.var);
  const char* zero = gen_is_float(dtype) ? "0.0" : "0";
  gen_open(g, gen_text(g, "parallel %s in 0..%s", i.var, i.extent.text));
  uint32_t order = gen_below(g, 3);
  if (order < 2) {  // zeros first, then steps outside of columns or inside
    gen_open(g, gen_text(g, "for %s in 0..%s", j.var, j.extent.text));
    gen_line(g, "%s = %s;", at, zero);
    gen_close(g);
  }
  gen_axis_t outer = order == 0 ? p : j, inner = order == 0 ? j : p;
  gen_open(g, gen_text(g, "for %s in 0..%s", outer.var, outer.extent.text));
  if (order == 2) gen_line(g, "%s = %s;", at, zero);
  gen_open(g, gen_text(g, "for %s in 0..%s", inner.var, inner.extent.text));
  gen_line(g, "%s = %s + %s * %s;", at, at, a.text, b.text);
  gen_close(g);
  gen_close(g);
  gen_close(g);
}

// Two products in each task, the first one's result in memory of the task.
static void product_in_task(gen_t* g, gen_form_t* form, gen_axis_t i, gen_axis_t p) {
  gen_axis_t r = {fresh(g, "ir"), gen_form_extent(g, form, NULL, 33)};
  gen_axis_t j = {fresh(g, "ij"), gen_form_extent(g, form, NULL, 64)};
  gen_axis_t o = {fresh(g, "io"), gen_form_extent(g, form, "m", 40)};
  gen_term_t a = gen_form_operand(g, form, QN_DTYPE_F32, (gen_axis_t[]){i, r, p}, 3);
  gen_term_t b = gen_form_operand(g, form, QN_DTYPE_F32, (gen_axis_t[]){p, j}, 2);
  gen_term_t c = gen_form_operand(g, form, QN_DTYPE_F32, (gen_axis_t[]){j, o}, 2);
  const char* kept = fresh(g, "l");
  gen_open(g, gen_text(g, "parallel %s in 0..%s", i.var, i.extent.text));
  gen_line(g, "alloc %s: f32[%s, %s] in local;", kept, r.extent.text, j.extent.text);
  gen_form_open(g, (gen_axis_t[]){r, j}, 2);
  gen_term_t first =
      gen_form_sum(QN_DTYPE_F32, gen_form_multiply(g, QN_DTYPE_F32, a, b), p.extent.value);
  gen_line(g, "%s[%s, %s] = sum %s in 0..%s { %s * %s } * 0.125;", kept, r.var, j.var, p.var,
           p.extent.text, a.text, b.text);
  first.mag *= 0.125;
  first.grain *= 0.125;
  first.err *= 0.125;
  gen_form_close(g, 2);
  gen_form_open(g, (gen_axis_t[]){r, o}, 2);
  first.text = gen_text(g, "%s[%s, %s]", kept, r.var, j.var);
  gen_term_t second =
      gen_form_sum(QN_DTYPE_F32, gen_form_multiply(g, QN_DTYPE_F32, first, c), j.extent.value);
  second.text = nest(g, "sum", &j, 1, "", gen_text(g, "%s * %s", first.text, c.text));
  gen_form_store(g, QN_DTYPE_F32, second, (gen_axis_t[]){i, r, o}, 3);
  gen_form_close(g, 2);
  gen_close(g);
}

// The value of two reductions in one iteration.
static gen_term_t join(gen_t* g, qn_dtype_t dtype, gen_term_t a, gen_term_t b) {
  if (isinf(a.mag) || isinf(b.mag)) {  // those of no terms may differ in sign
    gen_term_t most = {.mag = INFINITY, .err = fmax(a.err, b.err)};
    most.text = gen_text(g, "max(%s, %s)", a.text, b.text);
    return most;
  }
  gen_term_t sum = {.mag = a.mag + b.mag, .grain = fmin(a.grain, b.grain), .err = a.err + b.err};
  sum.text = gen_text(g, "(%s + %s)", a.text, b.text);
  return gen_form_round(dtype, sum, 1);
}

void gen_product(gen_t* g, gen_form_t* form) {
  uint32_t style = gen_below(g, 10);
  gen_axis_t p = {fresh(g, "p"), gen_form_extent(g, form, "k", 520)};
  gen_axis_t i = {fresh(g, "ii"), gen_form_extent(g, form, "n", style == 1 ? 8 : 140)};
  if (style == 1) {
    product_in_task(g, form, i, p);
    return;
  }
  gen_axis_t j = {fresh(g, "j"), gen_form_extent(g, form, "m", 260)};
  if (style == 0) {
    product_of_stores(g, form, i, j, p);
    return;
  }
  bool has_batch = gen_chance(g, 25), has_parts = gen_chance(g, 15);
  gen_axis_t b = {fresh(g, "b"), gen_form_extent(g, form, "b", has_batch ? 6 : 1)};
  gen_axis_t q = {fresh(g, "q"), gen_form_extent(g, form, "h", has_parts ? 9 : 1)};
  gen_axis_t outer[] = {b, i, j}, left[] = {b, i, p, q}, right[] = {b, p, q, j}, steps[] = {p, q};
  uint32_t skip = has_batch ? 0 : 1, inner_count = has_parts ? 2 : 1;
  if (!has_parts) right[2] = j;
  if (!has_parts && has_batch) right[1] = p;
  uint32_t count = 3 + inner_count - 1 - skip;
  qn_dtype_t dtype = choose_sum(g);
  gen_term_t x = gen_form_operand(g, form, dtype, left + skip, count);
  gen_term_t y = gen_form_operand(g, form, dtype, right + skip, count);
  bool has_second = gen_chance(g, 20);
  gen_term_t z = has_second ? gen_form_operand(g, form, dtype, right + skip, count) : y;
  uint32_t nest_count = 3 - skip;
  bool is_flat = !has_batch && gen_chance(g, 10);
  if (is_flat) {
    const char* f = fresh(g, "fl");
    gen_open(g, gen_text(g, "parallel %s in 0..%s * %s", f, i.extent.text, j.extent.text));
    gen_line(g, "let %s = %s // %s;", i.var, f, j.extent.text);
    gen_line(g, "let %s = %s %% %s;", j.var, f, j.extent.text);
  } else {
    gen_form_open_part(g, outer + skip, nest_count);
  }
  gen_term_t sum = reduce(g, dtype, x, y, steps, inner_count, i.var);
  if (has_second) {
    sum = join(g, dtype, sum, reduce(g, dtype, x, z, steps, inner_count, i.var));
  }
  gen_form_store(g, dtype, sum, outer + skip, nest_count);
  gen_form_close(g, is_flat ? 1 : nest_count);
}

// ---- convolutions

void gen_convolution(gen_t* g, gen_form_t* form) {
  bool is_depthwise = gen_chance(g, 15), has_batch = gen_chance(g, 50);
  uint32_t stride = 1 + gen_below(g, 3) / 2, dilation = 1 + gen_below(g, 4) / 3;
  uint32_t pad = gen_below(g, 3);
  gen_axis_t r = {fresh(g, "kr"), gen_constant_extent(g, 1 + gen_below(g, 4))};
  gen_axis_t s = {fresh(g, "ks"), gen_constant_extent(g, 1 + gen_below(g, 4))};
  form->budget /= r.extent.value * s.extent.value;
  gen_axis_t c = {fresh(g, "c"), gen_form_extent(g, form, "k", 40)};
  gen_axis_t o = {fresh(g, "o"), is_depthwise ? c.extent : gen_form_extent(g, form, "m", 70)};
  if (is_depthwise) o.var = c.var;
  gen_axis_t u = {fresh(g, "hu"), gen_form_extent(g, form, "h", 20)};
  gen_axis_t v = {fresh(g, "v"), gen_form_extent(g, form, "w", 40)};
  gen_axis_t n = {fresh(g, "n"), gen_form_extent(g, form, NULL, has_batch ? 3 : 1)};
  // Of the input: enough for the last position of the window.
  gen_extent_t high = gen_form_grow(g, u.extent, stride, (int64_t)dilation * (r.extent.value - 1));
  gen_extent_t wide = gen_form_grow(g, v.extent, stride, (int64_t)dilation * (s.extent.value - 1));
  const char* at_u = gen_text(g, "%s * %u + %s * %u", u.var, stride, r.var, dilation);
  const char* at_v = gen_text(g, "%s * %u + %s * %u", v.var, stride, s.var, dilation);
  bool is_small = gen_chance(g, 25);
  qn_dtype_t dtype = is_small ? QN_DTYPE_I32 : QN_DTYPE_F32;
  qn_dtype_t stored = is_small ? QN_DTYPE_I8 : gen_chance(g, 20) ? QN_DTYPE_BF16 : QN_DTYPE_F32;
  bool channels_last = gen_chance(g, 50);
  gen_extent_t by_channel[] = {n.extent, c.extent, high, wide};
  gen_extent_t by_place[] = {n.extent, high, wide, c.extent};
  const gen_buffer_t* x =
      gen_form_param(g, "x", QN_ACCESS_IN, stored, channels_last ? by_place : by_channel, 4);
  gen_axis_t taps[] = {o, c, r, s}, own_taps[] = {o, r, s};
  gen_term_t weight =
      gen_form_operand(g, form, dtype, is_depthwise ? own_taps : taps, is_depthwise ? 3 : 4);
  gen_axis_t outer[] = {n, o, u, v};
  gen_form_open_part(g, outer, 4);
  const char* lets = gen_text(g, "let y0 = %s - %u; let x0 = %s - %u; ", at_u, pad, at_v, pad);
  const char* load = gen_text(g, channels_last ? "%s[%s, y0, x0, %s]" : "%s[%s, %s, y0, x0]",
                              x->name, n.var, c.var);
  if (channels_last) load = gen_text(g, "%s[%s, y0, x0, %s]", x->name, n.var, c.var);
  if (stored != dtype) load = gen_text(g, "%s(%s)", qn_dtype_text(dtype), load);
  const char* zero = is_small ? "0" : "0.0";
  bool always_inside = pad == 0 && gen_chance(g, 70);
  if (!always_inside) {
    load = gen_text(g, "(y0 >= 0 && y0 < %s && x0 >= 0 && x0 < %s ? %s : %s)", high.text, wide.text,
                    load, zero);
  }
  gen_term_t input = {.text = load, .mag = 4, .grain = 0x1p-4};
  gen_term_t body = gen_form_multiply(g, dtype, input, weight);
  gen_axis_t steps[] = {c, r, s}, window[] = {r, s};
  gen_term_t sum = gen_form_sum(dtype, body, is_depthwise ? volume(window, 2) : volume(steps, 3));
  sum.text = is_depthwise ? nest(g, "sum", window, 2, lets, body.text)
                          : nest(g, "sum", steps, 3, lets, body.text);
  gen_form_store(g, dtype, sum, outer, 4);
  gen_form_close(g, 4);
}

// ---- attention

void gen_attention(gen_t* g, gen_form_t* form) {
  bool is_online = gen_chance(g, 35);
  gen_axis_t d = {fresh(g, "d"), gen_form_extent(g, form, NULL, 40)};
  gen_axis_t j = {fresh(g, "j"), gen_form_extent(g, form, is_online ? "k" : NULL, 140)};
  gen_axis_t h = {fresh(g, "h"), gen_form_extent(g, form, "h", 4)};
  gen_axis_t i = {fresh(g, "ii"), gen_form_extent(g, form, "n", 140)};
  gen_term_t q = gen_form_operand(g, form, QN_DTYPE_F32, (gen_axis_t[]){h, i, d}, 3);
  gen_term_t k = gen_form_operand(g, form, QN_DTYPE_F32, (gen_axis_t[]){h, j, d}, 3);
  gen_term_t v = gen_form_operand(g, form, QN_DTYPE_F32, (gen_axis_t[]){h, j, d}, 3);
  gen_term_t score =
      gen_form_sum(QN_DTYPE_F32, gen_form_multiply(g, QN_DTYPE_F32, q, k), d.extent.value);
  double keys = (double)j.extent.value + 8, eps = gen_eps(QN_DTYPE_F32);
  // exp(s - max): an error of s is one of the exponent, twice.
  double exponent = 2 * (score.err + score.mag * eps) * 0.0078125;
  gen_term_t out = {.mag = v.mag + v.err};
  out.err = v.err + out.mag * (4 * exponent + (16 * keys + 64) * eps);
  if (exponent > 0.25) out.err = 2 * out.mag;
  const char* keys_end = j.extent.text;
  gen_form_open(g, (gen_axis_t[]){h, i}, 2);
  bool is_masked = false;
  if (gen_chance(g, 40)) {  // causal, but one key at least
    is_masked = !is_online && gen_chance(g, 50);
    if (!is_masked) keys_end = gen_text(g, "min(%s + 1, %s)", i.var, j.extent.text);
  }
  const char* dot = gen_text(g, "(sum %s in 0..%s { %s * %s }) * 0.0078125", d.var, d.extent.text,
                             q.text, k.text);
  gen_axis_t stored[] = {h, i, d};
  if (is_online) {
    gen_line(g, "alloc acc: f32[%s] in local;", d.extent.text);
    gen_line(g, "alloc state: f32[2] in local;");
    gen_line(g, "state[0] = -1000000.0;");
    gen_line(g, "state[1] = 0.0;");
    gen_line(g, "for z in 0..%s { acc[z] = 0.0; }", d.extent.text);
    gen_open(g, gen_text(g, "for %s in 0..%s", j.var, keys_end));
    gen_line(g, "let s = %s;", dot);
    gen_line(g, "let top = max(state[0], s);");
    gen_line(g, "let fix = exp(state[0] - top);");
    gen_line(g, "let e = exp(s - top);");
    gen_line(g, "state[0] = top;");
    gen_line(g, "state[1] = state[1] * fix + e;");
    gen_open(g, gen_text(g, "for %s in 0..%s", d.var, d.extent.text));
    gen_line(g, "acc[%s] = acc[%s] * fix + e * %s;", d.var, d.var, v.text);
    gen_close(g);
    gen_close(g);
    gen_open(g, gen_text(g, "for %s in 0..%s", d.var, d.extent.text));
    out.text = gen_text(g, "acc[%s] / max(state[1], 0.000001)", d.var);
  } else {
    gen_line(g, "alloc p: f32[%s] in local;", j.extent.text);
    gen_open(g, gen_text(g, "for %s in 0..%s", j.var, keys_end));
    if (is_masked) {
      gen_line(g, "p[%s] = %s <= %s ? %s : -1000000.0;", j.var, j.var, i.var, dot);
    } else {
      gen_line(g, "p[%s] = %s;", j.var, dot);
    }
    gen_close(g);
    gen_line(g, "let top = max z in 0..%s { p[z] };", keys_end);
    gen_line(g, "for z in 0..%s { p[z] = exp(p[z] - top); }", keys_end);
    gen_line(g, "let total = sum z in 0..%s { p[z] };", keys_end);
    gen_open(g, gen_text(g, "for %s in 0..%s", d.var, d.extent.text));
    out.text =
        gen_text(g, "(sum %s in 0..%s { p[%s] * %s }) / total", j.var, keys_end, j.var, v.text);
  }
  gen_form_store(g, QN_DTYPE_F32, out, stored, 3);
  gen_close(g);
  gen_form_close(g, 2);
}
