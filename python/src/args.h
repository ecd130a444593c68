// SPDX-License-Identifier: Apache-2.0
// python/src/args.h: Python objects as arguments of a call, without a copy.
//
// An argument borrows the memory of its object until qn__py_arg_release. Read next: args.c.
#ifndef QUERN_PYTHON_ARGS_H_
#define QUERN_PYTHON_ARGS_H_

#include "extension.h"
#include "quern/read.h"

// What must be given back after a call.
typedef enum qn__py_held {
  QN__PY_HELD_NOTHING = 0,
  QN__PY_HELD_BUFFER = 1,
  QN__PY_HELD_OBJECT = 2,     // `object`
  QN__PY_HELD_MANAGED = 3,    // `managed`, by its deleter
  QN__PY_HELD_VERSIONED = 4,  // `versioned`, by its deleter
} qn__py_held_t;

// Dimensions whose strides fit into an argument; the language has no more.
#define QN__PY_MAX_RANK QN_MAX_RANK

// One tensor of a call.
typedef struct qn__py_arg {
  qn_tensor_t tensor;
  qn__py_held_t held;
  const qn__dl_exchange_t* exchange;  // of the object's type, or NULL
  union {
    Py_buffer buffer;
    PyObject* object;
    qn__dl_managed_t* managed;
    qn__dl_versioned_t* versioned;
  };
  int64_t strides[QN__PY_MAX_RANK];  // in elements, if the object has them in bytes
  int64_t shape[QN__PY_MAX_RANK];    // if the object's own may change during the call
} qn__py_arg_t;

// Makes a value of an object for parameter `index`. Of `out`, tensor values use all until
// qn__py_arg_release; scalars only `out->held`. False: raises, and nothing is held.
bool qn__py_arg_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                     qn__py_arg_t* out, qn_value_t* out_value);
// Gives back what the argument holds. Keeps a pending exception.
void qn__py_arg_release(qn__py_arg_t* arg);

// ---------------------------------------------------------------------------------- buffers.c

// Reads a tensor by the buffer protocol. The result is 1; 0, without an exception, if the object
// has no buffer of this kind; -1 with an exception.
int qn__py_buffer_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                       qn__py_arg_t* out);
// Reads an array whose dtype (bfloat16, float8 of ml_dtypes) buffers cannot name. Results likewise.
int qn__py_named_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                      qn__py_arg_t* out);
// Returns the dtype of a format of the module `struct`; NONE: there is none.
qn_dtype_t qn__py_dtype_of_format(const char* format, Py_ssize_t item_bytes);

// ---------------------------------------------------------------------------------- numpy.c

// Returns true if arrays of the type, numpy.ndarray, can be read from their members.
bool qn__py_numpy_learn(PyTypeObject* type);
// Reads an array of a plain dtype in row-major order. False, without an exception, for others.
bool qn__py_numpy_read(const qn__py_param_t* param, PyObject* object, qn__py_arg_t* out);

// ---------------------------------------------------------------------------------- tvm_ffi.c

// Returns an exchange interface for tvm_ffi.Tensor. NULL, without an exception: the object is of
// another type, or of a version whose tensors must be read by __dlpack__. NULL with an exception:
// the object has no tensor any more.
const qn__dl_exchange_t* qn__py_tvm_exchange(PyObject* object);

// ---------------------------------------------------------------------------------- dlpack.c

// Reads a tensor by __dlpack__. Results as those of qn__py_buffer_read.
int qn__py_dlpack_read(const qn__py_signature_t* signature, size_t index, PyObject* object,
                       qn__py_arg_t* out);
// Raises `type` with the message of a wrong argument: "SIGNATURE: argument 1 'x': ...".
void qn__py_wrong_argument(const qn__py_signature_t* signature, size_t index, qn_status_code_t code,
                           const char* format, ...) QN_PRINTF(4, 5);

// ---------------------------------------------------------------------------------- stream.c

typedef struct qn__py_held_call qn__py_held_call_t;

// Prepares for a call on the stream, whose arguments it will keep: until then others must not give
// back what the call uses. Waits for a stream that keeps too many. False: raises.
bool qn__py_stream_reserve(qn__py_stream_t* stream, size_t count, qn__py_held_call_t** out_held);
// Lets the stream keep the arguments of a call that it has got, until it has passed the call.
// Arguments that are kept have nothing to give back any more. Consumes `held`.
void qn__py_stream_hold(qn__py_stream_t* stream, qn__py_held_call_t* held, PyObject* const* objects,
                        qn__py_arg_t* args, const qn_value_t* values);

// Whether the function writes to the parameter.
static inline bool qn__py_is_written(const qn__py_param_t* param) {
  return param->access == QN_ACCESS_OUT || param->access == QN_ACCESS_INOUT;
}

#endif  // QUERN_PYTHON_ARGS_H_
