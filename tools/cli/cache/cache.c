// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/cache.c: `quern cache ACTION`: shows and maintains the cache directory.
//
// Actions are a table of their own. A directory that does not exist yet is an empty cache, unless
// --dir names it.
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cache/actions.h"
#include "tools/cli/memory.h"
#include "tools/cli/verbs.h"

// In the order of help.
static const cache_action_t* const actions[] = {
    &cache_action_stats,  &cache_action_ls,     &cache_action_show,   &cache_action_why,
    &cache_action_verify, &cache_action_clear,  &cache_action_export, &cache_action_merge,
    &cache_action_import, &cache_action_keygen,
};
enum { ACTION_COUNT = sizeof actions / sizeof actions[0] };

qn_status_t cache_no_directory(void) {
  return qn_status_make(QN_STATUS_UNAVAILABLE,
                        "no cache directory: neither QUERN_CACHE_DIR, XDG_CACHE_HOME nor HOME is "
                        "set; name one with --dir");
}

static qn_status_t open_cache(cache_t* cache, bool is_needed) {
  const char* file = args_value(cache->args, "bundle", NULL);
  if (file) {
    cache->path = memory_text(file);
    return cache_open_bundle(cache->args, file, &cache->bundle);
  }
  const char* named = args_value(cache->args, "dir", NULL);
  if (named) {
    cache->path = memory_text(named);
  } else {
    qn_engine_t* engine = NULL;
    qn_status_t status = session_idle_engine(&engine);
    if (!qn_ok(status)) return status;
    cache->path = session_option(engine, "cache_dir");
    qn_engine_destroy(engine);
  }
  if (!cache->path[0] && !is_needed) return QN_OK;
  if (!cache->path[0]) return cache_no_directory();
  qn_status_t status = qn_cache_dir_open(cache->path, &cache->dir);
  if (!named && qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    qn_status_free(status);
    status = QN_OK;
  }
  return status;
}

const char* cache_operand(const cache_t* cache, int i) {
  return i + 1 < cache->args->operand_count ? cache->args->operands[i + 1] : NULL;
}

// Whether `name` is in a list of words that are each followed by a space.
static bool is_in(const char* words, const char* name) {
  size_t size = strlen(name);
  for (const char* at = words; at && *at; at = strchr(at, ' ') + 1) {
    if (strncmp(at, name, size) == 0 && at[size] == ' ') return true;
  }
  return false;
}

// Reports an option that belongs to other actions.
static int check_options(const args_t* args, const cache_action_t* action) {
  for (int i = 0; i < args->option_count; i++) {
    const char* name = args->options[i].spec->name;
    bool is_of_all = strcmp(name, "json") == 0 || strcmp(name, "plugin") == 0;
    if (is_of_all || is_in(action->options, name)) continue;
    char owners[128] = "";
    for (size_t k = 0; k < ACTION_COUNT; k++) {
      if (!is_in(actions[k]->options, name)) continue;
      size_t size = strlen(owners);
      (void)snprintf(owners + size, sizeof owners - size, "%s'cache %s'", size ? ", " : "",
                     actions[k]->name);
    }
    return report_usage(args, "--%s belongs to %s", name, owners);
  }
  return EXIT_DONE;
}

// Reports operands and options that an action does not take; else returns EXIT_DONE.
static int check_usage(const args_t* args, const cache_action_t* action) {
  int given = args->operand_count - 1;
  if (given < action->min_operands) {
    return report_usage(args, "cache %s: expected %s", action->name, action->operands);
  }
  if (action->max_operands >= 0 && given > action->max_operands) {
    return report_usage(args, "cache %s: unexpected '%s'", action->name,
                        args->operands[action->max_operands + 1]);
  }
  int code = check_options(args, action);
  const char* other = args_has(args, "dir") ? "dir" : args_has(args, "heal") ? "heal" : NULL;
  if (code != EXIT_DONE || !args_has(args, "bundle") || !other) return code;
  return report_usage(
      args, "--bundle and --%s exclude each other: a bundle is one file, and is only read", other);
}

static const cache_action_t* find_action(const args_t* args, int* out_code) {
  const char* name = args->operands[0];
  const char* names[ACTION_COUNT];
  char list[256] = "";
  for (size_t i = 0; i < ACTION_COUNT; i++) {
    if (strcmp(actions[i]->name, name) == 0) {
      *out_code = check_usage(args, actions[i]);
      return *out_code == EXIT_DONE ? actions[i] : NULL;
    }
    names[i] = actions[i]->name;
    size_t size = strlen(list);
    (void)snprintf(list + size, sizeof list - size, "%s%s", i ? ", " : "", names[i]);
  }
  suggestion_t near = suggest(name, names, sizeof names[0], ACTION_COUNT);
  *out_code = report_usage(args, "unknown action '%s'%s%s", name,
                           near.text[0] ? near.text : "; there are ", near.text[0] ? "" : list);
  return NULL;
}

static int run_cache(const args_t* args) {
  int code = EXIT_DONE;
  const cache_action_t* action = find_action(args, &code);
  if (!action) return code;
  cache_t cache = {.args = args};
  qn_status_t status = QN_OK;
  if (action->need != CACHE_NEEDS_NOTHING) {
    status = open_cache(&cache, action->need == CACHE_NEEDS_DIRECTORY);
  }
  if (qn_ok(status)) status = action->run(&cache, &code);
  if (!qn_ok(status)) code = report_status(args, status);
  qn_cache_dir_close(cache.dir);
  qn_cache_bundle_close(cache.bundle);
  free(cache.path);
  return code;
}

const verb_t verb_cache = {
    .name = "cache",
    .summary = "show, verify and clear the cache; make bundles of it",
    .operands = "ACTION [KEY|FILE]...",
    .min_operands = 1,
    .max_operands = -1,
    VERB_OPTIONS(
        OPTION("dir", "DIR", "the cache directory (default: that of 'quern config')"),
        {"target", 't', "T", "why: what to compile for (default cpu)", false},
        REPEATED("set", "d=128,k=4", "why: fix symbols and integer scalars"),
        OPTION("tier", "fast|full", "why: the tier (default full)"),
        FLAG("checked", "why: the checked build"), FLAG("heal", "verify: remove damaged entries"),
        OPTION("recompile", "N", "verify: compile N random entries again and compare; or all"),
        OPTION("seed", "S", "verify --recompile: equal numbers choose equal entries"),
        OPTION("bundle", "FILE", "ls, show, verify: of a bundle instead"),
        REPEATED("signed-by", "KEY.pub", "bundles must be signed by one of these keys"),
        REPEATED("key", "PREFIX", "export, merge: entries whose keys begin with one of these"),
        REPEATED("match", "TEXT",
                 "export, merge: entries whose target, generator or options have this text"),
        OPTION("newer", "AGE", "export, merge: entries younger than this, such as 12h or 7d"),
        OPTION("older", "AGE", "export, merge: entries older than this"),
        OPTION("sign", "KEY.key", "export, merge: sign the bundle"),
        FLAG("no-times", "export, merge: no times: equal code, equal bundles"),
        FLAG("append", "export, merge: add to an existing bundle"), OPTION_PLUGIN, OPTION_JSON),
    .help =
        "  stats            sizes and counts of each tier\n"
        "  ls               every entry, the latest first\n"
        "  show KEY         the parts of an entry's key; KEY may be its first four digits or more\n"
        "  why FILE.qn      the tier that has a module's code, or how the nearest entry differs\n"
        "  verify           read and check every entry; --heal removes the damaged ones\n"
        "                   --recompile N compiles N of them again: the bytes must be the same\n"
        "  clear            remove every entry; files that quern did not make stay\n"
        "  export FILE      write entries into a bundle: one read-only file for an image\n"
        "  merge OUT IN...  write the entries of bundles into one; the last of equal keys wins\n"
        "  import FILE      put the entries of a bundle into the directory\n"
        "  keygen PREFIX    make PREFIX.pub and PREFIX.key for signing bundles\n"
        "\n"
        "Damage never harms a program: a bad entry is a miss. 'verify' finds it beforehand.\n"
        "An engine uses the bundles that QUERN_BUNDLES names; see docs/bundles.md.\n"
        "examples/ship.sh shows the way from a service that compiles to a bundle in an image.\n",
    .examples =
        "  quern cache stats\n"
        "  quern cache ls --json\n"
        "  quern cache why examples/ir/saxpy.qn --target interp\n"
        "  quern cache verify --heal\n"
        "  quern cache verify --recompile 2\n"
        "  quern cache export kernels.qnb --newer 30d\n"
        "  quern cache ls --bundle kernels.qnb\n"
        "  quern cache verify --bundle kernels.qnb\n"
        "  quern cache merge all.qnb kernels.qnb kernels.qnb\n"
        "  quern cache import all.qnb\n",
    .run = run_cache,
};
