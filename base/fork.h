// base/fork.h: objects with locks or threads that must survive fork, and those whose threads must
// not run into the end of the process.
//
// An object registers a node; before a fork its `prepare` takes its locks, and after it `parent` or
// `child` lets them go, the latter after forgetting the threads that the child does not have. This
// is the second mutable global of the library, because pthread_atfork takes no argument.
//
// Thread rule: any thread. Register and unregister with none of the object's locks held: a fork
// holds the registry's lock while it takes them. Read next: fork.c.
#ifndef QUERN_BASE_FORK_H_
#define QUERN_BASE_FORK_H_

#include "base/base.h"

typedef struct qn__fork_node {
  void* self;
  void (*prepare)(void* self);  // each may be NULL
  void (*parent)(void* self);
  void (*child)(void* self);  // async-signal-unsafe calls are fine, allocation and I/O are not
  // When the process calls exit, before libraries that were loaded later are ended: see below. It
  // may wait until `deadline_ns` (qn__now_ns), which all nodes share, however many there are.
  void (*at_exit)(void* self, int64_t deadline_ns);
  struct qn__fork_node* next;
  struct qn__fork_node* previous;
  struct qn__fork_node* next_to_exit;
} qn__fork_node_t;

// Borrows `node` until it is unregistered. False when the handlers cannot be installed (no memory).
bool qn__fork_register(qn__fork_node_t* node);
void qn__fork_unregister(qn__fork_node_t* node);
// To be called when a library has been loaded whose end must not come while threads are inside of
// it, and when it has been used for the first time: exit handlers run in the inverse order of their
// registration. Any number of times; only the first few count.
void qn__fork_watch_exit(void);

// What a library makes while it is used for the first time is ended before any exit handler that is
// registered before that use is over. So whoever is in there holds the end of the process: the main
// thread, if it has been seen by qn__exit_watch_caller, waits for him (5 s, or longer on a busy
// machine) before the first handler runs. An exit on another thread does not wait for that one use.
void qn__exit_hold(void);
void qn__exit_release(void);
// For an `at_exit` whose deadline has passed, on its thread: true, with a later one, while the
// process still computes but has had less than 5 s on the cores of a busy machine, for a minute at
// most.
bool qn__exit_prolong(int64_t* inout_deadline_ns);
// To be called on the threads of callers; costs a look at a flag after the first time.
void qn__exit_watch_caller(void);

#endif  // QUERN_BASE_FORK_H_
