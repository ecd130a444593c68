// SPDX-License-Identifier: Apache-2.0
// tests/unit/lower/test_lower_run.c: lowered modules compute what the module computes, by the
// interpreter, and hold what quern/lower.h says of each pipeline, as the public walk shows it.
//
// Programs are those of examples/ir and random ones.
// QUERN_TEST_SEEDS=FIRST:COUNT runs other seeds, as many as one likes.
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ir/interpret.h"
#include "quern/lower.h"
#include "tests/support/generate.h"
#include "tests/support/must.h"
#include "tests/support/reencode.h"
#include "tests/support/sanitized.h"

static uint64_t first_seed = 1;
static uint64_t seed_count = IS_SANITIZED ? 30 : 100;

// ------------------------------------------------------------------------------------ requests

typedef struct way {
  const char* passes;
  qn_machine_t machine;
  bool is_gpu;
  bool has_lanes;
  bool has_math;
} way_t;

#define MACHINE .struct_size = sizeof(qn_machine_t)
static const way_t ways[] = {
    {"scalar", {MACHINE}, false, false, false},
    {"scalar",
     {MACHINE, .has_fma = true, .vector_bytes = 32, .l1_cache_bytes = 4096, .l2_cache_bytes = 8192},
     false,
     false,
     false},
    {"cpu",
     {MACHINE, .has_fma = true, .vector_bytes = 64, .has_masked_memory = true,
      .has_masked_words = true, .wide_multiplies = 2},
     false,
     true,
     true},
    {"cpu,lower_math", {MACHINE, .vector_bytes = 32, .has_masked_words = true}, false, true, false},
    {"gpu", {MACHINE, .has_shuffles = true, .max_threads = 128}, true, true, true},
    {"gpu,lower_math",
     {MACHINE, .has_fma = true, .warp_size = 8, .max_threads = 64, .has_shuffles = true,
      .has_block_reductions = true, .access_bytes = 16, .multiprocessors = 4,
      .max_shared_bytes = 49152},
     true,
     true,
     false},
};

static qn_status_t lower(const qn_module_t* module, const way_t* way, int variant,
                         qn_module_t** out) {
  qn_lower_options_t options = {.struct_size = sizeof options,
                                .machine = &way->machine,
                                .tier = variant == 1 ? QN_TIER_FAST : QN_TIER_FULL,
                                .is_checked = variant == 2};
  return qn_module_lower(module, way->passes, &options, out);
}
enum { VARIANT_COUNT = 3 };

// ------------------------------------------------------------------------------------
// postconditions

typedef struct walk {
  const qn_module_t* module;
  const way_t* way;
  bool is_inside;  // of a launch
  const char* problem;
} walk_t;

static void check_block(walk_t* w, const qn_stmt_t* first);

static bool is_function(qn_op_t op) {
  static const qn_op_t functions[] = {
      QN_OP_EXP,   QN_OP_EXP2,  QN_OP_EXP10,   QN_OP_EXPM1,    QN_OP_LOG,   QN_OP_LOG2,
      QN_OP_LOG10, QN_OP_LOG1P, QN_OP_SIN,     QN_OP_COS,      QN_OP_TAN,   QN_OP_TANH,
      QN_OP_ERF,   QN_OP_POW,   QN_OP_SINH,    QN_OP_COSH,     QN_OP_ASIN,  QN_OP_ACOS,
      QN_OP_ATAN,  QN_OP_ATAN2, QN_OP_ASINH,   QN_OP_ACOSH,    QN_OP_ATANH, QN_OP_HYPOT,
      QN_OP_CBRT,  QN_OP_LDEXP, QN_OP_SIGMOID, QN_OP_NEXTAFTER};
  for (size_t i = 0; i < QN_COUNT_OF(functions); ++i) {
    if (functions[i] == op) return true;
  }
  return false;
}

static void check_expr(walk_t* w, const qn_expr_t* expr) {
  if (!expr) return;
  qn_expr_info_t info = {.struct_size = sizeof info};
  must(qn_module_expr_info(w->module, expr, &info));
  if (info.kind == QN_EXPR_NONE) w->problem = "an expression of no kind";
  if (info.kind == QN_EXPR_OP && !w->way->has_math && is_function(info.op)) {
    w->problem = "a function of mathematics";
  }
  bool is_exchange =
      info.kind == QN_EXPR_OP &&
      ((info.op >= QN_OP_SHUFFLE && info.op <= QN_OP_BLOCK_MAX) || info.op >= QN_OP_AXIS_SUM);
  if (is_exchange && !w->way->is_gpu) w->problem = "an exchange";
  if (info.kind == QN_EXPR_OP && info.op == QN_OP_WARP_SIZE) w->problem = "warp_size()";
  if (info.lane_count && (!w->way->has_lanes || w->way->is_gpu))
    w->problem = "a reduction in lanes";
  for (uint32_t i = 0; i < info.arg_count; ++i) check_expr(w, info.args[i]);
  check_expr(w, info.begin);
  check_expr(w, info.end);
  check_expr(w, info.value);
  if (info.lets) check_block(w, info.lets);
}

static void check_loop(walk_t* w, const qn_stmt_info_t* loop) {
  bool is_thread = loop->loop_kind >= QN_LOOP_BLOCK_X;
  if (w->way->is_gpu) {
    if (loop->loop_kind == QN_LOOP_PARALLEL) w->problem = "a parallel loop";
    if (loop->lane_count) w->problem = "a loop in lanes";
    return;
  }
  if (is_thread) w->problem = "a loop of blocks or threads";
  if (loop->loop_kind == QN_LOOP_UNROLL) w->problem = "an unroll loop";
  if (loop->loop_kind == QN_LOOP_PARALLEL && w->is_inside) w->problem = "a launch in a launch";
  if (w->way->has_lanes) return;
  if (loop->loop_kind == QN_LOOP_VECTOR || loop->lane_count) w->problem = "a loop in lanes";
}

static void check_buffer(walk_t* w, const qn_buffer_t* buffer) {
  qn_buffer_info_t info = {.struct_size = sizeof info};
  must(qn_module_buffer_info(w->module, buffer, &info));
  if (info.scope == QN_SCOPE_SHARED && !w->way->is_gpu) w->problem = "a shared buffer";
  if (info.dtype == QN_DTYPE_I4 || info.dtype == QN_DTYPE_U4) w->problem = "elements of 4 bits";
  if (info.scope != QN_SCOPE_VIEW) return;
  qn_buffer_info_t base = {.struct_size = sizeof base};
  must(qn_module_buffer_info(w->module, info.base, &base));
  if (base.dtype != info.dtype) w->problem = "a view of another dtype";
  if (!info.strides) w->problem = "a view without strides";
}

static void check_block(walk_t* w, const qn_stmt_t* first) {
  qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
  for (const qn_stmt_t* at = first; at; at = stmt.next) {
    must(qn_module_stmt_info(w->module, at, &stmt));
    if (stmt.kind == QN_STMT_NONE) w->problem = "a statement of no kind";
    if (stmt.kind == QN_STMT_REDUCE) w->problem = "a reduction of several values";
    if (stmt.kind == QN_STMT_LEAVE) w->problem = "break, continue or return";
    if (stmt.kind == QN_STMT_BARRIER && !w->way->is_gpu) w->problem = "a barrier";
    if (stmt.kind == QN_STMT_ALLOC) check_buffer(w, stmt.buffer);
    bool was_inside = w->is_inside;
    if (stmt.kind == QN_STMT_LOOP) {
      check_loop(w, &stmt);
      w->is_inside = was_inside || stmt.loop_kind == QN_LOOP_PARALLEL;
    }
    for (uint32_t i = 0; i < stmt.index_count; ++i) check_expr(w, stmt.indices[i]);
    check_expr(w, stmt.value);
    check_expr(w, stmt.value2);
    check_expr(w, stmt.condition);
    check_expr(w, stmt.begin);
    check_expr(w, stmt.end);
    check_block(w, stmt.body);
    check_block(w, stmt.other_body);
    w->is_inside = was_inside;
  }
}

// Checks the form, and that the walk shows all that the bytes have.
static void check_form(const qn_module_t* lowered, const way_t* way, const char* name) {
  walk_t w = {.module = lowered, .way = way};
  for (size_t i = 0; i < qn_module_function_count(lowered); ++i) {
    qn_function_info_t function = {.struct_size = sizeof function};
    must(qn_module_function_info(lowered, i, &function));
    check_block(&w, function.body);
  }
  if (w.problem) {
    char* text = NULL;
    must(qn_module_print(lowered, &text, NULL));
    fail_msg("%s after %s has %s:\n%s", name, way->passes, w.problem, text);
  }
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn_reencode(lowered, QN_PLACES_OTHER, &bytes, NULL);
  size_t size;
  const void* own = qn_module_bytes(lowered, &size);
  assert_int_equal(bytes.size, size);
  assert_memory_equal(bytes.data, own, size);
  qn__buffer_deinit(&bytes);
}

// ------------------------------------------------------------------------------------ examples

enum { MAX_PARAMS = 16, BUFFER_BYTES = 1 << 18, MAX_SYMBOLS = 16 };

static void fill(const qn__ir_buffer_t* buffer, uint8_t* data) {
  size_t bits = qn__dtype_bits(buffer->dtype);
  if (bits < 8) {
    memset(data, 0x31, BUFFER_BYTES);
    return;
  }
  size_t size = bits / 8;
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    qn__ir_scalar_t value = {.i = (int64_t)((i * 5) % 3)};
    if (qn__dtype_is_real(buffer->dtype)) value.f = (double)((i * 7) % 13) * 0.25 - 1.0;
    if (buffer->dtype == QN_DTYPE_BOOL) value.i = i % 3 == 0;
    uint64_t word = qn__scalar_to_bits(buffer->dtype, value);
    memcpy(data + i * size, &word, size);
  }
}

// Runs a form of a function with the arguments of the function as written, whose parameters may
// have other dtypes.
static bool run(const qn__ir_func_t* function, const qn__ir_func_t* form, const int64_t* symbols,
                const way_t* way, uint8_t** memory) {
  uint64_t words[MAX_PARAMS];
  assert_true(function->param_count <= MAX_PARAMS);
  for (size_t i = 0; i < function->param_count; ++i) {
    const qn__ir_param_t* param = &function->params[i];
    memory[i] = NULL;
    if (param->scalar) {
      qn__ir_scalar_t value = {.i = 3};
      if (qn__dtype_is_float(param->scalar->dtype)) value.f = 1.5;
      words[i] = qn__scalar_to_bits(param->scalar->dtype, value);
      continue;
    }
    memory[i] = malloc(BUFFER_BYTES);
    assert_non_null(memory[i]);
    fill(param->buffer, memory[i]);
    words[i] = (uint64_t)(uintptr_t)memory[i];
  }
  uint32_t warp = way->machine.warp_size ? way->machine.warp_size : 32;
  qn__interpret_args_t call = {
      .params = words, .symbols = symbols, .warp_size = warp, .runs_lanes = true};
  return qn_status_consume(qn__interpret(form, &call, qn_allocator_default())) == QN_STATUS_OK;
}

static bool same(const qn__ir_buffer_t* buffer, const uint8_t* a, const uint8_t* b,
                 size_t* out_index) {
  size_t size = qn__dtype_bits(buffer->dtype) < 8 ? 1 : qn_dtype_size_bytes(buffer->dtype);
  double allowed = size <= 2 ? 0.02 : 1e-4;
  for (size_t i = 0; i < BUFFER_BYTES / size; ++i) {
    *out_index = i;
    if (memcmp(a + i * size, b + i * size, size) == 0) continue;
    if (!qn__dtype_is_float(buffer->dtype)) return false;
    uint64_t want = 0, have = 0;
    memcpy(&want, a + i * size, size);
    memcpy(&have, b + i * size, size);
    double x = qn__scalar_from_bits(buffer->dtype, want).f;
    double y = qn__scalar_from_bits(buffer->dtype, have).f;
    if (isnan(x) && isnan(y)) continue;
    if (!(fabs(x - y) <= allowed * (1 + fabs(x)))) return false;
  }
  return true;
}

// Returns whether the function can run with such arguments.
static bool compare(const char* name, const qn__ir_func_t* function, const qn__ir_func_t* lowered,
                    const way_t* way) {
  static const int64_t symbols[MAX_SYMBOLS] = {4, 6, 8, 3, 5, 2, 4, 6, 8, 3, 5, 2, 4, 6, 8, 3};
  assert_true(function->symbol_count <= MAX_SYMBOLS);
  uint8_t* want[MAX_PARAMS];
  uint8_t* have[MAX_PARAMS];
  bool can_run = run(function, function, symbols, way, want);
  if (can_run && !run(function, lowered, symbols, way, have)) {
    fail_msg("%s, '%s' fails after %s", name, function->name, way->passes);
  }
  for (size_t i = 0; i < function->param_count; ++i) {
    size_t at;
    if (can_run && want[i] && !same(function->params[i].buffer, want[i], have[i], &at)) {
      fail_msg("%s after %s: '%s' of '%s' differs at %zu", name, way->passes,
               qn__param_name(&function->params[i]), function->name, at);
    }
    free(want[i]);
    if (can_run) free(have[i]);
  }
  return can_run;
}

static qn_module_t* read_example(const char* name) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/examples/ir/%s", QN_SOURCE_DIR, name);
  FILE* file = fopen(path, "r");
  assert_non_null(file);
  static char text[1 << 18];
  size_t size = fread(text, 1, sizeof text, file);
  assert_true(size > 0 && size < sizeof text);
  assert_int_equal(fclose(file), 0);
  qn_module_t* module = NULL;
  must(qn_module_parse(text, size, NULL, &module));
  return module;
}

static void examples_keep_their_meaning(void** state) {
  (void)state;
  DIR* folder = opendir(QN_SOURCE_DIR "/examples/ir");
  assert_non_null(folder);
  size_t count = 0, run_count = 0, file_count = 0;
  for (struct dirent* file; (file = readdir(folder)) != NULL;) {
    size_t size = strlen(file->d_name);
    if (size < 4 || strcmp(file->d_name + size - 3, ".qn") != 0) continue;
    qn_module_t* module = read_example(file->d_name);
    for (size_t i = 0; i < QN_COUNT_OF(ways) * VARIANT_COUNT; ++i) {
      const way_t* way = &ways[i / VARIANT_COUNT];
      qn_module_t* lowered = NULL;
      qn_status_t status = lower(module, way, (int)(i % VARIANT_COUNT), &lowered);
      // Blocks of more threads than the machine has.
      if (way->is_gpu && qn_status_code(status) == QN_STATUS_UNSUPPORTED) {
        qn_status_free(status);
        continue;
      }
      must(status);
      check_form(lowered, way, file->d_name);
      ++count;
      for (size_t f = 0; f < module->body.function_count; ++f) {
        if ((i + file_count) % (IS_SANITIZED ? 9 : 2) != 0) continue;
        run_count += compare(file->d_name, module->functions[f], lowered->functions[f], way);
      }
      qn_module_release(lowered);
    }
    qn_module_release(module);
    ++file_count;
  }
  (void)closedir(folder);
  print_message("%zu modules, %zu calls\n", count, run_count);
  assert_true(count > 400);
  assert_true(run_count > (IS_SANITIZED ? 40 : 200));  // else this test tests nothing
}

// ------------------------------------------------------------------------------------ random

static void interpret(const qn_generated_t* generated, const qn_module_t* module, const way_t* way,
                      qn_generated_args_t* args) {
  qn_generated_args_init(generated, args);
  uint32_t warp = way->machine.warp_size ? way->machine.warp_size : 32;
  qn__interpret_args_t call = {
      .params = args->params, .symbols = generated->symbols, .warp_size = warp, .runs_lanes = true};
  qn_status_t status = qn__interpret(module->functions[0], &call, qn_allocator_default());
  if (!qn_ok(status)) {
    fail_msg("seed %" PRIu64 ", %s: %s\n%s", generated->seed, way->passes,
             qn_status_message(status), generated->text);
  }
}

static void random_programs_keep_their_meaning(void** state) {
  (void)state;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    qn_generate_options_t options = {.size = seed % 4 == 0 ? 1 : 4,
                                     .allows_fast = true,
                                     .allows_threads = true,
                                     .is_form = seed % 4 == 0};
    qn_generated_t generated;
    qn_status_t status;
    if (!qn_generate(seed, &options, &generated, &status)) must(status);
    const way_t* way = &ways[seed % QN_COUNT_OF(ways)];
    qn_generated_args_t expected, actual;
    interpret(&generated, generated.module, way, &expected);
    for (int variant = 0; variant < VARIANT_COUNT; ++variant) {
      qn_module_t* lowered = NULL;
      must(lower(generated.module, way, variant, &lowered));
      check_form(lowered, way, generated.text);
      interpret(&generated, lowered, way, &actual);
      char message[256];
      if (!qn_generated_compare(&generated, &expected, &actual, false, message, sizeof message)) {
        char* text = NULL;
        must(qn_module_print(lowered, &text, NULL));
        fail_msg("seed %" PRIu64 ", %s, %d: %s\n%s\n%s", seed, way->passes, variant, message,
                 generated.text, text);
      }
      qn_generated_args_deinit(&actual);
      qn_module_release(lowered);
    }
    qn_generated_args_deinit(&expected);
    qn_generated_release(&generated);
  }
}

// Any list of names gives a module that computes the same, or an error.
static void every_order_is_safe(void** state) {
  (void)state;
  static const char* const names[] = {"scalar",
                                      "cpu",
                                      "gpu",
                                      "lower_leaves",
                                      "lower_several",
                                      "simplify",
                                      "target_values",
                                      "lower_dtypes",
                                      "lower_views",
                                      "lower_exchanges",
                                      "unroll",
                                      "lower_exchanges,serialize_threads",
                                      "hoist",
                                      "vectorize",
                                      "lower_lanes",
                                      "lower_math",
                                      "serialize_threads"};
  size_t good_count = 0;
  for (uint64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    qn_generate_options_t options = {.size = 2, .allows_fast = true, .allows_threads = true};
    qn_generated_t generated;
    qn_status_t status;
    if (!qn_generate(seed, &options, &generated, &status)) must(status);
    char list[256] = "";
    uint64_t random = seed * UINT64_C(0x9E3779B97F4A7C15);
    for (uint64_t count = 1 + (random >> 60) % 4; count > 0; --count) {
      random = random * UINT64_C(0xBF58476D1CE4E5B9) + 1;
      const char* name = names[(random >> 32) % QN_COUNT_OF(names)];
      (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? "," : "",
                     name);
    }
    way_t way = ways[seed % QN_COUNT_OF(ways)];
    way.passes = list;
    qn_module_t* lowered = NULL;
    status = lower(generated.module, &way, (int)(seed % VARIANT_COUNT), &lowered);
    qn_status_code_t code = qn_status_consume(status);
    if (code == QN_STATUS_OK) {
      qn_generated_args_t expected, actual;
      interpret(&generated, generated.module, &way, &expected);
      interpret(&generated, lowered, &way, &actual);
      char message[256];
      if (!qn_generated_compare(&generated, &expected, &actual, false, message, sizeof message)) {
        fail_msg("seed %" PRIu64 ", %s: %s\n%s", seed, list, message, generated.text);
      }
      qn_generated_args_deinit(&actual);
      qn_generated_args_deinit(&expected);
      ++good_count;
    } else if (code != QN_STATUS_UNSUPPORTED && code != QN_STATUS_INVALID_MODULE) {
      fail_msg("seed %" PRIu64 ", %s: %s", seed, list, qn_status_code_text(code));
    }
    qn_module_release(lowered);
    qn_generated_release(&generated);
  }
  assert_true(good_count > seed_count / 2);
}

int main(void) {
  qn_generate_seeds(&first_seed, &seed_count);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(examples_keep_their_meaning),
      cmocka_unit_test(random_programs_keep_their_meaning),
      cmocka_unit_test(every_order_is_safe),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
