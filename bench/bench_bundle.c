// SPDX-License-Identifier: Apache-2.0
// What does a bundle cost: opening one of 10,000 entries, and a hit in it?
//
// A hit is one search, one pread and the verification of the entry. Its floors are the bare pread
// of the same bytes from the same file, page cache warm, and memcpy of as many bytes from as many
// places. 257 entries take turns, so that neither index nor source is in the nearest cache.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/harness.h"
#include "cache/bundle_write.h"

enum { ENTRIES = 10000, OPENINGS = 101, ASKED = 257 };

typedef struct subject {
  qn__bundle_t* bundle;
  int fd;
  size_t size;      // of an entry
  uint8_t* source;  // for memcpy
  uint8_t* buffer;
  qn__expectation_t expected[ASKED];
  qn__buffer_t preimages[ASKED];
  uint64_t offsets[ASKED];
  size_t next;
} subject_t;

static void make_preimage(unsigned number, qn__buffer_t* out) {
  uint8_t module[32] = {0};
  memcpy(module, &number, sizeof number);
  qn_span_t canonical = {module, sizeof module};
  qn__sha256_t second = qn__sha256(canonical);
  qn__buffer_clear(out);
  qn__preimage_begin(out);
  qn__preimage_add_module(out, sizeof module, qn__xxh128(canonical, 0), &second);
  qn_str_t target = QN_STR("{\"kind\":\"cpu\",\"mcpu\":\"znver5\",\"opt_level\":2,\"vector\":512}");
  qn__preimage_add(out, QN__SECTION_TARGET, (qn_span_t){(const uint8_t*)target.data, target.size});
  qn_str_t maker = QN_STR("llvm 0.1.0, table 1, image 1, build id 00, library 00");
  qn__preimage_add(out, QN__SECTION_GENERATOR, (qn_span_t){(const uint8_t*)maker.data, maker.size});
}

// Writes a bundle of `count` entries of exactly `size` bytes each.
static void write_bundle(const char* path, unsigned count, size_t size, const uint8_t* secret_key) {
  qn__bundle_write_options_t options = {.path = path, .secret_key = secret_key};
  qn__bundle_writer_t* writer;
  bench_must(qn__bundle_writer_create(&options, &writer));
  qn__buffer_t preimage, bytes;
  qn__buffer_init(&preimage, qn_allocator_default());
  qn__buffer_init(&bytes, qn_allocator_default());
  uint8_t* payload = malloc(size);
  if (!payload) bench_give_up("no memory");
  for (size_t i = 0; i < size; i++) payload[i] = (uint8_t)(i * 2654435761u >> 13);
  for (unsigned i = 0; i < count; i++) {
    make_preimage(i, &preimage);
    qn__entry_t entry = {.preimage = qn__buffer_as_span(&preimage)};
    entry.payload = (qn_span_t){payload, size - qn__entry_size(&entry)};
    memcpy(payload, &i, sizeof i);
    qn__buffer_clear(&bytes);
    if (!qn__entry_encode(&entry, &bytes) || bytes.size != size) bench_give_up("no such entry");
    bench_must(qn__bundle_writer_add(writer, qn__buffer_as_span(&bytes)));
  }
  bench_must(qn__bundle_writer_finish(writer));
  qn__bundle_writer_destroy(writer);
  free(payload);
  qn__buffer_deinit(&preimage);
  qn__buffer_deinit(&bytes);
}

static double time_open(const char* path, const uint8_t* public_key) {
  static double us[OPENINGS];
  for (size_t i = 0; i < OPENINGS; i++) {
    qn__bundle_options_t options = {
        .path = path, .public_keys = public_key, .public_key_count = public_key != NULL};
    qn__bundle_t* bundle;
    int64_t start = bench_cpu_ns();
    bench_must(qn__bundle_open(&options, &bundle));
    us[i] = (double)(bench_cpu_ns() - start) / 1e3;
    if (qn__bundle_count(bundle) != ENTRIES || qn__bundle_is_truncated(bundle))
      bench_give_up("not whole");
    qn__bundle_close(bundle);
  }
  return bench_median(us, OPENINGS);
}

static void open_subject(subject_t* s, const char* path, unsigned count, size_t size,
                         const uint8_t* public_key) {
  memset(s, 0, sizeof *s);
  qn__bundle_options_t options = {
      .path = path, .public_keys = public_key, .public_key_count = public_key != NULL};
  bench_must(qn__bundle_open(&options, &s->bundle));
  s->fd = open(path, O_RDONLY | O_CLOEXEC);
  s->size = size;
  s->source = aligned_alloc(64, ASKED * size);
  s->buffer = aligned_alloc(64, size);
  if (s->fd < 0 || !s->source || !s->buffer) bench_give_up("no memory");
  memset(s->source, 7, ASKED * size);
  memset(s->buffer, 7, size);
  for (unsigned i = 0; i < ASKED; i++) {
    unsigned number = (unsigned)((uint64_t)i * 7919 % count);
    qn__buffer_init(&s->preimages[i], qn_allocator_default());
    make_preimage(number, &s->preimages[i]);
    qn_span_t preimage = qn__buffer_as_span(&s->preimages[i]);
    s->expected[i] = (qn__expectation_t){qn__preimage_key(preimage), preimage};
    s->offsets[i] = 64 + (uint64_t)number * size;
  }
}

static void close_subject(subject_t* s) {
  qn__bundle_close(s->bundle);
  (void)close(s->fd);
  for (size_t i = 0; i < ASKED; i++) qn__buffer_deinit(&s->preimages[i]);
  free(s->source);
  free(s->buffer);
}

static void get(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    qn__hit_t hit;
    s->next = s->next + 1 == ASKED ? 0 : s->next + 1;
    if (qn__bundle_get(s->bundle, &s->expected[s->next], &hit) != QN__GET_HIT)
      bench_give_up("no hit");
    bench_keep(hit.entry.payload.data);
    qn__bundle_hit_release(s->bundle, &hit);
  }
}

static void read_bytes(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    s->next = s->next + 1 == ASKED ? 0 : s->next + 1;
    if (pread(s->fd, s->buffer, s->size, (off_t)s->offsets[s->next]) != (ssize_t)s->size) {
      bench_give_up("cannot read");
    }
    bench_keep(s->buffer);
  }
}

static void copy_bytes(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    s->next = s->next + 1 == ASKED ? 0 : s->next + 1;
    memcpy(s->buffer, s->source + s->next * s->size, s->size);
    bench_keep(s->buffer);
  }
}

static void get_absent(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++) {
    qn__hit_t hit;
    s->next = s->next + 1 == ASKED ? 0 : s->next + 1;
    qn__expectation_t expected = s->expected[s->next];
    expected.key.bytes[15] ^= 1;
    if (qn__bundle_get(s->bundle, &expected, &hit) != QN__GET_ABSENT) bench_give_up("no miss");
  }
}

static void time_gets(bench_report_t* report, subject_t* s, const char* size) {
  void (*const bodies[])(void*, int64_t) = {copy_bytes, read_bytes, get};
  void* const selves[] = {s, s, s};
  double ns[3];
  char name[64];
  bench_compare_ns(3, bodies, selves, 0, 101, ns);
  (void)snprintf(name, sizeof name, "memcpy of %s", size);
  bench_row(report, name, ns[0], "ns", 0, 0);
  (void)snprintf(name, sizeof name, "pread of %s", size);
  bench_row(report, name, ns[1], "ns", 0, 0);
  (void)snprintf(name, sizeof name, "hit of %s", size);
  bench_row(report, name, ns[2], "ns", ns[1], 0);
  (void)snprintf(name, sizeof name, "hit of %s over its pread", size);
  bench_row(report, name, ns[2] - ns[1], "ns", 0, 2000);
  (void)snprintf(name, sizeof name, "hit of %s over memcpy", size);
  bench_row(report, name, ns[2] - ns[0], "ns", 0, 2000);
}

int main(int argc, char** argv) {
  bench_report_t report =
      bench_begin("bundles", "opening 10,000 entries; hits against memcpy and pread", argc, argv);
  char directory[64], path[80], small[80], signed_path[80];
  bench_make_directory("/tmp", directory);
  (void)snprintf(path, sizeof path, "%s/64k.qnb", directory);
  (void)snprintf(small, sizeof small, "%s/4k.qnb", directory);
  (void)snprintf(signed_path, sizeof signed_path, "%s/signed.qnb", directory);
  const qn__crypto_t* crypto;
  uint8_t public_key[QN__PUBLIC_KEY_BYTES], secret_key[QN__SECRET_KEY_BYTES];
  bool has_crypto = qn_status_consume(qn__crypto_open("", &crypto)) == QN_STATUS_OK;
  static subject_t subject;

  write_bundle(small, ENTRIES, 4096, NULL);
  bench_row(&report, "open 10,000 entries", time_open(small, NULL), "us", 0, 1000);
  if (has_crypto) {
    crypto->make_keys(public_key, secret_key);
    write_bundle(signed_path, ENTRIES, 4096, secret_key);
    bench_row(&report, "open 10,000 signed entries", time_open(signed_path, public_key), "us", 0,
              1000);
  }
  open_subject(&subject, small, ENTRIES, 4096, NULL);
  time_gets(&report, &subject, "4 KB");
  bench_row(&report, "key that is not there", bench_run_ns(get_absent, &subject, 0, 101), "ns", 0,
            0);
  close_subject(&subject);
  if (has_crypto) {
    open_subject(&subject, signed_path, ENTRIES, 4096, public_key);
    bench_row(&report, "signed hit of 4 KB", bench_run_ns(get, &subject, 0, 101), "ns", 0, 0);
    close_subject(&subject);
  }
  write_bundle(path, 1000, 65536, NULL);
  open_subject(&subject, path, 1000, 65536, NULL);
  time_gets(&report, &subject, "64 KB");
  close_subject(&subject);
  bench_remove_directory(directory);
  return bench_end(&report);
}
