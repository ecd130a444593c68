// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/race.c: detects data races between threads of a kernel. See fake.h.
//
// The compiler inserts a call before each access (FAKE_CUDA_RACES, kernel.hpp). Two accesses to one
// byte are a race if at least one writes, at least one is not atomic, and nothing orders them.
// Accesses of two threads are ordered only if
//   1. both are in one block, with a barrier of the whole block between the accesses; or
//   2. both are in one warp, with a __syncwarp of both between the accesses. Shuffles and votes
//   order
//      nothing, as in CUDA.
//
// Accesses of two blocks are ordered only if a fence and then an atomic write follow the first (in
// its thread, or in one after a barrier), and an atomic access to the same place and then a fence
// precede the second. An order by way of a third block is not seen. Only the last few accesses to
// each eight bytes are kept.
// Races between launches are not detected. Thread rule: the thread that runs a launch.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake-cuda/fake.h"

enum { WARP = 32, MAX_THREADS = 1024, CELLS = 4, PROBES = 8, MAX_SIGNALS = 1 << 14 };
#define PLACES ((size_t)1 << 20)

typedef struct cell {
  uint32_t launch;  // 0: empty
  uint32_t block;
  uint32_t epoch;  // barriers of the block
  uint32_t clock;  // of the thread
  uint32_t time;   // of the launch
  uint16_t thread;
  uint8_t bytes;  // of the eight
  uint8_t how;
} cell_t;
typedef struct place {
  uintptr_t key;
  uint32_t next;
  cell_t cells[CELLS];
} place_t;

// An atomic access of a thread. As a release it covers what precedes the thread's last fence, which
// `epoch` and `time` are of. As an acquire it sees the first `seen` releases once `is_fenced`.
typedef struct signal {
  uintptr_t address;
  uint32_t block;
  uint32_t epoch;
  uint32_t time;
  uint32_t seen;
  uint16_t thread;
  bool is_fenced;
} signal_t;
typedef struct signals {
  uint32_t count;
  signal_t items[MAX_SIGNALS];
} signals_t;

struct fake_races {
  uint32_t launch;
  uint32_t block;
  uint32_t epoch;
  uint32_t time;                       // accesses of the launch
  uint32_t clocks[MAX_THREADS][WARP];  // what each thread has seen of the lanes of its warp
  uint32_t fence_times[MAX_THREADS];   // of each thread's last fence in the block; 0: none
  uint32_t fence_epochs[MAX_THREADS];
  signals_t releases;  // of the launch
  signals_t acquires;  // of the block
  const char* kernel;
  bool is_told;
  place_t places[];
};

#define BYTES (sizeof(fake_races_t) + PLACES * sizeof(place_t))

fake_races_t* fake_races_make(void) {
  void* map =
      mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? NULL : map;
}

void fake_races_free(fake_races_t* races) {
  if (races) (void)munmap(races, BYTES);
}

void fake_races_begin(fake_races_t* races, const char* kernel) {
  races->launch++;
  races->kernel = kernel;
  races->is_told = false;
  races->time = 0;
  races->releases.count = 0;
}

void fake_races_block(fake_races_t* races, unsigned block) {
  races->block = block;
  races->epoch = 0;
  races->acquires.count = 0;
  memset(races->fence_times, 0, sizeof races->fence_times);
  for (unsigned t = 0; t < MAX_THREADS; t++) {
    memset(races->clocks[t], 0, sizeof races->clocks[t]);
    races->clocks[t][t % WARP] = 1;
  }
}

void fake_races_barrier(fake_races_t* races) {
  races->epoch++;
}

void fake_races_meet(fake_races_t* races, unsigned first, unsigned lanes) {
  uint32_t all[WARP] = {0};
  for (unsigned i = 0; i < WARP; i++) {
    for (unsigned k = 0; lanes >> i & 1 && k < WARP; k++) {
      if (races->clocks[first + i][k] > all[k]) all[k] = races->clocks[first + i][k];
    }
  }
  for (unsigned i = 0; i < WARP; i++) {
    if (!(lanes >> i & 1)) continue;
    memcpy(races->clocks[first + i], all, sizeof all);
    races->clocks[first + i][i]++;
  }
}

void fake_races_fence(fake_races_t* races, unsigned thread) {
  races->fence_times[thread] = ++races->time;
  races->fence_epochs[thread] = races->epoch;
  for (uint32_t i = 0; i < races->acquires.count; i++) {
    signal_t* acquire = &races->acquires.items[i];
    if (acquire->thread != thread || acquire->is_fenced) continue;
    acquire->is_fenced = true;
    acquire->epoch = races->epoch;
  }
}

static void add(fake_races_t* races, signals_t* signals, signal_t signal) {
  if (signals->count == MAX_SIGNALS) {
    races->is_told = true;  // gives up: what follows may be ordered
    return;
  }
  signals->items[signals->count++] = signal;
}

static void note_atomic(fake_races_t* races, uintptr_t address, unsigned thread, unsigned how) {
  signal_t signal = {.address = address,
                     .block = races->block,
                     .epoch = races->fence_epochs[thread],
                     .time = races->fence_times[thread],
                     .seen = races->releases.count,
                     .thread = (uint16_t)thread};
  if (how & FAKE_WRITES && signal.time > 0) add(races, &races->releases, signal);
  for (uint32_t i = races->acquires.count; i-- > 0;) {  // a thread that waits looks again and again
    signal_t* acquire = &races->acquires.items[i];
    if (acquire->thread == thread && acquire->address == address && !acquire->is_fenced) {
      acquire->seen = signal.seen;
      return;
    }
  }
  if (signal.seen > 0) add(races, &races->acquires, signal);
}

static bool is_released(const fake_races_t* races, const cell_t* cell, const signal_t* acquire) {
  for (uint32_t i = 0; i < acquire->seen; i++) {
    const signal_t* release = &races->releases.items[i];
    if (release->address != acquire->address || release->block != cell->block) continue;
    if (release->epoch > cell->epoch) return true;
    if (release->thread == cell->thread && release->time > cell->time) return true;
  }
  return false;
}

static bool is_before(const fake_races_t* races, const cell_t* cell, unsigned thread,
                      bool is_shared) {
  if (cell->block != races->block) {
    for (uint32_t i = 0; i < races->acquires.count && !is_shared; i++) {
      const signal_t* acquire = &races->acquires.items[i];
      bool is_own = acquire->thread == thread || acquire->epoch < races->epoch;
      is_shared = acquire->is_fenced && is_own && is_released(races, cell, acquire);
    }
    return is_shared;
  }
  if (cell->thread == thread || cell->epoch != races->epoch) return true;
  if (cell->thread / WARP != thread / WARP) return false;
  return races->clocks[thread][cell->thread % WARP] >= cell->clock;
}

static void tell(fake_races_t* races, const cell_t* cell, const void* address, unsigned thread,
                 unsigned how, bool is_shared) {
  if (races->is_told) return;
  races->is_told = true;
  fake_violation(
      "kernel '%s': a race at %s byte %p: thread %u of block %u %s%s it, thread %u of block %u "
      "%s%s it, and nothing orders them",
      races->kernel, is_shared ? "shared" : "global", address, (unsigned)cell->thread, cell->block,
      cell->how & FAKE_IS_ATOMIC ? "atomically " : "", cell->how & FAKE_WRITES ? "writes" : "reads",
      thread, races->block, how & FAKE_IS_ATOMIC ? "atomically " : "",
      how & FAKE_WRITES ? "writes" : "reads");
}

static place_t* find(fake_races_t* races, uintptr_t key) {
  const size_t start = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) % PLACES;
  place_t* stale = NULL;
  for (size_t i = 0; i < PROBES; i++) {
    place_t* place = &races->places[(start + i) % PLACES];
    if (place->key == key) return place;
    if (!stale && place->cells[0].launch != races->launch) stale = place;
  }
  if (!stale) stale = &races->places[start];
  *stale = (place_t){.key = key};
  return stale;
}

static void look(fake_races_t* races, uintptr_t address, unsigned size, unsigned thread,
                 unsigned how, bool is_shared) {
  place_t* place = find(races, address >> 3);
  const uint8_t bytes = (uint8_t)(((1u << size) - 1) << (address & 7));
  unsigned into = CELLS;
  for (unsigned i = 0; i < CELLS; i++) {
    const cell_t* cell = &place->cells[i];
    if (cell->launch != races->launch) {
      if (into == CELLS) into = i;
      continue;
    }
    const bool is_ordered = is_before(races, cell, thread, is_shared);
    if (is_ordered && cell->bytes == bytes && (cell->how == how || how == FAKE_WRITES)) {
      into = i;
      continue;
    }
    if (is_ordered || !(cell->bytes & bytes) || !((cell->how | how) & FAKE_WRITES) ||
        (cell->how & how & FAKE_IS_ATOMIC)) {
      continue;
    }
    tell(races, cell, (const void*)address, thread, how, is_shared);
  }
  if (into == CELLS) into = place->next++ % CELLS;
  place->cells[into] = (cell_t){.launch = races->launch,
                                .block = races->block,
                                .epoch = races->epoch,
                                .clock = races->clocks[thread][thread % WARP],
                                .time = ++races->time,
                                .thread = (uint16_t)thread,
                                .bytes = bytes,
                                .how = (uint8_t)how};
}

void fake_races_access(fake_races_t* races, const void* address, unsigned size, unsigned thread,
                       unsigned how, bool is_shared) {
  if (how & FAKE_IS_ATOMIC && !is_shared) note_atomic(races, (uintptr_t)address, thread, how);
  for (uintptr_t at = (uintptr_t)address, end = at + size; at < end;) {
    const unsigned room = 8 - (unsigned)(at & 7);
    const unsigned part = end - at < room ? (unsigned)(end - at) : room;
    look(races, at, part, thread, how, is_shared);
    at += part;
  }
}
