// SPDX-License-Identifier: Apache-2.0
// warm/list.c: the list of a warm-up: each key once, added by a program, from text or from a cache
// directory.
#include "warm/list.h"
#include "base/struct_size.h"

qn_status_t qn_warm_list_create(qn_warm_list_t** out_list) {
  if (!out_list) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "qn_warm_list_create: out_list is null");
  }
  qn_allocator_t allocator = qn_allocator_default();
  qn_warm_list_t* list = allocator.reallocate(allocator.self, NULL, 0, sizeof *list);
  *out_list = list;
  if (!list) return qn__warm_no_memory("a list to warm");
  *list = (qn_warm_list_t){.allocator = allocator};
  return QN_OK;
}

void qn_warm_list_destroy(qn_warm_list_t* list) {
  if (!list) return;
  for (size_t i = 0; i < list->count; i++) {
    qn_module_release(list->entries[i].module);
    qn_target_release(list->entries[i].target);
  }
  qn_allocator_t allocator = list->allocator;
  (void)allocator.reallocate(allocator.self, list->entries, list->capacity * sizeof *list->entries,
                             0);
  (void)allocator.reallocate(allocator.self, list->slots, list->slot_count * sizeof *list->slots,
                             0);
  (void)allocator.reallocate(allocator.self, list, sizeof *list, 0);
}

size_t qn_warm_list_count(const qn_warm_list_t* list) {
  return list ? list->count : 0;
}

// ------------------------------------------------------------------------------------ adding

static bool is_same(const qn__warm_entry_t* a, const qn__warm_entry_t* b) {
  size_t a_size, b_size;
  const void* a_bytes = qn_module_bytes(a->module, &a_size);
  const void* b_bytes = qn_module_bytes(b->module, &b_size);
  return a->tier == b->tier && a->is_checked == b->is_checked &&
         strcmp(qn_target_json(a->target), qn_target_json(b->target)) == 0 && a_size == b_size &&
         memcmp(a_bytes, b_bytes, a_size) == 0;
}

// Finds the slot of the key, or the empty one where it belongs. There is always an empty one.
static size_t* find_slot(const qn_warm_list_t* list, const qn__warm_entry_t* entry) {
  size_t module_hash, target_hash;
  memcpy(&module_hash, qn_module_digest(entry->module), sizeof module_hash);
  memcpy(&target_hash, qn_target_digest(entry->target), sizeof target_hash);
  assert(list->count < list->slot_count && (list->slot_count & (list->slot_count - 1)) == 0);
  size_t mask = list->slot_count - 1;
  size_t at = (module_hash ^ target_hash) + (size_t)entry->tier * 2 + entry->is_checked;
  for (at &= mask; list->slots[at]; at = (at + 1) & mask) {
    if (is_same(&list->entries[list->slots[at] - 1], entry)) break;
  }
  return &list->slots[at];
}

static bool grow_slots(qn_warm_list_t* list) {
  if (2 * (list->count + 1) <= list->slot_count) return true;
  qn_allocator_t allocator = list->allocator;
  size_t count = list->slot_count ? 2 * list->slot_count : 64;
  size_t* slots = allocator.reallocate(allocator.self, NULL, 0, count * sizeof *slots);
  if (!slots) return false;
  memset(slots, 0, count * sizeof *slots);
  (void)allocator.reallocate(allocator.self, list->slots, list->slot_count * sizeof *slots, 0);
  list->slots = slots;
  list->slot_count = count;
  for (size_t i = 0; i < list->count; i++) *find_slot(list, &list->entries[i]) = i + 1;
  return true;
}

static qn_status_t put_one(qn_warm_list_t* list, qn__warm_entry_t entry) {
  if (!grow_slots(list)) return qn__warm_no_memory("a list to warm");
  size_t* slot = find_slot(list, &entry);
  if (*slot) return QN_OK;
  qn__warm_entry_t* entries =
      qn__warm_grow(list->allocator, list->entries, &list->capacity, list->count + 1, sizeof entry);
  if (!entries) return qn__warm_no_memory("a list to warm");
  list->entries = entries;
  qn_module_retain(entry.module);
  qn_target_retain(entry.target);
  entries[list->count++] = entry;
  *slot = list->count;
  return QN_OK;
}

qn_status_t qn__warm_list_put(qn_warm_list_t* list, const qn__warm_entry_t* entry,
                              const qn_warm_read_options_t* options) {
  qn__warm_entry_t wanted = *entry;
  if (options && options->tier != 0) wanted.tier = options->tier;
  if (!options || options->target_count == 0) return put_one(list, wanted);
  for (size_t i = 0; i < options->target_count; i++) {
    wanted.target = options->targets[i];
    qn_status_t status = put_one(list, wanted);
    if (!qn_ok(status)) return status;
  }
  return QN_OK;
}

static qn_status_t check_tier(qn_tier_t tier) {
  if (tier == QN_TIER_FULL || tier == QN_TIER_FAST) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "tier %d is not a qn_tier_t", (int)tier);
}

qn_status_t qn_warm_list_add(qn_warm_list_t* list, qn_module_t* module, qn_target_t* target,
                             const qn_lookup_options_t* options) {
  if (!list || !module || !target) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a key to warm needs %s, got null",
                          !list     ? "a list"
                          : !module ? "a module"
                                    : "a target");
  }
  qn_lookup_options_t given;
  qn_status_t status = qn__struct_read("qn_lookup_options_t", 0, options, &given, sizeof given);
  if (!qn_ok(status)) return status;
  qn__warm_entry_t entry = {module, target, given.tier ? given.tier : QN_TIER_FULL,
                            given.is_checked};
  status = check_tier(entry.tier);
  return qn_ok(status) ? qn__warm_list_put(list, &entry, NULL) : status;
}

// ------------------------------------------------------------------------------------ text

// Copies and checks the options of a program.
static qn_status_t read_options(const qn_warm_read_options_t* options,
                                qn_warm_read_options_t* out) {
  qn_status_t status = qn__struct_read("qn_warm_read_options_t", 0, options, out, sizeof *out);
  if (!qn_ok(status)) return status;
  if (out->tier != 0) status = check_tier(out->tier);
  for (size_t i = 0; i < out->target_count && qn_ok(status); i++) {
    if (out->targets && out->targets[i]) continue;
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "target %zu of a list is null", i);
  }
  return status;
}

static qn_status_t read_line(qn_warm_list_t* list, const qn_warm_read_options_t* options,
                             qn__warm_span_t line) {
  if (line.size && line.data[line.size - 1] == '\r') line.size--;
  while (line.size && (*line.data == ' ' || *line.data == '\t')) line.data++, line.size--;
  if (line.size == 0) return QN_OK;
  qn__warm_entry_t entry;
  qn_status_t status = *line.data == '{' ? qn__warm_recorded_read(line, &entry)
                                         : qn__warm_line_read(line, options->directory, &entry);
  if (qn_ok(status) && entry.module) status = qn__warm_list_put(list, &entry, options);
  qn_module_release(entry.module);
  qn_target_release(entry.target);
  return status;
}

static void report_problem(const qn_warm_read_options_t* options, uint32_t number,
                           const char* message) {
  if (!options->on_problem) return;
  qn_warm_problem_t problem = {
      .struct_size = sizeof problem,
      .source_name = options->source_name ? options->source_name : "<list>",
      .line = number,
      .message = message,
  };
  options->on_problem(options->on_problem_self, &problem);
}

qn_status_t qn_warm_list_read(qn_warm_list_t* list, const char* text, size_t size,
                              const qn_warm_read_options_t* options, size_t* out_problem_count) {
  if (out_problem_count) *out_problem_count = 0;
  if (!list || (!text && size > 0)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s is null", list ? "the text" : "the list");
  }
  qn_warm_read_options_t given;
  qn_status_t status = read_options(options, &given);
  if (!qn_ok(status)) return status;
  uint32_t number = 0;
  for (size_t at = 0; at < size;) {
    const char* end = memchr(text + at, '\n', size - at);
    size_t line_size = end ? (size_t)(end - text) - at : size - at;
    if (number < UINT32_MAX) number++;
    status = read_line(list, &given, (qn__warm_span_t){text + at, line_size});
    at += line_size + 1;
    if (qn_ok(status)) continue;
    if (qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY) return status;
    if (out_problem_count) ++*out_problem_count;
    report_problem(&given, number, qn_status_message(status));
    qn_status_free(status);
  }
  return QN_OK;
}

// ------------------------------------------------------------------------------------ a directory

typedef struct cache_reader {
  qn_warm_list_t* list;
  const qn_warm_read_options_t* options;
  qn_status_t status;
} cache_reader_t;

static bool take_lookup(void* self, const qn_cached_lookup_t* lookup) {
  cache_reader_t* reader = self;
  qn__warm_entry_t entry = {lookup->module, lookup->target, lookup->tier, lookup->is_checked};
  reader->status = qn__warm_list_put(reader->list, &entry, reader->options);
  return qn_ok(reader->status);
}

qn_status_t qn_warm_list_add_cache(qn_warm_list_t* list, qn_engine_t* engine,
                                   const qn_warm_read_options_t* options,
                                   qn_cached_report_t* out_report) {
  qn_status_t status = qn__struct_clear("qn_cached_report_t", out_report, sizeof *out_report);
  if (!qn_ok(status)) return status;
  if (!list || !engine) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s is null",
                          list ? "the engine" : "the list");
  }
  qn_warm_read_options_t given;
  status = read_options(options, &given);
  cache_reader_t reader = {list, &given, QN_OK};
  if (qn_ok(status)) status = qn_engine_cached(engine, take_lookup, &reader, out_report);
  if (qn_ok(status)) return reader.status;
  qn_status_free(reader.status);
  return status;
}
