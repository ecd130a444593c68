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
    {"values", "what --arg NAME=VALUE takes",
     "  2  -1.5  1e-3  nan  inf   a number for a scalar parameter\n"
     "  true  false               a boolean\n"
     "  FILE.npy                  an array from a NumPy file: little-endian, C order\n"
     "  zeros:f32[2,3]            an array of zeros; f32[] is a single element without axes\n"
     "  ones:i64[8]               an array of ones\n"
     "  iota:i32[2,3]             0, 1, 2, ... in row-major order\n"
     "  rand:f32[2,3]:SEED        floats in [0, 1), integers 0 to 9; the same for equal seeds on\n"
     "                            every machine; SEED is 0 when it is left out\n"
     "\n"
     "The dtypes are bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32 and f64. NumPy\n"
     "has no bf16: such arrays are files of uint16 with the same bits. A file of uint16 is taken\n"
     "for bf16 where the parameter is bf16, and for uint16 everywhere else.\n"
     "\n"
     "A parameter `out y: f32[n, m]` takes its shape from its argument: --arg "
     "y=zeros:f32[4,64].\n"},
    {"exit", "the exit codes",
     "  0  done\n"
     "  1  the input is wrong: a file, a module, a target, an argument of the call, an assertion\n"
     "     of the program; 'fmt --check' found work, 'cache verify' found damage\n"
     "  2  the command line is wrong by itself: unknown verb or option, a value that is no value\n"
     "  3  the machine lacks something or refused it: no code generator, an instruction set that\n"
     "     is not here, no memory, no permission, an input/output error\n"},
    {"target", "how a target is written",
     "  cpu                              this machine's processor, through LLVM\n"
     "  cpu -mcpu=x86-64-v3              options on a command line; quote it for the shell\n"
     "  {\"kind\": \"cpu\", \"mcpu\": \"znver3\"}  JSON\n"
     "  nvidia/h200                      a tag\n"
     "  interp                           the reference interpreter: slow, exact, no compiler\n"
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
        "%squern%s: runs loop programs on this machine, compiled once and then from a cache\n\n"
        "usage: quern VERB [options]\n\n%sverbs%s\n",
        style->bold, style->plain, style->bold, style->plain);
  for (size_t i = 0; verb_at(i); i++) print_rows(file, verb_at(i)->name, verb_at(i)->summary);
  print(file, "\n%stopics%s\n", style->bold, style->plain);
  for (size_t i = 0; i < TOPIC_COUNT; i++) print_rows(file, topics[i].name, topics[i].summary);
  print(file,
        "\n%sfirst steps%s\n"
        "  quern check examples/ir/saxpy.qn\n"
        "  quern run examples/ir/saxpy.qn --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]\n"
        "\n'quern help VERB' shows a verb's options and examples.\n",
        style->bold, style->plain);
}

static const verb_t* find_verb(const char* name) {
  for (size_t i = 0; verb_at(i); i++) {
    if (strcmp(verb_at(i)->name, name) == 0) return verb_at(i);
  }
  return NULL;
}

static int unknown_topic(const args_t* args, const char* name) {
  const char* names[32];
  size_t count = 0;
  while (verb_at(count) && count < 16) {
    names[count] = verb_at(count)->name;
    count++;
  }
  for (size_t i = 0; i < TOPIC_COUNT; i++) names[count++] = topics[i].name;
  const char* near = nearest_name(name, names, sizeof names[0], count);
  if (near) return report_usage(args, "no help on '%s'; did you mean '%s'?", name, near);
  return report_usage(args, "no help on '%s'", name);
}

static json_t* verb_json(const verb_t* verb) {
  json_t* options = json_array();
  for (size_t i = 0; i < verb->option_count; i++) {
    const option_spec_t* spec = &verb->options[i];
    if (!spec->doc) continue;
    json_array_append_new(
        options, json_pack("{s:o, s:o, s:o, s:b}", "name", json_text(spec->name), "value",
                           json_text(spec->value), "doc", json_text(spec->doc), "is_repeatable",
                           (int)spec->is_repeatable));
  }
  return json_pack("{s:o, s:o, s:o, s:o}", "name", json_text(verb->name), "summary",
                   json_text(verb->summary), "operands", json_text(verb->operands), "options",
                   options);
}

static int print_verbs_json(const verb_t* only) {
  json_t* list = json_array();
  for (size_t i = 0; verb_at(i); i++) {
    if (!only || only == verb_at(i)) json_array_append_new(list, verb_json(verb_at(i)));
  }
  print_json(json_pack("{s:o}", "verbs", list), 17);
  return EXIT_DONE;
}

static int print_topic(const args_t* args, const topic_t* topic) {
  if (args->is_json) {
    print_json(json_pack("{s:o, s:o, s:o}", "topic", json_text(topic->name), "summary",
                         json_text(topic->summary), "text", json_text(topic->text)),
               17);
  } else {
    print(stdout, "%s: %s\n\n", topic->name, topic->summary);
    print_text(stdout, topic->text);
  }
  return EXIT_DONE;
}

static int run_help(const args_t* args) {
  const char* name = args->operand_count ? args->operands[0] : NULL;
  const verb_t* verb = name ? find_verb(name) : NULL;
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
    print_json(json_pack("{s:o, s:o, s:o}", "version", json_text(qn_version()), "headers",
                         json_text(QN_VERSION_STRING), "build", json_text(qn_build_info())),
               17);
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
    .summary = "show the version and what the build has",
    .operands = "",
    VERB_OPTIONS(OPTION_JSON),
    .help = "Prints the library's version, its build id and its code generators.\n",
    .examples = "  quern version --json\n",
    .run = run_version,
};
