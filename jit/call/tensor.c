// SPDX-License-Identifier: Apache-2.0
// jit/call/tensor.c: converts dtypes to those of DLPack.
#include "quern/quern.h"

qn_dl_dtype_t qn_dtype_to_dl(qn_dtype_t dtype) {
  switch (dtype) {
#define QN_DTYPE(name, value, text, bits, class_, dl_code, dl_bits) \
  case QN_DTYPE_##name:                                             \
    return (qn_dl_dtype_t){dl_code, dl_bits, 1};
#include "quern/dtypes.inc"
#undef QN_DTYPE
    default:
      return (qn_dl_dtype_t){0, 0, 0};
  }
}
