// SPDX-License-Identifier: Apache-2.0
// tests/soak/damage.c: damage to a directory from outside: flipped bits, truncated and grown files,
// removed and exchanged files, directories, links and pipes in place of files, wrong clocks, and a
// complete wipe.
//
// Does not use the library: it stands for disks, administrators and other programs. Thread rule:
// the conductor's one thread.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/soak/soak.h"

#define PATH_SIZE (QN_TEST_PATH_SIZE + 320)

// The entries under the root, by path: reservoir sampling picks among them.
typedef struct choice {
  uint64_t* random;
  uint32_t seen;
  char path[PATH_SIZE];
} choice_t;

typedef void (*on_path_t)(void* self, const char* path);

static void each_in(const char* directory, const char* suffix, on_path_t on_path, void* self) {
  DIR* dir = opendir(directory);
  if (!dir) return;
  for (struct dirent* item; (item = readdir(dir));) {
    size_t size = strlen(item->d_name), end = strlen(suffix);
    if (size <= end || strcmp(item->d_name + size - end, suffix) != 0) continue;
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/%s", directory, item->d_name) < (int)sizeof path) {
      on_path(self, path);
    }
  }
  (void)closedir(dir);
}

static void each_entry(on_path_t on_path, void* self) {
  char path[PATH_SIZE];
  (void)snprintf(path, sizeof path, "%s/v1", soak_options.root);
  DIR* dir = opendir(path);
  if (!dir) return;
  for (struct dirent* item; (item = readdir(dir));) {
    if (strlen(item->d_name) != 2 || item->d_name[0] == '.') continue;
    (void)snprintf(path, sizeof path, "%s/v1/%s", soak_options.root, item->d_name);
    each_in(path, ".k", on_path, self);
  }
  (void)closedir(dir);
}

static void choose(void* self, const char* path) {
  choice_t* choice = self;
  if (soak_random(choice->random, ++choice->seen) == 0) {
    (void)snprintf(choice->path, sizeof choice->path, "%s", path);
  }
}

static bool choose_entry(uint64_t* random, choice_t* choice) {
  *choice = (choice_t){.random = random};
  each_entry(choose, choice);
  return choice->seen > 0;
}

static void measure(void* self, const char* path) {
  uint64_t* sums = self;
  struct stat info;
  if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) return;
  sums[0] += (uint64_t)info.st_size;
  sums[1]++;
}

uint64_t soak_measure(uint64_t* out_count) {
  uint64_t sums[2] = {0, 0};
  each_entry(measure, sums);
  *out_count = sums[1];
  return sums[0];
}

static void flip_bits(uint64_t* random, const char* path) {
  int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat info;
  if (fd < 0) return;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    off_t at = (off_t)soak_random(random, (uint32_t)info.st_size);
    uint8_t byte;
    if (pread(fd, &byte, 1, at) == 1) {
      byte = (uint8_t)(byte ^ (1u << soak_random(random, 8)));
      (void)!pwrite(fd, &byte, 1, at);
    }
  }
  (void)close(fd);
}

// Writes `size` zeros at a random offset or after the end.
static void write_zeros(uint64_t* random, const char* path, bool is_behind) {
  int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat info;
  static const uint8_t zeros[512];
  if (fd < 0) return;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    off_t at = is_behind ? info.st_size : (off_t)soak_random(random, (uint32_t)info.st_size);
    size_t size = 1 + soak_random(random, (uint32_t)sizeof zeros);
    if (!is_behind && at + (off_t)size > info.st_size) size = (size_t)(info.st_size - at);
    (void)!pwrite(fd, zeros, size, at);
  }
  (void)close(fd);
}

static void cut(uint64_t* random, const char* path, bool is_to_nothing) {
  struct stat info;
  if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return;
  off_t size = is_to_nothing ? 0 : (off_t)soak_random(random, (uint32_t)info.st_size);
  (void)!truncate(path, size);
}

static void set_time(const char* path, int64_t offset_s) {
  struct timespec now;
  (void)clock_gettime(CLOCK_REALTIME, &now);
  const struct timespec times[2] = {{0, UTIME_OMIT}, {now.tv_sec + offset_s, 0}};
  (void)utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

static void make_stamp_odd(uint64_t* random) {
  char path[PATH_SIZE];
  (void)snprintf(path, sizeof path, "%s/v1/stamp", soak_options.root);
  switch (soak_random(random, 3)) {
    case 0:
      (void)unlink(path);
      break;
    case 1:
      set_time(path, 100000);
      break;
    default:
      set_time(path, -100000);
  }
}

static void age(void* self, const char* path) {
  (void)self;
  set_time(path, -7300);
}

void soak_age_temporaries(void) {
  char path[PATH_SIZE];
  (void)snprintf(path, sizeof path, "%s/v1/tmp", soak_options.root);
  each_in(path, ".t", age, NULL);
}

// A file as a dead writer leaves it; its age is set below.
static void leave_temporary(uint64_t* random) {
  char path[PATH_SIZE];
  (void)snprintf(path, sizeof path, "%s/v1/tmp/%08x-%08x%08x.t", soak_options.root,
                 soak_random(random, 32768), soak_random(random, UINT32_MAX),
                 soak_random(random, UINT32_MAX));
  (void)qn_test_write_file(path, path, sizeof path);
}

static void undo(void* self, const char* path) {
  (void)self;
  struct stat info;
  if (lstat(path, &info) != 0 || S_ISREG(info.st_mode)) return;
  if (S_ISDIR(info.st_mode)) {
    (void)rmdir(path);
  } else {
    (void)unlink(path);
  }
}

void soak_damage_undo(void) {
  each_entry(undo, NULL);
}

static void remove_below_root(bool is_aside) {
  char aside[PATH_SIZE];
  if (is_aside) {
    // All names are gone at one moment, while files and directories are still open.
    (void)snprintf(aside, sizeof aside, "%s.aside", soak_options.root);
    if (rename(soak_options.root, aside) == 0) qn_test_tempdir_remove(aside);
  } else {
    qn_test_tempdir_remove(soak_options.root);
  }
}

static void damage_bundle(uint64_t* random) {
  char path[SOAK_PATH_SIZE];
  soak_bundle_path(soak_random(random, SOAK_BUNDLES), path);
  switch (soak_random(random, 4)) {
    case 0:
      flip_bits(random, path);
      break;
    case 1:
      cut(random, path, false);
      break;
    case 2:
      write_zeros(random, path, soak_random(random, 2) == 0);
      break;
    default:
      (void)unlink(path);
  }
}

static const unsigned weights[SOAK_DAMAGE_COUNT] = {
#define X(name, weight) weight,
    SOAK_DAMAGES(X)
#undef X
};

void soak_damage_once(uint64_t* random) {
  soak_damage_t kind = (soak_damage_t)soak_pick(random, weights, SOAK_DAMAGE_COUNT);
  choice_t choice, other;
  if (!choose_entry(random, &choice)) return;
  char* path = choice.path;
  (void)atomic_fetch_add(&soak_shared->damages[kind], 1);
  switch (kind) {
    case SOAK_DAMAGE_flip:
      flip_bits(random, path);
      break;
    case SOAK_DAMAGE_truncate:
    case SOAK_DAMAGE_empty:
      cut(random, path, kind == SOAK_DAMAGE_empty);
      break;
    case SOAK_DAMAGE_extend:
    case SOAK_DAMAGE_zeros:
      write_zeros(random, path, kind == SOAK_DAMAGE_extend);
      break;
    case SOAK_DAMAGE_exchange:
      // A good file under another entry's name.
      if (choose_entry(random, &other)) (void)rename(other.path, path);
      break;
    case SOAK_DAMAGE_unlink:
      (void)unlink(path);
      break;
    case SOAK_DAMAGE_directory:
      if (unlink(path) == 0) (void)mkdir(path, 0700);
      break;
    case SOAK_DAMAGE_link:
      if (choose_entry(random, &other) && unlink(path) == 0) (void)!symlink(other.path, path);
      break;
    case SOAK_DAMAGE_fifo:
      if (unlink(path) == 0) (void)mkfifo(path, 0600);
      break;
    case SOAK_DAMAGE_past:
    case SOAK_DAMAGE_future:
      set_time(path, (kind == SOAK_DAMAGE_past ? -1 : 1) * (int64_t)soak_random(random, 400000));
      break;
    case SOAK_DAMAGE_stamp:
      make_stamp_odd(random);
      break;
    case SOAK_DAMAGE_temporaries:
      leave_temporary(random);
      soak_age_temporaries();
      break;
    case SOAK_DAMAGE_shard:
      *strrchr(path, '/') = '\0';
      qn_test_tempdir_remove(path);
      break;
    case SOAK_DAMAGE_wipe:
    case SOAK_DAMAGE_aside:
      remove_below_root(kind == SOAK_DAMAGE_aside);
      break;
    case SOAK_DAMAGE_bundle:
      damage_bundle(random);
      break;
    case SOAK_DAMAGE_COUNT:
      break;
  }
}
