// tools/cli/output.h: prints results: JSON and tables; formats sizes and times for people.
#ifndef QUERN_TOOLS_CLI_OUTPUT_H_
#define QUERN_TOOLS_CLI_OUTPUT_H_

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/cli/print.h"

// The library's diagnostics with colours for severities and carets.
void print_diagnostics(const char* rendered, FILE* file);

// A JSON string; bytes that are not UTF-8 become \x80 in letters. `text` NULL gives null.
json_t* json_text(const char* text);
// Parses JSON that the library made; null when it is none.
json_t* json_parsed(const char* text);
// Prints an object (consumed) with a newline. Reals have `real_digits` significant digits.
void print_json(json_t* value, int real_digits);

// "1.25 ms". The buffer holds 32 bytes.
const char* format_ns(int64_t ns, char out[32]);
// "1.5 KiB".
const char* format_size(uint64_t size_bytes, char out[32]);
// "2026-01-31 12:00", local time; "-" for 0.
const char* format_time(int64_t unix_s, char out[32]);

// A table with aligned columns. Cells are copied.
typedef struct table {
  size_t column_count;
  size_t cell_count;
  size_t capacity;
  char** cells;
  bool is_right[8];  // columns that are aligned to the right
} table_t;
void table_init(table_t* table, size_t column_count);
void table_add(table_t* table, const char* cell);
// Prints with the first row as the header, and releases the table.
void table_print(table_t* table, FILE* file);
void table_free(table_t* table);

// Monotonic clock.
int64_t now_ns(void);

// A line on a terminal's standard error that tells that work goes on; nothing elsewhere.
typedef struct progress progress_t;
progress_t* progress_start(const char* what);
// Replaces what the line says. NULL is fine.
void progress_tell(progress_t* progress, const char* what);
// Wipes the line, so that something else can be printed; it comes back by itself. NULL is fine.
void progress_wipe(progress_t* progress);
void progress_stop(progress_t* progress);

#endif  // QUERN_TOOLS_CLI_OUTPUT_H_
