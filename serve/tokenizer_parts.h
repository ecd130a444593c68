// SPDX-License-Identifier: Apache-2.0
// serve/tokenizer_parts.h: what a tokenizer and a scratch are made of, for the files that fill and
// use them: tokenizer_json.c, tokenizer_vocab.c, tokenizer.c, encode.c and decode.c.
#ifndef QUERN_SERVE_TOKENIZER_PARTS_H_
#define QUERN_SERVE_TOKENIZER_PARTS_H_

#include <jansson.h>

#include "serve/added_tokens.h"
#include "serve/words.h"

enum { SERVE_MAX_SPECIAL = 8 };

// Special tokens on one side of a text.
typedef struct serve_specials {
  int32_t ids[SERVE_MAX_SPECIAL];
  uint32_t count;
} serve_specials_t;

struct serve_tokenizer {
  qn_allocator_t allocator;
  serve_normalizer_t normalizer;
  serve_vocabulary_t vocabulary;
  serve_added_tokens_t added;
  serve_specials_t before;
  serve_specials_t after;
  // RobertaProcessing: offsets leave out white space that a token has taken, but with
  // adds_prefix_space one space at the beginning of the text.
  bool trims_offsets;
  bool adds_prefix_space;
  // The decoder. Without one tokens are joined by spaces.
  bool decodes_wordpiece;
  bool cleans_up;
  serve_bytes_t decoder_prefix;
};

struct serve_scratch {
  const serve_tokenizer_t* tokenizer;  // borrowed
  serve_words_t words;
  serve_piece_t* pieces;  // of a word
  size_t piece_capacity;
  serve_bytes_t text;  // of a token that is decoded
};

// Fill a tokenizer, which is zero but for its allocator, from the files of a folder. The second one
// does so without tokenizer.json. Errors as serve_tokenizer_open; the caller frees the tokenizer.
qn_status_t serve_tokenizer_read_json(serve_tokenizer_t* tokenizer, const json_t* root);
qn_status_t serve_tokenizer_read_vocab(serve_tokenizer_t* tokenizer, const char* folder);

// Completes vocabulary, normaliser and added tokens.
qn_status_t serve_tokenizer_finish(serve_tokenizer_t* tokenizer);
// Adds a token and compares the id that it gets with `expected_id`, unless that is -1.
qn_status_t serve_tokenizer_add(serve_tokenizer_t* tokenizer, const serve_added_token_t* token,
                                int64_t expected_id);
// Appends a special token. Errors: UNSUPPORTED if there are too many.
qn_status_t serve_specials_add(serve_specials_t* specials, int32_t id);

// Reads a JSON object from FOLDER/NAME. `*out_root` is owned: json_decref. Errors: NOT_FOUND, IO,
// SYNTAX, OUT_OF_MEMORY.
qn_status_t serve_config_read(const qn_allocator_t* allocator, const char* folder, const char* name,
                              json_t** out_root);
// Return a member of an object that has the wanted type. Missing or null members give the default,
// others of another type SYNTAX.
qn_status_t serve_config_bool(const json_t* object, const char* key, bool default_value,
                              bool* out_value);
// `default_value` NULL: the member is required. Borrowed from `object`.
qn_status_t serve_config_text(const json_t* object, const char* key, const char* default_value,
                              const char** out_value);
// Reads FOLDER/NAME whole. Errors as serve_file_read.
qn_status_t serve_folder_read(const qn_allocator_t* allocator, const char* folder, const char* name,
                              serve_bytes_t* out_bytes);

#endif  // QUERN_SERVE_TOKENIZER_PARTS_H_
