// SPDX-License-Identifier: Apache-2.0
// jit/engine/config.c: reads the options of options.inc from the program and the environment.
#include "jit/engine/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/env.h"
#include "base/log.h"

typedef enum option_type { STRING, CHOICE, SIZE, COUNT, TIME, BOOL } option_type_t;

static const struct {
  const char* name;
  const char* environment;
  const char* default_text;
  option_type_t type;
} option_table[QN__SETTING_COUNT] = {
#define QN_OPTION(name, environment, type, default_text, doc) \
  {#name, environment, default_text, type},
#include "quern/options.inc"
#undef QN_OPTION
};

// The words of each option that takes one of several words.
static const struct {
  qn__setting_t option;
  const char* words[5];
} choice_table[] = {
    // In the order of qn_cache_mode_t.
    {QN__SETTING_cache_mode, {"", "off", "ro", "rw", "refresh"}},
    {QN__SETTING_jit, {"allow", "forbid"}},
    {QN__SETTING_remote_role, {"read", "write"}},
};

typedef struct unit {
  const char* suffix;
  uint64_t factor;
} unit_t;

static bool parse_number(const char* text, const unit_t* units, size_t unit_count, uint64_t* out) {
  if (!isdigit((unsigned char)text[0])) return false;
  errno = 0;
  char* end;
  uint64_t number = strtoull(text, &end, 10);
  if (errno != 0) return false;
  while (*end == ' ') end++;
  for (size_t i = 0; i < unit_count; i++) {
    if (strcmp(end, units[i].suffix) == 0) {
      return !__builtin_mul_overflow(number, units[i].factor, out);
    }
  }
  return number == 0 && *end == '\0' && (*out = 0, true);
}

bool qn__size_parse(const char* text, uint64_t* out_bytes) {
  static const unit_t units[] = {{"", 1},
                                 {"B", 1},
                                 {"kB", 1000},
                                 {"KiB", 1024},
                                 {"MB", 1000000},
                                 {"MiB", 1048576},
                                 {"GB", 1000000000},
                                 {"GiB", 1073741824},
                                 {"TB", 1000000000000},
                                 {"TiB", 1099511627776}};
  return parse_number(text, units, QN_COUNT_OF(units), out_bytes);
}

bool qn__time_parse(const char* text, uint64_t* out_ns) {
  static const unit_t units[] = {{"ns", 1},
                                 {"us", 1000},
                                 {"ms", 1000000},
                                 {"s", 1000000000},
                                 {"min", UINT64_C(60000000000)},
                                 {"h", UINT64_C(3600000000000)},
                                 {"d", UINT64_C(86400000000000)}};
  return parse_number(text, units, QN_COUNT_OF(units), out_ns) && *out_ns <= INT64_MAX;
}

static bool parse_count(const char* text, uint64_t* out) {
  static const unit_t units[] = {{"", 1}};
  return parse_number(text, units, QN_COUNT_OF(units), out);
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

static qn_status_t parse_choice(qn__config_t* config, qn__setting_t option) {
  size_t row = 0;
  while (row < QN_COUNT_OF(choice_table) && choice_table[row].option != option) row++;
  if (row == QN_COUNT_OF(choice_table)) return QN_OK;  // `log`: the command's, which warns
  char expected[64] = "";
  const char* const* words = choice_table[row].words;
  for (size_t i = 0; i < QN_COUNT_OF(choice_table[row].words) && words[i]; i++) {
    if (!words[i][0]) continue;
    if (strcmp(config->values[option], words[i]) == 0) {
      config->numbers[option] = i;
      return QN_OK;
    }
    bool is_last = i + 1 == QN_COUNT_OF(choice_table[row].words) || !words[i + 1];
    size_t size = strlen(expected);
    (void)snprintf(expected + size, sizeof expected - size, "%s%s",
                   size == 0 ? ""
                   : is_last ? " or "
                             : ", ",
                   words[i]);
  }
  return bad_value(config, option, expected);
}

static qn_status_t parse_value(qn__config_t* config, qn__setting_t option) {
  const char* value = config->values[option];
  uint64_t* number = &config->numbers[option];
  switch (option_table[option].type) {
    case STRING:
      return QN_OK;
    case CHOICE:
      return parse_choice(config, option);
    case SIZE:
      return qn__size_parse(value, number) ? QN_OK : bad_value(config, option, "a size, as 2GiB");
    case COUNT:
      return parse_count(value, number) ? QN_OK : bad_value(config, option, "a number");
    case TIME:
      return qn__time_parse(value, number) ? QN_OK : bad_value(config, option, "a time, as 200ms");
    case BOOL:
      if (strcmp(value, "1") != 0 && strcmp(value, "0") != 0) {
        return bad_value(config, option, "0 or 1");
      }
      *number = value[0] == '1';
      return QN_OK;
  }
  return QN_OK;
}

static qn_status_t parse_values(qn__config_t* config) {
  for (qn__setting_t option = 0; option < QN__SETTING_COUNT; option++) {
    QN_TRY(parse_value(config, option));
  }
  config->cache_mode = (qn_cache_mode_t)config->numbers[QN__SETTING_cache_mode];
  if (config->numbers[QN__SETTING_cache_max_size] == 0) {
    return bad_value(config, QN__SETTING_cache_max_size, "a size above 0, as 2GiB");
  }
  if (config->numbers[QN__SETTING_cache_max_entries] == 0) {
    return bad_value(config, QN__SETTING_cache_max_entries, "a number above 0");
  }
  return QN_OK;
}

// Makes the directory by the rules of XDG, where neither the program nor QUERN_CACHE_DIR names one.
// Leaves it empty without a home.
static qn_status_t default_cache_dir(qn__config_t* config) {
  const char* xdg = qn__env_get("XDG_CACHE_HOME");
  const char* home = qn__env_get("HOME");
  // The specification says that relative paths are ignored.
  bool has_xdg = xdg && xdg[0] == '/';
  if (!has_xdg && !(home && home[0] == '/')) return QN_OK;
  qn__buffer_t path;
  qn__buffer_init(&path, config->allocator);
  qn__buffer_cstr(&path, has_xdg ? xdg : home);
  qn__buffer_cstr(&path, has_xdg ? "/quern" : "/.cache/quern");
  qn_status_t status = qn__buffer_status(&path, "the path of the cache directory");
  if (qn_ok(status)) {
    status = set(config, QN__SETTING_cache_dir, (const char*)path.data,
                 has_xdg ? "XDG_CACHE_HOME" : "HOME");
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
  const char* runtime_dir = qn__env_get("XDG_RUNTIME_DIR");
  if (!runtime_dir || runtime_dir[0] != '/') return QN_OK;
  config->runtime_dir = qn__copy_cstr(config->allocator, qn__str(runtime_dir));
  return config->runtime_dir ? QN_OK : qn__out_of_memory("the options of an engine");
}

static qn_status_t read_setting(qn__config_t* config, const qn_setting_t* setting) {
  const char* name = setting->name ? setting->name : "";
  const char* nearest = NULL;
  size_t best = 4;
  for (qn__setting_t option = 0; option < QN__SETTING_COUNT; option++) {
    size_t distance = qn__edit_distance(qn__str(option_table[option].name), qn__str(name), best);
    if (distance == 0) return set(config, option, setting->value ? setting->value : "", "program");
    if (distance >= best) continue;
    best = distance;
    nearest = option_table[option].name;
  }
  if (nearest) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "unknown option '%s'; did you mean '%s'?",
                          name, nearest);
  }
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "unknown option '%s'; 'quern config' lists those that there are", name);
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
    QN_TRY(
        set(config, QN__SETTING_cache_mode, choice_table[0].words[options->cache_mode], "program"));
  }
  if (options->cache_max_bytes) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64, options->cache_max_bytes);
    QN_TRY(set(config, QN__SETTING_cache_max_size, text, "program"));
  }
  if (options->generator_dir) {
    QN_TRY(set(config, QN__SETTING_generator_dir, options->generator_dir, "program"));
  }
  if (options->cache_namespace) {
    QN_TRY(set(config, QN__SETTING_cache_namespace, options->cache_namespace, "program"));
  }
  for (size_t i = 0; i < options->setting_count; i++) {
    QN_TRY(read_setting(config, &options->settings[i]));
  }
  return QN_OK;
}

static qn_status_t fill(qn__config_t* config, const qn_engine_options_t* options) {
  for (qn__setting_t option = 0; option < QN__SETTING_COUNT; option++) {
    QN_TRY(set(config, option, option_table[option].default_text, "default"));
  }
  if (!options->ignores_environment) QN_TRY(read_environment(config));
  QN_TRY(read_program(config, options));
  QN_TRY(parse_values(config));
  bool is_lost = !options->ignores_environment && config->cache_mode != QN_CACHE_OFF &&
                 strcmp(config->origins[QN__SETTING_cache_dir], "default") == 0;
  if (is_lost) {
    qn__log(QN_LOG_WARN,
            "no cache directory: neither QUERN_CACHE_DIR, XDG_CACHE_HOME nor HOME is "
            "set to one, so code is kept in memory only");
  }
  return QN_OK;
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
  qn__free_cstr(config->allocator, config->runtime_dir);
  memset(config, 0, sizeof *config);
}
