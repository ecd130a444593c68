// SPDX-License-Identifier: Apache-2.0
// What does a packed call on Vulkan cost over recording and submitting by hand, and how much time
// does a warm cache save a process?
//
// The same kernel with three buffers and a scalar runs in a loop with the same calls of Vulkan (a
// barrier, push constants, a dispatch; 64 in a command buffer; one submit each; a sync at the end),
// and through qn_function_call with every check. The loop leaves memory to the driver; a second one
// gives it pages as quern does. Times are processor time of the calling thread, without the threads
// of a software driver. Then processes: from the start to the first result, with an empty cache and
// with a warm one.
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness.h"
#include "quern/config.h"

#if QN_HAVE_VULKAN
#include "devices/gpu/plan.h"
#include "devices/vulkan/command_allocator.h"
#include "devices/vulkan/executable.h"
#include "devices/vulkan/stream.h"
#include "jit/call/executable.h"
#include "quern/backend.h"
#include "quern/quern.h"

enum { COUNT = 64, BATCH = 64, RING = 32, LAUNCHES = 2048, RUNS = 7 };

static const char program[] =
    "func f(a: f32, x: f32[n], y: f32[n], inout z: f32[n]) {\n"
    "  parallel i in 0..n { z[i] = a * x[i] + y[i]; }\n"
    "}\n";

static const qn_device_t vulkan = {QN_DEVICE_VULKAN, 0};

static void must_vk(VkResult result) {
  if (result >= 0) return;
  (void)fprintf(stderr, "bench_vulkan: %s\n", qn__vk_result_text(result));
  exit(1);
}

typedef struct subject {
  qn_function_t* function;
  qn_value_t args[4];
  void* data[3];
  qn_tensor_t tensors[3];
  int64_t shape[1];
  qn_stream_t* stream;
  // The loop by hand.
  qn__vk_device_t* device;
  VkPipeline pipeline;
  VkPipelineLayout layout;
  VkDescriptorPool pool;
  VkDescriptorSet set;
  uint8_t push[256];
  uint32_t push_bytes;
  VkQueue queue;
  VkSemaphore timeline;
  bool has_pages;
  qn__vk_command_allocator_t allocators[RING];
  VkCommandPool pools[RING];
  VkCommandBuffer commands[RING];
  uint64_t value;
  // A launch of the device's table.
  const qn_device_table_t* table;
  void* executable;
  qn_launch_t launch;
  uint64_t words[5], ends[5];
} subject_t;

static void make_function(qn_engine_t* engine, subject_t* s) {
  qn_module_t* module;
  qn_target_t* target;
  bench_must(qn_module_parse(program, strlen(program), NULL, &module));
  bench_must(qn_target_parse("vulkan -from_device=0", &target));
  bench_must(qn_engine_function(engine, module, target, "f", NULL, NULL, &s->function));
  qn_target_release(target);
  qn_module_release(module);
  float host[COUNT];
  for (int i = 0; i < COUNT; i++) host[i] = (float)i;
  s->shape[0] = COUNT;
  for (int i = 0; i < 3; i++) {
    bench_must(qn_device_allocate(vulkan, sizeof host, 0, &s->data[i]));
    qn_copy_t copy = {.struct_size = sizeof copy,
                      .from_device = {QN_DEVICE_CPU, 0},
                      .from = host,
                      .to_device = vulkan,
                      .to = s->data[i],
                      .size_bytes = sizeof host};
    bench_must(qn_device_copy(&copy, NULL));
    s->tensors[i] =
        (qn_tensor_t){s->data[i], vulkan, 1, qn_dtype_to_dl(QN_DTYPE_F32), s->shape, NULL, 0};
    s->args[i + 1] = qn_value_tensor(&s->tensors[i]);
  }
  s->args[0] = qn_value_float(2.0);
}

// ---------------------------------------------------------------------------------- by hand

static const VkAllocationCallbacks* callbacks_of(const subject_t* s, size_t place) {
  return s->has_pages ? &s->allocators[place].callbacks : NULL;
}

static void make_loop(subject_t* s) {
  bench_must(qn__vk_use(0, &s->device));
  qn__vk_device_t* device = s->device;
  const qn__variant_t* variant = atomic_load(&s->function->variant);
  s->table = variant->executable->device_table;
  s->executable = variant->executable->inner;
  qn__vk_executable_t* executable = s->executable;
  const qn__gpu_function_t* function = &executable->plan->decoded.functions[variant->index];
  uint32_t index = 0;
  for (uint32_t i = 0; i < function->step_count; i++) {
    if (function->steps[i].kind == QN__GPU_STEP_LAUNCH) index = function->steps[i].kernel;
  }
  qn__vk_kernel_t* kernel = &executable->kernels[index];
  qn__vk_pipeline_t* pipeline = atomic_load(&kernel->pipelines);
  s->pipeline = pipeline->handle;
  s->layout = kernel->layout->pipeline;
  s->push_bytes = kernel->push_bytes;
  VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 16};
  VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                     .maxSets = 1,
                                     .poolSizeCount = 1,
                                     .pPoolSizes = &size};
  must_vk(device->vk.CreateDescriptorPool(device->handle, &pool, NULL, &s->pool));
  VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                          .descriptorPool = s->pool,
                                          .descriptorSetCount = 1,
                                          .pSetLayouts = &kernel->layout->set};
  must_vk(device->vk.AllocateDescriptorSets(device->handle, &allocate, &s->set));
  uint32_t buffer = 0;
  for (uint32_t i = 0; i < kernel->info.arg_count; i++) {
    const qn_gpu_arg_t* arg = &kernel->info.args[i];
    if (arg->kind == QN_GPU_ARG_BUFFER) {
      qn__vk_place_t place;
      uint64_t address = (uintptr_t)s->data[buffer++];
      if (!qn__vk_decode(device, address, COUNT * sizeof(float), &place)) exit(1);
      VkDescriptorBufferInfo info = {place.block->buffer, 0, VK_WHOLE_SIZE};
      VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                    .dstSet = s->set,
                                    .dstBinding = i,
                                    .descriptorCount = 1,
                                    .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                    .pBufferInfo = &info};
      device->vk.UpdateDescriptorSets(device->handle, 1, &write, 0, NULL);
      uint32_t element = (uint32_t)(place.offset / sizeof(float));
      memcpy(s->push + kernel->offsets[i], &element, sizeof element);
    } else {
      float a = 2.0f;
      uint64_t word = COUNT;
      if (arg->kind == QN_GPU_ARG_WORD && arg->index == 0) memcpy(&word, &a, sizeof a);
      memcpy(s->push + kernel->offsets[i], &word, arg->size_bytes);
    }
  }
  device->vk.GetDeviceQueue(device->handle, device->info.family, 0, &s->queue);
  VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                    .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                     .pNext = &type};
  must_vk(device->vk.CreateSemaphore(device->handle, &semaphore, NULL, &s->timeline));
  for (size_t i = 0; i < RING; i++) {
    qn__vk_command_allocator_init(&s->allocators[i], qn_allocator_default());
    VkCommandPoolCreateInfo create = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                      .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                      .queueFamilyIndex = device->info.family};
    must_vk(
        device->vk.CreateCommandPool(device->handle, &create, callbacks_of(s, i), &s->pools[i]));
    VkCommandBufferAllocateInfo buffers = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                           .commandPool = s->pools[i],
                                           .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                           .commandBufferCount = 1};
    must_vk(device->vk.AllocateCommandBuffers(device->handle, &buffers, &s->commands[i]));
    qn__vk_command_allocator_begin(&s->allocators[i]);
  }
  // A launch as the engine would make it.
  float a = 2.0f;
  memcpy(&s->words[0], &a, sizeof a);
  for (int i = 0; i < 3; i++) {
    s->words[i + 1] = (uintptr_t)s->data[i];
    s->ends[i + 1] = s->words[i + 1] + COUNT * sizeof(float);
  }
  s->words[4] = COUNT;
  s->launch = (qn_launch_t){.words = s->words, .word_count = 5, .ends = s->ends};
}

static void end_loop(subject_t* s) {
  const qn__vk_functions_t* vk = &s->device->vk;
  for (size_t i = 0; i < RING; i++) {
    vk->DestroyCommandPool(s->device->handle, s->pools[i], callbacks_of(s, i));
    qn__vk_command_allocator_deinit(&s->allocators[i]);
  }
  vk->DestroySemaphore(s->device->handle, s->timeline, NULL);
  vk->DestroyDescriptorPool(s->device->handle, s->pool, NULL);
}

static void wait_for(subject_t* s, uint64_t value) {
  VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                              .semaphoreCount = 1,
                              .pSemaphores = &s->timeline,
                              .pValues = &value};
  must_vk(s->device->vk.WaitSemaphores(s->device->handle, &wait, UINT64_MAX));
}

static void submit(subject_t* s, VkCommandBuffer commands) {
  s->value++;
  VkTimelineSemaphoreSubmitInfo timeline = {
      .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
      .signalSemaphoreValueCount = 1,
      .pSignalSemaphoreValues = &s->value};
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                       .pNext = &timeline,
                       .commandBufferCount = 1,
                       .pCommandBuffers = &commands,
                       .signalSemaphoreCount = 1,
                       .pSignalSemaphores = &s->timeline};
  must_vk(s->device->vk.QueueSubmit(s->queue, 1, &info, VK_NULL_HANDLE));
}

static void loop_by_hand(void* self, int64_t iterations) {
  subject_t* s = self;
  const qn__vk_functions_t* vk = &s->device->vk;
  VkMemoryBarrier barrier = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
  VkCommandBuffer commands = VK_NULL_HANDLE;
  for (int64_t i = 0; i < iterations; i++) {
    if (i % BATCH == 0) {
      size_t place = s->value % RING;
      if (s->value >= RING) wait_for(s, s->value - RING + 1);
      must_vk(vk->ResetCommandPool(s->device->handle, s->pools[place], 0));
      VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
      commands = s->commands[place];
      must_vk(vk->BeginCommandBuffer(commands, &begin));
      vk->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, s->pipeline);
      vk->CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, s->layout, 0, 1, &s->set,
                                0, NULL);
    }
    vk->CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                           VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
    vk->CmdPushConstants(commands, s->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, s->push_bytes,
                         s->push);
    vk->CmdDispatch(commands, 1, 1, 1);
    if (i % BATCH == BATCH - 1 || i == iterations - 1) {
      must_vk(vk->EndCommandBuffer(commands));
      submit(s, commands);
    }
  }
  wait_for(s, s->value);
}

static void call_table(void* self, int64_t iterations) {
  subject_t* s = self;
  void* inner = qn__stream_inner(s->stream);
  for (int64_t i = 0; i < iterations; i++) {
    bench_must((s->table->launch)(0, s->executable, 0, inner, &s->launch));
  }
  bench_must(qn_stream_sync(vulkan, s->stream));
}

static void call_packed(void* self, int64_t iterations) {
  subject_t* s = self;
  for (int64_t i = 0; i < iterations; i++)
    bench_must(qn_function_call(s->function, s->args, 4, NULL));
  bench_must(qn_stream_sync(vulkan, s->stream));
}

static void compare_calls(bench_report_t* report) {
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_mode = QN_CACHE_OFF};
  qn_engine_t* engine;
  static subject_t s;
  bench_must(qn_engine_create(&options, &engine));
  make_function(engine, &s);
  bench_must(qn_stream_create(vulkan, &s.stream));
  bench_must(qn_set_active_device(vulkan));
  bench_must(qn_set_active_stream(vulkan, s.stream));
  bench_must(qn_function_call(s.function, s.args, 4, NULL));
  bench_must(qn_stream_sync(vulkan, s.stream));
  static subject_t paged;
  paged = s;
  paged.has_pages = true;
  make_loop(&s);
  make_loop(&paged);
  void (*bodies[])(void*, int64_t) = {loop_by_hand, loop_by_hand, call_table, call_packed};
  void* selves[] = {&s, &paged, &s, &s};
  double ns[4];
  bench_compare_ns(4, bodies, selves, LAUNCHES, 41, ns);
  qn__vulkan_stats_t before, behind;
  bench_must(qn__vulkan_stats(0, &before));
  call_packed(&s, LAUNCHES);
  bench_must(qn__vulkan_stats(0, &behind));
  bench_row(report, "barrier, push constants, dispatch, by hand", ns[0], "ns", 0, 0);
  bench_row(report, "the same, the driver's memory in quern's pages", ns[1], "ns", ns[0], 0);
  bench_row(report, "launch of the device's table", ns[2], "ns", ns[0], 0);
  bench_row(report, "packed call, every check", ns[3], "ns", ns[0], 1.3);
  bench_row(report, "packed call over the loop with pages", ns[3] / ns[1], "", 0, 0);
  bench_row(report, "launches in one submit",
            (double)(behind.launch_count - before.launch_count) /
                (double)(behind.submit_count - before.submit_count),
            "", 0, 0);
  end_loop(&s);
  end_loop(&paged);
  bench_must(qn_set_active_stream(vulkan, NULL));
  qn_stream_destroy(s.stream);
  for (size_t i = 0; i < 3; i++) bench_must(qn_device_free(vulkan, s.data[i]));
  qn_function_release(s.function);
  qn_engine_destroy(engine);
}

// ---------------------------------------------------------------------------------- copies

typedef struct copies {
  void* device;
  uint8_t* host;
  size_t size;
  bool is_pinned;
  qn_stream_t* stream;
} copies_t;

static void copy_to(void* self, int64_t iterations) {
  copies_t* c = self;
  for (int64_t i = 0; i < iterations; i++) {
    qn_copy_t copy = {.struct_size = sizeof copy,
                      .from_device = {QN_DEVICE_CPU, 0},
                      .from = c->host,
                      .to_device = vulkan,
                      .to = c->device,
                      .size_bytes = c->size,
                      .is_host_pinned = c->is_pinned};
    bench_must(qn_device_copy(&copy, c->stream));
    bench_must(qn_stream_sync(vulkan, c->stream));
  }
}

static void copy_plain(void* self, int64_t iterations) {
  static uint8_t target[4096];
  copies_t* c = self;
  for (int64_t i = 0; i < iterations; i++) {
    memcpy(target, c->host, c->size < sizeof target ? c->size : sizeof target);
    bench_keep(target);
  }
}

static void compare_copies(bench_report_t* report) {
  copies_t c = {.size = 4096};
  bench_must(qn_device_allocate(vulkan, c.size, 0, &c.device));
  bench_must(qn_device_host_allocate(vulkan, c.size, (void**)&c.host));
  memset(c.host, 1, c.size);
  bench_must(qn_stream_create(vulkan, &c.stream));
  copies_t pinned = c;
  pinned.is_pinned = true;
  void (*bodies[])(void*, int64_t) = {copy_plain, copy_to, copy_to};
  void* selves[] = {&c, &c, &pinned};
  double ns[3];
  bench_compare_ns(3, bodies, selves, 64, 41, ns);
  bench_row(report, "memcpy of 4 KB", ns[0], "ns", 0, 0);
  bench_row(report, "copy of 4 KB to the device and sync", ns[1], "ns", 0, 0);
  bench_row(report, "the same from pinned memory, by the device", ns[2], "ns", 0, 0);
  qn_stream_destroy(c.stream);
  bench_must(qn_device_free(vulkan, c.device));
  bench_must(qn_device_host_free(vulkan, c.host));
}

// ---------------------------------------------------------------------------------- processes

// Computes a process's first result on Vulkan.
static int first_result(const char* directory) {
  qn_engine_options_t options = {.struct_size = sizeof options, .cache_dir = directory};
  qn_engine_t* engine;
  static subject_t s;
  bench_must(qn_engine_create(&options, &engine));
  make_function(engine, &s);
  bench_must(qn_set_active_device(vulkan));
  bench_must(qn_function_call(s.function, s.args, 4, NULL));
  float got[COUNT];
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = vulkan,
                    .from = s.data[2],
                    .to_device = {QN_DEVICE_CPU, 0},
                    .to = got,
                    .size_bytes = sizeof got};
  bench_must(qn_device_copy(&copy, NULL));
  if (got[3] != 9.0f) return 1;
  // The time ends here: a caller does not wait for stores in the background.
  (void)printf("%lld\n", (long long)bench_now_ns());
  (void)fflush(stdout);
  qn_function_release(s.function);
  qn_engine_destroy(engine);
  return 0;
}

// Returns the nanoseconds from before the fork to the child's first result.
static double run_process(const char* directory) {
  int64_t begin_ns = bench_now_ns();
  double end_ns;
  bench_run_child(directory, &end_ns, 1);
  return end_ns - (double)begin_ns;
}

static void compare_processes(bench_report_t* report) {
  double first[RUNS], second[RUNS];
  for (size_t i = 0; i < RUNS; i++) {
    char directory[64], own[80], cache[80];
    bench_make_directory("/tmp", directory);
    // The user's cache of the driver would make the first process a warm one.
    (void)snprintf(own, sizeof own, "%s/mesa", directory);
    (void)setenv("MESA_SHADER_CACHE_DIR", own, 1);
    (void)snprintf(cache, sizeof cache, "%s/quern", directory);
    first[i] = run_process(cache);
    second[i] = run_process(cache);
    bench_remove_directory(directory);
  }
  (void)unsetenv("MESA_SHADER_CACHE_DIR");
  double cold = bench_median(first, RUNS);
  bench_row(report, "process to its first result, empty cache", cold / 1e6, "ms", 0, 0);
  bench_row(report, "the next process", bench_median(second, RUNS) / 1e6, "ms", cold / 1e6, 0.5);
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--child") == 0) return first_result(argv[2]);
  bench_report_t report = bench_begin(
      "packed calls on Vulkan against a loop by hand",
      "Measures launches and copies on vulkan:0, and processes to their first result.", argc, argv);
  qn_status_t status = qn__vulkan_available();
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "bench_vulkan: %s\n", qn_status_message(status));
    qn_status_free(status);
    return bench_end(&report);
  }
  compare_processes(&report);
  compare_calls(&report);
  compare_copies(&report);
  return bench_end(&report);
}
#else
int main(void) {
  (void)fprintf(stderr, "bench_vulkan: this build has no Vulkan device\n");
  return 0;
}
#endif
