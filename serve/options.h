// SPDX-License-Identifier: Apache-2.0
// serve/options.h: the settings of quern-serve, from the command line, the environment and a file.
//
// The first of these that sets an option decides: flag, environment, JSON file, default.
#ifndef SERVE_OPTIONS_H_
#define SERVE_OPTIONS_H_

#include <stdio.h>

#include "quern/quern.h"

typedef const char* serve_option_string_t;
typedef uint64_t serve_option_number_t;  // also BYTES
typedef int64_t serve_option_seconds_t;  // nanoseconds
typedef bool serve_option_switch_t;

#define SERVE_KIND_STRING serve_option_string_t
#define SERVE_KIND_NUMBER serve_option_number_t
#define SERVE_KIND_BYTES serve_option_number_t
#define SERVE_KIND_SECONDS serve_option_seconds_t
#define SERVE_KIND_SWITCH serve_option_switch_t

enum {
#define SERVE_OPTION(field, flag, kind, value, unit, help) SERVE_OPTION_##field,
#include "serve/options.inc"
#undef SERVE_OPTION
  SERVE_OPTION_COUNT,
  SERVE_MAX_MODELS = 64,
};

typedef struct serve_options {
#define SERVE_OPTION(field, flag, kind, value, unit, help) SERVE_KIND_##kind field;
#include "serve/options.inc"
#undef SERVE_OPTION
  const char* models[SERVE_MAX_MODELS];  // folders: the arguments that are no flags
  size_t model_count;
  bool has_help;     // --help was given; nothing else was read
  bool has_version;  // --version
  bool has_show;     // --show-config: print the settings and where they come from
  bool has_probe;    // --probe: ask the server of these settings whether it is ready

  const char* origins[SERVE_OPTION_COUNT];  // "flag", "environment", "file", "default"
  struct json_t* file;                      // holds strings; owned
} serve_options_t;

// Reads everything. `arguments` are those of main without the program's name, and must live as long
// as the options. Errors: INVALID_ARGUMENT with the option, what came, what was expected and, for
// an unknown option, the nearest name; NOT_FOUND and IO for the file. Owned: serve_options_free,
// also after an error.
QN_MUST_USE qn_status_t serve_options_read(int count, char** arguments,
                                           serve_options_t* out_options);
void serve_options_free(serve_options_t* options);
void serve_options_print_help(FILE* out);
// Prints each option with its value and origin.
void serve_options_print(const serve_options_t* options, FILE* out);

#endif  // SERVE_OPTIONS_H_
