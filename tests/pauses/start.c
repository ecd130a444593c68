// SPDX-License-Identifier: Apache-2.0
// tests/pauses/start.c: starts a command under the tracer: the child waits until it is traced, then
// calls exec. Also holds the trial, which performs each step of a pause once.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/pauses/tracer.h"

#define TRIAL_NS INT64_C(30000000000)
#define CALL_STOP (SIGTRAP | 0x80)

// Waits for a byte from the tracer, then executes the command. Exits if the pipe is closed without
// a byte.
_Noreturn static void become_command(int gate, char** arguments) {
  char byte;
  ssize_t got;
  do {
    got = read(gate, &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) _exit(PAUSES_FAILED);
  if (arguments == NULL) _exit(PAUSES_TRIAL_STATUS);
  close(gate);
  execvp(arguments[0], arguments);
  const int error = errno;
  fprintf(stderr, "pauses: cannot run '%s': %s\n", arguments[0], strerror(error));
  _exit(error == ENOENT ? 127 : 126);
}

pauses_command_t pauses_start(char** arguments, const sigset_t* news) {
  int gate[2];
  if (pipe(gate) != 0) pauses_fail("no pipe: %s", strerror(errno));
  // The parent may have been started with SIGCHLD ignored. Children's exits would not be reported
  // then.
  sigset_t mask;
  struct sigaction on_child;
  sigprocmask(SIG_BLOCK, news, &mask);
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &on_child);
  fflush(NULL);
  const pid_t child = fork();
  if (child < 0) pauses_fail("cannot fork: %s", strerror(errno));
  if (child == 0) {
    close(gate[1]);
    sigaction(SIGCHLD, &on_child, NULL);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    become_command(gate[0], arguments);
  }
  close(gate[0]);
  return (pauses_command_t){.tid = child, .gate = gate[1]};
}

int pauses_seize(const pauses_command_t* command) {
  const intptr_t options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                           PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  return ptrace(PTRACE_SEIZE, command->tid, NULL, (void*)options) == 0 ? 0 : errno;
}

void pauses_open_gate(pauses_command_t* command) {
  ssize_t put;
  do {
    put = write(command->gate, "", 1);
  } while (put < 0 && errno == EINTR);
  close(command->gate);
}

// Returns the next wait status of the child, or -1 after TRIAL_NS.
static int next_report(pid_t child, const sigset_t* news) {
  const int64_t until = pauses_now_ns() + TRIAL_NS;
  while (pauses_now_ns() < until) {
    int status;
    const pid_t got = waitpid(child, &status, __WALL | WNOHANG);
    if (got == child) return status;
    if (got < 0) return -1;
    sigtimedwait(news, NULL, &(struct timespec){.tv_sec = 1});
  }
  return -1;
}

// Performs one pause on the child. Returns NULL on success, else a description of the failure.
// Opens the gate in both cases.
static const char* try_pause(pauses_command_t* command, const sigset_t* news) {
  const int error = pauses_seize(command);
  pid_t child = command->tid;
  bool is_asked = error == 0 && ptrace(PTRACE_INTERRUPT, child, NULL, NULL) == 0;
  int status = is_asked ? next_report(child, news) : -1;
  const bool is_stopped = status >= 0 && WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_STOP;
  const bool is_stepping = is_stopped && ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0;
  pauses_open_gate(command);
  if (error != 0) return strerror(error);
  if (!is_stopped) return "a thread that is interrupted does not stop";
  status = is_stepping ? next_report(child, news) : -1;
  if (status < 0 || !WIFSTOPPED(status) || WSTOPSIG(status) != CALL_STOP) {
    return "a thread does not stop at system calls";
  }
  is_asked = ptrace(PTRACE_CONT, child, NULL, NULL) == 0;
  status = is_asked ? next_report(child, news) : -1;
  if (status < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != PAUSES_TRIAL_STATUS) {
    return "a thread that was stopped does not go on";
  }
  return NULL;
}

int pauses_try(void) {
  sigset_t news;
  sigemptyset(&news);
  sigaddset(&news, SIGCHLD);
  pauses_command_t command = pauses_start(NULL, &news);
  const char* why = try_pause(&command, &news);
  if (why == NULL) {
    puts("pauses: threads can be stopped here");
    return 0;
  }
  printf("pauses: threads cannot be stopped here: %s\n", why);
  kill(command.tid, SIGKILL);
  return PAUSES_SKIPPED;
}
