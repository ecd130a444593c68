// SPDX-License-Identifier: Apache-2.0
// bench/serve/peers/onnxruntime.c: serve_onnxruntime, quern-serve's front end and queue with ONNX
// Runtime as the engine.
//
//   serve_onnxruntime GRAPH.onnx [--spin] [--no-pattern] [--pad] [--call-cost N] [--call-tokens N]
//                     -- MODEL_DIR [OPTIONS of quern-serve]
//
// Without --pad a batch is sorted by length and cut into calls. It writes quern-serve's log lines.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/serve/peers/onnxruntime_encoder.h"
#include "serve/log.h"
#include "serve/server.h"

typedef struct program {
  serve_options_t options;
  onnxruntime_options_t engine;
  serve_repository_t* repository;
  serve_server_t* server;
} program_t;

static qn_status_t load(void* self, const char* folder, const char* name,
                        serve_model_t** out_model) {
  const program_t* program = self;
  const serve_options_t* options = &program->options;
  serve_tokenizer_t* tokenizer = NULL;
  qn_status_t status = serve_tokenizer_open(folder, NULL, &tokenizer);
  if (!qn_ok(status)) return status;
  serve_encoder_t encoder;
  status = onnxruntime_encoder_open(&program->engine, folder, &encoder);
  if (!qn_ok(status)) {
    serve_tokenizer_close(tokenizer);
    return status;
  }
  const serve_model_limits_t limits = {.batch_tokens = options->batch_tokens,
                                       .batch_sequences = options->batch_texts,
                                       .queue_tokens = options->queue_tokens,
                                       .batch_delay_ns = options->batch_delay};
  return serve_model_create(name, tokenizer, &encoder, &limits, out_model);
}

static int fail(const char* what) {
  (void)fprintf(stderr, "serve_onnxruntime: %s\n", what);
  return 1;
}

static int fail_with(qn_status_t status) {
  (void)fail(qn_status_message(status));
  qn_status_free(status);
  return 1;
}

// Reads the arguments before "--". Returns their number with it, or 0 if they are wrong.
static int read_engine(int count, char** arguments, onnxruntime_options_t* out_engine) {
  *out_engine = (onnxruntime_options_t){.has_pattern = true, .call_cost = 8, .call_tokens = 256};
  int at = 1;
  if (at < count) out_engine->graph = arguments[at++];
  for (; at < count && strcmp(arguments[at], "--") != 0; ++at) {
    const char* flag = arguments[at];
    const bool has_number = at + 1 < count;
    if (strcmp(flag, "--spin") == 0) {
      out_engine->spins = true;
    } else if (strcmp(flag, "--no-pattern") == 0) {
      out_engine->has_pattern = false;
    } else if (strcmp(flag, "--pad") == 0) {
      out_engine->pads_all = true;
    } else if (strcmp(flag, "--call-cost") == 0 && has_number) {
      out_engine->call_cost = strtoull(arguments[++at], NULL, 10);
    } else if (strcmp(flag, "--call-tokens") == 0 && has_number) {
      out_engine->call_tokens = strtoull(arguments[++at], NULL, 10);
    } else {
      return 0;
    }
  }
  return at < count ? at + 1 : 0;
}

// Loads the model and serves until a signal.
static int serve(program_t* program) {
  sigset_t signals;
  (void)sigemptyset(&signals);
  (void)sigaddset(&signals, SIGTERM);
  (void)sigaddset(&signals, SIGINT);
  (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
  const char* name = *program->options.name ? program->options.name : "model";
  qn_status_t status = serve_repository_add(program->repository, name, program->options.models[0]);
  if (qn_ok(status)) status = serve_repository_load(program->repository, name);
  if (qn_ok(status)) {
    status = serve_server_start(&program->options, program->repository, NULL, &program->server);
  }
  if (!qn_ok(status)) return fail_with(status);
  char address[300];
  (void)snprintf(address, sizeof address, "%.200s:%u", program->options.address,
                 (unsigned)serve_http_port(program->server->http));
  const serve_field_t field = SERVE_TEXT("address", address);
  serve_log(SERVE_LOG_INFO, "ready", &field, 1);
  int number = 0;
  (void)sigwait(&signals, &number);
  serve_server_begin_drain(program->server);
  const bool is_done = serve_server_finish(program->server, program->options.drain_timeout);
  serve_server_stop(program->server);
  return is_done ? 0 : 1;
}

int main(int argc, char** argv) {
  program_t program = {.repository = NULL};
  const int engine_count = read_engine(argc, argv, &program.engine);
  if (engine_count == 0) return fail("usage: GRAPH.onnx [engine's options] -- MODEL_DIR [OPTIONS]");
  qn_status_t status =
      serve_options_read(argc - engine_count, argv + engine_count, &program.options);
  if (!qn_ok(status)) return fail_with(status);
  (void)signal(SIGPIPE, SIG_IGN);
  program.engine.threads = (int)program.options.threads;
  program.engine.max_tokens = program.options.batch_tokens;
  program.engine.max_sequences = program.options.batch_texts;
  int code = 1;
  if (program.options.model_count != 1) {
    code = fail("needs one model");
  } else {
    status = serve_repository_create(load, &program, &program.repository);
    code = qn_ok(status) ? serve(&program) : fail_with(status);
  }
  serve_repository_destroy(program.repository);
  serve_options_free(&program.options);
  return code;
}
