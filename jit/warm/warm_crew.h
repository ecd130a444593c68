// jit/warm/warm_crew.h: the worker processes of one warm-up, and what coordinates them.
//
// Not here: the lists (warm.h), which keys are made at all (warm.c). Thread rule: one thread. Read
// next: warm_crew.c.
#ifndef QUERN_JIT_WARM_CREW_H_
#define QUERN_JIT_WARM_CREW_H_

#include <poll.h>

#include "jit/warm/warm.h"
#include "jit/warm/warm_message.h"
#include "jit/warm/warm_process.h"

#define QN__WARM_DEFAULT_TIMEOUT_NS INT64_C(60000000000)
// Workers that may have the same key before it is given up.
#define QN__WARM_MAX_ATTEMPTS 2u
// How often a caller is told how far it is, at least.
#define QN__WARM_TICK_NS INT64_C(100000000)
// What is kept of what a worker said on its standard error.
#define QN__WARM_TAIL_BYTES 512u

typedef enum qn__worker_state {
  QN__WORKER_OFF,
  QN__WORKER_STARTING,
  QN__WORKER_IDLE,
  QN__WORKER_BUSY,
  QN__WORKER_ENDING,  // it has said that it cannot work
} qn__worker_state_t;

typedef struct qn__worker {
  qn__worker_state_t state;
  qn__process_t process;
  size_t job;           // of the list, while it is busy
  int64_t deadline_ns;  // QN__WORKER_STARTING, QN__WORKER_BUSY
  qn__buffer_t in;      // what was received and is no whole frame yet
  qn__buffer_t out;     // what is to be sent, from out_at on
  size_t out_at;
  char tail[QN__WARM_TAIL_BYTES + 1];
  size_t tail_size;
} qn__warm_worker_t;

typedef struct qn__warm_key_state {
  uint8_t attempt_count;
  bool is_done;
} qn__warm_key_state_t;

typedef struct qn__warmer {
  qn_engine_t* engine;
  const qn_warm_list_t* list;
  const qn_warm_options_t* options;
  qn_warm_result_t* result;
  int64_t start_ns;
  int64_t work_start_ns;
  size_t made_count;  // keys that workers ended
  qn__buffer_t preimage;
  qn__buffer_t hello;
  char command[PATH_MAX];
  // Keys to be made, each at most QN__WARM_MAX_ATTEMPTS times; [head, tail) wait.
  size_t* queue;
  size_t queue_capacity;
  size_t head;
  size_t tail;
  size_t busy_count;
  qn__warm_key_state_t* keys;  // of the list
  qn__warm_worker_t* workers;
  struct pollfd* fds;  // two per worker
  size_t worker_count;
  uint32_t failed_starts;  // since a worker has made a key
  int64_t restart_ns;      // not before
  qn_status_t start_status;
} qn__warmer_t;

// What is known of a key when its outcome is.
typedef struct qn__warm_verdict {
  qn_warm_outcome_t outcome;
  const char* key;  // as the worker says; "" or NULL: as predicted
  int64_t compile_ns;
  int signal;
  qn_status_code_t code;
  const char* error;
} qn__warm_verdict_t;

// Ends a key: counts it and tells the caller (warm.c).
void qn__warm_finish_key(qn__warmer_t* w, size_t job, const qn__warm_verdict_t* verdict);
// Tells the caller how far it is; `item` may be NULL (warm.c).
void qn__warm_tell(qn__warmer_t* w, const qn_warm_item_t* item);

// Has workers make what is queued, until all is done or the caller cancels. Errors: no worker can
// be had.
qn_status_t qn__warm_work(qn__warmer_t* w);
// Ends all workers. Those who work are killed: nobody waits for their keys any more.
void qn__warm_dismiss(qn__warmer_t* w);

#endif  // QUERN_JIT_WARM_CREW_H_
