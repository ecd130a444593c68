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

#define QN__RECORD_VERSION 1

// Appends one line with its newline (record_line.c).
void qn__record_format(qn_hash128_t key, const qn_compile_request_t* request, const char* name,
                       qn__buffer_t* buffer);

#endif  // QUERN_JIT_RECORD_H_
