// SPDX-License-Identifier: Apache-2.0
// tests/unit/target/test_devices.c: tests targets and devices: from_device, bare kinds, requirement
// checks and registered kinds, on devices invented by this file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "target/target.h"

// ---- two GPUs of kind cuda, one of kind vulkan, none of anything else

enum { DEVICE_OWN = 50 };
static int asked_count;
static int32_t cuda_count = 2;
static const char* odd_property;  // answered with a text where a number is due

static int32_t count(int32_t type) {
  if (type == QN_DEVICE_CUDA) return cuda_count;
  return type == QN_DEVICE_VULKAN || type == DEVICE_OWN ? 1 : 0;
}

static void answer_int(qn_attribute_value_t* out, int64_t value) {
  *out = (qn_attribute_value_t){.type = QN_ATTRIBUTE_TYPE_INT, .int_value = value};
}
static void answer_bool(qn_attribute_value_t* out, bool value) {
  *out = (qn_attribute_value_t){.type = QN_ATTRIBUTE_TYPE_BOOL, .int_value = value};
}
static void answer_text(qn_attribute_value_t* out, const char* text) {
  *out = (qn_attribute_value_t){.type = QN_ATTRIBUTE_TYPE_STRING};
  (void)snprintf(out->string_value, sizeof out->string_value, "%s", text);
}

static qn_status_t property(int32_t type, int32_t id, const char* name, qn_attribute_value_t* out) {
  asked_count++;
  if (odd_property && strcmp(name, odd_property) == 0) {
    answer_text(out, "odd");
  } else if (strcmp(name, "broken") == 0) {
    return qn_status_make(QN_STATUS_DEVICE_ERROR, "the driver is gone");
  } else if (strcmp(name, "max_threads_per_block") == 0) {
    answer_int(out, type == QN_DEVICE_VULKAN ? 256 : 4096);
  } else if (strcmp(name, "warp_size") == 0) {
    answer_int(out, type == QN_DEVICE_VULKAN ? 8 : 32);
  } else if (strcmp(name, "arch") == 0) {
    answer_text(out, id == 0 ? "sm_90a" : "sm_86");
  } else if (strcmp(name, "max_shared_memory_per_block") == 0) {
    answer_int(out, 101376);
  } else if (strcmp(name, "multiprocessors") == 0) {
    answer_int(out, 132);
  } else if (strcmp(name, "api_version") == 0) {
    answer_text(out, "1.3");
  } else if (strcmp(name, "spirv_version") == 0) {
    answer_text(out, "1.6");
  } else if (strcmp(name, "supports_int8") == 0 || strcmp(name, "supports_subgroup_shuffle") == 0) {
    answer_bool(out, true);
  } else if (strcmp(name, "supports_float64") == 0) {
    answer_bool(out, false);
  } else if (strcmp(name, "units") == 0) {
    answer_text(out, "alpha,beta,gamma");
  } else if (strncmp(name, "max_", 4) == 0) {
    answer_int(out, 1024);
  }
  return QN_OK;
}

const qn__target_device_source_t qn__device_source = {count, property, NULL};

// ---- helpers

static qn_target_t* parse(const char* text) {
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(text, &target);
  if (!qn_ok(status)) fail_msg("'%s': %s", text, qn_status_message(status));
  return target;
}

static void expect_error(const char* text, qn_status_code_t code, const char* part) {
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(text, &target);
  if (qn_ok(status)) fail_msg("'%s' parses", text);
  if (qn_status_code(status) != code || !strstr(qn_status_message(status), part)) {
    fail_msg("'%s': %s", text, qn_status_message(status));
  }
  qn_status_free(status);
}

static void expect_int(const char* text, const char* name, int64_t expected) {
  int64_t number = -1;
  qn_target_t* target = parse(text);
  assert_true(qn_target_get_int(target, name, &number));
  if (number != expected) fail_msg("'%s': %s is %lld", text, name, (long long)number);
  qn_target_release(target);
}

static void expect_text(const char* text, const char* name, const char* expected) {
  const char* value = NULL;
  qn_target_t* target = parse(text);
  assert_true(qn_target_get_string(target, name, &value));
  assert_string_equal(value, expected);
  qn_target_release(target);
}

// ---- tests

static void test_from_device(void** state) {
  (void)state;
  expect_text("cuda -from_device=0", "arch", "sm_90a");
  expect_text("cuda -from_device=1", "arch", "sm_86");
  expect_int("cuda -from_device=0", "multiprocessors", 132);
  // A most beyond what the option takes is cut; what the device does not say is the default.
  expect_int("cuda -from_device=0", "max_threads_per_block", 1024);
  expect_int("cuda -from_device=0", "registers_per_block", 65536);
  expect_int("vulkan -from_device=0", "warp_size", 8);
  expect_text("vulkan -from_device=0", "spirv_version", "1.6");
  // The user's own values win, and so do a tag's.
  expect_text("cuda -from_device=0 -arch=sm_80", "arch", "sm_80");
  expect_int("cuda -from_device=0 -arch=sm_80", "multiprocessors", 132);
  expect_text("nvidia/l4 -from_device=0", "arch", "sm_89");
  expect_error("cuda -from_device=2", QN_STATUS_UNAVAILABLE, "no device 2 of kind 'cuda'");
  expect_error("vulkan -from_device=1", QN_STATUS_UNAVAILABLE, "which has 1");
  odd_property = "multiprocessors";
  expect_error("cuda -from_device=0", QN_STATUS_DEVICE_ERROR, "'multiprocessors'");
  odd_property = NULL;
}

static void test_bare(void** state) {
  (void)state;
  expect_text("cuda", "arch", "sm_90a");
  expect_text("{\"kind\": \"cuda\"}", "arch", "sm_90a");
  expect_int("vulkan", "warp_size", 8);
  // Any option makes it a description: no device is asked.
  asked_count = 0;
  expect_text("cuda -max_threads_per_block=512", "arch", "sm_80");
  expect_text("cuda -host=interp", "arch", "sm_80");
  expect_text("nvidia/a100", "arch", "sm_80");
  expect_int("cpu", "l1_cache_bytes", 32768);
  expect_int("interp", "warp_size", 32);
  assert_int_equal(asked_count, 0);
  // The canonical form is a description, too.
  qn_target_t* target = parse("cuda");
  int before = asked_count;
  qn_target_t* again = parse(qn_target_json(target));
  assert_string_equal(qn_target_json(target), qn_target_json(again));
  assert_int_equal(asked_count, before);
  qn_target_release(again);
  qn_target_release(target);
  // Without a device it is the table's defaults.
  cuda_count = 0;
  expect_text("cuda", "arch", "sm_80");
  cuda_count = 2;
}

static void test_index_bits(void** state) {
  (void)state;
  expect_int("cuda -index_bits=32", "index_bits", 32);
  expect_int("vulkan -index_bits=64", "index_bits", 64);
  expect_int("vulkan", "index_bits", 0);
  expect_error("cuda -index_bits=16", QN_STATUS_INVALID_ARGUMENT, "0, 32 or 64, not 16");
}

static qn_status_t ask_cuda(int32_t id, const char* name, qn_attribute_value_t* out) {
  return property(QN_DEVICE_CUDA, id, name, out);
}
static qn_status_t ask_vulkan(int32_t id, const char* name, qn_attribute_value_t* out) {
  return property(QN_DEVICE_VULKAN, id, name, out);
}

static void check_needs(const char* text, const char* kind, int32_t id,
                        qn__target_property_fn_t ask, const char* missing) {
  qn_target_t* target = parse(text);
  qn_status_t status = qn__isa_json_check_device(qn__target_isa_json(target), kind, id, ask);
  if (!missing && !qn_ok(status)) fail_msg("'%s': %s", text, qn_status_message(status));
  if (missing) {
    assert_int_equal(qn_status_code(status), QN_STATUS_INCOMPATIBLE);
    if (!strstr(qn_status_message(status), missing)) fail_msg("%s", qn_status_message(status));
  }
  qn_status_free(status);
  qn_target_release(target);
}

static void test_checks(void** state) {
  (void)state;
  static const struct {
    const char* arch;
    bool is_good[2];  // on sm_90 and on sm_86
  } arches[] = {{"sm_90a", {true, false}}, {"sm_90", {true, false}},    {"sm_80", {false, true}},
                {"sm_86", {false, true}},  {"sm_89", {false, false}},   {"sm_80a", {false, false}},
                {"sm_90f", {true, false}}, {"sm_100f", {false, false}}, {"sm_120", {false, false}}};
  for (size_t i = 0; i < QN_COUNT_OF(arches); i++) {
    for (int32_t id = 0; id < 2; id++) {
      char text[64];
      (void)snprintf(text, sizeof text, "cuda -arch=%s", arches[i].arch);
      check_needs(text, "cuda", id, ask_cuda, arches[i].is_good[id] ? NULL : arches[i].arch);
    }
  }
  check_needs("cuda -arch=sm_90 -max_shared_memory_per_block=101376", "cuda", 0, ask_cuda, NULL);
  check_needs("cuda -arch=sm_90 -max_shared_memory_per_block=101377", "cuda", 0, ask_cuda,
              "max_shared_memory_per_block 101377, device cuda:0 has 101376");
  // Tuning is nobody's need.
  check_needs("cuda -arch=sm_90 -multiprocessors=9999", "cuda", 0, ask_cuda, NULL);
  check_needs("vulkan -warp_size=8", "vulkan", 0, ask_vulkan, NULL);
  // Without shuffles a warp is a matter of shared memory, of any size.
  check_needs("vulkan -warp_size=4", "vulkan", 0, ask_vulkan, NULL);
  check_needs("vulkan -warp_size=4 -supports_subgroup_shuffle", "vulkan", 0, ask_vulkan,
              "warp_size 4, device vulkan:0 has 8");
  check_needs("vulkan -warp_size=8 -api_version=1.4", "vulkan", 0, ask_vulkan, "api_version 1.4");
  check_needs("vulkan -warp_size=8 -supports_int8", "vulkan", 0, ask_vulkan, NULL);
  check_needs("vulkan -warp_size=8 -supports_float64", "vulkan", 0, ask_vulkan,
              "supports_float64 true, device vulkan:0 has false");
  // What the device does not say it does not have.
  check_needs("vulkan -warp_size=8 -supports_int16", "vulkan", 0, ask_vulkan, "does not say");
  check_needs("vulkan -warp_size=8", "cuda", 0, ask_cuda, "code is for");
  static const char* const odd[] = {
      "",
      "{}",
      "{\"kind\":\"cuda\"",
      "{\"kind\":\"cuda\"}x",
      "{\"kind\":cuda}",
      "{\"arch\":\"sm_90\\\"\",\"kind\":\"cuda\"}",
      "{\"kind\":\"cuda\",\"wings\":2}",
      "{\"kind\":\"cuda\",\"multiprocessors\":2}",
      "{\"arch\":[\"sm_90\",\"kind\":\"cuda\"}",
      "{\"kind\":\"cuda\",\"max_threads_per_block\":99999999999999999999}",
  };
  for (size_t i = 0; i < QN_COUNT_OF(odd); i++) {
    qn_status_t status = qn__isa_json_check_device(odd[i], "cuda", 0, ask_cuda);
    if (qn_status_consume(status) != QN_STATUS_INCOMPATIBLE) fail_msg("'%s' is good", odd[i]);
  }
  qn_status_t status = qn__isa_json_check_device(NULL, "cuda", 0, ask_cuda);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INCOMPATIBLE);
}

static void expect_host(const char* text, qn_status_code_t code) {
  qn_target_t* target = parse(text);
  qn_status_t status = qn_target_check_host(target);
  if (qn_status_code(status) != code) fail_msg("'%s': %s", text, qn_status_message(status));
  qn_status_free(status);
  qn_target_release(target);
}

static void test_check_host(void** state) {
  (void)state;
  expect_host("cuda", QN_STATUS_OK);
  expect_host("cuda -arch=sm_86", QN_STATUS_OK);  // the second one
  expect_host("cuda -arch=sm_75", QN_STATUS_INCOMPATIBLE);
  expect_host("interp", QN_STATUS_OK);
  cuda_count = 0;
  expect_host("cuda -arch=sm_86", QN_STATUS_UNAVAILABLE);
  cuda_count = 2;
}

#define INFO_SIZE sizeof(qn_target_kind_info_t)

static void test_registered_kinds(void** state) {
  (void)state;
  static const qn_option_info_t options[] = {
      {"units", QN_OPTION_STRING_LIST, "alpha,beta", true, "units", 0, 0},
      {"max_lanes", QN_OPTION_INT, "16", true, "lanes", 1, 64},
      {"broken", QN_OPTION_INT, "1", false, "asking for it fails", 0, 0},
      {"a_flag", QN_OPTION_BOOL, "false", false, "a flag", 0, 0},
  };
  qn_target_kind_info_t own = {INFO_SIZE, "own_kind", "a test", "own", DEVICE_OWN, 2, options};
  size_t before = qn_target_kind_count();
  assert_true(qn_ok(qn_target_kind_register(&own)));
  assert_int_equal(qn_target_kind_count(), before + 1);
  assert_string_equal(qn_target_kind_at(before)->name, "own_kind");
  assert_null(qn_target_kind_at(before + 1));
  // Sorted, whatever the order of the table.
  qn_target_t* target = parse("own_kind -max_lanes=8");
  assert_string_equal(qn_target_json(target),
                      "{\"kind\":\"own_kind\",\"max_lanes\":8,\"units\":[\"alpha\",\"beta\"]}");
  assert_true(qn_ok(qn_target_check_host(target)));
  qn_target_release(target);
  expect_int("own_kind", "max_lanes", 64);  // the device's 1024, cut
  expect_host("own_kind -units=gamma,beta", QN_STATUS_OK);
  expect_host("own_kind -units=gamma,delta", QN_STATUS_INCOMPATIBLE);
  // What a device's load asks.
  const char* isa = "{\"kind\":\"own_kind\",\"max_lanes\":8,\"units\":[\"beta\"]}";
  assert_true(qn_ok(qn_target_check_isa(isa, DEVICE_OWN, 0)));
  isa = "{\"kind\":\"own_kind\",\"max_lanes\":8,\"units\":[\"delta\"]}";
  assert_int_equal(qn_status_consume(qn_target_check_isa(isa, DEVICE_OWN, 0)),
                   QN_STATUS_INCOMPATIBLE);
  isa = "{\"kind\":\"cuda\"}";
  assert_int_equal(qn_status_consume(qn_target_check_isa(isa, DEVICE_OWN, 0)),
                   QN_STATUS_INCOMPATIBLE);
  assert_int_equal(qn_status_consume(qn_target_check_isa(NULL, DEVICE_OWN, 0)),
                   QN_STATUS_INCOMPATIBLE);
  assert_int_equal(qn_status_consume(qn_target_check_isa(isa, 61, 0)), QN_STATUS_UNAVAILABLE);
  expect_error("own_kind -max_lanes=65", QN_STATUS_INVALID_ARGUMENT, "takes 1 to 64, not 65");
  expect_error("own_kin", QN_STATUS_NOT_FOUND, "did you mean 'own_kind'?");
  expect_error("something-else", QN_STATUS_NOT_FOUND, "own_kind; tags");
  assert_int_equal(qn_status_consume(qn_target_kind_register(&own)), QN_STATUS_FAILED_PRECONDITION);
  qn_target_kind_info_t frail = {INFO_SIZE, "frail", "a test", "own", DEVICE_OWN, 4, options};
  assert_true(qn_ok(qn_target_kind_register(&frail)));
  expect_error("frail", QN_STATUS_DEVICE_ERROR, "option 'broken' of device 0");
  expect_int("frail -max_lanes=3", "broken", 1);
  // Two kinds for one type of device: the text says which.
  isa = "{\"kind\":\"frail\",\"max_lanes\":8}";
  assert_true(qn_ok(qn_target_check_isa(isa, DEVICE_OWN, 0)));
}

static void test_bad_kinds(void** state) {
  (void)state;
  static const qn_option_info_t wrong_default[] = {{"n", QN_OPTION_INT, "x", false, "d", 0, 0}};
  static const qn_option_info_t beyond[] = {{"n", QN_OPTION_INT, "9", false, "d", 0, 8}};
  static const qn_option_info_t reserved[] = {{"host", QN_OPTION_INT, "9", false, "d", 0, 0}};
  static const qn_option_info_t twice[] = {{"n", QN_OPTION_INT, "1", false, "d", 0, 0},
                                           {"n", QN_OPTION_INT, "2", false, "d", 0, 0}};
  static const qn_option_info_t no_doc[] = {{"n", QN_OPTION_INT, "1", false, NULL, 0, 0}};
  static const qn_target_kind_info_t bad[] = {
      {INFO_SIZE, NULL, "d", "own", 50, 0, NULL},
      {INFO_SIZE, "", "d", "own", 50, 0, NULL},
      {INFO_SIZE, "with/slash", "d", "own", 50, 0, NULL},
      {INFO_SIZE, "Large", "d", "own", 50, 0, NULL},
      {INFO_SIZE, "k", NULL, "own", 50, 0, NULL},
      {INFO_SIZE, "k", "d", NULL, 50, 0, NULL},
      {INFO_SIZE, "k", "d", "../own", 50, 0, NULL},
      {INFO_SIZE, "k", "d", "own", -1, 0, NULL},
      {INFO_SIZE, "k", "d", "own", 50, 1, NULL},
      {INFO_SIZE, "k", "d", "own", 50, 100000, wrong_default},
      {INFO_SIZE, "k", "d", "own", 50, 1, wrong_default},
      {INFO_SIZE, "k", "d", "own", 50, 1, beyond},
      {INFO_SIZE, "k", "d", "own", 50, 1, reserved},
      {INFO_SIZE, "k", "d", "own", 50, 2, twice},
      {INFO_SIZE, "k", "d", "own", 50, 1, no_doc},
  };
  size_t before = qn_target_kind_count();
  for (size_t i = 0; i < QN_COUNT_OF(bad); i++) {
    qn_status_t status = qn_target_kind_register(&bad[i]);
    if (qn_status_consume(status) != QN_STATUS_INVALID_ARGUMENT) fail_msg("%zu is taken", i);
  }
  assert_int_equal(qn_status_consume(qn_target_kind_register(NULL)), QN_STATUS_INVALID_ARGUMENT);
  static const qn_target_kind_info_t taken = {INFO_SIZE, "cuda", "d", "own", 50, 0, NULL};
  assert_int_equal(qn_status_consume(qn_target_kind_register(&taken)),
                   QN_STATUS_FAILED_PRECONDITION);
  assert_int_equal(qn_target_kind_count(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_from_device), cmocka_unit_test(test_bare),
      cmocka_unit_test(test_index_bits),  cmocka_unit_test(test_checks),
      cmocka_unit_test(test_check_host),  cmocka_unit_test(test_registered_kinds),
      cmocka_unit_test(test_bad_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
