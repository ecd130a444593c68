// SPDX-License-Identifier: Apache-2.0
// python/src/cache.c: the entries of a cache directory, as Python values and as a bundle.
#include <string.h>

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

// Keys that are wanted in a bundle.
typedef struct choice {
  const char** keys;
  size_t count;
} choice_t;

static bool is_chosen(void* self, const qn_cache_entry_t* entry) {
  const choice_t* choice = self;
  size_t i = 0;
  while (i < choice->count && strcmp(choice->keys[i], entry->info->key.hex) != 0) i++;
  return i < choice->count;
}

// Writes a bundle of (directory, path, keys or None, secret key file or None, is_appending).
// Returns how many entries it has.
PyObject* qn__py_write_bundle(PyObject* self, PyObject* args) {
  (void)self;
  const char *directory, *path, *secret;
  PyObject* keys;
  int is_appending;
  if (!PyArg_ParseTuple(args, "ssOzp:_write_bundle", &directory, &path, &keys, &secret,
                        &is_appending)) {
    return NULL;
  }
  choice_t choice = {NULL, 0};
  if (keys != Py_None) {
    choice.count = (size_t)PyTuple_Size(keys);
    choice.keys = PyErr_Occurred() ? NULL : PyMem_Calloc(choice.count + 1, sizeof *choice.keys);
    if (!choice.keys) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    for (size_t i = 0; i < choice.count; i++) {
      choice.keys[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(keys, (Py_ssize_t)i), NULL);
      if (!choice.keys[i]) {
        PyMem_Free((void*)choice.keys);
        return NULL;
      }
    }
  }
  const qn_cache_write_options_t options = {.struct_size = sizeof options,
                                            .secret_key_file = secret,
                                            .wants = choice.keys ? is_chosen : NULL,
                                            .self = &choice,
                                            .is_appending = is_appending != 0};
  qn_cache_write_report_t report = {.struct_size = sizeof report};
  qn_cache_dir_t* dir = NULL;
  qn_status_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = qn_cache_dir_open(directory, &dir);
  if (qn_ok(status)) status = qn_cache_bundle_write(path, dir, NULL, 0, &options, &report);
  qn_cache_dir_close(dir);
  Py_END_ALLOW_THREADS;
  PyMem_Free((void*)choice.keys);
  if (!qn__py_check(status)) return NULL;
  return PyLong_FromUnsignedLongLong(report.written_count);
}
