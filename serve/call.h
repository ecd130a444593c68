// SPDX-License-Identifier: Apache-2.0
// serve/call.h: one request for embeddings, whatever its protocol: texts or ids in, vectors out.
//
// A protocol fills the inputs in, submits the call, and writes its results when it has ended. One
// thread at a time, but for the queue (request.h).
#ifndef SERVE_CALL_H_
#define SERVE_CALL_H_

#include "serve/error.h"
#include "serve/model.h"

typedef struct serve_call_limits {
  size_t max_texts;
  size_t max_text_tokens;  // 0: those of the model
  int64_t timeout_ns;      // of calls that name none; 0: none
} serve_call_limits_t;

typedef struct serve_call {
  serve_request_t request;
  serve_model_t* model;  // retained; NULL until the protocol has chosen it

  // Inputs: texts, or ids if `has_ids`.
  serve_buffer_t texts;  // one after another
  serve_buffer_t ends;   // size_t: of each text in `texts`, or of each list in `ids`
  serve_buffer_t ids;    // int32_t
  bool has_ids;
  bool truncates;  // cuts inputs that are too long, which is an error otherwise
  serve_truncation_t direction;
  bool normalizes;     // scales pooled results to unit length
  bool wants_tokens;   // the results of tokens instead of pooled ones
  size_t dimensions;   // the first numbers of each vector; 0: all
  int64_t timeout_ns;  // from `start_ns`; 0: that of the limits
  int64_t start_ns;    // of the exchange

  serve_buffer_t offsets;  // size_t: of the tokens of each input
  float* results;
  int64_t encode_start_ns;
  int64_t encode_ns;       // that tokenising took
  size_t truncated_count;  // inputs that were cut
} serve_call_t;

// Makes an empty call, which needs a model before it is submitted. NULL without memory. Owned:
// serve_call_destroy.
serve_call_t* serve_call_create(int64_t start_ns);
void serve_call_destroy(serve_call_t* call);

// Ends an input: what was appended to `texts` or `ids` since the last one. Returns false with an
// error beyond the number that the limits allow.
bool serve_call_end_input(serve_call_t* call, const serve_call_limits_t* limits,
                          serve_error_t* error);
size_t serve_call_count(const serve_call_t* call);
// Returns an input's text. Not terminated.
const char* serve_call_text(const serve_call_t* call, size_t index, size_t* out_size);

// Returns the ids of an input that was given as ids; NULL if there are none.
const int32_t* serve_call_ids(const serve_call_t* call, size_t index, size_t* out_count);

// Tokenises, checks the inputs, and queues the request; `done` is called once if this returns true.
bool serve_call_submit(serve_call_t* call, const serve_call_limits_t* limits,
                       void (*done)(serve_request_t*), serve_error_t* error);
// After done: returns true if there are results, and finishes them (unit length); counts the
// outcome in the model's metrics.
bool serve_call_complete(serve_call_t* call, serve_error_t* error);

// Frees inputs and results after the answer was written; the numbers of inputs and tokens stay.
void serve_call_trim(serve_call_t* call);

// Returns how many tokens an input has, and all of them have.
size_t serve_call_tokens(const serve_call_t* call, size_t index);
size_t serve_call_all_tokens(const serve_call_t* call);
// Returns the length of each vector, and the vector of an input, or of one of its tokens.
size_t serve_call_width(const serve_call_t* call);
const float* serve_call_vector(const serve_call_t* call, size_t input, size_t token);

#endif  // SERVE_CALL_H_
