// SPDX-License-Identifier: Apache-2.0
// conformance/threads.c: many threads at once: one function, their own streams, compiles, copies,
// memory.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "conformance/suite.h"
#include "quern/device.h"

enum { THREADS = 6, COUNT = 3000 };

static const char text[] =
    "func mix(x: i32[n], out y: i32[n], k: i32) { parallel i in 0..n { y[i] = x[i] * 5 + k; } }";

typedef struct thread_worker {
  conf_t* c;  // threads read only members that do not change
  int index;
  qn_function_t* function;
  bool has_own_stream;
  int round_count;
  // The message; empty for ok.
  char why[512];
} thread_worker_t;

static bool is_good(thread_worker_t* w, qn_status_t status) {
  if (qn_ok(status)) return true;
  (void)snprintf(w->why, sizeof w->why, "%s: %s", qn_status_code_text(qn_status_code(status)),
                 qn_status_message(status));
  qn_status_free(status);
  return false;
}

// Runs threads and takes over what they report. `common` is the worker of each, apart from its
// index.
static void start(conf_t* c, void* (*run)(void*), thread_worker_t common) {
  thread_worker_t workers[THREADS];
  pthread_t threads[THREADS];
  int started = 0;
  for (; started < THREADS; started++) {
    workers[started] = common;
    workers[started].index = started;
    if (pthread_create(&threads[started], NULL, run, &workers[started]) != 0) break;
  }
  for (int i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
  if (started < THREADS) conf_fail(c, "only %d threads could be started", started);
  for (int i = 0; i < started; i++) {
    if (workers[i].why[0]) conf_fail(c, "thread %d: %s", i, workers[i].why);
  }
}

// Runs one thread's rounds with its own memory and numbers; all threads share `function`.
static void call_rounds(thread_worker_t* w, qn_stream_t* stream, void* x, void* y, int32_t* host) {
  qn_device_t device = w->c->device;
  int64_t shape[1] = {COUNT};
  qn_tensor_t from = conf_tensor(w->c, x, QN_DTYPE_I32, 1, shape);
  qn_tensor_t to = conf_tensor(w->c, y, QN_DTYPE_I32, 1, shape);
  for (int round = 0; round < w->round_count; round++) {
    shape[0] = COUNT - round % 7;
    for (int i = 0; i < COUNT; i++) host[i] = i + 1000 * w->index;
    qn_value_t args[] = {qn_value_tensor(&from), qn_value_tensor(&to), qn_value_int(round)};
    if (!is_good(w, conf_copy(conf_cpu(), host, 0, device, x, 0, COUNT * 4, false, stream)) ||
        !is_good(w, qn_function_call_on(w->function, stream, args, 3, NULL)) ||
        !is_good(
            w, conf_copy(device, y, 0, conf_cpu(), host, 0, (size_t)shape[0] * 4, false, stream)) ||
        !is_good(w, qn_stream_sync(device, stream))) {
      return;
    }
    for (int64_t i = 0; i < shape[0]; i++) {
      int32_t expected = (int32_t)(i + 1000 * w->index) * 5 + round;
      if (host[i] == expected) continue;
      (void)snprintf(w->why, sizeof w->why, "round %d: element %lld is %d, expected %d", round,
                     (long long)i, (int)host[i], (int)expected);
      return;
    }
  }
}

static void* hammer(void* arg) {
  thread_worker_t* w = arg;
  static _Thread_local int32_t host[COUNT];
  void *x = NULL, *y = NULL;
  qn_stream_t* stream = NULL;
  qn_device_t device = w->c->device;
  if (is_good(w, qn_device_allocate(device, COUNT * 4, 0, &x)) &&
      is_good(w, qn_device_allocate(device, COUNT * 4, 0, &y)) &&
      (!w->has_own_stream || is_good(w, qn_stream_create(device, &stream)))) {
    call_rounds(w, stream, x, y, host);
  }
  (void)qn_status_consume(qn_stream_sync(device, stream));
  qn_stream_destroy(stream);
  (void)qn_status_consume(qn_device_free(device, x));
  (void)qn_status_consume(qn_device_free(device, y));
  return NULL;
}

static void run_hammer(conf_t* c, bool has_own_stream) {
  qn_function_t* function = conf_function(c, text, "mix", false);
  if (!function) return;
  start(c, hammer,
        (thread_worker_t){
            .c = c, .function = function, .has_own_stream = has_own_stream, .round_count = 60});
}

static void own_streams(conf_t* c) {
  run_hammer(c, true);
}

static void default_stream(conf_t* c) {
  run_hammer(c, false);
}

static void* compile(void* arg) {
  thread_worker_t* w = arg;
  if (!is_good(w, qn_set_active_device(w->c->device))) return NULL;
  for (int round = 0; round < 4; round++) {
    // Threads share some keys and not others.
    int which = round % 2 ? round : w->index + 10 * round;
    char own[200];
    (void)snprintf(
        own, sizeof own,
        "func made(x: i32[n], out y: i32[n]) { parallel i in 0..n { y[i] = x[i] + %d; } }", which);
    qn_module_t* module = NULL;
    qn_function_t* function = NULL;
    bool is_made = is_good(w, qn_module_parse(own, strlen(own), NULL, &module)) &&
                   is_good(w, qn_engine_function(w->c->engine, module, w->c->target, "made", NULL,
                                                 NULL, &function));
    qn_function_release(function);
    qn_module_release(module);
    if (!is_made) return NULL;
  }
  return NULL;
}

static void compiles(conf_t* c) {
  if (!conf_function(c, text, "mix", false)) return;
  start(c, compile, (thread_worker_t){.c = c});
}

static void* churn(void* arg) {
  thread_worker_t* w = arg;
  qn_device_t device = w->c->device;
  for (int round = 0; round < 40 && !w->why[0]; round++) {
    qn_stream_t* stream = NULL;
    void *memory = NULL, *space = NULL;
    uint32_t mark = (uint32_t)(w->index * 1000 + round), back = 0;
    bool is_made = is_good(w, qn_stream_create(device, &stream)) &&
                   is_good(w, qn_device_allocate(device, 100 + (size_t)round * 64, 0, &memory)) &&
                   is_good(w, qn_workspace_allocate(device, stream, 4096, &space));
    if (is_made &&
        is_good(w, conf_copy(conf_cpu(), &mark, 0, device, space, 8, 4, false, stream)) &&
        is_good(w, conf_copy(device, space, 8, device, memory, 96, 4, false, stream)) &&
        is_good(w, qn_workspace_free(device, stream, space)) &&
        is_good(w, conf_copy(device, memory, 96, conf_cpu(), &back, 0, 4, false, stream)) &&
        is_good(w, qn_stream_sync(device, stream)) && back != mark) {
      (void)snprintf(w->why, sizeof w->why, "%u came back for %u", back, mark);
    }
    qn_stream_destroy(stream);
    (void)qn_status_consume(qn_device_free(device, memory));
  }
  return NULL;
}

static void memory_and_streams(conf_t* c) {
  start(c, churn, (thread_worker_t){.c = c});
}

static void* be_active(void* arg) {
  thread_worker_t* w = arg;
  qn_device_t device = w->c->device;
  qn_device_t first = qn_active_device();
  if (first.type != QN_DEVICE_CPU || first.id != 0) {
    (void)snprintf(w->why, sizeof w->why, "a new thread has an active device");
    return NULL;
  }
  qn_stream_t* stream = NULL;
  if (!is_good(w, qn_set_active_device(device)) || !is_good(w, qn_stream_create(device, &stream)) ||
      !is_good(w, qn_set_active_stream(device, stream))) {
    return NULL;
  }
  for (int i = 0; i < 200 && !w->why[0]; i++) {
    if (qn_active_stream(device) != stream) {
      (void)snprintf(w->why, sizeof w->why, "another thread's stream is active");
    }
  }
  (void)qn_status_consume(qn_set_active_stream(device, NULL));
  qn_stream_destroy(stream);
  return NULL;
}

static void active(conf_t* c) {
  start(c, be_active, (thread_worker_t){.c = c});
}

static const conf_case_t cases[] = {
    {"one function, own streams", own_streams},
    {"one function, the default stream", default_stream},
    {"compiles", compiles},
    {"memory, copies and streams", memory_and_streams},
    {"active device and stream are a thread's own", active},
};
const conf_area_t conf_area_threads = {"threads", cases, CONF_COUNT_OF(cases), NULL};
