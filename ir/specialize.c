// SPDX-License-Identifier: Apache-2.0
// ir/specialize.c: puts numbers in place of symbols and integer scalars.
//
// 1. The result is the module of the text with the numbers written in, byte for byte, so that it
//    has the digest and the keys of a module that is special by its text. So a conversion or a
//    negation of a number becomes a literal, as the parser reads f32(128) and -128, and nothing
//    else is computed: that is the work of compilers.
// 2. Extents of parameters are the exception: 2 * d + 1 becomes a number, because calls check
//    numbers faster than expressions.
// 3. A fixed symbol disappears. A fixed scalar stays a parameter, so that calls stay the same, and
//    each call must pass its value.
// 4. The body may come from the parser or the builder and need not be valid: the verifier reads the
//    result. That is why a local allocation may have an extent that is fixed here.
//
// Not here: sealing (module.c), the check of calls (jit/call).
#include "ir/specialize.h"

#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/buffer.h"
#include "ir/verify.h"

// ------------------------------------------------------------------------------------ values

void qn__constants_deinit(qn__constants_t* constants, qn_allocator_t allocator) {
  qn__free(allocator, constants->items, constants->capacity * sizeof *constants->items);
  *constants = (qn__constants_t){0};
}

qn_status_t qn__constants_add(qn__constants_t* constants, qn__arena_t* arena, qn_str_t name,
                              int64_t value) {
  for (size_t i = 0; i < constants->count; i++) {
    if (!qn__str_equal(qn__str(constants->items[i].name), name)) continue;
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%s' is set twice",
                          constants->items[i].name);
  }
  void* items = constants->items;
  const char* copy = qn__arena_cstr(arena, name);
  if (!copy || !qn__grow(arena->allocator, &items, &constants->capacity, constants->count + 1,
                         sizeof *constants->items)) {
    return qn__out_of_memory("the values of symbols");
  }
  constants->items = items;
  constants->items[constants->count++] = (qn__constant_t){copy, value};
  return QN_OK;
}

// Reads a whole number of `size` bytes.
static bool read_number(const char* text, size_t size, int64_t* out_value) {
  char digits[24];
  if (size == 0 || size >= sizeof digits) return false;
  memcpy(digits, text, size);
  digits[size] = '\0';
  char* end;
  errno = 0;
  *out_value = strtoll(digits, &end, 10);
  bool is_number = digits[0] == '-' || (digits[0] >= '0' && digits[0] <= '9');
  return is_number && *end == '\0' && errno == 0;
}

qn_status_t qn__constants_parse(qn__constants_t* constants, qn__arena_t* arena, const char* text) {
  while (text && *text) {
    size_t size = strcspn(text, ","), name_size = strcspn(text, "=");
    int64_t value;
    if (name_size == 0 || name_size >= size ||
        !read_number(text + name_size + 1, size - name_size - 1, &value)) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "set: expected NAME=NUMBER, with commas between, got '%.*s'",
                            (int)(size < 100 ? size : 100), text);
    }
    QN_TRY(qn__constants_add(constants, arena, (qn_str_t){text, name_size}, value));
    text += size + (text[size] == ',');
  }
  return QN_OK;
}

bool qn__constant_fits(qn_dtype_t dtype, int64_t value) {
  if (!qn__dtype_is_int(dtype)) return false;
  return dtype == QN_DTYPE_U64 ? value >= 0 : qn__wrap_int(dtype, value) == value;
}

// ------------------------------------------------------------------------------------ names

// Splits "attention.d"; `*out_function` is empty for all functions.
static qn_str_t split_name(const char* name, qn_str_t* out_function) {
  const char* dot = strchr(name, '.');
  *out_function = (qn_str_t){name, dot ? (size_t)(dot - name) : 0};
  return qn__str(dot ? dot + 1 : name);
}

static bool is_wanted(const qn__ir_func_t* function, qn_str_t wanted) {
  return wanted.size == 0 || qn__str_equal(qn__str(function->name), wanted);
}

static qn_status_t fix(qn__ir_var_t* var, const qn__ir_func_t* function, int64_t value) {
  if (var->kind == QN__VAR_SYMBOL && value < 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "'%s' of '%s' cannot be %" PRId64 ": extents and strides are at least 0",
                          var->name, function->name, value);
  }
  if (!qn__constant_fits(var->dtype, value)) {
    return qn_status_make(
        QN_STATUS_INVALID_ARGUMENT, "'%s' of '%s' cannot be %" PRId64 ": it is %s%s", var->name,
        function->name, value, qn_dtype_text(var->dtype),
        qn__dtype_is_int(var->dtype) ? "" : ", and only symbols and integer scalars can be set");
  }
  if (var->is_fixed && var->fixed_value != value) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "'%s' of '%s' cannot be %" PRId64 ": it is %" PRId64 " already",
                          var->name, function->name, value, var->fixed_value);
  }
  var->is_fixed = true;
  var->fixed_value = value;
  return QN_OK;
}

// Calls back for each symbol and scalar of the functions that `name` may mean.
typedef qn_status_t (*on_name_t)(void* self, qn__ir_func_t* function, qn__ir_var_t* var);
static qn_status_t each_name(qn__ir_body_t* body, qn_str_t wanted, on_name_t on_name, void* self) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    if (!is_wanted(function, wanted)) continue;
    for (size_t i = 0; i < function->symbol_count; i++) {
      QN_TRY(on_name(self, function, function->symbols[i]));
    }
    for (size_t i = 0; i < function->param_count; i++) {
      if (function->params[i].scalar) {
        QN_TRY(on_name(self, function, function->params[i].scalar));
      }
    }
  }
  return QN_OK;
}

typedef struct name_search {
  qn_str_t name;
  int64_t value;
  bool is_found;
  // For the message where none is found.
  const char* nearest;
  size_t distance;
  qn__buffer_t others;
} name_search_t;

static qn_status_t fix_named(void* self, qn__ir_func_t* function, qn__ir_var_t* var) {
  name_search_t* search = self;
  if (!qn__str_equal(qn__str(var->name), search->name)) return QN_OK;
  search->is_found = true;
  return fix(var, function, search->value);
}

static qn_status_t note_name(void* self, qn__ir_func_t* function, qn__ir_var_t* var) {
  (void)function;
  name_search_t* search = self;
  if (!qn__dtype_is_int(var->dtype)) return QN_OK;
  size_t distance = qn__edit_distance(qn__str(var->name), search->name, search->distance);
  if (distance < search->distance && search->name.size > 1) {
    search->distance = distance;
    search->nearest = var->name;
  }
  qn_str_t listed = qn__buffer_as_str(&search->others);
  if (listed.size < 200) {
    qn__buffer_format(&search->others, "%s'%s'", listed.size ? ", " : "", var->name);
  }
  return QN_OK;
}

static qn_status_t not_found(qn__ir_body_t* body, const char* full_name, qn_str_t wanted,
                             name_search_t* search) {
  const qn__ir_func_t* first = body->first;
  while (first && !is_wanted(first, wanted)) first = first->next;
  if (!first && wanted.size > 0) {
    return qn_status_make(QN_STATUS_NOT_FOUND,
                          "'%s' cannot be set: the module has no function "
                          "'%.*s'",
                          full_name, QN_STR_ARG(wanted));
  }
  // One typing error in a short name, two in a longer one.
  search->distance = search->name.size <= 3 ? 2 : 3;
  qn__buffer_init(&search->others, body->arena.allocator);
  (void)QN_NEVER(!qn_ok(each_name(body, wanted, note_name, search)));
  qn_str_t others = qn__buffer_as_str(&search->others);
  qn_status_t status = qn_status_make(
      QN_STATUS_NOT_FOUND, "'%s' cannot be set: no symbol or integer scalar has this name%s%.*s%s",
      full_name,
      search->nearest ? "; did you mean '"
      : others.size   ? "; there are "
                      : "",
      QN_STR_ARG(search->nearest ? qn__str(search->nearest) : others), search->nearest ? "'?" : "");
  qn__buffer_deinit(&search->others);
  return status;
}

static qn_status_t fix_constant(qn__ir_body_t* body, const qn__constant_t* constant) {
  qn_str_t wanted;
  name_search_t search = {.name = split_name(constant->name, &wanted), .value = constant->value};
  QN_TRY(each_name(body, wanted, fix_named, &search));
  return search.is_found ? QN_OK : not_found(body, constant->name, wanted, &search);
}

// ------------------------------------------------------------------------------------ literals

static bool is_fixed_var(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_VAR && expr->var->is_fixed;
}

// Returns whether an expression is a fixed variable, or a negation of one that the parser would
// read as one literal.
static bool fixed_value(const qn__ir_expr_t* expr, int64_t* out_value) {
  bool is_negated = expr->kind == QN__EXPR_OP && expr->op == QN_OP_NEG &&
                    qn__dtype_is_signed(expr->dtype) && is_fixed_var(expr->args[0]) &&
                    expr->args[0]->var->fixed_value >= 0;
  if (!is_negated && !is_fixed_var(expr)) return false;
  *out_value = is_negated ? -expr->args[0]->var->fixed_value : expr->var->fixed_value;
  return true;
}

static void become_int(qn__ir_expr_t* expr, int64_t value) {
  expr->kind = QN__EXPR_INT;
  expr->int_value = value;
}

// Turns a conversion of a value into a literal, if its dtype holds the value exactly.
static bool convert(qn__ir_expr_t* cast, int64_t value) {
  if (qn__dtype_is_int(cast->dtype) && qn__constant_fits(cast->dtype, value)) {
    become_int(cast, value);
    return true;
  }
  if (!qn__dtype_is_real(cast->dtype)) return false;
  qn__ir_scalar_t given = {.i = value};
  qn__ir_scalar_t number = qn__scalar_cast(QN_DTYPE_I64, given, cast->dtype);
  // 2^63 is the smallest double that does not fit.
  bool is_in_range = number.f >= -9223372036854775808.0 && number.f < 9223372036854775808.0;
  if (!is_in_range || (int64_t)number.f != value) return false;
  cast->kind = QN__EXPR_FLOAT;
  cast->float_value = number.f;
  return true;
}

static bool replace(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  int64_t value;
  if (expr->kind == QN__EXPR_CAST && fixed_value(expr->args[0], &value) && convert(expr, value)) {
    *(bool*)walker->self = true;
  } else if (fixed_value(expr, &value)) {
    *(bool*)walker->self = true;
    become_int(expr, value);
  }
  return true;
}

static void replace_in_extents(qn__ir_walker_t* walker, qn__ir_expr_t* const* extents,
                               uint32_t rank) {
  for (uint32_t i = 0; extents && i < rank; i++) {
    bool* is_changed = walker->self;
    *is_changed = false;
    (void)qn__walk_expr(walker, extents[i]);
    qn__ir_scalar_t number;
    if (*is_changed && qn__expr_fold(extents[i], &number)) become_int(extents[i], number.i);
  }
}

static bool has_fixed(const qn__ir_func_t* function) {
  for (size_t i = 0; i < function->symbol_count; i++) {
    if (function->symbols[i]->is_fixed) return true;
  }
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_var_t* scalar = function->params[i].scalar;
    if (scalar && scalar->is_fixed) return true;
  }
  return false;
}

static void replace_in_function(qn__ir_func_t* function) {
  bool is_changed;
  qn__ir_walker_t walker = {.on_expr = replace, .self = &is_changed};
  for (size_t i = 0; i < function->param_count; i++) {
    qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (!buffer) continue;
    replace_in_extents(&walker, buffer->shape, buffer->rank);
    replace_in_extents(&walker, buffer->strides, buffer->rank);
  }
  (void)qn__walk_block(&walker, &function->body);
  // A fold may also drop the first appearance of another symbol: d > 0 ? d : n.
  (void)QN_NEVER(!qn__function_list_symbols(function, function->symbol_count));
}

qn_status_t qn__body_specialize(qn__ir_body_t* body, const qn__constants_t* constants) {
  for (size_t i = 0; i < constants->count; i++) {
    QN_TRY(fix_constant(body, &constants->items[i]));
  }
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    if (has_fixed(function)) replace_in_function(function);
  }
  return QN_OK;
}

qn_status_t qn_module_specialize(const qn_module_t* module, const char* const* names,
                                 const int64_t* values, size_t count, qn_module_t** out_module) {
  QN_REQUIRE(out_module);
  *out_module = NULL;
  QN_REQUIRE(module);
  if (count > 0) {
    QN_REQUIRE(names);
    QN_REQUIRE(values);
  }
  qn__ir_body_t body;
  QN_TRY(qn__body_clone(&module->body, module->allocator, &body));
  qn__constants_t constants = {0};
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    status = names[i] ? qn__constants_add(&constants, &body.arena, qn__str(names[i]), values[i])
                      : qn_status_make(QN_STATUS_INVALID_ARGUMENT, "name %zu is NULL", i);
  }
  if (qn_ok(status)) status = qn__body_specialize(&body, &constants);
  qn__constants_deinit(&constants, module->allocator);
  if (!qn_ok(status)) {
    qn__body_deinit(&body);
    return status;
  }
  qn__diag_t diag;
  qn__diag_init(&diag, module->allocator, NULL, module->source_name, module->source);
  status = qn__module_finish(&body, &diag, out_module);
  qn__diag_deinit(&diag);
  return status;
}
