// SPDX-License-Identifier: Apache-2.0
// ir/passes/cpu/blocks_masked.c: packs lines that belong to several loops, by masked vectors.
//
// The columns of a convolution are positions (y, x). A panel of columns has parts of several image
// rows (runs, blocks_runs.c), and padding cuts off some of a part for some steps:
//
//   for each run of the panel {
//     for dy, dx {                                      // the steps that padding depends on
//       let from, to = the columns of the run that are not padding;     // blocks_inside.c
//       for c {                                         // the other loop of the reduction
//         vector l in 0..width {
//           if l is in the run { packed[step, l] = from <= l && l < to ? x[c, y + dy, ...] : 0; }
//         }
//       }
//     }
//   }
//
// The masks are the same for all iterations of the innermost loop over steps, so that it only loads
// and stores. It is the longest loop of the reduction among those that leave the padding alone.
//
// AVX2 masks loads of words, and masked stores are slow. There all lanes are stored: those of other
// runs keep what is packed.
#include "ir/passes/cpu/blocks.h"
#include "ir/passes/products_write.h"

typedef struct masked {
  qn__blocks_writer_t* w;
  const qn__blocks_panel_t* panel;
  const qn__blocks_steps_t* steps;
  const qn__product_operand_t* operand;
  qn__ir_buffer_t* packed;
  const qn__blocks_run_t* run;
  qn__ir_expr_t* first;  // packed line of the panel's first step
  // Lines of the panel that belong to the run, and those that are no padding (NULL: all).
  qn__ir_expr_t* from;
  qn__ir_expr_t* to;
  qn__ir_expr_t* choice;
  qn__ir_expr_t* inside;
  qn__ir_expr_t* outside;
} masked_t;

static qn__ir_expr_t* copy(const masked_t* self, const qn__ir_expr_t* expr) {
  return qn__pb_copy(self->w->pb, expr);
}

// Returns the loop of the reduction that is innermost.
static uint32_t find_inner(masked_t* self) {
  const qn__product_t* product = self->w->product;
  bool is_needed[qn__product_max_names] = {false};
  if (self->choice) qn__product_needs(product, self->choice->args[0], is_needed);
  uint32_t best = 0;
  int64_t most = -1;
  for (uint32_t k = 0; k < product->step_count; ++k) {
    const qn__ir_expr_t* reduce = product->steps[k].reduce;
    int64_t trips = qn__const_trips(reduce->reduce.begin, reduce->reduce.end);
    if (trips < 0) trips = INT64_MAX;
    if (is_needed[product->steps[k].name] || trips <= most) continue;
    best = k;
    most = trips;
  }
  return best;
}

// Returns `from <= l && l < to`.
static qn__ir_expr_t* is_between(const masked_t* self, qn__ir_var_t* l, const qn__ir_expr_t* from,
                                 const qn__ir_expr_t* to) {
  qn__pass_builder_t* pb = self->w->pb;
  return qn__pb_op(pb, QN_OP_LOGIC_AND,
                   qn__pb_op(pb, QN_OP_GE, qn__pb_use(pb, l), copy(self, from)),
                   qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, l), copy(self, to)));
}

// Appends the loop over lines for the step that is set, which is `step` of those that are packed.
static void write_lines(masked_t* self, qn__ir_block_t* out, qn__ir_expr_t* step) {
  qn__blocks_writer_t* w = self->w;
  qn__product_t* product = w->product;
  qn__pass_builder_t* pb = w->pb;
  step = qn__pb_named(pb, out, "at", qn__pb_op(pb, QN_OP_ADD, copy(self, self->first), step));
  qn__ir_stmt_t* loop =
      qn__pb_count_loop(pb, QN_LOOP_VECTOR, "l", qn__pb_int(pb, self->panel->lines));
  if (!step || !loop) return;
  qn__ir_var_t* l = loop->loop.var;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_block_t own = {NULL, NULL};
  const qn__ir_stmt_t* along = product->nest->loops[self->run->fastest];
  qn__ir_expr_t* i = qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, l), copy(self, self->run->shift));
  i = qn__pb_op(pb, QN_OP_ADD, copy(self, along->loop.begin), i);
  product->names[self->run->fastest].now = qn__pb_named(pb, body, along->loop.var->name, i);
  bool is_needed[qn__product_max_names] = {false};
  bool is_split = self->inside != NULL, is_blended = !pb->options->has_masked_memory;
  qn__ir_expr_t* value = is_split ? NULL : self->operand->value;
  if (value) qn__product_needs(product, value, is_needed);
  for (uint32_t a = 1; is_split && a < 3; ++a) {
    qn__product_needs(product, self->choice->args[a], is_needed);
  }
  qn__product_write_lets(product, &own, is_needed,
                         product->side_dims[self->panel->side] | QN__PRODUCT_STEP, 0);
  qn__ir_expr_t* is_own = is_between(self, l, self->from, self->to);
  qn__ir_expr_t* other =
      is_blended ? qn__pb_load(pb, self->packed, copy(self, step), qn__pb_use(pb, l)) : NULL;
  if (is_split) {
    qn__ir_expr_t* padding = qn__product_copy(product, self->choice->args[2]);
    if (is_blended) padding = qn__pb_cond(pb, is_own, padding, other);
    value = qn__pb_cond(pb, is_between(self, l, self->inside, self->outside),
                        qn__product_copy(product, self->choice->args[1]), padding);
  } else {
    value = qn__product_copy(product, value);
    if (is_blended) value = qn__pb_cond(pb, is_own, value, other);
  }
  qn__pb_append(&own, qn__pb_store(pb, self->packed, step, qn__pb_use(pb, l), value));
  if (is_blended) {
    qn__block_splice(body, &own);
  } else {
    qn__pb_append(body, qn__pb_if(pb, is_own, own));
  }
  qn__block_append(out, loop);
}

// Finds the lines that are no padding, for the steps that are set.
static void find_inside(masked_t* self, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = self->w->pb;
  if (!self->choice || !qn__blocks_inside(self->w, out, self->panel->side, self->choice->args[0],
                                          self->run, &self->inside, &self->outside)) {
    self->inside = self->outside = NULL;
    return;
  }
  const qn__ir_expr_t* shift = self->run->shift;
  self->inside =
      qn__pb_named(pb, out, "inside", qn__pb_op(pb, QN_OP_ADD, self->inside, copy(self, shift)));
  self->outside =
      qn__pb_named(pb, out, "outside", qn__pb_op(pb, QN_OP_ADD, self->outside, copy(self, shift)));
}

// Appends the loop over iterations of loop `inner`, whose neighbours are `stride` steps apart, from
// step `base` of the reduction on.
static void write_inner(masked_t* self, qn__ir_block_t* out, uint32_t inner,
                        const qn__ir_expr_t* stride, const qn__ir_expr_t* base) {
  qn__blocks_writer_t* w = self->w;
  qn__pass_builder_t* pb = w->pb;
  const qn__product_step_t* step = &w->product->steps[inner];
  find_inside(self, out);
  qn__ir_expr_t* skipped =
      qn__pb_op(pb, QN_OP_SUB, copy(self, self->steps->first), copy(self, base));
  skipped = qn__pb_named(pb, out, "skipped", skipped);
  qn__ir_expr_t* end =
      qn__pb_op(pb, QN_OP_ADD, copy(self, skipped), copy(self, self->steps->count));
  qn__ir_expr_t* from = qn__pb_op(pb, QN_OP_CEILDIV, copy(self, skipped), copy(self, stride));
  qn__ir_expr_t* to = qn__pb_op(pb, QN_OP_CEILDIV, end, copy(self, stride));
  if (inner > 0) {  // else all steps belong to one run of that loop
    from = qn__pb_op_int(pb, QN_OP_MAX, from, 0);
    to = qn__pb_op(pb, QN_OP_MIN, to, copy(self, step->extent));
  }
  qn__ir_var_t* t = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "t");
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_SERIAL, t, from, to);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__product_name_t* name = &w->product->names[step->name];
  qn__ir_expr_t* value = qn__pb_op(pb, QN_OP_ADD, copy(self, step->begin), qn__pb_use(pb, t));
  name->now = qn__pb_named(pb, body, name->var->name, value);
  qn__ir_expr_t* at = qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, t), copy(self, stride));
  write_lines(self, body, qn__pb_op(pb, QN_OP_SUB, at, copy(self, skipped)));
  qn__block_append(out, loop);
}

// Appends loops over the reduction: over runs of the loops up to `inner`, over all loops that are
// faster, and over `inner`.
static void write_steps(masked_t* self, qn__ir_block_t* out, uint32_t inner) {
  qn__product_t* product = self->w->product;
  qn__pass_builder_t* pb = self->w->pb;
  qn__ir_expr_t* strides[qn__product_max_steps] = {NULL};
  qn__ir_expr_t* stride = qn__pb_int(pb, 1);
  for (uint32_t k = product->step_count; k-- > inner;) {
    strides[k] = qn__pb_named(pb, out, "stride", stride);
    stride = qn__pb_op(pb, QN_OP_MUL, copy(self, strides[k]), copy(self, product->steps[k].extent));
  }
  qn__ir_expr_t* base = qn__pb_int(pb, 0);
  if (inner > 0) {
    stride = qn__pb_named(pb, out, "stride", stride);
    qn__ir_var_t* run = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "group");
    const qn__ir_expr_t* first = self->steps->first;
    qn__ir_expr_t* end =
        qn__pb_op(pb, QN_OP_ADD, copy(self, first), copy(self, self->steps->count));
    qn__ir_stmt_t* loop =
        qn__pb_loop(pb, QN_LOOP_SERIAL, run,
                    qn__pb_op(pb, QN_OP_FLOORDIV, copy(self, first), copy(self, stride)),
                    qn__pb_op(pb, QN_OP_CEILDIV, end, copy(self, stride)));
    if (!loop) return;
    qn__block_append(out, loop);
    out = &loop->loop.body;
    base = qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, run), copy(self, stride));
    base = qn__pb_named(pb, out, "base", base);
    qn__product_set_step(product, out, copy(self, base));  // of the slower loops
  }
  for (uint32_t k = inner + 1; k < product->step_count; ++k) {
    const qn__product_step_t* step = &product->steps[k];
    qn__product_name_t* name = &product->names[step->name];
    qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_SERIAL, "t", copy(self, step->extent));
    if (!loop) return;
    qn__block_append(out, loop);
    out = &loop->loop.body;
    qn__ir_expr_t* t = qn__pb_use(pb, loop->loop.var);
    qn__ir_expr_t* offset = qn__pb_op(pb, QN_OP_MUL, copy(self, t), copy(self, strides[k]));
    base = qn__pb_named(pb, out, "base", qn__pb_op(pb, QN_OP_ADD, copy(self, base), offset));
    name->now = qn__pb_named(pb, out, name->var->name,
                             qn__pb_op(pb, QN_OP_ADD, copy(self, step->begin), t));
  }
  if (!qn__pb_stopped(pb)) write_inner(self, out, inner, strides[inner], base);
}

bool qn__blocks_can_mask(const qn__product_t* product, const qn__product_operand_t* operand) {
  const qn__pass_options_t* options = product->pb->options;
  if (options->has_masked_memory) return true;
  if (!options->has_masked_words || options->is_checked) return false;
  // Lanes of other runs compute no more than an index.
  for (uint32_t i = 0; i < product->name_count; ++i) {
    const qn__product_name_t* name = &product->names[i];
    if (operand->is_needed[i] && name->let && (name->mask & QN__PRODUCT_LOADS)) return false;
  }
  const qn__ir_expr_t* choice = qn__blocks_choice(product, operand->value);
  const qn__ir_expr_t* value = choice ? choice->args[1] : operand->value;
  bool is_padded =
      !choice || choice->args[2]->kind == QN__EXPR_FLOAT || choice->args[2]->kind == QN__EXPR_INT;
  return is_padded && value->kind == QN__EXPR_LOAD && qn_dtype_size_bytes(value->dtype) >= 4;
}

void qn__blocks_pack_masked(qn__blocks_writer_t* w, const qn__blocks_panel_t* panel,
                            const qn__blocks_steps_t* steps, uint32_t o,
                            const qn__blocks_run_t* run) {
  qn__pass_builder_t* pb = w->pb;
  const qn__product_operand_t* operand = &w->product->operands[o];
  assert(operand->side == panel->side && !operand->runs_along_step);
  masked_t self = {.w = w, .panel = panel, .steps = steps, .operand = operand, .run = run};
  self.packed = w->packed[o];
  self.first = panel->side == QN__PRODUCT_COLUMN
                   ? qn__pb_op_int(pb, QN_OP_MUL, copy(&self, panel->number), w->shape->depth)
                   : qn__pb_int(pb, 0);
  self.first = qn__pb_named(pb, run->body, "first", self.first);
  self.from =
      qn__pb_named(pb, run->body, "line",
                   qn__pb_op(pb, QN_OP_ADD, copy(&self, run->from), copy(&self, run->shift)));
  self.to = qn__pb_named(pb, run->body, "end",
                         qn__pb_op(pb, QN_OP_ADD, copy(&self, run->to), copy(&self, run->shift)));
  self.choice = qn__blocks_choice(w->product, operand->value);
  if (!qn__pb_stopped(pb)) write_steps(&self, run->body, find_inner(&self));
}
