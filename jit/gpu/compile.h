// jit/gpu/compile.h: the stages of a compile that both GPU code generators share: from canonical
// bytes to kernels as text, and from code to an artifact.
//
// A generator (jit/nvrtc/compile.c, jit/shaderc/compile.c) calls them in its own order, between
// qn__gpu_compile_begin and _end. Nothing here calls a generator. Thread rule: one thread per
// compile. Read next: compile.c.
#ifndef QUERN_JIT_GPU_COMPILE_H_
#define QUERN_JIT_GPU_COMPILE_H_

#include "base/buffer.h"
#include "jit/gpu/print.h"
#include "quern/backend.h"

// What messages and checks need to know of a generator.
typedef struct qn__gpu_generator {
  const char* name;
  const char* kind;  // of the targets that it makes code for
  const qn__gpu_dialect_t* dialect;
  const char* const* forms;  // that can be written out
  size_t form_count;
} qn__gpu_generator_t;

// One compile request being carried out.
typedef struct qn__gpu_compile {
  const qn__gpu_generator_t* generator;
  qn_compile_request_t request;
  qn_allocator_t allocator;
  qn_target_t* target;
  qn__arena_t arena;
  qn__ir_body_t body;
  bool has_body;
  qn__gpu_program_t program;
  qn__buffer_t text;   // what was printed last
  qn__buffer_t lines;  // of it, as qn__print_kernels has them
  qn__buffer_t log;    // what the compiler said about it
  qn__buffer_t out;    // code, or the form that was asked for
} qn__gpu_compile_t;

// Finds a form by its name. Errors: NOT_FOUND with those that there are.
qn_status_t qn__gpu_find_form(const qn__gpu_generator_t* generator, const char* name,
                              size_t* out_form);

// Reads the request and its target (both borrowed). Errors: INVALID_ARGUMENT, UNSUPPORTED for a
// target of another kind; qn__gpu_compile_end is due all the same.
qn_status_t qn__gpu_compile_begin(const qn__gpu_generator_t* generator, qn_allocator_t allocator,
                                  const qn_compile_request_t* request, qn__gpu_compile_t* job);
void qn__gpu_compile_end(qn__gpu_compile_t* job);

// Reads an option of the target; false and 0 where it has none of the name.
bool qn__gpu_compile_has(const qn__gpu_compile_t* job, const char* option);
int64_t qn__gpu_compile_number(const qn__gpu_compile_t* job, const char* option);

// Decodes, verifies, runs passes and maps. Of `options` it fills in what it knows itself: checks,
// the width of warps, shared memory, and the preferred threads, from max_threads.
qn_status_t qn__gpu_compile_lower(qn__gpu_compile_t* job, qn__gpu_lower_options_t options);
// Prints kernels [first, first + count) into job->text. Of `options` it fills in all but what the
// target has natively.
qn_status_t qn__gpu_compile_print(qn__gpu_compile_t* job, uint32_t first, uint32_t count,
                                  qn__gpu_print_options_t options);
// Annotates (consumed) what a compiler's INTERNAL says about job->text with the first error in
// job->log; other codes stay as they are.
qn_status_t qn__gpu_compile_explain(qn__gpu_compile_t* job, qn_status_t status);
// Appends the mapped module's text, the form "ir".
qn_status_t qn__gpu_compile_write_ir(qn__gpu_compile_t* job);
// Drops what the stages have made, so that they can be run again.
void qn__gpu_compile_restart(qn__gpu_compile_t* job);
// Makes the artifact of job->program, whose payload is job->out. Owned: its own release.
qn_status_t qn__gpu_compile_artifact(qn__gpu_compile_t* job, const char* format,
                                     qn_artifact_t** out_artifact);

#endif  // QUERN_JIT_GPU_COMPILE_H_
