// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_pass_reuse.c: tests that rows kept in registers give the same results, for
// every length and element type, and that only permitted rows are kept.
//
// The data are small integers, whose sums are exact in any order, so mapped and original programs
// must agree bit for bit. Texts: test_pass_gpu.c.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "ir/passes/rewrite.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support_gpu.h"
#include "tests/support/sanitized.h"

enum { MAX_PARAMS = 4, ROWS = 2, BUFFER_BYTES = 1 << 14 };

// 8 threads: rows of up to 128 elements are kept.
static const qn__pass_options_t target = {.vector_bytes = 16,
                                          .warp_size = 4,
                                          .max_threads = 64,
                                          .preferred_threads = 8,
                                          .access_bytes = 16,
                                          .has_shuffles = true,
                                          .has_block_reductions = true};

typedef struct program {
  const char* name;
  const char* body;  // of `parallel i in 0..n`; T is the element type
  bool is_kept;
} program_t;

static const program_t programs[] = {
    {"sum and loop", "let s = sum j in 0..m { x[i, j] }; for j in 0..m { y[i, j] = x[i, j] - s; }",
     true},
    {"two parts of one summand, another reduction between",
     "let t = max j in 0..m { x[i, j] }; let s = sum j in 0..m { x[i, j] * w[j] };"
     "let u = min j in 0..m { x[i, j] * w[j] - t };"
     "for j in 0..m { y[i, j] = x[i, j] * w[j] + x[i, j] + s - u; }",
     true},
    {"an offset",
     "let s = sum j in 0..m { x[i, j + 4] }; for j in 0..m { y[i, j] = x[i, j + 4] - s; }", true},
    {"other offsets, other rows",
     "let s = sum j in 0..m { x[i, j] };"
     "for j in 0..m { y[i, j] = x[i, j + 1] + x[1 - i, j] + x[i, m - 1 - j] + s; }",
     false},
    {"other ranges", "let s = sum j in 0..m { x[i, j] }; for j in 1..m { y[i, j] = x[i, j] + s; }",
     false},
    {"other ends",
     "let s = sum j in 0..m { x[i, j] }; for j in 0..m - 1 { y[i, j] = x[i, j] + s; }", false},
    {"what is written",
     "let s = sum j in 0..m { y[i, j] }; for j in 0..m { y[i, j] = y[i, j] - s; }", false},
    {"what is written between",
     "let s = sum j in 0..m { y[i, j] }; for j in 0..m { y[i, j] = x[i, j]; }"
     "let t = sum j in 0..m { y[i, j] }; for j in 0..m { y[i, j] = y[i, j] + s - t; }",
     false},
    {"an operand beside what is written",
     "let s = sum j in 0..m { x[i, j] * y[i, j] };"
     "for j in 0..m { y[i, j] = s; }"
     "let t = sum j in 0..m { x[i, j] * y[i, j] }; for j in 0..m { y[i, j] = x[i, j] - t; }",
     true},
    {"loads under a condition",
     "let s = sum j in 0..m { j > 5 ? x[i, j] : w[j] };"
     "for j in 0..m { y[i, j] = j > 5 ? x[i, j] + s : w[j]; }",
     false},
    {"used under conditions",
     "let s = sum j in 0..m { x[i, j] }; for j in 0..m { if j % 3 == 1 { y[i, j] = x[i, j]; } else "
     "{"
     " y[i, j] = j > 9 ? x[i, j] - s : s; } }",
     true},
    {"a let in the loop",
     "let s = sum j in 0..m { x[i, j] - w[j] };"
     "for j in 0..m { let d = x[i, j] - w[j]; y[i, j] = d + s; }",
     true},
    {"a branch around",
     "if i > 0 { let s = sum j in 0..m { x[i, j] };"
     "for j in 0..m { y[i, j] = x[i, j] - s; } }",
     false},
    {"a loop around",
     "for r in 0..2 { let s = sum j in 0..m { x[i, j] }; for j in 0..m { y[i, j] = y[i, j] + s; } "
     "}",
     false},
    {"an array of the row",
     "alloc a: T[32] in local; for k in 0..32 { a[k] = x[i, 0]; }"
     "let s = sum j in 0..m { x[i, j] }; for j in 0..m { y[i, j] = x[i, j] - s + a[3]; }",
     true},
    {"a sum inside of the loop",
     "let s = sum j in 0..m { x[i, j] };"
     "for j in 0..m { y[i, j] = x[i, j] + (sum k in 0..3 { x[i, j] * w[0] }) - s; }",
     true},
    {"a loop that uses nothing of it",
     "let s = sum j in 0..m { x[i, j] }; let t = max j in 0..m { x[i, j] };"
     "for j in 0..m { y[i, j] = w[j] + s + t; }",
     true},
};

static const char* const dtypes[] = {"f32", "f64", "f16", "bf16", "i32", "i16", "u8", "i64"};

static void text_of(const program_t* program, const char* dtype, const char* m, char* text,
                    size_t size) {
  char pattern[1024];
  (void)snprintf(pattern, sizeof pattern,
                 "func f(x: T[n, m + 4], w: T[m], inout y: T[n, m]) { parallel i in 0..n { %s } }",
                 program->body);
  size_t at = 0;
  for (const char* p = pattern; *p; ++p) {
    bool is_word = (p > pattern && (p[-1] == '_' || (p[-1] >= 'a' && p[-1] <= 'z'))) ||
                   (p[1] >= 'a' && p[1] <= 'z');
    const char* piece = *p == 'T' ? dtype : *p == 'm' && !is_word ? m : NULL;
    int count = piece ? snprintf(text + at, size - at, "%s", piece)
                      : snprintf(text + at, size - at, "%c", *p);
    at += (size_t)count;
    assert_true(at < size);
  }
}

static qn_module_t* parse(const char* text) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) fail_msg("%s\n%s", text, qn_status_message(status));
  return module;
}

static void run(const qn__ir_func_t* function, int64_t m, bool is_special, uint8_t** memory) {
  uint64_t words[MAX_PARAMS];
  for (size_t p = 0; p < function->param_count; ++p) {
    const qn__ir_buffer_t* buffer = function->params[p].buffer;
    size_t size = qn_dtype_size_bytes(buffer->dtype);
    memory[p] = malloc(BUFFER_BYTES);
    assert_non_null(memory[p]);
    for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
      qn__ir_scalar_t value = {.i = (int64_t)((i * 7 + p) % 5 == 1)};
      if (qn__dtype_is_float(buffer->dtype)) {
        value.f = (double)value.i;
        if (is_special && p == 0 && i % 67 == 3) value.f = i % 2 ? (double)NAN : (double)INFINITY;
      }
      uint64_t bits = qn__scalar_to_bits(buffer->dtype, value);
      memcpy(memory[p] + i * size, &bits, size);
    }
    words[p] = (uint64_t)(uintptr_t)memory[p];
  }
  int64_t symbols[] = {ROWS, m};
  qn__interpret_args_t call = {.params = words, .symbols = symbols, .warp_size = 4};
  qn_status_t status = qn__interpret(function, &call, qn_allocator_default());
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
}

// Any NaN is like any other.
static bool same(const qn__ir_buffer_t* buffer, const uint8_t* want, const uint8_t* have) {
  size_t size = qn_dtype_size_bytes(buffer->dtype);
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    uint64_t a = 0, b = 0;
    memcpy(&a, want + i * size, size);
    memcpy(&b, have + i * size, size);
    if (a == b) continue;
    if (!qn__dtype_is_float(buffer->dtype) || !isnan(qn__scalar_from_bits(buffer->dtype, a).f) ||
        !isnan(qn__scalar_from_bits(buffer->dtype, b).f)) {
      return false;
    }
  }
  return true;
}

static void check(const program_t* program, const qn_module_t* module, const qn__ir_body_t* mapped,
                  int64_t m, bool is_special) {
  uint8_t* want[MAX_PARAMS];
  uint8_t* have[MAX_PARAMS];
  const qn__ir_func_t* function = module->functions[0];
  run(function, m, is_special, want);
  run(mapped->first, m, is_special, have);
  for (size_t p = 0; p < function->param_count; ++p) {
    if (!same(function->params[p].buffer, want[p], have[p])) {
      qn_test_show(mapped);
      fail_msg("%s, m = %lld", program->name, (long long)m);
    }
    free(want[p]);
    free(have[p]);
  }
}

static bool has_kept(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_ALLOC && strncmp(stmt->alloc.buffer->name, "kept", 4) == 0) {
      return true;
    }
    QN__EACH_BLOCK(stmt, inner) {
      if (has_kept(inner)) return true;
    }
  }
  return false;
}

static void map(const qn_module_t* module, bool is_checked, qn__ir_body_t* body) {
  qn__pass_options_t options = target;
  options.is_checked = is_checked;
  assert_true(qn_ok(qn__body_clone(&module->body, qn_allocator_default(), body)));
  qn_status_t status = qn__passes_run_gpu(body, &options);
  if (qn_ok(status)) status = qn__body_verify_status(body, "the mapping");
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__function_number(body->first);
  char message[256];
  if (!qn_test_is_mapped(body->first, &options, message, sizeof message)) {
    qn_test_show(body);
    fail_msg("%s", message);
  }
}

static void run_program(void** state) {
  static const int64_t lengths[] = {0, 1, 3, 4, 5, 8, 28, 31, 32, 36, 64, 100, 124, 128, 129, 132};
  const program_t* program = *state;
  for (size_t d = 0; d < QN_COUNT_OF(dtypes); ++d) {
    char text[2048];
    text_of(program, dtypes[d], "m", text, sizeof text);
    qn_module_t* module = parse(text);
    for (int is_checked = 0; is_checked < 2; ++is_checked) {
      qn__ir_body_t body;
      map(module, is_checked != 0, &body);
      bool is_kept = has_kept(&body.first->body);
      bool may_keep = program->is_kept && !is_checked;
      // Of u8 a thread has all 16 in one round, of i64 nothing is kept.
      if (d < 6 && is_kept != may_keep) {
        qn_test_show(&body);
        fail_msg("%s of %s: kept: %d", program->name, dtypes[d], is_kept);
      }
      // The interpreter is slow under sanitizers.
      for (size_t k = 0; k < QN_COUNT_OF(lengths); k += IS_SANITIZED ? 3 : 1) {
        check(program, module, &body, lengths[k], false);
        check(program, module, &body, lengths[k], true);
      }
      qn__body_deinit(&body);
    }
    qn_module_release(module);
    // Lengths that are known.
    static const char* const known[] = {"32", "64", "100", "128", "132"};
    for (size_t k = 0; k < QN_COUNT_OF(known); ++k) {
      text_of(program, dtypes[d], known[k], text, sizeof text);
      module = parse(text);
      qn__ir_body_t body;
      map(module, false, &body);
      check(program, module, &body, strtoll(known[k], NULL, 10), true);
      qn__body_deinit(&body);
      qn_module_release(module);
    }
  }
}

// A sum of floats is added up in the order that it has without: with other lanes it stays as it is.
static void sums_keep_their_order(void** state) {
  (void)state;
  qn_module_t* module = parse(
      "func f(x: f16[n, m], d: f32[n, m], inout y: f32[n, m]) { parallel i in 0..n {"
      "  let s = sum j in 0..m { f32(x[i, j]) }; let t = sum j in 0..m { d[i, j] * f32(x[i, j]) };"
      "  for j in 0..m { y[i, j] = s + t * f32(x[i, j]); } } }");
  qn__ir_body_t body;
  map(module, false, &body);
  assert_true(has_kept(&body.first->body));
  static const program_t program = {"two element types", "", true};
  for (int64_t m = 0; m < 140; m += 4) check(&program, module, &body, m, false);
  qn__body_deinit(&body);
  qn_module_release(module);
}

static void survives_without_memory(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(programs); ++i) {
    char text[2048];
    text_of(&programs[i], "f32", "m", text, sizeof text);
    qn_module_t* module = parse(text);
    qn_test_map_without_memory(module, &target);
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
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(sums_keep_their_order);
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(survives_without_memory);
  return _cmocka_run_group_tests("rows that are kept", tests, count, NULL, NULL);
}
