// conformance/conformance.h: one suite that says what works on a device: the library's face.
//
// Uses the public headers alone, so that devices and generators from outside run it as ours do:
// through `quern conformance`, or by linking this library. What it is not: a test of how anything
// is done; only of what a program can see. Thread rule: one run at a time in a process. Read next:
// suite.h (for authors of cases), docs/conformance.md.
#ifndef QUERN_TESTS_CONFORMANCE_CONFORMANCE_H_
#define QUERN_TESTS_CONFORMANCE_CONFORMANCE_H_

#include "quern/quern.h"

typedef enum conf_verdict {
  CONF_PASS = 1,
  CONF_FAIL = 2,
  CONF_UNSUPPORTED = 3,  // with the device's or generator's own word, never silently
} conf_verdict_t;
// "pass", "fail", "unsupported". Static storage.
const char* conf_verdict_text(conf_verdict_t verdict);

// What one case found. Borrowed for the callback.
typedef struct conf_result {
  const char* area;     // "memory"
  const char* feature;  // "zero size"
  const char* variant;  // "f32", or ""
  conf_verdict_t verdict;
  const char* why;  // "" for a pass
  int64_t elapsed_ns;
} conf_result_t;

typedef struct conf_options {
  // The device, and what to compile for; `target` NULL: the kind of the device, as it is here.
  qn_device_t device;
  const char* target;
  // Cases whose "area/feature/variant" has this text, or begins with what is behind '^'; NULL: all.
  const char* filter;
  // Also what takes gigabytes.
  bool has_large;
  // Only compiles what cases of IR need, to this form of the target's generator ("cubin"): no
  // device is asked, and `target` is needed. NULL: runs.
  const char* form;
  void (*on_result)(void* self, const conf_result_t* result);
  void* self;
} conf_options_t;

typedef struct conf_totals {
  size_t pass_count;
  size_t fail_count;
  size_t unsupported_count;
} conf_totals_t;

// Runs the suite. Errors: those that leave nothing to run: no such device, a wrong target.
qn_status_t conf_run(const conf_options_t* options, conf_totals_t* out_totals);

// The features of the suite in order, without running anything: `on_result` gets each with a
// verdict of 0.
void conf_list(void (*on_result)(void* self, const conf_result_t* result), void* self);

#endif  // QUERN_TESTS_CONFORMANCE_CONFORMANCE_H_
