// SPDX-License-Identifier: Apache-2.0
// tools/cli/memory.h: memory for the command.
//
// Where there is none, these report it and end the command with EXIT_MACHINE: it could do no more
// than that.
#ifndef QUERN_TOOLS_CLI_MEMORY_H_
#define QUERN_TOOLS_CLI_MEMORY_H_

#include <stddef.h>

// Returns zeroed memory, not NULL. Owned: free.
void* memory_zeroed(size_t count, size_t item_bytes);
// Copies a text; NULL for NULL. Owned: free.
char* memory_text(const char* text);
// Returns `items` with room for one more than `count`, moved if need be.
void* memory_room(void* items, size_t* inout_capacity, size_t count, size_t item_bytes);

#endif  // QUERN_TOOLS_CLI_MEMORY_H_
