// SPDX-License-Identifier: Apache-2.0
// devices/cuda/device.c: the table of the CUDA device.
//
// Read next: cuda.h, which has the requirements on all files.
#include "devices/cuda/cuda.h"

const qn_device_table_t qn__cuda_device_table = {
    .abi_version = QN_DEVICE_ABI_VERSION,
    .struct_size = sizeof(qn_device_table_t),
    .type = QN_DEVICE_CUDA,
    .name = "cuda",
    .count = qn__cuda_count,
    .attribute = qn__cuda_attribute,
    .allocate = qn__cuda_allocate,
    .free = qn__cuda_free,
    .workspace_allocate = qn__cuda_workspace_allocate,
    .workspace_free = qn__cuda_workspace_free,
    .copy = qn__cuda_copy,
    .stream_create = qn__cuda_stream_create,
    .stream_destroy = qn__cuda_stream_destroy,
    .stream_sync = qn__cuda_stream_sync,
    .stream_wait = qn__cuda_stream_wait,
    .stream_is_idle = qn__cuda_stream_is_idle,
    .accepts = qn__cuda_accepts,
    .load = qn__cuda_load,
    .unload = qn__cuda_unload,
    .launch = qn__cuda_launch,
    .host_allocate = qn__cuda_host_allocate,
    .host_free = qn__cuda_host_free,
    .stream_wrap = qn__cuda_stream_wrap,
    .stream_native = qn__cuda_stream_native,
    .capture_begin = qn__cuda_capture_begin,
    .capture_end = qn__cuda_capture_end,
    .graph_launch = qn__cuda_graph_launch,
    .graph_destroy = qn__cuda_graph_destroy,
    .target_property = qn__cuda_target_property,
    .absence = qn__cuda_absence,
};
