// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/bundle.c: `quern cache export`, `merge`, `import` and `keygen`.
//
// `ls`, `show` and `verify` take bundles too, with --bundle (entries.c, verify.c).
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cli/cache/actions.h"
#include "tools/cli/memory.h"

// ---------------------------------------------------------------------------------------- opening

qn_status_t cache_open_bundle(const args_t* args, const char* path,
                              qn_cache_bundle_t** out_bundle) {
  const char** keys = memory_zeroed((size_t)args->option_count, sizeof *keys);
  const char* key;
  size_t key_count = 0;
  for (int at = 0; (key = args_next(args, "signed-by", &at));) keys[key_count++] = key;
  qn_status_t status = qn_cache_bundle_open(path, keys, key_count, out_bundle);
  free(keys);
  return status;
}

// ---------------------------------------------------------------------------------------- choosing

// Which entries to write: all of the conditions must hold.
typedef struct bundle_choice {
  const args_t* args;          // --key: one of them; --match: all of them
  int64_t newest_s, oldest_s;  // times of creation
  json_t* bad;
} bundle_choice_t;

static bool has_word(const qn_cache_entry_t* entry, const char* word) {
  for (size_t i = 0; i < entry->section_count; i++) {
    const char* text = entry->sections[i].text;
    if (text && strstr(text, word)) return true;
  }
  return false;
}

static bool wants(void* self, const qn_cache_entry_t* entry) {
  const bundle_choice_t* choice = self;
  bool is_prefixed = !args_has(choice->args, "key");
  const char* text;
  for (int at = 0; (text = args_next(choice->args, "key", &at));) {
    is_prefixed |= strncmp(entry->info->key.hex, text, strlen(text)) == 0;
  }
  for (int at = 0; (text = args_next(choice->args, "match", &at));) {
    if (!has_word(entry, text)) return false;
  }
  return is_prefixed && entry->info->created_s >= choice->oldest_s &&
         entry->info->created_s <= choice->newest_s;
}

static void take_bad(void* self, qn_cache_key_t key, const char* reason) {
  const bundle_choice_t* choice = self;
  cache_add_bad(choice->bad, key, reason);
}

// Reads an age: "90s", "15m", "12h", "7d". False for any other text.
static bool parse_age(const char* text, int64_t* out_s) {
  char* end;
  if (text[0] < '0' || text[0] > '9') return false;
  unsigned long long value = strtoull(text, &end, 10);
  static const struct {
    char letter;
    int64_t seconds;
  } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (end[0] != units[i].letter || end[1] != '\0' || value > 1000000000u) continue;
    *out_s = (int64_t)value * units[i].seconds;
    return true;
  }
  return false;
}

static bool read_age(const args_t* args, const char* name, int64_t* out_time_s, int* out_code) {
  const char* text = args_value(args, name, NULL);
  if (!text) return true;
  int64_t age_s;
  if (!parse_age(text, &age_s)) {
    *out_code = report_usage(args, "--%s is '%s', expected an age such as 12h or 7d", name, text);
    return false;
  }
  *out_time_s = (int64_t)time(NULL) - age_s;
  return true;
}

static bool check_prefixes(const args_t* args, int* out_code) {
  const char* prefix;
  for (int at = 0; (prefix = args_next(args, "key", &at));) {
    if (prefix[0] && strlen(prefix) <= 32 && strspn(prefix, "0123456789abcdef") == strlen(prefix)) {
      continue;
    }
    *out_code = report_usage(args, "--key is '%s', expected lower-case hexadecimal digits", prefix);
    return false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------- writing

static uint64_t file_size(const char* path) {
  qn_cache_bundle_t* bundle;
  qn_cache_bundle_info_t info = {.struct_size = sizeof info};
  if (qn_status_consume(qn_cache_bundle_open(path, NULL, 0, &bundle)) != QN_STATUS_OK) return 0;
  qn_status_free(qn_cache_bundle_info(bundle, &info));
  qn_cache_bundle_close(bundle);
  return info.size_bytes;
}

static void print_report(const args_t* args, const char* path,
                         const qn_cache_write_report_t* report, json_t* bad) {
  uint64_t size_bytes = file_size(path);
  if (args->is_json) {
    print_json(json_record("bundle:s entries:i size_bytes:i not_chosen:i bad:i bad_entries:o", path,
                           report->written_count, size_bytes, report->unwanted_count,
                           report->bad_count, json_incref(bad)));
    return;
  }
  size_t index;
  json_t* item;
  json_array_foreach(bad, index, item) {
    print(stdout, "%s: left out: %s\n", json_string_value(json_object_get(item, "key")),
          json_string_value(json_object_get(item, "reason")));
  }
  char count[32], size[32];
  print(stdout, "%s: %s, %s\n", path, format_entries(report->written_count, count),
        format_size(size_bytes, size));
}

// Writes those entries of a directory and of bundles that the options choose.
static qn_status_t write_chosen(const args_t* args, const char* path, qn_cache_dir_t* dir,
                                qn_cache_bundle_t* const* bundles, size_t bundle_count,
                                int* out_code) {
  bundle_choice_t choice = {args, INT64_MAX, INT64_MIN, json_array()};
  qn_status_t status = QN_OK;
  if (check_prefixes(args, out_code) && read_age(args, "newer", &choice.oldest_s, out_code) &&
      read_age(args, "older", &choice.newest_s, out_code)) {
    qn_cache_write_options_t options = {
        .struct_size = sizeof options,
        .secret_key_file = args_value(args, "sign", NULL),
        .wants = wants,
        .on_bad = take_bad,
        .self = &choice,
        .is_timeless = args_has(args, "no-times"),
        .is_appending = args_has(args, "append"),
    };
    qn_cache_write_report_t report = {.struct_size = sizeof report};
    progress_t* progress = progress_start("writing a bundle");
    status = qn_cache_bundle_write(path, dir, bundles, bundle_count, &options, &report);
    progress_stop(progress);
    if (qn_ok(status)) print_report(args, path, &report, choice.bad);
  }
  json_decref(choice.bad);
  return status;
}

static qn_status_t run_export(const cache_t* cache, int* out_code) {
  if (!cache->dir) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "nothing to export: there is no cache at '%s' yet",
                          cache->path);
  }
  return write_chosen(cache->args, cache_operand(cache, 0), cache->dir, NULL, 0, out_code);
}

static qn_status_t run_merge(const cache_t* cache, int* out_code) {
  const char* out_path = cache_operand(cache, 0);
  size_t count = (size_t)cache->args->operand_count - 2, opened = 0;
  qn_cache_bundle_t** bundles = memory_zeroed(count, sizeof *bundles);
  qn_status_t status = QN_OK;
  for (; opened < count && qn_ok(status); opened++) {
    status =
        cache_open_bundle(cache->args, cache_operand(cache, (int)opened + 1), &bundles[opened]);
  }
  if (qn_ok(status)) {
    status = write_chosen(cache->args, out_path, NULL, bundles, count, out_code);
  }
  for (size_t i = 0; i < opened; i++) qn_cache_bundle_close(bundles[i]);
  free(bundles);
  return status;
}

// ---------------------------------------------------------------------------------------- import

// Opens the directory of the configuration, and creates it as an engine would. (A directory of
// --dir must exist: cache.c.)
static qn_status_t open_or_make(const cache_t* cache, qn_cache_dir_t** out_dir) {
  qn_engine_t* engine = NULL;
  qn_status_t status = session_engine(&engine);
  qn_engine_destroy(engine);
  return qn_ok(status) ? qn_cache_dir_open(cache->path, out_dir) : status;
}

static qn_status_t import_into(const cache_t* cache, qn_cache_dir_t* dir, int* out_code) {
  const char* path = cache_operand(cache, 0);
  qn_cache_bundle_t* bundle = NULL;
  qn_status_t status = cache_open_bundle(cache->args, path, &bundle);
  if (!qn_ok(status)) return status;
  bundle_choice_t choice = {.bad = json_array()};
  qn_cache_import_report_t report = {.struct_size = sizeof report};
  progress_t* progress = progress_start("importing a bundle");
  status = qn_cache_dir_import(dir, bundle, take_bad, &choice, &report);
  progress_stop(progress);
  qn_cache_bundle_close(bundle);
  if (qn_ok(status) && cache->args->is_json) {
    print_json(json_record("directory:s bundle:s imported:i present:i bad:i failed:i bad_entries:o",
                           cache->path, path, report.imported_count, report.present_count,
                           report.bad_count, report.failed_count, json_incref(choice.bad)));
  } else if (qn_ok(status)) {
    print(stdout,
          "%" PRIu64 " imported, %" PRIu64 " there already, %" PRIu64 " bad, %" PRIu64 " failed\n",
          report.imported_count, report.present_count, report.bad_count, report.failed_count);
  }
  json_decref(choice.bad);
  if (qn_ok(status) && report.bad_count > 0) *out_code = EXIT_WRONG;
  if (qn_ok(status) && report.failed_count > 0) *out_code = EXIT_MACHINE;
  return status;
}

static qn_status_t run_import(const cache_t* cache, int* out_code) {
  if (cache->dir) return import_into(cache, cache->dir, out_code);
  qn_cache_dir_t* dir = NULL;
  qn_status_t status = open_or_make(cache, &dir);
  if (qn_ok(status)) status = import_into(cache, dir, out_code);
  qn_cache_dir_close(dir);
  return status;
}

// ---------------------------------------------------------------------------------------- keygen

static qn_status_t run_keygen(const cache_t* cache, int* out_code) {
  (void)out_code;
  const char* prefix = cache_operand(cache, 0);
  qn_status_t status = qn_cache_make_keys(prefix);
  if (!qn_ok(status)) return status;
  size_t size = strlen(prefix) + 5;
  char* public_file = memory_zeroed(size, 1);
  char* secret_file = memory_zeroed(size, 1);
  (void)snprintf(public_file, size, "%s.pub", prefix);
  (void)snprintf(secret_file, size, "%s.key", prefix);
  if (cache->args->is_json) {
    print_json(json_record("public_key:s secret_key:s", public_file, secret_file));
  } else {
    print(stdout, "%s  public: to open bundles with\n%s  secret: to sign bundles with\n",
          public_file, secret_file);
  }
  free(public_file);
  free(secret_file);
  return QN_OK;
}

const cache_action_t cache_action_export = {
    .name = "export",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .options = "dir key match newer older sign no-times append ",
    .run = run_export,
};

const cache_action_t cache_action_merge = {
    .name = "merge",
    .operands = "OUT IN...",
    .min_operands = 2,
    .max_operands = -1,
    .options = "key match newer older sign signed-by no-times append ",
    .need = CACHE_NEEDS_NOTHING,
    .run = run_merge,
};

const cache_action_t cache_action_import = {
    .name = "import",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .options = "dir signed-by ",
    .run = run_import,
};

const cache_action_t cache_action_keygen = {
    .name = "keygen",
    .operands = "PREFIX",
    .min_operands = 1,
    .max_operands = 1,
    .options = "",
    .need = CACHE_NEEDS_NOTHING,
    .run = run_keygen,
};
