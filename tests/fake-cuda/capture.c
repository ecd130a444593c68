// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/capture.c: captures, graphs and user objects. See fake.h.
//
// A capture records the order of its calls. For each stream it records how much of each other
// stream is ordered before it. At the end of the capture, all streams must be joined into the first
// one.
#include <stdlib.h>
#include <string.h>

#include "tests/fake-cuda/fake.h"

static fake_capture_t* captures;
static _Thread_local CUstreamCaptureMode thread_mode;  // global

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode);
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTER(0);
  if (*mode < 0 || *mode > 2) return fake_leave(QN__CU_INVALID_VALUE);
  const CUstreamCaptureMode old = thread_mode;
  thread_mode = *mode;
  *mode = old;
  return fake_leave(QN__CU_OK);
}

void fake_capture_invalidate(fake_capture_t* capture) {
  capture->is_invalid = true;
}

// The rules of cuThreadExchangeStreamCaptureMode.
CUresult fake_capture_check_unsafe(void) {
  CUresult result = QN__CU_OK;
  for (fake_capture_t* capture = captures; capture; capture = capture->next) {
    const bool is_own = pthread_equal(capture->thread, pthread_self()) != 0;
    const bool is_forbidden = thread_mode != QN__CU_CAPTURE_MODE_RELAXED &&
                              ((is_own && capture->mode != QN__CU_CAPTURE_MODE_RELAXED) ||
                               (thread_mode == 0 && !is_own && capture->mode == 0));
    if (!is_forbidden) continue;
    capture->is_invalid = true;
    result = FAKE_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult fake_capture_check_legacy(const struct CUctx_st* context, bool is_asked) {
  CUresult result = QN__CU_OK;
  for (fake_capture_t* capture = captures; capture; capture = capture->next) {
    for (int i = 0; i < capture->member_count; i++) {
      const struct CUstream_st* member = capture->members[i];
      if (!fake_is(member, KIND_STREAM) || member->context != context || member->flags != 0)
        continue;
      if (!is_asked) capture->is_invalid = true;
      result = FAKE_CAPTURE_IMPLICIT;
    }
  }
  return result;
}

void fake_capture_append(CUstream stream, op_t* op) {
  fake_capture_t* capture = stream->capture;
  CUgraph graph = capture->graph;
  op->member = stream->member;
  memcpy(op->behind, capture->clock[stream->member], sizeof op->behind);
  graph->op_count++;
  if (graph->last) {
    graph->last->next = op;
  } else {
    graph->first = op;
  }
  graph->last = op;
  capture->clock[stream->member][stream->member]++;
}

CUresult fake_capture_wait(CUstream stream, CUevent event) {
  fake_capture_t* capture = event->capture;
  if (!capture) {
    fake_capture_invalidate(stream->capture);
    return FAKE_CAPTURE_ISOLATION;
  }
  if (stream->capture && stream->capture != capture) {
    fake_capture_invalidate(stream->capture);
    fake_capture_invalidate(capture);
    return FAKE_CAPTURE_MERGE;
  }
  if (!stream->capture) {
    if (stream == stream->context->legacy || capture->member_count == MAX_MEMBERS) {
      fake_capture_invalidate(capture);
      return FAKE_CAPTURE_UNSUPPORTED;
    }
    stream->capture = capture;
    stream->member = capture->member_count;
    capture->members[capture->member_count++] = stream;
    // A stream that joins the capture counts as having work that must be joined back.
    capture->clock[stream->member][stream->member] = 1;
  }
  uint64_t* clock = capture->clock[stream->member];
  for (int i = 0; i < MAX_MEMBERS; i++) {
    if (event->clock[i] > clock[i]) clock[i] = event->clock[i];
  }
  return QN__CU_OK;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode);
EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  if (stream->capture || stream == stream->context->legacy || mode < 0 || mode > 2) {
    return fake_leave(FAKE_CAPTURE_UNSUPPORTED);
  }
  fake_capture_t* capture = calloc(1, sizeof *capture);
  capture->graph = calloc(1, sizeof *capture->graph);
  capture->graph->context = stream->context;
  fake_add(&capture->graph->object, KIND_GRAPH);
  fake_counts.graphs++;
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->member_count = 1;
  capture->members[0] = stream;
  capture->next = captures;
  captures = capture;
  stream->capture = capture;
  stream->member = 0;
  return fake_leave(QN__CU_OK);
}

// Releases a graph's resources when neither the graph nor an instance is left. Destroy functions of
// user objects run without the lock, as in the driver.
static void free_graph(CUgraph graph) {
  if (!graph->is_destroyed || graph->exec_count > 0) return;
  while (graph->first) {
    op_t* op = graph->first;
    graph->first = op->next;
    fake_op_free(op);
  }
  for (int i = 0; i < graph->memory_count; i++) {
    (void)fake_memory_free(graph->memory[i], MEMORY_POOL);
  }
  for (int i = 0; i < graph->kept_count; i++) {
    CUuserObject object = graph->kept[i];
    if (--object->count > 0) continue;
    fake_remove(&object->object);
    fake_counts.user_objects--;
    fake_call_host(object->destroy, object->self);
    free(object);
  }
  free(graph);
}

static void destroy_graph(CUgraph graph) {
  fake_remove(&graph->object);
  fake_counts.graphs--;
  graph->is_destroyed = true;
  free_graph(graph);
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph* out_graph);
EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph* out_graph) {
  ENTER(NEEDS_CONTEXT);
  *out_graph = NULL;
  CUstream stream;
  CUresult result = fake_stream_find(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  fake_capture_t* capture = stream->capture;
  if (!capture) return fake_leave(QN__CU_INVALID_VALUE);
  if (capture->origin != stream) return fake_leave(FAKE_CAPTURE_UNMATCHED);
  if (capture->mode != QN__CU_CAPTURE_MODE_RELAXED &&
      !pthread_equal(capture->thread, pthread_self())) {
    return fake_leave(FAKE_CAPTURE_WRONG_THREAD);
  }
  for (int i = 0; i < capture->member_count; i++) {
    if (capture->clock[0][i] < capture->clock[i][i]) result = FAKE_CAPTURE_UNJOINED;
    // A stream that was destroyed meanwhile has been reported already.
    if (fake_is(capture->members[i], KIND_STREAM)) capture->members[i]->capture = NULL;
  }
  if (capture->is_invalid) result = FAKE_CAPTURE_INVALIDATED;
  for (fake_capture_t** at = &captures; *at; at = &(*at)->next) {
    if (*at != capture) continue;
    *at = capture->next;
    break;
  }
  if (result == QN__CU_OK) {
    *out_graph = capture->graph;
  } else {
    destroy_graph(capture->graph);
  }
  free(capture);
  return fake_leave(result);
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* out_status,
                                          uint64_t* out_id, CUgraph* out_graph,
                                          const CUgraphNode** out_nodes, size_t* out_node_count);
EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* out_status,
                                          uint64_t* out_id, CUgraph* out_graph,
                                          const CUgraphNode** out_nodes, size_t* out_node_count) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_ask(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  const fake_capture_t* capture = stream->capture;
  *out_status = !capture ? 0 : capture->is_invalid ? 2 : 1;
  if (out_id) *out_id = (uint64_t)(uintptr_t)capture;
  if (out_graph) *out_graph = capture ? capture->graph : NULL;
  if (out_nodes) *out_nodes = NULL;
  if (out_node_count) *out_node_count = 0;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* out_status);
EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* out_status) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_stream_ask(handle, &stream);
  if (result != QN__CU_OK) return fake_leave(result);
  *out_status = !stream->capture ? 0 : stream->capture->is_invalid ? 2 : 1;
  return fake_leave(QN__CU_OK);
}

// ---------------------------------------------------------------------------------- graphs

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out_exec, CUgraph graph,
                                            unsigned long long flags);
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out_exec, CUgraph graph,
                                            unsigned long long flags) {
  ENTER(NEEDS_CONTEXT);
  if (!fake_is(graph, KIND_GRAPH) || flags != 0) return fake_leave(QN__CU_INVALID_VALUE);
  CUgraphExec exec = calloc(1, sizeof *exec);
  exec->context = graph->context;
  exec->graph = graph;
  graph->exec_count++;
  fake_add(&exec->object, KIND_EXEC);
  fake_counts.graph_execs++;
  *out_exec = exec;
  return fake_leave(QN__CU_OK);
}

void fake_exec_release(CUgraphExec exec) {
  if (--exec->use_count > 0 || !exec->is_destroyed) return;
  exec->graph->exec_count--;
  free_graph(exec->graph);
  free(exec);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle);
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  ENTER(NEEDS_CONTEXT);
  CUstream stream;
  CUresult result = fake_is(exec, KIND_EXEC) ? QN__CU_OK : FAKE_INVALID_HANDLE;
  if (result == QN__CU_OK) result = fake_stream_find(handle, &stream);
  if (result == QN__CU_OK && stream->capture) result = QN__CU_NOT_SUPPORTED;
  if (result != QN__CU_OK) return fake_leave(result);
  for (const op_t* op = exec->graph->first; op; op = op->next) {
    if (op->kind == OP_KERNEL && !fake_is(op->function->module, KIND_MODULE)) {
      fake_violation("a graph with a kernel whose module is gone");
      return fake_leave(FAKE_INVALID_HANDLE);
    }
  }
  op_t* op = fake_op(OP_GRAPH);
  op->exec = exec;
  exec->use_count++;
  return fake_leave(fake_enqueue(stream, op));
}

EXPORT CUresult cuGraphDestroy(CUgraph graph);
EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  ENTER(0);
  if (!fake_is(graph, KIND_GRAPH)) return fake_leave(QN__CU_INVALID_VALUE);
  destroy_graph(graph);
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec);
EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ENTER(0);
  if (!fake_is(exec, KIND_EXEC)) return fake_leave(QN__CU_INVALID_VALUE);
  fake_remove(&exec->object);
  fake_counts.graph_execs--;
  exec->is_destroyed = true;
  exec->use_count++;
  fake_exec_release(exec);
  return fake_leave(QN__CU_OK);
}

// ---------------------------------------------------------------------------------- user objects

EXPORT CUresult cuUserObjectCreate(CUuserObject* out_object, void* self, CUhostFn destroy,
                                   unsigned count, unsigned flags);
EXPORT CUresult cuUserObjectCreate(CUuserObject* out_object, void* self, CUhostFn destroy,
                                   unsigned count, unsigned flags) {
  ENTER(0);
  if (flags != QN__CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || count == 0 || !destroy) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  CUuserObject object = calloc(1, sizeof *object);
  object->self = self;
  object->destroy = destroy;
  object->count = count;
  fake_add(&object->object, KIND_USER_OBJECT);
  fake_counts.user_objects++;
  *out_object = object;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned count);
EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  ENTER(0);
  if (!fake_is(object, KIND_USER_OBJECT) || count != object->count) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  fake_remove(&object->object);
  fake_counts.user_objects--;
  fake_call_host(object->destroy, object->self);
  free(object);
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                        unsigned flags);
EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                        unsigned flags) {
  ENTER(0);
  if (!fake_is(graph, KIND_GRAPH) || !fake_is(object, KIND_USER_OBJECT) || count != 1 ||
      flags != QN__CU_GRAPH_USER_OBJECT_MOVE || graph->kept_count == 256) {
    return fake_leave(QN__CU_INVALID_VALUE);
  }
  graph->kept[graph->kept_count++] = object;
  return fake_leave(QN__CU_OK);
}
