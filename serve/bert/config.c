// SPDX-License-Identifier: Apache-2.0
// serve/bert/config.c: reads the fields of a table from each file, and refuses what changes the
// result in a way that the encoder does not compute.
#include "serve/bert/config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "serve/bert/try.h"
#include "serve/memory.h"

enum { MAX_FILE_BYTES = 4 << 20, PATH_BYTES = 4096 };

// A file that was read.
typedef struct document {
  char path[PATH_BYTES];  // for messages
  json_t* root;           // an object or an array; NULL: there is no such file
} document_t;

// Reads FOLDER/NAME. A file that is missing gives NOT_FOUND if `is_needed`.
static qn_status_t open_document(const char* folder, const char* name, bool is_needed,
                                 document_t* out_document) {
  out_document->root = NULL;
  if (snprintf(out_document->path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%.100s...': the path is too long", folder);
  }
  const qn_allocator_t allocator = qn_allocator_default();
  serve_bytes_t bytes;
  qn_status_t status = serve_file_read(&allocator, out_document->path, MAX_FILE_BYTES, &bytes);
  if (qn_status_code(status) == QN_STATUS_NOT_FOUND && !is_needed) {
    qn_status_free(status);
    return QN_OK;
  }
  BERT_TRY(status);
  json_error_t error;
  out_document->root =
      json_loadb(bytes.size > 0 ? bytes.data : "", bytes.size, JSON_REJECT_DUPLICATES, &error);
  serve_bytes_free(&allocator, &bytes);
  if (out_document->root) return QN_OK;
  return qn_status_make(QN_STATUS_SYNTAX, "%s: line %d: %s", out_document->path, error.line,
                        error.text);
}

// Makes VALUE_ERROR for a field: what it is and what was expected.
static qn_status_t refuse(const document_t* document, const char* field, const json_t* value,
                          const char* expected) {
  char* text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  qn_status_t status = qn_status_make(QN_STATUS_VALUE_ERROR, "%s: %s is %.60s, expected %s",
                                      document->path, field, text ? text : "missing", expected);
  free(text);
  return status;
}

// ------------------------------------------------------------------------------------ config.json

// The sizes that config.json has, and their bounds, beyond which products of them would overflow.
static const struct {
  const char* field;
  size_t offset;
  int64_t fallback;  // 0: the field is needed
  int64_t max;
} sizes[] = {
    {"num_hidden_layers", offsetof(bert_config_t, layers), 0, 1024},
    {"hidden_size", offsetof(bert_config_t, width), 0, 1 << 16},
    {"num_attention_heads", offsetof(bert_config_t, heads), 0, 1 << 12},
    {"intermediate_size", offsetof(bert_config_t, inner_width), 0, 1 << 18},
    {"vocab_size", offsetof(bert_config_t, vocabulary), 0, 1 << 24},
    {"max_position_embeddings", offsetof(bert_config_t, positions), 0, 1 << 20},
    {"type_vocab_size", offsetof(bert_config_t, token_types), 2, 1 << 10},
};

static qn_status_t read_sizes(const document_t* document, bert_config_t* config) {
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    const json_t* value = json_object_get(document->root, sizes[i].field);
    int64_t number = value ? 0 : sizes[i].fallback;
    if (json_is_integer(value)) number = json_integer_value(value);
    if (number < 1 || number > sizes[i].max) {
      char expected[64];
      (void)snprintf(expected, sizeof expected, "an integer from 1 to %lld",
                     (long long)sizes[i].max);
      return refuse(document, sizes[i].field, value, expected);
    }
    memcpy((char*)config + sizes[i].offset, &number, sizeof number);
  }
  if (config->width % config->heads != 0) {
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "%s: hidden_size is %lld, expected a multiple of num_attention_heads, "
                          "which is %lld",
                          document->path, (long long)config->width, (long long)config->heads);
  }
  return QN_OK;
}

static const struct {
  const char* text;
  bert_activation_t activation;
} activations[] = {
    {"gelu", BERT_GELU},           {"gelu_python", BERT_GELU},
    {"gelu_new", BERT_GELU_TANH},  {"gelu_pytorch_tanh", BERT_GELU_TANH},
    {"gelu_fast", BERT_GELU_TANH}, {"relu", BERT_RELU},
};

static qn_status_t read_activation(const document_t* document, bert_config_t* config) {
  const json_t* value = json_object_get(document->root, "hidden_act");
  const char* text = value ? json_string_value(value) : "gelu";
  for (size_t i = 0; text && i < sizeof activations / sizeof activations[0]; ++i) {
    if (strcmp(activations[i].text, text) != 0) continue;
    config->activation = activations[i].activation;
    return QN_OK;
  }
  if (!text) return refuse(document, "hidden_act", value, "a text");
  return qn_status_make(QN_STATUS_UNSUPPORTED,
                        "%s: hidden_act '%.40s' is not supported; gelu, gelu_new, "
                        "gelu_pytorch_tanh, gelu_fast and relu are",
                        document->path, text);
}

// Refuses a field that is there and is not the one text that is supported.
static qn_status_t check_text(const document_t* document, const char* field, const char* only) {
  const json_t* value = json_object_get(document->root, field);
  if (!value || json_is_null(value)) return QN_OK;
  const char* text = json_string_value(value);
  if (!text) return refuse(document, field, value, "a text");
  if (strcmp(text, only) == 0) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED, "%s: %s '%.40s' is not supported; '%s' is",
                        document->path, field, text, only);
}

static qn_status_t read_encoder(const document_t* document, bert_config_t* config) {
  if (!json_is_object(document->root)) {
    return qn_status_make(QN_STATUS_SYNTAX, "%s: expected an object", document->path);
  }
  BERT_TRY(check_text(document, "model_type", "bert"));
  BERT_TRY(check_text(document, "position_embedding_type", "absolute"));
  if (json_is_true(json_object_get(document->root, "is_decoder"))) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "%s: is_decoder is true; only encoders are "
                          "supported",
                          document->path);
  }
  BERT_TRY(read_sizes(document, config));
  BERT_TRY(read_activation(document, config));
  const json_t* epsilon = json_object_get(document->root, "layer_norm_eps");
  config->norm_epsilon = epsilon ? json_number_value(epsilon) : 1e-12;
  if (!(config->norm_epsilon > 0 && config->norm_epsilon < 1)) {
    return refuse(document, "layer_norm_eps", epsilon, "a number between 0 and 1");
  }
  config->max_tokens = config->positions;
  return QN_OK;
}

// ------------------------------------------------------------------------------------ pooling

static const struct {
  const char* field;
  bert_pooling_t pooling;
  bool is_supported;
} poolings[] = {
    {"pooling_mode_mean_tokens", BERT_POOLING_MEAN, true},
    {"pooling_mode_cls_token", BERT_POOLING_CLS, true},
    {"pooling_mode_max_tokens", BERT_POOLING_MEAN, false},
    {"pooling_mode_mean_sqrt_len_tokens", BERT_POOLING_MEAN, false},
    {"pooling_mode_weightedmean_tokens", BERT_POOLING_MEAN, false},
    {"pooling_mode_lasttoken", BERT_POOLING_MEAN, false},
};

static qn_status_t read_pooling(const document_t* document, bert_config_t* config) {
  if (!json_is_object(document->root)) {
    return qn_status_make(QN_STATUS_SYNTAX, "%s: expected an object", document->path);
  }
  const json_t* width = json_object_get(document->root, "word_embedding_dimension");
  if (width && json_integer_value(width) != config->width) {
    char expected[64];
    (void)snprintf(expected, sizeof expected, "hidden_size, which is %lld",
                   (long long)config->width);
    return refuse(document, "word_embedding_dimension", width, expected);
  }
  size_t count = 0;
  for (size_t i = 0; i < sizeof poolings / sizeof poolings[0]; ++i) {
    if (!json_is_true(json_object_get(document->root, poolings[i].field))) continue;
    if (!poolings[i].is_supported) {
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "%s: %s is not supported; pooling_mode_mean_tokens and "
                            "pooling_mode_cls_token are",
                            document->path, poolings[i].field);
    }
    config->pooling = poolings[i].pooling;
    ++count;
  }
  if (count == 1) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED,
                        "%s: %zu modes are true, expected one of pooling_mode_mean_tokens and "
                        "pooling_mode_cls_token",
                        document->path, count);
}

// What sentence-transformers runs one after another. Normalize is left to requests, which ask for
// it or not.
typedef enum module_kind { MODULE_TRANSFORMER, MODULE_POOLING, MODULE_NORMALIZE } module_kind_t;

static const char* const module_kinds[] = {
    [MODULE_TRANSFORMER] = "Transformer",
    [MODULE_POOLING] = "Pooling",
    [MODULE_NORMALIZE] = "Normalize",
};

static qn_status_t read_module(const document_t* document, const json_t* module,
                               char pooling_folder[256]) {
  const char* type = json_string_value(json_object_get(module, "type"));
  const char* path = json_string_value(json_object_get(module, "path"));
  if (!type || !path) {
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "%s: expected a list of objects with type and path", document->path);
  }
  const char* dot = strrchr(type, '.');
  const char* name = dot ? dot + 1 : type;
  size_t kind = 0;
  while (kind < sizeof module_kinds / sizeof module_kinds[0] &&
         strcmp(name, module_kinds[kind]) != 0) {
    ++kind;
  }
  if (kind == sizeof module_kinds / sizeof module_kinds[0]) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "%s: module '%.80s' is not supported; Transformer, Pooling and "
                          "Normalize are",
                          document->path, type);
  }
  if (kind == MODULE_TRANSFORMER && path[0] != '\0') {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "%s: the Transformer is in '%.80s'; give a folder that has it itself",
                          document->path, path);
  }
  if (kind != MODULE_POOLING) return QN_OK;
  if (strstr(path, "..") || path[0] == '/' || strlen(path) > 200) {
    return qn_status_make(QN_STATUS_VALUE_ERROR, "%s: path '%.80s', expected a folder inside",
                          document->path, path);
  }
  (void)snprintf(pooling_folder, 256, "%s/config.json", path);
  return QN_OK;
}

static qn_status_t read_modules(const document_t* document, char pooling_folder[256]) {
  if (!json_is_array(document->root)) {
    return qn_status_make(QN_STATUS_SYNTAX, "%s: expected an array", document->path);
  }
  pooling_folder[0] = '\0';
  for (size_t i = 0; i < json_array_size(document->root); ++i) {
    BERT_TRY(read_module(document, json_array_get(document->root, i), pooling_folder));
  }
  if (pooling_folder[0]) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED, "%s: there is no Pooling; its results are expected",
                        document->path);
}

// ------------------------------------------------------------------------------------ lengths

static qn_status_t read_length(const document_t* document, bert_config_t* config) {
  const json_t* value = json_object_get(document->root, "max_seq_length");
  if (!value || json_is_null(value)) return QN_OK;
  const int64_t length = json_is_integer(value) ? json_integer_value(value) : 0;
  if (length < 1) return refuse(document, "max_seq_length", value, "an integer from 1, or null");
  if (length < config->max_tokens) config->max_tokens = length;
  return QN_OK;
}

// ------------------------------------------------------------------------------------ the folder

qn_status_t bert_config_read(const char* folder, bert_config_t* out_config) {
  *out_config = (bert_config_t){.pooling = BERT_POOLING_MEAN};
  char pooling_file[256] = "1_Pooling/config.json";
  document_t document;
  qn_status_t status = open_document(folder, "config.json", true, &document);
  if (qn_ok(status)) status = read_encoder(&document, out_config);
  json_decref(document.root);

  bool has_modules = false;
  if (qn_ok(status)) {
    status = open_document(folder, "modules.json", false, &document);
    has_modules = document.root != NULL;
    if (qn_ok(status) && has_modules) status = read_modules(&document, pooling_file);
    json_decref(document.root);
  }
  if (qn_ok(status)) {
    status = open_document(folder, pooling_file, has_modules, &document);
    if (qn_ok(status) && document.root) status = read_pooling(&document, out_config);
    json_decref(document.root);
  }
  if (qn_ok(status)) {
    status = open_document(folder, "sentence_bert_config.json", false, &document);
    if (qn_ok(status) && document.root) status = read_length(&document, out_config);
    json_decref(document.root);
  }
  return status;
}

const char* bert_pooling_text(bert_pooling_t pooling) {
  return pooling == BERT_POOLING_CLS ? "cls" : "mean";
}
