// SPDX-License-Identifier: Apache-2.0
// tests/unit/devices/support_cuda.h: a CUDA device on the fake driver (tests/fake-cuda), and
// kernels to run on it: for the tests of devices/cuda.
//
// Thread rule: setting up is for one thread.
#ifndef QUERN_TESTS_UNIT_DEVICES_SUPPORT_CUDA_H_
#define QUERN_TESTS_UNIT_DEVICES_SUPPORT_CUDA_H_

#include <stdatomic.h>

#include "base/base.h"
#include "devices/gpu/plan.h"
#include "quern/device.h"
#include "tests/fake-cuda/control.h"

// The functions of the test artifact, whose words are as its comment says. n is an i64 symbol.
enum {
  CUDA_ADD,        // (a, b, out c; n): c = a + b
  CUDA_CHECK,      // (out x; n): x[i] = i; fails at site 7 with index n, extent 5 when n is odd
  CUDA_WORKSPACE,  // (a, out c; n): c = a, by way of workspace
  CUDA_SHARED,     // (out c; n): c[i] = n - 1 - i within blocks, through 100000 bytes
  CUDA_POKE,       // (out c; n): writes element n + 100
  CUDA_NOTHING,    // (): no steps
  CUDA_SCALE,      // (out c, scalar f32; n): c *= scalar
  CUDA_COUNT,      // (out x; n): CUDA_CHECK of x with 3, 4, ... n - 1, a launch each
  CUDA_FUNCTION_COUNT,
};

typedef struct cuda_driver {
  fake_cuda_fail_fn_t fail_at;
  fake_cuda_failed_fn_t failed;
  fake_cuda_calls_fn_t calls;
  fake_cuda_counts_fn_t counts;
  fake_cuda_hold_fn_t hold;
  fake_cuda_break_fn_t break_device;
  fake_cuda_last_launch_fn_t last_launch;
  void* (*entry)(const char* name);  // of the driver itself: the host's view
} cuda_driver_t;
extern cuda_driver_t cuda_driver;

// Points quern at the fakes. False when they were not built: skip then.
bool cuda_setup(void);
qn_device_t cuda_at(int32_t id);
// The table of the device.
const qn_device_table_t* cuda_table(void);

// The artifact; compiled once. Borrowed. NULL when it cannot be compiled.
const qn_artifact_t* cuda_artifact(void);
// One with other ISA needs, payload or plan: a copy whose members may be changed.
qn_artifact_t cuda_artifact_copy(void);

// An owner of launches: counts references and explains failures.
typedef struct cuda_owner {
  _Atomic int reference_count;
  int retain_count;
} cuda_owner_t;
qn_launch_t cuda_launch(cuda_owner_t* owner, const uint64_t* words, uint32_t word_count);
// Runs CUDA_ADD and its like on `stream` (the public handle or NULL).
qn_status_t cuda_run(void* executable, uint32_t function, int32_t id, qn_stream_t* stream,
                     cuda_owner_t* owner, const uint64_t* words, uint32_t word_count);
void* cuda_load(int32_t id);

// Device memory with the numbers first, first + 1, ...
float* cuda_floats(int32_t id, size_t count, float first);
void cuda_read(int32_t id, qn_stream_t* stream, const void* from, void* to, size_t size_bytes);
void cuda_free(int32_t id, void* pointer);
// Checks that only objects with the lifetime of the process are left in the driver, and that no
// rule was violated.
void cuda_expect_clean(const fake_cuda_counts_t* before);

// Runs this program anew with `argument`, and with `settings` ("NAME=VALUE NAME=VALUE") in its
// environment. True when it ends well.
bool cuda_in_child(const char* settings, const char* argument);

#endif  // QUERN_TESTS_UNIT_DEVICES_SUPPORT_CUDA_H_
