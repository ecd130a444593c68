// SPDX-License-Identifier: Apache-2.0
// bench/serve/peers/padding.c: see padding.h.
#include "bench/serve/peers/padding.h"

#include <stdlib.h>

bool padding_plan_init(padding_plan_t* plan, size_t max_sequences) {
  *plan = (padding_plan_t){.order = calloc(max_sequences, sizeof *plan->order),
                           .parts = calloc(max_sequences, sizeof *plan->parts),
                           .costs = calloc(max_sequences + 1, sizeof *plan->costs),
                           .cuts = calloc(max_sequences + 1, sizeof *plan->cuts)};
  return plan->order && plan->parts && plan->costs && plan->cuts;
}

void padding_plan_free(padding_plan_t* plan) {
  free(plan->order);
  free(plan->parts);
  free(plan->costs);
  free(plan->cuts);
  *plan = (padding_plan_t){.order = NULL};
}

static size_t length_of(const int64_t* offsets, size_t sequence) {
  return (size_t)(offsets[sequence + 1] - offsets[sequence]);
}

void padding_keep(padding_plan_t* plan, const int64_t* offsets, size_t count) {
  size_t longest = 0;
  for (size_t i = 0; i < count; ++i) {
    plan->order[i] = i;
    const size_t length = length_of(offsets, i);
    if (length > longest) longest = length;
  }
  plan->part_count = 1;
  plan->parts[0] = (padding_part_t){0, count, longest};
}

// By insertion: batches are small, and equal lengths keep their order.
static void sort_by_length(padding_plan_t* plan, const int64_t* offsets, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const size_t length = length_of(offsets, i);
    size_t at = i;
    while (at > 0 && length_of(offsets, plan->order[at - 1]) > length) {
      plan->order[at] = plan->order[at - 1];
      --at;
    }
    plan->order[at] = i;
  }
}

void padding_cut(padding_plan_t* plan, const int64_t* offsets, size_t count, size_t call_cost,
                 size_t max_tokens) {
  sort_by_length(plan, offsets, count);
  // costs[end]: the least cost of the sequences before `end`, whose last call begins at cuts[end].
  plan->costs[0] = 0;
  for (size_t end = 1; end <= count; ++end) {
    const size_t longest = length_of(offsets, plan->order[end - 1]);
    plan->costs[end] = SIZE_MAX;
    for (size_t begin = end; begin-- > 0;) {
      const size_t padded = (end - begin) * longest;
      if (padded > max_tokens && begin + 1 < end) break;
      const size_t cost = plan->costs[begin] + call_cost + padded;
      if (cost >= plan->costs[end]) continue;
      plan->costs[end] = cost;
      plan->cuts[end] = begin;
    }
  }
  // The cuts are found from the end; parts are in the same order, as results need none.
  plan->part_count = 0;
  for (size_t end = count; end > 0; end = plan->cuts[end]) {
    const size_t begin = plan->cuts[end];
    plan->parts[plan->part_count++] =
        (padding_part_t){begin, end - begin, length_of(offsets, plan->order[end - 1])};
  }
}
