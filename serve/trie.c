// SPDX-License-Identifier: Apache-2.0
// trie.c: builds the double array, state by state from the root.
//
// The children of a state must all fall on free nodes. Only the last few blocks of 256 nodes are
// searched for a base: older ones are nearly full, and searching them makes the time quadratic.
#include "serve/trie.h"

#include <stdlib.h>
#include <string.h>

#include "serve/memory.h"

enum { BLOCK = 256, SEARCHED_BLOCKS = 4, NO_STATE = -1 };

// A state whose children are not placed yet: the keys from `first` to `last` begin alike for
// `depth` bytes.
typedef struct unplaced {
  uint32_t state;
  uint32_t first;
  uint32_t last;
  uint32_t depth;
} unplaced_t;

typedef struct trie_builder {
  const qn_allocator_t* allocator;
  const serve_trie_key_t* keys;
  serve_trie_t* trie;
  unplaced_t* queue;
  size_t queue_capacity;
  size_t queue_count;
  size_t first_free;      // no node before it is free, or is searched
  uint8_t labels[BLOCK];  // the next bytes of the current state's keys
  uint32_t label_count;
} trie_builder_t;

static int compare_keys(const void* left, const void* right) {
  const serve_trie_key_t* a = left;
  const serve_trie_key_t* b = right;
  const int order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
  if (order != 0) return order;
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  return (a->value > b->value) - (a->value < b->value);
}

void serve_trie_sort(serve_trie_key_t* keys, size_t* inout_count) {
  size_t kept = 0;
  if (*inout_count > 1) qsort(keys, *inout_count, sizeof *keys, compare_keys);
  for (size_t i = 0; i < *inout_count; i++) {
    const bool is_same = kept > 0 && keys[kept - 1].size == keys[i].size &&
                         memcmp(keys[kept - 1].text, keys[i].text, keys[i].size) == 0;
    if (is_same) kept--;
    keys[kept++] = keys[i];
  }
  *inout_count = kept;
}

static bool add_block(trie_builder_t* builder) {
  serve_trie_t* trie = builder->trie;
  if (trie->count > UINT32_MAX - BLOCK) return false;
  void* nodes = trie->nodes;
  if (!serve_grow(builder->allocator, &nodes, &trie->capacity, trie->count + BLOCK,
                  sizeof *trie->nodes)) {
    return false;
  }
  trie->nodes = nodes;
  for (size_t i = 0; i < BLOCK; i++) {
    trie->nodes[trie->count + i] = (serve_trie_node_t){0, UINT32_MAX, NO_STATE};
  }
  trie->count += BLOCK;
  return true;
}

// Node 0 is the root, and no child.
static bool is_free(const serve_trie_t* trie, size_t node) {
  return node != 0 && trie->nodes[node].parent == UINT32_MAX;
}

static bool fits(const trie_builder_t* builder, uint32_t base) {
  for (uint32_t i = 0; i < builder->label_count; i++) {
    if (!is_free(builder->trie, base ^ builder->labels[i])) return false;
  }
  return true;
}

static bool find_base(trie_builder_t* builder, uint32_t* out_base) {
  const serve_trie_t* trie = builder->trie;
  const size_t searched = (size_t)SEARCHED_BLOCKS * BLOCK;
  if (trie->count > searched && builder->first_free < trie->count - searched) {
    builder->first_free = trie->count - searched;
  }
  while (builder->first_free < trie->count && !is_free(trie, builder->first_free)) {
    builder->first_free++;
  }
  for (size_t node = builder->first_free; node < trie->count; node++) {
    *out_base = (uint32_t)node ^ builder->labels[0];
    if (is_free(trie, node) && fits(builder, *out_base)) return true;
  }
  *out_base = (uint32_t)trie->count;
  return add_block(builder);
}

static bool push(trie_builder_t* builder, unplaced_t unplaced) {
  void* queue = builder->queue;
  if (!serve_grow(builder->allocator, &queue, &builder->queue_capacity, builder->queue_count + 1,
                  sizeof *builder->queue)) {
    return false;
  }
  builder->queue = queue;
  builder->queue[builder->queue_count++] = unplaced;
  return true;
}

static uint8_t byte_of(const trie_builder_t* builder, uint32_t key, uint32_t depth) {
  return (uint8_t)builder->keys[key].text[depth];
}

static bool place_children(trie_builder_t* builder, unplaced_t at) {
  serve_trie_t* trie = builder->trie;
  // The shortest key sorts first.
  if (at.first < at.last && builder->keys[at.first].size == at.depth) {
    trie->nodes[at.state].value = builder->keys[at.first++].value;
  }
  builder->label_count = 0;
  for (uint32_t i = at.first; i < at.last; i++) {
    const uint8_t byte = byte_of(builder, i, at.depth);
    if (i == at.first || byte != builder->labels[builder->label_count - 1]) {
      builder->labels[builder->label_count++] = byte;
    }
  }
  if (builder->label_count == 0) return true;
  uint32_t base;
  if (!find_base(builder, &base)) return false;
  trie->nodes[at.state].base = base;
  uint32_t first = at.first;
  for (uint32_t l = 0; l < builder->label_count; l++) {
    uint32_t last = first;
    while (last < at.last && byte_of(builder, last, at.depth) == builder->labels[l]) last++;
    const uint32_t child = base ^ builder->labels[l];
    trie->nodes[child].parent = at.state;
    if (!push(builder, (unplaced_t){child, first, last, at.depth + 1})) return false;
    first = last;
  }
  return true;
}

qn_status_t serve_trie_build(const qn_allocator_t* allocator, const serve_trie_key_t* keys,
                             size_t count, serve_trie_t* out_trie) {
  *out_trie = (serve_trie_t){0};
  trie_builder_t builder = {.allocator = allocator, .keys = keys, .trie = out_trie};
  bool is_ok = count < UINT32_MAX && add_block(&builder) &&
               push(&builder, (unplaced_t){.last = (uint32_t)count});
  for (size_t i = 0; is_ok && i < builder.queue_count; i++) {
    is_ok = place_children(&builder, builder.queue[i]);
  }
  serve_delete(allocator, builder.queue, builder.queue_capacity, sizeof *builder.queue);
  if (is_ok) return QN_OK;
  serve_trie_free(allocator, out_trie);
  return serve_no_memory("the trie of a vocabulary");
}

void serve_trie_free(const qn_allocator_t* allocator, serve_trie_t* trie) {
  serve_delete(allocator, trie->nodes, trie->capacity, sizeof *trie->nodes);
  *trie = (serve_trie_t){0};
}
