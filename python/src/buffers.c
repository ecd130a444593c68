// SPDX-License-Identifier: Apache-2.0
// python/src/buffers.c: tensors by the buffer protocol, and the dtypes that buffers cannot name.
//
// The memory is the CPU's. NumPy's arrays, memoryview, array.array, bytes and JAX's arrays on the
// CPU come this way.
#include <string.h>

#include "args.h"

// Returns the dtype of a format of the module `struct`; NONE: there is none.
static qn_dtype_t dtype_of_format(const char* format, Py_ssize_t item_bytes) {
  if (!format) return item_bytes == 1 ? QN_DTYPE_U8 : QN_DTYPE_NONE;
  const char first = format[0];
  if (first == '@' || first == '=' || first == (PY_LITTLE_ENDIAN ? '<' : '>')) format++;
  if (format[0] == '\0' || format[1] != '\0') return QN_DTYPE_NONE;
  switch (format[0]) {
    case 'f':
      return QN_DTYPE_F32;
    case 'd':
      return QN_DTYPE_F64;
    case 'e':
      return QN_DTYPE_F16;
    case '?':
      return QN_DTYPE_BOOL;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return item_bytes == 1   ? QN_DTYPE_I8
             : item_bytes == 2 ? QN_DTYPE_I16
             : item_bytes == 4 ? QN_DTYPE_I32
                               : QN_DTYPE_I64;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return item_bytes == 1   ? QN_DTYPE_U8
             : item_bytes == 2 ? QN_DTYPE_U16
             : item_bytes == 4 ? QN_DTYPE_U32
                               : QN_DTYPE_U64;
    default:
      return QN_DTYPE_NONE;
  }
}

static bool is_row_major(const Py_buffer* view) {
  if (!view->strides) return true;
  Py_ssize_t expected = view->itemsize;
  for (int d = view->ndim; d-- > 0;) {
    if (view->shape[d] != 1 && view->strides[d] != expected) return view->len == 0;
    expected *= view->shape[d];
  }
  return true;
}

// Fills the tensor from the view that `out` holds, whose elements are of `dtype`. On an error
// raises, and the view is still held.
static bool fill(const qn__py_signature_t* signature, size_t index, qn_dtype_t dtype,
                 qn__py_arg_t* out) {
  const Py_buffer* view = &out->buffer;
  out->tensor.data = view->buf;
  out->tensor.device = (qn_device_t){QN_DEVICE_CPU, 0};
  out->tensor.ndim = view->ndim;
  out->tensor.dtype = qn_dtype_to_dl(dtype);
  _Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "extents are handed over as they are");
  out->tensor.shape = (int64_t*)view->shape;
  out->tensor.strides = NULL;
  out->tensor.byte_offset = 0;
  const bool is_written = qn__py_is_written(&signature->params[index]);
  if (is_written && view->readonly) {
    qn__py_wrong_argument(signature, index, QN_STATUS_VALUE_ERROR,
                          "expected memory that can be written to, got a read-only buffer");
    return false;
  }
  if (is_row_major(view)) return true;
  if (view->ndim > (int)QN__PY_MAX_RANK) {
    qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR, "expected rank %u, got rank %d",
                          signature->params[index].rank, view->ndim);
    return false;
  }
  for (int d = 0; d < view->ndim; d++) {
    if (view->strides[d] % view->itemsize != 0) {
      qn__py_wrong_argument(signature, index, QN_STATUS_VALUE_ERROR,
                            "stride %d: expected a multiple of %zd bytes, got %zd", d,
                            view->itemsize, view->strides[d]);
      return false;
    }
    out->strides[d] = view->strides[d] / view->itemsize;
  }
  out->tensor.strides = out->strides;
  return true;
}

int qn__py_buffer_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                       qn__py_arg_t* out) {
  if (PyObject_GetBuffer(object, &out->buffer, PyBUF_RECORDS_RO) != 0) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
  }
  out->held = QN__PY_HELD_BUFFER;
  qn_dtype_t dtype = dtype_of_format(out->buffer.format, out->buffer.itemsize);
  if (dtype == QN_DTYPE_NONE) {
    qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR,
                          "expected dtype %s, got elements of format '%s'",
                          qn_dtype_text(signature->params[index].dtype), out->buffer.format);
  } else if (fill(signature, index, dtype, out)) {
    return 1;
  }
  qn__py_arg_release(out);
  return -1;
}

// The dtypes of the package ml_dtypes that are dtypes of the language, by name, and the dtype of
// NumPy whose elements have as many bytes.
static const struct {
  const char* name;
  qn_dtype_t dtype;
  const char* bits;  // NULL: stored otherwise
} named_dtypes[] = {
    {"bfloat16", QN_DTYPE_BF16, "u2"},      {"float8_e4m3fn", QN_DTYPE_F8E4M3FN, "u1"},
    {"float8_e5m2", QN_DTYPE_F8E5M2, "u1"}, {"int4", QN_DTYPE_I4, NULL},
    {"uint4", QN_DTYPE_U4, NULL},           {"float4_e2m1fn", QN_DTYPE_F4E2M1FN, NULL},
};

int qn__py_named_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                      qn__py_arg_t* out) {
  PyObject* dtype = PyObject_GetAttrString(object, "dtype");
  PyObject* name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  PyErr_Clear();
  int result = 0;
  for (size_t i = 0; text && i < sizeof named_dtypes / sizeof named_dtypes[0]; i++) {
    if (strcmp(text, named_dtypes[i].name) != 0) continue;
    if (!named_dtypes[i].bits) {
      qn__py_wrong_argument(signature, index, QN_STATUS_TYPE_ERROR,
                            "dtype %s: its array has one element a byte, quern's has two; pack "
                            "them, and pass a tensor of DLPack",
                            text);
      result = -1;
      break;
    }
    PyObject* bits = PyObject_CallMethod(object, "view", "s", named_dtypes[i].bits);
    // The view keeps the array alive, and the buffer keeps the view alive.
    result = bits && PyObject_GetBuffer(bits, &out->buffer, PyBUF_RECORDS_RO) == 0 ? 1 : 0;
    Py_XDECREF(bits);
    PyErr_Clear();
    if (result == 0) break;
    out->held = QN__PY_HELD_BUFFER;
    if (!fill(signature, index, named_dtypes[i].dtype, out)) {
      qn__py_arg_release(out);
      result = -1;
    }
    break;
  }
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  return result;
}
