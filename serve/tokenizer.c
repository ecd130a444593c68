// SPDX-License-Identifier: Apache-2.0
// tokenizer.c: opens, completes and closes tokenizers. Read next: encode.c.
#include "serve/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "serve/tokenizer_parts.h"

enum { MAX_FILE_BYTES = 64 << 20 };

// ---- files

qn_status_t serve_folder_read(const qn_allocator_t* allocator, const char* folder, const char* name,
                              serve_bytes_t* out_bytes) {
  *out_bytes = (serve_bytes_t){0};
  serve_bytes_t path = {0};
  qn_status_t status = QN_OK;
  if (!serve_bytes_append(allocator, &path, folder, strlen(folder)) ||
      !serve_bytes_append(allocator, &path, "/", 1) ||
      !serve_bytes_append(allocator, &path, name, strlen(name) + 1)) {
    status = serve_no_memory("a path");
  } else {
    status = serve_file_read(allocator, path.data, MAX_FILE_BYTES, out_bytes);
  }
  serve_bytes_free(allocator, &path);
  return status;
}

qn_status_t serve_config_read(const qn_allocator_t* allocator, const char* folder, const char* name,
                              json_t** out_root) {
  *out_root = NULL;
  serve_bytes_t text;
  qn_status_t status = serve_folder_read(allocator, folder, name, &text);
  if (!qn_ok(status)) return status;
  json_error_t error;
  json_t* root = json_loadb(text.size ? text.data : "", text.size, JSON_ALLOW_NUL, &error);
  serve_bytes_free(allocator, &text);
  if (root == NULL && json_error_code(&error) == json_error_out_of_memory) {
    return serve_no_memory(name);
  }
  if (root == NULL) {
    return qn_status_make(QN_STATUS_SYNTAX, "'%s/%s' line %d: %s", folder, name, error.line,
                          error.text);
  }
  if (!json_is_object(root)) {
    json_decref(root);
    return qn_status_make(QN_STATUS_SYNTAX, "'%s/%s' is not a JSON object", folder, name);
  }
  *out_root = root;
  return QN_OK;
}

qn_status_t serve_config_bool(const json_t* object, const char* key, bool default_value,
                              bool* out_value) {
  const json_t* member = json_object_get(object, key);
  *out_value = default_value;
  if (member == NULL || json_is_null(member)) return QN_OK;
  if (!json_is_boolean(member)) {
    return qn_status_make(QN_STATUS_SYNTAX, "'%s' is neither true nor false", key);
  }
  *out_value = json_is_true(member);
  return QN_OK;
}

qn_status_t serve_config_text(const json_t* object, const char* key, const char* default_value,
                              const char** out_value) {
  const json_t* member = json_object_get(object, key);
  *out_value = default_value;
  if ((member == NULL || json_is_null(member)) && default_value) return QN_OK;
  if (!json_is_string(member) || strlen(json_string_value(member)) != json_string_length(member)) {
    return qn_status_make(QN_STATUS_SYNTAX, "'%s' is not a string", key);
  }
  *out_value = json_string_value(member);
  return QN_OK;
}

// ---- parts

qn_status_t serve_specials_add(serve_specials_t* specials, int32_t id) {
  if (specials->count == SERVE_MAX_SPECIAL) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "more than %d special tokens at one end of a text",
                          SERVE_MAX_SPECIAL);
  }
  specials->ids[specials->count++] = id;
  return QN_OK;
}

qn_status_t serve_tokenizer_add(serve_tokenizer_t* tokenizer, const serve_added_token_t* token,
                                int64_t expected_id) {
  int32_t id;
  qn_status_t status = serve_added_tokens_add(&tokenizer->allocator, &tokenizer->added,
                                              &tokenizer->vocabulary, token, &id);
  if (qn_ok(status) && expected_id >= 0 && id >= 0 && id != expected_id) {
    status = qn_status_make(QN_STATUS_UNSUPPORTED,
                            "added token '%.*s' has id %jd, but after this vocabulary it gets %d",
                            (int)(token->size < 64 ? token->size : 64), token->content,
                            (intmax_t)expected_id, id);
  }
  return status;
}

static bool ignore_word(void* self, const serve_word_t* word) {
  (void)self;
  (void)word;
  return true;
}

// Makes the patterns of the added tokens that match normalised text.
static qn_status_t normalize_added(serve_tokenizer_t* tokenizer) {
  const qn_allocator_t* allocator = &tokenizer->allocator;
  serve_words_t words;
  serve_words_init(&words, allocator, &tokenizer->normalizer, 0, ignore_word, NULL);
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < tokenizer->added.count && qn_ok(status); i++) {
    serve_added_token_t* token = &tokenizer->added.tokens[i];
    if (!token->normalized) continue;
    serve_words_begin(&words, false);
    serve_words_normalize(&words, (const uint8_t*)token->content, token->size);
    token->pattern_size = words.normalized.size;
    token->pattern = words.is_out_of_memory ? NULL : serve_new(allocator, token->pattern_size, 1);
    if (token->pattern == NULL) {
      status = serve_no_memory("added tokens");
    } else if (token->pattern_size > 0) {
      memcpy(token->pattern, words.normalized.text, token->pattern_size);
    }
  }
  serve_words_deinit(&words);
  return status;
}

qn_status_t serve_tokenizer_finish(serve_tokenizer_t* tokenizer) {
  serve_normalizer_init(&tokenizer->normalizer);
  qn_status_t status = normalize_added(tokenizer);
  if (!qn_ok(status)) return status;
  return serve_added_tokens_finish(&tokenizer->allocator, &tokenizer->added);
}

// ---- open and close

qn_status_t serve_tokenizer_open(const char* folder, const qn_allocator_t* allocator,
                                 serve_tokenizer_t** out_tokenizer) {
  *out_tokenizer = NULL;
  const qn_allocator_t chosen = allocator ? *allocator : qn_allocator_default();
  serve_tokenizer_t* tokenizer = serve_new(&chosen, 1, sizeof *tokenizer);
  if (tokenizer == NULL) return serve_no_memory("a tokenizer");
  *tokenizer = (serve_tokenizer_t){.allocator = chosen};
  json_t* root;
  qn_status_t status = serve_config_read(&chosen, folder, "tokenizer.json", &root);
  if (qn_ok(status)) {
    status = serve_tokenizer_read_json(tokenizer, root);
    json_decref(root);
    if (!qn_ok(status)) status = qn_status_annotate(status, "'%s/tokenizer.json'", folder);
  } else if (qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    qn_status_free(status);
    status = serve_tokenizer_read_vocab(tokenizer, folder);
  }
  if (!qn_ok(status)) {
    serve_tokenizer_close(tokenizer);
    return status;
  }
  *out_tokenizer = tokenizer;
  return QN_OK;
}

void serve_tokenizer_close(serve_tokenizer_t* tokenizer) {
  if (tokenizer == NULL) return;
  const qn_allocator_t allocator = tokenizer->allocator;
  serve_vocabulary_free(&allocator, &tokenizer->vocabulary);
  serve_added_tokens_free(&allocator, &tokenizer->added);
  serve_bytes_free(&allocator, &tokenizer->decoder_prefix);
  serve_delete(&allocator, tokenizer, 1, sizeof *tokenizer);
}

// ---- queries

const char* serve_token_text(const serve_tokenizer_t* tokenizer, int32_t id, size_t* out_size) {
  const serve_added_token_t* token = serve_added_tokens_of_id(&tokenizer->added, id);
  if (token == NULL) return serve_vocabulary_text(&tokenizer->vocabulary, id, out_size);
  *out_size = token->pattern ? token->pattern_size : token->size;
  return token->pattern ? token->pattern : token->content;
}

int32_t serve_token_id(const serve_tokenizer_t* tokenizer, const char* text, size_t size) {
  const serve_added_token_t* token = serve_added_tokens_find(&tokenizer->added, text, size);
  return token ? token->id : serve_vocabulary_find(&tokenizer->vocabulary, text, size);
}

size_t serve_token_limit(const serve_tokenizer_t* tokenizer) {
  const serve_added_tokens_t* added = &tokenizer->added;
  const size_t last = added->count ? (size_t)added->tokens[added->count - 1].id + 1 : 0;
  return last > tokenizer->vocabulary.limit ? last : tokenizer->vocabulary.limit;
}

uint32_t serve_special_count(const serve_tokenizer_t* tokenizer) {
  return tokenizer->before.count + tokenizer->after.count;
}
