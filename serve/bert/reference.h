// SPDX-License-Identifier: Apache-2.0
// serve/bert/reference.h: the same network in plain C and double precision: slow, short, and
// without quern. Examples and tests compare the kernels with it.
#ifndef SERVE_BERT_REFERENCE_H_
#define SERVE_BERT_REFERENCE_H_

#include "serve/bert/weights.h"

// Computes the vector of one sentence of `length` ids, without padding. Writes [width]. Errors:
// OUT_OF_MEMORY.
QN_MUST_USE qn_status_t bert_reference(const bert_weights_t* weights, int64_t length,
                                       const int64_t* ids, float* vector);

#endif  // SERVE_BERT_REFERENCE_H_
