// SPDX-License-Identifier: Apache-2.0
// tools/cli/print.h: the only way in which the command writes text for people.
#ifndef QUERN_TOOLS_CLI_PRINT_H_
#define QUERN_TOOLS_CLI_PRINT_H_

#include <stddef.h>
#include <stdio.h>

#include "quern/status.h"

// Escape sequences, or empty strings.
typedef struct style {
  const char* bold;
  const char* dim;
  const char* red;
  const char* green;
  const char* cyan;
  const char* plain;
} style_t;
// Returns the style of a stream: colours on a terminal alone, and never with NO_COLOR.
const style_t* style_of(FILE* file);
bool is_terminal(FILE* file);

// Prints like fprintf. Text of %s comes from outside: control characters and bytes that are not
// UTF-8 are escaped (qn_text_escape), and so are its line ends. Members of a style_t are printed as
// they are. Conversions: d i u x c s f g and %, with widths, precisions and the lengths l, ll and
// z.
void print(FILE* file, const char* format, ...) QN_PRINTF(2, 3);
// Prints text of several lines, such as a message of the library: escaped but for its line ends and
// tabs.
void print_text(FILE* file, const char* text);
// The same, and a line end.
void print_lines(FILE* file, const char* text);
// Returns how many columns the text takes on a terminal.
size_t text_columns(const char* text);

#endif  // QUERN_TOOLS_CLI_PRINT_H_
