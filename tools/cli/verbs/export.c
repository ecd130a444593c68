// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/export.c: `quern export`: a module with its code as a library for other systems.
#define _XOPEN_SOURCE 700  // umask
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quern/ir.h"
#include "quern/tvm_ffi.h"
#include "tools/cli/memory.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"
#include "tools/cli/verbs/warm_bundle.h"

// Reads --target, once or several times. Owned: each, and the array.
static qn_status_t read_targets(const args_t* args, qn_target_t*** out_targets, size_t* out_count) {
  *out_targets = memory_zeroed((size_t)args->option_count + 2, sizeof **out_targets);
  *out_count = 0;
  const char* text;
  for (int at = 0; (text = args_next(args, "target", &at)); (*out_count)++) {
    qn_status_t status = qn_target_parse(text, &(*out_targets)[*out_count]);
    if (!qn_ok(status)) return status;
  }
  if (*out_count) return QN_OK;
  return qn_target_parse("cpu", &(*out_targets)[(*out_count)++]);
}

// Compiles what the cache lacks, and lists the keys.
static qn_status_t compile_all(qn_engine_t* engine, qn_module_t* module,
                               const qn_tvm_ffi_library_options_t* library, warm_keys_t* keys) {
  const qn_lookup_options_t options = {
      .struct_size = sizeof options, .tier = library->tier, .is_checked = library->is_checked};
  for (size_t i = 0; i < library->target_count; i++) {
    qn_lookup_info_t info = {.struct_size = sizeof info};
    qn_status_t status = qn_engine_compile(engine, module, library->targets[i], &options, &info);
    if (!qn_ok(status)) return status;
    bool is_new = true;
    for (size_t k = 0; k < keys->count; k++) {
      is_new &= strcmp(keys->keys[k].hex, info.key.hex) != 0;
    }
    if (is_new) warm_keys_add(keys, info.key);
  }
  return QN_OK;
}

// Writes the keys into a bundle beside the output, and reads it.
static qn_status_t read_bundle(qn_engine_t* engine, warm_keys_t* keys, const char* output,
                               text_t* out_bundle) {
  const size_t size = strlen(output) + 32;
  char* path = memory_zeroed(size, 1);
  (void)snprintf(path, size, "%s.%ld.qnb", output, (long)getpid());
  qn_cache_write_report_t report = {.struct_size = sizeof report};
  qn_status_t status = warm_bundle_write(engine, keys, path, NULL, &report);
  if (qn_ok(status)) status = text_read(path, out_bundle);
  (void)unlink(path);
  free(path);
  return status;
}

static qn_status_t make_library(qn_module_t* module, qn_tvm_ffi_library_options_t* options,
                                const char* output, text_t* out_bytes) {
  qn_engine_t* engine = NULL;
  warm_keys_t keys = {.count = 0};
  text_t bundle = {0};
  qn_status_t status = session_engine(&engine);
  if (qn_ok(status)) status = compile_all(engine, module, options, &keys);
  if (qn_ok(status)) status = read_bundle(engine, &keys, output, &bundle);
  if (qn_ok(status)) {
    options->bundle = bundle.data;
    options->bundle_size = bundle.size;
    status = qn_tvm_ffi_library_write(module, options, (qn_sink_t){out_bytes, text_append});
  }
  if (qn_ok(status)) {
    // A library that others may write to is not trusted as a bundle.
    (void)umask(umask(0) | 022);
    status = text_write(output, out_bytes->data, out_bytes->size);
  }
  text_free(&bundle);
  warm_keys_free(&keys);
  qn_engine_destroy(engine);
  return status;
}

static void print_result(const args_t* args, const qn_module_t* module, size_t target_count,
                         const char* output, size_t size_bytes) {
  const size_t count = qn_module_function_count(module);
  if (!args->is_json) {
    char size[32];
    print(stdout, "%s: %zu function%s for %zu target%s, %s\n", output, count, count == 1 ? "" : "s",
          target_count, target_count == 1 ? "" : "s", format_size(size_bytes, size));
    return;
  }
  json_t* names = json_array();
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(names, json_text(qn_module_function_name(module, i)));
  }
  print_json(json_record("output:s size_bytes:i functions:o targets:i", output, size_bytes, names,
                         target_count));
}

static int run_export(const args_t* args) {
  if (!args_has(args, "tvm-ffi")) return report_usage(args, "say for what: --tvm-ffi");
  const char* output = args_value(args, "output", NULL);
  if (!output) return report_usage(args, "-o is missing: the library is a file");
  if (strcmp(output, "-") == 0) return report_usage(args, "-o must name a file");
  qn_lookup_options_t lookup;
  if (!session_lookup_options(args, &lookup)) return EXIT_USAGE;
  qn_module_t* module = NULL;
  qn_target_t** targets = NULL;
  text_t bytes = {0};
  qn_tvm_ffi_library_options_t options = {.struct_size = sizeof options,
                                          .tier = lookup.tier,
                                          .is_checked = lookup.is_checked,
                                          .run_path = args_value(args, "run-path", NULL)};
  qn_status_t status = session_module(args, args->operands[0], NULL, NULL, &module);
  if (qn_ok(status)) status = read_targets(args, &targets, &options.target_count);
  options.targets = targets;
  progress_t* progress = progress_start("exporting");
  if (qn_ok(status)) status = make_library(module, &options, output, &bytes);
  progress_stop(progress);
  int code = report_status(args, status);
  if (code == EXIT_DONE) print_result(args, module, options.target_count, output, bytes.size);
  text_free(&bytes);
  for (size_t i = 0; targets && i <= options.target_count; i++) qn_target_release(targets[i]);
  free(targets);
  qn_module_release(module);
  return code;
}

const verb_t verb_export = {
    .name = "export",
    .summary = "write a module with its code as a library for tvm-ffi",
    .operands = "FILE.qn",
    .min_operands = 1,
    .max_operands = 1,
    VERB_OPTIONS(FLAG("tvm-ffi", "a shared object for tvm_ffi.load_module"),
                 {"output", 'o', "FILE", "the library", false},
                 {"target", 't', "T",
                  "what to compile for (default cpu), several times in the order of preference; "
                  "see 'quern help target'",
                  true},
                 OPTION_SET, OPTION_TIER, OPTION_CHECKED,
                 OPTION("run-path", "PATHS",
                        "where to look for libquern before the system's folders (default "
                        "'$ORIGIN', the library's folder)"),
                 OPTION_PLUGIN, OPTION_JSON),
    .help =
        "The library has each function of the module as one of tvm-ffi, and a bundle of their "
        "code\n"
        "inside. It needs libquern and tvm-ffi in the process that loads it, neither a code "
        "generator\n"
        "nor a compiler. Shapes stay free as in the module; outputs are arguments.\n"
        "A call takes the first target that is for the device of its tensors and that the machine\n"
        "can run. What the bundle lacks is looked up and compiled as QUERN_JIT and the other\n"
        "options of the environment allow.\n"
        "What is not in the cache is compiled first. docs/tvm-ffi.md has the rest.\n",
    .examples =
        "  quern export --tvm-ffi examples/ir/softmax.qn -o softmax.so\n"
        "  quern export --tvm-ffi examples/ir/saxpy.qn -o saxpy.so --target cpu/x86-64-v3 "
        "--target cpu/x86-64\n",
    .run = run_export,
};
