// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // syscall
// serve/trace.c: two rings of records, and the events that they become.
//
// Work on a thread is a complete event (X): of one thread these nest. A request and its wait are
// pairs of asynchronous events (b, e), since a thread has many requests at a time. A flow (s, t, f)
// leads from the tokens of a request to its batch, and from there to its answer.
#include "serve/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve/json.h"

enum { MAX_THREADS = 64, CHUNK_BYTES = 1 << 16 };  // threads that get a name; of the file

struct serve_trace {
  pthread_mutex_t mutex;
  serve_trace_request_t* requests;  // [SERVE_TRACE_RECORDS]
  serve_trace_batch_t* batches;     // [SERVE_TRACE_RECORDS]
  uint64_t request_count;           // of all times
  uint64_t batch_count;
};

qn_status_t serve_trace_create(serve_trace_t** out_trace) {
  serve_trace_t* trace = calloc(1, sizeof *trace);
  *out_trace = NULL;
  if (trace) {
    (void)pthread_mutex_init(&trace->mutex, NULL);
    trace->requests = calloc(SERVE_TRACE_RECORDS, sizeof *trace->requests);
    trace->batches = calloc(SERVE_TRACE_RECORDS, sizeof *trace->batches);
  }
  if (!trace || !trace->requests || !trace->batches) {
    serve_trace_destroy(trace);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for a trace");
  }
  *out_trace = trace;
  return QN_OK;
}

void serve_trace_destroy(serve_trace_t* trace) {
  if (!trace) return;
  (void)pthread_mutex_destroy(&trace->mutex);
  free(trace->requests);
  free(trace->batches);
  free(trace);
}

void serve_trace_add_request(serve_trace_t* trace, const serve_trace_request_t* request) {
  if (!trace) return;
  (void)pthread_mutex_lock(&trace->mutex);
  trace->requests[trace->request_count++ % SERVE_TRACE_RECORDS] = *request;
  (void)pthread_mutex_unlock(&trace->mutex);
}

void serve_trace_add_batch(serve_trace_t* trace, const serve_trace_batch_t* batch) {
  if (!trace) return;
  (void)pthread_mutex_lock(&trace->mutex);
  trace->batches[trace->batch_count++ % SERVE_TRACE_RECORDS] = *batch;
  (void)pthread_mutex_unlock(&trace->mutex);
}

uint32_t serve_trace_thread(void) {
  static _Thread_local uint32_t number;
  if (number == 0) number = (uint32_t)syscall(SYS_gettid);
  return number;
}

// ------------------------------------------------------------------------------------ events

typedef struct trace_file {
  FILE* file;
  serve_buffer_t text;
  qn_status_t status;  // owned: the first failure
  const char* path;
  long process;
  bool has_event;
  uint32_t threads[MAX_THREADS];  // that have a name
  size_t thread_count;
} trace_file_t;

static void flush(trace_file_t* writer) {
  if (qn_ok(writer->status)) writer->status = serve_buffer_status(&writer->text, "a trace");
  const size_t size = writer->text.size;
  if (qn_ok(writer->status) && fwrite(writer->text.data, 1, size, writer->file) != size) {
    writer->status =
        qn_status_make(QN_STATUS_IO, "cannot write '%s': %s", writer->path, strerror(errno));
  }
  serve_buffer_free(&writer->text);
}

// Begins an event, up to its time in microseconds.
static void begin_event(trace_file_t* writer, const char* name, char phase, int64_t time_ns,
                        uint32_t thread) {
  serve_buffer_t* out = &writer->text;
  if (out->size >= CHUNK_BYTES) flush(writer);
  serve_buffer_text(out, writer->has_event ? ",\n" : "\n");
  writer->has_event = true;
  serve_buffer_format(
      out,
      "{\"name\":\"%s\",\"cat\":\"serve\",\"ph\":\"%c\",\"pid\":%ld,\"tid\":%u,\"ts\":%lld.%03d",
      name, phase, writer->process, (unsigned)thread, (long long)(time_ns / 1000),
      (int)(time_ns % 1000));
}

// Names a thread before its first event.
static void name_thread(trace_file_t* writer, uint32_t thread, const char* name) {
  for (size_t i = 0; i < writer->thread_count; ++i) {
    if (writer->threads[i] == thread) return;
  }
  if (writer->thread_count == MAX_THREADS) return;
  writer->threads[writer->thread_count++] = thread;
  begin_event(writer, "thread_name", 'M', 0, thread);
  serve_buffer_text(&writer->text, ",\"args\":{\"name\":");
  serve_json_put_string(&writer->text, name, strlen(name));
  serve_buffer_text(&writer->text, "}}");
}

static void put_span(trace_file_t* writer, const char* name, const serve_trace_span_t* span,
                     const char* arguments) {
  if (span->end_ns == 0) return;
  const int64_t took_ns = span->end_ns - span->start_ns;
  begin_event(writer, name, 'X', span->start_ns, span->thread);
  serve_buffer_format(&writer->text, ",\"dur\":%lld.%03d,\"args\":{%s}}",
                      (long long)(took_ns / 1000), (int)(took_ns % 1000), arguments);
}

static void put_pair(trace_file_t* writer, const char* name, const serve_trace_span_t* span,
                     uint64_t id, const char* arguments) {
  if (span->end_ns == 0) return;
  begin_event(writer, name, 'b', span->start_ns, span->thread);
  serve_buffer_format(&writer->text, ",\"id\":%llu,\"args\":{%s}}", (unsigned long long)id,
                      arguments);
  begin_event(writer, name, 'e', span->end_ns, span->thread);
  serve_buffer_format(&writer->text, ",\"id\":%llu}", (unsigned long long)id);
}

static void put_flow(trace_file_t* writer, char phase, int64_t time_ns, uint32_t thread,
                     uint64_t id) {
  begin_event(writer, "request", phase, time_ns, thread);
  serve_buffer_format(&writer->text, ",\"id\":%llu,\"bp\":\"e\"}", (unsigned long long)id);
}

static void put_request(trace_file_t* writer, const serve_trace_request_t* request, uint64_t id) {
  serve_buffer_t arguments = {.data = NULL};
  serve_buffer_text(&arguments, "\"request_id\":");
  serve_json_put_string(&arguments, request->id, strlen(request->id));
  const size_t id_size = arguments.size;
  if (request->parent[0]) {
    serve_buffer_format(&arguments, ",\"traceparent\":\"%s\"", request->parent);
  }
  serve_buffer_text(&arguments, ",\"path\":");
  serve_json_put_string(&arguments, request->path, strlen(request->path));
  serve_buffer_format(&arguments, ",\"status\":%u,\"texts\":%zu,\"tokens\":%zu,\"batch\":%llu",
                      (unsigned)request->status, request->texts, request->tokens,
                      (unsigned long long)request->batch);
  serve_buffer_append(&arguments, "", 1);
  if (arguments.is_exhausted) {
    writer->text.is_exhausted = true;
  } else {
    name_thread(writer, request->whole.thread, "http");
    put_pair(writer, "request", &request->whole, id, arguments.data);
    arguments.data[id_size] = '\0';  // the parts of a request have its id alone
    put_pair(writer, "read", &request->read, id, arguments.data);
    put_pair(writer, "queue", &request->queue, id, arguments.data);
    put_span(writer, "tokenise", &request->encode, arguments.data);
    if (request->write.end_ns > 0) name_thread(writer, request->write.thread, "http");
    put_span(writer, "write", &request->write, arguments.data);
    if (request->compute.start_ns > 0 && request->write.end_ns > 0) {
      put_flow(writer, 's', request->encode.start_ns, request->encode.thread, id);
      put_flow(writer, 't', request->compute.start_ns, request->compute.thread, id);
      put_flow(writer, 'f', request->write.start_ns, request->write.thread, id);
    }
  }
  serve_buffer_free(&arguments);
}

static void put_batch(trace_file_t* writer, const serve_trace_batch_t* batch) {
  char name[SERVE_TRACE_TEXT_BYTES + 8];
  char arguments[SERVE_TRACE_TEXT_BYTES + 128];
  (void)snprintf(name, sizeof name, "model %s", batch->model);
  // Names of models have no letter that must be quoted (serve_repository_add).
  (void)snprintf(arguments, sizeof arguments,
                 "\"model\":\"%s\",\"batch\":%llu,\"texts\":%zu,\"tokens\":%zu,\"first_seen\":%d",
                 batch->model, (unsigned long long)batch->number, batch->sequences, batch->tokens,
                 batch->is_first_seen);
  name_thread(writer, batch->whole.thread, name);
  put_span(writer, "batch", &batch->whole, arguments);
  put_span(writer, "compute", &batch->compute, arguments);
}

static uint64_t first_of(uint64_t count) {
  return count > SERVE_TRACE_RECORDS ? count - SERVE_TRACE_RECORDS : 0;
}

static void put_all(serve_trace_t* trace, trace_file_t* writer) {
  (void)pthread_mutex_lock(&trace->mutex);
  serve_buffer_text(&writer->text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  begin_event(writer, "process_name", 'M', 0, 0);
  serve_buffer_text(&writer->text, ",\"args\":{\"name\":\"quern-serve\"}}");
  for (uint64_t i = first_of(trace->batch_count); i < trace->batch_count; ++i) {
    put_batch(writer, &trace->batches[i % SERVE_TRACE_RECORDS]);
  }
  for (uint64_t i = first_of(trace->request_count); i < trace->request_count; ++i) {
    put_request(writer, &trace->requests[i % SERVE_TRACE_RECORDS], i + 1);
  }
  serve_buffer_format(&writer->text,
                      "\n],\"otherData\":{\"lost_requests\":\"%llu\",\"lost_batches\":\"%llu\"}}\n",
                      (unsigned long long)first_of(trace->request_count),
                      (unsigned long long)first_of(trace->batch_count));
  (void)pthread_mutex_unlock(&trace->mutex);
  flush(writer);
}

qn_status_t serve_trace_write(serve_trace_t* trace, const char* path) {
  trace_file_t writer = {.file = fopen(path, "we"), .path = path, .process = (long)getpid()};
  if (writer.file) put_all(trace, &writer);
  if ((!writer.file || fclose(writer.file) != 0) && qn_ok(writer.status)) {
    return qn_status_make(QN_STATUS_IO, "cannot write '%s': %s", path, strerror(errno));
  }
  return writer.status;
}
