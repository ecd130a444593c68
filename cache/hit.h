// SPDX-License-Identifier: Apache-2.0
// cache/hit.h: the result of a get, the same for every tier, and the entry of a hit.
#ifndef QUERN_CACHE_HIT_H_
#define QUERN_CACHE_HIT_H_

#include "cache/entry.h"

typedef enum qn__get_result {
  QN__GET_HIT = 0,
  QN__GET_ABSENT,     // no such entry
  QN__GET_BAD,        // refused: see `reason`
  QN__GET_ERROR,      // the system reported `error`
  QN__GET_UNTRUSTED,  // a file that is not trusted, or a value that is not authentic
  QN__GET_NO_MEMORY,
  QN__GET_TIMEOUT,  // no answer by the deadline
  QN__GET_OFF,      // the tier is off for a while
} qn__get_result_t;

typedef struct qn__hit {
  qn__entry_t entry;    // its spans are borrowed until the tier's release
  qn__reason_t reason;  // of QN__GET_BAD
  int error;            // errno of QN__GET_ERROR
  uint8_t* bytes;       // owned: the whole entry, aligned to 16 bytes
  size_t size_bytes;    // of the entry
} qn__hit_t;

#endif  // QUERN_CACHE_HIT_H_
