// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/stats.c: `quern cache stats`: sizes and counts of each tier.
//
// It reads only the beginning of each entry, so ten thousand entries take a moment. A field of the
// JSON is never removed.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cache/actions.h"
#include "tools/cli/memory.h"

// Entries with the same target kind, generator or tier. Groups are few, so that a list is enough.
typedef struct group {
  char* name;  // owned
  uint64_t entry_count, size_bytes, compile_ns;
} group_t;

typedef struct groups {
  group_t* items;
  size_t count, capacity;
} groups_t;

typedef struct stats {
  uint64_t entry_count, size_bytes, code_bytes, compile_ns, unreadable_count;
  int64_t oldest_s, newest_s, least_recently_used_s;  // 0: no entry
  groups_t kinds, generators, tiers;
  uint64_t temporary_count;
  qn_cache_place_t place;
} stats_t;

// -------------------------------------------------------------------------------------- groups

// Counts an entry in the group of a name.
static void add_to_group(groups_t* groups, const char* name, const qn_cache_summary_t* entry) {
  size_t i = 0;
  while (i < groups->count && strcmp(groups->items[i].name, name) != 0) i++;
  if (i == groups->count) {
    groups->items = memory_room(groups->items, &groups->capacity, i, sizeof *groups->items);
    groups->items[groups->count++] = (group_t){.name = memory_text(name)};
  }
  groups->items[i].entry_count++;
  groups->items[i].size_bytes += entry->info->size_bytes;
  groups->items[i].compile_ns += entry->compile_ns;
}

static void free_groups(groups_t* groups) {
  for (size_t i = 0; i < groups->count; i++) free(groups->items[i].name);
  free(groups->items);
}

// Orders groups by size, the largest first, then by name.
static int compare_groups(const void* a, const void* b) {
  const group_t *x = a, *y = b;
  if (x->size_bytes != y->size_bytes) return x->size_bytes < y->size_bytes ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void sort_groups(groups_t* groups) {
  if (groups->count) qsort(groups->items, groups->count, sizeof *groups->items, compare_groups);
}

// Returns the kind of a target in its canonical form, {..."kind":"cpu"...}.
static const char* kind_of(const char* target, char out[32]) {
  static const char name[] = "\"kind\":\"";
  const char* kind = strstr(target, name);
  kind = kind ? kind + strlen(name) : "unknown";
  (void)snprintf(out, 32, "%.*s", (int)strcspn(kind, "\""), kind);
  return out;
}

// Words the options of a key: "tier=fast checked=1" is "fast, checked".
static const char* tier_of(const char* options, char out[32]) {
  const char* tier = strstr(options, "tier=");
  int size = tier ? (int)strcspn(tier + 5, " ") : 0;
  (void)snprintf(out, 32, "%.*s%s", size ? size : 7, size ? tier + 5 : "unknown",
                 strstr(options, "checked=1") ? ", checked" : "");
  return out;
}

// -------------------------------------------------------------------------------------- counting

static int64_t earlier(int64_t a, int64_t b) {
  if (!a || !b) return a ? a : b;
  return a < b ? a : b;
}

static bool count_entry(void* self, const qn_cache_summary_t* entry) {
  stats_t* stats = self;
  stats->entry_count++;
  stats->size_bytes += entry->info->size_bytes;
  stats->least_recently_used_s = earlier(stats->least_recently_used_s, entry->info->used_s);
  if (!entry->target) {
    stats->unreadable_count++;
    return true;
  }
  stats->code_bytes += entry->code_bytes;
  stats->compile_ns += entry->compile_ns;
  stats->oldest_s = earlier(stats->oldest_s, entry->info->created_s);
  if (entry->info->created_s > stats->newest_s) stats->newest_s = entry->info->created_s;
  char name[32];
  add_to_group(&stats->kinds, kind_of(entry->target, name), entry);
  add_to_group(&stats->generators, entry->generator, entry);
  add_to_group(&stats->tiers, tier_of(entry->options, name), entry);
  return true;
}

static qn_status_t count_all(const cache_t* cache, stats_t* stats) {
  qn_cache_usage_t usage = {.struct_size = sizeof usage};
  if (!cache->dir) return QN_OK;
  qn_status_t status = qn_cache_dir_survey(cache->dir, count_entry, stats);
  if (qn_ok(status)) status = qn_cache_dir_usage(cache->dir, &usage);
  stats->temporary_count = usage.temporary_count;
  stats->place.struct_size = sizeof stats->place;
  qn_status_free(qn_cache_dir_place(cache->dir, &stats->place));
  sort_groups(&stats->kinds);
  sort_groups(&stats->generators);
  sort_groups(&stats->tiers);
  return status;
}

static void free_stats(stats_t* stats) {
  free_groups(&stats->kinds);
  free_groups(&stats->generators);
  free_groups(&stats->tiers);
}

// -------------------------------------------------------------------------------------- settings

// Options of the configuration that are shown. The text of each is owned.
enum { MAX_SIZE, MAX_ENTRIES, BUNDLES, BUNDLE_KEYS, REMOTE, REMOTE_ROLE, REMOTE_DOMAIN, SETTINGS };

typedef struct stats_settings {
  char* text[SETTINGS];
} stats_settings_t;

static qn_status_t read_settings(stats_settings_t* out) {
  static const char* const names[SETTINGS] = {
      "cache_max_size", "cache_max_entries", "bundles",      "bundle_keys",
      "remote",         "remote_role",       "remote_domain"};
  qn_engine_t* engine = NULL;
  qn_status_t status = session_idle_engine(&engine);
  for (int i = 0; i < SETTINGS && qn_ok(status); i++) {
    out->text[i] = session_option(engine, names[i]);
  }
  qn_engine_destroy(engine);
  return status;
}

// Reads a size that the library has accepted: a number and one of its suffixes.
static double bytes_of(const char* text) {
  char* end = NULL;
  double number = strtod(text, &end);
  while (*end == ' ') end++;
  double unit = end[0] && end[1] == 'i' ? 1024 : 1000, factor = 1;
  static const char powers[] = "KMGT";
  char letter = (char)(*end >= 'a' && *end <= 'z' ? *end - 32 : *end);
  const char* at = letter ? strchr(powers, letter) : NULL;
  for (long i = 0; at && i <= at - powers; i++) factor *= unit;
  return number * factor;
}

static double percent_of(double part, double whole) {
  return whole > 0 ? 100.0 * part / whole : 0;
}

// Returns how full the directory is, by the bound that is nearer.
static double fullness(const stats_t* stats, const stats_settings_t* settings) {
  double size = percent_of((double)stats->size_bytes, bytes_of(settings->text[MAX_SIZE]));
  double count = percent_of((double)stats->entry_count, strtod(settings->text[MAX_ENTRIES], NULL));
  return size > count ? size : count;
}

// -------------------------------------------------------------------------------------- bundles

enum { MAX_KEY_FILES = 64 };

// Calls back for each configured bundle. Cuts the settings at their colons.
static void each_bundle(stats_settings_t* settings,
                        void (*on_bundle)(void* self, const char* path, const char* error,
                                          const qn_cache_bundle_info_t* info),
                        void* self) {
  const char* keys[MAX_KEY_FILES];
  size_t key_count = 0;
  char* rest = NULL;
  for (char* key = strtok_r(settings->text[BUNDLE_KEYS], ":", &rest);
       key && key_count < MAX_KEY_FILES; key = strtok_r(NULL, ":", &rest)) {
    keys[key_count++] = key;
  }
  rest = NULL;
  for (char* path = strtok_r(settings->text[BUNDLES], ":", &rest); path;
       path = strtok_r(NULL, ":", &rest)) {
    qn_cache_bundle_t* bundle = NULL;
    qn_cache_bundle_info_t info = {.struct_size = sizeof info};
    qn_status_t status = qn_cache_bundle_open(path, keys, key_count, &bundle);
    if (qn_ok(status)) status = qn_cache_bundle_info(bundle, &info);
    on_bundle(self, path, qn_ok(status) ? NULL : qn_status_message(status), &info);
    qn_cache_bundle_close(bundle);
    qn_status_free(status);
  }
}

static void add_bundle_json(void* self, const char* path, const char* error,
                            const qn_cache_bundle_info_t* info) {
  json_array_append_new(
      self, json_record("path:s is_usable:b error:s entries:i size_bytes:i is_truncated:b signer:S",
                        path, error == NULL, error, info->entry_count, info->size_bytes,
                        info->is_truncated, info->signer));
}

static void print_bundle(void* self, const char* path, const char* error,
                         const qn_cache_bundle_info_t* info) {
  (void)self;
  char count[32], size[32];
  if (error) {
    print(stdout, "bundle     %s: not used: ", path);
    print_lines(stdout, error);
  } else {
    print(stdout, "bundle     %s: %s, %s%s%s\n", path, format_entries(info->entry_count, count),
          format_size(info->size_bytes, size), info->is_truncated ? ", its tail is missing" : "",
          info->is_verified ? ", signed" : "");
  }
}

// -------------------------------------------------------------------------------------- output

static json_t* groups_json(const groups_t* groups) {
  json_t* list = json_array();
  for (size_t i = 0; i < groups->count; i++) {
    const group_t* group = &groups->items[i];
    json_array_append_new(list,
                          json_record("name:s entries:i size_bytes:i compile_ns:i", group->name,
                                      group->entry_count, group->size_bytes, group->compile_ns));
  }
  return list;
}

static json_t* time_json(int64_t unix_s) {
  return unix_s ? json_integer((json_int_t)unix_s) : json_null();
}

static void print_object(const cache_t* cache, const stats_t* stats, stats_settings_t* settings) {
  char* const* text = settings->text;
  json_t* it = json_record(
      "directory:S exists:b entries:i size_bytes:i temporary_files:i max_size:s max_entries:i "
      "full_percent:o code_bytes:i compile_ns:i unreadable:i oldest_s:o newest_s:o "
      "least_recently_used_s:o swept_s:o locks:i free_bytes:i total_bytes:i by_target:o "
      "by_generator:o by_tier:o",
      cache->path, cache->dir != NULL, stats->entry_count, stats->size_bytes,
      stats->temporary_count, text[MAX_SIZE], strtoll(text[MAX_ENTRIES], NULL, 10),
      json_real(fullness(stats, settings)), stats->code_bytes, stats->compile_ns,
      stats->unreadable_count, time_json(stats->oldest_s), time_json(stats->newest_s),
      time_json(stats->least_recently_used_s), time_json(stats->place.swept_s),
      (uint64_t)stats->place.lock_count, stats->place.free_bytes, stats->place.total_bytes,
      groups_json(&stats->kinds), groups_json(&stats->generators), groups_json(&stats->tiers));
  json_t* bundles = json_array();
  each_bundle(settings, add_bundle_json, bundles);
  json_object_set_new(it, "bundles", bundles);
  json_object_set_new(it, "remote",
                      text[REMOTE][0] ? json_record("url:s role:s domain:s", text[REMOTE],
                                                    text[REMOTE_ROLE], text[REMOTE_DOMAIN])
                                      : json_null());
  print_json_digits(it, 6);
}

static void print_groups(const char* title, const groups_t* groups) {
  char count[32], size[32], time[32];
  for (size_t i = 0; i < groups->count; i++) {
    const group_t* group = &groups->items[i];
    print(stdout, "%-10s %s: %s, %s, compiled in %s\n", i ? "" : title, group->name,
          format_entries(group->entry_count, count), format_size(group->size_bytes, size),
          format_ns((int64_t)group->compile_ns, time));
  }
}

static void print_directory(const cache_t* cache, const stats_t* stats,
                            const stats_settings_t* settings) {
  char text[3][32];
  print(stdout, "directory  %s%s\n", cache->path, cache->dir ? "" : " (not there yet)");
  print(stdout, "entries    %" PRIu64 " of at most %s\n", stats->entry_count,
        settings->text[MAX_ENTRIES]);
  print(stdout, "size       %s of at most %s; %.1f %% full\n",
        format_size(stats->size_bytes, text[0]), settings->text[MAX_SIZE],
        fullness(stats, settings));
  if (stats->entry_count) {
    print(stdout, "code       %s\n", format_size(stats->code_bytes, text[0]));
    print(stdout, "saved      %s of compiling, if all are used\n",
          format_ns((int64_t)stats->compile_ns, text[0]));
    print(stdout, "made       from %s to %s\n", format_time(stats->oldest_s, text[0]),
          format_time(stats->newest_s, text[1]));
    print(stdout, "used       the least recently used %s\n",
          format_time(stats->least_recently_used_s, text[0]));
  }
  if (stats->unreadable_count) {
    print(stdout, "unreadable %" PRIu64 "; see 'quern cache verify'\n", stats->unreadable_count);
  }
  print_groups("targets", &stats->kinds);
  print_groups("generators", &stats->generators);
  print_groups("tiers", &stats->tiers);
  print(stdout, "temporary  %" PRIu64 "\n", stats->temporary_count);
  if (cache->dir) {
    print(stdout, "locks      %" PRIu64 " held now\n", stats->place.lock_count);
    print(stdout, "swept      %s\n", format_time(stats->place.swept_s, text[0]));
    print(stdout, "free       %s of %s\n", format_size(stats->place.free_bytes, text[0]),
          format_size(stats->place.total_bytes, text[1]));
  }
}

static void print_stats(const cache_t* cache, const stats_t* stats, stats_settings_t* settings) {
  if (cache->path[0]) {
    print_directory(cache, stats, settings);
  } else {
    print(stdout, "directory  none is configured\n");
  }
  each_bundle(settings, print_bundle, NULL);
  const char* domain = settings->text[REMOTE_DOMAIN];
  if (settings->text[REMOTE][0]) {
    print(stdout, "remote     %s, role %s%s%s\n", settings->text[REMOTE],
          settings->text[REMOTE_ROLE], domain[0] ? ", domain " : "", domain);
  }
}

static qn_status_t run_stats(const cache_t* cache, int* out_code) {
  (void)out_code;
  stats_t stats = {0};
  stats_settings_t settings = {0};
  qn_status_t status = count_all(cache, &stats);
  if (qn_ok(status)) status = read_settings(&settings);
  if (qn_ok(status) && !cache->path[0] && !settings.text[BUNDLES][0] && !settings.text[REMOTE][0]) {
    status = cache_no_directory();
  }
  if (qn_ok(status) && cache->args->is_json) {
    print_object(cache, &stats, &settings);
  } else if (qn_ok(status)) {
    print_stats(cache, &stats, &settings);
  }
  for (int i = 0; i < SETTINGS; i++) free(settings.text[i]);
  free_stats(&stats);
  return status;
}

const cache_action_t cache_action_stats = {
    .name = "stats",
    .options = "dir ",
    .need = CACHE_MAY_LACK_DIRECTORY,
    .run = run_stats,
};
