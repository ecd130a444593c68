// SPDX-License-Identifier: Apache-2.0
// ir/parser_func.c: functions, and declarations of buffers: parameters, alloc, const, view.
//
// Shapes of parameters may use scalar parameters that are declared later. The parser therefore
// reads the names of all scalars first. Every other free name in a shape is a symbol.
#include "base/alloc.h"
#include "ir/parser.h"
#include "ir/specialize.h"

// ------------------------------------------------------------------------------------ buffers

static qn__ir_buffer_t* new_buffer(qn__parser_t* p, qn__ir_scope_t scope, qn_dtype_t dtype,
                                   qn__ir_loc_t loc, uint32_t rank, qn__ir_expr_t** shape) {
  qn__ir_buffer_t* buffer = qn__buf_new(p->arena, scope, dtype, qn__parser_intern(p, loc), rank);
  if (!buffer) return NULL;
  buffer->loc = loc;
  buffer->shape = shape;
  return buffer;
}

static void append_alloc(qn__parser_t* p, qn__ir_block_t* block, qn__ir_buffer_t* buffer,
                         qn__ir_loc_t loc) {
  qn__parser_declare(p, buffer->loc, NULL, buffer);
  qn__ir_stmt_t* stmt = qn__stmt_new(p->arena, QN__STMT_ALLOC, loc);
  if (!stmt) return;
  stmt->alloc.buffer = buffer;
  qn__block_append(block, stmt);
}

// Parses `name ":" dtype "[" shape "]"`. Returns NULL if lost.
static qn__ir_buffer_t* parse_declared(qn__parser_t* p, qn__ir_scope_t scope, const char* what) {
  qn__ir_loc_t loc;
  qn_dtype_t dtype;
  qn__ir_expr_t** shape;
  uint32_t rank;
  if (!qn__parser_name(p, what, &loc) ||
      !qn__parser_expect(p, QN__TOKEN_COLON, "after the name of a buffer") ||
      ((dtype = qn__parse_dtype(p)) == QN_DTYPE_NONE && p->is_lost) ||
      !qn__parse_extents(p, "the extent of a shape", &shape, &rank)) {
    return NULL;
  }
  return new_buffer(p, scope, dtype, loc, rank, shape);
}

// Parses the optional `"strides" "[" exprs "]"`. Returns false if lost.
static bool parse_strides(qn__parser_t* p, qn__ir_buffer_t* buffer) {
  uint32_t begin = p->token.loc.begin;
  if (!qn__parser_take_word(p, "strides")) return !p->is_lost;
  uint32_t count;
  qn__ir_expr_t** strides;
  if (!qn__parse_extents(p, "a stride", &strides, &count)) return false;
  if (count == buffer->rank) {
    buffer->strides = strides;
  } else {
    qn__parser_error(p, QN__CODE_STRIDE_COUNT, qn__parser_since(p, begin), NULL,
                     "%u %s given for rank %u", (unsigned)count,
                     count == 1 ? "stride is" : "strides are", (unsigned)buffer->rank);
  }
  return true;
}

void qn__parse_alloc(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_buffer_t* buffer = parse_declared(p, QN__SCOPE_LOCAL, "an allocation");
  if (!buffer) return;
  if (qn__parser_expect_word(p, "in", "after the shape of an allocation")) {
    bool is_known = false;
    qn__parser_suggestion_t suggestion = qn__suggest_start(qn__parser_found(p));
    for (int s = QN__SCOPE_LOCAL; s <= QN__SCOPE_GLOBAL; s++) {
      const char* text = qn__scope_text((qn__ir_scope_t)s);
      qn__suggest(&suggestion, text);
      if (qn__parser_at_word(p, text)) {
        buffer->scope = (qn__ir_scope_t)s;
        is_known = true;
      }
    }
    if (is_known) {
      qn__parser_advance(p);
    } else {
      qn__parser_expected(
          p, QN__CODE_UNKNOWN_SCOPE,
          qn__suggest_help(p, &suggestion, "memory is local, shared (by a block) or global"),
          "local, shared or global");
    }
  }
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  if (!p->is_lost) qn__parser_expect(p, QN__TOKEN_SEMICOLON, "an allocation");
  append_alloc(p, block, buffer, loc);
}

// Computes the number of elements of a constant shape. Reports extents that are not literals.
// Returns false if the number is unknown.
static bool constant_count(qn__parser_t* p, const qn__ir_buffer_t* buffer, size_t* out_count) {
  qn__ir_expr_t** shape = buffer->shape;
  size_t count = 1;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    if (!shape[i]) return false;
    if (shape[i]->kind != QN__EXPR_INT || shape[i]->int_value < 0 ||
        !qn__size_mul(count, (size_t)shape[i]->int_value, &count)) {
      qn__parser_error(p, QN__CODE_NOT_LITERAL, shape[i]->loc, NULL,
                       "the shape of a table is made of integer literals");
      return false;
    }
  }
  *out_count = count;
  return true;
}

static void* parse_element(qn__parser_t* p, const qn__ir_buffer_t* buffer) {
  qn__parser_operand_t operand = qn__parse_expr(p);
  if (!operand.expr) return NULL;
  qn__ir_loc_t loc = operand.expr->loc;
  qn__ir_expr_t* element = qn__type_as_value(p, operand, buffer);
  if (element && element->kind != QN__EXPR_INT && element->kind != QN__EXPR_FLOAT) {
    qn__parser_error(p, QN__CODE_NOT_LITERAL, loc, NULL, "elements of a table are literals");
    return NULL;
  }
  return element;
}

void qn__parse_const(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_buffer_t* buffer = parse_declared(p, QN__SCOPE_CONST, "a table");
  if (!buffer || !qn__parser_expect(p, QN__TOKEN_ASSIGN, "after the shape of a table")) return;
  qn__ir_loc_t open = p->token.loc;
  size_t mark = p->list_size;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_BRACKET, "before the elements of a table")) return;
  while (!qn__parser_at(p, QN__TOKEN_RIGHT_BRACKET) && !p->is_lost) {
    qn__parser_push(p, parse_element(p, buffer));
    if (!qn__parser_take(p, QN__TOKEN_COMMA)) break;
  }
  qn__parser_close(p, QN__TOKEN_RIGHT_BRACKET, open);
  qn__ir_loc_t list_loc = qn__parser_since(p, open.begin);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  size_t count;
  void** elements = qn__parser_pop_list(p, mark, &count);
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "a table");
  size_t wanted;
  if (!p->is_lost && constant_count(p, buffer, &wanted) && count != wanted) {
    qn__parser_error(p, QN__CODE_ELEMENT_COUNT, list_loc, NULL,
                     "the table '%s' has %zu %s, but its shape needs %zu", buffer->name, count,
                     count == 1 ? "element" : "elements", wanted);
  }
  buffer->elements = (qn__ir_expr_t**)elements;
  buffer->element_count = count;
  append_alloc(p, block, buffer, loc);
}

void qn__parse_view(qn__parser_t* p, qn__ir_block_t* block) {
  uint32_t begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__ir_loc_t base_loc;
  qn__ir_buffer_t* buffer = parse_declared(p, QN__SCOPE_VIEW, "a view");
  if (!buffer || !parse_strides(p, buffer)) return;
  if (!qn__parser_expect(p, QN__TOKEN_ASSIGN, "after the shape of a view")) return;
  if (!qn__parser_name(p, "the buffer under a view", &base_loc)) return;
  qn__parser_binding_t* binding = qn__parser_resolve(p, base_loc);
  if (binding && binding->var && binding->var->dtype != QN_DTYPE_NONE) {
    qn__parser_error(p, QN__CODE_NOT_SCALAR, base_loc, NULL,
                     "'%s' is a value of %s and has no elements", binding->name->text,
                     qn_dtype_text(binding->var->dtype));
  }
  buffer->base = binding ? binding->buffer : NULL;
  uint32_t height;
  buffer->base_indices = qn__parse_indices(p, buffer->base, base_loc, &height);
  qn__ir_loc_t loc = qn__parser_since(p, begin);
  qn__parser_expect(p, QN__TOKEN_SEMICOLON, "a view");
  append_alloc(p, block, buffer, loc);
}

// ------------------------------------------------------------------------------------ parameters

static qn__ir_var_t* declare_scalar(qn__parser_t* p, qn__ir_loc_t loc, qn_dtype_t dtype) {
  qn__ir_var_t* var = qn__parser_new_var(p, QN__VAR_SCALAR, dtype, loc);
  if (var) qn__parser_declare(p, loc, var, NULL);
  return var;
}

// Declares the scalar parameters before the parser reads shapes: scans the parameter list with a
// second lexer. Ignores errors, since the parser reports them later.
static void declare_scalars(qn__parser_t* p) {
  qn__lexer_t lexer = p->lexer;
  lexer.diag = NULL;
  uint32_t open = 0;
  qn__token_t before = {0};  // the token before `token`
  qn__token_t token = p->ahead;
  qn__token_t after = qn__lexer_next(&lexer);
  if (qn__parser_at(p, QN__TOKEN_NAME)) before = p->token;
  while (token.kind != QN__TOKEN_END && token.kind != QN__TOKEN_LEFT_BRACE && !p->is_stopped) {
    if (token.kind == QN__TOKEN_LEFT_PAREN || token.kind == QN__TOKEN_LEFT_BRACKET) open++;
    if (token.kind == QN__TOKEN_RIGHT_PAREN || token.kind == QN__TOKEN_RIGHT_BRACKET) {
      if (open == 0) return;
      open--;
    }
    qn__token_t next = qn__lexer_next(&lexer);
    if (open == 0 && token.kind == QN__TOKEN_COLON && before.kind == QN__TOKEN_NAME &&
        after.kind == QN__TOKEN_NAME && next.kind != QN__TOKEN_LEFT_BRACKET) {
      qn_dtype_t dtype = qn__dtype_from_str(qn__lexer_slice(p->text, after.loc));
      if (qn__text_is_name(qn__lexer_slice(p->text, before.loc)) &&
          !qn__parser_find(p, before.loc)) {
        (void)declare_scalar(p, before.loc, dtype);
      }
    }
    before = token;
    token = after;
    after = next;
  }
}

static qn_access_t parse_access(qn__parser_t* p) {
  if (!qn__parser_at(p, QN__TOKEN_NAME)) return QN_ACCESS_NONE;
  qn_access_t access = (qn_access_t)qn__word_find(qn__access_text, qn__parser_word(p));
  if (access != QN_ACCESS_NONE) qn__parser_advance(p);
  return access;
}

// Parses the optional `"align" integer`.
static void parse_align(qn__parser_t* p, qn__ir_buffer_t* buffer) {
  enum { LARGEST = 4096 };
  if (!qn__parser_take_word(p, "align")) return;
  qn__ir_loc_t loc = p->token.loc;
  uint64_t value = 0;
  bool is_int = qn__parser_at(p, QN__TOKEN_INT);
  bool is_good = is_int && qn__lexer_int(qn__parser_word(p), &value) && value > 0 &&
                 value <= LARGEST && (value & (value - 1)) == 0;
  if (!qn__parser_expect(p, QN__TOKEN_INT, "after 'align'")) return;
  if (!is_good) {
    qn__parser_error(p, QN__CODE_BAD_ALIGN, loc, "such as 64",
                     "an alignment is a power of two of bytes, at most %d", LARGEST);
    return;
  }
  if (value > buffer->align_bytes) buffer->align_bytes = (uint32_t)value;
}

// Parses the optional `"=" [ "-" ] integer` of a fixed scalar.
static void parse_fixed(qn__parser_t* p, qn__ir_var_t* scalar) {
  if (!qn__parser_take(p, QN__TOKEN_ASSIGN)) return;
  qn__ir_loc_t loc = p->token.loc;
  qn__parser_operand_t operand = qn__parse_expr(p);
  if (!operand.expr || scalar->dtype == QN_DTYPE_NONE) return;
  if (!qn__dtype_is_int(scalar->dtype) || operand.expr->kind != QN__EXPR_INT) {
    qn__parser_error(p, QN__CODE_NOT_LITERAL, loc, NULL,
                     "only integer scalars can have a value, and it is an integer literal");
    return;
  }
  if (!qn__type_settle(p, &operand, scalar->dtype)) return;
  int64_t value = operand.expr->int_value;
  if (!qn__constant_fits(scalar->dtype, value)) {
    qn__parser_error(p, QN__CODE_LITERAL_RANGE, loc, NULL, "values of %s end at 2^63 - 1 here",
                     qn_dtype_text(scalar->dtype));
    return;
  }
  scalar->is_fixed = true;
  scalar->fixed_value = value;
}

static qn__ir_param_t* parse_param(qn__parser_t* p) {
  qn__ir_loc_t access_loc = p->token.loc;
  qn_access_t access = parse_access(p);
  qn__ir_loc_t name_loc;
  if (!qn__parser_name(p, "a parameter", &name_loc)) return NULL;
  bool is_name =
      qn__parser_at(p, QN__TOKEN_NAME) && qn__dtype_from_str(qn__parser_word(p)) == QN_DTYPE_NONE;
  if (!p->is_lost && access == QN_ACCESS_NONE && is_name) {
    qn_str_t word = qn__lexer_slice(p->text, name_loc);
    qn__parser_suggestion_t suggestion = qn__suggest_start(word);
    qn__suggest_words(&suggestion, qn__access_text);
    qn__parser_syntax(p, QN__CODE_EXPECTED, name_loc,
                      qn__suggest_help(p, &suggestion, "a parameter is declared as name: dtype"),
                      "expected in, out or inout before the name of a parameter, found '%.*s'",
                      QN_STR_ARG(word));
    return NULL;
  }
  if (!qn__parser_expect(p, QN__TOKEN_COLON, "after the name of a parameter")) return NULL;
  qn_dtype_t dtype = qn__parse_dtype(p);
  if (p->is_lost) return NULL;
  qn__ir_param_t* param = QN__ARENA_NEW(p->arena, qn__ir_param_t);
  if (!param) return NULL;
  if (!qn__parser_at(p, QN__TOKEN_LEFT_BRACKET)) {
    if (access != QN_ACCESS_NONE) {
      qn__parser_error(
          p, QN__CODE_BAD_ACCESS, access_loc,
          access == QN_ACCESS_IN ? "leave it out" : "a result is an element of a buffer: f32[]",
          "'%s' stands before buffers, and '%s' is a scalar", qn__access_text(access),
          qn__parser_intern(p, name_loc));
    }
    const qn__parser_binding_t* binding = qn__parser_find(p, name_loc);
    bool is_declared = binding && binding->loc.begin == name_loc.begin;
    param->scalar = is_declared ? binding->var : declare_scalar(p, name_loc, dtype);
    if (!param->scalar) return NULL;
    parse_fixed(p, param->scalar);
    return param;
  }
  qn__ir_expr_t** shape;
  uint32_t rank;
  p->is_signature = true;
  bool is_good = qn__parse_extents(p, "the extent of a shape", &shape, &rank);
  if (is_good) param->buffer = new_buffer(p, QN__SCOPE_PARAM, dtype, name_loc, rank, shape);
  is_good = param->buffer && parse_strides(p, param->buffer);
  p->is_signature = false;
  if (!is_good) return NULL;
  param->buffer->access = access == QN_ACCESS_NONE ? QN_ACCESS_IN : access;
  parse_align(p, param->buffer);
  qn__parser_declare(p, name_loc, NULL, param->buffer);
  return param;
}

static void parse_params(qn__parser_t* p, qn__ir_func_t* function) {
  qn__ir_loc_t open = p->token.loc;
  if (!qn__parser_expect(p, QN__TOKEN_LEFT_PAREN, "after the name of a function")) return;
  declare_scalars(p);
  size_t mark = p->list_size;
  while (!qn__parser_at(p, QN__TOKEN_RIGHT_PAREN) && !p->is_lost) {
    qn__ir_param_t* param = parse_param(p);
    if (param) qn__parser_push(p, param);
    if (!qn__parser_take(p, QN__TOKEN_COMMA)) break;
  }
  qn__parser_close(p, QN__TOKEN_RIGHT_PAREN, open);
  size_t count;
  void** params = qn__parser_pop_list(p, mark, &count);
  function->params = qn__arena_alloc_array(p->arena, count, sizeof(qn__ir_param_t));
  function->symbols = qn__arena_alloc_array(p->arena, p->symbol_count, sizeof(qn__ir_var_t*));
  if (!function->params || !function->symbols || !params) return;
  for (size_t i = 0; i < count; i++) function->params[i] = *(const qn__ir_param_t*)params[i];
  function->param_count = count;
  for (size_t i = 0; i < p->symbol_count; i++) function->symbols[i] = p->symbols[i];
  function->symbol_count = p->symbol_count;
}

// ------------------------------------------------------------------------------------ functions

// Skips the rest of a broken header, and the body.
static void recover_header(qn__parser_t* p) {
  while (!qn__parser_at(p, QN__TOKEN_END) && !qn__parser_at(p, QN__TOKEN_LEFT_BRACE) &&
         !qn__parser_at_word(p, "func")) {
    qn__parser_advance(p);
  }
  p->is_lost = p->is_stopped;
  if (qn__parser_at(p, QN__TOKEN_LEFT_BRACE)) qn__parser_recover(p);
}

void qn__parse_function(qn__parser_t* p) {
  if (qn__parser_skip_callee(p)) return;
  p->stmt_begin = p->token.loc.begin;
  qn__parser_advance(p);
  qn__parser_reset_names(p);
  p->lets = NULL;
  qn__ir_func_t* function = QN__ARENA_NEW(p->arena, qn__ir_func_t);
  if (!function) return;
  function->name = "";
  if (qn__parser_name(p, "a function", &function->loc)) {
    qn_str_t name = qn__lexer_slice(p->text, function->loc);
    const qn__ir_func_t* other = qn__map_get(&p->functions, name);
    function->name = qn__arena_cstr(p->arena, name);
    if (!function->name) return;
    if (other) {
      qn__parser_error(p, QN__CODE_DUPLICATE, function->loc, "choose another name",
                       "'%s': a function already has this name", function->name);
      qn__parser_note(p, other->loc, "'%s' is declared here", function->name);
    } else if (!qn__map_put(&p->functions, name, function)) {
      qn__parser_out_of_memory(p);
      return;
    }
  }
  if (!p->is_lost) parse_params(p, function);
  if (p->is_lost) {
    // Not all parameters are known, so messages about the body could be wrong.
    recover_header(p);
    return;
  }
  if (qn__parser_take(p, QN__TOKEN_ARROW)) {
    qn__parse_callee(p, function);
    qn__parser_place_roots(p, NULL);
    if (p->is_lost) recover_header(p);
    return;
  }
  if (qn__parser_at(p, QN__TOKEN_COLON)) {
    qn__parser_expected(p, QN__CODE_EXPECTED, "a value is declared with '->'",
                        "'{' before a block");
    recover_header(p);
    return;
  }
  if (qn__parser_take_word(p, "fast")) function->is_fast = true;
  qn__parse_block(p, &function->body, function->loc, NULL);
  qn__parser_place_roots(p, NULL);
  if (p->is_lost) recover_header(p);
  qn__body_append(p->body, function);
}
