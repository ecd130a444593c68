// SPDX-License-Identifier: Apache-2.0
// tests/soak/worker.c: one worker process of a soak: threads that get, put, look up, call, claim,
// sweep and fork on one directory. After each epoch everything is closed and counted.
//
// Every answer is compared with the oracle. Thread rule: in worker.h. Elsewhere: the operations
// (entries.c, lookups.c), the final check (verify.c).
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/soak/worker.h"

// A child of fork that takes longer hangs (see GRACE_NS).
#define CHILD_SECONDS 500

// --------------------------------------------------------------------------------- opening, fork

static qn__disk_t* open_disk(soak_process_t* process, uint64_t random) {
  qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&process->heap),
                                .root = soak_options.root,
                                .max_bytes = SOAK_MAX_BYTES,
                                .max_entries = SOAK_MAX_ENTRIES,
                                .min_free_bytes = 1,
                                .lock_timeout_ns = 300 * MILLISECOND_NS,
                                .latch_ns = 50 * MILLISECOND_NS,
                                .sweep_period_ns = 100 * MILLISECOND_NS};
  if (random % 4 == 0) options.max_queue_bytes = 100000;
  // If a wipe hits between creating and checking the root, the open fails, not a get.
  for (int attempt = 0;; attempt++) {
    qn__disk_t* disk;
    qn_status_t status = qn__disk_open(&options, &disk);
    if (disk) return disk;
    if (attempt == 100000) soak_violation("open: %s", qn_status_message(status));
    qn_status_free(status);
    if (attempt == 100000) return NULL;
    struct timespec pause = {.tv_nsec = 1000000};
    (void)nanosleep(&pause, NULL);
  }
}

static int work_in_child(soak_thread_t* thread, qn__disk_t* disk) {
  soak_process_t* process = thread->process;
  (void)alarm(CHILD_SECONDS);  // kills a child that hangs, which is then reported
  bool is_flushed = qn__disk_flush(disk, GRACE_NS);
  if (SOAK_IS_SANITIZED) return is_flushed ? 0 : 41;
  const sample_t* sample = &soak_samples[soak_random(&thread->random, SOAK_SAMPLES)];
  soak_get_one(disk, sample);
  (void)qn__disk_put(disk, &sample->entry, NULL);
  soak_look_up_one(thread, process->engines[0], soak_random(&thread->random, SOAK_MODULES), false,
                   true);
  soak_claim_one(thread, disk, sample);
  is_flushed = qn__disk_flush(disk, GRACE_NS);
  return is_flushed ? 0 : 42;
}

static void fork_one(soak_thread_t* thread, qn__disk_t* disk) {
  pid_t child = fork();
  if (child == 0) _exit(work_in_child(thread, disk));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return;
  if (WIFSIGNALED(status)) soak_violation("a child of fork ended by signal %d", WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    soak_violation("a child of fork ended with status %d", WEXITSTATUS(status));
  }
}

// -------------------------------------------------------------------------------------- one epoch

static void report_counters(soak_process_t* process) {
  static const char* const names[] = {"disk_healed", "publish_done", "sweep_evicted",
                                      "sweep_temporaries", "publish_latched"};
  static const soak_event_t events[] = {SOAK_EVENT_healed, SOAK_EVENT_published, SOAK_EVENT_evicted,
                                        SOAK_EVENT_temporaries_swept, SOAK_EVENT_latched};
  for (int d = 0; d < 2; d++) {
    for (size_t i = 0; i < QN_COUNT_OF(names); i++) {
      uint64_t value = qn__disk_counter(process->disks[d], names[i]);
      (void)atomic_fetch_add(&soak_shared->events[events[i]], value - process->reported[d][i]);
      process->reported[d][i] = value;
    }
  }
}

static void operate(soak_thread_t* thread, soak_operation_t operation) {
  soak_process_t* process = thread->process;
  qn__disk_t* disk = process->disks[soak_random(&thread->random, 2)];
  const sample_t* sample = &soak_samples[soak_random(&thread->random, SOAK_SAMPLES)];
  unsigned count = 0;
  switch (operation) {
    case SOAK_OP_get:
      soak_get_one(disk, sample);
      break;
    case SOAK_OP_put:
      (void)qn__disk_put(disk, &sample->entry, NULL);
      break;
    case SOAK_OP_lookup:
    case SOAK_OP_unload:
      soak_look_up(thread, operation == SOAK_OP_unload);
      break;
    case SOAK_OP_claim:
      soak_claim_one(thread, disk, sample);
      break;
    case SOAK_OP_flush:
      (void)qn__disk_flush(disk, soak_random(&thread->random, 20) * MILLISECOND_NS);
      break;
    case SOAK_OP_remove:
      (void)qn__disk_remove(disk, sample->entry.key);
      break;
    case SOAK_OP_sweep:
      (void)qn__disk_sweep(disk);
      break;
    case SOAK_OP_scan:
      (void)qn__disk_scan(disk, soak_see_file, &count, NULL);
      break;
    case SOAK_OP_clear:
      (void)qn__disk_clear(disk);
      break;
    case SOAK_OP_inspect:
      soak_inspect_one(disk, sample, soak_random(&thread->random, 2) == 0);
      break;
    case SOAK_OP_reopen: {
      // A short-lived directory object, closed with queued puts.
      qn__disk_t* other = open_disk(process, thread->random);
      if (!other) break;
      (void)qn__disk_put(other, &sample->entry, NULL);
      soak_get_one(other, sample);
      qn__disk_close(other, GRACE_NS);
      break;
    }
    case SOAK_OP_fork:
      fork_one(thread, disk);
      break;
    case SOAK_OP_hurry:
    case SOAK_OP_request:
      soak_look_up_in_a_hurry(thread, operation == SOAK_OP_request);
      break;
    case SOAK_OP_bundle:
      soak_read_bundle(thread);
      break;
    case SOAK_OP_export:
    case SOAK_OP_append:
      soak_write_bundle(thread, disk, operation == SOAK_OP_append);
      break;
    case SOAK_OP_COUNT:
      break;
  }
}

static const unsigned weights[SOAK_OP_COUNT] = {
#define X(name, weight) weight,
    SOAK_OPERATIONS(X)
#undef X
};

static bool is_to_end(void) {
  return atomic_load(&soak_shared->is_ending) || atomic_load(&soak_shared->is_violated);
}

static void* run_thread(void* arg) {
  soak_thread_t* thread = arg;
  soak_slot_t* slot = &soak_shared->slots[thread->process->index][thread->number];
  for (unsigned i = 0; i < thread->process->rounds && !is_to_end(); i++) {
    soak_operation_t operation =
        (soak_operation_t)soak_pick(&thread->random, weights, SOAK_OP_COUNT);
    int64_t begin_ns = qn__now_ns();
    atomic_store(&slot->operation, (int)operation);
    atomic_store(&slot->since_ns, begin_ns);
    operate(thread, operation);
    atomic_store(&slot->since_ns, 0);
    (void)atomic_fetch_add(&soak_shared->operations[operation], 1);
    int64_t took_ns = qn__now_ns() - begin_ns;
    if (took_ns > atomic_load(&soak_shared->longest_ns[operation])) {
      atomic_store(&soak_shared->longest_ns[operation], took_ns);
    }
    if (thread->number == 0 && i % 16 == 0) report_counters(thread->process);
  }
  return NULL;
}

static bool run_epoch(soak_process_t* process) {
  qn_fault_heap_init(&process->heap);
  memset(process->reported, 0, sizeof process->reported);
  for (int i = 0; i < 2; i++) {
    process->disks[i] = open_disk(process, process->seed);
    process->engines[i] = soak_open_engine(process);
    if (!process->disks[i] || !process->engines[i]) return false;
  }
  soak_thread_t threads[SOAK_MAX_THREADS];
  unsigned started = 0;
  for (; started < soak_options.threads; started++) {
    threads[started] = (soak_thread_t){.process = process, .number = started};
    threads[started].random = process->seed * 31 + started;
    qn_status_t status =
        qn__thread_start(&threads[started].id, "soak", 0, run_thread, &threads[started]);
    if (qn_status_consume(status) != QN_STATUS_OK) break;
  }
  for (unsigned i = 0; i < started; i++) (void)pthread_join(threads[i].id, NULL);
  report_counters(process);
  for (int i = 0; i < 2; i++) {
    qn__disk_close(process->disks[i], GRACE_NS);
    qn_engine_destroy(process->engines[i]);
  }
  // On a slow machine an abandoned thread may still have to free its memory.
  for (int64_t end_ns = qn__now_ns() + GRACE_NS;
       process->heap.live_blocks > 0 && qn__now_ns() < end_ns;) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  long blocks = process->heap.live_blocks, size_errors = process->heap.size_errors;
  if (blocks || size_errors) {
    soak_violation("after an epoch %ld blocks of memory are left, %ld had a wrong size", blocks,
                   size_errors);
  }
  SOAK_COUNT(epochs);
  return true;
}

int soak_work(unsigned index, uint64_t seed) {
  static soak_process_t process;
  process.index = index;
  int epochs = 2 + (int)soak_random(&seed, 8), descriptors = 0;
  for (int epoch = 0; epoch < epochs && !is_to_end(); epoch++) {
    process.seed = seed + (uint64_t)epoch;
    process.rounds = 50 + soak_random(&seed, 400);
    if (!run_epoch(&process)) break;
    // The first epoch may open descriptors that stay open, such as the system's entropy source.
    int open_now = qn_test_descriptor_count();
    if (epoch == 0) descriptors = open_now;
    for (int64_t end_ns = qn__now_ns() + GRACE_NS;
         open_now > descriptors && qn__now_ns() < end_ns;) {
      (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
      open_now = qn_test_descriptor_count();
    }
    if (open_now > descriptors) {
      soak_violation("after an epoch %d descriptors are open, not %d", open_now, descriptors);
    }
  }
  return 0;
}
