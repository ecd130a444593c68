// SPDX-License-Identifier: Apache-2.0
// tests/unit/nvrtc/test_wide.c: tests that NVRTC emits one access for elements that a thread moves
// together, in the PTX of three architectures.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka.h needs those above.
#include <cmocka.h>

#include "tests/unit/nvrtc/support_nvrtc.h"

static const struct {
  const char* text;
  const char* lanes;  // of 16 bytes
} rows[] = {
    {"func f(a: f32, x: f32[n], inout y: f32[n]) { parallel i in 0..n {"
     " y[i] = a * x[i] + y[i]; } }",
     "v4"},
    {"func f(x: f16[n], out y: f16[n]) { parallel i in 0..n { y[i] = x[i] * x[i]; } }", "v4"},
    {"func f(x: f64[n], out y: f64[n]) { parallel i in 0..n { y[i] = x[i] * x[i]; } }", "v2"},
    {"func f(x: f32[n, m], out y: f32[n, m]) { parallel i in 0..n {"
     " let most = max j in 0..m { x[i, j] };"
     " let s = sum j in 0..m { exp(x[i, j] - most) };"
     " parallel j in 0..m { y[i, j] = exp(x[i, j] - most) / s; } } }",
     "v4"},
};

// "ld.global.v4.", or by the way of what nobody writes, "ld.global.nc.v4.".
static bool has_access(const char* ptx, const char* kind, const char* lanes) {
  char plain[64], constant[64];
  (void)snprintf(plain, sizeof plain, "%s.global.%s.", kind, lanes);
  (void)snprintf(constant, sizeof constant, "%s.global.nc.%s.", kind, lanes);
  bool is_there = strstr(ptx, plain) || strstr(ptx, constant);
  if (!is_there) (void)fprintf(stderr, "no '%s' in\n%s\n", plain, ptx);
  return is_there;
}

static void accesses_are_wide(void** state) {
  (void)state;
  qn__nvrtc_t* nvrtc = nvrtc_or_null(qn_allocator_default());
  if (!nvrtc) skip();
  static const char* const archs[] = {"sm_80", "sm_90a", "sm_120"};
  for (size_t i = 0; i < QN_COUNT_OF(archs) * QN_COUNT_OF(rows); i++) {
    const char* arch = archs[i % QN_COUNT_OF(archs)];
    size_t row = i / QN_COUNT_OF(archs);
    char target[64];
    (void)snprintf(target, sizeof target, "cuda -arch=%s", arch);
    program_t program = program_make(rows[row].text, target, QN_TIER_FULL, false);
    qn__buffer_t out;
    qn__buffer_init(&out, qn_allocator_default());
    qn_status_t status = qn__nvrtc_emit(nvrtc, &program.request, "ptx", sink_of(&out));
    if (!qn_ok(status)) (void)fprintf(stderr, "%s\n", qn_status_message(status));
    assert_true(qn_ok(status));
    qn__buffer_u8(&out, 0);
    const char* ptx = (const char*)out.data;
    assert_true(has_access(ptx, "ld", rows[row].lanes));
    assert_true(has_access(ptx, "st", rows[row].lanes));
    assert_null(strstr(ptx, ".local."));  // arrays of a thread are registers
    qn__buffer_deinit(&out);
    program_release(&program);
  }
  qn__nvrtc_destroy(nvrtc);
}

int main(void) {
  nvrtc_use_build_folder();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accesses_are_wide),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
