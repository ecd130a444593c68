// jit/engine.h: what an engine is made of. The only place that knows IR, targets, devices, cache
// and generators at once.
//
// Thread rule: any thread; counters are relaxed atomics. Read next: lookup.c.
#ifndef QUERN_JIT_ENGINE_H_
#define QUERN_JIT_ENGINE_H_

#include <stdatomic.h>

#include "cache/disk.h"
#include "jit/config.h"
#include "jit/executable.h"
#include "jit/flight.h"
#include "jit/generator.h"
#include "jit/watch.h"

typedef enum qn__counter {
#define QN_COUNTER(name, doc) QN__COUNTER_##name,
#include "jit/counters.inc"
#undef QN_COUNTER
  QN__COUNTER_COUNT
} qn__counter_t;

struct qn_engine {
  qn_allocator_t allocator;
  qn__config_t config;
  qn__table_t table;
  qn__flights_t flights;
  qn__generators_t generators;
  qn__disk_t* disk;  // NULL: memory only
  qn__watch_t* watch;
  _Atomic uint64_t counters[QN__COUNTER_COUNT];
  _Atomic uint64_t dump_number;
};

static inline void qn__count(qn_engine_t* engine, qn__counter_t counter, uint64_t amount) {
  atomic_fetch_add_explicit(&engine->counters[counter], amount, memory_order_relaxed);
}

// One lookup's inputs, resolved.
typedef struct qn__request {
  qn_module_t* module;
  qn_target_t* target;
  qn_tier_t tier;
  bool is_checked;
  bool is_forbidden;  // a miss is an error
} qn__request_t;
// Errors: INVALID_ARGUMENT for null objects and values that are none of the enumeration.
qn_status_t qn__request_init(const qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                             const qn_lookup_options_t* options, qn__request_t* out_request);

// The key and its preimage (key.c). The buffer is initialised by the caller.
qn_status_t qn__key_make(const qn__request_t* request, const char* generator_identity,
                         const char* cache_namespace, qn__buffer_t* out_preimage,
                         qn_hash128_t* out_key);
// What a generator is asked for (key.c): the same inputs that the key is made of.
qn_compile_request_t qn__compile_request(const qn__request_t* request);

// Writes what QUERN_DUMP asks for; failures are only logged (dump.c).
void qn__engine_dump(qn_engine_t* engine, const qn_codegen_t* codegen, void* self,
                     const qn_compile_request_t* request, const char* name);

// Writes the file of the option `trace`, if there is one; failures are only logged (trace.c).
void qn__engine_write_trace(qn_engine_t* engine);

#endif  // QUERN_JIT_ENGINE_H_
