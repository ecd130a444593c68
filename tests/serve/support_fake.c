// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_fake.c: batches of the fake encoder.
#include "tests/serve/support_fake.h"

#include <string.h>
#include <time.h>

static void wait_while(const atomic_bool* flag) {
  while (atomic_load(flag)) (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static qn_status_t run_fake(void* self, serve_batch_t* batch) {
  fake_t* me = self;
  (void)atomic_fetch_add(&me->batches, 1);
  wait_while(&me->is_blocked);
  if (atomic_load(&me->fails)) return qn_status_make(QN_STATUS_DEVICE_ERROR, "the device is lost");
  memset(batch->pooled, 0, batch->sequence_count * me->width * sizeof(float));
  for (size_t i = 0; i < batch->sequence_count; ++i) {
    float* row = batch->pooled + i * me->width;
    row[0] = 3;
    row[1] = 4;
    row[2] = (float)(batch->offsets[i + 1] - batch->offsets[i]);
  }
  if (!batch->has_tokens) return QN_OK;
  memset(batch->tokens, 0, batch->token_count * me->width * sizeof(float));
  for (size_t i = 0; i < batch->token_count; ++i) {
    float* row = batch->tokens + i * me->width;
    row[0] = (float)batch->ids[i];
    row[1] = (float)batch->positions[i];
  }
  return QN_OK;
}

static void destroy_fake(void* self) {
  (void)self;
}

qn_status_t fake_load(void* self, const char* folder, const char* name, serve_model_t** out_model) {
  fake_t* me = self;
  *out_model = NULL;
  wait_while(&me->holds_load);
  serve_tokenizer_t* tokenizer = NULL;
  qn_status_t status = serve_tokenizer_open(folder, NULL, &tokenizer);
  if (!qn_ok(status)) return status;
  const serve_encoder_t encoder = {.self = self,
                                   .width = me->width,
                                   .max_tokens = me->max_tokens,
                                   .kind = "fake",
                                   .device = "cpu",
                                   .run = run_fake,
                                   .destroy = destroy_fake};
  return serve_model_create(name, tokenizer, &encoder, &me->limits, out_model);
}
