// SPDX-License-Identifier: Apache-2.0
// jit/gpu/compiler_guard.h: makes fork and exit wait for compiles in libraries with global state,
// and warms such a library up on a thread.
//
// Thread rule: begin and end from any thread, many at once; init and deinit by the owner.
#ifndef QUERN_JIT_GPU_COMPILER_GUARD_H_
#define QUERN_JIT_GPU_COMPILER_GUARD_H_

#include <stdatomic.h>
#include <sys/types.h>

#include "base/fork.h"
#include "base/thread.h"

typedef struct qn__gpu_compiler_guard {
  const char* library;  // for messages: "NVRTC"
  void (*warm)(void* self);
  void* self;
  pid_t pid;  // of the process that started the thread
  pthread_t thread;
  // Both are guarded by the mutex of compiler_guard.c.
  bool has_thread;  // started and not yet joined
  bool is_joining;
  _Atomic bool is_warm;
} qn__gpu_compiler_guard_t;

// Initialises a guard, which must be zeroed. `library` is borrowed until the deinit.
void qn__gpu_compiler_guard_init(qn__gpu_compiler_guard_t* guard, const char* library);
// Starts a thread that runs `warm`. If no thread can be started, runs `warm` on this one. `self` is
// borrowed until the deinit.
void qn__gpu_compiler_guard_warm(qn__gpu_compiler_guard_t* guard, const char* thread_name,
                                 void (*warm)(void* self), void* self);
// Joins the thread.
void qn__gpu_compiler_guard_deinit(qn__gpu_compiler_guard_t* guard);

// Bracket each compile. Begin waits for the warm-up, whose writes are visible after it. A fork
// waits until all compiles and warm-ups have ended. Errors: UNAVAILABLE in a child that was forked
// before the guard's warm-up had ended, OUT_OF_MEMORY.
qn_status_t qn__gpu_compiler_guard_begin(qn__gpu_compiler_guard_t* guard);
void qn__gpu_compiler_guard_end(qn__gpu_compiler_guard_t* guard);

#endif  // QUERN_JIT_GPU_COMPILER_GUARD_H_
