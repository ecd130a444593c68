// SPDX-License-Identifier: Apache-2.0
// What does a lookup cost: in the memory table, and from the directory?
//
// Memory: (module handle, target) to a retained executable; the floor is the lock and reference
// count that it needs. Directory: a verified entry of 64 KB to a callable executable; the floor is
// open, fstat, read, close and XXH3-128 of the same file in the same process, page cache warm.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fs.h"
#include "bench/harness.h"
#include "jit/engine/engine.h"
#include "quern/quern.h"

typedef struct subject {
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  char path[512];  // the entry's file
  uint8_t* buffer;
  size_t buffer_size;
  _Atomic uint32_t reference_count;
  pthread_mutex_t mutex;
} subject_t;

static void lookup_memory(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    qn_executable_t* executable;
    bench_must(qn_engine_executable(s->engine, s->module, s->target, NULL, NULL, &executable));
    qn_executable_release(executable);
  }
}

static void lock_and_count(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    (void)pthread_mutex_lock(&s->mutex);
    atomic_fetch_add_explicit(&s->reference_count, 1, memory_order_relaxed);
    (void)pthread_mutex_unlock(&s->mutex);
    atomic_fetch_sub_explicit(&s->reference_count, 1, memory_order_acq_rel);
  }
}

static void lookup_directory(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    (void)qn_engine_unload(s->engine, s->module, s->target, NULL);
    qn_executable_t* executable;
    qn_lookup_info_t info = {.struct_size = sizeof info};
    bench_must(qn_engine_executable(s->engine, s->module, s->target, NULL, &info, &executable));
    if (info.source != QN_SOURCE_DISK) abort();
    qn_executable_release(executable);
  }
}

static void read_and_hash(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) abort();
    ssize_t size = read(fd, s->buffer, s->buffer_size);
    (void)close(fd);
    qn_hash128_t hash = qn__xxh128((qn_span_t){s->buffer, (size_t)size}, 1);
    bench_keep(&hash);
  }
}

static char found_path[512];
static off_t found_size;

// Makes a program with many unrolled statements, each with its own constants.
static char* make_program(int statement_count) {
  size_t capacity = 200 + (size_t)statement_count * 80;
  char* text = malloc(capacity);
  if (!text) exit(1);
  int size = snprintf(text, capacity, "func f(x: f32[n], out y: f32[n]) {\n  for i in 0..n {\n");
  for (int i = 0; i < statement_count; i++) {
    size += snprintf(text + size, capacity - (size_t)size,
                     "    y[(i * %d + %d) %% n] = x[i] * %d.5;\n", 3 + i % 50, i, i);
  }
  (void)snprintf(text + size, capacity - (size_t)size, "  }\n}\n");
  return text;
}

int main(int argc, char** argv) {
  bench_report_t report = bench_begin(
      "lookups", "Measures lookups in the memory table and from the directory.", argc, argv);
  char directory[64];
  bench_make_directory("/tmp", directory);
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = directory, .cache_mode = QN_CACHE_RW};
  subject_t subject;
  memset(&subject, 0, sizeof subject);
  (void)pthread_mutex_init(&subject.mutex, NULL);
  bench_must(qn_engine_create(&options, &subject.engine));
  bench_must(qn_target_parse("cpu", &subject.target));
  // Grows the program until its entry is at least 64 KB.
  for (int count = 200; found_size < 64 << 10; count += 200) {
    qn_module_release(subject.module);
    char* text = make_program(count);
    bench_must(qn_module_parse(text, strlen(text), NULL, &subject.module));
    free(text);
    qn_executable_t* executable;
    qn_lookup_options_t lookup = {.struct_size = sizeof lookup};
    bench_must(qn_engine_executable(subject.engine, subject.module, subject.target, &lookup, NULL,
                                    &executable));
    qn_executable_release(executable);
    if (!qn_engine_flush(subject.engine, 10000000000)) return 1;
    found_size = 0;
    qn_lookup_info_t info = {.struct_size = sizeof info};
    bench_must(qn_engine_executable(subject.engine, subject.module, subject.target, NULL, &info,
                                    &executable));
    qn_executable_release(executable);
    (void)snprintf(found_path, sizeof found_path, "%s/v1/%.2s/%s.k", directory, info.key.hex,
                   info.key.hex + 2);
    struct stat file;
    if (stat(found_path, &file) == 0) found_size = file.st_size;
    if (count > 4000) break;
  }
  (void)snprintf(subject.path, sizeof subject.path, "%s", found_path);
  subject.buffer_size = (size_t)found_size + 64;
  subject.buffer = malloc(subject.buffer_size);
  if (!subject.buffer) return 1;

  void (*bodies[])(void*, int64_t) = {lock_and_count, lookup_memory, read_and_hash,
                                      lookup_directory};
  void* selves[] = {&subject, &subject, &subject, &subject};
  double ns[4];
  bench_compare_ns(4, bodies, selves, 0, 301, ns);
  bench_row(&report, "lock, count, unlock, count", ns[0], "ns", 0, 0);
  bench_row(&report, "memory lookup and release", ns[1], "ns", 0, 30);
  char name[96];
  (void)snprintf(name, sizeof name, "open, fstat, read, close, XXH3 of %lld bytes",
                 (long long)found_size);
  bench_row(&report, name, ns[2] / 1000, "us", 0, 0);
  bench_row(&report, "directory lookup to callable", ns[3] / 1000, "us", ns[2] / 1000, 0);
  bench_row(&report, "directory lookup to callable", ns[3] / 1000, "us", 0, 25);
  free(subject.buffer);
  qn_module_release(subject.module);
  qn_target_release(subject.target);
  qn_engine_destroy(subject.engine);
  bench_remove_directory(directory);
  return bench_end(&report);
}
