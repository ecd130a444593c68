// base/struct_size.c: reads structs of programs of other versions.
#include "base/struct_size.h"

// Larger than any struct of the interface will be: a size beyond it was never set.
#define LARGEST_STRUCT 4096

static size_t stated_size(const void* given) {
  size_t size;
  memcpy(&size, given, sizeof size);
  return size >= sizeof size && size <= LARGEST_STRUCT ? size : 0;
}

// Checks that struct_size holds itself and is a size.
static qn_status_t check_size(const char* type, const void* given) {
  if (!given || stated_size(given)) return QN_OK;
  size_t size;
  memcpy(&size, given, sizeof size);
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: struct_size is %zu; set it to sizeof(%s)",
                        type, size, type);
}

qn_status_t qn__struct_read(const char* type, const void* given, void* out, size_t size) {
  QN_TRY(check_size(type, given));
  memset(out, 0, size);
  if (given) {
    size_t stated = stated_size(given);
    if (stated > size && !qn__is_zero((const uint8_t*)given + size, stated - size)) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "%s: struct_size is %zu, of which this library knows %zu bytes, and a "
                            "member beyond them is set",
                            type, stated, size);
    }
    memcpy(out, given, stated < size ? stated : size);
  }
  memcpy(out, &size, sizeof size);
  return QN_OK;
}
