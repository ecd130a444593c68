// jit/observe/record.h: QUERN_RECORD: a list of what a running service looked up, for `quern warm`.
//
// One line per key, appended by one write each, so that many processes may record into one file;
// the format is that of docs/warm.md. Failures are logged once and never reach a caller. Thread
// rule: any thread; a child of fork may go on. Read next: record.c, record_line.c.
#ifndef QUERN_JIT_RECORD_H_
#define QUERN_JIT_RECORD_H_

#include "base/buffer.h"
#include "quern/backend.h"

typedef struct qn__record qn__record_t;

// `path` "": records nothing, and *out_record is NULL. A file that cannot be opened is logged, not
// raised. Errors: OUT_OF_MEMORY.
qn_status_t qn__record_open(qn_allocator_t allocator, const char* path, qn__record_t** out_record);
void qn__record_close(qn__record_t* record);  // NULL is fine
// Notes what a lookup is for: the same inputs that the key is made of, and a name for people. Each
// key once. NULL is fine.
void qn__record_note(qn__record_t* record, qn_hash128_t key, const qn_compile_request_t* request,
                     const char* name);

// Keys that one process records at most: beyond them a service makes keys without end, and a list
// of them would help nobody.
#define QN__RECORD_MAX_KEYS 65536u

// ---- one line (record_line.c): pure functions

#define QN__RECORD_VERSION 1
// The longest line that is read: a module of the largest size that an entry holds, in base64.
#define QN__RECORD_MAX_LINE_BYTES ((size_t)24 << 20)

// Appends the line with its newline.
void qn__record_format(qn_hash128_t key, const qn_compile_request_t* request, const char* name,
                       qn__buffer_t* buffer);

// A line taken apart. Owned: qn__recorded_deinit.
typedef struct qn__recorded {
  qn_allocator_t allocator;
  qn_hash128_t key;  // that the recording process had
  char* name;
  char* target_json;
  qn_tier_t tier;
  bool is_checked;
  uint8_t* module;
  size_t module_size;
  size_t module_capacity;
} qn__recorded_t;
// `line` without its newline; any bytes are safe. Errors: SYNTAX says what was expected (a line
// that was torn is no JSON), OUT_OF_MEMORY. The module's bytes are not looked at.
qn_status_t qn__record_parse(qn_str_t line, qn_allocator_t allocator, qn__recorded_t* out_recorded);
void qn__recorded_deinit(qn__recorded_t* recorded);

#endif  // QUERN_JIT_RECORD_H_
