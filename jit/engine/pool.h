// jit/engine/pool.h: the threads that do what lookups must not: compiles, of which only so many may
// run at once, and reads of files and networks, which may hang and must not hold a compile up.
//
// Threads are started when there is work for them and stay until the pool is stopped. A job is the
// caller's memory. Not here: what the jobs do (steps.c). Thread rule: any thread; a child of fork
// starts with an empty queue and no threads. Read next: pool.c.
#ifndef QUERN_JIT_POOL_H_
#define QUERN_JIT_POOL_H_

#include "base/fork.h"
#include "base/thread.h"

#define QN__POOL_MAX_COMPILES 64u
#define QN__POOL_MAX_READS 4u
// Compiles that have lent their slot while they wait for another process.
#define QN__POOL_MAX_LENT 8u
#define QN__POOL_MAX_THREADS (1 + QN__POOL_MAX_READS + QN__POOL_MAX_COMPILES + QN__POOL_MAX_LENT)

typedef enum qn__task_kind {
  QN__TASK_READ,
  QN__TASK_COMPILE,
  QN__TASK_ALARM,  // one job that only waits for the clock
  QN__TASK_COUNT
} qn__task_kind_t;

typedef struct qn__task qn__task_t;
struct qn__task {
  void (*run)(qn__task_t* job);   // the job may be freed or submitted again in it
  void (*drop)(qn__task_t* job);  // the pool is stopped before it was run
  qn__task_kind_t lane;
  int32_t priority;   // higher first, equals in their order
  int64_t queued_ns;  // when it was submitted
  bool is_queued;     // the pool's
  qn__task_t* next;   // the pool's
};

typedef struct qn__pool_queue {
  qn__task_t* first;
  qn__task_t* last;
  uint32_t queued_count, running_count, max_running;
} qn__pool_queue_t;

// Whoever owns the memory that the pool lies in, when threads may outlive it.
typedef struct qn__pool_owner {
  void* self;
  void (*retain)(void* self);   // for each thread, before it starts
  void (*release)(void* self);  // by each thread, as the last thing
  void (*forget)(void* self);   // for each thread that a child of fork lost: frees nothing
} qn__pool_owner_t;

typedef struct qn__pool {
  qn__pool_owner_t owner;
  qn__mutex_t mutex;
  qn__cond_t work;   // for threads that are idle
  qn__cond_t slot;   // for compiles that want their slot back
  qn__cond_t ended;  // for the stop
  qn__pool_queue_t queues[QN__TASK_COUNT];
  pthread_t threads[QN__POOL_MAX_THREADS];
  uint32_t thread_count, idle_count, lent_count, returning_count;
  uint32_t epoch;  // of forks
  bool is_stopping;
  bool is_exiting;  // the process ends: nothing is begun any more
  qn__fork_node_t fork_node;
} qn__pool_t;

// `max_compiles` 0: half of the cores, at least 1 and at most 8. The pool must not move afterwards.
qn_status_t qn__pool_init(qn__pool_t* pool, uint64_t max_compiles, qn__pool_owner_t owner);
// After the stop.
void qn__pool_deinit(qn__pool_t* pool);

// Queues a job. False when the pool is stopped, or has no thread (but perhaps one that waits for
// the clock) and none can be started: the job then is the caller's still.
bool qn__pool_submit(qn__pool_t* pool, qn__task_t* job);
// Moves a job ahead if it is queued with a lower priority.
void qn__pool_raise(qn__pool_t* pool, qn__task_t* job, int32_t priority);
// Takes a job out of the queue; false when it is not (or no longer) in it.
bool qn__pool_withdraw(qn__pool_t* pool, qn__task_t* job);

// A running compile lends its slot to others while it waits for something else than the processor,
// and takes it back, before others that are queued. False: it keeps it, because many have lent.
bool qn__pool_lend(qn__pool_t* pool);
void qn__pool_take_back(qn__pool_t* pool);

// Drops what is queued and waits at most `grace_ns` for what runs. False when threads are left:
// they end by themselves, and release the owner then.
bool qn__pool_stop(qn__pool_t* pool, int64_t grace_ns);
// True in a job once the pool is to stop.
bool qn__pool_is_stopping(qn__pool_t* pool);
// Sleeps at most until `deadline_ns`; false when the pool was stopped meanwhile.
bool qn__pool_sleep(qn__pool_t* pool, int64_t deadline_ns);

// How many jobs of a lane wait for a thread, and how many run.
void qn__pool_counts(qn__pool_t* pool, qn__task_kind_t lane, uint32_t* out_queued,
                     uint32_t* out_running);

#endif  // QUERN_JIT_POOL_H_
