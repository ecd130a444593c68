// SPDX-License-Identifier: Apache-2.0
// serve/visit.c: what routes do with an exchange: read its body, find its model, and keep it for a
// call or for work that blocks.
#include <stdlib.h>

#include "serve/server.h"

// ------------------------------------------------------------------------------------ the body

bool serve_visit_read(serve_visit_t* visit, size_t size,
                      bool (*read)(serve_json_t* json, void* self), void* self) {
  serve_json_t json;
  serve_json_init(&json, visit->exchange->body.data, size);
  bool is_good = serve_json_object(&json);
  while (is_good && serve_json_member(&json)) is_good = read(&json, self);
  if (visit->error.status != 0) return false;
  (void)serve_json_end(&json);
  return serve_error_from(&visit->error, SERVE_BAD_REQUEST, serve_json_status(&json, "the body"));
}

// ------------------------------------------------------------------------------------ calls

serve_model_t* serve_visit_model(serve_visit_t* visit, const char* name) {
  serve_model_t* model = serve_repository_find(visit->server->repository, name);
  if (model) return model;
  serve_listing_t listing;
  for (size_t i = 0; serve_repository_list(visit->server->repository, i, &listing); ++i) {
    if (name && strcmp(listing.name, name) != 0) continue;
    visit->error.retry_after_s = 1;
    (void)serve_error_set(&visit->error, SERVE_UNAVAILABLE, "model '%s' is not ready%s%s",
                          listing.name, listing.reason[0] ? ": " : "", listing.reason);
    return NULL;
  }
  (void)serve_error_set(&visit->error, SERVE_NOT_FOUND, "there is no model '%.150s'",
                        name ? name : "");
  return NULL;
}

bool serve_visit_begin_call(serve_visit_t* visit) {
  visit->call = serve_call_create(visit->exchange->start_ns);
  if (!visit->call) return serve_error_set(&visit->error, SERVE_INTERNAL, "no memory for the call");
  visit->call->truncates = visit->server->options->auto_truncate;
  // Clients take turns by address.
  char client[64];
  serve_exchange_client(visit->exchange, client, sizeof client);
  uint64_t digest = UINT64_C(0xcbf29ce484222325);
  for (const char* at = client; *at; ++at)
    digest = (digest ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
  visit->call->request.client = digest;
  return true;
}

bool serve_visit_choose_model(serve_visit_t* visit, const char* name) {
  serve_model_t* model = serve_visit_model(visit, name);
  serve_model_release(visit->call->model);
  visit->call->model = model;
  return model != NULL;
}

static bool is_gone(const serve_request_t* request) {
  const serve_visit_t* visit = request->user;
  return serve_exchange_is_gone(visit->exchange);
}

static void on_done(serve_request_t* request) {
  const serve_visit_t* visit = request->user;
  serve_exchange_resume(visit->exchange);
}

bool serve_visit_submit(serve_visit_t* visit) {
  serve_call_t* call = visit->call;
  call->request.user = visit;
  call->request.is_gone = is_gone;
  visit->is_kept = true;
  // From here on, the visit may end at any time once the exchange is kept.
  if (serve_call_submit(call, &visit->server->limits, on_done, &visit->error)) return true;
  visit->is_kept = false;
  return false;
}

// ------------------------------------------------------------------------------------ work

static void* run_work(void* self) {
  serve_visit_t* visit = self;
  serve_server_t* server = visit->server;  // the visit may end with the next call but one
  (void)visit->work(visit);
  serve_exchange_resume(visit->exchange);
  (void)pthread_mutex_lock(&server->mutex);
  if (--server->work_count == 0) (void)pthread_cond_signal(&server->is_idle);
  (void)pthread_mutex_unlock(&server->mutex);
  return NULL;
}

bool serve_visit_work(serve_visit_t* visit, bool (*work)(serve_visit_t* visit)) {
  serve_server_t* server = visit->server;
  visit->work = work;
  visit->is_kept = true;
  (void)pthread_mutex_lock(&server->mutex);
  pthread_t thread;
  const bool is_started = pthread_create(&thread, NULL, run_work, visit) == 0;
  if (is_started) {
    ++server->work_count;
    (void)pthread_detach(thread);
  }
  (void)pthread_mutex_unlock(&server->mutex);
  if (is_started) return true;
  visit->is_kept = false;
  return serve_error_set(&visit->error, SERVE_UNAVAILABLE, "no thread for this request");
}
