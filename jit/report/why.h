// jit/report/why.h: in what two keys differ, in words; and looking for the nearest of a key.
//
// Thread rule: pure functions; qn__explain from any thread. Read next: why.c.
#ifndef QUERN_JIT_WHY_H_
#define QUERN_JIT_WHY_H_

#include "base/buffer.h"
#include "jit/engine/tier.h"
#include "quern/observe.h"

// A difference of one section: what it is called, and what each side has.
typedef struct qn__difference {
  qn__buffer_t member;  // "target.mcpu", "options", "generator"
  qn__buffer_t wanted;  // "znver3", "tier=full"
  qn__buffer_t cached;
  qn__buffer_t others;  // further members that differ: "target.tune, target.vector_width"
} qn__difference_t;

void qn__difference_init(qn__difference_t* difference, qn_allocator_t allocator);
void qn__difference_deinit(qn__difference_t* difference);
// Fills it for the section `tag` of two preimages, whose bytes differ. For a module the sizes are
// told: what it is called is not in a key. Any bytes are safe; failure is sticky in the buffers.
void qn__difference_make(uint32_t tag, qn_span_t wanted, qn_span_t cached,
                         qn__difference_t* out_difference);

// The entry that is nearest to a key.
typedef struct qn__neighbour {
  bool is_set;
  unsigned score;
  int64_t created_ns;
  qn_hash128_t key;
  qn__tier_t* tier;  // where it is
  size_t part;
  qn__buffer_t preimage;
  uint64_t looked_count;
  bool was_stopped;  // by a bound, before all entries had been looked at
} qn__neighbour_t;

// Searches the local tiers of an engine, by the beginnings of their entries, for the entry of
// another key that is nearest to `key`: of the same module before all, then the one that
// agrees in the most sections, then the latest. Ends at `max_entries`, or at `deadline_ns` once it
// has looked at some. The buffer of `neighbour` is initialised by the caller. Errors:
// OUT_OF_MEMORY.
qn_status_t qn__neighbour_find(qn_engine_t* engine, qn_span_t preimage, qn_hash128_t key,
                               uint64_t max_entries, int64_t deadline_ns,
                               qn__neighbour_t* neighbour);
// Appends "saxpy, ": the first functions of that entry, as far as it can be read.
void qn__neighbour_functions(const qn_engine_t* engine, const qn__neighbour_t* neighbour,
                             qn__buffer_t* out);

// qn_engine_explain with a bound of its own for the search for the nearest entry.
qn_status_t qn__explain(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                        const qn_lookup_options_t* options, uint64_t max_entries, int64_t max_ns,
                        qn_explanation_t** out_explanation);

#endif  // QUERN_JIT_WHY_H_
