// SPDX-License-Identifier: Apache-2.0
// serve/model.c: the thread of a model, the shapes that it has seen, and scratches of its
// tokenizer.
#include "serve/model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "serve/clock.h"

enum {
  MAX_SHAPES = 1 << 16,  // that are remembered; more shapes push others out
  MAX_SCRATCHES = 64,    // that wait for a caller
};

struct serve_model {
  atomic_size_t reference_count;
  char* name;
  serve_tokenizer_t* tokenizer;
  serve_encoder_t encoder;
  serve_queue_t* queue;
  serve_batch_t* batch;
  serve_metrics_t metrics;
  serve_trace_t* trace;  // borrowed; NULL: none
  uint64_t* shapes;      // [MAX_SHAPES]: digests at their place; 0: none
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t mutex;  // of the scratches
  serve_scratch_t* scratches[MAX_SCRATCHES];
  size_t scratch_count;
};

// Notes the shape of a batch: all that a kernel can see of it. Returns true the first time.
static bool is_first_seen(serve_model_t* model, const serve_batch_t* batch) {
  const uint64_t facts[] = {batch->sequence_count, batch->token_count, batch->longest,
                            batch->has_tokens};
  uint64_t digest = UINT64_C(0x9e3779b97f4a7c15);
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; ++i) {
    digest = (digest ^ facts[i]) * UINT64_C(0xff51afd7ed558ccd);
    digest ^= digest >> 32;
  }
  digest |= 1;  // never 0
  uint64_t* place = &model->shapes[digest >> 48 & (MAX_SHAPES - 1)];
  const bool is_new = *place != digest;
  *place = digest;
  return is_new;
}

static void run_batch(serve_model_t* model) {
  serve_batch_t* batch = model->batch;
  serve_metrics_t* metrics = &model->metrics;
  batch->is_first_seen = is_first_seen(model, batch);
  batch->thread = serve_trace_thread();
  batch->computed_ns = serve_now_ns();
  qn_status_t status = model->encoder.run(model->encoder.self, batch);
  batch->compute_ns = serve_now_ns() - batch->computed_ns;
  const uint64_t compute_ns = (uint64_t)batch->compute_ns;
  serve_metrics_add(metrics, SERVE_COUNTER_BATCHES, 1);
  serve_metrics_add(metrics, SERVE_COUNTER_SEQUENCES, batch->sequence_count);
  serve_metrics_add(metrics, SERVE_COUNTER_TOKENS, batch->token_count);
  serve_metrics_note(metrics, SERVE_HISTOGRAM_COMPUTE, compute_ns);
  serve_metrics_note(metrics, SERVE_HISTOGRAM_BATCH_SEQUENCES, batch->sequence_count);
  serve_metrics_note(metrics, SERVE_HISTOGRAM_BATCH_TOKENS, batch->token_count);
  if (batch->is_first_seen) {
    serve_metrics_add(metrics, SERVE_COUNTER_FIRST_SEEN, 1);
    serve_metrics_note(metrics, SERVE_HISTOGRAM_FIRST_SEEN_COMPUTE, compute_ns);
  }
  serve_trace_batch_t record = {.number = batch->number, .sequences = batch->sequence_count};
  record.tokens = batch->token_count;
  record.is_first_seen = batch->is_first_seen;
  record.compute = (serve_trace_span_t){batch->computed_ns, batch->computed_ns + batch->compute_ns,
                                        batch->thread};
  record.whole = (serve_trace_span_t){batch->taken_ns, 0, batch->thread};
  serve_queue_finish(model->queue, batch, status);
  if (!model->trace) return;
  record.whole.end_ns = serve_now_ns();
  (void)snprintf(record.model, sizeof record.model, "%s", model->name);
  serve_trace_add_batch(model->trace, &record);
}

static void* run(void* self) {
  serve_model_t* model = self;
  while (serve_queue_take(model->queue, model->batch)) run_batch(model);
  return NULL;
}

static void destroy(serve_model_t* model) {
  if (model->has_thread) {
    serve_queue_stop(model->queue, false);
    (void)pthread_join(model->thread, NULL);
  }
  serve_queue_destroy(model->queue);
  serve_batch_destroy(model->batch);
  while (model->scratch_count > 0) serve_scratch_free(model->scratches[--model->scratch_count]);
  serve_tokenizer_close(model->tokenizer);
  model->encoder.destroy(model->encoder.self);
  (void)pthread_mutex_destroy(&model->mutex);
  free(model->shapes);
  free(model->name);
  free(model);
}

qn_status_t serve_model_create(const char* name, serve_tokenizer_t* tokenizer,
                               const serve_encoder_t* encoder, const serve_model_limits_t* limits,
                               serve_model_t** out_model) {
  *out_model = NULL;
  serve_model_t* model = calloc(1, sizeof *model);
  if (!model) {
    serve_tokenizer_close(tokenizer);
    encoder->destroy(encoder->self);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for a model");
  }
  atomic_init(&model->reference_count, 1);
  (void)pthread_mutex_init(&model->mutex, NULL);
  model->tokenizer = tokenizer;
  model->encoder = *encoder;
  model->trace = limits->trace;
  model->name = strdup(name);
  model->shapes = calloc(MAX_SHAPES, sizeof *model->shapes);
  qn_status_t status = QN_OK;
  if (!model->name || !model->shapes) {
    status = qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for a model");
  }
  const serve_queue_options_t options = {.max_tokens = limits->queue_tokens,
                                         .delay_ns = limits->batch_delay_ns,
                                         .set_busy = encoder->set_busy,
                                         .busy_self = encoder->self};
  if (qn_ok(status)) {
    status = serve_batch_create(limits->batch_tokens, limits->batch_sequences, encoder->width,
                                &model->batch);
  }
  if (qn_ok(status)) status = serve_queue_create(&options, &model->queue);
  if (qn_ok(status)) {
    model->has_thread = pthread_create(&model->thread, NULL, run, model) == 0;
    if (!model->has_thread) {
      status = qn_status_make(QN_STATUS_UNAVAILABLE, "no thread for model '%s'", name);
    }
  }
  if (!qn_ok(status)) {
    destroy(model);
    return status;
  }
  *out_model = model;
  return QN_OK;
}

void serve_model_retain(serve_model_t* model) {
  (void)atomic_fetch_add(&model->reference_count, 1);
}

void serve_model_release(serve_model_t* model) {
  if (model && atomic_fetch_sub(&model->reference_count, 1) == 1) destroy(model);
}

const char* serve_model_name(const serve_model_t* model) {
  return model->name;
}

const serve_encoder_t* serve_model_encoder(const serve_model_t* model) {
  return &model->encoder;
}

const serve_tokenizer_t* serve_model_tokenizer(const serve_model_t* model) {
  return model->tokenizer;
}

serve_metrics_t* serve_model_metrics(serve_model_t* model) {
  return &model->metrics;
}

serve_queue_t* serve_model_queue(serve_model_t* model) {
  return model->queue;
}

serve_scratch_t* serve_model_take_scratch(serve_model_t* model) {
  (void)pthread_mutex_lock(&model->mutex);
  serve_scratch_t* scratch =
      model->scratch_count > 0 ? model->scratches[--model->scratch_count] : NULL;
  (void)pthread_mutex_unlock(&model->mutex);
  if (!scratch) qn_status_free(serve_scratch_create(model->tokenizer, &scratch));
  return scratch;
}

void serve_model_give_scratch(serve_model_t* model, serve_scratch_t* scratch) {
  if (!scratch) return;
  (void)pthread_mutex_lock(&model->mutex);
  const bool has_room = model->scratch_count < MAX_SCRATCHES;
  if (has_room) model->scratches[model->scratch_count++] = scratch;
  (void)pthread_mutex_unlock(&model->mutex);
  if (!has_room) serve_scratch_free(scratch);
}
