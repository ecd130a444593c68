// devices/vulkan/submit_timer.c: the thread that submits what was recorded and left: a program may
// enqueue a launch, do something else for long and wait only then.
//
// Armed, it looks at all streams again and again, a moment apart, and submits batches that were
// open already at the look before. It sleeps when it has found none for some looks. So a program
// that records without a pause wakes it once and shares no mutex with it: to wake a thread takes
// longer than to record several launches, and a mutex that two threads want has to wake one of them
// each time.
//
// None is forgotten: a batch is noted as open before its recorder asks whether the flusher is
// armed, and the flusher looks once more after it has said that it is not. Without the thread (none
// could be started) such work begins at the next sync. Thread rule: any thread. Read next:
// stream.c.
#include "devices/vulkan/stream.h"

#define MOMENT_NS INT64_C(100000)
#define IDLE_LOOKS 16u

// Submits what was open at the look before this one. True when anything is left for the next.
static bool look(qn__vk_device_t* device) {
  uint64_t tick = atomic_fetch_add(&device->submit_timer.tick, 1);
  return tick == 0 || qn__vk_submit_old_batches(device, tick - 1);
}

static void* run(void* arg) {
  qn__vk_device_t* device = arg;
  qn__vk_submit_timer_t* self = &device->submit_timer;
  uint32_t idle_looks = 0;
  qn__mutex_lock(&self->mutex);
  while (!self->is_stopping) {
    if (!atomic_load(&self->is_armed)) {
      qn__cond_wait(&self->changed, &self->mutex);
      continue;
    }
    int64_t until_ns = qn__after(qn__now_ns(), MOMENT_NS);
    while (!self->is_stopping && qn__cond_wait_until(&self->changed, &self->mutex, until_ns)) {
    }
    if (self->is_stopping) break;
    bool is_last = ++idle_looks >= IDLE_LOOKS;
    if (is_last) atomic_store(&self->is_armed, false);
    qn__mutex_unlock(&self->mutex);
    if (look(device)) idle_looks = 0;
    qn__mutex_lock(&self->mutex);
    if (!is_last) continue;
    if (idle_looks == 0) atomic_store(&self->is_armed, true);
    idle_looks = 0;
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
