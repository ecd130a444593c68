// SPDX-License-Identifier: Apache-2.0
// serve/tokenizer.h: text to token ids and back, for BERT-like models: WordPiece exactly as the
// Python package `tokenizers` does it, and hence as text-embeddings-inference does it.
//
// A tokenizer is opened from a model's folder in Hugging Face's layout and is read-only afterwards:
// any thread may use it, each with a scratch of its own.
//
//   serve_tokenizer_t* tokenizer;
//   serve_scratch_t* scratch;
//   QN_TRY(serve_tokenizer_open("all-MiniLM-L6-v2", NULL, &tokenizer));
//   QN_TRY(serve_scratch_create(tokenizer, &scratch));
//   int32_t row[256];
//   serve_encoding_t encoding = {.ids = row, .capacity = 256};
//   serve_encode_options_t options = {.max_tokens = 256};
//   QN_TRY(serve_encode(tokenizer, scratch, text, size, &options, &encoding));
//
// tools/dev/prove-tokenizer compares this code with the package; docs/serve.md has the results.
#ifndef QUERN_SERVE_TOKENIZER_H_
#define QUERN_SERVE_TOKENIZER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quern/status.h"

// The tables of a model's tokenizer. Read-only: any thread.
typedef struct serve_tokenizer serve_tokenizer_t;
// Memory that calls use again, so that they allocate nothing once it has grown. It grows with the
// longest word and the longest run of combining marks, not with the text. With added tokens that
// match normalised text it also holds the normalised text. One thread at a time.
typedef struct serve_scratch serve_scratch_t;

// ---- opening

// Opens the tokenizer of a folder. It reads tokenizer.json, as the package does; without that file
// vocab.txt and, if it is there, tokenizer_config.json, as the package transformers does for its
// BertTokenizer. Truncation and padding of these files are not followed: the caller decides.
//
// Supported: a WordPiece model; BertNormalizer; BertPreTokenizer; TemplateProcessing,
// BertProcessing, RobertaProcessing or none for the special tokens; the decoder WordPiece or none;
// added tokens with all their flags. Everything else is UNSUPPORTED, with file and name.
//
// `allocator` is copied; NULL is the C library's. `*out_tokenizer` is owned, NULL on failure:
// serve_tokenizer_close. Errors: NOT_FOUND, IO, SYNTAX, UNSUPPORTED, OUT_OF_MEMORY.
QN_MUST_USE qn_status_t serve_tokenizer_open(const char* folder, const qn_allocator_t* allocator,
                                             serve_tokenizer_t** out_tokenizer);
// Frees a tokenizer that no call uses, after its scratches; NULL is ignored.
void serve_tokenizer_close(serve_tokenizer_t* tokenizer);

// Creates a scratch. `tokenizer` is borrowed until the scratch is freed. `*out_scratch` is owned,
// NULL on failure: serve_scratch_free. Errors: OUT_OF_MEMORY.
QN_MUST_USE qn_status_t serve_scratch_create(const serve_tokenizer_t* tokenizer,
                                             serve_scratch_t** out_scratch);
void serve_scratch_free(serve_scratch_t* scratch);

// ---- text to ids

typedef enum serve_truncation {
  SERVE_TRUNCATE_RIGHT = 0,  // keeps the beginning of the text
  SERVE_TRUNCATE_LEFT = 1,   // keeps its end
} serve_truncation_t;

typedef enum serve_offsets {
  SERVE_OFFSETS_NONE = 0,
  SERVE_OFFSETS_BYTES = 1,
  SERVE_OFFSETS_CHARS = 2,  // code points; invalid bytes count as their U+FFFD
} serve_offsets_t;

// Zero-initialised: special tokens are added, nothing is cut, no offsets, invalid bytes replaced.
typedef struct serve_encode_options {
  bool omits_special;             // [CLS] and [SEP] are not added
  uint32_t max_tokens;            // with the special tokens; 0: no limit
  serve_truncation_t truncation;  // which end is kept
  serve_offsets_t offsets;        // what `spans` of the encoding count
  // Text that is not UTF-8 is INVALID_ARGUMENT. Otherwise its invalid parts are read as U+FFFD,
  // each longest beginning of a valid sequence as one, as Python's decode(errors="replace") does;
  // BertNormalizer with clean_text then removes them.
  bool refuses_invalid;
} serve_encode_options_t;

// Where a token comes from in the text: from `start` to before `stop`. As in `tokenizers`: removed
// characters at the ends belong to no token, a token of a decomposed character has its whole span.
typedef struct serve_span {
  uint32_t start;
  uint32_t stop;
} serve_span_t;

// The result of serve_encode, in memory of the caller (`allocator` NULL: `ids`, and `spans` if
// offsets are asked for, hold `capacity` elements) or in memory that grows (`allocator` set, the
// arrays owned: serve_encoding_free). One encoding may serve many calls.
typedef struct serve_encoding {
  int32_t* ids;
  serve_span_t* spans;  // of special tokens that were added: {0, 0}
  size_t capacity;
  const qn_allocator_t* allocator;  // borrowed
  size_t count;                     // tokens
  // The first and last tokens that were added as special ones. Tokens such as [SEP] that the text
  // itself spells are not counted, as in the special_tokens_mask of `tokenizers`.
  uint32_t special_before;
  uint32_t special_after;
  bool is_truncated;
} serve_encoding_t;

// Frees the arrays of an encoding with an allocator.
void serve_encoding_free(serve_encoding_t* encoding);

// Encodes a text of `size` bytes, with any bytes in it. Takes time linear in the size. When it
// keeps the beginning it ends at the last token that fits, but for the search for added tokens.
// `options` NULL: all defaults. Added tokens such as [SEP] are found in the text before it is
// normalised, as `tokenizers` does. Errors: INVALID_ARGUMENT (not UTF-8; max_tokens below the
// number of special tokens; more tokens than a bounded encoding holds; 4 GiB or more),
// OUT_OF_MEMORY. `count` is then 0.
QN_MUST_USE qn_status_t serve_encode(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                                     const char* text, size_t size,
                                     const serve_encode_options_t* options,
                                     serve_encoding_t* inout_encoding);

// Counts the tokens that serve_encode would give without limit; of the options it follows
// omits_special and refuses_invalid. Errors as there.
QN_MUST_USE qn_status_t serve_count(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                                    const char* text, size_t size,
                                    const serve_encode_options_t* options, size_t* out_count);

// ---- ids to text

// Writes the text of tokens to a sink, as the decoder of the model does: WordPiece joins
// continuing pieces and, with clean-up, removes spaces before punctuation. Ids without a token are
// skipped. `skips_special` leaves out special tokens. Errors: OUT_OF_MEMORY, those of the sink.
QN_MUST_USE qn_status_t serve_decode(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                                     const int32_t* ids, size_t count, bool skips_special,
                                     const qn_sink_t* sink);

// Returns the text of a token, with "##" if it continues a word; NULL if there is none of this id.
// Not terminated. Borrowed until the tokenizer is closed.
const char* serve_token_text(const serve_tokenizer_t* tokenizer, int32_t id, size_t* out_size);
// Returns the id of a token's text, such as "[PAD]"; -1 if there is none.
int32_t serve_token_id(const serve_tokenizer_t* tokenizer, const char* text, size_t size);
// Returns one more than the largest id: the rows that an embedding table needs.
size_t serve_token_limit(const serve_tokenizer_t* tokenizer);
// Returns how many special tokens serve_encode adds to a text.
uint32_t serve_special_count(const serve_tokenizer_t* tokenizer);

#endif  // QUERN_SERVE_TOKENIZER_H_
