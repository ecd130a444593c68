// SPDX-License-Identifier: Apache-2.0
// report.h: the report of a run, for people and as JSON.
#ifndef EMBED_REPORT_H_
#define EMBED_REPORT_H_

#include <stdio.h>

#include "serve/bert/kernels.h"

// The bounds that a run must keep to succeed.
#define COSINE_BOUND 0.9999
#define DIFFERENCE_BOUND 1e-4

typedef struct report {
  const char* target;
  bool is_seeded;
  int64_t sentence_count;
  int64_t shortest;
  int64_t longest;
  int64_t token_count;
  int64_t batch;
  // Of the first pass. Start is the start of the process.
  int64_t first_embedding_ns;
  int64_t weights_ns;
  int64_t kernels_ns;
  int64_t first_batch_ns;
  bool has_compiler_mapped;  // libLLVM is in the address space
  // Of the timed passes; repeat_count 0: there were none.
  int64_t repeat_count;
  int64_t best_pass_ns;
  int64_t total_pass_ns;
  int64_t* batch_ns;  // the least of each batch, those of the first pass included
  double min_cosine;
  double max_difference;
  bool is_good;  // both within their bounds
} report_t;

void report_print(const report_t* report, const bert_kernels_t* kernels, FILE* file);
// Errors: OUT_OF_MEMORY, IO.
qn_status_t report_print_json(const report_t* report, const bert_kernels_t* kernels, FILE* file);

#endif  // EMBED_REPORT_H_
