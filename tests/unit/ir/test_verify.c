// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_verify.c: every rule of the verifier: programs that break it, with the code
// and the message, and neighbours that keep it.
//
// Not here: races and divergence (test_verify_flow.c), broken trees that no text gives
// (test_verify_tree.c), how messages look (tests/diagnostics).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "tests/unit/ir/support_verify.h"

#define LOOP_I(body) \
  "func f(x: f32[n], out y: f32[n], inout z: i32[n]) { for i in 0..n { " body " } }"
#define GRID(body)                                                                         \
  "func f(x: f32[n], out y: f32[n], inout z: i32[n]) { block.x b in 0..n { thread.x t in " \
  "0..32 { " body " } } }"

static const qn_verify_case_t parameters[] = {
    {"func f(x: f32[n * n]) {}", "QN0212",
     "symbol 'n' cannot be bound: it stands alone in no shape, and no extent can be solved for it"},
    {"func f(x: f32[n + 1]) {}", NULL, NULL},
    {"func f(x: f32[2 * (3 - n) - n]) {}", NULL, NULL},
    {"func f(x: f32[n + n // 2]) {}", "QN0212", "symbol 'n'"},
    {"func f(x: f32[n - n + 1]) {}", "QN0212", "symbol 'n'"},
    {"func f(x: f32[n + m], y: f32[n - m]) {}", "QN0212", "symbol 'm'"},
    {"func f(x: f32[n + m], y: f32[2 * m]) {}", NULL, NULL},
    {"func f(x: f32[n + m * m], y: f32[m + k], k: i32) {}", NULL, NULL},
    {"func f(k: i64, x: f32[k * n]) {}", "QN0212", "symbol 'n'"},
    {"func f(x: f32[4] strides [2 * n]) {}", "QN0212", "symbol 'n'"},
    {"func f(x: f32[n * m], y: f32[n]) {}", "QN0212", "symbol 'm'"},
    {"func f(x: f32[n * m], y: f32[n, m]) {}", NULL, NULL},
    {"func f(x: f32[2] strides [s]) {}", NULL, NULL},
    {"func f(x: f32[k], k: i64) {}", NULL, NULL},
    {"func f(x: f32[i64(k)], k: i32) {}", NULL, NULL},
    {"func f(x: f32[k], k: i32) {}", NULL, NULL},
    {"func f(x: f32[-1]) {}", "QN0211", "extent 0 is -1, less than 0"},
    {"func f(x: f32[2, 3 - 5]) {}", "QN0211", "extent 1 is -2"},
    {"func f(x: f32[2] strides [-1]) {}", "QN0211", "stride 0 is -1"},
    {"func f(x: f32[0]) {}", NULL, NULL},
    {"func f(x: i64[n], y: f32[x[0]]) {}", "QN0", ""},
    {"func f(x: f32[n], y: f32[sum k in 0..n { k }]) {}", "QN0211",
     "more than symbols and scalars"},
};

static const qn_verify_case_t writes[] = {
    {LOOP_I("x[i] = 1.0;"), "QN0214", "'x' is an 'in' parameter and cannot be written to"},
    {LOOP_I("view v: f32[n] = x[0]; v[i] = 1.0;"), "QN0214", "'x' is an 'in' parameter"},
    {LOOP_I("view v: f32[n] = y[0]; v[i] = 1.0;"), NULL, NULL},
    {LOOP_I("const c: f32[1] = [1.0]; c[0] = 1.0;"), "QN0214", "'c' is a constant table"},
    {"func f(x: i32[n]) { for i in 0..n { atomic_add(x[i], 1); } }", "QN0214", "'x'"},
    {LOOP_I("atomic_add(z[i], 1); atomic_xor(z[i], 1);"), NULL, NULL},
    {LOOP_I("atomic_add(y[i], 1.0);"), NULL, NULL},
    {LOOP_I("atomic_max(y[i], 1.0); atomic_exchange(y[i], 1.0);"), NULL, NULL},
    {LOOP_I("atomic_cas(y[i], 1.0, 2.0);"), "QN0215",
     "'atomic_cas' on 'y' of f32; it exists for integers"},
    {"func f(inout x: bool[2]) { atomic_add(x[0], true); }", "QN0215",
     "bool; it exists for integers and floats"},
    {"func f(inout x: u8[2], inout y: f16[2]) { atomic_or(x[0], 1); atomic_add(y[0], 1.0); }", NULL,
     NULL},
    {LOOP_I("fence;"), "QN0233", "a fence outside of every thread loop"},
    {LOOP_I("let o = atomic_load(z[i]);"), "QN0233", "atomic_load outside of every thread loop"},
    {LOOP_I("atomic_store(z[i], 1);"), "QN0233", "atomic_store outside of every thread loop"},
};

static const qn_verify_case_t loops[] = {
    {LOOP_I("vector l in 0..n { z[l] = 1; }"), "QN0218",
     "a bound of 'vector' must be constant: set n"},
    {LOOP_I("vector l in i..4 { z[l] = 1; }"), "QN0218", "'vector'"},
    {LOOP_I("vector l in 0..1024 { z[l] = 1; }"), NULL, NULL},
    {LOOP_I("vector l in 0..1025 { z[l] = 1; }"), "QN0218", "more than 1024 iterations"},
    {LOOP_I("vector l in 1..8 * 4 - 1 { z[l] = 1; }"), NULL, NULL},
    {LOOP_I("unroll l in 0..4096 { z[l] = 1; }"), NULL, NULL},
    {LOOP_I("unroll l in 0..4097 { z[l] = 1; }"), "QN0218", "more than 4096 iterations"},
    {LOOP_I("unroll l in -0x7fff_ffff_ffff_ffff..0x7fff_ffff_ffff_ffff { z[l] = 1; }"), "QN0218",
     "more than 4096"},
    {LOOP_I("block.x b in 0..n { } unroll u in 0..3 { block.x b in u..i { } }"), NULL, NULL},
    {LOOP_I("for j in 0..i64(z[i]) { block.x b in 0..n { } }"), "QN0217",
     "'block.x' inside of 'for' whose bounds are not known before the launch"},
    {LOOP_I("let m = i * 2; for j in i..m { block.x b in 0..j { thread.x t in 0..m { } } }"), NULL,
     NULL},
    {"func f() { parallel i in 0..4 { for j in 0..i { block.x b in 0..2 { } } } }", "QN0217",
     "'block.x' inside of 'for' whose bounds are not known"},
    {"func f() { parallel i in 0..4 { for j in 0..2 { block.x b in 0..2 { } } } }", "QN0217",
     "'block.x' inside of 'parallel'"},
    {LOOP_I("block.x b in 0..n { } if i > 3 { break; }"), "QN0217",
     "'block.x' inside of 'for' that a 'break', 'continue' or 'return' leaves"},
    {LOOP_I("if i > 3 { break; } thread.x t in 0..i { }"), "QN0219", "the extent of 'thread.x'"},
    {"func f() { while true { block.x b in 0..2 { } } }", "QN0217", "'block.x' inside of 'while'"},
    {"func f(n: i64) { if n > 0 { block.x b in 0..n { } } }", NULL, NULL},
    {GRID("block.y c in 0..2 { }"), "QN0217", "'block.y' inside of 'thread.x'"},
    {GRID("thread.x u in 0..2 { }"), "QN0217", "'thread.x' inside another 'thread.x'"},
    {GRID("thread.y u in 0..2 { }"), NULL, NULL},
    {"func f() { block.x a in 0..2 { block.x b in 0..2 { } } }", "QN0217",
     "inside another 'block.x'"},
    {"func f() { block.z a in 0..2 { block.x b in 0..2 { block.y c in 0..2 { } } } }", NULL, NULL},
    {"func f(out y: f32[2]) { block.y a in 0..2 { y[a] = 1.0; block.x b in 0..2 { } } }", "QN0217",
     "a block loop that holds another one may hold only lets"},
    {"func f() { block.y a in 0..2 { block.x b in 0..2 { } block.z c in 0..2 { } } }", "QN0217",
     "a block loop that holds another one"},
    {"func f(n: i64) { block.y a in 0..2 { let m = n * 2; block.x b in 0..m { } } }", NULL, NULL},
    {"func f() { block.y a in 0..2 { block.x b in 0..a { } } }", "QN0219",
     "the extent of 'block.x' is not known before the launch"},
    {GRID("thread.y u in 0..t { }"), "QN0219", "the extent of 'thread.y'"},
    {"func f(k: i64[n]) { let m = k[0]; block.x b in 0..m { } }", "QN0219", "'block.x'"},
    {"func f(out y: f32[8]) { thread.x t in 0..8 { y[t] = 1.0; } }", NULL, NULL},
    {"func f() { parallel i in 0..8 { parallel j in 0..8 { } } }", NULL, NULL},
    {LOOP_I("vector l in 0..4 { thread.x t in 0..4 { } }"), "QN0217",
     "'thread.x' inside of 'vector'"},
};

static const qn_verify_case_t allocations[] = {
    {LOOP_I("alloc a: f32[n] in local;"), "QN0224", "the shape of 'a' in local must be constant"},
    {LOOP_I("alloc a: f32[16384] in local;"), NULL, NULL},
    {LOOP_I("alloc a: f32[16385] in local;"), "QN0225",
     "exceeds the limit of 65536 bytes per thread"},
    {LOOP_I("alloc a: f32[16384] in local; alloc b: i8[1] in local;"), "QN0225", "'b' in local"},
    {LOOP_I("if i > 1 { alloc a: f32[16384] in local; } alloc b: f32[16384] in local;"), NULL,
     NULL},
    {LOOP_I("alloc a: f32[0] in local;"), "QN0225", "extent 0 of 'a' is 0, expected at least 1"},
    {LOOP_I("alloc a: f32[0x1_0000_0000, 0x1_0000_0000, 4] in local;"), "QN0225",
     "too many elements"},
    {LOOP_I("alloc a: f64[0x2000_0000_0000_0000] in local;"), "QN0225", "exceeds the limit"},
    {LOOP_I("alloc a: f32[] in local; a[] = 1.0; y[i] = a[];"), NULL, NULL},
    {LOOP_I("alloc a: f32[2] in shared;"), "QN0223", "in shared outside of every block loop"},
    {GRID("alloc a: f32[2] in shared;"), "QN0223", "in shared inside of a thread loop"},
    {"func f() { block.x b in 0..2 { alloc a: f32[65536] in shared; } }", NULL, NULL},
    {"func f() { block.x b in 0..2 { alloc a: f32[65537] in shared; } }", "QN0225", "per block"},
    {"func f() { block.x b in 0..2 { parallel i in 0..2 { alloc a: f32[2] in shared; } } }",
     "QN0223", "inside of a loop whose iterations are concurrent"},
    {"func f(n: i64) { block.x b in 0..2 { alloc a: f32[n] in shared; } }", "QN0224",
     "'a' in shared"},
    {"func f() { block.y a in 0..2 { alloc s: f32[2] in shared; block.x b in 0..2 { } } }",
     "QN0217", "a block loop that holds another one"},
    {LOOP_I("alloc a: f32[n] in global;"), "QN0223", "in global inside of another statement"},
    {"func f(n: i64) { if n > 1 { alloc a: f32[n] in global; } }", "QN0223", "in global"},
    {"func f(n: i64) { let m = n * 2; alloc a: f32[m, n + 1] in global; }", NULL, NULL},
    {"func f(k: i64[n]) { alloc a: f32[k[0]] in global; }", "QN0224",
     "the shape of 'a' is not known before the launch"},
    {LOOP_I("view v: u8[n] = x[0];"), "QN0227", "view 'v' is u8, 'x' is f32, which is larger"},
    {LOOP_I("view v: f32[n, 2] strides [3, 1] = x[i];"), NULL, NULL},
};

static const qn_verify_case_t meetings[] = {
    {"func f() { barrier; }", "QN0220", "a barrier outside of every thread loop"},
    {"func f() { block.x b in 0..2 { barrier; } }", "QN0220", "outside of every thread loop"},
    {GRID("barrier;"), NULL, NULL},
    {GRID("for k in 0..4 { barrier; }"), NULL, NULL},
    {GRID("fence; if t == 0 { fence; }"), NULL, NULL},
    {GRID("parallel k in 0..4 { fence; }"), "QN0220",
     "threads cannot synchronize inside of 'parallel'"},
    {GRID("parallel k in 0..4 { barrier; }"), "QN0220",
     "threads cannot synchronize inside of 'parallel'"},
    {GRID("vector k in 0..4 { barrier; }"), "QN0220",
     "threads cannot synchronize inside of 'vector'"},
    {GRID("thread.y u in 0..2 { } barrier;"), "QN0220", "there is another thread loop beside it"},
    {GRID("barrier; thread.y u in 0..2 { }"), "QN0220", "there is another thread loop beside it"},
    {GRID("thread.y u in 0..2 { barrier; }"), NULL, NULL},
    {LOOP_I("y[i] = warp_sum(x[i]);"), "QN0222", "there is no thread loop around it"},
    {LOOP_I("y[i] = shuffle(x[i], 0);"), "QN0222", "'shuffle'"},
    {GRID("y[b * 32 + t] = shuffle_up(x[t], 1) + block_sum(x[t]);"), NULL, NULL},
};

static void parameters_keep_the_rules(void** state) {
  (void)state;
  QN_VERIFY_CASES(parameters);
}
static void writes_keep_the_rules(void** state) {
  (void)state;
  QN_VERIFY_CASES(writes);
}
static void loops_keep_the_rules(void** state) {
  (void)state;
  QN_VERIFY_CASES(loops);
}
static void allocations_keep_the_rules(void** state) {
  (void)state;
  QN_VERIFY_CASES(allocations);
}
static void meetings_keep_the_rules(void** state) {
  (void)state;
  QN_VERIFY_CASES(meetings);
}

// The limit holds for the verifier as for the parser.
static void errors_are_limited(void** state) {
  (void)state;
  qn_parse_options_t options = {.struct_size = sizeof options, .error_limit = 2};
  const char text[] =
      "func f(x: f32[2]) { x[0] = 1.0; x[0] = 1.0; x[0] = 1.0; x[1] = 2.0; barrier; }";
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, sizeof text - 1, &options, &module);
  const char* message = qn_status_message(status);
  int count = 0;
  for (const char* at = message; (at = strstr(at, "error[")); at++) count++;
  assert_int_equal(count, 2);
  qn_status_free(status);
}

// Several functions: each is looked at, and their names differ.
static void every_function_is_checked(void** state) {
  (void)state;
  qn__expect_verify(&(qn_verify_case_t){"func f() {} func g() { barrier; }", "QN0220", ""});
  qn__expect_verify(
      &(qn_verify_case_t){"func f() { barrier; } func g() { barrier; }", "QN0220", ""});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_keep_the_rules), cmocka_unit_test(writes_keep_the_rules),
      cmocka_unit_test(loops_keep_the_rules),      cmocka_unit_test(allocations_keep_the_rules),
      cmocka_unit_test(meetings_keep_the_rules),   cmocka_unit_test(errors_are_limited),
      cmocka_unit_test(every_function_is_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
