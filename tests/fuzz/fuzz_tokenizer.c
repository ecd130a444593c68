// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_tokenizer.c: opens a tokenizer.json of arbitrary bytes, or encodes arbitrary
// text.
//
// Before the first NUL is a tokenizer.json; if it cannot be opened, a made-up one is used. After it
// is the text. Ids and spans must be in range, truncated encodings must be parts of the whole one,
// and the ids must decode.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quern/status.h"
#include "serve/tokenizer.h"
#include "serve/tokenizer_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static const char made_up[] =
    "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"#\","
    "\"max_input_chars_per_word\":9,\"vocab\":{\"u\":0,\"a\":1,\"#a\":2,\"ab\":3,\"#bc\":4,\"e\":5,"
    "\"[M]\":6,\"\xe4\xb8\xad\":7,\"#\xcd\x85\":8,\"c\":9}},"
    "\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
    ","
    "\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"c\",9],\"sep\":[\"c\",9]},"
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"#\",\"cleanup\":true},\"added_tokens\":["
    "{\"id\":6,\"content\":\"[M]\",\"lstrip\":true,\"rstrip\":true,\"normalized\":false},"
    "{\"id\":10,\"content\":\"C\",\"single_word\":true,\"normalized\":true}]}";

static void require(bool is_true) {
  if (!is_true) abort();
}

static serve_tokenizer_t* parse(const char* text, size_t size) {
  serve_tokenizer_t* tokenizer = malloc(sizeof *tokenizer);
  require(tokenizer != NULL);
  *tokenizer = (serve_tokenizer_t){.allocator = qn_allocator_default()};
  json_t* root = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
  qn_status_t status = QN_OK;
  if (root) {
    status = serve_tokenizer_read_json(tokenizer, root);
    json_decref(root);
  }
  if (root && qn_ok(status)) return tokenizer;
  require(!root || qn_status_message(status)[0] != '\0');
  qn_status_free(status);
  serve_tokenizer_close(tokenizer);
  return NULL;
}

static qn_status_t ignore(void* self, const void* data, size_t size) {
  (void)self;
  (void)data;
  (void)size;
  return QN_OK;
}

static void check_part(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                       const serve_encoding_t* whole, const char* text, size_t size,
                       serve_truncation_t truncation) {
  int32_t ids[16];
  serve_encoding_t part = {.ids = ids, .capacity = 16};
  const serve_encode_options_t options = {
      .omits_special = true, .max_tokens = 5, .truncation = truncation};
  require(qn_ok(serve_encode(tokenizer, scratch, text, size, &options, &part)));
  const size_t all = whole->count - whole->special_before - whole->special_after;
  const size_t kept = all < 5 ? all : 5;
  const size_t skipped = truncation == SERVE_TRUNCATE_LEFT ? all - kept : 0;
  require(part.count == kept && part.is_truncated == (kept < all));
  require(kept == 0 ||
          memcmp(ids, whole->ids + whole->special_before + skipped, kept * sizeof *ids) == 0);
}

static void check(const serve_tokenizer_t* tokenizer, const char* text, size_t size) {
  const qn_allocator_t allocator = qn_allocator_default();
  const qn_sink_t sink = {NULL, ignore};
  serve_scratch_t* scratch;
  require(qn_ok(serve_scratch_create(tokenizer, &scratch)));
  serve_encoding_t whole = {.allocator = &allocator};
  for (int unit = SERVE_OFFSETS_BYTES; unit <= SERVE_OFFSETS_CHARS; unit++) {
    const serve_encode_options_t options = {.offsets = (serve_offsets_t)unit};
    require(qn_ok(serve_encode(tokenizer, scratch, text, size, &options, &whole)));
    for (size_t i = whole.special_before; i < whole.count - whole.special_after; i++) {
      size_t length;
      require(serve_token_text(tokenizer, whole.ids[i], &length) != NULL);
      require(whole.spans[i].start <= whole.spans[i].stop && whole.spans[i].stop <= size);
    }
  }
  size_t count;
  require(qn_ok(serve_count(tokenizer, scratch, text, size, NULL, &count)) && count == whole.count);
  check_part(tokenizer, scratch, &whole, text, size, SERVE_TRUNCATE_RIGHT);
  check_part(tokenizer, scratch, &whole, text, size, SERVE_TRUNCATE_LEFT);
  require(qn_ok(serve_decode(tokenizer, scratch, whole.ids, whole.count, true, &sink)));
  serve_encoding_free(&whole);
  serve_scratch_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* end = size ? memchr(data, 0, size) : NULL;
  const size_t json_size = end ? (size_t)(end - data) : 0;
  serve_tokenizer_t* tokenizer = parse((const char*)data, json_size);
  if (!tokenizer) tokenizer = parse(made_up, sizeof made_up - 1);
  require(tokenizer != NULL);
  const size_t start = end ? json_size + 1 : 0;
  check(tokenizer, (const char*)data + start, size - start);
  serve_tokenizer_close(tokenizer);
  return 0;
}
