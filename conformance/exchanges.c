// SPDX-License-Identifier: Apache-2.0
// conformance/exchanges.c: shuffles, and reductions of warps and blocks, at the target's warp size.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/program.h"
#include "quern/target.h"

static const struct {
  const char* feature;
  const char* expression;  // of v and t (the thread)
} case_ops[] = {
    {"shuffle", "shuffle(v, (t * 5 + 1) % warp_size())"},
    {"shuffle_up", "shuffle_up(v, 1)"},
    {"shuffle_down", "shuffle_down(v, 2)"},
    {"shuffle_xor", "shuffle_xor(v, 1)"},
    {"warp_sum", "warp_sum(v)"},
    {"warp_min", "warp_min(v)"},
    {"warp_max", "warp_max(v)"},
    {"block_sum", "block_sum(v)"},
    {"block_min", "block_min(v)"},
    {"block_max", "block_max(v)"},
};
static const char* const case_dtypes[] = {"i32", "u32", "i64", "f32", "f64", "f16", "i8", "bool"};

// Makes the target of the run with another warp size, without the device's shuffles, which have
// only its own. NULL where the size is fixed.
static qn_target_t* with_warp_size(conf_t* c, int width) {
  static const char name[] = "\"warp_size\":";
  const char* json = qn_target_json(c->target);
  const char* at = strstr(json, name);
  const char* end = at ? at + strlen(name) + strspn(at + strlen(name), "0123456789") : NULL;
  size_t size = strlen(json) + 16;
  char* text = at ? malloc(size) : NULL;
  if (!text) return NULL;
  (void)snprintf(text, size, "%.*s%s%d%s", (int)(at - json), json, name, width, end);
  char* shuffles = strstr(text, "\"supports_subgroup_shuffle\":true");
  if (shuffles) {
    char* value = strchr(shuffles, ':') + 1;
    memmove(value + 5, value + 4, strlen(value + 4) + 1);
    memcpy(value, "false", 5);
  }
  qn_target_t* target = NULL;
  (void)qn_status_consume(qn_target_parse(text, &target));
  free(text);
  return target;
}

static void run_width(conf_t* c, conf_rows_t* rows, int width) {
  // The values of two and a half warps go into the result.
  int threads = 2 * width + width / 2 + 1;
  const char* text =
      conf_rows_text(rows,
                     "func ex_width(x: i32[n, %d], out y: i32[n, %d]) { block.x b in 0..n {\n"
                     "  thread.x t in 0..%d { let v = x[b, t]; let W = warp_size();\n"
                     "    let at = shuffle(v, (t * 5 + 1) %% W); let up = shuffle_up(v, 1 %% W);\n"
                     "    let down = shuffle_down(v, 3 %% W); let other = shuffle_xor(v, W // 2);\n"
                     "    let sum = warp_sum(v); let most = warp_max(v); let all = block_sum(v);\n"
                     "    y[b, t] = at + up * 3 + down * 5 + other * 7 + sum * 11 + most * 13 +\n"
                     "      all * 17 + i32(W) * 1001; } } }",
                     threads, threads, threads);
  const conf_program_t program = {
      .feature = "warps of any width",
      .variant = conf_rows_text(rows, "%d", width),
      .text = text,
      .args = conf_rows_text(rows, "rand:3x%d junk:3x%d", threads, threads)};
  if (conf_is_listing(c) || c->warp_size == width) {
    conf_programs(c, &program, 1);
    return;
  }
  qn_target_t* target = with_warp_size(c, width);
  if (!target) {
    if (!conf_begin(c, program.feature, program.variant)) return;
    conf_unsupported(c, "its warps have %d threads", (int)c->warp_size);
    conf_end(c);
    return;
  }
  qn_target_t* own_target = c->target;
  qn_target_t* own_oracle = c->oracle;
  const char* oracle = conf_rows_text(rows, "interp -warp_size=%d", width);
  if (qn_status_consume(qn_target_parse(oracle, &c->oracle)) == QN_STATUS_OK) {
    c->target = target;
    conf_programs(c, &program, 1);
    qn_target_release(c->oracle);
  }
  c->target = own_target;
  c->oracle = own_oracle;
  qn_target_release(target);
}

// Checks that a function can require a warp size, and that other sizes are refused before it runs.
static void requirement(conf_t* c) {
  static const char plain[] =
      "func ex_width(out y: i64[n]) { parallel i in 0..n { y[i] = warp_size(); } }";
  qn_function_t* width_of = conf_function(c, plain, "ex_width", false);
  if (!width_of) return;  // a target without warps
  int width = (int)c->warp_size;
  char text[256], parts[96];
  (void)snprintf(text, sizeof text,
                 "func ex_required(x: i32[n], out y: i32[n]) {\n"
                 "  assert warp_size() == %d, \"made for other warps\";\n"
                 "  parallel i in 0..n { y[i] = x[i]; } }",
                 width + 1);
  (void)snprintf(parts, sizeof parts,
                 "'ex_required' requires warp_size() == %d: made for other,warps of %d threads",
                 width + 1, width);
  qn_module_t* module = conf_module(c, text);
  if (!module) return;
  qn_lookup_options_t options = {.struct_size = sizeof options, .tier = c->options.tier};
  qn_function_t* function = NULL;
  qn_status_t status =
      qn_engine_function(c->engine, module, c->target, "ex_required", &options, NULL, &function);
  conf_expect(c, status, QN_STATUS_UNSUPPORTED, parts);
  qn_function_release(function);
}

// Checks that a checked build traps a lane beyond the warp.
static void add_beyond(conf_rows_t* rows, int threads) {
  static const struct {
    const char* op;
    int warps;  // the distance
  } cases[] = {
      {"shuffle", 1},       {"shuffle", -1},     {"shuffle_up", 1},
      {"shuffle_down", -1}, {"shuffle_down", 2}, {"shuffle_xor", 1},
  };
  for (int i = 0; i < (int)CONF_COUNT_OF(cases); i++) {
    const char* text =
        conf_rows_text(rows,
                       "func ex_beyond_%d(x: i32[n, %d], out y: i32[n, %d], k: i32) {\n"
                       "  block.x b in 0..n { thread.x t in 0..%d {\n"
                       "    let v = %s(x[b, t], i64(k) * warp_size()); y[b, t] = v; } } }",
                       i, threads, threads, threads, cases[i].op);
    const char* args =
        conf_rows_text(rows, "rand:2x%d junk:2x%d %d", threads, threads, cases[i].warps);
    conf_program_t* row = conf_rows_add(rows, "lane beyond the warp", cases[i].op, text, args);
    row->is_checked = true;
    row->code = QN_STATUS_ASSERTION;
    row->parts = "reaches beyond its warp";
  }
}

static void add_exchanges(conf_rows_t* rows, int threads) {
  for (size_t o = 0; o < CONF_COUNT_OF(case_ops); o++) {
    for (size_t d = 0; d < CONF_COUNT_OF(case_dtypes); d++) {
      const char* dtype = case_dtypes[d];
      bool is_bool = dtype[0] == 'b';
      if (is_bool && o > 3) continue;
      const char* text =
          conf_rows_text(rows,
                         "func ex_%s_%s(x: %s[n, %d], out y: %s[n, %d]) { block.x b in 0..n {\n"
                         "  thread.x t in 0..%d { let v = x[b, t]; let r = %s; y[b, t] = r; } } }",
                         case_ops[o].feature, dtype, dtype, threads, dtype, threads, threads,
                         case_ops[o].expression);
      const char* args =
          conf_rows_text(rows, "%s:3x%d junk:3x%d", is_bool ? "rand" : "below7", threads, threads);
      conf_rows_add(rows, case_ops[o].feature, dtype, text, args);
    }
  }
}

// Adds blocks that are no multiple of a warp, blocks of two dimensions, and an exchange in a loop.
static void add_blocks(conf_rows_t* rows, int warp, int threads) {
  int odd = warp > 1 ? warp + warp / 2 + 1 : 3;
  const char* text =
      conf_rows_text(rows,
                     "func ex_odd(x: i32[n, %d], out y: i32[n, %d]) { block.x b in 0..n {\n"
                     "  thread.x t in 0..%d { let v = x[b, t]; let s = block_sum(v);\n"
                     "    let m = warp_max(v); y[b, t] = s * 100 + m; } } }",
                     odd, odd, odd);
  const char* args = conf_rows_text(rows, "rand:3x%d junk:3x%d", odd, odd);
  conf_rows_add(rows, "blocks of part of a warp", NULL, text, args);
  text = conf_rows_text(rows,
                        "func ex_flat(x: i32[n, 4, %d], out y: i32[n, 4, %d]) {\n"
                        "  block.x b in 0..n { thread.y u in 0..4 { thread.x t in 0..%d {\n"
                        "    let v = x[b, u, t]; let s = warp_sum(v); let w = shuffle_up(v, 1);\n"
                        "    y[b, u, t] = s * 100 + w; } } } }",
                        warp, warp, warp);
  args = conf_rows_text(rows, "rand:3x4x%d junk:3x4x%d", warp, warp);
  conf_rows_add(rows, "blocks of two dimensions", NULL, text, args);
  text = conf_rows_text(rows,
                        "func ex_loop(x: i32[n, %d], out y: i32[n, %d]) { block.x b in 0..n {\n"
                        "  thread.x t in 0..%d { alloc a: i32[1] in local; a[0] = x[b, t];\n"
                        "    for k in 0..3 { let o = shuffle_xor(a[0], 1); a[0] = a[0] * 2 + o; }\n"
                        "    y[b, t] = a[0]; } } }",
                        threads, threads, threads);
  args = conf_rows_text(rows, "rand:3x%d junk:3x%d", threads, threads);
  conf_rows_add(rows, "exchanges in a loop", NULL, text, args);
}

// Reductions over some axes of blocks of `a` by `b` threads.
#define AXES(a, b)                                                                               \
  {.feature = "reductions over thread axes",                                                     \
   .variant = #a " by " #b,                                                                      \
   .text = "func ex_axes_" #a "_" #b "(x: i32[n, " #b ", " #a "], out y: i32[n, " #b ", " #a     \
           "]) {\n"                                                                              \
           "  block.x k in 0..n { thread.y r in 0.." #b " { thread.x t in 0.." #a                \
           " {\n"                                                                                \
           "    let v = x[k, r, t];\n"                                                           \
           "    let s = axis_sum(v, thread.x); let w = axis_max(v, thread.y);\n"                 \
           "    let f = axis_sum(f32(v % 64), thread.y);\n"                                      \
           "    y[k, r, t] = s + w * 3 + i32(f) * 5 + axis_min(s, thread.x, thread.y); } } } }", \
   .args = "bits:3x" #b "x" #a " junk:3x" #b "x" #a}
static const conf_program_t axes[] = {
    AXES(32, 4),
    AXES(8, 16),
    AXES(5, 7),
    AXES(2, 100),
    AXES(64, 3),
    AXES(100, 2),
    {.feature = "reductions over thread axes",
     .variant = "three axes",
     .text =
         "func ex_axes_three(x: i32[n, 6, 4, 8], q: i32, out y: i32[n, 6, 4, 8]) {\n"
         "  block.x k in 0..n { thread.z u in 2..8 { thread.x t in 0..8 { thread.y r in 1..5 {\n"
         "    let v = x[k, u - 2, r - 1, t]; alloc s: i32[] in local; s[] = 0;\n"
         "    for j in 0..3 {\n"
         "      s[] = s[] * 7 + axis_sum(v, thread.x, thread.z) + axis_max(v + i32(j), thread.z);\n"
         "    }\n"
         "    let some = q > 3 ? axis_min(v, thread.y, thread.z) : q;\n"
         "    y[k, u - 2, r - 1, t] = s[] + some * 3 + axis_sum(v, thread.y, thread.x);\n"
         "  } } } } }",
     .args = "bits:3x6x4x8 5 junk:3x6x4x8;bits:2x6x4x8 2 junk:2x6x4x8"},
};

static void run(conf_t* c) {
  conf_programs(c, axes, CONF_COUNT_OF(axes));
  static conf_rows_t rows;
  // Four warps; a block takes at most its limit.
  int warp = c->warp_size > 0 ? (int)c->warp_size : 32;
  int threads = 4 * warp > c->max_threads && c->max_threads > 0 ? warp : 4 * warp;
  add_exchanges(&rows, threads);
  conf_rows_run(c, &rows);
  add_blocks(&rows, warp, threads);
  conf_rows_run(c, &rows);
  static const int widths[] = {1, 8, 16, 32, 64};
  for (size_t i = 0; i < CONF_COUNT_OF(widths); i++) run_width(c, &rows, widths[i]);
  conf_rows_run(c, &rows);
  add_beyond(&rows, threads);
  conf_rows_run(c, &rows);
  if (conf_begin(c, "required width of warps", NULL)) {
    requirement(c);
    conf_end(c);
  }
}

const conf_area_t conf_area_exchanges = {"exchanges", NULL, 0, run};
