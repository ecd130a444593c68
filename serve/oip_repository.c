// SPDX-License-Identifier: Apache-2.0
// serve/oip_repository.c: the index of models, and loading and unloading them while others serve.
//
// A load takes seconds, so it runs on a thread of its own, and its exchange is kept.
#include "serve/oip.h"

// ------------------------------------------------------------------------------------ the index

static bool read_index_member(serve_json_t* json, void* self) {
  return strcmp(json->key, "ready") == 0 ? serve_json_bool(json, self) : serve_json_skip(json);
}

// The body may be empty.
static bool read_body(serve_visit_t* visit, bool (*read)(serve_json_t* json, void* self),
                      void* self) {
  const size_t size = visit->exchange->body.size;
  return size == 0 || serve_visit_read(visit, size, read, self);
}

bool serve_oip_handle_index(serve_visit_t* visit, serve_buffer_t* out) {
  static const char* const states[] = {
      [SERVE_MODEL_UNLOADED] = "UNAVAILABLE",
      [SERVE_MODEL_LOADING] = "LOADING",
      [SERVE_MODEL_READY] = "READY",
      [SERVE_MODEL_FAILED] = "UNAVAILABLE",
  };
  bool is_ready_only = false;
  if (!read_body(visit, read_index_member, &is_ready_only)) return false;
  serve_listing_t listing;
  const char* separator = "";
  serve_buffer_text(out, "[");
  for (size_t i = 0; serve_repository_list(visit->server->repository, i, &listing); ++i) {
    if (is_ready_only && listing.state != SERVE_MODEL_READY) continue;
    serve_buffer_format(out,
                        "%s{\"name\":\"%s\",\"version\":\"" SERVE_MODEL_VERSION
                        "\",\"state\":\"%s\",\"reason\":",
                        separator, listing.name, states[listing.state]);
    serve_json_put_string(out, listing.reason, strlen(listing.reason));
    serve_buffer_text(out, "}");
    separator = ",";
  }
  serve_buffer_text(out, "]");
  return true;
}

// ------------------------------------------------------------------------------------ changes

// A model comes from its folder; configurations and files in the request are refused, since they
// would be ignored.
static bool read_change_member(serve_json_t* json, void* self) {
  (void)self;
  if (strcmp(json->key, "parameters") != 0) return serve_json_skip(json);
  if (!serve_json_object(json)) return false;
  while (serve_json_member(json)) {
    if (strcmp(json->key, "unload_dependents") != 0) {
      return serve_json_fail(json, "no parameter but 'unload_dependents'");
    }
    if (!serve_json_skip(json)) return false;
  }
  return !json->problem;
}

static bool change(serve_visit_t* visit,
                   qn_status_t (*apply)(serve_repository_t* repository, const char* name)) {
  qn_status_t status = apply(visit->server->repository, visit->parameters[0]);
  const bool is_busy = qn_status_code(status) == QN_STATUS_FAILED_PRECONDITION;
  if (is_busy) visit->error.retry_after_s = 1;
  return serve_error_from(&visit->error, is_busy ? SERVE_UNAVAILABLE : SERVE_INTERNAL, status);
}

static bool has_model(serve_visit_t* visit) {
  serve_listing_t listing;
  for (size_t i = 0; serve_repository_list(visit->server->repository, i, &listing); ++i) {
    if (strcmp(listing.name, visit->parameters[0]) == 0) return true;
  }
  return serve_error_set(&visit->error, SERVE_NOT_FOUND, "there is no model '%s'",
                         visit->parameters[0]);
}

static bool load(serve_visit_t* visit) {
  return change(visit, serve_repository_load);
}

static bool unload(serve_visit_t* visit) {
  return change(visit, serve_repository_unload);
}

bool serve_oip_handle_load(serve_visit_t* visit, serve_buffer_t* out) {
  (void)out;
  return has_model(visit) && read_body(visit, read_change_member, NULL) &&
         serve_visit_work(visit, load);
}

bool serve_oip_handle_unload(serve_visit_t* visit, serve_buffer_t* out) {
  (void)out;
  return has_model(visit) && read_body(visit, read_change_member, NULL) &&
         serve_visit_work(visit, unload);
}

bool serve_oip_write_change(serve_visit_t* visit, serve_buffer_t* out) {
  (void)visit;
  serve_buffer_text(out, "{}");
  return true;
}
