// SPDX-License-Identifier: Apache-2.0
// tools/cli/args.h: the command line: tables of verbs and options, and the arguments that were
// given.
//
// A verb is one row: its options, its help and the function that runs it.
#ifndef QUERN_TOOLS_CLI_ARGS_H_
#define QUERN_TOOLS_CLI_ARGS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct option_spec {
  const char* name;   // "target", without dashes
  char letter;        // 'o' for -o, or 0
  const char* value;  // the name of the value in help; NULL: the option is a flag
  const char* doc;    // NULL: for the command itself, not shown in help
  bool is_repeatable;
} option_spec_t;

typedef struct args args_t;

typedef struct verb {
  const char* name;
  const char* summary;   // one line
  const char* operands;  // as in the usage line: "FILE.qn"
  int min_operands;
  int max_operands;  // -1: any number
  const option_spec_t* options;
  size_t option_count;
  const char* help;      // paragraphs
  const char* examples;  // one command a line; the tests run each of them
  int (*run)(const args_t* args);
} verb_t;

typedef struct given_option {
  const option_spec_t* spec;
  const char* value;  // NULL for flags
} given_option_t;

struct args {
  const verb_t* verb;
  bool is_json;
  bool is_help;
  int operand_count;
  const char** operands;  // owned
  int option_count;
  given_option_t* options;  // owned, in the order of the command line
};

// Rows of a table of options.
#define FLAG(name, doc) {name, 0, NULL, doc, false}
#define OPTION(name, value, doc) {name, 0, value, doc, false}
#define REPEATED(name, value, doc) {name, 0, value, doc, true}

// The options of a verb_t.
#define VERB_OPTIONS(...)                          \
  .options = (const option_spec_t[]){__VA_ARGS__}, \
  .option_count = sizeof((const option_spec_t[]){__VA_ARGS__}) / sizeof(option_spec_t)

// Options that several verbs have.
#define OPTION_JSON FLAG("json", "print JSON for programs")
#define OPTION_TARGET \
  {"target", 't', "T", "what to compile for (default cpu); see 'quern help target'", false}
#define OPTION_PLUGIN \
  REPEATED("plugin", "LIB.so", "load devices, generators and target kinds of others first")
#define OPTION_SET \
  REPEATED("set", "d=128,k=4", "fix symbols and integer scalars; see 'quern help set'")
#define OPTION_TIER OPTION("tier", "fast|full", "shortest compile or best code (default full)")
#define OPTION_CHECKED FLAG("checked", "trap indices out of bounds and division by zero")

// Parses the words after the verb; borrows the strings of `argv`. Reports a mistake and returns
// EXIT_USAGE; else EXIT_DONE. args_free either way.
int args_parse(const verb_t* verb, int argc, char** argv, args_t* out_args);
void args_free(args_t* args);

bool args_has(const args_t* args, const char* name);
// Whether the verb has an option of this name.
bool args_takes(const args_t* args, const char* name);
// Returns the value of an option, or `otherwise`.
const char* args_value(const args_t* args, const char* name, const char* otherwise);
// Returns the values of a repeatable option one after the other, NULL after the last. `*inout_at`
// is 0 at first.
const char* args_next(const args_t* args, const char* name, int* inout_at);

// Reads a whole number, digits alone, from `min` to `max`. False for any other text.
bool args_number(const char* text, uint64_t min, uint64_t max, uint64_t* out_number);

// Prints usage, help, options and examples of a verb.
void args_print_help(const verb_t* verb, FILE* file);
// Prints "quern run FILE.qn [options]" to standard error, after a usage error.
void args_print_usage(const verb_t* verb, FILE* file);

// Returns the nearest of `count` names, or NULL when none is near. The names are `stride_bytes`
// apart: they may be the first members of structs.
const char* nearest_name(const char* name, const void* names, size_t stride_bytes, size_t count);
// The nearest name as the end of a message: "; did you mean 'NAME'?", or "" when none is near.
typedef struct suggestion {
  char text[128];
} suggestion_t;
suggestion_t suggest(const char* name, const void* names, size_t stride_bytes, size_t count);

#endif  // QUERN_TOOLS_CLI_ARGS_H_
