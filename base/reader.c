// SPDX-License-Identifier: Apache-2.0
// base/reader.c: see reader.h. Integers are little-endian.
#include "base/reader.h"

qn_span_t qn__read_bytes(qn__reader_t* reader, size_t size) {
  assert(reader->offset <= reader->size);
  if (reader->has_overrun || size > qn__reader_left(reader)) {
    reader->has_overrun = true;
    return (qn_span_t){NULL, 0};
  }
  qn_span_t bytes = {reader->data + reader->offset, size};
  reader->offset += size;
  return bytes;
}

static uint64_t little_endian(qn__reader_t* reader, size_t size) {
  qn_span_t bytes = qn__read_bytes(reader, size);
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size; i++) value |= (uint64_t)bytes.data[i] << (8 * i);
  return value;
}

uint8_t qn__read_u8(qn__reader_t* reader) {
  return (uint8_t)little_endian(reader, 1);
}
uint16_t qn__read_u16(qn__reader_t* reader) {
  return (uint16_t)little_endian(reader, 2);
}
uint32_t qn__read_u32(qn__reader_t* reader) {
  return (uint32_t)little_endian(reader, 4);
}
uint64_t qn__read_u64(qn__reader_t* reader) {
  return little_endian(reader, 8);
}

uint64_t qn__read_varint(qn__reader_t* reader) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    uint8_t byte = qn__read_u8(reader);
    if (reader->has_overrun) return 0;
    // The tenth byte holds one bit; a last byte of zero means that a shorter form exists.
    if ((shift == 63 && byte > 1) || (byte == 0 && shift > 0)) break;
    value |= (uint64_t)(byte & 0x7F) << shift;
    if (!(byte & 0x80)) return value;
  }
  reader->has_overrun = true;
  return 0;
}

int64_t qn__read_svarint(qn__reader_t* reader) {
  uint64_t bits = qn__read_varint(reader);
  uint64_t value = (bits >> 1) ^ (~(bits & 1) + 1);
  int64_t result;
  memcpy(&result, &value, sizeof result);
  return result;
}

qn_span_t qn__read_run(qn__reader_t* reader) {
  uint64_t size = qn__read_varint(reader);
  if (size > SIZE_MAX) reader->has_overrun = true;
  return qn__read_bytes(reader, (size_t)size);
}
