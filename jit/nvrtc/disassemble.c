// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // memfd_create
// jit/nvrtc/disassemble.c: runs nvdisasm or cuobjdump on a cubin in memory and reads its output.
//
// The child reads the cubin from /dev/fd/3, an anonymous file (memfd), so nothing is written to
// disk. posix_spawn starts it without running fork handlers.
#include "jit/nvrtc/disassemble.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/fs.h"
#include "jit/identity/nvrtc_place.h"

enum { MAX_OUTPUT_BYTES = 256 << 20 };

static bool write_all(int fd, qn_span_t bytes) {
  while (bytes.size > 0) {
    ssize_t done = qn__fs()->write(fd, bytes.data, bytes.size);
    if (done <= 0) return false;
    bytes.data += done;
    bytes.size -= (size_t)done;
  }
  return true;
}

static bool read_all(int fd, qn__buffer_t* out) {
  size_t begin = out->size;
  for (;;) {
    uint8_t piece[16384];
    ssize_t got = qn__fs()->read(fd, piece, sizeof piece);
    if (got < 0) return false;
    if (got == 0) return true;
    qn__buffer_bytes(out, piece, (size_t)got);
    if (out->has_failed || out->size - begin > MAX_OUTPUT_BYTES) return false;
  }
}

static qn_status_t spawn(const char* program, const char* option, int cubin, int output,
                         pid_t* out_pid) {
  enum { INHERITED = 3 };
  static const char path[] = "/dev/fd/3";
  union {
    const char* const* from;
    char* const* to;
  } argv = {.from = (const char* const[]){program, option, path, NULL}};
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return qn__out_of_memory("a child process");
  int error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, cubin, INHERITED);
  if (error == 0) {
    error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  if (error == 0) error = posix_spawn(out_pid, program, &actions, NULL, argv.to, qn__env_block());
  (void)posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? QN_OK : qn__fs_status(error, "start", program);
}

static qn_status_t run(const char* program, const char* option, qn_span_t cubin,
                       qn__buffer_t* out) {
  // All descriptors close on exec; the child keeps only the copies that spawn makes.
  int file = memfd_create("quern-cubin", MFD_CLOEXEC);
  int ends[2] = {-1, -1};
  qn_status_t status = QN_OK;
  if (file < 0 || !write_all(file, cubin) || pipe2(ends, O_CLOEXEC) != 0) {
    status = qn__fs_status(errno, "pass a cubin to", program);
  }
  pid_t pid = -1;
  if (qn_ok(status)) status = spawn(program, option, file, ends[1], &pid);
  if (file >= 0) (void)close(file);
  if (ends[1] >= 0) (void)close(ends[1]);
  size_t begin = out->size;
  bool is_whole = qn_ok(status) && read_all(ends[0], out);
  if (ends[0] >= 0) (void)close(ends[0]);
  int code = -1;
  while (pid > 0 && waitpid(pid, &code, 0) < 0 && errno == EINTR) {
  }
  if (!qn_ok(status)) return status;
  if (out->has_failed) return qn__out_of_memory("the text of a cubin");
  if (!is_whole || !WIFEXITED(code) || WEXITSTATUS(code) != 0 || out->size == begin) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "%s does not disassemble this cubin", program);
  }
  return QN_OK;
}

qn_status_t qn__cubin_disassemble(qn_span_t cubin, qn__buffer_t* out) {
  char program[PATH_MAX];
  if (qn__cuda_program_find("nvdisasm", program)) return run(program, "-c", cubin, out);
  if (qn__cuda_program_find("cuobjdump", program)) return run(program, "-sass", cubin, out);
  return qn_status_make(QN_STATUS_UNAVAILABLE,
                        "form 'sass' needs nvdisasm or cuobjdump, of a CUDA toolkit or the PyPI "
                        "package nvidia-cuda-nvdisasm: neither is in PATH, in CUDA_HOME, in "
                        "/usr/local/cuda* or beside libnvrtc; form 'cubin' needs neither");
}
