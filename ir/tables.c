// ir/tables.c: look-ups in the tables of dtypes, operators and small enumerations.
//
// Not here: what an operator computes (arith.c) and which operands it takes (verify_expr.c).
// Thread rule: pure functions. Read next: node.c.
#include "ir/ir.h"

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
  return dtype_info(dtype)->bits / 8;
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

static const qn__op_info_t ops[QN_OP_COUNT] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) \
  [value] = {text, arity, QN__RULE_##rule, QN__SYNTAX_##syntax, doc},
#include "quern/ops.inc"
#undef QN_OP
};

const qn__op_info_t* qn__op_info(qn_op_t op) {
  if ((unsigned)op >= QN_OP_COUNT || !ops[op].text) return NULL;
  return &ops[op];
}

const char* qn__loop_kind_text(qn_loop_kind_t kind) {
  switch (kind) {
#define QN_LOOP_KIND(name, value, text, doc) \
  case QN_LOOP_##name:                       \
    return text;
#include "ir/tables.inc"
#undef QN_LOOP_KIND
  }
  return NULL;
}

const char* qn__scope_text(qn__scope_t scope) {
  switch (scope) {
#define QN_SCOPE(name, value, text, doc) \
  case QN__SCOPE_##name:                 \
    return text;
#include "ir/tables.inc"
#undef QN_SCOPE
  }
  return NULL;
}

const char* qn__access_text(qn_access_t access) {
  switch (access) {
    case QN_ACCESS_NONE:
      break;
#define QN_ACCESS(name, value, text) \
  case QN_ACCESS_##name:             \
    return text;
#include "ir/tables.inc"
#undef QN_ACCESS
  }
  return NULL;
}

const char* qn__reduce_text(qn_reduce_kind_t kind) {
  switch (kind) {
#define QN_REDUCE(name, value, text, doc) \
  case QN_REDUCE_##name:                  \
    return text;
#include "ir/tables.inc"
#undef QN_REDUCE
  }
  return NULL;
}

const char* qn__atomic_text(qn_atomic_op_t op) {
  switch (op) {
#define QN_ATOMIC(name, value, text, operands, doc) \
  case QN_ATOMIC_##name:                            \
    return text;
#include "ir/tables.inc"
#undef QN_ATOMIC
  }
  return NULL;
}

uint32_t qn__atomic_operand_count(qn_atomic_op_t op) {
  switch (op) {
#define QN_ATOMIC(name, value, text, operands, doc) \
  case QN_ATOMIC_##name:                            \
    return operands;
#include "ir/tables.inc"
#undef QN_ATOMIC
  }
  return 0;
}
