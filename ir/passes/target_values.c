// SPDX-License-Identifier: Apache-2.0
// ir/passes/target_values.c: replaces numbers of the target by literals, and checks requirements.
//
// 1. After the pass no TARGET operator is left: warp_size() is a literal.
// 2. An assert whose condition then consists of literals is a requirement of the function. It is
//    removed if it holds; else the function does not compile, and the message names the target's
//    number. Asserts of literals alone stay: they fail at run time, as they always did.
// 3. An arm of an `if` that such a condition excludes is emptied first, so that requirements in it
//    do not count: a function may have a variant for each width.
//
// It is the first pass, so that later passes see constants.
#include "base/buffer.h"
#include "ir/passes/pass_builder.h"
#include "ir/text.h"

static bool replace_slot(void* self, qn__ir_expr_t** slot) {
  qn__pass_builder_t* pb = self;
  if ((*slot)->kind != QN__EXPR_OP || qn__op_info((*slot)->op)->rule != QN__RULE_TARGET) {
    return qn__expr_each_child(*slot, replace_slot, self);
  }
  (void)QN_NEVER((*slot)->op != QN_OP_WARP_SIZE);  // there is no other yet
  qn__ir_expr_t* literal = qn__pb_int(pb, pb->warp_size);
  if (literal) *slot = literal;
  return literal != NULL;
}

static void refuse(qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt) {
  qn__buffer_t text;
  qn__buffer_init(&text, pb->arena->allocator);
  qn__text_print_expr(stmt->assert_.condition, &text);
  const char* message = stmt->assert_.message;
  bool has_message = message && message[0];
  pb->status = qn_status_make(
      QN_STATUS_UNSUPPORTED,
      "function '%s' requires %.*s%s%s, but the target has warps of %" PRIu32 " threads",
      pb->function->name, QN_STR_ARG(qn__buffer_as_str(&text)), has_message ? ": " : "",
      has_message ? message : "", pb->warp_size);
  qn__buffer_deinit(&text);
}

// Decides a condition that contains a number of the target. Returns false if it is not constant.
static bool decide(qn__pass_builder_t* pb, const qn__ir_expr_t* condition, bool* out_holds) {
  qn__ir_expr_t* copy = qn__pb_copy(pb, condition);
  qn__ir_scalar_t value;
  if (!copy || !replace_slot(pb, &copy) || !qn__expr_fold(copy, &value)) return false;
  *out_holds = value.i != 0;
  return true;
}

static void visit_block(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) && !qn__pb_stopped(pb);) {
    bool holds;
    if (stmt->kind == QN__STMT_ASSERT && qn__expr_has_target(stmt->assert_.condition) &&
        decide(pb, stmt->assert_.condition, &holds)) {
      if (!holds) refuse(pb, stmt);
      continue;
    }
    if (stmt->kind == QN__STMT_IF && qn__expr_has_target(stmt->if_.condition) &&
        decide(pb, stmt->if_.condition, &holds)) {
      *(holds ? &stmt->if_.else_block : &stmt->if_.then_block) = (qn__ir_block_t){NULL, NULL};
    }
    (void)qn__stmt_each_expr(stmt, replace_slot, pb);
    QN__EACH_BLOCK(stmt, nested) visit_block(pb, nested);
    qn__block_append(block, stmt);
  }
}

static void visit_function(qn__pass_builder_t* pb) {
  visit_block(pb, &pb->function->body);
}

static bool is_of_target(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_OP && qn__op_info(expr->op)->rule == QN__RULE_TARGET;
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any_expr(&function->body, is_of_target) ? "a number of the target" : NULL;
}

const qn__pass_t qn__pass_target_values = {
    .name = "target_values",
    .doc = "warp_size() becomes a literal, requirements of it are decided",
    .run = visit_function,
    .post = "numbers of the target are literals",
    .check = check,
    .is_alone = true,
};
