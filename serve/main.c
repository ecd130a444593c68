// SPDX-License-Identifier: Apache-2.0
// serve/main.c: the command quern-serve: from its arguments to models that serve, until a signal.
//
// The server listens first, so that probes get answers while models load; it is ready when all of
// them are. The main thread waits for signals, which all other threads block.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve/clock.h"
#include "serve/loader.h"
#include "serve/log.h"
#include "serve/probe.h"
#include "serve/server.h"

enum { EXIT_DONE = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_MACHINE = 3 };

typedef struct program {
  serve_options_t options;
  serve_loader_t* loader;
  serve_repository_t* repository;
  serve_server_t* server;
  serve_trace_t* trace;  // NULL: none
  int64_t start_ns;
  pthread_t main_thread;
  qn_status_t load_status;  // of the loading thread
} program_t;

static int exit_code(qn_status_t status) {
  switch (qn_status_code(status)) {
    case QN_STATUS_UNAVAILABLE:
    case QN_STATUS_INCOMPATIBLE:
    case QN_STATUS_OUT_OF_MEMORY:
    case QN_STATUS_DEVICE_ERROR:
      return EXIT_MACHINE;
    default:
      return EXIT_WRONG;
  }
}

static int fail(qn_status_t status, int code) {
  (void)fprintf(stderr, "quern-serve: %s\n", qn_status_message(status));
  if (code == EXIT_USAGE) (void)fprintf(stderr, "try: quern-serve --help\n");
  qn_status_free(status);
  return code;
}

static void log_engine(void* self, qn_log_level_t level, const char* message) {
  (void)self;
  const serve_field_t field = SERVE_TEXT("reason", message);
  serve_log(level == QN_LOG_ERROR ? SERVE_LOG_ERROR : SERVE_LOG_WARNING, "engine", &field, 1);
}

// ------------------------------------------------------------------------------------ models

// Writes the last part of a path; "model" where it says nothing, as for ".".
static void name_folder(const char* folder, char out_name[128]) {
  size_t end = strlen(folder);
  while (end > 0 && folder[end - 1] == '/') --end;
  size_t begin = end;
  while (begin > 0 && folder[begin - 1] != '/') --begin;
  const bool is_empty = strspn(folder + begin, ".") >= end - begin;
  (void)snprintf(out_name, 128, "%.*s", is_empty ? 5 : (int)(end - begin),
                 is_empty ? "model" : folder + begin);
}

// Adds NAME=DIR, or DIR under the name of the folder.
static qn_status_t add_model(program_t* program, const char* argument) {
  const char* sign = strchr(argument, '=');
  const char* slash = strchr(argument, '/');
  const bool has_name = sign && (!slash || sign < slash);
  const char* folder = has_name ? sign + 1 : argument;
  char name[128];
  if (has_name) {
    (void)snprintf(name, sizeof name, "%.*s", (int)(sign - argument), argument);
  } else if (*program->options.name) {
    (void)snprintf(name, sizeof name, "%s", program->options.name);
  } else {
    name_folder(folder, name);
  }
  return serve_repository_add(program->repository, name, folder);
}

static qn_status_t add_models(program_t* program) {
  const serve_options_t* options = &program->options;
  if (options->model_count == 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "there is no model; give its folder");
  }
  if (options->model_count > 1 && *options->name) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "--name is for one model; give several as NAME=DIR");
  }
  for (size_t i = 0; i < options->model_count; ++i) {
    qn_status_t status = add_model(program, options->models[i]);
    if (!qn_ok(status)) return status;
  }
  return QN_OK;
}

static qn_status_t load_models(program_t* program) {
  serve_listing_t listing;
  for (size_t i = 0; serve_repository_list(program->repository, i, &listing); ++i) {
    qn_status_t status = serve_repository_load(program->repository, listing.name);
    if (!qn_ok(status)) return qn_status_annotate(status, "model '%s'", listing.name);
  }
  return QN_OK;
}

// Loads all models, then wakes the main thread.
static void* load(void* self) {
  program_t* program = self;
  program->load_status = load_models(program);
  (void)pthread_kill(program->main_thread, SIGUSR1);
  return NULL;
}

static void log_start(const program_t* program) {
  char address[300];
  char models[1024];
  char kernels[128];
  const char* host = program->options.address;
  (void)snprintf(address, sizeof address, strchr(host, ':') ? "[%.200s]:%u" : "%.200s:%u", host,
                 (unsigned)serve_http_port(program->server->http));
  size_t used = 0;
  serve_listing_t listing;
  for (size_t i = 0; serve_repository_list(program->repository, i, &listing); ++i) {
    if (used + strlen(listing.name) + 2 > sizeof models) break;
    used += (size_t)snprintf(models + used, sizeof models - used, "%s%s", i > 0 ? "," : "",
                             listing.name);
  }
  serve_loader_describe(program->loader, kernels, sizeof kernels);
  const serve_field_t fields[] = {
      SERVE_TEXT("address", address),
      SERVE_TEXT("models", models),
      SERVE_TEXT("target", program->options.target),
      SERVE_TEXT("kernels", kernels),
      SERVE_NUMBER("compiled", serve_loader_compile_count(program->loader)),
      SERVE_NUMBER("us", (serve_now_ns() - program->start_ns) / 1000),
  };
  serve_log(SERVE_LOG_INFO, "ready", fields, sizeof fields / sizeof fields[0]);
}

// ------------------------------------------------------------------------------------ signals

// Waits for a signal that ends the program, at most this long. Returns 0 if none came.
static int wait_for_end(const sigset_t* signals, int64_t timeout_ns) {
  const int64_t limit_ns = serve_now_ns() + timeout_ns;
  for (;;) {
    const int64_t left_ns = limit_ns - serve_now_ns();
    const struct timespec left = {.tv_sec = left_ns > 0 ? left_ns / 1000000000 : 0,
                                  .tv_nsec = left_ns > 0 ? left_ns % 1000000000 : 0};
    const int number = sigtimedwait(signals, NULL, &left);
    if (number > 0) return number;
    if (left_ns <= 0) return 0;
  }
}

// Serves until what is under way has ended. Returns false if requests were cut off.
static bool drain(program_t* program, const sigset_t* signals, int number) {
  const serve_options_t* options = &program->options;
  const serve_field_t field = SERVE_TEXT("signal", number == SIGINT ? "SIGINT" : "SIGTERM");
  serve_log(SERVE_LOG_INFO, "draining", &field, 1);
  serve_server_begin_drain(program->server);
  bool is_hurried = wait_for_end(signals, options->drain_delay) != 0;
  const int64_t limit_ns = serve_now_ns() + options->drain_timeout;
  while (!is_hurried && serve_now_ns() < limit_ns) {
    if (serve_server_finish(program->server, 20000000)) return true;
    is_hurried = wait_for_end(signals, 0) != 0;
  }
  return !is_hurried && serve_server_finish(program->server, 0);
}

// ------------------------------------------------------------------------------------ main

static qn_status_t start(program_t* program, pthread_t* out_thread) {
  qn_status_t status =
      serve_server_start(&program->options, program->repository, program->trace, &program->server);
  if (!qn_ok(status)) return status;
  if (pthread_create(out_thread, NULL, load, program) == 0) return QN_OK;
  serve_server_stop(program->server);
  return qn_status_make(QN_STATUS_UNAVAILABLE, "no thread to load models");
}

// Writes the trace, if there is one.
static void write_trace(const program_t* program) {
  if (!program->trace) return;
  qn_status_t status = serve_trace_write(program->trace, program->options.trace);
  const serve_field_t field = SERVE_TEXT("reason", qn_status_message(status));
  if (!qn_ok(status)) serve_log(SERVE_LOG_WARNING, "no trace", &field, 1);
  qn_status_free(status);
}

// Ends without waiting for threads: what they hold is the process's.
static _Noreturn void end_now(const program_t* program, int code) {
  write_trace(program);
  serve_log(code == EXIT_DONE ? SERVE_LOG_INFO : SERVE_LOG_WARNING,
            code == EXIT_DONE ? "stopped while starting" : "stopped; requests were cut off", NULL,
            0);
  _exit(code);
}

static int serve(program_t* program, const sigset_t* signals) {
  pthread_t thread;
  qn_status_t status = start(program, &thread);
  if (!qn_ok(status)) return fail(status, exit_code(status));
  int number = 0;
  do {
    if (sigwait(signals, &number) != 0) continue;
    if (number != SIGUSR1) end_now(program, EXIT_DONE);
  } while (number != SIGUSR1);
  (void)pthread_join(thread, NULL);
  int code = EXIT_DONE;
  if (qn_ok(program->load_status)) {
    serve_loader_end_start(program->loader);
    log_start(program);
    do {
      if (sigwait(signals, &number) != 0) number = SIGUSR1;
    } while (number == SIGUSR1);
    if (!drain(program, signals, number)) end_now(program, EXIT_WRONG);
    serve_log(SERVE_LOG_INFO, "stopped", NULL, 0);
  } else {
    code = fail(program->load_status, exit_code(program->load_status));
    (void)serve_server_finish(program->server, 1000000000);
  }
  serve_server_stop(program->server);
  return code;
}

// Writes the bundle of all models' kernels, and serves nothing.
static int ship(program_t* program) {
  const char* path = program->options.write_bundle;
  size_t count = 0;
  qn_status_t status = load_models(program);
  if (qn_ok(status)) status = serve_loader_write_bundle(program->loader, path, &count);
  if (!qn_ok(status)) return fail(status, exit_code(status));
  const serve_field_t fields[] = {
      SERVE_TEXT("bundle", path),
      SERVE_TEXT("target", program->options.target),
      SERVE_NUMBER("kernels", count),
      SERVE_NUMBER("compiled", serve_loader_compile_count(program->loader)),
  };
  serve_log(SERVE_LOG_INFO, "bundle written", fields, sizeof fields / sizeof fields[0]);
  return EXIT_DONE;
}

static int run(program_t* program) {
  qn_status_t status = QN_OK;
  if (*program->options.trace) status = serve_trace_create(&program->trace);
  if (qn_ok(status))
    status = serve_loader_create(&program->options, program->trace, &program->loader);
  if (!qn_ok(status)) return fail(status, exit_code(status));
  status = serve_repository_create(serve_loader_load, program->loader, &program->repository);
  if (!qn_ok(status)) return fail(status, EXIT_MACHINE);
  serve_repository_set_metrics(program->repository, serve_loader_print_metrics);
  status = add_models(program);
  if (!qn_ok(status)) return fail(status, EXIT_USAGE);
  if (*program->options.write_bundle) return ship(program);
  sigset_t signals;
  (void)sigemptyset(&signals);
  (void)sigaddset(&signals, SIGTERM);
  (void)sigaddset(&signals, SIGINT);
  (void)sigaddset(&signals, SIGUSR1);
  (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
  return serve(program, &signals);
}

int main(int argc, char** argv) {
  program_t program = {.start_ns = serve_now_ns(), .main_thread = pthread_self()};
  (void)signal(SIGPIPE, SIG_IGN);
  qn_status_t status = serve_options_read(argc - 1, argv + 1, &program.options);
  int code = EXIT_DONE;
  if (!qn_ok(status)) {
    code = fail(status, EXIT_USAGE);
  } else if (program.options.has_help) {
    serve_options_print_help(stdout);
  } else if (program.options.has_version) {
    (void)printf("quern-serve %s\n", qn_version());
  } else if (program.options.has_show) {
    serve_options_print(&program.options, stdout);
  } else if (program.options.has_probe) {
    status = serve_probe(&program.options);
    if (!qn_ok(status)) code = fail(status, EXIT_WRONG);
  } else {
    serve_log_use_json(program.options.log_json);
    qn_log_set_sink(QN_LOG_WARN, log_engine, NULL);
    code = run(&program);
    serve_repository_destroy(program.repository);
    write_trace(&program);  // the threads of the models have recorded their last batches
    serve_loader_destroy(program.loader);
    serve_trace_destroy(program.trace);
  }
  serve_options_free(&program.options);
  return code;
}
