// SPDX-License-Identifier: Apache-2.0
// tools/cli/print.c: a small printf that escapes its arguments.
#include "tools/cli/print.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool is_terminal(FILE* file) {
  return isatty(fileno(file)) != 0;
}

static const style_t colours = {"\033[1m",  "\033[2m",  "\033[1;31m",
                                "\033[32m", "\033[36m", "\033[0m"};

const style_t* style_of(FILE* file) {
  static const style_t none = {"", "", "", "", "", ""};
  const char* refused = getenv("NO_COLOR");
  const char* terminal = getenv("TERM");
  if ((refused && refused[0]) || (terminal && strcmp(terminal, "dumb") == 0)) return &none;
  return is_terminal(file) ? &colours : &none;
}

// Styles are known by their place in memory: a text from outside that reads the same is none.
static bool is_style(const char* text) {
  const char* const styles[] = {colours.bold,  colours.dim,  colours.red,
                                colours.green, colours.cyan, colours.plain};
  for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
    if (text == styles[i]) return true;
  }
  return false;
}

size_t text_columns(const char* text) {
  size_t columns = 0;
  for (; *text; text++) columns += ((unsigned char)*text & 0xC0) != 0x80;
  return columns;
}

static void put_spaces(FILE* file, size_t count) {
  for (size_t i = 0; i < count; i++) (void)fputc(' ', file);
}

// Prints one text, aligned to the left for a negative width.
static void put_text(FILE* file, const char* text, size_t size, bool keeps_lines, int width) {
  char fixed[512];
  char* shown = fixed;
  size_t shown_size = qn_text_escape(text, size, keeps_lines, fixed, sizeof fixed);
  if (shown_size >= sizeof fixed && (shown = malloc(shown_size + 1))) {
    (void)qn_text_escape(text, size, keeps_lines, shown, shown_size + 1);
  }
  if (!shown) shown = fixed;  // without memory its beginning
  size_t columns = text_columns(shown), wanted = (size_t)(width < 0 ? -width : width);
  size_t padding = wanted > columns ? wanted - columns : 0;
  if (width > 0) put_spaces(file, padding);
  (void)fputs(shown, file);
  if (width < 0) put_spaces(file, padding);
  if (shown != fixed) free(shown);
}

void print_text(FILE* file, const char* text) {
  put_text(file, text, strlen(text), true, 0);
}

void print_lines(FILE* file, const char* text) {
  print_text(file, text);
  (void)fputc('\n', file);
}

// One conversion of a format: "%-*.3lld".
typedef struct conversion {
  char spec[16];  // for numbers: the format of fprintf, with * for width and precision
  int width;      // negative: to the left
  int precision;  // negative: none
  char length;    // 'l', 'L' for ll, 'z', or '\0'
  char kind;
} conversion_t;

// Reads a number, or takes it from the arguments for *.
static int read_number(const char** inout_at, va_list* arguments) {
  if (**inout_at == '*') {
    ++*inout_at;
    return va_arg(*arguments, int);
  }
  return (int)strtol(*inout_at, (char**)(void*)inout_at, 10);
}

// Reads the conversion after the percent sign and returns its end.
static const char* read_conversion(const char* at, va_list* arguments, conversion_t* c) {
  *c = (conversion_t){.precision = -1};
  size_t size = 0;
  bool is_left = false;
  c->spec[size++] = '%';
  for (; *at && strchr("-+ #0", *at); at++) {
    is_left |= *at == '-';
    if (size < 5) c->spec[size++] = *at;
  }
  c->width = read_number(&at, arguments);
  if (is_left && c->width > 0) c->width = -c->width;
  c->spec[size++] = '*';
  if (*at == '.') {
    at++;
    c->precision = read_number(&at, arguments);
  }
  memcpy(c->spec + size, ".*", 2);
  size += 2;
  for (; *at == 'l' || *at == 'z' || *at == 'j'; at++) {
    c->length = c->length == 'l' ? 'L' : *at;
    c->spec[size++] = *at;
  }
  c->kind = *at;
  if (*at) c->spec[size++] = *at++;
  return at;
}

// The format is a part of one that the compiler has checked.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void put_number(FILE* file, const conversion_t* c, va_list* arguments) {
  const char* spec = c->spec;
  int width = c->width, precision = c->precision;
  switch (c->kind) {
    case 'f':
    case 'g':
      (void)fprintf(file, spec, width, precision, va_arg(*arguments, double));
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
      if (c->length == 'L') {
        (void)fprintf(file, spec, width, precision, va_arg(*arguments, long long));
      } else if (c->length) {
        (void)fprintf(file, spec, width, precision, va_arg(*arguments, long));
      } else {
        (void)fprintf(file, spec, width, precision, va_arg(*arguments, int));
      }
      break;
    default:
      (void)fputc('?', file);
      break;
  }
}
#pragma GCC diagnostic pop

static void put_string(FILE* file, const conversion_t* c, const char* text) {
  if (is_style(text)) {
    (void)fputs(text, file);
  } else {
    size_t size = c->precision < 0 ? strlen(text) : strnlen(text, (size_t)c->precision);
    put_text(file, text, size, false, c->width);
  }
}

void print(FILE* file, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  while (*format) {
    size_t plain = strcspn(format, "%");
    (void)fwrite(format, 1, plain, file);
    format += plain;
    if (*format == '\0') break;
    conversion_t c;
    format = read_conversion(format + 1, &arguments, &c);
    if (c.kind == '%') {
      (void)fputc('%', file);
    } else if (c.kind == 's') {
      const char* text = va_arg(arguments, const char*);
      put_string(file, &c, text ? text : "-");
    } else if (c.kind == 'c') {
      char one = (char)va_arg(arguments, int);
      put_text(file, &one, 1, false, c.width);
    } else {
      put_number(file, &c, &arguments);
    }
  }
  va_end(arguments);
}
