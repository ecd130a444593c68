// SPDX-License-Identifier: Apache-2.0
// tools/cli/main.c: the command `quern`: the table of verbs.
//
// The command uses the public headers only: a program can do all that it does. verbs/, run/, bench/
// and cache/ hold the verbs; the files beside this one serve all of them.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "quern/quern.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"
#include "tools/cli/verbs.h"

static const verb_t* const verbs[] = {
    &verb_run,         &verb_bench,   &verb_check,   &verb_fmt,  &verb_compile,
    &verb_devices,     &verb_targets, &verb_cache,   &verb_warm, &verb_export,
    &verb_conformance, &verb_config,  &verb_version, &verb_help,
};
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

const verb_t* verb_at(size_t index) {
  return index < VERB_COUNT ? verbs[index] : NULL;
}

const verb_t* verb_find(const char* name) {
  for (size_t i = 0; i < VERB_COUNT; i++) {
    if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
  }
  return NULL;
}

static int unknown_verb(const char* name) {
  const char* names[VERB_COUNT];
  for (size_t i = 0; i < VERB_COUNT; i++) names[i] = verbs[i]->name;
  return report_usage(NULL, "unknown verb '%s'%s", name,
                      suggest(name, names, sizeof names[0], VERB_COUNT).text);
}

static int run_verb(const verb_t* verb, int argc, char** argv) {
  args_t args;
  int code = args_parse(verb, argc, argv, &args);
  if (code == EXIT_DONE && args.is_help) {
    args_print_help(verb, stdout);
  } else if (code == EXIT_DONE) {
    code = report_status(&args, session_plugins(&args));
    if (code == EXIT_DONE) code = verb->run(&args);
  }
  args_free(&args);
  return code;
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "help";
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
  if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
  const verb_t* verb = verb_find(name);
  int code = verb ? run_verb(verb, argc > 2 ? argc - 2 : 0, argv + 2) : unknown_verb(name);
  if (argc < 2) code = EXIT_USAGE;
  // A failure to print (a full disk) must not look like success.
  if (fflush(stdout) != 0 || ferror(stdout)) {
    print(stderr, "quern: cannot write to standard output: %s\n", strerror(errno));
    if (code == EXIT_DONE) code = EXIT_MACHINE;
  }
  return code;
}
