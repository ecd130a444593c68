// SPDX-License-Identifier: Apache-2.0
// jit/observe/trace.c: writes the spans of a watch as a JSON trace for chrome://tracing and
// Perfetto. A span is a complete event; a wait is a pair of asynchronous events.
//
// Times are microseconds of the monotonic clock, so traces of several processes of a machine share
// one axis.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "jit/observe/trace.h"

// The text is passed to the sink in chunks of about this size.
#define CHUNK_BYTES 32768u

typedef struct thread {
  uint32_t process;
  uint32_t thread;
} thread_t;

typedef struct trace_writer {
  qn__buffer_t text;
  qn_sink_t sink;
  qn_status_t status;  // owned: the first failure
  thread_t* threads;   // the threads whose names were written
  size_t thread_count, thread_capacity;
  size_t last_thread;  // spans of one thread come in runs
  bool has_event;
  uint64_t wait_count;
} trace_writer_t;

static void flush(trace_writer_t* writer) {
  if (qn_ok(writer->status)) writer->status = qn__buffer_status(&writer->text, "a trace");
  if (qn_ok(writer->status) && writer->text.size) {
    writer->status = writer->sink.write(writer->sink.self, writer->text.data, writer->text.size);
  }
  qn__buffer_clear(&writer->text);
}

static void begin_event(trace_writer_t* writer) {
  qn__buffer_cstr(&writer->text, writer->has_event ? ",\n" : "\n");
  writer->has_event = true;
}

// Writes nanoseconds as microseconds: "12.345".
static void put_us(qn__buffer_t* out, int64_t ns) {
  uint64_t value = ns > 0 ? (uint64_t)ns : 0;
  qn__buffer_format(out, "%" PRIu64 ".%03u", value / 1000, (unsigned)(value % 1000));
}

static void put_name(trace_writer_t* writer, const char* event, const qn__span_t* span,
                     const char* name) {
  begin_event(writer);
  qn__buffer_format(&writer->text,
                    "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
                    ",\"args\":{\"name\":",
                    event, span->process, span->thread);
  qn__buffer_json_string(&writer->text, qn__str(name));
  qn__buffer_cstr(&writer->text, "}}");
}

// Writes the name of a span's thread before its first span. If memory is out, the thread gets no
// name and viewers show its number.
static void name_thread(trace_writer_t* writer, const qn__span_t* span, qn_allocator_t allocator) {
  bool is_new_process = true;
  for (size_t i = 0; i < writer->thread_count; i++) {
    size_t at = (writer->last_thread + i) % writer->thread_count;
    const thread_t* known = &writer->threads[at];
    if (known->process == span->process) is_new_process = false;
    if (known->process == span->process && known->thread == span->thread) {
      writer->last_thread = at;
      return;
    }
  }
  void* items = writer->threads;
  if (!qn__grow(allocator, &items, &writer->thread_capacity, writer->thread_count + 1,
                sizeof *writer->threads)) {
    return;
  }
  writer->threads = items;
  writer->last_thread = writer->thread_count;
  writer->threads[writer->thread_count++] = (thread_t){span->process, span->thread};
  if (is_new_process) put_name(writer, "process_name", span, "quern");
  put_name(writer, "thread_name", span, span->thread_name);
}

// Writes the end of an event: process, thread and name.
static void put_place(qn__buffer_t* out, const qn__span_t* span) {
  qn__buffer_format(out,
                    ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"args\":{\"name\":", span->process,
                    span->thread);
  qn__buffer_json_string(out, qn__str(span->name));
  qn__buffer_cstr(out, "}}");
}

// Writes a wait for a compile thread as a pair of asynchronous events. Complete events of one
// thread must nest, and this wait began while that thread was still doing other work.
static void put_wait(trace_writer_t* writer, const qn__span_t* span) {
  qn__buffer_t* out = &writer->text;
  writer->wait_count++;
  for (int i = 0; i < 2; i++) {
    begin_event(writer);
    qn__buffer_format(out,
                      "{\"name\":\"%s\",\"cat\":\"quern\",\"ph\":\"%s\",\"id\":%" PRIu64 ",\"ts\":",
                      qn__stage_name(span->stage), i ? "e" : "b", writer->wait_count);
    put_us(out, i ? span->start_ns + span->duration_ns : span->start_ns);
    put_place(out, span);
  }
}

static void put_span(void* self, const qn__span_t* span) {
  trace_writer_t* writer = self;
  if (!qn_ok(writer->status)) return;
  name_thread(writer, span, writer->text.allocator);
  qn__buffer_t* out = &writer->text;
  if (span->stage == QN__STAGE_queue) {
    put_wait(writer, span);
  } else {
    begin_event(writer);
    qn__buffer_format(out, "{\"name\":\"%s\",\"cat\":\"quern\",\"ph\":\"X\",\"ts\":",
                      qn__stage_name(span->stage));
    put_us(out, span->start_ns);
    qn__buffer_cstr(out, ",\"dur\":");
    put_us(out, span->duration_ns);
    put_place(out, span);
  }
  if (out->size >= CHUNK_BYTES) flush(writer);
}

qn_status_t qn__trace_put(const qn__watch_t* watch, qn_allocator_t allocator, qn_sink_t sink) {
  trace_writer_t writer = {.sink = sink};
  qn__buffer_init(&writer.text, allocator);
  qn__buffer_cstr(&writer.text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  qn__watch_spans(watch, put_span, &writer);
  qn__buffer_format(&writer.text, "\n],\"otherData\":{\"lost_spans\":\"%" PRIu64 "\"}}\n",
                    qn__watch_lost(watch));
  flush(&writer);
  qn__free(allocator, writer.threads, writer.thread_capacity * sizeof *writer.threads);
  qn__buffer_deinit(&writer.text);
  return writer.status;
}

// ---------------------------------------------------------------------------------- the file

// Writes the name with each "%p" replaced by the process id.
static void put_path(qn__buffer_t* out, const char* name) {
  for (; *name; name++) {
    if (name[0] == '%' && name[1] == 'p') {
      qn__buffer_format(out, "%ld", (long)getpid());
      name++;
    } else {
      qn__buffer_char(out, *name);
    }
  }
}

static qn_status_t write_trace(const qn__watch_t* watch, qn_allocator_t allocator,
                               const char* path) {
  int fd = qn__fs()->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return qn__fs_status(errno, "write", path);
  qn_status_t status = qn__trace_put(watch, allocator, (qn_sink_t){&fd, qn__fs_write_sink});
  if (qn__fs()->close(fd) != 0 && qn_ok(status)) status = qn__fs_status(errno, "write", path);
  return status;
}

void qn__trace_write(const qn__watch_t* watch, qn_allocator_t allocator, const char* name) {
  if (!qn__watch_has_trace(watch) || name[0] == '\0') return;
  // An engine without spans does not overwrite another engine's trace.
  if (qn__watch_span_count(watch) == 0) return;
  // A child of fork does not overwrite its parent's trace.
  bool has_process = strstr(name, "%p") != NULL;
  if (!has_process && !qn__watch_is_of_this_process(watch)) return;
  qn__buffer_t path;
  qn__buffer_init(&path, allocator);
  put_path(&path, name);
  qn_status_t status = qn__buffer_status(&path, "the name of a trace");
  if (qn_ok(status)) status = write_trace(watch, allocator, (const char*)path.data);
  if (!qn_ok(status)) {
    qn__log(QN_LOG_WARN, "the trace '%s' was not written: %s", name, qn_status_message(status));
    qn_status_free(status);
  }
  qn__buffer_deinit(&path);
}
