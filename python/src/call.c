// SPDX-License-Identifier: Apache-2.0
// python/src/call.c: a call of a function from Python.
//
// The usual call reads its arguments into the stack, finds the code in the slot of the last call,
// and runs it with the GIL: releasing the GIL costs as much as a small kernel. A call keeps it only
// if it is no larger than one that was short:
//
//  1. The size of a call is the elements of its tensors and the values of its integers, summed.
//  2. A call larger than every short one before releases the GIL and is timed. If it took less than
//     SHORT_NS, its size becomes that of short calls.
//  3. Every CHECK_PERIOD-th short call is timed too. If it was not short, the next one is timed,
//     because the thread may have been preempted. After LONG_RUN of them in a row no size is
//     short, and it takes twice as many short calls as before to learn one again.
//
// Read next: args.c (arguments), function.c (slots).
#include <string.h>
#include <time.h>

#include "args.h"
#include "function.h"

#define SHORT_NS INT64_C(10000)
#define CHECK_PERIOD 64u
#define LONG_RUN 3u
#define MAX_PATIENCE 1023u
// Arguments that a call keeps on the stack.
#define FEW_ARGS 8

static int64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t add_saturated(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static inline int64_t size_of(const qn_value_t* value) {
  if (value->type == QN_VALUE_TENSOR) {
    const qn_tensor_t* tensor = value->tensor;
    int64_t count = 1;
    for (int32_t d = 0; d < tensor->ndim; d++) {
      if (__builtin_mul_overflow(count, tensor->shape[d], &count)) return INT64_MAX;
    }
    return count < 0 ? INT64_MAX : count;
  }
  if (value->type == QN_VALUE_UINT) return INT64_MAX;
  if (value->type != QN_VALUE_INT) return 0;
  if (value->int_value == INT64_MIN) return INT64_MAX;
  return value->int_value < 0 ? -value->int_value : value->int_value;
}

static void learn(qn__py_function_t* function, int64_t size, int64_t taken_ns) {
  if (taken_ns < SHORT_NS) {
    function->long_run = 0;
    if (size > function->short_size && function->short_run++ >= function->patience) {
      function->short_size = size;
      function->short_run = 0;
    }
    return;
  }
  function->short_run = 0;
  if (size > function->short_size) return;
  if (++function->long_run < LONG_RUN) {
    function->until_timed = 1;
    return;
  }
  function->long_run = 0;
  function->short_size = -1;
  if (function->patience < MAX_PATIENCE) function->patience = 2 * function->patience + 1;
}

// Runs the code without the GIL, and learns how long calls of this size take.
static __attribute__((noinline)) qn_status_t run_timed(qn__py_function_t* function,
                                                       qn_function_t* code, qn_stream_t* stream,
                                                       const qn_value_t* values, size_t count,
                                                       int64_t size) {
  qn_status_t status;
  int64_t taken_ns;
  Py_BEGIN_ALLOW_THREADS;
  int64_t start_ns = now_ns();
  status = stream ? qn_function_call_on(code, stream, values, count, NULL)
                  : qn_function_call(code, values, count, NULL);
  taken_ns = now_ns() - start_ns;
  Py_END_ALLOW_THREADS;
  function->until_timed = CHECK_PERIOD;
  if (qn_ok(status)) learn(function, size, taken_ns);
  return status;
}

// Runs the code on a stream of the program, which is active. The stream keeps the arguments after
// it has got the call: before, another thread may find it idle, and end what it keeps. Nothing is
// learned of how long calls take.
static __attribute__((noinline)) bool run_in_background(qn_function_t* code,
                                                        qn__py_stream_t* stream,
                                                        PyObject* const* objects,
                                                        qn__py_arg_t* args,
                                                        const qn_value_t* values, size_t count) {
  qn__py_held_call_t* held;
  if (!qn__py_stream_reserve(stream, count, &held)) return false;
  qn_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = qn_function_call(code, values, count, NULL);
  Py_END_ALLOW_THREADS;
  qn__py_stream_hold(stream, held, objects, args, values);
  return qn__py_check(status);
}

// Gives the stream on which a framework's current work of the device runs, as one of quern's. NULL:
// the thread's active stream. False: raises.
static __attribute__((noinline)) bool find_stream(qn_device_t device, const qn__py_arg_t* args,
                                                  const qn_value_t* values, size_t count,
                                                  qn_stream_t** out_stream) {
  *out_stream = NULL;
  // A stream that the program chose for quern wins.
  if (device.type != QN_DEVICE_CUDA || qn_active_stream(device)) return true;
  for (size_t i = 0; i < count; i++) {
    if (values[i].type != QN_VALUE_TENSOR || !args[i].exchange ||
        args[i].tensor.device.type != device.type) {
      continue;
    }
    void* native = NULL;
    if (!args[i].exchange->current_stream) return true;
    if (args[i].exchange->current_stream(device.type, device.id, &native) != 0) return false;
    return !native || qn__py_stream_of(device, native, out_stream);
  }
  return true;
}

// Calls with values that are read.
static inline bool run(qn__py_function_t* function, PyObject* const* objects, qn__py_arg_t* args,
                       const qn_value_t* values, size_t count) {
  int64_t size = 0;
  qn_device_t device = {0, 0};
  for (size_t i = 0; i < count; i++) {
    size = add_saturated(size, size_of(&values[i]));
    if (device.type == 0 && values[i].type == QN_VALUE_TENSOR) device = args[i].tensor.device;
  }
  if (device.type == QN_DEVICE_CUDA_HOST) device = (qn_device_t){QN_DEVICE_CPU, 0};
  if (device.type == 0) device = qn_active_device();
  qn__py_slot_t* slot = function->slot;
  if (!slot ||
      (!function->is_bound && (slot->device.type != device.type || slot->device.id != device.id))) {
    slot = qn__py_function_slot(function, device);
    if (!slot) return false;
  }
  qn_stream_t* stream = NULL;
  if (slot->device.type != QN_DEVICE_CPU &&
      !find_stream(slot->device, args, values, count, &stream)) {
    return false;
  }
  qn__py_stream_t* own = stream ? NULL : qn__py_stream_active(slot->device);
  if (own) return run_in_background(slot->function, own, objects, args, values, count);
  qn_status_t status;
  if (!stream && size <= function->short_size && --function->until_timed != 0) {
    status = qn_function_call(slot->function, values, count, NULL);
  } else {
    status = run_timed(function, slot->function, stream, values, count, size);
  }
  return qn__py_check(status);
}

static bool read_and_run(qn__py_function_t* function, PyObject* const* objects, size_t count,
                         qn__py_arg_t* args, qn_value_t* values) {
  const qn__py_signature_t* signature = function->signature;
  size_t read = 0;
  while (read < count &&
         qn__py_arg_read(signature, read, objects[read], &args[read], &values[read])) {
    read++;
  }
  bool is_done = read == count && run(function, objects, args, values, count);
  while (read > 0) qn__py_arg_release(&args[--read]);
  return is_done;
}

bool qn__py_arrange(const qn__py_signature_t* signature, qn_access_t skipped,
                    PyObject* const* objects, size_t count, PyObject* names, PyObject** out) {
  memset(out, 0, signature->param_count * sizeof *out);
  size_t given = 0, wanted = 0;
  for (size_t i = 0; i < signature->param_count; i++) {
    const qn__py_param_t* param = &signature->params[i];
    if (param->is_buffer && param->access == skipped) continue;
    wanted++;
    if (given < count) out[i] = objects[given++];
  }
  const size_t name_count = names ? (size_t)PyTuple_Size(names) : 0;
  if (given < count || count + name_count > wanted) {
    PyErr_Format(PyExc_TypeError, "%s: expected %zu arguments, got %zu", signature->text, wanted,
                 count + name_count);
    return false;
  }
  for (size_t k = 0; k < name_count; k++) {
    PyObject* name = PyTuple_GetItem(names, (Py_ssize_t)k);
    size_t i = 0;
    while (i < signature->param_count) {
      const qn__py_param_t* param = &signature->params[i];
      bool is_asked = !param->is_buffer || param->access != skipped;
      int equal = is_asked ? PyObject_RichCompareBool(param->key, name, Py_EQ) : 0;
      if (equal < 0) return false;
      if (equal) break;
      i++;
    }
    if (i == signature->param_count) {
      PyErr_Format(PyExc_TypeError, "%s: there is no argument '%S'", signature->text, name);
      return false;
    }
    if (out[i]) {
      PyErr_Format(PyExc_TypeError, "%s: argument '%S' is given twice", signature->text, name);
      return false;
    }
    out[i] = objects[count + k];
  }
  for (size_t i = 0; i < signature->param_count; i++) {
    const qn__py_param_t* param = &signature->params[i];
    if (out[i] || (param->is_buffer && param->access == skipped)) continue;
    PyErr_Format(PyExc_TypeError, "%s: argument '%s' is missing", signature->text, param->name);
    return false;
  }
  return true;
}

// A call with names, or with a wrong number of arguments, or with many.
static __attribute__((noinline)) PyObject* call_any(qn__py_function_t* function,
                                                    PyObject* const* objects, size_t count,
                                                    PyObject* names) {
  const size_t params = function->signature->param_count;
  // One block for the objects, the arguments and the values; the largest alignment first.
  qn__py_arg_t* args =
      PyMem_Malloc((params + 1) * (sizeof *args + sizeof(qn_value_t) + sizeof(PyObject*)));
  if (!args) return PyErr_NoMemory();
  qn_value_t* values = (qn_value_t*)(void*)(args + params);
  PyObject** arranged = (PyObject**)(void*)(values + params);
  bool is_done =
      qn__py_arrange(function->signature, QN_ACCESS_NONE, objects, count, names, arranged) &&
      read_and_run(function, arranged, params, args, values);
  PyMem_Free(args);
  if (!is_done) return NULL;
  Py_RETURN_NONE;
}

PyObject* qn__py_function_call(PyObject* self, PyObject* const* objects, size_t flags,
                               PyObject* names) {
  qn__py_function_t* function = (qn__py_function_t*)self;
  const size_t count = (size_t)PyVectorcall_NARGS(flags);
  if (names || count != function->signature->param_count || count > FEW_ARGS) {
    return call_any(function, objects, count, names);
  }
  qn__py_arg_t args[FEW_ARGS];
  qn_value_t values[FEW_ARGS];
  if (!read_and_run(function, objects, count, args, values)) return NULL;
  Py_RETURN_NONE;
}

// Makes (name, shape, dtype) of a buffer that the caller allocates.
static PyObject* new_output(const qn__py_param_t* param, const int64_t* extents) {
  PyObject* shape = PyTuple_New((Py_ssize_t)param->rank);
  for (uint32_t d = 0; shape && d < param->rank; d++) {
    PyObject* extent = PyLong_FromLongLong(extents[d]);
    if (!extent || PyTuple_SetItem(shape, (Py_ssize_t)d, extent) != 0) Py_CLEAR(shape);
  }
  return shape ? Py_BuildValue("(ONs)", param->key, shape, qn_dtype_text(param->dtype)) : NULL;
}

PyObject* qn__py_function_outputs(PyObject* self, PyObject* const* objects, Py_ssize_t nargs,
                                  PyObject* names) {
  qn__py_function_t* function = (qn__py_function_t*)self;
  const qn__py_signature_t* signature = function->signature;
  const size_t params = signature->param_count;
  // Extents of every parameter, too, in the same block.
  const size_t item = sizeof(qn__py_arg_t) + sizeof(qn_value_t) + sizeof(PyObject*) +
                      sizeof(int64_t*) + QN__PY_MAX_RANK * sizeof(int64_t);
  qn__py_arg_t* args = PyMem_Calloc(params + 1, item);
  if (!args) return PyErr_NoMemory();
  qn_value_t* values = (qn_value_t*)(void*)(args + params);
  int64_t* extents = (int64_t*)(void*)(values + params);
  int64_t** shapes = (int64_t**)(void*)(extents + params * QN__PY_MAX_RANK);
  PyObject** arranged = (PyObject**)(void*)(shapes + params);
  PyObject* result = NULL;
  bool is_read = qn__py_arrange(signature, QN_ACCESS_OUT, objects, (size_t)nargs, names, arranged);
  size_t read = 0;
  for (; is_read && read < params; read++) {
    shapes[read] = extents + read * QN__PY_MAX_RANK;
    if (!arranged[read]) {
      values[read] = (qn_value_t){QN_VALUE_NONE, 0, {0}};
      continue;
    }
    is_read = qn__py_arg_read(signature, read, arranged[read], &args[read], &values[read]);
    if (!is_read) break;
  }
  if (is_read && qn__py_check(qn_module_infer_shapes(function->module->module, signature->index,
                                                     values, params, shapes, NULL))) {
    result = PyList_New(0);
    for (size_t i = 0; result && i < params; i++) {
      PyObject* output = arranged[i] ? Py_BuildValue("(O)", arranged[i])
                                     : new_output(&signature->params[i], shapes[i]);
      if (!output || PyList_Append(result, output) != 0) Py_CLEAR(result);
      Py_XDECREF(output);
    }
  }
  while (read > 0) qn__py_arg_release(&args[--read]);
  PyMem_Free(args);
  return result;
}
