// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // nftw
// tests/support/tempdir.c: see tempdir.h.
#include "tests/support/tempdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool qn_test_tempdir_make(char out_path[QN_TEST_PATH_SIZE]) {
  const char* parent = getenv("TMPDIR");
  int size = snprintf(out_path, QN_TEST_PATH_SIZE, "%s/quern-test-XXXXXX",
                      parent && parent[0] ? parent : "/tmp");
  return size > 0 && size < QN_TEST_PATH_SIZE && mkdtemp(out_path) != NULL;
}

static int remove_one(const char* path, const struct stat* info, int type, struct FTW* ftw) {
  (void)info;
  (void)type;
  (void)ftw;
  (void)remove(path);
  return 0;
}

static int allow_one(const char* path, const struct stat* info, int type, struct FTW* ftw) {
  (void)info;
  (void)ftw;
  if (type == FTW_D || type == FTW_DNR) (void)chmod(path, 0700);
  return 0;
}

void qn_test_tempdir_remove(const char* path) {
  (void)nftw(path, allow_one, 16, FTW_PHYS);
  (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

bool qn_test_write_file(const char* path, const void* data, size_t size) {
  FILE* file = fopen(path, "wb");
  if (!file) return false;
  size_t written = size ? fwrite(data, 1, size, file) : 0;
  return (fclose(file) == 0) && written == size;
}

long qn_test_read_file(const char* path, void* out, size_t capacity) {
  FILE* file = fopen(path, "rb");
  if (!file) return -1;
  size_t size = fread(out, 1, capacity, file);
  (void)fclose(file);
  return (long)size;
}

int qn_test_descriptor_count(void) {
  DIR* dir = opendir("/proc/self/fd");
  if (!dir) return -1;
  int count = 0;
  while (readdir(dir)) count++;
  (void)closedir(dir);
  return count - 3;  // ".", ".." and the stream itself
}
