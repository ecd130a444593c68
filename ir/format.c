// ir/format.c: the layout of the printer for texts that people write: comments, names, parentheses
// and the spelling of literals stay; blanks and line ends become canonical.
//
// Works on tokens. The text was parsed before, so that brackets match and every token stands where
// the grammar has it. Rules:
//  - One statement a line, two columns a level. Blank lines between statements become one; there is
//    none after '{' or before '}', and exactly one between functions.
//  - A comment after code stays on its line, two blanks away. A comment on a line of its own stays
//    there, at the level of the code below. Inside a statement a comment ends the line, and the
//    statement continues four columns deeper.
//  - A reduction is written on one line unless it has lets or begins with a comment.
// At the end the tokens of the result are compared with those of the text. A difference would be a
// bug of this file: it becomes an error, and the program is not changed.
// Not here: wrapping (layout.c), trees (printer.c).
#include <assert.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "ir/layout.h"
#include "ir/lexer.h"
#include "ir/parser.h"
#include "ir/text.h"

enum { MAX_DEPTH = 2 * QN__NESTING_LIMIT + 8, CONTINUATION_COLUMNS = 4 };

typedef enum brace {
  BRACE_BLOCK,   // statements
  BRACE_LINES,   // a reduction over several lines
  BRACE_INLINE,  // a reduction on one line
} brace_t;

typedef struct formatter {
  qn_str_t text;
  qn__token_t* tokens;  // with comments and END
  size_t count;
  size_t capacity;
  qn__buffer_t* out;
  size_t line_begin;
  bool is_line_empty;  // nothing but indent was written to the line
  bool has_comment;    // the line ends with a comment
  uint32_t indent;
  brace_t braces[MAX_DEPTH];
  uint32_t brace_count;
  uint32_t bracket_depth;
  // Reductions whose '{' is still to come: the bracket depth of each.
  uint32_t pending[MAX_DEPTH];
  uint32_t pending_count;
  uint32_t question_count;  // '?' whose ':' is still to come
  bool is_prefix;           // the last token was a prefix operator
  bool is_statement_open;   // in the middle of one
  size_t last;              // index of the last token that is no comment; SIZE_MAX: none
  size_t before_last;
} formatter_t;

static qn_str_t text_of(const formatter_t* f, size_t i) {
  return qn__lexer_slice(f->text, f->tokens[i].loc);
}
static bool is_word(const formatter_t* f, size_t i, const char* word) {
  return f->tokens[i].kind == QN__TOKEN_NAME && qn__str_equal(text_of(f, i), qn__str(word));
}

static bool read_tokens(formatter_t* f, qn_allocator_t allocator) {
  qn__lexer_t lexer;
  qn__lexer_init(&lexer, f->text, NULL);
  lexer.keeps_comments = true;
  qn__token_t token;
  do {
    token = qn__lexer_next(&lexer);
    void* items = f->tokens;
    if (!qn__grow(allocator, &items, &f->capacity, f->count + 1, sizeof token)) return false;
    f->tokens = items;
    f->tokens[f->count++] = token;
  } while (token.kind != QN__TOKEN_END);
  return true;
}

// ------------------------------------------------------------------------------------ lines

static void end_line(formatter_t* f) {
  if (!f->has_comment) qn__layout_wrap(f->out, f->line_begin);
}

static void new_line(formatter_t* f, uint32_t columns) {
  if (f->out->size > 0) {
    end_line(f);
    qn__buffer_char(f->out, '\n');
  }
  f->line_begin = f->out->size;
  f->has_comment = false;
  f->is_line_empty = true;
  for (uint32_t i = 0; i < columns; i++) qn__buffer_char(f->out, ' ');
}

static uint32_t columns_of(const formatter_t* f) {
  return f->indent * QN__LAYOUT_INDENT + (f->is_statement_open ? CONTINUATION_COLUMNS : 0);
}

static void blank_line(formatter_t* f) {
  // The line that follows is begun by the caller.
  end_line(f);
  qn__buffer_char(f->out, '\n');
  f->line_begin = f->out->size;
  f->has_comment = true;
}

// ------------------------------------------------------------------------------------ spacing

static bool ends_operand(const formatter_t* f, size_t i) {
  switch (f->tokens[i].kind) {
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
  if (f->tokens[i].kind != QN__TOKEN_NAME) return false;
  qn_str_t word = text_of(f, i);
  if (qn__str_equal(word, QN_STR("bitcast"))) return true;
  return !qn__text_is_reserved(word) || qn__dtype_from_str(word) != QN_DTYPE_NONE;
}

// Returns whether the last word is the `from` or `with` of a reduction of several values.
static bool is_after_reduction(const formatter_t* f) {
  if (f->before_last == SIZE_MAX) return false;
  qn__token_kind_t before = f->tokens[f->before_last].kind;
  return (before == QN__TOKEN_RIGHT_BRACE && is_word(f, f->last, "from")) ||
         (before == QN__TOKEN_RIGHT_PAREN && is_word(f, f->last, "with"));
}

static bool is_spaced(const formatter_t* f, size_t i) {
  qn__token_kind_t left = f->tokens[f->last].kind;
  qn__token_kind_t right = f->tokens[i].kind;
  if (f->is_prefix && left == QN__TOKEN_MINUS) {
    // A sign that touches a number is part of the literal; one that does not is an operator.
    bool is_number = right == QN__TOKEN_INT || right == QN__TOKEN_FLOAT || is_word(f, i, "inf");
    return is_number && f->tokens[f->last].loc.begin + 1 != f->tokens[i].loc.begin;
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
      if (f->before_last != SIZE_MAX && f->tokens[f->before_last].kind == QN__TOKEN_RIGHT_BRACKET) {
        return true;
      }
      return !is_applied(f, f->last);
    default:
      return true;
  }
}

// ------------------------------------------------------------------------------------ comments

static qn_str_t trimmed(qn_str_t text) {
  while (text.size > 0 && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t' ||
                           text.data[text.size - 1] == '\r')) {
    text.size--;
  }
  return text;
}

static void write_comment(formatter_t* f, size_t i) {
  // After an operand `//` would divide.
  bool is_trailing = f->tokens[i].newline_count == 0 && !f->is_line_empty && !f->has_comment &&
                     f->last != SIZE_MAX;
  if (is_trailing) {
    qn__layout_wrap(f->out, f->line_begin);
    qn__buffer_cstr(f->out, "  ");
  } else if (!f->is_line_empty || f->out->size == 0) {
    new_line(f, columns_of(f));
  }
  qn__buffer_str(f->out, trimmed(text_of(f, i)));
  f->is_line_empty = false;
  f->has_comment = true;
}

// ------------------------------------------------------------------------------------ tokens

static void write_token(formatter_t* f, size_t i) {
  if (!f->is_line_empty && is_spaced(f, i)) qn__buffer_char(f->out, ' ');
  qn__buffer_str(f->out, text_of(f, i));
  f->is_line_empty = false;
  f->is_statement_open = true;
}

// Returns whether token i, which is no comment, begins a line because of the token before it.
static bool begins_line(const formatter_t* f, size_t i) {
  if (f->last == SIZE_MAX || f->has_comment) return true;
  qn__token_kind_t left = f->tokens[f->last].kind;
  bool is_inline = f->brace_count > 0 && f->braces[f->brace_count - 1] == BRACE_INLINE;
  if (f->tokens[i].kind == QN__TOKEN_RIGHT_BRACE) return !is_inline;
  if (left == QN__TOKEN_SEMICOLON) return true;
  if (left == QN__TOKEN_LEFT_BRACE) return !is_inline;
  if (left == QN__TOKEN_RIGHT_BRACE) return !f->is_statement_open && !is_word(f, i, "else");
  return false;
}

static void open_brace(formatter_t* f, size_t i) {
  brace_t brace = BRACE_BLOCK;
  if (f->pending_count > 0 && f->pending[f->pending_count - 1] == f->bracket_depth) {
    f->pending_count--;
    bool has_lines = is_word(f, i + 1, "let") || f->tokens[i + 1].kind == QN__TOKEN_COMMENT;
    brace = has_lines ? BRACE_LINES : BRACE_INLINE;
  }
  if (f->brace_count < MAX_DEPTH) f->braces[f->brace_count++] = brace;
  if (brace != BRACE_INLINE) {
    f->indent++;
    f->is_statement_open = false;
  }
}

// Returns whether the next '{' of this depth belongs to a reduction: after `sum i`, and after the
// `with` of a reduction of several values.
static bool opens_reduction(const formatter_t* f, size_t i) {
  qn_str_t word = text_of(f, i);
  if (is_word(f, i, "with")) {
    return f->last != SIZE_MAX && f->tokens[f->last].kind == QN__TOKEN_RIGHT_PAREN;
  }
  return f->tokens[i + 1].kind == QN__TOKEN_NAME && !is_word(f, i + 1, "in") &&
         (qn__reduce_from_word(word) || qn__word_find(qn__several_text, word));
}

static void note_token(formatter_t* f, size_t i) {
  qn__token_kind_t kind = f->tokens[i].kind;
  bool was_operand = f->last != SIZE_MAX && ends_operand(f, f->last);
  f->is_prefix =
      kind == QN__TOKEN_NOT || kind == QN__TOKEN_TILDE || (kind == QN__TOKEN_MINUS && !was_operand);
  switch (kind) {
    case QN__TOKEN_LEFT_PAREN:
    case QN__TOKEN_LEFT_BRACKET:
      f->bracket_depth++;
      break;
    case QN__TOKEN_RIGHT_PAREN:
    case QN__TOKEN_RIGHT_BRACKET:
      if (f->bracket_depth > 0) f->bracket_depth--;
      break;
    case QN__TOKEN_QUESTION:
      f->question_count++;
      break;
    case QN__TOKEN_COLON:
      if (f->question_count > 0) f->question_count--;
      break;
    case QN__TOKEN_SEMICOLON:
      f->is_statement_open = false;
      break;
    case QN__TOKEN_NAME:
      if (opens_reduction(f, i) && f->pending_count < MAX_DEPTH) {
        f->pending[f->pending_count++] = f->bracket_depth;
      }
      break;
    default:
      break;
  }
}

// Writes one blank line where the text has some and the rules allow it.
static void keep_blank_line(formatter_t* f, size_t i) {
  if (f->out->size == 0) return;
  qn__token_kind_t kind = f->tokens[i].kind;
  bool is_top = f->brace_count == 0;
  // The end of a function, perhaps with a comment after it on its line.
  bool is_behind = f->last != SIZE_MAX && i > 0 &&
                   (f->last == i - 1 || (f->last == i - 2 && f->tokens[i - 1].newline_count == 0));
  bool was_function = is_top && is_behind && f->tokens[f->last].kind == QN__TOKEN_RIGHT_BRACE;
  bool is_first = f->last != SIZE_MAX && i > 0 && f->last == i - 1 &&
                  f->tokens[f->last].kind == QN__TOKEN_LEFT_BRACE;
  bool is_kept = f->tokens[i].newline_count >= 2 && !is_first && kind != QN__TOKEN_RIGHT_BRACE &&
                 !f->is_statement_open;
  if (was_function || is_kept) blank_line(f);
}

static void format_tokens(formatter_t* f) {
  f->last = f->before_last = SIZE_MAX;
  f->is_line_empty = true;
  for (size_t i = 0; i + 1 < f->count && !f->out->has_failed; i++) {
    qn__token_kind_t kind = f->tokens[i].kind;
    if (kind == QN__TOKEN_COMMENT) {
      bool is_own_line = f->tokens[i].newline_count > 0 || f->has_comment;
      if (is_own_line && f->out->size > 0) {
        keep_blank_line(f, i);
        new_line(f, columns_of(f));
      }
      write_comment(f, i);
      continue;
    }
    brace_t closed = BRACE_BLOCK;
    bool begins = begins_line(f, i);
    if (kind == QN__TOKEN_RIGHT_BRACE && f->brace_count > 0) {
      closed = f->braces[f->brace_count - 1];
      if (closed != BRACE_INLINE) {
        assert(f->indent > 0);
        f->indent--;
        f->is_statement_open = false;
      }
    }
    if (begins) {
      keep_blank_line(f, i);
      if (f->out->size > 0) new_line(f, columns_of(f));
    }
    write_token(f, i);
    note_token(f, i);
    if (kind == QN__TOKEN_LEFT_BRACE) open_brace(f, i);
    if (kind == QN__TOKEN_RIGHT_BRACE && f->brace_count > 0) {
      f->brace_count--;
      // A reduction is a part of its statement, a block is the end of one.
      f->is_statement_open = closed != BRACE_BLOCK;
    }
    f->before_last = f->last;
    f->last = i;
  }
  end_line(f);
  if (f->out->size > 0) qn__buffer_char(f->out, '\n');
}

// ------------------------------------------------------------------------------------ entry

// Returns whether both texts have the same tokens, comments included.
static bool is_same(const formatter_t* f, qn_str_t result) {
  qn__lexer_t lexer;
  qn__lexer_init(&lexer, result, NULL);
  lexer.keeps_comments = true;
  for (size_t i = 0; i < f->count; i++) {
    qn__token_t token = qn__lexer_next(&lexer);
    if (token.kind != f->tokens[i].kind) return false;
    if (!qn__str_equal(trimmed(qn__lexer_slice(result, token.loc)), trimmed(text_of(f, i)))) {
      return false;
    }
  }
  return true;
}

qn_status_t qn__text_format(qn_str_t text, qn_allocator_t allocator, qn__buffer_t* out) {
  formatter_t* f = qn__alloc_zero(allocator, 1, sizeof *f);
  if (!f) return qn__out_of_memory("formatting a text");
  f->text = text;
  f->out = out;
  qn__buffer_bytes(out, "", 0);
  qn_status_t status = QN_OK;
  if (read_tokens(f, allocator)) format_tokens(f);
  if (f->capacity == 0 || f->count == 0 || f->tokens[f->count - 1].kind != QN__TOKEN_END ||
      out->has_failed) {
    status = qn__out_of_memory("formatting a text");
  } else if (QN_NEVER(!is_same(f, qn__buffer_as_str(out)))) {
    status = qn_status_make(QN_STATUS_INTERNAL, "formatting would have changed the text");
  }
  qn__free(allocator, f->tokens, f->capacity * sizeof *f->tokens);
  qn__free(allocator, f, sizeof *f);
  return status;
}

qn_status_t qn_text_format(const char* text, size_t size, const qn_parse_options_t* options,
                           char** out_text, size_t* out_size) {
  QN_REQUIRE(out_text);
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
  qn__ir_body_t body;
  (void)qn__text_parse(source, allocator, &diag, &body);
  qn_status_t status = qn__diag_status(&diag, QN_STATUS_SYNTAX);
  qn__body_deinit(&body);
  qn__diag_deinit(&diag);
  if (!qn_ok(status)) return status;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  status = qn__text_format(source, allocator, &out);
  if (!qn_ok(status)) {
    qn__buffer_deinit(&out);
    return status;
  }
  return qn__text_give(&out, "formatting a text", out_text, out_size);
}
