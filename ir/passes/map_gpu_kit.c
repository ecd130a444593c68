// ir/passes/map_gpu_kit.c: nodes, and questions about loops, for the mapping to a GPU.
//
// Not here: any decision. Thread rule: one thread per body. Read next: map_gpu.c.
#include <stdarg.h>
#include <stdio.h>

#include "base/dtype.h"
#include "ir/passes/map_gpu.h"

// ---- nodes

qn__ir_expr_t* qn__gmap_int(qn__gmap_t* map, int64_t value) {
  return qn__expr_int(map->arena, QN_DTYPE_I64, value);
}

qn__ir_expr_t* qn__gmap_use(qn__gmap_t* map, qn__ir_var_t* var) {
  return var ? qn__expr_var(map->arena, var) : NULL;
}

qn__ir_expr_t* qn__gmap_copy(qn__gmap_t* map, const qn__ir_expr_t* expr) {
  return expr ? qn__expr_replace(map->arena, expr, NULL, NULL) : NULL;
}

qn__ir_expr_t* qn__gmap_op(qn__gmap_t* map, qn_op_t op, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  if (!a || !b) return NULL;
  if ((op == QN_OP_ADD || op == QN_OP_SUB) && qn__expr_is_int(b, 0)) return a;
  if (op == QN_OP_ADD && qn__expr_is_int(a, 0)) return b;
  if (op == QN_OP_MUL && qn__expr_is_int(b, 1)) return a;
  if (op == QN_OP_MUL && qn__expr_is_int(a, 1)) return b;
  qn__ir_expr_t* expr = qn__expr_op(map->arena, op, a, b, NULL);
  int64_t value;
  if (expr && expr->dtype == QN_DTYPE_I64 && qn__expr_const_int(expr, &value)) {
    return qn__gmap_int(map, value);
  }
  return expr;
}

qn__ir_var_t* qn__gmap_var(qn__gmap_t* map, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                           const char* name) {
  qn__ir_var_t* var = qn__var_new(map->arena, kind, dtype, name);
  if (var) var->id = map->var_count++;
  return var;
}

qn__ir_buffer_t* qn__gmap_buffer(qn__gmap_t* map, qn__ir_scope_t scope, qn_dtype_t dtype,
                                 const char* name, uint32_t rank) {
  qn__ir_buffer_t* buffer = qn__buf_new(map->arena, scope, dtype, name, rank);
  if (buffer) buffer->id = map->buffer_count++;
  return buffer;
}

void qn__gmap_append(qn__ir_block_t* block, qn__ir_stmt_t* stmt) {
  if (stmt) qn__block_append(block, stmt);
}

void qn__gmap_let_var(qn__gmap_t* map, qn__ir_block_t* block, qn__ir_var_t* var,
                      qn__ir_expr_t* value) {
  if (!var || !value) return;
  qn__ir_stmt_t* let = qn__stmt_new(map->arena, QN__STMT_LET, var->loc);
  if (!let) return;
  var->kind = QN__VAR_LET;
  let->let.var = var;
  let->let.value = value;
  qn__block_append(block, let);
}

qn__ir_var_t* qn__gmap_let(qn__gmap_t* map, qn__ir_block_t* block, const char* name,
                           qn__ir_expr_t* value) {
  if (!value) return NULL;
  qn__ir_var_t* var = qn__gmap_var(map, QN__VAR_LET, value->dtype, name);
  qn__gmap_let_var(map, block, var, value);
  return var;
}

qn__ir_stmt_t* qn__gmap_loop(qn__gmap_t* map, qn_loop_kind_t kind, qn__ir_var_t* var,
                             qn__ir_expr_t* begin, qn__ir_expr_t* end) {
  if (!var || !begin || !end) return NULL;
  qn__ir_stmt_t* loop = qn__stmt_new(map->arena, QN__STMT_LOOP, var->loc);
  if (!loop) return NULL;
  loop->loop.kind = kind;
  loop->loop.var = var;
  loop->loop.begin = begin;
  loop->loop.end = end;
  return loop;
}

qn__ir_stmt_t* qn__gmap_if(qn__gmap_t* map, qn__ir_expr_t* condition) {
  if (!condition) return NULL;
  qn__ir_stmt_t* stmt = qn__stmt_new(map->arena, QN__STMT_IF, condition->loc);
  if (stmt) stmt->if_.condition = condition;
  return stmt;
}

static qn__ir_expr_t** no_indices(qn__gmap_t* map) {
  return qn__arena_alloc_array(map->arena, 1, sizeof(qn__ir_expr_t*));
}

qn__ir_stmt_t* qn__gmap_store(qn__gmap_t* map, qn__ir_buffer_t* buffer, qn__ir_expr_t* value) {
  if (!buffer || !value) return NULL;
  qn__ir_stmt_t* store = qn__stmt_new(map->arena, QN__STMT_STORE, value->loc);
  if (!store) return NULL;
  store->store.buffer = buffer;
  store->store.value = value;
  store->store.indices = no_indices(map);
  return store->store.indices ? store : NULL;
}

qn__ir_expr_t* qn__gmap_load(qn__gmap_t* map, qn__ir_buffer_t* buffer) {
  if (!buffer) return NULL;
  qn__ir_expr_t* load = qn__expr_new(map->arena, QN__EXPR_LOAD, buffer->dtype, buffer->loc);
  if (!load) return NULL;
  load->load.buffer = buffer;
  load->load.indices = no_indices(map);
  return load->load.indices ? load : NULL;
}

qn__ir_buffer_t* qn__gmap_cell(qn__gmap_t* map, qn__ir_block_t* block, qn__ir_scope_t scope,
                               qn_dtype_t dtype, const char* name) {
  qn__ir_buffer_t* buffer = qn__gmap_buffer(map, scope, dtype, name, 0);
  if (!buffer) return NULL;
  qn__ir_stmt_t* alloc = qn__stmt_new(map->arena, QN__STMT_ALLOC, buffer->loc);
  if (!alloc) return NULL;
  alloc->alloc.buffer = buffer;
  qn__block_append(block, alloc);
  return buffer;
}

void qn__gmap_refuse(qn__gmap_t* map, const char* format, ...) {
  if (qn__gmap_stopped(map)) return;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  map->status =
      qn_status_make(QN_STATUS_UNSUPPORTED, "function '%s': %s", map->function->name, text);
}

// Cannot be so large that a difference of two leaves the range: counts, loops over them, and what
// is computed of those. Scalars and i64 data can.
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
static qn__ir_expr_t* range(qn__gmap_t* map, const qn__ir_expr_t* begin, const qn__ir_expr_t* end,
                            bool is_cut) {
  int64_t first, last, count;
  if (qn__expr_const_int(begin, &first) && qn__expr_const_int(end, &last)) {
    if (last < first) return qn__gmap_int(map, 0);
    return qn__gmap_int(map, __builtin_sub_overflow(last, first, &count) ? INT64_MAX : count);
  }
  qn__ir_expr_t* most = qn__gmap_copy(map, end);
  if (is_moderate(begin) && is_moderate(end)) {
    qn__ir_expr_t* count_of = qn__gmap_op(map, QN_OP_SUB, most, qn__gmap_copy(map, begin));
    return is_cut ? qn__gmap_op(map, QN_OP_MAX, count_of, qn__gmap_int(map, 0)) : count_of;
  }
  // The subtraction then leaves the range for no empty loop.
  most = qn__gmap_op(map, QN_OP_MAX, most, qn__gmap_copy(map, begin));
  return qn__gmap_op(map, QN_OP_SUB, most, qn__gmap_copy(map, begin));
}

qn__ir_expr_t* qn__gmap_range(qn__gmap_t* map, const qn__ir_expr_t* begin,
                              const qn__ir_expr_t* end) {
  return range(map, begin, end, true);
}

qn__ir_expr_t* qn__gmap_extent(qn__gmap_t* map, const qn__ir_stmt_t* loop) {
  return range(map, loop->loop.begin, loop->loop.end, true);
}

qn__ir_expr_t* qn__gmap_reduce_extent(qn__gmap_t* map, const qn__ir_expr_t* reduce) {
  return range(map, reduce->reduce.begin, reduce->reduce.end, false);
}

int64_t qn__gmap_trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end) {
  int64_t first, last, extent;
  if (!qn__expr_const_int(begin, &first) || !qn__expr_const_int(end, &last)) return -1;
  if (__builtin_sub_overflow(last, first, &extent)) return -1;
  return extent > 0 ? extent : 0;
}

// ---- questions

bool qn__gmap_any_stmt(qn__ir_block_t* block, bool (*is_it)(const qn__ir_stmt_t* stmt)) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (is_it(stmt)) return true;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (qn__gmap_any_stmt(blocks[i], is_it)) return true;
    }
  }
  return false;
}

bool qn__gmap_is_concurrent(const qn__ir_stmt_t* stmt) {
  if (stmt->kind != QN__STMT_LOOP) return false;
  qn_loop_kind_t kind = stmt->loop.kind;
  return kind == QN_LOOP_PARALLEL || qn__loop_is_block(kind) || qn__loop_is_thread(kind);
}

static bool has_exchange(void* found, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_OP) {
    qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
    if (rule == QN__RULE_LANE || rule == QN__RULE_GROUP) *(bool*)found = true;
  }
  return !*(bool*)found && qn__expr_each_child(*slot, has_exchange, found);
}

bool qn__gmap_meets(qn__ir_block_t* block) {
  bool is_found = false;
  for (qn__ir_stmt_t* stmt = block->first; stmt && !is_found; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_BARRIER) return true;
    (void)qn__stmt_each_expr(stmt, has_exchange, &is_found);
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count && !is_found; ++i) is_found = qn__gmap_meets(blocks[i]);
  }
  return is_found;
}

typedef struct use {
  const qn__ir_var_t* var;
  bool is_found;
} use_t;

static bool find_use(void* context, qn__ir_expr_t** slot) {
  use_t* self = context;
  if ((*slot)->kind == QN__EXPR_VAR && (*slot)->var == self->var) self->is_found = true;
  return !self->is_found && qn__expr_each_child(*slot, find_use, self);
}

bool qn__gmap_uses_var(qn__ir_expr_t* expr, const qn__ir_var_t* var) {
  use_t use = {var, false};
  (void)find_use(&use, &expr);
  return use.is_found;
}

bool qn__gmap_is_pure(const qn__gmap_t* map, qn__ir_expr_t* expr) {
  qn__expr_facts_t facts = qn__expr_facts(expr);
  return !facts.has_load && !facts.has_reduce && !facts.has_cross_lane &&
         !(facts.has_division && map->options->is_checked);
}

// ---- independent iterations

qn__lanes_t* qn__gmap_lanes(qn__gmap_t* map) {
  if (map->arena->is_exhausted) return NULL;
  if (map->lanes.var_count < map->var_count || map->lanes.buffer_count < map->buffer_count) {
    // With room, so that a few more variables need no new arrays.
    qn__ir_func_t counts = {.var_count = map->var_count + 256,
                            .buffer_count = map->buffer_count + 64};
    if (!qn__lanes_init(&map->lanes, map->arena, &counts)) {
      map->lanes = (qn__lanes_t){0};
      return NULL;
    }
  }
  return &map->lanes;
}

// What keeps a serial loop's iterations in order whatever it stores.
static bool is_ordered(const qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_ATOMIC || stmt->kind == QN__STMT_WHILE ||
      stmt->kind == QN__STMT_BARRIER) {
    return true;
  }
  return stmt->kind == QN__STMT_LOOP &&
         (qn__loop_is_block(stmt->loop.kind) || qn__loop_is_thread(stmt->loop.kind));
}

void qn__gmap_mark_free(qn__gmap_t* map, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) qn__gmap_mark_free(map, blocks[i]);
    if (stmt->kind != QN__STMT_LOOP) continue;
    qn_loop_kind_t kind = stmt->loop.kind;
    stmt->loop.lane_count = kind == QN_LOOP_PARALLEL || kind == QN_LOOP_VECTOR;
    // Threads that never meet are independent iterations too.
    if (qn__loop_is_thread(kind)) stmt->loop.lane_count = !qn__gmap_meets(&stmt->loop.body);
    if (kind != QN_LOOP_SERIAL && kind != QN_LOOP_UNROLL) continue;
    qn__lanes_t* lanes = qn__gmap_lanes(map);
    if (!lanes) return;
    if (qn__gmap_any_stmt(&stmt->loop.body, is_ordered)) continue;
    qn__lanes_enter(lanes, stmt->loop.var, &stmt->loop.body);
    stmt->loop.lane_count = qn__lanes_is_independent(lanes, &stmt->loop.body) ||
                            qn__lanes_is_tiled(lanes, map->arena, stmt->loop.var, &stmt->loop.body);
  }
}

static bool clear_mark(void* self, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_REDUCE) (*slot)->reduce.lane_count = 0;
  return qn__expr_each_child(*slot, clear_mark, self);
}

void qn__gmap_serialise(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    (void)qn__stmt_each_expr(stmt, clear_mark, NULL);
    if (stmt->kind == QN__STMT_LOOP) {
      stmt->loop.lane_count = 0;
      if (stmt->loop.kind != QN_LOOP_UNROLL) stmt->loop.kind = QN_LOOP_SERIAL;
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) qn__gmap_serialise(blocks[i]);
  }
}
