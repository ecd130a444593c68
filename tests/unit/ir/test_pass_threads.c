// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_threads.c: blocks and threads as loops, unrolling, views, and the
// pipeline without memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support_pass.h"
#include "tests/support/fault.h"

static void expect(const qn__pass_t* pass, const char* text, const char* expected) {
  qn_test_expect(pass, &qn_test_avx2, text, expected);
}

// ---- serialize_threads

static void threads_without_barrier(void** state) {
  (void)state;
  expect(&qn__pass_serialize_threads,
         "func f(out y: i64[n]) { block.x b in 0..ceildiv(n, 8) { thread.x t in 0..8 {"
         "  let i = b * 8 + t; if i < n { y[i] = i; } } } }",
         "parallel b in 0..ceildiv(n, 8) {\n parallel t in 0..8 {\n let i = b * 8 + t;\n"
         " if i < n {\n y[i] = i;");
}

static void blocks_become_one_launch(void** state) {
  (void)state;
  expect(&qn__pass_serialize_threads,
         "func f(out y: i64[n, m]) { block.y i in 0..n { block.x j in 2..m {"
         "  y[i, j] = i; } } }",
         "parallel block in 0..max(n, 0) * max(m - 2, 0) {\n"
         " let i = block // max(m - 2, 0);\n let j = 2 + block % max(m - 2, 0);\n"
         " y[i, j] = i;");
}

static void cut_at_a_barrier(void** state) {
  (void)state;
  expect(&qn__pass_serialize_threads,
         "func f(x: f32[n], out y: f32[n]) { block.x b in 0..ceildiv(n, 8) {"
         "  alloc s: f32[8] in shared;"
         "  thread.x t in 0..8 {"
         "    let i = b * 8 + t;"           // computed again
         "    let v = i < n ? x[i] : 0.0;"  // kept
         "    alloc p: f32[2] in local;"    // laid out over the threads
         "    p[0] = v;"
         "    s[t] = v;"
         "    barrier;"
         "    if i < n { y[i] = s[7 - t] + v + p[0]; }"
         "  } } }",
         "alloc s: f32[8] in local;\n"
         "alloc v: f32[8] in local;\n"
         "alloc p: f32[2, 8] in local;\n"
         "parallel t in 0..8 {\n"
         "let i = b * 8 + t;\n"
         "let v_1 = i < n ? x[i] : 0.0;\n"
         "v[t] = v_1;\n"
         "p[0, t] = v_1;\n"
         "s[t] = v_1;\n"
         "}\n"
         "parallel t in 0..8 {\n"
         "let i = b * 8 + t;\n"
         "! barrier;\n"
         "if i < n {");
}

// Views of a buffer that is laid out over the threads step over the other threads' elements.
static void views_of_kept_buffers(void** state) {
  (void)state;
  static const char text[] =
      "func f(x: f32[n], out y: f32[n]) { block.x b in 0..1 { thread.x t in 0..8 {"
      "  alloc p: f32[2, 3] in local; view q: f32[6] = p[0, 0]; view r: f32[2] strides [2] = q[1];"
      "  for k in 0..6 { q[k] = x[k]; } barrier; y[t] = q[5] + r[1]; } } }";
  expect(&qn__pass_serialize_threads, text,
         "alloc p: f32[2, 3, 8] in local;\n"
         "view q: f32[6] strides [1 * 8] = p[0, 0, t];\n"
         "view q: f32[6] strides [1 * 8] = p[0, 0, t];\n"
         "view r: f32[2] strides [2 * 8] = q[1];\n"
         "y[t] = q[5] + r[1];");
}

static void places_of_views_are_loaded_once(void** state) {
  (void)state;
  expect(&qn__pass_serialize_threads,
         "func f(x: f32[n], out y: f32[8]) { block.x b in 0..1 { thread.x t in 0..8 {"
         "  alloc c: i64[] in local; c[] = t; view q: f32[1] = x[c[]]; c[] = 0; barrier;"
         "  y[t] = q[0]; } } }",
         "let place_1 = c[];\n place[t] = place_1;\n view q: f32[1] = x[place_1];\n c[] = 0;\n"
         "let place_2 = place[t];\n view q: f32[1] = x[place_2];\n y[t] = q[0];");
}

static void barriers_in_uniform_control_flow(void** state) {
  (void)state;
  expect(&qn__pass_serialize_threads,
         "func f(out y: i64[8]) { block.x b in 0..1 { alloc s: i64[8] in shared;"
         "  thread.x t in 0..8 { let rounds = 3; s[t] = t;"
         "    for k in 0..rounds { barrier; let o = s[(t + 1) % 8]; barrier; s[t] = o; }"
         "    barrier; if s[0] > 2 { y[t] = s[t]; barrier; y[t] = y[t] + 1; } } } }",
         "for k in 0..3 {\n"
         "parallel t in 0..8 {\n"
         "let o_1 = s[(t + 1) % 8];\n"
         "parallel t in 0..8 {\n"
         "s[t] = o_2;\n"
         "if s[0] > 2 {\n"
         "parallel t in 0..8 {\n"
         "parallel t in 0..8 {\n"
         "y[t] = y[t] + 1;");
}

// The extent of an array over threads is that of their loop, and no part runs without threads.
static void extents_of_the_call(void** state) {
  (void)state;
  expect(&qn__pass_serialize_threads,
         "func f(x: i64[n], out y: i64[n]) { block.x b in 0..1 { alloc s: i64[64] in shared;"
         "  thread.x t in 2..n { alloc own: i64[3] in local; view v: i64[2] = own[1];"
         "    v[1] = x[t]; s[t] = t; barrier; if s[2] > 0 { barrier; y[t] = v[1] + s[t]; } } } }",
         "if 2 < n {\n"
         "alloc own: i64[3, n - 2] in local;\n"
         "parallel t in 2..n {\n"
         "if s[2] > 0 {\n"
         "parallel t in 2..n {\n");
}

static void what_a_cpu_cannot(void** state) {
  (void)state;
  const qn__pass_t* pass = &qn__pass_serialize_threads;
  char* text;
  qn_status_t status = qn_test_try(
      "func f(out y: i64[2, n + 1]) { block.x b in 0..1 { thread.y u in 0..2 { let m = n + 1;"
      "  thread.x t in 0..m { y[u, t] = 1; barrier; y[u, t] = 2; } } } }",
      qn_allocator_default(), &qn_test_avx2, &pass, 1, &text);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
  assert_string_equal(qn_status_message(status),
                      "function 'f': the extent of thread loop 't' must not depend on a let inside "
                      "of another thread loop for a barrier inside it on a cpu");
  qn_status_free(status);
}

// ---- unroll

static void unrolls(void** state) {
  (void)state;
  expect(&qn__pass_unroll,
         "func f(out y: i64[n, 4]) { parallel i in 0..n { unroll u in 1..3 { let a = u * 2;"
         "  y[i, u] = a; } } }",
         "let a = 1 * 2;\n y[i, 1] = a;\n let a_1 = 2 * 2;\n y[i, 2] = a_1;\n ! y[i, 3] = a;");
  expect(
      &qn__pass_unroll,
      "func f(out y: i64[n, 100]) { parallel i in 0..n { unroll u in 0..100 { y[i, u] = u; } } }",
      "for u in 0..100 {");
  // Growth is bounded: the outer loops of a deep nest stay loops.
  expect(&qn__pass_unroll,
         "func f(out y: i64[64, 64, 64]) { for i in 0..1 { unroll a in 0..64 { unroll b in 0..64 {"
         "  unroll c in 0..64 { y[a, b, c] = a + b + c; } } } } }",
         "for a in 0..64 {\n for b in 0..64 {\n y[a, b, 0] = a + b + 0;");
}

// ---- lower_views

static void dissolves_views(void** state) {
  (void)state;
  expect(&qn__pass_lower_views,
         "func f(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n {"
         "  view row: f32[m] = x[i, 0]; view out_row: f32[m] = y[i, 0];"
         "  for j in 0..m { out_row[j] = row[j]; } } }",
         "parallel i in 0..n {\n for j in 0..m {\n y[i, j] = x[i, j];");
  // A view of a view, with a start that is worked out once.
  expect(&qn__pass_lower_views,
         "func f(x: f32[64], out y: f32[8]) { for i in 0..8 { view a: f32[32] = x[i * 4];"
         "  view b: f32[8] = a[3]; y[i] = b[i]; } }",
         "let start = i * 4;\n let start_1 = start + 3;\n y[i] = x[start_1 + i];");
  // A matrix seen as a vector stays, with its strides written out; so does a part of a row that
  // might run on into the next one.
  expect(&qn__pass_lower_views,
         "func f(x: f32[n, m], out y: f32[n]) { for i in 0..n { view v: f32[n * m] = x[0, 0];"
         "  y[i] = v[i]; } }",
         "view v: f32[n * m] strides [1] = x[0, 0];\n y[i] = v[i];");
  expect(&qn__pass_lower_views,
         "func f(x: f32[n, m], out y: f32[n]) { for i in 0..n { view v: f32[4] = x[i, 2];"
         "  y[i] = v[1]; } }",
         "view v: f32[4] strides [1] = x[i, 2];");
  qn_test_expect(&qn__pass_lower_views, &qn_test_checked,
                 "func f(x: f32[n, m], out y: f32[n]) { for i in 0..n { view v: f32[m] = x[i, 0];"
                 "  y[i] = v[i]; } }",
                 "view v: f32[m] strides [1] = x[i, 0];\n y[i] = v[i];");
}

// ---- all of them

static const char everything[] =
    "func f(x: f32[n, m], inout y: f32[n]) { alloc w: f32[n] in global;"
    "  parallel i in 0..n { w[i] = sum j in 0..m { let d = x[i, j] * (2.0 + 1.0); d * d }; }"
    "  block.y a in 0..2 { block.x b in 0..ceildiv(n, 8) { alloc s: f32[8] in shared;"
    "    thread.x t in 0..8 { let i = b * 8 + t; let v = i < n ? w[i] : 0.0;"
    "      alloc p: f32[2] in local; p[0] = v; s[t] = v; barrier;"
    "      for k in 0..2 { barrier; view q: f32[2] = s[0]; p[1] = q[k]; barrier; }"
    "      unroll u in 0..2 { if i < n && a == 0 { y[i] = s[7 - t] * p[u] + x[i, u]; } } } } } }";

static bool walk(qn_allocator_t allocator, void* user) {
  (void)user;
  static const qn__pass_t* const passes[] = {
      &qn__pass_lower_views, &qn__pass_serialize_threads, &qn__pass_unroll, &qn__pass_simplify,
      &qn__pass_hoist,       &qn__pass_vectorize,
  };
  char* text;
  qn_status_t status =
      qn_test_try(everything, allocator, &qn_test_avx2, passes, QN_COUNT_OF(passes), &text);
  bool is_right =
      qn_ok(status) ? text != NULL : qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY && !text;
  free(text);
  qn_status_free(status);
  return is_right;
}

static void survives_without_memory(void** state) {
  (void)state;
  assert_true(qn_fault_walk_alloc(walk, NULL) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_without_barrier),
      cmocka_unit_test(blocks_become_one_launch),
      cmocka_unit_test(cut_at_a_barrier),
      cmocka_unit_test(views_of_kept_buffers),
      cmocka_unit_test(places_of_views_are_loaded_once),
      cmocka_unit_test(barriers_in_uniform_control_flow),
      cmocka_unit_test(extents_of_the_call),
      cmocka_unit_test(what_a_cpu_cannot),
      cmocka_unit_test(unrolls),
      cmocka_unit_test(dissolves_views),
      cmocka_unit_test(survives_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
