// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_orc_generator.c: the generator from canonical bytes to artifacts: every
// sample, both tiers, several targets; equal bytes in every thread and process; forms; faults;
// identity.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fs.h"
#include "base/reader.h"
#include "ir/ir.h"
#include "jit/llvm/compile.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

static qn__llvm_t* llvm;

static int set_up(void** state) {
  (void)state;
  return qn_ok(qn__llvm_create(qn_allocator_default(), &llvm)) ? 0 : -1;
}

static int tear_down(void** state) {
  (void)state;
  qn__llvm_destroy(llvm);
  return 0;
}

static qn_module_t* parse_sample(const char* name) {
  char path[512];
  (void)snprintf(path, sizeof path, QN_SOURCE_DIR "/examples/ir/%s", name);
  uint8_t* text;
  size_t size;
  must(qn__fs_read_file(qn_allocator_default(), path, 1 << 20, &text, &size));
  qn_module_t* module = NULL;
  must(qn_module_parse((const char*)text, size, NULL, &module));
  qn__free(qn_allocator_default(), text, size + 1);
  return module;
}

static qn_compile_request_t request_of(const qn_module_t* module, const qn_target_t* target,
                                       qn_tier_t tier, bool is_checked) {
  qn_compile_request_t request = {.struct_size = sizeof request,
                                  .target_json = qn_target_json(target),
                                  .tier = tier,
                                  .is_checked = is_checked};
  request.module_bytes = qn_module_bytes(module, &request.module_size);
  return request;
}

static qn_target_t* target_of(const char* text) {
  qn_target_t* target = NULL;
  must(qn_target_parse(text, &target));
  return target;
}

static const char* const samples[] = {
    "saxpy.qn",       "softmax.qn",          "two_launches.qn",
    "matmul_tile.qn", "transpose_shared.qn", "embed_layernorm.qn"};
static const char* const targets[] = {"cpu -mcpu=x86-64", "cpu -mcpu=x86-64-v3",
                                      "cpu -mcpu=x86-64-v4"};

static void check_artifact(const qn_artifact_t* artifact, const qn_module_t* module,
                           const qn_target_t* target) {
  assert_string_equal(artifact->format, "cpu-image-1");
  assert_string_equal(artifact->isa, qn__target_isa_json(target));
  assert_int_equal(artifact->function_count, qn_module_function_count(module));
  for (size_t i = 0; i < artifact->function_count; ++i) {
    const qn_artifact_function_t* function = &artifact->functions[i];
    assert_string_equal(function->name, qn_module_function_name(module, i));
    assert_true(function->launch_count >= 1);
    assert_true(function->code_size_bytes > 0);
    assert_true(function->code_offset + function->code_size_bytes <= artifact->payload_size);
  }
  qn__reader_t reader = qn__reader_make((qn_span_t){artifact->metadata, artifact->metadata_size});
  uint64_t count = qn__read_varint(&reader);
  assert_true(count >= artifact->function_count);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t offset = qn__read_varint(&reader);
    assert_true(offset + qn__read_varint(&reader) <= artifact->payload_size);
    assert_true(qn__read_run(&reader).size > 0);
  }
  assert_false(reader.has_overrun);
  assert_int_equal(qn__reader_left(&reader), 0);
}

static void test_samples(void** state) {
  (void)state;
  for (size_t s = 0; s < QN_COUNT_OF(samples); ++s) {
    qn_module_t* module = parse_sample(samples[s]);
    for (size_t t = 0; t < QN_COUNT_OF(targets); ++t) {
      qn_target_t* target = target_of(targets[t]);
      for (int way = 0; way < 4; ++way) {
        qn_compile_request_t request =
            request_of(module, target, way & 1 ? QN_TIER_FAST : QN_TIER_FULL, way >= 2);
        qn_artifact_t* artifact = NULL;
        qn_status_t status = qn__llvm_compile(llvm, &request, &artifact);
        if (!qn_ok(status)) {
          fail_msg("%s, %s, way %d: %s", samples[s], targets[t], way, qn_status_message(status));
        }
        check_artifact(artifact, module, target);
        artifact->release(artifact);
      }
      qn_target_release(target);
    }
    qn_module_release(module);
  }
}

typedef struct seen_stages {
  int count;
  qn_compile_stage_t stages[8];
  int64_t total_ns;
} seen_stages_t;

static void see_stage(void* self, qn_compile_stage_t stage, int64_t duration_ns) {
  seen_stages_t* seen = self;
  assert_true(seen->count < 8 && duration_ns >= 0);
  seen->stages[seen->count++] = stage;
  seen->total_ns += duration_ns;
}

static void test_stages_are_reported(void** state) {
  (void)state;
  qn_module_t* module = parse_sample("softmax.qn");
  qn_target_t* target = target_of("cpu -mcpu=x86-64-v3");
  seen_stages_t seen = {.count = 0};
  qn_compile_request_t request = request_of(module, target, QN_TIER_FULL, false);
  request.on_stage = see_stage;
  request.on_stage_self = &seen;
  qn_artifact_t* artifact = NULL;
  int64_t start_ns = qn__now_ns();
  must(qn__llvm_compile(llvm, &request, &artifact));
  int64_t total_ns = qn__now_ns() - start_ns;
  artifact->release(artifact);
  // Each once, in order, and together no longer than the compile.
  assert_int_equal(seen.count, QN_COMPILE_LINK);
  for (int i = 0; i < seen.count; ++i) assert_int_equal(seen.stages[i], QN_COMPILE_DECODE + i);
  assert_true(seen.total_ns > 0 && seen.total_ns <= total_ns);
  // A caller of an earlier version has no member for them.
  request.struct_size = offsetof(qn_compile_request_t, on_stage);
  seen.count = 0;
  must(qn__llvm_compile(llvm, &request, &artifact));
  artifact->release(artifact);
  assert_int_equal(seen.count, 0);
  qn_target_release(target);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ running one

static int32_t run_parallel(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure,
                            int64_t count, int64_t grain) {
  (void)grain;
  return body(env, closure, 0, count);
}

static void test_saxpy_runs(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func scale(a: f32, x: f32[n], out y: f32[n]) {\n"
      "  parallel i in 0..n {\n    y[i] = a * x[i] + 1.0;\n  }\n}\n");
  qn_target_t* target = target_of("cpu");
  static const qn_tier_t tiers[] = {QN_TIER_FULL, QN_TIER_FAST};
  for (size_t t = 0; t < QN_COUNT_OF(tiers); ++t) {
    qn_compile_request_t request = request_of(module, target, tiers[t], false);
    qn_artifact_t* artifact = NULL;
    must(qn__llvm_compile(llvm, &request, &artifact));
    uint8_t* code = mmap(NULL, artifact->payload_size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(code, MAP_FAILED);
    memcpy(code, artifact->payload, artifact->payload_size);
    assert_int_equal(mprotect(code, artifact->payload_size, PROT_READ | PROT_EXEC), 0);
    void* entry = code + artifact->functions[0].code_offset;
    qn_cpu_kernel_t kernel;
    memcpy(&kernel, &entry, sizeof kernel);
    static const qn_cpu_functions_t functions = {.abi_version = QN_CPU_ABI_VERSION,
                                                 .struct_size = sizeof functions,
                                                 .parallel = run_parallel};
    const qn_cpu_env_t env = {&functions};
    enum { COUNT = 37 };
    float x[COUNT], y[COUNT], a = 3.0f;
    for (int i = 0; i < COUNT; ++i) x[i] = (float)i;
    uint64_t words[4] = {0, (uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)y, COUNT};
    memcpy(words, &a, sizeof a);
    assert_int_equal(kernel(&env, words), 0);
    for (int i = 0; i < COUNT; ++i) assert_true(y[i] == 3.0f * (float)i + 1.0f);
    (void)munmap(code, artifact->payload_size);
    artifact->release(artifact);
  }
  qn_target_release(target);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ same bytes

// One digest over everything that an entry would hold of every sample.
static qn_hash128_t digest_of_all(qn__llvm_t* generator, size_t first) {
  qn_hash128_t all = {{0}};
  for (size_t k = 0; k < QN_COUNT_OF(samples); ++k) {
    size_t s = (first + k) % QN_COUNT_OF(samples);
    qn_module_t* module = parse_sample(samples[s]);
    qn_target_t* target = target_of(targets[(s % 2) + 1]);
    qn_compile_request_t request =
        request_of(module, target, s % 3 ? QN_TIER_FULL : QN_TIER_FAST, false);
    qn_artifact_t* artifact = NULL;
    must(qn__llvm_compile(generator, &request, &artifact));
    qn_hash128_t code = qn__xxh128((qn_span_t){artifact->payload, artifact->payload_size}, s);
    qn_hash128_t symbols =
        qn__xxh128((qn_span_t){artifact->metadata, artifact->metadata_size}, s + 100);
    for (size_t i = 0; i < sizeof all.bytes; ++i) {
      // Free of order: threads begin with different samples.
      all.bytes[i] = (uint8_t)(all.bytes[i] ^ code.bytes[i] ^ symbols.bytes[i]);
    }
    artifact->release(artifact);
    qn_target_release(target);
    qn_module_release(module);
  }
  return all;
}

static void* digest_thread(void* self) {
  size_t first = (size_t)(uintptr_t)self;
  qn_hash128_t* out = malloc(sizeof *out);
  assert_non_null(out);
  *out = digest_of_all(llvm, first);
  return out;
}

static void test_threads(void** state) {
  (void)state;
  qn_hash128_t expected = digest_of_all(llvm, 0);
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; ++i) {
    must(qn__thread_start(&threads[i], "compile", 0, digest_thread, (void*)(uintptr_t)(i + 1)));
  }
  for (size_t i = 0; i < THREADS; ++i) {
    void* result;
    assert_int_equal(pthread_join(threads[i], &result), 0);
    assert_memory_equal(result, &expected, sizeof expected);
    free(result);
  }
}

static void test_processes(void** state) {
  (void)state;
  qn_hash128_t expected = digest_of_all(llvm, 2);
  for (int i = 0; i < 2; ++i) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    // A fresh program, so that addresses, heap and history differ.
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      char fd[16];
      (void)snprintf(fd, sizeof fd, "%d", ends[1]);
      (void)execl("/proc/self/exe", "digest", "--digest", fd, i ? "3" : "0", (char*)NULL);
      _exit(127);
    }
    (void)close(ends[1]);
    qn_hash128_t got;
    assert_int_equal(read(ends[0], &got, sizeof got), sizeof got);
    (void)close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_memory_equal(&got, &expected, sizeof got);
  }
}

// ------------------------------------------------------------------------------------ forms

static qn_status_t append(void* self, const void* data, size_t size) {
  qn__buffer_bytes(self, data, size);
  return QN_OK;
}

static qn_status_t refuse_write(void* self, const void* data, size_t size) {
  (void)self;
  (void)data;
  (void)size;
  return qn_status_make(QN_STATUS_IO, "the disk is full");
}

static void test_forms(void** state) {
  (void)state;
  static const struct {
    const char* form;
    const char* part;
  } forms[] = {
      {"ir", "func "},
      {"llvm-raw", "define "},
      {"llvm", "\"tune-cpu\"=\"x86-64-v3\""},
      {"asm", ".text"},
      {"obj",
       "\x7f"
       "ELF"},
      {"image", ""},
  };
  qn_module_t* module = parse_sample("softmax.qn");
  qn_target_t* target = target_of("cpu -mcpu=x86-64-v3");
  qn_compile_request_t request = request_of(module, target, QN_TIER_FULL, false);
  qn_artifact_t* artifact = NULL;
  must(qn__llvm_compile(llvm, &request, &artifact));
  for (size_t i = 0; i < QN_COUNT_OF(forms); ++i) {
    qn__buffer_t out;
    qn__buffer_init(&out, qn_allocator_default());
    must(qn__llvm_emit(llvm, &request, forms[i].form, (qn_sink_t){&out, append}));
    assert_true(out.size > 0);
    assert_non_null(memmem(out.data, out.size, forms[i].part, strlen(forms[i].part)));
    if (strcmp(forms[i].form, "image") == 0) {
      assert_int_equal(out.size, artifact->payload_size);
      assert_memory_equal(out.data, artifact->payload, out.size);
    }
    qn__buffer_deinit(&out);
    qn_status_t status =
        qn__llvm_emit(llvm, &request, forms[i].form, (qn_sink_t){NULL, refuse_write});
    assert_int_equal(qn_status_consume(status), QN_STATUS_IO);
  }
  qn_status_t status = qn__llvm_emit(llvm, &request, "ptx", (qn_sink_t){NULL, refuse_write});
  assert_int_equal(qn_status_code(status), QN_STATUS_NOT_FOUND);
  assert_non_null(strstr(qn_status_message(status), "ir, llvm-raw, llvm, asm, obj and image"));
  qn_status_free(status);
  artifact->release(artifact);
  qn_target_release(target);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ errors

static void expect_error(const qn_compile_request_t* request, qn_status_code_t code,
                         const char* part) {
  qn_artifact_t* artifact = (qn_artifact_t*)&artifact;
  qn_status_t status = qn__llvm_compile(llvm, request, &artifact);
  assert_null(artifact);
  if (qn_status_code(status) != code || !strstr(qn_status_message(status), part)) {
    fail_msg("%s: %s", qn_status_code_text(qn_status_code(status)), qn_status_message(status));
  }
  qn_status_free(status);
}

static void test_errors(void** state) {
  (void)state;
  qn_module_t* module = parse_sample("saxpy.qn");
  qn_target_t* target = target_of("interp");
  qn_compile_request_t request = request_of(module, target, QN_TIER_FULL, false);
  expect_error(&request, QN_STATUS_UNSUPPORTED, "of kind cpu, not interp");
  qn_target_release(target);
  target = target_of("cpu");
  request = request_of(module, target, QN_TIER_FULL, false);
  request.struct_size = 7;
  expect_error(&request, QN_STATUS_INVALID_ARGUMENT, "qn_compile_request_t: struct_size is 7");
  request.struct_size = sizeof request;
  request.target_json = "{";
  expect_error(&request, QN_STATUS_SYNTAX, "line 1");
  request.target_json = qn_target_json(target);
  request.module_size -= 1;
  expect_error(&request, QN_STATUS_DATA_LOSS, "");
  qn_module_release(module);
  // What no processor has a counterpart for is named.
  module = must_parse(
      "func f(x: f32[n], out y: f32[n]) {\n"
      "  assert warp_size() == 48;\n"
      "  thread.x t in 0..n {\n    y[t] = block_sum(x[t]);\n  }\n}\n");
  request = request_of(module, target, QN_TIER_FULL, false);
  expect_error(&request, QN_STATUS_UNSUPPORTED, "requires warp_size() == 48");
  qn_module_release(module);
  qn_target_release(target);
}

typedef struct walk {
  qn_compile_request_t request;
  const char* form;
} walk_t;

static bool compile_with(qn_allocator_t allocator, void* user) {
  const walk_t* walk = user;
  qn__llvm_t* own = NULL;
  qn_status_t status = qn__llvm_create(allocator, &own);
  qn_artifact_t* artifact = NULL;
  if (qn_ok(status)) status = qn__llvm_compile(own, &walk->request, &artifact);
  bool is_fine = qn_ok(status) ? artifact != NULL : artifact == NULL;
  if (artifact) artifact->release(artifact);
  qn__llvm_destroy(own);
  qn_status_code_t code = qn_status_consume(status);
  return is_fine && (code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY);
}

static void test_out_of_memory(void** state) {
  (void)state;
  qn_module_t* module = must_parse(
      "func scale(a: f32, x: f32[n], out y: f32[n]) {\n"
      "  parallel i in 0..n {\n    assert i >= 0, \"never\";\n    y[i] = a * x[i];\n  }\n}\n");
  qn_target_t* target = target_of("cpu -mcpu=x86-64-v3");
  walk_t walk = {request_of(module, target, QN_TIER_FAST, true), NULL};
  long runs = qn_fault_walk_alloc(compile_with, &walk);
  if (runs <= 10) fail_msg("the walk ended at %ld", runs);
  qn_target_release(target);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ identity

static void test_identity(void** state) {
  (void)state;
  // Of the loadable module, as the engine opens it.
  static const char path[] = QN_BINARY_DIR "/lib/libquern-llvm.so";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) skip();  // not built in this configuration
  qn_codegen_entry_fn_t entry;
  void* symbol = dlsym(library, QN_CODEGEN_ENTRY_SYMBOL);
  assert_non_null(symbol);
  memcpy(&entry, &symbol, sizeof entry);
  assert_null(entry(QN_CODEGEN_ABI_VERSION + 1));
  const qn_codegen_t* table = entry(QN_CODEGEN_ABI_VERSION);
  assert_non_null(table);
  assert_string_equal(table->name, "llvm");
  void* self = NULL;
  must(table->create(&self));
  // What the engine predicts without opening anything. With QUERN_LLVM_STATIC there is no library.
  char id[QN__BUILD_ID_HEX_BYTES], library_id[QN__BUILD_ID_HEX_BYTES];
  assert_true(qn__elf_build_id(path, id));
  bool is_expected;
  bool has_library = qn__compiler_library_id("llvm", library_id, &is_expected);
  assert_int_equal(has_library, is_expected);
  char predicted[QN_IDENTITY_BYTES];
  qn__generator_identity("llvm", id, has_library ? library_id : NULL, predicted);
  assert_string_equal(table->identity(self), predicted);
  table->destroy(self);
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "--digest") == 0) {
    if (set_up(NULL) != 0) return 1;
    qn_hash128_t digest = digest_of_all(llvm, (size_t)atoi(argv[3]));
    (void)tear_down(NULL);
    return write(atoi(argv[2]), &digest, sizeof digest) == (ssize_t)sizeof digest ? 0 : 1;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_samples),
      cmocka_unit_test(test_saxpy_runs),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_processes),
      cmocka_unit_test(test_forms),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_identity),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_stages_are_reported),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
