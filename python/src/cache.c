// SPDX-License-Identifier: Apache-2.0
// python/src/cache.c: the entries of a cache directory, as Python values.
#include "extension.h"

#include "quern/cache.h"

typedef struct listing {
  PyThreadState* thread;  // the GIL is taken for each entry only: the survey reads files
  PyObject* list;         // NULL: an exception is pending
} listing_t;

static bool on_entry(void* self, const qn_cache_summary_t* entry) {
  listing_t* listing = self;
  PyEval_RestoreThread(listing->thread);
  PyObject* item = Py_BuildValue(
      "(sssKKdLLs)", entry->info->key.hex, entry->target ? entry->target : "",
      entry->options ? entry->options : "", (unsigned long long)entry->info->size_bytes,
      (unsigned long long)entry->code_bytes, (double)entry->compile_ns * 1e-9,
      (long long)entry->info->created_s, (long long)entry->info->used_s,
      entry->generator ? entry->generator : "");
  if (!item || PyList_Append(listing->list, item) != 0) Py_CLEAR(listing->list);
  Py_XDECREF(item);
  // Ctrl-C ends the survey.
  if (listing->list && PyErr_CheckSignals() != 0) Py_CLEAR(listing->list);
  const bool goes_on = listing->list != NULL;
  listing->thread = PyEval_SaveThread();
  return goes_on;
}

PyObject* qn__py_cache_entries(PyObject* self, PyObject* args) {
  (void)self;
  const char* path;
  if (!PyArg_ParseTuple(args, "s:_cache_entries", &path)) return NULL;
  listing_t listing = {NULL, PyList_New(0)};
  if (!listing.list) return NULL;
  qn_cache_dir_t* dir = NULL;
  listing.thread = PyEval_SaveThread();
  qn_status_t status = qn_cache_dir_open(path, &dir);
  if (qn_ok(status)) status = qn_cache_dir_survey(dir, on_entry, &listing);
  qn_cache_dir_close(dir);
  PyEval_RestoreThread(listing.thread);
  if (!listing.list) {
    qn_status_free(status);
    return NULL;
  }
  // The first store makes the directory.
  if (qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    qn_status_free(status);
    return listing.list;
  }
  if (!qn__py_check(status)) Py_CLEAR(listing.list);
  return listing.list;
}
