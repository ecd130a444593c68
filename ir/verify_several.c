// SPDX-License-Identifier: Apache-2.0
// ir/verify_several.c: checks reductions of several values, and scans.
#include "ir/verifier.h"

static bool is_no_exchange(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)walker;
  return !qn__expr_is_exchange(expr);
}

static bool lacks_part(const qn__ir_several_t* several) {
  if (!several || !qn__several_text(several->kind)) return true;
  bool has_merge = qn__several_has_combiner(several->kind);
  return several->count == 0 || several->count > (has_merge ? QN__LARGEST_VALUES : 1) ||
         several->merged_count != (has_merge ? several->count : 0) ||
         several->result_count != (has_merge ? several->count : 2) || !several->var ||
         several->var->kind != QN__VAR_REDUCE || several->var->dtype != QN_DTYPE_I64;
}

// Checks a variable that has the dtype of a value, and declares it.
static void declare(qn__verifier_t* v, const qn__ir_stmt_t* stmt, const qn__ir_var_t* var,
                    qn_dtype_t dtype) {
  if (!var || var->kind != QN__VAR_LET || var->dtype != dtype) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL,
                           "a name of a reduction of several values is not %s",
                           qn_dtype_text(dtype));
    return;
  }
  (void)qn__verify_declare(v, var, var->name, var->loc);
}

// Checks that expressions have the dtypes of the values.
static void check_dtypes(qn__verifier_t* v, const qn__ir_several_t* several,
                         qn__ir_expr_t* const* exprs, const char* what) {
  for (uint32_t i = 0; i < several->count; i++) {
    qn_dtype_t dtype = several->values[i]->dtype;
    if (exprs[i]->dtype == dtype) continue;
    (void)qn__verify_error(v, QN__VERIFY_VALUE, exprs[i]->loc, NULL,
                           "%s of value %" PRIu32 " is %s, the value is %s", what, i + 1,
                           qn_dtype_text(exprs[i]->dtype), qn_dtype_text(dtype));
  }
}

static void check_values(qn__verifier_t* v, const qn__ir_several_t* several) {
  for (uint32_t i = 0; i < several->count; i++) {
    const qn__ir_expr_t* value = several->values[i];
    bool is_number = qn__dtype_is_int(value->dtype) || qn__dtype_is_float(value->dtype);
    if (is_number || (value->dtype == QN_DTYPE_BOOL && several->merged_count > 0)) continue;
    (void)qn__verify_error(
        v, QN__VERIFY_OPERAND, value->loc,
        value->dtype == QN_DTYPE_BOOL ? "convert it, as in i32(...)" : "convert it, as in f32(...)",
        "'%s' reduces %s", qn__several_text(several->kind), qn_dtype_text(value->dtype));
  }
}

// Checks lets and expressions that follow them in the open scope.
static void verify_body(qn__verifier_t* v, const qn__ir_stmt_t* stmt, const qn__ir_block_t* lets,
                        qn__ir_expr_t* const* exprs, uint32_t count) {
  if (!qn__verify_enter(v, stmt->loc)) return;
  qn__verify_stmts(v, lets, true);
  (void)qn__verify_exprs(v, exprs, count);
  qn__verify_leave(v);
}

static void check_exchanges(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  qn__ir_stmt_t alone = *stmt;
  alone.next = NULL;
  qn__ir_block_t block = {&alone, &alone};
  qn__ir_walker_t walker = {.on_expr = is_no_exchange};
  if (qn__walk_block(&walker, &block)) return;
  (void)qn__verify_error(
      v, QN__VERIFY_REDUCTION, stmt->loc, "use a loop", "an exchange among threads inside of %s",
      qn__several_is_scan(stmt->several->kind) ? "a scan" : "a reduction of several values");
}

static void declare_results(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__ir_several_t* several = stmt->several;
  for (uint32_t i = 0; i < several->result_count; i++) {
    declare(v, stmt, several->results[i], qn__several_result_dtype(several, i));
  }
}

// Verifies the body of a scan. `var` is the declaration of its variable, which the scope of the
// values had before.
static void verify_scan_body(qn__verifier_t* v, const qn__ir_stmt_t* stmt, qn__verify_decl_t* var) {
  qn__verify_place_t place = {.outer = v->place, .stmt = stmt};
  v->place = &place;
  qn__verify_decl_t* outer = qn__verify_open_scope(v);
  if (var) {
    var->is_open = true;
    var->next = v->scope;
    v->scope = var;
  }
  declare_results(v, stmt);
  qn__verify_block(v, &stmt->several->body);
  qn__verify_close_scope(v, outer);
  v->place = place.outer;
}

void qn__verify_several(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__ir_several_t* several = stmt->several;
  if (lacks_part(several)) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL,
                           "a reduction of several values lacks a part");
    return;
  }
  uint32_t errors = v->error_count;
  bool is_scan = qn__several_is_scan(several->kind);
  (void)qn__verify_i64(v, several->begin,
                       is_scan ? "the begin of a scan" : "the begin of a reduction");
  (void)qn__verify_i64(v, several->end, is_scan ? "the end of a scan" : "the end of a reduction");
  (void)qn__verify_exprs(v, several->initial, several->merged_count);
  qn__verify_decl_t* outer = qn__verify_open_scope(v);
  qn__verify_decl_t* var =
      qn__verify_declare(v, several->var, several->var->name, several->var->loc);
  verify_body(v, stmt, &several->lets, several->values, several->count);
  qn__verify_close_scope(v, outer);
  if (v->error_count != errors) return;
  check_values(v, several);
  if (several->merged_count > 0) {
    check_dtypes(v, several, several->initial, "the initial value");
    outer = qn__verify_open_scope(v);
    for (uint32_t i = 0; i < several->count; i++) {
      declare(v, stmt, several->left[i], several->values[i]->dtype);
      declare(v, stmt, several->right[i], several->values[i]->dtype);
    }
    verify_body(v, stmt, &several->merge_lets, several->merged, several->count);
    qn__verify_close_scope(v, outer);
    if (v->error_count != errors) return;
    check_dtypes(v, several, several->merged, "the combined value");
  }
  if (is_scan) {
    verify_scan_body(v, stmt, var);
    if (v->error_count != errors) return;
  } else {
    declare_results(v, stmt);
  }
  check_exchanges(v, stmt);
}
