// SPDX-License-Identifier: Apache-2.0
// devices/cpu/pool.c: worker threads and the tasks that they take.
//
// Requirements:
//  1. The process has one pool; callers share its workers.
//  2. A child of fork starts with an empty pool and starts its own workers when it needs them.
//  3. The pool is made at its first use and never ended, so exit does not wait for idle threads.
//  4. A thread that waits spins before it sleeps, because a sleeping thread takes longer to wake
//     than many loops run. Spinning never keeps another thread from running for long: it yields the
//     core each microsecond, and ends when a yield shows that other threads want to run. A worker
//     spins for tens of microseconds at most, and only if its last wait was short or its last task
//     longer than that.
//  5. No more workers are woken than a task takes. A woken worker wakes others.
//  6. A worker is woken on another core than that of the thread that wakes it, and then may use all
//     cores of that thread. Kernels may wake it on the waker's core, where the two take turns.
//  7. Neither the thread that queues a task nor a worker that spins sleeps on the other's lock: the
//     kernel would wake it as any sleeping thread. So tasks are announced and workers are woken
//     after the lock is released, and a thread tests a lock that is taken for a while.
//
// Read next: parallel.c, stream.c.
#include "devices/cpu/pool.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/fork.h"
#include "base/thread.h"

// The longest spin of a worker. To wake a thread takes 5 to 100 us, and the launches of a model
// follow each other sooner.
#define SPIN_NS 50000
// Tests of a word between two yields of the core: about a microsecond.
#define TESTS_PER_YIELD 32
// A yield that takes longer has let another thread run. Interrupts of a virtual machine take less.
#define CROWDED_NS 20000
// How many workers a thread wakes. Those wake others, so that a task gets n of them in log n steps.
#define WAKES_PER_THREAD 2

// A worker that sleeps. It is on the stack of that worker.
typedef struct sleeper {
  struct sleeper* next;
  pthread_t thread;
  qn__sem_t is_woken;
  bool has_cores;     // the worker must set its mask
  qn__cores_t cores;  // of the thread that woke it
} sleeper_t;

typedef struct pool {
  qn__mutex_t mutex;
  qn__cpu_task_t* tasks;    // oldest first
  sleeper_t* sleepers;      // the last one to sleep first: its core sleeps least deeply
  _Atomic uint32_t queued;  // counts the tasks that were queued
  int32_t worker_limit;
  int32_t worker_count;
  int32_t spinning_count;  // workers that look at `queued`
  int32_t sleeping_count;
  int32_t woken_count;  // workers that were taken off the sleepers and do not run yet
} pool_t;

static pool_t pool;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static bool is_pool_usable;

// Forgets the workers and tasks, which exist in the parent only.
static void fork_child(void* self) {
  (void)self;
  pool.tasks = NULL;
  pool.sleepers = NULL;
  pool.worker_count = 0;
  pool.spinning_count = 0;
  pool.sleeping_count = 0;
  pool.woken_count = 0;
}

static void make_pool(void) {
  static qn__fork_node_t node = {.mutex = &pool.mutex, .child = fork_child};
  qn_status_t status = qn__mutex_init(&pool.mutex);
  is_pool_usable = qn_ok(status) && qn__fork_register(&node);
  qn_status_free(status);
  pool.worker_limit = 1;  // streams need one also on a single core
}

static bool get_pool(void) {
  (void)pthread_once(&pool_once, make_pool);
  return is_pool_usable;
}

// ---------------------------------------------------------------------------------- waiting

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

bool qn__cpu_spin_while(const _Atomic uint32_t* word, uint32_t old, int64_t end_ns) {
  for (int64_t now = qn__now_ns(); now < end_ns;) {
    for (int i = 0; i < TESTS_PER_YIELD; i++) {
      if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
      pause_core();
    }
    int64_t before = qn__now_ns();
    (void)sched_yield();
    now = qn__now_ns();
    if (now - before > CROWDED_NS) break;
  }
  return atomic_load_explicit(word, memory_order_acquire) != old;
}

static void lock_pool(void) {
  for (int i = 0; i < TESTS_PER_YIELD; i++) {
    if (qn__mutex_try_lock(&pool.mutex)) return;
    pause_core();
  }
  qn__mutex_lock(&pool.mutex);
}

// ---------------------------------------------------------------------------------- workers

// Returns how many workers the queued tasks may still take. Holds the lock.
static int32_t wanted_workers(void) {
  int32_t wanted = 0;
  for (const qn__cpu_task_t* task = pool.tasks; task; task = task->next) {
    wanted += task->helper_limit - task->helper_count;
  }
  return wanted;
}

// Takes workers off the sleepers that the tasks want, but not all of them. Holds the lock.
static sleeper_t* take_sleepers(void) {
  int32_t wanted = wanted_workers() - pool.spinning_count - pool.woken_count;
  if (wanted > WAKES_PER_THREAD) wanted = WAKES_PER_THREAD;
  sleeper_t* taken = NULL;
  while (wanted-- > 0 && pool.sleepers) {
    sleeper_t* sleeper = pool.sleepers;
    pool.sleepers = sleeper->next;
    sleeper->next = taken;
    taken = sleeper;
    pool.sleeping_count--;
    pool.woken_count++;
  }
  return taken;
}

static void wake(sleeper_t* sleepers) {
  qn__cores_t cores;
  bool has_cores = sleepers && qn__cores_read(&cores);
  while (sleepers) {
    sleeper_t* sleeper = sleepers;
    sleepers = sleeper->next;
    if (has_cores && qn__cores_keep_away(sleeper->thread, &cores)) {
      sleeper->cores = cores;
      sleeper->has_cores = true;
    }
    qn__sem_post(&sleeper->is_woken);
  }
}

// Sleeps until another thread wakes this one. Holds the lock before and afterwards. If other
// threads want the core, they run before this one takes a task: the thread that queued it would
// wait for all of them.
static void sleep_until_woken(sleeper_t* self) {
  self->next = pool.sleepers;
  pool.sleepers = self;
  pool.sleeping_count++;
  qn__mutex_unlock(&pool.mutex);
  qn__sem_wait(&self->is_woken);
  if (self->has_cores) (void)qn__cores_use(&self->cores);
  self->has_cores = false;
  (void)sched_yield();
  lock_pool();
  pool.woken_count--;
}

// Waits until there is a task. `*inout_is_hurried`: another one may follow soon; afterwards, the
// wait was short. Holds the lock before and afterwards.
static void await_task(sleeper_t* self, bool* inout_is_hurried) {
  int64_t start = qn__now_ns();
  if (*inout_is_hurried) {
    pool.spinning_count++;
    bool is_waiting = true;
    while (!pool.tasks && is_waiting) {
      uint32_t queued = atomic_load_explicit(&pool.queued, memory_order_relaxed);
      qn__mutex_unlock(&pool.mutex);
      // Another worker may be quicker. Then this one goes on, for as long as one spin in all.
      int64_t end = start + SPIN_NS;
      is_waiting = qn__cpu_spin_while(&pool.queued, queued, end) && qn__now_ns() < end;
      lock_pool();
    }
    pool.spinning_count--;
  }
  while (!pool.tasks) sleep_until_woken(self);
  *inout_is_hurried = qn__now_ns() - start < SPIN_NS;
}

static void* work(void* arg) {
  (void)arg;
  bool is_hurried = false;
  sleeper_t self = {.thread = pthread_self()};
  qn__sem_init(&self.is_woken);
  lock_pool();
  for (;;) {
    if (!pool.tasks) await_task(&self, &is_hurried);
    qn__cpu_task_t* task = pool.tasks;
    assert(task->helper_count < task->helper_limit);
    assert(pool.spinning_count + pool.sleeping_count + pool.woken_count < pool.worker_count);
    if (++task->helper_count >= task->helper_limit) pool.tasks = task->next;
    sleeper_t* others = take_sleepers();
    qn__mutex_unlock(&pool.mutex);
    wake(others);
    int64_t start = qn__now_ns();
    task->run(task);
    if (qn__now_ns() - start > SPIN_NS) is_hurried = true;
    lock_pool();
  }
  return NULL;
}

// Lists a task after the others and starts workers for it where there are too few. Holds the lock.
// Returns false when there is no worker and none can be started.
static bool list_task(qn__cpu_task_t* task) {
  // Idle workers may be on their way to tasks that were queued before.
  int32_t idle = pool.spinning_count + pool.sleeping_count + pool.woken_count;
  int32_t wanted = wanted_workers() + task->helper_limit - idle;
  while (wanted-- > 0 && pool.worker_count < pool.worker_limit) {
    pthread_t thread;
    qn_status_t status = qn__thread_start(&thread, "quern-worker", 0, work, NULL);
    bool is_started = qn_ok(status);
    qn_status_free(status);
    if (!is_started) break;
    (void)pthread_detach(thread);
    pool.worker_count++;
  }
  assert(pool.worker_count <= pool.worker_limit && idle <= pool.worker_count);
  if (pool.worker_count == 0) return false;
  task->next = NULL;
  task->helper_count = 0;
  qn__cpu_task_t** end = &pool.tasks;
  while (*end) end = &(*end)->next;
  *end = task;
  return true;
}

bool qn__cpu_pool_queue(qn__cpu_task_t* task) {
  if (!get_pool()) return false;
  lock_pool();
  bool is_listed = list_task(task);
  sleeper_t* sleepers = take_sleepers();
  qn__mutex_unlock(&pool.mutex);
  (void)atomic_fetch_add_explicit(&pool.queued, 1, memory_order_release);
  wake(sleepers);
  return is_listed;
}

qn_status_t qn__cpu_pool_post(qn__cpu_task_t* task) {
  task->helper_limit = 1;
  if (qn__cpu_pool_queue(task)) return QN_OK;
  return qn_status_make(QN_STATUS_UNAVAILABLE, "no thread can be started for the work of streams");
}

bool qn__cpu_pool_take(qn__cpu_task_t* task) {
  if (!get_pool()) return false;
  lock_pool();
  qn__cpu_task_t** at = &pool.tasks;
  while (*at && *at != task) at = &(*at)->next;
  bool is_listed = *at != NULL;
  if (is_listed) *at = task->next;
  qn__mutex_unlock(&pool.mutex);
  return is_listed;
}

bool qn__cpu_pool_allow(int32_t worker_count) {
  if (!get_pool()) return false;
  lock_pool();
  if (worker_count > pool.worker_limit) pool.worker_limit = worker_count;
  qn__mutex_unlock(&pool.mutex);
  return true;
}

qn__cpu_workers_t qn__cpu_pool_workers(void) {
  if (!get_pool()) return (qn__cpu_workers_t){0, 0, 0};
  lock_pool();
  qn__cpu_workers_t workers = {pool.worker_count, pool.spinning_count, pool.sleeping_count};
  qn__mutex_unlock(&pool.mutex);
  return workers;
}
