// jit/gpu/gate.c: compiler libraries keep global state behind locks of their own. A fork while one
// of those is held would leave a child that hangs at its first compile.
//
// So a fork waits until no compile is under way; that is registered at the first compile and not
// earlier, because the engine makes generators under a lock that its own fork handler takes. For a
// fork between creation and first compile the warm-up's state tells: a child in which it is
// unfinished refuses to compile.
//
// What a library makes when it is first used must not be ended while the warm-up still runs: the
// thread holds the end of the process (base/fork.h), and the first compile waits for the thread, so
// that the engine's own hold covers it too. Thread rule: in gate.h. Read next: nvrtc/compiler.c.
#include "jit/gpu/gate.h"

#include <unistd.h>

#include "base/alloc.h"

// ---- warm-up

static void* run_warm(void* self) {
  qn__gate_t* gate = self;
  gate->warm(gate->self);
  atomic_store_explicit(&gate->is_warm, true, memory_order_release);
  qn__exit_release();
  return NULL;
}

// Called with the mutex, which it lets go meanwhile; others wait for the one that joins.
static void join_locked(qn__gate_t* gate) {
  while (gate->is_joining) qn__cond_wait(&gate->cond, &gate->mutex);
  if (!gate->has_thread) return;
  gate->is_joining = true;
  qn__mutex_unlock(&gate->mutex);
  (void)pthread_join(gate->thread, NULL);
  qn__mutex_lock(&gate->mutex);
  gate->has_thread = false;
  gate->is_joining = false;
  qn__cond_broadcast(&gate->cond);
}

// ---- fork

static void fork_prepare(void* self) {
  qn__gate_t* gate = self;
  qn__mutex_lock(&gate->mutex);
  join_locked(gate);
  while (gate->busy_count > 0) qn__cond_wait(&gate->cond, &gate->mutex);
}
static void fork_parent(void* self) {
  qn__mutex_unlock(&((qn__gate_t*)self)->mutex);
}
static void fork_child(void* self) {
  qn__gate_t* gate = self;
  gate->busy_count = 0;
  gate->is_joining = false;
  qn_status_free(qn__mutex_init(&gate->mutex));
  qn_status_free(qn__cond_init(&gate->cond));
}

// ---- compiles

qn_status_t qn__gate_begin(qn__gate_t* gate) {
  bool is_child = gate->pid != getpid();
  if (is_child && !atomic_load_explicit(&gate->is_warm, memory_order_acquire)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the process was forked while %s warmed up; compile in the parent, or "
                          "fork before the first lookup",
                          gate->library);
  }
  qn_status_t status = QN_OK;
  qn__mutex_lock(&gate->mutex);
  if (is_child) gate->has_thread = false;  // it is the parent's
  join_locked(gate);
  bool must_register = !gate->is_registered;
  gate->is_registered = true;
  qn__mutex_unlock(&gate->mutex);
  // Not under the mutex: a fork takes it with the registry's lock held.
  if (must_register) {
    gate->fork_node = (qn__fork_node_t){
        .self = gate, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
    if (!qn__fork_register(&gate->fork_node)) status = qn__out_of_memory("a fork handler");
  }
  qn__mutex_lock(&gate->mutex);
  if (qn_ok(status)) ++gate->busy_count;
  if (!qn_ok(status)) gate->is_registered = false;
  qn__mutex_unlock(&gate->mutex);
  return status;
}

void qn__gate_end(qn__gate_t* gate) {
  qn__mutex_lock(&gate->mutex);
  if (--gate->busy_count == 0) qn__cond_broadcast(&gate->cond);
  qn__mutex_unlock(&gate->mutex);
}

// ---- life

qn_status_t qn__gate_init(qn__gate_t* gate, const char* library) {
  gate->library = library;
  gate->pid = getpid();
  QN_TRY(qn__mutex_init(&gate->mutex));
  return qn__cond_init(&gate->cond);
}

void qn__gate_warm(qn__gate_t* gate, const char* thread_name, void (*warm)(void* self),
                   void* self) {
  gate->warm = warm;
  gate->self = self;
  qn__exit_watch_caller();
  qn__exit_hold();
  qn_status_t started = qn__thread_start(&gate->thread, thread_name, 0, run_warm, gate);
  gate->has_thread = qn_ok(started);
  if (gate->has_thread) return;
  qn_status_free(started);
  (void)run_warm(gate);
}

void qn__gate_deinit(qn__gate_t* gate) {
  if (gate->is_registered) qn__fork_unregister(&gate->fork_node);
  if (gate->has_thread && gate->pid == getpid()) (void)pthread_join(gate->thread, NULL);
  qn__cond_deinit(&gate->cond);
  qn__mutex_deinit(&gate->mutex);
}
