// SPDX-License-Identifier: Apache-2.0
// examples/plugin/c/device.c: a device whose memory handles are small numbers and whose streams are
// threads, a kind of targets, and the plugin that has both. generator.c is the code generator, a
// shared object of its own that only misses open. docs/new-backend.md goes through both.
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quern/backend.h"

enum { DEVICE_C = 42 };

// One lock and one signal for everything that is not a kernel.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static qn_status_t no_memory(void) {
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "c: no memory");
}

// ---- memory: handles are small numbers, each for an allocation of the host's. A new one gets the
// first gap that is large enough.

typedef struct block {
  struct block* next;  // with a larger handle
  uintptr_t handle;
  size_t size_bytes;
  char* bytes;
} block_t;
static block_t* blocks;

// Returns the address of a handle, or of a number within its range. NULL: there is none.
static char* address_of(uintptr_t number) {
  (void)pthread_mutex_lock(&lock);
  const block_t* b = blocks;
  while (b && number - b->handle >= b->size_bytes) b = b->next;  // a difference below 0 is large
  char* address = b ? b->bytes + (number - b->handle) : NULL;
  (void)pthread_mutex_unlock(&lock);
  return address;
}

static qn_status_t allocate(int32_t id, size_t size_bytes, size_t alignment_bytes, void** out) {
  (void)id;
  size_t alignment = alignment_bytes > 64 ? alignment_bytes : 64;
  void* bytes = NULL;
  block_t *b = malloc(sizeof *b), **at = &blocks;
  if (!b || size_bytes > SIZE_MAX / 4 || posix_memalign(&bytes, alignment, size_bytes + 1) != 0) {
    free(b);
    return no_memory();
  }
  *b = (block_t){NULL, alignment, size_bytes + 1, bytes};  // 0 bytes have a number as well
  (void)pthread_mutex_lock(&lock);
  for (; *at && (*at)->handle < b->handle + b->size_bytes; at = &(*at)->next) {
    b->handle = ((*at)->handle + (*at)->size_bytes + alignment - 1) / alignment * alignment;
  }
  b->next = *at, *at = b;
  *out = (void*)b->handle;
  (void)pthread_mutex_unlock(&lock);
  return QN_OK;
}

static qn_status_t release(int32_t id, void* handle) {
  (void)id;
  (void)pthread_mutex_lock(&lock);
  block_t** at = &blocks;
  while (*at && (*at)->handle != (uintptr_t)handle) at = &(*at)->next;
  block_t* b = *at;
  if (b) *at = b->next;
  (void)pthread_mutex_unlock(&lock);
  if (!b) return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "c: no allocation has this handle");
  free(b->bytes), free(b);
  return QN_OK;
}

// ---- streams: each is a thread that runs tasks in order; the default one is the caller

typedef int32_t (*kernel_t)(const uint64_t* words, qn_kernel_failure_t* failure);

typedef struct task {
  struct task* next;
  kernel_t kernel;  // with `launch` and `words`; or
  uint64_t serial;  // a wait for the stream of this serial to have done `target` tasks; or a copy
  uint64_t target;
  char *to, *from;
  size_t size_bytes;
  qn_launch_t launch;
  uint64_t words[];
} task_t;

typedef struct stream {
  struct stream* next;  // in the list of all
  uint64_t serial;
  pthread_t thread;
  task_t *first, **last;
  uint64_t queued, done;
  bool is_closing;
  qn_status_t error;  // the first one
} stream_t;
static stream_t* streams;
static uint64_t next_serial = 1;

static task_t* new_task(uint32_t word_count) {
  return calloc(1, sizeof(task_t) + word_count * sizeof(uint64_t));
}

// Returns whether a stream has done so many tasks; one that is gone has done all. Holds the lock.
static bool has_done(uint64_t serial, uint64_t target) {
  const stream_t* s = streams;
  while (s && s->serial != serial) s = s->next;
  return !s || s->done >= target;
}

// Waits for all that is queued. NULL: the default stream's work is always done.
static void drain(const stream_t* stream) {
  (void)pthread_mutex_lock(&lock);
  for (uint64_t target = stream ? stream->queued : 0; stream && stream->done < target;) {
    (void)pthread_cond_wait(&changed, &lock);
  }
  (void)pthread_mutex_unlock(&lock);
}

static qn_status_t run(task_t* task, bool is_skipped) {
  qn_kernel_failure_t failure = {0, 0, 0};
  qn_status_t status = QN_OK;
  if (!is_skipped && task->size_bytes) memcpy(task->to, task->from, task->size_bytes);
  if (!is_skipped && task->kernel && task->kernel(task->words, &failure) != 0) {
    status = task->launch.describe(task->launch.owner, &failure);
  }
  if (task->kernel) task->launch.release(task->launch.owner);
  free(task);
  return status;
}

static void* run_stream(void* self) {
  stream_t* s = self;
  (void)pthread_mutex_lock(&lock);
  for (;;) {
    task_t* task = s->first;
    if (!task && s->is_closing) break;
    if (!task || !has_done(task->serial, task->target)) {
      (void)pthread_cond_wait(&changed, &lock);
      continue;
    }
    s->first = task->next;
    if (!s->first) s->last = &s->first;
    bool is_skipped = !qn_ok(s->error);
    (void)pthread_mutex_unlock(&lock);
    qn_status_t status = run(task, is_skipped);
    (void)pthread_mutex_lock(&lock);
    if (!is_skipped) s->error = status;
    s->done++;
    (void)pthread_cond_broadcast(&changed);
  }
  (void)pthread_mutex_unlock(&lock);
  return NULL;
}

// Runs a task on the default stream, or queues it.
static qn_status_t submit(stream_t* stream, task_t* task) {
  if (!stream) return run(task, false);
  (void)pthread_mutex_lock(&lock);
  *stream->last = task;
  stream->last = &task->next;
  stream->queued++;
  (void)pthread_cond_broadcast(&changed);
  (void)pthread_mutex_unlock(&lock);
  return QN_OK;
}

static qn_status_t stream_create(int32_t id, void** out_stream) {
  (void)id;
  stream_t* s = calloc(1, sizeof *s);
  if (!s) return no_memory();
  s->last = &s->first;
  (void)pthread_mutex_lock(&lock);
  s->serial = next_serial++;
  bool is_running = pthread_create(&s->thread, NULL, run_stream, s) == 0;
  if (is_running) s->next = streams, streams = s;
  (void)pthread_mutex_unlock(&lock);
  if (!is_running) free(s);
  *out_stream = is_running ? s : NULL;
  return is_running ? QN_OK : no_memory();
}

static void stream_destroy(int32_t id, void* stream) {
  (void)id;
  stream_t* s = stream;
  (void)pthread_mutex_lock(&lock);
  s->is_closing = true;
  (void)pthread_cond_broadcast(&changed);
  (void)pthread_mutex_unlock(&lock);
  (void)pthread_join(s->thread, NULL);
  (void)pthread_mutex_lock(&lock);
  stream_t** at = &streams;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  (void)pthread_mutex_unlock(&lock);
  qn_status_free(s->error);
  free(s);
}

static qn_status_t stream_sync(int32_t id, void* stream) {
  (void)id;
  stream_t* s = stream;
  drain(s);
  (void)pthread_mutex_lock(&lock);
  qn_status_t error = s ? s->error : QN_OK;
  if (s) s->error = QN_OK;
  (void)pthread_mutex_unlock(&lock);
  return error;
}

static qn_status_t stream_wait(int32_t id, void* from, void* to) {
  (void)id;
  if (!to) drain(from);
  if (!to || !from) return QN_OK;
  task_t* task = new_task(0);
  if (!task) return no_memory();
  (void)pthread_mutex_lock(&lock);
  task->serial = ((stream_t*)from)->serial;
  task->target = ((stream_t*)from)->queued;
  (void)pthread_mutex_unlock(&lock);
  return submit(to, task);
}

// Host memory that is not pinned is free on return, so such a copy waits.
static qn_status_t copy(int32_t id, void* stream, const qn_copy_t* copy) {
  (void)id;
  bool is_from = copy->from_device.type == DEVICE_C, is_to = copy->to_device.type == DEVICE_C;
  char* from = is_from ? address_of((uintptr_t)copy->from) : (char*)(uintptr_t)copy->from;
  char* to = is_to ? address_of((uintptr_t)copy->to) : copy->to;
  if (!from || !to) return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "c: no allocation to copy");
  task_t* task = new_task(0);
  if (!task) return no_memory();
  task->from = from + copy->from_offset_bytes;
  task->to = to + copy->to_offset_bytes;
  task->size_bytes = copy->size_bytes;
  bool is_queued = copy->is_host_pinned || (is_from && is_to);
  if (!is_queued) drain(stream);
  return submit(is_queued ? stream : NULL, task);
}

// ---- code: a shared object with the functions call0, call1, ... and for each a text, params0,
// params1, ..., which has a letter for each parameter: 'b' is a buffer

static bool accepts(const char* format) {
  return strcmp(format, "c-1") == 0;
}

static void unload(int32_t id, void* library) {
  (void)id, (void)dlclose(library);
}

static qn_status_t load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_library) {
  (void)options;
  qn_status_t status = qn_target_check_isa(artifact->isa, DEVICE_C, id);
  if (!qn_ok(status)) return status;
  char path[] = "/tmp/quern-c-XXXXXX";
  int file = mkstemp(path);
  ssize_t size = write(file, artifact->payload, artifact->payload_size);
  *out_library = size == (ssize_t)artifact->payload_size ? dlopen(path, RTLD_NOW) : NULL;
  (void)close(file), (void)unlink(path);
  if (*out_library) return QN_OK;
  return qn_status_make(QN_STATUS_DATA_LOSS,
                        "c: no shared object of this machine, or /tmp is full");
}

static void* symbol_of(void* library, const char* kind, uint32_t index) {
  char name[24];
  (void)snprintf(name, sizeof name, "%s%u", kind, (unsigned)index);
  return dlsym(library, name);
}

static qn_status_t launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  (void)id;
  void* symbol = symbol_of(executable, "call", index);
  const char* params = symbol_of(executable, "params", index);
  if (!symbol || !params) return qn_status_make(QN_STATUS_DATA_LOSS, "c: no function %u", index);
  task_t* task = new_task(launch->word_count);
  if (!task) return no_memory();
  memcpy(&task->kernel, &symbol, sizeof symbol);
  memcpy(task->words, launch->words, launch->word_count * sizeof(uint64_t));
  for (size_t i = 0; params[i]; i++) {
    if (params[i] == 'b') task->words[i] = (uintptr_t)address_of(task->words[i]);
  }
  task->launch = *launch;
  launch->retain(launch->owner);
  return submit(stream, task);
}

// ---- tables

static qn_status_t attribute(int32_t id, qn_attribute_t attribute, qn_attribute_value_t* out) {
  (void)id;
  if (attribute == QN_ATTRIBUTE_DEVICE_NAME) {
    out->type = QN_ATTRIBUTE_TYPE_STRING;
    memcpy(out->string_value, "the host, by its C compiler", 28);
  }
  return QN_OK;
}

// The machine's level, as x86-64-v3 is 3; 0 elsewhere.
static qn_status_t target_property(int32_t id, const char* name, qn_attribute_value_t* out) {
  (void)id;
  if (strcmp(name, "level") != 0) return QN_OK;
  out->type = QN_ATTRIBUTE_TYPE_INT;
#ifdef __x86_64__
  bool has_2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  bool has_3 = has_2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2");
  out->int_value = has_3 ? 3 : has_2 ? 2 : 1;
#endif
  return QN_OK;
}

static const qn_device_table_t device = {.abi_version = QN_DEVICE_ABI_VERSION,
                                         .struct_size = sizeof(qn_device_table_t),
                                         .type = DEVICE_C,
                                         .name = "c",
                                         .attribute = attribute,
                                         .allocate = allocate,
                                         .free = release,
                                         .copy = copy,
                                         .stream_create = stream_create,
                                         .stream_destroy = stream_destroy,
                                         .stream_sync = stream_sync,
                                         .stream_wait = stream_wait,
                                         .accepts = accepts,
                                         .load = load,
                                         .unload = unload,
                                         .launch = launch,
                                         .target_property = target_property};
static const qn_option_info_t options[] = {
    {"level", QN_OPTION_INT, "0", true, "the least x86-64-vN that runs the code; 0: any machine", 0,
     3},
};
static const qn_target_kind_info_t kind = {
    sizeof kind, "c", "code by the C compiler of the machine", "c", DEVICE_C, 1, options};
// The engine makes the generator's identity, of its object's build id and of the compiler's.
static const char* const files[] = {"cc"};
static const qn_generator_info_t info = {sizeof info, "c", "c_generator.so", 1, files, 0, NULL};

QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version);
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version) {
  static const qn_device_table_t* const devices[] = {&device};
  static const qn_target_kind_info_t* const kinds[] = {&kind};
  static const qn_generator_info_t* const infos[] = {&info};
  static const qn_plugin_t plugin = {
      QN_PLUGIN_ABI_VERSION, sizeof plugin, "c", 1, devices, 0, NULL, 1, kinds, 1, infos};
  return abi_version == QN_PLUGIN_ABI_VERSION ? &plugin : NULL;
}
