// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // SYS_gettid, on_exit
// base/fork.c: one pthread_atfork registration for all objects of the library.
//
// Requirements:
// 1. A fork at any moment leaves every registered lock free in parent and child.
// 2. Locks are taken newest object first. An object that uses another one is created after it, so
//    this is the order in which threads take them, too. They are released in the same order.
// 3. The list does not change during a fork: its lock is held from prepare to parent or child.
#include "base/fork.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// How long all waits at exit may take together.
#define EXIT_GRACE_NS INT64_C(5000000000)
// On a machine so busy that the process gets little processor time, 5 s do not prove a hang. The
// wait then goes on until the threads had that much processor time, checked once a period, and
// never longer than this. A process that computes nothing hangs.
#define EXIT_MAX_NS INT64_C(60000000000)
#define EXIT_LOOK_NS INT64_C(1000000000)
// glibc allocates more handlers as needed, and a host may create engines without end.
#define MAX_EXIT_HANDLERS 32u

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static qn__fork_node_t* newest;
// Guards the nodes with `at_exit`. A lock of its own, because threads that are waited for at exit
// may register nodes.
static pthread_mutex_t exit_mutex = PTHREAD_MUTEX_INITIALIZER;
static qn__fork_node_t* first_to_exit;
typedef struct patience {
  int64_t start_ns, deadline_ns;  // 0: exit has not started
  int64_t start_cpu_ns;
  int64_t look_ns, look_cpu_ns;  // time and processor time of the last check
} patience_t;
static patience_t exit_patience;
static bool is_installed;
static _Atomic unsigned hold_count;

static void prepare(void) {
  (void)pthread_mutex_lock(&registry_mutex);
  (void)pthread_mutex_lock(&exit_mutex);
  for (qn__fork_node_t* node = newest; node; node = node->next) {
    if (node->mutex) qn__mutex_lock(node->mutex);
    if (node->prepare) node->prepare(node->self);
  }
}

static void in_parent(void) {
  for (qn__fork_node_t* node = newest; node; node = node->next) {
    if (node->parent) node->parent(node->self);
    if (node->mutex) qn__mutex_unlock(node->mutex);
  }
  (void)pthread_mutex_unlock(&exit_mutex);
  (void)pthread_mutex_unlock(&registry_mutex);
}

static void in_child(void) {
  atomic_store(&hold_count, 0);  // only the parent has those threads
  for (qn__fork_node_t* node = newest; node; node = node->next) {
    // Initialises the mutex again: it may count threads of the parent, which will never leave it
    // here. Does not allocate.
    if (node->mutex) {
      qn__mutex_unlock(node->mutex);
      qn_status_free(qn__mutex_init(node->mutex));
    }
    if (node->child) node->child(node->self);
  }
  (void)pthread_mutex_unlock(&exit_mutex);
  (void)pthread_mutex_unlock(&registry_mutex);
}

bool qn__fork_register(qn__fork_node_t* node) {
  (void)pthread_mutex_lock(&registry_mutex);
  if (!is_installed) is_installed = pthread_atfork(prepare, in_parent, in_child) == 0;
  bool is_done = is_installed;
  if (is_done) {
    node->previous = NULL;
    node->next = newest;
    if (newest) newest->previous = node;
    newest = node;
  }
  (void)pthread_mutex_unlock(&registry_mutex);
  if (is_done && node->at_exit) {
    (void)pthread_mutex_lock(&exit_mutex);
    node->next_to_exit = first_to_exit;
    first_to_exit = node;
    (void)pthread_mutex_unlock(&exit_mutex);
  }
  return is_done;
}

void qn__fork_unregister(qn__fork_node_t* node) {
  if (node->at_exit) {
    (void)pthread_mutex_lock(&exit_mutex);
    qn__fork_node_t** at = &first_to_exit;
    while (*at && *at != node) at = &(*at)->next_to_exit;
    if (*at) *at = node->next_to_exit;
    (void)pthread_mutex_unlock(&exit_mutex);
  }
  (void)pthread_mutex_lock(&registry_mutex);
  if (node->previous) node->previous->next = node->next;
  if (newest == node) newest = node->next;
  if (node->next) node->next->previous = node->previous;
  assert(!newest || !newest->previous);
  node->next = node->previous = NULL;
  (void)pthread_mutex_unlock(&registry_mutex);
}

// ---------------------------------------------------------------------------------------- exit

// Returns the processor time of the other threads so far.
static int64_t others_cpu_ns(void) {
  struct timespec all, own;
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all) != 0) return 0;
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own) != 0) return 0;
  return (int64_t)(all.tv_sec - own.tv_sec) * 1000000000 + (all.tv_nsec - own.tv_nsec);
}

static void begin_patience(patience_t* patience) {
  patience->start_ns = patience->look_ns = qn__now_ns();
  patience->deadline_ns = patience->start_ns + EXIT_GRACE_NS;
  patience->start_cpu_ns = patience->look_cpu_ns = others_cpu_ns();
}

static bool prolong(patience_t* patience) {
  if (patience->start_ns == 0) return false;
  const int64_t now_ns = qn__now_ns(), cpu_ns = others_cpu_ns();
  const bool is_at_work = cpu_ns - patience->look_cpu_ns > (now_ns - patience->look_ns) / 1000 &&
                          cpu_ns - patience->start_cpu_ns < EXIT_GRACE_NS;
  if (!is_at_work || now_ns - patience->start_ns >= EXIT_MAX_NS) return false;
  patience->look_ns = now_ns;
  patience->look_cpu_ns = cpu_ns;
  patience->deadline_ns = now_ns + EXIT_LOOK_NS;
  assert(patience->deadline_ns - patience->start_ns <= EXIT_MAX_NS + EXIT_LOOK_NS);
  return true;
}

static void on_exit_of_process(void) {
  (void)pthread_mutex_lock(&exit_mutex);
  // The handler may be registered several times; later calls wait no longer.
  if (exit_patience.start_ns == 0) begin_patience(&exit_patience);
  for (qn__fork_node_t* node = first_to_exit; node; node = node->next_to_exit) {
    node->at_exit(node->self, exit_patience.deadline_ns);
  }
  (void)pthread_mutex_unlock(&exit_mutex);
}

bool qn__exit_prolong(int64_t* inout_deadline_ns) {
  if (!prolong(&exit_patience)) return false;
  *inout_deadline_ns = exit_patience.deadline_ns;
  return true;
}

// glibc gives the status of the exit to such handlers; another C library has none.
extern int on_exit(void (*handler)(int status, void* self), void* self) __attribute__((weak));

static void end_at_once(int status, void* unused) {
  (void)unused;
  (void)fflush(NULL);
  _exit(status);
}

static void give_up(void) {
  // A handler that is registered during an exit is the next one.
  if (on_exit) (void)on_exit(end_at_once, NULL);
}

void qn__exit_give_up(void) {
  const patience_t* patience = &exit_patience;
  if (patience->start_ns == 0) return;
  const int64_t cpu_ns = others_cpu_ns() - patience->start_cpu_ns;
  if (cpu_ns > (qn__now_ns() - patience->start_ns) / 1000) give_up();
}

void qn__fork_watch_exit(void) {
  static _Atomic unsigned count;
  if (atomic_load_explicit(&count, memory_order_relaxed) >= MAX_EXIT_HANDLERS) return;
  if (atomic_fetch_add(&count, 1) < MAX_EXIT_HANDLERS) (void)atexit(on_exit_of_process);
}

void qn__exit_hold(void) {
  (void)atomic_fetch_add(&hold_count, 1);
}

void qn__exit_release(void) {
  qn__fork_watch_exit();
  (void)atomic_fetch_sub(&hold_count, 1);
}

// glibc runs the destructors of the exiting thread before all exit handlers. There is no other way
// to run first; another C library has the handlers only.
extern int __cxa_thread_atexit_impl(void (*end)(void*), void* object, void* library)
    __attribute__((weak));
extern void* __dso_handle __attribute__((visibility("hidden")));

// The main thread may also end by pthread_exit; this then only delays it a moment.
static void on_end_of_main_thread(void* unused) {
  (void)unused;
  const struct timespec pause = {0, 1000000};
  patience_t patience;
  begin_patience(&patience);
  while (atomic_load(&hold_count) > 0 &&
         (qn__now_ns() < patience.deadline_ns || prolong(&patience))) {
    (void)nanosleep(&pause, NULL);
  }
  // Even if no thread computed: a busy machine may leave no time to one that compiles in the
  // background, and the next handlers destroy objects that it is about to create.
  if (atomic_load(&hold_count) > 0) give_up();
}

void qn__exit_watch_caller(void) {
  static _Atomic bool has_handler;
  static _Thread_local bool is_watched;
  if (is_watched) return;
  is_watched = true;
  if (!atomic_exchange(&has_handler, true)) (void)atexit(on_exit_of_process);
  if (__cxa_thread_atexit_impl && (pid_t)syscall(SYS_gettid) == getpid()) {
    (void)__cxa_thread_atexit_impl(on_end_of_main_thread, NULL, &__dso_handle);
  }
}
