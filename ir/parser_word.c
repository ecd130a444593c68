// SPDX-License-Identifier: Apache-2.0
// ir/parser_word.c: finds words in the tables, and parses dtypes and lists in brackets.
//
// Not here: the rest of the grammar (parser_expr.c, parser_stmt.c).
#include "ir/parser.h"

// ------------------------------------------------------------------------------------ words

qn_op_t qn__op_from_word(qn_str_t word) {
  // C's name. Kernels use the default rounding mode, where both are the same.
  if (qn__str_equal(word, qn__str("nearbyint"))) return QN_OP_ROUNDEVEN;
  for (int op = 1; op < QN_OP_COUNT; op++) {
    const qn__ir_op_info_t* info = qn__op_info((qn_op_t)op);
    if (info && info->syntax == QN__SYNTAX_CALL && qn__word_is(word, info->text)) {
      return (qn_op_t)op;
    }
  }
  return QN_OP_NONE;
}

qn_dtype_t qn__parse_dtype(qn__parser_t* p) {
  if (p->is_lost) return QN_DTYPE_NONE;
  qn_str_t found = qn__parser_found(p);
  if (qn__parser_at(p, QN__TOKEN_NAME)) {
    qn_dtype_t dtype = qn__dtype_from_str(found);
    if (dtype != QN_DTYPE_NONE) {
      qn__parser_advance(p);
      return dtype;
    }
    if (!qn__text_is_reserved(found)) {
      qn__parser_suggestion_t suggestion = qn__suggest_start(found);
      qn__suggest_dtypes(&suggestion);
      const char* habit = qn__parser_habit(QN__HABIT_DTYPE, found);
      const char* help =
          habit ? habit
                : qn__suggest_help(p, &suggestion,
                                   "dtypes are bool, i8 to i64, u8 to u64, f16, bf16, f32, f64, "
                                   "f8e4m3fn, f8e5m2, i4, u4, f4e2m1fn");
      qn__parser_error(p, QN__CODE_UNKNOWN_DTYPE, p->token.loc, help, "unknown dtype '%.*s'",
                       QN_STR_ARG(found));
      qn__parser_advance(p);
      return QN_DTYPE_NONE;
    }
  }
  qn__parser_expected(p, QN__CODE_EXPECTED, qn__parser_habit(QN__HABIT_DTYPE, found), "a dtype");
  return QN_DTYPE_NONE;
}

// ------------------------------------------------------------------------------------ lists

qn__ir_expr_t** qn__parse_indices(qn__parser_t* p, const qn__ir_buffer_t* buffer,
                                  qn__ir_loc_t name_loc, uint32_t* out_height) {
  qn__ir_loc_t open = p->token.loc;
  size_t mark = p->list_size;
  bool is_good = buffer != NULL;
  *out_height = 0;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_BRACKET, "before the indices")) return NULL;
  size_t count = 0;
  while (!qn__parser_at(p, QN__TOKEN_RIGHT_BRACKET) && !p->is_lost) {
    qn__parser_operand_t operand = qn__parse_expr(p);
    qn__ir_expr_t* index = qn__type_as_index(p, operand);
    if (!index) is_good = false;
    if (operand.height > *out_height) *out_height = operand.height;
    qn__parser_push(p, index);
    count++;
    if (!qn__parser_take(p, QN__TOKEN_COMMA)) break;
  }
  if (!qn__parser_close(p, QN__TOKEN_RIGHT_BRACKET, open)) is_good = false;
  if (is_good && count != buffer->rank) {
    qn__ir_loc_t loc = qn__parser_since(p, name_loc.begin);
    qn__parser_error(p, QN__CODE_INDEX_COUNT, loc, NULL, "'%s' has rank %u, but %zu %s given",
                     buffer->name, (unsigned)buffer->rank, count,
                     count == 1 ? "index is" : "indices are");
    qn__parser_note(p, buffer->loc, "'%s' is declared here", buffer->name);
    is_good = false;
  }
  size_t total;
  void** items = qn__parser_pop_list(p, mark, &total);
  return is_good && items ? (qn__ir_expr_t**)items : NULL;
}

bool qn__parse_extents(qn__parser_t* p, const char* what, qn__ir_expr_t*** out_items,
                       uint32_t* out_count) {
  qn__ir_loc_t open = p->token.loc;
  size_t mark = p->list_size;
  *out_items = NULL;
  *out_count = 0;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_BRACKET, what)) return false;
  qn__ir_block_t* lets = p->lets;
  p->lets = NULL;  // shapes are made of what is known at the call
  while (!qn__parser_at(p, QN__TOKEN_RIGHT_BRACKET) && !p->is_lost) {
    qn__parser_push(p, qn__type_as_i64(p, qn__parse_expr(p), what));
    if (!qn__parser_take(p, QN__TOKEN_COMMA)) break;
  }
  p->lets = lets;
  bool is_good = qn__parser_close(p, QN__TOKEN_RIGHT_BRACKET, open);
  size_t count;
  void** items = qn__parser_pop_list(p, mark, &count);
  *out_items = (qn__ir_expr_t**)items;
  *out_count = (uint32_t)count;
  return is_good;
}
