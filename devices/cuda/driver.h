// SPDX-License-Identifier: Apache-2.0
// devices/cuda/driver.h: the types, values and entry points of the CUDA driver API that quern uses.
// Declared here, so that a build needs no CUDA header. loader.c fills the table at run time.
//
// Names and layouts are the driver's; tests/fake-cuda/check_driver.c compares every entry with
// NVIDIA's header if it is installed.
//
// Thread rule: constant after loading. Read next: cuda_symbols.inc, loader.c.
#ifndef QUERN_DEVICES_CUDA_DRIVER_H_
#define QUERN_DEVICES_CUDA_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#ifndef QN_CUDA_HEADER_IS_NVIDIAS
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphExec_st* CUgraphExec;
typedef struct CUgraphNode_st* CUgraphNode;
typedef struct CUmemPoolHandle_st* CUmemoryPool;
typedef struct CUuserObject_st* CUuserObject;
typedef void (*CUhostFn)(void* user);
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;
typedef int CUdevice_attribute;
typedef int CUfunction_attribute;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUmemPool_attribute;
typedef struct CUmemLocation_st {
  int type;
  int id;
} CUmemLocation;
typedef struct CUmemPoolProps_st {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;
#endif

// The results that quern distinguishes.
enum {
  QN__CU_OK = 0,
  QN__CU_INVALID_VALUE = 1,
  QN__CU_OUT_OF_MEMORY = 2,
  QN__CU_NOT_INITIALIZED = 3,
  QN__CU_DEINITIALIZED = 4,
  QN__CU_STUB_LIBRARY = 34,
  QN__CU_NO_DEVICE = 100,
  QN__CU_INVALID_IMAGE = 200,
  QN__CU_NO_BINARY_FOR_GPU = 209,
  QN__CU_ECC_UNCORRECTABLE = 214,
  QN__CU_PEER_ACCESS_UNSUPPORTED = 217,
  QN__CU_NVLINK_UNCORRECTABLE = 220,
  QN__CU_UNSUPPORTED_VERSION = 222,
  QN__CU_CONTAINED = 226,
  QN__CU_NOT_READY = 600,
  QN__CU_ILLEGAL_ADDRESS = 700,
  QN__CU_LAUNCH_TIMEOUT = 702,
  QN__CU_PEER_ACCESS_ALREADY_ENABLED = 704,
  QN__CU_CONTEXT_IS_DESTROYED = 709,
  QN__CU_ASSERT = 710,
  QN__CU_HARDWARE_STACK_ERROR = 714,
  QN__CU_LAUNCH_FAILED = 719,
  QN__CU_TENSOR_MEMORY_LEAK = 721,
  QN__CU_NOT_SUPPORTED = 801,
  QN__CU_CAPTURE_IMPLICIT = 906,
  QN__CU_EXTERNAL_DEVICE = 911,
};

// CUdevice_attribute.
enum {
  QN__CU_MAX_THREADS_PER_BLOCK = 1,
  QN__CU_MAX_BLOCK_DIM_X = 2,
  QN__CU_MAX_BLOCK_DIM_Y = 3,
  QN__CU_MAX_BLOCK_DIM_Z = 4,
  QN__CU_MAX_GRID_DIM_X = 5,
  QN__CU_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  QN__CU_WARP_SIZE = 10,
  QN__CU_MAX_REGISTERS_PER_BLOCK = 12,
  QN__CU_CLOCK_RATE = 13,
  QN__CU_MULTIPROCESSOR_COUNT = 16,
  QN__CU_L2_CACHE_SIZE = 38,
  QN__CU_TEXTURE_PITCH_ALIGNMENT = 51,
  QN__CU_COMPUTE_CAPABILITY_MAJOR = 75,
  QN__CU_COMPUTE_CAPABILITY_MINOR = 76,
  QN__CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  QN__CU_MEMORY_POOLS_SUPPORTED = 115,
};

// CUfunction_attribute.
enum {
  QN__CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
  QN__CU_FUNC_SHARED_SIZE_BYTES = 1,
  QN__CU_FUNC_NUM_REGS = 4,
  QN__CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

enum {
  QN__CU_STREAM_NON_BLOCKING = 1,
  QN__CU_STREAM_PER_THREAD = 2,  // the handle
  QN__CU_EVENT_DISABLE_TIMING = 2,
  QN__CU_HOST_ALLOC_PORTABLE = 1,
  QN__CU_HOST_ALLOC_DEVICEMAP = 2,
  QN__CU_CAPTURE_MODE_THREAD_LOCAL = 1,
  QN__CU_CAPTURE_MODE_RELAXED = 2,
  QN__CU_CAPTURE_STATUS_NONE = 0,
  QN__CU_CAPTURE_STATUS_ACTIVE = 1,
  QN__CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
  QN__CU_GRAPH_USER_OBJECT_MOVE = 1,
  QN__CU_MEM_ALLOCATION_TYPE_PINNED = 1,
  QN__CU_MEM_LOCATION_TYPE_DEVICE = 1,
  QN__CU_MEMPOOL_RELEASE_THRESHOLD = 4,
};

// NULL for a missing optional entry.
typedef struct qn__cuda_driver {
#define QN_CUDA_SYMBOL(name, symbol, need, params) CUresult(*name) params;
#include "devices/cuda/cuda_symbols.inc"
#undef QN_CUDA_SYMBOL
} qn__cuda_driver_t;

#endif  // QUERN_DEVICES_CUDA_DRIVER_H_
