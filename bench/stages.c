// SPDX-License-Identifier: Apache-2.0
// bench/stages.c: see stages.h. The order is that of jit/llvm/compile.c, whose total bench_compile
// measures next to the sum of these. links: llvm
#include "bench/stages.h"

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "ir/encode.h"
#include "ir/passes/passes.h"
#include "ir/verify.h"
#include "jit/llvm/emit.h"
#include "jit/llvm/image.h"

const char* const stage_texts[STAGE_COUNT] = {
    "decode and verify",     "our passes",           "emit LLVM code", "LLVM's passes",
    "LLVM's code generator", "checks and two links",
};

typedef struct work {
  const qn_module_t* module;
  const qn_target_t* target;
  way_t way;
  qn__ir_body_t body;
  bool has_body;
  qn__arena_t arena;
  qn__llvm_worker_t* worker;
  LLVMTargetMachineRef machine;
  LLVMContextRef context;
  qn__llvm_emit_result_t emitted;
  LLVMMemoryBufferRef object;
  qn__llvm_image_t image;
} work_t;

static qn_status_t decode(work_t* work) {
  size_t size;
  const void* bytes = qn_module_bytes(work->module, &size);
  QN_TRY(qn__body_decode((qn_span_t){bytes, size}, qn_allocator_default(), &work->body));
  work->has_body = true;
  return qn__body_verify_status(&work->body, "the module");
}

static qn_status_t run_passes(work_t* work) {
  qn__pass_options_t options = {.vector_bytes = qn__target_vector_bytes(work->target),
                                .has_masked_memory = qn__target_has_masked_memory(work->target),
                                .has_masked_words = qn__target_has_masked_words(work->target)};
  return qn__passes_run_cpu(&work->body, &options);
}

// Marks additions to a value that a loop carries: the steps of a sum.
static void license_sums(LLVMModuleRef module) {
  LLVMValueRef function = LLVMGetFirstFunction(module);
  for (; function; function = LLVMGetNextFunction(function)) {
    LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(function);
    for (; block; block = LLVMGetNextBasicBlock(block)) {
      LLVMValueRef at = LLVMGetFirstInstruction(block);
      for (; at; at = LLVMGetNextInstruction(at)) {
        if (LLVMGetInstructionOpcode(at) != LLVMFAdd) continue;
        bool is_step =
            LLVMIsAPHINode(LLVMGetOperand(at, 0)) || LLVMIsAPHINode(LLVMGetOperand(at, 1));
        if (is_step) LLVMSetFastMathFlags(at, LLVMFastMathAllowReassoc);
      }
    }
  }
}

static void forbid_calls(LLVMModuleRef module) {
  static const char key[] = "no-builtins";
  LLVMAttributeRef attribute =
      LLVMCreateStringAttribute(LLVMGetModuleContext(module), key, sizeof key - 1, "", 0);
  LLVMValueRef function = LLVMGetFirstFunction(module);
  for (; function; function = LLVMGetNextFunction(function)) {
    if (LLVMIsDeclaration(function)) continue;
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
  }
}

static bool has_feature(const work_t* work, const char* name) {
  return qn__features_has(work->target->arch, work->target->features, name);
}

static qn_status_t emit(work_t* work) {
  bool is_x86 = strcmp(work->target->arch->name, "x86_64") == 0;
  const char* tune = "";
  (void)qn_target_get_string(work->target, "tune", &tune);
  qn__llvm_emit_options_t options = {
      .context = work->context,
      .machine = work->machine,
      .tune = tune,
      .vector_bytes = qn__target_vector_bytes(work->target),
      .has_fma = qn__target_has_fma(work->target),
      .has_round = !is_x86 || has_feature(work, "sse4.1"),
      .has_f16c = !is_x86 || has_feature(work, "f16c"),
      .has_avx2 = is_x86 && has_feature(work, "avx2"),
      .has_avx512 = is_x86 && has_feature(work, "avx512bw") && has_feature(work, "avx512dq") &&
                    has_feature(work, "avx512vl"),
      .is_fast_tier = work->way == WAY_FAST,
      .is_scalar_only = work->way == WAY_SCALAR_O2,
  };
  QN_TRY(qn__emit_module(work->body.first, work->body.function_count, &options, &work->arena,
                         &work->emitted));
  if (work->way != WAY_SCALAR_O2) return QN_OK;
  license_sums(work->emitted.module);
  forbid_calls(work->emitted.module);
  return QN_OK;
}

static qn_tier_t tier_of(way_t way) {
  return way == WAY_FAST ? QN_TIER_FAST : QN_TIER_FULL;
}

static qn_status_t optimize(work_t* work) {
  LLVMModuleRef module = work->emitted.module;
  if (work->way != WAY_SCALAR_O2) {
    return qn__llvm_optimize(module, work->machine, tier_of(work->way));
  }
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, "default<O2>", work->machine, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error) return QN_OK;
  LLVMConsumeError(error);
  return qn_status_make(QN_STATUS_INTERNAL, "default<O2> failed");
}

static qn_status_t make_code(work_t* work) {
  return qn__llvm_image_emit_file(work->emitted.module, work->machine, LLVMObjectFile,
                                  &work->object);
}

static qn_status_t link_twice(work_t* work) {
  const char* entry = work->emitted.functions[0].name;
  qn_span_t object = {(const uint8_t*)LLVMGetBufferStart(work->object),
                      LLVMGetBufferSize(work->object)};
  return qn__llvm_image_link(work->worker, object, &entry, 1, &work->arena, &work->image);
}

static qn_status_t run_all(work_t* work, stages_t* out) {
  static qn_status_t (*const run[STAGE_COUNT])(work_t*) = {decode,   run_passes, emit,
                                                           optimize, make_code,  link_twice};
  for (int i = 0; i < STAGE_COUNT; ++i) {
    int64_t start = bench_cpu_ns();
    QN_TRY(run[i](work));
    out->ns[i] = (double)(bench_cpu_ns() - start);
  }
  out->image = malloc(work->image.bytes.size);
  if (!out->image) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for an image");
  memcpy(out->image, work->image.bytes.data, work->image.bytes.size);
  out->image_size = work->image.bytes.size;
  out->entry_offset = work->image.offsets[0];
  return QN_OK;
}

qn_status_t stages_run(qn__llvm_worker_pool_t* pool, const qn_module_t* module,
                       const qn_target_t* target, way_t way, stages_t* out) {
  memset(out, 0, sizeof *out);
  work_t work;
  memset(&work, 0, sizeof work);
  work.module = module;
  work.target = target;
  work.way = way;
  QN_TRY(qn__llvm_worker_take(pool, &work.worker));
  qn__arena_init(&work.arena, qn_allocator_default());
  qn__llvm_image_init(&work.image, qn_allocator_default());
  work.context = LLVMContextCreate();
  qn_status_t status = qn__llvm_worker_machine(work.worker, target, tier_of(way), &work.machine);
  if (qn_ok(status)) status = run_all(&work, out);
  if (work.object) LLVMDisposeMemoryBuffer(work.object);
  if (work.emitted.module) LLVMDisposeModule(work.emitted.module);
  LLVMContextDispose(work.context);
  qn__llvm_worker_give_back(pool, work.worker, false);
  if (work.has_body) qn__body_deinit(&work.body);
  qn__llvm_image_deinit(&work.image);
  qn__arena_deinit(&work.arena);
  return status;
}
