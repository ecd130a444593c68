// SPDX-License-Identifier: Apache-2.0
// bench/serve/trace.h: requests and their times, read from a file of JSON lines.
//
//   {"trace": 1, "made_by": "make-trace --seed 1 ..."}                          optional, first
//   {"at_us": 1250, "client": 3, "lengths": [12, 48], "seed": 77}               words from the seed
//   {"at_us": 1300, "client": 0, "texts": ["a text"], "tokens": 4}              texts as they are
//
// Times ascend. A length counts tokens, with [CLS] and [SEP]: a text of length n has n - 2 words of
// words.txt, each one token of the WordPiece vocabulary of BERT. The words depend on the seed, the
// place of the text in its request and words.txt alone. Owner: the trace; everything lives until
// trace_free. Thread rule: read-only after trace_read.
#ifndef BENCH_SERVE_TRACE_H_
#define BENCH_SERVE_TRACE_H_

#include "base/arena.h"
#include "base/buffer.h"

enum { TRACE_SPECIAL_TOKENS = 2, TRACE_MAX_LENGTH = 65536, TRACE_MAX_TEXTS = 65536 };

typedef struct trace_request {
  int64_t at_ns;   // from the start
  int64_t tokens;  // of all texts; 0: not known
  uint64_t seed;
  size_t first_text;  // of all texts of the trace
  uint32_t client;
  uint32_t text_count;  // at least 1
  uint32_t* lengths;    // NULL: `texts`
  qn_str_t* texts;      // NULL: `lengths`
} trace_request_t;

typedef struct trace_word {
  qn_str_t text;
  uint32_t id;  // in the vocabulary
} trace_word_t;

typedef struct trace {
  qn__arena_t arena;
  trace_request_t* requests;
  size_t count;
  trace_word_t* words;  // without [CLS] and [SEP]
  uint32_t word_count;
  uint32_t first_id;  // of [CLS]
  uint32_t last_id;   // of [SEP]
  size_t text_count;  // of all requests
  char error[256];    // of a function that returned false
} trace_t;

// Reads the words and then the trace; times are divided by `speed`. Returns false with `error` set.
// trace_free is due in either case.
bool trace_read(trace_t* trace, const char* words_path, const char* path, double speed);
void trace_free(trace_t* trace);

// A text's words, one after another. Begin with trace_words, then trace_next_word until NULL. Only
// for requests with lengths.
typedef struct trace_words {
  const trace_t* trace;
  uint64_t state;
  uint32_t left;
} trace_words_t;
trace_words_t trace_words(const trace_t* trace, const trace_request_t* request, uint32_t text);
const trace_word_t* trace_next_word(trace_words_t* words);

#endif  // BENCH_SERVE_TRACE_H_
