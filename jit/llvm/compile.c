// SPDX-License-Identifier: Apache-2.0
// jit/llvm/compile.c: compiles canonical bytes to an artifact or an intermediate form.
//
// Stages, and the forms that can be written after them: decode, verify and passes ("ir", or
// "ir:NAME" after one of them), LLVM code
// ("llvm-raw"), LLVM's passes ("llvm"), code generation ("asm", "obj"), linking ("image").
// An artifact is compiled on several threads: the passes function by function, the stages of LLVM
// unit by unit (unit.h). Units are position independent and refer to nothing outside themselves, so
// their images follow one another in the payload. The forms before "image" are of one unit, because
// their texts cannot be joined.
#include "jit/llvm/compile.h"

#include <llvm-c/Core.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "ir/encode.h"
#include "ir/passes/passes.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/identity/artifact_make.h"
#include "jit/identity/run_parallel.h"
#include "jit/identity/stage.h"
#include "jit/llvm/unit.h"
#include "jit/lower/lower.h"
#include "target/target.h"

static const char* const form_texts[QN__LLVM_FORM_COUNT] = {
    [QN__LLVM_FORM_IR] = "ir",   [QN__LLVM_FORM_RAW] = "llvm-raw", [QN__LLVM_FORM_LLVM] = "llvm",
    [QN__LLVM_FORM_ASM] = "asm", [QN__LLVM_FORM_OBJ] = "obj",      [QN__LLVM_FORM_IMAGE] = "image",
};

typedef struct job {
  qn_allocator_t allocator;
  qn_compile_request_t request;
  qn_target_t* target;
  qn__pass_options_t pass_options;
  qn__arena_t arena;
  qn__ir_body_t body;
  bool has_body;
  // Each function in a body of its own during the passes: its new nodes are in that one's arena.
  qn__ir_body_t* functions;
  qn__llvm_unit_options_t unit_options;
  qn__llvm_unit_t* units;
  size_t unit_count;
  // The joined images and their symbols.
  qn__buffer_t payload;
  qn__buffer_t metadata;
} job_t;

// ------------------------------------------------------------------------------------ stages

static qn_status_t decode(job_t* job) {
  const qn_compile_request_t* request = &job->request;
  int64_t start_ns = qn__now_ns();
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
  qn__stage_end(request, QN_COMPILE_DECODE, &start_ns);
  return QN_OK;
}

qn__pass_options_t qn__llvm_pass_options(const qn_target_t* target,
                                         const qn_compile_request_t* request) {
  qn_machine_t machine;
  qn__lower_machine(target, &machine);
  qn__pass_options_t options = qn__lower_pass_options(&machine, request->tier, request->is_checked);
  options.dots = qn__emit_dot_ops(qn__emit_dot_rows(target));
  if (qn__target_has_slow_bf16(target)) options.dots &= ~qn__dot_bit(QN__OP_DOT_BF16_FAST);
  options.has_exact_dots = strcmp(target->arch->name, "x86_64") == 0;
  options.tile_dots = qn__emit_tile_ops(target);
  options.prepared = qn__llvm_prepared_set(qn__llvm_prepared_find(target));
  return options;
}

static qn_status_t run_passes_on(void* arg, size_t index) {
  job_t* job = arg;
  int64_t start_ns = qn__now_ns();
  QN_TRY(qn__passes_run_cpu(&job->functions[index], &job->pass_options));
  qn__stage_end(&job->request, QN_COMPILE_PASSES, &start_ns);
  return QN_OK;
}

// Runs the passes on each function. The body has all functions again afterwards, also after an
// error.
static qn_status_t run_passes(job_t* job) {
  size_t count = job->body.function_count;
  job->functions = qn__arena_alloc_array(&job->arena, count + 1, sizeof *job->functions);
  if (!job->functions) return qn__out_of_memory("a module");
  qn__ir_func_t* function = job->body.first;
  for (size_t i = 0; i < count; ++i) {
    qn__ir_func_t* next = function->next;
    qn__body_init(&job->functions[i], job->allocator);
    function->next = NULL;
    qn__body_append(&job->functions[i], function);
    function = next;
  }
  qn_status_t status = qn__run_parallel(&job->request, count, run_passes_on, job);
  for (size_t i = 0; i + 1 < count; ++i) {
    job->functions[i].first->next = job->functions[i + 1].first;
  }
  return status;
}

static qn_status_t run_unit(void* arg, size_t index) {
  job_t* job = arg;
  return qn__llvm_unit_run(&job->units[index], &job->unit_options);
}

static qn_status_t run_units(job_t* job) {
  size_t count = job->body.function_count;
  job->units = qn__arena_alloc_array(&job->arena, count + 1, sizeof *job->units);
  if (!job->units) return qn__out_of_memory("a module");
  if (job->unit_options.form == QN__LLVM_FORM_IMAGE) {
    job->unit_count = qn__llvm_unit_split(&job->body, job->units);
  } else {
    job->unit_count = 1;
    job->units[0].first = job->body.first;
    job->units[0].function_count = count;
  }
  return qn__run_parallel(&job->request, job->unit_count, run_unit, job);
}

// Joins the images of the units. Their offsets become those in the payload.
static qn_status_t join_units(job_t* job) {
  size_t symbol_count = 0;
  for (size_t i = 0; i < job->unit_count; ++i) symbol_count += job->units[i].image.symbol_count;
  qn__buffer_varint(&job->metadata, symbol_count);
  for (size_t i = 0; i < job->unit_count; ++i) {
    const qn__llvm_unit_t* unit = &job->units[i];
    uint64_t base = qn__llvm_image_append(&unit->image, &job->payload);
    qn__llvm_image_write_symbols(&unit->image, base, &job->metadata);
    for (size_t k = 0; k < unit->function_count; ++k) unit->image.offsets[k] += base;
  }
  QN_TRY(qn__buffer_status(&job->payload, "an image"));
  return qn__buffer_status(&job->metadata, "the symbols of an image");
}

// ------------------------------------------------------------------------------------ results

static qn_status_t write_form(const job_t* job, qn_sink_t sink) {
  const qn__llvm_unit_t* unit = job->units;
  switch (job->unit_options.form) {
    case QN__LLVM_FORM_IR: {
      qn__buffer_t text;
      qn__buffer_init(&text, job->allocator);
      qn__text_print(&job->body, &text);
      qn_status_t status = qn__buffer_status(&text, "the text of a module");
      if (qn_ok(status)) status = sink.write(sink.self, text.data, text.size);
      qn__buffer_deinit(&text);
      return status;
    }
    case QN__LLVM_FORM_RAW:
    case QN__LLVM_FORM_LLVM: {
      char* text = LLVMPrintModuleToString(unit->emitted.module);
      qn_status_t status = sink.write(sink.self, text, strlen(text));
      LLVMDisposeMessage(text);
      return status;
    }
    case QN__LLVM_FORM_ASM:
    case QN__LLVM_FORM_OBJ:
      return sink.write(sink.self, LLVMGetBufferStart(unit->file), LLVMGetBufferSize(unit->file));
    case QN__LLVM_FORM_IMAGE:
    case QN__LLVM_FORM_COUNT:
      break;
  }
  return sink.write(sink.self, job->payload.data, job->payload.size);
}

static qn_status_t make_artifact(job_t* job, qn_artifact_t** out_artifact) {
  size_t count = job->body.function_count;
  qn_artifact_function_t* functions =
      qn__arena_alloc_array(&job->arena, count + 1, sizeof *functions);
  if (!functions) return qn__out_of_memory("an artifact");
  qn_artifact_function_t* next = functions;
  for (size_t i = 0; i < job->unit_count; ++i) {
    const qn__llvm_unit_t* unit = &job->units[i];
    for (size_t k = 0; k < unit->function_count; ++k) {
      const qn__llvm_emit_function_t* from = &unit->emitted.functions[k];
      *next++ = (qn_artifact_function_t){
          .name = from->name,
          .code_offset = unit->image.offsets[k],
          .code_size_bytes = unit->image.sizes[k],
          .launch_count = from->launch_count,
          .site_count = from->site_count,
          .sites = from->sites,
      };
    }
  }
  assert(next == functions + count);
  qn__artifact_parts_t parts = {.format = "cpu-image-1",
                                .isa = qn__target_isa_json(job->target),
                                .function_count = count,
                                .functions = functions,
                                .payload = &job->payload,
                                .metadata = &job->metadata};
  return qn__artifact_make(job->allocator, &parts, out_artifact);
}

// ------------------------------------------------------------------------------------ jobs

// Runs the stages up to `form`. Call end() afterwards, also after an error.
static qn_status_t run(qn__llvm_t* llvm, const qn_compile_request_t* request, qn__llvm_form_t form,
                       const char* until, job_t* job) {
  memset(job, 0, sizeof *job);
  job->allocator = llvm->allocator;
  qn__arena_init(&job->arena, llvm->allocator);
  qn__buffer_init(&job->payload, llvm->allocator);
  qn__buffer_init(&job->metadata, llvm->allocator);
  QN_STRUCT_READ(qn_compile_request_t, request, given);
  job->request = given;
  QN_TRY(decode(job));
  job->pass_options = qn__llvm_pass_options(job->target, &job->request);
  QN_TRY(qn__pipeline_until(&qn__pipeline_cpu, until, &job->pass_options.pass_count));
  QN_TRY(run_passes(job));
  if (form == QN__LLVM_FORM_IR) return QN_OK;
  job->unit_options = (qn__llvm_unit_options_t){
      .allocator = llvm->allocator,
      .pool = &llvm->pool,
      .request = &job->request,
      .target = job->target,
      .form = form,
  };
  QN_TRY(run_units(job));
  return form == QN__LLVM_FORM_IMAGE ? join_units(job) : QN_OK;
}

static void end(job_t* job) {
  for (size_t i = 0; i < job->unit_count; ++i) qn__llvm_unit_end(&job->units[i]);
  for (size_t i = 0; job->functions && i < job->body.function_count; ++i) {
    qn__body_deinit(&job->functions[i]);
  }
  if (job->has_body) qn__body_deinit(&job->body);
  qn_target_release(job->target);
  qn__buffer_deinit(&job->payload);
  qn__buffer_deinit(&job->metadata);
  qn__arena_deinit(&job->arena);
}

qn_status_t qn__llvm_compile(qn__llvm_t* llvm, const qn_compile_request_t* request,
                             qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  job_t job;
  qn_status_t status = run(llvm, request, QN__LLVM_FORM_IMAGE, NULL, &job);
  if (qn_ok(status)) status = make_artifact(&job, out_artifact);
  end(&job);
  return status;
}

qn_status_t qn__llvm_emit(qn__llvm_t* llvm, const qn_compile_request_t* request, const char* form,
                          qn_sink_t sink) {
  qn__llvm_form_t wanted = 0;
  const char* until;
  bool is_ir = qn__form_is_ir(form, &until);
  while (!is_ir && wanted < QN__LLVM_FORM_COUNT && strcmp(form, form_texts[wanted]) != 0) ++wanted;
  if (wanted == QN__LLVM_FORM_COUNT) {
    return qn_status_make(QN_STATUS_NOT_FOUND,
                          "the llvm generator has no form '%.32s'; there are ir, llvm-raw, llvm, "
                          "asm, obj and image",
                          form);
  }
  job_t job;
  qn_status_t status = run(llvm, request, wanted, until, &job);
  if (qn_ok(status)) status = write_form(&job, sink);
  end(&job);
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
