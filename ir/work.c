// SPDX-License-Identifier: Apache-2.0
// ir/work.c: counts operations and bytes by walking a function: see work.h.
//
// What is counted is what the text says, whatever a compiler makes of it:
//
// 1. Operations on values: not those of indices, extents and conditions, and not i64 lets, which
//    are mostly indices. Each iteration of a reduction is one operation, too.
// 2. Bytes of parameters: every load and store. Allocations of the function are not counted.
// 3. Of the arms of a condition that is not known before the call, the one with more work. The
//    count is then an upper bound.
#include "ir/work.h"

#include <assert.h>
#include <inttypes.h>

#include "base/argument.h"
#include "base/dtype.h"
#include "base/struct_size.h"

// Nodes to visit at most: about a second.
enum { MAX_STEPS = 1 << 26 };

// Columns of a row of counts: operations by dtype, calls of functions, and for each parameter the
// bytes loaded and stored.
enum { COLUMN_CALLS = QN_DTYPE_COUNT, COLUMN_BYTES };

typedef struct counter {
  qn__work_scope_t scope;
  qn_allocator_t allocator;
  double* counts;
  size_t column_count;
  double* saved;  // rows of counts: a stack
  size_t saved_count, saved_capacity;
  uint64_t consulted;  // loops whose variables have decided something; as qn__work_value_t.loops
  uint32_t depth;      // of loops
  int64_t steps;
  bool is_exact;
  qn_status_t status;  // the first error; all functions then return at once
} counter_t;

static void count_block(counter_t* c, const qn__ir_block_t* block);
static void count_expr(counter_t* c, const qn__ir_expr_t* expr, bool is_value);

static bool is_stopped(counter_t* c) {
  if (!c->status && ++c->steps > MAX_STEPS) {
    c->status = qn_status_make(QN_STATUS_UNSUPPORTED,
                               "function '%s': counting its work takes too long: too many "
                               "iterations differ from each other",
                               c->scope.function->name);
  }
  return c->status != NULL;
}

// ------------------------------------------------------------------------------------ rows

// Puts a copy of the counts on the stack.
static bool save(counter_t* c) {
  if (c->saved_count == c->saved_capacity) {
    size_t capacity = c->saved_capacity ? 2 * c->saved_capacity : 16;
    size_t row = c->column_count * sizeof(double);
    double* grown = qn__alloc_zero(c->allocator, capacity, row);
    if (!grown) {
      c->status = qn__out_of_memory("counting work");
      return false;
    }
    if (c->saved_count > 0) memcpy(grown, c->saved, c->saved_count * row);
    qn__free(c->allocator, c->saved, c->saved_capacity * row);
    c->saved = grown;
    c->saved_capacity = capacity;
  }
  double* row = c->saved + c->saved_count++ * c->column_count;
  memcpy(row, c->counts, c->column_count * sizeof *row);
  return true;
}

static double* drop(counter_t* c) {
  assert(c->saved_count > 0);
  return c->saved + --c->saved_count * c->column_count;
}

static double total(const counter_t* c, const double* row) {
  double sum = 0;
  for (size_t i = 0; i < c->column_count; i++) sum += row[i];
  return sum;
}

// ------------------------------------------------------------------------------------ operations

static double operations_of(qn_op_t op) {
  switch (op) {
    case QN_OP_FMA:
      return 2;
    case QN_OP_ADD:
    case QN_OP_SUB:
    case QN_OP_MUL:
    case QN_OP_DIV:
    case QN_OP_FLOORDIV:
    case QN_OP_FLOORMOD:
    case QN_OP_TRUNCDIV:
    case QN_OP_TRUNCMOD:
    case QN_OP_CEILDIV:
    case QN_OP_MIN:
    case QN_OP_MAX:
    case QN_OP_AND:
    case QN_OP_OR:
    case QN_OP_XOR:
    case QN_OP_NOT:
    case QN_OP_SHL:
    case QN_OP_SHR:
    case QN_OP_POPCOUNT:
    case QN_OP_CLZ:
    case QN_OP_CTZ:
    case QN_OP_MULHI:
    case QN_OP_ROTL:
    case QN_OP_SQRT:
    case QN_OP_RSQRT:
    case QN_OP_WARP_SUM:
    case QN_OP_WARP_MIN:
    case QN_OP_WARP_MAX:
    case QN_OP_BLOCK_SUM:
    case QN_OP_BLOCK_MIN:
    case QN_OP_BLOCK_MAX:
    case QN_OP_AXIS_SUM:
    case QN_OP_AXIS_MIN:
    case QN_OP_AXIS_MAX:
      return 1;
    default:
      return 0;
  }
}

// Whether it is a function such as exp, which takes many instructions.
static bool is_call(qn_op_t op) {
  switch (op) {
    case QN_OP_EXP:
    case QN_OP_EXP2:
    case QN_OP_LOG:
    case QN_OP_LOG2:
    case QN_OP_TANH:
    case QN_OP_ERF:
    case QN_OP_SIN:
    case QN_OP_COS:
    case QN_OP_POW:
      return true;
    default:
      return op >= QN_OP_EXP10 && op <= QN_OP_FMOD;
  }
}

static void add_operations(counter_t* c, qn_dtype_t dtype, double count, bool is_value) {
  if (is_value || qn__dtype_is_float(dtype)) c->counts[dtype] += count;
}

static void count_access(counter_t* c, const qn__ir_buffer_t* buffer, qn__ir_expr_t* const* indices,
                         bool is_load, bool is_store) {
  for (uint32_t d = 0; d < buffer->rank; d++) count_expr(c, indices[d], false);
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  double size_bytes = (double)qn_dtype_size_bytes(root->dtype);
  // Ids of parameters come first, but scalars have none.
  for (size_t i = 0; i < c->scope.function->param_count; i++) {
    if (c->scope.function->params[i].buffer != root) continue;
    if (is_load) c->counts[COLUMN_BYTES + 2 * i] += size_bytes;
    if (is_store) c->counts[COLUMN_BYTES + 2 * i + 1] += size_bytes;
  }
}

static qn__work_value_t consult(counter_t* c, const qn__ir_expr_t* expr) {
  qn__work_value_t value = qn__work_eval(&c->scope, expr);
  c->consulted |= value.loops;
  return value;
}

// ------------------------------------------------------------------------------------ choices

// One of two arms: blocks, or expressions.
typedef struct arm {
  const qn__ir_block_t* block;
  const qn__ir_expr_t* expr;  // NULL: the block
  bool is_value;
} arm_t;

static void count_arm(counter_t* c, const arm_t* arm) {
  if (arm->expr) {
    count_expr(c, arm->expr, arm->is_value);
  } else if (arm->block) {
    count_block(c, arm->block);
  }
}

static void count_choice(counter_t* c, const qn__ir_expr_t* condition, arm_t yes, arm_t no) {
  count_expr(c, condition, false);
  qn__work_value_t value = consult(c, condition);
  if (value.is_known) {
    count_arm(c, value.scalar.i ? &yes : &no);
    return;
  }
  c->is_exact = false;
  size_t row_bytes = c->column_count * sizeof(double);
  if (!save(c)) return;
  count_arm(c, &yes);
  if (!save(c)) return;
  memcpy(c->counts, c->saved + (c->saved_count - 2) * c->column_count, row_bytes);
  count_arm(c, &no);
  const double* after_yes = drop(c);
  if (total(c, after_yes) > total(c, c->counts)) memcpy(c->counts, after_yes, row_bytes);
  (void)drop(c);
}

// ------------------------------------------------------------------------------------ loops

static void count_let(counter_t* c, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->let.var;
  count_expr(c, stmt->let.value, var->dtype != QN_DTYPE_I64);
  qn__work_value_t* value = &c->scope.vars[var->id];
  *value = (qn__work_value_t){.is_known = false};
  if (!qn__dtype_is_float(var->dtype)) *value = qn__work_eval(&c->scope, stmt->let.value);
}

// The loop that is counted: `body` of a statement, or a reduction.
typedef struct range {
  const qn__ir_var_t* var;
  const qn__ir_expr_t *begin, *end;
  const qn__ir_block_t* body;
  const qn__ir_expr_t* reduce;
  const qn__ir_several_t* several;
  bool is_value;
} range_t;

// Counts an iteration of a reduction of several values, its combiner included, or of a scan.
static void count_several(counter_t* c, const qn__ir_several_t* several) {
  const qn__ir_stmt_t* let = several->lets.first;
  for (; let; let = let->next) count_let(c, let);
  for (uint32_t i = 0; i < several->count; i++) count_expr(c, several->values[i], true);
  for (let = several->merge_lets.first; let; let = let->next) count_let(c, let);
  for (uint32_t i = 0; i < several->merged_count; i++) count_expr(c, several->merged[i], true);
  if (several->merged_count == 0) add_operations(c, several->values[0]->dtype, 1, true);
  count_block(c, &several->body);
}

static void count_iteration(counter_t* c, const range_t* range) {
  if (range->several) {
    count_several(c, range->several);
    return;
  }
  if (!range->reduce) {
    count_block(c, range->body);
    return;
  }
  const qn__ir_stmt_t* let = range->reduce->reduce.lets.first;
  for (; let; let = let->next) count_let(c, let);
  count_expr(c, range->reduce->reduce.value, range->is_value);
  add_operations(c, range->reduce->dtype, 1, range->is_value);
}

static void count_range(counter_t* c, const range_t* range) {
  count_expr(c, range->begin, false);
  count_expr(c, range->end, false);
  qn__work_value_t begin = consult(c, range->begin), end = consult(c, range->end);
  if (is_stopped(c)) return;
  if (!begin.is_known || !end.is_known) {
    c->status = qn_status_make(QN_STATUS_UNSUPPORTED,
                               "function '%s': the range of '%s' depends on values that only the "
                               "call computes",
                               c->scope.function->name, range->var->name);
    return;
  }
  if (begin.scalar.i >= end.scalar.i || !save(c)) return;
  uint64_t bit = UINT64_C(1) << (c->depth < 63 ? c->depth : 63), outer = c->consulted;
  qn__work_value_t* value = &c->scope.vars[range->var->id];
  *value = (qn__work_value_t){begin.scalar, true, bit};
  c->consulted = 0;
  c->depth++;
  count_iteration(c, range);
  const double* before = drop(c);
  if (!(c->consulted & bit)) {
    // All iterations take the way of the first one.
    double times = (double)end.scalar.i - (double)begin.scalar.i;
    for (size_t i = 0; i < c->column_count; i++) {
      c->counts[i] = before[i] + (c->counts[i] - before[i]) * times;
    }
  } else {
    while (++value->scalar.i < end.scalar.i && !is_stopped(c)) count_iteration(c, range);
  }
  c->depth--;
  // Loops at depth 63 and below share a bit.
  c->consulted = outer | (c->depth < 63 ? c->consulted & ~bit : c->consulted);
}

// ------------------------------------------------------------------------------------ the tree

static void count_op(counter_t* c, const qn__ir_expr_t* expr, bool is_value) {
  const qn__ir_op_info_t* info = qn__op_info(expr->op);
  if (info->rule == QN__RULE_LOGIC && info->arity == 2) {
    // The right operand is evaluated where the left one does not decide.
    arm_t right = {.expr = expr->args[1]}, none = {NULL, NULL, false};
    bool is_and = expr->op == QN_OP_LOGIC_AND;
    count_choice(c, expr->args[0], is_and ? right : none, is_and ? none : right);
    return;
  }
  for (uint32_t i = 0; i < info->arity; i++) count_expr(c, expr->args[i], is_value);
  if (expr->dtype == QN_DTYPE_BOOL) return;
  add_operations(c, expr->dtype, operations_of(expr->op), is_value);
  if (is_call(expr->op)) c->counts[COLUMN_CALLS] += 1;
}

static void count_expr(counter_t* c, const qn__ir_expr_t* expr, bool is_value) {
  if (is_stopped(c)) return;
  switch (expr->kind) {
    case QN__EXPR_INT:
    case QN__EXPR_FLOAT:
    case QN__EXPR_VAR:
      return;
    case QN__EXPR_LOAD:
      count_access(c, expr->load.buffer, expr->load.indices, true, false);
      return;
    case QN__EXPR_OP:
      count_op(c, expr, is_value);
      return;
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      count_expr(c, expr->args[0], is_value);
      return;
    case QN__EXPR_COND:
      count_choice(c, expr->args[0], (arm_t){NULL, expr->args[1], is_value},
                   (arm_t){NULL, expr->args[2], is_value});
      return;
    case QN__EXPR_REDUCE:
      count_range(c, &(range_t){.var = expr->reduce.reduce_var,
                                .begin = expr->reduce.begin,
                                .end = expr->reduce.end,
                                .reduce = expr,
                                .is_value = is_value});
      return;
  }
}

static void count_while(counter_t* c, const qn__ir_stmt_t* stmt) {
  qn__work_value_t condition = consult(c, stmt->while_.condition);
  if (condition.is_known && condition.scalar.i == 0) return;
  if (c->status) return;
  c->status = qn_status_make(QN_STATUS_UNSUPPORTED,
                             "function '%s': only the call shows how often its 'while' runs",
                             c->scope.function->name);
}

static void count_stmt(counter_t* c, const qn__ir_stmt_t* stmt) {
  switch (stmt->kind) {
    case QN__STMT_LET:
      count_let(c, stmt);
      return;
    case QN__STMT_STORE:
      count_access(c, stmt->store.buffer, stmt->store.indices, false, true);
      count_expr(c, stmt->store.value, true);
      return;
    case QN__STMT_ATOMIC:
      count_access(c, stmt->atomic.buffer, stmt->atomic.indices, true, true);
      if (stmt->atomic.operand) count_expr(c, stmt->atomic.operand, true);
      if (stmt->atomic.operand2) count_expr(c, stmt->atomic.operand2, true);
      add_operations(c, stmt->atomic.buffer->dtype, 1, true);
      if (stmt->atomic.result) c->scope.vars[stmt->atomic.result->id].is_known = false;
      return;
    case QN__STMT_IF:
      count_choice(c, stmt->if_.condition, (arm_t){.block = &stmt->if_.then_block},
                   (arm_t){.block = &stmt->if_.else_block});
      return;
    case QN__STMT_LOOP:
      count_range(c, &(range_t){.var = stmt->loop.var,
                                .begin = stmt->loop.begin,
                                .end = stmt->loop.end,
                                .body = &stmt->loop.body});
      return;
    case QN__STMT_WHILE:
      count_while(c, stmt);
      return;
    case QN__STMT_REDUCE:
      count_range(c, &(range_t){.var = stmt->several->var,
                                .begin = stmt->several->begin,
                                .end = stmt->several->end,
                                .several = stmt->several});
      return;
    case QN__STMT_ASSERT:
      count_expr(c, stmt->assert_.condition, false);
      return;
    case QN__STMT_ALLOC:
    case QN__STMT_BARRIER:
    case QN__STMT_FENCE:
    case QN__STMT_TENSOR:
    case QN__STMT_LEAVE:
      return;
  }
}

static void count_block(counter_t* c, const qn__ir_block_t* block) {
  for (const qn__ir_stmt_t* stmt = block->first; stmt && !is_stopped(c); stmt = stmt->next) {
    count_stmt(c, stmt);
  }
}

// ------------------------------------------------------------------------------------ a call

static qn_status_t bind_buffer(counter_t* c, const qn__ir_buffer_t* buffer, const qn_value_t* arg,
                               qn__work_buffer_t* out) {
  const qn_tensor_t* tensor = arg->type == QN_VALUE_TENSOR ? arg->tensor : NULL;
  if (!tensor || tensor->ndim < 0 || (uint32_t)tensor->ndim != buffer->rank ||
      (buffer->rank > 0 && !tensor->shape)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "function '%s': argument '%s' is no tensor of rank %u",
                          c->scope.function->name, buffer->name, buffer->rank);
  }
  bool is_of_host =
      tensor->device.type == QN_DEVICE_CPU || tensor->device.type == QN_DEVICE_CUDA_HOST;
  if (is_of_host && tensor->data) {
    out->data = (const uint8_t*)tensor->data + tensor->byte_offset;
  }
  int64_t stride = 1;
  for (uint32_t d = buffer->rank; d-- > 0;) {
    out->shape[d] = tensor->shape[d];
    out->strides[d] = tensor->strides ? tensor->strides[d] : stride;
    stride = (int64_t)((uint64_t)stride * (uint64_t)tensor->shape[d]);
  }
  // The first that shows a symbol wins.
  for (uint32_t d = 0; d < buffer->rank; d++) {
    (void)qn__work_bind_symbol(&c->scope, buffer->shape[d], out->shape[d]);
  }
  for (uint32_t d = 0; buffer->strides && d < buffer->rank; d++) {
    (void)qn__work_bind_symbol(&c->scope, buffer->strides[d], out->strides[d]);
  }
  return QN_OK;
}

// Binds the symbols that stand alone in no shape. `is_known` has room for all words of a call.
static qn_status_t solve_equations(counter_t* c, const qn__work_buffer_t* buffers, bool* is_known) {
  const qn__ir_func_t* function = c->scope.function;
  for (size_t i = 0; i < function->param_count; i++) is_known[i] = true;
  for (size_t i = 0; i < function->symbol_count; i++) {
    is_known[function->param_count + i] = c->scope.vars[function->symbols[i]->id].is_known;
  }
  qn__ir_equation_t equation;
  qn__buffer_t why;
  qn__buffer_init(&why, c->allocator);
  qn_status_t status = QN_OK;
  while (qn_ok(status) && qn__equation_find(function, is_known, &equation)) {
    is_known[qn__word_of(function, equation.symbol)] = true;
    int64_t extent = buffers[equation.param].shape[equation.dim];
    if (qn__work_solve(&c->scope, &equation, extent, &why)) continue;
    status =
        qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function '%s': argument '%s': extent %u: %.*s",
                       function->name, function->params[equation.param].buffer->name, equation.dim,
                       QN_STR_ARG(qn__buffer_as_str(&why)));
  }
  qn__buffer_deinit(&why);
  return status;
}

static void summarize(const counter_t* c, const qn__work_buffer_t* buffers, qn_work_t* out) {
  double most = 0;
  for (qn_dtype_t dtype = QN_DTYPE_NONE; dtype < QN_DTYPE_COUNT; dtype++) {
    double count = c->counts[dtype];
    *(qn__dtype_is_float(dtype) ? &out->flops : &out->integer_ops) += count;
    if (count > most) out->dtype = dtype;
    if (count > most) most = count;
  }
  out->calls = c->counts[COLUMN_CALLS];
  out->is_exact = c->is_exact;
  for (size_t i = 0; i < c->scope.function->param_count; i++) {
    const qn__ir_buffer_t* buffer = c->scope.function->params[i].buffer;
    if (!buffer) continue;
    double loaded = c->counts[COLUMN_BYTES + 2 * i], stored = c->counts[COLUMN_BYTES + 2 * i + 1];
    double size = (double)qn_dtype_size_bytes(buffer->dtype);
    for (uint32_t d = 0; d < buffer->rank; d++) size *= (double)buffers[i].shape[d];
    out->loaded_bytes += loaded;
    out->stored_bytes += stored;
    out->moved_bytes += (loaded < size ? loaded : size) + (stored < size ? stored : size);
  }
}

qn_status_t qn_module_work(const qn_module_t* module, size_t function_index, const qn_value_t* args,
                           size_t arg_count, int64_t warp_size, qn_work_t* out_work) {
  QN_REQUIRE(out_work);
  QN_STRUCT_CLEAR(qn_work_t, out_work);
  QN_REQUIRE(module);
  if (function_index >= module->body.function_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function %zu of a module that has %zu",
                          function_index, module->body.function_count);
  }
  const qn__ir_func_t* function = module->functions[function_index];
  if (arg_count != function->param_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function '%s' takes %zu arguments, not %zu",
                          function->name, function->param_count, arg_count);
  }
  if (arg_count > 0) QN_REQUIRE(args);
  counter_t c = {.scope = {.function = function, .warp_size = warp_size},
                 .allocator = qn_allocator_default(),
                 .column_count = COLUMN_BYTES + 2 * arg_count,
                 .is_exact = true};
  qn__arena_t arena;
  qn__arena_init(&arena, c.allocator);
  qn__work_buffer_t* buffers = qn__arena_alloc_array(&arena, arg_count + 1, sizeof *buffers);
  c.scope.buffers = buffers;
  c.scope.vars = qn__arena_alloc_array(&arena, function->var_count + 1, sizeof *c.scope.vars);
  c.counts = qn__arena_alloc_array(&arena, c.column_count, sizeof *c.counts);
  bool* is_known =
      qn__arena_alloc_array(&arena, arg_count + function->symbol_count + 1, sizeof *is_known);
  if (!buffers || !c.scope.vars || !c.counts || !is_known)
    c.status = qn__out_of_memory("counting work");
  for (size_t i = 0; i < arg_count && !c.status; i++) {
    const qn__ir_param_t* param = &function->params[i];
    if (param->buffer) {
      c.status = bind_buffer(&c, param->buffer, &args[i], &buffers[i]);
    } else {
      qn__work_bind_scalar(&c.scope, param->scalar, &args[i]);
    }
  }
  if (!c.status) c.status = solve_equations(&c, buffers, is_known);
  if (!c.status) count_block(&c, &function->body);
  qn_work_t work = {.struct_size = 0};
  if (!c.status) summarize(&c, buffers, &work);
  qn__free(c.allocator, c.saved, c.saved_capacity * c.column_count * sizeof(double));
  qn__arena_deinit(&arena);
  QN_TRY(c.status);
  QN_STRUCT_WRITE(out_work, work);
  return QN_OK;
}
