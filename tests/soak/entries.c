// SPDX-License-Identifier: Apache-2.0
// tests/soak/entries.c: a worker's direct operations on entries: gets, claims, scans and bundles.
//
// The bytes of an entry follow from its number. Thread rule: in worker.h.
#include <stdio.h>
#include <time.h>

#include "cache/bundle_write.h"
#include "tests/soak/worker.h"

sample_t soak_samples[SOAK_SAMPLES];

void soak_make_samples(void) {
  // Sizes from nothing to 96 KiB, so that the bound holds a fifth of them.
  for (unsigned i = 0; i < SOAK_SAMPLES; i++)
    sample_make(&soak_samples[i], i, (i % 16) * i % 24 * 4096u + i);
}

void soak_free_samples(void) {
  for (unsigned i = 0; i < SOAK_SAMPLES; i++) sample_free(&soak_samples[i]);
}

// ------------------------------------------------------------------------------- entries by hand

bool soak_is_hit_right(const sample_t* sample, qn__hit_t* hit, const char* by) {
  if (sample_equals(sample, &hit->entry)) return true;
  soak_violation("%s: an entry with other bytes than those that were put (sample of %zu bytes)", by,
                 sample->entry.payload.size);
  return false;
}

static void count_get(qn__get_result_t result) {
  switch (result) {
    case QN__GET_HIT:
      SOAK_COUNT(hits);
      break;
    case QN__GET_ABSENT:
      SOAK_COUNT(absent);
      break;
    case QN__GET_BAD:
      SOAK_COUNT(refused);
      break;
    default:
      SOAK_COUNT(unreadable);
  }
}

void soak_get_one(qn__disk_t* disk, const sample_t* sample) {
  qn__hit_t hit;
  qn__get_result_t result = qn__disk_get(disk, &sample->expected, &hit);
  count_get(result);
  if (result == QN__GET_HIT) (void)soak_is_hit_right(sample, &hit, "get");
  qn__disk_hit_release(disk, &hit);
}

void soak_inspect_one(qn__disk_t* disk, const sample_t* sample, bool heals) {
  qn__hit_t hit;
  if (qn__disk_inspect(disk, sample->entry.key, heals, &hit, NULL) == QN__GET_HIT) {
    (void)soak_is_hit_right(sample, &hit, "inspect");
  }
  qn__disk_hit_release(disk, &hit);
}

void soak_claim_one(soak_thread_t* thread, qn__disk_t* disk, const sample_t* sample) {
  qn__hit_t hit;
  qn__disk_claim_t* claim = NULL;
  int64_t deadline_ns = qn__now_ns() + soak_random(&thread->random, 200) * MILLISECOND_NS;
  if (qn__disk_claim(disk, &sample->expected, deadline_ns, &hit, &claim) == QN__GET_HIT) {
    SOAK_COUNT(claims_answered);
    (void)soak_is_hit_right(sample, &hit, "claim");
    qn__disk_hit_release(disk, &hit);
    return;
  }
  if (claim) {
    SOAK_COUNT(claims_held);
    // A compile takes its time.
    struct timespec pause = {.tv_nsec = soak_random(&thread->random, 8000000)};
    (void)nanosleep(&pause, NULL);
  } else {
    SOAK_COUNT(claims_without);
  }
  if (soak_random(&thread->random, 4) == 0) {
    qn__disk_claim_release(claim);
  } else {
    (void)qn__disk_put(disk, &sample->entry, claim);
  }
}

bool soak_see_file(void* self, const qn__disk_file_t* file) {
  (void)file;
  return ++*(unsigned*)self < 100000;
}

// ------------------------------------------------------------------------------------- bundles

void soak_bundle_path(unsigned number, char out[SOAK_PATH_SIZE]) {
  (void)snprintf(out, SOAK_PATH_SIZE, "%s.bundle%u", soak_options.root, number);
}

// Bundles are replaced, grown and damaged all the time. A bundle that opens must give right bytes
// or misses.
void soak_read_bundle(soak_thread_t* thread) {
  char path[SOAK_PATH_SIZE];
  soak_bundle_path(soak_random(&thread->random, SOAK_BUNDLES), path);
  qn__bundle_options_t options = {.allocator = qn_fault_heap_allocator(&thread->process->heap),
                                  .path = path};
  qn__bundle_t* bundle;
  qn_status_t status = qn__bundle_open(&options, &bundle);
  for (int i = 0; bundle && i < 10; i++) {
    const sample_t* sample = &soak_samples[soak_random(&thread->random, SOAK_SAMPLES)];
    qn__hit_t hit;
    if (qn__bundle_get(bundle, &sample->expected, &hit) == QN__GET_HIT) {
      SOAK_COUNT(bundle_hits);
      (void)soak_is_hit_right(sample, &hit, "bundle");
    }
    qn__bundle_hit_release(bundle, &hit);
  }
  qn_status_free(status);
  qn__bundle_close(bundle);
}

// A failure is allowed here: the directory may be empty, and another process may use the same
// bundle.
void soak_write_bundle(soak_thread_t* thread, qn__disk_t* disk, bool is_appending) {
  char path[SOAK_PATH_SIZE];
  soak_bundle_path(soak_random(&thread->random, SOAK_BUNDLES), path);
  qn__source_t source = {.disk = disk};
  qn__bundle_export_options_t options = {
      .write = {.allocator = qn_fault_heap_allocator(&thread->process->heap),
                .path = path,
                .is_appending = is_appending}};
  qn__bundle_export_report_t report;
  qn_status_free(qn__bundle_export(&source, 1, &options, &report));
}
