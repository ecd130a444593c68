// SPDX-License-Identifier: Apache-2.0
// ir/interpret.c: runs statements in lock-step over the active threads.
//
// interpreter.h defines how threads are numbered. Each statement runs for all active threads:
//
// 1. `if` splits the set of active threads. A loop runs while any thread has an iteration left.
// 2. A barrier fails unless all threads of the block are active.
// 3. A store first computes all values, then writes them. So a thread never reads an element that
//    another thread has changed in the same statement. Atomics run one thread after the other.
// 4. Parallel loops and blocks run in order.
#include "ir/interpret.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/buffer.h"
#include "ir/interpreter.h"
#include "ir/text.h"

enum { max_threads = 1 << 20 };

void* qn__machine_fail(qn__interpret_machine_t* machine, qn_status_code_t code, const char* format,
                       ...) {
  if (machine->status) return NULL;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  machine->status = qn_status_make(code, "function '%s': %s", machine->function->name, text);
  return NULL;
}

static void no_memory(qn__interpret_machine_t* machine) {
  (void)qn__machine_fail(machine, QN_STATUS_OUT_OF_MEMORY, "no memory for the threads");
}

// Returns memory for `count` items, which is `single` for one. NULL without memory.
static void* scratch(qn__interpret_machine_t* machine, size_t count, size_t size, void* single) {
  if (count <= 1) return single;
  void* items = qn__alloc_zero(machine->allocator, count, size);
  if (!items) no_memory(machine);
  return items;
}

static void scratch_free(qn__interpret_machine_t* machine, void* items, size_t count, size_t size) {
  if (count > 1) qn__free(machine->allocator, items, count * size);
}

// A set with room for several threads.
typedef struct owned_set {
  qn__interpret_set_t set;
  uint32_t capacity;
  uint32_t single;
} owned_set_t;

static bool set_init(qn__interpret_machine_t* machine, owned_set_t* owned, uint32_t capacity) {
  owned->set.count = 0;
  owned->capacity = capacity;
  owned->set.threads = scratch(machine, capacity, sizeof(uint32_t), &owned->single);
  return owned->set.threads != NULL;
}

static void set_deinit(qn__interpret_machine_t* machine, owned_set_t* owned) {
  scratch_free(machine, owned->set.threads, owned->capacity, sizeof(uint32_t));
}

static void set_add(owned_set_t* owned, uint32_t thread) {
  // Numbers ascend (is_active searches by halves).
  assert(owned->set.count == 0 || owned->set.threads[owned->set.count - 1] < thread);
  assert(owned->set.count < owned->capacity);
  owned->set.threads[owned->set.count++] = thread;
}

static void run_let(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                    const qn__interpret_set_t* active) {
  if (!qn__machine_declare_var(machine, stmt->let.var)) return;
  for (uint32_t i = 0; i < active->count && !qn__machine_failed(machine); ++i) {
    uint32_t thread = active->threads[i];
    qn__machine_set_var(machine, stmt->let.var, thread,
                        qn__machine_eval(machine, stmt->let.value, thread));
  }
}

typedef struct pending {
  uint8_t* address;
  qn__ir_scalar_t value;
} pending_t;

static bool prepare_store(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                          uint32_t thread, pending_t* out) {
  out->value = qn__machine_eval(machine, stmt->store.value, thread);
  out->address = qn__machine_address(machine, stmt->store.buffer, stmt->store.indices, thread);
  return !qn__machine_failed(machine);
}

static void run_store(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                      const qn__interpret_set_t* active) {
  pending_t single;
  pending_t* pending = scratch(machine, active->count, sizeof *pending, &single);
  bool is_ready = pending != NULL;
  for (uint32_t i = 0; i < active->count && is_ready; ++i) {
    is_ready = prepare_store(machine, stmt, active->threads[i], &pending[i]);
  }
  for (uint32_t i = 0; i < active->count && is_ready; ++i) {
    qn__machine_write(stmt->store.buffer, pending[i].address, pending[i].value);
  }
  scratch_free(machine, pending, active->count, sizeof *pending);
}

static qn__ir_scalar_t combine(const qn__ir_stmt_t* stmt, qn__ir_scalar_t old,
                               qn__ir_scalar_t operand, qn__ir_scalar_t operand2) {
  static const qn_op_t ops[] = {
      [QN_ATOMIC_ADD] = QN_OP_ADD, [QN_ATOMIC_MIN] = QN_OP_MIN, [QN_ATOMIC_MAX] = QN_OP_MAX,
      [QN_ATOMIC_AND] = QN_OP_AND, [QN_ATOMIC_OR] = QN_OP_OR,   [QN_ATOMIC_XOR] = QN_OP_XOR,
  };
  qn_dtype_t dtype = stmt->atomic.buffer->dtype;
  if (stmt->atomic.op == QN_ATOMIC_EXCHANGE || stmt->atomic.op == QN_ATOMIC_STORE) return operand;
  if (stmt->atomic.op == QN_ATOMIC_LOAD) return old;
  if (stmt->atomic.op == QN_ATOMIC_CAS) {
    bool is_equal = qn__scalar_to_bits(dtype, old) == qn__scalar_to_bits(dtype, operand);
    return is_equal ? operand2 : old;
  }
  qn__ir_scalar_t result = old;
  (void)qn__scalar_op(ops[stmt->atomic.op], dtype, (qn__ir_scalar_t[]){old, operand}, &result);
  return result;
}

static void run_atomic(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                       const qn__interpret_set_t* active) {
  const qn__ir_var_t* result = stmt->atomic.result;
  if (result && !qn__machine_declare_var(machine, result)) return;
  for (uint32_t i = 0; i < active->count; ++i) {
    uint32_t thread = active->threads[i];
    qn__ir_scalar_t operand = {0}, operand2 = {0};
    if (stmt->atomic.operand) operand = qn__machine_eval(machine, stmt->atomic.operand, thread);
    if (stmt->atomic.operand2) operand2 = qn__machine_eval(machine, stmt->atomic.operand2, thread);
    uint8_t* address =
        qn__machine_address(machine, stmt->atomic.buffer, stmt->atomic.indices, thread);
    if (!address) return;
    qn__ir_scalar_t old = qn__machine_read(stmt->atomic.buffer, address);
    qn__machine_write(stmt->atomic.buffer, address, combine(stmt, old, operand, operand2));
    if (result) qn__machine_set_var(machine, result, thread, old);
  }
}

static void run_if(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                   const qn__interpret_set_t* active) {
  owned_set_t taken, skipped;
  if (!set_init(machine, &taken, active->count)) return;
  if (set_init(machine, &skipped, active->count)) {
    for (uint32_t i = 0; i < active->count; ++i) {
      uint32_t thread = active->threads[i];
      bool holds = qn__machine_eval(machine, stmt->if_.condition, thread).i != 0;
      set_add(holds ? &taken : &skipped, thread);
    }
    qn__machine_run_block(machine, &stmt->if_.then_block, &taken.set);
    qn__machine_run_block(machine, &stmt->if_.else_block, &skipped.set);
    set_deinit(machine, &skipped);
  }
  set_deinit(machine, &taken);
}

static void run_leave(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                      const qn__interpret_set_t* active) {
  qn__interpret_level_t* level = &machine->levels[machine->level];
  if (!level->leaves) level->leaves = qn__alloc_zero(machine->allocator, level->count, 1);
  if (!level->leaves) {
    no_memory(machine);
    return;
  }
  for (uint32_t i = 0; i < active->count; ++i) {
    level->leaves[active->threads[i]] = (uint8_t)stmt->leave;
    level->leave_count++;
  }
}

static void free_leaves(qn__interpret_machine_t* machine) {
  qn__interpret_level_t* level = &machine->levels[machine->level];
  if (level->leaves) qn__free(machine->allocator, level->leaves, level->count);
  level->leaves = NULL;
}

bool qn__machine_goes_on(qn__interpret_machine_t* machine, uint32_t thread) {
  qn__interpret_level_t* level = &machine->levels[machine->level];
  uint8_t kind = level->leave_count > 0 ? level->leaves[thread] : 0;
  if (kind == 0) return true;
  if (kind == QN_LEAVE_RETURN) return false;
  level->leaves[thread] = 0;
  level->leave_count--;
  return kind == QN_LEAVE_CONTINUE;
}

// Runs a loop. Threads may have different ranges: each is active while it has iterations left.
static void run_loop(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                     const qn__interpret_set_t* active) {
  typedef struct range {
    int64_t next;
    int64_t end;
  } range_t;
  range_t single;
  owned_set_t running;
  if (!qn__machine_declare_var(machine, stmt->loop.var)) return;
  if (!set_init(machine, &running, active->count)) return;
  range_t* ranges = scratch(machine, active->count, sizeof *ranges, &single);
  for (uint32_t i = 0; i < active->count && !qn__machine_failed(machine); ++i) {
    ranges[i].next = qn__machine_eval(machine, stmt->loop.begin, active->threads[i]).i;
    ranges[i].end = qn__machine_eval(machine, stmt->loop.end, active->threads[i]).i;
  }
  while (!qn__machine_failed(machine)) {
    running.set.count = 0;
    for (uint32_t i = 0; i < active->count; ++i) {
      uint32_t thread = active->threads[i];
      if (!qn__machine_goes_on(machine, thread)) ranges[i].next = ranges[i].end;
      if (ranges[i].next >= ranges[i].end) continue;
      qn__machine_set_var(machine, stmt->loop.var, thread, (qn__ir_scalar_t){.i = ranges[i].next});
      ++ranges[i].next;
      set_add(&running, thread);
    }
    if (running.set.count == 0) break;
    qn__machine_run_block(machine, &stmt->loop.body, &running.set);
  }
  scratch_free(machine, ranges, active->count, sizeof *ranges);
  set_deinit(machine, &running);
}

static void run_while(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                      const qn__interpret_set_t* active) {
  owned_set_t running;
  if (!set_init(machine, &running, active->count)) return;
  memcpy(running.set.threads, active->threads, active->count * sizeof(uint32_t));
  running.set.count = active->count;
  while (!qn__machine_failed(machine)) {
    uint32_t kept = 0;
    machine->active = &running.set;
    for (uint32_t i = 0; i < running.set.count; ++i) {
      uint32_t thread = running.set.threads[i];
      if (!qn__machine_goes_on(machine, thread)) continue;
      if (qn__machine_eval(machine, stmt->while_.condition, thread).i == 0) continue;
      running.set.threads[kept++] = thread;
    }
    running.set.count = kept;
    if (kept == 0) break;
    qn__machine_run_block(machine, &stmt->while_.body, &running.set);
  }
  set_deinit(machine, &running);
}

static void set_per_thread(qn__interpret_machine_t* machine) {
  uint32_t per_thread = 1;
  for (uint32_t level = machine->level + 1; level-- > 0;) {
    machine->levels[level].per_thread = per_thread;
    per_thread *= level > 0 ? machine->levels[level].extent : 1;
  }
}

static void push_level(qn__interpret_machine_t* machine, qn_loop_kind_t kind, uint32_t extent) {
  uint32_t count = machine->levels[machine->level].count * extent;
  assert(machine->level + 1 < qn__interpret_max_levels && count <= max_threads);
  machine->levels[++machine->level] =
      (qn__interpret_level_t){.kind = kind, .extent = extent, .count = count};
  set_per_thread(machine);
}

static void pop_level(qn__interpret_machine_t* machine) {
  assert(machine->level > 0);
  free_leaves(machine);
  --machine->level;
  set_per_thread(machine);
}

static void run_threads(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                        const qn__interpret_set_t* active) {
  if (active->count == 0) return;
  int64_t begin = qn__machine_eval(machine, stmt->loop.begin, active->threads[0]).i;
  int64_t end = qn__machine_eval(machine, stmt->loop.end, active->threads[0]).i;
  if (qn__machine_failed(machine) || begin >= end) return;
  int64_t extent, count;
  if (__builtin_sub_overflow(end, begin, &extent) ||
      __builtin_mul_overflow(extent, (int64_t)machine->levels[machine->level].count, &count) ||
      count > max_threads || machine->level + 1 == qn__interpret_max_levels) {
    (void)qn__machine_fail(machine, QN_STATUS_VALUE_ERROR,
                           "thread loop '%s' makes more than %d threads in a block",
                           stmt->loop.var->name, max_threads);
    return;
  }
  push_level(machine, stmt->loop.kind, (uint32_t)extent);
  owned_set_t children;
  if (qn__machine_declare_var(machine, stmt->loop.var) &&
      set_init(machine, &children, active->count * (uint32_t)extent)) {
    for (uint32_t i = 0; i < active->count; ++i) {
      for (uint32_t c = 0; c < (uint32_t)extent; ++c) {
        uint32_t child = active->threads[i] * (uint32_t)extent + c;
        qn__machine_set_var(machine, stmt->loop.var, child, (qn__ir_scalar_t){.i = begin + c});
        set_add(&children, child);
      }
    }
    qn__machine_run_block(machine, &stmt->loop.body, &children.set);
    set_deinit(machine, &children);
  }
  pop_level(machine);
}

// Runs a marked loop in groups of lanes, as generated code does. Each lane is a thread.
static void run_lanes(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                      const qn__interpret_set_t* active) {
  uint32_t parent = active->threads[0];
  uint32_t lane_count = stmt->loop.lane_count;
  int64_t begin = qn__machine_eval(machine, stmt->loop.begin, parent).i;
  int64_t end = qn__machine_eval(machine, stmt->loop.end, parent).i;
  owned_set_t lanes;
  if (qn__machine_failed(machine) || !set_init(machine, &lanes, lane_count)) return;
  push_level(machine, stmt->loop.kind, lane_count);
  bool is_ready = qn__machine_declare_var(machine, stmt->loop.var);
  for (int64_t i = begin; i < end && is_ready && !qn__machine_failed(machine);) {
    lanes.set.count = 0;
    for (uint32_t lane = 0; lane < lane_count && i < end; ++lane, ++i) {
      qn__machine_set_var(machine, stmt->loop.var, lane, (qn__ir_scalar_t){.i = i});
      set_add(&lanes, lane);
    }
    qn__machine_run_block(machine, &stmt->loop.body, &lanes.set);
  }
  pop_level(machine);
  set_deinit(machine, &lanes);
}

static void run_assert(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                       const qn__interpret_set_t* active) {
  for (uint32_t i = 0; i < active->count && !qn__machine_failed(machine); ++i) {
    if (qn__machine_eval(machine, stmt->assert_.condition, active->threads[i]).i != 0) continue;
    if (qn__machine_failed(machine)) return;
    const char* message = stmt->assert_.message;
    if (message && message[0]) {
      (void)qn__machine_fail(machine, QN_STATUS_ASSERTION, "assert failed: %s", message);
      return;
    }
    qn__buffer_t text;
    qn__buffer_init(&text, machine->allocator);
    qn__text_print_expr(stmt->assert_.condition, &text);
    qn_str_t condition = qn__buffer_as_str(&text);
    (void)qn__machine_fail(machine, QN_STATUS_ASSERTION, "assert failed: %.*s",
                           QN_STR_ARG(condition));
    qn__buffer_deinit(&text);
  }
}

static void run_barrier(qn__interpret_machine_t* machine, const qn__interpret_set_t* active) {
  uint32_t count = machine->levels[machine->level].count;
  if (active->count == count) return;
  (void)qn__machine_fail(machine, QN_STATUS_ASSERTION,
                         "barrier reached by %" PRIu32 " of %" PRIu32 " threads of the block",
                         active->count, count);
}

static void run_stmt(qn__interpret_machine_t* machine, const qn__ir_stmt_t* stmt,
                     const qn__interpret_set_t* active) {
  machine->active = active;
  switch (stmt->kind) {
    case QN__STMT_LET:
      run_let(machine, stmt, active);
      break;
    case QN__STMT_STORE:
      run_store(machine, stmt, active);
      break;
    case QN__STMT_ATOMIC:
      run_atomic(machine, stmt, active);
      break;
    case QN__STMT_IF:
      run_if(machine, stmt, active);
      break;
    case QN__STMT_LOOP:
      if (qn__loop_is_thread(stmt->loop.kind)) {
        run_threads(machine, stmt, active);
      } else if (machine->args->runs_lanes && stmt->loop.lane_count > 0 && machine->level == 0) {
        run_lanes(machine, stmt, active);
      } else {
        run_loop(machine, stmt, active);
      }
      break;
    case QN__STMT_WHILE:
      run_while(machine, stmt, active);
      break;
    case QN__STMT_ALLOC:
      qn__machine_alloc(machine, stmt->alloc.buffer);
      break;
    case QN__STMT_FENCE:
      return;  // accesses are in order
    case QN__STMT_BARRIER:
      run_barrier(machine, active);
      break;
    case QN__STMT_ASSERT:
      run_assert(machine, stmt, active);
      break;
    case QN__STMT_LEAVE:
      run_leave(machine, stmt, active);
      break;
    case QN__STMT_TENSOR:
      qn__machine_tensor(machine, stmt->tensor);
      break;
    case QN__STMT_REDUCE:
      qn__machine_several(machine, stmt->several);
      break;
  }
}

// Returns the active threads that have left nothing.
static bool keep_staying(qn__interpret_machine_t* machine, const qn__interpret_set_t* active,
                         owned_set_t* staying) {
  const uint8_t* leaves = machine->levels[machine->level].leaves;
  if (!staying->set.threads && !set_init(machine, staying, active->count)) return false;
  uint32_t count = 0;
  for (uint32_t i = 0; i < active->count; ++i) {
    uint32_t thread = active->threads[i];
    if (leaves[thread] == 0) staying->set.threads[count++] = thread;
  }
  staying->set.count = count;
  return count > 0;
}

void qn__machine_run_block(qn__interpret_machine_t* machine, const qn__ir_block_t* block,
                           const qn__interpret_set_t* active) {
  if (active->count == 0) return;
  owned_set_t staying = {.set = {NULL, 0}};
  for (const qn__ir_stmt_t* stmt = block->first; stmt && !qn__machine_failed(machine);
       stmt = stmt->next) {
    run_stmt(machine, stmt, active);
    bool has_node = machine->node.expr || machine->node.stmt;
    if (qn__machine_failed(machine) && !has_node) machine->node.stmt = stmt;
    if (machine->levels[machine->level].leave_count == 0) continue;
    if (qn__machine_failed(machine) || !keep_staying(machine, active, &staying)) break;
    active = &staying.set;
  }
  if (staying.set.threads) set_deinit(machine, &staying);
}

// Binds the arguments. Symbols and scalars come first, since shapes of buffers use them.
static void bind(qn__interpret_machine_t* machine) {
  const qn__ir_func_t* function = machine->function;
  const qn__interpret_args_t* args = machine->args;
  for (size_t i = 0; i < function->symbol_count; ++i) {
    if (!qn__machine_declare_var(machine, function->symbols[i])) return;
    qn__machine_set_var(machine, function->symbols[i], 0, (qn__ir_scalar_t){.i = args->symbols[i]});
  }
  for (size_t i = 0; i < function->param_count; ++i) {
    const qn__ir_var_t* scalar = function->params[i].scalar;
    if (!scalar) continue;
    if (!qn__machine_declare_var(machine, scalar)) return;
    qn__machine_set_var(machine, scalar, 0, qn__scalar_from_bits(scalar->dtype, args->params[i]));
  }
  for (size_t i = 0; i < function->param_count && !qn__machine_failed(machine); ++i) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (buffer) qn__machine_bind(machine, buffer, args->params[i]);
  }
}

qn_status_t qn__interpret(const qn__ir_func_t* function, const qn__interpret_args_t* args,
                          qn_allocator_t allocator) {
  qn__interpret_machine_t machine = {.function = function, .args = args, .allocator = allocator};
  machine.levels[0] = (qn__interpret_level_t){.extent = 1, .count = 1, .per_thread = 1};
  machine.vars = qn__alloc_zero(allocator, function->var_count + 1U, sizeof *machine.vars);
  machine.buffers = qn__alloc_zero(allocator, function->buffer_count + 1U, sizeof *machine.buffers);
  uint32_t only = 0;
  qn__interpret_set_t active = {&only, 1};
  machine.active = &active;
  if (machine.vars && machine.buffers) {
    bind(&machine);
    qn__machine_run_block(&machine, &function->body, &active);
  } else {
    no_memory(&machine);
  }
  qn__machine_free_buffers(&machine);
  for (uint32_t i = 0; machine.vars && i < function->var_count; ++i) {
    qn__free(allocator, machine.vars[i].values,
             machine.vars[i].capacity * sizeof *machine.vars[i].values);
  }
  free_leaves(&machine);
  qn__free(allocator, machine.vars, (function->var_count + 1U) * sizeof *machine.vars);
  qn__free(allocator, machine.buffers, (function->buffer_count + 1U) * sizeof *machine.buffers);
  if (args->out_node) *args->out_node = machine.node;
  return machine.status;
}
