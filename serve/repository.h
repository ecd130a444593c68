// SPDX-License-Identifier: Apache-2.0
// serve/repository.h: the models of a server by name, swapped while requests are under way.
//
// Any thread. A model that is found is retained, so it lives as long as its finder needs it.
#ifndef SERVE_REPOSITORY_H_
#define SERVE_REPOSITORY_H_

#include "serve/model.h"

typedef struct serve_repository serve_repository_t;

// Loads the model of a folder; called on the thread that loads. `*out_model` is retained.
typedef qn_status_t (*serve_load_t)(void* self, const char* folder, const char* name,
                                    serve_model_t** out_model);

typedef enum serve_model_state {
  SERVE_MODEL_UNLOADED,
  SERVE_MODEL_LOADING,  // with an older one that serves, or without
  SERVE_MODEL_READY,
  SERVE_MODEL_FAILED,
} serve_model_state_t;

// `reason` says why the last load failed, also where an older model serves; "": it did not.
typedef struct serve_listing {
  char name[128];
  serve_model_state_t state;
  char reason[256];
  uint64_t failure_count;  // loads that failed
} serve_listing_t;

// `load_self` is borrowed. Errors: OUT_OF_MEMORY. Owned: serve_repository_destroy.
QN_MUST_USE qn_status_t serve_repository_create(serve_load_t load, void* load_self,
                                                serve_repository_t** out_repository);
// Sets what is printed with the metrics of models, before other threads use the repository. `self`
// is that of `load`.
void serve_repository_set_metrics(serve_repository_t* repository,
                                  void (*print)(void* self, serve_buffer_t* out));
void serve_repository_print_metrics(serve_repository_t* repository, serve_buffer_t* out);
// Releases all models. NULL is ignored.
void serve_repository_destroy(serve_repository_t* repository);

// Adds a folder under a name; nothing is loaded. Errors: INVALID_ARGUMENT for a name that is taken,
// empty or not made of letters, digits and ._-; OUT_OF_MEMORY.
QN_MUST_USE qn_status_t serve_repository_add(serve_repository_t* repository, const char* name,
                                             const char* folder);
// Loads a model, or loads it again: the new one serves as soon as it is ready, and the old one ends
// with its requests. Errors: NOT_FOUND, FAILED_PRECONDITION while it is being loaded, those of the
// load; the old one then stays.
QN_MUST_USE qn_status_t serve_repository_load(serve_repository_t* repository, const char* name);
// Errors: NOT_FOUND, FAILED_PRECONDITION while it is being loaded.
QN_MUST_USE qn_status_t serve_repository_unload(serve_repository_t* repository, const char* name);

// Returns the model, retained; NULL: there is none of this name, or it is not ready. A name of NULL
// is the first model.
serve_model_t* serve_repository_find(serve_repository_t* repository, const char* name);
// Returns true if every model that was added is ready or was unloaded by hand.
bool serve_repository_is_ready(serve_repository_t* repository);
size_t serve_repository_count(serve_repository_t* repository);
// Describes the model at an index; false beyond the last one.
bool serve_repository_list(serve_repository_t* repository, size_t index,
                           serve_listing_t* out_listing);

#endif  // SERVE_REPOSITORY_H_
