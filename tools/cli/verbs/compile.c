// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/compile.c: `quern compile`: an intermediate or final form of a module's code.
//
// It always runs the code generator, and neither reads nor writes the cache.
#include <stdlib.h>
#include <string.h>

#include "quern/observe.h"
#include "quern/target.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"
#include "tools/cli/verbs/compile_passes.h"

// Whether a form is binary, and so does not belong on a terminal or in JSON.
static bool is_binary(const char* form) {
  static const char* const forms[] = {"obj", "image", "spirv", "cubin"};
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    if (strcmp(form, forms[i]) == 0) return true;
  }
  return false;
}

// What the generators of quern are asked for, and which passes they run.
static const struct {
  const char* generator;
  const char* form;  // for people: the one without --emit
  const char* pipeline;
} own_generators[] = {{"llvm", "asm", "cpu"}, {"nvrtc", "cuda", "gpu"}, {"shaderc", "glsl", "gpu"}};

// Returns the place of the target's generator in the table above, or -1.
static int generator_of(const qn_target_t* target) {
  const qn_target_kind_info_t* kind = session_kind(qn_target_kind(target));
  for (int i = 0; kind && i < (int)(sizeof own_generators / sizeof own_generators[0]); i++) {
    if (strcmp(own_generators[i].generator, kind->codegen) == 0) return i;
  }
  return -1;
}

static qn_status_t emit(const args_t* args, const qn_lookup_options_t* options, qn_target_t* target,
                        const char* form, text_t* out) {
  qn_module_t* module = NULL;
  qn_engine_t* engine = NULL;
  qn_status_t status = session_module(args, args->operands[0], NULL, NULL, &module);
  if (args_has(args, "passes")) {
    if (qn_ok(status)) status = compile_lower(args, options, target, module, out);
    qn_module_release(module);
    return status;
  }
  // Generators take the name of a pass with the form.
  char after_form[128];
  if (args_has(args, "after")) {
    (void)snprintf(after_form, sizeof after_form, "%s:%s", form, args_value(args, "after", ""));
    form = after_form;
  }
  if (qn_ok(status)) status = session_engine(&engine);
  if (qn_ok(status)) {
    status = qn_engine_emit(engine, module, target, options, form, (qn_sink_t){out, text_append});
  }
  qn_engine_destroy(engine);
  qn_module_release(module);
  return status;
}

static int print_result(const args_t* args, const text_t* bytes, const qn_target_t* target,
                        const char* form) {
  const char* path = args_value(args, "output", "-");
  bool is_file = strcmp(path, "-") != 0;
  if (is_file || !args->is_json) {
    qn_status_t status = text_write(path, bytes->data ? bytes->data : "", bytes->size);
    if (!qn_ok(status)) return report_status(args, status);
  }
  if (!args->is_json) return EXIT_DONE;
  json_t* result = json_record("file:s target:o form:s size_bytes:i", args->operands[0],
                               json_parsed(qn_target_json(target)), form, bytes->size);
  if (is_file) {
    json_object_set_new(result, "output", json_text(path));
  } else {
    json_object_set_new(result, "text", json_text(bytes->data ? bytes->data : ""));
  }
  print_json(result);
  return EXIT_DONE;
}

static int run_compile(const args_t* args) {
  qn_lookup_options_t options;
  if (!session_lookup_options(args, &options)) return EXIT_USAGE;
  const char* form = args_value(args, "emit", NULL);
  bool is_stdout = strcmp(args_value(args, "output", "-"), "-") == 0;
  if (form && is_binary(form) && is_stdout && (args->is_json || is_terminal(stdout))) {
    return report_usage(args, "--emit %s is binary; name a file with -o", form);
  }
  bool is_list = form && strcmp(form, "passes") == 0;
  bool needs_ir = args_has(args, "passes") || args_has(args, "after");
  if (needs_ir && form && strcmp(form, "ir") != 0) {
    return report_usage(args, "--passes and --after show the form ir, not %s", form);
  }
  if (is_list != (args->operand_count == 0)) {
    return report_usage(args, is_list ? "--emit passes takes no file" : "FILE.qn is missing");
  }
  text_t bytes = {0};
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(args_value(args, "target", "cpu"), &target);
  if (!qn_ok(status)) return report_status(args, status);
  int generator = generator_of(target);
  if (is_list) {
    bool is_chosen = args_has(args, "target") && generator >= 0;
    qn_target_release(target);
    return compile_list_passes(args, is_chosen ? own_generators[generator].pipeline : NULL);
  }
  if (!form) form = needs_ir || generator < 0 ? "ir" : own_generators[generator].form;
  status = emit(args, &options, target, form, &bytes);
  int code = qn_ok(status) ? print_result(args, &bytes, target, form) : report_status(args, status);
  qn_target_release(target);
  text_free(&bytes);
  return code;
}

const verb_t verb_compile = {
    .name = "compile",
    .summary = "show a module's code: IR after the passes, assembly, CUDA C, GLSL, SPIR-V, ...",
    .operands = "[FILE.qn]",
    .max_operands = 1,
    VERB_OPTIONS(
        OPTION_TARGET,
        OPTION("emit", "FORM", "what to print; see above (default: asm, cuda or glsl)"),
        OPTION("after", "NAME", "the form ir after this pass, NAME:2 after its second run"),
        OPTION("passes", "NAMES", "the form ir after these passes alone"),
        {"output", 'o', "FILE", "write to a file (default standard output)", false}, OPTION_SET,
        OPTION_TIER, OPTION_CHECKED, OPTION_PLUGIN, OPTION_JSON),
    .help =
        "The forms are those of the target's code generator:\n"
        "  ir          the module after quern's own passes, as text\n"
        "  llvm-raw    cpu: LLVM IR before LLVM's passes\n"
        "  llvm        cpu: LLVM IR after LLVM's passes\n"
        "  asm         cpu: assembly (default)\n"
        "  obj         cpu: the object file\n"
        "  image       cpu: the position-independent bytes that are cached, loaded and run\n"
        "  cuda        cuda: CUDA C (default)\n"
        "  ptx, cubin  cuda: what NVRTC compiles that to\n"
        "  sass        cuda: machine code as text, if the toolkit's disassembler is installed\n"
        "  glsl        vulkan: a compute shader for each kernel (default)\n"
        "  spirv, spirv-asm   vulkan: what shaderc compiles them to, as words and as text\n"
        "  passes      no form of a FILE: lists quern's passes, in order, and what holds after "
        "each\n"
        "obj, image, cubin and spirv are binary: write them to a file or a pipe.\n"
        "--passes runs a pipeline (scalar, cpu, gpu) or single passes as a generator of others "
        "may\n"
        "(quern/lower.h), for the machine of the target, and needs no generator.\n"
        "The cache is not used. The target may be another machine.\n",
    .examples =
        "  quern compile examples/ir/saxpy.qn --emit asm\n"
        "  quern compile examples/ir/softmax.qn --emit ir\n"
        "  quern compile --emit passes\n"
        "  quern compile examples/ir/softmax.qn --emit ir --after simplify\n"
        "  quern compile examples/ir/softmax.qn --passes scalar\n"
        "  quern compile examples/ir/softmax.qn --target vulkan --emit glsl\n"
        "  quern compile examples/ir/softmax.qn --target 'cuda -arch=sm_90a' --emit cuda\n"
        "  quern compile examples/ir/softmax.qn --target 'cpu -mcpu=x86-64-v3' --emit image "
        "-o softmax.image\n",
    .run = run_compile,
};
