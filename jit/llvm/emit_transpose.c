// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_transpose.c: emits loops that store what they compute transposed.
//
//   for i in 0..8 { vector p in 0..8 { T[p, i] = f(A[i, p]); } }
//
// Each iteration computes a vector along `p`. In memory the elements along `i` are neighbours. So
// the vectors are transposed in registers, and each is one store:
//
// 1. Blocks of n x n elements, where 16 bytes hold n, are transposed by interleaving the halves of
//    the list of vectors log2(n) times. That is one instruction each (unpack, zip).
// 2. Then the 16-byte blocks of the vectors are exchanged, by distances 1, 2, ...
#include "jit/llvm/emit_inner.h"

enum { MAX_SIZE = 64, BLOCK_BITS = 128 };

static LLVMValueRef shuffle(qn__llvm_emit_t* e, LLVMValueRef a, LLVMValueRef b,
                            const uint32_t* order, uint32_t size) {
  LLVMValueRef indices[MAX_SIZE];
  assert(size <= MAX_SIZE);
  for (uint32_t i = 0; i < size; ++i) indices[i] = LLVMConstInt(e->i32, order[i], false);
  return LLVMBuildShuffleVector(e->fn->builder, a, b, LLVMConstVector(indices, size), "");
}

// Interleaves the low (`high` is 0) or high halves of the blocks of `n` elements.
static LLVMValueRef interleave(qn__llvm_emit_t* e, LLVMValueRef a, LLVMValueRef b, uint32_t size,
                               uint32_t n, uint32_t high) {
  uint32_t order[MAX_SIZE];
  for (uint32_t i = 0; i < size; ++i) {
    uint32_t from = i / n * n + high * (n / 2) + i % n / 2;
    order[i] = i % 2 ? size + from : from;
  }
  return shuffle(e, a, b, order, size);
}

// Exchanges the blocks of `n` elements at the upper places of `a` for those at the lower places of
// `b`, where bit `distance` of a place is its half. Returns the new `a` (`high` is 0) or `b`.
static LLVMValueRef exchange(qn__llvm_emit_t* e, LLVMValueRef a, LLVMValueRef b, uint32_t size,
                             uint32_t n, uint32_t distance, uint32_t high) {
  uint32_t order[MAX_SIZE];
  for (uint32_t i = 0; i < size; ++i) {
    bool is_upper = (i / n & distance) != 0;
    uint32_t from_a = high ? i + distance * n : i;
    uint32_t from_b = high ? i : i - distance * n;
    order[i] = is_upper ? size + from_b : from_a;
  }
  return shuffle(e, a, b, order, size);
}

// Transposes `size` vectors of `size` elements of `bits` bits in place.
static void transpose(qn__llvm_emit_t* e, LLVMValueRef* rows, uint32_t size, uint32_t bits) {
  uint32_t n = BLOCK_BITS / bits < size ? BLOCK_BITS / bits : size;
  LLVMValueRef next[MAX_SIZE];
  for (uint32_t first = 0; first < size; first += n) {
    for (uint32_t step = 1; step < n; step *= 2) {
      for (uint32_t i = 0; i < n; ++i) {
        LLVMValueRef a = rows[first + i / 2], b = rows[first + i / 2 + n / 2];
        next[i] = interleave(e, a, b, size, n, i % 2);
      }
      for (uint32_t i = 0; i < n; ++i) rows[first + i] = next[i];
    }
  }
  for (uint32_t distance = 1; distance < size / n; distance *= 2) {
    for (uint32_t i = 0; i < size; ++i) {
      if (i / n & distance) continue;
      LLVMValueRef a = rows[i], b = rows[i + distance * n];
      rows[i] = exchange(e, a, b, size, n, distance, 0);
      rows[i + distance * n] = exchange(e, a, b, size, n, distance, 1);
    }
  }
}

bool qn__emit_transposed(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop) {
  const qn__ir_stmt_t* inner = loop->loop.body.last;
  assert(inner && inner->kind == QN__STMT_LOOP && inner->loop.kind == QN_LOOP_VECTOR);
  const qn__ir_stmt_t* store = inner->loop.body.last;
  assert(store && store->kind == QN__STMT_STORE);
  const qn__ir_buffer_t* buffer = store->store.buffer;
  uint32_t size = qn__emit_loop_lanes(e, inner);
  uint32_t bits = qn__dtype_bits(buffer->dtype);
  if (size < 2 || size > MAX_SIZE || (size & (size - 1)) != 0) return false;
  int64_t first, trips;
  LLVMValueRef begin = qn__emit_scalar(e, loop->loop.begin);
  LLVMValueRef end = qn__emit_scalar(e, loop->loop.end);
  if (!qn__emit_const_trips(begin, end, &first, &trips) || trips != (int64_t)size) return false;
  LLVMValueRef rows[MAX_SIZE];
  qn__llvm_address_t address = {0};
  for (uint32_t i = 0; i < size; ++i) {
    LLVMValueRef index = qn__emit_i64(e, first + i);
    qn__emit_bind_index(e, loop->loop.var, loop->loop.begin, qn__emit_uniform(QN_DTYPE_I64, index));
    for (const qn__ir_stmt_t* s = loop->loop.body.first; s != inner; s = s->next) {
      qn__emit_stmt(e, s);
    }
    LLVMValueRef from = qn__emit_scalar(e, inner->loop.begin);
    qn__emit_region_begin(e, size, NULL);
    qn__emit_bind_index(e, inner->loop.var, inner->loop.begin, qn__emit_lanes_from(e, from));
    for (const qn__ir_stmt_t* s = inner->loop.body.first; s != store; s = s->next) {
      qn__emit_stmt(e, s);
    }
    qn__llvm_value_t value = qn__emit_expr(e, store->store.value);
    rows[i] = qn__emit_to_memory(e, buffer->dtype, qn__emit_widen(e, value));
    if (i == 0) address = qn__emit_address(e, buffer, store->store.indices);
    qn__emit_region_end(e);
  }
  assert(address.shape != QN__LLVM_SHAPE_UNIFORM);
  transpose(e, rows, size, bits);
  for (uint32_t i = 0; i < size; ++i) {
    qn__emit_plain_store(e, buffer, rows[i], qn__emit_lane_pointer(e, &address, i));
  }
  return true;
}
