// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_orc_operations.c: tests that every operation, conversion, reduction and
// atomic in every dtype compiles to an image, for processors with few and many extensions, in both
// tiers. None may become a library call, an address table or writable data. Results are tested in
// test_emit.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "ir/ir.h"
#include "jit/llvm/compile.h"

static qn__llvm_t* llvm;
static long made_count;

static int set_up(void** state) {
  (void)state;
  return qn_ok(qn__llvm_create(qn_allocator_default(), &llvm)) ? 0 : -1;
}

static int tear_down(void** state) {
  (void)state;
  qn__llvm_destroy(llvm);
  return 0;
}

// The pieces of one small function: parallel i in 0..n { z[i] = VALUE }.
typedef struct sketch {
  qn_builder_t* builder;
  qn_expr_t* n;
  qn_expr_t* i;
  qn_buffer_t* inputs[3];
} sketch_t;

static void begin(sketch_t* sketch, qn_dtype_t a, qn_dtype_t b, qn_dtype_t c, qn_dtype_t out,
                  qn_buffer_t** out_buffer) {
  assert_true(qn_ok(qn_builder_create((qn_allocator_t){0}, &sketch->builder)));
  qn_builder_t* builder = sketch->builder;
  qn_build_function(builder, "f");
  sketch->n = qn_build_symbol(builder, "n");
  const qn_dtype_t dtypes[3] = {a, b, c};
  static const char* const names[3] = {"a", "b", "c"};
  for (int k = 0; k < 3; ++k) {
    sketch->inputs[k] =
        qn_build_buffer_param(builder, names[k], QN_ACCESS_IN, dtypes[k], 1, &sketch->n, NULL, 0);
  }
  *out_buffer = qn_build_buffer_param(builder, "z", QN_ACCESS_INOUT, out, 1, &sketch->n, NULL, 0);
  sketch->i = qn_build_loop(builder, QN_LOOP_PARALLEL, "i", qn_build_int(builder, QN_DTYPE_I64, 0),
                            sketch->n);
}

static qn_expr_t* input(sketch_t* sketch, int k) {
  return qn_build_load(sketch->builder, sketch->inputs[k], 1, &sketch->i);
}

static const char* const targets[] = {"cpu -mcpu=x86-64", "cpu -mcpu=x86-64-v3",
                                      "cpu -mcpu=x86-64-v4", "cpu -mcpu=neoverse-n1"};

// Closes the function. What the language refuses is no case.
static void finish(sketch_t* sketch, size_t target_index, qn_tier_t tier, const char* what,
                   qn_dtype_t dtype) {
  qn_build_end(sketch->builder);
  qn_build_end(sketch->builder);
  qn_module_t* module = NULL;
  qn_status_t status = qn_builder_finish(sketch->builder, &module);
  if (!qn_ok(status)) {
    qn_status_free(status);
    return;
  }
  qn_target_t* target = NULL;
  assert_true(qn_ok(qn_target_parse(targets[target_index], &target)));
  qn_compile_request_t request = {
      .struct_size = sizeof request, .target_json = qn_target_json(target), .tier = tier};
  request.module_bytes = qn_module_bytes(module, &request.module_size);
  qn_artifact_t* artifact = NULL;
  status = qn__llvm_compile(llvm, &request, &artifact);
  if (!qn_ok(status)) {
    fail_msg("%s of %s for %s, tier %d: %s", what, qn_dtype_text(dtype), targets[target_index],
             (int)tier, qn_status_message(status));
  }
  artifact->release(artifact);
  ++made_count;
  qn_target_release(target);
  qn_module_release(module);
}

static void try_op(qn_op_t op, qn_dtype_t dtype, size_t target, qn_tier_t tier) {
  const qn__ir_op_info_t* info = qn__op_info(op);
  if (info->rule >= QN__RULE_LANE) return;
  bool is_truth = info->rule == QN__RULE_COMPARE || info->rule == QN__RULE_TEST;
  qn_dtype_t operands[3];
  for (uint32_t i = 0; i < 3; ++i) {
    qn_dtype_t own = qn__op_own_dtype(info->rule, i);
    operands[i] = own != QN_DTYPE_NONE ? own : dtype;
  }
  sketch_t sketch;
  qn_buffer_t* out;
  begin(&sketch, operands[0], operands[1], operands[2], is_truth ? QN_DTYPE_BOOL : dtype, &out);
  qn_expr_t* value =
      qn_build_op(sketch.builder, op, input(&sketch, 0), info->arity > 1 ? input(&sketch, 1) : NULL,
                  info->arity > 2 ? input(&sketch, 2) : NULL);
  qn_build_store(sketch.builder, out, 1, &sketch.i, value);
  finish(&sketch, target, tier, info->text, dtype);
}

// Few kinds of code per target: each is some milliseconds.
static void sweep_ops(size_t target, qn_tier_t tier) {
  made_count = 0;
  for (int dtype = 1; dtype < QN_DTYPE_COUNT; ++dtype) {
    for (int op = 1; op < QN_OP_COUNT; ++op) {
      if (qn__op_info((qn_op_t)op)) try_op((qn_op_t)op, (qn_dtype_t)dtype, target, tier);
    }
  }
  assert_true(made_count > 250);
}

static void test_ops_baseline_fast(void** state) {
  (void)state;
  sweep_ops(0, QN_TIER_FAST);
}
static void test_ops_baseline_full(void** state) {
  (void)state;
  sweep_ops(0, QN_TIER_FULL);
}
static void test_ops_widest_fast(void** state) {
  (void)state;
  sweep_ops(2, QN_TIER_FAST);
}
static void test_ops_other_architecture(void** state) {
  (void)state;
  sweep_ops(3, QN_TIER_FAST);
}

static void test_casts(void** state) {
  (void)state;
  made_count = 0;
  for (int from = 1; from < QN_DTYPE_COUNT; ++from) {
    for (int to = 1; to < QN_DTYPE_COUNT; ++to) {
      sketch_t sketch;
      qn_buffer_t* out;
      qn_dtype_t dtype = (qn_dtype_t)from;
      begin(&sketch, dtype, dtype, dtype, (qn_dtype_t)to, &out);
      qn_build_store(sketch.builder, out, 1, &sketch.i,
                     qn_build_cast(sketch.builder, (qn_dtype_t)to, input(&sketch, 0)));
      finish(&sketch, (size_t)(from + to) % 3, to % 2 ? QN_TIER_FAST : QN_TIER_FULL, "cast", dtype);
    }
  }
  // No store takes the three dtypes of 4 bits.
  assert_int_equal(made_count, (QN_DTYPE_COUNT - 1) * (QN_DTYPE_COUNT - 4));
}

static void test_reductions(void** state) {
  (void)state;
  made_count = 0;
  for (int dtype = 1; dtype < QN_DTYPE_COUNT; ++dtype) {
    for (int kind = QN_REDUCE_SUM; kind <= QN_REDUCE_MAX; ++kind) {
      for (size_t target = 0; target < 3; target += 2) {
        sketch_t sketch;
        qn_buffer_t* out;
        qn_dtype_t type = (qn_dtype_t)dtype;
        begin(&sketch, type, type, type, type, &out);
        qn_expr_t* j = qn_build_reduce(sketch.builder, (qn_reduce_kind_t)kind, "j",
                                       qn_build_int(sketch.builder, QN_DTYPE_I64, 0), sketch.n);
        qn_expr_t* value = qn_build_reduce_end(
            sketch.builder, qn_build_load(sketch.builder, sketch.inputs[0], 1, &j));
        qn_build_store(sketch.builder, out, 1, &sketch.i, value);
        finish(&sketch, target, kind % 2 ? QN_TIER_FAST : QN_TIER_FULL, "reduction", type);
      }
    }
  }
  assert_true(made_count >= 80);
}

static void test_atomics(void** state) {
  (void)state;
  made_count = 0;
  for (int dtype = 1; dtype < QN_DTYPE_COUNT; ++dtype) {
    for (int op = QN_ATOMIC_ADD; op <= QN_ATOMIC_EXCHANGE + 1; ++op) {
      sketch_t sketch;
      qn_buffer_t* out;
      qn_dtype_t type = (qn_dtype_t)dtype;
      begin(&sketch, type, type, type, type, &out);
      (void)qn_build_atomic(sketch.builder, (qn_atomic_op_t)op, out, 1, &sketch.i,
                            input(&sketch, 0), op == QN_ATOMIC_CAS ? input(&sketch, 1) : NULL);
      finish(&sketch, 0, op % 2 ? QN_TIER_FAST : QN_TIER_FULL, "atomic", type);
    }
  }
  assert_true(made_count >= 20);
}

int main(int argc, char** argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ops_baseline_fast),
      cmocka_unit_test(test_ops_baseline_full),
      cmocka_unit_test(test_ops_widest_fast),
      cmocka_unit_test(test_ops_other_architecture),
      cmocka_unit_test(test_casts),
      cmocka_unit_test(test_reductions),
      cmocka_unit_test(test_atomics),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
