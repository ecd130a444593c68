// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/prepared.c: writes a product as tasks that each call a kernel which is compiled
// already.
//
//   let form = the number of the form that fits the call;
//   parallel task in 0..batch * tasks_down * tasks_across {
//     product C[row, column] = A[row, 0] * B[0, column], rows by columns sums, K steps, form;
//   }
//
// If the program does more with a sum than to store it, the task's sums go to its stack:
//
//     alloc sums: [most_rows, most_columns] in local;
//     product sums[0, 0] = ...;
//     for i in 0..rows { parallel j in 0..columns { the body of the nest for sums[i, j] } }
//
// 1. A task is what the form gives to a task (blocks_write.c, small.c, ...), so that code and work
//    are those of a product that is compiled as a whole.
// 2. Products of known extents are not written so: their forms are fewer, and fit the extents.
#include "ir/passes/cpu/prepared.h"

#include "ir/passes/products_inner.h"
#include "ir/passes/products_write.h"

enum {
  // Of a task whose sums are on its stack: beside the arrays of a kernel, which are larger where
  // the second cache is (emit_product.c tests that all fit). Multiples of all heights of tiles.
  stack_rows = 192,
  stack_rows_beside_large = 72,
  stack_columns = 64,
  large_l2_bytes = 1 << 20,
};

// The most lines of a task by form. BLOCKS divides the lines evenly, see write_sizes.
static const struct {
  int64_t rows, columns;
} most_lines[qn__product_forms] = {
    [QN__FORM_LOOPS] = {16, 4096},      [QN__FORM_ROWS] = {INT32_MAX, 64},
    [QN__FORM_ALONG] = {INT32_MAX, 64}, [QN__FORM_SMALL] = {48, INT32_MAX},  // few rows: 64 columns
    [QN__FORM_COLUMNS] = {256, 64},
};

typedef struct prepared_writer {
  qn__product_t* product;
  qn__pass_builder_t* pb;
  const qn__prepared_plan_t* plan;
  int64_t stack_rows;                        // of `sums`
  qn__ir_expr_t* form;                       // of the call, as a number
  qn__ir_expr_t* extent[qn__product_sides];  // of all lines
  qn__ir_expr_t* most[qn__product_sides];    // lines of a task
  qn__ir_expr_t* tasks[qn__product_sides];
} prepared_writer_t;

static qn__ir_expr_t* copy(const prepared_writer_t* w, const qn__ir_expr_t* expr) {
  return qn__pb_copy(w->pb, expr);
}

// ---- the choice

// Returns true if the last index of a reference is `along`, whose neighbours are adjacent, and one
// other, `*out_dim`, is `line`; the rest depends on neither of them.
static bool is_matrix(const qn__product_t* product, const qn__ir_buffer_t* buffer,
                      qn__ir_expr_t* const* indices, const qn__ir_var_t* line,
                      const qn__ir_var_t* along, uint32_t* out_dim) {
  const uint32_t moving = qn__product_both(product) | QN__PRODUCT_STEP | QN__PRODUCT_FIXED;
  if (buffer->rank < 2 || buffer->dtype != QN_DTYPE_F32) return false;
  const uint32_t last = buffer->rank - 1U;
  int64_t stride = 1;
  if (buffer->strides && !qn__expr_const_int(buffer->strides[last], &stride)) return false;
  if (stride != 1 || indices[last]->kind != QN__EXPR_VAR || indices[last]->var != along)
    return false;
  *out_dim = last;
  for (uint32_t d = 0; d < last; ++d) {
    if (indices[d]->kind == QN__EXPR_VAR && indices[d]->var == line) {
      if (*out_dim != last) return false;
      *out_dim = d;
    } else if (qn__product_mask_of(product, indices[d]) & moving) {
      return false;
    }
  }
  return *out_dim != last;
}

// Returns the variable of the only loop in `dims`, or NULL.
static const qn__ir_var_t* only_loop(const qn__product_t* product, uint32_t dims) {
  for (uint32_t d = 0; d < product->nest->count; ++d) {
    if (dims == 1U << d) return product->nest->loops[d]->loop.var;
  }
  return NULL;
}

bool qn__prepared_choose(const qn__product_t* product, const bool* has, qn__prepared_plan_t* plan) {
  const qn__pass_options_t* options = product->pb->options;
  const qn__ir_expr_t* summand = *product->summand;
  const qn__ir_expr_t* reduce = product->reduce;
  *plan = (qn__prepared_plan_t){.is_across = false};
  if (!options->prepared || reduce->dtype != QN_DTYPE_F32 ||
      reduce->reduce.reduce_kind != QN_REDUCE_SUM || product->step_count != 1 ||
      product->operand_count != 2 || product->slot_count != 2 || product->is_guarded ||
      summand->kind != QN__EXPR_OP || summand->op != QN_OP_MUL ||
      !qn__product_common_steps(product)) {
    return false;
  }
  const qn__ir_var_t* row = only_loop(product, product->side_dims[QN__PRODUCT_ROW]);
  const qn__ir_var_t* column = only_loop(product, product->side_dims[QN__PRODUCT_COLUMN]);
  const qn__ir_var_t* step = reduce->reduce.reduce_var;
  bool is_known = qn__product_trips(product, product->side_dims[QN__PRODUCT_ROW]) >= 0 &&
                  qn__product_trips(product, product->side_dims[QN__PRODUCT_COLUMN]) >= 0 &&
                  qn__product_steps(product) >= 0;
  if (!row || !column || is_known || reduce->reduce.lets.first) return false;
  for (uint32_t o = 0; o < 2; ++o) {
    const qn__ir_expr_t* value = product->operands[o].value;
    if (value->kind != QN__EXPR_LOAD || summand->args[o]->kind != QN__EXPR_LOAD) return false;
    qn__ir_expr_t* const* indices = value->load.indices;
    const qn__ir_buffer_t* buffer = value->load.buffer;
    if (product->operands[o].side == QN__PRODUCT_ROW) {
      if (!is_matrix(product, buffer, indices, row, step, &plan->dims[1])) return false;
      continue;
    }
    plan->is_across = is_matrix(product, buffer, indices, step, column, &plan->dims[2]);
    if (!plan->is_across && !is_matrix(product, buffer, indices, column, step, &plan->dims[2]))
      return false;
  }
  for (int form = 0; form < qn__product_forms; ++form) {
    plan->has[form] = form == QN__FORM_LOOPS || has[form];
    uint32_t number = qn__prepared_number((qn__product_form_t)form, plan->is_across);
    if (plan->has[form] && !(options->prepared >> number & 1)) return false;
  }
  const qn__ir_stmt_t* store = product->nest->body.first;
  plan->is_store =
      store && store == product->nest->body.last && store->kind == QN__STMT_STORE &&
      store->store.value == reduce &&
      is_matrix(product, store->store.buffer, store->store.indices, row, column, &plan->dims[0]);
  return true;
}

// ---- the tasks

// Returns the value that the form of the call has in `values`, of which NULL is none.
static qn__ir_expr_t* select_form(prepared_writer_t* w, qn__ir_expr_t* const* values) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* value = qn__pb_copy(pb, values[QN__FORM_LOOPS]);
  for (int form = 1; form < qn__product_forms; ++form) {
    if (!w->plan->has[form]) continue;
    value = qn__pb_cond(pb, qn__pb_op_int(pb, QN_OP_EQ, copy(w, w->form), form),
                        qn__pb_copy(pb, values[form]), value);
  }
  return value;
}

// Appends the form that fits the call.
static void write_choice(prepared_writer_t* w, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* chosen = qn__pb_int(pb, QN__FORM_LOOPS);
  for (int form = 1; form < qn__product_forms; ++form) {
    if (!w->plan->has[form]) continue;
    qn__ir_expr_t* own = qn__pb_int(pb, form);
    qn__ir_expr_t* condition = w->plan->conditions[form];
    chosen = condition ? qn__pb_cond(pb, condition, own, chosen) : own;
  }
  w->form = qn__pb_named(pb, out, "form", chosen);
}

// Returns the lines of a side in parts of at most `most` of nearly equal sizes, in whole tiles.
static qn__ir_expr_t* even(prepared_writer_t* w, const qn__ir_expr_t* extent, qn__ir_expr_t* most,
                           int64_t tile) {
  qn__pass_builder_t* pb = w->pb;
  qn__ir_expr_t* parts = qn__pb_op(pb, QN_OP_CEILDIV, copy(w, extent), most);
  parts = qn__pb_op_int(pb, QN_OP_MAX, parts, 1);
  qn__ir_expr_t* lines = qn__pb_op(pb, QN_OP_CEILDIV, copy(w, extent), parts);
  lines = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_op_int(pb, QN_OP_CEILDIV, lines, tile), tile);
  // Without lines there are no tasks, but a division by their size.
  return qn__pb_op_int(pb, QN_OP_MAX, lines, tile);
}

// Returns the tasks of a side. Tiny products take as long as a few divisions: most have one task.
static qn__ir_expr_t* tasks_of(prepared_writer_t* w, const qn__ir_expr_t* extent,
                               const qn__ir_expr_t* most) {
  qn__pass_builder_t* pb = w->pb;
  return qn__pb_cond(pb, qn__pb_op(pb, QN_OP_LE, copy(w, extent), copy(w, most)),
                     qn__pb_op_int(pb, QN_OP_MIN, copy(w, extent), 1),
                     qn__pb_op(pb, QN_OP_CEILDIV, copy(w, extent), copy(w, most)));
}

// Appends the most lines of a task for each side.
static void write_sizes(prepared_writer_t* w, qn__ir_block_t* out, const qn__ir_expr_t* batch) {
  qn__pass_builder_t* pb = w->pb;
  const qn__blocks_shape_t* blocks = w->plan->blocks;
  const bool is_store = w->plan->is_store;
  for (int s = qn__product_sides; s-- > 0;) {
    bool is_row = s == QN__PRODUCT_ROW;
    qn__ir_expr_t* values[qn__product_forms] = {NULL};
    for (int form = 0; form < qn__product_forms; ++form) {
      if (!w->plan->has[form] || form == QN__FORM_BLOCKS) continue;
      int64_t most = is_row ? most_lines[form].rows : most_lines[form].columns;
      values[form] = qn__pb_int(pb, most);
    }
    if (w->plan->has[QN__FORM_SMALL] && !is_row && w->plan->few_rows) {
      qn__ir_expr_t* is_few =
          qn__pb_op_int(pb, QN_OP_LE, copy(w, w->extent[QN__PRODUCT_ROW]), w->plan->few_rows);
      values[QN__FORM_SMALL] =
          qn__pb_cond(pb, is_few, qn__pb_int(pb, stack_columns), values[QN__FORM_SMALL]);
    }
    if (w->plan->has[QN__FORM_BLOCKS]) {
      qn__ir_expr_t* most =
          is_row ? qn__blocks_most_rows(pb, out, blocks->rows,
                                        qn__pb_op(pb, QN_OP_MUL, copy(w, batch),
                                                  copy(w, w->tasks[QN__PRODUCT_COLUMN])))
                 : qn__pb_int(pb, blocks->columns);
      if (is_row && !is_store) most = qn__pb_op_int(pb, QN_OP_MIN, most, w->stack_rows);
      values[QN__FORM_BLOCKS] =
          even(w, w->extent[s], most, is_row ? blocks->height : blocks->width);
    }
    qn__ir_expr_t* most = select_form(w, values);
    if (!is_store)
      most = qn__pb_op_int(pb, QN_OP_MIN, most, is_row ? w->stack_rows : stack_columns);
    w->most[s] = qn__pb_named(pb, out, is_row ? "most_rows" : "most_columns", most);
    w->tasks[s] = qn__pb_named(pb, out, is_row ? "tasks_down" : "tasks_across",
                               tasks_of(w, w->extent[s], w->most[s]));
  }
}

// ---- a task

// Appends the product of the part that is set, to `to` or to the memory of the nest's store.
static void write_product(prepared_writer_t* w, qn__ir_block_t* out, qn__ir_buffer_t* to,
                          qn__ir_expr_t* rows, qn__ir_expr_t* columns, qn__ir_expr_t* steps) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  qn__ir_tensor_t* tensor = QN__ARENA_NEW(pb->arena, qn__ir_tensor_t);
  qn__ir_stmt_t* stmt = qn__stmt_new(pb->arena, QN__STMT_TENSOR, (qn__ir_loc_t){0, 0});
  if (!tensor || !stmt) return;
  *tensor = (qn__ir_tensor_t){.kind = QN__TENSOR_PRODUCT, .ref_count = QN__TENSOR_REFS};
  tensor->is_across[1] = w->plan->is_across;
  const qn__ir_stmt_t* store = product->nest->body.first;
  qn__product_set_step(product, out, qn__pb_int(pb, 0));
  if (!to) {
    bool is_needed[qn__product_max_names] = {false};
    for (uint32_t d = 0; d < store->store.buffer->rank; ++d) {
      qn__product_needs(product, store->store.indices[d], is_needed);
    }
    qn__product_write_lets(product, out, is_needed, 0, qn__product_both(product));
  }
  for (uint32_t r = 0; r < QN__TENSOR_REFS; ++r) {
    qn__ir_buffer_t* buffer = to ? to : store->store.buffer;
    qn__ir_expr_t* const* indices = to ? NULL : store->store.indices;
    if (r > 0) {
      bool is_row = product->operands[0].side == QN__PRODUCT_ROW;
      const qn__product_operand_t* operand = &product->operands[is_row == (r == 1) ? 0 : 1];
      buffer = operand->value->load.buffer;
      indices = operand->value->load.indices;
    }
    qn__ir_expr_t** at = qn__arena_alloc_array(pb->arena, buffer->rank, sizeof *at);
    if (!at) return;
    for (uint32_t d = 0; d < buffer->rank; ++d) {
      at[d] = indices ? qn__product_copy(product, indices[d]) : qn__pb_int(pb, 0);
    }
    tensor->refs[r] = (qn__ir_tensor_ref_t){buffer, at};
    tensor->dims[r] = indices ? w->plan->dims[r] : 0;
  }
  tensor->extents[0] = rows;
  tensor->extents[1] = columns;
  tensor->extents[2] = steps;
  tensor->operand = copy(w, w->form);
  stmt->tensor = tensor;
  qn__pb_append(out, stmt);
}

// Appends what the nest does with the task's sums.
static void write_results(prepared_writer_t* w, qn__ir_block_t* out, qn__ir_buffer_t* sums,
                          const qn__ir_expr_t* const* first, const qn__ir_expr_t* const* count) {
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  qn__ir_stmt_t* loops[qn__product_sides];
  for (int s = 0; s < qn__product_sides; ++s) {
    bool is_row = s == QN__PRODUCT_ROW;
    loops[s] = qn__pb_count_loop(pb, is_row ? QN_LOOP_SERIAL : QN_LOOP_PARALLEL, is_row ? "i" : "j",
                                 copy(w, count[s]));
    if (!loops[s]) return;
    qn__ir_block_t* body = &loops[s]->loop.body;
    qn__ir_expr_t* line =
        qn__pb_op(pb, QN_OP_ADD, copy(w, first[s]), qn__pb_use(pb, loops[s]->loop.var));
    qn__ir_var_t* at = qn__pb_let(pb, body, "at", line);
    if (!at) return;
    qn__product_place(product, body, product->side_dims[s], at);
  }
  qn__ir_expr_t* total = qn__pb_load(pb, sums, qn__pb_use(pb, loops[QN__PRODUCT_ROW]->loop.var),
                                     qn__pb_use(pb, loops[QN__PRODUCT_COLUMN]->loop.var));
  qn__product_write_body(product, &loops[QN__PRODUCT_COLUMN]->loop.body, total);
  qn__block_append(&loops[QN__PRODUCT_ROW]->loop.body, loops[QN__PRODUCT_COLUMN]);
  qn__block_append(out, loops[QN__PRODUCT_ROW]);
}

void qn__prepared_write(qn__product_t* product, const qn__prepared_plan_t* plan,
                        qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  prepared_writer_t w = {.product = product, .pb = pb, .plan = plan};
  bool is_large = pb->options->l2_bytes >= large_l2_bytes;
  w.stack_rows = is_large ? stack_rows_beside_large : stack_rows;
  for (uint32_t i = 0; i < product->name_count; ++i) product->names[i].now = NULL;
  for (int s = 0; s < qn__product_sides; ++s) {
    w.extent[s] = qn__pb_named(pb, out, s == QN__PRODUCT_ROW ? "all_rows" : "all_columns",
                               qn__product_extent(product, product->side_dims[s]));
  }
  write_choice(&w, out);
  write_sizes(&w, out, qn__product_extent(product, qn__product_batch(product)));
  if (qn__pb_stopped(pb)) return;
  qn__ir_expr_t* number;
  qn__ir_stmt_t* task = qn__product_write_tasks(
      product, out, QN_LOOP_PARALLEL,
      qn__pb_op(pb, QN_OP_MUL, copy(&w, w.tasks[0]), copy(&w, w.tasks[1])), &number);
  if (!task || qn__pb_stopped(pb)) return;
  qn__ir_block_t* body = &task->loop.body;
  number = qn__pb_named(pb, body, "number", number);
  qn__ir_expr_t* own[qn__product_sides];
  qn__ir_expr_t* down =
      qn__pb_op(pb, QN_OP_FLOORDIV, copy(&w, number), copy(&w, w.tasks[QN__PRODUCT_COLUMN]));
  down = qn__pb_cond(pb, qn__pb_op_int(pb, QN_OP_EQ, copy(&w, w.tasks[QN__PRODUCT_COLUMN]), 1),
                     copy(&w, number), down);
  own[QN__PRODUCT_ROW] = qn__pb_named(pb, body, "down", down);
  own[QN__PRODUCT_COLUMN] =
      qn__pb_op(pb, QN_OP_SUB, number,
                qn__pb_op(pb, QN_OP_MUL, copy(&w, own[0]), copy(&w, w.tasks[QN__PRODUCT_COLUMN])));
  const qn__ir_expr_t *first[qn__product_sides], *count[qn__product_sides];
  for (int s = 0; s < qn__product_sides; ++s) {
    first[s] = qn__pb_named(pb, body, "first",
                            qn__pb_op(pb, QN_OP_MUL, copy(&w, own[s]), copy(&w, w.most[s])));
    qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, copy(&w, w.extent[s]), copy(&w, first[s]));
    count[s] = qn__pb_named(pb, body, "count", qn__pb_op(pb, QN_OP_MIN, left, copy(&w, w.most[s])));
    qn__ir_var_t* at = qn__pb_let(pb, body, "at", copy(&w, first[s]));
    if (!at || qn__pb_stopped(pb)) return;
    qn__product_place(product, body, product->side_dims[s], at);
  }
  qn__ir_expr_t* steps = qn__product_write_bounds(product, body);
  if (!steps || qn__pb_stopped(pb)) return;
  qn__ir_buffer_t* sums = NULL;
  if (!plan->is_store) {
    sums =
        qn__pb_alloc(pb, body, QN__SCOPE_LOCAL, QN_DTYPE_F32, "sums", w.stack_rows, stack_columns);
    if (!sums) return;
    sums->is_filled = true;
  }
  write_product(&w, body, sums, copy(&w, count[0]), copy(&w, count[1]), steps);
  if (sums) write_results(&w, body, sums, first, count);
  if (!qn__pb_stopped(pb)) qn__block_append(out, task);
}
