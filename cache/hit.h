// cache/hit.h: what every tier answers: how a get ended, and the entry of a hit.
//
// Thread rule: plain data. Read next: disk.h, bundle.h, remote.h.
#ifndef QUERN_CACHE_HIT_H_
#define QUERN_CACHE_HIT_H_

#include "cache/entry.h"

typedef enum qn__get_result {
  QN__GET_HIT = 0,
  QN__GET_ABSENT,     // no such entry
  QN__GET_BAD,        // refused for `reason`
  QN__GET_ERROR,      // the system said `error`
  QN__GET_UNTRUSTED,  // not a file of ours, or not authentic
  QN__GET_NO_MEMORY,
  QN__GET_TIMEOUT,  // no answer by the deadline
  QN__GET_OFF,      // the tier is switched off for a while
} qn__get_result_t;

typedef struct qn__hit {
  qn__entry_t entry;    // spans borrowed until the tier's release
  qn__reason_t reason;  // of QN__GET_BAD
  int error;            // errno of QN__GET_ERROR
  uint8_t* bytes;       // owned: the whole entry, aligned to 16 bytes
  size_t size_bytes;    // of the entry
} qn__hit_t;

#endif  // QUERN_CACHE_HIT_H_
