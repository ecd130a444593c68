// ir/tables.c: look-ups in the tables of operators and small enumerations.
//
// Not here: dtypes (base/dtype.c), what an operator computes (arith.c) and which operands it takes
// (verify_expr.c).
#include <stdio.h>

#include "ir/ir.h"

static const qn__ir_op_info_t ops[QN_OP_COUNT] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) \
  [value] = {text, arity, QN__RULE_##rule, QN__SYNTAX_##syntax, doc},
#include "quern/ops.inc"
#undef QN_OP
};

const qn__ir_op_info_t* qn__op_info(qn_op_t op) {
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

const char* qn__scope_text(qn__ir_scope_t scope) {
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

void qn__lane_message(qn_op_t op, int64_t warp_size, char out_text[QN__LANE_MESSAGE_BYTES]) {
  (void)snprintf(out_text, QN__LANE_MESSAGE_BYTES,
                 "'%s' reaches beyond its warp of %" PRId64 " threads", qn__op_info(op)->text,
                 warp_size);
}
