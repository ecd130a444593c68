// SPDX-License-Identifier: Apache-2.0
// ir/verify_race_check.c: compares accesses to find iterations that access one element.
//
// The head of verify_race.c has the requirements R1 to R5.
#include "ir/race.h"

// Returns whether every iteration of the loop reaches an access with these conditions around it
// (R4).
static bool is_certain(const qn__race_t* r, uint32_t level, qn__race_levels_t guards,
                       uint32_t condition_count) {
  const qn__race_loop_t* loop = &r->loops[level];
  if (loop->is_single || (guards & qn__race_level_bit(level)) != 0) return false;
  return loop->is_constant || condition_count == loop->condition_count;
}

static void note_loop(qn__race_t* r, const qn__race_loop_t* loop) {
  qn__verify_note(r->v, loop->var->loc, "the iterations of this '%s' are concurrent", loop->text);
}

// Finds a loop whose level no index of the store has, and reports it. Searches from the innermost
// loop outwards to the one that contains the buffer.
void qn__race_check_store(qn__race_t* r, const qn__ir_stmt_t* stmt, const qn__ir_buffer_t* buffer,
                          qn__race_levels_t levels) {
  qn__race_place_t place = qn__race_place_of(r, buffer);
  levels |= place.levels;
  for (uint32_t level = r->level; level-- > place.level;) {
    if ((levels & qn__race_level_bit(level)) != 0 ||
        !is_certain(r, level, r->guards, r->condition_count)) {
      continue;
    }
    const qn__race_loop_t* loop = &r->loops[level];
    (void)qn__verify_error(
        r->v, QN__VERIFY_RACE_STORE, stmt->loc,
        "use the loop's variable in an index, an atomic, or a 'for'",
        "two iterations of '%s' store to one element of '%s': no index depends on '%s'", loop->text,
        buffer->name, loop->var->name);
    note_loop(r, loop);
    return;
  }
}

// Returns whether all atoms but the loop's own variable have one value in all its iterations.
static bool is_steady(qn__race_t* r, const qn__ir_affine_t* affine, uint32_t level) {
  const qn__ir_var_t* own = r->loops[level].var;
  for (uint32_t i = 0; i < affine->count; i++) {
    const qn__ir_expr_t* atom = affine->terms[i].atom;
    if (atom->kind == QN__EXPR_VAR && atom->var == own) continue;
    // Visiting records loads of the atom a second time: drop them.
    size_t mark = r->access_count;
    qn__race_levels_t levels = qn__race_visit(r, atom);
    r->access_count = mark;
    if ((levels & qn__race_level_bit(level)) != 0) return false;
  }
  return true;
}

// Finds the number of iterations between two accesses of one element (R5). For the indices
// `step * i + p` and `step * i' + q` of one dimension, i' - i must be (p - q) / step. A dimension
// without the loop's variable must have p == q. Returns false if there is no such distance, if
// dimensions disagree, or if it is 0, which is one iteration.
static bool distance(qn__race_t* r, const qn__race_access_t* a, const qn__race_access_t* b,
                     uint32_t level, int64_t* out_distance) {
  const qn__ir_var_t* own = r->loops[level].var;
  bool has_distance = false;
  for (uint32_t i = 0; i < a->buffer->rank; i++) {
    qn__ir_affine_t index_a = qn__affine_of(a->indices[i], &r->lets);
    qn__ir_affine_t index_b = qn__affine_of(b->indices[i], &r->lets);
    qn__ir_affine_t gap = qn__affine_add(&index_a, &index_b, -1);
    if (!qn__affine_is_constant(&gap) || !is_steady(r, &index_a, level)) return false;
    int64_t step = qn__affine_coefficient(&index_a, own);
    if (step == 0) {
      if (gap.constant != 0) return false;
      continue;
    }
    if (step == -1) {
      if (__builtin_sub_overflow(0, gap.constant, &gap.constant)) return false;
      step = 1;
    }
    if (gap.constant % step != 0) return false;
    int64_t here = gap.constant / step;
    if (has_distance && here != *out_distance) return false;
    *out_distance = here;
    has_distance = true;
  }
  return has_distance && *out_distance != 0;
}

static void check_pair(qn__race_t* r, const qn__race_access_t* store,
                       const qn__race_access_t* other, uint32_t level) {
  const qn__race_loop_t* loop = &r->loops[level];
  int64_t apart = 0;
  if (store->buffer != other->buffer ||
      !is_certain(r, level, store->guards, store->condition_count) ||
      !is_certain(r, level, other->guards, other->condition_count) ||
      !distance(r, store, other, level, &apart)) {
    return;
  }
  if (loop->is_constant && (apart >= loop->extent || apart <= -loop->extent)) return;
  const char* name = store->buffer->name;
  const char* kind = loop->text;
  if (other->is_store) {
    (void)qn__verify_error(r->v, QN__VERIFY_RACE_STORE, store->loc, "make the loop a 'for'",
                           "two iterations of '%s' store to one element of '%s'", kind, name);
    qn__verify_note(r->v, other->loc,
                    "the same element is stored to here, %" PRId64 " iteration%s apart",
                    apart < 0 ? -apart : apart, apart == 1 || apart == -1 ? "" : "s");
  } else {
    (void)qn__verify_error(r->v, QN__VERIFY_RACE_READ, other->loc,
                           "read from another buffer, or make the loop a 'for'",
                           "an iteration of '%s' reads the element of '%s' that another one stores",
                           kind, name);
    qn__verify_note(r->v, store->loc, "it is stored here");
  }
  note_loop(r, loop);
}

void qn__race_check_pairs(qn__race_t* r, uint32_t level) {
  const qn__race_loop_t* loop = &r->loops[level];
  assert(level + 1 == r->level && loop->access_count <= r->access_count);
  size_t begin = loop->access_count;
  size_t store_count = 0;
  for (size_t i = begin; i < r->access_count; i++) store_count += r->accesses[i].is_store;
  bool has_met = loop->is_thread && r->barrier_count > loop->barrier_count;
  bool has_order = r->order_count > loop->order_count;
  if (loop->is_single || has_met || has_order || store_count == 0) return;
  // Too many pairs to compare: report none of them (R1).
  if (r->access_count - begin > r->pairs_left / store_count) return;
  r->pairs_left -= (r->access_count - begin) * store_count;
  uint32_t errors = r->v->error_count;
  for (size_t i = begin; i < r->access_count; i++) {
    // Copy the record, since is_steady() may move the list.
    qn__race_access_t store = r->accesses[i];
    qn__race_place_t place = qn__race_place_of(r, store.buffer);
    if (!store.is_store || place.level > level || (place.levels & qn__race_level_bit(level)) != 0)
      continue;
    for (size_t k = begin; k < r->access_count && r->v->error_count == errors; k++) {
      qn__race_access_t other = r->accesses[k];
      // Compare two stores only once.
      if (k != i && (!other.is_store || k > i)) check_pair(r, &store, &other, level);
    }
  }
}
