// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_oip.c: the Open Inference Protocol over HTTP, JSON and binary, and what clients
// may send that is wrong. Many cases are ones that Triton's front end has got wrong.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/serve/support_client.h"
#include "tests/serve/support_server.h"
#include "tests/support/must.h"

#define INFER "/v2/models/mini/infer"
#define TEXT_HEAD "{\"inputs\":[{\"name\":\"text\",\"shape\":"
#define IDS_HEAD "{\"name\":\"input_ids\",\"datatype\":\"INT64\",\"shape\":"
#define MASK_HEAD "{\"name\":\"attention_mask\",\"datatype\":\"INT64\",\"shape\":"

// ------------------------------------------------------------------------------------ metadata

static void test_metadata(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  const char* body = server_ask(&f, 200, "GET", "/v2", NULL);
  server_expect(body, "{\"name\":\"quern-serve\",\"version\":\"");
  server_expect(body, "\"binary_tensor_data\"");
  assert_null(strstr(body, "model_repository"));  // there is no address for management
  static const char metadata[] =
      "{\"name\":\"mini\",\"versions\":[\"1\"],\"platform\":\"quern\",\"inputs\":["
      "{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[-1]},"
      "{\"name\":\"input_ids\",\"datatype\":\"INT64\",\"shape\":[-1,-1]},"
      "{\"name\":\"attention_mask\",\"datatype\":\"INT64\",\"shape\":[-1,-1]}],"
      "\"outputs\":[{\"name\":\"embedding\",\"datatype\":\"FP32\",\"shape\":[-1,3]}]}";
  assert_string_equal(server_ask(&f, 200, "GET", "/v2/models/mini", NULL), metadata);
  assert_string_equal(server_ask(&f, 200, "GET", "/v2/models/mini/versions/1", NULL), metadata);
  json_t* config = json_loads(server_ask(&f, 200, "GET", "/v2/models/mini/config", NULL), 0, NULL);
  assert_int_equal(json_integer_value(json_object_get(config, "max_batch_size")), 0);
  const json_t* ids = json_array_get(json_object_get(config, "input"), 1);
  assert_string_equal(json_string_value(json_object_get(ids, "data_type")), "TYPE_INT64");
  assert_int_equal(json_array_size(json_object_get(ids, "dims")), 2);
  assert_true(json_is_true(json_object_get(ids, "optional")));
  json_decref(config);
  server_expect(server_ask(&f, 404, "GET", "/v2/models/other", NULL),
                "{\"error\":\"there is no model 'other'\"}");
  server_expect(server_ask(&f, 404, "GET", "/v2/models/mini/versions/2", NULL),
                "model 'mini' has no version '2', only 1");
  server_expect(server_ask(&f, 404, "GET", "/v2/models/mini/versions/-1/config", NULL),
                "no version '-1'");
  server_expect(server_ask(&f, 404, "GET", "/v2/models/mini/nothing", NULL),
                "{\"error\":\"there is no ");
  server_expect(server_ask(&f, 404, "GET", "/v2/models//ready", NULL), "{\"error\":\"there is no ");
  server_expect(server_ask(&f, 405, "GET", INFER, NULL), "{\"error\":\"GET is no method of ");
  server_stop(&f);
}

static void test_health(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  assert_string_equal(server_ask(&f, 200, "GET", "/v2/health/live", NULL), "{\"live\":true}");
  assert_string_equal(server_ask(&f, 200, "GET", "/v2/health/ready", NULL), "{\"ready\":true}");
  assert_string_equal(server_ask(&f, 200, "GET", "/v2/models/mini/ready", NULL),
                      "{\"name\":\"mini\",\"ready\":true}");
  assert_string_equal(server_ask(&f, 200, "GET", "/v2/models/mini/versions/1/ready", NULL),
                      "{\"name\":\"mini\",\"ready\":true}");
  (void)server_ask(&f, 404, "GET", "/v2/models/mini/versions/9/ready", NULL);
  (void)server_ask(&f, 404, "GET", "/v2/models/other/ready", NULL);
  must(serve_repository_unload(f.repository, "mini"));
  assert_string_equal(server_ask(&f, 503, "GET", "/v2/models/mini/ready", NULL),
                      "{\"name\":\"mini\",\"ready\":false}");
  server_expect(server_ask(&f, 503, "GET", "/v2/models/mini", NULL),
                "{\"error\":\"model 'mini' is not");
  serve_server_begin_drain(f.server);
  assert_string_equal(server_ask(&f, 503, "GET", "/v2/health/ready", NULL), "{\"ready\":false}");
  assert_string_equal(server_ask(&f, 200, "GET", "/v2/health/live", NULL), "{\"live\":true}");
  server_stop(&f);
}

// ------------------------------------------------------------------------------------ JSON

#define ANSWER(id, shape, data)                                                    \
  "{\"model_name\":\"mini\",\"model_version\":\"1\",\"id\":\"" id                  \
  "\",\"outputs\":[{\"name\":\"embedding\",\"datatype\":\"FP32\",\"shape\":" shape \
  ",\"data\":[" data "]}]}"

static void test_infer(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  // Of two texts of 4 and 3 tokens, {3, 4, 4} and {3, 4, 3} of unit length.
  assert_string_equal(
      server_post(&f, 200, INFER,
                  "{\"id\":\"\\u00fc\\\"7\",\"inputs\":[{\"name\":\"text\",\"shape\":[2],"
                  "\"datatype\":\"BYTES\",\"data\":[\"a b\",\"b\"]}]}"),
      ANSWER("ü\\\"7", "[2,3]", "0.4685213,0.62469506,0.62469506,0.51449573,0.6859943,0.51449573"));
  // Members in another order, more of them, nested data, all outputs, a version.
  assert_string_equal(
      server_post(&f, 200, "/v2/models/mini/versions/1/infer",
                  "{\"outputs\":[{\"parameters\":{\"binary_data\":false},\"name\":\"embedding\"}],"
                  "\"parameters\":{\"timeout\":60000000,\"priority\":1,\"mine\":[{}],"
                  "\"binary_data_output\":true},\"more\":null,\"inputs\":[{\"data\":[[[\"b\"]]],"
                  "\"more\":1,\"shape\":[1],\"parameters\":{\"mine\":1},\"datatype\":\"BYTES\","
                  "\"name\":\"text\"}],\"id\":\"x\"}"),
      ANSWER("x", "[1,3]", "0.51449573,0.6859943,0.51449573"));
  // Without an id the answer has that of the request in the log.
  const char* body =
      server_post(&f, 200, INFER, TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[\"b\"]}]}");
  server_expect(body, "\"id\":\"");
  assert_null(strstr(body, "\"id\":\"\""));
  server_stop(&f);
}

static void test_ids(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  // The mask leaves out the ends of rows: 3 and 4 tokens.
  static const char expected[] =
      ANSWER("1", "[2,3]", "0.51449573,0.6859943,0.51449573,0.4685213,0.62469506,0.62469506");
  assert_string_equal(server_post(&f, 200, INFER,
                                  "{\"id\":\"1\",\"inputs\":[" IDS_HEAD
                                  "[2,4],\"data\":[2,4,3,0,2,4,5,3]}," MASK_HEAD
                                  "[2,4],\"data\":[[1,1,1,0],[1, 1 ,1,1 ]]}]}"),
                      expected);
  assert_string_equal(server_post(&f, 200, INFER,
                                  "{\"id\":\"1\",\"inputs\":[" MASK_HEAD
                                  "[2,4],\"data\":[[1,1,1,0],[1,1,1,1]]}," IDS_HEAD
                                  "[2,4],\"data\":[[2,4,3,-9],[2,4,5,3]]}]}"),
                      expected);  // what the mask leaves out is not looked at
  // Without a mask all tokens count.
  assert_string_equal(
      server_post(&f, 200, INFER,
                  "{\"id\":\"1\",\"inputs\":[" IDS_HEAD "[1,4],\"data\":[2,4,3,0]}]}"),
      ANSWER("1", "[1,3]", "0.4685213,0.62469506,0.62469506"));
  server_stop(&f);
}

static void test_refused_json(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  static const struct {
    int status;
    const char* body;
    const char* part;
  } cases[] = {
      {400, "", "the body: byte 0: expected an object"},
      {400, "{}", "expected the input 'text', or 'input_ids' with 'attention_mask'"},
      {400, "{\"inputs\":{}}", "byte 10: expected an array"},
      {400, "{\"inputs\":[],\"inputs\":[]}", "expected 'inputs' once"},
      {400, "{\"outputs\":[],\"outputs\":[]}", "expected 'outputs' once"},
      {400, "{\"inputs\":[7]}", "expected an object"},
      {400, "{\"id\":7}", "expected a string"},
      {400, "{\"inputs\":[{\"name\":\"texts\",\"shape\":[1],\"data\":[\"a\"]}]}",
       "the model has no input 'texts'; expected 'text'"},
      {400, "{\"inputs\":[{\"name\":\"t\\u0000\",\"shape\":[1]}]}", "the model has no input 't"},
      {400, TEXT_HEAD "[1],\"datatype\":\"FP32\",\"data\":[\"a\"]}]}",
       "input 'text': the datatype is 'FP32', expected BYTES"},
      {400, TEXT_HEAD "[1],\"data\":[\"a\"]}]}", "the datatype is '', expected BYTES"},
      {400, "{\"inputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"data\":[\"a\"]}]}",
       "input 'text' has no shape"},
      {400, TEXT_HEAD "[1],\"datatype\":\"BYTES\"}]}",
       "input 'text': expected either 'data' or 'binary_data_size'"},
      {400,
       TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[\"a\"],\"parameters\":{"
                 "\"binary_data_size\":5}}]}",
       "expected either 'data' or 'binary_data_size'"},
      {400,
       TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[\"a\"]},{\"name\":\"text\",\"shape\":[1],"
                 "\"datatype\":\"BYTES\",\"data\":[\"a\"]}]}",
       "input 'text' is given twice"},
      {400,
       TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[\"a\"]}," IDS_HEAD "[1,1],\"data\":[1]}]}",
       "expected the input 'text', or"},
      {400, "{\"inputs\":[" MASK_HEAD "[1,1],\"data\":[1]}]}", "expected the input 'text', or"},
      {400, TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[7]}]}",
       "input 'text' is BYTES, and its data are integers"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,1],\"data\":[\"a\"]}]}",
       "input 'input_ids' is INT64, and its data are texts"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,\"a\"]}]}", "expected values of one type"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,1],\"data\":[1.5]}]}", "expected an integer of 64 bits"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,1],\"data\":[9223372036854775808]}]}",
       "expected an integer of 64 bits"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,1],\"data\":[1,]}]}", "expected an integer of 64 bits"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,1],\"data\":[null]}]}", "expected an integer of 64 bits"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,1],\"data\":1}]}", "expected an array"},
      {400, TEXT_HEAD "[1],\"shape\":[1]}]}", "expected 'shape' once"},
      {400, TEXT_HEAD "[1],\"data\":[],\"data\":[]}]}", "expected 'data' once"},
      {400, TEXT_HEAD "[1.0],\"data\":[]}]}", "expected an integer of 64 bits"},
      {400, TEXT_HEAD "[1,1],\"datatype\":\"BYTES\",\"data\":[\"a\"]}]}",
       "input 'text': the shape has 2 dimensions, expected 1"},
      {400, "{\"inputs\":[" IDS_HEAD "[],\"data\":[]}]}",
       "input 'input_ids': the shape has 0 dimensions, expected 2"},
      {400, TEXT_HEAD "[2],\"datatype\":\"BYTES\",\"data\":[\"a\"]}]}",
       "input 'text': the shape has 2 elements, and the data have 1"},
      {400, TEXT_HEAD "[0],\"datatype\":\"BYTES\",\"data\":[]}]}", "there is no input"},
      // Sizes that overflow, or that are negative.
      {400, TEXT_HEAD "[-1],\"datatype\":\"BYTES\",\"data\":[\"a\"]}]}",
       "expected a dimension from 0"},
      {400, TEXT_HEAD "[1,1,1]}]}", "expected at most 2 dimensions"},
      {400, "{\"inputs\":[" IDS_HEAD "[4294967296,4294967296],\"data\":[]}]}",
       "the shape has more than 9223372036854775807 elements, and the data have 0"},
      {400, "{\"inputs\":[" IDS_HEAD "[4294967297,4294967295],\"data\":[1]}]}",
       "elements, and the data have 1"},
      {400, "{\"inputs\":[" IDS_HEAD "[2305843009213693952,8],\"data\":[1]}]}",
       "the shape has more than"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,18446744073709551615],\"data\":[1]}]}",
       "expected an integer of 64 bits"},
      {413, "{\"inputs\":[" IDS_HEAD "[9223372036854775807,0],\"data\":[]}]}",
       "more than 3 inputs"},
      {400, "{\"inputs\":[" IDS_HEAD "[0,9223372036854775807],\"data\":[]}]}", "there is no input"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,0],\"data\":[]}]}", "input 0 has no tokens"},
      // Masks.
      {400, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,1]}," MASK_HEAD "[2,1],\"data\":[1,1]}]}",
       "the shapes of 'input_ids' and 'attention_mask' differ"},
      {400, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,1]}," MASK_HEAD "[1,2],\"data\":[0,0]}]}",
       "input 0 has no tokens"},
      {422, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,1]}," MASK_HEAD "[1,2],\"data\":[0,1]}]}",
       "input 'attention_mask', row 0: expected ones, then zeros"},
      {422, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,1]}," MASK_HEAD "[1,2],\"data\":[1,2]}]}",
       "row 0: expected ones, then zeros"},
      {422, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,4294967297]}]}",
       "input 'input_ids', row 0, token 1: 4294967297 is no id"},
      {422, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,-1]}]}", "-1 is no id"},
      {422, "{\"inputs\":[" IDS_HEAD "[1,2],\"data\":[1,7]}]}",
       "input 0, token 1: id 7 is not between 0 and 6"},
      {413, TEXT_HEAD "[4],\"datatype\":\"BYTES\",\"data\":[\"a\",\"a\",\"a\",\"a\"]}]}",
       "more than 3 inputs"},
      // Parameters.
      {400, "{\"parameters\":{\"timeout\":-1}}", "expected microseconds from 0"},
      {400, "{\"parameters\":{\"timeout\":\"1\"}}", "expected an integer of 64 bits"},
      {400, "{\"parameters\":{\"timeout\":18446744073709551616}}", "an integer of 64 bits"},
      {400, "{\"parameters\":{\"priority\":-1}}", "expected a priority from 0"},
      {400, "{\"parameters\":{\"binary_data_output\":1}}", "expected true or false"},
      {400, "{\"parameters\":{\"sequence_id\":1}}", "expected no sequence"},
      {400, "{\"parameters\":{\"triton_enable_empty_final_response\":true}}",
       "expected no reserved name of a parameter"},
      {400, "{\"parameters\":{\"headers\":\"x\"}}", "expected no reserved name of a parameter"},
      {400, "{\"parameters\":[]}", "expected an object"},
      {400, TEXT_HEAD "[1],\"parameters\":{\"shared_memory_region\":\"x\"}}]}",
       "expected no shared memory"},
      {400, TEXT_HEAD "[1],\"parameters\":{\"binary_data_size\":-5}}]}",
       "expected a number of bytes from 0"},
      {400, TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"parameters\":{\"binary_data_size\":5}}]}",
       "input 'text': binary_data_size is 5, and 0 bytes follow"},
      // Outputs.
      {400, "{\"outputs\":[{\"name\":\"logits\"}],\"inputs\":[]}",
       "the model has no output 'logits', only 'embedding'"},
      {400, "{\"outputs\":[{\"name\":\"embedding\"},{\"name\":\"embedding\"}]}",
       "expected one output"},
      {400, "{\"outputs\":[{\"name\":\"embedding\",\"parameters\":{\"classification\":2}}]}",
       "expected no classification"},
      {400, "{\"outputs\":[{\"name\":\"embedding\",\"parameters\":{\"shared_memory_size\":2}}]}",
       "expected no shared memory"},
      {400, "{\"outputs\":7}", "expected an array"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const char* body = server_post(&f, cases[i].status, INFER, cases[i].body);
    if (!strstr(body, cases[i].part)) fail_msg("%s: %s", cases[i].body, body);
    if (strncmp(body, "{\"error\":\"", 10) != 0) fail_msg("%s", body);
  }
  (void)server_post(&f, 404, "/v2/models/other/infer", "{}");
  (void)server_post(&f, 404, "/v2/models/mini/versions/2/infer", "{}");
  server_stop(&f);
}

// Deep JSON is refused without recursion, wherever it is.
static void test_deep_json(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  static const char* const heads[] = {
      "", "{\"more\":", "{\"parameters\":{\"mine\":", TEXT_HEAD "[1],\"data\":", TEXT_HEAD};
  enum { DEPTH = 1 << 20 };
  for (size_t i = 0; i < sizeof heads / sizeof heads[0]; ++i) {
    for (int k = 0; k < 2; ++k) {
      const size_t head = strlen(heads[i]);
      char* body = malloc(head + (size_t)DEPTH * 5);
      assert_non_null(body);
      memcpy(body, heads[i], head);
      size_t size = head;
      for (int d = 0; d < DEPTH; ++d) {
        const char* open = k == 0 ? "[" : "{\"a\":";
        memcpy(body + size, open, strlen(open));
        size += strlen(open);
      }
      const client_request_t request = {"POST", INFER, "", body, size};
      char text[4096];
      const int status = client_exchange(f.port, &request, text, sizeof text);
      assert_int_equal(status, 400);
      server_expect(text, "expected ");
      free(body);
    }
  }
  server_stop(&f);
}

// ------------------------------------------------------------------------------------ binary

typedef struct packet {
  char data[4096];
  size_t json_size;
  size_t size;
} packet_t;

static void put_json(packet_t* packet, const char* json) {
  packet->json_size = packet->size = strlen(json);
  memcpy(packet->data, json, packet->size);
}

static void put_bytes(packet_t* packet, const void* data, size_t size) {
  assert_true(packet->size + size <= sizeof packet->data);
  memcpy(packet->data + packet->size, data, size);
  packet->size += size;
}

static void put_text(packet_t* packet, const char* text) {
  const uint32_t length = (uint32_t)strlen(text);
  put_bytes(packet, &length, sizeof length);
  put_bytes(packet, text, length);
}

static void put_integers(packet_t* packet, const int64_t* values, size_t count) {
  put_bytes(packet, values, count * sizeof *values);
}

static char answer_text[1 << 16];

// Sends a packet; `length` is the value of the header, or NULL for the right one.
static const char* send_packet(const server_fixture_t* f, int status, const packet_t* packet,
                               const char* length) {
  char headers[256];
  char number[32];
  (void)snprintf(number, sizeof number, "%zu", packet->json_size);
  (void)snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %s\r\n",
                 length ? length : number);
  const client_request_t request = {"POST", INFER, headers, packet->data, packet->size};
  const int got = client_exchange(f->port, &request, answer_text, sizeof answer_text);
  if (got != status) fail_msg("%d instead of %d: %s", got, status, answer_text);
  return answer_text;
}

// Checks an answer in binary: the JSON, then rows.
static void expect_binary(const char* answer, const char* json_part, const float* values,
                          size_t count) {
  server_expect(answer, "Content-Type: application/octet-stream\r\n");
  const char* header = strstr(answer, "Inference-Header-Content-Length: ");
  assert_non_null(header);
  const size_t json_size = strtoul(header + 33, NULL, 10);
  size_t size;
  const char* body = client_body(answer, &size);
  assert_int_equal(size, json_size + count * sizeof(float));
  char json[1024];
  assert_true(json_size < sizeof json);
  memcpy(json, body, json_size);
  json[json_size] = '\0';
  server_expect(json, json_part);
  assert_memory_equal(body + json_size, values, count * sizeof(float));
}

static void test_binary(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  const float unit4[] = {0.4685213f, 0.62469506f, 0.62469506f};
  const float unit3[] = {0.51449573f, 0.6859943f, 0.51449573f};
  packet_t packet = {.size = 0};
  put_json(&packet, TEXT_HEAD
           "[2],\"datatype\":\"BYTES\",\"parameters\":{\"binary_data_size\":12}}],"
           "\"parameters\":{\"binary_data_output\":true},\"id\":\"7\"}");
  put_text(&packet, "a b");
  put_text(&packet, "a");
  float both[6];
  memcpy(both, unit4, sizeof unit4);
  memcpy(both + 3, unit3, sizeof unit3);
  expect_binary(send_packet(&f, 200, &packet, NULL),
                "\"id\":\"7\",\"outputs\":[{\"name\":\"embedding\",\"datatype\":\"FP32\","
                "\"shape\":[2,3],\"parameters\":{\"binary_data_size\":24}}]}",
                both, 6);
  // Of two inputs the bytes follow in the order of the JSON; the output is JSON unless asked.
  put_json(&packet, "{\"id\":\"8\",\"inputs\":[" MASK_HEAD
                    "[1,4],\"parameters\":{\"binary_data_size\":32}}," IDS_HEAD
                    "[1,4],\"parameters\":{\"binary_data_size\":32}}]}");
  put_integers(&packet, (const int64_t[]){1, 1, 1, 0}, 4);
  put_integers(&packet, (const int64_t[]){2, 5, 3, 0}, 4);
  server_expect(send_packet(&f, 200, &packet, NULL),
                ANSWER("8", "[1,3]", "0.51449573,0.6859943,0.51449573"));
  // One input in JSON, the other behind it; the output's own wish goes first.
  put_json(&packet,
           "{\"parameters\":{\"binary_data_output\":false},\"outputs\":[{\"name\":\"embedding\","
           "\"parameters\":{\"binary_data\":true}}],\"inputs\":[" MASK_HEAD
           "[1,4],\"data\":[1,1,1,0]}," IDS_HEAD
           "[1,4],\"parameters\":{\"binary_data_size\":32}}]}");
  put_integers(&packet, (const int64_t[]){2, 5, 3, 0}, 4);
  expect_binary(send_packet(&f, 200, &packet, NULL), "\"shape\":[1,3]", unit3, 3);
  // A header of 0: the body is the text itself, and the answer is binary.
  packet.size = packet.json_size = 0;
  put_bytes(&packet, "a b", 3);
  expect_binary(send_packet(&f, 200, &packet, "0"), "\"shape\":[1,3]", unit4, 3);
  // JSON alone may have the header.
  put_json(&packet,
           "{\"id\":\"9\",\"inputs\":[{\"name\":\"text\",\"shape\":[1],"
           "\"datatype\":\"BYTES\",\"data\":[\"a\"]}]}");
  server_expect(send_packet(&f, 200, &packet, NULL),
                ANSWER("9", "[1,3]", "0.51449573,0.6859943,0.51449573"));
  server_stop(&f);
}

static void test_refused_binary(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  packet_t good = {.size = 0};
  put_json(&good,
           TEXT_HEAD "[2],\"datatype\":\"BYTES\",\"parameters\":{\"binary_data_size\":12}}]}");
  put_text(&good, "a b");
  put_text(&good, "a");
  (void)send_packet(&f, 200, &good, NULL);
  // Lengths: no sign, no white space, nothing after the digits, no overflow.
  static const char* const lengths[] = {"",
                                        "-1",
                                        "+5",
                                        "5x",
                                        "0x10",
                                        "1e1",
                                        "5 6",
                                        "5,5",
                                        "1.0",
                                        "00",
                                        "007",
                                        "-0",
                                        "a",
                                        "99999999999999999999",
                                        "4294967401",
                                        "18446744073709551616",
                                        "9223372036854775808"};
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; ++i) {
    server_expect(send_packet(&f, 400, &good, lengths[i]),
                  "{\"error\":\"Inference-Header-Content-Length");
  }
  char length[32];
  (void)snprintf(length, sizeof length, "%zu", good.size + 1);
  server_expect(send_packet(&f, 400, &good, length), "and the body has ");
  (void)snprintf(length, sizeof length, "%zu", good.json_size - 1);
  server_expect(send_packet(&f, 400, &good, length), "expected ',' or '}'");
  (void)snprintf(length, sizeof length, "%zu", good.json_size + 1);
  server_expect(send_packet(&f, 400, &good, length), "expected the end");
  packet_t bad = good;
  put_bytes(&bad, "x", 1);
  server_expect(send_packet(&f, 400, &bad, NULL), "1 bytes follow the last input");
  bad = good;
  bad.size -= 1;
  server_expect(send_packet(&f, 400, &bad, NULL), "binary_data_size is 12, and 11 bytes follow");
  // Lengths of elements that reach beyond their tensor, or end in the middle of a length.
  bad = good;
  memcpy(bad.data + bad.json_size, "\xff\xff\xff\xff", 4);
  server_expect(send_packet(&f, 400, &bad, NULL),
                "element 0 has 12 bytes of data, and its length says "
                "4294967295");
  bad = good;
  memcpy(bad.data + bad.json_size, "\x06\0\0\0", 4);
  server_expect(send_packet(&f, 400, &bad, NULL), "element 1 has 2 bytes of data");
  bad = good;
  memcpy(bad.data + bad.json_size, "\x08\0\0\0", 4);
  server_expect(send_packet(&f, 400, &bad, NULL), "the shape has 2 elements, and the data have 1");
  bad = good;
  memcpy(bad.data + bad.json_size + 4, "\xc0\x80", 2);
  server_expect(send_packet(&f, 400, &bad, NULL),
                "input 'text': element 0, byte 0: expected UTF-8");
  put_json(
      &bad, TEXT_HEAD
      "[1],\"datatype\":\"BYTES\",\"parameters\":{\"binary_data_size\":9223372036854775807}}]}");
  server_expect(send_packet(&f, 400, &bad, NULL), "and 0 bytes follow");
  put_json(&bad, "{\"inputs\":[" IDS_HEAD "[1,1],\"parameters\":{\"binary_data_size\":7}}]}");
  put_bytes(&bad, "1234567", 7);
  server_expect(send_packet(&f, 400, &bad, NULL), "7 bytes are no whole number of INT64");
  put_json(&bad, "{\"inputs\":[" IDS_HEAD "[1,2],\"parameters\":{\"binary_data_size\":8}}]}");
  put_integers(&bad, (const int64_t[]){1}, 1);
  server_expect(send_packet(&f, 400, &bad, NULL), "the shape has 2 elements, and the data have 1");
  put_json(&bad, "{\"inputs\":[" IDS_HEAD "[1,1],\"parameters\":{\"binary_data_size\":8}}]}");
  put_integers(&bad, (const int64_t[]){INT64_MIN}, 1);
  server_expect(send_packet(&f, 422, &bad, NULL), "-9223372036854775808 is no id");
  put_json(&bad, "\xff");
  bad.json_size = 0;
  server_expect(send_packet(&f, 400, &bad, NULL), "byte 0: expected UTF-8");
  // A body of nothing is an empty text.
  bad.size = 0;
  (void)send_packet(&f, 200, &bad, "0");
  server_stop(&f);
}

// A body may come in as many chunks as bytes, and a coding is not guessed.
static void test_chunks(void** state) {
  (void)state;
  server_fixture_t f;
  server_start(&f);
  enum { SPACES = 70000 };
  static const char json[] = TEXT_HEAD "[1],\"datatype\":\"BYTES\",\"data\":[\"b\"]}]}";
  const size_t size = SPACES + sizeof json - 1;
  char* chunks = malloc(size * 6 + 6);
  assert_non_null(chunks);
  char* at = chunks;
  for (size_t i = 0; i < size; ++i) {
    const char c = i < SPACES ? ' ' : json[i - SPACES];
    const char chunk[] = {'1', '\r', '\n', c, '\r', '\n'};
    memcpy(at, chunk, sizeof chunk);
    at += sizeof chunk;
  }
  memcpy(at, "0\r\n\r\n", 6);
  const int client = client_connect(f.port);
  client_send(client, "POST " INFER " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  client_send(client, chunks);
  client_expect(client, 200, "[1,3]");
  (void)close(client);
  free(chunks);
  const client_request_t zipped = {"POST", INFER, "Content-Encoding: gzip\r\n", "{}", 2};
  char text[4096];
  assert_int_equal(client_exchange(f.port, &zipped, text, sizeof text), 400);
  server_expect(text, "{\"error\":\"the body has coding 'gzip'; send it plain\"}");
  server_stop(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_metadata),     cmocka_unit_test(test_health),
      cmocka_unit_test(test_infer),        cmocka_unit_test(test_ids),
      cmocka_unit_test(test_refused_json), cmocka_unit_test(test_deep_json),
      cmocka_unit_test(test_binary),       cmocka_unit_test(test_refused_binary),
      cmocka_unit_test(test_chunks),
  };
  return cmocka_run_group_tests(tests, server_make_folder, server_remove_folder);
}
