// SPDX-License-Identifier: Apache-2.0
// jit/lower/lower.h: machines and pipelines for those who run passes: quern's generators, and
// qn_module_lower (quern/lower.h) for those of others.
//
// machine.c describes the machine of a target, passes.c lists passes and finds one by its name,
// lower.c lowers modules. Not here: the passes (ir/passes). Read next: quern/lower.h.
#ifndef QUERN_JIT_LOWER_LOWER_H_
#define QUERN_JIT_LOWER_LOWER_H_

#include "base/buffer.h"
#include "ir/passes/passes.h"
#include "quern/lower.h"

// Describes the machine of a target, as qn_target_machine does.
void qn__lower_machine(const qn_target_t* target, qn_machine_t* out_machine);
// Returns the options of the passes for a machine. A generator adds what it alone has (dots,
// prepared kernels, matrix units).
qn__pass_options_t qn__lower_pass_options(const qn_machine_t* machine, qn_tier_t tier,
                                          bool is_checked);

// A run of a pass, "NAME" or "NAME:2" for its second one.
typedef struct qn__until {
  qn_str_t name;
  uint32_t run;  // from 1
} qn__until_t;
// Returns false for texts of another form.
bool qn__until_parse(const char* text, qn__until_t* out_until);
// Returns how many of the passes run up to there, or 0; counts `run` down for the next list.
size_t qn__until_find(qn__until_t* until, const qn__pass_t* const* passes, size_t count);
// Makes NOT_FOUND, with a list of the passes.
qn_status_t qn__until_missing(const char* text, const qn__pipeline_t* pipeline);
// Reads how many passes of the pipeline run; 0 (all) for `until` NULL. Errors: NOT_FOUND.
qn_status_t qn__pipeline_until(const qn__pipeline_t* pipeline, const char* until,
                               uint32_t* out_pass_count);
// Reads the name of a form: "ir", whose `*out_until` is NULL, or "ir:UNTIL". Returns false for
// others.
bool qn__form_is_ir(const char* form, const char** out_until);

#endif  // QUERN_JIT_LOWER_LOWER_H_
