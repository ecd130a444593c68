// SPDX-License-Identifier: Apache-2.0
// ir/place.c: see place.h.
#include "ir/place.h"

#include "base/escape.h"
#include "ir/call_place.h"
#include "ir/diag.h"
#include "ir/encode.h"
#include "ir/lexer.h"

// Counts nodes in the order of a walk, up to the one at `offset` or the one of number `count`.
typedef struct node_search {
  uint32_t offset;
  size_t number;  // of the next node
  size_t count;
  qn__ir_node_t found;
} node_search_t;

static bool is_other_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  node_search_t* search = walker->self;
  if (stmt->loc.begin == search->offset) {
    search->found.stmt = stmt;
    return false;
  }
  search->number++;
  return true;
}

static bool is_other_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  node_search_t* search = walker->self;
  if (expr->loc.begin == search->offset) {
    search->found.expr = expr;
    return false;
  }
  search->number++;
  return true;
}

static bool is_before_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  node_search_t* search = walker->self;
  if (search->number++ < search->count) return true;
  search->found.stmt = stmt;
  return false;
}

static bool is_before_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  node_search_t* search = walker->self;
  if (search->number++ < search->count) return true;
  search->found.expr = expr;
  return false;
}

// Returns false if the walker stopped at a node.
static bool walk(qn__ir_walker_t* walker, const qn__ir_func_t* function) {
  qn__ir_block_t body = function->body;
  return qn__walk_extents(walker, function) && qn__walk_block(walker, &body);
}

static const qn__ir_func_t* function_at(const qn__ir_body_t* body, const qn_module_t* module,
                                        const qn__ir_func_t* function) {
  const qn__ir_func_t* at = body->first;
  for (size_t i = 0; at && module->functions[i] != function; i++) at = at->next;
  return at;
}

qn__ir_node_t qn__place_find(const qn_module_t* module, const qn__ir_func_t* function,
                             uint32_t offset) {
  const qn__ir_node_t none = {NULL, NULL};
  qn__ir_body_t decoded;
  qn_span_t bytes = {module->bytes, module->byte_count};
  if (offset == 0) return none;
  if (qn_status_consume(qn__body_decode(bytes, module->allocator, &decoded)) != QN_STATUS_OK) {
    return none;
  }
  node_search_t search = {.offset = offset};
  qn__ir_walker_t walker = {is_other_stmt, is_other_expr, &search};
  const qn__ir_func_t* twin = function_at(&decoded, module, function);
  bool is_found = twin && !walk(&walker, twin);
  qn__body_deinit(&decoded);
  if (!is_found) return none;
  search = (node_search_t){.count = search.number};
  walker = (qn__ir_walker_t){is_before_stmt, is_before_expr, &search};
  return walk(&walker, function) ? none : search.found;
}

static qn__ir_loc_t loc_of(qn__ir_node_t node) {
  if (node.expr) return node.expr->loc;
  if (!node.stmt) return (qn__ir_loc_t){0, 0};
  return node.stmt->kind == QN__STMT_ASSERT ? node.stmt->assert_.condition->loc : node.stmt->loc;
}

static bool is_plain_assert(qn__ir_node_t node) {
  return node.stmt && node.stmt->kind == QN__STMT_ASSERT &&
         (!node.stmt->assert_.message || !node.stmt->assert_.message[0]);
}

// Returns the part of a text that fits into a message: of one line, and short.
static qn_str_t cut(qn_str_t text, bool* out_is_cut) {
  enum { LONGEST = 80 };
  size_t size = 0;
  while (size < text.size && text.data[size] != '\n' && text.data[size] != '\r') {
    uint32_t code;
    size_t next = qn__utf8_decode((qn_str_t){text.data + size, text.size - size}, &code);
    if (next == 0 || size + next > LONGEST) break;
    size += next;
  }
  *out_is_cut = size < text.size;
  return (qn_str_t){text.data, size};
}

// Returns the longer of two statuses with one message; `status` if there was no memory for the
// other.
static qn_status_t longer_of(qn_status_t status, qn_status_t longer) {
  bool is_made = qn_status_code(longer) == qn_status_code(status);
  qn_status_free(is_made ? status : longer);
  return is_made ? longer : status;
}

// Adds the calls by which a place came into the function that failed.
static qn_status_t append_calls(qn_status_t status, const qn_module_t* module,
                                const qn__ir_call_t* call) {
  while (call) {
    qn__ir_loc_t loc = call->loc;
    const qn__ir_call_t* outer = qn__places_resolve(&module->body.places, &loc);
    uint32_t line, column;
    qn__diag_position(module->source, loc.begin, &line, &column);
    status = longer_of(
        status,
        qn_status_make(qn_status_code(status), "%s, in '%s', called at %s:%" PRIu32 ":%" PRIu32,
                       qn_status_message(status), call->name, module->source_name, line, column));
    call = outer;
  }
  return status;
}

qn_status_t qn__place_append(qn_status_t status, const qn_module_t* module, qn__ir_node_t node,
                             bool is_quoted) {
  qn_str_t source = module->source;
  qn__ir_loc_t loc = loc_of(node);
  const qn__ir_call_t* call = qn__places_resolve(&module->body.places, &loc);
  bool is_inside = loc.begin <= source.size && loc.size <= source.size - loc.begin;
  if (qn_ok(status) || source.size == 0 || loc.size == 0 || !is_inside) return status;
  uint32_t line, column;
  qn__diag_position(source, loc.begin, &line, &column);
  bool is_cut = false;
  if (is_plain_assert(node)) is_quoted = false;
  qn_str_t text = is_quoted ? cut(qn__lexer_slice(source, loc), &is_cut) : QN_STR("");
  qn_status_t longer =
      qn_status_make(qn_status_code(status), "%s, at %s:%" PRIu32 ":%" PRIu32 "%s%.*s%s",
                     qn_status_message(status), module->source_name, line, column,
                     is_quoted ? ": " : "", QN_STR_ARG(text), is_cut ? "..." : "");
  return append_calls(longer_of(status, longer), module, call);
}

// ---- names of locals

// A local, by the number in its name: "v3" or "b3".
typedef struct local_search {
  bool is_buffer;
  uint32_t id;
  const char* name;  // in the module; NULL: not found
  qn__ir_node_t node;
} local_search_t;

static bool is_var(local_search_t* search, const qn__ir_var_t* var) {
  if (!var || search->is_buffer || var->id != search->id) return false;
  search->name = var->name;
  return true;
}

static bool is_of_several(local_search_t* search, const qn__ir_several_t* several) {
  if (is_var(search, several->var)) return true;
  for (uint32_t i = 0; i < several->merged_count; i++) {
    if (is_var(search, several->left[i]) || is_var(search, several->right[i])) return true;
  }
  for (uint32_t i = 0; i < several->result_count; i++) {
    if (is_var(search, several->results[i])) return true;
  }
  return false;
}

static bool declares(local_search_t* search, const qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      return is_var(search, stmt->let.var);
    case QN__STMT_ATOMIC:
      return is_var(search, stmt->atomic.result);
    case QN__STMT_LOOP:
      return is_var(search, stmt->loop.var);
    case QN__STMT_REDUCE:
      return is_of_several(search, stmt->several);
    case QN__STMT_ALLOC:
      if (!search->is_buffer || stmt->alloc.buffer->id != search->id) return false;
      search->name = stmt->alloc.buffer->name;
      return true;
    default:
      return false;
  }
}

static bool is_not_declaring_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  local_search_t* search = walker->self;
  if (!declares(search, stmt)) return true;
  search->node.stmt = stmt;
  return false;
}

static bool is_not_declaring_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  local_search_t* search = walker->self;
  if (expr->kind != QN__EXPR_REDUCE || !is_var(search, expr->reduce.reduce_var)) return true;
  search->node.expr = expr;
  return false;
}

static bool is_param_or_symbol(const qn__ir_func_t* function, qn_str_t name) {
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_param_t* param = &function->params[i];
    const char* own = param->buffer ? param->buffer->name : param->scalar->name;
    if (qn__str_equal(name, qn__str(own))) return true;
  }
  for (size_t i = 0; i < function->symbol_count; i++) {
    if (qn__str_equal(name, qn__str(function->symbols[i]->name))) return true;
  }
  return false;
}

// Finds the local that decode.c gives the name. A parameter may have such a name, too.
static bool find_local(const qn__ir_func_t* function, qn_str_t name, local_search_t* out) {
  *out = (local_search_t){.is_buffer = name.size > 0 && name.data[0] == 'b'};
  if (name.size < 2 || name.size > 8 || (name.data[0] != 'v' && name.data[0] != 'b')) return false;
  for (size_t i = 1; i < name.size; i++) {
    if (name.data[i] < '0' || name.data[i] > '9') return false;
    out->id = 10 * out->id + (uint32_t)(name.data[i] - '0');
  }
  if (is_param_or_symbol(function, name)) return false;
  qn__ir_walker_t walker = {is_not_declaring_stmt, is_not_declaring_expr, out};
  (void)walk(&walker, function);
  return out->name != NULL;
}

// Returns the text up to the next quote.
static qn_str_t up_to_quote(const char* text) {
  return (qn_str_t){text, strcspn(text, "'")};
}

// Returns the function that a message begins with, "function 'f': ...", and what follows its name.
// NULL: there is none.
static const qn__ir_func_t* function_of(const qn_module_t* module, const char* message,
                                        const char** out_rest) {
  static const char before[] = "function '";
  const char* at = strstr(message, before);
  if (!at) return NULL;
  qn_str_t name = up_to_quote(at + sizeof before - 1);
  *out_rest = name.data + name.size;
  for (size_t i = 0; i < module->body.function_count; i++) {
    if (qn__str_equal(name, qn__str(module->functions[i]->name))) return module->functions[i];
  }
  return NULL;
}

qn_status_t qn__place_name_locals(qn_status_t status, const qn_module_t* module) {
  const char *message = qn_status_message(status), *rest = message;
  const qn__ir_func_t* function = function_of(module, message, &rest);
  if (!function) return status;
  qn__ir_node_t first = {NULL, NULL};
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__buffer_str(&text, (qn_str_t){message, (size_t)(rest - message)});
  while (*rest) {  // at a quote
    qn_str_t part = up_to_quote(rest + 1);
    rest += 1 + part.size;
    local_search_t local;
    if (*rest && find_local(function, part, &local)) {
      part = qn__str(local.name);
      if (!first.stmt && !first.expr) first = local.node;
    }
    qn__buffer_char(&text, '\'');
    qn__buffer_str(&text, part);
  }
  if ((first.stmt || first.expr) && !text.has_failed) {
    qn_str_t renamed = qn__buffer_as_str(&text);
    status = longer_of(status, qn_status_make(qn_status_code(status), "%.*s", QN_STR_ARG(renamed)));
    status = qn__place_append(status, module, first, false);
  }
  qn__buffer_deinit(&text);
  return status;
}
