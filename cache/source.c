// SPDX-License-Identifier: Apache-2.0
// cache/source.c: lists, finds, reads and verifies the entries of a directory or a bundle.
#include "cache/source.h"

#include "base/fs.h"
#include "base/struct_size.h"
#include "cache/entry_copy.h"
#include "cache/entry_head.h"

typedef struct entry_visitor {
  bool (*on_item)(void* self, const qn__source_item_t* item);
  void* self;
} entry_visitor_t;

static bool visit_file(void* self, const qn__disk_file_t* file) {
  const entry_visitor_t* visitor = self;
  const qn__source_item_t item = {
      .key = file->key, .size_bytes = file->size_bytes, .used_ns = file->modified_ns};
  return visitor->on_item(visitor->self, &item);
}

qn_status_t qn__source_each(qn__source_t source,
                            bool (*on_item)(void* self, const qn__source_item_t* item),
                            void* self) {
  assert(!source.disk != !source.bundle);
  if (source.disk) {
    entry_visitor_t visitor = {on_item, self};
    int error = qn__disk_scan(source.disk, visit_file, &visitor, NULL);
    return error ? qn__fs_status(error, "list", qn__disk_root(source.disk)) : QN_OK;
  }
  for (uint64_t i = 0; i < qn__bundle_count(source.bundle); i++) {
    const qn__source_item_t item = {.key = qn__bundle_key(source.bundle, i),
                                    .size_bytes = qn__bundle_entry_size(source.bundle, i),
                                    .index = i};
    if (!on_item(self, &item)) break;
  }
  return QN_OK;
}

qn__get_result_t qn__source_read(qn__source_t source, const qn__source_item_t* item,
                                 qn__hit_t* out_hit) {
  return source.disk ? qn__disk_inspect(source.disk, item->key, false, out_hit, NULL)
                     : qn__bundle_read(source.bundle, item->index, out_hit);
}

void qn__source_release(qn__source_t source, qn__hit_t* hit) {
  if (source.disk) {
    qn__disk_hit_release(source.disk, hit);
  } else {
    qn__bundle_hit_release(source.bundle, hit);
  }
}

void qn__source_report(qn__source_t source, qn_hash128_t key, qn__get_result_t result,
                       const qn__hit_t* hit,
                       void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
                       void* self) {
  if (!on_bad) return;
  qn_status_t status = qn__get_status(key, result, hit);
  const char* reason = qn_status_message(status);
  if (result == QN__GET_BAD) reason = qn__reason_text(hit->reason);
  if (result == QN__GET_UNTRUSTED && source.bundle) {
    reason = "the entry is not the one that was signed";
  }
  on_bad(self, qn__hash128_key(key), reason);
  qn_status_free(status);
}

// ---------------------------------------------------------------------------------------- list

static qn_cache_entry_info_t info_of(const qn__source_item_t* item, int64_t created_ns) {
  return (qn_cache_entry_info_t){.struct_size = sizeof(qn_cache_entry_info_t),
                                 .key = qn__hash128_key(item->key),
                                 .size_bytes = item->size_bytes,
                                 .created_s = qn__to_seconds(created_ns),
                                 .used_s = qn__to_seconds(item->used_ns)};
}

typedef struct lister {
  qn__source_t source;
  bool (*on_entry)(void* self, const qn_cache_entry_info_t* info);
  void* self;
} lister_t;

static bool list_one(void* self, const qn__source_item_t* item) {
  const lister_t* lister = self;
  const qn__source_t source = lister->source;
  int64_t created_ns = source.disk ? qn__disk_created_ns(source.disk, item->key)
                                   : qn__bundle_created_ns(source.bundle, item->index);
  qn_cache_entry_info_t info = info_of(item, created_ns);
  return lister->on_entry(lister->self, &info);
}

qn_status_t qn__source_list(qn__source_t source,
                            bool (*on_entry)(void* self, const qn_cache_entry_info_t* info),
                            void* self) {
  lister_t lister = {source, on_entry, self};
  return qn__source_each(source, list_one, &lister);
}

// --------------------------------------------------------------------------------------- one entry

typedef struct finder {
  const char* prefix;
  size_t size;
  unsigned count;
  qn__source_item_t item;
} finder_t;

static bool match_prefix(void* self, const qn__source_item_t* item) {
  finder_t* finder = self;
  char hex[33];
  qn__hash128_hex(item->key, hex);
  if (memcmp(hex, finder->prefix, finder->size) != 0) return true;
  finder->item = *item;
  return ++finder->count < 2;
}

static qn_status_t find(qn__source_t source, const char* prefix, qn__source_item_t* out_item) {
  finder_t finder = {.prefix = prefix, .size = strlen(prefix)};
  if (finder.size < 4 || finder.size > 32 || strspn(prefix, "0123456789abcdef") != finder.size) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "key '%s' is not 4 to 32 lower-case hexadecimal digits", prefix);
  }
  QN_TRY(qn__source_each(source, match_prefix, &finder));
  if (finder.count == 0) {
    return qn_status_make(
        QN_STATUS_NOT_FOUND, "no entry '%s' in %s'%s'", prefix, source.disk ? "" : "bundle ",
        source.disk ? qn__disk_root(source.disk) : qn__bundle_path(source.bundle));
  }
  if (finder.count > 1) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "key '%s' fits more than one entry; give more digits", prefix);
  }
  *out_item = finder.item;
  return QN_OK;
}

qn_status_t qn__source_copy(qn__source_t source, const char* key_prefix,
                            qn_cache_entry_t** out_entry) {
  qn__source_item_t item = {.index = 0};
  QN_TRY(find(source, key_prefix, &item));
  qn__hit_t hit;
  qn__get_result_t result = qn__source_read(source, &item, &hit);
  if (result != QN__GET_HIT) return qn__get_status(item.key, result, &hit);
  qn_cache_entry_info_t info = info_of(&item, hit.entry.created_ns);
  qn_status_t status = qn__entry_copy(&hit.entry, &info, out_entry);
  qn__source_release(source, &hit);
  return status;
}

// ---------------------------------------------------------------------------------------- verify

typedef struct verifier {
  qn__source_t source;
  bool is_healing;
  void (*on_bad)(void* self, qn_cache_key_t key, const char* reason);
  void* self;
  qn_cache_verify_report_t report;
} verifier_t;

static bool verify_one(void* self, const qn__source_item_t* item) {
  verifier_t* verifier = self;
  const qn__source_t source = verifier->source;
  qn_cache_verify_report_t* report = &verifier->report;
  qn__hit_t hit;
  bool is_removed = false;
  qn__get_result_t result = source.disk ? qn__disk_inspect(source.disk, item->key,
                                                           verifier->is_healing, &hit, &is_removed)
                                        : qn__bundle_read(source.bundle, item->index, &hit);
  if (result == QN__GET_HIT) {
    qn__source_release(source, &hit);
    report->good_count++;
    return true;
  }
  if (result == QN__GET_ABSENT) return true;
  // In a signed bundle another entry than the signed one is damage.
  if (result == QN__GET_BAD || (result == QN__GET_UNTRUSTED && source.bundle)) {
    report->bad_count++;
    report->removed_count += is_removed;
  } else {
    report->unreadable_count++;
  }
  qn__source_report(source, item->key, result, &hit, verifier->on_bad, verifier->self);
  return true;
}

qn_status_t qn__source_verify(qn__source_t source, bool is_healing,
                              void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
                              void* self, qn_cache_verify_report_t* out_report) {
  verifier_t verifier = {source, is_healing, on_bad, self, {0}};
  qn_status_t status = qn__source_each(source, verify_one, &verifier);
  QN_STRUCT_WRITE(out_report, verifier.report);
  return status;
}
