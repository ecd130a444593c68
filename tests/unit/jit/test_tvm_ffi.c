// SPDX-License-Identifier: Apache-2.0
// ctest-labels: tsan
// tests/unit/jit/test_tvm_ffi.c: functions and libraries for tvm-ffi, with a tvm-ffi of this
// program: the symbols below, which quern binds as it binds the real ones. tests/python has the
// real one.
#define _XOPEN_SOURCE 700
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "jit/tvm_ffi/bind.h"
#include "jit/tvm_ffi/function.h"
#include "jit/tvm_ffi/library.h"
#include "quern/cache.h"
#include "quern/tvm_ffi.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

// ------------------------------------------------------------------------------- a small tvm-ffi

typedef struct fake_function {
  int references;
  void* self;
  qn__tvm_safe_call_t call;
  void (*deleter)(void* self);
} fake_function_t;

static qn__tvm_version_t version = {0, 1, 99};
static fake_function_t* table;  // of one name
static char kind[64], message[1024];
static bool create_fails;

#define FAKE __attribute__((visibility("default")))
FAKE void TVMFFIGetVersion(qn__tvm_version_t* out);
FAKE int TVMFFIObjectDecRef(void* object);
FAKE int TVMFFIFunctionCreate(void* self, qn__tvm_safe_call_t call, void (*deleter)(void*),
                              void** out);
FAKE int TVMFFIFunctionSetGlobal(const qn__tvm_bytes_t* name, void* function, int replaces);
FAKE void TVMFFIErrorSetRaisedFromCStr(const char* new_kind, const char* new_message);
FAKE void TVMFFIErrorMoveFromRaised(void** out);
FAKE void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);

void TVMFFIGetVersion(qn__tvm_version_t* out) {
  *out = version;
}
int TVMFFIObjectDecRef(void* object) {
  fake_function_t* function = object;
  if (--function->references != 0) return 0;
  function->deleter(function->self);
  free(function);
  return 0;
}
int TVMFFIFunctionCreate(void* self, qn__tvm_safe_call_t call, void (*deleter)(void*), void** out) {
  if (create_fails) return -1;
  fake_function_t* function = malloc(sizeof *function);
  assert_non_null(function);
  *function = (fake_function_t){1, self, call, deleter};
  *out = function;
  return 0;
}
int TVMFFIFunctionSetGlobal(const qn__tvm_bytes_t* name, void* function, int replaces) {
  assert_int_equal(name->size, strlen(name->data));
  if (table && !replaces) return -1;
  if (table) (void)TVMFFIObjectDecRef(table);
  table = function;
  table->references++;
  return 0;
}
void TVMFFIErrorSetRaisedFromCStr(const char* new_kind, const char* new_message) {
  (void)snprintf(kind, sizeof kind, "%s", new_kind);
  (void)snprintf(message, sizeof message, "%s", new_message);
}
void TVMFFIErrorMoveFromRaised(void** out) {
  *out = NULL;
}
void* TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) {
  return (void*)(uintptr_t)(100 * device_type + device_id);
}

static void drop_table(void) {
  if (table) (void)TVMFFIObjectDecRef(table);
  table = NULL;
}

// --------------------------------------------------------------------------------------- fixture

static const char text[] =
    "func saxpy(a: f32, x: f32[n], inout y: f32[n]) {\n"
    "  for i in 0..n { y[i] = a * x[i] + y[i]; }\n}\n"
    "func numbers(a: u64, b: i32, c: bool, out y: u64[1]) {\n"
    "  y[0] = a + u64(b);\n}\n";

typedef struct fixture {
  char directory[QN_TEST_PATH_SIZE];
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  const char* name;  // of the function
  atomic_int found;
  int released;
  qn_status_code_t refuses;
} fixture_t;

static int set_up(void** state) {
  fixture_t* f = calloc(1, sizeof *f);
  assert_non_null(f);
  assert_true(qn_test_tempdir_make(f->directory));
  const qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = f->directory, .ignores_environment = true};
  must(qn_engine_create(&options, &f->engine));
  // The engine of a library takes its options from the environment: the code must be in the bundle
  // alone.
  char empty[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(empty, sizeof empty, "%s/empty", f->directory);
  assert_int_equal(setenv("QUERN_CACHE_DIR", empty, 1), 0);
  assert_int_equal(setenv("QUERN_JIT", "forbid", 1), 0);
  f->module = must_parse(text);
  must(qn_target_parse("interp", &f->target));
  f->name = "saxpy";
  *state = f;
  return 0;
}

static int tear_down(void** state) {
  fixture_t* f = *state;
  drop_table();
  qn_target_release(f->target);
  qn_module_release(f->module);
  qn_engine_destroy(f->engine);
  qn_test_tempdir_remove(f->directory);
  free(f);
  return 0;
}

static qn_status_t find(void* self, qn_device_t device, qn_function_t** out_function) {
  fixture_t* f = self;
  assert_int_equal(device.type, QN_DEVICE_CPU);
  f->found++;
  if (f->refuses) return qn_status_make(f->refuses, "there is no code today");
  return qn_engine_function(f->engine, f->module, f->target, f->name, NULL, NULL, out_function);
}
static void release(void* self) {
  ((fixture_t*)self)->released++;
}
static qn_tvm_ffi_source_t source_of(fixture_t* f) {
  return (qn_tvm_ffi_source_t){
      .struct_size = sizeof(qn_tvm_ffi_source_t), .find = find, .release = release, .self = f};
}

// A tensor object of tvm-ffi with two elements.
typedef struct tensor {
  qn__tvm_tensor_t object;
  int64_t shape[1];
  float data[2];
} tensor_t;
static qn_value_t tensor_object(tensor_t* t, float a, float b) {
  *t = (tensor_t){.object = {.head = {.type = QN__TVM_TENSOR}}, .shape = {2}, .data = {a, b}};
  t->object.tensor = (qn_tensor_t){.data = t->data,
                                   .device = {QN_DEVICE_CPU, 0},
                                   .ndim = 1,
                                   .dtype = qn_dtype_to_dl(QN_DTYPE_F32),
                                   .shape = t->shape};
  qn_value_t value = {QN__TVM_TENSOR, 0, {0}};
  value.pointer = t;
  return value;
}

static int call(const qn_value_t* args, int32_t count) {
  kind[0] = message[0] = '\0';
  qn_value_t result = {QN_VALUE_INT, 0, {7}};
  const int code = table->call(table->self, args, count, &result);
  assert_int_equal(result.type, QN_VALUE_NONE);
  return code;
}
static void refused(const qn_value_t* args, int32_t count, const char* wanted, const char* part) {
  assert_int_equal(call(args, count), -1);
  assert_string_equal(kind, wanted);
  if (!strstr(message, part)) fail_msg("'%s' is not in '%s'", part, message);
}

// ----------------------------------------------------------------------------------------- tests

// The first test: what is bound stays bound.
static void other_versions_are_refused(void** state) {
  const qn_tvm_ffi_source_t source = source_of(*state);
  version = (qn__tvm_version_t){1, 0, 2};
  must_fail(qn_tvm_ffi_register("f", false, &source), QN_STATUS_INCOMPATIBLE, "version 1.0.2");
  version = (qn__tvm_version_t){0, 2, 0};
  must_fail(qn_tvm_ffi_register("f", false, &source), QN_STATUS_INCOMPATIBLE, "quern knows 0.1");
  assert_null(qn_tvm_ffi_stream((qn_device_t){QN_DEVICE_CUDA, 3}));
  version = (qn__tvm_version_t){0, 1, 99};
  assert_ptr_equal(qn_tvm_ffi_stream((qn_device_t){QN_DEVICE_CUDA, 3}), (void*)(uintptr_t)203);
}

static void functions_are_registered_and_released(void** state) {
  fixture_t* f = *state;
  qn_tvm_ffi_source_t source = source_of(f);
  must_fail(qn_tvm_ffi_register("", false, &source), QN_STATUS_INVALID_ARGUMENT, "name is empty");
  source.find = NULL;
  must_fail(qn_tvm_ffi_register("f", false, &source), QN_STATUS_INVALID_ARGUMENT, "find is null");
  source.find = find;
  create_fails = true;
  must_fail(qn_tvm_ffi_register("f", false, &source), QN_STATUS_OUT_OF_MEMORY, NULL);
  create_fails = false;
  must(qn_tvm_ffi_register("f", false, &source));
  must_fail(qn_tvm_ffi_register("f", false, &source), QN_STATUS_FAILED_PRECONDITION, "taken");
  assert_int_equal(f->released, 0);  // the program keeps what was not registered
  must(qn_tvm_ffi_register("f", true, &source));
  assert_int_equal(f->released, 1);
  drop_table();
  assert_int_equal(f->released, 2);
}

static void calls_take_objects(void** state) {
  fixture_t* f = *state;
  const qn_tvm_ffi_source_t source = source_of(f);
  must(qn_tvm_ffi_register("f", false, &source));
  tensor_t x, y;
  qn_value_t args[3] = {qn_value_float(2), tensor_object(&x, 1, 2), tensor_object(&y, 10, 20)};
  assert_int_equal(call(args, 3), 0);
  assert_true(y.data[0] == 12 && y.data[1] == 24);
  // DLTensor*, an int, and an object that is given away.
  void* given = args[2].pointer;
  args[0] = qn_value_int(1);
  args[1] = qn_value_tensor(&x.object.tensor);
  args[2] = (qn_value_t){QN__TVM_RVALUE_REF, 0, {0}};
  args[2].pointer = &given;
  assert_int_equal(call(args, 3), 0);
  assert_true(y.data[0] == 13 && given == &y);
  assert_int_equal(f->found, 1);
  given = NULL;
  refused(args, 3, "TypeError", "argument 2 'y': expected a tensor of f32, got nothing");
  args[2] = (qn_value_t){QN__TVM_TENSOR, 0, {0}};
  refused(args, 3, "TypeError", "argument 2 'y': expected a tensor of f32");
  static const struct {
    int32_t type;
    const char* text;
  } others[] = {{9, "bytes"},         {11, "a string"},
                {65, "a string"},     {71, "an array"},
                {63, "unknown type"}, {13, "unknown"},
                {79, "unknown"},      {-7, "unknown"},
                {128, "unknown"},     {QN__TVM_RVALUE_REF, "an object"}};
  for (size_t i = 0; i < QN_COUNT_OF(others); i++) {
    args[2] = (qn_value_t){others[i].type, 0, {0}};
    refused(args, 3, "TypeError", others[i].text);
  }
  qn_value_t many[200];
  for (size_t i = 0; i < QN_COUNT_OF(many); i++) many[i] = args[2];
  refused(many, QN_COUNT_OF(many), "TypeError", "expected 3 arguments, got 200");
  refused(NULL, 0, "TypeError", "expected 3 arguments, got 0");
}

static void big_integers_are_checked(void** state) {
  fixture_t* f = *state;
  f->name = "numbers";
  const qn_tvm_ffi_source_t source = source_of(f);
  must(qn_tvm_ffi_register("f", false, &source));
  uint64_t result = 0;
  int64_t shape[] = {1};
  const qn_tensor_t y = {.data = &result,
                         .device = {QN_DEVICE_CPU, 0},
                         .ndim = 1,
                         .dtype = qn_dtype_to_dl(QN_DTYPE_U64),
                         .shape = shape};
  _Alignas(16) uint8_t room[sizeof(qn__tvm_big_int_t) + 3 * sizeof(uint64_t)] = {0};
  qn__tvm_big_int_t* number = (qn__tvm_big_int_t*)(void*)room;
  number->head.type = QN__TVM_BIG_INT;
  number->word_count = 2;
  _Static_assert(offsetof(qn__tvm_big_int_t, words) == sizeof(qn__tvm_big_int_t), "no gap");
  qn_value_t args[4] = {
      {QN__TVM_BIG_INT, 0, {0}}, qn_value_int(1), qn_value_bool(true), qn_value_tensor(&y)};
  args[0].pointer = number;
  number->words[0] = UINT64_MAX - 1;
  assert_int_equal(call(args, 4), 0);
  assert_true(result == UINT64_MAX);
  number->words[1] = 1;
  refused(args, 4, "ValueError",
          "argument 0 'a': expected an integer (u64), got an integer beyond");
  number->words[1] = UINT64_MAX;  // negative
  refused(args, 4, "ValueError", "an integer beyond 64 bits");
  number->word_count = 3;
  refused(args, 4, "ValueError", "an integer beyond 64 bits");
  number->word_count = 2;
  number->words[1] = 0;
  number->words[0] = UINT64_C(1) << 63;
  args[1] = args[0];
  refused(args, 4, "ValueError", "argument 1 'b': expected a value of i32");
}

static void lookups_fail_and_are_tried_again(void** state) {
  fixture_t* f = *state;
  const qn_tvm_ffi_source_t source = source_of(f);
  must(qn_tvm_ffi_register("f", false, &source));
  tensor_t x, y;
  qn_value_t args[3] = {qn_value_float(2), tensor_object(&x, 1, 2), tensor_object(&y, 10, 20)};
  static const struct {
    qn_status_code_t code;
    const char* kind;
  } kinds[] = {{QN_STATUS_UNAVAILABLE, "RuntimeError"},
               {QN_STATUS_OUT_OF_MEMORY, "MemoryError"},
               {QN_STATUS_INVALID_MODULE, "ValueError"},
               {QN_STATUS_INTERNAL, "RuntimeError"}};
  for (size_t i = 0; i < QN_COUNT_OF(kinds); i++) {
    f->refuses = kinds[i].code;
    refused(args, 3, kinds[i].kind, "there is no code today");
  }
  f->refuses = QN_STATUS_OK;
  assert_int_equal(call(args, 3), 0);
  assert_int_equal(f->found, 5);
}

// ------------------------------------------------------------------------------------- libraries

static qn_status_t append(void* self, const void* data, size_t size) {
  qn__buffer_bytes(self, data, size);
  return QN_OK;
}

// Writes a library of the module, and returns its size.
static size_t write_library(fixture_t* f, const char* path) {
  char bundle_path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(bundle_path, sizeof bundle_path, "%s/a.qnb", f->directory);
  must(qn_engine_compile(f->engine, f->module, f->target, NULL, NULL));
  qn_cache_dir_t* dir;
  must(qn_cache_dir_open(f->directory, &dir));
  must(qn_cache_bundle_write(bundle_path, dir, NULL, 0, NULL, NULL));
  qn_cache_dir_close(dir);
  static uint8_t bundle[1 << 16];
  const long bundle_size = qn_test_read_file(bundle_path, bundle, sizeof bundle);
  assert_true(bundle_size > 0);
  qn_tvm_ffi_library_options_t options = {.struct_size = sizeof options,
                                          .targets = &f->target,
                                          .target_count = 1,
                                          .bundle = bundle,
                                          .bundle_size = (size_t)bundle_size};
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  must(qn_tvm_ffi_library_write(f->module, &options, (qn_sink_t){&out, append}));
  assert_true(qn_test_write_file(path, out.data, out.size));
  const size_t size = out.size;
  qn__buffer_deinit(&out);
  options.target_count = 0;
  must_fail(qn_tvm_ffi_library_write(f->module, &options, (qn_sink_t){&out, append}),
            QN_STATUS_INVALID_ARGUMENT, "a target is missing");
  options.target_count = 1;
  options.bundle_size = 0;
  must_fail(qn_tvm_ffi_library_write(f->module, &options, (qn_sink_t){&out, append}),
            QN_STATUS_INVALID_ARGUMENT, "a bundle is missing");
  options.bundle_size = (size_t)bundle_size;
  options.tier = (qn_tier_t)3;
  must_fail(qn_tvm_ffi_library_write(f->module, &options, (qn_sink_t){&out, append}),
            QN_STATUS_INVALID_ARGUMENT, "tier 3 is not a qn_tier_t");
  return size;
}

// Maps a library as the loader does, in one piece: everything lies where it lies in the file.
static uint8_t* map_library(const char* path, size_t size, qn__tvm_library_t** out_description) {
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  uint8_t* bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
  assert_true(bytes != MAP_FAILED);
  assert_int_equal(fclose(file), 0);
  size_t at = 0;
  while (memcmp(bytes + at, QN__TVM_LIBRARY_MAGIC, 8) != 0) at += 16;
  *out_description = (qn__tvm_library_t*)(void*)(bytes + at);
  memset((uint8_t*)*out_description + (*out_description)->state_distance, 0, sizeof(void*));
  return bytes;
}

// Forgets the open library, as another file has none. It stays for the life of the process, as it
// does in programs; the leak checker finds it here.
static void forget(qn__tvm_library_t* library) {
  static void* kept[64];
  static size_t count;
  void* state = (uint8_t*)library + library->state_distance;
  assert_true(count < QN_COUNT_OF(kept));
  memcpy(&kept[count++], state, sizeof(void*));
  memset(state, 0, sizeof(void*));
}

static void library_refused(const void* function, const char* part) {
  message[0] = '\0';
  assert_int_equal(qn_tvm_ffi_library_call(function, NULL, 0, NULL), -1);
  if (!strstr(message, part)) fail_msg("'%s' is not in '%s'", part, message);
}

static void libraries_are_called(void** state) {
  fixture_t* f = *state;
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/library.so", f->directory);
  const size_t size = write_library(f, path);
  qn__tvm_library_t* library;
  uint8_t* bytes = map_library(path, size, &library);
  assert_int_equal(library->function_count, 2);
  const qn__tvm_library_t whole = *library;
  qn__tvm_library_function_t* functions = (qn__tvm_library_function_t*)(library + 1);
  tensor_t x, y;
  const qn_value_t args[3] = {qn_value_float(2), tensor_object(&x, 1, 2),
                              tensor_object(&y, 10, 20)};
  message[0] = '\0';
  if (qn_tvm_ffi_library_call(&functions[0], args, 3, NULL) != 0) fail_msg("%s", message);
  assert_true(y.data[0] == 12 && y.data[1] == 24);
  library_refused(&functions[1], "numbers(");
  // Descriptions that no quern wrote. The state is that of the open library.
  functions[0].magic++;
  library_refused(&functions[0], "no function of a library");
  library_refused(NULL, "no function of a library");
  functions[0].magic--;
  functions[0].index = 2;
  library_refused(&functions[0], "the description of a library for tvm-ffi is damaged");
  functions[0].index = 0;
  library->module_size = library->size;
  library_refused(&functions[0], "damaged");
  library->version++;  // then the rest may lie elsewhere
  library_refused(&functions[0], "a library for tvm-ffi has version 2; this libquern knows 1");
  *library = whole;
  forget(library);
  (void)munmap(bytes, size);
}

static void libraries_that_are_damaged(void** state) {
  fixture_t* f = *state;
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/library.so", f->directory);
  const size_t size = write_library(f, path);
  qn__tvm_library_t* library;
  uint8_t* bytes = map_library(path, size, &library);
  qn__tvm_library_function_t* function = (qn__tvm_library_function_t*)(library + 1);
  const qn__tvm_library_t whole = *library;
  library->version = 2;
  library_refused(function, "version 2; this libquern knows 1");
  *library = whole;
  library->target_count = 2;
  library_refused(function, "its targets are damaged");
  *library = whole;
  library->function_count = 7;
  library_refused(function, "its functions are not those of its module");
  *library = whole;
  uint8_t* module = (uint8_t*)library + library->module_distance;
  for (size_t at = 0; at < library->module_size; at += library->module_size / 24 + 1) {
    module[at] ^= 0xff;
    library_refused(function, "");
    module[at] ^= 0xff;
    forget(library);  // a module with another name or number opens
  }
  *((char*)library + library->targets_distance) = '?';
  library_refused(function, "");
  forget(library);
  (void)munmap(bytes, size);
}

// A function of the table, or one of a library, on memory of a thread's own.
typedef struct caller {
  pthread_t thread;
  const void* function;  // of a library; NULL: that of the table
  tensor_t x, y;
  int failures;
} caller_t;

static void* call_often(void* self) {
  caller_t* c = self;
  const qn_value_t args[3] = {qn_value_float(1), tensor_object(&c->x, 1, 2),
                              tensor_object(&c->y, 0, 0)};
  for (int i = 0; i < 50; i++) {
    c->failures += c->function ? qn_tvm_ffi_library_call(c->function, args, 3, NULL) != 0
                               : table->call(table->self, args, 3, NULL) != 0;
  }
  return NULL;
}

static void call_by_threads(const void* function) {
  static caller_t callers[4];
  for (size_t i = 0; i < QN_COUNT_OF(callers); i++) {
    callers[i] = (caller_t){.function = function};
    assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
  }
  for (size_t i = 0; i < QN_COUNT_OF(callers); i++) {
    assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
    assert_int_equal(callers[i].failures, 0);
    assert_true(callers[i].y.data[0] == 50 && callers[i].y.data[1] == 100);
  }
}

// The first calls come at once.
static void threads_call(void** state) {
  fixture_t* f = *state;
  const qn_tvm_ffi_source_t source = source_of(f);
  must(qn_tvm_ffi_register("f", false, &source));
  call_by_threads(NULL);
  assert_true(f->found >= 1 && f->found <= 4);
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/library.so", f->directory);
  const size_t size = write_library(f, path);
  qn__tvm_library_t* library;
  uint8_t* bytes = map_library(path, size, &library);
  call_by_threads(library + 1);
  forget(library);
  (void)munmap(bytes, size);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(other_versions_are_refused),
      TEST(functions_are_registered_and_released),
      TEST(calls_take_objects),
      TEST(big_integers_are_checked),
      TEST(lookups_fail_and_are_tried_again),
      TEST(libraries_are_called),
      TEST(libraries_that_are_damaged),
      TEST(threads_call),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
