// SPDX-License-Identifier: Apache-2.0
// tests/support/random.h: numbers that look random and are the same in every run.
//
// Thread rule: a state belongs to one thread.
#ifndef QUERN_TESTS_SUPPORT_RANDOM_H_
#define QUERN_TESTS_SUPPORT_RANDOM_H_

#include <stdint.h>

// xorshift64*: the next of a sequence whose state is not 0. All 64 bits are of use.
static inline uint64_t random_next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state * UINT64_C(0x2545F4914F6CDD1D);
}

#endif  // QUERN_TESTS_SUPPORT_RANDOM_H_
