// ir/passes/map_gpu_long.c: a long reduction at the top of a function, by the whole device.
//
//   let s = sum i in a..b { f(i) };   becomes
//   parallel p in 0..G { partial[p] = sum q in 0..min(c, b - a - p * c) { let i = a + p * c + q;
//   f(i) }; } let s = sum p in 0..G { partial[p] };         where c is (b - a) / G, rounded up
// The first is a launch of G blocks, the second is done by the one block of its group. Thread rule:
// one thread per body. Read next: map_gpu.c.
#include "ir/passes/map_gpu.h"

enum {
  longest_of_a_block = 8192,
  elements_of_a_line = 32,  // pieces begin where lines of memory do
};

bool qn__gmap_is_long(const qn__ir_expr_t* reduce) {
  int64_t begin, end;
  if (reduce->kind != QN__EXPR_REDUCE || reduce->reduce.reduce_kind == QN_REDUCE_PROD ||
      !qn__gmap_is_host(reduce->reduce.begin) || !qn__gmap_is_host(reduce->reduce.end)) {
    return false;
  }
  return !qn__expr_const_int(reduce->reduce.begin, &begin) ||
         !qn__expr_const_int(reduce->reduce.end, &end) ||
         (end > begin && (uint64_t)end - (uint64_t)begin > longest_of_a_block);
}

// The sum of `partial`, or whatever the kind is.
static qn__ir_expr_t* sum_of(qn__gmap_t* map, qn_reduce_kind_t kind, qn__ir_buffer_t* partial,
                             int64_t count) {
  qn__ir_expr_t* reduce =
      qn__expr_new(map->arena, QN__EXPR_REDUCE, partial->dtype, (qn__ir_loc_t){0, 0});
  qn__ir_var_t* p = qn__gmap_var(map, QN__VAR_REDUCE, QN_DTYPE_I64, "p");
  qn__ir_expr_t* load =
      qn__expr_new(map->arena, QN__EXPR_LOAD, partial->dtype, (qn__ir_loc_t){0, 0});
  if (!reduce || !p || !load) return NULL;
  load->load.buffer = partial;
  load->load.indices = qn__arena_alloc_array(map->arena, 1, sizeof *load->load.indices);
  reduce->reduce.reduce_kind = kind;
  reduce->reduce.reduce_var = p;
  reduce->reduce.begin = qn__gmap_int(map, 0);
  reduce->reduce.end = qn__gmap_int(map, count);
  reduce->reduce.value = load;
  if (!load->load.indices) return NULL;
  load->load.indices[0] = qn__gmap_use(map, p);
  return qn__gmap_stopped(map) ? NULL : reduce;
}

static qn__ir_buffer_t* partial_results(qn__gmap_t* map, qn_dtype_t dtype, int64_t count) {
  qn__ir_buffer_t* partial = qn__gmap_buffer(map, QN__SCOPE_GLOBAL, dtype, "partial", 1);
  qn__ir_stmt_t* alloc = qn__stmt_new(map->arena, QN__STMT_ALLOC, (qn__ir_loc_t){0, 0});
  if (!partial || !alloc) return NULL;
  partial->shape[0] = qn__gmap_int(map, count);
  alloc->alloc.buffer = partial;
  qn__block_append(&map->globals, alloc);
  return partial->shape[0] ? partial : NULL;
}

qn__ir_stmt_t* qn__gmap_split_long(qn__gmap_t* map, qn__ir_expr_t** slot) {
  qn__ir_expr_t* reduce = *slot;
  int64_t count = qn__gmap_fixed_grid(map);
  qn__ir_buffer_t* partial = partial_results(map, reduce->dtype, count);
  if (!partial) return NULL;
  qn__ir_expr_t* total = sum_of(map, reduce->reduce.reduce_kind, partial, count);
  qn__ir_var_t* p = qn__gmap_var(map, QN__VAR_LOOP, QN_DTYPE_I64, "p");
  qn__ir_var_t* q = qn__gmap_var(map, QN__VAR_REDUCE, QN_DTYPE_I64, "q");
  qn__ir_stmt_t* loop =
      qn__gmap_loop(map, QN_LOOP_PARALLEL, p, qn__gmap_int(map, 0), qn__gmap_int(map, count));
  qn__ir_stmt_t* store = qn__stmt_new(map->arena, QN__STMT_STORE, reduce->loc);
  if (!total || !q || !loop || !store) return NULL;
  loop->loop.lane_count = 1;  // its iterations are independent
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_expr_t* begin = reduce->reduce.begin;
  qn__ir_var_t* extent = qn__gmap_let(map, body, "extent", qn__gmap_reduce_extent(map, reduce));
  qn__ir_expr_t* lines = qn__gmap_op(map, QN_OP_CEILDIV, qn__gmap_use(map, extent),
                                     qn__gmap_int(map, count * elements_of_a_line));
  qn__ir_var_t* each = qn__gmap_let(
      map, body, "each", qn__gmap_op(map, QN_OP_MUL, lines, qn__gmap_int(map, elements_of_a_line)));
  qn__ir_var_t* first =
      qn__gmap_let(map, body, "first",
                   qn__gmap_op(map, QN_OP_MUL, qn__gmap_use(map, p), qn__gmap_use(map, each)));
  qn__ir_expr_t* left =
      qn__gmap_op(map, QN_OP_SUB, qn__gmap_use(map, extent), qn__gmap_use(map, first));
  qn__ir_block_t lets = {NULL, NULL};
  qn__ir_expr_t* place = qn__gmap_op(map, QN_OP_ADD, begin, qn__gmap_use(map, first));
  qn__gmap_let_var(map, &lets, reduce->reduce.reduce_var,
                   qn__gmap_op(map, QN_OP_ADD, place, qn__gmap_use(map, q)));
  qn__block_splice(&lets, &reduce->reduce.lets);
  reduce->reduce.lets = lets;
  reduce->reduce.reduce_var = q;
  reduce->reduce.begin = qn__gmap_int(map, 0);
  reduce->reduce.end = qn__gmap_op(map, QN_OP_MIN, qn__gmap_use(map, each), left);
  store->store.buffer = partial;
  store->store.indices = qn__arena_alloc_array(map->arena, 1, sizeof *store->store.indices);
  store->store.value = reduce;
  if (!store->store.indices || !reduce->reduce.begin || !reduce->reduce.end) return NULL;
  store->store.indices[0] = qn__gmap_use(map, p);
  qn__block_append(body, store);
  *slot = total;
  return qn__gmap_stopped(map) ? NULL : loop;
}
