// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/partition_reduce.c: makes a long reduction launches of many blocks, whose partial
// results the next launch adds up.
//
// 1. At the top of a function:
//
//   let s = sum i in a..b { f(i) };   becomes
//   parallel p in 0..G {
//     partial[p] = sum q in 0..min(c, b - a - p * c) { let i = a + p * c + q; f(i) };
//   }
//   let s = sum p in 0..G { partial[p] };         where c is (b - a) / G, rounded up
//
// 2. A product whose result has too few tiles for the device, in the same way, with a partial
//    result for each part and element. Only where all extents are constant: elsewhere a row's
//    result must not depend on the number of rows.
#include "ir/passes/gpu/partition.h"
#include "ir/passes/gpu/tile.h"

enum {
  longest_of_a_block = 8192,
  elements_of_a_line = 32,  // parts begin at the start of a line of memory
  least_part = 512,         // steps of a part of a product
  part_step = 64,           // parts of a product are a multiple of it, as stages are
};

bool qn__reduce_is_long(const qn__ir_expr_t* reduce) {
  if (reduce->reduce.reduce_kind == QN_REDUCE_PROD || !qn__host_knows(reduce->reduce.begin) ||
      !qn__host_knows(reduce->reduce.end)) {
    return false;
  }
  int64_t trips = qn__const_trips(reduce->reduce.begin, reduce->reduce.end);
  return trips < 0 || trips > longest_of_a_block;
}

// Makes the reduction one over 0..count, whose variable was `begin` at 0.
static void narrow(qn__pass_builder_t* pb, qn__ir_expr_t* reduce, qn__ir_expr_t* begin,
                   qn__ir_expr_t* count) {
  qn__ir_var_t* q = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "q");
  if (!q || !begin || !count) return;
  qn__ir_block_t lets = {NULL, NULL};
  qn__pb_let_var(pb, &lets, reduce->reduce.reduce_var,
                 qn__pb_op(pb, QN_OP_ADD, begin, qn__pb_use(pb, q)));
  qn__block_splice(&lets, &reduce->reduce.lets);
  reduce->reduce.lets = lets;
  reduce->reduce.reduce_var = q;
  reduce->reduce.begin = qn__pb_int(pb, 0);
  reduce->reduce.end = count;
}

qn__ir_stmt_t* qn__reduce_split(qn__pass_builder_t* pb, qn__ir_expr_t** slot) {
  qn__ir_expr_t* reduce = *slot;
  int64_t count = qn__fixed_grid(pb);
  qn__ir_buffer_t* partial =
      qn__pb_alloc(pb, &pb->globals, QN__SCOPE_GLOBAL, reduce->dtype, "partial", count, -1);
  qn__ir_expr_t* total = qn__pb_reduce(pb, reduce->reduce.reduce_kind, partial, qn__pb_int(pb, 0),
                                       qn__pb_int(pb, count));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "p", qn__pb_int(pb, count));
  if (!total || !loop) return NULL;
  total->reduce.reduce_var->name = "p";
  loop->loop.is_independent = true;
  qn__ir_var_t* p = loop->loop.var;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* begin = reduce->reduce.begin;
  qn__ir_var_t* extent = qn__pb_let(pb, body, "extent", qn__pb_reduce_extent(pb, reduce));
  qn__ir_expr_t* lines =
      qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_use(pb, extent), count * elements_of_a_line);
  qn__ir_var_t* each =
      qn__pb_let(pb, body, "each", qn__pb_op_int(pb, QN_OP_MUL, lines, elements_of_a_line));
  qn__ir_var_t* first = qn__pb_let(
      pb, body, "first", qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, p), qn__pb_use(pb, each)));
  qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, extent), qn__pb_use(pb, first));
  narrow(pb, reduce, qn__pb_op(pb, QN_OP_ADD, begin, qn__pb_use(pb, first)),
         qn__pb_op(pb, QN_OP_MIN, qn__pb_use(pb, each), left));
  qn__pb_append(body, qn__pb_store(pb, partial, qn__pb_use(pb, p), NULL, reduce));
  *slot = total;
  return qn__pb_stopped(pb) ? NULL : loop;
}

// ---- products

typedef struct parts {
  int64_t count;
  int64_t each;  // iterations of the outermost reduction in a part
} parts_t;

static int64_t ceildiv(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

// Returns how many of the smallest tiles the result has; 0: none, or an extent is not constant.
static int64_t tiles_of(const qn__product_t* product) {
  int64_t count = qn__product_trips(product, qn__product_batch(product));
  int64_t lines[qn__product_sides];
  for (int s = 0; s < qn__product_sides; ++s) {
    lines[s] = qn__product_trips(product, product->side_dims[s]);
  }
  if (count <= 0 || !qn__tile_has_lines(lines)) return 0;
  for (int s = 0; s < qn__product_sides; ++s) {
    int64_t along = lines[s] < 0 ? 0 : ceildiv(lines[s], lines[s] <= 16 ? 16 : 32);
    if (along == 0 || __builtin_mul_overflow(count, along, &count)) return 0;
  }
  return count;
}

// Returns false if the product keeps the device as busy in one launch.
static bool choose_parts(qn__pass_builder_t* pb, const qn__product_t* product, parts_t* parts) {
  const qn__ir_expr_t* reduce = product->reduce;
  int64_t tiles = tiles_of(product), steps = qn__product_steps(product);
  int64_t trips = qn__const_trips(reduce->reduce.begin, reduce->reduce.end);
  if (reduce->reduce.reduce_kind == QN_REDUCE_PROD || tiles == 0 || trips <= 0) return false;
  int64_t count = qn__cores(pb) / tiles;
  if (count > steps / least_part) count = steps / least_part;
  if (count > trips) count = trips;
  if (count < 2) return false;
  parts->each = ceildiv(trips, count);
  if (parts->each >= part_step) parts->each = ceildiv(parts->each, part_step) * part_step;
  parts->count = ceildiv(trips, parts->each);
  return parts->count > 1;
}

// Returns the number of the nest's iteration, counted along the loops as written.
static qn__ir_expr_t* number_of(qn__pass_builder_t* pb, const qn__nest_t* nest) {
  qn__ir_expr_t* number = qn__pb_int(pb, 0);
  for (uint32_t d = 0; d < nest->count; ++d) {
    const qn__ir_stmt_t* loop = nest->loops[d];
    qn__ir_expr_t* at =
        qn__pb_op(pb, QN_OP_SUB, qn__pb_use(pb, loop->loop.var), qn__pb_copy(pb, loop->loop.begin));
    number = qn__pb_op(pb, QN_OP_MUL, number, qn__pb_extent(pb, loop));
    number = qn__pb_op(pb, QN_OP_ADD, number, at);
  }
  return number;
}

static bool is_slot(void* context, qn__ir_expr_t** slot) {
  return slot != context && qn__expr_each_child(*slot, is_slot, context);
}

// Makes the open nest of a product compute part `p` of each sum.
static void write_part(qn__pass_builder_t* pb, qn__nest_t* nest, const qn__product_t* product,
                       const parts_t* parts, qn__ir_var_t* p, qn__ir_buffer_t* partial) {
  qn__ir_expr_t* reduce = product->reduce;
  int64_t trips = qn__const_trips(reduce->reduce.begin, reduce->reduce.end);
  qn__ir_expr_t* first = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, p), parts->each);
  qn__ir_expr_t* count = qn__pb_int(pb, parts->each);
  if (trips % parts->each != 0) {
    qn__ir_expr_t* left = qn__pb_op(pb, QN_OP_SUB, qn__pb_int(pb, trips), qn__pb_copy(pb, first));
    count = qn__pb_op(pb, QN_OP_MIN, count, left);
  }
  narrow(pb, reduce, qn__pb_op(pb, QN_OP_ADD, reduce->reduce.begin, first), count);
  qn__ir_block_t rest = qn__block_take(&nest->body);
  qn__ir_stmt_t* stmt;
  while ((stmt = qn__block_pop(&rest)) && qn__stmt_each_expr(stmt, is_slot, product->slot)) {
    if (stmt->kind == QN__STMT_LET) qn__block_append(&nest->body, stmt);
  }
  assert(stmt);  // the reduction is in one of them
  qn__pb_append(&nest->body,
                qn__pb_store(pb, partial, qn__pb_use(pb, p), number_of(pb, nest), reduce));
}

// Returns the reduction of the partial results of the open nest's iteration.
static qn__ir_expr_t* total_of(qn__pass_builder_t* pb, const qn__nest_t* nest,
                               qn_reduce_kind_t kind, const parts_t* parts,
                               qn__ir_buffer_t* partial) {
  qn__ir_var_t* p = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "p");
  qn__ir_expr_t* total = qn__pb_reduce_over(pb, kind, partial->dtype, p, qn__pb_int(pb, 0),
                                            qn__pb_int(pb, parts->count));
  if (!total) return NULL;
  total->reduce.value = qn__pb_load(pb, partial, qn__pb_use(pb, p), number_of(pb, nest));
  return total;
}

// Opens the nest at `loop` if it computes a product.
static bool open_product(qn__pass_builder_t* pb, qn__ir_stmt_t* loop, qn__nest_t* nest,
                         qn__product_t* product) {
  qn__nest_open(pb, loop, nest);
  if (!qn__pb_stopped(pb) && qn__product_find(pb, nest, product)) return true;
  qn__nest_close(nest);
  return false;
}

qn__ir_stmt_t* qn__product_split(qn__pass_builder_t* pb, qn__ir_stmt_t* loop) {
  if (pb->options->is_checked) return NULL;  // an error names the iteration of an access
  qn__nest_t nest;
  parts_t parts;
  qn__product_t* product = QN__ARENA_NEW(pb->arena, qn__product_t);
  if (!product || !open_product(pb, loop, &nest, product)) return NULL;
  bool is_split = choose_parts(pb, product, &parts);
  qn_reduce_kind_t kind = product->reduce->reduce.reduce_kind;
  qn__ir_buffer_t* partial = NULL;
  if (is_split) {
    partial = qn__pb_alloc(pb, &pb->globals, QN__SCOPE_GLOBAL, product->reduce->dtype, "partial",
                           parts.count, qn__nest_trips(&nest));
  }
  qn__nest_close(&nest);
  const qn__ir_block_t alone = {loop, loop};
  qn__ir_block_t copy = {NULL, NULL};
  qn__ir_subst_t subst = {.arena = pb->arena};
  if (!partial || !qn__block_clone(&subst, &alone, &copy)) return NULL;
  qn__ir_stmt_t* outer = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "p", qn__pb_int(pb, parts.count));
  if (!outer || !open_product(pb, copy.first, &nest, product)) return NULL;
  outer->loop.is_independent = true;
  write_part(pb, &nest, product, &parts, outer->loop.var, partial);
  qn__nest_close(&nest);
  outer->loop.body = copy;
  if (!open_product(pb, loop, &nest, product)) return NULL;
  *product->slot = total_of(pb, &nest, kind, &parts, partial);
  qn__nest_close(&nest);
  return qn__pb_stopped(pb) ? NULL : outer;
}
