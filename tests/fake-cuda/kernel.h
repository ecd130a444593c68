// SPDX-License-Identifier: Apache-2.0
// tests/fake-cuda/kernel.h: the interface between a "cubin" of the fake NVRTC, which is a shared
// object, and the fake driver that loads it. Included by C and C++.
#ifndef QUERN_TESTS_FAKE_CUDA_KERNEL_H_
#define QUERN_TESTS_FAKE_CUDA_KERNEL_H_

#include <stdint.h>

typedef struct fake_dim {
  unsigned x, y, z;
} fake_dim_t;

// The thread that runs; what threadIdx and its like read.
typedef struct fake_thread {
  fake_dim_t thread;
  fake_dim_t block;
  fake_dim_t block_dim;
  fake_dim_t grid_dim;
  void* dynamic_shared;
  unsigned dynamic_shared_bytes;
} fake_thread_t;

typedef struct fake_hooks {
  // All threads of the block that are left meet, at one place of the text.
  void (*barrier)(unsigned line);
  // The lanes of `mask` that there are meet; gives each the values of all, and which lanes came.
  // `is_fence`: each sees from here on what the others had written, which a shuffle does not say.
  unsigned (*gather)(unsigned mask, uint64_t value, uint64_t out_values[32], int is_fence);
  void (*trap)(void);
  // In front of each access to memory, where races are looked for.
  void (*access)(const void* address, unsigned size, unsigned how);
  // An asynchronous copy. It happens when its thread waits for it; until then there is garbage.
  void (*copy)(void* to, const void* from, unsigned size);
  void (*copy_commit)(void);
  void (*copy_wait)(unsigned count);
  // What the thread did before is seen before what it does afterwards.
  void (*fence)(void);
} fake_hooks_t;
enum { FAKE_WRITES = 1, FAKE_IS_ATOMIC = 2 };

typedef struct fake_kernel {
  const char* name;
  void (*call)(const fake_thread_t* self, void** params);
  const unsigned* param_sizes;
  unsigned param_count;
  unsigned max_threads;  // of its launch bounds
} fake_kernel_t;

// What the shared object exports under the name "fake_module".
typedef struct fake_module {
  unsigned version;
  const char* arch;
  int toolkit;  // 13000
  const fake_kernel_t* kernels;
  unsigned kernel_count;
  const fake_hooks_t* hooks;  // filled in by the driver
  void* (*own)(void);         // an address among this thread's shared variables
} fake_module_t;
#define FAKE_MODULE_VERSION 4u

#endif  // QUERN_TESTS_FAKE_CUDA_KERNEL_H_
