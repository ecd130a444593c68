// SPDX-License-Identifier: Apache-2.0
// jit/engine/lookup.h: what lookup.c, fallback.c and future.c share.
#ifndef QUERN_JIT_LOOKUP_H_
#define QUERN_JIT_LOOKUP_H_

#include "jit/engine/engine.h"

// `timeout_ns` from now; 0: INT64_MAX.
int64_t qn__deadline_after(int64_t timeout_ns);

// Answers a miss of the memory table by the policy BLOCK or FAIL: runs the key's task, or waits for
// its leader.
qn_status_t qn__lookup_miss(qn_engine_t* engine, const qn__request_t* request,
                            const qn__ident_t* ident, int64_t deadline_ns,
                            qn_lookup_info_t* out_info, qn_executable_t** out_executable);
// Answers by the policy FALLBACK (fallback.c).
qn_status_t qn__lookup_fallback(qn_engine_t* engine, const qn__request_t* request, const char* name,
                                int64_t start_ns, qn_lookup_info_t* out_info,
                                qn_function_t** out_function);

// Makes the error that the outcome of a task means for one request, and counts it. Ok for FOUND,
// and where the caller tries again: RETRY, and ABSENT if the request allows a compile.
qn_status_t qn__lookup_status(qn_engine_t* engine, const qn__request_t* request,
                              qn__lookup_task_t* task);
qn_status_t qn__lookup_forbidden(qn_engine_t* engine, const qn__request_t* request,
                                 qn__lookup_task_t* task);
// `task` is the key's, or NULL; the message says whether it continues to a compile.
qn_status_t qn__lookup_too_late(qn_engine_t* engine, const qn__request_t* request,
                                qn__lookup_task_t* task);
qn_status_t qn__lookup_refused(qn_engine_t* engine, const qn__request_t* request);
// Describes a lookup whose executable was loaded already.
qn_lookup_info_t qn__lookup_memory_info(const qn_executable_t* executable, qn_tier_t tier);

#endif  // QUERN_JIT_LOOKUP_H_
