// SPDX-License-Identifier: Apache-2.0
// quern/status.h: the result of every call that can fail, and how the library gets memory.
//
// A status is one pointer. NULL is success. Anything else is an owned object with a code and a
// message, which begins with what the library was doing: release it with qn_status_free or
// qn_status_consume. One thread at a time may use a status.
//
//   qn_status_t status = qn_engine_create(NULL, &engine);
//   if (!qn_ok(status)) {
//     fprintf(stderr, "%s\n", qn_status_message(status));
//     qn_status_free(status);
//   }
#ifndef QUERN_STATUS_H_
#define QUERN_STATUS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
// Marks what the library exports.
#define QN_API __attribute__((visibility("default")))
// Makes the compiler warn where a result is not used.
#define QN_MUST_USE __attribute__((warn_unused_result))
// Makes the compiler check the arguments of a printf format.
#define QN_PRINTF(format_index, first_index) \
  __attribute__((format(printf, format_index, first_index)))
#else
#define QN_API
#define QN_MUST_USE
#define QN_PRINTF(format_index, first_index)
#endif

#ifdef __cplusplus
extern "C" {
#endif

// What kind of failure a status is. The values never change.
typedef enum qn_status_code {
#define QN_STATUS_CODE(name, value, text, doc) QN_STATUS_##name = value,
#include "quern/status.inc"
#undef QN_STATUS_CODE
} qn_status_code_t;

// The result of a call: NULL is ok. Owned by the receiver.
typedef struct qn_status_object* qn_status_t;

// The status of success.
#define QN_OK ((qn_status_t)NULL)

// Returns true for success.
static inline bool qn_ok(qn_status_t status) {
  return status == NULL;
}

// Makes a status with a printf message, which it escapes as qn_text_escape does, but for line ends
// and tabs. `code` must not be OK. Never fails: without memory it returns a shared, immutable
// status of code OUT_OF_MEMORY, which is freed as any other.
QN_API QN_MUST_USE qn_status_t qn_status_make(qn_status_code_t code, const char* format, ...)
    QN_PRINTF(2, 3);

// Consumes a status and returns it with "context: " before its message. Ok stays ok. Without memory
// the message stays as it is.
QN_API QN_MUST_USE qn_status_t qn_status_annotate(qn_status_t status, const char* format, ...)
    QN_PRINTF(2, 3);

// Returns the code; OK for NULL.
QN_API qn_status_code_t qn_status_code(qn_status_t status);

// Returns the message, without the text of the code; "" for NULL. It is valid UTF-8 without control
// characters but line ends and tabs, whatever it quotes. Borrowed until the status is freed.
QN_API const char* qn_status_message(qn_status_t status);

// Returns the text of a code, such as "invalid argument"; "unknown code" for other values.
// Static storage.
QN_API const char* qn_status_code_text(qn_status_code_t code);

// Returns an owned copy of a status, such as for several waiters. Never fails, as qn_status_make.
QN_API QN_MUST_USE qn_status_t qn_status_clone(qn_status_t status);

// Frees a status.
QN_API void qn_status_free(qn_status_t status);

// Frees a status and returns its code, for callers that decide by the code alone.
QN_API qn_status_code_t qn_status_consume(qn_status_t status);

// Escapes text from outside so that a terminal shows it instead of obeying it: a control character
// (C0, DEL, C1, and those that change the direction of writing) or a byte that is not UTF-8 becomes
// the letters `\x1b` or `\u202e`. `keeps_lines` leaves line ends and tabs. Writes at most
// `capacity` bytes to `out`, terminated, and ends before an escape that does not fit. Returns the
// length of the whole result without its terminator, as snprintf does. `out` may be NULL if
// `capacity` is 0.
QN_API size_t qn_text_escape(const char* text, size_t size, bool keeps_lines, char* out,
                             size_t capacity);

// How the library gets memory. Objects keep a copy of the allocator that made them.
typedef struct qn_allocator {
  void* self;  // passed to each call
  // Allocates: (self, NULL, 0, n). Resizes: (self, p, old, n). Frees and returns NULL: (self, p,
  // old, 0). Returns memory aligned to 16 bytes, or NULL on failure. Any thread may call it.
  void* (*reallocate)(void* self, void* pointer, size_t old_size_bytes, size_t new_size_bytes);
} qn_allocator_t;

// Returns the C library's allocator.
QN_API qn_allocator_t qn_allocator_default(void);

// Where the library writes bytes.
typedef struct qn_sink {
  void* self;  // passed to each call
  // Takes the next bytes, borrowed for the call. The library writes no more after a status that is
  // not ok, and returns it.
  qn_status_t (*write)(void* self, const void* data, size_t size_bytes);
} qn_sink_t;

#ifdef __cplusplus
}
#endif

#endif  // QUERN_STATUS_H_
