// SPDX-License-Identifier: Apache-2.0
// examples/warm_start.c: a service that compiles its kernels ahead and is its own worker, so that
// it
// needs no command.
//
//   ./example_warm_start CACHE_DIR
//
// The first run compiles eight kernels in two processes, the second finds them.
// Read next: docs/warm.md.
#include <quern/quern.h>
#include <quern/warm.h>
#include <stdio.h>
#include <string.h>

static bool on_progress(void* self, const qn_warm_result_t* progress, const qn_warm_item_t* item) {
  (void)self;
  if (item) {
    printf("%zu/%zu %s %s %s\n", progress->done, progress->total, item->name,
           qn_warm_outcome_text(item->outcome), item->error);
  }
  return true;  // false would cancel
}

// A kernel for each size that the service expects.
static qn_status_t fill(qn_warm_list_t* list) {
  qn_target_t* target;
  qn_status_t status = qn_target_parse("interp", &target);
  for (int size = 16; qn_ok(status) && size <= 2048; size *= 2) {
    char text[200];
    (void)snprintf(text, sizeof text,
                   "func scale_%d(x: f32[%d], out y: f32[%d]) {\n"
                   "  for i in 0..%d { y[i] = x[i] * 2.0; }\n}\n",
                   size, size, size, size);
    qn_module_t* module = NULL;
    status = qn_module_parse(text, strlen(text), NULL, &module);
    if (qn_ok(status)) status = qn_warm_list_add(list, module, target, NULL);
    qn_module_release(module);
  }
  qn_target_release(target);
  return status;
}

int main(int argc, char** argv) {
  // How qn_warm starts a worker: its standard input is the socket.
  if (argc == 3 && strcmp(argv[1], "warm") == 0) {
    return qn_status_consume(qn_warm_worker(0)) == QN_STATUS_OK ? 0 : 1;
  }
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = argc > 1 ? argv[1] : NULL};
  qn_warm_options_t how = {.struct_size = sizeof how,
                           .jobs = 2,
                           .command = "/proc/self/exe",
                           .on_progress = on_progress};
  qn_engine_t* engine = NULL;
  qn_warm_list_t* list = NULL;
  qn_warm_result_t result = {.struct_size = sizeof result};
  qn_status_t status = qn_engine_create(&options, &engine);
  if (qn_ok(status)) status = qn_warm_list_create(&list);
  if (qn_ok(status)) status = fill(list);
  if (qn_ok(status)) status = qn_warm(engine, list, &how, &result);
  if (!qn_ok(status)) fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  qn_warm_list_destroy(list);
  qn_engine_destroy(engine);
  printf("%s, %u workers\n", result.is_warm ? "warm" : "not warm", result.worker_count);
  return result.is_warm ? 0 : 1;
}
