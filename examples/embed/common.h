// common.h: early return and a clock for all files of the embed example.
//
// Errors are quern's own statuses throughout; the example adds no second way of failing.
// Read next: embed.c, the program.
#ifndef EMBED_COMMON_H_
#define EMBED_COMMON_H_

#include <stdint.h>
#include <time.h>

#include "quern/quern.h"

// Returns the status of `expr` from the calling function unless it is ok.
#define TRY(expr)              \
  do {                         \
    qn_status_t try_ = (expr); \
    if (!qn_ok(try_)) {        \
      return try_;             \
    }                          \
  } while (0)

// Nanoseconds of a clock that never jumps.
static inline int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#endif  // EMBED_COMMON_H_
