// cache/bundle_write.h: making bundles: a writer of one file, and the choice of what goes into it.
//
// Every entry is verified before it is written. The same entries give the same bytes. Whatever
// fails leaves no file and says why. docs/bundles.md has the format.
//
// Thread rule: one thread per object. Read next: bundle_write.c, bundle_export.c.
#ifndef QUERN_CACHE_BUNDLE_WRITE_H_
#define QUERN_CACHE_BUNDLE_WRITE_H_

#include "cache/bundle.h"
#include "cache/crypto.h"
#include "cache/disk.h"

typedef struct qn__bundle_writer qn__bundle_writer_t;

typedef struct qn__bundle_write_options {
  qn_allocator_t allocator;      // zero: the default one
  const char* path;              // replaced when it is finished, not before
  const uint8_t* secret_key;     // QN__SECRET_KEY_BYTES; NULL: not signed
  const char* plugin_directory;  // for the cryptography; NULL or "" for the search
  // Starts with the entries of the bundle at `path`, which must exist. Readers that have it open
  // keep the old file. Errors beside the others: those of qn__bundle_open; FAILED_PRECONDITION when
  // its tail is not whole; DATA_LOSS when an entry does not verify.
  bool is_appending;
} qn__bundle_write_options_t;

// Starts a temporary file in the directory of `path`. Errors: INVALID_ARGUMENT (path), UNAVAILABLE
// (no cryptography), NOT_FOUND, PERMISSION_DENIED, IO, OUT_OF_MEMORY.
qn_status_t qn__bundle_writer_create(const qn__bundle_write_options_t* options,
                                     qn__bundle_writer_t** out_writer);
// Appends one whole entry. The last one of a key counts. Errors: DATA_LOSS (it does not verify),
// INVALID_ARGUMENT (a limit of the format), IO, OUT_OF_MEMORY; the writer is then only to be
// destroyed.
qn_status_t qn__bundle_writer_add(qn__bundle_writer_t* writer, qn_span_t entry);
// Writes index and trailer, syncs, and gives the file its name.
qn_status_t qn__bundle_writer_finish(qn__bundle_writer_t* writer);
// Removes the temporary file unless it was finished. NULL is fine.
void qn__bundle_writer_destroy(qn__bundle_writer_t* writer);

// ---------------------------------------------------------------------------------------- export

// Where entries come from: one of the two.
typedef struct qn__bundle_source {
  qn__disk_t* disk;
  qn__bundle_t* bundle;
} qn__bundle_source_t;

typedef struct qn__bundle_export_options {
  qn__bundle_write_options_t write;
  // NULL: every entry. Asked once for each key, in the order of the keys.
  bool (*wants)(void* self, const qn__entry_t* entry);
  void (*on_bad)(void* self, qn_hash128_t key, const char* reason);  // NULL is fine
  void* self;
  const bool* has_failed;  // NULL is fine: set by a callback that ran out of memory
  // Times of creation and what compiling took become 0, so that the bundle depends on keys and code
  // alone.
  bool is_timeless;
} qn__bundle_export_options_t;

typedef struct qn__bundle_export_report {
  uint64_t written_count;
  uint64_t written_bytes;  // of the entries
  uint64_t unwanted_count;
  uint64_t bad_count;  // damaged ones, which were left out
} qn__bundle_export_report_t;

// Writes the entries of the sources, by key; of equal keys the one of the last source that is good.
// Entries that go away meanwhile are left out. Errors: NOT_FOUND when nothing is left to write;
// those of the writer; IO and OUT_OF_MEMORY when a source cannot be read.
qn_status_t qn__bundle_export(const qn__bundle_source_t* sources, size_t source_count,
                              const qn__bundle_export_options_t* options,
                              qn__bundle_export_report_t* out_report);

#endif  // QUERN_CACHE_BUNDLE_WRITE_H_
