// SPDX-License-Identifier: Apache-2.0
// tests/interface/test_sizes.c: tests structs with struct_size as an older program (shorter) and a
// newer one (longer) use them: structs filled by the program, filled by the library, and returned
// by the library. Also tests default streams.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "quern/adaptive.h"
#include "quern/cache.h"
#include "quern/device.h"
#include "quern/lower.h"
#include "quern/observe.h"
#include "quern/read.h"
#include "quern/tvm_ffi.h"
#include "quern/warm.h"
#include "tests/interface/support_plan.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

typedef struct fixture {
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_cache_dir_t* dir;
  qn_cache_bundle_t* bundle;
  qn_warm_list_t* list;
} fixture_t;

static const char text[] =
    "func f(n: i64, out y: f32[n]) {\n"
    "  for i in 0..n {\n    y[i] = 1.0;\n  }\n"
    "  let best, at = argmax i in 0..n { y[i] };\n"
    "}\n";

static int make(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_true(qn_test_tempdir_make(f->directory));
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = f->directory, .ignores_environment = true};
  must(qn_engine_create(&options, &f->engine));
  f->module = must_parse(text);
  must(qn_target_parse("interp", &f->target));
  qn_executable_t* executable;
  must(qn_engine_executable(f->engine, f->module, f->target, NULL, NULL, &executable));
  qn_executable_release(executable);
  assert_true(qn_engine_flush(f->engine, QN_TIMEOUT_INFINITE));
  must(qn_cache_dir_open(f->directory, &f->dir));
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/first.qnb", f->directory);
  must(qn_cache_bundle_write(path, f->dir, NULL, 0, NULL, NULL));
  must(qn_cache_bundle_open(path, NULL, 0, &f->bundle));
  must(qn_warm_list_create(&f->list));
  must(qn_warm_list_add(f->list, f->module, f->target, NULL));
  *state = f;
  return 0;
}

static int drop(void** state) {
  fixture_t* f = *state;
  qn_warm_list_destroy(f->list);
  qn_cache_bundle_close(f->bundle);
  qn_cache_dir_close(f->dir);
  qn_target_release(f->target);
  qn_module_release(f->module);
  qn_engine_destroy(f->engine);
  qn_test_tempdir_remove(f->directory);
  free(f);
  return 0;
}

// ------------------------------------------------------------------------ filled by the program

static qn_status_t give_engine(fixture_t* f, const void* options) {
  (void)f;
  qn_engine_t* engine;
  qn_status_t status = qn_engine_create(options, &engine);
  qn_engine_destroy(engine);
  return status;
}
static qn_status_t give_lookup(fixture_t* f, const void* options) {
  qn_executable_t* executable;
  qn_status_t status =
      qn_engine_executable(f->engine, f->module, f->target, options, NULL, &executable);
  qn_executable_release(executable);
  return status;
}
static qn_status_t give_parse(fixture_t* f, const void* options) {
  (void)f;
  qn_module_t* module;
  qn_status_t status = qn_module_parse(text, sizeof text - 1, options, &module);
  qn_module_release(module);
  return status;
}
static qn_status_t give_write(fixture_t* f, const void* options) {
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/kernels.qnb", f->directory);
  return qn_cache_bundle_write(path, f->dir, NULL, 0, options, NULL);
}
static qn_status_t give_recompile(fixture_t* f, const void* options) {
  return qn_engine_recompile(f->engine, options, NULL);
}
static qn_status_t give_warm(fixture_t* f, const void* options) {
  return qn_warm(f->engine, f->list, options, NULL);
}
static qn_status_t give_warm_read(fixture_t* f, const void* options) {
  return qn_warm_list_read(f->list, "# nothing\n", 10, options, NULL);
}
static qn_status_t give_warm_add(fixture_t* f, const void* options) {
  return qn_warm_list_add(f->list, f->module, f->target, options);
}
static qn_status_t give_fallback(fixture_t* f, const void* options) {
  qn_function_t* function;
  qn_status_t status =
      qn_engine_function(f->engine, f->module, f->target, "f", options, NULL, &function);
  qn_function_release(function);
  return status;
}
static qn_status_t give_adaptive(fixture_t* f, const void* options) {
  qn_function_t* function;
  qn_status_t status =
      qn_engine_adaptive_function(f->engine, f->module, f->target, "f", options, NULL, &function);
  qn_function_release(function);
  return status;
}
static qn_status_t give_lower(fixture_t* f, const void* options) {
  qn_module_t* module;
  qn_status_t status = qn_module_lower(f->module, "scalar", options, &module);
  qn_module_release(module);
  return status;
}
static qn_status_t give_machine(fixture_t* f, const void* machine) {
  qn_lower_options_t options = {.struct_size = sizeof options, .machine = machine};
  return give_lower(f, &options);
}
static qn_status_t swallow(void* self, const void* data, size_t size_bytes) {
  (void)self, (void)data, (void)size_bytes;
  return QN_OK;
}
static qn_status_t find_nothing(void* self, qn_device_t device, qn_function_t** out_function) {
  (void)self, (void)device;
  *out_function = NULL;
  return qn_status_make(QN_STATUS_INTERNAL, "called");
}
// tvm-ffi is not in this process, which is asked after the struct was read.
static qn_status_t give_source(fixture_t* f, const void* source) {
  (void)f;
  qn_status_t status = qn_tvm_ffi_register("f", false, source);
  if (qn_status_code(status) != QN_STATUS_UNAVAILABLE) return status;
  qn_status_free(status);
  return QN_OK;
}
static qn_gpu_program_t* make_program(fixture_t* f, const qn_gpu_program_options_t* options,
                                      qn_status_t* out_status) {
  qn_module_t* lowered;
  must(qn_module_lower(f->module, "gpu", NULL, &lowered));
  qn_gpu_program_t* program;
  *out_status = qn_gpu_program_create(lowered, options, &program);
  qn_module_release(lowered);
  return program;
}
static qn_status_t give_program(fixture_t* f, const void* options) {
  qn_status_t status;
  qn_gpu_program_destroy(make_program(f, options, &status));
  return status;
}
static qn_status_t give_code(fixture_t* f, const void* code) {
  qn_status_t status;
  qn_gpu_program_t* program = make_program(f, NULL, &status);
  must(status);
  status = qn_gpu_program_set_code(program, 0, code);
  qn_gpu_program_destroy(program);
  return status;
}
static qn_status_t give_library(fixture_t* f, const void* options) {
  return qn_tvm_ffi_library_write(f->module, options, (qn_sink_t){NULL, swallow});
}
static qn_status_t give_copy(fixture_t* f, const void* copy) {
  (void)f;
  return qn_device_copy(copy, NULL);
}

// The members up to `least` must be there for the call to be a success.
static const struct {
  const char* name;
  size_t size;
  size_t least;
  qn_status_t (*give)(fixture_t* f, const void* options);
} structs[] = {
    {"qn_engine_options_t", sizeof(qn_engine_options_t), sizeof(size_t), give_engine},
    {"qn_lookup_options_t", sizeof(qn_lookup_options_t), sizeof(size_t), give_lookup},
    {"qn_lookup_options_t", sizeof(qn_lookup_options_t), sizeof(size_t), give_fallback},
    {"qn_lookup_options_t", sizeof(qn_lookup_options_t), sizeof(size_t), give_warm_add},
    {"qn_lower_options_t", sizeof(qn_lower_options_t), sizeof(size_t), give_lower},
    {"qn_machine_t", sizeof(qn_machine_t), sizeof(size_t), give_machine},
    {"qn_gpu_program_options_t", sizeof(qn_gpu_program_options_t), sizeof(size_t), give_program},
    {"qn_gpu_code_t", sizeof(qn_gpu_code_t), sizeof(size_t), give_code},
    {"qn_adaptive_options_t", sizeof(qn_adaptive_options_t),
     offsetof(qn_adaptive_options_t, lookup), give_adaptive},
    {"qn_parse_options_t", sizeof(qn_parse_options_t), sizeof(size_t), give_parse},
    {"qn_cache_write_options_t", sizeof(qn_cache_write_options_t), sizeof(size_t), give_write},
    {"qn_recompile_options_t", sizeof(qn_recompile_options_t), sizeof(size_t), give_recompile},
    {"qn_warm_options_t", sizeof(qn_warm_options_t), sizeof(size_t), give_warm},
    {"qn_warm_read_options_t", sizeof(qn_warm_read_options_t), sizeof(size_t), give_warm_read},
    {"qn_tvm_ffi_source_t", sizeof(qn_tvm_ffi_source_t), offsetof(qn_tvm_ffi_source_t, release),
     give_source},
    {"qn_tvm_ffi_library_options_t", sizeof(qn_tvm_ffi_library_options_t),
     offsetof(qn_tvm_ffi_library_options_t, run_path), give_library},
    {"qn_copy_t", sizeof(qn_copy_t), offsetof(qn_copy_t, from), give_copy},
};

// A struct of exactly `size` bytes, so that a sanitizer sees a byte too much.
static qn_status_t give(fixture_t* f, size_t i, size_t size, size_t stated, uint8_t last) {
  uint8_t* bytes = calloc(1, size);
  assert_non_null(bytes);
  if (structs[i].give == give_copy) {
    qn_copy_t copy = {.from_device = {QN_DEVICE_CPU, 0}, .to_device = {QN_DEVICE_CPU, 0}};
    memcpy(bytes, &copy, size < sizeof copy ? size : sizeof copy);
  }
  const qn_adaptive_name_t n = {.name = "n"};
  if (structs[i].give == give_adaptive) {
    qn_adaptive_options_t adaptive = {.names = &n, .name_count = 1};
    memcpy(bytes, &adaptive, size < sizeof adaptive ? size : sizeof adaptive);
  }
  if (structs[i].give == give_library) {
    qn_tvm_ffi_library_options_t library = {
        .targets = &f->target, .target_count = 1, .bundle = "bundle", .bundle_size = 6};
    memcpy(bytes, &library, size < sizeof library ? size : sizeof library);
  }
  if (structs[i].give == give_source) {
    qn_tvm_ffi_source_t source = {.find = find_nothing};
    memcpy(bytes, &source, size < sizeof source ? size : sizeof source);
  }
  memcpy(bytes, &stated, sizeof stated < size ? sizeof stated : size);
  if (last) bytes[size - 1] = last;
  qn_status_t status = structs[i].give(f, bytes);
  free(bytes);
  return status;
}

static void test_sizes(void** state) {
  fixture_t* f = *state;
  for (size_t i = 0; i < QN_COUNT_OF(structs); i++) {
    size_t size = structs[i].size;
    const char* name = structs[i].name;
    must(give(f, i, size, size, 0));
    if (structs[i].give != give_copy) must(give(f, i, structs[i].least, structs[i].least, 0));
    must(give(f, i, size + 1, size + 1, 0));
    must(give(f, i, size + 64, size + 64, 0));
    must_fail(give(f, i, size + 64, size + 64, 1), QN_STATUS_INVALID_ARGUMENT, name);
    must_fail(give(f, i, size, 0, 0), QN_STATUS_INVALID_ARGUMENT, name);
    must_fail(give(f, i, size, 7, 0), QN_STATUS_INVALID_ARGUMENT, "struct_size is 7");
    must_fail(give(f, i, size, SIZE_MAX, 0), QN_STATUS_INVALID_ARGUMENT, "struct_size");
  }
  // A member that an older program does not have is the default; what it has, counts.
  qn_lookup_options_t options = {.struct_size = offsetof(qn_lookup_options_t, is_checked),
                                 .tier = QN_TIER_FAST,
                                 .is_checked = true,
                                 .time_limit_ns = -1};
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_executable_t* executable;
  must(qn_engine_executable(f->engine, f->module, f->target, &options, &info, &executable));
  assert_int_equal(info.tier, QN_TIER_FAST);
  qn_executable_release(executable);
}

// -------------------------------------------------------------- filled by the library for a
// program

static qn_status_t fill_executable(fixture_t* f, void* out) {
  qn_executable_t* executable;
  qn_status_t status =
      qn_engine_executable(f->engine, f->module, f->target, NULL, out, &executable);
  qn_executable_release(executable);
  return status;
}
static qn_status_t fill_function(fixture_t* f, void* out) {
  qn_function_t* function;
  qn_status_t status =
      qn_engine_function(f->engine, f->module, f->target, "f", NULL, out, &function);
  qn_function_release(function);
  return status;
}
static qn_status_t fill_fallback(fixture_t* f, void* out) {
  qn_lookup_options_t options = {.struct_size = sizeof options, .miss = QN_MISS_FALLBACK};
  qn_function_t* function;
  qn_status_t status =
      qn_engine_function(f->engine, f->module, f->target, "f", &options, out, &function);
  qn_function_release(function);
  return status;
}
static qn_status_t fill_future(fixture_t* f, void* out) {
  qn_future_t* future;
  qn_function_t* function;
  must(qn_engine_request(f->engine, f->module, f->target, "f", NULL, &future));
  qn_status_t status = qn_future_wait(future, QN_TIMEOUT_INFINITE, out, &function);
  qn_function_release(function);
  qn_future_release(future);
  return status;
}
static qn_status_t fill_compile(fixture_t* f, void* out) {
  return qn_engine_compile(f->engine, f->module, f->target, NULL, out);
}
static qn_status_t fill_param(fixture_t* f, void* out) {
  return qn_module_param_info(f->module, 0, 1, out);
}
static qn_status_t fill_function_info(fixture_t* f, void* out) {
  return qn_module_function_info(f->module, 0, out);
}
static const qn_stmt_t* body_of(const qn_module_t* module) {
  qn_function_info_t info = {.struct_size = sizeof info};
  must(qn_module_function_info(module, 0, &info));
  return info.body;
}
static qn_status_t fill_stmt(fixture_t* f, void* out) {
  return qn_module_stmt_info(f->module, body_of(f->module), out);
}
static qn_status_t fill_several(fixture_t* f, void* out) {
  qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
  must(qn_module_stmt_info(f->module, body_of(f->module), &stmt));
  return qn_module_several_info(f->module, stmt.next, out);
}
static qn_status_t fill_var(fixture_t* f, void* out) {
  qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
  must(qn_module_stmt_info(f->module, body_of(f->module), &stmt));
  return qn_module_var_info(f->module, stmt.var, out);
}
static qn_status_t fill_expr(fixture_t* f, void* out) {
  qn_stmt_info_t stmt = {.struct_size = sizeof stmt};
  must(qn_module_stmt_info(f->module, body_of(f->module), &stmt));
  return qn_module_expr_info(f->module, stmt.end, out);
}
static qn_status_t fill_buffer(fixture_t* f, void* out) {
  qn_param_info_t param = {.struct_size = sizeof param};
  must(qn_module_param_info(f->module, 0, 1, &param));
  return qn_module_buffer_info(f->module, param.buffer, out);
}
static qn_status_t fill_pass(fixture_t* f, void* out) {
  (void)f;
  return qn_pass_info(0, out);
}
static qn_status_t fill_pipeline(fixture_t* f, void* out) {
  (void)f;
  return qn_pipeline_info(0, out);
}
static qn_status_t fill_machine(fixture_t* f, void* out) {
  return qn_target_machine(f->target, out);
}
static qn_status_t fill_work(fixture_t* f, void* out) {
  int64_t shape[] = {2};
  qn_tensor_t tensor = {.ndim = 1, .shape = shape};
  qn_value_t args[2] = {qn_value_int(2), qn_value_tensor(&tensor)};
  return qn_module_work(f->module, 0, args, 2, 0, out);
}
static qn_status_t fill_usage(fixture_t* f, void* out) {
  return qn_cache_dir_usage(f->dir, out);
}
static qn_status_t fill_place(fixture_t* f, void* out) {
  return qn_cache_dir_place(f->dir, out);
}
static qn_status_t fill_verify(fixture_t* f, void* out) {
  return qn_cache_dir_verify(f->dir, false, NULL, NULL, out);
}
static qn_status_t fill_bundle(fixture_t* f, void* out) {
  return qn_cache_bundle_info(f->bundle, out);
}
static qn_status_t fill_bundle_verify(fixture_t* f, void* out) {
  return qn_cache_bundle_verify(f->bundle, NULL, NULL, out);
}
static qn_status_t fill_write(fixture_t* f, void* out) {
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/kernels.qnb", f->directory);
  return qn_cache_bundle_write(path, f->dir, NULL, 0, NULL, out);
}
static qn_status_t fill_import(fixture_t* f, void* out) {
  return qn_cache_dir_import(f->dir, f->bundle, NULL, NULL, out);
}
static bool go_on(void* self, const qn_cached_lookup_t* lookup) {
  (void)self;
  assert_int_equal(lookup->struct_size, sizeof *lookup);
  return true;
}
static qn_status_t fill_cached(fixture_t* f, void* out) {
  return qn_engine_cached(f->engine, go_on, NULL, out);
}
static qn_status_t fill_recompile(fixture_t* f, void* out) {
  return qn_engine_recompile(f->engine, NULL, out);
}
static qn_status_t fill_warm(fixture_t* f, void* out) {
  return qn_warm(f->engine, f->list, NULL, out);
}
static qn_status_t fill_warm_cache(fixture_t* f, void* out) {
  return qn_warm_list_add_cache(f->list, f->engine, NULL, out);
}

static qn_status_t fill_plan_kernel(fixture_t* f, void* out) {
  (void)f;
  qn_gpu_plan_t* plan = plan_loaded();
  qn_status_t status = qn_gpu_plan_kernel(plan, 0, out);
  qn_gpu_plan_destroy(plan);
  return status;
}
static qn_status_t fill_source(fixture_t* f, void* out) {
  qn_status_t status;
  qn_gpu_program_t* program = make_program(f, NULL, &status);
  must(status);
  status = qn_gpu_program_kernel(program, 0, out);
  qn_gpu_program_destroy(program);
  return status;
}
static qn_status_t fill_plan_function(fixture_t* f, void* out) {
  (void)f;
  qn_gpu_plan_t* plan = plan_loaded();
  qn_status_t status = qn_gpu_plan_function(plan, 0, out);
  qn_gpu_plan_destroy(plan);
  return status;
}

// The bytes before `changing` are the same in each call: after them come times, or addresses.
static const struct {
  const char* name;
  size_t size;
  size_t changing;
  qn_status_t (*fill)(fixture_t* f, void* out);
} outs[] = {
#define OUT(type, fill) {#type, sizeof(type), sizeof(type), fill}
#define TIMED(type, member, fill) {#type, sizeof(type), offsetof(type, member), fill}
    TIMED(qn_lookup_info_t, lookup_ns, fill_executable),
    TIMED(qn_lookup_info_t, lookup_ns, fill_function),
    TIMED(qn_lookup_info_t, lookup_ns, fill_fallback),
    TIMED(qn_lookup_info_t, lookup_ns, fill_future),
    TIMED(qn_lookup_info_t, lookup_ns, fill_compile),
    OUT(qn_param_info_t, fill_param),
    OUT(qn_function_info_t, fill_function_info),
    OUT(qn_stmt_info_t, fill_stmt),
    OUT(qn_several_info_t, fill_several),
    OUT(qn_var_info_t, fill_var),
    OUT(qn_expr_info_t, fill_expr),
    OUT(qn_buffer_info_t, fill_buffer),
    OUT(qn_pass_info_t, fill_pass),
    OUT(qn_pipeline_info_t, fill_pipeline),
    OUT(qn_machine_t, fill_machine),
    TIMED(qn_gpu_kernel_info_t, name, fill_plan_kernel),
    OUT(qn_gpu_function_info_t, fill_plan_function),
    TIMED(qn_gpu_kernel_source_t, name, fill_source),
    OUT(qn_work_t, fill_work),
    OUT(qn_cache_usage_t, fill_usage),
    TIMED(qn_cache_place_t, free_bytes, fill_place),
    OUT(qn_cache_verify_report_t, fill_verify),
    OUT(qn_cache_bundle_info_t, fill_bundle),
    OUT(qn_cache_verify_report_t, fill_bundle_verify),
    OUT(qn_cache_write_report_t, fill_write),
    OUT(qn_cache_import_report_t, fill_import),
    OUT(qn_cached_report_t, fill_cached),
    OUT(qn_recompile_report_t, fill_recompile),
    TIMED(qn_warm_result_t, rate_per_s, fill_warm),
    OUT(qn_cached_report_t, fill_warm_cache),
#undef OUT
#undef TIMED
};

enum { GUARD = 64, FILLER = 0xa5 };

static bool is_all(const uint8_t* bytes, size_t size, uint8_t value) {
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != value) return false;
  }
  return true;
}

// Has a struct of `stated` bytes filled, and compares it with a whole one (NULL: nothing to compare
// with). The caller frees it.
static uint8_t* fill(fixture_t* f, size_t i, size_t stated, const uint8_t* whole) {
  size_t size = outs[i].size, filled = stated < size ? stated : size;
  uint8_t* out = malloc(stated + GUARD);
  assert_non_null(out);
  memset(out, FILLER, stated + GUARD);
  memcpy(out, &stated, sizeof stated);
  must(outs[i].fill(f, out));
  assert_true(is_all(out + stated, GUARD, FILLER));
  assert_true(is_all(out + filled, stated - filled, 0));
  assert_memory_equal(out, &filled, sizeof filled);
  size_t same = filled < outs[i].changing ? filled : outs[i].changing;
  if (whole) assert_memory_equal(out + sizeof same, whole + sizeof same, same - sizeof same);
  return out;
}

static void refuse(fixture_t* f, size_t i, size_t stated) {
  uint8_t* out = calloc(1, outs[i].size);
  assert_non_null(out);
  memcpy(out, &stated, sizeof stated);
  must_fail(outs[i].fill(f, out), QN_STATUS_INVALID_ARGUMENT, outs[i].name);
  assert_memory_equal(out, &stated, sizeof stated);
  assert_true(is_all(out + sizeof stated, outs[i].size - sizeof stated, 0));
  free(out);
}

static void test_filled_for_programs(void** state) {
  fixture_t* f = *state;
  for (size_t i = 0; i < QN_COUNT_OF(outs); i++) {
    size_t size = outs[i].size;
    uint8_t* whole = fill(f, i, size, NULL);
    assert_false(is_all(whole + sizeof size, size - sizeof size, 0));
    for (size_t shorter = sizeof size; shorter < size; shorter += 4) {
      free(fill(f, i, shorter, whole));
    }
    free(fill(f, i, size + 1, whole));
    free(fill(f, i, size + 64, whole));
    free(whole);
    refuse(f, i, 0);
    refuse(f, i, 7);
    refuse(f, i, SIZE_MAX);
  }
}

// ------------------------------------------------------------------- handed out by the library

static int handed_out;
#define IS_WHOLE(given) (handed_out++, assert_int_equal((given)->struct_size, sizeof *(given)))

static void see_compile(void* self, const qn_compile_event_t* event) {
  (void)self;
  IS_WHOLE(event);
}
static void see_diagnostic(void* self, const qn_diagnostic_t* diagnostic) {
  (void)self;
  IS_WHOLE(diagnostic);
}
static bool see_info(void* self, const qn_cache_entry_info_t* info) {
  (void)self;
  IS_WHOLE(info);
  return true;
}
static bool see_summary(void* self, const qn_cache_summary_t* summary) {
  (void)self;
  IS_WHOLE(summary);
  return see_info(NULL, summary->info);
}
static bool see_entry(void* self, const qn_cache_entry_t* entry) {
  (void)self;
  IS_WHOLE(entry);
  return see_info(NULL, entry->info);
}
static void see_stage(void* self, const qn_stage_info_t* stage) {
  (void)self;
  IS_WHOLE(stage);
}
static void see_variant(void* self, const qn_variant_info_t* variant) {
  (void)self;
  IS_WHOLE(variant);
}
static void see_problem(void* self, const qn_warm_problem_t* problem) {
  (void)self;
  IS_WHOLE(problem);
}
static bool see_item(void* self, const qn_warm_result_t* so_far, const qn_warm_item_t* item) {
  (void)self;
  IS_WHOLE(so_far);
  if (item) IS_WHOLE(item);
  return true;
}

static void expect_more(int* inout_before, int count) {
  assert_true(handed_out >= *inout_before + count);
  *inout_before = handed_out;
}

static void test_handed_out(void** state) {
  fixture_t* f = *state;
  int before = handed_out;
  qn_engine_options_t engine_options = {.struct_size = sizeof engine_options,
                                        .cache_dir = "",
                                        .ignores_environment = true,
                                        .on_compile = see_compile};
  qn_engine_t* engine;
  qn_executable_t* executable;
  must(qn_engine_create(&engine_options, &engine));
  must(qn_engine_executable(engine, f->module, f->target, NULL, NULL, &executable));
  qn_executable_release(executable);
  qn_engine_stages(engine, see_stage, NULL);
  const qn_adaptive_name_t n = {.name = "n"};
  qn_adaptive_options_t adaptive = {.struct_size = sizeof adaptive, .names = &n, .name_count = 1};
  qn_function_t* function;
  float y[4];
  int64_t shape[] = {4};
  qn_tensor_t tensor = {y, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  const qn_value_t args[] = {qn_value_int(4), qn_value_tensor(&tensor)};
  must(qn_engine_adaptive_function(engine, f->module, f->target, "f", &adaptive, NULL, &function));
  // The engine's thread takes the samples of calls when it runs.
  int seen = handed_out;
  while (handed_out == seen) {
    must(qn_function_call(function, args, 2, NULL));
    must(qn_engine_variants(engine, function, see_variant, NULL));
  }
  qn_function_release(function);
  qn_engine_destroy(engine);
  expect_more(&before, 3);
  qn_parse_options_t parsing = {.struct_size = sizeof parsing, .on_diagnostic = see_diagnostic};
  qn_module_t* module;
  must_fail(qn_module_parse("func", 4, &parsing, &module), QN_STATUS_SYNTAX, "");
  expect_more(&before, 1);
  must(qn_cache_dir_list(f->dir, see_info, NULL));
  expect_more(&before, 1);
  must(qn_cache_dir_survey(f->dir, see_summary, NULL));
  expect_more(&before, 2);
  must(qn_cache_bundle_list(f->bundle, see_info, NULL));
  expect_more(&before, 1);
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/kernels.qnb", f->directory);
  qn_cache_write_options_t writing = {.struct_size = sizeof writing, .wants = see_entry};
  must(qn_cache_bundle_write(path, f->dir, NULL, 0, &writing, NULL));
  expect_more(&before, 2);
  qn_explanation_t* explanation;
  must(qn_engine_explain(f->engine, f->module, f->target, NULL, &explanation));
  IS_WHOLE(explanation);
  qn_explanation_free(explanation);
  qn_warm_read_options_t reading = {.struct_size = sizeof reading, .on_problem = see_problem};
  must(qn_warm_list_read(f->list, "{\n", 2, &reading, NULL));
  expect_more(&before, 2);
  qn_warm_options_t warming = {.struct_size = sizeof warming, .on_progress = see_item};
  must(qn_warm(f->engine, f->list, &warming, NULL));
  expect_more(&before, 2);
}

static void test_default_stream(void** state) {
  (void)state;
  const qn_device_t cpu = {QN_DEVICE_CPU, 0};
  qn_stream_t *stream, *again, *own;
  must(qn_stream_default(cpu, &stream));
  must(qn_stream_default(cpu, &again));
  assert_ptr_equal(stream, again);
  assert_int_equal(qn_stream_device(stream).type, QN_DEVICE_CPU);
  assert_true(qn_stream_is_idle(stream));
  must(qn_stream_sync(cpu, stream));
  assert_null(qn_stream_native(stream));
  must(qn_stream_create(cpu, &own));
  must(qn_stream_wait(cpu, own, stream));
  must(qn_stream_wait(cpu, stream, own));
  must(qn_set_active_stream(cpu, own));
  must(qn_set_active_stream(cpu, stream));
  assert_null(qn_active_stream(cpu));
  qn_stream_destroy(own);
  qn_stream_destroy(stream);
  assert_true(qn_stream_is_idle(stream));
  qn_device_t none = {QN_DEVICE_CPU, 7};
  must_fail(qn_stream_default(none, &stream), QN_STATUS_NOT_FOUND, "cpu:7");
  assert_null(stream);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_sizes, make, drop),
      cmocka_unit_test_setup_teardown(test_filled_for_programs, make, drop),
      cmocka_unit_test_setup_teardown(test_handed_out, make, drop),
      cmocka_unit_test(test_default_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
