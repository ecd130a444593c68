// SPDX-License-Identifier: Apache-2.0
// cache/bundle_write.c: writing one bundle.
//
// The writer fills a temporary file beside the bundle's path, syncs it, and renames it: a reader
// opens the old bundle or the whole new one. Appending copies the entries of the old bundle into
// the new file first.
//
// Not here: the choice of entries (bundle_export.c). Thread rule: one thread.
#include "cache/bundle_write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "cache/bundle_inner.h"

// Rows in memory always have room for a hash.
#define ROW QN__BUNDLE_HASHED_ROW_BYTES

struct qn__bundle_writer {
  qn_allocator_t allocator;
  char* path;       // owned
  char* temporary;  // owned; NULL before the file exists and after it has its name
  int fd;
  uint64_t offset;
  uint8_t* rows;  // owned
  size_t row_capacity, row_count;
  qn__bundle_identities_t identities;
  const qn__crypto_t* crypto;  // NULL: not signed
  uint8_t secret_key[QN__SECRET_KEY_BYTES];
};

// ---------------------------------------------------------------------------------------- bytes

static qn_status_t write_bytes(qn__bundle_writer_t* writer, const uint8_t* bytes, size_t size) {
  int error = qn__fs_write_all(writer->fd, bytes, size);
  if (error) return qn__fs_status(error, "write", writer->temporary);
  writer->offset += size;
  return QN_OK;
}

static qn_status_t add_row(qn__bundle_writer_t* writer, const qn__bundle_row_t* row,
                           const uint8_t* hash) {
  void* items = writer->rows;
  if (!qn__grow(writer->allocator, &items, &writer->row_capacity, writer->row_count + 1, ROW)) {
    return qn__out_of_memory("the index of a bundle");
  }
  writer->rows = items;
  uint8_t* at = writer->rows + writer->row_count * ROW;
  qn__bundle_row_store(row, at);
  if (hash) {
    memcpy(at + QN__BUNDLE_ROW_BYTES, hash, QN__BUNDLE_HASH_BYTES);
  } else {
    memset(at + QN__BUNDLE_ROW_BYTES, 0, QN__BUNDLE_HASH_BYTES);
  }
  writer->row_count++;
  return QN_OK;
}

// Adds the row of an entry that will be written at the end of the file.
static qn_status_t index_entry(qn__bundle_writer_t* writer, qn_span_t bytes,
                               const qn__entry_t* entry) {
  if (writer->row_count >= QN__BUNDLE_MAX_ENTRIES) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "bundle '%s' would have more than %" PRIu64 " entries", writer->path,
                          QN__BUNDLE_MAX_ENTRIES);
  }
  qn_span_t identity = qn__preimage_section(entry->preimage, QN__SECTION_GENERATOR);
  if (identity.size && !qn__bundle_identities_add(&writer->identities, identity)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "bundle '%s' would have entries of more than %u code generators, or the "
                          "name of one is no text of at most %u characters",
                          writer->path, QN__BUNDLE_MAX_IDENTITIES, QN__BUNDLE_IDENTITY_BYTES - 1);
  }
  // Entries are whole, so each ends where the next may start.
  assert(writer->offset % QN__ENTRY_ALIGNMENT == 0 && bytes.size % QN__ENTRY_ALIGNMENT == 0);
  uint8_t hash[QN__SECURE_HASH_BYTES];
  if (writer->crypto) writer->crypto->hash(bytes, hash);
  qn__bundle_row_t row = {entry->key, writer->offset, bytes.size};
  return add_row(writer, &row, writer->crypto ? hash : NULL);
}

qn_status_t qn__bundle_writer_add(qn__bundle_writer_t* writer, qn_span_t bytes) {
  qn__entry_t entry;
  qn__reason_t reason = qn__entry_decode(bytes, NULL, &entry);
  if (reason != QN__REASON_NONE) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "an entry for bundle '%s' is not whole: %s",
                          writer->path, qn__reason_text(reason));
  }
  QN_TRY(index_entry(writer, bytes, &entry));
  return write_bytes(writer, bytes.data, bytes.size);
}

// ---------------------------------------------------------------------------------------- create

// "<path>.<8 hex pid>-<16 hex>.tmp"
static char* temporary_name(qn_allocator_t allocator, const char* path, const void* owner) {
  char unique[QN__FS_TEMPORARY_NAME_BYTES];
  qn__fs_temporary_name(owner, unique);
  qn__buffer_t name;
  qn__buffer_init(&name, allocator);
  qn__buffer_format(&name, "%s.%s.tmp", path, unique);
  char* copy = name.has_failed ? NULL : qn__copy_cstr(allocator, qn__buffer_as_str(&name));
  qn__buffer_deinit(&name);
  return copy;
}

static qn_status_t start_file(qn__bundle_writer_t* writer) {
  writer->temporary = temporary_name(writer->allocator, writer->path, writer);
  if (!writer->temporary) return qn__out_of_memory("the path of a bundle");
  // Readable by everybody, as programs are; writable by its owner alone.
  writer->fd =
      qn__fs()->open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (writer->fd < 0) {
    qn_status_t status = qn__fs_status(errno, "make", writer->path);
    qn__free_cstr(writer->allocator, writer->temporary);
    writer->temporary = NULL;
    return status;
  }
  uint8_t header[QN__BUNDLE_HEADER_BYTES];
  qn__bundle_header_write(header);
  return write_bytes(writer, header, sizeof header);
}

// A secret key ends with its public key.
static const uint8_t* public_key_of(const qn__bundle_writer_t* writer) {
  return writer->secret_key + QN__SECRET_KEY_BYTES - QN__PUBLIC_KEY_BYTES;
}

// Opens the bundle to which entries are appended. If our own key has signed it, the signature must
// still be valid, because the new bundle will be signed with that key again.
static qn_status_t open_old(const qn__bundle_writer_t* writer, const char* plugin_directory,
                            qn__bundle_t** out_old) {
  qn__bundle_options_t options = {.allocator = writer->allocator, .path = writer->path};
  QN_TRY(qn__bundle_open(&options, out_old));
  const uint8_t* signer = qn__bundle_signer(*out_old);
  const uint8_t* own = public_key_of(writer);
  if (!writer->crypto || !signer || memcmp(signer, own, QN__PUBLIC_KEY_BYTES) != 0) return QN_OK;
  qn__bundle_close(*out_old);
  options.public_keys = own;
  options.public_key_count = 1;
  options.plugin_directory = plugin_directory;
  return qn__bundle_open(&options, out_old);
}

static qn_status_t copy_entries(qn__bundle_writer_t* writer, qn__bundle_t* old) {
  if (qn__bundle_is_truncated(old)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "cannot append to bundle '%s': its tail is not whole; merge it into a "
                          "new one",
                          writer->path);
  }
  for (uint64_t i = 0; i < qn__bundle_count(old); i++) {
    qn__hit_t hit;
    if (qn__bundle_read(old, i, &hit) != QN__GET_HIT) {
      return qn_status_make(QN_STATUS_DATA_LOSS,
                            "cannot append to bundle '%s': its entry %" PRIu64
                            " does not verify; merge it into a new one",
                            writer->path, i);
    }
    qn_status_t status = qn__bundle_writer_add(
        writer, (qn_span_t){hit.bytes, (size_t)qn__bundle_entry_size(old, i)});
    qn__bundle_hit_release(old, &hit);
    QN_TRY(status);
  }
  return QN_OK;
}

static qn_status_t copy_old(qn__bundle_writer_t* writer, const char* plugin_directory) {
  qn__bundle_t* old;
  QN_TRY(open_old(writer, plugin_directory, &old));
  qn_status_t status = copy_entries(writer, old);
  qn__bundle_close(old);
  return status;
}

qn_status_t qn__bundle_writer_create(const qn__bundle_write_options_t* options,
                                     qn__bundle_writer_t** out_writer) {
  *out_writer = NULL;
  size_t size = options->path ? strlen(options->path) : 0;
  if (size == 0 || size > PATH_MAX - 64 || options->path[size - 1] == '/') {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "path of a bundle is %s",
                          size == 0 ? "empty" : "too long or a directory");
  }
  qn_allocator_t allocator =
      options->allocator.reallocate ? options->allocator : qn_allocator_default();
  qn__bundle_writer_t* writer = qn__alloc_zero(allocator, 1, sizeof *writer);
  if (!writer) return qn__out_of_memory("a bundle");
  writer->allocator = allocator;
  writer->fd = -1;
  writer->path = qn__copy_cstr(allocator, qn__str(options->path));
  qn_status_t status = writer->path ? QN_OK : qn__out_of_memory("the path of a bundle");
  if (qn_ok(status) && options->secret_key) {
    memcpy(writer->secret_key, options->secret_key, sizeof writer->secret_key);
    status = qn__crypto_open(options->plugin_directory, &writer->crypto);
  }
  if (qn_ok(status)) status = start_file(writer);
  if (qn_ok(status) && options->is_appending) status = copy_old(writer, options->plugin_directory);
  if (!qn_ok(status)) {
    qn__bundle_writer_destroy(writer);
    return status;
  }
  *out_writer = writer;
  return QN_OK;
}

// ---------------------------------------------------------------------------------------- finish

// Copies the last row of each key into `out`. Returns their number.
static size_t pack_rows(const qn__bundle_writer_t* writer, size_t row_bytes, uint8_t* out) {
  size_t kept = 0;
  for (size_t i = 0; i < writer->row_count; i++) {
    const uint8_t* row = writer->rows + i * ROW;
    bool is_last = i + 1 == writer->row_count || memcmp(row, row + ROW, sizeof(qn_hash128_t)) != 0;
    if (!is_last) continue;
    memcpy(out + kept * row_bytes, row, row_bytes);
    kept++;
  }
  return kept;
}

static qn_status_t write_trailer(qn__bundle_writer_t* writer, uint64_t index_offset,
                                 qn_span_t index, uint64_t count) {
  qn__bundle_trailer_t trailer = {.index_offset = index_offset,
                                  .index_size = index.size,
                                  .count = count,
                                  .trailer_offset = index_offset + index.size,
                                  .is_signed = writer->crypto != NULL};
  assert(trailer.trailer_offset == writer->offset);
  if (writer->crypto) {
    writer->crypto->hash(index, trailer.index_hash);
    memcpy(trailer.public_key, public_key_of(writer), QN__PUBLIC_KEY_BYTES);
  }
  uint8_t bytes[QN__BUNDLE_TRAILER_BYTES];
  uint8_t signature[QN__SIGNATURE_BYTES];
  qn__bundle_trailer_write(&trailer, bytes);
  if (writer->crypto) {
    uint8_t message[QN__BUNDLE_MESSAGE_BYTES];
    qn__bundle_message(bytes, message);
    writer->crypto->sign(writer->secret_key, (qn_span_t){message, sizeof message}, signature);
  }
  qn__bundle_trailer_seal(bytes, writer->crypto ? signature : NULL);
  return write_bytes(writer, bytes, sizeof bytes);
}

static qn_status_t write_index(qn__bundle_writer_t* writer) {
  bool has_hashes = writer->crypto != NULL;
  size_t row_bytes = has_hashes ? QN__BUNDLE_HASHED_ROW_BYTES : QN__BUNDLE_ROW_BYTES;
  if (writer->row_count > 1) qsort(writer->rows, writer->row_count, ROW, qn__bundle_row_compare);
  size_t room = QN__BUNDLE_INDEX_HEADER_BYTES + writer->row_count * row_bytes +
                QN__BUNDLE_MAX_IDENTITIES * (4 + QN__BUNDLE_IDENTITY_BYTES) + 32;
  uint8_t* block = qn__alloc(writer->allocator, room);
  if (!block) return qn__out_of_memory("the index of a bundle");
  size_t count = pack_rows(writer, row_bytes, block + QN__BUNDLE_INDEX_HEADER_BYTES);
  uint64_t size = 0;
  qn_status_t status = QN_OK;
  if (QN_NEVER(!qn__bundle_index_size(count, has_hashes, &writer->identities, &size) ||
               size > room)) {
    status =
        qn_status_make(QN_STATUS_INTERNAL, "the index of bundle '%s' is too large", writer->path);
  } else {
    assert(count <= writer->row_count && writer->offset % QN__ENTRY_ALIGNMENT == 0);
    qn__bundle_index_seal(count, has_hashes, &writer->identities, block, (size_t)size);
    uint64_t offset = writer->offset;
    status = write_bytes(writer, block, (size_t)size);
    if (qn_ok(status)) {
      status = write_trailer(writer, offset, (qn_span_t){block, (size_t)size}, count);
    }
  }
  qn__free(writer->allocator, block, room);
  return status;
}

static qn_status_t close_file(qn__bundle_writer_t* writer) {
  int fd = writer->fd;
  writer->fd = -1;
  return qn__fs()->close(fd) == 0 ? QN_OK : qn__fs_status(errno, "close", writer->temporary);
}

qn_status_t qn__bundle_writer_finish(qn__bundle_writer_t* writer) {
  const qn__fs_t* fs = qn__fs();
  QN_TRY(write_index(writer));
  if (fs->fdatasync(writer->fd) != 0) return qn__fs_status(errno, "sync", writer->temporary);
  QN_TRY(close_file(writer));
  if (fs->rename(writer->temporary, writer->path) != 0) {
    return qn__fs_status(errno, "put a bundle at", writer->path);
  }
  qn__free_cstr(writer->allocator, writer->temporary);
  writer->temporary = NULL;
  return QN_OK;
}

void qn__bundle_writer_destroy(qn__bundle_writer_t* writer) {
  if (!writer) return;
  qn_allocator_t allocator = writer->allocator;
  if (writer->fd >= 0) (void)qn__fs()->close(writer->fd);
  if (writer->temporary) {
    (void)qn__fs()->unlink(writer->temporary);
    qn__free_cstr(allocator, writer->temporary);
  }
  qn__wipe(writer->secret_key, sizeof writer->secret_key);
  qn__free(allocator, writer->rows, writer->row_capacity * ROW);
  qn__free_cstr(allocator, writer->path);
  qn__free(allocator, writer, sizeof *writer);
}
