// SPDX-License-Identifier: Apache-2.0
// serve/routes.c: all tables of routes, and the routes of the server itself: its page and /metrics.
#include "serve/json.h"
#include "serve/protocols.h"

// The build makes this table, `texts`, of page.html, and the hashes of what is inline in it.
#include "serve_page.inc"

// The page may run its own script, use its own style, and ask this server. Nothing else.
static const char page_policy[] =
    "default-src 'none'; script-src 'sha256-" PAGE_SCRIPT_SHA256
    "'; style-src 'sha256-" PAGE_STYLE_SHA256
    "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

static bool handle_page(serve_visit_t* visit, serve_buffer_t* out) {
  serve_buffer_append(out, texts[0].data, texts[0].size);
  serve_exchange_add_header(visit->exchange, "Content-Security-Policy", page_policy);
  serve_exchange_add_header(visit->exchange, "X-Content-Type-Options", "nosniff");
  serve_exchange_add_header(visit->exchange, "Referrer-Policy", "no-referrer");
  serve_exchange_add_header(visit->exchange, "Cache-Control", "no-cache");
  visit->type = "text/html; charset=utf-8";
  return true;
}

static void print_family(const char* name, const char* help, serve_buffer_t* out) {
  serve_buffer_format(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

// What models are: the value is 1, and the labels say it.
static void print_models(serve_model_t* const* models, size_t count, serve_buffer_t* out) {
  print_family("quern_serve_model_info", "Models that serve", out);
  for (size_t i = 0; i < count; ++i) {
    const serve_encoder_t* encoder = serve_model_encoder(models[i]);
    serve_buffer_text(out, "quern_serve_model_info{model=");
    serve_metrics_print_label(serve_model_name(models[i]), out);
    serve_buffer_format(
        out, ",kind=\"%s\",device=\"%s\",pooling=\"%s\",width=\"%zu\",max_tokens=\"%zu\"} 1\n",
        encoder->kind ? encoder->kind : "", encoder->device ? encoder->device : "",
        encoder->pooling ? encoder->pooling : "mean", encoder->width, encoder->max_tokens);
  }
}

// The states of all models, also of those that do not serve.
static void print_states(serve_repository_t* repository, serve_buffer_t* out) {
  static const char* const states[] = {[SERVE_MODEL_UNLOADED] = "unloaded",
                                       [SERVE_MODEL_LOADING] = "loading",
                                       [SERVE_MODEL_READY] = "ready",
                                       [SERVE_MODEL_FAILED] = "failed"};
  print_family("quern_serve_model_state", "The state of each model that the server knows", out);
  serve_listing_t listing;
  for (size_t i = 0; serve_repository_list(repository, i, &listing); ++i) {
    serve_buffer_text(out, "quern_serve_model_state{model=");
    serve_metrics_print_label(listing.name, out);
    serve_buffer_format(out, ",state=\"%s\"} 1\n", states[listing.state]);
  }
}

static void print_failures(serve_repository_t* repository, serve_buffer_t* out) {
  static const char name[] = "quern_serve_model_load_failures_total";
  serve_buffer_format(
      out, "# HELP %s Loads that failed; the index of models says why\n# TYPE %s counter\n", name,
      name);
  serve_listing_t listing;
  for (size_t i = 0; serve_repository_list(repository, i, &listing); ++i) {
    serve_buffer_format(out, "%s{model=", name);
    serve_metrics_print_label(listing.name, out);
    serve_buffer_format(out, "} %llu\n", (unsigned long long)listing.failure_count);
  }
}

static void print_server(serve_visit_t* visit, serve_buffer_t* out) {
  serve_server_t* server = visit->server;
  print_family("quern_serve_info", "The server", out);
  serve_buffer_format(out, "quern_serve_info{version=\"%s\",target=", qn_version());
  serve_metrics_print_label(server->options->target, out);
  serve_buffer_text(out, "} 1\n");
  print_family("quern_serve_ready", "1: /health says 200", out);
  serve_buffer_format(out, "quern_serve_ready %d\n", serve_server_is_ready(server));
}

// Metrics of the models that serve, of the server, and of what loads models.
static bool handle_metrics(serve_visit_t* visit, serve_buffer_t* out) {
  serve_model_t* models[SERVE_MAX_MODELS];
  serve_metrics_source_t sources[SERVE_MAX_MODELS];
  size_t count = 0;
  serve_listing_t listing;
  serve_repository_t* repository = visit->server->repository;
  for (size_t i = 0; count < SERVE_MAX_MODELS && serve_repository_list(repository, i, &listing);
       ++i) {
    serve_model_t* model = serve_repository_find(repository, listing.name);
    if (!model) continue;
    models[count] = model;
    sources[count++] = (serve_metrics_source_t){serve_model_metrics(model), serve_model_name(model),
                                                SERVE_MODEL_VERSION};
  }
  serve_metrics_print(sources, count, out);
  print_models(models, count, out);
  while (count > 0) serve_model_release(models[--count]);
  print_states(repository, out);
  print_failures(repository, out);
  print_server(visit, out);
  serve_repository_print_metrics(repository, out);
  visit->type = "text/plain; version=0.0.4";
  return true;
}

static const serve_route_t routes[] = {
    {"GET", "/", SERVE_ACCESS_OPEN, &serve_tei, handle_page, NULL},
    {"GET", "/metrics", SERVE_ACCESS_OPEN, &serve_tei, handle_metrics, NULL},
};
static const serve_routes_t own_routes = {routes, sizeof routes / sizeof routes[0]};

const serve_routes_t* const serve_all_routes[] = {&own_routes, &serve_oip_routes,
                                                  &serve_openai_routes, &serve_tei_routes};
const size_t serve_all_routes_count = sizeof serve_all_routes / sizeof serve_all_routes[0];

const serve_protocol_t* serve_protocol_of_path(const char* path) {
  static const struct {
    const char* beginning;  // of whole segments
    const serve_protocol_t* protocol;
  } protocols[] = {{"/v2", &serve_oip}, {"/v1", &serve_openai}, {"/embeddings", &serve_openai}};
  for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; ++i) {
    const size_t size = strlen(protocols[i].beginning);
    const bool is_whole = strncmp(path, protocols[i].beginning, size) == 0 &&
                          (path[size] == '/' || path[size] == '\0');
    if (is_whole) return protocols[i].protocol;
  }
  return &serve_tei;
}
