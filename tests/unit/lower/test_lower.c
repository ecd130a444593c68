// SPDX-License-Identifier: Apache-2.0
// tests/unit/lower/test_lower.c: tests of lists of passes, of what qn_module_lower refuses, and of
// the names that nodes keep. What lowered programs compute: test_lower_run.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/ir.h"
#include "quern/lower.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

static const char scale_text[] =
    "func scale(x: f32[n], out y: f32[n]) {\n"
    "  parallel i in 0..n { y[i] = exp(x[i]) * 2.0; }\n"
    "}\n";

// ------------------------------------------------------------------------------------ lists

static size_t count_name(const char* name) {
  size_t count = 0;
  for (size_t i = 0; i < qn_pass_count(); ++i) {
    qn_pass_info_t pass = {.struct_size = sizeof pass};
    must(qn_pass_info(i, &pass));
    if (strcmp(pass.name, name) == 0) ++count;
  }
  return count;
}

static void passes_are_listed_once(void** state) {
  (void)state;
  for (size_t i = 0; i < qn_pass_count(); ++i) {
    qn_pass_info_t pass = {.struct_size = sizeof pass};
    must(qn_pass_info(i, &pass));
    assert_int_equal(count_name(pass.name), 1);
    assert_true(pass.doc[0] != '\0');
    assert_true(pass.post[0] != '\0');
  }
  qn_pass_info_t pass = {.struct_size = sizeof pass};
  must_fail(qn_pass_info(qn_pass_count(), &pass), QN_STATUS_INVALID_ARGUMENT, "pass ");
}

static void pipelines_have_listed_passes(void** state) {
  (void)state;
  for (size_t p = 0; p < qn_pipeline_count(); ++p) {
    qn_pipeline_info_t pipeline = {.struct_size = sizeof pipeline};
    must(qn_pipeline_info(p, &pipeline));
    assert_true(pipeline.full_begin <= pipeline.full_end);
    assert_true(pipeline.full_end <= pipeline.pass_count);
    for (size_t i = 0; i < pipeline.pass_count; ++i) {
      assert_int_equal(count_name(qn_pipeline_pass(p, i)), 1);
    }
    assert_null(qn_pipeline_pass(p, pipeline.pass_count));
    assert_int_equal(count_name(pipeline.name), 0);
  }
  qn_pipeline_info_t pipeline = {.struct_size = sizeof pipeline};
  must_fail(qn_pipeline_info(qn_pipeline_count(), &pipeline), QN_STATUS_INVALID_ARGUMENT,
            "pipeline ");
  assert_null(qn_pipeline_pass(qn_pipeline_count(), 0));
}

// ------------------------------------------------------------------------------------ errors

static void refuse(const char* passes, const qn_lower_options_t* options, qn_status_code_t code,
                   const char* part) {
  qn_module_t* module = must_parse(scale_text);
  qn_module_t* lowered = module;
  must_fail(qn_module_lower(module, passes, options, &lowered), code, part);
  assert_null(lowered);
  qn_module_release(module);
}

static void names_are_checked(void** state) {
  (void)state;
  refuse("scalr", NULL, QN_STATUS_NOT_FOUND, "no pipeline or pass 'scalr'; pipelines: scalar, cpu");
  refuse("", NULL, QN_STATUS_NOT_FOUND, "no pipeline or pass ''");
  refuse("cpu,", NULL, QN_STATUS_NOT_FOUND, "no pipeline or pass ''");
  refuse("cooperative", NULL, QN_STATUS_NOT_FOUND, "runs in pipelines alone");
  qn_lower_options_t options = {.struct_size = sizeof options};
  static const char* const wrong[] = {"partition", "simplify:2", "simplify:0", "simplify:x",
                                      ":1",        "hoist:11",   "",           "cpu"};
  for (size_t i = 0; i < QN_COUNT_OF(wrong); ++i) {
    options.until = wrong[i];
    refuse("cpu", &options, QN_STATUS_NOT_FOUND, "pipeline 'cpu' has lower_leaves, ");
  }
  char many[512] = "simplify";
  for (int i = 0; i < 40; ++i) strcat(many, ",hoist");
  refuse(many, NULL, QN_STATUS_INVALID_ARGUMENT, "more than 31 names");
}

static void machines_are_checked(void** state) {
  (void)state;
  qn_machine_t machine = {.struct_size = sizeof machine, .vector_bytes = 24};
  qn_lower_options_t options = {.struct_size = sizeof options, .machine = &machine};
  refuse("cpu", &options, QN_STATUS_INVALID_ARGUMENT, "vector_bytes is 24");
  machine.vector_bytes = 0;
  machine.warp_size = 33;
  refuse("gpu", &options, QN_STATUS_INVALID_ARGUMENT, "warp_size is 33");
  machine.warp_size = 0;
  options.tier = (qn_tier_t)7;
  refuse("cpu", &options, QN_STATUS_INVALID_ARGUMENT, "tier is 7");
  options.tier = QN_TIER_FAST;
  machine.struct_size = 1;
  refuse("cpu", &options, QN_STATUS_INVALID_ARGUMENT, "qn_machine_t: struct_size is 1");
}

// Threads that exchange values cannot become loops before the exchanges are lowered.
static void wrong_orders_are_refused(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func f(x: i32[n], out y: i32[n]) {\n"
      "  block.x b in 0..1 { thread.x t in 0..32 {\n"
      "    let s = warp_sum(x[t]);\n"
      "    y[t] = s;\n"
      "  } }\n"
      "}\n");
  qn_module_t* lowered = NULL;
  must_fail(qn_module_lower(module, "serialize_threads", NULL, &lowered), QN_STATUS_INVALID_MODULE,
            "warp_sum");
  must(qn_module_lower(module, "lower_exchanges,serialize_threads", NULL, &lowered));
  qn_module_release(lowered);
  qn_module_release(module);
}

static bool lower_without_memory(qn_allocator_t allocator, void* user) {
  const char* passes = user;
  qn_parse_options_t parse = {.struct_size = sizeof parse, .allocator = allocator};
  qn_module_t* module = NULL;
  qn_module_t* lowered = NULL;
  qn_status_t status = qn_module_parse(scale_text, strlen(scale_text), &parse, &module);
  if (qn_ok(status)) status = qn_module_lower(module, passes, NULL, &lowered);
  bool is_good = qn_ok(status) == (lowered != NULL);
  qn_module_release(lowered);
  qn_module_release(module);
  qn_status_code_t code = qn_status_consume(status);
  return is_good && (code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY);
}

static void memory_runs_out(void** state) {
  (void)state;
  static char scalar[] = "scalar", gpu[] = "gpu,lower_math";
  assert_true(qn_fault_walk_alloc(lower_without_memory, scalar) > 0);
  assert_true(qn_fault_walk_alloc(lower_without_memory, gpu) > 0);
}

// ------------------------------------------------------------------------------------ results

static qn_module_t* lower(const qn_module_t* module, const char* passes, const char* until) {
  qn_lower_options_t options = {.struct_size = sizeof options, .until = until};
  qn_module_t* lowered = NULL;
  must(qn_module_lower(module, passes, &options, &lowered));
  return lowered;
}

static char* text_of(const qn_module_t* module) {
  char* text = NULL;
  must(qn_module_print(module, &text, NULL));
  return text;
}

static void passes_stop_where_asked(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func f(x: f32[n], out y: f32[n]) {\n"
      "  parallel i in 0..n { unroll j in 0..2 { y[i] = exp(x[i]) + f32(j) * 1.0; } }\n"
      "}\n");
  static const struct {
    const char* passes;
    const char* until;
    const char* has;
    const char* lacks;
  } cases[] = {
      {"cpu", "lower_views", "unroll", "lanes"},
      {"cpu", "unroll", "f32(i64(1))", "unroll"},
      {"cpu", "simplify:1", "exp(", "f32("},
      {"cpu", NULL, "lanes", "unroll"},
      {"scalar", "lower_lanes", "exp(", "lanes"},
      {"scalar", NULL, "bitcast", "exp("},
      {"cpu,lower_math", NULL, "lanes", "exp("},
      {"cpu,lower_math", "vectorize", "exp(", "bitcast"},
      {"gpu", "cooperative", "thread.x", "parallel"},
      {"gpu", "simplify:2", "n >> 10", "max(n"},
      {"lower_math", NULL, "unroll", "exp("},
      {"simplify,hoist", NULL, "unroll", "* 1.0"},
      {"unroll,simplify", "unroll", "* 1.0", "unroll"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_module_t* lowered = lower(module, cases[i].passes, cases[i].until);
    char* text = text_of(lowered);
    if (!strstr(text, cases[i].has) || strstr(text, cases[i].lacks)) {
      fail_msg("%s until %s:\n%s", cases[i].passes, cases[i].until, text);
    }
    qn_text_free(text);
    qn_module_release(lowered);
  }
  qn_module_release(module);
}

// Finds an allocation by its `origin_id`.
static const qn_buffer_t* find_alloc(const qn_module_t* module, const qn_stmt_t* first,
                                     uint32_t origin_id) {
  qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
  for (const qn_stmt_t* at = first; at; at = stmt.next) {
    must(qn_module_stmt_info(module, at, &stmt));
    if (stmt.kind == QN_STMT_ALLOC) {
      qn_buffer_info_t buffer = {.struct_size = sizeof buffer};
      must(qn_module_buffer_info(module, stmt.buffer, &buffer));
      if (buffer.origin_id == origin_id) return stmt.buffer;
    }
    const qn_stmt_t* bodies[] = {stmt.body, stmt.other_body};
    for (int i = 0; i < 2; ++i) {
      const qn_buffer_t* found = bodies[i] ? find_alloc(module, bodies[i], origin_id) : NULL;
      if (found) return found;
    }
  }
  return NULL;
}

static const qn_stmt_t* body_of(const qn_module_t* module) {
  qn_function_info_t function = {.struct_size = sizeof function};
  must(qn_module_function_info(module, 0, &function));
  return function.body;
}

// Buffers of the program keep the ids of its bytes beside those that passes make.
static void buffers_keep_their_ids(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func f(x: f32[n], out y: f32[64]) {\n"
      "  block.x b in 0..1 {\n"
      "    alloc tile: f32[64] in shared;\n"
      "    thread.x t in 0..64 {\n"
      "      tile[t] = x[t % n];\n"
      "      let kept = x[t % n];\n"
      "      let top, at = argmax i in 0..n { x[i] };\n"
      "      barrier;\n"
      "      y[t] = tile[63 - t] + kept + top + f32(at);\n"
      "    }\n"
      "  }\n"
      "}\n");
  for (int g = 0; g < 2; ++g) {
    qn_module_t* lowered = lower(module, g ? "gpu" : "scalar", NULL);
    qn_param_info_t param = {.struct_size = sizeof param};
    must(qn_module_param_info(lowered, 0, 1, &param));
    qn_buffer_info_t y = {.struct_size = sizeof y};
    must(qn_module_buffer_info(lowered, param.buffer, &y));
    assert_int_equal(y.origin_id, 1);
    const qn_buffer_t* tile = find_alloc(lowered, body_of(lowered), 2);
    assert_non_null(tile);
    qn_buffer_info_t info = {.struct_size = sizeof info};
    must(qn_module_buffer_info(lowered, tile, &info));
    assert_int_equal(info.rank, 1);
    assert_int_equal(info.dtype, QN_DTYPE_F32);
    if (!g) assert_non_null(find_alloc(lowered, body_of(lowered), UINT32_MAX));
    qn_module_release(lowered);
  }
  // Not lowered: the id itself.
  qn_buffer_info_t info = {.struct_size = sizeof info};
  const qn_buffer_t* tile = find_alloc(module, body_of(module), 2);
  assert_non_null(tile);
  must(qn_module_buffer_info(module, tile, &info));
  assert_int_equal(info.id, 2);
  qn_module_release(module);
}

// The place of the first store below `first`.
static uint32_t place_of_store(const qn_module_t* module, const qn_stmt_t* first) {
  qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
  for (const qn_stmt_t* at = first; at; at = stmt.next) {
    must(qn_module_stmt_info(module, at, &stmt));
    if (stmt.kind == QN_STMT_STORE) return stmt.place;
    uint32_t place = stmt.body ? place_of_store(module, stmt.body) : 0;
    if (place) return place;
  }
  return 0;
}

static void nodes_keep_their_places(void** state) {
  (void)state;
  qn_module_t* module = must_parse(scale_text);
  size_t size;
  const void* bytes = qn_module_bytes(module, &size);
  qn_module_t* decoded = NULL;
  must(qn_module_decode(bytes, size, NULL, &decoded));
  uint32_t place = place_of_store(decoded, body_of(decoded));
  assert_true(place > 0);
  // From a text, too: the passes run on its bytes.
  const qn_module_t* const from[] = {module, decoded};
  for (int i = 0; i < 2; ++i) {
    qn_module_t* lowered = lower(from[i], "scalar", NULL);
    assert_int_equal(place_of_store(lowered, body_of(lowered)), place);
    qn_module_release(lowered);
  }
  qn_module_release(decoded);
  qn_module_release(module);
}

// Returns the lane count of the first loop that has one.
static uint32_t lanes_of(const qn_module_t* module, const qn_stmt_t* first) {
  qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
  for (const qn_stmt_t* at = first; at; at = stmt.next) {
    must(qn_module_stmt_info(module, at, &stmt));
    if (stmt.lane_count) return stmt.lane_count;
    uint32_t count = stmt.body ? lanes_of(module, stmt.body) : 0;
    if (count) return count;
  }
  return 0;
}

static void lanes_are_shown(void** state) {
  (void)state;
  qn_module_t* module = must_parse(scale_text);
  qn_machine_t machine = {.struct_size = sizeof machine, .vector_bytes = 32};
  qn_lower_options_t options = {.struct_size = sizeof options, .machine = &machine};
  qn_module_t* lowered = NULL;
  must(qn_module_lower(module, "cpu", &options, &lowered));
  uint32_t lanes = lanes_of(lowered, body_of(lowered));
  assert_true(lanes >= 8 && lanes % 8 == 0);
  qn_module_release(lowered);
  must(qn_module_lower(module, "scalar", &options, &lowered));
  assert_int_equal(lanes_of(lowered, body_of(lowered)), 0);
  qn_module_release(lowered);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ machines

static qn_machine_t machine_of(const char* text) {
  qn_target_t* target = NULL;
  must(qn_target_parse(text, &target));
  qn_machine_t machine = {.struct_size = sizeof machine};
  must(qn_target_machine(target, &machine));
  qn_target_release(target);
  return machine;
}

static void machines_come_from_targets(void** state) {
  (void)state;
  qn_machine_t cpu = machine_of("cpu -mcpu=x86-64-v4");
  assert_int_equal(cpu.vector_bytes, 64);
  assert_true(cpu.has_fma && cpu.has_masked_memory && cpu.has_masked_words);
  assert_int_equal(cpu.l1_cache_bytes, 32768);
  assert_false(machine_of("cpu -mcpu=x86-64").has_fma);
  qn_machine_t vulkan = machine_of("vulkan -max_threads_per_block=256 -max_block_size_x=64");
  assert_int_equal(vulkan.max_threads, 64);
  assert_false(vulkan.has_shuffles);
  qn_machine_t cuda = machine_of("cuda -arch=sm_90a");
  assert_true(cuda.has_shuffles && cuda.has_block_reductions && cuda.has_fma);
  assert_int_equal(cuda.access_bytes, 16);
  assert_true(cuda.max_shared_bytes > 0 && cuda.max_threads > 0);
  qn_machine_t other = machine_of("interp");
  assert_int_equal(other.vector_bytes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(passes_are_listed_once),     cmocka_unit_test(pipelines_have_listed_passes),
      cmocka_unit_test(names_are_checked),          cmocka_unit_test(machines_are_checked),
      cmocka_unit_test(wrong_orders_are_refused),   cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(passes_stop_where_asked),    cmocka_unit_test(buffers_keep_their_ids),
      cmocka_unit_test(nodes_keep_their_places),    cmocka_unit_test(lanes_are_shown),
      cmocka_unit_test(machines_come_from_targets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
