// SPDX-License-Identifier: Apache-2.0
// ir/passes/several.h: what the lowering of reductions of several values and that of scans share.
//
// Not here: what replaces them (lower_several.c, lower_scan.c).
#ifndef QUERN_IR_PASSES_SEVERAL_H_
#define QUERN_IR_PASSES_SEVERAL_H_

#include "ir/passes/pass_builder.h"

typedef qn__ir_expr_t* qn__several_exprs_t[QN__LARGEST_VALUES];
typedef qn__ir_var_t* qn__several_vars_t[QN__LARGEST_VALUES];
typedef qn__ir_buffer_t* qn__several_buffers_t[QN__LARGEST_VALUES];

// Appends copies of the lets and values of iteration `index`, and returns variables of the values.
bool qn__several_values(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                        qn__ir_expr_t* index, qn__ir_block_t* out, qn__ir_var_t** out_vars);
// Appends what the combiner makes of `left` and `right`, and returns variables of the results.
bool qn__several_combine(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                         qn__ir_expr_t* const* left, qn__ir_expr_t* const* right,
                         qn__ir_block_t* out, qn__ir_var_t** out_vars);
// Appends `into[at] = what the combiner makes of into[at] and right`. NULL `at`: of rank 0.
void qn__several_merge(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                       qn__ir_buffer_t* const* into, const qn__ir_expr_t* at,
                       qn__ir_expr_t* const* right, qn__ir_block_t* out);
void qn__several_use(qn__pass_builder_t* pb, qn__ir_var_t* const* vars, uint32_t count,
                     qn__ir_expr_t** out_uses);
// Returns elements `at` of `count` buffers. NULL `at`: of rank 0.
void qn__several_load(qn__pass_builder_t* pb, qn__ir_buffer_t* const* buffers, uint32_t count,
                      const qn__ir_expr_t* at, qn__ir_expr_t** out_loads);
// Appends stores to elements `at` of `count` buffers. NULL `at`: of rank 0.
void qn__several_store(qn__pass_builder_t* pb, qn__ir_buffer_t* const* buffers, uint32_t count,
                       const qn__ir_expr_t* at, qn__ir_expr_t* const* values, qn__ir_block_t* out);
// Appends copies of elements `from_at` of `count` buffers to elements `to_at` of others.
void qn__several_copy(qn__pass_builder_t* pb, uint32_t count, qn__ir_buffer_t* const* to,
                      const qn__ir_expr_t* to_at, qn__ir_buffer_t* const* from,
                      const qn__ir_expr_t* from_at, qn__ir_block_t* out);
// Declares local buffers of the dtypes of the values: of rank 1, or of rank 0 for `rows` -1.
bool qn__several_declare(qn__pass_builder_t* pb, const qn__ir_several_t* several, int64_t rows,
                         qn__ir_block_t* out, qn__ir_buffer_t** out_buffers);
// Appends stores of the initial values to elements `at` of `totals`. NULL `at`: of rank 0.
void qn__several_set_initial(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                             qn__ir_buffer_t* const* totals, const qn__ir_expr_t* at,
                             qn__ir_block_t* out);
// Appends lets of the results, which are what `totals` of rank 0 has.
void qn__several_give_results(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                              qn__ir_buffer_t* const* totals, qn__ir_block_t* out);

// Returns true if iterations load neighbours, and nothing that lanes or threads would make slower.
bool qn__several_loads_neighbours(const qn__ir_stmt_t* stmt);

typedef struct qn__several_place {
  bool has_threads;    // one thread's code, or the program says what its threads do
  bool is_at_top;      // in no loop, so that the statement has the device for itself
  int64_t scan_count;  // of the function
} qn__several_place_t;

// Returns how many threads share the statement; 0: one thread has all of it.
int64_t qn__several_threads(const qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt,
                            qn__several_place_t place);

// Appends what replaces a scan, which is consumed (lower_scan.c).
void qn__lower_scan(qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt, qn__several_place_t place,
                    qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_SEVERAL_H_
