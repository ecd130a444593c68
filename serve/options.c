// SPDX-License-Identifier: Apache-2.0
// serve/options.c: one table, four sources.
#include "serve/options.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
  KIND_STRING,
  KIND_NUMBER,
  KIND_BYTES,
  KIND_SECONDS,
  KIND_SWITCH
} option_kind_t;

typedef struct option {
  const char* flag;
  option_kind_t kind;
  const char* value;  // default
  const char* unit;
  const char* help;
  size_t offset;  // of the field
} option_t;

static const option_t setting_table[SERVE_OPTION_COUNT] = {
#define SERVE_OPTION(field, flag, kind, value, unit, help) \
  {flag, KIND_##kind, value, unit, help, offsetof(serve_options_t, field)},
#include "serve/options.inc"
#undef SERVE_OPTION
};

static const char* const expected_texts[] = {
    [KIND_STRING] = "a text",
    [KIND_NUMBER] = "a number from 0 to 9223372036854775807",
    [KIND_BYTES] = "a number of bytes, such as 65536, 64K, 16M or 1G",
    [KIND_SECONDS] = "a number of seconds, such as 0.5",
    [KIND_SWITCH] = "true or false",
};

// ------------------------------------------------------------------------------------ values

static bool read_number(const char* text, bool has_unit, uint64_t* out_value) {
  if (!isdigit((unsigned char)*text)) return false;
  char* end;
  errno = 0;
  const unsigned long long number = strtoull(text, &end, 10);
  static const char units[] = "KMG";
  const char* unit = has_unit && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
  const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
  if (errno != 0 || end[unit ? 1 : 0] != '\0' || number > (uint64_t)INT64_MAX >> shift)
    return false;
  *out_value = number << shift;
  return true;
}

static bool read_seconds(const char* text, int64_t* out_value) {
  enum { MAX_SECONDS = 1000000000 };
  char* end;
  if (!isdigit((unsigned char)*text) && *text != '.') return false;
  const double seconds = strtod(text, &end);
  if (*end != '\0' || !(seconds <= (double)MAX_SECONDS)) return false;
  *out_value = (int64_t)(seconds * 1e9 + 0.5);
  return true;
}

static bool read_switch(const char* text, bool* out_value) {
  static const char* const words[] = {"true", "1", "on", "yes", "false", "0", "off", "no"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
    if (strcmp(text, words[i]) != 0) continue;
    *out_value = i < 4;
    return true;
  }
  return false;
}

// Sets an option from text, which is borrowed.
static bool set(serve_options_t* options, const option_t* option, const char* text) {
  char* field = (char*)options + option->offset;
  switch (option->kind) {
    case KIND_STRING:
      *(serve_option_string_t*)(void*)field = text;
      return true;
    case KIND_NUMBER:
    case KIND_BYTES:
      return read_number(text, option->kind == KIND_BYTES, (serve_option_number_t*)(void*)field);
    case KIND_SECONDS:
      return read_seconds(text, (serve_option_seconds_t*)(void*)field);
    case KIND_SWITCH:
      return read_switch(text, (serve_option_switch_t*)(void*)field);
  }
  return false;
}

static qn_status_t refuse(const option_t* option, const char* source, const char* text) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: '%.200s' is not %s", source, text,
                        expected_texts[option->kind]);
}

// ------------------------------------------------------------------------------------ names

static const option_t* find(const char* name, size_t size, char separator) {
  for (size_t i = 0; i < SERVE_OPTION_COUNT; ++i) {
    if (strlen(setting_table[i].flag) != size) continue;
    size_t at = 0;
    while (at < size &&
           (setting_table[i].flag[at] == '-' ? separator : setting_table[i].flag[at]) == name[at])
      ++at;
    if (at == size) return &setting_table[i];
  }
  return NULL;
}

// Returns the number of edits between two short names.
static size_t distance(const char* a, size_t a_size, const char* b) {
  enum { LONGEST = 40 };
  const size_t b_size = strlen(b);
  if (a_size >= LONGEST || b_size >= LONGEST) return LONGEST;
  size_t row[LONGEST + 1];
  for (size_t k = 0; k <= b_size; ++k) row[k] = k;
  for (size_t i = 1; i <= a_size; ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t k = 1; k <= b_size; ++k) {
      const size_t replaced = diagonal + (a[i - 1] != b[k - 1]);
      diagonal = row[k];
      size_t least = replaced < row[k] + 1 ? replaced : row[k] + 1;
      if (row[k - 1] + 1 < least) least = row[k - 1] + 1;
      row[k] = least;
    }
  }
  return row[b_size];
}

static qn_status_t unknown(const char* source, const char* name, size_t size) {
  const char* nearest = NULL;
  size_t least = 4;  // farther names are no help
  for (size_t i = 0; i < SERVE_OPTION_COUNT; ++i) {
    const size_t edits = distance(name, size, setting_table[i].flag);
    if (edits >= least) continue;
    least = edits;
    nearest = setting_table[i].flag;
  }
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%sunknown option '%.*s'%s%s%s", source,
                        (int)(size < 100 ? size : 100), name, nearest ? "; did you mean '" : "",
                        nearest ? nearest : "", nearest ? "'?" : "; --help lists all");
}

// ------------------------------------------------------------------------------------ sources

static void set_defaults(serve_options_t* options) {
  for (size_t i = 0; i < SERVE_OPTION_COUNT; ++i) {
    (void)set(options, &setting_table[i], setting_table[i].value);
    options->origins[i] = "default";
  }
}

// Sets options from the file that `path` names. Its strings live as long as the options.
static qn_status_t read_file(serve_options_t* options, const char* path) {
  json_error_t error;
  json_t* root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!root) {
    const bool is_missing = errno == ENOENT && error.line <= 0;
    return qn_status_make(is_missing ? QN_STATUS_NOT_FOUND : QN_STATUS_INVALID_ARGUMENT,
                          "%s: line %d: %s", path, error.line, error.text);
  }
  options->file = root;
  if (!json_is_object(root)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: not a JSON object", path);
  }
  const char* name;
  json_t* value;
  json_object_foreach(root, name, value) {
    char source[400];
    (void)snprintf(source, sizeof source, "%.200s: ", path);
    const option_t* option = find(name, strlen(name), '_');
    if (!option) return unknown(source, name, strlen(name));
    char number[40];
    const char* text = number;
    if (json_is_string(value)) {
      text = json_string_value(value);
    } else if (json_is_boolean(value)) {
      text = json_is_true(value) ? "true" : "false";
    } else if (json_is_integer(value)) {
      (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
      (void)snprintf(number, sizeof number, "%.17g", json_real_value(value));
    } else {
      text = "this value";
    }
    (void)snprintf(source, sizeof source, "%.200s: %s", path, option->flag);
    const bool is_kept = option->kind != KIND_STRING || json_is_string(value);
    if (!is_kept || !set(options, option, text)) return refuse(option, source, text);
    options->origins[option - setting_table] = "file";
  }
  return QN_OK;
}

static void make_variable(const option_t* option, char out_name[80]) {
  int size = snprintf(out_name, 80, "QUERN_SERVE_%s", option->flag);
  for (int i = 0; i < size; ++i) {
    out_name[i] = out_name[i] == '-' ? '_' : (char)toupper((unsigned char)out_name[i]);
  }
}

static qn_status_t read_environment(serve_options_t* options) {
  for (size_t i = 0; i < SERVE_OPTION_COUNT; ++i) {
    char name[80];
    make_variable(&setting_table[i], name);
    const char* text = getenv(name);
    if (!text) continue;
    if (!set(options, &setting_table[i], text)) return refuse(&setting_table[i], name, text);
    options->origins[i] = "environment";
  }
  return QN_OK;
}

// Splits --NAME=VALUE, or --NAME and the next argument. A switch may stand alone.
static qn_status_t read_flag(serve_options_t* options, int count, char** arguments, int* inout_at) {
  const char* name = arguments[*inout_at] + 2;
  const size_t size = strcspn(name, "=");
  const option_t* option = find(name, size, '-');
  if (!option) return unknown("--", name, size);
  char source[100];
  (void)snprintf(source, sizeof source, "--%s", option->flag);
  const char* text = "true";
  if (name[size] == '=') {
    text = name + size + 1;
  } else if (option->kind != KIND_SWITCH) {
    if (*inout_at + 1 == count) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s needs %s", source,
                            expected_texts[option->kind]);
    }
    text = arguments[++*inout_at];
  }
  if (!set(options, option, text)) return refuse(option, source, text);
  options->origins[option - setting_table] = "flag";
  return QN_OK;
}

static qn_status_t read_arguments(serve_options_t* options, int count, char** arguments) {
  bool is_flag = true;  // until "--"
  for (int i = 0; i < count; ++i) {
    const char* argument = arguments[i];
    if (is_flag && strcmp(argument, "--") == 0) {
      is_flag = false;
    } else if (is_flag && strncmp(argument, "--config=", 9) == 0) {
      continue;  // was read before
    } else if (is_flag && strcmp(argument, "--config") == 0) {
      ++i;
    } else if (is_flag && strcmp(argument, "--show-config") == 0) {
      options->has_show = true;
    } else if (is_flag && strcmp(argument, "--probe") == 0) {
      options->has_probe = true;
    } else if (is_flag && strncmp(argument, "--", 2) == 0) {
      qn_status_t status = read_flag(options, count, arguments, &i);
      if (!qn_ok(status)) return status;
    } else if (is_flag && argument[0] == '-' && argument[1] != '\0') {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%.100s' is no option; --help lists all",
                            argument);
    } else if (options->model_count == SERVE_MAX_MODELS) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "more than %d models", SERVE_MAX_MODELS);
    } else {
      options->models[options->model_count++] = argument;
    }
  }
  return QN_OK;
}

// Returns the path of the file of settings; NULL: there is none.
static qn_status_t find_file(int count, char** arguments, const char** out_path) {
  *out_path = getenv("QUERN_SERVE_CONFIG");
  for (int i = 0; i < count && strcmp(arguments[i], "--") != 0; ++i) {
    if (strncmp(arguments[i], "--config=", 9) == 0) *out_path = arguments[i] + 9;
    if (strcmp(arguments[i], "--config") != 0) continue;
    if (i + 1 == count) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--config needs a file");
    }
    *out_path = arguments[++i];
  }
  return QN_OK;
}

static bool has_word(int count, char** arguments, const char* word) {
  for (int i = 0; i < count && strcmp(arguments[i], "--") != 0; ++i) {
    if (strcmp(arguments[i], word) == 0) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------ bounds

// Numbers that the rest of the program could not use.
static const struct {
  size_t index;
  uint64_t least;
  uint64_t most;
} bounds[] = {
    {SERVE_OPTION_port, 0, 65535},
    {SERVE_OPTION_admin_port, 0, 65535},
    {SERVE_OPTION_http_threads, 1, 256},
    {SERVE_OPTION_max_connections, 1, 1000000},
    {SERVE_OPTION_max_client_connections, 0, 1000000},
    {SERVE_OPTION_max_body, 1, UINT64_C(1) << 40},
    {SERVE_OPTION_max_texts, 1, 1000000},
    {SERVE_OPTION_max_text_tokens, 0, 1 << 20},
    {SERVE_OPTION_queue_tokens, 1, UINT64_C(1) << 40},
    {SERVE_OPTION_batch_tokens, 1, 1 << 20},
    {SERVE_OPTION_batch_texts, 1, 1 << 16},
    {SERVE_OPTION_special_budget, 0, 100},
    {SERVE_OPTION_special_limit, 0, 4096},
    {SERVE_OPTION_threads, 0, 1024},
};

static qn_status_t check_bounds(const serve_options_t* options) {
  for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; ++i) {
    const option_t* option = &setting_table[bounds[i].index];
    const char* field = (const char*)options + option->offset;
    const uint64_t value = *(const serve_option_number_t*)(const void*)field;
    if (value >= bounds[i].least && value <= bounds[i].most) continue;
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--%s: %llu is not from %llu to %llu",
                          option->flag, (unsigned long long)value,
                          (unsigned long long)bounds[i].least, (unsigned long long)bounds[i].most);
  }
  return QN_OK;
}

// ------------------------------------------------------------------------------------ all

qn_status_t serve_options_read(int count, char** arguments, serve_options_t* out_options) {
  *out_options = (serve_options_t){.model_count = 0};
  set_defaults(out_options);
  out_options->has_help = has_word(count, arguments, "--help") || has_word(count, arguments, "-h");
  out_options->has_version = has_word(count, arguments, "--version");
  if (out_options->has_help || out_options->has_version) return QN_OK;
  const char* path = NULL;
  qn_status_t status = find_file(count, arguments, &path);
  if (qn_ok(status) && path) status = read_file(out_options, path);
  if (qn_ok(status)) status = read_environment(out_options);
  if (qn_ok(status)) status = read_arguments(out_options, count, arguments);
  if (qn_ok(status)) status = check_bounds(out_options);
  return status;
}

void serve_options_free(serve_options_t* options) {
  json_decref(options->file);
  *options = (serve_options_t){.model_count = 0};
}

// ------------------------------------------------------------------------------------ printing

void serve_options_print_help(FILE* out) {
  (void)fprintf(
      out,
      "usage: quern-serve MODEL... [--OPTION VALUE]...\n"
      "\n"
      "Serves sentence embeddings of BERT-like models from folders in the layout of\n"
      "Hugging Face, over the Open Inference Protocol, and as text-embeddings-inference\n"
      "and OpenAI do.\n"
      "\n"
      "  quern-serve all-MiniLM-L6-v2           one model, named as its folder\n"
      "  quern-serve small=DIR large=DIR        several; the first is the default\n"
      "  curl localhost:8080/embed -d '{\"inputs\": \"a sentence\"}'\n"
      "\n"
      "An option is also read from the environment (QUERN_SERVE_BATCH_TOKENS) and from a\n"
      "JSON file ({\"batch_tokens\": 4096}); flags win, then the environment, the file.\n"
      "Kernels come from the cache directory (QUERN_CACHE_DIR), from --bundle, or are\n"
      "compiled before the server is ready; requests compile nothing. Options of the\n"
      "engine are read from the environment: quern config lists them.\n"
      "\n"
      "SIGTERM and SIGINT: ready answers 503, --drain-delay passes, then what is under\n"
      "way may take --drain-timeout. A second signal ends it at once. Exit codes: 0 all\n"
      "requests were answered, 1 a model cannot be loaded or requests were cut off,\n"
      "2 usage, 3 the machine lacks something.\n"
      "\n");
  for (size_t i = 0; i < SERVE_OPTION_COUNT; ++i) {
    char head[60];
    (void)snprintf(head, sizeof head, "--%s%s%s", setting_table[i].flag,
                   *setting_table[i].unit ? " " : "", setting_table[i].unit);
    (void)fprintf(out, "  %-34s %s", head, setting_table[i].help);
    if (*setting_table[i].value) (void)fprintf(out, " [%s]", setting_table[i].value);
    (void)fputc('\n', out);
  }
  (void)fprintf(out, "  %-34s %s\n  %-34s %s\n  %-34s %s\n  %-34s %s\n", "--config FILE",
                "the JSON file of settings", "--show-config", "print all settings, and end",
                "--probe", "ask the server at --port whether it is ready, and end: 0, or 1",
                "--version, --help", "print the version, or this");
}

void serve_options_print(const serve_options_t* options, FILE* out) {
  for (size_t i = 0; i < SERVE_OPTION_COUNT; ++i) {
    const char* field = (const char*)options + setting_table[i].offset;
    char text[64];
    const char* shown = text;
    switch (setting_table[i].kind) {
      case KIND_STRING:
        shown = *(const serve_option_string_t*)(const void*)field;
        break;
      case KIND_NUMBER:
      case KIND_BYTES:
        (void)snprintf(text, sizeof text, "%llu",
                       (unsigned long long)*(const serve_option_number_t*)(const void*)field);
        break;
      case KIND_SECONDS:
        (void)snprintf(text, sizeof text, "%g",
                       (double)*(const serve_option_seconds_t*)(const void*)field / 1e9);
        break;
      case KIND_SWITCH:
        shown = *(const serve_option_switch_t*)(const void*)field ? "true" : "false";
        break;
    }
    (void)fprintf(out, "%-24s %-20s %s\n", setting_table[i].flag, shown, options->origins[i]);
  }
}
