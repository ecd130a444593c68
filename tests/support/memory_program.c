// SPDX-License-Identifier: Apache-2.0
// tests/support/memory_program.c: see memory_program.h.
#include "tests/support/memory_program.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/random.h"

typedef struct maker {
  uint64_t state;
  memory_program_t* program;
  size_t size;
} maker_t;

static QN_PRINTF(2, 3) void put(maker_t* m, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = sizeof m->program->text - m->size;
  int size = vsnprintf(m->program->text + m->size, room, format, arguments);
  va_end(arguments);
  if (size < 0 || (size_t)size >= room) abort();
  m->size += (size_t)size;
}

static uint32_t below(maker_t* m, uint32_t count) {
  return (uint32_t)((random_next(&m->state) >> 33) % count);
}

#define PICK(m, ...)      \
  ((const char* const[]){ \
      __VA_ARGS__})[below(m, sizeof((const char* const[]){__VA_ARGS__}) / sizeof(const char*))]

static const char* dtype(maker_t* m) {
  return PICK(m, "f32", "f32", "f32", "f64", "f16", "bf16", "i8", "u8", "i16", "i32", "i64");
}

// ---- columns

// A sum, or another reduction, down column j. `extra` is a value to subtract, or "".
static void reduction(maker_t* m, const char* type, const char* batch, const char* extra) {
  const char* from = PICK(m, "0", "0", "0", "1", "n // 2");
  const char* to = PICK(m, "n", "n", "n", "n - 1", "min(n, 40)");
  put(m, "%s i in %s..%s { ", PICK(m, "sum", "sum", "max", "min"), from, to);
  bool has_let = below(m, 2) == 0;
  if (has_let) put(m, "let x = %s(a[%si, j]); ", type, batch);
  char value[64];
  (void)snprintf(value, sizeof value, has_let ? "x" : "%s(a[%si, j])", type, batch);
  switch (below(m, 4)) {
    case 0:
      put(m, "%s * %s(2)", value, type);
      break;
    case 1:
      put(m, "max(%s, %s(1))", value, type);
      break;
    default:
      put(m, "%s", value);
      break;
  }
  if (*extra && below(m, 2) == 0) put(m, " - %s", extra);
  put(m, " }");
}

static void columns(maker_t* m) {
  const char* type = PICK(m, "f32", "f32", "f64", "i32", "i64", "i8", "u16");
  bool is_float = *type == 'f';
  bool has_batch = below(m, 3) == 0;
  const char* batch = has_batch ? "u, " : "";
  const char* z = has_batch ? "z, " : "";
  const char* narrow = is_float ? PICK(m, "f32", "f16", "bf16", "i8", "i32") : type;
  put(m, "func f(a: %s[%sn, m], out b: %s[%sn, m], out c: %s[%sm], inout d: %s[%sm]) {\n", narrow,
      z, type, z, type, z, type, z);
  if (has_batch) put(m, "%s u in 0..z {\n", PICK(m, "parallel", "for"));
  put(m, "%s j in %s..%s {\n", PICK(m, "parallel", "parallel", "for"), PICK(m, "0", "0", "3"),
      PICK(m, "m", "m", "m - 1"));
  const char* extra = "";
  if (below(m, 2)) {
    put(m, "let first = ");
    reduction(m, type, batch, "");
    put(m, ";\n");
    extra = "first";
  }
  if (below(m, 3) == 0) {
    put(m, "let old = d[%sj];\n", batch);
    if (!*extra) extra = "old";
  }
  if (below(m, 2)) {
    put(m, "let second = ");
    reduction(m, type, batch, extra);
    put(m, " + %s(1);\n", type);
    extra = "second";
  }
  if (below(m, 2)) {
    put(m, "c[%sj] = (", batch);
    reduction(m, type, batch, extra);
    put(m, ") + ");
    reduction(m, type, batch, extra);
    put(m, ";\n");
  }
  if (below(m, 3) == 0) {
    put(m, "if %s { d[%sj] = %s; }\n", PICK(m, "j % 3 == 1", "j > m // 2", "n > 3"), batch,
        *extra ? extra : "1");
  }
  switch (below(m, 4)) {
    case 0:
      put(m, "for i in 0..n { b[%si, j] = %s(a[%si, j]) - %s; }\n", batch, type, batch,
          *extra ? extra : "1");
      break;
    case 1:
      put(m, "alloc s: %s[2] in local;\ns[0] = 0; s[1] = 1;\n", type);
      put(m, "for i in 0..n { s[0] = s[0] + %s(a[%si, j]); s[1] = max(s[1], s[0]);\n", type, batch);
      put(m, "b[%si, j] = s[%s]; }\n", batch, PICK(m, "0", "1", "i % 2"));
      break;
    case 2:
      put(m, "for i in 1..n { let w = %s(a[%si - 1, j]); if w > %s(0) {\n", type, batch, type);
      put(m, "b[%si, j] = w; } else { b[%si, j] = %s; } }\n", batch, batch, *extra ? extra : "2");
      break;
    default:
      break;
  }
  put(m, "d[%sj] = d[%sj] + %s;\n", batch, batch, *extra ? extra : "1");
  put(m, "}\n%s}\n", has_batch ? "}\n" : "");
}

// ---- permutations, slices and concatenations

static const char* const names[] = {"i", "j", "p", "u"};
static const char* const extents[] = {"n", "m", "k", "z"};

static void shuffle(maker_t* m, uint32_t count, uint32_t* order) {
  for (uint32_t i = 0; i < count; ++i) order[i] = i;
  for (uint32_t i = count; i > 1; --i) {
    uint32_t other = below(m, i);
    uint32_t kept = order[i - 1];
    order[i - 1] = order[other];
    order[other] = kept;
  }
}

static void list(maker_t* m, const char* const* words, const uint32_t* order, uint32_t count) {
  for (uint32_t d = 0; d < count; ++d) put(m, "%s%s", d ? ", " : "", words[order[d]]);
}

static void permutation(maker_t* m) {
  uint32_t rank = 2 + below(m, 3), in[4], out[4], loops[4];
  shuffle(m, rank, in);
  shuffle(m, rank, out);
  shuffle(m, rank, loops);
  const char* to = dtype(m);
  const char* from = below(m, 2) ? to : dtype(m);
  put(m, "func f(a: %s[", from);
  list(m, extents, in, rank);
  put(m, "], c: %s[", to);
  list(m, extents, out, rank);
  put(m, "], out b: %s[", to);
  list(m, extents, out, rank);
  put(m, "]) {\n");
  for (uint32_t d = 0; d < rank; ++d) {
    put(m, "%s %s_ in %s..%s {\n", PICK(m, "parallel", "parallel", "for"), names[loops[d]],
        PICK(m, "0", "0", "0", "2"), extents[loops[d]]);
  }
  for (uint32_t d = 0; d < rank; ++d) put(m, "let %s = %s_;\n", names[loops[d]], names[loops[d]]);
  put(m, "let x = %s(a[", to);
  list(m, names, in, rank);
  put(m, "]);\n");
  bool has_if = below(m, 4) == 0;
  if (has_if) put(m, "if i >= j {\n");
  put(m, "b[");
  list(m, names, out, rank);
  put(m, "] = x%s", PICK(m, "", "", " * 2", " + 1"));
  if (below(m, 3) == 0) {
    put(m, " + c[");
    list(m, names, out, rank);
    put(m, "]");
  }
  put(m, ";\n%s", has_if ? "}\n" : "");
  for (uint32_t d = 0; d < rank; ++d) put(m, "}");
  put(m, "\n}\n");
}

static void concatenation(maker_t* m) {
  const char* type = dtype(m);
  put(m, "func f(a: %s[n, m], b: %s[n, k], out c: %s[n, m + k + 2], out d: %s[m, 2, n]) {\n", type,
      type, type, type);
  put(m, "parallel i in 0..n {\n");
  put(m, "for j in 0..m { c[i, j] = a[i, j]; d[j, 1, i] = a[i, j]; }\n");
  put(m, "for j in 0..k { c[i, m + j + %u] = b[i, j]; }\n", below(m, 3));
  put(m, "}\n");
  put(m, "%s j in 0..m { %s i in 0..n { d[j, 0, i] = a[i, m - 1 - j]; } }\n",
      PICK(m, "parallel", "for"), PICK(m, "parallel", "for"));
  put(m, "parallel j in 0..k { for i in 0..n { c[i, j] = b[i, j] * 2; } }\n}\n");
}

// ---- rows that share matrices

// A row's products with `b`, something of them all, and their products with `c`.
static void rows(maker_t* m) {
  const char* type = PICK(m, "f32", "f32", "f64", "i32", "i64");
  const char* narrow = *type == 'f' ? PICK(m, "f32", "f16", "bf16", type) : type;
  bool has_batch = below(m, 3) == 0;
  const char* batch = has_batch ? "u, " : "";
  const char* z = has_batch ? "z, " : "";
  put(m, "func f(a: %s[%sn, k], b: %s[%sm, k], c: %s[m, k], inout d: %s[%sn, k], ", type, z, narrow,
      z, type, type, z);
  put(m, "out e: %s[%sn]) {\n", type, z);
  if (has_batch) put(m, "%s u in 0..z {\n", PICK(m, "parallel", "for"));
  put(m, "%s i in %s..%s {\n", PICK(m, "parallel", "parallel", "for"), PICK(m, "0", "0", "2"),
      PICK(m, "n", "n", "n - 1"));
  put(m, "alloc p: %s[1100] in local;\n", type);
  const char* end = PICK(m, "m", "m", "m", "min(i + 1, m)", "m // 2");
  put(m, "for j in 0..%s { p[j] = %s(sum t in 0..k { a[%si, t] * %s(b[%sj, t]) })%s; }\n", end,
      PICK(m, "", "", "", "j > i ? 1 : "), batch, type, batch, PICK(m, "", " * 2", " + 1"));
  if (below(m, 6) == 0) put(m, "if i %% 3 == 0 { for j in 0..%s { p[j] = p[j] + 1; } }\n", end);
  put(m, "let top = max j in 0..%s { p[j] };\n", end);
  put(m, "for j in 0..%s { p[j] = min(max(%s, -2), 2); }\n", end,
      PICK(m, "p[j]", "p[j] - top", "p[j] > top - 2 ? p[j] : 1"));
  bool has_total = below(m, 2) == 0;
  if (has_total) put(m, "let total = sum j in 0..%s { p[j] };\n", end);
  put(m, "for t in 0..k { d[%si, t] = ", batch);
  if (below(m, 2)) put(m, "d[%si, t] + ", batch);
  put(m, "(sum j in 0..%s { p[j] * c[j, t] })%s; }\n", end, has_total ? " + total" : "");
  put(m, "e[%si] = %s;\n}\n%s}\n", batch, has_total ? "total" : "1", has_batch ? "}\n" : "");
}

// ---- programs

void memory_program_init(uint64_t seed, memory_program_t* out) {
  *out = (memory_program_t){.seed = seed};
  maker_t m = {.state = seed * 0x9E3779B97F4A7C15U + 1, .program = out};
  uint32_t form = below(&m, 7);
  if (form < 2) {
    columns(&m);
  } else if (form > 4) {
    rows(&m);
  } else if (form < 4) {
    permutation(&m);
  } else {
    concatenation(&m);
  }
  qn_status_t status = qn_module_parse(out->text, strlen(out->text), NULL, &out->module);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "seed %llu\n%s%s\n", (unsigned long long)seed, out->text,
                  qn_status_message(status));
    abort();
  }
  static const int64_t shapes[][4] = {
      // n, m, k, z
      {5, 600, 3, 2},  {17, 33, 16, 2}, {40, 37, 5, 3}, {1, 1, 1, 1},    {0, 40, 4, 2},
      {16, 16, 16, 3}, {3, 1100, 1, 1}, {33, 64, 2, 3}, {65, 7, 18, 1},  {20, 0, 3, 2},
      {9, 48, 17, 2},  {64, 64, 1, 3},  {2, 2, 33, 3},  {17, 270, 1, 1}, {70, 35, 2, 1},
      {4, 16, 64, 2},  {300, 20, 1, 1}, {32, 31, 8, 2},
  };
  const int64_t* shape = shapes[below(&m, QN_COUNT_OF(shapes))];
  const qn__ir_func_t* function = out->module->functions[0];
  for (size_t i = 0; i < function->symbol_count; ++i) {
    static const char letters[] = "nmkz";
    const char* name = strchr(letters, function->symbols[i]->name[0]);
    if (!name || i >= QN_COUNT_OF(out->symbols)) abort();
    out->symbols[i] = shape[name - letters];
  }
}

void memory_program_deinit(memory_program_t* program) {
  qn_module_release(program->module);
}

void memory_args_init(const memory_program_t* program, memory_args_t* out) {
  const qn__ir_func_t* function = program->module->functions[0];
  *out = (memory_args_t){{NULL}, {0}};
  for (size_t p = 0; p < function->param_count; ++p) {
    const qn__ir_buffer_t* buffer = function->params[p].buffer;
    size_t size = qn_dtype_size_bytes(buffer->dtype);
    if (posix_memalign((void**)&out->data[p], 64, memory_program_bytes) != 0) abort();
    for (size_t i = 0; i < memory_program_bytes / size; ++i) {
      size_t at = (i * 7 + i / 61 + p * 5 + program->seed) % 23;
      qn__ir_scalar_t value = {.i = (int64_t)at - 11};
      if (qn__dtype_is_float(buffer->dtype)) value.f = (double)value.i * 0.25;
      uint64_t bits = qn__scalar_to_bits(buffer->dtype, value);
      memcpy(out->data[p] + i * size, &bits, size);
    }
    out->words[p] = (uint64_t)(uintptr_t)out->data[p];
  }
  for (size_t i = 0; i < function->symbol_count; ++i) {
    out->words[function->param_count + i] = (uint64_t)program->symbols[i];
  }
}

void memory_args_deinit(memory_args_t* args) {
  for (size_t p = 0; p < memory_program_params; ++p) free(args->data[p]);
}

static bool is_near(qn_dtype_t dtype, uint64_t a, uint64_t b) {
  if (a == b) return true;
  if (!qn__dtype_is_float(dtype)) return false;
  double x = qn__scalar_from_bits(dtype, a).f, y = qn__scalar_from_bits(dtype, b).f;
  return x == y || fabs(x - y) <= 1e-6 * fmax(1, fabs(x));
}

const char* memory_args_compare(const memory_program_t* program, const memory_args_t* a,
                                const memory_args_t* b, size_t* out_index) {
  const qn__ir_func_t* function = program->module->functions[0];
  for (size_t p = 0; p < function->param_count; ++p) {
    const qn__ir_buffer_t* buffer = function->params[p].buffer;
    size_t size = qn_dtype_size_bytes(buffer->dtype);
    for (*out_index = 0; *out_index < memory_program_bytes / size; ++*out_index) {
      uint64_t x = 0, y = 0;
      memcpy(&x, a->data[p] + *out_index * size, size);
      memcpy(&y, b->data[p] + *out_index * size, size);
      if (!is_near(buffer->dtype, x, y)) return buffer->name;
    }
  }
  return NULL;
}
