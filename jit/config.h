// jit/config.h: the options of an engine: program, then environment, then default, each with its
// origin.
//
// Thread rule: immutable once made. Read next: engine.h.
#ifndef QUERN_JIT_CONFIG_H_
#define QUERN_JIT_CONFIG_H_

#include "base/base.h"
#include "quern/engine.h"

typedef enum qn__setting {
#define QN_OPTION(name, environment, type, default_text, doc) QN__SETTING_##name,
#include "quern/options.inc"
#undef QN_OPTION
  QN__SETTING_COUNT
} qn__setting_t;

typedef struct qn__config {
  qn_allocator_t allocator;
  char* values[QN__SETTING_COUNT];         // as text, never NULL
  const char* origins[QN__SETTING_COUNT];  // "default", "environment", "program"
  char* cache_namespace;
  qn_cache_mode_t cache_mode;
  uint64_t cache_max_bytes;
  bool has_perf_map;
  bool has_gdb;
} qn__config_t;

// Errors: INVALID_ARGUMENT names the option or variable, its value and what is accepted.
qn_status_t qn__config_init(qn__config_t* config, const qn_engine_options_t* options);
void qn__config_deinit(qn__config_t* config);
static inline const char* qn__config_get(const qn__config_t* config, qn__setting_t option) {
  return config->values[option];
}
// "2GiB", "512 MB", "1000000": false unless it is a size.
bool qn__size_parse(const char* text, uint64_t* out_bytes);

#endif  // QUERN_JIT_CONFIG_H_
