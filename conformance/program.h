// conformance/program.h: cases that are texts of IR: compiled for the target and for the
// interpreter,
// called with the same arguments, compared.
//
// A table is compiled as one module, because a compile costs tens of milliseconds on some devices.
// If
// that is refused, each row is compiled alone, so that one construct that a target lacks hides no
// other. Names of functions must differ within a table.
#ifndef QUERN_CONFORMANCE_PROGRAM_H_
#define QUERN_CONFORMANCE_PROGRAM_H_

#include "conformance/arrays.h"

typedef struct conf_program {
  const char* feature;
  const char* variant;  // NULL: none
  // One function: "func NAME(".
  const char* text;
  // arrays.h; several runs are separated by ';'.
  const char* args;
  conf_tolerance_t tolerance;
  bool is_checked;
  // The status of the call, or of the sync after it; 0: ok.
  qn_status_code_t code;
  const char* parts;  // of its message, comma-separated
} conf_program_t;

// Runs the rows that the filter chooses.
void conf_programs(conf_t* c, const char* area, const conf_program_t* programs, size_t count,
                   bool is_listing);

// Compiles a text to the form of conf_options_t, in place of a run.
qn_status_t conf_emit(conf_t* c, const char* text, bool is_checked);

// Calls function `name` once on the target; `out_memory` gets the contents of each array
// afterwards. For areas with comparisons of their own. The error of the call, or of the sync, goes
// to `out_status`.
bool conf_call(conf_t* c, qn_function_t* function, const conf_args_t* args,
               uint8_t* out_memory[CONF_MAX_ARGS], qn_status_t* out_status);
// Runs `args` (all its runs) on both and compares.
void conf_compare(conf_t* c, qn_module_t* module, const char* name, qn_function_t* function,
                  const char* args, conf_tolerance_t tolerance);

#endif  // QUERN_CONFORMANCE_PROGRAM_H_
