// tools/cmd_cache.c: `quern cache ACTION`: looking at and caring for the cache directory.
//
// Actions are a table of their own. A directory that is not there yet is an empty cache, unless it
// was named. Thread rule: one thread. Read next: docs/cache-format.md.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/output.h"
#include "tools/report.h"
#include "tools/session.h"
#include "tools/verbs.h"

typedef struct cache {
  const args_t* args;
  char* path;           // owned
  qn_cache_dir_t* dir;  // NULL: there is none yet
} cache_t;

typedef struct action {
  const char* name;
  const char* operand;  // NULL: none
  qn_status_t (*run)(const cache_t* cache, int* out_code);
} action_t;

// -------------------------------------------------------------------------------------- stats

static qn_status_t run_stats(const cache_t* cache, int* out_code) {
  (void)out_code;
  qn_cache_usage_t usage = {0};
  qn_status_t status = cache->dir ? qn_cache_dir_usage(cache->dir, &usage) : QN_OK;
  if (!qn_ok(status)) return status;
  qn_engine_t* engine = NULL;
  status = session_idle_engine(&engine);
  if (!qn_ok(status)) return status;
  char* limit = session_option(engine, "cache_max_size");
  qn_engine_destroy(engine);
  if (cache->args->is_json) {
    print_json(
        json_pack("{s:o, s:b, s:I, s:I, s:I, s:o}", "directory", json_text(cache->path), "exists",
                  (int)(cache->dir != NULL), "entries", (json_int_t)usage.entry_count, "size_bytes",
                  (json_int_t)usage.size_bytes, "temporary_files",
                  (json_int_t)usage.temporary_count, "max_size", json_text(limit)),
        17);
  } else {
    char size[32];
    printf("directory  %s%s\n", cache->path, cache->dir ? "" : " (not there yet)");
    printf("entries    %" PRIu64 "\n", usage.entry_count);
    printf("size       %s of at most %s\n", format_size(usage.size_bytes, size),
           limit ? limit : "?");
    printf("temporary  %" PRIu64 "\n", usage.temporary_count);
  }
  free(limit);
  return QN_OK;
}

// -------------------------------------------------------------------------------------- ls

typedef struct listing {
  qn_cache_entry_info_t* entries;
  size_t count;
  size_t capacity;
  bool is_out_of_memory;
} listing_t;

static bool take_entry(void* self, const qn_cache_entry_info_t* info) {
  listing_t* listing = self;
  if (listing->count == listing->capacity) {
    size_t capacity = listing->capacity ? 2 * listing->capacity : 64;
    qn_cache_entry_info_t* grown = realloc(listing->entries, capacity * sizeof *grown);
    if (!grown) {
      listing->is_out_of_memory = true;
      return false;
    }
    listing->entries = grown;
    listing->capacity = capacity;
  }
  listing->entries[listing->count++] = *info;
  return true;
}

// The latest first; the key decides between equal times.
static int compare_entries(const void* a, const void* b) {
  const qn_cache_entry_info_t *x = a, *y = b;
  if (x->created_s != y->created_s) return x->created_s < y->created_s ? 1 : -1;
  return strcmp(x->key, y->key);
}

static json_t* info_json(const qn_cache_entry_info_t* info) {
  return json_pack("{s:o, s:I, s:I, s:I}", "key", json_text(info->key), "size_bytes",
                   (json_int_t)info->size_bytes, "created_s", (json_int_t)info->created_s, "used_s",
                   (json_int_t)info->used_s);
}

static void print_listing(const cache_t* cache, const listing_t* listing) {
  if (cache->args->is_json) {
    json_t* list = json_array();
    for (size_t i = 0; i < listing->count; i++) {
      json_array_append_new(list, info_json(&listing->entries[i]));
    }
    print_json(json_pack("{s:o, s:o}", "directory", json_text(cache->path), "entries", list), 17);
    return;
  }
  table_t table;
  table_init(&table, 4);
  table.is_right[1] = true;
  static const char* const header[] = {"key", "size", "created", "used"};
  for (size_t i = 0; i < 4; i++) table_add(&table, header[i]);
  for (size_t i = 0; i < listing->count; i++) {
    const qn_cache_entry_info_t* info = &listing->entries[i];
    char text[32];
    table_add(&table, info->key);
    table_add(&table, format_size(info->size_bytes, text));
    table_add(&table, format_time(info->created_s, text));
    table_add(&table, format_time(info->used_s, text));
  }
  table_print(&table, stdout);
}

static qn_status_t run_ls(const cache_t* cache, int* out_code) {
  (void)out_code;
  listing_t listing = {0};
  qn_status_t status = cache->dir ? qn_cache_dir_list(cache->dir, take_entry, &listing) : QN_OK;
  if (qn_ok(status) && listing.is_out_of_memory) {
    status = qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the list of entries");
  }
  if (qn_ok(status)) {
    if (listing.count)
      qsort(listing.entries, listing.count, sizeof *listing.entries, compare_entries);
    print_listing(cache, &listing);
  }
  free(listing.entries);
  return status;
}

// -------------------------------------------------------------------------------------- show

static json_t* section_json(const qn_cache_section_t* section) {
  json_t* entry = json_pack("{s:o, s:I}", "name", json_text(section->name), "size_bytes",
                            (json_int_t)section->size_bytes);
  if (section->text) json_object_set_new(entry, "text", json_text(section->text));
  return entry;
}

static void print_entry(const qn_cache_entry_t* entry) {
  const style_t* style = style_of(stdout);
  char text[32];
  printf("%skey%s        %s\n", style->bold, style->plain, entry->info.key);
  printf("size       %s\n", format_size(entry->info.size_bytes, text));
  printf("created    %s\n", format_time(entry->info.created_s, text));
  printf("used       %s\n", format_time(entry->info.used_s, text));
  printf("compiled   in %s\n", format_ns((int64_t)entry->compile_ns, text));
  for (size_t i = 0; i < entry->section_count; i++) {
    const qn_cache_section_t* section = &entry->sections[i];
    printf("%s%-10s%s ", style->bold, section->name, style->plain);
    if (section->text) {
      printf("%s\n", section->text);
    } else {
      printf("%s\n", format_size(section->size_bytes, text));
    }
  }
}

static qn_status_t run_show(const cache_t* cache, int* out_code) {
  (void)out_code;
  const char* key = cache->args->operands[1];
  if (!cache->dir) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "no entry '%s': there is no cache at '%s' yet", key,
                          cache->path);
  }
  qn_cache_entry_t* entry = NULL;
  qn_status_t status = qn_cache_dir_read(cache->dir, key, &entry);
  if (!qn_ok(status)) return status;
  if (cache->args->is_json) {
    json_t* sections = json_array();
    for (size_t i = 0; i < entry->section_count; i++) {
      json_array_append_new(sections, section_json(&entry->sections[i]));
    }
    json_t* result = info_json(&entry->info);
    json_object_set_new(result, "compile_ns", json_integer((json_int_t)entry->compile_ns));
    json_object_set_new(result, "sections", sections);
    print_json(result, 17);
  } else {
    print_entry(entry);
  }
  qn_cache_entry_free(entry);
  return QN_OK;
}

// -------------------------------------------------------------------------------------- verify

typedef struct bad_list {
  json_t* list;
  bool is_json;
} bad_list_t;

static void take_bad(void* self, const char* key, const char* reason) {
  bad_list_t* bad = self;
  json_array_append_new(
      bad->list, json_pack("{s:o, s:o}", "key", json_text(key), "reason", json_text(reason)));
  if (!bad->is_json) printf("%s: %s\n", key, reason);
}

static qn_status_t run_verify(const cache_t* cache, int* out_code) {
  bool is_healing = args_has(cache->args, "heal");
  bad_list_t bad = {json_array(), cache->args->is_json};
  qn_cache_verify_report_t report = {0};
  qn_status_t status = QN_OK;
  if (cache->dir) {
    qn_cache_usage_t usage = {0};
    char what[128], size[32];
    (void)qn_status_consume(qn_cache_dir_usage(cache->dir, &usage));
    (void)snprintf(what, sizeof what, "checking %" PRIu64 " entries, %s", usage.entry_count,
                   format_size(usage.size_bytes, size));
    progress_t* progress = progress_start(what);
    status = qn_cache_dir_verify(cache->dir, is_healing, take_bad, &bad, &report);
    progress_stop(progress);
  }
  // What is healed or only unreadable for now is no damage that is left.
  uint64_t left_count = report.bad_count - report.removed_count;
  if (qn_ok(status) && cache->args->is_json) {
    print_json(json_pack("{s:o, s:I, s:I, s:I, s:I, s:O}", "directory", json_text(cache->path),
                         "good", (json_int_t)report.good_count, "bad", (json_int_t)report.bad_count,
                         "removed", (json_int_t)report.removed_count, "unreadable",
                         (json_int_t)report.unreadable_count, "bad_entries", bad.list),
               17);
  } else if (qn_ok(status)) {
    printf("%" PRIu64 " good, %" PRIu64 " bad, %" PRIu64 " removed, %" PRIu64 " unreadable\n",
           report.good_count, report.bad_count, report.removed_count, report.unreadable_count);
    if (left_count > 0) printf("'quern cache verify --heal' removes the bad ones\n");
  }
  json_decref(bad.list);
  if (report.unreadable_count > 0) *out_code = EXIT_MACHINE;
  if (left_count > 0) *out_code = EXIT_WRONG;
  return status;
}

// -------------------------------------------------------------------------------------- clear

static qn_status_t run_clear(const cache_t* cache, int* out_code) {
  (void)out_code;
  uint64_t removed_count = 0;
  qn_status_t status = cache->dir ? qn_cache_dir_clear(cache->dir, &removed_count) : QN_OK;
  if (!qn_ok(status)) return status;
  if (cache->args->is_json) {
    print_json(json_pack("{s:o, s:I}", "directory", json_text(cache->path), "removed",
                         (json_int_t)removed_count),
               17);
  } else {
    printf("%" PRIu64 " entries removed from %s\n", removed_count, cache->path);
  }
  return QN_OK;
}

// -------------------------------------------------------------------------------------- verb

static const action_t actions[] = {
    {"stats", NULL, run_stats},   {"ls", NULL, run_ls},       {"show", "KEY", run_show},
    {"verify", NULL, run_verify}, {"clear", NULL, run_clear},
};
enum { ACTION_COUNT = sizeof actions / sizeof actions[0] };

static qn_status_t open_cache(cache_t* cache) {
  const char* named = args_value(cache->args, "dir", NULL);
  if (named) {
    cache->path = strdup(named);
  } else {
    qn_engine_t* engine = NULL;
    qn_status_t status = session_idle_engine(&engine);
    if (!qn_ok(status)) return status;
    cache->path = session_option(engine, "cache_dir");
    qn_engine_destroy(engine);
  }
  if (!cache->path) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for a path");
  if (!cache->path[0]) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "no cache directory: neither QUERN_CACHE_DIR, XDG_CACHE_HOME nor HOME is "
                          "set; name one with --dir");
  }
  qn_status_t status = qn_cache_dir_open(cache->path, &cache->dir);
  if (!named && qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    qn_status_free(status);
    status = QN_OK;
  }
  return status;
}

static const action_t* find_action(const args_t* args, int* out_code) {
  const char* name = args->operands[0];
  for (size_t i = 0; i < ACTION_COUNT; i++) {
    const action_t* action = &actions[i];
    if (strcmp(action->name, name) != 0) continue;
    int expected = action->operand ? 2 : 1;
    if (args->operand_count < expected) {
      *out_code = report_usage(args, "cache %s: expected %s", name, action->operand);
      return NULL;
    }
    if (args->operand_count > expected) {
      *out_code = report_usage(args, "cache %s: unexpected '%s'", name, args->operands[expected]);
      return NULL;
    }
    if (args_has(args, "heal") && strcmp(name, "verify") != 0) {
      *out_code = report_usage(args, "--heal belongs to 'cache verify'");
      return NULL;
    }
    return action;
  }
  const char* near = nearest_name(name, actions, sizeof actions[0], ACTION_COUNT);
  *out_code =
      near ? report_usage(args, "unknown action '%s'; did you mean '%s'?", name, near)
           : report_usage(args, "unknown action '%s'; there are stats, ls, show, verify, clear",
                          name);
  return NULL;
}

static int run_cache(const args_t* args) {
  int code = EXIT_DONE;
  const action_t* action = find_action(args, &code);
  if (!action) return code;
  cache_t cache = {.args = args};
  qn_status_t status = open_cache(&cache);
  if (qn_ok(status)) status = action->run(&cache, &code);
  if (!qn_ok(status)) code = report_status(args, status);
  qn_cache_dir_close(cache.dir);
  free(cache.path);
  return code;
}

static const option_spec_t options[] = {
    {"dir", 0, "DIR", "the cache directory (default: that of 'quern config')", false},
    {"heal", 0, NULL, "verify: remove damaged entries", false},
    OPTION_JSON,
};

const verb_t verb_cache = {
    .name = "cache",
    .summary = "look at and care for the cache: stats, ls, show KEY, verify, clear",
    .operands = "ACTION [KEY]",
    .min_operands = 1,
    .max_operands = 2,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .help =
        "  stats     how many entries there are and how large they are\n"
        "  ls        every entry, the latest first\n"
        "  show KEY  what an entry's key was made of; KEY may be its first four digits or more\n"
        "  verify    read and check every entry; --heal removes the damaged ones\n"
        "  clear     remove every entry; files that quern did not make stay\n"
        "\n"
        "Damage never harms a program: a bad entry is a miss. Verifying finds out beforehand.\n",
    .examples =
        "  quern cache stats\n"
        "  quern cache ls --json\n"
        "  quern cache verify --heal\n",
    .run = run_cache,
};
