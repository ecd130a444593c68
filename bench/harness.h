// bench/harness.h: what every benchmark program shares: timing, medians, a table and JSON.
//
// A row compares things in one process and is quoted as a ratio: these machines are shared and
// noisy. Not here: what is measured (one program per question). Thread rule: one thread.
#ifndef QUERN_BENCH_HARNESS_H_
#define QUERN_BENCH_HARNESS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "quern/status.h"

// CLOCK_MONOTONIC in nanoseconds.
int64_t bench_now_ns(void);
// What this thread has spent on a processor, in nanoseconds: on a busy machine the time that
// another program took is not in it. Every comparison of bodies is measured by it.
int64_t bench_cpu_ns(void);

// The median of `count` numbers, which are sorted in place.
double bench_median(double* values, size_t count);

// Runs `body(self, iterations)` `samples` times and gives the median nanoseconds per iteration.
// `iterations` 0: chosen so that a sample takes about half a millisecond.
double bench_run_ns(void (*body)(void* self, int64_t iterations), void* self, int64_t iterations,
                    size_t samples);
// The same for several bodies, their samples interleaved, so that noise meets all of them alike.
void bench_compare_ns(size_t count, void (*const* bodies)(void* self, int64_t iterations),
                      void* const* selves, int64_t iterations, size_t samples, double* out_ns);

// Ends the program with the message of `status`, unless it is ok.
void bench_must(qn_status_t status);

// Keeps the compiler from dropping a result.
static inline void bench_keep(const void* pointer) {
  __asm__ volatile("" : : "g"(pointer) : "memory");
}

// ---- reporting: rows of name, value, unit and, when there is one, the ratio to a floor and its
// limit

typedef struct bench_report {
  FILE* table;  // NULL: none
  FILE* json;   // NULL: none
  size_t row_count;
  size_t missed_count;  // rows beyond their limit
} bench_report_t;

// Reads --json (JSON instead of the table), --json=FILE (JSON as well) and --help; exits with 2 on
// anything else.
bench_report_t bench_begin(const char* title, const char* doc, int argc, char** argv);
// `floor` 0: none. `limit` 0: none; otherwise value / floor (or value, without a floor) should be
// at most it.
void bench_row(bench_report_t* report, const char* name, double value, const char* unit,
               double floor, double limit);
// Ends the table. The exit status is 0 also when limits are missed: figures are for reading.
int bench_end(bench_report_t* report);

#endif  // QUERN_BENCH_HARNESS_H_
