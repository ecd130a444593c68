// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_loop.c: prints loops, thread nests, the blocks of a launch, and the barriers
// between thread nests.
//
// 1. A kernel strides over its blocks, so that any number of launched blocks is right.
// 2. A thread nest has one linear index, x fastest, as lanes of warps are numbered. It strides over
//    its iterations, or is guarded by an `if`, or neither if it has exactly the block's threads.
// 3. There is a barrier between two thread nests, in program order or between iterations of a loop
//    around them, and before the next block if that uses shared memory again.
#include <assert.h>

#include "ir/passes/pass_builder.h"
#include "jit/gpu/print_inner.h"

void qn__kprint_barrier(qn__gpu_printer_t* p) {
  p->has_barrier = true;
  p->needs_barrier = false;
  p->dialect->barrier(p);
}

// ---- serial loops

static bool has_no_load(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  (void)walker;
  return expr->kind != QN__EXPR_LOAD;
}

static bool has_load(qn__ir_expr_t* expr) {
  qn__ir_walker_t walker = {NULL, has_no_load, NULL};
  return !qn__walk_expr(&walker, expr);
}

// Prints the body of a loop. At the block level, appends a barrier if a thread nest has none after
// it, because the next iteration may read the stores of its threads.
static void print_round(qn__gpu_printer_t* p, const qn__ir_block_t* body) {
  p->loop_depth++;
  qn__kprint_block(p, body);
  p->loop_depth--;
  if (!p->is_in_threads && p->needs_barrier) qn__kprint_barrier(p);
}

static void print_serial(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  const qn__ir_var_t* var = stmt->loop.var;
  bool is_narrow = qn__kprint_is_narrow_var(p, var);
  const char* type = qn__kprint_type(QN_DTYPE_I64, is_narrow);
  const char* begin = qn__kprint_i64(p, stmt->loop.begin, is_narrow);
  const char* end = qn__kprint_name(p, type, qn__kprint_i64(p, stmt->loop.end, is_narrow));
  const char* name = qn__kprint_var(p, var);
  qn__kprint_note_var(p, var, stmt->loop.begin);
  bool is_wide = qn__kprint_wide_loop(p, stmt);
  bool is_unrolled = stmt->loop.kind == QN_LOOP_UNROLL || stmt->loop.kind == QN_LOOP_VECTOR;
  if (is_unrolled && p->dialect->unroll) qn__kprint_line(p, "%s", p->dialect->unroll);
  bool needed_barrier = p->needs_barrier;
  qn__kprint_open(p, "for (%s %s = %s; %s < %s; ++%s)", type, name, begin, name, end, name);
  print_round(p, &stmt->loop.body);
  qn__kprint_close(p);
  if (is_wide) qn__kprint_wide_end(p);
  p->needs_barrier |= needed_barrier;
}

static void print_while(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  const qn__ir_expr_t* condition = stmt->while_.condition;
  if (!p->is_in_threads && p->needs_barrier && has_load(stmt->while_.condition)) {
    qn__kprint_barrier(p);
  }
  bool needed_barrier = p->needs_barrier;
  bool ends_alone = qn__kprint_can_end_alone(p, stmt);
  if (qn__kprint_needs_lines(p, condition)) {
    qn__kprint_open(p, "while (true)");
    if (ends_alone) qn__kprint_line(p, "if (!qn_alive) break;");
    qn__kprint_line(p, "if (!%s) break;", qn__kprint_expr(p, condition));
  } else {
    const char* text = qn__kprint_expr(p, condition);
    qn__kprint_open(p, ends_alone ? "while (qn_alive && (%s))" : "while (%s)",
                    qn__kprint_bare(p, text));
  }
  print_round(p, &stmt->while_.body);
  qn__kprint_close(p);
  p->needs_barrier |= needed_barrier;
}

// ---- nests

enum { AXES = 3 };

// A perfect nest of block or thread loops by axis. NULL: no loop of that axis.
typedef struct nest {
  const qn__ir_stmt_t* outer;
  const qn__ir_stmt_t* axes[AXES];
  const qn__ir_block_t* body;
} nest_t;

static nest_t nest_of(const qn__ir_stmt_t* outer) {
  nest_t nest = {outer, {NULL, NULL, NULL}, NULL};
  bool is_blocks = qn__loop_is_block(outer->loop.kind);
  qn_loop_kind_t first = is_blocks ? QN_LOOP_BLOCK_X : QN_LOOP_THREAD_X;
  for (const qn__ir_stmt_t* loop = outer; loop; loop = qn__gpu_nest_inner(loop)) {
    uint32_t axis = (uint32_t)loop->loop.kind - (uint32_t)first;
    if (QN_NEVER(axis >= AXES || nest.axes[axis])) break;
    nest.axes[axis] = loop;
    nest.body = &loop->loop.body;
  }
  return nest;
}

// Returns the number of iterations of a loop, a name or a literal of type uint or qn_u64.
static const char* extent_text(qn__gpu_printer_t* p, const qn__ir_stmt_t* loop, bool is_narrow) {
  const char* type = is_narrow ? "uint" : "qn_u64";
  qn_dtype_t dtype = is_narrow ? QN_DTYPE_U32 : QN_DTYPE_U64;
  int64_t extent = qn__const_trips(loop->loop.begin, loop->loop.end);
  if (extent >= 0) return qn__kprint_int(p, dtype, false, extent);
  const char* begin = qn__kprint_i64(p, loop->loop.begin, is_narrow);
  const char* end = qn__kprint_i64(p, loop->loop.end, is_narrow);
  bool is_zero = loop->loop.begin->kind == QN__EXPR_INT && loop->loop.begin->int_value == 0;
  const char* signed_type = is_narrow ? "int" : "qn_i64";
  const char* stop = qn__kprint_name(p, signed_type, end);
  if (is_zero) {
    return qn__kprint_name(p, type,
                           qn__kprint_text(p, "(%s > %s ? %s(%s) : %s)", stop, begin, type, stop,
                                           qn__kprint_int(p, dtype, false, 0)));
  }
  const char* start = qn__kprint_name(p, signed_type, begin);
  return qn__kprint_name(p, type,
                         qn__kprint_text(p, "(%s > %s ? %s(%s) - %s(%s) : %s)", stop, start, type,
                                         stop, type, start, qn__kprint_int(p, dtype, false, 0)));
}

// Returns the product of the extents of a nest, and sets `extents` of its axes.
static const char* nest_count(qn__gpu_printer_t* p, const nest_t* nest, bool is_narrow,
                              const char* extents[AXES]) {
  const char* count = NULL;
  for (uint32_t axis = 0; axis < AXES; ++axis) {
    if (!nest->axes[axis]) continue;
    extents[axis] = extent_text(p, nest->axes[axis], is_narrow);
    count = count ? qn__kprint_text(p, "%s * %s", count, extents[axis]) : extents[axis];
  }
  assert(count);  // a nest has a loop
  int64_t constant = qn__gpu_nest_count(nest->outer);
  if (constant >= 0) {
    return qn__kprint_int(p, is_narrow ? QN_DTYPE_U32 : QN_DTYPE_U64, false, constant);
  }
  return qn__kprint_name(p, is_narrow ? "uint" : "qn_u64", count);
}

// Prints the loops' variables from the linear index, x fastest.
static void print_variables(qn__gpu_printer_t* p, const nest_t* nest, bool is_narrow,
                            const char* const extents[AXES], const char* linear) {
  const char* rest = linear;
  const char* type = is_narrow ? "uint" : "qn_u64";
  for (uint32_t axis = 0; axis < AXES; ++axis) {
    const qn__ir_stmt_t* loop = nest->axes[axis];
    if (!loop) continue;
    bool is_last = true;
    for (uint32_t other = axis + 1; other < AXES; ++other) is_last &= !nest->axes[other];
    bool is_var_narrow = qn__kprint_is_narrow_var(p, loop->loop.var);
    const char* var_type = is_var_narrow ? "int" : "qn_i64";
    const char* index = is_last ? rest : qn__kprint_text(p, "%s %% %s", rest, extents[axis]);
    index = qn__kprint_text(p, "%s(%s)", var_type, index);
    const qn__ir_expr_t* begin = loop->loop.begin;
    if (begin->kind != QN__EXPR_INT || begin->int_value != 0) {
      index = qn__kprint_text(p, "%s + %s", qn__kprint_i64(p, begin, is_var_narrow), index);
    }
    qn__kprint_note_var(p, loop->loop.var, begin);
    qn__kprint_line(p, "const %s %s = %s;", var_type, qn__kprint_var(p, loop->loop.var), index);
    if (!is_last) {
      rest = qn__kprint_name(p, type, qn__kprint_text(p, "%s / %s", rest, extents[axis]));
    }
  }
}

// ---- threads

// Prints a thread nest in one of three forms:
//
// 1. "{ ... }" if the block has exactly one thread for each iteration. A nest with a barrier or an
//    exchange always does (find_threads in launch.c).
// 2. "if (qn_thread < COUNT) { ... }" if both counts are constant and there are more threads.
// 3. "for (uint i = qn_thread; i < COUNT; i += qn_threads) { ... }" otherwise.
static void print_threads(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  assert(!p->is_in_threads && !p->wide);
  nest_t nest = nest_of(stmt);
  if (p->needs_barrier) qn__kprint_barrier(p);
  int64_t count = qn__gpu_nest_count(nest.outer);
  int64_t threads = p->kernel->plan->thread_count;
  const char* extents[AXES] = {NULL, NULL, NULL};
  const char* linear = "qn_thread";
  bool is_exact = qn__gpu_is_together(nest.body) || (threads > 0 && count == threads);
  // A nest that strides in a wide kernel may have more than 2^31 - 1 iterations.
  bool is_wide = !is_exact && !p->kernel->is_narrow && (count < 0 || count > INT32_MAX);
  if (is_exact) {
    qn__kprint_line(p, "{");
    p->indent++;
    (void)nest_count(p, &nest, true, extents);
  } else if (threads > 0 && count >= 0 && count < threads) {
    qn__kprint_open(p, "if (qn_thread < %s)", nest_count(p, &nest, true, extents));
  } else {
    const char* end = nest_count(p, &nest, !is_wide, extents);
    const char* type = is_wide ? "qn_u64" : "uint";
    linear = qn__kprint_temp(p);
    qn__kprint_open(p,
                    is_wide ? "for (%s %s = qn_u64(qn_thread); %s < %s; %s += qn_u64(qn_threads))"
                            : "for (%s %s = qn_thread; %s < %s; %s += qn_threads)",
                    type, linear, linear, end, linear);
  }
  print_variables(p, &nest, !is_wide, extents, linear);
  p->is_in_threads = true;
  qn__kprint_block(p, nest.body);
  p->is_in_threads = false;
  qn__kprint_close(p);
  p->needs_barrier = true;
}

void qn__kprint_loop(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt) {
  if (stmt->kind == QN__STMT_WHILE) {
    print_while(p, stmt);
  } else if (qn__loop_is_thread(stmt->loop.kind)) {
    print_threads(p, stmt);
  } else {
    print_serial(p, stmt);
  }
}

// ---- blocks

void qn__kprint_launch(qn__gpu_printer_t* p) {
  nest_t nest = nest_of(p->kernel->root);
  bool is_narrow = p->kernel->is_narrow;
  const char* extents[AXES] = {NULL, NULL, NULL};
  const char* count = nest_count(p, &nest, is_narrow, extents);
  const char* type = is_narrow ? "uint" : "qn_u64";
  const char* linear = qn__kprint_temp(p);
  qn__kprint_open(p, "for (%s %s = qn_block_first; %s < %s; %s += qn_block_step)", type, linear,
                  linear, count, linear);
  print_variables(p, &nest, is_narrow, extents, linear);
  qn__kprint_block(p, nest.body);
  assert(p->loop_depth == 0 && !p->is_in_threads && !p->wide);
  // The next block must not write shared memory that this one still reads.
  if (p->needs_barrier && (p->shared_count > 0 || p->has_block_exchange)) qn__kprint_barrier(p);
  qn__kprint_close(p);
}
