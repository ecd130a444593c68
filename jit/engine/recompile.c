// SPDX-License-Identifier: Apache-2.0
// jit/engine/recompile.c: qn_engine_recompile: compiles entries again and compares the bytes.
//
// A difference means a generator that is not deterministic, a machine that computes wrongly, or an
// entry that was put under a key that is not its own: each is worth an alarm. Nothing is loaded, so
// entries for any machine can be compared.
#include <stdlib.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/fs.h"
#include "base/struct_size.h"
#include "jit/codegen/artifact.h"
#include "jit/engine/cached.h"
#include "quern/cache.h"
#include "target/target.h"

typedef struct sample {
  qn_engine_t* engine;
  const qn_recompile_options_t* options;
  qn_recompile_report_t* report;
  qn_hash128_t* keys;
  size_t count;
  size_t capacity;
  bool is_out_of_memory;
} sample_t;

static bool take_key(void* self, const qn__disk_file_t* file) {
  sample_t* sample = self;
  void* keys = sample->keys;
  if (!qn__grow(sample->engine->allocator, &keys, &sample->capacity, sample->count + 1,
                sizeof *sample->keys)) {
    sample->is_out_of_memory = true;
    return false;
  }
  sample->keys = keys;
  sample->keys[sample->count++] = file->key;
  return true;
}

// SplitMix64 (Steele, Lea and Flood, 2014): enough for a sample.
static uint64_t next_random(uint64_t* state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static int compare_keys(const void* a, const void* b) {
  return memcmp(a, b, sizeof(qn_hash128_t));
}

// Puts the keys into an order that keys and seed alone decide: a directory is listed in any order.
static void shuffle(sample_t* sample) {
  qn_hash128_t* keys = sample->keys;
  if (sample->count > 1) qsort(keys, sample->count, sizeof *keys, compare_keys);
  uint64_t state = sample->options->seed;
  for (size_t i = sample->count; i > 1; i--) {
    size_t j = (size_t)(next_random(&state) % i);
    qn_hash128_t swapped = keys[i - 1];
    keys[i - 1] = keys[j];
    keys[j] = swapped;
  }
}

// ------------------------------------------------------------------------------------ one entry

// Compares one section and reports a difference. True when it is the same.
static bool compare(const sample_t* sample, qn_cache_key_t key, const char* section,
                    qn_span_t cached, qn_span_t made) {
  size_t shorter = cached.size < made.size ? cached.size : made.size;
  size_t at = 0;
  while (at < shorter && cached.data[at] == made.data[at]) at++;
  if (at == cached.size && at == made.size) return true;
  qn_recompile_difference_t difference = {.struct_size = sizeof difference,
                                          .key = key,
                                          .section = section,
                                          .offset = at,
                                          .cached_size = cached.size,
                                          .made_size = made.size};
  size_t cached_count = cached.size - at, made_count = made.size - at;
  difference.cached_count = cached_count < 8 ? cached_count : 8;
  difference.made_count = made_count < 8 ? made_count : 8;
  if (difference.cached_count) memcpy(difference.cached, cached.data + at, difference.cached_count);
  if (difference.made_count) memcpy(difference.made, made.data + at, difference.made_count);
  if (sample->options->on_difference) {
    sample->options->on_difference(sample->options->self, &difference);
  }
  return false;
}

static qn_status_t compare_artifact(const sample_t* sample, qn_cache_key_t key,
                                    const qn__entry_t* entry, const qn_artifact_t* artifact) {
  qn__buffer_t metadata;
  qn__buffer_init(&metadata, sample->engine->allocator);
  qn__artifact_encode(artifact, &metadata);
  qn_status_t status = qn__buffer_status(&metadata, "an artifact");
  if (qn_ok(status)) {
    bool is_same = compare(sample, key, "metadata", entry->metadata, qn__buffer_as_span(&metadata));
    qn_span_t payload = {artifact->payload, artifact->payload_size};
    is_same = compare(sample, key, "payload", entry->payload, payload) && is_same;
    if (is_same) {
      sample->report->same_count++;
    } else {
      sample->report->different_count++;
    }
  }
  qn__buffer_deinit(&metadata);
  return status;
}

// Opens the generator of a target. NULL when another generator made the entry.
static qn_status_t find_codegen(const sample_t* sample, const qn_target_t* target,
                                qn_str_t identity, const qn_codegen_t** out_codegen,
                                void** out_self) {
  *out_codegen = NULL;
  qn__generators_t* generators = &sample->engine->generators;
  uint32_t index;
  char here[256];
  QN_TRY(qn__generators_find(generators, target->kind->info->codegen, &index, here));
  // Only the identity of the opened generator counts: the predicted one may be wrong. One that is
  // not installed is not opened, since that would be an error.
  bool is_equal = qn__str_equal(identity, qn__str(here));
  if (!is_equal && strstr(here, "(not found)")) return QN_OK;
  QN_TRY(qn__generators_open(generators, index, out_codegen, out_self, here));
  if (!qn__str_equal(identity, qn__str(here))) *out_codegen = NULL;
  return QN_OK;
}

static qn_status_t make_again(const sample_t* sample, qn_cache_key_t key, const qn__entry_t* entry,
                              const qn__origin_t* origin, const qn_target_t* target) {
  const qn_codegen_t* codegen;
  void* self;
  QN_TRY(find_codegen(sample, target, origin->identity, &codegen, &self));
  if (!codegen) {
    sample->report->other_codegen_count++;
    return QN_OK;
  }
  qn_compile_request_t request = {
      .struct_size = sizeof request,
      .module_bytes = entry->module.data,
      .module_size = entry->module.size,
      .target_json = qn_target_json(target),
      .tier = origin->tier,
      .is_checked = origin->is_checked,
  };
  qn__compiled_t compiled;
  qn_status_t status = qn__artifact_compile(codegen, self, &request, &compiled);
  if (qn_ok(status)) {
    status = compare_artifact(sample, key, entry, &compiled.artifact);
  } else {
    sample->report->failed_count++;
    if (sample->options->on_failure) {
      sample->options->on_failure(sample->options->self, key, qn_status_message(status));
    }
    qn_status_free(status);
    status = QN_OK;
  }
  qn__compiled_release(&compiled);
  return status;
}

static qn_status_t try_entry(const sample_t* sample, qn_cache_key_t key, const qn__entry_t* entry) {
  if (qn__preimage_has(entry->preimage, QN__SECTION_DRIVER)) return QN_OK;
  qn__origin_t origin;
  if (!qn__origin_read(entry->preimage, &origin)) {
    sample->report->other_codegen_count++;  // of a version whose preimages differ
    return QN_OK;
  }
  if (entry->module.size == 0) {
    sample->report->without_module_count++;
    return QN_OK;
  }
  if (!qn__entry_module_matches(entry)) {
    sample->report->bad_count++;
    return QN_OK;
  }
  qn_target_t* target;
  qn_status_t status = qn__origin_target(&origin, sample->engine->allocator, &target);
  if (qn_ok(status) && qn__str_equal(origin.target_json, qn__str(qn_target_json(target)))) {
    status = make_again(sample, key, entry, &origin, target);
  } else if (qn_status_code(status) != QN_STATUS_OUT_OF_MEMORY) {
    // Another version wrote the target.
    qn_status_free(status);
    status = QN_OK;
    sample->report->other_codegen_count++;
  }
  qn_target_release(target);
  return status;
}

static qn_status_t try_key(const sample_t* sample, qn_hash128_t key) {
  qn__hit_t hit;
  qn__get_result_t result =
      qn__disk_inspect(qn__engine_disk(sample->engine), key, false, &hit, NULL);
  if (result == QN__GET_NO_MEMORY) return qn__out_of_memory("an entry");
  if (result != QN__GET_HIT) {
    sample->report->bad_count += result != QN__GET_ABSENT;
    return QN_OK;
  }
  qn_status_t status = try_entry(sample, qn__hash128_key(key), &hit.entry);
  qn__disk_hit_release(qn__engine_disk(sample->engine), &hit);
  return status;
}

static qn_status_t try_sample(sample_t* sample) {
  const qn_recompile_options_t* options = sample->options;
  qn_recompile_report_t* report = sample->report;
  uint64_t total =
      options->count && options->count < sample->count ? options->count : (uint64_t)sample->count;
  for (size_t i = 0; i < sample->count; i++) {
    uint64_t done = report->same_count + report->different_count + report->failed_count;
    if (done >= total) break;
    if (options->on_progress && !options->on_progress(options->self, done, total)) break;
    QN_TRY(try_key(sample, sample->keys[i]));
  }
  return QN_OK;
}

qn_status_t qn_engine_recompile(qn_engine_t* engine, const qn_recompile_options_t* options,
                                qn_recompile_report_t* out_report) {
  QN_REQUIRE(engine);
  QN_STRUCT_CLEAR(qn_recompile_report_t, out_report);
  qn_recompile_report_t report = {0};
  QN_STRUCT_READ(qn_recompile_options_t, options, given);
  if (!qn__engine_disk(engine)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "the engine has no cache directory to compile again");
  }
  sample_t sample = {.engine = engine, .options = &given, .report = &report};
  int error = qn__disk_scan(qn__engine_disk(engine), take_key, &sample, NULL);
  report.entry_count = sample.count;
  qn_status_t status = QN_OK;
  if (sample.is_out_of_memory) {
    status = qn__out_of_memory("the keys of a directory");
  } else if (error) {
    status = qn__fs_status(error, "list", qn__disk_root(qn__engine_disk(engine)));
  }
  if (qn_ok(status)) {
    shuffle(&sample);
    status = try_sample(&sample);
  }
  qn__free(engine->allocator, sample.keys, sample.capacity * sizeof *sample.keys);
  QN_STRUCT_WRITE(out_report, report);
  return status;
}
