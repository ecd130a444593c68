// jit/engine/lookup.h: what lookup.c, fallback.c and future.c share.
//
// Thread rule: any thread. Read next: lookup.c.
#ifndef QUERN_JIT_LOOKUP_H_
#define QUERN_JIT_LOOKUP_H_

#include "jit/engine/engine.h"

// `timeout_ns` from now on; 0: INT64_MAX.
int64_t qn__deadline_after(int64_t timeout_ns);

// Behind the memory table, by BLOCK or FAIL: makes the executable, or waits for who does.
qn_status_t qn__lookup_behind_memory(qn_engine_t* engine, const qn__request_t* request,
                                     const qn__ident_t* ident, int64_t deadline_ns,
                                     qn_lookup_info_t* out_info, qn_executable_t** out_executable);
// FALLBACK (fallback.c).
qn_status_t qn__lookup_fallback(qn_engine_t* engine, const qn__request_t* request, const char* name,
                                int64_t start_ns, qn_lookup_info_t* out_info,
                                qn_function_t** out_function);

// What the outcome of a flight means for one that asked; ok for FOUND. RETRY (and ABSENT for who
// may compile) are the caller's to handle. Counts.
qn_status_t qn__lookup_outcome(qn_engine_t* engine, const qn__request_t* request,
                               qn__flight_t* flight);
qn_status_t qn__lookup_forbidden(qn_engine_t* engine, const qn__request_t* request,
                                 qn__flight_t* flight);
qn_status_t qn__lookup_too_late(qn_engine_t* engine, const qn__request_t* request);
qn_status_t qn__lookup_refused(qn_engine_t* engine, const qn__request_t* request);
// What a lookup learns of an executable that was there already.
qn_lookup_info_t qn__lookup_memory_info(const qn_executable_t* executable, qn_tier_t tier);

#endif  // QUERN_JIT_LOOKUP_H_
