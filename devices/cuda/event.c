// SPDX-License-Identifier: Apache-2.0
// devices/cuda/event.c: a pool of events, so that a wait between streams neither creates nor
// destroys one.
//
// An event may be reused as soon as a wait for it is enqueued: the wait is for the record that the
// event held then.
#include "devices/cuda/cuda.h"

qn_status_t qn__cuda_event_acquire(qn__cuda_device_t* device, CUevent* out_event) {
  *out_event = NULL;
  qn__short_lock(&device->event_lock);
  if (device->event_count > 0) *out_event = device->events[--device->event_count];
  qn__short_unlock(&device->event_lock);
  if (*out_event) return QN_OK;
  return qn__cuda_check(device, qn__cuda()->event_create(out_event, QN__CU_EVENT_DISABLE_TIMING),
                        "creating an event");
}

void qn__cuda_event_release(qn__cuda_device_t* device, CUevent event) {
  if (!event) return;
  qn__short_lock(&device->event_lock);
  const bool is_kept = device->event_count < QN__CUDA_EVENTS;
  if (is_kept) device->events[device->event_count++] = event;
  qn__short_unlock(&device->event_lock);
  if (!is_kept) (void)qn__cuda()->event_destroy(event);
}
