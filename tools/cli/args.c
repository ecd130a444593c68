// SPDX-License-Identifier: Apache-2.0
// tools/cli/args.c: parses options by table, in any order among the operands; "--" ends them.
//
// It is not getopt: it refuses abbreviations of long options (scripts would break when an option is
// added), and its messages suggest the nearest option.
#include "tools/cli/args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/memory.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"

static const option_spec_t help_option = {"help", 'h', NULL, "print this help", false};

enum { LONGEST_NAME = 64 };

// Returns how many slips lie between two words: a letter more, less or other, or two neighbours
// exchanged.
static size_t distance(const char* a, const char* b) {
  size_t rows = strlen(a), columns = strlen(b);
  if (rows >= LONGEST_NAME || columns >= LONGEST_NAME) return LONGEST_NAME;
  // Three rows in turn: an exchange looks two rows back.
  size_t table[3][LONGEST_NAME + 1];
  for (size_t j = 0; j <= columns; j++) table[0][j] = j;
  for (size_t i = 1; i <= rows; i++) {
    size_t *row = table[i % 3], *before = table[(i + 2) % 3], *before2 = table[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= columns; j++) {
      size_t best = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      if (before[j] + 1 < best) best = before[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      bool is_exchange = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_exchange && before2[j - 2] + 1 < best) best = before2[j - 2] + 1;
      row[j] = best;
    }
  }
  return table[rows % 3][columns];
}

const char* nearest_name(const char* name, const void* names, size_t stride_bytes, size_t count) {
  const char* best = NULL;
  // Fewer slips than this: two for short names, one in three characters for longer ones.
  size_t bound = strlen(name) < 4 ? 2 : 2 + strlen(name) / 3;
  for (size_t i = 0; i < count; i++) {
    const char* candidate = NULL;
    memcpy(&candidate, (const char*)names + i * stride_bytes, sizeof candidate);
    if (!candidate) continue;
    size_t cost = distance(name, candidate);
    if (cost >= bound || cost >= strlen(candidate)) continue;
    bound = cost;
    best = candidate;
  }
  return best;
}

suggestion_t suggest(const char* name, const void* names, size_t stride_bytes, size_t count) {
  suggestion_t suggestion = {""};
  const char* near = nearest_name(name, names, stride_bytes, count);
  if (near) (void)snprintf(suggestion.text, sizeof suggestion, "; did you mean '%s'?", near);
  return suggestion;
}

static const option_spec_t* find_long(const verb_t* verb, const char* name, size_t size) {
  for (size_t i = 0; i <= verb->option_count; i++) {
    const option_spec_t* spec = i < verb->option_count ? &verb->options[i] : &help_option;
    if (strlen(spec->name) == size && memcmp(spec->name, name, size) == 0) return spec;
  }
  return NULL;
}

static const option_spec_t* find_letter(const verb_t* verb, char letter) {
  for (size_t i = 0; i < verb->option_count; i++) {
    if (verb->options[i].letter == letter) return &verb->options[i];
  }
  return letter == help_option.letter ? &help_option : NULL;
}

static int unknown_option(const args_t* args, const char* given, const char* name, size_t size) {
  const verb_t* verb = args->verb;
  char word[LONGEST_NAME];
  const char* near = NULL;
  if (size < sizeof word) {
    memcpy(word, name, size);
    word[size] = '\0';
    near = nearest_name(word, verb->options, sizeof *verb->options, verb->option_count);
  }
  if (near) {
    return report_usage(args, "unknown option '%s'; did you mean '--%s'?", given, near);
  }
  return report_usage(args, "unknown option '%s'", given);
}

static int add_option(args_t* args, const option_spec_t* spec, const char* value) {
  for (int i = 0; i < args->option_count && !spec->is_repeatable; i++) {
    if (args->options[i].spec == spec && spec->value) {
      return report_usage(args, "option '--%s' was given twice", spec->name);
    }
  }
  args->options[args->option_count++] = (given_option_t){spec, value};
  if (spec == &help_option) args->is_help = true;
  if (strcmp(spec->name, "json") == 0) args->is_json = true;
  return EXIT_DONE;
}

// Parses the option at argv[*inout_at], which begins with '-' and is not "-" or "--".
static int parse_option(args_t* args, int argc, char** argv, int* inout_at) {
  const char* given = argv[*inout_at];
  const option_spec_t* spec = NULL;
  const char* value = NULL;
  if (given[1] == '-') {
    const char* name = given + 2;
    size_t size = strcspn(name, "=");
    spec = find_long(args->verb, name, size);
    if (!spec) return unknown_option(args, given, name, size);
    if (name[size] == '=') value = name + size + 1;
  } else {
    spec = find_letter(args->verb, given[1]);
    if (!spec) return unknown_option(args, given, given + 1, strcspn(given + 1, "="));
    if (given[2] != '\0') value = given + 2;
  }
  if (!spec->value && value) {
    return report_usage(args, "option '--%s' takes no value, got '%s'", spec->name, value);
  }
  if (spec->value && !value) {
    if (*inout_at + 1 == argc) {
      return report_usage(args, "option '--%s' needs a value: %s", spec->name, spec->value);
    }
    value = argv[++*inout_at];
  }
  return add_option(args, spec, value);
}

int args_parse(const verb_t* verb, int argc, char** argv, args_t* out_args) {
  *out_args = (args_t){.verb = verb};
  args_t* args = out_args;
  size_t room = (size_t)argc;
  args->operands = memory_zeroed(room, sizeof *args->operands);
  args->options = memory_zeroed(room, sizeof *args->options);
  bool has_ended = false;
  for (int i = 0; i < argc; i++) {
    const char* word = argv[i];
    if (has_ended || word[0] != '-' || word[1] == '\0') {
      args->operands[args->operand_count++] = word;
    } else if (strcmp(word, "--") == 0) {
      has_ended = true;
    } else {
      int code = parse_option(args, argc, argv, &i);
      if (code != EXIT_DONE) return code;
    }
  }
  if (args->is_help) return EXIT_DONE;
  if (args->operand_count < verb->min_operands) {
    return report_usage(args, "expected %s", verb->operands);
  }
  if (verb->max_operands >= 0 && args->operand_count > verb->max_operands) {
    return report_usage(args, "unexpected '%s'", args->operands[verb->max_operands]);
  }
  return EXIT_DONE;
}

void args_free(args_t* args) {
  free(args->operands);
  free(args->options);
  *args = (args_t){0};
}

bool args_has(const args_t* args, const char* name) {
  for (int i = 0; i < args->option_count; i++) {
    if (strcmp(args->options[i].spec->name, name) == 0) return true;
  }
  return false;
}

bool args_takes(const args_t* args, const char* name) {
  for (size_t i = 0; i < args->verb->option_count; i++) {
    if (strcmp(args->verb->options[i].name, name) == 0) return true;
  }
  return false;
}

const char* args_next(const args_t* args, const char* name, int* inout_at) {
  while (*inout_at < args->option_count) {
    const given_option_t* option = &args->options[(*inout_at)++];
    if (strcmp(option->spec->name, name) == 0) return option->value;
  }
  return NULL;
}

const char* args_value(const args_t* args, const char* name, const char* otherwise) {
  int at = 0;
  const char* value = args_next(args, name, &at);
  return value ? value : otherwise;
}

bool args_number(const char* text, uint64_t min, uint64_t max, uint64_t* out_number) {
  if (text[0] < '0' || text[0] > '9') return false;
  char* end;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  if (*end != '\0' || errno != 0 || number < min || number > max) return false;
  *out_number = number;
  return true;
}

void args_print_usage(const verb_t* verb, FILE* file) {
  print(file, "usage: quern %s", verb->name);
  if (verb->operands[0]) print(file, " %s", verb->operands);
  for (size_t i = 0; i < verb->option_count; i++) {
    const option_spec_t* spec = &verb->options[i];
    if (!spec->doc) continue;
    print(file, " [--%s%s%s]%s", spec->name, spec->value ? " " : "", spec->value ? spec->value : "",
          spec->is_repeatable ? "..." : "");
  }
  print(file, "\n");
}

static void print_option(const option_spec_t* spec, FILE* file) {
  if (!spec->doc) return;
  char left[64];
  char letter[5] = "";
  if (spec->letter) (void)snprintf(letter, sizeof letter, "-%c, ", spec->letter);
  (void)snprintf(left, sizeof left, "%s--%s%s%s", letter, spec->name, spec->value ? " " : "",
                 spec->value ? spec->value : "");
  // A long option has a line of its own.
  bool is_long = strlen(left) > 24;
  if (is_long) print(file, "  %s\n", left);
  print(file, "  %-24s %s\n", is_long ? "" : left, spec->doc);
}

void args_print_help(const verb_t* verb, FILE* file) {
  const style_t* style = style_of(file);
  print(file, "%squern %s%s: %s\n\n", style->bold, verb->name, style->plain, verb->summary);
  args_print_usage(verb, file);
  print(file, "\n");
  print_lines(file, verb->help);
  print(file, "%soptions%s\n", style->bold, style->plain);
  for (size_t i = 0; i < verb->option_count; i++) print_option(&verb->options[i], file);
  print_option(&help_option, file);
  if (verb->examples[0]) {
    print(file, "\n%sexamples%s\n", style->bold, style->plain);
    print_text(file, verb->examples);
  }
}
