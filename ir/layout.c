// ir/layout.c: breaks long lines of canonical text.
//
// A line is broken after a ',' or an infix operator: at the least nested place of its second half,
// and at the last one of these. It continues below the text in the innermost open bracket unless
// that is too far right, else four columns deeper than it began. It is never broken before an
// operator: a line that begins with `//` would be a comment.
#include "ir/layout.h"

enum { DEEPEST_ALIGN = 40, CONTINUATION = 4, MAX_BRACKETS = 64, FIRST_CUT = 50 };

typedef struct cut {
  size_t at;      // the blank; 0: none
  size_t column;  // where the next line begins
  size_t depth;
} cut_t;

static bool is_break(const char* text, size_t at) {
  if (at < 3 || text[at] != ' ') return false;
  if (text[at - 1] == ',') return true;
  // An infix operator has blanks on both sides; a prefix one touches its operand.
  size_t begin = at;
  while (begin > 0 && memchr("+-*/%&|^?:=<>!", text[begin - 1], 14)) begin--;
  return begin < at && begin > 0 && text[begin - 1] == ' ';
}

// Returns true after the brace of a reduction, used if there is no better place.
static bool is_last_resort(const char* text, size_t at) {
  return at >= 3 && text[at] == ' ' && text[at - 1] == '{' && text[at - 2] == ' ';
}

// Finds the best place to cut text[0, size) so that the first part fits.
static cut_t find_cut(const char* text, size_t size, size_t base_column) {
  cut_t cut = {0, 0, SIZE_MAX};
  size_t columns[MAX_BRACKETS];
  size_t open = 0;
  bool is_string = false;
  size_t column = 0;
  size_t first = 0;
  while (first < size && text[first] == ' ') first++;
  for (size_t i = 0; i < size; i++) {
    char c = text[i];
    if (((uint8_t)c & 0xC0) != 0x80) column++;
    if (is_string) {
      if (c == '\\' && i + 1 < size) i++, column++;
      if (c == '"') is_string = false;
    } else if (c == '"') {
      is_string = true;
    } else if (c == '(' || c == '[') {
      if (open < MAX_BRACKETS) columns[open] = column;
      open++;
    } else if ((c == ')' || c == ']') && open > 0) {
      open--;
    } else if (i > first && i + 1 < size && cut.at == 0 && is_last_resort(text, i)) {
      cut = (cut_t){i, base_column + CONTINUATION, SIZE_MAX};
    } else if (i > first && i + 1 < size && is_break(text, i)) {
      bool is_in_time = column <= QN__LAYOUT_COLUMNS + 1;
      bool is_early = column <= FIRST_CUT;
      bool is_better = cut.at == 0 || (is_in_time && (open <= cut.depth || is_early));
      if (is_better) {
        size_t align = open > 0 && open <= MAX_BRACKETS ? columns[open - 1] : 0;
        if (align == 0 || align > DEEPEST_ALIGN) align = base_column + CONTINUATION;
        cut = (cut_t){i, align, is_early ? SIZE_MAX : open};
      }
    }
    if (column > QN__LAYOUT_COLUMNS && cut.at) break;
  }
  return column > QN__LAYOUT_COLUMNS ? cut : (cut_t){0, 0, 0};
}

void qn__layout_wrap(qn__buffer_t* out, size_t line_begin) {
  if (out->has_failed || out->size - line_begin <= QN__LAYOUT_COLUMNS) return;
  qn__buffer_t line;
  qn__buffer_init(&line, out->allocator);
  qn__buffer_bytes(&line, out->data + line_begin, out->size - line_begin);
  if (line.has_failed) {
    out->has_failed = true;
    return;
  }
  out->size = line_begin;
  const char* text = (const char*)line.data;
  size_t size = line.size;
  size_t base_column = 0;
  while (base_column < size && text[base_column] == ' ') base_column++;
  qn__buffer_t rest;  // one continuation line: its indent, then what is left
  qn__buffer_init(&rest, out->allocator);
  for (;;) {
    cut_t cut = find_cut(text, size, base_column);
    if (cut.at == 0) break;
    qn__buffer_bytes(out, text, cut.at);
    qn__buffer_char(out, '\n');
    qn__buffer_t next;
    qn__buffer_init(&next, out->allocator);
    for (size_t i = 0; i < cut.column; i++) qn__buffer_char(&next, ' ');
    qn__buffer_bytes(&next, text + cut.at + 1, size - cut.at - 1);
    if (next.has_failed) out->has_failed = true;
    qn__buffer_deinit(&rest);
    rest = next;
    if (out->has_failed) break;
    text = (const char*)rest.data;
    size = rest.size;
  }
  qn__buffer_bytes(out, text, out->has_failed ? 0 : size);
  qn__buffer_deinit(&rest);
  qn__buffer_deinit(&line);
}
