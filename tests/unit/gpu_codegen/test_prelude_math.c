// SPDX-License-Identifier: Apache-2.0
// Tests the math functions of GPU kernels, compiled as C++, against libm in higher precision. Also
// a command that measures their error.
//
// Every operation of tests/math_cases.c runs through the prelude's text for CUDA and GLSL, with and
// without a fused fma, 64-bit integers and doubles. With arguments it prints the largest errors:
//
//   gpu_codegen_test_prelude_math --measure [--op NAME] [--type f32|f64] [--mode 0123]
//                                 [--all [--stride N] | --count N]
//
// --all takes each of the 2^32 arguments of the unary f32 functions, or each N-th. The bounds are
// in docs/ir.md. Kernels on devices are tested in conformance.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After those that it needs.
#include <cmocka.h>

#include "tests/math_cases.c"
#include "tests/unit/gpu_codegen/support_prelude.h"

typedef void (*loop_t)(const void* a, const void* b, const void* c, void* out, size_t count);

static const char* const PARAMETERS[] = {"", "a[i]", "a[i], b[i]", "a[i], b[i], c[i]"};

// Does the mode have the function? Without 64-bit integers there is no f64 at all.
static bool is_there(const prelude_mode_t* mode, bool is_f64) {
  return !is_f64 || mode->has_float64;
}

static void* build_loops(const prelude_mode_t* mode) {
  static char text[CASE_COUNT * 512 + 1024];
  size_t at = 0;
  at += (size_t)snprintf(text, sizeof text, "#include <stddef.h>\n");
  for (size_t k = 0; k < 2 * CASE_COUNT; k++) {
    const case_t* c = &CASES[k / 2];
    bool is_f64 = k % 2 == 1;
    if (!is_there(mode, is_f64)) continue;
    const char* type = is_f64 ? "double" : "float";
    const char* name = is_f64 ? "f64" : "f32";
    const char* operands = c->op != QN_OP_LDEXP ? PARAMETERS[c->arity]
                           : is_f64             ? "a[i], qn_i32_from_f64(b[i])"
                                                : "a[i], qn_i32_from_f32(b[i])";
    at += (size_t)snprintf(text + at, sizeof text - at,
                           "extern \"C\" __attribute__((visibility(\"default\"))) void "
                           "loop_%s_%s(const %s* a, const %s* b, const %s* c, %s* out, size_t n) "
                           "{ for (size_t i = 0; i < n; i++) out[i] = (%s)qn_%s_%s(%s); }\n",
                           c->name, name, type, type, type, type, type, c->name, name, operands);
  }
  const char* error = NULL;
  void* built = prelude_build(mode, text, &error);
  if (built == NULL && error[0] != '\0') fprintf(stderr, "%s: %s\n", mode->name, error);
  if (built == NULL && error[0] != '\0') exit(1);
  return built;
}

static loop_t find_loop(void* built, const case_t* c, bool is_f64) {
  char name[64];
  snprintf(name, sizeof name, "loop_%s_%s", c->name, is_f64 ? "f64" : "f32");
  void* symbol = prelude_symbol(built, name);
  loop_t loop = NULL;
  memcpy(&loop, &symbol, sizeof loop);
  return loop;
}

static result_t sweep(const case_t* c, loop_t loop, const inputs_t* in) {
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
    long double got = in->is_f64 ? (long double)wide[i] : (long double)narrow[i];
    judge(c, in->is_f64, arguments, got, in->exact[i], &result);
  }
  free(wide);
  free(narrow);
  return result;
}

// Every argument there is, through several modes at once: the references take the time.
static void sweep_all_f32(const case_t* c, uint32_t stride, const loop_t* loops, size_t count,
                          result_t* results) {
  enum { CHUNK = 1 << 16 };
  static float in[CHUNK], out[CHUNK];
  static double exact[CHUNK];
  for (size_t k = 0; k < count; k++) results[k] = (result_t){.worst = -1};
  for (uint64_t start = 0; start < UINT64_C(1) << 32; start += (uint64_t)CHUNK * stride) {
    for (uint32_t i = 0; i < CHUNK; i++) {
      uint32_t bits = (uint32_t)start + i * stride;
      memcpy(&in[i], &bits, sizeof(bits));
      exact[i] = c->reference_f32((double)in[i], 0, 0);
    }
    for (size_t k = 0; k < count; k++) {
      loops[k](in, in, in, out, CHUNK);
      for (uint32_t i = 0; i < CHUNK; i++) {
        double a[3] = {(double)in[i], 0, 0};
        judge(c, false, a, (long double)out[i], (long double)exact[i], &results[k]);
      }
    }
  }
}

// ------------------------------------------------------------------------------------ the test

static void* built_modes[PRELUDE_MODE_COUNT];

static int build_all(void** state) {
  (void)state;
  for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
    built_modes[m] = build_loops(&PRELUDE_MODES[m]);
    if (built_modes[m] == NULL) {
      print_message("no C++ compiler: the prelude is not run\n");
      exit(0);
    }
  }
  return 0;
}

static int free_all(void** state) {
  (void)state;
  for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) prelude_free(built_modes[m]);
  return 0;
}

static void check(const case_t* c, bool is_f64) {
  inputs_t in = make_inputs(c, is_f64, 1);
  for (size_t m = 0; m < PRELUDE_MODE_COUNT; m++) {
    if (!is_there(&PRELUDE_MODES[m], is_f64)) continue;
    result_t result = sweep(c, find_loop(built_modes[m], c, is_f64), &in);
    double bound = is_f64 ? c->bound_f64 : c->bound_f32;
    if (!(result.worst <= bound)) {
      fail_msg("%s: %s(%a, %a, %a) is %La, not %La: %.3f ulp, more than %.3f",
               PRELUDE_MODES[m].name, c->name, result.argument[0], result.argument[1],
               result.argument[2], result.got, result.exact, result.worst, bound);
    }
  }
  free_inputs(&in);
}

static void test_f32(void** state) {
  check(*state, false);
}
static void test_f64(void** state) {
  check(*state, true);
}

static int measure(int argc, char** argv) {
  const char* op = "";
  const char* type = "";
  const char* wanted = "0123";
  bool is_all = false;
  uint32_t stride = 1;
  size_t count = 1000000;
  for (int i = 2; i < argc; i++) {
    bool has_value = i + 1 < argc;
    if (strcmp(argv[i], "--all") == 0) is_all = true;
    if (strcmp(argv[i], "--op") == 0 && has_value) op = argv[++i];
    if (strcmp(argv[i], "--type") == 0 && has_value) type = argv[++i];
    if (strcmp(argv[i], "--mode") == 0 && has_value) wanted = argv[++i];
    if (strcmp(argv[i], "--stride") == 0 && has_value) stride = (uint32_t)atoi(argv[++i]);
    if (strcmp(argv[i], "--count") == 0 && has_value) count = strtoull(argv[++i], NULL, 10);
  }
  const prelude_mode_t* modes[PRELUDE_MODE_COUNT];
  void* built[PRELUDE_MODE_COUNT];
  size_t mode_count = 0;
  for (int m = 0; m < PRELUDE_MODE_COUNT; m++) {
    if (strchr(wanted, '0' + m) == NULL) continue;
    modes[mode_count] = &PRELUDE_MODES[m];
    built[mode_count] = build_loops(&PRELUDE_MODES[m]);
    if (built[mode_count++] == NULL) return 1;
  }
  for (size_t k = 0; k < 2 * CASE_COUNT; k++) {
    const case_t* c = &CASES[k / 2];
    bool is_f64 = k % 2 == 1;
    if (op[0] != '\0' && strcmp(op, c->name) != 0) continue;
    if (type[0] != '\0' && strcmp(type, is_f64 ? "f64" : "f32") != 0) continue;
    loop_t loops[PRELUDE_MODE_COUNT];
    result_t results[PRELUDE_MODE_COUNT];
    const prelude_mode_t* having[PRELUDE_MODE_COUNT];
    size_t loop_count = 0;
    for (size_t m = 0; m < mode_count; m++) {
      if (!is_there(modes[m], is_f64)) continue;
      having[loop_count] = modes[m];
      loops[loop_count++] = find_loop(built[m], c, is_f64);
    }
    if (is_all && !is_f64 && c->arity == 1) {
      sweep_all_f32(c, stride, loops, loop_count, results);
    } else {
      inputs_t in = make_inputs(c, is_f64, count / 100000 + 1);
      for (size_t m = 0; m < loop_count; m++) results[m] = sweep(c, loops[m], &in);
      free_inputs(&in);
    }
    for (size_t m = 0; m < loop_count; m++) {
      const result_t* r = &results[m];
      printf("%s %s %s: %.4f ulp at (%a, %a, %a): %La for %La\n", having[m]->name, c->name,
             is_f64 ? "f64" : "f32", r->worst, r->argument[0], r->argument[1], r->argument[2],
             r->got, r->exact);
    }
    fflush(stdout);
  }
  for (size_t m = 0; m < mode_count; m++) prelude_free(built[m]);
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--measure") == 0) return measure(argc, argv);
  static struct CMUnitTest tests[2 * CASE_COUNT];
  static char names[2 * CASE_COUNT][24];
  for (size_t i = 0; i < 2 * CASE_COUNT; i++) {
    const case_t* c = &CASES[i / 2];
    snprintf(names[i], sizeof(names[i]), "%s_%s", c->name, i % 2 == 0 ? "f32" : "f64");
    // cmocka hands the state on untouched.
    void* state = NULL;
    memcpy(&state, &c, sizeof(state));
    tests[i] = (struct CMUnitTest){names[i], i % 2 == 0 ? test_f32 : test_f64, NULL, NULL, state};
  }
  return cmocka_run_group_tests(tests, build_all, free_all);
}
