// jit/warm/warm.h: what the parts of warming up share: the list, one key, the way to make it.
//
// Not here: the coordinator's processes (warm_process.h) and their messages (warm_message.h).
// Thread rule: one thread at a time per list. Read next: warm_list.c, warm.c.
#ifndef QUERN_JIT_WARM_H_
#define QUERN_JIT_WARM_H_

#include "jit/engine/engine.h"
#include "jit/engine/keyset.h"
#include "quern/warm.h"

// One key of a list. Module and target are retained.
typedef struct qn__warm_entry {
  qn_module_t* module;
  qn_target_t* target;
  qn_tier_t tier;
  bool is_checked;
} qn__warm_entry_t;

struct qn_warm_list {
  qn_allocator_t allocator;
  qn__warm_entry_t* entries;
  size_t capacity;
  size_t count;
  qn__keyset_t known;
};

// Adds a key (module and target are retained) once for each of `options`' targets, if it has any.
qn_status_t qn__warm_list_put(qn_warm_list_t* list, qn_module_t* module, qn_target_t* target,
                              qn_tier_t tier, bool is_checked,
                              const qn_warm_read_options_t* options);

// ---- one key (warm_make.c)

// What a key is called in a directory, without opening its generator.
typedef struct qn__warm_name {
  qn_hash128_t key;
  char hex[33];
  char text[128];  // "softmax@0123456789ab"
} qn__warm_name_t;

// What an entry says that it was made from. Borrowed from the entry.
typedef struct qn__warm_origin {
  qn_str_t target_json;
  qn_str_t identity;  // of the generator
  qn_str_t name_space;
  qn_tier_t tier;
  bool is_checked;
} qn__warm_origin_t;
// False when the preimage is not one that this version writes.
bool qn__warm_origin_read(qn_span_t preimage, qn__warm_origin_t* out_origin);

// `preimage` is initialised by the caller. Errors: UNSUPPORTED, OUT_OF_MEMORY.
qn_status_t qn__warm_name(qn_engine_t* engine, const qn__warm_entry_t* entry,
                          qn__buffer_t* preimage, qn__warm_name_t* out_name);
// Whether the directory or a bundle has the key, verified.
bool qn__warm_is_cached(qn_engine_t* engine, qn_hash128_t key, qn_span_t preimage);

typedef struct qn__warm_made {
  qn_warm_outcome_t outcome;  // COMPILED, CACHED or FAILED
  int64_t compile_ns;
  char key[33];
} qn__warm_made_t;
// Makes one key and waits until it is in the directory. The status says why it FAILED.
qn_status_t qn__warm_make(qn_engine_t* engine, const qn__warm_entry_t* entry,
                          qn__warm_made_t* out_made);

#endif  // QUERN_JIT_WARM_H_
