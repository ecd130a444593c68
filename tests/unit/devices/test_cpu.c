// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// The CPU device: parallel loops and their budget, executable memory, loading, attributes, fork;
// and the null device's table. ctest-labels: tsan
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "devices/cpu/code_pool.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/pool.h"
#include "devices/device.h"
#include "target/target.h"
#include "tests/support/must.h"

static const qn_device_t cpu = {QN_DEVICE_CPU, 0};
static const qn_device_t null_device = {QN_DEVICE_NULL, 0};

// ---- parallel loops

enum { ITERATIONS = 100003 };
static _Atomic uint8_t visits[ITERATIONS];
static _Atomic int inside, max_inside;
static _Atomic int64_t fail_from = INT64_MAX;

static int32_t visit(const qn_cpu_env_t* env, void* closure, int64_t begin, int64_t end) {
  int now = ++inside;
  int most = max_inside;
  while (now > most && !atomic_compare_exchange_weak(&max_inside, &most, now)) {
  }
  for (int64_t i = begin; i < end; i++) visits[i]++;
  if (closure) usleep(100);
  inside--;
  if (end > fail_from) {
    (env->functions->fail)(env, 3, end, 0);
    return 1;
  }
  return 0;
}

static int32_t run_loop(int64_t count, int64_t grain, bool is_slow, qn__cpu_call_t* call) {
  qn__cpu_call_init(call);
  for (int64_t i = 0; i < ITERATIONS; i++) visits[i] = 0;
  max_inside = 0;
  return call->env.functions->parallel(&call->env, visit, is_slow ? call : NULL, count, grain);
}

static void test_every_iteration_once(void** state) {
  (void)state;
  const int64_t counts[] = {0, 1, 2, 7, 64, 1000, ITERATIONS};
  const int64_t grains[] = {0, 1, 3, 1000, 1000000};
  for (size_t c = 0; c < QN_COUNT_OF(counts); c++) {
    for (size_t g = 0; g < QN_COUNT_OF(grains); g++) {
      qn__cpu_call_t call;
      assert_int_equal(run_loop(counts[c], grains[g], false, &call), 0);
      for (int64_t i = 0; i < ITERATIONS; i++) assert_int_equal(visits[i], i < counts[c]);
    }
  }
}

static void test_budget(void** state) {
  (void)state;
  qn__cpu_call_t call;
  assert_int_equal(qn_cpu_set_core_budget(1), 0);
  assert_int_equal(run_loop(1000, 1, true, &call), 0);
  assert_int_equal(max_inside, 1);
  assert_int_equal(qn_cpu_set_core_budget(0), 1);
  assert_int_equal(run_loop(1000, 1, true, &call), 0);
  assert_true(max_inside <= qn_cpu_core_count() || qn_cpu_core_count() == 1);
}

// In a thread of its own: the mask of the others stays.
static void* pin_thread(void* arg) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return NULL;
  int32_t count = qn_cpu_core_count();
  size_t core = 0;
  while (!CPU_ISSET(core, &all)) core++;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  const struct timespec while_cached = {0, 30000000};
  qn__cpu_call_t call;
  bool is_right = sched_setaffinity(0, sizeof one, &one) == 0;
  (void)nanosleep(&while_cached, NULL);
  is_right &= qn_cpu_core_count() == 1 && run_loop(1000, 1, true, &call) == 0 && max_inside == 1;
  is_right &= sched_setaffinity(0, sizeof all, &all) == 0;
  (void)nanosleep(&while_cached, NULL);
  is_right &= qn_cpu_core_count() == count;
  return is_right ? NULL : arg;
}

static void test_affinity(void** state) {
  (void)state;
  pthread_t thread;
  void* result;
  must(qn__thread_start(&thread, "test", 0, pin_thread, &thread));
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_null(result);
}

static void test_failure_is_reported(void** state) {
  (void)state;
  qn__cpu_call_t call;
  fail_from = 500;
  assert_int_equal(run_loop(1000, 1, false, &call), 1);
  fail_from = INT64_MAX;
  assert_int_equal(call.failure_state, 2);
  assert_int_equal(call.failure.site, 3);
  assert_true(call.failure.index > 500);
}

static _Atomic int host_calls;
static void host_parallel_for(void* self, int32_t count, void (*task)(void*, int32_t),
                              void* task_self) {
  (void)self;
  host_calls++;
  for (int32_t i = 0; i < count; i++) task(task_self, i);
}

static void test_host_parallel_for(void** state) {
  (void)state;
  if (qn_cpu_core_count() < 2) skip();
  qn__cpu_call_t call;
  qn_cpu_set_parallel_for(host_parallel_for, NULL);
  assert_int_equal(run_loop(1000, 1, false, &call), 0);
  qn_cpu_set_parallel_for(NULL, NULL);
  assert_int_equal(host_calls, 1);
  for (int64_t i = 0; i < 1000; i++) assert_int_equal(visits[i], 1);
}

static void* loop_thread(void* arg) {
  (void)arg;
  for (int round = 0; round < 200; round++) {
    qn__cpu_call_t call;
    qn__cpu_call_init(&call);
    // A long loop, and one that may be too short for the pool.
    int64_t grain = round % 2 ? 10 : 300;
    if (call.env.functions->parallel(&call.env, visit, NULL, 1000, grain) != 0) return arg;
  }
  return NULL;
}

static void test_many_callers(void** state) {
  (void)state;
  for (int64_t i = 0; i < ITERATIONS; i++) visits[i] = 0;
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    must(qn__thread_start(&threads[i], "test", 0, loop_thread, threads));
  }
  for (int i = 0; i < 4; i++) {
    void* result;
    assert_int_equal(pthread_join(threads[i], &result), 0);
    assert_null(result);
  }
  // 800 loops over the same 1000 iterations, counted modulo 256.
  for (int64_t i = 0; i < 1000; i++) assert_int_equal(visits[i], 800 % 256);
}

// Workers spin between loops, and sleep soon after the last one.
static void test_idle_workers_sleep(void** state) {
  (void)state;
  for (int round = 0; round < 300; round++) {
    qn__cpu_call_t call;
    assert_int_equal(run_loop(round % 7 * 100, 1 + round % 3, false, &call), 0);
    for (int64_t i = 0; i < 700; i++) assert_int_equal(visits[i], i < round % 7 * 100);
  }
  qn__cpu_workers_t workers = qn__cpu_pool_workers();
  assert_true(workers.count <= qn_cpu_core_count());
  // A worker that never sleeps is a test that never ends.
  while (workers.sleeping_count != workers.count) {
    usleep(1000);
    workers = qn__cpu_pool_workers();
    assert_true(workers.spinning_count + workers.sleeping_count <= workers.count);
  }
}

// ---- workers and cores

// What a worker does with its share of a loop. The caller's share ends after the worker's began.
typedef struct share {
  pthread_t caller;
  bool is_narrowing;
  _Atomic bool has_begun, has_ended;
  int core_count;  // of the worker
} share_t;

static int32_t run_share(const qn_cpu_env_t* env, void* closure, int64_t begin, int64_t end) {
  (void)env;
  (void)begin;
  (void)end;
  share_t* share = closure;
  if (pthread_equal(pthread_self(), share->caller)) {
    while (!share->has_begun) (void)sched_yield();
    return 0;
  }
  if (share->has_begun) return 0;
  qn__cores_t cores;
  int32_t failed = !qn__cores_read(&cores);
  share->core_count = qn__affinity_cores();
  share->has_begun = true;
  usleep(20000);  // the caller falls asleep
  if (share->is_narrowing) {
    qn__cores_t one = {{0}};
    size_t i = 0;
    while (cores.bits[i] == 0) i++;
    one.bits[i] = cores.bits[i] & (~cores.bits[i] + 1);
    failed |= !qn__cores_use(&one);
  }
  share->has_ended = true;
  return failed;
}

// A worker that sleeps is kept away from its waker's core only until it is awake, and then has the
// cores of its waker, whatever it had before. A loop does not end before its workers.
static void test_workers_have_their_wakers_cores(void** state) {
  (void)state;
  if (qn_cpu_core_count() < 2) skip();
  for (int round = 0; round < 6; round++) {
    qn__cpu_workers_t workers = qn__cpu_pool_workers();
    while (workers.sleeping_count != workers.count) {
      usleep(1000);
      workers = qn__cpu_pool_workers();
    }
    share_t share = {.caller = pthread_self(), .is_narrowing = round % 2 == 0};
    qn__cpu_call_t call;
    qn__cpu_call_init(&call);
    qn_cpu_set_core_budget(2);
    assert_int_equal(call.env.functions->parallel(&call.env, run_share, &share, 1000, 1), 0);
    qn_cpu_set_core_budget(0);
    assert_true(share.has_ended);
    assert_int_equal(share.core_count, qn__affinity_cores());
  }
}

// ---- code

#if defined(__x86_64__)
// mov eax, imm32; ret
static void make_code(uint8_t code[6], uint32_t value) {
  code[0] = 0xb8;
  memcpy(code + 1, &value, 4);
  code[5] = 0xc3;
}

static int32_t call_code(const uint8_t* address) {
  int32_t (*function)(void);
  memcpy(&function, &address, sizeof address);
  return function();
}

static void test_code_pool(void** state) {
  (void)state;
  enum { COUNT = 500 };
  qn__cpu_code_t codes[COUNT];
  for (uint32_t i = 0; i < COUNT; i++) {
    uint8_t bytes[6];
    make_code(bytes, i);
    must(qn__cpu_code_place((qn_span_t){bytes, sizeof bytes}, &codes[i]));
    assert_int_equal((uintptr_t)codes[i].address % 64, 0);
  }
  // Holes are reused, and what stays is untouched.
  for (uint32_t i = 0; i < COUNT; i += 2) qn__cpu_code_remove(&codes[i]);
  for (uint32_t i = 0; i < COUNT; i += 2) {
    uint8_t bytes[6];
    make_code(bytes, i + 1000);
    must(qn__cpu_code_place((qn_span_t){bytes, sizeof bytes}, &codes[i]));
  }
  for (uint32_t i = 0; i < COUNT; i++) {
    assert_int_equal(call_code(codes[i].address), i % 2 ? i : i + 1000);
  }
  for (uint32_t i = 0; i < COUNT; i++) qn__cpu_code_remove(&codes[i]);
  static uint8_t large[5 << 20];
  make_code(large, 77);
  qn__cpu_code_t code;
  must(qn__cpu_code_place((qn_span_t){large, sizeof large}, &code));
  assert_int_equal(call_code(code.address), 77);
  qn__cpu_code_remove(&code);
}

// The mappings are shared with a child: neither side may change what the other one runs.
static void test_code_survives_fork(void** state) {
  (void)state;
  uint8_t bytes[6];
  qn__cpu_code_t old, fresh;
  make_code(bytes, 1);
  must(qn__cpu_code_place((qn_span_t){bytes, sizeof bytes}, &old));
  int is_loaded[2];
  assert_int_equal(pipe(is_loaded), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  // Both sides drop the old code and load new code: it must not land where the other side's old
  // code is.
  const uint8_t* old_address = old.address;
  if (child == 0) {
    char byte;
    if (read(is_loaded[0], &byte, 1) != 1) _exit(2);
    _exit(call_code(old_address) == 1 ? 0 : 1);
  }
  qn__cpu_code_remove(&old);
  make_code(bytes, 2);
  must(qn__cpu_code_place((qn_span_t){bytes, sizeof bytes}, &fresh));
  assert_int_equal(write(is_loaded[1], "l", 1), 1);
  (void)close(is_loaded[0]);
  (void)close(is_loaded[1]);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_int_equal(call_code(fresh.address), 2);
  qn__cpu_code_remove(&fresh);
}

static void test_load_and_launch(void** state) {
  (void)state;
  uint8_t image[128] = {0};
  make_code(image, 0);
  make_code(image + 64, 0);
  qn_target_t* target;
  must(qn_target_parse("cpu -mcpu=x86-64", &target));
  qn_artifact_function_t functions[] = {
      {.name = "first", .code_size_bytes = 6},
      {.name = "second", .code_offset = 64, .code_size_bytes = 6}};
  qn_artifact_t artifact = {.struct_size = sizeof artifact,
                            .format = "cpu-image-1",
                            .isa = target->isa_json,
                            .payload = image,
                            .payload_size = sizeof image,
                            .function_count = 2,
                            .functions = functions};
  const qn_device_table_t* table = qn__device_table(QN_DEVICE_CPU);
  assert_true(table->accepts("cpu-image-1"));
  assert_false(table->accepts("cubin-1"));
  qn_load_options_t options = {
      .struct_size = sizeof options, .name = "first@0123", .has_perf_map = true, .has_gdb = true};
  void* executable;
  must(table->load(0, &artifact, &options, &executable));
  char path[64];
  (void)snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
  FILE* map = fopen(path, "r");
  assert_non_null(map);
  char lines[512] = {0};
  size_t size = fread(lines, 1, sizeof lines - 1, map);
  (void)fclose(map);
  (void)unlink(path);
  assert_true(size > 0);
  assert_non_null(strstr(lines, " 6 qn::second@0123\n"));
  uint64_t word = 0;
  qn_launch_t launch = {.words = &word, .word_count = 1};
  must(table->launch(0, executable, 1, NULL, &launch));
  table->unload(0, executable);
  functions[1].code_offset = 4096;
  qn_status_t status = table->load(0, &artifact, NULL, &executable);
  assert_int_equal(qn_status_code(status), QN_STATUS_DATA_LOSS);
  qn_status_free(status);
  // Needs that cannot be read are needs that are not met.
  artifact.isa = "nonsense";
  status = table->load(0, &artifact, NULL, &executable);
  assert_int_equal(qn_status_code(status), QN_STATUS_INCOMPATIBLE);
  qn_status_free(status);
  qn_target_release(target);
}
#endif

// A child of fork has no workers and makes its own.
static void test_pool_survives_fork(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  skip();  // ThreadSanitizer lets a forked child start no thread
#endif
  qn__cpu_call_t call;
  assert_int_equal(run_loop(1000, 1, false, &call), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int32_t failed = run_loop(1000, 1, false, &call);
    for (int64_t i = 0; i < 1000; i++) failed |= visits[i] != 1;
    _exit(failed);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// ---- attributes, memory, names

static void test_attributes(void** state) {
  (void)state;
  qn_attribute_t attribute;
  const char *text, *unit, *doc;
  size_t count = 0;
  for (; qn_attribute_at(count, &attribute, &text, &unit, &doc); count++) {
    qn_attribute_value_t value;
    must(qn_device_attribute(cpu, attribute, &value));
    if (value.type == QN_ATTRIBUTE_TYPE_INT) assert_true(value.int_value > 0);
    if (value.type == QN_ATTRIBUTE_TYPE_STRING) assert_true(value.string_value[0] != '\0');
    must(qn_device_attribute(null_device, attribute, &value));
  }
  assert_int_equal(count, 25);
  qn_attribute_value_t value;
  must(qn_device_attribute(cpu, QN_ATTRIBUTE_TOTAL_GLOBAL_MEMORY, &value));
  assert_int_equal(value.type, QN_ATTRIBUTE_TYPE_INT);
  // What does not apply is none, not an invention.
  must(qn_device_attribute(cpu, QN_ATTRIBUTE_GCN_ARCH, &value));
  assert_int_equal(value.type, QN_ATTRIBUTE_TYPE_NONE);
  must(qn_device_attribute(cpu, QN_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &value));
  assert_int_equal(value.type, QN_ATTRIBUTE_TYPE_NONE);
  // Existence may be asked of anything.
  const qn_device_t absent = {QN_DEVICE_CPU, 1}, unknown = {4711, 0};
  must(qn_device_attribute(absent, QN_ATTRIBUTE_EXIST, &value));
  assert_int_equal(value.int_value, 0);
  must(qn_device_attribute(unknown, QN_ATTRIBUTE_EXIST, &value));
  assert_int_equal(value.int_value, 0);
  must(qn_device_attribute(cpu, QN_ATTRIBUTE_EXIST, &value));
  assert_int_equal(value.int_value, 1);
  qn_status_t status = qn_device_attribute(absent, QN_ATTRIBUTE_WARP_SIZE, &value);
  assert_int_equal(qn_status_code(status), QN_STATUS_NOT_FOUND);
  qn_status_free(status);
  status = qn_device_attribute(cpu, (qn_attribute_t)999, &value);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
}

static void test_memory(void** state) {
  (void)state;
  const qn_device_t devices[] = {cpu, null_device};
  for (size_t d = 0; d < 2; d++) {
    for (size_t alignment = 0; alignment <= 4096; alignment = alignment ? alignment * 2 : 1) {
      void* pointer;
      must(qn_device_allocate(devices[d], 100, alignment, &pointer));
      assert_int_equal((uintptr_t)pointer % (alignment > 64 ? alignment : 64), 0);
      must(qn_device_free(devices[d], pointer));
    }
    void* pointer;
    must(qn_device_allocate(devices[d], 0, 0, &pointer));
    assert_non_null(pointer);
    must(qn_device_free(devices[d], pointer));
    must(qn_device_free(devices[d], NULL));
    qn_status_t status = qn_device_allocate(devices[d], 100, 48, &pointer);
    assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
    qn_status_free(status);
    status = qn_device_allocate(devices[d], SIZE_MAX - 100, 0, &pointer);
    assert_int_equal(qn_status_code(status), QN_STATUS_OUT_OF_MEMORY);
    assert_null(pointer);
    qn_status_free(status);
  }
  // Between the two, both ways.
  qn_status_t status;
  char up[64] = "there and back", down[64] = "";
  void* memory;
  must(qn_device_allocate(null_device, 64, 0, &memory));
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = cpu,
                    .from = up,
                    .to_device = null_device,
                    .to = memory,
                    .size_bytes = 64};
  must(qn_device_copy(&copy, NULL));
  qn_copy_t back = {.struct_size = sizeof back,
                    .from_device = null_device,
                    .from = memory,
                    .to_device = cpu,
                    .to = down,
                    .size_bytes = 64};
  must(qn_device_copy(&back, NULL));
  assert_string_equal(down, up);
  // Pinned memory is the CPU's, whatever the GPU.
  (void)snprintf(up, sizeof up, "pinned");
  copy.from_device = (qn_device_t){QN_DEVICE_CUDA_HOST, 1};
  back.to_device = (qn_device_t){QN_DEVICE_CUDA_HOST, 0};
  must(qn_device_copy(&copy, NULL));
  must(qn_device_copy(&back, NULL));
  assert_string_equal(down, up);
  copy.to_device = cpu;
  copy.to = up;
  status = qn_device_copy(&copy, NULL);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);  // it overlaps
  qn_status_free(status);
  must(qn_device_free(null_device, memory));
}

static void test_names(void** state) {
  (void)state;
  qn_device_t device;
  must(qn_device_parse("cpu", &device));
  assert_int_equal(device.type, QN_DEVICE_CPU);
  must(qn_device_parse("cuda:3", &device));
  assert_int_equal(device.type, QN_DEVICE_CUDA);
  assert_int_equal(device.id, 3);
  const char* const bad[] = {"cpu:", "cpu:x", "cpu:-1", "cpu:+1", "cpu:1 ", "cpu:99999999999999"};
  for (size_t i = 0; i < QN_COUNT_OF(bad); i++) {
    qn_status_t status = qn_device_parse(bad[i], &device);
    assert_int_equal(qn_status_code(status), QN_STATUS_SYNTAX);
    qn_status_free(status);
  }
  qn_status_t status = qn_device_parse("vulcan:0", &device);
  assert_int_equal(qn_status_code(status), QN_STATUS_NOT_FOUND);
  assert_non_null(strstr(qn_status_message(status), "did you mean 'vulkan'?"));
  qn_status_free(status);
  assert_string_equal(qn_device_type_text(QN_DEVICE_VULKAN), "vulkan");
  assert_string_equal(qn_device_type_text(4711), "unknown");
}

static void test_register(void** state) {
  (void)state;
  static qn_device_table_t table;
  table = *qn__device_table(QN_DEVICE_NULL);
  qn_status_t status = qn_device_register(&table);
  assert_int_equal(qn_status_code(status), QN_STATUS_FAILED_PRECONDITION);
  qn_status_free(status);
  table.type = 40;
  table.launch = NULL;
  status = qn_device_register(&table);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
  table.launch = qn__device_table(QN_DEVICE_NULL)->launch;
  table.name = "mine";
  must(qn_device_register(&table));
  assert_int_equal(qn_device_count(40), 1);
  qn_device_t device;
  must(qn_device_parse("mine:0", &device));
  assert_int_equal(device.type, 40);
  table.abi_version = 99;
  status = qn_device_register(&table);
  assert_int_equal(qn_status_code(status), QN_STATUS_INVALID_ARGUMENT);
  qn_status_free(status);
}

static int copies_made;
static qn_status_t count_copy(int32_t id, void* stream, const qn_copy_t* copy) {
  (void)id;
  (void)stream;
  (void)copy;
  copies_made++;
  return QN_OK;
}

static void test_copies_that_cannot_be(void** state) {
  (void)state;
  static qn_device_table_t table;
  // Its handles are no addresses, but numbers in one flat space all the same.
  table = *qn__device_table(QN_DEVICE_NULL);
  table.type = 41;
  table.name = "handles";
  table.copy = count_copy;
  must(qn_device_register(&table));
  static char blocks[2 * 4096];
  const qn_device_t device = {41, 0};
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = device,
                    .from = &blocks[0],
                    .to_device = device,
                    .to = &blocks[4096],
                    .size_bytes = 4096};
  must(qn_device_copy(&copy, NULL));
  copy.to = &blocks[0];
  copy.to_offset_bytes = 4096;
  must(qn_device_copy(&copy, NULL));
  assert_int_equal(copies_made, 2);
  const qn_status_code_t invalid = QN_STATUS_INVALID_ARGUMENT;
  copy.to = &blocks[4095];
  copy.to_offset_bytes = 0;
  assert_int_equal(qn_status_consume(qn_device_copy(&copy, NULL)), invalid);
  copy.to = &blocks[0];
  copy.to_offset_bytes = 4095;
  assert_int_equal(qn_status_consume(qn_device_copy(&copy, NULL)), invalid);
  copy.to_offset_bytes = SIZE_MAX;
  assert_int_equal(qn_status_consume(qn_device_copy(&copy, NULL)), invalid);
  copy.to_offset_bytes = 0;
  copy.from_device = copy.to_device = cpu;
  copy.to = &blocks[1];
  assert_int_equal(qn_status_consume(qn_device_copy(&copy, NULL)), invalid);
  copy.size_bytes = SIZE_MAX;
  assert_int_equal(qn_status_consume(qn_device_copy(&copy, NULL)), invalid);
  assert_int_equal(qn_status_consume(qn_device_copy(NULL, NULL)), invalid);
  assert_int_equal(copies_made, 2);
}

static void test_texts_that_are_no_device(void** state) {
  (void)state;
  static const char* const texts[] = {"cpu:", "cpu: 1", "cpu:-0", "cpu:+1", "cpu:0x", "cpu:0 "};
  for (size_t i = 0; i < QN_COUNT_OF(texts); i++) {
    qn_device_t device;
    assert_int_equal(qn_status_consume(qn_device_parse(texts[i], &device)), QN_STATUS_SYNTAX);
  }
  qn_device_t device;
  must_fail(qn_device_parse(NULL, &device), QN_STATUS_INVALID_ARGUMENT, "text is null");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_iteration_once),
      cmocka_unit_test(test_budget),
      cmocka_unit_test(test_affinity),
      cmocka_unit_test(test_failure_is_reported),
      cmocka_unit_test(test_host_parallel_for),
      cmocka_unit_test(test_idle_workers_sleep),
      cmocka_unit_test(test_many_callers),
      cmocka_unit_test(test_workers_have_their_wakers_cores),
#if defined(__x86_64__)
      cmocka_unit_test(test_code_pool),
      cmocka_unit_test(test_code_survives_fork),
      cmocka_unit_test(test_load_and_launch),
#endif
      cmocka_unit_test(test_pool_survives_fork),
      cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_register),
      cmocka_unit_test(test_copies_that_cannot_be),
      cmocka_unit_test(test_texts_that_are_no_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
