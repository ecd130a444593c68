// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/test_narrow.c: tests 32-bit index arithmetic under its guard against
// 64-bit arithmetic.
//
// Random index expressions are lowered. For random shapes and scalars (small, huge, negative, zero)
// every launch whose guard holds is evaluated twice: with the IR's semantics and as the printer
// prints it. Used values must be equal, indices in their low 32 bits. Of loops only the first, the
// last and a middle iteration are evaluated.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/gpu_codegen/support_plan.h"

// ---- chance

static uint64_t seed;
static uint32_t chance(uint32_t count) {
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(seed >> 33) % count;
}

// ---- the two evaluations

typedef struct value {
  int64_t real;
  int64_t shown;  // as the kernel has it: a narrow one is extended from 32 bits
} value_t;

typedef struct model {
  const qn__gpu_widths_t* widths;
  value_t* vars;  // by id
  long compared;
  bool is_checked;
} model_t;

static int64_t low(int64_t value) {
  return (int32_t)(uint32_t)(uint64_t)value;
}

static value_t evaluate(model_t* model, const qn__ir_expr_t* expr);

static int64_t apply(qn_op_t op, qn_dtype_t dtype, const int64_t* args) {
  qn__ir_scalar_t in[3] = {{.i = args[0]}, {.i = args[1]}, {.i = args[2]}}, out = {.i = 0};
  (void)qn__scalar_op(op, dtype, in, &out);
  return out.i;
}

static bool is_low_op(const qn__ir_expr_t* expr) {
  switch (expr->op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_NEG:
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
    case QN_OP_NOT:
      return true;
    case QN_OP_SHL:
      return expr->args[1]->kind == QN__EXPR_INT;
    default:
      return false;
  }
}

static value_t evaluate_op(model_t* model, const qn__ir_expr_t* expr) {
  uint32_t arity = qn__op_info(expr->op)->arity;
  int64_t real[3] = {0}, shown[3] = {0};
  bool is_narrow = qn__gpu_is_narrow_expr(model->widths, expr), are_narrow = true;
  for (uint32_t i = 0; i < arity; i++) {
    value_t arg = evaluate(model, expr->args[i]);
    real[i] = arg.real;
    shown[i] = arg.shown;
    are_narrow &= qn__gpu_is_narrow_expr(model->widths, expr->args[i]);
  }
  qn_dtype_t dtype = expr->args[arity == 3 ? 1 : 0]->dtype;
  if (expr->op == QN_OP_SELECT) {
    value_t out = {real[0] ? real[1] : real[2], shown[0] ? shown[1] : shown[2]};
    if (is_narrow) out.shown = low(out.shown);
    return out;
  }
  value_t out = {apply(expr->op, dtype, real), 0};
  if (dtype != QN_DTYPE_I64 || expr->dtype != QN_DTYPE_I64) {
    // Comparisons are done in 32 bits when both sides are.
    out.shown = apply(expr->op, dtype, shown);
    return out;
  }
  if (is_narrow && is_low_op(expr)) {
    for (uint32_t i = 0; i < arity; i++) {
      bool is_count = i == 1 && expr->op == QN_OP_SHL;
      if (!is_count) shown[i] = low(shown[i]);
    }
    out.shown = low(apply(expr->op, QN_DTYPE_I64, shown));
  } else if (is_narrow && are_narrow && expr->op != QN_OP_SHR && expr->op != QN_OP_SHL) {
    // (Shifts by what is no constant are done in 64 bits: the count may be larger than 31.)
    out.shown = apply(expr->op, QN_DTYPE_I32, shown);
  } else {
    out.shown = apply(expr->op, QN_DTYPE_I64, shown);
    if (is_narrow) out.shown = low(out.shown);
  }
  return out;
}

static value_t evaluate(model_t* model, const qn__ir_expr_t* expr) {
  bool is_narrow = expr->dtype == QN_DTYPE_I64 && qn__gpu_is_narrow_expr(model->widths, expr);
  value_t out = {0, 0};
  switch (expr->kind) {
    case QN__EXPR_INT:
      out = (value_t){expr->int_value, expr->int_value};
      break;
    case QN__EXPR_VAR:
      out = model->vars[expr->var->id];
      break;
    case QN__EXPR_OP:
      return evaluate_op(model, expr);
    case QN__EXPR_CAST: {
      value_t from = evaluate(model, expr->args[0]);
      out = (value_t){qn__wrap_int(expr->dtype, from.real), qn__wrap_int(expr->dtype, from.shown)};
      break;
    }
    case QN__EXPR_COND: {
      value_t condition = evaluate(model, expr->args[0]);
      assert_true((condition.real != 0) == (condition.shown != 0));
      out = evaluate(model, expr->args[condition.real ? 1 : 2]);
      break;
    }
    default:
      fail_msg("an expression that the model does not have");
  }
  if (is_narrow) out.shown = low(out.shown);
  return out;
}

// A value that counts.
static int64_t exact(model_t* model, const qn__ir_expr_t* expr) {
  value_t value = evaluate(model, expr);
  model->compared++;
  if (value.real != value.shown) {
    fail_msg("a value is %" PRId64 ", the kernel has %" PRId64, value.real, value.shown);
  }
  return value.real;
}

static void run_block(model_t* model, const qn__ir_block_t* block);

static void run_loop(model_t* model, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->loop.var;
  int64_t begin = exact(model, stmt->loop.begin), end = exact(model, stmt->loop.end);
  if (begin >= end) return;
  bool is_narrow = qn__gpu_is_narrow_var(model->widths, var);
  if (is_narrow) assert_true(low(begin) == begin && low(end) == end);
  uint64_t count = (uint64_t)end - (uint64_t)begin;
  int64_t rounds[3] = {begin, end - 1,
                       (int64_t)((uint64_t)begin + (((uint64_t)chance(1u << 31) << 20) % count))};
  for (int i = 0; i < 3; i++) {
    model->vars[var->id] = (value_t){rounds[i], rounds[i]};
    run_block(model, &stmt->loop.body);
  }
}

// The linear index, as the printer puts it together, and its low bits.
static void check_index(model_t* model, const qn__ir_buffer_t* buffer,
                        qn__ir_expr_t* const* indices) {
  int64_t real = 0, shown = 0;
  bool is_inside = true;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    value_t index = evaluate(model, indices[i]), extent = evaluate(model, buffer->shape[i]);
    if (model->is_checked) {
      (void)exact(model, indices[i]);
      (void)exact(model, buffer->shape[i]);
    }
    is_inside &= index.real >= 0 && index.real < extent.real;
    real = real * (is_inside ? extent.real : 1) + index.real * is_inside;
    shown = low((int64_t)((uint64_t)shown * (uint64_t)low(extent.shown)) + low(index.shown));
  }
  if (!is_inside) return;  // the program's bug, or what a checked build refuses
  model->compared++;
  assert_true(real >= 0 && real <= INT32_MAX);
  if (real != shown) {
    fail_msg("index %" PRId64 " of '%s' is %" PRId64 " in the kernel", real, buffer->name, shown);
  }
}

static void run_block(model_t* model, const qn__ir_block_t* block) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    switch (stmt->kind) {
      case QN__STMT_LET: {
        value_t value = evaluate(model, stmt->let.value);
        if (stmt->let.var->dtype == QN_DTYPE_I64) {
          if (qn__gpu_is_narrow_var(model->widths, stmt->let.var)) value.shown = low(value.shown);
          assert_true(value.real == value.shown);
        }
        model->vars[stmt->let.var->id] = value;
        break;
      }
      case QN__STMT_STORE:
        check_index(model, stmt->store.buffer, stmt->store.indices);
        (void)exact(model, stmt->store.value);
        break;
      case QN__STMT_IF:
        if (exact(model, stmt->if_.condition)) {
          run_block(model, &stmt->if_.then_block);
        } else {
          run_block(model, &stmt->if_.else_block);
        }
        break;
      case QN__STMT_LOOP:
        run_loop(model, stmt);
        break;
      case QN__STMT_ALLOC:
      case QN__STMT_BARRIER:
        break;
      default:
        fail_msg("a statement that the model does not have");
    }
  }
}

// ---- random programs

typedef struct text {
  char data[8192];
  size_t size;
} text_t;

static void put(text_t* text, const char* format, ...) QN_PRINTF(2, 3);
static void put(text_t* text, const char* format, ...) {
  va_list args;
  va_start(args, format);
  int more = vsnprintf(text->data + text->size, sizeof text->data - text->size, format, args);
  va_end(args);
  assert_true(more >= 0 && text->size + (size_t)more < sizeof text->data);
  text->size += (size_t)more;
}

static void put_random(text_t* text, int depth) {
  static const char* const leaves[] = {"i", "j", "k", "n", "m", "s", "i64(q)", "i", "j"};
  static const char* const infix[] = {"+", "-", "*", "//", "%", "&", "|", "^", "+", "-", "*"};
  static const char* const calls[] = {"min", "max", "truncdiv", "truncmod", "ceildiv"};
  static const int constants[] = {0,   1,     2,       3,          7,  64, 255,
                                  256, 65536, 1000003, 2147483647, -1, -5, -65536};
  uint32_t kind = depth == 0 ? chance(3) : chance(10);
  if (kind < 2) {
    put(text, "%s", leaves[chance(QN_COUNT_OF(leaves))]);
  } else if (kind == 2) {
    put(text, "(%d)", constants[chance(QN_COUNT_OF(constants))]);
  } else if (kind < 7) {
    put(text, "(");
    put_random(text, depth - 1);
    put(text, " %s ", infix[chance(QN_COUNT_OF(infix))]);
    put_random(text, depth - 1);
    put(text, ")");
  } else if (kind == 7) {
    put(text, "%s(", calls[chance(QN_COUNT_OF(calls))]);
    put_random(text, depth - 1);
    put(text, ", ");
    put_random(text, depth - 1);
    put(text, ")");
  } else if (kind == 8) {
    bool is_shift = chance(2);
    put(text, is_shift ? "((" : "abs((");
    put_random(text, depth - 1);
    put(text, ")");
    if (is_shift) put(text, " %s ", chance(2) ? "<<" : ">>");
    if (is_shift && chance(2)) {
      put(text, "(");
      put_random(text, depth - 1);
      put(text, " %% %u)", 1 + chance(35));
    } else if (is_shift) {
      put(text, "%u", chance(3) ? chance(12) : chance(80));
    }
    put(text, ")");
  } else {
    put(text, "select(");
    put_random(text, depth - 1);
    put(text, " < ");
    put_random(text, depth - 1);
    put(text, ", ");
    put_random(text, depth - 1);
    put(text, ", ");
    put_random(text, depth - 1);
    put(text, ")");
  }
}

static void make_program(text_t* out) {
  out->size = 0;
  put(out, "func f(x: f32[n, m], s: i64, q: i32, out y: i64[n, m]) {\n");
  put(out, "  block.x i in %s..n {\n    thread.x j in 0..m {\n", chance(4) ? "0" : "-3");
  put(out, "      for k in ");
  if (chance(2)) {
    put(out, "0..4");
  } else {
    put_random(out, 1);
    put(out, "..");
    put_random(out, 2);
  }
  put(out, " {\n        let a = ");
  put_random(out, 3);
  put(out, ";\n        if ");
  put_random(out, 2);
  put(out, " < ");
  put_random(out, 2);
  put(out, " {\n          y[i, j] = ");
  put_random(out, 3);
  put(out, " + a;\n        } else {\n          y[");
  // Indices that are in range although their parts need not be.
  put(out, "(");
  put_random(out, 2);
  put(out, " * 0 + i) + a * 5 - ");
  put(out, "a * 5, a * 7 + j - a * 7] = a;\n        }\n      }\n    }\n  }\n}\n");
}

static int64_t random_extent(void) {
  switch (chance(6)) {
    case 0:
      return chance(4);
    case 1:
      return chance(100);
    case 2:
      return chance(70000);
    case 3:
      return INT32_MAX - (int64_t)chance(3);
    case 4:
      return INT64_C(1) << chance(63);
    default:
      return 1 + chance(2000);
  }
}

static int64_t random_scalar(void) {
  int64_t value = random_extent();
  return chance(3) ? value : -value;
}

// Runs every launch of the plan whose guard holds. Returns how many did.
static long run_launches(const lowered_t* lowered, const uint64_t* words, bool is_checked,
                         long* inout_compared) {
  const qn__gpu_program_t* program = &lowered->program;
  const qn__gpu_function_t* plan = &program->plan.functions[0];
  const qn__ir_func_t* function = program->functions[0].function;
  long count = 0;
  int64_t locals[QN__GPU_MAX_LOCALS] = {0};
  for (uint32_t i = 0; i < plan->step_count; i++) {
    const qn__gpu_step_t* step = &plan->steps[i];
    if (step->kind == QN__GPU_STEP_LET)
      (void)qn__gpu_eval(&step->a, words, locals, &locals[step->slot]);
    if (step->kind != QN__GPU_STEP_LAUNCH) continue;
    const qn__gpu_kernel_ir_t* kernel = &program->kernels[step->kernel];
    int64_t guard = 1;
    if (!kernel->is_narrow) continue;
    if (step->guard.op_count && (!qn__gpu_eval(&step->guard, words, locals, &guard) || !guard)) {
      continue;
    }
    model_t model = {.widths = kernel->widths, .is_checked = is_checked};
    model.vars = calloc(function->var_count + 1, sizeof *model.vars);
    assert_non_null(model.vars);
    const qn__gpu_kernel_t* own = kernel->plan;
    for (uint32_t a = 0; a < own->arg_count; a++) {
      const qn__ir_var_t* var = kernel->nodes[a].var;
      if (!var) continue;
      int64_t value = own->args[a].kind == QN_GPU_ARG_LOCAL ? locals[own->args[a].index]
                                                            : (int64_t)words[own->args[a].index];
      if (var->dtype == QN_DTYPE_I32) value = (int32_t)value;
      bool is_narrow = qn__gpu_is_narrow_var(kernel->widths, var);
      model.vars[var->id] = (value_t){value, is_narrow ? low(value) : value};
    }
    qn__ir_stmt_t root = *kernel->root;
    root.next = NULL;
    qn__ir_block_t block = {&root, &root};
    run_block(&model, &block);
    *inout_compared += model.compared;
    free(model.vars);
    count++;
  }
  return count;
}

// A symbol need not be small for a call to be: here it is the stride of one row. Shifted to the
// left it loses bits, and the sign that it had.
static void a_shift_that_loses_bits_counts_in_64_bits(void** state) {
  (void)state;
  static const char* const values[] = {"(t << 3) // 3", "((t << 3) >> 1) + i",
                                       "select((t << 3) < i, 1, 2)", "max(t << 4, i - 5)",
                                       "(t << 1) % 1000 + (t << 2 & 4095)"};
  long compared = 0;
  for (size_t i = 0; i < QN_COUNT_OF(values); i++) {
    for (int checked = 0; checked < 2; checked++) {
      text_t text = {.size = 0};
      put(&text,
          "func f(x: f32[1, m] strides [t, 1], out y: i64[m]) {\n"
          "  block.x i in 0..m { y[i] = %s; }\n}\n",
          values[i]);
      qn__gpu_lower_options_t options = lower_options();
      options.passes.is_checked = checked != 0;
      lowered_t lowered;
      assert_true(qn_ok(lower_text(text.data, &options, qn_allocator_default(), &lowered)));
      for (uint32_t bit = 0; bit < 63; bit++) {
        // In the order that the symbols are met.
        uint64_t words[4] = {0, 0, 5, UINT64_C(1) << bit};
        (void)run_launches(&lowered, words, checked != 0, &compared);
      }
      lowered_release(&lowered);
    }
  }
  assert_true(compared > 500);
}

static void narrow_arithmetic_is_that_of_64_bits(void** state) {
  (void)state;
  long narrow = 0, compared = 0, programs = 0;
  for (uint64_t round = 0; round < 3000; round++) {
    seed = round * 977 + 5;
    text_t text;
    make_program(&text);
    qn__gpu_lower_options_t options = lower_options();
    options.passes.is_checked = chance(4) == 0;
    lowered_t lowered;
    qn_status_t status = lower_text(text.data, &options, qn_allocator_default(), &lowered);
    if (!qn_ok(status)) {
      // Constants may make a program that the verifier refuses.
      qn_status_free(status);
      continue;
    }
    programs++;
    for (int call = 0; call < 12; call++) {
      uint64_t words[6] = {0, (uint64_t)random_scalar(), (uint64_t)random_scalar(),
                           0, (uint64_t)random_extent(), (uint64_t)random_extent()};
      narrow += run_launches(&lowered, words, options.passes.is_checked, &compared);
    }
    lowered_release(&lowered);
  }
  assert_true(programs > 1000 && narrow > 1500 && compared > 20000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_shift_that_loses_bits_counts_in_64_bits),
      cmocka_unit_test(narrow_arithmetic_is_that_of_64_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
