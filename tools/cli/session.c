// SPDX-License-Identifier: Apache-2.0
// tools/cli/session.c: makes engines and modules for the verbs.
//
// This is the only file of the command that reads QUERN_* variables: QUERN_LOG, and QUERN_PLUGINS,
// to which it adds. The library reads the others.
#include "tools/cli/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "quern/device.h"
#include "quern/observe.h"
#include "tools/cli/memory.h"
#include "tools/cli/print.h"
#include "tools/cli/report.h"

static const char* const level_names[] = {"error", "warn", "info", "debug"};
enum { LEVEL_COUNT = sizeof level_names / sizeof level_names[0] };

static void log_line(void* self, qn_log_level_t level, const char* message) {
  (void)self;
  bool is_known = level >= 1 && (int)level <= LEVEL_COUNT;
  print(stderr, "quern: %s: ", is_known ? level_names[level - 1] : "log");
  print_lines(stderr, message);
}

static qn_log_level_t log_level(void) {
  const char* text = getenv("QUERN_LOG");
  if (!text || !text[0]) return QN_LOG_WARN;
  for (int i = 0; i < LEVEL_COUNT; i++) {
    if (strcmp(text, level_names[i]) == 0) return (qn_log_level_t)(i + 1);
  }
  print(stderr, "quern: warn: QUERN_LOG is '%s', expected error, warn, info or debug\n", text);
  return QN_LOG_WARN;
}

qn_status_t session_plugins(const args_t* args) {
  if (!args_takes(args, "plugin")) return QN_OK;
  const char* path = getenv("QUERN_PLUGINS");
  char* list = memory_text(path ? path : "");
  for (int at = 0; (path = args_next(args, "plugin", &at));) {
    const size_t size = strlen(list) + strlen(path) + 2;
    char* longer = memory_zeroed(size, 1);
    (void)snprintf(longer, size, "%s%s%s", list, list[0] ? ":" : "", path);
    free(list);
    list = longer;
  }
  qn_status_t status = qn_plugin_load_list(list);
  // Engines, workers of `quern warm` and children of `quern bench` load them by the variable.
  if (qn_ok(status) && list[0] && setenv("QUERN_PLUGINS", list, 1) != 0) {
    status = qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for QUERN_PLUGINS");
  }
  free(list);
  return status;
}

qn_status_t session_engine_with(const qn_setting_t* settings, size_t count,
                                qn_engine_t** out_engine) {
  qn_log_set_sink(log_level(), log_line, NULL);
  qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = settings, .setting_count = count};
  return qn_engine_create(&options, out_engine);
}

qn_status_t session_engine(qn_engine_t** out_engine) {
  return session_engine_with(NULL, 0, out_engine);
}

qn_status_t session_idle_engine(qn_engine_t** out_engine) {
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_mode = QN_CACHE_OFF};
  return qn_engine_create(&options, out_engine);
}

typedef struct wanted_option {
  const char* name;
  char* value;
} wanted_option_t;

static void take_option(void* self, const char* name, const char* environment, const char* value,
                        const char* origin, const char* doc) {
  (void)environment, (void)origin, (void)doc;
  wanted_option_t* wanted = self;
  if (!wanted->value && strcmp(name, wanted->name) == 0) wanted->value = memory_text(value);
}

char* session_option(qn_engine_t* engine, const char* name) {
  wanted_option_t wanted = {name, NULL};
  qn_engine_config(engine, take_option, &wanted);
  return wanted.value;
}

// Reads the cache directory and the mode from the environment.
static qn_status_t find_directory(char** out_directory, char** out_mode) {
  qn_engine_t* engine = NULL;
  qn_status_t status = session_idle_engine(&engine);
  if (!qn_ok(status)) return status;
  *out_directory = session_option(engine, "cache_dir");
  qn_engine_destroy(engine);
  // An engine with mode "off" would report that mode: this one has no tier instead.
  static const qn_setting_t nothing[] = {
      {"cache_dir", ""}, {"bundles", ""}, {"remote", ""}, {"record", ""}, {"trace", ""}};
  status = session_engine_with(nothing, sizeof nothing / sizeof nothing[0], &engine);
  if (!qn_ok(status)) return status;
  *out_mode = session_option(engine, "cache_mode");
  qn_engine_destroy(engine);
  return QN_OK;
}

qn_status_t session_reading_engine(const char* directory, qn_engine_t** out_engine,
                                   char** out_directory, bool* out_is_there) {
  *out_engine = NULL;
  *out_directory = NULL;
  *out_is_there = false;
  char* mode = NULL;
  qn_status_t status = find_directory(out_directory, &mode);
  if (qn_ok(status) && directory) {
    free(*out_directory);
    *out_directory = memory_text(directory);
  }
  if (qn_ok(status)) {
    struct stat info;
    *out_is_there = stat(*out_directory, &info) == 0;
    // Only "rw" becomes "ro": other modes change which tiers a lookup reads.
    const qn_setting_t settings[] = {{"cache_dir", *out_is_there ? *out_directory : ""},
                                     {"cache_mode", strcmp(mode, "rw") == 0 ? "ro" : mode},
                                     {"record", ""},
                                     {"trace", ""}};
    status = session_engine_with(settings, sizeof settings / sizeof settings[0], out_engine);
  }
  free(mode);
  return status;
}

// ----------------------------------------------------------------------------- devices and kinds

const qn_target_kind_info_t* session_kind(const char* name) {
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    if (strcmp(qn_target_kind_at(i)->name, name) == 0) return qn_target_kind_at(i);
  }
  return NULL;
}

qn_status_t session_device_here(qn_device_t device) {
  qn_attribute_value_t name;
  qn_status_t status = qn_device_attribute(device, QN_ATTRIBUTE_DEVICE_NAME, &name);
  if (qn_status_code(status) != QN_STATUS_NOT_FOUND) return status;
  qn_status_t why = qn_status_make(QN_STATUS_UNAVAILABLE, "%s", qn_status_message(status));
  qn_status_free(status);
  return why;
}

// -------------------------------------------------------------------------------------- modules

// Joins the values of all --set: "d=128,n=4". `*out_text` is empty without one.
static qn_status_t join_set(const args_t* args, text_t* out_text) {
  *out_text = (text_t){0};
  const char* value;
  qn_status_t status = QN_OK;
  for (int at = 0; qn_ok(status) && (value = args_next(args, "set", &at));) {
    if (out_text->size > 0) status = text_append(out_text, ",", 1);
    if (qn_ok(status)) status = text_append(out_text, value, strlen(value));
  }
  return status;
}

qn_status_t session_module(const args_t* args, const char* path,
                           void (*on_diagnostic)(void* self, const qn_diagnostic_t* diagnostic),
                           void* self, qn_module_t** out_module) {
  *out_module = NULL;
  text_t text = {0}, set;
  qn_status_t status = join_set(args, &set);
  if (qn_ok(status)) status = text_read(path, &text);
  qn_parse_options_t options = {.struct_size = sizeof options,
                                .source_name = strcmp(path, "-") == 0 ? "<stdin>" : path,
                                .on_diagnostic = on_diagnostic,
                                .on_diagnostic_self = self,
                                .set = set.data};
  if (qn_ok(status)) status = qn_module_parse(text.data, text.size, &options, out_module);
  text_free(&text);
  text_free(&set);
  return status;
}

bool session_lookup_options(const args_t* args, qn_lookup_options_t* out_options) {
  *out_options = (qn_lookup_options_t){.struct_size = sizeof *out_options};
  const char* tier = args_value(args, "tier", "full");
  if (strcmp(tier, "fast") == 0) {
    out_options->tier = QN_TIER_FAST;
  } else if (strcmp(tier, "full") == 0) {
    out_options->tier = QN_TIER_FULL;
  } else {
    (void)report_usage(args, "--tier is '%s', expected fast or full", tier);
    return false;
  }
  out_options->is_checked = args_has(args, "checked");
  return true;
}

bool session_time(const char* text, int64_t* out_ns) {
  static const struct {
    const char* suffix;
    double factor;
  } units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"min", 6e10}, {"h", 3.6e12}};
  char* end;
  errno = 0;
  double number = strtod(text, &end);
  if (end == text || errno != 0 || !(number > 0)) return false;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    double ns = number * units[i].factor;
    if (strcmp(end, units[i].suffix) != 0 || !(ns >= 1) || ns > 1e18) continue;
    *out_ns = (int64_t)ns;
    return true;
  }
  return false;
}
