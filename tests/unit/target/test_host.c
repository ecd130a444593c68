// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700  // sigaltstack
// tests/unit/target/test_host.c: detection on invented machines, the tables, and the check on load.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "target/target.h"

// A machine as a list of leaves; what is not listed is zero.
typedef struct leaf {
  uint32_t leaf, subleaf;
  uint32_t registers[4];
} leaf_t;
typedef struct machine {
  const leaf_t* leaves;
  size_t count;
  uint64_t xcr0;
  bool permits_tiles;
} machine_t;

static void fake_cpuid(const void* self, uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
  const machine_t* machine = self;
  memset(out, 0, 4 * sizeof out[0]);
  for (size_t i = 0; i < machine->count; ++i) {
    if (machine->leaves[i].leaf == leaf && machine->leaves[i].subleaf == subleaf) {
      memcpy(out, machine->leaves[i].registers, 4 * sizeof out[0]);
    }
  }
}

static uint64_t fake_xcr0(const void* self) {
  const machine_t* machine = self;
  return machine->xcr0;
}

static bool fake_permits_tiles(const void* self) {
  const machine_t* machine = self;
  return machine->permits_tiles;
}

enum {
  OSXSAVE = 1 << 27,
  LEAF1_V3 = 1 << 0 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 22 | 1 << 23 | 1 << 28 |
             1 << 29,
  LEAF7_V3 = 1 << 3 | 1 << 5 | 1 << 8,
  LEAF7_V4 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30,
};
#define LEAF7_VL (UINT32_C(1) << 31)

// "GenuineIntel" in EBX, EDX, ECX.
#define INTEL {0x16, 0x756e6547, 0x6c65746e, 0x49656e69}
#define AMD {0x10, 0x68747541, 0x444d4163, 0x69746e65}

static qn__target_host_cpu_t detect(const machine_t* machine) {
  qn__target_cpuid_source_t source = {machine, fake_cpuid, fake_xcr0, fake_permits_tiles};
  qn__target_host_cpu_t cpu;
  qn__x86_detect(&source, &cpu);
  return cpu;
}

static bool has(const qn__target_host_cpu_t* cpu, const char* name) {
  return qn__features_has(cpu->arch, cpu->features, name);
}

// An Ice Lake server: family 6, model 0x6a.
static const leaf_t icelake[] = {
    {0, 0, INTEL},
    {1, 0, {0x000606a6, 0, (uint32_t)LEAF1_V3 | OSXSAVE, 3u << 25}},
    {7, 0, {0, (uint32_t)LEAF7_V3 | LEAF7_V4 | LEAF7_VL, 1 << 1 | 1 << 6 | 1 << 11, 0}},
    // Must not be read: leaf 7 says that its highest subleaf is 0.
    {7, 1, {1 << 4 | 1 << 5, 0, 0, 0}},
    {0x80000000, 0, {0x80000008, 0, 0, 0}},
    {0x80000001, 0, {0, 0, 1 << 0 | 1 << 5 | 1 << 8, 0}},
};

static void test_full_machine(void** state) {
  (void)state;
  machine_t machine = {icelake, QN_COUNT_OF(icelake), 0xe7, false};
  qn__target_host_cpu_t cpu = detect(&machine);
  assert_string_equal(cpu.model, "icelake-server");
  assert_true(has(&cpu, "avx512vl") && has(&cpu, "avx512vbmi2") && has(&cpu, "lzcnt"));
  assert_false(has(&cpu, "avxvnni") || has(&cpu, "avx512bf16"));
}

static void test_os_without_zmm(void** state) {
  (void)state;
  machine_t machine = {icelake, QN_COUNT_OF(icelake), 0x07, false};
  qn__target_host_cpu_t cpu = detect(&machine);
  assert_string_equal(cpu.model, "icelake-server");
  assert_true(has(&cpu, "avx2") && has(&cpu, "fma"));
  assert_false(has(&cpu, "avx512f") || has(&cpu, "avx512vnni"));
  machine.xcr0 = 0x03;  // not even YMM
  cpu = detect(&machine);
  assert_false(has(&cpu, "avx") || has(&cpu, "fma") || has(&cpu, "f16c"));
  assert_true(has(&cpu, "sse4.2") && has(&cpu, "bmi2"));
}

static void test_tiles(void** state) {
  (void)state;
  leaf_t leaves[QN_COUNT_OF(icelake)];
  memcpy(leaves, icelake, sizeof leaves);
  leaves[1].registers[0] = 0x000806f8;
  leaves[2].registers[3] = 1 << 22 | 1 << 24 | 1 << 25;
  machine_t machine = {leaves, QN_COUNT_OF(leaves), 0x600e7, true};
  qn__target_host_cpu_t cpu = detect(&machine);
  assert_string_equal(cpu.model, "sapphirerapids");
  assert_true(has(&cpu, "amx-tile") && has(&cpu, "amx-bf16") && has(&cpu, "amx-int8"));
  machine.permits_tiles = false;  // a signal stack is too small
  cpu = detect(&machine);
  assert_false(has(&cpu, "amx-tile") || has(&cpu, "amx-bf16") || has(&cpu, "amx-int8"));
  assert_true(has(&cpu, "avx512vnni"));
  machine = (machine_t){leaves, QN_COUNT_OF(leaves), 0x200e7, true};  // the configuration alone
  cpu = detect(&machine);
  assert_false(has(&cpu, "amx-tile"));
}

// This process asks for no tiles before, so a child is like a process with such a signal stack.
static void test_small_signal_stack(void** state) {
  (void)state;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    static char memory[MINSIGSTKSZ];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    bool is_set = sigaltstack(&stack, NULL) == 0;
    const qn__target_host_cpu_t* host = qn__host_cpu();
    _exit(is_set && host->arch && has(host, "amx-tile"));
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_virtual_machine_masks(void** state) {
  (void)state;
  // The hypervisor hides AVX-512F and nothing of what needs it: those go too.
  leaf_t leaves[QN_COUNT_OF(icelake)];
  memcpy(leaves, icelake, sizeof leaves);
  leaves[2].registers[1] &= ~(1u << 16);
  machine_t machine = {leaves, QN_COUNT_OF(leaves), 0xe7, false};
  qn__target_host_cpu_t cpu = detect(&machine);
  assert_string_equal(cpu.model, "icelake-server");
  assert_false(has(&cpu, "avx512f") || has(&cpu, "avx512bw") || has(&cpu, "avx512vbmi"));
  assert_true(has(&cpu, "avx2"));
  // Without OSXSAVE, xgetbv would fault: nothing wide is used.
  memcpy(leaves, icelake, sizeof leaves);
  leaves[1].registers[2] &= ~(uint32_t)OSXSAVE;
  cpu = detect(&machine);
  assert_false(has(&cpu, "avx"));
}

static void test_old_and_unknown(void** state) {
  (void)state;
  static const leaf_t bare[] = {{0, 0, {1, 0, 0, 0}}, {1, 0, {0, 0, 0, 0}}};
  machine_t machine = {bare, QN_COUNT_OF(bare), 0, false};
  qn__target_host_cpu_t cpu = detect(&machine);
  assert_string_equal(cpu.model, "x86-64");
  assert_true(has(&cpu, "sse2"));  // the baseline of the architecture
  leaf_t leaves[QN_COUNT_OF(icelake)];
  memcpy(leaves, icelake, sizeof leaves);
  leaves[1].registers[0] = 0x000f0ff0;  // a model number of the future
  machine = (machine_t){leaves, QN_COUNT_OF(leaves), 0xe7, false};
  assert_string_equal(detect(&machine).model, "x86-64-v4");
  machine.xcr0 = 0x07;
  assert_string_equal(detect(&machine).model, "x86-64-v3");
}

static void test_amd_models_and_caches(void** state) {
  (void)state;
  static const leaf_t zen3[] = {
      {0, 0, AMD},
      {1, 0, {0x00a20f10, 0, (uint32_t)LEAF1_V3 | OSXSAVE, 3u << 25}},
      {7, 0, {0, LEAF7_V3, 0, 0}},
      {0x80000000, 0, {0x80000021, 0, 0, 0}},
      {0x80000001, 0, {0, 0, 1 << 0 | 1 << 5 | 1 << 8 | 1 << 22, 0}},
      {0x8000001d, 0, {1 | 1 << 5, 7u << 22 | 63, 63, 0}},
      {0x8000001d, 1, {2 | 1 << 5, 7u << 22 | 63, 63, 0}},
      {0x8000001d, 2, {3 | 2 << 5, 7u << 22 | 63, 1023, 0}},
      {0x8000001d, 3, {3 | 3 << 5, 15u << 22 | 63, 32767, 0}},
  };
  machine_t machine = {zen3, QN_COUNT_OF(zen3), 0x07, false};
  assert_string_equal(detect(&machine).model, "znver3");
  qn__target_cpuid_source_t source = {&machine, fake_cpuid, fake_xcr0, fake_permits_tiles};
  qn__target_host_caches_t caches = qn__x86_caches(&source);
  assert_int_equal(caches.l1_bytes, 32768);
  assert_int_equal(caches.l2_bytes, 524288);
  assert_int_equal(caches.l3_bytes, 33554432);
}

static void test_this_machine(void** state) {
  (void)state;
  const qn__target_host_cpu_t* host = qn__host_cpu();
  assert_ptr_equal(host, qn__host_cpu());
  assert_ptr_equal(host->arch, qn__arch_of_host());
  if (!host->arch) skip();
  assert_non_null(qn__cpu_find(host->arch, qn__str(host->model)));
  qn_target_t* target;
  assert_true(qn_ok(qn_target_parse("cpu", &target)));
  assert_true(target->features.bits == host->features.bits);
  assert_true(qn_ok(qn_target_check_host(target)));
  assert_true(qn_ok(qn__isa_json_check(qn__target_isa_json(target))));
  qn_target_release(target);
#if defined(__x86_64__) && defined(__GNUC__)
  // The compiler's own run-time detection is another implementation of the same question.
  __builtin_cpu_init();
  assert_int_equal(has(host, "avx2"), __builtin_cpu_supports("avx2") != 0);
  assert_int_equal(has(host, "fma"), __builtin_cpu_supports("fma") != 0);
  assert_int_equal(has(host, "bmi2"), __builtin_cpu_supports("bmi2") != 0);
  assert_int_equal(has(host, "popcnt"), __builtin_cpu_supports("popcnt") != 0);
  assert_int_equal(has(host, "avx512f"), __builtin_cpu_supports("avx512f") != 0);
  assert_int_equal(has(host, "avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
  assert_int_equal(has(host, "sse4.2"), __builtin_cpu_supports("sse4.2") != 0);
#endif
}

static void test_check_against(void** state) {
  (void)state;
  machine_t machine = {icelake, QN_COUNT_OF(icelake), 0x07, false};
  qn__target_host_cpu_t host = detect(&machine);
  static const struct {
    const char* target;
    const char* part;  // of the message; NULL: fits
  } cases[] = {
      {"cpu -mcpu=x86-64-v3", NULL},
      {"cpu -mcpu=x86-64", NULL},
      {"interp", NULL},
      {"null", NULL},
      {"cpu -mcpu=x86-64-v4",
       "needs the extension 'avx512bw', which this machine (icelake-server)"},
      {"cpu -mcpu=x86-64-v3 -mattr=+amx-int8",
       "'amx-int8', which this machine (icelake-server) lacks, or does not let this process use"},
      {"cpu -mcpu=neoverse-n1", "code is for aarch64-unknown-linux-gnu, this machine is x86_64"},
      {"cpu -mcpu=znver4 -mattr=-avx512f,-gfni", NULL},  // a name is never checked
      {"cuda", "cannot be read"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    qn_target_t* target;
    assert_true(qn_ok(qn_target_parse(cases[i].target, &target)));
    qn_status_t status = qn__isa_json_check_against(qn__target_isa_json(target), &host);
    if (!cases[i].part) {
      assert_true(qn_ok(status));
    } else {
      assert_int_equal(qn_status_code(status), QN_STATUS_INCOMPATIBLE);
      if (!strstr(qn_status_message(status), cases[i].part))
        fail_msg("%s", qn_status_message(status));
      qn_status_free(status);
    }
    qn_target_release(target);
  }
  static const char* const foreign[] = {
      "",
      "{}",
      "{\"features\":[",
      "{\"features\":[]",
      "{\"features\":[\"avx\" ],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"}",
      "{\"features\":[,\"avx\"],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"}",
      "{\"features\":[\"avx],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"}",
      "{\"features\":[\"a\\\"vx\"],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"}",
      "{\"features\":[\"avx\"],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"",
      "{\"features\":[\"avx\"],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"} ",
      "{\"features\":[\"avx\"],\"kind\":\"cpu\",\"more\":1,\"mtriple\":\"x86_64\"}",
      "{\"features\":[\"telepathy\"],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"}",
      "{\"features\":[],\"kind\":\"cpu\",\"mtriple\":\"sparc\"}",
  };
  for (size_t i = 0; i < QN_COUNT_OF(foreign); ++i) {
    qn_status_t status = qn__isa_json_check_against(foreign[i], &host);
    assert_int_equal(qn_status_consume(status), QN_STATUS_INCOMPATIBLE);
  }
  assert_true(qn_ok(qn__isa_json_check_against(
      "{\"features\":[],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"}", &host)));
  assert_int_equal(qn_status_consume(qn__isa_json_check_against(NULL, &host)),
                   QN_STATUS_INCOMPATIBLE);
  // A machine of an architecture without tables runs no images.
  qn__target_host_cpu_t other = {NULL, {0}, ""};
  assert_int_equal(qn_status_consume(qn__isa_json_check_against(
                       "{\"features\":[],\"kind\":\"cpu\",\"mtriple\":\"x86_64\"}", &other)),
                   QN_STATUS_INCOMPATIBLE);
}

static void check_names(const qn__target_arch_t* arch, const char* list) {
  while (*list) {
    size_t size = strcspn(list, ",");
    assert_true(qn__feature_find(arch, (qn_str_t){list, size}) >= 0);
    list += size + (list[size] == ',');
  }
}

static void test_tables(void** state) {
  (void)state;
  const qn__target_arch_t* arch;
  for (size_t a = 0; (arch = qn__arch_at(a)) != NULL; ++a) {
    for (size_t i = 0; i < arch->feature_count; ++i) {
      const qn__target_feature_t* info = &arch->features[i];
      assert_true(i == 0 || strcmp(arch->features[i - 1].name, info->name) < 0);
      assert_int_equal(qn__feature_find(arch, qn__str(info->name)), i);
      check_names(arch, info->implied);
      qn__target_features_t set = qn__features_add(arch, qn__features_baseline(arch), (int)i);
      assert_true(qn__features_consistent(arch, set).bits == set.bits);
      if (info->is_baseline) continue;
      set = qn__features_remove(arch, set, (int)i);
      assert_false(qn__features_has_index(set, (int)i));
    }
    for (size_t i = 0; i < arch->cpu_count; ++i) {
      check_names(arch, arch->cpus[i].extra);
      const qn__target_cpu_t* base = qn__cpu_find(arch, qn__str(arch->cpus[i].base));
      assert_true(arch->cpus[i].base[0] == '\0' || (base && base < &arch->cpus[i]));
      qn__target_features_t set = qn__cpu_features(arch, &arch->cpus[i]);
      assert_true(qn__features_consistent(arch, set).bits == set.bits);
    }
  }
  assert_int_equal(qn__feature_find(qn__arch_at(0), QN_STR("")), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_signal_stack),  // before others ask for tiles
      cmocka_unit_test(test_full_machine),
      cmocka_unit_test(test_os_without_zmm),
      cmocka_unit_test(test_tiles),
      cmocka_unit_test(test_virtual_machine_masks),
      cmocka_unit_test(test_old_and_unknown),
      cmocka_unit_test(test_amd_models_and_caches),
      cmocka_unit_test(test_this_machine),
      cmocka_unit_test(test_check_against),
      cmocka_unit_test(test_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
