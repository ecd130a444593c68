// SPDX-License-Identifier: Apache-2.0
// base/argument.h: the checks at the heads of public functions: arguments that must not be NULL.
//
// Read next: struct_size.h.
#ifndef QUERN_BASE_ARGUMENT_H_
#define QUERN_BASE_ARGUMENT_H_

#include "base/base.h"

// INVALID_ARGUMENT: "qn_engine_create: out_engine is null".
qn_status_t qn__null_argument(const char* function, const char* argument);

// Returns INVALID_ARGUMENT to the caller of a public function, naming the first of its one to five
// arguments that is NULL.
#define QN_REQUIRE(...)                                                               \
  QN__REQUIRE_OF(__VA_ARGS__, QN__REQUIRE5, QN__REQUIRE4, QN__REQUIRE3, QN__REQUIRE2, \
                 QN__REQUIRE1, )(__VA_ARGS__)
#define QN__REQUIRE_OF(a, b, c, d, e, macro, ...) macro
#define QN__REQUIRE1(a) \
  if (!(a)) return qn__null_argument(__func__, #a)
#define QN__REQUIRE2(a, b) \
  QN__REQUIRE1(a);         \
  QN__REQUIRE1(b)
#define QN__REQUIRE3(a, b, c) \
  QN__REQUIRE2(a, b);         \
  QN__REQUIRE1(c)
#define QN__REQUIRE4(a, b, c, d) \
  QN__REQUIRE3(a, b, c);         \
  QN__REQUIRE1(d)
#define QN__REQUIRE5(a, b, c, d, e) \
  QN__REQUIRE4(a, b, c, d);         \
  QN__REQUIRE1(e)

#endif  // QUERN_BASE_ARGUMENT_H_
