// SPDX-License-Identifier: Apache-2.0
// cache/bundle_export.c: collects entries from directories and bundles into one bundle.
//
// First it sorts the keys of all sources. Then it reads, verifies, chooses and writes one entry
// after the other. So the same entries give the same bytes, in whatever order a directory lists
// them, and memory holds the keys and one entry.
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "cache/bundle_write.h"
#include "cache/entry_copy.h"

typedef struct item {
  qn__source_item_t entry;
  uint32_t source;
} item_t;

typedef struct export_plan {
  qn_allocator_t allocator;
  item_t* items;
  size_t count, capacity;
  uint32_t source;
  bool has_failed;  // no memory
} export_plan_t;

static bool add_item(void* self, const qn__source_item_t* entry) {
  export_plan_t* plan = self;
  void* items = plan->items;
  if (!qn__grow(plan->allocator, &items, &plan->capacity, plan->count + 1, sizeof(item_t))) {
    plan->has_failed = true;
    return false;
  }
  plan->items = items;
  plan->items[plan->count++] = (item_t){*entry, plan->source};
  return true;
}

// By key; of equal keys the last source comes first.
static int compare_items(const void* a, const void* b) {
  const item_t *x = a, *y = b;
  int order = memcmp(x->entry.key.bytes, y->entry.key.bytes, sizeof x->entry.key.bytes);
  return order ? order : (x->source < y->source) - (x->source > y->source);
}

static qn_status_t collect(export_plan_t* plan, const qn__source_t* sources, size_t count) {
  for (size_t i = 0; i < count; i++) {
    plan->source = (uint32_t)i;
    QN_TRY(qn__source_each(sources[i], add_item, plan));
    if (plan->has_failed) return qn__out_of_memory("the list of entries");
  }
  if (plan->count > 1) qsort(plan->items, plan->count, sizeof *plan->items, compare_items);
  return QN_OK;
}

static qn_status_t write_timeless(qn__bundle_writer_t* writer, const qn__entry_t* entry,
                                  qn_allocator_t allocator) {
  qn__entry_t timeless = *entry;
  timeless.created_ns = timeless.compile_ns = 0;
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, allocator);
  qn_status_t status = QN_OK;
  if (QN_NEVER(!qn__entry_encode(&timeless, &bytes))) {
    status = qn_status_make(QN_STATUS_INTERNAL, "an entry that was read cannot be written");
  } else {
    status = qn__buffer_status(&bytes, "an entry of a bundle");
  }
  if (qn_ok(status)) status = qn__bundle_writer_add(writer, qn__buffer_as_span(&bytes));
  qn__buffer_deinit(&bytes);
  return status;
}

static qn_status_t write_entry(qn__bundle_writer_t* writer, const qn__hit_t* hit,
                               const qn__bundle_export_options_t* options,
                               qn__bundle_export_report_t* report) {
  // The data of a driver is of use on this machine alone.
  if (qn__preimage_has(hit->entry.preimage, QN__SECTION_DRIVER)) return QN_OK;
  if (options->wants && !options->wants(options->self, &hit->entry)) {
    report->unwanted_count++;
    bool has_failed = options->has_failed && *options->has_failed;
    return has_failed ? qn__out_of_memory("an entry to choose") : QN_OK;
  }
  qn_allocator_t allocator =
      options->write.allocator.reallocate ? options->write.allocator : qn_allocator_default();
  size_t size = qn__entry_size(&hit->entry);
  qn_status_t status = options->is_timeless
                           ? write_timeless(writer, &hit->entry, allocator)
                           : qn__bundle_writer_add(writer, (qn_span_t){hit->bytes, size});
  if (!qn_ok(status)) return status;
  report->written_count++;
  report->written_bytes += size;
  return QN_OK;
}

// Writes one item. *out_is_done: no other source of its key is needed.
static qn_status_t write_item(qn__bundle_writer_t* writer, const qn__source_t* sources,
                              const item_t* item, const qn__bundle_export_options_t* options,
                              qn__bundle_export_report_t* report, bool* out_is_done) {
  const qn__source_t source = sources[item->source];
  qn__hit_t hit;
  qn__get_result_t result = qn__source_read(source, &item->entry, &hit);
  *out_is_done = result == QN__GET_HIT;
  if (result == QN__GET_HIT) {
    qn_status_t status = write_entry(writer, &hit, options, report);
    qn__source_release(source, &hit);
    return status;
  }
  if (result == QN__GET_ABSENT) return QN_OK;
  const char* reason = NULL;
  if (result == QN__GET_BAD) reason = qn__reason_text(hit.reason);
  if (result == QN__GET_UNTRUSTED) {
    reason = "the entry is of another user, no file, or not what was signed";
  }
  if (!reason) return qn__get_status(item->entry.key, result, &hit);
  report->bad_count++;
  if (options->on_bad) options->on_bad(options->self, item->entry.key, reason);
  return QN_OK;
}

static qn_status_t write_all(const export_plan_t* plan, const qn__source_t* sources,
                             const qn__bundle_export_options_t* options,
                             qn__bundle_export_report_t* report) {
  qn__bundle_writer_t* writer;
  QN_TRY(qn__bundle_writer_create(&options->write, &writer));
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < plan->count && qn_ok(status);) {
    size_t end = i + 1;
    while (end < plan->count &&
           qn__hash128_equal(plan->items[i].entry.key, plan->items[end].entry.key)) {
      end++;
    }
    bool is_done = false;
    for (; i < end && !is_done && qn_ok(status); i++) {
      status = write_item(writer, sources, &plan->items[i], options, report, &is_done);
    }
    i = end;
  }
  if (qn_ok(status) && report->written_count == 0) {
    status =
        qn_status_make(QN_STATUS_NOT_FOUND,
                       "nothing to write to '%s': of %zu entries %" PRIu64
                       " were not chosen and %" PRIu64 " are damaged",
                       options->write.path, plan->count, report->unwanted_count, report->bad_count);
  }
  if (qn_ok(status)) status = qn__bundle_writer_finish(writer);
  qn__bundle_writer_destroy(writer);
  return status;
}

qn_status_t qn__bundle_export(const qn__source_t* sources, size_t source_count,
                              const qn__bundle_export_options_t* options,
                              qn__bundle_export_report_t* out_report) {
  memset(out_report, 0, sizeof *out_report);
  export_plan_t plan = {.allocator = options->write.allocator.reallocate ? options->write.allocator
                                                                         : qn_allocator_default()};
  qn_status_t status = collect(&plan, sources, source_count);
  if (qn_ok(status)) status = write_all(&plan, sources, options, out_report);
  qn__free(plan.allocator, plan.items, plan.capacity * sizeof *plan.items);
  return status;
}
