// SPDX-License-Identifier: Apache-2.0
// jit/plan/launch.c: turns a nest of BLOCK_* loops into a launch: its arguments, its numbers of
// blocks and threads, and its one or two kernels.
//
// The arguments are the root buffers (those below all views) and the variables that the nest uses
// but does not declare. Buffers come first, then variables, both in the order of their ids, so that
// equal modules give equal kernels.
#include <assert.h>
#include <stdio.h>

#include "base/alloc.h"
#include "ir/passes/pass_builder.h"
#include "jit/plan/nest.h"
#include "jit/plan/split.h"

// ---- arguments

// Flags of a variable or buffer. INSIDE: the nest declares it.
enum { INSIDE = 1, USED = 2, WRITTEN = 4 };

typedef struct uses {
  qn__gpu_split_t* split;
  uint8_t* vars;     // by id
  uint8_t* buffers;  // by id
  qn__ir_var_t** var_nodes;
  qn__ir_buffer_t** buffer_nodes;
  bool has_site;  // the nest has an operation that can fail
} uses_t;

static void use_buffer(uses_t* uses, qn__ir_buffer_t* buffer, bool is_written);

static void use_var(uses_t* uses, qn__ir_var_t* var) {
  uses->vars[var->id] |= USED;
  uses->var_nodes[var->id] = var;
}

static bool on_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  uses_t* uses = walker->self;
  bool is_checked = uses->split->options->passes.is_checked;
  switch (expr->kind) {
    case QN__EXPR_VAR:
      use_var(uses, expr->var);
      break;
    case QN__EXPR_LOAD:
      use_buffer(uses, expr->load.buffer, false);
      uses->has_site |= is_checked;
      break;
    case QN__EXPR_REDUCE:
      uses->vars[expr->reduce.reduce_var->id] |= INSIDE;
      for (qn__ir_stmt_t* stmt = expr->reduce.lets.first; stmt; stmt = stmt->next) {
        uses->vars[stmt->let.var->id] |= INSIDE;
      }
      break;
    case QN__EXPR_OP:
      uses->has_site |= is_checked && qn__op_is_division(expr->op) &&
                        !(expr->args[1]->kind == QN__EXPR_INT && expr->args[1]->int_value != 0);
      break;
    default:
      break;
  }
  return true;
}

static bool on_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  uses_t* uses = walker->self;
  bool is_checked = uses->split->options->passes.is_checked;
  switch (stmt->kind) {
    case QN__STMT_LET:
      uses->vars[stmt->let.var->id] |= INSIDE;
      break;
    case QN__STMT_LOOP:
      uses->vars[stmt->loop.var->id] |= INSIDE;
      break;
    case QN__STMT_STORE:
      use_buffer(uses, stmt->store.buffer, true);
      uses->has_site |= is_checked;
      break;
    case QN__STMT_ATOMIC:
      use_buffer(uses, stmt->atomic.buffer, true);
      if (stmt->atomic.result) uses->vars[stmt->atomic.result->id] |= INSIDE;
      uses->has_site |= is_checked;
      break;
    case QN__STMT_ALLOC:
      uses->buffers[stmt->alloc.buffer->id] |= INSIDE;
      // The declaration of a view uses the base, because it computes the view's offset.
      if (stmt->alloc.buffer->scope == QN__SCOPE_VIEW) {
        use_buffer(uses, stmt->alloc.buffer->base, false);
        uses->has_site |= is_checked;
      }
      break;
    case QN__STMT_ASSERT:
      uses->has_site = true;
      break;
    case QN__STMT_TENSOR:
      for (uint32_t i = 0; i < stmt->tensor->ref_count; ++i) {
        use_buffer(uses, stmt->tensor->refs[i].buffer, i == 0);
      }
      break;
    default:
      break;
  }
  return true;
}

static void use_expr(uses_t* uses, qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {on_stmt, on_expr, uses};
  (void)qn__walk_expr(&walker, expr);
}

// Notes the variables that an access evaluates besides its indices: strides, and extents that are
// factors of a linear index or are checked.
static void use_shape(uses_t* uses, qn__ir_buffer_t* buffer) {
  bool is_checked = uses->split->options->passes.is_checked;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    if (is_checked || (!buffer->strides && i > 0)) use_expr(uses, buffer->shape[i]);
    if (buffer->strides) use_expr(uses, buffer->strides[i]);
  }
}

static void use_buffer(uses_t* uses, qn__ir_buffer_t* buffer, bool is_written) {
  uint8_t wanted = (uint8_t)(USED | (is_written ? WRITTEN : 0));
  if ((uses->buffers[buffer->id] & wanted) == wanted) return;
  bool is_new = (uses->buffers[buffer->id] & USED) == 0;
  uses->buffers[buffer->id] |= wanted;
  uses->buffer_nodes[buffer->id] = buffer;
  if (is_new) use_shape(uses, buffer);
  if (buffer->scope != QN__SCOPE_VIEW) return;
  if (is_new) {
    for (uint32_t i = 0; i < buffer->base->rank; i++) use_expr(uses, buffer->base_indices[i]);
  }
  use_buffer(uses, buffer->base, is_written);
}

// Collects the uses of the statement `root`. Returns false if memory ran out.
static bool find_uses(qn__gpu_split_t* split, qn__ir_stmt_t* root, uses_t* out) {
  const qn__ir_func_t* function = split->function;
  qn__arena_t* arena = split->arena;
  *out = (uses_t){.split = split};
  out->vars = qn__arena_alloc(arena, function->var_count + 1U);
  out->buffers = qn__arena_alloc(arena, function->buffer_count + 1U);
  out->var_nodes = qn__arena_alloc_array(arena, function->var_count + 1U, sizeof *out->var_nodes);
  out->buffer_nodes =
      qn__arena_alloc_array(arena, function->buffer_count + 1U, sizeof *out->buffer_nodes);
  if (!out->vars || !out->buffers || !out->var_nodes || !out->buffer_nodes) return false;
  qn__ir_walker_t walker = {on_stmt, on_expr, out};
  // A copy, as the walk must end with this statement, and threads may share the module.
  qn__ir_stmt_t only = *root;
  only.next = NULL;
  qn__ir_block_t block = {&only, &only};
  (void)qn__walk_block(&walker, &block);
  return true;
}

// The launch that is being made. Its kernels share all of it.
typedef struct launch {
  uint32_t arg_count;
  qn_gpu_arg_t args[QN_GPU_MAX_ARGS];
  qn_gpu_operand_t nodes[QN_GPU_MAX_ARGS];
  uint32_t thread_count;
  bool has_record;
} launch_t;

static bool add_arg(qn__gpu_split_t* split, launch_t* launch, qn_gpu_arg_t arg,
                    qn_gpu_operand_t node) {
  if (launch->arg_count == QN_GPU_MAX_ARGS) {
    return qn__gpu_split_unsupported(split, "a launch uses more than %d buffers and values",
                                     (int)QN_GPU_MAX_ARGS);
  }
  // Buffers come first.
  assert(!node.buffer || launch->arg_count == 0 || launch->nodes[launch->arg_count - 1].buffer);
  launch->args[launch->arg_count] = arg;
  launch->nodes[launch->arg_count++] = node;
  return true;
}

// Adds the buffer as an argument if it is a used parameter or workspace.
static bool add_buffer(qn__gpu_split_t* split, const uses_t* uses, uint32_t id, launch_t* launch) {
  qn__ir_buffer_t* buffer = uses->buffer_nodes[id];
  if (!buffer || (buffer->scope != QN__SCOPE_PARAM && buffer->scope != QN__SCOPE_GLOBAL)) {
    return true;
  }
  bool is_param = buffer->scope == QN__SCOPE_PARAM;
  qn_gpu_arg_t arg = {.kind = is_param ? QN_GPU_ARG_BUFFER : QN_GPU_ARG_WORKSPACE,
                      .index = is_param ? split->params[id] : split->slots[id],
                      .size_bytes = (uint32_t)qn_dtype_size_bytes(buffer->dtype),
                      .is_written = (uses->buffers[id] & WRITTEN) != 0};
  if (arg.index == QN__GPU_NO_PLACE) {
    return qn__gpu_split_fail(
        split, qn_status_make(QN_STATUS_INTERNAL, "function '%s': buffer '%s' is not the host's",
                              split->function->name, buffer->name));
  }
  return add_arg(split, launch, arg, (qn_gpu_operand_t){.buffer = buffer});
}

// Adds the variable as an argument if the nest uses it and does not declare it.
static bool add_var(qn__gpu_split_t* split, const uses_t* uses, uint32_t id, launch_t* launch) {
  qn__ir_var_t* var = uses->var_nodes[id];
  if (!var || (uses->vars[id] & INSIDE) != 0) return true;
  bool is_local = split->locals[id] != QN__GPU_NO_PLACE;
  qn_gpu_arg_t arg = {.kind = is_local ? QN_GPU_ARG_LOCAL : QN_GPU_ARG_WORD,
                      .index = is_local ? split->locals[id] : split->words[id],
                      .size_bytes = (uint32_t)qn_dtype_size_bytes(var->dtype)};
  if (arg.index == QN__GPU_NO_PLACE) {
    return qn__gpu_split_fail(
        split, qn_status_make(QN_STATUS_INTERNAL, "function '%s': '%s' is not the host's",
                              split->function->name, var->name));
  }
  return add_arg(split, launch, arg, (qn_gpu_operand_t){.var = var});
}

// ---- threads

typedef struct thread_search {
  qn__gpu_split_t* split;
  int64_t max_count;  // of the constant nests
  bool has_nest;
  bool has_unknown;               // a nest whose extents are not constant
  const qn__ir_stmt_t* together;  // a nest whose threads meet or exchange
} thread_search_t;

static bool on_thread_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  thread_search_t* search = walker->self;
  if (stmt->kind != QN__STMT_LOOP || !qn__loop_is_thread(stmt->loop.kind)) return true;
  search->has_nest = true;
  int64_t count = qn__gpu_nest_count(stmt);
  search->has_unknown |= count < 0;
  if (count > search->max_count) search->max_count = count;
  if (!search->together && qn__gpu_is_together(&stmt->loop.body)) search->together = stmt;
  return true;
}

// Appends the product of the extents of a nest. Returns false if the host does not know a bound, or
// if memory ran out. An extent is max(end, begin) - begin. For a single loop that begins at 0 it is
// `end`, which may be negative.
static bool put_product(qn__gpu_split_t* split, const qn__ir_stmt_t* loop, qn__gpu_ops_t* ops) {
  qn__pass_builder_t pb = {.arena = split->arena};
  bool is_single = !qn__gpu_nest_inner(loop);
  bool is_first = true;
  for (; loop; loop = qn__gpu_nest_inner(loop)) {
    const qn__ir_expr_t *begin = loop->loop.begin, *end = loop->loop.end;
    if (!qn__gpu_host_knows(&split->host, begin) || !qn__gpu_host_knows(&split->host, end)) {
      return false;
    }
    bool is_plain = is_single && begin->kind == QN__EXPR_INT && begin->int_value == 0;
    const qn__ir_expr_t* extent = is_plain ? end : qn__pb_extent(&pb, loop);
    if (!extent) return qn__gpu_split_fail(split, qn__out_of_memory("a launch plan"));
    qn__gpu_put_expr(&split->host, ops, extent);
    if (!is_first) qn__gpu_put_apply(ops, QN_OP_MUL);
    is_first = false;
  }
  return true;
}

// Finds the number of threads of a block: a constant, or 0 and an expression of the host.
//
// 1. Nests that stride are right for any count. The count is then that of the largest constant
//    nest, at least the preferred one if a nest has an unknown count.
// 2. A nest with a barrier or an exchange needs exactly as many threads as it has iterations.
static bool find_threads(qn__gpu_split_t* split, qn__ir_stmt_t* root, uint32_t* out_count,
                         qn__gpu_expr_t* out_expr) {
  const qn__pass_options_t* options = &split->options->passes;
  uint32_t max_threads = options->max_threads ? options->max_threads : 1024;
  uint32_t preferred = options->preferred_threads ? options->preferred_threads : 256;
  if (preferred > max_threads) preferred = max_threads;
  thread_search_t search = {.split = split};
  qn__ir_walker_t walker = {on_thread_stmt, NULL, &search};
  (void)qn__walk_block(&walker, &root->loop.body);
  *out_count = 1;
  if (!search.has_nest) return true;
  if (!search.together) {
    int64_t count =
        search.max_count < (int64_t)max_threads ? search.max_count : (int64_t)max_threads;
    if (search.has_unknown && count < (int64_t)preferred) count = preferred;
    *out_count = count > 0 ? (uint32_t)count : 1;
    assert(*out_count <= max_threads);
    return true;
  }
  int64_t count = qn__gpu_nest_count(search.together);
  if (count > (int64_t)max_threads) {
    return qn__gpu_split_unsupported(
        split, "a block of %" PRId64 " threads that meet; the target allows %u", count,
        max_threads);
  }
  if (count > 0) {
    *out_count = (uint32_t)count;
    return true;
  }
  *out_count = 0;
  qn__gpu_ops_t ops = {.arena = split->arena};
  if (!put_product(split, search.together, &ops)) {
    return qn__gpu_split_unsupported(split,
                                     "the count of threads that meet is not known at the launch");
  }
  return qn__gpu_split_finish(split, &ops, out_expr);
}

// ---- kernels

// Makes the entry name of the next kernel; NULL: out of memory.
static const char* kernel_name(qn__gpu_split_t* split) {
  if (!split->options->has_names) return "main";
  char number[16];
  (void)snprintf(number, sizeof number, "_%u", split->kernel_number++);
  size_t size = strlen(split->function->name), more = strlen(number) + 1;
  char* name = qn__arena_alloc(split->arena, size + more);
  if (!name) return NULL;
  memcpy(name, split->function->name, size);
  memcpy(name + size, number, more);
  return name;
}

// Adds a kernel and returns its index; QN__GPU_NO_KERNEL if memory ran out. A wide kernel has no
// `widths` (NULL).
static uint32_t add_kernel(qn__gpu_split_t* split, qn__ir_stmt_t* root, const launch_t* launch,
                           const qn__gpu_widths_t* widths) {
  qn__gpu_draft_t* draft = QN__ARENA_NEW(split->arena, qn__gpu_draft_t);
  const char* name = kernel_name(split);
  if (!draft || !name) {
    (void)qn__gpu_split_fail(split, qn__out_of_memory("a kernel"));
    return QN__GPU_NO_KERNEL;
  }
  draft->plan = (qn__gpu_kernel_t){.name = name,
                                   .thread_count = launch->thread_count,
                                   .has_record = launch->has_record,
                                   .arg_count = launch->arg_count,
                                   .args = launch->args};
  draft->ir = (qn__gpu_kernel_ir_t){.nodes = launch->nodes,
                                    .function = split->function,
                                    .root = root,
                                    .is_narrow = widths != NULL,
                                    .widths = widths,
                                    .owner = split->ir};
  *split->last = draft;
  split->last = &draft->next;
  return (*split->kernel_count)++;
}

// Adds one kernel to the step, a narrow one if possible. If that has a guard, also adds the wide
// kernel, for calls that fail the guard. Not if index_bits is 32, or if the other arm of a choice
// takes them.
static bool choose_kernels(qn__gpu_split_t* split, qn__ir_stmt_t* root, const launch_t* launch,
                           qn__gpu_step_t* step) {
  const qn__gpu_widths_t* widths = NULL;
  qn__gpu_ops_t guard = {.arena = split->arena};
  if (split->options->index_bits != 64 && !qn__gpu_narrow(split, root, &widths, &guard)) {
    return qn__gpu_split_fail(split, qn__out_of_memory("the widths of a kernel"));
  }
  // If the guard is too deep for a plan, use the wide kernel alone, which is always right.
  if (widths && !qn__gpu_ops_finish(&guard, &step->guard)) {
    if (guard.has_failed) return qn__gpu_split_fail(split, qn__out_of_memory("a launch plan"));
    widths = NULL;
    step->guard = (qn__gpu_expr_t){0, NULL};
  }
  step->kernel = add_kernel(split, root, launch, widths);
  bool needs_wide = split->options->index_bits == 0 && !split->has_other_arm;
  if (widths && step->guard.op_count != 0 && needs_wide) {
    step->wide_kernel = add_kernel(split, root, launch, NULL);
  }
  return qn_ok(split->status);
}

bool qn__gpu_split_launch(qn__gpu_split_t* split, qn__ir_stmt_t* root) {
  assert(root->kind == QN__STMT_LOOP && qn__loop_is_block(root->loop.kind));
  uses_t uses;
  launch_t* launch = QN__ARENA_NEW(split->arena, launch_t);
  if (!launch || !find_uses(split, root, &uses)) {
    return qn__gpu_split_fail(split, qn__out_of_memory("a launch"));
  }
  for (uint32_t i = 0; i < split->function->buffer_count; i++) {
    if (!add_buffer(split, &uses, i, launch)) return false;
  }
  for (uint32_t i = 0; i < split->function->var_count; i++) {
    if (!add_var(split, &uses, i, launch)) return false;
  }
  launch->has_record = uses.has_site;
  split->ir->has_record |= uses.has_site;
  qn__gpu_step_t* step = qn__gpu_split_step(split, QN__GPU_STEP_LAUNCH);
  if (!step || !find_threads(split, root, &launch->thread_count, &step->b)) return false;
  qn__gpu_ops_t blocks = {.arena = split->arena};
  if (!put_product(split, root, &blocks)) {
    // Only the device knows the bounds: launch one block, which strides over all iterations.
    blocks = (qn__gpu_ops_t){.arena = split->arena};
    qn__gpu_put_const(&blocks, 1);
  }
  if (!qn__gpu_split_finish(split, &blocks, &step->a)) return false;
  if (!choose_kernels(split, root, launch, step)) return false;
  split->ir->launch_count++;
  return true;
}
