// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700
#include "tools/cli/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

qn_status_t file_error(const char* what, const char* path) {
  int error = errno;
  qn_status_code_t code = error == ENOENT || error == ENOTDIR ? QN_STATUS_NOT_FOUND
                          : error == EISDIR                   ? QN_STATUS_INVALID_ARGUMENT
                                                              : QN_STATUS_IO;
  return qn_status_make(code, "cannot %s '%s': %s", what, path, strerror(error));
}

qn_status_t text_append(void* self, const void* data, size_t size_bytes) {
  text_t* text = self;
  if (text->capacity - text->size <= size_bytes) {
    size_t capacity = 2 * text->capacity + size_bytes + 4096;
    char* grown = realloc(text->data, capacity);
    if (!grown) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for %zu bytes", capacity);
    text->data = grown;
    text->capacity = capacity;
  }
  memcpy(text->data + text->size, data, size_bytes);
  text->size += size_bytes;
  text->data[text->size] = '\0';
  return QN_OK;
}

void text_free(text_t* text) {
  free(text->data);
  *text = (text_t){NULL, 0, 0};
}

qn_status_t text_read(const char* path, text_t* out_text) {
  *out_text = (text_t){NULL, 0, 0};
  bool is_stdin = strcmp(path, "-") == 0;
  FILE* file = is_stdin ? stdin : fopen(path, "rb");
  if (!file) return file_error("open", path);
  static char piece[1 << 16];
  size_t size = 0;
  qn_status_t status = QN_OK;
  do {
    size = fread(piece, 1, sizeof piece, file);
    status = qn_status_annotate(text_append(out_text, piece, size), "%s", path);
  } while (size > 0 && qn_ok(status));
  if (qn_ok(status) && ferror(file)) status = file_error("read", path);
  if (!qn_ok(status)) text_free(out_text);
  if (!is_stdin) (void)fclose(file);
  return status;
}

static bool write_all(int file, const char* data, size_t size) {
  while (size > 0) {
    ssize_t count = write(file, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    data += count;
    size -= (size_t)count;
  }
  return true;
}

// A new file beside `path`, then one rename: a reader sees the old or the new contents whole.
static qn_status_t replace_file(const char* path, const void* data, size_t size, mode_t mode) {
  size_t path_size = strlen(path);
  char* temporary = malloc(path_size + 8);
  if (!temporary) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory to write '%s'", path);
  memcpy(temporary, path, path_size);
  memcpy(temporary + path_size, ".XXXXXX", 8);
  int file = mkstemp(temporary);
  qn_status_t status = file < 0 ? file_error("create", path) : QN_OK;
  if (file >= 0) {
    bool is_good = write_all(file, data, size) && fchmod(file, mode) == 0;
    is_good = close(file) == 0 && is_good;
    if (!is_good || rename(temporary, path) != 0) {
      status = file_error("write", path);
      (void)unlink(temporary);
    }
  }
  free(temporary);
  return status;
}

qn_status_t text_write(const char* path, const void* data, size_t size) {
  if (strcmp(path, "-") == 0) {
    if (fwrite(data, 1, size, stdout) != size) return file_error("write", "standard output");
    return QN_OK;
  }
  struct stat info;
  bool is_old = stat(path, &info) == 0;
  if (is_old && !S_ISREG(info.st_mode)) {
    // A device or a pipe is written to, not replaced.
    int file = open(path, O_WRONLY);
    if (file < 0) return file_error("open", path);
    bool is_good = write_all(file, data, size);
    is_good = close(file) == 0 && is_good;
    return is_good ? QN_OK : file_error("write", path);
  }
  if (is_old) {
    // Behind a link, the file that it names is the one to replace.
    char* real = realpath(path, NULL);
    if (!real) return file_error("find", path);
    qn_status_t status = replace_file(real, data, size, info.st_mode & 07777);
    free(real);
    return status;
  }
  mode_t mask = umask(0);
  (void)umask(mask);
  return replace_file(path, data, size, 0666 & ~mask);
}
