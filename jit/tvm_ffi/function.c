// SPDX-License-Identifier: Apache-2.0
// jit/tvm_ffi/function.c: calls that come from tvm-ffi.
//
// A value of tvm-ffi has the layout of a value of quern, with the same tags for numbers and for
// pointers to tensors. Arguments that have no other tags go to the call as they are. Objects
// (tensors, big integers) are copied into values of quern first; their memory is not.
//
// A call with the code of its device at hand takes no lock. Read next: bind.h.
#include "jit/tvm_ffi/function.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "jit/call/executable.h"
#include "jit/tvm_ffi/bind.h"
#include "quern/device.h"

struct qn__tvm_code {
  qn__tvm_code_t* next;
  qn_device_t device;
  qn_function_t* function;  // owned
};

// ------------------------------------------------------------------------------------ errors

int qn__tvm_raise(qn_status_t status) {
  // The kinds that tvm-ffi turns into exceptions of Python.
  static const char* const kinds[] = {
      [QN_STATUS_INVALID_ARGUMENT] = "ValueError", [QN_STATUS_OUT_OF_MEMORY] = "MemoryError",
      [QN_STATUS_SYNTAX] = "ValueError",           [QN_STATUS_INVALID_MODULE] = "ValueError",
      [QN_STATUS_TYPE_ERROR] = "TypeError",        [QN_STATUS_VALUE_ERROR] = "ValueError",
      [QN_STATUS_ASSERTION] = "AssertionError",    [QN_STATUS_OUT_OF_BOUNDS] = "IndexError",
  };
  const qn_status_code_t code = qn_status_code(status);
  const char* kind = (size_t)code < QN_COUNT_OF(kinds) ? kinds[code] : NULL;
  const qn__tvm_ffi_t* ffi;
  qn_status_t bound = qn__tvm_bind(&ffi);
  // Without tvm-ffi no caller can read an error.
  if (qn_ok(bound)) ffi->raise(kind ? kind : "RuntimeError", qn_status_message(status));
  qn_status_free(bound);
  qn_status_free(status);
  return -1;
}

// ------------------------------------------------------------------------------------ values

static inline bool is_plain(const qn_value_t* args, int32_t count) {
  uint32_t largest = 0;
  for (int32_t i = 0; i < count; i++) {
    const uint32_t type = (uint32_t)args[i].type;
    if (type > largest) largest = type;
  }
  return largest <= QN_VALUE_STRING;
}

// Makes a value of quern of any value of tvm-ffi. A type that no parameter takes stays, so that the
// message of the call names it.
static qn_value_t read_value(const qn_value_t* value) {
  const qn__tvm_object_t* object = value->pointer;
  int32_t type = value->type;
  if (type == QN__TVM_RVALUE_REF && object) {
    // The caller gives the object away. It is only read, so it stays the caller's.
    memcpy(&object, value->pointer, sizeof object);
    type = object ? object->type : QN_VALUE_NONE;
  }
  if (type == QN__TVM_TENSOR && object) {
    return qn_value_tensor(&((const qn__tvm_tensor_t*)(const void*)object)->tensor);
  }
  if (type == QN__TVM_BIG_INT && object) {
    // The ABI gives int64_t what fits there, so only integers of u64 can be read.
    const qn__tvm_big_int_t* number = (const void*)object;
    if (number->word_count == 2 && number->words[1] == 0) return qn_value_uint(number->words[0]);
  }
  // UINT is free in tvm-ffi today: whatever it comes to mean, it is no number of quern.
  qn_value_t same = *value;
  same.type = type == QN_VALUE_UINT ? -1 : type;
  return same;
}

// ------------------------------------------------------------------------------------ code

static qn_device_t device_of(const qn_value_t* args, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    if (args[i].type != QN_VALUE_TENSOR || !args[i].tensor) continue;
    const qn_device_t device = args[i].tensor->device;
    if (device.type != QN_DEVICE_CUDA_HOST) return device;
  }
  return (qn_device_t){QN_DEVICE_CPU, 0};
}

static qn_function_t* known_code(qn__tvm_function_t* function, qn_device_t device) {
  qn__tvm_code_t* code = atomic_load_explicit(&function->codes, memory_order_acquire);
  while (code && (code->device.type != device.type || code->device.id != device.id)) {
    code = code->next;
  }
  return code ? code->function : NULL;
}

static __attribute__((noinline, cold)) qn_status_t find_code(qn__tvm_function_t* function,
                                                             qn_device_t device,
                                                             qn_function_t** out_function) {
  QN_TRY(function->source.find(function->source.self, device, out_function));
  qn__tvm_code_t* added = qn__alloc(qn_allocator_default(), sizeof *added);
  if (!added) {
    qn_function_release(*out_function);
    return qn__out_of_memory("a function of tvm-ffi");
  }
  *added = (qn__tvm_code_t){NULL, device, *out_function};
  // Threads that came here at once each add their own, which does no harm.
  added->next = atomic_load_explicit(&function->codes, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&function->codes, &added->next, added,
                                                memory_order_release, memory_order_relaxed)) {
  }
  return QN_OK;
}

void qn__tvm_function_deinit(qn__tvm_function_t* function) {
  qn__tvm_code_t* code = atomic_load_explicit(&function->codes, memory_order_acquire);
  while (code) {
    qn__tvm_code_t* next = code->next;
    qn_function_release(code->function);
    qn__free(qn_allocator_default(), code, sizeof *code);
    code = next;
  }
}

// ------------------------------------------------------------------------------------ streams

// A stream of tvm-ffi as one of quern. They stay for the life of the process: programs have few.
typedef struct wrapped_stream {
  struct wrapped_stream* next;
  qn_device_t device;
  void* native;
  qn_stream_t* stream;
} wrapped_stream_t;
static _Atomic(wrapped_stream_t*) wrapped_streams;

static qn_status_t wrap_stream(qn_device_t device, void* native, qn_stream_t** out_stream) {
  wrapped_stream_t* first = atomic_load_explicit(&wrapped_streams, memory_order_acquire);
  for (wrapped_stream_t* at = first; at; at = at->next) {
    if (at->native != native || at->device.type != device.type || at->device.id != device.id) {
      continue;
    }
    *out_stream = at->stream;
    return QN_OK;
  }
  wrapped_stream_t* added = qn__alloc(qn_allocator_default(), sizeof *added);
  if (!added) return qn__out_of_memory("a stream of tvm-ffi");
  *added = (wrapped_stream_t){first, device, native, NULL};
  qn_status_t status = qn_stream_wrap(device, native, &added->stream);
  if (!qn_ok(status)) {
    qn__free(qn_allocator_default(), added, sizeof *added);
    return status;
  }
  *out_stream = added->stream;
  while (!atomic_compare_exchange_weak_explicit(&wrapped_streams, &added->next, added,
                                                memory_order_release, memory_order_relaxed)) {
  }
  return QN_OK;
}

void* qn_tvm_ffi_stream(qn_device_t device) {
  const qn__tvm_ffi_t* ffi;
  if (qn_status_consume(qn__tvm_bind(&ffi)) != QN_STATUS_OK) return NULL;
  return ffi->get_stream(device.type, device.id);
}

// Calls on the stream that the program chose: quern's active one, else that of tvm-ffi.
static qn_status_t call_on_device(qn_function_t* code, const qn_value_t* args, size_t count) {
  const qn_device_t device = code->device;
  void* native =
      device.type == QN_DEVICE_CUDA && !qn_active_stream(device) ? qn_tvm_ffi_stream(device) : NULL;
  if (!native) return qn_function_call(code, args, count, NULL);
  qn_stream_t* stream = NULL;
  QN_TRY(wrap_stream(device, native, &stream));
  return qn_function_call_on(code, stream, args, count, NULL);
}

// ------------------------------------------------------------------------------------ the call

static inline qn_status_t call_values(qn__tvm_function_t* function, const qn_value_t* args,
                                      int32_t count) {
  const qn_device_t device = device_of(args, count);
  qn_function_t* code = known_code(function, device);
  if (!code) QN_TRY(find_code(function, device, &code));
  if (code->device.type == QN_DEVICE_CPU) return qn_function_call(code, args, (size_t)count, NULL);
  return call_on_device(code, args, (size_t)count);
}

// Some of the arguments are objects.
static __attribute__((noinline)) qn_status_t call_objects(qn__tvm_function_t* function,
                                                          const qn_value_t* args, int32_t count) {
  qn_value_t values[QN__MAX_WORDS];
  // More than any function has: the call says so before it reads a value.
  if ((uint32_t)count > QN__MAX_WORDS) return call_values(function, args, count);
  for (int32_t i = 0; i < count; i++) values[i] = read_value(&args[i]);
  return call_values(function, values, count);
}

int qn__tvm_call(qn__tvm_function_t* function, const qn_value_t* args, int32_t count,
                 qn_value_t* result) {
  qn_status_t status = is_plain(args, count) ? call_values(function, args, count)
                                             : call_objects(function, args, count);
  if (result) *result = (qn_value_t){QN_VALUE_NONE, 0, {0}};
  return qn_ok(status) ? 0 : qn__tvm_raise(status);
}

// ------------------------------------------------------------------------------------ objects

static int call_object(void* self, const void* args, int32_t count, void* result) {
  return qn__tvm_call(self, args, count, result);
}

static void release_object(void* self) {
  qn__tvm_function_t* function = self;
  qn__tvm_function_deinit(function);
  if (function->source.release) function->source.release(function->source.self);
  qn__free(qn_allocator_default(), function, sizeof *function);
}

// Takes the error that tvm-ffi raised in this thread.
static void drop_error(const qn__tvm_ffi_t* ffi) {
  void* error = NULL;
  ffi->take_raised(&error);
  if (error) (void)ffi->drop(error);
}

static qn_status_t set_global(const qn__tvm_ffi_t* ffi, const char* name, bool replaces,
                              void* object) {
  const qn__tvm_bytes_t bytes = {name, strlen(name)};
  if (ffi->set_global(&bytes, object, replaces) == 0) return QN_OK;
  drop_error(ffi);
  return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                        "tvm-ffi does not register '%s'; is the name taken?", name);
}

qn_status_t qn_tvm_ffi_register(const char* name, bool replaces,
                                const qn_tvm_ffi_source_t* source) {
  QN_REQUIRE(name, source);
  QN_STRUCT_READ(qn_tvm_ffi_source_t, source, given);
  if (!given.find || !name[0]) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "qn_tvm_ffi_register: %s",
                          given.find ? "the name is empty" : "source.find is null");
  }
  const qn__tvm_ffi_t* ffi;
  QN_TRY(qn__tvm_bind(&ffi));
  qn__tvm_function_t* function = qn__alloc(qn_allocator_default(), sizeof *function);
  if (!function) return qn__out_of_memory("a function of tvm-ffi");
  *function = (qn__tvm_function_t){.source = given};
  void* object = NULL;
  if (ffi->create(function, call_object, release_object, &object) != 0) {
    drop_error(ffi);
    qn__free(qn_allocator_default(), function, sizeof *function);
    return qn__out_of_memory("a function of tvm-ffi");
  }
  qn_status_t status = set_global(ffi, name, replaces, object);
  if (!qn_ok(status)) function->source.release = NULL;  // the caller keeps what it would release
  (void)ffi->drop(object);
  return status;
}
