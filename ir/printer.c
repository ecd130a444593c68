// SPDX-License-Identifier: Apache-2.0
// ir/printer.c: a body as canonical text: two spaces of indent, one statement a line, the fewest
// parentheses, names that mean one thing.
//
// Parameters, symbols and functions keep their names. A local keeps its name unless that is already
// visible where it is declared, as happens in rewritten and decoded modules; then it gets a suffix
// _1, _2 and so on. So a printed text never shadows a name. Marks of the vectorise pass are printed
// as comments, since they do not change the meaning. Not here: expressions (printer_expr.c), texts
// with the user's comments (format.c).
#include <assert.h>

#include "ir/printer.h"

#include "ir/layout.h"

// ------------------------------------------------------------------------------------ names

const char* qn__print_name(qn__printer_t* p, const void* entity, const char* name) {
  const qn__printed_name_t* printed = p->arena ? qn__ptrmap_get(&p->names, entity) : NULL;
  return printed ? printed->text : name ? name : "?";
}

typedef struct suffix {
  uint32_t last;
} suffix_t;

// Makes a name from `base` that is not visible yet. NULL: out of memory.
static const char* free_name(qn__printer_t* p, const char* base) {
  if (!qn__map_get(&p->visible, qn__str(base))) return base;
  suffix_t* suffix = qn__map_get(&p->suffixes, qn__str(base));
  if (!suffix) {
    suffix = QN__ARENA_NEW(p->arena, suffix_t);
    if (!suffix || !qn__map_put(&p->suffixes, qn__str(base), suffix)) return NULL;
  }
  qn__buffer_t text;
  qn__buffer_init(&text, p->arena->allocator);
  const char* name = NULL;
  do {
    qn__buffer_clear(&text);
    qn__buffer_format(&text, "%s_%" PRIu32, base, ++suffix->last);
  } while (!text.has_failed && qn__map_get(&p->visible, qn__buffer_as_str(&text)));
  if (!text.has_failed) name = qn__arena_cstr(p->arena, qn__buffer_as_str(&text));
  qn__buffer_deinit(&text);
  return name;
}

void qn__print_declare(qn__printer_t* p, const void* entity, const char* name,
                       const char* fallback) {
  if (!p->arena) return;
  const char* base = name && qn__text_is_name(qn__str(name)) ? name : fallback;
  const char* text = free_name(p, base);
  qn__printed_name_t* entry = text ? QN__ARENA_NEW(p->arena, qn__printed_name_t) : NULL;
  if (!entry) {
    p->out->has_failed = true;
    return;
  }
  *entry = (qn__printed_name_t){p->block, text};
  if (!qn__map_put(&p->visible, qn__str(text), entry) ||
      !qn__ptrmap_put(&p->names, entity, entry)) {
    p->out->has_failed = true;
    return;
  }
  p->block = entry;
}

void qn__print_close_names(qn__printer_t* p, qn__printed_name_t* outer) {
  for (qn__printed_name_t* name = p->block; name; name = name->next) {
    // No name is declared while another of the same text is visible.
    assert(qn__map_get(&p->visible, qn__str(name->text)) == name);
    (void)qn__map_remove(&p->visible, qn__str(name->text));
  }
  p->block = outer;
}

// ------------------------------------------------------------------------------------ lines

void qn__print_newline(qn__printer_t* p) {
  if (!p->is_raw && p->arena) qn__text_wrap(p->out, p->line_begin);
  p->is_raw = false;
  qn__buffer_char(p->out, '\n');
  p->line_begin = p->out->size;
  for (uint32_t i = 0; i < p->indent * QN__LAYOUT_INDENT; i++) qn__buffer_char(p->out, ' ');
}

// ------------------------------------------------------------------------------------ statements

static void print_stmt(qn__printer_t* p, const qn__ir_stmt_t* stmt);

void qn__print_lines(qn__printer_t* p, const qn__ir_block_t* block) {
  p->indent++;
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    qn__print_newline(p);
    print_stmt(p, stmt);
  }
  p->indent--;
  qn__print_newline(p);
  qn__buffer_char(p->out, '}');
}

static void print_block(qn__printer_t* p, const qn__ir_block_t* block) {
  qn__printed_name_t* outer = p->block;
  p->block = NULL;
  qn__buffer_cstr(p->out, " {");
  qn__print_lines(p, block);
  qn__print_close_names(p, outer);
}

void qn__print_let(qn__printer_t* p, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->let.var;
  // The name is declared after the value, which does not see it, but must be chosen before.
  qn__print_declare(p, var, var->name, "v");
  qn__buffer_format(p->out, "let %s = ", qn__print_name(p, var, var->name));
  qn__print_expr(p, stmt->let.value, qn__print_default(stmt->let.value), 0);
  qn__buffer_char(p->out, ';');
}

static void print_shape(qn__printer_t* p, const qn__ir_buffer_t* buffer) {
  qn__buffer_cstr(p->out, qn_dtype_text(buffer->dtype));
  qn__print_indices(p, buffer->shape, buffer->rank);
  if (buffer->strides) {
    qn__buffer_cstr(p->out, " strides ");
    qn__print_indices(p, buffer->strides, buffer->rank);
  }
}

static void print_alloc(qn__printer_t* p, const qn__ir_buffer_t* buffer) {
  qn__buffer_t* out = p->out;
  qn__print_declare(p, buffer, buffer->name, "b");
  const char* name = qn__print_name(p, buffer, buffer->name);
  bool is_table = buffer->scope == QN__SCOPE_CONST;
  bool is_view = buffer->scope == QN__SCOPE_VIEW;
  qn__buffer_format(out, "%s %s: ", is_table ? "const" : is_view ? "view" : "alloc", name);
  print_shape(p, buffer);
  if (is_table) {
    qn__buffer_cstr(out, " = [");
    for (size_t i = 0; i < buffer->element_count; i++) {
      if (i > 0) qn__buffer_cstr(out, ", ");
      qn__print_expr(p, buffer->elements[i], buffer->dtype, 0);
    }
    qn__buffer_cstr(out, "];");
  } else if (is_view) {
    qn__buffer_format(out, " = %s", qn__print_name(p, buffer->base, buffer->base->name));
    qn__print_indices(p, buffer->base_indices, buffer->base->rank);
    qn__buffer_char(out, ';');
  } else {
    qn__buffer_format(out, " in %s;", qn__scope_text(buffer->scope));
  }
}

static void print_atomic(qn__printer_t* p, const qn__ir_stmt_t* stmt) {
  qn__buffer_t* out = p->out;
  const qn__ir_buffer_t* buffer = stmt->atomic.buffer;
  const qn__ir_var_t* result = stmt->atomic.result;
  if (result) {
    qn__print_declare(p, result, result->name, "v");
    qn__buffer_format(out, "let %s = ", qn__print_name(p, result, result->name));
  }
  qn__buffer_format(out, "%s(%s", qn__atomic_text(stmt->atomic.op),
                    qn__print_name(p, buffer, buffer->name));
  qn__print_indices(p, stmt->atomic.indices, buffer->rank);
  const qn__ir_expr_t* operands[] = {stmt->atomic.operand, stmt->atomic.operand2};
  for (int i = 0; i < 2 && operands[i]; i++) {
    qn__buffer_cstr(out, ", ");
    qn__print_expr(p, operands[i], buffer->dtype, 0);
  }
  qn__buffer_cstr(out, ");");
}

static void print_if(qn__printer_t* p, const qn__ir_stmt_t* stmt) {
  for (;;) {
    qn__buffer_cstr(p->out, "if ");
    qn__print_expr(p, stmt->if_.condition, QN_DTYPE_NONE, 0);
    print_block(p, &stmt->if_.then_block);
    const qn__ir_stmt_t* other = stmt->if_.else_block.first;
    if (!other) return;
    qn__buffer_cstr(p->out, " else");
    if (other->kind != QN__STMT_IF || other->next) break;
    qn__buffer_char(p->out, ' ');
    stmt = other;
  }
  print_block(p, &stmt->if_.else_block);
}

static void print_loop(qn__printer_t* p, const qn__ir_stmt_t* stmt) {
  qn__buffer_t* out = p->out;
  const qn__ir_var_t* var = stmt->loop.var;
  qn__printed_name_t* outer = p->block;
  p->block = NULL;
  qn__print_declare(p, var, var->name, "i");
  qn__buffer_format(out, "%s %s in ", qn__loop_kind_text(stmt->loop.kind),
                    qn__print_name(p, var, var->name));
  qn__print_expr(p, stmt->loop.begin, QN_DTYPE_I64, 0);
  qn__buffer_cstr(out, "..");
  qn__print_expr(p, stmt->loop.end, QN_DTYPE_I64, 0);
  qn__buffer_cstr(out, " {");
  if (stmt->loop.lane_count) {
    if (p->arena) qn__text_wrap(p->out, p->line_begin);
    qn__buffer_format(out, "  // %" PRIu32 " lanes", stmt->loop.lane_count);
    p->is_raw = true;
  }
  qn__print_lines(p, &stmt->loop.body);
  qn__print_close_names(p, outer);
}

static void print_tensor_ref(qn__printer_t* p, const qn__ir_tensor_ref_t* ref) {
  qn__buffer_cstr(p->out, qn__print_name(p, ref->buffer, ref->buffer->name));
  qn__print_indices(p, ref->indices, ref->buffer->rank);
}

// "copy a[0, 0] = x[i, 0], 8 of 8;", "wait 2;", "multiply acc[0] += a[0, 0] * b[0, 0], 4 by 2
// tiles, 32 steps, lane t % 32;", "product c[0, 0] = a[0, 0] * b[0, 0], n by m sums, k steps, form
// 2;", "tiles c[0] = a[0, 0] * b[0, 0], n rows, m panels, k words, after 0;": for readers only.
static void print_tensor(qn__printer_t* p, const qn__ir_tensor_t* tensor) {
  qn__buffer_t* out = p->out;
  p->is_raw = true;
  if (qn__tensor_extents(tensor) > 0) {
    static const char* const before[2][3] = {{"product ", " = ", " * "}, {"tiles ", " = ", " * "}};
    static const char* const after[2][3] = {{" by ", " sums, ", " steps, form "},
                                            {" rows, ", " panels, ", " words, after "}};
    bool is_tiles = tensor->kind == QN__TENSOR_TILES;
    for (uint32_t i = 0; i < QN__TENSOR_REFS; ++i) {
      qn__buffer_cstr(out, before[is_tiles][i]);
      print_tensor_ref(p, &tensor->refs[i]);
    }
    qn__buffer_cstr(out, ", ");
    for (uint32_t i = 0; i < QN__TENSOR_REFS; ++i) {
      qn__print_expr(p, tensor->extents[i], QN_DTYPE_I64, 0);
      qn__buffer_cstr(out, after[is_tiles][i]);
    }
    qn__print_expr(p, tensor->operand, QN_DTYPE_I64, 0);
    qn__buffer_char(out, ';');
    return;
  }
  if (tensor->kind == QN__TENSOR_WAIT) {
    qn__buffer_format(out, "wait %" PRIu32 ";", tensor->count);
    return;
  }
  if (tensor->kind == QN__TENSOR_FINISH) {
    qn__buffer_cstr(out, "finish ");
    print_tensor_ref(p, &tensor->refs[0]);
    qn__buffer_char(out, ';');
    return;
  }
  bool is_copy = tensor->kind == QN__TENSOR_COPY;
  qn__buffer_cstr(out, is_copy ? "copy " : "multiply ");
  for (uint32_t i = 0; i < tensor->ref_count; ++i) {
    if (i > 0) qn__buffer_cstr(out, is_copy ? " = " : i == 1 ? " += " : " * ");
    print_tensor_ref(p, &tensor->refs[i]);
  }
  if (!is_copy) {
    qn__buffer_format(out, ", %" PRIu32 " by %" PRIu32 " tiles, %" PRIu32 " steps, %s",
                      tensor->tiles[0], tensor->tiles[1], tensor->depth,
                      tensor->is_warpgroup ? "thread of warpgroup" : "lane");
  } else {
    qn__buffer_char(out, ',');
  }
  qn__buffer_char(out, ' ');
  qn__print_expr(p, tensor->operand, QN_DTYPE_I64, 0);
  if (is_copy) qn__buffer_format(out, " of %" PRIu32, tensor->count);
  qn__buffer_char(out, ';');
}

static void tell_place(qn__printer_t* p, const qn__ir_stmt_t* stmt) {
  for (; p->counted < p->out->size; p->counted++) p->line += p->out->data[p->counted] == '\n';
  if (!p->on_stmt(p->on_stmt_self, stmt, p->line)) p->out->has_failed = true;
}

static void print_stmt(qn__printer_t* p, const qn__ir_stmt_t* stmt) {
  qn__buffer_t* out = p->out;
  if (p->on_stmt) tell_place(p, stmt);
  switch (stmt->kind) {
    case QN__STMT_LET:
      qn__print_let(p, stmt);
      break;
    case QN__STMT_STORE: {
      const qn__ir_buffer_t* buffer = stmt->store.buffer;
      qn__buffer_cstr(out, qn__print_name(p, buffer, buffer->name));
      qn__print_indices(p, stmt->store.indices, buffer->rank);
      qn__buffer_cstr(out, " = ");
      qn__print_expr(p, stmt->store.value, buffer->dtype, 0);
      qn__buffer_char(out, ';');
      break;
    }
    case QN__STMT_ATOMIC:
      print_atomic(p, stmt);
      break;
    case QN__STMT_IF:
      print_if(p, stmt);
      break;
    case QN__STMT_LOOP:
      print_loop(p, stmt);
      break;
    case QN__STMT_WHILE:
      qn__buffer_cstr(out, "while ");
      qn__print_expr(p, stmt->while_.condition, QN_DTYPE_NONE, 0);
      print_block(p, &stmt->while_.body);
      break;
    case QN__STMT_ALLOC:
      print_alloc(p, stmt->alloc.buffer);
      break;
    case QN__STMT_BARRIER:
      qn__buffer_cstr(out, "barrier;");
      break;
    case QN__STMT_FENCE:
      qn__buffer_cstr(out, "fence;");
      break;
    case QN__STMT_ASSERT:
      qn__buffer_cstr(out, "assert ");
      qn__print_expr(p, stmt->assert_.condition, QN_DTYPE_NONE, 0);
      if (stmt->assert_.message && stmt->assert_.message[0]) {
        qn__buffer_cstr(out, ", ");
        qn__lexer_escape(qn__str(stmt->assert_.message), out);
      }
      qn__buffer_char(out, ';');
      break;
    case QN__STMT_TENSOR:
      print_tensor(p, stmt->tensor);
      break;
    case QN__STMT_LEAVE:
      qn__buffer_format(out, "%s;", qn__leave_text(stmt->leave));
      break;
    case QN__STMT_REDUCE:
      qn__print_several(p, stmt->several);
      break;
  }
}

// ------------------------------------------------------------------------------------ functions

static void print_params(qn__printer_t* p, const qn__ir_func_t* function) {
  qn__buffer_t* out = p->out;
  qn__buffer_format(out, "%s(", function->name);
  p->is_signature = true;
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_param_t* param = &function->params[i];
    if (i > 0) qn__buffer_cstr(out, ", ");
    if (param->scalar) {
      const qn__ir_var_t* scalar = param->scalar;
      qn__buffer_format(out, "%s: %s", scalar->name, qn_dtype_text(scalar->dtype));
      if (scalar->is_fixed) qn__buffer_format(out, " = %" PRId64, scalar->fixed_value);
      continue;
    }
    const qn__ir_buffer_t* buffer = param->buffer;
    if (buffer->access != QN_ACCESS_IN) {
      qn__buffer_format(out, "%s ", qn__access_text(buffer->access));
    }
    qn__buffer_format(out, "%s: ", buffer->name);
    print_shape(p, buffer);
    if (buffer->align_bytes > qn_dtype_size_bytes(buffer->dtype)) {
      qn__buffer_format(out, " align %" PRIu32, buffer->align_bytes);
    }
  }
  p->is_signature = false;
  qn__buffer_char(out, ')');
}

static void print_function(qn__printer_t* p, const qn__ir_func_t* function) {
  qn__printed_name_t* outer = p->block;
  p->block = NULL;
  assert(!outer && p->indent == 0);
  // Parameters and symbols first: they keep their names.
  for (size_t i = 0; i < function->symbol_count; i++) {
    qn__print_declare(p, function->symbols[i], function->symbols[i]->name, "s");
  }
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_param_t* param = &function->params[i];
    const void* entity = param->scalar ? (const void*)param->scalar : (const void*)param->buffer;
    qn__print_declare(p, entity, qn__param_name(param), "p");
  }
  p->line_begin = p->out->size;
  qn__buffer_cstr(p->out, "func ");
  print_params(p, function);
  if (function->is_fast) qn__buffer_cstr(p->out, " fast");
  print_block(p, &function->body);
  qn__buffer_char(p->out, '\n');
  qn__print_close_names(p, outer);
}

bool qn__text_print_places(const qn__ir_body_t* body, qn__buffer_t* out,
                           bool (*on_stmt)(void* self, const qn__ir_stmt_t* stmt, uint32_t line),
                           void* self) {
  qn__arena_t arena;
  qn__arena_init(&arena, out->allocator);
  qn__printer_t printer = {.out = out,
                           .arena = &arena,
                           .on_stmt = on_stmt,
                           .on_stmt_self = self,
                           .counted = out->size,
                           .line = 1};
  qn__map_init(&printer.visible, out->allocator);
  qn__map_init(&printer.suffixes, out->allocator);
  qn__ptrmap_init(&printer.names, out->allocator);
  qn__buffer_bytes(out, "", 0);
  for (const qn__ir_func_t* f = body->first; f && !out->has_failed; f = f->next) {
    if (f != body->first) qn__buffer_char(out, '\n');
    print_function(&printer, f);
    // Suffixes count from the start again in the next function.
    qn__map_deinit(&printer.suffixes);
  }
  qn__map_deinit(&printer.visible);
  qn__map_deinit(&printer.suffixes);
  qn__ptrmap_deinit(&printer.names);
  qn__arena_deinit(&arena);
  return !out->has_failed;
}

void qn__text_print(const qn__ir_body_t* body, qn__buffer_t* out) {
  (void)qn__text_print_places(body, out, NULL, NULL);
}

void qn__text_print_expr(const qn__ir_expr_t* expr, qn__buffer_t* out) {
  qn__printer_t printer = {.out = out};
  qn__print_expr(&printer, expr, expr->dtype, 0);
}

void qn__text_print_extent(const qn__ir_expr_t* expr, qn__buffer_t* out) {
  qn__printer_t printer = {.out = out, .is_signature = true};
  qn__print_expr(&printer, expr, expr->dtype, 0);
}

void qn__text_print_signature(const qn__ir_func_t* function, qn__buffer_t* out) {
  qn__printer_t printer = {.out = out};
  print_params(&printer, function);
}
