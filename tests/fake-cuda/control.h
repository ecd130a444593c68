// SPDX-License-Identifier: Apache-2.0
// tests/fake-cuda/control.h: functions by which tests control and observe the fake driver. They are
// symbols of the fake libcuda.so.1, found with dlsym.
//
// Environment variables, read once at the driver's initialisation, with their defaults:
//   FAKE_CUDA_DEVICES (2), FAKE_CUDA_VERSION (13000), FAKE_CUDA_CAPABILITY (90),
//   FAKE_CUDA_POOLS (1)
//   FAKE_CUDA_PEER (1)     1: direct access; 0: copies only; -1: copies are refused, too
//   FAKE_CUDA_INIT         the status that cuInit returns
//   FAKE_CUDA_MEMORY       bytes of a device (2 GiB)
//   FAKE_CUDA_SEED (0)     0: threads run in ascending and descending order; else: random order
//   FAKE_CUDA_RACES        1: data races in kernels are violations; also read by the fake NVRTC
#ifndef QUERN_TESTS_FAKE_CUDA_CONTROL_H_
#define QUERN_TESTS_FAKE_CUDA_CONTROL_H_

#include <stdint.h>

// What is alive. `violations`: calls that broke a rule of the driver's and memory that was written
// beyond its end; each is written to stderr.
typedef struct fake_cuda_counts {
  long contexts;  // retained primary ones
  long modules;
  long streams;
  long events;
  long device_blocks;
  long host_blocks;
  long pools;
  long graphs;
  long graph_execs;
  long user_objects;
  long violations;
  long launches;  // kernels run, ever
} fake_cuda_counts_t;

// The n-th call from now of an entry (NULL: of any) gives `status` and has no effect; `is_lasting`:
// all later ones, too. `n` 0 ends it.
typedef void (*fake_cuda_fail_fn_t)(const char* entry, long n, int status, int is_lasting);
// The entry that was last made to fail; "" when none was since the last fake_cuda_fail.
typedef const char* (*fake_cuda_failed_fn_t)(void);
// Calls of an entry (NULL: of all) since the last fake_cuda_fail.
typedef long (*fake_cuda_calls_fn_t)(const char* entry);
typedef void (*fake_cuda_counts_fn_t)(fake_cuda_counts_t* out_counts);
// Suspends the work on all streams until it is resumed.
typedef void (*fake_cuda_hold_fn_t)(int is_held);
// The driver shuts down, as at the end of a process (1), or comes back (0).
typedef void (*fake_cuda_shut_down_fn_t)(int is_shut_down);
// The device's memory fails at the next work, as after an illegal address. 0 cures the device.
typedef void (*fake_cuda_break_fn_t)(int ordinal, int status);
// The grid of the last launch, and its threads and dynamic shared bytes.
typedef void (*fake_cuda_last_launch_fn_t)(unsigned* out_blocks, unsigned* out_threads,
                                           unsigned* out_shared);

#endif  // QUERN_TESTS_FAKE_CUDA_CONTROL_H_
