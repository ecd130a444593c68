// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_atomic.c: prints atomic statements.
//
// 1. On a thread's own memory an atomic is a plain load and store.
// 2. Elsewhere the dialect prints it: as one instruction, or as a loop of compare-and-swap on a
// word
//    that holds the element (qn__kprint_swap_loop).
// 3. Failed threads change nothing (print_alive.c).
#include "jit/gpu/print_inner.h"

const char* qn__kprint_atomic_next(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* old,
                                   const char* operand, const char* operand2) {
  qn_dtype_t dtype = stmt->atomic.buffer->dtype;
  switch (stmt->atomic.op) {
    case QN_ATOMIC_ADD:
      return qn__kprint_step(p, QN_OP_ADD, dtype, false, old, operand);
    case QN_ATOMIC_MIN:
      return qn__kprint_step(p, QN_OP_MIN, dtype, false, old, operand);
    case QN_ATOMIC_MAX:
      return qn__kprint_step(p, QN_OP_MAX, dtype, false, old, operand);
    case QN_ATOMIC_AND:
      return qn__kprint_text(p, "(%s & %s)", old, operand);
    case QN_ATOMIC_OR:
      return qn__kprint_text(p, "(%s | %s)", old, operand);
    case QN_ATOMIC_XOR:
      return qn__kprint_text(p, "(%s ^ %s)", old, operand);
    case QN_ATOMIC_CAS:
      return qn__kprint_text(p, "(%s == %s ? %s : %s)", old, operand, operand2, old);
    case QN_ATOMIC_EXCHANGE:
    case QN_ATOMIC_STORE:
      return operand;
    case QN_ATOMIC_LOAD:
      break;
  }
  return old;
}

void qn__kprint_swap_loop(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt,
                          const qn__gpu_swap_t* swap, const char* operand, const char* operand2,
                          const char* old) {
  const char* type = qn__kprint_type(stmt->atomic.buffer->dtype, false);
  operand = qn__kprint_name(p, type, operand);
  if (operand2) operand2 = qn__kprint_name(p, type, operand2);
  const char* expected = qn__kprint_temp(p);
  qn__kprint_line(p, "%s %s = %s;", swap->word_type, expected, swap->first);
  qn__kprint_open(p, "for (;;)");
  const char* before = qn__kprint_name(p, type, swap->value_of(p, swap, expected));
  const char* next = qn__kprint_atomic_next(p, stmt, before, operand, operand2);
  const char* wanted =
      qn__kprint_name(p, swap->word_type, swap->word_with(p, swap, expected, next));
  const char* found = qn__kprint_temp(p);
  qn__kprint_line(p, "const %s %s = %s(%s, %s, %s);", swap->word_type, found, swap->function,
                  swap->word, expected, wanted);
  qn__kprint_line(p, "if (%s == %s) break;", found, expected);
  qn__kprint_line(p, "%s = %s;", expected, found);
  qn__kprint_close(p);
  if (old) {
    qn__kprint_line(p, "const %s %s = %s;", type, old, swap->value_of(p, swap, expected));
  }
}

static void print_local(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt,
                        const qn__ir_buffer_t* root, const char* index, const char* operand,
                        const char* operand2, const char* old) {
  const char* type = qn__kprint_type(root->dtype, false);
  if (!old) old = qn__kprint_temp(p);
  index = qn__kprint_array_index(p, qn__kprint_name(p, qn__kprint_index_type(p), index));
  const char* name = qn__kprint_buffer(p, root);
  qn__kprint_line(p, "const %s %s = %s[%s];", type, old, name, index);
  qn__kprint_line(p, "%s[%s] = %s;", name, index,
                  qn__kprint_atomic_next(p, stmt, old, operand, operand2));
}

// Opens an `if` that excludes failed threads. The old value of an atomic is declared before it, as
// 0, and assigned at its end; returns the name of the value inside.
static const char* begin_predicated(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* old) {
  const char* inner = old ? qn__kprint_temp(p) : NULL;
  if (old) {
    const char* zero = qn__kprint_literal(p, dtype, false, (qn__ir_scalar_t){0});
    qn__kprint_line(p, "%s %s = %s;", qn__kprint_type(dtype, false), old, zero);
  }
  qn__kprint_open(p, "if (qn_alive)");
  return inner;
}

static void end_predicated(qn__gpu_printer_t* p, const char* old, const char* inner) {
  if (old) qn__kprint_line(p, "%s = %s;", old, inner);
  qn__kprint_close(p);
}

void qn__kprint_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* root;
  const qn__ir_var_t* result = stmt->atomic.result;
  const qn__ir_expr_t *first = stmt->atomic.operand, *second = stmt->atomic.operand2;
  const char* index = qn__kprint_index(p, stmt->atomic.buffer, stmt->atomic.indices, &root);
  const char* operand = first ? qn__kprint_value(p, first, false) : NULL;
  const char* operand2 = second ? qn__kprint_value(p, second, false) : NULL;
  bool is_narrow = result && qn__kprint_is_narrow_var(p, result);
  const char* old = !result ? NULL : is_narrow ? qn__kprint_temp(p) : qn__kprint_var(p, result);
  const char* given = p->is_predicated ? begin_predicated(p, root->dtype, old) : old;
  if (root->scope == QN__SCOPE_LOCAL) {
    print_local(p, stmt, root, index, operand, operand2, given);
  } else {
    p->is_ordered |= qn__stmt_orders_memory(stmt);
    p->dialect->atomic(p, stmt, index, operand, operand2, given);
  }
  if (p->is_predicated) end_predicated(p, old, given);
  if (is_narrow) {
    const char* narrow = qn__kprint_var(p, result);
    qn__kprint_line(p, "const int %s = int(%s);", narrow, old);
  }
}
