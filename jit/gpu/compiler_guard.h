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
  bool has_thread;  // and it has not been joined; guarded by the lock of guard.c, as the next
  bool is_joining;
  _Atomic bool is_warm;
} qn__gpu_compiler_guard_t;

// Of a zeroed guard.
void qn__gpu_compiler_guard_init(qn__gpu_compiler_guard_t* guard, const char* library);
// Starts the thread that runs `warm`; where none can be had it is run here: slow, and right. `self`
// is borrowed until the deinit.
void qn__gpu_compiler_guard_warm(qn__gpu_compiler_guard_t* guard, const char* thread_name,
                                 void (*warm)(void* self), void* self);
// Waits for the thread.
void qn__gpu_compiler_guard_deinit(qn__gpu_compiler_guard_t* guard);

// Around each compile; what the warm-up wrote is visible behind begin. A fork waits for the end of
// all compiles and warm-ups. Errors: UNAVAILABLE in the child of a fork that came before the
// guard's warm-up had begun, OUT_OF_MEMORY.
qn_status_t qn__gpu_compiler_guard_begin(qn__gpu_compiler_guard_t* guard);
void qn__gpu_compiler_guard_end(qn__gpu_compiler_guard_t* guard);

#endif  // QUERN_JIT_GPU_COMPILER_GUARD_H_
