// SPDX-License-Identifier: Apache-2.0
// bench/serve/blocking.c: serve_blocking, the negative control: quern-serve with the policy that a
// new shape waits for its compile.
//
// Before a batch of a size that it never saw it looks up the projections special for that size, and
// waits, as servers do that compile for each shape. Sizes are rounded up to 16 tokens, so that
// there is an end of new ones. A test that calls this server as good as quern-serve sees nothing.
// The linker puts this file's bert_encoder_open before serve's (--wrap); all else is quern-serve,
// and so are its arguments.
#include <stdlib.h>
#include <string.h>

#include "quern/ir.h"
#include "quern/target.h"
#include "serve/bert/encoder.h"
#include "serve/bert/try.h"

// The build makes this table, `texts`, of serve/bert/kernels/*.qn.
#include "bert_kernels.inc"

static const char* const kernel_name = "query_key_value";
enum { STEP = 16 };

typedef struct blocking {
  serve_encoder_t inner;
  qn_engine_t* engine;  // borrowed
  qn_target_t* target;
  qn_module_t* module;
  size_t max_tokens;
  bool* has_seen;  // [max_tokens / STEP + 2]: sizes, in steps
} blocking_t;

qn_status_t __real_bert_encoder_open(const bert_model_options_t* options, const char* folder,
                                     serve_encoder_t* out_encoder, bert_origins_t* out_origins);
qn_status_t __wrap_bert_encoder_open(const bert_model_options_t* options, const char* folder,
                                     serve_encoder_t* out_encoder, bert_origins_t* out_origins);

// Looks the special kernel up; compiles it if no tier of the cache has it.
static qn_status_t wait_for_special(const blocking_t* blocking, size_t token_count) {
  const char* names[] = {"n"};
  const int64_t values[] = {(int64_t)token_count};
  qn_module_t* special = NULL;
  BERT_TRY(qn_module_specialize(blocking->module, names, values, 1, &special));
  qn_function_t* function = NULL;
  qn_status_t status = qn_engine_function(blocking->engine, special, blocking->target, kernel_name,
                                          NULL, NULL, &function);
  qn_function_release(function);
  qn_module_release(special);
  return status;
}

static qn_status_t run(void* self, serve_batch_t* batch) {
  blocking_t* blocking = self;
  const size_t steps = (batch->token_count + STEP - 1) / STEP;
  if (batch->token_count <= blocking->max_tokens && !blocking->has_seen[steps]) {
    BERT_TRY(wait_for_special(blocking, steps * STEP));
    blocking->has_seen[steps] = true;
  }
  return blocking->inner.run(blocking->inner.self, batch);
}

static void set_busy(void* self, bool is_busy) {
  const blocking_t* blocking = self;
  blocking->inner.set_busy(blocking->inner.self, is_busy);
}

static void destroy(void* self) {
  blocking_t* blocking = self;
  if (blocking->inner.self) blocking->inner.destroy(blocking->inner.self);
  qn_module_release(blocking->module);
  qn_target_release(blocking->target);
  free(blocking->has_seen);
  free(blocking);
}

static qn_status_t open(const bert_model_options_t* options, const char* folder,
                        blocking_t* blocking, bert_origins_t* out_origins) {
  BERT_TRY(__real_bert_encoder_open(options, folder, &blocking->inner, out_origins));
  const embedded_text_t* text = texts;
  while (strcmp(text->name, kernel_name) != 0) ++text;
  BERT_TRY(qn_module_parse(text->data, text->size, NULL, &blocking->module));
  BERT_TRY(qn_target_parse(options->target, &blocking->target));
  blocking->engine = options->engine;
  blocking->max_tokens = options->max_tokens;
  blocking->has_seen = calloc(blocking->max_tokens / STEP + 2, sizeof *blocking->has_seen);
  if (blocking->has_seen) return QN_OK;
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the shapes of a model");
}

qn_status_t __wrap_bert_encoder_open(const bert_model_options_t* options, const char* folder,
                                     serve_encoder_t* out_encoder, bert_origins_t* out_origins) {
  blocking_t* blocking = calloc(1, sizeof *blocking);
  if (!blocking) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for an encoder");
  qn_status_t status = open(options, folder, blocking, out_origins);
  if (!qn_ok(status)) {
    destroy(blocking);
    return status;
  }
  *out_encoder = blocking->inner;
  out_encoder->self = blocking;
  out_encoder->run = run;
  out_encoder->set_busy = set_busy;
  out_encoder->destroy = destroy;
  return QN_OK;
}
