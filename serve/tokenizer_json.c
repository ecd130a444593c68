// SPDX-License-Identifier: Apache-2.0
// tokenizer_json.c: reads tokenizer.json, the file of the package `tokenizers`.
//
// The section "model" is a WordPiece vocabulary; the others name what happens before and after it.
// Sections of kinds that this code does not have are refused, never ignored: other tokens than the
// model was trained with give embeddings that look right and are wrong.
#include <string.h>

#include "serve/tokenizer_parts.h"

static qn_status_t not_supported(const char* section, const json_t* part, const char* supported) {
  const json_t* type = json_object_get(part, "type");
  const char* name = json_is_string(type) ? json_string_value(type) : "without a type";
  return qn_status_make(QN_STATUS_UNSUPPORTED, "the %s '%s' is not supported; supported: %s",
                        section, name, supported);
}

static bool has_type(const json_t* part, const char* type) {
  const json_t* member = json_object_get(part, "type");
  return json_is_string(member) && strcmp(json_string_value(member), type) == 0;
}

// ---- model

static qn_status_t read_tokens(serve_tokenizer_t* tokenizer, json_t* tokens) {
  if (!json_is_object(tokens)) {
    return qn_status_make(QN_STATUS_SYNTAX, "'vocab' of the model is not an object");
  }
  const char* text;
  json_t* id;
  json_object_foreach(tokens, text, id) {
    if (!json_is_integer(id) || json_integer_value(id) < 0) {
      return qn_status_make(QN_STATUS_SYNTAX, "the id of token '%s' is no natural number", text);
    }
    qn_status_t status = serve_vocabulary_add(&tokenizer->allocator, &tokenizer->vocabulary, text,
                                              strlen(text), (uint64_t)json_integer_value(id));
    if (!qn_ok(status)) return status;
  }
  return QN_OK;
}

static qn_status_t read_model(serve_tokenizer_t* tokenizer, const json_t* model) {
  // Files of 2020 have no type; `tokenizers` then knows WordPiece by its members.
  const bool is_untyped = json_is_object(model) && !json_object_get(model, "type") &&
                          json_object_get(model, "max_input_chars_per_word");
  if (!has_type(model, "WordPiece") && !is_untyped) {
    return not_supported("model", model, "WordPiece");
  }
  const char* unknown;
  const char* prefix;
  qn_status_t status = serve_config_text(model, "unk_token", NULL, &unknown);
  if (qn_ok(status)) status = serve_config_text(model, "continuing_subword_prefix", NULL, &prefix);
  if (!qn_ok(status)) return status;
  const json_t* limit = json_object_get(model, "max_input_chars_per_word");
  const json_int_t chars = json_integer_value(limit);
  if (!json_is_integer(limit) || chars < 0 || chars > SERVE_MAX_WORD_CHARS) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "'max_input_chars_per_word' is not an integer from 0 to %d",
                          SERVE_MAX_WORD_CHARS);
  }
  status = read_tokens(tokenizer, json_object_get(model, "vocab"));
  if (!qn_ok(status)) return status;
  return serve_vocabulary_finish(&tokenizer->allocator, &tokenizer->vocabulary, unknown, prefix,
                                 (uint32_t)chars);
}

// ---- normalizer and pre_tokenizer

static qn_status_t read_normalizer(serve_tokenizer_t* tokenizer, const json_t* part) {
  serve_normalizer_t* to = &tokenizer->normalizer;
  if (!has_type(part, "BertNormalizer")) return not_supported("normalizer", part, "BertNormalizer");
  qn_status_t status = serve_config_bool(part, "clean_text", true, &to->clean_text);
  if (qn_ok(status)) {
    status = serve_config_bool(part, "handle_chinese_chars", true, &to->handle_chinese_chars);
  }
  if (qn_ok(status)) status = serve_config_bool(part, "lowercase", true, &to->lowercase);
  // Absent or null: as lowercase.
  if (qn_ok(status)) {
    status = serve_config_bool(part, "strip_accents", to->lowercase, &to->strip_accents);
  }
  return status;
}

// ---- post_processor

// The pair ["[SEP]", 102].
static qn_status_t read_pair(const json_t* part, const char* key, serve_specials_t* specials) {
  const json_t* id = json_array_get(json_object_get(part, key), 1);
  if (!json_is_integer(id) || json_integer_value(id) < 0 ||
      json_integer_value(id) > SERVE_MAX_TOKEN_ID) {
    return qn_status_make(QN_STATUS_SYNTAX, "'%s' of the post_processor has no id", key);
  }
  return serve_specials_add(specials, (int32_t)json_integer_value(id));
}

static qn_status_t read_special(const json_t* part, const json_t* piece,
                                serve_specials_t* specials) {
  const char* name;
  qn_status_t status = serve_config_text(piece, "id", NULL, &name);
  if (!qn_ok(status)) return status;
  const json_t* ids =
      json_object_get(json_object_get(json_object_get(part, "special_tokens"), name), "ids");
  if (!json_is_array(ids)) {
    return qn_status_make(QN_STATUS_SYNTAX, "the post_processor has no ids of '%s'", name);
  }
  for (size_t i = 0; i < json_array_size(ids) && qn_ok(status); i++) {
    const json_t* id = json_array_get(ids, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) > SERVE_MAX_TOKEN_ID) {
      return qn_status_make(QN_STATUS_SYNTAX, "an id of '%s' is not one of a token", name);
    }
    status = serve_specials_add(specials, (int32_t)json_integer_value(id));
  }
  return status;
}

static qn_status_t read_template(serve_tokenizer_t* tokenizer, const json_t* part) {
  const json_t* single = json_object_get(part, "single");
  serve_specials_t* side = &tokenizer->before;
  uint32_t text_count = 0;
  for (size_t i = 0; i < json_array_size(single); i++) {
    const json_t* piece = json_array_get(single, i);
    const json_t* special = json_object_get(piece, "SpecialToken");
    const json_t* text = json_object_get(piece, "Sequence");
    const json_t* type = json_object_get(special ? special : text, "type_id");
    if ((special == NULL) == (text == NULL) || json_integer_value(type) != 0) {
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "piece %zu of the post_processor's template is neither a special token "
                            "nor the text, or has a type_id",
                            i);
    }
    if (text) {
      side = &tokenizer->after;
      text_count++;
      continue;
    }
    qn_status_t status = read_special(part, special, side);
    if (!qn_ok(status)) return status;
  }
  if (text_count != 1) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "the post_processor's template has %u texts",
                          text_count);
  }
  return QN_OK;
}

static qn_status_t read_post_processor(serve_tokenizer_t* tokenizer, const json_t* part) {
  if (part == NULL || json_is_null(part)) return QN_OK;
  if (has_type(part, "TemplateProcessing")) return read_template(tokenizer, part);
  const bool is_roberta = has_type(part, "RobertaProcessing");
  if (!is_roberta && !has_type(part, "BertProcessing")) {
    return not_supported("post_processor", part,
                         "TemplateProcessing, BertProcessing, RobertaProcessing, null");
  }
  qn_status_t status = read_pair(part, "cls", &tokenizer->before);
  if (qn_ok(status)) status = read_pair(part, "sep", &tokenizer->after);
  if (qn_ok(status) && is_roberta) {
    status = serve_config_bool(part, "trim_offsets", true, &tokenizer->trims_offsets);
  }
  if (qn_ok(status) && is_roberta) {
    status = serve_config_bool(part, "add_prefix_space", true, &tokenizer->adds_prefix_space);
  }
  return status;
}

// ---- decoder and added_tokens

static qn_status_t read_decoder(serve_tokenizer_t* tokenizer, const json_t* part) {
  if (part == NULL || json_is_null(part)) return QN_OK;
  if (!has_type(part, "WordPiece")) return not_supported("decoder", part, "WordPiece, null");
  const char* prefix;
  tokenizer->decodes_wordpiece = true;
  qn_status_t status = serve_config_text(part, "prefix", "##", &prefix);
  if (qn_ok(status)) status = serve_config_bool(part, "cleanup", true, &tokenizer->cleans_up);
  if (qn_ok(status) && !serve_bytes_append(&tokenizer->allocator, &tokenizer->decoder_prefix,
                                           prefix, strlen(prefix))) {
    status = serve_no_memory("a decoder");
  }
  return status;
}

static qn_status_t read_added(serve_tokenizer_t* tokenizer, const json_t* part) {
  const json_t* content = json_object_get(part, "content");
  const json_t* id = json_object_get(part, "id");
  if (!json_is_string(content) || !json_is_integer(id)) {
    return qn_status_make(QN_STATUS_SYNTAX, "an added token has no content or no id");
  }
  serve_added_token_t token = {.size = json_string_length(content)};
  qn_status_t status = serve_config_bool(part, "single_word", false, &token.single_word);
  if (qn_ok(status)) status = serve_config_bool(part, "lstrip", false, &token.lstrip);
  if (qn_ok(status)) status = serve_config_bool(part, "rstrip", false, &token.rstrip);
  if (qn_ok(status)) status = serve_config_bool(part, "special", false, &token.special);
  if (qn_ok(status)) status = serve_config_bool(part, "normalized", true, &token.normalized);
  if (!qn_ok(status)) return status;
  serve_bytes_t copied = {0};
  if (!serve_bytes_append(&tokenizer->allocator, &copied, json_string_value(content), token.size)) {
    return serve_no_memory("added tokens");
  }
  token.content = copied.data;
  status = serve_tokenizer_add(tokenizer, &token, json_integer_value(id));
  serve_bytes_free(&tokenizer->allocator, &copied);
  return status;
}

qn_status_t serve_tokenizer_read_json(serve_tokenizer_t* tokenizer, const json_t* root) {
  const json_t* pre_tokenizer = json_object_get(root, "pre_tokenizer");
  const json_t* added = json_object_get(root, "added_tokens");
  qn_status_t status = read_model(tokenizer, json_object_get(root, "model"));
  if (qn_ok(status)) status = read_normalizer(tokenizer, json_object_get(root, "normalizer"));
  if (qn_ok(status) && !has_type(pre_tokenizer, "BertPreTokenizer")) {
    status = not_supported("pre_tokenizer", pre_tokenizer, "BertPreTokenizer");
  }
  if (qn_ok(status)) {
    status = read_post_processor(tokenizer, json_object_get(root, "post_processor"));
  }
  if (qn_ok(status)) status = read_decoder(tokenizer, json_object_get(root, "decoder"));
  for (size_t i = 0; i < json_array_size(added) && qn_ok(status); i++) {
    status = read_added(tokenizer, json_array_get(added, i));
  }
  return qn_ok(status) ? serve_tokenizer_finish(tokenizer) : status;
}
