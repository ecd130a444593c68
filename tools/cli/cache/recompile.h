// tools/cli/cache/recompile.h: `quern cache verify --recompile N`.
#ifndef QUERN_TOOLS_CLI_CACHE_RECOMPILE_H_
#define QUERN_TOOLS_CLI_CACHE_RECOMPILE_H_

#include "tools/cli/cache/actions.h"

// As an action's `run`.
qn_status_t cache_run_recompile(const cache_t* cache, int* out_code);

#endif  // QUERN_TOOLS_CLI_CACHE_RECOMPILE_H_
