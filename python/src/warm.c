// SPDX-License-Identifier: Apache-2.0
// python/src/warm.c: Engine.warm: compiles keys ahead, in worker processes.
//
// quern/__init__.py brings items into one form: ("key", module, target, options) or ("list", text,
// source name, folder).
#include "quern/warm.h"

#include <string.h>

#include "extension.h"

typedef struct warming {
  PyObject* on_progress;  // callable or None
  PyObject* items;        // list of tuples, one per key
  PyObject* problems;     // list of tuples, one per line that was left out
  PyThreadState* thread;  // of the caller, which holds the GIL in callbacks only
  bool has_failed;        // an exception is pending
} warming_t;

static void on_problem(void* self, const qn_warm_problem_t* problem) {
  warming_t* warming = self;
  PyObject* item = Py_BuildValue("(sIs)", problem->source_name, problem->line, problem->message);
  if (!item || PyList_Append(warming->problems, item) != 0) warming->has_failed = true;
  Py_XDECREF(item);
}

// With the GIL. Returns false to cancel.
static bool report(warming_t* warming, const qn_warm_result_t* so_far, const qn_warm_item_t* done) {
  PyObject* item = Py_None;
  Py_INCREF(item);
  if (done) {
    Py_DECREF(item);
    item = PyObject_CallMethod(qn__py_state.helpers, "make_warm_item", "sssdIs", done->name,
                               done->key.hex, qn_warm_outcome_text(done->outcome),
                               (double)done->compile_ns * 1e-9, done->attempt_count,
                               done->error ? done->error : "");
    if (!item || PyList_Append(warming->items, item) != 0) {
      Py_XDECREF(item);
      return false;
    }
  }
  PyObject* answer = NULL;
  if (warming->on_progress != Py_None) {
    answer = PyObject_CallFunction(warming->on_progress, "nnO", (Py_ssize_t)so_far->done,
                                   (Py_ssize_t)so_far->total, item);
  } else if (PyErr_CheckSignals() == 0) {
    answer = Py_None;
    Py_INCREF(answer);
  }
  Py_DECREF(item);
  if (!answer) return false;
  // None goes on, as everything but False does.
  bool goes_on = answer != Py_False;
  Py_DECREF(answer);
  return goes_on;
}

static bool on_progress(void* self, const qn_warm_result_t* so_far, const qn_warm_item_t* item) {
  warming_t* warming = self;
  if (warming->has_failed) return false;
  PyEval_RestoreThread(warming->thread);
  bool goes_on = report(warming, so_far, item);
  warming->has_failed = PyErr_Occurred() != NULL;
  warming->thread = PyEval_SaveThread();
  return goes_on;
}

static bool add_key(qn_warm_list_t* list, PyObject* item) {
  qn__py_module_t* module;
  const char *kind, *target;
  PyObject* options;
  qn__py_lookup_t how;
  qn_target_t* parsed;
  if (!PyArg_ParseTuple(item, "sO!sO", &kind, qn__py_state.module_type, &module, &target,
                        &options) ||
      !qn__py_lookup_read(options, &how) || !qn__py_check(qn_target_parse(target, &parsed))) {
    return false;
  }
  qn_status_t status = qn_warm_list_add(list, module->module, parsed, &how.options);
  qn_target_release(parsed);
  return qn__py_check(status);
}

static bool add_list(qn_warm_list_t* list, PyObject* item, warming_t* warming) {
  const char *kind, *text, *source, *folder;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(item, "ss#sz", &kind, &text, &size, &source, &folder)) return false;
  const qn_warm_read_options_t options = {.struct_size = sizeof options,
                                          .source_name = source,
                                          .directory = folder,
                                          .on_problem = on_problem,
                                          .on_problem_self = warming};
  return qn__py_check(qn_warm_list_read(list, text, (size_t)size, &options, NULL)) &&
         !warming->has_failed;
}

static bool add_all(qn_warm_list_t* list, PyObject* keys, warming_t* warming) {
  for (Py_ssize_t i = 0; i < PyList_Size(keys); i++) {
    PyObject* item = PyList_GetItem(keys, i);
    PyObject* kind = PyTuple_GetItem(item, 0);
    if (!kind) return false;
    bool is_added = PyUnicode_CompareWithASCIIString(kind, "key") == 0
                        ? add_key(list, item)
                        : add_list(list, item, warming);
    if (!is_added) return false;
  }
  return true;
}

static PyObject* make_result(const qn_warm_result_t* result, warming_t* warming) {
  PyObject* counts = PyDict_New();
  for (size_t i = 1; counts && i < QN_WARM_OUTCOME_COUNT; i++) {
    PyObject* count = PyLong_FromSize_t(result->counts[i]);
    const char* name = qn_warm_outcome_text((qn_warm_outcome_t)i);
    if (!count || PyDict_SetItemString(counts, name, count) != 0) Py_CLEAR(counts);
    Py_XDECREF(count);
  }
  if (!counts) return NULL;
  return PyObject_CallMethod(
      qn__py_state.helpers, "make_warm_result", "nnNdOOOO", (Py_ssize_t)result->total,
      (Py_ssize_t)result->done, counts, (double)result->elapsed_ns * 1e-9,
      result->is_warm ? Py_True : Py_False, result->is_cancelled ? Py_True : Py_False,
      warming->items, warming->problems);
}

PyObject* qn__py_engine_warm(PyObject* self, PyObject* args) {
  PyObject *keys, *callback;
  int jobs, is_dry_run;
  double time_limit;
  const char* command;
  if (!PyArg_ParseTuple(args, "O!Oidpz:_warm", &PyList_Type, &keys, &callback, &jobs, &time_limit,
                        &is_dry_run, &command)) {
    return NULL;
  }
  warming_t warming = {callback, PyList_New(0), PyList_New(0), NULL, false};
  qn_warm_list_t* list = NULL;
  PyObject* made = NULL;
  qn_engine_t* engine = NULL;
  if (!warming.items || !warming.problems || !qn__py_check(qn_warm_list_create(&list)) ||
      !add_all(list, keys, &warming)) {
    goto cleanup;
  }
  engine = qn__py_engine_begin((qn__py_engine_t*)self);
  if (!engine) goto cleanup;
  const qn_warm_options_t options = {.struct_size = sizeof options,
                                     .jobs = (uint32_t)jobs,
                                     .time_limit_ns = (int64_t)(time_limit * 1e9),
                                     .command = command,
                                     .is_dry_run = is_dry_run != 0,
                                     .on_progress = on_progress,
                                     .on_progress_self = &warming};
  qn_warm_result_t result = {.struct_size = sizeof result};
  warming.thread = PyEval_SaveThread();
  qn_status_t status = qn_warm(engine, list, &options, &result);
  PyEval_RestoreThread(warming.thread);
  qn__py_engine_end((qn__py_engine_t*)self);
  if (warming.has_failed) {
    qn_status_free(status);
  } else if (qn__py_check(status)) {
    made = make_result(&result, &warming);
  }
cleanup:
  qn_warm_list_destroy(list);
  Py_XDECREF(warming.items);
  Py_XDECREF(warming.problems);
  return made;
}
