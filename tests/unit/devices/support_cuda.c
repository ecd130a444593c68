// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/unit/devices/support_cuda.c: see support_cuda.h.
#include "tests/unit/devices/support_cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "devices/device.h"
#include "tests/support/must.h"

#define DRIVER QN_BINARY_DIR "/fake-cuda/libcuda.so.1"
#define COMPILER QN_BINARY_DIR "/fake-cuda/libnvrtc.so"

cuda_driver_t cuda_driver;
static void* library;

static void* entry(const char* name) {
  void* address = dlsym(library, name);
  if (!address) fail_msg("the fake driver has no %s", name);
  return address;
}

static void find(const char* name, void* out) {
  void* address = entry(name);
  memcpy(out, &address, sizeof address);
}

bool cuda_setup(void) {
  if (access(DRIVER, R_OK) != 0 || access(COMPILER, R_OK) != 0) return false;
  (void)setenv("QUERN_CUDA_LIBRARY", DRIVER, 0);
  library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  find("fake_cuda_fail", &cuda_driver.fail_at);
  find("fake_cuda_failed", &cuda_driver.failed);
  find("fake_cuda_calls", &cuda_driver.calls);
  find("fake_cuda_counts", &cuda_driver.counts);
  find("fake_cuda_hold", &cuda_driver.hold);
  find("fake_cuda_break", &cuda_driver.break_device);
  find("fake_cuda_last_launch", &cuda_driver.last_launch);
  cuda_driver.entry = entry;
  return true;
}

qn_device_t cuda_at(int32_t id) {
  return (qn_device_t){QN_DEVICE_CUDA, id};
}

const qn_device_table_t* cuda_table(void) {
  return qn__device_table(QN_DEVICE_CUDA);
}

// ---------------------------------------------------------------------------------- the artifact

static const char text[] =
    "struct record { unsigned tag, site; long long index, extent; };\n"
    "#define EACH(i, n) for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < "
    "(n); \\\n"
    "                        i += (long long)gridDim.x * blockDim.x)\n"
    "extern \"C\" __global__ void __launch_bounds__(256) add(const float* a, const float* b, "
    "float* c,\n"
    "                                                        long long n) {\n"
    "  EACH(i, n) c[i] = a[i] + b[i];\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(256) check(float* x, record* r, long long n,\n"
    "                                                          unsigned tag) {\n"
    "  if (r->tag != 0 && r->tag != tag) return;\n"
    "  EACH(i, n) x[i] = i;\n"
    "  if (n % 2 == 1 && threadIdx.x == 0 && atomicCAS(&r->tag, 0u, tag) == 0) {\n"
    "    r->site = 7; r->index = n; r->extent = 5;\n"
    "  }\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(128) copy(const float* a, float* c, long long "
    "n) {\n"
    "  EACH(i, n) c[i] = a[i];\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(256) shared(float* c, long long n) {\n"
    "  extern __shared__ __align__(16) unsigned char dynamic[];\n"
    "  float* s = (float*)dynamic + 100000 / 4 - 256;\n"
    "  s[threadIdx.x] = threadIdx.x;\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x < n) c[threadIdx.x] = s[n - 1 - threadIdx.x];\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(32) poke(float* c, long long n) {\n"
    "  if (threadIdx.x == 0) c[n + 100] = 1;\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(512) scale(float* c, float f, long long n) {\n"
    "  EACH(i, n) c[i] *= f;\n"
    "}\n";

static bool compile(uint8_t** out_data, size_t* out_size) {
  void* nvrtc = dlopen(COMPILER, RTLD_NOW | RTLD_LOCAL);
  if (!nvrtc) return false;
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*build)(void*, int, const char* const*);
  int (*size)(void*, size_t*);
  int (*get)(void*, char*);
  int (*get_log)(void*, char*);
  int (*destroy)(void**);
  const struct {
    const char* name;
    void* out;
  } symbols[] = {{"nvrtcCreateProgram", &create},  {"nvrtcCompileProgram", &build},
                 {"nvrtcGetCUBINSize", &size},     {"nvrtcGetCUBIN", &get},
                 {"nvrtcGetProgramLog", &get_log}, {"nvrtcDestroyProgram", &destroy}};
  for (size_t i = 0; i < QN_COUNT_OF(symbols); i++) {
    void* address = dlsym(nvrtc, symbols[i].name);
    if (!address) return false;
    memcpy(symbols[i].out, &address, sizeof address);
  }
  void* program;
  const char* option = "--gpu-architecture=sm_90a";
  if (create(&program, text, "test", 0, NULL, NULL) != 0) return false;
  if (build(program, 1, &option) != 0) {
    static char log[65536];
    (void)get_log(program, log);
    fail_msg("the kernels do not compile: %s", log);
  }
  if (size(program, out_size) != 0) return false;
  *out_data = malloc(*out_size);
  const bool is_done = get(program, (char*)*out_data) == 0;
  (void)destroy(&program);
  return is_done;
}

static const qn__gpu_op_t word_1_over_256[] = {{QN__GPU_WORD, 0, QN_DTYPE_I64, 1},
                                               {QN__GPU_CONST, 0, QN_DTYPE_I64, 256},
                                               {QN__GPU_APPLY, QN_OP_CEILDIV, QN_DTYPE_I64, 0}};
static const qn__gpu_op_t word_2_over_256[] = {{QN__GPU_WORD, 0, QN_DTYPE_I64, 2},
                                               {QN__GPU_CONST, 0, QN_DTYPE_I64, 256},
                                               {QN__GPU_APPLY, QN_OP_CEILDIV, QN_DTYPE_I64, 0}};
static const qn__gpu_op_t word_3_over_256[] = {{QN__GPU_WORD, 0, QN_DTYPE_I64, 3},
                                               {QN__GPU_CONST, 0, QN_DTYPE_I64, 256},
                                               {QN__GPU_APPLY, QN_OP_CEILDIV, QN_DTYPE_I64, 0}};
static const qn__gpu_op_t word_2_times_4[] = {{QN__GPU_WORD, 0, QN_DTYPE_I64, 2},
                                              {QN__GPU_CONST, 0, QN_DTYPE_I64, 4},
                                              {QN__GPU_APPLY, QN_OP_MUL, QN_DTYPE_I64, 0}};
static const qn__gpu_op_t one[] = {{QN__GPU_CONST, 0, QN_DTYPE_I64, 1}};
static const qn__gpu_op_t three[] = {{QN__GPU_CONST, 0, QN_DTYPE_I64, 3}};
static const qn__gpu_op_t word_1[] = {{QN__GPU_WORD, 0, QN_DTYPE_I64, 1}};
static const qn__gpu_op_t any_threads[] = {{QN__GPU_CONST, 0, QN_DTYPE_I64, 512}};

#define EXPR(array) {QN_COUNT_OF(array), array}
#define BUFFER(index, written) {QN_GPU_ARG_BUFFER, index, 4, written}
#define WORD(index, size) {QN_GPU_ARG_WORD, index, size, false}
#define ARGS(array) .arg_count = QN_COUNT_OF(array), .args = array

static const qn_gpu_arg_t add_args[] = {BUFFER(0, false), BUFFER(1, false), BUFFER(2, true),
                                        WORD(3, 8)};
static const qn_gpu_arg_t check_args[] = {BUFFER(0, true), WORD(1, 8)};
static const qn_gpu_arg_t count_args[] = {BUFFER(0, true), {QN_GPU_ARG_LOCAL, 0, 8, false}};
static const qn_gpu_arg_t down_args[] = {
    BUFFER(0, false), {QN_GPU_ARG_WORKSPACE, 0, 4, true}, WORD(2, 8)};
static const qn_gpu_arg_t up_args[] = {
    {QN_GPU_ARG_WORKSPACE, 0, 4, false}, BUFFER(1, true), WORD(2, 8)};
static const qn_gpu_arg_t simple_args[] = {BUFFER(0, true), WORD(1, 8)};
static const qn_gpu_arg_t scale_args[] = {BUFFER(0, true), WORD(1, 4), WORD(2, 8)};

#define LAUNCH(kernel_index, blocks) \
  {.kind = QN__GPU_STEP_LAUNCH,      \
   .a = EXPR(blocks),                \
   .kernel = kernel_index,           \
   .wide_kernel = QN__GPU_NO_KERNEL, \
   .site = QN__GPU_NO_SITE,          \
   .memory_site = QN__GPU_NO_SITE}
static const qn__gpu_step_t add_steps[] = {LAUNCH(0, word_3_over_256)};
static const qn__gpu_step_t check_steps[] = {LAUNCH(1, word_1_over_256)};
static const qn__gpu_step_t workspace_steps[] = {{.kind = QN__GPU_STEP_WORKSPACE,
                                                  .slot = 0,
                                                  .a = EXPR(word_2_times_4),
                                                  .site = 0,
                                                  .memory_site = 1,
                                                  .kernel = QN__GPU_NO_KERNEL,
                                                  .wide_kernel = QN__GPU_NO_KERNEL},
                                                 LAUNCH(2, word_2_over_256),
                                                 LAUNCH(3, word_2_over_256)};
static const qn__gpu_step_t shared_steps[] = {LAUNCH(4, one)};
static const qn__gpu_step_t poke_steps[] = {LAUNCH(5, one)};
static const qn__gpu_step_t scale_steps[] = {{.kind = QN__GPU_STEP_LAUNCH,
                                              .a = EXPR(word_2_over_256),
                                              .b = EXPR(any_threads),
                                              .kernel = 6,
                                              .wide_kernel = QN__GPU_NO_KERNEL,
                                              .site = QN__GPU_NO_SITE,
                                              .memory_site = QN__GPU_NO_SITE}};
static const qn__gpu_step_t count_steps[] = {{.kind = QN__GPU_STEP_LOOP,
                                              .slot = 0,
                                              .a = EXPR(three),
                                              .b = EXPR(word_1),
                                              .body_count = 1,
                                              .kernel = QN__GPU_NO_KERNEL,
                                              .wide_kernel = QN__GPU_NO_KERNEL,
                                              .site = QN__GPU_NO_SITE,
                                              .memory_site = QN__GPU_NO_SITE},
                                             LAUNCH(7, one)};

static qn_artifact_t artifact;

const qn_artifact_t* cuda_artifact(void) {
  static qn__buffer_t metadata;
  if (artifact.payload) return &artifact;
  uint8_t* data;
  size_t size;
  if (!compile(&data, &size)) return NULL;
  qn__gpu_kernel_t kernels[] = {
      {.name = "add", .thread_count = 256, ARGS(add_args)},
      {.name = "check", .thread_count = 256, .has_record = true, ARGS(check_args)},
      {.name = "copy", .thread_count = 128, ARGS(down_args)},
      {.name = "copy", .thread_count = 128, ARGS(up_args)},
      {.name = "shared", .thread_count = 256, .dynamic_shared_bytes = 100000, ARGS(simple_args)},
      {.name = "poke", .thread_count = 32, ARGS(simple_args)},
      {.name = "scale", .thread_count = 0, ARGS(scale_args)},
      {.name = "check", .thread_count = 256, .has_record = true, ARGS(count_args)},
  };
  for (size_t i = 0; i < QN_COUNT_OF(kernels); i++) kernels[i].code_size_bytes = size;
  static const qn__gpu_function_t functions[CUDA_FUNCTION_COUNT] = {
      [CUDA_ADD] = {4, 3, 0, 0, 1, add_steps, false},
      [CUDA_CHECK] = {2, 1, 0, 0, 1, check_steps, false},
      [CUDA_WORKSPACE] = {3, 2, 0, 1, 3, workspace_steps, false},
      [CUDA_SHARED] = {2, 1, 0, 0, 1, shared_steps, false},
      [CUDA_POKE] = {2, 1, 0, 0, 1, poke_steps, false},
      [CUDA_NOTHING] = {0, 0, 0, 0, 0, NULL, false},
      [CUDA_SCALE] = {3, 2, 0, 0, 1, scale_steps, false},
      [CUDA_COUNT] = {2, 1, 1, 0, 2, count_steps, false},
  };
  static const char* const names[] = {"add",  "check",   "workspace", "shared",
                                      "poke", "nothing", "scale",     "count"};
  static qn_artifact_function_t described[CUDA_FUNCTION_COUNT];
  for (size_t i = 0; i < CUDA_FUNCTION_COUNT; i++) described[i].name = names[i];
  const qn__gpu_plan_t plan = {CUDA_FUNCTION_COUNT, functions, QN_COUNT_OF(kernels), kernels};
  qn__buffer_init(&metadata, qn_allocator_default());
  qn__gpu_plan_encode(&plan, &metadata);
  artifact = (qn_artifact_t){.struct_size = sizeof artifact,
                             .format = "cuda-cubin-1",
                             .isa = "{\"arch\":\"sm_90a\",\"kind\":\"cuda\"}",
                             .payload = data,
                             .payload_size = size,
                             .metadata = metadata.data,
                             .metadata_size = metadata.size,
                             .function_count = CUDA_FUNCTION_COUNT,
                             .functions = described};
  return &artifact;
}

qn_artifact_t cuda_artifact_copy(void) {
  return *cuda_artifact();
}

// ---------------------------------------------------------------------------------- launches

static void retain(void* self) {
  cuda_owner_t* owner = self;
  owner->reference_count++;
  owner->retain_count++;
}
static void release(void* self) {
  ((cuda_owner_t*)self)->reference_count--;
}
static qn_status_t describe(void* self, const qn_kernel_failure_t* failure) {
  (void)self;
  return qn_status_make(QN_STATUS_ASSERTION, "site %u index %" PRId64 " extent %" PRId64,
                        failure->site, failure->index, failure->extent);
}

qn_launch_t cuda_launch(cuda_owner_t* owner, const uint64_t* words, uint32_t word_count) {
  return (qn_launch_t){words, word_count, words, owner, retain, release, describe};
}

qn_status_t cuda_run(void* executable, uint32_t function, int32_t id, qn_stream_t* stream,
                     cuda_owner_t* owner, const uint64_t* words, uint32_t word_count) {
  const qn_launch_t launch = cuda_launch(owner, words, word_count);
  return cuda_table()->launch(id, executable, function, qn__stream_inner(stream), &launch);
}

void* cuda_load(int32_t id) {
  const qn_artifact_t* made = cuda_artifact();
  assert_non_null(made);
  void* executable;
  const qn_load_options_t options = {.struct_size = sizeof options, .name = "test"};
  must(cuda_table()->load(id, made, &options, &executable));
  return executable;
}

// ---------------------------------------------------------------------------------- memory

float* cuda_floats(int32_t id, size_t count, float first) {
  void* pointer;
  float* host = malloc(count * sizeof *host + 1);
  for (size_t i = 0; i < count; i++) host[i] = first + (float)i;
  must(qn_device_allocate(cuda_at(id), count * sizeof *host, 0, &pointer));
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = {QN_DEVICE_CPU, 0},
                          .from = host,
                          .to_device = cuda_at(id),
                          .to = pointer,
                          .size_bytes = count * sizeof *host};
  must(qn_device_copy(&copy, NULL));
  must(qn_stream_sync(cuda_at(id), NULL));
  free(host);
  return pointer;
}

void cuda_read(int32_t id, qn_stream_t* stream, const void* from, void* to, size_t size_bytes) {
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = cuda_at(id),
                          .from = from,
                          .to_device = {QN_DEVICE_CPU, 0},
                          .to = to,
                          .size_bytes = size_bytes};
  must(qn_device_copy(&copy, stream));
}

void cuda_free(int32_t id, void* pointer) {
  must(qn_device_free(cuda_at(id), pointer));
}

void cuda_expect_clean(const fake_cuda_counts_t* before) {
  fake_cuda_counts_t now;
  cuda_driver.counts(&now);
  assert_int_equal(now.violations, before->violations);
  assert_int_equal(now.modules, before->modules);
  assert_int_equal(now.streams, before->streams);
  assert_int_equal(now.device_blocks, before->device_blocks);
  assert_int_equal(now.graphs, before->graphs);
  assert_int_equal(now.graph_execs, before->graph_execs);
  assert_int_equal(now.user_objects, before->user_objects);
}

bool cuda_in_child(const char* settings, const char* argument) {
  (void)fflush(NULL);
  const pid_t pid = fork();
  if (pid < 0) return false;
  if (pid == 0) {
    char copy[256];
    (void)snprintf(copy, sizeof copy, "%s", settings);
    char* rest = copy;
    for (char* setting; (setting = strtok_r(rest, " ", &rest)) != NULL;) {
      char* equals = strchr(setting, '=');
      *equals = '\0';
      (void)setenv(setting, equals + 1, 1);
    }
    (void)execl("/proc/self/exe", "test", argument, (char*)NULL);
    _exit(127);
  }
  int status;
  while (waitpid(pid, &status, 0) < 0) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
