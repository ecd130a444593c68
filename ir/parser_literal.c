// SPDX-License-Identifier: Apache-2.0
// ir/parser_literal.c: reads the value of a literal from the source text when its dtype is known.
//
// Not here: the choice of the dtype (parser_type.c).
#include <math.h>

#include "ir/arith.h"
#include "ir/decimal.h"
#include "ir/parser.h"

static bool fits(qn_dtype_t dtype, uint64_t magnitude, bool is_negative) {
  uint32_t bits = qn__dtype_bits(dtype);
  if (!qn__dtype_is_signed(dtype)) {
    if (is_negative && magnitude != 0) return false;
    return bits >= 64 || magnitude >> bits == 0;
  }
  uint64_t limit = UINT64_C(1) << (bits - 1);
  return is_negative ? magnitude <= limit : magnitude < limit;
}

bool qn__type_settle_int(qn__parser_t* p, qn__ir_expr_t* expr, qn_dtype_t dtype) {
  qn_str_t text = qn__lexer_slice(p->text, expr->loc);
  bool is_negative = text.size > 0 && text.data[0] == '-';
  qn_str_t digits = {text.data + is_negative, text.size - is_negative};
  uint64_t magnitude = 0;
  bool is_good = qn__lexer_int(digits, &magnitude);
  expr->dtype = dtype;
  if (qn__dtype_is_whole(dtype)) {
    if (is_good && fits(dtype, magnitude, is_negative)) {
      expr->int_value = (int64_t)(is_negative ? 0 - magnitude : magnitude);
      return true;
    }
    qn__parser_error(p, QN__CODE_LITERAL_RANGE, expr->loc, NULL, "%.*s does not fit in %s",
                     QN_STR_ARG(text), qn_dtype_text(dtype));
    return false;
  }
  if (qn__dtype_is_real(dtype)) {
    double value = qn__round_float(dtype, (double)magnitude);
    // 2^64 is the smallest double that does not fit an uint64_t.
    if (is_good && value < 18446744073709551616.0 && (uint64_t)value == magnitude) {
      expr->kind = QN__EXPR_FLOAT;
      expr->float_value = is_negative ? -value : value;
      return true;
    }
    qn__parser_error(p, QN__CODE_LITERAL_RANGE, expr->loc,
                     "write it as a float literal (with '.') if the nearest value is meant",
                     "%s cannot hold the integer %.*s exactly", qn_dtype_text(dtype),
                     QN_STR_ARG(text));
    return false;
  }
  qn__parser_error(p, QN__CODE_OPERAND_TYPE, expr->loc, "write true or false",
                   "the integer %.*s is used as bool", QN_STR_ARG(text));
  return false;
}

bool qn__type_settle_float(qn__parser_t* p, qn__ir_expr_t* expr, qn_dtype_t dtype) {
  qn_str_t text = qn__lexer_slice(p->text, expr->loc);
  if (!qn__dtype_is_real(dtype)) {
    bool is_bool = dtype == QN_DTYPE_BOOL;
    qn__parser_error(p, QN__CODE_FLOAT_LITERAL, expr->loc,
                     is_bool ? "write true or false" : "write an integer, without '.' and exponent",
                     "the float %.*s is used as %s", QN_STR_ARG(text), qn_dtype_text(dtype));
    return false;
  }
  expr->dtype = dtype;
  bool is_negative = text.size > 0 && text.data[0] == '-';
  qn_str_t digits = {text.data + is_negative, text.size - is_negative};
  double value;
  if (qn__str_equal(digits, QN_STR("inf"))) {
    value = (double)INFINITY;
    if (!qn__float_has_infinity(dtype)) {
      qn__parser_error(p, QN__CODE_LITERAL_RANGE, expr->loc, NULL, "%s has no infinity",
                       qn_dtype_text(dtype));
      return false;
    }
  } else if (qn__str_equal(digits, QN_STR("nan"))) {
    value = (double)NAN;
    if (!qn__float_has_nan(dtype)) {
      qn__parser_error(p, QN__CODE_LITERAL_RANGE, expr->loc, NULL, "%s has no NaN",
                       qn_dtype_text(dtype));
      return false;
    }
  } else {
    value = qn__decimal_parse(dtype, digits);
    if (isinf(value)) {
      const char* help = qn__float_has_infinity(dtype) ? "write inf if infinity is meant" : NULL;
      qn__parser_error(p, QN__CODE_LITERAL_RANGE, expr->loc, help, "%.*s is beyond the largest %s",
                       QN_STR_ARG(text), qn_dtype_text(dtype));
      return false;
    }
  }
  expr->float_value = is_negative ? -value : value;
  return true;
}
