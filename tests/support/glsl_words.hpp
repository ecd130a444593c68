// SPDX-License-Identifier: Apache-2.0
// tests/support/glsl_words.hpp: definitions that make the prelude's GLSL compile as C++.
//
// Where Vulkan guarantees less than IEEE 754, results here have the largest permitted error:
// quotients and roots that the prelude corrects afterwards.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef unsigned int uint;
typedef float float32;
#define precise static inline

template <class To, class From>
static inline To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline uint floatBitsToUint(float x) {
  return bits_of<uint>(x);
}
static inline float uintBitsToFloat(uint x) {
  return bits_of<float>(x);
}
static inline uint64_t doubleBitsToUint64(double x) {
  return bits_of<uint64_t>(x);
}
static inline double uint64BitsToDouble(uint64_t x) {
  return bits_of<double>(x);
}
struct ivec2 {
  ivec2(int a, int b) : x(a), y(b) {}
  int x, y;
};
static inline int64_t packInt2x32(ivec2 v) {
  return (int64_t)((uint64_t)(uint)v.y << 32 | (uint)v.x);
}
static inline float roundEven(float x) {
  return rintf(x);
}
static inline double roundEven(double x) {
  return rint(x);
}
struct uvec2 {
  uint x, y;
};
static inline uvec2 unpackDouble2x32(double x) {
  uint64_t bits = bits_of<uint64_t>(x);
  return uvec2{(uint)bits, (uint)(bits >> 32)};
}
static inline double packDouble2x32(uvec2 x) {
  return bits_of<double>((uint64_t)x.y << 32 | x.x);
}
static inline int bitCount(uint x) {
  return __builtin_popcount(x);
}
static inline int findMSB(uint x) {
  return x ? 31 - __builtin_clz(x) : -1;
}
static inline void umulExtended(uint a, uint b, uint& high, uint& low) {
  uint64_t product = (uint64_t)a * b;
  high = (uint)(product >> 32);
  low = (uint)product;
}

// Off by up to two units in the last place, which depends on the bits.
static inline float off(float x) {
  if (!(x != 0 && isfinite(x))) return x;
  uint bits = bits_of<uint>(x);
  return bits_of<float>(bits + bits * 2654435761u % 5 - 2);
}
static inline double off(double x) {
  if (!(x != 0 && isfinite(x))) return x;
  uint64_t bits = bits_of<uint64_t>(x);
  return bits_of<double>(bits + (bits * 0x9E3779B97F4A7C15u >> 20) % 5 - 2);
}
template <class T>
static inline T off_quotient(T a, T b) {
  return off(a / b);
}
template <class T>
static inline T off_root(T x) {
  return off(::sqrt(x));
}
