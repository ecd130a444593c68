// SPDX-License-Identifier: Apache-2.0
// ir/tiles.h: what a TILES statement computes: sums of products in the tile registers of a CPU.
//
// A tile register has 16 rows of 64 bytes. One instruction adds the products of a tile of rows (16
// lines, 16 words of steps each) and a tile of columns (16 words, 16 lines each) to a tile of sums.
//
// 1. The statement has up to 32 rows and panels of 32 columns. Sum (r, c) of panel j is
//    sums[first + r * pitch + 32 * j + c], where refs[0] is sums[first] and `count` is the pitch.
// 2. refs[1] is packed rows: [32, steps], of numbers. refs[2] is packed columns: [words, 32], of
//    words as the operator `dot` (dots.inc) takes them; a panel has `depth` of them.
// 3. `extents` are the rows (more than 32 count as 32), the panels and the words. The words are a
//    multiple of 16, of which both operands exist. The sums begin at 0 if `operand` is 0, else at
//    what they are.
// 4. Sums of rows beyond the last have any value afterwards, up to the next multiple of 16.
// 5. Sums of f32 are those of AMX: of each 16 words the products of the lower numbers are added up
//    by fma from 0 on, and those of the upper ones. Both sums are added, and the result is added
//    to the sum before. Denormal numbers may count as 0.
#ifndef QUERN_IR_TILES_H_
#define QUERN_IR_TILES_H_

#include "ir/ir.h"

enum {
  QN__TILE_LINES = 16,    // of a tile
  QN__TILE_WORDS = 16,    // of a line in it
  QN__TILES_ROWS = 32,    // of a statement
  QN__TILES_COLUMNS = 32  // of a panel
};

// Returns what is wrong with a TILES statement, or NULL (qn__tensor_problem).
const char* qn__tiles_problem(const qn__ir_tensor_t* tensor);

#endif  // QUERN_IR_TILES_H_
