// kernels.c: from files of IR text to functions. It is all that a program must do to use quern:
// make an engine and a target, parse a module, look a function up.
#include "kernels.h"

#include "weights.h"

#include "quern/device.h"
#include "quern/target.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT_BYTES = 1 << 20 };
static const int64_t FLUSH_NS = 60000000000;

static const char* const names[KERNEL_COUNT] = {
#define X(id, name) name,
    KERNELS(X)
#undef X
};

// Reads a text file whole. Owned: free.
static qn_status_t read_text(const char* path, char** out_text, size_t* out_size) {
  *out_text = NULL;
  *out_size = 0;
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    return qn_status_make(errno == ENOENT ? QN_STATUS_NOT_FOUND : QN_STATUS_IO, "%s: %s", path,
                          strerror(errno));
  }
  qn_status_t status = QN_OK;
  char* text = malloc(TEXT_LIMIT_BYTES);
  const size_t size = text != NULL ? fread(text, 1, TEXT_LIMIT_BYTES, file) : 0;
  if (text == NULL) {
    status = qn_status_make(QN_STATUS_OUT_OF_MEMORY, "%s: no memory for the text", path);
  } else if (ferror(file)) {
    status = qn_status_make(QN_STATUS_IO, "%s: cannot read it", path);
  } else if (size == TEXT_LIMIT_BYTES) {
    status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: more than 1 MiB of text", path);
  }
  fclose(file);
  if (!qn_ok(status)) {
    free(text);
    return status;
  }
  *out_text = text;
  *out_size = size;
  return QN_OK;
}

static qn_status_t load_kernel(kernels_t* kernels, const char* directory,
                               const qn_lookup_options_t* options, int id) {
  kernel_t* kernel = &kernels->all[id];
  char path[4096];
  if (snprintf(path, sizeof path, "%s/%s.qn", directory, kernel->name) >= (int)sizeof path) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the path of the kernels is too long");
  }
  const int64_t start_ns = now_ns();
  char* text = NULL;
  size_t size = 0;
  TRY(read_text(path, &text, &size));
  // The loops over a head have a constant length: the code is faster, and each call is checked.
  char width[24];
  snprintf(width, sizeof width, "d=%d", HEAD_WIDTH);
  qn_parse_options_t parsing = {.struct_size = sizeof parsing,
                                .source_name = path,
                                .set = id == KERNEL_ATTENTION ? width : NULL};
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, size, &parsing, &module);
  kernel->info.struct_size = sizeof kernel->info;
  free(text);
  kernel->parse_ns = now_ns() - start_ns;
  if (qn_ok(status)) {
    status = qn_engine_function(kernels->engine, module, kernels->target, kernel->name, options,
                                &kernel->info, &kernel->function);
    status = qn_status_annotate(status, "%s", path);
  }
  // The function retains the parts of the module that it needs.
  qn_module_release(module);
  return status;
}

// The lookups of all kernels, which several threads share: one thread runs one compile.
typedef struct lookup {
  kernels_t* kernels;
  const char* directory;
  const qn_lookup_options_t* options;
  atomic_int next;
  qn_status_t statuses[KERNEL_COUNT];
} lookup_t;

static void* look_up(void* self) {
  lookup_t* lookup = self;
  int id = 0;
  while ((id = atomic_fetch_add(&lookup->next, 1)) < KERNEL_COUNT) {
    lookup->statuses[id] = load_kernel(lookup->kernels, lookup->directory, lookup->options, id);
  }
  return NULL;
}

static qn_status_t load_all(kernels_t* kernels, const char* directory,
                            const qn_lookup_options_t* options) {
  lookup_t lookup = {.kernels = kernels, .directory = directory, .options = options};
  pthread_t threads[KERNEL_COUNT];
  int thread_count = 0;
  // The caller is one of them, and does all the work if no other can be started.
  while (thread_count + 1 < KERNEL_COUNT && thread_count + 1 < qn_cpu_core_count() &&
         pthread_create(&threads[thread_count], NULL, look_up, &lookup) == 0) {
    ++thread_count;
  }
  look_up(&lookup);
  for (int i = 0; i < thread_count; ++i) {
    pthread_join(threads[i], NULL);
  }
  qn_status_t first = QN_OK;
  for (int i = 0; i < KERNEL_COUNT; ++i) {
    if (qn_ok(first)) {
      first = lookup.statuses[i];
    } else {
      qn_status_free(lookup.statuses[i]);
    }
  }
  return first;
}

qn_status_t kernels_load(const char* directory, const char* target,
                         const qn_lookup_options_t* options, kernels_t* out_kernels) {
  memset(out_kernels, 0, sizeof *out_kernels);
  for (int i = 0; i < KERNEL_COUNT; ++i) {
    out_kernels->all[i].name = names[i];
  }
  qn_status_t status = qn_target_parse(target, &out_kernels->target);
  if (qn_ok(status)) {
    status = place_open(out_kernels->target, &out_kernels->place);
  }
  if (qn_ok(status)) {
    status = qn_engine_create(NULL, &out_kernels->engine);
  }
  if (qn_ok(status)) {
    status = load_all(out_kernels, directory, options);
  }
  if (!qn_ok(status)) {
    kernels_unload(out_kernels);
  }
  return status;
}

void kernels_unload(kernels_t* kernels) {
  for (int i = 0; i < KERNEL_COUNT; ++i) {
    qn_function_release(kernels->all[i].function);
  }
  // qn_engine_destroy alone would not wait for a slow disk; the next run needs these entries.
  if (kernels->engine != NULL) {
    (void)qn_engine_flush(kernels->engine, FLUSH_NS);
  }
  qn_engine_destroy(kernels->engine);
  qn_target_release(kernels->target);
  place_close(&kernels->place);
  memset(kernels, 0, sizeof *kernels);
}

qn_status_t kernels_call(kernels_t* kernels, kernel_id_t id, const qn_value_t* args, size_t count,
                         double operation_count) {
  kernel_t* kernel = &kernels->all[id];
  const int64_t start_ns = now_ns();
  qn_status_t status = qn_function_call(kernel->function, args, count, NULL);
  if (kernels->place.is_host) {
    kernel->call_ns += now_ns() - start_ns;
  }
  ++kernel->call_count;
  kernel->operation_count += operation_count;
  return status;
}

void kernels_reset_counts(kernels_t* kernels) {
  for (int i = 0; i < KERNEL_COUNT; ++i) {
    kernels->all[i].call_count = 0;
    kernels->all[i].call_ns = 0;
    kernels->all[i].operation_count = 0.0;
  }
}
