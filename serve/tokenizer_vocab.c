// SPDX-License-Identifier: Apache-2.0
// tokenizer_vocab.c: reads vocab.txt and tokenizer_config.json, of folders without tokenizer.json.
//
// The rules are those of BertTokenizer in the package transformers, which makes a tokenizer of
// `tokenizers` from the two files.
#include <string.h>

#include "serve/tokenizer_parts.h"

static const char vocab_name[] = "vocab.txt";
static const char config_name[] = "tokenizer_config.json";

static bool is_supported_class(const char* name) {
  static const char* const classes[] = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"};
  for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
    const size_t size = strlen(classes[i]);
    if (strncmp(name, classes[i], size) != 0) continue;
    if (name[size] == '\0' || strcmp(name + size, "Fast") == 0) return true;
  }
  return false;
}

// The text of a special token: a string, or an object with the member "content".
static qn_status_t special_text(const json_t* config, const char* key, const char* default_value,
                                const char** out_text) {
  const json_t* member = json_object_get(config, key);
  if (json_is_object(member)) return serve_config_text(member, "content", NULL, out_text);
  return serve_config_text(config, key, default_value, out_text);
}

static qn_status_t add_special(serve_tokenizer_t* tokenizer, const json_t* config, const char* key,
                               const char* text) {
  const json_t* member = json_object_get(config, key);
  serve_added_token_t token = {.size = strlen(text), .special = true};
  qn_status_t status = QN_OK;
  if (json_is_object(member)) {
    status = serve_config_bool(member, "single_word", false, &token.single_word);
    if (qn_ok(status)) status = serve_config_bool(member, "lstrip", false, &token.lstrip);
    if (qn_ok(status)) status = serve_config_bool(member, "rstrip", false, &token.rstrip);
    if (qn_ok(status)) status = serve_config_bool(member, "normalized", false, &token.normalized);
  }
  serve_bytes_t copied = {0};
  if (qn_ok(status) && !serve_bytes_append(&tokenizer->allocator, &copied, text, token.size)) {
    status = serve_no_memory("special tokens");
  }
  token.content = copied.data;
  // A special token that the model lacks is no row of its embedding table.
  if (qn_ok(status) && serve_vocabulary_find(&tokenizer->vocabulary, text, token.size) >= 0) {
    status = serve_tokenizer_add(tokenizer, &token, -1);
  }
  serve_bytes_free(&tokenizer->allocator, &copied);
  return status;
}

static qn_status_t read_specials(serve_tokenizer_t* tokenizer, const json_t* config) {
  static const struct {
    const char* key;
    const char* text;
  } tokens[] = {{"unk_token", "[UNK]"},
                {"sep_token", "[SEP]"},
                {"pad_token", "[PAD]"},
                {"cls_token", "[CLS]"},
                {"mask_token", "[MASK]"}};
  for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
    const char* text;
    qn_status_t status = special_text(config, tokens[i].key, tokens[i].text, &text);
    if (qn_ok(status)) status = add_special(tokenizer, config, tokens[i].key, text);
    if (!qn_ok(status)) return status;
    const bool is_first = strcmp(tokens[i].key, "cls_token") == 0;
    if (!is_first && strcmp(tokens[i].key, "sep_token") != 0) continue;
    const int32_t id = serve_vocabulary_find(&tokenizer->vocabulary, text, strlen(text));
    if (id < 0) {
      return qn_status_make(QN_STATUS_NOT_FOUND, "the vocabulary has no '%s' (%s)", text,
                            tokens[i].key);
    }
    status = serve_specials_add(is_first ? &tokenizer->before : &tokenizer->after, id);
    if (!qn_ok(status)) return status;
  }
  return QN_OK;
}

static qn_status_t read_config(serve_tokenizer_t* tokenizer, const json_t* config) {
  serve_normalizer_t* to = &tokenizer->normalizer;
  const char* class_name;
  bool is_split = true;
  qn_status_t status = serve_config_text(config, "tokenizer_class", "BertTokenizer", &class_name);
  if (!qn_ok(status)) return status;
  if (!is_supported_class(class_name)) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "tokenizer_class '%s' without a tokenizer.json is not supported; "
                          "supported: BertTokenizer, DistilBertTokenizer, ElectraTokenizer",
                          class_name);
  }
  to->clean_text = true;
  status = serve_config_bool(config, "do_basic_tokenize", true, &is_split);
  if (qn_ok(status)) status = serve_config_bool(config, "do_lower_case", true, &to->lowercase);
  if (qn_ok(status)) {
    status = serve_config_bool(config, "strip_accents", to->lowercase, &to->strip_accents);
  }
  if (qn_ok(status)) {
    status = serve_config_bool(config, "tokenize_chinese_chars", true, &to->handle_chinese_chars);
  }
  const json_t* never_split = json_object_get(config, "never_split");
  if (qn_ok(status) && (!is_split || json_array_size(never_split) > 0)) {
    status = qn_status_make(QN_STATUS_UNSUPPORTED,
                            "do_basic_tokenize false and never_split are not supported");
  }
  return status;
}

static qn_status_t read_vocabulary(serve_tokenizer_t* tokenizer, const char* folder,
                                   const char* unknown) {
  const qn_allocator_t* allocator = &tokenizer->allocator;
  serve_bytes_t text;
  qn_status_t status = serve_folder_read(allocator, folder, vocab_name, &text);
  if (qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    qn_status_free(status);
    return qn_status_make(QN_STATUS_NOT_FOUND, "'%s' has neither tokenizer.json nor vocab.txt",
                          folder);
  }
  if (!qn_ok(status)) return status;
  status = serve_vocabulary_add_lines(allocator, &tokenizer->vocabulary, text.data, text.size);
  serve_bytes_free(allocator, &text);
  if (qn_ok(status)) {
    status = serve_vocabulary_finish(allocator, &tokenizer->vocabulary, unknown, "##", 100);
  }
  if (!qn_ok(status)) status = qn_status_annotate(status, "'%s/%s'", folder, vocab_name);
  return status;
}

qn_status_t serve_tokenizer_read_vocab(serve_tokenizer_t* tokenizer, const char* folder) {
  json_t* config;
  qn_status_t status = serve_config_read(&tokenizer->allocator, folder, config_name, &config);
  if (qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    qn_status_free(status);
    config = json_object();
    status = config ? QN_OK : serve_no_memory(config_name);
  }
  if (!qn_ok(status)) return status;
  tokenizer->decodes_wordpiece = true;
  tokenizer->cleans_up = true;
  const char* unknown = NULL;
  status = read_config(tokenizer, config);
  if (qn_ok(status)) status = special_text(config, "unk_token", "[UNK]", &unknown);
  if (!qn_ok(status)) status = qn_status_annotate(status, "'%s/%s'", folder, config_name);
  if (qn_ok(status)) status = read_vocabulary(tokenizer, folder, unknown);
  if (qn_ok(status)) {
    status = read_specials(tokenizer, config);
    if (!qn_ok(status)) status = qn_status_annotate(status, "'%s'", folder);
  }
  if (qn_ok(status) &&
      !serve_bytes_append(&tokenizer->allocator, &tokenizer->decoder_prefix, "##", 2)) {
    status = serve_no_memory("a decoder");
  }
  if (qn_ok(status)) status = serve_tokenizer_finish(tokenizer);
  json_decref(config);
  return status;
}
