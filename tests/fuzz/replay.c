// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/replay.c: the main function of fuzz targets without a fuzzer: runs the target on every
// file of a folder, and on truncated and single-byte changed versions of it. Every run uses the
// same inputs.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

enum { CHANGES_PER_FILE = 400, LARGEST_FILE_BYTES = 1 << 20 };

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

// Hands over a copy of exactly this size, so that a sanitizer sees reads past the end.
static void feed(const uint8_t* data, size_t size) {
  uint8_t* copy = malloc(size ? size : 1);
  if (!copy) exit(2);
  memcpy(copy, data, size);
  (void)LLVMFuzzerTestOneInput(copy, size);
  free(copy);
}

static void feed_changes(uint8_t* data, size_t size) {
  feed(data, size);
  for (int i = 0; i < CHANGES_PER_FILE && size > 0; i++) {
    size_t at = (size_t)(next_random() % size);
    if (i % 4 == 0) {
      feed(data, at);
      continue;
    }
    uint8_t kept = data[at];
    data[at] = i % 4 == 1 ? (uint8_t)next_random() : data[next_random() % size];
    feed(data, size);
    data[at] = kept;
  }
}

static int feed_folder(const char* folder, int* inout_count) {
  DIR* dir = opendir(folder);
  if (!dir) {
    fprintf(stderr, "cannot open '%s'\n", folder);
    return 2;
  }
  uint8_t* data = malloc(LARGEST_FILE_BYTES);
  if (!data) exit(2);
  for (struct dirent* entry; (entry = readdir(dir));) {
    if (entry->d_name[0] == '.') continue;
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path) continue;
    FILE* file = fopen(path, "rb");
    if (!file) continue;
    // So that a result does not depend on the order of the folder.
    random_state = 0x9E3779B97F4A7C15u;
    feed_changes(data, fread(data, 1, LARGEST_FILE_BYTES, file));
    fclose(file);
    ++*inout_count;
  }
  free(data);
  closedir(dir);
  return 0;
}

int main(int argc, char** argv) {
  int count = 0;
  for (int i = 1; i < argc; i++) {
    if (feed_folder(argv[i], &count) != 0) return 2;
  }
  printf("%d files and their changes\n", count);
  return count > 0 ? 0 : 2;
}
