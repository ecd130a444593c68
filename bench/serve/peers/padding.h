// SPDX-License-Identifier: Apache-2.0
// bench/serve/peers/padding.h: how a batch is cut into padded ones, for engines that need all
// sequences of a call in one length.
#ifndef BENCH_SERVE_PEERS_PADDING_H_
#define BENCH_SERVE_PEERS_PADDING_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct padding_part {
  size_t begin;    // in the order
  size_t count;    // sequences, at least 1
  size_t longest;  // tokens: the length of all of them in the call
} padding_part_t;

typedef struct padding_plan {
  size_t* order;  // [count]: the sequence at each place
  size_t part_count;
  padding_part_t* parts;  // [count]
  size_t* costs;          // [count + 1]: for the planner
  size_t* cuts;           // [count + 1]: the same
} padding_plan_t;

// Makes room for `max_sequences`. Returns false without memory. Owned: padding_plan_free, also
// then.
bool padding_plan_init(padding_plan_t* plan, size_t max_sequences);
void padding_plan_free(padding_plan_t* plan);

// Keeps the batch whole, in its order.
void padding_keep(padding_plan_t* plan, const int64_t* offsets, size_t count);
// Sorts the sequences by length and cuts them where that costs least. A call costs its padded
// tokens and `call_cost` more, and has at most `max_tokens` padded ones, unless one sequence has
// more.
void padding_cut(padding_plan_t* plan, const int64_t* offsets, size_t count, size_t call_cost,
                 size_t max_tokens);

#endif  // BENCH_SERVE_PEERS_PADDING_H_
