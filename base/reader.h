// SPDX-License-Identifier: Apache-2.0
// base/reader.h: parses bytes from outside (files, network). A read past the end sets a sticky flag
// and returns zeros, so that callers check once.
//
// Thread rule: one thread at a time.
#ifndef QUERN_BASE_READER_H_
#define QUERN_BASE_READER_H_

#include "base/base.h"

typedef struct qn__reader {
  const uint8_t* data;
  size_t size;
  size_t offset;
  bool has_overrun;  // sticky: a read past the end, or a malformed varint
} qn__reader_t;

static inline qn__reader_t qn__reader_make(qn_span_t span) {
  return (qn__reader_t){span.data, span.size, 0, false};
}
uint8_t qn__read_u8(qn__reader_t* reader);
uint16_t qn__read_u16(qn__reader_t* reader);
uint32_t qn__read_u32(qn__reader_t* reader);
uint64_t qn__read_u64(qn__reader_t* reader);
uint64_t qn__read_varint(qn__reader_t* reader);  // only the shortest form is accepted
int64_t qn__read_svarint(qn__reader_t* reader);
// Borrows the reader's bytes; empty on overrun.
qn_span_t qn__read_bytes(qn__reader_t* reader, size_t size);
qn_span_t qn__read_run(qn__reader_t* reader);  // varint length, then the bytes
static inline size_t qn__reader_left(const qn__reader_t* reader) {
  return reader->size - reader->offset;
}

#endif  // QUERN_BASE_READER_H_
