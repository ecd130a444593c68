// SPDX-License-Identifier: Apache-2.0
// ir/passes/scan_tiles.h: scans by the threads of a block, which share tiles of the range.
//
// lower_scan.c says what a tile is.
#ifndef QUERN_IR_PASSES_SCAN_TILES_H_
#define QUERN_IR_PASSES_SCAN_TILES_H_

#include "ir/passes/several.h"

typedef struct qn__scan_tiles {
  qn__pass_builder_t* pb;
  qn__ir_several_t* several;
  int64_t scan_count;  // of the function
  int64_t threads;
  int64_t run;                // values of a thread
  int64_t groups;             // of runs
  int64_t size;               // of a group
  qn__ir_var_t *begin, *end;  // of the range, which is not empty where a tile runs
  qn__ir_var_t* base;         // where the tile begins
  bool has_body;              // else only the result of the range is wanted
  // The result of the tiles before. Before the first one: the initial values if it has a body.
  qn__several_buffers_t carried;
  qn__several_buffers_t values;  // [threads, run + 1]
  qn__several_buffers_t runs;    // [groups, size + 1]: the result of a run, then its beginning
  qn__several_buffers_t sums;    // [groups]
  qn__several_buffers_t ends;    // [groups]: the results up to the end of each group
} qn__scan_tiles_t;

// Chooses `run`, `groups`, `size` and at most `threads` threads for a range of `trips` values, -1:
// unknown.
void qn__scan_choose_size(qn__scan_tiles_t* tiles, int64_t trips);
// Appends a loop over the tiles of the range.
void qn__scan_append_tiles(qn__scan_tiles_t* tiles, qn__ir_block_t* out);

// Appends the body of iteration `at`, which is consumed.
void qn__scan_append_body(qn__pass_builder_t* pb, qn__ir_several_t* several, qn__ir_var_t* at,
                          qn__ir_block_t* out);

#endif  // QUERN_IR_PASSES_SCAN_TILES_H_
