// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/show.h: prints the results of a benchmark, which are one JSON object
// (docs/cli.md), as text and as a drawing.
#ifndef QUERN_TOOLS_CLI_BENCH_SHOW_H_
#define QUERN_TOOLS_CLI_BENCH_SHOW_H_

#include <jansson.h>

#include "tools/cli/file.h"

// Prints tables to standard output.
void show_text(const json_t* results);
// Appends an SVG document: a bar for each row, and the roofline. Errors: OUT_OF_MEMORY.
qn_status_t show_svg(const json_t* results, text_t* out);

#endif  // QUERN_TOOLS_CLI_BENCH_SHOW_H_
