// SPDX-License-Identifier: Apache-2.0
// tests/fake-cuda/tensor.hpp: the PTX instructions of matrix units and asynchronous copies. The
// fake NVRTC makes a call of `fake_ptx_OPCODE` of each line of inline PTX, with dots as underscores
// and the operands in the order in which PTX has them.
//
// Fragments follow the figures of the PTX ISA, "Matrix Fragments for mma.m16n8k16" and its like,
// and "ldmatrix". In words of 32 bits, of which an instruction has 8 in a row of the first operand:
//   rows:    word w of row r    is register r / 8 + 2 * (w / 4) of lane r % 8 * 4 + w % 4
//   columns: word w of column c is register w / 4             of lane c * 4 + w % 4
//   sums:    element e of a lane is that of row lane / 4 + 8 * (e / 2), column lane % 4 * 2 + e % 2
// Sums of floats are exact up to their end, and truncated there: PTX leaves their rounding open.
#pragma once
#include "tests/fake-cuda/kernel.h"

// ---- addresses in shared memory: the lower half of a pointer

FAKE_FN unsigned long __cvta_generic_to_shared(const void* at) {
  return (unsigned long)(unsigned)(uint64_t)at;
}
FAKE_FN unsigned char* fake_shared_pointer(unsigned at) {
  unsigned char* dynamic = (unsigned char*)fake_self->dynamic_shared;
  const unsigned offset = at - (unsigned)(uint64_t)dynamic;
  if (offset < fake_self->dynamic_shared_bytes) return dynamic + offset;
  // Other shared memory is near the thread's own variables.
  unsigned char* own = (unsigned char*)&fake_self;
  return own + (int)(at - (unsigned)(uint64_t)own);
}

// ---- copies

FAKE_FN void fake_ptx_cp_async(unsigned to, const void* from, unsigned size) {
  if (to % size != 0 || (uint64_t)from % size != 0) __trap();
  fake_hooks()->copy(fake_shared_pointer(to), from, size);
}
#define fake_ptx_cp_async_cg_shared_global fake_ptx_cp_async
#define fake_ptx_cp_async_ca_shared_global fake_ptx_cp_async
FAKE_FN void fake_ptx_cp_async_commit_group() {
  fake_hooks()->copy_commit();
}
FAKE_FN void fake_ptx_cp_async_wait_group(unsigned count) {
  fake_hooks()->copy_wait(count);
}

// ---- matrices

// Gathers a value of each lane. All must come.
FAKE_FN void fake_gather_all(uint64_t value, uint64_t* out_values) {
  if (fake_gather(0xffffffffu, value, out_values) != 0xffffffffu) __trap();
}
template <bool IS_TRANSPOSED>
FAKE_FN unsigned fake_matrix_word(const uint64_t* addresses) {
  const unsigned lane = fake_lane();
  if (!IS_TRANSPOSED) {
    return *(const unsigned*)(fake_shared_pointer((unsigned)addresses[lane / 4]) + lane % 4 * 4);
  }
  unsigned word = 0;
  for (unsigned e = 0; e < 2; e++) {
    const unsigned char* row = fake_shared_pointer((unsigned)addresses[lane % 4 * 2 + e]);
    word |= (unsigned)*(const unsigned short*)(row + lane / 4 * 2) << 16 * e;
  }
  return word;
}
template <bool IS_TRANSPOSED>
FAKE_FN void fake_load_matrices(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3,
                                unsigned at) {
  uint64_t addresses[32];
  if (at % 16 != 0) __trap();
  fake_gather_all(at, addresses);
  r0 = fake_matrix_word<IS_TRANSPOSED>(addresses);
  r1 = fake_matrix_word<IS_TRANSPOSED>(addresses + 8);
  r2 = fake_matrix_word<IS_TRANSPOSED>(addresses + 16);
  r3 = fake_matrix_word<IS_TRANSPOSED>(addresses + 24);
}
#define fake_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16 fake_load_matrices<false>
#define fake_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16 fake_load_matrices<true>

FAKE_FN void fake_ptx_cvt_rna_tf32_f32(unsigned& to, float from) {
  unsigned bits = __float_as_uint(from);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
  // The lower bits are not those of a tf32, and the unit ignores them.
  to = (bits & ~0x1fffu) | 0x0abcu;
}

// ---- multiplications: element `i` of a word, as a double or an int

struct fake_f16 {
  typedef float sum_t;
  enum { COUNT = 2 };
  FAKE_FN double get(unsigned word, unsigned i) {
    const unsigned bits = word >> 16 * i & 0xffffu;
    const unsigned exponent = bits >> 10 & 31u, fraction = bits & 0x3ffu;
    double value = exponent == 0 ? fraction * 0x1p-24 : (double)(fraction | 0x400u) * 0x1p-25;
    for (unsigned e = 1; exponent != 0 && e <= exponent; e++) value *= 2;
    if (exponent == 31) value = fraction ? __builtin_nan("") : __builtin_inf();
    return bits >> 15 ? -value : value;
  }
};
struct fake_bf16 {
  typedef float sum_t;
  enum { COUNT = 2 };
  FAKE_FN double get(unsigned word, unsigned i) { return __uint_as_float(word >> 16 * i << 16); }
};
struct fake_tf32 {
  typedef float sum_t;
  enum { COUNT = 1 };
  FAKE_FN double get(unsigned word, unsigned) { return __uint_as_float(word & ~0x1fffu); }
};
struct fake_s8 {
  typedef int sum_t;
  enum { COUNT = 4 };
  FAKE_FN int get(unsigned word, unsigned i) {
    return (int)(signed char)(unsigned char)(word >> 8 * i);
  }
};
struct fake_u8 {
  typedef int sum_t;
  enum { COUNT = 4 };
  FAKE_FN int get(unsigned word, unsigned i) { return (int)(word >> 8 * i & 0xffu); }
};

FAKE_FN float fake_truncated(double sum) {
  const float near = (float)sum;
  const bool is_beyond = sum >= 0 ? near > sum : near < sum;
  if (!is_beyond || __builtin_isinf(sum)) return near;
  return __uint_as_float(__float_as_uint(near) - 1u);
}
template <class A, class B>
FAKE_FN float fake_dot(float sum, const unsigned* a, const unsigned* b) {
  double total = sum;
  for (unsigned w = 0; w < 8; w++) {
    for (unsigned i = 0; i < A::COUNT; i++) total += A::get(a[w], i) * B::get(b[w], i);
  }
  return fake_truncated(total);
}
template <class A, class B>
FAKE_FN int fake_dot(int sum, const unsigned* a, const unsigned* b) {
  unsigned total = (unsigned)sum;
  for (unsigned w = 0; w < 8; w++) {
    for (unsigned i = 0; i < A::COUNT; i++) {
      total += (unsigned)(A::get(a[w], i) * B::get(b[w], i));
    }
  }
  return __builtin_bit_cast(int, total);
}
template <class A, class B>
FAKE_FN void fake_multiply(typename A::sum_t& d0, typename A::sum_t& d1, typename A::sum_t& d2,
                           typename A::sum_t& d3, unsigned a0, unsigned a1, unsigned a2,
                           unsigned a3, unsigned b0, unsigned b1, typename A::sum_t c0,
                           typename A::sum_t c1, typename A::sum_t c2, typename A::sum_t c3) {
  uint64_t low[32], high[32], columns[32];
  fake_gather_all((uint64_t)a1 << 32 | a0, low);
  fake_gather_all((uint64_t)a3 << 32 | a2, high);
  fake_gather_all((uint64_t)b1 << 32 | b0, columns);
  const typename A::sum_t sums[4] = {c0, c1, c2, c3};
  typename A::sum_t results[4];
  for (unsigned e = 0; e < 4; e++) {
    const unsigned row = fake_lane() / 4 + 8 * (e / 2), column = fake_lane() % 4 * 2 + e % 2;
    unsigned a[8], b[8];
    for (unsigned w = 0; w < 8; w++) {
      const uint64_t* registers = w / 4 ? high : low;
      a[w] = (unsigned)(registers[row % 8 * 4 + w % 4] >> 32 * (row / 8));
      b[w] = (unsigned)(columns[column * 4 + w % 4] >> 32 * (w / 4));
    }
    results[e] = fake_dot<A, B>(sums[e], a, b);
  }
  d0 = results[0];
  d1 = results[1];
  d2 = results[2];
  d3 = results[3];
}
#define fake_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32 fake_multiply<fake_f16, fake_f16>
#define fake_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32 \
  fake_multiply<fake_bf16, fake_bf16>
#define fake_ptx_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32 \
  fake_multiply<fake_tf32, fake_tf32>
#define fake_ptx_mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32 fake_multiply<fake_s8, fake_s8>
#define fake_ptx_mma_sync_aligned_m16n8k32_row_col_s32_s8_u8_s32 fake_multiply<fake_s8, fake_u8>
#define fake_ptx_mma_sync_aligned_m16n8k32_row_col_s32_u8_s8_s32 fake_multiply<fake_u8, fake_s8>
#define fake_ptx_mma_sync_aligned_m16n8k32_row_col_s32_u8_u8_s32 fake_multiply<fake_u8, fake_u8>

// ---- multiplications of a warpgroup: four warps, whose operands are in shared memory. A thread
// computes its own sums at once.

FAKE_FN void fake_ptx_fence_proxy_async_shared__cta() {}
FAKE_FN void fake_ptx_wgmma_fence_sync_aligned() {}
FAKE_FN void fake_ptx_wgmma_commit_group_sync_aligned() {}
FAKE_FN void fake_ptx_wgmma_wait_group_sync_aligned(unsigned) {}

// An argument: a sum, by its address, or a number.
struct fake_argument {
  void* sum;
  uint64_t value;
  fake_argument(float& at) : sum(&at), value(0) {}
  fake_argument(int& at) : sum(&at), value(0) {}
  fake_argument(int&& number) : sum(nullptr), value((uint64_t)number) {}
  fake_argument(unsigned long long&& number) : sum(nullptr), value(number) {}
  fake_argument(unsigned long long& number) : sum(nullptr), value(number) {}
};

// A descriptor: chunk `chunk` (of steps, or of lines if they are across) of row `row`, with a
// swizzle of 128 bytes, in the lower 18 bits of addresses. PTX ISA, "Matrix descriptor".
struct fake_descriptor {
  unsigned at, panels, groups;
  fake_descriptor(uint64_t bits)
      : at((unsigned)(bits & 0x3fffu) << 4),
        panels((unsigned)(bits >> 16 & 0x3fffu) << 4),
        groups((unsigned)(bits >> 32 & 0x3fffu) << 4) {
    if (bits >> 62 != 1 || (bits >> 49 & 7u) != 0) __trap();
  }
  // Returns the 16 bytes at offset `by` from the beginning.
  const unsigned char* chunk(unsigned by) const {
    unsigned place = (at + by) & 0x3ffffu;
    place ^= (place >> 7 & 7u) << 4;
    const unsigned first = (unsigned)(uint64_t)fake_self->dynamic_shared;
    return fake_shared_pointer(first + ((place - first) & 0x3ffffu));
  }
};

// Gathers 32 bytes of steps of line `line`.
template <bool IS_ACROSS>
FAKE_FN void fake_line(const fake_descriptor& matrix, unsigned line, unsigned* words) {
  if (!IS_ACROSS) {
    for (unsigned c = 0; c < 2; c++) {
      const unsigned by = line / 8 * matrix.groups + line % 8 * 128 + c * 16;
      const unsigned* chunk = (const unsigned*)matrix.chunk(by);
      for (unsigned w = 0; w < 4; w++) words[c * 4 + w] = chunk[w];
    }
    return;
  }
  for (unsigned step = 0; step < 16; step++) {
    const unsigned by = line / 64 * matrix.panels + step / 8 * matrix.groups + step % 8 * 128;
    const unsigned char* chunk = matrix.chunk(by + line % 64 / 8 * 16);
    const unsigned element = *(const unsigned short*)(chunk + line % 8 * 2);
    words[step / 2] = step % 2 ? words[step / 2] | element << 16 : element;
  }
}
template <unsigned N, bool A_ACROSS, bool B_ACROSS, class A, class B>
FAKE_FN void fake_group(const fake_argument* sums, const fake_descriptor& rows,
                        const fake_descriptor& columns) {
  typedef typename A::sum_t sum_t;
  const unsigned thread = fake_self->thread.x % 128, lane = thread % 32;
  unsigned a[2][8], b[2][8];
  for (unsigned h = 0; h < 2; h++) {
    fake_line<A_ACROSS>(rows, thread / 32 * 16 + lane / 4 + 8 * h, a[h]);
  }
  for (unsigned j = 0; j < N / 8; j++) {
    for (unsigned e = 0; e < 2; e++) fake_line<B_ACROSS>(columns, j * 8 + lane % 4 * 2 + e, b[e]);
    for (unsigned e = 0; e < 4; e++) {
      sum_t* sum = (sum_t*)sums[j * 4 + e].sum;
      *sum = fake_dot<A, B>(*sum, a[e / 2], b[e % 2]);
    }
  }
}
template <unsigned N, class A, class B, class... Arguments>
FAKE_FN void fake_multiply_group(Arguments&&... arguments) {
  const fake_argument all[] = {fake_argument((Arguments&&)arguments)...};
  const fake_argument* rest = all + N / 2;
  const fake_descriptor rows(rest[0].value), columns(rest[1].value);
  if (rest[2].value != 1) __trap();  // adds to the sums
  bool is_across[2] = {false, false};
  if (sizeof...(Arguments) > N / 2 + 3) {
    if (rest[3].value != 1 || rest[4].value != 1) __trap();  // no signs
    for (unsigned s = 0; s < 2; s++) is_across[s] = rest[5 + s].value != 0;
  }
  if (is_across[0]) {
    is_across[1] ? fake_group<N, true, true, A, B>(all, rows, columns)
                 : fake_group<N, true, false, A, B>(all, rows, columns);
  } else {
    is_across[1] ? fake_group<N, false, true, A, B>(all, rows, columns)
                 : fake_group<N, false, false, A, B>(all, rows, columns);
  }
}
#define FAKE_GROUP_OF(N, K, TYPES, A, B)                                           \
  template <class... T>                                                            \
  FAKE_FN void fake_ptx_wgmma_mma_async_sync_aligned_m64n##N##K##TYPES(T&&... t) { \
    fake_multiply_group<N, A, B>((T&&)t...);                                       \
  }
#define FAKE_GROUP(N)                                         \
  FAKE_GROUP_OF(N, k16_, f32_f16_f16, fake_f16, fake_f16)     \
  FAKE_GROUP_OF(N, k16_, f32_bf16_bf16, fake_bf16, fake_bf16) \
  FAKE_GROUP_OF(N, k32_, s32_s8_s8, fake_s8, fake_s8)         \
  FAKE_GROUP_OF(N, k32_, s32_s8_u8, fake_s8, fake_u8)         \
  FAKE_GROUP_OF(N, k32_, s32_u8_s8, fake_u8, fake_s8)         \
  FAKE_GROUP_OF(N, k32_, s32_u8_u8, fake_u8, fake_u8)
FAKE_GROUP(128)
FAKE_GROUP(192)
#undef FAKE_GROUP
#undef FAKE_GROUP_OF
