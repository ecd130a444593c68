// SPDX-License-Identifier: Apache-2.0
// serve/tei.c: the routes of text-embeddings-inference (its router 1.9): /embed, /embed_all,
// /tokenize, /decode, /info, /health and /ping.
//
// Inputs are a text, a list of ids, or a list of these. Errors are {"error", "error_type"}.
#include <stdlib.h>

#include "serve/inputs.h"
#include "serve/number.h"
#include "serve/protocols.h"

static void write_error(serve_error_t* error, serve_buffer_t* out) {
  const char* type = "Validation";
  switch (error->status) {
    case SERVE_TOO_MANY:
      type = "Overloaded";
      break;
    case SERVE_UNAVAILABLE:
      type = "Unhealthy";
      break;
    case SERVE_INTERNAL:
    case SERVE_GATEWAY_TIMEOUT:
      type = "Backend";
      break;
    default:
      break;
  }
  serve_buffer_text(out, "{\"error\":");
  serve_json_put_string(out, error->message, strlen(error->message));
  serve_buffer_format(out, ",\"error_type\":\"%s\"}", type);
}

const serve_protocol_t serve_tei = {"tei", write_error};

// ------------------------------------------------------------------------------------ reading

// Reads 'inputs', or 'ids' of /decode.
static bool read_inputs(serve_json_t* json, serve_visit_t* visit) {
  return serve_inputs_read(json, visit->call, &visit->server->limits, &visit->error);
}

static bool read_direction(serve_json_t* json, serve_truncation_t* out_direction) {
  serve_buffer_t text = {.data = NULL};
  bool is_good = serve_json_string(json, &text);
  if (is_good) {
    const bool is_left = text.size == 4 && memcmp(text.data, "Left", 4) == 0;
    const bool is_right = text.size == 5 && memcmp(text.data, "Right", 5) == 0;
    is_good = is_left || is_right || serve_json_fail(json, "\"Left\" or \"Right\"");
    *out_direction = is_left ? SERVE_TRUNCATE_LEFT : SERVE_TRUNCATE_RIGHT;
  }
  serve_buffer_free(&text);
  return is_good;
}

// Reads a member of the body that is about the embeddings.
static bool read_member(serve_json_t* json, void* self) {
  serve_visit_t* visit = self;
  serve_call_t* call = visit->call;
  const char* key = json->key;
  const bool is_null = serve_json_peek(json) == SERVE_JSON_NULL;
  if (strcmp(key, "inputs") == 0) return read_inputs(json, visit);
  if (is_null) return serve_json_null(json);
  if (strcmp(key, "truncate") == 0) return serve_json_bool(json, &call->truncates);
  if (strcmp(key, "truncation_direction") == 0) return read_direction(json, &call->direction);
  if (strcmp(key, "normalize") == 0) return serve_json_bool(json, &call->normalizes);
  if (strcmp(key, "dimensions") == 0) return serve_inputs_read_dimensions(json, call);
  // A prompt would change the text; a server that has none must not leave it out silently.
  if (strcmp(key, "prompt_name") == 0)
    return serve_json_fail(json, "no prompt: the model has none");
  return serve_json_skip(json);
}

// Begins a call of the first model.
static bool begin_call(serve_visit_t* visit) {
  return serve_visit_begin_call(visit) && serve_visit_choose_model(visit, NULL);
}

static bool read_body(serve_visit_t* visit, bool (*read)(serve_json_t* json, void* self),
                      void* self) {
  return serve_visit_read(visit, visit->exchange->body.size, read, self);
}

static bool read_call(serve_visit_t* visit) {
  return begin_call(visit) && read_body(visit, read_member, visit);
}

// ------------------------------------------------------------------------------------ embeddings

static bool handle_embed(serve_visit_t* visit, serve_buffer_t* out) {
  (void)out;
  return read_call(visit) && serve_visit_submit(visit);
}

static bool handle_embed_all(serve_visit_t* visit, serve_buffer_t* out) {
  (void)out;
  if (!read_call(visit)) return false;
  visit->call->wants_tokens = true;
  visit->call->normalizes = false;
  return serve_visit_submit(visit);
}

static void add_times(serve_visit_t* visit) {
  const serve_call_t* call = visit->call;
  const serve_request_t* request = &call->request;
  const struct {
    const char* name;
    int64_t value;
  } headers[] = {
      {"x-compute-characters", (int64_t)call->texts.size},
      {"x-compute-tokens", (int64_t)serve_call_all_tokens(call)},
      {"x-total-time", (request->done_ns - call->start_ns) / 1000000},
      {"x-tokenization-time", call->encode_ns / 1000000},
      {"x-queue-time", (request->taken_ns - request->queued_ns) / 1000000},
      {"x-inference-time", request->compute_ns / 1000000},
  };
  serve_exchange_add_header(visit->exchange, "x-compute-type",
                            serve_model_encoder(call->model)->device);
  for (size_t i = 0; i < sizeof headers / sizeof headers[0]; ++i) {
    char text[24];
    text[serve_i64_print(headers[i].value, text)] = '\0';
    serve_exchange_add_header(visit->exchange, headers[i].name, text);
  }
}

static bool write_embed(serve_visit_t* visit, serve_buffer_t* out) {
  const serve_call_t* call = visit->call;
  add_times(visit);
  for (size_t i = 0; i < serve_call_count(call); ++i) {
    serve_buffer_text(out, i == 0 ? "[[" : ",[");
    serve_json_put_f32s(out, serve_call_vector(call, i, 0), serve_call_width(call));
    serve_buffer_text(out, "]");
  }
  serve_buffer_text(out, "]");
  return true;
}

static bool write_embed_all(serve_visit_t* visit, serve_buffer_t* out) {
  const serve_call_t* call = visit->call;
  add_times(visit);
  for (size_t i = 0; i < serve_call_count(call); ++i) {
    serve_buffer_text(out, i == 0 ? "[[" : ",[");
    for (size_t k = 0; k < serve_call_tokens(call, i); ++k) {
      serve_buffer_text(out, k == 0 ? "[" : ",[");
      serve_json_put_f32s(out, serve_call_vector(call, i, k), serve_call_width(call));
      serve_buffer_text(out, "]");
    }
    serve_buffer_text(out, "]");
  }
  serve_buffer_text(out, "]");
  return true;
}

// ------------------------------------------------------------------------------------ tokens

typedef struct tokenize {
  serve_visit_t* visit;
  serve_scratch_t* scratch;
  serve_encode_options_t options;
  serve_encoding_t encoding;
} tokenize_t;

static void put_token(const tokenize_t* self, const char* text, size_t index, serve_buffer_t* out) {
  const serve_encoding_t* encoding = &self->encoding;
  const bool is_special =
      index < encoding->special_before || index >= encoding->count - encoding->special_after;
  const serve_span_t span = encoding->spans[index];
  size_t size = span.stop - span.start;
  const char* shown = text + span.start;
  if (is_special) {
    shown = serve_token_text(serve_model_tokenizer(self->visit->call->model), encoding->ids[index],
                             &size);
  }
  serve_buffer_format(out, "{\"id\":%d,\"text\":", (int)encoding->ids[index]);
  serve_json_put_string(out, shown, size);
  if (is_special) {
    serve_buffer_text(out, ",\"special\":true,\"start\":null,\"stop\":null}");
  } else {
    serve_buffer_format(out, ",\"special\":false,\"start\":%u,\"stop\":%u}", (unsigned)span.start,
                        (unsigned)span.stop);
  }
}

static bool put_tokens(tokenize_t* self, size_t input, serve_buffer_t* out) {
  serve_visit_t* visit = self->visit;
  size_t size;
  const char* text = serve_call_text(visit->call, input, &size);
  if (!serve_error_from(&visit->error, SERVE_UNPROCESSABLE,
                        serve_encode(serve_model_tokenizer(visit->call->model), self->scratch, text,
                                     size, &self->options, &self->encoding))) {
    return false;
  }
  serve_buffer_text(out, input == 0 ? "[[" : ",[");
  for (size_t k = 0; k < self->encoding.count; ++k) {
    if (k > 0) serve_buffer_text(out, ",");
    put_token(self, text, k, out);
  }
  serve_buffer_text(out, "]");
  return true;
}

// Reads a member of {"inputs", "add_special_tokens"}.
static bool read_tokenize(serve_json_t* json, void* arg) {
  tokenize_t* self = arg;
  if (strcmp(json->key, "inputs") == 0) return read_inputs(json, self->visit);
  if (strcmp(json->key, "add_special_tokens") != 0) return serve_json_skip(json);
  bool has_special = true;
  const bool is_good = serve_json_bool(json, &has_special);
  self->options.omits_special = !has_special;
  return is_good;
}

static bool check_texts(serve_visit_t* visit) {
  if (visit->call->has_ids) {
    return serve_error_set(&visit->error, SERVE_BAD_REQUEST, "the inputs must be texts");
  }
  return serve_call_count(visit->call) > 0 ||
         serve_error_set(&visit->error, SERVE_BAD_REQUEST, "there is no input");
}

static bool handle_tokenize(serve_visit_t* visit, serve_buffer_t* out) {
  if (!begin_call(visit)) return false;
  serve_model_t* model = visit->call->model;
  const qn_allocator_t allocator = qn_allocator_default();
  tokenize_t self = {.visit = visit,
                     .options = {.offsets = SERVE_OFFSETS_BYTES},
                     .encoding = {.allocator = &allocator}};
  if (!read_body(visit, read_tokenize, &self) || !check_texts(visit)) return false;
  self.scratch = serve_model_take_scratch(model);
  bool is_good =
      self.scratch || serve_error_set(&visit->error, SERVE_INTERNAL, "no memory for the tokenizer");
  for (size_t i = 0; i < serve_call_count(visit->call) && is_good; ++i) {
    is_good = put_tokens(&self, i, out);
  }
  serve_buffer_text(out, "]");
  serve_model_give_scratch(model, self.scratch);
  serve_encoding_free(&self.encoding);
  return is_good;
}

// ------------------------------------------------------------------------------------ decoding

static qn_status_t append(void* self, const void* data, size_t size) {
  serve_buffer_append(self, data, size);
  return QN_OK;
}

typedef struct detokenize {
  serve_visit_t* visit;
  bool skips_special;
} detokenize_t;

// Reads a member of {"ids", "skip_special_tokens"}; the ids are those of one text or of several.
static bool read_decode(serve_json_t* json, void* arg) {
  detokenize_t* self = arg;
  if (strcmp(json->key, "ids") == 0) return read_inputs(json, self->visit);
  if (strcmp(json->key, "skip_special_tokens") != 0) return serve_json_skip(json);
  return serve_json_bool(json, &self->skips_special);
}

static bool handle_decode(serve_visit_t* visit, serve_buffer_t* out) {
  detokenize_t self = {.visit = visit, .skips_special = true};
  if (!begin_call(visit) || !read_body(visit, read_decode, &self)) return false;
  const serve_call_t* call = visit->call;
  serve_model_t* model = call->model;
  if (serve_call_count(call) == 0 || !call->has_ids) {
    return serve_error_set(&visit->error, SERVE_BAD_REQUEST, "there is no list of ids");
  }
  serve_scratch_t* scratch = serve_model_take_scratch(model);
  if (!scratch)
    return serve_error_set(&visit->error, SERVE_INTERNAL, "no memory for the tokenizer");
  serve_buffer_t text = {.data = NULL};
  const qn_sink_t sink = {.self = &text, .write = append};
  bool is_good = true;
  for (size_t i = 0; i < serve_call_count(call) && is_good; ++i) {
    size_t count;
    const int32_t* ids = serve_call_ids(call, i, &count);
    serve_buffer_clear(&text);
    is_good = serve_error_from(
        &visit->error, SERVE_INTERNAL,
        serve_decode(serve_model_tokenizer(model), scratch, ids, count, self.skips_special, &sink));
    serve_buffer_text(out, i == 0 ? "[" : ",");
    serve_json_put_string(out, text.data, text.size);
  }
  serve_buffer_text(out, "]");
  serve_buffer_free(&text);
  serve_model_give_scratch(model, scratch);
  return is_good;
}

// ------------------------------------------------------------------------------------ the server

static bool handle_info(serve_visit_t* visit, serve_buffer_t* out) {
  serve_model_t* model = serve_visit_model(visit, NULL);
  if (!model) return false;
  const serve_options_t* options = visit->server->options;
  const serve_encoder_t* encoder = serve_model_encoder(model);
  const size_t own = encoder->max_tokens;
  const size_t longest = options->max_text_tokens > 0 && options->max_text_tokens < own
                             ? options->max_text_tokens
                             : own;
  serve_buffer_text(out, "{\"model_id\":");
  serve_json_put_string(out, serve_model_name(model), strlen(serve_model_name(model)));
  serve_buffer_format(
      out,
      ",\"model_sha\":null,\"model_dtype\":\"float32\",\"model_type\":{\"embedding\":{\"pooling\":"
      "\"%s\"}},\"max_concurrent_requests\":%llu,\"max_input_length\":%zu,\"max_batch_tokens\":%"
      "llu,"
      "\"max_batch_requests\":%llu,\"max_client_batch_size\":%llu,\"auto_truncate\":%s,"
      "\"tokenization_workers\":%llu,\"version\":\"%s\"}",
      encoder->pooling ? encoder->pooling : "mean", (unsigned long long)options->max_connections,
      longest, (unsigned long long)options->batch_tokens, (unsigned long long)options->batch_texts,
      (unsigned long long)options->max_texts, options->auto_truncate ? "true" : "false",
      (unsigned long long)options->http_threads, qn_version());
  serve_model_release(model);
  return true;
}

static bool handle_health(serve_visit_t* visit, serve_buffer_t* out) {
  if (!serve_server_is_ready(visit->server)) {
    return serve_error_set(&visit->error, SERVE_UNAVAILABLE, "the server is not ready");
  }
  serve_buffer_text(out, "{\"status\":\"ok\"}");
  return true;
}

static const serve_route_t routes[] = {
    {"POST", "/embed", SERVE_ACCESS_KEY, &serve_tei, handle_embed, write_embed},
    {"POST", "/embed_all", SERVE_ACCESS_KEY, &serve_tei, handle_embed_all, write_embed_all},
    {"POST", "/tokenize", SERVE_ACCESS_KEY, &serve_tei, handle_tokenize, NULL},
    {"POST", "/decode", SERVE_ACCESS_KEY, &serve_tei, handle_decode, NULL},
    {"GET", "/info", SERVE_ACCESS_KEY, &serve_tei, handle_info, NULL},
    {"GET", "/health", SERVE_ACCESS_OPEN, &serve_tei, handle_health, NULL},
    {"GET", "/ping", SERVE_ACCESS_OPEN, &serve_tei, handle_health, NULL},
};
const serve_routes_t serve_tei_routes = {routes, sizeof routes / sizeof routes[0]};
