// SPDX-License-Identifier: Apache-2.0
// ir/format.c: the layout of the printer for texts that people write: comments, names, parentheses
// and the spelling of literals stay; blanks and line ends become canonical.
//
// Works on tokens. The text was parsed before, so that brackets match and every token stands where
// the grammar has it; names and dtypes may be wrong. Rules:
//  - One statement a line, two columns a level. Blank lines between statements become one; there is
//    none after '{' or before '}', and exactly one between functions.
//  - A comment after code stays on its line, two blanks away. A comment on a line of its own stays
//    there, at the level of the code below.
// At the end the tokens of the result are compared with those of the text. A difference would be a
// bug of this file: it becomes an error, and the program is not changed.
// Not here: statements that do not fit in a line (layout.c), trees (printer.c), dtypes that are
// written into the text before (format_types.c).
#include "ir/layout.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "ir/parser.h"
#include "ir/text.h"

enum { MAX_DEPTH = 2 * QN__NESTING_LIMIT + 8 };

typedef struct open_bracket {
  size_t at;
  bool is_block;  // of statements
} open_bracket_t;

typedef struct formatter {
  qn_str_t text;
  qn__piece_t* pieces;
  size_t count;
  size_t capacity;
  qn__layout_t layout;
  size_t indent;  // columns

  // While the pieces are read:
  open_bracket_t open[MAX_DEPTH];
  size_t open_count;
  // Reductions whose '{' is still to come: the brackets open at each, and its `in`.
  struct {
    size_t open_count;
    size_t in;
  } pending[MAX_DEPTH];
  size_t pending_count;
  uint32_t question_count;  // '?' whose ':' is still to come
  bool is_prefix;           // the last token was a prefix operator
  bool is_statement_begin;  // the next token begins one
  size_t last;              // index of the last token that is no comment; SIZE_MAX: none
  size_t before_last;
} formatter_t;

static qn_str_t text_of(const formatter_t* f, size_t i) {
  return f->pieces[i].text;
}
static bool is_word(const formatter_t* f, size_t i, const char* word) {
  return i != SIZE_MAX && f->pieces[i].kind == QN__TOKEN_NAME &&
         qn__str_equal(text_of(f, i), qn__str(word));
}
static bool is_kind(const formatter_t* f, size_t i, qn__token_kind_t kind) {
  return i != SIZE_MAX && f->pieces[i].kind == kind;
}

static qn_str_t trimmed(qn_str_t text) {
  while (text.size > 0 && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t' ||
                           text.data[text.size - 1] == '\r')) {
    text.size--;
  }
  return text;
}

static bool read_tokens(formatter_t* f, qn_allocator_t allocator) {
  qn__lexer_t lexer;
  qn__lexer_init(&lexer, f->text, NULL);
  lexer.keeps_comments = true;
  qn__token_t token;
  do {
    token = qn__lexer_next(&lexer);
    void* items = f->pieces;
    if (!qn__grow(allocator, &items, &f->capacity, f->count + 1, sizeof *f->pieces)) return false;
    f->pieces = items;
    f->pieces[f->count++] = (qn__piece_t){
        .kind = token.kind,
        .text = trimmed(qn__lexer_slice(f->text, token.loc)),
        .newline_count = token.newline_count,
        .partner = SIZE_MAX,
    };
  } while (token.kind != QN__TOKEN_END);
  return true;
}

// ------------------------------------------------------------------------------------ spacing

static bool ends_operand(const formatter_t* f, size_t i) {
  switch (f->pieces[i].kind) {
    case QN__TOKEN_NAME: {
      qn_str_t word = text_of(f, i);
      return !qn__text_is_reserved(word) || qn__text_is_literal(word);
    }
    case QN__TOKEN_INT:
    case QN__TOKEN_FLOAT:
    case QN__TOKEN_RIGHT_PAREN:
    case QN__TOKEN_RIGHT_BRACKET:
    case QN__TOKEN_RIGHT_BRACE:
      return true;
    default:
      return false;
  }
}

// Returns whether a bracket after this word touches it: a call, a conversion or an access.
static bool is_applied(const formatter_t* f, size_t i) {
  if (f->pieces[i].kind != QN__TOKEN_NAME) return false;
  qn_str_t word = text_of(f, i);
  if (qn__str_equal(word, QN_STR("bitcast"))) return true;
  return !qn__text_is_reserved(word) || qn__dtype_from_str(word) != QN_DTYPE_NONE;
}

// Returns whether the last word is the `from` or `with` of a reduction of several values, or the
// `as` of a scan.
static bool is_after_reduction(const formatter_t* f) {
  if (f->before_last == SIZE_MAX) return false;
  qn__token_kind_t before = f->pieces[f->before_last].kind;
  return (before == QN__TOKEN_RIGHT_BRACE &&
          (is_word(f, f->last, "from") || is_word(f, f->last, "as"))) ||
         (before == QN__TOKEN_RIGHT_PAREN && is_word(f, f->last, "with"));
}

static bool is_spaced(const formatter_t* f, size_t i) {
  if (f->last == SIZE_MAX) return false;
  qn__token_kind_t left = f->pieces[f->last].kind;
  qn__token_kind_t right = f->pieces[i].kind;
  if (f->is_prefix && left == QN__TOKEN_MINUS) {
    // A sign that touches a number is part of the literal; one that does not is an operator.
    bool is_number = right == QN__TOKEN_INT || right == QN__TOKEN_FLOAT || is_word(f, i, "inf");
    return is_number && text_of(f, f->last).data + 1 != text_of(f, i).data;
  }
  if (f->is_prefix || left == QN__TOKEN_LEFT_PAREN || left == QN__TOKEN_LEFT_BRACKET ||
      left == QN__TOKEN_RANGE) {
    return false;
  }
  switch (right) {
    case QN__TOKEN_RIGHT_PAREN:
    case QN__TOKEN_RIGHT_BRACKET:
    case QN__TOKEN_COMMA:
    case QN__TOKEN_SEMICOLON:
    case QN__TOKEN_RANGE:
      return false;
    case QN__TOKEN_COLON:
      return f->question_count > 0;
    case QN__TOKEN_LEFT_PAREN:
      return !is_applied(f, f->last) || is_after_reduction(f);
    case QN__TOKEN_LEFT_BRACKET:
      // `x: f32[n] strides [1]`: a name after a bracket is not a buffer.
      if (f->before_last != SIZE_MAX && f->pieces[f->before_last].kind == QN__TOKEN_RIGHT_BRACKET) {
        return true;
      }
      return !is_applied(f, f->last);
    default:
      return true;
  }
}

// ------------------------------------------------------------------------------------ structure

static void open_bracket(formatter_t* f, size_t i) {
  bool is_brace = f->pieces[i].kind == QN__TOKEN_LEFT_BRACE;
  if (is_brace && f->pending_count > 0 &&
      f->pending[f->pending_count - 1].open_count == f->open_count) {
    size_t in = f->pending[--f->pending_count].in;
    f->pieces[i].is_reduction = true;
    if (in != SIZE_MAX) {
      f->pieces[in].partner = i;
      f->pieces[in].is_reduction = true;
    }
  }
  bool is_block = is_brace && !f->pieces[i].is_reduction;
  if (QN_NEVER(f->open_count >= MAX_DEPTH)) return;
  f->open[f->open_count++] = (open_bracket_t){i, is_block};
  f->is_statement_begin = is_block;
}

static void close_bracket(formatter_t* f, size_t i) {
  bool is_block = f->open_count == 0 || f->open[f->open_count - 1].is_block;
  bool is_brace = f->pieces[i].kind == QN__TOKEN_RIGHT_BRACE;
  if (f->open_count > 0) {
    size_t open = f->open[--f->open_count].at;
    f->pieces[open].partner = i;
    f->pieces[i].partner = open;
    f->pieces[i].is_reduction = f->pieces[open].is_reduction;
  }
  f->is_statement_begin = is_brace && is_block;
}

// Notes a reduction or scan whose '{' is still to come: two names and `in`, which begin no loop, or
// the `with` before a combiner.
static void note_reduction(formatter_t* f, size_t i) {
  if (f->pending_count >= MAX_DEPTH) return;
  bool is_range = f->pieces[i + 1].kind == QN__TOKEN_NAME && is_word(f, i + 2, "in");
  bool is_combiner = is_word(f, i, "with") && is_kind(f, f->last, QN__TOKEN_RIGHT_PAREN);
  bool is_loop = f->is_statement_begin && qn__loop_from_word(text_of(f, i)) != 0;
  if (!is_combiner && (!is_range || is_loop)) return;
  f->pending[f->pending_count].open_count = f->open_count;
  f->pending[f->pending_count++].in = is_combiner ? SIZE_MAX : i + 2;
}

static uint8_t level_of(const formatter_t* f, size_t i) {
  if (f->is_prefix) return 0;
  switch (f->pieces[i].kind) {
    case QN__TOKEN_COMMA:
      // The two lists of names after `with` stand together.
      return f->pending_count > 0 && f->pending[f->pending_count - 1].open_count == f->open_count
                 ? 0
                 : QN__LEVEL_COMMA;
    case QN__TOKEN_RANGE:
      return QN__LEVEL_RANGE;
    case QN__TOKEN_COLON:
      return f->question_count > 0 ? QN__LEVEL_COLON : 0;
    case QN__TOKEN_QUESTION:
      return QN__LEVEL_QUESTION;
    default: {
      int level = qn__token_level(f->pieces[i].kind);
      return (uint8_t)(level ? QN__LEVEL_QUESTION + level : 0);
    }
  }
}

static void note_token(formatter_t* f, size_t i) {
  qn__token_kind_t kind = f->pieces[i].kind;
  bool was_operand = f->last != SIZE_MAX && ends_operand(f, f->last);
  f->is_prefix =
      kind == QN__TOKEN_NOT || kind == QN__TOKEN_TILDE || (kind == QN__TOKEN_MINUS && !was_operand);
  f->pieces[i].level = level_of(f, i);
  if (kind == QN__TOKEN_NAME) note_reduction(f, i);
  f->is_statement_begin = false;
  switch (kind) {
    case QN__TOKEN_LEFT_PAREN:
    case QN__TOKEN_LEFT_BRACKET:
    case QN__TOKEN_LEFT_BRACE:
      open_bracket(f, i);
      break;
    case QN__TOKEN_RIGHT_PAREN:
    case QN__TOKEN_RIGHT_BRACKET:
    case QN__TOKEN_RIGHT_BRACE:
      close_bracket(f, i);
      break;
    case QN__TOKEN_QUESTION:
      f->question_count++;
      break;
    case QN__TOKEN_COLON:
      if (f->question_count > 0) f->question_count--;
      break;
    case QN__TOKEN_SEMICOLON:
      f->is_statement_begin = f->open_count == 0 || f->open[f->open_count - 1].is_block;
      f->pieces[i].forced_count = !f->is_statement_begin;  // after a let of a reduction
      break;
    default:
      break;
  }
}

// Decides where blanks stand, which brackets match, and where lines may end.
static void read_structure(formatter_t* f) {
  f->last = f->before_last = SIZE_MAX;
  f->is_statement_begin = true;
  for (size_t i = 0; i < f->count; i++) {
    qn__piece_t* piece = &f->pieces[i];
    bool is_comment = piece->kind == QN__TOKEN_COMMENT;
    piece->forced_count = is_comment;
    if (!is_comment && piece->kind != QN__TOKEN_END) {
      piece->is_spaced = is_spaced(f, i);
      note_token(f, i);
      f->before_last = f->last;
      f->last = i;
    }
    piece->end = piece->is_spaced;
    for (size_t at = 0; at < piece->text.size; at++) {
      piece->end += ((uint8_t)piece->text.data[at] & 0xC0) != 0x80;
    }
    if (i > 0) {
      piece->end += piece[-1].end;
      piece->forced_count += piece[-1].forced_count;
    }
  }
}

// ------------------------------------------------------------------------------------ statements

// Returns the ';', the '{' of a block or the END that ends the statement of piece i.
static size_t find_end(const formatter_t* f, size_t i) {
  for (; f->pieces[i].kind != QN__TOKEN_END; i++) {
    const qn__piece_t* piece = &f->pieces[i];
    if (piece->kind == QN__TOKEN_SEMICOLON) break;
    if (piece->kind == QN__TOKEN_LEFT_BRACE && !piece->is_reduction) break;
    bool is_open = piece->kind == QN__TOKEN_LEFT_PAREN || piece->kind == QN__TOKEN_LEFT_BRACKET ||
                   piece->kind == QN__TOKEN_LEFT_BRACE;
    if (is_open && piece->partner != SIZE_MAX) i = piece->partner;
  }
  return i;
}

// Begins a line for piece i, after one blank line where the text has some and the rules allow it.
static void begin_line(formatter_t* f, size_t i) {
  // The end of a function, perhaps with a comment after it on its line.
  size_t before = i;
  if (before > 0) before--;
  if (before > 0 && is_kind(f, before, QN__TOKEN_COMMENT) && f->pieces[before].newline_count == 0) {
    before--;
  }
  bool was_function = i > 0 && f->indent == 0 && is_kind(f, before, QN__TOKEN_RIGHT_BRACE);
  bool is_first = i == 0 || is_kind(f, i - 1, QN__TOKEN_LEFT_BRACE);
  bool is_closing = f->pieces[i].kind == QN__TOKEN_RIGHT_BRACE;
  bool is_kept = f->pieces[i].newline_count >= 2 && !is_first && !is_closing;
  bool is_else = is_word(f, i, "else");
  if ((was_function && !is_else && !is_closing) || is_kept) qn__layout_blank_line(&f->layout);
  qn__layout_newline(&f->layout, f->indent);
}

static void format_pieces(formatter_t* f) {
  qn__layout_t* l = &f->layout;
  bool is_joined = false;  // `else` after '}'
  for (size_t i = 0; f->pieces[i].kind != QN__TOKEN_END && !l->out->has_failed;) {
    const qn__piece_t* piece = &f->pieces[i];
    if (piece->kind == QN__TOKEN_COMMENT) {
      if (piece->newline_count > 0 || i == 0) begin_line(f, i);
      qn__layout_emit(l, i++);
      continue;
    }
    if (piece->kind == QN__TOKEN_RIGHT_BRACE) {
      if (f->indent >= QN__LAYOUT_INDENT) f->indent -= QN__LAYOUT_INDENT;
      begin_line(f, i);
      qn__layout_emit(l, i++);
      is_joined = is_word(f, i, "else");
      continue;
    }
    if (!is_joined) begin_line(f, i);
    is_joined = false;
    size_t end = find_end(f, i);
    qn__layout_statement(l, i, end, f->indent);
    if (f->pieces[end].kind == QN__TOKEN_END) break;
    qn__layout_emit(l, end);
    if (f->pieces[end].kind == QN__TOKEN_LEFT_BRACE) f->indent += QN__LAYOUT_INDENT;
    i = end + 1;
  }
}

// ------------------------------------------------------------------------------------ entry

// Returns whether both texts have the same tokens, comments included.
static bool is_same(const formatter_t* f, qn_str_t result) {
  qn__lexer_t lexer;
  qn__lexer_init(&lexer, result, NULL);
  lexer.keeps_comments = true;
  for (size_t i = 0; i < f->count; i++) {
    qn__token_t token = qn__lexer_next(&lexer);
    if (token.kind != f->pieces[i].kind) return false;
    if (!qn__str_equal(qn__lexer_slice(result, token.loc), text_of(f, i))) return false;
  }
  return true;
}

// Appends the text, laid out from the column on.
static qn_status_t format(qn_str_t text, size_t column, qn_allocator_t allocator,
                          qn__buffer_t* out) {
  formatter_t* f = qn__alloc_zero(allocator, 1, sizeof *f);
  if (!f) return qn__out_of_memory("formatting a text");
  size_t begin = out->size;
  f->text = text;
  f->indent = column;
  f->layout = (qn__layout_t){.out = out, .line_begin = begin, .is_line_empty = true};
  bool is_read = read_tokens(f, allocator);
  f->layout.pieces = f->pieces;
  if (is_read) {
    read_structure(f);
    format_pieces(f);
  }
  qn_status_t status = QN_OK;
  if (!is_read || out->has_failed) {
    status = qn__out_of_memory("formatting a text");
  } else if (QN_NEVER(!is_same(f, (qn_str_t){(const char*)out->data + begin, out->size - begin}))) {
    status = qn_status_make(QN_STATUS_INTERNAL, "formatting would have changed the text");
  }
  qn__free(allocator, f->pieces, f->capacity * sizeof *f->pieces);
  qn__free(allocator, f, sizeof *f);
  return status;
}

qn_status_t qn__text_format(qn_str_t text, qn_allocator_t allocator, qn__buffer_t* out) {
  qn__buffer_bytes(out, "", 0);
  qn_status_t status = format(text, 0, allocator, out);
  if (qn_ok(status) && out->size > 0) qn__buffer_char(out, '\n');
  return qn_ok(status) && out->has_failed ? qn__out_of_memory("formatting a text") : status;
}

void qn__text_wrap(qn__buffer_t* out, size_t begin) {
  if (out->has_failed) return;
  qn_str_t line = {(const char*)out->data + begin, out->size - begin};
  if (line.size <= QN__LAYOUT_COLUMNS && !memchr(line.data, '\n', line.size)) return;
  size_t column = 0;
  while (column < line.size && line.data[column] == ' ') column++;
  // A '}' that begins a line closes a block that is one level deeper.
  size_t inner = column + (line.data[column] == '}' ? QN__LAYOUT_INDENT : 0);
  qn__buffer_t wrapped;
  qn__buffer_init(&wrapped, out->allocator);
  qn_status_t status = format(line, inner, out->allocator, &wrapped);
  if (qn_ok(status)) {
    out->size = begin;
    qn__buffer_bytes(out, wrapped.data, wrapped.size);
  } else {
    out->has_failed = true;
  }
  qn_status_free(status);
  qn__buffer_deinit(&wrapped);
}

// Formats a text, with a dtype for each let if it `has_types`.
static qn_status_t format_text(const char* text, size_t size, const qn_parse_options_t* options,
                               bool has_types, char** out_text, size_t* out_size) {
  *out_text = NULL;
  if (out_size) *out_size = 0;
  if (!text && size > 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "text is NULL, its size is %zu", size);
  }
  QN_STRUCT_READ(qn_parse_options_t, options, given);
  qn_allocator_t allocator = given.allocator.reallocate ? given.allocator : qn_allocator_default();
  qn_str_t source = qn__lexer_skip_mark((qn_str_t){text ? text : "", size});
  qn__diag_t diag;
  qn__diag_init(&diag, allocator, &given, given.source_name, source);
  qn__buffer_t typed;
  qn__buffer_init(&typed, allocator);
  bool is_good = has_types ? qn__text_write_dtypes(source, allocator, &diag, &typed)
                           : qn__text_check_grammar(source, allocator, &diag);
  qn_status_t status = qn__diag_status(&diag, QN_STATUS_SYNTAX);
  if (qn_ok(status) && !is_good) status = qn__out_of_memory("formatting a text");
  qn__diag_deinit(&diag);
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  if (has_types) source = qn__buffer_as_str(&typed);
  if (qn_ok(status)) status = qn__text_format(source, allocator, &out);
  qn__buffer_deinit(&typed);
  if (qn_ok(status)) return qn__text_give(&out, "formatting a text", out_text, out_size);
  qn__buffer_deinit(&out);
  return status;
}

qn_status_t qn_text_format(const char* text, size_t size, const qn_parse_options_t* options,
                           char** out_text, size_t* out_size) {
  QN_REQUIRE(out_text);
  return format_text(text, size, options, false, out_text, out_size);
}

qn_status_t qn_text_format_types(const char* text, size_t size, const qn_parse_options_t* options,
                                 char** out_text, size_t* out_size) {
  QN_REQUIRE(out_text);
  return format_text(text, size, options, true, out_text, out_size);
}
