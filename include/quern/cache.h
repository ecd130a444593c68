// quern/cache.h: looking at and caring for a cache directory, and making bundles, apart from any
// engine.
//
// An engine uses its cache by itself (quern.h); these calls are for tools. A cache directory holds
// code: only its owner may write it (docs/cache-format.md). A bundle is one read-only file of many
// entries, to ship with an image (docs/bundles.md). Any thread; several processes at once are fine.
// Directories and bundles may be used by several threads, but must not be closed under them.
// Callbacks run in the calling thread. Calls that list, survey or verify end with IO when the
// directory cannot be listed; single files that cannot be read are counted, not errors.
#ifndef QUERN_CACHE_H_
#define QUERN_CACHE_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_cache_dir qn_cache_dir_t;

// Opens a directory that exists. Owned: qn_cache_dir_close. Errors: NOT_FOUND; PERMISSION_DENIED
// with the rule that it breaks (not owned by the user, writable by others, a symbolic link);
// INVALID_ARGUMENT, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_open(const char* path, qn_cache_dir_t** out_dir);
// Closes the directory. Entries that were read stay valid.
QN_API void qn_cache_dir_close(qn_cache_dir_t* dir);

typedef struct qn_cache_entry_info {
  size_t struct_size;  // of the library
  qn_cache_key_t key;
  uint64_t size_bytes;  // of the file
  int64_t created_s;    // Unix time
  int64_t used_s;       // Unix time of the last use, to the day
} qn_cache_entry_info_t;

// Calls back for each entry, in no order, until the callback returns false.
QN_API QN_MUST_USE qn_status_t
qn_cache_dir_list(qn_cache_dir_t* dir,
                  bool (*on_entry)(void* self, const qn_cache_entry_info_t* info), void* self);

// What a directory holds.
typedef struct qn_cache_usage {
  size_t struct_size;  // sizeof(qn_cache_usage_t)
  uint64_t entry_count;
  uint64_t size_bytes;
  uint64_t temporary_count;  // files being written, or left by a process that died
} qn_cache_usage_t;
// Counts what the directory holds, by listing it. Errors: IO.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_usage(qn_cache_dir_t* dir, qn_cache_usage_t* out_usage);

// What the beginning of an entry says of it. Strings are terminated and borrowed for the call; they
// are NULL, and the numbers 0, for a file whose beginning is not that of an entry. The rest of the
// file is not looked at: qn_cache_dir_verify does.
typedef struct qn_cache_summary {
  size_t struct_size;  // of the library
  const qn_cache_entry_info_t* info;
  uint64_t compile_ns;  // what making it cost
  uint64_t code_bytes;
  const char* target;  // canonical JSON
  const char* generator;
  const char* options;  // "tier=full checked=0"
  const char* cache_namespace;
} qn_cache_summary_t;
// Calls back for each entry, in no order, until the callback returns false: an open and a read per
// entry, of at most 16 KiB. Errors: IO, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t
qn_cache_dir_survey(qn_cache_dir_t* dir,
                    bool (*on_entry)(void* self, const qn_cache_summary_t* summary), void* self);

// The place of a directory. What the system does not tell is 0.
typedef struct qn_cache_place {
  size_t struct_size;   // sizeof(qn_cache_place_t)
  uint64_t free_bytes;  // of the file system, for this user
  uint64_t total_bytes;
  uint64_t lock_count;  // keys that processes of this machine are making
  int64_t swept_s;      // Unix time of the last sweep
} qn_cache_place_t;
// Asks the system about the place of the directory.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_place(qn_cache_dir_t* dir, qn_cache_place_t* out_place);

// The parts of one entry, after verification. Borrowed until freed.
typedef struct qn_cache_section {
  const char* name;  // "target", "codegen", ...; "payload" for the code
  const char* text;  // printable value, or NULL for bytes
  const void* data;
  size_t size_bytes;
} qn_cache_section_t;
typedef struct qn_cache_entry {
  size_t struct_size;  // of the library
  const qn_cache_entry_info_t* info;
  uint64_t compile_ns;  // what making it cost
  size_t section_count;
  const qn_cache_section_t* sections;
} qn_cache_entry_t;
// Reads the entry whose key begins with `key_prefix`: 4 to 32 digits that fit one entry only.
// Errors: NOT_FOUND, INVALID_ARGUMENT (ambiguous), DATA_LOSS (with the reason), PERMISSION_DENIED
// (a file that is not trusted), IO, OUT_OF_MEMORY. Owned: qn_cache_entry_free; it outlives the
// directory.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_read(qn_cache_dir_t* dir, const char* key_prefix,
                                                 qn_cache_entry_t** out_entry);
// Frees an entry.
QN_API void qn_cache_entry_free(qn_cache_entry_t* entry);

typedef struct qn_cache_verify_report {
  size_t struct_size;  // sizeof(qn_cache_verify_report_t)
  uint64_t good_count;
  uint64_t bad_count;
  uint64_t removed_count;     // bad ones that were deleted
  uint64_t unreadable_count;  // input/output errors: left alone
} qn_cache_verify_report_t;
// Reads and checks every entry; damaged ones are removed when `is_healing`. `on_bad` (may be NULL)
// hears of each with the reason; both are borrowed for the call. Errors: IO; damage is none.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_verify(qn_cache_dir_t* dir, bool is_healing,
                                                   void (*on_bad)(void* self, qn_cache_key_t key,
                                                                  const char* reason),
                                                   void* self,
                                                   qn_cache_verify_report_t* out_report);

// Removes every entry and stale temporary file; unknown files stay. `*out_removed_count` is how
// many entries went. Errors: PERMISSION_DENIED (the directory may only be read).
QN_API QN_MUST_USE qn_status_t qn_cache_dir_clear(qn_cache_dir_t* dir, uint64_t* out_removed_count);

// ------------------------------------------------------------------------------------ bundles

typedef struct qn_cache_bundle qn_cache_bundle_t;

// Opens a bundle. Owned: qn_cache_bundle_close. `public_key_files`: it must be signed by one of
// these keys; with none, a signature is not looked at. A file whose tail is missing opens with the
// entries that are whole. Errors: NOT_FOUND; PERMISSION_DENIED with the rule that it breaks (a
// symbolic link, another owner, writable by others, not signed as asked); DATA_LOSS (not a bundle);
// UNAVAILABLE (signatures need libquern-sodium.so); SYNTAX (a key file); IO; OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_open(const char* path,
                                                    const char* const* public_key_files,
                                                    size_t public_key_count,
                                                    qn_cache_bundle_t** out_bundle);
// Closes the bundle. Entries that were read stay valid.
QN_API void qn_cache_bundle_close(qn_cache_bundle_t* bundle);

typedef struct qn_cache_bundle_facts {
  size_t struct_size;  // sizeof(qn_cache_bundle_info_t)
  uint64_t entry_count;
  uint64_t size_bytes;  // of the file
  bool is_truncated;    // its tail is missing; the entries that are whole count
  bool is_verified;     // it is signed by one of the keys that were asked for
  char signer[65];      // public key in hexadecimal, "" unless signed
} qn_cache_bundle_info_t;
// Describes an open bundle.
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_info(const qn_cache_bundle_t* bundle,
                                                    qn_cache_bundle_info_t* out_info);
// The identities of the code generators that made the entries, one call each.
QN_API void qn_cache_bundle_generators(const qn_cache_bundle_t* bundle,
                                       void (*on_generator)(void* self, const char* identity),
                                       void* self);
// Calls back for each entry, by rising key, until the callback returns false. `used_s` is 0.
QN_API QN_MUST_USE qn_status_t
qn_cache_bundle_list(qn_cache_bundle_t* bundle,
                     bool (*on_entry)(void* self, const qn_cache_entry_info_t* info), void* self);
// Reads one entry as qn_cache_dir_read does, with the same errors.
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_read(qn_cache_bundle_t* bundle,
                                                    const char* key_prefix,
                                                    qn_cache_entry_t** out_entry);
// Reads and checks every entry as qn_cache_dir_verify does; removes nothing.
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_verify(
    qn_cache_bundle_t* bundle, void (*on_bad)(void* self, qn_cache_key_t key, const char* reason),
    void* self, qn_cache_verify_report_t* out_report);

typedef struct qn_cache_write_options {
  size_t struct_size;           // sizeof(qn_cache_write_options_t)
  const char* secret_key_file;  // signs the bundle; NULL: not signed
  // Chooses; NULL: every entry. The entry is borrowed for the call.
  bool (*wants)(void* self, const qn_cache_entry_t* entry);
  // Hears of damaged entries, which are left out; NULL is fine.
  void (*on_bad)(void* self, qn_cache_key_t key, const char* reason);
  void* self;  // of the two
  // Times of creation and of compiling become 0: the bundle then depends on keys and code alone,
  // and two machines that compile the same write the same bytes.
  bool is_timeless;
  // Keeps the entries of the bundle at the path and adds to them. A new file takes its place;
  // readers that have the old one open keep it. Of two processes that append at the same time, the
  // one that finishes last wins.
  bool is_appending;
} qn_cache_write_options_t;
typedef struct qn_cache_write_report {
  size_t struct_size;  // sizeof(qn_cache_write_report_t)
  uint64_t written_count;
  uint64_t written_bytes;   // of the entries
  uint64_t unwanted_count;  // not chosen
  uint64_t bad_count;       // damaged, left out
} qn_cache_write_report_t;
// Writes a bundle of the entries of a directory (may be NULL) and of bundles; of equal keys the
// last source's counts. Every entry is verified; the file appears under its name whole or not at
// all; the same entries give the same bytes. `options` and `out_report` may be NULL. Errors:
// NOT_FOUND (nothing to write), INVALID_ARGUMENT, PERMISSION_DENIED, UNAVAILABLE, SYNTAX (the key),
// IO, OUT_OF_MEMORY; appending: FAILED_PRECONDITION and those of opening.
QN_API QN_MUST_USE qn_status_t qn_cache_bundle_write(const char* path, qn_cache_dir_t* dir,
                                                     qn_cache_bundle_t* const* bundles,
                                                     size_t bundle_count,
                                                     const qn_cache_write_options_t* options,
                                                     qn_cache_write_report_t* out_report);

typedef struct qn_cache_import_report {
  size_t struct_size;  // sizeof(qn_cache_import_report_t)
  uint64_t imported_count;
  uint64_t present_count;  // the directory had them already, whole
  uint64_t bad_count;      // damaged in the bundle
  uint64_t failed_count;   // could not be written
} qn_cache_import_report_t;
// Puts the entries of a bundle into a directory. `on_bad` (may be NULL) hears of those that stay
// out. Errors: PERMISSION_DENIED (the directory may only be read), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_cache_dir_import(qn_cache_dir_t* dir, qn_cache_bundle_t* bundle,
                                                   void (*on_bad)(void* self, qn_cache_key_t key,
                                                                  const char* reason),
                                                   void* self,
                                                   qn_cache_import_report_t* out_report);

// Makes a pair of keys for signing: the files PREFIX.pub and PREFIX.key (mode 0600, hexadecimal).
// Errors: FAILED_PRECONDITION (one of them exists), UNAVAILABLE, PERMISSION_DENIED, NOT_FOUND, IO.
QN_API QN_MUST_USE qn_status_t qn_cache_make_keys(const char* prefix);

// ------------------------------------------------------------------------------------ an engine's

// Puts the entry of a key into the engine's cache directory without loading its code, so that the
// target may be of another machine. Asks the directory and the bundles first; returns when the
// entry can be read. Compiles in the calling thread. Of `options` (may be NULL) tier, is_checked
// and miss count: with QN_MISS_FAIL nothing is compiled, no compiler is opened and no directory is
// needed. `out_info` (may be NULL) receives the key, the source (COMPILED, DISK or BUNDLE) and the
// times; the key also after an error. Errors: INVALID_ARGUMENT; COMPILE_FORBIDDEN (QN_MISS_FAIL or
// option `jit`, and the key is not cached); FAILED_PRECONDITION when the engine has no directory
// that it may write; IO or DEADLINE_EXCEEDED when the entry was not written; those of the code
// generator; OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_compile(qn_engine_t* engine, qn_module_t* module,
                                                 qn_target_t* target,
                                                 const qn_lookup_options_t* options,
                                                 qn_lookup_info_t* out_info);

// An entry of an engine's directory as the lookup that made it. Borrowed for the callback.
typedef struct qn_cached_lookup {
  size_t struct_size;  // of the library
  qn_cache_key_t key;
  qn_module_t* module;
  qn_target_t* target;
  qn_tier_t tier;
  bool is_checked;
} qn_cached_lookup_t;
typedef struct qn_cached_report {
  size_t struct_size;             // sizeof(qn_cached_report_t)
  uint64_t entry_count;           // all entries of the directory
  uint64_t lookup_count;          // for which the callback was called
  uint64_t without_module_count;  // made before entries carried their module
  uint64_t other_namespace_count;
  uint64_t bad_count;  // damaged or unreadable
} qn_cached_report_t;
// Calls back for each entry of the engine's directory, whichever compiler made it, in no order,
// until the callback returns false. `out_report` may be NULL. Errors: INVALID_ARGUMENT,
// FAILED_PRECONDITION when the engine has no directory, IO, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_engine_cached(qn_engine_t* engine,
                                                bool (*on_lookup)(void* self,
                                                                  const qn_cached_lookup_t* lookup),
                                                void* self, qn_cached_report_t* out_report);

// A byte that came out otherwise. Borrowed for the callback.
typedef struct qn_recompile_difference {
  size_t struct_size;  // of the library
  qn_cache_key_t key;
  const char* section;   // "metadata" or "payload"
  uint64_t offset;       // of the first difference in the section
  uint64_t cached_size;  // of the section
  uint64_t made_size;
  uint8_t cached[8];  // from the offset on
  uint8_t made[8];
  size_t cached_count;  // how many of them there are
  size_t made_count;
} qn_recompile_difference_t;

typedef struct qn_recompile_options {
  size_t struct_size;  // sizeof(qn_recompile_options_t)
  uint64_t count;      // entries of the sample at most; 0: all
  uint64_t seed;       // chooses the sample: the same entries and seed give the same one
  void (*on_difference)(void* self, const qn_recompile_difference_t* difference);
  // Hears of each entry that the generator refuses to make again.
  void (*on_failure)(void* self, qn_cache_key_t key, const char* message);
  // Called before each compile; false ends the run early.
  bool (*on_progress)(void* self, uint64_t done, uint64_t total);
  void* self;  // of the callbacks, each of which may be NULL
} qn_recompile_options_t;

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

// Compiles a random sample of the directory's entries again and compares metadata and payload byte
// for byte: code generation is deterministic. Entries are looked at in a random order until
// `count` of them were compiled; those that cannot be (another generator's, without their module)
// are skipped and counted. The machine need not suit the entries' targets: nothing is loaded.
// Compiles in the calling thread. `options` may be NULL. Errors: INVALID_ARGUMENT,
// FAILED_PRECONDITION when the engine has no directory, IO, OUT_OF_MEMORY, UNAVAILABLE when a
// generator cannot be opened.
QN_API QN_MUST_USE qn_status_t qn_engine_recompile(qn_engine_t* engine,
                                                   const qn_recompile_options_t* options,
                                                   qn_recompile_report_t* out_report);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_CACHE_H_
