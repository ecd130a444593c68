// SPDX-License-Identifier: Apache-2.0
// ir/race.h: the state of the race check, shared by its two files.
//
// verify_race.c walks a function and records facts about variables, buffers and accesses.
// verify_race_check.c compares the recorded accesses. Read next: verify_race.c, which has the
// requirements.
#ifndef QUERN_IR_RACE_H_
#define QUERN_IR_RACE_H_

#include <assert.h>

#include "ir/affine.h"
#include "ir/verifier.h"

enum {
  QN__RACE_LOOPS = 64,       // concurrent loops inside each other; deeper ones count as serial
  QN__RACE_PAIRS = 1 << 16,  // of accesses that are compared in a function
};

// A set of concurrent loops, by level (0: outermost). A value has the levels of the loops between
// whose iterations it may differ.
typedef uint64_t qn__race_levels_t;

// Facts about an allocation or view.
typedef struct qn__race_place {
  uint32_t level;  // concurrent loops around the allocation (of the buffer under all views)
  qn__race_levels_t levels;  // of the indices where its views begin
} qn__race_place_t;

typedef struct qn__race_access {
  const qn__ir_buffer_t* buffer;
  qn__ir_expr_t* const* indices;
  qn__ir_loc_t loc;
  bool is_store;
  qn__race_levels_t guards;  // of the conditions around it
  uint32_t condition_count;  // around it
} qn__race_access_t;

// A concurrent loop or a scan.
typedef struct qn__race_loop {
  const qn__ir_var_t* var;
  const char* text;  // the word that begins it
  bool is_thread;
  bool is_single;            // fewer than two iterations
  bool is_constant;          // its extent
  int64_t extent;            // when constant
  uint32_t condition_count;  // around the loop
  uint32_t barrier_count;    // before the loop
  uint32_t order_count;      // before the loop
  size_t access_count;       // before the loop
} qn__race_loop_t;

typedef struct qn__race {
  qn__verifier_t* v;
  qn__ptrmap_t known;  // variable -> known_t, buffer -> qn__race_place_t
  qn__ir_affine_lets_t lets;
  qn__race_loop_t loops[QN__RACE_LOOPS];
  uint32_t level;
  qn__race_levels_t guards;  // of all conditions around
  uint32_t condition_count;  // around
  uint32_t barrier_count;    // so far
  uint32_t order_count;      // fences, atomic loads and stores so far
  qn__race_access_t* accesses;
  size_t access_count;
  size_t access_capacity;
  size_t pairs_left;  // comparisons left: bounds the time for one function
} qn__race_t;

static inline qn__race_levels_t qn__race_level_bit(uint32_t level) {
  assert(level < QN__RACE_LOOPS);
  return UINT64_C(1) << level;
}

// Returns the facts about a buffer. Parameters lie outside of every loop.
static inline qn__race_place_t qn__race_place_of(const qn__race_t* r,
                                                 const qn__ir_buffer_t* buffer) {
  const qn__race_place_t* place = qn__ptrmap_get(&r->known, buffer);
  return place ? *place : (qn__race_place_t){0};
}

// ---- verify_race.c

// Walks an expression, records its loads, and returns the levels of its value.
qn__race_levels_t qn__race_visit(qn__race_t* r, const qn__ir_expr_t* expr);

// ---- verify_race_check.c

// Reports a store that every iteration of a loop makes to one element (R3). `levels`: of its
// indices.
void qn__race_check_store(qn__race_t* r, const qn__ir_stmt_t* stmt, const qn__ir_buffer_t* buffer,
                          qn__race_levels_t levels);
// Compares all accesses inside of the loop at `level`, at its end (R5).
void qn__race_check_pairs(qn__race_t* r, uint32_t level);

#endif  // QUERN_IR_RACE_H_
