// tests/soak/worker.c: what one process of a soak does: threads that get, put, look up, call,
// claim, sweep and fork on one directory, in epochs, after each of which everything is closed and
// counted.
//
// Every answer is held against the oracle: the bytes of an entry follow from its number, and so do
// the results of a kernel. Thread rule: a worker's threads share two directory objects and two
// engines. Read next: damage.c.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "cache/bundle_write.h"
#include "quern/quern.h"
#include "tests/soak/soak.h"
#include "tests/support/fault.h"
#include "tests/unit/cache/support.h"

#define MILLISECOND_NS INT64_C(1000000)
// What takes longer hangs: shorter than what the conductor bears on a slow machine.
#define GRACE_NS (INT64_C(400000) * MILLISECOND_NS)
#define CHILD_SECONDS 500

static sample_t samples[SOAK_SAMPLES];

void soak_make_samples(void) {
  // Sizes from nothing to 96 KiB, so that the bound holds a fifth of them.
  for (unsigned i = 0; i < SOAK_SAMPLES; i++)
    sample_make(&samples[i], i, (i % 16) * i % 24 * 4096u + i);
}

void soak_free_samples(void) {
  for (unsigned i = 0; i < SOAK_SAMPLES; i++) sample_free(&samples[i]);
}

typedef struct process {
  unsigned index;
  uint64_t seed;
  unsigned rounds;
  qn_fault_heap_t heap;
  qn__disk_t* disks[2];
  qn_engine_t* engines[2];
  uint64_t reported[2][5];  // of the counters that report_counters adds to the shared page
} process_t;

typedef struct thread {
  process_t* process;
  unsigned number;
  uint64_t random;
  pthread_t id;
} thread_t;

// ------------------------------------------------------------------------------- entries by hand

static bool is_hit_right(const sample_t* sample, qn__hit_t* hit, const char* by) {
  if (sample_equals(sample, &hit->entry)) return true;
  soak_violation("%s: an entry with other bytes than those that were put (sample of %zu bytes)", by,
                 sample->entry.payload.size);
  return false;
}

static void count_get(qn__get_result_t result) {
  switch (result) {
    case QN__GET_HIT:
      SOAK_COUNT(hits);
      break;
    case QN__GET_ABSENT:
      SOAK_COUNT(absent);
      break;
    case QN__GET_BAD:
      SOAK_COUNT(refused);
      break;
    default:
      SOAK_COUNT(unreadable);
  }
}

static void get_one(qn__disk_t* disk, const sample_t* sample) {
  qn__hit_t hit;
  qn__get_result_t result = qn__disk_get(disk, &sample->expected, &hit);
  count_get(result);
  if (result == QN__GET_HIT) (void)is_hit_right(sample, &hit, "get");
  qn__disk_hit_release(disk, &hit);
}

static void inspect_one(qn__disk_t* disk, const sample_t* sample, bool heals) {
  qn__hit_t hit;
  if (qn__disk_inspect(disk, sample->entry.key, heals, &hit, NULL) == QN__GET_HIT) {
    (void)is_hit_right(sample, &hit, "inspect");
  }
  qn__disk_hit_release(disk, &hit);
}

static void claim_one(thread_t* thread, qn__disk_t* disk, const sample_t* sample) {
  qn__hit_t hit;
  qn__lease_t* lease = NULL;
  int64_t deadline_ns = qn__now_ns() + soak_random(&thread->random, 200) * MILLISECOND_NS;
  if (qn__disk_claim(disk, &sample->expected, deadline_ns, &hit, &lease) == QN__GET_HIT) {
    SOAK_COUNT(claims_answered);
    (void)is_hit_right(sample, &hit, "claim");
    qn__disk_hit_release(disk, &hit);
    return;
  }
  if (lease) {
    SOAK_COUNT(claims_held);
    // A compile takes its time.
    struct timespec pause = {.tv_nsec = soak_random(&thread->random, 8000000)};
    (void)nanosleep(&pause, NULL);
  } else {
    SOAK_COUNT(claims_without);
  }
  if (soak_random(&thread->random, 4) == 0) {
    qn__lease_release(lease);
  } else {
    (void)qn__disk_put(disk, &sample->entry, lease);
  }
}

static bool see_file(void* self, const qn__disk_file_t* file) {
  (void)file;
  return ++*(unsigned*)self < 100000;
}

// ------------------------------------------------------------------------------------- bundles

void soak_bundle_path(unsigned number, char out[SOAK_PATH_SIZE]) {
  (void)snprintf(out, SOAK_PATH_SIZE, "%s.bundle%u", soak_options.root, number);
}

// Bundles are replaced, grown and damaged all the time; whatever opens gives right bytes or misses.
static void read_bundle(thread_t* thread) {
  char path[SOAK_PATH_SIZE];
  soak_bundle_path(soak_random(&thread->random, SOAK_BUNDLES), path);
  qn__bundle_options_t options = {.allocator = qn_fault_heap_allocator(&thread->process->heap),
                                  .path = path};
  qn__bundle_t* bundle;
  qn_status_t status = qn__bundle_open(&options, &bundle);
  for (int i = 0; bundle && i < 10; i++) {
    const sample_t* sample = &samples[soak_random(&thread->random, SOAK_SAMPLES)];
    qn__hit_t hit;
    if (qn__bundle_get(bundle, &sample->expected, &hit) == QN__GET_HIT) {
      SOAK_COUNT(bundle_hits);
      (void)is_hit_right(sample, &hit, "bundle");
    }
    qn__bundle_hit_release(bundle, &hit);
  }
  qn_status_free(status);
  qn__bundle_close(bundle);
}

// A status is an answer here: the directory may be empty, and another process at the same bundle.
static void write_bundle(thread_t* thread, qn__disk_t* disk, bool is_appending) {
  char path[SOAK_PATH_SIZE];
  soak_bundle_path(soak_random(&thread->random, SOAK_BUNDLES), path);
  qn__bundle_source_t source = {.disk = disk};
  qn__bundle_export_options_t options = {
      .write = {.allocator = qn_fault_heap_allocator(&thread->process->heap),
                .path = path,
                .is_appending = is_appending}};
  qn__bundle_export_report_t report;
  qn_status_free(qn__bundle_export(&source, 1, &options, &report));
}

// ------------------------------------------------------------------------------------- lookups

static qn_module_t* parse_module(unsigned number) {
  char text[160];
  (void)snprintf(text, sizeof text,
                 "func f(x: i32[n], out y: i32[n]) { for i in 0..n { y[i] = x[i] * %u + %u; } }\n",
                 number + 3, number * 7);
  qn_module_t* module;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) soak_violation("parse: %s", qn_status_message(status));
  qn_status_free(status);
  return module;
}

static void call_kernel(thread_t* thread, qn_function_t* function, unsigned number) {
  enum { COUNT = 37 };
  int32_t x[COUNT], y[COUNT];
  for (int i = 0; i < COUNT; i++) {
    x[i] = (int32_t)soak_random(&thread->random, 10000);
    y[i] = -1;
  }
  int64_t shape[] = {COUNT};
  qn_dl_dtype_t dtype = qn_dtype_to_dl(QN_DTYPE_I32);
  qn_tensor_t tx = {x, {QN_DEVICE_CPU, 0}, 1, dtype, shape, NULL, 0};
  qn_tensor_t ty = {y, {QN_DEVICE_CPU, 0}, 1, dtype, shape, NULL, 0};
  qn_value_t args[] = {qn_tensor_value(&tx), qn_tensor_value(&ty)};
  qn_status_t status = qn_function_call(function, args, 2, NULL);
  if (!qn_ok(status)) soak_violation("call: %s", qn_status_message(status));
  qn_status_free(status);
  for (int i = 0; i < COUNT; i++) {
    int32_t wanted = x[i] * (int32_t)(number + 3) + (int32_t)number * 7;
    if (y[i] != wanted) {
      soak_violation("module %u gives %d, not %d, for %d", number, y[i], wanted, x[i]);
      return;
    }
  }
  SOAK_COUNT(called);
}

static qn_target_t* parse_target(const char* text) {
  qn_target_t* target;
  qn_status_t status = qn_target_parse(text, &target);
  if (!qn_ok(status)) soak_violation("target: %s", qn_status_message(status));
  qn_status_free(status);
  return target;
}

static void count_source(qn_source_t source) {
  if (source == QN_SOURCE_MEMORY) {
    SOAK_COUNT(found_in_memory);
  } else if (source == QN_SOURCE_COMPILED) {
    SOAK_COUNT(compiled);
  } else if (source == QN_SOURCE_BUNDLE) {
    SOAK_COUNT(found_in_bundles);
  } else {
    SOAK_COUNT(found_on_disk);
  }
}

// `unloads`: the engine forgets it first, so that the directory is asked.
static void look_up_one(thread_t* thread, qn_engine_t* engine, unsigned number, bool is_native,
                        bool unloads) {
  qn_module_t* module = parse_module(number);
  qn_target_t* target = parse_target(is_native ? "cpu" : "interp");
  qn_lookup_options_t options = {.struct_size = sizeof options, .tier = QN_TIER_FAST};
  if (unloads) (void)qn_engine_unload(engine, module, target, &options);
  qn_lookup_info_t info;
  qn_function_t* function = NULL;
  qn_status_t status = qn_engine_function(engine, module, target, "f", &options, &info, &function);
  if (qn_ok(status)) {
    count_source(info.source);
    call_kernel(thread, function, number);
  } else {
    soak_violation("lookup of module %u for %s: %s", number, is_native ? "cpu" : "interp",
                   qn_status_message(status));
  }
  qn_status_free(status);
  qn_function_release(function);
  qn_target_release(target);
  qn_module_release(module);
}

static void look_up(thread_t* thread, bool unloads) {
  qn_engine_t* engine = thread->process->engines[soak_random(&thread->random, 2)];
  unsigned number = soak_random(&thread->random, SOAK_MODULES);
  bool is_native = soak_options.has_compiler && soak_random(&thread->random, 3) == 0;
  look_up_one(thread, engine, number, is_native, unloads);
}

// What a lookup may answer that waits for a bounded time, is cancelled, or may not compile.
static bool is_late(qn_status_t status) {
  qn_status_code_t code = qn_status_code(status);
  return code == QN_STATUS_DEADLINE_EXCEEDED || code == QN_STATUS_CANCELLED ||
         code == QN_STATUS_COMPILE_FORBIDDEN;
}

// Takes the status and the function.
static void judge_late(thread_t* thread, const char* what, unsigned number, qn_status_t status,
                       qn_function_t* function) {
  if (qn_ok(status)) {
    call_kernel(thread, function, number);
  } else if (is_late(status)) {
    SOAK_COUNT(late);
  } else {
    soak_violation("%s of module %u: %s", what, number, qn_status_message(status));
  }
  qn_status_free(status);
  qn_function_release(function);
}

static void count_ready(void* self) {
  (void)self;
}

// Waits a little, cancels, or just goes away.
static void ask_and_wait(thread_t* thread, unsigned number, qn_pending_t* pending) {
  unsigned how = soak_random(&thread->random, 4);
  if (how == 0) qn_pending_cancel(pending);
  if (how == 1) qn_pending_notify(pending, count_ready, NULL);
  for (int i = 0; how > 1 && i < 2; i++) {
    qn_function_t* function = NULL;
    int64_t timeout_ns = soak_random(&thread->random, 20) * MILLISECOND_NS;
    qn_status_t status = qn_pending_wait(pending, timeout_ns, NULL, &function);
    judge_late(thread, "request", number, status, function);
  }
}

// Lookups that do not want to wait long, or at all.
static void look_up_in_a_hurry(thread_t* thread, bool is_request) {
  qn_engine_t* engine = thread->process->engines[soak_random(&thread->random, 2)];
  unsigned number = soak_random(&thread->random, SOAK_MODULES);
  bool is_native = soak_options.has_compiler && soak_random(&thread->random, 3) == 0;
  qn_module_t* module = parse_module(number);
  qn_target_t* target = parse_target(is_native ? "cpu" : "interp");
  qn_lookup_options_t options = {.struct_size = sizeof options,
                                 .tier = QN_TIER_FAST,
                                 .miss = (qn_miss_policy_t)soak_random(&thread->random, 3),
                                 .timeout_ns = 1 + soak_random(&thread->random, 8000000),
                                 .priority = (int32_t)soak_random(&thread->random, 3)};
  (void)qn_engine_unload(engine, module, target, &options);
  if (is_request) {
    qn_pending_t* pending = NULL;
    qn_status_t status = qn_engine_request(engine, module, target, "f", &options, &pending);
    if (!qn_ok(status)) soak_violation("request: %s", qn_status_message(status));
    qn_status_free(status);
    if (pending) ask_and_wait(thread, number, pending);
    qn_pending_release(pending);
  } else {
    qn_function_t* function = NULL;
    qn_status_t status = qn_engine_function(engine, module, target, "f", &options, NULL, &function);
    judge_late(thread, "hurried lookup", number, status, function);
  }
  qn_target_release(target);
  qn_module_release(module);
}

// --------------------------------------------------------------------------------- opening, fork

static qn__disk_t* open_disk(process_t* process, uint64_t random) {
  qn__disk_options_t options = {.allocator = qn_fault_heap_allocator(&process->heap),
                                .root = soak_options.root,
                                .max_bytes = SOAK_MAX_BYTES,
                                .max_entries = SOAK_MAX_ENTRIES,
                                .min_free_bytes = 1,
                                .lock_timeout_ns = 300 * MILLISECOND_NS,
                                .latch_ns = 50 * MILLISECOND_NS,
                                .sweep_period_ns = 100 * MILLISECOND_NS};
  if (random % 4 == 0) options.max_queue_bytes = 100000;
  // A wipe between the making of the root and the look at it is an error of the open, not of a get.
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

// Half of the engines do; the one that compiles afresh to compare does not.
static bool uses_bundles(const process_t* process) {
  return process->seed % 2 == 1;
}

static qn_engine_t* open_engine(process_t* process) {
  char bundles[SOAK_BUNDLES * SOAK_PATH_SIZE] = "";
  for (unsigned i = 0; i < SOAK_BUNDLES; i++) {
    char path[SOAK_PATH_SIZE];
    soak_bundle_path(i, path);
    if (i) (void)strcat(bundles, ":");
    (void)strcat(bundles, path);
  }
  const qn_setting_t settings[] = {{"bundles", uses_bundles(process) ? bundles : ""},
                                   {"cache_max_size", "1MiB"},
                                   {"cache_max_entries", "150"},
                                   {"cache_min_free", "1"},
                                   {"lock_timeout", "300ms"}};
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .allocator = qn_fault_heap_allocator(&process->heap),
                                 .cache_dir = soak_options.root,
                                 .cache_mode = QN_CACHE_RW,
                                 .ignores_environment = true,
                                 .settings = settings,
                                 .setting_count = QN_COUNT_OF(settings)};
  qn_engine_t* engine;
  qn_status_t status = qn_engine_create(&options, &engine);
  if (!qn_ok(status)) soak_violation("engine: %s", qn_status_message(status));
  qn_status_free(status);
  return engine;
}

static int work_in_child(thread_t* thread, qn__disk_t* disk) {
  process_t* process = thread->process;
  (void)alarm(CHILD_SECONDS);  // a child that hangs is killed, and seen
  bool is_flushed = qn__disk_flush(disk, GRACE_NS);
  if (SOAK_IS_SANITIZED) return is_flushed ? 0 : 41;
  const sample_t* sample = &samples[soak_random(&thread->random, SOAK_SAMPLES)];
  get_one(disk, sample);
  (void)qn__disk_put(disk, &sample->entry, NULL);
  look_up_one(thread, process->engines[0], soak_random(&thread->random, SOAK_MODULES), false, true);
  claim_one(thread, disk, sample);
  is_flushed = qn__disk_flush(disk, GRACE_NS);
  return is_flushed ? 0 : 42;
}

static void fork_one(thread_t* thread, qn__disk_t* disk) {
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

static void report_counters(process_t* process) {
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

static void operate(thread_t* thread, soak_operation_t operation) {
  process_t* process = thread->process;
  qn__disk_t* disk = process->disks[soak_random(&thread->random, 2)];
  const sample_t* sample = &samples[soak_random(&thread->random, SOAK_SAMPLES)];
  unsigned count = 0;
  switch (operation) {
    case SOAK_OP_get:
      get_one(disk, sample);
      break;
    case SOAK_OP_put:
      (void)qn__disk_put(disk, &sample->entry, NULL);
      break;
    case SOAK_OP_lookup:
    case SOAK_OP_unload:
      look_up(thread, operation == SOAK_OP_unload);
      break;
    case SOAK_OP_claim:
      claim_one(thread, disk, sample);
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
      (void)qn__disk_scan(disk, see_file, &count, NULL);
      break;
    case SOAK_OP_clear:
      (void)qn__disk_clear(disk);
      break;
    case SOAK_OP_inspect:
      inspect_one(disk, sample, soak_random(&thread->random, 2) == 0);
      break;
    case SOAK_OP_reopen: {
      // A short life beside the others: an object of its own, closed with what it has queued.
      qn__disk_t* other = open_disk(process, thread->random);
      if (!other) break;
      (void)qn__disk_put(other, &sample->entry, NULL);
      get_one(other, sample);
      qn__disk_close(other, GRACE_NS);
      break;
    }
    case SOAK_OP_fork:
      fork_one(thread, disk);
      break;
    case SOAK_OP_hurry:
    case SOAK_OP_request:
      look_up_in_a_hurry(thread, operation == SOAK_OP_request);
      break;
    case SOAK_OP_bundle:
      read_bundle(thread);
      break;
    case SOAK_OP_export:
    case SOAK_OP_append:
      write_bundle(thread, disk, operation == SOAK_OP_append);
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
  thread_t* thread = arg;
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

static bool run_epoch(process_t* process) {
  qn_fault_heap_init(&process->heap);
  memset(process->reported, 0, sizeof process->reported);
  for (int i = 0; i < 2; i++) {
    process->disks[i] = open_disk(process, process->seed);
    process->engines[i] = open_engine(process);
    if (!process->disks[i] || !process->engines[i]) return false;
  }
  thread_t threads[SOAK_MAX_THREADS];
  unsigned started = 0;
  for (; started < soak_options.threads; started++) {
    threads[started] = (thread_t){.process = process, .number = started};
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
  // A thread that was left behind, on a machine that did not let it end in time, frees what it has.
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
  static process_t process;
  process.index = index;
  int epochs = 2 + (int)soak_random(&seed, 8), descriptors = 0;
  for (int epoch = 0; epoch < epochs && !is_to_end(); epoch++) {
    process.seed = seed + (uint64_t)epoch;
    process.rounds = 50 + soak_random(&seed, 400);
    if (!run_epoch(&process)) break;
    // The first epoch may have opened what stays open, like the source of the system's entropy.
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

// ------------------------------------------------------------------------------------ verifying

static void put_all(void) {
  qn__disk_options_t options = {.root = soak_options.root, .sweep_period_ns = -1};
  qn__disk_t* disk;
  qn_status_t status = qn__disk_open(&options, &disk);
  if (!qn_ok(status)) soak_violation("open when all is quiet: %s", qn_status_message(status));
  qn_status_free(status);
  if (!disk) return;
  for (unsigned i = 0; i < SOAK_SAMPLES; i++) {
    get_one(disk, &samples[i]);
    if (!put_and_wait(disk, &samples[i])) soak_violation("a put when all is quiet did not succeed");
    qn__hit_t hit;
    qn__get_result_t result = qn__disk_get(disk, &samples[i].expected, &hit);
    if (result != QN__GET_HIT) {
      soak_violation("a get after a put when all is quiet gives %d", (int)result);
    } else if (is_hit_right(&samples[i], &hit, "get when all is quiet")) {
      qn__disk_hit_release(disk, &hit);
    }
  }
  soak_age_temporaries();
  uint64_t temporaries = 0;
  unsigned count = 0;
  if (!qn__disk_sweep(disk) || qn__disk_scan(disk, see_file, &count, &temporaries) != 0) {
    soak_violation("a sweep when all is quiet did not succeed");
  }
  if (temporaries) {
    soak_violation("%llu temporary files are left after a sweep", (unsigned long long)temporaries);
  }
  qn__disk_close(disk, GRACE_NS);
}

static bool is_equal(qn_span_t a, qn_span_t b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

typedef struct comparison {
  qn__disk_t* fresh;
  qn__disk_t* soaked;
} comparison_t;

static bool compare_entry(void* self, const qn__disk_file_t* file) {
  comparison_t* both = self;
  qn__hit_t wanted, found;
  if (qn__disk_inspect(both->fresh, file->key, false, &wanted, NULL) != QN__GET_HIT) return true;
  if (qn__disk_inspect(both->soaked, file->key, true, &found, NULL) == QN__GET_HIT) {
    if (!is_equal(wanted.entry.payload, found.entry.payload) ||
        !is_equal(wanted.entry.metadata, found.entry.metadata)) {
      soak_violation("an engine's entry has other bytes than a compile gives now");
    }
    SOAK_COUNT(hits);
  }
  qn__disk_hit_release(both->fresh, &wanted);
  qn__disk_hit_release(both->soaked, &found);
  return true;
}

// What engines have published in the soaked directory is what a compile now gives.
static void compare_with_fresh_compiles(void) {
  char directory[QN_TEST_PATH_SIZE];
  if (!qn_test_tempdir_make(directory)) return;
  char saved[QN_TEST_PATH_SIZE];
  memcpy(saved, soak_options.root, sizeof saved);
  memcpy(soak_options.root, directory, sizeof directory);
  static process_t process;
  qn_fault_heap_init(&process.heap);
  thread_t thread = {.process = &process, .random = 5};
  qn_engine_t* engine = open_engine(&process);
  for (unsigned i = 0; engine && i < SOAK_MODULES; i++) {
    look_up_one(&thread, engine, i, false, false);
    if (soak_options.has_compiler) look_up_one(&thread, engine, i, true, false);
  }
  if (engine) (void)qn_engine_flush(engine, GRACE_NS);
  qn_engine_destroy(engine);
  memcpy(soak_options.root, saved, sizeof saved);
  comparison_t both = {NULL, NULL};
  qn__disk_options_t options = {.root = directory, .sweep_period_ns = -1};
  qn_status_free(qn__disk_open(&options, &both.fresh));
  options.root = soak_options.root;
  qn_status_free(qn__disk_open(&options, &both.soaked));
  if (both.fresh && both.soaked) (void)qn__disk_scan(both.fresh, compare_entry, &both, NULL);
  qn__disk_close(both.fresh, GRACE_NS);
  qn__disk_close(both.soaked, GRACE_NS);
  qn_test_tempdir_remove(directory);
}

static void verify_again(void) {
  qn_cache_dir_t* dir;
  qn_cache_verify_report_t report;
  for (int round = 0; round < 2; round++) {
    qn_status_t status = qn_cache_dir_open(soak_options.root, &dir);
    if (qn_ok(status)) status = qn_cache_dir_verify(dir, true, NULL, NULL, &report);
    if (!qn_ok(status)) {
      soak_violation("verify: %s", qn_status_message(status));
    } else if (round == 1 && (report.bad_count || report.unreadable_count)) {
      soak_violation("%llu entries are bad after all were healed",
                     (unsigned long long)(report.bad_count + report.unreadable_count));
    }
    qn_cache_dir_close(dir);
    qn_status_free(status);
  }
}

void soak_verify_all(void) {
  soak_damage_undo();
  // In a child, so that this process stays one without threads and without a compiler.
  (void)fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    put_all();
    compare_with_fresh_compiles();
    verify_again();
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0) {
    soak_violation("the verifying process ended badly (%d)", status);
  }
  SOAK_COUNT(verified);
}
