// jit/config.c: reading options.inc against the program's options and the environment.
//
// Thread rule: called while an engine is made. Read next: engine.c.
#include "jit/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/env.h"

static const struct {
  const char* name;
  const char* environment;
  const char* default_text;
  const char* doc;
} option_table[QN__SETTING_COUNT] = {
#define QN_OPTION(name, environment, type, default_text, doc) \
  {#name, environment, default_text, doc},
#include "quern/options.inc"
#undef QN_OPTION
};

bool qn__size_parse(const char* text, uint64_t* out_bytes) {
  static const struct {
    const char* suffix;
    uint64_t factor;
  } suffixes[] = {{"", 1},
                  {"B", 1},
                  {"kB", 1000},
                  {"KiB", 1024},
                  {"MB", 1000000},
                  {"MiB", 1048576},
                  {"GB", 1000000000},
                  {"GiB", 1073741824},
                  {"TB", 1000000000000},
                  {"TiB", 1099511627776}};
  if (!isdigit((unsigned char)text[0])) return false;
  errno = 0;
  char* end;
  uint64_t number = strtoull(text, &end, 10);
  if (errno != 0) return false;
  while (*end == ' ') end++;
  for (size_t i = 0; i < QN_COUNT_OF(suffixes); i++) {
    if (strcmp(end, suffixes[i].suffix) == 0) {
      return !__builtin_mul_overflow(number, suffixes[i].factor, out_bytes);
    }
  }
  return false;
}

static qn_status_t set(qn__config_t* config, qn__setting_t option, const char* value,
                       const char* origin) {
  char* copy = qn__copy_cstr(config->allocator, qn__str(value));
  if (!copy) return qn__out_of_memory("the options of an engine");
  qn__free_cstr(config->allocator, config->values[option]);
  config->values[option] = copy;
  config->origins[option] = origin;
  return QN_OK;
}

static qn_status_t bad_value(const qn__config_t* config, qn__setting_t option,
                             const char* expected) {
  bool is_environment = strcmp(config->origins[option], "environment") == 0;
  return qn_status_make(
      QN_STATUS_INVALID_ARGUMENT, "%s: expected %s, got '%s'",
      is_environment ? option_table[option].environment : option_table[option].name, expected,
      config->values[option]);
}

static qn_status_t parse_bool(const qn__config_t* config, qn__setting_t option, bool* out) {
  const char* value = config->values[option];
  if (strcmp(value, "1") != 0 && strcmp(value, "0") != 0) {
    return bad_value(config, option, "0 or 1");
  }
  *out = value[0] == '1';
  return QN_OK;
}

static const char* const mode_names[] = {NULL, "off", "ro", "rw", "refresh"};

static qn_status_t parse_values(qn__config_t* config) {
  const char* mode = config->values[QN__SETTING_cache_mode];
  for (size_t i = 1; i < QN_COUNT_OF(mode_names); i++) {
    if (strcmp(mode, mode_names[i]) == 0) config->cache_mode = (qn_cache_mode_t)i;
  }
  if (config->cache_mode == QN_CACHE_DEFAULT) {
    return bad_value(config, QN__SETTING_cache_mode, "off, ro, rw or refresh");
  }
  if (!qn__size_parse(config->values[QN__SETTING_cache_max_size], &config->cache_max_bytes) ||
      config->cache_max_bytes == 0) {
    return bad_value(config, QN__SETTING_cache_max_size, "a size such as 2GiB");
  }
  QN_TRY(parse_bool(config, QN__SETTING_perf, &config->has_perf_map));
  return parse_bool(config, QN__SETTING_gdb, &config->has_gdb);
}

// The XDG rule, for when neither the program nor QUERN_CACHE_DIR says. Nothing without a home.
static qn_status_t default_cache_dir(qn__config_t* config) {
  const char* xdg = qn__env_get("XDG_CACHE_HOME");
  const char* home = qn__env_get("HOME");
  // The specification has relative paths ignored.
  bool has_xdg = xdg && xdg[0] == '/';
  if (!has_xdg && !(home && home[0] == '/')) return QN_OK;
  qn__buffer_t path;
  qn__buffer_init(&path, config->allocator);
  qn__buffer_cstr(&path, has_xdg ? xdg : home);
  qn__buffer_cstr(&path, has_xdg ? "/quern" : "/.cache/quern");
  qn_status_t status = qn__buffer_status(&path, "the path of the cache directory");
  if (qn_ok(status)) {
    status = set(config, QN__SETTING_cache_dir, (const char*)path.data, "environment");
  }
  qn__buffer_deinit(&path);
  return status;
}

static qn_status_t read_environment(qn__config_t* config) {
  for (qn__setting_t option = 0; option < QN__SETTING_COUNT; option++) {
    const char* value = qn__env_get(option_table[option].environment);
    if (value) QN_TRY(set(config, option, value, "environment"));
  }
  if (config->values[QN__SETTING_cache_dir][0] == '\0') QN_TRY(default_cache_dir(config));
  return QN_OK;
}

static qn_status_t read_program(qn__config_t* config, const qn_engine_options_t* options) {
  if (options->cache_dir) {
    QN_TRY(set(config, QN__SETTING_cache_dir, options->cache_dir, "program"));
  }
  if (options->cache_mode != QN_CACHE_DEFAULT) {
    if (options->cache_mode < QN_CACHE_OFF || options->cache_mode > QN_CACHE_REFRESH) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "cache_mode: %d is not a qn_cache_mode_t",
                            (int)options->cache_mode);
    }
    QN_TRY(set(config, QN__SETTING_cache_mode, mode_names[options->cache_mode], "program"));
  }
  if (options->cache_max_bytes) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64, options->cache_max_bytes);
    QN_TRY(set(config, QN__SETTING_cache_max_size, text, "program"));
  }
  if (options->generator_dir) {
    QN_TRY(set(config, QN__SETTING_generator_dir, options->generator_dir, "program"));
  }
  return QN_OK;
}

static qn_status_t fill(qn__config_t* config, const qn_engine_options_t* options) {
  for (qn__setting_t option = 0; option < QN__SETTING_COUNT; option++) {
    QN_TRY(set(config, option, option_table[option].default_text, "default"));
  }
  if (!options->ignores_environment) QN_TRY(read_environment(config));
  QN_TRY(read_program(config, options));
  const char* name = options->cache_namespace ? options->cache_namespace : "";
  config->cache_namespace = qn__copy_cstr(config->allocator, qn__str(name));
  if (!config->cache_namespace) return qn__out_of_memory("the options of an engine");
  return parse_values(config);
}

qn_status_t qn__config_init(qn__config_t* config, const qn_engine_options_t* options) {
  memset(config, 0, sizeof *config);
  config->allocator = options->allocator.reallocate ? options->allocator : qn_allocator_default();
  qn_status_t status = fill(config, options);
  if (!qn_ok(status)) qn__config_deinit(config);
  return status;
}

void qn__config_deinit(qn__config_t* config) {
  for (qn__setting_t option = 0; option < QN__SETTING_COUNT; option++) {
    qn__free_cstr(config->allocator, config->values[option]);
  }
  qn__free_cstr(config->allocator, config->cache_namespace);
  memset(config, 0, sizeof *config);
}
