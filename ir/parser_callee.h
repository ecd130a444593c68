// SPDX-License-Identifier: Apache-2.0
// ir/parser_callee.h: what the parser knows of a function with a value (parser_callee.c,
// parser_call.c).
#ifndef QUERN_IR_PARSER_CALLEE_H_
#define QUERN_IR_PARSER_CALLEE_H_

#include "ir/parser.h"

// A place in the text to parse from.
typedef struct qn__parser_position {
  qn__lexer_t lexer;
  qn__token_t token;
  qn__token_t ahead;
} qn__parser_position_t;

typedef enum qn__parser_progress {
  QN__PROGRESS_NONE,
  QN__PROGRESS_BEGUN,  // parsing what it calls
  QN__PROGRESS_DONE,
} qn__parser_progress_t;

typedef struct qn__parser_callee {
  qn__callee_t base;  // value NULL: it has errors, which were reported
  const char* name;
  qn__ir_loc_t loc;
  qn__parser_position_t begin;  // at `func`
  qn__parser_position_t end;
  qn__ir_loc_t* words;  // in its body, before "("
  size_t word_count;
  qn__parser_progress_t progress;
  uint32_t depth;  // of calls, this one included
  bool is_bad;     // it calls itself, or its calls nest too deep
  struct qn__parser_callee* next;
} qn__parser_callee_t;

static inline qn__parser_callee_t* qn__parser_find_callee(const qn__parser_t* p,
                                                          qn__ir_loc_t name) {
  return qn__map_get(&p->callees, qn__lexer_slice(p->text, name));
}

#endif  // QUERN_IR_PARSER_CALLEE_H_
