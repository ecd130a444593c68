// tools/cache_recompile.h: `quern cache verify --recompile N`.
//
// Thread rule: one thread. Read next: cache_recompile.c.
#ifndef QUERN_TOOLS_CACHE_RECOMPILE_H_
#define QUERN_TOOLS_CACHE_RECOMPILE_H_

#include "tools/cache_actions.h"

// As an action's `run`.
qn_status_t cache_run_recompile(const cache_t* cache, int* out_code);

#endif  // QUERN_TOOLS_CACHE_RECOMPILE_H_
