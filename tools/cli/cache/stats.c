// tools/cli/cache/stats.c: `quern cache stats`: sizes and counts of each tier.
//
// It reads only the beginning of each entry, so ten thousand entries take a moment. A field of the
// JSON is never removed.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cache/actions.h"
#include "tools/cli/list.h"

// Entries that have something in common. Groups are few: a list will do.
typedef struct group {
  char* name;  // owned
  uint64_t entry_count, size_bytes, compile_ns;
} group_t;

typedef struct groups {
  group_t* items;
  size_t count, capacity;
} groups_t;

// Targets are compared by their JSON before it is parsed for the kind.
typedef struct kind_of {
  char* target;  // owned
  char kind[32];
} kind_of_t;

typedef struct stats {
  uint64_t entry_count, size_bytes, code_bytes, compile_ns, unreadable_count;
  int64_t oldest_s, newest_s, least_recently_used_s;  // 0: no entry
  groups_t kinds, generators, tiers;
  kind_of_t* targets;
  size_t target_count, target_capacity;
  bool is_out_of_memory;
  uint64_t temporary_count;
  qn_cache_place_t place;
} stats_t;

// -------------------------------------------------------------------------------------- groups

static void add_to_group(stats_t* stats, groups_t* groups, const char* name,
                         const qn_cache_summary_t* entry) {
  size_t i = 0;
  while (i < groups->count && strcmp(groups->items[i].name, name) != 0) i++;
  if (i == groups->count) {
    char* copy = strdup(name);
    group_t* items = list_room(groups->items, &groups->capacity, groups->count, sizeof *items);
    if (items) groups->items = items;
    if (!copy || !items) {
      free(copy);
      stats->is_out_of_memory = true;
      return;
    }
    items[groups->count++] = (group_t){.name = copy};
  }
  groups->items[i].entry_count++;
  groups->items[i].size_bytes += entry->info->size_bytes;
  groups->items[i].compile_ns += entry->compile_ns;
}

static void free_groups(groups_t* groups) {
  for (size_t i = 0; i < groups->count; i++) free(groups->items[i].name);
  free(groups->items);
}

// The largest first; the name decides between equals.
static int compare_groups(const void* a, const void* b) {
  const group_t *x = a, *y = b;
  if (x->size_bytes != y->size_bytes) return x->size_bytes < y->size_bytes ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void sort_groups(groups_t* groups) {
  if (groups->count) qsort(groups->items, groups->count, sizeof *groups->items, compare_groups);
}

static const char* kind_of(stats_t* stats, const char* target) {
  for (size_t i = 0; i < stats->target_count; i++) {
    if (strcmp(stats->targets[i].target, target) == 0) return stats->targets[i].kind;
  }
  char* copy = strdup(target);
  kind_of_t* items =
      list_room(stats->targets, &stats->target_capacity, stats->target_count, sizeof *items);
  if (items) stats->targets = items;
  if (!copy || !items) {
    free(copy);
    stats->is_out_of_memory = true;
    return "unknown";
  }
  kind_of_t* one = &items[stats->target_count++];
  one->target = copy;
  json_t* json = json_parsed(target);
  const char* kind = json_string_value(json_object_get(json, "kind"));
  (void)snprintf(one->kind, sizeof one->kind, "%s", kind ? kind : "unknown");
  json_decref(json);
  return one->kind;
}

// "tier=fast checked=1" as "fast, checked".
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
  char tier[32];
  add_to_group(stats, &stats->kinds, kind_of(stats, entry->target), entry);
  add_to_group(stats, &stats->generators, entry->generator, entry);
  add_to_group(stats, &stats->tiers, tier_of(entry->options, tier), entry);
  return !stats->is_out_of_memory;
}

static qn_status_t count_all(const cache_t* cache, stats_t* stats) {
  qn_cache_usage_t usage = {.struct_size = sizeof usage};
  if (!cache->dir) return QN_OK;
  qn_status_t status = qn_cache_dir_survey(cache->dir, count_entry, stats);
  if (qn_ok(status) && stats->is_out_of_memory) {
    status = qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the statistics of the cache");
  }
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
  for (size_t i = 0; i < stats->target_count; i++) free(stats->targets[i].target);
  free(stats->targets);
}

// -------------------------------------------------------------------------------------- settings

typedef struct stats_settings {
  char* max_size;  // each owned, NULL without memory
  char* max_entries;
  char* bundles;
  char* bundle_keys;
  char* remote;  // without credentials
  char* remote_role;
  char* remote_domain;
} stats_settings_t;

static qn_status_t read_settings(stats_settings_t* out) {
  qn_engine_t* engine = NULL;
  qn_status_t status = session_idle_engine(&engine);
  if (!qn_ok(status)) return status;
  out->max_size = session_option(engine, "cache_max_size");
  out->max_entries = session_option(engine, "cache_max_entries");
  out->bundles = session_option(engine, "bundles");
  out->bundle_keys = session_option(engine, "bundle_keys");
  out->remote = session_option(engine, "remote");
  out->remote_role = session_option(engine, "remote_role");
  out->remote_domain = session_option(engine, "remote_domain");
  qn_engine_destroy(engine);
  bool is_whole = out->max_size && out->max_entries && out->bundles && out->bundle_keys &&
                  out->remote && out->remote_role && out->remote_domain;
  return is_whole ? QN_OK
                  : qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the configuration");
}

static void free_settings(stats_settings_t* settings) {
  free(settings->max_size);
  free(settings->max_entries);
  free(settings->bundles);
  free(settings->bundle_keys);
  free(settings->remote);
  free(settings->remote_role);
  free(settings->remote_domain);
}

// The library has accepted the text: a number and one of its suffixes.
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

// How full the fuller one of the two bounds is.
static double fullness(const stats_t* stats, const stats_settings_t* settings) {
  double size = percent_of((double)stats->size_bytes, bytes_of(settings->max_size));
  double count = percent_of((double)stats->entry_count, strtod(settings->max_entries, NULL));
  return size > count ? size : count;
}

// -------------------------------------------------------------------------------------- bundles

enum { MAX_KEY_FILES = 64 };

// Calls back for each bundle that is configured; `text` is cut at its colons.
static void each_bundle(stats_settings_t* settings,
                        void (*on_bundle)(void* self, const char* path, const char* error,
                                          const qn_cache_bundle_info_t* info),
                        void* self) {
  const char* keys[MAX_KEY_FILES];
  size_t key_count = 0;
  char* rest = NULL;
  for (char* key = strtok_r(settings->bundle_keys, ":", &rest); key && key_count < MAX_KEY_FILES;
       key = strtok_r(NULL, ":", &rest)) {
    keys[key_count++] = key;
  }
  rest = NULL;
  for (char* path = strtok_r(settings->bundles, ":", &rest); path;
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
      self, json_pack("{s:o, s:b, s:o, s:I, s:I, s:b, s:o}", "path", json_text(path), "is_usable",
                      (int)(error == NULL), "error", json_text(error), "entries",
                      (json_int_t)info->entry_count, "size_bytes", (json_int_t)info->size_bytes,
                      "is_truncated", (int)info->is_truncated, "signer",
                      json_text(info->signer[0] ? info->signer : NULL)));
}

static void print_bundle(void* self, const char* path, const char* error,
                         const qn_cache_bundle_info_t* info) {
  (void)self;
  char size[32];
  if (error) {
    print(stdout, "bundle     %s: not used: ", path);
    print_lines(stdout, error);
  } else {
    print(stdout, "bundle     %s: %" PRIu64 " %s, %s%s%s\n", path, info->entry_count,
          info->entry_count == 1 ? "entry" : "entries", format_size(info->size_bytes, size),
          info->is_truncated ? ", its tail is missing" : "", info->is_verified ? ", signed" : "");
  }
}

// -------------------------------------------------------------------------------------- output

static json_t* groups_json(const groups_t* groups) {
  json_t* list = json_array();
  for (size_t i = 0; i < groups->count; i++) {
    const group_t* group = &groups->items[i];
    json_array_append_new(
        list, json_pack("{s:o, s:I, s:I, s:I}", "name", json_text(group->name), "entries",
                        (json_int_t)group->entry_count, "size_bytes", (json_int_t)group->size_bytes,
                        "compile_ns", (json_int_t)group->compile_ns));
  }
  return list;
}

static json_t* time_json(int64_t unix_s) {
  return unix_s ? json_integer((json_int_t)unix_s) : json_null();
}

static void print_object(const cache_t* cache, const stats_t* stats, stats_settings_t* settings) {
  json_t* it = json_pack(
      "{s:o, s:b, s:I, s:I, s:I, s:o}", "directory", json_text(cache->path[0] ? cache->path : NULL),
      "exists", (int)(cache->dir != NULL), "entries", (json_int_t)stats->entry_count, "size_bytes",
      (json_int_t)stats->size_bytes, "temporary_files", (json_int_t)stats->temporary_count,
      "max_size", json_text(settings->max_size));
  json_object_set_new(it, "max_entries", json_integer(strtoll(settings->max_entries, NULL, 10)));
  json_object_set_new(it, "full_percent", json_real(fullness(stats, settings)));
  json_object_set_new(it, "code_bytes", json_integer((json_int_t)stats->code_bytes));
  json_object_set_new(it, "compile_ns", json_integer((json_int_t)stats->compile_ns));
  json_object_set_new(it, "unreadable", json_integer((json_int_t)stats->unreadable_count));
  json_object_set_new(it, "oldest_s", time_json(stats->oldest_s));
  json_object_set_new(it, "newest_s", time_json(stats->newest_s));
  json_object_set_new(it, "least_recently_used_s", time_json(stats->least_recently_used_s));
  json_object_set_new(it, "swept_s", time_json(stats->place.swept_s));
  json_object_set_new(it, "locks", json_integer((json_int_t)stats->place.lock_count));
  json_object_set_new(it, "free_bytes", json_integer((json_int_t)stats->place.free_bytes));
  json_object_set_new(it, "total_bytes", json_integer((json_int_t)stats->place.total_bytes));
  json_object_set_new(it, "by_target", groups_json(&stats->kinds));
  json_object_set_new(it, "by_generator", groups_json(&stats->generators));
  json_object_set_new(it, "by_tier", groups_json(&stats->tiers));
  json_t* bundles = json_array();
  each_bundle(settings, add_bundle_json, bundles);
  json_object_set_new(it, "bundles", bundles);
  json_t* remote = json_null();
  if (settings->remote[0]) {
    remote =
        json_pack("{s:o, s:o, s:o}", "url", json_text(settings->remote), "role",
                  json_text(settings->remote_role), "domain", json_text(settings->remote_domain));
  }
  json_object_set_new(it, "remote", remote);
  print_json(it, 6);
}

static void print_groups(const char* title, const groups_t* groups) {
  char size[32], time[32];
  for (size_t i = 0; i < groups->count; i++) {
    const group_t* group = &groups->items[i];
    print(stdout, "%-10s %s: %" PRIu64 " %s, %s, compiled in %s\n", i ? "" : title, group->name,
          group->entry_count, group->entry_count == 1 ? "entry" : "entries",
          format_size(group->size_bytes, size), format_ns((int64_t)group->compile_ns, time));
  }
}

static void print_directory(const cache_t* cache, const stats_t* stats,
                            const stats_settings_t* settings) {
  char text[3][32];
  print(stdout, "directory  %s%s\n", cache->path, cache->dir ? "" : " (not there yet)");
  print(stdout, "entries    %" PRIu64 " of at most %s\n", stats->entry_count,
        settings->max_entries);
  print(stdout, "size       %s of at most %s; %.1f %% full\n",
        format_size(stats->size_bytes, text[0]), settings->max_size, fullness(stats, settings));
  if (stats->entry_count) {
    print(stdout, "code       %s\n", format_size(stats->code_bytes, text[0]));
    print(stdout, "saved      %s of compiling, each time that all are used\n",
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
  if (settings->remote[0]) {
    print(stdout, "remote     %s, role %s%s%s\n", settings->remote, settings->remote_role,
          settings->remote_domain[0] ? ", domain " : "", settings->remote_domain);
  }
}

static qn_status_t run_stats(const cache_t* cache, int* out_code) {
  (void)out_code;
  stats_t stats = {0};
  stats_settings_t settings = {0};
  qn_status_t status = count_all(cache, &stats);
  if (qn_ok(status)) status = read_settings(&settings);
  if (qn_ok(status) && !cache->path[0] && !settings.bundles[0] && !settings.remote[0]) {
    status = cache_no_directory();
  }
  if (qn_ok(status) && cache->args->is_json) {
    print_object(cache, &stats, &settings);
  } else if (qn_ok(status)) {
    print_stats(cache, &stats, &settings);
  }
  free_settings(&settings);
  free_stats(&stats);
  return status;
}

const cache_action_t cache_action_stats = {
    .name = "stats",
    .options = "dir ",
    .need = CACHE_MAY_LACK_DIRECTORY,
    .run = run_stats,
};
