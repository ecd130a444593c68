// SPDX-License-Identifier: Apache-2.0
// ir/callee.c: expands a call of a function with a value.
//
// Expressions have no lets of their own. Where a block runs exactly when the call is evaluated, it
// takes the lets of the function and those of the arguments. Elsewhere (under `?:`, `&&`, `||`, in
// the condition of a while, in bounds and shapes) the trees are substituted. Both give the same
// value, since expressions change nothing. Substitution may grow exponentially, so every tree is
// measured before it is made.
#include "ir/callee.h"

#include "base/integer.h"
#include "ir/call_place.h"

// What stands for a parameter or let of the function at work, by the variable's `user`.
typedef struct stand_in {
  qn__ir_expr_t* value;
  uint64_t node_count;
  uint32_t height;
} stand_in_t;

// ------------------------------------------------------------------------------------ measures

typedef struct measure {
  bool has_stand_ins;
  uint64_t node_count;
} measure_t;

static uint64_t add_saturating(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Counts the nodes of a tree and returns its height.
static uint32_t measure(measure_t* m, const qn__ir_expr_t* expr) {
  const stand_in_t* stand_in =
      m->has_stand_ins && expr->kind == QN__EXPR_VAR ? expr->var->user : NULL;
  m->node_count = add_saturating(m->node_count, stand_in ? stand_in->node_count : 1);
  if (stand_in) return stand_in->height;
  uint32_t highest = 0;
  if (expr->kind == QN__EXPR_REDUCE) {
    const qn__ir_expr_t* parts[] = {expr->reduce.begin, expr->reduce.end, expr->reduce.value};
    for (size_t i = 0; i < QN_COUNT_OF(parts); i++) {
      uint32_t height = measure(m, parts[i]);
      if (height > highest) highest = height;
    }
    for (const qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      uint32_t height = measure(m, let->let.value);
      if (height > highest) highest = height;
    }
  }
  qn__ir_operands_t operands = qn__expr_operands(expr);
  for (size_t i = 0; i < operands.count; i++) {
    uint32_t height = measure(m, operands.items[i]);
    if (height > highest) highest = height;
  }
  return highest + 1;
}

// Adds up how often parameters are evaluated, by their `user`: 2 stands for often, sometimes or not
// known.
static void count_uses(const qn__ir_expr_t* expr, bool is_always) {
  if (expr->kind == QN__EXPR_VAR && expr->var->user) {
    uint8_t* count = expr->var->user;
    *count = *count == 0 && is_always ? 1 : 2;
  }
  if (expr->kind == QN__EXPR_REDUCE) {
    count_uses(expr->reduce.begin, is_always);
    count_uses(expr->reduce.end, is_always);
    count_uses(expr->reduce.value, false);
    for (const qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
      count_uses(let->let.value, false);
    }
  }
  bool is_lazy =
      expr->kind == QN__EXPR_COND ||
      (expr->kind == QN__EXPR_OP && (expr->op == QN_OP_LOGIC_AND || expr->op == QN_OP_LOGIC_OR));
  qn__ir_operands_t operands = qn__expr_operands(expr);
  for (size_t i = 0; i < operands.count; i++) {
    count_uses(operands.items[i], is_always && (!is_lazy || i == 0));
  }
}

bool qn__callee_init(qn__callee_t* callee, qn__arena_t* arena) {
  const qn__ir_func_t* function = callee->function;
  uint8_t* counts = qn__arena_alloc_array(arena, function->param_count, sizeof *counts);
  callee->is_used_once =
      qn__arena_alloc_array(arena, function->param_count, sizeof *callee->is_used_once);
  if (!counts || !callee->is_used_once) return false;
  for (size_t i = 0; i < function->param_count; i++) {
    counts[i] = 0;
    function->params[i].scalar->user = &counts[i];
  }
  for (const qn__ir_stmt_t* let = function->body.first; let; let = let->next) {
    count_uses(let->let.value, true);
  }
  count_uses(callee->value, true);
  for (size_t i = 0; i < function->param_count; i++) {
    callee->is_used_once[i] = counts[i] == 1;
    function->params[i].scalar->user = NULL;
  }
  return true;
}

// ------------------------------------------------------------------------------------ trees

static qn__ir_expr_t* stand_in_of(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  (void)subst;
  const stand_in_t* stand_in = var->user;
  return stand_in ? stand_in->value : NULL;
}

// What moves places of the function into the expansion.
typedef struct mover {
  const qn__callee_t* callee;
  qn__expansion_t* expansion;
  uint32_t call;  // the number of this one; those inside of the function follow in their order
} mover_t;

// Arguments keep their places.
static qn__ir_loc_t moved(const mover_t* mover, qn__ir_loc_t loc) {
  const qn__callee_t* callee = mover->callee;
  qn__ir_places_t* places = mover->expansion->places;
  qn__arena_t* arena = mover->expansion->arena;
  // The differences of those before wrap around.
  if (loc.begin - callee->text.begin < callee->text.size) {
    return qn__places_add(places, arena, loc, mover->call);
  }
  const qn__ir_place_t* place = qn__places_find(places, loc);
  if (!place || place->call - callee->first_call >= callee->call_count) return loc;
  return qn__places_add(places, arena, place->text,
                        place->call - callee->first_call + mover->call + 1);
}

static bool move_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  expr->loc = moved(walker->self, expr->loc);
  return true;
}

static bool move_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  stmt->loc = moved(walker->self, stmt->loc);
  return true;
}

// Returns whether the limit allows for so many more nodes.
static bool takes_nodes(qn__expansion_t* expansion, uint64_t count) {
  *expansion->node_count = add_saturating(*expansion->node_count, count);
  expansion->is_too_large = *expansion->node_count > QN__LARGEST_EXPANSION;
  return !expansion->is_too_large;
}

// Adds the call, and those inside of the function.
static bool add_calls(mover_t* mover) {
  const qn__callee_t* callee = mover->callee;
  qn__expansion_t* expansion = mover->expansion;
  qn__ir_places_t* places = expansion->places;
  if (callee->text.size == 0) return true;
  if (!takes_nodes(expansion, callee->call_count + UINT64_C(1))) return false;
  mover->call = places->call_count;
  bool is_added =
      qn__places_add_call(places, expansion->arena, callee->function->name, expansion->loc);
  for (uint32_t i = 0; i < callee->call_count && is_added; i++) {
    qn__ir_call_t inner = places->calls[callee->first_call + i];
    is_added = qn__places_add_call(places, expansion->arena, inner.name, moved(mover, inner.loc));
  }
  return is_added;
}

// ------------------------------------------------------------------------------------ expansion

// Copies a tree of the function.
static qn__ir_expr_t* copy_tree(mover_t* mover, const qn__ir_expr_t* tree,
                                stand_in_t* out_measures) {
  qn__expansion_t* expansion = mover->expansion;
  measure_t m = {true, 0};
  out_measures->height = measure(&m, tree);
  out_measures->node_count = m.node_count;
  if (!takes_nodes(expansion, m.node_count)) return NULL;
  qn__ir_subst_t subst = {.on_var = stand_in_of, .arena = expansion->arena};
  qn__ir_expr_t* copy = qn__expr_clone(&subst, tree);
  qn__ir_walker_t walker = {move_stmt, move_expr, mover};
  if (copy && mover->callee->text.size > 0) (void)qn__walk_expr(&walker, copy);
  return copy;
}

// Appends a let at a place, and returns its variable as an expression.
static qn__ir_expr_t* append_let(qn__expansion_t* expansion, const qn__ir_var_t* of,
                                 qn__ir_expr_t* value, qn__ir_loc_t loc) {
  qn__ir_stmt_t* stmt = qn__stmt_new(expansion->arena, QN__STMT_LET, loc);
  qn__ir_var_t* var = qn__var_new(expansion->arena, QN__VAR_LET, value->dtype, of->name);
  qn__ir_expr_t* expr = var ? qn__expr_var(expansion->arena, var) : NULL;
  if (!stmt || !expr) return NULL;
  var->loc = of->loc;
  expr->loc = loc;
  stmt->let.var = var;
  stmt->let.value = value;
  qn__block_append(expansion->lets, stmt);
  return expr;
}

static bool is_leaf(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_VAR || expr->kind == QN__EXPR_INT || expr->kind == QN__EXPR_FLOAT;
}

static bool bind_param(mover_t* mover, size_t i, qn__ir_expr_t* arg) {
  const qn__callee_t* callee = mover->callee;
  qn__expansion_t* expansion = mover->expansion;
  qn__ir_var_t* param = callee->function->params[i].scalar;
  stand_in_t* stand_in = QN__ARENA_NEW(expansion->arena, stand_in_t);
  if (!stand_in) return false;
  if (expansion->lets && !is_leaf(arg) && !callee->is_used_once[i]) {
    arg = append_let(expansion, param, arg, arg->loc);
    if (!arg) return false;
  }
  measure_t m = {false, 0};
  uint32_t height = measure(&m, arg);
  *stand_in = (stand_in_t){arg, m.node_count, height};
  param->user = stand_in;
  return true;
}

static bool bind_let(mover_t* mover, const qn__ir_stmt_t* let) {
  qn__expansion_t* expansion = mover->expansion;
  stand_in_t* stand_in = QN__ARENA_NEW(expansion->arena, stand_in_t);
  if (!stand_in) return false;
  stand_in->value = copy_tree(mover, let->let.value, stand_in);
  if (stand_in->value && expansion->lets) {
    stand_in->value = append_let(expansion, let->let.var, stand_in->value, moved(mover, let->loc));
    stand_in->node_count = stand_in->height = 1;
  }
  let->let.var->user = stand_in;
  return stand_in->value != NULL;
}

qn__ir_expr_t* qn__callee_expand(const qn__callee_t* callee, qn__ir_expr_t* const* args,
                                 qn__expansion_t* expansion) {
  const qn__ir_func_t* function = callee->function;
  mover_t mover = {.callee = callee, .expansion = expansion};
  if (!add_calls(&mover)) return NULL;
  for (size_t i = 0; i < function->param_count; i++) {
    if (!bind_param(&mover, i, args[i])) return NULL;
  }
  for (const qn__ir_stmt_t* let = function->body.first; let; let = let->next) {
    if (!bind_let(&mover, let)) return NULL;
  }
  stand_in_t measures;
  qn__ir_expr_t* value = copy_tree(&mover, callee->value, &measures);
  expansion->height = measures.height;
  expansion->weight = (uint32_t)measures.node_count;
  return value;
}
