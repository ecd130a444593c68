// tests/pauses/tracer.h: what the files of `pauses` share: a command that is started and not yet
// let go, its trial, and the loop that traces it.
//
// Thread rule: one thread does all of it; only the tracer may ask ptrace for anything.
#ifndef QUERN_TESTS_PAUSES_TRACER_H_
#define QUERN_TESTS_PAUSES_TRACER_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PAUSES_SHORTEST_MS 0.05
// What is wrong with `pauses` itself, and what does not work here, in the manner of CTest's
// SKIP_RETURN_CODE.
#define PAUSES_FAILED 125
#define PAUSES_SKIPPED 77

typedef struct {
  uint64_t seed;
  double gap_ms, longest_ms;
  bool is_loud;
} pauses_options_t;

// Says on standard error what went wrong, and ends with PAUSES_FAILED.
_Noreturn void pauses_fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

int64_t pauses_now_ns(void);

// A child that waits to become the command. Only `tid` stays of use once its gate is open.
typedef struct {
  pid_t tid;
  int gate;
} pauses_command_t;

// Forks. What the loop waits for (`news`: SIGCHLD and what is sent on) is blocked from here on, and
// as it was for the command. With NULL as arguments the child ends with PAUSES_TRIAL_STATUS in
// place of becoming a command.
pauses_command_t pauses_start(char** arguments, const sigset_t* news);
// Traces the child. Returns 0 or errno.
int pauses_seize(const pauses_command_t* command);
void pauses_open_gate(pauses_command_t* command);

#define PAUSES_TRIAL_STATUS 42

// Each step of a pause, on a child of our own: returns 0, or PAUSES_SKIPPED where that does not
// work, and prints why.
int pauses_try(void);

// Traces the command, with pauses, until it ends; returns its status.
int pauses_trace(const pauses_options_t* options, pid_t command, const sigset_t* news);

#endif  // QUERN_TESTS_PAUSES_TRACER_H_
