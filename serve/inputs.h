// SPDX-License-Identifier: Apache-2.0
// serve/inputs.h: parts of requests that text-embeddings-inference and OpenAI have in common.
#ifndef SERVE_INPUTS_H_
#define SERVE_INPUTS_H_

#include "serve/call.h"
#include "serve/json.h"

// Reads an input, which is a text or a list of ids, or a list of inputs, and adds them to a call.
// A list of numbers is one input. Returns false with an error of the JSON or, beyond the limits,
// with `error`. A second call for the same request is an error of the JSON.
bool serve_inputs_read(serve_json_t* json, serve_call_t* call, const serve_call_limits_t* limits,
                       serve_error_t* error);
// Reads a positive number of dimensions.
bool serve_inputs_read_dimensions(serve_json_t* json, serve_call_t* call);

#endif  // SERVE_INPUTS_H_
