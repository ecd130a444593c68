// SPDX-License-Identifier: Apache-2.0
// base/dtype.c: looks up the table of dtypes.
#include "base/dtype.h"

typedef struct dtype_info {
  const char* text;
  uint32_t bits;
  qn__dtype_class_t class_;
} dtype_info_t;

static const dtype_info_t dtypes[QN_DTYPE_COUNT] = {
    [QN_DTYPE_NONE] = {"none", 0, QN__CLASS_NONE},
#define QN_DTYPE(name, value, text, bits, class_, dl_code, dl_bits) \
  [value] = {text, bits, QN__CLASS_##class_},
#include "quern/dtypes.inc"
#undef QN_DTYPE
};

static const dtype_info_t* dtype_info(qn_dtype_t dtype) {
  return &dtypes[(unsigned)dtype < QN_DTYPE_COUNT ? dtype : QN_DTYPE_NONE];
}

const char* qn_dtype_text(qn_dtype_t dtype) {
  return dtype_info(dtype)->text;
}

size_t qn_dtype_size_bytes(qn_dtype_t dtype) {
  return (dtype_info(dtype)->bits + 7) / 8;
}

size_t qn_dtype_size_bits(qn_dtype_t dtype) {
  return dtype_info(dtype)->bits;
}

qn_dtype_t qn_dtype_parse(const char* text) {
  return qn__dtype_from_str(qn__str(text));
}

qn__dtype_class_t qn__dtype_class(qn_dtype_t dtype) {
  return dtype_info(dtype)->class_;
}

uint32_t qn__dtype_bits(qn_dtype_t dtype) {
  return dtype_info(dtype)->bits;
}

qn_dtype_t qn__dtype_from_str(qn_str_t text) {
  for (int i = QN_DTYPE_NONE + 1; i < QN_DTYPE_COUNT; i++) {
    if (qn__str_equal(text, qn__str(dtypes[i].text))) return (qn_dtype_t)i;
  }
  return QN_DTYPE_NONE;
}
