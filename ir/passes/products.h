// SPDX-License-Identifier: Apache-2.0
// ir/passes/products.h: recognises products: sums (or other reductions) over two operands of which
// each depends on loops that the other does not, as in C[i, j] = sum k { A[i, k] * B[k, j] }.
//
// The analysis changes nothing and does not depend on the target. It finds the loops of a nest that
// are rows, columns or the batch, and the parts of the summand that depend on one side alone: a
// tile of R rows and C columns needs R + C of their values for R * C products. Its users choose the
// size of a tile, and hold its values in shared memory, registers or a cache.
//
// A sum whose value is a sum is one reduction over several loops, as in a convolution: sum c { sum
// p { sum q { x[c, i + p, j + q] * k[o, c, p, q] } } }. Its iterations are one index space of
// *steps*.
#ifndef QUERN_IR_PASSES_PRODUCTS_H_
#define QUERN_IR_PASSES_PRODUCTS_H_

#include "ir/passes/nest.h"

enum {
  qn__product_max_names = 64,
  qn__product_max_operands = 4,
  qn__product_max_slots = 16,
  qn__product_max_steps = 6,
};

// The dependences of a value: bit d is loop d of the nest; then these.
enum {
  QN__PRODUCT_DIMS = (1 << qn__max_nest) - 1,
  QN__PRODUCT_STEP = 1 << 8,    // a variable of the reduction
  QN__PRODUCT_LOADS = 1 << 9,   // memory that nothing in the nest writes
  QN__PRODUCT_FIXED = 1 << 10,  // cannot be computed elsewhere: memory that is written, an exchange
};

typedef enum qn__product_side {
  QN__PRODUCT_ROW,
  QN__PRODUCT_COLUMN,
  qn__product_sides,
} qn__product_side_t;

// One loop of the reduction.
typedef struct qn__product_step {
  qn__ir_expr_t* reduce;
  uint32_t name;          // of its variable
  qn__ir_expr_t* begin;   // where code is being written: a literal or a variable
  qn__ir_expr_t* extent;  // the same
} qn__product_step_t;

// A variable that the nest declares.
typedef struct qn__product_name {
  qn__ir_var_t* var;
  qn__ir_stmt_t* let;  // NULL: the variable of a loop, of the reduction, or of an operand
  uint32_t mask;       // what the value depends on
  qn__ir_expr_t* now;  // its value where code is being written, for users; cloned at each use
} qn__product_name_t;

// A largest part of the summand that reads memory and depends on one side alone.
typedef struct qn__product_operand {
  qn__ir_expr_t* value;
  qn__product_side_t side;
  bool runs_along_step;  // neighbours in memory are neighbours in the reduction
  bool is_flat;          // so are all its steps, over all loops of the reduction
  bool runs_along_line;  // ... or in the fastest loop of its side
  uint32_t name;         // of the variable that replaces it in the summand (qn__product_replace)
  bool is_needed[qn__product_max_names];  // names that its value uses
} qn__product_operand_t;

// A place in the summand where an operand is used.
typedef struct qn__product_slot {
  qn__ir_expr_t** slot;
  uint32_t operand;
} qn__product_slot_t;

typedef struct qn__product {
  qn__pass_builder_t* pb;
  qn__nest_t* nest;
  qn__ir_expr_t** slot;                             // of the reduction, in the nest's body
  qn__ir_expr_t* reduce;                            // the reduction; its outermost one
  qn__ir_expr_t** summand;                          // the value of the innermost one
  qn__product_step_t steps[qn__product_max_steps];  // slowest first
  uint32_t step_count;
  qn__product_name_t names[qn__product_max_names];
  uint32_t name_count;
  uint32_t side_dims[qn__product_sides];  // sets of loops
  qn__product_operand_t operands[qn__product_max_operands];
  uint32_t operand_count;
  qn__product_slot_t slots[qn__product_max_slots];
  uint32_t slot_count;
  bool is_needed[qn__product_max_names];  // by the summand, beside the operands
  bool is_guarded;                        // the summand is `c ? x * w : 0`, and c is an operand
  uint32_t guarded_row;                   // argument of the product that belongs to the rows
} qn__product_t;

// Recognises the product that an open nest computes. Returns false if it computes none.
bool qn__product_find(qn__pass_builder_t* pb, qn__nest_t* nest, qn__product_t* out);

// Returns the loops that are rows or columns, and those that are neither.
static inline uint32_t qn__product_both(const qn__product_t* product) {
  return product->side_dims[QN__PRODUCT_ROW] | product->side_dims[QN__PRODUCT_COLUMN];
}
static inline uint32_t qn__product_batch(const qn__product_t* product) {
  return ((1U << product->nest->count) - 1) & ~qn__product_both(product);
}
// Return the iterations of the loops in `dims`: as an expression, and as a constant (else -1).
qn__ir_expr_t* qn__product_extent(const qn__product_t* product, uint32_t dims);
int64_t qn__product_trips(const qn__product_t* product, uint32_t dims);
// Returns the steps of the reduction if they are constant, else -1.
int64_t qn__product_steps(const qn__product_t* product);
// Returns the steps of a reduction over one loop as an expression of what is known before the nest.
// NULL if its bounds read memory, or depend on the nest.
qn__ir_expr_t* qn__product_common_steps(const qn__product_t* product);
// Estimates the instructions of the summand for one product, without its operands.
int64_t qn__product_summand_size(const qn__product_t* product);
// Returns true if the neighbours in memory of a load, which is a part of the operand or of a let
// that it needs, are those along `var`, a variable of the nest or of the reduction.
bool qn__product_is_contiguous(qn__product_t* product, const qn__product_operand_t* operand,
                               const qn__ir_expr_t* load, qn__ir_var_t* var);
// Returns the loop of the side that counts fastest.
const qn__ir_stmt_t* qn__product_fastest(const qn__product_t* product, qn__product_side_t side);
// Returns the index of a variable's name, or -1.
int qn__product_name(const qn__product_t* product, const qn__ir_var_t* var);

// Sets `is_needed` for the names that `expr` uses, and for all that their lets use.
void qn__product_needs(const qn__product_t* product, qn__ir_expr_t* expr, bool* is_needed);

// Replaces the operands in the summand, and the reduction in the nest's body, by new variables: the
// last name is the reduction's. The body becomes serial. False without memory.
bool qn__product_replace(qn__product_t* product);

#endif  // QUERN_IR_PASSES_PRODUCTS_H_
