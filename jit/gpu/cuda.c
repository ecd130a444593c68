// SPDX-License-Identifier: Apache-2.0
// jit/gpu/cuda.c: the CUDA dialect: the beginning of a text, a kernel's head and foot.
//
// A text includes no headers: the prelude has all that it needs. It is compiled without contraction
// (--fmad=false); `fast` functions call fused products by name. A pointer is `const` if the kernel
// only reads through it, and `restrict`, because buffers of a call do not overlap unless all are
// read-only. So loads may use the read-only cache. What a kernel with fences writes is not
// `restrict`: the compiler would move its accesses across them.
//
// A thread that fails writes the error record, if it is the first, and returns. Threads that
// returned no longer count at barriers and in shuffles. A kernel does nothing if an earlier launch
// has failed.
#include "jit/gpu/cuda.h"

#include <assert.h>

// ---- the text's beginning

static void text_begin(qn__gpu_printer_t* p) {
  // This follows the prelude, because it uses types of the prelude.
  p->at = &p->outer;
  if (p->dialect_bits & QN__CUDA_USES_RECORD) {
    qn__kprint_line(p, "struct qn_record_t {");
    qn__kprint_line(p, "  uint tag;");
    qn__kprint_line(p, "  uint site;");
    qn__kprint_line(p, "  qn_i64 index;");
    qn__kprint_line(p, "  qn_i64 extent;");
    qn__kprint_line(p, "};");
  }
  if (p->dialect_bits & QN__CUDA_USES_FAIL) {
    qn__kprint_line(p,
                    "static __device__ __noinline__ void qn_fail(qn_record_t* record, uint tag, "
                    "uint site, qn_i64 index, qn_i64 extent) {");
    qn__kprint_line(p, "  if (atomicCAS(&record->tag, 0u, tag) != 0u) return;");
    qn__kprint_line(p, "  record->site = site;");
    qn__kprint_line(p, "  record->index = index;");
    qn__kprint_line(p, "  record->extent = extent;");
    qn__kprint_line(p, "}");
  }
  if (p->dialect_bits & QN__CUDA_USES_WIDE) qn__cuda_wide_helpers(p);
  if (p->dialect_bits & QN__CUDA_USES_TENSOR) qn__cuda_tensor_helpers(p);
  if (p->dialect_bits & QN__CUDA_USES_LANES) {
    // qn_lane_count returns the number of lanes in the thread's warp, and the next function their
    // mask. qn_lane_at returns the source lane of a shuffle. If that lane does not exist, it
    // returns the thread's own lane.
    static const char* const lines[] = {
        "QN_FN uint qn_lane_count(uint thread, uint threads) {",
        "  const uint count = threads - (thread & ~31u);",
        "  return count < 32u ? count : 32u;",
        "}",
        "QN_FN uint qn_lane_mask(uint thread, uint threads) {",
        "  return 0xffffffffu >> (32u - qn_lane_count(thread, threads));",
        "}",
        "QN_FN int qn_lane_at(uint thread, uint threads, qn_i64 lane) {",
        "  const bool is_there = lane >= 0 && lane < qn_i64(qn_lane_count(thread, threads));",
        "  return is_there ? int(lane) : int(thread & 31u);",
        "}",
        "QN_FN int qn_lane_up(uint thread, uint threads, qn_i64 by) {",
        "  const bool is_near = by > -32 && by < 32;",
        "  return qn_lane_at(thread, threads, is_near ? qn_i64(thread & 31u) - by : -1);",
        "}",
        "QN_FN int qn_lane_down(uint thread, uint threads, qn_i64 by) {",
        "  const bool is_near = by > -32 && by < 32;",
        "  return qn_lane_at(thread, threads, is_near ? qn_i64(thread & 31u) + by : -1);",
        "}",
        "QN_FN int qn_lane_xor(uint thread, uint threads, qn_i64 by) {",
        "  const bool is_near = by >= 0 && by < 32;",
        "  return qn_lane_at(thread, threads, is_near ? qn_i64(thread & 31u) ^ by : -1);",
        "}",
    };
    for (size_t i = 0; i < QN_COUNT_OF(lines); ++i) qn__kprint_line(p, "%s", lines[i]);
  }
}

static void table(qn__gpu_printer_t* p, const char* name, const char* type, size_t count,
                  const char* elements) {
  qn__kprint_line(p, "static __device__ const %s %s[%zu] = {%s};", type, name, count ? count : 1,
                  elements);
}

// ---- shared memory

static uint64_t align_up(uint64_t size, uint64_t align) {
  return (size + align - 1) / align * align;
}

static uint64_t shared_size(const qn__ir_buffer_t* buffer) {
  int64_t count = qn__kprint_element_count(buffer);
  return (uint64_t)(count > 0 ? count : 1) * qn_dtype_size_bytes(buffer->dtype);
}

static void declare_shared(qn__gpu_printer_t* p) {
  const uint32_t align = p->shared_align;
  uint64_t total = 0;
  for (uint32_t i = 0; i < p->shared_count; ++i) {
    total = align_up(total, align) + shared_size(p->shared[i]);
  }
  qn__gpu_kernel_t* plan = p->kernel->plan;
  uint64_t own = align_up(p->extra_shared_bytes, align);
  int64_t limit = 0;
  (void)qn_target_get_int(p->options->target, "max_shared_memory_per_block", &limit);
  if (total + own > (uint64_t)limit) {
    qn__kprint_unsupported(p,
                           "a block needs %" PRIu64
                           " bytes of shared memory; the target has %" PRId64
                           " (max_shared_memory_per_block)",
                           total + own, limit);
    return;
  }
  bool is_dynamic = total + own > QN__CUDA_STATIC_SHARED_BYTES;
  if (is_dynamic) {
    qn__kprint_line(p, "extern __shared__ __align__(%u) unsigned char qn_dynamic_shared_%u[];",
                    align, align);
  }
  uint64_t offset = 0;
  for (uint32_t i = 0; i < p->shared_count; ++i) {
    const qn__ir_buffer_t* buffer = p->shared[i];
    const char* type = qn__cuda_memory_type(buffer->dtype);
    const char* name = qn__kprint_buffer(p, buffer);
    offset = align_up(offset, align);
    if (is_dynamic) {
      qn__kprint_line(p, "%s* const %s = (%s*)(qn_dynamic_shared_%u + %" PRIu64 ");", type, name,
                      type, align, offset);
    } else {
      qn__kprint_line(p, "__shared__ __align__(%u) %s %s[%" PRIu64 "];", align, type, name,
                      shared_size(buffer) / qn_dtype_size_bytes(buffer->dtype));
    }
    offset += shared_size(buffer);
  }
  assert(offset == total);
  qn__kprint_extra(p);
  plan->shared_bytes = (uint32_t)(is_dynamic ? own : total + own);
  plan->dynamic_shared_bytes = (uint32_t)(is_dynamic ? total : 0);
}

// ---- the kernel's head

// Returns the parameter list: buffers, the record, scalars, the tag (quern/gpu.h).
static const char* parameters(qn__gpu_printer_t* p) {
  const qn__gpu_kernel_t* plan = p->kernel->plan;
  const char* text = "";
  const char* comma = "";
  for (uint32_t i = 0; i < plan->arg_count; ++i) {
    const qn_gpu_arg_t* arg = &plan->args[i];
    const qn_gpu_operand_t* node = &p->kernel->nodes[i];
    if (!node->buffer) continue;
    bool is_shared = arg->is_written && p->is_ordered;
    text = qn__kprint_text(p, "%s%s%s%s*%s %s", text, comma, arg->is_written ? "" : "const ",
                           qn__cuda_memory_type(node->buffer->dtype),
                           is_shared ? "" : " __restrict__", qn__kprint_buffer(p, node->buffer));
    comma = ", ";
  }
  if (plan->has_record) {
    text = qn__kprint_text(p, "%s%sqn_record_t* qn_record", text, comma);
    comma = ", ";
  }
  for (uint32_t i = 0; i < plan->arg_count; ++i) {
    const qn_gpu_operand_t* node = &p->kernel->nodes[i];
    if (node->buffer) continue;
    text = qn__kprint_text(p, "%s%s%s a_%s", text, comma, qn__cuda_memory_type(node->var->dtype),
                           qn__kprint_var(p, node->var));
    comma = ", ";
  }
  if (plan->has_record) text = qn__kprint_text(p, "%s%suint qn_tag", text, comma);
  return text;
}

static void declare_scalars(qn__gpu_printer_t* p) {
  const qn__gpu_kernel_t* plan = p->kernel->plan;
  for (uint32_t i = 0; i < plan->arg_count; ++i) {
    if (p->kernel->nodes[i].buffer) continue;
    const qn__ir_var_t* var = p->kernel->nodes[i].var;
    const char* name = qn__kprint_var(p, var);
    bool is_narrow = qn__kprint_is_narrow_var(p, var);
    const char* value = qn__cuda_from_memory(p, var->dtype, qn__kprint_text(p, "a_%s", name));
    if (is_narrow) value = qn__kprint_text(p, "int(%s)", value);
    qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(var->dtype, is_narrow), name, value);
  }
}

static void kernel_begin(qn__gpu_printer_t* p) {
  const qn__gpu_kernel_t* plan = p->kernel->plan;
  int64_t threads = plan->thread_count;
  if (threads == 0) {
    (void)qn_target_get_int(p->options->target, "max_threads_per_block", &threads);
  }
  if (plan->has_record) p->dialect_bits |= QN__CUDA_USES_RECORD;
  qn__kprint_open(p, "extern \"C\" __global__ void __launch_bounds__(%" PRId64 ") %s(%s)", threads,
                  plan->name, parameters(p));
  declare_shared(p);
  if (plan->has_record) {
    // Each thread loads the tag once, by a plain load, which the L1 cache serves. Volatile loads of
    // all blocks would contend for one line of the L2 cache. A plain load is enough: it sees the
    // writes of earlier kernels, and this launch's own tag stops no thread.
    qn__kprint_line(p, "const uint qn_failed = qn_record->tag;");
    qn__kprint_line(p, "if (qn_failed != 0u && qn_failed != qn_tag) return;");
  }
  qn__kprint_line(p, "const uint qn_thread = threadIdx.x;");
  if (plan->thread_count > 0) {
    qn__kprint_line(p, "const uint qn_threads = %uu;", plan->thread_count);
  } else {
    qn__kprint_line(p, "const uint qn_threads = blockDim.x;");
  }
  const char* type = p->kernel->is_narrow ? "uint" : "qn_u64";
  qn__kprint_line(p, "const %s qn_block_first = blockIdx.x;", type);
  qn__kprint_line(p, "const %s qn_block_step = gridDim.x;", type);
  declare_scalars(p);
}

static void barrier(qn__gpu_printer_t* p) {
  qn__kprint_line(p, "__syncthreads();");
}

static void fence(qn__gpu_printer_t* p) {
  qn__kprint_line(p, "__threadfence();");
}

static void fail(qn__gpu_printer_t* p, uint32_t site, const char* index, const char* extent,
                 bool is_wide) {
  (void)is_wide;
  if (!p->kernel->plan->has_record) {
    qn__kprint_fail_status(
        p, qn_status_make(QN_STATUS_INTERNAL, "function '%s': a kernel without a record can fail",
                          p->kernel->function->name));
  }
  p->dialect_bits |= QN__CUDA_USES_FAIL;
  qn__kprint_line(p, "qn_fail(qn_record, qn_tag, %uu, %s, %s);", site, index, extent);
}

const qn__gpu_dialect_t qn__gpu_dialect_cuda = {
    .name = "cuda",
    .unroll = "#pragma unroll",
    .text_begin = text_begin,
    .kernel_begin = kernel_begin,
    .table = table,
    .load = qn__cuda_load,
    .store = qn__cuda_store,
    .wide = &qn__cuda_wide,
    .atomic = qn__cuda_atomic,
    .exchange = qn__cuda_exchange,
    .tensor = qn__cuda_tensor,
    .barrier = barrier,
    .fence = fence,
    .fail = fail,
};
