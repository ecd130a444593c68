// SPDX-License-Identifier: Apache-2.0
// warm/coordinator.h: one warm-up: its keys, its worker processes and how far it is.
#ifndef QUERN_WARM_COORDINATOR_H_
#define QUERN_WARM_COORDINATOR_H_

#include <poll.h>
#include <time.h>

#include "quern/device.h"
#include "quern/observe.h"
#include "warm/list.h"
#include "warm/message.h"
#include "warm/process.h"

#define QN__WARM_DEFAULT_TIMEOUT_NS INT64_C(60000000000)
// Workers that may have the same key before it is given up.
#define QN__WARM_MAX_ATTEMPTS 2u
// The longest time between two calls of on_progress.
#define QN__WARM_TICK_NS INT64_C(100000000)
// The end of a worker's standard error that is kept.
#define QN__WARM_TAIL_BYTES 512u

static inline int64_t qn__warm_now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

typedef enum qn__warm_worker_state {
  QN__WORKER_OFF,
  QN__WORKER_STARTING,
  QN__WORKER_IDLE,
  QN__WORKER_BUSY,
  QN__WORKER_ENDING,  // it has said that it cannot work
} qn__warm_worker_state_t;

typedef struct qn__warm_worker {
  qn__warm_worker_state_t state;
  qn__warm_process_t process;
  size_t task;           // BUSY: an index into the list
  int64_t deadline_ns;   // STARTING, BUSY
  qn__warm_bytes_t in;   // received, not yet a whole frame
  qn__warm_bytes_t out;  // to be sent, from out_at on
  size_t out_at;
  char tail[QN__WARM_TAIL_BYTES + 1];
  size_t tail_size;
} qn__warm_worker_t;

typedef struct qn__warm_key_state {
  uint8_t attempt_count;
  bool is_done;
} qn__warm_key_state_t;

typedef struct qn__warm_up {
  qn_engine_t* engine;
  const qn_warm_list_t* list;
  const qn_warm_options_t* options;
  qn_allocator_t allocator;
  qn_warm_result_t* result;
  int64_t start_ns;
  int64_t work_start_ns;
  size_t made_count;  // keys that workers ended
  qn__warm_bytes_t hello;
  char command[PATH_MAX];
  // Indices of keys to be made, each at most QN__WARM_MAX_ATTEMPTS times; [head, tail) wait.
  size_t* queue;
  size_t queue_capacity;
  size_t head;
  size_t tail;
  size_t busy_count;
  qn__warm_key_state_t* keys;  // of the list
  qn__warm_worker_t* workers;
  struct pollfd* fds;  // two per worker
  size_t worker_count;
  uint32_t failed_starts;  // since a worker has ended a key
  int64_t restart_ns;      // not before
  qn_status_t start_status;
} qn__warm_up_t;

// How a key ended.
typedef struct qn__warm_verdict {
  qn_warm_outcome_t outcome;
  const char* key;  // as the worker says; "" or NULL: as predicted
  int64_t compile_ns;
  int signal;
  qn_status_code_t code;
  const char* error;
} qn__warm_verdict_t;

// Ends a key: counts it and reports it to the caller (coordinator.c).
void qn__warm_finish_key(qn__warm_up_t* up, size_t index, const qn__warm_verdict_t* verdict);
// Calls on_progress; `item` may be NULL (coordinator.c).
void qn__warm_report(qn__warm_up_t* up, const qn_warm_item_t* item);

// Lets workers make the queued keys, until all are done or the caller cancels (workers.c). Errors:
// no worker can be started.
qn_status_t qn__warm_run_workers(qn__warm_up_t* up);
// Ends all workers, and kills those that are busy (workers.c).
void qn__warm_end_workers(qn__warm_up_t* up);

#endif  // QUERN_WARM_COORDINATOR_H_
