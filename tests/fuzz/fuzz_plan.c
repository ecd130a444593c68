// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_plan.c: reads arbitrary bytes as the launch plan of an artifact, and writes it as
// text.
//
// The first byte is the payload's size. A plan that decodes must encode to the same bytes. Plans
// without loops run on a backend that checks its arguments.
#include <stdlib.h>

#include "devices/gpu/plan.h"
#include "devices/gpu/push.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void require(bool is_true) {
  if (!is_true) abort();
}

typedef struct backend {
  const qn__gpu_plan_t* plan;
  long live;
  uint64_t seen;  // mixed of all launches
} backend_t;

static qn_status_t take(void* self, uint64_t size_bytes, uint64_t* out_address) {
  backend_t* backend = self;
  require(size_bytes <= INT64_MAX);
  if (size_bytes > 1u << 20) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "too large");
  backend->live++;
  *out_address = 64;
  return QN_OK;
}
static void give(void* self, uint64_t address) {
  backend_t* backend = self;
  require(address == 64 && backend->live-- > 0);
}
static qn_status_t launch_it(void* self, const qn_gpu_launch_t* launch) {
  backend_t* backend = self;
  require(launch->kernel < backend->plan->kernel_count && launch->block_count > 0);
  require(launch->thread_count > 0 && launch->thread_count <= 1024);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < backend->plan->kernels[launch->kernel].arg_count; i++) {
    sum += launch->values[i];
    if (backend->plan->kernels[launch->kernel].args[i].kind <= QN_GPU_ARG_WORKSPACE) {
      sum += launch->ends[i];
    }
  }
  backend->seen = (backend->seen ^ sum ^ (uint64_t)launch->block_count) * 31 +
                  launch->thread_count * 7 + launch->kernel;
  return sum == 12345 ? qn_status_make(QN_STATUS_DEVICE_ERROR, "bad luck") : QN_OK;
}
static void keep(void* owner) {
  (void)owner;
}
static qn_status_t describe(void* owner, const qn_kernel_failure_t* failure) {
  (void)owner;
  return qn_status_make(QN_STATUS_ASSERTION, "site %u", failure->site);
}

// What a call of these words came to.
static uint64_t call(const qn__gpu_plan_t* plan, uint32_t index, const uint64_t* words,
                     const uint64_t* ends) {
  backend_t backend = {.plan = plan};
  qn_launch_t launch = {.words = words,
                        .word_count = plan->functions[index].word_count,
                        .ends = ends,
                        .retain = keep,
                        .release = keep,
                        .describe = describe};
  const qn_gpu_plan_t loaded = {
      .decoded = *plan,
      .runner = {.workspace_allocate = take, .workspace_free = give, .launch = launch_it},
      .max_threads = 1024};
  qn_status_t status = qn_gpu_plan_run(&loaded, index, &launch, &backend);
  uint64_t seen = backend.seen * 64 + (uint64_t)qn_status_code(status);
  qn_status_free(status);
  require(backend.live == 0);
  return seen;
}

static void run(const qn__gpu_plan_t* plan, uint32_t index) {
  const qn__gpu_function_t* function = &plan->functions[index];
  if (function->word_count > 1000) return;
  for (uint32_t i = 0; i < function->step_count; i++) {
    if (function->steps[i].kind == QN__GPU_STEP_LOOP) return;
  }
  uint64_t* words = calloc(function->word_count + 1U, sizeof *words);
  uint64_t* ends = calloc(function->param_count + 1U, sizeof *ends);
  require(words && ends);
  // Large words and small ones in turn: what a plan remembers is what it evaluates to.
  uint64_t first[2] = {0, 0};
  for (uint32_t turn = 0; turn < 4; turn++) {
    for (uint32_t i = 0; i < function->word_count; i++) {
      words[i] = turn % 2 == 0 ? i * UINT64_C(0x9E3779B97F4A7C15) : i + 3;
    }
    uint64_t seen = call(plan, index, words, ends);
    if (turn < 2) first[turn] = seen;
    require(seen == first[turn % 2]);
  }
  free(words);
  free(ends);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  qn_span_t bytes = {data + 1, size - 1};
  qn_status_t status = qn__gpu_plan_decode(bytes, data[0], &arena, &plan);
  if (qn_ok(status)) {
    qn__buffer_t again;
    qn__buffer_init(&again, qn_allocator_default());
    qn__gpu_plan_encode(&plan, &again);
    require(again.size == bytes.size && memcmp(again.data, bytes.data, bytes.size) == 0);
    qn__buffer_clear(&again);
    for (uint32_t i = 0; i < plan.function_count; i++) qn__gpu_plan_text(&plan, i, &again);
    require(qn_ok(qn__buffer_status(&again, "a text")));
    qn__buffer_deinit(&again);
    uint32_t offsets[QN_GPU_MAX_ARGS + 2];
    for (uint32_t i = 0; i < plan.kernel_count; i++) {
      const qn__gpu_kernel_t* kernel = &plan.kernels[i];
      require(qn__gpu_push_layout(kernel->args, kernel->arg_count, kernel->has_record, offsets) %
                  4 ==
              0);
    }
    for (uint32_t i = 0; i < plan.function_count; i++) run(&plan, i);
  } else {
    require(qn_status_message(status)[0] != '\0');
    qn_status_free(status);
  }
  qn__arena_deinit(&arena);
  return 0;
}
