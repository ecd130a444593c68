// SPDX-License-Identifier: Apache-2.0
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
    {"a fence, an atomic write, an atomic read and a fence",
     HEAD "if (t == 0) { if (atomicAdd(out, 0) == 0) { out[1] = 1; __threadfence(); atomicAdd(out, "
          "1); }\n"
          "else { __threadfence(); out[2] = out[1]; } } }",
     false},
    {"no fence between the writes",
     HEAD "if (t == 0) { if (atomicAdd(out, 0) == 0) { out[1] = 1; atomicAdd(out, 1); }\n"
          "else { __threadfence(); out[2] = out[1]; } } }",
     true},
    {"no fence between the reads",
     HEAD "if (t == 0) { if (atomicAdd(out, 0) == 0) { out[1] = 1; __threadfence(); atomicAdd(out, "
          "1); }\n"
          "else { out[2] = out[1]; } } }",
     true},
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

// The last test of a process: the device does nothing afterwards.
static void expect_fault(const char* name, const char* text) {
  unsigned char out[4096];
  if (run(text, 1, 64, out) == QN__CU_OK) fail_msg("%s goes through", name);
}

// ---- matrices

#define INSTRUCTION(shape, type, c)                                                  \
  "static inline void multiply(" type                                                \
  "* d, const unsigned* a, const unsigned* b) {\n"                                   \
  "asm volatile(\"mma.sync.aligned." shape                                           \
  " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "                             \
  "%1, %2, %3};\" : \"+" c "\"(d[0]), \"+" c "\"(d[1]), \"+" c "\"(d[2]), \"+" c     \
  "\"(d[3]) : "                                                                      \
  "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n" \
  "}\n"

// The places of elements as the tables of the PTX ISA have them, for `t` in a warp of `g` = t / 4
// and `q` = t % 4. A[row][column] is row * 3 + column * 5 + 1 modulo 7, B[row][column] is row +
// column * 2 modulo 5. `element` makes an element of a small integer x; a register has `per` of
// them.
#define MULTIPLY(shape, type, c, per, element, a_row, a_column, b_row)                             \
  INSTRUCTION(shape, type, c)                                                                      \
  HEAD                                                                                             \
      "const int g = t / 4, q = t % 4; " type                                                      \
      " d[4] = {0, 0, 0, 0};\n"                                                                    \
      "unsigned a[4] = {0, 0, 0, 0}, b[2] = {0, 0};\n"                                             \
      "for (int i = 0; i < 4 * " per "; i++) { const int row = " a_row ", column = " a_column      \
      ";\n"                                                                                        \
      "const unsigned x = (unsigned)(row * 3 + column * 5 + 1) % 7;\n"                             \
      "a[i / " per "] |= " element " << i % " per " * (32 / " per                                  \
      "); }\n"                                                                                     \
      "for (int i = 0; i < 2 * " per "; i++) { const int row = " b_row                             \
      ";\n"                                                                                        \
      "const unsigned x = (unsigned)(row + g * 2) % 5;\n"                                          \
      "b[i / " per "] |= " element " << i % " per " * (32 / " per                                  \
      "); }\n"                                                                                     \
      "multiply(d, a, b);\n"                                                                       \
      "for (int i = 0; i < 4; i++) out[(g + (i < 2 ? 0 : 8)) * 8 + q * 2 + (i & 1)] = (int)d[i]; " \
      "}"
#define ROW_OF_HALVES "i < 2 || (i >= 4 && i < 6) ? g : g + 8"
#define ROW_OF_BYTES "i < 4 || (i >= 8 && i < 12) ? g : g + 8"

static const struct {
  const char* name;
  const char* text;
  int steps;
} multiplications[] = {
    {"f16",
     MULTIPLY("m16n8k16.row.col.f32.f16.f16.f32", "float", "f", "2",
              "(x == 0 ? 0u : x == 1 ? 0x3c00u : x == 2 ? 0x4000u : x == 3 ? 0x4200u : 0x4400u + "
              "(x - 4u) * 0x100u)",
              ROW_OF_HALVES, "q * 2 + (i & 1) + (i < 4 ? 0 : 8)",
              "q * 2 + (i & 1) + (i < 2 ? 0 : 8)"),
     16},
    {"bf16",
     MULTIPLY("m16n8k16.row.col.f32.bf16.bf16.f32", "float", "f", "2",
              "(__float_as_uint((float)x) >> 16)", ROW_OF_HALVES,
              "q * 2 + (i & 1) + (i < 4 ? 0 : 8)", "q * 2 + (i & 1) + (i < 2 ? 0 : 8)"),
     16},
    {"tf32",
     MULTIPLY("m16n8k8.row.col.f32.tf32.tf32.f32", "float", "f", "1", "__float_as_uint((float)x)",
              "i == 0 || i == 2 ? g : g + 8", "q + (i < 2 ? 0 : 4)", "q + (i < 1 ? 0 : 4)"),
     8},
    {"s8",
     MULTIPLY("m16n8k32.row.col.s32.s8.s8.s32", "int", "r", "4", "x", ROW_OF_BYTES,
              "q * 4 + (i & 3) + (i < 8 ? 0 : 16)", "q * 4 + (i & 3) + (i < 4 ? 0 : 16)"),
     32},
    {"u8 and s8",
     MULTIPLY("m16n8k32.row.col.s32.u8.s8.s32", "int", "r", "4", "x", ROW_OF_BYTES,
              "q * 4 + (i & 3) + (i < 8 ? 0 : 16)", "q * 4 + (i & 3) + (i < 4 ? 0 : 16)"),
     32},
};

static void test_matrices(void** state) {
  (void)state;
  unsigned char out[4096];
  int sums[16][8];
  for (size_t i = 0; i < sizeof multiplications / sizeof multiplications[0]; i++) {
    assert_int_equal(run(multiplications[i].text, 1, 32, out), 0);
    memcpy(sums, out, sizeof sums);
    for (int row = 0; row < 16; row++) {
      for (int column = 0; column < 8; column++) {
        int want = 0;
        for (int k = 0; k < multiplications[i].steps; k++) {
          want += (row * 3 + k * 5 + 1) % 7 * ((k + column * 2) % 5);
        }
        if (sums[row][column] != want) {
          fail_msg("%s: [%d, %d] is %d, not %d", multiplications[i].name, row, column,
                   sums[row][column], want);
        }
      }
    }
  }
}

// Four matrices of 8 x 8, whose elements are their numbers; lane t addresses row t % 8 of matrix
// t / 8. Register i has two elements of matrix i: of row t / 4, columns t % 4 * 2 and the next one,
// or with rows and columns exchanged.
#define LOAD(trans)                                                                              \
  HEAD "__shared__ __align__(16) unsigned short s[256]; unsigned r[4];\n"                        \
       "for (int i = 0; i < 8; i++) s[t * 8 + i] = (unsigned short)(t * 8 + i); __syncwarp();\n" \
       "const unsigned at = (unsigned)__cvta_generic_to_shared(s + t * 8);\n"                    \
       "asm volatile(\"ldmatrix.sync.aligned.m8n8.x4" trans                                      \
       ".shared.b16 {%0, %1, %2, %3}, [%4];\" : "                                                \
       "\"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(at) : \"memory\");\n"     \
       "for (int i = 0; i < 4; i++) out[t * 4 + i] = (int)r[i]; }"

static void test_loads_of_matrices(void** state) {
  (void)state;
  unsigned char out[4096];
  unsigned words[32][4];
  for (int is_transposed = 0; is_transposed < 2; is_transposed++) {
    assert_int_equal(run(is_transposed ? LOAD(".trans") : LOAD(""), 1, 32, out), 0);
    memcpy(words, out, sizeof words);
    for (unsigned t = 0; t < 32; t++) {
      for (unsigned i = 0; i < 4; i++) {
        const unsigned row = t / 4, column = t % 4 * 2;
        const unsigned first = i * 64 + (is_transposed ? column * 8 + row : row * 8 + column);
        assert_int_equal(words[t][i] & 0xffff, first);
        assert_int_equal(words[t][i] >> 16, first + (is_transposed ? 8 : 1));
      }
    }
  }
}

// ---- asynchronous copies

#define COPY(size)                                             \
  "asm volatile(\"cp.async.ca.shared.global [%0], [%1], " size \
  ";\" : : \"r\"(at), \"l\"(from) : \"memory\");\n"
#define COMMIT "asm volatile(\"cp.async.commit_group;\" : : : \"memory\");\n"
#define WAIT(count) "asm volatile(\"cp.async.wait_group " count ";\" : : : \"memory\");\n"
// Thread t copies word t of `out`, which is -1, to shared memory.
#define COPIES                                                                                  \
  HEAD "__shared__ __align__(16) int s[256]; out[t] = -1; __syncthreads();\n"                   \
       "const int* from = out + t; const unsigned at = (unsigned)__cvta_generic_to_shared(s + " \
       "t);\n"

static const kernel_t copies[] = {
    {"a copy", COPIES COPY("4") COMMIT WAIT("0") "out[256 + t] = s[t]; }", false},
    {"one that is not waited for", COPIES COPY("4") COMMIT WAIT("1") "out[256 + t] = s[t]; }",
     true},
    {"one that is not in the group", COPIES COPY("4") WAIT("0") "out[256 + t] = s[t]; }", true},
};

static void test_copies(void** state) {
  (void)state;
  unsigned char out[4096];
  int word;
  for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
    const long before = violations();
    assert_int_equal(run(copies[i].text, 1, 64, out), 0);
    memcpy(&word, out + 260 * sizeof word, sizeof word);
    if ((word != -1) != copies[i].is_wrong) fail_msg("%s: %d", copies[i].name, word);
    assert_int_equal(violations(), before);
  }
  // Another thread's copy needs a barrier after the wait.
  const long before = violations();
  assert_int_equal(run(COPIES COPY("4") COMMIT WAIT("0") "out[256 + t] = s[t ^ 40]; }", 1, 64, out),
                   0);
  assert_true(violations() > before);
  // So does a copy into memory that another thread has read.
  const long then = violations();
  assert_int_equal(run(COPIES "s[t] = t; __syncthreads(); out[256 + t] = s[t ^ 40];\n" COPY("4")
                           COMMIT WAIT("0") "}",
                       1, 64, out),
                   0);
  assert_true(violations() > then);
}
static void test_misaligned_copy(void** state) {
  (void)state;
  expect_fault("a misaligned copy", COPIES COPY("8") COMMIT WAIT("0") "}");
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
      {"matrices", cmocka_unit_test(test_matrices)},
      {"loads_of_matrices", cmocka_unit_test(test_loads_of_matrices)},
      {"copies", cmocka_unit_test(test_copies)},
      {"misaligned_copy", cmocka_unit_test(test_misaligned_copy)},
  };
  for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof tests[0]; i++) {
    if (strcmp(argv[1], tests[i].name) != 0) continue;
    const struct CMUnitTest test[] = {tests[i].test};
    return cmocka_run_group_tests(test, set_up, NULL);
  }
  (void)fprintf(stderr, "which test?\n");
  return 2;
}
