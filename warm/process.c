// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // pipe2, SOCK_CLOEXEC, addclosefrom_np, syscall, dladdr, secure_getenv
// warm/process.c: starts, ends and reaps worker processes.
#include "warm/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warm/coordinator.h"

// How long a killed process may take to end: one that hangs in a file system takes longer.
#define KILL_TIMEOUT_NS 10000000000

// ------------------------------------------------------------------------------------ the command

static bool is_program(const char* path) {
  struct stat info;
  if (lstat(path, &info) != 0) return false;
  return S_ISLNK(info.st_mode) || (S_ISREG(info.st_mode) && (info.st_mode & 0111) != 0);
}

static bool join(const char* folder, size_t size, const char* rest, char out[PATH_MAX]) {
  int length = snprintf(out, PATH_MAX, "%.*s%s", (int)size, folder, rest);
  return length > 0 && length < PATH_MAX && is_program(out);
}

static bool find_in_path(char out[PATH_MAX]) {
  const char* path = secure_getenv("PATH");
  while (path && *path) {
    size_t size = strcspn(path, ":");
    // An empty or relative element means the working directory, which a library does not trust.
    if (path[0] == '/' && size < PATH_MAX && join(path, size, "/quern", out)) return true;
    path += size + (path[size] == ':' ? 1 : 0);
  }
  return false;
}

bool qn__warm_process_find_command(char out[PATH_MAX]) {
  // Installed libraries lie in lib, lib64 or lib/<triplet>; a build has lib beside bin.
  static const char* const places[] = {"/quern", "/../bin/quern", "/../../bin/quern"};
  Dl_info info;
  const char* slash = NULL;
  if (dladdr(places, &info) && info.dli_fname && info.dli_fname[0] == '/') {
    slash = strrchr(info.dli_fname, '/');
  }
  for (size_t i = 0; slash && i < sizeof places / sizeof places[0]; i++) {
    if (join(info.dli_fname, (size_t)(slash - info.dli_fname), places[i], out)) return true;
  }
  return find_in_path(out);
}

// ------------------------------------------------------------------------------------ starting

static void close_fd(int* fd) {
  if (*fd >= 0) (void)close(*fd);
  *fd = -1;
}

// Moves a descriptor above the standard ones: in a program that has closed those, a pipe gets their
// numbers.
static int raised(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  int error = errno;
  (void)close(fd);
  errno = error;
  return higher;
}

typedef struct channel {
  int ours[2];  // socket, errors
  int theirs[2];
} channel_t;

static void close_channel(channel_t* channel) {
  for (size_t i = 0; i < 2; i++) {
    close_fd(&channel->ours[i]);
    close_fd(&channel->theirs[i]);
  }
}

static bool set_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool open_channel(channel_t* channel) {
  *channel = (channel_t){{-1, -1}, {-1, -1}};
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  channel->ours[0] = raised(pair[0]);
  channel->theirs[0] = raised(pair[1]);
  if (channel->ours[0] < 0 || channel->theirs[0] < 0) return false;
  if (pipe2(pair, O_CLOEXEC) != 0) return false;
  channel->ours[1] = raised(pair[0]);
  channel->theirs[1] = raised(pair[1]);
  return channel->ours[1] >= 0 && channel->theirs[1] >= 0 && set_nonblocking(channel->ours[0]) &&
         set_nonblocking(channel->ours[1]);
}

// Fills attributes and actions. The caller destroys them, also after a failure.
static int prepare(posix_spawnattr_t* attributes, posix_spawn_file_actions_t* actions,
                   const channel_t* channel) {
  sigset_t none, all;
  (void)sigemptyset(&none);
  (void)sigfillset(&all);
  (void)sigdelset(&all, SIGKILL);
  (void)sigdelset(&all, SIGSTOP);
  int error = posix_spawnattr_setsigmask(attributes, &none);
  if (!error) error = posix_spawnattr_setsigdefault(attributes, &all);
  if (!error) error = posix_spawnattr_setpgroup(attributes, 0);
  if (!error) {
    error = posix_spawnattr_setflags(
        attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  const int targets[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  for (size_t i = 0; i < 3 && !error; i++) {
    int fd = channel->theirs[i == 0 ? 0 : 1];
    error = posix_spawn_file_actions_adddup2(actions, fd, targets[i]);
  }
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  // A worker inherits no other descriptor of the program.
  if (!error) error = posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
#endif
  return error;
}

static int spawn(const char* command, const channel_t* channel, pid_t* out_pid) {
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  int error = posix_spawnattr_init(&attributes);
  if (error) return error;
  error = posix_spawn_file_actions_init(&actions);
  if (!error) {
    error = prepare(&attributes, &actions, channel);
    // posix_spawn takes char*, and changes nothing.
    char name[] = "quern", verb[] = "warm", flag[] = "--worker";
    char* arguments[] = {name, verb, flag, NULL};
    if (!error) {
      error = posix_spawn(out_pid, command, &actions, &attributes, arguments, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
  }
  (void)posix_spawnattr_destroy(&attributes);
  return error;
}

static qn_status_t start_error(int error, const char* command) {
  if (error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "cannot start '%s': the system's limit of processes, files or memory is "
                          "reached",
                          command);
  }
  qn_status_code_t code = error == ENOENT || error == ENOTDIR ? QN_STATUS_NOT_FOUND
                          : error == EACCES || error == EPERM ? QN_STATUS_PERMISSION_DENIED
                                                              : QN_STATUS_IO;
  return qn_status_make(code, "cannot start '%s': %s", command, strerror(error));
}

qn_status_t qn__warm_process_start(const char* command, qn__warm_process_t* out_process) {
  *out_process = (qn__warm_process_t){.pid = 0, .pidfd = -1, .socket = -1, .errors = -1};
  channel_t channel;
  if (!open_channel(&channel)) {
    int error = errno;
    close_channel(&channel);
    return start_error(error, command);
  }
  pid_t pid = 0;
  int error = spawn(command, &channel, &pid);
  if (error) {
    close_channel(&channel);
    return start_error(error, command);
  }
  close_fd(&channel.theirs[0]);
  close_fd(&channel.theirs[1]);
  out_process->pid = pid;
  out_process->socket = channel.ours[0];
  out_process->errors = channel.ours[1];
#ifdef SYS_pidfd_open
  out_process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
#endif
  return QN_OK;
}

// ------------------------------------------------------------------------------------ ending

void qn__warm_process_kill(const qn__warm_process_t* process) {
  if (process->pid <= 0) return;
#ifdef SYS_pidfd_send_signal
  if (process->pidfd >= 0) {
    (void)syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
    return;
  }
#endif
  (void)kill(process->pid, SIGKILL);
}

void qn__warm_process_hang_up(qn__warm_process_t* process) {
  close_fd(&process->socket);
}

static pid_t reap(pid_t pid, int* out_status, int flags) {
  pid_t result;
  do {
    result = waitpid(pid, out_status, flags);
  } while (result < 0 && errno == EINTR);
  return result;
}

// Waits until the process has ended. False when the deadline passed first.
static bool await_end(const qn__warm_process_t* process, int64_t deadline_ns) {
  for (;;) {
    int64_t left_ns = deadline_ns - qn__warm_now_ns();
    if (left_ns < 0) return false;
    int left_ms = left_ns > 10000000000 ? 10000 : (int)(left_ns / 1000000) + 1;
    if (process->pidfd >= 0) {
      struct pollfd wanted = {.fd = process->pidfd, .events = POLLIN};
      if (poll(&wanted, 1, left_ms) > 0) return true;
    } else {
      siginfo_t info = {.si_pid = 0};
      int result = waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid != 0 || (result != 0 && errno != EINTR)) return true;
      (void)poll(NULL, 0, left_ms < 10 ? left_ms : 10);
    }
  }
}

bool qn__warm_process_finish(qn__warm_process_t* process, int64_t grace_ns,
                             qn__warm_process_end_t* out_end) {
  *out_end = (qn__warm_process_end_t){.is_known = false};
  if (process->pid <= 0) return true;
  bool has_ended = await_end(process, qn__warm_now_ns() + grace_ns);
  if (!has_ended) {
    qn__warm_process_kill(process);
    has_ended = await_end(process, qn__warm_now_ns() + KILL_TIMEOUT_NS);
  }
  // While another process traces it (a debugger, a leak checker), its end is seen before it can be
  // reaped.
  int64_t deadline_ns = qn__warm_now_ns() + KILL_TIMEOUT_NS;
  int status = 0;
  pid_t reaped = reap(process->pid, &status, WNOHANG);
  while (reaped == 0 && has_ended && qn__warm_now_ns() < deadline_ns) {
    (void)poll(NULL, 0, 1);
    reaped = reap(process->pid, &status, WNOHANG);
  }
  if (reaped == process->pid) {
    *out_end = (qn__warm_process_end_t){.is_known = true,
                                        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                                        .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0};
  }
  close_fd(&process->socket);
  close_fd(&process->errors);
  close_fd(&process->pidfd);
  process->pid = 0;
  return reaped != 0;
}

// ------------------------------------------------------------------------------------ talking

ssize_t qn__warm_process_send(int socket, const void* data, size_t size) {
  ssize_t sent;
  do {
    sent = send(socket, data, size, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  return sent;
}

ssize_t qn__warm_process_receive(int fd, void* data, size_t size) {
  ssize_t got;
  do {
    got = read(fd, data, size);
  } while (got < 0 && errno == EINTR);
  if (got >= 0) return got;
  // A connection that was reset has ended as well.
  return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : 0;
}

const char* qn__warm_signal_text(int signal, char out[32]) {
  static const struct {
    int number;
    const char* text;
  } names[] = {
      {SIGSEGV, "SIGSEGV, a bad memory access"},
      {SIGABRT, "SIGABRT, an abort"},
      {SIGBUS, "SIGBUS, memory that is not there"},
      {SIGILL, "SIGILL, an illegal instruction"},
      {SIGFPE, "SIGFPE, an arithmetic error"},
      {SIGKILL, "SIGKILL, killed by the system or a person"},
      {SIGTERM, "SIGTERM, asked to end"},
      {SIGTRAP, "SIGTRAP, a trap"},
      {SIGXCPU, "SIGXCPU, the limit of processor time"},
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (names[i].number == signal) return names[i].text;
  }
  (void)snprintf(out, 32, "signal %d", signal);
  return out;
}
