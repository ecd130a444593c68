// SPDX-License-Identifier: Apache-2.0
// jit/engine/request.h: the checked inputs of a lookup, and the key that they make (key.c).
#ifndef QUERN_JIT_REQUEST_H_
#define QUERN_JIT_REQUEST_H_

#include "base/buffer.h"
#include "jit/engine/table.h"

// The inputs of one lookup, with defaults resolved. Borrowed.
typedef struct qn__request {
  qn_module_t* module;
  qn_target_t* target;
  qn_tier_t tier;
  bool is_checked;
  qn_device_t device;  // on which the code runs
  qn_miss_policy_t miss;
  bool is_forbidden;   // a miss is an error
  bool is_ahead;       // only the tiers get the entry: nothing is loaded (ahead.c)
  bool is_background;  // of the background's thread, which compiles it itself (background.c)
  int64_t timeout_ns;  // 0: none
  int32_t priority;
  qn_module_t* generic;
} qn__request_t;
// Errors: INVALID_ARGUMENT for values that are none of the enumeration.
qn_status_t qn__request_init(const qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                             const qn_lookup_options_t* options, qn__request_t* out_request);
// Makes the ident of the request's executable within its engine.
qn__ident_t qn__request_ident(const qn__request_t* request);

// Makes the key and its preimage. The caller initialises the buffer.
qn_status_t qn__key_make(const qn__request_t* request, const char* generator_identity,
                         const char* cache_namespace, qn__buffer_t* out_preimage,
                         qn_hash128_t* out_key);
// Writes a key in digits, and as "softmax@0123456789ab" for people.
void qn__key_describe(const qn__request_t* request, qn_hash128_t key, char out_hex[33],
                      char out_name[128]);
// The first function's name, for messages.
const char* qn__request_name(const qn__request_t* request);
// Makes the request for a generator, from the same inputs as the key.
qn_compile_request_t qn__compile_request(const qn__request_t* request);

#endif  // QUERN_JIT_REQUEST_H_
