// SPDX-License-Identifier: Apache-2.0
// warm/coordinator.c: qn_warm: asks the cache first, then lets worker processes make the missing
// keys.
//
// Requirements:
//  1. A worker that dies or hangs costs at most its own key. Another worker tries the key once
//     more, after all others; a key that hangs is not tried again, since it would hang again.
//  2. An outcome is the state of the disk: a worker answers when the entry is in the directory.
//  3. The call returns when all keys are done; every wait has a deadline.
//  4. A command that cannot work (another version, a missing library) ends the call after a few
//     starts instead of failing key by key.
//  5. No worker is left when the call returns.
// workers.c has the coordinator's side of the workers, worker.c the worker's.
#include "warm/coordinator.h"
#include "base/struct_size.h"

#include <stdio.h>

#define MAX_JOBS 256

const char* qn_warm_outcome_text(qn_warm_outcome_t outcome) {
  static const char* const texts[QN_WARM_OUTCOME_COUNT] = {
      "none", "compiled", "cached", "failed", "crashed", "timed_out", "skipped"};
  return (unsigned)outcome < QN_WARM_OUTCOME_COUNT ? texts[outcome] : texts[0];
}

// ------------------------------------------------------------------------------------ progress

static void update_progress(qn__warm_up_t* up) {
  qn_warm_result_t* progress = up->result;
  int64_t now_ns = qn__warm_now_ns();
  progress->elapsed_ns = now_ns - up->start_ns;
  progress->eta_ns = progress->done == progress->total ? 0 : -1;
  int64_t work_ns = now_ns - up->work_start_ns;
  if (up->made_count == 0 || work_ns <= 0) return;
  progress->rate_per_s = (double)up->made_count * 1e9 / (double)work_ns;
  double left_ns =
      (double)(progress->total - progress->done) * (double)work_ns / (double)up->made_count;
  if (left_ns < 9e18) progress->eta_ns = (int64_t)left_ns;
}

void qn__warm_report(qn__warm_up_t* up, const qn_warm_item_t* item) {
  update_progress(up);
  if (!up->options->on_progress) return;
  if (!up->options->on_progress(up->options->on_progress_self, up->result, item)) {
    up->result->is_cancelled = true;
  }
}

// Looks in the local tiers for a key and predicts its digits, without a compiler.
static qn_status_t ask(qn__warm_up_t* up, size_t index, qn_lookup_info_t* out_info) {
  const qn__warm_entry_t* entry = &up->list->entries[index];
  qn_lookup_options_t options = {.struct_size = sizeof options,
                                 .tier = entry->tier,
                                 .is_checked = entry->is_checked,
                                 .miss = QN_MISS_FAIL};
  return qn_engine_compile(up->engine, entry->module, entry->target, &options, out_info);
}

// Ends a key whose digits are known.
static void finish_named(qn__warm_up_t* up, size_t index, qn_cache_key_t key,
                         const qn__warm_verdict_t* verdict) {
  const qn__warm_entry_t* entry = &up->list->entries[index];
  const char* function = qn_module_function_name(entry->module, 0);
  char name[128];
  (void)snprintf(name, sizeof name, "%.100s@%.12s", function ? function : "module", key.hex);
  qn_warm_item_t item = {
      .struct_size = sizeof item,
      .name = name,
      .key = key,
      .target_json = qn_target_json(entry->target),
      .tier = entry->tier,
      .is_checked = entry->is_checked,
      .outcome = verdict->outcome,
      .compile_ns = verdict->compile_ns,
      .attempt_count = up->keys[index].attempt_count,
      .signal = verdict->signal,
      .code = verdict->code,
      .error = verdict->error ? verdict->error : "",
  };
  assert(!up->keys[index].is_done);
  qn_warm_result_t* progress = up->result;
  up->keys[index].is_done = true;
  progress->done++;
  progress->counts[item.outcome]++;
  qn__warm_report(up, &item);
}

void qn__warm_finish_key(qn__warm_up_t* up, size_t index, const qn__warm_verdict_t* verdict) {
  qn_lookup_info_t info = {.struct_size = sizeof info};
  if (verdict->key && verdict->key[0]) {
    memcpy(info.key.hex, verdict->key, sizeof info.key.hex);
  } else {
    qn_status_free(ask(up, index, &info));
  }
  finish_named(up, index, info.key, verdict);
}

// ------------------------------------------------------------------------------------ asking first

// Sorts the keys into those that are cached and those that go to workers.
static void ask_cache(qn__warm_up_t* up) {
  int64_t report_ns = qn__warm_now_ns();
  for (size_t i = 0; i < up->list->count && !up->result->is_cancelled; i++) {
    qn_lookup_info_t info = {.struct_size = sizeof info};
    qn_status_t status = ask(up, i, &info);
    qn__warm_verdict_t verdict = {.outcome = QN_WARM_CACHED};
    if (qn_ok(status)) {
      finish_named(up, i, info.key, &verdict);
    } else if (qn_status_code(status) != QN_STATUS_COMPILE_FORBIDDEN) {
      verdict = (qn__warm_verdict_t){.outcome = QN_WARM_FAILED,
                                     .code = qn_status_code(status),
                                     .error = qn_status_message(status)};
      finish_named(up, i, info.key, &verdict);
    } else if (up->options->is_dry_run) {
      verdict = (qn__warm_verdict_t){.outcome = QN_WARM_SKIPPED, .error = "it would be compiled"};
      finish_named(up, i, info.key, &verdict);
    } else {
      up->queue[up->tail++] = i;
    }
    qn_status_free(status);
    if (qn__warm_now_ns() - report_ns < QN__WARM_TICK_NS) continue;
    report_ns = qn__warm_now_ns();
    qn__warm_report(up, NULL);
  }
}

static void skip_rest(qn__warm_up_t* up, const char* why) {
  qn__warm_verdict_t verdict = {.outcome = QN_WARM_SKIPPED, .error = why};
  for (size_t i = 0; i < up->list->count; i++) {
    if (!up->keys[i].is_done) qn__warm_finish_key(up, i, &verdict);
  }
}

// ------------------------------------------------------------------------------------ preparing

// The engine's options, as the workers get them.
typedef struct settings {
  qn__warm_bytes_t bytes;
  uint32_t count;
  const char* cache_dir;   // "" when there is none
  const char* cache_mode;  // borrowed from the engine, both
} settings_t;

static void take_setting(void* self, const qn_setting_t* setting) {
  static const qn_setting_t of_workers[] = {
      {"jit", "allow"}, {"compile_threads", "1"}, {"record", ""}, {"trace", ""}};
  settings_t* settings = self;
  const char* value = setting->value;
  if (strcmp(setting->name, "cache_dir") == 0) settings->cache_dir = value;
  if (strcmp(setting->name, "cache_mode") == 0) settings->cache_mode = value;
  for (size_t i = 0; i < sizeof of_workers / sizeof of_workers[0]; i++) {
    if (strcmp(setting->name, of_workers[i].name) == 0) value = of_workers[i].value;
  }
  qn__warm_put_setting(&settings->bytes, setting->name, value);
  settings->count++;
}

static qn_status_t check_directory(const settings_t* settings) {
  if (!settings->cache_dir[0]) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "a warm-up needs a cache directory: the engine has none, or it could not "
                          "be used; set QUERN_CACHE_DIR, and QUERN_CACHE to rw");
  }
  if (strcmp(settings->cache_mode, "ro") == 0) {
    return qn_status_make(
        QN_STATUS_FAILED_PRECONDITION,
        "a warm-up writes the cache directory, and the engine may only read '%s'; "
        "set QUERN_CACHE to rw",
        settings->cache_dir);
  }
  return QN_OK;
}

// Checks that the engine's options allow a warm-up and encodes them for the workers.
static qn_status_t make_hello(qn__warm_up_t* up) {
  settings_t settings = {.bytes.allocator = up->allocator, .cache_dir = "", .cache_mode = ""};
  qn_engine_settings(up->engine, take_setting, &settings);
  qn_status_t status = check_directory(&settings);
  if (qn_ok(status)) {
    qn__warm_message_t message = {.kind = QN__WARM_HELLO,
                                  .protocol = QN__WARM_PROTOCOL,
                                  .version = qn__warm_span(qn_version()),
                                  .setting_count = settings.count,
                                  .settings = {settings.bytes.data, settings.bytes.size}};
    qn__warm_message_encode(&message, &up->hello);
    if (settings.bytes.has_failed || up->hello.has_failed) {
      status = qn__warm_no_memory("the options of workers");
    }
  }
  qn__warm_bytes_deinit(&settings.bytes);
  return status;
}

static qn_status_t find_command(qn__warm_up_t* up) {
  const char* command = up->options->command;
  if (command && strlen(command) >= sizeof up->command) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the path of the command is too long");
  }
  if (command) {
    memcpy(up->command, command, strlen(command) + 1);
  } else if (!qn__warm_process_find_command(up->command)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the command 'quern', whose processes do the work, is neither beside the "
                          "library nor in PATH; name it in qn_warm_options_t.command");
  }
  return QN_OK;
}

// Returns the number of cores that this process may use.
static size_t default_jobs(void) {
  qn_attribute_value_t cores;
  qn_device_t cpu = {QN_DEVICE_CPU, 0};
  qn_status_t status = qn_device_attribute(cpu, QN_ATTRIBUTE_MULTI_PROCESSOR_COUNT, &cores);
  return qn_status_consume(status) == QN_STATUS_OK && cores.int_value > 0 ? (size_t)cores.int_value
                                                                          : 1;
}

static void* zeroed(qn__warm_up_t* up, size_t count, size_t item_bytes) {
  if (count > SIZE_MAX / item_bytes) return NULL;
  void* items = up->allocator.reallocate(up->allocator.self, NULL, 0, count * item_bytes);
  if (items) memset(items, 0, count * item_bytes);
  return items;
}

static qn_status_t prepare_workers(qn__warm_up_t* up) {
  qn_status_t status = find_command(up);
  if (!qn_ok(status)) return status;
  size_t count = up->options->jobs ? up->options->jobs : default_jobs();
  if (count > MAX_JOBS) count = MAX_JOBS;
  if (count > up->tail) count = up->tail;
  up->worker_count = count;
  up->workers = zeroed(up, count, sizeof *up->workers);
  up->fds = zeroed(up, 2 * count, sizeof *up->fds);
  if (!up->workers || !up->fds) return qn__warm_no_memory("the workers of a warm-up");
  for (size_t i = 0; i < count; i++) {
    up->workers[i].in.allocator = up->workers[i].out.allocator = up->allocator;
  }
  return QN_OK;
}

static void release(qn__warm_up_t* up) {
  qn_allocator_t a = up->allocator;
  for (size_t i = 0; i < up->worker_count && up->workers; i++) {
    qn__warm_bytes_deinit(&up->workers[i].in);
    qn__warm_bytes_deinit(&up->workers[i].out);
  }
  if (up->workers) {
    (void)a.reallocate(a.self, up->workers, up->worker_count * sizeof *up->workers, 0);
  }
  if (up->fds) (void)a.reallocate(a.self, up->fds, 2 * up->worker_count * sizeof *up->fds, 0);
  if (up->keys) (void)a.reallocate(a.self, up->keys, (up->list->count + 1) * sizeof *up->keys, 0);
  if (up->queue) {
    (void)a.reallocate(a.self, up->queue, up->queue_capacity * sizeof *up->queue, 0);
  }
  qn__warm_bytes_deinit(&up->hello);
  qn_status_free(up->start_status);
}

static qn_status_t check(const qn_engine_t* engine, const qn_warm_list_t* list,
                         const qn_warm_options_t* options) {
  if (!engine || !list) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a warm-up needs %s, got null",
                          engine ? "a list" : "an engine");
  }
  if (options->time_limit_ns < 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "time_limit_ns: expected at least 0, got %lld",
                          (long long)options->time_limit_ns);
  }
  return QN_OK;
}

static qn_status_t run(qn__warm_up_t* up) {
  if (!up->options->is_dry_run) {
    qn_status_t status = make_hello(up);
    if (!qn_ok(status)) return status;
  }
  size_t count = up->list->count;
  up->queue_capacity = (count + 1) * QN__WARM_MAX_ATTEMPTS;
  up->keys = zeroed(up, count + 1, sizeof *up->keys);
  up->queue = zeroed(up, up->queue_capacity, sizeof *up->queue);
  if (!up->keys || !up->queue) return qn__warm_no_memory("the keys of a warm-up");
  ask_cache(up);
  qn_status_t status = QN_OK;
  if (up->tail > 0 && !up->result->is_cancelled) {
    status = prepare_workers(up);
    if (qn_ok(status)) {
      status = qn__warm_run_workers(up);
      qn__warm_end_workers(up);
    }
  }
  skip_rest(up, qn_ok(status) ? "the warm-up was cancelled" : qn_status_message(status));
  return status;
}

qn_status_t qn_warm(qn_engine_t* engine, const qn_warm_list_t* list,
                    const qn_warm_options_t* options, qn_warm_result_t* out_result) {
  qn_warm_result_t result = {.struct_size = sizeof result};
  qn_status_t status = qn__struct_clear("qn_warm_result_t", out_result, sizeof result);
  if (!qn_ok(status)) return status;
  qn_warm_options_t given;
  status = qn__struct_read("qn_warm_options_t", 0, options, &given, sizeof given);
  if (qn_ok(status)) status = check(engine, list, &given);
  if (!qn_ok(status)) return status;
  bool has_allocator = given.allocator.reallocate != NULL;
  qn__warm_up_t up = {.engine = engine,
                      .list = list,
                      .options = &given,
                      .allocator = has_allocator ? given.allocator : qn_allocator_default(),
                      .result = &result};
  up.hello.allocator = up.allocator;
  up.start_ns = up.work_start_ns = qn__warm_now_ns();
  result.total = list->count;
  status = run(&up);
  update_progress(&up);
  size_t warm_count = result.counts[QN_WARM_COMPILED] + result.counts[QN_WARM_CACHED];
  result.is_warm = qn_ok(status) && warm_count == list->count;
  release(&up);
  qn__struct_write(out_result, &result, sizeof result);
  return status;
}
