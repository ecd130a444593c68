// SPDX-License-Identifier: Apache-2.0
// python/src/function.h: what call.c and function.c share.
#ifndef QUERN_PYTHON_FUNCTION_H_
#define QUERN_PYTHON_FUNCTION_H_

#include "extension.h"

// Returns the code for a device, which it looks up if there is none; of a function that is bound to
// a target its only code. NULL: raises.
qn__py_slot_t* qn__py_function_slot(qn__py_function_t* function, qn_device_t device);

// Puts objects, of which the last belong to `names`, in the order of the parameters; those of
// buffers with the access `skipped` have none. `out` has room for all parameters. False: raises.
bool qn__py_arrange(const qn__py_signature_t* signature, qn_access_t skipped,
                    PyObject* const* objects, size_t count, PyObject* names, PyObject** out);

// The call (vectorcall).
PyObject* qn__py_function_call(PyObject* self, PyObject* const* objects, size_t flags,
                               PyObject* names);
// The method _outputs: as a call without its `out` buffers, which it describes. For each parameter
// a tuple: (object,) as given, or (name, shape, dtype).
PyObject* qn__py_function_outputs(PyObject* self, PyObject* const* objects, Py_ssize_t nargs,
                                  PyObject* names);

// The methods as_tvm_ffi and _register_tvm_ffi (tvm_ffi.c).
PyObject* qn__py_function_as_tvm(PyObject* self, PyObject* args, PyObject* names);
PyObject* qn__py_function_register_tvm(PyObject* self, PyObject* args);

// Gives the stream of quern for one of the driver. It stays for the life of the process: frameworks
// have few. False: raises.
bool qn__py_stream_of(qn_device_t device, void* native, qn_stream_t** out_stream);

#endif  // QUERN_PYTHON_FUNCTION_H_
