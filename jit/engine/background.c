// SPDX-License-Identifier: Apache-2.0
// jit/engine/background.c: see background.h.
//
// Requirements:
//  1. A call of an adaptive function needs nothing of this thread, not even that it runs: on a busy
//     machine a thread of the lowest priority may not run for minutes.
//  2. The budget is a token bucket of processor time. It fills by `percent` of the time that
//     passes, up to BURST_NS of that time. A variant is begun while there are tokens, and its
//     processor time is taken out, so that one compile may make a debt. The thread compiles alone
//     (lookup_task.c lends it no helpers), so its clock has all that a compile costs.
//  3. Nothing is begun while the program is busy, or the engine or the process ends.
//  4. The mutex is not held while a variant is made. Only this thread removes functions.
//  5. A child of fork has no thread and forgets a variant that the parent is making. It starts a
//     thread at the next call that may (qn__background_add, qn_engine_busy_end).
#include "jit/engine/background.h"

#include "base/argument.h"
#include "base/log.h"
#include "jit/engine/adaptive.h"
#include "jit/engine/engine.h"

#define STACK_BYTES ((size_t)8 << 20)  // as the pool's threads
#define PERIOD_NS INT64_C(100000000)
#define BURST_NS INT64_C(10000000000)
// Until the first compile: about what a small kernel takes.
#define COMPILE_COST_NS INT64_C(50000000)

static void fork_child(void* self) {
  qn__background_t* background = self;
  qn_status_free(qn__cond_init(&background->changed));
  if (background->has_thread) qn__engine_forget(background->engine);
  background->has_thread = background->is_working = false;
  for (qn__adaptive_t* adaptive = background->first; adaptive; adaptive = adaptive->next) {
    qn__dispatch_forget_calls(adaptive->dispatch);
  }
  atomic_store(&background->needs_thread, background->first != NULL);
}

static void at_exit(void* self, int64_t deadline_ns) {
  qn__background_t* background = self;
  qn__mutex_lock(&background->mutex);
  background->is_exiting = true;
  qn__cond_broadcast(&background->changed);
  // A callback that ends the process does not wait for itself.
  bool is_own = background->has_thread && pthread_equal(background->thread, pthread_self());
  bool is_in_time = true;
  while (background->is_working && !is_own && is_in_time) {
    is_in_time = qn__cond_wait_until(&background->changed, &background->mutex, deadline_ns) ||
                 qn__exit_prolong(&deadline_ns);
  }
  if (background->is_working && !is_own) qn__exit_give_up();
  qn__mutex_unlock(&background->mutex);
}

qn_status_t qn__background_init(qn__background_t* background, qn_engine_t* engine) {
  memset(background, 0, sizeof *background);
  background->engine = engine;
  background->period_ns = PERIOD_NS;
  background->now_ns = qn__now_ns;
  background->cpu_ns = qn__thread_cpu_ns;
  background->percent = qn__config_number(&engine->config, QN__SETTING_special_budget);
  if (background->percent > 100) background->percent = 100;
  background->max_variants = qn__config_number(&engine->config, QN__SETTING_special_limit);
  background->compile_cost_ns = COMPILE_COST_NS;
  background->tokens_ns = BURST_NS / 100 * (int64_t)background->percent;
  QN_TRY(qn__mutex_init(&background->mutex));
  QN_TRY(qn__cond_init(&background->changed));
  background->fork_node = (qn__fork_node_t){
      .self = background,
      .mutex = &background->mutex,
      .child = fork_child,
      .at_exit = at_exit,
  };
  if (qn__fork_register(&background->fork_node)) return QN_OK;
  background->fork_node.self = NULL;
  return qn__out_of_memory("a fork handler");
}

void qn__background_deinit(qn__background_t* background) {
  if (!background->fork_node.self) return;
  qn__fork_unregister(&background->fork_node);
  while (background->first) {
    qn__adaptive_t* adaptive = background->first;
    background->first = adaptive->next;
    qn__adaptive_destroy(adaptive);
  }
  qn__cond_deinit(&background->changed);
  qn__mutex_deinit(&background->mutex);
}

// ---------------------------------------------------------------------------------------- a step

static void refill(qn__background_t* background, int64_t now_ns) {
  int64_t limit_ns = BURST_NS / 100 * (int64_t)background->percent;
  if (background->refilled_ns == 0) background->refilled_ns = now_ns;
  int64_t passed_ns = now_ns - background->refilled_ns;
  background->refilled_ns = now_ns;
  if (passed_ns < 0) passed_ns = 0;
  // A debt may need longer than a burst.
  const int64_t day_ns = INT64_C(86400000000000);
  if (passed_ns > day_ns) passed_ns = day_ns;
  background->tokens_ns += passed_ns / 100 * (int64_t)background->percent;
  if (background->tokens_ns > limit_ns) background->tokens_ns = limit_ns;
}

static void remove_closed(qn__background_t* background) {
  for (qn__adaptive_t** at = &background->first; *at;) {
    qn__adaptive_t* adaptive = *at;
    if (!qn__dispatch_is_closed(adaptive->dispatch)) {
      at = &adaptive->next;
      continue;
    }
    *at = adaptive->next;
    qn__adaptive_destroy(adaptive);
  }
}

// Without a budget the cache still has variants, which cost little.
static bool can_begin(const qn__background_t* background) {
  return !background->is_stopping && !background->is_exiting && background->max_variants > 0 &&
         (background->tokens_ns > 0 || background->percent == 0) &&
         atomic_load(&background->busy_count) == 0;
}

bool qn__background_step(qn__background_t* background) {
  qn_engine_t* engine = background->engine;
  qn__mutex_lock(&background->mutex);
  if (background->is_stopping) {
    qn__mutex_unlock(&background->mutex);
    return false;
  }
  int64_t now_ns = background->now_ns();
  refill(background, now_ns);
  remove_closed(background);
  qn__candidate_t best = {0};
  for (qn__adaptive_t* adaptive = background->first; adaptive; adaptive = adaptive->next) {
    qn__adaptive_update(adaptive, now_ns);
  }
  for (qn__adaptive_t* adaptive = background->first; adaptive; adaptive = adaptive->next) {
    qn__adaptive_choose(adaptive, now_ns, &best);
  }
  bool is_begun = best.adaptive && can_begin(background) && qn__candidate_begin(&best, now_ns);
  background->is_working = is_begun;
  qn__mutex_unlock(&background->mutex);
  if (!is_begun) return false;

  int64_t start_ns = background->cpu_ns();
  qn__candidate_make(&best);
  int64_t cost_ns = background->cpu_ns() - start_ns;
  qn__count(engine, QN__COUNTER_variants_cpu_ns, (uint64_t)cost_ns);

  qn__mutex_lock(&background->mutex);
  background->tokens_ns -= cost_ns;
  if (best.is_compiled) background->compile_cost_ns = (background->compile_cost_ns + cost_ns) / 2;
  if (!background->is_stopping) qn__candidate_end(&best, background->now_ns());
  background->is_working = false;
  qn__cond_broadcast(&background->changed);
  qn__mutex_unlock(&background->mutex);
  qn__candidate_drop(&best);
  return true;
}

// ------------------------------------------------------------------------------------ the thread

static void* work(void* arg) {
  qn__background_t* background = arg;
  qn_engine_t* engine = background->engine;
  qn__thread_lower_priority();
  qn__mutex_lock(&background->mutex);
  while (!background->is_stopping) {
    bool is_exiting = background->is_exiting;
    qn__mutex_unlock(&background->mutex);
    bool has_made = !is_exiting && qn__background_step(background);
    qn__mutex_lock(&background->mutex);
    if (has_made || background->is_stopping) continue;
    int64_t until_ns = background->first && !background->is_exiting
                           ? qn__now_ns() + background->period_ns
                           : INT64_MAX;
    (void)qn__cond_wait_until(&background->changed, &background->mutex, until_ns);
  }
  background->has_thread = false;
  qn__cond_broadcast(&background->changed);
  qn__mutex_unlock(&background->mutex);
  qn__engine_release(engine);
  return NULL;
}

// The caller holds the mutex.
static qn_status_t start(qn__background_t* background) {
  if (background->has_thread || background->is_manual) return QN_OK;
  qn__engine_retain(background->engine);
  qn_status_t status =
      qn__thread_start(&background->thread, "quern-variants", STACK_BYTES, work, background);
  background->has_thread = qn_ok(status);
  if (!qn_ok(status)) qn__engine_release(background->engine);
  return status;
}

qn_status_t qn__background_add(qn__background_t* background, qn__adaptive_t* adaptive) {
  qn__mutex_lock(&background->mutex);
  qn_status_t status = QN_OK;
  if (background->is_stopping) {
    status = qn_status_make(QN_STATUS_CANCELLED, "the engine is being destroyed");
  } else {
    status = start(background);
  }
  if (qn_ok(status)) {
    atomic_store(&background->needs_thread, false);
    adaptive->next = background->first;
    background->first = adaptive;
    qn__cond_broadcast(&background->changed);
  }
  qn__mutex_unlock(&background->mutex);
  return status;
}

bool qn__background_stop(qn__background_t* background, int64_t grace_ns) {
  if (!background->fork_node.self) return true;
  int64_t deadline_ns = qn__after(qn__now_ns(), grace_ns);
  qn__mutex_lock(&background->mutex);
  background->is_stopping = true;
  for (qn__adaptive_t* adaptive = background->first; adaptive; adaptive = adaptive->next) {
    qn__dispatch_freeze(adaptive->dispatch);
  }
  bool was_started = background->has_thread;
  qn__cond_broadcast(&background->changed);
  bool is_in_time = true;
  while (background->has_thread && is_in_time) {
    is_in_time = qn__cond_wait_until(&background->changed, &background->mutex, deadline_ns);
  }
  bool has_ended = !background->has_thread;
  qn__mutex_unlock(&background->mutex);
  if (was_started && has_ended) (void)pthread_join(background->thread, NULL);
  if (was_started && !has_ended) (void)pthread_detach(background->thread);
  return has_ended;
}

// ------------------------------------------------------------------------------------ the program

void qn_engine_busy_begin(qn_engine_t* engine) {
  if (!engine) return;
  (void)atomic_fetch_add(&engine->background.busy_count, 1);
}

void qn_engine_busy_end(qn_engine_t* engine) {
  if (!engine) return;
  qn__background_t* background = &engine->background;
  uint32_t old = atomic_load(&background->busy_count);
  // One end too many changes nothing.
  while (old > 0 && !atomic_compare_exchange_weak(&background->busy_count, &old, old - 1)) {
  }
  if (!atomic_load_explicit(&background->needs_thread, memory_order_relaxed)) return;
  qn__mutex_lock(&background->mutex);
  if (atomic_exchange(&background->needs_thread, false) && !background->is_stopping) {
    qn_status_t status = start(background);
    if (!qn_ok(status)) qn__log(QN_LOG_WARN, "no variants are made: %s", qn_status_message(status));
    qn_status_free(status);
  }
  qn__mutex_unlock(&background->mutex);
}
