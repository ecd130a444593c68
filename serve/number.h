// SPDX-License-Identifier: Apache-2.0
// serve/number.h: numbers of JSON, read and printed without the locale and without stdio.
#ifndef SERVE_NUMBER_H_
#define SERVE_NUMBER_H_

#include "quern/quern.h"

enum {
  SERVE_F32_LENGTH = 16,  // of the longest text of an f32: -1.17549435e-38 and a reserve
  SERVE_I64_LENGTH = 20,
};

// Writes the shortest decimal that reads back as the same f32, and of several such decimals the
// nearest: 0.1, 16777216, -1.5e-12. A number that is not finite becomes "null", since JSON has no
// text for it. Returns the length; there is no zero at the end.
// Source: R. Giulietti, "The Schubfach way to render doubles", 2020.
size_t serve_f32_print(float value, char out_text[SERVE_F32_LENGTH]);
size_t serve_i64_print(int64_t value, char out_text[SERVE_I64_LENGTH]);

// Reads a number of JSON at the start of `text` and returns its length; 0: it is none. For the
// nearest f64 the grammar is that of JSON: no leading zeros or plus sign, no hexadecimal digits.
// A number beyond the range of f64 becomes infinite.
size_t serve_f64_read(const char* text, size_t size, double* out_value);
// Reads the same grammar without fraction and exponent. Returns 0, too, where an i64 cannot hold
// the value.
size_t serve_i64_read(const char* text, size_t size, int64_t* out_value);

#endif  // SERVE_NUMBER_H_
