// SPDX-License-Identifier: Apache-2.0
// ir/lexer.h: the text of a module as tokens.
//
// The lexer reports errors inside a token and continues. Not here: the grammar (parser.c), and the
// layout of messages (diag.c).
#ifndef QUERN_IR_LEXER_H_
#define QUERN_IR_LEXER_H_

#include "ir/diag.h"

// QN_TOKEN(NAME, "how it is called in messages"): kinds with texts of their own, then punctuation.
#define QN__TOKENS(QN_TOKEN)           \
  QN_TOKEN(END, "the end of the text") \
  QN_TOKEN(NAME, "a name")             \
  QN_TOKEN(INT, "an integer")          \
  QN_TOKEN(FLOAT, "a number")          \
  QN_TOKEN(STRING, "a string")         \
  QN_TOKEN(COMMENT, "a comment")       \
  QN_TOKEN(LEFT_PAREN, "'('")          \
  QN_TOKEN(RIGHT_PAREN, "')'")         \
  QN_TOKEN(LEFT_BRACKET, "'['")        \
  QN_TOKEN(RIGHT_BRACKET, "']'")       \
  QN_TOKEN(LEFT_BRACE, "'{'")          \
  QN_TOKEN(RIGHT_BRACE, "'}'")         \
  QN_TOKEN(COMMA, "','")               \
  QN_TOKEN(SEMICOLON, "';'")           \
  QN_TOKEN(COLON, "':'")               \
  QN_TOKEN(QUESTION, "'?'")            \
  QN_TOKEN(RANGE, "'..'")              \
  QN_TOKEN(ASSIGN, "'='")              \
  QN_TOKEN(EQ, "'=='")                 \
  QN_TOKEN(NE, "'!='")                 \
  QN_TOKEN(LT, "'<'")                  \
  QN_TOKEN(LE, "'<='")                 \
  QN_TOKEN(GT, "'>'")                  \
  QN_TOKEN(GE, "'>='")                 \
  QN_TOKEN(SHL, "'<<'")                \
  QN_TOKEN(SHR, "'>>'")                \
  QN_TOKEN(PLUS, "'+'")                \
  QN_TOKEN(MINUS, "'-'")               \
  QN_TOKEN(STAR, "'*'")                \
  QN_TOKEN(SLASH, "'/'")               \
  QN_TOKEN(FLOORDIV, "'//'")           \
  QN_TOKEN(PERCENT, "'%'")             \
  QN_TOKEN(AND, "'&'")                 \
  QN_TOKEN(AND_AND, "'&&'")            \
  QN_TOKEN(OR, "'|'")                  \
  QN_TOKEN(OR_OR, "'||'")              \
  QN_TOKEN(XOR, "'^'")                 \
  QN_TOKEN(TILDE, "'~'")               \
  QN_TOKEN(NOT, "'!'")                 \
  QN_TOKEN(ARROW, "'->'")              \
  QN_TOKEN(COUNT, "nothing")

typedef enum qn__token_kind {
#define QN_TOKEN(name, text) QN__TOKEN_##name,
  QN__TOKENS(QN_TOKEN)
#undef QN_TOKEN
} qn__token_kind_t;

typedef struct qn__token {
  qn__token_kind_t kind;
  qn__ir_loc_t loc;
  uint32_t newline_count;  // line ends between the token before and this one
} qn__token_t;

typedef struct qn__lexer {
  qn_str_t text;
  uint32_t offset;
  qn__token_kind_t last;  // the kind before: decides whether `//` divides
  bool keeps_comments;    // comments are tokens (the formatter), else they are skipped
  bool is_last_reserved;  // the token before was a reserved word, which is no operand
  qn__diag_t* diag;       // NULL: silent
  uint32_t error_begin;   // of the last mistake; UINT32_MAX: none
} qn__lexer_t;

// `text` is valid UTF-8 and smaller than 2 GiB (qn__lexer_check).
void qn__lexer_init(qn__lexer_t* lexer, qn_str_t text, qn__diag_t* diag);
qn__token_t qn__lexer_next(qn__lexer_t* lexer);
// Reports a text that is too large or not UTF-8, and returns false.
bool qn__lexer_check(qn_str_t text, qn__diag_t* diag);

static inline qn_str_t qn__lexer_slice(qn_str_t text, qn__ir_loc_t loc) {
  return (qn_str_t){text.data + loc.begin, loc.size};
}
// Returns a text without the byte order mark (U+FEFF) that some editors put at its beginning.
static inline qn_str_t qn__lexer_skip_mark(qn_str_t text) {
  bool has_mark = text.size >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0;
  return has_mark ? (qn_str_t){text.data + 3, text.size - 3} : text;
}
// "'('", "a name".
const char* qn__token_text(qn__token_kind_t kind);

// Appends the bytes of a string token (with its quotes) to `out`, with escapes replaced.
void qn__lexer_unescape(qn_str_t token, qn__buffer_t* out);
// The inverse, with quotes.
void qn__lexer_escape(qn_str_t bytes, qn__buffer_t* out);

// Reads the magnitude of an integer token. Returns false if it needs more than 64 bits.
bool qn__lexer_int(qn_str_t token, uint64_t* out_value);

// Returns true if `text` may be declared: letters, digits and "_", no digit first, not reserved.
bool qn__text_is_name(qn_str_t text);
// Returns true for true, false, inf and nan.
bool qn__text_is_literal(qn_str_t text);
// Returns true for words that cannot be names: keywords of statements, dtypes, literals.
bool qn__text_is_reserved(qn_str_t text);

#endif  // QUERN_IR_LEXER_H_
