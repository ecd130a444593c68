// SPDX-License-Identifier: Apache-2.0
// serve/call.c: from inputs to a request of the queue, and from its outcome to results or an error.
#include "serve/call.h"

#include <math.h>
#include <stdlib.h>

#include "serve/clock.h"

serve_call_t* serve_call_create(int64_t start_ns) {
  serve_call_t* call = calloc(1, sizeof *call);
  if (!call) return NULL;
  call->start_ns = start_ns;
  call->truncates = true;
  call->normalizes = true;
  call->request.priority = SERVE_PRIORITY_NORMAL;
  return call;
}

void serve_call_destroy(serve_call_t* call) {
  if (!call) return;
  serve_model_release(call->model);
  qn_status_free(call->request.status);
  serve_buffer_free(&call->texts);
  serve_buffer_free(&call->ends);
  serve_buffer_free(&call->ids);
  serve_buffer_free(&call->offsets);
  free(call->results);
  free(call);
}

void serve_call_trim(serve_call_t* call) {
  serve_buffer_free(&call->texts);
  serve_buffer_free(&call->ids);
  free(call->results);
  call->results = NULL;
}

static const size_t* ends_of(const serve_call_t* call) {
  return (const size_t*)(const void*)call->ends.data;
}

static const size_t* offsets_of(const serve_call_t* call) {
  return (const size_t*)(const void*)call->offsets.data;
}

size_t serve_call_count(const serve_call_t* call) {
  return call->ends.size / sizeof(size_t);
}

bool serve_call_end_input(serve_call_t* call, const serve_call_limits_t* limits,
                          serve_error_t* error) {
  if (serve_call_count(call) == limits->max_texts) {
    return serve_error_set(error, SERVE_TOO_LARGE, "more than %zu inputs", limits->max_texts);
  }
  const size_t end = call->has_ids ? call->ids.size / sizeof(int32_t) : call->texts.size;
  serve_buffer_append(&call->ends, &end, sizeof end);
  return true;
}

const char* serve_call_text(const serve_call_t* call, size_t index, size_t* out_size) {
  const size_t begin = index > 0 ? ends_of(call)[index - 1] : 0;
  *out_size = ends_of(call)[index] - begin;
  return *out_size > 0 ? call->texts.data + begin : "";
}

const int32_t* serve_call_ids(const serve_call_t* call, size_t index, size_t* out_count) {
  const size_t begin = index > 0 ? ends_of(call)[index - 1] : 0;
  *out_count = ends_of(call)[index] - begin;
  // An empty buffer has no memory.
  return *out_count > 0 ? (const int32_t*)(const void*)call->ids.data + begin : NULL;
}

// ------------------------------------------------------------------------------------ tokens

typedef struct encoder {
  serve_call_t* call;
  size_t limit;  // tokens of an input
  serve_error_t* error;
} encoder_t;

static bool put_offset(serve_call_t* call) {
  const size_t end = call->ids.size / sizeof(int32_t);
  serve_buffer_append(&call->offsets, &end, sizeof end);
  return !call->offsets.is_exhausted;
}

static bool too_long(encoder_t* self, size_t index, size_t count) {
  return serve_error_set(
      self->error, SERVE_TOO_LARGE,
      "input %zu has %zu tokens, and at most %zu are allowed; ask for truncation "
      "to have it cut",
      index, count, self->limit);
}

// Appends the tokens of a text to the ids.
static bool encode_text(encoder_t* self, serve_scratch_t* scratch, size_t index) {
  serve_call_t* call = self->call;
  const serve_tokenizer_t* tokenizer = serve_model_tokenizer(call->model);
  size_t size;
  const char* text = serve_call_text(call, index, &size);
  const serve_encode_options_t options = {.max_tokens = (uint32_t)self->limit,
                                          .truncation = call->direction};
  int32_t* place = serve_buffer_extend(&call->ids, self->limit * sizeof *place);
  if (!place) return serve_error_set(self->error, SERVE_INTERNAL, "no memory for tokens");
  serve_encoding_t encoding = {.ids = place, .capacity = self->limit};
  if (!serve_error_from(self->error, SERVE_UNPROCESSABLE,
                        serve_encode(tokenizer, scratch, text, size, &options, &encoding))) {
    return false;
  }
  serve_buffer_shrink(&call->ids, (self->limit - encoding.count) * sizeof *place);
  call->truncated_count += encoding.is_truncated;
  if (!encoding.is_truncated || call->truncates) return true;
  size_t count = 0;
  return serve_error_from(self->error, SERVE_INTERNAL,
                          serve_count(tokenizer, scratch, text, size, NULL, &count)) &&
         too_long(self, index, count);
}

static bool encode_texts(encoder_t* self) {
  serve_call_t* call = self->call;
  serve_scratch_t* scratch = serve_model_take_scratch(call->model);
  if (!scratch) return serve_error_set(self->error, SERVE_INTERNAL, "no memory for the tokenizer");
  bool is_good = put_offset(call);
  for (size_t i = 0; i < serve_call_count(call) && is_good; ++i) {
    is_good = encode_text(self, scratch, i) && put_offset(call);
  }
  serve_model_give_scratch(call->model, scratch);
  return is_good;
}

// Checks ids that the client made, and cuts lists that are too long. They are used as they are:
// special tokens are the client's choice.
static bool take_ids(encoder_t* self) {
  serve_call_t* call = self->call;
  const size_t vocabulary = serve_token_limit(serve_model_tokenizer(call->model));
  int32_t* ids = (int32_t*)(void*)call->ids.data;
  size_t kept = 0;
  if (!put_offset(call)) return false;
  *(size_t*)(void*)call->offsets.data = 0;
  for (size_t i = 0; i < serve_call_count(call); ++i) {
    size_t begin = i > 0 ? ends_of(call)[i - 1] : 0;
    size_t count = ends_of(call)[i] - begin;
    if (count > self->limit) {
      if (!call->truncates) return too_long(self, i, count);
      if (call->direction == SERVE_TRUNCATE_LEFT) begin += count - self->limit;
      count = self->limit;
      call->truncated_count++;
    }
    for (size_t k = 0; k < count; ++k) {
      const int32_t id = ids[begin + k];
      if (id < 0 || (size_t)id >= vocabulary) {
        return serve_error_set(self->error, SERVE_UNPROCESSABLE,
                               "input %zu, token %zu: id %d is not between 0 and %zu", i, k, id,
                               vocabulary - 1);
      }
      ids[kept + k] = id;
    }
    kept += count;
    serve_buffer_append(&call->offsets, &kept, sizeof kept);
  }
  return !call->offsets.is_exhausted;
}

static bool check_inputs(encoder_t* self) {
  serve_call_t* call = self->call;
  const serve_encoder_t* encoder = serve_model_encoder(call->model);
  const size_t count = serve_call_count(call);
  if (call->texts.is_exhausted || call->ids.is_exhausted || call->ends.is_exhausted) {
    return serve_error_set(self->error, SERVE_INTERNAL, "no memory for the inputs");
  }
  if (count == 0) return serve_error_set(self->error, SERVE_BAD_REQUEST, "there is no input");
  for (size_t i = 0; call->has_ids && i < count; ++i) {
    if (ends_of(call)[i] > (i > 0 ? ends_of(call)[i - 1] : 0)) continue;
    return serve_error_set(self->error, SERVE_BAD_REQUEST, "input %zu has no tokens", i);
  }
  if (call->dimensions > encoder->width) {
    return serve_error_set(self->error, SERVE_UNPROCESSABLE,
                           "%zu dimensions, and the model has %zu", call->dimensions,
                           encoder->width);
  }
  return true;
}

// ------------------------------------------------------------------------------------ the queue

static bool allocate_results(serve_call_t* call, serve_error_t* error) {
  const size_t width = serve_model_encoder(call->model)->width;
  const size_t rows = call->wants_tokens ? serve_call_all_tokens(call) : serve_call_count(call);
  call->results = calloc(rows, width * sizeof *call->results);
  if (!call->results) return serve_error_set(error, SERVE_INTERNAL, "no memory for the results");
  if (call->wants_tokens) {
    call->request.tokens = call->results;
  } else {
    call->request.pooled = call->results;
  }
  return true;
}

static void count_failure(const serve_call_t* call, serve_counter_t reason) {
  serve_metrics_t* metrics = serve_model_metrics(call->model);
  serve_metrics_add(metrics, reason, 1);
  serve_metrics_add(metrics, SERVE_COUNTER_FAILURE_NS, (uint64_t)(serve_now_ns() - call->start_ns));
}

static bool enqueue(serve_call_t* call, serve_error_t* error) {
  serve_queue_t* queue = serve_model_queue(call->model);
  serve_queue_state_t state;
  // The request is not ours after it was admitted.
  switch (serve_queue_add(queue, &call->request)) {
    case SERVE_ADMISSION_OK:
      return true;
    case SERVE_ADMISSION_FULL:
      serve_queue_get_state(queue, &state);
      if (serve_call_all_tokens(call) > state.max_tokens) {
        return serve_error_set(error, SERVE_TOO_LARGE,
                               "the request has %zu tokens, and the queue holds %zu in all",
                               serve_call_all_tokens(call), state.max_tokens);
      }
      error->retry_after_s = 1 + state.wait_ns / 1000000000;
      return serve_error_set(error, SERVE_TOO_MANY,
                             "the model is overloaded: %zu tokens wait; try again later",
                             state.token_count);
    case SERVE_ADMISSION_STOPPED:
      error->retry_after_s = 1;
      return serve_error_set(error, SERVE_UNAVAILABLE, "model '%s' is being unloaded",
                             serve_model_name(call->model));
    case SERVE_ADMISSION_NO_MEMORY:
      break;
  }
  return serve_error_set(error, SERVE_INTERNAL, "no memory for the request");
}

bool serve_call_submit(serve_call_t* call, const serve_call_limits_t* limits,
                       void (*done)(serve_request_t*), serve_error_t* error) {
  const size_t most = serve_model_encoder(call->model)->max_tokens;
  const size_t wanted = limits->max_text_tokens;
  encoder_t encoder = {call, wanted > 0 && wanted < most ? wanted : most, error};
  call->encode_start_ns = serve_now_ns();
  bool is_good =
      check_inputs(&encoder) && (call->has_ids ? take_ids(&encoder) : encode_texts(&encoder));
  call->encode_ns = serve_now_ns() - call->encode_start_ns;
  serve_metrics_t* metrics = serve_model_metrics(call->model);
  if (is_good) {
    serve_metrics_note(metrics, SERVE_HISTOGRAM_TOKENIZE, (uint64_t)call->encode_ns);
    is_good = allocate_results(call, error);
  }
  if (is_good) {
    const int64_t timeout_ns = call->timeout_ns > 0 ? call->timeout_ns : limits->timeout_ns;
    serve_request_t* request = &call->request;
    request->ids = (const int32_t*)(const void*)call->ids.data;
    request->offsets = offsets_of(call);
    request->sequence_count = serve_call_count(call);
    request->deadline_ns = timeout_ns > 0 ? call->start_ns + timeout_ns : INT64_MAX;
    request->done = done;
    (void)atomic_fetch_add(&metrics->pending, 1);
    is_good = enqueue(call, error);
    if (!is_good) (void)atomic_fetch_sub(&metrics->pending, 1);
  }
  if (!is_good) {
    const bool is_rejected = error->status == SERVE_TOO_MANY || error->status == SERVE_UNAVAILABLE;
    count_failure(call, is_rejected ? SERVE_COUNTER_REJECTED : SERVE_COUNTER_OTHER);
  }
  return is_good;
}

// ------------------------------------------------------------------------------------ the outcome

static void scale_to_unit(float* vector, size_t width) {
  double sum = 0;
  for (size_t i = 0; i < width; ++i) sum += (double)vector[i] * (double)vector[i];
  const double length = sqrt(sum);
  const float scale = length > 1e-12 ? (float)(1.0 / length) : 0.0f;
  for (size_t i = 0; i < width; ++i) vector[i] *= scale;
}

static void count_times(const serve_call_t* call) {
  const serve_request_t* request = &call->request;
  serve_metrics_t* metrics = serve_model_metrics(call->model);
  const uint64_t whole_ns = (uint64_t)(request->done_ns - call->start_ns);
  const uint64_t queue_ns = (uint64_t)(request->taken_ns - request->queued_ns);
  serve_metrics_add(metrics, SERVE_COUNTER_SUCCESS, 1);
  atomic_store_explicit(&metrics->last_time_ms, (int64_t)time(NULL) * 1000, memory_order_relaxed);
  serve_metrics_add(metrics, SERVE_COUNTER_REQUEST_NS, whole_ns);
  serve_metrics_add(metrics, SERVE_COUNTER_QUEUE_NS, queue_ns);
  serve_metrics_add(metrics, SERVE_COUNTER_INPUT_NS, (uint64_t)call->encode_ns);
  serve_metrics_add(metrics, SERVE_COUNTER_INFER_NS, (uint64_t)request->compute_ns);
  serve_metrics_note(metrics, SERVE_HISTOGRAM_REQUEST, whole_ns);
  serve_metrics_note(metrics, SERVE_HISTOGRAM_QUEUE, queue_ns);
}

bool serve_call_complete(serve_call_t* call, serve_error_t* error) {
  serve_request_t* request = &call->request;
  (void)atomic_fetch_sub(&serve_model_metrics(call->model)->pending, 1);
  switch (request->outcome) {
    case SERVE_OUTCOME_OK:
      break;
    case SERVE_OUTCOME_DEADLINE:
      count_failure(call, SERVE_COUNTER_CANCELED);
      return serve_error_set(error, SERVE_GATEWAY_TIMEOUT, "the deadline of %lld ms passed",
                             (long long)((request->deadline_ns - call->start_ns) / 1000000));
    case SERVE_OUTCOME_GONE:
      count_failure(call, SERVE_COUNTER_CANCELED);
      return serve_error_set(error, SERVE_BAD_REQUEST, "the client closed the connection");
    case SERVE_OUTCOME_STOPPED:
      count_failure(call, SERVE_COUNTER_REJECTED);
      error->retry_after_s = 1;
      return serve_error_set(error, SERVE_UNAVAILABLE, "model '%s' was unloaded",
                             serve_model_name(call->model));
    case SERVE_OUTCOME_NONE:
    case SERVE_OUTCOME_FAILED:
      count_failure(call, SERVE_COUNTER_BACKEND);
      return serve_error_set(error, SERVE_INTERNAL, "the model failed: %s",
                             qn_status_message(request->status));
  }
  const size_t width = serve_model_encoder(call->model)->width;
  const size_t kept = serve_call_width(call);
  for (size_t i = 0; call->normalizes && request->pooled && i < request->sequence_count; ++i) {
    scale_to_unit(call->results + i * width, kept);
  }
  count_times(call);
  return true;
}

size_t serve_call_tokens(const serve_call_t* call, size_t index) {
  return offsets_of(call)[index + 1] - offsets_of(call)[index];
}

size_t serve_call_all_tokens(const serve_call_t* call) {
  return offsets_of(call)[serve_call_count(call)];
}

size_t serve_call_width(const serve_call_t* call) {
  return call->dimensions > 0 ? call->dimensions : serve_model_encoder(call->model)->width;
}

const float* serve_call_vector(const serve_call_t* call, size_t input, size_t token) {
  const size_t row = call->wants_tokens ? offsets_of(call)[input] + token : input;
  return call->results + row * serve_model_encoder(call->model)->width;
}
