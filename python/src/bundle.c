// SPDX-License-Identifier: Apache-2.0
// python/src/bundle.c: writes the entries of a cache directory into a bundle.
#include "extension.h"

#include "quern/cache.h"

PyObject* qn__py_write_bundle(PyObject* self, PyObject* args) {
  (void)self;
  PyObject *path, *folder, *result = NULL;
  if (!PyArg_ParseTuple(args, "O&O&:write_bundle", PyUnicode_FSConverter, &path,
                        PyUnicode_FSConverter, &folder)) {
    return NULL;
  }
  const char* path_text = PyBytes_AsString(path);
  const char* folder_text = PyBytes_AsString(folder);
  qn_status_t status;
  qn_cache_write_report_t report = {.struct_size = sizeof report};
  Py_BEGIN_ALLOW_THREADS;
  qn_cache_dir_t* dir;
  status = qn_cache_dir_open(folder_text, &dir);
  if (qn_ok(status)) {
    // Without times, equal code gives equal bundles.
    qn_cache_write_options_t options = {.struct_size = sizeof options, .is_timeless = true};
    status = qn_cache_bundle_write(path_text, dir, NULL, 0, &options, &report);
    qn_cache_dir_close(dir);
  }
  Py_END_ALLOW_THREADS;
  if (qn__py_check(status)) result = PyLong_FromUnsignedLongLong(report.written_count);
  Py_DECREF(path);
  Py_DECREF(folder);
  return result;
}
