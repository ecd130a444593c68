// SPDX-License-Identifier: Apache-2.0
// devices/graph.c: public graphs: calls that a stream recorded, to be run many times.
//
// A public graph holds the backend's object and its device.
//
// Thread rule: one thread at a time uses a graph; capturing follows its stream. Read next:
// stream.c.
#include "base/alloc.h"
#include "base/argument.h"
#include "devices/device.h"

struct qn_graph {
  qn_device_t device;
  const qn_device_table_t* table;
  void* inner;
};

static qn_status_t find(qn_device_t device, const qn_stream_t* stream,
                        const qn_device_table_t** out_table) {
  QN_TRY(qn__device_find(device, out_table));
  QN_TRY(qn__stream_check(device, stream));
  const qn_device_table_t* table = *out_table;
  if (table->capture_begin && table->capture_end && table->graph_launch && table->graph_destroy) {
    return QN_OK;
  }
  return qn_status_make(QN_STATUS_UNSUPPORTED, "device '%s' cannot record graphs", table->name);
}

qn_status_t qn_stream_capture_begin(qn_device_t device, qn_stream_t* stream) {
  const qn_device_table_t* table;
  QN_TRY(find(device, stream, &table));
  return table->capture_begin(device.id, qn__stream_inner(stream));
}

qn_status_t qn_stream_capture_end(qn_device_t device, qn_stream_t* stream, qn_graph_t** out_graph) {
  QN_REQUIRE(out_graph);
  *out_graph = NULL;
  const qn_device_table_t* table;
  QN_TRY(find(device, stream, &table));
  qn_graph_t* graph = qn__alloc_zero(qn_allocator_default(), 1, sizeof *graph);
  void* inner = NULL;
  qn_status_t status = table->capture_end(device.id, qn__stream_inner(stream), &inner);
  if (qn_ok(status) && !graph) {
    table->graph_destroy(device.id, inner);
    status = qn__out_of_memory("a graph");
  }
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), graph, sizeof *graph);
    return status;
  }
  *graph = (qn_graph_t){device, table, inner};
  *out_graph = graph;
  return QN_OK;
}

qn_status_t qn_graph_launch(qn_graph_t* graph, qn_stream_t* stream) {
  QN_REQUIRE(graph);
  QN_TRY(qn__stream_check(graph->device, stream));
  return graph->table->graph_launch(graph->device.id, graph->inner, qn__stream_inner(stream));
}

void qn_graph_destroy(qn_graph_t* graph) {
  if (!graph) return;
  graph->table->graph_destroy(graph->device.id, graph->inner);
  qn__free(qn_allocator_default(), graph, sizeof *graph);
}
