// quern/status.h: the result of every call that can fail, and how the library gets memory.
//
// A status is one pointer. NULL is success. Anything else is an owned object with a code, a message
// and the chain of what was being done; it must be released with qn_status_free or consumed by
// qn_status_ignore. A status may be handed to another thread; it is not shared by two at once.
#ifndef QUERN_STATUS_H_
#define QUERN_STATUS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QN_API __attribute__((visibility("default")))
#define QN_MUST_USE __attribute__((warn_unused_result))
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

typedef enum qn_status_code {
#define QN_STATUS_CODE(name, value, text, doc) QN_STATUS_##name = value,
#include "quern/status.inc"
#undef QN_STATUS_CODE
} qn_status_code_t;

// NULL is ok. Owned by whoever receives it.
typedef struct qn_status_object* qn_status_t;

#define QN_OK ((qn_status_t)NULL)

static inline bool qn_ok(qn_status_t status) {
  return status == NULL;
}

// Makes a status with a printf message. Never fails: without memory it returns a shared, immutable
// status of code OUT_OF_MEMORY, which may be freed like any other. `code` must not be OK.
QN_API QN_MUST_USE qn_status_t qn_status_make(qn_status_code_t code, const char* format, ...)
    QN_PRINTF(2, 3);

// Prefixes the message of `status` (consumed) with "context: ". Ok stays ok.
QN_API QN_MUST_USE qn_status_t qn_status_annotate(qn_status_t status, const char* format, ...)
    QN_PRINTF(2, 3);

// The code; QN_STATUS_OK for NULL.
QN_API qn_status_code_t qn_status_code(qn_status_t status);

// The message, without the name of the code; "" for NULL. It is valid UTF-8 without controls but
// line ends and tabs, whatever names and texts it quotes (qn_text_escape). Borrowed until the
// status is freed.
QN_API const char* qn_status_message(qn_status_t status);

// The text of a code, such as "invalid argument". Static storage.
QN_API const char* qn_status_code_text(qn_status_code_t code);

// A copy that is owned by the caller (for errors that several waiters receive).
QN_API QN_MUST_USE qn_status_t qn_status_clone(qn_status_t status);

// Releases a status; NULL is fine.
QN_API void qn_status_free(qn_status_t status);

// Releases a status and returns its code: for callers that decide by code alone.
QN_API qn_status_code_t qn_status_consume(qn_status_t status);

// Copies text from outside for people: a control character (C0, DEL, C1, and those that change the
// direction of writing) and a byte that is not UTF-8 become \x1b or \u202e in letters, so that a
// terminal shows them instead of obeying. `keeps_lines` leaves line ends and tabs. Returns the
// length of the whole copy without its terminator, as snprintf does; a copy that does not fit ends
// early. `out` may be NULL when `capacity` is 0.
QN_API size_t qn_text_escape(const char* text, size_t size, bool keeps_lines, char* out,
                             size_t capacity);

// Memory. `reallocate(self, NULL, 0, n)` allocates, `(self, p, old, n)` resizes, `(self, p, old,
// 0)` frees and returns NULL. Results are aligned to 16 bytes. It returns NULL on failure and must
// be callable from any thread. Objects keep a copy of the allocator that made them.
typedef struct qn_allocator {
  void* self;
  void* (*reallocate)(void* self, void* pointer, size_t old_size_bytes, size_t new_size_bytes);
} qn_allocator_t;

// The C library's allocator.
QN_API qn_allocator_t qn_allocator_default(void);

// Where the library writes bytes. It passes on a status that is not ok, and then writes no more.
typedef struct qn_sink {
  void* self;
  qn_status_t (*write)(void* self, const void* data, size_t size_bytes);
} qn_sink_t;

#ifdef __cplusplus
}
#endif

#endif  // QUERN_STATUS_H_
