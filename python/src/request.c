// SPDX-License-Identifier: Apache-2.0
// python/src/request.c: the type Request: a lookup in the background, which a program awaits.
//
// No thread of quern runs Python code or needs the GIL, so the interpreter may end at any moment: a
// request that is ready makes a descriptor readable, and the event loop watches that.
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "extension.h"

// What the callback of a future has: it may outlive the Python object, and the interpreter.
typedef struct bell {
  _Atomic int reference_count;
  int fd;
} bell_t;

typedef struct request {
  PyObject_HEAD;
  qn_future_t* future;  // owned
  bell_t* bell;         // one reference
  qn__py_module_t* module;
  const qn__py_signature_t* signature;
  qn_device_t device;
} request_t;

static void drop_bell(bell_t* bell) {
  if (!bell || atomic_fetch_sub(&bell->reference_count, 1) != 1) return;
  (void)close(bell->fd);
  // Without the GIL, so not Python's allocator.
  free(bell);
}

static void ring(void* self) {
  bell_t* bell = self;
  const uint64_t one = 1;
  ssize_t written = write(bell->fd, &one, sizeof one);
  (void)written;  // the counter is far from full
  drop_bell(bell);
}

static void dealloc(PyObject* object) {
  request_t* self = (request_t*)object;
  PyTypeObject* type = Py_TYPE(object);
  if (self->future) {
    qn_future_cancel(self->future);
    qn_future_release(self->future);
  }
  drop_bell(self->bell);
  Py_XDECREF((PyObject*)self->module);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static bool start(request_t* self, qn__py_engine_t* holder, const char* target,
                  const qn__py_lookup_t* how) {
  self->bell = malloc(sizeof *self->bell);
  if (!self->bell) {
    PyErr_NoMemory();
    return false;
  }
  *self->bell = (bell_t){1, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (self->bell->fd < 0) {
    PyErr_SetFromErrno(PyExc_OSError);
    return false;
  }
  qn_target_t* parsed;
  if (!qn__py_check(qn_target_parse(target, &parsed))) return false;
  qn_engine_t* engine = qn__py_engine_begin(holder);
  bool is_started = false;
  if (engine) {
    qn_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = qn_engine_request(engine, self->module->module, parsed, self->signature->name,
                               &how->options, &self->future);
    Py_END_ALLOW_THREADS;
    is_started = qn__py_check(status);
    qn__py_engine_end(holder);
  }
  qn_target_release(parsed);
  if (!is_started) return false;
  atomic_fetch_add(&self->bell->reference_count, 1);
  qn_future_notify(self->future, ring, self->bell);
  return true;
}

PyObject* qn__py_engine_request(PyObject* self, PyObject* args) {
  qn__py_lookup_args_t given;
  if (!qn__py_lookup_args(args, &given)) return NULL;
  PyTypeObject* type = qn__py_state.request_type;
  request_t* request = (request_t*)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!request) return NULL;
  Py_INCREF((PyObject*)given.module);
  request->module = given.module;
  request->signature = given.signature;
  request->device = given.device;
  if (start(request, (qn__py_engine_t*)self, given.target, &given.how)) return (PyObject*)request;
  Py_DECREF(request);
  return NULL;
}

static PyObject* result(PyObject* object, PyObject* args) {
  request_t* self = (request_t*)object;
  double timeout = -1;
  if (!PyArg_ParseTuple(args, "|d:result", &timeout)) return NULL;
  const int64_t limit_ns = timeout < 0 || timeout > 9e9 ? -1 : (int64_t)(timeout * 1e9);
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* code;
  if (!qn__py_wait(self->future, limit_ns, &info, &code)) return NULL;
  return qn__py_function_new(self->module, self->signature, code, self->device, &info);
}

static PyObject* cancel(PyObject* object, PyObject* unused) {
  (void)unused;
  qn_future_cancel(((request_t*)object)->future);
  Py_RETURN_NONE;
}

static PyObject* fileno_of(PyObject* object, PyObject* unused) {
  (void)unused;
  return PyLong_FromLong(((request_t*)object)->bell->fd);
}

static PyObject* get_is_ready(PyObject* object, void* unused) {
  (void)unused;
  return PyBool_FromLong(qn_future_is_ready(((request_t*)object)->future));
}

static PyObject* await(PyObject* object) {
  return PyObject_CallMethod(qn__py_state.helpers, "await_request", "O", object);
}

static PyGetSetDef properties[] = {
    {"is_ready", get_is_ready, NULL, "True when `result` will not wait.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"result", result, METH_VARARGS,
     "result(timeout=-1)\n--\n\nWaits for the function at most `timeout` seconds; negative: for "
     "ever."},
    {"cancel", cancel, METH_NOARGS, "cancel()\n--\n\nCancels the lookup."},
    {"fileno", fileno_of, METH_NOARGS,
     "fileno()\n--\n\nA descriptor that becomes readable when the request is ready."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_am_await, await},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A lookup in the background: await it, or ask for its result."},
    {0, NULL},
};

PyType_Spec qn__py_request_spec = {
    .name = "quern.Request",
    .basicsize = sizeof(request_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
