// SPDX-License-Identifier: Apache-2.0
// python/src/function.c: the type Function: a function of a module, and its code by device.
//
// A function of `module["name"]` finds its code by the device of its tensors, at the first call.
// One of `module.compile` is bound to the code of one target. Read next: call.c.
#include "function.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "quern/device.h"
#include "quern/target.h"

// The members of a type that Python finds by name; structmember.h has these names before 3.12.
#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h>
#define Py_T_PYSSIZET T_PYSSIZET
#define Py_READONLY READONLY
#endif

static bool add_slot(qn__py_function_t* self, qn_function_t* code, qn_device_t device,
                     const qn_lookup_info_t* info) {
  qn__py_slot_t* slot = PyMem_Calloc(1, sizeof *slot);
  if (!slot) {
    qn_function_release(code);
    PyErr_NoMemory();
    return false;
  }
  *slot = (qn__py_slot_t){self->slots, code, device, *info};
  self->slots = self->slot = slot;
  return true;
}

PyObject* qn__py_function_new(qn__py_module_t* module, const qn__py_signature_t* signature,
                              qn_function_t* code, qn_device_t device,
                              const qn_lookup_info_t* info) {
  PyTypeObject* type = qn__py_state.function_type;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  qn__py_function_t* self = (qn__py_function_t*)allocate(type, 0);
  if (!self) {
    qn_function_release(code);
    return NULL;
  }
  self->vectorcall = qn__py_function_call;
  self->signature = signature;
  self->short_size = -1;
  Py_INCREF((PyObject*)module);
  self->module = module;
  if (code) {
    self->is_bound = true;
    if (!add_slot(self, code, device, info)) {
      Py_DECREF(self);
      return NULL;
    }
  }
  return (PyObject*)self;
}

static void dealloc(PyObject* object) {
  qn__py_function_t* self = (qn__py_function_t*)object;
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  while (self->slots) {
    qn__py_slot_t* slot = self->slots;
    self->slots = slot->next;
    qn_function_release(slot->function);
    PyMem_Free(slot);
  }
  Py_XDECREF((PyObject*)self->module);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

// Cycles go through the module's table of handles: its clear ends them.
static int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((qn__py_function_t*)object)->module);
  return 0;
}

static qn__py_slot_t* find_slot(qn__py_function_t* self, qn_device_t device) {
  for (qn__py_slot_t* slot = self->slots; slot; slot = slot->next) {
    if (self->is_bound || (slot->device.type == device.type && slot->device.id == device.id)) {
      return slot;
    }
  }
  return NULL;
}

// Makes the device active for a lookup, which loads code there. Streams stay as they are.
typedef struct activation {
  qn_device_t old;
  qn_stream_t *old_stream, *stream;
  bool is_changed;
} activation_t;

static qn_status_t activate(qn_device_t device, activation_t* out) {
  out->old = qn_active_device();
  out->is_changed = out->old.type != device.type || out->old.id != device.id;
  if (!out->is_changed) return QN_OK;
  out->old_stream = qn_active_stream(out->old);
  out->stream = qn_active_stream(device);
  return qn_set_active_device(device);
}

static void restore(qn_device_t device, const activation_t* activation) {
  if (!activation->is_changed) return;
  qn_status_free(qn_set_active_device(activation->old));
  qn_status_free(qn_set_active_stream(activation->old, activation->old_stream));
  qn_status_free(qn_set_active_stream(device, activation->stream));
}

qn__py_slot_t* qn__py_function_slot(qn__py_function_t* self, qn_device_t device) {
  qn__py_slot_t* slot = find_slot(self, device);
  if (slot) return self->slot = slot;
  // The kinds of targets have the names of the devices' types.
  char target[64];
  if (device.id == 0) {
    (void)snprintf(target, sizeof target, "%s", qn_device_type_text(device.type));
  } else {
    (void)snprintf(target, sizeof target, "%s -from_device=%d", qn_device_type_text(device.type),
                   device.id);
  }
  qn__py_engine_t* engine = qn__py_engine_of(self->module);
  if (!engine) return NULL;
  activation_t activation;
  qn_status_t status = activate(device, &activation);
  if (!qn__py_check(status)) {
    Py_DECREF(engine);
    return NULL;
  }
  const qn__py_lookup_t how = {.options = {.struct_size = sizeof how.options}};
  qn_lookup_info_t info;
  qn_function_t* code = NULL;
  bool is_found =
      qn__py_lookup(engine, self->module, self->signature->name, target, &how, &info, &code);
  restore(device, &activation);
  Py_DECREF(engine);
  if (!is_found) return NULL;
  // Another thread may have been here meanwhile.
  slot = find_slot(self, device);
  if (slot) {
    qn_function_release(code);
    return self->slot = slot;
  }
  return add_slot(self, code, device, &info) ? self->slot : NULL;
}

bool qn__py_target_device(const char* target, qn_device_t* out_device) {
  qn_target_t* parsed;
  if (!qn__py_check(qn_target_parse(target, &parsed))) return false;
  *out_device = (qn_device_t){QN_DEVICE_CPU, 0};
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    const qn_target_kind_info_t* kind = qn_target_kind_at(i);
    if (strcmp(kind->name, qn_target_kind(parsed)) == 0) out_device->type = kind->device_type;
  }
  qn_device_t active = qn_active_device();
  if (active.type == out_device->type) out_device->id = active.id;
  qn_target_release(parsed);
  return true;
}

// ------------------------------------------------------------------------------------ streams

typedef struct wrapped_stream {
  struct wrapped_stream* next;
  qn_device_t device;
  void* native;
  qn_stream_t* stream;
} wrapped_stream_t;
static wrapped_stream_t* wrapped_streams;  // with the GIL

bool qn__py_stream_of(qn_device_t device, void* native, qn_stream_t** out_stream) {
  for (wrapped_stream_t* at = wrapped_streams; at; at = at->next) {
    if (at->native == native && at->device.type == device.type && at->device.id == device.id) {
      *out_stream = at->stream;
      return true;
    }
  }
  wrapped_stream_t* added = PyMem_Malloc(sizeof *added);
  if (!added) {
    PyErr_NoMemory();
    return false;
  }
  *added = (wrapped_stream_t){wrapped_streams, device, native, NULL};
  if (!qn__py_check(qn_stream_wrap(device, native, &added->stream))) {
    PyMem_Free(added);
    return false;
  }
  wrapped_streams = added;
  *out_stream = added->stream;
  return true;
}

// ------------------------------------------------------------------------------------ the type

static PyObject* get_name(PyObject* self, void* unused) {
  (void)unused;
  return PyUnicode_FromString(((qn__py_function_t*)self)->signature->name);
}

static PyObject* get_signature(PyObject* self, void* unused) {
  (void)unused;
  return PyUnicode_FromString(((qn__py_function_t*)self)->signature->text);
}

static PyObject* get_module(PyObject* self, void* unused) {
  (void)unused;
  PyObject* module = (PyObject*)((qn__py_function_t*)self)->module;
  Py_INCREF((PyObject*)module);
  return module;
}

static PyObject* get_info(PyObject* self, void* unused) {
  (void)unused;
  const qn__py_slot_t* slot = ((qn__py_function_t*)self)->slot;
  if (!slot) Py_RETURN_NONE;
  return qn__py_lookup_info(&slot->info);
}

static PyObject* get_is_fallback(PyObject* self, void* unused) {
  (void)unused;
  const qn__py_slot_t* slot = ((qn__py_function_t*)self)->slot;
  return PyBool_FromLong(slot && qn_function_is_fallback(slot->function));
}

static PyObject* new_outputs(PyObject* self, PyObject* args, PyObject* names) {
  PyObject* helper = PyObject_GetAttrString(qn__py_state.helpers, "call_new");
  PyObject* result =
      helper ? PyObject_CallFunctionObjArgs(helper, self, args, names ? names : Py_None, NULL)
             : NULL;
  Py_XDECREF(helper);
  return result;
}

static PyObject* repr(PyObject* self) {
  return PyUnicode_FromFormat("<quern.Function %s>", ((qn__py_function_t*)self)->signature->text);
}

static PyGetSetDef properties[] = {
    {"name", get_name, NULL, "The function's name.", NULL},
    {"signature", get_signature, NULL, "Its signature, as in the module's text.", NULL},
    {"module", get_module, NULL, "Its module.", NULL},
    {"info", get_info, NULL,
     "The LookupInfo of the code that the last call ran; None before the first.", NULL},
    {"is_fallback", get_is_fallback, NULL,
     "True while calls run a variant instead of the requested code (miss='fallback').", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"new", (PyCFunction)(void (*)(void))new_outputs, METH_VARARGS | METH_KEYWORDS,
     "new(*args, **names)\n--\n\nCalls the function with new `out` buffers, which the framework of "
     "the first tensor\nallocates. Takes all other arguments. Returns the buffer, or a tuple of "
     "several."},
    {"as_tvm_ffi", (PyCFunction)(void (*)(void))qn__py_function_as_tvm,
     METH_VARARGS | METH_KEYWORDS,
     "as_tvm_ffi(name=None, *, override=False)\n--\n\nReturns the function as a "
     "tvm_ffi.Function, whose calls run without Python. `name` registers\nit in tvm-ffi's global "
     "table, where `override` replaces one of this name."},
    {"_register_tvm_ffi", qn__py_function_register_tvm, METH_VARARGS,
     "Registers the function in tvm-ffi's global table."},
    {"_outputs", (PyCFunction)(void (*)(void))qn__py_function_outputs,
     METH_FASTCALL | METH_KEYWORDS, "Describes the `out` buffers of a call."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(qn__py_function_t, vectorcall), Py_READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_repr, repr},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc,
     "A function of a module. Calling it checks every argument and runs it on the device of its\n"
     "tensors."},
    {0, NULL},
};

PyType_Spec qn__py_function_spec = {
    .name = "quern.Function",
    .basicsize = sizeof(qn__py_function_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
#ifdef Py_TPFLAGS_DISALLOW_INSTANTIATION
             Py_TPFLAGS_DISALLOW_INSTANTIATION |
#endif
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
