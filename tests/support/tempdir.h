// SPDX-License-Identifier: Apache-2.0
// tests/support/tempdir.h: a private directory for one test, and its removal.
//
// The calls go past the seam of base/fs.h, so armed faults do not hit them.
#ifndef QUERN_TESTS_SUPPORT_TEMPDIR_H_
#define QUERN_TESTS_SUPPORT_TEMPDIR_H_

#include <stdbool.h>
#include <stddef.h>

#define QN_TEST_PATH_SIZE 512

// Makes a directory of mode 0700 under $TMPDIR or /tmp and writes its path. False when it cannot.
bool qn_test_tempdir_make(char out_path[QN_TEST_PATH_SIZE]);
// Removes `path` and all below, without following symbolic links.
void qn_test_tempdir_remove(const char* path);
// Writes or reads a whole file. Read: at most `capacity` bytes, -1 when it cannot be opened.
bool qn_test_write_file(const char* path, const void* data, size_t size);
long qn_test_read_file(const char* path, void* out, size_t capacity);
// The number of descriptors that this process has open.
int qn_test_descriptor_count(void);

#endif  // QUERN_TESTS_SUPPORT_TEMPDIR_H_
