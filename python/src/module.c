// SPDX-License-Identifier: Apache-2.0
// python/src/module.c: the beginning of the extension `quern._quern`: its types and its state.
//
// The state belongs to the process: only the main interpreter may import the extension.
#include "extension.h"

qn__py_state_t qn__py_state;

PyTypeObject* qn__py_add_type(PyObject* extension, PyType_Spec* spec) {
  PyTypeObject* type = (PyTypeObject*)PyType_FromModuleAndSpec(extension, spec, NULL);
  if (!type || PyModule_AddType(extension, type) != 0) return NULL;
  return type;  // retained by the state, for the life of the process
}

static PyObject* version(PyObject* self, PyObject* unused) {
  (void)self;
  (void)unused;
  return Py_BuildValue("(ss)", qn_version(), qn_build_info());
}

static PyObject* status_codes(PyObject* self, PyObject* unused) {
  (void)self;
  (void)unused;
  static const struct {
    const char* name;
    int code;
  } codes[] = {
#define QN_STATUS_CODE(name, value, text, doc) {#name, value},
#include "quern/status.inc"
#undef QN_STATUS_CODE
  };
  PyObject* dict = PyDict_New();
  for (size_t i = 0; dict && i < sizeof codes / sizeof codes[0]; i++) {
    PyObject* text = PyUnicode_FromString(qn_status_code_text((qn_status_code_t)codes[i].code));
    if (!text || PyDict_SetItemString(dict, codes[i].name, text) != 0) Py_CLEAR(dict);
    Py_XDECREF(text);
  }
  return dict;
}

static PyObject* load_plugin(PyObject* self, PyObject* args) {
  (void)self;
  const char* path;
  if (!PyArg_ParseTuple(args, "s:load_plugin", &path)) return NULL;
  if (!qn__py_check(qn_plugin_load(path))) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"version", version, METH_NOARGS,
     "version()\n--\n\nThe version, and one line about the build."},
    {"status_codes", status_codes, METH_NOARGS,
     "status_codes()\n--\n\nThe texts of the status codes, by name."},
    {"load_plugin", load_plugin, METH_VARARGS,
     "load_plugin(path)\n--\n\nRegisters the devices, generators and kinds of targets of a "
     "plugin."},
    {"_cache_entries", qn__py_cache_entries, METH_VARARGS, NULL},
    {"_write_bundle", qn__py_write_bundle, METH_VARARGS, NULL},
    {"_device_name", qn__py_device_name, METH_VARARGS, NULL},
    {"_active_device", qn__py_active_device, METH_NOARGS, NULL},
    {"_active_stream", qn__py_active_stream, METH_VARARGS, NULL},
    {"_set_active_device", qn__py_set_active_device, METH_VARARGS, NULL},
    {"_set_active_stream", qn__py_set_active_stream, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject* extension) {
  qn__py_state_t* state = &qn__py_state;
  if (state->module_type) {
    PyErr_SetString(PyExc_ImportError,
                    "quern._quern is loaded in this process: it belongs to one interpreter");
    return -1;
  }
  state->helpers = PyImport_ImportModule("quern._helpers");
  state->name_exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  state->name_dlpack = PyUnicode_InternFromString("__dlpack__");
  state->name_dlpack_device = PyUnicode_InternFromString("__dlpack_device__");
  if (!state->helpers || !state->name_exchange || !state->name_dlpack ||
      !state->name_dlpack_device) {
    return -1;
  }
  state->engine_type = qn__py_add_type(extension, &qn__py_engine_spec);
  state->function_type = qn__py_add_type(extension, &qn__py_function_spec);
  state->request_type = qn__py_add_type(extension, &qn__py_request_spec);
  state->stream_type = qn__py_add_type(extension, &qn__py_stream_spec);
  if (!state->engine_type || !state->function_type || !state->request_type || !state->stream_type) {
    return -1;
  }
  state->module_type = qn__py_add_type(extension, &qn__py_module_spec);
  return state->module_type ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#if defined(Py_mod_multiple_interpreters) && PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "quern._quern",
    .m_doc = "The types of quern that are written in C.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__quern(void);
PyMODINIT_FUNC PyInit__quern(void) {
  return PyModuleDef_Init(&definition);
}
