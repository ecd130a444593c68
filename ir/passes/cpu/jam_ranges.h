// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/jam_ranges.h: gives all rows of a block one range, for the pass `jam`.
#ifndef QUERN_IR_PASSES_CPU_JAM_RANGES_H_
#define QUERN_IR_PASSES_CPU_JAM_RANGES_H_

#include "ir/passes/pass_builder.h"

// How the rows of a block came to have one range.
typedef struct qn__jam_ranges {
  qn__ir_expr_t* end;      // of a row's range, by the variable of the loop over rows
  qn__ir_var_t* shortest;  // the ends of the first and of the last row of a block: lets that the
  qn__ir_var_t* longest;   // caller writes
  // Compute infinity or NaN if a factor is not finite that is multiplied by zero. NULL: none.
  qn__ir_expr_t* magnitude;
  qn__ir_var_t* stop;  // the end of its range, a let that the caller writes
} qn__jam_ranges_t;

// Lets each row of `loop` run all its ranges to `longest`, without an effect on results. `lanes`
// are facts about the loop. Returns false if that is not possible, with the loop in any state.
bool qn__jam_even_out(qn__pass_builder_t* pb, const qn__lanes_t* lanes, qn__ir_stmt_t* loop,
                      qn__jam_ranges_t* out_ranges);

#endif  // QUERN_IR_PASSES_CPU_JAM_RANGES_H_
