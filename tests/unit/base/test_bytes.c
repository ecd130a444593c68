// SPDX-License-Identifier: Apache-2.0
// tests/unit/base/test_bytes.c: tests the reader on bytes from the buffer, digests against
// published vectors, hex, and lists in texts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/digest.h"
#include "base/reader.h"

static const uint64_t values[] = {
    0, 1, 127, 128, 255, 16383, 16384, UINT16_MAX, UINT32_MAX, 1ull << 62, 1ull << 63, UINT64_MAX};

static void what_is_written_is_read(void** state) {
  (void)state;
  qn__buffer_t buffer;
  qn__buffer_init(&buffer, qn_allocator_default());
  for (size_t i = 0; i < QN_COUNT_OF(values); i++) {
    qn__buffer_u8(&buffer, (uint8_t)values[i]);
    qn__buffer_u16(&buffer, (uint16_t)values[i]);
    qn__buffer_u32(&buffer, (uint32_t)values[i]);
    qn__buffer_u64(&buffer, values[i]);
    qn__buffer_varint(&buffer, values[i]);
    qn__buffer_svarint(&buffer, (int64_t)values[i]);
    qn__buffer_run(&buffer, (qn_span_t){(const uint8_t*)"hello", i % 6});
  }
  qn__reader_t reader = qn__reader_make(qn__buffer_as_span(&buffer));
  for (size_t i = 0; i < QN_COUNT_OF(values); i++) {
    assert_int_equal(qn__read_u8(&reader), (uint8_t)values[i]);
    assert_int_equal(qn__read_u16(&reader), (uint16_t)values[i]);
    assert_int_equal(qn__read_u32(&reader), (uint32_t)values[i]);
    assert_true(qn__read_u64(&reader) == values[i]);
    assert_true(qn__read_varint(&reader) == values[i]);
    assert_true(qn__read_svarint(&reader) == (int64_t)values[i]);
    qn_span_t run = qn__read_run(&reader);
    assert_int_equal(run.size, i % 6);
    assert_memory_equal(run.data, "hello", run.size);
  }
  assert_int_equal(qn__reader_left(&reader), 0);
  assert_false(reader.has_overrun);
  // Cut anywhere, the flag is set and nothing is read past the end.
  for (size_t cut = 0; cut < buffer.size; cut++) {
    uint8_t* copy = malloc(cut ? cut : 1);
    memcpy(copy, buffer.data, cut);
    reader = qn__reader_make((qn_span_t){copy, cut});
    for (size_t i = 0; i < QN_COUNT_OF(values); i++) {
      (void)qn__read_u8(&reader), (void)qn__read_u16(&reader), (void)qn__read_u32(&reader);
      (void)qn__read_u64(&reader), (void)qn__read_varint(&reader);
      (void)qn__read_svarint(&reader), (void)qn__read_run(&reader);
    }
    assert_true(reader.has_overrun);
    assert_true(reader.offset <= cut);
    free(copy);
  }
  qn__buffer_deinit(&buffer);
}

static void bytes_are_little_endian(void** state) {
  (void)state;
  qn__buffer_t buffer;
  qn__buffer_init(&buffer, qn_allocator_default());
  qn__buffer_u32(&buffer, 0x01020304);
  qn__buffer_varint(&buffer, 300);
  qn__buffer_svarint(&buffer, -1);
  assert_int_equal(buffer.size, 7);
  assert_memory_equal(buffer.data, "\x04\x03\x02\x01\xac\x02\x01", 7);
  qn__buffer_deinit(&buffer);
}

static void only_the_shortest_varint_is_accepted(void** state) {
  (void)state;
  static const struct {
    const char* bytes;
    size_t size;
  } bad[] = {
      {"\x80\x00", 2},
      {"\xff\x80\x00", 3},
      {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10},
      {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00", 11},
      {"\x80", 1},
      {"", 0},
  };
  for (size_t i = 0; i < QN_COUNT_OF(bad); i++) {
    qn__reader_t reader = qn__reader_make((qn_span_t){(const uint8_t*)bad[i].bytes, bad[i].size});
    assert_true(qn__read_varint(&reader) == 0);
    assert_true(reader.has_overrun);
    assert_int_equal(qn__read_u8(&reader), 0);
  }
}

static void a_run_longer_than_the_rest_is_an_overrun(void** state) {
  (void)state;
  const uint8_t bytes[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 9};
  qn__reader_t reader = qn__reader_make((qn_span_t){bytes, sizeof bytes});
  qn_span_t run = qn__read_run(&reader);
  assert_int_equal(run.size, 0);
  assert_true(reader.has_overrun);
}

static void hex_of(const uint8_t* bytes, size_t size, char* out) {
  for (size_t i = 0; i < size; i++) {
    static const char digits[] = "0123456789abcdef";
    out[2 * i] = digits[bytes[i] >> 4];
    out[2 * i + 1] = digits[bytes[i] & 15];
  }
  out[2 * size] = '\0';
}

// Vectors of FIPS 180-2 and of the NIST example files.
static void sha256_vectors(void** state) {
  (void)state;
  static const struct {
    const char *text, *digest;
  } cases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
  };
  char hex[65];
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn_str_t text = qn__str(cases[i].text);
    qn__sha256_t digest = qn__sha256((qn_span_t){(const uint8_t*)text.data, text.size});
    hex_of(digest.bytes, 32, hex);
    assert_string_equal(hex, cases[i].digest);
  }
  size_t size = 1000000;
  uint8_t* million = malloc(size);
  memset(million, 'a', size);
  hex_of(qn__sha256((qn_span_t){million, size}).bytes, 32, hex);
  assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // The padding at every length around a block: each differs from the one before.
  qn__sha256_t last = qn__sha256((qn_span_t){million, 0});
  for (size_t n = 1; n < 200; n++) {
    qn__sha256_t digest = qn__sha256((qn_span_t){million, n});
    assert_memory_not_equal(digest.bytes, last.bytes, 32);
    last = digest;
  }
  free(million);
}

// Made by `xxhsum -H2` of the xxHash command line.
static void xxh3_vectors(void** state) {
  (void)state;
  char hex[33];
  qn__hash128_hex(qn__xxh128((qn_span_t){NULL, 0}, 0), hex);
  assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
  qn__hash128_hex(qn__xxh128((qn_span_t){(const uint8_t*)"abc", 3}, 0), hex);
  assert_string_equal(hex, "06b05ab6733a618578af5f94892f3950");
  uint8_t bytes[1024];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
  // Both ways of the library (short and long input) depend on the seed and on every byte.
  for (size_t size = 16; size <= sizeof bytes; size += 112) {
    qn_hash128_t plain = qn__xxh128((qn_span_t){bytes, size}, 1);
    assert_false(qn__hash128_equal(plain, qn__xxh128((qn_span_t){bytes, size}, 2)));
    bytes[size - 1] ^= 1;
    assert_false(qn__hash128_equal(plain, qn__xxh128((qn_span_t){bytes, size}, 1)));
    bytes[size - 1] ^= 1;
    assert_true(qn__hash128_equal(plain, qn__xxh128((qn_span_t){bytes, size}, 1)));
  }
}

static void hex_round_trip(void** state) {
  (void)state;
  qn_hash128_t hash;
  assert_true(qn__hash128_parse(QN_STR("00112233445566778899aabbccddeeff"), &hash));
  char hex[33];
  qn__hash128_hex(hash, hex);
  assert_string_equal(hex, "00112233445566778899aabbccddeeff");
  assert_false(qn__hash128_parse(QN_STR("00112233445566778899aabbccddeef"), &hash));
  assert_false(qn__hash128_parse(QN_STR("00112233445566778899aabbccddeeff0"), &hash));
  assert_false(qn__hash128_parse(QN_STR("00112233445566778899aabbccddeefg"), &hash));
  assert_false(qn__hash128_parse(QN_STR("00112233445566778899AABBCCDDEEFF"), &hash));
}

static void lists_have_the_parts_that_are_not_empty(void** state) {
  (void)state;
  const char* list = "::/usr/lib::b:";
  qn_str_t part;
  char path[9];
  assert_true(qn__list_next(&list, ':', &part));
  assert_true(qn__str_equal(part, QN_STR("/usr/lib")));
  assert_false(qn__str_copy(part, path, 8));
  assert_true(qn__str_copy(part, path, 9));
  assert_string_equal(path, "/usr/lib");
  assert_true(qn__list_next(&list, ':', &part));
  assert_true(qn__str_equal(part, QN_STR("b")));
  assert_false(qn__list_next(&list, ':', &part));
  assert_false(qn__list_next(&list, ':', &part));
  list = NULL;
  assert_false(qn__list_next(&list, ':', &part));
  assert_true(qn__str_copy(part, path, 1));
  assert_string_equal(path, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(bytes_are_little_endian),
      cmocka_unit_test(only_the_shortest_varint_is_accepted),
      cmocka_unit_test(a_run_longer_than_the_rest_is_an_overrun),
      cmocka_unit_test(sha256_vectors),
      cmocka_unit_test(xxh3_vectors),
      cmocka_unit_test(hex_round_trip),
      cmocka_unit_test(lists_have_the_parts_that_are_not_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
