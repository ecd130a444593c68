// SPDX-License-Identifier: Apache-2.0
// Cutting batches into padded calls, against all ways to cut them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/serve/peers/padding.h"

enum { MAX_COUNT = 9 };

static size_t length_of(const int64_t* offsets, size_t sequence) {
  return (size_t)(offsets[sequence + 1] - offsets[sequence]);
}

// Lengths from 1 to 32 by a linear congruential generator.
static void make_offsets(uint32_t* state, size_t count, int64_t* out_offsets) {
  out_offsets[0] = 0;
  for (size_t i = 0; i < count; ++i) {
    *state = *state * 1664525 + 1013904223;
    out_offsets[i + 1] = out_offsets[i] + 1 + (*state >> 27);
  }
}

// Checks that every sequence is in one part, none longer than its part, and returns the cost.
static size_t check_plan(const padding_plan_t* plan, const int64_t* offsets, size_t count,
                         size_t call_cost, size_t max_tokens) {
  bool is_seen[MAX_COUNT] = {false};
  size_t total = 0;
  size_t cost = 0;
  for (size_t i = 0; i < plan->part_count; ++i) {
    const padding_part_t* part = &plan->parts[i];
    size_t longest = 0;
    for (size_t k = part->begin; k < part->begin + part->count; ++k) {
      const size_t sequence = plan->order[k];
      assert_true(sequence < count && !is_seen[sequence]);
      is_seen[sequence] = true;
      const size_t length = length_of(offsets, sequence);
      if (length > longest) longest = length;
    }
    assert_int_equal(part->longest, longest);
    assert_true(part->count == 1 || part->count * longest <= max_tokens);
    total += part->count;
    cost += call_cost + part->count * longest;
  }
  assert_int_equal(total, count);
  return cost;
}

// The least cost over all cuts of the order.
static size_t least_cost(const padding_plan_t* plan, const int64_t* offsets, size_t count,
                         size_t call_cost, size_t max_tokens) {
  size_t least = SIZE_MAX;
  for (unsigned cuts = 0; cuts < 1u << (count - 1); ++cuts) {
    size_t cost = 0;
    size_t begin = 0;
    bool fits = true;
    for (size_t end = 1; end <= count; ++end) {
      if (end < count && !(cuts >> (end - 1) & 1)) continue;
      const size_t padded = (end - begin) * length_of(offsets, plan->order[end - 1]);
      fits = fits && (end - begin == 1 || padded <= max_tokens);
      cost += call_cost + padded;
      begin = end;
    }
    if (fits && cost < least) least = cost;
  }
  return least;
}

static void cuts_cost_least(void** state) {
  (void)state;
  padding_plan_t plan;
  assert_true(padding_plan_init(&plan, MAX_COUNT));
  uint32_t random = 1;
  int64_t offsets[MAX_COUNT + 1];
  for (size_t round = 0; round < 400; ++round) {
    const size_t count = 1 + round % MAX_COUNT;
    const size_t call_cost = round % 23;
    const size_t max_tokens = 16 + round % 80;
    make_offsets(&random, count, offsets);
    padding_cut(&plan, offsets, count, call_cost, max_tokens);
    const size_t cost = check_plan(&plan, offsets, count, call_cost, max_tokens);
    assert_int_equal(cost, least_cost(&plan, offsets, count, call_cost, max_tokens));
  }
  padding_plan_free(&plan);
}

static void extremes_of_the_cost_of_a_call(void** state) {
  (void)state;
  const int64_t offsets[] = {0, 7, 10, 30, 34};
  padding_plan_t plan;
  assert_true(padding_plan_init(&plan, 4));
  padding_cut(&plan, offsets, 4, 1, 1000);
  assert_int_equal(plan.part_count, 4);  // nothing is padded
  padding_cut(&plan, offsets, 4, 1000, 1000);
  assert_int_equal(plan.part_count, 1);  // one call
  assert_int_equal(plan.parts[0].longest, 20);
  padding_keep(&plan, offsets, 4);
  assert_int_equal(plan.part_count, 1);
  assert_int_equal(plan.parts[0].longest, 20);
  for (size_t i = 0; i < 4; ++i) assert_int_equal(plan.order[i], i);
  padding_plan_free(&plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cuts_cost_least),
      cmocka_unit_test(extremes_of_the_cost_of_a_call),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
