// SPDX-License-Identifier: Apache-2.0
// jit/codegen/generator.h: the code generators of an engine: finds them, predicts their identities
// for keys, and opens them on the first miss.
#ifndef QUERN_JIT_GENERATOR_H_
#define QUERN_JIT_GENERATOR_H_

#include "base/base.h"
#include "base/fork.h"
#include "base/thread.h"
#include "cache/bundle.h"
#include "jit/codegen/generator_info.h"
#include "quern/backend.h"

// The limit of generators per engine, more than any build has.
#define QN__MAX_GENERATORS 8u

typedef struct qn__generator {
  char name[QN__GENERATOR_NAME_BYTES];
  // The identity that keys use: predicted from the build ids in the files, and replaced by the
  // generator's own once it is open.
  char identity[256];
  // Not "" if the generator or its compiler library is not installed. Then entries of bundles are
  // accepted from generators whose identities begin with it.
  char prefix[256];
  const qn_codegen_t* table;  // NULL until opened
  qn_codegen_t opened;        // the storage of `table`, if it came from a shared object
  void* self;
  _Atomic bool has_worked;
} qn__generator_t;

typedef struct qn__generators {
  qn__mutex_t opening;      // held while a generator is opened; taken before `mutex`
  qn__mutex_t mutex;        // guards the members below
  const char* directories;  // borrowed from the configuration (base/plugin.h)
  qn__generator_t items[QN__MAX_GENERATORS];
  uint32_t count;
  const qn__bundle_t* const* bundles;  // borrowed; their identities are tried
  size_t bundle_count;
  qn__fork_node_t fork_node;
} qn__generators_t;

// The tables of the built-in generators (builtin.c).
extern const qn_codegen_t qn__interp_codegen;
extern const qn_codegen_t qn__null_codegen;

// Initialises an object that must not move afterwards.
qn_status_t qn__generators_init(qn__generators_t* generators, const char* directories);
void qn__generators_deinit(qn__generators_t* generators);
// Returns the index of a generator and its identity for keys, without opening it. The index stays
// valid. Errors: UNSUPPORTED beyond QN__MAX_GENERATORS.
qn_status_t qn__generators_find(qn__generators_t* generators, const char* name, uint32_t* out_index,
                                char out_identity[256]);
// Sets the bundles whose identities are tried, one after the other, where a compiler is not
// installed. Keys name the compiler that made the code, and its identity cannot be predicted there.
// `bundles` is borrowed until the next call.
void qn__generators_use_bundles(qn__generators_t* generators, const qn__bundle_t* const* bundles,
                                size_t count);
// Returns the n-th identity to try for keys; 0 is that of qn__generators_find. False beyond the
// last.
bool qn__generators_alternative(qn__generators_t* generators, uint32_t index, uint32_t n,
                                char out_identity[256]);
// Returns whether the files of generator and compiler library exist.
bool qn__generators_is_installed(qn__generators_t* generators, uint32_t index);
// Opens the generator if it is not open, and returns its table, state and own identity. Errors:
// UNAVAILABLE, naming the path that was tried.
qn_status_t qn__generators_open(qn__generators_t* generators, uint32_t index,
                                const qn_codegen_t** out_table, void** out_self,
                                char out_identity[256]);

// Enclose opening a generator and compiling. In the first use of a generator they delay the exit of
// the process, so that exit handlers do not destroy the state that its libraries are creating
// (base/fork.h). Pass the result of begin_work to end_work.
bool qn__generators_begin_work(qn__generators_t* generators, uint32_t index);
void qn__generators_end_work(qn__generators_t* generators, uint32_t index, bool is_first);

// Writes the intermediate forms that the list `forms` names ("ir,asm") as DIRECTORY/NAME.FORM.
// Failures are only logged (dump.c).
void qn__codegen_dump(const qn_codegen_t* codegen, void* self, const qn_compile_request_t* request,
                      const char* forms, const char* directory, const char* name);

#endif  // QUERN_JIT_GENERATOR_H_
