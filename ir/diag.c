// SPDX-License-Identifier: Apache-2.0
// ir/diag.c: diagnostics rendered with source line and caret.
//
// A message looks like
//
//   error[QN0103]: unknown name 'bta'
//     --> softmax.qn:7:15
//      |
//    7 |     y[i, j] = bta * x[i, j];
//      |               ^^^
//      = help: did you mean 'beta'?
//
// Columns are counted in code points from 1. In the shown line a tab takes four columns, control
// characters (qn__is_control) and bytes that are not UTF-8 become '?', and a line that is too long
// is cut to a window around the caret, so that the caret always stands under its character. Not
// here: which mistakes there are (codes.inc, verify*.c).
#include <assert.h>

#include "ir/diag.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/escape.h"
#include "ir/call_place.h"
#include "ir/codes.h"

enum {
  TAB_COLUMNS = 4,
  WINDOW_COLUMNS = 96,  // longest part of a line that is shown
  BEFORE_COLUMNS = 40,  // kept before the caret when a line is cut
  DEFAULT_ERROR_LIMIT = 20,
};

const char* qn__code(qn__ir_code_t code) {
  static const char* const codes[] = {
#define QN_CODE(name, code_text, doc) code_text,
#include "ir/codes.inc"
#undef QN_CODE
  };
  return QN_NEVER((size_t)code >= QN_COUNT_OF(codes)) ? "" : codes[code];
}

void qn__diag_init(qn__diag_t* diag, qn_allocator_t allocator, const qn_parse_options_t* options,
                   const char* source_name, qn_str_t source) {
  *diag = (qn__diag_t){.options = options, .source = source};
  diag->source_name = source_name && source_name[0] ? source_name : "<text>";
  diag->error_limit = options && options->error_limit ? options->error_limit : DEFAULT_ERROR_LIMIT;
  qn__buffer_init(&diag->text, allocator);
}

void qn__diag_deinit(qn__diag_t* diag) {
  qn__buffer_deinit(&diag->text);
}

// ------------------------------------------------------------------------------------ places

static bool is_continuation(char c) {
  return ((uint8_t)c & 0xC0) == 0x80;
}

void qn__diag_position(qn_str_t source, uint32_t offset, uint32_t* out_line, uint32_t* out_column) {
  uint32_t line = 1;
  uint32_t column = 1;
  for (size_t i = 0; i < source.size && i < offset; i++) {
    if (source.data[i] == '\n') {
      line++;
      column = 1;
    } else if (!is_continuation(source.data[i])) {
      column++;
    }
  }
  *out_line = line;
  *out_column = column;
}

typedef struct place {
  uint32_t line;
  uint32_t column;
  uint32_t end_column;
  qn_str_t text;        // the line, without its end
  size_t caret_offset;  // in `text`, may be its size
  size_t caret_end;
} place_t;

static place_t find_place(qn_str_t source, qn__ir_loc_t loc) {
  place_t place = {0};
  size_t begin = loc.begin < source.size ? loc.begin : source.size;
  qn__diag_position(source, (uint32_t)begin, &place.line, &place.column);
  size_t line_begin = begin;
  while (line_begin > 0 && source.data[line_begin - 1] != '\n') line_begin--;
  size_t line_end = begin;
  while (line_end < source.size && source.data[line_end] != '\n') line_end++;
  if (line_end > line_begin && source.data[line_end - 1] == '\r') line_end--;
  if (begin > line_end) begin = line_end;
  size_t end = begin + loc.size;
  if (end > line_end) end = line_end;
  place.text = (qn_str_t){source.data + line_begin, line_end - line_begin};
  place.caret_offset = begin - line_begin;
  place.caret_end = end - line_begin;
  assert(place.caret_offset <= place.caret_end && place.caret_end <= place.text.size);
  place.end_column = place.column;
  for (size_t i = begin; i < end; i++) {
    if (!is_continuation(source.data[i])) place.end_column++;
  }
  if (place.end_column == place.column) place.end_column++;
  return place;
}

// ------------------------------------------------------------------------------------ rendering

static uint32_t digit_count(uint32_t value) {
  return (uint32_t)snprintf(NULL, 0, "%" PRIu32, value);
}

static void spaces(qn__buffer_t* out, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) qn__buffer_char(out, ' ');
}

// Returns the number of columns of the character at `i`.
static uint32_t shown_width(qn_str_t text, size_t i) {
  if (is_continuation(text.data[i])) return 0;
  return text.data[i] == '\t' ? TAB_COLUMNS : 1;
}

static uint32_t shown_width_of(qn_str_t text, size_t begin, size_t end) {
  uint32_t width = 0;
  for (size_t i = begin; i < end; i++) width += shown_width(text, i);
  return width;
}

static void show_text(qn__buffer_t* out, qn_str_t text, size_t begin, size_t end) {
  for (size_t i = begin; i < end;) {
    uint32_t code = 0;
    size_t size = qn__utf8_decode((qn_str_t){text.data + i, end - i}, &code);
    if (text.data[i] == '\t') {
      spaces(out, TAB_COLUMNS);
    } else if (size > 0 && !qn__is_control(code)) {
      qn__buffer_str(out, (qn_str_t){text.data + i, size});
    } else {
      // A continuation byte on its own has no column.
      if (!is_continuation(text.data[i])) qn__buffer_char(out, '?');
      if (size == 0) size = 1;
    }
    i += size;
  }
}

// Chooses the part of a long line to show: it begins at a character and holds the caret.
static void choose_window(const place_t* place, size_t* out_begin, size_t* out_end) {
  qn_str_t text = place->text;
  *out_begin = 0;
  *out_end = text.size;
  // Bytes bound columns from above unless there are tabs; a byte count keeps huge lines cheap.
  if (text.size <= WINDOW_COLUMNS && shown_width_of(text, 0, text.size) <= WINDOW_COLUMNS) return;
  size_t begin = place->caret_offset;
  uint32_t before = 0;
  while (begin > 0 && before + shown_width(text, begin - 1) <= BEFORE_COLUMNS) {
    begin--;
    before += shown_width(text, begin);
  }
  while (begin < place->caret_offset && is_continuation(text.data[begin])) begin++;
  size_t end = place->caret_offset;
  uint32_t after = 0;
  while (end < text.size && after + shown_width(text, end) <= WINDOW_COLUMNS - before) {
    after += shown_width(text, end);
    end++;
  }
  while (end < text.size && is_continuation(text.data[end])) end++;
  assert(begin <= place->caret_offset && place->caret_offset <= end && end <= text.size);
  *out_begin = begin;
  *out_end = end;
}

static void render_place(qn__diag_t* diag, const place_t* place) {
  qn__buffer_t* out = &diag->text;
  uint32_t gutter = digit_count(place->line) + 2;
  spaces(out, gutter - 1);
  char name[1024];
  (void)qn_text_escape(diag->source_name, strlen(diag->source_name), false, name, sizeof name);
  qn__buffer_format(out, "--> %s:%" PRIu32 ":%" PRIu32 "\n", name, place->line, place->column);
  spaces(out, gutter);
  qn__buffer_cstr(out, "|\n");
  size_t begin;
  size_t end;
  choose_window(place, &begin, &end);
  qn__buffer_format(out, " %" PRIu32 " |%s", place->line, place->text.size ? " " : "");
  if (begin > 0) qn__buffer_cstr(out, "...");
  show_text(out, place->text, begin, end);
  if (end < place->text.size) qn__buffer_cstr(out, "...");
  qn__buffer_char(out, '\n');
  spaces(out, gutter);
  qn__buffer_cstr(out, "| ");
  spaces(out, (begin > 0 ? 3 : 0) + shown_width_of(place->text, begin, place->caret_offset));
  size_t caret_end = place->caret_end < end ? place->caret_end : end;
  uint32_t carets = shown_width_of(place->text, place->caret_offset, caret_end);
  if (carets == 0) carets = 1;
  for (uint32_t i = 0; i < carets; i++) qn__buffer_char(out, '^');
  qn__buffer_char(out, '\n');
}

static const char* severity_text(qn_severity_t severity) {
  if (severity == QN_SEVERITY_ERROR) return "error";
  return severity == QN_SEVERITY_WARNING ? "warning" : "note";
}

void qn__diag_report(qn__diag_t* diag, qn_severity_t severity, const char* code, qn__ir_loc_t loc,
                     const char* help, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  qn__diag_report_list(diag, severity, code, loc, help, format, arguments);
  va_end(arguments);
}

// Tells by which calls a place came into the function that is reported.
static void note_calls(qn__diag_t* diag, const qn__ir_call_t* call) {
  while (call) {
    qn__ir_loc_t loc = call->loc;
    const qn__ir_call_t* outer = qn__places_resolve(diag->places, &loc);
    qn__diag_report(diag, QN_SEVERITY_NOTE, "", loc, NULL, "'%s' is called here", call->name);
    call = outer;
  }
}

// Formats a message into `out`, cut between characters where it is too long.
static void format_message(char* out, size_t capacity, const char* format, va_list arguments)
    QN_PRINTF(3, 0);
static void format_message(char* out, size_t capacity, const char* format, va_list arguments) {
  int size = vsnprintf(out, capacity - 3, format, arguments);
  if (size < 0) out[0] = '\0';
  if (size < (int)capacity - 3) return;
  size_t end = strlen(out);
  while (end > 0 && is_continuation(out[end - 1])) end--;
  if (end > 0 && (uint8_t)out[end - 1] >= 0x80) end--;
  memcpy(out + end, "...", 4);
}

void qn__diag_report_list(qn__diag_t* diag, qn_severity_t severity, const char* code,
                          qn__ir_loc_t loc, const char* help, const char* format,
                          va_list arguments) {
  // Errors beyond the limit are dropped, with their notes.
  if (severity == QN_SEVERITY_NOTE ? diag->is_muted : qn__diag_is_full(diag)) {
    diag->is_muted = true;
    return;
  }
  diag->is_muted = false;
  const qn__ir_call_t* call = qn__places_resolve(diag->places, &loc);
  char given[512];
  format_message(given, sizeof given, format, arguments);
  char message[2 * sizeof given];
  (void)qn_text_escape(given, strlen(given), true, message, sizeof message);

  qn__buffer_t* out = &diag->text;
  qn__buffer_cstr(out, severity_text(severity));
  if (code && code[0]) qn__buffer_format(out, "[%s]", code);
  qn__buffer_cstr(out, ": ");
  qn__buffer_cstr(out, message);
  qn__buffer_char(out, '\n');
  place_t place = {0};
  bool has_place = loc.size != 0 && (diag->source.size != 0 || loc.begin == 0);
  uint32_t gutter = 2;
  if (has_place) {
    place = find_place(diag->source, loc);
    gutter = digit_count(place.line) + 2;
    render_place(diag, &place);
  }
  if (help && help[0]) {
    spaces(out, gutter);
    qn__buffer_format(out, "= help: %s\n", help);
  }
  if (severity == QN_SEVERITY_ERROR) diag->error_count++;

  if (diag->options && diag->options->on_diagnostic) {
    qn_diagnostic_t diagnostic = {
        .struct_size = sizeof diagnostic,
        .severity = severity,
        .code = code ? code : "",
        .message = message,
        .help = help ? help : "",
        .source_name = diag->source_name,
        .line = place.line,
        .column = place.column,
        .end_column = place.end_column,
    };
    diag->options->on_diagnostic(diag->options->on_diagnostic_self, &diagnostic);
  }
  if (severity == QN_SEVERITY_ERROR) note_calls(diag, call);
}

qn_status_t qn__diag_status(const qn__diag_t* diag, qn_status_code_t code) {
  if (diag->text.has_failed) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "out of memory for the module's text");
  }
  if (diag->error_count == 0) return QN_OK;
  size_t size = diag->text.size;
  // The last line end is the caller's business.
  if (size > 0 && diag->text.data[size - 1] == '\n') size--;
  const char* more = qn__diag_is_full(diag) && diag->error_limit > 1
                         ? "\nnote: too many errors; what follows was not read"
                         : "";
  return qn_status_make(code, "%.*s%s", (int)size, (const char*)diag->text.data, more);
}
