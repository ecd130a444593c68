// SPDX-License-Identifier: Apache-2.0
// python/src/reports.c: what an engine says about itself, as Python values.
#include "extension.h"

#include "quern/observe.h"

// Sets `dict[name]` to `value`, which is consumed. After an error the dict is dropped: later
// callbacks do nothing.
static void put(PyObject** dict, const char* name, PyObject* value) {
  if (*dict && (!value || PyDict_SetItemString(*dict, name, value) != 0)) Py_CLEAR(*dict);
  Py_XDECREF(value);
}

static void on_counter(void* self, const char* name, uint64_t value, const char* doc) {
  (void)doc;
  PyObject** dict = self;
  if (*dict) put(dict, name, PyLong_FromUnsignedLongLong(value));
}

static void on_stage(void* self, const qn_stage_info_t* stage) {
  PyObject** dict = self;
  if (!*dict) return;
  put(dict, stage->name,
      Py_BuildValue("{s:K,s:d,s:d,s:d,s:d,s:d}", "count", (unsigned long long)stage->count, "total",
                    (double)stage->total_ns * 1e-9, "max", (double)stage->max_ns * 1e-9, "p50",
                    (double)stage->p50_ns * 1e-9, "p90", (double)stage->p90_ns * 1e-9, "p99",
                    (double)stage->p99_ns * 1e-9));
}

static void on_option(void* self, const char* name, const char* environment, const char* value,
                      const char* origin, const char* doc) {
  (void)environment;
  (void)doc;
  PyObject** dict = self;
  if (*dict) put(dict, name, Py_BuildValue("(ss)", value, origin));
}

// The callbacks need the GIL, and the reports take microseconds: they keep it.

PyObject* qn__py_engine_stats(PyObject* self, PyObject* unused) {
  (void)unused;
  qn_engine_t* engine = qn__py_engine_begin((qn__py_engine_t*)self);
  if (!engine) return NULL;
  PyObject* dict = PyDict_New();
  qn_engine_counters(engine, on_counter, &dict);
  qn__py_engine_end((qn__py_engine_t*)self);
  return dict;
}

PyObject* qn__py_engine_stages(PyObject* self, PyObject* unused) {
  (void)unused;
  qn_engine_t* engine = qn__py_engine_begin((qn__py_engine_t*)self);
  if (!engine) return NULL;
  PyObject* dict = PyDict_New();
  qn_engine_stages(engine, on_stage, &dict);
  qn__py_engine_end((qn__py_engine_t*)self);
  return dict;
}

PyObject* qn__py_engine_config(PyObject* self, PyObject* unused) {
  (void)unused;
  qn_engine_t* engine = qn__py_engine_begin((qn__py_engine_t*)self);
  if (!engine) return NULL;
  PyObject* dict = PyDict_New();
  qn_engine_config(engine, on_option, &dict);
  qn__py_engine_end((qn__py_engine_t*)self);
  return dict;
}

static qn_status_t write_part(void* self, const void* data, size_t size) {
  PyObject** parts = self;
  PyObject* part = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, "replace");
  bool is_kept = part && PyList_Append(*parts, part) == 0;
  Py_XDECREF(part);
  return is_kept ? QN_OK : qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the metrics");
}

PyObject* qn__py_engine_metrics(PyObject* self, PyObject* unused) {
  (void)unused;
  PyObject* parts = PyList_New(0);
  qn_engine_t* engine = parts ? qn__py_engine_begin((qn__py_engine_t*)self) : NULL;
  PyObject* text = NULL;
  if (engine) {
    qn_status_t status = qn_engine_metrics(engine, (qn_sink_t){&parts, write_part});
    qn__py_engine_end((qn__py_engine_t*)self);
    PyErr_Clear();  // of a part: the status says the same
    PyObject* empty = qn__py_check(status) ? PyUnicode_FromString("") : NULL;
    if (empty) text = PyUnicode_Join(empty, parts);
    Py_XDECREF(empty);
  }
  Py_XDECREF(parts);
  return text;
}

PyObject* qn__py_engine_why(PyObject* self, PyObject* args) {
  qn__py_module_t* module;
  const char* target;
  PyObject* options;
  qn__py_lookup_t how;
  qn_target_t* parsed;
  if (!PyArg_ParseTuple(args, "O!sO", qn__py_state.module_type, &module, &target, &options) ||
      !qn__py_lookup_read(options, &how) || !qn__py_check(qn_target_parse(target, &parsed))) {
    return NULL;
  }
  PyObject* result = NULL;
  qn_engine_t* engine = qn__py_engine_begin((qn__py_engine_t*)self);
  if (engine) {
    qn_explanation_t* found;
    qn_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = qn_engine_explain(engine, module->module, parsed, &how.options, &found);
    Py_END_ALLOW_THREADS;
    qn__py_engine_end((qn__py_engine_t*)self);
    if (qn__py_check(status)) {
      result = Py_BuildValue("(sssssss)", found->text, found->key.hex, found->found_in,
                             found->nearest_key.hex, found->section, found->wanted, found->cached);
      qn_explanation_free(found);
    }
  }
  qn_target_release(parsed);
  return result;
}
