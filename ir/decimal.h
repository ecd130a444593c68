// SPDX-License-Identifier: Apache-2.0
// ir/decimal.h: decimal text to the nearest value of a float dtype and the shortest text back,
// exact and free of the locale (strtod and printf are not).
#ifndef QUERN_IR_DECIMAL_H_
#define QUERN_IR_DECIMAL_H_

#include "base/buffer.h"
#include "ir/ir.h"

// The value of f16, bf16, f32 or f64 nearest to decimal `text` ("12", "0.5", "1_000.25e-3"), ties
// to even; infinity when it is beyond the largest. No sign.
double qn__decimal_parse(qn_dtype_t dtype, qn_str_t text);

// The shortest decimal that parses back to `value` as `dtype`: "0.1", "1.0", "1e-30", "-inf",
// "nan". Always has a '.' or an exponent.
void qn__decimal_print(qn_dtype_t dtype, double value, qn__buffer_t* out);

#endif  // QUERN_IR_DECIMAL_H_
