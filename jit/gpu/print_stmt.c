// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_stmt.c: statements of the kernel printer.
//
// Not here: loops, launches and barriers between thread nests (print_loop.c).
#include "ir/ptrmap.h"
#include "jit/gpu/print_inner.h"

// ---- declarations

void qn__kprint_table(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  const char** slot = &p->buffer_names[buffer->id];
  if (*slot) return;
  *slot = qn__kprint_text(p, "c%" PRIu32, p->table_count++);
  if (buffer->dtype == QN_DTYPE_F64 && p->dialect->is_glsl && !p->options->has_int64) {
    qn__kprint_unsupported(p, "'%s' is a table of the bits of f64 (option supports_int64)",
                           buffer->name);
    return;
  }
  qn__buffer_t elements;
  qn__buffer_init(&elements, p->arena->allocator);
  bool is_float = qn__dtype_is_float(buffer->dtype);
  bool is_double = buffer->dtype == QN_DTYPE_F64;
  for (size_t i = 0; i < buffer->element_count; ++i) {
    const qn__ir_expr_t* element = buffer->elements[i];
    qn_dtype_t dtype = buffer->dtype;
    int64_t value = element->int_value;
    if (qn__dtype_is_real(dtype)) {
      dtype = is_double ? QN_DTYPE_U64 : QN_DTYPE_U32;
      qn__ir_scalar_t scalar = {.f = element->float_value};
      value = (int64_t)qn__scalar_to_bits(buffer->dtype, scalar);
    }
    if (i > 0) qn__buffer_cstr(&elements, i % 16 == 0 ? ",\n    " : ", ");
    qn__buffer_cstr(&elements, qn__kprint_int(p, dtype, false, value));
  }
  if (elements.has_failed) {
    qn__kprint_no_memory(p);
  } else {
    const char* type = qn__kprint_type(buffer->dtype, false);
    if (is_float) type = is_double ? "qn_u64" : "uint";
    qn__gpu_lines_t* at = p->at;
    uint32_t indent = p->indent;
    p->at = &p->outer;
    p->indent = 0;
    size_t count = buffer->element_count;
    p->dialect->table(p, *slot, type, count, count ? (const char*)elements.data : "0");
    p->at = at;
    p->indent = indent;
  }
  qn__buffer_deinit(&elements);
}

static void print_shared(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  (void)qn__kprint_buffer(p, buffer);
  const qn__ir_buffer_t** shared =
      qn__arena_grow(p->arena, p->shared, p->shared_count, &p->shared_capacity, sizeof *shared);
  if (!shared) {
    qn__kprint_no_memory(p);
    return;
  }
  p->shared = shared;
  p->shared[p->shared_count++] = buffer;
}

static void print_alloc(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  switch (buffer->scope) {
    case QN__SCOPE_LOCAL: {
      int64_t count = qn__kprint_element_count(buffer);
      qn__kprint_line(p, "%s %s[%" PRId64 "];", qn__kprint_type(buffer->dtype, false),
                      qn__kprint_buffer(p, buffer), count > 0 ? count : 1);
      break;
    }
    case QN__SCOPE_SHARED:
      print_shared(p, buffer);
      break;
    case QN__SCOPE_CONST:
      qn__kprint_table(p, buffer);
      break;
    case QN__SCOPE_VIEW:
      qn__kprint_view(p, buffer);
      break;
    default:
      (void)QN_NEVER(true);
      break;
  }
}

// ---- values

static void print_exchange(qn__gpu_printer_t* p, const qn__ir_var_t* var,
                           const qn__ir_expr_t* expr) {
  const char* value = qn__kprint_value(p, expr->args[0], false);
  const char* lane = NULL;
  bool is_lane_narrow = false;
  if (qn__op_info(expr->op)->rule == QN__RULE_LANE) {
    is_lane_narrow = qn__kprint_is_narrow(p, expr->args[1]) ||
                     (expr->args[1]->kind == QN__EXPR_INT && expr->args[1]->int_value >= 0 &&
                      expr->args[1]->int_value <= INT32_MAX);
    lane = qn__kprint_i64(p, expr->args[1], is_lane_narrow);
  }
  p->has_block_exchange |= qn__kprint_is_block_op(expr->op);
  bool is_var_narrow = qn__kprint_is_narrow_var(p, var);
  const char* name = is_var_narrow ? qn__kprint_temp(p) : qn__kprint_var(p, var);
  p->dialect->exchange(p, expr->op, expr->dtype, value, lane, is_lane_narrow, name);
  if (is_var_narrow) {
    const char* narrow = qn__kprint_var(p, var);
    qn__kprint_line(p, "const int %s = int(%s);", narrow, name);
  }
}

void qn__kprint_let(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->let.var;
  if (qn__expr_is_exchange(stmt->let.value)) {
    print_exchange(p, var, stmt->let.value);
    return;
  }
  bool is_narrow = qn__kprint_is_narrow_var(p, var);
  const char* value = qn__kprint_value(p, stmt->let.value, is_narrow);
  const char* name = qn__kprint_var(p, var);
  qn__kprint_note_var(p, var, stmt->let.value);
  qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(var->dtype, is_narrow), name,
                  qn__kprint_bare(p, value));
}

static void print_store(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* root;
  const char* index = qn__kprint_index(p, stmt->store.buffer, stmt->store.indices, &root);
  const char* value = qn__kprint_value(p, stmt->store.value, false);
  if (qn__kprint_wide_store(p, stmt, qn__kprint_bare(p, value))) return;
  if (p->is_predicated) qn__kprint_open(p, "if (qn_alive)");
  if (root->scope == QN__SCOPE_LOCAL) {
    qn__kprint_line(p, "%s[%s] = %s;", qn__kprint_buffer(p, root), qn__kprint_array_index(p, index),
                    value);
  } else {
    p->dialect->store(p, root, index, qn__kprint_bare(p, value));
  }
  if (p->is_predicated) qn__kprint_close(p);
}

static void print_assert(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  const char* condition = qn__kprint_expr(p, stmt->assert_.condition);
  const char* message = stmt->assert_.message;
  uint32_t site = qn__kprint_site(p, (qn_artifact_site_t){.kind = QN_SITE_ASSERT,
                                                          .buffer_id = UINT32_MAX,
                                                          .place = stmt->loc.begin,
                                                          .message = message ? message : ""});
  qn__kprint_require(p, condition, site, NULL, NULL, false);
}

static void print_if(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  const char* condition = qn__kprint_expr(p, stmt->if_.condition);
  bool needed_barrier = p->needs_barrier;
  qn__kprint_open(p, "if (%s)", qn__kprint_bare(p, condition));
  qn__kprint_block(p, &stmt->if_.then_block);
  bool needs_after_then = p->needs_barrier;
  qn__kprint_close(p);
  p->needs_barrier = needed_barrier;
  if (stmt->if_.else_block.first) {
    qn__kprint_open(p, "else");
    qn__kprint_block(p, &stmt->if_.else_block);
    qn__kprint_close(p);
  }
  p->needs_barrier |= needs_after_then;
}

// ---- all

static void print_one(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  // A let of a reduction has no line of its own.
  uint32_t line = p->places ? (uint32_t)(uintptr_t)qn__ptrmap_get(p->places, stmt) : 0;
  if (line) p->ir_line = line;
  p->place = stmt->loc.begin;
  switch (stmt->kind) {
    case QN__STMT_LET:
      qn__kprint_let(p, stmt);
      break;
    case QN__STMT_STORE:
      print_store(p, stmt);
      break;
    case QN__STMT_ATOMIC:
      qn__kprint_atomic(p, stmt);
      break;
    case QN__STMT_IF:
      print_if(p, stmt);
      break;
    case QN__STMT_LOOP:
    case QN__STMT_WHILE:
      qn__kprint_loop(p, stmt);
      break;
    case QN__STMT_ALLOC:
      print_alloc(p, stmt->alloc.buffer);
      break;
    case QN__STMT_BARRIER:
      qn__kprint_barrier(p);
      break;
    case QN__STMT_FENCE:
      p->is_ordered = true;
      p->dialect->fence(p);
      break;
    case QN__STMT_ASSERT:
      print_assert(p, stmt);
      break;
    case QN__STMT_TENSOR:
      if (!QN_NEVER(!p->dialect->tensor)) p->dialect->tensor(p, stmt->tensor);
      break;
    case QN__STMT_REDUCE:
    case QN__STMT_LEAVE:
      (void)QN_NEVER(true);  // passes replace them
      break;
  }
}

void qn__kprint_block(qn__gpu_printer_t* p, const qn__ir_block_t* block) {
  uint32_t line = p->ir_line;
  for (const qn__ir_stmt_t* stmt = block->first; stmt && qn__kprint_ok(p); stmt = stmt->next) {
    print_one(p, stmt);
  }
  p->ir_line = line;
}
