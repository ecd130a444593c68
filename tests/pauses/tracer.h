// SPDX-License-Identifier: Apache-2.0
// tests/pauses/tracer.h: shared declarations of `pauses`: starting a command, its trial, and the
// event loop that traces it.
//
// Thread rule: one thread. ptrace accepts requests from the tracing thread only.
#ifndef QUERN_TESTS_PAUSES_TRACER_H_
#define QUERN_TESTS_PAUSES_TRACER_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PAUSES_SHORTEST_MS 0.05
// Exit codes: an error of `pauses` itself, and ptrace not available (CTest's SKIP_RETURN_CODE).
#define PAUSES_FAILED 125
#define PAUSES_SKIPPED 77

typedef struct {
  uint64_t seed;
  double gap_ms, longest_ms;
  bool is_loud;
} pauses_options_t;

// Prints the error to standard error and exits with PAUSES_FAILED.
_Noreturn void pauses_fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

int64_t pauses_now_ns(void);

// A child that waits before its exec. Only `tid` is valid after its gate is open.
typedef struct {
  pid_t tid;
  int gate;
} pauses_command_t;

// Forks a child that waits for its gate and then executes the command. Blocks the signals in `news`
// (SIGCHLD and the forwarded ones) in this process; the child gets the former mask. With
// `arguments` NULL the child exits with PAUSES_TRIAL_STATUS instead.
pauses_command_t pauses_start(char** arguments, const sigset_t* news);
// Traces the child. Returns 0 or errno.
int pauses_seize(const pauses_command_t* command);
void pauses_open_gate(pauses_command_t* command);

#define PAUSES_TRIAL_STATUS 42

// Performs each step of a pause on a child. Returns 0, or prints the reason and returns
// PAUSES_SKIPPED.
int pauses_try(void);

// Traces the command with pauses until it ends. Returns its exit status.
int pauses_trace(const pauses_options_t* options, pid_t command, const sigset_t* news);

#endif  // QUERN_TESTS_PAUSES_TRACER_H_
