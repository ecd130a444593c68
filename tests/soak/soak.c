// SPDX-License-Identifier: Apache-2.0
// tests/soak/soak.c: a stress test: many processes and threads use one cache directory that is
// damaged, wiped and swept all the time, while users are killed and stopped.
//
//   soak --seconds 600 --processes 8 --threads 3 --seed 1 [--dir DIR] [--json FILE]
//
// The oracle knows the right bytes of every entry and the right result of every call, and
// recompiles entries that engines published. A violation of a requirement ends the soak with status
// 1, the seed and a description. Requirements:
//   1. no wrong byte and no wrong result;
//   2. no error from a lookup;
//   3. no operation longer than --patience (60 s);
//   4. the directory returns below its size bound;
//   5. no leaked descriptor, memory or temporary file.
//
// The time limit of 3 starts only after the machine has completed as many operations as an idle
// core does in a second or two. Ten times the limit is a violation on any machine.
//
// This file starts, kills, stops and reaps the workers, triggers damage, watches the clock, and
// prints one table and JSON. Elsewhere: the workers (worker.c), the damage (damage.c).
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "quern/quern.h"
#include "tests/soak/soak.h"

#define TICK_NS 2000000
#define SECOND_NS INT64_C(1000000000)
// The size bound may be exceeded between two sweeps. Exceeding it for longer means that no sweep
// runs.
#define BOUND_PATIENCE_NS (30 * SECOND_NS)
// A time limit counts only after so many operations have completed: a slow machine is not a defect.
#define PATIENCE_OPERATIONS 5000
#define SLOWNESS 10

soak_options_t soak_options = {.seconds = 10,
                               .processes = 4,
                               .threads = 3,
                               .seed = 1,
                               .patience_ns = 60 * SECOND_NS,
                               .has_compiler = QN_HAVE_LLVM};
soak_shared_t* soak_shared;

typedef struct worker {
  pid_t pid;
  bool is_doomed;     // killed by this process
  int64_t resume_ns;  // stopped until then; 0: running
  int64_t started_ns;
} worker_t;

static worker_t workers[SOAK_MAX_PROCESSES];
static uint64_t worker_serial;
static uint64_t peak_bytes, peak_entries;

uint32_t soak_random(uint64_t* state, uint32_t bound) {
  uint64_t x = *state ? *state : UINT64_C(0x9E3779B97F4A7C15);
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  *state = x;
  return bound ? (uint32_t)((x >> 24) % bound) : 0;
}

int soak_pick(uint64_t* state, const unsigned* weights, int count) {
  unsigned total = 0;
  for (int i = 0; i < count; i++) total += weights[i];
  unsigned point = soak_random(state, total);
  for (int i = 0; i < count; i++) {
    if (point < weights[i]) return i;
    point -= weights[i];
  }
  return count - 1;
}

void soak_violation(const char* format, ...) {
  if (atomic_exchange(&soak_shared->is_claimed, true)) return;
  va_list args;
  va_start(args, format);
  (void)vsnprintf(soak_shared->violation, sizeof soak_shared->violation, format, args);
  va_end(args);
  atomic_store(&soak_shared->is_violated, true);
}

// ------------------------------------------------------------------------------------- processes

static void start_worker(unsigned index) {
  for (unsigned t = 0; t < SOAK_MAX_THREADS; t++) soak_shared->slots[index][t].since_ns = 0;
  uint64_t seed = soak_options.seed * UINT64_C(1000003) + ++worker_serial;
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    int status = soak_work(index, seed);
    // Some workers flush their queue before they exit, others exit at once.
    if (status == 0 && seed % 2) exit(0);
    _exit(status);
  }
  if (pid < 0) return;  // the process table is full; the next tick tries again
  workers[index] = (worker_t){.pid = pid, .started_ns = qn__now_ns()};
  SOAK_COUNT(starts);
}

static void kill_worker(worker_t* worker) {
  if (!worker->pid || worker->is_doomed) return;
  worker->is_doomed = true;
  (void)kill(worker->pid, SIGKILL);
  SOAK_COUNT(kills);
}

static void judge(pid_t pid, int status, bool is_doomed, const char* who) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (is_doomed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    // This signal does not come from a defect: LeakSanitizer's helper process gets it if its worker
    // is killed during the search for leaks.
    SOAK_COUNT(kills_by_others);
  } else if (WIFSIGNALED(status)) {
    soak_violation("%s %d ended by signal %d", who, (int)pid, WTERMSIG(status));
  } else {
    soak_violation("%s %d ended with status %d", who, (int)pid, WEXITSTATUS(status));
  }
}

// Reaps processes that ended: workers, and orphaned children of killed workers.
static void reap(void) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    worker_t* worker = NULL;
    for (unsigned i = 0; i < soak_options.processes && !worker; i++) {
      if (workers[i].pid == pid) worker = &workers[i];
    }
    if (worker) {
      judge(pid, status, worker->is_doomed, "worker");
      if (WIFEXITED(status)) SOAK_COUNT(exits);
      worker->pid = 0;
    } else {
      judge(pid, status, false, "child of a killed worker");
      SOAK_COUNT(kills_of_orphans);
    }
  }
}

static void stop_worker(worker_t* worker, int64_t now_ns, uint64_t* random) {
  if (!worker->pid || worker->is_doomed || worker->resume_ns) return;
  worker->resume_ns = now_ns + (50 + (int64_t)soak_random(random, 1500)) * 1000000;
  (void)kill(worker->pid, SIGSTOP);
  SOAK_COUNT(stops);
}

static void resume_workers(int64_t now_ns, bool is_all) {
  for (unsigned i = 0; i < soak_options.processes; i++) {
    worker_t* worker = &workers[i];
    if (!worker->resume_ns || (!is_all && now_ns < worker->resume_ns)) continue;
    worker->resume_ns = 0;
    if (worker->pid) (void)kill(worker->pid, SIGCONT);
  }
}

// -------------------------------------------------------------------------------------- watching

static const char* const operation_names[] = {
#define X(name, weight) #name,
    SOAK_OPERATIONS(X)
#undef X
};

static uint64_t count_operations(void) {
  uint64_t count = 0;
  for (int i = 0; i < SOAK_OP_COUNT; i++) count += atomic_load(&soak_shared->operations[i]);
  return count;
}

// Returns whether an operation takes too long, by its start time and the number of operations
// completed at that time.
static bool is_too_long(int64_t since_ns, uint64_t since_operations, int64_t patience_ns,
                        int64_t now_ns) {
  if (now_ns - since_ns <= patience_ns) return false;
  return now_ns - since_ns > SLOWNESS * patience_ns ||
         count_operations() - since_operations >= PATIENCE_OPERATIONS;
}

static void watch_clocks(int64_t now_ns) {
  // The last observed operation of each slot, and the number of operations completed at that time.
  static struct {
    int64_t since_ns;
    uint64_t operations;
  } seen[SOAK_MAX_PROCESSES][SOAK_MAX_THREADS];
  for (unsigned i = 0; i < soak_options.processes; i++) {
    if (!workers[i].pid || workers[i].is_doomed) continue;
    for (unsigned t = 0; t < soak_options.threads; t++) {
      soak_slot_t* slot = &soak_shared->slots[i][t];
      int64_t since_ns = atomic_load(&slot->since_ns);
      if (seen[i][t].since_ns != since_ns) {
        seen[i][t].since_ns = since_ns;
        seen[i][t].operations = count_operations();
      }
      if (!since_ns ||
          !is_too_long(since_ns, seen[i][t].operations, soak_options.patience_ns, now_ns)) {
        continue;
      }
      soak_violation("process %d, thread %u: %s takes longer than %lld s", (int)workers[i].pid, t,
                     operation_names[atomic_load(&slot->operation)],
                     (long long)((now_ns - since_ns) / SECOND_NS));
      // Abort it, so that a core file shows where it waits.
      (void)kill(workers[i].pid, SIGABRT);
    }
  }
}

static void watch_size(int64_t now_ns) {
  static int64_t above_since_ns;
  static uint64_t above_since_operations;
  uint64_t count;
  uint64_t bytes = soak_measure(&count);
  if (bytes > peak_bytes) peak_bytes = bytes;
  if (count > peak_entries) peak_entries = count;
  if (bytes <= SOAK_MAX_BYTES && count <= SOAK_MAX_ENTRIES) {
    above_since_ns = 0;
  } else if (!above_since_ns) {
    above_since_ns = now_ns;
    above_since_operations = count_operations();
  } else if (is_too_long(above_since_ns, above_since_operations, BOUND_PATIENCE_NS, now_ns)) {
    soak_violation("the directory has been above its bound for %lld s: %llu bytes, %llu entries",
                   (long long)((now_ns - above_since_ns) / SECOND_NS), (unsigned long long)bytes,
                   (unsigned long long)count);
  }
}

static void pause_ns(long ns) {
  struct timespec pause = {.tv_nsec = ns};
  (void)nanosleep(&pause, NULL);
}

static void end_workers(void) {
  atomic_store(&soak_shared->is_ending, true);
  resume_workers(0, true);
  int64_t deadline_ns = qn__now_ns() + SLOWNESS * soak_options.patience_ns;
  for (;;) {
    bool is_any_left = false;
    reap();
    for (unsigned i = 0; i < soak_options.processes; i++) is_any_left |= workers[i].pid != 0;
    if (!is_any_left) break;
    if (atomic_load(&soak_shared->is_violated) || qn__now_ns() > deadline_ns) {
      soak_violation("a worker does not end");
      for (unsigned i = 0; i < soak_options.processes; i++) kill_worker(&workers[i]);
    }
    pause_ns(10000000);
  }
  // Orphaned children exit by themselves or by their alarm.
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
  }
}

static void conduct(void) {
  uint64_t random = soak_options.seed;
  int64_t begin_ns = qn__now_ns(), end_ns = begin_ns + soak_options.seconds * SECOND_NS;
  int64_t next_size_ns = 0, next_verify_ns = begin_ns + 20 * SECOND_NS;
  for (int64_t now_ns = begin_ns; now_ns < end_ns; now_ns = qn__now_ns()) {
    reap();
    for (unsigned i = 0; i < soak_options.processes; i++) {
      if (!workers[i].pid) start_worker(i);
    }
    resume_workers(now_ns, false);
    watch_clocks(now_ns);
    if (atomic_load(&soak_shared->is_violated)) break;
    if (now_ns >= next_size_ns) {
      watch_size(now_ns);
      next_size_ns = now_ns + SECOND_NS / 5;
    }
    if (soak_random(&random, 4) == 0) soak_damage_once(&random);
    if (soak_random(&random, 200) == 0) soak_damage_undo();
    worker_t* victim = &workers[soak_random(&random, soak_options.processes)];
    if (soak_random(&random, 120) == 0 && now_ns - victim->started_ns > SECOND_NS / 20) {
      kill_worker(victim);
    }
    if (soak_random(&random, 150) == 0) stop_worker(victim, now_ns, &random);
    if (now_ns >= next_verify_ns) {
      end_workers();
      if (atomic_load(&soak_shared->is_violated)) break;
      soak_verify_all();
      atomic_store(&soak_shared->is_ending, false);
      next_verify_ns = qn__now_ns() + 60 * SECOND_NS;
    }
    pause_ns(TICK_NS);
  }
  end_workers();
  if (!atomic_load(&soak_shared->is_violated)) soak_verify_all();
}

// ------------------------------------------------------------------------------------- reporting

static void print_table(double seconds) {
  uint64_t operations = 0, damages = 0;
  (void)printf("soak: %u processes, %u threads each, %.1f s, seed %llu\n", soak_options.processes,
               soak_options.threads, seconds, (unsigned long long)soak_options.seed);
  for (int i = 0; i < SOAK_OP_COUNT; i++) {
    operations += soak_shared->operations[i];
    (void)printf("  %-18s %10llu   longest %8.1f ms\n", operation_names[i],
                 (unsigned long long)soak_shared->operations[i],
                 (double)soak_shared->longest_ns[i] / 1e6);
  }
  int number = 0;
#define X(name, weight)                           \
  damages += soak_shared->damages[number];        \
  (void)printf("  damage: %-10s %10llu\n", #name, \
               (unsigned long long)soak_shared->damages[number++]);
  SOAK_DAMAGES(X)
#undef X
#define X(name, doc)                           \
  (void)printf("  %-18s %10llu   %s\n", #name, \
               (unsigned long long)soak_shared->events[SOAK_EVENT_##name], doc);
  SOAK_EVENTS(X)
#undef X
  (void)printf("  %-18s %10llu   of a bound of %llu\n", "peak bytes",
               (unsigned long long)peak_bytes, (unsigned long long)SOAK_MAX_BYTES);
  (void)printf("  %-18s %10llu   of a bound of %u\n", "peak entries",
               (unsigned long long)peak_entries, SOAK_MAX_ENTRIES);
  (void)printf("%llu operations, %llu damages: %s\n", (unsigned long long)operations,
               (unsigned long long)damages, soak_shared->is_violated ? "VIOLATED" : "no violation");
}

static void print_json(FILE* file, double seconds) {
  (void)fprintf(file, "{\"seed\": %llu, \"processes\": %u, \"threads\": %u, \"seconds\": %.1f",
                (unsigned long long)soak_options.seed, soak_options.processes, soak_options.threads,
                seconds);
  (void)fprintf(file, ", \"operations\": {");
  for (int i = 0; i < SOAK_OP_COUNT; i++) {
    (void)fprintf(file, "%s\"%s\": %llu", i ? ", " : "", operation_names[i],
                  (unsigned long long)soak_shared->operations[i]);
  }
  int number = 0;
  (void)fprintf(file, "}, \"damages\": {");
#define X(name, weight)                                            \
  (void)fprintf(file, "%s\"%s\": %llu", number ? ", " : "", #name, \
                (unsigned long long)soak_shared->damages[number]); \
  number++;
  SOAK_DAMAGES(X)
#undef X
  number = 0;
  (void)fprintf(file, "}, \"events\": {");
#define X(name, doc)                                               \
  (void)fprintf(file, "%s\"%s\": %llu", number ? ", " : "", #name, \
                (unsigned long long)soak_shared->events[number]);  \
  number++;
  SOAK_EVENTS(X)
#undef X
  (void)fprintf(file, "}, \"peak_bytes\": %llu, \"peak_entries\": %llu, \"is_violated\": %s}\n",
                (unsigned long long)peak_bytes, (unsigned long long)peak_entries,
                soak_shared->is_violated ? "true" : "false");
}

// --------------------------------------------------------------------------------------- options

static int usage(void) {
  (void)fprintf(stderr,
                "usage: soak [--seconds N] [--processes P] [--threads T] [--seed S] [--dir DIR]\n"
                "            [--patience SECONDS] [--no-compiler] [--json FILE]\n");
  return 2;
}

static bool read_number(const char* text, long long least, long long most, long long* out) {
  char* end;
  errno = 0;
  *out = text ? strtoll(text, &end, 10) : 0;
  return text && errno == 0 && *text && !*end && *out >= least && *out <= most;
}

int main(int argc, char** argv) {
  const char *directory = NULL, *json = NULL;
  for (int i = 1; i < argc; i++) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    long long number = 0;
    if (strcmp(argv[i], "--no-compiler") == 0) {
      soak_options.has_compiler = false;
      continue;
    }
    bool is_fine = value != NULL;
    if (strcmp(argv[i], "--seconds") == 0) {
      is_fine = read_number(value, 1, 1000000, &number);
      soak_options.seconds = number;
    } else if (strcmp(argv[i], "--processes") == 0) {
      is_fine = read_number(value, 1, SOAK_MAX_PROCESSES, &number);
      soak_options.processes = (unsigned)number;
    } else if (strcmp(argv[i], "--threads") == 0) {
      is_fine = read_number(value, 1, SOAK_MAX_THREADS, &number);
      soak_options.threads = (unsigned)number;
    } else if (strcmp(argv[i], "--seed") == 0) {
      is_fine = read_number(value, 0, INT64_MAX, &number);
      soak_options.seed = (uint64_t)number;
    } else if (strcmp(argv[i], "--patience") == 0) {
      is_fine = read_number(value, 1, 100000, &number);
      soak_options.patience_ns = number * SECOND_NS;
    } else if (strcmp(argv[i], "--dir") == 0) {
      directory = value;
    } else if (strcmp(argv[i], "--json") == 0) {
      json = value;
    } else {
      is_fine = false;
    }
    if (!is_fine) return usage();
    i++;
  }
  char made[QN_TEST_PATH_SIZE] = "";
  if (!directory) {
    // Use a file system in memory: the effect of thousands of fdatasync calls on a real disk is not
    // tested here.
    if (access("/dev/shm", W_OK) == 0) (void)setenv("TMPDIR", "/dev/shm", 0);
    if (!qn_test_tempdir_make(made)) {
      perror("soak: no directory to work in");
      return 2;
    }
    directory = made;
  }
  if (snprintf(soak_options.root, sizeof soak_options.root, "%s/cache", directory) >=
      (int)sizeof soak_options.root - 64) {
    return usage();
  }
  soak_shared =
      mmap(NULL, sizeof *soak_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (soak_shared == MAP_FAILED) {
    perror("soak: no shared memory");
    return 2;
  }
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  soak_make_samples();
  int64_t begin_ns = qn__now_ns();
  conduct();
  double seconds = (double)(qn__now_ns() - begin_ns) / 1e9;
  print_table(seconds);
  FILE* file = json ? fopen(json, "w") : NULL;
  if (file) {
    print_json(file, seconds);
    (void)fclose(file);
  }
  soak_free_samples();
  if (soak_shared->is_violated) {
    (void)fprintf(stderr, "soak: seed %llu: %s\nsoak: the directory is kept: %s\n",
                  (unsigned long long)soak_options.seed, soak_shared->violation, soak_options.root);
    return 1;
  }
  if (made[0]) qn_test_tempdir_remove(made);
  return 0;
}
