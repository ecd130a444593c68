// SPDX-License-Identifier: Apache-2.0
// jit/llvm/opaque.c: hides from LLVM how addresses of loops are computed.
//
// The code generator rewrites the addresses of innermost loops (loop strength reduction). It
// expands each to a sum over all that it is computed from, and tries every way to split the sum
// between registers. That took a fifth of the code generator's time in a product, whose rows begin
// at `base + min(row + u, last) * stride + done`. A frozen address is a term of its own, and a copy
// that costs no instruction.
//
//   preheader: %row = getelementptr float, ptr %a, i64 %offset
//              %0 = freeze ptr %row                          ; inserted
//   loop:      %at = getelementptr float, ptr %0, i64 %p     ; was: ptr %row
//
// Addresses a constant apart stay as they were: the code generator gives them one register.
//
// Loops around others get nothing from the rewriting but addresses that live across the inner
// loop. Around tiles their counters are frozen after each step, so that they are no induction
// variables.
#include "jit/llvm/opaque.h"

#include <llvm-c/Core.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "jit/llvm/build.h"
#include "jit/llvm/emit.h"

static bool is_address(LLVMValueRef value) {
  return LLVMIsAInstruction(value) && LLVMGetInstructionOpcode(value) == LLVMGetElementPtr &&
         LLVMGetTypeKind(LLVMTypeOf(value)) == LLVMPointerTypeKind;
}

// Returns whether `value` is a constant or adds one.
static bool has_constant(LLVMValueRef value) {
  if (LLVMIsAConstantInt(value)) return true;
  if (!LLVMIsAInstruction(value)) return false;
  LLVMOpcode opcode = LLVMGetInstructionOpcode(value);
  return (opcode == LLVMAdd || opcode == LLVMOr) && LLVMIsAConstantInt(LLVMGetOperand(value, 1));
}

// Returns whether a constant is added somewhere on the way to `address`.
static bool is_displaced(LLVMValueRef address) {
  for (; is_address(address); address = LLVMGetOperand(address, 0)) {
    for (unsigned i = 1; i < (unsigned)LLVMGetNumOperands(address); ++i) {
      if (has_constant(LLVMGetOperand(address, i))) return true;
    }
  }
  return false;
}

// Returns the block before the loop that `block` is, or NULL if it is not a loop of one block.
static LLVMBasicBlockRef find_preheader(LLVMBasicBlockRef block) {
  LLVMValueRef phi = LLVMGetFirstInstruction(block);
  if (!phi || !LLVMIsAPHINode(phi) || LLVMCountIncoming(phi) != 2) return NULL;
  LLVMBasicBlockRef one = LLVMGetIncomingBlock(phi, 0), other = LLVMGetIncomingBlock(phi, 1);
  return one == block ? other : other == block ? one : NULL;
}

// Returns `base`, frozen at the end of `preheader`.
static LLVMValueRef freeze_once(LLVMBuilderRef builder, LLVMBasicBlockRef preheader,
                                LLVMValueRef base) {
  for (LLVMUseRef use = LLVMGetFirstUse(base); use; use = LLVMGetNextUse(use)) {
    LLVMValueRef user = LLVMGetUser(use);
    if (LLVMIsAFreezeInst(user) && LLVMGetInstructionParent(user) == preheader) return user;
  }
  LLVMPositionBuilderBefore(builder, LLVMGetBasicBlockTerminator(preheader));
  return LLVMBuildFreeze(builder, base, "");
}

static void visit(LLVMBuilderRef builder, LLVMBasicBlockRef block) {
  LLVMBasicBlockRef preheader = find_preheader(block);
  if (!preheader) return;
  LLVMValueRef at = LLVMGetFirstInstruction(block);
  for (; at; at = LLVMGetNextInstruction(at)) {
    if (!is_address(at)) continue;
    LLVMValueRef base = LLVMGetOperand(at, 0);
    if (!is_address(base) || LLVMGetInstructionParent(base) == block || is_displaced(base)) {
      continue;
    }
    LLVMSetOperand(at, 0, freeze_once(builder, preheader, base));
  }
}

// Freezes the next value of each counter of a loop around others that begins with `block`.
static void hide_counters(LLVMBuilderRef builder, LLVMBasicBlockRef block) {
  if (find_preheader(block)) return;
  LLVMValueRef phi = LLVMGetFirstInstruction(block);
  for (; phi && LLVMIsAPHINode(phi); phi = LLVMGetNextInstruction(phi)) {
    if (LLVMGetTypeKind(LLVMTypeOf(phi)) != LLVMIntegerTypeKind) continue;
    for (unsigned i = 0; i < LLVMCountIncoming(phi); ++i) {
      LLVMValueRef next = LLVMGetIncomingValue(phi, i);
      if (!LLVMIsAInstruction(next) || LLVMGetInstructionOpcode(next) != LLVMAdd ||
          LLVMGetOperand(next, 0) != phi) {
        continue;
      }
      LLVMPositionBuilderBefore(builder, LLVMGetNextInstruction(next));
      LLVMValueRef frozen = LLVMBuildFreeze(builder, next, "");
      LLVMReplaceAllUsesWith(next, frozen);
      LLVMSetOperand(frozen, 0, next);
    }
  }
}

void qn__llvm_make_loops_opaque(LLVMModuleRef module) {
  static const char key[] = QN__EMIT_HAS_TILES;
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(module));
  LLVMValueRef function = LLVMGetFirstFunction(module);
  for (; function; function = LLVMGetNextFunction(function)) {
    bool has_tiles =
        LLVMGetStringAttributeAtIndex(function, QN__LLVM_OF_FUNCTION, key, sizeof key - 1) != NULL;
    LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(function);
    for (; block; block = LLVMGetNextBasicBlock(block)) {
      visit(builder, block);
      if (has_tiles) hide_counters(builder, block);
    }
  }
  LLVMDisposeBuilder(builder);
}

// ---- masks

// Returns which operand of a call is a mask that the pass widens, or -1.
static int mask_operand(LLVMValueRef call) {
  static const char load[] = "llvm.masked.load.", store[] = "llvm.masked.store.";
  if (!LLVMIsACallInst(call)) return -1;
  size_t length;
  const char* name = LLVMGetValueName2(LLVMGetCalledValue(call), &length);
  int operand = length > sizeof load && memcmp(name, load, sizeof load - 1) == 0      ? 2
                : length > sizeof store && memcmp(name, store, sizeof store - 1) == 0 ? 3
                                                                                      : -1;
  if (operand < 0) return -1;
  LLVMValueRef mask = LLVMGetOperand(call, (unsigned)operand);
  bool is_far =
      LLVMIsAInstruction(mask) && LLVMGetInstructionParent(mask) != LLVMGetInstructionParent(call);
  return is_far && !LLVMIsAPHINode(mask) ? operand : -1;
}

// A vector of bits that lives longer than its block is a vector of 16-bit numbers to the code
// generator, which it makes lanes of 32 bits of at each use.
static void widen_mask(LLVMBuilderRef builder, LLVMValueRef call, unsigned operand) {
  LLVMValueRef mask = LLVMGetOperand(call, operand);
  LLVMTypeRef type = operand == 2 ? LLVMTypeOf(call) : LLVMTypeOf(LLVMGetOperand(call, 0));
  LLVMTypeKind kind = LLVMGetTypeKind(LLVMGetElementType(type));
  LLVMContextRef context = LLVMGetTypeContext(type);
  unsigned bits = kind == LLVMIntegerTypeKind  ? LLVMGetIntTypeWidth(LLVMGetElementType(type))
                  : kind == LLVMDoubleTypeKind ? 64
                  : kind == LLVMFloatTypeKind  ? 32
                                               : 0;
  if (bits != 32 && bits != 64) return;
  LLVMTypeRef wide = LLVMVectorType(LLVMIntTypeInContext(context, bits), LLVMGetVectorSize(type));
  LLVMPositionBuilderBefore(builder, LLVMGetNextInstruction(mask));
  LLVMValueRef lanes = LLVMBuildFreeze(builder, LLVMBuildSExt(builder, mask, wide, ""), "");
  LLVMPositionBuilderBefore(builder, call);
  LLVMSetOperand(call, operand, LLVMBuildICmp(builder, LLVMIntSLT, lanes, LLVMConstNull(wide), ""));
}

void qn__llvm_widen_masks(LLVMModuleRef module) {
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(LLVMGetModuleContext(module));
  LLVMValueRef function = LLVMGetFirstFunction(module);
  for (; function; function = LLVMGetNextFunction(function)) {
    LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(function);
    for (; block; block = LLVMGetNextBasicBlock(block)) {
      LLVMValueRef at = LLVMGetFirstInstruction(block);
      for (; at; at = LLVMGetNextInstruction(at)) {
        int operand = mask_operand(at);
        if (operand >= 0) widen_mask(builder, at, (unsigned)operand);
      }
    }
  }
  LLVMDisposeBuilder(builder);
}
