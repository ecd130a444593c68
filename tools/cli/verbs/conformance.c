// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/conformance.c: `quern conformance`: which feature works on which device.
//
// The suite is the library in conformance/. A column is a device and the target to compile for.
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

// Reads the name of a device. "interp" is the processor with another target.
static qn_status_t add_device(report_t* report, const char* text, const char* target) {
  if (strcmp(text, "interp") == 0) {
    qn_device_t cpu = {QN_DEVICE_CPU, 0};
    return report_add_column(report, text, cpu, target ? target : "interp");
  }
  qn_device_t device;
  qn_status_t status = qn_device_parse(text, &device);
  if (qn_ok(status)) status = session_device_here(device);
  return qn_ok(status) ? report_add_column(report, text, device, target) : status;
}

// Adds the device that a target's kind is for.
static qn_status_t add_device_of(report_t* report, const char* text) {
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(text, &target);
  if (!qn_ok(status)) return status;
  const qn_target_kind_info_t* kind = session_kind(qn_target_kind(target));
  if (kind) {
    status = report_add_column(report, kind->name, (qn_device_t){kind->device_type, 0}, text);
  }
  qn_target_release(target);
  return status;
}

// Adds the interpreter, every device of ours that exists, and the first of each type of plugins.
static qn_status_t add_all(report_t* report) {
  static const char* const usual[] = {"interp", "cpu", "cuda", "vulkan"};
  static const int32_t own[] = {QN_DEVICE_CPU, QN_DEVICE_CUDA, QN_DEVICE_VULKAN, QN_DEVICE_NULL};
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
    (void)qn_status_consume(add_device(report, usual[i], NULL));
  }
  for (int32_t type = 1; type < DEVICE_TYPE_END && qn_ok(status); type++) {
    bool is_own = false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) is_own |= own[i] == type;
    if (is_own || qn_device_count(type) == 0) continue;
    status = report_add_column(report, qn_device_type_text(type), (qn_device_t){type, 0}, NULL);
  }
  return status;
}

// Chooses the columns: those of --device, else that of --target, else all.
static qn_status_t choose(const args_t* args, report_t* report) {
  const char* target = args_value(args, "target", NULL);
  qn_status_t status = QN_OK;
  const char* device;
  for (int at = 0; qn_ok(status) && (device = args_next(args, "device", &at));) {
    status = add_device(report, device, target);
  }
  if (args_has(args, "device")) return status;
  return target ? add_device_of(report, target) : add_all(report);
}

// The random programs that are asked for.
typedef struct random {
  uint64_t count;  // 0: the suite
  uint64_t seed;
} random_t;

static bool read_random(const args_t* args, random_t* out) {
  *out = (random_t){.seed = 1};
  const char* count = args_value(args, "random", NULL);
  const char* seed = args_value(args, "seed", NULL);
  if (count && !args_number(count, 1, UINT32_MAX, &out->count)) {
    (void)report_usage(args, "--random is '%s', expected a number from 1 on", count);
    return false;
  }
  if (seed && !args_number(seed, 0, INT64_MAX, &out->seed)) {
    (void)report_usage(args, "--seed is '%s', expected a number", seed);
    return false;
  }
  if (!count && seed) (void)report_usage(args, "--seed is for --random");
  if (count && args_has(args, "emit")) {
    (void)report_usage(args, "--random runs programs, and --emit runs nothing");
  }
  return count ? !args_has(args, "emit") : !seed;
}

static qn_status_t run_column(const args_t* args, qn_tier_t tier, const random_t* random,
                              report_t* report, size_t index) {
  const report_column_t* column = report_column(report, index);
  running_t running = {report, index, args->is_json || args_has(args, "markdown")};
  conf_options_t options = {.device = column->device,
                            .target = column->target[0] ? column->target : NULL,
                            .filter = args_value(args, "filter", NULL),
                            .has_large = args_has(args, "large"),
                            .form = args_value(args, "emit", NULL),
                            .random_count = (uint32_t)random->count,
                            .seed = random->seed,
                            .tier = tier,
                            .on_result = on_result,
                            .self = &running};
  conf_totals_t totals;
  return qn_status_annotate(conf_run(&options, &totals), "%s", column->name);
}

static void on_listed(void* self, const conf_result_t* result) {
  report_add(self, SIZE_MAX, result);
}

static int run_conformance(const args_t* args) {
  if (args_has(args, "emit") && !args_has(args, "target")) {
    return report_usage(args, "--emit needs --target: what to compile for");
  }
  qn_lookup_options_t lookup;
  random_t random;
  if (!session_lookup_options(args, &lookup) || !read_random(args, &random)) return EXIT_USAGE;
  report_t* report = report_create();
  if (random.count == 0) conf_list(on_listed, report);
  qn_status_t status = args_has(args, "list") ? QN_OK : choose(args, report);
  for (size_t i = 0; qn_ok(status) && report_column(report, i); i++) {
    status = run_column(args, lookup.tier, &random, report, i);
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
  return code;
}

const verb_t verb_conformance = {
    .name = "conformance",
    .summary = "run the conformance suite: which feature works on which device",
    .operands = "",
    VERB_OPTIONS(
        {"device", 'd', "D", "a device: interp, cpu, cuda:1, vulkan (default: all of this machine)",
         true},
        {"target", 't', "T", "compile for this instead of the device's own kind", false},
        {"filter", 'f', "TEXT",
         "only cases whose area/feature/variant has TEXT, or for ^TEXT begins with it", false},
        FLAG("large", "also cases that take gigabytes of memory"),
        OPTION("random", "N", "run N random programs in place of the suite"),
        OPTION("seed", "S", "of the first random program (default: 1)"),
        OPTION("emit", "FORM", "compile to this form of --target and run nothing"), OPTION_TIER,
        FLAG("list", "list the features and run nothing"), OPTION_PLUGIN,
        FLAG("markdown", "print the matrix as docs/conformance.md has it"), OPTION_JSON),
    .help =
        "Runs one suite on each device. Each feature passes, fails (with the reason) or is\n"
        "unsupported (with the message of the device or code generator). The oracle is the\n"
        "interpreter. The exit code is 1 when a case fails. --plugin takes a shared object that\n"
        "exports qn_plugin_entry (quern/backend.h). --target with --emit needs no device: it\n"
        "compiles the suite's programs and discards the code. --random compares random programs\n"
        "with the interpreter, and shows the smallest part of one that still differs.\n",
    .examples =
        "  quern conformance --device interp --filter ^memory/\n"
        "  quern conformance --device cpu --filter ^statements/ --json\n"
        "  quern conformance --target 'cpu -mcpu=x86-64-v3' --emit image --filter ^grids/\n"
        "  quern conformance --device cpu --tier fast --filter ^shapes/\n"
        "  quern conformance --device cpu --random 100 --seed 7\n"
        "  quern conformance --list\n",
    .run = run_conformance,
};
