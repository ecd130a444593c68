// SPDX-License-Identifier: Apache-2.0
// jit/observe/keyset.h: a set of keys, to act once for each key.
//
// Not the memory table (table.h), which holds executables. Thread rule: one thread at a time.
#ifndef QUERN_JIT_KEYSET_H_
#define QUERN_JIT_KEYSET_H_

#include "base/base.h"

typedef struct qn__keyset {
  qn_allocator_t allocator;
  // Open addressing. A slot of zeros is empty, so the key of zeros is never added.
  qn_hash128_t* slots;
  size_t capacity;  // a power of two, or 0
  size_t count;
} qn__keyset_t;

typedef enum qn__keyset_answer {
  QN__KEYSET_NEW,        // the key was added
  QN__KEYSET_KNOWN,      // the set had the key already
  QN__KEYSET_NO_MEMORY,  // the key was not added
} qn__keyset_answer_t;

void qn__keyset_init(qn__keyset_t* set, qn_allocator_t allocator);
void qn__keyset_deinit(qn__keyset_t* set);
qn__keyset_answer_t qn__keyset_add(qn__keyset_t* set, qn_hash128_t key);
bool qn__keyset_has(const qn__keyset_t* set, qn_hash128_t key);

#endif  // QUERN_JIT_KEYSET_H_
