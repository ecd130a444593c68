// SPDX-License-Identifier: Apache-2.0
// jit/shaderc/compiler.c: calls shaderc: options, results, the validator.
//
// shaderc catches its own C++ exceptions and reports an internal error. Not here: the warm-up's
// thread and forks (jit/gpu/compiler_guard.h).
#include "jit/shaderc/compiler.h"

#include <shaderc/shaderc.h>
#include <spirv-tools/libspirv.h>

#include "base/alloc.h"
#include "jit/gpu/compiler_guard.h"

struct qn__shaderc_compiler {
  qn_allocator_t allocator;
  shaderc_compiler_t compiler;
  qn__gpu_compiler_guard_t guard;
};

// The text is minimal, because the time goes into glslang's tables of built-in functions.
static const char warm_text[] =
    "#version 450\n"
    "layout(local_size_x = 1) in;\n"
    "layout(set = 0, binding = 0) buffer B { float b[]; };\n"
    "void main() { b[gl_GlobalInvocationID.x] *= 2.0; }\n";

// ------------------------------------------------------------------------------------ options

static const shaderc_env_version env_versions[] = {
    shaderc_env_version_vulkan_1_1, shaderc_env_version_vulkan_1_2, shaderc_env_version_vulkan_1_3};
static const shaderc_spirv_version spirv_versions[] = {
    shaderc_spirv_version_1_3, shaderc_spirv_version_1_4, shaderc_spirv_version_1_5,
    shaderc_spirv_version_1_6};

static shaderc_compile_options_t make_options(const qn__shaderc_options_t* options) {
  if (QN_NEVER(options->vulkan_minor < 1 || options->vulkan_minor > QN_COUNT_OF(env_versions)) ||
      QN_NEVER(options->spirv_minor < 3 || options->spirv_minor - 3 >= QN_COUNT_OF(spirv_versions)))
    return NULL;
  shaderc_compile_options_t result = shaderc_compile_options_initialize();
  if (!result) return NULL;
  shaderc_compile_options_set_source_language(result, shaderc_source_language_glsl);
  shaderc_compile_options_set_target_env(result, shaderc_target_env_vulkan,
                                         (uint32_t)env_versions[options->vulkan_minor - 1]);
  shaderc_compile_options_set_target_spirv(result, spirv_versions[options->spirv_minor - 3]);
  shaderc_compile_options_set_optimization_level(
      result, options->is_optimized ? shaderc_optimization_level_performance
                                    : shaderc_optimization_level_zero);
  shaderc_compile_options_set_suppress_warnings(result);
  return result;
}

// ------------------------------------------------------------------------------------ warm-up

static void warm(void* self) {
  qn__shaderc_compiler_t* compiler = self;
  const qn__shaderc_options_t options = {.vulkan_minor = 2, .spirv_minor = 5, .is_optimized = true};
  shaderc_compile_options_t made = make_options(&options);
  if (!made) return;
  shaderc_result_release(shaderc_compile_into_spv(compiler->compiler, warm_text,
                                                  sizeof warm_text - 1, shaderc_compute_shader,
                                                  "warm", "main", made));
  shaderc_compile_options_release(made);
}

// ------------------------------------------------------------------------------------ compiles

static qn_status_t disassemble(qn_span_t words, qn__buffer_t* out) {
  spv_context context = spvContextCreate(SPV_ENV_UNIVERSAL_1_6);
  if (!context) return qn__out_of_memory("the disassembler");
  const void* data = words.data;
  spv_text text = NULL;
  qn_status_t status = QN_OK;
  if (spvBinaryToText(context, data, words.size / 4,
                      SPV_BINARY_TO_TEXT_OPTION_INDENT | SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES,
                      &text, NULL) == SPV_SUCCESS) {
    qn__buffer_bytes(out, text->str, text->length);
  } else {
    status = qn_status_make(QN_STATUS_INTERNAL, "the code of a kernel cannot be disassembled");
  }
  spvTextDestroy(text);
  spvContextDestroy(context);
  return status;
}

static qn_status_t take_words(const qn__shaderc_compiler_t* compiler,
                              const qn__shaderc_options_t* options, qn_span_t words,
                              qn__buffer_t* out) {
  if (!options->wants_assembly) {
    qn__shaderc_modes_append(words, &options->f64_modes, out);
    return QN_OK;
  }
  qn__buffer_t all;
  qn__buffer_init(&all, compiler->allocator);
  qn__shaderc_modes_append(words, &options->f64_modes, &all);
  qn_status_t status = qn__buffer_status(&all, "the code of a kernel");
  if (qn_ok(status)) status = disassemble(qn__buffer_as_span(&all), out);
  qn__buffer_deinit(&all);
  return status;
}

static qn_status_t take_result(const qn__shaderc_compiler_t* compiler,
                               const qn__shaderc_options_t* options,
                               shaderc_compilation_result_t result, qn__buffer_t* out,
                               qn__buffer_t* out_messages) {
  if (!result) return qn__out_of_memory("shaderc's result");
  shaderc_compilation_status code = shaderc_result_get_compilation_status(result);
  if (code == shaderc_compilation_status_success) {
    QN_TRY(take_words(compiler, options,
                      (qn_span_t){(const uint8_t*)shaderc_result_get_bytes(result),
                                  shaderc_result_get_length(result)},
                      out));
    return qn__buffer_status(out, "the code of a kernel");
  }
  qn__buffer_cstr(out_messages, shaderc_result_get_error_message(result));
  return qn_status_make(QN_STATUS_INTERNAL, code == shaderc_compilation_status_internal_error
                                                ? "shaderc gave up"
                                                : "shaderc does not compile a kernel");
}

qn_status_t qn__shaderc_compiler_compile(qn__shaderc_compiler_t* compiler,
                                         const qn__shaderc_options_t* options, const char* name,
                                         qn_str_t text, qn__buffer_t* out,
                                         qn__buffer_t* out_messages) {
  QN_TRY(qn__gpu_compiler_guard_begin(&compiler->guard));
  qn_status_t status = QN_OK;
  shaderc_compile_options_t made = make_options(options);
  if (!made) status = qn__out_of_memory("shaderc's options");
  if (qn_ok(status)) {
    shaderc_compilation_result_t result = shaderc_compile_into_spv(
        compiler->compiler, text.data, text.size, shaderc_compute_shader, name, "main", made);
    status = take_result(compiler, options, result, out, out_messages);
    shaderc_result_release(result);
  }
  shaderc_compile_options_release(made);
  qn__gpu_compiler_guard_end(&compiler->guard);
  return status;
}

qn_status_t qn__shaderc_validate(qn_span_t words, const qn__shaderc_options_t* options) {
  spv_target_env env = options->vulkan_minor >= 3   ? SPV_ENV_VULKAN_1_3
                       : options->vulkan_minor == 2 ? SPV_ENV_VULKAN_1_2
                       : options->spirv_minor >= 4  ? SPV_ENV_VULKAN_1_1_SPIRV_1_4
                                                    : SPV_ENV_VULKAN_1_1;
  spv_context context = spvContextCreate(env);
  if (!context) return qn__out_of_memory("the validator");
  // The words of payloads are aligned.
  const void* data = words.data;
  spv_diagnostic diagnostic = NULL;
  qn_status_t status = QN_OK;
  if (words.size % 4 != 0 ||
      spvValidateBinary(context, data, words.size / 4, &diagnostic) != SPV_SUCCESS) {
    status = qn_status_make(QN_STATUS_INTERNAL, "the code of a kernel is not valid SPIR-V: %.400s",
                            diagnostic && diagnostic->error ? diagnostic->error : "not of words");
  }
  spvDiagnosticDestroy(diagnostic);
  spvContextDestroy(context);
  return status;
}

// ------------------------------------------------------------------------------------ life

qn_status_t qn__shaderc_compiler_create(qn_allocator_t allocator,
                                        qn__shaderc_compiler_t** out_compiler) {
  *out_compiler = NULL;
  qn__shaderc_compiler_t* compiler = qn__alloc_zero(allocator, 1, sizeof *compiler);
  if (!compiler) return qn__out_of_memory("a shaderc compiler");
  compiler->allocator = allocator;
  qn__gpu_compiler_guard_init(&compiler->guard, "shaderc");
  compiler->compiler = shaderc_compiler_initialize();
  if (!compiler->compiler) {
    qn__free(allocator, compiler, sizeof *compiler);
    return qn_status_make(QN_STATUS_UNAVAILABLE, "shaderc cannot be initialised");
  }
  qn__gpu_compiler_guard_warm(&compiler->guard, "quern-shaderc", warm, compiler);
  *out_compiler = compiler;
  return QN_OK;
}

void qn__shaderc_compiler_destroy(qn__shaderc_compiler_t* compiler) {
  if (!compiler) return;
  qn__gpu_compiler_guard_deinit(&compiler->guard);
  shaderc_compiler_release(compiler->compiler);
  qn__free(compiler->allocator, compiler, sizeof *compiler);
}
