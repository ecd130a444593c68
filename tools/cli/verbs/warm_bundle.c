// tools/cli/verbs/warm_bundle.c: writes the keys of a warm-up into one file.
//
// The bundle has no times, so that two builds of the same kernels give the same bytes.
#include "tools/cli/verbs/warm_bundle.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/list.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"

enum { MAX_BUNDLES = 64 };

void warm_keys_add(warm_keys_t* keys, const char* key) {
  char(*room)[33] = list_room(keys->keys, &keys->capacity, keys->count, sizeof *room);
  if (!room) {
    keys->is_out_of_memory = true;
    return;
  }
  keys->keys = room;
  memset(keys->keys[keys->count], 0, 33);
  memcpy(keys->keys[keys->count++], key, strlen(key) < 33 ? strlen(key) : 32);
}

void warm_keys_free(warm_keys_t* keys) {
  free(keys->keys);
  *keys = (warm_keys_t){.count = 0};
}

static int compare_keys(const void* a, const void* b) {
  return strcmp(a, b);
}

static bool wants(void* self, const qn_cache_entry_t* entry) {
  const warm_keys_t* keys = self;
  return bsearch(entry->info->key.hex, keys->keys, keys->count, sizeof *keys->keys, compare_keys) !=
         NULL;
}

// Opens the bundles that the engine searches: a key may be in one of them alone.
static qn_status_t open_bundles(const char* paths, qn_cache_bundle_t* bundles[MAX_BUNDLES],
                                size_t* out_count) {
  *out_count = 0;
  while (*paths && *out_count < MAX_BUNDLES) {
    size_t size = strcspn(paths, ":");
    char* path = strndup(paths, size);
    if (!path) return no_memory("a path");
    // The engine found no key in a bundle that cannot be opened.
    if (size > 0 && qn_status_consume(qn_cache_bundle_open(path, NULL, 0, &bundles[*out_count])) ==
                        QN_STATUS_OK) {
      ++*out_count;
    }
    free(path);
    paths += size + (paths[size] == ':' ? 1 : 0);
  }
  return QN_OK;
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
  if (keys->is_out_of_memory) return no_memory("keys");
  if (keys->count) qsort(keys->keys, keys->count, sizeof *keys->keys, compare_keys);
  char* root = session_option(engine, "cache_dir");
  char* paths = session_option(engine, "bundles");
  qn_cache_dir_t* dir = NULL;
  qn_cache_bundle_t* bundles[MAX_BUNDLES];
  size_t bundle_count = 0;
  qn_status_t status = root && paths ? qn_cache_dir_open(root, &dir) : no_memory("a path");
  if (qn_ok(status)) status = open_bundles(paths, bundles, &bundle_count);
  if (qn_ok(status)) {
    status = write_from(dir, bundles, bundle_count, keys, path, secret_key_file, out_report);
  }
  for (size_t i = 0; i < bundle_count; i++) qn_cache_bundle_close(bundles[i]);
  qn_cache_dir_close(dir);
  free(paths);
  free(root);
  return status;
}
