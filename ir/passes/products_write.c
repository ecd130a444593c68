// SPDX-License-Identifier: Apache-2.0
// ir/passes/products_write.c: see products_write.h.
#include "ir/passes/products_write.h"

qn__ir_expr_t* qn__pb_named(qn__pass_builder_t* pb, qn__ir_block_t* out, const char* name,
                            qn__ir_expr_t* value) {
  if (!value || value->kind == QN__EXPR_INT) return value;
  return qn__pb_use(pb, qn__pb_let(pb, out, name, value));
}

static qn__ir_expr_t* now_of(qn__ir_subst_t* subst, qn__ir_var_t* var) {
  const qn__product_t* product = subst->self;
  int name = qn__product_name(product, var);
  return name < 0 ? NULL : product->names[name].now;
}

qn__ir_expr_t* qn__product_copy(qn__product_t* product, const qn__ir_expr_t* expr) {
  qn__ir_subst_t subst = {.on_var = now_of, .arena = product->pb->arena, .self = product};
  return expr ? qn__expr_clone(&subst, expr) : NULL;
}

bool qn__product_copy_block(qn__product_t* product, const qn__ir_block_t* block,
                            qn__ir_block_t* out) {
  qn__ir_subst_t subst = {.on_var = now_of, .arena = product->pb->arena, .self = product};
  return qn__block_clone(&subst, block, out);
}

void qn__product_write_let(qn__product_t* product, qn__ir_block_t* out, qn__product_name_t* name) {
  qn__ir_expr_t* value = qn__product_copy(product, name->let->let.value);
  name->now = qn__pb_use(product->pb, qn__pb_let(product->pb, out, name->var->name, value));
}

void qn__product_write_lets(qn__product_t* product, qn__ir_block_t* out, const bool* is_needed,
                            uint32_t any, uint32_t none) {
  for (uint32_t i = 0; i < product->name_count; ++i) {
    qn__product_name_t* name = &product->names[i];
    if (!name->let || !is_needed[i] || (name->mask & none)) continue;
    if ((name->mask & any) || any == 0) qn__product_write_let(product, out, name);
  }
}

qn__ir_var_t* qn__product_write_operand(qn__product_t* product, qn__ir_block_t* out,
                                        const qn__product_operand_t* operand) {
  qn__product_write_lets(product, out, operand->is_needed,
                         product->side_dims[operand->side] | QN__PRODUCT_STEP, 0);
  return qn__pb_let(product->pb, out, operand->side == QN__PRODUCT_ROW ? "a" : "b",
                    qn__product_copy(product, operand->value));
}

void qn__product_fetch_ahead(const qn__product_operand_t* operand, qn__ir_expr_t* value,
                             const qn__ir_var_t* var, uint32_t distance, qn__fetch_t cache) {
  const qn__ir_expr_t* load = operand->value;
  for (; load->kind == QN__EXPR_CAST; load = load->args[0]) value = value->args[0];
  if (load->kind != QN__EXPR_LOAD) return;
  for (uint32_t d = 0; d < load->load.buffer->rank; ++d) {
    const qn__ir_expr_t* index = load->load.indices[d];
    if (index->kind != QN__EXPR_VAR || index->var != var) continue;
    value->load.ahead = distance;
    value->load.ahead_dim = (uint16_t)d;
    value->load.ahead_cache = (uint16_t)cache;
    return;
  }
}

void qn__product_set(qn__product_t* product, uint32_t dims, qn__ir_expr_t* const* now) {
  for (uint32_t d = 0; d < product->nest->count; ++d) {
    if (dims >> d & 1) product->names[d].now = now[d];
  }
}

void qn__product_place(qn__product_t* product, qn__ir_block_t* out, uint32_t dims,
                       qn__ir_var_t* index) {
  qn__pass_builder_t* pb = product->pb;
  qn__nest_t* nest = product->nest;
  uint32_t left = dims;
  qn__ir_expr_t* rest = qn__pb_use(pb, index);
  for (uint32_t p = nest->count; p-- > 0;) {
    uint32_t d = nest->order[p];
    if (!(dims >> d & 1)) continue;
    left &= ~(1U << d);
    const qn__ir_stmt_t* loop = nest->loops[d];
    qn__ir_expr_t* value = rest;
    if (left) {
      qn__ir_expr_t* extent = qn__pb_extent(pb, loop);
      value = qn__pb_op(pb, QN_OP_FLOORMOD, rest, extent);
      rest = qn__pb_op(pb, QN_OP_FLOORDIV, qn__pb_copy(pb, rest), qn__pb_copy(pb, extent));
      rest = qn__pb_named(pb, out, "rest", rest);
    }
    value = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, loop->loop.begin), value);
    product->names[d].now = qn__pb_named(pb, out, loop->loop.var->name, value);
  }
}

void qn__product_set_step(qn__product_t* product, qn__ir_block_t* out, qn__ir_expr_t* step) {
  qn__pass_builder_t* pb = product->pb;
  for (uint32_t k = product->step_count; k-- > 0;) {
    const qn__product_step_t* loop = &product->steps[k];
    qn__product_name_t* name = &product->names[loop->name];
    qn__ir_expr_t* value = step;
    if (k > 0) {
      step = qn__pb_named(pb, out, "rest", step);
      value = qn__pb_op(pb, QN_OP_FLOORMOD, qn__pb_copy(pb, step), qn__pb_copy(pb, loop->extent));
      step = qn__pb_op(pb, QN_OP_FLOORDIV, step, qn__pb_copy(pb, loop->extent));
    }
    value = qn__pb_op(pb, QN_OP_ADD, qn__pb_copy(pb, loop->begin), value);
    name->now = qn__pb_named(pb, out, name->var->name, value);
  }
}

bool qn__product_names_step(const qn__product_t* product) {
  for (uint32_t k = 0; k < product->step_count; ++k) {
    if (product->is_needed[product->steps[k].name]) return true;
  }
  return false;
}

qn__ir_expr_t* qn__product_add(qn__product_t* product, qn__ir_expr_t* sum, qn__ir_expr_t* term) {
  qn__pass_builder_t* pb = product->pb;
  qn_reduce_kind_t kind = product->reduce->reduce.reduce_kind;
  if (!sum || !term) return NULL;
  if (product->is_guarded && term->kind == QN__EXPR_COND) {
    // c ? x * w : 0 is x * (c ? w : 0), as x is 0 without c.
    qn__ir_expr_t* factor = term->args[1];
    qn__ir_expr_t** row = &factor->args[product->guarded_row];
    *row = qn__pb_cond(pb, term->args[0], *row, term->args[2]);
    if (!*row) return NULL;
    term = factor;
  }
  bool is_fused = pb->options->has_fma && kind == QN_REDUCE_SUM &&
                  (sum->dtype == QN_DTYPE_F32 || sum->dtype == QN_DTYPE_F64) &&
                  term->kind == QN__EXPR_OP && term->op == QN_OP_MUL;
  if (is_fused) return qn__expr_op(pb->arena, QN_OP_FMA, term->args[0], term->args[1], sum);
  return qn__expr_op(pb->arena, qn__reduce_op(kind), sum, term, NULL);
}

bool qn__product_names_side(const qn__product_t* product, qn__product_side_t side) {
  for (uint32_t i = 0; i < product->name_count; ++i) {
    if (product->is_needed[i] && (product->names[i].mask & product->side_dims[side])) return true;
  }
  return false;
}

qn__ir_expr_t* qn__product_write_bounds(qn__product_t* product, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = product->pb;
  bool is_needed[qn__product_max_names] = {false};
  for (uint32_t k = 0; k < product->step_count; ++k) {
    qn__product_needs(product, product->steps[k].reduce->reduce.begin, is_needed);
    qn__product_needs(product, product->steps[k].reduce->reduce.end, is_needed);
  }
  for (uint32_t i = 0; i < product->name_count; ++i) {
    is_needed[i] |= product->is_needed[i];
    for (uint32_t o = 0; o < product->operand_count; ++o) {
      is_needed[i] |= product->operands[o].is_needed[i];
    }
  }
  uint32_t inner = qn__product_both(product) | QN__PRODUCT_STEP | QN__PRODUCT_FIXED;
  qn__product_write_lets(product, out, is_needed, 0, inner);
  qn__ir_expr_t* steps = qn__pb_int(pb, 1);
  for (uint32_t k = 0; k < product->step_count; ++k) {
    qn__product_step_t* loop = &product->steps[k];
    const qn__ir_expr_t* reduce = loop->reduce;
    loop->begin = qn__pb_named(pb, out, "begin", qn__product_copy(product, reduce->reduce.begin));
    qn__ir_expr_t* end =
        qn__pb_named(pb, out, "end", qn__product_copy(product, reduce->reduce.end));
    if (!loop->begin || !end) return NULL;
    loop->extent = qn__pb_named(pb, out, "extent", qn__pb_range(pb, loop->begin, end));
    steps = qn__pb_op(pb, QN_OP_MUL, steps, qn__pb_copy(pb, loop->extent));
  }
  return qn__pb_named(pb, out, "steps", steps);
}

qn__ir_stmt_t* qn__product_write_tasks(qn__product_t* product, qn__ir_block_t* out,
                                       qn_loop_kind_t kind, qn__ir_expr_t* parts,
                                       qn__ir_expr_t** number) {
  qn__pass_builder_t* pb = product->pb;
  const uint32_t batch = qn__product_batch(product);
  parts = qn__pb_named(pb, out, "parts", parts);
  qn__ir_expr_t* all =
      qn__pb_op(pb, QN_OP_MUL, qn__pb_copy(pb, parts), qn__product_extent(product, batch));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, kind, "task", all);
  if (!loop) return NULL;
  qn__ir_block_t* body = &loop->loop.body;
  *number = qn__pb_use(pb, loop->loop.var);
  if (batch) {
    qn__ir_expr_t* rest = qn__pb_op(pb, QN_OP_FLOORDIV, *number, qn__pb_copy(pb, parts));
    qn__ir_var_t* index = qn__pb_let(pb, body, "rest", rest);
    if (!index) return NULL;
    qn__product_place(product, body, batch, index);
    *number = qn__pb_op(pb, QN_OP_FLOORMOD, qn__pb_copy(pb, *number), parts);
  }
  return loop;
}

qn__product_part_t qn__product_write_part(qn__pass_builder_t* pb, qn__ir_block_t* out,
                                          qn__ir_expr_t* number, int64_t most,
                                          const qn__ir_expr_t* extent) {
  qn__product_part_t part;
  part.first = qn__pb_named(pb, out, "first", qn__pb_op_int(pb, QN_OP_MUL, number, most));
  qn__ir_expr_t* end = qn__pb_op_int(pb, QN_OP_ADD, qn__pb_copy(pb, part.first), most);
  part.end = qn__pb_named(pb, out, "end", qn__pb_op(pb, QN_OP_MIN, end, qn__pb_copy(pb, extent)));
  return part;
}

void qn__product_write_body(qn__product_t* product, qn__ir_block_t* out, qn__ir_expr_t* total) {
  qn__nest_t* nest = product->nest;
  for (qn__ir_stmt_t* let = nest->lets.first; let; let = let->next) {
    qn__product_write_let(product, out, &product->names[qn__product_name(product, let->let.var)]);
  }
  qn__product_name_t* name = &product->names[product->name_count - 1];
  assert(!name->let && (!total || name->var->dtype == total->dtype));  // qn__product_replace
  name->now = total;
  qn__ir_block_t body = {NULL, NULL};
  if (total && qn__product_copy_block(product, &nest->body, &body)) qn__block_splice(out, &body);
}
