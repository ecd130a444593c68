// SPDX-License-Identifier: Apache-2.0
// ir/equation.c: see equation.h.
#include "ir/equation.h"

#include <assert.h>
#include <inttypes.h>

#include "ir/affine.h"
#include "ir/text.h"

uint32_t qn__word_of(const qn__ir_func_t* function, const qn__ir_var_t* var) {
  for (size_t i = 0; i < function->param_count; i++) {
    if (function->params[i].scalar == var) return (uint32_t)i;
  }
  for (size_t i = 0; i < function->symbol_count; i++) {
    if (function->symbols[i] == var) return (uint32_t)(function->param_count + i);
  }
  return UINT32_MAX;
}

// The variables of an expression that have no value.
typedef struct unknowns {
  const qn__ir_func_t* function;
  const bool* is_known;
  const qn__ir_var_t* first;
  bool has_others;
} unknowns_t;

// Returns false at what no extent may have.
static bool note_unknowns(unknowns_t* unknowns, const qn__ir_expr_t* expr) {
  uint32_t word;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return true;
    case QN__EXPR_VAR:
      word = qn__word_of(unknowns->function, expr->var);
      if (expr->var == unknowns->first) return true;
      if (word != UINT32_MAX && unknowns->is_known[word]) return true;
      unknowns->has_others = unknowns->first != NULL;
      unknowns->first = expr->var;
      return true;
    case QN__EXPR_OP:
    case QN__EXPR_CAST:
    case QN__EXPR_COND:
      for (uint32_t i = 0; i < 3 && expr->args[i] && !unknowns->has_others; i++) {
        if (!note_unknowns(unknowns, expr->args[i])) return false;
      }
      return !unknowns->has_others;
    default:
      return false;
  }
}

// Returns the only symbol of the extent without a value, and its coefficient. NULL: there are
// several or none, or the extent is not linear in it.
static const qn__ir_var_t* find_symbol(const qn__ir_func_t* function, const bool* is_known,
                                       const qn__ir_expr_t* extent, int64_t* out_coefficient) {
  unknowns_t unknowns = {.function = function, .is_known = is_known};
  if (!note_unknowns(&unknowns, extent)) return NULL;
  const qn__ir_var_t* symbol = unknowns.first;
  if (!symbol || symbol->kind != QN__VAR_SYMBOL) return NULL;
  qn__ir_affine_t sum = qn__affine_of(extent, NULL);
  if (!sum.is_valid) return NULL;
  for (uint32_t i = 0; i < sum.count; i++) {
    // Any other part of the sum must be known: `n // 2` is not linear in n.
    if (sum.terms[i].atom->kind == QN__EXPR_VAR) continue;
    unknowns = (unknowns_t){.function = function, .is_known = is_known};
    if (!note_unknowns(&unknowns, sum.terms[i].atom) || unknowns.first) return NULL;
  }
  *out_coefficient = qn__affine_coefficient(&sum, symbol);
  return *out_coefficient == 0 ? NULL : symbol;
}

bool qn__equation_find(const qn__ir_func_t* function, const bool* is_known,
                       qn__ir_equation_t* out_equation) {
  if (function->param_count + function->symbol_count > QN__EQUATION_WORDS) return false;
  bool is_open = false;
  for (size_t i = 0; i < function->symbol_count && !is_open; i++) {
    is_open = !is_known[function->param_count + i];
  }
  for (uint32_t i = 0; is_open && i < function->param_count; i++) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    for (uint32_t d = 0; buffer && is_known[i] && d < buffer->rank; d++) {
      if (buffer->shape[d]->kind != QN__EXPR_OP) continue;
      int64_t coefficient;
      const qn__ir_var_t* symbol = find_symbol(function, is_known, buffer->shape[d], &coefficient);
      if (!symbol) continue;
      *out_equation = (qn__ir_equation_t){symbol, buffer->shape[d], i, d, coefficient};
      return true;
    }
  }
  return false;
}

bool qn__equation_solve(const qn__ir_equation_t* equation, int64_t extent, int64_t rest,
                        int64_t* out_value) {
  const int64_t coefficient = equation->coefficient;
  int64_t product;
  assert(coefficient != 0);
  // The quotient of INT64_MIN and -1 overflows.
  if (__builtin_sub_overflow(extent, rest, &product) ||
      (product == INT64_MIN && coefficient == -1) || product % coefficient != 0) {
    return false;
  }
  *out_value = product / coefficient;
  return *out_value >= 0;
}

// Computes the extent for a value of the symbol. False: it overflows or is negative.
static bool extent_for(const qn__ir_equation_t* equation, int64_t rest, int64_t value,
                       int64_t* out_extent) {
  return !__builtin_mul_overflow(equation->coefficient, value, out_extent) &&
         !__builtin_add_overflow(*out_extent, rest, out_extent) && *out_extent >= 0;
}

void qn__equation_explain(const qn__ir_equation_t* equation, int64_t extent, int64_t rest,
                          qn__buffer_t* out) {
  qn__buffer_format(out, "%" PRId64 " is ", extent);
  qn__text_print_extent(equation->extent, out);
  qn__buffer_format(out, " for no %s", equation->symbol->name);
  int64_t product, first, second;
  const int64_t coefficient = equation->coefficient;
  if (__builtin_sub_overflow(extent, rest, &product)) return;
  if (product != 0 && (product < 0) != (coefficient < 0)) {
    const char* bound = coefficient < 0 ? "most" : "least";
    if (rest >= 0) qn__buffer_format(out, " of at least 0; expected at %s %" PRId64, bound, rest);
    return;
  }
  if (product == INT64_MIN && coefficient == -1) return;
  const int64_t value = product / coefficient;
  bool has_first = extent_for(equation, rest, value, &first);
  bool has_second = extent_for(equation, rest, value + 1, &second);
  if (has_first && has_second) {
    bool is_rising = first < second;
    qn__buffer_format(out, "; expected %" PRId64 " or %" PRId64, is_rising ? first : second,
                      is_rising ? second : first);
  } else if (has_first || has_second) {
    qn__buffer_format(out, "; expected %" PRId64, has_first ? first : second);
  }
}
