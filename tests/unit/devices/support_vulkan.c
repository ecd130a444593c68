// SPDX-License-Identifier: Apache-2.0
// tests/unit/devices/support_vulkan.c: see support_vulkan.h.
//
// The plan of the executable is written by hand: one launch for each function, except TEST_TWICE
// and TEST_PAIR.
#include "tests/unit/devices/support_vulkan.h"

#if QN_HAVE_VULKAN
#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "devices/gpu/plan.h"
#include "devices/vulkan/stream.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"
#include "tests/unit/devices/kernels/kernels.inc"

// ThreadSanitizer does not see how the layer orders its own threads.
#if defined(__SANITIZE_THREAD__)
#define HAS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_THREAD_SANITIZER 1
#endif
#endif
#ifndef HAS_THREAD_SANITIZER
#define HAS_THREAD_SANITIZER 0
#endif

const qn_device_t test_vulkan = {QN_DEVICE_VULKAN, 0};

static char directory[QN_TEST_PATH_SIZE];
static bool has_validation;
static bool is_present;
static char messages[16384];

VkResult test_vulkan_submit_result;
VkResult VKAPI_CALL test_vulkan_failing_submit(VkQueue queue, uint32_t count,
                                               const VkSubmitInfo* infos, VkFence fence) {
  (void)queue;
  (void)count;
  (void)infos;
  (void)fence;
  return test_vulkan_submit_result;
}

VkResult VKAPI_CALL test_vulkan_no_progress(VkDevice device, VkSemaphore semaphore, uint64_t* out) {
  (void)device;
  (void)semaphore;
  *out = 0;
  return VK_SUCCESS;
}

void test_vulkan_stop_submit_timer(void) {
  qn__vk_submit_timer_stop(qn__vk_find(0));
}

void test_vulkan_allow_submit_timer(void) {
  qn__vk_submit_timer_t* timer = &qn__vk_find(0)->submit_timer;
  timer->is_stopping = false;
  atomic_store(&timer->is_armed, false);
}

qn__vulkan_stats_t test_vulkan_stats(void) {
  qn__vulkan_stats_t out;
  must(qn__vulkan_stats(0, &out));
  return out;
}

void test_vulkan_await_used(uint64_t bytes) {
  while (test_vulkan_stats().used_bytes > bytes) (void)sched_yield();
}

// ---------------------------------------------------------------------------------- the layer

static bool is_layer_installed(void) {
  static const char* const places[] = {"/usr/share/vulkan/explicit_layer.d",
                                       "/usr/local/share/vulkan/explicit_layer.d",
                                       "/etc/vulkan/explicit_layer.d"};
  char path[256];
  for (size_t i = 0; i < QN_COUNT_OF(places); i++) {
    (void)snprintf(path, sizeof path, "%s/VkLayer_khronos_validation.json", places[i]);
    FILE* file = fopen(path, "rb");
    if (!file) continue;
    (void)fclose(file);
    return true;
  }
  return false;
}

// Keeps drivers and layers loaded. The loader unloads them with the instance, and then a leak
// checker cannot match suppressions with their names.
static void keep_loaded(void) {
  static const char* const libraries[] = {"libvulkan_lvp.so", "libVkLayer_khronos_validation.so",
                                          "libVkLayer_MESA_device_select.so"};
  for (size_t i = 0; i < QN_COUNT_OF(libraries); i++) {
    (void)dlopen(libraries[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  }
}

static int begin(bool checks_order) {
  keep_loaded();
  qn__vulkan_order_everything(checks_order);
  assert_true(qn_test_tempdir_make(directory));
  has_validation = is_layer_installed() && !HAS_THREAD_SANITIZER;
  if (has_validation) {
    char path[QN_TEST_PATH_SIZE + 64], text[1024];
    (void)snprintf(path, sizeof path, "%s/vk_layer_settings.txt", directory);
    (void)snprintf(
        text, sizeof text,
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
        "khronos_validation.report_flags = error,warn,perf\n"
        "khronos_validation.enables = %s\n"
        // The layer's threads follow the queues and complain about themselves where one of them has
        // not run for ten seconds: that is the machine's, or a stopped process.
        "khronos_validation.message_id_filter = UNASSIGNED-VkSemaphore-state-timeout,"
        "UNASSIGNED-VkFence-state-timeout,UNASSIGNED-VkQueue-state-timeout\n"
        "khronos_validation.log_filename = %s/validation.log\n",
        checks_order ? "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT" : "",
        directory);
    assert_true(qn_test_write_file(path, text, strlen(text)));
    assert_int_equal(setenv("VK_LAYER_SETTINGS_PATH", path, 1), 0);
    assert_int_equal(setenv("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation", 1), 0);
  }
  qn_status_t status = qn__vulkan_available();
  is_present = qn_ok(status);
  if (!is_present) (void)fprintf(stderr, "no Vulkan device: %s\n", qn_status_message(status));
  if (!has_validation) (void)fprintf(stderr, "without the validation layer\n");
  qn_status_free(status);
  return 0;
}

int test_vulkan_begin(void** state) {
  (void)state;
  return begin(false);
}

int test_vulkan_begin_ordered(void** state) {
  (void)state;
  return begin(true);
}

bool test_vulkan_is_present(void) {
  return is_present;
}

bool test_vulkan_has_validation(void) {
  return has_validation;
}

const char* test_vulkan_messages(void) {
  char path[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(path, sizeof path, "%s/validation.log", directory);
  long size = qn_test_read_file(path, messages, sizeof messages - 1);
  messages[size > 0 ? size : 0] = '\0';
  return messages;
}

int test_vulkan_end(void** state) {
  (void)state;
  qn__vulkan_reset(qn_allocator_default());
  const char* said = test_vulkan_messages();
  if (said[0] != '\0') fail_msg("the validation layer says: %s", said);
  qn_test_tempdir_remove(directory);
  return 0;
}

void test_vulkan_is_silent(void** state) {
  (void)state;
  const char* said = test_vulkan_messages();
  if (said[0] != '\0') fail_msg("%s", said);
}

// ---------------------------------------------------------------------------------- the artifact

typedef struct test_kernel {
  const uint32_t* words;
  size_t size;
  uint32_t thread_count;
  bool has_record;
  uint32_t buffer_count;
  uint32_t scalar_count;
  int64_t block_count;
  uint32_t element_bytes;
} test_kernel_t;

#define SPIRV(name) spirv_##name, sizeof spirv_##name

static const test_kernel_t kernels[] = {
    [TEST_FILL] = {SPIRV(fill), 64, false, 1, 2, 5, 4},
    [TEST_STEP] = {SPIRV(step), 64, false, 2, 1, 5, 4},
    [TEST_SPIN] = {SPIRV(spin), 1, false, 1, 1, 1, 4},
    [TEST_CHECK] = {SPIRV(check), 64, true, 2, 2, 3, 4},
    [TEST_SIZE] = {SPIRV(size), 0, false, 1, 0, 2, 4},
    [TEST_MANY] = {SPIRV(many), 1, false, 1, 40, 1, 4},
    [TEST_BYTES] = {SPIRV(bytes), 64, false, 1, 2, INT64_C(1) << 40, 1},
    [TEST_LATE] = {SPIRV(late), 0, true, 2, 1, 3, 4},
};

static struct {
  bool is_made;
  uint8_t* payload;
  size_t payload_size;
  qn__buffer_t plan;
  qn_artifact_function_t functions[TEST_FUNCTION_COUNT];
} made;

static qn_gpu_arg_t arg_of(const test_kernel_t* kernel, uint32_t index) {
  bool is_buffer = index < kernel->buffer_count;
  return (qn_gpu_arg_t){.kind = is_buffer ? QN_GPU_ARG_BUFFER : QN_GPU_ARG_WORD,
                        .index = index,
                        .size_bytes = is_buffer ? kernel->element_bytes : 4,
                        .is_written = is_buffer && index + 1 == kernel->buffer_count};
}

// Kernels of the plan: those of the table, then two for TEST_TWICE, of which the one writes
// workspace and the other reads it, then two for TEST_PAIR.
static void make_plan(void) {
  static qn__gpu_kernel_t plan_kernels[QN_COUNT_OF(kernels) + 4];
  static qn_gpu_arg_t args[QN_COUNT_OF(kernels) + 4][48];
  static qn__gpu_step_t steps[TEST_FUNCTION_COUNT][3];
  static qn__gpu_op_t counts[QN_COUNT_OF(kernels)];
  static qn__gpu_function_t functions[TEST_FUNCTION_COUNT];
  static qn__gpu_op_t threads[QN_COUNT_OF(kernels)];
  size_t offset = 0;
  for (uint32_t i = 0; i < QN_COUNT_OF(kernels); i++) {
    const test_kernel_t* kernel = &kernels[i];
    uint32_t arg_count = kernel->buffer_count + kernel->scalar_count;
    for (uint32_t a = 0; a < arg_count; a++) args[i][a] = arg_of(kernel, a);
    plan_kernels[i] = (qn__gpu_kernel_t){.name = "main",
                                         .code_offset = offset,
                                         .code_size_bytes = kernel->size,
                                         .thread_count = kernel->thread_count,
                                         .has_record = kernel->has_record,
                                         .arg_count = arg_count,
                                         .args = args[i]};
    offset += kernel->size;
    threads[i] =
        (qn__gpu_op_t){.kind = QN__GPU_WORD, .dtype = QN_DTYPE_I64, .value = (int64_t)arg_count};
    counts[i] = (qn__gpu_op_t){.kind = QN__GPU_CONST, .value = kernel->block_count};
    steps[i][0] = (qn__gpu_step_t){.kind = QN__GPU_STEP_LAUNCH,
                                   .a = {1, &counts[i]},
                                   .b = {kernel->thread_count == 0 ? 1 : 0, &threads[i]},
                                   .kernel = i,
                                   .wide_kernel = QN__GPU_NO_KERNEL,
                                   .site = QN__GPU_NO_SITE,
                                   .memory_site = QN__GPU_NO_SITE};
    uint32_t words = arg_count + (kernel->thread_count == 0 ? 1 : 0);
    functions[i] = (qn__gpu_function_t){
        .word_count = words, .param_count = words, .step_count = 1, .steps = steps[i]};
  }
  // y, count, value: workspace of 4 count bytes, filled, then read.
  static const qn__gpu_op_t bytes[] = {{.kind = QN__GPU_WORD, .dtype = QN_DTYPE_I64, .value = 1},
                                       {.kind = QN__GPU_CONST, .value = 4},
                                       {.kind = QN__GPU_APPLY, .op = QN_OP_MUL}};
  uint32_t k = QN_COUNT_OF(kernels);
  plan_kernels[k] = plan_kernels[TEST_FILL];
  plan_kernels[k].args = args[k];
  args[k][0] = (qn_gpu_arg_t){QN_GPU_ARG_WORKSPACE, 0, 4, true};
  args[k][1] = (qn_gpu_arg_t){QN_GPU_ARG_WORD, 1, 4, false};
  args[k][2] = (qn_gpu_arg_t){QN_GPU_ARG_WORD, 2, 4, false};
  plan_kernels[k + 1] = plan_kernels[TEST_STEP];
  plan_kernels[k + 1].args = args[k + 1];
  args[k + 1][0] = (qn_gpu_arg_t){QN_GPU_ARG_WORKSPACE, 0, 4, false};
  args[k + 1][1] = (qn_gpu_arg_t){QN_GPU_ARG_BUFFER, 0, 4, true};
  args[k + 1][2] = (qn_gpu_arg_t){QN_GPU_ARG_WORD, 1, 4, false};
  steps[TEST_TWICE][0] = (qn__gpu_step_t){.kind = QN__GPU_STEP_WORKSPACE,
                                          .a = {3, bytes},
                                          .site = QN__GPU_NO_SITE,
                                          .memory_site = QN__GPU_NO_SITE};
  steps[TEST_TWICE][1] = steps[TEST_FILL][0];
  steps[TEST_TWICE][1].kernel = k;
  steps[TEST_TWICE][2] = steps[TEST_STEP][0];
  steps[TEST_TWICE][2].kernel = k + 1;
  functions[TEST_TWICE] = (qn__gpu_function_t){.word_count = 3,
                                               .param_count = 3,
                                               .workspace_count = 1,
                                               .step_count = 3,
                                               .steps = steps[TEST_TWICE]};
  // x, middle, out, count, limit, threads.
  static const qn__gpu_op_t last = {.kind = QN__GPU_WORD, .dtype = QN_DTYPE_I64, .value = 5};
  plan_kernels[k + 2] = plan_kernels[TEST_CHECK];
  plan_kernels[k + 2].args = args[k + 2];
  args[k + 2][0] = (qn_gpu_arg_t){QN_GPU_ARG_BUFFER, 0, 4, false};
  args[k + 2][1] = (qn_gpu_arg_t){QN_GPU_ARG_BUFFER, 1, 4, true};
  args[k + 2][2] = (qn_gpu_arg_t){QN_GPU_ARG_WORD, 3, 4, false};
  args[k + 2][3] = (qn_gpu_arg_t){QN_GPU_ARG_WORD, 4, 4, false};
  plan_kernels[k + 3] = plan_kernels[TEST_LATE];
  plan_kernels[k + 3].args = args[k + 3];
  args[k + 3][0] = (qn_gpu_arg_t){QN_GPU_ARG_BUFFER, 1, 4, false};
  args[k + 3][1] = (qn_gpu_arg_t){QN_GPU_ARG_BUFFER, 2, 4, true};
  args[k + 3][2] = (qn_gpu_arg_t){QN_GPU_ARG_WORD, 3, 4, false};
  steps[TEST_PAIR][0] = steps[TEST_CHECK][0];
  steps[TEST_PAIR][0].kernel = k + 2;
  steps[TEST_PAIR][1] = steps[TEST_LATE][0];
  steps[TEST_PAIR][1].kernel = k + 3;
  steps[TEST_PAIR][1].b.ops = &last;
  functions[TEST_PAIR] = (qn__gpu_function_t){
      .word_count = 6, .param_count = 6, .step_count = 2, .steps = steps[TEST_PAIR]};
  qn__gpu_plan_t plan = {.function_count = TEST_FUNCTION_COUNT,
                         .functions = functions,
                         .kernel_count = k + 4,
                         .kernels = plan_kernels};
  qn__buffer_init(&made.plan, qn_allocator_default());
  qn__gpu_plan_encode(&plan, &made.plan);
}

static void make_once(void) {
  if (made.is_made) return;
  for (size_t i = 0; i < QN_COUNT_OF(kernels); i++) made.payload_size += kernels[i].size;
  made.payload = malloc(made.payload_size);
  assert_non_null(made.payload);
  size_t offset = 0;
  for (size_t i = 0; i < QN_COUNT_OF(kernels); i++) {
    memcpy(made.payload + offset, kernels[i].words, kernels[i].size);
    offset += kernels[i].size;
  }
  make_plan();
  for (size_t i = 0; i < TEST_FUNCTION_COUNT; i++) {
    made.functions[i] = (qn_artifact_function_t){.name = "f", .launch_count = 1};
  }
  made.is_made = true;
}

void test_vulkan_artifact(const char* isa, qn_artifact_t* out_artifact) {
  make_once();
  *out_artifact = (qn_artifact_t){.struct_size = sizeof *out_artifact,
                                  .format = "vulkan-spirv-1",
                                  .isa = isa,
                                  .payload = made.payload,
                                  .payload_size = made.payload_size,
                                  .metadata = made.plan.data,
                                  .metadata_size = made.plan.size,
                                  .function_count = TEST_FUNCTION_COUNT,
                                  .functions = made.functions};
}

static const qn_device_table_t* table(void) {
  return qn__device_table(QN_DEVICE_VULKAN);
}

void* test_vulkan_load(const qn_driver_cache_t* store) {
  qn_artifact_t artifact;
  test_vulkan_artifact("{\"kind\":\"vulkan\"}", &artifact);
  qn_load_options_t options = {.struct_size = sizeof options, .name = "test"};
  if (store) options.driver_cache = *store;
  void* executable;
  must(table()->load(0, &artifact, &options, &executable));
  return executable;
}

void test_vulkan_unload(void* executable) {
  table()->unload(0, executable);
}

// ---------------------------------------------------------------------------------- calls

static void retain(void* owner) {
  ((test_owner_t*)owner)->reference_count++;
}
static void release(void* owner) {
  ((test_owner_t*)owner)->reference_count--;
}
static qn_status_t describe(void* owner, const qn_kernel_failure_t* failure) {
  ((test_owner_t*)owner)->described_count++;
  return qn_status_make(QN_STATUS_OUT_OF_BOUNDS, "site %u index %" PRId64 " extent %" PRId64,
                        failure->site, failure->index, failure->extent);
}

qn_status_t test_vulkan_call(void* executable, test_function_t function, qn_stream_t* stream,
                             test_owner_t* owner, size_t buffer_count, void* const* buffers,
                             const size_t* sizes, size_t scalar_count, const uint64_t* scalars) {
  static test_owner_t nobody;
  uint64_t words[64] = {0}, ends[64] = {0};
  for (size_t i = 0; i < buffer_count; i++) {
    words[i] = (uintptr_t)buffers[i];
    ends[i] = words[i] + sizes[i];
  }
  for (size_t i = 0; i < scalar_count; i++) words[buffer_count + i] = scalars[i];
  qn_launch_t launch = {.words = words,
                        .word_count = (uint32_t)(buffer_count + scalar_count),
                        .ends = ends,
                        .owner = owner ? owner : &nobody,
                        .retain = retain,
                        .release = release,
                        .describe = describe};
  return table()->launch(0, executable, (uint32_t)function, qn__stream_inner(stream), &launch);
}

void* test_vulkan_allocate(size_t size_bytes) {
  void* pointer;
  must(qn_device_allocate(test_vulkan, size_bytes, 0, &pointer));
  return pointer;
}

void test_vulkan_free(void* pointer) {
  must(qn_device_free(test_vulkan, pointer));
}

static const qn_device_t cpu = {QN_DEVICE_CPU, 0};

qn_status_t test_vulkan_copy_to(void* to, size_t offset, const void* from, size_t size,
                                qn_stream_t* stream) {
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = cpu,
                    .from = from,
                    .to_device = test_vulkan,
                    .to = to,
                    .to_offset_bytes = offset,
                    .size_bytes = size};
  return qn_device_copy(&copy, stream);
}

qn_status_t test_vulkan_copy_from(void* to, const void* from, size_t offset, size_t size,
                                  qn_stream_t* stream) {
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = test_vulkan,
                    .from = from,
                    .from_offset_bytes = offset,
                    .to_device = cpu,
                    .to = to,
                    .size_bytes = size};
  return qn_device_copy(&copy, stream);
}

qn_status_t test_vulkan_copy(void* to, size_t to_offset, const void* from, size_t from_offset,
                             size_t size, qn_stream_t* stream) {
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = test_vulkan,
                    .from = from,
                    .from_offset_bytes = from_offset,
                    .to_device = test_vulkan,
                    .to = to,
                    .to_offset_bytes = to_offset,
                    .size_bytes = size};
  return qn_device_copy(&copy, stream);
}
#endif
