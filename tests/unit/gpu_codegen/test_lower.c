// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/test_lower.c: tests lowering of modules to plans, as text: refusals,
// names, error records, sites, and failing allocations. Most modules are mapped by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/fault.h"
#include "tests/unit/gpu_codegen/support_plan.h"

// What follows in the plan is how the mapping likes it.
static void check_begin(const char* text, const qn__gpu_lower_options_t* options,
                        const char* expected) {
  lowered_t lowered;
  qn_status_t status = lower_text(text, options, qn_allocator_default(), &lowered);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  char* shown = plan_text(&lowered.program.plan);
  assert_true(strlen(shown) > strlen(expected));
  shown[strlen(expected)] = '\0';
  assert_string_equal(shown, expected);
  free(shown);
  lowered_release(&lowered);
}

static void check(const char* text, const qn__gpu_lower_options_t* options, const char* expected) {
  lowered_t lowered;
  qn_status_t status = lower_text(text, options, qn_allocator_default(), &lowered);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  decode_again(&lowered, &arena, &plan);
  char* shown = plan_text(&plan);
  assert_string_equal(shown, expected);
  free(shown);
  qn__arena_deinit(&arena);
  lowered_release(&lowered);
}

static const char host_text[] =
    "func host(k: i32, x: f32[n], out y: f32[n]) {\n"
    "  let steps = i64(k) * 2;\n"
    "  assert steps < n, \"too many steps\";\n"
    "  if n > 8 {\n"
    "    for r in 0..steps {\n"
    "      parallel b in 0..n {\n"
    "        y[b] = y[b] + x[b] * f32(r);\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "}\n";

static const char divide_text[] =
    "func divide(d: i64, x: f32[n], out y: f32[n, 32]) {\n"
    "  let q = d > 3 ? n // d : 1;\n"
    "  block.x b in 0..n {\n"
    "    thread.x t in 0..32 {\n"
    "      y[b, t] = x[b] + f32(q);\n"
    "    }\n"
    "  }\n"
    "}\n";

static const char memory_text[] =
    "func memory(x: f32[n, m], out y: f32[n, m]) {\n"
    "  alloc a: f64[n, m + 1] in global;\n"
    "  block.x b in 0..n {\n"
    "    thread.x t in 0..m {\n"
    "      a[b, t] = f64(x[b, t]);\n"
    "    }\n"
    "  }\n"
    "  block.x b in 0..n {\n"
    "    thread.x t in 0..m {\n"
    "      y[b, t] = f32(a[b, t]);\n"
    "    }\n"
    "  }\n"
    "}\n";

static const char constant_text[] =
    "func constant(x: f32[64, 64], out y: f32[64, 64]) {\n"
    "  block.x b in 0..64 {\n"
    "    thread.x t in 0..64 {\n"
    "      y[b, t] = x[t, b];\n"
    "    }\n"
    "  }\n"
    "}\n";

static const char meet_text[] =
    "func meet(x: f32[n], out y: f32[4, n]) {\n"
    "  block.x b in 0..4 {\n"
    "    alloc s: f32[512] in shared;\n"
    "    thread.x t in 0..n {\n"
    "      s[t] = x[t];\n"
    "      barrier;\n"
    "      y[b, t] = s[n - 1 - t];\n"
    "    }\n"
    "  }\n"
    "}\n";

static const char many_text[] =
    "func many(x: f32[n], out y: f32[4, 2000]) {\n"
    "  block.x b in 0..4 {\n"
    "    thread.x t in 0..2000 {\n"
    "      let a = x[t];\n"
    "      barrier;\n"
    "      y[b, t] = a;\n"
    "    }\n"
    "  }\n"
    "}\n";

static void what_the_host_runs(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  check_begin(host_text, &options,
              "l0 = (w0 * 2)\n"
              "assert 0 (l0 < w3)\n"
              "if (w3 > 8) [2, 0]\n"
              "for l1 in 0..l0 [1]\n");
}

static void memory_between_launches(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  check(memory_text, &options,
        "assert 0 (w2 >= 0)\n"
        "assert 1 ((w3 + 1) >= 0)\n"
        "x0 = bytes ((8 * w2) * (w3 + 1))\n"
        "launch memory_0(b0 x0! w2 w3) blocks w2 threads 256 guard (((w3 | w2) >= 0) && "
        "(max(max(max((w2 * w3), (w2 * (w3 + 1))), w3), w2) <= 2147483647)) else memory_1\n"
        "launch memory_2(b1! x0 w2 w3) blocks w2 threads 256 guard (((w3 | w2) >= 0) && "
        "(max(max(max((w2 * (w3 + 1)), (w2 * w3)), w3), w2) <= 2147483647)) else memory_3\n");
}

static void constant_shapes_need_no_guard(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  check(constant_text, &options, "launch constant_0(b0 b1!) blocks 64 threads 64 guard -\n");
  options.index_bits = 64;
  check(constant_text, &options, "launch constant_0(b0 b1!) blocks 64 threads 64 guard -\n");
}

static const char product_text[] =
    "func product(a: f32[m, 64], b: f32[64, 96], out c: f32[m, 96]) {\n"
    "  parallel i in 0..m { parallel j in 0..96 {\n"
    "    c[i, j] = sum p in 0..64 { a[i, p] * b[p, j] }; } }\n"
    "}\n";

// Few rows have a kernel of their own, without a wide one: the other arm has that.
static void extents_of_a_call_choose(void** state) {
  (void)state;
  static const char* const parts[][3] = {
      {"if (w3 <= 16) guard ((w3 >= 0) && ",
       " [1, 1]\nlaunch product_0(b0 b1 b2! w3) blocks (ceildiv(w3, 16) * 3) threads 256 guard -\n"
       "launch product_1(b0 b1 b2! w3) blocks (ceildiv(w3, 64) * 2) threads 256 guard ((w3 >= 0)",
       " else product_2\n"},
      {"if (w3 <= 16) guard ((w3 >= 0) && ", " threads 256 guard -\nlaunch product_1(",
       " threads 256 guard ((w3 >= 0)"},
      {"if (w3 <= 16) [1, 1]\nlaunch product_0(", " threads 256 guard -\nlaunch product_1(",
       " blocks (ceildiv(w3, 64) * 2) threads 256 guard -\n"},
  };
  static const uint32_t index_bits[] = {0, 32, 64}, kernels[] = {3, 2, 2};
  for (size_t i = 0; i < QN_COUNT_OF(parts); i++) {
    qn__gpu_lower_options_t options = lower_options();
    options.index_bits = index_bits[i];
    lowered_t lowered;
    assert_true(qn_ok(lower_text(product_text, &options, qn_allocator_default(), &lowered)));
    assert_int_equal(lowered.program.plan.kernel_count, kernels[i]);
    char* shown = plan_text(&lowered.program.plan);
    const char* rest = shown;
    for (size_t p = 0; p < QN_COUNT_OF(parts[i]); p++) {
      const char* found = strstr(rest, parts[i][p]);
      if (!found || (p == 0 && found != shown)) fail_msg("no '%s' in\n%s", parts[i][p], rest);
      rest = found + strlen(parts[i][p]);
    }
    free(shown);
    lowered_release(&lowered);
  }
}

static void threads_that_meet_are_exact(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  check(meet_text, &options,
        "launch meet_0(b0 b1! w2) blocks 4 threads w2 guard ((w2 >= 0) && (max((w2 * 4), w2) <= "
        "2147483647)) else meet_1\n");
  lowered_t lowered;
  qn_status_t status = lower_text(many_text, &options, qn_allocator_default(), &lowered);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNSUPPORTED);
  assert_non_null(strstr(qn_status_message(status), "function 'many': a block of 2000 threads"));
  qn_status_free(status);
}

static void one_width_of_indices(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  options.index_bits = 64;
  check(divide_text, &options,
        "l0 = select((w0 > 3), (w3 // w0), 1)\n"
        "launch divide_0(b1 b2! w3 l0) blocks w3 threads 32 guard -\n");
  options.index_bits = 32;
  check(divide_text, &options,
        "l0 = select((w0 > 3), (w3 // w0), 1)\n"
        "launch divide_0(b1 b2! w3 l0) blocks w3 threads 32 guard (((w3 >= 0) && (max(max(l0, (w3 "
        "* 32)), w3) <= 2147483647)) && (l0 >= -2147483648))\n");
}

static void a_checked_build_tests_the_host_too(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  options.passes.is_checked = true;
  check(divide_text, &options,
        "assert 0 ((w0 != 0) || !((w0 > 3)))\n"
        "l0 = select((w0 > 3), (w3 // w0), 1)\n"
        "launch divide_0(b1 b2! w3 l0) record blocks w3 threads 32 guard (((w3 >= 0) && "
        "(max(max(l0, (w3 * 32)), w3) <= 2147483647)) && (l0 >= -2147483648)) else divide_1\n");
}

static void functions_have_their_sites(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  lowered_t lowered;
  qn_status_t status = lower_text(host_text, &options, qn_allocator_default(), &lowered);
  assert_true(qn_ok(status));
  const qn__gpu_function_ir_t* function = &lowered.program.functions[0];
  assert_int_equal(function->launch_count, 1);
  assert_false(function->has_record);
  assert_int_equal(function->site_count, 1);
  assert_string_equal(function->sites[0].message, "too many steps");
  qn__buffer_t payload;
  qn__buffer_init(&payload, qn_allocator_default());
  qn__buffer_cstr(&payload, "code");
  qn_artifact_t* artifact;
  status = qn__gpu_artifact(&lowered.program, "format-1", "{}", &payload, qn_allocator_default(),
                            &artifact);
  assert_true(qn_ok(status));
  lowered_release(&lowered);
  assert_string_equal(artifact->format, "format-1");
  assert_int_equal(artifact->payload_size, 4);
  assert_memory_equal(artifact->payload, "code", 4);
  assert_int_equal(artifact->function_count, 1);
  assert_string_equal(artifact->functions[0].name, "host");
  assert_int_equal(artifact->functions[0].launch_count, 1);
  assert_false(artifact->functions[0].has_32_bit_indices);
  assert_string_equal(artifact->functions[0].sites[0].message, "too many steps");
  artifact->release(artifact);
  qn__buffer_deinit(&payload);
}

static void extents_of_memory_are_sites(void** state) {
  (void)state;
  qn__gpu_lower_options_t options = lower_options();
  options.index_bits = 32;
  lowered_t lowered;
  qn_status_t status = lower_text(memory_text, &options, qn_allocator_default(), &lowered);
  assert_true(qn_ok(status));
  const qn__gpu_function_ir_t* function = &lowered.program.functions[0];
  assert_int_equal(function->site_count, 3);
  for (uint32_t i = 0; i < 3; i++) {
    assert_int_equal(function->sites[i].kind, i < 2 ? QN_SITE_EXTENT : QN_SITE_MEMORY);
    assert_int_equal(function->sites[i].buffer_id, 2);
    assert_int_equal(function->sites[i].dim, i == 1);
  }
  qn__buffer_t payload;
  qn__buffer_init(&payload, qn_allocator_default());
  qn_artifact_t* artifact;
  status =
      qn__gpu_artifact(&lowered.program, "f", "{}", &payload, qn_allocator_default(), &artifact);
  assert_true(qn_ok(status));
  assert_true(artifact->functions[0].has_32_bit_indices);
  artifact->release(artifact);
  qn__buffer_deinit(&payload);
  lowered_release(&lowered);
}

// Every sample becomes a plan that decodes, in every build.
static void samples(void** state) {
  (void)state;
  static const char* const files[] = {
      "block_norm",  "embed_layernorm", "fir_filter", "histogram",        "matmul_tile",
      "newton_sqrt", "saxpy",           "softmax",    "transpose_shared", "two_launches"};
  for (size_t i = 0; i < QN_COUNT_OF(files); i++) {
    char path[128];
    (void)snprintf(path, sizeof path, "examples/ir/%s.qn", files[i]);
    char* text = read_source(path);
    for (uint32_t kind = 0; kind < 6; kind++) {
      qn__gpu_lower_options_t options = lower_options();
      options.passes.is_checked = kind % 2 != 0;
      options.index_bits = kind / 2 * 32;
      lowered_t lowered;
      qn_status_t status = lower_text(text, &options, qn_allocator_default(), &lowered);
      if (!qn_ok(status)) fail_msg("%s: %s", files[i], qn_status_message(status));
      qn__arena_t arena;
      qn__arena_init(&arena, qn_allocator_default());
      qn__gpu_plan_t plan;
      decode_again(&lowered, &arena, &plan);
      assert_int_equal(plan.kernel_count, lowered.program.kernel_count);
      for (uint32_t k = 0; k < plan.kernel_count; k++) {
        assert_true(lowered.program.kernels[k].is_narrow || options.index_bits != 32);
        for (uint32_t other = 0; other < k; other++) {
          assert_string_not_equal(plan.kernels[k].name, plan.kernels[other].name);
        }
      }
      qn__arena_deinit(&arena);
      lowered_release(&lowered);
    }
    free(text);
  }
}

static bool lower_with(qn_allocator_t allocator, void* user) {
  qn__gpu_lower_options_t options = lower_options();
  lowered_t lowered;
  qn_status_t status = lower_text(user, &options, allocator, &lowered);
  if (qn_ok(status)) lowered_release(&lowered);
  qn_status_code_t code = qn_status_consume(status);
  return code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY;
}

static void memory_runs_out(void** state) {
  (void)state;
  char* text = read_source("examples/ir/two_launches.qn");
  assert_true(qn_fault_walk_alloc(lower_with, text) > 5);
  free(text);
}

// Each let uses the one before twice: whoever asks both ways asks 2^n times.
static void chains_of_the_host_take_no_time(void** state) {
  (void)state;
  char text[8192];
  int size = snprintf(text, sizeof text, "func f(k: i64, out y: i64[n]) {\n  let a0 = k + n;\n");
  for (int i = 1; i < 60; i++) {
    size += snprintf(text + size, sizeof text - (size_t)size,
                     "  let a%d = max(a%d, 1) // (min(a%d, 7) + 9);\n", i, i - 1, i - 1);
  }
  (void)snprintf(text + size, sizeof text - (size_t)size,
                 "  parallel i in 0..n { y[(i + a59) %% n] = a59 + i; }\n}\n");
  qn__gpu_lower_options_t options = {.passes = {.max_threads = 256}};
  lowered_t lowered;
  qn_status_t status = lower_text(text, &options, qn_allocator_default(), &lowered);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  lowered_release(&lowered);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chains_of_the_host_take_no_time),
      cmocka_unit_test(what_the_host_runs),
      cmocka_unit_test(memory_between_launches),
      cmocka_unit_test(constant_shapes_need_no_guard),
      cmocka_unit_test(extents_of_a_call_choose),
      cmocka_unit_test(threads_that_meet_are_exact),
      cmocka_unit_test(one_width_of_indices),
      cmocka_unit_test(a_checked_build_tests_the_host_too),
      cmocka_unit_test(functions_have_their_sites),
      cmocka_unit_test(extents_of_memory_are_sites),
      cmocka_unit_test(samples),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
