// SPDX-License-Identifier: Apache-2.0
// options.h: the command line of embed.
#ifndef EMBED_OPTIONS_H_
#define EMBED_OPTIONS_H_

#include <stdbool.h>
#include <stdint.h>

// As for the quern command.
enum { EXIT_DONE = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_MACHINE = 3 };

typedef struct options {
  const char* target;  // borrowed from the command line
  char* weights_dir;
  char* golden_dir;
  int64_t batch;
  int64_t repeat;
  int64_t sentence_limit;  // 0: all
  bool is_sorted;          // by length
  bool is_seeded;
  bool is_checked;
  bool is_fast_tier;
  bool is_json;
} options_t;

// Reads the command line. False when the program must end with `*out_exit_code`, after it has
// printed help or a mistake. Owned: options_free in either case.
bool options_parse(int argc, char** argv, options_t* out_options, int* out_exit_code);
void options_free(options_t* options);

#endif  // EMBED_OPTIONS_H_
