#define _GNU_SOURCE
// tests/fake-cuda/test_fake.c: tests that the fake driver finds defects: kernels that race, that
// rely on an order of threads or on uninitialised memory, or that break rules of C, and calls that
// NVIDIA's driver refuses. Each kernel has one defect, or is the same kernel without it.
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cuda/driver.h"
#include "tests/fake-cuda/control.h"

static qn__cuda_driver_t cu;
static fake_cuda_counts_fn_t counts_of;
static struct {
  int (*create)(void** program, const char* text, const char* name, int header_count,
                const char* const* headers, const char* const* names);
  int (*compile)(void* program, int count, const char* const* options);
  int (*cubin_size)(void* program, size_t* size);
  int (*cubin)(void* program, char* out);
  int (*destroy)(void** program);
} nvrtc;
static CUcontext context;

static void* find(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (!address) fail_msg("no %s", name);
  return address;
}

static void take(void* library, const char* name, void* out) {
  void* address = find(library, name);
  memcpy(out, &address, sizeof address);
}

static int set_up(void** state) {
  (void)state;
  void* driver = dlopen(getenv("QUERN_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  void* compiler = dlopen(getenv("QUERN_NVRTC_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (!driver || !compiler) return 1;
#define QN_CUDA_SYMBOL(name, symbol, need, params) take(driver, #symbol, &cu.name);
#include "devices/cuda/cuda_symbols.inc"
#undef QN_CUDA_SYMBOL
  take(driver, "fake_cuda_counts", &counts_of);
  take(compiler, "nvrtcCreateProgram", &nvrtc.create);
  take(compiler, "nvrtcCompileProgram", &nvrtc.compile);
  take(compiler, "nvrtcGetCUBINSize", &nvrtc.cubin_size);
  take(compiler, "nvrtcGetCUBIN", &nvrtc.cubin);
  take(compiler, "nvrtcDestroyProgram", &nvrtc.destroy);
  assert_int_equal(cu.init(0), 0);
  assert_int_equal(cu.primary_retain(&context, 0), 0);
  assert_int_equal(cu.ctx_push(context), 0);
  return 0;
}

static long violations(void) {
  fake_cuda_counts_t counts;
  counts_of(&counts);
  return counts.violations;
}

// Runs "k" of the text on 4096 zeroed bytes and more threads than a warp; what it ended with.
static CUresult run(const char* text, unsigned blocks, unsigned threads, unsigned char out[4096]) {
  const char* options[] = {"--gpu-architecture=sm_90"};
  void* program = NULL;
  assert_int_equal(nvrtc.create(&program, text, "k.cu", 0, NULL, NULL), 0);
  assert_int_equal(nvrtc.compile(program, 1, options), 0);
  size_t size;
  assert_int_equal(nvrtc.cubin_size(program, &size), 0);
  char* cubin = malloc(size);
  assert_non_null(cubin);
  assert_int_equal(nvrtc.cubin(program, cubin), 0);
  assert_int_equal(nvrtc.destroy(&program), 0);
  CUmodule module;
  CUfunction function;
  CUdeviceptr memory;
  CUstream stream;
  assert_int_equal(cu.module_load(&module, cubin), 0);
  free(cubin);
  assert_int_equal(cu.module_get_function(&function, module, "k"), 0);
  assert_int_equal(cu.mem_alloc(&memory, 4096), 0);
  assert_int_equal(cu.stream_create(&stream, QN__CU_STREAM_NON_BLOCKING), 0);
  memset(out, 0, 4096);
  assert_int_equal(cu.memcpy_host_to_device(memory, out, 4096, stream), 0);
  void* params[] = {&memory};
  assert_int_equal(cu.launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL),
                   0);
  CUresult result = cu.stream_synchronize(stream);
  if (result == QN__CU_OK) {
    assert_int_equal(cu.memcpy_device_to_host(out, memory, 4096, stream), 0);
    assert_int_equal(cu.stream_synchronize(stream), 0);
  }
  return result;
}

#define HEAD \
  "extern \"C\" __global__ void __launch_bounds__(256) k(int* out) { int t = threadIdx.x;\n"

typedef struct kernel {
  const char* name;
  const char* text;
  bool is_wrong;
} kernel_t;

static const kernel_t races[] = {
    {"a barrier between a write and a read",
     HEAD "__shared__ int s[256]; s[t] = t; __syncthreads(); out[t] = s[t ^ 64]; }", false},
    {"none", HEAD "__shared__ int s[256]; s[t] = t; out[t] = s[t ^ 64]; }", true},
    {"none behind the read",
     HEAD "__shared__ int s[256]; for (int i = 0; i < 2; i++) {\n"
          "s[t] = t; __syncthreads(); out[t] = s[t ^ 64]; } }",
     true},
    {"a warp that meets",
     HEAD "__shared__ int s[256]; s[t] = t; __syncwarp(); out[t] = s[t ^ 1]; }", false},
    {"a warp that does not", HEAD "__shared__ int s[256]; s[t] = t; out[t] = s[t ^ 1]; }", true},
    {"a warp that shuffles, which orders nothing",
     HEAD "__shared__ int s[256]; s[t] = t; int v = __shfl_xor_sync(0xffffffffu, t, 1);\n"
          "out[t] = s[t ^ 1] + v; }",
     true},
    {"a warp that meets for its neighbour",
     HEAD "__shared__ int s[256]; s[t] = t; __syncwarp(); out[t] = s[t ^ 32]; }", true},
    {"one place for all", HEAD "out[0] = t; }", true},
    {"one place for the first of each block", HEAD "if (t == 0) out[0] = 1; }", true},
    {"atomics", HEAD "atomicAdd(out, 1); }", false},
    {"an atomic and a read", HEAD "atomicAdd(out, 1); out[t + 1] = *out; }", true},
    {"bytes of one word", HEAD "((char*)out)[t + 256 * blockIdx.x] = 1; }", false},
};

static void test_races(void** state) {
  (void)state;
  unsigned char out[4096];
  for (size_t i = 0; i < sizeof races / sizeof races[0]; i++) {
    const long before = violations();
    const bool is_alone = strstr(races[i].text, "out[t") != NULL;
    assert_int_equal(run(races[i].text, is_alone ? 1 : 2, 256, out), 0);
    if (races[i].is_wrong != (violations() > before)) {
      fail_msg("%s: %ld races found", races[i].name, violations() - before);
    }
  }
}

static void test_garbage(void** state) {
  (void)state;
  unsigned char out[4096];
  int values[3];
  assert_int_equal(run(HEAD "__shared__ int s[4]; int own[4];\n"
                            "asm volatile(\"\" : : \"r\"(s), \"r\"(own) : \"memory\");\n"
                            "if (t == 0) { out[0] = s[1]; out[1] = own[2]; }\n"
                            "int v = __shfl_down_sync(~0u, t, 16); if (t == 8) out[2] = v; }",
                       1, 20, out),
                   0);
  memcpy(values, out, sizeof values);
  // Shared memory, an array of a thread, and a lane that there is not.
  assert_int_not_equal(values[0], 0);
  assert_int_not_equal(values[1], 0);
  assert_int_not_equal(values[2], 8);
}

// Casts that read like the parameters of a function, with an index for the extent of an array.
static void test_casts(void** state) {
  (void)state;
  unsigned char out[4096];
  int value;
  assert_int_equal(
      run("typedef unsigned int uint;\n"
          "static inline uint add(uint a, uint b) { return a + b; }\n" HEAD
          "const int at = t % 7; if (t != 0) return;\n"
          "const unsigned char* bytes = (const unsigned char*)out; out[2] = 7; out[22] = 5;\n"
          "out[1] = out[int((uint(int(add(uint(int(uint(bytes[int((4u * 2u) + uint(at))]))),\n"
          " uint(at)))) * 3u) + 1u)]; }",
          1, 64, out),
      0);
  memcpy(&value, out + 4, sizeof value);
  assert_int_equal(value, 5);
}

// The last test of a process: the device does nothing afterwards.
static void expect_fault(const char* name, const char* text) {
  unsigned char out[4096];
  if (run(text, 1, 64, out) == QN__CU_OK) fail_msg("%s goes through", name);
}

static void test_diverged_barrier(void** state) {
  (void)state;
  const long before = violations();
  expect_fault("barriers in two lines", HEAD
               "if (t < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}\nout[t] = t; }");
  assert_int_equal(violations(), before + 1);
}
static void test_misaligned(void** state) {
  (void)state;
  expect_fault("a misaligned access", HEAD "*(long long*)(out + 2 * t + 1) = 1; }");
}
static void test_shift(void** state) {
  (void)state;
  expect_fault("a shift by 32", HEAD "out[t] = 1u << (t | 32); }");
}
static void test_overflow(void** state) {
  (void)state;
  expect_fault("an overflow", HEAD "out[t] = t + 2147483647; }");
}
static void test_bounds(void** state) {
  (void)state;
  expect_fault("an index beyond shared memory", HEAD "__shared__ int s[8]; s[t] = t; }");
}

int main(int argc, char** argv) {
  const struct {
    const char* name;
    struct CMUnitTest test;
  } tests[] = {
      {"races", cmocka_unit_test(test_races)},
      {"garbage", cmocka_unit_test(test_garbage)},
      {"casts", cmocka_unit_test(test_casts)},
      {"diverged_barrier", cmocka_unit_test(test_diverged_barrier)},
      {"misaligned", cmocka_unit_test(test_misaligned)},
      {"shift", cmocka_unit_test(test_shift)},
      {"overflow", cmocka_unit_test(test_overflow)},
      {"bounds", cmocka_unit_test(test_bounds)},
  };
  for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof tests[0]; i++) {
    if (strcmp(argv[1], tests[i].name) != 0) continue;
    const struct CMUnitTest test[] = {tests[i].test};
    return cmocka_run_group_tests(test, set_up, NULL);
  }
  (void)fprintf(stderr, "which test?\n");
  return 2;
}
