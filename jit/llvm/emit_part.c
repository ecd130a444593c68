// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_part.c: emits the statements of a long block in functions of their own, the parts.
//
// Some of LLVM's passes take more than linear time in the length of a function: the register
// allocator splits live ranges over all blocks. So a block of many loops is cut into runs of some,
// each an internal function that gets values from outside in a closure, as the body of a launch
// does. Statements that declare something for later ones stay, and so do those that use arrays on
// the stack: LLVM promotes such arrays to registers only if their addresses stay in one function.
#include <stdio.h>

#include "jit/llvm/emit_inner.h"

// A block with fewer loops stays whole: calls of parts cost a little at run time.
enum { MIN_LONG_LOOPS = 48, MAX_PART_LOOPS = 16 };

// ------------------------------------------------------------------------------------ counting

typedef struct count {
  const qn__llvm_emit_t* e;
  uint32_t loops;       // loops, reductions, and conditions that are outside of all loops
  bool has_own_arrays;  // uses an array on the stack of the current function
} count_t;

static void visit_buffer(count_t* self, const qn__ir_buffer_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) buffer = buffer->base;
  const qn__llvm_buffer_slot_t* slot = buffer->user;
  if (slot->is_private && slot->owner == self->e->fn->serial) self->has_own_arrays = true;
}

static bool count_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  count_t* self = walker->self;
  switch (stmt->kind) {
    case QN__STMT_LOOP:
    case QN__STMT_WHILE:
      self->loops++;
      break;
    case QN__STMT_IF:
      // In a loop, conditions alone are too little work for the calls of parts.
      if (self->e->fn->loop_depth == 0) self->loops++;
      break;
    case QN__STMT_STORE:
      visit_buffer(self, stmt->store.buffer);
      break;
    case QN__STMT_ATOMIC:
      visit_buffer(self, stmt->atomic.buffer);
      break;
    case QN__STMT_ALLOC:
      if (stmt->alloc.buffer->scope == QN__SCOPE_VIEW) visit_buffer(self, stmt->alloc.buffer);
      break;
    case QN__STMT_LET:
    case QN__STMT_ASSERT:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
    case QN__STMT_TENSOR:
    case QN__STMT_REDUCE:
    case QN__STMT_LEAVE:
      break;
  }
  return true;
}

static bool count_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  count_t* self = walker->self;
  if (expr->kind == QN__EXPR_REDUCE) self->loops++;
  if (expr->kind == QN__EXPR_LOAD) visit_buffer(self, expr->load.buffer);
  return true;
}

static count_t count_of(const qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  count_t self = {.e = e};
  qn__ir_walker_t walker = {count_stmt, count_expr, &self};
  qn__ir_stmt_t only = *stmt;
  only.next = NULL;
  qn__ir_block_t block = {&only, &only};
  (void)qn__walk_block(&walker, &block);
  return self;
}

// Returns the number of loops that can go into a part; 0 for a statement that stays.
static uint32_t movable_loops(const qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt) {
  if (stmt->kind != QN__STMT_LOOP && stmt->kind != QN__STMT_WHILE && stmt->kind != QN__STMT_IF) {
    return 0;
  }
  count_t count = count_of(e, stmt);
  return count.has_own_arrays ? 0 : count.loops;
}

bool qn__emit_is_long(const qn__llvm_emit_t* e, const qn__ir_block_t* block) {
  const qn__llvm_function_t* fn = e->fn;
  if (fn->kind == QN__LLVM_PART || fn->lanes > 0 || fn->mask) return false;
  uint32_t loops = 0;
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    loops += movable_loops(e, stmt);
    if (loops >= MIN_LONG_LOOPS) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------ emitting

static qn__llvm_function_t* make_part(qn__llvm_emit_t* e, const qn__ir_stmt_t* first,
                                      const qn__ir_stmt_t* last) {
  const qn__llvm_function_t* outer = e->fn;
  char name[256];
  (void)snprintf(name, sizeof name, "%s.part%u", e->function->name, e->part_count++);
  qn__llvm_function_t* part = qn__emit_fn_begin(e, name, QN__LLVM_PART);
  if (!part) return NULL;
  part->loop_depth = outer->loop_depth;
  part->is_unchecked = outer->is_unchecked;
  part->known = outer->known;
  part->known_count = outer->known_count;
  for (const qn__ir_stmt_t* stmt = first; stmt != last->next; stmt = stmt->next) {
    qn__emit_stmt(e, stmt);
  }
  part->known_count = 0;
  qn__emit_fn_end(e);
  return part;
}

const qn__ir_stmt_t* qn__emit_part(qn__llvm_emit_t* e, const qn__ir_stmt_t* first) {
  uint32_t loops = movable_loops(e, first);
  if (loops == 0) {
    qn__emit_stmt(e, first);
    return first->next;
  }
  const qn__ir_stmt_t* last = first;
  while (last->next && loops < MAX_PART_LOOPS) {
    uint32_t more = movable_loops(e, last->next);
    if (more == 0) break;
    loops += more;
    last = last->next;
  }
  const qn__llvm_function_t* part = make_part(e, first, last);
  if (!part) return last->next;
  LLVMBuilderRef b = e->fn->builder;
  LLVMValueRef args[] = {e->fn->env, qn__emit_closure(e, part)};
  LLVMValueRef result = LLVMBuildCall2(b, e->kernel_type, part->function, args, 2, "");
  LLVMValueRef failed = LLVMBuildICmp(b, LLVMIntNE, result, LLVMConstInt(e->i32, 0, false), "");
  LLVMBasicBlockRef done = qn__emit_block(e, "parted");
  LLVMBuildCondBr(b, failed, qn__emit_fail_block(e), done);
  qn__emit_at(e, done);
  return last->next;
}
