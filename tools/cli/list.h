// tools/cli/list.h: grows lists.
#ifndef QUERN_TOOLS_CLI_LIST_H_
#define QUERN_TOOLS_CLI_LIST_H_

#include <stddef.h>
#include <stdlib.h>

// Returns `items` with room for one more than `count`, moved if need be. NULL without memory, with
// `items` unchanged.
static inline void* list_room(void* items, size_t* inout_capacity, size_t count,
                              size_t item_bytes) {
  if (count < *inout_capacity) return items;
  size_t capacity = *inout_capacity ? 2 * *inout_capacity : 64;
  void* grown = realloc(items, capacity * item_bytes);
  if (grown) *inout_capacity = capacity;
  return grown;
}

#endif  // QUERN_TOOLS_CLI_LIST_H_
