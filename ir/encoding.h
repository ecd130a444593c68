// ir/encoding.h: the constants that writer and reader of canonical bytes share. The format is
// described at the top of encode.c.
#ifndef QUERN_IR_ENCODING_H_
#define QUERN_IR_ENCODING_H_

#define QN__ENCODING_MAGIC "QNIR"
#define QN__ENCODING_VERSION 1

// Beside the kinds of statements and expressions.
enum {
  QN__TAG_END = 0,  // of a block
  QN__TAG_SCALAR = 1,
  QN__TAG_BUFFER = 2,
  QN__TAG_FUNCTION = 'F',
};

#endif  // QUERN_IR_ENCODING_H_
