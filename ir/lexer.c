// SPDX-License-Identifier: Apache-2.0
// ir/lexer.c: the text of a module as tokens.
//
// Not here: grammar (parser.c). One rule needs a word: `//` is both floor division and the start of
// a comment. It divides exactly where an operand has just ended on the same line (a name, a number,
// `)` or `]`); everywhere else a comment starts. So `r // s` divides, and a comment after `;`, `{`,
// `}`, `,` or on its own line is a comment.
#include <assert.h>

#include "ir/lexer.h"

#include <stdio.h>

#include "base/escape.h"
#include "ir/codes.h"

void qn__lexer_init(qn__lexer_t* lexer, qn_str_t text, qn__diag_t* diag) {
  *lexer =
      (qn__lexer_t){.text = text, .last = QN__TOKEN_END, .diag = diag, .error_begin = UINT32_MAX};
}

static const char* const token_texts[] = {
#define QN_TOKEN(name, text) text,
    QN__TOKENS(QN_TOKEN)
#undef QN_TOKEN
};

const char* qn__token_text(qn__token_kind_t kind) {
  return QN_NEVER((size_t)kind >= QN_COUNT_OF(token_texts)) ? "" : token_texts[kind];
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
static bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_name_char(char c) {
  return is_name_start(c) || is_digit(c);
}
static int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool qn__text_is_reserved(qn_str_t text) {
  static const char* const words[] = {
      "func",   "in",     "out",   "inout", "let",    "if",    "else",     "for",    "parallel",
      "vector", "unroll", "while", "alloc", "const",  "view",  "barrier",  "assert", "bitcast",
      "true",   "false",  "inf",   "nan",   "return", "break", "continue",
  };
  for (size_t i = 0; i < QN_COUNT_OF(words); i++) {
    if (qn__word_is(text, words[i])) return true;
  }
  return qn__dtype_from_str(text) != QN_DTYPE_NONE;
}

bool qn__text_is_literal(qn_str_t text) {
  return qn__str_equal(text, QN_STR("true")) || qn__str_equal(text, QN_STR("false")) ||
         qn__str_equal(text, QN_STR("inf")) || qn__str_equal(text, QN_STR("nan"));
}

bool qn__text_is_name(qn_str_t text) {
  if (text.size == 0 || !is_name_start(text.data[0])) return false;
  for (size_t i = 1; i < text.size; i++) {
    if (!is_name_char(text.data[i])) return false;
  }
  return !qn__text_is_reserved(text);
}

bool qn__lexer_check(qn_str_t text, qn__diag_t* diag) {
  if (text.size >= (size_t)1 << 31) {
    qn__diag_report(diag, QN_SEVERITY_ERROR, qn__code(QN__CODE_TOO_LARGE), (qn__ir_loc_t){0, 0},
                    "split the module", "the text has %zu bytes, the limit is 2147483647",
                    text.size);
    return false;
  }
  for (size_t i = 0; i < text.size;) {
    uint32_t code = 0;
    size_t size = (uint8_t)text.data[i] < 0x80
                      ? 1
                      : qn__utf8_decode((qn_str_t){text.data + i, text.size - i}, &code);
    if (size == 0) {
      qn__diag_report(diag, QN_SEVERITY_ERROR, qn__code(QN__CODE_BAD_UTF8),
                      (qn__ir_loc_t){(uint32_t)i, 1}, "save the file as UTF-8",
                      "byte 0x%02x is not valid UTF-8", (unsigned)(uint8_t)text.data[i]);
      return false;
    }
    i += size;
  }
  return true;
}

// ------------------------------------------------------------------------------------ pieces

static char peek(const qn__lexer_t* lexer, uint32_t ahead) {
  size_t at = (size_t)lexer->offset + ahead;
  return at < lexer->text.size ? lexer->text.data[at] : '\0';
}

static void report(qn__lexer_t* lexer, qn__ir_code_t code, uint32_t begin, uint32_t end,
                   const char* help, const char* what) {
  if (!lexer->diag) return;
  lexer->error_begin = begin;
  qn__diag_report(lexer->diag, QN_SEVERITY_ERROR, qn__code(code),
                  (qn__ir_loc_t){begin, end - begin}, help, "%s", what);
}

// Digits with single "_" between them. Returns false when there is none or a "_" stands badly.
static bool skip_digits(qn__lexer_t* lexer, int base) {
  bool is_good = true;
  char before = '_';
  for (;;) {
    char c = peek(lexer, 0);
    int value = hex_value(c);
    if (c == '_') {
      is_good = is_good && before != '_';
    } else if (value < 0 || value >= base) {
      break;
    }
    before = c;
    lexer->offset++;
  }
  return is_good && before != '_';
}

static qn__token_kind_t lex_number(qn__lexer_t* lexer) {
  uint32_t begin = lexer->offset;
  qn__token_kind_t kind = QN__TOKEN_INT;
  bool is_good;
  char prefix = peek(lexer, 0) == '0' ? peek(lexer, 1) : '\0';
  if (prefix == 'x' || prefix == 'b') {
    lexer->offset += 2;
    is_good = skip_digits(lexer, prefix == 'x' ? 16 : 2);
  } else {
    is_good = skip_digits(lexer, 10);
    if (peek(lexer, 0) == '.' && peek(lexer, 1) != '.') {
      kind = QN__TOKEN_FLOAT;
      lexer->offset++;
      is_good = skip_digits(lexer, 10) && is_good;
    }
    if (peek(lexer, 0) == 'e' || peek(lexer, 0) == 'E') {
      kind = QN__TOKEN_FLOAT;
      lexer->offset++;
      if (peek(lexer, 0) == '+' || peek(lexer, 0) == '-') lexer->offset++;
      is_good = skip_digits(lexer, 10) && is_good;
    }
  }
  if (is_name_char(peek(lexer, 0))) {
    uint32_t suffix = lexer->offset;
    while (is_name_char(peek(lexer, 0))) lexer->offset++;
    report(lexer, QN__CODE_BAD_NUMBER, begin, lexer->offset,
           prefix == 'b' || prefix == 'x' || is_digit(lexer->text.data[suffix])
               ? "digits of the number's base, with single '_' between them"
               : "a dtype is written around a number, as in f64(0.5)",
           "malformed number");
  } else if (!is_good) {
    report(lexer, QN__CODE_BAD_NUMBER, begin, lexer->offset,
           kind == QN__TOKEN_FLOAT
               ? "digits stand on both sides of '.' and after 'e', as in 1.0 or 5e-3"
               : "digits of the number's base, with single '_' between them",
           "malformed number");
  }
  return kind;
}

static void lex_string(qn__lexer_t* lexer) {
  uint32_t begin = lexer->offset++;
  for (;;) {
    char c = peek(lexer, 0);
    if (lexer->offset >= lexer->text.size || c == '\n') {
      report(lexer, QN__CODE_BAD_STRING, begin, lexer->offset,
             "close it with '\"' on the same line", "the string does not end");
      return;
    }
    lexer->offset++;
    if (c == '"') return;
    if (c != '\\') continue;
    char escape = peek(lexer, 0);
    if (escape == '"' || escape == '\\' || escape == 'n' || escape == 't') {
      lexer->offset++;
    } else if (escape == 'x' && hex_value(peek(lexer, 1)) >= 0 && hex_value(peek(lexer, 2)) >= 0 &&
               !(peek(lexer, 1) == '0' && peek(lexer, 2) == '0')) {
      lexer->offset += 3;
    } else {
      report(lexer, QN__CODE_BAD_STRING, lexer->offset - 1,
             lexer->offset + (escape != '\0' && escape != '\n'),
             "known are \\\" \\\\ \\n \\t and \\x with two hex digits (not 00)",
             "unknown escape in a string");
    }
  }
}

static void lex_name(qn__lexer_t* lexer) {
  uint32_t begin = lexer->offset;
  while (is_name_char(peek(lexer, 0))) lexer->offset++;
  // block.x and its like are one word.
  qn_str_t word = qn__lexer_slice(lexer->text, (qn__ir_loc_t){begin, lexer->offset - begin});
  char axis = peek(lexer, 1);
  if (peek(lexer, 0) == '.' && (axis == 'x' || axis == 'y' || axis == 'z') &&
      !is_name_char(peek(lexer, 2)) &&
      (qn__str_equal(word, QN_STR("block")) || qn__str_equal(word, QN_STR("thread")))) {
    lexer->offset += 2;
  }
}

// Finds the longest token of the texts of QN__TOKENS, which stand in quotes there.
static qn__token_kind_t lex_punctuation(qn__lexer_t* lexer) {
  qn__token_kind_t found = QN__TOKEN_COUNT;
  uint32_t found_size = 0;
  char first = peek(lexer, 0);
  char second = peek(lexer, 1);
  for (int kind = QN__TOKEN_LEFT_PAREN; kind < QN__TOKEN_COUNT; kind++) {
    const char* text = token_texts[kind] + 1;
    if (text[0] != first) continue;
    uint32_t size = text[1] == '\'' ? 1 : 2;
    if ((size == 2 && text[1] != second) || size < found_size) continue;
    found = (qn__token_kind_t)kind;
    found_size = size;
  }
  lexer->offset += found_size;
  return found;
}

// Reports a run of characters that start no token, and skips it.
static void skip_strange(qn__lexer_t* lexer) {
  uint32_t code = 0;
  uint32_t begin = lexer->offset;
  uint32_t size = (uint32_t)qn__utf8_decode(
      (qn_str_t){lexer->text.data + begin, lexer->text.size - begin}, &code);
  lexer->offset += size ? size : 1;
  const char* help = NULL;
  if (code == '.') help = "a range is written with two dots, a number with digits on both sides";
  if (code == '#') help = "comments start with //";
  if (code == '\'') help = "write strings in double quotes";
  if (code == 0xD7) help = "write *";
  if (code == 0x2212) help = "write -";
  char what[64];
  if (code < 0x20 || code == 0x7F) {
    (void)snprintf(what, sizeof what, "unexpected control character U+%04X", (unsigned)code);
  } else {
    (void)snprintf(what, sizeof what, "unexpected character '%.*s'", (int)(lexer->offset - begin),
                   lexer->text.data + begin);
  }
  report(lexer, QN__CODE_BAD_CHARACTER, begin, lexer->offset, help, what);
}

// Reports and skips a comment in the style of C, over several lines if it is closed.
static void skip_block_comment(qn__lexer_t* lexer) {
  uint32_t begin = lexer->offset;
  uint32_t line_end = 0;
  for (lexer->offset += 2; lexer->offset < lexer->text.size; lexer->offset++) {
    if (peek(lexer, 0) == '\n' && !line_end) line_end = lexer->offset;
    if (peek(lexer, 0) == '*' && peek(lexer, 1) == '/') break;
  }
  if (lexer->offset < lexer->text.size) {
    lexer->offset += 2;
  } else if (line_end) {
    lexer->offset = line_end;
  }
  report(lexer, QN__CODE_BAD_CHARACTER, begin, begin + 2, "comments start with //",
         "block comments are not part of the language");
}

// ------------------------------------------------------------------------------------ tokens

static bool divides_here(const qn__lexer_t* lexer, uint32_t newline_count) {
  if (newline_count != 0) return false;
  switch (lexer->last) {
    case QN__TOKEN_NAME:
      return !lexer->is_last_reserved;
    case QN__TOKEN_INT:
    case QN__TOKEN_FLOAT:
    case QN__TOKEN_RIGHT_PAREN:
    case QN__TOKEN_RIGHT_BRACKET:
      return true;
    default:
      return false;
  }
}

static qn__token_t finish(qn__lexer_t* lexer, qn__token_kind_t kind, uint32_t begin,
                          uint32_t newline_count) {
  assert(begin <= lexer->offset && lexer->offset <= lexer->text.size);
  if (kind != QN__TOKEN_COMMENT) lexer->last = kind;
  return (qn__token_t){kind, {begin, lexer->offset - begin}, newline_count};
}

qn__token_t qn__lexer_next(qn__lexer_t* lexer) {
  uint32_t newline_count = 0;
  for (;;) {
    if (lexer->offset >= lexer->text.size) {
      return finish(lexer, QN__TOKEN_END, (uint32_t)lexer->text.size, newline_count);
    }
    char c = peek(lexer, 0);
    uint32_t begin = lexer->offset;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      newline_count += c == '\n';
      lexer->offset++;
    } else if (c == '/' && peek(lexer, 1) == '/' && !divides_here(lexer, newline_count)) {
      while (lexer->offset < lexer->text.size && peek(lexer, 0) != '\n') lexer->offset++;
      if (lexer->keeps_comments) return finish(lexer, QN__TOKEN_COMMENT, begin, newline_count);
    } else if (c == '/' && peek(lexer, 1) == '*') {
      skip_block_comment(lexer);
    } else if (is_name_start(c)) {
      lex_name(lexer);
      // A word after a bracket (`fast`, `strides`, `in`) is no operand either.
      bool is_behind_bracket =
          lexer->last == QN__TOKEN_RIGHT_PAREN || lexer->last == QN__TOKEN_RIGHT_BRACKET;
      qn__token_t token = finish(lexer, QN__TOKEN_NAME, begin, newline_count);
      qn_str_t word = qn__lexer_slice(lexer->text, token.loc);
      lexer->is_last_reserved =
          is_behind_bracket || (qn__text_is_reserved(word) && !qn__text_is_literal(word));
      return token;
    } else if (is_digit(c)) {
      qn__token_kind_t kind = lex_number(lexer);
      return finish(lexer, kind, begin, newline_count);
    } else if (c == '"') {
      lex_string(lexer);
      return finish(lexer, QN__TOKEN_STRING, begin, newline_count);
    } else {
      qn__token_kind_t kind = lex_punctuation(lexer);
      if (kind != QN__TOKEN_COUNT) return finish(lexer, kind, begin, newline_count);
      skip_strange(lexer);
    }
  }
}

// ------------------------------------------------------------------------------------ values

bool qn__lexer_int(qn_str_t token, uint64_t* out_value) {
  uint64_t base = 10;
  size_t i = 0;
  if (token.size > 2 && token.data[0] == '0' && (token.data[1] == 'x' || token.data[1] == 'b')) {
    base = token.data[1] == 'x' ? 16 : 2;
    i = 2;
  }
  uint64_t value = 0;
  for (; i < token.size; i++) {
    int digit = hex_value(token.data[i]);
    if (digit < 0) continue;  // "_", or a mistake that was reported
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, (uint64_t)digit, &value)) {
      return false;
    }
  }
  *out_value = value;
  return true;
}

void qn__lexer_unescape(qn_str_t token, qn__buffer_t* out) {
  qn__buffer_bytes(out, "", 0);
  for (size_t i = 1; i + 1 < token.size; i++) {
    char c = token.data[i];
    if (c == '\\' && i + 2 < token.size) {
      c = token.data[++i];
      if (c == 'n') c = '\n';
      if (c == 't') c = '\t';
      if (c == 'x' && i + 3 < token.size) {
        c = (char)(uint8_t)(hex_value(token.data[i + 1]) * 16 + hex_value(token.data[i + 2]));
        i += 2;
      }
    }
    qn__buffer_char(out, c);
  }
}

void qn__lexer_escape(qn_str_t bytes, qn__buffer_t* out) {
  qn__buffer_char(out, '"');
  for (size_t i = 0; i < bytes.size;) {
    uint32_t code = 0;
    size_t size = qn__utf8_decode((qn_str_t){bytes.data + i, bytes.size - i}, &code);
    char c = bytes.data[i];
    if (size == 0 || (code < 0x20 && c != '\n' && c != '\t') || code == 0x7F) {
      qn__buffer_format(out, "\\x%02x", (unsigned)(uint8_t)c);
      i++;
      continue;
    }
    if (c == '"' || c == '\\' || c == '\n' || c == '\t') {
      qn__buffer_char(out, '\\');
      qn__buffer_char(out, c == '\n' ? 'n' : c == '\t' ? 't' : c);
    } else {
      qn__buffer_bytes(out, bytes.data + i, size);
    }
    i += size;
  }
  qn__buffer_char(out, '"');
}
