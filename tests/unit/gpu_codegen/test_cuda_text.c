// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/test_cuda_text.c: tests the CUDA C text of each construct, one row for
// each rule, and properties of whole texts.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka.h needs those above.
#include <cmocka.h>

#include "tests/support/fault.h"
#include "tests/support/gpu_programs.h"
#include "tests/unit/gpu_codegen/support_text.h"

static void assert_ok(qn_status_t status) {
  if (!qn_ok(status)) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  assert_true(qn_ok(status));
}

static void assert_line(const texts_t* texts, const char* pattern) {
  if (!text_has_line(&texts->text, pattern)) {
    (void)fprintf(stderr, "no line '%s' in\n%s\n", pattern, (const char*)texts->text.data);
  }
  assert_true(text_has_line(&texts->text, pattern));
}

static void assert_no_line(const texts_t* texts, const char* pattern) {
  if (text_has_line(&texts->text, pattern)) {
    (void)fprintf(stderr, "line '%s' in\n%s\n", pattern, (const char*)texts->text.data);
  }
  assert_false(text_has_line(&texts->text, pattern));
}

// ---- rows

// A statement of one thread, and a line of the kernel.
typedef struct row {
  const char* stmt;
  const char* line;
} row_t;

static const row_t rows[] = {
    // Loads and stores have the memory's type, values the compute type.
    {"bt[i] = !bt[0];", "b*[*] = (unsigned char)(!(b*[0] != 0));"},
    {"i1[i] = i1[0];", "b*[*] = (signed char)(int(b*[0]));"},
    {"u2[i] = u2[0];", "b*[*] = (unsigned short)(uint(b*[0]));"},
    {"h[i] = h[0];", "b*[*] = (unsigned short)(qn_f16_from_f32(qn_f32_from_f16(uint(b*[0]))));"},
    {"g[i] = g[0];", "b*[*] = (unsigned short)(qn_bf16_from_f32(qn_f32_from_bf16(uint(b*[0]))));"},
    // Signed arithmetic wraps: in uint, as a whole tree.
    {"i4_[i] = i4_[0] + i4_[1] * i4_[2];",
     "b*[*] = int(uint(b*[0]) + (uint(b*[1]) * uint(b*[2])));"},
    {"i4_[i] = i4_[0] - 1;", "b*[*] = int(uint(b*[0]) - 1u);"},
    {"i4_[i] = -i4_[0];", "b*[*] = int(0u - uint(b*[0]));"},
    {"i8_[i] = i8_[0] * i8_[1];", "b*[*] = qn_i64(qn_u64(b*[0]) * qn_u64(b*[1]));"},
    {"u4_[i] = u4_[0] * u4_[1] + 1;", "b*[*] = (b*[0] * b*[1]) + 1u;"},
    // What is narrower than 32 bits is cut.
    {"i1[i] = i1[0] + i1[1];", "*(int(uint(int(b*[0]) + int(b*[1])) << 24) >> 24)*"},
    {"u2[i] = u2[0] - u2[1];", "*((uint(b*[0]) - uint(b*[1])) & 0xffffu)*"},
    {"u2[i] = ~u2[0];", "*((~uint(b*[0])) & 0xffffu)*"},
    {"i1[i] = ~i1[0];", "*(signed char)(~int(b*[0]));"},
    {"i1[i] = min(i1[0], i1[1]);", "*(signed char)(qn_min_i32(int(b*[0]), int(b*[1])));"},
    // Shifts: constant counts as they are, others modulo the width.
    {"i4_[i] = i4_[0] << 33;", "b*[*] = int(uint(b*[0]) << 1);"},
    {"i4_[i] = i4_[0] >> 3;", "b*[*] = b*[0] >> 3;"},
    {"u2[i] = u2[0] << u2[1];", "*qn_shl_u32(uint(b*[0]), (uint(b*[1]) & 15u))*"},
    {"i4_[i] = i4_[0] >> i4_[1];", "b*[*] = qn_shr_i32(b*[0], b*[1]);"},
    // Division: powers of two, constants, and what is not known.
    {"i4_[i] = i4_[0] // 8;", "b*[*] = b*[0] >> 3;"},
    {"i4_[i] = i4_[0] % 8;", "b*[*] = b*[0] & 7;"},
    {"i4_[i] = i4_[0] // 7;", "b*[*] = qn_floordiv_i32(b*[0], 7);"},
    {"i4_[i] = truncdiv(i4_[0], 7);", "b*[*] = b*[0] / 7;"},
    {"i4_[i] = truncmod(i4_[0], 7);", "b*[*] = b*[0] % 7;"},
    {"u4_[i] = u4_[0] // 7;", "b*[*] = b*[0] / 7u;"},
    {"i4_[i] = i4_[0] % i4_[1];", "b*[*] = qn_floormod_i32(b*[0], b*[1]);"},
    {"f[i] = f[i // 3 + i % 3];", "b*[*] = b*[int(uint(v* / 3) + uint(v* % 3))];"},
    // Bits.
    {"u1[i] = clz(u1[0]);", "*(qn_clz_u32(uint(b*[0])) - 24u)*"},
    {"i1[i] = popcount(i1[0]);", "*qn_popcount_i32((int(b*[0]) & 0xff))*"},
    {"u8_[i] = clz(u8_[0]);", "b*[*] = qn_clz_u64(b*[0]);"},
    // Floats: one operation, one rounding.
    {"f[i] = f[0] * f[1] + f[2];", "b*[*] = (b*[0] * b*[1]) + b*[2];"},
    {"h[i] = h[0] * h[1];",
     "*qn_f16_from_f32(qn_roundto_f16((qn_f32_from_f16(uint(b*[0])) * "
     "qn_f32_from_f16(uint(b*[1]))))));"},
    {"g[i] = abs(g[0]);", "*qn_bf16_from_f32(qn_abs_f32(qn_f32_from_bf16(uint(b*[0])))));"},
    {"f[i] = f[0] / f[1];", "b*[*] = qn_div_f32(b*[0], b*[1]);"},
    {"f[i] = fma(f[0], f[1], f[2]);", "b*[*] = qn_fma_f32(b*[0], b*[1], b*[2]);"},
    {"d[i] = sqrt(d[0]);", "b*[*] = qn_sqrt_f64(b*[0]);"},
    {"bt[i] = isnan(f[0]);", "*(unsigned char)(qn_isnan_f32(b*[0]));"},
    // Literals.
    {"f[i] = 0.1;", "b*[*] = 0.1f;"},
    {"f[i] = -inf;", "b*[*] = QN_F32_FROM(0xff800000u);"},
    {"f[i] = 1e-45;", "b*[*] = QN_F32_FROM(0x00000001u);"},
    {"d[i] = 0.1;", "b*[*] = 0.1;"},
    {"i4_[i] = -2147483648;", "b*[*] = -2147483647 - 1;"},
    {"i8_[i] = -9223372036854775808;", "b*[*] = -9223372036854775807ll - 1ll;"},
    {"u8_[i] = 18446744073709551615;", "b*[*] = 18446744073709551615ull;"},
    // Conversions.
    {"i4_[i] = i32(f[0]);", "b*[*] = qn_i32_from_f32(b*[0]);"},
    {"u1[i] = u8(d[0]);", "*qn_u8_from_f64(b*[0])*"},
    {"f[i] = f32(i8_[0]);", "b*[*] = qn_f32_from_i64(b*[0]);"},
    {"h[i] = f16(d[0]);", "*qn_f32_from_f16(qn_f16_from_f64(b*[0]))*"},
    {"i1[i] = i8(i4_[0]);", "*(int(uint(b*[0]) << 24) >> 24)*"},
    {"i1[i] = i8(f[0] > 0.0 ? i4(4) : i4(-7));",
     "*(int(uint((b*[0] > 0.0f) ? 4 : (-7)) << 28) >> 28)*"},
    {"u4_[i] = u32(i1[0]);", "b*[*] = uint(int(b*[0]));"},
    {"bt[i] = bool(f[0]);", "*(b*[0] != 0.0f)*"},
    {"f[i] = f32(bt[0]);", "*(b*[0] != 0) ? 1.0f : 0.0f*"},
    {"u4_[i] = bitcast(u32, f[0]);", "b*[*] = QN_F32_BITS(b*[0]);"},
    {"i2[i] = bitcast(i16, h[0] + h[1]);", "*(int(uint(int(qn_f16_from_f32(*))) << 16) >> 16)*"},
    {"i2[i] = bitcast(i16, h[0]);", "*(int(uint(int((uint(b1[0])))) << 16) >> 16)*"},
    // Lazy operators need no lines where their operands need none.
    {"f[i] = i4_[0] > 0 ? f[1] : f[2];", "b*[*] = (b*[0] > 0) ? b*[1] : b*[2];"},
    {"bt[i] = i4_[0] > 0 && f[1] > 0.0;", "*((b*[0] > 0) && (b*[1] > 0.0f))*"},
    // Where they do, they become an if.
    {"f[i] = i4_[0] > 0 ? (sum k in 0..3 { f[k] }) : f[2];", "if (b*[0] > 0) {"},
    {"bt[i] = i4_[0] > 0 || (sum k in 0..3 { f[k] }) > 0.0;", "if (!t*) {"},
    // Reductions.
    {"f[i] = sum k in 0..m { f[k] };", "t* = t* + b*[v*];"},
    {"i4_[i] = prod k in 0..m { i4_[k] };", "t* = qn_mul_i32(t*, b*[v*]);"},
    {"i8_[i] = min k in 0..m { i8_[k] };", "qn_i64 t* = 9223372036854775807ll;"},
    {"h[i] = max k in 0..m { h[k] };", "t* = qn_max_f32(t*, qn_f32_from_f16(uint(b*[v*])));"},
    // Memory of a thread, tables, atomics.
    {"alloc l: f16[2, 3] in local; l[1, 2] = h[0]; h[i] = l[0, 1];", "float b*[6];"},
    {"const c: f32[2] = [1.0, nan]; f[i] = c[i % 2];",
     "static __device__ const uint c*[2] = {1065353216u, 2143289344u};"},
    {"atomic_add(f[0], 1.0);", "atomicAdd(&b*[0], 1.0f);"},
    {"let o = atomic_min(i8_[0], 5); i8_[i] = o;", "const qn_i64 v* = atomicMin(&b*[0], 5ll);"},
    {"let o = atomic_add(i8_[0], 5); i8_[i] = o;",
     "const qn_i64 v* = qn_i64(atomicAdd((qn_u64*)(&b*[0]), qn_u64(5ll)));"},
    {"let o = atomic_cas(u4_[0], 1, 2); u4_[i] = o;", "const uint v* = atomicCAS(&b*[0], 1u, 2u);"},
    {"atomic_max(f[0], 1.0);", "const uint t* = atomicCAS(t*, t*, t*);"},
    {"atomic_add(u1[0], 1);", "const uint t* = uint(t* & 3) * 8u;"},
    // Loops.
    {"while i4_[0] > 0 { i4_[0] = i4_[0] - 1; }", "while (b*[0] > 0) {"},
    {"while (sum k in 0..3 { f[k] }) > 0.0 { f[0] = f[0] - 1.0; }", "if (!(t* > 0.0f)) break;"},
};

static void make_row(const char* stmt, text_options_t options, texts_t* out_texts) {
  char text[2048];
  (void)snprintf(
      text, sizeof text,
      "func f(inout bt: bool[n], inout i1: i8[n], inout i2: i16[n], inout i4_: i32[n], "
      "inout i8_: i64[n], inout u1: u8[n], inout u2: u16[n], inout u4_: u32[n], inout "
      "u8_: u64[n], inout h: f16[n], inout g: bf16[n], inout f: f32[n], inout d: f64[n], "
      "w: f32[m]) {\n"
      "  block.x i in 0..n { thread.x t in 0..1 { %s } }\n"
      "}\n",
      stmt);
  assert_ok(texts_make(text, options, qn_allocator_default(), out_texts));
}

static void constructs_are_written_so(void** state) {
  (void)state;
  bool is_wrong = false;
  for (size_t i = 0; i < QN_COUNT_OF(rows); i++) {
    texts_t texts;
    make_row(rows[i].stmt, (text_options_t){.index_bits = 32}, &texts);
    if (!text_has_line(&texts.text, rows[i].line)) {
      const char* kernel = strstr((const char*)texts.text.data, "extern \"C\"");
      (void)fprintf(stderr, "%s\nno line '%s' in\n%s\n", rows[i].stmt, rows[i].line,
                    kernel ? kernel : "?");
      is_wrong = true;
    }
    texts_release(&texts);
  }
  assert_false(is_wrong);
}

// ---- whole kernels

static void make(const char* text, text_options_t options, texts_t* out_texts) {
  assert_ok(texts_make(text, options, qn_allocator_default(), out_texts));
}

static const char two_nests[] =
    "func f(x: f32[n, 64], out y: f32[n, 64]) {\n"
    "  block.x b in 0..n {\n"
    "    alloc s: f32[64] in shared;\n"
    "    thread.x t in 0..64 { s[t] = x[b, t]; barrier; y[b, t] = s[63 - t]; }\n"
    "  }\n"
    "}\n";

static void blocks_stride_and_meet(void** state) {
  (void)state;
  texts_t texts;
  make(two_nests, (text_options_t){.index_bits = 32}, &texts);
  assert_line(&texts, "extern \"C\" __global__ void __launch_bounds__(64) f_0(*");
  assert_line(&texts, "__shared__ __align__(16) float b*[64];");
  assert_line(&texts, "for (uint t* = qn_block_first; t* < t*; t* += qn_block_step) {");
  assert_int_equal(texts.program.kernels[0].plan->shared_bytes, 256);
  assert_int_equal(texts.program.kernels[0].plan->dynamic_shared_bytes, 0);
  // One within the block, one before the next block writes to shared memory again.
  const char* at = (const char*)texts.text.data;
  int count = 0;
  while ((at = strstr(at, "__syncthreads();"))) {
    at++;
    count++;
  }
  assert_int_equal(count, 2);
  texts_release(&texts);
}

static void pointers_are_const_where_they_can_be(void** state) {
  (void)state;
  texts_t texts;
  make(two_nests, (text_options_t){.index_bits = 32}, &texts);
  assert_line(&texts, "*const float* __restrict__ b*, float* __restrict__ b*");
  assert_no_line(&texts, "*qn_record*");
  texts_release(&texts);
}

static void large_shared_memory_is_dynamic(void** state) {
  (void)state;
  texts_t texts;
  static const char text[] =
      "func f(x: f32[n, 32], out y: f32[n, 32]) {\n"
      "  block.x b in 0..n {\n"
      "    alloc s: f32[20000] in shared;\n"
      "    alloc q: f64[10] in shared;\n"
      "    thread.x t in 0..32 {\n"
      "      s[t] = x[b, t]; if t == 0 { q[0] = 1.0; } barrier; y[b, t] = s[31 - t] + f32(q[0]);\n"
      "    }\n"
      "  }\n"
      "}\n";
  make(text, (text_options_t){"cuda -max_shared_memory_per_block=101376", 32, false}, &texts);
  assert_line(&texts, "extern __shared__ __align__(16) unsigned char qn_dynamic_shared_16[];");
  assert_line(&texts, "float* const b* = (float*)(qn_dynamic_shared_16 + 0);");
  assert_line(&texts, "double* const b* = (double*)(qn_dynamic_shared_16 + 80000);");
  assert_int_equal(texts.program.kernels[0].plan->shared_bytes, 0);
  assert_int_equal(texts.program.kernels[0].plan->dynamic_shared_bytes, 80080);
  texts_release(&texts);
}

static void wide_kernels_have_64_bits(void** state) {
  (void)state;
  texts_t texts;
  make(
      "func f(x: f32[n, m], out y: f32[n, m]) {\n"
      "  block.x i in 0..n { thread.x t in 0..1 { for j in 0..m { y[i, j] = x[i, j]; } } }\n"
      "}\n",
      (text_options_t){.index_bits = 64}, &texts);
  assert_line(&texts, "for (qn_u64 t* = qn_block_first; t* < t*; t* += qn_block_step) {");
  assert_line(&texts, "b*[qn_i64((qn_u64(v*) * qn_u64(v*)) + qn_u64(v*))] = b*[*];");
  texts_release(&texts);
}

static void failures_write_the_record_and_leave(void** state) {
  (void)state;
  texts_t texts;
  make_row("assert i4_[0] > 0, \"positive\"; i4_[i] = 1;", (text_options_t){.index_bits = 32},
           &texts);
  assert_line(&texts, "if (qn_failed != 0u && qn_failed != qn_tag) return;");
  assert_line(&texts, "qn_fail(qn_record, qn_tag, 0u, 0, 0);");
  assert_line(&texts, "return;");
  assert_true(texts.program.functions[0].site_count >= 1);
  assert_string_equal(texts.program.functions[0].sites[0].message, "positive");
  texts_release(&texts);
}

static void checked_builds_check(void** state) {
  (void)state;
  texts_t texts;
  make_row("f[i4_[i]] = w[i8_[i]]; i4_[i] = 7 // i4_[0];", (text_options_t){NULL, 32, true},
           &texts);
  assert_line(&texts, "if (!(uint(t*) < uint(v*))) {");
  assert_line(&texts, "if (!(qn_u64(t*) < qn_u64(t*))) {");
  assert_line(&texts, "if (!(t* != 0)) {");
  texts_release(&texts);
}

// In a branch that is not taken nothing is checked.
static void checks_of_lazy_operands_are_lazy(void** state) {
  (void)state;
  texts_t texts;
  make_row("f[i] = i4_[i] > 0 ? w[i4_[i]] : 0.0;", (text_options_t){NULL, 32, true}, &texts);
  const char* branch = strstr((const char*)texts.text.data, " > 0) {");
  assert_non_null(branch);
  const char* check = strstr(branch, "qn_fail(");
  const char* other = strstr(branch, "else");
  assert_non_null(check);
  assert_non_null(other);
  assert_true(check < other);
  texts_release(&texts);
}

static void fast_functions_contract(void** state) {
  (void)state;
  texts_t texts;
  make(
      "func f(a: f32[n], inout c: f32[n]) fast {\n"
      "  block.x i in 0..n { thread.x t in 0..1 {\n"
      "    c[i] = a[i] * c[i] + c[0]; c[i] = c[0] - a[i] * c[i];\n"
      "    c[i] = sum k in 0..n { a[k] * a[k] };\n"
      "  } }\n"
      "}\n",
      (text_options_t){.index_bits = 32}, &texts);
  assert_line(&texts, "b*[*] = qn_fma_f32(b*[*], b*[*], b*[0]);");
  assert_line(&texts, "b*[*] = qn_fma_f32((-b*[*]), b*[*], b*[0]);");
  assert_line(&texts, "t* = qn_fma_f32(b*[*], b*[*], t*);");
  texts_release(&texts);
}

// ---- the lines of the module

static void lines_lead_to_the_module(void** state) {
  (void)state;
  texts_t texts;
  make_row("f[i] = sqrt(f[0]); d[i] = 2.0;", (text_options_t){.index_bits = 32}, &texts);
  const uint32_t* lines = (const void*)texts.lines.data;
  size_t count = texts.lines.size / sizeof *lines;
  const char* at = (const char*)texts.text.data;
  bool is_seen = false;
  size_t line = 0;
  for (; *at; line++) {
    const char* end = strchr(at, '\n');
    assert_non_null(end);
    char copy[400];
    (void)snprintf(copy, sizeof copy, "%.*s", (int)(end - at), at);
    at = end + 1;
    assert_true(line < count);
    if (!strstr(copy, "= qn_sqrt_f32(b")) continue;
    const char* ir = (const char*)texts.module_text.data;
    for (uint32_t i = 1; i < lines[line]; i++) ir = strchr(ir, '\n') + 1;
    assert_true(lines[line] > 0);
    assert_true(strncmp(ir + strspn(ir, " "), "f[", 2) == 0);
    is_seen = true;
  }
  assert_int_equal(line, count);
  assert_true(is_seen);
  texts_release(&texts);
}

// ---- everything

static void everything_is_written(void** state) {
  (void)state;
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn_test_programs_of_operators(&text);
  qn_test_programs_of_threads(96, &text);
  for (int i = 0; i < 4; i++) {
    texts_t first, second;
    text_options_t options = {NULL, i & 2 ? 64 : 32, (i & 1) != 0};
    make((const char*)text.data, options, &first);
    make((const char*)text.data, options, &second);
    assert_int_equal(first.text.size, second.text.size);
    assert_memory_equal(first.text.data, second.text.data, first.text.size);
    assert_false(text_has_line(&first.text, "*(null)*"));
    texts_release(&first);
    texts_release(&second);
  }
  qn__buffer_deinit(&text);
}

static bool write_once(qn_allocator_t allocator, void* user) {
  texts_t texts;
  qn_status_t status = texts_make(user, (text_options_t){NULL, 32, true}, allocator, &texts);
  bool is_right = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  if (!is_right) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  texts_release(&texts);
  return is_right;
}

static void lack_of_memory_is_a_status(void** state) {
  (void)state;
  static char text[] =
      "func f(x: f32[n, 64], t: i64[n], out y: f32[n, 64]) {\n"
      "  block.x b in 0..n {\n"
      "    alloc s: f32[64] in shared;\n"
      "    const c: f32[2] = [1.0, 2.0];\n"
      "    thread.x i in 0..64 {\n"
      "      s[i] = x[t[b], i] * c[i % 2]; barrier; y[b, i] = sum k in 0..64 { s[k] };\n"
      "    }\n"
      "  }\n"
      "}\n";
  assert_true(qn_fault_walk_alloc(write_once, text) > 10);
}

// ---- wide accesses

static uint32_t count_of(const texts_t* texts, const char* word) {
  uint32_t count = 0;
  const char* at = (const char*)texts->text.data;
  while ((at = strstr(at, word))) {
    at++;
    count++;
  }
  return count;
}

static void neighbours_move_together(void** state) {
  (void)state;
  texts_t texts;
  make(
      "func f(a: f32, x: f32[n], inout y: f32[n]) { parallel i in 0..n { y[i] = a * x[i] + y[i]; "
      "} }",
      (text_options_t){.index_bits = 32}, &texts);
  assert_line(&texts, "const bool t* = ((((qn_u64)t* | (qn_u64)t*) & 15ull)) == 0ull;");
  assert_int_equal(count_of(&texts, "qn_wide_load<4>("), 2);
  assert_int_equal(count_of(&texts, "qn_wide_store<4>("), 1);
  assert_int_equal(count_of(&texts, "qn_each_move<4>("), 3);  // where they are not aligned
  assert_line(&texts, "t*[v*] = (v* * t*[v*]) + t*[v*];");
  texts_release(&texts);
  // 16 bytes of the widest element that is accessed side by side; what is not, stays.
  make(
      "func f(x: i8[n], h: f16[n], k: i32[n], z: f32[m], out y: f16[n]) { parallel i in 0..n {"
      " y[i] = f16(x[i]) + h[i] * f16(z[k[i]]) + f16(z[0]); } }",
      (text_options_t){.index_bits = 32}, &texts);
  assert_line(&texts,
              "const bool t* = ((((qn_u64)t*) & 15ull) | (((qn_u64)t* | (qn_u64)t*) & "
              "7ull) | (((qn_u64)t*) & 3ull)) == 0ull;");
  assert_int_equal(count_of(&texts, "qn_wide_load<4>("), 3);
  texts_release(&texts);
  make("func f(x: bf16[n], out y: bf16[n]) { parallel i in 0..n { y[i] = x[i] + 1.0; } }",
       (text_options_t){0}, &texts);
  assert_int_equal(count_of(&texts, "qn_wide_load<8>("), 2);  // narrow and wide indices
  assert_int_equal(count_of(&texts, "qn_wide_store<8>("), 2);
  texts_release(&texts);
}

static void rows_move_together(void** state) {
  (void)state;
  texts_t texts;
  make(
      "func f(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n {"
      " let s = sum j in 0..m { x[i, j] }; parallel j in 0..m { y[i, j] = x[i, j] / s; } } }",
      (text_options_t){.index_bits = 32}, &texts);
  assert_line(&texts, "if ((v* & 3) == 0) {");
  // Rows that are kept are read once, longer ones twice.
  assert_int_equal(count_of(&texts, "qn_wide_load<4>("), 3);
  assert_int_equal(count_of(&texts, "qn_wide_store<4>("), 2);
  texts_release(&texts);
}

// What may be moved in front of all lanes, or behind them, and what may not.
static void only_what_every_lane_does_is_moved(void** state) {
  (void)state;
  static const struct {
    const char* body;
    uint32_t loads;
    uint32_t stores;
  } cases[] = {
      // A load or store that only some lanes do.
      {"if x[i] > 0.0 { y[i] = z[i]; }", 1, 0},
      {"y[i] = x[i] > 0.0 ? z[i] : 0.0;", 1, 1},
      // Behind the store the lane has the element.
      {"y[i] = x[i]; w[i] = y[i] * 2.0;", 1, 2},
      // Two stores to one buffer, of which the last one counts.
      {"y[i] = x[i]; y[i] = z[i] + y[i];", 2, 0},
      {"if x[i] > 0.0 { w[i] = y[i]; } y[i] = z[i];", 2, 1},
      // Not side by side, and the wrong way round.
      {"y[i] = x[2 * i];", 0, 1},
      {"y[i] = x[n - 1 - i];", 0, 1},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    char text[512];
    (void)snprintf(text, sizeof text,
                   "func f(x: f32[2 * n], z: f32[n], inout y: f32[n], inout w: f32[n]) {"
                   " parallel i in 0..n { %s } }",
                   cases[i].body);
    texts_t texts;
    make(text, (text_options_t){.index_bits = 32}, &texts);
    if (count_of(&texts, "qn_wide_load<4>(") != cases[i].loads ||
        count_of(&texts, "qn_wide_store<4>(") != cases[i].stores) {
      (void)fprintf(stderr, "%s\n%s\n", cases[i].body, (const char*)texts.text.data);
    }
    assert_int_equal(count_of(&texts, "qn_wide_load<4>("), cases[i].loads);
    assert_int_equal(count_of(&texts, "qn_wide_store<4>("), cases[i].stores);
    texts_release(&texts);
    make(text, (text_options_t){.index_bits = 32, .is_checked = true}, &texts);
    assert_int_equal(count_of(&texts, "qn_wide_"), 0);
    texts_release(&texts);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constructs_are_written_so),
      cmocka_unit_test(blocks_stride_and_meet),
      cmocka_unit_test(pointers_are_const_where_they_can_be),
      cmocka_unit_test(large_shared_memory_is_dynamic),
      cmocka_unit_test(wide_kernels_have_64_bits),
      cmocka_unit_test(failures_write_the_record_and_leave),
      cmocka_unit_test(checked_builds_check),
      cmocka_unit_test(checks_of_lazy_operands_are_lazy),
      cmocka_unit_test(fast_functions_contract),
      cmocka_unit_test(neighbours_move_together),
      cmocka_unit_test(rows_move_together),
      cmocka_unit_test(only_what_every_lane_does_is_moved),
      cmocka_unit_test(lines_lead_to_the_module),
      cmocka_unit_test(everything_is_written),
      cmocka_unit_test(lack_of_memory_is_a_status),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
