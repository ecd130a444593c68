// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/child.h: measures a new process: the command runs itself, from its start to the
// end of the first call.
#ifndef QUERN_TOOLS_CLI_BENCH_CHILD_H_
#define QUERN_TOOLS_CLI_BENCH_CHILD_H_

#include <jansson.h>

#include "tools/cli/bench/subject.h"

// The stages of a new process until its first result, in the order in which they are shown. Stages
// of the library come from qn_engine_stages; the others are remainders.
typedef enum warm_stage {
  WARM_START,   // from the fork to main(): exec and the dynamic linker
  WARM_ENGINE,  // making an engine
  WARM_PARSE,   // reading and parsing the file
  WARM_TARGET,  // parsing the target, with the look at the processor or device
  WARM_LOOKUP,  // of the lookup what is not below: hashing, tables, threads
  WARM_DISK,    // asking the cache directory
  WARM_OPEN,    // opening the code generator
  WARM_DECODE,  // stages of the compile
  WARM_PASSES,
  WARM_EMIT,
  WARM_OPTIMIZE,
  WARM_CODEGEN,
  WARM_LINK,
  WARM_COMPILE,  // of the compile what is not above
  WARM_LOAD,     // loading the code
  WARM_CALL,     // the first call
  WARM_COUNT
} warm_stage_t;
const char* warm_stage_text(warm_stage_t stage);

// What one new process took, in nanoseconds.
typedef struct warm_times {
  double total;  // the sum of the stages
  double stages[WARM_COUNT];
  bool was_compiled;  // else it came from the disk
} warm_times_t;

// What a child runs. All borrowed.
typedef struct child_request {
  const args_t* args;  // --plugin
  const subject_t* subject;
  const bench_place_t* place;
  const char* tier;
  int32_t threads;
  const inputs_t* inputs;
  const char* cache_dir;
} child_request_t;
// Runs the command in a new process. Errors: CANCELLED (a signal came), UNAVAILABLE with the
// process's own message, those of the system.
qn_status_t child_spawn(const child_request_t* request, warm_times_t* out);

// The child's part: --child DIR. Prints one JSON object. Returns the exit code.
int child_run(const args_t* args);

// Reads the stages of an engine into the members from DISK to LOAD.
void warm_read_stages(qn_engine_t* engine, double stages[WARM_COUNT]);
// Sets the remainders LOOKUP and COMPILE. Stages that overlap on several threads are shortened in
// proportion, so that the sum stays that of the lookup.
void warm_complete_stages(double stages[WARM_COUNT], double lookup_ns, double compile_ns);

#endif  // QUERN_TOOLS_CLI_BENCH_CHILD_H_
