// SPDX-License-Identifier: Apache-2.0
// serve/trie.h: finds the longest key at the beginning of a text, a byte at a time.
//
// A double array: the children of a state are at its `base` XOR the byte, and a child names its
// state. One step is one load, whatever the number of keys. Read-only after serve_trie_build.
#ifndef QUERN_SERVE_TRIE_H_
#define QUERN_SERVE_TRIE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern/status.h"

// A key and its value, which is not negative.
typedef struct serve_trie_key {
  const char* text;  // borrowed until the trie is built
  uint32_t size;
  int32_t value;
} serve_trie_key_t;

typedef struct serve_trie_node {
  uint32_t base;
  uint32_t parent;  // the state whose child this is; UINT32_MAX: none
  int32_t value;    // of the key that ends here; -1: none
} serve_trie_node_t;

// Zero-initialised: without keys.
typedef struct serve_trie {
  serve_trie_node_t* nodes;  // owned: serve_trie_free
  size_t count;              // a multiple of 256
  size_t capacity;
} serve_trie_t;

// State 0 is the root.
static inline bool serve_trie_step(const serve_trie_t* trie, uint8_t byte, uint32_t* inout_state) {
  const uint32_t next = trie->nodes[*inout_state].base ^ byte;
  if (trie->nodes[next].parent != *inout_state) return false;
  *inout_state = next;
  return true;
}

// Sorts the keys by their bytes. Of equal keys the last of the largest value remains.
void serve_trie_sort(serve_trie_key_t* keys, size_t* inout_count);
// Builds a trie of sorted keys without repetition. Errors: OUT_OF_MEMORY.
qn_status_t serve_trie_build(const qn_allocator_t* allocator, const serve_trie_key_t* keys,
                             size_t count, serve_trie_t* out_trie);
void serve_trie_free(const qn_allocator_t* allocator, serve_trie_t* trie);

#endif  // QUERN_SERVE_TRIE_H_
