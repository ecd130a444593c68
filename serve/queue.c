// SPDX-License-Identifier: Apache-2.0
// serve/queue.c: lines of clients, by deficit round robin.
//
// Each client with waiting requests has a line, and the lines of a priority form a ring. A client's
// turn adds tokens to its account; its sequences go into the batch while the account covers them
// (Shreedhar and Varghese, "Efficient fair queueing using deficit round robin", 1995). A lower
// priority waits while a higher one fills the batches, but not for ever: after some batches it goes
// first once.
#include "serve/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "serve/clock.h"

enum {
  BUCKETS = 1024,     // of the table of clients
  TURN_TOKENS = 256,  // that a turn adds to an account
  MAX_PASSED = 16,    // batches that leave a waiting priority out before it goes first
};
static const int64_t SECOND_NS = 1000000000;
static const int64_t EXPIRY_STEP_NS = 5000000;  // requests end at most this long after deadlines

typedef struct client {
  uint64_t id;
  serve_priority_t priority;
  int64_t account;  // tokens
  serve_request_t* first;
  serve_request_t* last;
  struct client* next;  // in the ring
  struct client* previous;
  struct client* next_in_bucket;
} client_t;

struct serve_queue {
  serve_queue_options_t options;
  pthread_mutex_t mutex;
  pthread_cond_t changed;  // for the taker: requests came, or the queue stopped
  pthread_cond_t timer;    // for the thread of deadlines
  pthread_t expirer;
  bool has_expirer;
  bool is_destroyed;
  bool is_stopped;
  client_t* rings[SERVE_PRIORITY_COUNT];  // the client whose turn it is
  uint32_t passed[SERVE_PRIORITY_COUNT];  // batches that left this priority out
  client_t* buckets[BUCKETS];
  size_t request_count;  // that wait
  size_t token_count;
  uint64_t batch_number;
  int64_t oldest_ns;         // since when something waits
  int64_t next_deadline_ns;  // of all that wait; may be earlier
  double tokens_per_ns;      // of the last batches; 0: unknown
};

// Requests that end when the mutex is free.
typedef struct ended {
  serve_request_t* first;
} ended_t;

static struct timespec at_time(int64_t time_ns) {
  return (struct timespec){.tv_sec = time_ns / SECOND_NS, .tv_nsec = time_ns % SECOND_NS};
}

static size_t length_of(const serve_request_t* request, size_t sequence) {
  return request->offsets[sequence + 1] - request->offsets[sequence];
}

static size_t waiting_tokens(const serve_request_t* request) {
  return request->offsets[request->sequence_count] - request->offsets[request->taken_count];
}

// ------------------------------------------------------------------------------------ lines

static client_t** bucket_of(serve_queue_t* queue, uint64_t id, serve_priority_t priority) {
  const uint64_t mixed = (id + (uint64_t)priority) * UINT64_C(0x9e3779b97f4a7c15);
  return &queue->buckets[mixed >> 54];
}
_Static_assert(BUCKETS == 1 << (64 - 54), "bucket_of takes the upper bits");

// Returns the line of a client, made if necessary. NULL without memory.
static client_t* client_at(serve_queue_t* queue, uint64_t id, serve_priority_t priority) {
  client_t** bucket = bucket_of(queue, id, priority);
  for (client_t* client = *bucket; client; client = client->next_in_bucket) {
    if (client->id == id && client->priority == priority) return client;
  }
  client_t* client = calloc(1, sizeof *client);
  if (!client) return NULL;
  client->id = id;
  client->priority = priority;
  client->next_in_bucket = *bucket;
  *bucket = client;
  client_t** ring = &queue->rings[priority];
  if (*ring) {  // the last place: before the client whose turn it is
    client->next = *ring;
    client->previous = (*ring)->previous;
    client->previous->next = client;
    client->next->previous = client;
  } else {
    client->next = client->previous = client;
    *ring = client;
  }
  return client;
}

static void remove_client(serve_queue_t* queue, client_t* client) {
  client_t** link = bucket_of(queue, client->id, client->priority);
  while (*link != client) link = &(*link)->next_in_bucket;
  *link = client->next_in_bucket;
  client_t** ring = &queue->rings[client->priority];
  if (client->next == client) {
    *ring = NULL;
  } else {
    if (*ring == client) *ring = client->next;
    client->previous->next = client->next;
    client->next->previous = client->previous;
  }
  free(client);
}

// Changes the number of requests that wait.
static void count_requests(serve_queue_t* queue, size_t count) {
  const bool was_busy = queue->request_count > 0;
  queue->request_count = count;
  if (queue->options.set_busy && was_busy != (count > 0)) {
    queue->options.set_busy(queue->options.busy_self, count > 0);
  }
}

// Takes a request out of its line, which may end the line.
static void unlink_request(serve_queue_t* queue, client_t* client, serve_request_t* request) {
  if (request->previous) request->previous->next = request->next;
  if (request->next) request->next->previous = request->previous;
  if (client->first == request) client->first = request->next;
  if (client->last == request) client->last = request->previous;
  request->next = request->previous = NULL;
  count_requests(queue, queue->request_count - 1);
  if (!client->first) remove_client(queue, client);
}

// Ends a request that waits: it leaves its line, and is done if no batch holds a part of it.
static void end_waiting(serve_queue_t* queue, client_t* client, serve_request_t* request,
                        serve_outcome_t outcome, ended_t* ended) {
  queue->token_count -= waiting_tokens(request);
  request->outcome = outcome;
  unlink_request(queue, client, request);
  if (request->taken_count > request->finished_count) return;
  request->next = ended->first;
  ended->first = request;
}

static void call_done(ended_t* ended) {
  while (ended->first) {
    serve_request_t* request = ended->first;
    ended->first = request->next;
    request->next = NULL;
    request->done_ns = serve_now_ns();
    request->done(request);
  }
}

// ------------------------------------------------------------------------------------ deadlines

// Ends all waiting requests, or those whose deadline has passed, and finds the next deadline.
static void end_all(serve_queue_t* queue, bool is_stop, int64_t now, ended_t* ended) {
  queue->next_deadline_ns = INT64_MAX;
  for (size_t i = 0; i < BUCKETS; ++i) {
    client_t* next_client = NULL;
    for (client_t* client = queue->buckets[i]; client; client = next_client) {
      next_client = client->next_in_bucket;
      serve_request_t* next = NULL;
      for (serve_request_t* request = client->first; request; request = next) {
        next = request->next;
        const serve_outcome_t outcome =
            request->deadline_ns <= now ? SERVE_OUTCOME_DEADLINE : SERVE_OUTCOME_STOPPED;
        if (is_stop || outcome == SERVE_OUTCOME_DEADLINE) {
          end_waiting(queue, client, request, outcome, ended);  // the last one frees the client
        } else if (request->deadline_ns < queue->next_deadline_ns) {
          queue->next_deadline_ns = request->deadline_ns;
        }
      }
    }
  }
}

static void* expire(void* self) {
  serve_queue_t* queue = self;
  (void)pthread_mutex_lock(&queue->mutex);
  while (!queue->is_destroyed) {
    const int64_t now = serve_now_ns();
    if (queue->next_deadline_ns > now) {
      const int64_t longest = now + 3600 * SECOND_NS;
      const struct timespec wake =
          at_time(queue->next_deadline_ns < longest ? queue->next_deadline_ns : longest);
      (void)pthread_cond_timedwait(&queue->timer, &queue->mutex, &wake);
      continue;
    }
    ended_t ended = {NULL};
    end_all(queue, false, now, &ended);
    if (queue->next_deadline_ns < now + EXPIRY_STEP_NS) {
      queue->next_deadline_ns = now + EXPIRY_STEP_NS;
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    call_done(&ended);
    (void)pthread_mutex_lock(&queue->mutex);
  }
  (void)pthread_mutex_unlock(&queue->mutex);
  return NULL;
}

// ------------------------------------------------------------------------------------ adding

serve_admission_t serve_queue_add(serve_queue_t* queue, serve_request_t* request) {
  const size_t tokens = request->offsets[request->sequence_count];
  request->outcome = SERVE_OUTCOME_NONE;
  request->status = QN_OK;
  request->next = request->previous = NULL;
  request->taken_count = request->finished_count = 0;
  request->checked_batch = request->counted_batch = 0;
  request->taken_ns = request->done_ns = request->compute_ns = 0;
  request->is_first_seen = false;
  request->computed_ns = 0;
  request->queued_ns = serve_now_ns();
  serve_admission_t admission = SERVE_ADMISSION_OK;
  (void)pthread_mutex_lock(&queue->mutex);
  client_t* client = NULL;
  if (queue->is_stopped) {
    admission = SERVE_ADMISSION_STOPPED;
  } else if (tokens > queue->options.max_tokens - queue->token_count) {
    admission = SERVE_ADMISSION_FULL;
  } else if (!(client = client_at(queue, request->client, request->priority))) {
    admission = SERVE_ADMISSION_NO_MEMORY;
  } else {
    request->previous = client->last;
    if (client->last) {
      client->last->next = request;
    } else {
      client->first = request;
    }
    client->last = request;
    if (queue->request_count == 0) queue->oldest_ns = request->queued_ns;
    count_requests(queue, queue->request_count + 1);
    queue->token_count += tokens;
    if (request->deadline_ns < queue->next_deadline_ns) {
      queue->next_deadline_ns = request->deadline_ns;
      (void)pthread_cond_signal(&queue->timer);
    }
    (void)pthread_cond_signal(&queue->changed);
  }
  (void)pthread_mutex_unlock(&queue->mutex);
  return admission;
}

// ------------------------------------------------------------------------------------ taking

// Ends a request whose deadline has passed or whose client has gone. Returns true for such a
// request.
static bool drop(serve_queue_t* queue, client_t* client, serve_request_t* request, int64_t now,
                 ended_t* ended) {
  if (request->checked_batch == queue->batch_number) return false;
  request->checked_batch = queue->batch_number;
  if (request->deadline_ns <= now) {
    end_waiting(queue, client, request, SERVE_OUTCOME_DEADLINE, ended);
    return true;
  }
  if (request->is_gone && request->is_gone(request)) {
    end_waiting(queue, client, request, SERVE_OUTCOME_GONE, ended);
    return true;
  }
  return false;
}

// Fills the batch from the lines of a priority. Returns false when it is full.
static bool fill_from(serve_queue_t* queue, serve_priority_t priority, serve_batch_t* batch,
                      int64_t now, ended_t* ended) {
  client_t* client;
  while ((client = queue->rings[priority]) != NULL) {
    serve_request_t* request = client->first;
    if (drop(queue, client, request, now, ended)) continue;
    const size_t length = length_of(request, request->taken_count);
    if (client->account < (int64_t)length) {
      client->account += TURN_TOKENS;
      queue->rings[priority] = client->next;
      continue;
    }
    if (!serve_batch_add(batch, request, request->taken_count)) return false;
    client->account -= (int64_t)length;
    queue->token_count -= length;
    if (request->taken_count++ == 0) request->taken_ns = now;
    if (request->taken_count == request->sequence_count) unlink_request(queue, client, request);
  }
  return true;
}

static void fill(serve_queue_t* queue, serve_batch_t* batch, ended_t* ended) {
  const int64_t now = serve_now_ns();
  batch->number = ++queue->batch_number;
  batch->taken_ns = now;
  bool has_room = true;
  for (int p = 0; p < SERVE_PRIORITY_COUNT && has_room; ++p) {
    if (queue->passed[p] < MAX_PASSED || !queue->rings[p]) continue;
    queue->passed[p] = 0;
    has_room = fill_from(queue, (serve_priority_t)p, batch, now, ended);
  }
  for (int p = 0; p < SERVE_PRIORITY_COUNT; ++p) {
    const size_t before = batch->sequence_count;
    if (has_room) has_room = fill_from(queue, (serve_priority_t)p, batch, now, ended);
    const bool is_passed = queue->rings[p] && batch->sequence_count == before;
    queue->passed[p] = is_passed ? queue->passed[p] + 1 : 0;
  }
  queue->oldest_ns = now;
}

// Waits until something waits, and for the delay unless a batch is full before.
static void wait_for_requests(serve_queue_t* queue, const serve_batch_t* batch) {
  while (queue->request_count == 0 && !queue->is_stopped) {
    (void)pthread_cond_wait(&queue->changed, &queue->mutex);
  }
  const int64_t until = queue->oldest_ns + queue->options.delay_ns;
  const struct timespec wake = at_time(until);
  while (queue->request_count > 0 && !queue->is_stopped && queue->options.delay_ns > 0 &&
         queue->token_count < batch->max_tokens && queue->request_count < batch->max_sequences &&
         serve_now_ns() < until) {
    (void)pthread_cond_timedwait(&queue->changed, &queue->mutex, &wake);
  }
}

bool serve_queue_take(serve_queue_t* queue, serve_batch_t* batch) {
  serve_batch_clear(batch);
  bool is_over = false;
  while (batch->sequence_count == 0 && !is_over) {
    ended_t ended = {NULL};
    (void)pthread_mutex_lock(&queue->mutex);
    wait_for_requests(queue, batch);
    if (queue->request_count > 0) fill(queue, batch, &ended);
    is_over = queue->is_stopped && queue->request_count == 0;
    (void)pthread_mutex_unlock(&queue->mutex);
    call_done(&ended);
  }
  return batch->sequence_count > 0;
}

// ------------------------------------------------------------------------------------ finishing

// Ends a part of a request. A request that failed or ended otherwise gives up its other sequences.
static void finish_part(serve_queue_t* queue, const serve_batch_t* batch, serve_request_t* request,
                        qn_status_t status, ended_t* ended) {
  if (request->counted_batch == 0) {
    request->computed_ns = batch->computed_ns;
    request->compute_thread = batch->thread;
  }
  if (request->counted_batch != batch->number) {
    request->counted_batch = batch->number;
    request->compute_ns += batch->compute_ns;
    request->is_first_seen |= batch->is_first_seen;
  }
  request->finished_count++;
  if (!qn_ok(status) && request->outcome == SERVE_OUTCOME_NONE) {
    if (request->taken_count < request->sequence_count) {
      client_t* client = client_at(queue, request->client, request->priority);
      end_waiting(queue, client, request, SERVE_OUTCOME_FAILED, &(ended_t){NULL});
    }
    request->outcome = SERVE_OUTCOME_FAILED;
    request->status = qn_status_make(qn_status_code(status), "%s", qn_status_message(status));
  }
  const bool is_whole = request->finished_count == request->sequence_count;
  const bool is_dropped =
      request->outcome != SERVE_OUTCOME_NONE && request->finished_count == request->taken_count;
  if (!is_whole && !is_dropped) return;
  if (request->outcome == SERVE_OUTCOME_NONE) request->outcome = SERVE_OUTCOME_OK;
  request->next = ended->first;
  ended->first = request;
}

void serve_queue_finish(serve_queue_t* queue, serve_batch_t* batch, qn_status_t status) {
  // No request of the batch can end before its parts do, so the results need no lock.
  if (qn_ok(status)) serve_batch_scatter(batch);
  ended_t ended = {NULL};
  (void)pthread_mutex_lock(&queue->mutex);
  if (batch->compute_ns > 0) {
    const double speed = (double)batch->token_count / (double)batch->compute_ns;
    const double last = queue->tokens_per_ns;
    queue->tokens_per_ns = last > 0 ? 0.8 * last + 0.2 * speed : speed;
  }
  for (size_t i = 0; i < batch->sequence_count; ++i) {
    finish_part(queue, batch, batch->parts[i].request, status, &ended);
  }
  (void)pthread_mutex_unlock(&queue->mutex);
  call_done(&ended);
  qn_status_free(status);
  serve_batch_clear(batch);
}

// ------------------------------------------------------------------------------------ the queue

qn_status_t serve_queue_create(const serve_queue_options_t* options, serve_queue_t** out_queue) {
  *out_queue = NULL;
  serve_queue_t* queue = calloc(1, sizeof *queue);
  if (!queue) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for a queue");
  queue->options = *options;
  queue->next_deadline_ns = INT64_MAX;
  (void)pthread_mutex_init(&queue->mutex, NULL);
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&queue->changed, &attributes);
  (void)pthread_cond_init(&queue->timer, &attributes);
  (void)pthread_condattr_destroy(&attributes);
  queue->has_expirer = pthread_create(&queue->expirer, NULL, expire, queue) == 0;
  if (!queue->has_expirer) {
    serve_queue_destroy(queue);
    return qn_status_make(QN_STATUS_UNAVAILABLE, "no thread for the deadlines of requests");
  }
  *out_queue = queue;
  return QN_OK;
}

void serve_queue_stop(serve_queue_t* queue, bool is_now) {
  ended_t ended = {NULL};
  (void)pthread_mutex_lock(&queue->mutex);
  queue->is_stopped = true;
  if (is_now) end_all(queue, true, serve_now_ns(), &ended);
  (void)pthread_cond_broadcast(&queue->changed);
  (void)pthread_mutex_unlock(&queue->mutex);
  call_done(&ended);
}

void serve_queue_destroy(serve_queue_t* queue) {
  if (!queue) return;
  if (queue->has_expirer) {
    (void)pthread_mutex_lock(&queue->mutex);
    queue->is_destroyed = true;
    (void)pthread_cond_signal(&queue->timer);
    (void)pthread_mutex_unlock(&queue->mutex);
    (void)pthread_join(queue->expirer, NULL);
  }
  (void)pthread_cond_destroy(&queue->timer);
  (void)pthread_cond_destroy(&queue->changed);
  (void)pthread_mutex_destroy(&queue->mutex);
  free(queue);
}

void serve_queue_get_state(serve_queue_t* queue, serve_queue_state_t* out_state) {
  (void)pthread_mutex_lock(&queue->mutex);
  const double speed = queue->tokens_per_ns;
  *out_state = (serve_queue_state_t){
      .request_count = queue->request_count,
      .token_count = queue->token_count,
      .max_tokens = queue->options.max_tokens,
      .wait_ns = speed > 0 ? (int64_t)((double)queue->token_count / speed) : 0,
  };
  (void)pthread_mutex_unlock(&queue->mutex);
}
