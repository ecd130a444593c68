// SPDX-License-Identifier: Apache-2.0
// warm/process.h: a worker process: started without fork, talked to over a socket, ended by its own
// id.
//
// Requirements: safe beside other threads (posix_spawn; descriptors that no other child inherits);
// no signal of the caller's program is changed, and none is raised by a worker that has ended; a
// process id that the program has reaped by itself is never signalled (a pidfd names the process,
// where the kernel has them).
#ifndef QUERN_WARM_PROCESS_H_
#define QUERN_WARM_PROCESS_H_

#include <limits.h>
#include <sys/types.h>

#include "quern/status.h"

typedef struct qn__process {
  pid_t pid;   // 0: none
  int pidfd;   // -1 where the kernel has none
  int socket;  // to its standard input, both ways, not blocking
  int errors;  // its standard output and error, to be read, not blocking; -1 once closed
} qn__warm_process_t;

// How a process ended.
typedef struct qn__warm_process_end {
  bool is_known;  // false when other code of the program has reaped it
  int signal;     // 0: it exited with `code`
  int code;
} qn__warm_process_end_t;

// Finds the program `quern` beside this library, or in PATH.
bool qn__warm_process_find_command(char out[PATH_MAX]);

// Starts `command` with the arguments `warm --worker`: all signals at their defaults, none blocked,
// in a process group of its own, so that an interrupt of the terminal goes to the coordinator
// alone. Errors: NOT_FOUND, PERMISSION_DENIED, IO; UNAVAILABLE when the system has no room for it.
qn_status_t qn__warm_process_start(const char* command, qn__warm_process_t* out_process);
// Kills it. Harmless when it has ended.
void qn__warm_process_kill(const qn__warm_process_t* process);
// Waits `grace_ns` for it to end, then kills it; reaps it and closes everything. False when it is
// still there after ten more seconds: it is left to the system then, which kills it when it can.
bool qn__warm_process_finish(qn__warm_process_t* process, int64_t grace_ns,
                             qn__warm_process_end_t* out_end);
// Closes the socket: an idle worker then ends by itself.
void qn__warm_process_hang_up(qn__warm_process_t* process);

// Writes as much as the socket takes. Returns the number of bytes, 0 when it takes none now, -1
// when the other side has closed it. Raises no SIGPIPE.
ssize_t qn__warm_process_send(int socket, const void* data, size_t size);
// Reads the available bytes. Returns their number, 0 at the end, -1 when there are none now.
ssize_t qn__warm_process_receive(int fd, void* data, size_t size);

// "SIGSEGV, a bad memory access"; "signal 42". Static storage or `out`.
const char* qn__warm_signal_text(int signal, char out[32]);

#endif  // QUERN_WARM_PROCESS_H_
