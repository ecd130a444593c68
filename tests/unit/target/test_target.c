// SPDX-License-Identifier: Apache-2.0
// tests/unit/target/test_target.c: written forms, canonical form, errors, getters, memory faults.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "target/target.h"
#include "tests/support/fault.h"

static qn_target_t* parse(const char* text) {
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(text, &target);
  if (!qn_ok(status)) fail_msg("'%s': %s", text, qn_status_message(status));
  return target;
}

static void expect_json(const char* text, const char* json) {
  qn_target_t* target = parse(text);
  assert_string_equal(qn_target_json(target), json);
  qn_target_release(target);
}

static void expect_same(const char* a, const char* b) {
  qn_target_t* target = parse(a);
  qn_target_t* other = parse(b);
  assert_string_equal(qn_target_json(target), qn_target_json(other));
  assert_memory_equal(qn_target_digest(target), qn_target_digest(other), 16);
  qn_target_release(target);
  qn_target_release(other);
}

static void expect_error(const char* text, qn_status_code_t code, const char* part) {
  qn_target_t* target = (qn_target_t*)&target;  // must be cleared
  qn_status_t status = qn_target_parse(text, &target);
  if (qn_ok(status)) fail_msg("'%s' parses", text);
  if (qn_status_code(status) != code || !strstr(qn_status_message(status), part)) {
    fail_msg("'%s': %s: %s", text, qn_status_code_text(qn_status_code(status)),
             qn_status_message(status));
  }
  assert_null(target);
  qn_status_free(status);
}

#define V3_FEATURES                                                                   \
  "[\"avx\",\"avx2\",\"bmi\",\"bmi2\",\"cx16\",\"f16c\",\"fma\",\"lzcnt\",\"movbe\"," \
  "\"popcnt\",\"sahf\",\"sse\",\"sse2\",\"sse3\",\"sse4.1\",\"sse4.2\",\"ssse3\"]"
#define V3_JSON                                                                                \
  "{\"features\":" V3_FEATURES                                                                 \
  ",\"kind\":\"cpu\",\"l1_cache_bytes\":32768,"                                                \
  "\"l2_cache_bytes\":524288,\"mcpu\":\"x86-64-v3\",\"mtriple\":\"x86_64-unknown-linux-gnu\"," \
  "\"tune\":\"x86-64-v3\",\"vector_width\":256,\"warp_size\":32}"

static void test_canonical(void** state) {
  (void)state;
  expect_json("cpu -mcpu=x86-64-v3", V3_JSON);
  expect_json("{\"mcpu\": \"x86-64-v3\", \"kind\": \"cpu\"}", V3_JSON);
  expect_json("cpu/x86-64-v3", V3_JSON);
  expect_json(" {\"tag\": \"cpu/x86-64-v3\"} ", V3_JSON);
  expect_json("  cpu\n -mcpu='x86-64-v3'\t--mtriple=x86_64-pc-linux-gnu", V3_JSON);
}

static void test_fixed_points(void** state) {
  (void)state;
  static const char* const texts[] = {
      "cpu",
      "cpu -mcpu=native",
      "interp",
      "interp -warp_size=8",
      "null",
      "cuda",
      "cuda -arch=sm_90a -host=cpu",
      "cuda -host='cpu -mcpu=x86-64-v4 -mattr=-avx512vl'",
      "{\"kind\": \"vulkan\", \"supports_float16\": true, \"host\": {\"kind\": \"interp\"}}",
      "vulkan -supports_int8 -supports_int64=false",
      "cpu -mtriple=aarch64 -mattr=+sve2",
      "cpu -mcpu=neoverse-v1",
      "cpu -features= -mtriple=x86_64",
      "cpu -features=avx512fp16 -mcpu=x86-64 -tune=znver4",
      "cpu -vector_width=128",
      "nvidia/h200 -max_threads_per_block=512",
  };
  for (size_t i = 0; i < QN_COUNT_OF(texts); ++i) {
    qn_target_t* target = parse(texts[i]);
    expect_json(qn_target_json(target), qn_target_json(target));
    assert_null(strstr(qn_target_json(target), "native"));
    assert_null(strstr(qn_target_json(target), "mattr"));
    qn_target_release(target);
  }
  const char *name, *json;
  size_t count = 0;
  for (; qn_target_tag_at(count, &name, &json); ++count) {
    expect_same(name, json);
    qn_target_t* target = parse(name);
    expect_json(qn_target_json(target), qn_target_json(target));
    qn_target_release(target);
  }
  assert_true(count >= 10);
  assert_null(name);
}

static void test_models(void** state) {
  (void)state;
  // Every processor of every table makes a target, and says the same when named by its extensions.
  const qn__target_arch_t* arch;
  for (size_t a = 0; (arch = qn__arch_at(a)) != NULL; ++a) {
    for (size_t i = 0; i < arch->cpu_count; ++i) {
      char text[128];
      (void)snprintf(text, sizeof text, "cpu -mtriple=%s -mcpu=%s", arch->name, arch->cpus[i].name);
      qn_target_t* target = parse(text);
      assert_true(target->features.bits != 0);
      expect_json(qn_target_json(target), qn_target_json(target));
      (void)snprintf(text, sizeof text, "cpu -mcpu=%s", arch->cpus[i].name);
      expect_json(text, qn_target_json(target));
      qn_target_release(target);
    }
  }
}

static void test_mattr(void** state) {
  (void)state;
  expect_same("cpu -mcpu=x86-64-v3 -mattr=+avx512f,-avx512f", "cpu -mcpu=x86-64-v3");
  // Taking away takes what needs it, adding brings what it needs, and the later word wins.
  qn_target_t* target = parse("cpu -mcpu=x86-64-v4 -mattr=-avx2,+fma");
  assert_false(qn__features_has(target->arch, target->features, "avx512f"));
  assert_false(qn__features_has(target->arch, target->features, "avx2"));
  assert_true(qn__features_has(target->arch, target->features, "fma"));
  assert_int_equal(qn__target_vector_bytes(target), 32);
  assert_false(qn__target_has_masked_memory(target));
  qn_target_release(target);
  target = parse("cpu -mcpu=x86-64 -mattr=+avx512fp16");
  assert_true(qn__features_has(target->arch, target->features, "avx512dq"));
  assert_int_equal(qn__target_vector_bytes(target), 64);
  assert_true(qn__target_has_masked_memory(target));
  qn_target_release(target);
  target = parse("cpu -mcpu=icelake-server");
  assert_int_equal(qn__target_wide_multiplies(target), 2);
  qn_target_release(target);
  target = parse("cpu -mcpu=icelake-server -tune=znver4");
  assert_int_equal(qn__target_wide_multiplies(target), 1);
  qn_target_release(target);
  target = parse("cpu -mcpu=skylake-avx512");
  assert_int_equal(qn__target_vector_bytes(target), 32);
  qn_target_release(target);
}

static void test_getters(void** state) {
  (void)state;
  qn_target_t* target = parse("vulkan -supports_int8 -host=cpu -warp_size=64");
  int64_t number = 0;
  bool flag = false;
  const char* text = NULL;
  assert_string_equal(qn_target_kind(target), "vulkan");
  assert_true(qn_target_get_int(target, "warp_size", &number));
  assert_int_equal(number, 64);
  assert_true(qn_target_get_bool(target, "supports_int8", &flag) && flag);
  assert_true(qn_target_get_bool(target, "supports_float64", &flag) && !flag);
  assert_true(qn_target_get_string(target, "api_version", &text));
  assert_string_equal(text, "1.2");
  assert_false(qn_target_get_bool(target, "warp_size", &flag));
  assert_false(qn_target_get_int(target, "nothing", &number));
  assert_false(qn_target_get_string(target, NULL, &text));
  assert_string_equal(qn_target_kind(qn_target_host(target)), "cpu");
  assert_null(qn_target_host(qn_target_host(target)));
  qn_target_retain(target);
  qn_target_release(target);
  assert_string_equal(qn_target_kind(target), "vulkan");
  qn_target_release(target);
  qn_target_release(NULL);
  target = parse("cpu -mattr=-avx");
  assert_false(qn_target_get_string(target, "mattr", &text));
  qn_target_release(target);
}

static void test_layers(void** state) {
  (void)state;
  // The user's values win over the tag's and the device's.
  expect_same("nvidia/h200 -arch=sm_80", "{\"tag\": \"nvidia/h200\", \"arch\": \"sm_80\"}");
  qn_target_t* target = parse("nvidia/h200 -arch=sm_80");
  const char* text;
  int64_t number;
  assert_true(qn_target_get_string(target, "arch", &text));
  assert_string_equal(text, "sm_80");
  assert_true(qn_target_get_int(target, "multiprocessors", &number));
  assert_int_equal(number, 132);
  qn_target_release(target);
  target = parse("cpu -from_device=0 -l1_cache_bytes=4096");
  assert_true(qn_target_get_int(target, "l1_cache_bytes", &number));
  assert_int_equal(number, 4096);
  qn__target_host_caches_t caches = qn__host_caches();
  assert_true(qn_target_get_int(target, "l2_cache_bytes", &number));
  assert_int_equal(number, caches.l2_bytes > 0 ? caches.l2_bytes : 524288);
  qn_target_release(target);
}

static void test_syntax_errors(void** state) {
  (void)state;
  expect_error("", QN_STATUS_SYNTAX, "line 1, column 1: the text is empty");
  expect_error(" \n ", QN_STATUS_SYNTAX, "the text is empty");
  expect_error("-mcpu=znver3", QN_STATUS_SYNTAX, "line 1, column 1: expected a kind or a tag");
  expect_error("cpu mcpu=znver3", QN_STATUS_SYNTAX, "line 1, column 5: expected an option");
  expect_error("cpu\n  -mcpu", QN_STATUS_SYNTAX, "line 2, column 3: the option needs a value");
  expect_error("cpu -", QN_STATUS_SYNTAX, "expected an option");
  expect_error("cpu -mcpu='znver3", QN_STATUS_SYNTAX, "line 1, column 11: the quote is not closed");
  expect_error("{\"kind\": \"cpu\",\n \"mcpu\": }", QN_STATUS_SYNTAX, "line 2, column 10");
  expect_error("{\"kind\": \"cpu\"} x", QN_STATUS_SYNTAX, "line 1");
  expect_error("{\"kind\": \"cpu\", \"mcpu\": \"a\", \"mcpu\": \"b\"}", QN_STATUS_SYNTAX,
               "duplicate");
  expect_error("{", QN_STATUS_SYNTAX, "line 1");
}

static void test_wrong_names(void** state) {
  (void)state;
  expect_error("cpuu", QN_STATUS_NOT_FOUND, "did you mean 'cpu'?");
  expect_error("nvidia/h20", QN_STATUS_NOT_FOUND, "did you mean 'nvidia/h200'?");
  expect_error("quantum-annealer", QN_STATUS_NOT_FOUND, "kinds are cpu");
  expect_error("{\"kind\": \"vulcan\"}", QN_STATUS_NOT_FOUND, "did you mean 'vulkan'?");
  expect_error("{\"tag\": \"cpu\"}", QN_STATUS_NOT_FOUND, "no target kind or tag");
  expect_error("cpu -mpcu=znver3", QN_STATUS_INVALID_ARGUMENT,
               "target kind 'cpu' has no option 'mpcu'; did you mean 'mcpu'?");
  expect_error("{\"kind\": \"cpu\", \"vector_widht\": 256}", QN_STATUS_INVALID_ARGUMENT,
               "did you mean 'vector_width'?");
  expect_error("{\"kind\": \"cpu\", \"\": 256}", QN_STATUS_INVALID_ARGUMENT, "has no option ''");
  expect_error("interp -mcpu=znver3", QN_STATUS_INVALID_ARGUMENT, "has no option 'mcpu'");
  expect_error("cpu -mcpu=znver33", QN_STATUS_INVALID_ARGUMENT, "did you mean 'znver3'?");
  expect_error("cpu -mtriple=x86_64 -mcpu=neoverse-n1", QN_STATUS_INVALID_ARGUMENT,
               "'neoverse-n1' is a processor of aarch64, but the target is x86_64");
  expect_error("cpu -mtriple=riscv64", QN_STATUS_INVALID_ARGUMENT, "there are x86_64 and aarch64");
  expect_error("cpu -mtriple=x86_64-pc-windows", QN_STATUS_INVALID_ARGUMENT, "not a Linux triple");
  expect_error("cpu -mcpu=x86-64 -mattr=+avx22", QN_STATUS_INVALID_ARGUMENT,
               "did you mean 'avx2'?");
  expect_error("cpu -mattr=avx2", QN_STATUS_INVALID_ARGUMENT, "begins with neither + nor -");
  expect_error("cpu -mcpu=x86-64 -mattr=-sse2", QN_STATUS_INVALID_ARGUMENT, "cannot be taken away");
  // What only tunes is not an extension.
  expect_error("cpu -mcpu=x86-64 -mattr=+prefer-256-bit", QN_STATUS_INVALID_ARGUMENT,
               "no extension 'prefer-256-bit'");
}

static void test_wrong_values(void** state) {
  (void)state;
  expect_error("cpu -vector_width=wide", QN_STATUS_INVALID_ARGUMENT,
               "takes an integer, not 'wide'");
  expect_error("cpu -vector_width=300", QN_STATUS_INVALID_ARGUMENT, "takes 128, 256 or 512");
  expect_error("cpu -vector_width=1024", QN_STATUS_INVALID_ARGUMENT, "takes 0 to 512, not 1024");
  expect_error("cpu -vector_width=99999999999999999999", QN_STATUS_INVALID_ARGUMENT, "an integer");
  expect_error("cpu -vector_width=-", QN_STATUS_INVALID_ARGUMENT, "an integer");
  expect_error("cpu -mattr=+avx,,-fma", QN_STATUS_INVALID_ARGUMENT, "a list of strings");
  expect_error("{\"kind\": \"cpu\", \"mcpu\": 3}", QN_STATUS_INVALID_ARGUMENT,
               "option 'mcpu' takes a string, not an integer");
  expect_error("{\"kind\": \"cpu\", \"vector_width\": \"256\"}", QN_STATUS_INVALID_ARGUMENT,
               "takes an integer, not a string");
  expect_error("{\"kind\": \"cpu\", \"vector_width\": 2.5}", QN_STATUS_INVALID_ARGUMENT,
               "not a real number");
  expect_error("{\"kind\": \"cpu\", \"mattr\": [\"+avx\", null]}", QN_STATUS_INVALID_ARGUMENT,
               "takes a list of strings, not null");
  expect_error("{\"kind\": \"cpu\", \"mattr\": \"+avx\"}", QN_STATUS_INVALID_ARGUMENT, "a list");
  expect_error("{\"kind\": \"vulkan\", \"supports_int8\": 1}", QN_STATUS_INVALID_ARGUMENT,
               "takes a boolean, not an integer");
  expect_error("vulkan -supports_int8=maybe", QN_STATUS_INVALID_ARGUMENT, "a boolean, not 'maybe'");
  expect_error("vulkan -api_version=one", QN_STATUS_INVALID_ARGUMENT, "a version such as 1.3");
  expect_error("cuda -arch=hopper", QN_STATUS_INVALID_ARGUMENT, "such as sm_90a, not 'hopper'");
  expect_error("cuda -arch=sm_", QN_STATUS_INVALID_ARGUMENT, "not 'sm_'");
  expect_error("cpu -mcpu=znver3 -mcpu=znver4", QN_STATUS_INVALID_ARGUMENT,
               "option 'mcpu' is given twice");
  expect_error("{\"mcpu\": \"znver3\"}", QN_STATUS_INVALID_ARGUMENT, "either \"kind\" or \"tag\"");
  expect_error("{\"kind\": \"cpu\", \"tag\": \"nvidia/a100\"}", QN_STATUS_INVALID_ARGUMENT,
               "not both");
  expect_error("{\"kind\": 1}", QN_STATUS_INVALID_ARGUMENT, "option 'kind' takes a string");
  assert_non_null(qn_target_kind_at(0));
}

static void test_host_and_device_errors(void** state) {
  (void)state;
  expect_error("cuda -host=cuda", QN_STATUS_INVALID_ARGUMENT, "must be of kind cpu or interp");
  expect_error("cuda -host=cpu -host=cpu", QN_STATUS_INVALID_ARGUMENT, "'host' is given twice");
  expect_error("cuda -host='cpu -host=cpu'", QN_STATUS_INVALID_ARGUMENT, "no host of its own");
  expect_error("{\"kind\": \"cuda\", \"host\": {\"kind\": \"cpu\", \"host\": \"cpu\"}}",
               QN_STATUS_INVALID_ARGUMENT, "host: a host has no host of its own");
  expect_error("{\"kind\": \"cuda\", \"host\": 5}", QN_STATUS_INVALID_ARGUMENT,
               "takes an object or a string");
  expect_error("cpu -from_device=7", QN_STATUS_UNAVAILABLE, "no device 7 of kind 'cpu'");
  expect_error("cuda -from_device=0", QN_STATUS_UNAVAILABLE,
               "no driver for devices of kind 'cuda'");
  expect_error("vulkan -from_device=0", QN_STATUS_UNAVAILABLE, "kind 'vulkan'");
  expect_error("cpu -from_device=x", QN_STATUS_INVALID_ARGUMENT, "takes an integer, not 'x'");
  expect_error("cpu -from_device=-1", QN_STATUS_INVALID_ARGUMENT, "from 0, not -1");
  expect_error("{\"kind\": \"cpu\", \"from_device\": \"0\"}", QN_STATUS_INVALID_ARGUMENT,
               "takes an integer");
  qn_target_t* target;
  qn_status_t status = qn_target_parse(NULL, &target);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  char* big = malloc(70000);
  assert_non_null(big);
  memset(big, 'x', 69999);
  big[69999] = '\0';
  expect_error(big, QN_STATUS_INVALID_ARGUMENT, "beyond the limit");
  big[1000] = '\0';
  expect_error(big, QN_STATUS_NOT_FOUND, "no target kind or tag");
  free(big);
}

static void test_tables(void** state) {
  (void)state;
  assert_int_equal(qn_target_kind_count(), QN__KIND_COUNT);
  assert_null(qn_target_kind_at(QN__KIND_COUNT));
  for (size_t i = 0; i < qn_target_kind_count(); ++i) {
    const qn_target_kind_info_t* info = qn_target_kind_at(i);
    for (size_t k = 0; k < info->option_count; ++k) {
      assert_true(k == 0 || strcmp(info->options[k - 1].name, info->options[k].name) < 0);
      assert_true(strlen(info->options[k].doc) > 5);
    }
    // A bare kind is a target.
    qn_target_t* target = parse(info->name);
    assert_string_equal(qn_target_kind(target), info->name);
    qn_target_release(target);
  }
}

typedef struct walk {
  const char* text;
} walk_t;

static bool parse_with(qn_allocator_t allocator, void* user) {
  const walk_t* walk = user;
  qn_target_t* target = NULL;
  qn_status_t status = qn__target_parse(qn__str(walk->text), allocator, &target);
  if (qn_ok(status)) {
    qn_target_release(target);
    return true;
  }
  return target == NULL && qn_status_consume(status) == QN_STATUS_OUT_OF_MEMORY;
}

static void test_out_of_memory(void** state) {
  (void)state;
  walk_t walks[] = {
      {"cpu -mcpu=x86-64-v4 -mattr=-avx512f,+avx2 -tune=znver3"},
      {"{\"kind\": \"cuda\", \"arch\": \"sm_90\", \"host\": \"cpu -mattr=+avx\"}"},
      {"nvidia/h200 -host=interp"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(walks); ++i) {
    assert_true(qn_fault_walk_alloc(parse_with, &walks[i]) > 2);
  }
}

// What a message says of a target: kind and processor.
static void test_brief(void** state) {
  (void)state;
  static const struct {
    const char* text;
    const char* brief;
  } rows[] = {
      {"cpu -mcpu=x86-64-v3 -mattr=+avx512f", "cpu x86-64-v3"},
      {"cuda -arch=sm_90a", "cuda sm_90a"},
      {"vulkan", "vulkan"},
      {"interp", "interp"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(rows); ++i) {
    qn_target_t* target = parse(rows[i].text);
    assert_string_equal(qn__target_brief(target).text, rows[i].brief);
    qn_target_release(target);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_canonical),     cmocka_unit_test(test_fixed_points),
      cmocka_unit_test(test_models),        cmocka_unit_test(test_mattr),
      cmocka_unit_test(test_getters),       cmocka_unit_test(test_layers),
      cmocka_unit_test(test_syntax_errors), cmocka_unit_test(test_wrong_names),
      cmocka_unit_test(test_wrong_values),  cmocka_unit_test(test_host_and_device_errors),
      cmocka_unit_test(test_tables),        cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_brief),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
