// SPDX-License-Identifier: Apache-2.0
// bench/serve/answers.h: keeps the bodies of answers and checks them after the run.
//
// Reading the JSON of 16 embeddings takes a millisecond. During the run that would be lag, so
// bodies are kept. Above a limit they are checked at once, and the lag shows it. Thread rule: one
// thread at a time.
#ifndef BENCH_SERVE_ANSWERS_H_
#define BENCH_SERVE_ANSWERS_H_

#include "bench/serve/client.h"

typedef struct answers_block answers_block_t;

typedef struct answers {
  const protocol_t* protocol;  // borrowed, as are the next two
  const trace_t* trace;
  client_run_t* run;
  bool keeps_embeddings;
  size_t left_bytes;  // of the limit
  answers_block_t* first;
  answers_block_t* last;
} answers_t;

void answers_init(answers_t* answers, const protocol_t* protocol, const trace_t* trace,
                  client_run_t* run, size_t hold_bytes, bool keeps_embeddings);
void answers_deinit(answers_t* answers);
// Takes the body of request `index`, whose record says that status 200 came.
void answers_add(answers_t* answers, size_t index, qn_span_t body, int64_t json_bytes);
// Checks all bodies that are kept: sets `checksum`, or the outcome CLIENT_BODY, of their records.
void answers_check(answers_t* answers);

#endif  // BENCH_SERVE_ANSWERS_H_
