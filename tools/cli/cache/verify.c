// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/verify.c: `quern cache verify` and `quern cache clear`.
#include <inttypes.h>

#include "tools/cli/cache/actions.h"

typedef struct bad_list {
  json_t* list;
  bool is_json;
} bad_list_t;

void cache_add_bad(json_t* list, qn_cache_key_t key, const char* reason) {
  json_array_append_new(list, json_record("key:s reason:s", key.hex, reason));
}

static void take_bad(void* self, qn_cache_key_t key, const char* reason) {
  bad_list_t* bad = self;
  cache_add_bad(bad->list, key, reason);
  if (!bad->is_json) print(stdout, "%s: %s\n", key.hex, reason);
}

static bool is_truncated(const cache_t* cache) {
  if (!cache->bundle) return false;
  qn_cache_bundle_info_t info = {.struct_size = sizeof info};
  qn_status_free(qn_cache_bundle_info(cache->bundle, &info));
  return info.is_truncated;
}

static qn_status_t run_verify(const cache_t* cache, int* out_code) {
  if (args_has(cache->args, "recompile")) return cache_run_recompile(cache, out_code);
  if (args_has(cache->args, "seed")) {
    *out_code = report_usage(cache->args, "--seed belongs to --recompile");
    return QN_OK;
  }
  bool is_healing = args_has(cache->args, "heal");
  bad_list_t bad = {json_array(), cache->args->is_json};
  qn_cache_verify_report_t report = {.struct_size = sizeof report};
  qn_status_t status = QN_OK;
  if (cache->bundle) {
    progress_t* progress = progress_start("checking a bundle");
    status = qn_cache_bundle_verify(cache->bundle, take_bad, &bad, &report);
    progress_stop(progress);
  } else if (cache->dir) {
    qn_cache_usage_t usage = {.struct_size = sizeof usage};
    char what[128], size[32];
    (void)qn_status_consume(qn_cache_dir_usage(cache->dir, &usage));
    (void)snprintf(what, sizeof what, "checking %" PRIu64 " entries, %s", usage.entry_count,
                   format_size(usage.size_bytes, size));
    progress_t* progress = progress_start(what);
    status = qn_cache_dir_verify(cache->dir, is_healing, take_bad, &bad, &report);
    progress_stop(progress);
  }
  // Counts the damaged entries that are still there: not healed ones, nor those that only could not
  // be read.
  uint64_t left_count = report.bad_count - report.removed_count;
  bool is_cut = is_truncated(cache);
  if (qn_ok(status) && cache->args->is_json) {
    json_t* result = cache_place_json(cache);
    json_t* counts = json_record("good:i bad:i removed:i unreadable:i bad_entries:o",
                                 report.good_count, report.bad_count, report.removed_count,
                                 report.unreadable_count, json_incref(bad.list));
    json_object_update(result, counts);
    json_decref(counts);
    print_json(result);
  } else if (qn_ok(status)) {
    print(stdout,
          "%" PRIu64 " good, %" PRIu64 " bad, %" PRIu64 " removed, %" PRIu64 " unreadable\n",
          report.good_count, report.bad_count, report.removed_count, report.unreadable_count);
    if (is_cut) {
      print(stdout, "the tail of the bundle is missing: 'quern cache merge' makes it whole\n");
    }
    if (left_count > 0 && !cache->bundle) {
      print(stdout, "'quern cache verify --heal' removes the bad ones\n");
    }
  }
  json_decref(bad.list);
  if (report.unreadable_count > 0) *out_code = EXIT_MACHINE;
  if (left_count > 0 || is_cut) *out_code = EXIT_WRONG;
  return status;
}

static qn_status_t run_clear(const cache_t* cache, int* out_code) {
  (void)out_code;
  uint64_t removed_count = 0;
  qn_status_t status = cache->dir ? qn_cache_dir_clear(cache->dir, &removed_count) : QN_OK;
  if (!qn_ok(status)) return status;
  if (cache->args->is_json) {
    print_json(json_record("directory:s removed:i", cache->path, removed_count));
  } else {
    char count[32];
    print(stdout, "%s removed from %s\n", format_entries(removed_count, count), cache->path);
  }
  return QN_OK;
}

const cache_action_t cache_action_verify = {
    .name = "verify",
    .options = "dir heal recompile seed bundle signed-by ",
    .run = run_verify,
};

const cache_action_t cache_action_clear = {
    .name = "clear",
    .options = "dir ",
    .run = run_clear,
};
