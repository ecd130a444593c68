// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu/expr.h: short ways to write a plan's expressions.
#ifndef QUERN_TESTS_UNIT_GPU_EXPR_H_
#define QUERN_TESTS_UNIT_GPU_EXPR_H_

#include "devices/gpu/plan.h"

#define CONST(v) {.kind = QN__GPU_CONST, .value = (v)}
#define WORD(i) {.kind = QN__GPU_WORD, .dtype = QN_DTYPE_I64, .value = (i)}
#define LOCAL(i) {.kind = QN__GPU_LOCAL, .value = (i)}
#define APPLY(o) {.kind = QN__GPU_APPLY, .op = QN_OP_##o}
// Defines the constant `name`.
#define EXPR(name, ...)                                   \
  static const qn__gpu_op_t name##_ops[] = {__VA_ARGS__}; \
  static const qn__gpu_expr_t name = {QN_COUNT_OF(name##_ops), name##_ops}

#endif  // QUERN_TESTS_UNIT_GPU_EXPR_H_
