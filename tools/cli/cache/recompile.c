// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/recompile.c: `quern cache verify --recompile N`: compiles entries again and
// compares bytes.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quern/warm.h"
#include "tools/cli/cache/actions.h"

typedef struct recompile {
  bool is_json;
  json_t* differences;
  json_t* failures;
  progress_t* progress;
} recompile_t;

static void hex(const uint8_t* bytes, size_t count, char out[32]) {
  out[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    (void)snprintf(out + 3 * i, 32 - 3 * i, "%s%02x", i ? " " : "", (unsigned)bytes[i]);
  }
}

static void on_difference(void* self, const qn_recompile_difference_t* difference) {
  recompile_t* run = self;
  char cached[32], made[32];
  hex(difference->cached, difference->cached_count, cached);
  hex(difference->made, difference->made_count, made);
  json_array_append_new(
      run->differences,
      json_record("key:s section:s offset:i cached_size:i made_size:i cached:s made:s",
                  difference->key.hex, difference->section, difference->offset,
                  difference->cached_size, difference->made_size, cached, made));
  if (run->is_json) return;
  progress_wipe(run->progress);
  print(stdout,
        "%s: %s differs from byte %" PRIu64 " on: cached %s (of %" PRIu64
        " bytes), compiled %s (of "
        "%" PRIu64 " bytes)\n",
        difference->key.hex, difference->section, difference->offset,
        cached[0] ? cached : "nothing", difference->cached_size, made[0] ? made : "nothing",
        difference->made_size);
}

static void on_failure(void* self, qn_cache_key_t key, const char* message) {
  recompile_t* run = self;
  json_array_append_new(run->failures, json_record("key:s message:s", key.hex, message));
  if (run->is_json) return;
  progress_wipe(run->progress);
  print(stdout, "%s: cannot be compiled again: ", key.hex);
  print_lines(stdout, message);
}

static bool on_progress(void* self, uint64_t done, uint64_t total) {
  recompile_t* run = self;
  char what[96];
  (void)snprintf(what, sizeof what, "compiling again %" PRIu64 " of %" PRIu64, done + 1, total);
  progress_tell(run->progress, what);
  return true;
}

static void print_report(const cache_t* cache, const recompile_t* run,
                         const qn_recompile_report_t* report, uint64_t seed) {
  if (run->is_json) {
    print_json(json_record(
        "directory:s seed:i entries:i same:i different:i failed:i other_codegen:i without_module:i "
        "bad:i differences:o failures:o",
        cache->path, seed, report->entry_count, report->same_count, report->different_count,
        report->failed_count, report->other_codegen_count, report->without_module_count,
        report->bad_count, json_incref(run->differences), json_incref(run->failures)));
    return;
  }
  print(stdout,
        "%" PRIu64 " of %" PRIu64 " entries compiled again (seed %" PRIu64 "): %" PRIu64
        " the same, %" PRIu64 " different, %" PRIu64 " failed\n",
        report->same_count + report->different_count + report->failed_count, report->entry_count,
        seed, report->same_count, report->different_count, report->failed_count);
  if (report->other_codegen_count + report->without_module_count + report->bad_count > 0) {
    print(stdout,
          "left out: %" PRIu64 " of another code generator, %" PRIu64
          " without their module, %" PRIu64 " damaged\n",
          report->other_codegen_count, report->without_module_count, report->bad_count);
  }
}

qn_status_t cache_run_recompile(const cache_t* cache, int* out_code) {
  if (cache->bundle || args_has(cache->args, "heal")) {
    *out_code = cache->bundle
                    ? report_usage(cache->args, "--recompile is for a directory: import the bundle")
                    : report_usage(cache->args, "--recompile does not heal; give one of the two");
    return QN_OK;
  }
  const char* count = args_value(cache->args, "recompile", "1");
  // The seed goes into JSON, which has no unsigned numbers of 64 bits.
  uint64_t seed = ((uint64_t)time(NULL) ^ (uint64_t)now_ns()) & INT64_MAX;
  qn_recompile_options_t options = {.struct_size = sizeof options};
  if (strcmp(count, "all") != 0 && !args_number(count, 1, UINT64_MAX, &options.count)) {
    *out_code = report_usage(cache->args,
                             "--recompile is '%s', expected a number from 1 on, or all", count);
    return QN_OK;
  }
  const char* seed_text = args_value(cache->args, "seed", NULL);
  if (seed_text && !args_number(seed_text, 0, INT64_MAX, &seed)) {
    *out_code = report_usage(cache->args, "--seed is '%s', expected a number", seed_text);
    return QN_OK;
  }
  recompile_t run = {cache->args->is_json, json_array(), json_array(), NULL};
  options.seed = seed;
  options.on_difference = on_difference;
  options.on_failure = on_failure;
  options.on_progress = on_progress;
  options.self = &run;
  qn_recompile_report_t report = {.struct_size = sizeof report};
  qn_status_t status = QN_OK;
  if (cache->dir) {
    qn_engine_options_t wanted = {
        .struct_size = sizeof wanted, .cache_dir = cache->path, .cache_mode = QN_CACHE_RO};
    qn_engine_t* engine = NULL;
    status = qn_engine_create(&wanted, &engine);
    run.progress = progress_start("compiling again");
    if (qn_ok(status)) status = qn_engine_recompile(engine, &options, &report);
    progress_stop(run.progress);
    qn_engine_destroy(engine);
  }
  if (qn_ok(status)) print_report(cache, &run, &report, seed);
  if (report.different_count + report.failed_count > 0) *out_code = EXIT_WRONG;
  json_decref(run.differences);
  json_decref(run.failures);
  return status;
}
