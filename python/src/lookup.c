// SPDX-License-Identifier: Apache-2.0
// python/src/lookup.c: lookups of functions that the caller waits for.
//
// A lookup that may wait for a compile is one in the background, for which the calling thread waits
// in slices: between two of them it handles signals, so that Ctrl-C ends the wait. The compile goes
// on into the cache. Not here: lookups that are awaited (request.c).
#include "extension.h"

// The longest time until a signal ends a wait.
#define SLICE_NS INT64_C(50000000)

static const char* const tier_names[] = {NULL, "full", "fast"};

bool qn__py_lookup_read(PyObject* options, qn__py_lookup_t* out) {
  *out = (qn__py_lookup_t){.options = {.struct_size = sizeof out->options}};
  int tier, is_checked, miss, priority;
  double timeout;
  PyObject* generic;
  if (!PyArg_ParseTuple(options, "ipidiO", &tier, &is_checked, &miss, &timeout, &priority,
                        &generic)) {
    return false;
  }
  out->options.tier = (qn_tier_t)tier;
  out->options.is_checked = is_checked != 0;
  out->options.miss = (qn_miss_policy_t)miss;
  out->options.priority = priority;
  // Python's timeouts are seconds, and none is negative here.
  if (timeout >= 0) {
    out->options.time_limit_ns = timeout < 9e9 ? (int64_t)(timeout * 1e9) : 0;
    if (timeout < 1e-9) out->options.time_limit_ns = 1;
  }
  if (generic == Py_None) return true;
  if (!PyObject_TypeCheck(generic, qn__py_state.module_type)) {
    PyErr_SetString(PyExc_TypeError, "generic: expected a quern.Module or None");
    return false;
  }
  out->generic = generic;
  out->options.generic = ((qn__py_module_t*)generic)->module;
  return true;
}

PyObject* qn__py_lookup_info(const qn_lookup_info_t* info) {
  const char* tier =
      info->tier == QN_TIER_FULL || info->tier == QN_TIER_FAST ? tier_names[info->tier] : "";
  return PyObject_CallMethod(
      qn__py_state.helpers, "make_info", "ssdddOs", qn_source_text(info->source), info->key.hex,
      (double)info->lookup_ns * 1e-9, (double)info->compile_ns * 1e-9, (double)info->load_ns * 1e-9,
      info->is_fallback ? Py_True : Py_False, tier);
}

bool qn__py_wait(qn_future_t* future, int64_t limit_ns, qn_lookup_info_t* out_info,
                 qn_function_t** out_function) {
  for (;;) {
    const int64_t slice_ns = limit_ns >= 0 && limit_ns < SLICE_NS ? limit_ns : SLICE_NS;
    qn_status_t status;
    bool is_ready;
    Py_BEGIN_ALLOW_THREADS;
    status = qn_future_wait(future, slice_ns, out_info, out_function);
    is_ready = qn_ok(status) || qn_future_is_ready(future);
    Py_END_ALLOW_THREADS;
    if (is_ready || (limit_ns >= 0 && limit_ns <= slice_ns)) return qn__py_check(status);
    qn_status_free(status);
    if (limit_ns >= 0) limit_ns -= slice_ns;
    if (PyErr_CheckSignals() != 0) return false;
  }
}

bool qn__py_lookup(qn__py_engine_t* holder, qn__py_module_t* module, const char* name,
                   const char* target, const qn__py_lookup_t* how, qn_lookup_info_t* out_info,
                   qn_function_t** out_function) {
  *out_info = (qn_lookup_info_t){.struct_size = sizeof *out_info};
  *out_function = NULL;
  qn_target_t* parsed;
  if (!qn__py_check(qn_target_parse(target, &parsed))) return false;
  qn_engine_t* engine = qn__py_engine_begin(holder);
  if (!engine) {
    qn_target_release(parsed);
    return false;
  }
  qn_future_t* future = NULL;
  qn_status_t status;
  // Only qn_engine_function gives fallbacks, and a lookup that must not compile does not wait.
  const bool is_direct = how->options.miss != QN_MISS_BLOCK;
  Py_BEGIN_ALLOW_THREADS;
  status = is_direct
               ? qn_engine_function(engine, module->module, parsed, name, &how->options, out_info,
                                    out_function)
               : qn_engine_request(engine, module->module, parsed, name, &how->options, &future);
  Py_END_ALLOW_THREADS;
  // A future outlives its engine, whose end cancels it.
  qn__py_engine_end(holder);
  qn_target_release(parsed);
  bool is_found = qn__py_check(status);
  if (future) {
    is_found = qn__py_wait(future, -1, out_info, out_function);
    if (!is_found) qn_future_cancel(future);
    qn_future_release(future);
  }
  return is_found;
}

bool qn__py_lookup_args(PyObject* args, qn__py_lookup_args_t* out) {
  PyObject *name, *options;
  if (!PyArg_ParseTuple(args, "O!UsO", qn__py_state.module_type, &out->module, &name, &out->target,
                        &options)) {
    return false;
  }
  out->signature = qn__py_find_signature(out->module, name);
  return out->signature && qn__py_lookup_read(options, &out->how) &&
         qn__py_target_device(out->target, &out->device);
}

PyObject* qn__py_engine_lookup(PyObject* self, PyObject* args) {
  qn__py_lookup_args_t given;
  qn_lookup_info_t info;
  qn_function_t* code;
  if (!qn__py_lookup_args(args, &given) ||
      !qn__py_lookup((qn__py_engine_t*)self, given.module, given.signature->name, given.target,
                     &given.how, &info, &code)) {
    return NULL;
  }
  return qn__py_function_new(given.module, given.signature, code, given.device, &info);
}
