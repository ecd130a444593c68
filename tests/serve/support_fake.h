// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_fake.h: an encoder whose results tell which tokens it got.
//
// A sentence has the result {3, 4, number of tokens, 0, ...}; a token has {id, position, 0, ...}.
#ifndef QUERN_TESTS_SERVE_SUPPORT_FAKE_H_
#define QUERN_TESTS_SERVE_SUPPORT_FAKE_H_

#include <stdatomic.h>

#include "serve/model.h"

typedef struct fake {
  size_t width;  // of a result, at least 3
  size_t max_tokens;
  serve_model_limits_t limits;
  // Tests change and read these while it runs.
  atomic_bool is_blocked;
  atomic_bool holds_load;  // a load waits until it is false
  atomic_bool fails;
  atomic_int batches;  // that it began
} fake_t;

// Loads a model of a fake_t, `self`, which is borrowed, with the tokenizer of a folder. It is a
// serve_load_t.
qn_status_t fake_load(void* self, const char* folder, const char* name, serve_model_t** out_model);

#endif  // QUERN_TESTS_SERVE_SUPPORT_FAKE_H_
