// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_gpu_run.c: programs of every shape mean the same after the mapping.
//
// Each runs as written and mapped, in the interpreter, for several targets and extents (zero among
// them), and everything that it wrote is compared. Random programs: test_pass_gpu_random.c.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_gpu.h"
#include "tests/support/sanitized.h"

enum { MAX_PARAMS = 8, BUFFER_BYTES = 1 << 16 };

static const qn__pass_options_t targets[] = {
    {.warp_size = 32,
     .max_threads = 1024,
     .preferred_threads = 256,
     .has_shuffles = true,
     .has_block_reductions = true},
    {.warp_size = 8, .max_threads = 128, .preferred_threads = 64, .has_shuffles = true},
    {.warp_size = 8, .max_threads = 64, .preferred_threads = 16, .multiprocessors = 2},
    {.warp_size = 32,
     .max_threads = 64,
     .preferred_threads = 64,
     .multiprocessors = 1,
     .has_block_reductions = true,
     .is_checked = true},
};

typedef struct program {
  const char* name;
  const char* text;
} program_t;

static void fill(const qn__ir_buffer_t* buffer, uint8_t* data) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    qn__ir_scalar_t value = {.i = (int64_t)((i * 5) % 11)};
    if (qn__dtype_is_float(buffer->dtype)) value.f = (double)((i * 7) % 13) * 0.25 - 1.0;
    if (buffer->dtype == QN_DTYPE_BOOL) value.i = i % 3 == 0;
    uint64_t bits = qn__scalar_to_bits(buffer->dtype, value);
    memcpy(data + i * size, &bits, size);
  }
}

// The memory of a call: one block for each parameter.
static void prepare(const qn__ir_func_t* function, uint8_t** memory, uint64_t* words) {
  assert_true(function->param_count <= MAX_PARAMS);
  for (size_t i = 0; i < function->param_count; ++i) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (buffer) {
      memory[i] = malloc(BUFFER_BYTES);
      assert_non_null(memory[i]);
      fill(buffer, memory[i]);
      words[i] = (uint64_t)(uintptr_t)memory[i];
    } else {
      qn_dtype_t dtype = function->params[i].scalar->dtype;
      qn__ir_scalar_t value = {.i = 3};
      if (qn__dtype_is_float(dtype)) value.f = 1.5;
      memory[i] = NULL;
      words[i] = qn__scalar_to_bits(dtype, value);
    }
  }
}

static bool same(const qn__ir_buffer_t* buffer, const uint8_t* a, const uint8_t* b,
                 size_t* out_index) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    uint64_t want = 0, have = 0;
    memcpy(&want, a + i * size, size);
    memcpy(&have, b + i * size, size);
    *out_index = i;
    if (want == have) continue;
    if (!qn__dtype_is_float(buffer->dtype)) return false;
    double x = qn__scalar_from_bits(buffer->dtype, want).f;
    double y = qn__scalar_from_bits(buffer->dtype, have).f;
    if (isnan(x) && isnan(y)) continue;
    if (!(fabs(x - y) <= 1e-4 * (1 + fabs(x)))) return false;
  }
  return true;
}

static void interpret(const program_t* program, const qn__ir_func_t* function,
                      const int64_t* symbols, uint32_t warp_size, uint8_t** memory) {
  uint64_t words[MAX_PARAMS];
  prepare(function, memory, words);
  qn__interpret_args_t call = {.params = words, .symbols = symbols, .warp_size = warp_size};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) fail_msg("%s: %s", program->name, qn_status_message(status));
}

static void compare(const program_t* program, const qn_module_t* module,
                    const qn__ir_body_t* mapped, const int64_t* symbols,
                    const qn__pass_options_t* options) {
  uint8_t* want[MAX_PARAMS];
  uint8_t* have[MAX_PARAMS];
  const qn__ir_func_t* function = module->functions[0];
  interpret(program, function, symbols, options->warp_size, want);
  interpret(program, mapped->first, symbols, options->warp_size, have);
  for (size_t i = 0; i < function->param_count; ++i) {
    size_t index;
    if (want[i] && !same(function->params[i].buffer, want[i], have[i], &index)) {
      qn_test_show(mapped);
      fail_msg("%s, n = %lld: '%s' differs at %zu", program->name, (long long)symbols[0],
               function->params[i].buffer->name, index);
    }
    free(want[i]);
    free(have[i]);
  }
}

static void run_program(void** state) {
  const program_t* program = *state;
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(program->text, strlen(program->text), NULL, &module);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  for (size_t t = 0; t < QN_COUNT_OF(targets); ++t) {
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
    status = qn__passes_run_gpu(&body, &targets[t]);
    if (qn_ok(status)) status = qn__body_verify_status(&body, "the mapping");
    if (!qn_ok(status)) fail_msg("%s, target %zu: %s", program->name, t, qn_status_message(status));
    qn__function_number(body.first);
    char message[256];
    if (!qn_test_is_mapped(body.first, &targets[t], message, sizeof message)) {
      qn_test_show(&body);
      fail_msg("%s, target %zu: %s", program->name, t, message);
    }
    static const int64_t extents[] = {0, 1, 7, 40, 100};
    // The interpreter is slow under sanitizers.
    for (size_t e = 0; e < QN_COUNT_OF(extents); e += IS_SANITIZED ? 2 : 1) {
      int64_t symbols[] = {extents[e], extents[(e + 2) % 5], extents[(e + 1) % 3], 2, 3};
      compare(program, module, &body, symbols, &targets[t]);
    }
    qn__body_deinit(&body);
  }
  qn_module_release(module);
}

static const program_t programs[] = {
    {"a local buffer and a view under a condition of the device",
     "func f(x: f32[n], out y: f32[n], inout z: f32[n, 64]) {\n"
     "  for r in 0..n { if x[r] > 0.0 {\n"
     "    alloc b: f32[64] in local; view v: f32[8, 8] = b[0];\n"
     "    for s in 0..3 { for i in 0..64 { b[i] = z[r, (i * 7 + 1) % 64] + f32(i); }\n"
     "      for i in 0..64 { z[r, i] = v[7 - i // 8, i % 8] * 0.5; } }\n"
     "    parallel i in 0..n { y[i] = f32(r); } } else {\n"
     "    alloc c: f32[64] in local;\n"
     "    for s in 0..2 { for i in 0..64 { c[i] = z[r, (i + s) % 64]; }\n"
     "      for i in 0..64 { z[r, i] = c[63 - i] + 1.0; } }\n"
     "    parallel i in 0..n { y[i] = x[i]; } } } }"},
    {"elementwise",
     "func f(a: f32, x: f32[n], inout y: f32[n]) { parallel i in 0..n {\n"
     "  y[i] = a * x[i] + y[i]; } }"},
    {"softmax",
     "func f(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n {\n"
     "  let top = max j in 0..m { x[i, j] };\n"
     "  let total = sum j in 0..m { exp(x[i, j] - top) };\n"
     "  for j in 0..m { y[i, j] = exp(x[i, j] - top) / total; } } }"},
    {"rows that are read again",
     "func f(x: f32[n, m], d: f32[n, m], w: f32[m], out y: f32[n, m], out z: f32[n]) {\n"
     "  parallel i in 0..n { let mean = sum j in 0..m { x[i, j] } / f32(m + 1);\n"
     "  let s = sum j in 0..m { (x[i, j] - mean) * (x[i, j] - mean) };\n"
     "  let t = max j in 0..m { d[i, j] * w[j] };\n"
     "  z[i] = s + (min j in 0..m { d[i, j] * w[j] - t });\n"
     "  for j in 0..m { let u = x[i, j] - mean; if j % 3 > 0 {\n"
     "    y[i, j] = u * s + t * w[j] + (j > 5 ? d[i, j] * w[j] : 0.0); } } } }"},
    {"rows of constant length that are read again",
     "func f(x: f16[n, 104], inout y: f16[n, 104]) { parallel i in 0..n {\n"
     "  let top = max j in 0..104 { x[i, j] };\n"
     "  let s = sum j in 0..104 { f32(x[i, j] - top) * f32(y[i, j]) };\n"
     "  for j in 0..104 { y[i, j] = f16(f32(x[i, j] - top) * s); } } }"},
    {"rows of integers, read and stored again",
     "func f(x: i32[n, m], inout y: i32[n, m]) { parallel i in 0..n {\n"
     "  let s = sum j in 0..m { x[i, j] * 3 + y[i, j] };\n"
     "  let t = max j in 0..m - 1 { x[i, j + 1] * 3 };\n"
     "  for j in 0..m { y[i, j] = x[i, j] * 3 + s + t; }\n"
     "  let u = sum j in 0..m { x[i, j] * 3 + y[i, j] };\n"
     "  for j in 0..m { y[i, j] = y[i, j] + u - x[i, j] * 3; } } }"},
    {"threads that meet, or none",
     "func f(x: i32[n], out y: i32[8]) { block.x b in 0..8 { y[b] = 5;\n"
     "  thread.x t in 0..n { if t == 0 { y[b] = y[b] + x[t]; } barrier;\n"
     "  if t == n - 1 { y[b] = y[b] * 3; } } } }"},
    {"rounds that store",
     "func f(x: i32[n], out y: i32[n, 128]) { parallel i in 0..n {\n"
     "  let t = sum j in 0..n { x[j] };\n"
     "  for k in 0..4 { for j in 0..100 { y[i, j + k] = t + i32(j * 7 + k); } } } }"},
    {"short rows",
     "func f(x: f32[n, 64], out y: f32[n, 64], out z: f32[n]) {\n"
     "  parallel i in 0..n { let top = max j in 0..64 { x[i, j] };\n"
     "  z[i] = sum j in 0..64 { x[i, j] - top };\n"
     "  for j in 0..64 { y[i, j] = x[i, j] - top; } } }"},
    {"columns",
     "func f(x: f32[n, m], out y: f32[m]) { parallel j in 0..m {\n"
     "  y[j] = sum i in 0..n { x[i, j] }; } }"},
    {"five dimensions",
     "func f(x: i32[n, 2, 3, 2, m], out y: i32[n, 2, 3, 2, m]) {\n"
     "  parallel a in 0..n { parallel b in 0..2 { parallel c in 0..3 { parallel d in 0..2 {\n"
     "    parallel e in 0..m { y[a, b, c, d, e] = x[a, b, c, d, e] + i32(e - a); } } } } } }"},
    {"transposed order",
     "func f(x: f32[n, m], out y: f32[m, n]) { parallel i in 0..n {\n"
     "  parallel j in 0..m { y[j, i] = x[0, 0] + f32(j - i); } } }"},
    {"ranges that begin elsewhere",
     "func f(n0: i64, x: i32[n], inout y: i32[n]) { parallel i in n0..n - 1 {\n"
     "  y[i] = x[i - 2]; } parallel i in 5..2 { y[i] = 1; } }"},
    {"imperfect nest",
     "func f(x: f32[n, m], inout y: f32[n, m], out z: f32[n]) { parallel i in 0..n {\n"
     "  let s = sum j in 0..m { x[i, j] }; z[i] = s;\n"
     "  parallel j in 0..m { y[i, j] = s - z[i]; }\n"
     "  parallel j in 0..m { y[i, j] = y[i, m - 1 - j] * 0.0 + s; } } }"},
    {"values of the device",
     "func f(x: i64[n], inout y: i64[n], out z: i64[4], c: f32) {\n"
     "  let k = n > 3 ? x[3] : 2; let q = c * 2.0; let w = k + 1;\n"
     "  z[0] = k;\n"
     "  parallel i in 0..n { y[i] = w * i + i64(q); }\n"
     "  let old = atomic_add(z[0], 5);\n"
     "  z[1] = old + k;\n"
     "  parallel i in 0..w { if i < n { y[i] = y[i] + old; } } }"},
    {"sums at the top",
     "func f(x: f32[n, 2], out y: f32[n]) { let total = sum i in 0..n { x[i, 0] };\n"
     "  let most = max i in 0..n { x[i, 0] }; let p = prod i in 0..3 { f32(i) + 0.5 };\n"
     "  for i in 0..n { y[i] = total + most * p; } }"},
    {"extents of the device",
     "func f(x: i64[4], inout y: i64[n], inout z: f32[n, m]) {\n"
     "  parallel i in 0..min(x[1], n) { y[i] = i + x[2]; }\n"
     "  parallel i in 0..min(x[1], n) { let s = sum j in 0..m { z[i, j] };\n"
     "    for j in 0..m { z[i, j] = s; } } }"},
    {"serial loop around launches",
     "func f(x: f32[n], inout y: f32[n], steps: i64) { alloc w: f32[n] in global;\n"
     "  for s in 0..steps { let half = s // 2; alloc c: f32[2] in local; c[0] = f32(half) + (n > 0 "
     "? y[0] : 0.0);\n"
     "    c[1] = 1.0; parallel i in 0..n { w[i] = x[i] + c[0]; }\n"
     "    parallel i in 0..n { y[i] = w[n - 1 - i] * 0.5 + c[1]; } } }"},
    {"serial loop, short",
     "func f(x: f32[5], inout y: f32[5], m: i64) { for s in 0..m { for i in 1..5 {\n"
     "  y[i] = y[i - 1] * 0.5 + x[i]; } } }"},
    {"while at the top",
     "func f(inout y: i32[n], x: i32[n]) { alloc k: i32[] in local; k[] = 0;\n"
     "  while k[] < 5 { parallel i in 0..n { y[i] = y[i] + x[i] * k[]; } k[] = k[] + 2; } }"},
    {"locals at the top",
     "func f(x: f32[n], out y: f32[n]) { alloc c: f32[3] in local; c[0] = 1.0; c[1] = 2.0;\n"
     "  view v: f32[2] = c[1]; v[1] = c[0] + c[1];\n"
     "  parallel i in 0..n { y[i] = x[i] * c[2] + v[0]; } }"},
    {"conditions of the device",
     "func f(x: i32[4], inout y: i32[n], inout z: i32[1], m: i64) { if x[1] > 2 { parallel i in "
     "0..n { y[i] = 1; }\n"
     "  let q = x[2]; if n > 1 { y[0 * m] = q; } parallel i in 1..n { y[i] = q + 1; } } else {\n"
     "  parallel i in 0..n { y[i] = 2; } }\n"
     "  if m > 2 { parallel i in 0..n { y[i] = y[i] + 1; } } else { z[0] = 9; }\n"
     "  if x[3] > 100 { block.x b in 0..n { y[b] = 77; } } }"},
    {"views with loaded places",
     "func f(x: f32[n, 8], u: f32[8], k: i64[2], out y: f32[n, 2]) { view v: f32[2] = u[k[1] % "
     "4];\n"
     "  parallel i in 0..n { view w: f32[2] = x[i, k[0]]; y[i, 0] = v[1]; y[i, 1] = w[1]; } }"},
    {"prefix sums",
     "func f(x: i32[n, m], out y: i32[n, m]) { parallel i in 0..n {\n"
     "  alloc a: i32[] in local; a[] = 0;\n"
     "  for j in 0..m { a[] = a[] + x[i, j]; y[i, j] = a[]; } } }"},
    {"local array of a team",
     "func f(x: f32[n, 48], out y: f32[n, 48]) { parallel i in 0..n { alloc w: f32[48] in local;\n"
     "  alloc s: f32[] in local; s[] = 0.0;\n"
     "  for j in 0..48 { w[j] = x[i, j] * 2.0; }\n"
     "  let t = sum j in 0..48 { w[47 - j] * x[i, j] };\n"
     "  s[] = s[] + t;\n"
     "  for k in 0..2 { let u = max j in 0..48 { w[j] }; s[] = s[] * 0.5 + u;\n"
     "    for j in 0..48 { w[j] = x[i, j] + s[]; } }\n"
     "  if s[] > 1.0 { for j in 0..48 { y[i, j] = w[j]; } } else { y[i, 0] = s[];\n"
     "    for j in 1..48 { y[i, j] = w[47 - j] - y[i, 0]; } } } }"},
    {"bare blocks",
     "func f(x: f32[n], out y: f32[n], out z: f32[n]) { block.x b in 0..n {\n"
     "  let s = sum j in 0..n { x[j] }; y[b] = s + f32(b); z[b] = y[b]; } }"},
    {"statements beside thread loops",
     "func f(x: f32[n], inout y: f32[n]) { block.x b in 0..ceildiv(n, 8) {\n"
     "  alloc s: f32[8] in shared; alloc q: f32[2] in local; q[0] = f32(b);\n"
     "  thread.x t in 0..8 { let i = b * 8 + t; s[t] = i < n ? x[i] : 0.0; barrier;\n"
     "    let o = s[7 - t]; barrier; s[t] = o + q[0]; }\n"
     "  let first = s[0]; q[1] = first;\n"
     "  if first > 0.0 { thread.x t in 0..4 { s[t] = s[t] + q[1]; } }\n"
     "  for r in 0..2 { s[r] = s[r + 1] + first; thread.x t in 0..8 { s[t] = s[t] + 1.0; } }\n"
     "  thread.y t in 0..8 { if b * 8 + t < n { y[b * 8 + t] = s[t] - first; } } } }"},
    {"unequal nests that do not meet",
     "func f(x: i32[n], out y: i32[n]) { block.x b in 0..ceildiv(n, 10) {\n"
     "  alloc s: i32[10] in shared;\n"
     "  thread.x t in 0..10 { s[t] = b * 10 + t < n ? x[b * 10 + t] : 0;}\n"
     "  thread.y u in 0..5 { thread.x t in 0..2 { let i = b * 10 + u * 2 + t;\n"
     "    if i < n { y[i] = s[9 - (u * 2 + t)] ; } } } } }"},
    {"statements between thread loops",
     "func f(x: f32[n, 4], out y: f32[n, 4]) { block.x b in 0..n { alloc s: f32[4, 4] in shared;\n"
     "  alloc c: f32[4] in shared;\n"
     "  thread.y u in 0..4 { let k = x[b, u]; c[u] = k * 2.0; assert k == k;\n"
     "    thread.x t in 0..4 { s[t, u] = c[u] + f32(t); barrier;\n"
     "      if t == 0 { y[b, u] = s[u, 3 - u] + c[3 - u]; } } } } }"},
    {"threads inside of parallel",
     "func f(x: i32[n], out y: i32[n]) { parallel b in 0..ceildiv(n, 4) { let base = b * 4;\n"
     "  thread.x t in 0..4 { let v = base + t < n ? x[base + t] : 0;\n"
     "    let s = block_sum(v); barrier; if base + t < n { y[base + t] = s; } } } }"},
    {"threads without blocks",
     "func f(x: i32[n], inout y: i32[8]) { for r in 0..3 { thread.x t in 0..8 {\n"
     "  let o = y[(t + 1) % 8]; barrier; y[t] = o + i32(r); } } }"},
    {"threads of any number",
     "func f(inout y: i32[n]) { block.x b in 0..1 { thread.x t in 0..n {\n"
     "  y[t] = y[t] * 2; } } }"},
    {"atomics of a team",
     "func f(x: i32[n, m], inout c: i32[8], out y: i32[n]) { parallel i in 0..n {\n"
     "  let s = sum j in 0..m { x[i, j] }; let old = atomic_add(c[i % 8], 0);\n"
     "  alloc l: i32[] in local; l[] = s; let before = atomic_max(l[], 7);\n"
     "  for j in 0..m { if x[i, j] > 100 { atomic_add(c[0], 1); } }\n"
     "  y[i] = s + before + l[] + (old < 0 ? 1 : 0); } }"},
    {"exchanges everywhere",
     "func f(x: i32[n], out y: i32[n]) { block.x b in 0..ceildiv(n, 24) { thread.x t in 0..24 {\n"
     "  let i = b * 24 + t; let v = i < n ? x[i] : 1; let on = n > 5;\n"
     "  let lazily = on ? block_sum(v) + warp_max(v) : shuffle_down(v, 2);\n"
     "  let both = on && block_max(v) > 3; alloc k: i32[] in local; k[] = 0;\n"
     "  while block_sum(k[]) < 48 { k[] = k[] + (both ? 1 : 2); }\n"
     "  for r in 0..block_min(2) { k[] = k[] + shuffle_xor(v, i64(r) + 1); }\n"
     "  let folded = sum r in 0..3 { let q = shuffle_up(v, r); q * 2 + shuffle(v, r) };\n"
     "  if i < n { y[i] = lazily + k[] * 100 + folded; } } } }"},
    {"reductions with combiners",
     "func f(x: f32[n, m], out y: f32[n], out z: f32[n]) { parallel i in 0..n {\n"
     "  let s, c = reduce j in 0..m { x[i, j], i32(1) } from (0, 0) with (a, p), (b, q) {\n"
     "    max(a, b), p + q };\n"
     "  y[i] = s; z[i] = f32(c); } }"},
    {"reductions with combiners in loops with an order",
     "func f(x: f32[n, 48], inout y: f32[n], out z: f32[n]) { for i in 1..n {\n"
     "  let low, c = reduce j in 3..47 { x[i, j], i32(1) } from (inf, 0) with (a, p), (b, q) {\n"
     "    min(a, b), p + q };\n"
     "  y[i] = low + y[i - 1]; z[i] = f32(c); } }"},
    {"reductions with combiners of a whole array",
     "func f(x: i32[700], w: i32[n], out y: i64[4]) {\n"
     "  let s, c = reduce j in 0..n { i64(w[j]), i64(1) } from (0, 0) with (a, p), (b, q) {\n"
     "    a + b, p + q };\n"
     "  let t, d = reduce j in 0..40 { i64(x[j % 7 + 1]), i64(x[j]) } from (0, 0) with\n"
     "    (a, p), (b, q) { a + b, p ^ q };\n"
     "  let u, e = reduce j in 0..600 { i64(x[j]), i64(j) } from (0, 0) with\n"
     "    (a, p), (b, q) { a + b, p + q };\n"
     "  y[0] = s; y[1] = c; y[2] = t + u; y[3] = d + e; }"},
    {"scans of rows",
     "func f(x: f32[n, m], out y: f32[n, m], out z: f32[n, m]) { parallel i in 0..n {\n"
     "  scan j in 0..m { x[i, j] } from (0) with (a), (b) { a + b } as (s) { y[i, j] = s; }\n"
     "  exclusive_scan j in 0..m { let v = x[i, m - 1 - j]; v, j > 20 } from (1.5, false)\n"
     "      with (a, p), (b, q) { q ? b : a + b, p || q } as (s, t) {\n"
     "    if t { continue; } z[i, j] = s; } } }"},
    {"scans in loops with an order, and in place",
     "func f(inout x: i32[n, m], inout y: i32[200]) {\n"
     "  for i in 0..2 { scan j in 0..200 { y[j] } from (0) with (a), (b) { a + b } as (s) {\n"
     "    y[j] = s; } }\n"
     "  parallel i in 0..n { for k in 0..2 {\n"
     "    scan j in k..m { x[i, j], i32(j) } from (3, 5) with (a, p), (b, q) {\n"
     "      a * b, p * b + q } as (s, t) { x[i, j] = s ^ t; } } } }"},
    {"scans of a whole array",
     "func f(x: i32[700], w: i32[n], out y: i64[n], out z: i32[700]) {\n"
     "  scan j in 0..n { i64(w[n - 1 - j]), j } from (7, 1) with (a, p), (b, q) {\n"
     "    a * b, p * b + q } as (s, t) { y[j] = s + t; }\n"
     "  scan j in 3..700 { sum k in 0..n { w[k] * x[j] } } from (0) with (a), (b) {\n"
     "    a + b } as (s) { z[j] = s; } }"},
    {"reductions over some thread axes",
     "func f(x: i32[n, 3, 8], out y: i32[n, 3, 8], inout z: i32[n, 20, 4]) {\n"
     "  block.x b in 0..n { thread.y r in 1..4 { thread.x t in 0..8 {\n"
     "    let v = x[b, r - 1, t]; alloc s: i32[] in local; s[] = 1;\n"
     "    for j in 0..2 { s[] = s[] * axis_max(v, thread.x) + axis_sum(s[], thread.y); }\n"
     "    y[b, r - 1, t] = s[] + (n > 3 ? axis_min(v, thread.y) : v); } } }\n"
     "  block.x b in 0..n { thread.y r in 0..20 { thread.z u in 0..1 { thread.x t in 0..4 {\n"
     "    let v = z[b, r, t];\n"
     "    z[b, r, t] = axis_sum(v, thread.y) + axis_min(v, thread.x, thread.z) +\n"
     "      axis_max(v, thread.y, thread.x, thread.z); } } } } }"},
    {"arithmetic on what a launch of one thread loads",
     "func f(x: f32[4], out y: f32[4]) { let a = x[0]; let b = a + 1; y[0] = b;\n"
     "  let c = x[1] * b; y[1] = c * a; parallel i in 2..4 { y[i] = b + c; } }"},
    {"exchanges of wide threads",
     "func f(x: f64[n], out y: f64[n]) { block.x b in 0..n { thread.z c in 0..2 { thread.x t in "
     "1..5 {\n"
     "  thread.y u in 0..3 { let v = x[b] + f64(t * 10 + u + c);\n"
     "    let s = warp_sum(v) + shuffle_up(v, 3) + block_max(v) * 100.0;\n"
     "    if c == 1 && t == 2 && u == 1 { y[b] = s; } } } } } }"},
};

// ---- what cannot be mapped, and memory

static void refusals(void** state) {
  (void)state;
  static const char* const cases[][2] = {
      {"func f(out y: i32[64]) { block.x b in 0..1 { thread.x t in 0..32 { barrier; y[t] = 1; }\n"
       "  thread.x t in 0..16 { barrier; y[t] = 2; } } }",
       "function 'f': thread loops of one block whose threads synchronize have different extents: "
       "'t' is "
       "not like the first of them"},
      {"func f(out y: i32[2048]) { block.x b in 0..1 { y[0] = 1; thread.x t in 0..2048 { barrier;\n"
       "  y[t] = 1; } } }",
       "function 'f': a block of 2048 threads that meet; the target has at most 1024"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = NULL;
    qn_status_t status = qn_module_parse(cases[i][0], strlen(cases[i][0]), NULL, &module);
    if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
    qn__ir_body_t body;
    assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), &body)));
    status = qn__passes_run_gpu(&body, &targets[0]);
    assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
    assert_string_equal(qn_status_message(status), cases[i][1]);
    qn_status_free(status);
    qn__body_deinit(&body);
    qn_module_release(module);
  }
}

static void survives_without_memory(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    qn_module_t* module = NULL;
    const char* text = programs[i].text;
    assert_true(qn_ok(qn_module_parse(text, strlen(text), NULL, &module)));
    qn_test_map_without_memory(module, &targets[2]);
    qn_module_release(module);
  }
}

int main(void) {
  struct CMUnitTest tests[QN_COUNT_OF(programs) + 2];
  size_t count = 0;
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    tests[count++] = (struct CMUnitTest){programs[i].name, run_program, NULL, NULL,
                                         (void*)(uintptr_t)&programs[i]};
  }
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(refusals);
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(survives_without_memory);
  return _cmocka_run_group_tests("mapping to a gpu", tests, count, NULL, NULL);
}
