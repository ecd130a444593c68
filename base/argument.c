// SPDX-License-Identifier: Apache-2.0
// base/argument.c: the status of a public function's NULL argument.
#include "base/argument.h"

qn_status_t qn__null_argument(const char* function, const char* argument) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "%s: %s is null", function, argument);
}
