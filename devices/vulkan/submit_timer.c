// SPDX-License-Identifier: Apache-2.0
// devices/vulkan/submit_timer.c: submits batches that stayed open too long. A program may enqueue a
// launch, do other work for long, and only then wait.
//
// While armed, a thread checks all streams once per period and submits the batches that were
// already open at the last check. After some checks without an open batch it sleeps. So a program
// that records all the time wakes the thread once and rarely shares a mutex with it. To wake a
// thread for each batch would cost more than to record several launches.
//
// No batch is forgotten: a batch is marked as open before its recorder reads `is_armed`, and the
// thread checks once more after it has cleared `is_armed`. If the thread cannot be started, open
// batches are submitted at the next sync.
#include "devices/vulkan/stream.h"

#define PERIOD_NS INT64_C(100000)
#define IDLE_CHECKS 16u

// Submits the batches that were already open at the last check. Returns whether younger ones are
// open.
static bool submit_old(qn__vk_device_t* device) {
  uint64_t tick = atomic_fetch_add(&device->submit_timer.tick, 1);
  return tick == 0 || qn__vk_submit_old_batches(device, tick - 1);
}

static void* run(void* arg) {
  qn__vk_device_t* device = arg;
  qn__vk_submit_timer_t* self = &device->submit_timer;
  uint32_t idle_checks = 0;
  qn__mutex_lock(&self->mutex);
  while (!self->is_stopping) {
    if (!atomic_load(&self->is_armed)) {
      qn__cond_wait(&self->changed, &self->mutex);
      continue;
    }
    int64_t until_ns = qn__after(qn__now_ns(), PERIOD_NS);
    while (!self->is_stopping && qn__cond_wait_until(&self->changed, &self->mutex, until_ns)) {
    }
    if (self->is_stopping) break;
    bool is_last = ++idle_checks >= IDLE_CHECKS;
    if (is_last) atomic_store(&self->is_armed, false);
    qn__mutex_unlock(&self->mutex);
    if (submit_old(device)) idle_checks = 0;
    qn__mutex_lock(&self->mutex);
    if (!is_last) continue;
    if (idle_checks == 0) atomic_store(&self->is_armed, true);
    idle_checks = 0;
  }
  qn__mutex_unlock(&self->mutex);
  return NULL;
}

void qn__vk_submit_timer_arm(qn__vk_device_t* device) {
  qn__vk_submit_timer_t* self = &device->submit_timer;
  if (__builtin_expect(atomic_load(&self->is_armed), 1)) return;
  if (atomic_exchange(&self->is_armed, true)) return;
  qn__mutex_lock(&self->mutex);
  if (!self->has_thread && !self->is_stopping) {
    qn_status_t status = qn__thread_start(&self->thread, "quern-vk-submit", 0, run, device);
    self->has_thread = qn_ok(status);
    qn_status_free(status);
    if (!self->has_thread) atomic_store(&self->is_armed, false);
  }
  qn__cond_signal(&self->changed);
  qn__mutex_unlock(&self->mutex);
}

void qn__vk_submit_timer_stop(qn__vk_device_t* device) {
  qn__vk_submit_timer_t* self = &device->submit_timer;
  qn__mutex_lock(&self->mutex);
  self->is_stopping = true;
  bool has_thread = self->has_thread;
  self->has_thread = false;
  qn__cond_signal(&self->changed);
  qn__mutex_unlock(&self->mutex);
  if (has_thread) (void)pthread_join(self->thread, NULL);
}
