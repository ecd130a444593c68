// SPDX-License-Identifier: Apache-2.0
// ir/passes/pass_builder.c: makes nodes, counts iterations, queries loops (pass_builder.h).
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "ir/passes/pass_builder.h"

static qn_status_t run_function(qn__pass_builder_t* pb, const qn__pass_t* pass) {
  qn__function_clear_user(pb->function);
  pb->var_count = pb->function->var_count;
  pb->buffer_count = pb->function->buffer_count;
  pass->run(pb);
  if (!qn_ok(pb->status)) return pb->status;
  if (pb->arena->is_exhausted) return qn__out_of_memory(pass->name);
  qn__block_splice(&pb->globals, &pb->function->body);
  pb->function->body = pb->globals;
  qn__function_clear_user(pb->function);
  return QN_OK;
}

qn_status_t qn__pb_run(qn__ir_body_t* body, const qn__pass_options_t* options,
                       const qn__pass_t* pass) {
  uint32_t max_threads = options->max_threads ? options->max_threads : 1024;
  uint32_t threads = options->preferred_threads ? options->preferred_threads : 256;
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    qn__pass_builder_t pb = {.arena = &body->arena,
                             .options = options,
                             .function = function,
                             .warp_size = options->warp_size ? options->warp_size : 32,
                             .threads = threads < max_threads ? threads : max_threads,
                             .max_threads = max_threads};
    QN_TRY(run_function(&pb, pass));
  }
  return QN_OK;
}

void qn__pb_refuse(qn__pass_builder_t* pb, const char* format, ...) {
  if (qn__pb_stopped(pb)) return;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  pb->status = qn_status_make(QN_STATUS_UNSUPPORTED, "function '%s': %s", pb->function->name, text);
}

// ---- nodes

qn__ir_expr_t* qn__pb_int(qn__pass_builder_t* pb, int64_t value) {
  return qn__expr_int(pb->arena, QN_DTYPE_I64, value);
}

qn__ir_expr_t* qn__pb_use(qn__pass_builder_t* pb, qn__ir_var_t* var) {
  return var ? qn__expr_var(pb->arena, var) : NULL;
}

qn__ir_expr_t* qn__pb_copy(qn__pass_builder_t* pb, const qn__ir_expr_t* expr) {
  return expr ? qn__expr_replace(pb->arena, expr, NULL, NULL) : NULL;
}

qn__ir_expr_t* qn__pb_op(qn__pass_builder_t* pb, qn_op_t op, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  if (!a || !b) return NULL;
  assert(a->dtype == b->dtype && qn__op_info(op)->arity == 2);
  if ((op == QN_OP_ADD || op == QN_OP_SUB) && qn__expr_is_int(b, 0)) return a;
  if (op == QN_OP_ADD && qn__expr_is_int(a, 0)) return b;
  if (op == QN_OP_MUL && qn__expr_is_int(b, 1)) return a;
  if (op == QN_OP_MUL && qn__expr_is_int(a, 1)) return b;
  qn__ir_expr_t* expr = qn__expr_op(pb->arena, op, a, b, NULL);
  int64_t value;
  if (expr && expr->dtype == QN_DTYPE_I64 && qn__expr_const_int(expr, &value)) {
    return qn__pb_int(pb, value);
  }
  return expr;
}

qn__ir_expr_t* qn__pb_op_int(qn__pass_builder_t* pb, qn_op_t op, qn__ir_expr_t* a, int64_t b) {
  return qn__pb_op(pb, op, a, qn__pb_int(pb, b));
}

qn__ir_var_t* qn__pb_var(qn__pass_builder_t* pb, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                         const char* name) {
  qn__ir_var_t* var = qn__var_new(pb->arena, kind, dtype, name);
  if (var) var->id = pb->var_count++;
  return var;
}

qn__ir_buffer_t* qn__pb_alloc(qn__pass_builder_t* pb, qn__ir_block_t* block, qn__ir_scope_t scope,
                              qn_dtype_t dtype, const char* name, int64_t rows, int64_t columns) {
  const int64_t extents[2] = {rows, columns};
  uint32_t rank = rows < 0 ? 0 : columns < 0 ? 1 : 2;
  qn__ir_buffer_t* buffer = qn__buf_new(pb->arena, scope, dtype, name, rank);
  qn__ir_stmt_t* alloc = qn__stmt_new(pb->arena, QN__STMT_ALLOC, (qn__ir_loc_t){0, 0});
  if (!buffer || !alloc) return NULL;
  buffer->id = pb->buffer_count++;
  for (uint32_t d = 0; d < rank; ++d) {
    buffer->shape[d] = qn__pb_int(pb, extents[d]);
    if (!buffer->shape[d]) return NULL;
  }
  alloc->alloc.buffer = buffer;
  qn__block_append(block, alloc);
  return buffer;
}

void qn__pb_append(qn__ir_block_t* block, qn__ir_stmt_t* stmt) {
  if (stmt) qn__block_append(block, stmt);
}

void qn__pb_let_var(qn__pass_builder_t* pb, qn__ir_block_t* block, qn__ir_var_t* var,
                    qn__ir_expr_t* value) {
  if (!var || !value) return;
  assert(var->dtype == value->dtype);
  qn__ir_stmt_t* let = qn__stmt_new(pb->arena, QN__STMT_LET, var->loc);
  if (!let) return;
  var->kind = QN__VAR_LET;
  let->let.var = var;
  let->let.value = value;
  qn__block_append(block, let);
}

qn__ir_var_t* qn__pb_let(qn__pass_builder_t* pb, qn__ir_block_t* block, const char* name,
                         qn__ir_expr_t* value) {
  if (!value) return NULL;
  qn__ir_var_t* var = qn__pb_var(pb, QN__VAR_LET, value->dtype, name);
  qn__pb_let_var(pb, block, var, value);
  return var;
}

qn__ir_stmt_t* qn__pb_loop(qn__pass_builder_t* pb, qn_loop_kind_t kind, qn__ir_var_t* var,
                           qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  if (!var || !begin || !end) return NULL;
  assert(begin->dtype == QN_DTYPE_I64 && end->dtype == QN_DTYPE_I64);
  qn__ir_stmt_t* loop = qn__stmt_new(pb->arena, QN__STMT_LOOP, var->loc);
  if (!loop) return NULL;
  loop->loop.kind = kind;
  loop->loop.var = var;
  loop->loop.begin = begin;
  loop->loop.end = end;
  return loop;
}

qn__ir_stmt_t* qn__pb_if(qn__pass_builder_t* pb, qn__ir_expr_t* condition, qn__ir_block_t body) {
  if (!condition) return NULL;
  assert(condition->dtype == QN_DTYPE_BOOL);
  qn__ir_stmt_t* stmt = qn__stmt_new(pb->arena, QN__STMT_IF, condition->loc);
  if (!stmt) return NULL;
  stmt->if_.condition = condition;
  stmt->if_.then_block = body;
  return stmt;
}

qn__ir_stmt_t* qn__pb_count_loop(qn__pass_builder_t* pb, qn_loop_kind_t kind, const char* name,
                                 qn__ir_expr_t* count) {
  qn__ir_var_t* var = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, name);
  return qn__pb_loop(pb, kind, var, qn__pb_int(pb, 0), count);
}

// Returns an array of as many indices as the buffer's rank. NULL if one is missing.
static qn__ir_expr_t** index_list(qn__pass_builder_t* pb, const qn__ir_buffer_t* buffer,
                                  qn__ir_expr_t* i, qn__ir_expr_t* j) {
  assert(buffer->rank <= 2);
  qn__ir_expr_t** list = qn__arena_alloc_array(pb->arena, 2, sizeof *list);
  if (!list || (buffer->rank > 0 && !i) || (buffer->rank > 1 && !j)) return NULL;
  list[0] = i;
  list[1] = j;
  return list;
}

qn__ir_stmt_t* qn__pb_store(qn__pass_builder_t* pb, qn__ir_buffer_t* buffer, qn__ir_expr_t* i,
                            qn__ir_expr_t* j, qn__ir_expr_t* value) {
  if (!buffer || !value) return NULL;
  assert(value->dtype == buffer->dtype && buffer->scope != QN__SCOPE_CONST);
  qn__ir_stmt_t* store = qn__stmt_new(pb->arena, QN__STMT_STORE, value->loc);
  if (!store) return NULL;
  store->store.buffer = buffer;
  store->store.value = value;
  store->store.indices = index_list(pb, buffer, i, j);
  return store->store.indices ? store : NULL;
}

qn__ir_expr_t* qn__pb_load(qn__pass_builder_t* pb, qn__ir_buffer_t* buffer, qn__ir_expr_t* i,
                           qn__ir_expr_t* j) {
  if (!buffer) return NULL;
  qn__ir_expr_t* load = qn__expr_new(pb->arena, QN__EXPR_LOAD, buffer->dtype, buffer->loc);
  if (!load) return NULL;
  load->load.buffer = buffer;
  load->load.indices = index_list(pb, buffer, i, j);
  return load->load.indices ? load : NULL;
}

qn__ir_expr_t* qn__pb_cast(qn__pass_builder_t* pb, qn_dtype_t dtype, qn__ir_expr_t* value) {
  if (!value || value->dtype == dtype) return value;
  qn__ir_expr_t* cast = qn__expr_new(pb->arena, QN__EXPR_CAST, dtype, value->loc);
  if (cast) cast->args[0] = value;
  return cast;
}

qn__ir_expr_t* qn__pb_cond(qn__pass_builder_t* pb, qn__ir_expr_t* condition, qn__ir_expr_t* a,
                           qn__ir_expr_t* b) {
  if (!condition || !a || !b) return NULL;
  assert(condition->dtype == QN_DTYPE_BOOL && a->dtype == b->dtype);
  qn__ir_expr_t* cond = qn__expr_new(pb->arena, QN__EXPR_COND, a->dtype, a->loc);
  if (!cond) return NULL;
  cond->args[0] = condition;
  cond->args[1] = a;
  cond->args[2] = b;
  return cond;
}

qn__ir_expr_t* qn__pb_zero(qn__pass_builder_t* pb, qn_dtype_t dtype) {
  return qn__expr_literal(pb->arena, dtype, (qn__ir_scalar_t){0});
}

qn__ir_expr_t* qn__pb_both(qn__pass_builder_t* pb, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  int64_t value;
  if (!a || !b) return NULL;
  if (qn__expr_const_int(a, &value)) return value ? b : a;
  if (qn__expr_const_int(b, &value)) return value ? a : b;
  return qn__pb_op(pb, QN_OP_LOGIC_AND, a, b);
}

qn__ir_expr_t* qn__pb_either(qn__pass_builder_t* pb, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  int64_t value;
  if (!a || !b) return NULL;
  if (qn__expr_const_int(a, &value)) return value ? a : b;
  if (qn__expr_const_int(b, &value)) return value ? b : a;
  return qn__pb_op(pb, QN_OP_LOGIC_OR, a, b);
}

qn__ir_expr_t* qn__pb_neutral(qn__pass_builder_t* pb, qn_reduce_kind_t kind, qn_dtype_t dtype) {
  return qn__expr_literal(pb->arena, dtype, qn__reduce_neutral(kind, dtype));
}

qn_op_t qn__reduce_op(qn_reduce_kind_t kind) {
  static const qn_op_t ops[] = {
      [QN_REDUCE_SUM] = QN_OP_ADD,
      [QN_REDUCE_PROD] = QN_OP_MUL,
      [QN_REDUCE_MIN] = QN_OP_MIN,
      [QN_REDUCE_MAX] = QN_OP_MAX,
  };
  return ops[kind];
}

qn__ir_expr_t* qn__pb_reduce_over(qn__pass_builder_t* pb, qn_reduce_kind_t kind, qn_dtype_t dtype,
                                  qn__ir_var_t* var, qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  if (!var || !begin || !end) return NULL;
  assert(begin->dtype == QN_DTYPE_I64 && end->dtype == QN_DTYPE_I64);
  qn__ir_expr_t* reduce = qn__expr_new(pb->arena, QN__EXPR_REDUCE, dtype, (qn__ir_loc_t){0, 0});
  if (!reduce) return NULL;
  reduce->reduce.reduce_kind = kind;
  reduce->reduce.reduce_var = var;
  reduce->reduce.begin = begin;
  reduce->reduce.end = end;
  return reduce;
}

qn__ir_expr_t* qn__pb_reduce(qn__pass_builder_t* pb, qn_reduce_kind_t kind, qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  if (!buffer || !begin || !end) return NULL;
  assert(buffer->rank == 1);
  qn__ir_var_t* k = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "k");
  qn__ir_expr_t* reduce = qn__pb_reduce_over(pb, kind, buffer->dtype, k, begin, end);
  if (!reduce) return NULL;
  reduce->reduce.value = qn__pb_load(pb, buffer, qn__pb_use(pb, k), NULL);
  return reduce->reduce.value ? reduce : NULL;
}

void qn__pb_barrier(qn__pass_builder_t* pb, qn__ir_block_t* block) {
  qn__pb_append(block, qn__stmt_new(pb->arena, QN__STMT_BARRIER, (qn__ir_loc_t){0, 0}));
}

// ---- counts of iterations

// Returns true if the difference of two such values cannot overflow: counts, variables of loops
// over them, and values computed from those. It may for scalars and i64 data.
static bool is_moderate(const qn__ir_expr_t* expr) {
  int64_t constant;
  if (qn__expr_const_int(expr, &constant)) return constant == (int32_t)constant;
  switch (expr->kind) {
    case QN__EXPR_VAR:
      return expr->var->kind == QN__VAR_SYMBOL || expr->var->kind == QN__VAR_LOOP ||
             expr->var->kind == QN__VAR_REDUCE;
    case QN__EXPR_CAST:
      return qn__dtype_is_int(expr->args[0]->dtype) && qn__dtype_bits(expr->args[0]->dtype) <= 32;
    case QN__EXPR_OP:
      break;
    default:
      return false;
  }
  switch (expr->op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_MIN:
    case QN_OP_MAX:
    case QN_OP_FLOORDIV:
    case QN_OP_CEILDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_SHR:
      return is_moderate(expr->args[0]) && is_moderate(expr->args[1]);
    default:
      return false;
  }
}

// `is_cut`: at 0, also where end - begin may be less without harm.
static qn__ir_expr_t* range(qn__pass_builder_t* pb, const qn__ir_expr_t* begin,
                            const qn__ir_expr_t* end, bool is_cut) {
  int64_t first, last, count;
  if (qn__expr_const_int(begin, &first) && qn__expr_const_int(end, &last)) {
    if (last < first) return qn__pb_int(pb, 0);
    return qn__pb_int(pb, __builtin_sub_overflow(last, first, &count) ? INT64_MAX : count);
  }
  qn__ir_expr_t* most = qn__pb_copy(pb, end);
  if (is_moderate(begin) && is_moderate(end)) {
    qn__ir_expr_t* count_of = qn__pb_op(pb, QN_OP_SUB, most, qn__pb_copy(pb, begin));
    return is_cut ? qn__pb_op_int(pb, QN_OP_MAX, count_of, 0) : count_of;
  }
  // Then the subtraction overflows for no empty loop.
  most = qn__pb_op(pb, QN_OP_MAX, most, qn__pb_copy(pb, begin));
  return qn__pb_op(pb, QN_OP_SUB, most, qn__pb_copy(pb, begin));
}

qn__ir_expr_t* qn__pb_range(qn__pass_builder_t* pb, const qn__ir_expr_t* begin,
                            const qn__ir_expr_t* end) {
  return range(pb, begin, end, true);
}

qn__ir_expr_t* qn__pb_extent(qn__pass_builder_t* pb, const qn__ir_stmt_t* loop) {
  return range(pb, loop->loop.begin, loop->loop.end, true);
}

qn__ir_expr_t* qn__pb_reduce_extent(qn__pass_builder_t* pb, const qn__ir_expr_t* reduce) {
  return range(pb, reduce->reduce.begin, reduce->reduce.end, false);
}

// ---- questions

static bool is_barrier(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_BARRIER;
}

bool qn__stmt_is_not_plain(const qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
    case QN__STMT_STORE:
    case QN__STMT_IF:
      return false;
    case QN__STMT_LOOP:
      return stmt->loop.kind != QN_LOOP_SERIAL && stmt->loop.kind != QN_LOOP_PARALLEL;
    case QN__STMT_ALLOC:
      return stmt->alloc.buffer->scope != QN__SCOPE_LOCAL;
    default:
      return true;
  }
}

bool qn__block_has_barrier(qn__ir_block_t* block) {
  return qn__block_any(block, is_barrier);
}

bool qn__block_synchronizes(qn__ir_block_t* block) {
  return qn__block_has_barrier(block) || qn__block_any(block, qn__stmt_orders_memory) ||
         qn__block_any_expr(block, qn__expr_is_exchange);
}

bool qn__pb_is_pure(const qn__pass_builder_t* pb, qn__ir_expr_t* expr) {
  qn__ir_expr_facts_t facts = qn__expr_facts(expr);
  return !facts.has_load && !facts.has_reduce && !facts.has_cross_lane &&
         !(facts.has_division && pb->options->is_checked);
}

qn__lanes_t* qn__pb_lanes(qn__pass_builder_t* pb) {
  if (pb->arena->is_exhausted) return NULL;
  if (pb->lanes.var_count < pb->var_count || pb->lanes.buffer_count < pb->buffer_count) {
    // Reserve room, so that a few more variables need no new arrays.
    qn__ir_func_t counts = {.var_count = pb->var_count + 256,
                            .buffer_count = pb->buffer_count + 64};
    if (!qn__lanes_init(&pb->lanes, pb->arena, &counts)) {
      pb->lanes = (qn__lanes_t){0};
      return NULL;
    }
  }
  return &pb->lanes;
}

static bool clear_mark(void* self, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) (*slot)->reduce.is_cooperative = false;
  return qn__expr_each_child(*slot, clear_mark, self);
}

void qn__block_serialize(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, clear_mark, NULL);
    if (stmt->kind == QN__STMT_LOOP) {
      stmt->loop.is_independent = stmt->loop.is_cooperative = false;
      if (stmt->loop.kind != QN_LOOP_UNROLL) stmt->loop.kind = QN_LOOP_SERIAL;
    }
    QN__EACH_BLOCK(stmt, inner) qn__block_serialize(inner);
  }
}
