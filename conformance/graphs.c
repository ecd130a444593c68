// SPDX-License-Identifier: Apache-2.0
// conformance/graphs.c: calls that are recorded once and launched many times; streams of the
// driver.
#include "conformance/suite.h"
#include "quern/device.h"

static const char add_text[] =
    "func add_one(inout x: i32[n]) { parallel i in 0..n { x[i] = x[i] + 1; } }";

static void capture(conf_t* c) {
  int64_t shape[1] = {1000};
  qn_stream_t* stream = conf_stream(c);
  qn_function_t* function = conf_function(c, add_text, "add_one", false);
  void* memory = conf_device_memory(c, 4000);
  int32_t* host = conf_host_memory(c, 4000);
  if (!stream || !function || !memory || !host || !conf_upload(c, memory, 0, host, 4000)) return;
  qn_tensor_t tensor = conf_tensor(c, memory, QN_DTYPE_I32, 1, shape);
  qn_value_t args[] = {qn_value_tensor(&tensor)};
  CONF_TRY(c, qn_function_call_on(function, stream, args, 1, NULL));
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  CONF_TRY(c, qn_stream_capture_begin(c->device, stream));
  qn_status_t second = qn_stream_capture_begin(c->device, stream);
  qn_status_t first_call = qn_function_call_on(function, stream, args, 1, NULL);
  qn_status_t second_call = qn_function_call_on(function, stream, args, 1, NULL);
  qn_graph_t* graph = NULL;
  qn_status_t end = qn_stream_capture_end(c->device, stream, &graph);
  bool is_good = conf_expect(c, second, QN_STATUS_FAILED_PRECONDITION, NULL);
  is_good = conf_ok(c, first_call) && is_good;
  is_good = conf_ok(c, second_call) && is_good;
  is_good = conf_ok(c, end) && is_good;
  if (is_good && !graph) conf_fail(c, "no graph came out");
  if (!is_good || !graph) {
    qn_graph_destroy(graph);
    return;
  }
  // Recording runs nothing; each launch runs both calls. The graph retains the function.
  is_good = conf_download(c, host, memory, 0, 4000);
  if (is_good && (host[0] != 1 || host[999] != 1)) conf_fail(c, "recording ran the work");
  conf_drop(c, function);
  for (int i = 0; i < 5 && is_good; i++) is_good = conf_ok(c, qn_graph_launch(graph, stream));
  is_good = is_good && conf_ok(c, qn_stream_sync(c->device, stream));
  is_good = is_good && conf_download(c, host, memory, 0, 4000);
  if (is_good && (host[0] != 11 || host[999] != 11)) {
    conf_fail(c, "after 5 launches of two calls the value is %d, not 11", (int)host[0]);
  }
  qn_graph_destroy(graph);
}

static void native_streams(conf_t* c) {
  qn_stream_t* stream = conf_stream(c);
  if (!stream) return;
  CONF_CHECK(c, qn_stream_native(NULL) == NULL, "NULL has a native stream");
  void* native = qn_stream_native(stream);
  if (!native) {
    qn_stream_t* wrapped = NULL;
    conf_expect(c, qn_stream_wrap(c->device, stream, &wrapped), QN_STATUS_UNSUPPORTED, NULL);
    conf_unsupported(c, "streams of this device are not a driver's objects");
    return;
  }
  qn_stream_t* wrapped = NULL;
  CONF_TRY(c, qn_stream_wrap(c->device, native, &wrapped));
  conf_keep(c, CONF_KEPT_STREAM, wrapped, c->device);
  CONF_CHECK(c, qn_stream_native(wrapped) == native, "the wrapped stream is another one");
  int64_t shape[1] = {1000};
  qn_function_t* function = conf_function(c, add_text, "add_one", false);
  void* memory = conf_device_memory(c, 4000);
  int32_t* host = conf_host_memory(c, 4000);
  if (!function || !memory || !host || !conf_upload(c, memory, 0, host, 4000)) return;
  qn_tensor_t tensor = conf_tensor(c, memory, QN_DTYPE_I32, 1, shape);
  qn_value_t args[] = {qn_value_tensor(&tensor)};
  for (int i = 0; i < 10; i++) {
    CONF_TRY(c, qn_function_call_on(function, i % 2 ? wrapped : stream, args, 1, NULL));
  }
  CONF_TRY(c, qn_stream_sync(c->device, wrapped));
  CONF_TRY(c, qn_stream_sync(c->device, stream));
  if (!conf_download(c, host, memory, 0, 4000)) return;
  CONF_CHECK(c, host[500] == 10, "the two handles of one stream lost their order");
}

static const conf_case_t cases[] = {
    {"capture and launch", capture},
    {"wrapped streams", native_streams},
};
const conf_area_t conf_area_graphs = {"graphs", cases, CONF_COUNT_OF(cases), NULL};
