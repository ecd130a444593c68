// SPDX-License-Identifier: Apache-2.0
// bench/serve/protocol.h: requests for embeddings in the words of a protocol, and the check of
// their answers.
//
// | protocol   | request                      | answer                                            |
// |------------|------------------------------|---------------------------------------------------|
// | oip        | POST /v2/models/NAME/infer   | outputs of JSON numbers                           |
// | oip-binary | the same                     | outputs as bytes behind the JSON; ids go that way |
// | tei        | POST /embed                  | [[number]]                                        |
// | openai     | POST /v1/embeddings          | data[].embedding, numbers or base64               |
//
// Reads answers with jansson and by hand, not with the code of a server under test: an error that
// both share would not be seen.
#ifndef BENCH_SERVE_PROTOCOL_H_
#define BENCH_SERVE_PROTOCOL_H_

#include "bench/serve/trace.h"

typedef enum protocol_kind {
  PROTOCOL_OIP,
  PROTOCOL_OIP_BINARY,
  PROTOCOL_TEI,
  PROTOCOL_OPENAI
} protocol_kind_t;

typedef struct protocol {
  protocol_kind_t kind;
  const char* host;    // for the header Host
  const char* prefix;  // of the path: "" or "/some/where"
  const char* model;   // NULL: none; OIP needs one
  const char* key;     // NULL: no Authorization
  // OIP: names of inputs, separated by commas. Of texts one; of ids up to three: ids, mask, types.
  // NULL: "text", or "input_ids,attention_mask".
  const char* inputs;
  const char* output;  // OIP: NULL: the first of the answer
  bool sends_ids;      // token ids instead of texts; only for requests with lengths
  bool sends_column;   // OIP: texts have the shape [texts, 1], as Triton's batcher needs them
  bool wants_floats;   // OpenAI: "float" instead of "base64"
} protocol_t;

// Returns false for an unknown name.
bool protocol_parse(const char* name, protocol_kind_t* out_kind);
// Returns what is wrong with this combination, or NULL.
const char* protocol_problem(const protocol_t* protocol, const trace_t* trace);
// Appends the whole HTTP request number `index` of the trace.
void protocol_render(const protocol_t* protocol, const trace_t* trace, size_t index,
                     qn__buffer_t* request);

// The embeddings of an answer: `count` rows of `width` values.
typedef struct protocol_answer {
  size_t count;
  size_t width;
  float* values;  // owned: protocol_answer_free
} protocol_answer_t;

// Reads an answer. `json_bytes` is the header Inference-Header-Content-Length, -1 if there was
// none. `index` is compared with the id of an OIP answer. Returns NULL, or what is wrong.
const char* protocol_read(const protocol_t* protocol, size_t index, const uint8_t* body,
                          size_t size, int64_t json_bytes, protocol_answer_t* out_answer);
void protocol_answer_free(protocol_answer_t* answer);

#endif  // BENCH_SERVE_PROTOCOL_H_
