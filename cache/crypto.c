// SPDX-License-Identifier: Apache-2.0
// cache/crypto.c: opens the cryptographic module and reads key files.
//
// The module is opened only for a signature or a MAC: a program without the remote tier and signed
// bundles needs no libsodium.
#include "cache/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/plugin.h"

// A key has at most 128 digits.
#define KEY_FILE_BYTES 512u

static bool is_complete(const qn__crypto_t* table) {
  return table->abi_version == QN__CRYPTO_ABI_VERSION && table->struct_size >= sizeof *table &&
         table->mac && table->equal && table->hash && table->make_keys && table->sign &&
         table->verify && table->random && table->wipe;
}

qn_status_t qn__crypto_open(const char* directory, const qn__crypto_t** out_crypto) {
  *out_crypto = NULL;
  void* symbol;
  qn_status_t status =
      qn__plugin_open(directory ? directory : "", "sodium", QN__CRYPTO_ENTRY_SYMBOL, &symbol);
  if (!qn_ok(status)) {
    qn_status_t wider = qn_status_make(QN_STATUS_UNAVAILABLE,
                                       "signatures and authentication need libquern-sodium.so: %s",
                                       qn_status_message(status));
    qn_status_free(status);
    return wider;
  }
  qn__crypto_entry_fn_t entry;
  memcpy(&entry, &symbol, sizeof entry);
  const qn__crypto_t* table = entry(QN__CRYPTO_ABI_VERSION);
  if (!table || !is_complete(table)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "libquern-sodium.so does not serve version %u of the table, or libsodium "
                          "does not start",
                          QN__CRYPTO_ABI_VERSION);
  }
  *out_crypto = table;
  return QN_OK;
}

// ---------------------------------------------------------------------------------------- keys

// The compiler may not remove a volatile store.
void qn__wipe(void* data, size_t size) {
  volatile uint8_t* bytes = data;
  for (size_t i = 0; i < size; i++) bytes[i] = 0;
}

static qn_status_t check_key_file(const char* path, const struct stat* info, bool is_secret) {
  const char* what = is_secret ? "secret key" : "key";
  if (!S_ISREG(info->st_mode)) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED, "%s '%s' is not a regular file", what, path);
  }
  if (info->st_mode & (S_IWGRP | S_IWOTH)) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED,
                          "%s '%s' is writable by others; chmod go-w it", what, path);
  }
  if (!is_secret) return QN_OK;
  if (info->st_uid != geteuid() && info->st_uid != 0) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED, "secret key '%s' belongs to another user",
                          path);
  }
  if (info->st_mode & (S_IRGRP | S_IROTH)) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED,
                          "secret key '%s' is readable by others; chmod 600 it", path);
  }
  return QN_OK;
}

static bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool parse_hex(const char* text, size_t text_size, uint8_t* out, size_t size) {
  while (text_size && is_space(text[text_size - 1])) text_size--;
  while (text_size && is_space(text[0])) {
    text++;
    text_size--;
  }
  if (text_size != 2 * size) return false;
  bool is_good = true;
  for (size_t i = 0; i < size; i++) {
    int high = qn__hex_digit(text[2 * i]), low = qn__hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) is_good = false;
    out[i] = (uint8_t)((unsigned)high << 4 | ((unsigned)low & 15));
  }
  return is_good;
}

qn_status_t qn__key_read(const char* path, bool is_secret, uint8_t* out, size_t size) {
  const qn__fs_t* fs = qn__fs();
  // Links are followed: secrets are often mounted as links, and the user trusts the name.
  int fd = fs->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
  if (fd < 0) return qn__fs_status(errno, "open key", path);
  char text[KEY_FILE_BYTES];
  struct stat info;
  qn_status_t status = fs->fstat(fd, &info) != 0 ? qn__fs_status(errno, "stat key", path)
                                                 : check_key_file(path, &info, is_secret);
  if (qn_ok(status)) {
    // A longer file is no key; its first bytes show that as well.
    size_t text_size = (uint64_t)info.st_size < sizeof text ? (size_t)info.st_size : sizeof text;
    int error = qn__fs_pread_all(fd, text, text_size, 0);
    if (error) {
      status = qn__fs_status(error, "read key", path);
    } else if (text_size == sizeof text || !parse_hex(text, text_size, out, size)) {
      qn__wipe(out, size);
      status = qn_status_make(QN_STATUS_SYNTAX, "key '%s' is not %zu hexadecimal digits", path,
                              2 * size);
    }
  }
  qn__wipe(text, sizeof text);
  (void)fs->close(fd);
  return status;
}

static qn_status_t write_key(const char* path, int fd, const char* text, size_t size) {
  int error = qn__fs_write_all(fd, text, size);
  if (error) return qn__fs_status(error, "write key", path);
  return qn__fs()->fdatasync(fd) == 0 ? QN_OK : qn__fs_status(errno, "sync key", path);
}

qn_status_t qn__key_write(const char* path, bool is_secret, const uint8_t* key, size_t size) {
  char text[KEY_FILE_BYTES];
  if (QN_NEVER(2 * size + 1 > sizeof text)) {
    return qn_status_make(QN_STATUS_INTERNAL, "a key of %zu bytes has no file", size);
  }
  const qn__fs_t* fs = qn__fs();
  int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  int fd = fs->open(path, flags, is_secret ? 0600 : 0644);
  if (fd < 0) {
    if (errno == EEXIST) {
      return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "key '%s' exists; remove it or choose another name", path);
    }
    return qn__fs_status(errno, "make key", path);
  }
  *qn__hex(text, key, size) = '\n';
  qn_status_t status = write_key(path, fd, text, 2 * size + 1);
  qn__wipe(text, sizeof text);
  if (fs->close(fd) != 0 && qn_ok(status)) status = qn__fs_status(errno, "close key", path);
  if (!qn_ok(status)) (void)fs->unlink(path);
  return status;
}
