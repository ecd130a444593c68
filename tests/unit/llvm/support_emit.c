// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/support_emit.c: see support_emit.h.
#include "support_emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ir/encode.h"
#include "ir/passes/passes.h"
#include "jit/llvm/compile.h"
#include "jit/llvm/image.h"
#include "quern/target.h"
#include "target/host.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void die(const char* what, const char* message) {
  (void)fprintf(stderr, "%s: %s\n", what, message);
  abort();
}

static void check(LLVMErrorRef error, const char* what) {
  if (error) die(what, LLVMGetErrorMessage(error));
}

qn_module_t* parse_or_die(const char* text) {
  qn_module_t* module;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) die("parse", qn_status_message(status));
  return module;
}

typedef struct level {
  const char* cpu;
  bool has_fma, has_round, has_f16c, has_avx2, has_avx512;
  uint32_t vector_bytes;
} level_t;

static bool host_has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool host_has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static level_t level_of(const char* cpu) {
  level_t base = {cpu, false, false, false, false, false, 16};
  level_t v3 = {cpu, true, true, true, true, false, 32};
  level_t v4 = {cpu, true, true, true, true, true, 64};
  if (strcmp(cpu, "x86-64-v3") == 0) return v3;
  if (strcmp(cpu, "x86-64-v4") == 0) return v4;
  if (strcmp(cpu, "cascadelake") == 0 || strcmp(cpu, "cooperlake") == 0) return v4;
  if (strcmp(cpu, "sapphirerapids") == 0) return v4;
  if (strcmp(cpu, "native") == 0) return host_has_avx512() ? v4 : host_has_avx2() ? v3 : base;
  return base;
}

bool build_can_run(const char* cpu) {
  if (strcmp(cpu, "x86-64-v3") == 0) return host_has_avx2();
  if (strcmp(cpu, "x86-64-v4") == 0) return host_has_avx512();
  if (strcmp(cpu, "cascadelake") == 0) {
    return host_has_avx512() && __builtin_cpu_supports("avx512vnni");
  }
  if (strcmp(cpu, "sapphirerapids") == 0) {
    const qn__target_host_cpu_t* host = qn__host_cpu();
    return build_can_run("cooperlake") &&
           qn__features_has(host->arch, host->features, "amx-int8") &&
           qn__features_has(host->arch, host->features, "amx-bf16") &&
           qn__features_has(host->arch, host->features, "avx512fp16");
  }
  if (strcmp(cpu, "cooperlake") == 0) {
    return build_can_run("cascadelake") && __builtin_cpu_supports("avx512bf16");
  }
  return true;
}

static LLVMTargetMachineRef make_machine(build_t build) {
  static bool is_ready = false;
  if (!is_ready) {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    is_ready = true;
  }
  char* triple = LLVMGetDefaultTargetTriple();
  LLVMTargetRef target;
  char* message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) die("target", message);
  bool is_native = strcmp(build.cpu, "native") == 0;
  char* cpu = is_native ? LLVMGetHostCPUName() : LLVMCreateMessage(build.cpu);
  char* features = is_native ? LLVMGetHostCPUFeatures() : LLVMCreateMessage("");
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(
      target, triple, cpu, features, build.is_fast ? LLVMCodeGenLevelNone : LLVMCodeGenLevelDefault,
      LLVMRelocPIC, LLVMCodeModelSmall);
  LLVMDisposeMessage(cpu);
  LLVMDisposeMessage(features);
  LLVMDisposeMessage(triple);
  return machine;
}

static void optimise(LLVMModuleRef module, LLVMTargetMachineRef machine, build_t build) {
  char* message = NULL;
  if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) {
    LLVMDumpModule(module);
    die("the emitted module is not valid", message);
  }
  LLVMDisposeMessage(message);
  if (build.is_fast || !build.is_scalar) {
    must(qn__llvm_optimize(module, machine, build.is_fast ? QN_TIER_FAST : QN_TIER_FULL));
    return;
  }
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  check(LLVMRunPasses(module, "default<O2>", machine, options), "passes");
  LLVMDisposePassBuilderOptions(options);
}

static void link_object(kernels_t* kernels, LLVMMemoryBufferRef object) {
  LLVMOrcLLJITRef jit;
  check(LLVMOrcCreateLLJIT(&jit, LLVMOrcCreateLLJITBuilder()), "LLJIT");
  kernels->jit = jit;
  LLVMOrcJITDylibRef library = LLVMOrcLLJITGetMainJITDylib(jit);
  check(LLVMOrcLLJITAddObjectFile(jit, library, object), "object");
  for (size_t i = 0; i < kernels->result.function_count; ++i) {
    LLVMOrcExecutorAddress address;
    check(LLVMOrcLLJITLookup(jit, &address, kernels->result.functions[i].name), "lookup");
    uintptr_t place = (uintptr_t)address;
    memcpy(&kernels->entries[i], &place, sizeof place);
  }
}

// Returns the dot instructions of a processor for vectors of some bytes, and the operators of its
// tile registers: none of "native".
static uint32_t dot_rows_of(const char* cpu, uint32_t vector_bytes, uint32_t* out_tile_ops) {
  *out_tile_ops = 0;
  if (strcmp(cpu, "native") == 0) return 0;
  char text[64];
  (void)snprintf(text, sizeof text, "cpu -mcpu=%s -vector_width=%u", cpu, 8 * vector_bytes);
  qn_target_t* target;
  qn_status_t status = qn_target_parse(text, &target);
  if (!qn_ok(status)) die("target", qn_status_message(status));
  uint32_t rows = qn__emit_dot_rows(target);
  *out_tile_ops = qn__emit_tile_ops(target);
  qn_target_release(target);
  return rows;
}

// Passes and emission. The module is in `out`, NULL on failure.
static qn_status_t emit(const qn_module_t* module, build_t build, LLVMContextRef context,
                        LLVMTargetMachineRef machine, qn__arena_t* arena,
                        qn__llvm_emit_result_t* out) {
  level_t level = level_of(build.cpu);
  if (build.vector_bytes) level.vector_bytes = build.vector_bytes;
  uint32_t tile_ops, dot_rows = dot_rows_of(build.cpu, level.vector_bytes, &tile_ops);
  qn__ir_body_t body;
  qn_span_t bytes = {module->bytes, module->byte_count};
  QN_TRY(qn__body_decode(bytes, qn_allocator_default(), &body));
  qn__pass_options_t pass_options = {.vector_bytes = level.vector_bytes,
                                     .has_masked_memory = level.has_avx512,
                                     .has_masked_words = level.has_avx2,
                                     .has_blocks = !build.is_fast,
                                     .l1_bytes = build.l1_bytes,
                                     .l2_bytes = build.l2_bytes,
                                     .has_fma = level.has_fma,
                                     .dots = qn__emit_dot_ops(dot_rows),
                                     .has_exact_dots = true,
                                     .tile_dots = tile_ops,
                                     .is_checked = build.is_checked};
  qn_status_t status = build.is_raw ? QN_OK : qn__passes_run_cpu(&body, &pass_options);
  qn__llvm_emit_options_t options = {.context = context,
                                     .machine = machine,
                                     .vector_bytes = level.vector_bytes,
                                     .has_fma = level.has_fma,
                                     .has_round = level.has_round,
                                     .has_f16c = level.has_f16c,
                                     .has_avx2 = level.has_avx2,
                                     .has_avx512 = level.has_avx512,
                                     .dot_rows = dot_rows,
                                     .has_tiles = tile_ops != 0,
                                     .is_checked = build.is_checked,
                                     .is_fast_tier = build.is_fast,
                                     .is_scalar_only = build.is_scalar};
  if (qn_ok(status))
    status = qn__emit_module(body.first, body.function_count, &options, arena, out);
  qn__body_deinit(&body);
  return status;
}

qn_status_t emit_only(const qn_module_t* module, build_t build, size_t room_bytes) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMTargetMachineRef machine = make_machine(build);
  qn__arena_t arena;
  // The arena has one block, of which only the end is left, and gets no second one.
  enum { BLOCK_BYTES = 1 << 16 };
  qn_fault_heap_t heap;
  qn_fault_heap_init(&heap);
  qn__arena_init(&arena, qn_fault_heap_allocator(&heap));
  if (!qn__arena_alloc(&arena, BLOCK_BYTES) || room_bytes > BLOCK_BYTES) die("memory", "arena");
  arena.used_bytes = BLOCK_BYTES - room_bytes;
  qn_fault_heap_arm(&heap, 1, QN_FAULT_ALWAYS);
  qn__llvm_emit_result_t result = {.module = NULL};
  qn_status_t status = emit(module, build, context, machine, &arena, &result);
  char* message = NULL;
  if (result.module && LLVMVerifyModule(result.module, LLVMReturnStatusAction, &message)) {
    die("the emitted module is not valid", message);
  }
  LLVMDisposeMessage(message);
  if (result.module) LLVMDisposeModule(result.module);
  qn__arena_deinit(&arena);
  LLVMDisposeTargetMachine(machine);
  LLVMContextDispose(context);
  return status;
}

kernels_t* kernels_create(const qn_module_t* module, build_t build, bool keeps_text,
                          qn_status_t* out_error) {
  kernels_t* kernels = calloc(1, sizeof *kernels);
  if (!kernels) die("memory", "none");
  qn__arena_init(&kernels->arena, qn_allocator_default());
  LLVMContextRef context = LLVMContextCreate();
  LLVMTargetMachineRef machine = make_machine(build);
  double start = now_ms();
  *out_error = emit(module, build, context, machine, &kernels->arena, &kernels->result);
  if (!qn_ok(*out_error)) {
    LLVMDisposeTargetMachine(machine);
    LLVMContextDispose(context);
    kernels_destroy(kernels);
    return NULL;
  }
  kernels->emit_ms = now_ms() - start;
  start = now_ms();
  optimise(kernels->result.module, machine, build);
  kernels->passes_ms = now_ms() - start;
  if (keeps_text) kernels->llvm_text = LLVMPrintModuleToString(kernels->result.module);
  LLVMMemoryBufferRef object;
  char* message = NULL;
  start = now_ms();
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, kernels->result.module, LLVMObjectFile, &message,
                                          &object)) {
    die("code generation", message);
  }
  kernels->codegen_ms = now_ms() - start;
  LLVMDisposeModule(kernels->result.module);
  kernels->result.module = NULL;
  LLVMDisposeTargetMachine(machine);
  LLVMContextDispose(context);
  link_object(kernels, object);
  return kernels;
}

void kernels_destroy(kernels_t* kernels) {
  if (!kernels) return;
  if (kernels->jit) check(LLVMOrcDisposeLLJIT(kernels->jit), "dispose");
  if (kernels->llvm_text) LLVMDisposeMessage(kernels->llvm_text);
  qn__arena_deinit(&kernels->arena);
  free(kernels);
}

// ------------------------------------------------------------------------------------ the table

typedef struct table {
  qn_cpu_env_t env;
  run_report_t report;
  uint32_t pieces;
  uint32_t allocation_limit;
} table_t;

static table_t* table_of(const qn_cpu_env_t* env) {
  union {
    const void* from;
    void* to;
  } view = {env};
  return view.to;
}

// Uneven ranges, backwards: nothing may depend on their order.
static int32_t run_parallel(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure,
                            int64_t count, int64_t grain) {
  table_t* table = table_of(env);
  table->report.parallel_calls++;
  if (count <= 0 || grain <= 0) die("parallel", "a launch without iterations or grain");
  int64_t end = count;
  for (uint32_t i = 0; i < table->pieces && end > 0; ++i) {
    int64_t begin = i + 1 == table->pieces ? 0 : end - (end + 2) / 3;
    if (body(env, closure, begin, end) != 0) return 1;
    end = begin;
  }
  return 0;
}

static void* run_allocate(const qn_cpu_env_t* env, int64_t size_bytes) {
  table_t* table = table_of(env);
  if (size_bytes <= 0) die("allocate", "no bytes");
  if (table->report.allocations >= table->allocation_limit) return NULL;
  if (size_bytes > (INT64_C(1) << 32)) return NULL;
  table->report.allocations++;
  table->report.held_workspaces++;
  return aligned_alloc(64, ((size_t)size_bytes + 63) / 64 * 64);
}

static void run_release(const qn_cpu_env_t* env, void* pointer) {
  table_of(env)->report.held_workspaces--;
  free(pointer);
}

static void run_fail(const qn_cpu_env_t* env, uint32_t site, int64_t index, int64_t extent) {
  run_report_t* report = &table_of(env)->report;
  if (report->fail_count++ > 0) return;
  report->site = site;
  report->index = index;
  report->extent = extent;
}

run_report_t kernels_run(const kernels_t* kernels, size_t function, const uint64_t* words,
                         uint32_t pieces, uint32_t allocation_limit) {
  static const qn_cpu_functions_t functions = {QN_CPU_ABI_VERSION, sizeof functions, run_parallel,
                                               run_allocate,       run_release,      run_fail};
  table_t table = {
      .env = {&functions}, .pieces = pieces ? pieces : 1, .allocation_limit = allocation_limit};
  table.report.result = kernels->entries[function](&table.env, words);
  return table.report;
}

// ---- assembly

typedef struct text {
  char* data;
  size_t size;
} text_t;

static qn_status_t append(void* self, const void* bytes, size_t size) {
  text_t* text = self;
  text->data = realloc(text->data, text->size + size + 1);
  if (!text->data) abort();
  memcpy(text->data + text->size, bytes, size);
  text->size += size;
  text->data[text->size] = '\0';
  return QN_OK;
}

char* assembly_of(const char* program, const char* target_text) {
  qn__llvm_t* llvm;
  qn_target_t* target;
  must(qn__llvm_create(qn_allocator_default(), &llvm));
  must(qn_target_parse(target_text, &target));
  qn_module_t* module = parse_or_die(program);
  qn_compile_request_t request = {
      .struct_size = sizeof request, .target_json = qn_target_json(target), .tier = QN_TIER_FULL};
  request.module_bytes = qn_module_bytes(module, &request.module_size);
  text_t text = {NULL, 0};
  must(qn__llvm_emit(llvm, &request, "asm", (qn_sink_t){&text, append}));
  qn_module_release(module);
  qn_target_release(target);
  qn__llvm_destroy(llvm);
  return text.data;
}
