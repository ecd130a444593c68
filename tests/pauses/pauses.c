// tests/pauses/pauses.c: runs a command and stops single threads of it, each for a while, at any
// instruction or between two system calls: what a test leaves to the scheduler then happens in
// orders that no load brings.
//
//   pauses [--seed N] [--gap-ms F] [--longest-ms F] [--loud] [--] COMMAND [ARGUMENT...]
//   pauses --check
//
// How: the command and all that it starts are traced (PTRACE_SEIZE). Now and then (every --gap-ms
// on average) one thread is drawn and asked to stop. It is held where that meets it, which may be
// in the middle of its own code or in a call that waits; or it goes on to the entry or exit of one
// of its next calls, because what others can see changes there. After 0.05 to
// --longest-ms milliseconds, evenly in the logarithm, it goes on; meanwhile the others run.
// Signals, stops and continues of the command's own pass. A signal that is sent to this program
// goes to the command; one that the terminal sends has the command already. The exit status is the
// command's, 128 and the signal that ended it, 127 where there is no such command, 126 where it
// cannot be run, 125 for what is wrong here. What the command leaves running is let go.
//
// Not here: which tests are run so (run). What it cannot do: no thread stops inside of a system
// call that the kernel works on; a seed repeats which lengths are drawn, but not what a thread was
// just doing; a traced process can trace nothing and cannot be traced, so that LeakSanitizer and
// debuggers fail in it; calls that Linux ends with EINTR when a process is stopped and continued
// (epoll_wait, semop and others of signal(7)) end so here; and a process whose first thread has
// ended before the others is not let go but waited for. Where ptrace is not permitted, as in some
// containers, --check says so with status 77.
//
// Thread rule: this program has one thread; only the tracer may ask ptrace for anything.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/pauses/tracer.h"

// What goes to the command when it is sent to this program.
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

// Returns the command, or NULL where the command line asks for --check.
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
