// SPDX-License-Identifier: Apache-2.0
// tests/serve/fake_server.c: a server of the fake encoder, for clients that are other programs. Its
// arguments are those of quern-serve; the model is named by --name, or "fake". SIGTERM ends it.
#include <signal.h>
#include <stdio.h>

#include "serve/server.h"
#include "tests/serve/support_fake.h"

static int report(qn_status_t status) {
  (void)fprintf(stderr, "serve_fake: %s\n", qn_status_message(status));
  qn_status_free(status);
  return 1;
}

static qn_status_t start(const serve_options_t* options, fake_t* fake,
                         serve_repository_t** out_repository, serve_server_t** out_server) {
  const char* name = *options->name ? options->name : "fake";
  qn_status_t status = serve_repository_create(fake_load, fake, out_repository);
  if (qn_ok(status)) status = serve_repository_add(*out_repository, name, options->models[0]);
  if (qn_ok(status)) status = serve_repository_load(*out_repository, name);
  if (qn_ok(status)) status = serve_server_start(options, *out_repository, NULL, out_server);
  return status;
}

int main(int argc, char** argv) {
  sigset_t signals;
  (void)sigemptyset(&signals);
  (void)sigaddset(&signals, SIGTERM);
  (void)sigaddset(&signals, SIGINT);
  (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);  // before any thread
  serve_options_t options;
  qn_status_t status = serve_options_read(argc - 1, argv + 1, &options);
  if (qn_ok(status) && options.model_count != 1) {
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "expected one folder with a tokenizer");
  }
  fake_t fake = {
      .width = 384,
      .max_tokens = 128,
      .limits = {.batch_tokens = 4096, .batch_sequences = 64, .queue_tokens = 1 << 18},
  };
  serve_repository_t* repository = NULL;
  serve_server_t* server = NULL;
  if (qn_ok(status)) status = start(&options, &fake, &repository, &server);
  int result = 0;
  if (qn_ok(status)) {
    int signal_number;
    (void)sigwait(&signals, &signal_number);
    result = !serve_server_finish(server, options.drain_timeout);
  } else {
    result = report(status);
  }
  serve_server_stop(server);
  serve_repository_destroy(repository);
  serve_options_free(&options);
  return result;
}
