// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/roof.h: the limits of a machine, measured by programs of our own on the same
// target: multiply-adds that live in registers, and streams over each level of memory.
#ifndef QUERN_TOOLS_CLI_BENCH_ROOF_H_
#define QUERN_TOOLS_CLI_BENCH_ROOF_H_

#include <jansson.h>

#include "tools/cli/bench/subject.h"

// Measures the limits for a dtype with so many threads (0: does not apply) and returns a record:
// target, threads, dtype, gops, levels (name, size_bytes, load_gbs, update_gbs). Limits that cannot
// be measured are appended to `not_measured` as records of `what` and `why`; `*out_record` is NULL
// if there are none. Takes about a second at most.
void roof_measure(const bench_place_t* place, int32_t threads, qn_dtype_t dtype,
                  json_t* not_measured, json_t** out_record);

// What a roof says about a row of a call, written into its record: `bound` ("compute", "L1", ...,
// "memory"), `roof_gops` or `roof_gbs`, `of_roof`.
void roof_apply(const json_t* roofs, json_t* record);

#endif  // QUERN_TOOLS_CLI_BENCH_ROOF_H_
