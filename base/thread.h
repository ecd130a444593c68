// SPDX-License-Identifier: Apache-2.0
// base/thread.h: mutexes, conditions, threads and clocks: pthreads with names and checks.
//
// C11 threads are not used: with ThreadSanitizer they crash on Debian 12.
#ifndef QUERN_BASE_THREAD_H_
#define QUERN_BASE_THREAD_H_

#include <pthread.h>
#include <semaphore.h>

#include "base/base.h"

typedef pthread_mutex_t qn__mutex_t;
typedef pthread_cond_t qn__cond_t;  // waits on CLOCK_MONOTONIC
typedef sem_t qn__sem_t;

qn_status_t qn__mutex_init(qn__mutex_t* mutex);
void qn__mutex_deinit(qn__mutex_t* mutex);
void qn__mutex_lock(qn__mutex_t* mutex);
// Returns false if the mutex is taken.
bool qn__mutex_try_lock(qn__mutex_t* mutex);
void qn__mutex_unlock(qn__mutex_t* mutex);
qn_status_t qn__cond_init(qn__cond_t* cond);
void qn__cond_deinit(qn__cond_t* cond);
void qn__cond_wait(qn__cond_t* cond, qn__mutex_t* mutex);
// False when `deadline_ns` (qn__now_ns) has passed. INT64_MAX waits for ever.
bool qn__cond_wait_until(qn__cond_t* cond, qn__mutex_t* mutex, int64_t deadline_ns);
void qn__cond_signal(qn__cond_t* cond);
void qn__cond_broadcast(qn__cond_t* cond);
// Starts at 0. Owns nothing, so it needs no end.
void qn__sem_init(qn__sem_t* sem);
void qn__sem_post(qn__sem_t* sem);
void qn__sem_wait(qn__sem_t* sem);

// Starts a joinable thread named `name` (at most 15 characters) with all signals blocked.
// `stack_bytes` 0: the default.
qn_status_t qn__thread_start(pthread_t* out_thread, const char* name, size_t stack_bytes,
                             void* (*run)(void*), void* arg);

// Gives the calling thread the lowest priority for good, and the threads that it starts:
// SCHED_IDLE, or the highest nice value where the system refuses that.
void qn__thread_lower_priority(void);
// Returns the processor time of the calling thread in nanoseconds.
int64_t qn__thread_cpu_ns(void);

// Returns CLOCK_MONOTONIC in nanoseconds.
int64_t qn__now_ns(void);
// Returns CLOCK_REALTIME in nanoseconds.
int64_t qn__wall_ns(void);
// Returns the time `amount_ns` (negative: 0) after `now_ns`, or INT64_MAX if that is greater.
static inline int64_t qn__after(int64_t now_ns, int64_t amount_ns) {
  if (amount_ns <= 0) return now_ns;
  return amount_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + amount_ns;
}
// Returns the number of CPUs that the calling thread may use, at least 1: the lesser of both below.
int qn__available_cores(void);
// Returns the number of CPUs in the calling thread's affinity mask; 0: unknown.
int qn__affinity_cores(void);
// The first 1024 CPUs, a bit each.
typedef struct qn__cores {
  uint64_t bits[16];
} qn__cores_t;
// Reads the calling thread's affinity mask. Returns false if the machine has more CPUs.
bool qn__cores_read(qn__cores_t* out);
// Sets the affinity mask of the calling thread. Returns false if the system refuses it.
bool qn__cores_use(const qn__cores_t* cores);
// Keeps `thread` away from the CPU that the calling thread runs on: sets its affinity mask to the
// other ones of `cores`. Returns false, and changes nothing, if there is no other or the system
// refuses it.
bool qn__cores_keep_away(pthread_t thread, const qn__cores_t* cores);
// Returns the quota of the process's control group in whole CPUs, rounded up; 0: none.
int qn__quota_cores(void);

#endif  // QUERN_BASE_THREAD_H_
