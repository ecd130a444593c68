// SPDX-License-Identifier: Apache-2.0
// jit/call/signature.c: checks that a variant from another module takes the arguments of a
// function. See plan.h.
//
// The functions are compared by their parameters, in order, without names. A variant that requires
// more than the wanted function would refuse valid calls. If the signatures show that, the variant
// is refused. If only a call's arguments can show it (an expression, two symbols that must be
// equal), single calls are.
#include <stdarg.h>
#include <stdio.h>

#include "jit/call/plan.h"

// Holds the values of the variant's symbols that are known, because the wanted extents are fixed.
typedef struct check {
  const qn__ir_func_t* wanted;
  const qn__ir_func_t* variant;
  uint32_t param;
  const char* param_name;
  bool is_known[QN__MAX_WORDS];
  int64_t values[QN__MAX_WORDS];
} check_t;

static qn_status_t differs(const check_t* c, const char* format, ...) QN_PRINTF(2, 3);
static qn_status_t differs(const check_t* c, const char* format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "function '%s': the generic one does not take the same arguments: "
                        "parameter %u '%s': %s",
                        c->wanted->name, c->param, c->param_name, text);
}

static uint32_t symbol_of(const qn__ir_func_t* function, const qn__ir_var_t* var) {
  uint32_t i = 0;
  while (i < function->symbol_count && function->symbols[i] != var) i++;
  return i;
}

static qn_status_t check_dim(check_t* c, const char* what, uint32_t d, const qn__ir_expr_t* wanted,
                             const qn__ir_expr_t* variant) {
  bool is_fixed = wanted->kind == QN__EXPR_INT;
  if (variant->kind == QN__EXPR_INT) {
    if (is_fixed && wanted->int_value == variant->int_value) return QN_OK;
    return differs(c, "%s %u is fixed to %" PRId64, what, d, variant->int_value);
  }
  if (variant->kind != QN__EXPR_VAR || !is_fixed) return QN_OK;
  uint32_t symbol = symbol_of(c->variant, variant->var);
  if (symbol >= c->variant->symbol_count || symbol >= QN__MAX_WORDS) return QN_OK;
  if (c->is_known[symbol] && c->values[symbol] != wanted->int_value) {
    return differs(c, "%s %u is '%s', which is %" PRId64 " before and %" PRId64 " here", what, d,
                   variant->var->name, c->values[symbol], wanted->int_value);
  }
  c->is_known[symbol] = true;
  c->values[symbol] = wanted->int_value;
  return QN_OK;
}

static qn_status_t check_buffer(check_t* c, const qn__ir_buffer_t* wanted,
                                const qn__ir_buffer_t* variant) {
  if (wanted->dtype != variant->dtype) {
    return differs(c, "expected dtype %s, got %s", qn_dtype_text(wanted->dtype),
                   qn_dtype_text(variant->dtype));
  }
  if (wanted->rank != variant->rank) {
    return differs(c, "expected rank %u, got %u", wanted->rank, variant->rank);
  }
  if (wanted->access != variant->access) {
    return differs(c, "expected access '%s', got '%s'", qn__access_text(wanted->access),
                   qn__access_text(variant->access));
  }
  if (variant->align_bytes > wanted->align_bytes) {
    return differs(c, "expected an alignment of at most %u bytes, got %u", wanted->align_bytes,
                   variant->align_bytes);
  }
  if (wanted->strides && !variant->strides) return differs(c, "expected strides, got none");
  for (uint32_t d = 0; d < wanted->rank; d++) {
    QN_TRY(check_dim(c, "extent", d, wanted->shape[d], variant->shape[d]));
    // Row-major strides follow from the extents, so each call checks them.
    if (!wanted->strides) continue;
    QN_TRY(check_dim(c, "stride", d, wanted->strides[d], variant->strides[d]));
  }
  return QN_OK;
}

static qn_status_t check_param(check_t* c, const qn__ir_param_t* wanted,
                               const qn__ir_param_t* variant) {
  if (!wanted->buffer != !variant->buffer) {
    return differs(c, "expected %s",
                   wanted->buffer ? "a buffer, got a scalar" : "a scalar, got a buffer");
  }
  if (wanted->buffer) return check_buffer(c, wanted->buffer, variant->buffer);
  const qn__ir_var_t *a = wanted->scalar, *b = variant->scalar;
  if (a->dtype != b->dtype) {
    return differs(c, "expected dtype %s, got %s", qn_dtype_text(a->dtype),
                   qn_dtype_text(b->dtype));
  }
  if (!b->is_fixed || (a->is_fixed && a->fixed_value == b->fixed_value)) return QN_OK;
  return differs(c, "it is fixed to %" PRId64, b->fixed_value);
}

qn_status_t qn__signature_check(const qn__ir_func_t* wanted, const qn__ir_func_t* variant) {
  if (wanted->param_count != variant->param_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "function '%s': the generic one does not take the same arguments: "
                          "expected %zu parameters, got %zu",
                          wanted->name, wanted->param_count, variant->param_count);
  }
  check_t c;
  memset(&c, 0, sizeof c);
  c.wanted = wanted;
  c.variant = variant;
  for (size_t i = 0; i < wanted->param_count; i++) {
    const qn__ir_param_t* param = &wanted->params[i];
    c.param = (uint32_t)i;
    c.param_name = param->buffer ? param->buffer->name : param->scalar->name;
    QN_TRY(check_param(&c, param, &variant->params[i]));
  }
  return QN_OK;
}
