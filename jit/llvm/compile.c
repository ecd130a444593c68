// jit/llvm/compile.c: compiles canonical bytes to an artifact or an intermediate form.
//
// Stages, and the forms that can be written after them: decode, verify and passes ("ir"), LLVM code
// ("llvm-raw"), LLVM's passes ("llvm"), code generation ("asm", "obj"), linking ("image").
// Objects that only our code uses (arena, body, buffers) live in the job, so that they are freed
// even if LLVM fails fatally in between (guard.h).
#include "jit/llvm/compile.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <stdio.h>

#include "base/struct_size.h"
#include "ir/encode.h"
#include "ir/passes/passes.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/identity/artifact_make.h"
#include "jit/identity/stage.h"
#include "jit/llvm/emit.h"
#include "jit/llvm/guard.h"
#include "jit/llvm/image.h"
#include "target/target.h"

typedef enum form {
  FORM_IR,
  FORM_LLVM_RAW,
  FORM_LLVM,
  FORM_ASM,
  FORM_OBJ,
  FORM_IMAGE,
  FORM_COUNT
} form_t;

static const char* const form_texts[FORM_COUNT] = {
    [FORM_IR] = "ir",   [FORM_LLVM_RAW] = "llvm-raw", [FORM_LLVM] = "llvm",
    [FORM_ASM] = "asm", [FORM_OBJ] = "obj",           [FORM_IMAGE] = "image",
};

typedef struct job {
  qn_allocator_t allocator;
  qn_compile_request_t request;
  form_t form;  // the last stage
  qn_target_t* target;
  qn__arena_t arena;
  qn__ir_body_t body;
  bool has_body;
  qn__llvm_worker_t* worker;
  LLVMContextRef context;
  LLVMTargetMachineRef machine;
  qn__llvm_emit_result_t emitted;
  LLVMMemoryBufferRef file;
  qn__llvm_image_t image;
  bool is_abandoned;     // LLVM failed fatally: its objects must not be disposed of
  char diagnostic[256];  // LLVM's first error; "" for none
  int64_t stage_start_ns;
} job_t;

// ------------------------------------------------------------------------------------ stages

static void end_stage(job_t* job, qn_compile_stage_t stage) {
  qn__stage_end(&job->request, stage, &job->stage_start_ns);
}

static bool has_feature(const job_t* job, const char* name) {
  return qn__features_has(job->target->arch, job->target->features, name);
}

static bool has_fma(const job_t* job) {
  return strcmp(job->target->arch->name, "x86_64") != 0 || has_feature(job, "fma");
}

static qn_status_t prepare_body(job_t* job) {
  const qn_compile_request_t* request = &job->request;
  QN_TRY(qn__target_parse(qn__str(request->target_json), job->allocator, &job->target));
  if (job->target->kind->id != QN__KIND_CPU) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "the llvm generator makes code for targets of kind cpu, not %s",
                          qn_target_kind(job->target));
  }
  qn_span_t bytes = {request->module_bytes, request->module_size};
  QN_TRY(qn__body_decode(bytes, job->allocator, &job->body));
  job->has_body = true;
  QN_TRY(qn__body_verify_status(&job->body, "the module"));
  end_stage(job, QN_COMPILE_DECODE);
  int64_t warp_size = 0, l1_bytes = 0, l2_bytes = 0;
  (void)qn_target_get_int(job->target, "warp_size", &warp_size);
  (void)qn_target_get_int(job->target, "l1_cache_bytes", &l1_bytes);
  (void)qn_target_get_int(job->target, "l2_cache_bytes", &l2_bytes);
  qn__pass_options_t options = {
      .vector_bytes = qn__target_vector_bytes(job->target),
      .has_masked_memory = qn__target_has_masked_memory(job->target),
      .has_fma = has_fma(job),
      .dots = qn__emit_dot_ops(qn__emit_dot_rows(job->target)),
      .has_exact_dots = strcmp(job->target->arch->name, "x86_64") == 0,
      .has_blocks = request->tier == QN_TIER_FULL,
      .l1_bytes = (uint32_t)l1_bytes,
      .l2_bytes = (uint32_t)l2_bytes,
      .is_checked = request->is_checked,
      .warp_size = (uint32_t)warp_size,
  };
  QN_TRY(qn__passes_run_cpu(&job->body, &options));
  end_stage(job, QN_COMPILE_PASSES);
  return QN_OK;
}

static void on_diagnostic(LLVMDiagnosticInfoRef info, void* self) {
  job_t* job = self;
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError || job->diagnostic[0]) return;
  char* text = LLVMGetDiagInfoDescription(info);
  (void)snprintf(job->diagnostic, sizeof job->diagnostic, "%s", text);
  LLVMDisposeMessage(text);
}

static qn_status_t check_diagnostic(const job_t* job) {
  if (!job->diagnostic[0]) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED, "LLVM cannot make code: %s", job->diagnostic);
}

static qn_status_t make_module(job_t* job) {
  bool is_x86 = strcmp(job->target->arch->name, "x86_64") == 0;
  const char* tune = "";
  (void)qn_target_get_string(job->target, "tune", &tune);
  qn__llvm_emit_options_t options = {
      .context = job->context,
      .machine = job->machine,
      .tune = tune,
      .vector_bytes = qn__target_vector_bytes(job->target),
      .has_fma = has_fma(job),
      .has_round = !is_x86 || has_feature(job, "sse4.1"),
      .has_f16c = !is_x86 || has_feature(job, "f16c"),
      .has_avx2 = is_x86 && has_feature(job, "avx2"),
      .dot_rows = qn__emit_dot_rows(job->target),
      .has_avx512 = is_x86 && has_feature(job, "avx512bw") && has_feature(job, "avx512dq") &&
                    has_feature(job, "avx512vl"),
      .is_checked = job->request.is_checked,
      .is_fast_tier = job->request.tier == QN_TIER_FAST,
  };
  QN_TRY(qn__emit_module(&job->body, &options, &job->arena, &job->emitted));
#ifndef NDEBUG
  char* message = NULL;
  bool is_bad = LLVMVerifyModule(job->emitted.module, LLVMReturnStatusAction, &message);
  qn_status_t status =
      is_bad ? qn_status_make(QN_STATUS_INTERNAL, "the emitted code is not valid: %s", message)
             : QN_OK;
  LLVMDisposeMessage(message);
  return status;
#else
  return QN_OK;
#endif
}

static qn_status_t link_image(job_t* job) {
  size_t count = job->emitted.function_count;
  const char** entries = qn__arena_alloc_array(&job->arena, count + 1, sizeof *entries);
  if (!entries) return qn__out_of_memory("an image");
  for (size_t i = 0; i < count; ++i) entries[i] = job->emitted.functions[i].name;
  qn_span_t object = {(const uint8_t*)LLVMGetBufferStart(job->file), LLVMGetBufferSize(job->file)};
  return qn__llvm_image_link(job->worker, object, entries, count, &job->arena, &job->image);
}

// Runs the stages that use LLVM, up to the requested form.
static qn_status_t run_llvm(void* self) {
  job_t* job = self;
  QN_TRY(qn__llvm_worker_machine(job->worker, job->target, job->request.tier, &job->machine));
  job->context = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(job->context, on_diagnostic, job);
  QN_TRY(make_module(job));
  end_stage(job, QN_COMPILE_EMIT);
  if (job->form == FORM_LLVM_RAW) return QN_OK;
  QN_TRY(qn__llvm_optimize(job->emitted.module, job->machine, job->request.tier));
  QN_TRY(check_diagnostic(job));
  end_stage(job, QN_COMPILE_OPTIMIZE);
  if (job->form == FORM_LLVM) return QN_OK;
  LLVMCodeGenFileType type = job->form == FORM_ASM ? LLVMAssemblyFile : LLVMObjectFile;
  QN_TRY(qn__llvm_image_emit_file(job->emitted.module, job->machine, type, &job->file));
  QN_TRY(check_diagnostic(job));
  end_stage(job, QN_COMPILE_CODEGEN);
  if (job->form != FORM_IMAGE) return QN_OK;
  QN_TRY(link_image(job));
  end_stage(job, QN_COMPILE_LINK);
  return QN_OK;
}

// ------------------------------------------------------------------------------------ results

static qn_status_t write_form(const job_t* job, qn_sink_t sink) {
  switch (job->form) {
    case FORM_IR: {
      qn__buffer_t text;
      qn__buffer_init(&text, job->allocator);
      qn__text_print(&job->body, &text);
      qn_status_t status = qn__buffer_status(&text, "the text of a module");
      if (qn_ok(status)) status = sink.write(sink.self, text.data, text.size);
      qn__buffer_deinit(&text);
      return status;
    }
    case FORM_LLVM_RAW:
    case FORM_LLVM: {
      char* text = LLVMPrintModuleToString(job->emitted.module);
      qn_status_t status = sink.write(sink.self, text, strlen(text));
      LLVMDisposeMessage(text);
      return status;
    }
    case FORM_ASM:
    case FORM_OBJ:
      return sink.write(sink.self, LLVMGetBufferStart(job->file), LLVMGetBufferSize(job->file));
    case FORM_IMAGE:
    case FORM_COUNT:
      break;
  }
  return sink.write(sink.self, job->image.bytes.data, job->image.bytes.size);
}

static qn_status_t make_artifact(job_t* job, qn_artifact_t** out_artifact) {
  size_t count = job->emitted.function_count;
  qn_artifact_function_t* functions =
      qn__arena_alloc_array(&job->arena, count + 1, sizeof *functions);
  if (!functions) return qn__out_of_memory("an artifact");
  for (size_t i = 0; i < count; ++i) {
    const qn__llvm_emit_function_t* from = &job->emitted.functions[i];
    functions[i] = (qn_artifact_function_t){
        .name = from->name,
        .code_offset = job->image.offsets[i],
        .code_size_bytes = job->image.sizes[i],
        .launch_count = from->launch_count,
        .site_count = from->site_count,
        .sites = from->sites,
    };
  }
  qn__artifact_parts_t parts = {.format = "cpu-image-1",
                                .isa = qn__target_isa_json(job->target),
                                .function_count = count,
                                .functions = functions,
                                .payload = &job->image.bytes,
                                .metadata = &job->image.symbols};
  return qn__artifact_make(job->allocator, &parts, out_artifact);
}

// ------------------------------------------------------------------------------------ jobs

// Runs the stages up to `form`. Call end() afterwards, also after an error.
static qn_status_t run(qn__llvm_t* llvm, const qn_compile_request_t* request, form_t form,
                       job_t* job) {
  memset(job, 0, sizeof *job);
  job->allocator = llvm->allocator;
  job->form = form;
  qn__arena_init(&job->arena, llvm->allocator);
  qn__llvm_image_init(&job->image, llvm->allocator);
  QN_STRUCT_READ(qn_compile_request_t, request, given);
  job->request = given;
  job->stage_start_ns = qn__now_ns();
  QN_TRY(prepare_body(job));
  if (form == FORM_IR) return QN_OK;
  QN_TRY(qn__llvm_worker_take(&llvm->pool, &job->worker));
  return qn__llvm_guard_run(run_llvm, job, &job->is_abandoned);
}

static void end(qn__llvm_t* llvm, job_t* job) {
  if (!job->is_abandoned) {
    if (job->file) LLVMDisposeMemoryBuffer(job->file);
    if (job->emitted.module) LLVMDisposeModule(job->emitted.module);
    if (job->context) LLVMContextDispose(job->context);
  }
  if (job->worker) qn__llvm_worker_give_back(&llvm->pool, job->worker, job->is_abandoned);
  if (job->has_body) qn__body_deinit(&job->body);
  qn_target_release(job->target);
  qn__llvm_image_deinit(&job->image);
  qn__arena_deinit(&job->arena);
}

qn_status_t qn__llvm_compile(qn__llvm_t* llvm, const qn_compile_request_t* request,
                             qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  job_t job;
  qn_status_t status = run(llvm, request, FORM_IMAGE, &job);
  if (qn_ok(status)) status = make_artifact(&job, out_artifact);
  end(llvm, &job);
  return status;
}

qn_status_t qn__llvm_emit(qn__llvm_t* llvm, const qn_compile_request_t* request, const char* form,
                          qn_sink_t sink) {
  form_t wanted = 0;
  while (wanted < FORM_COUNT && strcmp(form, form_texts[wanted]) != 0) ++wanted;
  if (wanted == FORM_COUNT) {
    return qn_status_make(QN_STATUS_NOT_FOUND,
                          "the llvm generator has no form '%.32s'; there are ir, llvm-raw, llvm, "
                          "asm, obj and image",
                          form);
  }
  job_t job;
  qn_status_t status = run(llvm, request, wanted, &job);
  if (qn_ok(status)) status = write_form(&job, sink);
  end(llvm, &job);
  return status;
}

qn_status_t qn__llvm_create(qn_allocator_t allocator, qn__llvm_t** out_llvm) {
  *out_llvm = NULL;
  qn__llvm_t* llvm = qn__alloc_zero(allocator, 1, sizeof *llvm);
  if (!llvm) return qn__out_of_memory("the llvm generator");
  llvm->allocator = allocator;
  // Addresses within both shared objects: a constant of this file, and a function of LLVM.
  LLVMContextRef (*library_function)(void) = LLVMContextCreate;
  const void* library_address;
  memcpy(&library_address, &library_function, sizeof library_address);
  qn__mapped_identity("llvm", form_texts, library_address, llvm->identity);
  qn_status_t status = qn__llvm_worker_pool_init(&llvm->pool, allocator);
  if (!qn_ok(status)) {
    qn__free(allocator, llvm, sizeof *llvm);
    return status;
  }
  *out_llvm = llvm;
  return QN_OK;
}

void qn__llvm_destroy(qn__llvm_t* llvm) {
  if (!llvm) return;
  qn__llvm_worker_pool_deinit(&llvm->pool);
  qn__free(llvm->allocator, llvm, sizeof *llvm);
}
