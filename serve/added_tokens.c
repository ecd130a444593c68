// SPDX-License-Identifier: Apache-2.0
// added_tokens.c: see added_tokens.h.
#include "serve/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "serve/unicode.h"

static char* copy(const qn_allocator_t* allocator, const char* text, size_t size) {
  char* copied = serve_new(allocator, size, 1);
  if (copied) memcpy(copied, text, size);
  return copied;
}

static serve_added_token_t* find(const serve_added_tokens_t* added, const char* content,
                                 size_t size) {
  for (size_t i = 0; i < added->count; i++) {
    serve_added_token_t* token = &added->tokens[i];
    if (token->size == size && memcmp(token->content, content, size) == 0) return token;
  }
  return NULL;
}

qn_status_t serve_added_tokens_add(const qn_allocator_t* allocator, serve_added_tokens_t* added,
                                   const serve_vocabulary_t* vocabulary,
                                   const serve_added_token_t* token, int32_t* out_id) {
  *out_id = -1;
  if (token->size == 0) return QN_OK;
  serve_added_token_t* old = find(added, token->content, token->size);
  serve_added_token_t made = *token;
  if (old) {
    made.content = old->content;
    made.id = old->id;
    made.special = token->special || old->special;
    *old = made;
    *out_id = made.id;
    return QN_OK;
  }
  const int32_t known = serve_vocabulary_find(vocabulary, token->content, token->size);
  const size_t id = known >= 0 ? (size_t)known : vocabulary->count + added->new_count;
  if (id > SERVE_MAX_TOKEN_ID || added->count == SERVE_MAX_ADDED_TOKENS) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "added token %zu would get the id %zu",
                          added->count, id);
  }
  void* tokens = added->tokens;
  if (!serve_grow(allocator, &tokens, &added->capacity, added->count + 1, sizeof *added->tokens)) {
    return serve_no_memory("added tokens");
  }
  added->tokens = tokens;
  made.content = copy(allocator, token->content, token->size);
  if (!made.content) return serve_no_memory("added tokens");
  made.pattern = NULL;
  made.id = (int32_t)id;
  if (known < 0) added->new_count++;
  added->tokens[added->count++] = made;
  *out_id = made.id;
  return QN_OK;
}

static qn_status_t build_search(const qn_allocator_t* allocator, serve_added_tokens_t* added,
                                bool normalized, serve_added_search_t* search) {
  serve_trie_key_t* keys = serve_new(allocator, added->count, sizeof *keys);
  if (!keys) return serve_no_memory("added tokens");
  size_t count = 0;
  for (size_t i = 0; i < added->count; i++) {
    const serve_added_token_t* token = &added->tokens[i];
    if (token->normalized != normalized) continue;
    const char* pattern = token->pattern ? token->pattern : token->content;
    const size_t size = token->pattern ? token->pattern_size : token->size;
    keys[count++] = (serve_trie_key_t){pattern, (uint32_t)size, (int32_t)i};
    if (size > 0) search->starts[(uint8_t)pattern[0]] = true;
  }
  const size_t all = count;
  serve_trie_sort(keys, &count);
  qn_status_t status = QN_OK;
  if (count < all) {
    status = qn_status_make(QN_STATUS_UNSUPPORTED, "two added tokens look alike when normalised");
  } else if (count > 0 && keys[0].size == 0) {
    status =
        qn_status_make(QN_STATUS_UNSUPPORTED, "nothing is left of an added token when normalised");
  } else {
    status = serve_trie_build(allocator, keys, count, &search->trie);
  }
  serve_delete(allocator, keys, added->count, sizeof *keys);
  return status;
}

static int compare_ids(const void* left, const void* right) {
  const serve_added_token_t* a = left;
  const serve_added_token_t* b = right;
  return (a->id > b->id) - (a->id < b->id);
}

qn_status_t serve_added_tokens_finish(const qn_allocator_t* allocator,
                                      serve_added_tokens_t* added) {
  if (added->count > 1) qsort(added->tokens, added->count, sizeof *added->tokens, compare_ids);
  for (size_t i = 0; i < added->count; i++) {
    if (added->tokens[i].normalized) added->has_normalized = true;
  }
  qn_status_t status = build_search(allocator, added, false, &added->raw);
  if (qn_ok(status)) status = build_search(allocator, added, true, &added->normalized);
  return status;
}

void serve_added_tokens_free(const qn_allocator_t* allocator, serve_added_tokens_t* added) {
  for (size_t i = 0; i < added->count; i++) {
    serve_delete(allocator, added->tokens[i].content, added->tokens[i].size, 1);
    serve_delete(allocator, added->tokens[i].pattern, added->tokens[i].pattern_size, 1);
  }
  serve_delete(allocator, added->tokens, added->capacity, sizeof *added->tokens);
  serve_trie_free(allocator, &added->raw.trie);
  serve_trie_free(allocator, &added->normalized.trie);
  *added = (serve_added_tokens_t){0};
}

const serve_added_token_t* serve_added_tokens_find(const serve_added_tokens_t* added,
                                                   const char* content, size_t size) {
  return find(added, content, size);
}

const serve_added_token_t* serve_added_tokens_of_id(const serve_added_tokens_t* added, int32_t id) {
  if (added->count == 0) return NULL;
  const serve_added_token_t wanted = {.id = id};
  return bsearch(&wanted, added->tokens, added->count, sizeof *added->tokens, compare_ids);
}

// ---- search

// Returns the size of the code point before `at`, and its flags. Bytes that are not UTF-8 have
// those of U+FFFD.
static size_t before(const uint8_t* text, size_t at, uint8_t* out_flags) {
  for (size_t size = 1; size <= 4 && size <= at; size++) {
    uint32_t code_point;
    bool is_valid;
    const uint32_t read = serve_utf8_read(text + at - size, text + at, &code_point, &is_valid);
    if (read != size || !is_valid) continue;
    *out_flags = serve_unicode_kind(code_point)->flags;
    return size;
  }
  *out_flags = serve_unicode_kind(SERVE_UNICODE_REPLACEMENT)->flags;
  return 1;
}

static size_t after(const uint8_t* text, size_t at, size_t size, uint8_t* out_flags) {
  uint32_t code_point;
  bool is_valid;
  const uint32_t read = serve_utf8_read(text + at, text + size, &code_point, &is_valid);
  *out_flags = serve_unicode_kind(code_point)->flags;
  return read;
}

static bool is_single(const uint8_t* text, size_t size, size_t start, size_t stop) {
  uint8_t left = 0;
  uint8_t right = 0;
  if (start > 0) (void)before(text, start, &left);
  if (stop < size) (void)after(text, stop, size, &right);
  return !((left | right) & SERVE_UNICODE_WORD);
}

static size_t strip_left(const uint8_t* text, size_t start, size_t taken) {
  while (start > taken) {
    uint8_t flags;
    const size_t size = before(text, start, &flags);
    if (!(flags & SERVE_UNICODE_SPACE)) break;
    start -= size;
  }
  return start < taken ? taken : start;
}

static size_t strip_right(const uint8_t* text, size_t stop, size_t size) {
  while (stop < size) {
    uint8_t flags;
    const size_t length = after(text, stop, size, &flags);
    if (!(flags & SERVE_UNICODE_SPACE)) break;
    stop += length;
  }
  return stop;
}

bool serve_added_search_next(const serve_added_search_t* search, const serve_added_tokens_t* added,
                             const uint8_t* text, size_t size, size_t taken, size_t* inout_at,
                             serve_added_match_t* out_match) {
  size_t at = *inout_at;
  while (at < size) {
    if (!search->starts[text[at]]) {
      at++;
      continue;
    }
    const size_t start = at;
    size_t stop = start;
    int32_t found = -1;
    uint32_t state = 0;
    for (size_t i = start; i < size && serve_trie_step(&search->trie, text[i], &state);) {
      i++;
      if (search->trie.nodes[state].value < 0) continue;
      found = search->trie.nodes[state].value;
      stop = i;
    }
    if (found < 0) {
      at++;
      continue;
    }
    at = stop;
    const serve_added_token_t* token = &added->tokens[found];
    if (token->single_word && !is_single(text, size, start, stop)) continue;
    *out_match =
        (serve_added_match_t){token, token->lstrip ? strip_left(text, start, taken) : start,
                              token->rstrip ? strip_right(text, stop, size) : stop};
    *inout_at = at;
    return true;
  }
  *inout_at = at;
  return false;
}
