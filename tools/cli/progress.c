// SPDX-License-Identifier: Apache-2.0
// tools/cli/progress.c: a line on standard error that is rewritten while work takes long.
//
// The library's calls for tools return when all is done, so a thread of our own shows the time that
// has passed. It draws nothing for the first half second, and nothing at all off a terminal.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cli/memory.h"
#include "tools/cli/output.h"

struct progress {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t stopped;
  bool is_stopped;
  char what[160];
};

static void* tell(void* argument) {
  progress_t* progress = argument;
  int64_t started_ns = now_ns();
  bool is_drawn = false;
  (void)pthread_mutex_lock(&progress->mutex);
  while (!progress->is_stopped) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 500000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&progress->stopped, &progress->mutex, &until) != ETIMEDOUT) continue;
    char time[32];
    print(stderr, "\r\033[K%s, %s", progress->what, format_ns(now_ns() - started_ns, time));
    (void)fflush(stderr);
    is_drawn = true;
  }
  if (is_drawn) print(stderr, "\r\033[K");
  (void)pthread_mutex_unlock(&progress->mutex);
  return NULL;
}

progress_t* progress_start(const char* what) {
  if (!is_terminal(stderr)) return NULL;
  progress_t* progress = memory_zeroed(1, sizeof *progress);
  (void)snprintf(progress->what, sizeof progress->what, "%s", what);
  (void)pthread_mutex_init(&progress->mutex, NULL);
  (void)pthread_cond_init(&progress->stopped, NULL);
  if (pthread_create(&progress->thread, NULL, tell, progress) != 0) {
    free(progress);
    return NULL;
  }
  return progress;
}

void progress_tell(progress_t* progress, const char* what) {
  if (!progress) return;
  (void)pthread_mutex_lock(&progress->mutex);
  (void)snprintf(progress->what, sizeof progress->what, "%s", what);
  (void)pthread_mutex_unlock(&progress->mutex);
}

void progress_wipe(progress_t* progress) {
  if (!progress) return;
  (void)pthread_mutex_lock(&progress->mutex);
  print(stderr, "\r\033[K");
  (void)fflush(stderr);
  (void)pthread_mutex_unlock(&progress->mutex);
}

void progress_stop(progress_t* progress) {
  if (!progress) return;
  (void)pthread_mutex_lock(&progress->mutex);
  progress->is_stopped = true;
  (void)pthread_cond_signal(&progress->stopped);
  (void)pthread_mutex_unlock(&progress->mutex);
  (void)pthread_join(progress->thread, NULL);
  (void)pthread_cond_destroy(&progress->stopped);
  (void)pthread_mutex_destroy(&progress->mutex);
  free(progress);
}
