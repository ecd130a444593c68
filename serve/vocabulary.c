// SPDX-License-Identifier: Apache-2.0
// vocabulary.c: see vocabulary.h.
#include "serve/vocabulary.h"

#include <string.h>

#include "serve/unicode.h"

qn_status_t serve_vocabulary_add(const qn_allocator_t* allocator, serve_vocabulary_t* vocabulary,
                                 const char* text, size_t size, uint64_t id) {
  if (id > SERVE_MAX_TOKEN_ID) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "token '%.*s' has id %ju, the largest is %d",
                          (int)(size < 64 ? size : 64), text, (uintmax_t)id, SERVE_MAX_TOKEN_ID);
  }
  void* tokens = vocabulary->tokens;
  if (!serve_grow(allocator, &tokens, &vocabulary->capacity, (size_t)id + 1,
                  sizeof *vocabulary->tokens)) {
    return serve_no_memory("a vocabulary");
  }
  vocabulary->tokens = tokens;
  while (vocabulary->limit <= id) vocabulary->tokens[vocabulary->limit++] = (serve_token_t){0};
  serve_token_t* token = &vocabulary->tokens[id];
  if (token->is_there) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "two tokens have the id %ju", (uintmax_t)id);
  }
  *token = (serve_token_t){vocabulary->texts.size, (uint32_t)size, true};
  if (size > UINT32_MAX || !serve_bytes_append(allocator, &vocabulary->texts, text, size)) {
    return serve_no_memory("a vocabulary");
  }
  return QN_OK;
}

// Returns the size without the white space at the end of valid UTF-8.
static size_t trim_end(const char* text, size_t size) {
  const uint8_t* bytes = (const uint8_t*)text;
  while (size > 0) {
    size_t at = size - 1;
    while (at > 0 && (bytes[at] & 0xC0) == 0x80) at--;
    uint32_t code_point;
    bool is_valid;
    (void)serve_utf8_read(bytes + at, bytes + size, &code_point, &is_valid);
    if (!(serve_unicode_kind(code_point)->flags & SERVE_UNICODE_SPACE)) break;
    size = at;
  }
  return size;
}

qn_status_t serve_vocabulary_add_lines(const qn_allocator_t* allocator,
                                       serve_vocabulary_t* vocabulary, const char* text,
                                       size_t size) {
  const size_t valid = serve_utf8_check(text, size);
  if (valid < size) {
    return qn_status_make(QN_STATUS_SYNTAX, "byte %zu is not UTF-8", valid);
  }
  uint64_t id = 0;
  for (size_t at = 0; at < size; id++) {
    const char* line = text + at;
    const char* end = memchr(line, '\n', size - at);
    const size_t length = end ? (size_t)(end - line) : size - at;
    qn_status_t status =
        serve_vocabulary_add(allocator, vocabulary, line, trim_end(line, length), id);
    if (!qn_ok(status)) return status;
    at += length + 1;
  }
  return QN_OK;
}

static qn_status_t build_trie(const qn_allocator_t* allocator, serve_vocabulary_t* vocabulary) {
  serve_trie_key_t* keys = serve_new(allocator, vocabulary->limit, sizeof *keys);
  if (!keys) return serve_no_memory("a vocabulary");
  size_t count = 0;
  for (size_t id = 0; id < vocabulary->limit; id++) {
    serve_token_t* token = &vocabulary->tokens[id];
    if (!token->is_there) continue;
    keys[count++] =
        (serve_trie_key_t){vocabulary->texts.data + token->at, token->size, (int32_t)id};
    token->is_there = false;
  }
  serve_trie_sort(keys, &count);
  for (size_t i = 0; i < count; i++) vocabulary->tokens[keys[i].value].is_there = true;
  vocabulary->count = count;
  qn_status_t status = serve_trie_build(allocator, keys, count, &vocabulary->trie);
  serve_delete(allocator, keys, vocabulary->limit, sizeof *keys);
  return status;
}

static bool walk(const serve_trie_t* trie, const char* text, size_t size, uint32_t* inout_state) {
  for (size_t i = 0; i < size; i++) {
    if (!serve_trie_step(trie, (uint8_t)text[i], inout_state)) return false;
  }
  return true;
}

qn_status_t serve_vocabulary_finish(const qn_allocator_t* allocator, serve_vocabulary_t* vocabulary,
                                    const char* unknown, const char* prefix, uint32_t max_chars) {
  // A pointer into texts that hold nothing is no pointer.
  if (!serve_bytes_append(allocator, &vocabulary->texts, "", 1)) {
    return serve_no_memory("a vocabulary");
  }
  qn_status_t status = build_trie(allocator, vocabulary);
  if (!qn_ok(status)) return status;
  vocabulary->max_chars = max_chars;
  vocabulary->continuation = 0;
  vocabulary->has_continuation =
      walk(&vocabulary->trie, prefix, strlen(prefix), &vocabulary->continuation);
  vocabulary->unknown_id = serve_vocabulary_find(vocabulary, unknown, strlen(unknown));
  if (vocabulary->unknown_id < 0) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "the vocabulary has no unknown token '%s'", unknown);
  }
  return QN_OK;
}

void serve_vocabulary_free(const qn_allocator_t* allocator, serve_vocabulary_t* vocabulary) {
  serve_bytes_free(allocator, &vocabulary->texts);
  serve_delete(allocator, vocabulary->tokens, vocabulary->capacity, sizeof *vocabulary->tokens);
  serve_trie_free(allocator, &vocabulary->trie);
  *vocabulary = (serve_vocabulary_t){0};
}

int32_t serve_vocabulary_find(const serve_vocabulary_t* vocabulary, const char* text, size_t size) {
  uint32_t state = 0;
  if (!walk(&vocabulary->trie, text, size, &state)) return -1;
  return vocabulary->trie.nodes[state].value;
}

const char* serve_vocabulary_text(const serve_vocabulary_t* vocabulary, int32_t id,
                                  size_t* out_size) {
  *out_size = 0;
  if (id < 0 || (size_t)id >= vocabulary->limit || !vocabulary->tokens[id].is_there) return NULL;
  *out_size = vocabulary->tokens[id].size;
  return vocabulary->texts.data + vocabulary->tokens[id].at;
}

uint32_t serve_wordpiece(const serve_vocabulary_t* vocabulary, const uint8_t* word, uint32_t size,
                         serve_piece_t* out_pieces) {
  const serve_trie_t* trie = &vocabulary->trie;
  uint32_t state = 0;
  uint32_t count = 0;
  for (uint32_t start = 0; start < size; state = vocabulary->continuation) {
    serve_piece_t piece = {-1, start, start};
    if (start > 0 && !vocabulary->has_continuation) return 0;
    // A value of the state itself belongs to the prefix alone, which no part of a word is.
    for (uint32_t at = start; at < size && serve_trie_step(trie, word[at], &state);) {
      at++;
      if (trie->nodes[state].value >= 0) {
        piece.id = trie->nodes[state].value;
        piece.stop = at;
      }
    }
    if (piece.id < 0) return 0;
    out_pieces[count++] = piece;
    start = piece.stop;
  }
  return count;
}
