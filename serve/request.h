// SPDX-License-Identifier: Apache-2.0
// serve/request.h: sequences of tokens on their way through the queue and a model, and their
// results.
#ifndef SERVE_REQUEST_H_
#define SERVE_REQUEST_H_

#include "quern/quern.h"

// How a request ended.
typedef enum serve_outcome {
  SERVE_OUTCOME_NONE,      // not yet
  SERVE_OUTCOME_OK,        // the results are there
  SERVE_OUTCOME_DEADLINE,  // the deadline passed first
  SERVE_OUTCOME_GONE,      // the client closed its connection; the request cost nothing more
  SERVE_OUTCOME_STOPPED,   // the server or the model stopped first
  SERVE_OUTCOME_FAILED,    // `status` says why
} serve_outcome_t;

typedef enum serve_priority {
  SERVE_PRIORITY_HIGH,
  SERVE_PRIORITY_NORMAL,
  SERVE_PRIORITY_LOW,
  SERVE_PRIORITY_COUNT
} serve_priority_t;

// One request. The maker fills in the first part and frees everything; the queue uses the second
// part until `done`.
typedef struct serve_request {
  const int32_t* ids;     // [offsets[sequence_count]]: of all sequences, one after another
  const size_t* offsets;  // [sequence_count + 1]
  size_t sequence_count;  // at least 1; no sequence is empty
  float* pooled;          // [sequence_count, width]; NULL: not wanted
  float* tokens;          // [offsets[sequence_count], width]; NULL: not wanted
  serve_priority_t priority;
  uint64_t client;      // clients take turns; which number is a client's is the maker's choice
  int64_t deadline_ns;  // CLOCK_MONOTONIC; INT64_MAX: none
  // Returns true if the client has gone. Called before the request costs anything. NULL: it stays.
  bool (*is_gone)(const struct serve_request* request);
  // Called once, on any thread, when the request has ended. The queue uses it no more.
  void (*done)(struct serve_request* request);
  void* user;

  serve_outcome_t outcome;
  qn_status_t status;  // owned by the maker, who frees it
  int64_t queued_ns;   // when the queue accepted it
  int64_t taken_ns;    // when its first sequence went into a batch; 0: none did
  int64_t done_ns;
  int64_t compute_ns;       // of the batches with its sequences
  bool is_first_seen;       // a batch of it had a shape that the model had not seen
  int64_t computed_ns;      // when its first batch began to be computed; 0: none did
  uint32_t compute_thread;  // that computed it

  struct serve_request* next;      // in the line of its client
  struct serve_request* previous;  // the same
  size_t taken_count;              // sequences that went into batches
  size_t finished_count;           // sequences that came back
  uint64_t checked_batch;          // the last batch before which is_gone was called
  uint64_t counted_batch;          // the last batch whose time is in compute_ns
} serve_request_t;

#endif  // SERVE_REQUEST_H_
