// SPDX-License-Identifier: Apache-2.0
// bench/harness.h: functions of all benchmark programs: timing, medians, a table and JSON.
//
// A row compares two times in one process and is quoted as a ratio, because machines are shared and
// noisy. One thread.
#ifndef QUERN_BENCH_HARNESS_H_
#define QUERN_BENCH_HARNESS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "quern/status.h"

// CLOCK_MONOTONIC in nanoseconds.
int64_t bench_now_ns(void);
// The processor time of this thread in nanoseconds: it excludes the time of other programs on a
// busy machine. Comparisons of bodies use it.
int64_t bench_cpu_ns(void);

// Returns the median of `count` numbers and sorts them in place.
double bench_median(double* values, size_t count);

// Runs `body(self, iterations)` `samples` times and returns the median nanoseconds per iteration.
// `iterations` 0: chosen so that a sample takes about half a millisecond.
double bench_run_ns(void (*body)(void* self, int64_t iterations), void* self, int64_t iterations,
                    size_t samples);
// The same for several bodies, which take turns, so that noise affects all of them alike.
void bench_compare_ns(size_t count, void (*const* bodies)(void* self, int64_t iterations),
                      void* const* selves, int64_t iterations, size_t samples, double* out_ns);

// Ends the program with the message of `status`, unless it is ok.
void bench_must(qn_status_t status);
// Ends the program with a message.
void bench_give_up(const char* message);

// Makes a temporary directory, such as "/tmp/quern-bench-Ab12Cd", under `parent`.
void bench_make_directory(const char* parent, char out_path[64]);
void bench_remove_directory(const char* path);
// Reads examples/ir/NAME.qn into static storage, with a final zero.
const char* bench_read_sample(const char* name);
// Runs this program as `PROGRAM --child ARGUMENT` and reads the numbers that it prints.
void bench_run_child(const char* argument, double* out_numbers, size_t count);
// A qn_sink_t's function: appends to a qn__buffer_t.
qn_status_t bench_append(void* buffer, const void* data, size_t size_bytes);

// Keeps the compiler from dropping a result.
static inline void bench_keep(const void* pointer) {
  __asm__ volatile("" : : "g"(pointer) : "memory");
}

// ---- reporting: rows of name, value, unit, and the ratio to a floor and its limit, if any

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
