// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/memory.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/print.h"
#include "tools/cli/report.h"

static void* checked(void* memory) {
  if (memory) return memory;
  print(stderr, "quern: out of memory\n");
  exit(EXIT_MACHINE);
}

void* memory_zeroed(size_t count, size_t item_bytes) {
  return checked(calloc(count + 1, item_bytes));
}

char* memory_text(const char* text) {
  return text ? checked(strdup(text)) : NULL;
}

void* memory_room(void* items, size_t* inout_capacity, size_t count, size_t item_bytes) {
  if (count < *inout_capacity) return items;
  *inout_capacity = *inout_capacity ? 2 * *inout_capacity : 64;
  return checked(realloc(items, *inout_capacity * item_bytes));
}
