// ir/race.h: what the two files that look for races share.
//
// verify_race.c walks a function and keeps what is known of each variable, buffer and access;
// verify_race_check.c decides whether iterations meet. The requirements stand in verify_race.c.
// Thread rule: one thread at a time. Read next: verify_race.c.
#ifndef QUERN_IR_RACE_H_
#define QUERN_IR_RACE_H_

#include "ir/affine.h"
#include "ir/verifier.h"

enum {
  QN__RACE_LOOPS = QN__LARGEST_NESTING,
  QN__RACE_PAIRS = 1 << 16,  // of accesses that are compared in a function
};

// The concurrent loops, by their level, between whose iterations a value may differ.
typedef struct qn__race_levels {
  uint64_t words[QN__RACE_LOOPS / 64];
} qn__levels_t;

// What is known of a buffer that is not a parameter.
typedef struct qn__race_place {
  uint32_t level;       // concurrent loops around the allocation (of the buffer under all views)
  qn__levels_t levels;  // of the views' origins
} qn__race_place_t;

typedef struct qn__race_access {
  const qn__ir_buffer_t* buffer;
  qn__ir_expr_t* const* indices;
  qn__ir_loc_t loc;
  bool is_store;
  qn__levels_t guards;
  uint32_t condition_count;
} qn__access_t;

typedef struct qn__race_loop {
  const qn__ir_stmt_t* stmt;
  bool is_single;    // fewer than two iterations
  bool is_constant;  // its extent
  int64_t extent;    // when constant
  uint32_t condition_count;
  uint32_t barrier_count;
  size_t access_count;
} qn__race_loop_t;

typedef struct qn__race {
  qn__verifier_t* v;
  qn__ptrmap_t known;  // variable -> known_t, buffer -> qn__race_place_t
  qn__affine_lets_t lets;
  qn__race_loop_t* loops;  // QN__RACE_LOOPS
  uint32_t level;
  qn__levels_t guards;       // of all conditions around
  uint32_t condition_count;  // around
  uint32_t barrier_count;    // so far
  qn__access_t* accesses;
  size_t access_count;
  size_t access_capacity;
  size_t pairs_left;  // that may still be compared: bounds the time for a function
} qn__race_t;

static inline bool qn__race_has_level(const qn__levels_t* set, uint32_t level) {
  return (set->words[level / 64] >> (level % 64) & 1) != 0;
}

static inline void qn__race_join(qn__levels_t* into, qn__levels_t other) {
  for (size_t i = 0; i < QN_COUNT_OF(into->words); i++) into->words[i] |= other.words[i];
}

// Parameters are outside of every loop.
static inline qn__race_place_t qn__race_place_of(const qn__race_t* r,
                                                 const qn__ir_buffer_t* buffer) {
  const qn__race_place_t* place = qn__ptrmap_get(&r->known, buffer);
  return place ? *place : (qn__race_place_t){0};
}

// ---- verify_race.c

// Walks an expression: the levels between whose iterations its value may differ.
qn__levels_t qn__race_visit(qn__race_t* r, const qn__ir_expr_t* expr);

// ---- verify_race_check.c

// A store that was reached, with the levels of its indices (R3).
void qn__race_check_store(qn__race_t* r, const qn__ir_stmt_t* stmt, const qn__ir_buffer_t* buffer,
                          qn__levels_t levels);
// All accesses inside of the loop at `level`, which ends here (R5).
void qn__race_check_pairs(qn__race_t* r, uint32_t level);

#endif  // QUERN_IR_RACE_H_
