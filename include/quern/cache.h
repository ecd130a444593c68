// SPDX-License-Identifier: Apache-2.0
// quern/cache.h: tools that read and care for cache directories and bundles, apart from an engine.
//
// An engine uses its cache by itself (quern.h). A cache directory holds code: only its owner may
// write it (docs/cache-format.md). A bundle is one read-only file of many entries, to ship with an
// image (docs/bundles.md). Several processes may use a directory at once. Threads may share an
// object, but must not close it while another thread uses it. Callbacks run in the calling thread.
#ifndef QUERN_CACHE_H_
#define QUERN_CACHE_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ directories
//
// The errors of a listing: a call that reads all of a directory gives IO, PERMISSION_DENIED or
// OUT_OF_MEMORY if the directory cannot be listed. A file that cannot be read is no error.

// An open cache directory.
typedef struct qn_cache_dir qn_cache_dir_t;

// Opens a directory that exists. A directory that may only be read opens too. `*out_dir` is owned:
// qn_cache_dir_close. Errors: NOT_FOUND (no such directory), PERMISSION_DENIED (names the rule that
// it breaks: not owned by the user, writable by others, a symbolic link), INVALID_ARGUMENT (an
// empty path, or one that is too long), IO, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_open(const char* path, qn_cache_dir_t** out_dir);
// Closes the directory. Entries that were read stay valid.
QN_API void qn_cache_dir_close(qn_cache_dir_t* dir);

// One entry of a directory or a bundle.
typedef struct qn_cache_entry_info {
  size_t struct_size;   // of the library
  qn_cache_key_t key;   // its name
  uint64_t size_bytes;  // of the file; in a bundle of the entry
  int64_t created_s;    // Unix time
  int64_t used_s;       // Unix time of the last use, to the day; 0 in a bundle
} qn_cache_entry_info_t;

// Calls back for each entry, in no order, until the callback returns false. `info` is borrowed for
// the callback. Errors: the errors of a listing.
QN_API QN_MUST_USE qn_status_t
qn_cache_dir_list(qn_cache_dir_t* dir,
                  bool (*on_entry)(void* self, const qn_cache_entry_info_t* info), void* self);

// What a directory holds.
typedef struct qn_cache_usage {
  size_t struct_size;        // sizeof(qn_cache_usage_t)
  uint64_t entry_count;      // files of entries
  uint64_t size_bytes;       // of these
  uint64_t temporary_count;  // files being written, or left by a process that died
} qn_cache_usage_t;
// Counts what the directory holds, by listing it. Errors: INVALID_ARGUMENT (struct_size), the
// errors of a listing.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_usage(qn_cache_dir_t* dir, qn_cache_usage_t* out_usage);

// What the beginning of an entry's file says. For a file that does not begin as an entry, strings
// are NULL and numbers 0. The rest of the file is not read: qn_cache_dir_verify does that. Borrowed
// for the callback.
typedef struct qn_cache_summary {
  size_t struct_size;                 // of the library
  const qn_cache_entry_info_t* info;  // the entry
  uint64_t compile_ns;                // how long its compile took
  uint64_t code_bytes;                // of the payload
  const char* target;                 // canonical JSON
  const char* generator;              // the identity of the code generator
  const char* options;                // "tier=full checked=0"
  const char* cache_namespace;        // of the engine that made it
} qn_cache_summary_t;
// Calls back for each entry, in no order, until the callback returns false. Opens each file and
// reads at most 16 KiB. Errors: the errors of a listing.
QN_API QN_MUST_USE qn_status_t
qn_cache_dir_survey(qn_cache_dir_t* dir,
                    bool (*on_entry)(void* self, const qn_cache_summary_t* summary), void* self);

// The place of a directory. Values that the system does not tell are 0.
typedef struct qn_cache_place {
  size_t struct_size;    // sizeof(qn_cache_place_t)
  uint64_t free_bytes;   // of the file system, for this user
  uint64_t total_bytes;  // of the file system
  uint64_t lock_count;   // keys that processes of this machine are compiling
  int64_t swept_s;       // Unix time of the last sweep
} qn_cache_place_t;
// Asks the system about the place of the directory. Errors: INVALID_ARGUMENT (struct_size).
QN_API QN_MUST_USE qn_status_t qn_cache_dir_place(qn_cache_dir_t* dir, qn_cache_place_t* out_place);

// One part of an entry.
typedef struct qn_cache_section {
  const char* name;   // "target", "codegen", ...; "payload" for the code
  const char* text;   // printable value, or NULL for bytes
  const void* data;   // the bytes
  size_t size_bytes;  // of `data`
} qn_cache_section_t;
// An entry after verification.
typedef struct qn_cache_entry {
  size_t struct_size;                  // of the library
  const qn_cache_entry_info_t* info;   // what a listing tells
  uint64_t compile_ns;                 // how long its compile took
  size_t section_count;                // of `sections`
  const qn_cache_section_t* sections;  // its parts
} qn_cache_entry_t;
// Reads the entry whose key begins with `key_prefix`: 4 to 32 digits that fit one entry only.
// `*out_entry` is owned, and outlives the directory: qn_cache_entry_free. Errors: NOT_FOUND (no
// such entry), INVALID_ARGUMENT (the prefix is malformed or fits several entries), DATA_LOSS (the
// entry is damaged, with the reason), PERMISSION_DENIED (the file is not trusted), IO,
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_read(qn_cache_dir_t* dir, const char* key_prefix,
                                                 qn_cache_entry_t** out_entry);
// Frees an entry.
QN_API void qn_cache_entry_free(qn_cache_entry_t* entry);

// What verifying found.
typedef struct qn_cache_verify_report {
  size_t struct_size;         // sizeof(qn_cache_verify_report_t)
  uint64_t good_count;        // whole entries
  uint64_t bad_count;         // damaged ones
  uint64_t removed_count;     // damaged ones that were deleted
  uint64_t unreadable_count;  // entries that could not be read: left alone
} qn_cache_verify_report_t;
// Reads and checks every entry. Removes damaged ones if `is_healing`. Calls `on_bad` (may be NULL)
// for each bad entry with the reason, which is borrowed for the callback. Errors: INVALID_ARGUMENT
// (struct_size), the errors of a listing; a damaged entry is no error.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_verify(qn_cache_dir_t* dir, bool is_healing,
                                                   void (*on_bad)(void* self, qn_cache_key_t key,
                                                                  const char* reason),
                                                   void* self,
                                                   qn_cache_verify_report_t* out_report);

// Removes every entry and temporary file. Unknown files stay. `*out_removed_count` is how many
// entries were removed. Errors: PERMISSION_DENIED (the directory may only be read).
QN_API QN_MUST_USE qn_status_t qn_cache_dir_clear(qn_cache_dir_t* dir, uint64_t* out_removed_count);

// ------------------------------------------------------------------------------------ bundles
//
// A bundle is written whole, and never changed in place.

// An open bundle.
typedef struct qn_cache_bundle qn_cache_bundle_t;

// Opens a bundle. With `public_key_files`, it must be signed by one of these keys; without, its
// signature is ignored. A file whose tail is missing opens with the entries that are whole.
// `*out_bundle` is owned: qn_cache_bundle_close. Errors: NOT_FOUND (no such file),
// PERMISSION_DENIED (names the rule that the bundle breaks: a symbolic link, another owner,
// writable by others, not signed as asked), DATA_LOSS (not a bundle), UNAVAILABLE (signatures need
// libquern-sodium.so), SYNTAX (a key file), INVALID_ARGUMENT (an empty path), IO, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_open(const char* path,
                                                    const char* const* public_key_files,
                                                    size_t public_key_count,
                                                    qn_cache_bundle_t** out_bundle);
// Closes the bundle. Entries that were read stay valid.
QN_API void qn_cache_bundle_close(qn_cache_bundle_t* bundle);

// An open bundle as a whole.
typedef struct qn_cache_bundle_facts {
  size_t struct_size;    // sizeof(qn_cache_bundle_info_t)
  uint64_t entry_count;  // whole entries
  uint64_t size_bytes;   // of the file
  bool is_truncated;     // its tail is missing
  bool is_verified;      // it is signed by one of the keys that it was opened with
  char signer[65];       // public key in hexadecimal, "" unless signed
} qn_cache_bundle_info_t;
// Describes an open bundle. Errors: INVALID_ARGUMENT (struct_size).
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_info(const qn_cache_bundle_t* bundle,
                                                    qn_cache_bundle_info_t* out_info);
// Calls back with the identity of each code generator that made entries, borrowed for the callback.
QN_API void qn_cache_bundle_generators(const qn_cache_bundle_t* bundle,
                                       void (*on_generator)(void* self, const char* identity),
                                       void* self);
// Calls back for each entry, by rising key, until the callback returns false. `info` is borrowed
// for the callback. Errors: none.
QN_API QN_MUST_USE qn_status_t
qn_cache_bundle_list(qn_cache_bundle_t* bundle,
                     bool (*on_entry)(void* self, const qn_cache_entry_info_t* info), void* self);
// Reads one entry as qn_cache_dir_read does. Errors: those of qn_cache_dir_read.
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_read(qn_cache_bundle_t* bundle,
                                                    const char* key_prefix,
                                                    qn_cache_entry_t** out_entry);
// Reads and checks every entry as qn_cache_dir_verify does. Removes none. Errors: INVALID_ARGUMENT
// (struct_size).
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_verify(
    qn_cache_bundle_t* bundle, void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
    void* self, qn_cache_verify_report_t* out_report);

// How a bundle is written.
typedef struct qn_cache_write_options {
  size_t struct_size;           // sizeof(qn_cache_write_options_t)
  const char* secret_key_file;  // signs the bundle; NULL: not signed
  // Chooses entries; NULL: every entry. The entry is borrowed for the callback.
  bool (*wants)(void* self, const qn_cache_entry_t* entry);
  // Called for each damaged entry, which is left out. May be NULL.
  void (*on_bad)(void* self, qn_cache_key_t key, const char* reason);
  void* self;  // passed to the two
  // Writes times of creation and of compiling as 0. The bundle then depends on keys and code alone,
  // and two machines that compile the same write the same bytes.
  bool is_timeless;
  // Keeps the entries of the bundle at the path and adds to them. A new file takes its place;
  // readers that have the old one open keep it. Of two processes that append at the same time, the
  // one that finishes last wins.
  bool is_appending;
} qn_cache_write_options_t;
// What writing a bundle did.
typedef struct qn_cache_write_report {
  size_t struct_size;       // sizeof(qn_cache_write_report_t)
  uint64_t written_count;   // entries of the new file
  uint64_t written_bytes;   // of the entries
  uint64_t unwanted_count;  // not chosen
  uint64_t bad_count;       // damaged, left out
} qn_cache_write_report_t;
// Writes a bundle of the entries of a directory (may be NULL) and of bundles. Of equal keys the one
// of the last source counts. Verifies every entry. The file appears under its name whole or not at
// all. The same entries give the same bytes. `options` and `out_report` may be NULL. Errors:
// NOT_FOUND (no entry to write, or no such folder), INVALID_ARGUMENT (options, path),
// PERMISSION_DENIED (the file or the key), UNAVAILABLE (signing needs libquern-sodium.so), SYNTAX
// (the key), IO, OUT_OF_MEMORY; when appending, FAILED_PRECONDITION and DATA_LOSS (the old file
// cannot be added to).
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_write(const char* path, qn_cache_dir_t* dir,
                                                     qn_cache_bundle_t* const* bundles,
                                                     size_t bundle_count,
                                                     const qn_cache_write_options_t* options,
                                                     qn_cache_write_report_t* out_report);

// What an import did.
typedef struct qn_cache_import_report {
  size_t struct_size;       // sizeof(qn_cache_import_report_t)
  uint64_t imported_count;  // written to the directory
  uint64_t present_count;   // the directory had them already, whole
  uint64_t bad_count;       // damaged in the bundle
  uint64_t failed_count;    // could not be written
} qn_cache_import_report_t;
// Puts the entries of a bundle into a directory. Calls `on_bad` (may be NULL) for each damaged
// entry. Errors: PERMISSION_DENIED (the directory may only be read), INVALID_ARGUMENT
// (struct_size).
QN_API QN_MUST_USE qn_status_t qn_cache_dir_import(qn_cache_dir_t* dir, qn_cache_bundle_t* bundle,
                                                   void (*on_bad)(void* self, qn_cache_key_t key,
                                                                  const char* reason),
                                                   void* self,
                                                   qn_cache_import_report_t* out_report);

// Makes a pair of keys for signing: the files PREFIX.pub and PREFIX.key (mode 0600, hexadecimal).
// Errors: FAILED_PRECONDITION (one of them exists), UNAVAILABLE (libquern-sodium.so is not
// installed), INVALID_ARGUMENT (an empty prefix, or one that is too long), NOT_FOUND (no such
// folder), PERMISSION_DENIED, IO.
QN_API QN_MUST_USE qn_status_t qn_cache_make_keys(const char* prefix);

// ------------------------------------------------------------------------------------ engines
//
// These calls work on the cache directory of an engine, and load no code.

// Puts the entry of a key into the engine's cache directory without loading its code, so that the
// target may be of another machine. Asks the directory and the bundles first. Compiles in the
// calling thread, and returns when the entry can be read. Of `options` (may be NULL) tier,
// is_checked and miss are used: with QN_MISS_FAIL it only asks, opens no compiler and needs no
// directory. `out_info` (may be NULL) receives the key, the source (COMPILED, DISK or BUNDLE) and
// the times; the key also after an error. Errors: INVALID_ARGUMENT (options), COMPILE_FORBIDDEN
// (the key is not cached, and QN_MISS_FAIL or the option `jit` forbids a compile),
// FAILED_PRECONDITION (the engine has no directory that it may write), IO (the entry was not
// written), DEADLINE_EXCEEDED (it was not written within a minute), OUT_OF_MEMORY; those of
// compiles (qn_engine_executable).
QN_API QN_MUST_USE qn_status_t qn_engine_compile(qn_engine_t* engine, qn_module_t* module,
                                                 qn_target_t* target,
                                                 const qn_lookup_options_t* options,
                                                 qn_lookup_info_t* out_info);

// An entry of an engine's directory, as the lookup that made it. Borrowed for the callback.
typedef struct qn_cached_lookup {
  size_t struct_size;   // of the library
  qn_cache_key_t key;   // of the entry
  qn_module_t* module;  // of the lookup
  qn_target_t* target;  // of the lookup
  qn_tier_t tier;       // of the lookup
  bool is_checked;      // of the lookup
} qn_cached_lookup_t;
// What qn_engine_cached found.
typedef struct qn_cached_report {
  size_t struct_size;              // sizeof(qn_cached_report_t)
  uint64_t entry_count;            // all entries of the directory
  uint64_t lookup_count;           // for which the callback was called
  uint64_t without_module_count;   // that do not carry their module
  uint64_t other_namespace_count;  // of other namespaces than the engine's
  uint64_t bad_count;              // damaged or unreadable
} qn_cached_report_t;
// Calls back for each entry of the engine's directory, whichever compiler made it, in no order,
// until the callback returns false. `out_report` may be NULL. Errors: FAILED_PRECONDITION (the
// engine has no directory), INVALID_ARGUMENT (struct_size), the errors of a listing.
QN_API QN_MUST_USE qn_status_t qn_engine_cached(qn_engine_t* engine,
                                                bool (*on_lookup)(void* self,
                                                                  const qn_cached_lookup_t* lookup),
                                                void* self, qn_cached_report_t* out_report);

// An entry that did not compile to the same bytes. Borrowed for the callback.
typedef struct qn_recompile_difference {
  size_t struct_size;    // of the library
  qn_cache_key_t key;    // of the entry
  const char* section;   // "metadata" or "payload"
  uint64_t offset;       // of the first difference in the section
  uint64_t cached_size;  // of the cached section
  uint64_t made_size;    // of the new section
  uint8_t cached[8];     // cached bytes from the offset on
  uint8_t made[8];       // new bytes from the offset on
  size_t cached_count;   // how many of `cached` there are
  size_t made_count;     // how many of `made` there are
} qn_recompile_difference_t;

// Which entries are compiled again.
typedef struct qn_recompile_options {
  size_t struct_size;  // sizeof(qn_recompile_options_t)
  uint64_t count;      // entries of the sample at most; 0: all
  uint64_t seed;       // chooses the sample: the same entries and seed give the same one
  // Called for each entry that compiles to other bytes.
  void (*on_difference)(void* self, const qn_recompile_difference_t* difference);
  // Called for each entry that the generator does not compile again.
  void (*on_failure)(void* self, qn_cache_key_t key, const char* message);
  // Called before each compile. False ends the run early.
  bool (*on_progress)(void* self, uint64_t done, uint64_t total);
  void* self;  // passed to the callbacks, each of which may be NULL
} qn_recompile_options_t;

// What compiling again found.
typedef struct qn_recompile_report {
  size_t struct_size;             // sizeof(qn_recompile_report_t)
  uint64_t entry_count;           // in the directory
  uint64_t same_count;            // compiled again to the same bytes
  uint64_t different_count;       // to other bytes: a defect of the generator or a forged entry
  uint64_t failed_count;          // not compiled again at all
  uint64_t other_codegen_count;   // skipped: made by a generator that is not here
  uint64_t without_module_count;  // skipped: the entry does not carry its module
  uint64_t bad_count;             // skipped: damaged or unreadable
} qn_recompile_report_t;

// Compiles a random sample of the directory's entries again, and compares metadata and payload byte
// for byte: code generation is deterministic. Takes entries in a random order until `count` of them
// were compiled. Skips and counts entries that cannot be compiled here (another generator's,
// without their module). Loads nothing, so the machine need not suit the targets. Compiles in the
// calling thread. `options` and `out_report` may be NULL. Errors: INVALID_ARGUMENT (options,
// struct_size), FAILED_PRECONDITION (the engine has no directory), UNAVAILABLE (a generator cannot
// be opened), the errors of a listing.
QN_API QN_MUST_USE qn_status_t qn_engine_recompile(qn_engine_t* engine,
                                                   const qn_recompile_options_t* options,
                                                   qn_recompile_report_t* out_report);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_CACHE_H_
