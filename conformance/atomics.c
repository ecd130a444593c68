// SPDX-License-Identifier: Apache-2.0
// conformance/atomics.c: each atomic on each dtype that has it, with and without its old value, in
// global and shared memory.
#include "conformance/program.h"

// Only results that do not depend on the order of the threads are compared.
static const char* const case_ops[] = {"add", "min", "max", "and", "or", "xor"};
static const char* const case_dtypes[] = {"i8",  "u8",  "i16", "u16",  "i32", "u32",
                                          "i64", "u64", "f16", "bf16", "f32", "f64"};

static const conf_program_t programs[] = {
    {.feature = "exchange",
     .text = "func at_exchange(inout slot: i32[1], x: i32[n], inout seen: i32[1]) {\n"
             "  parallel i in 0..n { let old = atomic_exchange(slot[0], x[i]);\n"
             "    atomic_add(seen[0], old); }\n"
             "  seen[0] = seen[0] + slot[0]; slot[0] = 0; }",
     .args = "zero:1 rand:1000 zero:1"},
    {.feature = "compare and swap",
     .text = "func at_cas(inout lock: i32[n], inout won: i32[n]) {\n"
             "  parallel i in 0..n * 8 { let old = atomic_cas(lock[i % n], 0, 1);\n"
             "    if old == 0 { atomic_add(won[i % n], 1); } } }",
     .args = "zero:77 zero:77"},
    {.feature = "old values are each seen once",
     .text = "func at_ticket(inout next: i32[1], inout hits: i32[n]) {\n"
             "  parallel i in 0..n { let ticket = atomic_add(next[0], 1);\n"
             "    atomic_add(hits[i64(ticket)], 1); } }",
     .args = "zero:1 zero:3000"},
    {.feature = "histogram",
     .text = "func at_histogram(x: u8[n], inout count: i32[256]) {\n"
             "  parallel i in 0..n { atomic_add(count[i64(x[i])], 1); } }",
     .args = "below256:20000 zero:256"},
    {.feature = "a fence, a last block",
     .text = "func at_last(x: i32[n], inout parts: i32[n], inout done: i32[1], inout y: i32[1]) {\n"
             "  block.x b in 0..n { thread.x t in 0..32 { if t == 0 {\n"
             "    parts[b] = x[b] * 3; fence; let before = atomic_add(done[0], 1);\n"
             "    if i64(before) == n - 1 { fence; y[0] = sum i in 0..n { parts[i] }; } } } } }",
     .args = "rand:100 zero:100 zero:1 zero:1"},
    {.feature = "release and acquire",
     .text = "func at_message(x: u32[n], inout data: u32[n], inout ready: u8[n], inout wrong: "
             "i32[1]) {\n"
             "  block.x b in 0..n { thread.x t in 0..32 { if t == 31 {\n"
             "    data[b] = x[b] + 1; atomic_store(ready[b], 1);\n"
             "    for k in 0..n { let r = atomic_load(ready[k]);\n"
             "      if r == 1 && data[k] != x[k] + 1 { atomic_add(wrong[0], 1); } } } } } }",
     .args = "rand:100 zero:100 zero:100 zero:1"},
    {.feature = "shared memory of small floats",
     .text = "func at_small(x: f16[n, 64], out y: f16[n]) { block.x b in 0..n {\n"
             "  alloc s: f16[3] in shared; alloc c: u8[3] in shared;\n"
             "  thread.x t in 0..64 {\n"
             "    if t == 0 { s[1] = -inf; c[2] = 250; } barrier;\n"
             "    atomic_max(s[1], x[b, t]); atomic_add(c[2], 1); barrier;\n"
             "    if t == 0 { y[b] = s[1] + f16(c[2]); } } } }",
     .args = "below8:12x64 junk:12"},
    {.feature = "shared memory",
     .text = "func at_shared(x: i32[n, 64], out y: i32[n]) { block.x b in 0..n {\n"
             "  alloc s: i32[2] in shared;\n"
             "  thread.x t in 0..64 {\n"
             "    if t == 0 { s[0] = 0; s[1] = -1000; } barrier;\n"
             "    atomic_add(s[0], x[b, t]); atomic_max(s[1], x[b, t]); barrier;\n"
             "    if t == 0 { y[b] = s[0] * 100 + s[1]; } } } }",
     .args = "rand:12x64 junk:12"},
};

static void run(conf_t* c) {
  static conf_rows_t rows;
  for (size_t o = 0; o < CONF_COUNT_OF(case_ops); o++) {
    for (size_t d = 0; d < CONF_COUNT_OF(case_dtypes); d++) {
      const char *op = case_ops[o], *dtype = case_dtypes[d];
      bool is_float = dtype[0] == 'f' || dtype[0] == 'b';
      if (is_float && o > 2) continue;  // sums of few small numbers are exact
      const char* text = conf_rows_text(&rows,
                                        "func at_%s_%s(x: %s[n], inout y: %s[5]) {\n"
                                        "  parallel i in 0..n { atomic_%s(y[i %% 5], x[i]); } }",
                                        op, dtype, dtype, dtype, op);
      const char* args = is_float ? "below8:100 one:5" : "bits:1000 bits:5";
      conf_rows_add(&rows, op, dtype, text, args);
    }
  }
  conf_rows_run(c, &rows);
  conf_programs(c, programs, CONF_COUNT_OF(programs));
}

const conf_area_t conf_area_atomics = {"atomics", NULL, 0, run};
