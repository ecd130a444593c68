// SPDX-License-Identifier: Apache-2.0
// ir/printer_several.c: reductions of several values and scans as canonical text.
#include "ir/printer.h"

static void print_names(qn__printer_t* p, qn__ir_var_t* const* vars, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    qn__buffer_format(p->out, "%s%s", i > 0 ? ", " : "", qn__print_name(p, vars[i], vars[i]->name));
  }
}

static void declare_names(qn__printer_t* p, qn__ir_var_t* const* vars, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) qn__print_declare(p, vars[i], vars[i]->name, "v");
}

// Prints the expressions of a list. Those after "{" decide their dtypes themselves, as a let does;
// others have those of `values`.
static void print_list(qn__printer_t* p, qn__ir_expr_t* const* exprs, uint32_t count,
                       bool is_deciding) {
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) qn__buffer_cstr(p->out, ", ");
    qn__print_expr(p, exprs[i], is_deciding ? qn__print_default(exprs[i]) : exprs[i]->dtype, 0);
  }
}

// Prints " { lets exprs }".
static void print_body(qn__printer_t* p, const qn__ir_block_t* lets, qn__ir_expr_t* const* exprs,
                       uint32_t count, bool is_deciding) {
  char gap = lets->first && p->arena ? '\n' : ' ';
  qn__buffer_cstr(p->out, " {");
  qn__buffer_char(p->out, gap);
  for (const qn__ir_stmt_t* let = lets->first; let; let = let->next) {
    qn__print_let(p, let);
    qn__buffer_char(p->out, gap);
  }
  print_list(p, exprs, count, is_deciding);
  qn__buffer_cstr(p->out, " }");
}

// Prints from the word that begins it to the values. Their scope stays open.
static void print_values(qn__printer_t* p, const qn__ir_several_t* several) {
  qn__buffer_t* out = p->out;
  qn__print_declare(p, several->var, several->var->name, "i");
  qn__buffer_format(out, "%s %s in ", qn__several_text(several->kind),
                    qn__print_name(p, several->var, several->var->name));
  qn__print_expr(p, several->begin, QN_DTYPE_I64, 0);
  qn__buffer_cstr(out, "..");
  qn__print_expr(p, several->end, QN_DTYPE_I64, 0);
  print_body(p, &several->lets, several->values, several->count, true);
}

// Prints from `from` to the combined values.
static void print_combiner(qn__printer_t* p, const qn__ir_several_t* several) {
  qn__buffer_t* out = p->out;
  qn__buffer_cstr(out, " from (");
  print_list(p, several->initial, several->merged_count, false);
  qn__printed_name_t* outer = p->block;
  p->block = NULL;
  declare_names(p, several->left, several->merged_count);
  declare_names(p, several->right, several->merged_count);
  qn__buffer_cstr(out, ") with (");
  print_names(p, several->left, several->merged_count);
  qn__buffer_cstr(out, "), (");
  print_names(p, several->right, several->merged_count);
  qn__buffer_char(out, ')');
  print_body(p, &several->merge_lets, several->merged, several->merged_count, false);
  qn__print_close_names(p, outer);
}

// Prints a scan. Its variable has one name, which the combiner does not use for another one.
static void print_scan(qn__printer_t* p, const qn__ir_several_t* several) {
  qn__printed_name_t* outer = p->block;
  p->block = NULL;
  print_values(p, several);
  print_combiner(p, several);
  declare_names(p, several->results, several->result_count);
  qn__buffer_cstr(p->out, " as (");
  print_names(p, several->results, several->result_count);
  qn__buffer_cstr(p->out, ") {");
  qn__print_lines(p, &several->body);
  qn__print_close_names(p, outer);
}

void qn__print_several(qn__printer_t* p, const qn__ir_several_t* several) {
  if (qn__several_is_scan(several->kind)) {
    print_scan(p, several);
    return;
  }
  // The results are declared after the reduction, but their names must be chosen before.
  declare_names(p, several->results, several->result_count);
  qn__buffer_cstr(p->out, "let ");
  print_names(p, several->results, several->result_count);
  qn__buffer_cstr(p->out, " = ");
  qn__printed_name_t* outer = p->block;
  p->block = NULL;
  print_values(p, several);
  qn__print_close_names(p, outer);
  if (several->merged_count > 0) print_combiner(p, several);
  qn__buffer_char(p->out, ';');
}
