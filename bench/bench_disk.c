// SPDX-License-Identifier: Apache-2.0
// What does the directory cost: a hit, a miss, an entry to publish, a claim?
//
// The floor of verified hits of 4 KB and 64 KB is bare open, read, close and XXH3-128 of the same
// files in the same process, page cache warm. Puts and claims are timed as the caller of a compile
// sees them: wall time of each call, with an idle writer, without the wait for the writer.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "bench/harness.h"
#include "cache/disk.h"

#define PUT_COUNT 400

typedef struct subject {
  qn__disk_t* disk;
  qn__entry_t entry;
  qn__expectation_t expected;
  qn__buffer_t preimage;
  uint8_t* payload;
  uint8_t* buffer;
  size_t file_size;
  char path[512];
} subject_t;

static void set_key(subject_t* s, unsigned number) {
  uint8_t module[32] = {0};
  memcpy(module, &number, sizeof number);
  qn_span_t canonical = {module, sizeof module};
  qn__sha256_t second = qn__sha256(canonical);
  qn__buffer_clear(&s->preimage);
  qn__preimage_begin(&s->preimage);
  qn__preimage_add_module(&s->preimage, sizeof module, qn__xxh128(canonical, 0), &second);
  qn_str_t target = QN_STR("{\"kind\":\"cpu\",\"mcpu\":\"znver5\",\"opt_level\":2,\"vector\":512}");
  qn__preimage_add(&s->preimage, QN__SECTION_TARGET,
                   (qn_span_t){(const uint8_t*)target.data, target.size});
  s->entry.preimage = qn__buffer_as_span(&s->preimage);
  s->expected = (qn__expectation_t){qn__preimage_key(s->entry.preimage), s->entry.preimage};
}

// Makes an entry whose file has exactly `file_size` bytes.
static void make_subject(subject_t* s, qn__disk_t* disk, const char* directory, size_t file_size) {
  memset(s, 0, sizeof *s);
  s->disk = disk;
  s->file_size = file_size;
  qn__buffer_init(&s->preimage, qn_allocator_default());
  set_key(s, (unsigned)file_size);
  s->payload = malloc(file_size);
  s->buffer = malloc(file_size);
  if (!s->payload || !s->buffer) bench_give_up("no memory");
  for (size_t i = 0; i < file_size; i++) s->payload[i] = (uint8_t)(i * 2654435761u >> 13);
  s->entry.payload = (qn_span_t){s->payload, file_size - qn__entry_size(&s->entry)};
  if (qn__entry_size(&s->entry) != file_size) bench_give_up("a size that no entry has");
  if (!qn__disk_put(disk, &s->entry, NULL) || !qn__disk_flush(disk, INT64_C(10000000000))) {
    bench_give_up("cannot put");
  }
  char hex[33];
  qn__hash128_hex(s->expected.key, hex);
  (void)snprintf(s->path, sizeof s->path, "%s/v1/%.2s/%s.k", directory, hex, hex + 2);
}

static void free_subject(subject_t* s) {
  qn__buffer_deinit(&s->preimage);
  free(s->payload);
  free(s->buffer);
}

static void get(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    qn__hit_t hit;
    if (qn__disk_get(s->disk, &s->expected, &hit) != QN__GET_HIT) bench_give_up("no hit");
    bench_keep(hit.entry.payload.data);
    qn__disk_hit_release(s->disk, &hit);
  }
}

static void read_and_hash(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, s->buffer, s->file_size) != (ssize_t)s->file_size)
      bench_give_up("cannot read");
    (void)close(fd);
    qn_hash128_t hash = qn__xxh128((qn_span_t){s->buffer, s->file_size}, 1);
    bench_keep(&hash);
  }
}

static void get_absent(void* self, int64_t iterations) {
  subject_t* s = self;
  qn__expectation_t expected = s->expected;
  expected.key.bytes[15] ^= 1;
  for (int64_t i = 0; i < iterations; i++) {
    qn__hit_t hit;
    if (qn__disk_get(s->disk, &expected, &hit) != QN__GET_ABSENT) bench_give_up("no miss");
  }
}

static void open_absent(void* self, int64_t iterations) {
  subject_t* s = self;
  char path[sizeof s->path + 2];
  (void)snprintf(path, sizeof path, "%sx", s->path);
  for (int64_t i = 0; i < iterations; i++) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) bench_give_up("a file that should not be");
  }
}

static void claim_and_release(void* self, int64_t iterations) {
  subject_t* s = self;
  qn__expectation_t expected = s->expected;
  expected.key.bytes[15] ^= 1;
  for (int64_t i = 0; i < iterations; i++) {
    qn__hit_t hit;
    qn__disk_claim_t* claim;
    if (qn__disk_claim(s->disk, &expected, 0, &hit, &claim) == QN__GET_HIT || !claim) {
      bench_give_up("no claim");
    }
    qn__disk_claim_release(claim);
  }
}

// Times the claim before a compile and the put after it, as the caller sees them.
static void time_puts(bench_report_t* report, subject_t* s, const char* size) {
  static double put_us[PUT_COUNT], both_us[PUT_COUNT];
  for (unsigned i = 0; i < PUT_COUNT; i++) {
    set_key(s, 1000000 + i % 50);
    // The directory does not have the key, as before a first compile.
    s->expected.key.bytes[15] ^= 0xFF;
    qn__hit_t hit;
    qn__disk_claim_t* claim;
    int64_t start = bench_now_ns();
    qn__get_result_t result = qn__disk_claim(s->disk, &s->expected, INT64_MAX, &hit, &claim);
    int64_t middle = bench_now_ns();
    bool is_put = qn__disk_put(s->disk, &s->entry, claim);
    int64_t end = bench_now_ns();
    if (result == QN__GET_HIT || !claim || !is_put) bench_give_up("cannot put");
    put_us[i] = (double)(end - middle) / 1000;
    both_us[i] = (double)(end - start) / 1000;
    if (!qn__disk_flush(s->disk, INT64_C(10000000000))) bench_give_up("cannot flush");
  }
  double put = bench_median(put_us, PUT_COUNT), both = bench_median(both_us, PUT_COUNT);
  char name[64];
  (void)snprintf(name, sizeof name, "put of %s, to the caller", size);
  bench_row(report, name, put, "us", 0, 50);
  (void)snprintf(name, sizeof name, "put of %s, 95th percentile", size);
  bench_row(report, name, put_us[PUT_COUNT * 95 / 100], "us", 0, 0);
  (void)snprintf(name, sizeof name, "claim and put of %s, to the caller", size);
  bench_row(report, name, both, "us", 0, 50);
}

int main(int argc, char** argv) {
  bench_report_t report = bench_begin(
      "directory", "Measures hits, misses, puts and claims of the cache directory.", argc, argv);
  char directory[64];
  bench_make_directory("/tmp", directory);
  qn__disk_options_t options = {.root = directory, .sweep_period_ns = -1};
  qn__disk_t* disk;
  bench_must(qn__disk_open(&options, &disk));
  static const struct {
    size_t file_size;
    const char* text;
  } sizes[] = {{4096, "4 KB"}, {65536, "64 KB"}};
  for (size_t i = 0; i < QN_COUNT_OF(sizes); i++) {
    subject_t s;
    make_subject(&s, disk, directory, sizes[i].file_size);
    void (*bodies[])(void*, int64_t) = {read_and_hash, get, open_absent, get_absent,
                                        claim_and_release};
    void* selves[] = {&s, &s, &s, &s, &s};
    double ns[5];
    bench_compare_ns(5, bodies, selves, 0, 301, ns);
    char name[64];
    (void)snprintf(name, sizeof name, "open, read, close, XXH3 of %s", sizes[i].text);
    bench_row(&report, name, ns[0] / 1000, "us", 0, 0);
    (void)snprintf(name, sizeof name, "hit of %s", sizes[i].text);
    bench_row(&report, name, ns[1] / 1000, "us", ns[0] / 1000, 1.5);
    if (i == 0) {
      bench_row(&report, "open of an absent file", ns[2] / 1000, "us", 0, 0);
      bench_row(&report, "miss", ns[3] / 1000, "us", ns[2] / 1000, 0);
      bench_row(&report, "claim and release", ns[4] / 1000, "us", 0, 0);
    }
    time_puts(&report, &s, sizes[i].text);
    free_subject(&s);
  }
  qn__disk_close(disk, INT64_C(10000000000));
  bench_remove_directory(directory);
  return bench_end(&report);
}
