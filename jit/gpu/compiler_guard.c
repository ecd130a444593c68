// SPDX-License-Identifier: Apache-2.0
// jit/gpu/compiler_guard.c: see compiler_guard.h.
//
//  1. A compiler library has global state and locks of its own. If a fork happens while a thread
//     holds such a lock, the child hangs at its first compile. So a fork waits for all compiles and
//     warm-ups of all generators. That state belongs to the process, so the count below is static.
//     Each module that links a library has its own copy of this file.
//  2. The first warm-up or compile registers the fork handler. The creation of a generator cannot
//     do it: the engine creates generators under a lock that its own fork handler takes. An earlier
//     fork is harmless, because no library has been used yet. A child that was forked before the
//     end of the warm-up cannot compile.
//  3. An exit must not destroy the library's objects during the warm-up. So the thread delays the
//     exit (qn__exit_hold). The first compile waits for the thread, so the engine's hold covers it.
#include "jit/gpu/compiler_guard.h"

#include <assert.h>
#include <unistd.h>

#include "base/alloc.h"

// ---- fork

// Shared by all guards. The mutex is used only after the fork handler is registered, so that no
// child inherits it locked.
static struct {
  qn__mutex_t mutex;
  qn__cond_t changed;   // busy_count is 0, or a thread has been joined
  uint32_t busy_count;  // threads in the library
  bool is_registered;
  qn__fork_node_t fork_node;
} shared = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void fork_prepare(void* self) {
  (void)self;
  qn__mutex_lock(&shared.mutex);
  while (shared.busy_count > 0) qn__cond_wait(&shared.changed, &shared.mutex);
}
static void fork_parent(void* self) {
  (void)self;
  qn__mutex_unlock(&shared.mutex);
}
static void fork_child(void* self) {
  (void)self;
  // The fork may have interrupted the registration in another thread of the parent.
  shared.is_registered = true;
  qn_status_free(qn__mutex_init(&shared.mutex));
  qn_status_free(qn__cond_init(&shared.changed));
}

static void register_node(void) {
  if (shared.is_registered) return;
  shared.fork_node =
      (qn__fork_node_t){.prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  shared.is_registered = qn__fork_register(&shared.fork_node);
}

// Registers the fork handler once. Returns false if memory ran out. If a fork interrupts the
// registration, the C library repeats it in the child.
static bool is_guarded(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, register_node);
  return shared.is_registered;
}

static void enter(void) {
  qn__mutex_lock(&shared.mutex);
  ++shared.busy_count;
  qn__mutex_unlock(&shared.mutex);
}
static void leave(void) {
  qn__mutex_lock(&shared.mutex);
  assert(shared.busy_count > 0);
  if (--shared.busy_count == 0) qn__cond_broadcast(&shared.changed);
  qn__mutex_unlock(&shared.mutex);
}

// ---- warm-up

static void warm_up(qn__gpu_compiler_guard_t* guard) {
  guard->warm(guard->self);
  atomic_store_explicit(&guard->is_warm, true, memory_order_release);
}

static void* run_warm(void* self) {
  const bool is_counted = is_guarded();
  if (is_counted) enter();
  warm_up(self);
  if (is_counted) leave();
  qn__exit_release();
  return NULL;
}

// Joins the warm-up thread. One caller joins it; concurrent callers wait for that caller.
static void join(qn__gpu_compiler_guard_t* guard) {
  qn__mutex_lock(&shared.mutex);
  while (guard->is_joining) qn__cond_wait(&shared.changed, &shared.mutex);
  if (guard->has_thread) {
    guard->is_joining = true;
    qn__mutex_unlock(&shared.mutex);
    (void)pthread_join(guard->thread, NULL);
    qn__mutex_lock(&shared.mutex);
    guard->has_thread = guard->is_joining = false;
    qn__cond_broadcast(&shared.changed);
  }
  qn__mutex_unlock(&shared.mutex);
}

// ---- compiles

qn_status_t qn__gpu_compiler_guard_begin(qn__gpu_compiler_guard_t* guard) {
  // In a child there is no warm-up thread to join, and `is_joining` may be out of date.
  const bool is_child = guard->pid != getpid();
  if (is_child && !atomic_load_explicit(&guard->is_warm, memory_order_acquire)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the process was forked before %s had warmed up; compile in the parent, "
                          "or fork before the first lookup",
                          guard->library);
  }
  if (!is_guarded()) return qn__out_of_memory("a fork handler");
  if (!is_child) join(guard);
  enter();
  return QN_OK;
}

void qn__gpu_compiler_guard_end(qn__gpu_compiler_guard_t* guard) {
  (void)guard;
  leave();
}

// ---- life

void qn__gpu_compiler_guard_init(qn__gpu_compiler_guard_t* guard, const char* library) {
  guard->library = library;
  guard->pid = getpid();
}

void qn__gpu_compiler_guard_warm(qn__gpu_compiler_guard_t* guard, const char* thread_name,
                                 void (*warm)(void* self), void* self) {
  guard->warm = warm;
  guard->self = self;
  qn__exit_watch_caller();
  qn__exit_hold();
  qn_status_t started = qn__thread_start(&guard->thread, thread_name, 0, run_warm, guard);
  guard->has_thread = qn_ok(started);
  if (guard->has_thread) return;
  qn_status_free(started);
  // No thread: warm up here. The lock under which generators are created delays forks already.
  warm_up(guard);
  qn__exit_release();
}

void qn__gpu_compiler_guard_deinit(qn__gpu_compiler_guard_t* guard) {
  if (guard->has_thread && guard->pid == getpid()) (void)pthread_join(guard->thread, NULL);
}
