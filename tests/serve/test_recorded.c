// SPDX-License-Identifier: Apache-2.0
// test_recorded.c: recorded answers of the Python package `tokenizers`
// (tools/dev/record-tokenizer): every code point through three normalisers, and random strings
// through made-up tokenizers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/memory.h"
#include "serve/unicode.h"
#include "serve/words.h"
#include "tests/support/must.h"
#include "tests/support/sanitized.h"
#include "tests/support/tempdir.h"

enum { BLOCK = 4096, BLOCKS = 0x110000 / BLOCK, TEXT_BYTES = 128 };

typedef struct recorded_words {
  int options[4];  // clean_text, handle_chinese_chars, strip_accents, lowercase
  uint32_t digests[BLOCKS];
} recorded_words_t;

static const recorded_words_t recorded_words[] = {
#include "tests/serve/recorded/words.inc"
};

static uint32_t crc32(uint32_t crc, const void* data, size_t size) {
  static uint32_t table[256];
  if (table[1] == 0) {
    for (uint32_t i = 0; i < 256; i++) {
      table[i] = i;
      for (int bit = 0; bit < 8; bit++) {
        table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0xEDB88320u : 0);
      }
    }
  }
  const uint8_t* bytes = data;
  crc = ~crc;
  for (size_t i = 0; i < size; i++) crc = table[(crc ^ bytes[i]) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

// ---- words of every code point

static bool add_digest(void* self, const serve_word_t* word) {
  uint32_t* digest = self;
  char places[32];
  const int size = snprintf(places, sizeof places, "%u,%u,", word->span.start, word->span.stop);
  *digest = crc32(*digest, places, (size_t)size);
  *digest = crc32(*digest, word->text, word->size);
  *digest = crc32(*digest, "\n", 1);
  return true;
}

// The places of a code point: alone, between letters, after marks, and among marks.
static size_t make_text(uint32_t code_point, uint8_t out[TEXT_BYTES]) {
  static const char* const parts[] = {"",  " a", "b a\u0301", "b \u0345", " x ", "\u0316\U0001d165",
                                      " y"};
  size_t size = 0;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    memcpy(out + size, parts[i], strlen(parts[i]));
    size += strlen(parts[i]);
    if (i + 1 < sizeof parts / sizeof parts[0]) size += serve_utf8_write(code_point, out + size);
  }
  return size;
}

static void check_words(const recorded_words_t* recorded) {
  const qn_allocator_t allocator = qn_allocator_default();
  serve_normalizer_t normalizer = {.clean_text = recorded->options[0],
                                   .handle_chinese_chars = recorded->options[1],
                                   .strip_accents = recorded->options[2],
                                   .lowercase = recorded->options[3]};
  serve_words_t words;
  uint32_t digest;
  serve_normalizer_init(&normalizer);
  serve_words_init(&words, &allocator, &normalizer, 1000, add_digest, &digest);
  for (uint32_t block = 0; block < BLOCKS; block += IS_SANITIZED ? 7 : 1) {
    digest = 0;
    for (uint32_t c = block * BLOCK; c < (block + 1) * BLOCK; c++) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      uint8_t text[TEXT_BYTES];
      const size_t size = make_text(c, text);
      serve_words_begin(&words, true);
      serve_words_scan(&words, text, size);
      assert_false(words.is_stopped);
    }
    if (digest != recorded->digests[block]) {
      fail_msg("the words of U+%04X to U+%04X differ, options %d %d %d %d", block * BLOCK,
               (block + 1) * BLOCK - 1, recorded->options[0], recorded->options[1],
               recorded->options[2], recorded->options[3]);
    }
  }
  serve_words_deinit(&words);
}

static void test_words(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof recorded_words / sizeof recorded_words[0]; i++) {
    check_words(&recorded_words[i]);
  }
}

// ---- strings

static uint32_t read_number(const uint8_t** at) {
  uint32_t value = 0;
  int shift = 0;
  do {
    value |= (uint32_t)(**at & 0x7F) << shift;
    shift += 7;
  } while (*(*at)++ & 0x80);
  return value;
}

static qn_status_t append(void* self, const void* data, size_t size) {
  const qn_allocator_t allocator = qn_allocator_default();
  return serve_bytes_append(&allocator, self, data, size) ? QN_OK : serve_no_memory("a test");
}

static uint32_t decoded_digest(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                               const serve_encoding_t* encoding) {
  const qn_allocator_t allocator = qn_allocator_default();
  serve_bytes_t text = {0};
  const qn_sink_t sink = {&text, append};
  must(serve_decode(tokenizer, scratch, encoding->ids, encoding->count, false, &sink));
  must(append(&text, "", 1));
  must(serve_decode(tokenizer, scratch, encoding->ids, encoding->count, true, &sink));
  const uint32_t digest = crc32(0, text.data, text.size);
  serve_bytes_free(&allocator, &text);
  return digest;
}

// Checks one text and its answer, and moves past them.
static void check_answer(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                         serve_encoding_t* encoding, const uint8_t** at) {
  const serve_encode_options_t options = {.offsets = SERVE_OFFSETS_CHARS, .refuses_invalid = true};
  const uint32_t size = read_number(at);
  const char* text = (const char*)*at;
  *at += size;
  must(serve_encode(tokenizer, scratch, text, size, &options, encoding));
  const uint32_t count = read_number(at);
  bool is_same = encoding->count == count;
  uint32_t before = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t id = read_number(at);
    const uint32_t gap = read_number(at);
    const uint32_t start = before + (gap & 1 ? 0 - (gap + 1) / 2 : gap / 2);
    before = start + read_number(at);
    is_same = is_same && encoding->ids[i] == (int32_t)id && encoding->spans[i].start == start &&
              encoding->spans[i].stop == before;
  }
  if (!is_same) fail_msg("the tokens of '%.*s' differ", (int)size, text);
  const uint32_t digest = (uint32_t)(*at)[0] | (uint32_t)(*at)[1] << 8 | (uint32_t)(*at)[2] << 16 |
                          (uint32_t)(*at)[3] << 24;
  *at += 4;
  if (digest != decoded_digest(tokenizer, scratch, encoding)) {
    fail_msg("the decoded tokens of '%.*s' differ", (int)size, text);
  }
  size_t counted;
  must(serve_count(tokenizer, scratch, text, size, &options, &counted));
  assert_int_equal(counted, count);
}

// Opens a recorded tokenizer as the only file of a folder.
static serve_tokenizer_t* open_recorded(const char* name) {
  static char content[1 << 16];
  char folder[QN_TEST_PATH_SIZE];
  char path[QN_TEST_PATH_SIZE + 32];
  snprintf(path, sizeof path, "%s/tests/serve/recorded/%s.json", QN_SOURCE_DIR, name);
  const long size = qn_test_read_file(path, content, sizeof content);
  assert_in_range(size, 1, sizeof content - 1);
  assert_true(qn_test_tempdir_make(folder));
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  assert_true(qn_test_write_file(path, content, (size_t)size));
  serve_tokenizer_t* tokenizer;
  must(serve_tokenizer_open(folder, NULL, &tokenizer));
  qn_test_tempdir_remove(folder);
  return tokenizer;
}

static void test_strings(void** state) {
  static const char* const names[] = {"added", "normalised", "cased", "roberta"};
  static uint8_t content[1 << 17];
  (void)state;
  const qn_allocator_t allocator = qn_allocator_default();
  serve_encoding_t encoding = {.allocator = &allocator};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char path[QN_TEST_PATH_SIZE];
    snprintf(path, sizeof path, "%s/tests/serve/recorded/%s.answers", QN_SOURCE_DIR, names[i]);
    const long size = qn_test_read_file(path, content, sizeof content);
    assert_in_range(size, 1000, sizeof content - 1);
    serve_tokenizer_t* tokenizer = open_recorded(names[i]);
    serve_scratch_t* scratch;
    must(serve_scratch_create(tokenizer, &scratch));
    int count = 0;
    for (const uint8_t* at = content; at < content + size; count++) {
      check_answer(tokenizer, scratch, &encoding, &at);
    }
    assert_int_equal(count, 600);
    serve_scratch_free(scratch);
    serve_tokenizer_close(tokenizer);
  }
  serve_encoding_free(&encoding);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_strings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
