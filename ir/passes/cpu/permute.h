// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/permute.h: the structures that the files of the pass `permute` share.
//
// permute.c        the pass: finds nests, chooses orders and tiles
// permute_tiles.c  writes a nest in tiles
#ifndef QUERN_IR_PASSES_CPU_PERMUTE_H_
#define QUERN_IR_PASSES_CPU_PERMUTE_H_

#include "ir/passes/nest.h"

enum { qn__permute_max_accesses = 24 };

// An access of the nest's body.
typedef struct qn__permute_access {
  qn__ir_expr_t** slot;  // of a load; NULL: a store
  const qn__ir_buffer_t* buffer;
  qn__ir_expr_t** indices;
  qn__lanes_reach_t reach[qn__max_nest];
  bool is_conditional;
  bool is_stored_to;  // the nest stores to the buffer
  bool is_plain;      // the indices have only variables of loops and of code around the nest
  bool is_turned;     // a tile holds it
} qn__permute_access_t;

typedef struct qn__permute {
  qn__pass_builder_t* pb;
  qn__nest_t* nest;
  uint32_t count;
  qn__permute_access_t accesses[qn__permute_max_accesses];
  uint32_t line;  // the loop along which stores are contiguous
  uint32_t turn;  // the loop along which the loads are that a tile holds
  int64_t size;   // lines of a tile
} qn__permute_t;

// Writes the nest in tiles to `out`. `kind` is that of its outermost loop.
void qn__permute_write_tiles(qn__permute_t* permute, qn_loop_kind_t kind, qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_CPU_PERMUTE_H_
