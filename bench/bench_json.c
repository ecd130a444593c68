// SPDX-License-Identifier: Apache-2.0
// How fast are the numbers of the inference server's JSON read and written?
//
// A request with 32 texts of 128 token ids, and its answer: 32 embeddings of 384 f32, as numbers
// and as base64. The peer is jansson, which serve/ reads its settings with.
// links: serve
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "serve/json.h"

enum { SAMPLES = 51, TEXTS = 32, TOKENS = 128, WIDTH = 384 };

typedef struct body {
  serve_buffer_t text;  // of the request
  serve_buffer_t out;
  float values[TEXTS * WIDTH];
  json_t* tree;  // the same values
} body_t;

static void read_ids(void* self, int64_t iterations) {
  const body_t* body = self;
  for (int64_t i = 0; i < iterations; i++) {
    int64_t block[TOKENS];
    serve_json_t json;
    serve_json_init(&json, body->text.data, body->text.size);
    (void)serve_json_array(&json);
    uint32_t nest = 0;
    while (serve_json_leaf(&json, &nest)) {
      if (serve_json_i64s(&json, block, TOKENS) != TOKENS) bench_give_up("not all ids were read");
      bench_keep(block);
    }
    if (!serve_json_end(&json)) bench_give_up("the ids were not read");
  }
}

static void load_ids(void* self, int64_t iterations) {
  const body_t* body = self;
  for (int64_t i = 0; i < iterations; i++) {
    json_t* root = json_loadb(body->text.data, body->text.size, 0, NULL);
    if (!root) bench_give_up("jansson did not read the ids");
    json_decref(root);
  }
}

static void put_numbers(void* self, int64_t iterations) {
  body_t* body = self;
  for (int64_t i = 0; i < iterations; i++) {
    serve_buffer_clear(&body->out);
    serve_json_put_f32s(&body->out, body->values, TEXTS * WIDTH);
    bench_keep(body->out.data);
  }
}

static void put_base64(void* self, int64_t iterations) {
  body_t* body = self;
  for (int64_t i = 0; i < iterations; i++) {
    serve_buffer_clear(&body->out);
    serve_json_put_base64(&body->out, body->values, sizeof body->values);
    bench_keep(body->out.data);
  }
}

static void dump_numbers(void* self, int64_t iterations) {
  const body_t* body = self;
  for (int64_t i = 0; i < iterations; i++) {
    char* text = json_dumps(body->tree, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text) bench_give_up("no memory");
    free(text);
  }
}

static void fill(body_t* body) {
  uint64_t state = 88172645463325252u;
  body->tree = json_array();
  serve_buffer_text(&body->text, "[");
  for (int i = 0; i < TEXTS * TOKENS; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    serve_buffer_text(&body->text, i == 0 ? "[" : i % TOKENS == 0 ? "],[" : ",");
    serve_json_put_i64(&body->text, (int64_t)(state >> 33) % 30522);
  }
  serve_buffer_text(&body->text, "]]");
  for (int i = 0; i < TEXTS * WIDTH; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    body->values[i] = ((float)(state >> 40) / 16777216.0f - 0.5f) * 0.2f;
    if (json_array_append_new(body->tree, json_real((double)body->values[i])) != 0) {
      bench_give_up("no memory");
    }
  }
}

int main(int argc, char** argv) {
  bench_report_t report = bench_begin(
      "json", "numbers of requests and answers; floor: jansson, so smaller is better", argc, argv);
  body_t* body = calloc(1, sizeof *body);
  if (!body) bench_give_up("no memory");
  fill(body);
  void (*const bodies[])(void*, int64_t) = {read_ids, load_ids, put_numbers, put_base64,
                                            dump_numbers};
  void* const selves[] = {body, body, body, body, body};
  double ns[5];
  bench_compare_ns(5, bodies, selves, 0, SAMPLES, ns);
  char row[128];
  snprintf(row, sizeof row, "reading %d ids, %zu bytes", TEXTS * TOKENS, body->text.size);
  bench_row(&report, row, ns[0] / 1e3, "us", ns[1] / 1e3, 0);
  snprintf(row, sizeof row, "writing %d f32 as numbers", TEXTS * WIDTH);
  bench_row(&report, row, ns[2] / 1e3, "us", ns[4] / 1e3, 0);
  snprintf(row, sizeof row, "writing %d f32 as base64", TEXTS * WIDTH);
  bench_row(&report, row, ns[3] / 1e3, "us", ns[4] / 1e3, 0);
  json_decref(body->tree);
  serve_buffer_free(&body->text);
  serve_buffer_free(&body->out);
  free(body);
  return bench_end(&report);
}
