// SPDX-License-Identifier: Apache-2.0
// python/src/errors.c: statuses as Python exceptions. quern/errors.py has the classes.
#include <stdarg.h>
#include <stdio.h>

#include "args.h"

PyObject* qn__py_raise_with(qn_status_t status, PyObject* diagnostics) {
  const char* code = qn_status_code_text(qn_status_code(status));
  PyObject* error = PyObject_CallMethod(qn__py_state.helpers, "make_error", "ssO", code,
                                        qn_status_message(status), diagnostics);
  qn_status_free(status);
  if (!error) return NULL;
  PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_DECREF(error);
  return NULL;
}

PyObject* qn__py_raise(qn_status_t status) {
  PyObject* none = PyTuple_New(0);
  if (!none) {
    qn_status_free(status);
    return NULL;
  }
  (void)qn__py_raise_with(status, none);
  Py_DECREF(none);
  return NULL;
}

void qn__py_wrong_argument(const qn__py_signature_t* signature, size_t index, qn_status_code_t code,
                           const char* format, ...) {
  // An exception that is pending is the reason: its text follows.
  PyObject *type, *reason, *trace, *reason_text = NULL;
  PyErr_Fetch(&type, &reason, &trace);
  if (type && !PyErr_GivenExceptionMatches(type, PyExc_Exception)) {
    PyErr_Restore(type, reason, trace);  // KeyboardInterrupt and the like stay
    return;
  }
  if (reason) reason_text = PyObject_Str(reason);
  PyErr_Clear();
  const char* cause = reason_text ? PyUnicode_AsUTF8AndSize(reason_text, NULL) : NULL;
  PyErr_Clear();
  char text[512];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  (void)qn__py_raise(qn_status_make(code, "%s: argument %zu '%s': %s%s%s", signature->text, index,
                                    signature->params[index].name, text, cause ? ": " : "",
                                    cause ? cause : ""));
  Py_XDECREF(reason_text);
  Py_XDECREF(type);
  Py_XDECREF(reason);
  Py_XDECREF(trace);
}
