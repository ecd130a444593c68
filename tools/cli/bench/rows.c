// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/rows.c: see rows.h. Not here: new processes (child.c), statistics (stats.c),
// records (records.c).
#define _XOPEN_SOURCE 700
#include "tools/cli/bench/rows.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "tools/cli/bench/stop.h"
#include "tools/cli/memory.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

// A sample lasts this long at least, unless one call lasts longer; a round has at most so many.
enum { SAMPLE_NS = 20000, MAX_ITERATIONS = 1 << 20, MAX_ROUND_SAMPLES = 5000 };

const char* row_kind_text(bench_row_kind_t kind) {
  static const char* const texts[ROW_KIND_COUNT] = {"cold", "disk", "miss", "memory", "call"};
  return texts[kind];
}

static qn_lookup_options_t lookup_options(const spot_t* spot) {
  bool is_fast = strcmp(spot->tier, "fast") == 0;
  return (qn_lookup_options_t){.struct_size = sizeof(qn_lookup_options_t),
                               .tier = is_fast ? QN_TIER_FAST : QN_TIER_FULL};
}

static qn_status_t memory_engine(qn_engine_t** out_engine) {
  static const qn_setting_t settings[] = {{"cache_dir", ""},       {"bundles", ""}, {"remote", ""},
                                          {"record", ""},          {"trace", ""},   {"dump", ""},
                                          {"compile_threads", "1"}};
  return session_engine_with(settings, sizeof settings / sizeof settings[0], out_engine);
}

static qn_status_t look_up(const spot_t* spot, qn_engine_t* engine, qn_lookup_info_t* info,
                           qn_function_t** out_function) {
  qn_lookup_options_t options = lookup_options(spot);
  *info = (qn_lookup_info_t){.struct_size = sizeof *info};
  return qn_engine_function(engine, spot->subject->module, spot->place->target,
                            spot->subject->function, &options, info, out_function);
}

// ------------------------------------------------------------------------------------ spots

static qn_status_t call(spot_t* spot, int64_t count) {
  qn_status_t status = QN_OK;
  for (int64_t i = 0; i < count && qn_ok(status); i++) {
    status = qn_function_call_on(spot->function, NULL, spot->bound.values, spot->bound.count, NULL);
  }
  return qn_ok(status) ? qn_stream_sync(spot->place->device, NULL) : status;
}

// Counts the work with the arrays of the host, whose contents may decide it.
static void count_work(spot_t* spot) {
  size_t count = spot->bound.count;
  qn_value_t* values = memory_zeroed(count, sizeof *values);
  qn_tensor_t* tensors = memory_zeroed(count, sizeof *tensors);
  for (size_t i = 0; i < count; i++) {
    const run_arg_t* arg = &spot->bound.args[i];
    values[i] = spot->bound.values[i];
    if (!arg->is_array) continue;
    tensors[i] = arg->tensor;
    tensors[i].data = arg->array.data;
    tensors[i].strides = NULL;
    tensors[i].device = (qn_device_t){QN_DEVICE_CPU, 0};
    values[i] = qn_value_tensor(&tensors[i]);
  }
  spot->work = (qn_work_t){.struct_size = sizeof spot->work};
  qn_status_t status = qn_module_work(spot->subject->module, spot->subject->index, values, count,
                                      spot->place->warp_size, &spot->work);
  if (!qn_ok(status)) spot->uncounted = memory_text(qn_status_message(status));
  qn_status_free(status);
  free(values);
  free(tensors);
}

qn_status_t spot_open(spot_t* spot) {
  qn_lookup_info_t info;
  qn_status_t status = run_args_bind(&spot->inputs->args, spot->subject->module,
                                     spot->subject->index, spot->place->device, true, &spot->bound);
  if (qn_ok(status)) status = run_args_upload(&spot->bound);
  if (qn_ok(status)) status = memory_engine(&spot->engine);
  if (qn_ok(status)) status = look_up(spot, spot->engine, &info, &spot->function);
  // The call checks the arguments; counting relies on that.
  if (qn_ok(status)) status = call(spot, 1);
  if (!qn_ok(status)) return status;
  count_work(spot);
  for (size_t i = 0; i < spot->bound.count; i++) {
    const run_arg_t* arg = &spot->bound.args[i];
    spot->restores_inputs |= arg->is_array && arg->info.access == QN_ACCESS_INOUT;
  }
  return QN_OK;
}

void spot_close(spot_t* spot) {
  run_args_free(&spot->bound);
  qn_function_release(spot->function);
  qn_engine_destroy(spot->engine);
  free(spot->uncounted);
  spot->function = NULL;
  spot->engine = NULL;
  spot->uncounted = NULL;
}

// ------------------------------------------------------------------------------------ repeating

static qn_status_t run_body(bench_row_t* row, int64_t count) {
  spot_t* spot = row->spot;
  if (row->kind == ROW_CALL) return call(spot, count);
  qn_status_t status = QN_OK;
  for (int64_t i = 0; i < count && qn_ok(status); i++) {
    qn_lookup_info_t info;
    qn_function_t* function = NULL;
    status = look_up(spot, spot->engine, &info, &function);
    qn_function_release(function);
  }
  return status;
}

// Times one sample of `count` iterations.
static qn_status_t time_body(bench_row_t* row, int64_t count, double* out_ns) {
  bool restores = row->kind == ROW_CALL && row->spot->restores_inputs;
  qn_status_t status = restores ? run_args_upload(&row->spot->bound) : QN_OK;
  if (qn_ok(status) && restores) status = qn_stream_sync(row->spot->place->device, NULL);
  int64_t start_ns = now_ns();
  if (qn_ok(status)) status = run_body(row, count);
  *out_ns = (double)(now_ns() - start_ns);
  return status;
}

// Finds how many iterations make a sample, which also warms caches up.
static qn_status_t calibrate(bench_row_t* row) {
  double ns = 0;
  for (int64_t count = 1;; count *= 2) {
    row->iterations = count;
    qn_status_t status = time_body(row, count, &ns);
    if (!qn_ok(status) || ns >= (double)SAMPLE_NS || count >= MAX_ITERATIONS) return status;
  }
}

static qn_status_t repeat(bench_row_t* row, size_t round, int64_t until_ns) {
  qn_status_t status = row->iterations == 0 ? calibrate(row) : QN_OK;
  size_t count = 0;
  while (qn_ok(status)) {
    double ns;
    status = time_body(row, row->iterations, &ns);
    if (!qn_ok(status)) break;
    samples_add(&row->samples, round, ns / (double)row->iterations);
    if (++count == MAX_ROUND_SAMPLES || now_ns() >= until_ns || stop_wanted()) break;
  }
  return status;
}

// ------------------------------------------------------------------------------------ processes

typedef struct stage_list {
  warm_times_t* items;
  size_t count, capacity;
} stage_list_t;

static int remove_one(const char* path, const struct stat* info, int type, struct FTW* at) {
  (void)info, (void)type, (void)at;
  return remove(path);
}

static qn_status_t spawn(bench_row_t* row, size_t round, const char* cache_dir) {
  const spot_t* spot = row->spot;
  child_request_t request = {spot->args,   spot->subject, spot->place, spot->tier,
                             row->threads, spot->inputs,  cache_dir};
  warm_times_t times;
  qn_status_t status = child_spawn(&request, &times);
  if (!qn_ok(status)) return status;
  if (times.was_compiled != (row->kind == ROW_COLD)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "a new process %s",
                          times.was_compiled ? "compiled code that another one had stored"
                                             : "found code in an empty cache");
  }
  samples_add(&row->samples, round, times.total);
  if (!row->children) row->children = memory_zeroed(1, sizeof *row->children);
  stage_list_t* list = row->children;
  list->items = memory_room(list->items, &list->capacity, list->count, sizeof *list->items);
  list->items[list->count++] = times;
  return QN_OK;
}

static qn_status_t spawn_pairs(bench_row_t* row, size_t round, int64_t until_ns,
                               const char* work_dir) {
  qn_status_t status = QN_OK;
  char cache_dir[512];
  (void)snprintf(cache_dir, sizeof cache_dir, "%.400s/cache", work_dir);
  do {
    (void)nftw(cache_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    status = spawn(row, round, cache_dir);
    if (qn_ok(status) && row->disk) status = spawn(row->disk, round, cache_dir);
  } while (qn_ok(status) && now_ns() < until_ns && !stop_wanted());
  (void)nftw(cache_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  return status;
}

// Takes the stages of the process that is nearest to the median: they add up to its time.
static void choose_stages(bench_row_t* row) {
  double median = samples_distribution(&row->samples).median, best = INFINITY;
  for (size_t i = 0; row->children && i < row->children->count; i++) {
    const warm_times_t* times = &row->children->items[i];
    if (fabs(times->total - median) >= best) continue;
    best = fabs(times->total - median);
    memcpy(row->stages, times->stages, sizeof row->stages);
  }
}

// ------------------------------------------------------------------------------------ compiles

// One thread that compiles, with an engine of its own: two threads of one engine would share the
// compile of one key.
typedef struct compiler {
  bench_row_t* row;
  qn_engine_t* engine;
  int64_t until_ns;
  double* times_ns;  // of the round; owned
  size_t count, capacity;
  double lookup_ns, compile_ns;  // in all
  int64_t total;
  qn_status_t status;
} compiler_t;

typedef struct compilers {
  compiler_t* items;
  size_t count;
  double wall_ns;
  int64_t total;
} compilers_t;

static qn_status_t compile_once(compiler_t* c, double* out_ns) {
  const spot_t* spot = c->row->spot;
  qn_lookup_options_t options = lookup_options(spot);
  qn_lookup_info_t info;
  qn_function_t* function = NULL;
  int64_t start_ns = now_ns();
  qn_status_t status = look_up(spot, c->engine, &info, &function);
  *out_ns = (double)(now_ns() - start_ns);
  qn_function_release(function);
  (void)qn_engine_unload(c->engine, spot->subject->module, spot->place->target, &options);
  if (!qn_ok(status)) return status;
  if (info.source != QN_SOURCE_COMPILED) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "the engine kept the code, so there was no miss");
  }
  c->lookup_ns += *out_ns;
  c->compile_ns += (double)info.compile_ns;
  c->total++;
  return QN_OK;
}

static void* compile_all(void* self) {
  compiler_t* c = self;
  c->count = 0;
  do {
    double ns;
    c->status = compile_once(c, &ns);
    if (!qn_ok(c->status)) break;
    c->times_ns = memory_room(c->times_ns, &c->capacity, c->count, sizeof *c->times_ns);
    c->times_ns[c->count++] = ns;
  } while (now_ns() < c->until_ns && c->count < MAX_ROUND_SAMPLES && !stop_wanted());
  return NULL;
}

// Makes the engines. Their first compiles open the generator, and are not counted.
static qn_status_t open_compilers(bench_row_t* row) {
  if (row->compilers) return QN_OK;
  compilers_t* all = row->compilers = memory_zeroed(1, sizeof *all);
  all->count = (size_t)(row->threads > 0 ? row->threads : 1);
  all->items = memory_zeroed(all->count, sizeof *all->items);
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < all->count && qn_ok(status); i++) {
    compiler_t* c = &all->items[i];
    double ns;
    c->row = row;
    status = memory_engine(&c->engine);
    if (qn_ok(status)) status = compile_once(c, &ns);
    c->lookup_ns = c->compile_ns = 0;
    c->total = 0;
  }
  return status;
}

static qn_status_t compile_round(bench_row_t* row, size_t round, int64_t until_ns) {
  qn_status_t status = open_compilers(row);
  if (!qn_ok(status)) return status;
  compilers_t* all = row->compilers;
  pthread_t* threads = memory_zeroed(all->count, sizeof *threads);
  int64_t start_ns = now_ns();
  size_t started = 1;
  for (size_t i = 0; i < all->count; i++) all->items[i].until_ns = until_ns;
  while (started < all->count && qn_ok(status)) {
    errno = pthread_create(&threads[started], NULL, compile_all, &all->items[started]);
    if (errno == 0) {
      started++;
    } else {
      status = qn_status_make(QN_STATUS_UNAVAILABLE, "a thread: %s", strerror(errno));
    }
  }
  (void)compile_all(&all->items[0]);
  for (size_t i = 1; i < started; i++) (void)pthread_join(threads[i], NULL);
  all->wall_ns += (double)(now_ns() - start_ns);
  free(threads);
  for (size_t i = 0; i < started; i++) {
    compiler_t* c = &all->items[i];
    for (size_t k = 0; k < c->count; k++) samples_add(&row->samples, round, c->times_ns[k]);
    all->total += (int64_t)c->count;
    if (qn_ok(status)) {
      status = c->status;
    } else {
      qn_status_free(c->status);
    }
    c->status = QN_OK;
  }
  return status;
}

// The means of the stages over all compiles of the counted rounds and the first ones.
static void mean_stages(bench_row_t* row) {
  double lookup_ns = 0, compile_ns = 0, total = 0;
  memset(row->stages, 0, sizeof row->stages);
  for (size_t i = 0; row->compilers && i < row->compilers->count; i++) {
    const compiler_t* c = &row->compilers->items[i];
    double stages[WARM_COUNT] = {0};
    if (c->engine) warm_read_stages(c->engine, stages);
    for (int s = WARM_DECODE; s <= WARM_LOAD; s++) row->stages[s] += stages[s];
    lookup_ns += c->lookup_ns;
    compile_ns += c->compile_ns;
    total += (double)c->total;
  }
  if (total <= 0) return;
  // The engines' totals have one compile more for each thread than the sums here.
  double times = total + (double)row->compilers->count;
  for (int s = 0; s < WARM_COUNT; s++) row->stages[s] /= times;
  warm_complete_stages(row->stages, lookup_ns / total, compile_ns / total);
  if (row->compilers->wall_ns > 0) {
    row->compiles_per_second = (double)row->compilers->total / row->compilers->wall_ns * 1e9;
  }
}

// ------------------------------------------------------------------------------------ rows

qn_status_t row_measure(bench_row_t* row, size_t round, int64_t budget_ns, const char* work_dir) {
  int64_t until_ns = now_ns() + budget_ns;
  qn_status_t status = QN_OK;
  switch (row->kind) {
    case ROW_COLD:
      return spawn_pairs(row, round, until_ns, work_dir);
    case ROW_MISS:
      return compile_round(row, round, until_ns);
    case ROW_MEMORY:
      return repeat(row, round, until_ns);
    case ROW_CALL: {
      int32_t before = qn_cpu_set_core_budget(row->threads);
      status = repeat(row, round, until_ns);
      (void)qn_cpu_set_core_budget(before);
      return status;
    }
    case ROW_DISK:  // filled with its COLD row
    case ROW_KIND_COUNT:
      break;
  }
  return status;
}

void row_set_stages(bench_row_t* row) {
  if (row->kind == ROW_COLD || row->kind == ROW_DISK) choose_stages(row);
  if (row->kind == ROW_MISS) mean_stages(row);
}

void row_free(bench_row_t* row) {
  samples_free(&row->samples);
  if (row->children) free(row->children->items);
  free(row->children);
  for (size_t i = 0; row->compilers && i < row->compilers->count; i++) {
    qn_engine_destroy(row->compilers->items[i].engine);
    free(row->compilers->items[i].times_ns);
  }
  if (row->compilers) free(row->compilers->items);
  free(row->compilers);
  row->children = NULL;
  row->compilers = NULL;
}
