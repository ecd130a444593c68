// SPDX-License-Identifier: Apache-2.0
// tests/support/fault.c: file calls that fail on demand. See fault.h.
//
// Each call is counted, runs the hook, then fails or calls POSIX. Like the kernel, close and
// closedir release the descriptor even if they report an error.
#include "tests/support/fault.h"

#include <errno.h>
#include <signal.h>

#include "base/fs.h"

#define CALLS(X)     \
  X(open)            \
  X(openat)          \
  X(close)           \
  X(read)            \
  X(pread)           \
  X(write)           \
  X(fstat)           \
  X(lstat)           \
  X(fdatasync)       \
  X(futimens)        \
  X(fchmod)          \
  X(try_lock)        \
  X(unlock)          \
  X(filesystem_type) \
  X(rename) X(unlink) X(mkdir) X(rmdir) X(opendir) X(readdir) X(closedir) X(flock) X(statvfs_free)

typedef enum call {
#define X(name) CALL_##name,
  CALLS(X)
#undef X
      CALL_COUNT
} call_t;

static const char* const call_names[CALL_COUNT] = {
#define X(name) #name,
    CALLS(X)
#undef X
};

typedef void (*hook_t)(void* user, const char* call, const char* path);

static struct {
  long fail_at;
  qn_fault_mode_t mode;
  qn_fault_kind_t kind;
  int error;
  _Atomic long calls;  // calls of the counted kind
  _Atomic long failures;
  _Atomic long open_count;
  _Atomic long calls_of[CALL_COUNT];
  _Atomic long failures_of[CALL_COUNT];
  uint32_t storm_odds;  // one call in storm_odds fails; 0: no storm
  _Atomic uint64_t storm_seed;
  hook_t hook;
  void* hook_user;
} state;

static bool is_counted(call_t call) {
  switch (state.kind) {
    case QN_FAULT_SHORT_READ:
      return call == CALL_read || call == CALL_pread;
    case QN_FAULT_SHORT_WRITE:
      return call == CALL_write;
    case QN_FAULT_ERRNO:
    case QN_FAULT_KILL:
      return true;
  }
  return true;
}

static const int errnos[] = {ENOSPC, EDQUOT, EIO,    EACCES, EROFS,
                             ESTALE, EBUSY,  EMFILE, EINTR,  ENOENT};

const int* qn_fault_errnos(size_t* out_count) {
  *out_count = QN_COUNT_OF(errnos);
  return errnos;
}

static bool is_struck_by_storm(call_t call) {
  // Applies splitmix64 to a counter, so that any number of threads can draw.
  uint64_t x = atomic_fetch_add(&state.storm_seed, UINT64_C(0x9E3779B97F4A7C15));
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  x ^= x >> 31;
  if (x % state.storm_odds != 0) return false;
  atomic_fetch_add(&state.failures, 1);
  atomic_fetch_add(&state.failures_of[call], 1);
  errno = errnos[(x >> 32) % QN_COUNT_OF(errnos)];
  return true;
}

// Returns true and sets errno if this call must fail. Does not return if it must kill the process.
static bool strikes(call_t call, const char* path) {
  if (state.hook) state.hook(state.hook_user, call_names[call], path);
  atomic_fetch_add(&state.calls_of[call], 1);
  if (state.storm_odds) {
    atomic_fetch_add(&state.calls, 1);
    return is_struck_by_storm(call);
  }
  if (!is_counted(call)) return false;
  long n = atomic_fetch_add(&state.calls, 1) + 1;
  bool is_hit = state.fail_at > 0 &&
                (state.mode == QN_FAULT_ALWAYS ? n >= state.fail_at : n == state.fail_at);
  if (!is_hit) return false;
  atomic_fetch_add(&state.failures, 1);
  atomic_fetch_add(&state.failures_of[call], 1);
  if (state.kind == QN_FAULT_KILL) (void)raise(SIGKILL);
  errno = state.error;
  return true;
}

static int opened(int fd) {
  if (fd >= 0) atomic_fetch_add(&state.open_count, 1);
  return fd;
}

static int fault_open(const char* path, int flags, mode_t mode) {
  return strikes(CALL_open, path) ? -1 : opened(qn__fs_posix.open(path, flags, mode));
}
static int fault_openat(int directory, const char* path, int flags, mode_t mode) {
  return strikes(CALL_openat, path) ? -1
                                    : opened(qn__fs_posix.openat(directory, path, flags, mode));
}
static int fault_close(int fd) {
  bool is_hit = strikes(CALL_close, "");
  int error = errno;
  int result = qn__fs_posix.close(fd);
  if (result == 0) atomic_fetch_sub(&state.open_count, 1);
  if (!is_hit) return result;
  errno = error;
  return -1;
}
static ssize_t fault_read(int fd, void* data, size_t size) {
  if (strikes(CALL_read, "")) {
    if (state.kind != QN_FAULT_SHORT_READ) return -1;
    if (size > 1) size = 1;
  }
  return qn__fs_posix.read(fd, data, size);
}
static ssize_t fault_pread(int fd, void* data, size_t size, off_t offset) {
  if (strikes(CALL_pread, "")) {
    if (state.kind != QN_FAULT_SHORT_READ) return -1;
    if (size > 1) size = 1;
  }
  return qn__fs_posix.pread(fd, data, size, offset);
}
static ssize_t fault_write(int fd, const void* data, size_t size) {
  if (strikes(CALL_write, "")) {
    if (state.kind != QN_FAULT_SHORT_WRITE) return -1;
    if (size > 1) size = 1;
  }
  return qn__fs_posix.write(fd, data, size);
}
static int fault_fstat(int fd, struct stat* out) {
  return strikes(CALL_fstat, "") ? -1 : qn__fs_posix.fstat(fd, out);
}
static int fault_lstat(const char* path, struct stat* out) {
  return strikes(CALL_lstat, path) ? -1 : qn__fs_posix.lstat(path, out);
}
static int fault_fdatasync(int fd) {
  return strikes(CALL_fdatasync, "") ? -1 : qn__fs_posix.fdatasync(fd);
}
static int fault_futimens(int fd, const struct timespec times[2]) {
  return strikes(CALL_futimens, "") ? -1 : qn__fs_posix.futimens(fd, times);
}
static int fault_fchmod(int fd, mode_t mode) {
  return strikes(CALL_fchmod, "") ? -1 : qn__fs_posix.fchmod(fd, mode);
}
static int fault_try_lock(int fd, int64_t offset) {
  return strikes(CALL_try_lock, "") ? -1 : qn__fs_posix.try_lock(fd, offset);
}
static int fault_unlock(int fd, int64_t offset) {
  return strikes(CALL_unlock, "") ? -1 : qn__fs_posix.unlock(fd, offset);
}
static int fault_flock(int fd, int operation) {
  return strikes(CALL_flock, "") ? -1 : qn__fs_posix.flock(fd, operation);
}
static int fault_filesystem_type(const char* path, uint32_t* out_magic) {
  return strikes(CALL_filesystem_type, path) ? -1 : qn__fs_posix.filesystem_type(path, out_magic);
}
static int fault_rename(const char* from, const char* to) {
  return strikes(CALL_rename, to) ? -1 : qn__fs_posix.rename(from, to);
}
static int fault_unlink(const char* path) {
  return strikes(CALL_unlink, path) ? -1 : qn__fs_posix.unlink(path);
}
static int fault_mkdir(const char* path, mode_t mode) {
  return strikes(CALL_mkdir, path) ? -1 : qn__fs_posix.mkdir(path, mode);
}
static int fault_rmdir(const char* path) {
  return strikes(CALL_rmdir, path) ? -1 : qn__fs_posix.rmdir(path);
}
static DIR* fault_opendir(const char* path) {
  DIR* dir = strikes(CALL_opendir, path) ? NULL : qn__fs_posix.opendir(path);
  if (dir) atomic_fetch_add(&state.open_count, 1);
  return dir;
}
static struct dirent* fault_readdir(DIR* dir) {
  return strikes(CALL_readdir, "") ? NULL : qn__fs_posix.readdir(dir);
}
static int fault_closedir(DIR* dir) {
  bool is_hit = strikes(CALL_closedir, "");
  int error = errno;
  int result = qn__fs_posix.closedir(dir);
  if (result == 0) atomic_fetch_sub(&state.open_count, 1);
  if (!is_hit) return result;
  errno = error;
  return -1;
}
static int fault_statvfs_free(const char* path, uint64_t* out_free, uint64_t* out_total) {
  return strikes(CALL_statvfs_free, path) ? -1
                                          : qn__fs_posix.statvfs_free(path, out_free, out_total);
}

static const qn__fs_t fault_table = {
#define X(name) .name = fault_##name,
    CALLS(X)
#undef X
};

void qn_fault_fs_install(void) {
  memset(&state, 0, sizeof state);
  (void)qn__fs_install(&fault_table);
}

void qn_fault_fs_remove(void) {
  (void)qn__fs_install(NULL);
}

void qn_fault_fs_arm(long fail_at, qn_fault_mode_t mode, qn_fault_kind_t kind, int error) {
  state.fail_at = fail_at;
  state.mode = mode;
  state.kind = kind;
  state.error = error;
  atomic_store(&state.calls, 0);
  atomic_store(&state.failures, 0);
  for (size_t i = 0; i < CALL_COUNT; i++) {
    atomic_store(&state.calls_of[i], 0);
    atomic_store(&state.failures_of[i], 0);
  }
  state.storm_odds = 0;
}

void qn_fault_fs_arm_storm(uint64_t seed, uint32_t one_in) {
  qn_fault_fs_arm(0, QN_FAULT_ONCE, QN_FAULT_ERRNO, 0);
  atomic_store(&state.storm_seed, seed * UINT64_C(0xD1342543DE82EF95) + 1);
  state.storm_odds = one_in;
}

long qn_fault_fs_calls(void) {
  return atomic_load(&state.calls);
}
long qn_fault_fs_failures(void) {
  return atomic_load(&state.failures);
}
long qn_fault_fs_open_count(void) {
  return atomic_load(&state.open_count);
}

long qn_fault_fs_calls_of(const char* name) {
  for (size_t i = 0; i < CALL_COUNT; i++) {
    if (strcmp(call_names[i], name) == 0) return atomic_load(&state.calls_of[i]);
  }
  return -1;
}

long qn_fault_fs_failures_of(const char* name) {
  for (size_t i = 0; i < CALL_COUNT; i++) {
    if (strcmp(call_names[i], name) == 0) return atomic_load(&state.failures_of[i]);
  }
  return -1;
}

void qn_fault_fs_hook(hook_t hook, void* user) {
  state.hook = NULL;
  state.hook_user = user;
  state.hook = hook;
}
