// SPDX-License-Identifier: Apache-2.0
// jit/shaderc/compile.c: compiles canonical bytes to an artifact or an intermediate form.
//
// The stages and the form that each can emit:
//  1. decode, verify, run the passes and map  "ir", or after a pass "ir:NAME"
//  2. print each kernel as a text             "glsl"
//  3. compile each text with shaderc          "spirv", and disassembled "spirv-asm"
// The payload is the concatenation of the kernels' SPIR-V modules; the launch plan has their
// offsets. Read next: jit/gpu/compile.h, compiler.c, jit/gpu/glsl.c.
#include "jit/shaderc/compile.h"

#include "base/alloc.h"
#include "jit/gpu/compile.h"

enum { FORM_IR, FORM_GLSL, FORM_SPIRV, FORM_SPIRV_ASM };
static const char* const forms[] = {
    [FORM_IR] = "ir", [FORM_GLSL] = "glsl", [FORM_SPIRV] = "spirv", [FORM_SPIRV_ASM] = "spirv-asm"};

static const qn__gpu_generator_t generator = {
    .name = "shaderc",
    .kind = "vulkan",
    .dialect = &qn__gpu_dialect_glsl,
    .forms = forms,
    .form_count = QN_COUNT_OF(forms),
};

// ------------------------------------------------------------------------------------ the target

static qn_status_t read_version(const qn__gpu_compile_t* job, const char* option, uint32_t least,
                                uint32_t most, uint32_t* out_minor) {
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

// Reads the versions of Vulkan and SPIR-V from the target. Code for Vulkan 1.3 also runs on later
// versions. A target may limit SPIR-V below the version that its Vulkan supports.
static qn_status_t read_options(const qn__gpu_compile_t* job, size_t form,
                                qn__shaderc_options_t* out) {
  static const uint32_t spirv_of_vulkan[] = {0, 3, 5, 6};
  *out = (qn__shaderc_options_t){.is_optimized = job->request.tier != QN_TIER_FAST,
                                 .wants_assembly = form == FORM_SPIRV_ASM,
                                 .f64_modes = qn__shaderc_modes_of_f64(job->target)};
  QN_TRY(read_version(job, "api_version", 1, 3, &out->vulkan_minor));
  return read_version(job, "spirv_version", 3, spirv_of_vulkan[out->vulkan_minor],
                      &out->spirv_minor);
}

// ------------------------------------------------------------------------------------ stages

static qn_status_t lower(qn__gpu_compile_t* job, bool has_shuffles) {
  // Without 64-bit integers there is no wide kernel.
  bool has_wide = qn__gpu_compile_has(job, "supports_int64");
  qn__gpu_lower_options_t options = {
      .passes = qn__gpu_compile_passes(job),
      .index_bits = has_wide ? (uint32_t)qn__gpu_compile_number(job, "index_bits") : 32,
  };
  options.passes.has_shuffles = has_shuffles;
  return qn__gpu_compile_lower(job, options);
}

static qn_status_t print_kernel(qn__gpu_compile_t* job, uint32_t index) {
  const qn__gpu_print_options_t has = {
      .has_native_fma = qn__gpu_compile_has(job, "supports_fused_multiply_add"),
      .has_int64 = qn__gpu_compile_has(job, "supports_int64"),
      .has_float64 = qn__gpu_compile_has(job, "supports_float64"),
  };
  return qn__gpu_compile_print(job, index, 1, has);
}

// Writes a heading before a kernel in a readable form.
static void write_title(qn__gpu_compile_t* job, const char* comment, uint32_t index) {
  qn__buffer_format(&job->out, "%s%s kernel %u, of function %s\n", index ? "\n" : "", comment,
                    index, job->program.kernels[index].function->name);
}

// The file name in shaderc's messages.
static const char kernel_name[] = "kernel.comp";

static qn_status_t make_code(const qn__shaderc_t* shaderc, qn__gpu_compile_t* job,
                             const qn__shaderc_options_t* options, uint32_t index) {
  const qn__gpu_kernel_ir_t* kernel = &job->program.kernels[index];
  if (options->wants_assembly) write_title(job, ";", index);
  size_t begin = job->out.size;
  qn_status_t status = qn__shaderc_compiler_compile(
      shaderc->compiler, options, kernel_name, qn__buffer_as_str(&job->text), &job->out, &job->log);
  if (!qn_ok(status)) {
    return qn_status_annotate(qn__gpu_compile_explain(job, status), "function '%s', kernel %u",
                              kernel->function->name, index);
  }
  qn__gpu_compile_stage(job, QN_COMPILE_CODEGEN);
  kernel->plan->code_offset = begin;
  kernel->plan->code_size_bytes = job->out.size - begin;
#ifndef NDEBUG
  if (!options->wants_assembly) {
    return qn__shaderc_validate((qn_span_t){job->out.data + begin, job->out.size - begin}, options);
  }
#endif
  return QN_OK;
}

static qn_status_t run_stages(const qn__shaderc_t* shaderc, qn__gpu_compile_t* job, size_t form,
                              const qn__shaderc_options_t* options, bool has_shuffles) {
  QN_TRY(lower(job, has_shuffles));
  bool has_kernels = form != FORM_IR || has_shuffles;
  for (uint32_t i = 0; has_kernels && i < job->program.kernel_count; ++i) {
    QN_TRY(print_kernel(job, i));
    if (form == FORM_IR) continue;
    if (form == FORM_GLSL) {
      write_title(job, "//", i);
      qn__buffer_str(&job->out, qn__buffer_as_str(&job->text));
    } else {
      QN_TRY(make_code(shaderc, job, options, i));
    }
  }
  if (form == FORM_IR) return qn__gpu_compile_write_ir(job);
  return qn__buffer_status(&job->out, "the text of kernels");
}

// Compiles a request up to `form`, into job->out. Call qn__gpu_compile_end also after a failure.
//
// Printing a kernel is what shows whether its threads fill their subgroups. If they do not, all
// stages are repeated with exchanges through shared memory instead of shuffles. So that "ir" shows
// the module that the code is made from, it prints the kernels, too, where it has shuffles.
static qn_status_t run(const qn__shaderc_t* shaderc, const qn_compile_request_t* request,
                       size_t form, const char* until, qn__gpu_compile_t* job) {
  QN_TRY(qn__gpu_compile_begin(&generator, shaderc->allocator, request, job));
  job->until = until;
  qn__shaderc_options_t options;
  QN_TRY(read_options(job, form, &options));
  bool has_shuffles = qn__gpu_compile_has(job, "supports_subgroup_shuffle");
  qn_status_t status = run_stages(shaderc, job, form, &options, has_shuffles);
  if (qn_status_code(status) != QN_STATUS_UNSUPPORTED || !has_shuffles) return status;
  qn_status_free(status);
  qn__gpu_compile_restart(job);
  return run_stages(shaderc, job, form, &options, false);
}

// ------------------------------------------------------------------------------------ requests

qn_status_t qn__shaderc_compile(qn__shaderc_t* shaderc, const qn_compile_request_t* request,
                                qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  qn__gpu_compile_t job;
  qn_status_t status = run(shaderc, request, FORM_SPIRV, NULL, &job);
  if (qn_ok(status)) status = qn__gpu_compile_artifact(&job, "vulkan-spirv-1", out_artifact);
  qn__gpu_compile_end(&job);
  return status;
}

qn_status_t qn__shaderc_emit(qn__shaderc_t* shaderc, const qn_compile_request_t* request,
                             const char* form, qn_sink_t sink) {
  size_t wanted;
  const char* until;
  QN_TRY(qn__gpu_find_form(&generator, form, &wanted, &until));
  qn__gpu_compile_t job;
  qn_status_t status = run(shaderc, request, wanted, until, &job);
  if (qn_ok(status)) status = sink.write(sink.self, job.out.data, job.out.size);
  qn__gpu_compile_end(&job);
  return status;
}

qn_status_t qn__shaderc_create(qn_allocator_t allocator, qn__shaderc_t** out_shaderc) {
  *out_shaderc = NULL;
  qn__shaderc_t* shaderc = qn__alloc_zero(allocator, 1, sizeof *shaderc);
  if (!shaderc) return qn__out_of_memory("the shaderc generator");
  shaderc->allocator = allocator;
  // shaderc is linked statically, so this module's build id identifies it, too.
  qn__mapped_identity("shaderc", forms, NULL, shaderc->identity);
  qn_status_t status = qn__shaderc_compiler_create(allocator, &shaderc->compiler);
  if (!qn_ok(status)) {
    qn__free(allocator, shaderc, sizeof *shaderc);
    return status;
  }
  *out_shaderc = shaderc;
  return QN_OK;
}

void qn__shaderc_destroy(qn__shaderc_t* shaderc) {
  if (!shaderc) return;
  qn__shaderc_compiler_destroy(shaderc->compiler);
  qn__free(shaderc->allocator, shaderc, sizeof *shaderc);
}
