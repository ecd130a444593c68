// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/support_oracle.c: see support_oracle.h.
#define _GNU_SOURCE  // MAP_ANONYMOUS
#include "support_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ir/interpret.h"

enum { MAX_PARAMS = 32 };

static char message[1024];

// ------------------------------------------------------------------------------------ shapes

static bool find_symbol(const qn__ir_func_t* function, const int64_t* symbols,
                        const qn__ir_var_t* var, int64_t* out) {
  for (size_t i = 0; i < function->symbol_count; ++i) {
    if (function->symbols[i] == var) {
      *out = symbols[i];
      return true;
    }
  }
  return false;
}

bool oracle_shape(const qn__ir_func_t* function, const int64_t* symbols, const qn__ir_expr_t* expr,
                  int64_t* out) {
  if (expr->kind == QN__EXPR_INT) {
    *out = expr->int_value;
    return true;
  }
  if (expr->kind == QN__EXPR_VAR) return find_symbol(function, symbols, expr->var, out);
  if (expr->kind != QN__EXPR_OP) return false;
  qn__ir_scalar_t args[3] = {{0}, {0}, {0}};
  for (uint32_t i = 0; i < qn__op_info(expr->op)->arity; ++i) {
    if (!oracle_shape(function, symbols, expr->args[i], &args[i].i)) return false;
  }
  qn__ir_scalar_t result;
  if (!qn__scalar_op(expr->op, QN_DTYPE_I64, args, &result)) return false;
  *out = result.i;
  return true;
}

// One more than the largest offset of an element, or of the byte of a packed one; 0 for an empty
// buffer; -1 when unknown.
static int64_t span_of(const qn__ir_func_t* function, const int64_t* symbols,
                       const qn__ir_buffer_t* buffer) {
  int64_t span = 1;
  int64_t product = 1;
  for (uint32_t i = buffer->rank; i-- > 0;) {
    int64_t extent, stride = product;
    if (!oracle_shape(function, symbols, buffer->shape[i], &extent) || extent < 0) return -1;
    if (extent == 0) return 0;
    if (buffer->strides && !oracle_shape(function, symbols, buffer->strides[i], &stride)) return -1;
    span += (extent - 1) * stride;
    product *= extent;
  }
  return qn__dtype_is_packed(buffer->dtype) ? span / 2 : span;  // bytes
}

// ------------------------------------------------------------------------------------ arguments

typedef struct argument {
  uint8_t* mapping;
  size_t mapping_size;
  uint8_t* data;
  size_t size;
} argument_t;

typedef struct arguments {
  const qn__ir_func_t* function;
  argument_t buffers[MAX_PARAMS];
  uint64_t words[2 * MAX_PARAMS];
} arguments_t;

static uint64_t random_bits(uint64_t* state) {
  // splitmix64
  uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

static uint64_t random_value(qn_dtype_t dtype, bool has_specials, uint64_t* state) {
  uint64_t bits = random_bits(state);
  bool is_special = has_specials && bits % 7 == 0;
  bits >>= 8;
  if (dtype == QN_DTYPE_BOOL) return bits & 1;
  if (qn__dtype_is_real(dtype)) {
    static const double specials[] = {
        (double)NAN, (double)INFINITY, -(double)INFINITY, 0.0, -0.0, 1e-41, 65504.0, -1e30};
    double value = is_special ? specials[bits % QN_COUNT_OF(specials)]
                              : (double)(int64_t)(bits % 16001) / 2000.0 - 4.0;
    return qn__scalar_to_bits(dtype, (qn__ir_scalar_t){.f = qn__round_float(dtype, value)});
  }
  uint64_t mask = UINT64_MAX >> (64 - qn__dtype_bits(dtype));
  if (is_special) {
    const uint64_t specials[] = {0, mask, mask >> 1, (mask >> 1) + 1, bits};
    return specials[bits % QN_COUNT_OF(specials)] & mask;
  }
  // Small numbers of both signs (of which unsigned dtypes take only one).
  int64_t value = (int64_t)(bits % 201) - 100;
  if (qn__dtype_class(dtype) == QN__CLASS_UNSIGNED && value < 0) value = -value;
  return (uint64_t)value & mask;
}

// `is_behind`: the inaccessible page follows the last byte, else it precedes the first.
static void map_argument(argument_t* argument, size_t size, bool is_behind) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t inner = (size + page - 1) / page * page + page;
  argument->mapping_size = inner + page;
  argument->mapping = mmap(NULL, argument->mapping_size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (argument->mapping == MAP_FAILED) abort();
  (void)mprotect(is_behind ? argument->mapping + inner : argument->mapping, page, PROT_NONE);
  argument->data = is_behind ? argument->mapping + inner - size : argument->mapping + page;
  argument->size = size;
}

static bool make_arguments(arguments_t* arguments, const oracle_case_t* test, bool is_behind) {
  const qn__ir_func_t* function = test->function;
  *arguments = (arguments_t){.function = function};
  uint64_t state = test->seed;
  for (size_t i = 0; i < function->param_count; ++i) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (!buffer) {
      qn_dtype_t dtype = function->params[i].scalar->dtype;
      arguments->words[i] = random_value(dtype, test->has_specials, &state);
      continue;
    }
    int64_t span = span_of(function, test->symbols, buffer);
    if (span < 0) return false;
    size_t element = qn_dtype_size_bytes(buffer->dtype);
    bool has_alignment = buffer->align_bytes > element;
    argument_t* argument = &arguments->buffers[i];
    map_argument(argument, (size_t)span * element, is_behind && !has_alignment);
    for (int64_t k = 0; k < span; ++k) {
      qn_dtype_t dtype = qn__dtype_is_packed(buffer->dtype) ? QN_DTYPE_U8 : buffer->dtype;
      uint64_t bits = random_value(dtype, test->has_specials, &state);
      memcpy(argument->data + (size_t)k * element, &bits, element);
    }
    arguments->words[i] = (uint64_t)(uintptr_t)argument->data;
  }
  for (size_t i = 0; i < function->symbol_count; ++i) {
    arguments->words[function->param_count + i] = (uint64_t)test->symbols[i];
  }
  return true;
}

static void drop_arguments(arguments_t* arguments) {
  for (size_t i = 0; i < MAX_PARAMS; ++i) {
    argument_t* argument = &arguments->buffers[i];
    if (argument->mapping) munmap(argument->mapping, argument->mapping_size);
  }
}

// ------------------------------------------------------------------------------------ comparison

static bool is_close(qn_dtype_t dtype, uint64_t a, uint64_t b, double tolerance) {
  if (a == b) return true;
  if (!qn__dtype_is_real(dtype)) return false;
  double x = qn__scalar_from_bits(dtype, a).f;
  double y = qn__scalar_from_bits(dtype, b).f;
  if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
  if (tolerance == 0) return false;
  if (isinf(x) || isinf(y)) return x == y;
  double scale = fmax(fmax(fabs(x), fabs(y)), 1.0);
  return fabs(x - y) <= tolerance * scale;
}

static const char* compare_buffers(const oracle_case_t* test, const arguments_t* want,
                                   const arguments_t* have, size_t kernel) {
  for (size_t i = 0; i < test->function->param_count; ++i) {
    const qn__ir_buffer_t* buffer = test->function->params[i].buffer;
    if (!buffer) continue;
    size_t element = qn_dtype_size_bytes(buffer->dtype);
    for (size_t k = 0; k * element < want->buffers[i].size; ++k) {
      uint64_t a = 0, b = 0;
      memcpy(&a, want->buffers[i].data + k * element, element);
      memcpy(&b, have->buffers[i].data + k * element, element);
      if (is_close(buffer->dtype, a, b, test->tolerance)) continue;
      double x = qn__dtype_is_real(buffer->dtype) ? qn__scalar_from_bits(buffer->dtype, a).f : 0;
      double y = qn__dtype_is_real(buffer->dtype) ? qn__scalar_from_bits(buffer->dtype, b).f : 0;
      (void)snprintf(message, sizeof message,
                     "%s: kernel %zu, parameter %zu ('%s', %s), element %zu: the interpreter has "
                     "%#llx (%.9g), the kernel %#llx (%.9g)",
                     test->function->name, kernel, i, buffer->name ? buffer->name : "",
                     qn_dtype_text(buffer->dtype), k, (unsigned long long)a, x,
                     (unsigned long long)b, y);
      return message;
    }
  }
  return NULL;
}

static const char* compare_one(const oracle_case_t* test, size_t index, const kernels_t* kernels,
                               size_t number, const arguments_t* want, qn_status_t expected) {
  arguments_t have;
  if (!make_arguments(&have, test, number % 2 == 0)) return "a shape is not known";
  uint32_t pieces = 1 + (uint32_t)(number % 3);
  run_report_t report = kernels_run(kernels, index, have.words, pieces, 1000);
  const char* problem = NULL;
  bool has_failed = report.result != 0;
  if (report.held_workspaces != 0) {
    problem = "workspace was not released";
  } else if (has_failed != (report.fail_count > 0)) {
    problem = "the result does not say what was reported";
  } else if (has_failed == qn_ok(expected)) {
    (void)snprintf(message, sizeof message, "%s: kernel %zu %s, the interpreter says '%s'",
                   test->function->name, number, has_failed ? "fails" : "succeeds",
                   qn_status_message(expected));
    problem = message;
  } else if (!has_failed) {
    problem = compare_buffers(test, want, &have, number);
  }
  drop_arguments(&have);
  return problem;
}

const char* oracle_compare(const oracle_case_t* test, size_t index, kernels_t* const* kernels,
                           size_t count) {
  arguments_t want;
  if (!make_arguments(&want, test, true)) return "a shape is not known";
  qn__interpret_args_t args = {.params = want.words, .symbols = test->symbols, .warp_size = 32};
  qn_status_t status = qn__interpret(test->function, &args, qn_allocator_default());
  const char* problem = NULL;
  if (!qn_ok(status) && !test->may_fail) {
    (void)snprintf(message, sizeof message, "%s: the interpreter fails: %s", test->function->name,
                   qn_status_message(status));
    problem = message;
  }
  for (size_t i = 0; i < count && !problem; ++i) {
    problem = compare_one(test, index, kernels[i], i, &want, status);
  }
  qn_status_free(status);
  drop_arguments(&want);
  return problem;
}
