// SPDX-License-Identifier: Apache-2.0
// conformance/streams.c: order, independence, waits between streams, errors that stick, ends.
#include <string.h>

#include "conformance/suite.h"
#include "quern/device.h"

static const char text[] =
    "func bump(inout x: i32[n], k: i32) { parallel i in 0..n { x[i] = x[i] * 3 + k; } }\n"
    "func slow(inout x: i32[n], rounds: i32) {\n"
    "  parallel i in 0..n {\n"
    "    alloc v: i32[1] in local;\n"
    "    v[0] = x[i];\n"
    "    for r in 0..i64(rounds) { v[0] = v[0] * 1664525 + 1013904223 + i32(r); }\n"
    "    x[i] = v[0];\n"
    "  }\n"
    "}\n"
    "func fails(x: i32[n], out y: i32[n]) {\n"
    "  parallel i in 0..n { assert x[i] >= 0, \"negative input\"; y[i] = x[i]; }\n"
    "}\n";

enum { COUNT = 4096 };

typedef struct setup {
  qn_function_t* function;
  qn_tensor_t tensor;
  qn_value_t args[2];
  int64_t shape[1];
  void* memory;
  int32_t* host;
} setup_t;

static bool make(conf_t* c, const char* name, setup_t* out) {
  memset(out, 0, sizeof *out);
  out->shape[0] = COUNT;
  out->function = conf_function(c, text, name, false);
  out->memory = out->function ? conf_device_memory(c, COUNT * 4) : NULL;
  out->host = out->memory ? conf_host_memory(c, COUNT * 4) : NULL;
  if (!out->host || !conf_upload(c, out->memory, 0, out->host, COUNT * 4)) return false;
  out->tensor = conf_tensor(c, out->memory, QN_DTYPE_I32, 1, out->shape);
  out->args[0] = qn_value_tensor(&out->tensor);
  out->args[1] = qn_value_int(1);
  return true;
}

static int32_t bumped(int32_t value, int count, int32_t first) {
  uint32_t x = (uint32_t)value;
  for (int i = 0; i < count; i++) x = x * 3 + (uint32_t)(first + i);
  return (int32_t)x;
}

static uint32_t slowed(uint32_t x, int rounds) {
  for (int r = 0; r < rounds; r++) x = x * 1664525u + 1013904223u + (uint32_t)r;
  return x;
}

static void ordering(conf_t* c) {
  setup_t s;
  qn_stream_t* stream = conf_stream(c);
  if (!stream || !make(c, "bump", &s)) return;
  for (int i = 0; i < 200; i++) {
    s.args[1] = qn_value_int(i);
    CONF_TRY(c, qn_function_call_on(s.function, stream, s.args, 2, NULL));
  }
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  CONF_CHECK(c, qn_stream_is_idle(stream), "not idle behind a synchronisation");
  if (!conf_download(c, s.host, s.memory, 0, COUNT * 4)) return;
  int32_t expected = bumped(0, 200, 0);
  CONF_CHECK(c, s.host[0] == expected && s.host[COUNT - 1] == expected,
             "200 calls in order give %d, not %d", (int)expected, (int)s.host[0]);
}

static void calls_and_copies(conf_t* c) {
  setup_t s;
  qn_stream_t* stream = conf_stream(c);
  int32_t* stages = conf_host_memory(c, 8 * 4);
  if (!stream || !stages || !make(c, "bump", &s)) return;
  for (int i = 0; i < 8; i++) {
    s.args[1] = qn_value_int(i);
    CONF_TRY(c, qn_function_call_on(s.function, stream, s.args, 2, NULL));
    CONF_TRY(
        c, conf_copy(c->device, s.memory, 400, conf_cpu(), stages, (size_t)i * 4, 4, true, stream));
  }
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  for (int i = 0; i < 8; i++) {
    CONF_CHECK(c, stages[i] == bumped(0, i + 1, 0), "a copy between call %d and the next saw %d", i,
               (int)stages[i]);
  }
}

static void independent(conf_t* c) {
  enum { STREAMS = 4 };
  setup_t s[STREAMS];
  qn_stream_t* streams[STREAMS];
  for (int k = 0; k < STREAMS; k++) {
    streams[k] = conf_stream(c);
    if (!streams[k] || !make(c, "bump", &s[k])) return;
  }
  for (int i = 0; i < 50; i++) {
    for (int k = 0; k < STREAMS; k++) {
      s[k].args[1] = qn_value_int(i + k);
      CONF_TRY(c, qn_function_call_on(s[k].function, streams[k], s[k].args, 2, NULL));
    }
  }
  for (int k = STREAMS - 1; k >= 0; k--) {
    CONF_TRY(c, qn_stream_sync(c->device, streams[k]));
    if (!conf_download(c, s[k].host, s[k].memory, 0, COUNT * 4)) return;
    CONF_CHECK(c, s[k].host[17] == bumped(0, 50, k), "stream %d has another stream's values", k);
  }
}

// Runs a long chain on one stream, a wait, and work that depends on it on another.
static void across(conf_t* c) {
  setup_t s;
  qn_stream_t* first = conf_stream(c);
  qn_stream_t* second = conf_stream(c);
  qn_function_t* slow = conf_function(c, text, "slow", false);
  if (!first || !second || !slow || !make(c, "bump", &s)) return;
  for (int round = 0; round < 6; round++) {
    memset(s.host, 0, COUNT * 4);
    if (!conf_upload(c, s.memory, 0, s.host, COUNT * 4)) return;
    qn_stream_t* from = round % 3 == 2 ? NULL : first;
    qn_stream_t* to = round % 3 == 1 ? NULL : second;
    s.args[1] = qn_value_int(c->long_rounds);
    CONF_TRY(c, qn_function_call_on(slow, from, s.args, 2, NULL));
    CONF_TRY(c, qn_stream_wait(c->device, from, to));
    s.args[1] = qn_value_int(5);
    CONF_TRY(c, qn_function_call_on(s.function, to, s.args, 2, NULL));
    CONF_TRY(c, qn_stream_sync(c->device, to));
    if (!conf_download(c, s.host, s.memory, 0, COUNT * 4)) return;
    uint32_t expected = slowed(0, c->long_rounds) * 3 + 5;
    CONF_CHECK(c, (uint32_t)s.host[99] == expected, "round %d: the second stream did not wait",
               round);
    CONF_TRY(c, qn_stream_sync(c->device, from));
  }
}

static void ring_of_waits(conf_t* c) {
  enum { STREAMS = 3, ROUNDS = 30 };
  setup_t s;
  qn_stream_t* streams[STREAMS];
  if (!make(c, "bump", &s)) return;
  for (int k = 0; k < STREAMS; k++) {
    streams[k] = conf_stream(c);
    if (!streams[k]) return;
  }
  for (int i = 0; i < ROUNDS; i++) {
    qn_stream_t* own = streams[i % STREAMS];
    s.args[1] = qn_value_int(i);
    CONF_TRY(c, qn_function_call_on(s.function, own, s.args, 2, NULL));
    CONF_TRY(c, qn_stream_wait(c->device, own, streams[(i + 1) % STREAMS]));
  }
  CONF_TRY(c, qn_stream_sync(c->device, streams[ROUNDS % STREAMS]));
  if (!conf_download(c, s.host, s.memory, 0, COUNT * 4)) return;
  CONF_CHECK(c, s.host[1] == bumped(0, ROUNDS, 0), "the order across three streams was lost");
}

// Checks that a stream may wait for itself and for an idle stream.
static void idle_waits(conf_t* c) {
  qn_stream_t* a = conf_stream(c);
  qn_stream_t* b = conf_stream(c);
  if (!a || !b) return;
  CONF_CHECK(c, qn_stream_is_idle(a), "a new stream is not idle");
  CONF_TRY(c, qn_stream_wait(c->device, a, a));
  CONF_TRY(c, qn_stream_wait(c->device, a, b));
  CONF_TRY(c, qn_stream_wait(c->device, NULL, b));
  CONF_TRY(c, qn_stream_wait(c->device, NULL, NULL));
  CONF_TRY(c, qn_stream_sync(c->device, b));
  CONF_TRY(c, qn_stream_sync(c->device, NULL));
  qn_device_t of_stream = qn_stream_device(a);
  CONF_CHECK(c, of_stream.type == c->device.type && of_stream.id == c->device.id,
             "the stream is of another device");
}

static qn_status_t call_failing(conf_t* c, qn_function_t* function, qn_stream_t* stream, void* x,
                                void* y) {
  int64_t shape[1] = {COUNT};
  qn_tensor_t from = conf_tensor(c, x, QN_DTYPE_I32, 1, shape);
  qn_tensor_t to = conf_tensor(c, y, QN_DTYPE_I32, 1, shape);
  qn_value_t args[] = {qn_value_tensor(&from), qn_value_tensor(&to)};
  return qn_function_call_on(function, stream, args, 2, NULL);
}

// Checks that the next sync returns an error once, with the program's message, that later launches
// which can fail are skipped, and that the stream works afterwards.
static void errors_stick(conf_t* c) {
  setup_t s;
  qn_stream_t* stream = conf_stream(c);
  qn_stream_t* other = conf_stream(c);
  qn_function_t* function = conf_function(c, text, "fails", false);
  void* y = conf_device_memory(c, COUNT * 4);
  if (!stream || !other || !function || !y || !make(c, "bump", &s)) return;
  for (int round = 0; round < 3; round++) {
    memset(s.host, 0, COUNT * 4);
    if (!conf_upload(c, s.memory, 0, s.host, COUNT * 4) ||
        !conf_upload(c, y, 0, s.host, COUNT * 4)) {
      return;
    }
    s.host[COUNT / 2] = -1;
    s.host[0] = 7;
    if (!conf_upload(c, s.memory, 0, s.host, COUNT * 4)) return;
    CONF_TRY(c, call_failing(c, function, stream, s.memory, y));
    CONF_TRY(c, qn_stream_sync(c->device, other));
    if (!conf_expect(c, qn_stream_sync(c->device, stream), QN_STATUS_ASSERTION, "negative input")) {
      return;
    }
    CONF_TRY(c, qn_stream_sync(c->device, stream));
    s.host[COUNT / 2] = 3;
    if (!conf_upload(c, s.memory, 0, s.host, COUNT * 4)) return;
    CONF_TRY(c, call_failing(c, function, stream, s.memory, y));
    CONF_TRY(c, qn_stream_sync(c->device, stream));
    if (!conf_download(c, s.host, y, 0, COUNT * 4)) return;
    CONF_CHECK(c, s.host[0] == 7 && s.host[COUNT / 2] == 3, "the stream is dead after an error");
  }
}

static void first_error_counts(conf_t* c) {
  setup_t s;
  qn_stream_t* stream = conf_stream(c);
  qn_function_t* function = conf_function(c, text, "fails", false);
  void* y = conf_device_memory(c, COUNT * 4);
  void* good = conf_device_memory(c, COUNT * 4);
  if (!stream || !function || !y || !good || !make(c, "bump", &s)) return;
  for (int i = 0; i < COUNT; i++) s.host[i] = 5;
  if (!conf_upload(c, good, 0, s.host, COUNT * 4)) return;
  memset(s.host, 0, COUNT * 4);
  if (!conf_upload(c, y, 0, s.host, COUNT * 4)) return;
  s.host[3] = -4;
  if (!conf_upload(c, s.memory, 0, s.host, COUNT * 4)) return;
  qn_status_t status = QN_OK;
  // A device may know the error already; then the call returns it.
  for (int i = 0; i < 4 && qn_ok(status); i++) {
    status = call_failing(c, function, stream, i < 3 ? s.memory : good, y);
  }
  qn_status_t told = qn_ok(status) ? qn_stream_sync(c->device, stream) : status;
  if (!conf_expect(c, told, QN_STATUS_ASSERTION, "negative input,fails")) return;
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  if (!conf_download(c, s.host, y, 0, COUNT * 4)) return;
  CONF_CHECK(c, s.host[COUNT - 1] == 0, "a call behind the failed one ran");
}

// A copy after a failed call may run or not, and may return the error: it then counts as returned.
static void copy_after_error(conf_t* c) {
  setup_t s;
  qn_stream_t* stream = conf_stream(c);
  qn_function_t* function = conf_function(c, text, "fails", false);
  void* y = conf_device_memory(c, COUNT * 4);
  if (!stream || !function || !y || !make(c, "bump", &s)) return;
  for (int round = 0; round < 4; round++) {
    s.host[5] = -1;
    if (!conf_upload(c, s.memory, 0, s.host, COUNT * 4)) return;
    CONF_TRY(c, call_failing(c, function, stream, s.memory, y));
    bool is_pinned = round % 2 != 0;
    qn_status_t status =
        round < 2 ? conf_copy(c->device, y, 0, conf_cpu(), s.host, 0, COUNT * 4, is_pinned, stream)
                  : conf_copy(conf_cpu(), s.host, 0, c->device, y, 0, COUNT * 4, is_pinned, stream);
    qn_status_t told = qn_ok(status) ? qn_stream_sync(c->device, stream) : status;
    if (!conf_expect(c, told, QN_STATUS_ASSERTION, "negative input,fails")) return;
    CONF_TRY(c, qn_stream_sync(c->device, stream));
    memset(s.host, 0, COUNT * 4);
    s.host[9] = round + 70;
    CONF_TRY(c, conf_copy(conf_cpu(), s.host, 0, c->device, y, 0, COUNT * 4, false, stream));
    s.host[9] = 0;
    CONF_TRY(c, conf_copy(c->device, y, 0, conf_cpu(), s.host, 0, COUNT * 4, false, stream));
    CONF_CHECK(c, s.host[9] == round + 70, "the stream does not copy after its error was returned");
  }
}

static void destroy_with_work(conf_t* c) {
  setup_t s;
  if (!make(c, "slow", &s)) return;
  s.args[1] = qn_value_int(c->long_rounds);
  for (int round = 0; round < 5; round++) {
    qn_stream_t* stream = NULL;
    CONF_TRY(c, qn_stream_create(c->device, &stream));
    qn_status_t status = qn_function_call_on(s.function, stream, s.args, 2, NULL);
    qn_stream_destroy(stream);
    CONF_TRY(c, status);
  }
  qn_stream_destroy(NULL);
  if (!conf_download(c, s.host, s.memory, 0, COUNT * 4)) return;
  uint32_t expected = 0;
  for (int round = 0; round < 5; round++) expected = slowed(expected, c->long_rounds);
  CONF_CHECK(c, (uint32_t)s.host[COUNT - 1] == expected, "a destroyed stream dropped its work");
  // A stream that is released drops its error.
  qn_function_t* function = conf_function(c, text, "fails", false);
  qn_stream_t* stream = NULL;
  void* y = conf_device_memory(c, COUNT * 4);
  if (!function || !y) return;
  s.host[0] = -1;
  if (!conf_upload(c, s.memory, 0, s.host, COUNT * 4)) return;
  CONF_TRY(c, qn_stream_create(c->device, &stream));
  qn_status_t status = call_failing(c, function, stream, s.memory, y);
  qn_stream_destroy(stream);
  CONF_TRY(c, status);
  conf_ok(c, qn_stream_sync(c->device, NULL));
}

// A function may be released while its calls are queued.
static void released_function(conf_t* c) {
  setup_t s;
  qn_stream_t* stream = conf_stream(c);
  if (!stream || !make(c, "slow", &s)) return;
  s.args[1] = qn_value_int(c->long_rounds);
  for (int i = 0; i < 4; i++) {
    CONF_TRY(c, qn_function_call_on(s.function, stream, s.args, 2, NULL));
  }
  conf_drop(c, s.function);
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  if (!conf_download(c, s.host, s.memory, 0, COUNT * 4)) return;
  uint32_t expected = 0;
  for (int i = 0; i < 4; i++) expected = slowed(expected, c->long_rounds);
  CONF_CHECK(c, (uint32_t)s.host[0] == expected, "queued calls were lost");
}

static void active_stream(conf_t* c) {
  setup_t s;
  qn_stream_t* stream = conf_stream(c);
  if (!stream || !make(c, "bump", &s)) return;
  CONF_TRY(c, qn_set_active_device(c->device));
  qn_device_t active = qn_active_device();
  CONF_CHECK(c, active.type == c->device.type && active.id == c->device.id,
             "another device is active");
  CONF_CHECK(c, qn_active_stream(c->device) == NULL, "a stream is active that nobody set");
  CONF_TRY(c, qn_set_active_stream(c->device, stream));
  CONF_CHECK(c, qn_active_stream(c->device) == stream, "another stream is active");
  qn_status_t status = qn_function_call(s.function, s.args, 2, NULL);
  bool is_good = conf_ok(c, status) && conf_ok(c, qn_stream_sync(c->device, stream));
  is_good = conf_ok(c, qn_set_active_stream(c->device, NULL)) && is_good;
  if (!is_good || !conf_download(c, s.host, s.memory, 0, COUNT * 4)) return;
  CONF_CHECK(c, s.host[0] == 1, "the call went to another stream");
  qn_device_t cpu = conf_cpu();
  if (c->device.type == cpu.type) return;
  conf_expect(c, qn_set_active_stream(cpu, stream), QN_STATUS_INVALID_ARGUMENT, NULL);
}

static const conf_case_t cases[] = {
    {"work is in order", ordering},
    {"copies among calls", calls_and_copies},
    {"independent streams", independent},
    {"waiting across streams", across},
    {"a ring of waits", ring_of_waits},
    {"waits for nothing", idle_waits},
    {"errors stick and surface once", errors_stick},
    {"the first error counts", first_error_counts},
    {"copies after an error", copy_after_error},
    {"destroyed with work queued", destroy_with_work},
    {"functions released with calls queued", released_function},
    {"active device and stream", active_stream},
};
const conf_area_t conf_area_streams = {"streams", cases, CONF_COUNT_OF(cases), NULL};
