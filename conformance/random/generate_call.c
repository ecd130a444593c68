// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_call.c: random calls of functions with a value.
//
// Integers are exact. Of floats a function chooses one, so that their bounds hold for its value.
// Thread rule: one thread per generator.
#include "conformance/random/generator.h"

static const char* add_callee(gen_t* g, qn_dtype_t dtype) {
  const char* t = qn_dtype_text(dtype);
  uint32_t number = g->callee_count++;
  // A function may call an earlier one of the same dtype: its name tells.
  const char* name = gen_text(g, "call%u", number);
  gen_out_add(&g->callees, "func %s(a: %s, b: %s) -> %s { ", name, t, t, t);
  if (gen_is_float(dtype)) {
    gen_out_add(&g->callees, gen_chance(g, 50) ? "return a > b ? a : b; }\n"
                                               : "let c = a < b; return c ? a : b; }\n");
    return name;
  }
  switch (gen_below(g, 3)) {
    case 0:
      gen_out_add(&g->callees, "let d = a ^ b; return d + (d & a); }\n");
      break;
    case 1:
      gen_out_add(&g->callees, "return sum k in 0..3 { let d = a + b; d ^ a }; }\n");
      break;
    default:
      gen_out_add(&g->callees,
                  "return a > b ? %sx(b) : b + 1; }\n"
                  "func %sx(a: %s) -> %s { return a * (a - 2); }\n",
                  name, name, t, t);
  }
  return name;
}

gen_value_t gen_call(gen_t* g, qn_dtype_t dtype, int depth) {
  gen_value_t a = gen_expr(g, dtype, depth - 1), b = gen_expr(g, dtype, depth - 1);
  const char* name = add_callee(g, dtype);
  return (gen_value_t){gen_text(g, "%s(%s, %s)", name, a.text, b.text), dtype,
                       a.mag > b.mag ? a.mag : b.mag, a.err > b.err ? a.err : b.err};
}
