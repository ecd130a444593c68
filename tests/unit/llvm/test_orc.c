// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/test_orc.c: tests the way from hand-written LLVM modules to images: accepted
// modules, and refused ones with the name of the reason.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <llvm-c/Core.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/reader.h"
#include "jit/llvm/guard.h"
#include "jit/llvm/image.h"

#if defined(__SANITIZE_ADDRESS__)  // gcc
#define QN_HAS_LSAN 1
#elif defined(__has_feature)  // clang
#define QN_HAS_LSAN __has_feature(address_sanitizer)
#else
#define QN_HAS_LSAN 0
#endif
#if QN_HAS_LSAN
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable() (void)0
#define __lsan_enable() (void)0
#endif

static qn__llvm_worker_pool_t pool;

static int set_up(void** state) {
  (void)state;
  return qn_ok(qn__llvm_worker_pool_init(&pool, qn_allocator_default())) ? 0 : -1;
}

static int tear_down(void** state) {
  (void)state;
  qn__llvm_worker_pool_deinit(&pool);
  return 0;
}

// One compile of LLVM text, with all that it holds.
typedef struct build {
  qn__llvm_worker_t* worker;
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMMemoryBufferRef object;
  LLVMTargetMachineRef machine;
  qn_target_t* target;
  qn__arena_t arena;
  qn__llvm_image_t image;
} build_t;

static void begin(build_t* build, const char* target, qn_tier_t tier, const char* text) {
  memset(build, 0, sizeof *build);
  qn__arena_init(&build->arena, qn_allocator_default());
  qn__llvm_image_init(&build->image, qn_allocator_default());
  assert_true(qn_ok(qn__llvm_worker_take(&pool, &build->worker)));
  assert_true(qn_ok(qn_target_parse(target, &build->target)));
  assert_true(qn_ok(qn__llvm_worker_machine(build->worker, build->target, tier, &build->machine)));
  build->context = LLVMContextCreate();
  LLVMMemoryBufferRef source =
      LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "test");
  char* message = NULL;
  if (LLVMParseIRInContext(build->context, source, &build->module, &message)) {
    fail_msg("%s", message);
  }
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(build->machine);
  LLVMSetModuleDataLayout(build->module, layout);
  LLVMDisposeTargetData(layout);
  qn_status_t status = qn__llvm_optimize(build->module, build->machine, tier);
  if (qn_ok(status)) {
    status =
        qn__llvm_image_emit_file(build->module, build->machine, LLVMObjectFile, &build->object);
  }
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
}

static qn_span_t object_of(const build_t* build) {
  return (qn_span_t){(const uint8_t*)LLVMGetBufferStart(build->object),
                     LLVMGetBufferSize(build->object)};
}

static void end(build_t* build) {
  qn__llvm_worker_give_back(&pool, build->worker, false);
  if (build->object) LLVMDisposeMemoryBuffer(build->object);
  LLVMDisposeModule(build->module);
  LLVMContextDispose(build->context);
  qn_target_release(build->target);
  qn__llvm_image_deinit(&build->image);
  qn__arena_deinit(&build->arena);
}

static const char* const entries[] = {"run"};

static qn_status_t link_one(build_t* build) {
  return qn__llvm_image_link(build->worker, object_of(build), entries, 1, &build->arena,
                             &build->image);
}

// The image where it was never linked, ready to be called.
static void* load(const qn__llvm_image_t* image, uint64_t offset) {
  size_t size = image->bytes.size;
  uint8_t* memory =
      mmap(NULL, size + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(memory, MAP_FAILED);
  memcpy(memory + 64, image->bytes.data, size);
  assert_int_equal(mprotect(memory, size + 64, PROT_READ | PROT_EXEC), 0);
  return memory + 64 + offset;
}

static void expect_refused(qn_status_t status, qn_status_code_t code, const char* part) {
  if (qn_ok(status)) fail_msg("it is not refused, but must be: %s", part);
  if (qn_status_code(status) != code || !strstr(qn_status_message(status), part)) {
    fail_msg("%s: %s", qn_status_code_text(qn_status_code(status)), qn_status_message(status));
  }
  qn_status_free(status);
}

// Constants in memory, a table of numbers, a switch that becomes a jump table, an internal function
// that is called and one that is pointed to.
static const char rich_text[] =
    "@table = private unnamed_addr constant [8 x i32] [i32 3, i32 1, i32 4, i32 1, i32 5, i32 9,"
    " i32 2, i32 6]\n"
    "define internal i32 @helper(i32 %x) noinline nounwind {\n"
    "  %y = mul i32 %x, 7\n"
    "  ret i32 %y\n"
    "}\n"
    "define dso_local i32 @run(i32 %k, ptr %out) nounwind {\n"
    "  store ptr @helper, ptr %out\n"
    "  switch i32 %k, label %other [ i32 0, label %a i32 1, label %b i32 2, label %c i32 3, label "
    "%d"
    " i32 4, label %e i32 5, label %f ]\n"
    "a:\n  %va = call i32 @helper(i32 %k)\n  br label %other\n"
    "b:\n  store volatile i32 11, ptr %out\n  br label %other\n"
    "c:\n  %fc = load volatile float, ptr %out\n  %gc = fmul float %fc, 0x400921FB60000000\n"
    "  store volatile float %gc, ptr %out\n  br label %other\n"
    "d:\n  store volatile <4 x float> <float 1.0, float 2.0, float 3.0, float 4.5>, ptr %out\n"
    "  br label %other\n"
    "e:\n  store volatile i32 14, ptr %out\n  br label %other\n"
    "f:\n  store volatile i64 15, ptr %out\n  br label %other\n"
    "other:\n"
    "  %m = and i32 %k, 7\n"
    "  %i = zext i32 %m to i64\n"
    "  %p = getelementptr [8 x i32], ptr @table, i64 0, i64 %i\n"
    "  %v = load i32, ptr %p\n"
    "  %w = call i32 @helper(i32 %v)\n"
    "  ret i32 %w\n"
    "}\n";

static void check_rich_image(const build_t* build) {
  typedef int32_t (*run_t)(int32_t, void*);
  void* code = load(&build->image, build->image.offsets[0]);
  run_t run;
  memcpy(&run, &code, sizeof run);
  static const int32_t table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
  _Alignas(16) float out[4] = {2, 0, 0, 0};
  assert_int_equal(run(3, out), 7 * table[3]);
  assert_true(out[0] == 1.0f && out[1] == 2.0f && out[2] == 3.0f && out[3] == 4.5f);
  int32_t small[4] = {0};
  assert_int_equal(run(4, small), 7 * table[4]);
  assert_int_equal(small[0], 14);
  int32_t (*helper)(int32_t);
  _Alignas(16) uint8_t bytes[16];
  assert_int_equal(run(6, bytes), 7 * table[6]);
  memcpy(&helper, bytes, sizeof helper);
  assert_int_equal(helper(6), 42);
}

static void test_image_runs_elsewhere(void** state) {
  (void)state;
  static const qn_tier_t tiers[] = {QN_TIER_FULL, QN_TIER_FAST};
  for (size_t i = 0; i < QN_COUNT_OF(tiers); ++i) {
    build_t build;
    begin(&build, "cpu -mcpu=x86-64-v2", tiers[i], rich_text);
    qn_status_t status = link_one(&build);
    if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
    assert_int_equal(build.image.offsets[0] % 16, 0);
    assert_true(build.image.sizes[0] > 0);
    check_rich_image(&build);
    end(&build);
  }
}

static void test_symbols(void** state) {
  (void)state;
  build_t build;
  begin(&build, "cpu -mcpu=x86-64-v2", QN_TIER_FULL, rich_text);
  assert_true(qn_ok(link_one(&build)));
  assert_int_equal(build.image.symbol_count, 2);
  uint64_t end_of_last = 0;
  bool has_run = false, has_helper = false;
  for (int i = 0; i < 2; ++i) {
    const qn__llvm_image_symbol_t* symbol = &build.image.symbols[i];
    assert_true(symbol->offset >= end_of_last && symbol->size_bytes > 0);
    end_of_last = symbol->offset + symbol->size_bytes;
    has_helper |= strcmp(symbol->name, "helper") == 0;
    if (strcmp(symbol->name, "run") == 0) {
      has_run = true;
      assert_int_equal(symbol->offset, build.image.offsets[0]);
      assert_int_equal(symbol->size_bytes, build.image.sizes[0]);
    }
  }
  assert_true(has_run && has_helper && end_of_last <= build.image.bytes.size);
  end(&build);
}

// What an image may not have. `inspected` is the message of the object's check, `linked` that of
// the linker alone, so that neither relies on the other.
static void refuse(const char* text, const char* inspected, const char* linked,
                   qn_status_code_t linked_code) {
  build_t build;
  begin(&build, "cpu -mcpu=x86-64-v2", QN_TIER_FULL, text);
  qn__llvm_object_t object;
  if (inspected) {
    expect_refused(link_one(&build), QN_STATUS_UNSUPPORTED, inspected);
  } else {
    assert_true(qn_ok(qn__llvm_object_inspect(object_of(&build), &build.arena, &object)));
  }
  qn__llvm_linker_t* linker;
  assert_true(qn_ok(qn__llvm_worker_linker(build.worker, &linker)));
  uint64_t offset = 0;
  qn__llvm_link_request_t request = {object_of(&build), 65536, 1, entries, &offset, &build.arena};
  expect_refused(qn__llvm_linker_link(linker, &request, &build.image.bytes), linked_code, linked);
  assert_true(qn__llvm_linker_is_broken(linker) || linked_code == QN_STATUS_INTERNAL);
  end(&build);
  // The worker is fit for the next one.
  begin(&build, "cpu -mcpu=x86-64-v2", QN_TIER_FULL, rich_text);
  assert_true(qn_ok(link_one(&build)));
  check_rich_image(&build);
  end(&build);
}

static void test_undefined_symbol(void** state) {
  (void)state;
  refuse(
      "declare float @sinf(float)\n"
      "define dso_local float @run(float %x) nounwind {\n"
      "  %y = call float @sinf(float %x)\n  ret float %y\n}\n",
      "it needs 'sinf'", "sinf", QN_STATUS_UNSUPPORTED);
  // A call that instruction selection makes.
  refuse(
      "declare double @llvm.pow.f64(double, double)\n"
      "define dso_local double @run(double %x) nounwind {\n"
      "  %y = call double @llvm.pow.f64(double %x, double %x)\n  ret double %y\n}\n",
      "it needs 'pow'", "pow", QN_STATUS_UNSUPPORTED);
  refuse(
      "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
      "define dso_local void @run(ptr %p, i64 %n) nounwind {\n"
      "  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)\n  ret void\n}\n",
      "it needs 'memset'", "memset", QN_STATUS_UNSUPPORTED);
}

static void test_table_of_addresses(void** state) {
  (void)state;
  // Not dso_local: the address comes out of the table.
  refuse(
      "@far = constant i32 5\n"
      "define dso_local ptr @run() nounwind {\n  ret ptr @far\n}\n",
      "no table of addresses", "no table of addresses", QN_STATUS_UNSUPPORTED);
}

static void test_writable_data(void** state) {
  (void)state;
  refuse(
      "@counter = internal global i32 5\n"
      "define dso_local i32 @run() nounwind {\n"
      "  %v = load volatile i32, ptr @counter\n  %w = add i32 %v, 1\n"
      "  store volatile i32 %w, ptr @counter\n  ret i32 %w\n}\n",
      "section '.data' of 4 bytes is", "section '.data' is", QN_STATUS_UNSUPPORTED);
  refuse(
      "@zeros = internal global [64 x i32] zeroinitializer\n"
      "define dso_local ptr @run() nounwind {\n  ret ptr @zeros\n}\n",
      "section '.bss'", "section '.bss' is", QN_STATUS_UNSUPPORTED);
  // A constant that holds an address must be relocated: LLVM puts it into a writable section.
  refuse(
      "@text = private unnamed_addr constant i32 7\n"
      "@pointer = internal constant ptr @text\n"
      "define dso_local ptr @run(i64 %i) nounwind {\n"
      "  %p = getelementptr ptr, ptr @pointer, i64 %i\n"
      "  %v = load volatile ptr, ptr %p\n  ret ptr %v\n}\n",
      ".data.rel.ro", ".data.rel.ro", QN_STATUS_UNSUPPORTED);
}

static void test_address_dependence(void** state) {
  (void)state;
  // An absolute address in the code: nothing but the comparison of two links finds it.
  LLVMInitializeX86AsmParser();
  refuse(
      "define dso_local i64 @run() nounwind {\n"
      "  %v = call i64 asm \"movabsq $$run, $0\", \"=r\"()\n  ret i64 %v\n}\n",
      NULL, "(.text + ", QN_STATUS_INTERNAL);
}

static void test_unwind_tables_are_dropped(void** state) {
  (void)state;
  build_t build;
  begin(&build, "cpu -mcpu=x86-64-v2", QN_TIER_FULL,
        "define dso_local i32 @run(i32 %x) uwtable {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n");
  qn_status_t status = link_one(&build);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  assert_true(build.image.bytes.size < 64);
  end(&build);
}

static void test_missing_entry(void** state) {
  (void)state;
  build_t build;
  begin(&build, "cpu -mcpu=x86-64-v2", QN_TIER_FULL,
        "define dso_local i32 @walk(i32 %x) nounwind {\n  ret i32 %x\n}\n");
  expect_refused(link_one(&build), QN_STATUS_INTERNAL, "no function 'run'");
  end(&build);
}

static void test_damaged_objects(void** state) {
  (void)state;
  build_t build;
  begin(&build, "cpu -mcpu=x86-64-v2", QN_TIER_FULL, rich_text);
  qn_span_t object = object_of(&build);
  qn__llvm_object_t info;
  for (size_t size = 0; size < object.size; size += size < 64 ? 1 : 37) {
    qn_status_t status =
        qn__llvm_object_inspect((qn_span_t){object.data, size}, &build.arena, &info);
    assert_int_equal(qn_status_consume(status), QN_STATUS_INTERNAL);
  }
  // Any flipped byte is described or refused, and never read past.
  uint8_t* copy = qn__alloc(qn_allocator_default(), object.size);
  assert_non_null(copy);
  for (size_t i = 0; i < object.size; ++i) {
    memcpy(copy, object.data, object.size);
    copy[i] ^= 0xff;
    (void)qn_status_consume(
        qn__llvm_object_inspect((qn_span_t){copy, object.size}, &build.arena, &info));
  }
  qn__free(qn_allocator_default(), copy, object.size);
  end(&build);
}

static void test_same_bytes_always(void** state) {
  (void)state;
  build_t first, other, again;
  begin(&first, "cpu -mcpu=x86-64-v3", QN_TIER_FULL, rich_text);
  assert_true(qn_ok(link_one(&first)));
  begin(&other, "cpu -mcpu=x86-64-v4", QN_TIER_FAST, rich_text);
  assert_true(qn_ok(link_one(&other)));
  end(&other);
  for (int i = 0; i < 3; ++i) {
    begin(&again, "cpu -mcpu=x86-64-v3", QN_TIER_FULL, rich_text);
    assert_true(qn_ok(link_one(&again)));
    assert_int_equal(again.image.bytes.size, first.image.bytes.size);
    assert_memory_equal(again.image.bytes.data, first.image.bytes.data, first.image.bytes.size);
    end(&again);
  }
  end(&first);
}

static void test_features_decide(void** state) {
  (void)state;
  // Eight floats at once: one 256-bit instruction with AVX, two of 128 bits without; the model's
  // name alone brings nothing.
  static const char text[] =
      "define dso_local void @run(ptr %a, ptr %b) nounwind {\n"
      "  %x = load <8 x float>, ptr %a, align 4\n  %y = load <8 x float>, ptr %b, align 4\n"
      "  %z = fadd <8 x float> %x, %y\n  store <8 x float> %z, ptr %a, align 4\n  ret void\n}\n";
  static const struct {
    const char* target;
    bool has_ymm;
  } cases[] = {
      {"cpu -mcpu=x86-64", false},
      {"cpu -mcpu=znver4", true},
      {"cpu -mcpu=znver4 -mattr=-avx", false},
      {"cpu -mcpu=x86-64 -tune=znver4", false},
      {"cpu -mcpu=x86-64 -mattr=+avx", true},
  };
  for (size_t i = 0; i < QN_COUNT_OF(cases); ++i) {
    build_t build;
    begin(&build, cases[i].target, QN_TIER_FULL, text);
    LLVMMemoryBufferRef assembly;
    assert_true(
        qn_ok(qn__llvm_image_emit_file(build.module, build.machine, LLVMAssemblyFile, &assembly)));
    bool has_ymm = strstr(LLVMGetBufferStart(assembly), "%ymm") != NULL;
    LLVMDisposeMemoryBuffer(assembly);
    assert_int_equal(has_ymm, cases[i].has_ymm);
    end(&build);
  }
}

static void test_other_architecture(void** state) {
  (void)state;
  build_t build;
  begin(&build, "cpu -mcpu=neoverse-n1", QN_TIER_FULL,
        "define dso_local i32 @run(i32 %x) nounwind {\n  %y = mul i32 %x, 3\n  ret i32 %y\n}\n");
  qn_status_t status = link_one(&build);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  assert_true(build.image.sizes[0] > 0 && build.image.sizes[0] % 4 == 0);
  end(&build);
}

// LLVM prints a warning for a processor or an extension that it does not know, and goes on with
// another.
static void test_llvm_knows_all_names(void** state) {
  (void)state;
  FILE* capture = tmpfile();
  assert_non_null(capture);
  int saved = dup(2);
  assert_true(saved >= 0);
  assert_true(dup2(fileno(capture), 2) >= 0);
  const qn__target_arch_t* arch;
  for (size_t a = 0; (arch = qn__arch_at(a)) != NULL; ++a) {
    for (size_t i = 0; i < arch->cpu_count; ++i) {
      char text[128];
      (void)snprintf(text, sizeof text, "cpu -mtriple=%s -mcpu=%s", arch->name, arch->cpus[i].name);
      build_t build;
      begin(&build, text, QN_TIER_FULL, "define dso_local void @run() nounwind {\n  ret void\n}\n");
      assert_true(qn_ok(link_one(&build)));
      end(&build);
    }
    for (size_t i = 0; i < arch->feature_count; ++i) {
      char text[128];
      (void)snprintf(text, sizeof text, "cpu -mtriple=%s -mcpu=%s -mattr=+%s", arch->name,
                     arch->cpus[0].name, arch->features[i].name);
      build_t build;
      begin(&build, text, QN_TIER_FAST, "define dso_local void @run() nounwind {\n  ret void\n}\n");
      end(&build);
    }
  }
  (void)dup2(saved, 2);
  (void)close(saved);
  char printed[256] = "";
  rewind(capture);
  size_t size = fread(printed, 1, sizeof printed - 1, capture);
  (void)fclose(capture);
  if (size > 0) fail_msg("LLVM printed: %s", printed);
}

static qn_status_t succeed(void* self) {
  *(int*)self = 5;
  return QN_OK;
}

typedef struct doomed {
  LLVMModuleRef module;
  LLVMTargetMachineRef machine;
} doomed_t;

static qn_status_t write_doomed(void* self) {
  const doomed_t* doomed = self;
  LLVMMemoryBufferRef buffer;
  return qn__llvm_image_emit_file(doomed->module, doomed->machine, LLVMObjectFile, &buffer);
}

// Runs before the assembly parser is there: LLVM then ends the process over inline assembly.
static void test_guard(void** state) {
  (void)state;
  bool is_abandoned = true;
  int number = 0;
  assert_true(qn_ok(qn__llvm_guard_run(succeed, &number, &is_abandoned)));
  assert_int_equal(number, 5);
  assert_false(is_abandoned);
  build_t build;
  begin(&build, "cpu -mcpu=x86-64-v2", QN_TIER_FULL, rich_text);
  // The context, the module and the machine are lost with LLVM's frames.
  static LLVMContextRef lost_context;
  static LLVMModuleRef lost_module;
  static LLVMTargetMachineRef lost_machine;
  static const char text[] =
      "define dso_local i64 @run() nounwind {\n"
      "  %v = call i64 asm \"nop\", \"=r\"()\n  ret i64 %v\n}\n";
  lost_context = LLVMContextCreate();
  char* message;
  assert_false(LLVMParseIRInContext(
      lost_context, LLVMCreateMemoryBufferWithMemoryRangeCopy(text, sizeof text - 1, "doomed"),
      &lost_module, &message));
  qn__llvm_worker_t* worker;
  assert_true(qn_ok(qn__llvm_worker_take(&pool, &worker)));
  assert_true(qn_ok(qn__llvm_worker_machine(worker, build.target, QN_TIER_FULL, &lost_machine)));
  doomed_t doomed = {lost_module, lost_machine};
  __lsan_disable();  // what LLVM's frames held is lost on purpose
  qn_status_t status = qn__llvm_guard_run(write_doomed, &doomed, &is_abandoned);
  __lsan_enable();
  expect_refused(status, QN_STATUS_INTERNAL, "LLVM gave up: Inline asm not supported");
  assert_true(is_abandoned);
  qn__llvm_worker_give_back(&pool, worker, true);
  // Others go on.
  assert_true(qn_ok(link_one(&build)));
  check_rich_image(&build);
  end(&build);
}

int main(int argc, char** argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_guard),
      cmocka_unit_test(test_image_runs_elsewhere),
      cmocka_unit_test(test_symbols),
      cmocka_unit_test(test_undefined_symbol),
      cmocka_unit_test(test_table_of_addresses),
      cmocka_unit_test(test_writable_data),
      cmocka_unit_test(test_address_dependence),
      cmocka_unit_test(test_unwind_tables_are_dropped),
      cmocka_unit_test(test_missing_entry),
      cmocka_unit_test(test_damaged_objects),
      cmocka_unit_test(test_same_bytes_always),
      cmocka_unit_test(test_features_decide),
      cmocka_unit_test(test_other_architecture),
      cmocka_unit_test(test_llvm_knows_all_names),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
