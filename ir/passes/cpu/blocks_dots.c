// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_dots.c: finds the operator of dots.inc for a product of small numbers
// (blocks_dots.h).
#include "ir/passes/cpu/blocks_dots.h"
#include "ir/passes/terms.h"

enum { min_tile_steps = 16 };  // fewer leave most of a tile empty

// ---- which operands fit

static bool clear_slot(void* self, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_VAR) (*slot)->var->user = NULL;
  return qn__expr_each_child(*slot, clear_slot, self);
}

// Returns the range of an operand's value, with the ranges of lets.
static qn__ir_range_t range_of(const qn__product_t* product, qn__ir_expr_t* value) {
  qn__ir_var_facts_t facts[qn__product_max_names] = {{{0, 0}, NULL, NULL}};
  (void)clear_slot(NULL, &value);
  for (uint32_t i = 0; i < product->name_count; ++i) {
    if (product->names[i].let) (void)clear_slot(NULL, &product->names[i].let->let.value);
    product->names[i].var->user = NULL;
  }
  // The value of a let uses only names before it.
  for (uint32_t i = 0; i < product->name_count; ++i) {
    qn__ir_var_t* var = product->names[i].var;
    if (!product->names[i].let || !qn__dtype_is_int(var->dtype)) continue;
    facts[i].range = qn__range_of(product->names[i].let->let.value);
    var->user = &facts[i];
  }
  qn__ir_range_t range = qn__range_of(value);
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].var->user = NULL;
  return range;
}

// Returns true if a value of f32 is always a number of bf16.
static bool is_bf16(const qn__product_t* product, const qn__ir_expr_t* value) {
  switch (value->kind) {
    case QN__EXPR_VAR: {
      int name = qn__product_name(product, value->var);
      return name >= 0 && product->names[name].let &&
             is_bf16(product, product->names[name].let->let.value);
    }
    case QN__EXPR_CAST: {
      qn_dtype_t from = value->args[0]->dtype;
      return from == QN_DTYPE_BF16 || from == QN_DTYPE_I8 || from == QN_DTYPE_U8;
    }
    case QN__EXPR_COND:
      return is_bf16(product, value->args[1]) && is_bf16(product, value->args[2]);
    case QN__EXPR_FLOAT:
      return qn__round_float(QN_DTYPE_BF16, value->float_value) == value->float_value;
    default:
      return false;
  }
}

static bool is_within(qn__ir_range_t range, int64_t min, int64_t max) {
  return range.min >= min && range.max <= max;
}

// Returns true if the summand is the product of the first operand and the second.
static bool is_plain(const qn__product_t* product) {
  if (product->operand_count != 2 || product->slot_count != 2 || product->step_count > 1) {
    return false;
  }
  const qn__ir_expr_t* value = *product->summand;
  int name = value->kind == QN__EXPR_VAR ? qn__product_name(product, value->var) : -1;
  if (name >= 0 && product->names[name].let) value = product->names[name].let->let.value;
  if (value->kind != QN__EXPR_OP || value->op != QN_OP_MUL) return false;
  const qn__product_slot_t* slots = product->slots;
  bool is_first = slots[0].slot == &value->args[0] && slots[1].slot == &value->args[1];
  return is_first && product->operands[0].side != product->operands[1].side;
}

// Chooses an operator for bytes.
static bool find_bytes(uint32_t ops, const qn__ir_range_t* ranges, qn__blocks_dot_t* out) {
  qn__ir_range_t row = ranges[QN__PRODUCT_ROW], column = ranges[QN__PRODUCT_COLUMN];
  bool is_row_signed = is_within(row, -128, 127), is_row_unsigned = is_within(row, 0, 255);
  bool is_signed = is_within(column, -128, 127), is_unsigned = is_within(column, 0, 255);
  if ((!is_row_signed && !is_row_unsigned) || (!is_signed && !is_unsigned)) return false;
  // Twice: rows as they are, and rows of the other sign.
  for (int moves = 0; moves < 2; ++moves) {
    const struct {
      int op;
      bool fits, takes_column;
    } choices[] = {
        {QN__OP_DOT_US, is_row_unsigned && is_signed, false},
        {QN__OP_DOT_US, is_row_signed && is_unsigned, true},
        {QN__OP_DOT_SS, is_row_signed && is_signed, false},
        {QN__OP_DOT_UU, is_row_unsigned && is_unsigned, false},
    };
    for (size_t i = 0; i < QN_COUNT_OF(choices); ++i) {
      if (!choices[i].fits || !(ops & qn__dot_bit(choices[i].op))) continue;
      *out = (qn__blocks_dot_t){.op = choices[i].op,
                                .group = 4,
                                .takes_column = choices[i].takes_column,
                                .moves_rows = moves == 1};
      return true;
    }
    bool was_signed = is_row_signed;
    is_row_signed = is_row_unsigned;
    is_row_unsigned = was_signed;
  }
  return false;
}

// Returns the operators of tile registers, if a product has enough steps for them, and rows that
// are packed as they are.
static uint32_t tile_ops(const qn__product_t* product) {
  const qn__product_operand_t* operands = product->operands;
  bool is_along = operands[operands[0].side != QN__PRODUCT_ROW].runs_along_step;
  int64_t steps = qn__product_steps(product);
  return is_along && (steps < 0 || steps >= min_tile_steps) ? product->pb->options->tile_dots : 0;
}

bool qn__blocks_find_dot(const qn__product_t* product, qn__blocks_dot_t* out) {
  const qn__pass_options_t* options = product->pb->options;
  const qn__ir_expr_t* reduce = product->reduce;
  *out = (qn__blocks_dot_t){.group = 1};
  if (!options->dots || reduce->reduce.reduce_kind != QN_REDUCE_SUM || !is_plain(product)) {
    return false;
  }
  const qn__product_operand_t* operands = product->operands;
  const uint32_t tiles = tile_ops(product);
  if (reduce->dtype == QN_DTYPE_F32) {
    bool is_fast = product->pb->function->is_fast;
    bool has_op = (options->dots | tiles) & qn__dot_bit(QN__OP_DOT_BF16_FAST);
    if (!has_op || !(is_fast || options->has_exact_dots)) return false;
    if (!is_bf16(product, operands[0].value) || !is_bf16(product, operands[1].value)) return false;
    *out = (qn__blocks_dot_t){.op = QN__OP_DOT_BF16_FAST,
                              .group = 2,
                              .is_checked = !is_fast,
                              .has_tiles = tiles & qn__dot_bit(QN__OP_DOT_BF16_FAST)};
    return true;
  }
  if (reduce->dtype != QN_DTYPE_I32) return false;
  qn__ir_range_t ranges[qn__product_sides];
  for (int o = 0; o < 2; ++o) {
    ranges[operands[o].side] = range_of(product, operands[o].value);
  }
  if (find_bytes(tiles, ranges, out)) {
    out->has_tiles = true;
    return true;
  }
  if (find_bytes(options->dots, ranges, out)) return true;
  for (int s = 0; s < qn__product_sides; ++s) {
    if (!is_within(ranges[s], INT16_MIN, INT16_MAX)) return false;
  }
  if (!(options->dots & qn__dot_bit(QN__OP_DOT_WORDS))) return false;
  *out = (qn__blocks_dot_t){.op = QN__OP_DOT_WORDS, .group = 2};
  return true;
}
