// SPDX-License-Identifier: Apache-2.0
// base/status.c: the status object of quern/status.h: one block with a code and a message.
//
// A status comes from the C library's allocator: a failure must be reportable where no other
// allocator is known. Without memory it is one static object.
//
// Not here: statuses made from errno (fs.c).
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

struct qn_status_object {
  int32_t code;  // negative in the static object
  char message[];
};

// Every function returns this when there is no memory for a message. It is never written or freed.
// The union gives the flexible array its text without a language extension. Each module has a copy
// of this file, and so a static object of its own: its code identifies it, not its address.
typedef struct static_status {
  int32_t code;
  char message[16];
} static_status_t;
static const static_status_t no_memory = {-(int32_t)QN_STATUS_OUT_OF_MEMORY, "out of memory"};
static_assert(offsetof(static_status_t, message) == offsetof(struct qn_status_object, message),
              "the static status must look like an allocated one");

// The type of handles is a mutable pointer; this file writes through none.
static qn_status_t shared_no_memory(void) {
  union {
    const void* from;
    qn_status_t to;
  } view = {&no_memory};
  return view.to;
}

static bool is_shared(qn_status_t status) {
  return status && status->code < 0;
}

// Room for a message of `size` characters and its terminator.
static qn_status_t allocate(qn_status_code_t code, size_t size) {
  size_t total;
  if (!qn__size_add(size, sizeof(struct qn_status_object) + 1, &total)) return NULL;
  qn_status_t status = malloc(total);
  if (status) {
    status->code = (int32_t)code;
    status->message[size] = '\0';
  }
  return status;
}

// Returns the length of the formatted text; 0 when it cannot be formatted.
QN_PRINTF(1, 0) static size_t format_size(const char* format, va_list arguments) {
  int size = vsnprintf(NULL, 0, format, arguments);
  return size > 0 ? (size_t)size : 0;
}

// Replaces a message that quotes control characters by one that shows them. Consumes the status.
static qn_status_t escaped(qn_status_t status) {
  if (!status) return NULL;
  size_t size = strlen(status->message);
  size_t wanted = qn_text_escape(status->message, size, true, NULL, 0);
  if (wanted == size) return status;
  qn_status_t shown = allocate((qn_status_code_t)status->code, wanted);
  if (shown) (void)qn_text_escape(status->message, size, true, shown->message, wanted + 1);
  free(status);
  return shown;
}

qn_status_t qn_status_make(qn_status_code_t code, const char* format, ...) {
  if (!format) format = "";
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  size_t size = format_size(format, arguments);
  va_end(arguments);
  qn_status_t status = allocate(QN_NEVER(code == QN_STATUS_OK) ? QN_STATUS_INTERNAL : code, size);
  if (status && size > 0) (void)vsnprintf(status->message, size + 1, format, again);
  va_end(again);
  status = escaped(status);
  return status ? status : shared_no_memory();
}

qn_status_t qn_status_annotate(qn_status_t status, const char* format, ...) {
  if (!status || !format) return status;
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  size_t context_size = format_size(format, arguments);
  va_end(arguments);
  size_t old_size = strlen(status->message);
  qn_status_t longer = allocate(qn_status_code(status), context_size + 2 + old_size);
  if (longer) {
    (void)vsnprintf(longer->message, context_size + 1, format, again);
    memcpy(longer->message + context_size, ": ", 2);
    memcpy(longer->message + context_size + 2, status->message, old_size);
    longer = escaped(longer);
  }
  if (longer) qn_status_free(status);
  va_end(again);
  return longer ? longer : status;  // without memory only the context is lost
}

qn_status_code_t qn_status_code(qn_status_t status) {
  if (!status) return QN_STATUS_OK;
  return (qn_status_code_t)(is_shared(status) ? -status->code : status->code);
}

const char* qn_status_message(qn_status_t status) {
  return status ? status->message : "";
}

const char* qn_status_code_text(qn_status_code_t code) {
  switch (code) {
#define QN_STATUS_CODE(name, value, text, doc) \
  case QN_STATUS_##name:                       \
    return text;
#include "quern/status.inc"
#undef QN_STATUS_CODE
  }
  return "unknown code";
}

qn_status_t qn_status_clone(qn_status_t status) {
  if (!status || is_shared(status)) return status;
  size_t size = strlen(status->message);
  qn_status_t copy = allocate(qn_status_code(status), size);
  if (!copy) return shared_no_memory();
  memcpy(copy->message, status->message, size);
  return copy;
}

void qn_status_free(qn_status_t status) {
  if (!is_shared(status)) free(status);
}

qn_status_code_t qn_status_consume(qn_status_t status) {
  qn_status_code_t code = qn_status_code(status);
  qn_status_free(status);
  return code;
}
