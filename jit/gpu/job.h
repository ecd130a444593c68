// jit/gpu/job.h: a compile request carried out, as far as both GPU code generators do it alike:
// from canonical bytes to kernels as text, and from code to an artifact or a form written out.
//
// A generator says what is its own in a qn__gpu_maker_t, whose `run` calls the stages below in
// order. Thread rule: one thread per job. Read next: job.c, then jit/nvrtc/compile.c.
#ifndef QUERN_JIT_GPU_JOB_H_
#define QUERN_JIT_GPU_JOB_H_

#include "base/buffer.h"
#include "jit/gpu/print.h"
#include "quern/backend.h"

typedef struct qn__gpu_job qn__gpu_job_t;

typedef struct qn__gpu_maker {
  const char* name;    // of the generator
  const char* kind;    // of the targets that it makes code for
  const char* format;  // of its artifacts
  // What can be written out, in the order of the stages, and which of them an artifact holds.
  const char* const* forms;
  size_t form_count;
  size_t payload_form;
  const qn__dialect_t* dialect;
  // The stages up to job->form, whose result is appended to job->out. The target is of that kind.
  qn_status_t (*run)(qn__gpu_job_t* job);
} qn__gpu_maker_t;

struct qn__gpu_job {
  const qn__gpu_maker_t* maker;
  void* self;  // the generator
  const qn_compile_request_t* request;
  size_t form;  // where to stop: an index into maker->forms
  qn_allocator_t allocator;
  qn_target_t* target;
  qn__arena_t arena;
  qn__ir_body_t body;
  bool has_body;
  qn__gpu_program_t program;
  qn__buffer_t text;   // what was printed last
  qn__buffer_t lines;  // of it, as qn__print_kernels has them
  qn__buffer_t log;    // what the compiler said about it
  qn__buffer_t out;
};

// What the target says; false and 0 where it has no such option.
bool qn__gpu_job_has(const qn__gpu_job_t* job, const char* option);
int64_t qn__gpu_job_number(const qn__gpu_job_t* job, const char* option);

// Decode, verify, passes and mapping. Of `options` the job fills in what it knows itself: checks,
// the width of warps, shared memory, and the preferred threads, from max_threads.
qn_status_t qn__gpu_job_lower(qn__gpu_job_t* job, qn__gpu_lower_options_t options);
// Kernels [first, first + count) into job->text. Of `options` the job fills in all but what the
// target has natively.
qn_status_t qn__gpu_job_print(qn__gpu_job_t* job, uint32_t first, uint32_t count,
                              qn__print_options_t options);
// Annotates (consumed) what a compiler's INTERNAL says about job->text with the first error in
// job->log; other codes stay as they are.
qn_status_t qn__gpu_job_explain(qn__gpu_job_t* job, qn_status_t status);
// Appends the mapped module's text, the form "ir".
qn_status_t qn__gpu_job_write_ir(qn__gpu_job_t* job);
// Drops what the stages have made, so that they can be run again.
void qn__gpu_job_forget(qn__gpu_job_t* job);

// As the members of qn_codegen_t.
qn_status_t qn__gpu_compile(const qn__gpu_maker_t* maker, void* self, qn_allocator_t allocator,
                            const qn_compile_request_t* request, qn_artifact_t** out_artifact);
qn_status_t qn__gpu_emit(const qn__gpu_maker_t* maker, void* self, qn_allocator_t allocator,
                         const qn_compile_request_t* request, const char* form, qn_sink_t sink);

#endif  // QUERN_JIT_GPU_JOB_H_
