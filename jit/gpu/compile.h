// SPDX-License-Identifier: Apache-2.0
// jit/gpu/compile.h: the stages of a compile that both GPU code generators share: from the
// canonical bytes of a module to the text of its kernels, and from code to an artifact.
//
// A generator (jit/nvrtc/compile.c, jit/shaderc/compile.c) calls the stages in its own order,
// between qn__gpu_compile_begin and _end. Usually that is lower, print, its compiler, artifact.
// Thread rule: one thread at a time for each compile.
#ifndef QUERN_JIT_GPU_COMPILE_H_
#define QUERN_JIT_GPU_COMPILE_H_

#include "base/buffer.h"
#include "jit/gpu/print.h"
#include "quern/backend.h"

// A generator's description, for messages and checks.
typedef struct qn__gpu_generator {
  const char* name;
  const char* kind;  // of the targets that it makes code for
  const qn__gpu_dialect_t* dialect;
  const char* const* forms;  // names of the forms that it can write, such as "ir"
  size_t form_count;
} qn__gpu_generator_t;

// The state of one compile.
typedef struct qn__gpu_compile {
  const qn__gpu_generator_t* generator;
  qn_compile_request_t request;
  qn_allocator_t allocator;
  qn_target_t* target;
  qn__arena_t arena;
  qn__ir_body_t body;
  bool has_body;
  qn__gpu_program_t program;
  qn__buffer_t text;   // of the kernels that were printed last
  qn__buffer_t lines;  // of `text`, as qn__print_kernels writes them
  qn__buffer_t log;    // of the compiler, for `text`
  qn__buffer_t out;    // the code, or the requested form
  int64_t stage_start_ns;
  const char* until;  // NULL, or the pass to end with: for the form "ir:NAME"
} qn__gpu_compile_t;

// Finds a form by its name. Of "ir:NAME" it also gives the name of the pass to end with, which is
// NULL for others. Errors: NOT_FOUND, with a list of the forms.
qn_status_t qn__gpu_find_form(const qn__gpu_generator_t* generator, const char* name,
                              size_t* out_form, const char** out_until);

// Starts a compile: reads the request and its target. The bytes of the request are borrowed until
// qn__gpu_compile_end, which must also be called after an error. Errors: INVALID_ARGUMENT,
// UNSUPPORTED for a target of another kind.
qn_status_t qn__gpu_compile_begin(const qn__gpu_generator_t* generator, qn_allocator_t allocator,
                                  const qn_compile_request_t* request, qn__gpu_compile_t* job);
void qn__gpu_compile_end(qn__gpu_compile_t* job);
// Reports a stage that has ended. The functions below report their own.
void qn__gpu_compile_stage(qn__gpu_compile_t* job, qn_compile_stage_t stage);

// Read an option of the target; false and 0 if the target has no such option.
bool qn__gpu_compile_has(const qn__gpu_compile_t* job, const char* option);
int64_t qn__gpu_compile_number(const qn__gpu_compile_t* job, const char* option);

// Returns the options of the passes for the request and the machine of the target (jit/lower).
qn__pass_options_t qn__gpu_compile_passes(const qn__gpu_compile_t* job);
// Decodes and verifies the module, runs the passes and splits it into kernels (qn__gpu_lower). With
// job->until the passes end there, and nothing is split.
qn_status_t qn__gpu_compile_lower(qn__gpu_compile_t* job, qn__gpu_lower_options_t options);
// Prints kernels [first, first + count) into job->text. The caller sets only the `has_*` fields of
// `options`.
qn_status_t qn__gpu_compile_print(qn__gpu_compile_t* job, uint32_t first, uint32_t count,
                                  qn__gpu_print_options_t options);
// Annotates an INTERNAL status (consumed) of the compiler with the first error in job->log, which
// refers to job->text. Returns other statuses unchanged.
qn_status_t qn__gpu_compile_explain(qn__gpu_compile_t* job, qn_status_t status);
// Appends the mapped module's text, the form "ir".
qn_status_t qn__gpu_compile_write_ir(qn__gpu_compile_t* job);
// Drops the results of all stages, so that they can run again with other options.
void qn__gpu_compile_restart(qn__gpu_compile_t* job);
// Makes the artifact of job->program with the payload job->out. The caller owns the artifact.
qn_status_t qn__gpu_compile_artifact(qn__gpu_compile_t* job, const char* format,
                                     qn_artifact_t** out_artifact);

#endif  // QUERN_JIT_GPU_COMPILE_H_
