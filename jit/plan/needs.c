// SPDX-License-Identifier: Apache-2.0
// jit/plan/needs.c: collects needs, drops those that others imply, and writes the guard.
//
// A dropped need must follow from the remaining ones for all values of the variables. A remaining
// need may become slightly stricter for that: the guard then refuses a few calls at the limit.
#include "jit/plan/needs.h"

#include <assert.h>

static const qn__gpu_bound_t* base_of(const qn__gpu_bound_t* bound, int64_t* out_shift) {
  bool is_sum = bound->op == QN_OP_ADD && qn__gpu_bound_is_const(bound->args[1]);
  *out_shift = is_sum ? bound->args[1]->value : 0;
  return is_sum ? bound->args[0] : bound;
}

// Of two needs that differ by a constant, only the stricter one is kept.
void qn__gpu_needs_add(qn__gpu_needs_t* self, qn__gpu_need_kind_t kind,
                       const qn__gpu_bound_t* bound) {
  assert(!qn__gpu_bound_is_const(bound));
  assert(kind != QN__GPU_NEED_SIGN || bound->op == QN_OP_NONE);
  // max(a, c) with a constant c that fits 32 bits needs only that a fits; likewise for min.
  qn_op_t join = kind == QN__GPU_NEED_MAX ? QN_OP_MAX : QN_OP_MIN;
  while (bound->op == join && qn__gpu_bound_is_const(bound->args[1]) &&
         qn__gpu_is_within_32_bits(bound->args[1]->value)) {
    bound = bound->args[0];
  }
  int64_t shift, other_shift;
  const qn__gpu_bound_t* base = base_of(bound, &shift);
  for (qn__gpu_need_t* need = self->lists[kind]; need; need = need->next) {
    if (base_of(need->bound, &other_shift) != base) continue;
    if (kind == QN__GPU_NEED_MAX ? shift > other_shift : shift < other_shift) need->bound = bound;
    return;
  }
  qn__gpu_need_t* need = QN__ARENA_NEW(self->bounds->arena, qn__gpu_need_t);
  if (!need) {
    self->has_no_memory = true;
    return;
  }
  *need = (qn__gpu_need_t){bound, self->lists[kind]};
  self->lists[kind] = need;
}

// ---- needs that follow from others

// Needs `x + c` with |c| beyond this are kept as they are, so that the rules below cannot overflow.
enum { MAX_SHIFT = 1 << 28 };

static bool is_modest(int64_t shift) {
  return shift >= -MAX_SHIFT && shift <= MAX_SHIFT;
}

// Returns whether the bound is x / k, rounded up or down, with a constant k of at least 2.
static bool is_quotient(const qn__gpu_bound_t* bound) {
  if (bound->op != QN_OP_CEILDIV && bound->op != QN_OP_FLOORDIV && bound->op != QN_OP_SHR) {
    return false;
  }
  if (!qn__gpu_bound_is_const(bound->args[1])) return false;
  int64_t by = bound->args[1]->value;
  return bound->op == QN_OP_SHR ? by >= 1 && by < 63 : by >= 2;
}

// Returns whether the bound is x rounded up to a multiple of a constant k.
static bool is_rounded(const qn__gpu_bound_t* bound) {
  return bound->op == QN_OP_MUL && is_quotient(bound->args[0]) &&
         bound->args[0]->op == QN_OP_CEILDIV && bound->args[1] == bound->args[0]->args[1];
}

// Returns whether the need of x + c follows from one of ceildiv(x, k) * k + d, which is at least x
// + d. Raises d to c if it is smaller.
static bool moves_into_rounded(const qn__gpu_needs_t* self, const qn__gpu_need_t* need) {
  int64_t shift, other_shift;
  const qn__gpu_bound_t* base = base_of(need->bound, &shift);
  for (qn__gpu_need_t* other = self->lists[QN__GPU_NEED_MAX]; other; other = other->next) {
    const qn__gpu_bound_t* rounded = base_of(other->bound, &other_shift);
    if (!is_rounded(rounded) || rounded->args[0]->args[0] != base) continue;
    if (other_shift < shift) {
      const qn__gpu_bound_t* moved = qn__gpu_bound_op(self->bounds, QN_OP_ADD, rounded,
                                                      qn__gpu_bound_const(self->bounds, shift));
      if (!moved) return false;
      other->bound = moved;
    }
    return true;
  }
  return false;
}

// Returns whether x / k + c follows from a need of x or of a multiple of it: with k >= 2 the
// quotient is at most half of the range, so the limited c fits too.
static bool follows_from_dividend(const qn__gpu_need_t* needs, const qn__gpu_need_t* need) {
  int64_t shift, other_shift;
  const qn__gpu_bound_t* base = base_of(need->bound, &shift);
  if (!is_quotient(base) || !is_modest(shift)) return false;
  const qn__gpu_bound_t* dividend = base_of(base->args[0], &other_shift);
  if (!is_modest(other_shift)) return false;
  for (const qn__gpu_need_t* other = needs; other; other = other->next) {
    const qn__gpu_bound_t* found = base_of(other->bound, &other_shift);
    if (!is_modest(other_shift)) continue;
    if (found == dividend || (is_rounded(found) && found->args[0] == base)) return true;
  }
  return false;
}

static bool upper_follows(const qn__gpu_needs_t* self, const qn__gpu_need_t* need) {
  return moves_into_rounded(self, need) ||
         follows_from_dividend(self->lists[QN__GPU_NEED_MAX], need);
}

static bool lower_follows(const qn__gpu_needs_t* self, const qn__gpu_need_t* need) {
  return follows_from_dividend(self->lists[QN__GPU_NEED_MIN], need);
}

// Returns whether a lower bound follows because its symbol is not negative.
static bool follows_from_sign(const qn__gpu_needs_t* self, const qn__gpu_need_t* need) {
  int64_t shift;
  const qn__gpu_bound_t* base = base_of(need->bound, &shift);
  if (!is_modest(shift)) return false;
  const qn__gpu_need_t* sign = self->lists[QN__GPU_NEED_SIGN];
  while (sign && sign->bound != base) sign = sign->next;
  return sign != NULL;
}

static void drop(qn__gpu_needs_t* self, qn__gpu_need_kind_t kind,
                 bool (*follows)(const qn__gpu_needs_t* self, const qn__gpu_need_t* need)) {
  for (qn__gpu_need_t** at = &self->lists[kind]; *at;) {
    if (follows(self, *at)) {
      *at = (*at)->next;
    } else {
      at = &(*at)->next;
    }
  }
}

// ---- the guard

static void put_extreme(const qn__gpu_host_t* host, qn__gpu_ops_t* out, const qn__gpu_need_t* needs,
                        qn_op_t join, qn_op_t compare, int64_t limit) {
  if (!needs) return;
  bool is_joined = out->count != 0;
  for (const qn__gpu_need_t* need = needs; need; need = need->next) {
    qn__gpu_bound_put(host, out, need->bound);
    if (need != needs) qn__gpu_put_apply(out, join);
  }
  qn__gpu_put_const(out, limit);
  qn__gpu_put_apply(out, compare);
  if (is_joined) qn__gpu_put_apply(out, QN_OP_LOGIC_AND);
}

// A longer guard costs more at each launch than the narrow kernel saves.
enum { MAX_GUARD_OPS = 400 };

bool qn__gpu_needs_put_guard(qn__gpu_needs_t* self, const qn__gpu_host_t* host,
                             qn__gpu_ops_t* out) {
  drop(self, QN__GPU_NEED_MAX, upper_follows);
  drop(self, QN__GPU_NEED_MIN, lower_follows);
  drop(self, QN__GPU_NEED_MIN, follows_from_sign);
  put_extreme(host, out, self->lists[QN__GPU_NEED_SIGN], QN_OP_OR, QN_OP_GE, 0);
  put_extreme(host, out, self->lists[QN__GPU_NEED_MAX], QN_OP_MAX, QN_OP_LE, INT32_MAX);
  put_extreme(host, out, self->lists[QN__GPU_NEED_MIN], QN_OP_MIN, QN_OP_GE, INT32_MIN);
  assert(out->has_failed || out->depth == (out->count > 0));
  return out->count <= MAX_GUARD_OPS;
}
