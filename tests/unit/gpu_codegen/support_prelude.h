// SPDX-License-Identifier: Apache-2.0
// support_prelude.h: the prelude compiled as C++ for the processor that tests run on.
//
// Thread rule: one thread.
#ifndef QN_TESTS_SUPPORT_PRELUDE_H_
#define QN_TESTS_SUPPORT_PRELUDE_H_

#include <stdbool.h>
#include <stddef.h>

typedef struct prelude_mode {
  const char* name;
  bool is_glsl;
  bool has_fma;
  bool has_int64;
  bool has_float64;
} prelude_mode_t;

enum { PRELUDE_MODE_COUNT = 4 };
// CUDA; GLSL with everything, without a fused fma, and with 32-bit types alone.
extern const prelude_mode_t PRELUDE_MODES[PRELUDE_MODE_COUNT];

// The shared object with all helpers of the mode and `loops`, C++ that uses them and exports what
// prelude_symbol finds. NULL with a message in *out_error; "" when there is no C++ compiler.
void* prelude_build(const prelude_mode_t* mode, const char* loops, const char** out_error);
void* prelude_symbol(void* built, const char* name);
void prelude_free(void* built);

#endif  // QN_TESTS_SUPPORT_PRELUDE_H_
