// SPDX-License-Identifier: Apache-2.0
// serve/trace.h: the latest requests and batches with their times, written as JSON for Perfetto.
//
// Memory is bounded: later records push the oldest out. Recording takes a lock and allocates
// nothing. Any thread.
#ifndef SERVE_TRACE_H_
#define SERVE_TRACE_H_

#include "quern/quern.h"

typedef struct serve_trace serve_trace_t;

enum { SERVE_TRACE_RECORDS = 16384, SERVE_TRACE_TEXT_BYTES = 128 };  // of each kind; of a text

// From one instant to another on a thread. `end_ns` 0: it did not take place.
typedef struct serve_trace_span {
  int64_t start_ns;  // CLOCK_MONOTONIC
  int64_t end_ns;
  uint32_t thread;  // serve_trace_thread
} serve_trace_span_t;

typedef struct serve_trace_request {
  char id[SERVE_TRACE_TEXT_BYTES];
  char parent[64];  // traceparent, or ""
  char path[SERVE_TRACE_TEXT_BYTES];
  uint32_t status;
  size_t texts;
  size_t tokens;
  uint64_t batch;              // the last one; 0: none
  serve_trace_span_t whole;    // from the headers to the last byte of the answer
  serve_trace_span_t read;     // of the body; its work is not apart
  serve_trace_span_t encode;   // tokenising
  serve_trace_span_t queue;    // until its first batch
  serve_trace_span_t compute;  // of its first batch; the end is not known here
  serve_trace_span_t write;    // the results as text
} serve_trace_request_t;

typedef struct serve_trace_batch {
  char model[SERVE_TRACE_TEXT_BYTES];
  uint64_t number;
  size_t sequences;
  size_t tokens;
  bool is_first_seen;
  serve_trace_span_t whole;  // from taking requests to giving their results back
  serve_trace_span_t compute;
} serve_trace_batch_t;

// Errors: OUT_OF_MEMORY. Owned: serve_trace_destroy.
QN_MUST_USE qn_status_t serve_trace_create(serve_trace_t** out_trace);
void serve_trace_destroy(serve_trace_t* trace);  // NULL is ignored
// Copy a record. `trace` NULL: does nothing.
void serve_trace_add_request(serve_trace_t* trace, const serve_trace_request_t* request);
void serve_trace_add_batch(serve_trace_t* trace, const serve_trace_batch_t* batch);
// Writes the file. Errors: IO, OUT_OF_MEMORY.
QN_MUST_USE qn_status_t serve_trace_write(serve_trace_t* trace, const char* path);
// Returns the number of the calling thread, as the operating system counts.
uint32_t serve_trace_thread(void);

#endif  // SERVE_TRACE_H_
