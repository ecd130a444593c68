// SPDX-License-Identifier: Apache-2.0
// tests/support/power.c: see power.h.
//
// The record is a list of events: a write, a sync, or a name that now means a file, a directory or
// nothing. Each file gets a number when it is first seen, and a table maps descriptors to files.
// The code favours simplicity over speed, because recordings are short.
#define _GNU_SOURCE
#include "tests/support/power.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "tests/support/tempdir.h"

#define PATH_SIZE 640
#define MAX_DESCRIPTORS 1024
#define NO_FILE (-1)
#define A_DIRECTORY (-2)

typedef enum event_kind { EVENT_WRITE, EVENT_SYNC, EVENT_NAME } event_kind_t;

typedef struct event {
  event_kind_t kind;
  int file;  // NO_FILE and A_DIRECTORY are possible for names
  size_t offset, size;
  uint8_t* bytes;
  char path[PATH_SIZE];  // relative to the root; "" is the root
  unsigned group;        // the same for names changed by one call, which a journal keeps together
} event_t;

static struct {
  pthread_mutex_t mutex;
  char root[PATH_SIZE];
  size_t root_size;
  qn_power_disk_t disk;
  qn__fs_t table;
  event_t* events;
  size_t count, capacity, durable_count;  // the first `durable_count` are the state at the install
  int file_count;
  unsigned group_count;
  struct {
    int file;
    size_t offset;
  } descriptors[MAX_DESCRIPTORS];
} power = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void* must(void* pointer) {
  if (!pointer) abort();
  return pointer;
}

static event_t* add_event(event_kind_t kind, int file) {
  if (power.count == power.capacity) {
    power.capacity = power.capacity ? 2 * power.capacity : 256;
    power.events = must(realloc(power.events, power.capacity * sizeof *power.events));
  }
  event_t* event = &power.events[power.count++];
  memset(event, 0, sizeof *event);
  event->kind = kind;
  event->file = file;
  event->group = power.group_count;
  return event;
}

// Returns the part of a path below the root, or NULL for other paths.
static const char* below_root(const char* path) {
  if (strncmp(path, power.root, power.root_size) != 0) return NULL;
  const char* rest = path + power.root_size;
  if (*rest == '\0') return rest;
  return *rest == '/' ? rest + 1 : NULL;
}

static void add_name(const char* path, int file) {
  event_t* event = add_event(EVENT_NAME, file);
  (void)snprintf(event->path, sizeof event->path, "%s", path);
}

static void add_write(int file, size_t offset, const void* bytes, size_t size) {
  event_t* event = add_event(EVENT_WRITE, file);
  event->offset = offset;
  event->size = size;
  event->bytes = must(malloc(size ? size : 1));
  memcpy(event->bytes, bytes, size);
}

// Returns the file of a name, or NO_FILE.
static int file_of(const char* path) {
  for (size_t i = power.count; i-- > 0;) {
    const event_t* event = &power.events[i];
    if (event->kind == EVENT_NAME && strcmp(event->path, path) == 0) return event->file;
  }
  return NO_FILE;
}

// Returns the bytes of a file after the events before `end`. Owned by the caller.
static uint8_t* contents(int file, size_t end, size_t* out_size) {
  size_t size = 0;
  for (size_t i = 0; i < end; i++) {
    const event_t* event = &power.events[i];
    if (event->kind == EVENT_WRITE && event->file == file && event->offset + event->size > size) {
      size = event->offset + event->size;
    }
  }
  uint8_t* bytes = must(calloc(size + 1, 1));
  for (size_t i = 0; i < end; i++) {
    const event_t* event = &power.events[i];
    if (event->kind != EVENT_WRITE || event->file != file) continue;
    memcpy(bytes + event->offset, event->bytes, event->size);
  }
  *out_size = size;
  return bytes;
}

// ------------------------------------------------------------------------------------- recording

static void track(int fd, int file) {
  if (fd < 0 || fd >= MAX_DESCRIPTORS) return;
  power.descriptors[fd].file = file;
  power.descriptors[fd].offset = 0;
}

static int power_open(const char* path, int flags, mode_t mode) {
  (void)pthread_mutex_lock(&power.mutex);
  int fd = qn__fs_posix.open(path, flags, mode);
  int error = errno;
  const char* name = below_root(path);
  if (fd >= 0 && name && (flags & O_ACCMODE) != O_RDONLY) {
    int file = file_of(name);
    power.group_count++;
    if (file < 0) {
      file = power.file_count++;
      add_name(name, file);
    } else if (flags & O_TRUNC) {
      abort();  // the cache never empties a file in place; the model has no such event
    }
    track(fd, file);
    // The next write goes to the end of the recorded bytes.
    if (flags & O_APPEND && fd < MAX_DESCRIPTORS) {
      free(contents(file, power.count, &power.descriptors[fd].offset));
    }
  }
  (void)pthread_mutex_unlock(&power.mutex);
  errno = error;
  return fd;
}

static int power_close(int fd) {
  (void)pthread_mutex_lock(&power.mutex);
  if (fd >= 0 && fd < MAX_DESCRIPTORS) power.descriptors[fd].file = NO_FILE;
  int result = qn__fs_posix.close(fd);
  (void)pthread_mutex_unlock(&power.mutex);
  return result;
}

static ssize_t power_write(int fd, const void* data, size_t size) {
  (void)pthread_mutex_lock(&power.mutex);
  ssize_t written = qn__fs_posix.write(fd, data, size);
  if (written > 0 && fd < MAX_DESCRIPTORS && power.descriptors[fd].file >= 0) {
    add_write(power.descriptors[fd].file, power.descriptors[fd].offset, data, (size_t)written);
    power.descriptors[fd].offset += (size_t)written;
  }
  (void)pthread_mutex_unlock(&power.mutex);
  return written;
}

static int power_fdatasync(int fd) {
  (void)pthread_mutex_lock(&power.mutex);
  int result = 0;
  if (power.disk == QN_POWER_HONEST) {
    result = qn__fs_posix.fdatasync(fd);
    if (result == 0 && fd < MAX_DESCRIPTORS && power.descriptors[fd].file >= 0) {
      (void)add_event(EVENT_SYNC, power.descriptors[fd].file);
    }
  }
  (void)pthread_mutex_unlock(&power.mutex);
  return result;
}

static int power_rename(const char* from, const char* to) {
  (void)pthread_mutex_lock(&power.mutex);
  int result = qn__fs_posix.rename(from, to);
  const char *old_name = below_root(from), *new_name = below_root(to);
  if (result == 0 && old_name && new_name) {
    int file = file_of(old_name);
    if (file == A_DIRECTORY) abort();  // the cache renames no directories
    power.group_count++;
    add_name(new_name, file);
    add_name(old_name, NO_FILE);
  }
  (void)pthread_mutex_unlock(&power.mutex);
  return result;
}

static int end_name(const char* path, int result) {
  const char* name = below_root(path);
  if (result == 0 && name) {
    power.group_count++;
    add_name(name, NO_FILE);
  }
  return result;
}

static int power_unlink(const char* path) {
  (void)pthread_mutex_lock(&power.mutex);
  int result = end_name(path, qn__fs_posix.unlink(path));
  (void)pthread_mutex_unlock(&power.mutex);
  return result;
}

static int power_rmdir(const char* path) {
  (void)pthread_mutex_lock(&power.mutex);
  int result = end_name(path, qn__fs_posix.rmdir(path));
  (void)pthread_mutex_unlock(&power.mutex);
  return result;
}

static int power_mkdir(const char* path, mode_t mode) {
  (void)pthread_mutex_lock(&power.mutex);
  int result = qn__fs_posix.mkdir(path, mode);
  const char* name = below_root(path);
  if (result == 0 && name) {
    power.group_count++;
    add_name(name, A_DIRECTORY);
  }
  (void)pthread_mutex_unlock(&power.mutex);
  return result;
}

static void import_file(const char* path, const char* name) {
  static uint8_t bytes[1 << 20];
  long size = qn_test_read_file(path, bytes, sizeof bytes);
  if (size < 0) abort();
  int file = power.file_count++;
  add_name(name, file);
  add_write(file, 0, bytes, (size_t)size);
  (void)add_event(EVENT_SYNC, file);
}

// Records a directory before its contents.
static void import(const char* path) {
  DIR* dir = opendir(path);
  if (!dir) return;
  add_name(below_root(path), A_DIRECTORY);
  for (struct dirent* item; (item = readdir(dir));) {
    if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
    char below[PATH_SIZE];
    struct stat info;
    if (snprintf(below, sizeof below, "%s/%s", path, item->d_name) >= (int)sizeof below) abort();
    if (lstat(below, &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) import(below);
    if (S_ISREG(info.st_mode)) import_file(below, below_root(below));
  }
  (void)closedir(dir);
}

void qn_power_install(const char* root, qn_power_disk_t disk) {
  qn_power_forget();
  power.root_size = (size_t)snprintf(power.root, sizeof power.root, "%s", root);
  if (power.root_size >= sizeof power.root) abort();
  power.disk = disk;
  for (size_t i = 0; i < MAX_DESCRIPTORS; i++) power.descriptors[i].file = NO_FILE;
  import(root);
  power.durable_count = power.count;
  power.table = qn__fs_posix;
  power.table.open = power_open;
  power.table.close = power_close;
  power.table.write = power_write;
  power.table.fdatasync = power_fdatasync;
  power.table.rename = power_rename;
  power.table.unlink = power_unlink;
  power.table.mkdir = power_mkdir;
  power.table.rmdir = power_rmdir;
  (void)qn__fs_install(&power.table);
}

void qn_power_remove(void) {
  (void)qn__fs_install(NULL);
}

void qn_power_forget(void) {
  for (size_t i = 0; i < power.count; i++) free(power.events[i].bytes);
  free(power.events);
  power.events = NULL;
  power.count = power.capacity = power.durable_count = 0;
  power.file_count = 0;
}

size_t qn_power_event_count(void) {
  return power.count - power.durable_count;
}

// --------------------------------------------------------------------------------- one dark state

static uint32_t random_below(uint64_t* state, size_t bound) {
  *state += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t x = *state;
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  x ^= x >> 31;
  return (uint32_t)(bound ? x % bound : 0);
}

// Returns the end of the durable events of a file: its last sync before the cut.
static size_t synced_end(int file, size_t cut) {
  for (size_t i = cut; i-- > 0;) {
    if (power.events[i].kind == EVENT_SYNC && power.events[i].file == file) return i;
  }
  return 0;
}

static void write_file(const char* path, int file, size_t cut, uint64_t* random,
                       qn_power_damage_t* damage) {
  size_t new_size, old_size;
  uint8_t* fresh = contents(file, cut, &new_size);
  uint8_t* durable = contents(file, synced_end(file, cut), &old_size);
  // The newest size, the durable one, or one between.
  size_t size = new_size;
  if (new_size > old_size && random_below(random, 2)) {
    size = old_size + random_below(random, new_size - old_size + 1);
  }
  uint8_t* bytes = must(calloc(size + 1, 1));
  memcpy(bytes, durable, old_size < size ? old_size : size);
  size_t block = random_below(random, 2) ? 512 : 4096;
  unsigned mood = random_below(random, 3);  // most there, most lost, or half of each
  for (size_t at = 0; at < size; at += block) {
    size_t end = at + block < size ? at + block : size;
    // A block is written as a whole or not at all. An unchanged block cannot be lost.
    bool is_there = mood == 0   ? random_below(random, 8) != 0
                    : mood == 1 ? random_below(random, 8) == 0
                                : random_below(random, 2) == 0;
    if (is_there) memcpy(bytes + at, fresh + at, end - at);
  }
  bool is_torn = size != new_size || (size && memcmp(bytes, fresh, size) != 0);
  damage->torn_files += is_torn;
  damage->torn_in_place += is_torn && size == new_size;
  if (!qn_test_write_file(path, bytes, size)) abort();
  free(bytes);
  free(durable);
  free(fresh);
}

// Returns the event that gives a name its meaning after the power loss, or SIZE_MAX.
static size_t choose_state(const char* path, size_t cut, size_t journal_end, bool is_journal,
                           uint64_t* random) {
  size_t latest = SIZE_MAX, durable = SIZE_MAX, count = 0, chosen = SIZE_MAX;
  for (size_t i = 0; i < cut; i++) {
    const event_t* event = &power.events[i];
    if (event->kind != EVENT_NAME || strcmp(event->path, path) != 0) continue;
    if (i < power.durable_count) {
      durable = i;
      continue;
    }
    if (is_journal && event->group > journal_end) continue;
    latest = i;
    // Choose any of its events with equal probability, including the durable one, which is first.
    if (random_below(random, ++count + 1) != 0) chosen = i;
  }
  if (is_journal) return latest != SIZE_MAX ? latest : durable;
  return chosen != SIZE_MAX ? chosen : durable;
}

static bool is_first_of_name(size_t index) {
  for (size_t i = 0; i < index; i++) {
    if (power.events[i].kind == EVENT_NAME &&
        strcmp(power.events[i].path, power.events[index].path) == 0) {
      return false;
    }
  }
  return true;
}

void qn_power_materialise(const char* directory, size_t cut, uint64_t seed,
                          qn_power_damage_t* out_damage) {
  qn_power_damage_t none, *damage = out_damage ? out_damage : &none;
  memset(damage, 0, sizeof *damage);
  qn_test_tempdir_remove(directory);
  cut += power.durable_count;
  if (cut > power.count) cut = power.count;
  uint64_t random = seed * UINT64_C(0xD1342543DE82EF95) + cut;
  unsigned first_group = power.durable_count < power.count ? power.events[power.durable_count].group
                                                           : power.group_count;
  unsigned last_group = cut > power.durable_count ? power.events[cut - 1].group : 0;
  bool is_journal = random_below(&random, 2) == 0;
  unsigned journal_end = last_group;
  if (last_group >= first_group && random_below(&random, 3) != 0) {
    journal_end = first_group + random_below(&random, last_group - first_group + 1);
  }
  // Parent directories are created first, because their first event comes first.
  for (size_t i = 0; i < cut; i++) {
    if (power.events[i].kind != EVENT_NAME || !is_first_of_name(i)) continue;
    const char* name = power.events[i].path;
    size_t state = choose_state(name, cut, journal_end, is_journal, &random);
    size_t newest = state;
    for (size_t j = i; j < cut; j++) {
      if (power.events[j].kind == EVENT_NAME && strcmp(power.events[j].path, name) == 0) newest = j;
    }
    damage->lost_names += state != newest;
    int file = state == SIZE_MAX ? NO_FILE : power.events[state].file;
    char path[PATH_SIZE + QN_TEST_PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s%s%s", directory, name[0] ? "/" : "", name);
    if (file == NO_FILE) continue;
    // The contents of a lost directory are lost, too.
    char* slash = strrchr(path, '/');
    *slash = '\0';
    bool has_parent = access(path, F_OK) == 0;
    *slash = '/';
    if (!has_parent) continue;
    if (file == A_DIRECTORY) {
      (void)mkdir(path, 0700);
    } else {
      write_file(path, file, cut, &random, damage);
    }
  }
}
