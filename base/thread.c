// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // pthread_setname_np, CPU_COUNT_S
// base/thread.c: see thread.h.
//
// Not here: pools (devices/cpu).
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/fs.h"

static qn_status_t failed(const char* what, int error) {
  return qn_status_make(error == ENOMEM ? QN_STATUS_OUT_OF_MEMORY : QN_STATUS_UNAVAILABLE,
                        "cannot make %s: error %d of the operating system", what, error);
}

qn_status_t qn__mutex_init(qn__mutex_t* mutex) {
  int error = pthread_mutex_init(mutex, NULL);
  return error ? failed("a mutex", error) : QN_OK;
}

// These calls fail only by misuse (a mutex that is not held or not initialised), which is a defect.
static void must_be_zero(int error) {
  (void)QN_NEVER(error != 0);
}

void qn__mutex_deinit(qn__mutex_t* mutex) {
  must_be_zero(pthread_mutex_destroy(mutex));
}
void qn__mutex_lock(qn__mutex_t* mutex) {
  must_be_zero(pthread_mutex_lock(mutex));
}
bool qn__mutex_try_lock(qn__mutex_t* mutex) {
  int error = pthread_mutex_trylock(mutex);
  if (error != EBUSY) must_be_zero(error);
  return error == 0;
}
void qn__mutex_unlock(qn__mutex_t* mutex) {
  must_be_zero(pthread_mutex_unlock(mutex));
}

qn_status_t qn__cond_init(qn__cond_t* cond) {
  pthread_condattr_t attributes;
  int error = pthread_condattr_init(&attributes);
  if (error) return failed("a condition", error);
  error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  if (!error) error = pthread_cond_init(cond, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  return error ? failed("a condition", error) : QN_OK;
}

void qn__cond_deinit(qn__cond_t* cond) {
  must_be_zero(pthread_cond_destroy(cond));
}
void qn__cond_wait(qn__cond_t* cond, qn__mutex_t* mutex) {
  must_be_zero(pthread_cond_wait(cond, mutex));
}

bool qn__cond_wait_until(qn__cond_t* cond, qn__mutex_t* mutex, int64_t deadline_ns) {
  if (deadline_ns == INT64_MAX) {
    qn__cond_wait(cond, mutex);
    return true;
  }
  if (deadline_ns < 0) deadline_ns = 0;
  struct timespec when = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                          .tv_nsec = (long)(deadline_ns % 1000000000)};
  int error = pthread_cond_timedwait(cond, mutex, &when);
  if (error != ETIMEDOUT) must_be_zero(error);
  return error != ETIMEDOUT;
}

void qn__cond_signal(qn__cond_t* cond) {
  must_be_zero(pthread_cond_signal(cond));
}
void qn__cond_broadcast(qn__cond_t* cond) {
  must_be_zero(pthread_cond_broadcast(cond));
}

void qn__sem_init(qn__sem_t* sem) {
  must_be_zero(sem_init(sem, 0, 0));
}
void qn__sem_post(qn__sem_t* sem) {
  must_be_zero(sem_post(sem));
}
void qn__sem_wait(qn__sem_t* sem) {
  while (sem_wait(sem) != 0) (void)QN_NEVER(errno != EINTR);
}

qn_status_t qn__thread_start(pthread_t* out_thread, const char* name, size_t stack_bytes,
                             void* (*run)(void*), void* arg) {
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error) return failed("a thread", error);
  if (stack_bytes) error = pthread_attr_setstacksize(&attributes, stack_bytes);
  if (!error) {
    // A thread inherits the mask: the host's signals go to the host's threads only.
    sigset_t all, old;
    sigfillset(&all);
    error = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!error) {
      error = pthread_create(out_thread, &attributes, run, arg);
      (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
  }
  (void)pthread_attr_destroy(&attributes);
  if (error) return failed("a thread", error);
  (void)pthread_setname_np(*out_thread, name);  // only debuggers need it
  return QN_OK;
}

static int64_t read_clock(clockid_t clock) {
  struct timespec now = {0, 0};
  (void)QN_NEVER(clock_gettime(clock, &now) != 0);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void qn__thread_lower_priority(void) {
#if defined(__linux__)
  const struct sched_param none = {0};
  if (sched_setscheduler(0, SCHED_IDLE, &none) == 0) return;
#endif
  // On Linux 0 means the calling thread.
  (void)setpriority(PRIO_PROCESS, 0, 19);
}

int64_t qn__thread_cpu_ns(void) {
  return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int64_t qn__now_ns(void) {
  return read_clock(CLOCK_MONOTONIC);
}
int64_t qn__wall_ns(void) {
  return read_clock(CLOCK_REALTIME);
}

// Reads a small pseudo file as text; false when it cannot be read.
static bool read_text(const char* path, char* out, size_t capacity) {
  const qn__fs_t* fs = qn__fs();
  int fd = fs->open(path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return false;
  ssize_t size = fs->read(fd, out, capacity - 1);
  (void)fs->close(fd);
  out[size > 0 ? size : 0] = '\0';
  return size > 0;
}

// Inside a container the group's own files are at the root of the mount; other layouts are not
// searched.
int qn__quota_cores(void) {
  char text[128];
  double quota = 0, period = 0;
  if (read_text("/sys/fs/cgroup/cpu.max", text, sizeof text)) {
    char* end = NULL;
    quota = strtod(text, &end);  // "max PERIOD" reads as 0: no quota
    period = end && end != text ? strtod(end, NULL) : 0;
  } else if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text)) {
    quota = strtod(text, NULL);
    if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text)) {
      period = strtod(text, NULL);
    }
  }
  if (!(quota > 0) || !(period > 0) || quota / period > 1e6) return 0;
  int cores = (int)(quota / period);
  return (double)cores * period < quota ? cores + 1 : cores;
}

// The kernel refuses a mask that is shorter than its own, so longer ones are tried.
int qn__affinity_cores(void) {
  for (int bits = 1024; bits <= 1 << 20; bits *= 4) {
    cpu_set_t* set = CPU_ALLOC((size_t)bits);
    if (!set) return 0;
    size_t bytes = CPU_ALLOC_SIZE((size_t)bits);
    int failure = sched_getaffinity(0, bytes, set) == 0 ? 0 : errno;
    int count = failure ? 0 : CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    if (failure != EINVAL) return count;
  }
  return 0;
}

static_assert(sizeof(qn__cores_t) == sizeof(cpu_set_t), "both have 1024 bits");

bool qn__cores_read(qn__cores_t* out) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return false;
  memcpy(out, &set, sizeof set);
  return true;
}

bool qn__cores_use(const qn__cores_t* cores) {
  cpu_set_t set;
  memcpy(&set, cores, sizeof set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

bool qn__cores_keep_away(pthread_t thread, const qn__cores_t* cores) {
  cpu_set_t set;
  memcpy(&set, cores, sizeof set);
  int own = sched_getcpu();
  if (own < 0 || own >= CPU_SETSIZE) return false;
  CPU_CLR((size_t)own, &set);
  return CPU_COUNT(&set) > 0 && pthread_setaffinity_np(thread, sizeof set, &set) == 0;
}

int qn__available_cores(void) {
  int cores = qn__affinity_cores();
  int quota = qn__quota_cores();
  if (quota > 0 && (cores <= 0 || quota < cores)) cores = quota;
  return cores > 0 ? cores : 1;
}
