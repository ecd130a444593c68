// SPDX-License-Identifier: Apache-2.0
// jit/plan/split.c: turns the statements at the top of a mapped function into steps of the host.
//
// Lets become locals, allocations become workspaces, loops and conditions around launches become
// steps of the host; launch.c handles the launches. Locals and workspaces are reused after the
// block that declares them. In checked builds a division is tested at the step that evaluates it,
// not earlier.
#include "jit/plan/split.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

bool qn__gpu_split_fail(qn__gpu_split_t* split, qn_status_t status) {
  if (qn_ok(split->status)) {
    split->status = status;
  } else {
    qn_status_free(status);
  }
  return false;
}

bool qn__gpu_split_unsupported(qn__gpu_split_t* split, const char* format, ...) {
  char what[256];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return qn__gpu_split_fail(split, qn_status_make(QN_STATUS_UNSUPPORTED, "function '%s': %s",
                                                  split->function->name, what));
}

static bool no_memory(qn__gpu_split_t* split) {
  return qn__gpu_split_fail(split, qn__out_of_memory("a launch plan"));
}

qn__gpu_step_t* qn__gpu_split_step(qn__gpu_split_t* split, qn__gpu_step_kind_t kind) {
  qn__gpu_function_t* plan = split->plan;
  qn__gpu_step_t* steps = qn__arena_grow(split->arena, split->steps, plan->step_count,
                                         &split->step_capacity, sizeof *steps);
  if (!steps) {
    (void)no_memory(split);
    return NULL;
  }
  plan->steps = split->steps = steps;
  qn__gpu_step_t* step = &split->steps[plan->step_count++];
  *step = (qn__gpu_step_t){.kind = kind,
                           .site = QN__GPU_NO_SITE,
                           .memory_site = QN__GPU_NO_SITE,
                           .kernel = QN__GPU_NO_KERNEL,
                           .wide_kernel = QN__GPU_NO_KERNEL};
  return step;
}

bool qn__gpu_split_finish(qn__gpu_split_t* split, const qn__gpu_ops_t* ops, qn__gpu_expr_t* out) {
  if (qn__gpu_ops_finish(ops, out)) return true;
  if (ops->has_failed) return no_memory(split);
  return qn__gpu_split_unsupported(split,
                                   "an expression of the host needs more than %d values at once",
                                   (int)QN__GPU_MAX_EXPR_DEPTH);
}

static bool finish_expr(qn__gpu_split_t* split, const qn__ir_expr_t* expr, qn__gpu_expr_t* out) {
  if (!qn__gpu_host_knows(&split->host, expr)) {
    return qn__gpu_split_unsupported(split, "the host cannot evaluate an expression that it needs");
  }
  qn__gpu_ops_t ops = {.arena = split->arena};
  qn__gpu_put_expr(&split->host, &ops, expr);
  return qn__gpu_split_finish(split, &ops, out);
}

static uint32_t add_site(qn__gpu_split_t* split, qn_artifact_site_t site) {
  uint32_t index = qn__gpu_site(split->program, split->ir, site);
  if (index == QN__GPU_NO_SITE) (void)no_memory(split);
  return index;
}

static uint32_t add_buffer_site(qn__gpu_split_t* split, qn_site_kind_t kind,
                                const qn__ir_buffer_t* buffer, uint32_t dim) {
  return add_site(
      split,
      (qn_artifact_site_t){
          .kind = kind, .buffer_id = buffer->origin_id, .dim = dim, .place = buffer->loc.begin});
}

// ---- divisions of the host, in checked builds

// A condition under which an expression is evaluated, and those around it. `is_inverse`: the
// negation of the condition.
typedef struct path {
  const struct path* outer;
  const qn__ir_expr_t* condition;
  bool is_inverse;
} path_t;

// Adds a step that asserts: the divisor of a division is not 0, or a condition of the path (NULL:
// none) does not hold.
static bool check_division(qn__gpu_split_t* split, const path_t* path,
                           const qn__ir_expr_t* division) {
  const qn__ir_expr_t* divisor = division->args[1];
  if (divisor->kind == QN__EXPR_INT && divisor->int_value != 0) return true;
  qn__gpu_ops_t ops = {.arena = split->arena};
  qn__gpu_put_expr(&split->host, &ops, divisor);
  qn__gpu_put_const(&ops, 0);
  qn__gpu_put_apply(&ops, QN_OP_NE);
  for (; path; path = path->outer) {
    qn__gpu_put_expr(&split->host, &ops, path->condition);
    if (!path->is_inverse) qn__gpu_put_apply(&ops, QN_OP_LOGIC_NOT);
    qn__gpu_put_apply(&ops, QN_OP_LOGIC_OR);
  }
  uint32_t site = add_site(
      split, (qn_artifact_site_t){
                 .kind = QN_SITE_DIVISION, .buffer_id = UINT32_MAX, .place = division->loc.begin});
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_ASSERT);
  if (!step || site == QN__GPU_NO_SITE) return false;
  step->site = site;
  return qn__gpu_split_finish(split, &ops, &step->a);
}

// Checks all divisions in an expression, each under the conditions of its evaluation. For example
// `c ? a / b : d` asserts `b != 0 || !c`.
static bool check_divisions(qn__gpu_split_t* split, const path_t* path, const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_CAST) return check_divisions(split, path, expr->args[0]);
  if (expr->kind == QN__EXPR_COND) {
    const path_t then_path = {path, expr->args[0], false}, else_path = {path, expr->args[0], true};
    return check_divisions(split, path, expr->args[0]) &&
           check_divisions(split, &then_path, expr->args[1]) &&
           check_divisions(split, &else_path, expr->args[2]);
  }
  if (expr->kind != QN__EXPR_OP) return true;
  if (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR) {
    const path_t right_path = {path, expr->args[0], expr->op == QN_OP_LOGIC_OR};
    return check_divisions(split, path, expr->args[0]) &&
           check_divisions(split, &right_path, expr->args[1]);
  }
  for (uint32_t i = 0; i < qn__op_info(expr->op)->arity; i++) {
    if (!check_divisions(split, path, expr->args[i])) return false;
  }
  return !qn__op_is_division(expr->op) || check_division(split, path, expr);
}

// Adds the checks before the step that evaluates `expr`.
static bool put_checks(qn__gpu_split_t* split, const qn__ir_expr_t* expr) {
  if (!split->options->passes.is_checked || !qn__gpu_host_knows(&split->host, expr)) return true;
  return check_divisions(split, NULL, expr);
}

// ---- steps

static bool take_local(qn__gpu_split_t* split, const qn__ir_var_t* var, const qn__ir_expr_t* value,
                       uint32_t* out_slot) {
  if (split->local_count == QN__GPU_MAX_LOCALS) {
    return qn__gpu_split_unsupported(split, "more than %d values of the host at once",
                                     (int)QN__GPU_MAX_LOCALS);
  }
  assert(split->locals[var->id] == QN__GPU_NO_PLACE);
  *out_slot = split->local_count++;
  if (split->local_count > split->plan->local_count) split->plan->local_count = split->local_count;
  split->locals[var->id] = *out_slot;
  split->values[var->id] = value;
  return true;
}

static bool put_let(qn__gpu_split_t* split, const qn__ir_stmt_t* stmt) {
  if (!put_checks(split, stmt->let.value)) return false;
  qn__gpu_expr_t value;
  if (!finish_expr(split, stmt->let.value, &value)) return false;
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_LET);
  if (!step) return false;
  step->a = value;
  return take_local(split, stmt->let.var, stmt->let.value, &step->slot);
}

static bool put_assert(qn__gpu_split_t* split, const qn__ir_stmt_t* stmt) {
  if (!put_checks(split, stmt->assert_.condition)) return false;
  const char* message = stmt->assert_.message ? stmt->assert_.message : "";
  uint32_t site = add_site(split, (qn_artifact_site_t){.kind = QN_SITE_ASSERT,
                                                       .buffer_id = UINT32_MAX,
                                                       .place = stmt->loc.begin,
                                                       .message = message});
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_ASSERT);
  if (!step || site == QN__GPU_NO_SITE) return false;
  step->site = site;
  return finish_expr(split, stmt->assert_.condition, &step->a);
}

// Adds a step that fails if an extent is negative.
static bool check_extent(qn__gpu_split_t* split, const qn__ir_buffer_t* buffer, uint32_t dim) {
  const qn__ir_expr_t* extent = buffer->shape[dim];
  if (!put_checks(split, extent)) return false;
  if (extent->kind == QN__EXPR_INT && extent->int_value >= 0) return true;
  uint32_t site = add_buffer_site(split, QN_SITE_EXTENT, buffer, dim);
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_ASSERT);
  if (!step || site == QN__GPU_NO_SITE) return false;
  step->site = site;
  if (!finish_expr(split, extent, &step->b)) return false;
  qn__gpu_ops_t ops = {.arena = split->arena};
  qn__gpu_put_expr(&split->host, &ops, extent);
  qn__gpu_put_const(&ops, 0);
  qn__gpu_put_apply(&ops, QN_OP_GE);
  return qn__gpu_split_finish(split, &ops, &step->a);
}

static bool put_workspace(qn__gpu_split_t* split, const qn__ir_buffer_t* buffer) {
  qn__gpu_ops_t ops = {.arena = split->arena};
  qn__gpu_put_const(&ops, (int64_t)qn_dtype_size_bytes(buffer->dtype));
  for (uint32_t i = 0; i < buffer->rank; i++) {
    if (!check_extent(split, buffer, i)) return false;
    qn__gpu_put_expr(&split->host, &ops, buffer->shape[i]);
    qn__gpu_put_apply(&ops, QN_OP_MUL);
  }
  if (split->workspace_count == QN__GPU_MAX_WORKSPACES) {
    return qn__gpu_split_unsupported(split, "more than %d buffers in global memory at once",
                                     (int)QN__GPU_MAX_WORKSPACES);
  }
  uint32_t last = buffer->rank > 0 ? buffer->rank - 1 : 0;
  uint32_t site = add_buffer_site(split, QN_SITE_EXTENT, buffer, last);
  uint32_t memory_site = add_buffer_site(split, QN_SITE_MEMORY, buffer, 0);
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_WORKSPACE);
  if (!step || memory_site == QN__GPU_NO_SITE) return false;
  step->slot = split->workspace_count++;
  if (split->workspace_count > split->plan->workspace_count) {
    split->plan->workspace_count = split->workspace_count;
  }
  assert(split->slots[buffer->id] == QN__GPU_NO_PLACE);
  split->slots[buffer->id] = step->slot;
  step->site = site;
  step->memory_site = memory_site;
  if (buffer->rank > 0 && !finish_expr(split, buffer->shape[last], &step->b)) return false;
  return qn__gpu_split_finish(split, &ops, &step->a);
}

static bool put_block(qn__gpu_split_t* split, const qn__ir_block_t* block, uint32_t depth);

// If the first arm of a choice is one launch, its guard is part of the choice. The launch then
// needs no wide kernel, since the other arm is right for any call.
static bool is_choice(const qn__ir_stmt_t* stmt) {
  const qn__ir_stmt_t* only = stmt->if_.then_block.first;
  return stmt->if_.is_choice && only && !only->next && only->kind == QN__STMT_LOOP &&
         qn__loop_is_block(only->loop.kind);
}

// Moves the guard of a choice's launch, which is the next step, to the choice.
static void lift_guard(qn__gpu_step_t* choice) {
  qn__gpu_step_t* launch = choice + 1;
  assert(launch->kind == QN__GPU_STEP_LAUNCH && launch->wide_kernel == QN__GPU_NO_KERNEL);
  choice->guard = launch->guard;
  launch->guard = (qn__gpu_expr_t){0, NULL};
}

static bool put_if(qn__gpu_split_t* split, const qn__ir_stmt_t* stmt, uint32_t depth) {
  if (!put_checks(split, stmt->if_.condition)) return false;
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_IF);
  if (!step || !finish_expr(split, stmt->if_.condition, &step->a)) return false;
  uint32_t at = split->plan->step_count - 1;
  bool had_other_arm = split->has_other_arm;
  split->has_other_arm = is_choice(stmt);
  if (!put_block(split, &stmt->if_.then_block, depth + 1)) return false;
  split->has_other_arm = had_other_arm;
  split->steps[at].body_count = split->plan->step_count - at - 1;
  if (is_choice(stmt)) lift_guard(&split->steps[at]);
  uint32_t middle = split->plan->step_count;
  if (!put_block(split, &stmt->if_.else_block, depth + 1)) return false;
  assert(split->steps[at].kind == QN__GPU_STEP_IF);
  split->steps[at].else_count = split->plan->step_count - middle;
  return true;
}

static bool put_loop(qn__gpu_split_t* split, const qn__ir_stmt_t* stmt, uint32_t depth) {
  if (!put_checks(split, stmt->loop.begin) || !put_checks(split, stmt->loop.end)) return false;
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_LOOP);
  if (!step || !finish_expr(split, stmt->loop.begin, &step->a) ||
      !finish_expr(split, stmt->loop.end, &step->b)) {
    return false;
  }
  uint32_t at = split->plan->step_count - 1;
  uint32_t local_count = split->local_count;
  if (!take_local(split, stmt->loop.var, stmt->loop.begin, &step->slot)) return false;
  if (!put_block(split, &stmt->loop.body, depth + 1)) return false;
  assert(split->local_count > local_count && split->steps[at].kind == QN__GPU_STEP_LOOP);
  split->local_count = local_count;
  split->steps[at].body_count = split->plan->step_count - at - 1;
  return true;
}

static bool put_stmt(qn__gpu_split_t* split, qn__ir_stmt_t* stmt, uint32_t depth) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return put_let(split, stmt);
    case QN__STMT_ASSERT:
      return put_assert(split, stmt);
    case QN__STMT_IF:
      return put_if(split, stmt, depth);
    case QN__STMT_LOOP:
      if (qn__loop_is_block(stmt->loop.kind)) return qn__gpu_split_launch(split, stmt);
      if (stmt->loop.kind == QN_LOOP_SERIAL || stmt->loop.kind == QN_LOOP_UNROLL) {
        return put_loop(split, stmt, depth);
      }
      break;
    case QN__STMT_ALLOC:
      switch (stmt->alloc.buffer->scope) {
        case QN__SCOPE_GLOBAL:
          return put_workspace(split, stmt->alloc.buffer);
        case QN__SCOPE_CONST:
        case QN__SCOPE_VIEW:
          return true;  // each kernel that uses the buffer declares it
        default:
          break;
      }
      break;
    default:
      break;
  }
  return qn__gpu_split_fail(
      split, qn_status_make(QN_STATUS_INTERNAL,
                            "function '%s': a statement outside of its launches is not the host's",
                            split->function->name));
}

static bool put_block(qn__gpu_split_t* split, const qn__ir_block_t* block, uint32_t depth) {
  if (depth > QN__GPU_MAX_STEP_DEPTH) {
    return qn__gpu_split_unsupported(split,
                                     "loops and conditions of the host nest more than %d deep",
                                     (int)QN__GPU_MAX_STEP_DEPTH);
  }
  uint32_t local_count = split->local_count, workspace_count = split->workspace_count;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!put_stmt(split, stmt, depth)) return false;
  }
  assert(split->local_count >= local_count && split->workspace_count >= workspace_count);
  split->local_count = local_count;
  split->workspace_count = workspace_count;
  return true;
}

// ---- a function

static uint32_t* alloc_places(qn__gpu_split_t* split, uint32_t count) {
  uint32_t* places = qn__arena_alloc_array(split->arena, count + 1U, sizeof *places);
  if (places) memset(places, 0xFF, (count + 1U) * sizeof *places);
  return places;
}

qn_status_t qn__gpu_split_function(qn__gpu_split_t* split) {
  qn__ir_func_t* function = split->function;
  split->words = alloc_places(split, function->var_count);
  split->locals = alloc_places(split, function->var_count);
  split->slots = alloc_places(split, function->buffer_count);
  split->params = alloc_places(split, function->buffer_count);
  split->values =
      qn__arena_alloc_array(split->arena, function->var_count + 1U, sizeof *split->values);
  if (!split->words || !split->locals || !split->slots || !split->params || !split->values) {
    return qn__out_of_memory("a launch plan");
  }
  qn__gpu_function_t* plan = split->plan;
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_param_t* param = &function->params[i];
    if (param->buffer) {
      split->params[param->buffer->id] = plan->word_count++;
    } else {
      split->words[param->scalar->id] = plan->word_count++;
    }
  }
  plan->param_count = plan->word_count;
  for (size_t i = 0; i < function->symbol_count; i++) {
    split->words[function->symbols[i]->id] = plan->word_count++;
  }
  split->host = (qn__gpu_host_t){split->arena, function, split->words, split->locals};
  (void)put_block(split, &function->body, 0);
  return split->status;
}
