// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_forms.c: random programs of the forms that mappings look for.
//
// Products, convolutions, attention, and loops that memory bounds, in many spellings: orders of
// loops, layouts, strides, gathered rows, small and packed operands, epilogues. Values are
// multiples of powers of two, so that most sums are exact in any order and a missing or repeated
// summand always shows; where they are not, the tolerance bounds the rounding of each order.
//
// Here: extents, parameters, operands, epilogues. The loops: generate_products.c,
// generate_memory.c, generate_ranges.c. Thread rule: one thread per generator.
#include "conformance/random/generate_forms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- extents and parameters

static int64_t choose_size(gen_t* g, int64_t max) {
  static const uint8_t edges[] = {2,  3,  4,  7,  8,  11, 12, 13, 15, 16, 17, 24, 31,
                                  32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 128};
  if (max < 1) max = 1;
  if (gen_chance(g, 10)) return 1;
  if (gen_chance(g, 50)) {
    int64_t size = edges[gen_below(g, GEN_COUNT_OF(edges))];
    if (size <= max) return size;
  }
  return 1 + gen_below(g, (uint32_t)max);
}

gen_extent_t gen_form_extent(gen_t* g, gen_form_t* form, const char* symbol, int64_t max) {
  static const uint16_t limits[] = {9, 20, 70, 70, 140, 520};
  int64_t limit = limits[gen_below(g, GEN_COUNT_OF(limits))];
  if (max > limit) max = limit;
  if (max > form->budget) max = form->budget;
  int64_t value = choose_size(g, max);
  bool is_symbol = symbol && gen_chance(g, 60);
  if (is_symbol && gen_chance(g, 2)) value = 0;
  if (value > 0) form->budget /= value;
  if (!is_symbol) return gen_constant_extent(g, (uint32_t)value);
  return gen_form_symbol(g, form, symbol, value);
}

gen_extent_t gen_form_symbol(gen_t* g, gen_form_t* form, const char* name, int64_t value) {
  if (form->symbol_count == qn_generated_max_symbols) abort();
  gen_extent_t extent = {gen_text(g, "%s", name), value};
  form->symbols[form->symbol_count++] = extent;
  return extent;
}

gen_extent_t gen_form_grow(gen_t* g, gen_extent_t extent, int64_t by, int64_t plus) {
  if (by == 1 && plus == 0) return extent;
  return (gen_extent_t){gen_text(g, "(%d * %s + %d)", (int)by, extent.text, (int)plus),
                        extent.value * by + plus};
}

gen_buffer_t* gen_form_param(gen_t* g, const char* prefix, qn_access_t access, qn_dtype_t dtype,
                             const gen_extent_t* shape, uint32_t rank) {
  qn_generated_t* result = g->result;
  if (result->param_count == qn_generated_max_params) abort();
  gen_buffer_t* buffer = gen_add_buffer(g, prefix, dtype);
  buffer->rank = rank;
  buffer->param = (int)result->param_count;
  qn_generated_param_t* param = &result->params[result->param_count++];
  *param = (qn_generated_param_t){
      .is_buffer = true, .dtype = dtype, .access = access, .rank = rank, .element_count = 1};
  for (uint32_t d = 0; d < rank; ++d) {
    buffer->shape[d] = shape[d];
    param->shape[d] = shape[d].value;
    param->element_count *= (size_t)shape[d].value;
  }
  return buffer;
}

// Gives an input of two dimensions strides: wider rows, columns first, a symbol, or rows that are
// all the same memory.
static void add_strides(gen_t* g, gen_form_t* form, gen_buffer_t* buffer) {
  qn_generated_param_t* param = &g->result->params[buffer->param];
  uint32_t kind = gen_below(g, 4);
  uint32_t inner = kind == 1 ? 0 : 1;
  gen_extent_t step = gen_form_grow(g, buffer->shape[inner], 1, gen_below(g, 4));
  if (kind == 2 && form->symbol_count < qn_generated_max_symbols) {
    step = gen_form_symbol(g, form, gen_text(g, "s%u", g->name_count++), step.value);
  }
  if (kind == 3) step = (gen_extent_t){"0", 0};
  param->has_strides = true;
  param->strides[inner] = 1;
  param->strides[1 - inner] = step.value;
  param->element_count = 0;
  if (param->shape[0] > 0 && param->shape[1] > 0) {
    param->element_count = 1 + (size_t)((param->shape[0] - 1) * param->strides[0] +
                                        (param->shape[1] - 1) * param->strides[1]);
  }
  buffer->strides = inner == 1 ? gen_text(g, " strides [%s, 1]", step.text)
                               : gen_text(g, " strides [1, %s]", step.text);
}

// ---- operands

typedef enum storage { PLAIN, ZERO_POINT, NIBBLES, TABLE, SCALED } storage_t;

static qn_dtype_t choose_storage(gen_t* g, qn_dtype_t sum, storage_t* out_storage) {
  static const qn_dtype_t for_f32[] = {QN_DTYPE_F32, QN_DTYPE_F32,  QN_DTYPE_F32,
                                       QN_DTYPE_F32, QN_DTYPE_BF16, QN_DTYPE_F16};
  static const qn_dtype_t for_i32[] = {QN_DTYPE_I8, QN_DTYPE_U8, QN_DTYPE_I8, QN_DTYPE_I16,
                                       QN_DTYPE_I32};
  *out_storage = PLAIN;
  if (sum == QN_DTYPE_F32 && gen_chance(g, 30)) {
    *out_storage = (storage_t)(1 + gen_below(g, 4));
    return *out_storage == SCALED ? QN_DTYPE_I8 : QN_DTYPE_U8;
  }
  if (sum == QN_DTYPE_F32) return for_f32[gen_below(g, GEN_COUNT_OF(for_f32))];
  if (sum == QN_DTYPE_F64) return gen_chance(g, 50) ? QN_DTYPE_F64 : QN_DTYPE_F32;
  if (sum == QN_DTYPE_I64) return gen_chance(g, 50) ? QN_DTYPE_I64 : QN_DTYPE_I32;
  if (sum != QN_DTYPE_I32) return sum;
  if (gen_chance(g, 20)) {
    *out_storage = gen_chance(g, 50) ? ZERO_POINT : NIBBLES;
    return QN_DTYPE_U8;
  }
  return for_i32[gen_below(g, GEN_COUNT_OF(for_i32))];
}

// The index along one dimension, whose extent it may change.
static const char* choose_index(gen_t* g, gen_axis_t axis, gen_extent_t* out_extent) {
  *out_extent = axis.extent;
  switch (gen_below(g, 20)) {
    case 0:  // a part of wider rows
      *out_extent = gen_form_grow(g, axis.extent, 1, 3);
      return gen_text(g, "%s + %u", axis.var, gen_below(g, 4));
    case 1:  // every second or third
      *out_extent = gen_form_grow(g, axis.extent, 2 + gen_below(g, 2), 0);
      return gen_text(g, "%s * %s + %u", axis.var, out_extent->text[1] == '2' ? "2" : "3",
                      gen_below(g, 2));
    case 2:  // backwards
      return gen_text(g, "%s - 1 - %s", axis.extent.text, axis.var);
    case 3: {  // gathered
      if (g->result->param_count + 6 > qn_generated_max_params) return axis.var;
      qn_dtype_t dtype = gen_chance(g, 50) ? QN_DTYPE_I32 : QN_DTYPE_I64;
      const gen_buffer_t* rows = gen_form_param(g, "at", QN_ACCESS_IN, dtype, &axis.extent, 1);
      *out_extent = gen_constant_extent(g, 1 + gen_below(g, 40));
      return gen_text(g, "%s[%s] %% %s", rows->name, axis.var, out_extent->text);
    }
    default:
      return axis.var;
  }
}

static void shuffle(gen_t* g, gen_axis_t* axes, uint32_t count) {
  for (uint32_t i = count; i > 1; --i) {
    uint32_t j = gen_below(g, i);
    gen_axis_t kept = axes[i - 1];
    axes[i - 1] = axes[j];
    axes[j] = kept;
  }
}

// Converts a loaded element of `storage` to the dtype of the sum.
static gen_term_t convert(gen_t* g, qn_dtype_t sum, qn_dtype_t dtype, storage_t storage,
                          const char* load, const gen_axis_t* last) {
  const char* name = qn_dtype_text(sum);
  bool is_float = gen_is_float(dtype);
  gen_term_t term = {.text = load, .mag = is_float ? 4 : 256, .grain = is_float ? 0x1p-4 : 1};
  if (storage == NIBBLES) {
    term.mag = 16;
    term.text = gen_text(g, "i32((%s >> u8((%s %% 2) * 4)) & 15) - 8", load, last->var);
    if (sum != QN_DTYPE_I32) term.text = gen_text(g, "%s(%s)", name, term.text);
  } else if (storage == ZERO_POINT) {
    term.text = gen_text(g, "%s(i32(%s) - %u)", name, load, gen_below(g, 256));
  } else if (storage == TABLE) {
    gen_extent_t extent = {"256", 256};
    const gen_buffer_t* table = gen_form_param(g, "t", QN_ACCESS_IN, QN_DTYPE_F32, &extent, 1);
    term =
        (gen_term_t){.text = gen_text(g, "%s[%s]", table->name, load), .mag = 4, .grain = 0x1p-4};
  } else if (storage == SCALED) {
    gen_extent_t extent = {gen_text(g, "(%s // 8 + 1)", last->extent.text),
                           last->extent.value / 8 + 1};
    const gen_buffer_t* scales = gen_form_param(g, "sc", QN_ACCESS_IN, QN_DTYPE_F32, &extent, 1);
    term.text = gen_text(g, "%s(%s) * %s[%s // 8]", name, load, scales->name, last->var);
    term.mag *= 4;
    term.grain *= 0x1p-4;
  } else if (dtype != sum) {
    term.text = gen_text(g, "%s(%s)", name, load);
  }
  return term;
}

gen_term_t gen_form_operand(gen_t* g, gen_form_t* form, qn_dtype_t sum, const gen_axis_t* given,
                            uint32_t count) {
  gen_axis_t axes[qn_generated_max_rank];
  gen_extent_t shape[qn_generated_max_rank] = {{.text = NULL}};
  memcpy(axes, given, count * sizeof *axes);
  if (gen_chance(g, 50)) shuffle(g, axes, count);
  if (count > 1 && gen_chance(g, 4)) --count;  // the same for all of the last one
  storage_t storage;
  qn_dtype_t dtype = choose_storage(g, sum, &storage);
  if (g->result->param_count + 5 > qn_generated_max_params) storage = PLAIN;
  const char* index = "";
  for (uint32_t d = 0; d < count; ++d) {
    const char* at = axes[d].var;
    shape[d] = axes[d].extent;
    if (storage == NIBBLES && d + 1 == count) {
      shape[d].text = gen_text(g, "(%s // 2 + 1)", shape[d].text);
      shape[d].value = shape[d].value / 2 + 1;
      at = gen_text(g, "%s // 2", at);
    } else {
      at = choose_index(g, axes[d], &shape[d]);
    }
    index = gen_text(g, "%s%s%s", index, d > 0 ? ", " : "", at);
  }
  gen_buffer_t* buffer = gen_form_param(g, "x", QN_ACCESS_IN, dtype, shape, count);
  if (count == 2 && gen_chance(g, 15)) add_strides(g, form, buffer);
  const char* name = buffer->name;
  bool is_empty = g->result->params[buffer->param].element_count == 0;
  if (!buffer->strides && !is_empty && gen_chance(g, 8)) {
    name = gen_text(g, "w%u", g->name_count++);
    gen_line(g, "view %s: %s = %s[%s];", name, gen_shape_text(g, buffer), buffer->name,
             &"0, 0, 0, 0"[3 * (4 - count)]);
  }
  const char* load = gen_text(g, "%s[%s]", name, index);
  if (storage == PLAIN && dtype != sum && !gen_is_float(dtype) && sum == QN_DTYPE_F32) {
    storage = ZERO_POINT;
  }
  gen_term_t term = convert(g, sum, dtype, storage, load, &axes[count - 1]);
  if (gen_is_float(sum) && gen_chance(g, 8)) {  // no longer exact
    term.text = gen_text(g, "%s * %s(0.3)", term.text, qn_dtype_text(sum));
    term.grain = 0;
    term.err = 2 * term.mag * gen_eps(sum);
  }
  if (gen_chance(g, 8)) {
    term.text = gen_text(g, "max(%s, %s(0%s))", term.text, qn_dtype_text(sum),
                         gen_is_float(sum) ? ".0" : "");
  }
  term.text = gen_text(g, "(%s)", term.text);
  return term;
}

// ---- bounds

// The largest multiple of its grain that a dtype holds exactly.
static double exact_limit(qn_dtype_t dtype) {
  return 2 / gen_eps(dtype);
}

gen_term_t gen_form_round(qn_dtype_t dtype, gen_term_t term, double steps) {
  if (!gen_is_float(dtype)) return (gen_term_t){.text = term.text};
  bool is_exact = term.err <= 0 && term.grain > 0 && term.mag / term.grain <= exact_limit(dtype);
  if (is_exact) return term;
  term.err += steps * (term.mag + term.err) * gen_eps(dtype);
  term.grain = 0;
  return term;
}

gen_term_t gen_form_multiply(gen_t* g, qn_dtype_t dtype, gen_term_t a, gen_term_t b) {
  gen_term_t product = {.text = gen_text(g, "%s * %s", a.text, b.text),
                        .mag = a.mag * b.mag,
                        .grain = a.grain * b.grain,
                        .err = a.mag * b.err + b.mag * a.err + a.err * b.err};
  return gen_form_round(dtype, product, 1);
}

gen_term_t gen_form_sum(qn_dtype_t dtype, gen_term_t term, int64_t count) {
  double steps = (double)(count > 0 ? count : 1);
  term.mag *= steps;
  term.err *= steps;
  return gen_form_round(dtype, term, steps + 2);
}

// ---- epilogues

static const char* side_index(gen_t* g, const gen_axis_t* axes, uint32_t count) {
  const char* text = "";
  for (uint32_t d = 0; d < count; ++d) {
    text = gen_text(g, "%s%s%s", text, d > 0 ? ", " : "", axes[d].var);
  }
  return text;
}

static gen_term_t add_side(gen_t* g, qn_dtype_t dtype, gen_term_t value, const gen_axis_t* axes,
                           uint32_t count) {
  gen_extent_t shape[qn_generated_max_rank];
  for (uint32_t d = 0; d < count; ++d) shape[d] = axes[d].extent;
  const gen_buffer_t* side = gen_form_param(g, "r", QN_ACCESS_IN, dtype, shape, count);
  gen_term_t sum = {
      .text = gen_text(g, "(%s + %s[%s])", value.text, side->name, side_index(g, axes, count)),
      .mag = value.mag + 4,
      .grain = value.grain < 0x1p-4 ? value.grain : 0x1p-4,
      .err = value.err};
  return gen_form_round(dtype, sum, 1);
}

static gen_term_t activate(gen_t* g, qn_dtype_t dtype, gen_term_t value) {
  const char* name = qn_dtype_text(dtype);
  bool is_wide = dtype == QN_DTYPE_F32 || dtype == QN_DTYPE_F64;
  switch (gen_below(g, is_wide ? 4 : 1)) {
    case 1:
      value.text = gen_text(g, "tanh(%s * %s(0.125))", value.text, name);
      value.err = 0.125 * value.err + 0x1p-3 * value.mag * gen_eps(dtype) + 16 * gen_eps(dtype);
      value.mag = 1;
      value.grain = 0;
      return value;
    case 2:
      value.text = gen_text(g, "(%s * %s(0.7))", value.text, name);
      value.grain = 0;
      value.err += 2 * (value.mag + value.err) * gen_eps(dtype);
      return value;
    default:
      value.text =
          gen_text(g, "max(%s, %s(0%s))", value.text, name, gen_is_float(dtype) ? ".0" : "");
      return value;
  }
}

// Converts to another dtype that is stored.
static qn_dtype_t choose_stored(gen_t* g, qn_dtype_t dtype, gen_term_t* value) {
  if (dtype != QN_DTYPE_F32 && dtype != QN_DTYPE_I32) return dtype;
  qn_dtype_t stored = dtype;
  if (dtype == QN_DTYPE_I32) {
    if (!gen_chance(g, 25)) return dtype;
    stored = gen_chance(g, 50) ? QN_DTYPE_I8 : QN_DTYPE_F32;
    *value = (gen_term_t){.mag = 0x1p31, .grain = 1, .text = value->text};
    if (stored == QN_DTYPE_F32) {
      value->grain = 0;
      value->err = 0;  // a conversion rounds the same everywhere
    }
  } else if (gen_chance(g, 25)) {
    stored = value->mag < 30000 && gen_chance(g, 50) ? QN_DTYPE_F16 : QN_DTYPE_BF16;
    if (value->err > 0) value->err += 2 * (value->mag + value->err) * gen_eps(stored);
  } else if (value->err <= 0 && gen_chance(g, 10)) {
    stored = QN_DTYPE_I8;
  }
  if (stored != dtype) value->text = gen_text(g, "%s(%s)", qn_dtype_text(stored), value->text);
  return stored;
}

void gen_form_store(gen_t* g, qn_dtype_t dtype, gen_term_t value, const gen_axis_t* given,
                    uint32_t count) {
  gen_axis_t axes[qn_generated_max_rank];
  gen_extent_t shape[qn_generated_max_rank];
  memcpy(axes, given, count * sizeof *axes);
  if (gen_chance(g, 20)) shuffle(g, axes, count);
  if (gen_chance(g, 50)) {
    const char* name = gen_text(g, "v%u", g->name_count++);
    gen_line(g, "let %s = %s;", name, value.text);
    value.text = name;
  } else {
    value.text = gen_text(g, "(%s)", value.text);
  }
  bool has_room = g->result->param_count + 3 <= qn_generated_max_params;
  if (has_room && gen_chance(g, 30)) {  // a bias
    value = add_side(g, dtype, value, &axes[gen_below(g, count)], 1);
  }
  if (gen_chance(g, 30)) value = activate(g, dtype, value);
  has_room = g->result->param_count + 2 <= qn_generated_max_params;
  if (has_room && gen_chance(g, 20)) value = add_side(g, dtype, value, axes, count);  // a residual
  const char* index = side_index(g, axes, count);
  for (uint32_t d = 0; d < count; ++d) shape[d] = axes[d].extent;
  bool is_guarded = gen_chance(g, 15);
  bool is_added = !is_guarded && gen_chance(g, 12);
  qn_dtype_t stored = is_added ? dtype : choose_stored(g, dtype, &value);
  qn_access_t access = is_guarded || is_added ? QN_ACCESS_INOUT : QN_ACCESS_OUT;
  gen_buffer_t* target = gen_form_param(g, "y", access, stored, shape, count);
  if (is_added) {
    value.text = gen_text(g, "%s[%s] + %s", target->name, index, value.text);
    value.mag += 4;
    if (value.grain > 0x1p-4) value.grain = 0x1p-4;
    value = gen_form_round(dtype, value, 1);
  }
  if (is_guarded) {
    const char* first = axes[0].var;
    const char* last = axes[count - 1].var;
    const char* condition = gen_text(g, "%s <= %s", last, first);
    if (gen_chance(g, 50)) condition = gen_text(g, "(%s + %s) %% 3 != 1", last, first);
    gen_open(g, gen_text(g, "if %s", condition));
  }
  gen_line(g, "%s[%s] = %s;", target->name, index, value.text);
  if (is_guarded) gen_close(g);
  if (gen_is_float(stored)) target->err = value.err;
}

// ---- nests of loops

static void open_axes(gen_t* g, const gen_axis_t* given, uint32_t count, bool may_begin_later) {
  gen_axis_t axes[qn_generated_max_rank];
  memcpy(axes, given, count * sizeof *axes);
  if (gen_chance(g, 30)) shuffle(g, axes, count);
  for (uint32_t d = 0; d < count; ++d) {
    const char* word = (d == 0 ? gen_chance(g, 90) : gen_chance(g, 60)) ? "parallel" : "for";
    uint32_t begin = may_begin_later && gen_chance(g, 8) ? 1 + gen_below(g, 3) : 0;
    gen_open(g, gen_text(g, "%s %s in %u..%s", word, axes[d].var, begin, axes[d].extent.text));
  }
}

void gen_form_open(gen_t* g, const gen_axis_t* axes, uint32_t count) {
  open_axes(g, axes, count, false);
}

void gen_form_open_part(gen_t* g, const gen_axis_t* axes, uint32_t count) {
  open_axes(g, axes, count, true);
}

void gen_form_close(gen_t* g, uint32_t count) {
  for (uint32_t d = 0; d < count; ++d) gen_close(g);
}

// ---- the module

static bool is_bound(const gen_t* g, const char* symbol) {
  for (size_t i = 0; i < g->buffer_count; ++i) {
    const gen_buffer_t* buffer = &g->buffers[i];
    if (buffer->param < 0) continue;
    for (uint32_t d = 0; d < buffer->rank; ++d) {
      if (strcmp(buffer->shape[d].text, symbol) == 0) return true;
    }
  }
  return symbol[0] == 's';  // a stride of the input that it was made for
}

void gen_form_module(gen_t* g, const qn_generate_options_t* options) {
  static void (*const makers[])(gen_t*, gen_form_t*) = {
      gen_product, gen_product, gen_product, gen_convolution, gen_attention, gen_memory, gen_ranges,
  };
  gen_form_t form = {.budget = 20000 * (int64_t)options->size};
  g->indent = 1;
  makers[gen_below(g, GEN_COUNT_OF(makers))](g, &form);
  for (size_t i = 0; i < form.symbol_count; ++i) {
    if (is_bound(g, form.symbols[i].text)) continue;
    // Its extent is the symbol, or an equation that gives it.
    bool is_alone = gen_chance(g, 50);
    gen_extent_t extent = gen_form_grow(g, form.symbols[i], is_alone ? 1 : 1 + gen_below(g, 3),
                                        is_alone ? 0 : 1 + gen_below(g, 3));
    (void)gen_form_param(g, "e", QN_ACCESS_IN, QN_DTYPE_U8, &extent, 1);
  }
  memcpy(g->symbols, form.symbols, sizeof form.symbols);
  g->symbol_count = form.symbol_count;
}
