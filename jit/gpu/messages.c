// SPDX-License-Identifier: Apache-2.0
// jit/gpu/messages.c: explains an error of a device compiler by the lines that it refers to.
//
// Such an error is a defect of quern, never of the program. So the message contains all that a bug
// report needs.
#include "jit/gpu/messages.h"

#include "base/reader.h"

// Returns line `number` (from 1) of a text without its indentation, at most `most` bytes of it.
// Empty: the text has no such line.
static qn_str_t line_at(qn_str_t text, uint32_t number, size_t most) {
  size_t begin = 0;
  for (uint32_t i = 1; begin < text.size; ++i) {
    const char* stop = memchr(text.data + begin, '\n', text.size - begin);
    size_t end = stop ? (size_t)(stop - text.data) : text.size;
    if (i == number) {
      while (begin < end && text.data[begin] == ' ') ++begin;
      return (qn_str_t){text.data + begin, end - begin < most ? end - begin : most};
    }
    begin = end + 1;
  }
  return QN_STR("");
}

// Returns the offset of the first match; text.size: there is none.
static size_t find(qn_str_t text, qn_str_t wanted) {
  for (size_t i = 0; i + wanted.size <= text.size; ++i) {
    if (memcmp(text.data + i, wanted.data, wanted.size) == 0) return i;
  }
  return text.size;
}

// Returns the line number before offset `at`, as in "NAME(12)" or "NAME:12"; 0: there is none.
static uint32_t number_before(qn_str_t text, size_t at) {
  bool has_parenthesis = at > 0 && text.data[at - 1] == ')';
  size_t end = has_parenthesis ? at - 1 : at;
  size_t begin = end;
  while (begin > 0 && text.data[begin - 1] >= '0' && text.data[begin - 1] <= '9') --begin;
  if (begin == 0 || text.data[begin - 1] != (has_parenthesis ? '(' : ':')) return 0;
  uint32_t number = 0;
  for (size_t i = begin; i < end; ++i) {
    if (number > UINT32_MAX / 16) return 0;
    number = number * 10 + (uint32_t)(text.data[i] - '0');
  }
  return number;
}

// Returns the line of the module that a line of the text was printed from; 0: none.
static uint32_t module_line(const qn__gpu_text_t* text, uint32_t line) {
  size_t at = (size_t)line * sizeof(uint32_t);
  if (line == 0 || at > text->lines.size) return 0;
  qn__reader_t reader = qn__reader_make(text->lines);
  reader.offset = at - sizeof(uint32_t);
  return qn__read_u32(&reader);
}

// Returns the name of the function that contains a line of the module's text; empty: none.
static qn_str_t function_around(qn_str_t module, uint32_t line) {
  for (; line > 0; --line) {
    qn_str_t text = line_at(module, line, SIZE_MAX);
    if (text.size < 5 || memcmp(text.data, "func ", 5) != 0) continue;
    qn_str_t name = {text.data + 5, 0};
    while (name.size < 100 && 5 + name.size < text.size && name.data[name.size] != '(') ++name.size;
    return name;
  }
  return QN_STR("");
}

qn_status_t qn__gpu_explain(qn_status_t status, const qn__gpu_text_t* text, qn_str_t log) {
  static const qn_str_t marker = QN_STR_INIT(": error: ");
  enum { MAX_SAID = 300, MAX_CODE = 200 };
  size_t at = find(log, marker);
  uint32_t line = at < log.size ? number_before(log, at) : 0;
  if (line == 0) {
    qn_str_t first = line_at(log, 1, MAX_SAID);
    return qn_status_annotate(status, "the %s text: %.*s", text->language, QN_STR_ARG(first));
  }
  size_t begin = at + marker.size;
  qn_str_t what = line_at((qn_str_t){log.data + begin, log.size - begin}, 1, MAX_SAID);
  qn_str_t code = line_at(text->text, line, MAX_CODE);
  uint32_t ir_line = module_line(text, line);
  if (ir_line == 0) {
    return qn_status_annotate(status, "line %u of the %s text `%.*s`: %.*s", line, text->language,
                              QN_STR_ARG(code), QN_STR_ARG(what));
  }
  qn_str_t ir = line_at(text->module_text, ir_line, MAX_CODE);
  qn_str_t function = function_around(text->module_text, ir_line);
  return qn_status_annotate(status,
                            "function '%.*s', line %u of the mapped module `%.*s`, line %u of the "
                            "%s text `%.*s`: %.*s",
                            QN_STR_ARG(function), ir_line, QN_STR_ARG(ir), line, text->language,
                            QN_STR_ARG(code), QN_STR_ARG(what));
}
