// SPDX-License-Identifier: Apache-2.0
// jit/gpu/glsl_check.c: refuses values of types that the target lacks, before the compiler does.
//
// These are 64-bit integers that are not proven to fit 32 bits, and doubles. glsl_memory.c checks
// the types of storage.
#include "jit/gpu/glsl.h"
#include "jit/plan/needs.h"

typedef struct glsl_search {
  qn__gpu_printer_t* p;
  qn_dtype_t dtype;  // the first one that the target lacks; NONE: none was found
  const char* name;  // of the variable or buffer; NULL: a nameless value
} glsl_search_t;

static bool has_dtype(const qn__gpu_printer_t* p, qn_dtype_t dtype, bool is_narrow) {
  if (dtype == QN_DTYPE_I64) return is_narrow || p->options->has_int64;
  if (dtype == QN_DTYPE_U64) return p->options->has_int64;
  return dtype != QN_DTYPE_F64 || p->options->has_float64;
}

static bool meet(glsl_search_t* search, qn_dtype_t dtype, bool is_narrow, const char* name) {
  if (has_dtype(search->p, dtype, is_narrow)) return true;
  search->dtype = dtype;
  search->name = name;
  return false;
}

static bool check_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  glsl_search_t* search = walker->self;
  const qn__ir_var_t* var = stmt->kind == QN__STMT_LET    ? stmt->let.var
                            : stmt->kind == QN__STMT_LOOP ? stmt->loop.var
                                                          : NULL;
  if (var) return meet(search, var->dtype, qn__kprint_is_narrow_var(search->p, var), var->name);
  if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope != QN__SCOPE_VIEW) {
    return meet(search, stmt->alloc.buffer->dtype, false, stmt->alloc.buffer->name);
  }
  return true;
}

static bool check_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  glsl_search_t* search = walker->self;
  // A bit cast from i64 to f64 has a 64-bit integer as its operand.
  if (expr->kind == QN__EXPR_BITCAST && expr->dtype == QN_DTYPE_F64 &&
      !meet(search, QN_DTYPE_I64, expr->args[0]->dtype == QN_DTYPE_F64, NULL)) {
    return false;
  }
  // A literal that fits 32 bits is printed in the width of the expression around it.
  bool is_narrow = qn__kprint_is_narrow(search->p, expr) ||
                   (expr->kind == QN__EXPR_INT && qn__gpu_is_within_32_bits(expr->int_value));
  const char* name = expr->kind == QN__EXPR_LOAD  ? expr->load.buffer->name
                     : expr->kind == QN__EXPR_VAR ? expr->var->name
                                                  : NULL;
  return meet(search, expr->dtype, is_narrow, name);
}

void qn__glsl_check_types(qn__gpu_printer_t* p) {
  glsl_search_t search = {.p = p};
  qn__ir_walker_t walker = {check_stmt, check_expr, &search};
  if (qn__walk_block(&walker, &p->kernel->root->loop.body)) return;
  const char* option = search.dtype == QN_DTYPE_F64 ? "supports_float64" : "supports_int64";
  if (search.name) {
    qn__kprint_unsupported(p, "'%s' is %s, which this target cannot (option %s)", search.name,
                           qn_dtype_text(search.dtype), option);
  } else {
    qn__kprint_unsupported(p, "a value is %s, which this target cannot (option %s)",
                           qn_dtype_text(search.dtype), option);
  }
}
