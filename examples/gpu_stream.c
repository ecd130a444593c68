// SPDX-License-Identifier: Apache-2.0
// examples/gpu_stream.c: allocates memory of a GPU (or another device), copies, calls on a stream,
// waits
// and copies back.
//
//   gpu_stream [TARGET]     such as cuda, vulkan, 'cuda -from_device=1', cpu
//
// Without a target it takes the first of cuda, vulkan and cpu that has a device. Only the sync at
// the
// end waits: copies and calls are queued in order, and the sync returns the error of any of them.
// Uses the public headers alone.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "quern/quern.h"
#include "quern/target.h"

enum { COUNT = 1 << 20, ROUNDS = 10 };

static const char text[] =
    "func step(x: f32[n], inout y: f32[n], a: f32) {\n"
    "  parallel i in 0..n {\n"
    "    y[i] = y[i] * 0.5 + a * x[i];\n"
    "  }\n"
    "}\n";

static const qn_device_t host_device = {QN_DEVICE_CPU, 0};

// Ends the program with the message of an error.
static void check(qn_status_t status, const char* what) {
  if (qn_ok(status)) return;
  fprintf(stderr, "gpu_stream: %s: %s: %s\n", what, qn_status_code_text(qn_status_code(status)),
          qn_status_message(status));
  bool is_machine = qn_status_code(status) == QN_STATUS_UNAVAILABLE;
  qn_status_free(status);
  exit(is_machine ? 3 : 1);
}

// Returns the first device of the type that a target's kind is for.
static qn_device_t device_of(const qn_target_t* target) {
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    const qn_target_kind_info_t* kind = qn_target_kind_at(i);
    if (strcmp(kind->name, qn_target_kind(target)) == 0) return (qn_device_t){kind->device_type, 0};
  }
  return host_device;
}

static const char* choose(void) {
  if (qn_device_count(QN_DEVICE_CUDA) > 0) return "cuda";
  return qn_device_count(QN_DEVICE_VULKAN) > 0 ? "vulkan" : "cpu";
}

// Queues a copy. The program may use host memory that is not pinned again after the call.
static qn_status_t copy(qn_device_t from_device, const void* from, qn_device_t to_device, void* to,
                        qn_stream_t* stream) {
  const qn_copy_t all = {.struct_size = sizeof all,
                         .from_device = from_device,
                         .from = from,
                         .to_device = to_device,
                         .to = to,
                         .size_bytes = COUNT * sizeof(float)};
  return qn_device_copy(&all, stream);
}

int main(int argc, char** argv) {
  // The target to compile for, and its device.
  qn_target_t* target = NULL;
  check(qn_target_parse(argc > 1 ? argv[1] : choose(), &target), "the target");
  qn_device_t device = device_of(target);
  if (qn_device_count(device.type) == 0) {
    check(qn_status_make(QN_STATUS_UNAVAILABLE, "no device of kind '%s' is here",
                         qn_target_kind(target)),
          "the device");
  }
  qn_attribute_value_t name = {.type = QN_ATTRIBUTE_TYPE_NONE};
  check(qn_device_attribute(device, QN_ATTRIBUTE_DEVICE_NAME, &name), "the device's name");

  qn_engine_t* engine = NULL;
  qn_module_t* module = NULL;
  qn_function_t* step = NULL;
  check(qn_engine_create(NULL, &engine), "the engine");
  check(qn_module_parse(text, strlen(text), NULL, &module), "the module");
  qn_lookup_info_t info = {.struct_size = sizeof info};
  check(qn_engine_function(engine, module, target, "step", NULL, &info, &step), "the function");

  // Memory and a stream of the device.
  float* host = malloc(COUNT * sizeof *host);
  void *x = NULL, *y = NULL;
  qn_stream_t* stream = NULL;
  check(qn_device_allocate(device, COUNT * sizeof(float), 0, &x), "memory");
  check(qn_device_allocate(device, COUNT * sizeof(float), 0, &y), "memory");
  check(qn_stream_create(device, &stream), "the stream");

  // Queues all of the work below; the host does not wait.
  for (int i = 0; host && i < COUNT; i++) host[i] = (float)(i % 100);
  check(copy(host_device, host, device, x, stream), "the copy to the device");
  for (int i = 0; host && i < COUNT; i++) host[i] = 0.0f;
  check(copy(host_device, host, device, y, stream), "the copy to the device");
  int64_t shape[1] = {COUNT};
  qn_tensor_t x_tensor = {x, device, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_tensor_t y_tensor = {y, device, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  for (int round = 0; round < ROUNDS; round++) {
    const qn_value_t args[] = {qn_value_tensor(&x_tensor), qn_value_tensor(&y_tensor),
                               qn_value_float(1.0)};
    check(qn_function_call_on(step, stream, args, 3, NULL), "the call");
  }
  check(copy(device, y, host_device, host, stream), "the copy from the device");
  check(qn_stream_sync(device, stream), "the stream");

  // y = x (1 + 1/2 + 1/4 + ...)
  int wrong_count = 0;
  const float factor = 2.0f - 1.0f / (float)(1 << (ROUNDS - 1));
  for (int i = 0; host && i < COUNT; i++) {
    const float difference = host[i] - (float)(i % 100) * factor;
    wrong_count += difference > 1e-3f || difference < -1e-3f;
  }
  printf("%s:%d (%s): %d calls on %d elements, code %s: %s\n", qn_device_type_text(device.type),
         (int)device.id, name.type == QN_ATTRIBUTE_TYPE_STRING ? name.string_value : "unnamed",
         ROUNDS, COUNT, qn_source_text(info.source), wrong_count ? "WRONG" : "right");

  qn_stream_destroy(stream);
  check(qn_device_free(device, x), "memory");
  check(qn_device_free(device, y), "memory");
  free(host);
  qn_function_release(step);
  qn_module_release(module);
  qn_engine_destroy(engine);
  qn_target_release(target);
  return wrong_count ? 1 : 0;
}
