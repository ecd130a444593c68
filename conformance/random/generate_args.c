// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_args.c: the arguments of random modules, and whether two calls wrote
// the same.
//
// Not here: the modules (generate.c). Thread rule: pure functions of the seed.
#define _DEFAULT_SOURCE  // MAP_ANONYMOUS
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "conformance/random/generator.h"

static uint64_t random_bits(gen_t* g, qn_dtype_t dtype) {
  uint64_t bits = 0;
  if (conf_is_float(dtype)) {  // exact in every float dtype of 16 bits and more, within 4
    conf_element_set(dtype, &bits, 0, ((double)gen_below(g, 129) - 64) / 16);
    return bits;
  }
  bits = ((uint64_t)gen_below(g, UINT32_MAX) << 32) | gen_below(g, UINT32_MAX);
  if (dtype == QN_DTYPE_BOOL) return bits & 1;
  return gen_chance(g, 60) ? bits % 50 : bits;
}

static size_t size_of(const qn_generated_param_t* param) {
  return conf_size_bytes(param->dtype, param->element_count);
}

enum { CANARY = 0xa5, MAX_PAGE = 4096 };

// Memory of a buffer between pages that cannot be touched. In every second form it ends at the
// page after it; else it begins at the page before it. Bytes of a known value fill the rest.
static void* hold(const qn_generated_t* generated, size_t number, size_t size_bytes,
                  qn_generated_args_t* args) {
  size_t inner = (size_bytes + MAX_PAGE - 1) / MAX_PAGE * MAX_PAGE;
  if (inner == 0) inner = MAX_PAGE;
  size_t whole = inner + 2 * MAX_PAGE;
  uint8_t* pages = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) abort();
  if (mprotect(pages + MAX_PAGE, inner, PROT_READ | PROT_WRITE) != 0) abort();
  memset(pages + MAX_PAGE, CANARY, inner);
  args->pages[number] = pages;
  args->page_bytes[number] = whole;
  bool is_at_end = generated->is_form && generated->seed % 2 == 0;
  return pages + MAX_PAGE + (is_at_end ? inner - size_bytes : 0);
}

// Did a call write beside a buffer?
static bool is_untouched(const qn_generated_args_t* args, size_t number, size_t size_bytes) {
  const uint8_t* begin = (const uint8_t*)args->pages[number] + MAX_PAGE;
  const uint8_t* end = (const uint8_t*)args->pages[number] + args->page_bytes[number] - MAX_PAGE;
  const uint8_t* data = args->buffers[number];
  for (const uint8_t* at = begin; at < end; ++at) {
    if (at == data) at += size_bytes;
    if (at < end && *at != CANARY) return false;
  }
  return true;
}

void qn_generated_args_init(const qn_generated_t* generated, qn_generated_args_t* out_args) {
  *out_args = (qn_generated_args_t){0};
  gen_t g = {.state = generated->seed ^ UINT64_C(0x5851f42d4c957f2d)};
  for (size_t i = 0; i < generated->param_count; ++i) {
    const qn_generated_param_t* param = &generated->params[i];
    if (!param->is_buffer) {
      out_args->params[i] = param->scalar_bits;
      continue;
    }
    uint8_t* data = hold(generated, i, size_of(param), out_args);
    for (size_t e = 0; e < param->element_count; ++e) {
      if (e % 2 == 0 && conf_is_packed(param->dtype)) data[e / 2] = 0;
      conf_bits_set(param->dtype, data, e, random_bits(&g, param->dtype));
    }
    out_args->buffers[i] = data;
    out_args->params[i] = (uint64_t)(uintptr_t)data;
  }
}

void qn_generated_args_deinit(qn_generated_args_t* args) {
  for (size_t i = 0; i < qn_generated_max_params; ++i) {
    if (args->pages[i]) (void)munmap(args->pages[i], args->page_bytes[i]);
  }
  *args = (qn_generated_args_t){0};
}

static bool is_close(const qn_generated_param_t* param, uint64_t expected, uint64_t actual,
                     bool is_exact) {
  if (expected == actual) return true;
  if (!conf_is_float(param->dtype)) return false;
  double a = conf_element(param->dtype, &expected, 0);
  double b = conf_element(param->dtype, &actual, 0);
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (is_exact) return false;
  return fabs(a - b) <= param->tolerance || a == b;
}

bool qn_generated_compare(const qn_generated_t* generated, const qn_generated_args_t* expected,
                          const qn_generated_args_t* actual, bool is_exact, char* message,
                          size_t message_size) {
  for (size_t i = 0; i < generated->param_count; ++i) {
    const qn_generated_param_t* param = &generated->params[i];
    if (param->is_buffer && !is_untouched(actual, i, size_of(param))) {
      (void)snprintf(message, message_size, "parameter %zu: bytes beside it were written", i);
      return false;
    }
    for (size_t e = 0; param->is_buffer && e < param->element_count; ++e) {
      uint64_t a = conf_bits(param->dtype, expected->buffers[i], e);
      uint64_t b = conf_bits(param->dtype, actual->buffers[i], e);
      if (is_close(param, a, b, is_exact)) continue;
      if (conf_is_float(param->dtype)) {
        (void)snprintf(message, message_size,
                       "parameter %zu (%s) element %zu: expected %.17g, got %.17g, tolerance %g", i,
                       qn_dtype_text(param->dtype), e, conf_element(param->dtype, &a, 0),
                       conf_element(param->dtype, &b, 0), is_exact ? 0 : param->tolerance);
      } else {
        (void)snprintf(message, message_size,
                       "parameter %zu (%s) element %zu: expected %" PRId64 ", got %" PRId64, i,
                       qn_dtype_text(param->dtype), e, conf_integer(param->dtype, &a, 0),
                       conf_integer(param->dtype, &b, 0));
      }
      return false;
    }
  }
  return true;
}
