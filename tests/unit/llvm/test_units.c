// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // MAP_ANONYMOUS
// tests/unit/llvm/test_units.c: modules that are compiled in units: equal bytes for any number and
// order of threads, code and symbols across units, failures, fatal errors of LLVM, and memory.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/digest.h"
#include "base/reader.h"
#include "jit/llvm/compile.h"
#include "jit/llvm/image.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable() (void)0
#define __lsan_enable() (void)0
#endif

enum { FUNCTION_COUNT = 40, MAX_THREADS = 4 };

static qn__llvm_t* llvm;
static qn_target_t* target;

static int set_up(void** state) {
  (void)state;
  must(qn_target_parse("cpu", &target));
  return qn_ok(qn__llvm_create(qn_allocator_default(), &llvm)) ? 0 : -1;
}

static int tear_down(void** state) {
  (void)state;
  qn__llvm_destroy(llvm);
  qn_target_release(target);
  return 0;
}

// Functions of different sizes: gI adds a sum of constants to each element, I of them.
static qn_module_t* make_module(int count) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  for (int i = 0; i < count; ++i) {
    qn__buffer_format(&text, "func g%d(x: f32[n], out y: f32[n]) {\n", i);
    qn__buffer_cstr(&text, "  parallel i in 0..n {\n    let v0 = x[i];\n");
    for (int k = 1; k <= i; ++k) {
      qn__buffer_format(&text, "    let v%d = v%d + %d.0;\n", k, k - 1, k);
    }
    qn__buffer_format(&text, "    assert i >= 0, \"of g%d\";\n    y[i] = v%d;\n  }\n}\n", i, i);
  }
  must(qn__buffer_status(&text, "a program"));
  qn_module_t* module = must_parse((const char*)text.data);
  qn__buffer_deinit(&text);
  return module;
}

// ------------------------------------------------------------------------------------ threads

typedef enum order { IN_TURN, BACKWARDS, ON_THREADS } order_t;

// Offers threads as an engine does.
typedef struct offer {
  order_t order;
  size_t thread_count;
  bool is_lossy;     // LLVM's frames may be lost, with what they hold
  size_t calls;      // of run_parallel
  size_t max_count;  // the most items of a call
  // Of a call.
  size_t count;
  qn_status_t (*run)(void* arg, size_t index);
  void* arg;
  _Atomic size_t next;
  qn_status_t statuses[256];
} offer_t;

// The item that this thread runs.
static _Thread_local size_t current_item;

static void* run_some(void* self) {
  offer_t* offer = self;
  for (;;) {
    size_t next = atomic_fetch_add(&offer->next, 1);
    if (next >= offer->count) return NULL;
    size_t item = offer->order == BACKWARDS ? offer->count - 1 - next : next;
    current_item = item;
    if (offer->is_lossy) __lsan_disable();
    offer->statuses[item] = offer->run(offer->arg, item);
    if (offer->is_lossy) __lsan_enable();
  }
}

static qn_status_t run_parallel(void* self, size_t count,
                                qn_status_t (*run)(void* arg, size_t index), void* arg) {
  offer_t* offer = self;
  assert_true(count > 1 && count <= QN_COUNT_OF(offer->statuses));
  offer->calls++;
  if (count > offer->max_count) offer->max_count = count;
  offer->count = count;
  offer->run = run;
  offer->arg = arg;
  offer->next = 0;
  pthread_t threads[MAX_THREADS];
  for (size_t i = 0; i < offer->thread_count; ++i) {
    must(qn__thread_start(&threads[i], "unit", 0, run_some, offer));
  }
  if (offer->thread_count == 0) (void)run_some(offer);
  for (size_t i = 0; i < offer->thread_count; ++i) (void)pthread_join(threads[i], NULL);
  qn_status_t first = QN_OK;
  for (size_t i = 0; i < count; ++i) {
    if (qn_ok(first)) {
      first = offer->statuses[i];
    } else {
      qn_status_free(offer->statuses[i]);
    }
  }
  return first;
}

static qn_compile_request_t request_of(const qn_module_t* module, qn_tier_t tier, offer_t* offer) {
  qn_compile_request_t request = {.struct_size = sizeof request,
                                  .target_json = qn_target_json(target),
                                  .tier = tier,
                                  .is_checked = true};
  request.module_bytes = qn_module_bytes(module, &request.module_size);
  if (offer) {
    request.run_parallel = run_parallel;
    request.run_parallel_self = offer;
  }
  return request;
}

static void expect_equal(const qn_artifact_t* a, const qn_artifact_t* b) {
  assert_int_equal(a->payload_size, b->payload_size);
  assert_memory_equal(a->payload, b->payload, a->payload_size);
  assert_int_equal(a->metadata_size, b->metadata_size);
  assert_memory_equal(a->metadata, b->metadata, a->metadata_size);
  assert_int_equal(a->function_count, b->function_count);
  for (size_t i = 0; i < a->function_count; ++i) {
    const qn_artifact_function_t* one = &a->functions[i];
    const qn_artifact_function_t* other = &b->functions[i];
    assert_string_equal(one->name, other->name);
    assert_int_equal(one->code_offset, other->code_offset);
    assert_int_equal(one->code_size_bytes, other->code_size_bytes);
    assert_int_equal(one->launch_count, other->launch_count);
    assert_int_equal(one->site_count, other->site_count);
  }
}

static void test_bytes_do_not_depend_on_threads(void** state) {
  (void)state;
  static const struct {
    order_t order;
    size_t thread_count;
  } ways[] = {{IN_TURN, 0}, {BACKWARDS, 0}, {ON_THREADS, 1}, {ON_THREADS, 2}, {ON_THREADS, 4}};
  qn_module_t* module = make_module(FUNCTION_COUNT);
  for (int fast = 0; fast < 2; ++fast) {
    qn_tier_t tier = fast ? QN_TIER_FAST : QN_TIER_FULL;
    qn_compile_request_t request = request_of(module, tier, NULL);
    qn_artifact_t* expected;
    must(qn__llvm_compile(llvm, &request, &expected));
    for (size_t i = 0; i < QN_COUNT_OF(ways); ++i) {
      offer_t offer = {.order = ways[i].order, .thread_count = ways[i].thread_count};
      request = request_of(module, tier, &offer);
      qn_artifact_t* artifact;
      must(qn__llvm_compile(llvm, &request, &artifact));
      expect_equal(artifact, expected);
      artifact->release(artifact);
      // Once for the passes of each function and once for the units, of which there are several.
      assert_int_equal(offer.calls, 2);
      assert_int_equal(offer.max_count, FUNCTION_COUNT);
      assert_true(offer.count >= 4 && offer.count < FUNCTION_COUNT);
    }
    expected->release(expected);
  }
  qn_module_release(module);
}

// A small module is one unit, and its functions' passes may still run at once.
static void test_small_modules_are_one_unit(void** state) {
  (void)state;
  for (int count = 1; count <= 3; ++count) {
    qn_module_t* module = make_module(count);
    offer_t offer = {.order = IN_TURN};
    qn_compile_request_t request = request_of(module, QN_TIER_FULL, &offer);
    qn_artifact_t* artifact;
    must(qn__llvm_compile(llvm, &request, &artifact));
    assert_int_equal(offer.calls, count > 1);
    artifact->release(artifact);
    qn_module_release(module);
  }
}

// ------------------------------------------------------------------------------------ the code

static int32_t run_loop(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure, int64_t count,
                        int64_t grain) {
  (void)grain;
  return body(env, closure, 0, count);
}

// Calls each function where the artifact says that it is, and compares the table of symbols.
static void test_code_of_all_units(void** state) {
  (void)state;
  enum { ELEMENTS = 37 };
  qn_module_t* module = make_module(FUNCTION_COUNT);
  qn_compile_request_t request = request_of(module, QN_TIER_FAST, NULL);
  qn_artifact_t* artifact;
  must(qn__llvm_compile(llvm, &request, &artifact));
  void* code = mmap(NULL, artifact->payload_size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(code != MAP_FAILED);
  memcpy(code, artifact->payload, artifact->payload_size);
  assert_int_equal(mprotect(code, artifact->payload_size, PROT_READ | PROT_EXEC), 0);
  const qn_cpu_functions_t functions = {
      .abi_version = QN_CPU_ABI_VERSION, .struct_size = sizeof functions, .parallel = run_loop};
  const qn_cpu_env_t env = {&functions};
  float x[ELEMENTS], y[ELEMENTS];
  for (int i = 0; i < ELEMENTS; ++i) x[i] = (float)i;
  const uint64_t words[] = {(uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)y, ELEMENTS, ELEMENTS};
  assert_int_equal(artifact->function_count, FUNCTION_COUNT);
  for (int f = 0; f < FUNCTION_COUNT; ++f) {
    const qn_artifact_function_t* function = &artifact->functions[f];
    assert_string_equal(function->name, qn_module_function_name(module, (size_t)f));
    const void* address = (const uint8_t*)code + function->code_offset;
    qn_cpu_kernel_t kernel;
    memcpy(&kernel, &address, sizeof kernel);
    memset(y, 0, sizeof y);
    assert_int_equal(kernel(&env, words), 0);
    for (int i = 0; i < ELEMENTS; ++i) {
      assert_true(y[i] == (float)i + (float)(f * (f + 1)) / 2.0F);
    }
  }
  (void)munmap(code, artifact->payload_size);
  // Each function has a symbol at its place; the symbols follow one another.
  qn__reader_t reader = qn__reader_make((qn_span_t){artifact->metadata, artifact->metadata_size});
  uint64_t count = qn__read_varint(&reader), end = 0;
  size_t found = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t offset = qn__read_varint(&reader);
    uint64_t size = qn__read_varint(&reader);
    qn_span_t run = qn__read_run(&reader);
    qn_str_t name = {(const char*)run.data, run.size};
    assert_true(offset >= end && offset + size <= artifact->payload_size);
    end = offset + size;
    const qn_artifact_function_t* next = &artifact->functions[found];
    if (found < FUNCTION_COUNT && qn__str_equal(name, qn__str(next->name))) {
      assert_int_equal(offset, next->code_offset);
      assert_int_equal(size, next->code_size_bytes);
      ++found;
    }
  }
  assert_int_equal(found, FUNCTION_COUNT);
  assert_false(reader.has_overrun);
  artifact->release(artifact);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ failures

// The first function that fails is named, whichever thread comes to it first.
static void test_first_failure_counts(void** state) {
  (void)state;
  static const char good[] =
      "func a(x: f32[n], out y: f32[n]) {\n  parallel i in 0..n {\n    y[i] = x[i];\n  }\n}\n";
  static const char bad[] =
      "func %s(x: f32[n], out y: f32[n]) {\n"
      "  thread.y u in 0..1 {\n    let m = n;\n"
      "    thread.x t in 0..m {\n      y[t] = block_sum(x[t]);\n    }\n  }\n}\n";
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__buffer_cstr(&text, good);
  qn__buffer_format(&text, bad, "first");
  qn__buffer_format(&text, bad, "second");
  must(qn__buffer_status(&text, "a program"));
  qn_module_t* module = must_parse((const char*)text.data);
  qn__buffer_deinit(&text);
  for (int order = IN_TURN; order <= ON_THREADS; ++order) {
    offer_t offer = {.order = (order_t)order, .thread_count = order == ON_THREADS ? 3 : 0};
    qn_compile_request_t request = request_of(module, QN_TIER_FULL, &offer);
    qn_artifact_t* artifact;
    must_fail(qn__llvm_compile(llvm, &request, &artifact), QN_STATUS_UNSUPPORTED,
              "function 'first'");
    assert_null(artifact);
  }
  qn_module_release(module);
}

// Ends LLVM fatally in one unit, by compiling inline assembly without its parser.
static void fail_in_unit(void* self, qn_compile_stage_t stage, int64_t duration_ns) {
  (void)duration_ns;
  static const char text[] =
      "define dso_local i64 @run() nounwind {\n"
      "  %v = call i64 asm \"nop\", \"=r\"()\n  ret i64 %v\n}\n";
  const size_t* unit = self;
  if (stage != QN_COMPILE_EMIT || current_item != *unit) return;
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module;
  char* message;
  assert_false(LLVMParseIRInContext(
      context, LLVMCreateMemoryBufferWithMemoryRangeCopy(text, sizeof text - 1, "doomed"), &module,
      &message));
  qn__llvm_worker_t* worker;
  LLVMTargetMachineRef machine;
  must(qn__llvm_worker_take(&llvm->pool, &worker));
  must(qn__llvm_worker_machine(worker, target, QN_TIER_FULL, &machine));
  LLVMMemoryBufferRef buffer;
  (void)qn__llvm_image_emit_file(module, machine, LLVMObjectFile, &buffer);
  fail_msg("LLVM went on");
}

// The other units are compiled, and so is the next module.
static void test_fatal_error_in_a_unit(void** state) {
  (void)state;
  __lsan_disable();  // a worker that an earlier compile made may be lost
  qn_module_t* module = make_module(FUNCTION_COUNT);
  qn_compile_request_t request = request_of(module, QN_TIER_FULL, NULL);
  qn_artifact_t* expected;
  must(qn__llvm_compile(llvm, &request, &expected));
  for (size_t unit = 0; unit < 2; ++unit) {
    offer_t offer = {.order = ON_THREADS, .thread_count = 2, .is_lossy = true};
    request = request_of(module, QN_TIER_FULL, &offer);
    request.on_stage = fail_in_unit;
    request.on_stage_self = &unit;
    qn_artifact_t* artifact;
    must_fail(qn__llvm_compile(llvm, &request, &artifact), QN_STATUS_INTERNAL,
              "LLVM gave up: Inline asm not supported");
    assert_null(artifact);
    offer = (offer_t){.order = ON_THREADS, .thread_count = 2, .is_lossy = true};
    request = request_of(module, QN_TIER_FULL, &offer);
    must(qn__llvm_compile(llvm, &request, &artifact));
    expect_equal(artifact, expected);
    artifact->release(artifact);
  }
  expected->release(expected);
  qn_module_release(module);
  __lsan_enable();
}

static bool compile_with(qn_allocator_t allocator, void* user) {
  const qn_compile_request_t* request = user;
  qn__llvm_t* own = NULL;
  qn_status_t status = qn__llvm_create(allocator, &own);
  qn_artifact_t* artifact = NULL;
  if (qn_ok(status)) status = qn__llvm_compile(own, request, &artifact);
  bool is_fine = qn_ok(status) ? artifact != NULL : artifact == NULL;
  if (artifact) artifact->release(artifact);
  qn__llvm_destroy(own);
  qn_status_code_t code = qn_status_consume(status);
  return is_fine && (code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY);
}

// Every allocation of a module of two units fails once.
static void test_out_of_memory(void** state) {
  (void)state;
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  for (int f = 0; f < 2; ++f) {
    qn__buffer_format(&text, "func g%d(inout y: f32[n]) {\n", f);
    for (int i = 0; i < 90; ++i) qn__buffer_format(&text, "  y[%d] = y[%d] * 0.5;\n", i, i);
    qn__buffer_cstr(&text, "}\n");
  }
  must(qn__buffer_status(&text, "a program"));
  qn_module_t* module = must_parse((const char*)text.data);
  qn__buffer_deinit(&text);
  offer_t offer = {.order = IN_TURN};
  qn_compile_request_t request = request_of(module, QN_TIER_FAST, &offer);
  request.is_checked = false;
  assert_true(compile_with(qn_allocator_default(), &request));
  assert_int_equal(offer.calls, 2);
  long runs = qn_fault_walk_alloc(compile_with, &request);
  if (runs <= 30) fail_msg("the walk ended at %ld", runs);
  qn_module_release(module);
}

int main(int argc, char** argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fatal_error_in_a_unit),  // before the assembly parser is there
      cmocka_unit_test(test_bytes_do_not_depend_on_threads),
      cmocka_unit_test(test_small_modules_are_one_unit),
      cmocka_unit_test(test_code_of_all_units),
      cmocka_unit_test(test_first_failure_counts),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
