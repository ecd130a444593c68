// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/context.c: initialisation, devices, contexts, and failures on demand. See fake.h.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake-cuda/fake.h"

fake_settings_t fake_settings;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
fake_cuda_counts_t fake_counts;
unsigned fake_last_launch[3];

static fake_object_t* objects;
static struct CUctx_st primaries[MAX_DEVICES];
static pid_t owner_pid;  // 0: not initialised
static _Thread_local CUcontext current_stack[32];
static _Thread_local int current_depth;

static struct {
  char entry[64];
  long left;
  int status;
  bool is_lasting;
  char failed[64];
  struct {
    char name[64];
    long count;
  } calls[128];
  int call_count;
} faults;

static const struct {
  int result;
  const char* name;
  const char* text;
} results[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these devices"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

// ---------------------------------------------------------------------------------- control

void fake_violation(const char* format, ...) {
  va_list args;
  va_start(args, format);
  (void)fprintf(stderr, "fake driver: ");
  (void)vfprintf(stderr, format, args);
  (void)fprintf(stderr, "\n");
  va_end(args);
  __atomic_fetch_add(&fake_counts.violations, 1, __ATOMIC_RELAXED);
}

EXPORT void fake_cuda_fail(const char* entry, long n, int status, int is_lasting);
EXPORT void fake_cuda_fail(const char* entry, long n, int status, int is_lasting) {
  (void)pthread_mutex_lock(&fake_lock);
  memset(&faults, 0, sizeof faults);
  (void)snprintf(faults.entry, sizeof faults.entry, "%s", entry ? entry : "");
  faults.left = n;
  faults.status = status;
  faults.is_lasting = is_lasting != 0;
  (void)pthread_mutex_unlock(&fake_lock);
}

EXPORT const char* fake_cuda_failed(void);
EXPORT const char* fake_cuda_failed(void) {
  return faults.failed;
}

EXPORT long fake_cuda_calls(const char* entry);
EXPORT long fake_cuda_calls(const char* entry) {
  long count = 0;
  (void)pthread_mutex_lock(&fake_lock);
  for (int i = 0; i < faults.call_count; i++) {
    if (!entry || strcmp(entry, faults.calls[i].name) == 0) count += faults.calls[i].count;
  }
  (void)pthread_mutex_unlock(&fake_lock);
  return count;
}

EXPORT void fake_cuda_counts(fake_cuda_counts_t* out_counts);
EXPORT void fake_cuda_counts(fake_cuda_counts_t* out_counts) {
  (void)pthread_mutex_lock(&fake_lock);
  *out_counts = fake_counts;
  (void)pthread_mutex_unlock(&fake_lock);
}

EXPORT void fake_cuda_break(int ordinal, int status);
EXPORT void fake_cuda_break(int ordinal, int status) {
  (void)pthread_mutex_lock(&fake_lock);
  primaries[ordinal].error = status;
  (void)pthread_mutex_unlock(&fake_lock);
}

EXPORT void fake_cuda_last_launch(unsigned* out_blocks, unsigned* out_threads,
                                  unsigned* out_shared);
EXPORT void fake_cuda_last_launch(unsigned* out_blocks, unsigned* out_threads,
                                  unsigned* out_shared) {
  (void)pthread_mutex_lock(&fake_lock);
  *out_blocks = fake_last_launch[0];
  *out_threads = fake_last_launch[1];
  *out_shared = fake_last_launch[2];
  (void)pthread_mutex_unlock(&fake_lock);
}

// Returns the failure that a test requested for this call, if it is due. Called with the lock.
static CUresult count_call(const char* entry) {
  int i = 0;
  while (i < faults.call_count && strcmp(faults.calls[i].name, entry) != 0) i++;
  if (i == faults.call_count && i < 128) {
    (void)snprintf(faults.calls[i].name, sizeof faults.calls[i].name, "%s", entry);
    faults.call_count++;
  }
  if (i < 128) faults.calls[i].count++;
  if (faults.left == 0 || (faults.entry[0] != '\0' && strcmp(faults.entry, entry) != 0)) {
    return QN__CU_OK;
  }
  if (faults.left > 1) {
    faults.left--;
    return QN__CU_OK;
  }
  if (!faults.is_lasting) faults.left = 0;
  (void)snprintf(faults.failed, sizeof faults.failed, "%s", entry);
  return faults.status;
}

// The process exits: all later calls return DEINITIALIZED.
static bool is_shut_down;
EXPORT void fake_cuda_shut_down(int shut_down);
EXPORT void fake_cuda_shut_down(int shut_down) {
  (void)pthread_mutex_lock(&fake_lock);
  is_shut_down = shut_down != 0;
  (void)pthread_mutex_unlock(&fake_lock);
}

static _Thread_local bool is_in_host_function;
void fake_call_host(CUhostFn function, void* self) {
  is_in_host_function = true;
  function(self);
  is_in_host_function = false;
}

CUresult fake_enter(const char* entry, unsigned needs) {
  if (is_in_host_function) {
    fake_violation("%s is called from a function that may not call the driver", entry);
    return FAKE_NOT_PERMITTED;
  }
  // Check for a fork before taking the lock: it may be held by a thread that the child does not
  // have.
  if (owner_pid != 0 && owner_pid != getpid()) return QN__CU_NOT_INITIALIZED;
  (void)pthread_mutex_lock(&fake_lock);
  CUresult result = count_call(entry);
  if (result == QN__CU_OK && owner_pid == 0) result = QN__CU_NOT_INITIALIZED;
  if (result == QN__CU_OK && is_shut_down) result = QN__CU_DEINITIALIZED;
  if (result == QN__CU_OK && (needs & NEEDS_CONTEXT)) {
    CUcontext context = fake_current();
    result = context ? context->error : FAKE_INVALID_CONTEXT;
  }
  if (result == QN__CU_OK && (needs & UNSAFE)) result = fake_capture_check_unsafe();
  return result == QN__CU_OK ? QN__CU_OK : fake_leave(result);
}

// ---------------------------------------------------------------------------------- objects

void fake_add(fake_object_t* object, fake_kind_t kind) {
  object->kind = kind;
  object->next = objects;
  objects = object;
}

void fake_remove(fake_object_t* object) {
  for (fake_object_t** at = &objects; *at; at = &(*at)->next) {
    if (*at != object) continue;
    *at = object->next;
    return;
  }
}

const fake_object_t* fake_first(void) {
  return objects;
}

bool fake_is(const void* handle, fake_kind_t kind) {
  for (const fake_object_t* object = objects; object; object = object->next) {
    if (object == handle) return object->kind == kind;
  }
  return false;
}

// ---------------------------------------------------------------------------------- beginning

static long number(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text && text[0] ? strtol(text, NULL, 10) : otherwise;
}

static void read_settings(void) {
  static bool is_read;
  if (is_read) return;
  is_read = true;
  fake_settings.device_count = (int)number("FAKE_CUDA_DEVICES", 2);
  fake_settings.version = (int)number("FAKE_CUDA_VERSION", 13000);
  fake_settings.capability = (int)number("FAKE_CUDA_CAPABILITY", 90);
  fake_settings.has_pools = (int)number("FAKE_CUDA_POOLS", 1);
  fake_settings.peer = (int)number("FAKE_CUDA_PEER", 1);
  fake_settings.memory_bytes = (size_t)number("FAKE_CUDA_MEMORY", 2L << 30);
  fake_settings.seed = number("FAKE_CUDA_SEED", 0);
  fake_settings.has_races = (int)number("FAKE_CUDA_RACES", 0);
}

EXPORT CUresult cuInit(unsigned flags);
EXPORT CUresult cuInit(unsigned flags) {
  if (owner_pid != 0 && owner_pid != getpid()) return QN__CU_NOT_INITIALIZED;
  read_settings();
  const CUresult result = (CUresult)number("FAKE_CUDA_INIT", 0);
  if (result != QN__CU_OK) return result;
  owner_pid = getpid();
  ENTER(0);
  return fake_leave(flags == 0 ? QN__CU_OK : QN__CU_INVALID_VALUE);
}

EXPORT CUresult cuDriverGetVersion(int* out_version);
EXPORT CUresult cuDriverGetVersion(int* out_version) {
  read_settings();
  *out_version = fake_settings.version;
  return QN__CU_OK;
}

static const char* find_text(CUresult result, bool is_name) {
  for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
    if (results[i].result == result) return is_name ? results[i].name : results[i].text;
  }
  return NULL;
}

EXPORT CUresult cuGetErrorName(CUresult result, const char** out_text);
EXPORT CUresult cuGetErrorName(CUresult result, const char** out_text) {
  *out_text = find_text(result, true);
  return *out_text ? QN__CU_OK : QN__CU_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult result, const char** out_text);
EXPORT CUresult cuGetErrorString(CUresult result, const char** out_text) {
  *out_text = find_text(result, false);
  return *out_text ? QN__CU_OK : QN__CU_INVALID_VALUE;
}

// ---------------------------------------------------------------------------------- devices

EXPORT CUresult cuDeviceGetCount(int* out_count);
EXPORT CUresult cuDeviceGetCount(int* out_count) {
  ENTER(0);
  *out_count = fake_settings.device_count;
  return fake_leave(QN__CU_OK);
}

// Devices are their numbers.
static bool is_device(CUdevice device) {
  return device >= 0 && device < fake_settings.device_count;
}

EXPORT CUresult cuDeviceGet(CUdevice* out_device, int ordinal);
EXPORT CUresult cuDeviceGet(CUdevice* out_device, int ordinal) {
  ENTER(0);
  *out_device = ordinal;
  return fake_leave(is_device(ordinal) ? QN__CU_OK : FAKE_INVALID_DEVICE);
}

EXPORT CUresult cuDeviceGetName(char* out_name, int size, CUdevice device);
EXPORT CUresult cuDeviceGetName(char* out_name, int size, CUdevice device) {
  ENTER(0);
  if (!is_device(device)) return fake_leave(FAKE_INVALID_DEVICE);
  (void)snprintf(out_name, (size_t)size, "Fake GPU %d", device);
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* out_uuid, CUdevice device);
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* out_uuid, CUdevice device) {
  ENTER(0);
  if (!is_device(device)) return fake_leave(FAKE_INVALID_DEVICE);
  for (int i = 0; i < 16; i++) out_uuid->bytes[i] = (char)(i * 17 + device);
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t* out_bytes, CUdevice device);
EXPORT CUresult cuDeviceTotalMem_v2(size_t* out_bytes, CUdevice device) {
  ENTER(0);
  if (!is_device(device)) return fake_leave(FAKE_INVALID_DEVICE);
  *out_bytes = fake_settings.memory_bytes;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuDeviceGetAttribute(int* out_value, CUdevice_attribute attribute, CUdevice device);
EXPORT CUresult cuDeviceGetAttribute(int* out_value, CUdevice_attribute attribute,
                                     CUdevice device) {
  ENTER(0);
  if (!is_device(device)) return fake_leave(FAKE_INVALID_DEVICE);
  const struct {
    int attribute;
    int value;
  } values[] = {
      {QN__CU_MAX_THREADS_PER_BLOCK, 1024},
      {QN__CU_MAX_BLOCK_DIM_X, 1024},
      {QN__CU_MAX_BLOCK_DIM_Y, 1024},
      {QN__CU_MAX_BLOCK_DIM_Z, 64},
      {QN__CU_MAX_GRID_DIM_X, INT32_MAX},
      {QN__CU_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {QN__CU_WARP_SIZE, 32},
      {QN__CU_MAX_REGISTERS_PER_BLOCK, 65536},
      {QN__CU_CLOCK_RATE, 1980000},
      {QN__CU_MULTIPROCESSOR_COUNT, 4 + device},
      {QN__CU_L2_CACHE_SIZE, 62914560},
      {QN__CU_TEXTURE_PITCH_ALIGNMENT, 32},
      {QN__CU_COMPUTE_CAPABILITY_MAJOR, fake_settings.capability / 10},
      {QN__CU_COMPUTE_CAPABILITY_MINOR, fake_settings.capability % 10},
      {QN__CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {QN__CU_MEMORY_POOLS_SUPPORTED, fake_settings.has_pools},
  };
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    if (values[i].attribute != attribute) continue;
    *out_value = values[i].value;
    return fake_leave(QN__CU_OK);
  }
  return fake_leave(QN__CU_INVALID_VALUE);
}

EXPORT CUresult cuDeviceCanAccessPeer(int* out_can, CUdevice device, CUdevice peer);
EXPORT CUresult cuDeviceCanAccessPeer(int* out_can, CUdevice device, CUdevice peer) {
  ENTER(0);
  if (!is_device(device) || !is_device(peer)) return fake_leave(FAKE_INVALID_DEVICE);
  *out_can = fake_settings.peer > 0 && device != peer;
  return fake_leave(QN__CU_OK);
}

// ---------------------------------------------------------------------------------- contexts

CUcontext fake_current(void) {
  return current_depth > 0 ? current_stack[current_depth - 1] : NULL;
}

CUcontext fake_context_of(int ordinal) {
  return primaries[ordinal].reference_count > 0 ? &primaries[ordinal] : NULL;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out_context, CUdevice device);
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out_context, CUdevice device) {
  ENTER(UNSAFE);
  if (!is_device(device)) return fake_leave(FAKE_INVALID_DEVICE);
  CUcontext context = &primaries[device];
  if (context->reference_count++ == 0) {
    context->ordinal = device;
    fake_add(&context->object, KIND_CONTEXT);
    fake_counts.contexts++;
  }
  *out_context = context;
  return fake_leave(QN__CU_OK);
}

// A context of the host's own.
EXPORT CUresult cuCtxCreate_v2(CUcontext* out_context, unsigned flags, CUdevice device);
EXPORT CUresult cuCtxCreate_v2(CUcontext* out_context, unsigned flags, CUdevice device) {
  ENTER(UNSAFE);
  (void)flags;
  if (!is_device(device)) return fake_leave(FAKE_INVALID_DEVICE);
  CUcontext context = calloc(1, sizeof *context);
  context->ordinal = device;
  fake_add(&context->object, KIND_CONTEXT);
  current_stack[current_depth++] = context;
  *out_context = context;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context);
EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTER(UNSAFE);
  if (!fake_is(context, KIND_CONTEXT)) return fake_leave(FAKE_INVALID_CONTEXT);
  if (fake_current() == context) current_depth--;
  fake_remove(&context->object);
  free(context);
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* out_context);
EXPORT CUresult cuCtxGetCurrent(CUcontext* out_context) {
  ENTER(0);
  *out_context = fake_current();
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER(0);
  if (!fake_is(context, KIND_CONTEXT)) return fake_leave(FAKE_INVALID_CONTEXT);
  if (current_depth == 32) return fake_leave(QN__CU_INVALID_VALUE);
  current_stack[current_depth++] = context;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* out_context);
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* out_context) {
  ENTER(0);
  if (current_depth == 0) return fake_leave(FAKE_INVALID_CONTEXT);
  CUcontext context = current_stack[--current_depth];
  if (out_context) *out_context = context;
  return fake_leave(QN__CU_OK);
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  ENTER(NEEDS_CONTEXT);
  if (flags != 0) return fake_leave(QN__CU_INVALID_VALUE);
  if (!fake_is(peer, KIND_CONTEXT)) return fake_leave(FAKE_INVALID_CONTEXT);
  if (fake_settings.peer <= 0) return fake_leave(QN__CU_PEER_ACCESS_UNSUPPORTED);
  bool* can_reach = &fake_current()->can_reach[peer->ordinal];
  if (*can_reach) return fake_leave(QN__CU_PEER_ACCESS_ALREADY_ENABLED);
  *can_reach = true;
  return fake_leave(QN__CU_OK);
}
