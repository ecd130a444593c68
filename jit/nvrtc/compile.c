// jit/nvrtc/compile.c: canonical bytes in, artifact or an intermediate form out.
//
// The stages, each of which can be written out: decode, verify, passes and mapping ("ir"), all
// kernels as one text ("cuda"), NVRTC ("ptx", "cubin"), a disassembler of the toolkit ("sass"). The
// payload is the cubin; the launch plan names the kernels in it. A module without kernels has an
// empty payload. Thread rule: one thread per job. Read next: compiler.c, jit/gpu/cuda.c.
#include "jit/nvrtc/compile.h"

#include "base/alloc.h"
#include "ir/encode.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/gpu/print.h"
#include "jit/nvrtc/disassemble.h"
#include "jit/nvrtc/messages.h"

#define QN_NVRTC_FORMS(X) \
  X(IR, "ir") X(CUDA, "cuda") X(PTX, "ptx") X(CUBIN, "cubin") X(SASS, "sass")

typedef enum form {
#define AS_ENUM(name, text) FORM_##name,
  QN_NVRTC_FORMS(AS_ENUM)
#undef AS_ENUM
      FORM_COUNT
} form_t;

static const char* const form_texts[] = {
#define AS_TEXT(name, text) text,
    QN_NVRTC_FORMS(AS_TEXT)
#undef AS_TEXT
};

typedef struct job {
  qn__nvrtc_t* nvrtc;
  const qn_compile_request_t* request;
  form_t form;  // where to stop
  qn_target_t* target;
  const char* arch;
  qn__arena_t arena;
  qn__body_t body;
  bool has_body;
  qn__gpu_program_t program;
  qn__buffer_t text;
  qn__buffer_t lines;  // u32 each: lines of the mapped module's text
  qn__buffer_t log;
  qn__buffer_t out;  // the payload, or the form that was asked for
} job_t;

// ------------------------------------------------------------------------------------ the target

static int64_t number(const job_t* job, const char* option) {
  int64_t value = 0;
  (void)qn_target_get_int(job->target, option, &value);
  return value;
}

static qn_status_t read_target(job_t* job) {
  QN_TRY(qn__target_parse(qn__str(job->request->target_json), job->nvrtc->allocator, &job->target));
  if (job->target->kind->id != QN__KIND_CUDA) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "the nvrtc generator makes code for targets of kind cuda, not %s",
                          qn_target_kind(job->target));
  }
  job->arch = "";
  (void)qn_target_get_string(job->target, "arch", &job->arch);
  // What is not of this form might be read as another option.
  size_t digits = strncmp(job->arch, "sm_", 3) == 0 ? strspn(job->arch + 3, "0123456789") : 0;
  const char* suffix = job->arch + 3 + digits;
  if (digits < 2 || digits > 3 ||
      (suffix[0] != '\0' && ((suffix[0] != 'a' && suffix[0] != 'f') || suffix[1] != '\0'))) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "option arch is '%.32s'; machine code is made for sm_NN, with the suffix "
                          "a or f where there is one",
                          job->arch);
  }
  return QN_OK;
}

// ------------------------------------------------------------------------------------ stages

static qn_status_t lower(job_t* job) {
  const qn_compile_request_t* request = job->request;
  qn_span_t bytes = {request->module_bytes, request->module_size};
  QN_TRY(qn__body_decode(bytes, job->nvrtc->allocator, &job->body));
  job->has_body = true;
  QN_TRY(qn__body_verify_status(&job->body, "the module"));
  int64_t threads = number(job, "max_threads_per_block");
  uint32_t preferred = 1;
  while (preferred < 256 && preferred * 2 <= threads) preferred *= 2;
  qn__gpu_lower_options_t options = {
      .passes =
          {
              .is_checked = request->is_checked,
              .warp_size = (uint32_t)number(job, "warp_size"),
              .max_threads = (uint32_t)threads,
              .preferred_threads = preferred,
              .max_shared_bytes = (uint32_t)number(job, "max_shared_memory_per_block"),
              .multiprocessors = (uint32_t)number(job, "multiprocessors"),
              .has_shuffles = true,
              .has_block_reductions = true,
          },
      .index_bits = (uint32_t)number(job, "index_bits"),
      .has_names = true,
  };
  return qn__gpu_lower(&job->body, &options, &job->arena, &job->program);
}

static qn_status_t print(job_t* job) {
  qn__print_options_t options = {
      .dialect = &qn__dialect_cuda,
      .program = &job->program,
      .target = job->target,
      .has_native_fma = true,
      .is_fast_tier = job->request->tier == QN_TIER_FAST,
      .has_int64 = true,
      .has_float64 = true,
  };
  QN_TRY(qn__print_kernels(&options, 0, job->program.kernel_count, &job->text, &job->lines));
  QN_TRY(qn__buffer_status(&job->lines, "the lines of a text"));
  return qn__buffer_status(&job->text, "the text of kernels");
}

static qn_status_t explain(job_t* job, qn_status_t status) {
  if (qn_status_code(status) != QN_STATUS_INTERNAL) return status;
  qn__buffer_t module;
  qn__buffer_init(&module, job->nvrtc->allocator);
  qn__text_print(&job->body, &module);
  size_t count = job->lines.size / sizeof(uint32_t);
  uint32_t* lines = qn__arena_alloc_array(&job->arena, count + 1, sizeof *lines);
  if (lines) {
    memcpy(lines, job->lines.data, count * sizeof *lines);
    qn__cuda_text_t text = {
        .text = qn__buffer_as_str(&job->text),
        .lines = lines,
        .line_count = count,
        .module_text = qn__buffer_as_str(&module),
    };
    status = qn__nvrtc_explain(status, &text, qn__buffer_as_str(&job->log));
  }
  qn__buffer_deinit(&module);
  return status;
}

// The name that messages begin with.
static const char text_name[] = "quern.cu";

static qn_status_t make_code(job_t* job) {
  uint32_t count = job->program.kernel_count;
  if (count == 0) return QN_OK;
  qn__cuda_options_t options = {
      .arch = job->arch,
      .is_fast_tier = job->request->tier == QN_TIER_FAST,
      .wants_ptx = job->form == FORM_PTX,
  };
  qn_status_t status = qn__cuda_compile(job->nvrtc->compiler, &options, text_name,
                                        (const char*)job->text.data, &job->out, &job->log);
  if (!qn_ok(status)) return explain(job, status);
  for (uint32_t i = 0; i < count; ++i) {
    job->program.kernels[i].plan->code_offset = 0;
    job->program.kernels[i].plan->code_size_bytes = job->out.size;
  }
  return QN_OK;
}

static qn_status_t disassemble(job_t* job) {
  if (job->out.size == 0) return QN_OK;
  qn__buffer_t text;
  qn__buffer_init(&text, job->nvrtc->allocator);
  qn_status_t status = qn__cubin_disassemble(qn__buffer_as_span(&job->out), &text);
  if (qn_ok(status)) {
    qn__buffer_clear(&job->out);
    qn__buffer_bytes(&job->out, text.data, text.size);
    status = qn__buffer_status(&job->out, "the text of a cubin");
  }
  qn__buffer_deinit(&text);
  return status;
}

static qn_status_t run(job_t* job) {
  if (job->request->struct_size < sizeof *job->request) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the compile request is of an older version");
  }
  QN_TRY(read_target(job));
  QN_TRY(lower(job));
  if (job->form == FORM_IR) {
    qn__text_print(&job->body, &job->out);
    return qn__buffer_status(&job->out, "the text of a module");
  }
  QN_TRY(print(job));
  if (job->form == FORM_CUDA) {
    qn__buffer_bytes(&job->out, job->text.data, job->text.size);
    return qn__buffer_status(&job->out, "the text of kernels");
  }
  QN_TRY(make_code(job));
  return job->form == FORM_SASS ? disassemble(job) : QN_OK;
}

// ------------------------------------------------------------------------------------ jobs

static void begin(qn__nvrtc_t* nvrtc, const qn_compile_request_t* request, form_t form,
                  job_t* job) {
  memset(job, 0, sizeof *job);
  job->nvrtc = nvrtc;
  job->request = request;
  job->form = form;
  qn__arena_init(&job->arena, nvrtc->allocator);
  qn__buffer_t* const buffers[] = {&job->text, &job->lines, &job->log, &job->out};
  for (size_t i = 0; i < QN_COUNT_OF(buffers); ++i) qn__buffer_init(buffers[i], nvrtc->allocator);
}

static void end(job_t* job) {
  qn__buffer_deinit(&job->text);
  qn__buffer_deinit(&job->lines);
  qn__buffer_deinit(&job->log);
  qn__buffer_deinit(&job->out);
  if (job->has_body) qn__body_deinit(&job->body);
  qn_target_release(job->target);
  qn__arena_deinit(&job->arena);
}

qn_status_t qn__nvrtc_compile(qn__nvrtc_t* nvrtc, const qn_compile_request_t* request,
                              qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  job_t job;
  begin(nvrtc, request, FORM_CUBIN, &job);
  qn_status_t status = run(&job);
  if (qn_ok(status)) {
    status = qn__gpu_artifact(&job.program, "cuda-cubin-1", qn__target_isa_json(job.target),
                              &job.out, nvrtc->allocator, out_artifact);
  }
  end(&job);
  return status;
}

qn_status_t qn__nvrtc_emit(qn__nvrtc_t* nvrtc, const qn_compile_request_t* request,
                           const char* form, qn_sink_t sink) {
  form_t wanted = 0;
  while (wanted < FORM_COUNT && strcmp(form, form_texts[wanted]) != 0) ++wanted;
  if (wanted == FORM_COUNT) {
    return qn_status_make(
        QN_STATUS_NOT_FOUND,
        "the nvrtc generator has no form '%.32s'; there are ir, cuda, ptx, cubin and sass", form);
  }
  job_t job;
  begin(nvrtc, request, wanted, &job);
  qn_status_t status = run(&job);
  if (qn_ok(status)) status = sink.write(sink.self, job.out.data, job.out.size);
  end(&job);
  return status;
}

qn_status_t qn__nvrtc_create(qn_allocator_t allocator, qn__nvrtc_t** out_nvrtc) {
  *out_nvrtc = NULL;
  qn__nvrtc_t* nvrtc = qn__alloc_zero(allocator, 1, sizeof *nvrtc);
  if (!nvrtc) return qn__out_of_memory("the nvrtc generator");
  nvrtc->allocator = allocator;
  qn_status_t status = qn__nvrtc_open(allocator, &nvrtc->library);
  if (qn_ok(status)) {
    (void)qn__nvrtc_identity(&nvrtc->library, nvrtc->identity);
    status = qn__cuda_compiler_create(allocator, &nvrtc->library, &nvrtc->compiler);
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
  qn__cuda_compiler_destroy(nvrtc->compiler);
  qn__free(nvrtc->allocator, nvrtc, sizeof *nvrtc);
}
