// SPDX-License-Identifier: Apache-2.0
// devices/cpu/parallel.c: parallel loops, and how many threads they get.
//
// Requirements:
//  1. A parallel loop never waits for a free worker. The caller runs ranges itself until none is
//     left and waits only for workers that are inside of the loop. So a loop inside of stream work
//     cannot deadlock.
//  2. A caller uses at most its budget of threads, itself included. Without a budget that is the
//     number of cores in its affinity mask, which may change at any time.
//  3. A caller that waits for workers spins, as workers do, for as long as it has worked itself: a
//     range of the same loop takes about that long.
#include <stdatomic.h>

#include "base/thread.h"
#include "devices/cpu/pool.h"

// Ranges per thread. More ranges even out unequal iterations; fewer cost less.
#define RANGES_PER_THREAD 4
// The least time that a caller spins.
#define SPIN_NS 50000
// A loop of fewer grains (a grain is about 10 us of work) that comes alone is not worth waking
// workers: it is alone if the thread's last loop ended longer ago than this.
#define GRAINS_WORTH_WAKING 6
#define ALONE_NS 200000
// The affinity mask of a thread is read again when the last reading is older than this.
#define AFFINITY_NS 10000000
// Added to `left_count` by a caller that sleeps.
#define ASLEEP 0x80000000U

static int32_t first_cores;  // available when the first loop was run
static int32_t quota;        // in cores; 0: none
static pthread_once_t cores_once = PTHREAD_ONCE_INIT;
static _Thread_local int32_t core_budget;   // 0: all
static _Thread_local int64_t last_loop_ns;  // when the thread's last loop ended
static _Thread_local int32_t thread_cores;  // that the thread may use, and when they were counted
static _Thread_local int64_t thread_cores_ns;
static _Thread_local qn_parallel_for_fn_t host_parallel_for;
static _Thread_local void* host_parallel_for_self;

// ---------------------------------------------------------------------------------- budgets

static void read_cores(void) {
  first_cores = qn__available_cores();
  quota = qn__quota_cores();
}

// Counts the cores that the calling thread may use, and allows workers for them.
static int32_t count_cores(void) {
  int32_t cores = qn__affinity_cores();
  if (quota > 0 && (cores <= 0 || quota < cores)) cores = quota;
  if (cores <= 0) cores = 1;
  return qn__cpu_pool_allow(cores - 1) ? cores : 1;
}

int32_t qn_cpu_core_count(void) {
  (void)pthread_once(&cores_once, read_cores);
  if (host_parallel_for) return first_cores;  // its threads have masks of their own
  int64_t now = qn__now_ns();
  if (thread_cores == 0 || now - thread_cores_ns > AFFINITY_NS) {
    thread_cores = count_cores();
    thread_cores_ns = now;
  }
  return thread_cores;
}

int32_t qn__cpu_core_budget(void) {
  int32_t all = qn_cpu_core_count();
  return core_budget > 0 && core_budget < all ? core_budget : all;
}

int32_t qn_cpu_set_core_budget(int32_t core_count) {
  int32_t old = core_budget;
  core_budget = core_count > 0 ? core_count : 0;
  return old;
}

void qn_cpu_set_parallel_for(qn_parallel_for_fn_t parallel_for, void* self) {
  host_parallel_for = parallel_for;
  host_parallel_for_self = self;
}

// ---------------------------------------------------------------------------------- loops

typedef struct loop {
  qn__cpu_task_t task;  // must be first: run() casts it back
  const qn_cpu_env_t* env;
  qn_cpu_body_t body;
  void* closure;
  int64_t count;
  int64_t step;
  _Atomic int64_t next;  // the first iteration that no thread has taken
  _Atomic int32_t has_failed;
  // Workers that left. A caller that sleeps adds ASLEEP and subtracts how many it waits for.
  _Atomic uint32_t left_count;
  qn__sem_t all_left;
} loop_t;

static void take_ranges(loop_t* loop) {
  for (;;) {
    int64_t begin = atomic_fetch_add_explicit(&loop->next, loop->step, memory_order_relaxed);
    if (begin >= loop->count) return;
    if (atomic_load_explicit(&loop->has_failed, memory_order_relaxed)) return;
    int64_t end = loop->count - begin > loop->step ? begin + loop->step : loop->count;
    if (loop->body(loop->env, loop->closure, begin, end) != 0) {
      atomic_store_explicit(&loop->has_failed, 1, memory_order_relaxed);
    }
  }
}

static void help(qn__cpu_task_t* task) {
  loop_t* loop = (loop_t*)(void*)task;
  take_ranges(loop);
  // The loop is on the caller's stack, and gone after this unless the caller sleeps.
  uint32_t left = atomic_fetch_add_explicit(&loop->left_count, 1, memory_order_acq_rel) + 1;
  if (left == ASLEEP) qn__sem_post(&loop->all_left);
}

// Waits until the workers that joined the loop, which began at a time, have left it.
static void await_helpers(loop_t* loop, int64_t begin_ns) {
  (void)qn__cpu_pool_take(&loop->task);
  // helper_count cannot grow any more, and every worker that joined leaves once.
  uint32_t helpers = (uint32_t)loop->task.helper_count;
  assert(loop->task.helper_count <= loop->task.helper_limit);
  int64_t now = qn__now_ns();
  int64_t end = now + (now - begin_ns > SPIN_NS ? now - begin_ns : SPIN_NS);
  for (;;) {
    uint32_t left = atomic_load_explicit(&loop->left_count, memory_order_acquire);
    if (left == helpers) return;
    if (!qn__cpu_spin_while(&loop->left_count, left, end)) break;
  }
  qn__sem_init(&loop->all_left);
  uint32_t left =
      atomic_fetch_add_explicit(&loop->left_count, ASLEEP - helpers, memory_order_acq_rel);
  if (left != helpers) qn__sem_wait(&loop->all_left);
}

static void run_task(void* self, int32_t index) {
  (void)index;
  take_ranges(self);
}

int32_t qn__cpu_parallel(const qn_cpu_env_t* env, qn_cpu_body_t body, void* closure, int64_t count,
                         int64_t grain) {
  if (count <= 0) return 0;
  if (grain < 1) grain = 1;
  if (count / grain <= 1) return body(env, closure, 0, count);
  int64_t thread_count = qn__cpu_core_budget();
  if (thread_count > count / grain) thread_count = count / grain;
  if (thread_count <= 1) return body(env, closure, 0, count);
  if (!host_parallel_for && count / grain < GRAINS_WORTH_WAKING) {
    if (qn__now_ns() - last_loop_ns > ALONE_NS) {
      int32_t result = body(env, closure, 0, count);
      last_loop_ns = qn__now_ns();
      return result;
    }
  }
  int64_t step = count / (thread_count * RANGES_PER_THREAD);
  loop_t loop = {
      .task = {.run = help, .helper_limit = (int32_t)thread_count - 1},
      .env = env,
      .body = body,
      .closure = closure,
      .count = count,
      .step = step > grain ? step : grain,
  };
  if (host_parallel_for) {
    host_parallel_for(host_parallel_for_self, (int32_t)thread_count, run_task, &loop);
  } else {
    int64_t begin = qn__now_ns();
    bool is_queued = qn__cpu_pool_queue(&loop.task);
    take_ranges(&loop);
    if (is_queued) await_helpers(&loop, begin);
    last_loop_ns = qn__now_ns();
  }
  return atomic_load_explicit(&loop.has_failed, memory_order_relaxed);
}
