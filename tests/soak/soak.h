// SPDX-License-Identifier: Apache-2.0
// tests/soak/soak.h: shared by the conductor (soak.c), the workers (worker.c), the damage
// (damage.c) and the final check (verify.c) of a soak: options, tables of operations and counters,
// and a page of shared memory.
//
// Thread rule: all processes write soak_shared_t, with atomics only.
#ifndef QUERN_TESTS_SOAK_SOAK_H_
#define QUERN_TESTS_SOAK_SOAK_H_

#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"
#include "tests/support/tempdir.h"

#define SOAK_MAX_PROCESSES 64
#define SOAK_MAX_THREADS 8
#define SOAK_SAMPLES 96u
#define SOAK_MODULES 24u
#define SOAK_BUNDLES 3u
#define SOAK_PATH_SIZE (QN_TEST_PATH_SIZE + 32)
#define SOAK_MAX_BYTES ((uint64_t)1 << 20)
#define SOAK_MAX_ENTRIES 150u

// ThreadSanitizer does not support new threads in the child of a process with threads, and the
// memory allocators of the sanitizers are not safe to use in such a child.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SOAK_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SOAK_IS_SANITIZED 1
#endif
#endif
#ifndef SOAK_IS_SANITIZED
#define SOAK_IS_SANITIZED 0
#endif

// Operations of the workers with their relative frequencies.
// clang-format off
#define SOAK_OPERATIONS(X) \
  X(get, 400) X(put, 200) X(lookup, 150) X(unload, 40) X(claim, 60) X(flush, 10) X(remove, 20) \
  X(sweep, 4) X(scan, 4) X(clear, 1) X(inspect, 20) X(reopen, 4) X(fork, 4) X(bundle, 20) \
  X(export, 1) X(append, 1) X(hurry, 40) X(request, 40)

// Kinds of damage with their relative frequencies.
#define SOAK_DAMAGES(X) \
  X(flip, 60) X(truncate, 30) X(extend, 10) X(zeros, 10) X(exchange, 10) X(unlink, 20) \
  X(directory, 6) X(link, 6) X(fifo, 3) X(past, 20) X(future, 20) X(stamp, 6) X(temporaries, 6) \
  X(empty, 10) X(shard, 3) X(wipe, 1) X(aside, 1) X(bundle, 6)
// clang-format on

// Other counters: name and description.
#define SOAK_EVENTS(X)                                                             \
  X(hits, "gets that found an entry with the right bytes")                         \
  X(bundle_hits, "gets from bundles that found an entry with the right bytes")     \
  X(absent, "gets that found none")                                                \
  X(refused, "gets that refused a damaged entry")                                  \
  X(unreadable, "gets that met an error, a link, a directory or another's file")   \
  X(claims_held, "claims that were given")                                         \
  X(claims_answered, "claims answered by another's entry")                         \
  X(claims_without, "claims that were not to be had in time")                      \
  X(found_in_memory, "lookups from memory")                                        \
  X(found_in_bundles, "lookups from bundles")                                      \
  X(found_on_disk, "lookups from the directory")                                   \
  X(compiled, "lookups that compiled")                                             \
  X(late, "lookups that gave up in time, were cancelled or were not to compile")   \
  X(called, "calls of kernels whose results were checked")                         \
  X(healed, "damaged files removed")                                               \
  X(published, "entries published")                                                \
  X(evicted, "entries evicted")                                                    \
  X(temporaries_swept, "abandoned temporary files removed")                        \
  X(latched, "times that writing was switched off")                                \
  X(epochs, "times that a process opened, worked, closed and counted")             \
  X(starts, "processes started")                                                   \
  X(kills, "processes killed")                                                     \
  X(kills_of_orphans, "children killed together with their parents")               \
  X(kills_by_others, "processes killed by somebody else, as when memory is short") \
  X(stops, "processes stopped for a while")                                        \
  X(exits, "processes that ended by themselves")                                   \
  X(verified, "whole verifications of the directory by recompiled bytes")

typedef enum soak_operation {
#define X(name, weight) SOAK_OP_##name,
  SOAK_OPERATIONS(X)
#undef X
      SOAK_OP_COUNT
} soak_operation_t;

typedef enum soak_damage {
#define X(name, weight) SOAK_DAMAGE_##name,
  SOAK_DAMAGES(X)
#undef X
      SOAK_DAMAGE_COUNT
} soak_damage_t;

typedef enum soak_event {
#define X(name, doc) SOAK_EVENT_##name,
  SOAK_EVENTS(X)
#undef X
      SOAK_EVENT_COUNT
} soak_event_t;

// The current operation of one thread, for the watchdog.
typedef struct soak_slot {
  _Atomic int64_t since_ns;  // qn__now_ns at the start of the operation; 0: none
  _Atomic int operation;
} soak_slot_t;

typedef struct soak_shared {
  _Atomic uint64_t operations[SOAK_OP_COUNT];
  _Atomic uint64_t damages[SOAK_DAMAGE_COUNT];
  _Atomic uint64_t events[SOAK_EVENT_COUNT];
  _Atomic int64_t longest_ns[SOAK_OP_COUNT];
  soak_slot_t slots[SOAK_MAX_PROCESSES][SOAK_MAX_THREADS];
  _Atomic bool is_ending;
  // The first violation: claimed, then written, then published.
  _Atomic bool is_claimed, is_violated;
  char violation[1024];
} soak_shared_t;

typedef struct soak_options {
  int64_t seconds;
  unsigned processes, threads;
  uint64_t seed;
  int64_t patience_ns;  // the longest that one operation may take
  char root[QN_TEST_PATH_SIZE];
  bool has_compiler;  // the cpu target is compiled for, too
} soak_options_t;

extern soak_options_t soak_options;
extern soak_shared_t* soak_shared;

#define SOAK_COUNT(event) ((void)atomic_fetch_add(&soak_shared->events[SOAK_EVENT_##event], 1))

// Records the first violation; the conductor ends the soak.
void soak_violation(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Returns a random number below `bound` (xorshift).
uint32_t soak_random(uint64_t* state, uint32_t bound);
// Returns a random index into a table of weights.
int soak_pick(uint64_t* state, const unsigned* weights, int count);

// entries.c: the samples exist before the first fork.
void soak_make_samples(void);
void soak_free_samples(void);
// worker.c: the life of one worker process; gives its exit status.
int soak_work(unsigned index, uint64_t seed);
// verify.c. With all workers stopped: checks that every entry in the directory is right or refused,
// can be replaced, and equals the output of a fresh compile; and that no temporary file outlives a
// sweep.
void soak_verify_all(void);

// The path of one of the bundles, which lie beside the directory.
void soak_bundle_path(unsigned number, char out[SOAK_PATH_SIZE]);

// damage.c.
void soak_damage_once(uint64_t* random);
// Removes directories, links and pipes in the place of entries, which the library never removes.
void soak_damage_undo(void);
// Makes all temporary files look abandoned.
void soak_age_temporaries(void);
// Returns the total size and the number of the entries.
uint64_t soak_measure(uint64_t* out_count);

#endif  // QUERN_TESTS_SOAK_SOAK_H_
