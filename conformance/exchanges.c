// conformance/exchanges.c: shuffles, and reductions of warps and blocks, with warps as wide
// as the target's.
#include <stdio.h>

#include "conformance/program.h"

static const struct {
  const char* feature;
  const char* expression;  // of v, t (the thread) and W (its warp's width)
} ops[] = {
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
static const char* const dtypes[] = {"i32", "u32", "i64", "f32", "f64", "f16", "i8", "bool"};
enum { ROW_LIMIT = 128, TEXT_BYTES = 900 };

// `expression` with WARP replaced.
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

static void run(conf_t* c, bool is_listing) {
  static char texts[ROW_LIMIT][TEXT_BYTES];
  static char args[ROW_LIMIT][96];
  static conf_program_t rows[ROW_LIMIT];
  // Four warps, of which blocks take what they may.
  int64_t warp = c->warp_size > 0 ? c->warp_size : 32;
  int threads = (int)(4 * warp > c->max_threads && c->max_threads > 0 ? warp : 4 * warp);
  size_t count = 0;
  for (size_t o = 0; o < CONF_COUNT_OF(ops); o++) {
    for (size_t d = 0; d < CONF_COUNT_OF(dtypes); d++) {
      bool is_bool = dtypes[d][0] == 'b';
      if (is_bool && o > 3) continue;
      char expression[96];
      write_expression(c, ops[o].expression, expression, sizeof expression);
      (void)snprintf(texts[count], TEXT_BYTES,
                     "func ex_%s_%s(x: %s[n, %d], out y: %s[n, %d]) { block.x b in 0..n {\n"
                     "  thread.x t in 0..%d { let v = x[b, t]; let r = %s; y[b, t] = r; } } }",
                     ops[o].feature, dtypes[d], dtypes[d], threads, dtypes[d], threads, threads,
                     expression);
      (void)snprintf(args[count], sizeof args[count], "below7:3x%d junk:3x%d", threads, threads);
      rows[count] = (conf_program_t){.feature = ops[o].feature,
                                     .variant = dtypes[d],
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
  // A block that is no multiple of a warp, of two dimensions, and an exchange in a loop.
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
}

const conf_area_t conf_area_exchanges = {"exchanges", NULL, 0, run};
