// SPDX-License-Identifier: Apache-2.0
// serve/bert/try.h: early return from functions that make nothing which they would have to free.
#ifndef SERVE_BERT_TRY_H_
#define SERVE_BERT_TRY_H_

#include "quern/quern.h"

// Returns the status of `expr` from the calling function unless it is ok.
#define BERT_TRY(expr)         \
  do {                         \
    qn_status_t try_ = (expr); \
    if (!qn_ok(try_)) {        \
      return try_;             \
    }                          \
  } while (0)

#endif  // SERVE_BERT_TRY_H_
