// SPDX-License-Identifier: Apache-2.0
// encode.c: text to token ids.
//
// The text is cut at added tokens, the pieces between them into words (words.c), and the words into
// tokens of the vocabulary (serve_wordpiece). The tokens go to a writer, which knows the limit.
#include <string.h>

#include "serve/tokenizer_parts.h"
#include "serve/unicode.h"

// The letter that stands for a space in byte-level tokens, which RobertaProcessing trims as well.
enum { ROBERTA_SPACE = 0x120 };

// Writes tokens behind the special ones of the beginning. When the end of the text is kept, the
// last `limit` tokens form a ring, which is put in order at the end.
typedef struct encoder {
  const serve_tokenizer_t* tokenizer;
  serve_scratch_t* scratch;
  serve_encoding_t* encoding;  // NULL: only counts
  const uint8_t* text;
  size_t size;
  size_t first;  // where the tokens of the text begin
  size_t limit;  // how many of them are kept
  size_t total;  // how many there are
  bool keeps_end;
  bool has_spans;
  qn_status_t status;
} encoder_t;

qn_status_t serve_scratch_create(const serve_tokenizer_t* tokenizer,
                                 serve_scratch_t** out_scratch) {
  const qn_allocator_t* allocator = &tokenizer->allocator;
  *out_scratch = serve_new(allocator, 1, sizeof **out_scratch);
  if (*out_scratch == NULL) return serve_no_memory("a scratch");
  **out_scratch = (serve_scratch_t){.tokenizer = tokenizer};
  serve_words_init(&(*out_scratch)->words, allocator, &tokenizer->normalizer,
                   tokenizer->vocabulary.max_chars, NULL, NULL);
  return QN_OK;
}

void serve_scratch_free(serve_scratch_t* scratch) {
  if (scratch == NULL) return;
  const qn_allocator_t* allocator = &scratch->tokenizer->allocator;
  serve_words_deinit(&scratch->words);
  serve_delete(allocator, scratch->pieces, scratch->piece_capacity, sizeof *scratch->pieces);
  serve_bytes_free(allocator, &scratch->text);
  serve_delete(allocator, scratch, 1, sizeof *scratch);
}

void serve_encoding_free(serve_encoding_t* encoding) {
  if (encoding->allocator) {
    serve_delete(encoding->allocator, encoding->ids, encoding->capacity, sizeof *encoding->ids);
    serve_delete(encoding->allocator, encoding->spans, encoding->capacity, sizeof *encoding->spans);
  }
  *encoding = (serve_encoding_t){0};
}

// ---- the writer

// Makes room for `needed` tokens. An encoding that grows always has both arrays.
static qn_status_t reserve(serve_encoding_t* encoding, size_t needed) {
  if (needed <= encoding->capacity) return QN_OK;
  if (encoding->allocator == NULL) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "the text has more tokens than the encoding holds (%zu)",
                          encoding->capacity);
  }
  const size_t capacity = needed < 64 ? 64 : needed > SIZE_MAX / 4 ? needed : needed * 2;
  int32_t* ids = serve_new(encoding->allocator, capacity, sizeof *ids);
  serve_span_t* spans = serve_new(encoding->allocator, capacity, sizeof *spans);
  if (ids == NULL || spans == NULL) {
    serve_delete(encoding->allocator, ids, capacity, sizeof *ids);
    serve_delete(encoding->allocator, spans, capacity, sizeof *spans);
    return serve_no_memory("an encoding");
  }
  if (encoding->capacity > 0) {
    memcpy(ids, encoding->ids, encoding->capacity * sizeof *ids);
    memcpy(spans, encoding->spans, encoding->capacity * sizeof *spans);
  }
  serve_delete(encoding->allocator, encoding->ids, encoding->capacity, sizeof *ids);
  serve_delete(encoding->allocator, encoding->spans, encoding->capacity, sizeof *spans);
  encoding->ids = ids;
  encoding->spans = spans;
  encoding->capacity = capacity;
  return QN_OK;
}

static bool put(encoder_t* encoder, int32_t id, serve_span_t span) {
  const size_t index = encoder->total;
  encoder->total++;
  if (encoder->encoding == NULL) return true;
  size_t at = index;
  if (index >= encoder->limit) {
    encoder->encoding->is_truncated = true;
    if (!encoder->keeps_end) return false;
    if (encoder->limit == 0) return true;
    at = index % encoder->limit;
  }
  at += encoder->first;
  if (at >= encoder->encoding->capacity) {
    encoder->status = reserve(encoder->encoding, at + 1);
    if (!qn_ok(encoder->status)) return false;
  }
  encoder->encoding->ids[at] = id;
  if (encoder->has_spans) encoder->encoding->spans[at] = span;
  return true;
}

static void reverse(serve_encoding_t* encoding, size_t start, size_t stop, bool has_spans) {
  for (; start + 1 < stop; start++, stop--) {
    const int32_t id = encoding->ids[start];
    encoding->ids[start] = encoding->ids[stop - 1];
    encoding->ids[stop - 1] = id;
    if (!has_spans) continue;
    const serve_span_t span = encoding->spans[start];
    encoding->spans[start] = encoding->spans[stop - 1];
    encoding->spans[stop - 1] = span;
  }
}

// Rotates the ring so that its oldest token comes first.
static void order_ring(encoder_t* encoder) {
  if (!encoder->keeps_end || encoder->limit == 0 || encoder->total <= encoder->limit) return;
  const size_t first = encoder->first;
  const size_t oldest = first + encoder->total % encoder->limit;
  const size_t end = first + encoder->limit;
  reverse(encoder->encoding, first, oldest, encoder->has_spans);
  reverse(encoder->encoding, oldest, end, encoder->has_spans);
  reverse(encoder->encoding, first, end, encoder->has_spans);
}

static qn_status_t put_specials(encoder_t* encoder, const serve_specials_t* specials, size_t at) {
  serve_encoding_t* encoding = encoder->encoding;
  qn_status_t status = reserve(encoding, at + specials->count);
  if (!qn_ok(status)) return status;
  for (uint32_t i = 0; i < specials->count; i++) {
    encoding->ids[at + i] = specials->ids[i];
    if (encoder->has_spans) encoding->spans[at + i] = (serve_span_t){0, 0};
  }
  return QN_OK;
}

// ---- characters of the text

static uint32_t count_chars(const encoder_t* encoder, size_t start, size_t stop) {
  uint32_t count = 0;
  for (; start < stop; count++) {
    uint32_t code_point;
    bool is_valid;
    start += serve_utf8_read(encoder->text + start, encoder->text + stop, &code_point, &is_valid);
  }
  return count;
}

// Returns the offset of the byte after `count` characters from `at` on.
static uint32_t skip_chars(const encoder_t* encoder, uint32_t at, uint32_t count) {
  for (; count > 0 && at < encoder->size; count--) {
    uint32_t code_point;
    bool is_valid;
    at +=
        serve_utf8_read(encoder->text + at, encoder->text + encoder->size, &code_point, &is_valid);
  }
  return at;
}

// ---- spans of RobertaProcessing

static bool is_trimmed(uint32_t code_point) {
  return code_point == ROBERTA_SPACE ||
         (serve_unicode_kind(code_point)->flags & SERVE_UNICODE_SPACE);
}

// Counts the white space at both ends of a token's text.
static void count_spaces(const uint8_t* text, size_t size, uint32_t* out_left,
                         uint32_t* out_right) {
  bool is_start = true;
  *out_left = 0;
  *out_right = 0;
  for (size_t at = 0; at < size;) {
    uint32_t code_point;
    bool is_valid;
    at += serve_utf8_read(text + at, text + size, &code_point, &is_valid);
    const bool is_space = is_trimmed(code_point);
    is_start = is_start && is_space;
    *out_left += is_start;
    *out_right = is_space ? *out_right + 1 : 0;
  }
}

// Leaves as many characters out of a span as its token's text has white space at its ends. Where
// spans count bytes, these are the bytes of as many characters.
static serve_span_t trim(const encoder_t* encoder, const uint8_t* text, size_t size,
                         serve_span_t span) {
  const bool counts_chars = encoder->scratch->words.counts_chars;
  uint32_t left;
  uint32_t right;
  count_spaces(text, size, &left, &right);
  const bool is_first = encoder->total == 0 || span.start == 0;
  if (left > 0 && is_first && encoder->tokenizer->adds_prefix_space) left--;
  if (left == 0 && right == 0) return span;
  const uint32_t count =
      counts_chars ? span.stop - span.start : count_chars(encoder, span.start, span.stop);
  const uint32_t start = left < count ? left : count;
  const uint32_t stop = right < count - start ? count - right : start;
  if (counts_chars) return (serve_span_t){span.start + start, span.start + stop};
  return (serve_span_t){skip_chars(encoder, span.start, start),
                        skip_chars(encoder, span.start, stop)};
}

// ---- words and added tokens

static bool on_word(void* self, const serve_word_t* word) {
  encoder_t* encoder = self;
  const serve_vocabulary_t* vocabulary = &encoder->tokenizer->vocabulary;
  serve_scratch_t* scratch = encoder->scratch;
  uint32_t count = 0;
  if (word->is_whole) {
    void* pieces = scratch->pieces;
    if (!serve_grow(&encoder->tokenizer->allocator, &pieces, &scratch->piece_capacity, word->size,
                    sizeof *scratch->pieces)) {
      encoder->status = serve_no_memory("a word");
      return false;
    }
    scratch->pieces = pieces;
    count = serve_wordpiece(vocabulary, word->text, word->size, scratch->pieces);
  }
  if (count == 0) return put(encoder, vocabulary->unknown_id, word->span);
  for (uint32_t i = 0; i < count; i++) {
    const serve_piece_t* piece = &scratch->pieces[i];
    serve_span_t span = {word->spans[piece->start].start, word->spans[piece->stop - 1].stop};
    if (encoder->tokenizer->trims_offsets) {
      size_t size;
      const char* text = serve_vocabulary_text(vocabulary, piece->id, &size);
      span = trim(encoder, (const uint8_t*)text, size, span);
    }
    if (!put(encoder, piece->id, span)) return false;
  }
  return true;
}

static bool put_added(encoder_t* encoder, int32_t id, const uint8_t* text, size_t size,
                      serve_span_t span) {
  if (encoder->tokenizer->trims_offsets) span = trim(encoder, text, size, span);
  return put(encoder, id, span);
}

// Cuts the normalised text of a piece at the added tokens that match there.
static void encode_normalized(encoder_t* encoder) {
  const serve_added_tokens_t* added = &encoder->tokenizer->added;
  serve_words_t* words = &encoder->scratch->words;
  const serve_spanned_t* normalized = &words->normalized;
  serve_added_match_t match;
  size_t taken = 0;
  size_t at = 0;
  while (!words->is_stopped && serve_added_search_next(&added->normalized, added, normalized->text,
                                                       normalized->size, taken, &at, &match)) {
    serve_words_cut(words, taken, match.start);
    if (words->is_stopped) return;
    const serve_span_t span = {normalized->spans[match.start].start,
                               normalized->spans[match.stop - 1].stop};
    if (!put_added(encoder, match.token->id, normalized->text + match.start,
                   match.stop - match.start, span)) {
      words->is_stopped = true;
    }
    taken = match.stop;
  }
  serve_words_cut(words, taken, normalized->size);
}

static void encode_piece(encoder_t* encoder, size_t start, size_t stop) {
  serve_words_t* words = &encoder->scratch->words;
  if (start >= stop || words->is_stopped) return;
  if (!encoder->tokenizer->added.has_normalized) {
    serve_words_scan(words, encoder->text + start, stop - start);
    return;
  }
  serve_words_normalize(words, encoder->text + start, stop - start);
  encode_normalized(encoder);
}

// Returns the units of spans in a part of the text.
static uint32_t units(const encoder_t* encoder, size_t start, size_t stop) {
  if (encoder->scratch->words.counts_chars) return count_chars(encoder, start, stop);
  return (uint32_t)(stop - start);
}

static void encode_text(encoder_t* encoder) {
  const serve_added_tokens_t* added = &encoder->tokenizer->added;
  serve_words_t* words = &encoder->scratch->words;
  serve_added_match_t match;
  size_t taken = 0;
  size_t at = 0;
  while (!words->is_stopped && serve_added_search_next(&added->raw, added, encoder->text,
                                                       encoder->size, taken, &at, &match)) {
    encode_piece(encoder, taken, match.start);
    if (words->is_stopped) return;
    // A token that begins with white space may lie in what the one before has taken.
    if (match.start < taken) words->position -= units(encoder, match.start, taken);
    serve_span_t span = {words->position, 0};
    words->position += units(encoder, match.start, match.stop);
    span.stop = words->position;
    if (!put_added(encoder, match.token->id, encoder->text + match.start, match.stop - match.start,
                   span)) {
      words->is_stopped = true;
    }
    taken = match.stop;
  }
  encode_piece(encoder, taken, encoder->size);
}

// ---- calls

static qn_status_t run(encoder_t* encoder, const serve_encode_options_t* options) {
  serve_words_t* words = &encoder->scratch->words;
  if (encoder->size >= UINT32_MAX) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the text has %zu bytes, 4 GiB or more",
                          encoder->size);
  }
  if (options->refuses_invalid) {
    const size_t valid = serve_utf8_check(encoder->text, encoder->size);
    if (valid < encoder->size) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "byte %zu of the text is not UTF-8", valid);
    }
  }
  words->on_word = on_word;
  words->self = encoder;
  serve_words_begin(words, options->offsets == SERVE_OFFSETS_CHARS);
  encode_text(encoder);
  if (words->is_out_of_memory && qn_ok(encoder->status)) return serve_no_memory("a text");
  return encoder->status;
}

static encoder_t make_encoder(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                              const char* text, size_t size) {
  return (encoder_t){.tokenizer = tokenizer,
                     .scratch = scratch,
                     .text = (const uint8_t*)(size ? text : ""),
                     .size = size,
                     .limit = SIZE_MAX};
}

static qn_status_t encode(encoder_t* encoder, const serve_encode_options_t* options) {
  const serve_tokenizer_t* tokenizer = encoder->tokenizer;
  serve_encoding_t* encoding = encoder->encoding;
  const serve_specials_t none = {.count = 0};
  const serve_specials_t* before = options->omits_special ? &none : &tokenizer->before;
  const serve_specials_t* after = options->omits_special ? &none : &tokenizer->after;
  const uint32_t special_count = before->count + after->count;
  if (options->max_tokens > 0) {
    if (options->max_tokens < special_count) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "max_tokens is %u, but a text gets %u special tokens",
                            options->max_tokens, special_count);
    }
    encoder->limit = options->max_tokens - special_count;
  }
  encoder->keeps_end = options->truncation == SERVE_TRUNCATE_LEFT && options->max_tokens > 0;
  encoder->has_spans = options->offsets != SERVE_OFFSETS_NONE;
  encoder->first = before->count;
  qn_status_t status = put_specials(encoder, before, 0);
  if (qn_ok(status)) status = run(encoder, options);
  if (!qn_ok(status)) return status;
  order_ring(encoder);
  const size_t kept = encoder->total < encoder->limit ? encoder->total : encoder->limit;
  status = put_specials(encoder, after, before->count + kept);
  if (!qn_ok(status)) return status;
  encoding->count = kept + special_count;
  encoding->special_before = before->count;
  encoding->special_after = after->count;
  return QN_OK;
}

qn_status_t serve_encode(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                         const char* text, size_t size, const serve_encode_options_t* options,
                         serve_encoding_t* inout_encoding) {
  static const serve_encode_options_t defaults;
  encoder_t encoder = make_encoder(tokenizer, scratch, text, size);
  encoder.encoding = inout_encoding;
  inout_encoding->count = 0;
  inout_encoding->special_before = 0;
  inout_encoding->special_after = 0;
  inout_encoding->is_truncated = false;
  return encode(&encoder, options ? options : &defaults);
}

qn_status_t serve_count(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                        const char* text, size_t size, const serve_encode_options_t* options,
                        size_t* out_count) {
  static const serve_encode_options_t defaults;
  encoder_t encoder = make_encoder(tokenizer, scratch, text, size);
  *out_count = 0;
  qn_status_t status = run(&encoder, options ? options : &defaults);
  if (!qn_ok(status)) return status;
  const bool omits_special = options && options->omits_special;
  *out_count = encoder.total + (omits_special ? 0 : serve_special_count(tokenizer));
  return QN_OK;
}
