// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_parts.c: long blocks, which are emitted as several functions: their results,
// failures and workspace, and that no function grows with the number of statements.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_oracle.h"

enum { TEXT_BYTES = 1 << 19 };

typedef struct text {
  char* data;
  size_t size;
} text_t;

__attribute__((format(printf, 2, 3))) static void add(text_t* text, const char* format, ...) {
  if (!text->data) text->data = calloc(TEXT_BYTES, 1);
  assert_non_null(text->data);
  va_list args;
  va_start(args, format);
  int size = vsnprintf(text->data + text->size, TEXT_BYTES - text->size, format, args);
  va_end(args);
  assert_true(size >= 0 && text->size + (size_t)size < TEXT_BYTES);
  text->size += (size_t)size;
}

static qn_module_t* parse(text_t* text) {
  qn_module_t* module = parse_or_die(text->data);
  free(text->data);
  *text = (text_t){NULL, 0};
  return module;
}

// ------------------------------------------------------------------------------------ results

static void check_results(const qn_module_t* module, const char* name) {
  static const char* const cpus[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  enum { MAX_KERNELS = 9 };
  kernels_t* kernels[MAX_KERNELS];
  size_t count = 0;
  for (size_t i = 0; i < QN_COUNT_OF(cpus); ++i) {
    for (int kind = 0; kind < 3 && build_can_run(cpus[i]); ++kind) {
      build_t build = {.cpu = cpus[i], .is_fast = kind == 1, .is_checked = kind == 2};
      qn_status_t error;
      kernels[count] = kernels_create(module, build, false, &error);
      if (!kernels[count]) fail_msg("%s: %s", name, qn_status_message(error));
      ++count;
    }
  }
  static const int64_t extents[] = {0, 1, 7, 33, 70};
  for (size_t i = 0; i < QN_COUNT_OF(extents); ++i) {
    int64_t symbols[] = {extents[i], extents[QN_COUNT_OF(extents) - 1 - i]};
    oracle_case_t test = {
        .function = module->functions[0], .symbols = symbols, .seed = i + 1, .tolerance = 1e-5};
    const char* problem = oracle_compare(&test, 0, kernels, count);
    if (problem) fail_msg("%s, extent %" PRId64 ": %s", name, extents[i], problem);
  }
  for (size_t i = 0; i < count; ++i) kernels_destroy(kernels[i]);
}

// Launches, serial loops and conditions that use variables, views, workspace, tables and arrays of
// the kernel, among declarations that stay in it.
static void long_kernels_agree(void** state) {
  (void)state;
  text_t text = {NULL, 0};
  add(&text,
      "func f(a: f32, flags: i32[n], x: f32[n, m], inout y: f32[n, m]) {\n"
      "  alloc few: f32[4] in local;\n"
      "  for i in 0..4 { few[i] = a + f32(i); }\n"
      "  let half = n // 2;\n");
  for (int k = 0; k < 30; ++k) {
    add(&text, "  let v%d = half + %d;\n", k, k);
    add(&text, "  parallel i in 0..n { for j in 0..m { y[i, j] = y[i, j] * 0.5 + x[i, j]; } }\n");
    add(&text, "  for i in 0..n { for j in 0..m { if i < v%d { y[i, j] = y[i, j] + a; } } }\n", k);
    add(&text, "  for j in 0..m { parallel i in 0..n { y[i, j] = y[i, j] - 0.25; } }\n");
    add(&text, "  if half > %d { parallel i in 0..n { for j in 0..m { y[i, j] = f32(v%d); } } }\n",
        k + 2, k);
    if (k % 3 == 0) {
      add(&text, "  alloc w%d: f32[n, v%d + 1] in global;\n", k, k);
      add(&text, "  parallel i in 0..n { for j in 0..v%d { w%d[i, j] = f32(i - j); } }\n", k, k);
      add(&text, "  for i in 0..n { for j in 0..m { y[i, j] = y[i, j] + w%d[i, 0]; } }\n", k);
    }
    if (k % 5 == 0) add(&text, "  for i in 0..4 { few[i] = few[i] * 0.5; }\n");
    if (k % 5 == 1) add(&text, "  for i in 0..n { for j in 0..m { y[i, j] = few[i %% 4]; } }\n");
  }
  add(&text, "}\n");
  qn_module_t* module = parse(&text);
  check_results(module, "kernel");
  qn_module_release(module);
}

// The same inside of a launch, and inside of a serial loop of a kernel.
static void long_bodies_agree(void** state) {
  (void)state;
  static const char* const loops[] = {"parallel", "for"};
  for (size_t form = 0; form < QN_COUNT_OF(loops); ++form) {
    text_t text = {NULL, 0};
    add(&text,
        "func f(a: f32, x: f32[n, m], inout y: f32[n, m]) {\n"
        "  let twice = a * 2.0;\n"
        "  for t in 0..2 {\n"
        "  %s i in 0..n {\n"
        "    alloc few: f32[8] in local;\n"
        "    for j in 0..8 { few[j] = a + f32(i + t); }\n",
        loops[form]);
    for (int k = 0; k < 40; ++k) {
      add(&text, "    let v%d = i + %d;\n", k, k);
      add(&text, "    for j in 0..m { y[i, j] = y[i, j] * 0.5 + f32(v%d) * twice; }\n", k);
      add(&text, "    if v%d %% 3 == 0 { y[i, 0] = y[i, 0] + sum j in 0..m { x[i, j] }; }\n", k);
      if (k % 8 == 3) add(&text, "    for j in 0..8 { few[j] = few[j] * 0.5 + 1.0; }\n");
      if (k % 8 == 5) add(&text, "    for j in 0..m { y[i, j] = y[i, j] + few[j %% 8]; }\n");
    }
    add(&text, "  }\n  }\n}\n");
    qn_module_t* module = parse(&text);
    enum { SOME = 2 };
    static const int64_t extents[SOME][2] = {{33, 7}, {5, 70}};
    build_t builds[] = {{.cpu = "x86-64"},
                        {.cpu = "x86-64", .is_fast = true},
                        {.cpu = "x86-64", .is_checked = true}};
    kernels_t* kernels[QN_COUNT_OF(builds)];
    for (size_t i = 0; i < QN_COUNT_OF(builds); ++i) {
      qn_status_t error;
      kernels[i] = kernels_create(module, builds[i], false, &error);
      if (!kernels[i]) fail_msg("%s", qn_status_message(error));
    }
    for (size_t i = 0; i < SOME; ++i) {
      oracle_case_t test = {.function = module->functions[0],
                            .symbols = extents[i],
                            .seed = i + 1,
                            .tolerance = 1e-5};
      const char* problem = oracle_compare(&test, 0, kernels, QN_COUNT_OF(builds));
      if (problem) fail_msg("%s: %s", loops[form], problem);
    }
    for (size_t i = 0; i < QN_COUNT_OF(builds); ++i) kernels_destroy(kernels[i]);
    qn_module_release(module);
  }
}

// ------------------------------------------------------------------------------------ failures

enum { WORKSPACES = 24 };

static qn_module_t* failing_module(void) {
  text_t text = {NULL, 0};
  add(&text, "func f(x: f32[n], inout y: f32[n], limit: i64) {\n");
  for (int k = 0; k < WORKSPACES; ++k) {
    add(&text, "  alloc w%d: f32[n] in global;\n", k);
    add(&text, "  for i in 0..n { w%d[i] = x[i]; }\n", k);
    add(&text, "  for i in 0..n { for j in 0..2 { y[i] = y[i] + w%d[i]; } }\n", k);
    add(&text, "  for i in 0..n { assert limit != %d, \"part %d\"; }\n", k, k);
  }
  add(&text, "}\n");
  return parse(&text);
}

// A failure in a part leaves the kernel, which releases the workspace held by then.
static void parts_fail(void** state) {
  (void)state;
  qn_module_t* module = failing_module();
  for (int is_fast = 0; is_fast < 2; ++is_fast) {
    qn_status_t error;
    build_t build = {.cpu = "x86-64", .is_fast = is_fast};
    kernels_t* kernels = kernels_create(module, build, false, &error);
    if (!kernels) fail_msg("%s", qn_status_message(error));
    for (int at = 0; at <= WORKSPACES; ++at) {
      float x[3] = {1, 2, 3}, y[3] = {0};
      uint64_t words[] = {(uintptr_t)x, (uintptr_t)y, (uint64_t)at, 3};
      run_report_t report = kernels_run(kernels, 0, words, 1, 1000);
      assert_int_equal(report.result != 0, at < WORKSPACES);
      assert_int_equal(report.held_workspaces, 0);
      assert_int_equal(report.allocations, at < WORKSPACES ? at + 1 : WORKSPACES);
      assert_true(y[2] == 3.0F * 2.0F * (float)report.allocations);
      if (at == WORKSPACES) continue;
      char want[32];
      (void)snprintf(want, sizeof want, "part %d", at);
      assert_int_equal(report.fail_count, 1);
      assert_string_equal(kernels->result.functions[0].sites[report.site].message, want);
    }
    // The n-th allocation is refused.
    for (uint32_t limit = 1; limit < WORKSPACES; ++limit) {
      float x[3] = {1, 2, 3}, y[3] = {0};
      uint64_t words[] = {(uintptr_t)x, (uintptr_t)y, WORKSPACES, 3};
      run_report_t report = kernels_run(kernels, 0, words, 1, limit);
      assert_int_not_equal(report.result, 0);
      assert_int_equal(report.held_workspaces, 0);
      assert_int_equal(report.fail_count, 1);
    }
    kernels_destroy(kernels);
  }
  qn_module_release(module);
}

static void memory_runs_out(void** state) {
  (void)state;
  qn_module_t* module = failing_module();
  build_t build = {.cpu = "x86-64"};
  bool is_done = false;
  for (size_t room = 0; room <= 1 << 16 && !is_done; room += 512) {
    qn_status_t status = emit_only(module, build, room);
    is_done = qn_ok(status);
    if (is_done) continue;
    assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
    qn_status_free(status);
  }
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ growth

typedef struct sizes {
  size_t kernel_lines;
  size_t longest;  // of all other functions
  size_t all;
} sizes_t;

// Counts the lines of LLVM's text of each function.
static sizes_t measure(text_t* text) {
  qn_module_t* module = parse(text);
  qn_status_t error;
  kernels_t* kernels = kernels_create(module, (build_t){.cpu = "x86-64"}, true, &error);
  if (!kernels) fail_msg("%s", qn_status_message(error));
  sizes_t sizes = {0, 0, 0};
  size_t lines = 0;
  bool is_kernel = false;
  for (const char* at = kernels->llvm_text; at; at = strchr(at, '\n')) {
    if (*at == '\n') ++at;
    if (strncmp(at, "define ", 7) == 0) {
      lines = 0;
      is_kernel = strncmp(at, "define internal", 15) != 0;
    }
    ++lines;
    if (*at != '}') continue;
    sizes.all += lines;
    if (is_kernel) sizes.kernel_lines = lines;
    if (!is_kernel && lines > sizes.longest) sizes.longest = lines;
  }
  kernels_destroy(kernels);
  qn_module_release(module);
  return sizes;
}

static sizes_t measure_launches(int count, const char* loop, bool has_workspace) {
  text_t text = {NULL, 0};
  add(&text, "func f(x: f32[n], inout y: f32[n]) {\n");
  for (int k = 0; k < count; ++k) {
    if (has_workspace) add(&text, "  alloc w%d: f32[n] in global;\n", k);
    add(&text, "  %s i in 0..n { y[i] = y[i] * x[i] + %d.5; }\n", loop, k);
  }
  add(&text, "}\n");
  return measure(&text);
}

// Passes of LLVM that take quadratic time see functions of bounded length; the kernel itself, which
// calls them, has a few instructions for each.
static void no_function_grows(void** state) {
  (void)state;
  static const char* const loops[] = {"for", "parallel"};
  for (size_t i = 0; i < QN_COUNT_OF(loops); ++i) {
    sizes_t some = measure_launches(64, loops[i], false);
    sizes_t many = measure_launches(640, loops[i], false);
    assert_true(many.longest <= some.longest + 8);
    assert_true(many.all <= 11 * some.all);
    assert_true(many.kernel_lines * 8 <= many.all);
    // Workspace is declared in the kernel. Its part in the failing block is a loop.
    some = measure_launches(64, loops[i], true);
    many = measure_launches(640, loops[i], true);
    assert_true(many.longest <= some.longest + 8);
    assert_true(many.all <= 11 * some.all);
  }
  // A block below the limit stays one function.
  assert_int_equal(measure_launches(20, "for", false).longest, 0);
}

// ------------------------------------------------------------------------------------ run once

// Is the function left as it is by the code generator? LLVM's text has its attributes in the line
// before.
static bool is_left(const char* text, const char* head) {
  const char* at = strstr(text, head);
  if (!at) fail_msg("no '%s'", head);
  const char* line = at - 1;
  while (line > text && line[-1] != '\n') --line;
  const char* mark = strstr(line, "optnone");
  return mark && mark < at;
}

// The code generator saves its time only on functions that launch and do nothing else for long.
static void once_run_functions_are_left(void** state) {
  (void)state;
  static const struct {
    const char* body;
    bool is_kernel_left;
  } cases[] = {
      {"parallel i in 0..n { y[i] = y[i] * 0.5; }", true},
      {"if n > 4 { parallel i in 0..n { y[i] = y[i] * 0.5; } }", true},
      {"parallel i in 0..n { y[i] = 1.0; } for i in 0..n { y[i] = y[i] * 0.5; }", false},
      {"for k in 0..4 { parallel i in 0..n { y[i] = y[i] * 0.5; } }", false},
      {"let k = n; while y[0] < 0.0 { y[0] = y[0] + 1.0; } parallel i in 0..k { y[i] = 2.0; }",
       false},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    text_t text = {NULL, 0};
    add(&text, "func f(inout y: f32[n]) { %s }\n", cases[i].body);
    qn_module_t* module = parse(&text);
    qn_status_t error;
    kernels_t* kernels = kernels_create(module, (build_t){.cpu = "x86-64"}, true, &error);
    if (!kernels) fail_msg("%s", qn_status_message(error));
    if (is_left(kernels->llvm_text, "define i32 @f(") != cases[i].is_kernel_left) {
      fail_msg("%s", cases[i].body);
    }
    assert_false(is_left(kernels->llvm_text, "define internal i32 @f.launch0("));
    kernels_destroy(kernels);
    qn_module_release(module);
  }
}

// ------------------------------------------------------------------------------------ single lanes

static size_t count_of(const char* text, const char* part) {
  size_t count = 0;
  for (const char* at = strstr(text, part); at; at = strstr(at + 1, part)) ++count;
  return count;
}

static qn_module_t* parse_columns(int count) {
  text_t text = {NULL, 0};
  add(&text, "func f(x: f32[n], inout y: f32[n, %d]) {\n  parallel i in 0..n {\n", count);
  for (int k = 0; k < count; ++k) add(&text, "    y[i, %d] = x[i] * %d.5;\n", k, k);
  add(&text, "  }\n}\n");
  return parse(&text);
}

// LLVM compares the stores of single lanes with each other only up to a number of them.
static void many_strided_stores_are_apart(void** state) {
  (void)state;
  static const struct {
    int columns;
    bool has_apart;
  } cases[] = {{16, false}, {17, true}, {40, true}};
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* module = parse_columns(cases[i].columns);
    qn_status_t error;
    kernels_t* kernels = kernels_create(module, (build_t){.cpu = "x86-64-v3"}, true, &error);
    if (!kernels) fail_msg("%s", qn_status_message(error));
    assert_int_equal(count_of(kernels->llvm_text, "store volatile") > 0, cases[i].has_apart);
    kernels_destroy(kernels);
    if (cases[i].has_apart) check_results(module, "columns");
    qn_module_release(module);
  }
}

int main(int argc, char** argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(long_kernels_agree),
      cmocka_unit_test(long_bodies_agree),
      cmocka_unit_test(parts_fail),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(no_function_grows),
      cmocka_unit_test(once_run_functions_are_left),
      cmocka_unit_test(many_strided_stores_are_apart),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
