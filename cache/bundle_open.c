// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700  // S_ISVTX
// cache/bundle_open.c: opens a bundle: checks its file, its signature, and reads its index.
//
// Not here: reading entries (bundle.c), a file without a good tail (bundle_scan.c).
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/fs.h"
#include "base/log.h"
#include "cache/bundle_inner.h"

// ---------------------------------------------------------------------------------------- trust

static qn_status_t distrust(const char* path, const char* rule, const char* hint) {
  return qn_status_make(QN_STATUS_PERMISSION_DENIED, "bundle '%s' %s; %s", path, rule, hint);
}

static bool may_own(const qn__bundle_options_t* options, uid_t owner) {
  if (owner == geteuid() || owner == 0) return true;
  for (size_t i = 0; i < options->owner_count; i++) {
    if (options->owners[i] == owner) return true;
  }
  return false;
}

// A user who can write the folder, without a sticky bit, can put another file here.
static qn_status_t check_folder(const char* path) {
  char folder[PATH_MAX];
  size_t size = strlen(path);
  if (size + 2 > sizeof folder) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "path of a bundle has %zu bytes, more than %d", size, PATH_MAX - 2);
  }
  while (size > 0 && path[size - 1] != '/') size--;
  memcpy(folder, path, size);
  // "dir/." is the directory even if dir is a link.
  folder[size] = '.';
  folder[size + 1] = '\0';
  struct stat info;
  if (qn__fs()->lstat(folder, &info) != 0) return qn__fs_status(errno, "stat", folder);
  if ((info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX)) {
    return distrust(path, "lies in a directory that everybody may write",
                    "set its sticky bit or choose another place");
  }
  return QN_OK;
}

static qn_status_t check_file(const qn__bundle_options_t* options, const struct stat* info) {
  if (!S_ISREG(info->st_mode)) {
    return distrust(options->path, "is not a regular file", "choose another path");
  }
  if (!may_own(options, info->st_uid)) {
    return distrust(options->path, "belongs to another user",
                    "it must be of this user, of root, or of one of QUERN_CACHE_OWNERS");
  }
  if (info->st_mode & (S_IWGRP | S_IWOTH)) {
    return distrust(options->path, "is writable by others", "chmod go-w it");
  }
  return QN_OK;
}

static qn_status_t open_file(const qn__bundle_options_t* options, qn__bundle_t* bundle) {
  if (qn__has_borrowed_rights()) {
    return qn_status_make(QN_STATUS_PERMISSION_DENIED,
                          "a process with borrowed user or group rights uses no bundle");
  }
  const qn__fs_t* fs = qn__fs();
  // The last part of the path may not be a link; folders before it may.
  bundle->fd =
      fs->open(options->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
  if (bundle->fd < 0) {
    if (errno == ELOOP) {
      return distrust(options->path, "is a symbolic link", "name the file that it leads to");
    }
    if (errno == ENXIO) return distrust(options->path, "is not a regular file", "choose another");
    return qn__fs_status(errno, "open bundle", options->path);
  }
  struct stat info;
  if (fs->fstat(bundle->fd, &info) != 0) return qn__fs_status(errno, "stat bundle", options->path);
  QN_TRY(check_file(options, &info));
  bundle->file_size = info.st_size > 0 ? (uint64_t)info.st_size : 0;
  return check_folder(options->path);
}

// ---------------------------------------------------------------------------------------- open

static qn_status_t read_failed(const qn__bundle_t* bundle, int error) {
  if (error == ENODATA) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "bundle '%s' became shorter while it was opened",
                          bundle->path);
  }
  return qn__fs_status(error, "read bundle", bundle->path);
}

static qn_status_t unsigned_bundle(const qn__bundle_t* bundle, const char* why) {
  return qn_status_make(QN_STATUS_PERMISSION_DENIED,
                        "bundle '%s' %s; it must be signed by one of the keys that were named",
                        bundle->path, why);
}

// Verifies the signature before anything that it covers is used, except the sizes in the trailer
// that locate it.
static qn_status_t check_signature(const qn__bundle_options_t* options, qn__bundle_t* bundle,
                                   const uint8_t* bytes, const qn__bundle_trailer_t* trailer) {
  if (options->public_key_count == 0) return QN_OK;
  if (!trailer->is_signed) return unsigned_bundle(bundle, "is not signed");
  QN_TRY(qn__crypto_open(options->plugin_directory, &bundle->crypto));
  const uint8_t* key = NULL;
  for (size_t i = 0; i < options->public_key_count && !key; i++) {
    const uint8_t* candidate = options->public_keys + i * QN__PUBLIC_KEY_BYTES;
    if (memcmp(candidate, trailer->public_key, QN__PUBLIC_KEY_BYTES) == 0) key = candidate;
  }
  if (!key) return unsigned_bundle(bundle, "is signed by another key");
  uint8_t message[QN__BUNDLE_MESSAGE_BYTES];
  qn__bundle_message(bytes, message);
  if (!bundle->crypto->verify(key, (qn_span_t){message, sizeof message}, trailer->signature)) {
    return unsigned_bundle(bundle, "has a signature that does not fit");
  }
  return QN_OK;
}

// Reads the index that a good trailer names. *out_is_good false: the index is damaged.
static qn_status_t read_index(qn__bundle_t* bundle, const qn__bundle_trailer_t* trailer,
                              bool* out_is_good) {
  *out_is_good = false;
  size_t size = (size_t)trailer->index_size;
  uint8_t* block = qn__alloc(bundle->allocator, size);
  if (!block) return qn__out_of_memory("the index of a bundle");
  bundle->memory = block;
  bundle->memory_size = size;
  int error = qn__bundle_pread(bundle, block, size, trailer->index_offset);
  if (error) return read_failed(bundle, error);
  qn_span_t span = {block, size};
  if (bundle->crypto) {
    uint8_t hash[QN__SECURE_HASH_BYTES];
    bundle->crypto->hash(span, hash);
    if (memcmp(hash, trailer->index_hash, sizeof hash) != 0) {
      return unsigned_bundle(bundle, "has an index that is not the signed one");
    }
  }
  qn__bundle_index_t index;
  bool is_good = qn__bundle_index_read(span, trailer->index_offset, &index, &bundle->identities) &&
                 index.count == trailer->count;
  if (bundle->crypto && (!is_good || index.row_bytes != QN__BUNDLE_HASHED_ROW_BYTES)) {
    return unsigned_bundle(bundle, "has an index without hashes");
  }
  if (is_good) {
    bundle->count = index.count;
    bundle->row_bytes = index.row_bytes;
    bundle->rows = index.rows;
    bundle->is_signed = trailer->is_signed;
    memcpy(bundle->signer, trailer->public_key, sizeof bundle->signer);
  } else {
    qn__free(bundle->allocator, block, size);
    bundle->memory = NULL;
    bundle->identities.count = 0;
  }
  *out_is_good = is_good;
  return QN_OK;
}

// Reads trailer and index. *out_is_good false: the file has no whole tail.
static qn_status_t read_tail(const qn__bundle_options_t* options, qn__bundle_t* bundle,
                             bool* out_is_good) {
  *out_is_good = false;
  if (bundle->file_size < QN__BUNDLE_HEADER_BYTES + QN__BUNDLE_TRAILER_BYTES) return QN_OK;
  uint64_t offset = bundle->file_size - QN__BUNDLE_TRAILER_BYTES;
  uint8_t bytes[QN__BUNDLE_TRAILER_BYTES];
  int error = qn__bundle_pread(bundle, bytes, sizeof bytes, offset);
  if (error) return read_failed(bundle, error);
  qn__bundle_trailer_t trailer;
  if (!qn__bundle_trailer_read(bytes, offset, &trailer)) return QN_OK;
  QN_TRY(check_signature(options, bundle, bytes, &trailer));
  return read_index(bundle, &trailer, out_is_good);
}

// Builds the fan-out table with about one row per bucket, because keys are hashes. Keys that were
// chosen to share their first bits only make one bucket long, and a binary search goes through it.
static qn_status_t make_fanout(qn__bundle_t* bundle) {
  unsigned bits = 0;
  while (bits < QN__BUNDLE_MAX_FANOUT_BITS && (UINT64_C(1) << bits) < bundle->count) bits++;
  size_t bucket_count = (size_t)1 << bits;
  bundle->fanout = qn__alloc(bundle->allocator, (bucket_count + 1) * sizeof *bundle->fanout);
  if (!bundle->fanout) return qn__out_of_memory("the index of a bundle");
  bundle->fanout_bits = bits;
  size_t bucket = 0;
  for (uint64_t i = 0; i < bundle->count; i++) {
    uint64_t prefix = qn__bundle_prefix(bundle->rows + i * bundle->row_bytes);
    size_t own = bits ? (size_t)(prefix >> (64 - bits)) : 0;
    assert(own < bucket_count && own + 1 >= bucket);  // rows are sorted
    while (bucket <= own) bundle->fanout[bucket++] = (uint32_t)i;
  }
  while (bucket <= bucket_count) bundle->fanout[bucket++] = (uint32_t)bundle->count;
  return QN_OK;
}

bool qn__bundle_check(const qn__bundle_t* bundle) {
  size_t bucket_count = (size_t)1 << bundle->fanout_bits;
  if (QN_NEVER(bundle->fanout[0] != 0 || bundle->fanout[bucket_count] != bundle->count))
    return false;
  for (size_t b = 0; b < bucket_count; b++) {
    if (QN_NEVER(bundle->fanout[b] > bundle->fanout[b + 1])) return false;
  }
  for (uint64_t i = 0; i < bundle->count; i++) {
    const uint8_t* bytes = bundle->rows + i * bundle->row_bytes;
    qn__bundle_row_t row = qn__bundle_row_load(bytes);
    if (QN_NEVER(!qn__bundle_row_is_sound(&row, bundle->file_size))) return false;
    if (QN_NEVER(i > 0 && memcmp(bytes - bundle->row_bytes, bytes, sizeof row.key) >= 0))
      return false;
    if (QN_NEVER(qn__bundle_find_row(bundle, &row.key) != bytes)) return false;
  }
  return true;
}

// Reads the header at the bundle's begin.
static qn_status_t read_header(const qn__bundle_t* bundle, uint8_t out[QN__BUNDLE_HEADER_BYTES],
                               bool* out_is_good) {
  *out_is_good = false;
  if (bundle->file_size < QN__BUNDLE_HEADER_BYTES) return QN_OK;
  int error = qn__bundle_pread(bundle, out, QN__BUNDLE_HEADER_BYTES, 0);
  if (error) return read_failed(bundle, error);
  *out_is_good = qn__bundle_header_is_good(out);
  return QN_OK;
}

// Finds the bundle that ends a shared object (quern/tvm_ffi.h): its trailer is the end of the file,
// and knows its distance from the begin. *out_is_header false: there is none.
static qn_status_t find_embedded(qn__bundle_t* bundle, bool* out_is_header) {
  *out_is_header = false;
  if (bundle->file_size < QN__BUNDLE_TRAILER_BYTES) return QN_OK;
  const uint64_t trailer_at = bundle->file_size - QN__BUNDLE_TRAILER_BYTES;
  uint8_t trailer[QN__BUNDLE_TRAILER_BYTES], header[QN__BUNDLE_HEADER_BYTES];
  int error = qn__bundle_pread(bundle, trailer, sizeof trailer, trailer_at);
  if (error) return read_failed(bundle, error);
  const uint64_t distance = qn__bundle_trailer_distance(trailer);
  if (distance == 0 || distance >= trailer_at) return QN_OK;
  bundle->base = trailer_at - distance;
  bundle->file_size -= bundle->base;
  return read_header(bundle, header, out_is_header);
}

static bool is_shared_object(const uint8_t header[QN__BUNDLE_HEADER_BYTES]) {
  return memcmp(header, "\177ELF", 4) == 0;
}

static qn_status_t read_bundle(const qn__bundle_options_t* options, qn__bundle_t* bundle) {
  QN_TRY(open_file(options, bundle));
  uint8_t header[QN__BUNDLE_HEADER_BYTES] = {0};
  bool is_header;
  QN_TRY(read_header(bundle, header, &is_header));
  if (!is_header && is_shared_object(header)) {
    QN_TRY(find_embedded(bundle, &is_header));
    if (!is_header) {
      return qn_status_make(QN_STATUS_DATA_LOSS,
                            "shared object '%s' does not end with a bundle of version %u; was it "
                            "cut or stripped?",
                            bundle->path, QN__BUNDLE_VERSION);
    }
  }
  if (!is_header) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "'%s' is not a bundle of version %u", bundle->path,
                          QN__BUNDLE_VERSION);
  }
  bool is_good;
  QN_TRY(read_tail(options, bundle, &is_good));
  if (!is_good) {
    if (options->public_key_count) return unsigned_bundle(bundle, "has no whole signature");
    if (bundle->base) {
      return qn_status_make(QN_STATUS_DATA_LOSS, "the bundle in shared object '%s' is damaged",
                            bundle->path);
    }
    bundle->is_truncated = true;
    QN_TRY(qn__bundle_scan(bundle));
    qn__log(QN_LOG_INFO, "bundle '%s' has no whole index: %" PRIu64 " entries were found in it",
            bundle->path, bundle->count);
  }
  return make_fanout(bundle);
}

qn_status_t qn__bundle_open(const qn__bundle_options_t* options, qn__bundle_t** out_bundle) {
  *out_bundle = NULL;
  if (!options->path || !options->path[0]) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "path of a bundle is empty");
  }
  qn_allocator_t allocator =
      options->allocator.reallocate ? options->allocator : qn_allocator_default();
  qn__bundle_t* bundle = qn__alloc_zero(allocator, 1, sizeof *bundle);
  if (!bundle) return qn__out_of_memory("a bundle");
  bundle->allocator = allocator;
  bundle->fd = -1;
  qn__scratch_init(&bundle->scratch, allocator);
  bundle->path = qn__copy_cstr(allocator, qn__str(options->path));
  qn_status_t status =
      bundle->path ? read_bundle(options, bundle) : qn__out_of_memory("the path of a bundle");
  if (!qn_ok(status)) {
    qn__bundle_close(bundle);
    return status;
  }
  assert(qn__bundle_check(bundle));
  *out_bundle = bundle;
  return QN_OK;
}

void qn__bundle_close(qn__bundle_t* bundle) {
  if (!bundle) return;
  qn_allocator_t allocator = bundle->allocator;
  if (bundle->fd >= 0) (void)qn__fs()->close(bundle->fd);
  qn__scratch_deinit(&bundle->scratch);
  size_t bucket_count = (size_t)1 << bundle->fanout_bits;
  qn__free(allocator, bundle->fanout, (bucket_count + 1) * sizeof *bundle->fanout);
  qn__free(allocator, bundle->memory, bundle->memory_size);
  qn__free_cstr(allocator, bundle->path);
  qn__free(allocator, bundle, sizeof *bundle);
}
