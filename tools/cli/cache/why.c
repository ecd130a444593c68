// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/why.c: `quern cache why FILE`: the tier that has a module's code, or the part of
// its key that differs from the nearest entry's.
//
// It compiles nothing and changes nothing in the directory, not even the times of use.
#include <stdlib.h>
#include <string.h>

#include "quern/observe.h"
#include "quern/target.h"
#include "tools/cli/cache/actions.h"

typedef struct why {
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_explanation_t* explanation;
  char* directory;
  bool is_there;
} why_t;

static void print_why(const why_t* why) {
  const qn_explanation_t* it = why->explanation;
  const style_t* style = style_of(stdout);
  print(stdout, "%skey%s        %s\n", style->bold, style->plain, it->key.hex);
  print(stdout, "%sfound in%s   %s\n", style->bold, style->plain,
        it->found_in[0] ? it->found_in : "-");
  if (!why->is_there && why->directory[0]) {
    print(stdout, "directory  %s (not there yet)\n", why->directory);
  }
  print(stdout, "%s\n", it->text);
  if (it->nearest_key.hex[0]) {
    print(stdout, "%snearest    %s%s\n", style->dim, it->nearest_key.hex, style->plain);
  }
}

static void print_object(const cache_t* cache, const why_t* why,
                         const qn_lookup_options_t* options) {
  const qn_explanation_t* it = why->explanation;
  print_json(json_record(
      "file:s target:o tier:s is_checked:b directory:S exists:b key:s found_in:S nearest_key:S "
      "section:S wanted:S cached:S text:s",
      cache_operand(cache, 0), json_parsed(qn_target_json(why->target)),
      options->tier == QN_TIER_FAST ? "fast" : "full", options->is_checked, why->directory,
      why->is_there, it->key.hex, it->found_in, it->nearest_key.hex, it->section, it->wanted,
      it->cached, it->text));
}

static qn_status_t explain(const cache_t* cache, const qn_lookup_options_t* options, why_t* why) {
  qn_status_t status =
      session_module(cache->args, cache_operand(cache, 0), NULL, NULL, &why->module);
  if (qn_ok(status)) {
    status = qn_target_parse(args_value(cache->args, "target", "cpu"), &why->target);
  }
  if (qn_ok(status)) {
    status = session_reading_engine(args_value(cache->args, "dir", NULL), &why->engine,
                                    &why->directory, &why->is_there);
  }
  if (qn_ok(status)) {
    status = qn_engine_explain(why->engine, why->module, why->target, options, &why->explanation);
  }
  return status;
}

static qn_status_t run_why(const cache_t* cache, int* out_code) {
  qn_lookup_options_t options;
  if (!session_lookup_options(cache->args, &options)) {
    *out_code = EXIT_USAGE;
    return QN_OK;
  }
  why_t why = {0};
  qn_status_t status = explain(cache, &options, &why);
  if (qn_ok(status)) {
    if (cache->args->is_json) {
      print_object(cache, &why, &options);
    } else {
      print_why(&why);
    }
  }
  qn_explanation_free(why.explanation);
  qn_engine_destroy(why.engine);
  qn_target_release(why.target);
  qn_module_release(why.module);
  free(why.directory);
  return status;
}

const cache_action_t cache_action_why = {
    .name = "why",
    .operands = "FILE.qn",
    .min_operands = 1,
    .max_operands = 1,
    .options = "dir target set tier checked ",
    .need = CACHE_NEEDS_NOTHING,
    .run = run_why,
};
