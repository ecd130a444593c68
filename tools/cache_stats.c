// tools/cache_stats.c: `quern cache stats`: how much there is.
//
// Thread rule: one thread. Read next: cache_look.c.
#include <inttypes.h>
#include <stdlib.h>

#include "tools/cache_actions.h"

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

const cache_action_t cache_action_stats = {
    .name = "stats",
    .options = "dir ",
    .run = run_stats,
};
