// SPDX-License-Identifier: Apache-2.0
// Tests the math functions against libm in higher precision. Also a command that measures their
// error.
//
// Every operation is compiled for the processors and lanes of CONFIGS, and runs on values of every
// exponent, at the edges of its range and at random; f32 against double, f64 against long double.
// An object with external references fails, see tests/math_sweep.c. With arguments it prints the
// largest errors:
//
//   llvm_test_math --measure [--op NAME] [--type f32|f64] [--cpu CPU] [--lanes N]
//                  [--level 0|1|2] [--fast] [--all | --count N]
//
// --all takes each of the 2^32 arguments of the unary f32 functions. The bounds are in docs/ir.md.
// ctest-labels: slow
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// After those that it needs.
#include <cmocka.h>

#include "ir/math/math.h"
#include "tests/math_cases.c"
#include "tests/math_sweep.c"

// -------------------------------------------------------------------------------------- sweeps

// What a `fast` kernel need not care for.
static bool is_special(bool is_f64, long double value) {
  return !isfinite(value) ||
         (fabsl(value) < (is_f64 ? (long double)DBL_MIN : (long double)FLT_MIN));
}

static result_t sweep(const case_t* c, const math_kernel_spec_t* spec, math_loop_t loop,
                      const inputs_t* in) {
  result_t result = {.worst = -1};
  double* wide = must(calloc(in->count, sizeof(double)));
  float* narrow = must(calloc(in->count, sizeof(float)));
  if (in->is_f64) {
    loop(in->value[0], in->value[1], in->value[2], wide, in->count);
  } else {
    loop(in->narrow[0], in->narrow[1], in->narrow[2], narrow, in->count);
  }
  for (size_t i = 0; i < in->count; i++) {
    double arguments[3] = {in->value[0][i], in->value[1][i], in->value[2][i]};
    if (spec->fast &&
        (is_special(in->is_f64, arguments[0]) || is_special(in->is_f64, in->exact[i]))) {
      continue;
    }
    long double got = in->is_f64 ? (long double)wide[i] : (long double)narrow[i];
    judge(c, in->is_f64, arguments, got, in->exact[i], &result);
  }
  free(wide);
  free(narrow);
  return result;
}

// Every argument there is, through several kernels at once: the references take the time.
static void sweep_all_f32(const case_t* c, math_kernel_t* const* kernels, size_t count,
                          result_t* results) {
  enum { CHUNK = 1 << 16 };
  static float in[CHUNK], out[CHUNK];
  static double exact[CHUNK];
  for (size_t k = 0; k < count; k++) results[k] = (result_t){.worst = -1};
  for (uint64_t start = 0; start < UINT64_C(1) << 32; start += CHUNK) {
    for (uint32_t i = 0; i < CHUNK; i++) {
      uint32_t bits = (uint32_t)start + i;
      memcpy(&in[i], &bits, sizeof(bits));
      exact[i] = c->reference_f32((double)in[i], 0, 0);
    }
    for (size_t k = 0; k < count; k++) {
      math_kernel_loop(kernels[k])(in, in, in, out, CHUNK);
      for (uint32_t i = 0; i < CHUNK; i++) {
        judge(c, false, (double[]){(double)in[i], 0, 0}, (long double)out[i], (long double)exact[i],
              &results[k]);
      }
    }
  }
}

static void print_result(const case_t* c, const math_kernel_spec_t* spec, const result_t* r,
                         uint64_t count, size_t size_bytes) {
  double bound = spec->is_f64 ? c->bound_f64 : c->bound_f32;
  printf("%-9s %s %-10s x%-2u %10.4f ulp (bound %.1f)%s over %llu, %zu bytes; worst at %a", c->name,
         spec->is_f64 ? "f64" : "f32", spec->cpu, spec->lanes, r->worst, bound,
         r->worst > bound ? " FAILS" : "", (unsigned long long)count, size_bytes, r->argument[0]);
  if (c->arity > 1) printf(", %a", r->argument[1]);
  if (c->arity > 2) printf(", %a", r->argument[2]);
  printf(": %La for %La\n", r->got, r->exact);
  fflush(stdout);
}

// --------------------------------------------------------------------------------------- tests

typedef struct {
  const char* cpu;
  unsigned lanes;
  int level;
  bool fast;
} config_t;

static const config_t CONFIGS[] = {
    {"x86-64", 1, 0, false},    {"x86-64", 4, 1, false},    {"x86-64", 8, 2, false},
    {"x86-64", 4, 2, true},     {"x86-64-v2", 4, 2, false}, {"x86-64-v3", 1, 2, false},
    {"x86-64-v3", 8, 0, false}, {"x86-64-v3", 2, 1, false}, {"x86-64-v3", 8, 2, true},
    {"x86-64-v4", 4, 2, false}, {"x86-64-v4", 2, 0, false}, {"x86-64-v4", 16, 0, false},
    {"native", 16, 2, false},   {"native", 8, 1, false},    {"native", 1, 1, true},
    {"native", 128, 2, false},
};

static void check_case(const case_t* c, bool is_f64) {
  inputs_t in = make_inputs(c, is_f64, 1);
  double bound = is_f64 ? c->bound_f64 : c->bound_f32;
  for (size_t i = 0; i < sizeof(CONFIGS) / sizeof(CONFIGS[0]); i++) {
    if (!math_cpu_is_here(CONFIGS[i].cpu)) continue;
    math_kernel_spec_t spec = {CONFIGS[i].cpu,   c->op,          is_f64, CONFIGS[i].lanes,
                               CONFIGS[i].level, CONFIGS[i].fast};
    const char* error = NULL;
    math_kernel_t* kernel = math_kernel_create(&spec, &error);
    if (kernel == NULL) {
      fail_msg("%s %s for %s x%u: %s", c->name, is_f64 ? "f64" : "f32", spec.cpu, spec.lanes,
               error);
    }
    result_t r = sweep(c, &spec, math_kernel_loop(kernel), &in);
    if (!(r.worst <= bound)) {
      print_result(c, &spec, &r, in.count, math_kernel_size_bytes(kernel));
      fail_msg("%s is beyond its bound", c->name);
    }
    math_kernel_free(kernel);
  }
  free_inputs(&in);
}

static void test_f32(void** state) {
  check_case(*state, false);
}
static void test_f64(void** state) {
  check_case(*state, true);
}

// What math.h promises to its caller besides values.
static void test_contract(void** state) {
  (void)state;
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("contract", context);
  LLVMTypeRef integer = LLVMInt32TypeInContext(context);
  LLVMTypeRef vector = LLVMVectorType(LLVMFloatTypeInContext(context), 8);
  LLVMTypeRef mask = LLVMVectorType(LLVMInt1TypeInContext(context), 8);
  LLVMTypeRef parameters[] = {vector, integer};
  LLVMValueRef caller =
      LLVMAddFunction(module, "caller", LLVMFunctionType(vector, parameters, 2, false));
  LLVMAddTargetDependentFunctionAttr(caller, "target-cpu", "x86-64-v3");
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, caller, "entry"));
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__llvm_math_t math = {.context = context,
                          .module = module,
                          .builder = builder,
                          .arena = &arena,
                          .has_fma = true,
                          .has_round = true,
                          .has_avx2 = true};
  LLVMValueRef x = LLVMGetParam(caller, 0), number = LLVMGetParam(caller, 1);
  assert_null(qn__llvm_math_emit(&math, QN_OP_SIN, QN_DTYPE_F32, &number));
  assert_null(qn__llvm_math_emit(&math, QN_OP_ADD, QN_DTYPE_F32, (LLVMValueRef[]){x, x}));
  for (int twice = 0; twice < 2; twice++) {
    for (size_t i = 0; i < CASE_COUNT; i++) {
      LLVMValueRef args[] = {x, x, x};
      if (CASES[i].op == QN_OP_LDEXP) args[1] = build_exponent(context, module, builder, x);
      LLVMValueRef y = qn__llvm_math_emit(&math, CASES[i].op, QN_DTYPE_F32, args);
      assert_non_null(y);
      bool is_test =
          CASES[i].op == QN_OP_ISNAN || CASES[i].op == QN_OP_ISINF || CASES[i].op == QN_OP_ISFINITE;
      assert_ptr_equal(LLVMTypeOf(y), is_test ? mask : vector);
    }
  }
  // No block was added, and the builder is where it was.
  assert_int_equal(LLVMCountBasicBlocks(caller), 1);
  assert_ptr_equal(LLVMGetInsertBlock(builder), LLVMGetEntryBasicBlock(caller));
  LLVMBuildRet(builder, x);
  // What was added is there once, cannot be seen from outside, and is for the same processor.
  unsigned added = 0;
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f != NULL; f = LLVMGetNextFunction(f)) {
    if (f == caller || LLVMIsDeclaration(f)) continue;
    added++;
    assert_int_equal(LLVMGetLinkage(f), LLVMInternalLinkage);
    assert_non_null(LLVMGetStringAttributeAtIndex(f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                                  "target-cpu", 10));
  }
  // Each function of f32 that is not inline; those for one lane call the same of f64.
  unsigned wanted = 0;
  for (int id = 0; id < QN__MATH_ID_COUNT; id++) {
    qn__math_place_t place = qn__math_info((qn__math_id_t)id)->places[0];
    wanted += place == QN__MATH_LANES ? 2 : place != QN__MATH_INLINE;
  }
  assert_int_equal(added, wanted);
  char* message = NULL;
  if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) fail_msg("%s", message);
  LLVMDisposeMessage(message);
  LLVMDisposeBuilder(builder);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  qn__arena_deinit(&arena);
}

// ------------------------------------------------------------------------------------- command

typedef struct {
  const char* op;   // NULL: all
  const char* cpu;  // NULL: those of CPUS
  unsigned lanes;
  int level;
  bool all, fast, f32, f64;
  size_t scale;
} options_t;

// One operation of one type for every processor asked for. Returns the number of failures.
static int measure_case(const case_t* c, bool is_f64, const options_t* options) {
  static const char* const CPUS[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  enum { CPU_COUNT = sizeof(CPUS) / sizeof(CPUS[0]) };
  math_kernel_spec_t specs[CPU_COUNT];
  math_kernel_t* kernels[CPU_COUNT];
  result_t results[CPU_COUNT];
  size_t count = 0;
  for (size_t i = 0; i < CPU_COUNT; i++) {
    const char* cpu = options->cpu == NULL ? CPUS[i] : options->cpu;
    if ((options->cpu != NULL && i > 0) || !math_cpu_is_here(cpu)) continue;
    specs[count] =
        (math_kernel_spec_t){cpu, c->op, is_f64, options->lanes, options->level, options->fast};
    const char* error = NULL;
    kernels[count] = math_kernel_create(&specs[count], &error);
    if (kernels[count] == NULL) {
      printf("%s for %s: %s\n", c->name, cpu, error);
      return 1;
    }
    count++;
  }
  uint64_t arguments = UINT64_C(1) << 32;
  if (options->all) {
    sweep_all_f32(c, kernels, count, results);
  } else {
    inputs_t in = make_inputs(c, is_f64, options->scale);
    arguments = in.count;
    for (size_t k = 0; k < count; k++)
      results[k] = sweep(c, &specs[k], math_kernel_loop(kernels[k]), &in);
    free_inputs(&in);
  }
  int failures = 0;
  for (size_t k = 0; k < count; k++) {
    print_result(c, &specs[k], &results[k], arguments, math_kernel_size_bytes(kernels[k]));
    if (!(results[k].worst <= (is_f64 ? c->bound_f64 : c->bound_f32))) failures++;
    math_kernel_free(kernels[k]);
  }
  return failures;
}

static int measure(int argc, char** argv) {
  options_t options = {.lanes = 8, .level = 2, .f32 = true, .f64 = true, .scale = 1};
  for (int i = 2; i < argc; i++) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "--all") == 0) {
      options.all = true;
      continue;
    }
    if (strcmp(argv[i], "--fast") == 0) {
      options.fast = true;
      continue;
    }
    if (strcmp(argv[i], "--op") == 0) options.op = value;
    if (strcmp(argv[i], "--cpu") == 0) options.cpu = value;
    if (strcmp(argv[i], "--level") == 0) options.level = (int)strtol(value, NULL, 10);
    if (strcmp(argv[i], "--type") == 0) {
      options.f32 = strcmp(value, "f32") == 0;
      options.f64 = !options.f32;
    }
    if (strcmp(argv[i], "--lanes") == 0) options.lanes = (unsigned)strtoul(value, NULL, 10);
    if (strcmp(argv[i], "--count") == 0) options.scale = strtoul(value, NULL, 10) / 200000 + 1;
    i++;
  }
  int failures = 0;
  for (size_t i = 0; i < CASE_COUNT; i++) {
    const case_t* c = &CASES[i];
    if (options.op != NULL && strcmp(options.op, c->name) != 0) continue;
    if (options.f32 && (!options.all || c->arity == 1))
      failures += measure_case(c, false, &options);
    if (options.f64 && !options.all) failures += measure_case(c, true, &options);
  }
  return failures == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--measure") == 0) return measure(argc, argv);
  static struct CMUnitTest tests[2 * CASE_COUNT + 1];
  static char names[2 * CASE_COUNT][24];
  for (size_t i = 0; i < 2 * CASE_COUNT; i++) {
    const case_t* c = &CASES[i / 2];
    snprintf(names[i], sizeof(names[i]), "%s_%s", c->name, i % 2 == 0 ? "f32" : "f64");
    // cmocka hands the state on untouched.
    void* state = NULL;
    memcpy(&state, &c, sizeof(state));
    tests[i] = (struct CMUnitTest){names[i], i % 2 == 0 ? test_f32 : test_f64, NULL, NULL, state};
  }
  tests[2 * CASE_COUNT] = (struct CMUnitTest){"contract", test_contract, NULL, NULL, NULL};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
