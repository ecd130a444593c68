// SPDX-License-Identifier: Apache-2.0
// jit/gpu/compile.c: see compile.h.
//
// Not here: the order of the stages, and the compilers (jit/nvrtc/compile.c,
// jit/shaderc/compile.c).
#include "jit/gpu/compile.h"

#include <stdio.h>

#include "base/struct_size.h"
#include "ir/encode.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/gpu/messages.h"
#include "jit/identity/stage.h"
#include "jit/lower/lower.h"

// ------------------------------------------------------------------------------------ the target

bool qn__gpu_compile_has(const qn__gpu_compile_t* job, const char* option) {
  bool value = false;
  return qn_target_get_bool(job->target, option, &value) && value;
}

int64_t qn__gpu_compile_number(const qn__gpu_compile_t* job, const char* option) {
  int64_t value = 0;
  (void)qn_target_get_int(job->target, option, &value);
  return value;
}

static qn_status_t read_target(qn__gpu_compile_t* job) {
  QN_TRY(qn__target_parse(qn__str(job->request.target_json), job->allocator, &job->target));
  const char* kind = qn_target_kind(job->target);
  if (strcmp(kind, job->generator->kind) == 0) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED,
                        "the %s generator makes code for targets of kind %s, not %s",
                        job->generator->name, job->generator->kind, kind);
}

qn__pass_options_t qn__gpu_compile_passes(const qn__gpu_compile_t* job) {
  qn_machine_t machine;
  qn__lower_machine(job->target, &machine);
  return qn__lower_pass_options(&machine, job->request.tier, job->request.is_checked);
}

// ------------------------------------------------------------------------------------ stages

qn_status_t qn__gpu_compile_lower(qn__gpu_compile_t* job, qn__gpu_lower_options_t options) {
  const qn_compile_request_t* request = &job->request;
  qn_span_t bytes = {request->module_bytes, request->module_size};
  QN_TRY(qn__body_decode(bytes, job->allocator, &job->body));
  job->has_body = true;
  QN_TRY(qn__body_verify_status(&job->body, "the module"));
  qn__gpu_compile_stage(job, QN_COMPILE_DECODE);
  QN_TRY(qn__pipeline_until(&qn__pipeline_gpu, job->until, &options.passes.pass_count));
  if (options.passes.pass_count) {
    QN_TRY(qn__passes_run_gpu(&job->body, &options.passes));
    qn__gpu_compile_stage(job, QN_COMPILE_PASSES);
    return QN_OK;
  }
  QN_TRY(qn__gpu_lower(&job->body, &options, &job->arena, &job->program));
  qn__gpu_compile_stage(job, QN_COMPILE_PASSES);
  return QN_OK;
}

qn_status_t qn__gpu_compile_print(qn__gpu_compile_t* job, uint32_t first, uint32_t count,
                                  qn__gpu_print_options_t options) {
  options.dialect = job->generator->dialect;
  options.program = &job->program;
  options.target = job->target;
  qn__buffer_clear(&job->text);
  qn__buffer_clear(&job->lines);
  qn__buffer_clear(&job->log);
  QN_TRY(qn__print_kernels(&options, first, count, &job->text, &job->lines));
  qn__gpu_compile_stage(job, QN_COMPILE_EMIT);
  QN_TRY(qn__buffer_status(&job->lines, "the lines of kernels"));
  return qn__buffer_status(&job->text, "the text of kernels");
}

qn_status_t qn__gpu_compile_explain(qn__gpu_compile_t* job, qn_status_t status) {
  if (qn_status_code(status) != QN_STATUS_INTERNAL) return status;
  qn__buffer_t module;
  qn__buffer_init(&module, job->allocator);
  qn__text_print(&job->body, &module);
  qn__gpu_text_t text = {
      .language = job->generator->dialect->name,
      .text = qn__buffer_as_str(&job->text),
      .lines = qn__buffer_as_span(&job->lines),
      .module_text = qn__buffer_as_str(&module),
  };
  status = qn__gpu_explain(status, &text, qn__buffer_as_str(&job->log));
  qn__buffer_deinit(&module);
  return status;
}

qn_status_t qn__gpu_compile_write_ir(qn__gpu_compile_t* job) {
  qn__text_print(&job->body, &job->out);
  return qn__buffer_status(&job->out, "the text of a module");
}

// ------------------------------------------------------------------------------------ life

void qn__gpu_compile_restart(qn__gpu_compile_t* job) {
  if (job->has_body) qn__body_deinit(&job->body);
  job->has_body = false;
  qn__arena_deinit(&job->arena);
  qn__arena_init(&job->arena, job->allocator);
  memset(&job->program, 0, sizeof job->program);
  qn__buffer_clear(&job->out);
}

enum { BUFFER_COUNT = 4 };
static void list_buffers(qn__gpu_compile_t* job, qn__buffer_t* out[BUFFER_COUNT]) {
  out[0] = &job->text;
  out[1] = &job->lines;
  out[2] = &job->log;
  out[3] = &job->out;
}

qn_status_t qn__gpu_compile_begin(const qn__gpu_generator_t* generator, qn_allocator_t allocator,
                                  const qn_compile_request_t* request, qn__gpu_compile_t* job) {
  memset(job, 0, sizeof *job);
  job->generator = generator;
  job->allocator = allocator;
  qn__arena_init(&job->arena, allocator);
  qn__buffer_t* buffers[BUFFER_COUNT];
  list_buffers(job, buffers);
  for (size_t i = 0; i < BUFFER_COUNT; ++i) qn__buffer_init(buffers[i], allocator);
  QN_STRUCT_READ(qn_compile_request_t, request, given);
  job->request = given;
  job->stage_start_ns = qn__now_ns();
  return read_target(job);
}

void qn__gpu_compile_stage(qn__gpu_compile_t* job, qn_compile_stage_t stage) {
  qn__stage_end(&job->request, stage, &job->stage_start_ns);
}

void qn__gpu_compile_end(qn__gpu_compile_t* job) {
  qn__buffer_t* buffers[BUFFER_COUNT];
  list_buffers(job, buffers);
  for (size_t i = 0; i < BUFFER_COUNT; ++i) qn__buffer_deinit(buffers[i]);
  if (job->has_body) qn__body_deinit(&job->body);
  qn_target_release(job->target);
  qn__arena_deinit(&job->arena);
}

qn_status_t qn__gpu_compile_artifact(qn__gpu_compile_t* job, const char* format,
                                     qn_artifact_t** out_artifact) {
  return qn__gpu_artifact(&job->program, format, qn__target_isa_json(job->target), &job->out,
                          job->allocator, out_artifact);
}

qn_status_t qn__gpu_find_form(const qn__gpu_generator_t* generator, const char* name,
                              size_t* out_form, const char** out_until) {
  char list[128] = "";
  if (qn__form_is_ir(name, out_until)) name = "ir";
  for (size_t i = 0; i < generator->form_count; ++i) {
    *out_form = i;
    if (strcmp(name, generator->forms[i]) == 0) return QN_OK;
    size_t size = strlen(list);
    const char* between = i == 0 ? "" : i + 1 == generator->form_count ? " and " : ", ";
    (void)snprintf(list + size, sizeof list - size, "%s%s", between, generator->forms[i]);
  }
  return qn_status_make(QN_STATUS_NOT_FOUND, "the %s generator has no form '%.32s'; there are %s",
                        generator->name, name, list);
}
