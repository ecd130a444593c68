// SPDX-License-Identifier: Apache-2.0
// python/src/tvm_ffi.c: tensors of tvm-ffi as arguments, and functions of quern for tvm-ffi.
//
// tvm_ffi.Tensor has no exchange interface of DLPack, and a capsule for each argument costs more
// than a call. Its Python object holds a handle of tvm-ffi's C ABI, and the DLTensor lies behind
// the header of that object. Where the handle lies in the Python object is learned from one tensor
// of a process, by its method __chandle__, and compared with what other methods say.
//
// A function of tvm-ffi holds its quern.Function. Its calls run without the GIL and without Python,
// but for the first on each device, which looks up the code as a call of Python does. Read next:
// quern/tvm_ffi.h, quern/_tvm_ffi.py.
#include <string.h>

#include "args.h"
#include "function.h"
#include "quern/tvm_ffi.h"

// ------------------------------------------------------------------------------------ tensors

// TVMFFIObject, the header of every object of tvm-ffi.
typedef struct ffi_object {
  uint64_t counts;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
} ffi_object_t;
#define TYPE_TENSOR 70

// Where the handle lies in objects of tvm_ffi.Tensor. Written once, with the GIL.
static size_t handle_offset;

static const char moved[] = "its tensor was moved away";

static const ffi_object_t* handle_of(const void* object) {
  const ffi_object_t* handle;
  memcpy(&handle, (const char*)object + handle_offset, sizeof handle);
  return handle;
}

static int borrow(void* object, qn_tensor_t* out) {
  const ffi_object_t* handle = handle_of(object);
  if (!handle || handle->type_index != TYPE_TENSOR) {
    PyErr_SetString(PyExc_ValueError, moved);
    return -1;
  }
  memcpy(out, handle + 1, sizeof *out);
  return 0;
}

static int current_stream(int32_t device_type, int32_t device_id, void** out_stream) {
  *out_stream = qn_tvm_ffi_stream((qn_device_t){device_type, device_id});
  return 0;
}

static const qn__dl_exchange_t exchange = {
    .version = {1, 3}, .borrow_from_object = borrow, .current_stream = current_stream};

// Returns the handle by the method for it; NULL: the object has none, or there is no such method.
static const ffi_object_t* ask_handle(PyObject* object) {
  PyObject* number = PyObject_CallMethod(object, "__chandle__", NULL);
  void* handle = number ? PyLong_AsVoidPtr(number) : NULL;
  Py_XDECREF(number);
  return handle;
}

static size_t size_of_type(PyTypeObject* type) {
  PyObject* bytes = PyObject_GetAttrString((PyObject*)type, "__basicsize__");
  size_t size = bytes ? PyLong_AsSize_t(bytes) : 0;
  Py_XDECREF(bytes);
  if (!PyErr_Occurred()) return size;
  PyErr_Clear();
  return 0;
}

// Whether the DLTensor behind the handle is the one that the object exports.
static bool is_tensor(PyObject* object, const ffi_object_t* handle) {
  if (handle->type_index != TYPE_TENSOR) return false;
  qn_tensor_t tensor;
  memcpy(&tensor, handle + 1, sizeof tensor);
  PyObject* capsule = PyObject_CallMethod(object, "__dlpack__", NULL);
  const qn__dl_managed_t* managed = capsule && PyCapsule_IsValid(capsule, "dltensor")
                                        ? PyCapsule_GetPointer(capsule, "dltensor")
                                        : NULL;
  const bool is_same =
      managed && managed->tensor.data == tensor.data && managed->tensor.ndim == tensor.ndim &&
      managed->tensor.byte_offset == tensor.byte_offset &&
      memcmp(&managed->tensor.dtype, &tensor.dtype, sizeof tensor.dtype) == 0 &&
      memcmp(&managed->tensor.device, &tensor.device, sizeof tensor.device) == 0 &&
      tensor.ndim >= 0 && tensor.ndim <= (int32_t)QN__PY_MAX_RANK &&
      (tensor.ndim == 0 ||
       memcmp(managed->tensor.shape, tensor.shape, (size_t)tensor.ndim * sizeof(int64_t)) == 0);
  Py_XDECREF(capsule);
  return is_same;
}

const qn__dl_exchange_t* qn__py_tvm_exchange(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* package = PyDict_GetItemString(PyImport_GetModuleDict(), "tvm_ffi");  // borrowed
  PyObject* tensor_type = package ? PyObject_GetAttrString(package, "Tensor") : NULL;
  PyErr_Clear();
  Py_XDECREF(tensor_type);
  if (tensor_type != (PyObject*)type) return NULL;
  if (handle_offset) return &exchange;
  const ffi_object_t* handle = ask_handle(object);
  const bool is_moved = !handle && !PyErr_Occurred();
  if (is_moved) {
    // Its __dlpack__ would read memory that is gone.
    PyErr_SetString(PyExc_ValueError, moved);
    return NULL;
  }
  const bool is_right = handle && is_tensor(object, handle);
  PyErr_Clear();
  if (!is_right) return NULL;
  size_t found = 0, count = 0;
  for (size_t at = sizeof(PyObject); at + sizeof handle <= size_of_type(type);
       at += sizeof handle) {
    if (memcmp((const char*)object + at, &handle, sizeof handle) != 0) continue;
    found = at;
    count++;
  }
  if (count != 1) return NULL;
  handle_offset = found;
  return &exchange;
}

// ------------------------------------------------------------------------------------ functions

// Makes a status of the pending exception.
static qn_status_t take_exception(void) {
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  // Ctrl-C stays: the next check for signals raises it again.
  if (PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  PyObject* code_text = error ? PyObject_GetAttrString(error, "code") : NULL;
  const char* code_name = code_text ? PyUnicode_AsUTF8AndSize(code_text, NULL) : NULL;
  qn_status_code_t code = QN_STATUS_CANCELLED;
  for (int i = 1; code_name && i <= QN_STATUS_INTERNAL; i++) {
    if (strcmp(qn_status_code_text((qn_status_code_t)i), code_name) == 0) {
      code = (qn_status_code_t)i;
    }
  }
  PyErr_Clear();  // there is no such attribute, or it is no text
  PyObject* text = error ? PyObject_Str(error) : NULL;
  const char* message = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  qn_status_t status =
      qn_status_make(code, "%s", message && message[0] ? message : "the lookup was interrupted");
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(code_text);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(trace);
  return status;
}

static qn_status_t find_code(void* self, qn_device_t device, qn_function_t** out_function) {
  if (!Py_IsInitialized()) {
    return qn_status_make(QN_STATUS_CANCELLED, "the interpreter of Python has ended");
  }
  qn_status_t status = QN_OK;
  PyGILState_STATE state = PyGILState_Ensure();
  const qn__py_slot_t* slot = qn__py_function_slot(self, device);
  if (slot) {
    qn_function_retain(slot->function);
    *out_function = slot->function;
  } else {
    status = take_exception();
  }
  PyGILState_Release(state);
  return status;
}

static void release_function(void* self) {
  // tvm-ffi may drop its last functions when the process ends, after Python's end.
  if (!Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject*)self);
  PyGILState_Release(state);
}

PyObject* qn__py_function_register_tvm(PyObject* self, PyObject* args) {
  const char* name;
  int replaces;
  if (!PyArg_ParseTuple(args, "sp:_register_tvm_ffi", &name, &replaces)) return NULL;
  const qn_tvm_ffi_source_t source = {
      .struct_size = sizeof source, .find = find_code, .release = release_function, .self = self};
  Py_INCREF(self);
  if (!qn__py_check(qn_tvm_ffi_register(name, replaces != 0, &source))) {
    Py_DECREF(self);
    return NULL;
  }
  Py_RETURN_NONE;
}

PyObject* qn__py_function_as_tvm(PyObject* self, PyObject* args, PyObject* names) {
  static char* keys[] = {"name", "override", NULL};
  PyObject* name = Py_None;
  int replaces = 0;
  if (!PyArg_ParseTupleAndKeywords(args, names, "|O$p:as_tvm_ffi", keys, &name, &replaces)) {
    return NULL;
  }
  return PyObject_CallMethod(qn__py_state.helpers, "as_tvm_ffi", "OOO", self, name,
                             replaces ? Py_True : Py_False);
}
