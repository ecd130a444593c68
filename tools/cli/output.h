// SPDX-License-Identifier: Apache-2.0
// tools/cli/output.h: prints results: JSON and tables; formats sizes and times for people.
#ifndef QUERN_TOOLS_CLI_OUTPUT_H_
#define QUERN_TOOLS_CLI_OUTPUT_H_

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/cli/print.h"

// Prints the library's diagnostics with colours for severities and carets.
void print_diagnostics(const char* rendered, FILE* file);

// Makes a JSON string. Bytes that are not UTF-8 become \x80 in letters; NULL gives null.
json_t* json_text(const char* text);
// The same, and null for "".
json_t* json_text_or_null(const char* text);
// Parses JSON that the library made; null when it is none.
json_t* json_parsed(const char* text);
// Makes an object of members "name:kind", separated by spaces, from the arguments that follow.
// Kinds: s text, S text or null for "", i 64-bit integer, d int, b int as a boolean, o json_t
// (consumed).
json_t* json_record(const char* members, ...);
// Prints a value (consumed) with a newline. Reals have 17 significant digits, or `real_digits`.
void print_json(json_t* value);
void print_json_digits(json_t* value, int real_digits);

// "1.25 ms".
const char* format_ns(int64_t ns, char out[32]);
// "1.5 KiB".
const char* format_size(uint64_t size_bytes, char out[32]);
// "1 entry", "2 entries".
const char* format_entries(uint64_t count, char out[32]);
// "2026-01-31 12:00", local time; "-" for 0.
const char* format_time(int64_t unix_s, char out[32]);

// Prints records as a table with aligned columns. `columns` are at most 12 "header=member:kind",
// separated by spaces: kind s text ("-" for none), i integer, z size, n nanoseconds, t time.
// Numbers and sizes are aligned to the right.
void print_table(const json_t* records, const char* columns);

// Returns the time of the monotonic clock.
int64_t now_ns(void);

// A line on a terminal's standard error that shows that work goes on (progress.c). Elsewhere
// progress_start returns NULL, which the other functions take.
typedef struct progress progress_t;
progress_t* progress_start(const char* what);
// Replaces the text of the line.
void progress_tell(progress_t* progress, const char* what);
// Wipes the line, so that other text can be printed; the line is drawn again later.
void progress_wipe(progress_t* progress);
void progress_stop(progress_t* progress);

#endif  // QUERN_TOOLS_CLI_OUTPUT_H_
