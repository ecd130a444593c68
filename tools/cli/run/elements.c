// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/run/elements.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* float_text(double value, qn_dtype_t dtype, char out[40]) {
  if (isnan(value)) return "nan";
  if (isinf(value)) return value < 0 ? "-inf" : "inf";
  // Adds digits until the text reads back as the same value of the dtype.
  double same = 0;
  int digits = 0;
  do {
    (void)snprintf(out, 40, "%.*g", ++digits, value);
    conf_element_set(dtype, &same, 0, strtod(out, NULL));
  } while (conf_element(dtype, &same, 0) != value && digits < 17);
  // 10, not 1e+01: as many digits as the integer part has.
  int integer_digits = value == 0 ? 1 : 1 + (int)floor(log10(fabs(value)));
  if (strchr(out, 'e') && integer_digits > digits && integer_digits <= 9) {
    (void)snprintf(out, 40, "%.0f", value);
  }
  return out;
}

const char* element_text(const npy_array_t* array, size_t index, char out[40]) {
  if (conf_is_float(array->dtype))
    return float_text(conf_element(array->dtype, array->data, index), array->dtype, out);
  int64_t value = conf_integer(array->dtype, array->data, index);
  if (array->dtype == QN_DTYPE_BOOL) return value ? "true" : "false";
  bool is_unsigned = array->dtype == QN_DTYPE_U64;
  (void)snprintf(out, 40, is_unsigned ? "%" PRIu64 : "%" PRId64, value);
  return out;
}

json_t* element_json(const npy_array_t* array, size_t index) {
  char text[40];
  if (conf_is_float(array->dtype)) {
    double value = conf_element(array->dtype, array->data, index);
    return isfinite(value) ? json_real(value) : json_string(element_text(array, index, text));
  }
  int64_t value = conf_integer(array->dtype, array->data, index);
  if (array->dtype == QN_DTYPE_BOOL) return json_boolean(value != 0);
  if (array->dtype == QN_DTYPE_U64 && value < 0) {
    return json_string(element_text(array, index, text));
  }
  return json_integer(value);
}

int64_t array_count(const npy_array_t* array) {
  int64_t count = 1;
  for (int32_t d = 0; d < array->rank; d++) count *= array->shape[d];
  return count;
}

const char* array_text(const npy_array_t* array, char out[512]) {
  int size = snprintf(out, 512, "%s[", qn_dtype_text(array->dtype));
  for (int32_t d = 0; d < array->rank && size < 480; d++) {
    size += snprintf(out + size, 512 - (size_t)size, "%s%" PRId64, d ? ", " : "", array->shape[d]);
  }
  (void)snprintf(out + size, 512 - (size_t)size, "]");
  return out;
}
