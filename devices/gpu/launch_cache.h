// SPDX-License-Identifier: Apache-2.0
// devices/gpu/launch_cache.h: caches the result of a step (a launch or a branch) with the words
// that it was computed from, so that a call with the same shapes evaluates nothing.
//
// The expressions of a step (blocks, threads, guard) depend only on the words that they read,
// unless they read a local. So equal words give an equal result. A step whose expressions read a
// local, or more than QN__GPU_LAUNCH_CACHE_WORDS words, has no cache.
//
// A cache has a few lines. A hash of the words chooses one, so that threads that call with
// different shapes rarely evict each other's result. Each line is a sequence lock that consists of
// atomics:
//  1. A writer claims a line with one compare-and-swap that makes its even sequence odd. If that
//     fails it skips the write, so no thread waits. Then it stores words and result (release), then
//     the next even sequence (release).
//  2. A reader loads the sequence, the words and the result (each acquire), then the sequence
//  again.
//     If a load returned the store of a later writer, it acquired from that store. So the last load
//     returns that writer's odd sequence or a later one, and the two sequences differ.
//  3. A sequence has 64 bits and never wraps around. 0: the line is empty.
//
// Read next: run.c.
#ifndef QUERN_DEVICES_GPU_LAUNCH_CACHE_H_
#define QUERN_DEVICES_GPU_LAUNCH_CACHE_H_

#include <stdatomic.h>

#include "base/arena.h"
#include "devices/gpu/plan.h"

enum { QN__GPU_LAUNCH_CACHE_WORDS = 5, QN__GPU_LAUNCH_CACHE_LINES = 4 };

// The result of a step. An IF uses only the count: 1 if its condition holds, else 0.
typedef struct qn__gpu_grid {
  int64_t block_count;  // below 1: nothing is launched
  uint32_t kernel;
  uint32_t thread_count;  // 0: nothing is launched
} qn__gpu_grid_t;

// One cache line, aligned.
typedef struct qn__gpu_launch_cache_line {
  _Atomic uint64_t sequence;
  _Atomic uint64_t words[QN__GPU_LAUNCH_CACHE_WORDS];
  _Atomic int64_t block_count;
  _Atomic uint64_t choice;  // the kernel in the low bits, the threads above
} qn__gpu_launch_cache_line_t;

struct qn__gpu_launch_cache {
  qn__gpu_launch_cache_line_t* lines;
  uint32_t word_count;
  uint32_t words[QN__GPU_LAUNCH_CACHE_WORDS];  // indices, without duplicates
};

// Creates the cache of a step; NULL if it has none, or without memory (`arena` is then exhausted).
qn__gpu_launch_cache_t* qn__gpu_launch_cache_make(const qn__gpu_step_t* step, qn__arena_t* arena);
// Stores a result. Does nothing while another thread writes the same line.
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

// Finds the result for the words; false if it is not cached.
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
