// jit/warm/warm_list.c: the list of what is to be warm, and reading it from text.
//
// A text is lines of two kinds, told apart by their first character: "{" begins a recorded line
// (record_line.c), anything else is `FILE.qn [options]` for people. A line is believed no further
// than its module decodes or parses and its target is one. The same key twice is one key: two
// entries are the same when their module, target, tier and checks are.
//
// Thread rule: one thread at a time. Read next: warm.c, docs/warm.md.
#include "jit/warm/warm.h"

#include <limits.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/digest.h"
#include "base/fs.h"
#include "jit/observe/record.h"
#include "target/target.h"

// Of one program in text.
#define MAX_FILE_BYTES ((size_t)64 << 20)
// Words of one line for people: a file and its options.
#define MAX_WORDS 16u

qn_status_t qn_warm_list_create(qn_warm_list_t** out_list) {
  qn_allocator_t allocator = qn_allocator_default();
  qn_warm_list_t* list = qn__alloc_zero(allocator, 1, sizeof *list);
  *out_list = list;
  if (!list) return qn__out_of_memory("a list to warm");
  list->allocator = allocator;
  qn__keyset_init(&list->known, allocator);
  return QN_OK;
}

void qn_warm_list_destroy(qn_warm_list_t* list) {
  if (!list) return;
  for (size_t i = 0; i < list->count; i++) {
    qn_module_release(list->entries[i].module);
    qn_target_release(list->entries[i].target);
  }
  qn__free(list->allocator, list->entries, list->capacity * sizeof *list->entries);
  qn__keyset_deinit(&list->known);
  qn__free(list->allocator, list, sizeof *list);
}

size_t qn_warm_list_count(const qn_warm_list_t* list) {
  return list->count;
}

// ------------------------------------------------------------------------------------ adding

static qn_hash128_t identify(const qn__warm_entry_t* entry) {
  uint8_t parts[16 + 32 + 16 + 2];
  memcpy(parts, entry->module->digest.bytes, 16);
  memcpy(parts + 16, entry->module->second_digest.bytes, 32);
  memcpy(parts + 48, qn_target_digest(entry->target), 16);
  parts[64] = (uint8_t)entry->tier;
  parts[65] = entry->is_checked;
  return qn__xxh128((qn_span_t){parts, sizeof parts}, 0);
}

static qn_status_t put_one(qn_warm_list_t* list, qn__warm_entry_t entry) {
  void* entries = list->entries;
  size_t capacity = list->capacity;
  if (!qn__grow(list->allocator, &entries, &capacity, list->count + 1, sizeof entry)) {
    return qn__out_of_memory("a list to warm");
  }
  list->entries = entries;
  list->capacity = capacity;
  qn__keyset_answer_t answer = qn__keyset_add(&list->known, identify(&entry));
  if (answer == QN__KEYSET_NO_MEMORY) return qn__out_of_memory("a list to warm");
  if (answer == QN__KEYSET_KNOWN) return QN_OK;
  qn_module_retain(entry.module);
  qn_target_retain(entry.target);
  list->entries[list->count++] = entry;
  return QN_OK;
}

qn_status_t qn__warm_list_put(qn_warm_list_t* list, qn_module_t* module, qn_target_t* target,
                              qn_tier_t tier, bool is_checked,
                              const qn_warm_read_options_t* options) {
  qn__warm_entry_t entry = {module, target, tier, is_checked};
  if (options && options->tier != 0) entry.tier = options->tier;
  if (!options || options->target_count == 0) return put_one(list, entry);
  for (size_t i = 0; i < options->target_count; i++) {
    entry.target = options->targets[i];
    QN_TRY(put_one(list, entry));
  }
  return QN_OK;
}

qn_status_t qn_warm_list_add(qn_warm_list_t* list, qn_module_t* module, qn_target_t* target,
                             const qn_lookup_options_t* options) {
  if (!list || !module || !target) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a key to warm needs %s, got null",
                          !list     ? "a list"
                          : !module ? "a module"
                                    : "a target");
  }
  if (options && options->struct_size != sizeof *options) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "qn_lookup_options_t: struct_size is %zu, expected %zu",
                          options->struct_size, sizeof *options);
  }
  qn_tier_t tier = options && options->tier != 0 ? options->tier : QN_TIER_FULL;
  if (tier != QN_TIER_FULL && tier != QN_TIER_FAST) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "tier %d is not a qn_tier_t", (int)tier);
  }
  return qn__warm_list_put(list, module, target, tier, options && options->is_checked, NULL);
}

// ------------------------------------------------------------------------------------ lines

typedef struct list_reader {
  qn_warm_list_t* list;
  const qn_warm_read_options_t* options;
  qn__arena_t arena;  // of one line
} list_reader_t;

static qn_status_t read_recorded(list_reader_t* reader, qn_str_t line) {
  qn__recorded_t recorded;
  QN_TRY(qn__record_parse(line, reader->list->allocator, &recorded));
  qn_module_t* module = NULL;
  qn_target_t* target = NULL;
  qn_status_t status = qn_module_decode(recorded.module, recorded.module_size, NULL, &module);
  status = qn_status_annotate(status, "the recorded module of '%s'", recorded.name);
  if (qn_ok(status)) status = qn_target_parse(recorded.target_json, &target);
  if (qn_ok(status)) {
    status = qn__warm_list_put(reader->list, module, target, recorded.tier, recorded.is_checked,
                               reader->options);
  }
  qn_target_release(target);
  qn_module_release(module);
  qn__recorded_deinit(&recorded);
  return status;
}

// The next word of a line: runs of anything but spaces, parts of which may be in quotes of either
// kind. There are no other escapes, so that JSON in single quotes stays what it is. False at the
// end; *out_word is NULL without memory.
static bool next_word(list_reader_t* reader, qn_str_t* inout_rest, const char** out_word,
                      bool* out_is_open) {
  qn_str_t rest = *inout_rest;
  while (rest.size && (*rest.data == ' ' || *rest.data == '\t')) rest.data++, rest.size--;
  *inout_rest = rest;
  *out_is_open = false;
  if (rest.size == 0 || *rest.data == '#') return false;
  char* word = qn__arena_alloc(&reader->arena, rest.size + 1);
  size_t size = 0, at = 0;
  char quote = '\0';
  for (; at < rest.size; at++) {
    char c = rest.data[at];
    if (quote ? c == quote : c == '\'' || c == '"') {
      quote = quote ? '\0' : c;
      continue;
    }
    if (!quote && (c == ' ' || c == '\t')) break;
    if (word) word[size++] = c;
  }
  if (word) word[size] = '\0';
  *out_is_open = quote != '\0';
  *out_word = word;
  *inout_rest = (qn_str_t){rest.data + at, rest.size - at};
  return true;
}

static qn_status_t line_error(const char* what, const char* got) {
  return qn_status_make(QN_STATUS_SYNTAX, "expected %s, got '%s'", what, got);
}

typedef struct text_line {
  const char* file;
  const char* target;
  const char* tier;
  bool is_checked;
} text_line_t;

// "--target=T" or "--target T".
static bool take_value(const char* const* words, size_t count, size_t* inout_at, const char* name,
                       const char** out_value) {
  size_t size = strlen(name);
  const char* word = words[*inout_at];
  if (strncmp(word, name, size) != 0) return false;
  if (word[size] == '=') {
    *out_value = word + size + 1;
    return true;
  }
  if (word[size] != '\0') return false;
  *out_value = *inout_at + 1 < count ? words[++*inout_at] : NULL;
  return true;
}

static qn_status_t parse_words(const char* const* words, size_t count, text_line_t* line) {
  *line = (text_line_t){.target = "cpu", .tier = "full"};
  for (size_t i = 0; i < count; i++) {
    const char* word = words[i];
    if (word[0] != '-') {
      if (line->file) return line_error("one file on a line (quote names with spaces)", word);
      line->file = word;
    } else if (strcmp(word, "--checked") == 0) {
      line->is_checked = true;
    } else if (take_value(words, count, &i, "--target", &line->target)) {
      if (!line->target) return line_error("a target behind --target", "the end of the line");
    } else if (take_value(words, count, &i, "--tier", &line->tier)) {
      if (!line->tier) return line_error("fast or full behind --tier", "the end of the line");
    } else {
      return line_error("--target T, --tier fast|full or --checked", word);
    }
  }
  if (!line->file) return line_error("a file FILE.qn", count ? words[0] : "");
  if (strcmp(line->tier, "fast") != 0 && strcmp(line->tier, "full") != 0) {
    return line_error("fast or full behind --tier", line->tier);
  }
  return QN_OK;
}

static qn_status_t split_line(list_reader_t* reader, qn_str_t text, text_line_t* line,
                              bool* out_is_empty) {
  const char* words[MAX_WORDS];
  size_t count = 0;
  const char* word;
  bool is_open;
  while (next_word(reader, &text, &word, &is_open)) {
    if (!word) return qn__out_of_memory("a line of a list");
    if (is_open) return line_error("a closing quote", word);
    if (count == MAX_WORDS) return line_error("a file and a few options", word);
    words[count++] = word;
  }
  *out_is_empty = count == 0;
  return count ? parse_words(words, count, line) : QN_OK;
}

static qn_status_t read_module(list_reader_t* reader, const char* file, qn_module_t** out_module) {
  char path[PATH_MAX];
  const char* directory = reader->options->directory;
  bool is_joined = file[0] != '/' && directory && directory[0];
  int size =
      snprintf(path, sizeof path, "%s%s%s", is_joined ? directory : "", is_joined ? "/" : "", file);
  if (size < 0 || (size_t)size >= sizeof path) {
    return line_error("a path that is shorter", file);
  }
  uint8_t* data;
  size_t data_size;
  QN_TRY(qn__fs_read_file(reader->list->allocator, path, MAX_FILE_BYTES, &data, &data_size));
  qn_parse_options_t options = {.struct_size = sizeof options, .source_name = path};
  qn_status_t status = qn_module_parse((const char*)data, data_size, &options, out_module);
  qn__free(reader->list->allocator, data, data_size + 1);
  return status;
}

static qn_status_t read_text(list_reader_t* reader, qn_str_t text) {
  text_line_t line = {0};
  bool is_empty = false;
  QN_TRY(split_line(reader, text, &line, &is_empty));
  if (is_empty) return QN_OK;
  qn_module_t* module = NULL;
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(line.target, &target);
  if (qn_ok(status)) status = read_module(reader, line.file, &module);
  if (qn_ok(status)) {
    qn_tier_t tier = strcmp(line.tier, "fast") == 0 ? QN_TIER_FAST : QN_TIER_FULL;
    status =
        qn__warm_list_put(reader->list, module, target, tier, line.is_checked, reader->options);
  }
  qn_target_release(target);
  qn_module_release(module);
  return status;
}

static qn_status_t read_line(list_reader_t* reader, qn_str_t line) {
  if (line.size && line.data[line.size - 1] == '\r') line.size--;
  qn_str_t rest = line;
  while (rest.size && (*rest.data == ' ' || *rest.data == '\t')) rest.data++, rest.size--;
  if (rest.size == 0) return QN_OK;
  if (*rest.data == '{') return read_recorded(reader, rest);
  if (memchr(rest.data, '\0', rest.size)) {
    return qn_status_make(QN_STATUS_SYNTAX, "expected text, got a byte of value 0");
  }
  qn__arena_init(&reader->arena, reader->list->allocator);
  qn_status_t status = read_text(reader, rest);
  qn__arena_deinit(&reader->arena);
  return status;
}

static void tell_problem(const qn_warm_read_options_t* options, uint32_t number,
                         const char* message) {
  if (!options->on_problem) return;
  qn_warm_problem_t problem = {
      .source_name = options->source_name ? options->source_name : "<list>",
      .line = number,
      .message = message,
  };
  options->on_problem(options->on_problem_self, &problem);
}

static qn_status_t check_options(const qn_warm_read_options_t* options) {
  if (options->struct_size != sizeof *options) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "qn_warm_read_options_t: struct_size is %zu, expected %zu",
                          options->struct_size, sizeof *options);
  }
  if (options->tier != 0 && options->tier != QN_TIER_FULL && options->tier != QN_TIER_FAST) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "tier %d is not a qn_tier_t",
                          (int)options->tier);
  }
  for (size_t i = 0; i < options->target_count; i++) {
    if (options->targets && options->targets[i]) continue;
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "target %zu of a list is null", i);
  }
  return QN_OK;
}

qn_status_t qn_warm_list_read(qn_warm_list_t* list, const char* text, size_t size,
                              const qn_warm_read_options_t* options, size_t* out_problem_count) {
  static const qn_warm_read_options_t defaults = {.struct_size = sizeof defaults};
  if (out_problem_count) *out_problem_count = 0;
  if (!list || (!text && size > 0)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a list's text is null");
  }
  list_reader_t reader = {.list = list, .options = options ? options : &defaults};
  QN_TRY(check_options(reader.options));
  uint32_t number = 0;
  for (size_t at = 0; at < size;) {
    const char* end = memchr(text + at, '\n', size - at);
    size_t line_size = end ? (size_t)(end - text) - at : size - at;
    if (number < UINT32_MAX) number++;
    qn_status_t status = read_line(&reader, (qn_str_t){text + at, line_size});
    at += line_size + 1;
    if (qn_ok(status)) continue;
    if (qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) return status;
    if (out_problem_count) ++*out_problem_count;
    tell_problem(reader.options, number, qn_status_message(status));
    qn_status_free(status);
  }
  return QN_OK;
}

// ------------------------------------------------------------------------------------ a directory

typedef struct cache_reader {
  qn_warm_list_t* list;
  qn_engine_t* engine;
  const qn_warm_read_options_t* options;
  qn_warm_cache_report_t* report;
  qn_status_t status;
} cache_reader_t;

// Errors: what makes the entry useless for a list; OUT_OF_MEMORY.
static qn_status_t take_entry(cache_reader_t* reader, const qn__entry_t* entry) {
  qn__warm_origin_t origin;
  if (qn__preimage_has(entry->preimage, QN__SECTION_DRIVER)) return QN_OK;
  if (entry->module.size == 0) {
    reader->report->without_module_count++;
    return QN_OK;
  }
  if (!qn__entry_module_matches(entry) || !qn__warm_origin_read(entry->preimage, &origin)) {
    reader->report->bad_count++;
    return QN_OK;
  }
  const char* name_space = qn__config_get(&reader->engine->config, QN__SETTING_cache_namespace);
  if (!qn__str_equal(origin.name_space, qn__str(name_space))) {
    reader->report->other_namespace_count++;
    return QN_OK;
  }
  char* json = qn__copy_cstr(reader->list->allocator, origin.target_json);
  if (!json) return qn__out_of_memory("a target");
  qn_module_t* module = NULL;
  qn_target_t* target = NULL;
  qn_status_t status = qn_target_parse(json, &target);
  if (qn_ok(status)) {
    status = qn_module_decode(entry->module.data, entry->module.size, NULL, &module);
  }
  if (qn_ok(status)) {
    status = qn__warm_list_put(reader->list, module, target, origin.tier, origin.is_checked,
                               reader->options);
  }
  qn_module_release(module);
  qn_target_release(target);
  qn__free_cstr(reader->list->allocator, json);
  if (qn_ok(status)) reader->report->taken_count++;
  return status;
}

static bool take_file(void* self, const qn__disk_file_t* file) {
  cache_reader_t* reader = self;
  reader->report->entry_count++;
  qn__hit_t hit;
  if (qn__disk_inspect(qn__engine_disk(reader->engine), file->key, false, &hit, NULL) !=
      QN__GET_HIT) {
    reader->report->bad_count++;
    return true;
  }
  qn_status_t status = take_entry(reader, &hit.entry);
  qn__disk_hit_release(qn__engine_disk(reader->engine), &hit);
  if (qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) {
    reader->status = status;
    return false;
  }
  if (!qn_ok(status)) reader->report->bad_count++;
  qn_status_free(status);
  return true;
}

qn_status_t qn_warm_list_add_cache(qn_warm_list_t* list, qn_engine_t* engine,
                                   const qn_warm_read_options_t* options,
                                   qn_warm_cache_report_t* out_report) {
  static const qn_warm_read_options_t defaults = {.struct_size = sizeof defaults};
  qn_warm_cache_report_t report = {0};
  if (out_report) *out_report = report;
  if (!list || !engine) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s is null", list ? "engine" : "list");
  }
  cache_reader_t reader = {list, engine, options ? options : &defaults, &report, QN_OK};
  QN_TRY(check_options(reader.options));
  if (!qn__engine_disk(engine)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "the engine has no cache directory to take a list from");
  }
  int error = qn__disk_scan(qn__engine_disk(engine), take_file, &reader, NULL);
  if (out_report) *out_report = report;
  if (qn_ok(reader.status) && error) {
    return qn__fs_status(error, "list", qn__disk_root(qn__engine_disk(engine)));
  }
  return reader.status;
}
