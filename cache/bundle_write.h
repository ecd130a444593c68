// SPDX-License-Identifier: Apache-2.0
// cache/bundle_write.h: writes bundles: a writer for one file, and an export that chooses entries.
//
// Every entry is verified before it is written. The same entries give the same bytes. A failure
// leaves no file. docs/bundles.md has the format.
//
// Thread rule: one thread per object.
#ifndef QUERN_CACHE_BUNDLE_WRITE_H_
#define QUERN_CACHE_BUNDLE_WRITE_H_

#include "cache/crypto.h"
#include "cache/source.h"

typedef struct qn__bundle_writer qn__bundle_writer_t;

typedef struct qn__bundle_write_options {
  qn_allocator_t allocator;      // zero: the default one
  const char* path;              // replaced by the finish, not before
  const uint8_t* secret_key;     // QN__SECRET_KEY_BYTES; NULL: not signed
  const char* plugin_directory;  // of the cryptographic module; NULL or "" for the search
  // Starts with the entries of the bundle at `path`, which must exist. Readers that have it open
  // keep the old file. Errors beside the others: those of qn__bundle_open; FAILED_PRECONDITION when
  // its tail is not whole; DATA_LOSS when an entry does not verify.
  bool is_appending;
} qn__bundle_write_options_t;

// Creates a temporary file in the folder of `path`. Errors: INVALID_ARGUMENT (path), UNAVAILABLE
// (no cryptographic module), NOT_FOUND, PERMISSION_DENIED, IO, OUT_OF_MEMORY.
qn_status_t qn__bundle_writer_create(const qn__bundle_write_options_t* options,
                                     qn__bundle_writer_t** out_writer);
// Adds one whole entry; a later one with the same key replaces it. After an error the writer can
// only be destroyed. Errors: DATA_LOSS (it does not verify), INVALID_ARGUMENT (a limit of the
// format), IO, OUT_OF_MEMORY.
qn_status_t qn__bundle_writer_add(qn__bundle_writer_t* writer, qn_span_t entry);
// Writes index and trailer, syncs the file, and renames it to its path.
qn_status_t qn__bundle_writer_finish(qn__bundle_writer_t* writer);
// Removes the temporary file of an unfinished bundle. NULL is fine.
void qn__bundle_writer_destroy(qn__bundle_writer_t* writer);

// ---------------------------------------------------------------------------------------- export

typedef struct qn__bundle_export_options {
  qn__bundle_write_options_t write;
  // Chooses entries; NULL: all. Called once for each key, in the order of the keys.
  bool (*wants)(void* self, const qn__entry_t* entry);
  void (*on_bad)(void* self, qn_hash128_t key, const char* reason);  // NULL is fine
  void* self;
  const bool* has_failed;  // NULL is fine; a callback sets it when it has no memory
  // Sets the times of creation and of compiling to 0, so that the bundle depends on keys and code
  // alone.
  bool is_timeless;
} qn__bundle_export_options_t;

typedef struct qn__bundle_export_report {
  uint64_t written_count;
  uint64_t written_bytes;  // of the entries
  uint64_t unwanted_count;
  uint64_t bad_count;  // damaged, left out
} qn__bundle_export_report_t;

// Writes the entries of the sources, sorted by key. Of equal keys it takes the last source whose
// entry is good. Leaves out entries that vanish meanwhile. Errors: NOT_FOUND (nothing to write),
// those of the writer, IO and OUT_OF_MEMORY when a source cannot be read.
qn_status_t qn__bundle_export(const qn__source_t* sources, size_t source_count,
                              const qn__bundle_export_options_t* options,
                              qn__bundle_export_report_t* out_report);

#endif  // QUERN_CACHE_BUNDLE_WRITE_H_
