// SPDX-License-Identifier: Apache-2.0
// base/log.h: the log level and the sink. The library itself writes nothing: messages go to the
// sink that the program or the command line installs. These are the first mutable global.
#ifndef QUERN_BASE_LOG_H_
#define QUERN_BASE_LOG_H_

#include <stdatomic.h>

#include "base/base.h"
#include "quern/quern.h"

bool qn__log_is_on(qn_log_level_t level);
void qn__log(qn_log_level_t level, const char* format, ...) QN_PRINTF(2, 3);
// Logs only the first time that the process reaches this line.
#define QN__LOG_ONCE(level, ...)                                                \
  do {                                                                          \
    static _Atomic bool qn_log_once_;                                           \
    if (!atomic_exchange_explicit(&qn_log_once_, true, memory_order_relaxed)) { \
      qn__log((level), __VA_ARGS__);                                            \
    }                                                                           \
  } while (0)

#endif  // QUERN_BASE_LOG_H_
