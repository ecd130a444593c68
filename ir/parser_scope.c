// SPDX-License-Identifier: Apache-2.0
// ir/parser_scope.c: the declarations of names, and suggestions for unknown ones.
//
// Each name has a stack of declarations. A block removes its declarations when it ends. Inner
// blocks may shadow locals of outer blocks. Parameters, symbols and names of the same block must
// not be declared again.
#include <assert.h>

#include "base/alloc.h"
#include "ir/parser.h"

void qn__parser_open_block(qn__parser_t* p, qn__parser_scope_t* scope) {
  *scope = (qn__parser_scope_t){.outer = p->scope};
  p->scope = scope;
  p->depth++;
}

void qn__parser_close_block(qn__parser_t* p) {
  assert(p->scope && p->depth > 0);
  for (qn__parser_binding_t* b = p->scope->bindings; b; b = b->next) {
    // Inner blocks are closed, so that the last declaration of a name is of this block.
    assert(b->name->top == b && b->depth == p->depth);
    b->name->top = b->hidden;
  }
  p->scope = p->scope->outer;
  p->depth--;
}

void qn__parser_reset_names(qn__parser_t* p) {
  qn__map_deinit(&p->names);
  p->depth = 0;
  p->scope = NULL;
  p->symbol_count = 0;
}

// Returns the entry of a name, and creates it if missing. NULL: out of memory.
static qn__parser_name_t* intern(qn__parser_t* p, qn__ir_loc_t loc) {
  qn_str_t text = qn__lexer_slice(p->text, loc);
  qn__parser_name_t* name = qn__map_get(&p->names, text);
  if (name) return name;
  name = QN__ARENA_NEW(p->arena, qn__parser_name_t);
  if (name) name->text = qn__arena_cstr(p->arena, text);
  if (!name || !name->text || !qn__map_put(&p->names, text, name)) {
    qn__parser_out_of_memory(p);
    return NULL;
  }
  return name;
}

const char* qn__parser_intern(qn__parser_t* p, qn__ir_loc_t loc) {
  qn__parser_name_t* name = intern(p, loc);
  return name ? name->text : "";
}

void qn__parser_declare(qn__parser_t* p, qn__ir_loc_t loc, qn__ir_var_t* var,
                        qn__ir_buffer_t* buffer) {
  qn__parser_name_t* name = intern(p, loc);
  qn__parser_binding_t* binding = QN__ARENA_NEW(p->arena, qn__parser_binding_t);
  if (!name || !binding) return;
  qn__parser_binding_t* other = name->top;
  if (other && (other->depth == p->depth || other->depth == 0)) {
    if (loc.begin != other->loc.begin) {
      const char* what = other->depth != p->depth ? "a parameter or symbol already has this name"
                                                  : "this name is already declared";
      bool is_symbol = other->var && other->var->kind == QN__VAR_SYMBOL;
      qn__parser_error(p, QN__CODE_DUPLICATE, loc, "choose another name", "'%s': %s", name->text,
                       is_symbol ? "a symbol of a shape already has this name" : what);
      qn__parser_note(p, other->loc, "'%s' is declared here", name->text);
    }
    if (other->depth == 0) return;
  }
  *binding = (qn__parser_binding_t){name, var, buffer, loc, p->depth, name->top, NULL};
  if (p->scope) {
    binding->next = p->scope->bindings;
    p->scope->bindings = binding;
  }
  name->top = binding;
}

qn__parser_binding_t* qn__parser_find(qn__parser_t* p, qn__ir_loc_t loc) {
  qn__parser_name_t* name = qn__map_get(&p->names, qn__lexer_slice(p->text, loc));
  return name ? name->top : NULL;
}

qn__ir_var_t* qn__parser_new_var(qn__parser_t* p, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                                 qn__ir_loc_t loc) {
  qn__ir_var_t* var = qn__var_new(p->arena, kind, dtype, qn__parser_intern(p, loc));
  if (var) var->loc = loc;
  return var;
}

// Lists a name that has no dtype in the text.
static void list_untyped(qn__parser_t* p, const qn__parser_value_name_t* name, qn_dtype_t dtype) {
  qn__untyped_t* untyped = p->untyped;
  void* items = untyped->items;
  if (!qn__grow(p->allocator, &items, &untyped->capacity, untyped->count + 1,
                sizeof *untyped->items)) {
    qn__parser_out_of_memory(p);
    return;
  }
  untyped->items = items;
  untyped->items[untyped->count++] = (qn__untyped_name_t){name->loc.begin + name->loc.size, dtype};
}

qn__ir_var_t* qn__parser_declare_value(qn__parser_t* p, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                                       const qn__parser_value_name_t* name) {
  qn__ir_var_t* var = qn__parser_new_var(p, kind, dtype, name->loc);
  if (!var) return NULL;
  qn__parser_declare(p, name->loc, var, NULL);
  bool is_untyped = name->dtype_loc.size == 0 && dtype != QN_DTYPE_NONE;
  if (p->untyped && is_untyped) list_untyped(p, name, dtype);
  return var;
}

static qn__parser_binding_t* add_symbol(qn__parser_t* p, qn__ir_loc_t loc) {
  qn__ir_var_t* var = qn__parser_new_var(p, QN__VAR_SYMBOL, QN_DTYPE_I64, loc);
  void* items = p->symbols;
  if (!var || !qn__grow(p->allocator, &items, &p->symbol_capacity, p->symbol_count + 1,
                        sizeof(qn__ir_var_t*))) {
    qn__parser_out_of_memory(p);
    return NULL;
  }
  p->symbols = items;
  p->symbols[p->symbol_count++] = var;
  qn__parser_declare(p, loc, var, NULL);
  return qn__parser_find(p, loc);
}

qn__parser_binding_t* qn__parser_resolve(qn__parser_t* p, qn__ir_loc_t loc) {
  qn__parser_binding_t* binding = qn__parser_find(p, loc);
  if (binding) return binding;
  qn_str_t text = qn__lexer_slice(p->text, loc);
  if (p->is_signature && qn__text_is_name(text)) return add_symbol(p, loc);
  const char* comment_help = qn__parser_comment_help(p, loc, NULL);
  if (comment_help && !p->is_grammar_only) {
    // The next words are the rest of the intended comment.
    qn__parser_syntax(p, QN__CODE_UNKNOWN_NAME, loc, comment_help, "unknown name '%.*s'",
                      QN_STR_ARG(text));
    return NULL;
  }
  qn__parser_suggestion_t suggestion = qn__suggest_start(text);
  qn__suggest_names(p, &suggestion, false);
  const char* call_help = qn__map_get(&p->callees, text) ? qn__parser_call_help(p, loc) : NULL;
  qn__parser_error(p, QN__CODE_UNKNOWN_NAME, loc,
                   call_help ? call_help : qn__suggest_help(p, &suggestion, NULL),
                   "unknown name '%.*s'", QN_STR_ARG(text));
  return NULL;
}

// ------------------------------------------------------------------------------------ did you mean

qn__parser_suggestion_t qn__suggest_start(qn_str_t wanted) {
  // Allow one typing error in a short word, two in a medium one, three in a long one.
  size_t limit = wanted.size <= 3 ? 1 : wanted.size <= 7 ? 2 : 3;
  return (qn__parser_suggestion_t){wanted, NULL, limit + 1};
}

void qn__suggest(qn__parser_suggestion_t* suggestion, const char* candidate) {
  size_t size = strlen(candidate);
  // Every word of one letter is near every other: accept only a difference in case.
  if (suggestion->wanted.size > 64 || size > 64 || suggestion->wanted.size < 2 || size < 2) return;
  if (qn__str_equal(suggestion->wanted, qn__str(candidate))) return;
  size_t distance =
      qn__edit_distance(suggestion->wanted, qn__str(candidate), suggestion->distance - 1);
  if (distance < suggestion->distance) {
    suggestion->distance = distance;
    suggestion->best = candidate;
  }
}

void qn__suggest_names(qn__parser_t* p, qn__parser_suggestion_t* suggestion,
                       bool wants_buffers_only) {
  // The map's order depends on hashes: among equally near names, take the alphabetically first.
  for (size_t i = 0; i < p->names.capacity; i++) {
    const qn__parser_name_t* name = p->names.slots[i].value;
    if (!name || !name->top || (wants_buffers_only && !name->top->buffer)) continue;
    qn__parser_suggestion_t one = qn__suggest_start(suggestion->wanted);
    qn__suggest(&one, name->text);
    if (!one.best) continue;
    if (one.distance < suggestion->distance ||
        (one.distance == suggestion->distance && suggestion->best &&
         strcmp(one.best, suggestion->best) < 0)) {
      *suggestion = one;
    }
  }
}

void qn__suggest_words(qn__parser_suggestion_t* suggestion, qn__ir_text_fn_t text_of) {
  for (uint32_t value = 1; text_of(value); value++) qn__suggest(suggestion, text_of(value));
}

void qn__suggest_ops(qn__parser_suggestion_t* suggestion) {
  for (int op = 1; op < QN_OP_COUNT; op++) {
    const qn__ir_op_info_t* info = qn__op_info((qn_op_t)op);
    if (info && info->syntax == QN__SYNTAX_CALL) qn__suggest(suggestion, info->text);
  }
  qn__suggest(suggestion, "bitcast");
  qn__suggest_dtypes(suggestion);
}

void qn__suggest_dtypes(qn__parser_suggestion_t* suggestion) {
  for (int dtype = 1; dtype < QN_DTYPE_COUNT; dtype++) {
    qn__suggest(suggestion, qn_dtype_text((qn_dtype_t)dtype));
  }
}

const char* qn__suggest_help(qn__parser_t* p, const qn__parser_suggestion_t* suggestion,
                             const char* otherwise) {
  if (!suggestion->best) return otherwise;
  return qn__parser_help(p, "did you mean '%s'?", suggestion->best);
}
