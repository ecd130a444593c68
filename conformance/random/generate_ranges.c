// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_ranges.c: random products and reductions of ranges that a call
// decides: ragged batches, triangles, guarded steps, and columns with several reductions.
//
// Ranges may be empty, or end before they begin. Not here: operands, epilogues, bounds
// (generate_forms.c). Thread rule: one thread per generator.
#include "conformance/random/generate_forms.h"

static const char* fresh(gen_t* g, const char* prefix) {
  return gen_text(g, "%s%u", prefix, g->name_count++);
}

static const char* loop_word(gen_t* g, uint32_t percent) {
  return gen_chance(g, percent) ? "parallel" : "for";
}

// Returns an element of a new list of integers over an axis, which lies in 0..limit.
static const char* listed(gen_t* g, gen_axis_t axis, const char* limit) {
  qn_dtype_t dtype = gen_chance(g, 50) ? QN_DTYPE_I32 : QN_DTYPE_I64;
  const gen_buffer_t* list = gen_form_param(g, "at", QN_ACCESS_IN, dtype, &axis.extent, 1);
  return gen_text(g, "i64(%s[%s]) %% max(%s, 1)", list->name, axis.var, limit);
}

static gen_buffer_t* add_target(gen_t* g, qn_dtype_t dtype, gen_term_t value,
                                const gen_extent_t* shape, uint32_t rank) {
  gen_buffer_t* target = gen_form_param(g, "y", QN_ACCESS_INOUT, dtype, shape, rank);
  target->err = gen_is_float(dtype) ? value.err : 0;
  return target;
}

// Products of parts of the rows, of the columns or of the steps, from one list entry to the next;
// perhaps with weights that a list chooses.
static void ragged(gen_t* g, gen_form_t* form) {
  gen_axis_t b = {fresh(g, "b"), gen_form_extent(g, form, "b", 5)};
  gen_axis_t i = {fresh(g, "ii"), gen_form_extent(g, form, "n", 70)};
  gen_axis_t j = {fresh(g, "j"), gen_form_extent(g, form, "m", 70)};
  gen_axis_t p = {fresh(g, "p"), gen_form_extent(g, form, "k", 260)};
  gen_axis_t e = {"e", gen_constant_extent(g, 1 + gen_below(g, 3))};
  qn_dtype_t dtype = gen_chance(g, 80) ? QN_DTYPE_F32 : QN_DTYPE_I32;
  gen_term_t x = gen_form_operand(g, form, dtype, (gen_axis_t[]){i, p}, 2);
  gen_term_t w = gen_form_operand(g, form, dtype, (gen_axis_t[]){e, p, j}, 3);
  gen_term_t sum = gen_form_sum(dtype, gen_form_multiply(g, dtype, x, w), p.extent.value);
  gen_extent_t shape[] = {b.extent, i.extent, j.extent};
  const gen_buffer_t* y = add_target(g, dtype, sum, shape, 3);
  gen_axis_t* cut = (gen_axis_t*[]){&i, &i, &j, &p}[gen_below(g, 4)];
  const char *low = listed(g, b, cut->extent.text), *high = listed(g, b, cut->extent.text);
  const char* chosen = listed(g, b, e.extent.text);
  gen_open(g, gen_text(g, "%s %s in 0..%s", loop_word(g, 50), b.var, b.extent.text));
  gen_line(g, "let low = %s;", low);
  gen_line(g, "let high = min(%s + %u, %s);", high, gen_below(g, 2), cut->extent.text);
  gen_line(g, "let e = %s;", chosen);
  const char* from[] = {"0", "0", "0"};
  const char* to[] = {i.extent.text, j.extent.text, p.extent.text};
  uint32_t at = cut == &i ? 0 : cut == &j ? 1 : 2;
  from[at] = gen_chance(g, 70) ? "low" : "0";
  to[at] = "high";
  gen_open(g, gen_text(g, "%s %s in %s..%s", loop_word(g, 70), i.var, from[0], to[0]));
  gen_open(g, gen_text(g, "%s %s in %s..%s", loop_word(g, 70), j.var, from[1], to[1]));
  gen_line(g, "%s[%s, %s, %s] = sum %s in %s..%s { %s * %s };", y->name, b.var, i.var, j.var, p.var,
           from[2], to[2], x.text, w.text);
  gen_close(g);
  gen_close(g);
  gen_close(g);
}

// The scores of one half of a square, as causal attention has them.
static void triangle(gen_t* g, gen_form_t* form) {
  gen_axis_t i = {fresh(g, "ii"), gen_form_extent(g, form, "n", 140)};
  gen_axis_t j = {fresh(g, "j"), gen_form_extent(g, form, "m", 140)};
  gen_axis_t p = {fresh(g, "p"), gen_form_extent(g, form, "k", 140)};
  qn_dtype_t dtype = gen_chance(g, 80) ? QN_DTYPE_F32 : QN_DTYPE_I32;
  gen_term_t x = gen_form_operand(g, form, dtype, (gen_axis_t[]){i, p}, 2);
  gen_term_t w = gen_form_operand(g, form, dtype, (gen_axis_t[]){j, p}, 2);
  gen_term_t sum = gen_form_sum(dtype, gen_form_multiply(g, dtype, x, w), p.extent.value);
  gen_extent_t shape[] = {i.extent, j.extent};
  const gen_buffer_t* y = add_target(g, dtype, sum, shape, 2);
  const char *begin = "0", *end = j.extent.text, *steps = p.extent.text;
  switch (gen_below(g, 4)) {
    case 0:
      end = gen_text(g, "min(%s + 1, %s)", i.var, j.extent.text);
      break;
    case 1:
      begin = gen_text(g, "%s", i.var);
      break;
    case 2:  // a band
      begin = gen_text(g, "max(%s - 5, 0)", i.var);
      end = gen_text(g, "min(%s + 4, %s)", i.var, j.extent.text);
      break;
    default:
      steps = gen_text(g, "min(%s + 1, %s)", gen_chance(g, 50) ? i.var : j.var, p.extent.text);
  }
  gen_open(g, gen_text(g, "parallel %s in 0..%s", i.var, i.extent.text));
  gen_open(g, gen_text(g, "%s %s in %s..%s", loop_word(g, 60), j.var, begin, end));
  gen_line(g, "%s[%s, %s] = sum %s in 0..%s { %s * %s };", y->name, i.var, j.var, p.var, steps,
           x.text, w.text);
  gen_close(g);
  gen_close(g);
}

// A product some of whose steps are outside of the operand, or not wanted: windows over ragged
// rows, sparse rows, masks.
static void guarded(gen_t* g, gen_form_t* form) {
  gen_axis_t i = {fresh(g, "ii"), gen_form_extent(g, form, "n", 140)};
  gen_axis_t j = {fresh(g, "j"), gen_form_extent(g, form, "m", 140)};
  gen_axis_t p = {fresh(g, "p"), gen_form_extent(g, form, "k", 140)};
  gen_axis_t c = {fresh(g, "c"), gen_form_extent(g, form, "h", 9)};
  qn_dtype_t dtype = gen_chance(g, 80) ? QN_DTYPE_F32 : QN_DTYPE_I32;
  const char* zero = dtype == QN_DTYPE_F32 ? "0.0" : "0";
  gen_extent_t shape[] = {i.extent, p.extent, c.extent};
  const gen_buffer_t* x = gen_form_param(g, "x", QN_ACCESS_IN, dtype, shape, 3);
  gen_term_t w = gen_form_operand(g, form, dtype, (gen_axis_t[]){p, c, j}, 3);
  gen_term_t input = {.mag = dtype == QN_DTYPE_F32 ? 4 : 0, .grain = 0x1p-4};
  const char* guard;
  const char* place = p.var;
  switch (gen_below(g, 4)) {
    case 0:  // of another row
      place = gen_text(g, "(%s + %s - 3)", p.var, i.var);
      guard = gen_text(g, "%s >= 0 && %s < %s", place, place, p.extent.text);
      break;
    case 1:  // of a list
      guard = gen_text(g, "%s > %s", listed(g, i, p.extent.text), p.var);
      break;
    case 2: {
      const gen_buffer_t* mask = gen_form_param(g, "mask", QN_ACCESS_IN, QN_DTYPE_U8,
                                                (gen_extent_t[]){i.extent, p.extent}, 2);
      guard = gen_text(g, "%s[%s, %s] < 25", mask->name, i.var, p.var);
      break;
    }
    default:
      guard = gen_text(g, "(%s + %s) %% 3 != 1 && %s < %s - 1", i.var, p.var, p.var, p.extent.text);
  }
  input.text = gen_text(g, "%s[%s, %s, %s]", x->name, i.var, place, c.var);
  bool is_whole = gen_chance(g, 40);
  if (!is_whole) input.text = gen_text(g, "(%s ? %s : %s)", guard, input.text, zero);
  gen_term_t sum = gen_form_multiply(g, dtype, input, w);
  const char* body =
      is_whole ? gen_text(g, "%s ? %s : %s", guard, sum.text, zero) : gen_text(g, "%s", sum.text);
  sum = gen_form_sum(dtype, sum, p.extent.value * c.extent.value);
  sum.text = gen_text(g, "(sum %s in 0..%s { sum %s in 0..%s { %s } })", p.var, p.extent.text,
                      c.var, c.extent.text, body);
  gen_form_open_part(g, (gen_axis_t[]){i, j}, 2);
  gen_form_store(g, dtype, sum, (gen_axis_t[]){i, j}, 2);
  gen_form_close(g, 2);
}

// Several reductions down the columns, some of which need the results of others, and a loop that
// stores.
static void columns(gen_t* g, gen_form_t* form) {
  gen_axis_t i = {fresh(g, "ii"), gen_form_extent(g, form, "n", 140)};
  gen_axis_t j = {fresh(g, "j"), gen_form_extent(g, form, "m", 520)};
  gen_term_t x = gen_form_operand(g, form, QN_DTYPE_I32, (gen_axis_t[]){i, j}, 2);
  gen_term_t z = gen_form_operand(g, form, QN_DTYPE_I32, (gen_axis_t[]){i, j}, 2);
  gen_extent_t shape[] = {i.extent, j.extent};
  const gen_buffer_t* y = gen_form_param(g, "y", QN_ACCESS_OUT, QN_DTYPE_I32, shape, 2);
  const gen_buffer_t* last = gen_form_param(g, "y", QN_ACCESS_INOUT, QN_DTYPE_I32, shape + 1, 1);
  static const char* const kinds[] = {"sum", "max", "min", "prod"};
  gen_open(g, gen_text(g, "parallel %s in %u..%s", j.var, gen_below(g, 3) / 2, j.extent.text));
  const char* known = "1";
  for (uint32_t count = 1 + gen_below(g, 4); count > 0; --count) {
    const char* r = fresh(g, "r");
    const char* term = gen_text(g, "%s * %s", gen_chance(g, 50) ? x.text : z.text, known);
    if (gen_chance(g, 25)) term = gen_text(g, "(%s > %s ? %s : 7)", x.text, z.text, term);
    if (gen_chance(g, 25)) {
      term = gen_text(g, "let d = %s - %s; d * d + %s", x.text, known, term);
    }
    const char* end = i.extent.text;
    if (gen_chance(g, 20)) end = gen_text(g, "min(%s, %s)", end, gen_chance(g, 50) ? "9" : j.var);
    gen_line(g, "let %s = %s %s in %u..%s { %s };", r, kinds[gen_below(g, 4)], i.var,
             gen_below(g, 4) / 3, end, term);
    if (gen_chance(g, 60)) known = gen_text(g, "(%s + %s)", known, r);
    if (gen_chance(g, 30)) {
      gen_line(g, "if %s %% 2 == 0 { %s[%s] = %s[%s] + %s; }", r, last->name, j.var, last->name,
               j.var, known);
    }
  }
  gen_open(g, gen_text(g, "for %s in 0..%s", i.var, i.extent.text));
  gen_line(g, "%s[%s, %s] = %s - %s;", y->name, i.var, j.var, x.text, known);
  gen_close(g);
  gen_close(g);
}

void gen_ranges(gen_t* g, gen_form_t* form) {
  static void (*const makers[])(gen_t*, gen_form_t*) = {ragged, triangle, guarded, columns};
  makers[gen_below(g, GEN_COUNT_OF(makers))](g, form);
}
