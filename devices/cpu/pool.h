// devices/cpu/pool.h: the one pool of threads of the process, shared by all callers and streams.
//
// Thread rule: any thread. Read next: pool.c.
#ifndef QUERN_DEVICES_CPU_POOL_H_
#define QUERN_DEVICES_CPU_POOL_H_

#include "base/base.h"
#include "devices/cpu/cpu.h"

// A job in the pool's list: each worker that joins calls `run` once, and does not touch the job
// afterwards.
typedef struct qn__pool_job qn__pool_job_t;
struct qn__pool_job {
  void (*run)(qn__pool_job_t* job);
  int32_t helper_limit;  // workers that may join; the last one takes the job off the list
  int32_t helper_count;  // workers that joined (the pool's lock)
  qn__pool_job_t* next;
};

// Workers plus the caller.
int32_t qn__pool_core_count(void);
// The calling thread's budget, at least 1.
int32_t qn__pool_core_budget(void);
// Lists a job that nobody waits for, for one worker. Errors: UNAVAILABLE when no worker can be
// started; then nothing was listed.
qn_status_t qn__pool_post(qn__pool_job_t* job);
// Takes a posted job off the list for the caller to run. False when a worker has it already.
bool qn__pool_take(qn__pool_job_t* job);
// qn_cpu_env_t.parallel.
int32_t qn__pool_parallel(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure, int64_t count,
                          int64_t grain);

#endif  // QUERN_DEVICES_CPU_POOL_H_
