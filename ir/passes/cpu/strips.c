// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/strips.c: the pass `strip` turns loops over columns inside out.
//
//   parallel j in 0..m { c[j] = sum i in 0..n { a[i, j] }; }
//
// reads memory in steps of a row. With the loop over a strip of columns innermost, it reads rows:
//
//   parallel strip in 0..ceildiv(m, width) {
//     alloc acc: f32[width] in local;
//     parallel j in the strip { acc[j - first] = 0; }
//     for i in 0..n { parallel j in the strip { acc[j - first] = acc[j - first] + a[i, j]; } }
//     parallel j in the strip { c[j] = acc[j - first]; }
//   }
//
// 1. The iterations of the loop are independent, so that any interleaving of them is right. Each
//    iteration keeps the order of its own statements, and each reduction adds in its order.
// 2. Loops and reductions around the strip have bounds that are the same for all its columns.
//    All other statements stay together, in loops over the columns.
// 3. A value that a later loop over the columns uses, and a local buffer, get an element for each
//    column of the strip. They have constant sizes and lie on the stack of a task.
// 4. Only loops whose accesses are contiguous along the columns, and are not along an inner loop,
//    change. A reduction that reads values which all columns share does not: the pass `blocks`
//    takes it, or registers hold its sums. A loop of statements with such values changes: the
//    order of its sums is fixed, so that only other columns can fill the lanes.
//
// Postcondition: no loop changed but those; what is inside of a strip has no launches.
#include "ir/passes/cpu/strips.h"
#include "ir/passes/products_write.h"

enum {
  max_width = 4096,         // columns of a strip
  min_width = 64,           // no fewer than the lanes of a loop
  task_width = 512,         // of a launch: shorter pieces of rows are read at half the speed
  task_count = 4,           // of a launch, where they are not too short
  min_columns = 8,          // fewer leave vectors empty
  max_stack_bytes = 32768,  // of the buffers of a strip
};

// ---- which loops

typedef struct survey {
  const qn__strip_t* strip;
  qn__lanes_t* steps;  // facts about an inner loop or reduction
  uint32_t columns;    // accesses that are contiguous along the columns, not along the steps
  bool has_broadcast;  // reads values of a step that all columns share
  bool is_short;       // registers hold all steps
  bool is_unfit;
  int64_t bytes;  // of the strip's buffers for a column
} survey_t;

static bool is_reduce(const qn__ir_expr_t* expr) {
  return expr->kind == QN__EXPR_REDUCE;
}

static bool is_loop_or_alloc(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP || stmt->kind == QN__STMT_ALLOC;
}

// Looks at an access inside of an inner loop or reduction.
static bool survey_access(void* context, const qn__ir_ref_t* ref) {
  survey_t* self = context;
  const qn__lanes_t* lanes = self->strip->lanes;
  const qn__ir_buffer_t* buffer = *ref->buffer;
  if (lanes->is_private[qn__buf_root(buffer)->id]) return true;
  qn__lanes_reach_t across = qn__lanes_reach(lanes, buffer, *ref->indices);
  qn__lanes_reach_t along = qn__lanes_reach(self->steps, buffer, *ref->indices);
  if (across == QN__REACH_UNIFORM) self->has_broadcast |= along != QN__REACH_UNIFORM;
  if (across == QN__REACH_SCATTERED) self->is_unfit = true;
  if (across == QN__REACH_CONTIGUOUS) {
    if (along == QN__REACH_SCATTERED && !self->is_short) ++self->columns;
    if (along == QN__REACH_CONTIGUOUS) self->is_unfit = true;  // a window over a row
  }
  return !self->is_unfit;
}

// Begins to look at a loop or reduction.
static void survey_steps(survey_t* self, qn__ir_var_t* var, qn__ir_expr_t* begin,
                         qn__ir_expr_t* end, qn__ir_block_t* body) {
  if (!qn__strip_spans(self->strip, begin, end)) self->is_unfit = true;
  int64_t trips = qn__const_trips(begin, end);
  self->is_short = trips >= 0 && trips <= qn__strip_short;
  self->has_broadcast = false;
  qn__lanes_enter(self->steps, var, body);
}

// Returns the bytes that hold a value: sums of narrow floats are sums of f32.
static int64_t value_bytes(const qn__ir_expr_t* value) {
  int64_t bytes = (int64_t)qn_dtype_size_bytes(value->dtype);
  return bytes < 4 ? 4 : bytes;
}

static bool survey_reductions(void* context, qn__ir_expr_t** slot) {
  survey_t* self = context;
  qn__ir_expr_t* expr = *slot;
  if (expr->kind != QN__EXPR_REDUCE) return qn__expr_each_child(expr, survey_reductions, self);
  survey_steps(self, expr->reduce.reduce_var, expr->reduce.begin, expr->reduce.end,
               &expr->reduce.lets);
  for (qn__ir_stmt_t* let = expr->reduce.lets.first; let; let = let->next) {
    if (!qn__stmt_each_ref(let, survey_access, self)) return false;
  }
  (void)qn__expr_each_ref(expr->reduce.value, survey_access, self);
  if (self->has_broadcast) self->is_unfit = true;
  self->bytes += value_bytes(expr);
  return !self->is_unfit;
}

static int64_t local_bytes(const qn__ir_buffer_t* buffer) {
  int64_t bytes = (int64_t)qn_dtype_size_bytes(buffer->dtype);
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    int64_t extent;
    if (!qn__expr_const_int(buffer->shape[d], &extent) || extent < 0 ||
        __builtin_mul_overflow(bytes, extent, &bytes)) {
      return max_stack_bytes;
    }
  }
  return bytes < max_stack_bytes ? bytes : max_stack_bytes;
}

static void survey_block(survey_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt && !self->is_unfit; stmt = stmt->next) {
    switch (stmt->kind) {
      case QN__STMT_LET:
        if (!qn__strip_is_uniform(self->strip, stmt->let.value)) {
          self->bytes += value_bytes(stmt->let.value);
        }
        break;
      case QN__STMT_ALLOC:
        self->bytes += local_bytes(stmt->alloc.buffer);
        break;
      case QN__STMT_IF:
        self->is_unfit = qn__block_any(&stmt->if_.then_block, is_loop_or_alloc) ||
                         qn__block_any(&stmt->if_.else_block, is_loop_or_alloc) ||
                         qn__block_any_expr(&stmt->if_.then_block, is_reduce) ||
                         qn__block_any_expr(&stmt->if_.else_block, is_reduce);
        break;
      case QN__STMT_LOOP:
        survey_steps(self, stmt->loop.var, stmt->loop.begin, stmt->loop.end, &stmt->loop.body);
        (void)qn__block_each_ref(&stmt->loop.body, survey_access, self);
        if (!self->is_unfit) survey_block(self, &stmt->loop.body);
        break;
      default:
        break;
    }
    if (!self->is_unfit) (void)qn__stmt_each_expr(stmt, survey_reductions, self);
  }
}

// Returns the columns of a strip, or 0 if the loop stays.
static int64_t choose_width(const qn__strip_t* strip, qn__lanes_t* steps) {
  qn__ir_stmt_t* loop = strip->loop;
  int64_t trips = qn__const_trips(loop->loop.begin, loop->loop.end);
  if ((trips >= 0 && trips < min_columns) ||
      qn__block_any(&loop->loop.body, qn__stmt_is_not_plain)) {
    return 0;
  }
  survey_t survey = {.strip = strip, .steps = steps};
  survey_block(&survey, &loop->loop.body);
  if (survey.is_unfit || survey.columns == 0) return 0;
  int64_t width = max_width;
  while (width >= min_width && width * survey.bytes > max_stack_bytes) width /= 2;
  return width >= min_width ? width : 0;
}

// ---- the strips

// Returns the columns of a strip of a launch: there is work for several cores, where rows are long
// enough to be worth dividing. (Measured with 1024 columns of f32: strips of 512 take 1.1 times as
// long as one of 1024 on one core, strips of 128 1.4 times; with 3000, strips of 512 take 1.4 times
// as long as one.)
static qn__ir_expr_t* lines_of(const qn__strip_t* strip, qn__ir_block_t* out,
                               const qn__ir_expr_t* count) {
  qn__pass_builder_t* pb = strip->pb;
  qn__ir_expr_t* lines = qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_copy(pb, count), task_count);
  lines = qn__pb_op_int(pb, QN_OP_CEILDIV, lines, min_width);
  lines = qn__pb_op_int(pb, QN_OP_MUL, lines, min_width);
  int64_t least = strip->width < task_width ? strip->width : task_width;
  lines = qn__pb_op_int(pb, QN_OP_MAX, lines, least);
  return qn__pb_named(pb, out, "lines", qn__pb_op_int(pb, QN_OP_MIN, lines, strip->width));
}

// Writes the strips that replace `loop`, which is in no list, to `out`. Returns false if it stays.
static bool write_strips(qn__pass_builder_t* pb, qn__lanes_t* steps, qn__ir_stmt_t* loop,
                         bool is_launch, qn__ir_block_t* out) {
  qn__lanes_t* lanes = qn__pb_lanes(pb);
  if (!lanes) return false;
  qn__lanes_enter(lanes, loop->loop.var, &loop->loop.body);
  qn__strip_t strip = {.pb = pb, .lanes = lanes, .loop = loop};
  strip.width = choose_width(&strip, steps);
  if (strip.width == 0) return false;
  qn__ir_expr_t* begin = qn__pb_named(pb, out, "begin", loop->loop.begin);
  qn__ir_expr_t* end = qn__pb_named(pb, out, "end", loop->loop.end);
  if (!begin || !end) return false;
  qn__ir_expr_t* count = qn__pb_named(pb, out, "columns", qn__pb_range(pb, begin, end));
  if (!count) return false;
  qn__ir_expr_t* lines = is_launch ? lines_of(&strip, out, count) : qn__pb_int(pb, strip.width);
  if (!lines) return false;
  qn__ir_expr_t* tasks = qn__pb_op(pb, QN_OP_CEILDIV, count, qn__pb_copy(pb, lines));
  qn__ir_stmt_t* task = qn__pb_count_loop(pb, loop->loop.kind, "strip", tasks);
  if (!task) return false;
  qn__ir_block_t* body = &task->loop.body;
  qn__ir_expr_t* shift =
      qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, task->loop.var), qn__pb_copy(pb, lines));
  strip.first = qn__pb_let(pb, body, "first", qn__pb_op(pb, QN_OP_ADD, begin, shift));
  qn__ir_expr_t* last = qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, strip.first), lines);
  strip.limit = qn__pb_let(pb, body, "limit", qn__pb_op(pb, QN_OP_MIN, last, qn__pb_copy(pb, end)));
  qn__ir_block_t content = {NULL, NULL};
  qn__strip_write(&strip, &loop->loop.body, &content);
  qn__block_splice(body, &strip.head);
  qn__block_splice(body, &content);
  qn__block_append(out, task);
  return !qn__pb_stopped(pb);
}

static void visit(qn__pass_builder_t* pb, qn__lanes_t* steps, qn__ir_block_t* block,
                  bool is_parallel) {
  qn__ir_block_t rest = qn__block_take(block);
  qn__ir_stmt_t* stmt;
  while ((stmt = qn__block_pop(&rest)) != NULL) {
    bool is_candidate = qn__is_independent_loop(stmt) && stmt->loop.kind != QN_LOOP_VECTOR;
    bool is_launch = stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_PARALLEL;
    if (is_candidate && write_strips(pb, steps, stmt, is_launch && !is_parallel, block)) continue;
    if (qn__pb_stopped(pb)) return;
    // Loops in lanes do not nest.
    bool has_lanes = stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_VECTOR;
    QN__EACH_BLOCK(stmt, inner) {
      if (!has_lanes) visit(pb, steps, inner, is_parallel || is_launch);
    }
    qn__block_append(block, stmt);
  }
}

static void run(qn__pass_builder_t* pb) {
  qn__lanes_t steps;
  if (!qn__lanes_init(&steps, pb->arena, pb->function)) return;
  visit(pb, &steps, &pb->function->body, false);
}

const qn__pass_t qn__pass_strip = {
    .name = "strip",
    .doc = "turns loops over columns inside out",
    .run = run,
    .post = "no loop changed but those over columns; reductions add in their order",
};
