// SPDX-License-Identifier: Apache-2.0
// python/src/extension.h: what the files of the extension share: its state, its objects, errors.
//
// The extension `quern._quern` has the types Module, Engine, Function, Request and Stream. All of
// it runs with the GIL held, except what stands between Py_BEGIN_ALLOW_THREADS and its end:
// lookups, waits, long calls, and the end of an engine. The packages' Python files build on these
// types.
//
// Read next: function.c (a call), args.h (its arguments), lookup.c.
#ifndef QUERN_PYTHON_EXTENSION_H_
#define QUERN_PYTHON_EXTENSION_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "quern/ir.h"
#include "quern/quern.h"

#include "dlpack.h"

// How objects of a Python type become tensors. The first way that applies.
typedef enum qn__py_way {
  QN__PY_UNKNOWN = 0,   // not asked yet
  QN__PY_EXCHANGE = 1,  // the type has the capsule __dlpack_c_exchange_api__
  QN__PY_BUFFER = 2,    // the buffer protocol, then __dlpack__
  QN__PY_DLPACK = 3,    // __dlpack__
  QN__PY_NUMPY = 4,     // numpy.ndarray itself: its members, then as QN__PY_BUFFER
  QN__PY_NONE = 5,      // it is no tensor
} qn__py_way_t;

// What is remembered of a Python type.
typedef struct qn__py_type_entry {
  PyTypeObject* type;  // retained, so that its address means no other type
  qn__py_way_t way;
  const qn__dl_exchange_t* exchange;
} qn__py_type_entry_t;

// Types are found by a part of their address; one that collides takes the place.
#define QN__PY_TYPE_SLOTS 64u

typedef struct qn__py_stream qn__py_stream_t;

// The state of the extension: one for the process.
typedef struct qn__py_state {
  PyTypeObject* module_type;
  PyTypeObject* engine_type;
  PyTypeObject* function_type;
  PyTypeObject* request_type;
  PyTypeObject* stream_type;
  qn__py_stream_t* streams;  // all but default ones
  PyObject* helpers;         // the Python module quern._helpers
  // Names of attributes.
  PyObject* name_exchange;
  PyObject* name_dlpack;
  PyObject* name_dlpack_device;
  qn__py_type_entry_t types[QN__PY_TYPE_SLOTS];
} qn__py_state_t;
extern qn__py_state_t qn__py_state;

// One parameter of a function, as calls need it.
typedef struct qn__py_param {
  const char* name;  // borrowed from the module
  PyObject* key;     // its name, interned
  qn_dtype_t dtype;
  qn_access_t access;
  uint32_t rank;
  bool is_buffer;
} qn__py_param_t;

// One function of a module.
typedef struct qn__py_signature {
  const char* name;  // borrowed from the module
  const char* text;  // "saxpy(a: f32, ...)", borrowed from the module
  size_t index;
  size_t param_count;
  qn__py_param_t* params;
} qn__py_signature_t;

// quern.Module.
typedef struct qn__py_module {
  PyObject_HEAD;
  qn_module_t* module;  // owned
  size_t function_count;
  qn__py_signature_t* functions;
  PyObject* handles;  // by name, made on demand: their code is found by the device of a call
  PyObject* engine;   // of lookups; None: the default engine
} qn__py_module_t;

// quern.Engine. `engine` ends when it is closed and no call uses it any more.
typedef struct qn__py_engine {
  PyObject_HEAD;
  qn_engine_t* engine;  // owned; NULL: closed
  size_t user_count;    // calls in progress that use it without the GIL
  bool is_closed;
  bool has_ended;  // its end has returned
} qn__py_engine_t;

// Code of a function for one device. A slot stays until its function's object goes.
typedef struct qn__py_slot {
  struct qn__py_slot* next;
  qn_function_t* function;  // owned
  qn_device_t device;
  qn_lookup_info_t info;  // of the lookup
} qn__py_slot_t;

// How a Python program asks for code.
typedef struct qn__py_lookup {
  qn_lookup_options_t options;  // of options.time_limit_ns: 0 is no limit
  PyObject* generic;            // a Module for FALLBACK, borrowed from the options; or NULL
} qn__py_lookup_t;

// quern.Function.
typedef struct qn__py_function {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  qn__py_slot_t* slot;  // the one of the last call; NULL: none yet
  qn__py_slot_t* slots;
  const qn__py_signature_t* signature;  // borrowed from `module`
  qn__py_module_t* module;              // retained
  bool is_bound;                        // looked up for one target: never for another device
  // Which calls keep the GIL (call.c).
  int64_t short_size;    // calls of at most this size
  uint32_t until_timed;  // short calls until one is timed
  uint32_t long_run;     // timed calls in a row that should have been short
  uint32_t short_run;    // short calls in a row of a larger size
  uint32_t patience;     // such calls before the size is learned
} qn__py_function_t;

// ---------------------------------------------------------------------------------- errors.c

// Raises the exception of a status, which is consumed. Returns NULL.
PyObject* qn__py_raise(qn_status_t status);
// The same with the diagnostics of a text: a list of tuples.
PyObject* qn__py_raise_with(qn_status_t status, PyObject* diagnostics);
// Returns true for ok. Otherwise raises.
static inline bool qn__py_check(qn_status_t status) {
  return qn_ok(status) || qn__py_raise(status) != NULL;
}

// ---------------------------------------------------------------------- module.c, program.c

// Reads the type of the extension from its spec, and adds it to the module under its name.
PyTypeObject* qn__py_add_type(PyObject* extension, PyType_Spec* spec);
// Returns the description of a function; NULL: KeyError.
const qn__py_signature_t* qn__py_find_signature(qn__py_module_t* module, PyObject* name);
extern PyType_Spec qn__py_module_spec;

// ---------------------------------------------------------------------------------- engine.c

// Begins a use of the engine, which stays until the end of the use. NULL: it is closed; raises.
qn_engine_t* qn__py_engine_begin(qn__py_engine_t* engine);
void qn__py_engine_end(qn__py_engine_t* engine);
// Returns the engine of a module's lookups, retained; NULL: raises.
qn__py_engine_t* qn__py_engine_of(const qn__py_module_t* module);
extern PyType_Spec qn__py_engine_spec;

// Methods of Engine in other files.
PyObject* qn__py_engine_lookup(PyObject* self, PyObject* args);
PyObject* qn__py_engine_request(PyObject* self, PyObject* args);
PyObject* qn__py_engine_why(PyObject* self, PyObject* args);
PyObject* qn__py_engine_stats(PyObject* self, PyObject* unused);
PyObject* qn__py_engine_stages(PyObject* self, PyObject* unused);
PyObject* qn__py_engine_metrics(PyObject* self, PyObject* unused);
PyObject* qn__py_engine_config(PyObject* self, PyObject* unused);
PyObject* qn__py_engine_warm(PyObject* self, PyObject* args);

// ---------------------------------------------------------------------------------- lookup.c

// Looks up a function without the GIL. Signals end the wait. False: raises.
bool qn__py_lookup(qn__py_engine_t* engine, qn__py_module_t* module, const char* name,
                   const char* target, const qn__py_lookup_t* how, qn_lookup_info_t* out_info,
                   qn_function_t** out_function);
// Waits for a future at most `limit_ns`, for ever if it is negative. Signals end the wait. False:
// raises.
bool qn__py_wait(qn_future_t* future, int64_t limit_ns, qn_lookup_info_t* out_info,
                 qn_function_t** out_function);
// Reads (tier, is_checked, miss, timeout, priority, generic) of the Python files. False: raises.
bool qn__py_lookup_read(PyObject* options, qn__py_lookup_t* out_how);
// Reads (module, name, target, options) of Engine._lookup and _request; all of `out` is borrowed
// from them. False: raises.
typedef struct qn__py_lookup_args {
  qn__py_module_t* module;
  const qn__py_signature_t* signature;
  const char* target;
  qn_device_t device;  // of the target
  qn__py_lookup_t how;
} qn__py_lookup_args_t;
bool qn__py_lookup_args(PyObject* args, qn__py_lookup_args_t* out);
// Makes the tuple (source, key, lookup, compile, load, is_fallback, tier) as quern.LookupInfo.
PyObject* qn__py_lookup_info(const qn_lookup_info_t* info);
// request.c
extern PyType_Spec qn__py_request_spec;

// ---------------------------------------------------------------------------------- function.c

// Makes a function; `slot` (consumed, may be NULL) is code for its one target.
PyObject* qn__py_function_new(qn__py_module_t* module, const qn__py_signature_t* signature,
                              qn_function_t* function, qn_device_t device,
                              const qn_lookup_info_t* info);
// Returns the device of the target of a lookup, as loaded code has it. False: raises.
bool qn__py_target_device(const char* target, qn_device_t* out_device);
extern PyType_Spec qn__py_function_spec;

// ---------------------------------------------------------------------------------- stream.c

// Returns the Stream that is active on the device in the calling thread, borrowed; NULL: none.
qn__py_stream_t* qn__py_stream_active(qn_device_t device);
extern PyType_Spec qn__py_stream_spec;

// Functions of the extension; the first two are in cache.c.
PyObject* qn__py_cache_entries(PyObject* self, PyObject* args);
PyObject* qn__py_write_bundle(PyObject* self, PyObject* args);
PyObject* qn__py_device_name(PyObject* self, PyObject* args);
PyObject* qn__py_active_device(PyObject* self, PyObject* unused);
PyObject* qn__py_active_stream(PyObject* self, PyObject* args);
PyObject* qn__py_set_active_device(PyObject* self, PyObject* args);
PyObject* qn__py_set_active_stream(PyObject* self, PyObject* stream);

#endif  // QUERN_PYTHON_EXTENSION_H_
