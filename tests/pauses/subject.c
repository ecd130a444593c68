// SPDX-License-Identifier: Apache-2.0
// tests/pauses/subject.c: a command for the tests of `pauses`. Each case does something that a
// tracer can break, and exits with 0 if it worked as without a tracer. Cases wait for events, never
// for a length of time.
//
//   subject CASE [ARGUMENT]
//
// test_pauses.sh selects the cases.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 300
#define SIGNALS 500
#define CHILDREN 40

static void must(bool is_so, const char* what) {
  if (is_so) return;
  fprintf(stderr, "subject: %s\n", what);
  _exit(1);
}

static pid_t must_fork(void) {
  const pid_t child = fork();
  must(child >= 0, "cannot fork");
  return child;
}

// Returns the process that traces this one, or 0.
static pid_t tracer(void) {
  FILE* file = fopen("/proc/self/status", "r");
  must(file != NULL, "no /proc/self/status");
  char line[256];
  int found = -1;
  while (found < 0 && fgets(line, sizeof(line), file) != NULL) {
    if (strncmp(line, "TracerPid:", 10) == 0) found = atoi(line + 10);
  }
  fclose(file);
  must(found >= 0, "no TracerPid");
  return found;
}

// Returns the letter of the thread's state, as in proc(5).
static char state_of(pid_t tid) {
  char path[64], line[512];
  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
  FILE* file = fopen(path, "r");
  must(file != NULL && fgets(line, sizeof(line), file) != NULL, "no stat of a thread");
  fclose(file);
  const char* name_end = strrchr(line, ')');
  must(name_end != NULL && name_end[1] == ' ', "no state of a thread");
  return name_end[2];
}

// --- stops ---

// Stops this process. A child sends SIGCONT repeatedly until this process reports by a pipe that it
// runs again.
static void stopped(const char* argument) {
  (void)argument;
  int heard[2];
  must(pipe2(heard, O_NONBLOCK) == 0, "no pipe");
  const pid_t self = getpid(), child = must_fork();
  if (child == 0) {
    char byte;
    while (read(heard[0], &byte, 1) != 1) kill(self, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  must(write(heard[1], "", 1) == 1, "cannot write");
  int status;
  must(waitpid(child, &status, 0) == child && status == 0, "the child did not end well");
}

// Checks that the parent gets the stop and the exit of a child that stops itself.
static void child_stopped(const char* argument) {
  (void)argument;
  const pid_t child = must_fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(5);
  }
  int status;
  must(waitpid(child, &status, WUNTRACED) == child, "no report of the stop");
  must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "another report than of the stop");
  must(kill(child, SIGCONT) == 0, "cannot continue");
  must(waitpid(child, &status, 0) == child, "no report of the end");
  must(WIFEXITED(status) && WEXITSTATUS(status) == 5, "another end");
}

// --- signals ---

// Checks that each queued signal arrives once and with its value, and that handlers run.
static volatile sig_atomic_t handled;
static void on_signal(int signal) {
  (void)signal;
  handled = handled + 1;
}

static void signals(const char* argument) {
  (void)argument;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN);
  sigprocmask(SIG_BLOCK, &set, NULL);
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
  sigaction(SIGTRAP, &(struct sigaction){.sa_handler = on_signal}, NULL);
  for (int i = 0; i < SIGNALS; i++) {
    must(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0, "cannot queue");
    must(raise(i % 2 == 0 ? SIGUSR1 : SIGTRAP) == 0, "cannot raise");
    siginfo_t info;
    int got;
    do {
      got = sigwaitinfo(&set, &info);
    } while (got < 0 && errno == EINTR);
    must(got == SIGRTMIN, "another signal");
    must(info.si_value.sival_int == i, "another value");
  }
  must(handled == SIGNALS, "signals were lost or came twice");
}

// Checks that a signal sent to the tracer is forwarded to this process.
static void forwarded(const char* argument) {
  (void)argument;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, NULL);
  must(kill(tracer(), SIGTERM) == 0, "cannot signal the tracer");
  int signal;
  must(sigwait(&set, &signal) == 0 && signal == SIGTERM, "another signal");
}

// Starts the tracer with SIGCHLD ignored. The command under it must inherit that, with no signal
// blocked.
static void ignores(const char* argument) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  must(length > 0, "no path of this program");
  self[length] = '\0';
  must(signal(SIGCHLD, SIG_IGN) != SIG_ERR, "cannot ignore");
  execl(argument, "pauses", self, "inherited", (char*)NULL);
  must(false, "cannot run the tracer");
}

static void inherited(const char* argument) {
  (void)argument;
  sigset_t mask;
  struct sigaction on_child;
  must(sigprocmask(SIG_BLOCK, NULL, &mask) == 0, "no mask");
  must(sigismember(&mask, SIGCHLD) == 0 && sigismember(&mask, SIGTERM) == 0, "a signal is blocked");
  must(sigaction(SIGCHLD, NULL, &on_child) == 0 && on_child.sa_handler == SIG_IGN,
       "ends of children are not ignored");
}

// --- processes ---

// Checks that children are traced by the same tracer, before and after exec, and exit with their
// own status.
static void traced(const char* argument) {
  must(tracer() != 0 && tracer() == atoi(argument), "a child has another tracer");
}

static void followed(const char* argument) {
  (void)argument;
  char number[16];
  snprintf(number, sizeof(number), "%d", (int)tracer());
  must(tracer() != 0, "not traced");
  for (int i = 0; i < CHILDREN; i++) {
    const pid_t child = i % 2 == 0 ? must_fork() : vfork();
    if (child == 0) {
      execl("/proc/self/exe", "subject", "traced", number, (char*)NULL);
      _exit(1);
    }
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "a child did not end well");
  }
}

// Leaves a child behind. The child reports once it is no longer traced.
static void leaves(const char* argument) {
  const pid_t child = must_fork();
  if (child != 0) return;
  while (tracer() != 0) sched_yield();
  const int file = open(argument, O_WRONLY);
  must(file >= 0 && write(file, "let go\n", 7) == 7, "cannot tell");
}

// --- threads ---

static atomic_int count;
static void* count_one(void* unused) {
  (void)unused;
  sched_yield();
  atomic_fetch_add(&count, 1);
  return NULL;
}

static void threads(const char* argument) {
  (void)argument;
  pthread_t some[THREADS];
  for (int i = 0; i < THREADS; i++) {
    must(pthread_create(&some[i], NULL, count_one, NULL) == 0, "no thread");
  }
  for (int i = 0; i < THREADS; i++) must(pthread_join(some[i], NULL) == 0, "cannot join");
  must(count == THREADS, "a thread did not run");
}

// Checks that one thread runs while another one is paused.
static atomic_int other;
static atomic_bool is_seen;
static void* be_seen(void* unused) {
  (void)unused;
  other = (int)syscall(SYS_gettid);
  while (!is_seen) sched_yield();
  return NULL;
}

static void held(const char* argument) {
  (void)argument;
  pthread_t thread;
  must(pthread_create(&thread, NULL, be_seen, NULL) == 0, "no thread");
  while (other == 0) sched_yield();
  while (state_of(other) != 't') sched_yield();
  is_seen = true;
  must(pthread_join(thread, NULL) == 0, "cannot join");
}

// Calls exec in a second thread: the thread takes over the process's number, and all other threads
// end.
static void* call_exec(void* unused) {
  (void)unused;
  execl("/proc/self/exe", "subject", "threads", (char*)NULL);
  _exit(1);
}

static void* wait_for_ever(void* unused) {
  for (;;) pause();
  return unused;
}

static void exec_by_thread(const char* argument) {
  (void)argument;
  pthread_t thread;
  for (int i = 0; i < 8; i++) {
    must(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0, "no thread");
  }
  must(pthread_create(&thread, NULL, call_exec, NULL) == 0, "no thread");
  wait_for_ever(NULL);
}

// Ends the first thread before the others.
static void* end_later(void* unused) {
  (void)unused;
  while (state_of(getpid()) != 'Z') sched_yield();
  _exit(0);
}

static void first_ends(const char* argument) {
  (void)argument;
  pthread_t thread;
  must(pthread_create(&thread, NULL, end_later, NULL) == 0, "no thread");
  pthread_exit(NULL);
}

static const struct {
  const char* name;
  void (*run)(const char* argument);
} cases[] = {
    {"stopped", stopped},
    {"child_stopped", child_stopped},
    {"signals", signals},
    {"forwarded", forwarded},
    {"ignores", ignores},
    {"inherited", inherited},
    {"traced", traced},
    {"followed", followed},
    {"leaves", leaves},
    {"threads", threads},
    {"held", held},
    {"exec_by_thread", exec_by_thread},
    {"first_ends", first_ends},
};

int main(int argc, char** argv) {
  for (size_t i = 0; argc >= 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
    if (strcmp(argv[1], cases[i].name) != 0) continue;
    cases[i].run(argc > 2 ? argv[2] : "");
    return 0;
  }
  fprintf(stderr, "subject: no such case\n");
  return 2;
}
