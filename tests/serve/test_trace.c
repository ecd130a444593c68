// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_trace.c: the file of a trace: bounded, valid, and complete.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "serve/trace.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

static json_t* write_and_read(serve_trace_t* trace) {
  char folder[QN_TEST_PATH_SIZE];
  char path[QN_TEST_PATH_SIZE + 8];
  assert_true(qn_test_tempdir_make(folder));
  (void)snprintf(path, sizeof path, "%s/trace", folder);
  must(serve_trace_write(trace, path));
  json_error_t error;
  json_t* file = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!file) fail_msg("byte %d: %s", error.position, error.text);
  qn_test_tempdir_remove(folder);
  return file;
}

static json_t* find_event(const json_t* file, const char* name, const char* phase) {
  size_t i;
  json_t* event;
  json_array_foreach(json_object_get(file, "traceEvents"), i, event) {
    if (strcmp(json_string_value(json_object_get(event, "name")), name) == 0 &&
        strcmp(json_string_value(json_object_get(event, "ph")), phase) == 0) {
      return event;
    }
  }
  fail_msg("no event %s of kind %s", name, phase);
  return NULL;
}

static double time_of(const json_t* event) {
  return json_number_value(json_object_get(event, "ts"));
}

static const char* argument(const json_t* event, const char* name) {
  return json_string_value(json_object_get(json_object_get(event, "args"), name));
}

static void test_events(void** state) {
  (void)state;
  serve_trace_t* trace;
  must(serve_trace_create(&trace));
  serve_trace_add_request(trace, &(serve_trace_request_t){.id = "\"7\"\\",
                                                          .parent = "00-1-2-01",
                                                          .path = "/e\tmbed",
                                                          .status = 200,
                                                          .batch = 3,
                                                          .whole = {1000001000, 1000009000, 11},
                                                          .read = {1000001000, 1000002000, 11},
                                                          .encode = {1000002000, 1000003000, 11},
                                                          .queue = {1000003000, 1000004000, 11},
                                                          .compute = {1000004500, 0, 12},
                                                          .write = {1000007000, 1000008005, 13}});
  serve_trace_add_request(trace, &(serve_trace_request_t){.id = "no call", .whole = {1, 2, 11}});
  serve_trace_add_batch(trace, &(serve_trace_batch_t){.model = "m",
                                                      .number = 3,
                                                      .whole = {1000004000, 1000006500, 12},
                                                      .compute = {1000004500, 1000006000, 12}});
  serve_trace_add_request(NULL, &(serve_trace_request_t){.status = 1});
  serve_trace_add_batch(NULL, &(serve_trace_batch_t){.number = 1});
  json_t* file = write_and_read(trace);
  const json_t* request = find_event(file, "request", "b");
  assert_string_equal(argument(request, "request_id"), "\"7\"\\");
  assert_string_equal(argument(request, "traceparent"), "00-1-2-01");
  assert_string_equal(argument(request, "path"), "/e\tmbed");
  assert_string_equal(argument(find_event(file, "tokenise", "X"), "request_id"), "\"7\"\\");
  const json_t* answer = find_event(file, "write", "X");
  assert_true(time_of(answer) == 1000007.0);
  assert_true(json_number_value(json_object_get(answer, "dur")) == 1.005);
  // The flow goes from slice to slice.
  static const struct {
    const char* phase;
    const char* slice;
  } flow[] = {{"s", "tokenise"}, {"t", "compute"}, {"f", "write"}};
  for (size_t i = 0; i < 3; ++i) {
    const json_t* arrow = find_event(file, "request", flow[i].phase);
    const json_t* slice = find_event(file, flow[i].slice, "X");
    assert_true(time_of(arrow) == time_of(slice));
    assert_true(json_equal(json_object_get(arrow, "tid"), json_object_get(slice, "tid")));
    assert_true(json_equal(json_object_get(arrow, "id"), json_object_get(request, "id")));
  }
  assert_string_equal(argument(find_event(file, "thread_name", "M"), "name"), "model m");
  json_decref(file);
  serve_trace_destroy(trace);
}

// The latest records stay.
static void test_bound(void** state) {
  (void)state;
  enum { LOST = 5 };
  serve_trace_t* trace;
  must(serve_trace_create(&trace));
  for (int i = 0; i < SERVE_TRACE_RECORDS + LOST; ++i) {
    serve_trace_request_t request = {.whole = {1000, 2000, 1}};
    (void)snprintf(request.id, sizeof request.id, "%d", i);
    serve_trace_add_request(trace, &request);
  }
  json_t* file = write_and_read(trace);
  assert_string_equal(argument(find_event(file, "request", "b"), "request_id"), "5");
  const json_t* other = json_object_get(file, "otherData");
  assert_string_equal(json_string_value(json_object_get(other, "lost_requests")), "5");
  assert_string_equal(json_string_value(json_object_get(other, "lost_batches")), "0");
  // Two for each record, the name of the process and one of a thread.
  assert_int_equal(json_array_size(json_object_get(file, "traceEvents")),
                   2 * SERVE_TRACE_RECORDS + 2);
  json_decref(file);
  must_fail(serve_trace_write(trace, "/nonexistent/trace"), QN_STATUS_IO,
            "cannot write '/nonexistent/trace'");
  serve_trace_destroy(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_events), cmocka_unit_test(test_bound)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
