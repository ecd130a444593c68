// SPDX-License-Identifier: Apache-2.0
// conformance/conformance.h: the interface of a suite that tests which features work on a device.
//
// It uses the public headers alone, so that devices and generators from outside run it as ours do:
// through `quern conformance`, or by linking this library. It tests only what a program can see.
// Thread rule: one run at a time in a process. Read next: suite.h (for authors of cases).
#ifndef QUERN_CONFORMANCE_CONFORMANCE_H_
#define QUERN_CONFORMANCE_CONFORMANCE_H_

#include "quern/quern.h"

typedef enum conf_verdict {
  CONF_PASS = 1,
  CONF_FAIL = 2,
  CONF_UNSUPPORTED = 3,  // with the message of the device or generator
} conf_verdict_t;
// "pass", "fail", "unsupported". Static storage.
const char* conf_verdict_text(conf_verdict_t verdict);

// The result of one case. Borrowed for the callback.
typedef struct conf_result {
  const char* area;     // "memory"
  const char* feature;  // "zero size"
  const char* variant;  // "f32", or ""
  conf_verdict_t verdict;
  const char* why;      // "" for a pass
  const char* program;  // a text of IR that shows the failure; NULL: none
  int64_t elapsed_ns;
} conf_result_t;

typedef struct conf_options {
  // The device, and the target to compile for; NULL: the device's own kind.
  qn_device_t device;
  const char* target;
  // Cases whose "area/feature/variant" has this text, or begins with the text after '^'; NULL: all.
  const char* filter;
  // Also cases that take gigabytes of memory.
  bool has_large;
  // Runs so many random programs in place of the cases, from this seed on. A seed means one program
  // as long as one compiler built the suite. Of a program that fails, the result has the smallest
  // part that still does.
  uint32_t random_count;
  uint64_t seed;
  // Only compiles the cases of IR, to this form of the target's generator ("cubin"): uses no
  // device, and needs `target`. NULL: runs.
  const char* form;
  qn_tier_t tier;  // of the code; 0: full
  void (*on_result)(void* self, const conf_result_t* result);
  void* self;
} conf_options_t;

typedef struct conf_totals {
  size_t pass_count;
  size_t fail_count;
  size_t unsupported_count;
} conf_totals_t;

// Runs the suite. Errors: those of a missing device and of a wrong target.
qn_status_t conf_run(const conf_options_t* options, conf_totals_t* out_totals);

// Calls `on_result` for the features of the suite in order, with a verdict of 0, and runs nothing.
void conf_list(void (*on_result)(void* self, const conf_result_t* result), void* self);

#endif  // QUERN_CONFORMANCE_CONFORMANCE_H_
