// devices/gpu/launch_cache.h: keeps what a step (a launch, a choice) came to for the words that it
// was last evaluated with, so that a call of the same shapes evaluates nothing.
//
// The expressions of a step (blocks, threads, guard) are functions of the words that they read and
// of nothing else, unless they read a local: so equal words mean an equal outcome. A step whose
// expressions read locals, or more than QN__GPU_LAUNCH_CACHE_WORDS words, has no cache.
//
// Requirements, and why each holds. A cache has a few lines, chosen by the words, so that threads
// that call with different shapes do not push each other out at once. Each line is a sequence lock
// of atomics alone:
//  1. A writer takes a line by making its even sequence odd, with one compare and swap; who loses
//     that goes away, so nobody waits. Then it stores words and outcome (release), then the next
//     even sequence (release).
//  2. A reader loads the sequence, the words and the outcome (each acquire), then the sequence
//     again. If one of its loads saw a store of a later writer, it has acquired from that store,
//     and so sees that writer's odd sequence or a later one at the end: the sequence differs.
//  3. A sequence has 64 bits and never comes back. 0: the line is empty.
//
// Thread rule: any thread, no locks. Read next: run.c.
#ifndef QUERN_DEVICES_GPU_LAUNCH_CACHE_H_
#define QUERN_DEVICES_GPU_LAUNCH_CACHE_H_

#include <stdatomic.h>

#include "base/arena.h"
#include "devices/gpu/plan.h"

enum { QN__GPU_LAUNCH_CACHE_WORDS = 5, QN__GPU_LAUNCH_CACHE_LINES = 4 };

// What a launch step comes to. Of an IF only the count matters: 1, it holds, or 0.
typedef struct qn__gpu_grid {
  int64_t block_count;  // below 1: nothing is launched
  uint32_t kernel;
  uint32_t thread_count;  // 0: nothing is launched
} qn__gpu_grid_t;

// As long as a cache line, and aligned to it.
typedef struct qn__gpu_launch_cache_line {
  _Atomic uint64_t sequence;
  _Atomic uint64_t words[QN__GPU_LAUNCH_CACHE_WORDS];
  _Atomic int64_t block_count;
  _Atomic uint64_t choice;  // kernel, and above it the threads
} qn__gpu_launch_cache_line_t;

struct qn__gpu_launch_cache {
  qn__gpu_launch_cache_line_t* lines;
  uint32_t word_count;
  uint32_t words[QN__GPU_LAUNCH_CACHE_WORDS];  // indices, none twice
};

// The cache of a step; NULL when it has none, or without memory (`arena` is then exhausted).
qn__gpu_launch_cache_t* qn__gpu_launch_cache_make(const qn__gpu_step_t* step, qn__arena_t* arena);
// Notes what the step came to. Does nothing when another thread writes the same line.
void qn__gpu_launch_cache_note(qn__gpu_launch_cache_t* cache, const uint64_t* words,
                               const qn__gpu_grid_t* grid);

static inline qn__gpu_launch_cache_line_t* qn__gpu_launch_cache_line(
    const qn__gpu_launch_cache_t* cache, const uint64_t* words) {
  uint64_t mixed = 0;
  for (uint32_t i = 0; i < cache->word_count; i++) {
    mixed = (mixed ^ words[cache->words[i]]) * UINT64_C(0x9E3779B97F4A7C15);
  }
  return &cache->lines[mixed >> 62];
}

// False: not known.
static inline bool qn__gpu_launch_cache_find(const qn__gpu_launch_cache_t* cache,
                                             const uint64_t* words, qn__gpu_grid_t* out_grid) {
  qn__gpu_launch_cache_line_t* line = qn__gpu_launch_cache_line(cache, words);
  uint64_t sequence = atomic_load_explicit(&line->sequence, memory_order_acquire);
  uint64_t difference = sequence & 1;
  for (uint32_t i = 0; i < cache->word_count; i++) {
    difference |=
        atomic_load_explicit(&line->words[i], memory_order_acquire) ^ words[cache->words[i]];
  }
  out_grid->block_count = atomic_load_explicit(&line->block_count, memory_order_acquire);
  uint64_t choice = atomic_load_explicit(&line->choice, memory_order_acquire);
  out_grid->kernel = (uint32_t)choice;
  out_grid->thread_count = (uint32_t)(choice >> 32);
  difference |= atomic_load_explicit(&line->sequence, memory_order_relaxed) ^ sequence;
  return sequence != 0 && difference == 0;
}

#endif  // QUERN_DEVICES_GPU_LAUNCH_CACHE_H_
