// SPDX-License-Identifier: Apache-2.0
// tests/interface/test_tables.c: tests tables of plugins, devices, generators and target kinds, and
// artifacts, from an older header (shorter) and a newer one (longer).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "devices/device.h"
#include "jit/codegen/generator.h"
#include "jit/codegen/generator_info.h"
#include "quern/backend.h"
#include "quern/cache.h"
#include "tests/interface/support_plan.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

// A copy of `table` in exactly `room` bytes, so that a sanitizer sees a byte too much, with
// `stated` as struct_size at `offset`. The caller frees it.
static void* sized(const void* table, size_t size, size_t room, size_t offset, size_t stated) {
  uint8_t* copy = calloc(1, room);
  assert_non_null(copy);
  memcpy(copy, table, size < room ? size : room);
  memcpy(copy + offset, &stated, sizeof stated);
  return copy;
}

// ------------------------------------------------------------------------------------ tables

static int32_t next_type = 40;
static char names[64][16];
static unsigned name_count;

static const char* new_name(void) {
  assert_true(name_count < QN_COUNT_OF(names));
  char* name = names[name_count];
  (void)snprintf(name, sizeof names[0], "sized_%c%c", 'a' + (char)(name_count / 26),
                 'a' + (char)(name_count % 26));
  name_count++;
  return name;
}

static qn_status_t give_device(size_t room, size_t stated, bool has_tail) {
  qn_device_table_t table = *qn__device_table(QN_DEVICE_NULL);
  table.type = next_type;
  table.name = new_name();
  uint8_t* copy =
      sized(&table, sizeof table, room, offsetof(qn_device_table_t, struct_size), stated);
  if (has_tail) copy[room - 1] = 1;
  qn_status_t status = qn_device_register((const qn_device_table_t*)(void*)copy);
  free(copy);
  if (qn_ok(status)) next_type++;
  return status;
}
static qn_status_t give_generator(size_t room, size_t stated, bool has_tail) {
  qn_codegen_t table = qn__interp_codegen;
  table.name = new_name();
  uint8_t* copy = sized(&table, sizeof table, room, offsetof(qn_codegen_t, struct_size), stated);
  if (has_tail) copy[room - 1] = 1;
  qn_status_t status = qn_codegen_register((const qn_codegen_t*)(void*)copy);
  free(copy);
  return status;
}
static qn_status_t give_kind(size_t room, size_t stated, bool has_tail) {
  qn_target_kind_info_t info = {
      .name = new_name(), .doc = "a test", .codegen = "interp", .device_type = QN_DEVICE_CPU};
  uint8_t* copy = sized(&info, sizeof info, room, 0, stated);
  if (has_tail) copy[room - 1] = 1;
  qn_status_t status = qn_target_kind_register((const qn_target_kind_info_t*)(void*)copy);
  free(copy);
  return status;
}
static qn_status_t give_plugin(size_t room, size_t stated, bool has_tail) {
  (void)room;
  char text[32];
  (void)snprintf(text, sizeof text, "%zu", stated);
  (void)setenv("PLUGIN_SIZE", text, 1);
  if (has_tail) (void)setenv("PLUGIN_TAIL", "1", 1);
  qn_status_t status = qn_plugin_load(PLUGIN);
  (void)unsetenv("PLUGIN_TAIL");
  return status;
}

static qn_status_t give_info(size_t room, size_t stated, bool has_tail) {
  qn_generator_info_t info = {.name = new_name()};
  uint8_t* copy = sized(&info, sizeof info, room, 0, stated);
  if (has_tail) copy[room - 1] = 1;
  qn_status_t status = qn__generator_info_add("/", (const qn_generator_info_t*)(void*)copy);
  free(copy);
  return status;
}

static qn_status_t give_runner(size_t room, size_t stated, bool has_tail) {
  uint8_t* copy =
      sized(&plan_runner, sizeof plan_runner, room, offsetof(qn_gpu_runner_t, struct_size), stated);
  if (has_tail) copy[room - 1] = 1;
  const qn_artifact_t artifact = plan_artifact();
  qn_gpu_plan_t* plan;
  qn_status_t status = qn_gpu_plan_load(&artifact, (const qn_gpu_runner_t*)(void*)copy, 1, &plan);
  qn_gpu_plan_destroy(plan);
  free(copy);
  return status;
}

// A table of `least` bytes has all that is required; one of `lacking` bytes lacks `missing`.
static const struct {
  const char* name;
  size_t size;
  size_t least;
  size_t lacking;
  const char* missing;
  qn_status_t (*give)(size_t room, size_t stated, bool has_tail);
} tables[] = {
    {"qn_device_table_t", sizeof(qn_device_table_t), offsetof(qn_device_table_t, host_allocate),
     offsetof(qn_device_table_t, launch), "launch is missing", give_device},
    {"qn_codegen_t", sizeof(qn_codegen_t), offsetof(qn_codegen_t, emit),
     offsetof(qn_codegen_t, compile), "compile is missing", give_generator},
    {"qn_target_kind_info_t", sizeof(qn_target_kind_info_t),
     offsetof(qn_target_kind_info_t, option_count), offsetof(qn_target_kind_info_t, codegen),
     "code generator", give_kind},
    {"qn_generator_info_t", sizeof(qn_generator_info_t), offsetof(qn_generator_info_t, object),
     offsetof(qn_generator_info_t, name), "name", give_info},
    {"qn_gpu_runner_t", sizeof(qn_gpu_runner_t), sizeof(qn_gpu_runner_t),
     offsetof(qn_gpu_runner_t, launch), "launch is missing", give_runner},
    {"qn_plugin_t", sizeof(qn_plugin_t), offsetof(qn_plugin_t, kind_count), 0, NULL, give_plugin},
};

static void test_tables(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(tables); i++) {
    size_t size = tables[i].size;
    must(tables[i].give(size, size, false));
    must(tables[i].give(tables[i].least, tables[i].least, false));
    must(tables[i].give(size + 64, size + 64, false));
    must_fail(tables[i].give(size + 64, size + 64, true), QN_STATUS_INVALID_ARGUMENT,
              tables[i].name);
    must_fail(tables[i].give(size, 0, false), QN_STATUS_INVALID_ARGUMENT, tables[i].name);
    must_fail(tables[i].give(size, 7, false), QN_STATUS_INVALID_ARGUMENT, tables[i].name);
    must_fail(tables[i].give(size, SIZE_MAX, false), QN_STATUS_INVALID_ARGUMENT, tables[i].name);
    if (!tables[i].missing) continue;
    must_fail(tables[i].give(tables[i].lacking, tables[i].lacking, false),
              QN_STATUS_INVALID_ARGUMENT, tables[i].missing);
  }
  // What an older table lacks is NULL, and the call has its answer for that.
  const qn_device_table_t* older = qn__device_table(41);
  assert_non_null(older->launch);
  assert_null(older->host_allocate);
  assert_null(older->absence);
  void* memory;
  must(qn_device_host_allocate((qn_device_t){41, 0}, 16, &memory));
  must(qn_device_host_free((qn_device_t){41, 0}, memory));
  // A device that says neither how many there are nor anything else is one, which exists.
  qn_device_table_t least = *older;
  least.type = 59, least.name = "least", least.count = NULL, least.attribute = NULL;
  must(qn_device_register(&least));
  assert_int_equal(qn_device_count(59), 1);
  qn_attribute_value_t value;
  must(qn_device_attribute((qn_device_t){59, 0}, QN_ATTRIBUTE_EXIST, &value));
  assert_int_equal(value.int_value, 1);
  must(qn_device_attribute((qn_device_t){59, 0}, QN_ATTRIBUTE_WARP_SIZE, &value));
  assert_int_equal(value.type, QN_ATTRIBUTE_TYPE_NONE);
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    assert_int_equal(qn_target_kind_at(i)->struct_size, sizeof(qn_target_kind_info_t));
  }
}

// ------------------------------------------------------------------------------------ artifacts

static size_t artifact_room, artifact_stated;
static bool artifact_has_tail;
static bool artifact_has_other_isa;
static qn_artifact_t* inner;  // what the interpreter's generator made
static qn_artifact_t* made;
static int released_count;

static void release_sized(qn_artifact_t* artifact) {
  assert_ptr_equal(artifact, made);
  inner->release(inner);
  free(artifact);
  made = NULL;
  released_count++;
}

// Makes the interpreter's artifact in a struct of another size.
static qn_status_t compile_sized(void* self, const qn_compile_request_t* request,
                                 qn_artifact_t** out_artifact) {
  assert_int_equal(request->struct_size, sizeof *request);
  QN_TRY(qn__interp_codegen.compile(self, request, &inner));
  qn_artifact_t artifact = *inner;
  artifact.release = release_sized;
  if (artifact_has_other_isa) artifact.isa = "{\"kind\":\"other\"}";
  uint8_t* copy = sized(&artifact, sizeof artifact, artifact_room, 0, artifact_stated);
  if (artifact_has_tail) copy[artifact_room - 1] = 1;
  *out_artifact = made = (qn_artifact_t*)(void*)copy;
  return QN_OK;
}

// Looks up, then compiles the entry again; `directory` "": there is none to compile again.
static qn_status_t look_up_in(const char* directory, qn_target_t* target,
                              const qn_recompile_options_t* again) {
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = directory, .ignores_environment = true};
  qn_engine_t* engine;
  must(qn_engine_create(&options, &engine));
  qn_module_t* module =
      must_parse("func f(out y: f32[n]) {\n  for i in 0..n {\n    y[i] = 1.0;\n  }\n}\n");
  qn_executable_t* executable;
  qn_status_t status = qn_engine_executable(engine, module, target, NULL, NULL, &executable);
  qn_executable_release(executable);
  if (again) {
    assert_true(qn_engine_flush(engine, QN_TIMEOUT_INFINITE));
    artifact_has_other_isa = true;
    must(qn_engine_recompile(engine, again, NULL));
    artifact_has_other_isa = false;
  }
  qn_module_release(module);
  qn_engine_destroy(engine);
  return status;
}

static qn_status_t look_up(qn_target_t* target, size_t room, size_t stated, bool has_tail) {
  artifact_room = room;
  artifact_stated = stated;
  artifact_has_tail = has_tail;
  return look_up_in("", target, NULL);
}

// Frees what the engine could not.
static void drop_made(void) {
  assert_non_null(made);
  release_sized(made);
}

static void see_difference(void* self, const qn_recompile_difference_t* difference) {
  assert_int_equal(difference->struct_size, sizeof *difference);
  ++*(int*)self;
}

static void test_artifacts(void** state) {
  (void)state;
  qn_codegen_t generator = qn__interp_codegen;
  generator.name = "sized_artifact";
  generator.compile = compile_sized;
  generator.emit = NULL;
  must(qn_codegen_register(&generator));
  qn_target_kind_info_t kind = {.struct_size = sizeof kind,
                                .name = "sized_artifact",
                                .doc = "a test",
                                .codegen = "sized_artifact",
                                .device_type = QN_DEVICE_CPU};
  must(qn_target_kind_register(&kind));
  qn_target_t* target;
  must(qn_target_parse("sized_artifact", &target));
  size_t size = sizeof(qn_artifact_t);
  must(look_up(target, size, size, false));
  must(look_up(target, size + 64, size + 64, false));
  must_fail(look_up(target, size + 64, size + 64, true), QN_STATUS_INVALID_ARGUMENT,
            "qn_artifact_t");
  assert_int_equal(released_count, 3);
  // Without its last member there is nothing to release.
  size_t shorter = offsetof(qn_artifact_t, release);
  must(look_up(target, shorter, shorter, false));
  drop_made();
  must_fail(look_up(target, size, 0, false), QN_STATUS_INVALID_ARGUMENT, "qn_artifact_t");
  drop_made();
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  int difference_count = 0;
  qn_recompile_options_t again = {
      .struct_size = sizeof again, .on_difference = see_difference, .self = &difference_count};
  artifact_room = artifact_stated = size;
  must(look_up_in(directory, target, &again));
  assert_int_equal(difference_count, 1);
  qn_test_tempdir_remove(directory);
  qn_target_release(target);
}

// A device gets whole structs.
static int seen_count;
static qn_status_t load_seen(int32_t id, const qn_artifact_t* artifact,
                             const qn_load_options_t* options, void** out_executable) {
  assert_int_equal(artifact->struct_size, sizeof *artifact);
  assert_int_equal(options->struct_size, sizeof *options);
  seen_count++;
  return qn__device_table(QN_DEVICE_NULL)->load(id, artifact, options, out_executable);
}

static void test_load(void** state) {
  (void)state;
  qn_device_table_t device = *qn__device_table(QN_DEVICE_NULL);
  device.type = 60;
  device.name = "seen";
  device.load = load_seen;
  must(qn_device_register(&device));
  device.load = NULL;  // the table was copied
  qn_target_kind_info_t kind = {.struct_size = sizeof kind,
                                .name = "seen",
                                .doc = "a test",
                                .codegen = "null",
                                .device_type = 60};
  must(qn_target_kind_register(&kind));
  qn_target_t* target;
  must(qn_target_parse("seen", &target));
  must(look_up(target, 0, 0, false));
  assert_int_equal(seen_count, 1);
  qn_target_release(target);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tables),
      cmocka_unit_test(test_artifacts),
      cmocka_unit_test(test_load),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
