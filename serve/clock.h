// SPDX-License-Identifier: Apache-2.0
// serve/clock.h: the clock of deadlines and durations.
#ifndef SERVE_CLOCK_H_
#define SERVE_CLOCK_H_

#include <stdint.h>
#include <time.h>

// Returns nanoseconds of CLOCK_MONOTONIC, which never jumps.
static inline int64_t serve_now_ns(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#endif  // SERVE_CLOCK_H_
