// jit/shaderc/compile.c: canonical bytes in, artifact or an intermediate form out.
//
// The stages, each of which can be written out: decode, verify, passes and mapping ("ir"), kernels
// as texts ("glsl"), shaderc ("spirv", and "spirv-asm" for people). Each kernel is a text and a
// SPIR-V module of its own; the payload is these one behind the other, and the launch plan says
// where each one lies. Thread rule: one thread per job. Read next: compiler.c, jit/gpu/glsl.c.
#include "jit/shaderc/compile.h"

#include "ir/encode.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/gpu/print.h"
#include "jit/shaderc/messages.h"

#define QN_SHADERC_FORMS(X) X(IR, "ir") X(GLSL, "glsl") X(SPIRV, "spirv") X(SPIRV_ASM, "spirv-asm")

typedef enum form {
#define AS_ENUM(name, text) FORM_##name,
  QN_SHADERC_FORMS(AS_ENUM)
#undef AS_ENUM
      FORM_COUNT
} form_t;

static const char* const form_texts[] = {
#define AS_TEXT(name, text) text,
    QN_SHADERC_FORMS(AS_TEXT)
#undef AS_TEXT
};

typedef struct job {
  qn__shaderc_t* shaderc;
  const qn_compile_request_t* request;
  form_t form;  // where to stop
  bool has_shuffles;
  qn_target_t* target;
  qn__spirv_options_t spirv;
  qn__arena_t arena;
  qn__body_t body;
  bool has_body;
  qn__gpu_program_t program;
  qn__buffer_t text;         // of the kernel at work
  qn__buffer_t lines;        // u32 each: lines of module_text
  qn__buffer_t module_text;  // empty until a message needs it
  qn__buffer_t messages;
  qn__buffer_t out;  // the payload, or the form that was asked for
} job_t;

// ------------------------------------------------------------------------------------ the target

static bool has(const job_t* job, const char* option) {
  bool value = false;
  return qn_target_get_bool(job->target, option, &value) && value;
}

static int64_t number(const job_t* job, const char* option) {
  int64_t value = 0;
  (void)qn_target_get_int(job->target, option, &value);
  return value;
}

static qn_status_t read_version(const job_t* job, const char* option, uint32_t least, uint32_t most,
                                uint32_t* out_minor) {
  const char* text = "";
  (void)qn_target_get_string(job->target, option, &text);
  bool is_version = text[0] == '1' && text[1] == '.' && text[2] >= '0' && text[2] <= '9' &&
                    (text[3] == '\0' || text[3] == '.');
  uint32_t minor = is_version ? (uint32_t)(text[2] - '0') : 0;
  if (!is_version || minor < least) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "option %s is '%.16s'; code is made for 1.%u to 1.%u", option, text,
                          least, most);
  }
  *out_minor = minor < most ? minor : most;
  return QN_OK;
}

// A later Vulkan runs what is made for 1.3, and a device that offers less SPIR-V than its Vulkan
// says so.
static qn_status_t read_target(job_t* job) {
  static const uint32_t spirv_of_vulkan[] = {0, 3, 5, 6};
  QN_TRY(
      qn__target_parse(qn__str(job->request->target_json), job->shaderc->allocator, &job->target));
  if (job->target->kind->id != QN__KIND_VULKAN) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "the shaderc generator makes code for targets of kind vulkan, not %s",
                          qn_target_kind(job->target));
  }
  QN_TRY(read_version(job, "api_version", 1, 3, &job->spirv.vulkan_minor));
  QN_TRY(read_version(job, "spirv_version", 3, spirv_of_vulkan[job->spirv.vulkan_minor],
                      &job->spirv.spirv_minor));
  job->spirv.is_optimized = job->request->tier != QN_TIER_FAST;
  job->spirv.f64_modes = qn__spirv_modes_of_f64(job->target);
  return QN_OK;
}

// ------------------------------------------------------------------------------------ stages

static qn_status_t lower(job_t* job) {
  const qn_compile_request_t* request = job->request;
  qn_span_t bytes = {request->module_bytes, request->module_size};
  QN_TRY(qn__body_decode(bytes, job->shaderc->allocator, &job->body));
  job->has_body = true;
  QN_TRY(qn__body_verify_status(&job->body, "the module"));
  int64_t threads = number(job, "max_threads_per_block");
  if (number(job, "max_block_size_x") < threads) threads = number(job, "max_block_size_x");
  // Without 64-bit integers there is no wide kernel.
  int64_t index_bits = has(job, "supports_int64") ? number(job, "index_bits") : 32;
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
              .has_shuffles = job->has_shuffles,
          },
      .index_bits = (uint32_t)index_bits,
  };
  return qn__gpu_lower(&job->body, &options, &job->arena, &job->program);
}

static qn_status_t print_kernel(job_t* job, uint32_t index) {
  qn__print_options_t options = {
      .dialect = &qn__dialect_glsl,
      .program = &job->program,
      .target = job->target,
      .has_native_fma = has(job, "supports_fused_multiply_add"),
      .is_fast_tier = job->request->tier == QN_TIER_FAST,
      .has_int64 = has(job, "supports_int64"),
      .has_float64 = has(job, "supports_float64"),
  };
  qn__buffer_clear(&job->text);
  qn__buffer_clear(&job->lines);
  QN_TRY(qn__print_kernels(&options, index, 1, &job->text, &job->lines));
  QN_TRY(qn__buffer_status(&job->lines, "the lines of a kernel"));
  return qn__buffer_status(&job->text, "the text of a kernel");
}

static qn_status_t explain(job_t* job, uint32_t index, qn_status_t status) {
  if (qn_status_code(status) != QN_STATUS_INTERNAL) return status;
  if (job->module_text.size == 0) qn__text_print(&job->body, &job->module_text);
  uint32_t* lines =
      qn__arena_alloc_array(&job->arena, job->lines.size / sizeof *lines + 1, sizeof *lines);
  if (!lines) return status;
  memcpy(lines, job->lines.data, job->lines.size);
  qn__kernel_text_t kernel = {
      .function = job->program.kernels[index].function->name,
      .index = index,
      .text = qn__buffer_as_str(&job->text),
      .lines = lines,
      .line_count = job->lines.size / sizeof *lines,
      .module_text = qn__buffer_as_str(&job->module_text),
  };
  return qn__shaderc_explain(status, &kernel, qn__buffer_as_str(&job->messages));
}

// The name that messages begin with.
static const char kernel_name[] = "kernel.comp";

static qn_status_t compile_kernel(job_t* job, uint32_t index) {
  QN_TRY(print_kernel(job, index));
  if (job->form == FORM_IR) return QN_OK;
  qn__gpu_kernel_t* plan = job->program.kernels[index].plan;
  const char* function = job->program.kernels[index].function->name;
  if (job->form == FORM_GLSL) {
    qn__buffer_format(&job->out, "%s// kernel %u, of function %s\n", index ? "\n" : "", index,
                      function);
    qn__buffer_str(&job->out, qn__buffer_as_str(&job->text));
    return qn__buffer_status(&job->out, "the text of a kernel");
  }
  qn__buffer_clear(&job->messages);
  qn__spirv_options_t options = job->spirv;
  options.wants_assembly = job->form == FORM_SPIRV_ASM;
  if (options.wants_assembly) {
    qn__buffer_format(&job->out, "%s; kernel %u, of function %s\n", index ? "\n" : "", index,
                      function);
  }
  size_t begin = job->out.size;
  qn_status_t status = qn__spirv_compile(job->shaderc->compiler, &options, kernel_name,
                                         qn__buffer_as_str(&job->text), &job->out, &job->messages);
  if (!qn_ok(status)) return explain(job, index, status);
  plan->code_offset = begin;
  plan->code_size_bytes = job->out.size - begin;
#ifndef NDEBUG
  if (!options.wants_assembly) {
    return qn__spirv_validate((qn_span_t){job->out.data + begin, job->out.size - begin}, &options);
  }
#endif
  return QN_OK;
}

static qn_status_t run_stages(job_t* job) {
  QN_TRY(lower(job));
  bool has_kernels = job->form != FORM_IR || job->has_shuffles;
  for (uint32_t i = 0; has_kernels && i < job->program.kernel_count; ++i) {
    QN_TRY(compile_kernel(job, i));
  }
  if (job->form != FORM_IR) return QN_OK;
  qn__text_print(&job->body, &job->out);
  return qn__buffer_status(&job->out, "the text of a module");
}

// What a first attempt made.
static void forget(job_t* job) {
  if (job->has_body) qn__body_deinit(&job->body);
  job->has_body = false;
  qn__arena_deinit(&job->arena);
  qn__arena_init(&job->arena, job->shaderc->allocator);
  memset(&job->program, 0, sizeof job->program);
  qn__buffer_clear(&job->module_text);
  qn__buffer_clear(&job->out);
}

// Only when a kernel is printed does it turn out whether its threads fill their subgroups. If they
// do not, everything is done again with exchanges through shared memory. The mapped module is that
// of the code, so --emit ir prints the kernels too where it has shuffles.
static qn_status_t run(job_t* job) {
  if (job->request->struct_size < sizeof *job->request) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the compile request is of an older version");
  }
  QN_TRY(read_target(job));
  job->has_shuffles = has(job, "supports_subgroup_shuffle");
  qn_status_t status = run_stages(job);
  if (qn_status_code(status) != QN_STATUS_UNSUPPORTED || !job->has_shuffles) return status;
  qn_status_free(status);
  forget(job);
  job->has_shuffles = false;
  return run_stages(job);
}

// ------------------------------------------------------------------------------------ jobs

static void begin(qn__shaderc_t* shaderc, const qn_compile_request_t* request, form_t form,
                  job_t* job) {
  memset(job, 0, sizeof *job);
  job->shaderc = shaderc;
  job->request = request;
  job->form = form;
  qn__arena_init(&job->arena, shaderc->allocator);
  qn__buffer_t* const buffers[] = {&job->text, &job->lines, &job->module_text, &job->messages,
                                   &job->out};
  for (size_t i = 0; i < QN_COUNT_OF(buffers); ++i) {
    qn__buffer_init(buffers[i], shaderc->allocator);
  }
}

static void end(job_t* job) {
  qn__buffer_deinit(&job->text);
  qn__buffer_deinit(&job->lines);
  qn__buffer_deinit(&job->module_text);
  qn__buffer_deinit(&job->messages);
  qn__buffer_deinit(&job->out);
  if (job->has_body) qn__body_deinit(&job->body);
  qn_target_release(job->target);
  qn__arena_deinit(&job->arena);
}

qn_status_t qn__shaderc_compile(qn__shaderc_t* shaderc, const qn_compile_request_t* request,
                                qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  job_t job;
  begin(shaderc, request, FORM_SPIRV, &job);
  qn_status_t status = run(&job);
  if (qn_ok(status)) {
    status = qn__gpu_artifact(&job.program, "vulkan-spirv-1", qn__target_isa_json(job.target),
                              &job.out, shaderc->allocator, out_artifact);
  }
  end(&job);
  return status;
}

qn_status_t qn__shaderc_emit(qn__shaderc_t* shaderc, const qn_compile_request_t* request,
                             const char* form, qn_sink_t sink) {
  form_t wanted = 0;
  while (wanted < FORM_COUNT && strcmp(form, form_texts[wanted]) != 0) ++wanted;
  if (wanted == FORM_COUNT) {
    return qn_status_make(QN_STATUS_NOT_FOUND,
                          "the shaderc generator has no form '%.32s'; there are ir, glsl, spirv "
                          "and spirv-asm",
                          form);
  }
  job_t job;
  begin(shaderc, request, wanted, &job);
  qn_status_t status = run(&job);
  if (qn_ok(status)) status = sink.write(sink.self, job.out.data, job.out.size);
  end(&job);
  return status;
}

qn_status_t qn__shaderc_create(qn_allocator_t allocator, qn__shaderc_t** out_shaderc) {
  *out_shaderc = NULL;
  qn__shaderc_t* shaderc = qn__alloc_zero(allocator, 1, sizeof *shaderc);
  if (!shaderc) return qn__out_of_memory("the shaderc generator");
  shaderc->allocator = allocator;
  (void)qn__shaderc_identity(shaderc->identity);
  qn_status_t status = qn__spirv_compiler_create(allocator, &shaderc->compiler);
  if (!qn_ok(status)) {
    qn__free(allocator, shaderc, sizeof *shaderc);
    return status;
  }
  *out_shaderc = shaderc;
  return QN_OK;
}

void qn__shaderc_destroy(qn__shaderc_t* shaderc) {
  if (!shaderc) return;
  qn__spirv_compiler_destroy(shaderc->compiler);
  qn__free(shaderc->allocator, shaderc, sizeof *shaderc);
}
