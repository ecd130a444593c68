// SPDX-License-Identifier: Apache-2.0
// python/src/args.c: a Python object as one argument.
//
// The way of an object is that of its type, which is asked once: the exchange interface of DLPack
// for C, the buffer protocol, __dlpack__. Scalars are Python's own numbers; other numbers (of
// NumPy, tensors of one element) give theirs by item(). Nothing here checks shapes or dtypes: the
// call does.
#include "args.h"

// ------------------------------------------------------------------------------------ types

// Gives the exchange interface of a type: 1; 0: it has none; -1: raises.
static int find_exchange(PyTypeObject* type, const qn__dl_exchange_t** out) {
  PyObject* capsule = PyObject_GetAttr((PyObject*)type, qn__py_state.name_exchange);
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  const qn__dl_exchange_t* api = NULL;
  if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  }
  // The newest interface of major version 1.
  while (api && api->version.major != 1) api = api->previous;
  Py_DECREF(capsule);
  *out = api;
  return api != NULL && api->borrow_from_object != NULL;
}

// Whether the type is numpy.ndarray itself.
static bool is_numpy(PyTypeObject* type) {
  PyObject* modules = PyImport_GetModuleDict();  // borrowed
  PyObject* numpy = PyDict_GetItemString(modules, "numpy");
  PyObject* array = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
  PyErr_Clear();
  Py_XDECREF(array);
  return array == (PyObject*)type;
}

static bool classify(PyObject* object, qn__py_type_entry_t* entry) {
  PyTypeObject* type = Py_TYPE(object);
  const qn__dl_exchange_t* exchange = NULL;
  int has_exchange = find_exchange(type, &exchange);
  if (has_exchange < 0) return false;
  if (!has_exchange) {
    exchange = qn__py_tvm_exchange(object);
    if (PyErr_Occurred()) return false;
    has_exchange = exchange != NULL;
  }
  qn__py_way_t way = QN__PY_NONE;
  if (has_exchange) {
    way = QN__PY_EXCHANGE;
  } else if (PyObject_CheckBuffer(object)) {
    way = is_numpy(type) && qn__py_numpy_learn(type) ? QN__PY_NUMPY : QN__PY_BUFFER;
  } else if (PyObject_HasAttr((PyObject*)type, qn__py_state.name_dlpack)) {
    way = QN__PY_DLPACK;
  }
  Py_INCREF((PyObject*)type);
  PyTypeObject* old = entry->type;
  *entry = (qn__py_type_entry_t){type, way, exchange};
  Py_XDECREF((PyObject*)old);
  return true;
}

static inline qn__py_type_entry_t* entry_of(PyTypeObject* type) {
  uintptr_t bits = (uintptr_t)type;
  return &qn__py_state.types[((bits >> 4) ^ (bits >> 10)) % QN__PY_TYPE_SLOTS];
}

// ------------------------------------------------------------------------------------ scalars

// Reads an exact int.
static bool read_int(const qn__py_signature_t* signature, size_t index, PyObject* object,
                     qn_value_t* out) {
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) {
    *out = qn_value_int(value);
    return value != -1 || !PyErr_Occurred();
  }
  unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(object) : 0;
  if (overflow > 0 && !PyErr_Occurred()) {
    *out = qn_value_uint(large);
    return true;
  }
  PyErr_Clear();
  qn__py_wrong_argument(signature, index, QN_STATUS_VALUE_ERROR,
                        "expected %s, got an int that does not fit in 64 bits",
                        qn_dtype_text(signature->params[index].dtype));
  return false;
}

// Reads Python's own numbers. Returns 1; 0: it is none; -1: raises.
static int read_exact(const qn__py_signature_t* signature, size_t index, PyObject* object,
                      qn_value_t* out) {
  if (PyFloat_Check(object)) {
    *out = qn_value_float(PyFloat_AsDouble(object));
    return 1;
  }
  if (PyBool_Check(object)) {
    *out = qn_value_bool(object == Py_True);
    return 1;
  }
  if (PyLong_Check(object)) return read_int(signature, index, object, out) ? 1 : -1;
  return 0;
}

static bool read_scalar(const qn__py_signature_t* signature, size_t index, PyObject* object,
                        qn_value_t* out) {
  int result = read_exact(signature, index, object, out);
  if (result != 0) return result > 0;
  // numpy.float32(2), a tensor of one element.
  PyObject* number = NULL;
  if (PyObject_HasAttrString(object, "item")) {
    number = PyObject_CallMethod(object, "item", NULL);
  } else if (PyIndex_Check(object)) {
    number = PyNumber_Index(object);
  } else if (PyObject_HasAttrString(object, "__float__")) {
    number = PyNumber_Float(object);
  }
  result = number ? read_exact(signature, index, number, out) : 0;
  Py_XDECREF(number);
  if (result != 0) return result > 0;
  PyObject* name = PyObject_GetAttrString((PyObject*)Py_TYPE(object), "__name__");
  const char* text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (!text) PyErr_Clear();
  qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR, "expected %s, got %s",
                        qn_dtype_text(signature->params[index].dtype), text ? text : "an object");
  Py_XDECREF(name);
  return false;
}

// ------------------------------------------------------------------------------------ tensors

static bool refuse_object(const qn__py_signature_t* signature, size_t index, PyObject* object) {
  PyObject* name = PyObject_GetAttrString((PyObject*)Py_TYPE(object), "__name__");
  const char* text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (!text) PyErr_Clear();
  qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR,
                        "expected a tensor (DLPack or the buffer protocol), got %s",
                        text ? text : "an object");
  Py_XDECREF(name);
  return false;
}

static bool read_tensor(const qn__py_signature_t* signature, size_t index, PyObject* object,
                        qn__py_arg_t* out) {
  PyTypeObject* type = Py_TYPE(object);
  qn__py_type_entry_t* entry = entry_of(type);
  if (entry->type != type && !classify(object, entry)) return false;
  out->exchange = entry->exchange;
  int result = 0;
  switch (entry->way) {
    case QN__PY_EXCHANGE:
      out->held = QN__PY_HELD_NOTHING;
      if (entry->exchange->borrow_from_object(object, &out->tensor) == 0) return true;
      qn__py_wrong_argument(signature, index, QN_STATUS_VALUE_ERROR, "it gives no tensor");
      return false;
    case QN__PY_NUMPY:
      if (qn__py_numpy_read(&signature->params[index], object, out)) return true;
      // fall through
    case QN__PY_BUFFER:
      result = qn__py_buffer_read(signature, index, object, out);
      if (result == 0) result = qn__py_named_read(signature, index, object, out);
      if (result == 0) result = qn__py_dlpack_read(signature, index, object, out);
      break;
    case QN__PY_DLPACK:
      result = qn__py_dlpack_read(signature, index, object, out);
      break;
    default:
      break;
  }
  if (result != 0) return result > 0;
  return refuse_object(signature, index, object);
}

bool qn__py_arg_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                     qn__py_arg_t* out, qn_value_t* out_value) {
  const qn__py_param_t* param = &signature->params[index];
  if (param->is_buffer) {
    // A number here would be an object without a tensor: the message is that of the tensor.
    if (!read_tensor(signature, index, object, out)) return false;
    *out_value = qn_value_tensor(&out->tensor);
    return true;
  }
  out->held = QN__PY_HELD_NOTHING;
  out->exchange = NULL;
  if (PyFloat_CheckExact(object)) {
    *out_value = qn_value_float(PyFloat_AsDouble(object));
    return true;
  }
  return read_scalar(signature, index, object, out_value);
}

void qn__py_arg_release(qn__py_arg_t* arg) {
  if (arg->held == QN__PY_HELD_NOTHING) return;
  if (arg->held == QN__PY_HELD_BUFFER) {
    PyBuffer_Release(&arg->buffer);
    return;
  }
  // Deleters and finalizers may run Python code.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  switch (arg->held) {
    case QN__PY_HELD_OBJECT:
      Py_DECREF(arg->object);
      break;
    case QN__PY_HELD_MANAGED:
      if (arg->managed->deleter) arg->managed->deleter(arg->managed);
      break;
    case QN__PY_HELD_VERSIONED:
      if (arg->versioned->deleter) arg->versioned->deleter(arg->versioned);
      break;
    default:
      break;
  }
  PyErr_Restore(type, value, trace);
}
