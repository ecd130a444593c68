// conformance/exchanges.c: shuffles, and reductions of warps and blocks, at the target's warp size.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/program.h"
#include "quern/target.h"

static const struct {
  const char* feature;
  const char* expression;  // of v, t (the thread) and W (its warp's width)
} case_ops[] = {
    {"shuffle", "shuffle(v, (t * 5 + 1) % WARP)"},
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
enum { ROW_LIMIT = 128, TEXT_BYTES = 900 };

// Returns `expression` with WARP replaced.
static void write_expression(const conf_t* c, const char* expression, char* out, size_t size) {
  size_t used = 0;
  while (*expression && used + 24 < size) {
    if (expression[0] == 'W' && expression[1] == 'A') {
      used +=
          (size_t)snprintf(out + used, size - used, "%d", (int)(c->warp_size ? c->warp_size : 32));
      expression += 4;
    } else {
      out[used++] = *expression++;
    }
  }
  out[used] = '\0';
}

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

static void run_width(conf_t* c, int width, bool is_listing) {
  static const char* const names[] = {"1", "8", "16", "32", "64"};
  static const int widths[] = {1, 8, 16, 32, 64};
  const char* variant = names[0];
  for (size_t i = 0; i < CONF_COUNT_OF(widths); i++) {
    if (widths[i] == width) variant = names[i];
  }
  // The values of two and a half warps go into the result.
  char text[TEXT_BYTES];
  char args[96];
  int threads = 2 * width + width / 2 + 1;
  (void)snprintf(text, sizeof text,
                 "func ex_width(x: i32[n, %d], out y: i32[n, %d]) { block.x b in 0..n {\n"
                 "  thread.x t in 0..%d { let v = x[b, t]; let W = warp_size();\n"
                 "    let at = shuffle(v, (t * 5 + 1) %% W); let up = shuffle_up(v, 1 %% W);\n"
                 "    let down = shuffle_down(v, 3 %% W); let other = shuffle_xor(v, W // 2);\n"
                 "    let sum = warp_sum(v); let most = warp_max(v); let all = block_sum(v);\n"
                 "    y[b, t] = at + up * 3 + down * 5 + other * 7 + sum * 11 + most * 13 +\n"
                 "      all * 17 + i32(W) * 1001; } } }",
                 threads, threads, threads);
  (void)snprintf(args, sizeof args, "rand:3x%d junk:3x%d", threads, threads);
  const conf_program_t program = {
      .feature = "warps of any width", .variant = variant, .text = text, .args = args};
  qn_target_t* target = is_listing || c->warp_size == width ? NULL : with_warp_size(c, width);
  if (is_listing || c->warp_size == width) {
    conf_programs(c, conf_area_exchanges.name, &program, 1, is_listing);
    return;
  }
  if (!target) {
    if (!conf_begin(c, conf_area_exchanges.name, program.feature, variant)) return;
    conf_unsupported(c, "its warps have %d threads", (int)c->warp_size);
    conf_end(c);
    return;
  }
  char oracle[48];
  (void)snprintf(oracle, sizeof oracle, "interp -warp_size=%d", width);
  qn_target_t* own_target = c->target;
  qn_target_t* own_oracle = c->oracle;
  if (qn_status_consume(qn_target_parse(oracle, &c->oracle)) == QN_STATUS_OK) {
    c->target = target;
    conf_programs(c, conf_area_exchanges.name, &program, 1, false);
    qn_target_release(c->oracle);
  }
  c->target = own_target;
  c->oracle = own_oracle;
  qn_target_release(target);
}

// Checks that a function can require a warp size, and that other sizes are refused before it runs.
static void requirement(conf_t* c) {
  char text[TEXT_BYTES];
  (void)snprintf(text, sizeof text,
                 "func ex_required(x: i32[n], out y: i32[n]) {\n"
                 "  assert warp_size() == %d, \"made for other warps\";\n"
                 "  parallel i in 0..n { y[i] = x[i]; } }",
                 (int)c->warp_size + 1);
  char parts[96];
  (void)snprintf(parts, sizeof parts,
                 "'ex_required' requires warp_size() == %d: made for other,warps of %d threads",
                 (int)c->warp_size + 1, (int)c->warp_size);
  qn_module_t* module = conf_module(c, text);
  if (!module) return;
  qn_lookup_options_t options = {.struct_size = sizeof options, .tier = QN_TIER_FULL};
  qn_function_t* function = NULL;
  qn_status_t status =
      qn_engine_function(c->engine, module, c->target, "ex_required", &options, NULL, &function);
  conf_expect(c, status, QN_STATUS_UNSUPPORTED, parts);
  qn_function_release(function);
}

// Checks that a checked build traps a lane beyond the warp.
static void run_beyond(conf_t* c, int threads, bool is_listing) {
  static const struct {
    const char* op;
    int warps;  // the distance
  } cases[] = {
      {"shuffle", 1},       {"shuffle", -1},     {"shuffle_up", 1},
      {"shuffle_down", -1}, {"shuffle_down", 2}, {"shuffle_xor", 1},
  };
  static char texts[CONF_COUNT_OF(cases)][TEXT_BYTES];
  static char args[CONF_COUNT_OF(cases)][96];
  conf_program_t rows[CONF_COUNT_OF(cases)];
  for (size_t i = 0; i < CONF_COUNT_OF(cases); i++) {
    (void)snprintf(texts[i], TEXT_BYTES,
                   "func ex_beyond_%d(x: i32[n, %d], out y: i32[n, %d], k: i32) {\n"
                   "  block.x b in 0..n { thread.x t in 0..%d {\n"
                   "    let v = %s(x[b, t], i64(k) * warp_size()); y[b, t] = v; } } }",
                   (int)i, threads, threads, threads, cases[i].op);
    (void)snprintf(args[i], sizeof args[i], "rand:2x%d junk:2x%d %d", threads, threads,
                   cases[i].warps);
    rows[i] = (conf_program_t){.feature = "lane beyond the warp",
                               .variant = cases[i].op,
                               .text = texts[i],
                               .args = args[i],
                               .is_checked = true,
                               .code = QN_STATUS_ASSERTION,
                               .parts = "reaches beyond its warp"};
  }
  conf_programs(c, conf_area_exchanges.name, rows, CONF_COUNT_OF(rows), is_listing);
}

static void run(conf_t* c, bool is_listing) {
  static char texts[ROW_LIMIT][TEXT_BYTES];
  static char args[ROW_LIMIT][96];
  static conf_program_t rows[ROW_LIMIT];
  // Four warps; a block takes at most its limit.
  int64_t warp = c->warp_size > 0 ? c->warp_size : 32;
  int threads = (int)(4 * warp > c->max_threads && c->max_threads > 0 ? warp : 4 * warp);
  size_t count = 0;
  for (size_t o = 0; o < CONF_COUNT_OF(case_ops); o++) {
    for (size_t d = 0; d < CONF_COUNT_OF(case_dtypes); d++) {
      bool is_bool = case_dtypes[d][0] == 'b';
      if (is_bool && o > 3) continue;
      char expression[96];
      write_expression(c, case_ops[o].expression, expression, sizeof expression);
      (void)snprintf(texts[count], TEXT_BYTES,
                     "func ex_%s_%s(x: %s[n, %d], out y: %s[n, %d]) { block.x b in 0..n {\n"
                     "  thread.x t in 0..%d { let v = x[b, t]; let r = %s; y[b, t] = r; } } }",
                     case_ops[o].feature, case_dtypes[d], case_dtypes[d], threads, case_dtypes[d],
                     threads, threads, expression);
      (void)snprintf(args[count], sizeof args[count], "below7:3x%d junk:3x%d", threads, threads);
      rows[count] = (conf_program_t){.feature = case_ops[o].feature,
                                     .variant = case_dtypes[d],
                                     .text = texts[count],
                                     .args = is_bool ? "rand:3x128 junk:3x128" : args[count]};
      if (is_bool) {
        (void)snprintf(args[count], sizeof args[count], "rand:3x%d junk:3x%d", threads, threads);
        rows[count].args = args[count];
      }
      count++;
    }
  }
  conf_programs(c, conf_area_exchanges.name, rows, count, is_listing);
  // A two-dimensional block that is no multiple of a warp, and an exchange in a loop.
  static char odd[3][TEXT_BYTES];
  int odd_threads = (int)(warp > 1 ? warp + warp / 2 + 1 : 3);
  (void)snprintf(odd[0], TEXT_BYTES,
                 "func ex_odd(x: i32[n, %d], out y: i32[n, %d]) { block.x b in 0..n {\n"
                 "  thread.x t in 0..%d { let v = x[b, t]; let s = block_sum(v);\n"
                 "    let m = warp_max(v); y[b, t] = s * 100 + m; } } }",
                 odd_threads, odd_threads, odd_threads);
  (void)snprintf(odd[1], TEXT_BYTES,
                 "func ex_flat(x: i32[n, 4, %d], out y: i32[n, 4, %d]) { block.x b in 0..n {\n"
                 "  thread.y u in 0..4 { thread.x t in 0..%d { let v = x[b, u, t];\n"
                 "    let s = warp_sum(v); let w = shuffle_up(v, 1);\n"
                 "    y[b, u, t] = s * 100 + w; } } } }",
                 (int)warp, (int)warp, (int)warp);
  (void)snprintf(odd[2], TEXT_BYTES,
                 "func ex_loop(x: i32[n, %d], out y: i32[n, %d]) { block.x b in 0..n {\n"
                 "  thread.x t in 0..%d { alloc a: i32[1] in local; a[0] = x[b, t];\n"
                 "    for k in 0..3 { let o = shuffle_xor(a[0], 1); a[0] = a[0] * 2 + o; }\n"
                 "    y[b, t] = a[0]; } } }",
                 threads, threads, threads);
  static char odd_args[3][96];
  (void)snprintf(odd_args[0], 96, "rand:3x%d junk:3x%d", odd_threads, odd_threads);
  (void)snprintf(odd_args[1], 96, "rand:3x4x%d junk:3x4x%d", (int)warp, (int)warp);
  (void)snprintf(odd_args[2], 96, "rand:3x%d junk:3x%d", threads, threads);
  const conf_program_t others[] = {
      {.feature = "blocks of part of a warp", .text = odd[0], .args = odd_args[0]},
      {.feature = "blocks of two dimensions", .text = odd[1], .args = odd_args[1]},
      {.feature = "exchanges in a loop", .text = odd[2], .args = odd_args[2]},
  };
  conf_programs(c, conf_area_exchanges.name, others, CONF_COUNT_OF(others), is_listing);
  static const int widths[] = {1, 8, 16, 32, 64};
  for (size_t i = 0; i < CONF_COUNT_OF(widths); i++) run_width(c, widths[i], is_listing);
  run_beyond(c, threads, is_listing);
  if (conf_begin(c, conf_area_exchanges.name, "required width of warps", NULL)) {
    requirement(c);
    conf_end(c);
  }
}

const conf_area_t conf_area_exchanges = {"exchanges", NULL, 0, run};
