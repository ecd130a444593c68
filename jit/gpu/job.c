// jit/gpu/job.c: the stages that both generators share, and a job's begin and end.
//
// Not here: the order of the stages and the compilers (jit/nvrtc/compile.c, jit/shaderc/compile.c).
// Thread rule: one thread per job. Read next: lower.c, print.c, artifact.c.
#include "jit/gpu/job.h"

#include <stdio.h>

#include "ir/encode.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/gpu/messages.h"

// ------------------------------------------------------------------------------------ the target

bool qn__gpu_job_has(const qn__gpu_job_t* job, const char* option) {
  bool value = false;
  return qn_target_get_bool(job->target, option, &value) && value;
}

int64_t qn__gpu_job_number(const qn__gpu_job_t* job, const char* option) {
  int64_t value = 0;
  (void)qn_target_get_int(job->target, option, &value);
  return value;
}

static qn_status_t read_target(qn__gpu_job_t* job) {
  QN_TRY(qn__target_parse(qn__str(job->request->target_json), job->allocator, &job->target));
  const char* kind = qn_target_kind(job->target);
  if (strcmp(kind, job->maker->kind) == 0) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED,
                        "the %s generator makes code for targets of kind %s, not %s",
                        job->maker->name, job->maker->kind, kind);
}

// ------------------------------------------------------------------------------------ stages

qn_status_t qn__gpu_job_lower(qn__gpu_job_t* job, qn__gpu_lower_options_t options) {
  const qn_compile_request_t* request = job->request;
  qn_span_t bytes = {request->module_bytes, request->module_size};
  QN_TRY(qn__body_decode(bytes, job->allocator, &job->body));
  job->has_body = true;
  QN_TRY(qn__body_verify_status(&job->body, "the module"));
  qn__pass_options_t* passes = &options.passes;
  passes->is_checked = request->is_checked;
  passes->warp_size = (uint32_t)qn__gpu_job_number(job, "warp_size");
  passes->max_shared_bytes = (uint32_t)qn__gpu_job_number(job, "max_shared_memory_per_block");
  passes->preferred_threads = 1;
  while (passes->preferred_threads < 256 && passes->preferred_threads * 2 <= passes->max_threads) {
    passes->preferred_threads *= 2;
  }
  return qn__gpu_lower(&job->body, &options, &job->arena, &job->program);
}

qn_status_t qn__gpu_job_print(qn__gpu_job_t* job, uint32_t first, uint32_t count,
                              qn__print_options_t options) {
  options.dialect = job->maker->dialect;
  options.program = &job->program;
  options.target = job->target;
  options.is_fast_tier = job->request->tier == QN_TIER_FAST;
  qn__buffer_clear(&job->text);
  qn__buffer_clear(&job->lines);
  qn__buffer_clear(&job->log);
  QN_TRY(qn__print_kernels(&options, first, count, &job->text, &job->lines));
  QN_TRY(qn__buffer_status(&job->lines, "the lines of kernels"));
  return qn__buffer_status(&job->text, "the text of kernels");
}

qn_status_t qn__gpu_job_explain(qn__gpu_job_t* job, qn_status_t status) {
  if (qn_status_code(status) != QN_STATUS_INTERNAL) return status;
  qn__buffer_t module;
  qn__buffer_init(&module, job->allocator);
  qn__text_print(&job->body, &module);
  qn__gpu_text_t text = {
      .language = job->maker->dialect->name,
      .text = qn__buffer_as_str(&job->text),
      .lines = qn__buffer_as_span(&job->lines),
      .module_text = qn__buffer_as_str(&module),
  };
  status = qn__gpu_explain(status, &text, qn__buffer_as_str(&job->log));
  qn__buffer_deinit(&module);
  return status;
}

qn_status_t qn__gpu_job_write_ir(qn__gpu_job_t* job) {
  qn__text_print(&job->body, &job->out);
  return qn__buffer_status(&job->out, "the text of a module");
}

// ------------------------------------------------------------------------------------ jobs

void qn__gpu_job_forget(qn__gpu_job_t* job) {
  if (job->has_body) qn__body_deinit(&job->body);
  job->has_body = false;
  qn__arena_deinit(&job->arena);
  qn__arena_init(&job->arena, job->allocator);
  memset(&job->program, 0, sizeof job->program);
  qn__buffer_clear(&job->out);
}

static qn_status_t run(const qn__gpu_maker_t* maker, void* self, qn_allocator_t allocator,
                       const qn_compile_request_t* request, size_t form, qn__gpu_job_t* job) {
  memset(job, 0, sizeof *job);
  job->maker = maker;
  job->self = self;
  job->request = request;
  job->form = form;
  job->allocator = allocator;
  qn__arena_init(&job->arena, allocator);
  qn__buffer_t* const buffers[] = {&job->text, &job->lines, &job->log, &job->out};
  for (size_t i = 0; i < QN_COUNT_OF(buffers); ++i) qn__buffer_init(buffers[i], allocator);
  if (request->struct_size < sizeof *request) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the compile request is of an older version");
  }
  QN_TRY(read_target(job));
  return maker->run(job);
}

static void end(qn__gpu_job_t* job) {
  qn__buffer_t* const buffers[] = {&job->text, &job->lines, &job->log, &job->out};
  for (size_t i = 0; i < QN_COUNT_OF(buffers); ++i) qn__buffer_deinit(buffers[i]);
  if (job->has_body) qn__body_deinit(&job->body);
  qn_target_release(job->target);
  qn__arena_deinit(&job->arena);
}

qn_status_t qn__gpu_compile(const qn__gpu_maker_t* maker, void* self, qn_allocator_t allocator,
                            const qn_compile_request_t* request, qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  qn__gpu_job_t job;
  qn_status_t status = run(maker, self, allocator, request, maker->payload_form, &job);
  if (qn_ok(status)) {
    status = qn__gpu_artifact(&job.program, maker->format, qn__target_isa_json(job.target),
                              &job.out, allocator, out_artifact);
  }
  end(&job);
  return status;
}

static qn_status_t no_form(const qn__gpu_maker_t* maker, const char* form) {
  char list[128] = "";
  for (size_t i = 0; i < maker->form_count; ++i) {
    size_t size = strlen(list);
    const char* between = i == 0 ? "" : i + 1 == maker->form_count ? " and " : ", ";
    (void)snprintf(list + size, sizeof list - size, "%s%s", between, maker->forms[i]);
  }
  return qn_status_make(QN_STATUS_NOT_FOUND, "the %s generator has no form '%.32s'; there are %s",
                        maker->name, form, list);
}

qn_status_t qn__gpu_emit(const qn__gpu_maker_t* maker, void* self, qn_allocator_t allocator,
                         const qn_compile_request_t* request, const char* form, qn_sink_t sink) {
  size_t wanted = 0;
  while (wanted < maker->form_count && strcmp(form, maker->forms[wanted]) != 0) ++wanted;
  if (wanted == maker->form_count) return no_form(maker, form);
  qn__gpu_job_t job;
  qn_status_t status = run(maker, self, allocator, request, wanted, &job);
  if (qn_ok(status)) status = sink.write(sink.self, job.out.data, job.out.size);
  end(&job);
  return status;
}
