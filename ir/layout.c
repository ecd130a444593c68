// SPDX-License-Identifier: Apache-2.0
// ir/layout.c: breaks statements that do not fit in a line.
//
// What fits stays on one line, unless it has a comment or a reduction with lets. Else:
//  1. The parameters of a function stand one a line.
//  2. A value that is one call, one table, or ends with a reduction stays on the line of its '=',
//     and its bracket is broken. The same goes for names and numbers before one call, as in `0.5 *
//     (1 + erf(x))`. Any other value begins a line, four columns deeper.
//  3. An expression is broken after its operators of the lowest precedence, one operand a line; of
//     operands that are single names or numbers as many as fit.
//     Operands after the first stand four columns deeper, unless the first one has its own line.
//  4. An operand without operators is broken in its braces, else in its widest parentheses, and in
//     an index only where there is neither.
//  5. The content of a broken bracket stands two columns deeper: on one line if it fits there, else
//     one part a line, and single names or numbers as many as fit. The closing bracket begins a
//     line.
// A line never begins with an operator: one that begins with `//` would be a comment.
//
// Not here: spaces between tokens, blank lines and blocks (format.c).
#include "ir/layout.h"

#include <assert.h>

enum { CONTINUATION = 4 };

// ------------------------------------------------------------------------------------ lines

void qn__layout_newline(qn__layout_t* l, size_t column) {
  if (l->is_line_empty) {
    l->out->size = l->line_begin;
  } else {
    qn__buffer_char(l->out, '\n');
    l->line_begin = l->out->size;
  }
  for (size_t i = 0; i < column; i++) qn__buffer_char(l->out, ' ');
  l->column = column;
  l->is_line_empty = true;
  l->has_comment = false;
}

void qn__layout_blank_line(qn__layout_t* l) {
  qn__layout_newline(l, 0);
  qn__buffer_char(l->out, '\n');
  l->line_begin = l->out->size;
}

static size_t width_of(const qn__layout_t* l, size_t i) {
  return l->pieces[i].end - (i > 0 ? l->pieces[i - 1].end : 0);
}

void qn__layout_emit(qn__layout_t* l, size_t i) {
  const qn__piece_t* piece = &l->pieces[i];
  bool is_comment = piece->kind == QN__TOKEN_COMMENT;
  bool is_own_line = is_comment && piece->newline_count > 0;
  if (l->has_comment || (is_own_line && !l->is_line_empty)) qn__layout_newline(l, l->hang);
  if (!l->is_line_empty && is_comment) qn__buffer_cstr(l->out, "  ");
  if (!l->is_line_empty && !is_comment && piece->is_spaced) qn__buffer_char(l->out, ' ');
  l->column += width_of(l, i) - (l->is_line_empty && piece->is_spaced);
  qn__buffer_str(l->out, piece->text);
  l->is_line_empty = false;
  l->has_comment = is_comment;
}

// Ends the line before piece i, after the comments that stand there, and begins one at the column.
// Returns the next piece.
static size_t break_line(qn__layout_t* l, size_t i, size_t column) {
  for (; l->pieces[i].kind == QN__TOKEN_COMMENT && l->pieces[i].newline_count == 0; i++) {
    qn__layout_emit(l, i);
  }
  qn__layout_newline(l, column);
  return i;
}

// ------------------------------------------------------------------------------------ pieces

static bool is_forced(const qn__layout_t* l, size_t begin, size_t end) {
  return begin < end &&
         l->pieces[end - 1].forced_count != (begin > 0 ? l->pieces[begin - 1].forced_count : 0);
}

// Returns whether the pieces and `tail` more columns fit in a line that has `column` ones.
static bool fits_at(const qn__layout_t* l, size_t begin, size_t end, size_t column, size_t tail) {
  if (begin >= end) return true;
  if (is_forced(l, begin, end)) return false;
  size_t before = begin > 0 ? l->pieces[begin - 1].end : 0;
  return column + (l->pieces[end - 1].end - before) + tail <= QN__LAYOUT_COLUMNS;
}

static bool fits(const qn__layout_t* l, size_t begin, size_t end, size_t tail) {
  if (l->has_comment) return fits_at(l, begin, end, l->hang, tail);
  bool is_unspaced = l->is_line_empty && begin < end && l->pieces[begin].is_spaced;
  return fits_at(l, begin, end, l->column - (is_unspaced && l->column > 0), tail);
}

static void put(qn__layout_t* l, size_t begin, size_t end) {
  for (size_t i = begin; i < end; i++) qn__layout_emit(l, i);
}

static bool is_open(const qn__layout_t* l, size_t i) {
  const qn__piece_t* piece = &l->pieces[i];
  return piece->partner != SIZE_MAX && piece->partner > i && piece->kind != QN__TOKEN_NAME;
}

// Returns the piece after i, or after what i opens: a bracket, or the range of a reduction.
static size_t step(const qn__layout_t* l, size_t i) {
  size_t partner = l->pieces[i].partner;
  if (partner == SIZE_MAX || partner < i) return i + 1;
  return l->pieces[i].kind == QN__TOKEN_NAME ? partner : partner + 1;
}

static size_t find_level(const qn__layout_t* l, size_t begin, size_t end, uint8_t level) {
  while (begin < end && l->pieces[begin].level != level) begin = step(l, begin);
  return begin < end ? begin : end;
}

static size_t find_kind(const qn__layout_t* l, size_t begin, size_t end, qn__token_kind_t kind) {
  while (begin < end && l->pieces[begin].kind != kind) begin = step(l, begin);
  return begin < end ? begin : end;
}

static uint8_t lowest_level(const qn__layout_t* l, size_t begin, size_t end) {
  uint8_t lowest = 0;
  for (size_t i = begin; i < end; i = step(l, i)) {
    uint8_t level = l->pieces[i].level;
    if (level && (!lowest || level < lowest)) lowest = level;
  }
  return lowest;
}

// Returns the '{' of a reduction that ends the pieces, but for parentheses: `2 * max(a, sum i in
// 0..n { x[i] })`. Else returns `end`.
static size_t last_reduction(const qn__layout_t* l, size_t begin, size_t end) {
  size_t last = end;
  while (last > begin && l->pieces[last - 1].kind == QN__TOKEN_RIGHT_PAREN) last--;
  if (last == begin || l->pieces[last - 1].kind != QN__TOKEN_RIGHT_BRACE) return end;
  size_t open = l->pieces[last - 1].partner;
  return open != SIZE_MAX && open >= begin ? open : end;
}

// Returns whether the pieces are one name or number, perhaps with a sign.
static bool is_word(const qn__layout_t* l, size_t begin, size_t end) {
  if (begin < end && l->pieces[begin].kind == QN__TOKEN_MINUS) begin++;
  return begin + 1 == end && l->pieces[begin].partner == SIZE_MAX;
}

// Returns the '(' of a last operand that is one call or parenthesis, where all operands before it
// are single names or numbers: `0.5 * (1 + erf(x))`. Else returns `end`.
static size_t last_call(const qn__layout_t* l, size_t begin, size_t end) {
  uint8_t level = lowest_level(l, begin, end);
  if (level <= QN__LEVEL_QUESTION || l->pieces[end - 1].kind != QN__TOKEN_RIGHT_PAREN) return end;
  size_t open = l->pieces[end - 1].partner;
  if (open == SIZE_MAX || open < begin || open + 2 == end) return end;
  for (;;) {
    size_t op = find_level(l, begin, end, level);
    if (op == end) break;
    if (!is_word(l, begin, op)) return end;
    begin = op + 1;
  }
  while (begin < open && l->pieces[begin].kind != QN__TOKEN_COMMENT) begin++;
  return begin == open && find_kind(l, begin, end, QN__TOKEN_LEFT_PAREN) == open ? open : end;
}

// Returns the bracket to break where all that is before it can stay on the line, or `end`.
static size_t last_bracket(const qn__layout_t* l, size_t begin, size_t end) {
  size_t open = last_reduction(l, begin, end);
  return open < end ? open : last_call(l, begin, end);
}

// ------------------------------------------------------------------------------------ brackets

static void lay(qn__layout_t* l, size_t begin, size_t end, size_t indent, size_t hang, size_t tail);

// Lays the parts of a list out: on one line if they fit, unless they are a signature's; else one a
// line, single words as many as fit.
static void lay_list(qn__layout_t* l, size_t begin, size_t end, size_t indent, bool is_signature) {
  if (!is_signature && fits_at(l, begin, end, indent, 0)) {
    begin = break_line(l, begin, indent);
    put(l, begin, end);
    return;
  }
  bool is_single = find_level(l, begin, end, QN__LEVEL_COMMA) == end;
  bool was_word = false;
  while (begin < end) {
    size_t comma = find_level(l, begin, end, QN__LEVEL_COMMA);
    bool is_one = is_word(l, begin, comma);
    bool is_filled = was_word && is_one && !l->has_comment && fits(l, begin, comma, 1);
    if (!is_filled) begin = break_line(l, begin, indent);
    lay(l, begin, comma, indent, is_single ? indent : indent + CONTINUATION, comma < end);
    if (comma < end) qn__layout_emit(l, comma);
    was_word = is_one;
    begin = comma + 1;
  }
}

// Lays out what a bracket holds: the lets of a reduction, and a list.
static void lay_content(qn__layout_t* l, size_t begin, size_t end, size_t indent,
                        bool is_signature) {
  for (;;) {
    size_t semicolon = find_kind(l, begin, end, QN__TOKEN_SEMICOLON);
    if (semicolon == end) break;
    begin = break_line(l, begin, indent);
    while (begin < semicolon && l->pieces[begin].kind == QN__TOKEN_COMMENT) {
      if (l->pieces[begin].newline_count >= 2) qn__layout_blank_line(l);
      qn__layout_newline(l, indent);
      qn__layout_emit(l, begin++);
    }
    if (l->has_comment) qn__layout_newline(l, indent);
    if (l->pieces[begin].newline_count >= 2 && l->pieces[begin - 1].kind != QN__TOKEN_LEFT_BRACE) {
      qn__layout_blank_line(l);
      qn__layout_newline(l, indent);
    }
    qn__layout_statement(l, begin, semicolon, indent);
    qn__layout_emit(l, semicolon);
    begin = semicolon + 1;
  }
  if (begin < end && l->pieces[begin].newline_count >= 2 &&
      l->pieces[begin - 1].kind == QN__TOKEN_SEMICOLON) {
    qn__layout_blank_line(l);
  }
  lay_list(l, begin, end, indent, is_signature);
}

// Breaks a bracket.
static void lay_bracket(qn__layout_t* l, size_t open, size_t indent, bool is_signature) {
  size_t close = l->pieces[open].partner;
  size_t begin = open + 1;
  size_t inner = indent + QN__LAYOUT_INDENT;
  qn__layout_emit(l, open);
  if (begin == close) {
    qn__layout_emit(l, close);
    return;
  }
  lay_content(l, begin, close, inner, is_signature);
  qn__layout_newline(l, indent);
  qn__layout_emit(l, close);
}

// Returns the bracket to break of those between the pieces, or `end`.
static size_t widest_bracket(const qn__layout_t* l, size_t begin, size_t end,
                             qn__token_kind_t kind) {
  size_t best = end;
  size_t best_width = 0;
  for (size_t i = begin; i < end; i = step(l, i)) {
    if (l->pieces[i].kind != kind || !is_open(l, i)) continue;
    size_t width = l->pieces[l->pieces[i].partner].end - l->pieces[i].end;
    bool is_better = is_forced(l, i, l->pieces[i].partner) || width > best_width;
    if (l->pieces[i].partner == i + 1 || !is_better) continue;
    best = i;
    best_width = width;
  }
  return best;
}

// Lays out pieces that have no operators outside of brackets.
static void lay_brackets(qn__layout_t* l, size_t begin, size_t end, size_t indent, size_t tail,
                         bool is_signature) {
  while (begin < end && !fits(l, begin, end, tail)) {
    size_t open = find_kind(l, begin, end, QN__TOKEN_LEFT_BRACE);
    if (open < end) {
      size_t in = begin;
      while (in < open && !(l->pieces[in].is_reduction && l->pieces[in].partner == open)) {
        in = step(l, in);
      }
      if (in < open) {
        put(l, begin, in + 1);
        lay(l, in + 1, open, indent, indent + CONTINUATION, 2);
      } else {
        lay_brackets(l, begin, open, indent, 2, false);
      }
    } else {
      open = widest_bracket(l, begin, end, QN__TOKEN_LEFT_PAREN);
      if (open == end) open = widest_bracket(l, begin, end, QN__TOKEN_LEFT_BRACKET);
      if (open == end) break;
      put(l, begin, open);
    }
    lay_bracket(l, open, indent, is_signature);
    begin = l->pieces[open].partner + 1;
  }
  put(l, begin, end);
}

// ------------------------------------------------------------------------------------ expressions

static void lay_operands(qn__layout_t* l, size_t begin, size_t end, uint8_t level, size_t indent,
                         size_t hang, size_t tail) {
  bool was_word = false;
  for (;;) {
    size_t op = find_level(l, begin, end, level);
    size_t op_width = op < end ? width_of(l, op) : tail;
    bool is_one = is_word(l, begin, op);
    bool is_filled = was_word && is_one && !l->has_comment && fits(l, begin, op, op_width);
    if (was_word && !is_filled) {
      begin = break_line(l, begin, hang);
      indent = hang;
    }
    was_word = is_one;
    size_t line_begin = l->line_begin;
    lay(l, begin, op, indent, indent + CONTINUATION, op_width);
    if (op == end) return;
    qn__layout_emit(l, op);
    // What follows a broken bracket stays on its line.
    bool is_behind = line_begin != l->line_begin && l->pieces[op - 1].partner < op;
    begin = op + 1;
    if (is_behind && fits(l, begin, end, tail)) {
      put(l, begin, end);
      return;
    }
    if (was_word) continue;
    begin = break_line(l, begin, hang);
    indent = hang;
  }
}

// Lays an expression out whose first line begins at column `indent`. Its further operands stand at
// `hang`. `tail` columns follow it.
static void lay(qn__layout_t* l, size_t begin, size_t end, size_t indent, size_t hang,
                size_t tail) {
  size_t outer_hang = l->hang;
  l->hang = hang;
  while (begin < end && l->pieces[begin].kind == QN__TOKEN_COMMENT) {
    bool is_first = l->is_line_empty;
    if (is_first) l->hang = l->column;
    qn__layout_emit(l, begin++);
    if (is_first) qn__layout_newline(l, l->hang);
    l->hang = hang;
  }
  size_t last = end;
  while (last > begin && l->pieces[last - 1].kind == QN__TOKEN_COMMENT) last--;
  size_t open = last_bracket(l, begin, last);
  uint8_t level = lowest_level(l, begin, last);
  if (fits(l, begin, last, tail)) {
    put(l, begin, last);
  } else if (open < last && fits(l, begin, open + 1, 0)) {
    put(l, begin, open);
    lay_bracket(l, open, indent, false);
    put(l, l->pieces[open].partner + 1, last);
  } else if (level) {
    lay_operands(l, begin, last, level, indent, hang, tail);
  } else {
    lay_brackets(l, begin, last, indent, tail, false);
  }
  put(l, last, end);
  l->hang = outer_hang;
}

// Returns whether a value stays on the line of its '='.
static bool stays(const qn__layout_t* l, size_t begin, size_t end) {
  size_t last = last_bracket(l, begin, end);
  if (last < end && fits(l, begin, last + 1, 0)) return true;
  // A reduction with lets at the beginning.
  size_t first = begin;
  while (first < end && l->pieces[first].kind != QN__TOKEN_LEFT_BRACE) first++;
  if (first < end && is_open(l, first) && is_forced(l, first, l->pieces[first].partner)) {
    return fits(l, begin, first + 1, 0);
  }
  if (lowest_level(l, begin, end)) return false;
  size_t open = find_kind(l, begin, end, QN__TOKEN_LEFT_PAREN);
  if (l->pieces[begin].kind == QN__TOKEN_LEFT_BRACKET) open = begin;
  if (first < open) open = first;
  return open < end && fits(l, begin, open + 1, 0);
}

void qn__layout_statement(qn__layout_t* l, size_t begin, size_t end, size_t indent) {
  size_t tail = width_of(l, end);
  size_t deeper = indent + CONTINUATION;
  bool is_function = begin < end && qn__str_equal(l->pieces[begin].text, QN_STR("func"));
  size_t assign = find_kind(l, begin, end, QN__TOKEN_ASSIGN);
  l->hang = deeper;
  if (fits(l, begin, end, tail)) {
    put(l, begin, end);
  } else if (is_function) {
    lay_brackets(l, begin, end, indent, tail, true);
  } else if (assign == end) {
    lay(l, begin, end, indent, deeper, tail);
  } else {
    lay(l, begin, assign, indent, deeper, 2);
    qn__layout_emit(l, assign);
    begin = assign + 1;
    if (!fits(l, begin, end, tail) && !stays(l, begin, end)) {
      begin = break_line(l, begin, deeper);
      indent = deeper;
    }
    lay(l, begin, end, indent, deeper, tail);
  }
  l->hang = deeper;
}
