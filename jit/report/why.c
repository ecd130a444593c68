// SPDX-License-Identifier: Apache-2.0
// jit/report/why.c: explains why a lookup would hit or miss, without side effects.
//
// The key is made as a lookup makes it, with the generator's predicted identity. If no local tier
// has it, the nearest entry is searched: first by the same module, then by the number of equal
// sections, then by time. The search reads only the heads of entries, within the limits below.
// Nothing is counted, touched or removed, and no generator is opened.
//
// Not here: the words of a difference (why_words.c), the search for the nearest (why_nearest.c).
#include "jit/report/why.h"

#include <time.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/fs.h"
#include "cache/entry_head.h"
#include "jit/codegen/artifact.h"
#include "jit/engine/engine.h"
#include "target/target.h"

// The search for the nearest entry ends at the first of these limits.
#define MAX_ENTRIES 50000u
#define MAX_NS INT64_C(2000000000)

// Owns an explanation and its strings.
typedef struct explained {
  qn_explanation_t public;
  qn__arena_t arena;
} explained_t;

typedef struct search {
  qn_engine_t* engine;
  qn__request_t request;
  uint32_t generator;
  char identity[256];
  qn__buffer_t preimage;
  qn_hash128_t key;
  qn__neighbour_t nearest;
  uint64_t max_entries;
  int64_t deadline_ns;
  qn__buffer_t text;
  qn__difference_t difference;
} search_t;

// ---------------------------------------------------------------------------------- the key's own

typedef struct answer {
  bool is_found;
  bool is_odd;  // the tier has an entry for the key that a lookup refuses
} answer_t;

static void put_key(qn__buffer_t* out, qn_hash128_t key) {
  char hex[33];
  qn__hash128_hex(key, hex);
  qn__buffer_format(out, "%.12s", hex);
}

// Starts a clause of the text.
static qn__buffer_t* begin_clause(search_t* search) {
  if (search->text.size) qn__buffer_cstr(&search->text, "; ");
  return &search->text;
}

// Decides whether a lookup would accept an entry, and writes the reason if not. Preimages are
// compared whole: an entry with the same key and another preimage is a miss.
static answer_t judge(search_t* search, qn__get_result_t result, const qn__hit_t* hit,
                      const qn__tier_t* tier, size_t part) {
  if (result == QN__GET_ABSENT || result == QN__GET_TIMEOUT || result == QN__GET_OFF) {
    return (answer_t){0};
  }
  uint32_t tag = 0;
  if (result == QN__GET_HIT) {
    tag = qn__preimage_first_difference(qn__buffer_as_span(&search->preimage), hit->entry.preimage);
    if (tag == 0) return (answer_t){.is_found = true};
  }
  qn__buffer_t* text = begin_clause(search);
  if (result != QN__GET_HIT) qn__buffer_cstr(text, "the entry in ");
  tier->table->describe(tier, part, text);
  if (result == QN__GET_HIT) {
    qn__buffer_format(text, " has an entry of the same key that is another's: %s differs",
                      qn__section_text(tag));
  } else if (result == QN__GET_BAD) {
    qn__buffer_format(text, " is damaged: %s; a lookup compiles it again",
                      qn__reason_text(hit->reason));
  } else if (result == QN__GET_ERROR) {
    qn_status_t status = qn__fs_status(hit->error, "read", "it");
    qn__buffer_format(text, " is there, but %s", qn_status_message(status));
    qn_status_free(status);
  } else if (result == QN__GET_UNTRUSTED) {
    qn__buffer_cstr(text,
                    " is not used: it belongs to another user, is no regular file or is not "
                    "authentic");
  } else {
    qn__buffer_cstr(text, " cannot be read: there is no memory");
  }
  return (answer_t){.is_odd = true};
}

static answer_t ask(search_t* search, qn__tier_t* tier, size_t part) {
  qn__hit_t hit;
  qn__get_result_t result = tier->table->inspect(tier, part, search->key, &hit);
  answer_t answer = judge(search, result, &hit, tier, part);
  if (result == QN__GET_HIT) tier->table->release(tier, part, &hit);
  return answer;
}

// ---------------------------------------------------------------------------------- the words

static void put_time(qn__buffer_t* out, int64_t unix_ns) {
  if (unix_ns == 0) return;  // no time: a bundle can be written without times
  time_t seconds = (time_t)(unix_ns / 1000000000);
  struct tm parts;
  char text[32];
  if (!gmtime_r(&seconds, &parts) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts)) return;
  qn__buffer_format(out, ", made %s UTC", text);
}

static bool is_generator_missing(const search_t* search) {
  return !qn__generators_is_installed(&search->engine->generators, search->generator);
}

static void put_nearest(search_t* search, uint32_t tag) {
  const qn__neighbour_t* nearest = &search->nearest;
  qn__difference_t* difference = &search->difference;
  qn_span_t wanted = qn__buffer_as_span(&search->preimage);
  qn_span_t cached = qn__buffer_as_span(&nearest->preimage);
  if (tag == QN__SECTION_MODULE) {
    const qn_module_t* module = search->request.module;
    for (size_t i = 0; i < module->body.function_count && i < 3; i++) {
      qn__buffer_format(&difference->wanted, "%s, ", module->functions[i]->name);
    }
    qn__neighbour_functions(search->engine, nearest, &difference->cached);
  }
  qn__difference_make(tag, qn__preimage_section(wanted, tag), qn__preimage_section(cached, tag),
                      difference);
  qn__buffer_t* text = &search->text;
  if (tag == QN__SECTION_MODULE) {
    qn__buffer_format(text,
                      "module: no entry of this module (%.*s); the nearest has another (%.*s)",
                      QN_STR_ARG(qn__buffer_as_str(&difference->wanted)),
                      QN_STR_ARG(qn__buffer_as_str(&difference->cached)));
  } else if (tag == QN__SECTION_GENERATOR && is_generator_missing(search)) {
    qn__buffer_format(text, "generator: '%s' is not installed, cached %.*s",
                      search->request.target->kind->info->codegen,
                      QN_STR_ARG(qn__buffer_as_str(&difference->cached)));
  } else {
    qn__buffer_format(text, "%.*s: %.*s, cached %.*s",
                      QN_STR_ARG(qn__buffer_as_str(&difference->member)),
                      QN_STR_ARG(qn__buffer_as_str(&difference->wanted)),
                      QN_STR_ARG(qn__buffer_as_str(&difference->cached)));
  }
  if (difference->others.size) {
    qn__buffer_format(text, "; and %.*s", QN_STR_ARG(qn__buffer_as_str(&difference->others)));
  }
  qn__buffer_cstr(text, " (entry ");
  put_key(text, nearest->key);
  qn__buffer_cstr(text, " in ");
  nearest->tier->table->describe(nearest->tier, nearest->part, text);
  put_time(text, nearest->created_ns);
  qn__buffer_char(text, ')');
}

static void put_tiers(search_t* search) {
  qn__buffer_t* text = &search->text;
  size_t count = 0;
  qn__tier_t* tier = qn__tier_first(search->engine);
  for (; tier; tier = qn__tier_next(tier)) {
    if (!tier->table->inspect) continue;
    qn__buffer_cstr(text, count++ ? " and " : "there is no entry in ");
    tier->table->describe_all(tier, text);
  }
  if (!count) qn__buffer_cstr(text, "there is neither a cache directory nor a bundle");
}

// Writes further conditions that a lookup would run into, such as a missing generator.
static void put_notes(search_t* search, bool is_found) {
  qn_engine_t* engine = search->engine;
  qn__buffer_t* text = &search->text;
  if (is_found) {
    if (search->request.device.type != QN_DEVICE_CPU) return;
    qn_status_t status = qn_target_check_host(search->request.target);
    if (!qn_ok(status)) {
      qn__buffer_format(text, "; this machine cannot run it: %s", qn_status_message(status));
    }
    qn_status_free(status);
    return;
  }
  if (search->nearest.was_stopped) {
    qn__buffer_format(text, "; the search for the nearest entry stopped after %" PRIu64,
                      search->nearest.looked_count);
  }
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    if (!tier->table->inspect) {
      qn__buffer_format(text, "; the %s tier was not asked", tier->table->name);
    }
  }
  if (search->request.is_forbidden) {
    qn__buffer_cstr(text, "; compiling is forbidden");
  } else if (is_generator_missing(search)) {
    qn__buffer_format(text, "; generator '%s' is not installed, so it cannot be compiled",
                      search->request.target->kind->info->codegen);
  }
}

static const char* copy(qn__arena_t* arena, const qn__buffer_t* buffer) {
  return qn__arena_cstr(arena, qn__buffer_as_str(buffer));
}

static const char* copy_side(search_t* search, qn__arena_t* arena, const qn__buffer_t* side) {
  qn__buffer_t line;
  qn__buffer_init(&line, search->engine->allocator);
  if (search->difference.member.size) {
    qn__buffer_str(&line, qn__buffer_as_str(&search->difference.member));
    qn__buffer_cstr(&line, ": ");
  }
  qn__buffer_str(&line, qn__buffer_as_str(side));
  if (line.has_failed) arena->is_exhausted = true;
  const char* text = copy(arena, &line);
  qn__buffer_deinit(&line);
  return text;
}

static qn_status_t publish(search_t* search, const char* found_in, uint32_t tag,
                           qn_explanation_t** out_explanation) {
  const qn__difference_t* difference = &search->difference;
  QN_TRY(qn__buffer_status(&search->text, "an explanation"));
  QN_TRY(qn__buffer_status(&difference->member, "an explanation"));
  QN_TRY(qn__buffer_status(&difference->wanted, "an explanation"));
  QN_TRY(qn__buffer_status(&difference->cached, "an explanation"));
  QN_TRY(qn__buffer_status(&difference->others, "an explanation"));
  qn_allocator_t allocator = search->engine->allocator;
  explained_t* explained = qn__alloc_zero(allocator, 1, sizeof *explained);
  if (!explained) return qn__out_of_memory("an explanation");
  qn__arena_init(&explained->arena, allocator);
  qn_explanation_t* result = &explained->public;
  result->struct_size = sizeof *result;
  result->key = qn__hash128_key(search->key);
  result->found_in = found_in;
  if (search->nearest.is_set) result->nearest_key = qn__hash128_key(search->nearest.key);
  result->section = tag ? qn__section_text(tag) : "";
  result->wanted = tag ? copy_side(search, &explained->arena, &difference->wanted) : "";
  result->cached = tag ? copy_side(search, &explained->arena, &difference->cached) : "";
  result->text = copy(&explained->arena, &search->text);
  if (explained->arena.is_exhausted) {
    qn_explanation_free(result);
    return qn__out_of_memory("an explanation");
  }
  *out_explanation = result;
  return QN_OK;
}

// ---------------------------------------------------------------------------------- the whole

// Returns the tier in which a lookup would find the key, searching in the same order; NULL if there
// is none. Sets *out_is_odd if a tier has an entry that a lookup refuses; the text says why.
static const char* find(search_t* search, bool* out_is_odd) {
  qn_engine_t* engine = search->engine;
  qn__ident_t ident = qn__request_ident(&search->request);
  qn_executable_t* executable = qn__table_peek(&engine->table, &ident);
  if (executable) {
    qn_executable_release(executable);
    qn__buffer_cstr(&search->text, "loaded, in memory");
    return "memory";
  }
  for (qn__tier_t* tier = qn__tier_first(engine); tier; tier = qn__tier_next(tier)) {
    for (size_t part = 0; part < tier->part_count && tier->table->inspect; part++) {
      answer_t answer = ask(search, tier, part);
      *out_is_odd |= answer.is_odd;
      if (!answer.is_found) continue;
      qn__buffer_cstr(begin_clause(search), "cached, in ");
      tier->table->describe(tier, part, &search->text);
      if (engine->reads_tiers) return qn_source_text(tier->table->source);
      qn__buffer_cstr(&search->text, ", but the cache mode has it compiled again");
      return "";
    }
  }
  return NULL;
}

static qn_status_t make_key(search_t* search) {
  qn__buffer_clear(&search->preimage);
  return qn__key_make(&search->request, search->identity,
                      qn__config_get(&search->engine->config, QN__SETTING_cache_namespace),
                      &search->preimage, &search->key);
}

static qn_status_t explain(search_t* search, qn_explanation_t** out_explanation) {
  qn_engine_t* engine = search->engine;
  QN_TRY(qn__generators_find(&engine->generators, search->request.target->kind->info->codegen,
                             &search->generator, search->identity));
  QN_TRY(make_key(search));
  bool is_odd = false;
  uint32_t tag = 0;
  const char* found_in = find(search, &is_odd);
  // If no compiler is installed, try the identities that the bundles name.
  uint32_t n = 1;
  for (; !found_in && !is_odd &&
         qn__generators_alternative(&engine->generators, search->generator, n, search->identity);
       n++) {
    QN_TRY(make_key(search));
    found_in = find(search, &is_odd);
  }
  if (!found_in && !is_odd && n > 1) {
    (void)qn__generators_alternative(&engine->generators, search->generator, 0, search->identity);
    QN_TRY(make_key(search));
  }
  if (!found_in && !is_odd) {
    QN_TRY(qn__neighbour_find(engine, qn__buffer_as_span(&search->preimage), search->key,
                              search->max_entries, search->deadline_ns, &search->nearest));
    qn__buffer_cstr(&search->text, "not cached: ");
    if (search->nearest.is_set) {
      tag = qn__preimage_first_difference(qn__buffer_as_span(&search->preimage),
                                          qn__buffer_as_span(&search->nearest.preimage));
      put_nearest(search, tag);
    } else {
      put_tiers(search);
    }
  }
  put_notes(search, found_in != NULL);
  return publish(search, found_in ? found_in : "", tag, out_explanation);
}

qn_status_t qn__explain(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                        const qn_lookup_options_t* options, uint64_t max_entries, int64_t max_ns,
                        qn_explanation_t** out_explanation) {
  *out_explanation = NULL;
  search_t search;
  memset(&search, 0, sizeof search);
  QN_TRY(qn__request_init(engine, module, target, options, &search.request));
  search.engine = engine;
  search.max_entries = max_entries;
  search.deadline_ns = qn__now_ns() + max_ns;
  qn__buffer_init(&search.preimage, engine->allocator);
  qn__buffer_init(&search.nearest.preimage, engine->allocator);
  qn__buffer_init(&search.text, engine->allocator);
  qn__difference_init(&search.difference, engine->allocator);
  qn_status_t status = explain(&search, out_explanation);
  qn__difference_deinit(&search.difference);
  qn__buffer_deinit(&search.text);
  qn__buffer_deinit(&search.nearest.preimage);
  qn__buffer_deinit(&search.preimage);
  return status;
}

qn_status_t qn_engine_explain(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                              const qn_lookup_options_t* options,
                              qn_explanation_t** out_explanation) {
  QN_REQUIRE(out_explanation);
  *out_explanation = NULL;
  QN_REQUIRE(engine, module, target);
  return qn__explain(engine, module, target, options, MAX_ENTRIES, MAX_NS, out_explanation);
}

void qn_explanation_free(qn_explanation_t* explanation) {
  if (!explanation) return;
  explained_t* explained = (explained_t*)explanation;
  qn_allocator_t allocator = explained->arena.allocator;
  qn__arena_deinit(&explained->arena);
  qn__free(allocator, explained, sizeof *explained);
}
