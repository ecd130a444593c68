// SPDX-License-Identifier: Apache-2.0
// examples/server.c: a server whose requests have new shapes all the time, and never wait longer
// for a compiler than their deadline.
//
//   ./example_server [CACHE_DIR [TARGET]]
//
// The kernel is RMS normalisation. A generic module takes any shape. For each new shape the server
// fixes its symbols, which makes a module whose code runs faster. A request runs the generic code
// at first, and the code for its shape when that is ready. Three waves of the same requests show
// it: with an empty cache, again when all code is ready, and in a second engine that finds all code
// in the cache directory and may not compile.
//
// The program compares every result with plain C. The exit code is 0 if all are right and the
// engine's counters have the expected values. It uses the public headers alone.
// Read next: docs/lookups.md.
#include <math.h>
#include <pthread.h>
#include <quern/ir.h>
#include <quern/observe.h>
#include <quern/quern.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, REQUESTS = 400, SHAPES = 8, EXPECTED_SHAPES = 3, MAX_ELEMENTS = 16 * 512 };

static const int64_t lookup_deadline_ns = 50 * 1000000;          // of a request
static const int64_t background_ns = 600 * INT64_C(1000000000);  // no request waits for it

// Rows and columns; the service knows the first EXPECTED_SHAPES when it starts.
static const int64_t shapes[SHAPES][2] = {{1, 384},  {16, 384}, {8, 512},  {7, 384},
                                          {12, 384}, {5, 512},  {16, 512}, {9, 256}};

typedef struct server {
  qn_engine_t* engine;
  qn_target_t* target;
  qn_module_t* generic;
  qn_module_t* special[SHAPES];
  // Serves requests that ran out of time.
  qn_function_t* always;
  atomic_int next;  // request
  atomic_int fallback_count, special_count, late_count, wrong_count;
  atomic_llong longest_ns;  // lookup
  // Compiling ahead: the number of futures that are ready.
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int ready_count;
  qn_future_t* future[SHAPES];
} server_t;

static int64_t now_ns(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// Prints and frees an error. Returns true if there is none.
static bool is_good(qn_status_t status, const char* what) {
  if (qn_ok(status)) return true;
  (void)fprintf(stderr, "%s: %s\n", what, qn_status_message(status));
  qn_status_free(status);
  return false;
}

// ------------------------------------------------------------------------------------ the kernel

static const char text[] =
    "func rms_norm(x: f32[rows, columns], gain: f32[columns], out y: f32[rows, columns]) {\n"
    "  parallel i in 0..rows {\n"
    "    let total = sum j in 0..columns { x[i, j] * x[i, j] };\n"
    "    let scale = 1.0 / sqrt(total / f32(columns) + 1e-5);\n"
    "    for j in 0..columns { y[i, j] = x[i, j] * scale * gain[j]; }\n"
    "  }\n"
    "}\n";

// Makes the module for a shape.
static qn_status_t make_special(const qn_module_t* generic, const int64_t shape[2],
                                qn_module_t** out_module) {
  const char* const names[] = {"rows", "columns"};
  return qn_module_specialize(generic, names, shape, 2, out_module);
}

// The data of a request, so that any thread may serve it.
typedef struct work {
  int64_t shape[2];
  float x[MAX_ELEMENTS], gain[512], y[MAX_ELEMENTS];
} work_t;

static void fill(work_t* work, const int64_t shape[2], uint32_t seed) {
  memcpy(work->shape, shape, sizeof work->shape);
  int64_t count = shape[0] * shape[1];
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    work->x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
  for (int64_t j = 0; j < shape[1]; j++) work->gain[j] = 0.5f + (float)(j % 7) / 8.0f;
  memset(work->y, 0, (size_t)count * sizeof *work->y);
}

static bool is_right(const work_t* work) {
  for (int64_t i = 0; i < work->shape[0]; i++) {
    const float* x = work->x + i * work->shape[1];
    const float* y = work->y + i * work->shape[1];
    double total = 0;
    for (int64_t j = 0; j < work->shape[1]; j++) total += (double)x[j] * (double)x[j];
    double scale = 1.0 / sqrt(total / (double)work->shape[1] + 1e-5);
    for (int64_t j = 0; j < work->shape[1]; j++) {
      double wanted = (double)x[j] * scale * (double)work->gain[j];
      if (!(fabs((double)y[j] - wanted) <= 1e-5 * (1 + fabs(wanted)))) return false;
    }
  }
  return true;
}

static qn_status_t call(qn_function_t* function, work_t* work) {
  qn_device_t cpu = {QN_DEVICE_CPU, 0};
  qn_dl_dtype_t f32 = qn_dtype_to_dl(QN_DTYPE_F32);
  qn_tensor_t x = {work->x, cpu, 2, f32, work->shape, NULL, 0};
  qn_tensor_t gain = {work->gain, cpu, 1, f32, work->shape + 1, NULL, 0};
  qn_tensor_t y = {work->y, cpu, 2, f32, work->shape, NULL, 0};
  qn_value_t args[] = {qn_value_tensor(&x), qn_value_tensor(&gain), qn_value_tensor(&y)};
  return qn_function_call(function, args, 3, NULL);
}

// ------------------------------------------------------------------------------------ serving

// Serves a request: looks its function up and calls it. When the code for a shape is in memory, a
// lookup costs less than a kernel's first row; so the server needs no table of functions.
static void serve(server_t* server, work_t* work, int number) {
  uint32_t mixed = (uint32_t)number * 2654435761u;
  int which = (int)((mixed >> 16) % SHAPES);
  fill(work, shapes[which], mixed);
  qn_lookup_options_t options = {.struct_size = sizeof options,
                                 .miss = QN_MISS_FALLBACK,
                                 .time_limit_ns = lookup_deadline_ns,
                                 .generic = server->generic};
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function = NULL;
  int64_t begin = now_ns();
  qn_status_t status = qn_engine_function(server->engine, server->special[which], server->target,
                                          "rms_norm", &options, &info, &function);
  int64_t took = now_ns() - begin;
  long long longest = atomic_load(&server->longest_ns);
  while (took > longest &&
         !atomic_compare_exchange_weak(&server->longest_ns, &longest, (long long)took)) {
  }
  if (qn_ok(status)) {
    (void)atomic_fetch_add(info.is_fallback ? &server->fallback_count : &server->special_count, 1);
  } else if (qn_status_code(status) == QN_STATUS_DEADLINE_EXCEEDED) {
    // The deadline passed (a file system hangs, the machine swaps): the generic function serves.
    qn_status_free(status);
    status = QN_OK;
    function = server->always;
    qn_function_retain(function);
    (void)atomic_fetch_add(&server->late_count, 1);
  }
  if (qn_ok(status)) status = call(function, work);
  qn_function_release(function);
  if (!is_good(status, "request") || !is_right(work)) {
    (void)atomic_fetch_add(&server->wrong_count, 1);
  }
}

static void* run_thread(void* self) {
  const struct timespec pause = {0, 500000};  // until the next request comes
  server_t* server = self;
  work_t* work = malloc(sizeof *work);
  int number;
  while ((number = atomic_fetch_add(&server->next, 1)) < REQUESTS) {
    if (!work) {
      (void)atomic_fetch_add(&server->wrong_count, 1);
      continue;
    }
    serve(server, work, number);
    (void)nanosleep(&pause, NULL);
  }
  free(work);
  return NULL;
}

static void find_counters(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  uint64_t* counters = self;
  if (strcmp(name, "compiles") == 0) counters[0] = value;
  if (strcmp(name, "upgrades") == 0) counters[1] = value;
  if (strcmp(name, "compiles_failed") == 0) counters[2] = value;
}

// Runs a wave of requests by the pool and prints a line of the table. False when one failed.
static bool run_wave(server_t* server, const char* name) {
  server->next = server->fallback_count = server->special_count = 0;
  server->late_count = server->wrong_count = 0;
  server->longest_ns = 0;
  pthread_t threads[THREADS];
  int started = 0;
  while (started < THREADS && pthread_create(&threads[started], NULL, run_thread, server) == 0) {
    started++;
  }
  for (int i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
  uint64_t counters[3] = {0};
  qn_engine_counters(server->engine, find_counters, counters);
  printf("%-12s %8d %8d %11d %5d %9.3f ms %8llu %8llu\n", name, REQUESTS,
         (int)server->fallback_count, (int)server->special_count, (int)server->late_count,
         (double)server->longest_ns / 1e6, (unsigned long long)counters[0],
         (unsigned long long)counters[1]);
  int served = server->fallback_count + server->special_count + server->late_count;
  return served == REQUESTS && server->wrong_count == 0;
}

// ---------------------------------------------------------------------------------- in the
// background

// Counts a ready future. Called by a thread of the engine, so it does nothing more.
static void on_ready(void* self) {
  server_t* server = self;
  (void)pthread_mutex_lock(&server->lock);
  server->ready_count++;
  (void)pthread_cond_signal(&server->changed);
  (void)pthread_mutex_unlock(&server->lock);
}

// Requests the code of `count` shapes ahead, and does not wait.
static bool request_shapes(server_t* server, int count) {
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .time_limit_ns = background_ns, .priority = 1};
  for (int i = 0; i < count; i++) {
    if (!is_good(qn_engine_request(server->engine, server->special[i], server->target, "rms_norm",
                                   &options, &server->future[i]),
                 "request ahead")) {
      return false;
    }
    qn_future_notify(server->future[i], on_ready, server);
  }
  return true;
}

// Sleeps until all futures are ready, as an event loop would, takes their results and releases
// them. False when one failed.
static bool await_shapes(server_t* server, int count) {
  (void)pthread_mutex_lock(&server->lock);
  while (server->ready_count < count) {
    (void)pthread_cond_wait(&server->changed, &server->lock);
  }
  server->ready_count = 0;
  (void)pthread_mutex_unlock(&server->lock);
  bool good = true;
  for (int i = 0; i < count; i++) {
    qn_function_t* function;
    good &= is_good(qn_future_wait(server->future[i], 0, NULL, &function), "made ahead");
    qn_function_release(function);
    qn_future_release(server->future[i]);
    server->future[i] = NULL;
  }
  return good;
}

// ------------------------------------------------------------------------------------ the service

static bool open_server(server_t* server, const char* cache_dir, const char* jit) {
  const qn_setting_t settings[] = {{"jit", jit}, {"compile_threads", "2"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = cache_dir,
                                 .settings = settings,
                                 .setting_count = 2};
  if (!is_good(qn_engine_create(&options, &server->engine), "engine")) return false;
  // The service waits for one compile at its start.
  return is_good(qn_engine_function(server->engine, server->generic, server->target, "rms_norm",
                                    NULL, NULL, &server->always),
                 "generic function");
}

static void close_server(server_t* server) {
  for (int i = 0; i < SHAPES; i++) {
    qn_future_release(server->future[i]);
    server->future[i] = NULL;
  }
  qn_function_release(server->always);
  qn_engine_destroy(server->engine);
  server->always = NULL;
  server->engine = NULL;
}

// Shows that a retained function gets better by itself: takes the function that is ready for the
// shape and calls it until it has the code for the shape.
static bool watch_upgrade(server_t* server, work_t* work) {
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .miss = QN_MISS_FALLBACK, .generic = server->generic};
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* held;
  if (!is_good(qn_engine_function(server->engine, server->special[SHAPES - 1], server->target,
                                  "rms_norm", &options, &info, &held),
               "held function")) {
    return false;
  }
  printf("a retained function: %s at first", info.is_fallback ? "generic" : "its own code");
  fill(work, shapes[SHAPES - 1], 1);
  int64_t end = now_ns() + background_ns;
  bool good = true;
  do {
    good = is_good(call(held, work), "call") && is_right(work);
  } while (good && qn_function_is_fallback(held) && now_ns() < end);
  good = good && !qn_function_is_fallback(held);
  good = good && is_good(call(held, work), "call") && is_right(work);
  printf("%s\n", good && info.is_fallback ? ", its own code now" : "");
  qn_function_release(held);
  return good;
}

// Looks up a shape without code, with all tiers warm and compiling forbidden: with a fallback the
// generic code serves it, without one the error names the key. Nothing compiles.
static bool ask_for_the_unknown(server_t* server, work_t* work) {
  const int64_t shape[2] = {3, 129};
  qn_module_t* module;
  if (!is_good(make_special(server->generic, shape, &module), "module")) return false;
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .miss = QN_MISS_FALLBACK, .generic = server->generic};
  qn_function_t* function;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  fill(work, shape, 7);
  bool good = is_good(qn_engine_function(server->engine, module, server->target, "rms_norm",
                                         &options, &info, &function),
                      "unknown shape") &&
              info.is_fallback && is_good(call(function, work), "call") && is_right(work);
  qn_function_release(function);
  qn_status_t status =
      qn_engine_function(server->engine, module, server->target, "rms_norm", NULL, NULL, &function);
  printf("an unknown shape: %s; without a fallback: %s\n", good ? "generic" : "not served",
         qn_status_message(status));
  good = good && qn_status_code(status) == QN_STATUS_COMPILE_FORBIDDEN;
  qn_status_free(status);
  qn_module_release(module);
  return good;
}

static qn_status_t write_out(void* self, const void* data, size_t size) {
  return fwrite(data, 1, size, self) == size ? QN_OK : qn_status_make(QN_STATUS_IO, "cannot write");
}

static bool run(server_t* server, const char* cache_dir, work_t* work) {
  uint64_t counters[3] = {0};
  if (!open_server(server, cache_dir, "allow")) return false;
  bool good = watch_upgrade(server, work);
  good = good && request_shapes(server, EXPECTED_SHAPES);
  printf("%-12s %8s %8s %11s %5s %12s %8s %8s\n", "wave", "requests", "fallback", "specialised",
         "late", "longest", "compiles", "upgrades");
  good = run_wave(server, "first") && good;
  good = good && await_shapes(server, EXPECTED_SHAPES);
  // Between the waves all requested code becomes ready, in memory and in the directory.
  good = good && request_shapes(server, SHAPES) && await_shapes(server, SHAPES);
  good = run_wave(server, "ready") && good;
  good = good && server->fallback_count == 0 && server->late_count == 0;
  good = good && qn_engine_flush(server->engine, background_ns);
  // Each shape and the generic module are compiled at most once, for any number of threads.
  qn_engine_counters(server->engine, find_counters, counters);
  good = good && counters[0] <= SHAPES + 1 && counters[2] == 0;
  close_server(server);

  if (!good || !open_server(server, cache_dir, "forbid")) return false;
  // The service loads the code of known shapes before the first request.
  good = request_shapes(server, SHAPES) && await_shapes(server, SHAPES);
  good = run_wave(server, "jit=forbid") && good;
  good = good && server->fallback_count == 0 && server->late_count == 0;
  good = ask_for_the_unknown(server, work) && good;
  qn_engine_counters(server->engine, find_counters, counters);
  good = good && counters[0] == 0;
  qn_sink_t sink = {stdout, write_out};
  good = is_good(qn_engine_metrics(server->engine, sink), "metrics") && good;
  close_server(server);
  return good;
}

int main(int argc, char** argv) {
  static server_t server;  // zeros
  work_t* work = malloc(sizeof *work);
  if (!work || pthread_mutex_init(&server.lock, NULL) != 0 ||
      pthread_cond_init(&server.changed, NULL) != 0) {
    (void)fprintf(stderr, "no memory\n");
    return 1;
  }
  bool good = is_good(qn_target_parse(argc > 2 ? argv[2] : "cpu", &server.target), "target") &&
              is_good(qn_module_parse(text, strlen(text), NULL, &server.generic), "generic module");
  for (int i = 0; good && i < SHAPES; i++) {
    good = is_good(make_special(server.generic, shapes[i], &server.special[i]), "module");
  }
  good = good && run(&server, argc > 1 ? argv[1] : NULL, work);
  if (server.engine) close_server(&server);
  for (int i = 0; i < SHAPES; i++) qn_module_release(server.special[i]);
  qn_module_release(server.generic);
  qn_target_release(server.target);
  (void)pthread_cond_destroy(&server.changed);
  (void)pthread_mutex_destroy(&server.lock);
  free(work);
  printf("%s\n", good ? "all requests served, all results right" : "FAILED");
  return good ? 0 : 1;
}
