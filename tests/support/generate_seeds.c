// SPDX-License-Identifier: Apache-2.0
// tests/support/generate_seeds.c: see generate.h.
#include <stdlib.h>

#include "base/env.h"
#include "tests/support/generate.h"

void qn_generate_seeds(uint64_t* inout_first, uint64_t* inout_count) {
  const char* seeds = qn__env_get("QUERN_TEST_SEEDS");
  if (!seeds) return;
  char* end;
  *inout_first = strtoull(seeds, &end, 10);
  if (*end == ':') *inout_count = strtoull(end + 1, NULL, 10);
}
