// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/subject.h: what is measured: a function of a file, for a target, with arguments
// that follow from sizes.
#ifndef QUERN_TOOLS_CLI_BENCH_SUBJECT_H_
#define QUERN_TOOLS_CLI_BENCH_SUBJECT_H_

#include "quern/ir.h"
#include "quern/target.h"
#include "tools/cli/args.h"
#include "tools/cli/run/run_args.h"

// A function of a file, from "FILE.qn" or "FILE.qn:FUNCTION".
typedef struct subject {
  char* file;  // owned
  qn_module_t* module;
  size_t index;          // of the function
  const char* function;  // borrowed from the module
} subject_t;
// Errors: those of session_module; NOT_FOUND, INVALID_ARGUMENT (several functions, none chosen).
// subject_close either way.
qn_status_t subject_open(const args_t* args, const char* text, subject_t* out);
void subject_close(subject_t* subject);

// A target and the device that runs its code.
typedef struct bench_place {
  const char* text;  // as given
  qn_target_t* target;
  qn_device_t device;
  bool is_interpreter, is_cpu;
  int64_t warp_size;  // 0: none
} bench_place_t;
// Errors: those of qn_target_parse; UNAVAILABLE without the device. place_close either way.
qn_status_t place_open(const char* text, bench_place_t* out);
void place_close(bench_place_t* place);

// The arguments of calls, as texts of --arg.
typedef struct inputs {
  char* sizes;   // "n=512 m=512": symbols and scalars that were chosen; owned
  args_t args;   // the texts as options `arg`; arrays owned
  char** texts;  // owned
} inputs_t;
// Makes the texts: those of --arg in `args`, and for other parameters random or zero arrays, whose
// shapes follow from `sizes` ("n=512,m=512", or NULL). Symbols without a size get a power of two
// for which a call has at most `max_work` operations, and 32 MiB. Errors: NOT_FOUND (a name that is
// neither a symbol nor a scalar), INVALID_ARGUMENT, VALUE_ERROR. inputs_free either way.
qn_status_t inputs_make(const args_t* args, const subject_t* subject, const char* sizes,
                        int64_t warp_size, double max_work, inputs_t* out);
void inputs_free(inputs_t* inputs);

#endif  // QUERN_TOOLS_CLI_BENCH_SUBJECT_H_
