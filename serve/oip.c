// SPDX-License-Identifier: Apache-2.0
// serve/oip.c: the Open Inference Protocol, version 2: health, metadata, model configuration, and
// the table of its routes.
//
// Bodies of health are JSON, as the protocol says and KServe reads; statuses are 200 and 503.
#include "serve/oip.h"

#include "serve/protocols.h"

static void write_error(serve_error_t* error, serve_buffer_t* out) {
  serve_buffer_text(out, "{\"error\":");
  serve_json_put_string(out, error->message, strlen(error->message));
  serve_buffer_text(out, "}");
}

const serve_protocol_t serve_oip = {"oip", write_error};

const serve_oip_kind_t serve_oip_kinds[SERVE_OIP_INPUT_COUNT] = {
    [SERVE_OIP_TEXT] = {"text", "BYTES", "TYPE_STRING", 1},
    [SERVE_OIP_IDS] = {"input_ids", "INT64", "TYPE_INT64", 2},
    [SERVE_OIP_MASK] = {"attention_mask", "INT64", "TYPE_INT64", 2},
};

// ------------------------------------------------------------------------------------ health

static bool handle_live(serve_visit_t* visit, serve_buffer_t* out) {
  (void)visit;
  serve_buffer_text(out, "{\"live\":true}");
  return true;
}

static void put_ready(serve_visit_t* visit, bool is_ready, serve_buffer_t* out) {
  visit->status = is_ready ? 200 : SERVE_UNAVAILABLE;
  serve_buffer_format(out, "\"ready\":%s}", is_ready ? "true" : "false");
}

static bool handle_ready(serve_visit_t* visit, serve_buffer_t* out) {
  serve_buffer_text(out, "{");
  put_ready(visit, serve_server_is_ready(visit->server), out);
  return true;
}

serve_model_t* serve_oip_model(serve_visit_t* visit) {
  const char* name = visit->parameters[0];
  const char* version = visit->parameters[1];
  serve_model_t* model = serve_visit_model(visit, name);
  if (!model || !*version || strcmp(version, SERVE_MODEL_VERSION) == 0) return model;
  serve_model_release(model);
  (void)serve_error_set(&visit->error, SERVE_NOT_FOUND,
                        "model '%s' has no version '%s', only " SERVE_MODEL_VERSION, name, version);
  return NULL;
}

static bool handle_model_ready(serve_visit_t* visit, serve_buffer_t* out) {
  serve_model_t* model = serve_oip_model(visit);
  if (!model && visit->error.status != SERVE_UNAVAILABLE) return false;
  visit->error = (serve_error_t){.status = 0};
  serve_buffer_text(out, "{\"name\":");
  serve_json_put_string(out, visit->parameters[0], strlen(visit->parameters[0]));
  serve_buffer_text(out, ",");
  put_ready(visit, model != NULL, out);
  serve_model_release(model);
  return true;
}

// ------------------------------------------------------------------------------------ metadata

static bool handle_server(serve_visit_t* visit, serve_buffer_t* out) {
  serve_buffer_format(
      out,
      "{\"name\":\"quern-serve\",\"version\":\"%s\",\"extensions\":[\"binary_tensor_data\","
      "\"parameters\",\"statistics\",\"model_configuration\"%s]}",
      qn_version(), visit->server->admin ? ",\"model_repository\"" : "");
  return true;
}

static void put_name(const serve_model_t* model, serve_buffer_t* out) {
  serve_buffer_text(out, "{\"name\":");
  serve_json_put_string(out, serve_model_name(model), strlen(serve_model_name(model)));
}

static bool handle_model(serve_visit_t* visit, serve_buffer_t* out) {
  serve_model_t* model = serve_oip_model(visit);
  if (!model) return false;
  put_name(model, out);
  serve_buffer_text(
      out, ",\"versions\":[\"" SERVE_MODEL_VERSION "\"],\"platform\":\"quern\",\"inputs\":[");
  for (size_t i = 0; i < SERVE_OIP_INPUT_COUNT; ++i) {
    const serve_oip_kind_t* kind = &serve_oip_kinds[i];
    serve_buffer_format(out, "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[%s]}",
                        i > 0 ? "," : "", kind->name, kind->datatype,
                        kind->rank == 1 ? "-1" : "-1,-1");
  }
  serve_buffer_format(
      out, "],\"outputs\":[{\"name\":\"embedding\",\"datatype\":\"FP32\",\"shape\":[-1,%zu]}]}",
      serve_model_encoder(model)->width);
  serve_model_release(model);
  return true;
}

// The inputs are optional, since a request gives texts or ids. perf_analyzer reads that here.
static bool handle_config(serve_visit_t* visit, serve_buffer_t* out) {
  serve_model_t* model = serve_oip_model(visit);
  if (!model) return false;
  const bool is_cpu = strcmp(serve_model_encoder(model)->device, "cpu") == 0;
  put_name(model, out);
  serve_buffer_text(out,
                    ",\"platform\":\"quern\",\"backend\":\"quern\",\"version_policy\":{\"latest\":"
                    "{\"num_versions\":1}},\"max_batch_size\":0,\"input\":[");
  for (size_t i = 0; i < SERVE_OIP_INPUT_COUNT; ++i) {
    const serve_oip_kind_t* kind = &serve_oip_kinds[i];
    serve_buffer_format(out,
                        "%s{\"name\":\"%s\",\"data_type\":\"%s\",\"format\":\"FORMAT_NONE\","
                        "\"dims\":[%s],\"is_shape_tensor\":false,\"allow_ragged_batch\":false,"
                        "\"optional\":true}",
                        i > 0 ? "," : "", kind->name, kind->config_type,
                        kind->rank == 1 ? "-1" : "-1,-1");
  }
  serve_buffer_format(
      out,
      "],\"output\":[{\"name\":\"embedding\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1,%zu],"
      "\"label_filename\":\"\",\"is_shape_tensor\":false}],\"dynamic_batching\":{"
      "\"max_queue_delay_microseconds\":%lld},\"instance_group\":[{\"name\":\"%s\",\"kind\":"
      "\"%s\",\"count\":1}]}",
      serve_model_encoder(model)->width, (long long)(visit->server->options->batch_delay / 1000),
      serve_model_name(model), is_cpu ? "KIND_CPU" : "KIND_GPU");
  serve_model_release(model);
  return true;
}

// ------------------------------------------------------------------------------------ routes

#define OF_MODEL(method, tail, access, handle, write)                         \
  {method, "/v2/models/*" tail, access, &serve_oip, handle, write}, {         \
    method, "/v2/models/*/versions/*" tail, access, &serve_oip, handle, write \
  }

static const serve_route_t routes[] = {
    {"GET", "/v2", SERVE_ACCESS_KEY, &serve_oip, handle_server, NULL},
    {"GET", "/v2/health/live", SERVE_ACCESS_OPEN, &serve_oip, handle_live, NULL},
    {"GET", "/v2/health/ready", SERVE_ACCESS_OPEN, &serve_oip, handle_ready, NULL},
    {"GET", "/v2/models/stats", SERVE_ACCESS_KEY, &serve_oip, serve_oip_handle_all_stats, NULL},
    OF_MODEL("GET", "", SERVE_ACCESS_KEY, handle_model, NULL),
    OF_MODEL("GET", "/ready", SERVE_ACCESS_OPEN, handle_model_ready, NULL),
    OF_MODEL("GET", "/config", SERVE_ACCESS_KEY, handle_config, NULL),
    OF_MODEL("GET", "/stats", SERVE_ACCESS_KEY, serve_oip_handle_stats, NULL),
    OF_MODEL("POST", "/infer", SERVE_ACCESS_KEY, serve_oip_handle_infer, serve_oip_write_infer),
    {"POST", "/v2/repository/index", SERVE_ACCESS_KEY, &serve_oip, serve_oip_handle_index, NULL},
    {"POST", "/v2/repository/models/*/load", SERVE_ACCESS_ADMIN, &serve_oip, serve_oip_handle_load,
     serve_oip_write_change},
    {"POST", "/v2/repository/models/*/unload", SERVE_ACCESS_ADMIN, &serve_oip,
     serve_oip_handle_unload, serve_oip_write_change},
};
const serve_routes_t serve_oip_routes = {routes, sizeof routes / sizeof routes[0]};
