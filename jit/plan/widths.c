// SPDX-License-Identifier: Apache-2.0
// jit/plan/widths.c: see widths.h.
#include "jit/plan/widths.h"

#include <assert.h>

static size_t place_of(const qn__gpu_widths_t* widths, const qn__ir_expr_t* expr) {
  uintptr_t hash = (uintptr_t)expr >> 4;
  hash ^= hash >> 15;
  size_t place = hash & (widths->capacity - 1);
  while (widths->places[place] && widths->places[place] != expr) {
    place = (place + 1) & (widths->capacity - 1);
  }
  return place;
}

bool qn__gpu_widths_check(const qn__gpu_widths_t* widths) {
  size_t count = 0;
  for (size_t i = 0; i < widths->capacity; i++) {
    if (!widths->places[i]) continue;
    if (QN_NEVER(place_of(widths, widths->places[i]) != i)) return false;
    count++;
  }
  return !QN_NEVER(count != widths->count || 2 * count > widths->capacity);
}

bool qn__gpu_is_narrow_expr(const qn__gpu_widths_t* widths, const qn__ir_expr_t* expr) {
  return widths && widths->capacity != 0 && widths->places[place_of(widths, expr)] == expr;
}

bool qn__gpu_is_narrow_var(const qn__gpu_widths_t* widths, const qn__ir_var_t* var) {
  return widths && var->id < widths->var_count && widths->vars[var->id];
}

bool qn__gpu_widths_add(qn__gpu_widths_t* widths, qn__arena_t* arena, const qn__ir_expr_t* expr) {
  if (2 * (widths->count + 1) > widths->capacity) {
    qn__gpu_widths_t grown = *widths;
    grown.capacity = widths->capacity ? 2 * widths->capacity : 64;
    grown.places = qn__arena_alloc_array(arena, grown.capacity, sizeof *grown.places);
    if (!grown.places) return false;
    for (size_t i = 0; i < widths->capacity; i++) {
      if (widths->places[i]) grown.places[place_of(&grown, widths->places[i])] = widths->places[i];
    }
    *widths = grown;
    assert(qn__gpu_widths_check(widths));
  }
  size_t place = place_of(widths, expr);
  if (!widths->places[place]) widths->count++;
  widths->places[place] = expr;
  assert(2 * widths->count <= widths->capacity);  // so that searches end
  return true;
}

bool qn__gpu_is_low_bits_op(const qn__ir_expr_t* expr) {
  switch (expr->op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_NEG:
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
    case QN_OP_NOT:
      return true;
    case QN_OP_SHL:
      return expr->args[1]->kind == QN__EXPR_INT;
    default:
      return false;
  }
}
