// SPDX-License-Identifier: Apache-2.0
// tests/fake-cuda/kernel.hpp: definitions that make CUDA C compile as C++: keywords, coordinates of
// threads, barriers, lanes, atomics and the intrinsics that quern's kernels use.
//
// The fake NVRTC includes it before the text of a kernel. Shared memory is a thread-local variable
// of the thread that runs the threads of a block as fibers. No header of the library is needed, so
// a kernel compiles in a tenth of a second.
#pragma once
#include "tests/fake-cuda/kernel.h"

#pragma GCC diagnostic ignored "-Wunused-function"

__attribute__((no_sanitize("thread"))) static const fake_hooks_t* fake_hooks();
static thread_local const fake_thread_t* fake_self;

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 900
#define FAKE_CUDA 1

#define threadIdx (fake_self->thread)
#define blockIdx (fake_self->block)
#define blockDim (fake_self->block_dim)
#define gridDim (fake_self->grid_dim)
#define warpSize 32

#define FAKE_FN static inline __attribute__((always_inline))

FAKE_FN void* fake_dynamic_shared() {
  return fake_self->dynamic_shared;
}

// ---- barriers and lanes. Others run meanwhile: whose thread this is must be said again.

FAKE_FN void fake_barrier(unsigned line) {
  const fake_thread_t* self = fake_self;
  fake_hooks()->barrier(line);
  fake_self = self;
}
#define __syncthreads() fake_barrier(__LINE__)
FAKE_FN unsigned fake_gather(unsigned mask, uint64_t value, uint64_t* out_values,
                             bool is_fence = false) {
  const fake_thread_t* self = fake_self;
  unsigned came = fake_hooks()->gather(mask, value, out_values, is_fence);
  fake_self = self;
  return came;
}
FAKE_FN void __syncwarp(unsigned mask = 0xffffffffu) {
  uint64_t values[32];
  (void)fake_gather(mask, 0, values, true);
}
FAKE_FN void __threadfence() {
  fake_hooks()->fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
FAKE_FN void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
FAKE_FN void __threadfence_system() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
FAKE_FN void __trap() {
  fake_hooks()->trap();
}
FAKE_FN unsigned fake_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
FAKE_FN unsigned __activemask() {
  return 0xffffffffu;
}

template <class T>
FAKE_FN uint64_t fake_pack(T value) {
  static_assert(sizeof(T) <= 8, "a lane's value has at most 8 bytes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
FAKE_FN T fake_unpack(uint64_t bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
// The value of `source` inside of the width, else one's own. What a lane that did not come has is
// undefined: it is made to show.
template <class T>
FAKE_FN T fake_from(unsigned mask, T value, int source, bool is_inside) {
  uint64_t values[32];
  unsigned came = fake_gather(mask, fake_pack(value), values);
  if (!is_inside) return value;
  if (!(came & (1u << (source & 31)))) return fake_unpack<T>(0x7fdfbeef7fdfbeefu);
  return fake_unpack<T>(values[source & 31]);
}
template <class T>
FAKE_FN T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  int base = (int)fake_lane() & ~(width - 1);
  return fake_from(mask, value, base + (source & (width - 1)), true);
}
template <class T>
FAKE_FN T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  int lane = (int)fake_lane(), base = lane & ~(width - 1);
  return fake_from(mask, value, lane - (int)delta, lane - (int)delta >= base);
}
template <class T>
FAKE_FN T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  int lane = (int)fake_lane(), base = lane & ~(width - 1);
  return fake_from(mask, value, lane + (int)delta, lane + (int)delta < base + width);
}
template <class T>
FAKE_FN T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  int lane = (int)fake_lane(), base = lane & ~(width - 1);
  int source = lane ^ lanes;
  return fake_from(mask, value, source, source < base + width);
}
FAKE_FN unsigned __ballot_sync(unsigned mask, int predicate) {
  uint64_t values[32];
  unsigned came = fake_gather(mask, predicate != 0, values), result = 0;
  for (unsigned i = 0; i < 32; i++) result |= (unsigned)((came >> i) & 1 & (unsigned)values[i]) << i;
  return result;
}
FAKE_FN int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
FAKE_FN int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0) == 0;
}
// Sums of integers wrap.
template <class T>
FAKE_FN T fake_sum(T a, T b) {
  T sum;
  if constexpr ((T)0.5f == (T)0) {
    (void)__builtin_add_overflow(a, b, &sum);
  } else {
    sum = a + b;
  }
  return sum;
}
template <class T, class F>
FAKE_FN T fake_reduce(unsigned mask, T value, F apply) {
  uint64_t values[32];
  unsigned came = fake_gather(mask, fake_pack(value), values);
  T result = value;
  bool is_first = true;
  for (unsigned i = 0; i < 32; i++) {
    if (!((came >> i) & 1)) continue;
    T other = fake_unpack<T>(values[i]);
    result = is_first ? other : apply(result, other);
    is_first = false;
  }
  return result;
}
template <class T>
FAKE_FN T __reduce_add_sync(unsigned mask, T value) {
  return fake_reduce(mask, value, [](T a, T b) { return fake_sum<T>(a, b); });
}
template <class T>
FAKE_FN T __reduce_min_sync(unsigned mask, T value) {
  return fake_reduce(mask, value, [](T a, T b) { return a < b ? a : b; });
}
template <class T>
FAKE_FN T __reduce_max_sync(unsigned mask, T value) {
  return fake_reduce(mask, value, [](T a, T b) { return a > b ? a : b; });
}

FAKE_FN int __syncthreads_or(int predicate) {
  __shared__ int any;
  __syncthreads();
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  if (predicate) any = 1;
  __syncthreads();
  return any;
}

// ---- atomics: other streams may be at the same memory

template <class T>
struct fake_type {
  typedef T type;
};
template <class T>
using fake_t = typename fake_type<T>::type;
template <class T, class F>
FAKE_FN T fake_atomic(T* address, F apply) {
  T old, wanted;
  __atomic_load(address, &old, __ATOMIC_SEQ_CST);
  do {
    wanted = apply(old);
  } while (!__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST));
  return old;
}
template <class T>
FAKE_FN T atomicAdd(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T old) { return fake_sum<T>(old, value); });
}
template <class T>
FAKE_FN T atomicSub(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T old) { return (T)(old - value); });
}
template <class T>
FAKE_FN T atomicMin(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
FAKE_FN T atomicMax(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T old) { return value > old ? value : old; });
}
template <class T>
FAKE_FN T atomicAnd(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T old) { return (T)(old & value); });
}
template <class T>
FAKE_FN T atomicOr(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T old) { return (T)(old | value); });
}
template <class T>
FAKE_FN T atomicXor(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T old) { return (T)(old ^ value); });
}
template <class T>
FAKE_FN T atomicExch(T* address, fake_t<T> value) {
  return fake_atomic(address, [=](T) { return value; });
}
// By bits: a NaN equals itself.
template <class T>
FAKE_FN T atomicCAS(T* address, fake_t<T> compare, fake_t<T> value) {
  T old = compare, wanted = value;
  (void)__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_SEQ_CST,
                                  __ATOMIC_SEQ_CST);
  return old;
}

// ---- intrinsics

FAKE_FN unsigned __float_as_uint(float x) {
  return fake_unpack<unsigned>(fake_pack(x));
}
FAKE_FN int __float_as_int(float x) {
  return fake_unpack<int>(fake_pack(x));
}
FAKE_FN float __uint_as_float(unsigned x) {
  return fake_unpack<float>(x);
}
FAKE_FN float __int_as_float(int x) {
  return fake_unpack<float>((unsigned)x);
}
FAKE_FN long long __double_as_longlong(double x) {
  return fake_unpack<long long>(fake_pack(x));
}
FAKE_FN double __longlong_as_double(long long x) {
  return fake_unpack<double>((uint64_t)x);
}
FAKE_FN int __double2hiint(double x) {
  return (int)(fake_pack(x) >> 32);
}
FAKE_FN int __double2loint(double x) {
  return (int)fake_pack(x);
}
FAKE_FN double __hiloint2double(int hi, int lo) {
  return fake_unpack<double>((uint64_t)(unsigned)hi << 32 | (unsigned)lo);
}
FAKE_FN unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((uint64_t)a * b) >> 32);
}
FAKE_FN int __mulhi(int a, int b) {
  return (int)(((int64_t)a * b) >> 32);
}
FAKE_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
FAKE_FN long long __mul64hi(long long a, long long b) {
  return (long long)(((__int128)a * b) >> 64);
}
FAKE_FN int __clz(int x) {
  return x ? __builtin_clz((unsigned)x) : 32;
}
FAKE_FN int __clzll(long long x) {
  return x ? __builtin_clzll((unsigned long long)x) : 64;
}
FAKE_FN int __popc(unsigned x) {
  return __builtin_popcount(x);
}
FAKE_FN int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
FAKE_FN int __ffs(int x) {
  return __builtin_ffs(x);
}
FAKE_FN int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
template <class T>
FAKE_FN T __ldg(const T* address) {
  return *address;
}
#define FAKE_UNARY(name, builtin, type) \
  FAKE_FN type name(type x) { return builtin(x); }
#define FAKE_BINARY(name, builtin, type) \
  FAKE_FN type name(type x, type y) { return builtin(x, y); }
#define FAKE_OPERATOR(name, op, type) \
  FAKE_FN type name(type x, type y) { return x op y; }
FAKE_OPERATOR(__fadd_rn, +, float)
FAKE_OPERATOR(__fsub_rn, -, float)
FAKE_OPERATOR(__fmul_rn, *, float)
FAKE_OPERATOR(__fdiv_rn, /, float)
FAKE_OPERATOR(__dadd_rn, +, double)
FAKE_OPERATOR(__dsub_rn, -, double)
FAKE_OPERATOR(__dmul_rn, *, double)
FAKE_OPERATOR(__ddiv_rn, /, double)
FAKE_UNARY(__fsqrt_rn, __builtin_sqrtf, float)
FAKE_UNARY(__dsqrt_rn, __builtin_sqrt, double)
FAKE_FN float __frcp_rn(float x) {
  return 1.0f / x;
}
FAKE_FN float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
FAKE_FN double __fma_rn(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
FAKE_FN float fmaf(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
FAKE_FN double fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
// Beyond the range the nearest bound. Of a NaN zero, but from or to 64 bits the bits of INT_MIN.
template <class I, class F>
FAKE_FN I fake_truncate(F x) {
  constexpr bool is_signed = (I)-1 < 0;
  constexpr I most = (I)(~0ull >> (64 - 8 * sizeof(I) + is_signed));
  constexpr I least = is_signed ? (I)(-most - 1) : (I)0;
  if (x != x) return sizeof(I) + sizeof(F) > 8 ? (I)((I)1 << (8 * sizeof(I) - 1)) : (I)0;
  if (x >= (F)most) return most;
  return x <= (F)least ? least : (I)x;
}
#define FAKE_TRUNCATE(name, from, to) \
  FAKE_FN to name(from x) { return fake_truncate<to>(x); }
FAKE_TRUNCATE(__float2int_rz, float, int)
FAKE_TRUNCATE(__float2uint_rz, float, unsigned)
FAKE_TRUNCATE(__float2ll_rz, float, long long)
FAKE_TRUNCATE(__float2ull_rz, float, unsigned long long)
FAKE_TRUNCATE(__double2int_rz, double, int)
FAKE_TRUNCATE(__double2uint_rz, double, unsigned)
FAKE_TRUNCATE(__double2ll_rz, double, long long)
FAKE_TRUNCATE(__double2ull_rz, double, unsigned long long)
#define FAKE_CONVERT(name, from, to) \
  FAKE_FN to name(from x) { return (to)x; }
FAKE_CONVERT(__ll2float_rn, long long, float)
FAKE_CONVERT(__ull2float_rn, unsigned long long, float)
FAKE_CONVERT(__ll2double_rn, long long, double)
FAKE_CONVERT(__ull2double_rn, unsigned long long, double)
FAKE_CONVERT(__double2float_rn, double, float)
FAKE_UNARY(sqrtf, __builtin_sqrtf, float)
FAKE_UNARY(sqrt, __builtin_sqrt, double)
FAKE_UNARY(floorf, __builtin_floorf, float)
FAKE_UNARY(floor, __builtin_floor, double)
FAKE_UNARY(ceilf, __builtin_ceilf, float)
FAKE_UNARY(ceil, __builtin_ceil, double)
FAKE_UNARY(truncf, __builtin_truncf, float)
FAKE_UNARY(trunc, __builtin_trunc, double)
FAKE_UNARY(rintf, __builtin_rintf, float)
FAKE_UNARY(rint, __builtin_rint, double)
FAKE_UNARY(roundf, __builtin_roundf, float)
FAKE_UNARY(round, __builtin_round, double)
FAKE_UNARY(fabsf, __builtin_fabsf, float)
FAKE_UNARY(fabs, __builtin_fabs, double)
FAKE_BINARY(fminf, __builtin_fminf, float)
FAKE_BINARY(fmin, __builtin_fmin, double)
FAKE_BINARY(fmaxf, __builtin_fmaxf, float)
FAKE_BINARY(fmax, __builtin_fmax, double)
FAKE_BINARY(copysignf, __builtin_copysignf, float)
FAKE_BINARY(copysign, __builtin_copysign, double)
FAKE_BINARY(fmodf, __builtin_fmodf, float)
FAKE_BINARY(fmod, __builtin_fmod, double)
FAKE_FN bool isnan(float x) {
  return x != x;
}
FAKE_FN bool isnan(double x) {
  return x != x;
}
FAKE_FN bool isinf(float x) {
  return __builtin_isinf(x);
}
FAKE_FN bool isinf(double x) {
  return __builtin_isinf(x);
}
template <class T>
FAKE_FN T min(T a, fake_t<T> b) {
  return b < a ? b : a;
}
template <class T>
FAKE_FN T max(T a, fake_t<T> b) {
  return a < b ? b : a;
}
template <class T>
FAKE_FN T abs(T a) {
  return a < 0 ? -a : a;
}

#include "tests/fake-cuda/tensor.hpp"

// ---- where races are looked for, the compiler calls these in front of each access

#if defined(FAKE_CUDA_RACES)
#define FAKE_NOTE extern "C" __attribute__((no_sanitize("thread"), noinline, used))
FAKE_NOTE void fake_note(const void* address, unsigned size, unsigned how) {
  if (address != &fake_self) fake_hooks()->access(address, size, how);
}
#define FAKE_TSAN(size)                                                                     \
  FAKE_NOTE void __tsan_read##size(void* a) { fake_note(a, size, 0); }                      \
  FAKE_NOTE void __tsan_write##size(void* a) { fake_note(a, size, FAKE_WRITES); }           \
  FAKE_NOTE void __tsan_unaligned_read##size(void* a) { fake_note(a, size, 0); }            \
  FAKE_NOTE void __tsan_unaligned_write##size(void* a) { fake_note(a, size, FAKE_WRITES); } \
  FAKE_NOTE void __tsan_volatile_read##size(void* a) { fake_note(a, size, FAKE_IS_ATOMIC); }\
  FAKE_NOTE void __tsan_volatile_write##size(void* a) {                                     \
    fake_note(a, size, FAKE_WRITES | FAKE_IS_ATOMIC);                                       \
  }
FAKE_TSAN(1)
FAKE_TSAN(2)
FAKE_TSAN(4)
FAKE_TSAN(8)
FAKE_TSAN(16)
FAKE_NOTE void __tsan_read_range(void* a, unsigned long n) { fake_note(a, (unsigned)n, 0); }
FAKE_NOTE void __tsan_write_range(void* a, unsigned long n) {
  fake_note(a, (unsigned)n, FAKE_WRITES);
}
FAKE_NOTE void __tsan_func_entry(void*) {}
FAKE_NOTE void __tsan_func_exit() {}
FAKE_NOTE void __tsan_init() {}
FAKE_NOTE void __tsan_atomic_thread_fence(int) {}
#define FAKE_TSAN_ATOMIC(bits, type)                                                         \
  FAKE_NOTE type __tsan_atomic##bits##_load(const volatile type* a, int) {                   \
    fake_note((const void*)a, bits / 8, FAKE_IS_ATOMIC);                                     \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                             \
  }                                                                                          \
  FAKE_NOTE void __tsan_atomic##bits##_store(volatile type* a, type value, int) {            \
    fake_note((const void*)a, bits / 8, FAKE_WRITES | FAKE_IS_ATOMIC);                       \
    __atomic_store_n(a, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                          \
  FAKE_NOTE type __tsan_atomic##bits##_exchange(volatile type* a, type value, int) {         \
    fake_note((const void*)a, bits / 8, FAKE_WRITES | FAKE_IS_ATOMIC);                       \
    return __atomic_exchange_n(a, value, __ATOMIC_SEQ_CST);                                  \
  }                                                                                          \
  FAKE_NOTE bool __tsan_atomic##bits##_compare_exchange_strong(volatile type* a, void* old,  \
                                                               type value, int, int) {       \
    fake_note((const void*)a, bits / 8, FAKE_WRITES | FAKE_IS_ATOMIC);                       \
    return __atomic_compare_exchange_n(a, (type*)old, value, false, __ATOMIC_SEQ_CST,        \
                                       __ATOMIC_SEQ_CST);                                    \
  }
FAKE_TSAN_ATOMIC(8, unsigned char)
FAKE_TSAN_ATOMIC(16, unsigned short)
FAKE_TSAN_ATOMIC(32, unsigned)
FAKE_TSAN_ATOMIC(64, unsigned long)
#endif

static void* fake_own() {
  fake_self = nullptr;
  return (void*)&fake_self;
}

// ---- what the driver finds: behind the text, FAKE_KERNEL for each kernel between two others

template <unsigned... I>
struct fake_numbers {};
template <unsigned N>
using fake_count_to = fake_numbers<__integer_pack(N)...>;
template <auto F>
struct fake_entry;
template <class... A, void (*F)(A...)>
struct fake_entry<F> {
  static constexpr unsigned count = sizeof...(A);
  static constexpr unsigned sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
  template <unsigned... I>
  static void apply(void** params, fake_numbers<I...>) {
    F(*(A*)params[I]...);
  }
  static void call(const fake_thread_t* self, void** params) {
    fake_self = self;
    apply(params, fake_count_to<sizeof...(A)>());
  }
};
#define FAKE_MODULE_BEGIN static const fake_kernel_t fake_kernels[] = {
#define FAKE_KERNEL(name, max_threads)                                             \
  {#name, fake_entry<name>::call, fake_entry<name>::sizes, fake_entry<name>::count, \
   max_threads},
#define FAKE_MODULE_END(arch, toolkit)                                                             \
  {nullptr, nullptr, nullptr, 0, 0}                                                       \
  }                                                                                       \
  ;                                                                                       \
  extern "C" __attribute__((visibility("default"))) fake_module_t fake_module = {         \
      FAKE_MODULE_VERSION, arch, toolkit, fake_kernels,                                            \
      sizeof fake_kernels / sizeof fake_kernels[0] - 1, nullptr, fake_own};               \
  __attribute__((no_sanitize("thread"))) static const fake_hooks_t* fake_hooks() {         \
    return fake_module.hooks;                                                              \
  }

// ---- casts

// g++ takes int(uint(b[int(i)])) for the type of a function while it looks for one, and does not
// come back where bounds are tested. A sign is no part of a type.
#define int(...) int(+__VA_ARGS__)
#define uint(...) uint(+__VA_ARGS__)
#define qn_i64(...) qn_i64(+__VA_ARGS__)
#define qn_u64(...) qn_u64(+__VA_ARGS__)
