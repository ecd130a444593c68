// SPDX-License-Identifier: Apache-2.0
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

static const qn__ir_op_info_t dots[] = {
#define QN_DOT(name, value, text, rule, doc) \
  [(value) - QN__OP_DOT_FIRST] = {text, 3, QN__RULE_##rule, QN__SYNTAX_CALL, doc},
#include "ir/dots.inc"
#undef QN_DOT
};
static_assert((int)QN_OP_COUNT <= (int)QN__OP_DOT_FIRST,
              "canonical bytes hold operators in a byte");

const qn__ir_op_info_t* qn__op_info(qn_op_t op) {
  if (qn__op_is_dot(op)) return &dots[(int)op - QN__OP_DOT_FIRST];
  if ((unsigned)op >= QN_OP_COUNT || !ops[op].text) return NULL;
  return &ops[op];
}

#define TEXT_OF(texts, value) ((value) < QN_COUNT_OF(texts) ? (texts)[value] : NULL)

const char* qn__loop_kind_text(uint32_t kind) {
  static const char* const texts[] = {
#define QN_LOOP_KIND(name, value, text, doc) [value] = text,
#include "ir/tables.inc"
#undef QN_LOOP_KIND
  };
  return TEXT_OF(texts, kind);
}

const char* qn__scope_text(uint32_t scope) {
  static const char* const texts[] = {
#define QN_SCOPE(name, value, text, doc) [value] = text,
#include "ir/tables.inc"
#undef QN_SCOPE
  };
  return TEXT_OF(texts, scope);
}

const char* qn__access_text(uint32_t access) {
  static const char* const texts[] = {
#define QN_ACCESS(name, value, text) [value] = text,
#include "ir/tables.inc"
#undef QN_ACCESS
  };
  return TEXT_OF(texts, access);
}

const char* qn__several_text(uint32_t kind) {
  static const char* const texts[] = {
#define QN_SEVERAL(name, value, text, doc) [value] = text,
#include "ir/tables.inc"
#undef QN_SEVERAL
  };
  return TEXT_OF(texts, kind);
}

const char* qn__reduce_text(uint32_t kind) {
  static const char* const texts[] = {
#define QN_REDUCE(name, value, text, doc) [value] = text,
#include "ir/tables.inc"
#undef QN_REDUCE
  };
  return TEXT_OF(texts, kind);
}

const char* qn__leave_text(uint32_t kind) {
  static const char* const texts[] = {
#define QN_LEAVE(name, value, text, doc) [value] = text,
#include "ir/tables.inc"
#undef QN_LEAVE
  };
  return TEXT_OF(texts, kind);
}

const char* qn__atomic_text(uint32_t op) {
  static const char* const texts[] = {
#define QN_ATOMIC(name, value, text, operands, class, doc) [value] = text,
#include "ir/tables.inc"
#undef QN_ATOMIC
  };
  return TEXT_OF(texts, op);
}

uint32_t qn__word_find(qn__ir_text_fn_t text_of, qn_str_t word) {
  const char* text;
  for (uint32_t value = 1; (text = text_of(value)); value++) {
    if (qn__word_is(word, text)) return value;
  }
  return 0;
}

uint32_t qn__atomic_operand_count(qn_atomic_op_t op) {
  switch (op) {
#define QN_ATOMIC(name, value, text, operands, class, doc) \
  case QN_ATOMIC_##name:                                   \
    return operands;
#include "ir/tables.inc"
#undef QN_ATOMIC
  }
  return 0;
}

bool qn__atomic_takes(qn_atomic_op_t op, qn_dtype_t dtype) {
  enum { NUMBER, INTEGER } dtypes = INTEGER;
  switch (op) {
#define QN_ATOMIC(name, value, text, operands, class, doc) \
  case QN_ATOMIC_##name:                                   \
    dtypes = class;                                        \
    break;
#include "ir/tables.inc"
#undef QN_ATOMIC
  }
  if (qn__dtype_is_stored(dtype)) return false;
  return qn__dtype_is_int(dtype) || (dtypes == NUMBER && qn__dtype_is_float(dtype));
}

void qn__lane_message(qn_op_t op, int64_t warp_size, char out_text[QN__LANE_MESSAGE_BYTES]) {
  (void)snprintf(out_text, QN__LANE_MESSAGE_BYTES,
                 "'%s' reaches beyond its warp of %" PRId64 " threads", qn__op_info(op)->text,
                 warp_size);
}
