// jit/codegen/generator.h: the code generators of an engine: which there are, what they will say
// they are, and opening them on the first miss.
//
// Thread rule: any thread. Read next: builtin.c (the generators that need no compiler).
#ifndef QUERN_JIT_GENERATOR_H_
#define QUERN_JIT_GENERATOR_H_

#include "base/base.h"
#include "base/fork.h"
#include "base/thread.h"
#include "cache/bundle.h"
#include "quern/backend.h"

// More kinds of generators than any build has.
#define QN__MAX_GENERATORS 8u

typedef struct qn__generator {
  char name[32];
  // The identity that keys use. Until the generator is open it is predicted from the build ids in
  // the files; if the opened one says otherwise, that counts from then on.
  char identity[256];
  // Not "": the generator, or the compiler library under it, is not installed, and identities that
  // begin like this may have made what is in a bundle.
  char prefix[256];
  const qn_codegen_t* table;  // NULL until opened
  qn_codegen_t opened;        // what `table` points to, if it came from a shared object
  void* self;
  _Atomic bool has_worked;
} qn__generator_t;

typedef struct qn__generators {
  qn__mutex_t opening;    // held while one is opened; taken before the other one
  qn__mutex_t mutex;      // of all below
  const char* directory;  // borrowed from the configuration; "" for the search
  qn__generator_t items[QN__MAX_GENERATORS];
  uint32_t count;
  const qn__bundle_t* const* bundles;  // borrowed; whose identities are tried
  size_t bundle_count;
  qn__fork_node_t fork_node;
} qn__generators_t;

// Tables that are part of the library (builtin.c).
extern const qn_codegen_t qn__interp_codegen;
extern const qn_codegen_t qn__null_codegen;

// The object must not move afterwards.
qn_status_t qn__generators_init(qn__generators_t* generators, const char* directory);
void qn__generators_deinit(qn__generators_t* generators);
// The identity for keys, without opening anything. `*out_index` stays valid. Errors: UNSUPPORTED
// beyond QN__MAX_GENERATORS.
qn_status_t qn__generators_find(qn__generators_t* generators, const char* name, uint32_t* out_index,
                                char out_identity[256]);
// Keys name the compiler that made the code. On a machine without it nothing can be predicted;
// there the identities that the open bundles name are tried one after the other. `bundles` is
// borrowed until the next call.
void qn__generators_use_bundles(qn__generators_t* generators, const qn__bundle_t* const* bundles,
                                size_t count);
// The n-th identity to try for keys; 0 is what qn__generators_find gives. False beyond the last.
bool qn__generators_alternative(qn__generators_t* generators, uint32_t index, uint32_t n,
                                char out_identity[256]);
// Whether generator and compiler library are there, as far as their files tell.
bool qn__generators_is_installed(qn__generators_t* generators, uint32_t index);
// Opens the generator if it is not open, and gives its table, state and true identity. Errors:
// UNAVAILABLE with what was tried.
qn_status_t qn__generators_open(qn__generators_t* generators, uint32_t index,
                                const qn_codegen_t** out_table, void** out_self,
                                char out_identity[256]);

// Around opening it and compiling: what its libraries make in their first use must not be torn down
// under that use when the process ends (base/fork.h). The result goes to the end.
bool qn__generators_begin_work(qn__generators_t* generators, uint32_t index);
void qn__generators_end_work(qn__generators_t* generators, uint32_t index, bool is_first);

// Writes the intermediate forms that the list `forms` names ("ir,asm") as DIRECTORY/NAME.FORM.
// Failures are only logged (dump.c).
void qn__codegen_dump(const qn_codegen_t* codegen, void* self, const qn_compile_request_t* request,
                      const char* forms, const char* directory, const char* name);

#endif  // QUERN_JIT_GENERATOR_H_
