// jit/gpu/gate.h: what stands in front of a compiler library with global state: its warm-up on a
// thread, and what a fork and the end of the process must wait for.
//
// Thread rule: begin and end from any thread, many at once; init and deinit by the owner. Read
// next: gate.c.
#ifndef QUERN_JIT_GPU_GATE_H_
#define QUERN_JIT_GPU_GATE_H_

#include <stdatomic.h>
#include <sys/types.h>

#include "base/fork.h"
#include "base/thread.h"

typedef struct qn__gate {
  const char* library;  // for messages: "NVRTC"
  void (*warm)(void* self);
  void* self;
  pid_t pid;  // of the process that started the thread
  pthread_t thread;
  bool has_thread;  // and it has not been joined; guarded by the lock of gate.c, as the next
  bool is_joining;
  _Atomic bool is_warm;
} qn__gate_t;

// Of a zeroed gate.
void qn__gate_init(qn__gate_t* gate, const char* library);
// Starts the thread that runs `warm`; where none can be had it is run here: slow, and right. `self`
// is borrowed until the deinit.
void qn__gate_warm(qn__gate_t* gate, const char* thread_name, void (*warm)(void* self), void* self);
// Waits for the thread.
void qn__gate_deinit(qn__gate_t* gate);

// Around each compile; what the warm-up wrote is visible behind begin. A fork waits for the end of
// all compiles and warm-ups. Errors: UNAVAILABLE in the child of a fork that came before the gate's
// warm-up had begun, OUT_OF_MEMORY.
qn_status_t qn__gate_begin(qn__gate_t* gate);
void qn__gate_end(qn__gate_t* gate);

#endif  // QUERN_JIT_GPU_GATE_H_
