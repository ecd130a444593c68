// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/warm_report.c: prints progress, keys that are not warm, and the summary as text
// or JSON.
//
// On a terminal the progress is one line that is rewritten; elsewhere it is a line every ten
// seconds, so that a log of a build shows that work goes on. Failed keys are reported at once.
#include "tools/cli/verbs/warm_report.h"

#include <string.h>

#include "tools/cli/report.h"

#define LINE_PERIOD_NS 10000000000

void warm_report_init(warm_report_t* report, const args_t* args) {
  memset(report, 0, sizeof *report);
  report->bundle.struct_size = sizeof report->bundle;
  report->from_cache.struct_size = sizeof report->from_cache;
  report->args = args;
  report->is_dry_run = args_has(args, "dry-run");
  report->keys = json_array();
  report->problems = json_array();
}

void warm_report_problem(void* self, const qn_warm_problem_t* problem) {
  warm_report_t* report = self;
  report->problem_count++;
  json_array_append_new(report->problems,
                        json_record("source:s line:d message:s", problem->source_name,
                                    problem->line, problem->message));
  print(stderr, "quern: %s:%u: ", problem->source_name, problem->line);
  print_lines(stderr, problem->message);
}

void warm_report_begin(warm_report_t* report) {
  report->line_ns = now_ns();
  report->progress = progress_start("asking the cache");
}

void warm_report_end(warm_report_t* report) {
  progress_stop(report->progress);
  report->progress = NULL;
}

// -------------------------------------------------------------------------------------- progress

static size_t bad_count(const qn_warm_result_t* progress) {
  return progress->counts[QN_WARM_FAILED] + progress->counts[QN_WARM_CRASHED] +
         progress->counts[QN_WARM_TIMED_OUT];
}

static void describe(const qn_warm_result_t* progress, char out[160]) {
  char rate[32] = "", eta[64] = "", failures[48] = "", time[32];
  if (progress->rate_per_s > 0) {
    (void)snprintf(rate, sizeof rate, ", %.3g/s", progress->rate_per_s);
  }
  if (progress->eta_ns >= 0 && progress->done < progress->total) {
    (void)snprintf(eta, sizeof eta, ", ETA %s", format_ns(progress->eta_ns, time));
  }
  if (bad_count(progress)) {
    (void)snprintf(failures, sizeof failures, ", %zu not compiled", bad_count(progress));
  }
  (void)snprintf(out, 160, "%zu/%zu keys%s%s%s", progress->done, progress->total, rate, eta,
                 failures);
}

static json_t* key_json(const qn_warm_item_t* item) {
  return json_record(
      "key:s name:s target:o tier:s is_checked:b outcome:s compile_ns:i attempts:d signal:d "
      "error:S",
      item->key.hex, item->name, json_parsed(item->target_json),
      item->tier == QN_TIER_FAST ? "fast" : "full", item->is_checked,
      qn_warm_outcome_text(item->outcome), item->compile_ns, item->attempt_count, item->signal,
      item->error);
}

// Names a target for people: "cpu znver4".
static void short_target(const char* target_json, char out[96]) {
  json_t* target = json_parsed(target_json);
  const char* kind = json_string_value(json_object_get(target, "kind"));
  const char* cpu = json_string_value(json_object_get(target, "mcpu"));
  (void)snprintf(out, 96, "%s%s%s", kind ? kind : "?", cpu ? " " : "", cpu ? cpu : "");
  json_decref(target);
}

// Prints a key that is not warm: in a dry run to standard output, a failure to standard error.
static void print_item(warm_report_t* report, const qn_warm_item_t* item) {
  bool is_good = item->outcome == QN_WARM_COMPILED || item->outcome == QN_WARM_CACHED;
  char target[96];
  short_target(item->target_json, target);
  const char* tier = item->tier == QN_TIER_FAST ? ", fast" : "";
  const char* checked = item->is_checked ? ", checked" : "";
  if (report->is_dry_run && item->outcome == QN_WARM_SKIPPED) {
    if (report->args->is_json) return;
    progress_wipe(report->progress);
    print(stdout, "%s (%s%s%s)\n", item->name, target, tier, checked);
  } else if (!is_good && item->outcome != QN_WARM_SKIPPED) {
    progress_wipe(report->progress);
    print(stderr, "quern: %s (%s%s%s) %s: ", item->name, target, tier, checked,
          item->outcome == QN_WARM_TIMED_OUT ? "timed out" : qn_warm_outcome_text(item->outcome));
    print_lines(stderr, item->error);
  }
}

void warm_report_progress(warm_report_t* report, const qn_warm_result_t* progress,
                          const qn_warm_item_t* item) {
  if (item) {
    bool is_warm = item->outcome == QN_WARM_COMPILED || item->outcome == QN_WARM_CACHED;
    if (is_warm && args_has(report->args, "bundle")) {
      warm_keys_add(&report->warm_keys, item->key);
    }
    if (report->args->is_json) json_array_append_new(report->keys, key_json(item));
    print_item(report, item);
    return;
  }
  char line[160];
  describe(progress, line);
  progress_tell(report->progress, line);
  if (report->progress || now_ns() - report->line_ns < LINE_PERIOD_NS) return;
  report->line_ns = now_ns();
  print(stderr, "quern: %s\n", line);
}

// -------------------------------------------------------------------------------------- summary

static json_t* summary_json(const warm_report_t* report, const qn_warm_result_t* result) {
  json_t* summary =
      json_record("is_warm:b is_cancelled:b total:i elapsed_ns:i workers:d", result->is_warm,
                  result->is_cancelled, result->total, result->elapsed_ns, result->worker_count);
  for (int i = QN_WARM_COMPILED; i < QN_WARM_OUTCOME_COUNT; i++) {
    json_object_set_new(summary, qn_warm_outcome_text((qn_warm_outcome_t)i),
                        json_integer((json_int_t)result->counts[i]));
  }
  if (args_has(report->args, "from-cache")) {
    const qn_cached_report_t* from = &report->from_cache;
    json_object_set_new(
        summary, "from_cache",
        json_record("entries:i taken:i without_module:i other_namespace:i bad:i", from->entry_count,
                    from->lookup_count, from->without_module_count, from->other_namespace_count,
                    from->bad_count));
  }
  const char* bundle = args_value(report->args, "bundle", NULL);
  if (bundle && !report->is_dry_run) {
    json_object_set_new(summary, "bundle",
                        json_record("file:s entries:i size_bytes:i", bundle,
                                    report->bundle.written_count, report->bundle.written_bytes));
  }
  json_object_set(summary, "problems", report->problems);
  json_object_set(summary, "keys", report->keys);
  return summary;
}

static void print_summary(const warm_report_t* report, const qn_warm_result_t* result) {
  char time[32];
  print(stdout, "%zu key%s%s", result->total, result->total == 1 ? "" : "s",
        result->total ? ":" : "");
  const char* separator = " ";
  for (int i = QN_WARM_COMPILED; i < QN_WARM_OUTCOME_COUNT; i++) {
    if (result->counts[i] == 0) continue;
    const char* text = report->is_dry_run && i == QN_WARM_SKIPPED ? "to compile"
                       : i == QN_WARM_TIMED_OUT                   ? "timed out"
                                                : qn_warm_outcome_text((qn_warm_outcome_t)i);
    print(stdout, "%s%zu %s", separator, result->counts[i], text);
    separator = ", ";
  }
  print(stdout, ", in %s\n", format_ns(result->elapsed_ns, time));
  const qn_cached_report_t* from = &report->from_cache;
  uint64_t left_count = from->entry_count - from->lookup_count;
  if (left_count > 0) {
    print(stdout,
          "%llu entries of the directory were left out: %llu without their module, %llu of another "
          "namespace, %llu unusable\n",
          (unsigned long long)left_count, (unsigned long long)from->without_module_count,
          (unsigned long long)from->other_namespace_count, (unsigned long long)from->bad_count);
  }
  const char* bundle = args_value(report->args, "bundle", NULL);
  if (bundle && report->bundle.written_count > 0) {
    char count[32], size[32];
    print(stdout, "%s: %s, %s\n", bundle, format_entries(report->bundle.written_count, count),
          format_size(report->bundle.written_bytes, size));
  }
  if (report->problem_count > 0) {
    print(stdout, "%zu line%s of the lists left out\n", report->problem_count,
          report->problem_count == 1 ? "" : "s");
  }
}

int warm_report_finish(warm_report_t* report, const qn_warm_result_t* result, qn_status_t status) {
  int code = EXIT_DONE;
  // A summary follows an error only if work was done before it.
  bool has_begun = qn_ok(status) || result->worker_count > 0 || result->done > 0;
  if (has_begun && report->args->is_json) print_json(summary_json(report, result));
  if (has_begun && !report->args->is_json) print_summary(report, result);
  bool is_good = report->is_dry_run ? result->counts[QN_WARM_FAILED] == 0 : result->is_warm;
  if (!is_good || report->problem_count > 0) code = EXIT_WRONG;
  if (!qn_ok(status)) {
    code = has_begun ? report_status_text(status) : report_status(report->args, status);
  }
  warm_keys_free(&report->warm_keys);
  json_decref(report->keys);
  json_decref(report->problems);
  return code;
}
