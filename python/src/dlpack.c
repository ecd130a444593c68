// SPDX-License-Identifier: Apache-2.0
// python/src/dlpack.c: tensors by the method __dlpack__: the way for what has neither the exchange
// interface nor a buffer, such as arrays of CuPy and JAX on a GPU.
#include "args.h"

#include "quern/device.h"

// The stream by which a producer orders its work before ours: for CUDA the number that DLPack asks
// for, of the calling thread's active stream; else None.
static PyObject* stream_of(int32_t device_type, int32_t device_id) {
  if (device_type != QN_DEVICE_CUDA) Py_RETURN_NONE;
  qn_stream_t* stream = qn_active_stream((qn_device_t){device_type, device_id});
  void* native = stream ? qn_stream_native(stream) : NULL;
  // 1 is the legacy default stream, which quern's default stream is.
  return native ? PyLong_FromVoidPtr(native) : PyLong_FromLong(1);
}

// Asks for the capsule; NULL: raises.
static PyObject* ask(PyObject* object) {
  long device_type = QN_DEVICE_CPU, device_id = 0;
  PyObject* device = PyObject_CallMethodObjArgs(object, qn__py_state.name_dlpack_device, NULL);
  if (!device) return NULL;
  // An enum of the framework is an int too.
  PyObject* type_number = PySequence_GetItem(device, 0);
  PyObject* id_number = type_number ? PySequence_GetItem(device, 1) : NULL;
  if (id_number) device_type = PyLong_AsLong(type_number);
  if (id_number && !PyErr_Occurred()) device_id = PyLong_AsLong(id_number);
  Py_XDECREF(type_number);
  Py_XDECREF(id_number);
  Py_DECREF(device);
  if (PyErr_Occurred()) return NULL;
  PyObject* method = PyObject_GetAttr(object, qn__py_state.name_dlpack);
  PyObject* stream = method ? stream_of((int32_t)device_type, (int32_t)device_id) : NULL;
  PyObject* capsule = NULL;
  if (stream) {
    PyObject* none = PyTuple_New(0);
    PyObject* names =
        none ? Py_BuildValue("{s:(ii),s:O}", "max_version", 1, 3, "stream", stream) : NULL;
    if (names) capsule = PyObject_Call(method, none, names);
    if (!capsule && names && PyErr_ExceptionMatches(PyExc_TypeError)) {
      // A producer from before DLPack 1.0 has no max_version.
      PyErr_Clear();
      if (PyDict_DelItemString(names, "max_version") == 0) {
        capsule = PyObject_Call(method, none, names);
      }
    }
    Py_XDECREF(names);
    Py_XDECREF(none);
  }
  Py_XDECREF(stream);
  Py_XDECREF(method);
  return capsule;
}

// Takes the versioned tensor out of its capsule.
static bool take_versioned(const qn__py_signature_t* signature, size_t index, PyObject* capsule,
                           qn__py_arg_t* out) {
  qn__dl_versioned_t* versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  if (!versioned) return false;
  if (versioned->version.major != 1) {
    qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR,
                          "expected DLPack 1, got version %u.%u", versioned->version.major,
                          versioned->version.minor);
    return false;
  }
  const bool is_written = qn__py_is_written(&signature->params[index]);
  if (is_written && (versioned->flags & QN__DL_READ_ONLY) != 0) {
    qn__py_wrong_argument(signature, index, QN_STATUS_VALUE_ERROR,
                          "expected memory that can be written to, got a read-only tensor");
    return false;
  }
  if (is_written && (versioned->flags & QN__DL_IS_COPIED) != 0) {
    qn__py_wrong_argument(signature, index, QN_STATUS_VALUE_ERROR,
                          "expected memory that can be written to, got a copy of the tensor");
    return false;
  }
  if ((versioned->flags & QN__DL_SUBBYTE_PADDED) != 0) {
    qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR,
                          "its elements of less than a byte are not packed");
    return false;
  }
  if (PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0) return false;
  out->versioned = versioned;
  out->held = QN__PY_HELD_VERSIONED;
  out->tensor = versioned->tensor;
  return true;
}

int qn__py_dlpack_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                       qn__py_arg_t* out) {
  if (!PyObject_HasAttr(object, qn__py_state.name_dlpack)) return 0;
  PyObject* capsule = ask(object);
  if (!capsule) {
    qn__py_wrong_argument(signature, index, QN_STATUS_VALUE_ERROR, "it gives no tensor");
    return -1;
  }
  bool is_read = false;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    is_read = take_versioned(signature, index, capsule, out);
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    out->managed = PyCapsule_GetPointer(capsule, "dltensor");
    is_read = PyCapsule_SetName(capsule, "used_dltensor") == 0;
    out->held = QN__PY_HELD_MANAGED;
    if (is_read) out->tensor = out->managed->tensor;
  } else {
    qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR,
                          "__dlpack__ gave no capsule of a tensor");
  }
  Py_DECREF(capsule);
  return is_read ? 1 : -1;
}
