// tools/cli/verbs/conformance.c: `quern conformance`: which feature works on which device.
//
// The suite is the library in conformance/. A column is a device and the target to compile for.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/conformance.h"
#include "quern/device.h"
#include "quern/quern.h"
#include "quern/target.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"
#include "tools/cli/verbs/conformance_report.h"

enum { DEVICE_TYPE_END = 64 };

typedef struct column_spec {
  qn_device_t device;
  const char* target;  // NULL: the device's own kind
  const char* name;
} column_spec_t;

typedef struct running {
  report_t* report;
  size_t column;
  bool is_quiet;
} running_t;

static void on_result(void* self, const conf_result_t* result) {
  running_t* running = self;
  report_add(running->report, running->column, result);
  if (!running->is_quiet) report_show(running->report, running->column, result);
}

// "interp" is the processor with another target.
static qn_status_t read_column(const char* text, const char* target, column_spec_t* out) {
  out->name = text;
  out->target = target;
  if (strcmp(text, "interp") == 0) {
    out->device = (qn_device_t){QN_DEVICE_CPU, 0};
    if (!target) out->target = "interp";
    return QN_OK;
  }
  qn_status_t status = qn_device_parse(text, &out->device);
  if (!qn_ok(status)) return status;
  return session_device_here(out->device);
}

// What plugins brought, the first device of each type.
static void add_plugged(column_spec_t* columns, size_t* inout_count) {
  static const int32_t own[] = {QN_DEVICE_CPU, QN_DEVICE_CUDA, QN_DEVICE_VULKAN, QN_DEVICE_NULL};
  for (int32_t type = 1; type < DEVICE_TYPE_END; type++) {
    bool is_own = false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) is_own |= own[i] == type;
    if (is_own || qn_device_count(type) == 0) continue;
    columns[(*inout_count)++] = (column_spec_t){{type, 0}, NULL, qn_device_type_text(type)};
  }
}

// The devices that were asked for; without any: the interpreter and whatever is here.
static qn_status_t choose(const args_t* args, column_spec_t** out_columns, size_t* out_count) {
  static const char* const usual[] = {"interp", "cpu", "cuda", "vulkan"};
  size_t limit = (size_t)args->option_count + sizeof usual / sizeof usual[0] + DEVICE_TYPE_END;
  *out_columns = calloc(limit, sizeof **out_columns);
  if (!*out_columns) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the devices");
  const char* target = args_value(args, "target", NULL);
  for (int i = 0; i < args->option_count; i++) {
    if (strcmp(args->options[i].spec->name, "device") != 0) continue;
    qn_status_t status =
        read_column(args->options[i].value, target, &(*out_columns)[(*out_count)++]);
    if (!qn_ok(status)) return status;
  }
  for (size_t i = 0; *out_count == 0 && target && i < 1; i++) {
    // A target names its device.
    qn_target_t* parsed = NULL;
    qn_status_t status = qn_target_parse(target, &parsed);
    if (!qn_ok(status)) return status;
    for (size_t k = 0; k < qn_target_kind_count(); k++) {
      const qn_target_kind_info_t* kind = qn_target_kind_at(k);
      if (strcmp(kind->name, qn_target_kind(parsed)) != 0) continue;
      (*out_columns)[0] = (column_spec_t){{kind->device_type, 0}, target, kind->name};
      *out_count = 1;
    }
    qn_target_release(parsed);
  }
  if (*out_count > 0) return QN_OK;
  for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
    column_spec_t column;
    qn_status_t status = read_column(usual[i], NULL, &column);
    if (qn_ok(status)) (*out_columns)[(*out_count)++] = column;
    qn_status_free(status);
  }
  add_plugged(*out_columns, out_count);
  return QN_OK;
}

static qn_status_t run_column(const args_t* args, const column_spec_t* column, report_t* report) {
  running_t running = {report, 0, args->is_json || args_has(args, "markdown")};
  conf_options_t options = {.device = column->device,
                            .target = column->target,
                            .filter = args_value(args, "filter", NULL),
                            .has_large = args_has(args, "large"),
                            .form = args_value(args, "emit", NULL),
                            .on_result = on_result,
                            .self = &running};
  running.column = report_column(report, column->name, column->device, column->target);
  conf_totals_t totals;
  qn_status_t status = conf_run(&options, &totals);
  return qn_status_annotate(status, "%s", column->name);
}

static void on_listed(void* self, const conf_result_t* result) {
  report_add(self, SIZE_MAX, result);
}

static int run_conformance(const args_t* args) {
  if (args_has(args, "emit") && !args_has(args, "target")) {
    return report_usage(args, "--emit needs --target: what to compile for");
  }
  report_t* report = report_create();
  if (!report) return report_no_memory("the report");
  conf_list(on_listed, report);
  column_spec_t* columns = NULL;
  size_t count = 0;
  qn_status_t status = QN_OK;
  if (!args_has(args, "list")) status = choose(args, &columns, &count);
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    status = run_column(args, &columns[i], report);
  }
  int code = EXIT_DONE;
  if (!qn_ok(status)) {
    code = report_status(args, status);
  } else {
    report_mode_t mode = args->is_json                ? REPORT_JSON
                         : args_has(args, "markdown") ? REPORT_MARKDOWN
                         : args_has(args, "list")     ? REPORT_LIST
                                                      : REPORT_TEXT;
    report_print(report, mode);
    if (report_fail_count(report) > 0) code = EXIT_WRONG;
  }
  report_free(report);
  free(columns);
  return code;
}

const verb_t verb_conformance = {
    .name = "conformance",
    .summary = "run the conformance suite: which feature works on which device",
    .operands = "",
    VERB_OPTIONS(
        {"device", 'd', "D", "a device: interp, cpu, cuda:1, vulkan (default: all that are here)",
         true},
        {"target", 't', "T", "compile for this instead of what the device is", false},
        {"filter", 'f', "TEXT",
         "only cases whose area/feature/variant has TEXT, or begins with ^TEXT", false},
        FLAG("large", "also what takes gigabytes of memory"),
        OPTION("emit", "FORM", "compile the programs to this form of --target and run nothing"),
        FLAG("list", "list the features and run nothing"), OPTION_PLUGIN,
        FLAG("markdown", "print the matrix as docs/conformance.md has it"), OPTION_JSON),
    .help =
        "Runs one suite on each device and tells for each feature whether it passes, fails (and\n"
        "why), or is unsupported (in the words of the device or the code generator). The oracle "
        "is\n"
        "the interpreter. The exit code is 1 when anything fails. --plugin takes a shared object\n"
        "that exports qn_plugin_entry (quern/device.h). With --target and --emit no device is "
        "needed:\n"
        "what the suite would run is compiled and thrown away.\n",
    .examples =
        "  quern conformance --device interp --filter ^memory/\n"
        "  quern conformance --device cpu --filter ^statements/ --json\n"
        "  quern conformance --target 'cpu -mcpu=x86-64-v3' --emit image --filter ^grids/\n"
        "  quern conformance --list\n",
    .run = run_conformance,
};
