// SPDX-License-Identifier: Apache-2.0
// serve/added_tokens.h: tokens that are found in the text as they are, such as [SEP] and [MASK].
//
// As in `tokenizers`: those with `normalized` are searched in the normalised text, the others
// before it in the text itself. The leftmost token is taken, and of several there the longest.
#ifndef QUERN_SERVE_ADDED_TOKENS_H_
#define QUERN_SERVE_ADDED_TOKENS_H_

#include "serve/vocabulary.h"

typedef struct serve_added_token {
  char* content;  // owned
  size_t size;
  char* pattern;  // owned: what is searched; NULL: the content
  size_t pattern_size;
  int32_t id;
  bool single_word;  // not beside letters, digits and the like
  bool lstrip;       // with the white space to its left
  bool rstrip;       // and to its right
  bool normalized;
  bool special;  // left out by skips_special
} serve_added_token_t;

// The tokens that are searched in one kind of text.
typedef struct serve_added_search {
  serve_trie_t trie;  // values are indices of tokens
  bool starts[256];   // a token begins with this byte
} serve_added_search_t;

// Adding compares with all that are there.
enum { SERVE_MAX_ADDED_TOKENS = 10000 };

// Zero-initialised: none.
typedef struct serve_added_tokens {
  serve_added_token_t* tokens;  // by id, once they are complete
  size_t count;
  size_t capacity;
  size_t new_count;  // of them the vocabulary does not have
  serve_added_search_t raw;
  serve_added_search_t normalized;
  bool has_normalized;
} serve_added_tokens_t;

// Adds a token, of which `content`, `size` and the flags are copied. Its id is that of the
// vocabulary; a new one gets the next id, as `tokenizers` gives it. A token that is there gets the
// new flags; an empty one is ignored. Errors: UNSUPPORTED for too large an id or too many tokens,
// OUT_OF_MEMORY.
qn_status_t serve_added_tokens_add(const qn_allocator_t* allocator, serve_added_tokens_t* added,
                                   const serve_vocabulary_t* vocabulary,
                                   const serve_added_token_t* token, int32_t* out_id);
// Completes them, after the patterns of normalised tokens are set. Errors: UNSUPPORTED for an empty
// pattern or one of two tokens, OUT_OF_MEMORY.
qn_status_t serve_added_tokens_finish(const qn_allocator_t* allocator, serve_added_tokens_t* added);
void serve_added_tokens_free(const qn_allocator_t* allocator, serve_added_tokens_t* added);

// Returns the token of a content, or of an id; NULL if there is none.
const serve_added_token_t* serve_added_tokens_find(const serve_added_tokens_t* added,
                                                   const char* content, size_t size);
const serve_added_token_t* serve_added_tokens_of_id(const serve_added_tokens_t* added, int32_t id);

// A token found: with the white space that it takes, bytes from `start` to before `stop`.
typedef struct serve_added_match {
  const serve_added_token_t* token;
  size_t start;
  size_t stop;
} serve_added_match_t;

// Finds the next token from `*inout_at` on, and moves this behind it. White space before `taken` is
// not taken again. Returns false at the end.
bool serve_added_search_next(const serve_added_search_t* search, const serve_added_tokens_t* added,
                             const uint8_t* text, size_t size, size_t taken, size_t* inout_at,
                             serve_added_match_t* out_match);

#endif  // QUERN_SERVE_ADDED_TOKENS_H_
