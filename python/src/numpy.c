// SPDX-License-Identifier: Apache-2.0
// python/src/numpy.c: the usual arrays of NumPy, read from the members of the object.
//
// NumPy's buffer protocol makes a description of the array at each request, which takes longer than
// the rest of a call. The members below are NumPy's C interface (PyArrayObject, PyArray_Descr), the
// same in all versions since 1.7. They are believed only after a check: at the first array of a
// process, arrays of all dtypes are made, and members are compared with what the buffer protocol
// says of them. An array that is not of a plain dtype in row-major order goes the way of buffers.
#include <string.h>

#include "args.h"

#define ROW_MAJOR 0x0001
#define WRITEABLE 0x0400
#define MAX_NUMBERS 32

typedef struct numpy_dtype {
  PyObject_HEAD;
  PyTypeObject* scalar_type;
  char kind, letter, byte_order, flags;
  int number;
} numpy_dtype_t;

typedef struct numpy_array {
  PyObject_HEAD;
  void* data;
  int ndim;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  PyObject* base;
  numpy_dtype_t* dtype;
  int flags;
} numpy_array_t;

// Dtypes by NumPy's numbers; those of no bits are not known. Written once, with the GIL.
static qn_dl_dtype_t dtypes[MAX_NUMBERS];

static bool is_native(char byte_order) {
  return byte_order == '=' || byte_order == '|';
}

// Whether an object is as large as the struct that it is read by.
static bool has_size(PyObject* object, size_t size) {
  PyObject* bytes = PyObject_GetAttrString((PyObject*)Py_TYPE(object), "__basicsize__");
  const bool is_large = bytes && PyLong_AsSize_t(bytes) >= size && !PyErr_Occurred();
  Py_XDECREF(bytes);
  return is_large;
}

// Compares the members with the buffer protocol, and learns the number of the dtype.
static bool learn(PyObject* object) {
  Py_buffer view;
  if (!has_size(object, sizeof(numpy_array_t)) ||
      PyObject_GetBuffer(object, &view, PyBUF_RECORDS_RO) != 0) {
    return false;
  }
  const numpy_array_t* array = (const numpy_array_t*)object;
  bool is_same = array->data == view.buf && array->ndim == view.ndim && view.ndim == 2 &&
                 array->shape && array->strides &&
                 memcmp(array->shape, view.shape, 2 * sizeof *view.shape) == 0 &&
                 memcmp(array->strides, view.strides, 2 * sizeof *view.strides) == 0 &&
                 (array->flags & WRITEABLE) != 0 && (array->flags & ROW_MAJOR) != 0;
  PyObject* dtype = is_same ? PyObject_GetAttrString(object, "dtype") : NULL;
  is_same = dtype && dtype == (PyObject*)array->dtype && has_size(dtype, sizeof(numpy_dtype_t)) &&
            is_native(array->dtype->byte_order) && array->dtype->number >= 0 &&
            array->dtype->number < MAX_NUMBERS;
  if (is_same) {
    dtypes[array->dtype->number] =
        qn_dtype_to_dl(qn__py_dtype_of_format(view.format, view.itemsize));
    is_same = dtypes[array->dtype->number].bits == (uint32_t)view.itemsize * 8;
  }
  Py_XDECREF(dtype);
  PyBuffer_Release(&view);
  return is_same;
}

bool qn__py_numpy_learn(PyTypeObject* type) {
  static const char letters[][2] = {"?", "b", "h", "i", "l", "q", "B",
                                    "H", "I", "L", "Q", "e", "f", "d"};
  bool is_known = true;
  for (size_t i = 0; is_known && i < sizeof letters / sizeof letters[0]; i++) {
    PyObject* array = PyObject_CallFunction((PyObject*)type, "(ii)s", 2, 3, letters[i]);
    is_known = array && learn(array);
    Py_XDECREF(array);
  }
  PyErr_Clear();
  return is_known;
}

bool qn__py_numpy_read(const qn__py_param_t* param, PyObject* object, qn__py_arg_t* out) {
  const numpy_array_t* array = (const numpy_array_t*)object;
  const numpy_dtype_t* dtype = array->dtype;
  const int wanted = ROW_MAJOR | (qn__py_is_written(param) ? WRITEABLE : 0);
  if ((array->flags & wanted) != wanted || (unsigned)dtype->number >= MAX_NUMBERS ||
      dtypes[dtype->number].bits == 0 || !is_native(dtype->byte_order) ||
      array->ndim > (int)QN__PY_MAX_RANK) {
    return false;
  }
  out->tensor.data = array->data;
  out->tensor.device = (qn_device_t){QN_DEVICE_CPU, 0};
  out->tensor.ndim = array->ndim;
  out->tensor.dtype = dtypes[dtype->number];
  // A copy: a thread may give the array another shape during a call without the GIL.
  for (int d = 0; d < array->ndim; d++) out->shape[d] = array->shape[d];
  out->tensor.shape = out->shape;
  out->tensor.strides = NULL;
  out->tensor.byte_offset = 0;
  out->held = QN__PY_HELD_NOTHING;
  return true;
}
