// SPDX-License-Identifier: Apache-2.0
// serve/repository.c: names, folders and the models that serve.
#include "serve/repository.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct named_model {
  struct named_model* next;
  char* folder;
  serve_model_t* model;  // retained; NULL: none serves
  serve_model_state_t state;
  char name[sizeof((serve_listing_t*)0)->name];
  char reason[sizeof((serve_listing_t*)0)->reason];
  uint64_t failure_count;
} named_model_t;

struct serve_repository {
  serve_load_t load;
  void* load_self;
  void (*print_metrics)(void* self, serve_buffer_t* out);  // NULL: nothing
  pthread_mutex_t mutex;
  named_model_t* items;  // in the order in which they were added
};

qn_status_t serve_repository_create(serve_load_t load, void* load_self,
                                    serve_repository_t** out_repository) {
  serve_repository_t* repository = calloc(1, sizeof *repository);
  *out_repository = repository;
  if (!repository) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the models");
  repository->load = load;
  repository->load_self = load_self;
  (void)pthread_mutex_init(&repository->mutex, NULL);
  return QN_OK;
}

void serve_repository_set_metrics(serve_repository_t* repository,
                                  void (*print)(void* self, serve_buffer_t* out)) {
  repository->print_metrics = print;
}

void serve_repository_print_metrics(serve_repository_t* repository, serve_buffer_t* out) {
  if (repository->print_metrics) repository->print_metrics(repository->load_self, out);
}

void serve_repository_destroy(serve_repository_t* repository) {
  if (!repository) return;
  while (repository->items) {
    named_model_t* item = repository->items;
    repository->items = item->next;
    serve_model_release(item->model);
    free(item->folder);
    free(item);
  }
  (void)pthread_mutex_destroy(&repository->mutex);
  free(repository);
}

static named_model_t* find(serve_repository_t* repository, const char* name) {
  named_model_t* item = repository->items;
  while (item && name && strcmp(item->name, name) != 0) item = item->next;
  return item;
}

static bool is_name(const char* name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const size_t size = strlen(name);
  return size > 0 && size < sizeof((named_model_t*)0)->name && strspn(name, letters) == size;
}

qn_status_t serve_repository_add(serve_repository_t* repository, const char* name,
                                 const char* folder) {
  if (!is_name(name)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "'%.150s' is no name for a model: letters, digits, '.', '_' and '-'",
                          name);
  }
  named_model_t* item = calloc(1, sizeof *item);
  char* copy = strdup(folder);
  if (!item || !copy) {
    free(item);
    free(copy);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for model '%s'", name);
  }
  (void)snprintf(item->name, sizeof item->name, "%s", name);
  item->folder = copy;
  (void)pthread_mutex_lock(&repository->mutex);
  const bool is_taken = find(repository, name) != NULL;
  named_model_t** last = &repository->items;
  while (*last) last = &(*last)->next;
  if (!is_taken) *last = item;
  (void)pthread_mutex_unlock(&repository->mutex);
  if (!is_taken) return QN_OK;
  free(item);
  free(copy);
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "there are two models '%s'", name);
}

// Finds a model that is not being loaded, and marks it. Returns NULL with an error otherwise.
static named_model_t* begin_change(serve_repository_t* repository, const char* name,
                                   qn_status_t* out_status) {
  named_model_t* item = name ? find(repository, name) : NULL;
  if (!item) {
    *out_status =
        qn_status_make(QN_STATUS_NOT_FOUND, "there is no model '%.150s'", name ? name : "");
    return NULL;
  }
  if (item->state == SERVE_MODEL_LOADING) {
    *out_status =
        qn_status_make(QN_STATUS_FAILED_PRECONDITION, "model '%s' is being loaded", item->name);
    return NULL;
  }
  item->state = SERVE_MODEL_LOADING;
  return item;
}

qn_status_t serve_repository_load(serve_repository_t* repository, const char* name) {
  qn_status_t status = QN_OK;
  (void)pthread_mutex_lock(&repository->mutex);
  named_model_t* item = begin_change(repository, name, &status);
  (void)pthread_mutex_unlock(&repository->mutex);
  if (!item) return status;
  // Items are never removed, and a marked one is not changed by others.
  serve_model_t* model = NULL;
  status = repository->load(repository->load_self, item->folder, item->name, &model);
  serve_model_t* old = NULL;
  (void)pthread_mutex_lock(&repository->mutex);
  if (qn_ok(status)) {
    old = item->model;
    item->model = model;
    item->state = SERVE_MODEL_READY;
    item->reason[0] = '\0';
  } else {
    item->state = item->model ? SERVE_MODEL_READY : SERVE_MODEL_FAILED;
    ++item->failure_count;
    (void)snprintf(item->reason, sizeof item->reason, "%s", qn_status_message(status));
  }
  (void)pthread_mutex_unlock(&repository->mutex);
  serve_model_release(old);
  return status;
}

qn_status_t serve_repository_unload(serve_repository_t* repository, const char* name) {
  qn_status_t status = QN_OK;
  (void)pthread_mutex_lock(&repository->mutex);
  named_model_t* item = begin_change(repository, name, &status);
  serve_model_t* old = NULL;
  if (item) {
    old = item->model;
    item->model = NULL;
    item->state = SERVE_MODEL_UNLOADED;
    (void)snprintf(item->reason, sizeof item->reason, "unloaded");
  }
  (void)pthread_mutex_unlock(&repository->mutex);
  serve_model_release(old);
  return status;
}

serve_model_t* serve_repository_find(serve_repository_t* repository, const char* name) {
  (void)pthread_mutex_lock(&repository->mutex);
  named_model_t* item = find(repository, name);
  serve_model_t* model = item ? item->model : NULL;
  if (model) serve_model_retain(model);
  (void)pthread_mutex_unlock(&repository->mutex);
  return model;
}

bool serve_repository_is_ready(serve_repository_t* repository) {
  bool is_ready = true;
  (void)pthread_mutex_lock(&repository->mutex);
  for (const named_model_t* item = repository->items; item; item = item->next) {
    const bool is_unloaded = item->state == SERVE_MODEL_UNLOADED && item->reason[0];
    is_ready &= item->model != NULL || is_unloaded;
  }
  (void)pthread_mutex_unlock(&repository->mutex);
  return is_ready;
}

size_t serve_repository_count(serve_repository_t* repository) {
  size_t count = 0;
  (void)pthread_mutex_lock(&repository->mutex);
  for (const named_model_t* item = repository->items; item; item = item->next) ++count;
  (void)pthread_mutex_unlock(&repository->mutex);
  return count;
}

bool serve_repository_list(serve_repository_t* repository, size_t index,
                           serve_listing_t* out_listing) {
  (void)pthread_mutex_lock(&repository->mutex);
  const named_model_t* item = repository->items;
  for (size_t i = 0; i < index && item; ++i) item = item->next;
  if (item) {
    *out_listing = (serve_listing_t){.state = item->state, .failure_count = item->failure_count};
    memcpy(out_listing->name, item->name, sizeof item->name);
    memcpy(out_listing->reason, item->reason, sizeof item->reason);
  }
  (void)pthread_mutex_unlock(&repository->mutex);
  return item != NULL;
}
