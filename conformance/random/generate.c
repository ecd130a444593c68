// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate.c: random modules: the signature and the order of launches.
//
// Not here: launches (generate_launch.c), statements (generate_stmt.c), expressions
// (generate_expr.c), arguments (generate_args.c). Thread rule: one thread per generator.
#include "conformance/random/generate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "conformance/random/generator.h"

void gen_out_add(gen_out_t* out, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  int size = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  size_t needed = out->size + (size_t)size + 1;
  if (needed > out->capacity) {
    out->capacity = 2 * needed + 4096;
    char* data = realloc(out->data, out->capacity);
    if (!data) abort();
    out->data = data;
  }
  (void)vsnprintf(out->data + out->size, out->capacity - out->size, format, again);
  va_end(again);
  out->size += (size_t)size;
}

static void choose_shape(gen_t* g, gen_buffer_t* buffer) {
  buffer->rank = 1 + gen_below(g, 2);
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    buffer->shape[d] = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  }
}

// Gives a buffer with a shape what a parameter has.
static void describe_param(gen_t* g, gen_buffer_t* buffer, qn_access_t access) {
  qn_generated_t* result = g->result;
  bool has_values = access != QN_ACCESS_OUT;
  buffer->is_readable = has_values;
  buffer->is_writable = access != QN_ACCESS_IN;
  buffer->mag = has_values && conf_is_float(buffer->dtype) ? 4 : 0;
  buffer->param = (int)result->param_count;
  qn_generated_param_t* param = &result->params[result->param_count++];
  *param = (qn_generated_param_t){
      .is_buffer = true, .dtype = buffer->dtype, .access = access, .rank = buffer->rank};
  param->element_count = 1;
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    param->shape[d] = buffer->shape[d].value;
    param->element_count *= (size_t)buffer->shape[d].value;
  }
}

static void add_param(gen_t* g, const char* prefix, qn_access_t access) {
  qn_generated_t* result = g->result;
  bool is_packed = access == QN_ACCESS_IN && result->param_count > 0 && gen_chance(g, 10);
  qn_dtype_t dtype = is_packed ? gen_packed_dtype(g) : gen_buffer_dtype(g);
  gen_buffer_t* buffer = gen_add_buffer(g, prefix, dtype);
  choose_shape(g, buffer);
  if (is_packed) {  // rows are even
    gen_extent_t* last = &buffer->shape[buffer->rank - 1];
    *last =
        (gen_extent_t){gen_text(g, "((%s + 1) // 2 * 2)", last->text), (last->value + 1) / 2 * 2};
  }
  describe_param(g, buffer, access);
}

static void add_shaped_param(gen_t* g, const gen_extent_t* shape, uint32_t rank) {
  gen_buffer_t* buffer = gen_add_buffer(g, "x", gen_buffer_dtype(g));
  buffer->rank = rank;
  memcpy(buffer->shape, shape, rank * sizeof *shape);
  describe_param(g, buffer, QN_ACCESS_IN);
}

static void add_scalar_param(gen_t* g) {
  qn_generated_t* result = g->result;
  qn_dtype_t dtype = gen_dtype(g);
  gen_scalar_t* scalar = gen_add_scalar(g, "z", dtype, 4, 0);
  qn_generated_param_t* param = &result->params[result->param_count++];
  *param = (qn_generated_param_t){.dtype = dtype};
  uint64_t whole = gen_below(g, 1000);
  if (dtype == QN_DTYPE_BOOL) whole = gen_chance(g, 50);
  if (gen_is_float(dtype)) {
    conf_element_set(dtype, &param->scalar_bits, 0, ((double)gen_below(g, 65) - 32) / 8);
  } else {
    conf_bits_set(dtype, &param->scalar_bits, 0, whole);
  }
  scalar->extent = NULL;
}

static void write_signature(gen_t* g) {
  gen_out_add(&g->out, "func f(");
  size_t scalar = 0;
  for (size_t i = 0; i < g->result->param_count; ++i) {
    const qn_generated_param_t* param = &g->result->params[i];
    if (i > 0) gen_out_add(&g->out, ", ");
    if (!param->is_buffer) {
      gen_out_add(&g->out, "%s: %s", g->scalars[scalar].name, qn_dtype_text(param->dtype));
      ++scalar;
      continue;
    }
    static const char* const words[] = {"", "", "out ", "inout "};
    const gen_buffer_t* held = g->buffers;
    while (held->param != (int)i) ++held;
    gen_out_add(&g->out, "%s%s: %s%s", words[param->access], held->name, gen_shape_text(g, held),
                held->strides ? held->strides : "");
  }
  gen_out_add(&g->out, ")%s {\n", g->result->is_fast ? " fast" : "");
}

static void set_tolerances(gen_t* g, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const gen_buffer_t* buffer = &g->buffers[i];
    if (buffer->param < 0) continue;
    g->result->params[buffer->param].tolerance = 4 * buffer->err;
  }
}

// Adds an extent that is a symbol, or of which the symbol is a part: then no shape shows it alone.
static void add_symbol(gen_t* g, const char* name, int64_t value) {
  gen_extent_t symbol = {name, value};
  g->symbols[g->symbol_count++] = symbol;
  if (gen_chance(g, 12)) {  // at most gen_max_columns, to which threads may count
    int64_t least = value > 8 ? value / 4 : value;
    g->symbols[g->symbol_count - 1].value = least;
    uint32_t factor = 1 + gen_below(g, 3),
             plus = factor == 1 ? 1 + gen_below(g, 3) : gen_below(g, 4);
    symbol.text = gen_text(g, "(%u * %s + %u)", factor, name, plus);
    symbol.value = factor * least + plus;
  }
  g->extents[g->extent_count++] = symbol;
}

// Adds an input whose shape gives a symbol of its own, and an extent of that.
static void add_equation(gen_t* g) {
  uint32_t value = 1 + gen_below(g, 20), factor = 1 + gen_below(g, 3), plus = gen_below(g, 3);
  const gen_extent_t* rows = &g->extents[gen_below(g, 2)];
  gen_extent_t shape = {gen_text(g, "(%s + k * %u)", rows->text, factor),
                        rows->value + value * factor};
  if (gen_chance(g, 30)) {
    shape = (gen_extent_t){gen_text(g, "(%s * 30 - k)", rows->text), rows->value * 30 - value};
  }
  add_shaped_param(g, &shape, 1);
  g->symbols[g->symbol_count++] = (gen_extent_t){"k", value};
  g->extents[g->extent_count++] = (gen_extent_t){gen_text(g, "(k + %u)", plus), value + plus};
}

static void make_text(gen_t* g, const qn_generate_options_t* options) {
  qn_generated_t* result = g->result;
  uint32_t large = 1 + gen_below(g, 70), small = 1 + gen_below(g, 9);
  add_symbol(g, "n", gen_chance(g, 50) ? large : small);
  add_symbol(g, "m", 1 + gen_below(g, gen_max_columns));
  g->extents[g->extent_count++] = gen_constant_extent(g, 1 + gen_below(g, 9));
  g->extents[g->extent_count++] = gen_constant_extent(g, 8);
  result->is_fast = options->allows_fast && gen_chance(g, 15);

  // The first one shows both symbols.
  add_shaped_param(g, g->extents, 2);
  if (gen_chance(g, 25)) add_equation(g);
  uint32_t inputs = 1 + gen_below(g, 3), outputs = 1 + gen_below(g, 3);
  for (uint32_t i = 0; i < inputs; ++i) add_param(g, "x", QN_ACCESS_IN);
  if (gen_chance(g, 60)) add_scalar_param(g);
  for (uint32_t i = 0; i < outputs; ++i) {
    add_param(g, "y", gen_chance(g, 30) ? QN_ACCESS_INOUT : QN_ACCESS_OUT);
  }
  write_signature(g);
  g->indent = 1;
  if (gen_chance(g, 40)) {  // workspace
    gen_buffer_t* work = gen_add_buffer(g, "g", gen_buffer_dtype(g));
    choose_shape(g, work);
    work->is_writable = true;
    gen_line(g, "alloc %s: %s in global;", work->name, gen_shape_text(g, work));
  }
  // Every output is written at least once, workspace first.
  size_t fixed = g->buffer_count;
  uint32_t extra = gen_below(g, options->size + 1);
  for (size_t i = fixed; i-- > 0;) {
    bool is_output = g->buffers[i].is_writable;
    if (is_output && (!g->buffers[i].is_readable || i + 1 == fixed)) {
      gen_launch(g, &g->buffers[i], options);
    }
  }
  for (uint32_t i = 0; i < extra; ++i) {
    gen_buffer_t* target = &g->buffers[gen_below(g, (uint32_t)fixed)];
    if (target->is_writable) gen_launch(g, target, options);
  }
  gen_out_add(&g->out, "}\n");
  set_tolerances(g, fixed);
}

// The body shows which parameters there are, so it is written before the signature.
static void make_form(gen_t* g, const qn_generate_options_t* options) {
  g->result->is_form = true;
  g->result->is_fast = options->allows_fast && gen_chance(g, 10);
  gen_form_module(g, options);
  gen_out_t body = g->out;
  g->out = (gen_out_t){0};
  write_signature(g);
  gen_out_add(&g->out, "%s}\n", body.data);
  free(body.data);
  set_tolerances(g, g->buffer_count);
}

// Symbols are numbered in the order of the parameters that show them.
static void order_symbols(const gen_t* g, qn_generated_t* generated) {
  for (size_t i = 0; i < qn_module_function_symbol_count(generated->module, 0); ++i) {
    const char* name = qn_module_symbol_name(generated->module, 0, i);
    for (size_t k = 0; k < g->symbol_count; ++k) {
      if (strcmp(name, g->symbols[k].text) == 0) {
        generated->symbols[i] = g->symbols[k].value;
      }
    }
  }
}

bool qn_generate(uint64_t seed, const qn_generate_options_t* options, qn_generated_t* out,
                 qn_status_t* out_error) {
  *out = (qn_generated_t){.seed = seed};
  *out_error = QN_OK;
  gen_t* g = calloc(1, sizeof *g);
  if (!g || !(g->pool = malloc(gen_pool_bytes))) abort();
  g->state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
  g->result = out;
  g->allows_faults = options->allows_faults;
  if (options->is_form) {
    make_form(g, options);
  } else {
    make_text(g, options);
  }
  if (g->callees.size > 0) gen_out_add(&g->out, "%s", g->callees.data);
  free(g->callees.data);
  out->text = g->out.data;
  out->text_size = g->out.size;
  *out_error = qn_module_parse(out->text, out->text_size, NULL, &out->module);
  if (out->module) order_symbols(g, out);
  free(g->pool);
  free(g);
  return qn_ok(*out_error);
}

void qn_generated_release(qn_generated_t* generated) {
  qn_module_release(generated->module);
  free(generated->text);
  *generated = (qn_generated_t){0};
}
