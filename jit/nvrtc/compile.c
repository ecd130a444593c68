// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/compile.c: compiles canonical bytes to an artifact or an intermediate form.
//
// The stages and the form that each can emit:
//  1. decode, verify, run the passes and map     "ir", or after a pass "ir:NAME"
//  2. print all kernels as one text              "cuda"
//  3. compile with NVRTC                         "ptx", "cubin"
//  4. disassemble with a program of the toolkit  "sass"
// The payload is the cubin; the launch plan names the kernels in it. A module without kernels has
// an empty payload. Read next: jit/gpu/compile.h, compiler.c, jit/gpu/cuda.c.
#include "jit/nvrtc/compile.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "jit/gpu/compile.h"
#include "jit/nvrtc/disassemble.h"

enum { FORM_IR, FORM_CUDA, FORM_PTX, FORM_CUBIN, FORM_SASS };
static const char* const forms[] = {[FORM_IR] = "ir",
                                    [FORM_CUDA] = "cuda",
                                    [FORM_PTX] = "ptx",
                                    [FORM_CUBIN] = "cubin",
                                    [FORM_SASS] = "sass"};

static const qn__gpu_generator_t generator = {
    .name = "nvrtc",
    .kind = "cuda",
    .dialect = &qn__gpu_dialect_cuda,
    .forms = forms,
    .form_count = QN_COUNT_OF(forms),
};

// ------------------------------------------------------------------------------------ stages

static qn_status_t read_arch(const qn__gpu_compile_t* job, const char** out_arch) {
  const char* arch = "";
  (void)qn_target_get_string(job->target, "arch", &arch);
  // NVRTC might read text of another form as a different option.
  size_t digits = strncmp(arch, "sm_", 3) == 0 ? strspn(arch + 3, "0123456789") : 0;
  const char* suffix = arch + 3 + digits;
  if (digits < 2 || digits > 3 ||
      (suffix[0] != '\0' && ((suffix[0] != 'a' && suffix[0] != 'f') || suffix[1] != '\0'))) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "option arch is '%.32s'; machine code is made for sm_NN, with the suffix "
                          "a or f where there is one",
                          arch);
  }
  *out_arch = arch;
  return QN_OK;
}

static qn_status_t lower(qn__gpu_compile_t* job, const char* arch) {
  qn__gpu_lower_options_t options = {
      .passes = qn__gpu_compile_passes(job),
      .index_bits = (uint32_t)qn__gpu_compile_number(job, "index_bits"),
      .has_names = true,
  };
  options.passes.has_matrix_units = strtol(arch + 3, NULL, 10) >= 80;
  options.passes.has_warpgroups = strcmp(arch, "sm_90a") == 0;  // no other has wgmma
  return qn__gpu_compile_lower(job, options);
}

// The file name in NVRTC's messages.
static const char text_name[] = "quern.cu";

static qn_status_t make_code(const qn__nvrtc_t* nvrtc, qn__gpu_compile_t* job, const char* arch,
                             bool wants_ptx) {
  uint32_t count = job->program.kernel_count;
  if (count == 0) return QN_OK;
  qn__nvrtc_options_t options = {
      .arch = arch,
      .is_fast_tier = job->request.tier == QN_TIER_FAST,
      .wants_ptx = wants_ptx,
  };
  qn_status_t status = qn__nvrtc_compiler_compile(
      nvrtc->compiler, &options, text_name, (const char*)job->text.data, &job->out, &job->log);
  if (!qn_ok(status)) return qn__gpu_compile_explain(job, status);
  qn__gpu_compile_stage(job, QN_COMPILE_CODEGEN);
  for (uint32_t i = 0; i < count; ++i) {
    job->program.kernels[i].plan->code_offset = 0;
    job->program.kernels[i].plan->code_size_bytes = job->out.size;
  }
  return QN_OK;
}

static qn_status_t disassemble(qn__gpu_compile_t* job) {
  if (job->out.size == 0) return QN_OK;
  qn__buffer_t text;
  qn__buffer_init(&text, job->allocator);
  qn_status_t status = qn__cubin_disassemble(qn__buffer_as_span(&job->out), &text);
  if (qn_ok(status)) {
    qn__buffer_clear(&job->out);
    qn__buffer_bytes(&job->out, text.data, text.size);
    status = qn__buffer_status(&job->out, "the text of a cubin");
  }
  qn__buffer_deinit(&text);
  return status;
}

// Compiles a request up to `form`, into job->out. Call qn__gpu_compile_end also after a failure.
static qn_status_t run(const qn__nvrtc_t* nvrtc, const qn_compile_request_t* request, size_t form,
                       const char* until, qn__gpu_compile_t* job) {
  QN_TRY(qn__gpu_compile_begin(&generator, nvrtc->allocator, request, job));
  job->until = until;
  const char* arch = "";
  QN_TRY(read_arch(job, &arch));
  QN_TRY(lower(job, arch));
  if (form == FORM_IR) return qn__gpu_compile_write_ir(job);
  const qn__gpu_print_options_t has = {
      .has_native_fma = true, .has_int64 = true, .has_float64 = true};
  QN_TRY(qn__gpu_compile_print(job, 0, job->program.kernel_count, has));
  if (form == FORM_CUDA) {
    qn__buffer_str(&job->out, qn__buffer_as_str(&job->text));
    return qn__buffer_status(&job->out, "the text of kernels");
  }
  QN_TRY(make_code(nvrtc, job, arch, form == FORM_PTX));
  return form == FORM_SASS ? disassemble(job) : QN_OK;
}

// ------------------------------------------------------------------------------------ requests

qn_status_t qn__nvrtc_compile(qn__nvrtc_t* nvrtc, const qn_compile_request_t* request,
                              qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  qn__gpu_compile_t job;
  qn_status_t status = run(nvrtc, request, FORM_CUBIN, NULL, &job);
  if (qn_ok(status)) status = qn__gpu_compile_artifact(&job, "cuda-cubin-1", out_artifact);
  qn__gpu_compile_end(&job);
  return status;
}

qn_status_t qn__nvrtc_emit(qn__nvrtc_t* nvrtc, const qn_compile_request_t* request,
                           const char* form, qn_sink_t sink) {
  size_t wanted;
  const char* until;
  QN_TRY(qn__gpu_find_form(&generator, form, &wanted, &until));
  qn__gpu_compile_t job;
  qn_status_t status = run(nvrtc, request, wanted, until, &job);
  if (qn_ok(status)) status = sink.write(sink.self, job.out.data, job.out.size);
  qn__gpu_compile_end(&job);
  return status;
}

qn_status_t qn__nvrtc_create(qn_allocator_t allocator, qn__nvrtc_t** out_nvrtc) {
  *out_nvrtc = NULL;
  qn__nvrtc_t* nvrtc = qn__alloc_zero(allocator, 1, sizeof *nvrtc);
  if (!nvrtc) return qn__out_of_memory("the nvrtc generator");
  nvrtc->allocator = allocator;
  qn_status_t status = qn__nvrtc_open(allocator, &nvrtc->library);
  if (qn_ok(status)) {
    qn__nvrtc_identity(&nvrtc->library, nvrtc->identity);
    status = qn__nvrtc_compiler_create(allocator, &nvrtc->library, &nvrtc->compiler);
  }
  if (!qn_ok(status)) {
    qn__free(allocator, nvrtc, sizeof *nvrtc);
    return status;
  }
  *out_nvrtc = nvrtc;
  return QN_OK;
}

void qn__nvrtc_destroy(qn__nvrtc_t* nvrtc) {
  if (!nvrtc) return;
  qn__nvrtc_compiler_destroy(nvrtc->compiler);
  qn__free(nvrtc->allocator, nvrtc, sizeof *nvrtc);
}
