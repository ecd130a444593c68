// SPDX-License-Identifier: Apache-2.0
// jit/codegen/generator_info.h: what plugins say of code generators: the objects that are opened at
// a miss, and what their output depends on beside themselves.
#ifndef QUERN_JIT_GENERATOR_INFO_H_
#define QUERN_JIT_GENERATOR_INFO_H_

#include <limits.h>

#include "base/buffer.h"
#include "quern/backend.h"

enum { QN__GENERATOR_NAME_BYTES = 32 };  // with the terminator

typedef struct qn__generator_info {
  qn_generator_info_t given;
  char object[PATH_MAX];  // of the generator; "": the plugin registers its table
} qn__generator_info_t;

// Errors: INVALID_ARGUMENT (no name, an empty one, or one that is too long).
qn_status_t qn__generator_check_name(const char* name);
// Keeps the information of a plugin in `folder`. Errors: INVALID_ARGUMENT (a name or an object that
// can be none), FAILED_PRECONDITION (there is one for the generator, or eight are known).
qn_status_t qn__generator_info_add(const char* folder, const qn_generator_info_t* info);
// Returns what is known about a generator, for the life of the process; NULL: nothing.
const qn__generator_info_t* qn__generator_info_find(const char* name);
// Appends a line for each file: its name, and its build id or the digest of its bytes. Returns the
// first that cannot be read; NULL: none.
const char* qn__generator_info_put_files(const qn__generator_info_t* info, qn__buffer_t* text);

#endif  // QUERN_JIT_GENERATOR_INFO_H_
