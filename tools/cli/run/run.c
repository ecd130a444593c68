// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/run.c: `quern run`: looks up a function of a module, calls it and shows its
// outputs.
//
// Each repetition starts from the arguments as they were given, so that an `inout` buffer does not
// drift; restoring them is not timed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/observe.h"
#include "quern/target.h"
#include "tools/cli/memory.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/run/run_args.h"
#include "tools/cli/run/run_report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

enum { MAX_REPETITIONS = 10000000 };
// How long to wait for a slow disk or a remote tier to store a compiled kernel. If the command
// ended earlier, the next one would compile the kernel again.
#define END_FLUSH_NS INT64_C(60000000000)

typedef struct run_command {
  const args_t* args;
  qn_lookup_options_t options;
  uint64_t repeat_count;
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  size_t function_index;
  qn_function_t* function;
  run_args_t bound;
  int64_t* times_ns;
  run_summary_t summary;
} run_command_t;

// Reads --miss and --timeout.
static int check_policy(const args_t* args, qn_lookup_options_t* options) {
  // In the order of qn_miss_policy_t.
  static const char* const words[] = {"block", "fallback", "fail"};
  const char* miss = args_value(args, "miss", "block");
  size_t word = 0;
  while (word < sizeof words / sizeof words[0] && strcmp(words[word], miss) != 0) word++;
  if (word == sizeof words / sizeof words[0]) {
    return report_usage(args, "--miss is '%s', expected block, fallback or fail", miss);
  }
  options->miss = (qn_miss_policy_t)word;
  const char* timeout = args_value(args, "timeout", NULL);
  if (timeout && !session_time(timeout, &options->time_limit_ns)) {
    return report_usage(args, "--timeout is '%s', expected a time such as 2, 500ms or 1min",
                        timeout);
  }
  return EXIT_DONE;
}

// Reports mistakes that show without opening a file.
static int check_usage(const args_t* args, run_command_t* run) {
  if (!session_lookup_options(args, &run->options)) return EXIT_USAGE;
  if (check_policy(args, &run->options) != EXIT_DONE) return EXIT_USAGE;
  for (int i = 0; i < args->option_count; i++) {
    const char* name = args->options[i].spec->name;
    bool is_arg = strcmp(name, "arg") == 0;
    if (!is_arg && strcmp(name, "out") != 0) continue;
    const char* text = args->options[i].value;
    const char* equals = strchr(text, '=');
    if (!equals || equals == text || equals[1] == '\0') {
      return report_usage(args, "--%s '%s': expected NAME=%s", name, text,
                          is_arg ? "VALUE" : "FILE.npy");
    }
    value_spec_t spec;
    qn_status_t status = is_arg ? value_parse(equals + 1, &spec) : QN_OK;
    if (!qn_ok(status)) {
      int code = report_usage(args, "--arg %.*s: %s", (int)(equals - text), text,
                              qn_status_message(status));
      qn_status_free(status);
      return code;
    }
  }
  const char* repeat = args_value(args, "repeat", "1");
  if (!args_number(repeat, 1, MAX_REPETITIONS, &run->repeat_count)) {
    return report_usage(args, "--repeat is '%s', expected a number from 1 to %d", repeat,
                        MAX_REPETITIONS);
  }
  return EXIT_DONE;
}

// Lists the functions of a module: "saxpy, softmax", cut when there are many.
static void list_functions(const qn_module_t* module, char* out, size_t room) {
  size_t used = 0;
  size_t count = qn_module_function_count(module);
  out[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    int size = snprintf(out + used, room - used, "%s%s", i ? ", " : "",
                        qn_module_function_name(module, i));
    if (size < 0 || (size_t)size >= room - used) return;
    used += (size_t)size;
  }
}

static qn_status_t find_function(run_command_t* run) {
  const qn_module_t* module = run->module;
  const char* name = args_value(run->args, "func", NULL);
  size_t count = qn_module_function_count(module);
  char names[512];
  list_functions(module, names, sizeof names);
  const char* file = run->summary.file;
  if (count == 0) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "'%s' has no functions", file);
  }
  if (!name && count == 1) return QN_OK;
  if (!name) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "'%s' has %zu functions; choose one with --func: %s", file, count, names);
  }
  suggestion_t near = {""};
  for (size_t i = 0; i < count; i++) {
    const char* candidate = qn_module_function_name(module, i);
    run->function_index = i;
    if (strcmp(candidate, name) == 0) return QN_OK;
    if (!near.text[0]) near = suggest(name, &candidate, sizeof candidate, 1);
  }
  return qn_status_make(QN_STATUS_NOT_FOUND, "no function '%s' in '%s'%s%s", name, file,
                        near.text[0] ? near.text : ", which has: ", near.text[0] ? "" : names);
}

static qn_status_t prepare(run_command_t* run) {
  run->summary.file = run->args->operands[0];
  int64_t started_ns = now_ns();
  qn_status_t status = session_module(run->args, run->summary.file, NULL, NULL, &run->module);
  run->summary.parse_ns = now_ns() - started_ns;
  if (qn_ok(status)) status = find_function(run);
  if (qn_ok(status)) {
    status = qn_target_parse(args_value(run->args, "target", "cpu"), &run->target);
  }
  if (!qn_ok(status)) return status;
  // The first device of the type that the target's kind is for.
  const qn_target_kind_info_t* kind = session_kind(qn_target_kind(run->target));
  qn_device_t device = {kind ? kind->device_type : QN_DEVICE_CPU, 0};
  status = session_device_here(device);
  if (!qn_ok(status)) return status;
  status = run_args_bind(run->args, run->module, run->function_index, device, run->repeat_count > 1,
                         &run->bound);
  if (!qn_ok(status)) return status;
  // The engine writes its trace at its end; this finds out now whether it can.
  const char* trace = args_value(run->args, "trace", NULL);
  if (trace) status = text_write(trace, "", 0);
  qn_setting_t setting = {"trace", trace};
  if (qn_ok(status)) status = session_engine_with(&setting, trace ? 1 : 0, &run->engine);
  return status;
}

static int compare_times(const void* a, const void* b) {
  int64_t x = 0, y = 0;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x > y) - (x < y);
}

static qn_status_t call_once(run_command_t* run, int64_t* out_ns) {
  qn_status_t status = run_args_upload(&run->bound);
  if (!qn_ok(status)) return status;
  int64_t started_ns = now_ns();
  status = qn_function_call_on(run->function, NULL, run->bound.values, run->bound.count, NULL);
  if (qn_ok(status)) status = qn_stream_sync(run->bound.device, NULL);
  *out_ns = now_ns() - started_ns;
  return status;
}

static qn_status_t execute(run_command_t* run) {
  run_summary_t* summary = &run->summary;
  summary->lookup.struct_size = sizeof summary->lookup;
  summary->function = qn_module_function_name(run->module, run->function_index);
  summary->signature = qn_module_function_signature(run->module, run->function_index);
  qn_status_t status = qn_engine_function(run->engine, run->module, run->target, summary->function,
                                          &run->options, &summary->lookup, &run->function);
  if (!qn_ok(status)) return status;
  size_t count = (size_t)run->repeat_count;
  run->times_ns = memory_zeroed(count, sizeof *run->times_ns);
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    status = call_once(run, &run->times_ns[i]);
  }
  if (qn_ok(status)) status = run_args_download(&run->bound);
  if (qn_ok(status)) status = run_args_save(&run->bound);
  if (!qn_ok(status)) return status;
  qsort(run->times_ns, count, sizeof *run->times_ns, compare_times);
  summary->run_least_ns = run->times_ns[0];
  summary->run_median_ns = run->times_ns[count / 2];
  summary->run_max_ns = run->times_ns[count - 1];
  summary->repeat_count = run->repeat_count;
  summary->target = run->target;
  summary->is_checked = run->options.is_checked;
  return QN_OK;
}

static qn_status_t write_metrics(const run_command_t* run) {
  const char* path = args_value(run->args, "metrics", NULL);
  if (!path) return QN_OK;
  // The engine counts a compiled kernel when it is stored.
  (void)qn_engine_flush(run->engine, END_FLUSH_NS);
  text_t text = {0};
  qn_status_t status = qn_engine_metrics(run->engine, (qn_sink_t){&text, text_append});
  if (qn_ok(status)) status = text_write(path, text.data, text.size);
  text_free(&text);
  return status;
}

static void release(run_command_t* run) {
  run_args_free(&run->bound);
  qn_function_release(run->function);
  qn_target_release(run->target);
  qn_module_release(run->module);
  if (run->engine) (void)qn_engine_flush(run->engine, END_FLUSH_NS);
  qn_engine_destroy(run->engine);
  free(run->times_ns);
}

static int run_run(const args_t* args) {
  run_command_t run = {.args = args};
  int code = check_usage(args, &run);
  if (code != EXIT_DONE) return code;
  qn_status_t status = prepare(&run);
  if (qn_ok(status)) status = execute(&run);
  if (qn_ok(status)) status = write_metrics(&run);
  if (!qn_ok(status)) {
    code = report_status(args, status);
  } else if (args->is_json) {
    run_report_json(&run.summary, &run.bound);
  } else {
    run_report_text(&run.summary, &run.bound);
  }
  release(&run);
  return code;
}

const verb_t verb_run = {
    .name = "run",
    .summary = "run a function of a module",
    .operands = "FILE.qn",
    .min_operands = 1,
    .max_operands = 1,
    VERB_OPTIONS(
        OPTION("func", "NAME", "the function; not needed when the module has one"), OPTION_TARGET,
        {"arg", 'a', "NAME=VALUE", "an argument; see 'quern help values'", true},
        {"out", 'o', "NAME=FILE.npy", "write a buffer to a file after the run", true}, OPTION_SET,
        OPTION("repeat", "N", "call N times and print the median time"), OPTION_TIER,
        OPTION_CHECKED, OPTION_PLUGIN,
        OPTION("miss", "block|fallback|fail", "policy for code that is not cached (default block)"),
        OPTION("timeout", "TIME", "limit of the time to find or compile the code"),
        OPTION("metrics", "FILE", "write the engine's counters and times for Prometheus"),
        OPTION("trace", "FILE", "write a timeline of the engine as JSON for Perfetto"),
        OPTION_JSON),
    .help =
        "Every parameter needs an --arg, unless --set fixes it. An `out` buffer without one gets\n"
        "the shape that the inputs give. Arrays are laid out as a parameter's strides say. Small\n"
        "outputs are printed whole, larger ones as minimum, maximum and mean. The last lines show\n"
        "the source of the code (compiled, memory, disk, bundle or remote), the times and the "
        "key.\n"
        "\n"
        "With --repeat, each call starts from the arguments as they were given. FILE '-' is\n"
        "standard input.\n",
    .examples =
        "  quern run examples/ir/saxpy.qn --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]\n"
        "  quern run examples/ir/softmax.qn --arg x=rand:f32[4,64]:7 --out y=softmax.npy --json\n"
        "  quern run examples/ir/fir_filter.qn --func fir --target interp --arg x=iota:i16[10] "
        "--arg n=8 --arg y=zeros:i16[8]\n"
        "  quern run examples/ir/matmul_tile.qn --target 'cpu -mcpu=x86-64-v2' --repeat 20 "
        "--arg a=rand:f32[64,64]:1 --arg b=rand:f32[64,64]:2 --arg c=zeros:f32[64,64]\n"
        "  quern run examples/ir/saxpy.qn --miss fallback --timeout 10s --metrics saxpy.prom "
        "--arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]\n",
    .run = run_run,
};
