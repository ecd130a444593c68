// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_read.c: tests that the public walk (quern/read.h) shows all of a module:
// canonical bytes that are written from it alone are those of the module. Random bytes:
// tests/fuzz/fuzz_bytes.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/ir.h"
#include "tests/support/generate.h"
#include "tests/support/must.h"
#include "tests/support/reencode.h"
#include "tests/unit/ir/support_ir.h"

// A row of the language's tables without its public name does not compile.
#define SAME(public_value, value) _Static_assert((int)(public_value) == (value), #public_value)
#define QN_LOOP_KIND(name, value, text, doc) SAME(QN_LOOP_##name, value);
#define QN_SCOPE(name, value, text, doc) SAME(QN_SCOPE_##name, value);
#define QN_ACCESS(name, value, text) SAME(QN_ACCESS_##name, value);
#define QN_REDUCE(name, value, text, doc) SAME(QN_REDUCE_##name, value);
#define QN_SEVERAL(name, value, text, doc) SAME(QN_SEVERAL_##name, value);
#define QN_LEAVE(name, value, text, doc) SAME(QN_LEAVE_##name, value);
#define QN_ATOMIC(name, value, text, operands, class, doc) SAME(QN_ATOMIC_##name, value);
#include "ir/tables.inc"
#undef QN_LOOP_KIND
#undef QN_SCOPE
#undef QN_ACCESS
#undef QN_REDUCE
#undef QN_SEVERAL
#undef QN_LEAVE
#undef QN_ATOMIC

static void check(const qn_module_t* module, qn_places_t places, qn_met_t* out_met) {
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn_reencode(module, places, &bytes, out_met);
  size_t size;
  const void* own = qn_module_bytes(module, &size);
  assert_int_equal(bytes.size, size);
  assert_memory_equal(bytes.data, own, size);
  qn__buffer_deinit(&bytes);
}

// The module of a text, and that of its bytes.
static void check_both(const qn_module_t* module, qn_met_t* out_met) {
  check(module, QN_PLACES_NONE, out_met);
  size_t size;
  const void* bytes = qn_module_bytes(module, &size);
  qn_module_t* decoded = NULL;
  must(qn_module_decode(bytes, size, NULL, &decoded));
  check(decoded, QN_PLACES_OWN, NULL);
  qn_module_release(decoded);
}

// The kinds that the library's own walk meets.
static bool meet_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  ((qn_met_t*)walker->self)->stmts |= UINT32_C(1) << stmt->kind;
  return true;
}

static bool meet_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  ((qn_met_t*)walker->self)->exprs |= UINT32_C(1) << expr->kind;
  return true;
}

static uint32_t bits(int first, int last) {
  return (UINT32_C(2) << last) - (UINT32_C(1) << first);
}

static void every_construct_is_shown(void** state) {
  (void)state;
  qn_module_t* module = must_parse(qn_all_constructs);
  qn_met_t met, own = {0};
  check_both(module, &met);
  qn__ir_walker_t walker = {meet_stmt, meet_expr, &own};
  for (size_t i = 0; i < module->body.function_count; i++) {
    (void)qn__walk_extents(&walker, module->functions[i]);
    (void)qn__walk_block(&walker, &module->functions[i]->body);
  }
  assert_int_equal(met.stmts, own.stmts);
  assert_int_equal(met.exprs, own.exprs);
  // Nothing of the language is missing in that text, so nothing is here.
  assert_int_equal(met.stmts, bits(QN_STMT_LET, QN_STMT_FENCE) ^ (UINT32_C(1) << QN__STMT_TENSOR));
  assert_int_equal(met.exprs, bits(QN_EXPR_INT, QN_EXPR_REDUCE));
  assert_int_equal(met.vars, bits(QN_VAR_SYMBOL, QN_VAR_ATOMIC));
  assert_int_equal(met.scopes, bits(QN_SCOPE_PARAM, QN_SCOPE_VIEW));
  qn_module_release(module);
}

static void samples_are_shown(void** state) {
  (void)state;
  for (size_t i = 0; i < qn_sample_count; i++) {
    size_t size;
    char* text = qn_sample_text(qn_samples[i].name, &size);
    qn_module_t* module = must_parse(text);
    check_both(module, NULL);
    qn_module_release(module);
    qn_sample_text_free(text, size);
  }
  qn_module_t* module = must_parse("func f(d: i64 = 8, x: f32[n, d], out y: f32[n]) {\n}\n");
  check_both(module, NULL);
  qn_module_release(module);
}

static void random_modules_are_shown(void** state) {
  (void)state;
  uint64_t first = 1, count = 40;
  qn_generate_seeds(&first, &count);
  for (uint64_t seed = first; seed < first + count; seed++) {
    qn_generate_options_t options = {
        .size = 6, .allows_fast = true, .allows_threads = true, .is_form = seed % 4 == 0};
    qn_generated_t generated;
    qn_status_t error;
    if (!qn_generate(seed, &options, &generated, &error)) {
      fail_msg("seed %llu: %s", (unsigned long long)seed, qn_status_message(error));
    }
    check_both(generated.module, NULL);
    qn_generated_release(&generated);
  }
}

static void wrong_calls_are_refused(void** state) {
  (void)state;
  qn_module_t* module = must_parse("func f(out y: f32[n]) {\n  parallel i in 0..n {}\n}\n");
  qn_function_info_t function = {.struct_size = sizeof function};
  must_fail(qn_module_function_info(module, 1, &function), QN_STATUS_INVALID_ARGUMENT,
            "function 1 of a module that has 1");
  function.struct_size = sizeof function;
  must(qn_module_function_info(module, 0, &function));
  qn_stmt_info_t stmt = {.struct_size = 0};
  must_fail(qn_module_stmt_info(module, function.body, &stmt), QN_STATUS_INVALID_ARGUMENT,
            "struct_size is 0");
  qn_several_info_t several = {.struct_size = sizeof several};
  must_fail(qn_module_several_info(module, function.body, &several), QN_STATUS_INVALID_ARGUMENT,
            "no reduction of several values");
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_construct_is_shown),
      cmocka_unit_test(samples_are_shown),
      cmocka_unit_test(random_modules_are_shown),
      cmocka_unit_test(wrong_calls_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
