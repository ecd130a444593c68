// SPDX-License-Identifier: Apache-2.0
// tests/soak/worker.h: shared by the files of a worker: a process, its threads, and the operations
// on entries (entries.c) and engines (lookups.c).
//
// Thread rule: a worker's threads share two directory objects and two engines. Each soak_thread_t
// belongs to one thread.
#ifndef QUERN_TESTS_SOAK_WORKER_H_
#define QUERN_TESTS_SOAK_WORKER_H_

#include "base/thread.h"
#include "quern/quern.h"
#include "tests/soak/soak.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define MILLISECOND_NS INT64_C(1000000)
// A worker's limit for a hang, below the conductor's limit on slow machines.
#define GRACE_NS (INT64_C(400000) * MILLISECOND_NS)

typedef struct soak_process {
  unsigned index;
  uint64_t seed;
  unsigned rounds;
  qn_fault_heap_t heap;
  qn__disk_t* disks[2];
  qn_engine_t* engines[2];
  uint64_t reported[2][5];  // of the counters that report_counters adds to the shared page
} soak_process_t;

typedef struct soak_thread {
  soak_process_t* process;
  unsigned number;
  uint64_t random;
  pthread_t id;
} soak_thread_t;

// ---- entries.c

extern sample_t soak_samples[SOAK_SAMPLES];

// False, and a violation, when an entry has other bytes than its sample.
bool soak_is_hit_right(const sample_t* sample, qn__hit_t* hit, const char* by);
void soak_get_one(qn__disk_t* disk, const sample_t* sample);
void soak_inspect_one(qn__disk_t* disk, const sample_t* sample, bool heals);
void soak_claim_one(soak_thread_t* thread, qn__disk_t* disk, const sample_t* sample);
// For scans: counts in `self`, an unsigned, and ends one that has no end.
bool soak_see_file(void* self, const qn__disk_file_t* file);
void soak_read_bundle(soak_thread_t* thread);
void soak_write_bundle(soak_thread_t* thread, qn__disk_t* disk, bool is_appending);

// ---- lookups.c

// An engine on the soaked directory; NULL, and a violation, without one.
qn_engine_t* soak_open_engine(soak_process_t* process);
// With `unloads` the engine unloads it first, so that the lookup reads the directory.
void soak_look_up_one(soak_thread_t* thread, qn_engine_t* engine, unsigned number, bool is_native,
                      bool unloads);
void soak_look_up(soak_thread_t* thread, bool unloads);
// Lookups that do not want to wait long, or at all.
void soak_look_up_in_a_hurry(soak_thread_t* thread, bool is_request);

#endif  // QUERN_TESTS_SOAK_WORKER_H_
