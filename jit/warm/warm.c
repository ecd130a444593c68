// jit/warm/warm.c: warming up: first asks the cache itself, then has workers make what is missing.
//
// Requirements:
//  1. A worker that dies or hangs costs its own key at most. The key is tried once more by another
//     worker, after all others; a key that hangs is not, since it would hang again.
//  2. An outcome is what happened on disk: a worker answers when the entry is in the directory.
//  3. The call returns when all is done; what it waits for has a deadline.
//  4. A command that cannot work (another version, no library) ends the call after a few starts
//     instead of failing key by key.
//  5. No worker is left when the call returns.
// Not here: the workers (warm_crew.c), how a key is made (warm_make.c). Thread rule: one call per
// list. Read next: warm_crew.c.
#include <stdio.h>

#include "base/alloc.h"
#include "jit/warm/warm_crew.h"
#include "quern/quern.h"
#include "quern/target.h"
#include "quern/warm.h"

#define MAX_JOBS 256u

const char* qn_warm_outcome_text(qn_warm_outcome_t outcome) {
  static const char* const texts[QN_WARM_OUTCOME_COUNT] = {
      "none", "compiled", "cached", "failed", "crashed", "timed_out", "skipped"};
  return (unsigned)outcome < QN_WARM_OUTCOME_COUNT ? texts[outcome] : texts[0];
}
// ------------------------------------------------------------------------------------ telling

static void update_progress(qn__warmer_t* w) {
  qn_warm_progress_t* progress = &w->result->progress;
  int64_t now_ns = qn__now_ns();
  progress->elapsed_ns = now_ns - w->start_ns;
  progress->eta_ns = progress->done == progress->total ? 0 : -1;
  int64_t work_ns = now_ns - w->work_start_ns;
  if (w->made_count == 0 || work_ns <= 0) return;
  progress->rate_per_s = (double)w->made_count * 1e9 / (double)work_ns;
  double left_ns =
      (double)(progress->total - progress->done) * (double)work_ns / (double)w->made_count;
  if (left_ns < 9e18) progress->eta_ns = (int64_t)left_ns;
}

void qn__warm_tell(qn__warmer_t* w, const qn_warm_item_t* item) {
  update_progress(w);
  if (!w->options->on_progress) return;
  if (!w->options->on_progress(w->options->on_progress_self, &w->result->progress, item)) {
    w->result->is_cancelled = true;
  }
}

void qn__warm_finish_key(qn__warmer_t* w, size_t job, const qn__warm_verdict_t* verdict) {
  const qn__warm_entry_t* entry = &w->list->entries[job];
  qn__warm_name_t name;
  if (qn_status_consume(qn__warm_name(w->engine, entry, &w->preimage, &name)) != QN_STATUS_OK) {
    name = (qn__warm_name_t){.text = "module"};
  }
  if (verdict->key && verdict->key[0] && strcmp(verdict->key, name.hex) != 0) {
    (void)snprintf(name.hex, sizeof name.hex, "%s", verdict->key);
    char* at = strrchr(name.text, '@');
    if (at) (void)snprintf(at + 1, 13, "%.12s", name.hex);
  }
  qn_warm_item_t item = {
      .name = name.text,
      .key = name.hex,
      .target_json = qn_target_json(entry->target),
      .tier = entry->tier,
      .is_checked = entry->is_checked,
      .outcome = verdict->outcome,
      .compile_ns = verdict->compile_ns,
      .attempt_count = w->keys[job].attempt_count,
      .signal = verdict->signal,
      .code = verdict->code,
      .error = verdict->error ? verdict->error : "",
  };
  qn_warm_progress_t* progress = &w->result->progress;
  w->keys[job].is_done = true;
  progress->done++;
  progress->counts[item.outcome]++;
  qn__warm_tell(w, &item);
}

// ------------------------------------------------------------------------------------ asking first

// Sorts the keys into those that are cached and those that go to workers.
static void ask_cache(qn__warmer_t* w) {
  bool is_dry = w->options->is_dry_run;
  int64_t told_ns = qn__now_ns();
  for (size_t i = 0; i < w->list->count && !w->result->is_cancelled; i++) {
    qn__warm_name_t name;
    qn_status_t status = qn__warm_name(w->engine, &w->list->entries[i], &w->preimage, &name);
    qn__warm_verdict_t verdict = {.outcome = QN_WARM_CACHED};
    if (!qn_ok(status)) {
      verdict = (qn__warm_verdict_t){.outcome = QN_WARM_FAILED,
                                     .code = qn_status_code(status),
                                     .error = qn_status_message(status)};
      qn__warm_finish_key(w, i, &verdict);
      qn_status_free(status);
    } else if (qn__warm_is_cached(w->engine, name.key, qn__buffer_as_span(&w->preimage))) {
      qn__warm_finish_key(w, i, &verdict);
    } else if (is_dry) {
      verdict = (qn__warm_verdict_t){.outcome = QN_WARM_SKIPPED, .error = "it would be compiled"};
      qn__warm_finish_key(w, i, &verdict);
    } else {
      w->queue[w->tail++] = i;
    }
    if (qn__now_ns() - told_ns < QN__WARM_TICK_NS) continue;
    told_ns = qn__now_ns();
    qn__warm_tell(w, NULL);
  }
}

static void skip_rest(qn__warmer_t* w, const char* why) {
  qn__warm_verdict_t verdict = {.outcome = QN_WARM_SKIPPED, .error = why};
  for (size_t i = 0; i < w->list->count; i++) {
    if (!w->keys[i].is_done) qn__warm_finish_key(w, i, &verdict);
  }
}
// ------------------------------------------------------------------------------------ preparing

static const char* const setting_names[QN__SETTING_COUNT] = {
#define QN_OPTION(name, environment, type, default_text, doc) #name,
#include "quern/options.inc"
#undef QN_OPTION
};

// The engine's options, as a worker is to have them.
static const char* worker_setting(const qn_engine_t* engine, qn__setting_t setting) {
  switch (setting) {
    case QN__SETTING_cache_dir:
      return qn__disk_root(qn__engine_disk(engine));
    case QN__SETTING_jit:
      return "allow";
    case QN__SETTING_compile_threads:
      return "1";
    case QN__SETTING_record:
    case QN__SETTING_trace:
      return "";
    default:
      return qn__config_get(&engine->config, setting);
  }
}

static qn_status_t make_hello(qn__warmer_t* w) {
  qn__buffer_t settings;
  qn__buffer_init(&settings, w->engine->allocator);
  for (qn__setting_t i = 0; i < QN__SETTING_COUNT; i++) {
    qn__warm_put_setting(&settings, setting_names[i], worker_setting(w->engine, i));
  }
  qn_status_t status = qn__buffer_status(&settings, "the options of workers");
  if (qn_ok(status)) {
    qn__warm_message_t message = {.kind = QN__WARM_HELLO,
                                  .protocol = QN__WARM_PROTOCOL,
                                  .version = qn__str(qn_version()),
                                  .setting_count = QN__SETTING_COUNT,
                                  .settings = qn__buffer_as_span(&settings)};
    qn__warm_message_encode(&message, &w->hello);
    status = qn__buffer_status(&w->hello, "the options of workers");
  }
  qn__buffer_deinit(&settings);
  return status;
}

static qn_status_t find_command(qn__warmer_t* w) {
  const char* command = w->options->command;
  if (command && strlen(command) >= sizeof w->command) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the path of the command is too long");
  }
  if (command) {
    memcpy(w->command, command, strlen(command) + 1);
  } else if (!qn__process_find_command(w->command)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the command 'quern', which works for a warm-up, is neither beside the "
                          "library nor in PATH; name it in qn_warm_options_t.command");
  }
  return QN_OK;
}

static qn_status_t hire(qn__warmer_t* w) {
  QN_TRY(find_command(w));
  QN_TRY(make_hello(w));
  size_t count = w->options->jobs ? w->options->jobs : (size_t)qn__available_cores();
  if (count > MAX_JOBS) count = MAX_JOBS;
  if (count > w->tail) count = w->tail;
  qn_allocator_t allocator = w->engine->allocator;
  w->workers = qn__alloc_zero(allocator, count, sizeof *w->workers);
  w->fds = qn__alloc_zero(allocator, 2 * count, sizeof *w->fds);
  w->worker_count = count;
  if (!w->workers || !w->fds) return qn__out_of_memory("the workers of a warm-up");
  for (size_t i = 0; i < count; i++) {
    qn__buffer_init(&w->workers[i].in, allocator);
    qn__buffer_init(&w->workers[i].out, allocator);
  }
  return QN_OK;
}

static void release(qn__warmer_t* w) {
  qn_allocator_t allocator = w->engine->allocator;
  for (size_t i = 0; i < w->worker_count && w->workers; i++) {
    qn__buffer_deinit(&w->workers[i].in);
    qn__buffer_deinit(&w->workers[i].out);
  }
  qn__free(allocator, w->workers, w->worker_count * sizeof *w->workers);
  qn__free(allocator, w->fds, 2 * w->worker_count * sizeof *w->fds);
  qn__free(allocator, w->keys, (w->list->count + 1) * sizeof *w->keys);
  qn__free(allocator, w->queue, w->queue_capacity * sizeof *w->queue);
  qn__buffer_deinit(&w->hello);
  qn__buffer_deinit(&w->preimage);
  qn_status_free(w->start_status);
}

static qn_status_t check(const qn_engine_t* engine, const qn_warm_list_t* list,
                         const qn_warm_options_t* options) {
  if (!engine || !list) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a warm-up needs %s, got null",
                          engine ? "a list" : "an engine");
  }
  if (options->struct_size != sizeof *options) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "qn_warm_options_t: struct_size is %zu, expected %zu",
                          options->struct_size, sizeof *options);
  }
  if (options->timeout_ns < 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "timeout_ns: expected at least 0, got %lld",
                          (long long)options->timeout_ns);
  }
  if (options->is_dry_run) return QN_OK;
  if (!qn__engine_disk(engine)) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "a warm-up needs a cache directory: the engine has none, or it could not "
                          "be used; set QUERN_CACHE_DIR, and QUERN_CACHE to rw");
  }
  if (engine->config.cache_mode == QN_CACHE_RO) {
    return qn_status_make(
        QN_STATUS_FAILED_PRECONDITION,
        "a warm-up writes the cache directory, and the engine may only read '%s'; "
        "set QUERN_CACHE to rw",
        qn__disk_root(qn__engine_disk(engine)));
  }
  return QN_OK;
}

static qn_status_t run(qn__warmer_t* w) {
  size_t count = w->list->count;
  qn_allocator_t allocator = w->engine->allocator;
  if (!qn__size_mul(count + 1, QN__WARM_MAX_ATTEMPTS, &w->queue_capacity)) {
    return qn__out_of_memory("the keys of a warm-up");
  }
  w->keys = qn__alloc_zero(allocator, count + 1, sizeof *w->keys);
  w->queue = qn__alloc_zero(allocator, w->queue_capacity, sizeof *w->queue);
  if (!w->keys || !w->queue) return qn__out_of_memory("the keys of a warm-up");
  ask_cache(w);
  qn_status_t status = QN_OK;
  if (w->tail > 0 && !w->result->is_cancelled) {
    status = hire(w);
    if (qn_ok(status)) {
      status = qn__warm_work(w);
      qn__warm_dismiss(w);
    }
  }
  skip_rest(w, qn_ok(status) ? "the warm-up was cancelled" : qn_status_message(status));
  return status;
}

qn_status_t qn_warm(qn_engine_t* engine, const qn_warm_list_t* list,
                    const qn_warm_options_t* options, qn_warm_result_t* out_result) {
  static const qn_warm_options_t defaults = {.struct_size = sizeof defaults};
  qn_warm_result_t result;
  memset(&result, 0, sizeof result);
  if (out_result) *out_result = result;
  if (!options) options = &defaults;
  QN_TRY(check(engine, list, options));
  qn__warmer_t warmer;
  memset(&warmer, 0, sizeof warmer);
  warmer.engine = engine;
  warmer.list = list;
  warmer.options = options;
  warmer.result = &result;
  warmer.start_ns = warmer.work_start_ns = qn__now_ns();
  result.progress.total = list->count;
  qn__buffer_init(&warmer.preimage, engine->allocator);
  qn__buffer_init(&warmer.hello, engine->allocator);
  qn_status_t status = run(&warmer);
  update_progress(&warmer);
  result.is_warm = qn_ok(status) && result.progress.counts[QN_WARM_COMPILED] +
                                            result.progress.counts[QN_WARM_CACHED] ==
                                        list->count;
  release(&warmer);
  if (out_result) *out_result = result;
  return status;
}
