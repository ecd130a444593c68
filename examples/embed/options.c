// SPDX-License-Identifier: Apache-2.0
// options.c: help, defaults and parsing of the command line. Read next: embed.c.
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help_text[] =
    "usage: embed [options]\n"
    "\n"
    "Computes sentence embeddings with all-MiniLM-L6-v2 on quern kernels and compares them with a\n"
    "reference. Run it twice: the second process finds its kernels in the cache.\n"
    "\n"
    "  --target T       target of the kernels, such as cpu, interp, vulkan, cuda,\n"
    "                   'cpu -mcpu=x86-64-v3' [cpu]\n"
    "  --batch N        sentences per batch [4]\n"
    "  --repeat N       timed passes over all sentences after the first pass [5]\n"
    "  --order O        length: the shortest sentence first; file: as they are stored [length]\n"
    "  --sentences N    use only the first N sentences of that order [all]\n"
    "  --weights DIR    directory that fetch_weights filled [build/embed]\n"
    "  --tier full|fast how much time goes into a compile [full]\n"
    "  --checked        kernels that check every index and division\n"
    "  --seeded         made-up weights of the same shapes; the reference is then plain C\n"
    "  --golden DIR     directory of the golden files [golden/ beside the source]\n"
    "  --json           report as JSON\n"
    "  --help           this text\n"
    "\n"
    "QUERN_CACHE_DIR names the cache directory, QUERN_CACHE=off does without.\n"
    "Exit codes: 0 good, 1 wrong input or embeddings out of bounds, 2 usage, 3 the machine lacks\n"
    "something.\n";

// Makes a path in this source folder, which the build names. Owned: free; NULL without memory.
static char* beside_source(const char* relative) {
  const size_t size = sizeof EMBED_FOLDER + 1 + strlen(relative);
  char* path = malloc(size);
  if (path != NULL) snprintf(path, size, "%s/%s", EMBED_FOLDER, relative);
  return path;
}

static bool parse_count(const char* option, const char* text, int64_t least, int64_t* out_value) {
  char* end = NULL;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < least || value > 1000000) {
    fprintf(stderr, "embed: --%s expects an integer from %d to 1000000, got \"%s\"\n", option,
            (int)least, text);
    return false;
  }
  *out_value = value;
  return true;
}

static bool parse_tier(const char* text, bool* out_is_fast) {
  *out_is_fast = strcmp(text, "fast") == 0;
  if (!*out_is_fast && strcmp(text, "full") != 0) {
    fprintf(stderr, "embed: --tier expects full or fast, got \"%s\"\n", text);
    return false;
  }
  return true;
}

static bool parse_order(const char* text, bool* out_is_sorted) {
  *out_is_sorted = strcmp(text, "length") == 0;
  if (!*out_is_sorted && strcmp(text, "file") != 0) {
    fprintf(stderr, "embed: --order expects length or file, got \"%s\"\n", text);
    return false;
  }
  return true;
}

static bool set_path(char** path, const char* text) {
  free(*path);
  *path = strdup(text);
  return *path != NULL;
}

// Reads one option. False when it is unknown (getopt has printed that) or its value is wrong.
static bool apply(int letter, options_t* options) {
  switch (letter) {
    case 't':
      options->target = optarg;
      return true;
    case 'b':
      return parse_count("batch", optarg, 1, &options->batch);
    case 'r':
      return parse_count("repeat", optarg, 0, &options->repeat);
    case 'o':
      return parse_order(optarg, &options->is_sorted);
    case 'n':
      return parse_count("sentences", optarg, 1, &options->sentence_limit);
    case 'w':
      return set_path(&options->weights_dir, optarg);
    case 'g':
      return set_path(&options->golden_dir, optarg);
    case 'c':
      options->is_checked = true;
      return true;
    case 'f':
      return parse_tier(optarg, &options->is_fast_tier);
    case 's':
      options->is_seeded = true;
      return true;
    case 'j':
      options->is_json = true;
      return true;
    default:
      return false;
  }
}

bool options_parse(int argc, char** argv, options_t* out_options, int* out_exit_code) {
  static const struct option known[] = {{"target", required_argument, NULL, 't'},
                                        {"batch", required_argument, NULL, 'b'},
                                        {"repeat", required_argument, NULL, 'r'},
                                        {"order", required_argument, NULL, 'o'},
                                        {"sentences", required_argument, NULL, 'n'},
                                        {"weights", required_argument, NULL, 'w'},
                                        {"golden", required_argument, NULL, 'g'},
                                        {"seeded", no_argument, NULL, 's'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"checked", no_argument, NULL, 'c'},
                                        {"tier", required_argument, NULL, 'f'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  *out_options = (options_t){.target = "cpu", .batch = 4, .repeat = 5, .is_sorted = true};
  out_options->weights_dir = beside_source("../../build/embed");
  out_options->golden_dir = beside_source("golden");
  if (out_options->weights_dir == NULL || out_options->golden_dir == NULL) {
    fprintf(stderr, "embed: no memory for paths\n");
    *out_exit_code = EXIT_MACHINE;
    return false;
  }
  bool is_fine = true;
  int letter;
  while (is_fine && (letter = getopt_long(argc, argv, "h", known, NULL)) != -1) {
    if (letter == 'h') {
      fputs(help_text, stdout);
      *out_exit_code = EXIT_DONE;
      return false;
    }
    is_fine = apply(letter, out_options);
  }
  if (is_fine && optind < argc) {
    fprintf(stderr, "embed: unexpected argument \"%s\"\n", argv[optind]);
    is_fine = false;
  }
  if (!is_fine) {
    fprintf(stderr, "try: embed --help\n");
  }
  *out_exit_code = EXIT_USAGE;
  return is_fine;
}

void options_free(options_t* options) {
  free(options->weights_dir);
  free(options->golden_dir);
}
