// jit/gpu/compiler_guard.c: see compiler_guard.h.
//
// Compiler libraries keep global state behind locks of their own. A fork while one of them is held
// would leave a child that hangs at its first compile. So a fork waits until no compile and no
// warm-up is under way, of any generator: the library's state is the process's. Hence the count
// below is static; each module that a library is linked to has this file for itself.
//
// The first warm-up or compile registers the fork handler, not the creation of a generator: the
// engine makes generators under a lock that its own fork handler takes. A fork before that finds
// library and locks untouched. A child for which the warm-up had not begun refuses to compile.
//
// What a library makes at its first use must not be torn down while the warm-up runs: the thread
// holds the end of the process (base/fork.h), and the first compile waits for the thread, so that
// the engine's own hold covers it too.
#include "jit/gpu/compiler_guard.h"

#include <unistd.h>

#include "base/alloc.h"

// ---- fork

// Of all guards. Used only once the fork handler is registered, so that no child finds it taken.
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
  // Also where the thread that was registering is the parent's.
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

// In a child of a fork that came while this ran, the C library runs it again. False without memory.
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

// Waits for the thread; others wait for the one that joins.
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
  // The thread is the parent's, and so is who may have been joining it.
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
  // Nothing is registered here. The lock under which generators are made keeps forks away.
  warm_up(guard);
  qn__exit_release();
}

void qn__gpu_compiler_guard_deinit(qn__gpu_compiler_guard_t* guard) {
  if (guard->has_thread && guard->pid == getpid()) (void)pthread_join(guard->thread, NULL);
}
