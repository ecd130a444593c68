// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/warm_bundle.h: `quern warm --bundle OUT`: a bundle of exactly the keys that are
// warm.
#ifndef QUERN_TOOLS_CLI_VERBS_WARM_BUNDLE_H_
#define QUERN_TOOLS_CLI_VERBS_WARM_BUNDLE_H_

#include "quern/cache.h"
#include "quern/quern.h"

// A list of keys. Zero-initialised: empty. Owned: warm_keys_free.
typedef struct warm_keys {
  qn_cache_key_t* keys;
  size_t count;
  size_t capacity;
} warm_keys_t;
void warm_keys_add(warm_keys_t* keys, qn_cache_key_t key);
void warm_keys_free(warm_keys_t* keys);

// Writes the bundle from the engine's directory and its bundles. Sorts the keys. `secret_key_file`
// may be NULL. Errors: those of qn_cache_bundle_write and of opening; NOT_FOUND when a key has left
// the cache meanwhile.
qn_status_t warm_bundle_write(qn_engine_t* engine, warm_keys_t* keys, const char* path,
                              const char* secret_key_file, qn_cache_write_report_t* out_report);

#endif  // QUERN_TOOLS_CLI_VERBS_WARM_BUNDLE_H_
