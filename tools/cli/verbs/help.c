// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/help.c: `quern help [VERB|TOPIC]` and `quern version`.
#include <stdlib.h>
#include <string.h>

#include "quern/quern.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/verbs.h"

typedef struct topic {
  const char* name;
  const char* summary;
  const char* text;
} topic_t;

static const topic_t topics[] = {
    {"values", "the values of --arg NAME=VALUE",
     "  2  -1.5  1e-3  nan  inf   a number for a scalar parameter\n"
     "  true  false               a boolean\n"
     "  FILE.npy                  an array from a NumPy file: little-endian, C or Fortran order\n"
     "  zeros:f32[2,3]            an array of zeros; f32[] is a single element without axes\n"
     "  ones:i64[8]               an array of ones\n"
     "  iota:i32[2,3]             0, 1, 2, ... in row-major order\n"
     "  rand:f32[2,3]:SEED        floats in [0, 1), integers 0 to 9; equal seeds give equal\n"
     "                            arrays on every machine; SEED is 0 when left out\n"
     "\n"
     "The dtypes are bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, f8e4m3fn "
     "and\n"
     "f8e5m2. NumPy has no bf16: such arrays are files of uint16 with the same bits. A file of\n"
     "uint16 counts as bf16 where the parameter is bf16, and as uint16 everywhere else. So do "
     "files\n"
     "of uint8 for f8e4m3fn and f8e5m2.\n"
     "\n"
     "A parameter `out y: f32[n, m]` takes its shape from its argument: --arg "
     "y=zeros:f32[4,64].\n"},
    {"set", "fixing symbols and integer scalars with --set",
     "  --set d=128               the symbol or scalar 'd' of all functions that have it\n"
     "  --set d=128,k=4           several, as --set d=128 --set k=4\n"
     "  --set attention.d=32      of one function\n"
     "\n"
     "The code is that of a text with the numbers in place of the names: f32[n, d] is\n"
     "f32[n, 128]. So it may be faster, and local and shared memory, vector and unroll loops may\n"
     "use the names. Calls with other shapes are refused. A scalar stays a parameter, and each\n"
     "call must pass its value; 'run' passes it without an --arg.\n"
     "\n"
     "--sizes of 'quern bench' is another thing: it chooses the arguments of the calls, and the\n"
     "code still serves every size.\n"},
    {"exit", "the exit codes",
     "  0  done\n"
     "  1  the input is wrong: a file, a module, a target, an argument of the call, an assertion\n"
     "     of the program; 'fmt --check' found work, 'cache verify' damage\n"
     "  2  the command line is wrong by itself: unknown verb or option, a bad value of an option\n"
     "  3  the machine lacks or refuses something: no code generator, a missing instruction set,\n"
     "     no memory, no permission, an input/output error\n"},
    {"target", "the ways to write a target",
     "  cpu                              this machine's processor, through LLVM\n"
     "  cpu -mcpu=x86-64-v3              options on a command line; quote it for the shell\n"
     "  {\"kind\": \"cpu\", \"mcpu\": \"znver3\"}  JSON\n"
     "  nvidia/h200                      a tag\n"
     "  cuda, vulkan                     the first GPU of that kind\n"
     "  interp                           the reference interpreter: slow, exact, no compiler\n"
     "  null                             does nothing: the template for new devices\n"
     "\n"
     "'quern targets' lists kinds and tags, 'quern targets cpu' the options of one kind.\n"},
};
enum { TOPIC_COUNT = sizeof topics / sizeof topics[0] };

static void print_rows(FILE* file, const char* name, const char* summary) {
  print(file, "  %-11s %s\n", name, summary);
}

static void print_overview(FILE* file) {
  const style_t* style = style_of(file);
  print(file,
        "%squern%s: runs tensor programs on this machine, compiled once and then from a cache\n\n"
        "usage: quern VERB [options]\n\n%sverbs%s\n",
        style->bold, style->plain, style->bold, style->plain);
  for (size_t i = 0; verb_at(i); i++) print_rows(file, verb_at(i)->name, verb_at(i)->summary);
  print(file, "\n%stopics%s\n", style->bold, style->plain);
  for (size_t i = 0; i < TOPIC_COUNT; i++) print_rows(file, topics[i].name, topics[i].summary);
  print(file,
        "\n%sfirst steps%s\n"
        "  quern check examples/ir/saxpy.qn\n"
        "  quern run examples/ir/saxpy.qn --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]\n"
        "\n'quern help VERB' shows a verb's options and examples. docs/ and examples/ are in\n"
        "share/doc/quern where quern is installed.\n",
        style->bold, style->plain);
}

static int unknown_topic(const args_t* args, const char* name) {
  const char* names[32];
  size_t count = 0;
  while (verb_at(count) && count < 16) {
    names[count] = verb_at(count)->name;
    count++;
  }
  for (size_t i = 0; i < TOPIC_COUNT; i++) names[count++] = topics[i].name;
  return report_usage(args, "no help on '%s'%s", name,
                      suggest(name, names, sizeof names[0], count).text);
}

static json_t* verb_json(const verb_t* verb) {
  json_t* options = json_array();
  for (size_t i = 0; i < verb->option_count; i++) {
    const option_spec_t* spec = &verb->options[i];
    if (!spec->doc) continue;
    json_array_append_new(options, json_record("name:s value:s doc:s is_repeatable:b", spec->name,
                                               spec->value, spec->doc, spec->is_repeatable));
  }
  return json_record("name:s summary:s operands:s options:o", verb->name, verb->summary,
                     verb->operands, options);
}

static int print_verbs_json(const verb_t* only) {
  json_t* list = json_array();
  for (size_t i = 0; verb_at(i); i++) {
    if (!only || only == verb_at(i)) json_array_append_new(list, verb_json(verb_at(i)));
  }
  print_json(json_record("verbs:o", list));
  return EXIT_DONE;
}

static int print_topic(const args_t* args, const topic_t* topic) {
  if (args->is_json) {
    print_json(json_record("topic:s summary:s text:s", topic->name, topic->summary, topic->text));
  } else {
    print(stdout, "%s: %s\n\n", topic->name, topic->summary);
    print_text(stdout, topic->text);
  }
  return EXIT_DONE;
}

static int run_help(const args_t* args) {
  const char* name = args->operand_count ? args->operands[0] : NULL;
  const verb_t* verb = name ? verb_find(name) : NULL;
  for (size_t i = 0; i < TOPIC_COUNT && name; i++) {
    if (strcmp(topics[i].name, name) == 0) return print_topic(args, &topics[i]);
  }
  if (name && !verb) return unknown_topic(args, name);
  if (args->is_json) return print_verbs_json(verb);
  if (verb) {
    args_print_help(verb, stdout);
  } else {
    print_overview(stdout);
  }
  return EXIT_DONE;
}

static int run_version(const args_t* args) {
  if (args->is_json) {
    print_json(json_record("version:s headers:s build:s", qn_version(), QN_VERSION_STRING,
                           qn_build_info()));
  } else {
    print(stdout, "quern %s\n%s\n", qn_version(), qn_build_info());
  }
  return EXIT_DONE;
}

const verb_t verb_help = {
    .name = "help",
    .summary = "show help on a verb or a topic",
    .operands = "[VERB|TOPIC]",
    .max_operands = 1,
    VERB_OPTIONS(OPTION_JSON),
    .help = "Without a name, lists the verbs and topics.\n",
    .examples =
        "  quern help run\n"
        "  quern help values\n",
    .run = run_help,
};

const verb_t verb_version = {
    .name = "version",
    .summary = "show the version and the parts of the build",
    .operands = "",
    VERB_OPTIONS(OPTION_JSON),
    .help = "Prints the library's version, its build id and its code generators.\n",
    .examples = "  quern version --json\n",
    .run = run_version,
};
