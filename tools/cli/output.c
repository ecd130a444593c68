// SPDX-License-Identifier: Apache-2.0
// tools/cli/output.c: prints JSON and tables, formats sizes and times.
#include "tools/cli/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli/memory.h"

// Returns the colour of one line of rendered diagnostics, or "".
static const char* colour_of_line(const style_t* style, const char* line) {
  static const char caret_characters[] = " |^";
  if (strncmp(line, "error", 5) == 0) return style->red;
  if (strncmp(line, "warning", 7) == 0 || strncmp(line, "note", 4) == 0) return style->bold;
  if (strncmp(line, "  -->", 5) == 0 || strstr(line, "= help:")) return style->cyan;
  size_t size = strspn(line, caret_characters);
  if ((line[size] == '\n' || line[size] == '\0') && memchr(line, '^', size)) return style->red;
  return "";
}

void print_diagnostics(const char* rendered, FILE* file) {
  const style_t* style = style_of(file);
  while (*rendered) {
    size_t size = strcspn(rendered, "\n");
    const char* colour = colour_of_line(style, rendered);
    print(file, "%s%.*s%s\n", colour, (int)size, rendered, colour[0] ? style->plain : "");
    rendered += size + (rendered[size] == '\n' ? 1 : 0);
  }
}

// -------------------------------------------------------------------------------------- JSON

json_t* json_text(const char* text) {
  if (!text) return json_null();
  json_t* value = json_string(text);
  if (value) return value;
  // A file name may have bytes that are not UTF-8.
  size_t size = qn_text_escape(text, strlen(text), true, NULL, 0);
  char* shown = memory_zeroed(size, 1);
  (void)qn_text_escape(text, strlen(text), true, shown, size + 1);
  value = json_string(shown);
  free(shown);
  return value ? value : json_null();
}

json_t* json_parsed(const char* text) {
  json_t* value = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
  return value ? value : json_null();
}

json_t* json_text_or_null(const char* text) {
  return json_text(text[0] ? text : NULL);
}

static json_t* take_member(char kind, va_list* arguments) {
  switch (kind) {
    case 's':
      return json_text(va_arg(*arguments, const char*));
    case 'S':
      return json_text_or_null(va_arg(*arguments, const char*));
    case 'i':
      return json_integer(va_arg(*arguments, int64_t));
    case 'd':
      return json_integer(va_arg(*arguments, int));
    case 'b':
      return json_boolean(va_arg(*arguments, int));
    default:
      return va_arg(*arguments, json_t*);
  }
}

json_t* json_record(const char* members, ...) {
  json_t* record = json_object();
  va_list arguments;
  va_start(arguments, members);
  while (*members) {
    char name[32];
    size_t size = strcspn(members, ":");
    (void)snprintf(name, sizeof name, "%.*s", (int)size, members);
    json_object_set_new(record, name, take_member(members[size + 1], &arguments));
    members += size + 2;
    if (*members == ' ') members++;
  }
  va_end(arguments);
  return record;
}

void print_json_digits(json_t* value, int real_digits) {
  size_t flags = JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION((size_t)real_digits);
  if (value) (void)json_dumpf(value, stdout, flags);
  print(stdout, "\n");
  json_decref(value);
}

void print_json(json_t* value) {
  print_json_digits(value, 17);
}

// -------------------------------------------------------------------------------------- units

const char* format_ns(int64_t ns, char out[32]) {
  static const char* const units[] = {"ns", "us", "ms", "s"};
  double value = (double)ns;
  size_t unit = 0;
  while (value >= 1000 && unit < 3) {
    value /= 1000;
    unit++;
  }
  // Three digits, but no fractions of a nanosecond.
  int decimals = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  (void)snprintf(out, 32, "%.*f %s", decimals, value, units[unit]);
  return out;
}

const char* format_size(uint64_t size_bytes, char out[32]) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)size_bytes;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
    value /= 1024;
    unit++;
  }
  (void)snprintf(out, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return out;
}

const char* format_entries(uint64_t count, char out[32]) {
  (void)snprintf(out, 32, "%" PRIu64 " %s", count, count == 1 ? "entry" : "entries");
  return out;
}

const char* format_time(int64_t unix_s, char out[32]) {
  time_t seconds = (time_t)unix_s;
  struct tm parts;
  if (unix_s == 0 || !localtime_r(&seconds, &parts) ||
      strftime(out, 32, "%Y-%m-%d %H:%M", &parts) == 0) {
    out[0] = '-';
    out[1] = '\0';
  }
  return out;
}

int64_t now_ns(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// -------------------------------------------------------------------------------------- tables

enum { MAX_COLUMNS = 12 };

typedef struct column {
  char header[32], member[32], kind;
  int width;  // negative: to the left; 0: the last column, to the left
} column_t;

// Reads "header=member:kind ..." and returns the count.
static size_t read_columns(const char* text, column_t columns[MAX_COLUMNS]) {
  size_t count = 0;
  int size = 0;
  while (count < MAX_COLUMNS && sscanf(text, " %31[^=]=%31[^:]:%c%n", columns[count].header,
                                       columns[count].member, &columns[count].kind, &size) == 3) {
    text += size;
    count++;
  }
  return count;
}

// Returns the text of a record's member, in `out` or borrowed from the record.
static const char* cell_text(const json_t* record, const column_t* column, char out[32]) {
  const json_t* member = json_object_get(record, column->member);
  int64_t number = json_integer_value(member);
  const char* text = json_string_value(member);
  switch (column->kind) {
    case 'i':
      (void)snprintf(out, 32, "%" PRId64, number);
      return out;
    case 'z':
      return format_size((uint64_t)number, out);
    case 'n':
      return format_ns(number, out);
    case 't':
      return format_time(number, out);
    default:
      return text && text[0] ? text : "-";
  }
}

void print_table(const json_t* records, const char* columns_text) {
  const style_t* style = style_of(stdout);
  column_t columns[MAX_COLUMNS];
  size_t count = read_columns(columns_text, columns);
  size_t row_count = json_array_size(records);
  char text[32];
  for (size_t k = 0; k < count; k++) {
    column_t* column = &columns[k];
    size_t width = text_columns(column->header);
    for (size_t i = 0; i < row_count; i++) {
      size_t own = text_columns(cell_text(json_array_get(records, i), column, text));
      if (own > width) width = own;
    }
    bool is_right = strchr("izn", column->kind) != NULL;
    column->width = is_right ? (int)width : k + 1 < count ? -(int)width : 0;
  }
  print(stdout, "%s", style->bold);
  for (size_t k = 0; k < count; k++) {
    print(stdout, "%s%*s", k ? "  " : "", columns[k].width, columns[k].header);
  }
  print(stdout, "%s\n", style->plain);
  for (size_t i = 0; i < row_count; i++) {
    for (size_t k = 0; k < count; k++) {
      print(stdout, "%s%*s", k ? "  " : "", columns[k].width,
            cell_text(json_array_get(records, i), &columns[k], text));
    }
    print(stdout, "\n");
  }
}
