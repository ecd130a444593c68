// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_gpu.c: see support_gpu.h.
#include "support_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/passes/rewrite.h"
#include "ir/text.h"
#include "tests/support/fault.h"

typedef struct check {
  const qn__pass_options_t* options;
  const char* problem;
  bool is_let;  // the expression is the whole value of a let
} check_t;

static bool problem_is(check_t* self, const char* problem) {
  if (!self->problem) self->problem = problem;
  return false;
}

static bool is_block(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_block(stmt->loop.kind);
}
static bool is_thread(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind);
}

static bool check_expr(void* context, qn__ir_expr_t** slot) {
  check_t* self = context;
  const qn__ir_expr_t* expr = *slot;
  bool is_whole = self->is_let;
  self->is_let = false;
  if (expr->kind == QN__EXPR_REDUCE && expr->reduce.lane_count) {
    return problem_is(self, "a reduction in lanes");
  }
  if (expr->kind == QN__EXPR_OP) {
    qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
    if (rule == QN__RULE_AXES) return problem_is(self, "a reduction over axes");
    if (rule == QN__RULE_LANE || rule == QN__RULE_GROUP) {
      bool is_block_op =
          expr->op == QN_OP_BLOCK_SUM || expr->op == QN_OP_BLOCK_MIN || expr->op == QN_OP_BLOCK_MAX;
      bool has = is_block_op ? self->options->has_block_reductions : self->options->has_shuffles;
      if (!has) return problem_is(self, "an exchange that the target lacks");
      if (!is_whole) return problem_is(self, "an exchange inside of an expression");
    }
  }
  return qn__expr_each_child(*slot, check_expr, self);
}

static bool check_stmt(check_t* self, qn__ir_stmt_t* stmt) {
  self->is_let = stmt->kind == QN__STMT_LET;
  return qn__stmt_each_expr(stmt, check_expr, self);
}

static bool check_thread(check_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!check_stmt(self, stmt)) return false;
    if (stmt->kind == QN__STMT_LOOP) {
      bool is_lanes = stmt->loop.kind == QN_LOOP_VECTOR && self->options->access_bytes > 0;
      if (stmt->loop.kind != QN_LOOP_SERIAL && stmt->loop.kind != QN_LOOP_UNROLL && !is_lanes) {
        return problem_is(self, "a concurrent loop inside of a thread");
      }
      if (stmt->loop.lane_count) return problem_is(self, "a loop in lanes");
    }
    if (stmt->kind == QN__STMT_ALLOC && (stmt->alloc.buffer->scope == QN__SCOPE_SHARED ||
                                         stmt->alloc.buffer->scope == QN__SCOPE_GLOBAL)) {
      return problem_is(self, "memory of the block inside of a thread");
    }
    QN__EACH_BLOCK(stmt, inner) {
      if (!check_thread(self, inner)) return false;
    }
  }
  return true;
}

static bool check_level(check_t* self, qn__ir_block_t* block) {
  qn__ir_stmt_t* stmt = block->first;
  for (; stmt && !is_thread(stmt); stmt = stmt->next) {
    if (!check_stmt(self, stmt)) return false;
    if (stmt->kind == QN__STMT_LET) continue;
    if (stmt->kind != QN__STMT_ALLOC) return problem_is(self, "a statement at the block level");
    qn__ir_scope_t scope = stmt->alloc.buffer->scope;
    if (scope != QN__SCOPE_SHARED && scope != QN__SCOPE_CONST && scope != QN__SCOPE_VIEW) {
      return problem_is(self, "an allocation at the block level");
    }
  }
  if (!stmt || stmt->next)
    return problem_is(self, "not one nest of threads at the end of a block level");
  while (stmt->loop.body.first && is_thread(stmt->loop.body.first) &&
         stmt->loop.body.first == stmt->loop.body.last) {
    if (!check_stmt(self, stmt)) return false;
    stmt = stmt->loop.body.first;
  }
  return check_stmt(self, stmt) && check_thread(self, &stmt->loop.body);
}

static bool host_slot(void* context, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE ||
      qn__dtype_is_float(expr->dtype)) {
    return problem_is(context, "what the host cannot compute");
  }
  return qn__expr_each_child(*slot, host_slot, context);
}

static bool check_host(check_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (is_block(stmt)) {
      qn__ir_stmt_t* loop = stmt;
      while (loop->loop.body.first && is_block(loop->loop.body.first)) {
        if (!qn__stmt_each_expr(loop, host_slot, self)) return false;
        if (loop->loop.body.first != loop->loop.body.last) {
          return problem_is(self, "block loops that are not perfectly nested");
        }
        loop = loop->loop.body.first;
      }
      if (!qn__stmt_each_expr(loop, host_slot, self)) return false;
      if (!check_level(self, &loop->loop.body)) return false;
      continue;
    }
    if (stmt->kind == QN__STMT_ALLOC) {
      qn__ir_scope_t scope = stmt->alloc.buffer->scope;
      if (scope != QN__SCOPE_GLOBAL && scope != QN__SCOPE_CONST && scope != QN__SCOPE_VIEW) {
        return problem_is(self, "an allocation of a thread at the host's level");
      }
      continue;
    }
    bool is_host = stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_IF ||
                   stmt->kind == QN__STMT_ASSERT ||
                   (stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_SERIAL &&
                    stmt->loop.lane_count == 0);
    if (!is_host) return problem_is(self, "a statement that the host cannot run");
    if (!qn__stmt_each_expr(stmt, host_slot, self)) return false;
    QN__EACH_BLOCK(stmt, inner) {
      if (!check_host(self, inner)) return false;
    }
  }
  return true;
}

bool qn_test_is_mapped(qn__ir_func_t* function, const qn__pass_options_t* options, char* message,
                       size_t message_size) {
  check_t self = {.options = options};
  if (check_host(&self, &function->body)) return true;
  (void)snprintf(message, message_size, "%s", self.problem);
  return false;
}

void qn_test_show(const qn__ir_body_t* body) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__text_print(body, &text);
  printf("%s\n", (const char*)text.data);
  qn__buffer_deinit(&text);
}

typedef struct mapping {
  const qn_module_t* module;
  const qn__pass_options_t* options;
} mapping_t;

static bool map_once(qn_allocator_t allocator, void* user) {
  const mapping_t* self = user;
  qn__ir_body_t body;
  qn_status_t status = qn__body_clone(&self->module->body, allocator, &body);
  if (qn_ok(status)) {
    status = qn__passes_run_gpu(&body, self->options);
    qn__body_deinit(&body);
  }
  bool is_right = qn_ok(status) || qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  return is_right;
}

void qn_test_map_without_memory(const qn_module_t* module, const qn__pass_options_t* options) {
  mapping_t mapping = {module, options};
  assert_true(qn_fault_walk_alloc(map_once, &mapping) > 0);
}
