// SPDX-License-Identifier: Apache-2.0
// ir/passes/pipeline.c: runs passes in order, checking the body after each in debug builds.
//
// The tables here are what generators run, and what qn_pipeline_at and qn_module_lower
// (jit/lower) offer to others.
#include "ir/passes/pass_builder.h"
#include "ir/passes/passes.h"
#include "ir/verify.h"

#ifndef NDEBUG
static qn_status_t check_post(const qn__ir_body_t* body, const qn__pass_t* pass) {
  for (qn__ir_func_t* function = body->first; function && pass->check; function = function->next) {
    const char* problem = pass->check(function);
    if (!problem) continue;
    return qn_status_make(QN_STATUS_INTERNAL, "pass '%s' left %s in '%s', although %s", pass->name,
                          problem, function->name, pass->post);
  }
  return QN_OK;
}
#endif

// Numbers the declarations: a pass relies on dense ids.
static void number(qn__ir_body_t* body) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    qn__function_number(function);
  }
}

qn_status_t qn__passes_run(qn__ir_body_t* body, const qn__pass_options_t* options,
                           const qn__pass_t* const* passes, size_t pass_count) {
  number(body);
  for (size_t i = 0; i < pass_count; ++i) {
    const qn__pass_t* pass = passes[i];
    if (pass->is_needed && !pass->is_needed(body)) continue;
    QN_TRY(qn__pb_run(body, options, pass));
    number(body);
#ifndef NDEBUG
    QN_TRY(qn__body_verify_status(body, pass->name));
    QN_TRY(check_post(body, pass));
#endif
  }
  return QN_OK;
}

// ------------------------------------------------------------------------------------ tables

// Replace what no other pass knows.
#define FIRST &qn__pass_lower_leaves, &qn__pass_lower_several
static const qn__pass_t* const first_passes[] = {FIRST, &qn__pass_target_values,
                                                 &qn__pass_lower_dtypes};

// A CPU has no exchanges: they become barriers, at which thread loops are split. Unrolling comes
// after that, so that a barrier in an unrolled loop is one barrier. Simplifying comes later, to
// fold constants in the copies.
#define CPU_LOWER                                                                \
  FIRST, &qn__pass_target_values, &qn__pass_lower_dtypes, &qn__pass_lower_views, \
      &qn__pass_lower_exchanges, &qn__pass_serialize_threads, &qn__pass_unroll, &qn__pass_simplify
#define CPU_BLOCKS                                                                              \
  &qn__pass_independent, &qn__pass_separate, &qn__pass_jam, &qn__pass_block, &qn__pass_permute, \
      &qn__pass_once, &qn__pass_strip
#define COUNT_OF(...) (sizeof((const qn__pass_t*[]){__VA_ARGS__}) / sizeof(const qn__pass_t*))
enum { CPU_BLOCKS_BEGIN = COUNT_OF(CPU_LOWER), CPU_BLOCKS_END = COUNT_OF(CPU_LOWER, CPU_BLOCKS) };

static const qn__pass_t* const cpu_passes[] = {CPU_LOWER, CPU_BLOCKS, &qn__pass_hoist,
                                               &qn__pass_vectorize};
static const qn__pass_t* const scalar_passes[] = {CPU_LOWER, CPU_BLOCKS, &qn__pass_hoist,
                                                  &qn__pass_lower_lanes, &qn__pass_lower_math};

// The mapping reads index algebra: it comes after simplifying, and its result is simplified again.
static const qn__pass_t* const gpu_passes[] = {
    FIRST,
    &qn__pass_target_values,
    &qn__pass_lower_dtypes,
    &qn__pass_lower_views,
    &qn__pass_unroll,
    &qn__pass_simplify,
    &qn__pass_independent,
    &qn__pass_separate,
    &qn__pass_partition,
    &qn__pass_tile,
    &qn__pass_distribute,
    &qn__pass_share,
    &qn__pass_reuse,
    &qn__pass_cooperative,
    &qn__pass_barriers,
    &qn__pass_lower_exchanges,
    &qn__pass_simplify,
    &qn__pass_hoist,
};

const qn__pipeline_t qn__pipeline_first = {
    .name = "first",
    .doc = "replaces what no other pass knows",
    .pass_count = QN_COUNT_OF(first_passes),
    .passes = first_passes,
};

const qn__pipeline_t qn__pipeline_cpu = {
    .name = "cpu",
    .doc = "what the generator for CPUs gets: launches of loops, marked with lanes",
    .pass_count = QN_COUNT_OF(cpu_passes),
    .passes = cpu_passes,
    .blocks_begin = CPU_BLOCKS_BEGIN,
    .blocks_end = CPU_BLOCKS_END,
};

const qn__pipeline_t qn__pipeline_scalar = {
    .name = "scalar",
    .doc = "for machines that have loops and arithmetic alone: serial loops in launches",
    .pass_count = QN_COUNT_OF(scalar_passes),
    .passes = scalar_passes,
    .blocks_begin = CPU_BLOCKS_BEGIN,
    .blocks_end = CPU_BLOCKS_END,
};

const qn__pipeline_t qn__pipeline_gpu = {
    .name = "gpu",
    .doc = "what generators for GPUs get: launches of blocks of threads",
    .pass_count = QN_COUNT_OF(gpu_passes),
    .passes = gpu_passes,
    .is_gpu = true,
};

static const qn__pipeline_t* const pipelines[] = {&qn__pipeline_scalar, &qn__pipeline_cpu,
                                                  &qn__pipeline_gpu};

const qn__pipeline_t* qn__pipeline_at(size_t index) {
  return index < QN_COUNT_OF(pipelines) ? pipelines[index] : NULL;
}

// Returns whether a pass comes before place `i` of pipeline `p`.
static bool is_listed(size_t p, size_t i) {
  const qn__pass_t* pass = pipelines[p]->passes[i];
  for (size_t q = 0; q <= p; ++q) {
    size_t count = q < p ? pipelines[q]->pass_count : i;
    for (size_t j = 0; j < count; ++j) {
      if (pipelines[q]->passes[j] == pass) return true;
    }
  }
  return false;
}

const qn__pass_t* qn__pass_at(size_t index) {
  for (size_t p = 0; p < QN_COUNT_OF(pipelines); ++p) {
    for (size_t i = 0; i < pipelines[p]->pass_count; ++i) {
      if (!is_listed(p, i) && index-- == 0) return pipelines[p]->passes[i];
    }
  }
  return NULL;
}

// ------------------------------------------------------------------------------------ running

qn_status_t qn__pipeline_run(const qn__pipeline_t* pipeline, qn__ir_body_t* body,
                             const qn__pass_options_t* options) {
  qn__pass_options_t own = *options;
  if (pipeline->is_gpu) {
    own.vector_bytes = 0;
    own.has_blocks = false;
  } else {
    own.has_shuffles = own.has_block_reductions = false;
  }
  size_t count = pipeline->pass_count;
  if (own.pass_count != 0 && own.pass_count < count) count = own.pass_count;
  bool has_blocks = own.has_blocks && !own.is_checked;
  size_t begin = pipeline->blocks_begin, end = pipeline->blocks_end;
  if (has_blocks || count <= begin || begin == end) {
    return qn__passes_run(body, &own, pipeline->passes, count);
  }
  QN_TRY(qn__passes_run(body, &own, pipeline->passes, begin));
  return count <= end ? QN_OK : qn__passes_run(body, &own, pipeline->passes + end, count - end);
}

qn_status_t qn__passes_run_cpu(qn__ir_body_t* body, const qn__pass_options_t* options) {
  return qn__pipeline_run(&qn__pipeline_cpu, body, options);
}

qn_status_t qn__passes_run_gpu(qn__ir_body_t* body, const qn__pass_options_t* options) {
  return qn__pipeline_run(&qn__pipeline_gpu, body, options);
}
