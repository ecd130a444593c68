// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/stop.h: SIGINT and SIGTERM end a measurement early instead of the command.
#ifndef QUERN_TOOLS_CLI_BENCH_STOP_H_
#define QUERN_TOOLS_CLI_BENCH_STOP_H_

#include <stdbool.h>

// Catches the first of each signal, unless it was ignored when the command began. A second one ends
// the command at once.
void stop_install(void);
bool stop_wanted(void);
// Returns "SIGINT" or "SIGTERM", or NULL.
const char* stop_signal(void);

#endif  // QUERN_TOOLS_CLI_BENCH_STOP_H_
