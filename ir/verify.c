// SPDX-License-Identifier: Apache-2.0
// ir/verify.c: the verifier's driver: messages, functions, parameters, names.
//
// Not here: checks inside a body (verifier.h lists their files).
#include <assert.h>

#include "ir/verify.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/map.h"
#include "ir/equation.h"
#include "ir/lexer.h"
#include "ir/specialize.h"
#include "ir/verifier.h"

enum { LARGEST_ALIGN_BYTES = 4096, LOWERED_NESTING = 4 * QN__LARGEST_NESTING };

// ------------------------------------------------------------------------------------ messages

static const char* code_text(qn__verify_code_t code) {
  static const char* const codes[] = {
#define QN_VERIFY_CODE(name, text, doc) text,
#include "ir/verify_codes.inc"
#undef QN_VERIFY_CODE
  };
  assert((size_t)code < QN_COUNT_OF(codes));
  return codes[code];
}

bool qn__verify_error(qn__verifier_t* v, qn__verify_code_t code, qn__ir_loc_t loc, const char* help,
                      const char* format, ...) {
  v->error_count++;
  if (qn__verify_stopped(v)) return false;
  char message[400];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(message, sizeof message, format, arguments) < 0) message[0] = '\0';
  va_end(arguments);
  // Without a place in a text, name the function.
  bool has_place = loc.size > 0 && v->diag->source.size > 0;
  bool is_named = !has_place && v->function && v->function->name;
  qn__diag_report(v->diag, QN_SEVERITY_ERROR, code_text(code), loc, help, "%s%s%s%s",
                  is_named ? "function '" : "", is_named ? v->function->name : "",
                  is_named ? "': " : "", message);
  return false;
}

void qn__verify_note(qn__verifier_t* v, qn__ir_loc_t loc, const char* format, ...) {
  if (loc.size == 0 || v->has_failed) return;
  va_list arguments;
  va_start(arguments, format);
  qn__diag_report_list(v->diag, QN_SEVERITY_NOTE, "", loc, NULL, format, arguments);
  va_end(arguments);
}

void qn__verify_out_of_memory(qn__verifier_t* v) {
  v->has_failed = true;
}

bool qn__verify_visit(qn__verifier_t* v, const void* node, qn__ir_loc_t loc) {
  // The map is used as a set: any value but NULL marks a member.
  if (qn__ptrmap_get(&v->seen, node)) {
    return qn__verify_error(v, QN__VERIFY_MALFORMED, loc, NULL, "one node is used in two places");
  }
  if (!qn__ptrmap_put(&v->seen, node, v)) qn__verify_out_of_memory(v);
  return !v->has_failed;
}

bool qn__verify_enter(qn__verifier_t* v, qn__ir_loc_t loc) {
  uint32_t limit = v->is_lowered ? LOWERED_NESTING : QN__LARGEST_NESTING;
  if (v->depth >= limit) {
    return qn__verify_error(v, QN__VERIFY_NESTING, loc, "use a let for the inner part",
                            "nesting is deeper than %" PRIu32 " levels", limit);
  }
  v->depth++;
  return true;
}

void qn__verify_leave(qn__verifier_t* v) {
  assert(v->depth > 0);
  v->depth--;
}

// ------------------------------------------------------------------------------------ names

// Checks the name of a function, parameter or symbol, which is part of the canonical bytes and the
// text.
static void check_name(qn__verifier_t* v, qn__map_t* names, const char* name, const char* what,
                       qn__ir_loc_t loc) {
  if (!name || !qn__text_is_name(qn__str(name))) {
    (void)qn__verify_error(v, QN__VERIFY_NAME, loc, "a letter or '_', then letters, digits and '_'",
                           "'%s' cannot be the name of %s", name ? name : "", what);
    return;
  }
  if (qn__map_get(names, qn__str(name))) {
    (void)qn__verify_error(v, QN__VERIFY_TWICE, loc, "choose another name",
                           "two %ss are named '%s'", what[0] == 'a' ? what + 2 : what, name);
    return;
  }
  // The map is used as a set.
  if (!qn__map_put(names, qn__str(name), names)) qn__verify_out_of_memory(v);
}

// ------------------------------------------------------------------------------------ parameters

// Checks an extent of a parameter: the host must be able to compute it from shapes and scalars.
static bool is_param_expr(qn__verifier_t* v, qn__ir_expr_t* expr) {
  const char* problem = "the shape of a parameter depends on more than symbols and scalars";
  if (qn__verify_is_host(v, expr) && !qn__expr_has_target(expr)) return true;
  if (qn__expr_has_target(expr)) problem = "the shape of a parameter depends on the target";
  return qn__verify_error(v, QN__VERIFY_PARAM_SHAPE, expr->loc,
                          "use symbols, integer scalars of the function and literals", "%s",
                          problem);
}

static void check_param_extents(qn__verifier_t* v, qn__ir_expr_t* const* extents, uint32_t rank,
                                const char* what) {
  for (uint32_t i = 0; i < rank; i++) {
    qn__ir_scalar_t value;
    if (!is_param_expr(v, extents[i]) || !qn__expr_fold(extents[i], &value)) continue;
    if (value.i < 0) {
      (void)qn__verify_error(v, QN__VERIFY_PARAM_SHAPE, extents[i]->loc, NULL,
                             "%s %" PRIu32 " is %" PRId64 ", less than 0", what, i, value.i);
    }
  }
}

static void check_buffer_param(qn__verifier_t* v, const qn__ir_buffer_t* buffer) {
  if (buffer->scope != QN__SCOPE_PARAM || !qn__access_text(buffer->access)) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, buffer->loc, NULL,
                           "parameter '%s' has no access of a parameter", buffer->name);
    return;
  }
  uint32_t errors = v->error_count;
  if (!qn__verify_buffer(v, buffer)) return;
  (void)qn__verify_declare(v, buffer, buffer->name, buffer->loc);
  if (v->error_count != errors) return;
  check_param_extents(v, buffer->shape, buffer->rank, "extent");
  if (buffer->strides) check_param_extents(v, buffer->strides, buffer->rank, "stride");
  uint32_t align = buffer->align_bytes;
  size_t size_bytes = qn_dtype_size_bytes(buffer->dtype);
  if ((align & (align - 1)) != 0 || align < size_bytes || align > LARGEST_ALIGN_BYTES) {
    (void)qn__verify_error(v, QN__VERIFY_ALIGN, buffer->loc, NULL,
                           "parameter '%s' asks for an alignment of %" PRIu32
                           " bytes; it must be a power of two from %zu to %d",
                           buffer->name, align, size_bytes, LARGEST_ALIGN_BYTES);
  }
}

static void check_param_names(qn__verifier_t* v, const qn__ir_func_t* function) {
  qn__map_t names;
  qn__map_init(&names, v->scratch.allocator);
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_param_t* param = &function->params[i];
    check_name(v, &names, qn__param_name(param), "a parameter",
               param->buffer ? param->buffer->loc : param->scalar->loc);
  }
  for (size_t i = 0; i < function->symbol_count; i++) {
    const qn__ir_var_t* symbol = function->symbols[i];
    check_name(v, &names, symbol->name, "a symbol", symbol->loc);
  }
  qn__map_deinit(&names);
}

static void declare_host(qn__verifier_t* v, const qn__ir_var_t* var) {
  qn__verify_decl_t* decl = qn__verify_declare(v, var, var->name, var->loc);
  if (decl) decl->is_host = true;
}

// Checks the parameters. Declares symbols and scalars first, since any shape may use them.
static void check_params(qn__verifier_t* v, const qn__ir_func_t* function) {
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_param_t* param = &function->params[i];
    if (!param->buffer == !param->scalar) {
      (void)qn__verify_error(v, QN__VERIFY_MALFORMED, function->loc, NULL,
                             "parameter %zu must be a buffer or a scalar", i);
      return;
    }
  }
  check_param_names(v, function);
  for (size_t i = 0; i < function->symbol_count; i++) {
    const qn__ir_var_t* symbol = function->symbols[i];
    if (symbol->kind != QN__VAR_SYMBOL || symbol->dtype != QN_DTYPE_I64) {
      (void)qn__verify_error(v, QN__VERIFY_MALFORMED, symbol->loc, NULL,
                             "symbol '%s' is not an i64", symbol->name);
    }
    declare_host(v, symbol);
  }
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_var_t* scalar = function->params[i].scalar;
    if (!scalar) continue;
    if (scalar->kind != QN__VAR_SCALAR || qn_dtype_size_bytes(scalar->dtype) == 0) {
      (void)qn__verify_error(v, QN__VERIFY_MALFORMED, scalar->loc, NULL, "scalar '%s' has no dtype",
                             scalar->name);
    }
    if (qn__dtype_is_stored(scalar->dtype)) {
      (void)qn__verify_error(v, QN__VERIFY_STORED_SCALAR, scalar->loc, "pass it as f32 or i32",
                             "scalar '%s' is %s, which only buffers hold", scalar->name,
                             qn_dtype_text(scalar->dtype));
    }
    if (scalar->is_fixed && !qn__constant_fits(scalar->dtype, scalar->fixed_value)) {
      (void)qn__verify_error(v, QN__VERIFY_LITERAL, scalar->loc, NULL,
                             "scalar '%s' of %s cannot be %" PRId64, scalar->name,
                             qn_dtype_text(scalar->dtype), scalar->fixed_value);
    }
    declare_host(v, scalar);
  }
  for (size_t i = 0; i < function->param_count; i++) {
    if (function->params[i].buffer) check_buffer_param(v, function->params[i].buffer);
  }
}

// ------------------------------------------------------------------------------------ symbols

typedef struct symbol_order {
  const qn__ir_func_t* function;
  qn__ptrmap_t appeared;
  size_t next;
  bool is_sorted;
  bool has_failed;
} symbol_order_t;

static bool note_symbol(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  symbol_order_t* order = walker->self;
  if (expr->kind != QN__EXPR_VAR || expr->var->kind != QN__VAR_SYMBOL) return true;
  if (qn__ptrmap_get(&order->appeared, expr->var)) return true;
  if (!qn__ptrmap_put(&order->appeared, expr->var, expr->var)) order->has_failed = true;
  if (order->next >= order->function->symbol_count ||
      order->function->symbols[order->next] != expr->var) {
    order->is_sorted = false;
  }
  order->next++;
  return true;
}

// Collects what stands alone as an extent or stride.
static bool collect_lone(const qn__ir_func_t* function, qn__ptrmap_t* lone) {
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    for (uint32_t part = 0; buffer && part < 2; part++) {
      qn__ir_expr_t* const* extents = part == 0 ? buffer->shape : buffer->strides;
      for (uint32_t d = 0; extents && d < buffer->rank; d++) {
        if (extents[d]->kind != QN__EXPR_VAR) continue;
        if (!qn__ptrmap_put(lone, extents[d]->var, extents[d]->var)) return false;
      }
    }
  }
  return true;
}

// Checks that a call gives each symbol a value.
static void check_bound(qn__verifier_t* v, const qn__ir_func_t* function) {
  const size_t param_count = function->param_count, symbol_count = function->symbol_count;
  bool* is_known =
      qn__arena_alloc_array(&v->scratch, param_count + symbol_count + 1, sizeof *is_known);
  qn__ptrmap_t lone;
  qn__ptrmap_init(&lone, v->scratch.allocator);
  if (!is_known || !collect_lone(function, &lone)) {
    qn__ptrmap_deinit(&lone);
    qn__verify_out_of_memory(v);
    return;
  }
  for (size_t i = 0; i < param_count; i++) is_known[i] = true;
  for (size_t i = 0; i < symbol_count; i++) {
    is_known[param_count + i] = qn__ptrmap_get(&lone, function->symbols[i]) != NULL;
  }
  qn__ptrmap_deinit(&lone);
  qn__ir_equation_t equation;
  while (qn__equation_find(function, is_known, &equation)) {
    is_known[qn__word_of(function, equation.symbol)] = true;
  }
  for (size_t i = 0; i < symbol_count; i++) {
    const qn__ir_var_t* symbol = function->symbols[i];
    if (is_known[param_count + i]) continue;
    (void)qn__verify_error(
        v, QN__VERIFY_UNBOUND, symbol->loc,
        "let it be the whole extent or stride of some parameter, or pass it as a scalar",
        "symbol '%s' cannot be bound: it stands alone in no shape, and no extent can be solved for "
        "it",
        symbol->name);
  }
}

// Checks that the symbols are in the order of their first appearance; otherwise equal programs
// would have different bytes. Each must have a value in a call (equation.h).
static void check_symbols(qn__verifier_t* v, const qn__ir_func_t* function) {
  symbol_order_t order = {.function = function, .is_sorted = true};
  qn__ptrmap_init(&order.appeared, v->scratch.allocator);
  qn__ir_walker_t walker = {.on_expr = note_symbol, .self = &order};
  (void)qn__walk_extents(&walker, function);
  if (order.has_failed) qn__verify_out_of_memory(v);
  if (!order.is_sorted || order.next != function->symbol_count) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, function->loc, NULL,
                           "symbols are not in the order of their first appearance");
  }
  qn__ptrmap_deinit(&order.appeared);
  // Passes halve the extents of packed parameters, after the calls' checks were made.
  if (!v->has_failed && !v->is_lowered) check_bound(v, function);
}

// ------------------------------------------------------------------------------------ functions

static void verify_function(qn__verifier_t* v, const qn__ir_func_t* function) {
  uint32_t errors = v->error_count;
  v->function = function;
  v->depth = 0;
  v->local_bytes = 0;
  v->scope = NULL;
  v->lane_depth = 0;
  v->has_threads = false;
  qn__verify_place_t place = {.outer = NULL};
  v->place = &place;
  check_params(v, function);
  if (v->error_count == errors && !v->has_failed) check_symbols(v, function);
  qn__verify_block(v, &function->body);
  assert(v->depth == 0 && v->lane_depth == 0 && v->local_bytes == 0 && v->place == &place);
  if (v->error_count == errors && !v->has_failed) {
    qn__verify_uniform(v, function);
    // Passes never introduce races, so lowered bodies are not checked again.
    if (!v->is_lowered) qn__verify_races(v, function);
  }
  qn__verify_close_scope(v, NULL);
}

static bool verify(const qn__ir_body_t* body, qn__diag_t* diag, bool is_lowered) {
  qn_allocator_t allocator = body->arena.allocator;
  qn__verifier_t v = {.diag = diag, .body = body, .is_lowered = is_lowered};
  qn__arena_init(&v.scratch, allocator);
  qn__ptrmap_init(&v.seen, allocator);
  qn__ptrmap_init(&v.decls, allocator);
  qn__map_t names;
  qn__map_init(&names, allocator);
  size_t count = 0;
  for (const qn__ir_func_t* function = body->first; function && !qn__verify_stopped(&v);
       function = function->next) {
    if (!qn__verify_visit(&v, function, function->loc)) break;
    check_name(&v, &names, function->name, "a function", function->loc);
    verify_function(&v, function);
    count++;
  }
  v.function = NULL;
  if (v.error_count == 0 && !v.has_failed && count != body->function_count) {
    (void)qn__verify_error(&v, QN__VERIFY_MALFORMED, (qn__ir_loc_t){0, 0}, NULL,
                           "%zu functions are counted, %zu are there", body->function_count, count);
  }
  qn__map_deinit(&names);
  qn__ptrmap_deinit(&v.decls);
  qn__ptrmap_deinit(&v.seen);
  qn__arena_deinit(&v.scratch);
  if (v.has_failed) diag->text.has_failed = true;
  return v.error_count == 0 && !v.has_failed;
}

bool qn__body_verify(const qn__ir_body_t* body, qn__diag_t* diag) {
  return verify(body, diag, false);
}

qn_status_t qn__body_verify_status(const qn__ir_body_t* body, const char* what) {
  qn__diag_t diag;
  qn__diag_init(&diag, body->arena.allocator, NULL, "", QN_STR(""));
  (void)verify(body, &diag, true);
  qn_status_t status = qn__diag_status(&diag, QN_STATUS_INVALID_MODULE);
  qn__diag_deinit(&diag);
  return qn_status_annotate(status, "%s", what);
}
