// SPDX-License-Identifier: Apache-2.0
// serve/loader.h: from a folder to a model that serves: tokenizer, encoder and kernels, in one
// engine for all models.
//
// Any thread. It counts and logs every compile, with its key.
#ifndef SERVE_LOADER_H_
#define SERVE_LOADER_H_

#include "serve/options.h"
#include "serve/repository.h"

typedef struct serve_loader serve_loader_t;

// Makes the engine. `options` and `trace` (NULL: none) are borrowed until serve_loader_destroy.
// Errors: those of qn_engine_create. Owned: serve_loader_destroy.
QN_MUST_USE qn_status_t serve_loader_create(const serve_options_t* options, serve_trace_t* trace,
                                            serve_loader_t** out_loader);
// Waits until compiled kernels are in the cache. The models must be gone. NULL is ignored.
void serve_loader_destroy(serve_loader_t* loader);

// Loads a model (serve_load_t); `loader` is a serve_loader_t. The model is ready to compute when
// this returns. Errors: those of bert_encoder_open and serve_tokenizer_open; VALUE_ERROR if the
// tokenizer has ids that the model has not.
QN_MUST_USE qn_status_t serve_loader_load(void* loader, const char* folder, const char* name,
                                          serve_model_t** out_model);
// Ends the start: compiles from now on are warnings in the log, and counted apart.
void serve_loader_end_start(serve_loader_t* loader);
// Writes where the kernels of all models came from: "6 compiled", "4 from disk, 2 from memory".
void serve_loader_describe(serve_loader_t* loader, char* out_text, size_t size);
// Writes a bundle of the kernels of all models that were loaded, from the engine's cache directory.
// Errors: FAILED_PRECONDITION if the directory has not all of them; those of qn_cache_dir_open and
// qn_cache_bundle_write. `*out_count` is the number of kernels.
QN_MUST_USE qn_status_t serve_loader_write_bundle(serve_loader_t* loader, const char* path,
                                                  size_t* out_count);
// Returns how often something was compiled.
uint64_t serve_loader_compile_count(serve_loader_t* loader);
// Appends counts of compiles and the engine's metrics (serve_repository_set_metrics).
void serve_loader_print_metrics(void* loader, serve_buffer_t* out);

#endif  // SERVE_LOADER_H_
