// jit/engine/making.h: what is known of one key while it is looked for and made: its preimage, what
// the tiers answered, where it was found.
//
// Not here: who makes it, and who waits (flight.h). Thread rule: one thread at a time. Read next:
// making.c, compile.c.
#ifndef QUERN_JIT_MAKING_H_
#define QUERN_JIT_MAKING_H_

#include "cache/hit.h"
#include "jit/engine/engine.h"

// What a tier said.
typedef struct qn__answer {
  bool was_asked;
  bool was_rejected;  // a good entry that the engine or the device did not take
  qn__get_result_t result;
  qn__reason_t reason;  // of QN__GET_BAD
  int error;            // errno of QN__GET_ERROR
} qn__answer_t;

typedef struct qn__making {
  qn_engine_t* engine;
  qn__request_t request;  // borrowed from the flight
  uint32_t generator;
  char identity[256];
  qn__buffer_t preimage;
  qn_hash128_t key;
  bool has_key;
  char name[128];  // for people and profilers: "softmax@0123456789ab"
  qn__answer_t answers[QN__TIER_COUNT];
  int64_t queue_ns;  // waited for a compile thread
  qn_lookup_info_t info;
} qn__making_t;

void qn__making_init(qn__making_t* making, qn_engine_t* engine, const qn__request_t* request);
void qn__making_deinit(qn__making_t* making);

// Opens no generator: its identity is predicted (generator.c). Does nothing the second time.
qn_status_t qn__making_key(qn__making_t* making);
// The executable of directory or bundles; of the remote tier; NULL: a miss, and the answers say
// why. The latter waits for the network, for a bounded time.
qn_executable_t* qn__making_ask_local(qn__making_t* making);
qn_executable_t* qn__making_ask_remote(qn__making_t* making);
// Lets other processes and machines finish what they make of this key, and else runs the generator,
// loads what it made and hands it to the tiers (compile.c). `is_pooled`: on a thread of the pool,
// whose slot is lent while there is nothing to compute.
qn_status_t qn__making_compile(qn__making_t* making, bool is_pooled,
                               qn_executable_t** out_executable);

// Of an entry of any tier, verified: decodes and loads it.
qn_executable_t* qn__making_load_entry(qn__making_t* making, const qn__entry_t* entry,
                                       qn__answer_t* answer);
qn_status_t qn__making_load(qn__making_t* making, const qn_artifact_t* artifact,
                            qn_executable_t** out_executable);

// Puts an entry of a remote tier into the local ones, so that the network is asked once.
void qn__making_keep(const qn__making_t* making, const qn__tier_t* tier, const qn__entry_t* entry);

// Why it has to be compiled: the class, and a sentence into `out`.
qn_miss_reason_t qn__making_reason(const qn__making_t* making, char out[512]);

#endif  // QUERN_JIT_MAKING_H_
