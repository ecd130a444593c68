// ir/passes/gpu/partition_reduce.c: makes a long reduction at the top of a function a launch of
// many blocks, whose partial results the next launch adds up.
//
//   let s = sum i in a..b { f(i) };   becomes
//   parallel p in 0..G {
//     partial[p] = sum q in 0..min(c, b - a - p * c) { let i = a + p * c + q; f(i) };
//   }
//   let s = sum p in 0..G { partial[p] };         where c is (b - a) / G, rounded up
#include "ir/passes/gpu/partition.h"

enum {
  longest_of_a_block = 8192,
  elements_of_a_line = 32,  // parts begin at the start of a line of memory
};

bool qn__reduce_is_long(const qn__ir_expr_t* reduce) {
  if (reduce->reduce.reduce_kind == QN_REDUCE_PROD || !qn__host_knows(reduce->reduce.begin) ||
      !qn__host_knows(reduce->reduce.end)) {
    return false;
  }
  int64_t trips = qn__const_trips(reduce->reduce.begin, reduce->reduce.end);
  return trips < 0 || trips > longest_of_a_block;
}

qn__ir_stmt_t* qn__reduce_split(qn__pass_builder_t* pb, qn__ir_expr_t** slot) {
  qn__ir_expr_t* reduce = *slot;
  int64_t count = qn__fixed_grid(pb);
  qn__ir_buffer_t* partial =
      qn__pb_alloc(pb, &pb->globals, QN__SCOPE_GLOBAL, reduce->dtype, "partial", count, -1);
  qn__ir_expr_t* total = qn__pb_reduce(pb, reduce->reduce.reduce_kind, partial, qn__pb_int(pb, 0),
                                       qn__pb_int(pb, count));
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "p", qn__pb_int(pb, count));
  qn__ir_var_t* q = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "q");
  if (!total || !loop || !q) return NULL;
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
  qn__ir_block_t lets = {NULL, NULL};
  qn__ir_expr_t* place = qn__pb_op(pb, QN_OP_ADD, begin, qn__pb_use(pb, first));
  qn__pb_let_var(pb, &lets, reduce->reduce.reduce_var,
                 qn__pb_op(pb, QN_OP_ADD, place, qn__pb_use(pb, q)));
  qn__block_splice(&lets, &reduce->reduce.lets);
  reduce->reduce.lets = lets;
  reduce->reduce.reduce_var = q;
  reduce->reduce.begin = qn__pb_int(pb, 0);
  reduce->reduce.end = qn__pb_op(pb, QN_OP_MIN, qn__pb_use(pb, each), left);
  if (!reduce->reduce.begin || !reduce->reduce.end) return NULL;
  qn__pb_append(body, qn__pb_store(pb, partial, qn__pb_use(pb, p), NULL, reduce));
  *slot = total;
  return qn__pb_stopped(pb) ? NULL : loop;
}
