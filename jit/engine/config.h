// SPDX-License-Identifier: Apache-2.0
// jit/engine/config.h: the options of an engine, each from the program, else the environment, else
// the default. Immutable once made.
#ifndef QUERN_JIT_CONFIG_H_
#define QUERN_JIT_CONFIG_H_

#include "base/base.h"
#include "quern/quern.h"

typedef enum qn__setting {
#define QN_OPTION(name, environment, type, default_text, doc) QN__SETTING_##name,
#include "quern/options.inc"
#undef QN_OPTION
  QN__SETTING_COUNT
} qn__setting_t;

// Each value is kept as text and, by the type of the option, as a number.
typedef struct qn__config {
  qn_allocator_t allocator;
  char* values[QN__SETTING_COUNT];         // as text, never NULL
  const char* origins[QN__SETTING_COUNT];  // "default", "environment", "program"; for a
                                           // default cache_dir "XDG_CACHE_HOME" or "HOME"
  // SIZE: bytes. COUNT: the number. TIME: nanoseconds. BOOL: 0 or 1. CHOICE: index of the word.
  uint64_t numbers[QN__SETTING_COUNT];
  qn_cache_mode_t cache_mode;
  char* runtime_dir;  // $XDG_RUNTIME_DIR, for locks; NULL: none
} qn__config_t;

// Errors: INVALID_ARGUMENT names the option or variable, its value and what is accepted.
qn_status_t qn__config_init(qn__config_t* config, const qn_engine_options_t* options);
void qn__config_deinit(qn__config_t* config);
static inline const char* qn__config_get(const qn__config_t* config, qn__setting_t option) {
  return config->values[option];
}
static inline uint64_t qn__config_number(const qn__config_t* config, qn__setting_t option) {
  return config->numbers[option];
}
// "2GiB", "512 MB", "1000000": false unless it is a size.
bool qn__size_parse(const char* text, uint64_t* out_bytes);
// "200ms", "30 s", "7d", "0": false unless it is a time.
bool qn__time_parse(const char* text, uint64_t* out_ns);

#endif  // QUERN_JIT_CONFIG_H_
