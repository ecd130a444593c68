// SPDX-License-Identifier: Apache-2.0
// devices/gpu/launch_cache.c: creates and writes launch caches. launch_cache.h has the protocol.
//
// Thread rule: only the decoder creates; any thread stores.
#include "devices/gpu/launch_cache.h"

#define LINE_BYTES 64u

// Evaluating shorter expressions is no slower than a search.
#define LEAST_OPS 4u

static_assert(sizeof(qn__gpu_launch_cache_line_t) == LINE_BYTES,
              "a line of a cache is a cache line");
static_assert(QN__GPU_LAUNCH_CACHE_LINES == 4, "two bits of the mixed words choose a line");

// Adds the words that an expression reads. False if it reads a local, or too many words.
static bool add_words(const qn__gpu_expr_t* expr, qn__gpu_launch_cache_t* cache) {
  for (uint32_t i = 0; i < expr->op_count; i++) {
    const qn__gpu_op_t* op = &expr->ops[i];
    if (op->kind == QN__GPU_LOCAL) return false;
    if (op->kind != QN__GPU_WORD) continue;
    uint32_t known = 0;
    while (known < cache->word_count && cache->words[known] != (uint32_t)op->value) known++;
    if (known < cache->word_count) continue;
    if (known == QN__GPU_LAUNCH_CACHE_WORDS) return false;
    cache->words[cache->word_count++] = (uint32_t)op->value;
  }
  return true;
}

qn__gpu_launch_cache_t* qn__gpu_launch_cache_make(const qn__gpu_step_t* step, qn__arena_t* arena) {
  qn__gpu_launch_cache_t found = {.word_count = 0};
  if (step->a.op_count + step->b.op_count + step->guard.op_count < LEAST_OPS) return NULL;
  if (!add_words(&step->a, &found) || !add_words(&step->b, &found) ||
      !add_words(&step->guard, &found)) {
    return NULL;
  }
  qn__gpu_launch_cache_t* cache = QN__ARENA_NEW(arena, qn__gpu_launch_cache_t);
  // The arena's alignment is smaller: allocate one more line, and align within.
  uint8_t* bytes = qn__arena_alloc(arena, (QN__GPU_LAUNCH_CACHE_LINES + 1) * LINE_BYTES);
  if (!cache || !bytes) return NULL;
  bytes += (LINE_BYTES - (uintptr_t)bytes % LINE_BYTES) % LINE_BYTES;
  found.lines = (qn__gpu_launch_cache_line_t*)(void*)bytes;
  *cache = found;
  return cache;
}

void qn__gpu_launch_cache_note(qn__gpu_launch_cache_t* cache, const uint64_t* words,
                               const qn__gpu_grid_t* grid) {
  qn__gpu_launch_cache_line_t* line = qn__gpu_launch_cache_line(cache, words);
  uint64_t sequence = atomic_load_explicit(&line->sequence, memory_order_relaxed);
  if ((sequence & 1) != 0 ||
      !atomic_compare_exchange_strong_explicit(&line->sequence, &sequence, sequence + 1,
                                               memory_order_acquire, memory_order_relaxed)) {
    return;
  }
  for (uint32_t i = 0; i < cache->word_count; i++) {
    atomic_store_explicit(&line->words[i], words[cache->words[i]], memory_order_release);
  }
  atomic_store_explicit(&line->block_count, grid->block_count, memory_order_release);
  atomic_store_explicit(&line->choice, (uint64_t)grid->thread_count << 32 | grid->kernel,
                        memory_order_release);
  atomic_store_explicit(&line->sequence, sequence + 2, memory_order_release);
}
