// SPDX-License-Identifier: Apache-2.0
// devices/gpu/plan_text.c: a plan as text, for people and tests.
//
// An expression is postfix. It is written infix without recursion, because one of a file may nest
// as deep as it is long.
#include "base/alloc.h"
#include "devices/gpu/plan.h"

// ------------------------------------------------------------------------------------ expressions

typedef struct op_text {
  const char* text;
  bool is_infix;
} op_text_t;

#define IS_INFIX_INFIX true
#define IS_INFIX_PREFIX false
#define IS_INFIX_CALL false
static const op_text_t op_texts[QN_OP_COUNT] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) [value] = {text, IS_INFIX_##syntax},
#include "quern/ops.inc"
#undef QN_OP
};

// What is left to write: a part of the expression, or a text.
typedef struct plan_piece {
  const char* text;  // NULL: the part that ends with operation `op`
  uint32_t op;
} plan_piece_t;

static uint32_t operand_count(const qn__gpu_op_t* op) {
  if (op->kind == QN__GPU_WRAP) return 1;
  return op->kind == QN__GPU_APPLY ? qn__gpu_op_arity(op->op) : 0;
}

static void put_leaf(qn__buffer_t* out, const qn__gpu_op_t* op) {
  const char* before = op->kind == QN__GPU_WORD ? "w" : op->kind == QN__GPU_LOCAL ? "l" : "";
  qn__buffer_format(out, "%s%" PRId64, before, op->value);
}

// Pushes what an operation with operands comes to, the last piece first.
static plan_piece_t* push(plan_piece_t* top, const qn__gpu_expr_t* expr, const uint32_t* begins,
                          uint32_t index) {
  const qn__gpu_op_t* op = &expr->ops[index];
  const uint32_t count = operand_count(op);
  const bool is_infix = op->kind == QN__GPU_APPLY && op_texts[op->op].is_infix && count == 2;
  *top++ = (plan_piece_t){.text = ")"};
  uint32_t operand = index - 1;
  for (uint32_t i = count; i > 0; i--) {
    *top++ = (plan_piece_t){.op = operand};
    if (i == 1) break;
    if (is_infix) {
      *top++ = (plan_piece_t){.text = " "};
      *top++ = (plan_piece_t){.text = op_texts[op->op].text};
      *top++ = (plan_piece_t){.text = " "};
    } else {
      *top++ = (plan_piece_t){.text = ", "};
    }
    operand = begins[operand] - 1;
  }
  *top++ = (plan_piece_t){.text = "("};
  if (op->kind == QN__GPU_WRAP) *top++ = (plan_piece_t){.text = qn_dtype_text(op->dtype)};
  if (op->kind == QN__GPU_APPLY && !is_infix)
    *top++ = (plan_piece_t){.text = op_texts[op->op].text};
  return top;
}

enum { MAX_PIECES = 8 };  // that one operation pushes

static void put_expr(qn__buffer_t* out, const qn__gpu_expr_t* expr, qn__arena_t* arena) {
  const uint32_t count = expr->op_count;
  if (count == 0) {
    qn__buffer_cstr(out, "-");
    return;
  }
  // Where the part that ends with each operation begins.
  uint32_t* begins = qn__arena_alloc_array(arena, count, sizeof *begins);
  plan_piece_t* pieces =
      qn__arena_alloc_array(arena, (size_t)count + 1, MAX_PIECES * sizeof *pieces);
  if (!begins || !pieces) return;
  for (uint32_t i = 0; i < count; i++) {
    begins[i] = i;
    for (uint32_t left = operand_count(&expr->ops[i]); left > 0; left--) {
      begins[i] = begins[begins[i] - 1];
    }
  }
  plan_piece_t* top = pieces;
  *top++ = (plan_piece_t){.op = count - 1};
  while (top != pieces) {
    const plan_piece_t piece = *--top;
    if (piece.text) {
      qn__buffer_cstr(out, piece.text);
    } else if (operand_count(&expr->ops[piece.op]) == 0) {
      put_leaf(out, &expr->ops[piece.op]);
    } else {
      top = push(top, expr, begins, piece.op);
      assert((size_t)(top - pieces) <= ((size_t)count + 1) * MAX_PIECES);
    }
  }
}

// ------------------------------------------------------------------------------------ steps

static void put_kernel(qn__buffer_t* out, const qn__gpu_kernel_t* kernel) {
  qn__buffer_format(out, "%s(", kernel->name);
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    static const char letters[] = "?bxwl";
    const qn_gpu_arg_t* arg = &kernel->args[i];
    qn__buffer_format(out, "%s%c%u%s", i ? " " : "", letters[arg->kind], arg->index,
                      arg->is_written ? "!" : "");
  }
  qn__buffer_format(out, ")%s", kernel->has_record ? " record" : "");
}

static void put_launch(qn__buffer_t* out, const qn__gpu_plan_t* plan, const qn__gpu_step_t* step,
                       qn__arena_t* arena) {
  const qn__gpu_kernel_t* kernel = &plan->kernels[step->kernel];
  qn__buffer_cstr(out, "launch ");
  put_kernel(out, kernel);
  qn__buffer_cstr(out, " blocks ");
  put_expr(out, &step->a, arena);
  qn__buffer_cstr(out, " threads ");
  if (kernel->thread_count) {
    qn__buffer_format(out, "%u", kernel->thread_count);
  } else {
    put_expr(out, &step->b, arena);
  }
  qn__buffer_cstr(out, " guard ");
  put_expr(out, &step->guard, arena);
  if (step->wide_kernel != QN__GPU_NO_KERNEL) {
    qn__buffer_format(out, " else %s", plan->kernels[step->wide_kernel].name);
  }
}

static void put_step(qn__buffer_t* out, const qn__gpu_plan_t* plan, const qn__gpu_step_t* step,
                     qn__arena_t* arena) {
  switch (step->kind) {
    case QN__GPU_STEP_LET:
      qn__buffer_format(out, "l%u = ", step->slot);
      put_expr(out, &step->a, arena);
      break;
    case QN__GPU_STEP_WORKSPACE:
      qn__buffer_format(out, "x%u = bytes ", step->slot);
      put_expr(out, &step->a, arena);
      break;
    case QN__GPU_STEP_LOOP:
      qn__buffer_format(out, "for l%u in ", step->slot);
      put_expr(out, &step->a, arena);
      qn__buffer_cstr(out, "..");
      put_expr(out, &step->b, arena);
      qn__buffer_format(out, " [%u]", step->body_count);
      break;
    case QN__GPU_STEP_IF:
      qn__buffer_cstr(out, "if ");
      put_expr(out, &step->a, arena);
      if (step->guard.op_count != 0) {
        qn__buffer_cstr(out, " guard ");
        put_expr(out, &step->guard, arena);
      }
      qn__buffer_format(out, " [%u, %u]", step->body_count, step->else_count);
      break;
    case QN__GPU_STEP_LAUNCH:
      put_launch(out, plan, step, arena);
      break;
    case QN__GPU_STEP_ASSERT:
      qn__buffer_format(out, "assert %u ", step->site);
      put_expr(out, &step->a, arena);
      break;
  }
  qn__buffer_char(out, '\n');
}

void qn__gpu_plan_text(const qn__gpu_plan_t* plan, uint32_t function, qn__buffer_t* out) {
  const qn__gpu_function_t* of = &plan->functions[function];
  for (uint32_t i = 0; i < of->step_count; i++) {
    qn__arena_t arena;  // of one step's expressions
    qn__arena_init(&arena, qn_allocator_default());
    put_step(out, plan, &of->steps[i], &arena);
    if (arena.is_exhausted) out->has_failed = true;
    qn__arena_deinit(&arena);
  }
}
