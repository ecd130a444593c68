// SPDX-License-Identifier: Apache-2.0
// warm/lines.c: reads the lines that people write into a list: FILE.qn [--target T] [--set D=N]
// [--tier T] [--checked], with comments from # on.
//
// Parts of a word may be in quotes of either kind. There are no other escapes, so that JSON in
// single quotes stays as it is.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "warm/list.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)
// Words of one line: a file and its options.
#define MAX_WORDS 16u

typedef struct text_line {
  const char* file;
  const char* target;
  const char* set;  // NULL: none
  const char* tier;
  bool is_checked;
} text_line_t;

static qn_status_t line_error(const char* what, const char* got) {
  return qn_status_make(QN_STATUS_SYNTAX, "expected %s, got '%s'", what, got);
}

// Takes the next word of the terminated text and removes its quotes in place. NULL at the end.
static char* next_word(char** inout_rest, bool* out_is_open) {
  char* rest = *inout_rest + strspn(*inout_rest, " \t");
  *out_is_open = false;
  if (*rest == '\0' || *rest == '#') return NULL;
  char* word = rest;
  char* out = rest;
  char quote = '\0';
  for (; *rest && (quote || (*rest != ' ' && *rest != '\t')); rest++) {
    if (quote ? *rest == quote : *rest == '\'' || *rest == '"') {
      quote = quote ? '\0' : *rest;
    } else {
      *out++ = *rest;
    }
  }
  *out_is_open = quote != '\0';
  *inout_rest = *rest ? rest + 1 : rest;
  *out = '\0';
  return word;
}

// Takes "--target=T" or "--target T".
static bool take_value(char* const* words, size_t count, size_t* inout_at, const char* name,
                       const char** out_value) {
  size_t size = strlen(name);
  const char* word = words[*inout_at];
  if (strncmp(word, name, size) != 0) return false;
  if (word[size] == '=') {
    *out_value = word + size + 1;
    return true;
  }
  if (word[size] != '\0') return false;
  *out_value = *inout_at + 1 < count ? words[++*inout_at] : NULL;
  return true;
}

static qn_status_t parse_words(char* const* words, size_t count, text_line_t* line) {
  *line = (text_line_t){.target = "cpu", .tier = "full"};
  for (size_t i = 0; i < count; i++) {
    const char* word = words[i];
    if (word[0] != '-') {
      if (line->file) return line_error("one file on a line (quote names with spaces)", word);
      line->file = word;
    } else if (strcmp(word, "--checked") == 0) {
      line->is_checked = true;
    } else if (take_value(words, count, &i, "--target", &line->target)) {
      if (!line->target) return line_error("a target after --target", "the end of the line");
    } else if (take_value(words, count, &i, "--set", &line->set)) {
      if (!line->set) return line_error("such as d=128,k=4 after --set", "the end of the line");
    } else if (take_value(words, count, &i, "--tier", &line->tier)) {
      if (!line->tier) return line_error("fast or full after --tier", "the end of the line");
    } else {
      return line_error("--target T, --set D=N, --tier fast|full or --checked", word);
    }
  }
  if (!line->file) return line_error("a file FILE.qn", words[0]);
  if (strcmp(line->tier, "fast") != 0 && strcmp(line->tier, "full") != 0) {
    return line_error("fast or full after --tier", line->tier);
  }
  return QN_OK;
}

// Splits the text in place. A line of comments has no file.
static qn_status_t split_line(char* text, text_line_t* out_line) {
  char* words[MAX_WORDS];
  size_t count = 0;
  char* word;
  bool is_open;
  while ((word = next_word(&text, &is_open))) {
    if (is_open) return line_error("a closing quote", word);
    if (count == MAX_WORDS) return line_error("a file and a few options", word);
    words[count++] = word;
  }
  return count ? parse_words(words, count, out_line) : QN_OK;
}

static qn_status_t file_error(const char* what, const char* path) {
  int error = errno;
  return qn_status_make(error == ENOENT || error == ENOTDIR ? QN_STATUS_NOT_FOUND : QN_STATUS_IO,
                        "cannot %s '%s': %s", what, path, strerror(error));
}

static qn_status_t parse_file(FILE* file, const char* path, size_t size, const char* set,
                              qn_module_t** out_module) {
  char* data = malloc(size + 1);
  if (!data) return qn__warm_no_memory(path);
  size = fread(data, 1, size, file);
  qn_parse_options_t options = {.struct_size = sizeof options, .source_name = path, .set = set};
  qn_status_t status =
      ferror(file) ? file_error("read", path) : qn_module_parse(data, size, &options, out_module);
  free(data);
  return status;
}

static qn_status_t read_module(const char* directory, const char* name, const char* set,
                               qn_module_t** out_module) {
  char path[PATH_MAX];
  bool is_joined = name[0] != '/' && directory && directory[0];
  int size =
      snprintf(path, sizeof path, "%s%s%s", is_joined ? directory : "", is_joined ? "/" : "", name);
  if (size < 0 || (size_t)size >= sizeof path) return line_error("a path that is shorter", name);
  // The open would wait at a pipe that no process writes to.
  struct stat info;
  if (stat(path, &info) != 0) return file_error("open", path);
  if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size > MAX_FILE_BYTES) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "'%s' is not a regular file of at most %zu bytes", path, MAX_FILE_BYTES);
  }
  FILE* file = fopen(path, "rbe");
  if (!file) return file_error("open", path);
  qn_status_t status = parse_file(file, path, (size_t)info.st_size, set, out_module);
  (void)fclose(file);
  return status;
}

qn_status_t qn__warm_line_read(qn__warm_span_t line, const char* directory,
                               qn__warm_entry_t* out_entry) {
  *out_entry = (qn__warm_entry_t){0};
  if (memchr(line.data, '\0', line.size)) {
    return qn_status_make(QN_STATUS_SYNTAX, "expected text, got a byte of value 0");
  }
  char* text = malloc(line.size + 1);
  if (!text) return qn__warm_no_memory("a line of a list");
  memcpy(text, line.data, line.size);
  text[line.size] = '\0';
  text_line_t words = {0};
  qn_status_t status = split_line(text, &words);
  if (qn_ok(status) && words.file) {
    out_entry->tier = strcmp(words.tier, "fast") == 0 ? QN_TIER_FAST : QN_TIER_FULL;
    out_entry->is_checked = words.is_checked;
    status = qn_target_parse(words.target, &out_entry->target);
    if (qn_ok(status)) status = read_module(directory, words.file, words.set, &out_entry->module);
  }
  free(text);
  return status;
}
