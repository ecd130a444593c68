// SPDX-License-Identifier: Apache-2.0
// jit/report/why.h: describes how two keys differ, and finds the entry nearest to a key.
#ifndef QUERN_JIT_WHY_H_
#define QUERN_JIT_WHY_H_

#include "base/buffer.h"
#include "jit/engine/tier.h"
#include "quern/observe.h"

// A difference of one section: its name, and the value on each side.
typedef struct qn__difference {
  qn__buffer_t member;  // "target.mcpu", "options", "generator"
  qn__buffer_t wanted;  // "znver3", "tier=full"
  qn__buffer_t cached;
  qn__buffer_t others;  // further members that differ: "target.tune, target.vector_width"
} qn__difference_t;

void qn__difference_init(qn__difference_t* difference, qn_allocator_t allocator);
void qn__difference_deinit(qn__difference_t* difference);
// Describes the difference of section `tag` in two preimages. A module is described by its size,
// because keys hold no names. Any bytes are safe. Failure is sticky in the buffers.
void qn__difference_make(uint32_t tag, qn_span_t wanted, qn_span_t cached,
                         qn__difference_t* out_difference);

// The entry that is nearest to a key.
typedef struct qn__neighbour {
  bool is_set;
  unsigned score;
  int64_t created_ns;
  qn_hash128_t key;
  qn__tier_t* tier;  // that has the entry
  size_t part;
  qn__buffer_t preimage;
  uint64_t looked_count;
  bool was_stopped;  // by a limit, before all entries were read
} qn__neighbour_t;

// Finds the entry of another key that is nearest to `key` in the local tiers of an engine: first by
// the same module, then by the number of equal sections, then by time. Reads only the heads of
// entries. Stops after `max_entries`, or at `deadline_ns` but not before a minimum of entries. The
// caller initialises the buffer of `neighbour`. Errors: OUT_OF_MEMORY.
qn_status_t qn__neighbour_find(qn_engine_t* engine, qn_span_t preimage, qn_hash128_t key,
                               uint64_t max_entries, int64_t deadline_ns,
                               qn__neighbour_t* neighbour);
// Appends the names of the first functions of that entry: "saxpy, ". Appends nothing if the entry
// cannot be read.
void qn__neighbour_functions(const qn_engine_t* engine, const qn__neighbour_t* neighbour,
                             qn__buffer_t* out);

// Does qn_engine_explain with given limits for the search for the nearest entry.
qn_status_t qn__explain(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                        const qn_lookup_options_t* options, uint64_t max_entries, int64_t max_ns,
                        qn_explanation_t** out_explanation);

#endif  // QUERN_JIT_WHY_H_
