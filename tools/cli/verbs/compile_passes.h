// SPDX-License-Identifier: Apache-2.0
// tools/cli/verbs/compile_passes.h: what `quern compile` shows of passes (quern/lower.h): the
// lists, and a module after some of them.
#ifndef QUERN_TOOLS_CLI_VERBS_COMPILE_PASSES_H_
#define QUERN_TOOLS_CLI_VERBS_COMPILE_PASSES_H_

#include "tools/cli/session.h"

// Prints the passes of a pipeline, or of all for NULL. Returns the exit code.
int compile_list_passes(const args_t* args, const char* pipeline);
// Appends the text of the module after --passes (until --after), for the machine of the target.
qn_status_t compile_lower(const args_t* args, const qn_lookup_options_t* options,
                          const qn_target_t* target, const qn_module_t* module, text_t* out);

#endif  // QUERN_TOOLS_CLI_VERBS_COMPILE_PASSES_H_
