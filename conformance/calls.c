// SPDX-License-Identifier: Apache-2.0
// conformance/calls.c: packed calls: arguments, and every mistake that a caller can make.
#include <math.h>
#include <string.h>

#include "conformance/suite.h"

static const char text[] =
    "func axpy(a: f32, x: f32[n, m], inout y: f32[n, m], k: i8, p: bool) {\n"
    "  parallel i in 0..n { for j in 0..m { y[i, j] = a * x[i, j] + (p ? y[i, j] : f32(k)); } } }\n"
    "func aligned(x: f32[n] align 64, out y: f32[n + 2]) {\n"
    "  parallel i in 0..n + 2 { y[i] = i < n ? x[i] : 0.0; } }\n";

enum { N = 6, M = 5, FLOATS = 64 };

typedef struct setup {
  qn_function_t* function;
  void *x, *y;
  int64_t x_shape[2], y_shape[2], x_strides[2];
  qn_tensor_t x_tensor, y_tensor;
  qn_value_t args[5];
} setup_t;

// Makes the arguments right.
static void set_right(conf_t* c, setup_t* s) {
  s->x_shape[0] = s->y_shape[0] = N;
  s->x_shape[1] = s->y_shape[1] = M;
  s->x_tensor = conf_tensor(c, s->x, QN_DTYPE_F32, 2, s->x_shape);
  s->y_tensor = conf_tensor(c, s->y, QN_DTYPE_F32, 2, s->y_shape);
  s->args[0] = qn_value_float(2.0);
  s->args[1] = qn_value_tensor(&s->x_tensor);
  s->args[2] = qn_value_tensor(&s->y_tensor);
  s->args[3] = qn_value_int(-5);
  s->args[4] = qn_value_bool(true);
}

static bool make(conf_t* c, setup_t* s) {
  memset(s, 0, sizeof *s);
  s->function = conf_function(c, text, "axpy", false);
  float* host = conf_host_memory(c, FLOATS * 4);
  s->x = conf_device_memory(c, FLOATS * 4);
  s->y = conf_device_memory(c, FLOATS * 4);
  if (!s->function || !host || !s->x || !s->y) return false;
  for (int i = 0; i < FLOATS; i++) host[i] = (float)i;
  set_right(c, s);
  return conf_upload(c, s->x, 0, host, FLOATS * 4) && conf_upload(c, s->y, 0, host, FLOATS * 4);
}

// The setup is right, and stays right after a refused call.
static bool works(conf_t* c, const setup_t* s) {
  float host[FLOATS];
  for (int i = 0; i < FLOATS; i++) host[i] = (float)i;
  if (!conf_upload(c, s->y, 0, host, sizeof host) ||
      !conf_ok(c, conf_call(c, s->function, s->args, 5)) ||
      !conf_download(c, host, s->y, 0, sizeof host)) {
    return false;
  }
  for (int i = 0; i < FLOATS; i++) {
    float expected = i < N * M ? 3.0f * (float)i : (float)i;
    if (host[i] == expected) continue;
    conf_fail(c, "a good call computes %g at %d, not %g", (double)host[i], i, (double)expected);
    return false;
  }
  return true;
}

static void good(conf_t* c) {
  setup_t s;
  if (!make(c, &s) || !works(c, &s)) return;
  qn_value_t result = qn_value_int(7);
  CONF_TRY(c, qn_function_call(s.function, s.args, 5, &result));
  CONF_TRY(c, qn_stream_sync(c->device, NULL));
  CONF_CHECK(c, result.type == QN_VALUE_NONE, "the result is of type %d", (int)result.type);
  CONF_CHECK(c, strstr(qn_function_signature(s.function), "axpy(a: f32, x: f32[n, m]") != NULL,
             "signature: %s", qn_function_signature(s.function));
  s.args[0] = qn_value_int(2);  // an integer for a float
  s.args[4] = qn_value_int(1);  // 1 for true
  s.args[3] = qn_value_bool(true);
  works(c, &s);
}

static void bad_count(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  qn_status_t status = qn_function_call(s.function, s.args, 4, NULL);
  if (!conf_expect(c, status, QN_STATUS_TYPE_ERROR, "axpy,expected 5 arguments")) return;
  status = qn_function_call(s.function, NULL, 5, NULL);
  if (!conf_expect(c, status, QN_STATUS_INVALID_ARGUMENT, "axpy,null")) return;
  works(c, &s);
}

// Checks that the call is refused. Then makes the arguments right, and checks that they work.
static void expect_bad(conf_t* c, setup_t* s, qn_status_code_t code, const char* parts) {
  (void)conf_expect(c, conf_call(c, s->function, s->args, 5), code, parts);
  set_right(c, s);
  (void)works(c, s);
}

static void bad_type(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.args[1] = qn_value_int(3);
  expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "axpy,'x',tensor");
  s.args[3] = qn_value_float(1.5);
  expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "'k',integer");
  s.args[0] = qn_value_tensor(&s.x_tensor);
  expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "'a'");
  s.args[2] = qn_value_tensor(NULL);
  expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "'y'");
}

static void bad_dtype(conf_t* c) {
  static const qn_dtype_t wrong[] = {QN_DTYPE_F64, QN_DTYPE_I32, QN_DTYPE_U32, QN_DTYPE_F16};
  setup_t s;
  if (!make(c, &s)) return;
  for (size_t i = 0; i < CONF_COUNT_OF(wrong); i++) {
    s.x_tensor.dtype = qn_dtype_to_dl(wrong[i]);
    expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "'x',f32");
  }
  s.x_tensor.dtype.lanes = 4;
  expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "'x'");
}

static void bad_rank(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.y_tensor.ndim = 1;
  expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "'y',rank 2,1");
  s.y_tensor.ndim = -3;
  expect_bad(c, &s, QN_STATUS_TYPE_ERROR, "'y'");
}

static void bad_shape(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.y_shape[1] = M - 1;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'y',extent 1,m = 5,got 4");
  s.x_shape[0] = -1;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x',-1");
  s.x_tensor.shape = NULL;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x',shape");
  s.x_shape[0] = s.y_shape[0] = INT64_MAX / 2;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x'");
}

static void bad_strides(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.x_tensor.strides = s.x_strides;
  s.x_strides[0] = M + 1;
  s.x_strides[1] = 1;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x',stride 0");
  s.x_tensor.strides = s.x_strides;
  s.x_strides[0] = M;
  s.x_strides[1] = 1;
  works(c, &s);
}

static void bad_device(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.x_tensor.device.type = c->device.type == QN_DEVICE_CPU ? QN_DEVICE_VULKAN : QN_DEVICE_CPU;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x',device");
  s.x_tensor.device.id = 17;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x',device,:17");
}

static void bad_data(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.x_tensor.data = NULL;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x',null");
  s.x_tensor.byte_offset = 2;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x',align");
  s.x_tensor.byte_offset = UINT64_MAX - 3;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'x'");
  // The memory of an empty tensor is not checked.
  s.x_shape[0] = s.y_shape[0] = 0;
  s.x_tensor.data = s.y_tensor.data = NULL;
  conf_ok(c, conf_call(c, s.function, s.args, 5));
}

static void bad_alignment(conf_t* c) {
  qn_function_t* function = conf_function(c, text, "aligned", false);
  void* x = conf_device_memory(c, 256);
  void* y = conf_device_memory(c, 256);
  if (!function || !x || !y) return;
  int64_t x_shape[1] = {8}, y_shape[1] = {10};
  qn_tensor_t from = conf_tensor(c, x, QN_DTYPE_F32, 1, x_shape);
  qn_tensor_t to = conf_tensor(c, y, QN_DTYPE_F32, 1, y_shape);
  qn_value_t args[] = {qn_value_tensor(&from), qn_value_tensor(&to)};
  CONF_TRY(c, conf_call(c, function, args, 2));
  from.byte_offset = 4;
  qn_status_t status = qn_function_call(function, args, 2, NULL);
  if (!conf_expect(c, status, QN_STATUS_VALUE_ERROR, "aligned,'x',64 bytes")) return;
  from.byte_offset = 64;
  CONF_TRY(c, conf_call(c, function, args, 2));
  y_shape[0] = 9;
  conf_expect(c, qn_function_call(function, args, 2, NULL), QN_STATUS_VALUE_ERROR, "'y',n + 2");
}

static void aliasing(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.x_tensor.data = s.y;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "overlap");
  s.x_tensor.data = s.y;
  s.x_tensor.byte_offset = (N * M - 1) * 4;
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "overlap");
  // Side by side is fine, within one block.
  s.x_tensor.data = s.y;
  s.x_tensor.byte_offset = N * M * 4;
  conf_ok(c, conf_call(c, s.function, s.args, 5));
}

static void bad_range(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  s.args[3] = qn_value_int(128);
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'k',128");
  s.args[4] = qn_value_int(2);
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'p'");
  s.args[0] = qn_value_float(1e300);
  expect_bad(c, &s, QN_STATUS_VALUE_ERROR, "'a'");
  s.args[0] = qn_value_float((double)INFINITY);
  conf_ok(c, conf_call(c, s.function, s.args, 5));
}

static void other_stream(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  for (int32_t type = 1; type < 64; type++) {
    if (type == c->device.type || qn_device_count(type) == 0) continue;
    qn_device_t other = {type, 0};
    qn_stream_t* stream = NULL;
    CONF_TRY(c, qn_stream_create(other, &stream));
    qn_status_t status = qn_function_call_on(s.function, stream, s.args, 5, NULL);
    qn_status_t copied = conf_copy(conf_cpu(), &s, 0, c->device, s.y, 0, 4, false, stream);
    qn_stream_destroy(stream);
    bool is_good = conf_expect(c, status, QN_STATUS_INVALID_ARGUMENT, NULL);
    // A stream of either device may copy.
    if (type == QN_DEVICE_CPU || c->device.type == QN_DEVICE_CPU) {
      qn_status_free(copied);
    } else {
      is_good = conf_expect(c, copied, QN_STATUS_INVALID_ARGUMENT, NULL) && is_good;
    }
    if (!is_good) return;
  }
  works(c, &s);
}

static void lookups(conf_t* c) {
  setup_t s;
  if (!make(c, &s)) return;
  qn_module_t* module = conf_module(c, text);
  qn_function_t* function = NULL;
  if (!module) return;
  qn_status_t status =
      qn_engine_function(c->engine, module, c->target, "axpi", NULL, NULL, &function);
  if (!conf_expect(c, status, QN_STATUS_NOT_FOUND, "axpi,axpy")) return;
  qn_lookup_info_t info = {.struct_size = sizeof info};
  CONF_TRY(c, qn_engine_function(c->engine, module, c->target, "axpy", NULL, &info, &function));
  qn_function_release(function);
  CONF_CHECK(c, info.source == QN_SOURCE_MEMORY, "the second lookup's source is '%s'",
             qn_source_text(info.source));
  // Calls of a retained function still work after its code was evicted; a new lookup makes it
  // again.
  (void)qn_engine_unload(c->engine, module, c->target, NULL);
  if (!works(c, &s)) return;
  CONF_TRY(c, qn_engine_function(c->engine, module, c->target, "axpy", NULL, &info, &function));
  qn_function_release(function);
  works(c, &s);
}

static const conf_case_t cases[] = {
    {"arguments", good},
    {"wrong count", bad_count},
    {"wrong type", bad_type},
    {"wrong dtype", bad_dtype},
    {"wrong rank", bad_rank},
    {"wrong shape", bad_shape},
    {"wrong strides", bad_strides},
    {"wrong device", bad_device},
    {"wrong data", bad_data},
    {"wrong alignment", bad_alignment},
    {"aliasing", aliasing},
    {"scalars out of range", bad_range},
    {"streams of other devices", other_stream},
    {"lookups and unloading", lookups},
};
const conf_area_t conf_area_calls = {"calls", cases, CONF_COUNT_OF(cases), NULL};
