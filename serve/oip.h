// SPDX-License-Identifier: Apache-2.0
// serve/oip.h: the Open Inference Protocol, version 2, over HTTP: parts of its files.
//
// oip.c has health, metadata and the routes; oip_request.c reads requests; oip_tensor.c their
// tensors; oip_infer.c answers them; oip_stats.c and oip_repository.c are Triton's extensions.
#ifndef SERVE_OIP_H_
#define SERVE_OIP_H_

#include "serve/server.h"

// The inputs of a model: texts, or ids with a mask that is all ones if it is left out.
typedef enum serve_oip_input {
  SERVE_OIP_TEXT,  // BYTES [-1]
  SERVE_OIP_IDS,   // INT64 [-1, -1]
  SERVE_OIP_MASK,  // INT64 [-1, -1]: of each row ones, then zeros
  SERVE_OIP_INPUT_COUNT
} serve_oip_input_t;

enum { SERVE_OIP_MAX_RANK = 2 };

typedef struct serve_oip_kind {
  const char* name;
  const char* datatype;     // of the protocol
  const char* config_type;  // of Triton's model configuration
  size_t rank;              // each of its dimensions is -1
} serve_oip_kind_t;

extern const serve_oip_kind_t serve_oip_kinds[SERVE_OIP_INPUT_COUNT];

// An input tensor of a request. Texts go to the call, integers to `values`.
typedef struct serve_oip_tensor {
  bool is_given;
  bool has_shape;
  bool has_texts;        // its JSON data were texts
  bool has_values;       // its JSON data were integers
  bool is_binary;        // its data follow the JSON
  int64_t binary_bytes;  // of it
  size_t rank;
  int64_t shape[SERVE_OIP_MAX_RANK];
  serve_buffer_t values;  // int64_t
} serve_oip_tensor_t;

// A request, and what its answer needs to know of it.
typedef struct serve_oip_infer {
  serve_visit_t* visit;
  serve_buffer_t id;  // of the request
  bool has_id;
  bool is_binary;  // the answer
  serve_oip_tensor_t tensors[SERVE_OIP_INPUT_COUNT];
  serve_oip_input_t order[SERVE_OIP_INPUT_COUNT];  // in which inputs were given
  size_t input_count;
} serve_oip_infer_t;

// Reads the body of a request into `visit->call` and `infer`. False with an error.
bool serve_oip_read(serve_oip_infer_t* infer);

// Reads the array 'data' of a tensor, flat or nested.
bool serve_oip_read_data(serve_json_t* json, serve_oip_infer_t* infer, serve_oip_tensor_t* tensor);
// Reads the bytes after the JSON, from `at` to the end of the body.
bool serve_oip_read_binary(serve_oip_infer_t* infer, size_t at);
// Checks which tensors there are and their shapes, and makes inputs of the call of integers.
bool serve_oip_take_tensors(serve_oip_infer_t* infer);

// Finds the model of the path, retained, and checks its version. NULL with an error.
serve_model_t* serve_oip_model(serve_visit_t* visit);

bool serve_oip_handle_infer(serve_visit_t* visit, serve_buffer_t* out);
bool serve_oip_write_infer(serve_visit_t* visit, serve_buffer_t* out);
bool serve_oip_handle_stats(serve_visit_t* visit, serve_buffer_t* out);
bool serve_oip_handle_all_stats(serve_visit_t* visit, serve_buffer_t* out);
bool serve_oip_handle_index(serve_visit_t* visit, serve_buffer_t* out);
bool serve_oip_handle_load(serve_visit_t* visit, serve_buffer_t* out);
bool serve_oip_handle_unload(serve_visit_t* visit, serve_buffer_t* out);
bool serve_oip_write_change(serve_visit_t* visit, serve_buffer_t* out);

#endif  // SERVE_OIP_H_
