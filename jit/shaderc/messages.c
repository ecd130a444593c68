// jit/shaderc/messages.c: finds the first "NAME:LINE: error: WHAT" and both lines that it means.
//
// Such an error is a defect of quern, never of the program; so the message says all that a report
// of it needs. Thread rule: pure. Read next: compile.c.
#include "jit/shaderc/messages.h"

qn_str_t qn__text_line(qn_str_t text, uint32_t number) {
  const char* at = text.data;
  const char* end = text.data + text.size;
  for (uint32_t i = 1; at < end; ++i) {
    const char* stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    if (i == number) {
      while (at < stop && (*at == ' ' || *at == '\t')) ++at;
      return (qn_str_t){at, (size_t)(stop - at)};
    }
    at = stop + 1;
  }
  return QN_STR("");
}

static bool find(qn_str_t text, qn_str_t wanted, size_t* out_at) {
  for (size_t i = 0; i + wanted.size <= text.size; ++i) {
    if (memcmp(text.data + i, wanted.data, wanted.size) != 0) continue;
    *out_at = i;
    return true;
  }
  return false;
}

// The number in front of ": error: ", behind the colon of the name; 0: none is there.
static uint32_t number_before(qn_str_t text, size_t at) {
  size_t begin = at;
  while (begin > 0 && text.data[begin - 1] >= '0' && text.data[begin - 1] <= '9') --begin;
  if (begin == at || begin == 0 || text.data[begin - 1] != ':') return 0;
  uint32_t number = 0;
  for (size_t i = begin; i < at; ++i) {
    if (number > UINT32_MAX / 16) return 0;
    number = number * 10 + (uint32_t)(text.data[i] - '0');
  }
  return number;
}

qn_status_t qn__shaderc_explain(qn_status_t status, const qn__kernel_text_t* kernel,
                                qn_str_t messages) {
  static const qn_str_t marker = QN_STR_INIT(": error: ");
  uint32_t line = 0;
  size_t at;
  qn_str_t what = qn__text_line(messages, 1);
  if (find(messages, marker, &at)) {
    line = number_before(messages, at);
    what = qn__text_line(
        (qn_str_t){messages.data + at + marker.size, messages.size - at - marker.size}, 1);
  }
  if (what.size > 300) what.size = 300;
  if (line == 0) {
    return qn_status_annotate(status, "function '%s', kernel %u: %.*s", kernel->function,
                              kernel->index, QN_STR_ARG(what));
  }
  qn_str_t code = qn__text_line(kernel->text, line);
  if (code.size > 200) code.size = 200;
  uint32_t ir_line = line <= kernel->line_count ? kernel->lines[line - 1] : 0;
  if (ir_line == 0) {
    return qn_status_annotate(status, "function '%s', kernel %u, line %u `%.*s`: %.*s",
                              kernel->function, kernel->index, line, QN_STR_ARG(code),
                              QN_STR_ARG(what));
  }
  qn_str_t ir = qn__text_line(kernel->module_text, ir_line);
  if (ir.size > 200) ir.size = 200;
  return qn_status_annotate(status,
                            "function '%s', kernel %u, line %u `%.*s`, from line %u of the mapped "
                            "module `%.*s`: %.*s",
                            kernel->function, kernel->index, line, QN_STR_ARG(code), ir_line,
                            QN_STR_ARG(ir), QN_STR_ARG(what));
}
