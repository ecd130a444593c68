// base/struct_size.h: the structs of the interface that begin with `struct_size`, between programs
// and libraries of different versions.
//
// A program may be older than the library (its structs are shorter: members that it does not know
// have their default, zero) or newer (its structs are longer: the members that this library does
// not know must be zero).
#ifndef QUERN_BASE_STRUCT_SIZE_H_
#define QUERN_BASE_STRUCT_SIZE_H_

#include "base/base.h"

// Copies a struct that a program filled to `out`, which has the `size` of this library and receives
// it as struct_size. `given` NULL: all defaults. Errors: INVALID_ARGUMENT naming `type` and the
// sizes: struct_size does not hold itself or is beyond 4 KiB, or a member beyond `size` is set.
qn_status_t qn__struct_read(const char* type, const void* given, void* out, size_t size);

// Declares `name`, a copy of what the program filled, or returns the error.
#define QN_STRUCT_READ(type, given, name) \
  type name;                              \
  QN_TRY(qn__struct_read(#type, (given), &name, sizeof name))

#endif  // QUERN_BASE_STRUCT_SIZE_H_
