// SPDX-License-Identifier: Apache-2.0
// ir/verify.h: the rules that every module keeps. A body that passes never crashes a backend.
//
// Reports every violation (up to the limit) to `diag`; returns true if there is none. Runs after
// the parser, the builder and the decoder, and in debug builds after each pass.
#ifndef QUERN_IR_VERIFY_H_
#define QUERN_IR_VERIFY_H_

#include "ir/diag.h"

bool qn__body_verify(const qn__ir_body_t* body, qn__diag_t* diag);
// Verifies a body and makes a module of it (module.c). Consumes the body, also on failure.
qn_status_t qn__module_finish(qn__ir_body_t* body, qn__diag_t* diag, qn_module_t** out_module);
// As qn__module_finish, for a body that was decoded and that passes have rewritten: it keeps the
// rules of qn__body_verify_status.
qn_status_t qn__module_finish_lowered(qn__ir_body_t* body, qn_module_t** out_module);
// Verifies and returns INVALID_MODULE with the rendered text, prefixed by `what` (a pass's name).
// Passes may break limits of sources: of local buffers, of nesting, of what stands in thread loops.
qn_status_t qn__body_verify_status(const qn__ir_body_t* body, const char* what);

#endif  // QUERN_IR_VERIFY_H_
