// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_tiles.c: emits TILES statements (ir/tiles.h) as AMX code.
//
// The intrinsics have numbers of registers, not values of LLVM's type for tiles: so LLVM allocates
// no tile registers, spills none and configures none. A group has four tiles of sums, as a
// multiplication takes 16 cycles and its sum is there after 52:
//
//   two tiles of rows, one panel:    sums 0 1      rows 4    columns 6 7
//                                    sums 2 3      rows 5
//   one tile of rows, two panels:    sums 0 1 2 3  rows 4    columns 5 6 7 5
//
// The statement configures the tiles and releases them, and calls nothing in between. So tiles have
// a state only within it: a function changes no more of them than any call may.
#include "ir/tiles.h"
#include "jit/llvm/emit_inner.h"
#include "target/target.h"

enum { FIRST_ROWS = 4, COLUMN_BYTES = QN__TILES_COLUMNS * 4 };

uint32_t qn__emit_tile_ops(const qn_target_t* target) {
  if (strcmp(target->arch->name, "x86_64") != 0) return 0;
  uint32_t ops = 0;
  if (qn__features_has(target->arch, target->features, "amx-bf16")) {
    ops |= qn__dot_bit(QN__OP_DOT_BF16_FAST);
  }
  if (qn__features_has(target->arch, target->features, "amx-int8")) {
    ops |= qn__dot_bit(QN__OP_DOT_SS) | qn__dot_bit(QN__OP_DOT_UU) | qn__dot_bit(QN__OP_DOT_US);
  }
  return ops;
}

// What is the same for all instructions of a statement.
typedef struct tiles {
  qn__llvm_emit_t* e;
  const qn__ir_tensor_t* tensor;
  LLVMValueRef sums;
  LLVMValueRef rows;
  LLVMValueRef columns;
  LLVMValueRef panels;
  LLVMValueRef words;
  LLVMValueRef adds;  // i1: the sums do not begin at 0
  int64_t row_bytes;  // from a packed row to the next
} tiles_t;

static const char* product_name(const qn__ir_tensor_t* tensor) {
  switch (tensor->dot) {
    case QN__OP_DOT_SS:
      return "llvm.x86.tdpbssd";
    case QN__OP_DOT_UU:
      return "llvm.x86.tdpbuud";
    case QN__OP_DOT_US:
      return tensor->takes_column ? "llvm.x86.tdpbsud" : "llvm.x86.tdpbusd";
    default:
      return "llvm.x86.tdpbf16ps";
  }
}

static void call(const tiles_t* t, const char* name, LLVMValueRef* args, unsigned count) {
  (void)qn__llvm_intrinsic(t->e->fn->builder, name, NULL, 0, args, count);
}

static LLVMValueRef tile(const tiles_t* t, int number) {
  return LLVMConstInt(t->e->i8, (unsigned long long)number, false);
}

// Returns `pointer` plus `index` times `scale` plus `offset` bytes.
static LLVMValueRef place(const tiles_t* t, LLVMValueRef pointer, LLVMValueRef index, int64_t scale,
                          int64_t offset) {
  LLVMBuilderRef b = t->e->fn->builder;
  LLVMValueRef at = LLVMBuildMul(b, index, qn__emit_i64(t->e, scale), "");
  at = LLVMBuildAdd(b, at, qn__emit_i64(t->e, offset), "");
  return LLVMBuildGEP2(b, t->e->i8, pointer, &at, 1, "");
}

// Loads or stores a tile whose rows are `stride` bytes apart.
static void move(const tiles_t* t, const char* name, int number, LLVMValueRef pointer,
                 int64_t stride) {
  LLVMValueRef args[] = {tile(t, number), pointer, qn__emit_i64(t->e, stride)};
  call(t, name, args, 3);
}

// Loads or stores the sums of `height` tiles of rows by `width` tiles of columns from `panel` on.
static void move_sums(const tiles_t* t, const char* name, int height, int width,
                      LLVMValueRef panel) {
  int64_t pitch = (int64_t)t->tensor->count * 4;
  for (int i = 0; i < height * width; ++i) {
    int64_t offset = i / width * QN__TILE_LINES * pitch + i % width * QN__TILE_LINES * 4;
    move(t, name, i, place(t, t->sums, panel, COLUMN_BYTES, offset), pitch);
  }
}

static void begin_sums(const tiles_t* t, int height, int width, LLVMValueRef panel) {
  LLVMBuilderRef b = t->e->fn->builder;
  LLVMBasicBlockRef old = qn__emit_block(t->e, "sums"), none = qn__emit_block(t->e, "zeros"),
                    after = qn__emit_block(t->e, "begun");
  LLVMBuildCondBr(b, t->adds, old, none);
  qn__emit_at(t->e, old);
  move_sums(t, "llvm.x86.tileloadd64", height, width, panel);
  LLVMBuildBr(b, after);
  qn__emit_at(t->e, none);
  for (int i = 0; i < height * width; ++i) {
    LLVMValueRef number = tile(t, i);
    call(t, "llvm.x86.tilezero", &number, 1);
  }
  LLVMBuildBr(b, after);
  qn__emit_at(t->e, after);
}

// Emits the products of 16 words from `word` on.
static void emit_words(const tiles_t* t, int height, int width, LLVMValueRef columns,
                       LLVMValueRef word) {
  const int first = height == 2 ? 6 : 5, count = 8 - first;
  for (int r = 0; r < height; ++r) {
    move(t, "llvm.x86.tileloadd64", FIRST_ROWS + r,
         place(t, t->rows, word, 4, r * QN__TILE_LINES * t->row_bytes), t->row_bytes);
  }
  for (int c = 0; c < width; ++c) {
    int64_t offset = c / 2 * COLUMN_BYTES * (int64_t)t->tensor->depth + c % 2 * QN__TILE_LINES * 4;
    move(t, "llvm.x86.tileloadd64", first + c % count,
         place(t, columns, word, COLUMN_BYTES, offset), COLUMN_BYTES);
    for (int r = 0; r < height; ++r) {
      LLVMValueRef args[] = {tile(t, r * width + c), tile(t, FIRST_ROWS + r),
                             tile(t, first + c % count)};
      call(t, product_name(t->tensor), args, 3);
    }
  }
}

// Emits the panels from `begin` on, `step` at once. Returns the first one that is left.
static LLVMValueRef emit_panels(const tiles_t* t, int height, int64_t step, LLVMValueRef begin) {
  qn__llvm_emit_t* e = t->e;
  const int width = 2 * (int)step;
  LLVMValueRef end =
      step == 1 ? t->panels : LLVMBuildAnd(e->fn->builder, t->panels, qn__emit_i64(e, -step), "");
  qn__llvm_counter_t panels = qn__emit_count_begin(e, begin, end, step, NULL);
  begin_sums(t, height, width, panels.index);
  LLVMValueRef columns = place(t, t->columns, panels.index, COLUMN_BYTES * t->tensor->depth, 0);
  qn__llvm_counter_t words =
      qn__emit_count_begin(e, qn__emit_i64(e, 0), t->words, QN__TILE_WORDS, NULL);
  emit_words(t, height, width, columns, words.index);
  (void)qn__emit_count_end(e, &words, NULL);
  move_sums(t, "llvm.x86.tilestored64", height, width, panels.index);
  (void)qn__emit_count_end(e, &panels, NULL);
  return end;
}

// Returns the configuration, once a module: eight tiles of 16 rows of 64 bytes, in palette 1.
static LLVMValueRef declare_config(qn__llvm_emit_t* e) {
  static const char name[] = "tiles.config";
  LLVMValueRef global = LLVMGetNamedGlobal(e->module, name);
  if (global) return global;
  char bytes[64] = {1};
  for (int i = 0; i < 8; ++i) {
    bytes[16 + 2 * i] = 64;
    bytes[48 + i] = QN__TILE_LINES;
  }
  LLVMValueRef value = LLVMConstStringInContext2(e->context, bytes, sizeof bytes, true);
  global = LLVMAddGlobal(e->module, LLVMTypeOf(value), name);
  LLVMSetInitializer(global, value);
  LLVMSetGlobalConstant(global, true);
  LLVMSetLinkage(global, LLVMInternalLinkage);
  LLVMSetAlignment(global, 64);
  return global;
}

void qn__emit_tiles(qn__llvm_emit_t* e, const qn__ir_tensor_t* tensor) {
  LLVMBuilderRef b = e->fn->builder;
  const qn__ir_tensor_ref_t* refs = tensor->refs;
  assert(e->fn->lanes == 0 && tensor->ref_count == QN__TENSOR_REFS && e->options->has_tiles);
  tiles_t t = {.e = e, .tensor = tensor};
  t.sums = qn__emit_address(e, refs[0].buffer, refs[0].indices).pointer;
  t.rows = qn__emit_address(e, refs[1].buffer, refs[1].indices).pointer;
  t.columns = qn__emit_address(e, refs[2].buffer, refs[2].indices).pointer;
  t.row_bytes =
      refs[1].buffer->shape[1]->int_value * (int64_t)qn_dtype_size_bytes(refs[1].buffer->dtype);
  LLVMValueRef rows = qn__emit_scalar(e, tensor->extents[0]);
  t.panels = qn__emit_scalar(e, tensor->extents[1]);
  t.words = qn__emit_scalar(e, tensor->extents[2]);
  t.adds = LLVMBuildICmp(b, LLVMIntNE, qn__emit_scalar(e, tensor->operand), qn__emit_i64(e, 0), "");
  LLVMValueRef config = declare_config(e);
  call(&t, "llvm.x86.ldtilecfg", &config, 1);
  LLVMBasicBlockRef high = qn__emit_block(e, "high"), low = qn__emit_block(e, "low"),
                    after = qn__emit_block(e, "tiles");
  LLVMValueRef is_high = LLVMBuildICmp(b, LLVMIntSGT, rows, qn__emit_i64(e, QN__TILE_LINES), "");
  LLVMBuildCondBr(b, is_high, high, low);
  qn__emit_at(e, high);
  (void)emit_panels(&t, 2, 1, qn__emit_i64(e, 0));
  LLVMBuildBr(b, after);
  qn__emit_at(e, low);
  (void)emit_panels(&t, 1, 1, emit_panels(&t, 1, 2, qn__emit_i64(e, 0)));
  LLVMBuildBr(b, after);
  qn__emit_at(e, after);
  call(&t, "llvm.x86.tilerelease", NULL, 0);
}
