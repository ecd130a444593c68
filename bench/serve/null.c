// SPDX-License-Identifier: Apache-2.0
// bench/serve/null.c: serve_null, the server's front end without a model; and libmicrohttpd without
// the front end.
//
//   serve_null FOLDER [OPTION...]             an encoder that copies a vector; options of
//   quern-serve serve_null --floor THREADS TYPE FILE      answers each request with the bytes of a
//   file
//
// The folder has the tokenizer. Both print their port and end with SIGTERM. The second is what the
// first can at best be: it reads the body, and sends as many bytes as the first one does.
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/memory.h"
#include "serve/server.h"

enum { WIDTH = 384, MAX_TOKENS = 256 };

_Noreturn static void give_up(const char* what, qn_status_t status) {
  (void)fprintf(stderr, "serve_null: %s: %s\n", what, qn_status_message(status));
  exit(2);
}

static void wait_for_end(uint16_t port) {
  (void)printf("%u\n", (unsigned)port);
  (void)fflush(stdout);
  sigset_t signals;
  (void)sigemptyset(&signals);
  (void)sigaddset(&signals, SIGTERM);
  int number;
  (void)sigwait(&signals, &number);
}

// ------------------------------------------------------------------------------------ null model

// Numbers with as many digits as those of a model.
static float vector[WIDTH];

static void make_vector(void) {
  uint64_t seed = 1;
  for (size_t i = 0; i < WIDTH; ++i) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    vector[i] = (float)(seed >> 40) / (float)(1 << 24) - 0.5f;
  }
}

static qn_status_t run(void* self, serve_batch_t* batch) {
  (void)self;
  for (size_t i = 0; batch->has_pooled && i < batch->sequence_count; ++i) {
    memcpy(batch->pooled + i * WIDTH, vector, sizeof vector);
  }
  for (size_t i = 0; batch->has_tokens && i < batch->token_count; ++i) {
    memcpy(batch->tokens + i * WIDTH, vector, sizeof vector);
  }
  return QN_OK;
}

static void destroy(void* self) {
  (void)self;
}

static qn_status_t load(void* self, const char* folder, const char* name,
                        serve_model_t** out_model) {
  (void)self;
  *out_model = NULL;
  serve_tokenizer_t* tokenizer = NULL;
  qn_status_t status = serve_tokenizer_open(folder, NULL, &tokenizer);
  if (!qn_ok(status)) return status;
  const serve_encoder_t encoder = {.width = WIDTH,
                                   .max_tokens = MAX_TOKENS,
                                   .kind = "null",
                                   .device = "cpu",
                                   .run = run,
                                   .destroy = destroy};
  const serve_model_limits_t limits = {
      .batch_tokens = 4096, .batch_sequences = 256, .queue_tokens = 1 << 18};
  return serve_model_create(name, tokenizer, &encoder, &limits, out_model);
}

static int serve_model(int argc, char** argv) {
  make_vector();
  serve_options_t options;
  qn_status_t status = serve_options_read(argc - 1, argv + 1, &options);
  if (!qn_ok(status)) give_up("usage", status);
  if (options.model_count != 1) {
    (void)fprintf(stderr, "serve_null: expected one folder with a tokenizer\n");
    return 2;
  }
  serve_repository_t* repository = NULL;
  serve_server_t* server = NULL;
  status = serve_repository_create(load, NULL, &repository);
  if (qn_ok(status)) status = serve_repository_add(repository, "model", options.models[0]);
  if (qn_ok(status)) status = serve_repository_load(repository, "model");
  if (qn_ok(status)) status = serve_server_start(&options, repository, NULL, &server);
  if (!qn_ok(status)) give_up("start", status);
  wait_for_end(serve_http_port(server->http));
  (void)serve_server_finish(server, options.drain_timeout);
  serve_server_stop(server);
  serve_repository_destroy(repository);
  serve_options_free(&options);
  return 0;
}

// ------------------------------------------------------------------------------------ the floor

typedef struct floor {
  const char* type;
  serve_bytes_t answer;
} floor_t;

static enum MHD_Result on_access(void* self, struct MHD_Connection* connection, const char* url,
                                 const char* method, const char* version, const char* data,
                                 size_t* inout_size, void** inout_context) {
  (void)url, (void)method, (void)version;
  const floor_t* floor = self;
  serve_buffer_t* body = *inout_context;
  if (!body) {
    *inout_context = calloc(1, sizeof *body);
    return *inout_context ? MHD_YES : MHD_NO;
  }
  if (*inout_size > 0) {
    serve_buffer_append(body, data, *inout_size);
    *inout_size = 0;
    return MHD_YES;
  }
  char* copy = malloc(floor->answer.size);
  if (!copy) return MHD_NO;
  memcpy(copy, floor->answer.data, floor->answer.size);
  struct MHD_Response* response =
      MHD_create_response_from_buffer(floor->answer.size, copy, MHD_RESPMEM_MUST_FREE);
  (void)MHD_add_response_header(response, "Content-Type", floor->type);
  const enum MHD_Result result = MHD_queue_response(connection, 200, response);
  MHD_destroy_response(response);
  return result;
}

static void on_completed(void* self, struct MHD_Connection* connection, void** inout_context,
                         enum MHD_RequestTerminationCode code) {
  (void)self, (void)connection, (void)code;
  if (*inout_context) serve_buffer_free(*inout_context);
  free(*inout_context);
}

static int serve_floor(char** argv) {
  floor_t floor = {.type = argv[3]};
  const qn_allocator_t allocator = qn_allocator_default();
  qn_status_t status = serve_file_read(&allocator, argv[4], 1 << 30, &floor.answer);
  if (!qn_ok(status)) give_up("answer", status);
  const unsigned threads = (unsigned)strtoul(argv[2], NULL, 10);
  struct MHD_Daemon* daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_access, &floor, MHD_OPTION_NOTIFY_COMPLETED,
      on_completed, NULL, threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, threads,
      MHD_OPTION_END);
  const union MHD_DaemonInfo* info =
      daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
  if (!info) {
    (void)fprintf(stderr, "serve_null: libmicrohttpd does not start\n");
    return 2;
  }
  wait_for_end(info->port);
  MHD_stop_daemon(daemon);
  serve_bytes_free(&allocator, &floor.answer);
  return 0;
}

int main(int argc, char** argv) {
  sigset_t signals;
  (void)sigemptyset(&signals);
  (void)sigaddset(&signals, SIGTERM);
  (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);  // before any thread
  if (argc == 5 && strcmp(argv[1], "--floor") == 0) return serve_floor(argv);
  return serve_model(argc, argv);
}
