// quern/cache.h: looking at and caring for a cache directory, apart from any engine.
//
// An engine uses its cache by itself (engine.h); these calls are for tools. A cache directory holds
// code: only its owner may write it (docs/cache-format.md). Any thread; several processes at once
// are fine.
#ifndef QUERN_CACHE_H_
#define QUERN_CACHE_H_

#include "quern/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_cache_dir qn_cache_dir_t;

// Opens a directory that exists. Errors: NOT_FOUND; PERMISSION_DENIED with the rule that it breaks
// (not owned by the user, writable by others, a symbolic link).
QN_API QN_MUST_USE qn_status_t qn_cache_dir_open(const char* path, qn_cache_dir_t** out_dir);
// NULL is fine.
QN_API void qn_cache_dir_close(qn_cache_dir_t* dir);

typedef struct qn_cache_entry_info {
  char key[33];         // 32 hex digits
  uint64_t size_bytes;  // of the file
  int64_t created_s;    // Unix time
  int64_t used_s;       // Unix time of the last use, to the day
} qn_cache_entry_info_t;

// Calls back for each entry, in no order, until the callback returns false.
QN_API QN_MUST_USE qn_status_t
qn_cache_dir_list(qn_cache_dir_t* dir,
                  bool (*on_entry)(void* self, const qn_cache_entry_info_t* info), void* self);

typedef struct qn_cache_usage {
  uint64_t entry_count;
  uint64_t size_bytes;
  uint64_t temporary_count;  // files being written, or left by a process that died
} qn_cache_usage_t;
QN_API QN_MUST_USE qn_status_t qn_cache_dir_usage(qn_cache_dir_t* dir, qn_cache_usage_t* out_usage);

// The parts of one entry, after verification. Borrowed until freed.
typedef struct qn_cache_section {
  const char* name;  // "target", "codegen", ...; "payload" for the code
  const char* text;  // printable value, or NULL for bytes
  const void* data;
  size_t size_bytes;
} qn_cache_section_t;
typedef struct qn_cache_entry {
  qn_cache_entry_info_t info;
  uint64_t compile_ns;  // what making it cost
  size_t section_count;
  const qn_cache_section_t* sections;
} qn_cache_entry_t;
// `key` may be a prefix of at least 4 digits that is unambiguous. Errors: NOT_FOUND,
// INVALID_ARGUMENT (ambiguous), DATA_LOSS (with the reason). Owned: qn_cache_entry_free.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_read(qn_cache_dir_t* dir, const char* key,
                                                 qn_cache_entry_t** out_entry);
QN_API void qn_cache_entry_free(qn_cache_entry_t* entry);

typedef struct qn_cache_verify_report {
  uint64_t good_count;
  uint64_t bad_count;
  uint64_t removed_count;     // bad ones that were deleted
  uint64_t unreadable_count;  // input/output errors: left alone
} qn_cache_verify_report_t;
// Reads and checks every entry; damaged ones are removed when `is_healing`. `on_bad` (may be NULL)
// hears of each with the reason.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_verify(qn_cache_dir_t* dir, bool is_healing,
                                                   void (*on_bad)(void* self, const char* key,
                                                                  const char* reason),
                                                   void* self,
                                                   qn_cache_verify_report_t* out_report);

// Removes every entry and stale temporary file; unknown files stay. Returns how many entries went.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_clear(qn_cache_dir_t* dir, uint64_t* out_removed_count);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_CACHE_H_
