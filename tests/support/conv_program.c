// SPDX-License-Identifier: Apache-2.0
// tests/support/conv_program.c: see conv_program.h.
#include "tests/support/conv_program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/random.h"

// The extents, and their names where they are symbols.
typedef enum extent { N, CO, CI, KH, KW, OH, OW, H, W, EXTENTS } extent_t;
static const char* const names[EXTENTS] = {"n", "co", "ci", "kh", "kw", "oh", "ow", "h", "w"};

typedef struct maker {
  uint64_t state;
  memory_program_t* program;
  size_t size;
  int64_t extents[EXTENTS];
  char shown[EXTENTS][12];
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

#define PICK(m, type, ...) \
  ((const type[]){__VA_ARGS__})[below(m, sizeof((const type[]){__VA_ARGS__}) / sizeof(type))]

typedef struct step {
  const char* var;
  extent_t extent;
} step_t;

static void shuffle(maker_t* m, step_t* steps, uint32_t count) {
  for (uint32_t i = count; i > 1; --i) {
    uint32_t other = below(m, i);
    step_t step = steps[i - 1];
    steps[i - 1] = steps[other];
    steps[other] = step;
  }
}

static void buffer(maker_t* m, const char* head, const char* dtype, const extent_t* dims,
                   uint32_t rank) {
  put(m, "%s: %s[", head, dtype);
  for (uint32_t d = 0; d < rank; ++d) put(m, "%s%s", d > 0 ? ", " : "", m->shown[dims[d]]);
  put(m, "], ");
}

typedef struct layout {
  extent_t x[4], k[4], y[4];
  const char *x_at, *clamped_at, *k_at, *y_at;
  step_t loops[4];
} layout_t;

// The formats of the images and of the weights.
static const layout_t layouts[] = {
    {{N, CI, H, W},
     {CO, CI, KH, KW},
     {N, CO, OH, OW},
     "b, c, r, s",
     "b, c, rr, ss",
     "o, c, p, q",
     "b, o, i, j",
     {{"b", N}, {"o", CO}, {"i", OH}, {"j", OW}}},
    {{N, H, W, CI},
     {KH, KW, CI, CO},
     {N, OH, OW, CO},
     "b, r, s, c",
     "b, rr, ss, c",
     "p, q, c, o",
     "b, i, j, o",
     {{"b", N}, {"i", OH}, {"j", OW}, {"o", CO}}},
    {{N, H, W, CI},
     {CO, KH, KW, CI},
     {N, OH, OW, CO},
     "b, r, s, c",
     "b, rr, ss, c",
     "o, p, q, c",
     "b, i, j, o",
     {{"b", N}, {"i", OH}, {"j", OW}, {"o", CO}}},
};

static void body(maker_t* m, const layout_t* layout, bool has_casts, int64_t pad) {
  const char* open = has_casts ? "f32(" : "";
  const char* close = has_casts ? ")" : "";
  char condition[96], x[48], clamped[48], k[48];
  (void)snprintf(condition, sizeof condition, "r >= 0 && r < %s && %s && %s > s", m->shown[H],
                 below(m, 2) == 0 ? "s >= 0" : "0 <= s", m->shown[W]);
  (void)snprintf(x, sizeof x, "%sx[%s]%s", open, layout->x_at, close);
  (void)snprintf(clamped, sizeof clamped, "%sx[%s]%s", open, layout->clamped_at, close);
  (void)snprintf(k, sizeof k, "%sk[%s]%s", open, layout->k_at, close);
  switch (pad == 0 ? 4 : below(m, 4)) {
    case 0:
      put(m, "let v = %s ? %s : 0.0; v * %s", condition, x, k);
      break;
    case 1:
      put(m, "%s ? %s * %s : 0.0", condition, x, k);
      break;
    case 2:
      put(m, "let rr = max(min(r, %s - 1), 0); let ss = max(min(s, %s - 1), 0); ", m->shown[H],
          m->shown[W]);
      put(m, "%s * select(%s, %s, 0.0)", k, condition, clamped);
      break;
    case 3:
      put(m, "(%s ? %s : 0.0) * %s", condition, x, k);
      break;
    default:
      put(m, "%s * %s", x, k);
      break;
  }
}

static void write(maker_t* m) {
  const layout_t* layout = &layouts[below(m, sizeof layouts / sizeof layouts[0])];
  bool has_casts = below(m, 5) == 0;
  const char* dtype = has_casts ? "f16" : "f32";
  int64_t* extents = m->extents;
  int64_t stride = PICK(m, int64_t, 1, 1, 2, 3);
  int64_t dilation = PICK(m, int64_t, 1, 1, 2);
  int64_t pad = PICK(m, int64_t, 0, 1, 1, 2);
  extents[N] = PICK(m, int64_t, 1, 1, 2);
  extents[CO] = PICK(m, int64_t, 1, 3, 8, 17, 40);
  extents[CI] = PICK(m, int64_t, 1, 3, 8, 20);
  extents[KH] = PICK(m, int64_t, 1, 3, 3, 5);
  extents[KW] = PICK(m, int64_t, 1, 3, 3, 2);
  extents[OH] = PICK(m, int64_t, 1, 2, 7, 11);
  extents[OW] = PICK(m, int64_t, 1, 5, 7, 8, 19, 33);
  int64_t height = (extents[OH] - 1) * stride + dilation * (extents[KH] - 1) + 1;
  int64_t width = (extents[OW] - 1) * stride + dilation * (extents[KW] - 1) + 1;
  // Too small an image for its padding has none.
  if (height <= 2 * pad || width <= 2 * pad) pad = 0;
  extents[H] = height - 2 * pad;
  extents[W] = width - 2 * pad;
  // All buffers have memory_program_bytes.
  if (extents[H] * extents[W] * extents[CI] > 8000) extents[CI] = 1;
  if (extents[CO] * extents[CI] > 500) extents[CO] = 3;
  bool is_symbolic = below(m, 2) == 0;
  if (is_symbolic && below(m, 6) == 0) extents[PICK(m, extent_t, N, CO, CI, KH, OH, OW)] = 0;
  for (uint32_t e = 0; e < EXTENTS; ++e) {
    bool is_name = is_symbolic && (e != KH || extents[e] == 0);
    (void)snprintf(m->shown[e], sizeof m->shown[e], is_name ? "%s" : "%.0s%lld", names[e],
                   (long long)extents[e]);
  }
  put(m, "func f(");
  buffer(m, "x", dtype, layout->x, 4);
  buffer(m, "k", dtype, layout->k, 4);
  buffer(m, "bias", "f32", (const extent_t[]){CO}, 1);
  buffer(m, "out y", "f32", layout->y, 4);
  put(m, ") {\n");
  step_t loops[4];
  memcpy(loops, layout->loops, sizeof loops);
  if (below(m, 4) == 0) shuffle(m, loops, 4);
  for (uint32_t d = 0; d < 4; ++d) {
    put(m, "parallel %s in 0..%s {\n", loops[d].var, m->shown[loops[d].extent]);
  }
  step_t steps[3] = {{"c", CI}, {"p", KH}, {"q", KW}};
  shuffle(m, steps, 3);
  const char* kind = PICK(m, char* const, "sum", "sum", "sum", "max");
  put(m, "y[%s] = max(bias[o], ", layout->y_at);
  bool has_let = below(m, 4) == 0;
  for (uint32_t k = 0; k < 3; ++k) {
    put(m, "%s%s %s in 0..%s { ", has_let && k == 1 ? "let t = " : "", kind, steps[k].var,
        m->shown[steps[k].extent]);
  }
  put(m, "let r = i * %lld + p * %lld - %lld; let s = %lld * j + q * %lld - %lld; ",
      (long long)stride, (long long)dilation, (long long)pad, (long long)stride,
      (long long)dilation, (long long)pad);
  body(m, layout, has_casts, pad);
  put(m, " } }%s });\n}}}}\n}\n", has_let ? "; t" : "");
}

void conv_program_init(uint64_t seed, memory_program_t* out) {
  *out = (memory_program_t){.seed = seed};
  maker_t m = {.state = seed * 0x9E3779B97F4A7C15U + 7, .program = out};
  write(&m);
  qn_status_t status = qn_module_parse(out->text, strlen(out->text), NULL, &out->module);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "seed %llu\n%s%s\n", (unsigned long long)seed, out->text,
                  qn_status_message(status));
    abort();
  }
  const qn__ir_func_t* function = out->module->functions[0];
  if (function->symbol_count > sizeof out->symbols / sizeof *out->symbols) abort();
  for (size_t i = 0; i < function->symbol_count; ++i) {
    for (uint32_t e = 0; e < EXTENTS; ++e) {
      if (strcmp(function->symbols[i]->name, names[e]) == 0) out->symbols[i] = m.extents[e];
    }
  }
}
