// SPDX-License-Identifier: Apache-2.0
// jit/gpu/cuda_wide.c: wide accesses in CUDA C: up to 16 bytes by one instruction.
//
// The text copies an aligned structure of elements, for which the compiler emits one access (such
// as ld.global.v4.b32). The elements keep their type, so the aliasing rules of C hold.
#include "jit/gpu/cuda.h"

void qn__cuda_wide_helpers(qn__gpu_printer_t* p) {
  static const char* const lines[] = {
      "template <class T, int N>",
      "struct __align__(sizeof(T) * N) qn_wide_t {",
      "  T e[N];",
      "};",
      "template <int V, class T>",
      "QN_FN void qn_wide_load(T* to, const T* from) {",
      "  constexpr int N = V * int(sizeof(T)) > 16 ? 16 / int(sizeof(T)) : V;",
      "#pragma unroll",
      "  for (int i = 0; i < V; i += N) {",
      "    const qn_wide_t<T, N> w = *(const qn_wide_t<T, N>*)(from + i);",
      "#pragma unroll",
      "    for (int k = 0; k < N; ++k) to[i + k] = w.e[k];",
      "  }",
      "}",
      "template <int V, class T>",
      "QN_FN void qn_wide_store(T* to, const T* from) {",
      "  constexpr int N = V * int(sizeof(T)) > 16 ? 16 / int(sizeof(T)) : V;",
      "#pragma unroll",
      "  for (int i = 0; i < V; i += N) {",
      "    qn_wide_t<T, N> w;",
      "#pragma unroll",
      "    for (int k = 0; k < N; ++k) w.e[k] = from[i + k];",
      "    *(qn_wide_t<T, N>*)(to + i) = w;",
      "  }",
      "}",
      "template <int V, class T>",
      "QN_FN void qn_each_move(T* to, const T* from) {",
      "#pragma unroll",
      "  for (int i = 0; i < V; ++i) to[i] = from[i];",
      "}",
  };
  for (size_t i = 0; i < QN_COUNT_OF(lines); ++i) qn__kprint_line(p, "%s", lines[i]);
}

static void move(qn__gpu_printer_t* p, uint32_t count, bool is_wide, bool is_store, const char* to,
                 const char* from) {
  p->dialect_bits |= QN__CUDA_USES_WIDE;
  const char* helper = !is_wide ? "qn_each_move" : is_store ? "qn_wide_store" : "qn_wide_load";
  qn__kprint_line(p, "%s<%u>(%s, %s);", helper, count, to, from);
}

const qn__gpu_dialect_wide_t qn__cuda_wide = {
    .memory_type = qn__cuda_memory_type,
    .from_memory = qn__cuda_from_memory,
    .to_memory = qn__cuda_to_memory,
    .move = move,
};
