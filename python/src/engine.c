// SPDX-License-Identifier: Apache-2.0
// python/src/engine.c: the type Engine: its beginning and its end.
//
// quern/__init__.py derives quern.Engine from it, which turns keyword arguments into settings. An
// engine that is closed while other threads use it ends with the last use. Read next: lookup.c,
// reports.c, warm.c.
#include "extension.h"

// ------------------------------------------------------------------------------------ uses

qn_engine_t* qn__py_engine_begin(qn__py_engine_t* self) {
  if (self->is_closed) {
    (void)qn__py_raise(qn_status_make(QN_STATUS_FAILED_PRECONDITION, "the engine is closed"));
    return NULL;
  }
  self->user_count++;
  Py_INCREF((PyObject*)self);
  return self->engine;
}

static void destroy_unused(qn__py_engine_t* self) {
  if (!self->is_closed || self->user_count != 0 || !self->engine) return;
  qn_engine_t* engine = self->engine;
  self->engine = NULL;
  Py_BEGIN_ALLOW_THREADS;
  qn_engine_destroy(engine);
  Py_END_ALLOW_THREADS;
  self->has_ended = true;
}

void qn__py_engine_end(qn__py_engine_t* self) {
  self->user_count--;
  // A pending exception survives: nothing here runs Python code but the end of `self`.
  destroy_unused(self);
  Py_DECREF(self);
}

qn__py_engine_t* qn__py_engine_of(const qn__py_module_t* module) {
  if (module->engine && module->engine != Py_None) {
    Py_INCREF(module->engine);
    return (qn__py_engine_t*)module->engine;
  }
  PyObject* engine = PyObject_CallMethod(qn__py_state.helpers, "default_engine", NULL);
  if (engine && !PyObject_TypeCheck(engine, qn__py_state.engine_type)) {
    PyErr_SetString(PyExc_TypeError, "quern.default_engine: expected a quern.Engine");
    Py_CLEAR(engine);
  }
  return (qn__py_engine_t*)engine;
}

// ------------------------------------------------------------------------------------ the type

// Makes an engine of (cache_dir, ignores_environment, {name: value}).
static PyObject* make(PyTypeObject* type, PyObject* args, PyObject* names) {
  static char* keys[] = {"cache_dir", "ignores_environment", "settings", NULL};
  const char* cache_dir;
  int ignores_environment;
  PyObject* by_name;
  if (!PyArg_ParseTupleAndKeywords(args, names, "zpO!", keys, &cache_dir, &ignores_environment,
                                   &PyDict_Type, &by_name)) {
    return NULL;
  }
  const size_t count = (size_t)PyDict_Size(by_name);
  qn_setting_t* settings = PyMem_Calloc(count + 1, sizeof *settings);
  if (!settings) return PyErr_NoMemory();
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (size_t i = 0; PyDict_Next(by_name, &position, &key, &value); i++) {
    settings[i].name = PyUnicode_AsUTF8AndSize(key, NULL);
    settings[i].value = settings[i].name ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    if (!settings[i].value) {
      PyMem_Free(settings);
      return NULL;
    }
  }
  const qn_engine_options_t options = {.struct_size = sizeof options,
                                       .cache_dir = cache_dir,
                                       .ignores_environment = ignores_environment != 0,
                                       .settings = settings,
                                       .setting_count = count};
  qn_engine_t* engine;
  qn_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = qn_engine_create(&options, &engine);
  Py_END_ALLOW_THREADS;
  PyMem_Free(settings);
  if (!qn__py_check(status)) return NULL;
  qn__py_engine_t* self = (qn__py_engine_t*)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self) {
    self->engine = engine;
  } else {
    qn_engine_destroy(engine);
  }
  return (PyObject*)self;
}

static PyObject* close_engine(PyObject* object, PyObject* unused) {
  (void)unused;
  qn__py_engine_t* self = (qn__py_engine_t*)object;
  self->is_closed = true;
  destroy_unused(self);
  Py_RETURN_NONE;
}

static void dealloc(PyObject* object) {
  qn__py_engine_t* self = (qn__py_engine_t*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject *error_type, *error, *trace;
  PyErr_Fetch(&error_type, &error, &trace);
  self->is_closed = true;
  destroy_unused(self);
  PyErr_Restore(error_type, error, trace);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject* flush(PyObject* self, PyObject* args) {
  double timeout = -1;
  if (!PyArg_ParseTuple(args, "|d:flush", &timeout)) return NULL;
  qn_engine_t* engine = qn__py_engine_begin((qn__py_engine_t*)self);
  if (!engine) return NULL;
  bool is_done;
  Py_BEGIN_ALLOW_THREADS;
  is_done = qn_engine_flush(
      engine, timeout < 0 || timeout > 9e9 ? QN_TIMEOUT_INFINITE : (int64_t)(timeout * 1e9));
  Py_END_ALLOW_THREADS;
  qn__py_engine_end((qn__py_engine_t*)self);
  return PyBool_FromLong(is_done);
}

static PyObject* get_is_closed(PyObject* self, void* unused) {
  (void)unused;
  return PyBool_FromLong(((qn__py_engine_t*)self)->is_closed);
}

static PyObject* get_has_ended(PyObject* self, void* unused) {
  (void)unused;
  return PyBool_FromLong(((qn__py_engine_t*)self)->has_ended);
}

static PyGetSetDef properties[] = {
    {"_has_ended", get_has_ended, NULL, "True after `close` and the last use.", NULL},
    {"is_closed", get_is_closed, NULL, "True after `close`.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"close", close_engine, METH_NOARGS,
     "close()\n--\n\nEnds the engine. Functions stay valid. Waits a bounded time for running "
     "compiles."},
    {"flush", flush, METH_VARARGS,
     "flush(timeout=-1)\n--\n\nWaits until compiled entries are written. False: `timeout` seconds "
     "passed first."},
    {"stats", qn__py_engine_stats, METH_NOARGS, "stats()\n--\n\nThe counters, by name."},
    {"stages", qn__py_engine_stages, METH_NOARGS,
     "stages()\n--\n\nHow long the stages of lookups took, by name."},
    {"metrics", qn__py_engine_metrics, METH_NOARGS,
     "metrics()\n--\n\nAll metrics in the text format of Prometheus."},
    {"config", qn__py_engine_config, METH_NOARGS,
     "config()\n--\n\nThe options in force: {name: (value, origin)}."},
    {"_lookup", qn__py_engine_lookup, METH_VARARGS, NULL},
    {"_request", qn__py_engine_request, METH_VARARGS, NULL},
    {"_why", qn__py_engine_why, METH_VARARGS, NULL},
    {"_warm", qn__py_engine_warm, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make},
    {Py_tp_dealloc, dealloc},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Turns modules into loaded code, by way of the cache."},
    {0, NULL},
};

PyType_Spec qn__py_engine_spec = {
    .name = "quern._quern.Engine",
    .basicsize = sizeof(qn__py_engine_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
