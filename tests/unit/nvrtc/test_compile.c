// SPDX-License-Identifier: Apache-2.0
// tests/unit/nvrtc/test_compile.c: every sample and every construct becomes a cubin, for three
// architectures and without a GPU; forms, determinism, refusals.
// ctest-labels: slow
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
// cmocka.h needs those above.
#include <cmocka.h>

#include "base/digest.h"
#include "devices/gpu/plan.h"
#include "jit/identity/nvrtc_place.h"
#include "tests/support/fault.h"
#include "tests/support/gpu_programs.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"
#include "tests/unit/nvrtc/support_nvrtc.h"

static const char* const archs[] = {"sm_80", "sm_90a", "sm_120"};
static const char* const samples[] = {"block_norm",   "embed_layernorm", "fir_filter",
                                      "histogram",    "matmul_tile",     "newton_sqrt",
                                      "saxpy",        "softmax",         "transpose_shared",
                                      "two_launches", "split_sum",       "prefix_sum"};

static qn__nvrtc_t* nvrtc;

static int set_up(void** state) {
  (void)state;
  nvrtc = nvrtc_or_null(qn_allocator_default());
  return 0;
}
static int tear_down(void** state) {
  (void)state;
  qn__nvrtc_destroy(nvrtc);
  return 0;
}
#define NEEDS_NVRTC()   \
  do {                  \
    if (!nvrtc) skip(); \
  } while (0)

static bool has_text(qn_span_t bytes, const char* text) {
  size_t size = strlen(text);
  for (size_t i = 0; i + size <= bytes.size; i++) {
    if (memcmp(bytes.data + i, text, size) == 0) return true;
  }
  return false;
}

// The machine code of an ELF file of CUDA names its architecture in its flags: bits 0 to 7 or, in
// newer files, 8 to 15.
static void check_cubin(qn_span_t cubin, const char* arch) {
  assert_true(cubin.size > 64);
  assert_memory_equal(cubin.data, "\177ELF", 4);
  uint32_t flags;
  memcpy(&flags, cubin.data + 48, sizeof flags);
  uint32_t number = (uint32_t)strtoul(arch + 3, NULL, 10);
  assert_true((flags & 0xff) == number || (flags >> 8 & 0xff) == number);
}

static void check_artifact(const qn_artifact_t* artifact, const char* arch) {
  assert_string_equal(artifact->format, "cuda-cubin-1");
  assert_non_null(strstr(artifact->isa, arch));
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  qn_span_t metadata = {artifact->metadata, artifact->metadata_size};
  must(qn__gpu_plan_decode(metadata, artifact->payload_size, &arena, &plan));
  qn_span_t cubin = {artifact->payload, artifact->payload_size};
  assert_int_equal(plan.function_count, artifact->function_count);
  if (plan.kernel_count > 0) check_cubin(cubin, arch);
  for (uint32_t i = 0; i < plan.kernel_count; i++) {
    char section[300];
    (void)snprintf(section, sizeof section, ".text.%s", plan.kernels[i].name);
    assert_true(has_text(cubin, section));
  }
  qn__arena_deinit(&arena);
}

static void compile(const char* text, const char* arch, qn_tier_t tier, bool is_checked,
                    const char* more) {
  char target[200];
  (void)snprintf(target, sizeof target, "cuda -arch=%s %s", arch, more);
  program_t program = program_make(text, target, tier, is_checked);
  qn_artifact_t* artifact;
  must(qn__nvrtc_compile(nvrtc, &program.request, &artifact));
  check_artifact(artifact, arch);
  artifact->release(artifact);
  program_release(&program);
}

static void samples_compile(void** state) {
  (void)state;
  NEEDS_NVRTC();
  for (size_t i = 0; i < QN_COUNT_OF(samples); i++) {
    char path[100];
    (void)snprintf(path, sizeof path, "examples/ir/%s.qn", samples[i]);
    char* text = read_source(path);
    for (size_t k = 0; k < QN_COUNT_OF(archs); k++) {
      compile(text, archs[k], QN_TIER_FULL, false, "");
      compile(text, archs[k], QN_TIER_FAST, true, "");
    }
    free(text);
  }
}

static qn__buffer_t generate(void (*programs)(qn__buffer_t*)) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  programs(&text);
  assert_false(text.has_failed);
  return text;
}

static const char more_shared[] = "-max_shared_memory_per_block=101376";

// NVRTC needs 15 s for all operators on all dtypes. conformance_cubins_sm_90a compiles them for the
// third architecture; the text does not depend on it, as the next test shows.
static void operators_compile(void** state) {
  (void)state;
  NEEDS_NVRTC();
  qn__buffer_t text = generate(qn_test_programs_of_operators);
  compile((const char*)text.data, "sm_80", QN_TIER_FAST, false, more_shared);
  compile((const char*)text.data, "sm_120", QN_TIER_FAST, true, more_shared);
  qn__buffer_deinit(&text);
}

static void constructs_compile(void** state) {
  (void)state;
  NEEDS_NVRTC();
  qn__buffer_t text = generate(qn_test_programs_of_constructs);
  for (size_t k = 0; k < QN_COUNT_OF(archs); k++) {
    compile((const char*)text.data, archs[k], QN_TIER_FAST, false, more_shared);
  }
  compile((const char*)text.data, "sm_90a", QN_TIER_FAST, true, more_shared);
  const char* wide = "-max_shared_memory_per_block=101376 -index_bits=64";
  compile((const char*)text.data, "sm_90a", QN_TIER_FULL, false, wide);
  qn__buffer_deinit(&text);
}

static void threads_compile(void** state) {
  (void)state;
  NEEDS_NVRTC();
  static const int counts[] = {256, 100, 1024};
  for (size_t i = 0; i < QN_COUNT_OF(counts); i++) {
    qn__buffer_t text;
    qn__buffer_init(&text, qn_allocator_default());
    qn_test_programs_of_threads(counts[i], &text);
    compile((const char*)text.data, archs[i], QN_TIER_FAST, false, "");
    compile((const char*)text.data, archs[i], QN_TIER_FAST, true, "");
    qn__buffer_deinit(&text);
  }
}

// ---- forms

static qn_status_t emit(const char* text, const char* target, const char* form, qn__buffer_t* out) {
  program_t program = program_make(text, target, QN_TIER_FULL, false);
  qn_status_t status = qn__nvrtc_emit(nvrtc, &program.request, form, sink_of(out));
  program_release(&program);
  return status;
}

static void text_is_the_same_for_every_architecture(void** state) {
  (void)state;
  NEEDS_NVRTC();
  void (*const programs[])(qn__buffer_t*) = {qn_test_programs_of_operators,
                                             qn_test_programs_of_constructs};
  for (size_t i = 0; i < QN_COUNT_OF(programs); i++) {
    qn__buffer_t text = generate(programs[i]), first, other;
    qn__buffer_init(&first, qn_allocator_default());
    qn__buffer_init(&other, qn_allocator_default());
    for (size_t k = 0; k < QN_COUNT_OF(archs); k++) {
      char target[100];
      (void)snprintf(target, sizeof target, "cuda -arch=%s %s", archs[k], more_shared);
      qn__buffer_clear(&other);
      must(emit((const char*)text.data, target, "cuda", k == 0 ? &first : &other));
      if (k == 0) continue;
      assert_int_equal(first.size, other.size);
      assert_memory_equal(first.data, other.data, first.size);
    }
    qn__buffer_deinit(&text), qn__buffer_deinit(&first), qn__buffer_deinit(&other);
  }
}

static const char saxpy[] =
    "func saxpy(a: f32, x: f32[n], inout y: f32[n]) {\n"
    "  parallel i in 0..n { y[i] = a * x[i] + y[i]; }\n"
    "}\n";

static void forms_are_written(void** state) {
  (void)state;
  NEEDS_NVRTC();
  static const struct {
    const char* form;
    const char* has;
  } rows[] = {{"ir", "block.x"},
              {"cuda", "extern \"C\" __global__ void __launch_bounds__"},
              {"ptx", ".entry saxpy_0"},
              {"cubin", ".text.saxpy_0"}};
  for (size_t i = 0; i < QN_COUNT_OF(rows); i++) {
    qn__buffer_t out;
    qn__buffer_init(&out, qn_allocator_default());
    must(emit(saxpy, "cuda -arch=sm_90a", rows[i].form, &out));
    assert_true(has_text(qn__buffer_as_span(&out), rows[i].has));
    qn__buffer_deinit(&out);
  }
}

static void unknown_form_lists_them(void** state) {
  (void)state;
  NEEDS_NVRTC();
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn_status_t status = emit(saxpy, "cuda", "llvm", &out);
  assert_int_equal(qn_status_code(status), QN_STATUS_NOT_FOUND);
  assert_non_null(strstr(qn_status_message(status), "ir, cuda, ptx, cubin and sass"));
  qn_status_free(status);
  qn__buffer_deinit(&out);
}

// A disassembler of our own, found first in PATH: it shows that it got the cubin.
static void disassembler_gets_the_cubin(void** state) {
  (void)state;
  NEEDS_NVRTC();
  char folder[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(folder));
  char path[QN_TEST_PATH_SIZE + 32], list[QN_TEST_PATH_SIZE + 2048];
  (void)snprintf(path, sizeof path, "%s/nvdisasm", folder);
  static const char script[] = "#!/bin/sh\nhead -c 4 \"$2\" | tail -c 3\necho; wc -c <\"$2\"\n";
  assert_true(qn_test_write_file(path, script, sizeof script - 1));
  char command[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(command, sizeof command, "chmod +x %s", path);
  assert_int_equal(system(command), 0);
  const char* before = getenv("PATH");
  char* kept = strdup(before ? before : "/usr/bin:/bin");
  (void)snprintf(list, sizeof list, "%s:%.1800s", folder, kept);
  assert_int_equal(setenv("PATH", list, 1), 0);
  qn__buffer_t cubin, sass;
  qn__buffer_init(&cubin, qn_allocator_default());
  qn__buffer_init(&sass, qn_allocator_default());
  must(emit(saxpy, "cuda -arch=sm_90a", "cubin", &cubin));
  must(emit(saxpy, "cuda -arch=sm_90a", "sass", &sass));
  char expected[64];
  (void)snprintf(expected, sizeof expected, "ELF\n%zu\n", cubin.size);
  assert_string_equal((const char*)sass.data, expected);
  // One that fails is told.
  static const char failing[] = "#!/bin/sh\nexit 3\n";
  assert_true(qn_test_write_file(path, failing, sizeof failing - 1));
  qn__buffer_clear(&sass);
  qn_status_t status = emit(saxpy, "cuda -arch=sm_90a", "sass", &sass);
  assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  assert_non_null(strstr(qn_status_message(status), path));
  qn_status_free(status);
  qn__buffer_deinit(&cubin);
  qn__buffer_deinit(&sass);
  assert_int_equal(setenv("PATH", kept, 1), 0);
  free(kept);
  qn_test_tempdir_remove(folder);
}

// A true one, where there is one: instructions and nothing of the file's other sections.
static void sass_is_instructions(void** state) {
  (void)state;
  NEEDS_NVRTC();
  char program[PATH_MAX];
  if (!qn__cuda_program_find("nvdisasm", program)) skip();
  qn__buffer_t sass;
  qn__buffer_init(&sass, qn_allocator_default());
  must(emit(saxpy, "cuda -arch=sm_90a", "sass", &sass));
  qn__buffer_u8(&sass, 0);
  assert_false(sass.has_failed);
  assert_non_null(strstr((const char*)sass.data, "LDG.E"));
  assert_non_null(strstr((const char*)sass.data, "FMUL"));
  assert_non_null(strstr((const char*)sass.data, "STG.E"));
  assert_null(strstr((const char*)sass.data, ".debug_frame"));
  qn__buffer_deinit(&sass);
}

// ---- refusals

static void refuse(const char* text, const char* target, qn_status_code_t code, const char* word) {
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  must_fail(emit(text, target, "cubin", &out), code, word);
  qn__buffer_deinit(&out);
}

static void refusals_say_why(void** state) {
  (void)state;
  NEEDS_NVRTC();
  refuse(saxpy, "cuda -arch=sm_10", QN_STATUS_UNSUPPORTED, "it knows sm_");
  refuse(saxpy, "cpu", QN_STATUS_UNSUPPORTED, "not cpu");
  refuse(
      "func f(x: f32[n, 64], out y: f32[n, 64]) {\n"
      "  block.x b in 0..n { alloc s: f32[13000] in shared;\n"
      "    thread.x t in 0..64 { s[t] = x[b, t]; barrier; y[b, t] = s[63 - t]; } }\n"
      "}\n",
      "cuda", QN_STATUS_UNSUPPORTED, "shared");
}

// ---- sameness

static void print_digest(void) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn_test_programs_of_constructs(&text);
  program_t program =
      program_make((const char*)text.data, "cuda -arch=sm_90a -max_shared_memory_per_block=101376",
                   QN_TIER_FULL, false);
  qn_artifact_t* artifact;
  qn_status_t status = qn__nvrtc_compile(nvrtc, &program.request, &artifact);
  if (!qn_ok(status)) {
    (void)printf("%s\n", qn_status_message(status));
    exit(1);
  }
  qn_span_t parts[] = {{artifact->payload, artifact->payload_size},
                       {artifact->metadata, artifact->metadata_size}};
  for (size_t i = 0; i < QN_COUNT_OF(parts); i++) {
    char hex[33];
    qn__hash128_hex(qn__xxh128(parts[i], 0), hex);
    (void)printf("%s", hex);
  }
  (void)printf("\n");
  artifact->release(artifact);
  program_release(&program);
  qn__buffer_deinit(&text);
}

static void read_digest(const char* program, char out[80]) {
  char command[1200];
  (void)snprintf(command, sizeof command, "%s --print-digest", program);
  FILE* pipe = popen(command, "r");
  assert_non_null(pipe);
  out[0] = '\0';
  char line[512];
  // Behind what cmocka or a sanitizer may say.
  while (fgets(line, sizeof line, pipe)) {
    if (strlen(line) == 65) (void)snprintf(out, 80, "%.64s", line);
  }
  assert_int_equal(pclose(pipe), 0);
}

static void processes_agree(void** state) {
  (void)state;
  NEEDS_NVRTC();
  char self[1024];
  ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
  assert_true(size > 0);
  self[size] = '\0';
  char first[80], second[80];
  read_digest(self, first);
  read_digest(self, second);
  assert_int_equal(strlen(first), 64);
  assert_string_equal(first, second);
}

static void child_of_a_fork_compiles(void** state) {
  (void)state;
  NEEDS_NVRTC();
  compile(saxpy, "sm_90a", QN_TIER_FULL, false, "");
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    program_t program = program_make(saxpy, "cuda -arch=sm_80", QN_TIER_FULL, false);
    qn_artifact_t* artifact;
    qn_status_t status = qn__nvrtc_compile(nvrtc, &program.request, &artifact);
    _exit(qn_ok(status) ? 0 : 1);
  }
  int code;
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_true(WIFEXITED(code));
  assert_int_equal(WEXITSTATUS(code), 0);
}

// The lock in which another generator may sit at the fork is the same. (Not with the sanitizers'
// heaps: a thread that ends meanwhile leaves their locks taken in the child.)
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
static void child_of_a_fork_while_another_warms_up_compiles(void** state) {
  (void)state;
  NEEDS_NVRTC();
  compile(saxpy, "sm_90a", QN_TIER_FULL, false, "");
  for (long ms = 0; ms < 30; ms += 10) {
    qn__nvrtc_t* other = nvrtc_or_null(qn_allocator_default());
    assert_non_null(other);
    (void)nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      (void)alarm(600);  // a hang is a failure
      program_t program = program_make(saxpy, "cuda -arch=sm_80", QN_TIER_FULL, false);
      qn_artifact_t* artifact;
      qn_status_t status = qn__nvrtc_compile(nvrtc, &program.request, &artifact);
      _exit(qn_ok(status) ? 0 : 1);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    qn__nvrtc_destroy(other);
  }
}
#endif

// ---- memory

static bool compile_once(qn_allocator_t allocator, void* user) {
  program_t* program = user;
  qn__nvrtc_t* made = NULL;
  qn_artifact_t* artifact = NULL;
  qn_status_t status = qn__nvrtc_create(allocator, &made);
  if (qn_ok(status)) status = qn__nvrtc_compile(made, &program->request, &artifact);
  bool is_right = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  if (!is_right) (void)fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  if (artifact) artifact->release(artifact);
  qn__nvrtc_destroy(made);
  return is_right;
}

static void lack_of_memory_is_a_status(void** state) {
  (void)state;
  NEEDS_NVRTC();
  program_t program =
      program_make("func f(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i]; } }",
                   "cuda -arch=sm_80", QN_TIER_FAST, false);
  assert_true(qn_fault_walk_alloc(compile_once, &program) > 20);
  program_release(&program);
}

int main(int count, char** arguments) {
  nvrtc_use_build_folder();
  if (count == 2 && strcmp(arguments[1], "--print-digest") == 0) {
    nvrtc = nvrtc_or_null(qn_allocator_default());
    if (!nvrtc) return 1;
    print_digest();
    qn__nvrtc_destroy(nvrtc);
    return 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(samples_compile),
      cmocka_unit_test(operators_compile),
      cmocka_unit_test(text_is_the_same_for_every_architecture),
      cmocka_unit_test(constructs_compile),
      cmocka_unit_test(threads_compile),
      cmocka_unit_test(forms_are_written),
      cmocka_unit_test(unknown_form_lists_them),
      cmocka_unit_test(disassembler_gets_the_cubin),
      cmocka_unit_test(sass_is_instructions),
      cmocka_unit_test(refusals_say_why),
      cmocka_unit_test(processes_agree),
      cmocka_unit_test(child_of_a_fork_compiles),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
      cmocka_unit_test(child_of_a_fork_while_another_warms_up_compiles),
#endif
      cmocka_unit_test(lack_of_memory_is_a_status),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
