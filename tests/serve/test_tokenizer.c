// SPDX-License-Identifier: Apache-2.0
// test_tokenizer.c: the rules of the tokenizer on a small vocabulary, and what it refuses.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/memory.h"
#include "serve/tokenizer.h"
#include "serve/unicode.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

// The ids of the small vocabulary.
enum { PAD, UNK, CLS, SEP, MASK, THE, CAT, CONT_S, A, CONT_B, AB, COMMA, E_KEPT, KANJI };
static const char vocab_text[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat  \r\n##s\na\n##b\nab\n,\né\n中";

typedef struct fixture {
  char folder[QN_TEST_PATH_SIZE];
  serve_tokenizer_t* tokenizer;
  serve_scratch_t* scratch;
} fixture_t;

static void write_file(const fixture_t* fixture, const char* name, const char* text) {
  char path[QN_TEST_PATH_SIZE + 32];
  snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
  assert_true(qn_test_write_file(path, text, strlen(text)));
}

static void begin(fixture_t* fixture) {
  *fixture = (fixture_t){.tokenizer = NULL};
  assert_true(qn_test_tempdir_make(fixture->folder));
}

static void open_folder(fixture_t* fixture) {
  must(serve_tokenizer_open(fixture->folder, NULL, &fixture->tokenizer));
  must(serve_scratch_create(fixture->tokenizer, &fixture->scratch));
}

static void begin_small(fixture_t* fixture) {
  begin(fixture);
  write_file(fixture, "vocab.txt", vocab_text);
  open_folder(fixture);
}

static void end(fixture_t* fixture) {
  serve_scratch_free(fixture->scratch);
  serve_tokenizer_close(fixture->tokenizer);
  qn_test_tempdir_remove(fixture->folder);
}

// Fails unless the text gives these ids, without special tokens; the list ends with -1.
static void check_ids(const fixture_t* fixture, const char* text, size_t size, ...) {
  const serve_encode_options_t options = {.omits_special = true};
  int32_t ids[64];
  serve_encoding_t encoding = {.ids = ids, .capacity = 64};
  must(serve_encode(fixture->tokenizer, fixture->scratch, text, size, &options, &encoding));
  va_list expected;
  va_start(expected, size);
  for (size_t i = 0; i < encoding.count; i++) assert_int_equal(ids[i], va_arg(expected, int));
  assert_int_equal(va_arg(expected, int), -1);
  va_end(expected);
}

#define CHECK_IDS(fixture, text, ...) check_ids(fixture, text, sizeof(text) - 1, __VA_ARGS__)

static void test_rules(void** state) {
  (void)state;
  fixture_t f;
  begin_small(&f);
  CHECK_IDS(&f, "", -1);
  CHECK_IDS(&f, " \t\r\n", -1);
  CHECK_IDS(&f, "The CATS,cat", THE, CAT, CONT_S, COMMA, CAT, -1);
  CHECK_IDS(&f, "ab abb aab", AB, AB, CONT_B, UNK, -1);
  // Accents go, so that a token with one is never found.
  CHECK_IDS(&f, "\u00e1 a\u0301b \u00e9", A, AB, UNK, -1);
  CHECK_IDS(&f, "a\u4e2da", A, KANJI, A, -1);
  // Controls, NUL and bytes that are not UTF-8 are dropped, and cut no word.
  CHECK_IDS(&f, "c\0a\xff\xe2\x82t\x07s", CAT, CONT_S, -1);
  CHECK_IDS(&f, "\xed\xa0\x80\xf4\x90\x80\x80", -1);
  // Special tokens in the text, as they are written only.
  CHECK_IDS(&f, "[MASK]a[SEP]the", MASK, A, SEP, THE, -1);
  CHECK_IDS(&f, "[mask] [MASK", UNK, UNK, UNK, UNK, UNK, -1);
  assert_int_equal(serve_token_id(f.tokenizer, "##s", 3), CONT_S);
  assert_int_equal(serve_token_id(f.tokenizer, "##", 2), -1);
  assert_int_equal(serve_token_limit(f.tokenizer), KANJI + 1);
  assert_int_equal(serve_special_count(f.tokenizer), 2);
  size_t size;
  assert_memory_equal(serve_token_text(f.tokenizer, CAT, &size), "cat", 3);
  assert_int_equal(size, 3);
  assert_null(serve_token_text(f.tokenizer, -1, &size));
  assert_null(serve_token_text(f.tokenizer, KANJI + 1, &size));
  end(&f);
}

static void test_long_words(void** state) {
  (void)state;
  fixture_t f;
  begin_small(&f);
  char word[102];
  memset(word, 'b', sizeof word);
  word[0] = 'a';
  const serve_encode_options_t options = {.omits_special = true, .offsets = SERVE_OFFSETS_BYTES};
  int32_t ids[128];
  serve_span_t spans[128];
  serve_encoding_t encoding = {.ids = ids, .spans = spans, .capacity = 128};
  must(serve_encode(f.tokenizer, f.scratch, word, 100, &options, &encoding));
  assert_int_equal(encoding.count, 99);
  assert_int_equal(ids[0], AB);
  must(serve_encode(f.tokenizer, f.scratch, word, 101, &options, &encoding));
  assert_int_equal(encoding.count, 1);
  assert_int_equal(ids[0], UNK);
  assert_int_equal(spans[0].start, 0);
  assert_int_equal(spans[0].stop, 101);
  end(&f);
}

static void test_limits(void** state) {
  (void)state;
  static const char text[] = "the cat, a ab";  // five tokens
  fixture_t f;
  begin_small(&f);
  int32_t ids[7];
  serve_span_t spans[7];
  serve_encoding_t encoding = {.ids = ids, .spans = spans, .capacity = 7};
  serve_encode_options_t options = {.offsets = SERVE_OFFSETS_BYTES};
  must(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding));
  const int32_t whole[] = {CLS, THE, CAT, COMMA, A, AB, SEP};
  assert_int_equal(encoding.count, 7);
  assert_memory_equal(ids, whole, sizeof whole);
  assert_false(encoding.is_truncated);
  assert_int_equal(spans[0].stop, 0);
  assert_int_equal(spans[2].start, 4);
  assert_int_equal(spans[2].stop, 7);

  options.max_tokens = 5;
  must(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding));
  const int32_t right[] = {CLS, THE, CAT, COMMA, SEP};
  assert_int_equal(encoding.count, 5);
  assert_memory_equal(ids, right, sizeof right);
  assert_true(encoding.is_truncated);

  options.truncation = SERVE_TRUNCATE_LEFT;
  must(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding));
  const int32_t left[] = {CLS, COMMA, A, AB, SEP};
  assert_memory_equal(ids, left, sizeof left);
  assert_int_equal(spans[1].start, 7);
  assert_true(encoding.is_truncated);

  options.max_tokens = 2;
  must(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding));
  assert_int_equal(encoding.count, 2);
  options.max_tokens = 1;
  must_fail(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding),
            QN_STATUS_INVALID_ARGUMENT, "max_tokens is 1, but a text gets 2 special tokens");
  assert_int_equal(encoding.count, 0);
  options.max_tokens = 0;
  encoding.capacity = 6;
  must_fail(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding),
            QN_STATUS_INVALID_ARGUMENT, "more tokens than the encoding holds (6)");
  size_t count;
  must(serve_count(f.tokenizer, f.scratch, text, strlen(text), NULL, &count));
  assert_int_equal(count, 7);
  end(&f);
}

static void test_invalid_utf8(void** state) {
  (void)state;
  static const struct {
    const char* bytes;
    size_t size;
    size_t replacements;  // U+FFFD of Python's bytes.decode(errors="replace")
  } cases[] = {{"\x80", 1, 1},
               {"\xe2\x82", 2, 1},
               {"\xe2\x28\xa1", 3, 2},
               {"\xed\xa0\x80", 3, 3},
               {"\xf0\x9f\x98", 3, 1},
               {"\xf0\x80\x80\x80", 4, 4},
               {"\xf4\x90\x80\x80", 4, 4},
               {"\xc0\xaf", 2, 2},
               {"\xf8\x88\x80\x80\x80", 5, 5}};
  fixture_t f;
  begin_small(&f);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const uint8_t* bytes = (const uint8_t*)cases[i].bytes;
    size_t replacements = 0;
    for (size_t at = 0; at < cases[i].size;) {
      uint32_t code_point;
      bool is_valid;
      at += serve_utf8_read(bytes + at, bytes + cases[i].size, &code_point, &is_valid);
      replacements += !is_valid;
    }
    assert_int_equal(replacements, cases[i].replacements);
  }
  // Characters count the replacements, bytes do not.
  static const char text[] = "a \xe2\x82 ab";
  int32_t ids[2];
  serve_span_t spans[2];
  serve_encoding_t encoding = {.ids = ids, .spans = spans, .capacity = 2};
  serve_encode_options_t options = {.omits_special = true, .offsets = SERVE_OFFSETS_CHARS};
  must(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding));
  assert_int_equal(spans[1].start, 4);
  options.offsets = SERVE_OFFSETS_BYTES;
  must(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding));
  assert_int_equal(spans[1].start, 5);
  options.refuses_invalid = true;
  must_fail(serve_encode(f.tokenizer, f.scratch, text, strlen(text), &options, &encoding),
            QN_STATUS_INVALID_ARGUMENT, "byte 2 of the text is not UTF-8");
  end(&f);
}

static qn_status_t append(void* self, const void* data, size_t size) {
  const qn_allocator_t allocator = qn_allocator_default();
  return serve_bytes_append(&allocator, self, data, size) ? QN_OK : serve_no_memory("a test");
}

static void test_decode(void** state) {
  (void)state;
  fixture_t f;
  begin_small(&f);
  const qn_allocator_t allocator = qn_allocator_default();
  serve_bytes_t text = {0};
  const qn_sink_t sink = {&text, append};
  const int32_t ids[] = {CLS, THE, CAT, CONT_S, COMMA, 999, -1, A, SEP};
  must(serve_decode(f.tokenizer, f.scratch, ids, 9, false, &sink));
  assert_int_equal(text.size, strlen("[CLS] the cats, a [SEP]"));
  assert_memory_equal(text.data, "[CLS] the cats, a [SEP]", text.size);
  text.size = 0;
  must(serve_decode(f.tokenizer, f.scratch, ids, 9, true, &sink));
  assert_int_equal(text.size, strlen("the cats, a"));
  assert_memory_equal(text.data, "the cats, a", text.size);
  serve_bytes_free(&allocator, &text);
  end(&f);
}

// Work that is not linear in these texts takes minutes.
static void test_large_texts(void** state) {
  (void)state;
  static const char* const units[] = {
      "a",    "[", "[MAS", "[MASK]", "a\u0327\u0301", "\u0301", "\U0001d165\u0345",
      "\xff", " ", "a ",   "\u4e2d", "\ud55c"};
  enum { SIZE = 4 << 20 };
  char* text = malloc(SIZE);
  assert_non_null(text);
  fixture_t f;
  begin_small(&f);
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    const size_t unit = strlen(units[i]);
    size_t size = 0;
    for (; size + unit <= SIZE; size += unit) memcpy(text + size, units[i], unit);
    size_t count;
    must(serve_count(f.tokenizer, f.scratch, text, size, NULL, &count));
    assert_in_range(count, 2, size + 2);
  }
  end(&f);
  free(text);
}

// ---- folders

static void must_not_open(const fixture_t* fixture, qn_status_code_t code, const char* part) {
  serve_tokenizer_t* tokenizer;
  must_fail(serve_tokenizer_open(fixture->folder, NULL, &tokenizer), code, part);
  assert_null(tokenizer);
}

static void test_config(void** state) {
  (void)state;
  fixture_t f;
  begin(&f);
  write_file(&f, "vocab.txt", vocab_text);
  write_file(&f, "tokenizer_config.json",
             "{\"do_lower_case\": false, \"tokenize_chinese_chars\": false,"
             " \"mask_token\": {\"content\": \"[MASK]\", \"lstrip\": true}}");
  open_folder(&f);
  CHECK_IDS(&f, "The the \u00e9 a\u4e2d a [MASK]", UNK, THE, E_KEPT, UNK, A, MASK, -1);
  end(&f);
}

static void test_bad_folders(void** state) {
  (void)state;
  static const struct {
    const char* config;
    qn_status_code_t code;
    const char* part;
  } configs[] = {
      {"{", QN_STATUS_SYNTAX, "tokenizer_config.json' line 1"},
      {"[]", QN_STATUS_SYNTAX, "is not a JSON object"},
      {"{\"tokenizer_class\": \"T5Tokenizer\"}", QN_STATUS_UNSUPPORTED,
       "tokenizer_class 'T5Tokenizer' without a tokenizer.json is not supported; supported: Bert"},
      {"{\"do_lower_case\": 1}", QN_STATUS_SYNTAX, "'do_lower_case' is neither true nor false"},
      {"{\"never_split\": [\"x\"]}", QN_STATUS_UNSUPPORTED, "never_split"},
      {"{\"unk_token\": \"<unk>\"}", QN_STATUS_NOT_FOUND, "vocab.txt': the vocabulary has no"},
      {"{\"sep_token\": \"</s>\"}", QN_STATUS_NOT_FOUND, "'</s>' (sep_token)"}};
  fixture_t f;
  begin(&f);
  must_not_open(&f, QN_STATUS_NOT_FOUND, "neither tokenizer.json nor vocab.txt");
  write_file(&f, "vocab.txt", "[UNK]\n\xff\n");
  must_not_open(&f, QN_STATUS_SYNTAX, "vocab.txt': byte 6 is not UTF-8");
  write_file(&f, "vocab.txt", "");
  must_not_open(&f, QN_STATUS_NOT_FOUND, "no unknown token '[UNK]'");
  write_file(&f, "vocab.txt", vocab_text);
  for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
    write_file(&f, "tokenizer_config.json", configs[i].config);
    must_not_open(&f, configs[i].code, configs[i].part);
  }
  qn_test_tempdir_remove(f.folder);
}

#define MODEL                                                                         \
  "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0}," \
  " \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100}"
#define NORMALIZER "\"normalizer\": {\"type\": \"BertNormalizer\"}"
#define PRE_TOKENIZER "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}"
#define START "{" MODEL "," NORMALIZER "," PRE_TOKENIZER ","

static void test_bad_json(void** state) {
  (void)state;
  static const struct {
    const char* json;
    qn_status_code_t code;
    const char* part;
  } cases[] = {
      {"nonsense", QN_STATUS_SYNTAX, "tokenizer.json' line 1"},
      {"{}", QN_STATUS_UNSUPPORTED, "the model 'without a type' is not supported"},
      {"{\"model\": {\"type\": \"BPE\"}}", QN_STATUS_UNSUPPORTED,
       "tokenizer.json': the model 'BPE' is not supported; supported: WordPiece"},
      {"{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\"}}", QN_STATUS_SYNTAX,
       "'continuing_subword_prefix' is not a string"},
      {"{" MODEL ", \"normalizer\": {\"type\": \"Sequence\"}}", QN_STATUS_UNSUPPORTED,
       "the normalizer 'Sequence' is not supported; supported: BertNormalizer"},
      {"{" MODEL ", \"normalizer\": null}", QN_STATUS_UNSUPPORTED, "normalizer"},
      {"{" MODEL "," NORMALIZER ", \"pre_tokenizer\": {\"type\": \"Metaspace\"}}",
       QN_STATUS_UNSUPPORTED, "the pre_tokenizer 'Metaspace' is not supported"},
      {START "\"post_processor\": {\"type\": \"ByteLevel\"}}", QN_STATUS_UNSUPPORTED,
       "the post_processor 'ByteLevel' is not supported"},
      {START "\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"u\"]}}",
       QN_STATUS_SYNTAX, "'cls' of the post_processor has no id"},
      {START "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}}",
       QN_STATUS_UNSUPPORTED, "template has 0 texts"},
      {START "\"decoder\": {\"type\": \"ByteFallback\"}}", QN_STATUS_UNSUPPORTED,
       "the decoder 'ByteFallback' is not supported"},
      {START "\"added_tokens\": [{\"id\": 7, \"content\": \"x\"}]}", QN_STATUS_UNSUPPORTED,
       "added token 'x' has id 7, but after this vocabulary it gets 1"},
      {START
       "\"added_tokens\": [{\"id\": 1, \"content\": \"x\"}, {\"id\": 2, \"content\": \"X\"}]}",
       QN_STATUS_UNSUPPORTED, "two added tokens look alike"},
      {START "\"added_tokens\": [{\"id\": 1, \"content\": \"\\u0301\"}]}", QN_STATUS_UNSUPPORTED,
       "nothing is left of an added token"},
      {"{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\","
       " \"continuing_subword_prefix\": \"\", \"max_input_chars_per_word\": 5,"
       " \"vocab\": {\"u\": 0, \"v\": 0}}}",
       QN_STATUS_UNSUPPORTED, "two tokens have the id 0"},
      {"{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\","
       " \"continuing_subword_prefix\": \"\", \"max_input_chars_per_word\": 5,"
       " \"vocab\": {\"u\": 4000000000}}}",
       QN_STATUS_UNSUPPORTED, "the largest is 16777215"}};
  fixture_t f;
  begin(&f);
  write_file(&f, "vocab.txt", vocab_text);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_file(&f, "tokenizer.json", cases[i].json);
    must_not_open(&f, cases[i].code, cases[i].part);
  }
  qn_test_tempdir_remove(f.folder);
}

// ---- every allocation fails once

static bool work_with(qn_allocator_t allocator, void* user) {
  const char* folder = user;
  static const char text[] = "the cats \u0301\U0001d165 a\u4e2d [MASK] ab";
  serve_tokenizer_t* tokenizer = NULL;
  serve_scratch_t* scratch = NULL;
  serve_encoding_t encoding = {.allocator = &allocator};
  qn_status_t status = serve_tokenizer_open(folder, &allocator, &tokenizer);
  if (qn_ok(status)) status = serve_scratch_create(tokenizer, &scratch);
  if (qn_ok(status)) {
    status = serve_encode(tokenizer, scratch, text, strlen(text), NULL, &encoding);
  }
  const bool is_right =
      qn_ok(status) ? encoding.count >= 8 : qn_status_code(status) == QN_STATUS_OUT_OF_MEMORY;
  qn_status_free(status);
  serve_encoding_free(&encoding);
  serve_scratch_free(scratch);
  serve_tokenizer_close(tokenizer);
  return is_right;
}

static void test_no_memory(void** state) {
  (void)state;
  fixture_t f;
  begin(&f);
  write_file(&f, "vocab.txt", vocab_text);
  assert_in_range(qn_fault_walk_alloc(work_with, f.folder), 20, 1000);
  write_file(&f, "tokenizer.json",
             START
             "\"added_tokens\": [{\"id\": 1, \"content\": \"Cat\"},"
             " {\"id\": 2, \"content\": \"[MASK]\", \"normalized\": false}]}");
  assert_in_range(qn_fault_walk_alloc(work_with, f.folder), 20, 1000);
  qn_test_tempdir_remove(f.folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rules),    cmocka_unit_test(test_long_words),
      cmocka_unit_test(test_limits),   cmocka_unit_test(test_invalid_utf8),
      cmocka_unit_test(test_decode),   cmocka_unit_test(test_large_texts),
      cmocka_unit_test(test_config),   cmocka_unit_test(test_bad_folders),
      cmocka_unit_test(test_bad_json), cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
