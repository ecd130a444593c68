// SPDX-License-Identifier: Apache-2.0
// words.c: from bytes to normalised words.
//
// `tokenizers` runs its steps one after the other over the whole text, each with a list of
// alignments: remove controls, space Chinese characters, decompose (NFD), remove marks, lower-case,
// split at white space, split at punctuation. Each step but one looks at single characters, so that
// a character can go through all of them before the next is read. The exception is the canonical
// order of NFD: combining characters wait until a character that starts a sequence comes
// (flush_marks).
//
// Spans: NFD of `tokenizers` hands the spans of the combining characters of one sequence to the
// sorted ones in turn, not to those that they belonged to. A part that has no character of its own
// in the text gets the span of the character before it. Both matter only for the few combining
// characters that strip_accents leaves.
#include "serve/words.h"

#include <string.h>

#include "serve/memory.h"
#include "serve/unicode.h"

// What the normaliser makes of an ASCII byte: another one, or one of these.
enum { ASCII_DROP = 0x80, ASCII_SPACE = 0x81, ASCII_PUNCTUATION = 0x82 };
enum { ORDER_COUNT = 64 };

void serve_normalizer_init(serve_normalizer_t* normalizer) {
  for (uint32_t byte = 0; byte < 128; byte++) {
    const serve_unicode_kind_t* kind = serve_unicode_kind(byte);
    uint8_t action = (uint8_t)byte;
    if (normalizer->lowercase) action = (uint8_t)(byte + (uint32_t)kind->lower);
    if (kind->flags & SERVE_UNICODE_PUNCTUATION) action = ASCII_PUNCTUATION;
    if (kind->flags & SERVE_UNICODE_SPACE) action = ASCII_SPACE;
    if (normalizer->clean_text && (kind->flags & SERVE_UNICODE_DROP)) action = ASCII_DROP;
    normalizer->ascii[byte] = action;
  }
}

void serve_words_init(serve_words_t* words, const qn_allocator_t* allocator,
                      const serve_normalizer_t* normalizer, uint32_t max_chars,
                      bool (*on_word)(void* self, const serve_word_t* word), void* self) {
  *words = (serve_words_t){.allocator = allocator,
                           .normalizer = normalizer,
                           .max_chars = max_chars,
                           .on_word = on_word,
                           .self = self};
}

static void free_spanned(const qn_allocator_t* allocator, serve_spanned_t* spanned) {
  serve_delete(allocator, spanned->text, spanned->text_capacity, 1);
  serve_delete(allocator, spanned->spans, spanned->span_capacity, sizeof *spanned->spans);
}

void serve_words_deinit(serve_words_t* words) {
  free_spanned(words->allocator, &words->word);
  free_spanned(words->allocator, &words->normalized);
  serve_delete(words->allocator, words->marks, words->mark_capacity, sizeof *words->marks);
}

void serve_words_begin(serve_words_t* words, bool counts_chars) {
  words->counts_chars = counts_chars;
  words->position = 0;
  words->is_stopped = false;
  words->is_out_of_memory = false;
  words->collects = false;
  words->word.size = 0;
  words->char_count = 0;
  words->mark_count = 0;
  words->has_kept_mark = false;
}

static void run_out_of_memory(serve_words_t* words) {
  words->is_out_of_memory = true;
  words->is_stopped = true;
}

// ---- characters to words

static bool reserve(serve_words_t* words, serve_spanned_t* spanned) {
  // One code point more.
  const size_t needed = spanned->size + 4;
  if (needed <= spanned->span_capacity && needed <= spanned->text_capacity) return true;
  void* text = spanned->text;
  void* spans = spanned->spans;
  const bool is_ok =
      serve_grow(words->allocator, &text, &spanned->text_capacity, needed, 1) &&
      serve_grow(words->allocator, &spans, &spanned->span_capacity, needed, sizeof *spanned->spans);
  spanned->text = text;
  spanned->spans = spans;
  if (!is_ok) run_out_of_memory(words);
  return is_ok;
}

static void append(serve_words_t* words, serve_spanned_t* spanned, uint32_t code_point,
                   serve_span_t span) {
  if (!reserve(words, spanned)) return;
  const uint32_t size = serve_utf8_write(code_point, spanned->text + spanned->size);
  for (uint32_t i = 0; i < size; i++) spanned->spans[spanned->size + i] = span;
  spanned->size += size;
}

static void end_word(serve_words_t* words) {
  if (words->char_count == 0 || words->is_stopped) return;
  const serve_word_t word = {.text = words->word.text,
                             .spans = words->word.spans,
                             .size = (uint32_t)words->word.size,
                             .is_whole = words->char_count <= words->max_chars,
                             .span = words->word_span};
  words->word.size = 0;
  words->char_count = 0;
  if (!words->on_word(words->self, &word)) words->is_stopped = true;
}

static void add_to_word(serve_words_t* words, uint32_t code_point, serve_span_t span) {
  if (words->char_count == 0) words->word_span.start = span.start;
  words->word_span.stop = span.stop;
  if (words->char_count > words->max_chars) return;
  if (words->char_count++ < words->max_chars) append(words, &words->word, code_point, span);
}

// Takes a normalised character.
static void take(serve_words_t* words, uint32_t code_point, uint32_t flags, serve_span_t span) {
  if (words->collects) {
    append(words, &words->normalized, code_point, span);
  } else if (flags & SERVE_UNICODE_SPACE) {
    end_word(words);
  } else if (flags & SERVE_UNICODE_PUNCTUATION) {
    end_word(words);
    add_to_word(words, code_point, span);
    end_word(words);
  } else {
    add_to_word(words, code_point, span);
  }
}

// ---- the steps of the normaliser, the last one first

static void lower_case(serve_words_t* words, uint32_t code_point, const serve_unicode_kind_t* kind,
                       serve_span_t span) {
  if (words->normalizer->lowercase && kind->lower != 0) {
    const bool has_second = code_point == SERVE_UNICODE_TWO_LOWER;
    take(words, code_point + (uint32_t)kind->lower, kind->flags, span);
    if (has_second) take(words, SERVE_UNICODE_SECOND_LOWER, 0, span);
  } else {
    take(words, code_point, kind->flags, span);
  }
}

// Sorts the waiting marks by their order, equal ones as they came, into the other half.
static const serve_mark_t* sort_marks(serve_words_t* words) {
  size_t next[ORDER_COUNT + 1] = {0};
  serve_mark_t* sorted = words->marks + words->mark_count;
  for (size_t i = 0; i < words->mark_count; i++) next[words->marks[i].order + 1]++;
  for (size_t i = 0; i < ORDER_COUNT; i++) next[i + 1] += next[i];
  for (size_t i = 0; i < words->mark_count; i++) {
    sorted[next[words->marks[i].order]++] = words->marks[i];
  }
  return sorted;
}

static void flush_marks(serve_words_t* words) {
  if (words->has_kept_mark) {
    const serve_mark_t* sorted = sort_marks(words);
    const serve_mark_t* source = words->marks;
    serve_span_t span = words->last;
    for (size_t i = 0; i < words->mark_count; i++) {
      if (!sorted[i].is_new) {
        while (source->is_new) source++;
        span = source++->span;
      }
      if (sorted[i].flags & SERVE_UNICODE_MARK) continue;
      lower_case(words, sorted[i].code_point, serve_unicode_kind(sorted[i].code_point), span);
    }
  }
  words->mark_count = 0;
  words->has_kept_mark = false;
}

static void push_mark(serve_words_t* words, uint32_t code_point, const serve_unicode_kind_t* kind,
                      bool is_new, serve_span_t span) {
  void* marks = words->marks;
  if (!serve_grow(words->allocator, &marks, &words->mark_capacity, 2 * (words->mark_count + 1),
                  sizeof *words->marks)) {
    run_out_of_memory(words);
    return;
  }
  words->marks = marks;
  words->marks[words->mark_count++] = (serve_mark_t){.code_point = code_point,
                                                     .order = kind->order,
                                                     .flags = kind->flags,
                                                     .is_new = is_new,
                                                     .span = span};
  if (!(kind->flags & SERVE_UNICODE_MARK)) words->has_kept_mark = true;
}

static void push_part(serve_words_t* words, uint32_t code_point, const serve_unicode_kind_t* kind,
                      bool is_new, serve_span_t span) {
  if (kind->order != 0) {
    push_mark(words, code_point, kind, is_new, span);
    return;
  }
  if (words->mark_count > 0) flush_marks(words);
  words->last = span;
  if (!(kind->flags & SERVE_UNICODE_MARK)) lower_case(words, code_point, kind, span);
}

static void strip_accents(serve_words_t* words, uint32_t code_point,
                          const serve_unicode_kind_t* kind, serve_span_t span) {
  if (!words->normalizer->strip_accents) {
    lower_case(words, code_point, kind, span);
  } else if (!(kind->flags & SERVE_UNICODE_DECOMPOSES)) {
    push_part(words, code_point, kind, false, span);
  } else {
    uint32_t parts[SERVE_UNICODE_MAX_PARTS];
    const uint32_t count = serve_unicode_decompose(code_point, parts);
    for (uint32_t i = 0; i < count; i++) {
      push_part(words, parts[i], serve_unicode_kind(parts[i]), i > 0, span);
    }
  }
}

static void push(serve_words_t* words, uint32_t code_point, serve_span_t span) {
  const serve_unicode_kind_t* kind = serve_unicode_kind(code_point);
  const serve_unicode_kind_t* space = serve_unicode_kind(' ');
  if (words->normalizer->clean_text) {
    if (kind->flags & SERVE_UNICODE_DROP) return;
    if (kind->flags & SERVE_UNICODE_SPACE) {
      code_point = ' ';
      kind = space;
    }
  }
  if (words->normalizer->handle_chinese_chars && (kind->flags & SERVE_UNICODE_CHINESE)) {
    strip_accents(words, ' ', space, span);
    strip_accents(words, code_point, kind, span);
    strip_accents(words, ' ', space, span);
  } else {
    strip_accents(words, code_point, kind, span);
  }
}

// ---- bytes to characters

// Cuts ASCII into words as `push` does. Returns where another byte comes or the words stop.
static const uint8_t* scan_ascii(serve_words_t* words, const uint8_t* at, const uint8_t* end) {
  const uint8_t* ascii = words->normalizer->ascii;
  uint32_t position = words->position;
  for (; at < end && *at < 0x80 && !words->is_stopped; at++, position++) {
    const uint8_t action = ascii[*at];
    const serve_span_t span = {position, position + 1};
    if (action < 0x80) {
      serve_spanned_t* word = &words->word;
      if (words->char_count == 0) words->word_span.start = position;
      words->word_span.stop = position + 1;
      if (words->char_count >= words->max_chars) {
        words->char_count = words->max_chars + 1;
        continue;
      }
      if (!reserve(words, word)) break;
      words->char_count++;
      word->text[word->size] = action;
      word->spans[word->size++] = span;
      words->last = span;
    } else if (action != ASCII_DROP) {
      end_word(words);
      words->last = span;
      if (action == ASCII_SPACE) continue;
      add_to_word(words, *at, span);
      end_word(words);
    }
  }
  words->position = position;
  return at;
}

static void scan(serve_words_t* words, const uint8_t* text, size_t size) {
  const uint8_t* at = text;
  const uint8_t* end = text + size;
  words->last = (serve_span_t){words->position, words->position};
  while (at < end && !words->is_stopped) {
    if (*at < 0x80 && words->mark_count == 0 && !words->collects) {
      at = scan_ascii(words, at, end);
      continue;
    }
    uint32_t code_point;
    bool is_valid;
    const uint32_t length = serve_utf8_read(at, end, &code_point, &is_valid);
    const uint32_t advance = words->counts_chars ? 1 : length;
    push(words, code_point, (serve_span_t){words->position, words->position + advance});
    words->position += advance;
    at += length;
  }
  flush_marks(words);
}

void serve_words_scan(serve_words_t* words, const uint8_t* text, size_t size) {
  scan(words, text, size);
  end_word(words);
}

void serve_words_normalize(serve_words_t* words, const uint8_t* text, size_t size) {
  words->normalized.size = 0;
  words->collects = true;
  scan(words, text, size);
  words->collects = false;
}

void serve_words_cut(serve_words_t* words, size_t start, size_t stop) {
  const serve_spanned_t* normalized = &words->normalized;
  size_t at = start;
  while (at < stop && !words->is_stopped) {
    uint32_t code_point;
    bool is_valid;
    const serve_span_t span = normalized->spans[at];
    at += serve_utf8_read(normalized->text + at, normalized->text + stop, &code_point, &is_valid);
    take(words, code_point, serve_unicode_kind(code_point)->flags, span);
  }
  end_word(words);
}
