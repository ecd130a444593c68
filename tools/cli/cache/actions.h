// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/actions.h: the actions of `quern cache`, one constant each.
//
// A new action is a constant in a file of this folder, a line here, a row in the table of cache.c
// and a line in its help.
#ifndef QUERN_TOOLS_CLI_CACHE_ACTIONS_H_
#define QUERN_TOOLS_CLI_CACHE_ACTIONS_H_

#include "quern/cache.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"

typedef struct cache {
  const args_t* args;
  char* path;                 // owned; of the directory. NULL when the action needs none
  qn_cache_dir_t* dir;        // NULL: it does not exist yet, or --bundle is given
  qn_cache_bundle_t* bundle;  // NULL unless --bundle was given; `path` is then its file
} cache_t;

// Whether an action works on the cache directory.
typedef enum cache_need {
  // Opened before the action; the default one may be missing. With --bundle, the bundle instead.
  CACHE_NEEDS_DIRECTORY = 0,
  CACHE_NEEDS_NOTHING = 1,       // path and dir stay NULL
  CACHE_MAY_LACK_DIRECTORY = 2,  // opened as well; path is "" where none is configured
} cache_need_t;

typedef struct cache_action {
  const char* name;
  const char* operands;            // after the name, as in messages; NULL: none
  int min_operands, max_operands;  // -1: any number
  // Names of the options that it takes beside --json, each followed by a space: "heal bundle ".
  const char* options;
  cache_need_t need;
  // `out_code` is EXIT_DONE before; an error's own exit code comes before it.
  qn_status_t (*run)(const cache_t* cache, int* out_code);
} cache_action_t;

// Returns the i-th operand after the name of the action; NULL beyond the last.
const char* cache_operand(const cache_t* cache, int i);
// Makes the error of an action that needs a directory where none is configured.
qn_status_t cache_no_directory(void);
// Makes {"directory": path} or, of a bundle, {"bundle": path, ...} with its properties.
json_t* cache_place_json(const cache_t* cache);
// Opens a bundle with the keys of --signed-by.
qn_status_t cache_open_bundle(const args_t* args, const char* path, qn_cache_bundle_t** out_bundle);

// Runs `verify --recompile` (recompile.c).
qn_status_t cache_run_recompile(const cache_t* cache, int* out_code);
// Appends {"key", "reason"} to a list of bad entries.
void cache_add_bad(json_t* list, qn_cache_key_t key, const char* reason);

extern const cache_action_t cache_action_stats;   // stats.c
extern const cache_action_t cache_action_ls;      // entries.c
extern const cache_action_t cache_action_show;    // entries.c
extern const cache_action_t cache_action_why;     // why.c
extern const cache_action_t cache_action_verify;  // verify.c
extern const cache_action_t cache_action_clear;   // verify.c
extern const cache_action_t cache_action_export;  // bundle.c
extern const cache_action_t cache_action_merge;   // bundle.c
extern const cache_action_t cache_action_import;  // bundle.c
extern const cache_action_t cache_action_keygen;  // bundle.c

#endif  // QUERN_TOOLS_CLI_CACHE_ACTIONS_H_
