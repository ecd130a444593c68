// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/child.c: new processes of the command, and what they measure.
#include "tools/cli/bench/child.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quern/device.h"
#include "quern/observe.h"
#include "tools/cli/bench/stop.h"
#include "tools/cli/memory.h"
#include "tools/cli/output.h"
#include "tools/cli/report.h"
#include "tools/cli/session.h"

extern char** environ;

static const char* const stage_texts[WARM_COUNT] = {
    "start",  "engine", "parse",    "target",  "lookup", "directory", "open", "decode",
    "passes", "emit",   "optimize", "codegen", "link",   "compile",   "load", "call"};

const char* warm_stage_text(warm_stage_t stage) {
  return stage_texts[stage];
}

// ------------------------------------------------------------------------------------ stages

static void take_stage(void* self, const qn_stage_info_t* info) {
  double* stages = self;
  for (int s = WARM_DISK; s <= WARM_LOAD; s++) {
    if (s != WARM_COMPILE && strcmp(stage_texts[s], info->name) == 0) {
      stages[s] = (double)info->total_ns;
    }
  }
}

void warm_read_stages(qn_engine_t* engine, double stages[WARM_COUNT]) {
  qn_engine_stages(engine, take_stage, stages);
}

// Returns the sum of stages [first, last], after shortening them to at most `limit`.
static double fit(double stages[WARM_COUNT], int first, int last, double limit) {
  double sum = 0;
  for (int s = first; s <= last; s++) sum += stages[s];
  if (sum <= limit || sum <= 0) return sum;
  for (int s = first; s <= last; s++) stages[s] *= limit / sum;
  return limit;
}

void warm_complete_stages(double stages[WARM_COUNT], double lookup_ns, double compile_ns) {
  double inner = fit(stages, WARM_DECODE, WARM_LINK, compile_ns);
  stages[WARM_COMPILE] = compile_ns - inner;
  double sum = fit(stages, WARM_DISK, WARM_LOAD, lookup_ns);
  stages[WARM_LOOKUP] = lookup_ns - sum;
}

// ------------------------------------------------------------------------------------ the child

static qn_status_t make_engine(const char* cache_dir, qn_engine_t** out_engine) {
  const qn_setting_t settings[] = {
      {"cache_dir", cache_dir}, {"cache_mode", "rw"}, {"bundles", ""}, {"remote", ""},
      {"record", ""},           {"trace", ""},        {"dump", ""}};
  return session_engine_with(settings, sizeof settings / sizeof settings[0], out_engine);
}

typedef struct child {
  subject_t subject;
  bench_place_t place;
  qn_engine_t* engine;
  run_args_t bound;
  qn_function_t* function;
  double stages[WARM_COUNT];
  bool was_compiled;
} child_t;

// Returns the nanoseconds since `*inout_at`, and sets that to now.
static double lap(int64_t* inout_at) {
  int64_t before = *inout_at;
  *inout_at = now_ns();
  return (double)(*inout_at - before);
}

static qn_status_t look_up(const args_t* args, child_t* child, int64_t* inout_at) {
  qn_lookup_options_t options;
  if (!session_lookup_options(args, &options)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--tier");
  }
  qn_lookup_info_t info = {.struct_size = sizeof info};
  *inout_at = now_ns();
  qn_status_t status =
      qn_engine_function(child->engine, child->subject.module, child->place.target,
                         child->subject.function, &options, &info, &child->function);
  if (!qn_ok(status)) return status;
  double lookup_ns = lap(inout_at);
  child->was_compiled = info.source == QN_SOURCE_COMPILED;
  warm_read_stages(child->engine, child->stages);
  warm_complete_stages(child->stages, lookup_ns, (double)info.compile_ns);
  *inout_at = now_ns();
  qn_status_t call =
      qn_function_call_on(child->function, NULL, child->bound.values, child->bound.count, NULL);
  if (qn_ok(call)) call = qn_stream_sync(child->place.device, NULL);
  child->stages[WARM_CALL] = lap(inout_at);
  return call;
}

static qn_status_t measure_child(const args_t* args, int64_t main_ns, child_t* child) {
  uint64_t began_ns = 0, threads = 0;
  (void)args_number(args_value(args, "began", "0"), 0, INT64_MAX, &began_ns);
  (void)args_number(args_value(args, "threads", "0"), 0, INT32_MAX, &threads);
  int64_t at = main_ns;
  child->stages[WARM_START] = (double)(main_ns - (int64_t)began_ns);
  qn_status_t status = make_engine(args_value(args, "child", ""), &child->engine);
  child->stages[WARM_ENGINE] = lap(&at);
  if (qn_ok(status)) status = subject_open(args, args->operands[0], &child->subject);
  child->stages[WARM_PARSE] = lap(&at);
  if (qn_ok(status)) status = place_open(args_value(args, "target", "cpu"), &child->place);
  child->stages[WARM_TARGET] = lap(&at);
  // Making the arrays is no part of a warm-up.
  if (qn_ok(status)) {
    status = run_args_bind(args, child->subject.module, child->subject.index, child->place.device,
                           false, &child->bound);
  }
  if (qn_ok(status)) status = run_args_upload(&child->bound);
  if (qn_ok(status)) (void)qn_cpu_set_core_budget((int32_t)threads);
  return qn_ok(status) ? look_up(args, child, &at) : status;
}

int child_run(const args_t* args) {
  child_t child = {.function = NULL};
  qn_status_t status = measure_child(args, now_ns(), &child);
  int code = report_status(args, status);
  if (code == EXIT_DONE) {
    json_t* stages = json_array();
    for (int s = 0; s < WARM_COUNT; s++) json_array_append_new(stages, json_real(child.stages[s]));
    print_json(json_record("stages:o compiled:b", stages, child.was_compiled));
  }
  run_args_free(&child.bound);
  qn_function_release(child.function);
  if (child.engine) (void)qn_engine_flush(child.engine, INT64_C(60000000000));
  qn_engine_destroy(child.engine);
  place_close(&child.place);
  subject_close(&child.subject);
  return code;
}

// ------------------------------------------------------------------------------------ the parent

typedef struct child_words {
  const char** items;
  size_t count, capacity;
} child_words_t;

static void add_word(child_words_t* words, const char* word) {
  words->items = memory_room(words->items, &words->capacity, words->count, sizeof *words->items);
  words->items[words->count++] = word;
}

static void add_option(child_words_t* words, const char* name, const char* value) {
  add_word(words, name);
  add_word(words, value);
}

// Starts the process; the reading end of its standard output is the caller's.
static qn_status_t start(child_words_t* words, const char* function, pid_t* out_process,
                         int* out_file) {
  int ends[2];
  if (pipe(ends) != 0) return file_error("make", "a pipe");
  posix_spawn_file_actions_t actions;
  (void)posix_spawn_file_actions_init(&actions);
  (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
  (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0);
  char began[32];
  (void)snprintf(began, sizeof began, "%" PRId64, now_ns());
  add_option(words, "--began", began);
  // The name of the file may begin with a dash.
  add_option(words, "--", function);
  add_word(words, NULL);
  errno = posix_spawn(out_process, "/proc/self/exe", &actions, NULL,
                      (char* const*)(void*)words->items, environ);
  qn_status_t status = errno == 0 ? QN_OK : file_error("run", "/proc/self/exe");
  (void)posix_spawn_file_actions_destroy(&actions);
  (void)close(ends[1]);
  *out_file = ends[0];
  if (!qn_ok(status)) (void)close(ends[0]);
  return status;
}

// Reads until the end, or until a signal came, which ends the process.
static qn_status_t read_all(pid_t process, int file, text_t* out) {
  char piece[4096];
  qn_status_t status = QN_OK;
  for (;;) {
    ssize_t size = read(file, piece, sizeof piece);
    if (stop_wanted()) (void)kill(process, SIGKILL);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    if (qn_ok(status)) status = text_append(out, piece, (size_t)size);
  }
  return status;
}

static qn_status_t read_times(const text_t* text, int wait_status, warm_times_t* out) {
  json_t* it = text->data ? json_loadb(text->data, text->size, 0, NULL) : NULL;
  const json_t* stages = json_object_get(it, "stages");
  const json_t* error = json_object_get(json_object_get(it, "error"), "message");
  qn_status_t status = QN_OK;
  if (error) {
    status = qn_status_make(QN_STATUS_UNAVAILABLE, "a new process: %s", json_string_value(error));
  } else if (json_array_size(stages) != WARM_COUNT) {
    bool is_killed = WIFSIGNALED(wait_status);
    status = qn_status_make(QN_STATUS_UNAVAILABLE, "a new process ended with %s %d",
                            is_killed ? "signal" : "exit code",
                            is_killed ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
  }
  for (size_t s = 0; s < WARM_COUNT && qn_ok(status); s++) {
    out->stages[s] = json_number_value(json_array_get(stages, s));
    out->total += out->stages[s];
  }
  out->was_compiled = json_is_true(json_object_get(it, "compiled"));
  json_decref(it);
  return status;
}

qn_status_t child_spawn(const child_request_t* request, warm_times_t* out) {
  *out = (warm_times_t){.total = 0};
  char threads[16];
  (void)snprintf(threads, sizeof threads, "%d", (int)request->threads);
  size_t size = strlen(request->subject->file) + strlen(request->subject->function) + 2;
  char* function = memory_zeroed(size, 1);
  (void)snprintf(function, size, "%s:%s", request->subject->file, request->subject->function);
  child_words_t words = {NULL, 0, 0};
  add_option(&words, "quern", "bench");
  add_option(&words, "--child", request->cache_dir);
  add_option(&words, "--target", request->place->text);
  add_option(&words, "--tier", request->tier);
  add_option(&words, "--threads", threads);
  add_word(&words, "--json");
  const char* set;
  for (int at = 0; (set = args_next(request->args, "set", &at));) add_option(&words, "--set", set);
  for (int i = 0; i < request->inputs->args.option_count; i++) {
    add_option(&words, "--arg", request->inputs->texts[i]);
  }
  pid_t process;
  int file = -1, wait_status = 0;
  text_t text = {NULL, 0, 0};
  qn_status_t status = start(&words, function, &process, &file);
  if (qn_ok(status)) {
    status = read_all(process, file, &text);
    (void)close(file);
    while (waitpid(process, &wait_status, 0) < 0 && errno == EINTR) {
      if (stop_wanted()) (void)kill(process, SIGKILL);
    }
    if (stop_wanted()) {
      qn_status_free(status);
      status = qn_status_make(QN_STATUS_CANCELLED, "stopped by %s", stop_signal());
    }
    if (qn_ok(status)) status = read_times(&text, wait_status, out);
  }
  text_free(&text);
  free(words.items);
  free(function);
  return status;
}
