// SPDX-License-Identifier: Apache-2.0
// devices/cuda/context.c: the primary context of a device, and entering it for the time of a call.
//
// The host may have a context of its own on its threads; a call restores it. If the host uses the
// primary context (the CUDA runtime does), entering costs one query. The context is retained once
// and never released: other libraries of the process use it, and the driver destroys it at exit.
//
// Read next: stream.c.
#include "devices/cuda/cuda.h"

// Retains the context, and creates the memory pool and the default stream.
static __attribute__((noinline)) qn_status_t open_context(qn__cuda_device_t* device) {
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__mutex_lock(&device->mutex);
  if (atomic_load(&device->context)) {
    qn__mutex_unlock(&device->mutex);
    return QN_OK;
  }
  CUcontext context = NULL;
  qn__cuda_scope_t scope;
  qn_status_t status = qn__cuda_relax(device, &scope);
  if (qn_ok(status)) {
    status = qn__cuda_check(device, cu->primary_retain(&context, device->handle),
                            "opening the primary context");
  }
  if (qn_ok(status)) {
    status = qn__cuda_check(device, cu->ctx_push(context), "entering the primary context");
    if (qn_ok(status)) scope.pushed = context;
  }
  if (qn_ok(status)) qn__cuda_workspace_make_pool(device);
  if (qn_ok(status) && !device->default_stream) {
    status = qn__cuda_stream_make(device, NULL, false, &device->default_stream);
  }
  qn__cuda_leave(&scope);
  // After a failure the context stays retained, and the next call tries again.
  if (qn_ok(status)) atomic_store_explicit(&device->context, context, memory_order_release);
  qn__mutex_unlock(&device->mutex);
  return status;
}

qn_status_t qn__cuda_enter_fast(int32_t id, qn__cuda_device_t** out_device,
                                qn__cuda_scope_t* scope) {
  *scope = (qn__cuda_scope_t){0};
  *out_device = NULL;
  const qn__cuda_driver_t* cu = qn__cuda();
  qn__cuda_device_t* device = qn__cuda_device(id);
  if (!cu || !device) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "no device cuda:%d: %s", id,
                          cu ? "the driver has fewer" : qn__cuda_absence());
  }
  QN_TRY(qn__cuda_usable(device));
  CUcontext context = atomic_load_explicit(&device->context, memory_order_acquire);
  if (__builtin_expect(!context, 0)) {
    QN_TRY(open_context(device));
    context = atomic_load_explicit(&device->context, memory_order_acquire);
  }
  assert(context && device->default_stream);
  CUcontext current = NULL;
  QN_TRY(qn__cuda_check(device, cu->ctx_get_current(&current), "querying the current context"));
  if (current != context) {
    QN_TRY(qn__cuda_check(device, cu->ctx_push(context), "entering the primary context"));
    scope->pushed = context;
  }
  *out_device = device;
  return QN_OK;
}

// Relaxes the capture mode. Keeps the context that the scope has pushed.
static qn_status_t relax(qn__cuda_device_t* device, qn__cuda_scope_t* scope) {
  scope->old_mode = QN__CU_CAPTURE_MODE_RELAXED;
  qn_status_t status = qn__cuda_check(device, qn__cuda()->exchange_capture_mode(&scope->old_mode),
                                      "relaxing the capture mode");
  scope->is_relaxed = qn_ok(status);
  return status;
}

qn_status_t qn__cuda_relax(qn__cuda_device_t* device, qn__cuda_scope_t* scope) {
  *scope = (qn__cuda_scope_t){0};
  return relax(device, scope);
}

qn_status_t qn__cuda_enter(int32_t id, qn__cuda_device_t** out_device, qn__cuda_scope_t* scope) {
  QN_TRY(qn__cuda_enter_fast(id, out_device, scope));
  qn_status_t status = relax(*out_device, scope);
  if (!qn_ok(status)) qn__cuda_leave(scope);
  return status;
}

// Restores the capture mode and the context. A call may fail, or return the failure of earlier work
// though it succeeded: the function checks the effect and tries once more.
void qn__cuda_leave(const qn__cuda_scope_t* scope) {
  const qn__cuda_driver_t* cu = qn__cuda();
  CUstreamCaptureMode mode = scope->old_mode;
  if (scope->is_relaxed && cu->exchange_capture_mode(&mode) != QN__CU_OK) {
    mode = scope->old_mode;
    (void)cu->exchange_capture_mode(&mode);
  }
  CUcontext current = NULL;
  if (scope->pushed && cu->ctx_pop(&current) != QN__CU_OK &&
      cu->ctx_get_current(&current) == QN__CU_OK && current == scope->pushed) {
    (void)cu->ctx_pop(&current);
  }
}
