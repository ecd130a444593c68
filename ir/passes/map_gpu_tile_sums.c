// ir/passes/map_gpu_tile_sums.c: what a thread adds up of the steps that a round has in shared
// memory. Thread rule: one thread per body. Read next: map_gpu_tile_write.c.
#include "ir/passes/map_gpu_tile_write.h"

static qn__ir_expr_t* add_up(qn__tile_writer_t* w, qn__ir_expr_t* sum, qn__ir_expr_t* term) {
  static const qn_op_t ops[] = {
      [QN_REDUCE_SUM] = QN_OP_ADD,
      [QN_REDUCE_PROD] = QN_OP_MUL,
      [QN_REDUCE_MIN] = QN_OP_MIN,
      [QN_REDUCE_MAX] = QN_OP_MAX,
  };
  qn_reduce_kind_t kind = w->tile->reduce->reduce.reduce_kind;
  if (!sum || !term) return NULL;
  bool is_fused = w->map->options->has_fma && kind == QN_REDUCE_SUM &&
                  (sum->dtype == QN_DTYPE_F32 || sum->dtype == QN_DTYPE_F64) &&
                  term->kind == QN__EXPR_OP && term->op == QN_OP_MUL;
  if (is_fused) {
    return qn__expr_op(w->map->arena, QN_OP_FMA, term->args[0], term->args[1], sum);
  }
  return qn__expr_op(w->map->arena, ops[kind], sum, term, NULL);
}

// The sums of a thread for step `k` of the tile.
static void write_step(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                       qn__ir_var_t* k) {
  qn__gmap_t* map = w->map;
  qn__tile_t* tile = w->tile;
  qn__ir_var_t* elements[qn__tile_max_operands][qn__tile_max_outputs] = {{NULL}};
  for (uint32_t o = 0; o < tile->operand_count; ++o) {
    const qn__tile_operand_t* operand = &tile->operands[o];
    for (int64_t m = 0; m < tile->shape.outputs[operand->side]; ++m) {
      qn__ir_expr_t* line = qn__tile_add(map, qn__gmap_use(map, w->own[operand->side]),
                                         qn__tile_offset(tile, operand->side, m));
      elements[o][m] = qn__gmap_let(map, out, operand->side == QN__TILE_ROW ? "a" : "b",
                                    qn__tile_load(map, operand->tile, qn__gmap_use(map, k), line));
    }
  }
  if (tile->is_needed[tile->step]) {
    qn__ir_expr_t* step =
        qn__gmap_op(map, QN_OP_ADD, qn__gmap_use(map, done), qn__gmap_use(map, k));
    step = qn__gmap_op(map, QN_OP_ADD, qn__gmap_copy(map, w->begin), step);
    tile->names[tile->step].now = qn__tile_named(map, out, tile->names[tile->step].var->name, step);
  }
  uint32_t both = tile->side_dims[QN__TILE_ROW] | tile->side_dims[QN__TILE_COLUMN];
  // Lets of the reduction are copied in order, for each sum if they depend on its place; operands
  // are no part of their masks any more, so all of them are.
  for (int64_t m = 0; m < tile->shape.outputs[QN__TILE_ROW]; ++m) {
    qn__tile_set_now(w, tile->side_dims[QN__TILE_ROW], w->places[QN__TILE_ROW][m].now);
    for (int64_t n = 0; n < tile->shape.outputs[QN__TILE_COLUMN]; ++n) {
      qn__tile_set_now(w, tile->side_dims[QN__TILE_COLUMN], w->places[QN__TILE_COLUMN][n].now);
      for (uint32_t o = 0; o < tile->operand_count; ++o) {
        const qn__tile_operand_t* operand = &tile->operands[o];
        tile->names[operand->name].now =
            qn__gmap_use(map, elements[o][operand->side == QN__TILE_ROW ? m : n]);
      }
      qn__tile_write_lets(w, out, tile->is_needed, both | QN__TILE_STEP, 0);
      qn__tile_store(
          map, out, w->acc, qn__gmap_int(map, m), qn__gmap_int(map, n),
          add_up(w, qn__tile_load_acc(w, m, n), qn__tile_copy_now(w, tile->reduce->reduce.value)));
    }
  }
}

static void write_steps(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done,
                        qn_loop_kind_t kind, qn__ir_expr_t* count) {
  qn__ir_var_t* k = qn__gmap_var(w->map, QN__VAR_LOOP, QN_DTYPE_I64, "k");
  qn__ir_stmt_t* loop = qn__gmap_loop(w->map, kind, k, qn__gmap_int(w->map, 0), count);
  if (!loop) return;
  write_step(w, &loop->loop.body, done, k);
  qn__block_append(out, loop);
}

// The steps that a round has in shared memory: all of them, or fewer in the last one.
void qn__tile_write_sums(qn__tile_writer_t* w, qn__ir_block_t* out, qn__ir_var_t* done) {
  qn__gmap_t* map = w->map;
  int64_t depth = w->tile->shape.depth;
  qn_loop_kind_t kind = w->tile->shape.is_unrolled ? QN_LOOP_UNROLL : QN_LOOP_SERIAL;
  if (w->has_even_steps) {
    write_steps(w, out, done, kind, qn__gmap_int(map, depth));
    return;
  }
  qn__ir_var_t* left = qn__gmap_let(
      map, out, "left",
      qn__gmap_op(map, QN_OP_SUB, qn__gmap_copy(map, w->steps), qn__gmap_use(map, done)));
  if (!w->tile->shape.is_unrolled) {
    write_steps(w, out, done, kind, qn__tile_by(map, QN_OP_MIN, left, depth));
    return;
  }
  qn__ir_stmt_t* test = qn__gmap_if(map, qn__tile_by(map, QN_OP_GE, left, depth));
  if (!test) return;
  write_steps(w, &test->if_.then_block, done, kind, qn__gmap_int(map, depth));
  write_steps(w, &test->if_.else_block, done, QN_LOOP_SERIAL, qn__gmap_use(map, left));
  qn__block_append(out, test);
}
