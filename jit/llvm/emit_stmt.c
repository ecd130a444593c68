// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_stmt.c: emits statements: blocks, conditions, while loops, assertions.
//
// A uniform condition is a branch. A varying condition narrows the mask, and the code is skipped if
// no lane remains. Not here: loops (emit_loop.c), allocations (emit_alloc.c).
#include "jit/llvm/emit_inner.h"

// The remaining right operands of a chain of &&.
typedef struct conjunct {
  const qn__ir_expr_t* condition;
  const struct conjunct* next;
} conjunct_t;

static void emit_if(qn__llvm_emit_t* e, const qn__ir_expr_t* condition, const conjunct_t* rest,
                    const qn__ir_block_t* then_block, const qn__ir_block_t* else_block);

static void emit_then(qn__llvm_emit_t* e, const conjunct_t* rest,
                      const qn__ir_block_t* then_block) {
  static const qn__ir_block_t nothing = {NULL, NULL};
  if (!rest) {
    qn__emit_block_of(e, then_block);
    return;
  }
  emit_if(e, rest->condition, rest->next, then_block, &nothing);
}

static void branch_uniform(qn__llvm_emit_t* e, LLVMValueRef condition, const conjunct_t* rest,
                           const qn__ir_block_t* then_block, const qn__ir_block_t* else_block) {
  LLVMBuilderRef b = e->fn->builder;
  bool has_else = else_block->first != NULL;
  LLVMBasicBlockRef yes = qn__emit_block(e, "then");
  LLVMBasicBlockRef no = has_else ? qn__emit_block(e, "else") : NULL;
  LLVMBasicBlockRef done = qn__emit_block(e, "endif");
  LLVMBuildCondBr(b, condition, yes, has_else ? no : done);
  qn__emit_at(e, yes);
  emit_then(e, rest, then_block);
  LLVMBuildBr(b, done);
  if (has_else) {
    qn__emit_at(e, no);
    qn__emit_block_of(e, else_block);
    LLVMBuildBr(b, done);
  }
  qn__emit_at(e, done);
}

// Emits a block for the lanes where `condition` is true, if there are any.
static void run_masked(qn__llvm_emit_t* e, LLVMValueRef condition, const conjunct_t* rest,
                       const qn__ir_block_t* block) {
  qn__llvm_mask_state_t state = qn__emit_narrow(e, condition);
  LLVMValueRef is_any = qn__llvm_any(e->fn->builder, e->fn->mask);
  qn__llvm_when_t when = qn__emit_when_begin(e, is_any, "some", "none");
  e->fn->can_mask_be_empty = false;
  emit_then(e, rest, block);
  (void)qn__emit_when_end(e, when, NULL, NULL);
  qn__emit_unmask(e, state);
}

static void emit_if(qn__llvm_emit_t* e, const qn__ir_expr_t* condition, const conjunct_t* rest,
                    const qn__ir_block_t* then_block, const qn__ir_block_t* else_block) {
  if (condition->kind == QN__EXPR_OP && condition->op == QN_OP_LOGIC_AND && !else_block->first) {
    conjunct_t right = {condition->args[1], rest};
    emit_if(e, condition->args[0], &right, then_block, else_block);
    return;
  }
  qn__llvm_value_t value = qn__emit_expr(e, condition);
  if (value.shape == QN__LLVM_SHAPE_UNIFORM) {
    branch_uniform(e, value.v, rest, then_block, else_block);
    return;
  }
  run_masked(e, value.v, rest, then_block);
  if (else_block->first) {
    run_masked(e, LLVMBuildNot(e->fn->builder, value.v, ""), NULL, else_block);
  }
}

static void emit_while(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  LLVMBuilderRef b = e->fn->builder;
  LLVMBasicBlockRef test = qn__emit_block(e, "while");
  LLVMBasicBlockRef body = qn__emit_block(e, "do");
  LLVMBasicBlockRef done = qn__emit_block(e, "endwhile");
  LLVMBuildBr(b, test);
  qn__emit_at(e, test);
  LLVMBuildCondBr(b, qn__emit_scalar(e, stmt->while_.condition), body, done);
  qn__emit_at(e, body);
  e->fn->loop_depth++;
  e->fn->has_loop = true;
  qn__emit_block_of(e, &stmt->while_.body);
  e->fn->loop_depth--;
  LLVMBuildBr(b, test);
  qn__emit_at(e, done);
}

static void emit_let(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  qn__llvm_var_slot_t* slot = stmt->let.var->user;
  slot->is_nonnegative = qn__emit_is_nonnegative(stmt->let.value);
  qn__emit_bind(e, stmt->let.var, qn__emit_expr(e, stmt->let.value));
}

static void emit_assert(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  qn__llvm_value_t value = qn__emit_expr(e, stmt->assert_.condition);
  const char* message = stmt->assert_.message ? stmt->assert_.message : "";
  uint32_t site = qn__emit_site(e, (qn_artifact_site_t){.kind = QN_SITE_ASSERT,
                                                        .buffer_id = UINT32_MAX,
                                                        .place = stmt->loc.begin,
                                                        .message = message});
  qn__emit_require(e, value.v, site, NULL, NULL);
}

void qn__emit_stmt(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  e->place = stmt->loc.begin;
  switch (stmt->kind) {
    case QN__STMT_LET:
      emit_let(e, stmt);
      break;
    case QN__STMT_STORE:
      qn__emit_store(e, stmt);
      break;
    case QN__STMT_ATOMIC:
      qn__emit_atomic(e, stmt);
      break;
    case QN__STMT_IF:
      if (qn__emit_is_known(e, stmt)) {
        qn__emit_block_of(e, &stmt->if_.then_block);
      } else {
        emit_if(e, stmt->if_.condition, NULL, &stmt->if_.then_block, &stmt->if_.else_block);
      }
      break;
    case QN__STMT_LOOP:
      qn__emit_loop(e, stmt);
      break;
    case QN__STMT_WHILE:
      emit_while(e, stmt);
      break;
    case QN__STMT_ALLOC:
      qn__emit_alloc(e, stmt);
      break;
    case QN__STMT_TENSOR:
      if (stmt->tensor->kind == QN__TENSOR_TILES) {
        qn__emit_tiles(e, stmt->tensor);
      } else {
        qn__emit_product(e, stmt->tensor);
      }
      break;
    case QN__STMT_REDUCE:
    case QN__STMT_LEAVE:
      break;  // passes replace them
    case QN__STMT_FENCE:
      LLVMBuildFence(e->fn->builder, LLVMAtomicOrderingAcquireRelease, false, "");
      break;
    case QN__STMT_BARRIER:
      break;  // refused by emit_module.c
    case QN__STMT_ASSERT:
      emit_assert(e, stmt);
      break;
  }
}

void qn__emit_block_of(qn__llvm_emit_t* e, const qn__ir_block_t* block) {
  const qn__llvm_workspace_t* before = e->fn->workspaces;
  bool is_long = qn__emit_is_long(e, block);
  for (const qn__ir_stmt_t* stmt = block->first; stmt;) {
    if (is_long) {
      stmt = qn__emit_part(e, stmt);
    } else {
      qn__emit_stmt(e, stmt);
      stmt = stmt->next;
    }
  }
  qn__emit_release_workspace(e, before, false);
}
