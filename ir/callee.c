// ir/callee.c: expands a call of a function with a value.
//
// Expressions have no lets of their own. Where a block runs exactly when the call is evaluated, it
// takes the lets of the function and those of the arguments. Elsewhere (under `?:`, `&&`, `||`, in
// the condition of a while, in bounds and shapes) the trees are substituted. Both give the same
// value, since expressions change nothing. Substitution may grow exponentially, so every tree is
// measured before it is made.
#include "ir/callee.h"

#include "base/integer.h"

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

typedef struct mover {
  qn__ir_loc_t from;
  qn__ir_loc_t to;
} mover_t;

static bool move_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  const mover_t* mover = walker->self;
  // Those before the function wrap around.
  if (expr->loc.begin - mover->from.begin < mover->from.size) expr->loc = mover->to;
  return true;
}

// Copies a tree of the function, with the place of the call.
static qn__ir_expr_t* copy_tree(const qn__callee_t* callee, qn__expansion_t* expansion,
                                const qn__ir_expr_t* tree, stand_in_t* out_measures) {
  measure_t m = {true, 0};
  out_measures->height = measure(&m, tree);
  out_measures->node_count = m.node_count;
  *expansion->node_count = add_saturating(*expansion->node_count, m.node_count);
  if (*expansion->node_count > QN__LARGEST_EXPANSION) {
    expansion->is_too_large = true;
    return NULL;
  }
  qn__ir_subst_t subst = {.on_var = stand_in_of, .arena = expansion->arena};
  qn__ir_expr_t* copy = qn__expr_clone(&subst, tree);
  mover_t mover = {callee->text, expansion->loc};
  qn__ir_walker_t walker = {.on_expr = move_expr, .self = &mover};
  if (copy) (void)qn__walk_expr(&walker, copy);
  return copy;
}

// Appends a let, and returns its variable as an expression.
static qn__ir_expr_t* append_let(qn__expansion_t* expansion, const char* name,
                                 qn__ir_expr_t* value) {
  qn__ir_stmt_t* stmt = qn__stmt_new(expansion->arena, QN__STMT_LET, expansion->loc);
  qn__ir_var_t* var = qn__var_new(expansion->arena, QN__VAR_LET, value->dtype, name);
  qn__ir_expr_t* expr = var ? qn__expr_var(expansion->arena, var) : NULL;
  if (!stmt || !expr) return NULL;
  var->loc = expr->loc = expansion->loc;
  stmt->let.var = var;
  stmt->let.value = value;
  qn__block_append(expansion->lets, stmt);
  return expr;
}

static bool is_leaf(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_VAR || expr->kind == QN__EXPR_INT || expr->kind == QN__EXPR_FLOAT;
}

static bool bind_param(const qn__callee_t* callee, size_t i, qn__ir_expr_t* arg,
                       qn__expansion_t* expansion) {
  qn__ir_var_t* param = callee->function->params[i].scalar;
  stand_in_t* stand_in = QN__ARENA_NEW(expansion->arena, stand_in_t);
  if (!stand_in) return false;
  if (expansion->lets && !is_leaf(arg) && !callee->is_used_once[i]) {
    arg = append_let(expansion, param->name, arg);
    if (!arg) return false;
  }
  measure_t m = {false, 0};
  uint32_t height = measure(&m, arg);
  *stand_in = (stand_in_t){arg, m.node_count, height};
  param->user = stand_in;
  return true;
}

static bool bind_let(const qn__callee_t* callee, const qn__ir_stmt_t* let,
                     qn__expansion_t* expansion) {
  stand_in_t* stand_in = QN__ARENA_NEW(expansion->arena, stand_in_t);
  if (!stand_in) return false;
  stand_in->value = copy_tree(callee, expansion, let->let.value, stand_in);
  if (stand_in->value && expansion->lets) {
    stand_in->value = append_let(expansion, let->let.var->name, stand_in->value);
    stand_in->node_count = stand_in->height = 1;
  }
  let->let.var->user = stand_in;
  return stand_in->value != NULL;
}

qn__ir_expr_t* qn__callee_expand(const qn__callee_t* callee, qn__ir_expr_t* const* args,
                                 qn__expansion_t* expansion) {
  const qn__ir_func_t* function = callee->function;
  for (size_t i = 0; i < function->param_count; i++) {
    if (!bind_param(callee, i, args[i], expansion)) return NULL;
  }
  for (const qn__ir_stmt_t* let = function->body.first; let; let = let->next) {
    if (!bind_let(callee, let, expansion)) return NULL;
  }
  stand_in_t measures;
  qn__ir_expr_t* value = copy_tree(callee, expansion, callee->value, &measures);
  expansion->height = measures.height;
  expansion->weight = (uint32_t)measures.node_count;
  return value;
}
