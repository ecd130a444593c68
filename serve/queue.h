// SPDX-License-Identifier: Apache-2.0
// serve/queue.h: requests that wait for a model, in the order that is fair.
//
// The queue is bounded by tokens. A batch is what waits when the model is free, up to its limits;
// no request waits for others to come unless a delay is set. Within a priority, clients take turns
// by tokens, so that one client with many requests does not delay the others. A request of many
// sequences may be in several batches.
//
// A request whose deadline has passed, or whose client has gone, ends before it costs anything.
// Thread rule: any thread, but one at a time takes and finishes batches.
#ifndef SERVE_QUEUE_H_
#define SERVE_QUEUE_H_

#include "serve/batch.h"

typedef struct serve_queue serve_queue_t;

typedef struct serve_queue_options {
  size_t max_tokens;  // that wait
  int64_t delay_ns;   // for which a batch that is not full waits for more; usually 0
  // Called with true when the first request begins to wait, and with false when the last one waits
  // no more. Any thread; must not block or call the queue. NULL: not called.
  void (*set_busy)(void* self, bool is_busy);
  void* busy_self;  // borrowed
} serve_queue_options_t;

typedef enum serve_admission {
  SERVE_ADMISSION_OK,
  SERVE_ADMISSION_FULL,     // too many tokens wait
  SERVE_ADMISSION_STOPPED,  // after serve_queue_stop
  SERVE_ADMISSION_NO_MEMORY,
} serve_admission_t;

// What waits now.
typedef struct serve_queue_state {
  size_t request_count;
  size_t token_count;
  size_t max_tokens;  // of the options
  int64_t wait_ns;    // until a new request would be computed, by the speed of the last batches
} serve_queue_state_t;

// Errors: OUT_OF_MEMORY, UNAVAILABLE without a thread for deadlines. Owned: serve_queue_destroy.
QN_MUST_USE qn_status_t serve_queue_create(const serve_queue_options_t* options,
                                           serve_queue_t** out_queue);
// The queue must be stopped, and hold no request. NULL is ignored.
void serve_queue_destroy(serve_queue_t* queue);

// Adds a request, which is borrowed until its done() is called; that may be before this returns. If
// it is not admitted, done() is not called.
QN_MUST_USE serve_admission_t serve_queue_add(serve_queue_t* queue, serve_request_t* request);

// Waits for requests and fills the empty batch with their sequences. Returns false when the queue
// was stopped and nothing waits.
bool serve_queue_take(serve_queue_t* queue, serve_batch_t* batch);
// Ends the sequences of a batch that was taken. An error, which is consumed, fails their requests;
// without one the results are copied.
void serve_queue_finish(serve_queue_t* queue, serve_batch_t* batch, qn_status_t status);

// Accepts no more requests. With `is_now`, those that wait end as STOPPED.
void serve_queue_stop(serve_queue_t* queue, bool is_now);
void serve_queue_get_state(serve_queue_t* queue, serve_queue_state_t* out_state);

#endif  // SERVE_QUEUE_H_
