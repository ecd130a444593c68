// SPDX-License-Identifier: Apache-2.0
// bench/serve/peers/onnxruntime_encoder.h: ONNX Runtime behind the seam of the server's encoders.
#ifndef BENCH_SERVE_PEERS_ONNXRUNTIME_ENCODER_H_
#define BENCH_SERVE_PEERS_ONNXRUNTIME_ENCODER_H_

#include "serve/encoder.h"

typedef struct onnxruntime_options {
  const char* graph;     // a .onnx file: input_ids, attention_mask, token_type_ids -> embedding
  int threads;           // of a call, the caller with them
  bool spins;            // threads that have no work poll for some time
  bool has_pattern;      // memory of a call is planned by its shape
  bool pads_all;         // a batch is one call, padded to its longest sequence
  size_t call_cost;      // else: what a call costs, in tokens
  size_t call_tokens;    // else: padded tokens of a call
  size_t max_tokens;     // of a batch
  size_t max_sequences;  // of a batch
} onnxruntime_options_t;

// Loads the graph for the model of a folder (serve/bert/config.h). Errors: those of
// bert_config_read; UNAVAILABLE with ONNX Runtime's message; OUT_OF_MEMORY. `*out_encoder` is
// owned: its destroy(). It has pooled results alone.
QN_MUST_USE qn_status_t onnxruntime_encoder_open(const onnxruntime_options_t* options,
                                                 const char* folder, serve_encoder_t* out_encoder);

#endif  // BENCH_SERVE_PEERS_ONNXRUNTIME_ENCODER_H_
