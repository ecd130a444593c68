// SPDX-License-Identifier: Apache-2.0
// serve/oip_infer.c: inference, from the request to its answer.
#include "serve/oip.h"

#include <stdlib.h>

#include "serve/number.h"

static void free_infer(void* self) {
  serve_oip_infer_t* infer = self;
  for (size_t i = 0; i < SERVE_OIP_INPUT_COUNT; ++i) serve_buffer_free(&infer->tensors[i].values);
  serve_buffer_free(&infer->id);
  free(infer);
}

bool serve_oip_handle_infer(serve_visit_t* visit, serve_buffer_t* out) {
  (void)out;
  serve_model_t* model = serve_oip_model(visit);
  if (!model) return false;
  if (!serve_visit_begin_call(visit)) {
    serve_model_release(model);
    return false;
  }
  visit->call->model = model;
  serve_oip_infer_t* infer = calloc(1, sizeof *infer);
  if (!infer) return serve_error_set(&visit->error, SERVE_INTERNAL, "no memory for the request");
  infer->visit = visit;
  visit->state = infer;
  visit->free_state = free_infer;
  return serve_oip_read(infer) && serve_visit_submit(visit);
}

static void put_rows(const serve_call_t* call, serve_buffer_t* out) {
  const size_t width = serve_call_width(call);
  for (size_t i = 0; i < serve_call_count(call); ++i) {
    if (i > 0) serve_buffer_text(out, ",");
    serve_json_put_f32s(out, serve_call_vector(call, i, 0), width);
  }
}

bool serve_oip_write_infer(serve_visit_t* visit, serve_buffer_t* out) {
  const serve_oip_infer_t* infer = visit->state;
  const serve_call_t* call = visit->call;
  const char* name = serve_model_name(call->model);
  const size_t count = serve_call_count(call);
  const size_t width = serve_call_width(call);
  serve_buffer_text(out, "{\"model_name\":");
  serve_json_put_string(out, name, strlen(name));
  serve_buffer_text(out, ",\"model_version\":\"" SERVE_MODEL_VERSION "\",\"id\":");
  if (infer->has_id) {
    serve_json_put_string(out, infer->id.data, infer->id.size);
  } else {
    serve_json_put_string(out, visit->id, strlen(visit->id));
  }
  serve_buffer_format(out,
                      ",\"outputs\":[{\"name\":\"embedding\",\"datatype\":\"FP32\","
                      "\"shape\":[%zu,%zu],",
                      count, width);
  if (!infer->is_binary) {
    serve_buffer_text(out, "\"data\":[");
    put_rows(call, out);
    serve_buffer_text(out, "]}]}");
    return true;
  }
  serve_buffer_format(out, "\"parameters\":{\"binary_data_size\":%zu}}]}",
                      count * width * sizeof(float));
  char length[SERVE_I64_LENGTH + 1];
  length[serve_i64_print((int64_t)out->size, length)] = '\0';
  serve_exchange_add_header(visit->exchange, "Inference-Header-Content-Length", length);
  visit->type = "application/octet-stream";
  for (size_t i = 0; i < count; ++i) {
    serve_buffer_append(out, serve_call_vector(call, i, 0), width * sizeof(float));
  }
  return true;
}
