// SPDX-License-Identifier: Apache-2.0
// python/src/stream.c: the type Stream, and the calling thread's active device and streams.
//
// quern/_device.py keeps what `with` replaces. A stream that quern made keeps the arguments of
// its calls: their memory is borrowed until the stream has passed the call, and a Python program
// may drop its arrays at once. They go when the stream is found idle, and at MAX_HELD calls it is
// waited for. A wrapped stream keeps nothing: the framework whose stream it is orders the end of
// its memory by it. Read next: call.c.
#include "args.h"
#include "quern/device.h"

// Calls whose arguments a stream keeps at most.
#define MAX_HELD 1024u

// Arguments of one call.
struct qn__py_held_call {
  qn__py_held_call_t* next;
  size_t count;
  PyObject** objects;  // those of tensors are retained; others are NULL
  qn__py_arg_t args[];
};

struct qn__py_stream {
  PyObject_HEAD;
  qn_stream_t* stream;
  qn_device_t device;
  PyObject* native;  // what a wrapped stream was made of, retained: its end would end the stream
  bool is_default, is_wrapped;
  qn__py_held_call_t* held;
  size_t held_count;
  qn__py_stream_t* next;  // in qn__py_state.streams
};

// ------------------------------------------------------------------------------------ arguments

static void release_held(qn__py_stream_t* self) {
  // The list is taken first: the end of an object may run Python code that calls on the stream.
  qn__py_held_call_t* held = self->held;
  self->held = NULL;
  self->held_count = 0;
  while (held) {
    qn__py_held_call_t* next = held->next;
    for (size_t i = 0; i < held->count; i++) {
      if (!held->objects[i]) continue;
      qn__py_arg_release(&held->args[i]);
      Py_DECREF(held->objects[i]);
    }
    PyMem_Free(held);
    held = next;
  }
}

qn__py_stream_t* qn__py_stream_active(qn_device_t device) {
  if (!qn__py_state.streams) return NULL;
  const qn_stream_t* active = qn_active_stream(device);
  qn__py_stream_t* at = active ? qn__py_state.streams : NULL;
  while (at && at->stream != active) at = at->next;
  return at;
}

static bool synchronize(qn__py_stream_t* self) {
  qn_status_t status;
  Py_INCREF((PyObject*)self);
  Py_BEGIN_ALLOW_THREADS;
  status = qn_stream_sync(self->device, self->stream);
  Py_END_ALLOW_THREADS;
  // Another thread may have called meanwhile.
  if (qn_stream_is_idle(self->stream)) release_held(self);
  Py_DECREF(self);
  return qn__py_check(status);
}

bool qn__py_stream_reserve(qn__py_stream_t* self, size_t count, qn__py_held_call_t** out_held) {
  *out_held = NULL;
  if (self->is_wrapped) return true;
  if (self->held && qn_stream_is_idle(self->stream)) release_held(self);
  if (self->held_count >= MAX_HELD && !synchronize(self)) return false;
  qn__py_held_call_t* held =
      PyMem_Malloc(sizeof *held + count * (sizeof held->args[0] + sizeof held->objects[0]));
  if (!held) {
    PyErr_NoMemory();
    return false;
  }
  *held = (qn__py_held_call_t){NULL, count, (PyObject**)(void*)(held->args + count)};
  *out_held = held;
  return true;
}

void qn__py_stream_hold(qn__py_stream_t* self, qn__py_held_call_t* held, PyObject* const* objects,
                        qn__py_arg_t* args, const qn_value_t* values) {
  if (!held) return;
  for (size_t i = 0; i < held->count; i++) {
    held->objects[i] = values[i].type == QN_VALUE_TENSOR ? objects[i] : NULL;
    if (!held->objects[i]) continue;
    Py_INCREF(objects[i]);
    held->args[i] = args[i];
    args[i].held = QN__PY_HELD_NOTHING;
  }
  held->next = self->held;
  self->held = held;
  self->held_count++;
}

// ------------------------------------------------------------------------------------ devices

static bool read_device(const char* text, qn_device_t* out) {
  return qn__py_check(qn_device_parse(text, out));
}

static PyObject* text_of(qn_device_t device) {
  return PyUnicode_FromFormat("%s:%d", qn_device_type_text(device.type), (int)device.id);
}

PyObject* qn__py_device_name(PyObject* self, PyObject* args) {
  (void)self;
  const char* text;
  qn_device_t device;
  if (!PyArg_ParseTuple(args, "s:device_name", &text) || !read_device(text, &device)) return NULL;
  return text_of(device);
}

PyObject* qn__py_active_device(PyObject* self, PyObject* unused) {
  (void)self;
  (void)unused;
  return text_of(qn_active_device());
}

static PyObject* make_stream(qn_device_t device, qn_stream_t* stream, bool is_default,
                             bool is_wrapped) {
  PyTypeObject* type = qn__py_state.stream_type;
  qn__py_stream_t* self = (qn__py_stream_t*)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!self) {
    if (!is_default) qn_stream_destroy(stream);
    return NULL;
  }
  self->stream = stream;
  self->device = device;
  self->is_default = is_default;
  self->is_wrapped = is_wrapped;
  if (!is_default) {
    self->next = qn__py_state.streams;
    qn__py_state.streams = self;
  }
  return (PyObject*)self;
}

PyObject* qn__py_active_stream(PyObject* self, PyObject* args) {
  (void)self;
  const char* text;
  qn_device_t device;
  if (!PyArg_ParseTuple(args, "s:active_stream", &text) || !read_device(text, &device)) return NULL;
  qn__py_stream_t* active = qn__py_stream_active(device);
  if (active) {
    Py_INCREF((PyObject*)active);
    return (PyObject*)active;
  }
  qn_stream_t* stream;
  if (!qn__py_check(qn_stream_default(device, &stream))) return NULL;
  return make_stream(device, stream, true, false);
}

PyObject* qn__py_set_active_device(PyObject* self, PyObject* args) {
  (void)self;
  const char* text;
  qn_device_t device;
  if (!PyArg_ParseTuple(args, "s:_set_active_device", &text) || !read_device(text, &device)) {
    return NULL;
  }
  // The engine's change of the device resets the device's stream.
  qn_stream_t* kept = qn_active_stream(device);
  if (!qn__py_check(qn_set_active_device(device)) ||
      !qn__py_check(qn_set_active_stream(device, kept))) {
    return NULL;
  }
  Py_RETURN_NONE;
}

PyObject* qn__py_set_active_stream(PyObject* self, PyObject* stream) {
  (void)self;
  if (!PyObject_TypeCheck(stream, qn__py_state.stream_type)) {
    PyErr_SetString(PyExc_TypeError, "_set_active_stream: expected a quern.Stream");
    return NULL;
  }
  const qn__py_stream_t* chosen = (const qn__py_stream_t*)stream;
  if (!qn__py_check(
          qn_set_active_stream(chosen->device, chosen->is_default ? NULL : chosen->stream))) {
    return NULL;
  }
  Py_RETURN_NONE;
}

// ------------------------------------------------------------------------------------ the type

// Calls a function of quern/_device.py; NULL: raises.
static PyObject* ask(const char* name, PyObject* first, PyObject* second) {
  PyObject* file = PyImport_ImportModule("quern._device");
  PyObject* helper = file ? PyObject_GetAttrString(file, name) : NULL;
  Py_XDECREF(file);
  PyObject* result = helper ? PyObject_CallFunctionObjArgs(helper, first, second, NULL) : NULL;
  Py_XDECREF(helper);
  return result;
}

// Makes a stream of (device, native): a new one, or a driver's own.
static PyObject* make(PyTypeObject* type, PyObject* args, PyObject* names) {
  (void)type;
  static char* keys[] = {"device", "native", NULL};
  PyObject *given_device = Py_None, *given_native = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, names, "|OO:Stream", keys, &given_device, &given_native)) {
    return NULL;
  }
  // ("cuda:0", the address or None)
  PyObject* known = ask("stream_arguments", given_device, given_native);
  const char* text;
  PyObject *address, *result = NULL;
  qn_device_t device;
  qn_stream_t* stream;
  if (!known || !PyArg_ParseTuple(known, "sO", &text, &address) || !read_device(text, &device)) {
    Py_XDECREF(known);
    return NULL;
  }
  void* native = address == Py_None ? NULL : PyLong_AsVoidPtr(address);
  if (!native && PyErr_Occurred()) {
    result = NULL;
  } else if (address == Py_None) {
    if (qn__py_check(qn_stream_create(device, &stream))) {
      result = make_stream(device, stream, false, false);
    }
  } else if (!native) {
    // 0 is the default stream of CUDA, as of all devices here.
    if (qn__py_check(qn_stream_default(device, &stream))) {
      result = make_stream(device, stream, true, true);
    }
  } else if (qn__py_check(qn_stream_wrap(device, native, &stream))) {
    result = make_stream(device, stream, false, true);
  }
  Py_DECREF(known);
  if (result && given_native != Py_None) {
    Py_INCREF(given_native);
    ((qn__py_stream_t*)result)->native = given_native;
  }
  return result;
}

static void dealloc(PyObject* object) {
  qn__py_stream_t* self = (qn__py_stream_t*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject *error_type, *error, *trace;
  PyErr_Fetch(&error_type, &error, &trace);
  if (!self->is_default) {
    qn__py_stream_t** at = &qn__py_state.streams;
    while (*at != self) at = &(*at)->next;
    *at = self->next;
    Py_BEGIN_ALLOW_THREADS;
    qn_stream_destroy(self->stream);
    Py_END_ALLOW_THREADS;
    release_held(self);
  }
  Py_XDECREF(self->native);
  PyErr_Restore(error_type, error, trace);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject* method_synchronize(PyObject* self, PyObject* unused) {
  (void)unused;
  if (!synchronize((qn__py_stream_t*)self)) return NULL;
  Py_RETURN_NONE;
}

static PyObject* method_wait(PyObject* object, PyObject* given) {
  qn__py_stream_t* self = (qn__py_stream_t*)object;
  PyObject* device = text_of(self->device);
  PyObject* other = device ? ask("as_stream", device, given) : NULL;
  Py_XDECREF(device);
  if (!other) return NULL;
  PyObject* result = NULL;
  if (!PyObject_TypeCheck(other, qn__py_state.stream_type)) {
    PyErr_SetString(PyExc_TypeError, "wait: expected a stream");
  } else {
    qn_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = qn_stream_wait(self->device, ((qn__py_stream_t*)other)->stream, self->stream);
    Py_END_ALLOW_THREADS;
    if (qn__py_check(status)) result = Py_None;
    Py_XINCREF(result);
  }
  Py_DECREF(other);
  return result;
}

static PyObject* method_enter(PyObject* self, PyObject* unused) {
  (void)unused;
  PyObject* done = ask("enter_stream", self, NULL);
  if (!done) return NULL;
  Py_DECREF(done);
  Py_INCREF(self);
  return self;
}

static PyObject* method_exit(PyObject* self, PyObject* args) {
  (void)args;
  return ask("leave", self, NULL);
}

static PyObject* compare(PyObject* self, PyObject* other, int operator) {
  if ((operator!= Py_EQ && operator!= Py_NE) ||
      !PyObject_TypeCheck(other, qn__py_state.stream_type)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const bool is_same = ((qn__py_stream_t*)self)->stream == ((qn__py_stream_t*)other)->stream;
  return PyBool_FromLong(is_same == (operator== Py_EQ));
}

static Py_hash_t hash(PyObject* self) {
  return (Py_hash_t)((uintptr_t)((qn__py_stream_t*)self)->stream >> 4);
}

static PyObject* repr(PyObject* object) {
  const qn__py_stream_t* self = (const qn__py_stream_t*)object;
  return PyUnicode_FromFormat("<quern.Stream of %s:%d%s>", qn_device_type_text(self->device.type),
                              (int)self->device.id, self->is_default ? ", the default one" : "");
}

static PyObject* get_device(PyObject* self, void* unused) {
  (void)unused;
  return text_of(((qn__py_stream_t*)self)->device);
}

static PyObject* get_native(PyObject* self, void* unused) {
  (void)unused;
  void* native = qn_stream_native(((qn__py_stream_t*)self)->stream);
  if (native) return PyLong_FromVoidPtr(native);
  Py_RETURN_NONE;
}

static PyObject* get_is_idle(PyObject* self, void* unused) {
  (void)unused;
  return PyBool_FromLong(qn_stream_is_idle(((qn__py_stream_t*)self)->stream));
}

static PyObject* get_is_default(PyObject* self, void* unused) {
  (void)unused;
  return PyBool_FromLong(((qn__py_stream_t*)self)->is_default);
}

static PyGetSetDef properties[] = {
    {"device", get_device, NULL, "Its device, such as \"cuda:0\".", NULL},
    {"native", get_native, NULL,
     "The address of the driver's own stream (CUDA: a CUstream); None if there is none.", NULL},
    {"is_idle", get_is_idle, NULL, "True when all enqueued work is done.", NULL},
    {"is_default", get_is_default, NULL, "True for the default stream of the device.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"synchronize", method_synchronize, METH_NOARGS,
     "synchronize()\n--\n\nWaits for all enqueued work. Raises the first error of that work, "
     "once."},
    {"wait", method_wait, METH_O,
     "wait(other)\n--\n\nMakes work that is enqueued from now on begin after the work enqueued on "
     "`other` so far. `other`\nis a Stream, or one of torch or CuPy."},
    {"__enter__", method_enter, METH_NOARGS,
     "__enter__()\n--\n\nMakes the stream the calling thread's current one on its device, and the "
     "device the current one."},
    {"__exit__", method_exit, METH_VARARGS,
     "__exit__(*unused)\n--\n\nMakes what was current before current again. Does not wait."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make},
    {Py_tp_dealloc, dealloc},
    {Py_tp_richcompare, compare},
    {Py_tp_hash, hash},
    {Py_tp_repr, repr},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "A queue of work of one device, which runs in order. `Stream(device=None, native=None)`: "
     "`device`\n"
     "None is the current one, `native` is the address of a driver's stream or a stream of torch "
     "or\n"
     "CuPy, which it wraps. As a context manager it is the current stream of the thread."},
    {0, NULL},
};

PyType_Spec qn__py_stream_spec = {
    .name = "quern.Stream",
    .basicsize = sizeof(qn__py_stream_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
