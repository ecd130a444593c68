// SPDX-License-Identifier: Apache-2.0
// ir/encoding.h: the constants that writer and reader of canonical bytes share. The format is
// described at the top of encode.c.
#ifndef QUERN_IR_ENCODING_H_
#define QUERN_IR_ENCODING_H_

#define QN__ENCODING_MAGIC "QNIR"
// The version of modules with fixed scalars, and that of all others, whose digests older libraries
// and caches know.
#define QN__ENCODING_VERSION 2
#define QN__ENCODING_VERSION_PLAIN 1

// Beside the kinds of statements and expressions.
enum {
  QN__TAG_END = 0,  // of a block
  QN__TAG_SCALAR = 1,
  QN__TAG_BUFFER = 2,
  QN__TAG_FIXED = 3,  // a scalar
  QN__TAG_FUNCTION = 'F',
};

#endif  // QUERN_IR_ENCODING_H_
