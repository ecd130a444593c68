// jit/nvrtc/messages.c: finds the first "NAME(LINE): error: WHAT" and both lines that it means.
//
// Such an error is a defect of quern, never of the program; so the message says all that a report
// of it needs. Thread rule: pure. Read next: compile.c.
#include "jit/nvrtc/messages.h"

// The 1-based line of a text without its ends; empty beyond the last.
static qn_str_t line_at(qn_str_t text, uint32_t number) {
  size_t begin = 0;
  for (uint32_t i = 1; begin < text.size; ++i) {
    const char* stop = memchr(text.data + begin, '\n', text.size - begin);
    size_t end = stop ? (size_t)(stop - text.data) : text.size;
    if (i == number) {
      while (begin < end && text.data[begin] == ' ') ++begin;
      return (qn_str_t){text.data + begin, end - begin};
    }
    begin = end + 1;
  }
  return QN_STR("");
}

static qn_str_t cut(qn_str_t text, size_t most) {
  if (text.size > most) text.size = most;
  return text;
}

static size_t find(qn_str_t text, const char* wanted) {
  size_t size = strlen(wanted);
  for (size_t i = 0; i + size <= text.size; ++i) {
    if (memcmp(text.data + i, wanted, size) == 0) return i;
  }
  return text.size;
}

// The number in "...(12)" that ends at `at`; 0: there is none.
static uint32_t number_before(qn_str_t text, size_t at) {
  if (at == 0 || text.data[at - 1] != ')') return 0;
  size_t begin = at - 1;
  while (begin > 0 && text.data[begin - 1] >= '0' && text.data[begin - 1] <= '9') --begin;
  if (begin == 0 || text.data[begin - 1] != '(') return 0;
  uint32_t number = 0;
  for (size_t i = begin; i < at - 1 && number < UINT32_MAX / 16; ++i) {
    number = number * 10 + (uint32_t)(text.data[i] - '0');
  }
  return number;
}

// The name of the function around a line of the module's text; empty: none is.
static qn_str_t function_around(qn_str_t module, uint32_t line) {
  for (; line > 0; --line) {
    qn_str_t text = line_at(module, line);
    if (text.size < 5 || memcmp(text.data, "func ", 5) != 0) continue;
    qn_str_t name = {text.data + 5, 0};
    while (5 + name.size < text.size && name.data[name.size] != '(') ++name.size;
    return name;
  }
  return QN_STR("");
}

qn_status_t qn__nvrtc_explain(qn_status_t status, const qn__cuda_text_t* text, qn_str_t log) {
  static const char marker[] = ": error: ";
  size_t at = find(log, marker);
  if (at == log.size) {
    qn_str_t first = cut(line_at(log, 1), 300);
    return qn_status_annotate(status, "NVRTC: %.*s", QN_STR_ARG(first));
  }
  uint32_t line = number_before(log, at);
  size_t begin = at + sizeof marker - 1;
  qn_str_t what = cut(line_at((qn_str_t){log.data + begin, log.size - begin}, 1), 300);
  qn_str_t code = cut(line_at(text->text, line), 200);
  uint32_t ir_line = line > 0 && line <= text->line_count ? text->lines[line - 1] : 0;
  if (ir_line == 0) {
    return qn_status_annotate(status, "line %u of the CUDA text `%.*s`: %.*s", line,
                              QN_STR_ARG(code), QN_STR_ARG(what));
  }
  qn_str_t ir = cut(line_at(text->module_text, ir_line), 200);
  qn_str_t function = cut(function_around(text->module_text, ir_line), 100);
  return qn_status_annotate(status,
                            "function '%.*s', line %u of the mapped module `%.*s`, line %u of the "
                            "CUDA text `%.*s`: %.*s",
                            QN_STR_ARG(function), ir_line, QN_STR_ARG(ir), line, QN_STR_ARG(code),
                            QN_STR_ARG(what));
}
