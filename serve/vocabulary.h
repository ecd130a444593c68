// SPDX-License-Identifier: Apache-2.0
// serve/vocabulary.h: the tokens of a WordPiece model: their texts, ids, and a trie of them.
//
// Filled token by token (serve_vocabulary_add, or serve_vocabulary_add_lines from vocab.txt), then
// completed once (serve_vocabulary_finish) and read-only.
#ifndef QUERN_SERVE_VOCABULARY_H_
#define QUERN_SERVE_VOCABULARY_H_

#include "serve/memory.h"
#include "serve/trie.h"

// Larger ids are refused: an id is a row of an embedding table.
enum { SERVE_MAX_TOKEN_ID = (1 << 24) - 1, SERVE_MAX_WORD_CHARS = 1 << 20 };

typedef struct serve_token {
  size_t at;  // in the vocabulary's texts
  uint32_t size;
  bool is_there;
} serve_token_t;

// Zero-initialised: empty.
typedef struct serve_vocabulary {
  serve_bytes_t texts;
  serve_token_t* tokens;  // by id
  size_t limit;           // one more than the largest id
  size_t capacity;
  size_t count;  // distinct texts
  serve_trie_t trie;
  // The state of the trie after the prefix of continuing pieces, from which these are looked up.
  uint32_t continuation;
  bool has_continuation;
  int32_t unknown_id;
  uint32_t max_chars;  // longer words are unknown
} serve_vocabulary_t;

// Adds a token. Errors: UNSUPPORTED for an id that is too large or taken, OUT_OF_MEMORY.
qn_status_t serve_vocabulary_add(const qn_allocator_t* allocator, serve_vocabulary_t* vocabulary,
                                 const char* text, size_t size, uint64_t id);
// Adds a token a line, whose id is the number of the line from 0. White space at the end of a line
// is dropped, as `tokenizers` does. Errors: SYNTAX if the text is not UTF-8, those of
// serve_vocabulary_add.
qn_status_t serve_vocabulary_add_lines(const qn_allocator_t* allocator,
                                       serve_vocabulary_t* vocabulary, const char* text,
                                       size_t size);
// Completes the vocabulary. Of several ids of one text only the largest remains. Errors: NOT_FOUND
// if there is no token `unknown`, OUT_OF_MEMORY.
qn_status_t serve_vocabulary_finish(const qn_allocator_t* allocator, serve_vocabulary_t* vocabulary,
                                    const char* unknown, const char* prefix, uint32_t max_chars);
void serve_vocabulary_free(const qn_allocator_t* allocator, serve_vocabulary_t* vocabulary);

// Returns the id of a text, -1 if there is none.
int32_t serve_vocabulary_find(const serve_vocabulary_t* vocabulary, const char* text, size_t size);
// Returns the text of an id, NULL if there is none. Borrowed from the vocabulary.
const char* serve_vocabulary_text(const serve_vocabulary_t* vocabulary, int32_t id,
                                  size_t* out_size);

// A token of a word: bytes from `start` to before `stop`.
typedef struct serve_piece {
  int32_t id;
  uint32_t start;
  uint32_t stop;
} serve_piece_t;

// Cuts a word into the longest tokens from its beginning, and returns their number: at most one for
// each byte. Returns 0 if some part has no token: the word is unknown.
uint32_t serve_wordpiece(const serve_vocabulary_t* vocabulary, const uint8_t* word, uint32_t size,
                         serve_piece_t* out_pieces);

#endif  // QUERN_SERVE_VOCABULARY_H_
