// SPDX-License-Identifier: Apache-2.0
// serve/words.h: cuts text into words, as BertNormalizer and BertPreTokenizer of `tokenizers` do.
//
// One pass over the text, without a copy of it: characters are removed, decomposed, stripped of
// marks and lower-cased one by one, and collect in the current word. Of each byte of a word the
// span in the text is known. Used by the encoder, and by tests without a vocabulary.
#ifndef QUERN_SERVE_WORDS_H_
#define QUERN_SERVE_WORDS_H_

#include "serve/tokenizer.h"

// The options of BertNormalizer, and what they make of ASCII.
typedef struct serve_normalizer {
  bool clean_text;
  bool handle_chinese_chars;
  bool strip_accents;
  bool lowercase;
  uint8_t ascii[128];  // set by serve_normalizer_init
} serve_normalizer_t;

// Completes a normaliser whose options are set.
void serve_normalizer_init(serve_normalizer_t* normalizer);

// A word, borrowed for the call. If it has more than `max_chars` characters, is_whole is false, and
// `text` is only its beginning.
typedef struct serve_word {
  const uint8_t* text;
  const serve_span_t* spans;  // of each byte of `text`
  uint32_t size;
  bool is_whole;
  serve_span_t span;  // of the whole word
} serve_word_t;

// A nonspacing or other combining character that waits for its place in the canonical order.
typedef struct serve_mark {
  uint32_t code_point;
  uint8_t order;
  uint8_t flags;
  bool is_new;  // a later part of a decomposition, without a character of its own in the text
  serve_span_t span;
} serve_mark_t;

// Normalised text with the span of each byte.
typedef struct serve_spanned {
  uint8_t* text;
  serve_span_t* spans;
  size_t size;
  size_t text_capacity;
  size_t span_capacity;
} serve_spanned_t;

// Cuts text into words. One thread at a time.
typedef struct serve_words {
  const qn_allocator_t* allocator;       // borrowed
  const serve_normalizer_t* normalizer;  // borrowed
  uint32_t max_chars;                    // of a word that is given whole
  // Takes a word. Returns false to stop.
  bool (*on_word)(void* self, const serve_word_t* word);
  void* self;

  bool counts_chars;  // spans count code points instead of bytes
  uint32_t position;  // in the text, in the unit of spans
  bool is_stopped;
  bool is_out_of_memory;
  bool collects;  // normalised text collects in `normalized` instead of in words

  serve_spanned_t word;
  uint32_t char_count;  // of the current word
  serve_span_t word_span;
  serve_spanned_t normalized;
  serve_mark_t* marks;  // twice as many as wait: sorting needs the other half
  size_t mark_count;
  size_t mark_capacity;
  bool has_kept_mark;  // one of them is not removed
  serve_span_t last;   // of the last character that is no mark
} serve_words_t;

// Sets the first five members; the others are zero.
void serve_words_init(serve_words_t* words, const qn_allocator_t* allocator,
                      const serve_normalizer_t* normalizer, uint32_t max_chars,
                      bool (*on_word)(void* self, const serve_word_t* word), void* self);
void serve_words_deinit(serve_words_t* words);
// Starts a text, after any end of the one before.
void serve_words_begin(serve_words_t* words, bool counts_chars);

// Cuts a piece of text into words, up to its end or until on_word stops, and advances `position`.
// No word goes on in the next piece. Failures are in is_out_of_memory, which also stops.
void serve_words_scan(serve_words_t* words, const uint8_t* text, size_t size);
// Normalises a piece of text into `normalized`, without cutting it.
void serve_words_normalize(serve_words_t* words, const uint8_t* text, size_t size);
// Cuts a part of `normalized` into words.
void serve_words_cut(serve_words_t* words, size_t start, size_t stop);

#endif  // QUERN_SERVE_WORDS_H_
