// SPDX-License-Identifier: Apache-2.0
// serve/oip_stats.c: statistics of models as Triton gives them. perf_analyzer reads every member.
#include "serve/oip.h"

typedef struct statistic {
  const char* name;
  int count;  // a counter, or -1: always 0
  int time;   // the same
} statistic_t;

// There is no response cache. Times are those of requests that went well.
static const statistic_t statistics[] = {
    {"success", SERVE_COUNTER_SUCCESS, SERVE_COUNTER_REQUEST_NS},
    {"queue", SERVE_COUNTER_SUCCESS, SERVE_COUNTER_QUEUE_NS},
    {"compute_input", SERVE_COUNTER_SUCCESS, SERVE_COUNTER_INPUT_NS},
    {"compute_infer", SERVE_COUNTER_SUCCESS, SERVE_COUNTER_INFER_NS},
    {"compute_output", SERVE_COUNTER_SUCCESS, SERVE_COUNTER_OUTPUT_NS},
    {"cache_hit", -1, -1},
    {"cache_miss", -1, -1},
};

static unsigned long long get(const serve_metrics_t* metrics, int counter) {
  return counter < 0 ? 0 : serve_metrics_get(metrics, (serve_counter_t)counter);
}

static void put_model(serve_model_t* model, serve_buffer_t* out) {
  const serve_metrics_t* metrics = serve_model_metrics(model);
  static const serve_counter_t failures[] = {SERVE_COUNTER_REJECTED, SERVE_COUNTER_CANCELED,
                                             SERVE_COUNTER_BACKEND, SERVE_COUNTER_OTHER};
  unsigned long long failure_count = 0;
  for (size_t i = 0; i < sizeof failures / sizeof failures[0]; ++i) {
    failure_count += get(metrics, (int)failures[i]);
  }
  serve_buffer_text(out, "{\"name\":");
  serve_json_put_string(out, serve_model_name(model), strlen(serve_model_name(model)));
  serve_buffer_format(
      out,
      ",\"version\":\"" SERVE_MODEL_VERSION
      "\",\"last_inference\":%lld,\"inference_count\":%llu,"
      "\"execution_count\":%llu,\"inference_stats\":{\"fail\":{\"count\":%llu,\"ns\":%llu}",
      (long long)atomic_load_explicit(&metrics->last_time_ms, memory_order_relaxed),
      get(metrics, SERVE_COUNTER_SEQUENCES), get(metrics, SERVE_COUNTER_BATCHES), failure_count,
      get(metrics, SERVE_COUNTER_FAILURE_NS));
  for (size_t i = 0; i < sizeof statistics / sizeof statistics[0]; ++i) {
    const statistic_t* statistic = &statistics[i];
    serve_buffer_format(out, ",\"%s\":{\"count\":%llu,\"ns\":%llu}", statistic->name,
                        get(metrics, statistic->count), get(metrics, statistic->time));
  }
  serve_buffer_text(out, "},\"response_stats\":{},\"batch_stats\":[],\"memory_usage\":[]}");
}

bool serve_oip_handle_stats(serve_visit_t* visit, serve_buffer_t* out) {
  serve_model_t* model = serve_oip_model(visit);
  if (!model) return false;
  serve_buffer_text(out, "{\"model_stats\":[");
  put_model(model, out);
  serve_buffer_text(out, "]}");
  serve_model_release(model);
  return true;
}

bool serve_oip_handle_all_stats(serve_visit_t* visit, serve_buffer_t* out) {
  serve_repository_t* repository = visit->server->repository;
  serve_listing_t listing;
  const char* separator = "";
  serve_buffer_text(out, "{\"model_stats\":[");
  for (size_t i = 0; serve_repository_list(repository, i, &listing); ++i) {
    serve_model_t* model = serve_repository_find(repository, listing.name);
    if (!model) continue;
    serve_buffer_text(out, separator);
    put_model(model, out);
    separator = ",";
    serve_model_release(model);
  }
  serve_buffer_text(out, "]}");
  return true;
}
