// devices/vulkan/flusher.c: the thread that submits what was recorded and left: a program may
// enqueue a launch, do something else for long and wait only then.
//
// It sleeps until something has been left, then for a moment, then submits all open batches.
// Callers wake it at most once in that moment, and never wait for it. Without the thread (none
// could be started) such work begins at the next sync. Thread rule: any thread. Read next:
// stream.c.
#include "devices/vulkan/stream.h"

#define MOMENT_NS INT64_C(100000)

static void* run(void* arg) {
  qn__vk_device_t* device = arg;
  qn__vk_flusher_t* self = &device->flusher;
  qn__mutex_lock(&self->mutex);
  while (!self->is_stopping) {
    if (!atomic_load_explicit(&self->is_armed, memory_order_relaxed)) {
      qn__cond_wait(&self->changed, &self->mutex);
      continue;
    }
    int64_t until_ns = qn__after(qn__now_ns(), MOMENT_NS);
    while (!self->is_stopping && qn__cond_wait_until(&self->changed, &self->mutex, until_ns)) {
    }
    if (self->is_stopping) break;
    // Before looking: what is recorded from now on arms it again.
    atomic_store(&self->is_armed, false);
    uint64_t tick = atomic_fetch_add(&self->tick, 1);
    qn__mutex_unlock(&self->mutex);
    // What was opened since the look before this one is left for the next.
    bool is_left = tick == 0 || qn__vk_flush_old(device, tick - 1);
    qn__mutex_lock(&self->mutex);
    if (is_left) atomic_store(&self->is_armed, true);
  }
  qn__mutex_unlock(&self->mutex);
  return NULL;
}

void qn__vk_flush_soon(qn__vk_device_t* device) {
  qn__vk_flusher_t* self = &device->flusher;
  if (atomic_load_explicit(&self->is_armed, memory_order_relaxed)) return;
  if (atomic_exchange(&self->is_armed, true)) return;
  qn__mutex_lock(&self->mutex);
  if (!self->has_thread && !self->is_stopping) {
    qn_status_t status = qn__thread_start(&self->thread, "quern-vk-flush", 0, run, device);
    self->has_thread = qn_ok(status);
    qn_status_free(status);
    if (!self->has_thread) atomic_store(&self->is_armed, false);
  }
  qn__cond_signal(&self->changed);
  qn__mutex_unlock(&self->mutex);
}

void qn__vk_flusher_stop(qn__vk_device_t* device) {
  qn__vk_flusher_t* self = &device->flusher;
  qn__mutex_lock(&self->mutex);
  self->is_stopping = true;
  bool has_thread = self->has_thread;
  self->has_thread = false;
  qn__cond_signal(&self->changed);
  qn__mutex_unlock(&self->mutex);
  if (has_thread) (void)pthread_join(self->thread, NULL);
}
