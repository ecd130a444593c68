// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_build.c: the programs of examples/ir as calls of the builder.
#include "base/base.h"
#include "tests/unit/ir/support_ir.h"

#define B qn_builder_t* b
#define I(value) qn_build_int(b, QN_DTYPE_I64, (value))
#define F(value) qn_build_float(b, QN_DTYPE_F32, (value))
#define LIST(...) ((qn_expr_t*[]){__VA_ARGS__})
#define COUNT(...) (sizeof LIST(__VA_ARGS__) / sizeof(qn_expr_t*))
#define LOAD(buffer, ...) qn_build_load(b, (buffer), COUNT(__VA_ARGS__), LIST(__VA_ARGS__))
#define STORE(buffer, value, ...) \
  qn_build_store(b, (buffer), COUNT(__VA_ARGS__), LIST(__VA_ARGS__), (value))
#define PARAM(name, access, dtype, ...)                                                      \
  qn_build_buffer_param(b, (name), QN_ACCESS_##access, QN_DTYPE_##dtype, COUNT(__VA_ARGS__), \
                        LIST(__VA_ARGS__), NULL, 0)
#define ALLOC(name, scope, ...) \
  qn_build_alloc(b, (name), QN_SCOPE_##scope, QN_DTYPE_F32, COUNT(__VA_ARGS__), LIST(__VA_ARGS__))
#define LOOP(kind, name, end) qn_build_loop(b, QN_LOOP_##kind, (name), I(0), (end))
#define END() qn_build_end(b)

static qn_expr_t* op(B, qn_op_t which, qn_expr_t* x, qn_expr_t* y) {
  return qn_build_op(b, which, x, y, NULL);
}
static qn_expr_t* add(B, qn_expr_t* x, qn_expr_t* y) {
  return op(b, QN_OP_ADD, x, y);
}
static qn_expr_t* sub(B, qn_expr_t* x, qn_expr_t* y) {
  return op(b, QN_OP_SUB, x, y);
}
static qn_expr_t* mul(B, qn_expr_t* x, qn_expr_t* y) {
  return op(b, QN_OP_MUL, x, y);
}
static qn_expr_t* divide(B, qn_expr_t* x, qn_expr_t* y) {
  return op(b, QN_OP_DIV, x, y);
}
static qn_expr_t* less(B, qn_expr_t* x, qn_expr_t* y) {
  return op(b, QN_OP_LT, x, y);
}
static qn_expr_t* both(B, qn_expr_t* x, qn_expr_t* y) {
  return op(b, QN_OP_LOGIC_AND, x, y);
}
static qn_expr_t* f32(B, qn_expr_t* x) {
  return qn_build_cast(b, QN_DTYPE_F32, x);
}

static void saxpy(B) {
  qn_build_function(b, "saxpy");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_expr_t* a = qn_build_scalar_param(b, "a", QN_DTYPE_F32);
  qn_buffer_t* x = PARAM("x", IN, F32, n);
  qn_buffer_t* y = PARAM("y", INOUT, F32, n);
  qn_expr_t* i = LOOP(PARALLEL, "i", n);
  STORE(y, add(b, mul(b, a, LOAD(x, i)), LOAD(y, i)), i);
  END();
  END();
}

static void softmax(B) {
  qn_build_function(b, "softmax");
  // The other way round than in the text: the order of the parameters is what counts.
  qn_expr_t* m = qn_build_symbol(b, "m");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_buffer_t* x = PARAM("x", IN, F32, n, m);
  qn_buffer_t* y = PARAM("y", OUT, F32, n, m);
  qn_expr_t* i = LOOP(PARALLEL, "row", n);
  qn_expr_t* j = qn_build_reduce(b, QN_REDUCE_MAX, "j", I(0), m);
  qn_expr_t* top = qn_build_let(b, "top", qn_build_reduce_end(b, LOAD(x, i, j)));
  j = qn_build_reduce(b, QN_REDUCE_SUM, "j", I(0), m);
  qn_expr_t* power = qn_build_op(b, QN_OP_EXP, sub(b, LOAD(x, i, j), top), NULL, NULL);
  qn_expr_t* total = qn_build_let(b, "total", qn_build_reduce_end(b, power));
  j = LOOP(SERIAL, "j", m);
  power = qn_build_op(b, QN_OP_EXP, sub(b, LOAD(x, i, j), top), NULL, NULL);
  STORE(y, divide(b, power, total), i, j);
  END();
  END();
  END();
}

static void two_launches(B) {
  qn_build_function(b, "centre");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_expr_t* m = qn_build_symbol(b, "m");
  qn_buffer_t* x = PARAM("x", IN, F32, n, m);
  qn_buffer_t* y = PARAM("y", OUT, F32, n, m);
  qn_buffer_t* mean = ALLOC("mean", GLOBAL, m);
  qn_expr_t* j = LOOP(PARALLEL, "j", m);
  qn_expr_t* i = qn_build_reduce(b, QN_REDUCE_SUM, "i", I(0), n);
  STORE(mean, divide(b, qn_build_reduce_end(b, LOAD(x, i, j)), f32(b, n)), j);
  END();
  i = LOOP(PARALLEL, "i", n);
  j = LOOP(SERIAL, "j", m);
  STORE(y, sub(b, LOAD(x, i, j), LOAD(mean, j)), i, j);
  END();
  END();
  END();
}

static void embed_layernorm(B) {
  qn_build_function(b, "embed_layernorm");
  qn_expr_t* batch = qn_build_symbol(b, "b");
  qn_expr_t* s = qn_build_symbol(b, "s");
  qn_expr_t* v = qn_build_symbol(b, "v");
  qn_expr_t* h = qn_build_symbol(b, "h");
  qn_expr_t* p = qn_build_symbol(b, "p");
  qn_buffer_t* ids = PARAM("ids", IN, I64, batch, s);
  qn_buffer_t* words = PARAM("words", IN, F32, v, h);
  qn_buffer_t* positions = PARAM("positions", IN, F32, p, h);
  qn_buffer_t* gamma = PARAM("gamma", IN, F32, h);
  qn_buffer_t* beta = PARAM("beta", IN, F32, h);
  qn_expr_t* eps = qn_build_scalar_param(b, "eps", QN_DTYPE_F32);
  qn_buffer_t* y = PARAM("y", OUT, F32, batch, s, h);
  qn_build_assert(b, op(b, QN_OP_LE, s, p), "sequence is longer than the position table");
  qn_expr_t* r = LOOP(PARALLEL, "r", mul(b, batch, s));
  qn_expr_t* i = qn_build_let(b, "i", op(b, QN_OP_FLOORDIV, r, s));
  qn_expr_t* t = qn_build_let(b, "t", op(b, QN_OP_FLOORMOD, r, s));
  qn_expr_t* id = qn_build_let(b, "id", LOAD(ids, i, t));
  qn_build_assert(b, both(b, op(b, QN_OP_LE, I(0), id), less(b, id, v)), "token id out of range");
  qn_expr_t* k = qn_build_reduce(b, QN_REDUCE_SUM, "k", I(0), h);
  qn_expr_t* sum = qn_build_reduce_end(b, add(b, LOAD(words, id, k), LOAD(positions, t, k)));
  qn_expr_t* mean = qn_build_let(b, "mean", divide(b, sum, f32(b, h)));
  k = qn_build_reduce(b, QN_REDUCE_SUM, "k", I(0), h);
  qn_expr_t* d =
      qn_build_let(b, "d", sub(b, add(b, LOAD(words, id, k), LOAD(positions, t, k)), mean));
  sum = qn_build_reduce_end(b, mul(b, d, d));
  qn_expr_t* variance = qn_build_let(b, "var", divide(b, sum, f32(b, h)));
  qn_expr_t* scale =
      qn_build_let(b, NULL, qn_build_op(b, QN_OP_RSQRT, add(b, variance, eps), NULL, NULL));
  k = LOOP(SERIAL, "k", h);
  qn_expr_t* centred = sub(b, add(b, LOAD(words, id, k), LOAD(positions, t, k)), mean);
  STORE(y, add(b, mul(b, mul(b, centred, scale), LOAD(gamma, k)), LOAD(beta, k)), i, t, k);
  END();
  END();
  END();
}

// Are row and column of the tile inside of c?
static qn_expr_t* inside(B, qn_expr_t* row, qn_expr_t* n, qn_expr_t* column, qn_expr_t* m) {
  return both(b, less(b, row, n), less(b, column, m));
}

static void matmul_tile(B) {
  qn_build_function(b, "matmul");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_expr_t* k = qn_build_symbol(b, "k");
  qn_expr_t* m = qn_build_symbol(b, "m");
  qn_buffer_t* x = PARAM("a", IN, F32, n, k);
  qn_buffer_t* w = PARAM("b", IN, F32, k, m);
  qn_buffer_t* c = PARAM("c", OUT, F32, n, m);
  qn_expr_t* ti = LOOP(PARALLEL, "ti", op(b, QN_OP_CEILDIV, n, I(4)));
  qn_expr_t* tj = LOOP(SERIAL, "tj", op(b, QN_OP_CEILDIV, m, I(16)));
  qn_buffer_t* acc = ALLOC("acc", LOCAL, I(4), I(16));
  qn_expr_t* u = LOOP(UNROLL, "u", I(4));
  qn_expr_t* v = LOOP(VECTOR, "v", I(16));
  STORE(acc, F(0), u, v);
  END();
  END();
  qn_expr_t* p = LOOP(SERIAL, "p", k);
  u = LOOP(UNROLL, "u", I(4));
  v = LOOP(VECTOR, "v", I(16));
  // Expressions that are used many times are copied.
  qn_expr_t* row = add(b, mul(b, ti, I(4)), u);
  qn_expr_t* column = add(b, mul(b, tj, I(16)), v);
  qn_build_if(b, inside(b, row, n, column, m));
  STORE(acc, qn_build_op(b, QN_OP_FMA, LOAD(x, row, p), LOAD(w, p, column), LOAD(acc, u, v)), u, v);
  END();
  END();
  END();
  END();
  u = LOOP(UNROLL, "u", I(4));
  v = LOOP(VECTOR, "v", I(16));
  row = add(b, mul(b, ti, I(4)), u);
  column = add(b, mul(b, tj, I(16)), v);
  qn_build_if(b, inside(b, row, n, column, m));
  STORE(c, LOAD(acc, u, v), row, column);
  for (int i = 0; i < 6; i++) END();
}

static void transpose_shared(B) {
  qn_build_function(b, "transpose");
  qn_expr_t* n = qn_build_symbol(b, "n");
  qn_expr_t* m = qn_build_symbol(b, "m");
  qn_buffer_t* x = PARAM("x", IN, F32, n, m);
  qn_buffer_t* y = PARAM("y", OUT, F32, m, n);
  qn_expr_t* by = LOOP(BLOCK_Y, "by", op(b, QN_OP_CEILDIV, n, I(32)));
  qn_expr_t* bx = LOOP(BLOCK_X, "bx", op(b, QN_OP_CEILDIV, m, I(32)));
  qn_buffer_t* tile = ALLOC("tile", SHARED, I(32), I(33));
  qn_expr_t* ty = LOOP(THREAD_Y, "ty", I(8));
  qn_expr_t* tx = LOOP(THREAD_X, "tx", I(32));
  for (int phase = 0; phase < 2; phase++) {
    qn_expr_t* r = LOOP(UNROLL, "r", I(4));
    qn_expr_t* rest = mul(b, r, I(8));
    qn_expr_t* outer = phase == 0 ? by : bx;
    qn_expr_t* i = qn_build_let(b, "i", add(b, add(b, mul(b, outer, I(32)), ty), rest));
    qn_expr_t* j = qn_build_let(b, "j", add(b, mul(b, phase == 0 ? bx : by, I(32)), tx));
    qn_build_if(b, both(b, less(b, i, phase == 0 ? n : m), less(b, j, phase == 0 ? m : n)));
    if (phase == 0) {
      STORE(tile, LOAD(x, i, j), add(b, ty, rest), tx);
    } else {
      STORE(y, LOAD(tile, tx, add(b, ty, rest)), i, j);
    }
    END();
    END();
    if (phase == 0) qn_build_barrier(b);
  }
  for (int i = 0; i < 5; i++) END();
}

const qn_sample_t qn_samples[] = {
    {"saxpy", saxpy},
    {"softmax", softmax},
    {"two_launches", two_launches},
    {"embed_layernorm", embed_layernorm},
    {"matmul_tile", matmul_tile},
    {"transpose_shared", transpose_shared},
};
const size_t qn_sample_count = QN_COUNT_OF(qn_samples);
