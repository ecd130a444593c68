// base/log.h: the log level and the sink. The library itself writes nothing: messages go to the
// sink that the program or the command line installs. These are the first mutable global.
#ifndef QUERN_BASE_LOG_H_
#define QUERN_BASE_LOG_H_

#include <stdatomic.h>

#include "base/base.h"

typedef enum qn__log_level {
  QN__LOG_ERROR = 1,
  QN__LOG_WARN = 2,
  QN__LOG_INFO = 3,
  QN__LOG_DEBUG = 4,
} qn__log_level_t;

typedef void (*qn__log_sink_t)(void* self, qn__log_level_t level, const char* message);

// Installs a sink; NULL switches logging off (the default).
void qn__log_install(qn__log_level_t level, qn__log_sink_t sink, void* self);
bool qn__log_is_on(qn__log_level_t level);
void qn__log(qn__log_level_t level, const char* format, ...) QN_PRINTF(2, 3);
// Logs only the first time that the process reaches this line.
#define QN__LOG_ONCE(level, ...)                                                \
  do {                                                                          \
    static _Atomic bool qn_log_once_;                                           \
    if (!atomic_exchange_explicit(&qn_log_once_, true, memory_order_relaxed)) { \
      qn__log((level), __VA_ARGS__);                                            \
    }                                                                           \
  } while (0)

#endif  // QUERN_BASE_LOG_H_
