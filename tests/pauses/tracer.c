// SPDX-License-Identifier: Apache-2.0
// tests/pauses/tracer.c: the event loop of the tracer: handles ptrace reports, pauses random
// threads and resumes them.
//
// States of a thread:
//   running -> asked      PTRACE_INTERRUPT was sent; the thread has not stopped yet
//   asked -> held         the pause begins where the interrupt arrived
//   asked -> steps        the thread runs from call to call until the pause begins
//   steps -> held         the pause begins at the entry or exit of a call
//   held -> running       the pause is over
//   any -> stopped        job control stopped the process; the tracer leaves it alone
//
// A signal that arrives at the start of a pause is delivered at its end. Thread rule: one thread.
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/pauses/tracer.h"
#include "tests/support/random.h"

#define SECOND_NS INT64_C(1000000000)
// A pause at a call begins at one of the next MAX_CALLS entries and exits of calls.
#define MAX_CALLS 6
#define CALL_STOP (SIGTRAP | 0x80)

typedef enum {
  TRACEE_RUNS,
  TRACEE_ASKED,    // PTRACE_INTERRUPT was sent; not stopped yet
  TRACEE_STEPS,    // runs to the call where its pause begins
  TRACEE_HELD,     // paused
  TRACEE_STOPPED,  // with its process, by a signal, until SIGCONT
} tracee_state_t;

typedef struct {
  pid_t tid;
  tracee_state_t state;
  int calls_left;     // asked, steps: entries and exits of calls before the pause
  int signal;         // held: the signal to deliver at the end of the pause, or 0
  int64_t length_ns;  // asked, steps
  int64_t until_ns;   // held
} tracee_t;

typedef struct {
  const pauses_options_t* options;
  uint64_t random;
  tracee_t* tracees;
  size_t count, capacity;
  size_t most;  // the largest `count` so far
  size_t pauses;
  int64_t paused_ns;
  int64_t next_ns;  // when the next thread is interrupted
  pid_t command;
  bool is_over;  // the command has ended, and all other threads are detached
  int status;
} tracer_t;

// Returns a random number in [0, 1).
static double draw(tracer_t* tracer) {
  return (double)(random_next(&tracer->random) >> 11) / 9007199254740992.0;
}

static long ask(enum __ptrace_request request, pid_t tid, int signal) {
  return ptrace(request, tid, NULL, (void*)(intptr_t)signal);
}

// --- the threads that are traced ---

static tracee_t* find(tracer_t* tracer, pid_t tid) {
  for (size_t i = 0; i < tracer->count; i++) {
    if (tracer->tracees[i].tid == tid) return &tracer->tracees[i];
  }
  return NULL;
}

static tracee_t* find_or_add(tracer_t* tracer, pid_t tid) {
  tracee_t* known = find(tracer, tid);
  if (known != NULL) return known;
  if (tracer->count == tracer->capacity) {
    tracer->capacity = tracer->capacity == 0 ? 64 : 2 * tracer->capacity;
    tracer->tracees = realloc(tracer->tracees, tracer->capacity * sizeof(tracee_t));
    if (tracer->tracees == NULL) pauses_fail("out of memory for %zu threads", tracer->capacity);
  }
  tracee_t* tracee = &tracer->tracees[tracer->count++];
  *tracee = (tracee_t){.tid = tid};
  if (tracer->most < tracer->count) tracer->most = tracer->count;
  return tracee;
}

static void drop(tracer_t* tracer, tracee_t* tracee) {
  *tracee = tracer->tracees[--tracer->count];
}

// Resumes a stopped thread. Ignores errors: they mean that the thread was killed, and its exit is
// reported separately.
static void go_on(tracee_t* tracee, int signal) {
  ask(tracee->state == TRACEE_STEPS ? PTRACE_SYSCALL : PTRACE_CONT, tracee->tid, signal);
}

static void hold(tracee_t* tracee, int signal) {
  tracee->state = TRACEE_HELD;
  tracee->signal = signal;
  tracee->until_ns = pauses_now_ns() + tracee->length_ns;
}

static void release_held(tracer_t* tracer) {
  const int64_t now = pauses_now_ns();
  for (size_t i = 0; i < tracer->count; i++) {
    tracee_t* tracee = &tracer->tracees[i];
    if (tracee->state != TRACEE_HELD || tracee->until_ns > now) continue;
    tracee->state = TRACEE_RUNS;
    go_on(tracee, tracee->signal);
  }
}

// Interrupts a random thread if the time of the next pause has come. Skips a thread that is already
// in a pause.
static void pause_one(tracer_t* tracer) {
  const int64_t now = pauses_now_ns();
  if (now < tracer->next_ns || tracer->count == 0) return;
  tracer->next_ns = now + (int64_t)(-log(1 - draw(tracer)) * tracer->options->gap_ms * 1e6);
  tracee_t* tracee = &tracer->tracees[random_next(&tracer->random) % tracer->count];
  const double length_ms =
      PAUSES_SHORTEST_MS *
      exp(draw(tracer) * log(tracer->options->longest_ms / PAUSES_SHORTEST_MS));
  const bool is_anywhere = random_next(&tracer->random) % 3 == 0;
  const int calls = 1 + (int)(random_next(&tracer->random) % MAX_CALLS);
  if (tracee->state != TRACEE_RUNS) return;
  if (ask(PTRACE_INTERRUPT, tracee->tid, 0) != 0) {
    // The thread ended before its parent reported the start.
    drop(tracer, tracee);
    return;
  }
  tracee->state = TRACEE_ASKED;
  tracee->length_ns = (int64_t)(length_ms * 1e6);
  tracee->calls_left = is_anywhere ? 0 : calls;
  tracer->pauses++;
  tracer->paused_ns += tracee->length_ns;
}

// --- reports of threads ---

static void let_go(tracer_t* tracer, tracee_t* tracee, int signal) {
  ask(PTRACE_DETACH, tracee->tid, signal);
  drop(tracer, tracee);
}

// Detaches all threads after the command has ended. Only a stopped thread can be detached, so
// running threads are interrupted first.
static void let_all_go(tracer_t* tracer) {
  tracer->is_over = true;
  for (size_t i = tracer->count; i-- > 0;) {
    tracee_t* tracee = &tracer->tracees[i];
    if (tracee->state == TRACEE_HELD) {
      let_go(tracer, tracee, tracee->signal);
    } else if (ask(PTRACE_INTERRUPT, tracee->tid, 0) != 0) {
      drop(tracer, tracee);
    }
  }
}

// Adds a started thread now: its first stop may be reported later than many reports of its parent.
static void on_start(tracer_t* tracer, pid_t parent) {
  unsigned long tid = 0;
  if (ptrace(PTRACE_GETEVENTMSG, parent, NULL, &tid) != 0 || tid == 0) return;
  tracee_t* tracee = find_or_add(tracer, (pid_t)tid);
  if (tracer->is_over && ask(PTRACE_INTERRUPT, tracee->tid, 0) != 0) drop(tracer, tracee);
}

// Moves the state of a thread that called exec to its new number, that of its process's first
// thread. All other threads are gone; neither the end of the first thread nor of the old number is
// reported.
static void on_exec(tracer_t* tracer, pid_t tid) {
  unsigned long former = 0;
  const bool is_told = ptrace(PTRACE_GETEVENTMSG, tid, NULL, &former) == 0;
  tracee_t* before = is_told && (pid_t)former != tid ? find(tracer, (pid_t)former) : NULL;
  if (before == NULL) return;
  const tracee_t state = *before;
  drop(tracer, before);
  tracee_t* tracee = find_or_add(tracer, tid);
  *tracee = state;
  tracee->tid = tid;
}

static void on_stop(tracer_t* tracer, pid_t tid, int status) {
  const int event = status >> 16;
  const int stop_signal = WSTOPSIG(status);
  switch (event) {
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
      on_start(tracer, tid);
      break;
    case PTRACE_EVENT_EXEC:
      on_exec(tracer, tid);
      break;
    default:
      break;
  }
  const bool is_call = event == 0 && stop_signal == CALL_STOP;
  const int signal = event == 0 && !is_call ? stop_signal : 0;
  tracee_t* tracee = find_or_add(tracer, tid);
  if (tracer->is_over) {
    let_go(tracer, tracee, signal);
    return;
  }
  if (event == PTRACE_EVENT_STOP && stop_signal != SIGTRAP) {
    // Job control stopped the process. PTRACE_LISTEN keeps it stopped and reports the end of that.
    tracee->state = TRACEE_STOPPED;
    ask(PTRACE_LISTEN, tid, 0);
    return;
  }
  // Any stop ends the interrupt: the kernel drops a pending PTRACE_INTERRUPT then.
  if (tracee->state == TRACEE_ASKED) {
    tracee->state = TRACEE_STEPS;
    if (tracee->calls_left == 0) {
      hold(tracee, signal);
      return;
    }
  } else if (tracee->state == TRACEE_STEPS) {
    if (is_call && --tracee->calls_left == 0) {
      hold(tracee, 0);
      return;
    }
  } else {
    tracee->state = TRACEE_RUNS;
  }
  go_on(tracee, signal);
}

static void on_end(tracer_t* tracer, pid_t tid, int status) {
  tracee_t* tracee = find(tracer, tid);
  if (tracee != NULL) drop(tracer, tracee);
  if (tid != tracer->command) return;
  tracer->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  let_all_go(tracer);
}

// --- the loop ---

// Sleeps until the next report, pause or end of a pause. The signals are blocked, so signals that
// arrived before are still pending and none is missed.
static void wait_for_news(tracer_t* tracer, const sigset_t* news) {
  int64_t until = pauses_now_ns() + SECOND_NS;
  if (!tracer->is_over && tracer->next_ns < until) until = tracer->next_ns;
  for (size_t i = 0; i < tracer->count; i++) {
    const tracee_t* tracee = &tracer->tracees[i];
    if (tracee->state == TRACEE_HELD && tracee->until_ns < until) until = tracee->until_ns;
  }
  const int64_t left = until - pauses_now_ns();
  if (left <= 0) return;
  const struct timespec patience = {.tv_sec = left / SECOND_NS, .tv_nsec = left % SECOND_NS};
  siginfo_t info;
  const int signal = sigtimedwait(news, &info, &patience);
  if (signal <= 0 || signal == SIGCHLD) return;
  if (tracer->is_over) exit(128 + signal);
  if (info.si_code != SI_KERNEL) kill(tracer->command, signal);
}

static void trace(tracer_t* tracer, const sigset_t* news) {
  for (;;) {
    // Handle a bounded number of reports at once. Otherwise a thread that steps from call to call
    // could delay the ends of other pauses.
    bool is_quiet = false;
    for (int i = 0; i < 64 && !is_quiet; i++) {
      int status;
      const pid_t tid = waitpid(-1, &status, __WALL | WNOHANG);
      if (tid < 0 && errno == ECHILD) return;
      is_quiet = tid <= 0;
      if (is_quiet) continue;
      if (WIFSTOPPED(status)) {
        on_stop(tracer, tid, status);
      } else {
        on_end(tracer, tid, status);
      }
    }
    if (tracer->is_over && tracer->count == 0) return;
    release_held(tracer);
    if (!tracer->is_over) pause_one(tracer);
    if (is_quiet) wait_for_news(tracer, news);
  }
}

int pauses_trace(const pauses_options_t* options, pid_t command, const sigset_t* news) {
  // The generator must not start with 0. Small seeds give similar first numbers, so eight are
  // dropped.
  tracer_t tracer = {
      .options = options, .command = command, .next_ns = pauses_now_ns(), .status = PAUSES_FAILED};
  tracer.random = options->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
  if (tracer.random == 0) tracer.random = 1;
  for (int i = 0; i < 8; i++) random_next(&tracer.random);
  find_or_add(&tracer, command);
  trace(&tracer, news);
  if (options->is_loud) {
    fprintf(stderr,
            "pauses: seed %llu: %zu pauses, %.1f s together, of up to %zu threads at once\n",
            (unsigned long long)options->seed, tracer.pauses, (double)tracer.paused_ns / 1e9,
            tracer.most);
  }
  free(tracer.tracees);
  return tracer.status;
}
