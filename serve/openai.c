// SPDX-License-Identifier: Apache-2.0
// serve/openai.c: POST /v1/embeddings and GET /v1/models as OpenAI's clients use them.
//
// The client of Python asks for base64 and decodes it as little-endian f32, so both forms of
// `encoding_format` are needed. Lists of ids come from clients that tokenise themselves.
#include <stdlib.h>

#include "serve/inputs.h"
#include "serve/protocols.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "base64 is of little-endian numbers");

static void write_error(serve_error_t* error, serve_buffer_t* out) {
  static const struct {
    uint32_t status;
    const char* type;
    const char* code;
  } kinds[] = {
      {SERVE_UNAUTHORIZED, "invalid_request_error", "\"invalid_api_key\""},
      {SERVE_NOT_FOUND, "invalid_request_error", "\"not_found\""},
      {SERVE_TOO_MANY, "rate_limit_error", "\"rate_limit_exceeded\""},
      {SERVE_INTERNAL, "server_error", "null"},
      {SERVE_UNAVAILABLE, "server_error", "\"unavailable\""},
      {SERVE_GATEWAY_TIMEOUT, "server_error", "\"timeout\""},
  };
  const char* type = "invalid_request_error";
  const char* code = "null";
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    if (kinds[i].status != error->status) continue;
    type = kinds[i].type;
    code = kinds[i].code;
  }
  serve_buffer_text(out, "{\"error\":{\"message\":");
  serve_json_put_string(out, error->message, strlen(error->message));
  serve_buffer_format(out, ",\"type\":\"%s\",\"param\":null,\"code\":%s}}", type, code);
}

const serve_protocol_t serve_openai = {"openai", write_error};

// ------------------------------------------------------------------------------------ embeddings

typedef struct embeddings {
  serve_visit_t* visit;
  serve_buffer_t model;  // its name
  bool has_model;
  bool is_base64;
} embeddings_t;

static void free_embeddings(void* self) {
  embeddings_t* embeddings = self;
  serve_buffer_free(&embeddings->model);
  free(embeddings);
}

static bool read_format(serve_json_t* json, bool* out_is_base64) {
  serve_buffer_t text = {.data = NULL};
  bool is_good = serve_json_string(json, &text);
  if (is_good) {
    *out_is_base64 = text.size == 6 && memcmp(text.data, "base64", 6) == 0;
    const bool is_float = text.size == 5 && memcmp(text.data, "float", 5) == 0;
    is_good =
        *out_is_base64 || is_float || serve_json_fail(json, "\"float\" or \"base64\" before here");
  }
  serve_buffer_free(&text);
  return is_good;
}

static bool read_member(serve_json_t* json, void* arg) {
  embeddings_t* self = arg;
  serve_visit_t* visit = self->visit;
  const char* key = json->key;
  if (strcmp(key, "input") == 0) {
    return serve_inputs_read(json, visit->call, &visit->server->limits, &visit->error);
  }
  if (serve_json_peek(json) == SERVE_JSON_NULL) return serve_json_null(json);
  if (strcmp(key, "model") == 0) {
    serve_buffer_clear(&self->model);
    self->has_model = true;
    return serve_json_string(json, &self->model);
  }
  if (strcmp(key, "encoding_format") == 0) return read_format(json, &self->is_base64);
  if (strcmp(key, "dimensions") == 0) return serve_inputs_read_dimensions(json, visit->call);
  return serve_json_skip(json);  // among them `user`, which is for statistics of OpenAI
}

// Chooses the model that the body names; without a name it is the first.
static bool choose_model(embeddings_t* self) {
  serve_buffer_append(&self->model, "", 1);
  if (self->model.is_exhausted) {
    return serve_error_set(&self->visit->error, SERVE_INTERNAL, "no memory for the request");
  }
  // A name with a zero in it is none of ours.
  const bool is_text = strlen(self->model.data) + 1 == self->model.size;
  return serve_visit_choose_model(self->visit, !self->has_model ? NULL
                                               : is_text        ? self->model.data
                                                                : "");
}

static bool handle_embeddings(serve_visit_t* visit, serve_buffer_t* out) {
  (void)out;
  embeddings_t* self = calloc(1, sizeof *self);
  if (!self) return serve_error_set(&visit->error, SERVE_INTERNAL, "no memory for the request");
  self->visit = visit;
  visit->state = self;
  visit->free_state = free_embeddings;
  return serve_visit_begin_call(visit) &&
         serve_visit_read(visit, visit->exchange->body.size, read_member, self) &&
         choose_model(self) && serve_visit_submit(visit);
}

static bool write_embeddings(serve_visit_t* visit, serve_buffer_t* out) {
  const embeddings_t* self = visit->state;
  const serve_call_t* call = visit->call;
  const size_t width = serve_call_width(call);
  serve_buffer_text(out, "{\"object\":\"list\",\"data\":[");
  for (size_t i = 0; i < serve_call_count(call); ++i) {
    const float* vector = serve_call_vector(call, i, 0);
    serve_buffer_format(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":%s",
                        i > 0 ? "," : "", i, self->is_base64 ? "\"" : "[");
    if (self->is_base64) {
      serve_json_put_base64(out, vector, width * sizeof *vector);
    } else {
      serve_json_put_f32s(out, vector, width);
    }
    serve_buffer_text(out, self->is_base64 ? "\"}" : "]}");
  }
  const size_t tokens = serve_call_all_tokens(call);
  const char* name = serve_model_name(call->model);
  serve_buffer_text(out, "],\"model\":");
  serve_json_put_string(out, name, strlen(name));
  serve_buffer_format(out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", tokens,
                      tokens);
  return true;
}

// ------------------------------------------------------------------------------------ models

static void put_model(const serve_visit_t* visit, const char* name, serve_buffer_t* out) {
  serve_buffer_text(out, "{\"id\":");
  serve_json_put_string(out, name, strlen(name));
  serve_buffer_format(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"quern\"}",
                      (long long)visit->server->start_time);
}

static bool handle_models(serve_visit_t* visit, serve_buffer_t* out) {
  serve_listing_t listing;
  serve_buffer_text(out, "{\"object\":\"list\",\"data\":[");
  const char* separator = "";
  for (size_t i = 0; serve_repository_list(visit->server->repository, i, &listing); ++i) {
    if (listing.state != SERVE_MODEL_READY) continue;
    serve_buffer_text(out, separator);
    put_model(visit, listing.name, out);
    separator = ",";
  }
  serve_buffer_text(out, "]}");
  return true;
}

static bool handle_model(serve_visit_t* visit, serve_buffer_t* out) {
  serve_model_t* model = serve_visit_model(visit, visit->parameters[0]);
  if (!model) return false;
  put_model(visit, serve_model_name(model), out);
  serve_model_release(model);
  return true;
}

static const serve_route_t routes[] = {
    {"POST", "/v1/embeddings", SERVE_ACCESS_KEY, &serve_openai, handle_embeddings,
     write_embeddings},
    {"POST", "/embeddings", SERVE_ACCESS_KEY, &serve_openai, handle_embeddings, write_embeddings},
    {"GET", "/v1/models", SERVE_ACCESS_KEY, &serve_openai, handle_models, NULL},
    {"GET", "/v1/models/*", SERVE_ACCESS_KEY, &serve_openai, handle_model, NULL},
};
const serve_routes_t serve_openai_routes = {routes, sizeof routes / sizeof routes[0]};
