// serve/routes.c: all tables of routes, and the routes of the server itself: /metrics.
#include "serve/json.h"
#include "serve/protocols.h"

// Metrics of the models that serve, and of what loads them.
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
  while (count > 0) serve_model_release(models[--count]);
  serve_repository_print_metrics(repository, out);
  visit->type = "text/plain; version=0.0.4";
  return true;
}

static const serve_route_t routes[] = {
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
