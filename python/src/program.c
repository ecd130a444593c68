// SPDX-License-Identifier: Apache-2.0
// python/src/program.c: the type Module: a checked program, and its functions by name.
//
// quern/__init__.py derives quern.Module from it. Not here: lookups (lookup.c) and calls (call.c).
#include <string.h>

#include "extension.h"

// ------------------------------------------------------------------------------------ making

typedef struct diagnostics {
  PyObject* list;  // of tuples; NULL: an exception is pending
} diagnostics_t;

static void on_diagnostic(void* self, const qn_diagnostic_t* d) {
  diagnostics_t* diagnostics = self;
  if (!diagnostics->list) return;
  static const char* const severities[] = {"", "error", "warning", "note"};
  PyObject* item = Py_BuildValue("(sssssIII)", severities[d->severity], d->code, d->message,
                                 d->help, d->source_name, d->line, d->column, d->end_column);
  if (!item || PyList_Append(diagnostics->list, item) != 0) Py_CLEAR(diagnostics->list);
  Py_XDECREF(item);
}

static bool describe(qn_module_t* module, size_t index, qn__py_signature_t* out) {
  out->name = qn_module_function_name(module, index);
  out->text = qn_module_function_signature(module, index);
  out->index = index;
  out->param_count = qn_module_function_param_count(module, index);
  out->params = PyMem_Calloc(out->param_count + 1, sizeof *out->params);
  if (!out->params) {
    PyErr_NoMemory();
    return false;
  }
  for (size_t i = 0; i < out->param_count; i++) {
    qn_param_info_t info = {.struct_size = sizeof info};
    if (!qn__py_check(qn_module_param_info(module, index, i, &info))) return false;
    out->params[i] = (qn__py_param_t){info.name,  PyUnicode_InternFromString(info.name),
                                      info.dtype, info.access,
                                      info.rank,  info.is_buffer};
    if (!out->params[i].key) return false;
  }
  return true;
}

// Makes the object of a module, which is consumed.
static PyObject* wrap(PyTypeObject* type, qn_module_t* module, PyObject* engine) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  qn__py_module_t* self = (qn__py_module_t*)allocate(type, 0);
  if (!self) {
    qn_module_release(module);
    return NULL;
  }
  self->module = module;
  Py_INCREF(engine);
  self->engine = engine;
  self->handles = PyDict_New();
  const size_t count = qn_module_function_count(module);
  self->functions = PyMem_Calloc(count + 1, sizeof *self->functions);
  if (!self->functions) PyErr_NoMemory();
  bool is_made = self->handles && self->functions;
  for (; is_made && self->function_count < count; self->function_count++) {
    is_made = describe(module, self->function_count, &self->functions[self->function_count]);
  }
  if (is_made) return (PyObject*)self;
  Py_DECREF(self);
  return NULL;
}

static bool is_engine(PyObject* engine) {
  if (engine == Py_None || PyObject_TypeCheck(engine, qn__py_state.engine_type)) return true;
  PyErr_SetString(PyExc_TypeError, "engine: expected a quern.Engine or None");
  return false;
}

static PyObject* make(PyTypeObject* type, PyObject* args, PyObject* names) {
  static char* keys[] = {"text", "source", "set", "engine", NULL};
  const char *text, *source = NULL, *set = NULL;
  Py_ssize_t size;
  PyObject* engine = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, names, "s#|zzO", keys, &text, &size, &source, &set,
                                   &engine) ||
      !is_engine(engine)) {
    return NULL;
  }
  diagnostics_t diagnostics = {PyList_New(0)};
  if (!diagnostics.list) return NULL;
  const qn_parse_options_t options = {.struct_size = sizeof options,
                                      .source_name = source,
                                      .on_diagnostic = on_diagnostic,
                                      .on_diagnostic_self = &diagnostics,
                                      .set = set};
  qn_module_t* module;
  qn_status_t status = qn_module_parse(text, (size_t)size, &options, &module);
  PyObject* result = NULL;
  if (!diagnostics.list) {
    qn_status_free(status);
    qn_module_release(module);
  } else if (!qn_ok(status)) {
    PyObject* found = Py_BuildValue("(Os#)", diagnostics.list, text, size);
    if (found) {
      (void)qn__py_raise_with(status, found);
    } else {
      qn_status_free(status);
    }
    Py_XDECREF(found);
  } else {
    result = wrap(type, module, engine);
  }
  Py_XDECREF(diagnostics.list);
  return result;
}

static PyObject* decode(PyObject* type, PyObject* args) {
  Py_buffer bytes;
  PyObject* engine = Py_None;
  if (!PyArg_ParseTuple(args, "y*|O:decode", &bytes, &engine)) return NULL;
  PyObject* result = NULL;
  qn_module_t* module;
  if (is_engine(engine) &&
      qn__py_check(qn_module_decode(bytes.buf, (size_t)bytes.len, NULL, &module))) {
    result = wrap((PyTypeObject*)type, module, engine);
  }
  PyBuffer_Release(&bytes);
  return result;
}

static PyObject* specialize(PyObject* object, PyObject* args, PyObject* names) {
  qn__py_module_t* self = (qn__py_module_t*)object;
  if (PyTuple_Size(args) > 1) {
    PyErr_SetString(PyExc_TypeError, "specialize: expected one dict, or names and values");
    return NULL;
  }
  PyObject* values_by_name = PyDict_New();
  if (!values_by_name) return NULL;
  PyObject* result = NULL;
  const char** keys = NULL;
  int64_t* values = NULL;
  if ((PyTuple_Size(args) == 1 && PyDict_Update(values_by_name, PyTuple_GetItem(args, 0)) != 0) ||
      (names && PyDict_Update(values_by_name, names) != 0)) {
    goto cleanup;
  }
  const size_t count = (size_t)PyDict_Size(values_by_name);
  keys = PyMem_Calloc(count + 1, sizeof *keys);
  values = PyMem_Calloc(count + 1, sizeof *values);
  if (!keys || !values) {
    PyErr_NoMemory();
    goto cleanup;
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (size_t i = 0; PyDict_Next(values_by_name, &position, &key, &value); i++) {
    keys[i] = PyUnicode_AsUTF8AndSize(key, NULL);
    if (!keys[i]) goto cleanup;
    values[i] = PyLong_AsLongLong(value);
    if (values[i] == -1 && PyErr_Occurred()) goto cleanup;
  }
  qn_module_t* module;
  if (qn__py_check(qn_module_specialize(self->module, keys, values, count, &module))) {
    result = wrap(Py_TYPE(object), module, self->engine);
  }
cleanup:
  PyMem_Free((void*)keys);
  PyMem_Free(values);
  Py_DECREF(values_by_name);
  return result;
}

// ------------------------------------------------------------------------------------ its end

static int clear(PyObject* object) {
  qn__py_module_t* self = (qn__py_module_t*)object;
  Py_CLEAR(self->handles);
  Py_CLEAR(self->engine);
  return 0;
}

static int traverse(PyObject* object, visitproc visit, void* arg) {
  qn__py_module_t* self = (qn__py_module_t*)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->handles);
  Py_VISIT(self->engine);
  return 0;
}

static void dealloc(PyObject* object) {
  qn__py_module_t* self = (qn__py_module_t*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)clear(object);
  for (size_t i = 0; self->functions && i < qn_module_function_count(self->module); i++) {
    qn__py_signature_t* function = &self->functions[i];
    for (size_t k = 0; function->params && k < function->param_count; k++) {
      Py_XDECREF(function->params[k].key);
    }
    PyMem_Free(function->params);
  }
  PyMem_Free(self->functions);
  qn_module_release(self->module);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

// ------------------------------------------------------------------------------------ functions

static const qn__py_signature_t* find(const qn__py_module_t* self, PyObject* name) {
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  for (size_t i = 0; text && i < self->function_count; i++) {
    if (strcmp(self->functions[i].name, text) == 0) return &self->functions[i];
  }
  return NULL;
}

const qn__py_signature_t* qn__py_find_signature(qn__py_module_t* self, PyObject* name) {
  const qn__py_signature_t* found = find(self, name);
  if (found || PyErr_Occurred()) return found;
  PyObject* known = PyObject_CallMethod((PyObject*)self, "_names", NULL);
  PyObject* text =
      known ? PyUnicode_FromFormat("no function %R in the module, which has %S", name, known)
            : NULL;
  const char* message = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  if (message) (void)qn__py_raise(qn_status_make(QN_STATUS_NOT_FOUND, "%s", message));
  Py_XDECREF(text);
  Py_XDECREF(known);
  return NULL;
}

static PyObject* get_item(PyObject* object, PyObject* name) {
  qn__py_module_t* self = (qn__py_module_t*)object;
  PyObject* handle = PyDict_GetItemWithError(self->handles, name);
  if (handle) {
    Py_INCREF(handle);
    return handle;
  }
  if (PyErr_Occurred()) return NULL;
  const qn__py_signature_t* signature = qn__py_find_signature(self, name);
  if (!signature) return NULL;
  handle = qn__py_function_new(self, signature, NULL, (qn_device_t){0, 0}, NULL);
  if (handle && PyDict_SetItem(self->handles, name, handle) != 0) Py_CLEAR(handle);
  return handle;
}

static Py_ssize_t length(PyObject* self) {
  return (Py_ssize_t)((qn__py_module_t*)self)->function_count;
}

static int contains(PyObject* self, PyObject* name) {
  const bool is_there = find((qn__py_module_t*)self, name) != NULL;
  return PyErr_Occurred() ? -1 : is_there;
}

static PyObject* list_names(PyObject* object, PyObject* unused) {
  (void)unused;
  qn__py_module_t* self = (qn__py_module_t*)object;
  PyObject* names = PyTuple_New((Py_ssize_t)self->function_count);
  for (size_t i = 0; names && i < self->function_count; i++) {
    PyObject* name = PyUnicode_FromString(self->functions[i].name);
    if (!name || PyTuple_SetItem(names, (Py_ssize_t)i, name) != 0) Py_CLEAR(names);
  }
  return names;
}

static PyObject* iterate(PyObject* self) {
  PyObject* names = list_names(self, NULL);
  PyObject* iterator = names ? PyObject_GetIter(names) : NULL;
  Py_XDECREF(names);
  return iterator;
}

// ------------------------------------------------------------------------------------ properties

static PyObject* get_text(PyObject* self, void* unused) {
  (void)unused;
  char* text;
  size_t size;
  if (!qn__py_check(qn_module_print(((qn__py_module_t*)self)->module, &text, &size))) return NULL;
  PyObject* result = PyUnicode_FromStringAndSize(text, (Py_ssize_t)size);
  qn_text_free(text);
  return result;
}

static PyObject* get_bytes(PyObject* self, void* unused) {
  (void)unused;
  size_t size;
  const char* bytes = qn_module_bytes(((qn__py_module_t*)self)->module, &size);
  return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}

static PyObject* get_digest(PyObject* self, void* unused) {
  (void)unused;
  static const char digits[] = "0123456789abcdef";
  const uint8_t* digest = qn_module_digest(((qn__py_module_t*)self)->module);
  char text[32];
  for (size_t i = 0; i < 16; i++) {
    text[2 * i] = digits[digest[i] >> 4];
    text[2 * i + 1] = digits[digest[i] & 15];
  }
  return PyUnicode_FromStringAndSize(text, sizeof text);
}

static PyObject* get_engine(PyObject* self, void* unused) {
  (void)unused;
  PyObject* engine = ((qn__py_module_t*)self)->engine;
  Py_INCREF(engine);
  return engine;
}

static PyGetSetDef properties[] = {
    {"text", get_text, NULL, "The canonical text.", NULL},
    {"bytes", get_bytes, NULL, "The canonical bytes, which `Module.decode` reads.", NULL},
    {"digest", get_digest, NULL, "The digest of the canonical bytes, 32 hexadecimal digits.", NULL},
    {"engine", get_engine, NULL, "The engine of its lookups; None: the default one.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS | METH_CLASS,
     "decode(bytes, engine=None)\n--\n\nReads a module from its canonical bytes."},
    {"specialize", (PyCFunction)(void (*)(void))specialize, METH_VARARGS | METH_KEYWORDS,
     "specialize(values={}, **names)\n--\n\nMakes a module in which numbers stand for symbols and "
     "integer scalars."},
    {"_names", list_names, METH_NOARGS, "The names of its functions."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_mp_subscript, get_item},
    {Py_mp_length, length},
    {Py_sq_contains, contains},
    {Py_tp_iter, iterate},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A checked program."},
    {0, NULL},
};

PyType_Spec qn__py_module_spec = {
    .name = "quern._quern.Module",
    .basicsize = sizeof(qn__py_module_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
