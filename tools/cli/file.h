// SPDX-License-Identifier: Apache-2.0
// tools/cli/file.h: reads whole files, and replaces files by one rename.
#ifndef QUERN_TOOLS_CLI_FILE_H_
#define QUERN_TOOLS_CLI_FILE_H_

#include <stddef.h>

#include "quern/status.h"

// Bytes with a final zero. Zero-initialised: empty.
typedef struct text {
  char* data;  // owned: text_free
  size_t size;
  size_t capacity;
} text_t;
// Appends bytes: the function of a qn_sink_t, whose `self` is a text_t. Errors: OUT_OF_MEMORY.
qn_status_t text_append(void* self, const void* data, size_t size_bytes);
// Reads a file; "-" is standard input. Errors: NOT_FOUND, IO, OUT_OF_MEMORY, all naming the file.
qn_status_t text_read(const char* path, text_t* out_text);
// Replaces a file at once, by a new one beside it; "-" is standard output. Errors: IO.
qn_status_t text_write(const char* path, const void* data, size_t size);
void text_free(text_t* text);

// Makes a status of errno: NOT_FOUND, INVALID_ARGUMENT for a folder, else IO. `what` is a verb.
qn_status_t file_error(const char* what, const char* path);

#endif  // QUERN_TOOLS_CLI_FILE_H_
