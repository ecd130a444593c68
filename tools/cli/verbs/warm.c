// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700
// tools/cli/verbs/warm.c: `quern warm LIST...`: compiles the keys of lists ahead, in worker
// processes.
//
// `quern warm --worker` is such a worker, for internal use. An interrupt stops the work, prints the
// summary and then ends the command as the signal would.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/memory.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"
#include "tools/cli/verbs/warm_report.h"

static volatile sig_atomic_t interrupted_by;

static void note_signal(int number) {
  interrupted_by = number;
}

// Catches signals once: a second one ends the command at once, and its workers with it.
static void catch_signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = note_signal;
  action.sa_flags = (int)SA_RESETHAND;
  (void)sigemptyset(&action.sa_mask);
  (void)sigaction(SIGINT, &action, NULL);
  (void)sigaction(SIGTERM, &action, NULL);
}

static void die_if_interrupted(void) {
  if (!interrupted_by) return;
  (void)fflush(stdout);
  (void)signal(interrupted_by, SIG_DFL);
  (void)raise(interrupted_by);
}

static bool on_progress(void* self, const qn_warm_result_t* progress, const qn_warm_item_t* item) {
  warm_report_progress(self, progress, item);
  return !interrupted_by;
}

// -------------------------------------------------------------------------------------- arguments

// The options of the command line.
typedef struct warm_plan {
  qn_warm_options_t options;
  qn_warm_read_options_t read;
  qn_target_t** targets;  // owned
} warm_plan_t;

static void free_plan(warm_plan_t* plan) {
  for (size_t i = 0; i < plan->read.target_count; i++) qn_target_release(plan->targets[i]);
  free(plan->targets);
}

// Reads the options. Reports a mistake and returns its code; else EXIT_DONE.
static int make_plan(const args_t* args, warm_plan_t* plan) {
  memset(plan, 0, sizeof *plan);
  plan->options.struct_size = sizeof plan->options;
  plan->read.struct_size = sizeof plan->read;
  // Workers run this program, wherever its file is.
  plan->options.command = "/proc/self/exe";
  plan->options.is_dry_run = args_has(args, "dry-run");
  plan->targets = memory_zeroed((size_t)args->option_count, sizeof(qn_target_t*));
  plan->read.targets = plan->targets;
  const char* text;
  for (int at = 0; (text = args_next(args, "target", &at)); plan->read.target_count++) {
    qn_status_t status = qn_target_parse(text, &plan->targets[plan->read.target_count]);
    if (!qn_ok(status)) return report_status(args, status);
  }
  uint64_t jobs = 0;
  text = args_value(args, "jobs", NULL);
  if (text && !args_number(text, 1, 256, &jobs)) {
    return report_usage(args, "--jobs is '%s', expected a number from 1 to 256", text);
  }
  plan->options.jobs = (uint32_t)jobs;
  text = args_value(args, "timeout", NULL);
  if (text && !session_time(text, &plan->options.time_limit_ns)) {
    return report_usage(args, "--timeout is '%s', expected a time such as 60, 90s or 2min", text);
  }
  qn_lookup_options_t options;
  if (!session_lookup_options(args, &options)) return EXIT_USAGE;
  if (args_has(args, "tier")) plan->read.tier = options.tier;
  return EXIT_DONE;
}

// -------------------------------------------------------------------------------------- the lists

static qn_status_t read_list(const char* path, const warm_plan_t* plan, warm_report_t* report,
                             qn_warm_list_t* list) {
  text_t text;
  qn_status_t status = text_read(path, &text);
  if (!qn_ok(status)) return status;
  bool is_stdin = strcmp(path, "-") == 0;
  char* directory = is_stdin ? NULL : memory_text(path);
  if (directory) {
    char* slash = strrchr(directory, '/');
    if (slash == directory) {
      slash[1] = '\0';
    } else {
      *(slash ? slash : directory) = '\0';
    }
  }
  qn_warm_read_options_t options = plan->read;
  options.source_name = is_stdin ? "<stdin>" : path;
  options.directory = directory;
  options.on_problem = warm_report_problem;
  options.on_problem_self = report;
  status = qn_warm_list_read(list, text.data, text.size, &options, NULL);
  free(directory);
  text_free(&text);
  return status;
}

static qn_status_t fill_list(const args_t* args, const warm_plan_t* plan, qn_engine_t* engine,
                             warm_report_t* report, qn_warm_list_t* list) {
  for (int i = 0; i < args->operand_count; i++) {
    qn_status_t status = read_list(args->operands[i], plan, report, list);
    if (!qn_ok(status)) return status;
  }
  if (!args_has(args, "from-cache")) return QN_OK;
  return qn_warm_list_add_cache(list, engine, &plan->read, &report->from_cache);
}

static qn_status_t warm(const args_t* args, const warm_plan_t* plan, warm_report_t* report,
                        qn_warm_result_t* out_result) {
  qn_engine_t* engine = NULL;
  qn_warm_list_t* list = NULL;
  qn_status_t status = session_engine(&engine);
  if (qn_ok(status)) status = qn_warm_list_create(&list);
  if (qn_ok(status)) status = fill_list(args, plan, engine, report, list);
  if (qn_ok(status)) {
    qn_warm_options_t options = plan->options;
    options.on_progress = on_progress;
    options.on_progress_self = report;
    catch_signals();
    warm_report_begin(report);
    status = qn_warm(engine, list, &options, out_result);
    warm_report_end(report);
  }
  const char* bundle = args_value(args, "bundle", NULL);
  if (qn_ok(status) && bundle && !plan->options.is_dry_run && !out_result->is_cancelled) {
    status = warm_bundle_write(engine, &report->warm_keys, bundle, args_value(args, "sign", NULL),
                               &report->bundle);
  }
  qn_warm_list_destroy(list);
  qn_engine_destroy(engine);
  return status;
}

static int run_worker(const args_t* args) {
  // Standard input is the coordinator's socket, unless a person runs this by hand.
  if (args->operand_count > 0 || isatty(STDIN_FILENO)) {
    return report_usage(args, "--worker is for 'quern warm' itself");
  }
  return report_status(args, qn_warm_worker(STDIN_FILENO));
}

static int run_warm(const args_t* args) {
  if (args_has(args, "worker")) return run_worker(args);
  if (args->operand_count == 0 && !args_has(args, "from-cache")) {
    return report_usage(args, "expected LIST or --from-cache");
  }
  if (args_has(args, "sign") && !args_has(args, "bundle")) {
    return report_usage(args, "--sign belongs to --bundle");
  }
  warm_plan_t plan;
  int code = make_plan(args, &plan);
  if (code == EXIT_DONE) {
    warm_report_t report;
    qn_warm_result_t result = {.struct_size = sizeof result};
    warm_report_init(&report, args);
    qn_status_t status = warm(args, &plan, &report, &result);
    code = warm_report_finish(&report, &result, status);
  }
  free_plan(&plan);
  die_if_interrupted();
  return code;
}

const verb_t verb_warm = {
    .name = "warm",
    .summary = "compile the keys of lists ahead, in worker processes that may crash",
    .operands = "[LIST]...",
    .max_operands = -1,
    VERB_OPTIONS(
        {"jobs", 'j', "N", "worker processes (default: one per core)", false},
        OPTION("timeout", "TIME", "limit of the time for one key (default 60 s)"),
        {"target", 't', "T", "instead of the targets in the list; several are allowed", true},
        OPTION("tier", "fast|full", "instead of the tiers in the list"),
        FLAG("from-cache",
             "also the keys of the cache directory, for the compiler of this machine"),
        OPTION("bundle", "FILE", "then write a bundle of exactly these keys"),
        OPTION("sign", "KEY", "sign the bundle with this secret key file"),
        FLAG("dry-run", "print which keys are cached and which would be compiled"),
        {"worker", 0, NULL, NULL, false}, OPTION_PLUGIN, OPTION_JSON),
    .help =
        "A LIST is a file that a service wrote with QUERN_RECORD=LIST, or text by hand, one key\n"
        "a line:\n"
        "  FILE.qn [--target T] [--tier fast|full] [--checked]   # from the list's folder\n"
        "'-' reads standard input. A wrong line is reported, and the others are still compiled.\n"
        "\n"
        "Keys that are cached are not compiled again. When a compiler crashes, its key is tried\n"
        "once more and then reported as crashed; the others go on. The exit code is 0 only if\n"
        "every key is in the cache at the end.\n",
    .examples =
        "  quern warm examples/warm.list --target interp\n"
        "  quern warm examples/warm.list --dry-run --json\n"
        "  quern warm --from-cache --jobs 2\n"
        "  quern warm examples/warm.list --target interp --bundle kernels.qnb\n",
    .run = run_warm,
};
