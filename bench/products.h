// SPDX-License-Identifier: Apache-2.0
// bench/products.h: products written as sums, with constant and with unknown rows and columns.
//
// Each side that is not constant adds a launch, for few rows or few columns. bench_nvrtc and
// bench_shaderc measure its cost in a compile.
#ifndef QUERN_BENCH_PRODUCTS_H_
#define QUERN_BENCH_PRODUCTS_H_

#define BENCH_PRODUCT(dtype, b, at_b, rows, columns, value) \
  "func product(a: " dtype "[" rows ", k], b: " dtype "[" b "], out c: f32[" rows ", " columns \
  "]) {\n"                                                                                \
  "  parallel i in 0.." rows " { parallel j in 0.." columns " {\n"                        \
  "    c[i, j] = sum p in 0..k { " value("a[i, p]") " * " value("b[" at_b "]") " };\n"    \
  "  } }\n"                                                                               \
  "}\n"
#define BENCH_AS_IS(value) value
#define BENCH_AS_F32(value) "f32(" value ")"

// Of each pair of layouts: all constant but the sum's length, rows unknown, all unknown.
static const struct {
  const char* name;
  const char* text;
} bench_products[] = {
    {"f32, 1024 x 512", BENCH_PRODUCT("f32", "k, 512", "p, j", "1024", "512", BENCH_AS_IS)},
    {"f32, rows unknown", BENCH_PRODUCT("f32", "k, 512", "p, j", "m", "512", BENCH_AS_IS)},
    {"f32, all unknown", BENCH_PRODUCT("f32", "k, n", "p, j", "m", "n", BENCH_AS_IS)},
    {"f16 by rows, 1024 x 512",
     BENCH_PRODUCT("f16", "512, k", "j, p", "1024", "512", BENCH_AS_F32)},
    {"f16 by rows, rows unknown", BENCH_PRODUCT("f16", "512, k", "j, p", "m", "512", BENCH_AS_F32)},
    {"f16 by rows, all unknown", BENCH_PRODUCT("f16", "n, k", "j, p", "m", "n", BENCH_AS_F32)},
};
enum {
  BENCH_PRODUCTS = sizeof bench_products / sizeof bench_products[0],
  BENCH_PRODUCTS_A_LAYOUT = 3  // the first of which is the floor of the others
};

#endif  // QUERN_BENCH_PRODUCTS_H_
