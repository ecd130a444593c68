// SPDX-License-Identifier: Apache-2.0
// tests/support/reencode.h: canonical bytes from the public walk over a module (quern/read.h).
//
// A module that is written again byte by byte proves that the walk shows all of it.
#ifndef QUERN_TESTS_SUPPORT_REENCODE_H_
#define QUERN_TESTS_SUPPORT_REENCODE_H_

#include "base/buffer.h"
#include "quern/read.h"

// The kinds of nodes that the walk met, a bit for each value of its enumeration.
typedef struct qn_met {
  uint32_t stmts;
  uint32_t exprs;
  uint32_t vars;
  uint32_t scopes;
} qn_met_t;

// The places of a module's nodes.
typedef enum qn_places {
  QN_PLACES_NONE,   // it was made of a text: 0
  QN_PLACES_OWN,    // qn_module_decode made it: those in its bytes
  QN_PLACES_OTHER,  // qn_module_lower made it: those in other bytes
} qn_places_t;

// Appends the canonical bytes of the module. Aborts
// where the walk gives an error, a kind that this file does not know, or a dtype, an id, a place or
// an order that disagrees with the bytes. `out_met` may be NULL.
void qn_reencode(const qn_module_t* module, qn_places_t places, qn__buffer_t* out,
                 qn_met_t* out_met);

#endif  // QUERN_TESTS_SUPPORT_REENCODE_H_
