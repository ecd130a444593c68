// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/warm_bundle.c: writes the keys of a warm-up into one file.
//
// The bundle has no times, so that two builds of the same kernels give the same bytes.
#include "tools/cli/verbs/warm_bundle.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/memory.h"
#include "tools/cli/session.h"

enum { MAX_BUNDLES = 64 };

void warm_keys_add(warm_keys_t* keys, qn_cache_key_t key) {
  keys->keys = memory_room(keys->keys, &keys->capacity, keys->count, sizeof *keys->keys);
  keys->keys[keys->count++] = key;
}

void warm_keys_free(warm_keys_t* keys) {
  free(keys->keys);
  *keys = (warm_keys_t){.count = 0};
}

static int compare_keys(const void* a, const void* b) {
  const qn_cache_key_t *x = a, *y = b;
  return strcmp(x->hex, y->hex);
}

static bool wants(void* self, const qn_cache_entry_t* entry) {
  const warm_keys_t* keys = self;
  return bsearch(&entry->info->key, keys->keys, keys->count, sizeof *keys->keys, compare_keys);
}

// Opens the bundles that the engine searches: a key may be in one of them alone. Cuts `paths` at
// their colons. Returns the count.
static size_t open_bundles(char* paths, qn_cache_bundle_t* bundles[MAX_BUNDLES]) {
  size_t count = 0;
  char* rest = NULL;
  for (char* path = strtok_r(paths, ":", &rest); path && count < MAX_BUNDLES;
       path = strtok_r(NULL, ":", &rest)) {
    // The engine found no key in a bundle that cannot be opened.
    qn_status_t status = qn_cache_bundle_open(path, NULL, 0, &bundles[count]);
    if (qn_status_consume(status) == QN_STATUS_OK) count++;
  }
  return count;
}

static qn_status_t write_from(qn_cache_dir_t* dir, qn_cache_bundle_t* const* bundles,
                              size_t bundle_count, warm_keys_t* keys, const char* path,
                              const char* secret_key_file, qn_cache_write_report_t* out_report) {
  qn_cache_write_options_t options = {.struct_size = sizeof options,
                                      .secret_key_file = secret_key_file,
                                      .wants = wants,
                                      .self = keys,
                                      .is_timeless = true};
  qn_status_t status =
      qn_cache_bundle_write(path, dir, bundles, bundle_count, &options, out_report);
  if (qn_ok(status) && out_report->written_count != keys->count) {
    status = qn_status_make(QN_STATUS_NOT_FOUND,
                            "the bundle '%s' has %llu of %zu keys: the others have left the cache "
                            "meanwhile; is it too small for them?",
                            path, (unsigned long long)out_report->written_count, keys->count);
  }
  return status;
}

qn_status_t warm_bundle_write(qn_engine_t* engine, warm_keys_t* keys, const char* path,
                              const char* secret_key_file, qn_cache_write_report_t* out_report) {
  if (keys->count) qsort(keys->keys, keys->count, sizeof *keys->keys, compare_keys);
  char* root = session_option(engine, "cache_dir");
  char* paths = session_option(engine, "bundles");
  qn_cache_dir_t* dir = NULL;
  qn_cache_bundle_t* bundles[MAX_BUNDLES];
  size_t bundle_count = open_bundles(paths, bundles);
  qn_status_t status = qn_cache_dir_open(root, &dir);
  if (qn_ok(status)) {
    status = write_from(dir, bundles, bundle_count, keys, path, secret_key_file, out_report);
  }
  for (size_t i = 0; i < bundle_count; i++) qn_cache_bundle_close(bundles[i]);
  qn_cache_dir_close(dir);
  free(paths);
  free(root);
  return status;
}
