// ir/passes/map_gpu.c: maps a function to a GPU: what the host does, and launches.
//
// The statements at the top of a function are dealt out:
//   - lets, asserts, conditions and bounds of loops that hold only integers which the host knows
//     stay on the host; so do allocations in global memory, tables, and views of such;
//   - a parallel loop, a serial one whose iterations are proven independent, and a nest of block or
//     thread loops is a launch;
//   - a serial loop around such launches stays a loop of the host if the host knows its bounds; an
//     `if` around them whose condition only the device knows becomes a test inside each of them;
//   - all that is left is collected into groups, which are launches of one block.
// What a group computes and a later launch uses travels through one element of global memory;
// arithmetic of what is at hand is computed again instead.
// The rest of the way stands in map_gpu.h. Thread rule: one thread per body. Read next:
// map_gpu_launch.c.
#include "ir/passes/map_gpu.h"

// `user` of what the host computes.
static char host_mark;

// ---- what the host knows

static bool host_knows(void* self, qn__ir_expr_t** slot) {
  const qn__ir_expr_t* expr = *slot;
  qn__dtype_class_t class = qn__dtype_class(expr->dtype);
  if (class == QN__CLASS_FLOAT || class == QN__CLASS_NONE) return false;
  switch (expr->kind) {
    case QN__EXPR_VAR:
      return expr->var->kind == QN__VAR_SYMBOL || expr->var->kind == QN__VAR_SCALAR ||
             expr->var->user == &host_mark;
    case QN__EXPR_LOAD:
    case QN__EXPR_REDUCE:
    case QN__EXPR_FLOAT:
    case QN__EXPR_BITCAST:
      return false;
    case QN__EXPR_OP: {
      qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
      if (rule == QN__RULE_LANE || rule == QN__RULE_GROUP) return false;
      // The host computes in i64.
      if (expr->args[0]->dtype == QN_DTYPE_U64) return false;
      break;
    }
    default:
      break;
  }
  return qn__expr_each_child(*slot, host_knows, self);
}

bool qn__gmap_is_host(qn__ir_expr_t* expr) {
  return host_knows(NULL, &expr);
}

typedef struct top {
  qn__gmap_t* map;
  qn__gmap_unit_t* group;  // that is open; its anchor is not in the list yet
} top_t;

static void deal(top_t* top, qn__ir_block_t* block, const qn__gmap_guard_t* guards);

// ---- units

static qn__gmap_unit_t* open_unit(top_t* top, qn__gmap_unit_kind_t kind, const qn__ir_block_t* home,
                                  const qn__gmap_guard_t* guards) {
  qn__gmap_t* map = top->map;
  qn__gmap_unit_t* unit = QN__ARENA_NEW(map->arena, qn__gmap_unit_t);
  qn__ir_stmt_t* anchor = qn__stmt_new(map->arena, QN__STMT_LOOP, (qn__ir_loc_t){0, 0});
  if (!unit || !anchor) return NULL;
  unit->kind = kind;
  unit->home = home;
  unit->anchor = anchor;
  unit->guards = guards;
  if (map->last) {
    map->last->next = unit;
  } else {
    map->first = unit;
  }
  map->last = unit;
  return unit;
}

// The group's launch stands behind all that the host computes for it.
static void close_group(top_t* top, qn__ir_block_t* out) {
  if (top->group) qn__block_append(out, top->group->anchor);
  top->group = NULL;
}

static qn__gmap_unit_t* group_of(top_t* top, const qn__ir_block_t* home,
                                 const qn__gmap_guard_t* guards) {
  if (!top->group) top->group = open_unit(top, QN__GMAP_GROUP, home, guards);
  return top->group;
}

static void add_to_group(top_t* top, qn__ir_stmt_t* stmt, const qn__ir_block_t* home,
                         const qn__gmap_guard_t* guards) {
  qn__gmap_unit_t* group = group_of(top, home, guards);
  if (group) qn__gmap_append(&group->stmts, stmt);
}

static void launch(top_t* top, qn__gmap_unit_kind_t kind, qn__ir_stmt_t* stmt, qn__ir_block_t* out,
                   const qn__gmap_guard_t* guards) {
  close_group(top, out);
  qn__gmap_unit_t* unit = open_unit(top, kind, out, guards);
  if (!unit) return;
  unit->stmts = qn__block_of(stmt);
  qn__block_append(out, unit->anchor);
}

static qn__gmap_entity_t* entity_of(top_t* top, qn__ir_stmt_t* stmt, const qn__ir_block_t* home) {
  qn__gmap_entity_t* entity = QN__ARENA_NEW(top->map->arena, qn__gmap_entity_t);
  if (!entity) return NULL;
  entity->stmt = stmt;
  entity->home = home;
  return entity;
}

// ---- long reductions

typedef struct split {
  top_t* top;
  qn__ir_block_t* out;
  const qn__gmap_guard_t* guards;
} split_t;

static bool split_slot(void* context, qn__ir_expr_t** slot) {
  split_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind == QN__EXPR_REDUCE) {
    if (!qn__gmap_is_long(expr)) return true;
    qn__ir_stmt_t* loop = qn__gmap_split_long(self->top->map, slot);
    if (loop) launch(self->top, QN__GMAP_FREE, loop, self->out, self->guards);
    return loop != NULL;
  }
  // What is evaluated only sometimes stays where it is.
  if (qn__expr_is_lazy(expr)) return split_slot(self, &expr->args[0]);
  return qn__expr_each_child(expr, split_slot, self);
}

// Launches of their own for the long reductions of a statement, before it.
static void split_long(top_t* top, qn__ir_stmt_t* stmt, qn__ir_block_t* out,
                       const qn__gmap_guard_t* guards) {
  split_t split = {top, out, guards};
  (void)qn__stmt_each_expr(stmt, split_slot, &split);
}

// ---- lets

static void deal_let(top_t* top, qn__ir_stmt_t* stmt, qn__ir_block_t* out,
                     const qn__gmap_guard_t* guards) {
  qn__gmap_t* map = top->map;
  // What may divide by zero stays where it is tested, if it is.
  bool may_stay = !guards || !qn__expr_facts(stmt->let.value).has_division;
  if (may_stay && qn__gmap_is_host(stmt->let.value)) {
    stmt->let.var->user = &host_mark;
    qn__block_append(out, stmt);
    return;
  }
  qn__gmap_entity_t* entity = entity_of(top, stmt, out);
  if (!entity) return;
  stmt->let.var->user = entity;
  entity->is_sunk = qn__gmap_is_pure(map, stmt->let.value);
  if (entity->is_sunk) return;
  split_long(top, stmt, out, guards);
  add_to_group(top, stmt, out, guards);
  entity->unit = top->group;
}

typedef struct binder {
  top_t* top;
  qn__ir_block_t* out;
  const qn__gmap_guard_t* guards;
  const char* name;
} binder_t;

// Replaces an expression that the host does not know by a variable of the device.
static bool bind_slot(void* context, qn__ir_expr_t** slot) {
  binder_t* self = context;
  qn__gmap_t* map = self->top->map;
  if (!*slot || qn__gmap_is_host(*slot) || (*slot)->kind == QN__EXPR_VAR) return true;
  qn__ir_block_t block = {NULL, NULL};
  qn__ir_var_t* var = qn__gmap_let(map, &block, self->name, *slot);
  qn__ir_expr_t* use = qn__gmap_use(map, var);
  if (!use) return false;
  deal_let(self->top, block.first, self->out, self->guards);
  *slot = use;
  return true;
}

// ---- allocations

static bool base_is_host(const qn__ir_buffer_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) {
    if (buffer->user) return false;
    buffer = buffer->base;
  }
  return buffer->user == NULL;
}

static bool all_host(void* self, qn__ir_expr_t** slot) {
  (void)self;
  return qn__gmap_is_host(*slot);
}

static void deal_alloc(top_t* top, qn__ir_stmt_t* stmt, qn__ir_block_t* out,
                       const qn__gmap_guard_t* guards) {
  qn__ir_buffer_t* buffer = stmt->alloc.buffer;
  if (buffer->scope == QN__SCOPE_GLOBAL || buffer->scope == QN__SCOPE_CONST) {
    qn__block_append(out, stmt);
    return;
  }
  if (buffer->scope == QN__SCOPE_VIEW) {
    bool is_host = base_is_host(buffer->base) && qn__stmt_each_expr(stmt, all_host, NULL);
    if (is_host) {
      qn__block_append(out, stmt);
      return;
    }
    binder_t binder = {top, out, guards, "place"};
    if (!qn__stmt_each_expr(stmt, bind_slot, &binder)) return;
  }
  qn__gmap_entity_t* entity = entity_of(top, stmt, out);
  if (!entity) return;
  entity->is_sunk = buffer->scope == QN__SCOPE_VIEW;
  buffer->user = entity;
}

// ---- control flow

static const qn__gmap_guard_t* guard(top_t* top, qn__ir_var_t* var, bool is_negated,
                                     const qn__gmap_guard_t* outer) {
  qn__gmap_guard_t* self = QN__ARENA_NEW(top->map->arena, qn__gmap_guard_t);
  if (!self || !var) return NULL;
  *self = (qn__gmap_guard_t){var, is_negated, outer};
  return self;
}

static void deal_if(top_t* top, qn__ir_stmt_t* stmt, qn__ir_block_t* out,
                    const qn__gmap_guard_t* guards) {
  qn__ir_block_t alone = qn__block_of(stmt);
  if (!qn__gmap_any_stmt(&alone, qn__gmap_is_concurrent)) {
    add_to_group(top, stmt, out, guards);
    return;
  }
  if (qn__gmap_is_host(stmt->if_.condition)) {
    close_group(top, out);
    deal(top, &stmt->if_.then_block, guards);
    deal(top, &stmt->if_.else_block, guards);
    qn__block_append(out, stmt);
    return;
  }
  // Every launch inside tests the condition, as it was here.
  binder_t binder = {top, out, guards, "condition"};
  if (!bind_slot(&binder, &stmt->if_.condition)) return;
  qn__ir_var_t* var = stmt->if_.condition->var;
  close_group(top, out);
  qn__ir_block_t* blocks[2] = {&stmt->if_.then_block, &stmt->if_.else_block};
  for (int i = 0; i < 2; ++i) {
    const qn__gmap_guard_t* inner = guard(top, var, i == 1, guards);
    if (!inner) return;
    deal(top, blocks[i], inner);
    // Entities were declared in a list that now joins another one: their home is where they stood,
    // which is right for as long as it is compared only.
    qn__block_splice(out, blocks[i]);
  }
}

static void deal_loop(top_t* top, qn__ir_stmt_t* stmt, qn__ir_block_t* out,
                      const qn__gmap_guard_t* guards) {
  qn_loop_kind_t kind = stmt->loop.kind;
  if (qn__loop_is_block(kind) || qn__loop_is_thread(kind)) {
    launch(top, QN__GMAP_EXPLICIT, stmt, out, guards);
    return;
  }
  bool is_host = qn__gmap_is_host(stmt->loop.begin) && qn__gmap_is_host(stmt->loop.end);
  bool is_serial = kind == QN_LOOP_SERIAL || kind == QN_LOOP_UNROLL;
  if (is_serial && !qn__gmap_is_free(stmt)) {
    bool has_launch = qn__gmap_any_stmt(&stmt->loop.body, qn__gmap_is_concurrent);
    if (!is_host || !has_launch) {
      add_to_group(top, stmt, out, guards);
      return;
    }
    close_group(top, out);
    stmt->loop.kind = QN_LOOP_SERIAL;
    stmt->loop.var->user = &host_mark;
    deal(top, &stmt->loop.body, guards);
    qn__block_append(out, stmt);
    return;
  }
  if (!is_host) {
    binder_t binder = {top, out, guards, "bound"};
    if (!bind_slot(&binder, &stmt->loop.begin) || !bind_slot(&binder, &stmt->loop.end)) return;
  }
  launch(top, QN__GMAP_FREE, stmt, out, guards);
}

static void deal(top_t* top, qn__ir_block_t* block, const qn__gmap_guard_t* guards) {
  qn__gmap_t* map = top->map;
  // The list keeps its place: `home` of what it declares.
  qn__ir_stmt_t* stmt = block->first;
  *block = (qn__ir_block_t){NULL, NULL};
  qn__ir_stmt_t* next;
  for (; stmt && !qn__gmap_stopped(map); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    switch (stmt->kind) {
      case QN__STMT_LET:
        deal_let(top, stmt, block, guards);
        break;
      case QN__STMT_ALLOC:
        deal_alloc(top, stmt, block, guards);
        break;
      case QN__STMT_IF:
        deal_if(top, stmt, block, guards);
        break;
      case QN__STMT_LOOP:
        deal_loop(top, stmt, block, guards);
        break;
      case QN__STMT_ASSERT:
        if (!guards && qn__gmap_is_host(stmt->assert_.condition)) {
          qn__block_append(block, stmt);
        } else {
          split_long(top, stmt, block, guards);
          add_to_group(top, stmt, block, guards);
        }
        break;
      case QN__STMT_ATOMIC:
        split_long(top, stmt, block, guards);
        add_to_group(top, stmt, block, guards);
        if (stmt->atomic.result) {
          qn__gmap_entity_t* entity = entity_of(top, stmt, block);
          if (!entity) return;
          entity->unit = top->group;
          stmt->atomic.result->user = entity;
        }
        break;
      case QN__STMT_STORE:
        split_long(top, stmt, block, guards);
        add_to_group(top, stmt, block, guards);
        break;
      case QN__STMT_WHILE:
      case QN__STMT_BARRIER:
        add_to_group(top, stmt, block, guards);
        break;
    }
  }
  close_group(top, block);
}

static qn_status_t map_function(qn__arena_t* arena, const qn__pass_options_t* options,
                                qn__ir_func_t* function) {
  qn__function_number(function);
  qn__function_clear_user(function);
  qn__gmap_t map = {.arena = arena,
                    .options = options,
                    .function = function,
                    .warp_size = options->warp_size ? options->warp_size : 32,
                    .threads = options->preferred_threads ? options->preferred_threads : 256,
                    .max_threads = options->max_threads ? options->max_threads : 1024,
                    .var_count = function->var_count,
                    .buffer_count = function->buffer_count};
  if (map.threads > map.max_threads) map.threads = map.max_threads;
  qn__gmap_mark_free(&map, &function->body);
  top_t top = {&map, NULL};
  if (!qn__gmap_stopped(&map)) deal(&top, &function->body, NULL);
  if (!qn__gmap_stopped(&map)) qn__gmap_import(&map);
  for (qn__gmap_unit_t* unit = map.first; unit && !qn__gmap_stopped(&map); unit = unit->next) {
    qn__gmap_launch(&map, unit);
  }
  if (!qn_ok(map.status)) return map.status;
  if (arena->is_exhausted) return qn__out_of_memory("mapping to a gpu");
  qn__block_splice(&map.globals, &function->body);
  function->body = map.globals;
  // A loop of the host that was marked stays one.
  for (qn__ir_stmt_t* stmt = function->body.first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LOOP) stmt->loop.lane_count = 0;
  }
  qn__function_clear_user(function);
  return QN_OK;
}

static qn_status_t run(qn__ir_body_t* body, const qn__pass_options_t* options) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    QN_TRY(map_function(&body->arena, options, function));
  }
  return qn__pass_status(body, "mapping to a gpu");
}

const qn__pass_t qn__pass_map_gpu = {
    "map_gpu", "gives parallel loops blocks and threads, and the rest launches of its own", run};
