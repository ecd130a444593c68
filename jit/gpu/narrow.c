// jit/gpu/narrow.c: which i64 values of a kernel are computed in 32 bits, and when that is right.
//
// A kernel's indices are 64 bits wide in the IR and mostly small at a call. This finds a set of
// expressions that may be printed in 32 bits (the rule is in program.h) and collects what must hold
// for that: the guard, which the host evaluates at each launch.
//
//  1. Linear indices lie within their buffers, so all of one is right if its low 32 bits are, and
//     the buffer has at most 2^31 - 1 elements. Sums, products, negations, bits and left shifts
//     below an index need nothing more: their low bits follow from those of their operands.
//  2. Where the value itself counts (comparisons, divisions, bounds of loops, conversions, stores)
//  an
//     expression is narrow only if symbolic bounds exist (bounds.h), and the guard has both in
//     range. All of it then follows rule 1 again.
//  3. A variable is narrow if its value, or both bounds of its loop, are so proven. A loop that is
//  not
//     counts in 64 bits; its variable is cut where rule 1 allows it.
//  4. Blocks, and the threads of a nest, are counted in 32 bits: their products are in the guard.
//     What is multiplied there is cut at 0, as the kernel does.
//  5. What a loop's body computes is bounded as if the loop ran. When it does not, the bounds say
//     nothing true, and nobody asks: the guard may then choose either kernel.
//  6. A checked build compares every index with its extent, so indices count as values there; an
//     access through a view must not wrap around into the buffer underneath either.
//  7. In doubt there is no narrow kernel: it is an optimisation, never a need.
//
// Scalar parameters stay as wide as they are: one that is only passed on should not choose the
// kernel.
// Thread rule: one thread per kernel. Read next: launch.c.
#include "base/alloc.h"
#include "jit/gpu/needs.h"
#include "jit/gpu/nest.h"
#include "jit/gpu/split.h"

// ---- the answer

struct qn__gpu_widths {
  // A hash set of expressions, of a power of two of places.
  const qn__expr_t** places;
  size_t capacity;
  size_t count;
  uint32_t var_count;
  bool* vars;  // by id
};

static size_t place_of(const qn__gpu_widths_t* widths, const qn__expr_t* expr) {
  uintptr_t hash = (uintptr_t)expr >> 4;
  hash ^= hash >> 15;
  size_t place = hash & (widths->capacity - 1);
  while (widths->places[place] && widths->places[place] != expr) {
    place = (place + 1) & (widths->capacity - 1);
  }
  return place;
}

bool qn__gpu_is_narrow_expr(const qn__gpu_widths_t* widths, const qn__expr_t* expr) {
  return widths && widths->capacity != 0 && widths->places[place_of(widths, expr)] == expr;
}

bool qn__gpu_is_narrow_var(const qn__gpu_widths_t* widths, const qn__var_t* var) {
  return widths && var->id < widths->var_count && widths->vars[var->id];
}

// ---- the work

typedef struct state {
  qn__gpu_split_t* split;
  qn__arena_t* arena;
  qn__gpu_widths_t* widths;
  qn__bounds_t bounds;
  qn__interval_t* intervals;  // of the kernel's variables, by id
  bool* is_inside;            // variables of the kernel, by id
  bool* is_buffer_seen;       // by id
  uint8_t* host_signs;        // of values of the host, by id: sign_t
  qn__needs_t needs;
  bool is_checked;
  bool is_impossible;
  bool has_no_memory;
} state_t;

// Asked once: a chain of lets that each use the one before twice would be asked 2^n times.
typedef enum sign { SIGN_UNASKED, SIGN_ANY, SIGN_NONNEGATIVE } sign_t;

static const qn__interval_t unknown = {NULL, NULL, false};

static void mark(state_t* state, const qn__expr_t* expr) {
  qn__gpu_widths_t* widths = state->widths;
  if (2 * (widths->count + 1) > widths->capacity) {
    qn__gpu_widths_t grown = *widths;
    grown.capacity = widths->capacity ? 2 * widths->capacity : 64;
    grown.places = qn__arena_alloc_array(state->arena, grown.capacity, sizeof *grown.places);
    if (!grown.places) {
      state->has_no_memory = true;
      return;
    }
    for (size_t i = 0; i < widths->capacity; i++) {
      if (widths->places[i]) grown.places[place_of(&grown, widths->places[i])] = widths->places[i];
    }
    *widths = grown;
  }
  size_t place = place_of(widths, expr);
  if (!widths->places[place]) widths->count++;
  widths->places[place] = expr;
}

// ---- needs

// Is a value of this interval one of 32 bits? Adds what must hold for it.
static bool prove(state_t* state, const qn__interval_t* interval) {
  if (!interval->lo || !interval->hi) return false;
  bool is_lo_const = qn__bound_is_const(interval->lo);
  bool is_hi_const = qn__bound_is_const(interval->hi);
  if (is_lo_const && interval->lo->value < INT32_MIN) return false;
  if (is_hi_const && interval->hi->value > INT32_MAX) return false;
  if (!is_hi_const) qn__needs_add_most(&state->needs, interval->hi);
  bool is_same = interval->is_nonnegative && qn__interval_is_point(interval);
  if (!is_lo_const && !is_same) qn__needs_add_least(&state->needs, interval->lo);
  return true;
}

// At most INT32_MAX; a bound that there is not makes the kernel impossible.
static void need_most(state_t* state, const qn__bound_t* bound) {
  if (!bound || (qn__bound_is_const(bound) && bound->value > INT32_MAX)) {
    state->is_impossible = true;
  } else if (!qn__bound_is_const(bound)) {
    qn__needs_add_most(&state->needs, bound);
  }
}
static void need_least(state_t* state, const qn__bound_t* bound) {
  if (!bound || (qn__bound_is_const(bound) && bound->value < INT32_MIN)) {
    state->is_impossible = true;
  } else if (!qn__bound_is_const(bound)) {
    qn__needs_add_least(&state->needs, bound);
  }
}

// ---- intervals of expressions

static qn__interval_t interval_of(state_t* state, const qn__expr_t* expr);

// A value is what it is at the launch; that it is not negative is believed where it should not be,
// and then tested.
static qn__interval_t interval_of_host(state_t* state, const qn__var_t* var) {
  const qn__bound_t* bound = qn__bound_var(&state->bounds, var);
  if (!bound) return unknown;
  uint8_t* sign = &state->host_signs[var->id];
  if (*sign == SIGN_UNASKED) {
    const qn__expr_t* value = state->split->values[var->id];
    bool is_believed = var->kind == QN__VAR_SYMBOL ||
                       qn__dtype_class(var->dtype) == QN__CLASS_UNSIGNED ||
                       (value && interval_of(state, value).is_nonnegative);
    *sign = is_believed ? SIGN_NONNEGATIVE : SIGN_ANY;
  }
  bool is_nonnegative = *sign == SIGN_NONNEGATIVE;
  if (is_nonnegative) qn__needs_add_sign(&state->needs, bound);
  return (qn__interval_t){bound, bound, is_nonnegative};
}

static qn__interval_t interval_of_var(state_t* state, const qn__var_t* var) {
  if (state->is_inside[var->id]) return state->intervals[var->id];
  if (!qn__gpu_host_knows_var(&state->split->host, var)) return unknown;
  return interval_of_host(state, var);
}

static qn__interval_t interval_of_cast(state_t* state, const qn__expr_t* from) {
  bool is_plain = from->kind == QN__EXPR_VAR && !state->is_inside[from->var->id] &&
                  qn__gpu_host_knows_var(&state->split->host, from->var) &&
                  from->dtype != QN_DTYPE_U64 && from->dtype != QN_DTYPE_I64;
  switch (from->dtype) {
    case QN_DTYPE_BOOL:
      return qn__interval_range(&state->bounds, 0, 1);
    case QN_DTYPE_I8:
      return qn__interval_range(&state->bounds, INT8_MIN, INT8_MAX);
    case QN_DTYPE_I16:
      return qn__interval_range(&state->bounds, INT16_MIN, INT16_MAX);
    case QN_DTYPE_U8:
      return qn__interval_range(&state->bounds, 0, UINT8_MAX);
    case QN_DTYPE_U16:
      return qn__interval_range(&state->bounds, 0, UINT16_MAX);
    case QN_DTYPE_I32:
      if (is_plain) return interval_of_host(state, from->var);
      return qn__interval_range(&state->bounds, INT32_MIN, INT32_MAX);
    case QN_DTYPE_U32:
      if (is_plain) return interval_of_host(state, from->var);
      return qn__interval_range(&state->bounds, 0, UINT32_MAX);
    default:
      return unknown;
  }
}

static qn__interval_t interval_of(state_t* state, const qn__expr_t* expr) {
  if (expr->dtype != QN_DTYPE_I64) return unknown;
  switch (expr->kind) {
    case QN__EXPR_INT:
      return qn__interval_range(&state->bounds, expr->int_value, expr->int_value);
    case QN__EXPR_VAR:
      return interval_of_var(state, expr->var);
    case QN__EXPR_CAST:
      return interval_of_cast(state, expr->args[0]);
    case QN__EXPR_COND:
      return qn__interval_hull(&state->bounds, interval_of(state, expr->args[1]),
                               interval_of(state, expr->args[2]));
    case QN__EXPR_OP: {
      if (expr->op == QN_OP_SELECT) {
        return qn__interval_hull(&state->bounds, interval_of(state, expr->args[1]),
                                 interval_of(state, expr->args[2]));
      }
      uint32_t arity = qn__op_info(expr->op)->arity;
      qn__interval_t a = interval_of(state, expr->args[0]);
      qn__interval_t b = arity > 1 ? interval_of(state, expr->args[1]) : unknown;
      return qn__interval_op(&state->bounds, expr->op, a, b);
    }
    default:
      return unknown;
  }
}

// ---- expressions

// `is_low`: only the low 32 bits of the value count.
static void visit(state_t* state, const qn__expr_t* expr, bool is_low);
static void visit_buffer(state_t* state, const qn__buf_t* buffer);
static void visit_loop(state_t* state, const qn__var_t* var, const qn__expr_t* begin,
                       const qn__expr_t* end, bool is_needed);
static void visit_let(state_t* state, const qn__stmt_t* stmt);

static void visit_access(state_t* state, const qn__buf_t* buffer, qn__expr_t* const* indices) {
  visit_buffer(state, buffer);
  for (uint32_t i = 0; i < buffer->rank; i++) visit(state, indices[i], !state->is_checked);
}

static void visit_reduce(state_t* state, const qn__expr_t* expr) {
  visit_loop(state, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end, false);
  for (const qn__stmt_t* stmt = expr->reduce.lets.first; stmt; stmt = stmt->next) {
    visit_let(state, stmt);
  }
  visit(state, expr->reduce.value, false);
}

// Which operators give the low bits of their result from the low bits of their operands.
static bool is_ring(const qn__expr_t* expr) {
  switch (expr->op) {
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_NEG:
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
    case QN_OP_NOT:
      return true;
    case QN_OP_SHL:
      return expr->args[1]->kind == QN__EXPR_INT;
    default:
      return false;
  }
}

static bool is_proven(state_t* state, const qn__expr_t* expr) {
  qn__interval_t interval = interval_of(state, expr);
  return prove(state, &interval);
}

static void visit_wide_op(state_t* state, const qn__expr_t* expr, bool is_low) {
  bool is_select = expr->op == QN_OP_SELECT;
  bool is_narrow = !qn__expr_is_exchange(expr) && (is_low || is_proven(state, expr));
  if (is_narrow) mark(state, expr);
  for (uint32_t i = 0; i < qn__op_info(expr->op)->arity; i++) {
    bool is_operand_low = is_narrow && (is_select ? i > 0 : is_ring(expr));
    visit(state, expr->args[i], is_operand_low);
  }
}

// An expression of dtype i64.
static void visit_wide(state_t* state, const qn__expr_t* expr, bool is_low) {
  switch (expr->kind) {
    case QN__EXPR_INT:
      if (is_low || qn__is_within_32_bits(expr->int_value)) mark(state, expr);
      break;
    case QN__EXPR_VAR:
      // A variable of the kernel that is narrow was proven to be; one from outside needs the guard
      // where its value counts.
      if (is_low || (qn__gpu_is_narrow_var(state->widths, expr->var) &&
                     (state->is_inside[expr->var->id] || is_proven(state, expr)))) {
        mark(state, expr);
      }
      break;
    case QN__EXPR_LOAD:
      visit_access(state, expr->load.buffer, expr->load.indices);
      break;
    case QN__EXPR_CAST: {
      qn_dtype_t from = expr->args[0]->dtype;
      bool is_int = qn__dtype_is_int(from) || from == QN_DTYPE_BOOL;
      bool is_small = is_int && qn__dtype_bits(from) <= 32;
      if (is_small && (is_low || from != QN_DTYPE_U32)) mark(state, expr);
      visit(state, expr->args[0], false);
      break;
    }
    case QN__EXPR_COND: {
      bool is_narrow = is_low || is_proven(state, expr);
      if (is_narrow) mark(state, expr);
      visit(state, expr->args[0], false);
      visit(state, expr->args[1], is_narrow);
      visit(state, expr->args[2], is_narrow);
      break;
    }
    case QN__EXPR_OP:
      visit_wide_op(state, expr, is_low);
      break;
    case QN__EXPR_REDUCE:
      visit_reduce(state, expr);
      break;
    case QN__EXPR_BITCAST:
      visit(state, expr->args[0], false);
      break;
    case QN__EXPR_FLOAT:
      break;
  }
}

static void visit(state_t* state, const qn__expr_t* expr, bool is_low) {
  if (expr->dtype == QN_DTYPE_I64) {
    visit_wide(state, expr, is_low);
    return;
  }
  switch (expr->kind) {
    case QN__EXPR_LOAD:
      visit_access(state, expr->load.buffer, expr->load.indices);
      break;
    case QN__EXPR_CAST: {
      // An integer of at most 32 bits takes the low ones.
      bool is_cut = qn__dtype_is_int(expr->dtype) && qn__dtype_bits(expr->dtype) <= 32;
      visit(state, expr->args[0], is_cut);
      break;
    }
    case QN__EXPR_BITCAST:
      visit(state, expr->args[0], false);
      break;
    case QN__EXPR_COND:
      for (uint32_t i = 0; i < 3; i++) visit(state, expr->args[i], false);
      break;
    case QN__EXPR_OP:
      for (uint32_t i = 0; i < qn__op_info(expr->op)->arity; i++) {
        visit(state, expr->args[i], false);
      }
      break;
    case QN__EXPR_REDUCE:
      visit_reduce(state, expr);
      break;
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
      break;
  }
}

// ---- buffers

// The least and the greatest linear index of a buffer or view, each extent at least 1; NULL:
// unknown.
static void find_span(state_t* state, const qn__buf_t* buffer, const qn__bound_t** out_lo,
                      const qn__bound_t** out_hi) {
  qn__bounds_t* bounds = &state->bounds;
  const qn__bound_t *lo = qn__bound_const(bounds, 0), *hi = lo;
  const qn__bound_t *minus_one = qn__bound_const(bounds, -1), *zero = lo;
  if (!buffer->strides) {
    // Extents are not negative: the call's checks, or the allocation's, saw to that.
    hi = qn__bound_const(bounds, 1);
    for (uint32_t i = 0; i < buffer->rank; i++) {
      hi = qn__bound_op(bounds, QN_OP_MUL, hi, interval_of(state, buffer->shape[i]).hi);
    }
    *out_lo = lo;
    *out_hi = qn__bound_op(bounds, QN_OP_ADD, hi, minus_one);
    return;
  }
  for (uint32_t i = 0; i < buffer->rank; i++) {
    const qn__bound_t* reach =
        qn__bound_op(bounds, QN_OP_ADD, interval_of(state, buffer->shape[i]).hi, minus_one);
    qn__interval_t stride = interval_of(state, buffer->strides[i]);
    const qn__bound_t* up = stride.hi;
    if (!stride.is_nonnegative) {
      up = qn__bound_op(bounds, QN_OP_MAX, stride.hi, zero);
      const qn__bound_t* down = qn__bound_op(bounds, QN_OP_MIN, stride.lo, zero);
      lo = qn__bound_op(bounds, QN_OP_ADD, lo, qn__bound_op(bounds, QN_OP_MUL, reach, down));
    }
    hi = qn__bound_op(bounds, QN_OP_ADD, hi, qn__bound_op(bounds, QN_OP_MUL, reach, up));
  }
  *out_lo = lo;
  *out_hi = hi;
}

// The numbers of elements are what must fit, so that one more than an index does, too.
static void need_span(state_t* state, const qn__bound_t* lo, const qn__bound_t* hi) {
  qn__bounds_t* bounds = &state->bounds;
  need_least(state, lo);
  need_most(state, qn__bound_op(bounds, QN_OP_ADD, hi, qn__bound_const(bounds, 1)));
}

// Everything that an access of the buffer computes besides its own indices.
static void visit_buffer(state_t* state, const qn__buf_t* buffer) {
  if (state->is_buffer_seen[buffer->id]) return;
  state->is_buffer_seen[buffer->id] = true;
  bool is_low = !state->is_checked;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    visit(state, buffer->shape[i], is_low);
    if (buffer->strides) visit(state, buffer->strides[i], true);
  }
  const qn__bound_t *lo, *hi;
  if (buffer->scope != QN__SCOPE_VIEW) {
    find_span(state, buffer, &lo, &hi);
    need_span(state, lo, hi);
    return;
  }
  visit_access(state, buffer->base, buffer->base_indices);
  if (!state->is_checked) return;
  // Whatever the view's own extents allow, from wherever it may begin, must not wrap.
  find_span(state, buffer, &lo, &hi);
  for (const qn__buf_t* base = buffer->base;; base = base->base) {
    const qn__bound_t *base_lo, *base_hi;
    find_span(state, base, &base_lo, &base_hi);
    lo = qn__bound_op(&state->bounds, QN_OP_ADD, lo, base_lo);
    hi = qn__bound_op(&state->bounds, QN_OP_ADD, hi, base_hi);
    if (base->scope != QN__SCOPE_VIEW) break;
  }
  need_span(state, lo, hi);
}

// ---- statements

// Notes what is known of a loop's variable. `is_needed`: the loop is counted in 32 bits.
static void visit_loop(state_t* state, const qn__var_t* var, const qn__expr_t* begin,
                       const qn__expr_t* end, bool is_needed) {
  qn__interval_t from = interval_of(state, begin), to = interval_of(state, end);
  state->is_inside[var->id] = true;
  bool is_narrow = prove(state, &from) && prove(state, &to);
  if (is_narrow) {
    state->intervals[var->id] = (qn__interval_t){
        from.lo,
        qn__bound_op(&state->bounds, QN_OP_ADD, to.hi, qn__bound_const(&state->bounds, -1)),
        from.is_nonnegative};
    if (!state->intervals[var->id].hi) state->intervals[var->id] = unknown;
  }
  state->widths->vars[var->id] = is_narrow;
  if (!is_narrow && is_needed) state->is_impossible = true;
  visit(state, begin, false);
  visit(state, end, false);
}

static void visit_let(state_t* state, const qn__stmt_t* stmt) {
  const qn__var_t* var = stmt->let.var;
  state->is_inside[var->id] = true;
  bool is_narrow = false;
  if (var->dtype == QN_DTYPE_I64) {
    state->intervals[var->id] = interval_of(state, stmt->let.value);
    is_narrow = prove(state, &state->intervals[var->id]);
    state->widths->vars[var->id] = is_narrow;
  }
  visit(state, stmt->let.value, is_narrow);
}

// The product of the extents of a nest, each cut at 0, is counted in 32 bits.
static void need_count(state_t* state, const qn__stmt_t* loop) {
  qn__bounds_t* bounds = &state->bounds;
  const qn__bound_t *product = qn__bound_const(bounds, 1), *zero = qn__bound_const(bounds, 0);
  // Bounds of inner loops may use the outer variables.
  for (; loop; loop = qn__gpu_nest_inner(loop)) {
    qn__interval_t from = interval_of(state, loop->loop.begin);
    qn__interval_t to = interval_of(state, loop->loop.end);
    const qn__bound_t* extent = qn__bound_op(bounds, QN_OP_SUB, to.hi, from.lo);
    bool is_plain = to.is_nonnegative && from.lo == zero;
    if (!is_plain) extent = qn__bound_op(bounds, QN_OP_MAX, extent, zero);
    product = qn__bound_op(bounds, QN_OP_MUL, product, extent);
  }
  need_most(state, product);
}

static void visit_block(state_t* state, const qn__block_t* block, const qn__stmt_t* parent);

static void visit_stmt(state_t* state, const qn__stmt_t* stmt, const qn__stmt_t* parent) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      visit_let(state, stmt);
      break;
    case QN__STMT_STORE:
      visit_access(state, stmt->store.buffer, stmt->store.indices);
      visit(state, stmt->store.value, false);
      break;
    case QN__STMT_ATOMIC:
      visit_access(state, stmt->atomic.buffer, stmt->atomic.indices);
      visit(state, stmt->atomic.operand, false);
      if (stmt->atomic.operand2) visit(state, stmt->atomic.operand2, false);
      if (stmt->atomic.result) state->is_inside[stmt->atomic.result->id] = true;
      break;
    case QN__STMT_IF:
      visit(state, stmt->if_.condition, false);
      visit_block(state, &stmt->if_.then_block, stmt);
      visit_block(state, &stmt->if_.else_block, stmt);
      break;
    case QN__STMT_LOOP: {
      bool is_block = qn__loop_is_block(stmt->loop.kind);
      bool is_thread = qn__loop_is_thread(stmt->loop.kind);
      visit_loop(state, stmt->loop.var, stmt->loop.begin, stmt->loop.end, is_block || is_thread);
      visit_block(state, &stmt->loop.body, stmt);
      bool is_inner =
          parent && parent->kind == QN__STMT_LOOP &&
          (is_block ? qn__loop_is_block(parent->loop.kind) : qn__loop_is_thread(parent->loop.kind));
      // Behind the body, so that the variables of inner loops have their intervals.
      if ((is_block || is_thread) && !is_inner) need_count(state, stmt);
      break;
    }
    case QN__STMT_WHILE:
      visit(state, stmt->while_.condition, false);
      visit_block(state, &stmt->while_.body, stmt);
      break;
    case QN__STMT_ALLOC:
      if (stmt->alloc.buffer->scope != QN__SCOPE_CONST) visit_buffer(state, stmt->alloc.buffer);
      break;
    case QN__STMT_BARRIER:
      break;
    case QN__STMT_ASSERT:
      visit(state, stmt->assert_.condition, false);
      break;
  }
}

static void visit_block(state_t* state, const qn__block_t* block, const qn__stmt_t* parent) {
  for (const qn__stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    visit_stmt(state, stmt, parent);
  }
}

// ---- all

// What comes from the host: symbols and its own values are narrow, scalar parameters as they are.
static void note_outside(state_t* state) {
  const qn__gpu_split_t* split = state->split;
  for (size_t i = 0; i < split->function->symbol_count; i++) {
    state->widths->vars[split->function->symbols[i]->id] = true;
  }
  for (uint32_t i = 0; i < split->function->var_count; i++) {
    if (split->locals[i] != QN__GPU_NO_PLACE) state->widths->vars[i] = true;
  }
}

bool qn__gpu_narrow(qn__gpu_split_t* split, qn__stmt_t* root, const qn__gpu_widths_t** out_widths,
                    qn__gpu_ops_t* out_guard) {
  *out_widths = NULL;
  qn__arena_t* arena = split->arena;
  uint32_t var_count = split->function->var_count;
  uint32_t buffer_count = split->function->buffer_count;
  state_t state = {.split = split,
                   .arena = arena,
                   .bounds = {.arena = arena},
                   .is_checked = split->options->passes.is_checked};
  state.needs.bounds = &state.bounds;
  state.widths = QN__ARENA_NEW(arena, qn__gpu_widths_t);
  state.intervals = qn__arena_alloc_array(arena, var_count + 1U, sizeof *state.intervals);
  state.is_inside = qn__arena_alloc(arena, var_count + 1U);
  state.is_buffer_seen = qn__arena_alloc(arena, buffer_count + 1U);
  state.host_signs = qn__arena_alloc(arena, var_count + 1U);
  bool* vars = qn__arena_alloc(arena, var_count + 1U);
  if (!state.widths || !state.intervals || !state.is_inside || !state.is_buffer_seen ||
      !state.host_signs || !vars) {
    return false;
  }
  state.widths->vars = vars;
  state.widths->var_count = var_count;
  note_outside(&state);
  visit_stmt(&state, root, NULL);
  if (state.has_no_memory || state.needs.has_no_memory || arena->is_exhausted) return false;
  if (state.is_impossible || !qn__needs_put_guard(&state.needs, &split->host, out_guard)) {
    *out_guard = (qn__gpu_ops_t){.arena = arena};
    return true;
  }
  *out_widths = state.widths;
  return !out_guard->has_failed;
}
