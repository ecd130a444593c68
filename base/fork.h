// SPDX-License-Identifier: Apache-2.0
// base/fork.h: handlers for fork and exit, for objects with locks or threads.
//
// An object registers a node with its mutex: a fork takes the mutex before and leaves it free in
// parent and child. An object with more locks than one takes them in `prepare` and frees them in
// `parent` and `child`. `child` also forgets the threads that only the parent has. The list of
// nodes is the second mutable global of the library, because pthread_atfork takes no argument.
//
// Thread rule: call register and unregister with none of the object's locks held: a fork takes them
// while it holds the lock of the list. Read next: fork.c.
#ifndef QUERN_BASE_FORK_H_
#define QUERN_BASE_FORK_H_

#include "base/thread.h"

typedef struct qn__fork_node {
  void* self;
  qn__mutex_t* mutex;  // like each function below, it may be NULL
  void (*prepare)(void* self);
  void (*parent)(void* self);
  void (*child)(void* self);  // may make async-signal-unsafe calls, but must not allocate or do I/O
  // Called when the process exits, before libraries that were loaded later end (see below). May
  // wait until `deadline_ns` (qn__now_ns), which all nodes share.
  void (*at_exit)(void* self, int64_t deadline_ns);
  struct qn__fork_node* next;
  struct qn__fork_node* previous;
  struct qn__fork_node* next_to_exit;
} qn__fork_node_t;

// Borrows `node` until it is unregistered. False when the handlers cannot be installed (no memory).
bool qn__fork_register(qn__fork_node_t* node);
void qn__fork_unregister(qn__fork_node_t* node);
// Registers an exit handler. Call it after loading a library that must not end while threads are
// inside it, and again after its first use: exit handlers run in the inverse order of their
// registration. Only the first few calls count.
void qn__fork_watch_exit(void);

// Brackets the first use of a library. Objects that a library creates then are destroyed before
// exit handlers that were registered earlier run. So the main thread, if qn__exit_watch_caller has
// seen it, waits for such uses before the first exit handler: for 5 s, or longer on a busy machine,
// and then gives up, whether other threads compute or not. An exit on another thread does not wait
// for them.
void qn__exit_hold(void);
void qn__exit_release(void);
// For an `at_exit` whose deadline has passed: true, with a later deadline, while other threads
// still compute but have had less than 5 s of processor time on a busy machine; for a minute at
// most.
bool qn__exit_prolong(int64_t* inout_deadline_ns);
// For an `at_exit` that has waited in vain for a thread inside a library. If other threads still
// compute, the process ends with its status when this handler returns: the exit handlers that
// remain are left out, because the destructors of the library are among them, and streams are
// flushed. Threads that hang do no harm: with them the exit goes on.
void qn__exit_give_up(void);
// Call it on the threads of callers. After the first time it costs a test of a flag.
void qn__exit_watch_caller(void);

#endif  // QUERN_BASE_FORK_H_
