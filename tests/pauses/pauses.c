// SPDX-License-Identifier: Apache-2.0
// tests/pauses/pauses.c: runs a command and pauses single threads of it at random points: at any
// instruction or between system calls. This provokes thread schedules that load alone does not
// produce.
//
//   pauses [--seed N] [--gap-ms F] [--longest-ms F] [--loud] [--] COMMAND [ARGUMENT...]
//   pauses --check
//
// The command and all its descendants are traced (PTRACE_SEIZE). Every --gap-ms milliseconds on
// average one random thread is interrupted. A third of the pauses begin where the interrupt
// arrives: in user code or in a blocking call. The others begin at the entry or exit of one of the
// thread's next system calls, where effects become visible to other threads. A pause lasts from
// 0.05 to --longest-ms milliseconds, log-uniformly distributed; all other threads run on.
//
// The command's own signals, stops and continues pass through unchanged. A signal sent to this
// program is forwarded to the command, except for a signal from the terminal, which the command
// receives itself. Processes that outlive the command are detached.
//
// Exit status: that of the command; 128 plus the number of the signal that ended it; 127 if the
// command does not exist; 126 if it cannot be run; 125 for an error of this program. --check
// returns 77 and prints the reason where ptrace is not permitted, as in some containers.
//
// Limits:
//   - No thread is paused while the kernel runs its system call.
//   - A seed repeats the lengths of pauses, but not the places where they hit a thread.
//   - A traced process cannot trace or be traced again, so LeakSanitizer and debuggers fail in it.
//   - Calls that Linux ends with EINTR after a stop and continue (epoll_wait, semop and others, see
//     signal(7)) do so here.
//   - A process whose first thread ended before the others is waited for instead of detached.
//
// Thread rule: one thread. ptrace accepts requests from the tracing thread only. `run` selects the
// tests that run under this program.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/pauses/tracer.h"

// The signals that are forwarded to the command.
static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

void pauses_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("pauses: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(PAUSES_FAILED);
}

int64_t pauses_now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static double read_ms(const char* name, const char* text, double least) {
  char* end;
  errno = 0;
  const double value = strtod(text, &end);
  if (end == text || *end != '\0' || errno != 0 || !(value >= least && value <= 1e6)) {
    pauses_fail("%s takes milliseconds from %g to 1000000, not '%s'", name, least, text);
  }
  return value;
}

static uint64_t read_seed(const char* text) {
  char* end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
    pauses_fail("--seed takes a number from 0 to 18446744073709551615, not '%s'", text);
  }
  return value;
}

static void usage(void) {
  puts(
      "usage: pauses [--seed N] [--gap-ms F] [--longest-ms F] [--loud] [--] COMMAND [ARGUMENT...]\n"
      "       pauses --check\n"
      "Runs a command and stops single threads of it for a while, at any instruction or between "
      "two calls.\n"
      "  --seed N        which threads and lengths are drawn [the time]\n"
      "  --gap-ms F      from one pause to the next, on average [3]\n"
      "  --longest-ms F  the longest pause; the shortest is 0.05 [300]\n"
      "  --loud          says in the end, on standard error, the seed and how many pauses there "
      "were\n"
      "  --check         only says whether that works here; status 77 when not");
}

// Returns the command, or NULL for --check.
static char** read_options(char** arguments, pauses_options_t* out) {
  *out = (pauses_options_t){
      .seed = (uint64_t)pauses_now_ns() ^ (uint64_t)getpid() << 40, .gap_ms = 3, .longest_ms = 300};
  for (; arguments[0] != NULL && arguments[0][0] == '-'; arguments++) {
    const char* name = arguments[0];
    if (strcmp(name, "--") == 0) {
      arguments++;
      break;
    } else if (strcmp(name, "--help") == 0) {
      usage();
      exit(0);
    } else if (strcmp(name, "--check") == 0) {
      if (arguments[1] != NULL) pauses_fail("--check takes no command, not '%s'", arguments[1]);
      return NULL;
    } else if (strcmp(name, "--loud") == 0) {
      out->is_loud = true;
      continue;
    }
    const bool is_seed = strcmp(name, "--seed") == 0, is_gap = strcmp(name, "--gap-ms") == 0;
    if (!is_seed && !is_gap && strcmp(name, "--longest-ms") != 0) {
      pauses_fail("unknown option '%s'; see pauses --help", name);
    }
    const char* value = *++arguments;
    if (value == NULL) pauses_fail("%s takes a value", name);
    if (is_seed) {
      out->seed = read_seed(value);
    } else if (is_gap) {
      out->gap_ms = read_ms(name, value, 0.01);
    } else {
      out->longest_ms = read_ms(name, value, PAUSES_SHORTEST_MS);
    }
  }
  if (arguments[0] == NULL) pauses_fail("a command is missing; see pauses --help");
  return arguments;
}

int main(int argc, char** argv) {
  (void)argc;
  pauses_options_t options;
  char** arguments = read_options(argv + 1, &options);
  if (arguments == NULL) return pauses_try();
  sigset_t news;
  sigemptyset(&news);
  sigaddset(&news, SIGCHLD);
  for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++) {
    sigaddset(&news, forwarded[i]);
  }
  pauses_command_t command = pauses_start(arguments, &news);
  const int error = pauses_seize(&command);
  if (error != 0) {
    pauses_fail("the command cannot be traced: %s; see pauses --check", strerror(error));
  }
  pauses_open_gate(&command);
  return pauses_trace(&options, command.tid, &news);
}
