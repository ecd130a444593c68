// devices/cpu/pool.c: worker threads, tasks and parallel loops.
//
// Requirements:
//  1. The process has one pool; callers share its workers.
//  2. A parallel loop never waits for a free worker. The caller runs ranges itself until none is
//     left and waits only for workers that are inside of the loop. So a loop inside of stream work
//     cannot deadlock.
//  3. A caller uses at most its budget of threads, itself included. Without a budget that is the
//     number of cores in its affinity mask, which may change at any time.
//  4. A child of fork starts with an empty pool and starts its own workers when it needs them.
//  5. The pool is made at its first use and never ended, so exit does not wait for idle threads.
//  6. A thread that waits spins before it sleeps, because a sleeping thread takes longer to wake
//     than many loops run. Spinning never keeps another thread from running for long: it lasts
//     tens of microseconds at most, yields the core each microsecond, and ends when a yield shows
//     that other threads want to run. A worker spins only if its last wait was short.
//  7. No more workers are woken than a task takes. A woken worker wakes others.
//
// Read next: stream.c.
#include "devices/cpu/pool.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/fork.h"
#include "base/thread.h"

// Ranges per thread. More ranges even out unequal iterations; fewer cost less.
#define RANGES_PER_THREAD 4
// The longest spin. To wake a thread takes 5 to 50 us, and the launches of a model follow each
// other sooner.
#define SPIN_NS 50000
// Tests of a word between two yields of the core: about a microsecond.
#define TESTS_PER_YIELD 32
// A yield that takes longer has let another thread run.
#define CROWDED_NS 5000
// A loop of fewer grains (a grain is about 10 us of work) that comes alone is not worth waking
// workers: it is alone if the thread's last loop ended longer ago than this.
#define GRAINS_WORTH_WAKING 6
#define ALONE_NS 200000
// The affinity mask of a thread is read again when the last reading is older than this.
#define AFFINITY_NS 10000000
// How many workers a thread wakes. Those wake others, so that a task gets n of them in log n steps.
#define WAKES_PER_THREAD 2

typedef struct pool {
  qn__mutex_t mutex;
  qn__cond_t work;          // a task was queued
  qn__cond_t left;          // a worker left a loop
  qn__cpu_task_t* tasks;    // oldest first
  _Atomic uint32_t queued;  // counts the tasks that were queued
  int32_t first_cores;      // available when the pool was made
  int32_t quota;            // in cores; 0: none
  int32_t worker_limit;
  int32_t worker_count;
  int32_t spinning_count;  // workers that look at `queued`
  int32_t sleeping_count;  // workers that wait for `work`
} pool_t;

static pool_t pool;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static bool is_pool_usable;
static _Thread_local int32_t core_budget;   // 0: all
static _Thread_local int64_t last_loop_ns;  // when the thread's last loop ended
static _Thread_local int32_t thread_cores;  // that the thread may use, and when they were counted
static _Thread_local int64_t thread_cores_ns;
static _Thread_local qn_parallel_for_fn_t host_parallel_for;
static _Thread_local void* host_parallel_for_self;

// Forgets the workers and tasks, which exist in the parent only.
static void fork_child(void* self) {
  (void)self;
  pool.tasks = NULL;
  pool.worker_count = 0;
  pool.spinning_count = 0;
  pool.sleeping_count = 0;
  qn_status_free(qn__cond_init(&pool.work));
  qn_status_free(qn__cond_init(&pool.left));
}

static void make_pool(void) {
  static qn__fork_node_t node = {.mutex = &pool.mutex, .child = fork_child};
  qn_status_t status = qn__mutex_init(&pool.mutex);
  if (qn_ok(status)) status = qn__cond_init(&pool.work);
  if (qn_ok(status)) status = qn__cond_init(&pool.left);
  is_pool_usable = qn_ok(status) && qn__fork_register(&node);
  qn_status_free(status);
  pool.first_cores = qn__available_cores();
  pool.quota = qn__quota_cores();
  pool.worker_limit = 1;  // streams need one also on a single core
}

static bool get_pool(void) {
  (void)pthread_once(&pool_once, make_pool);
  return is_pool_usable;
}

// Counts the cores that the calling thread may use, and allows workers for them.
static int32_t count_cores(void) {
  int32_t cores = qn__affinity_cores();
  if (pool.quota > 0 && (cores <= 0 || pool.quota < cores)) cores = pool.quota;
  if (cores <= 0) cores = 1;
  qn__mutex_lock(&pool.mutex);
  if (cores - 1 > pool.worker_limit) pool.worker_limit = cores - 1;
  qn__mutex_unlock(&pool.mutex);
  return cores;
}

int32_t qn_cpu_core_count(void) {
  if (!get_pool()) return 1;
  if (host_parallel_for) return pool.first_cores;  // its threads have masks of their own
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

// ---------------------------------------------------------------------------------- waiting

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until the word differs from `old`, as requirement 6 says, or until a time. Returns false if
// it is time to sleep.
static bool spin_while(const _Atomic uint32_t* word, uint32_t old, int64_t end_ns) {
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

// ---------------------------------------------------------------------------------- workers

// Returns how many workers the queued tasks may still take. Holds the lock.
static int32_t wanted_workers(void) {
  int32_t wanted = 0;
  for (const qn__cpu_task_t* task = pool.tasks; task; task = task->next) {
    wanted += task->helper_limit - task->helper_count;
  }
  return wanted;
}

// Wakes workers that the tasks want, but not all of them. Holds the lock.
static void wake_some(void) {
  int32_t wanted = wanted_workers() - pool.spinning_count;
  if (wanted > pool.sleeping_count) wanted = pool.sleeping_count;
  if (wanted > WAKES_PER_THREAD) wanted = WAKES_PER_THREAD;
  while (wanted-- > 0) qn__cond_signal(&pool.work);
}

// Waits until there is a task. `*inout_is_hurried`: the last wait was short. Holds the lock.
static void await_task(bool* inout_is_hurried) {
  int64_t start = qn__now_ns();
  if (*inout_is_hurried) {
    pool.spinning_count++;
    bool is_waiting = true;
    while (!pool.tasks && is_waiting) {
      uint32_t queued = atomic_load_explicit(&pool.queued, memory_order_relaxed);
      qn__mutex_unlock(&pool.mutex);
      // Another worker may be quicker. Then this one goes on, for as long as one spin in all.
      int64_t end = start + SPIN_NS;
      is_waiting = spin_while(&pool.queued, queued, end) && qn__now_ns() < end;
      qn__mutex_lock(&pool.mutex);
    }
    pool.spinning_count--;
  }
  while (!pool.tasks) {
    pool.sleeping_count++;
    qn__cond_wait(&pool.work, &pool.mutex);
    pool.sleeping_count--;
  }
  *inout_is_hurried = qn__now_ns() - start < SPIN_NS;
}

static void* work(void* arg) {
  (void)arg;
  bool is_hurried = false;
  qn__mutex_lock(&pool.mutex);
  for (;;) {
    if (!pool.tasks) await_task(&is_hurried);
    qn__cpu_task_t* task = pool.tasks;
    assert(task->helper_count < task->helper_limit);
    assert(pool.spinning_count + pool.sleeping_count < pool.worker_count);
    if (++task->helper_count >= task->helper_limit) pool.tasks = task->next;
    if (pool.tasks) wake_some();
    qn__mutex_unlock(&pool.mutex);
    task->run(task);
    qn__mutex_lock(&pool.mutex);
  }
  return NULL;
}

// Queues a task after the others and starts workers for it where there are too few. Holds the lock.
// Returns false when there is no worker and none can be started.
static bool queue_task(qn__cpu_task_t* task) {
  // Idle workers may be on their way to tasks that were queued before.
  int32_t idle = pool.spinning_count + pool.sleeping_count;
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
  (void)atomic_fetch_add_explicit(&pool.queued, 1, memory_order_release);
  wake_some();
  return true;
}

// Takes the task off the list. Returns false when it is not there any more.
static bool unqueue_task(qn__cpu_task_t* task) {
  for (qn__cpu_task_t** at = &pool.tasks; *at; at = &(*at)->next) {
    if (*at != task) continue;
    *at = task->next;
    return true;
  }
  return false;
}

qn_status_t qn__cpu_pool_post(qn__cpu_task_t* task) {
  bool is_listed = false;
  if (get_pool()) {
    task->helper_limit = 1;
    qn__mutex_lock(&pool.mutex);
    is_listed = queue_task(task);
    qn__mutex_unlock(&pool.mutex);
  }
  if (is_listed) return QN_OK;
  return qn_status_make(QN_STATUS_UNAVAILABLE, "no thread can be started for the work of streams");
}

bool qn__cpu_pool_take(qn__cpu_task_t* task) {
  if (!get_pool()) return false;
  qn__mutex_lock(&pool.mutex);
  bool is_taken = unqueue_task(task);
  qn__mutex_unlock(&pool.mutex);
  return is_taken;
}

qn__cpu_workers_t qn__cpu_pool_workers(void) {
  if (!get_pool()) return (qn__cpu_workers_t){0, 0, 0};
  qn__mutex_lock(&pool.mutex);
  qn__cpu_workers_t workers = {pool.worker_count, pool.spinning_count, pool.sleeping_count};
  qn__mutex_unlock(&pool.mutex);
  return workers;
}

// ---------------------------------------------------------------------------------- parallel loops

typedef struct loop {
  qn__cpu_task_t task;  // must be first: run() casts it back
  const qn_cpu_env_t* env;
  qn_cpu_body_t body;
  void* closure;
  int64_t count;
  int64_t step;
  _Atomic int64_t next;  // the first iteration that no thread has taken
  _Atomic int32_t has_failed;
  _Atomic uint32_t left_count;  // workers that left
  bool is_caller_asleep;        // guarded by the pool's lock
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
  qn__mutex_lock(&pool.mutex);
  bool is_caller_asleep = loop->is_caller_asleep;
  // The loop is on the caller's stack, and may be gone after this.
  (void)atomic_fetch_add_explicit(&loop->left_count, 1, memory_order_release);
  if (is_caller_asleep) qn__cond_broadcast(&pool.left);
  qn__mutex_unlock(&pool.mutex);
}

// Waits until the workers that joined the loop have left it.
static void await_helpers(loop_t* loop) {
  qn__mutex_lock(&pool.mutex);
  (void)unqueue_task(&loop->task);
  // helper_count cannot grow any more, and every worker that joined leaves once.
  uint32_t helpers = (uint32_t)loop->task.helper_count;
  assert(loop->task.helper_count <= loop->task.helper_limit);
  qn__mutex_unlock(&pool.mutex);
  int64_t end = qn__now_ns() + SPIN_NS;  // for all of them together
  for (;;) {
    uint32_t left = atomic_load_explicit(&loop->left_count, memory_order_acquire);
    if (left == helpers) return;
    if (!spin_while(&loop->left_count, left, end)) break;
  }
  qn__mutex_lock(&pool.mutex);
  loop->is_caller_asleep = true;
  while (atomic_load_explicit(&loop->left_count, memory_order_acquire) != helpers) {
    qn__cond_wait(&pool.left, &pool.mutex);
  }
  qn__mutex_unlock(&pool.mutex);
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
    qn__mutex_lock(&pool.mutex);
    bool is_listed = queue_task(&loop.task);
    qn__mutex_unlock(&pool.mutex);
    take_ranges(&loop);
    if (is_listed) await_helpers(&loop);
    last_loop_ns = qn__now_ns();
  }
  return atomic_load_explicit(&loop.has_failed, memory_order_relaxed);
}
