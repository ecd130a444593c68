// SPDX-License-Identifier: Apache-2.0
// serve/bert/weights.c: names and shapes of the model's tensors, and where their numbers are.
#include "serve/bert/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/bert/safetensors.h"
#include "serve/bert/try.h"

enum { NAME_BYTES = 96, FULL_NAME_BYTES = 256, PATH_BYTES = 4096 };

struct bert_storage {
  safetensors_t* file;  // NULL if no tensor is in it: seeded weights, all converted
  float** made;         // owned: converted and seeded tensors
  size_t made_count;
};

// ------------------------------------------------------------------------------------ the table

typedef enum extent { NONE, WIDTH, INNER, VOCABULARY, POSITIONS, TYPES } extent_t;

typedef struct bert_row {
  const char* name;
  size_t offset;  // of the field
  extent_t rows;  // NONE: the tensor is a vector
  extent_t columns;
} bert_row_t;

#define EMBEDDING(name, field, rows) \
  {"embeddings." name, offsetof(bert_embeddings_t, field), rows, WIDTH}
static const bert_row_t embedding_rows[] = {
    EMBEDDING("word_embeddings.weight", words, VOCABULARY),
    EMBEDDING("position_embeddings.weight", positions, POSITIONS),
    EMBEDDING("token_type_embeddings.weight", types, TYPES),
    EMBEDDING("LayerNorm.weight", norm.gamma, NONE),
    EMBEDDING("LayerNorm.bias", norm.beta, NONE),
};
#undef EMBEDDING

#define MATRIX(name, field, rows, columns)                                 \
  {name ".weight", offsetof(bert_layer_t, field.weight), rows, columns}, { \
    name ".bias", offsetof(bert_layer_t, field.bias), NONE, rows           \
  }
#define NORM(name, field)                                                         \
  {name ".LayerNorm.weight", offsetof(bert_layer_t, field.gamma), NONE, WIDTH}, { \
    name ".LayerNorm.bias", offsetof(bert_layer_t, field.beta), NONE, WIDTH       \
  }
static const bert_row_t layer_rows[] = {
    MATRIX("attention.self.query", query, WIDTH, WIDTH),
    MATRIX("attention.self.key", key, WIDTH, WIDTH),
    MATRIX("attention.self.value", value, WIDTH, WIDTH),
    MATRIX("attention.output.dense", attention_output, WIDTH, WIDTH),
    NORM("attention.output", attention_norm),
    MATRIX("intermediate.dense", inner, INNER, WIDTH),
    MATRIX("output.dense", outer, WIDTH, INNER),
    NORM("output", output_norm),
};
#undef MATRIX
#undef NORM

enum {
  EMBEDDING_COUNT = sizeof embedding_rows / sizeof embedding_rows[0],
  LAYER_COUNT = sizeof layer_rows / sizeof layer_rows[0],
};

static int64_t extent_of(const bert_config_t* config, extent_t extent) {
  switch (extent) {
    case NONE:
      return 1;
    case WIDTH:
      return config->width;
    case INNER:
      return config->inner_width;
    case VOCABULARY:
      return config->vocabulary;
    case POSITIONS:
      return config->positions;
    case TYPES:
      return config->token_types;
  }
  return 0;
}

static size_t tensor_count(const bert_config_t* config) {
  return EMBEDDING_COUNT + LAYER_COUNT * (size_t)config->layers;
}

bool bert_weights_tensor(bert_weights_t* weights, size_t index, char name[NAME_BYTES],
                         bert_tensor_t* out_tensor) {
  if (index >= tensor_count(&weights->config)) return false;
  const bool is_embedding = index < EMBEDDING_COUNT;
  const size_t layer = is_embedding ? 0 : (index - EMBEDDING_COUNT) / LAYER_COUNT;
  const bert_row_t* row =
      is_embedding ? &embedding_rows[index] : &layer_rows[(index - EMBEDDING_COUNT) % LAYER_COUNT];
  char* base = is_embedding ? (char*)&weights->embeddings : (char*)&weights->layers[layer];
  if (is_embedding) {
    (void)snprintf(name, NAME_BYTES, "%s", row->name);
  } else {
    (void)snprintf(name, NAME_BYTES, "encoder.layer.%zu.%s", layer, row->name);
  }
  const int64_t rows = extent_of(&weights->config, row->rows);
  const int64_t columns = extent_of(&weights->config, row->columns);
  *out_tensor = (bert_tensor_t){.name = name,
                                .rank = row->rows == NONE ? 1 : 2,
                                .shape = {row->rows == NONE ? columns : rows, columns},
                                .data = (const float**)(void*)(base + row->offset)};
  return true;
}

static size_t count_of(const bert_tensor_t* tensor) {
  return (size_t)tensor->shape[0] * (tensor->rank > 1 ? (size_t)tensor->shape[1] : 1);
}

// Makes the layers, without tensors.
static qn_status_t begin(const bert_config_t* config, bert_weights_t* out_weights) {
  *out_weights = (bert_weights_t){.config = *config};
  out_weights->layers = calloc((size_t)config->layers, sizeof *out_weights->layers);
  if (out_weights->layers == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for %lld layers",
                          (long long)config->layers);
  }
  const bert_matrix_t square = {.inputs = config->width, .outputs = config->width};
  for (int64_t i = 0; i < config->layers; ++i) {
    out_weights->layers[i] = (bert_layer_t){
        .query = square,
        .key = square,
        .value = square,
        .attention_output = square,
        .inner = {.inputs = config->width, .outputs = config->inner_width},
        .outer = {.inputs = config->inner_width, .outputs = config->width},
    };
  }
  return QN_OK;
}

static qn_status_t begin_storage(bert_weights_t* weights) {
  bert_storage_t* storage = calloc(1, sizeof *storage);
  weights->storage = storage;
  if (storage != NULL) {
    storage->made = calloc(tensor_count(&weights->config), sizeof *storage->made);
  }
  if (storage == NULL || storage->made == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the weights");
  }
  return QN_OK;
}

// Allocates a tensor that the storage owns.
static qn_status_t make(bert_storage_t* storage, const bert_tensor_t* tensor, float** out_data) {
  float* data = malloc(count_of(tensor) * sizeof *data);
  if (data == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for tensor \"%s\"", tensor->name);
  }
  storage->made[storage->made_count++] = data;
  *tensor->data = data;
  *out_data = data;
  return QN_OK;
}

// ------------------------------------------------------------------------------------ seeds

// splitmix64: any seed gives a good stream, and it is the same on every machine.
static float next_uniform(uint64_t* seed) {
  uint64_t z = *seed += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (float)(z >> 40) / (float)(1u << 23) - 1.0f;
}

static qn_status_t seed_all(bert_weights_t* weights, uint64_t seed) {
  BERT_TRY(begin_storage(weights));
  char name[NAME_BYTES];
  bert_tensor_t tensor;
  for (size_t i = 0; bert_weights_tensor(weights, i, name, &tensor); ++i) {
    float* data = NULL;
    BERT_TRY(make(weights->storage, &tensor, &data));
    // Scales of a normalisation are near 1, others near 0.
    const float middle = strstr(name, "LayerNorm.weight") != NULL ? 1.0f : 0.0f;
    for (size_t k = 0; k < count_of(&tensor); ++k) {
      data[k] = middle + 0.08f * next_uniform(&seed);
    }
  }
  return QN_OK;
}

qn_status_t bert_weights_seed(const bert_config_t* config, uint64_t seed,
                              bert_weights_t* out_weights) {
  qn_status_t status = begin(config, out_weights);
  if (qn_ok(status)) status = seed_all(out_weights, seed);
  if (!qn_ok(status)) bert_weights_free(out_weights);
  return status;
}

// ------------------------------------------------------------------------------------ files

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float from_bf16(uint16_t bits) {
  return from_bits((uint32_t)bits << 16);
}

static float from_f16(uint16_t bits) {
  const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 31u;
  const uint32_t fraction = bits & 1023u;
  if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent > 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = (float)fraction / 16777216.0f;  // 2^-24 each
  return sign ? -small : small;
}

static void copy_f32(const void* from, size_t count, float* to) {
  memcpy(to, from, count * sizeof *to);
}

static void copy_f16(const void* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    memcpy(&bits, (const char*)from + i * sizeof bits, sizeof bits);
    to[i] = from_f16(bits);
  }
}

static void copy_bf16(const void* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    memcpy(&bits, (const char*)from + i * sizeof bits, sizeof bits);
    to[i] = from_bf16(bits);
  }
}

static const struct {
  const char* text;
  void (*copy)(const void* from, size_t count, float* to);
} weight_dtypes[] = {{"F32", copy_f32}, {"F16", copy_f16}, {"BF16", copy_bf16}};

// Writes "[384, 1536]" for messages, cut where it does not fit.
static void format_shape(size_t rank, const int64_t* shape, char* text, size_t size) {
  int used = snprintf(text, size, "[");
  for (size_t i = 0; i < rank && used > 0 && (size_t)used < size; ++i) {
    used += snprintf(text + used, size - (size_t)used, "%s%lld", i > 0 ? ", " : "",
                     (long long)shape[i]);
  }
  if (used > 0 && (size_t)used < size) {
    (void)snprintf(text + used, size - (size_t)used, "]");
  }
}

// Finds a tensor by its name, or by the one that old checkpoints give to normalisations.
static bool find(const safetensors_t* file, const char* prefix, const char* name,
                 char full[FULL_NAME_BYTES], safetensors_tensor_t* out_tensor) {
  static const char* const renamed[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}};
  (void)snprintf(full, FULL_NAME_BYTES, "%s%s", prefix, name);
  if (safetensors_get(file, full, out_tensor)) return true;
  for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; ++i) {
    const char* end = strstr(name, renamed[i][0]);
    char old[FULL_NAME_BYTES];
    if (end == NULL) continue;
    (void)snprintf(old, sizeof old, "%s%.*s%s", prefix, (int)(end - name), name, renamed[i][1]);
    if (safetensors_get(file, old, out_tensor)) return true;
  }
  return false;
}

static qn_status_t take(bert_storage_t* storage, const char* prefix, const bert_tensor_t* tensor) {
  const char* path = safetensors_path(storage->file);
  char full[FULL_NAME_BYTES];
  char expected[64];
  format_shape(tensor->rank, tensor->shape, expected, sizeof expected);
  safetensors_tensor_t found;
  if (!find(storage->file, prefix, tensor->name, full, &found)) {
    return qn_status_make(QN_STATUS_NOT_FOUND,
                          "%s: no tensor \"%s\"; expected one of shape %s, as config.json says",
                          path, full, expected);
  }
  if (found.rank != tensor->rank ||
      memcmp(found.shape, tensor->shape, tensor->rank * sizeof *tensor->shape) != 0) {
    char text[192];
    format_shape(found.rank, found.shape, text, sizeof text);
    return qn_status_make(QN_STATUS_VALUE_ERROR,
                          "%s: tensor \"%s\" has shape %s, expected %s, as config.json says", path,
                          full, text, expected);
  }
  for (size_t i = 0; i < sizeof weight_dtypes / sizeof weight_dtypes[0]; ++i) {
    if (strcmp(weight_dtypes[i].text, found.dtype) != 0) continue;
    if (weight_dtypes[i].copy == copy_f32 && (uintptr_t)found.data % sizeof(float) == 0) {
      *tensor->data = found.data;
      return QN_OK;
    }
    float* data = NULL;
    BERT_TRY(make(storage, tensor, &data));
    weight_dtypes[i].copy(found.data, count_of(tensor), data);
    return QN_OK;
  }
  return qn_status_make(QN_STATUS_UNSUPPORTED,
                        "%s: tensor \"%s\" has dtype %s, expected F32, F16 or BF16", path, full,
                        found.dtype);
}

// Finds what is before the names of this encoder: "", "bert.", ... The first table tells.
static void find_prefix(const safetensors_t* file, char out_prefix[64]) {
  const char* anchor = embedding_rows[0].name;
  const size_t anchor_size = strlen(anchor);
  out_prefix[0] = '\0';
  for (const char* name = safetensors_next(file, NULL); name; name = safetensors_next(file, name)) {
    const size_t size = strlen(name);
    if (size < anchor_size || size - anchor_size >= 64) continue;
    const size_t before = size - anchor_size;
    if (strcmp(name + before, anchor) != 0 || (before > 0 && name[before - 1] != '.')) continue;
    memcpy(out_prefix, name, before);
    out_prefix[before] = '\0';
    return;
  }
}

static qn_status_t load(const char* folder, const bert_config_t* config, bert_weights_t* weights) {
  char path[PATH_BYTES];
  if (snprintf(path, sizeof path, "%s/model.safetensors", folder) >= (int)sizeof path) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the path of the weights is too long");
  }
  BERT_TRY(begin_storage(weights));
  BERT_TRY(safetensors_open(path, &weights->storage->file));
  char prefix[64];
  find_prefix(weights->storage->file, prefix);
  char name[NAME_BYTES];
  bert_tensor_t tensor;
  for (size_t i = 0; bert_weights_tensor(weights, i, name, &tensor); ++i) {
    BERT_TRY(take(weights->storage, prefix, &tensor));
  }
  if (weights->storage->made_count == tensor_count(config)) {
    safetensors_close(weights->storage->file);
    weights->storage->file = NULL;
  }
  return QN_OK;
}

qn_status_t bert_weights_load(const char* folder, const bert_config_t* config,
                              bert_weights_t* out_weights) {
  qn_status_t status = begin(config, out_weights);
  if (qn_ok(status)) status = load(folder, config, out_weights);
  if (!qn_ok(status)) bert_weights_free(out_weights);
  return status;
}

// ------------------------------------------------------------------------------------ places

qn_status_t bert_weights_import(const bert_weights_t* from, bert_place_t* place,
                                bert_weights_t* out_weights) {
  BERT_TRY(begin(&from->config, out_weights));
  out_weights->embeddings = from->embeddings;
  memcpy(out_weights->layers, from->layers, (size_t)from->config.layers * sizeof *from->layers);
  char name[NAME_BYTES];
  bert_tensor_t tensor;
  qn_status_t status = QN_OK;
  for (size_t i = 0; qn_ok(status) && bert_weights_tensor(out_weights, i, name, &tensor); ++i) {
    const void* memory = NULL;
    status = bert_place_import(place, *tensor.data, count_of(&tensor) * sizeof(float), &memory);
    *tensor.data = memory;
  }
  if (!qn_ok(status)) bert_weights_free(out_weights);
  return status;
}

void bert_weights_free(bert_weights_t* weights) {
  bert_storage_t* storage = weights->storage;
  if (storage != NULL) {
    for (size_t i = 0; i < storage->made_count; ++i) free(storage->made[i]);
    free(storage->made);
    safetensors_close(storage->file);
    free(storage);
  }
  free(weights->layers);
  *weights = (bert_weights_t){.layers = NULL};
}
